/* base - a state file to be damaged: two folders of one name, mails with copies and keywords,
 * what waits, what is remembered, aliases, long keys. */
#include "tests/fuzz/state/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct orset_facts facts_of(uint8_t n)
{
    return (struct orset_facts){.guid = {n, 1, 2, 3, 4, 5, 6},
                                .sha256 = {n, 7},
                                .received = 1000 + n,
                                .saved = 1001 + n,
                                .size = 10u * n};
}

static void add(struct orset *os, uint32_t folder, uint32_t uid, uint8_t guid, uint8_t system,
                int keyword)
{
    struct orset_facts facts = facts_of(guid);
    struct orset_flags flags = {.system = system};
    if (guid == 3) {
        facts.guid_text = "1700000000.M1P2.host";
        facts.guid_text_len = strlen(facts.guid_text);
    }
    if (keyword >= 0)
        flags.keyword[flags.nkeywords++] = (uint16_t)keyword;
    require(orset_local_add(os, folder, uid, &facts, &flags, NULL) >= 0, "add");
}

static struct orset *open_memory(struct orset_memstore *mem, uint64_t site)
{
    struct orset_store s;
    struct orset_origin me = {site, 100 + site};
    struct orset *os;
    orset_memstore_interface(mem, &s);
    require(orset_open(&os, &HEAP, &s, &me, NULL) == 0, "open");
    return os;
}

/* from's ops, from number first on. */
static void ship(struct orset *from, struct orset *to, uint64_t site, uint64_t first)
{
    struct orset_buf b = {.alloc = &HEAP};
    struct orset_batch_result res;
    uint64_t next;
    require(orset_batch_make(from, first, 1 << 20, NULL, 0, &b, &next) == 0, "batch");
    require(orset_begin(to) == 0, "begin");
    int e = orset_batch_apply(to, site, b.data, b.len, &res);
    if (e < 0)
        fprintf(stderr, "%s\n", orset_error_text(to));
    require(e >= 0 && orset_commit(to) == 0, "apply");
    orset_buf_free(&b);
}

static void change(struct orset *os, uint32_t folder)
{
    struct orset_flags all = {.system = ORSET_SEEN | ORSET_DELETED}, none = {0};
    char name[80];
    require(orset_begin(os) == 0, "begin");
    for (int i = 0; i < 3; i++) {
        int n = snprintf(name, sizeof name, "Keyword%d", i);
        require(orset_keyword(os, name, (size_t)n) == i, "keyword");
    }
    for (uint8_t i = 1; i <= 6; i++)
        add(os, i % 2 ? folder : ORSET_INBOX, i, i, ORSET_SEEN, i % 3);
    add(os, folder, 7, 1, 0, -1); /* a copy */
    require(orset_local_flags(os, ORSET_INBOX, 2, &all, NULL) == 0, "flags");
    require(orset_local_flags(os, ORSET_INBOX, 4, &none, NULL) == 0, "flags");
    require(orset_local_subscribe(os, "\0F", 2, true) == 0, "subscribe");
    require(orset_local_attribute(os, folder, "pk", 2, (const uint8_t *)"v", 1) == 0, "attribute");
    require(orset_local_attribute(os, ORSET_NO_FOLDER, "sadmin", 6, (const uint8_t *)"me", 2) == 0,
            "attribute");
    require(orset_commit(os) == 0, "commit");
}

/* What is remembered of a third site whose ops come later: a flag, a removal and a UID of its
 * message, which the second site names. */
static void make_ahead(struct orset *here, struct orset *other, struct orset *third)
{
    struct orset_flags marked = {.system = ORSET_FLAGGED};
    struct orset_message m;
    require(orset_begin(third) == 0, "begin");
    add(third, ORSET_INBOX, 11, 11, 0, -1);
    add(third, ORSET_INBOX, 12, 12, 0, -1);
    require(orset_commit(third) == 0, "commit");
    ship(third, other, 3, 1);
    uint64_t from = orset_vector_get(other, orset_self(other)) + 1;
    require(orset_begin(other) == 0, "begin");
    struct orset_task t = {.at_len = 1, .at = {ORSET_TASK_PLACE}};
    unsigned placed = 0;
    uint32_t uid = 100;
    while (orset_task_next(other, &t) > 0 && t.kind == ORSET_TASK_PLACE && placed < 40) {
        require(orset_done_place(other, t.folder, t.message.dot, uid++, &t.flags) >= 0, "placed");
        placed++;
    }
    for (uint32_t u = 100; u < uid; u++)
        if (orset_message_by_uid(other, ORSET_INBOX, u, &m) > 0 && m.facts.guid[0] >= 11)
            require((m.facts.guid[0] == 11 ? orset_local_flags(other, ORSET_INBOX, u, &marked, NULL)
                                           : orset_local_expunge(other, ORSET_INBOX, u)) >= 0,
                    "a change of the third site's mail");
    require(orset_commit(other) == 0, "commit");
    ship(other, here, 2, from);
}

/* Placed mails that are to go, to be marked, to get another UID, or another site's bytes. */
static void make_work(struct orset *os, struct orset *other)
{
    struct orset_flags none = {0};
    struct orset_facts twice = facts_of(9);
    uint64_t from = orset_vector_get(other, orset_self(other)) + 1;
    require(orset_begin(other) == 0, "begin");
    add(other, ORSET_INBOX, 51, 8, 0, -1);
    add(other, ORSET_INBOX, 52, 9, ORSET_SEEN, -1);
    add(other, ORSET_INBOX, 53, 10, 0, -1);
    add(other, ORSET_INBOX, 54, 20, 0, -1);
    require(orset_local_subscribe(other, "\0G", 2, true) == 0, "subscribe");
    require(orset_local_attribute(other, ORSET_INBOX, "sx", 2, (const uint8_t *)"y", 1) == 0,
            "attribute");
    require(orset_commit(other) == 0, "commit");
    ship(other, os, 2, from);
    /* Those were saved here with UIDs that are not the claimed ones, one with other bytes. */
    require(orset_begin(os) == 0, "begin");
    struct orset_task t = {.at_len = 1, .at = {ORSET_TASK_PLACE}};
    uint32_t uid = 60;
    while (orset_task_next(os, &t) > 0 && t.kind == ORSET_TASK_PLACE && uid < 63)
        require(orset_done_place(os, t.folder, t.message.dot, uid++, &none) >= 0, "placed");
    twice.sha256[0] = 200;
    require(orset_local_add(os, ORSET_INBOX, 63, &twice, &none, NULL) >= 0, "a second of one GUID");
    require(orset_commit(os) == 0, "commit");
    from = orset_vector_get(other, orset_self(other)) + 1;
    struct orset_flags marked = {.system = ORSET_FLAGGED};
    require(orset_begin(other) == 0, "begin");
    require(orset_local_expunge(other, ORSET_INBOX, 51) >= 0, "expunge");
    require(orset_local_flags(other, ORSET_INBOX, 52, &marked, NULL) >= 0, "flags");
    require(orset_commit(other) == 0, "commit");
    ship(other, os, 2, from);
}

/* Which the core has no short way to make: the caller's own rows, a RENUMBER of INBOX's UID 2 to
 * 90, a BODY of UID 4 that has other bytes, and the keeper's word on a message that has not
 * come. */
static void make_rows(struct orset_store *s, struct orset *os)
{
    uint8_t bytes[32] = {77};
    require(orset_begin(os) == 0, "begin");
    require(s->put(s->ctx, ORSET_T_APP, "bx", 2, "value", 5) == 0, "app");
    require(s->put(s->ctx, ORSET_T_APP, "p\2", 2, "\1\0\0\0", 4) == 0, "app");
    require(s->put(s->ctx, ORSET_T_TASK, "\3\0\2", 3, "\x5a", 1) == 0, "todo");
    require(s->put(s->ctx, ORSET_T_TASK, "\7\0\4", 3, bytes, sizeof bytes) == 0, "todo");
    require(s->put(s->ctx, ORSET_T_AHEAD, "\3\2\4", 3, "\1\1\1\5", 4) == 0, "ahead");
    require(orset_commit(os) == 0, "commit");
}

/* A mail that another site has under another GUID: an alias. */
static void make_alias(struct orset *os)
{
    struct orset_facts facts = facts_of(20);
    struct orset_flags none = {0};
    struct orset_join *j = NULL;
    unsigned united, left;
    facts.guid[0] = 21;
    require(orset_begin(os) == 0 && orset_join_begin(os, ORSET_INBOX, &j) == 0, "join");
    require(orset_join_add(os, j, 64, &facts, &none, NULL) == ORSET_KNOWN &&
                orset_join_end(os, j, &united, &left) >= 0,
            "alias");
    orset_join_free(os, j);
    require(orset_commit(os) == 0, "commit");
}

static void make(const char *path)
{
    struct orset_memstore *mem2 = orset_memstore_new(&HEAP), *mem3 = orset_memstore_new(&HEAP);
    struct orset *two = open_memory(mem2, 2), *three = open_memory(mem3, 3), *os;
    struct orset_origin me = {1, 101};
    struct state_sqlite *db;
    struct orset_store s;
    uint8_t guid[16] = {1};
    uint32_t f = 0, g;
    char *error;
    require(state_sqlite_open(&db, path, &error) == 0, "open");
    state_sqlite_interface(db, &s);
    require(orset_open(&os, &HEAP, &s, &me, NULL) == 0, "open");
    require(orset_begin(os) == 0 && orset_local_create(os, "\0F", 2, 5, guid, &f) == 0 &&
                orset_commit(os) == 0,
            "create");
    change(os, f);
    ship(os, two, 1, 1);
    require(orset_begin(two) == 0 && orset_local_create(two, "\0F", 2, 6, guid, &g) == 0 &&
                orset_commit(two) == 0,
            "create");
    ship(two, os, 2, 1);
    make_work(os, two);
    make_ahead(os, two, three);
    make_alias(os);
    make_rows(&s, os);
    orset_close(os);
    orset_close(two);
    orset_close(three);
    orset_memstore_free(mem2);
    orset_memstore_free(mem3);
    state_sqlite_close(db);
}

const uint8_t *base_file(size_t *len)
{
    static uint8_t *bytes;
    static size_t n;
    if (!bytes) {
        char path[] = "/tmp/dovelane-fuzz-base-XXXXXX";
        int fd = mkstemp(path);
        require(fd >= 0, "a file for the state");
        close(fd);
        make(path);
        FILE *f = fopen(path, "r");
        require(f && fseek(f, 0, SEEK_END) == 0, "the state's file");
        n = (size_t)ftell(f);
        rewind(f);
        bytes = malloc(n);
        require(bytes && fread(bytes, 1, n, f) == n, "the state's bytes");
        fclose(f);
        unlink(path);
    }
    *len = n;
    return bytes;
}
