/* shape_work - what the files of the shape share. Belongs to shape*.c alone. */
#ifndef DOVELANE_LIB_SHAPE_SHAPE_WORK_H
#define DOVELANE_LIB_SHAPE_SHAPE_WORK_H

#include "lib/shape/shape.h"

/* In the order in which they are shown. */
enum shape_word {
    SHAPE_RATE,
    SHAPE_BURST,
    SHAPE_BYTE_RATE,
    SHAPE_BYTE_BURST,
    SHAPE_CONNECTIONS,
    SHAPE_RELAY_CONNECTIONS,
    SHAPE_CONNECTION_MAILS,
    SHAPE_FEEDBACK_POSITIVE,
    SHAPE_FEEDBACK_NEGATIVE,
    SHAPE_RETRY_FIRST,
    SHAPE_RETRY_MOST,
    SHAPE_TIMEOUT,
    SHAPE_TIMEOUT_ACTION,
    SHAPE_SIZE_MOST,
    SHAPE_BACKOFF,
    SHAPE_SUSPEND,
    SHAPE_SUSPEND_UNTIL,
    SHAPE_RESUMED,
    SHAPE_WARMUP,
    SHAPE_ACCEPT_ENTRIES,
    SHAPE_ACCEPT_AGE,
    SHAPE_OVER,
    SHAPE_WEIGHT,
    SHAPE_WORDS
};

/* Its number, or -1. */
int shape_word_index(const char *name);

/* Sets the word's field. NULL, or what is wrong (malloc'd). A reason is not copied. "none" leaves
 * the field as it is in a shape of zeros. */
char *shape_word_read(enum shape_word, const char *value, struct shape *into);

/* Takes the word's field over. */
void shape_word_copy(enum shape_word, const struct shape *from, struct shape *to);

/* How specific a pattern is; each level is above the ones before it. */
enum shape_level { SHAPE_ALL, SHAPE_GLOB, SHAPE_DOMAIN, SHAPE_EXACT };
enum shape_level shape_pattern_level(const char *pattern);
bool shape_pattern_fits(const char *pattern, const char *destination);

#endif
