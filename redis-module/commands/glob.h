/* glob - the patterns of KEYS: * ? [a-z] [^a] and \ before a character that is meant as such. */
#ifndef DOVELANE_REDIS_MODULE_COMMANDS_GLOB_H
#define DOVELANE_REDIS_MODULE_COMMANDS_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* In time pattern length x text length at most, whatever the pattern. */
bool glob_match(const char *pattern, size_t pattern_len, const char *text, size_t text_len);

#endif
