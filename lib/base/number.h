/* number - decimal digits without printf: a mail's requests and log lines are full of them. */
#ifndef DOVELANE_LIB_BASE_NUMBER_H
#define DOVELANE_LIB_BASE_NUMBER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NUMBER_TEXT 21 /* bytes of the longest, with its NUL */

/* Returns how many digits there are. */
static inline size_t number_text(char out[NUMBER_TEXT], uint64_t n)
{
    char digit[NUMBER_TEXT];
    size_t at = sizeof digit - 1;
    digit[at] = '\0';
    do
        digit[--at] = (char)('0' + n % 10);
    while (n /= 10);
    memcpy(out, digit + at, sizeof digit - at);
    return sizeof digit - 1 - at;
}

#endif
