/* parameters - what each parameter of Postfix means for a diverted mail (postconf(5); Postfix 3.7
 * to 3.11). parameters.def is the table. features.h acts by it; `dovelane check` and
 * docs/postfix-parameters.md show it. Pure. */
#ifndef DOVELANE_LIB_POSTFIX_PARAMETERS_H
#define DOVELANE_LIB_POSTFIX_PARAMETERS_H

#include <stdbool.h>
#include <stddef.h>

enum parameter_class {
    PARAMETER_FORBIDS,     /* another value than `off` keeps mail in Postfix */
    PARAMETER_LOOKED_INTO, /* its tables are asked: a result or an address decides */
    PARAMETER_OBEYED,      /* diverted mail has it, too */
    PARAMETER_GIVEN_UP,    /* diverted mail misses it, and the admin is warned */
    PARAMETER_BEFORE,      /* acts before the mail comes to the milter, or the proxy */
    PARAMETER_HARMLESS,    /* concerns no diverted mail */
};

enum parameter_prefix {
    PARAMETER_PLAIN,
    PARAMETER_AGENT,     /* "smtp_" or "lmtp_", by the command of the service in master.cf */
    PARAMETER_TRANSPORT, /* "default_", or a transport's name and "_" */
};

/* Whose value counts, and which mail it keeps in Postfix. */
enum parameter_reader {
    PARAMETER_READER_NONE,
    PARAMETER_READER_SMTPD,     /* the smtpd that the mail comes by: all mail of it */
    PARAMETER_READER_CLEANUP,   /* its cleanup(8): the same */
    PARAMETER_READER_PROXY,     /* the same, but mail by the milter has had it already */
    PARAMETER_READER_QMGR,      /* main.cf: all mail */
    PARAMETER_READER_AGENT,     /* the service that delivers: mail of its transport */
    PARAMETER_READER_ANY_AGENT, /* the same; the name has no prefix */
    PARAMETER_READER_BY_NAME,   /* the same, but not to next hops in brackets */
    PARAMETER_READER_TRANSPORT, /* main.cf's NAME_..., else default_...: mail of that transport */
    PARAMETER_READER_LISTED,    /* main.cf, a list of transports: their mail */
};

/* One row of the table. All texts are static. */
struct parameter {
    const char *names; /* parted by blanks, without their prefix; one where class is FORBIDS */
    const char *off;   /* "a|b": the values with which it does nothing */
    /* "", or the setting of a destination's section in dovelane.conf that replaces it */
    const char *unless;
    const char *why; /* in words for the admin */
    enum parameter_class class;
    enum parameter_prefix prefix;
    enum parameter_reader reader;
};

/* The rows, in the table's order; NULL behind the last one. */
const struct parameter *parameter_row(size_t i);

/* The row of a name as postconf(1) prints it ("lmtp_header_checks"), or NULL: the table does not
 * know it. */
const struct parameter *parameter_find(const char *name);

/* True when that value does nothing. Of a row whose class is FORBIDS. */
bool parameter_is_off(const struct parameter *, const char *value);

/* "keeps mail in Postfix": a class in words. */
const char *parameter_class_words(enum parameter_class);

#endif
