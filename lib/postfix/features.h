/* features - what Postfix's settings do to a mail of a service, and a diverted mail misses:
 * aliases, BCCs, filters, results of tables.
 *
 * Postfix does these when it queues a mail or delivers it itself (postconf(5), cleanup(8),
 * access(5), header_checks(5)). Both the milter, which then does not divert, and the admin's
 * check judge by this one walk. Blocks: runs postmap(1) and reads the tables' files. */
#ifndef DOVELANE_LIB_POSTFIX_FEATURES_H
#define DOVELANE_LIB_POSTFIX_FEATURES_H

#include "lib/config/config.h"
#include "lib/postfix/postconf.h"

enum feature_kind {
    FEATURE_SETTING, /* the parameter is set at all (parameters.h): no mail may be diverted */
    /* one of its tables can answer HOLD, FILTER, REDIRECT or BCC: no mail may be diverted */
    FEATURE_RESULT,
    /* a table of addresses: a mail whose sender is in it is not to be diverted */
    FEATURE_FOR_SENDERS,
    FEATURE_FOR_RECIPIENTS, /* the same of recipients */
};

struct postfix_feature {
    enum feature_kind kind;
    const char *parameter; /* "always_bcc", or the name of a restriction class */
    const char *what;      /* its value; the result and where it stands; one table of addresses */
    const char *why;       /* parameters.h says; "" else */
    const char *transport; /* NULL: any mail; else mail to its next hops alone ("smtp") */
    const char *unless;    /* "", or the setting of a destination's section that replaces it */
    bool by_name;          /* of these those without brackets (nexthop_by_name()) */
    bool in_cleanup;       /* cleanup(8) reads it: -o of the smtpd service does not change it */
    bool ignored;          /* `ignore` names the parameter or that table */
};

/* What was found lives until fn returns. */
typedef void features_fn(void *arg, const struct postfix_feature *);
/* Each word of a list that was read, a table or not: whose change means that the walk is to be
 * done again. */
typedef bool features_word_fn(void *arg, const char *word);

/* Walks through all that concerns a service ("smtp/inet"; NULL: main.cf alone). ignore: names of
 * parameters and tables that a diverted mail may miss. A table is not looked into where `ignore`
 * names it or its parameter. */
void features_of_service(const struct postconf *, const char *service,
                         const struct config_list *ignore, features_fn *, features_word_fn *,
                         void *arg);
/* What cleanup(8) does to the header and body of a mail that comes by that service, and has not
 * done to the proxy's mail. */
void features_behind_proxy(const struct postconf *, const char *service,
                           const struct config_list *ignore, features_fn *, void *arg);
/* What qmgr(8) and each service of master.cf that is an smtp(8) or lmtp(8) do as they deliver,
 * whatever service the mail came by. */
void features_of_delivery(const struct postconf *, const struct config_list *ignore, features_fn *,
                          void *arg);

#endif
