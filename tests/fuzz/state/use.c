/* use - what a worker asks a state for, and what it tells it. */
#include "tests/fuzz/state/state.h"

#include <stdlib.h>
#include <string.h>

struct using
{
    struct orset *os;
    bool failed;
};

/* A failure by what is stored ends the use: the state is rolled back and put aside. */
static bool goes_on(struct using *u, int r)
{
    u->failed |= r == ORSET_E_STORAGE;
    return !u->failed;
}

static size_t sum(const void *p, size_t n)
{
    const uint8_t *b = p;
    size_t s = 0;
    for (size_t i = 0; b && i < n; i++)
        s += b[i];
    return s;
}

/* --- questions --- */

static void see_flags(struct using *u, const struct orset_flags *f)
{
    size_t len;
    for (unsigned i = 0; i < f->nkeywords; i++)
        require(orset_keyword_name(u->os, f->keyword[i], &len) != NULL, "a flag without a name");
}

static int see_message(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct using *u = arg;
    see_flags(u, own);
    require(m->folder < orset_folders(u->os) && m->dot.origin < orset_origins(u->os),
            "a message of nowhere");
    sum(m->facts.guid_text, m->facts.guid_text_len);
    return 0;
}

static bool holds_plain(void *arg, const char *shown, size_t len, bool last)
{
    (void)arg;
    (void)last;
    for (size_t i = 0; i < len; i++)
        if (shown[i] == '/' || shown[i] == '.')
            return false;
    return true;
}

static bool exists(void *arg, const char *name, size_t len)
{
    struct using *u = arg;
    return orset_has_name(u->os, name, len);
}

static int see_mailbox(void *arg, const struct orset_mailbox *m)
{
    if (m->name) {
        char *out = malloc(ORSET_SHOWN_MAX(m->name_len));
        require(out != NULL, "memory");
        const struct orset_layout layout = {arg, "/.", holds_plain, exists};
        sum(out, orset_show(&layout, m->name, m->name_len, out));
        free(out);
    }
    return 0;
}

static void ask_folders(struct using *u)
{
    struct orset *os = u->os;
    const uint64_t sites[] = {1, 2};
    for (uint32_t i = 0; i < orset_folders(os) && !u->failed; i++) {
        struct orset_folder f;
        require(orset_folder_get(os, i, &f) == 0 && f.home < orset_folders(os),
                "a folder of nowhere");
        sum(f.name, f.name_len);
        orset_folder_by_name(os, f.name, f.name_len);
        orset_keeper(os, i, sites, 2);
        if (!goes_on(u, orset_each_message(os, i, see_message, u)) ||
            !goes_on(u, orset_uid_mismatches(os, i)))
            return;
        orset_uid_dirty(os, i, true);
        for (uint32_t uid = 1; uid < 110 && !u->failed; uid++) {
            struct orset_message m;
            struct orset_flags flags;
            uint8_t guid[16];
            int r = orset_message_by_uid(os, i, uid, &m);
            if (!goes_on(u, r) || !goes_on(u, orset_task_doomed_guid(os, i, uid, guid)))
                return;
            if (r > 0 && goes_on(u, orset_message_flags(os, m.folder, m.dot, &flags)))
                see_flags(u, &flags);
            if (r > 0 && !u->failed && goes_on(u, orset_flags_seen(os, i, uid, &flags)))
                see_flags(u, &flags);
            if (r > 0 && !u->failed)
                goes_on(u, orset_mail_lives(os, m.facts.guid, m.facts.sha256));
        }
    }
}

static void ask_todo(struct using *u)
{
    struct orset_task t = {.at_len = 0};
    int r;
    while ((r = orset_task_next(u->os, &t)) > 0) {
        struct orset_task again = t;
        see_flags(u, &t.flags);
        require(t.folder < orset_folders(u->os) ||
                    (t.kind == ORSET_TASK_ATTRIBUTE && t.folder == ORSET_NO_FOLDER),
                "work in no folder");
        sum(t.name, t.name_len);
        if (!goes_on(u, orset_task_get(u->os, &again)))
            return;
    }
    goes_on(u, r);
}

static void ask_names(struct using *u)
{
    const uint8_t *v;
    size_t len;
    uint8_t a[16] = {1}, b[16] = {2};
    uint64_t ops, lowest;
    goes_on(u, orset_subscribed(u->os, "\0F", 2));
    if (goes_on(u, orset_attribute_get(u->os, 1, "pk", 2, &v, &len)) &&
        orset_attribute_get(u->os, 1, "pk", 2, &v, &len) > 0)
        sum(v, len);
    goes_on(u, orset_guid_is(u->os, a, b));
    goes_on(u, orset_out(u->os, &ops, &lowest));
    goes_on(u, orset_tree(u->os, see_mailbox, u));
}

/* --- others ask and tell --- */

static int touched(void *arg, uint64_t number, uint32_t folder, const struct orset_message *m)
{
    (void)number;
    require(folder < orset_folders(((struct using *)arg)->os), "a change in no folder");
    return m->uid == 0;
}

static void change_by(struct orset *peer)
{
    struct orset_facts facts = {
        .guid = {1, 1, 2, 3, 4, 5, 6}, .sha256 = {1, 7}, .received = 5, .saved = 5};
    struct orset_flags flags = {.system = ORSET_FLAGGED};
    uint32_t f = 0;
    require(orset_begin(peer) == 0 && orset_local_create(peer, "\0G", 2, 5, facts.guid, &f) == 0,
            "a peer's folder");
    require(orset_local_add(peer, f, 1, &facts, &flags, NULL) == 0 &&
                orset_local_add(peer, ORSET_INBOX, 1, &facts, &flags, NULL) == 0,
            "a peer's mail");
    require(orset_local_subscribe(peer, "\0G", 2, true) == 0 && orset_commit(peer) == 0,
            "a peer's subscription");
}

/* to takes over from from; either may refuse. */
static void exchange(struct using *u, struct orset *from, uint64_t from_site, struct orset *to,
                     uint64_t to_site)
{
    struct orset_exchange *x = NULL;
    struct orset_buf q = {.alloc = &HEAP}, a = {.alloc = &HEAP};
    int r = orset_ask_hello(to, from_site, &x, &q);
    for (int i = 0; r == 0 && i < 60; i++) {
        a.len = 0;
        if ((r = orset_begin(from)) < 0 || (r = orset_answer(from, to_site, q.data, q.len, &a)) < 0)
            goes_on(u, from == u->os ? r : 0);
        r < 0 ? orset_rollback(from) : (void)(r = orset_commit(from));
        if (r < 0)
            break;
        q.len = 0;
        if ((r = orset_begin(to)) == 0)
            r = orset_take(to, x, a.data, a.len, &q);
        goes_on(u, to == u->os ? r : 0);
        if (r < 0)
            orset_rollback(to);
        else if (orset_commit(to) < 0)
            break;
    }
    orset_exchange_free(to, x);
    orset_buf_free(&q);
    orset_buf_free(&a);
}

static void ask_as_a_peer(struct using *u, struct choices *c)
{
    struct orset_memstore *mem = orset_memstore_new(&HEAP);
    struct orset_store s;
    struct orset_origin me = {2, 202};
    struct orset *peer;
    struct orset_buf b = {.alloc = &HEAP};
    struct orset_batch_result res;
    uint64_t next;
    orset_memstore_interface(mem, &s);
    require(orset_open(&peer, &HEAP, &s, &me, NULL) == 0, "a peer");
    change_by(peer);
    unsigned what = below(c, 4);
    if (what == 0 && orset_batch_make(peer, 1, 1 << 20, NULL, 0, &b, &next) == 0 &&
        goes_on(u, orset_begin(u->os))) {
        int r = orset_batch_apply(u->os, 2, b.data, b.len, &res);
        goes_on(u, r);
        r < 0 ? orset_rollback(u->os) : (void)goes_on(u, orset_commit(u->os));
    }
    b.len = 0;
    if (!u->failed &&
        goes_on(u, orset_batch_make(u->os, 1 + below(c, 8), 1 << 20, NULL, 0, &b, &next)) &&
        orset_begin(peer) == 0) {
        (void)orset_batch_apply(peer, 1, b.data, b.len, &res);
        orset_rollback(peer);
    }
    if (what == 1 && !u->failed)
        exchange(u, u->os, 1, peer, 2);
    if (what == 2 && !u->failed)
        exchange(u, peer, 2, u->os, 1);
    if (!u->failed)
        goes_on(u, orset_touched_since(u->os, 0, touched, u));
    orset_buf_free(&b);
    orset_close(peer);
    orset_memstore_free(mem);
}

/* --- changes --- */

static int do_todo(struct orset *os, struct choices *c)
{
    struct orset_task t = {.at_len = 1, .at = {(uint8_t)below(c, 8)}};
    int r = orset_task_next(os, &t);
    if (r <= 0)
        return r;
    switch (t.kind) {
    case ORSET_TASK_FOLDER: return orset_done_folder(os, t.folder);
    case ORSET_TASK_PLACE:
        return orset_done_place(os, t.message.folder, t.message.dot, 200 + below(c, 9), &t.flags);
    case ORSET_TASK_FLAGS: return orset_done_flags(os, t.folder, t.uid, &t.flags);
    case ORSET_TASK_RENUMBER: return orset_done_renumber(os, t.folder, t.uid, t.new_uid);
    case ORSET_TASK_REMOVE: return orset_done_remove(os, t.folder, t.uid);
    case ORSET_TASK_SUBSCRIPTION: return orset_done_subscription(os, t.name, t.name_len);
    case ORSET_TASK_ATTRIBUTE: return orset_done_attribute(os, t.folder, t.name, t.name_len);
    default:
        return t.message.dot.counter
                   ? orset_done_body(os, t.folder, t.uid, 220, t.message.facts.sha256)
                   : orset_done_alone(os, t.folder, t.uid);
    }
}

static int join(struct orset *os, const struct orset_facts *facts, const struct orset_flags *flags)
{
    struct orset_join *j;
    unsigned united, left;
    int r = orset_join_begin(os, ORSET_INBOX, &j);
    if (r < 0)
        return r;
    if ((r = orset_join_add(os, j, 130, facts, flags, NULL)) >= 0)
        r = orset_join_end(os, j, &united, &left);
    orset_join_free(os, j);
    return r;
}

static int round_of(struct orset *os, uint32_t folder)
{
    struct orset_buf ask = {.alloc = &HEAP}, answer = {.alloc = &HEAP};
    int r = orset_uid_ask(os, folder, &ask);
    if (r >= 0)
        r = orset_uid_answer(os, ask.data, ask.len, &answer);
    if (r >= 0) {
        struct orset_answer a = {answer.data, answer.len};
        r = orset_uid_settle(os, folder, &a, 1);
    }
    orset_buf_free(&ask);
    orset_buf_free(&answer);
    return r;
}

static int change(struct orset *os, struct choices *c)
{
    uint8_t n = (uint8_t)(1 + below(c, 12));
    uint32_t folder = below(c, 3), uid = 1 + below(c, 70), made;
    struct orset_facts facts = {
        .guid = {n, 1, 2, 3, 4, 5, 6}, .sha256 = {n, 7}, .received = 5, .saved = 5};
    struct orset_flags flags = {.system = (uint8_t)below(c, 32)};
    struct orset_dot dot;
    switch (below(c, 19)) {
    case 0: return orset_local_add(os, folder, uid, &facts, &flags, &dot);
    case 1: return orset_local_flags(os, folder, uid, &flags, &flags);
    case 2: return orset_local_expunge(os, folder, uid);
    case 3: return orset_local_missing(os, folder, uid);
    case 4: return orset_local_rename(os, folder, "\0H", 2);
    case 5: return orset_local_delete(os, folder);
    case 6: return orset_local_subscribe(os, "\0F", 2, below(c, 2));
    case 7: return orset_local_attribute(os, folder, "pk", 2, (const uint8_t *)"w", below(c, 2));
    case 8: return orset_local_create(os, "\0I", 2, 3, facts.guid, &made);
    case 9: return orset_new_epoch(os, 1000);
    case 10: return join(os, &facts, &flags);
    case 11: return round_of(os, folder);
    case 12: return orset_drop_out(os, below(c, 20));
    case 13: return orset_local_part(os, folder, uid, facts.guid, &facts, &flags);
    case 14: return orset_local_delete_moved(os, folder);
    case 15: return orset_local_back(os, folder, uid, facts.guid);
    case 16: return orset_local_expunge_moved(os, folder, uid);
    case 17: return orset_local_keeper(os, folder, 2);
    default: return do_todo(os, c);
    }
}

static void make_changes(struct using *u, struct choices *c)
{
    for (unsigned times = below(c, 8); times > 0 && !u->failed; times--) {
        if (!goes_on(u, orset_begin(u->os)))
            return;
        int r = change(u->os, c);
        goes_on(u, r);
        r < 0 ? orset_rollback(u->os) : (void)goes_on(u, orset_commit(u->os));
    }
}

bool use(struct orset *os, struct choices *c)
{
    struct using u = {os, false};
    uint8_t digest[16];
    orset_digest(os, digest);
    ask_folders(&u);
    if (!u.failed)
        ask_todo(&u);
    if (!u.failed)
        ask_names(&u);
    if (!u.failed)
        make_changes(&u, c);
    if (!u.failed)
        ask_as_a_peer(&u, c);
    if (!u.failed)
        make_changes(&u, c);
    if (!u.failed)
        ask_folders(&u);
    if (!u.failed)
        ask_todo(&u);
    return u.failed;
}
