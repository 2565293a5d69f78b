/* seeds - real messages of two sites, of every kind that fuzz.c takes. */
#include "tests/fuzz/orset/fuzz.h"

/* Every kind of op, as ingest makes them. */
static void change_everything(struct orset *os)
{
    struct orset_flags none = {0}, marked = {.system = ORSET_DELETED, .nkeywords = 1};
    uint32_t f = orset_folder_by_name(os, "\0F", 2);
    require(orset_begin(os) == 0, "begin");
    marked.keyword[0] = (uint16_t)orset_keyword(os, "Urgent", 6);
    require(orset_local_flags(os, ORSET_INBOX, 2, &marked, NULL) == 0, "flags");
    require(orset_local_flags(os, ORSET_INBOX, 4, &none, NULL) == 0, "flags");
    require(orset_local_expunge(os, f, 1) == 0, "expunge");
    require(orset_local_rename(os, f, "\0G", 2) == 0, "rename");
    require(orset_local_uid_validity(os, ORSET_INBOX, 9, 1000) == 0, "UIDVALIDITY");
    require(orset_local_keeper(os, ORSET_INBOX, 2) == 0, "keeper");
    require(orset_local_subscribe(os, "\0F", 2, false) == 0, "subscribe");
    require(orset_commit(os) == 0, "commit");
}

static void exchange(struct orset *os, struct orset *asker, fuzz_seed_fn *fn, void *arg)
{
    struct orset_exchange *x;
    struct orset_buf b = {.alloc = &HEAP}, q = {.alloc = &HEAP};
    char name[20];
    int e = 0, i = 0;
    require(orset_ask_hello(asker, 2, &x, &q) == 0, "ask");
    while (e == 0) {
        b.len = 0;
        snprintf(name, sizeof name, "question-%d", i);
        fn(arg, name, 3, &q);
        require(orset_begin(os) == 0 && orset_answer(os, 1, q.data, q.len, &b) == 0 &&
                    orset_commit(os) == 0,
                "answer");
        snprintf(name, sizeof name, "answer-%d", i++);
        fn(arg, name, 2, &b);
        q.len = 0;
        require(orset_begin(asker) == 0, "begin");
        e = orset_take(asker, x, b.data, b.len, &q);
        require(e >= 0 && orset_commit(asker) == 0, "take");
    }
    orset_exchange_free(asker, x);
    orset_buf_free(&b);
    orset_buf_free(&q);
}

void fuzz_seeds(fuzz_seed_fn *fn, void *arg)
{
    struct orset_memstore *mem = orset_memstore_new(&HEAP), *other = orset_memstore_new(&HEAP);
    struct orset *os = open_site(mem, 2), *asker = open_site(other, 1);
    struct orset_buf b = {.alloc = &HEAP}, q = {.alloc = &HEAP};
    uint64_t next, middle;
    populate(os);
    populate(asker);
    middle = orset_vector_get(os, orset_self(os)) + 1;
    require(orset_batch_make(os, 1, 100000, NULL, 0, &b, &next) == 0, "batch");
    fn(arg, "batch", 0, &b);
    change_everything(os);
    b.len = 0;
    require(orset_batch_make(os, middle, 100000, NULL, 0, &b, &next) == 0, "batch");
    fn(arg, "batch-more", 0, &b);
    exchange(os, asker, fn, arg);
    b.len = 0;
    require(orset_begin(os) == 0 && orset_uid_ask(os, ORSET_INBOX, &b) == 0 &&
                orset_commit(os) == 0,
            "uid ask");
    fn(arg, "uid-ask", 4, &b);
    q.len = 0;
    require(orset_uid_answer(os, b.data, b.len, &q) == 0, "uid answer");
    fn(arg, "uid-answer", 5, &q);
    orset_buf_free(&b);
    orset_buf_free(&q);
    orset_close(os);
    orset_close(asker);
    orset_memstore_free(mem);
    orset_memstore_free(other);
}
