/* pick - which mails a command means, as the same options on every command: lib/match.h has their kinds. */
#ifndef DOVELANE_CTL_PICK_H
#define DOVELANE_CTL_PICK_H

#include <getopt.h>

#include "match.h"
#include "queue.h"

/* For getopt_long: val is PICK_OPTION + kind. */
#define PICK_OPTION 1000
#define PICK_LONG_OPTIONS                                                                                                              \
    {"id", required_argument, NULL, PICK_OPTION + MATCH_ID}, {"sender", required_argument, NULL, PICK_OPTION + MATCH_SENDER},            \
        {"rcpt", required_argument, NULL, PICK_OPTION + MATCH_RCPT}, {"recipient", required_argument, NULL, PICK_OPTION + MATCH_RCPT},            \
        {"dest", required_argument, NULL, PICK_OPTION + MATCH_DEST},        \
        {"sasl-user", required_argument, NULL, PICK_OPTION + MATCH_SASL_USER},                                                          \
        {"client", required_argument, NULL, PICK_OPTION + MATCH_CLIENT}, {"age", required_argument, NULL, PICK_OPTION + MATCH_AGE},      \
        {"size", required_argument, NULL, PICK_OPTION + MATCH_SIZE}, {"error", required_argument, NULL, PICK_OPTION + MATCH_ERROR},      \
        {"header", required_argument, NULL, PICK_OPTION + MATCH_HEADER}, {"all", no_argument, NULL, PICK_OPTION + MATCH_ALL}

extern const char pick_help[];

/* Takes one option in; ends the program with 2 when its value is none. */
void pick_add(struct match *, int option, const char *value);

/* Keeps the items of the queue that are meant. */
void pick_filter(const struct match *, struct queue *);

#endif
