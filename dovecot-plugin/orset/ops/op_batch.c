/* op_batch - makes batches of this replica's ops, takes those of peers, drops what all confirmed. A
 * row of ORSET_T_OUT: running hash before the op (8 bytes), then the op. */
#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/base/vector.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/ops/read_op.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/prefetch.h"
#include "dovecot-plugin/orset/state/vector_read.h"

#include <string.h>

/* --- making
 * -------------------------------------------------------------------------------------------------
 */

struct making {
    struct orset *os;
    struct orset_buf *ops;
    size_t most;
    uint64_t first, next, behind, chain;
    uint64_t hash; /* running hash behind the op taken last, 0: not known */
    unsigned n;
};

/* What a row says of the ops before it must be what they are: another op than the one that was
 * given is no peer's to take. */
static bool goes_on(const struct making *m, uint64_t chain)
{
    return m->n == 0 || m->hash == 0 || chain == m->hash;
}

static int take_op(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct making *m = arg;
    struct orset_reader k = orset_reader_of(key, key_len), r = orset_reader_of(v, len);
    uint64_t number = orset_key_read(&k, ORSET_COUNTER_MAX);
    uint64_t chain = orset_read_u64(&r);
    if (k.bad || k.at != k.end || r.bad || len > ORSET_OP_MAX + 8 || !goes_on(m, chain))
        return orset_corrupt(m->os, "an outgoing op's row");
    if (m->n > 0)
        m->next = number; /* ops take several numbers: where one ends shows where the next begins */
    if (m->n > 0 && (number >= m->behind || m->ops->len + len > m->most))
        return 1;
    if (m->n++ == 0) {
        m->first = number;
        m->chain = chain;
    }
    m->hash = chain || number == 1 ? orset_chain_next(chain, r.at, (size_t)(r.end - r.at)) : 0;
    orset_buf_text(m->ops, r.at, (size_t)(r.end - r.at));
    return m->ops->failed ? -1 : 0;
}

int orset_batch_make(struct orset *os, uint64_t from, size_t most,
                     const struct orset_modseq *modseq, size_t nmodseq, struct orset_buf *b,
                     uint64_t *next_r)
{
    return orset_batch_below(os, from, ORSET_COUNTER_MAX + 1, most, modseq, nmodseq, b, next_r);
}

int orset_batch_below(struct orset *os, uint64_t from, uint64_t behind, size_t most,
                      const struct orset_modseq *modseq, size_t nmodseq, struct orset_buf *b,
                      uint64_t *next_r)
{
    struct orset_buf ops = {.alloc = &os->alloc};
    struct making m = {.os = os,
                       .ops = &ops,
                       .most = most,
                       .behind = behind,
                       .first = os->origin[os->self].counter + 1,
                       .chain = os->origin[os->self].chain};
    struct orset_key k = {0};
    orset_key_num(&k, from);
    int r = os->store.each(os->store.ctx, ORSET_T_OUT, k.b, k.n, 0, take_op, &m);
    if (r == 0 && !goes_on(&m, os->origin[os->self].chain))
        r = orset_corrupt(os, "an outgoing op's row");
    /* The last row was taken: the next one will be the next to be given. */
    *next_r = r == 1 ? m.next : os->origin[os->self].counter + 1;
    if (r < 0)
        r = ops.failed ? orset_fail(os, ORSET_E_MEMORY, "no memory for a batch")
                       : orset_storage_fail(os, "outgoing ops");
    else if (m.n > 0 ? m.first != from : from <= os->origin[os->self].counter)
        r = orset_fail(os, ORSET_E_GAP, "op %llu is not kept any more: the peer must exchange",
                       (unsigned long long)from);
    else
        r = m.n ? 0 : ORSET_KNOWN;
    if (r >= 0) {
        orset_buf_u8(b, ORSET_WIRE_VERSION);
        orset_vector_write(os, b);
        orset_buf_num(b, nmodseq);
        for (size_t i = 0; i < nmodseq; i++) {
            const struct folder *f = orset_folder_at(os, modseq[i].folder);
            orset_folder_id_write(b, f ? f : os->folder[ORSET_INBOX]);
            orset_buf_num(b, f ? modseq[i].highest : 0);
        }
        orset_buf_num(b, m.first);
        orset_buf_u64(b, m.chain);
        orset_buf_num(b, m.n);
        orset_buf_put(b, ops.data, ops.len);
        if (b->failed)
            r = orset_fail(os, ORSET_E_MEMORY, "no memory for a batch");
    }
    orset_buf_free(&ops);
    return r;
}

/* --- applying
 * ---------------------------------------------------------------------------------------------- */

/* A folder's first number is the least of what changed, if it has a second, the HIGHESTMODSEQ. */
static void tell_folder(struct orset *os, struct folder *f, uint64_t modseq)
{
    bool first = f->batch != os->batches;
    f->batch = os->batches;
    f->batch_lo = first ? 0 : f->batch_hi < modseq ? f->batch_hi : modseq;
    f->batch_hi = first || modseq > f->batch_hi ? modseq : f->batch_hi;
}

static int read_modseqs(struct orset *os, struct orset_reader *r, struct peer *p)
{
    struct op_run x = {.os = os,
                       .by = p->sender,
                       .first = ORSET_COUNTER_MAX,
                       .map = p->map,
                       .seen = p->seen,
                       .nmap = p->n};
    uint64_t n = orset_read_num(r, ORSET_MODSEQS_MAX);
    for (uint64_t i = 0; i < n; i++) {
        struct folder *f;
        x.in = *r;
        int e = orset_read_folder(&x, &f);
        if (e < 0)
            return e;
        *r = x.in;
        uint64_t highest = orset_read_num(r, ORSET_MODSEQ_MAX);
        if (f && !r->bad)
            tell_folder(os, f, highest);
        if (f && !r->bad && highest > f->peer_modseq) {
            f->peer_modseq = highest;
            if ((e = orset_folder_touch(os, f)) < 0)
                return e;
        }
    }
    return r->bad ? orset_fail(os, ORSET_E_MALFORMED, "a batch's modseqs cannot be read") : 0;
}

/* The message that a FLAGS op names first. What cannot be read is for orset_apply_op to tell. */
static bool flags_target(struct orset *os, const struct peer *p, const uint8_t *op, size_t len,
                         struct place *at)
{
    struct orset_reader r = orset_reader_of(op, len);
    struct orset_dot folder = {ORSET_INBOX_ORIGIN, 0};
    if (orset_read_u8(&r) != OP_FLAGS)
        return false;
    uint64_t i = orset_read_num(&r, p->n);
    if (i > 0)
        folder = (struct orset_dot){p->map[i - 1], orset_read_num(&r, ORSET_COUNTER_MAX)};
    orset_read_num(&r, ORSET_SAME_MESSAGE_MAX);
    uint64_t by = orset_read_num(&r, p->n - 1u);
    at->dot.counter = orset_read_num(&r, ORSET_COUNTER_MAX);
    const struct folder *f = r.bad ? NULL : orset_folder_find(os, folder);
    if (!f)
        return false;
    at->folder = f->index;
    at->dot.origin = p->map[by];
    return true;
}

/* The next ops' messages, ahead of time (orset_prefetch). */
static void expect_ops(struct orset *os, struct orset_reader r, const struct peer *p)
{
    struct place at[ORSET_PREFETCH];
    size_t n = 0, len;
    for (int i = 0; i < ORSET_PREFETCH && r.at < r.end; i++) {
        const uint8_t *op = orset_read_text(&r, ORSET_OP_MAX, &len);
        if (!op)
            break;
        n += flags_target(os, p, op, len, &at[n]);
    }
    orset_prefetch_messages(os, at, n);
}

static int apply_ops(struct orset *os, struct orset_reader *r, struct peer *p,
                     struct orset_batch_result *out)
{
    uint64_t chain, number;
    out->first = number = orset_read_num(r, ORSET_COUNTER_MAX);
    chain = orset_read_u64(r);
    uint64_t n = orset_read_num(r, ORSET_COUNTER_MAX);
    if (r->bad || number == 0)
        return orset_fail(os, ORSET_E_MALFORMED, "a batch's head cannot be read");
    const struct origin *o = &os->origin[p->sender];
    out->lost = o->counter > p->seen[p->sender_at];
    if (o->counter + 1 == number && chain && o->chain && chain != o->chain)
        return orset_fail(
            os, ORSET_E_FORKED,
            "site %llu gave number %llu to two different ops: new epoch there, then exchange",
            (unsigned long long)o->id.site, (unsigned long long)o->counter);
    for (uint64_t i = 0; i < n; i++) {
        size_t len;
        if (os->store.expect && i % ORSET_PREFETCH == 0)
            expect_ops(os, *r, p);
        const uint8_t *op = orset_read_text(r, ORSET_OP_MAX, &len);
        struct op_run x = {.by = p->sender,
                           .first = number,
                           .map = p->map,
                           .seen = p->seen,
                           .nmap = p->n,
                           .most = p->seen[p->sender_at]};
        if (r->bad)
            return orset_fail(os, ORSET_E_MALFORMED, "op %llu is cut", (unsigned long long)number);
        int e = orset_apply_op(os, &x, op, len);
        if (e < 0)
            return e;
        number = x.next;
        out->ops++;
        out->applied += e == 0;
    }
    return r->at == r->end ? 0 : orset_fail(os, ORSET_E_MALFORMED, "bytes behind a batch's end");
}

int orset_batch_apply(struct orset *os, uint64_t site, const uint8_t *batch, size_t len,
                      struct orset_batch_result *out)
{
    struct orset_reader r = orset_reader_of(batch, len);
    struct peer p = {0};
    int e = orset_need_transaction(os);
    memset(out, 0, sizeof *out);
    if (e < 0)
        return e;
    os->batches++;
    uint8_t version = orset_read_u8(&r);
    if (r.bad || version != ORSET_WIRE_VERSION)
        return orset_fail(os, r.bad ? ORSET_E_MALFORMED : ORSET_E_KIND,
                          "a batch of version %u; this site speaks %u", version,
                          ORSET_WIRE_VERSION);
    e = orset_vector_read(os, &r, site, false, &p);
    if (e == 0) {
        out->origin = p.sender;
        out->had = os->origin[p.sender].counter;
        out->confirmed = orset_peer_has(&p, os->self);
    }
    if (e == 0 && (e = read_modseqs(os, &r, &p)) == 0)
        e = apply_ops(os, &r, &p, out);
    for (unsigned i = 0; i < p.n; i++) {
        if (p.seen[i] <= os->origin[p.map[i]].counter)
            continue;
        out->behind = true;
        if (p.map[i] != p.sender && out->nlacks < ORSET_LACKS_MAX)
            out->lacks[out->nlacks++] = (struct orset_dot){p.map[i], p.seen[i]};
    }
    for (uint16_t i = 0; i < os->norigins; i++)
        out->ahead |= os->origin[i].counter > orset_peer_has(&p, i);
    orset_peer_free(os, &p);
    return e;
}

/* --- outgoing rows
 * ---------------------------------------------------------------------------------------------- */

struct out {
    struct orset *os;
    uint64_t n, lowest;
};

static int count_out(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct out *o = arg;
    struct orset_reader r = orset_reader_of(key, len);
    (void)v;
    (void)vlen;
    if (o->n++ == 0)
        o->lowest = orset_key_read(&r, ORSET_COUNTER_MAX);
    return r.bad ? orset_corrupt(o->os, "an outgoing op's row") : 0;
}

int orset_out(struct orset *os, uint64_t *ops_r, uint64_t *lowest_r)
{
    struct out o = {.os = os};
    if (os->store.each(os->store.ctx, ORSET_T_OUT, "", 0, 0, count_out, &o) < 0)
        return orset_storage_fail(os, "outgoing ops");
    *ops_r = o.n;
    *lowest_r = o.lowest;
    return 0;
}

#define DROP_AT_ONCE 128

struct dropping {
    struct orset *os;
    uint64_t upto, number[DROP_AT_ONCE];
    unsigned n;
};

static int collect_out(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct dropping *d = arg;
    struct orset_reader r = orset_reader_of(key, len);
    uint64_t number = orset_key_read(&r, ORSET_COUNTER_MAX);
    (void)v;
    (void)vlen;
    if (r.bad || r.at != r.end)
        return orset_corrupt(d->os, "an outgoing op's row");
    if (number > d->upto)
        return 1;
    d->number[d->n++] = number;
    return d->n == DROP_AT_ONCE;
}

int orset_drop_out(struct orset *os, uint64_t upto)
{
    struct dropping d = {.os = os, .upto = upto};
    struct orset_key k;
    uint64_t from = 0; /* behind the rows removed last: they need not be stepped over again */
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    do {
        k.n = 0;
        orset_key_num(&k, from);
        d.n = 0;
        if (os->store.each(os->store.ctx, ORSET_T_OUT, k.b, k.n, 0, collect_out, &d) < 0)
            return orset_storage_fail(os, "outgoing ops");
        for (unsigned i = 0; i < d.n; i++) {
            k.n = 0;
            orset_key_num(&k, d.number[i]);
            from = d.number[i] + 1;
            if ((r = orset_row_del(os, ORSET_T_OUT, &k)) < 0)
                return r;
        }
    } while (d.n == DROP_AT_ONCE);
    return 0;
}

/* --- what own ops touched
 * -------------------------------------------------------------------------------------------- */

struct touching {
    struct orset *os;
    uint64_t at;
    uint32_t folder;
    struct orset_dot dot;
    uint64_t number;
};

/* The messages an ADD or FLAGS names, as far as they are still here. */
static int touched_row(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct touching *t = arg;
    struct orset *os = t->os;
    struct orset_reader k = orset_reader_of(key, key_len);
    struct op_run x = {.os = os, .by = os->self, .first = orset_key_read(&k, ORSET_COUNTER_MAX)};
    struct folder *f;
    if (k.bad || k.at != k.end || x.first < t->at || len < 9)
        return orset_corrupt(os, "an outgoing op's row");
    x.in = (struct orset_reader){v + 8, v + len, false};
    uint8_t kind = orset_read_u8(&x.in);
    if ((kind != OP_ADD && kind != OP_FLAGS) || orset_read_folder(&x, &f) < 0 || !f)
        return 0;
    t->dot = (struct orset_dot){os->self, x.first};
    /* All targets of one FLAGS are dots of one message: the first will do. */
    if (kind == OP_FLAGS &&
        (orset_read_num(&x.in, ORSET_SAME_MESSAGE_MAX) == 0 || orset_read_dot(&x, &t->dot) < 0))
        return 0;
    t->folder = f->index;
    t->number = x.first;
    return 1;
}

int orset_touched_since(struct orset *os, uint64_t confirmed, orset_touched_fn *fn, void *arg)
{
    uint64_t at = confirmed + 1;
    while (at <= os->origin[os->self].counter) {
        struct touching t = {.os = os, .at = at};
        struct orset_key k = {0};
        orset_key_num(&k, at);
        int r = os->store.each(os->store.ctx, ORSET_T_OUT, k.b, k.n, 0, touched_row, &t);
        if (r <= 0)
            return r < 0 ? orset_storage_fail(os, "outgoing ops") : 0;
        r = orset_message_load(os, t.folder, t.dot, &os->m[0]);
        if (r < 0)
            return r;
        if (r > 0 && os->m[0].p.uid &&
            (r = fn(arg, t.number, orset_folder_at(os, t.folder)->home, &os->m[0].p)) != 0)
            return r;
        at = t.number + 1;
    }
    return 0;
}
