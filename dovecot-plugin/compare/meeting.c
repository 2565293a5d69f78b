/* meeting - lets two states meet, and counts what came of it. */
#include "dovecot-plugin/compare/meeting.h"

#include "dovecot-plugin/compare/side.h"
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/ops/uid.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS_MOST 64 /* a UIDNEXT that is far above is followed in steps */
#define BATCH_MOST (1 << 20)

struct meeting {
    struct side side[2];
    const struct survey_user *user[2];
    int64_t now;
    const char *failed; /* where it went wrong */
};

/* --- what travels ----------------------------------------------------------------------------- */

/* In a transaction of the side that changes. */
static int ended(struct side *s, int r)
{
    if (r < 0) {
        if (orset_in_transaction(s->os))
            orset_rollback(s->os);
        return r;
    }
    int e = orset_commit(s->os);
    return e < 0 ? e : r;
}

static int take_over(struct meeting *m, int to, int from)
{
    struct side *asker = &m->side[to], *giver = &m->side[from];
    struct orset_buf question = {.alloc = &side_alloc}, answer = {.alloc = &side_alloc};
    struct orset_exchange *x = NULL;
    int r = orset_ask_hello(asker->os, (uint64_t)from + 1, &x, &question);
    while (r == ORSET_OK) {
        answer.len = 0;
        if ((r = orset_begin(giver->os)) < 0)
            break;
        r = ended(giver,
                  orset_answer(giver->os, (uint64_t)to + 1, question.data, question.len, &answer));
        if (r < 0 || (r = orset_begin(asker->os)) < 0)
            break;
        question.len = 0;
        r = ended(asker, orset_take(asker->os, x, answer.data, answer.len, &question));
    }
    if (x)
        orset_exchange_free(asker->os, x);
    giver->sent = orset_vector_get(giver->os, orset_self(giver->os));
    orset_buf_free(&question);
    orset_buf_free(&answer);
    return r < 0 ? r : 0;
}

/* Ops that the other side has not got. 1: there were some; 0; or an error */
static int deliver(struct meeting *m, int from)
{
    struct side *s = &m->side[from], *to = &m->side[!from];
    struct orset_batch_result result;
    uint64_t next = s->sent + 1;
    int r = 0;
    bool any = false;
    while (r >= 0 && orset_vector_get(s->os, orset_self(s->os)) > s->sent) {
        struct orset_buf b = {.alloc = &side_alloc};
        r = orset_batch_make(s->os, next, BATCH_MOST, NULL, 0, &b, &next);
        if (r >= 0 && (r = orset_begin(to->os)) >= 0)
            r = ended(to, orset_batch_apply(to->os, (uint64_t)from + 1, b.data, b.len, &result));
        orset_buf_free(&b);
        s->sent = next - 1;
        any = true;
    }
    return r < 0 ? r : any;
}

/* --- UIDs ------------------------------------------------------------------------------------- */

static bool is_home(struct orset *os, uint32_t i, struct orset_folder *f)
{
    return orset_folder_get(os, i, f) >= 0 && f->home == i && f->live;
}

/* The keeper's folder of the same id. */
static uint32_t keepers(struct orset *keeper, const struct orset_folder *f)
{
    struct orset_folder g;
    for (uint32_t i = 0; i < orset_folders(keeper); i++)
        if (orset_folder_get(keeper, i, &g) >= 0 && g.id_counter == f->id_counter &&
            g.id_origin.site == f->id_origin.site && g.id_origin.epoch == f->id_origin.epoch)
            return g.home;
    return ORSET_NO_FOLDER;
}

/* What the other side tells the keeper. */
static int tell(struct meeting *m)
{
    struct orset *keeper = m->side[0].os, *os = m->side[1].os;
    struct orset_folder f;
    int r = orset_begin(keeper);
    for (uint32_t i = 0; r >= 0 && i < orset_folders(os); i++) {
        uint32_t at;
        if (is_home(os, i, &f) && orset_uid_dirty(os, i, false) &&
            (at = keepers(keeper, &f)) != ORSET_NO_FOLDER)
            r = orset_uid_mark_dirty(keeper, at);
    }
    return ended(&m->side[0], r);
}

static int settle(struct meeting *m, uint32_t folder)
{
    struct side *keeper = &m->side[0];
    struct orset_buf ask = {.alloc = &side_alloc}, answer = {.alloc = &side_alloc};
    int r = orset_begin(keeper->os);
    if (r >= 0)
        r = ended(keeper, orset_uid_ask(keeper->os, folder, &ask));
    if (r >= 0)
        r = orset_uid_answer(m->side[1].os, ask.data, ask.len, &answer);
    if (r >= 0 && (r = orset_begin(keeper->os)) >= 0) {
        struct orset_answer a = {answer.data, answer.len};
        r = ended(keeper, orset_uid_settle(keeper->os, folder, &a, 1));
    }
    orset_buf_free(&ask);
    orset_buf_free(&answer);
    return r;
}

static int follow(struct side *s)
{
    struct orset_folder f;
    int r = orset_begin(s->os);
    for (uint32_t i = 0; r >= 0 && i < orset_folders(s->os); i++)
        if (is_home(s->os, i, &f) && orset_uid_dirty(s->os, i, false))
            r = orset_uid_follow(s->os, i);
    return ended(s, r);
}

/* 1: a round was settled */
static int settle_all(struct meeting *m)
{
    struct orset *os = m->side[0].os;
    struct orset_folder f;
    bool any = false;
    int r = tell(m);
    for (uint32_t i = 0; r >= 0 && i < orset_folders(os); i++)
        if (is_home(os, i, &f) && orset_uid_dirty(os, i, true)) {
            r = settle(m, i);
            any = any || r == ORSET_OK;
        }
    return r < 0 ? r : any;
}

/* --- in their order --------------------------------------------------------------------------- */

static int ingest(struct meeting *m, int which, bool used, bool unused)
{
    const struct survey_user *u = m->user[which];
    int r = 0;
    for (size_t i = 0; r >= 0 && i < u->n; i++) {
        const struct survey_folder *f = &u->folder[i];
        bool is_unused = f->uid_next <= 1 && f->n == 0;
        if (is_unused ? unused : used)
            r = side_ingest(&m->side[which], f, m->now);
    }
    return r;
}

static int both_work(struct meeting *m)
{
    bool any = false;
    for (int r = 1; r > 0;) {
        r = 0;
        for (int i = 0; i < 2; i++) {
            int sent = deliver(m, i), worked = sent < 0 ? sent : side_work(&m->side[!i]);
            if (worked < 0)
                return worked;
            r |= sent | worked;
        }
        any = any || r > 0;
    }
    int e = follow(&m->side[0]);
    return e < 0 || (e = follow(&m->side[1])) < 0 ? e : any;
}

static int meet(struct meeting *m)
{
    int r;
    if ((m->failed = "the first site's mailboxes", r = ingest(m, 0, true, false)) < 0 ||
        (m->failed = "the first site's state", r = take_over(m, 1, 0)) < 0 ||
        (m->failed = "the second site's mailboxes", r = ingest(m, 1, true, true)) < 0 ||
        (m->failed = "mails", r = side_work(&m->side[1])) < 0 ||
        (m->failed = "the second site's state", r = both_work(m)) < 0 ||
        (m->failed = "empty mailboxes", r = ingest(m, 0, false, true)) < 0)
        return r;
    m->failed = "UIDs";
    for (unsigned i = 0; i < ROUNDS_MOST; i++) {
        int worked = both_work(m), settled = worked < 0 ? worked : settle_all(m);
        if (settled <= 0 && (settled < 0 || worked == 0))
            return settled;
    }
    return 0;
}

/* --- what came of it -------------------------------------------------------------------------- */

static void count_side(const struct side_mailbox *box, uint32_t uid_validity, int64_t now,
                       uint64_t *uids, uint64_t *validities)
{
    for (size_t i = 0; i < box->n; i++)
        *uids += box->mail[i].own && box->mail[i].moved && !box->mail[i].gone;
    /* One that is later than tomorrow nobody takes, and it stays. */
    *validities +=
        box->was && box->was->uid_validity != uid_validity && box->was->uid_validity <= now + 86400;
}

static int count_folder(struct meeting *m, uint32_t index, const struct orset_folder *f,
                        struct meeting_counts *c)
{
    struct side *a = &m->side[0], *b = &m->side[1];
    uint32_t there =
        index == ORSET_INBOX ? index : orset_folder_by_name(b->os, f->name, f->name_len);
    struct side_mailbox *one = side_mailbox(a, index),
                        *two = there == ORSET_NO_FOLDER ? NULL : side_mailbox(b, there);
    *c = (struct meeting_counts){.folders = 1};
    if (!one || !two)
        return ORSET_E_MEMORY;
    c->united = two->joined;
    c->only[0] = (one->was ? one->was->n : 0) - two->joined;
    c->only[1] = (two->was ? two->was->n : 0) - two->joined;
    count_side(one, f->uid_validity, m->now, &c->uids[0], &c->validities[0]);
    count_side(two, f->uid_validity, m->now, &c->uids[1], &c->validities[1]);
    c->names = one->was && two->was && memcmp(one->was->guid, two->was->guid, 16) != 0;
    c->other_bytes = one->other_bytes + two->other_bytes;
    return 0;
}

static void add(struct meeting_counts *sum, const struct meeting_counts *c)
{
    sum->folders += c->folders;
    sum->united += c->united;
    for (int i = 0; i < 2; i++) {
        sum->only[i] += c->only[i];
        sum->uids[i] += c->uids[i];
        sum->validities[i] += c->validities[i];
    }
    sum->names += c->names;
    sum->other_bytes += c->other_bytes;
}

static int by_guid(const void *a, const void *b)
{
    return memcmp((*(const struct survey_folder *const *)a)->guid,
                  (*(const struct survey_folder *const *)b)->guid, 16);
}

static bool same_name(const struct survey_folder *a, const struct survey_folder *b)
{
    return a->name_len == b->name_len && !a->name == !b->name &&
           (!a->name || !memcmp(a->name, b->name, a->name_len));
}

static const struct survey_folder **sorted(const struct survey_user *u)
{
    const struct survey_folder **v = calloc(u->n + 1, sizeof *v);
    for (size_t i = 0; v && i < u->n; i++)
        v[i] = &u->folder[i];
    if (v && u->n)
        qsort(v, u->n, sizeof *v, by_guid);
    return v;
}

/* Mailboxes that one site has under another name than the other one. */
static int count_renamed(const struct meeting *m, uint64_t *renamed)
{
    const struct survey_folder **a = sorted(m->user[0]), **b = sorted(m->user[1]);
    size_t i = 0, j = 0;
    while (a && b && i < m->user[0]->n && j < m->user[1]->n) {
        int c = by_guid(&a[i], &b[j]);
        *renamed += c == 0 && !same_name(a[i], b[j]);
        i += c <= 0;
        j += c >= 0;
    }
    int r = a && b ? 0 : ORSET_E_MEMORY;
    free(a);
    free(b);
    return r;
}

static int count(struct meeting *m, struct meeting_counts *sum, meeting_folder_fn *fn, void *arg)
{
    struct orset *os = m->side[0].os;
    struct orset_folder f;
    struct meeting_counts c;
    int r = 0;
    for (uint32_t i = 0; r >= 0 && i < orset_folders(os); i++) {
        if (!is_home(os, i, &f) || (r = count_folder(m, i, &f, &c)) < 0)
            continue;
        add(sum, &c);
        if (fn)
            fn(arg, i == ORSET_INBOX ? NULL : f.name, f.name_len, &c);
    }
    sum->refused = m->side[0].refused + m->side[1].refused;
    return r < 0 ? r : count_renamed(m, &sum->renamed);
}

/* --- */

static void remove_directory(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (*entry->d_name != '.')
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    (void)rmdir(path);
}

static int say(const struct meeting *m, int r, char **error_r)
{
    const char *why = "no memory";
    for (int i = 0; i < 2; i++)
        if (m->side[i].failed)
            why = m->side[i].failed;
        else if (r != ORSET_E_MEMORY && m->side[i].os && *orset_error_text(m->side[i].os))
            why = orset_error_text(m->side[i].os);
    if (asprintf(error_r, "%s: %s: %s", m->user[0]->name, m->failed, why) < 0)
        *error_r = NULL;
    return -1;
}

int meeting_run(const struct survey_user *first, const struct survey_user *second, int64_t now,
                struct meeting_counts *sum, meeting_folder_fn *fn, void *arg, char **error_r)
{
    const char *tmp = getenv("TMPDIR");
    char directory[4096];
    struct meeting m = {.user = {first, second}, .now = now, .failed = "the dry run"};
    *sum = (struct meeting_counts){0};
    *error_r = NULL;
    snprintf(directory, sizeof directory, "%s/dovelane-compare-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(directory)) {
        m.side[0].failed = "TMPDIR (/tmp) cannot be written";
        return say(&m, -1, error_r);
    }
    int r = side_open(&m.side[0], 1, directory) < 0 || side_open(&m.side[1], 2, directory) < 0
                ? ORSET_E_STORAGE
                : meet(&m);
    if (r >= 0)
        r = count(&m, sum, fn, arg);
    if (r < 0)
        (void)say(&m, r, error_r);
    side_close(&m.side[0]);
    side_close(&m.side[1]);
    remove_directory(directory);
    return r < 0 ? -1 : 0;
}
