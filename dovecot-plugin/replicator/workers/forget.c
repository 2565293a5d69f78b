/* forget - ends requests to forget a user, and drops what is kept of him. */
#include "dovecot-plugin/replicator/workers/forget.h"

#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/replicator/lanes/inbox.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "dovecot-plugin/replicator/users/retire.h"
#include "dovecot-plugin/replicator/workers/job.h"
#include "dovecot-plugin/store/reserve.h"
#include "lib/base/log.h"

static void row(struct admin_request *q, const char *text)
{
    q->calls->row(q, (struct text){(const uint8_t *)text, strlen(text)});
}

/* Of the requests one is answered. */
static void say_forgotten(struct user *u, struct admin_request *q)
{
    struct replicator *r = u->r;
    struct frame_done d = {.result = FRAME_OK};
    row(q, "#\treplica\tforgotten");
    char *own = mem_printf("+%s\tyes", r->group.name);
    row(q, own);
    free(own);
    for (size_t i = 0; i < r->group.npeers; i++) {
        const struct peer *p = &r->group.peer[i];
        if (p->removed)
            continue;
        char *other = mem_printf("+%s\t%s", p->name,
                                 !u->peer[i].untold        ? "yes"
                                 : inbox_node(r->inbox, i) ? "being told"
                                                           : "is down, learns it when it is back");
        row(q, other);
        free(other);
    }
    q->calls->done(q, &d);
}

static void drop_state(struct user *u)
{
    uint8_t key[16];
    reserve_user_key(u->name, key);
    ledger_drop_origins(u->r->ledger, u->name);
    if (reserve_forget(u->r->reserve, key) < 0)
        log_warning("user=%s: the file of reserved numbers cannot be written: who is made again "
                    "under this name begins with a new epoch",
                    u->name);
}

/* A state that no worker has opened since this program keeps origins: its own is known. */
static void find_origin(struct user *u)
{
    struct replicator *r = u->r;
    struct orset_buf b = {.alloc = &replicator_heap};
    uint8_t key[16];
    ledger_get_origins(r->ledger, u->name, &b);
    reserve_user_key(u->name, key);
    struct frame_origin own = {r->group.self, reserve_epoch(r->reserve, key)};
    if (b.len == 0 && own.epoch != 0) {
        frame_put_origin(&b, own);
        ledger_set_origins(r->ledger, u->name, (struct text){b.data, b.len});
    }
    orset_buf_free(&b);
}

/* All requests. */
static void forget(struct user *u)
{
    static const char nothing[] =
        "nothing is kept of him here; if another site has known him, run it there";
    static const char full[] =
        "replicator.db cannot be written now: see that there is room, and say it again";
    struct admin_request *q;
    struct admin_requests asked;
    TAILQ_INIT(&asked);
    TAILQ_CONCAT(&asked, &u->forgets, link);
    find_origin(u);
    int r = retire_user(u);
    if (r > 0)
        log_info("user=%s: is forgotten, as an admin said", u->name);
    if (r >= 0) {
        drop_state(u);
        job_unknown(u);
    }
    while ((q = TAILQ_FIRST(&asked))) {
        TAILQ_REMOVE(&asked, q, link);
        if (r > 0)
            say_forgotten(u, q);
        else
            q->calls->failed(q, r < 0 ? full : nothing, r < 0);
    }
}

void forget_living(struct user *u)
{
    static const char living[] = "the userdb has this user: take him out of it at all sites first, "
                                 "or, where it answers for every name (static), say --force. His "
                                 "mailboxes: see the replication reference, Users come and go";
    struct admin_request *q, *next;
    u->ask_userdb = false;
    for (q = TAILQ_FIRST(&u->forgets); q; q = next) {
        next = TAILQ_NEXT(q, link);
        if (q->n > 1 && !strcmp(q->arg[1], FORGET_FORCED))
            continue;
        TAILQ_REMOVE(&u->forgets, q, link);
        q->calls->failed(q, living, false);
    }
    if (!TAILQ_EMPTY(&u->forgets))
        forget(u);
}

void forget_nobody(struct user *u)
{
    u->ask_userdb = false;
    if (!TAILQ_EMPTY(&u->forgets))
        forget(u);
    else if (retire_gone(u))
        drop_state(u);
}
