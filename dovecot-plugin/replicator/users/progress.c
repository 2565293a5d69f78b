/* progress - counts what was placed, and says how far and how fast. */
#include "dovecot-plugin/replicator/users/progress.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "dovecot-plugin/replicator/site/ledger.h"
#include "lib/base/metrics.h"

#define WINDOW 30                /* seconds of which a rate is made */
#define NOTE_EVERY 1.            /* seconds */
#define MAIL_SIZE 32768.         /* where none was placed yet */
#define MAIL_LEAST 1024.         /* whatever a worker counts, */
#define MAIL_MOST (1024. * 1024) /* ... an average is within these */

struct progress {
    struct replicator *r;
    uint64_t kept_failed, unseen;   /* of the users in memory */
    uint64_t unplaced, held, names; /* of all users, also those who are not in memory */
    bool fills;
    uint64_t mails, bytes; /* placed since the filling began */
    double since;          /* it began, or this run did */
    double noted;          /* when that was last written */
    struct {
        int64_t at;
        uint64_t n[PROGRESS_KINDS];
    } second[WINDOW];
};

static void show_waiting(const struct progress *p)
{
    metric_set(replicator_unplaced, (long long)p->unplaced);
    metric_set(replicator_held, (long long)p->held);
    metric_set(replicator_names, (long long)p->names);
}

/* ---- a filling ---- */

static void note(struct progress *p)
{
    ledger_note(p->r->ledger, "filling", p->fills);
    ledger_note(p->r->ledger, "placed", p->mails);
    ledger_note(p->r->ledger, "placed_bytes", p->bytes);
    p->noted = clock_monotonic();
}

static void begin(struct progress *p)
{
    if (p->fills)
        return;
    p->fills = true;
    p->mails = p->bytes = 0;
    p->since = clock_monotonic();
    memset(p->second, 0, sizeof p->second);
    note(p);
}

static void end_if_full(struct progress *p)
{
    uint64_t users, joined;
    if (!p->fills || p->unplaced > 0)
        return;
    ledger_count(p->r->ledger, &users, &joined);
    if (joined < users)
        return;
    p->fills = false;
    note(p);
}

static void count(struct progress *p, int kind, uint64_t n)
{
    int64_t now = (int64_t)clock_monotonic();
    size_t i = (size_t)(now % WINDOW);
    if (p->second[i].at != now)
        memset(&p->second[i], 0, sizeof p->second[i]);
    p->second[i].at = now;
    p->second[i].n[kind] += n;
}

static void count_placed(struct progress *p, uint64_t mails, uint64_t bytes)
{
    if (!p->fills || mails == 0)
        return;
    p->mails += mails;
    p->bytes += bytes;
    count(p, PROGRESS_MAILS, mails);
    count(p, PROGRESS_BYTES, bytes);
    if (clock_monotonic() - p->noted >= NOTE_EVERY)
        note(p);
}

/* ---- users ---- */

static bool is_known(struct user *u)
{
    u->known = u->known || ledger_knows(u->r->ledger, u->name);
    return u->known;
}

void progress_load(struct user *u)
{
    struct ledger *l = u->r->ledger;
    (void)ledger_get_waiting(l, u->name, &u->unplaced, &u->held);
    u->names = ledger_get_names(l, u->name);
    u->joining = ledger_has_joined(l, u->name) ? FRAME_JOINED : FRAME_JOINING;
}

static void waits(struct user *u, uint64_t unplaced, uint64_t held)
{
    struct progress *p = u->r->progress;
    if (u->unplaced == unplaced && u->held == held)
        return;
    p->unplaced += unplaced - u->unplaced;
    p->held += held - u->held;
    u->unplaced = unplaced;
    u->held = held;
    ledger_waiting(u->r->ledger, u->name, unplaced, held);
    show_waiting(p);
}

static void names_wait(struct user *u, uint64_t names)
{
    struct progress *p = u->r->progress;
    if (u->names == names)
        return;
    p->names += names - u->names;
    u->names = names;
    ledger_names(u->r->ledger, u->name, names);
    show_waiting(p);
}

void progress_joins(struct user *u, enum frame_joins joining)
{
    bool was = u->joining == FRAME_JOINED, is = joining == FRAME_JOINED;
    if (is && !is_known(u))
        return; /* an admin asked for somebody unheard of, who is counted when something is heard */
    u->joining = joining;
    if (was != is)
        ledger_joined(u->r->ledger, u->name, is);
    if (is && !was)
        count(u->r->progress, PROGRESS_USERS, 1);
}

static void keeping_waits(struct user *u, uint64_t failed)
{
    struct progress *p = u->r->progress;
    p->kept_failed += failed - u->kept_failed;
    u->kept_failed = failed;
    metric_set(replicator_kept_failed, (long long)p->kept_failed);
}

static void unseen_wait(struct user *u, uint64_t unseen)
{
    struct progress *p = u->r->progress;
    p->unseen += unseen - u->unseen;
    u->unseen = unseen;
    metric_set(replicator_unreadable, (long long)p->unseen);
}

static void count_kept(struct user *u, const struct frame_done *d)
{
    metric_add(replicator_kept, (long long)d->kept);
    metric_add(replicator_kept_bytes, (long long)d->kept_bytes);
    metric_add(replicator_kept_restored, (long long)d->kept_restored);
    metric_add(replicator_kept_purged, (long long)d->kept_purged);
    if (u->kept_failed != d->kept_failed)
        keeping_waits(u, d->kept_failed);
}

void progress_done(struct user *u, const struct frame_done *d)
{
    struct progress *p = u->r->progress;
    bool joins = u->joining != FRAME_JOINED || d->joins != FRAME_JOINED;
    if (joins && is_known(u))
        begin(p);
    count_placed(p, d->placed, d->placed_bytes);
    count_kept(u, d);
    if (u->unseen != d->unseen)
        unseen_wait(u, d->unseen);
    waits(u, d->unplaced, d->held);
    names_wait(u, d->names);
    u->state_bytes = d->state_bytes;
    progress_joins(u, d->joins);
    if (p->unplaced >= PROGRESS_MANY)
        begin(p);
    end_if_full(p);
}

void progress_forget(struct user *u)
{
    waits(u, 0, 0);
    names_wait(u, 0);
    keeping_waits(u, 0);
    unseen_wait(u, 0);
    u->joining = FRAME_JOINING;
    end_if_full(u->r->progress);
}

bool progress_fills(const struct user *u)
{
    return u->joining != FRAME_JOINED || u->unplaced >= PROGRESS_MANY;
}

/* ---- what is shown ---- */

double progress_mail_size(const struct progress *p)
{
    double size = p->mails ? (double)p->bytes / (double)p->mails : MAIL_SIZE;
    return size < MAIL_LEAST ? MAIL_LEAST : size > MAIL_MOST ? MAIL_MOST : size;
}

static double rate_of(const struct progress *p, int kind)
{
    double now = clock_monotonic(), span = now - p->since;
    uint64_t n = 0;
    for (size_t i = 0; i < WINDOW; i++)
        if (p->second[i].at > (int64_t)now - WINDOW)
            n += p->second[i].n[kind];
    return (double)n / (span > WINDOW ? WINDOW : span < 1 ? 1 : span);
}

void progress_rows(const struct progress *p, bool listed, struct progress_row row[PROGRESS_KINDS])
{
    struct progress_row *users = &row[PROGRESS_USERS], *mails = &row[PROGRESS_MAILS];
    struct progress_row *bytes = &row[PROGRESS_BYTES];
    uint64_t all;
    ledger_count(p->r->ledger, &all, &users->done);
    users->left = all - users->done;
    mails->done = p->mails;
    mails->left = p->unplaced;
    bytes->done = p->bytes;
    double each = p->mails ? (double)p->bytes / (double)p->mails : 0;
    bytes->left = (uint64_t)(each * (double)p->unplaced);
    users->known = listed && all > 0;
    mails->known = true;
    mails->more = bytes->more = !users->known || users->left > 0;
    users->more = false;
    bytes->known = p->mails > 0 || p->unplaced == 0;
    for (int i = 0; i < PROGRESS_KINDS; i++)
        row[i].rate = rate_of(p, i);
}

static bool is_asked(const struct user *u)
{
    for (size_t i = 0; i < u->r->group.npeers; i++)
        if (u->peer[i].asking)
            return true;
    return false;
}

const char *progress_of(struct replicator *r, const char *name, const struct user *u,
                        uint64_t *left_r)
{
    uint64_t held;
    if (!ledger_knows(r->ledger, name))
        return NULL;
    (void)ledger_get_waiting(r->ledger, name, left_r, &held);
    if (ledger_has_joined(r->ledger, name))
        return *left_r ? "mails left" : "joined";
    if (u && is_asked(u))
        return "being asked";
    if (u && u->joining == FRAME_READING)
        return "a site reads its mailboxes";
    return u && u->joining == FRAME_UNASKED ? "a site has not answered" : "waits for its turn";
}

/* ---- all of it ---- */

struct progress *progress_open(struct replicator *r)
{
    struct progress *p = mem_zero(sizeof *p);
    p->r = r;
    (void)ledger_get_waiting(r->ledger, NULL, &p->unplaced, &p->held);
    p->names = ledger_get_names(r->ledger, NULL);
    show_waiting(p);
    p->fills = ledger_noted(r->ledger, "filling");
    p->mails = ledger_noted(r->ledger, "placed");
    p->bytes = ledger_noted(r->ledger, "placed_bytes");
    p->since = clock_monotonic();
    return p;
}

void progress_close(struct progress *p)
{
    if (p && p->fills)
        note(p);
    free(p);
}
