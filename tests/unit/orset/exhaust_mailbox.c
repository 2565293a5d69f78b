/* exhaust_mailbox - see exhaust_mailbox.h. */
#include "tests/unit/orset/exhaust_mailbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/orset/base/handle.h"
#include "dovecot-plugin/orset/ops/uid.h"

/* --- operations
 * ---------------------------------------------------------------------------------------------- */

const struct operation OPERATION[OPERATIONS] = {
    {EV_APPEND, 'F', 0, 1, "adr"},    {EV_APPEND, 'F', 0, 2, "ad"},
    {EV_COPY, 'F', 'G', 1, "ad"},     {EV_APPEND, 'G', 0, 2, "ad"},
    {EV_EXPUNGE, 'F', 0, 1, "ad"},    {EV_EXPUNGE, 'F', 0, 2, "a"},
    {EV_EXPUNGE, 'G', 0, 1, "a"},     {EV_EXPUNGE, 'G', 0, 2, "ad"},
    {EV_FLAG, 'F', 0, 1, "ad"},       {EV_FLAG, 'F', 0, 2, "a"},
    {EV_FLAG, 'G', 0, 2, "ad"},       {EV_UNFLAG, 'F', 0, 1, "ad"},
    {EV_UNFLAG, 'G', 0, 2, "ad"},     {EV_MOVE, 'F', 'G', 1, "ad"},
    {EV_MOVE, 'G', 'F', 1, "a"},      {EV_MOVE, 'G', 'F', 2, "ad"},
    {EV_CREATE, 'F', 0, 0, "ar"},     {EV_CREATE, 'H', 0, 0, "a"},
    {EV_DELETE, 'F', 0, 0, "ar"},     {EV_DELETE, 'G', 0, 0, "ar"},
    {EV_RENAME, 'F', 'H', 0, "ar"},   {EV_RENAME, 'G', 'H', 0, "ar"},
    {EV_RENAME, 'H', 'F', 0, "ar"},   {EV_SUBSCRIBE, 'F', 0, 0, "a"},
    {EV_UNSUBSCRIBE, 'F', 0, 0, "a"}, {EV_ATTRIBUTE, 'F', 'x', 0, "a"},
    {EV_ATTRIBUTE, 'F', 'y', 0, "a"}, {EV_UIDVALIDITY, 'F', 7, 0, "r"},
    {EV_UIDVALIDITY, 'F', 9, 0, "r"}, {EV_KEEPER, 'F', 2, 0, "r"},
    {EV_KEEPER, 'F', 3, 0, "r"},      {EV_CREATE, 'G', 0, 0, "-"},
};

/* --- at work
 * ---------------------------------------------------------------------------------------------- */

static uint8_t arena[8 << 20];
size_t arena_used;

static void *bump(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0)
        return NULL;
    size_t *q = (size_t *)(void *)(arena + arena_used);
    arena_used += sizeof *q * 2 + ((n + 15) & ~(size_t)15);
    if (arena_used > sizeof arena)
        abort();
    q[0] = n;
    if (p) {
        size_t old = ((size_t *)p)[-2];
        memcpy(q + 2, p, old < n ? old : n);
    }
    return q + 2;
}

const struct orset_alloc BUMP = {NULL, bump};
struct tiny work;
struct orset *os;
uint8_t flag_bit = ORSET_SEEN;

void fail(const char *what)
{
    fprintf(stderr, "FAILED: %s%s%s\n", what, os ? ": " : "", os ? orset_error_text(os) : "");
    exit(1);
}

void must(int r)
{
    if (r < 0)
        fail("a call of the core");
}

void wake(unsigned site)
{
    struct orset_store s;
    struct orset_origin me = {site, 1000 + site};
    tiny_interface(&work, &s);
    arena_used = 0;
    os = NULL;
    must(orset_open(&os, &BUMP, &s, &me, NULL));
    must(orset_begin(os));
}

static uint32_t uid_for(uint32_t folder, const struct orset_message *m)
{
    return 1 + folder * 64 + m->facts.guid[0] * 8u + m->k;
}

/* The mailbox does at once what the state wants. A UID depends on the message alone, so that
 * states do not differ by the order of arrival; UIDs have their own test. */
void follow(void)
{
    struct orset_task t = {.at_len = 0};
    while (orset_task_next(os, &t) > 0) {
        switch (t.kind) {
        case ORSET_TASK_FOLDER: must(orset_done_folder(os, t.folder)); break;
        case ORSET_TASK_PLACE:
            must(orset_done_place(os, t.message.folder, t.message.dot,
                                  uid_for(t.message.folder, &t.message), &t.flags));
            break;
        case ORSET_TASK_FLAGS: must(orset_done_flags(os, t.folder, t.uid, &t.flags)); break;
        case ORSET_TASK_REMOVE: must(orset_done_remove(os, t.folder, t.uid)); break;
        case ORSET_TASK_RENUMBER: fail("nobody settles UIDs here"); break;
        case ORSET_TASK_SUBSCRIPTION: must(orset_done_subscription(os, t.name, t.name_len)); break;
        case ORSET_TASK_ATTRIBUTE:
            must(orset_done_attribute(os, t.folder, t.name, t.name_len));
            break;
        case ORSET_TASK_BODY: fail("equal GUIDs have equal bytes here"); break;
        }
    }
}

/* --- what a user sees
 * ---------------------------------------------------------------------------------------------- */

/* The messages of a folder, each by one of its dots. */
struct showing {
    unsigned id[64], n;
    struct orset_dot dot[64];
};

static int show(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct showing *s = arg;
    unsigned id = m->facts.guid[0] * 100u + m->k;
    (void)own;
    for (unsigned i = 0; i < s->n; i++)
        if (s->id[i] == id)
            return 0;
    s->dot[s->n] = m->dot;
    s->id[s->n++] = id;
    return 0;
}

uint64_t shown_here(void)
{
    const uint8_t *v;
    size_t n;
    char name[] = "\0F";
    uint64_t all;
    int got = orset_attribute_get(os, ORSET_NO_FOLDER, "k", 1, &v, &n);
    all = shown_rest(orset_subscribed(os, name, 2), got > 0 ? (char)v[0] : 0);
    for (uint32_t i = 1; i < orset_folders(os); i++) {
        struct orset_folder f;
        struct showing s;
        uint64_t messages = 0;
        must(orset_folder_get(os, i, &f));
        if (!f.live)
            continue;
        s.n = 0;
        must(orset_each_message(os, i, show, &s));
        for (unsigned j = 0; j < s.n; j++) {
            struct orset_flags flags;
            must(orset_message_flags(os, i, s.dot[j], &flags));
            messages =
                shown_message(messages, s.id[j] / 100, s.id[j] % 100, flags.system & flag_bit);
        }
        all += shown_folder(f.named ? f.name[1] : 0, f.uid_validity, (unsigned)f.keeper_site,
                            messages);
    }
    return all;
}

/* --- what a user does
 * ---------------------------------------------------------------------------------------------- */

struct pick {
    unsigned guid;
    struct orset_message m;
    bool found;
};

static int pick_one(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct pick *p = arg;
    (void)own;
    if (m->facts.guid[0] == p->guid && (!p->found || m->k < p->m.k)) {
        p->m = *m;
        p->found = true;
    }
    return 0;
}

/* Folder by its name here; its index in this state. */
static uint32_t named(char c)
{
    char name[2] = {0, c};
    return orset_folder_by_name(os, name, 2);
}

static bool pick(char folder, unsigned guid, struct pick *p)
{
    uint32_t home = named(folder);
    p->guid = guid;
    p->found = false;
    for (uint32_t i = 1; home != ORSET_NO_FOLDER && i < orset_folders(os) && !p->found; i++) {
        struct orset_folder f;
        must(orset_folder_get(os, i, &f));
        if (f.live && f.home == home)
            must(orset_each_message(os, i, pick_one, p));
    }
    return p->found;
}

static int add(char folder, unsigned guid, bool flagged, struct event *e)
{
    uint32_t f = named(folder);
    struct orset_facts facts = {
        .guid = {(uint8_t)guid}, .sha256 = {(uint8_t)guid}, .received = 1, .saved = 1, .size = 1};
    struct orset_flags flags = {.system = flagged ? flag_bit : 0};
    struct orset_dot d;
    struct orset_message m;
    if (f == ORSET_NO_FOLDER)
        return 0;
    /* A UID that no other has, until k is known. */
    must(orset_local_add(os, f, 60000, &facts, &flags, &d));
    must(orset_message_get(os, f, d, &m));
    must(orset_done_renumber(os, f, 60000, uid_for(f, &m)));
    struct orset_folder in;
    must(orset_folder_get(os, f, &in));
    e->guid = guid;
    e->k = m.k;
    e->id_site = in.id_origin.site;
    e->id_number = in.id_counter;
    return 1;
}

static int flag(const struct operation *o, bool on)
{
    struct pick p;
    struct orset_flags now;
    if (!pick(o->name, o->guid, &p))
        return 0;
    must(orset_message_flags(os, p.m.folder, p.m.dot, &now));
    if (!!(now.system & flag_bit) == on)
        return 0;
    now.system ^= flag_bit;
    struct orset_folder f;
    must(orset_folder_get(os, p.m.folder, &f));
    must(orset_local_flags(os, f.home, p.m.uid, &now, NULL));
    return 1;
}

static int remove_one(const struct operation *o, const struct pick *p)
{
    struct orset_folder f;
    (void)o;
    must(orset_folder_get(os, p->m.folder, &f));
    must(orset_local_expunge(os, f.home, p->m.uid));
    return 1;
}

static bool has_flag(const struct pick *p)
{
    struct orset_flags f;
    must(orset_message_flags(os, p->m.folder, p->m.dot, &f));
    return f.system & flag_bit;
}

/* 1 when the operation is possible here and was done. */
int act(const struct operation *o, struct event *e)
{
    char name[2] = {0, o->name}, other[2] = {0, o->other};
    uint8_t guid[16] = {9};
    uint32_t folder;
    struct pick p;
    e->kind = o->kind;
    switch (o->kind) {
    case EV_APPEND: return add(o->name, o->guid, false, e);
    case EV_COPY: return pick(o->name, o->guid, &p) && add(o->other, o->guid, has_flag(&p), e);
    case EV_MOVE:
        return pick(o->name, o->guid, &p) && add(o->other, o->guid, has_flag(&p), e) &&
               remove_one(o, &p);
    case EV_EXPUNGE: return pick(o->name, o->guid, &p) && remove_one(o, &p);
    case EV_FLAG: return flag(o, true);
    case EV_UNFLAG: return flag(o, false);
    case EV_CREATE:
        e->name = o->name;
        return named(o->name) == ORSET_NO_FOLDER &&
               orset_local_create(os, name, 2, UIDVALIDITY_FIRST, guid, &folder) == 0;
    case EV_DELETE:
        return named(o->name) != ORSET_NO_FOLDER && orset_local_delete(os, named(o->name)) == 0;
    case EV_RENAME:
        e->name = o->other;
        return named(o->name) != ORSET_NO_FOLDER && named(o->other) == ORSET_NO_FOLDER &&
               orset_local_rename(os, named(o->name), other, 2) == 0;
    case EV_SUBSCRIBE: return orset_local_subscribe(os, name, 2, true) == 0;
    case EV_UNSUBSCRIBE: return orset_local_subscribe(os, name, 2, false) == 0;
    case EV_ATTRIBUTE:
        e->name = o->other;
        return orset_local_attribute(os, ORSET_NO_FOLDER, "k", 1, (const uint8_t *)&o->other, 1) ==
               0;
    case EV_UIDVALIDITY:
        e->name = o->other;
        return named(o->name) != ORSET_NO_FOLDER &&
               orset_local_uid_validity(os, named(o->name), (uint32_t)o->other, 1000) == 0;
    case EV_KEEPER:
        e->name = o->other;
        return named(o->name) != ORSET_NO_FOLDER &&
               orset_local_keeper(os, named(o->name), (uint64_t)o->other) == 0;
    }
    return 0;
}
