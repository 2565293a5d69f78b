/* resend - reads the ledger page by page, and marks its users. */
#include "dovecot-plugin/replicator/users/resend.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "lib/base/log.h"
#include "dovecot-plugin/replicator/lanes/outbox.h"
#include "dovecot-plugin/replicator/users/sched.h"
#include "dovecot-plugin/replicator/users/user.h"

#define PAGE 200        /* users that are told to send again at a time */
#define PAGE_WAITING 50 /* the next page comes when fewer wait for a worker */
#define PAGE_EVERY 0.1

struct resend {
    struct replicator *r;
    ev_timer pages;
    char *after[FRAME_SITES_MAX]; /* of each peer: the page's last user; NULL: not under way */
};

struct page {
    struct replicator *r;
    size_t peer;
    char *last;
};

static void send_again(void *arg, const char *name, uint64_t ops, int64_t since)
{
    struct page *p = arg;
    struct user *u = user_get(p->r->users, name, strlen(name));
    (void)ops, (void)since;
    free(p->last);
    p->last = mem_strdup(name);
    if (!u)
        return;
    struct user_peer *up = &u->peer[p->peer];
    up->resend_wait = seconds(p->r->config->resend_after);
    up->resend_at = clock_monotonic() + up->resend_wait;
    user_want(u, p->peer, FRAME_SHIP_CONFIRMED);
}

static void next_page(struct resend *s, size_t peer)
{
    const struct peer *to = &s->r->group.peer[peer];
    struct page p = {s->r, peer, NULL};
    size_t n =
        ledger_each_unconfirmed(s->r->ledger, to->site, s->after[peer], PAGE, send_again, &p);
    free(s->after[peer]);
    s->after[peer] = n < PAGE ? NULL : mem_strdup(p.last);
    if (n < PAGE)
        log_debug("lane to replica %s: all users with something unconfirmed were asked to send it "
                  "again",
                  to->name);
    free(p.last);
}

static void on_pages(struct ev_loop *loop, ev_timer *t, int events)
{
    struct resend *s = t->data;
    bool more = false;
    (void)events;
    for (size_t i = 0; i < s->r->group.npeers; i++) {
        if (!s->after[i])
            continue;
        more = true;
        if (sched_waiting(s->r->sched) < PAGE_WAITING && outbox_ready(s->r->outbox, i))
            next_page(s, i);
    }
    if (!more)
        ev_timer_stop(loop, t);
}

void resend_all(struct resend *s, size_t peer)
{
    free(s->after[peer]);
    s->after[peer] = mem_strdup("");
    ev_timer_start(s->r->loop, &s->pages);
}

struct resend *resend_open(struct replicator *r)
{
    struct resend *s = mem_zero(sizeof *s);
    s->r = r;
    ev_timer_init(&s->pages, on_pages, PAGE_EVERY, PAGE_EVERY);
    s->pages.data = s;
    return s;
}

void resend_close(struct resend *s)
{
    if (!s)
        return;
    ev_timer_stop(s->r->loop, &s->pages);
    for (size_t i = 0; i < FRAME_SITES_MAX; i++)
        free(s->after[i]);
    free(s);
}
