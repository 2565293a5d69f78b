/* holders - counts who has a process, and compares with the bounds of each kind. */
#include "dovecot-plugin/replicator/users/holders.h"

#include <stdlib.h>

#include "lib/base/assert.h"

void holders_add(struct user *u)
{
    ASSERT(!u->holds);
    TAILQ_INSERT_TAIL(u->r->holders, u, in_holders);
    u->holds = true;
}

void holders_remove(struct user *u)
{
    if (u->holds)
        TAILQ_REMOVE(u->r->holders, u, in_holders);
    u->holds = false;
}

/* Those too who are about to be of that kind, or who were closed: that may take as long. */
static size_t holders_of(const struct replicator *r, enum user_kind k)
{
    const struct user *u;
    size_t n = 0;
    TAILQ_FOREACH (u, r->holders, in_holders)
        n += user_kind_soon(u) == k;
    return n;
}

/* So many may have one: all slow ones together one, lengthy ones half of all, and one stays for
 * everybody else, where there are two. */
static bool is_beyond(const struct replicator *r, enum user_kind k, size_t more)
{
    size_t all = (size_t)r->config->replicator_workers, slow = holders_of(r, USER_SLOW),
           lengthy = holders_of(r, USER_LENGTHY);
    size_t most = k == USER_SLOW ? all - 1 : all / 2;
    return (k == USER_SLOW && slow + more > 1) || slow + lengthy + more > (most > 1 ? most : 1);
}

bool holders_have_room(const struct replicator *r, enum user_kind k)
{
    return k == USER_ORDINARY || !is_beyond(r, k, 1);
}

bool holders_are_beyond(const struct replicator *r, enum user_kind k)
{
    return is_beyond(r, k, 0);
}

struct holders *holders_open(void)
{
    struct holders *h = mem_zero(sizeof *h);
    TAILQ_INIT(h);
    return h;
}

void holders_close(struct holders *h)
{
    ASSERT(!h || TAILQ_EMPTY(h));
    free(h);
}
