/* user_slow - for how long users' questions hold workers (user.h). */
#include "dovecot-plugin/replicator/users/user.h"

#include "lib/base/clock.h"

/* seconds in which what a user's questions took is forgotten, bit by bit */
#define HELD_FOR 60.
#define KIND_FIRST 3600. /* seconds */
#define KIND_MOST 86400.

enum user_kind user_kind(const struct user *u)
{
    double now = clock_monotonic();
    return now < u->kind[USER_SLOW].until      ? USER_SLOW
           : now < u->kind[USER_LENGTHY].until ? USER_LENGTHY
                                               : USER_ORDINARY;
}

enum user_kind user_kind_soon(const struct user *u)
{
    enum user_kind k = user_kind(u);
    bool long_ago = u->asked_at != 0 && clock_monotonic() - u->asked_at >= USER_LENGTHY_AFTER;
    return k == USER_ORDINARY && long_ago ? USER_LENGTHY : k;
}

void user_is(struct user *u, enum user_kind k)
{
    double now = clock_monotonic(), wait = u->kind[k].wait * 2;
    /* one long piece of work is many lengthy questions */
    if (k == USER_SLOW || now >= u->kind[k].until)
        u->kind[k].wait = wait == 0 ? KIND_FIRST : wait > KIND_MOST ? KIND_MOST : wait;
    u->kind[k].until = now + u->kind[k].wait;
}

void user_held(struct user *u)
{
    double now = clock_monotonic(), left = 1 - (now - u->busy_at) / HELD_FOR;
    if (u->asked_at == 0)
        return;
    u->busy = (left > 0 ? u->busy * left : 0) + now - u->asked_at;
    u->busy_at = now;
    if (u->busy >= USER_LENGTHY_AFTER)
        user_is(u, USER_LENGTHY);
}
