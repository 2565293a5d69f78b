/* match_options - the options that say which mails a command means, the same on every command
 * (lib/mail/match.h). */
#ifndef DOVELANE_CTL_MATCH_OPTIONS_H
#define DOVELANE_CTL_MATCH_OPTIONS_H

#include <getopt.h>

#include "lib/mail/match.h"
#include "ctl/queue.h"

/* For getopt_long: val is MATCH_OPTION + kind. */
#define MATCH_OPTION 1000
#define MATCH_OPTION_ONE(name, kind)                         \
    {                                                        \
        name, required_argument, NULL, MATCH_OPTION + (kind) \
    }
#define MATCH_LONG_OPTIONS                                                                     \
    MATCH_OPTION_ONE("id", MATCH_ID), MATCH_OPTION_ONE("queue-id", MATCH_ID),                  \
        MATCH_OPTION_ONE("sender", MATCH_SENDER), MATCH_OPTION_ONE("from", MATCH_SENDER),      \
        MATCH_OPTION_ONE("rcpt", MATCH_RCPT), MATCH_OPTION_ONE("recipient", MATCH_RCPT),       \
        MATCH_OPTION_ONE("to", MATCH_RCPT), MATCH_OPTION_ONE("dest", MATCH_DEST),              \
        MATCH_OPTION_ONE("destination", MATCH_DEST), MATCH_OPTION_ONE("next-hop", MATCH_DEST), \
        MATCH_OPTION_ONE("sasl-user", MATCH_SASL_USER),                                        \
        MATCH_OPTION_ONE("login", MATCH_SASL_USER), MATCH_OPTION_ONE("client", MATCH_CLIENT),  \
        MATCH_OPTION_ONE("age", MATCH_AGE), MATCH_OPTION_ONE("size", MATCH_SIZE),              \
        MATCH_OPTION_ONE("error", MATCH_ERROR), MATCH_OPTION_ONE("header", MATCH_HEADER),      \
    {                                                                                          \
        "all", no_argument, NULL, MATCH_OPTION + MATCH_ALL                                     \
    }

void match_options_print_help(void);

/* Takes one option in; ends the program with 2 when its value is not valid. */
void match_options_add(struct match *, int option, const char *value);

/* The words that getopt has left are ids. */
void match_options_ids(struct match *, int argc, char **argv);

/* Whether it is meant. */
bool match_options_fit(const struct match *, struct item *);

/* Keeps the items of the queue that are meant. */
void match_options_filter(const struct match *, struct queue *);

#endif
