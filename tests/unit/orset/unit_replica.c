/* unit_replica - see unit.h. */
#include "tests/unit/orset/unit.h"

long fail_after = -1; /* allocations until one fails, -1: none */

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0) {
        free(p);
        return NULL;
    }
    if (fail_after >= 0 && fail_after-- == 0)
        return NULL;
    return realloc(p, n);
}

const struct orset_alloc HEAP = {NULL, resize};

void open_replica(struct replica *r, uint64_t site)
{
    struct orset_store s;
    struct orset_origin me = {site, 100 + site};
    bool created;
    r->mem = orset_memstore_new(&HEAP);
    orset_memstore_interface(r->mem, &s);
    ck_assert_int_eq(orset_open(&r->os, &HEAP, &s, &me, &created), 0);
    ck_assert(created);
}

void open_copy(struct replica *copy, struct orset_memstore *of, uint64_t site)
{
    struct orset_store s;
    struct orset_origin me = {site, 100 + site};
    copy->mem = orset_memstore_copy(of);
    orset_memstore_interface(copy->mem, &s);
    ck_assert_int_eq(orset_open(&copy->os, &HEAP, &s, &me, NULL), 0);
}

void close_replica(struct replica *r)
{
    orset_close(r->os);
    orset_memstore_free(r->mem);
}

int send_to(struct replica *from, struct replica *to, uint64_t site, uint64_t first)
{
    struct orset_buf b = {.alloc = &HEAP};
    struct orset_batch_result r;
    uint64_t next;
    ck_assert_int_ge(orset_batch_make(from->os, first, 1 << 20, NULL, 0, &b, &next), 0);
    ck_assert_int_eq(orset_begin(to->os), 0);
    int e = orset_batch_apply(to->os, site, b.data, b.len, &r);
    ck_assert_int_eq(orset_commit(to->os), 0);
    orset_buf_free(&b);
    return e;
}

struct orset_facts facts_of(uint8_t guid, uint8_t body)
{
    return (struct orset_facts){
        .guid = {guid}, .sha256 = {body ? body : guid}, .received = 1, .saved = 2, .size = 3};
}

struct orset_dot append(struct replica *r, uint32_t folder, uint32_t uid, uint8_t guid,
                        uint8_t flags)
{
    struct orset_facts f = facts_of(guid, 0);
    struct orset_flags fl = {.system = flags};
    struct orset_dot d;
    ck_assert_int_eq(orset_begin(r->os), 0);
    ck_assert_int_eq(orset_local_add(r->os, folder, uid, &f, &fl, &d), ORSET_OK);
    ck_assert_int_eq(orset_commit(r->os), 0);
    return d;
}

void expunge(struct replica *r, uint32_t folder, uint32_t uid)
{
    ck_assert_int_eq(orset_begin(r->os), 0);
    ck_assert_int_eq(orset_local_expunge(r->os, folder, uid), ORSET_OK);
    ck_assert_int_eq(orset_commit(r->os), 0);
}

void follow(struct replica *r)
{
    struct orset_task t = {.at_len = 0};
    struct orset_folder f;
    ck_assert_int_eq(orset_begin(r->os), 0);
    while (orset_task_next(r->os, &t) > 0)
        switch (t.kind) {
        case ORSET_TASK_PLACE:
            orset_folder_get(r->os, t.folder, &f);
            orset_done_place(r->os, t.message.folder, t.message.dot, t.uid ? t.uid : f.uid_next,
                             &t.flags);
            break;
        case ORSET_TASK_FLAGS: orset_done_flags(r->os, t.folder, t.uid, &t.flags); break;
        case ORSET_TASK_RENUMBER: orset_done_renumber(r->os, t.folder, t.uid, t.new_uid); break;
        case ORSET_TASK_REMOVE: orset_done_remove(r->os, t.folder, t.uid); break;
        case ORSET_TASK_FOLDER: orset_done_folder(r->os, t.folder); break;
        case ORSET_TASK_SUBSCRIPTION: orset_done_subscription(r->os, t.name, t.name_len); break;
        case ORSET_TASK_ATTRIBUTE: orset_done_attribute(r->os, t.folder, t.name, t.name_len); break;
        case ORSET_TASK_BODY:
            orset_folder_get(r->os, t.folder, &f);
            orset_done_body(r->os, t.folder, t.uid, f.uid_next, t.message.facts.sha256);
            break;
        }
    ck_assert_int_eq(orset_commit(r->os), 0);
}

uint32_t create(struct replica *r, const char *name, size_t len)
{
    uint8_t guid[16] = {1};
    uint32_t f;
    ck_assert_int_eq(orset_begin(r->os), 0);
    ck_assert_int_eq(orset_local_create(r->os, name, len, 7, guid, &f), 0);
    ck_assert_int_eq(orset_commit(r->os), 0);
    return f;
}

int take_over(struct replica *to, uint64_t site, struct replica *from, uint64_t from_site)
{
    struct orset_buf q = {.alloc = &HEAP}, a = {.alloc = &HEAP};
    struct orset_exchange *x;
    int e = orset_ask_hello(to->os, from_site, &x, &q);
    while (e == 0) {
        a.len = 0;
        ck_assert_int_eq(orset_begin(from->os), 0);
        e = orset_answer(from->os, site, q.data, q.len, &a);
        if (e < 0) {
            orset_rollback(from->os);
            break;
        }
        ck_assert_int_eq(orset_commit(from->os), 0);
        q.len = 0;
        ck_assert_int_eq(orset_begin(to->os), 0);
        e = orset_take(to->os, x, a.data, a.len, &q);
        if (e < 0)
            orset_rollback(to->os);
        else
            ck_assert_int_eq(orset_commit(to->os), 0);
    }
    orset_exchange_free(to->os, x);
    orset_buf_free(&q);
    orset_buf_free(&a);
    return e;
}

struct counting {
    uint8_t guid;
    unsigned n;
};

static int count_one(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct counting *c = arg;
    (void)own;
    c->n += m->facts.guid[0] == c->guid;
    return 0;
}

unsigned count(struct replica *r, uint32_t folder, uint8_t guid)
{
    struct counting c = {guid, 0};
    ck_assert_int_eq(orset_each_message(r->os, folder, count_one, &c), 0);
    return c.n;
}

void assert_equal(struct replica *a, struct replica *b)
{
    uint8_t x[16], y[16];
    orset_digest(a->os, x);
    orset_digest(b->os, y);
    ck_assert_mem_eq(x, y, 16);
}
