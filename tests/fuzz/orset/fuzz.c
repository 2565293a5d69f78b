/* fuzz - a hostile peer: bytes for every decoder, and for sequences of them.
 *
 * Input: messages as { kind, 2 bytes of length, bytes }. Kinds: a batch, an answer of an
 * exchange (to a question that this side asked), a question, a UID question, a UID answer, all
 * from site 2; a batch whose head is made here (its vector right, its chain not), so that the
 * fuzzer's bytes are ops; the same through an allocator that fails. After each: nothing crashed;
 * a failed call changed no digest; only site 2's numbers went on and only its dots came, unless
 * it was an exchange; tables are within their bounds and within site 2's share of them; the
 * state can be closed, opened and has the same digest. */
#include "tests/fuzz/orset/fuzz.h"

static long fail_after = -1;

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

void require(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fuzz: %s\n", what);
        abort();
    }
}

struct orset *open_site(struct orset_memstore *mem, uint64_t site)
{
    struct orset_store s;
    struct orset_origin me = {site, 100 + site};
    struct orset *os;
    orset_memstore_interface(mem, &s);
    require(orset_open(&os, &HEAP, &s, &me, NULL) == 0, "open");
    return os;
}

/* A state with a folder, mails, flags, a subscription and an attribute of its own. */
void populate(struct orset *os)
{
    uint8_t guid[16] = {1};
    uint32_t f;
    require(orset_begin(os) == 0, "begin");
    require(orset_local_create(os, "\0F", 2, 5, guid, &f) == 0, "create");
    for (uint32_t i = 1; i <= 4; i++) {
        struct orset_facts facts = {.guid = {(uint8_t)i}, .sha256 = {(uint8_t)i}};
        struct orset_flags flags = {.system = ORSET_SEEN};
        require(orset_local_add(os, i % 2 ? f : ORSET_INBOX, i, &facts, &flags, NULL) == 0, "add");
    }
    require(orset_local_subscribe(os, "\0F", 2, true) == 0, "subscribe");
    require(orset_local_attribute(os, f, "k", 1, (const uint8_t *)"v", 1) == 0, "attribute");
    require(orset_commit(os) == 0, "commit");
}

/* version, one vector entry (site 2, epoch 102), sender index 0, no modseqs; then first, chain,
 * n: the fuzzer's bytes follow. */
static size_t batch_head(uint64_t first, const uint8_t *ops, size_t len, uint8_t *out)
{
    size_t n = 0;
    out[n++] = 1;
    out[n++] = 2; /* two origins: the peer's, this site's */
    for (unsigned i = 0; i < 2; i++) {
        memset(out + n, 0, 16);
        out[n] = i ? 1 : 2;
        out[n + 8] = i ? 101 : 102;
        n += 16;
        out[n++] = i ? 3 : 0xff;
        if (!i)
            out[n++] = 0x7f;
        memset(out + n, 0, 8);
        n += 8;
    }
    out[n++] = 0;              /* sender's index */
    out[n++] = 0;              /* modseqs */
    out[n++] = (uint8_t)first; /* below 128 */
    memset(out + n, 0, 8);
    n += 8;
    out[n++] = 1;
    if (len > 120)
        len = 120;
    out[n++] = (uint8_t)len;
    memcpy(out + n, ops, len);
    return n + len;
}

struct run {
    struct orset *os;
    struct orset_exchange *x;
};

static int handle(struct run *r, unsigned kind, const uint8_t *p, size_t len)
{
    struct orset_batch_result res;
    struct orset_buf out = {.alloc = &HEAP};
    uint8_t made[400];
    int e = orset_begin(r->os);
    if (e < 0)
        return e;
    switch (kind % 6) {
    case 0: e = orset_batch_apply(r->os, 2, p, len, &res); break;
    case 1: {
        uint64_t have = 0;
        for (uint16_t i = 0; i < orset_origins(r->os); i++)
            if (orset_origin_get(r->os, i).site == 2 && orset_origin_get(r->os, i).epoch == 102)
                have = orset_vector_get(r->os, i);
        if (have > 100)
            break;
        len = batch_head(have + 1, p, len, made);
        e = orset_batch_apply(r->os, 2, made, len, &res);
        break;
    }
    case 2:
        if (!r->x)
            e = orset_ask_hello(r->os, 2, &r->x, &out);
        out.len = 0;
        if (e == 0)
            e = orset_take(r->os, r->x, p, len, &out);
        if (e != 0) {
            orset_exchange_free(r->os, r->x);
            r->x = NULL;
        }
        break;
    case 3: e = orset_answer(r->os, 2, p, len, &out); break;
    case 4: e = orset_uid_answer(r->os, p, len, &out); break;
    case 5: {
        struct orset_answer a = {p, len};
        e = orset_uid_ask(r->os, ORSET_INBOX, &out);
        if (e == 0)
            e = orset_uid_settle(r->os, ORSET_INBOX, &a, 1);
        break;
    }
    }
    orset_buf_free(&out);
    return e;
}

static void check(struct run *r, uint64_t own)
{
    size_t len;
    unsigned keywords = 0;
    while (orset_keyword_name(r->os, (uint16_t)keywords, &len))
        keywords++;
    require(orset_vector_get(r->os, orset_self(r->os)) >= own, "own numbers went back");
    require(orset_origins(r->os) <= 2 + ORSET_PEER_ORIGINS_MAX, "too many origins");
    require(keywords <= ORSET_PEER_KEYWORDS_MAX, "too many keywords");
    require(orset_folders(r->os) <= 2 + ORSET_PEER_FOLDERS_MAX, "too many folders");
    require(orset_remembered(r->os) <= ORSET_PENDING_EXCHANGE_MAX + ORSET_PENDING_MAX,
            "too much remembered");
}

struct foreign {
    struct orset *os;
    unsigned n;
};

static int count_foreign(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct foreign *f = arg;
    (void)own;
    f->n += orset_origin_get(f->os, m->dot.origin).site != 2;
    return 0;
}

/* Messages whose dot is not site 2's. */
static unsigned not_of_peer(struct orset *os)
{
    struct foreign f = {os, 0};
    for (uint32_t i = 0; i < orset_folders(os); i++)
        require(orset_each_message(os, i, count_foreign, &f) == 0, "each message");
    return f.n;
}

static void step(struct run *r, unsigned kind, const uint8_t *p, size_t len)
{
    uint8_t before[16], now[16];
    uint64_t own = orset_vector_get(r->os, orset_self(r->os)), others[64];
    uint16_t n = orset_origins(r->os) < 64 ? orset_origins(r->os) : 64;
    unsigned foreign = not_of_peer(r->os);
    orset_digest(r->os, before);
    for (uint16_t i = 0; i < n; i++)
        others[i] = orset_vector_get(r->os, i);
    fail_after = kind & 0x40 ? (long)(kind & 0x3f) : -1;
    int e = handle(r, kind & 0x3f, p, len);
    fail_after = -1;
    if (e < 0) {
        orset_rollback(r->os);
        orset_digest(r->os, now);
        require(memcmp(before, now, 16) == 0, "a refused message changed the state");
    } else {
        require(orset_commit(r->os) == 0, "commit");
        /* What is cached is what was written. */
        orset_digest(r->os, before);
        require(orset_begin(r->os) == 0, "begin");
        orset_rollback(r->os);
        orset_digest(r->os, now);
        require(memcmp(before, now, 16) == 0, "a commit wrote something else than what is cached");
        for (uint16_t i = 0; i < n && (kind & 0x3f) % 6 < 2; i++)
            require(orset_origin_get(r->os, i).site == 2 || orset_vector_get(r->os, i) == others[i],
                    "a batch moved another origin's number");
        require((kind & 0x3f) % 6 == 2 || not_of_peer(r->os) <= foreign,
                "a batch brought a dot of another origin");
    }
    check(r, own);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct orset_memstore *mem = orset_memstore_new(&HEAP);
    struct run r = {open_site(mem, 1), NULL};
    uint8_t before[16], now[16];
    populate(r.os);
    for (size_t at = 0; at + 3 <= size;) {
        size_t len = data[at + 1] | (size_t)data[at + 2] << 8;
        unsigned kind = data[at];
        at += 3;
        len = len < size - at ? len : size - at;
        step(&r, kind, data + at, len);
        at += len;
    }
    orset_exchange_free(r.os, r.x);
    orset_digest(r.os, before);
    orset_close(r.os);
    r.os = open_site(mem, 1);
    orset_digest(r.os, now);
    require(memcmp(before, now, 16) == 0, "the state reads differently from what it was");
    orset_close(r.os);
    orset_memstore_free(mem);
    return 0;
}
