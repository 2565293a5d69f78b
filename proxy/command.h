/* command - MAIL, RCPT and XFORWARD as Postfix's proxy client says them. Pure.
 *
 * Postfix passes MAIL and RCPT on exactly as its client wrote them (smtpd(8): state->buffer). So an
 * address may have any form that Postfix takes. Only one that Postfix would not change on its way
 * through its queue is read here ("plain": lib/mail/address.h); all others are Postfix's work. */
#ifndef DOVELANE_PROXY_COMMAND_H
#define DOVELANE_PROXY_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

struct command_path {
    bool plain;
    char *address; /* without <>, when plain; "" is the null sender */
    char *args;    /* with one blank between two, NULL: none */
};

/* line: "MAIL FROM:<a@b> SIZE=1"; keyword: "MAIL", "FROM". False: it does not begin like that. */
bool command_path(const char *line, const char *verb, const char *keyword,
                  struct command_path *out);
void command_path_free(struct command_path *);

/* The arguments without this one (AUTH: it is nothing for a port without login). malloc'd; NULL:
 * nothing is left. */
char *command_args_without(const char *args, const char *keyword);

/* The same of a whole line, "MAIL FROM:<\"a b\"@c> AUTH=<>": whatever its address looks like. */
char *command_line_without(const char *line, const char *keyword);

enum {
    XFORWARD_NAME,
    XFORWARD_ADDR,
    XFORWARD_PORT,
    XFORWARD_PROTO,
    XFORWARD_HELO,
    XFORWARD_IDENT,
    XFORWARD_SOURCE,
    XFORWARD_ATTRIBUTES
};
extern const char *const command_xforward_name[XFORWARD_ATTRIBUTES];

/* "XFORWARD NAME=a ADDR=b": sets value (malloc'd, decoded; NULL when [UNAVAILABLE]). False: an
 * attribute that we did not offer, or bad xtext. */
bool command_xforward(const char *line, char *value[XFORWARD_ATTRIBUTES]);

#endif
