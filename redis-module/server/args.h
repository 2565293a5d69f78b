/* args - reading the arguments of a command. Whatever is wrong has been answered when a function
 * returns false:
 *
 *    -ERR syntax: <what is wrong, where, and what is expected>
 *    -ERR value: <name> is <value>, allowed is <range> */
#ifndef DOVELANE_REDIS_MODULE_SERVER_ARGS_H
#define DOVELANE_REDIS_MODULE_SERVER_ARGS_H

#include "redis-module/server/server.h"

struct args {
    RedisModuleCtx *ctx;
    RedisModuleString **argv;
    int argc, at;
    unsigned seen; /* bits of the options that were there */
};

static inline int args_left(const struct args *a)
{
    return a->argc - a->at;
}

/* Whether the next argument is that word; then it is passed. */
bool args_word(struct args *, const char *word);

/* The same for an option that may be there once. Options that exclude each other have the same
 * bit. */
bool args_option(struct args *, const char *word, unsigned bit);

/* Always false, after answering what is expected at the next argument. */
bool args_expected(struct args *, const char *expected);

/* Always false, after answering that a value is out of range. */
bool args_bad_value(struct args *, const char *name, RedisModuleString *value, const char *allowed);

/* The next argument: a number from min to max. Sequences and numbers of up to 2^63-1. */
bool args_number(struct args *, const char *name, uint64_t min, uint64_t max, uint64_t *);

/* The next argument, whatever it is. */
bool args_string(struct args *, const char *name, RedisModuleString **);

/* The next argument: an id of 16 bytes, or (optional) of none: *id_r is NULL then. */
bool args_id(struct args *, bool optional, const uint8_t **id_r);

/* A count followed by that many things of `each` arguments, all of them there. */
bool args_count(struct args *, const char *name, uint64_t min, uint64_t each, uint64_t *n);

/* That many keys follow: <numkeys> <key> ... */
bool args_keys(struct args *, RedisModuleString ***keys, uint64_t *n);

/* All arguments are used. */
bool args_end(struct args *);

#endif
