/* pick - which mails a command means, as the same options on every command: lib/mail/match.h has their kinds. */
#ifndef DOVELANE_CTL_PICK_H
#define DOVELANE_CTL_PICK_H

#include <getopt.h>

#include "lib/mail/match.h"
#include "ctl/queue.h"

/* For getopt_long: val is PICK_OPTION + kind. */
#define PICK_OPTION 1000
#define PICK_ONE(name, kind) {name, required_argument, NULL, PICK_OPTION + (kind)}
#define PICK_LONG_OPTIONS                                                                                       \
    PICK_ONE("id", MATCH_ID), PICK_ONE("queue-id", MATCH_ID), PICK_ONE("sender", MATCH_SENDER),                 \
        PICK_ONE("from", MATCH_SENDER), PICK_ONE("rcpt", MATCH_RCPT), PICK_ONE("recipient", MATCH_RCPT),        \
        PICK_ONE("to", MATCH_RCPT), PICK_ONE("dest", MATCH_DEST), PICK_ONE("destination", MATCH_DEST),          \
        PICK_ONE("next-hop", MATCH_DEST), PICK_ONE("sasl-user", MATCH_SASL_USER),                               \
        PICK_ONE("login", MATCH_SASL_USER), PICK_ONE("client", MATCH_CLIENT), PICK_ONE("age", MATCH_AGE),       \
        PICK_ONE("size", MATCH_SIZE), PICK_ONE("error", MATCH_ERROR), PICK_ONE("header", MATCH_HEADER),         \
        {"all", no_argument, NULL, PICK_OPTION + MATCH_ALL}

void pick_print_help(void);

/* Takes one option in; ends the program with 2 when its value is none. */
void pick_add(struct match *, int option, const char *value);

/* The words that getopt has left are ids. */
void pick_ids(struct match *, int argc, char **argv);

/* Keeps the items of the queue that are meant. */
void pick_filter(const struct match *, struct queue *);

#endif
