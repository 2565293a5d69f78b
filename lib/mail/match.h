/* match - the admin's selectors, which say which mails are meant. The command `dovelane` uses them
 * on mail in lanes, and the milter on mail that comes in, for hold rules. Of one kind one must fit,
 * of different kinds all must. Nothing depends on case. */
#ifndef DOVELANE_LIB_MAIL_MATCH_H
#define DOVELANE_LIB_MAIL_MATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/mail/entryid.h"
#include "lib/mail/envelope.h"
#include "lib/base/mem.h"

enum match_kind {
    MATCH_ID,        /* Postfix's queue id, or the entry's in hex */
    MATCH_SENDER,    /* glob; "" is the null sender */
    MATCH_RCPT,      /* glob: any recipient that is still open */
    MATCH_DEST,      /* glob: "lmtp:*" */
    MATCH_SASL_USER, /* glob */
    MATCH_CLIENT,    /* glob on address or name, or a network: 192.0.2.0/24 */
    MATCH_AGE,       /* arrived at least so long ago: "1h"; "<1h": less */
    MATCH_SIZE,      /* at least: "1MB"; "<1MB": less */
    MATCH_ERROR,     /* regex: the last error of any open recipient */
    MATCH_HEADER,    /* regex: a header line, unfolded */
    MATCH_ALL,
    MATCH_KINDS
};

struct match_rule;
struct match {
    struct match_rule *rule;
    size_t n;
};

/* "sender"; the names of the command's options. */
const char *match_name(enum match_kind);

/* NULL, or what is wrong with the value (malloc'd). */
char *match_add(struct match *, enum match_kind, const char *value);
bool match_has(const struct match *, enum match_kind);
void match_free(struct match *);

/* "--sender '*@example.org' --age '1h'"; malloc'd. */
char *match_text(const struct match *);

/* One option a line ("sender *@example.org"), to be read again by match_parse, which answers as
 * match_add does. */
void match_print(const struct match *, struct buf *out);
char *match_parse(struct match *, const char *text, size_t len);

struct match_facts {
    const struct envelope *envelope; /* NULL: it cannot be read; only id, dest and all can fit */
    const unsigned char *id;         /* may be NULL */
    const char *destination;         /* may be NULL */
    void *arg;
    const char *(*error)(void *arg, const struct recipient *); /* NULL: none has one */
    /* The message, asked for last, and only by MATCH_HEADER. False: it is not there. */
    bool (*message)(void *arg, const char **data, size_t *len);
};

bool match_fits(const struct match *, const struct match_facts *);
/* The same where nothing is known of client, login, size and header: what asks for these counts
 * as fitting. */
bool match_may_fit(const struct match *, const struct match_facts *);

#endif
