/* folder - identity, presence, name and registers of folders; all of them are cached. */
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/arrivals.h"
#include "dovecot-plugin/orset/state/tasks.h"

#include <stdio.h>
#include <string.h>

struct folder *orset_folder_at(const struct orset *os, uint32_t index)
{
    return index < os->nfolders ? os->folder[index] : NULL;
}

static uint32_t id_slot(const struct orset *os, struct orset_dot id)
{
    uint64_t h =
        (id.counter * 0x9e3779b97f4a7c15ULL) ^ ((uint64_t)id.origin * 0xc2b2ae3d27d4eb4fULL);
    return (uint32_t)(h >> 32) & (os->by_id_room - 1);
}

struct folder *orset_need_folder(struct orset *os, uint32_t folder, int *r)
{
    struct folder *f = orset_folder_at(os, folder);
    *r = orset_need_transaction(os);
    if (*r == 0 && !f)
        *r = orset_fail(os, ORSET_E_ABSENT, "folder %u: there is no such folder in this state",
                        folder);
    return *r < 0 ? NULL : f;
}

const char *orset_folder_label(struct orset *os, uint32_t folder)
{
    const struct folder *f = orset_folder_at(os, folder);
    if (folder == ORSET_INBOX)
        return "INBOX";
    if (!f || f->name_len == 0) {
        snprintf(os->label, sizeof os->label, "folder %u%s", folder,
                 f ? " (without a name yet)" : "");
        return os->label;
    }
    /* behind the namespace's key */
    size_t key = strnlen(f->name, f->name_len), skip = key < f->name_len ? key + 1 : 0,
           n = f->name_len - skip, most = sizeof os->label - 1;
    n = n < most ? n : most;
    memcpy(os->label, f->name + skip, n);
    os->label[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (!os->label[i])
            os->label[i] = '/';
    return os->label;
}

struct folder *orset_folder_find(const struct orset *os, struct orset_dot id)
{
    if (os->by_id_room == 0)
        return NULL;
    for (uint32_t i = id_slot(os, id); os->by_id[i]; i = (i + 1) & (os->by_id_room - 1)) {
        struct folder *f = os->folder[os->by_id[i] - 1];
        if (f->id.origin == id.origin && f->id.counter == id.counter)
            return f;
    }
    return NULL;
}

static void id_put(struct orset *os, const struct folder *f)
{
    uint32_t i = id_slot(os, f->id);
    while (os->by_id[i])
        i = (i + 1) & (os->by_id_room - 1);
    os->by_id[i] = f->index + 1;
}

static struct folder *cache_new(struct orset *os, struct orset_dot id)
{
    if (os->nfolders == os->folder_room) {
        uint32_t room = os->folder_room ? os->folder_room * 2 : 16;
        struct folder **p = orset_mem(os, os->folder, room * sizeof *p);
        if (!p)
            return NULL;
        os->folder = p;
        uint32_t *ids = orset_mem(os, os->by_id, room * 2 * sizeof *ids);
        if (!ids)
            return NULL;
        os->by_id = ids;
        os->by_id_room = room * 2;
        os->folder_room = room;
        memset(ids, 0, room * 2 * sizeof *ids);
        for (uint32_t i = 0; i < os->nfolders; i++)
            id_put(os, os->folder[i]);
    }
    struct folder *f = orset_mem(os, NULL, sizeof *f);
    if (!f)
        return NULL;
    memset(f, 0, sizeof *f);
    f->index = f->home = os->nfolders;
    f->id = id;
    f->uid_next = 1;
    os->folder[os->nfolders++] = f;
    id_put(os, f);
    return f;
}

struct folder *orset_folder_make(struct orset *os, struct orset_dot id)
{
    struct folder *f = orset_folder_find(os, id);
    if (f)
        return f;
    if (os->nfolders >= ORSET_FOLDERS_MAX) {
        orset_fail(os, ORSET_E_LIMIT, "more than %d folders", ORSET_FOLDERS_MAX);
        return NULL;
    }
    f = cache_new(os, id);
    if (!f || orset_folder_touch(os, f) < 0)
        return NULL;
    return f;
}

int orset_folder_touch(struct orset *os, struct folder *f)
{
    if (f->dirty)
        return 0;
    if (os->ndirty == os->dirty_room) {
        uint32_t room = os->dirty_room ? os->dirty_room * 2 : 16;
        uint32_t *p = orset_mem(os, os->dirty, room * sizeof *p);
        if (!p)
            return ORSET_E_MEMORY;
        os->dirty = p;
        os->dirty_room = room;
    }
    os->dirty[os->ndirty++] = f->index;
    f->dirty = true;
    return 0;
}

void orset_folder_reidentify(struct orset *os, struct folder *f, struct orset_dot id)
{
    f->id = id;
    memset(os->by_id, 0, os->by_id_room * sizeof *os->by_id);
    for (uint32_t i = 0; i < os->nfolders; i++)
        id_put(os, os->folder[i]);
}

void orset_folder_id_write(struct orset_buf *b, const struct folder *f)
{
    if (f->id.origin == ORSET_INBOX_ORIGIN) {
        orset_buf_num(b, 0);
        return;
    }
    orset_buf_num(b, f->id.origin + 1u);
    orset_buf_num(b, f->id.counter);
}

void orset_stamp_write(struct orset_buf *b, struct stamp s)
{
    orset_buf_num(b, s.clock);
    if (s.clock) {
        orset_buf_u64(b, s.site);
        orset_buf_u64(b, s.epoch);
    }
}

struct stamp orset_stamp_read(struct orset_reader *r)
{
    struct stamp s = {orset_read_num(r, ORSET_CLOCK_MAX), 0, 0};
    if (s.clock) {
        s.site = orset_read_u64(r);
        s.epoch = orset_read_u64(r);
    }
    return s;
}

int orset_folder_write(struct orset *os, struct folder *f)
{
    struct orset_buf *b = &os->row;
    struct orset_key k = {0};
    orset_key_num(&k, f->index);
    b->len = 0;
    orset_buf_num(b, f->id.origin);
    orset_buf_num(b, f->id.counter);
    orset_buf_num(b, f->home);
    orset_buf_num(b, f->npresence);
    for (unsigned i = 0; i < f->npresence; i++)
        orset_dot_write(b, f->presence[i]);
    orset_buf_text(b, f->name, f->name_len);
    orset_stamp_write(b, f->name_stamp);
    orset_buf_put(b, f->guid, 16);
    orset_buf_num(b, f->uid_validity);
    orset_buf_num(b, f->uid_next);
    orset_buf_num(b, f->messages);
    orset_buf_u64(b, f->sum.lo);
    orset_buf_u64(b, f->sum.hi);
    orset_stamp_write(b, f->keeper_stamp);
    orset_buf_u64(b, f->keeper);
    orset_buf_num(b, f->peer_modseq);
    orset_buf_num(b, f->round_term);
    orset_buf_num(b, f->round);
    orset_buf_num(b, f->ask);
    orset_buf_num(b, f->gap);
    orset_buf_u8(b, (uint8_t)(f->uid_dirty | f->uid_told << 1));
    orset_buf_num(b, f->given);
    orset_buf_num(b, f->given_by);
    orset_seal(b);
    f->dirty = false;
    return orset_row_put(os, ORSET_T_FOLDER, &k, b);
}

static int read_folder(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct orset *os = arg;
    struct orset_reader r = orset_reader_of(v, len);
    struct orset_reader k = orset_reader_of(key, key_len);
    uint32_t index = (uint32_t)orset_key_read(&k, ORSET_FOLDERS_MAX);
    struct orset_dot id;
    id.origin = (uint16_t)orset_read_num(&r, 0xffff);
    id.counter = orset_read_num(&r, ORSET_COUNTER_MAX);
    bool is_inbox = id.origin == ORSET_INBOX_ORIGIN && id.counter == 0;
    if (r.bad || k.bad || index != os->nfolders || index >= ORSET_FOLDERS_MAX ||
        (index == ORSET_INBOX) != is_inbox ||
        (!is_inbox && (id.origin >= os->norigins || id.counter == 0)))
        return orset_corrupt(os, "a folder's row names no folder");
    struct folder *f = cache_new(os, id);
    if (!f)
        return -1;
    f->home = (uint32_t)orset_read_num(&r, ORSET_FOLDERS_MAX);
    unsigned n = (unsigned)orset_read_num(&r, ORSET_ORIGINS_MAX);
    for (unsigned i = 0; i < n && !r.bad; i++) {
        struct orset_dot d = orset_row_read_dot(os, &r);
        if (!r.bad && orset_presence_put(os, f, d) < 0)
            return -1;
    }
    size_t name_len;
    const uint8_t *name = orset_read_text(&r, ORSET_NAME_MAX, &name_len);
    f->name_stamp = orset_stamp_read(&r);
    const uint8_t *guid = orset_read_bytes(&r, 16);
    if (r.bad || (f->name_stamp.clock ? !orset_name_valid(name, name_len) : name_len > 0))
        return orset_corrupt(os, "a folder's row is cut, or has no valid name");
    if (!(f->name = orset_mem(os, NULL, name_len + 1)))
        return -1;
    memcpy(f->guid, guid, 16);
    memcpy(f->name, name, name_len);
    f->name[name_len] = '\0';
    f->name_len = name_len;
    f->uid_validity = (uint32_t)orset_read_num(&r, UINT32_MAX);
    f->uid_next = (uint32_t)orset_read_num(&r, UINT32_MAX);
    f->messages = orset_read_num(&r, UINT64_MAX);
    f->sum.lo = orset_read_u64(&r);
    f->sum.hi = orset_read_u64(&r);
    f->keeper_stamp = orset_stamp_read(&r);
    f->keeper = orset_read_u64(&r);
    f->peer_modseq = orset_read_num(&r, UINT64_MAX);
    f->round_term = orset_read_num(&r, ORSET_CLOCK_MAX);
    f->round = (uint32_t)orset_read_num(&r, UINT32_MAX);
    f->ask = (uint32_t)orset_read_num(&r, UINT32_MAX);
    f->gap = (uint32_t)orset_read_num(&r, UINT32_MAX);
    uint8_t bits = orset_read_u8(&r);
    f->uid_dirty = bits & 1;
    f->uid_told = bits & 2;
    if (r.at != r.end) { /* not in a row of an earlier program's */
        f->given = (uint32_t)orset_read_num(&r, ORSET_UID_MAX + 1);
        f->given_by = (uint16_t)orset_read_num(&r, os->norigins - 1u);
    }
    return orset_sealed(v, len, &r)
               ? 0
               : orset_corrupt(os, "a folder's row is cut, or its seal is broken");
}

int orset_folders_read(struct orset *os)
{
    if (os->store.each(os->store.ctx, ORSET_T_FOLDER, "", 0, 0, read_folder, os) < 0)
        return orset_storage_fail(os, "a folder's row cannot be read");
    if (os->nfolders == 0)
        return orset_corrupt(os, "there is no INBOX");
    for (uint32_t i = 0; i < os->nfolders; i++)
        if (os->folder[i]->home >= os->nfolders)
            return orset_corrupt(os, "a folder is shown in none");
    /* presence_put marked them; they are as they were written */
    for (uint32_t i = 0; i < os->nfolders; i++)
        os->folder[i]->dirty = false;
    os->ndirty = 0;
    os->tree_dirty = false;
    return 0;
}

void orset_folders_free(struct orset *os)
{
    for (uint32_t i = 0; i < os->nfolders; i++) {
        struct folder *f = os->folder[i];
        if (f->presence)
            os->alloc.resize(os->alloc.ctx, f->presence, 0);
        if (f->name)
            os->alloc.resize(os->alloc.ctx, f->name, 0);
        os->alloc.resize(os->alloc.ctx, f, 0);
    }
    if (os->folder)
        os->alloc.resize(os->alloc.ctx, os->folder, 0);
    if (os->by_id)
        os->alloc.resize(os->alloc.ctx, os->by_id, 0);
    if (os->dirty)
        os->alloc.resize(os->alloc.ctx, os->dirty, 0);
    os->folder = NULL;
    os->by_id = os->dirty = NULL;
    os->nfolders = os->folder_room = os->by_id_room = os->ndirty = os->dirty_room = 0;
}

bool orset_folder_live(const struct folder *f)
{
    return f->npresence > 0 || f->messages > 0;
}

/* --- presence: an OR-Set of dots (rule 6)
 * ------------------------------------------------------------------------ */

static int presence_at(const struct folder *f, struct orset_dot d)
{
    for (unsigned i = 0; i < f->npresence; i++)
        if (f->presence[i].origin == d.origin && f->presence[i].counter == d.counter)
            return (int)i;
    return -1;
}

bool orset_has_presence(const struct folder *f, struct orset_dot d)
{
    return presence_at(f, d) >= 0;
}

/* One per origin is enough: an origin's later presence dot always saw its earlier one. So two
 * dots of one origin mean the same as the later one, and the list is bounded by the number of
 * origins. */
int orset_presence_put(struct orset *os, struct folder *f, struct orset_dot d)
{
    bool was_live = orset_folder_live(f);
    unsigned i;
    for (i = 0; i < f->npresence; i++)
        if (f->presence[i].origin == d.origin)
            break;
    if (i < f->npresence && f->presence[i].counter >= d.counter)
        return 0;
    if (i == f->npresence) {
        if (f->npresence == f->presence_room) {
            unsigned room = f->presence_room ? f->presence_room * 2 : 2;
            struct orset_dot *p = orset_mem(os, f->presence, room * sizeof *p);
            if (!p)
                return ORSET_E_MEMORY;
            f->presence = p;
            f->presence_room = room;
        }
        f->npresence++;
    }
    f->presence[i] = d;
    if (os->open && orset_arrived(os, f->index, d) < 0)
        return ORSET_E_MEMORY;
    if (!was_live && orset_folder_changed(os, f) < 0)
        return ORSET_E_STORAGE;
    return orset_folder_touch(os, f);
}

int orset_presence_kill(struct orset *os, struct folder *f, struct orset_dot d)
{
    int i = presence_at(f, d);
    if (i < 0)
        return 0;
    f->presence[i] = f->presence[--f->npresence];
    if (!orset_folder_live(f) && orset_folder_changed(os, f) < 0)
        return ORSET_E_STORAGE;
    return orset_folder_touch(os, f);
}

/* --- registers
 * ---------------------------------------------------------------------------------------------- */

bool orset_name_valid(const void *name, size_t len)
{
    const char *p = name;
    unsigned parts = 1;
    if (len == 0 || len > ORSET_NAME_MAX || p[len - 1] == '\0')
        return false;
    /* The namespace key, which may be empty, then at least one component; components are never
     * empty. */
    for (size_t i = 0; i < len; i++)
        if (p[i] == '\0') {
            parts++;
            if (p[i + 1] == '\0')
                return false;
        }
    return parts >= 2 && parts <= ORSET_COMPONENTS_MAX;
}

/* The later stamp wins; stamps are never equal unless the write is the same one, so the order of
 * arrival does not count. */
int orset_folder_name(struct orset *os, struct folder *f, const void *name, size_t len,
                      struct stamp s)
{
    if (orset_stamp_order(s, f->name_stamp) <= 0)
        return 0;
    char *copy = orset_mem(os, NULL, len + 1);
    if (!copy)
        return ORSET_E_MEMORY;
    memcpy(copy, name, len);
    copy[len] = '\0';
    f->renamed = true;
    if (f->name)
        os->alloc.resize(os->alloc.ctx, f->name, 0);
    f->name = copy;
    f->name_len = len;
    f->name_stamp = s;
    os->place_changes++; /* its mails can be placed now */
    return orset_folder_changed(os, f);
}

int orset_folder_uid_next(struct orset *os, struct folder *f, uint32_t uid_next)
{
    if (uid_next <= f->uid_next)
        return ORSET_KNOWN;
    f->uid_next = uid_next;
    return orset_folder_touch(os, f);
}

int orset_folder_given(struct orset *os, struct folder *f, uint32_t uid, uint16_t by)
{
    uint32_t here = os->folder[f->home]->uid_next;
    if (uid == 0 || uid < f->given || uid > ORSET_UID_MAX || by == os->self ||
        (uid > here && uid - here > ORSET_UID_JUMP))
        return 0;
    f->given = uid + 1;
    f->given_by = by;
    return orset_folder_touch(os, f);
}

int orset_folder_changed(struct orset *os, struct folder *f)
{
    os->tree_dirty = true;
    os->tree_changes++;
    struct orset_buf none = {0};
    int r = os->open ? orset_task_put(os, ORSET_TASK_FOLDER, f->index, "", 0, &none) : 0;
    return r < 0 ? r : orset_folder_touch(os, f);
}

/* Presence dots are summed, because their order in the list is an accident. */
struct orset_sum orset_folder_sum(const struct orset *os, const struct folder *f)
{
    uint64_t w[16];
    unsigned n = 0;
    struct orset_sum s = f->sum;
    w[n++] = f->id.origin == ORSET_INBOX_ORIGIN ? 0 : os->origin[f->id.origin].hash;
    w[n++] = f->id.counter;
    w[n++] = f->name_stamp.clock;
    w[n++] = f->name_stamp.site;
    w[n++] = f->name_stamp.epoch;
    w[n++] = f->name_len ? orset_hash(f->name, f->name_len).lo : 0;
    w[n++] = f->uid_validity;
    w[n++] = f->keeper_stamp.clock;
    w[n++] = f->keeper_stamp.site;
    w[n++] = f->keeper_stamp.epoch;
    w[n++] = f->keeper;
    w[n++] = f->messages;
    orset_sum_add(&s, orset_hash_words(w, n));
    for (unsigned i = 0; i < f->npresence; i++) {
        uint64_t p[4] = {w[0], w[1], os->origin[f->presence[i].origin].hash,
                         f->presence[i].counter};
        orset_sum_add(&s, orset_hash_words(p, 4));
    }
    return s;
}

uint32_t orset_folders(const struct orset *os)
{
    return os->nfolders;
}

int orset_folder_get(const struct orset *os, uint32_t index, struct orset_folder *r)
{
    const struct folder *f = orset_folder_at(os, index);
    if (!f)
        return ORSET_E_ABSENT;
    memset(r, 0, sizeof *r);
    r->index = index;
    if (f->id.origin != ORSET_INBOX_ORIGIN)
        r->id_origin = os->origin[f->id.origin].id;
    r->id_counter = f->id.counter;
    r->live = index == ORSET_INBOX || orset_folder_live(f);
    r->named = index == ORSET_INBOX || f->name_stamp.clock > 0;
    r->name = f->name ? f->name : "";
    r->name_len = f->name_len;
    memcpy(r->guid, f->guid, 16);
    r->uid_validity = f->uid_validity;
    r->uid_next = f->uid_next;
    r->uid_given = f->given ? f->given : 1;
    r->given_site = f->given ? os->origin[f->given_by].id.site : 0;
    r->home = f->home;
    r->messages = f->messages;
    r->keeper_site = f->keeper;
    r->peer_modseq = f->peer_modseq;
    r->batch_lo = f->batch == os->batches ? f->batch_lo : 0;
    r->batch_hi = f->batch == os->batches ? f->batch_hi : 0;
    return 0;
}

static bool is_namesake(const struct folder *f, const struct folder *g)
{
    bool together = orset_folder_live(g) && g->home == f->home;
    return g != f && !together && g->uid_validity == f->uid_validity &&
           g->name_len == f->name_len && f->name_len > 0 &&
           memcmp(g->name, f->name, f->name_len) == 0;
}

uint32_t orset_namesakes_uid_next(const struct orset *os, uint32_t folder)
{
    const struct folder *f = orset_folder_at(os, folder);
    uint32_t most = 1;
    for (uint32_t i = 0; f && f->uid_validity != 0 && i < os->nfolders; i++) {
        const struct folder *g = os->folder[i];
        if (g->uid_next > most && is_namesake(f, g))
            most = g->uid_next;
    }
    return most;
}

void orset_bound_uid_validity(struct orset *os, uint32_t most)
{
    os->most_uid_validity = most;
}
