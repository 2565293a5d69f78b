/* side - reads a survey into a state, and does what that asks for, as a worker does it with
 * mailboxes (worker/ingest, worker/apply). */
#include "dovecot-plugin/compare/side.h"

#include "dovecot-plugin/orset/ops/match_mails.h"
#include "dovecot-plugin/store/state_sqlite.h"

#include <stdlib.h>
#include <string.h>

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n > 0)
        return realloc(p, n);
    free(p);
    return NULL;
}

const struct orset_alloc side_alloc = {NULL, resize};

int side_open(struct side *s, uint64_t site, const char *directory)
{
    struct orset_store store;
    struct orset_origin self = {site, site};
    char path[4096], *error = NULL;
    snprintf(path, sizeof path, "%s/state-%d.db", directory, (int)site);
    if (state_sqlite_open(&s->db, path, &error) < 0) {
        s->failed = "a state for the dry run cannot be made below TMPDIR (/tmp)";
        free(error);
        return -1;
    }
    state_sqlite_interface(s->db, &store);
    if (orset_open(&s->os, &side_alloc, &store, &self, NULL) == 0)
        return 0;
    s->failed = "a state for the dry run cannot be opened";
    return -1;
}

void side_close(struct side *s)
{
    if (s->os)
        orset_close(s->os);
    if (s->db)
        state_sqlite_close(s->db);
    for (size_t i = 0; i < s->n; i++)
        free(s->mailbox[i].mail);
    free(s->mailbox);
}

struct side_mailbox *side_mailbox(struct side *s, uint32_t folder)
{
    if (folder >= s->n) {
        size_t n = (size_t)folder + 64;
        struct side_mailbox *more = realloc(s->mailbox, n * sizeof *more);
        if (!more)
            return NULL;
        memset(more + s->n, 0, (n - s->n) * sizeof *more);
        s->mailbox = more;
        s->n = n;
    }
    return &s->mailbox[folder];
}

/* --- mails ------------------------------------------------------------------------------------ */

static int put_mail(struct side_mailbox *box, uint32_t uid, bool own, bool moved)
{
    if (box->n == box->room) {
        size_t room = box->room ? 2 * box->room : 64;
        struct side_mail *more = realloc(box->mail, room * sizeof *more);
        if (!more)
            return ORSET_E_MEMORY;
        box->mail = more;
        box->room = room;
    }
    box->mail[box->n++] = (struct side_mail){.uid = uid, .own = own, .moved = moved};
    return 0;
}

static int by_uid(const void *key, const void *item)
{
    uint32_t uid = *(const uint32_t *)key, other = ((const struct side_mail *)item)->uid;
    return uid < other ? -1 : uid > other;
}

/* Its mail is gone from under the UID; *own_r: it was this site's. */
static void leave(struct side_mailbox *box, uint32_t uid, bool *own_r)
{
    struct side_mail *m =
        box->n ? bsearch(&uid, box->mail, box->n, sizeof *box->mail, by_uid) : NULL;
    *own_r = m && m->own;
    if (m)
        m->gone = true;
}

static int move(struct side *s, uint32_t folder, uint32_t uid, uint32_t new_uid)
{
    bool own;
    struct side_mailbox *box = side_mailbox(s, folder);
    if (!box)
        return ORSET_E_MEMORY;
    leave(box, uid, &own);
    int r = put_mail(box, new_uid, own, true);
    return r < 0 ? r : orset_local_uid_next(s->os, folder, new_uid + 1);
}

/* --- the first scan --------------------------------------------------------------------------- */

/* Refused because of a bound: as the worker, it goes on without. */
static int refuse(struct side *s, int r)
{
    if (r != ORSET_E_LIMIT)
        return r;
    s->refused++;
    return ORSET_KNOWN;
}

static int find_folder(struct side *s, const struct survey_folder *f, uint32_t *index)
{
    *index = ORSET_INBOX;
    if (f->name)
        *index = orset_folder_by_name(s->os, f->name, f->name_len);
    if (*index != ORSET_NO_FOLDER)
        return 0;
    int r = orset_begin(s->os);
    if (r < 0)
        return r;
    r = refuse(s, orset_local_create(s->os, f->name, f->name_len, f->uid_validity, f->guid, index));
    if (r >= 0)
        return orset_commit(s->os);
    orset_rollback(s->os);
    return r;
}

/* One that never had a mail takes the other sites', where there is one. */
static int say_validity(struct side *s, uint32_t index, const struct survey_folder *f, int64_t now)
{
    struct orset_folder known;
    int r = orset_folder_get(s->os, index, &known);
    bool unused = f->uid_next <= 1 && f->n == 0;
    if (r < 0 || (unused && known.uid_validity != 0))
        return r;
    r = orset_local_uid_validity(s->os, index, f->uid_validity, now);
    return r == ORSET_E_LIMIT ? 0 : r;
}

static int add_mails(struct side *s, struct orset_join *j, struct side_mailbox *box,
                     const struct survey_folder *f)
{
    static const struct orset_flags none;
    int r = 0;
    for (size_t i = 0; r >= 0 && i < f->n; i++) {
        struct orset_facts facts = {.size = 0};
        memcpy(facts.guid, f->mail[i].guid, sizeof facts.guid);
        memcpy(facts.sha256, f->mail[i].sha256, sizeof facts.sha256);
        uint64_t refused = s->refused;
        r = refuse(s, orset_join_add(s->os, j, f->mail[i].uid, &facts, &none, NULL));
        if (r < 0 || s->refused != refused)
            continue;
        box->joined += r == ORSET_KNOWN;
        r = put_mail(box, f->mail[i].uid, true, false);
    }
    return r;
}

static int scan(struct side *s, uint32_t index, const struct survey_folder *f, int64_t now)
{
    struct orset_join *j = NULL;
    unsigned united, left;
    struct side_mailbox *box = side_mailbox(s, index);
    if (!box)
        return ORSET_E_MEMORY;
    box->was = f;
    int r = say_validity(s, index, f, now);
    if (r >= 0)
        r = orset_join_begin(s->os, index, &j);
    if (r >= 0)
        r = add_mails(s, j, box, f);
    if (r >= 0)
        r = orset_join_end(s->os, j, &united, &left);
    if (r >= 0)
        r = orset_local_uid_next(s->os, index, f->uid_next);
    orset_join_free(s->os, j);
    return r;
}

int side_ingest(struct side *s, const struct survey_folder *f, int64_t now)
{
    uint32_t index;
    int r = find_folder(s, f, &index);
    if (r < 0 || index == ORSET_NO_FOLDER)
        return r;
    if ((r = orset_begin(s->os)) < 0)
        return r;
    if ((r = scan(s, index, f, now)) >= 0)
        return orset_commit(s->os);
    orset_rollback(s->os);
    return r;
}

/* --- what the mailboxes lack ------------------------------------------------------------------ */

struct item {
    uint32_t folder, uid, other; /* uid: to be had, 0: the next; other: the claim, or the old UID */
    uint32_t dot_folder;
    struct orset_dot dot;
};

struct items {
    struct item *v;
    size_t n, room;
};

static int keep(struct items *t, struct item item)
{
    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : 64;
        struct item *more = realloc(t->v, room * sizeof *more);
        if (!more)
            return ORSET_E_MEMORY;
        t->v = more;
        t->room = room;
    }
    t->v[t->n++] = item;
    return 0;
}

/* A mailbox gives rising UIDs only: those that can have theirs first, the others behind them. */
static int by_claim(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    uint32_t one = x->uid - 1, two = y->uid - 1; /* 0 becomes the highest */
    if (x->folder != y->folder)
        return x->folder < y->folder ? -1 : 1;
    if (one != two)
        return one < two ? -1 : 1;
    return x->other < y->other ? -1 : x->other > y->other;
}

static int place(struct side *s, const struct item *i)
{
    static const struct orset_flags none;
    struct orset_folder f;
    struct side_mailbox *box = side_mailbox(s, i->folder);
    int r = box ? orset_folder_get(s->os, i->folder, &f) : ORSET_E_MEMORY;
    if (r < 0)
        return r;
    uint32_t uid = i->uid >= f.uid_next ? i->uid : f.uid_next;
    r = put_mail(box, uid, false, false);
    return r < 0 ? r : orset_done_place(s->os, i->dot_folder, i->dot, uid, &none);
}

static int renumber(struct side *s, const struct item *i)
{
    int r = orset_done_renumber(s->os, i->folder, i->other, i->uid);
    return r < 0 ? r : move(s, i->folder, i->other, i->uid);
}

/* As if the bytes below the trace lines were equal. */
static int replace(struct side *s, const struct orset_task *t)
{
    struct orset_folder f;
    struct side_mailbox *box = side_mailbox(s, t->folder);
    int r = box ? orset_folder_get(s->os, t->folder, &f) : ORSET_E_MEMORY;
    if (r < 0)
        return r;
    box->other_bytes++;
    if (t->message.dot.counter == 0)
        return orset_done_alone(s->os, t->folder, t->uid);
    r = orset_done_body(s->os, t->folder, t->uid, f.uid_next, t->message.facts.sha256);
    return r < 0 ? r : move(s, t->folder, t->uid, f.uid_next);
}

static int take_out(struct side *s, const struct orset_task *t)
{
    bool own;
    struct side_mailbox *box = side_mailbox(s, t->folder);
    if (!box)
        return ORSET_E_MEMORY;
    leave(box, t->uid, &own);
    return orset_done_remove(s->os, t->folder, t->uid);
}

static int do_task(struct side *s, const struct orset_task *t, struct items *places,
                   struct items *moves)
{
    switch (t->kind) {
    case ORSET_TASK_FOLDER: return orset_done_folder(s->os, t->folder);
    case ORSET_TASK_PLACE:
        return keep(places, (struct item){t->folder, t->uid, t->message.claim, t->message.folder,
                                          t->message.dot});
    case ORSET_TASK_RENUMBER:
        return keep(moves, (struct item){.folder = t->folder, .uid = t->new_uid, .other = t->uid});
    case ORSET_TASK_FLAGS: return orset_done_flags(s->os, t->folder, t->uid, &t->flags);
    case ORSET_TASK_REMOVE: return take_out(s, t);
    case ORSET_TASK_SUBSCRIPTION: return orset_done_subscription(s->os, t->name, t->name_len);
    case ORSET_TASK_ATTRIBUTE: return orset_done_attribute(s->os, t->folder, t->name, t->name_len);
    case ORSET_TASK_BODY: return replace(s, t);
    }
    return 0;
}

static int do_items(struct side *s, struct items *t, int (*fn)(struct side *, const struct item *))
{
    int r = 0;
    if (t->n)
        qsort(t->v, t->n, sizeof *t->v, by_claim);
    for (size_t i = 0; r >= 0 && i < t->n; i++)
        r = fn(s, &t->v[i]);
    return r;
}

static int do_tasks(struct side *s, struct orset_task *t, struct items *places, struct items *moves,
                    bool *any)
{
    int r, got;
    while ((got = orset_task_next(s->os, t)) > 0) {
        *any = true;
        if ((r = do_task(s, t, places, moves)) < 0)
            return r;
    }
    if (got < 0)
        return got;
    /* First all mails, then what was settled: as round.c. */
    if ((r = do_items(s, places, place)) < 0)
        return r;
    return do_items(s, moves, renumber);
}

int side_work(struct side *s)
{
    struct items places = {0}, moves = {0};
    struct orset_task *t = calloc(1, sizeof *t);
    bool any = false;
    int r = t ? orset_begin(s->os) : ORSET_E_MEMORY;
    if (r >= 0 && (r = do_tasks(s, t, &places, &moves, &any)) >= 0)
        r = orset_commit(s->os);
    else if (orset_in_transaction(s->os))
        orset_rollback(s->os);
    free(t);
    free(places.v);
    free(moves.v);
    return r < 0 ? r : any;
}
