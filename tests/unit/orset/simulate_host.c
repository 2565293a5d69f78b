/* simulate_host - hosts and their disks, and what befalls them.
 *
 * A state's disk is memory, or in a share of the runs an SQLite file with a reserve file beside
 * it. */
#include "tests/unit/orset/simulate.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, n);
}

const struct orset_alloc HEAP = {NULL, resize};

bool is_here(const struct site *s)
{
    return !s->dead && !s->out;
}

unsigned some_site(struct group *g)
{
    unsigned a;
    do
        a = below(g->n);
    while (!is_here(&g->site[a]));
    return a;
}

/* --- files
 * ---------------------------------------------------------------------------------------------- */

static char directory[64];
static uint64_t epochs_drawn;
static uint64_t boot[SITES]; /* ids of the hosts' boots */

struct path {
    char text[128];
};

static struct path path_of(const struct site *s, const char *what)
{
    struct path p;
    snprintf(p.text, sizeof p.text, "%s/%p.%s", directory, (const void *)s, what);
    return p;
}

void host_begin(unsigned run)
{
    /* In memory: power loss is simulated, no disk need be waited for. */
    const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    memset(boot, 0, sizeof boot);
    epochs_drawn = 0; /* a run is its seed alone */
    snprintf(directory, sizeof directory, "%s/orset-simulate-XXXXXX", tmp);
    if (run % 8 != 7)
        directory[0] = '\0';
    else if (!mkdtemp(directory))
        fail("no directory for the states", NULL);
}

void host_end(void)
{
    if (directory[0] && rmdir(directory) < 0)
        fail("files are left over", NULL);
}

/* most: bytes to copy. */
static void copy_file(const char *from, const char *to, size_t most)
{
    static uint8_t b[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t n = 0;
    while (in >= 0 && most > 0 && (n = read(in, b, most < sizeof b ? most : sizeof b)) > 0) {
        if (write(out, b, (size_t)n) != n)
            fail("a copy failed", NULL);
        most -= (size_t)n;
    }
    if (out < 0 || n < 0)
        fail("a copy failed", NULL);
    if (in >= 0)
        close(in);
    close(out);
}

static void reserve_key(const struct site *s, uint8_t key[16])
{
    memset(key, 0, 16);
    key[0] = (uint8_t)s->index;
}

static struct reserve *reserve_of(struct site *s)
{
    struct reserve *r;
    if (reserve_open(&r, path_of(s, "reserve").text, 1 + boot[s->index]) < 0)
        fail("the reserve cannot be opened", s);
    return r;
}

/* --- start, stop, commit
 * -------------------------------------------------------------------------------------------- */

static uint64_t own_counter(const struct site *s)
{
    return orset_vector_get(s->os, orset_self(s->os));
}

static uint64_t own_epoch(const struct site *s)
{
    return orset_origin_get(s->os, orset_self(s->os)).epoch;
}

/* In no order, never twice. */
static uint64_t some_epoch(void)
{
    return (1 + below(1000)) * 1000000ULL + ++epochs_drawn;
}

static void draw_epoch(struct site *s)
{
    s->epoch = some_epoch();
    must(s, orset_new_epoch(s->os, s->epoch));
    happened[RENUMBERED_OPS] += own_counter(s) > 0;
    s->unheard = 0;
    memset(s->confirmed, 0, sizeof s->confirmed);
    s->reserve = 0;
}

static bool lost_numbers(struct site *s)
{
    if (!s->sqlite)
        return own_counter(s) < s->reserve || own_epoch(s) != s->epoch;
    uint8_t key[16];
    struct reserve *r = reserve_of(s);
    reserve_key(s, key);
    int v = reserve_check(r, key, own_epoch(s), own_counter(s));
    reserve_close(r);
    if (v < 0)
        fail("the reserve cannot be written", s);
    return v == RESERVE_NEW_EPOCH;
}

static void start(struct site *s)
{
    struct orset_store store;
    struct orset_origin me = {s->index + 1, s->epoch};
    char *error;
    if (!s->sqlite)
        orset_memstore_interface(s->disk, &store);
    else if (state_sqlite_open(&s->file, path_of(s, "db").text, &error) == 0)
        state_sqlite_interface(s->file, &store);
    else
        fail(error, s);
    must(s, orset_open(&s->os, &HEAP, &store, &me, NULL));
    /* The reserve is ahead: this state is an old copy (F12, F20). */
    if (lost_numbers(s)) {
        must(s, orset_begin(s->os));
        if (!s->unheard) /* the reserve was not restored with it */
            must(s, orset_epoch_trust(s->os));
        draw_epoch(s);
        commit(s);
    }
}

static void stop(struct site *s)
{
    for (unsigned i = 0; i < s->group->n; i++) {
        end_exchange(s, &s->group->site[i]);
        message_clear(&s->reply[i]);
    }
    s->round_folder = ORSET_NO_FOLDER;
    orset_buf_free(&s->ask);
    orset_close(s->os);
    s->os = NULL;
    state_sqlite_close(s->file);
    s->file = NULL;
}

void commit(struct site *s)
{
    uint64_t n = own_counter(s), epoch = own_epoch(s);
    uint8_t key[16];
    struct reserve *r = NULL;
    if (s->sqlite && (n > s->reserve || epoch != s->epoch)) {
        r = reserve_of(s);
        reserve_key(s, key);
        if (reserve_raise(r, key, epoch, n) < 0)
            fail("the reserve cannot be written", s);
    }
    must(s, orset_commit(s->os));
    if (r) {
        reserve_note(r, key, n);
        reserve_close(r);
    }
    s->reserve = n;
}

void new_epoch(struct site *s)
{
    orset_rollback(s->os);
    must(s, orset_begin(s->os));
    draw_epoch(s);
    commit(s);
    for (unsigned i = 0; i < s->group->n; i++)
        end_exchange(s, &s->group->site[i]);
    exchange_with_all(s);
}

void site_begin(struct group *g, unsigned index, bool sqlite)
{
    struct site *s = &g->site[index];
    *s = (struct site){
        .group = g, .index = index, .sqlite = sqlite, .round_folder = ORSET_NO_FOLDER};
    s->epoch = some_epoch();
    s->box = calloc(BOXES, sizeof *s->box);
    s->disk = sqlite ? NULL : orset_memstore_new(&HEAP);
    start(s);
}

static void remove_files(struct site *s)
{
    static const char *const what[] = {"db", "db-wal", "db-shm", "reserve", "old", "old-reserve"};
    for (unsigned i = 0; s->sqlite && i < sizeof what / sizeof what[0]; i++)
        unlink(path_of(s, what[i]).text);
}

void site_end(struct site *s)
{
    if (s->os)
        stop(s);
    orset_memstore_free(s->disk);
    orset_memstore_free(s->old);
    free(s->box);
    free(s->old_box);
    remove_files(s);
}

/* --- faults
 * ---------------------------------------------------------------------------------------------- */

static void unsure(struct site *s, bool mails_too)
{
    struct group *g = s->group;
    g->disasters++;
    g->unsure |= 1U << s->index;
    for (unsigned i = 0; mails_too && i < CONTENTS; i++)
        g->mail[i].unsure |= g->mail[i].site == s->index || g->delivered[i] & 1U << s->index;
}

/* As a worker that closes its user: the state is flushed, and the reserve says so. */
static void stop_cleanly(struct site *s)
{
    uint8_t key[16];
    if (state_sqlite_checkpoint(s->file) < 0)
        fail("the state cannot be flushed", s);
    struct reserve *r = reserve_of(s);
    reserve_key(s, key);
    if (reserve_clean(r, key, own_epoch(s), own_counter(s)) < 0)
        fail("the reserve cannot be written", s);
    reserve_close(r);
    happened[CLEAN_STOP]++;
    stop(s);
    start(s);
}

void crash(struct site *s, enum fault point)
{
    if (s->sqlite && below(4) == 0)
        stop_cleanly(s);
    happened[point]++;
    stop(s);
    start(s);
}

static void keep_names(struct site *s, struct box *boxes)
{
    for (uint32_t i = 0; i < orset_folders(s->os) && i < BOXES; i++) {
        struct orset_folder f;
        must(s, orset_folder_get(s->os, i, &f));
        if (f.name_len > sizeof boxes[i].name)
            fail("a name too long for the simulation", s);
        memcpy(boxes[i].name, f.name, f.name_len);
        boxes[i].name_len = f.name_len;
    }
}

/* The mailboxes as they are, by name: to be found again by another state. */
static struct box *keep_boxes(struct site *s)
{
    struct box *boxes = malloc(BOXES * sizeof *boxes);
    keep_names(s, s->box);
    memcpy(boxes, s->box, BOXES * sizeof *boxes);
    return boxes;
}

/* synchronous=NORMAL: the log's tail is gone, from anywhere on. The mailbox and the reserve were
 * flushed. */
void power_loss(struct site *s)
{
    struct stat st = {0};
    if (!s->sqlite)
        return;
    struct box *boxes = keep_boxes(s);
    happened[POWER_LOSS]++;
    boot[s->index]++;
    unsure(s, false);
    struct path db = path_of(s, "db"), wal = path_of(s, "db-wal"), db2 = path_of(s, "old-db"),
                wal2 = path_of(s, "old-wal");
    stat(wal.text, &st);
    copy_file(db.text, db2.text, SIZE_MAX);
    copy_file(wal.text, wal2.text, st.st_size ? (size_t)(dice() % ((uint64_t)st.st_size + 1)) : 0);
    stop(s);
    rename(db2.text, db.text);
    rename(wal2.text, wal.text);
    start(s);
    exchange_with_all(s); /* before ingest */
    join_all(s, boxes);   /* by name: the creates may be gone with the tail */
    free(boxes);
}

void back_up(struct site *s)
{
    if (s->unheard) /* it would have to be remembered of the copy, too */
        return;
    if (s->sqlite) {
        state_sqlite_checkpoint(s->file);
        copy_file(path_of(s, "db").text, path_of(s, "old").text, SIZE_MAX);
        copy_file(path_of(s, "reserve").text, path_of(s, "old-reserve").text, SIZE_MAX);
        s->old_file = true;
    } else {
        orset_memstore_free(s->old);
        s->old = orset_memstore_copy(s->disk);
    }
    if (!s->old_box)
        s->old_box = calloc(BOXES, sizeof *s->old_box);
    memcpy(s->old_box, s->box, BOXES * sizeof *s->box);
    s->old_epoch = s->epoch;
    s->old_reserve = s->reserve;
}

static bool bring_back(struct site *s)
{
    if (!s->old && !s->old_file)
        return false;
    stop(s);
    if (s->sqlite) {
        unlink(path_of(s, "db-wal").text);
        rename(path_of(s, "old").text, path_of(s, "db").text);
    } else {
        orset_memstore_free(s->disk);
        s->disk = s->old;
    }
    s->old = NULL;
    s->old_file = false;
    return true;
}

/* Yesterday's state, today's mailboxes: what the mailboxes have more than the state is matched,
 * not added twice, after an exchange. What only this site knew since may come back or be new. */
void restore_state(struct site *s)
{
    struct box *boxes = keep_boxes(s);
    if (bring_back(s)) {
        happened[OLD_COPY]++;
        unsure(s, false);
        start(s);
        exchange_with_all(s); /* before ingest */
        join_all(s, boxes);
    }
    free(boxes);
}

/* Yesterday's state, mailboxes and reserve: nothing on this host shows it. Its lanes and
 * exchanges are gone with its memory. Users work on; it speaks to nobody until it has heard
 * everybody (orset_new_epoch). */
void restore_host(struct site *s)
{
    struct group *g = s->group;
    if (!bring_back(s))
        return;
    happened[OLD_HOST]++;
    g->old_hosts++;
    unsure(s, true);
    if (s->sqlite)
        rename(path_of(s, "old-reserve").text, path_of(s, "reserve").text);
    memcpy(s->box, s->old_box, BOXES * sizeof *s->box);
    s->epoch = s->old_epoch;
    s->reserve = s->old_reserve;
    memset(s->confirmed, 0, sizeof s->confirmed);
    s->unheard = 0;
    for (unsigned i = 0; i < g->n; i++) {
        struct site *peer = &g->site[i];
        cut_lane(s, peer);
        cut_lane(peer, s);
        end_exchange(peer, s);
        if (is_here(peer) && peer != s)
            s->unheard |= 1U << i;
    }
    start(s);
    if (own_counter(s) == 0 && own_epoch(s) != s->old_epoch)
        s->unheard = 0; /* the reserve knew after all */
    must(s, orset_begin(s->os));
    must(s, orset_epoch_doubt(s->os, s->unheard != 0));
    commit(s);
}

/* A state made anew over full mailboxes: exchange, then join (F36). */
static void start_anew(struct site *s, struct box *boxes, bool guids_lost)
{
    remove_files(s);
    orset_memstore_free(s->disk);
    orset_memstore_free(s->old);
    s->disk = s->sqlite ? NULL : orset_memstore_new(&HEAP);
    s->old = NULL;
    s->old_file = false;
    s->epoch = some_epoch();
    s->reserve = 0;
    s->unheard = 0;
    memset(s->confirmed, 0, sizeof s->confirmed);
    memset(s->box, 0, BOXES * sizeof *s->box);
    for (unsigned i = 0; guids_lost && i < BOXES; i++)
        for (unsigned n = 0; n < boxes[i].n; n++)
            boxes[i].mail[n].guid = (uint16_t)(0x8000 + below(0x7000));
    start(s);
    exchange_with_all(s);
    join_all(s, boxes);
}

void lose_state(struct site *s)
{
    bool guids = below(2);
    happened[STATE_LOST]++;
    happened[GUIDS_LOST] += guids;
    unsure(s, false);
    struct box *boxes = keep_boxes(s);
    stop(s);
    start_anew(s, boxes, guids);
    free(boxes);
}

/* The namespace's filter changed at this site (F15): its part is dropped, the mailboxes stay as
 * they are. */
void leave_namespace(struct site *s)
{
    struct group *g = s->group;
    happened[NAMESPACE_LEFT]++;
    unsure(s, true);
    keep_names(s, s->box);
    stop(s);
    s->out = true;
    for (unsigned i = 0; i < g->n; i++) {
        cut_lane(s, &g->site[i]);
        cut_lane(&g->site[i], s);
        end_exchange(&g->site[i], s);
        g->site[i].unheard &= ~(1U << s->index);
    }
}

void take_namespace(struct site *s)
{
    happened[NAMESPACE_TAKEN]++;
    struct box *boxes = malloc(BOXES * sizeof *boxes);
    memcpy(boxes, s->box, BOXES * sizeof *boxes);
    s->out = false;
    start_anew(s, boxes, false);
    free(boxes);
}

void die(struct site *s)
{
    struct group *g = s->group;
    happened[DEATH]++;
    happened[KEEPER_DEATH_ROUND] += s->round_folder != ORSET_NO_FOLDER;
    unsure(s, true);
    s->dead = true;
    for (unsigned i = 0; i < g->n; i++) {
        struct lane *l = &g->lane[s->index][i];
        while (l->n > 0 && below(2))
            message_clear(&l->m[--l->n]);
        cut_lane(&g->site[i], s);
        g->site[i].unheard &= ~(1U << s->index);
    }
    stop(s);
}
