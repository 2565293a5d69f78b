/* task_list - the tasks in their order, each with what the state says of it (tasks.c). */
#include "dovecot-plugin/orset/state/task_list.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/tasks.h"

#include <string.h>

struct next {
    struct orset_task *t;
    struct orset_reader value;
    uint8_t copy[64];
};

static int next_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct next *n = arg;
    if (key_len > sizeof n->t->at)
        return -1;
    memcpy(n->t->at, key, key_len);
    n->t->at_len = key_len;
    /* FLAGS rows can be longer than this; their value is not needed here. */
    len = len < sizeof n->copy ? len : sizeof n->copy;
    memcpy(n->copy, v, len);
    n->value = orset_reader_of(n->copy, len);
    return 1;
}

/* The rows of a GUID, a page at a time: the store is not to be asked for anything else while it
 * gives rows. */
struct guid_rows {
    struct orset *os;
    uint8_t guid[16];
    struct orset_key from; /* where the next page begins; empty before the first */
    unsigned n, at;
    struct {
        uint32_t folder;
        struct orset_dot dot;
    } row[32];
};

#define SOURCES_TRIED 32 /* beyond, the body is asked for */
#define GUID_ROWS (sizeof((struct guid_rows *)0)->row / sizeof((struct guid_rows *)0)->row[0])

static int guid_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct guid_rows *g = arg;
    struct orset_reader r = {key + ORSET_GUID_PREFIX, key + len, false};
    (void)v;
    (void)vlen;
    g->row[g->n].folder = orset_key_read_folder(g->os, &r);
    struct orset_reader doomed = r;
    uint64_t origin = orset_key_read(&doomed, UINT16_MAX),
             uid = orset_key_read(&doomed, UINT32_MAX);
    struct orset_dot d = {ORSET_DOOMED_ORIGIN, uid};
    if (origin == ORSET_DOOMED_ORIGIN)
        r = doomed;
    else
        d = orset_key_read_dot(g->os, &r);
    if (r.bad || r.at != r.end)
        return orset_corrupt(g->os, "a GUID's row");
    g->row[g->n].dot = d;
    if (++g->n < GUID_ROWS)
        return 0;
    g->from.n = 0;
    orset_key_put(&g->from, key, len);
    orset_key_put(&g->from, "", 1); /* the smallest key behind it */
    return 1;
}

/* 1 and the next one; 0: there is no more. Its GUID begins alike: whether it is the same the
 * message says. */
static int guid_next(struct orset *os, struct guid_rows *g, uint32_t *folder, struct orset_dot *d)
{
    if (g->at == g->n) {
        if (g->from.n > 0 && g->n < GUID_ROWS)
            return 0;
        if (g->from.n == 0)
            orset_key_put(&g->from, g->guid, ORSET_GUID_PREFIX);
        struct orset_key from = g->from;
        g->n = g->at = 0;
        if (os->store.each(os->store.ctx, ORSET_T_GUID, from.b, from.n, ORSET_GUID_PREFIX, guid_row,
                           g) < 0)
            return orset_storage_fail(os, "GUIDs");
        if (g->n == 0)
            return 0;
    }
    *folder = g->row[g->at].folder;
    *d = g->row[g->at++].dot;
    return 1;
}

/* A local instance of the GUID saves the body's transfer: a placed message, or one that waits
 * for its removal. */
static int find_source(struct orset *os, struct orset_task *t)
{
    struct guid_rows g = {.os = os};
    struct message *m = &os->m[2];
    struct orset_dot d;
    uint32_t f = 0;
    int r = 1;
    memcpy(g.guid, t->message.facts.guid, 16);
    t->source_folder = ORSET_NO_FOLDER;
    t->source_uid = 0;
    for (unsigned n = 0;
         n < SOURCES_TRIED && t->source_uid == 0 && (r = guid_next(os, &g, &f, &d)) > 0; n++) {
        if (d.origin == ORSET_DOOMED_ORIGIN) {
            uint8_t guid[16];
            if (orset_task_doomed_guid(os, f, (uint32_t)d.counter, guid) <= 0 ||
                memcmp(guid, g.guid, 16) != 0)
                continue;
            t->source_folder = f;
            t->source_uid = (uint32_t)d.counter;
        } else if (orset_message_load(os, f, d, m) > 0 && m->p.uid &&
                   memcmp(m->p.facts.guid, g.guid, 16) == 0 &&
                   memcmp(m->p.facts.sha256, t->message.facts.sha256, 32) == 0) {
            t->source_folder = orset_folder_at(os, f)->home;
            t->source_uid = m->p.uid;
        }
    }
    return r < 0 ? r : 0;
}

int orset_mail_lives(struct orset *os, const uint8_t guid[16], const uint8_t sha256[32])
{
    struct guid_rows g = {.os = os};
    struct message *m = &os->m[0];
    struct orset_dot d;
    uint32_t f = 0;
    int r = 1;
    memcpy(g.guid, guid, 16);
    for (unsigned n = 0; n < SOURCES_TRIED && (r = guid_next(os, &g, &f, &d)) > 0; n++) {
        if (d.origin == ORSET_DOOMED_ORIGIN)
            continue;
        if ((r = orset_message_load(os, f, d, m)) < 0)
            return r;
        if (r > 0 && m->p.uid && memcmp(m->p.facts.guid, guid, 16) == 0 &&
            memcmp(m->p.facts.sha256, sha256, 32) == 0)
            return 1;
    }
    return r < 0 ? r : 0;
}

int orset_guid_where(struct orset *os, const uint8_t guid[16], orset_there_fn *is_there, void *arg)
{
    struct guid_rows g = {.os = os};
    struct message *m = &os->m[0];
    struct orset_dot d;
    enum orset_where where = ORSET_NOWHERE;
    uint32_t f = 0;
    int r;
    memcpy(g.guid, guid, 16);
    while ((r = guid_next(os, &g, &f, &d)) > 0) {
        if (d.origin == ORSET_DOOMED_ORIGIN) {
            uint8_t doomed[16];
            if ((r = orset_task_doomed_guid(os, f, (uint32_t)d.counter, doomed)) < 0)
                return r;
            if (r > 0 && where == ORSET_NOWHERE && memcmp(doomed, guid, 16) == 0)
                where = ORSET_DOOMED;
            continue;
        }
        if ((r = orset_message_load(os, f, d, m)) < 0)
            return r;
        if (r == 0 || memcmp(m->p.facts.guid, guid, 16) != 0)
            continue;
        if (!m->p.uid || !is_there(arg, orset_folder_at(os, f)->home, m->p.uid))
            return ORSET_WAITING;
        where = ORSET_PLACED;
    }
    return r < 0 ? r : (int)where;
}

/* 1: a live message of that GUID has no UID here yet. It is to be copied from what waits for its
 * removal: its last bytes here, perhaps the last anywhere. */
static int is_needed(struct orset *os, const uint8_t guid[16])
{
    struct guid_rows g = {.os = os};
    struct message *m = &os->m[0];
    struct orset_dot d;
    uint32_t f = 0;
    int r;
    if ((r = orset_task_any_place(os, ORSET_NO_FOLDER)) <= 0)
        return r;
    memcpy(g.guid, guid, 16);
    while ((r = guid_next(os, &g, &f, &d)) > 0) {
        if (d.origin == ORSET_DOOMED_ORIGIN)
            continue;
        if ((r = orset_message_load(os, f, d, m)) < 0)
            return r;
        if (r > 0 && m->p.uid == 0 && memcmp(m->p.facts.guid, guid, 16) == 0)
            return 1;
    }
    return r;
}

/* 1, or 0 when this row is not for the caller now. */
static int fill_place(struct orset *os, struct orset_task *t, struct orset_reader *key)
{
    struct folder *f = orset_folder_at(os, t->folder);
    struct orset_dot d = orset_key_read_dot(os, key);
    struct message *m = &os->m[0];
    uint32_t agreed;
    if (key->bad || key->at != key->end)
        return orset_corrupt(os, "a message that waits to be placed");
    if (!f || (f->index != ORSET_INBOX && f->name_stamp.clock == 0))
        return 0; /* its create has not come: nowhere to place it */
    int r = orset_message_load(os, f->index, d, m);
    if (r <= 0)
        return r;
    struct orset_dot speaker;
    if ((r = orset_group_speaker(os, m, &speaker, NULL)) < 0)
        return r;
    if (!orset_same_dot(speaker, d))
        return 0; /* another row speaks for this message */
    if ((r = orset_group_union(os, m, &t->flags)) < 0 ||
        (r = orset_group_agreed(os, m, &agreed)) < 0)
        return r;
    const struct folder *home = orset_folder_at(os, f->home);
    t->folder = f->home;
    t->message = m->p;
    t->message.agreed = agreed;
    t->uid = agreed >= home->uid_next && agreed <= ORSET_UID_MAX &&
                     agreed - home->uid_next <= ORSET_UID_JUMP
                 ? agreed
                 : 0;
    r = find_source(os, t);
    return r < 0 ? r : 1;
}

static int fill_remove(struct orset *os, struct next *n)
{
    const uint8_t *guid = orset_read_bytes(&n->value, 16);
    if (!guid)
        return orset_corrupt(os, "a removal's row is cut");
    int r = is_needed(os, guid);
    return r < 0 ? r : !r;
}

/* What follows the kind: a mailbox here but for what hangs on a name; a UID, or a name. */
static bool key_is_true(const struct orset *os, const struct orset_task *t,
                        const struct orset_reader *key)
{
    bool named = t->kind == ORSET_TASK_SUBSCRIPTION || t->kind == ORSET_TASK_ATTRIBUTE;
    bool here = t->folder < os->nfolders ||
                (t->kind == ORSET_TASK_ATTRIBUTE && t->folder == ORSET_NO_FOLDER);
    if (key->bad || !here ||
        (t->kind == ORSET_TASK_SUBSCRIPTION && !orset_name_valid(t->name, t->name_len)))
        return false;
    return named ? t->name_len > 0 : t->kind == ORSET_TASK_PLACE || key->at == key->end;
}

/* all: those, too, that are not for the caller now */
static int fill(struct orset *os, struct orset_task *t, struct next *n, bool all)
{
    struct orset_reader key = orset_reader_of(t->at, t->at_len);
    int r = 1;
    t->kind = (enum orset_task_kind)orset_key_read(&key, ORSET_TASK_BODY);
    t->folder = (uint32_t)orset_key_read(&key, UINT32_MAX);
    t->uid = t->new_uid = t->source_uid = 0;
    t->source_folder = ORSET_NO_FOLDER;
    t->name = (const char *)key.at;
    t->name_len = (size_t)(key.end - key.at);
    if (t->kind >= ORSET_TASK_FLAGS && t->kind != ORSET_TASK_SUBSCRIPTION &&
        t->kind != ORSET_TASK_ATTRIBUTE) {
        t->uid = (uint32_t)orset_key_read(&key, UINT32_MAX);
        key.bad |= t->uid == 0;
    }
    if (!key_is_true(os, t, &key))
        return orset_corrupt(os, "what a mailbox lacks");
    switch (t->kind) {
    case ORSET_TASK_FOLDER:
    case ORSET_TASK_SUBSCRIPTION:
    case ORSET_TASK_ATTRIBUTE: break;
    case ORSET_TASK_PLACE: r = fill_place(os, t, &key); break;
    case ORSET_TASK_RENUMBER:
        t->new_uid = (uint32_t)orset_read_num(&n->value, ORSET_UID_MAX);
        if (t->new_uid == 0)
            return orset_corrupt(os, "a mail's new UID");
        break;
    case ORSET_TASK_REMOVE: r = all ? 1 : fill_remove(os, n); break;
    case ORSET_TASK_BODY:
    case ORSET_TASK_FLAGS:
        r = orset_message_by_uid(os, t->folder, t->uid, &t->message);
        if (r == 0 && t->kind == ORSET_TASK_BODY) {
            memset(&t->message, 0, sizeof t->message);
            return 1;
        }
        if (r > 0)
            r = orset_group_union(os, &os->m[0], &t->flags) < 0 ? ORSET_E_STORAGE : 1;
        break;
    }
    return r;
}

static int next_of(struct orset *os, struct orset_task *t, bool all)
{
    for (;;) {
        struct next n = {.t = t};
        struct orset_key from = {0};
        orset_key_put(&from, t->at, t->at_len);
        if (t->at_len) /* the smallest key behind it */
            orset_key_put(&from, "", 1);
        int got = os->store.each(os->store.ctx, ORSET_T_TASK, from.b, from.n, 0, next_row, &n);
        if (got < 0)
            return orset_storage_fail(os, "todo rows");
        if (got > 0 && (t->at_len == 0 || t->at_len == sizeof t->at))
            return orset_corrupt(os, "what a mailbox lacks");
        if (got == 0 || t->at[0] >= ORSET_TASK_MISMATCH)
            return 0;
        got = fill(os, t, &n, all);
        if (got)
            return got;
    }
}

int orset_task_next(struct orset *os, struct orset_task *t)
{
    return next_of(os, t, false);
}

uint64_t orset_place_changes(const struct orset *os)
{
    return os->place_changes;
}

/* 1; 0: there is no such message any more */
static int fill_place_only(struct orset *os, struct orset_task *t)
{
    struct orset_reader key = orset_reader_of(t->at, t->at_len);
    (void)orset_key_read(&key, ORSET_TASK_PLACE);
    uint32_t index = (uint32_t)orset_key_read(&key, UINT32_MAX);
    struct orset_dot d = orset_key_read_dot(os, &key);
    const struct folder *f = orset_folder_at(os, index);
    if (key.bad || key.at != key.end || !f)
        return orset_corrupt(os, "a message that waits to be placed");
    t->kind = ORSET_TASK_PLACE;
    t->folder = f->home;
    int r = orset_message_load(os, index, d, &os->m[0]);
    if (r > 0 && orset_group_agreed(os, &os->m[0], &t->uid) < 0)
        return ORSET_E_STORAGE;
    return r;
}

int orset_task_next_place(struct orset *os, struct orset_task *t)
{
    for (;;) {
        struct next n = {.t = t};
        struct orset_key from = {0};
        const uint8_t kind = ORSET_TASK_PLACE;
        if (t->at_len) { /* the smallest key behind it */
            orset_key_put(&from, t->at, t->at_len);
            orset_key_put(&from, "", 1);
        } else {
            orset_key_put(&from, &kind, 1);
        }
        int r = os->store.each(os->store.ctx, ORSET_T_TASK, from.b, from.n, 0, next_row, &n);
        if (r < 0)
            return orset_storage_fail(os, "todo rows");
        if (r == 0 || t->at[0] != ORSET_TASK_PLACE)
            return 0;
        if ((r = fill_place_only(os, t)) != 0)
            return r;
    }
}

int orset_task_next_removal(struct orset *os, struct orset_task *t)
{
    int r = next_of(os, t, true);
    return r > 0 && t->kind != ORSET_TASK_REMOVE ? 0 : r;
}

int orset_unplaced(struct orset *os, unsigned most)
{
    struct orset_task *t = os->alloc.resize(os->alloc.ctx, NULL, sizeof *t);
    unsigned n = 0;
    int got = 0;
    if (!t)
        return orset_fail(os, ORSET_E_MEMORY, "out of memory");
    memset(t, 0, sizeof *t);
    t->at[0] = ORSET_TASK_PLACE;
    t->at_len = 1;
    while (n < most && (got = orset_task_next(os, t)) > 0 && t->kind == ORSET_TASK_PLACE)
        n++;
    os->alloc.resize(os->alloc.ctx, t, 0);
    return got < 0 ? got : (int)n;
}

int orset_task_get(struct orset *os, struct orset_task *t)
{
    struct next n = {.t = t};
    const uint8_t *v;
    size_t len;
    int got = os->store.get(os->store.ctx, ORSET_T_TASK, t->at, t->at_len, &v, &len);
    if (got < 0)
        return orset_storage_fail(os, "todo rows");
    if (got == 0)
        return 0;
    len = len < sizeof n.copy ? len : sizeof n.copy;
    memcpy(n.copy, v, len);
    n.value = orset_reader_of(n.copy, len);
    return fill(os, t, &n, false);
}
