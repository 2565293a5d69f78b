/* simulate - replicas with mailboxes, users, crashes and bad links, from a seed.
 *
 * Each site has a disk (store), a mailbox per folder, a journal of what users expunged, and lanes to the
 * others. A step is one of: a user's command in a mailbox; ingest; ship; a batch delivered, lost, delivered
 * twice; a piece of work on a mailbox (with a crash before or after the mailbox commit); an exchange message;
 * a piece of a UID round; a crash; a restored old state; mails that vanish without a user; a site that dies
 * for ever. At the end links are good, everybody does all that is left, and: digests are equal; mailboxes are
 * what the state says; nothing removed is back; nothing added and not removed is missing (but for what only a
 * dead or restored site knew); (UIDVALIDITY, UID) names one mail on all sites.
 *
 *     simulate [runs [seed]]       default 400 runs; "long": 5,000
 *     simulate away [n]            a peer away for n operations (default 50,000) */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "batch.h"
#include "exchange.h"
#include "memstore.h"
#include "orset.h"
#include "uid.h"

#define SITES 4
#define BOXES 24
#define MAILS 200
#define LANE 64

struct mail {
    uint32_t uid;
    uint8_t guid;
    uint8_t flags;
};

struct box {
    uint32_t uid_next;
    unsigned n;
    struct mail mail[MAILS];
    unsigned nexpunged;
    uint32_t expunged[MAILS]; /* by users: evidence */
};

struct message {
    uint8_t *bytes;
    size_t len;
};

struct lane {
    struct message m[LANE];
    unsigned n;
};

struct site {
    bool dead;
    struct orset_memstore *disk, *old;
    struct box *box, *old_box;
    uint64_t reserve; /* highest own number ever, kept outside the disk */
    uint64_t epoch;
    struct orset *os;
    uint64_t confirmed[SITES];
    struct orset_exchange *x[SITES];
    struct message question[SITES], answer[SITES];
    /* the keeper's round */
    uint32_t round_folder;
    struct orset_buf ask;
    struct message reply[SITES];
};

struct global_dot {
    uint64_t site, epoch, counter;
    uint8_t guid;
    unsigned removed; /* by these sites */
    bool sure;        /* sure: its op was seen by a site that neither died nor was restored */
};

static struct site site[SITES];
static struct lane lane[SITES][SITES];
static unsigned nsites;
static unsigned unsure; /* sites that died or were restored: what only they knew is not judged */
static uint64_t rng, seed_now;
static struct global_dot *dots;
static size_t ndots, dots_room;
static uint64_t renumbered, mails_made, crashes, exchanges, rounds, restores, deaths, damages, steps_done;

static uint64_t rnd(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng * 0x2545f4914f6cdd1dULL >> 8;
}

static unsigned below(unsigned n)
{
    return (unsigned)(rnd() % n);
}

static void fail(const char *what, const struct site *s)
{
    fprintf(stderr, "FAILED with seed %" PRIu64 ", step %" PRIu64 ": %s%s%s\n", seed_now, steps_done, what,
            s ? ": " : "", s && s->os ? orset_error_text(s->os) : "");
    exit(1);
}

static int must(struct site *s, int r)
{
    if (r < 0)
        fail(orset_error_name(r), s);
    return r;
}

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, n);
}

static const struct orset_alloc HEAP = {NULL, resize};

static void message_set(struct message *m, struct orset_buf *b)
{
    free(m->bytes);
    m->bytes = b->data;
    m->len = b->len;
    b->data = NULL;
    b->len = b->room = 0;
}

static void message_clear(struct message *m)
{
    free(m->bytes);
    memset(m, 0, sizeof *m);
}

/* --- a site's life
 * ---------------------------------------------------------------------------------------------------- */

static void start(struct site *s)
{
    struct orset_store store;
    struct orset_origin me = {(uint64_t)(s - site) + 1, s->epoch};
    orset_memstore_interface(s->disk, &store);
    must(s, orset_open(&s->os, &HEAP, &store, &me, NULL));
    /* The reserve is ahead: this state is an old copy (F12, F20). */
    if (orset_vector_get(s->os, orset_self(s->os)) < s->reserve ||
        orset_origin_get(s->os, orset_self(s->os)).epoch != s->epoch) {
        s->epoch += 1000;
        must(s, orset_begin(s->os));
        must(s, orset_new_epoch(s->os, s->epoch));
        must(s, orset_commit(s->os));
        memset(s->confirmed, 0, sizeof s->confirmed);
        s->reserve = 0;
    }
}

static void stop(struct site *s)
{
    for (unsigned i = 0; i < nsites; i++) {
        orset_exchange_free(s->os, s->x[i]);
        s->x[i] = NULL;
        message_clear(&s->question[i]);
        message_clear(&s->answer[i]);
        message_clear(&s->reply[i]);
    }
    s->round_folder = ORSET_NO_FOLDER;
    orset_buf_free(&s->ask);
    orset_close(s->os);
    s->os = NULL;
}

static void crash(struct site *s)
{
    crashes++;
    stop(s);
    start(s);
}

static void commit(struct site *s)
{
    must(s, orset_commit(s->os));
    s->reserve = orset_vector_get(s->os, orset_self(s->os));
}

static struct box *box_of(struct site *s, uint32_t folder)
{
    if (folder >= BOXES)
        fail("too many folders for the simulation", s);
    struct box *b = &s->box[folder];
    if (b->uid_next == 0)
        b->uid_next = 1;
    return b;
}

static struct mail *mail_by_uid(struct box *b, uint32_t uid)
{
    for (unsigned i = 0; i < b->n; i++)
        if (b->mail[i].uid == uid)
            return &b->mail[i];
    return NULL;
}

static struct mail *save(struct box *b, uint32_t uid, uint8_t guid, uint8_t flags)
{
    if (b->n == MAILS)
        fail("too many mails for the simulation", NULL);
    if (uid < b->uid_next)
        uid = b->uid_next;
    b->uid_next = uid + 1;
    b->mail[b->n] = (struct mail){uid, guid, flags};
    return &b->mail[b->n++];
}

static void take_out(struct box *b, uint32_t uid)
{
    for (unsigned i = 0; i < b->n; i++)
        if (b->mail[i].uid == uid) {
            memmove(&b->mail[i], &b->mail[i + 1], (b->n - i - 1) * sizeof b->mail[0]);
            b->n--;
            return;
        }
}

/* --- the journal the end is judged by
 * ------------------------------------------------------------------------------------ */

static bool in_vain; /* the transaction will be rolled back */

static struct global_dot *journal(struct site *s, struct orset_dot d)
{
    static struct global_dot nowhere;
    if (in_vain)
        return &nowhere;
    struct orset_origin o = orset_origin_get(s->os, d.origin);
    for (size_t i = 0; i < ndots; i++)
        if (dots[i].site == o.site && dots[i].epoch == o.epoch && dots[i].counter == d.counter)
            return &dots[i];
    if (ndots == dots_room) {
        dots_room = dots_room ? dots_room * 2 : 256;
        dots = realloc(dots, dots_room * sizeof *dots);
    }
    dots[ndots] = (struct global_dot){o.site, o.epoch, d.counter, 0, 0, false};
    return &dots[ndots++];
}

struct same_message {
    struct site *s;
    struct orset_message m;
    bool all_placed;
};

static int mark_removed(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct same_message *a = arg;
    (void)own;
    if (a->all_placed ? m->uid != 0 : m->k == a->m.k && memcmp(m->facts.guid, a->m.facts.guid, 16) == 0)
        journal(a->s, m->dot)->removed |= 1U << (a->s - site);
    return 0;
}

/* --- ingest
 * -----------------------------------------------------------------------------------------------------------
 */

static void facts_of(uint8_t guid, struct orset_facts *f)
{
    memset(f, 0, sizeof *f);
    f->guid[0] = guid;
    memset(f->sha256, guid, 32);
    f->received = f->saved = 1700000000 + guid;
    f->size = 1000u + guid;
}

static void ingest_box(struct site *s, uint32_t folder)
{
    struct box *b = box_of(s, folder);
    for (unsigned i = 0; i < b->nexpunged; i++) {
        struct same_message a = {.s = s};
        if (must(s, orset_message_by_uid(s->os, folder, b->expunged[i], &a.m)) > 0)
            must(s, orset_each_message(s->os, a.m.folder, mark_removed, &a));
        must(s, orset_local_expunge(s->os, folder, b->expunged[i]));
    }
    for (unsigned i = 0; i < b->n; i++) {
        struct orset_flags f = {.system = b->mail[i].flags};
        struct orset_facts facts;
        struct orset_dot d;
        facts_of(b->mail[i].guid, &facts);
        int r = must(s, orset_local_add(s->os, folder, b->mail[i].uid, &facts, &f, &d));
        if (r == ORSET_OK) {
            journal(s, d)->guid = b->mail[i].guid;
            mails_made++;
        }
        struct orset_message m;
        if (must(s, orset_message_by_uid(s->os, folder, b->mail[i].uid, &m)) > 0)
            must(s, orset_local_flags(s->os, folder, b->mail[i].uid, &f, NULL));
    }
    must(s, orset_local_uid_next(s->os, folder, b->uid_next));
}

static int collect_missing(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    uint32_t *list = arg;
    (void)own;
    if (m->uid && list[0] < MAILS) {
        bool there = false;
        for (uint32_t i = 1; i <= list[0]; i++)
            there |= list[i] == m->uid;
        if (!there)
            list[++list[0]] = m->uid;
    }
    return 0;
}

/* What the state has bound and the mailbox lacks, without a user's word: damage. */
static void ingest_missing(struct site *s, uint32_t folder)
{
    struct box *b = box_of(s, folder);
    uint32_t list[MAILS + 1] = {0};
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        must(s, orset_folder_get(s->os, i, &f));
        if (f.home == folder)
            must(s, orset_each_message(s->os, i, collect_missing, list));
    }
    for (uint32_t i = 1; i <= list[0]; i++)
        if (!mail_by_uid(b, list[i]))
            must(s, orset_local_missing(s->os, folder, list[i]));
}

/* The log's cursor is in the commit: only now the log behind it is done with. */
static void commit_ingest(struct site *s)
{
    commit(s);
    for (unsigned i = 0; i < BOXES; i++)
        s->box[i].nexpunged = 0;
}

static bool is_home(struct site *s, uint32_t i)
{
    struct orset_folder f;
    return orset_folder_get(s->os, i, &f) == 0 && f.live && f.named && f.home == i;
}

static void ingest(struct site *s)
{
    in_vain = below(8) == 0; /* a crash before the commit: nothing was published */
    must(s, orset_begin(s->os));
    for (uint32_t i = 0; i < orset_folders(s->os); i++)
        if (is_home(s, i)) {
            ingest_box(s, i);
            ingest_missing(s, i);
        }
    if (in_vain) {
        in_vain = false;
        orset_rollback(s->os);
        crash(s);
        return;
    }
    commit_ingest(s);
}

/* --- work on the mailboxes
 * ---------------------------------------------------------------------------------------------- */

/* One todo row. crash_at 0: none, 1: before the mailbox commit, 2: after it, before the state knows. True
 * when one was done. */
static bool work(struct site *s, unsigned skip, unsigned crash_at)
{
    static struct orset_todo t;
    struct box *b;
    struct mail *m;
    t.at_len = 0;
    do {
        if (must(s, orset_todo_next(s->os, &t)) == 0)
            return false;
    } while (skip-- > 0);
    if (crash_at == 1) {
        crash(s);
        return true;
    }
    must(s, orset_begin(s->os));
    switch (t.kind) {
    case ORSET_TODO_FOLDER: {
        struct orset_folder f;
        must(s, orset_folder_get(s->os, t.folder, &f));
        if (!f.live && t.folder < BOXES)
            memset(&s->box[t.folder], 0, sizeof s->box[0]);
        must(s, orset_done_folder(s->os, t.folder));
        break;
    }
    case ORSET_TODO_PLACE:
        b = box_of(s, t.folder);
        m = save(b, t.uid, t.message.facts.guid[0], t.flags.system);
        if (crash_at == 2)
            break;
        must(s, orset_done_place(s->os, t.message.folder, t.message.dot, m->uid, &t.flags));
        break;
    case ORSET_TODO_FLAGS:
        m = mail_by_uid(box_of(s, t.folder), t.uid);
        if (!m) { /* damage that ingest has not met yet */
            must(s, orset_local_missing(s->os, t.folder, t.uid));
            break;
        }
        m->flags = t.flags.system;
        if (crash_at != 2)
            must(s, orset_done_flags(s->os, t.folder, t.uid, &t.flags));
        break;
    case ORSET_TODO_REMOVE:
        take_out(box_of(s, t.folder), t.uid);
        if (crash_at != 2)
            must(s, orset_done_remove(s->os, t.folder, t.uid));
        break;
    case ORSET_TODO_RENUMBER: {
        /* In the order of the new UIDs: the mailbox gives rising ones only. */
        static struct orset_todo other;
        for (other = t; must(s, orset_todo_next(s->os, &other)) > 0 && other.kind == ORSET_TODO_RENUMBER;)
            if (other.folder == t.folder && other.new_uid < t.new_uid) {
                t.uid = other.uid;
                t.new_uid = other.new_uid;
            }
        b = box_of(s, t.folder);
        m = mail_by_uid(b, t.uid);
        if (!m) {
            must(s, orset_local_missing(s->os, t.folder, t.uid));
            break;
        }
        struct mail copy = *m;
        take_out(b, t.uid);
        m = save(b, t.new_uid, copy.guid, copy.flags);
        renumbered++;
        /* Recognised by its intent row: the move and the row are one journalled step at the caller. */
        must(s, orset_done_renumber(s->os, t.folder, t.uid, m->uid));
        break;
    }
    case ORSET_TODO_SUBSCRIPTION: must(s, orset_done_subscription(s->os, t.name, t.name_len)); break;
    case ORSET_TODO_ATTRIBUTE: must(s, orset_done_attribute(s->os, t.folder, t.name, t.name_len)); break;
    }
    if (crash_at == 2) {
        orset_rollback(s->os);
        crash(s);
        /* Restart: unplaced messages are matched with unknown UIDs before anything else (F13). */
        ingest(s);
        return true;
    }
    commit(s);
    return true;
}

#include "simulate_net.h"

/* --- a peer away
 * -------------------------------------------------------------------------------------------------------- */

static void away(unsigned n)
{
    uint64_t next, rows, lowest;
    struct orset_buf out = {.alloc = &HEAP};
    seed_now = 1;
    rng = 7;
    nsites = 2;
    memset(site, 0, sizeof site);
    for (unsigned a = 0; a < 2; a++) {
        site[a].epoch = a + 1;
        site[a].disk = orset_memstore_new(&HEAP);
        site[a].box = calloc(BOXES, sizeof *site[a].box);
        site[a].round_folder = ORSET_NO_FOLDER;
        start(&site[a]);
    }
    struct site *s = &site[0];
    for (unsigned i = 0; i < 100; i++)
        save(box_of(s, ORSET_INBOX), 0, (uint8_t)i, 0);
    heal();
    size_t before = orset_memstore_bytes(s->disk), most = 0;
    for (unsigned i = 0; i < n; i++) {
        struct box *b = box_of(s, ORSET_INBOX);
        b->mail[below(b->n)].flags ^= (uint8_t)(1U << below(5));
        if (i % 100 == 99) {
            must(s, orset_begin(s->os));
            ingest_box(s, ORSET_INBOX);
            must(s, orset_out(s->os, &rows, &lowest));
            /* The backlog is bounded: beyond it the peer exchanges on return (F38). */
            if (rows > 10000)
                must(s, orset_drop_out(s->os, orset_vector_get(s->os, orset_self(s->os))));
            commit(s);
            most = orset_memstore_bytes(s->disk) > most ? orset_memstore_bytes(s->disk) : most;
        }
    }
    must(s, orset_begin(s->os));
    must(s, orset_drop_out(s->os, orset_vector_get(s->os, orset_self(s->os))));
    commit(s);
    if (orset_batch_make(s->os, s->confirmed[1] + 1, 1000, NULL, 0, &out, &next) != ORSET_E_GAP)
        fail("rows that were dropped are shipped", s);
    orset_buf_free(&out);
    heal();
    judge();
    printf("a peer away for %u operations: state %zu bytes before, at most %zu with the backlog, %zu after\n",
           n, before, most, orset_memstore_bytes(s->disk));
}

int main(int argc, char **argv)
{
    unsigned runs = argc > 1 ? strcmp(argv[1], "long") == 0 ? 5000 : (unsigned)atoi(argv[1]) : 400;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, all_restores = 0, all_deaths = 0,
             all_steps = 0;
    if (argc > 1 && strcmp(argv[1], "away") == 0) {
        away(argc > 2 ? (unsigned)atoi(argv[2]) : 50000);
        return 0;
    }
    for (unsigned i = 0; i < runs; i++) {
        run(seed + i);
        all_restores += restores;
        all_deaths += deaths;
        all_steps += steps_done;
    }
    printf("%u runs from seed %" PRIu64 ", %" PRIu64 " steps: all equal, no UID names two mails\n"
           "%" PRIu64 " mails added, %" PRIu64 " crashes, %" PRIu64 " exchanges, %" PRIu64
           " old states restored, %" PRIu64 " sites died, %" PRIu64 " damages\n"
           "%" PRIu64 " UID rounds, %" PRIu64 " renumberings\n",
           runs, seed, all_steps, mails_made, crashes, exchanges, all_restores, all_deaths, damages, rounds,
           renumbered);
    return 0;
}
