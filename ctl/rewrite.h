/* rewrite - Postfix's trivial-rewrite(8), asked as smtpd(8) asks it when it takes a mail: how an
 * address is written inside, and then where that goes. */
#ifndef DOVELANE_CTL_REWRITE_H
#define DOVELANE_CTL_REWRITE_H

#include <stdbool.h>

struct postconf;
struct rewrite;

struct resolved {
    char *transport, *nexthop;
    char *recipient;  /* in the form on the wire */
    bool impossible;  /* the address cannot be */
    bool unavailable; /* a map could not be asked: nobody knows */
};

/* Ends the program with 2 when it cannot be asked: Postfix must run, and its directory private/
 * is root's. */
struct rewrite *rewrite_open(const struct postconf *);
void rewrite_close(struct rewrite *);

/* Both addresses as SMTP has them, without brackets. Ends the program with 2 when it does not
 * answer. */
struct resolved rewrite_ask(struct rewrite *, const char *sender, const char *address);
void resolved_free(struct resolved *);

#endif
