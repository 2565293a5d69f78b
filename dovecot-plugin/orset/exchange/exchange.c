/* exchange - the asker's side: what to ask next, and when the vector is raised. */
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/base/vector.h"
#include "dovecot-plugin/orset/exchange/exchange_internal.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/ops/read_op.h"
#include "dovecot-plugin/orset/state/arrivals.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/pending_dots.h"
#include "dovecot-plugin/orset/state/vector_read.h"

#include <stdio.h>
#include <string.h>

static void begin_question(struct orset *os, struct orset_buf *q, uint8_t kind)
{
    orset_buf_u8(q, ORSET_WIRE_VERSION);
    orset_buf_u8(q, kind);
    orset_vector_write(os, q);
}

int orset_ask_hello(struct orset *os, uint64_t site, struct orset_exchange **x_r,
                    struct orset_buf *q)
{
    struct orset_exchange *x = os->alloc.resize(os->alloc.ctx, NULL, sizeof *x);
    if (!x) {
        snprintf(os->error, sizeof os->error, "no memory for an exchange");
        return ORSET_E_MEMORY;
    }
    memset(x, 0, sizeof *x);
    x->site = site;
    begin_question(os, q, X_HELLO);
    if (q->failed) {
        orset_exchange_free(os, x);
        snprintf(os->error, sizeof os->error, "no memory for an exchange");
        return ORSET_E_MEMORY;
    }
    orset_watch(os, &x->watch);
    *x_r = x;
    return 0;
}

void orset_exchange_free(struct orset *os, struct orset_exchange *x)
{
    if (!x)
        return;
    orset_unwatch(os, &x->watch);
    if (x->orphan)
        os->alloc.resize(os->alloc.ctx, x->orphan, 0);
    orset_peer_free(os, &x->base);
    orset_prefixes_free(os, &x->p);
    if (x->killed)
        os->alloc.resize(os->alloc.ctx, x->killed, 0);
    if (x->work)
        os->alloc.resize(os->alloc.ctx, x->work, 0);
    if (x->their_messages)
        os->alloc.resize(os->alloc.ctx, x->their_messages, 0);
    os->alloc.resize(os->alloc.ctx, x, 0);
}

/* --- what comes while an exchange is open
 * ------------------------------------------------------------------------
 *
 * The vector is raised at the end to that of the hello, and removes below it are then taken for
 * known. So what it covers must have been compared with the giver's state. An op or another
 * exchange may bring such an element after its folder was compared, and the giver may have
 * removed it long ago: that folder is asked for once more. There are finitely many such
 * elements, so this ends whatever else comes. */

/* The folders to ask for again become the work. */
static int look_again(struct orset *os, struct orset_exchange *x)
{
    uint32_t n = x->watch.room < os->nfolders ? x->watch.room : os->nfolders;
    uint32_t *work = orset_mem(os, x->work, (n + 1) * sizeof *work);
    if (!work)
        return ORSET_E_MEMORY;
    x->work = work;
    uint64_t *theirs = orset_mem(os, x->their_messages, (n + 1) * sizeof *theirs);
    if (!theirs)
        return ORSET_E_MEMORY;
    x->their_messages = theirs;
    x->at = x->nwork = 0;
    for (uint32_t i = 0; i < n; i++)
        if (x->watch.again[i]) {
            theirs[x->nwork] = os->folder[i]->messages; /* compared before, so about as many */
            work[x->nwork++] = i;
        }
    memset(x->watch.again, 0, x->watch.room);
    x->watch.any_again = false;
    return 0;
}

/* --- questions
 * ---------------------------------------------------------------------------------------------- */

static void ask_ranges(struct orset *os, struct orset_exchange *x, uint8_t kind, unsigned split,
                       struct orset_buf *q)
{
    size_t n = x->p.n < X_PREFIXES_MAX ? x->p.n : X_PREFIXES_MAX;
    begin_question(os, q, kind);
    orset_folder_id_write(q, os->folder[x->work[x->at]]);
    orset_buf_num(q, x->p.depth);
    if (kind == X_RANGES)
        orset_buf_num(q, split);
    orset_buf_num(q, n);
    for (size_t i = 0; i < n; i++)
        orset_buf_num(q, x->p.v[i]);
}

static unsigned log2_up(uint64_t n)
{
    unsigned b = 0;
    while (b < X_DEPTH_MAX && (1ULL << b) < n)
        b++;
    return b;
}

/* Depth grows by 11, then by 5: for 1,000,000 messages 2,048 ranges, then 32 and 16 below each that
 * differs.
 */
static unsigned next_split(const struct orset_exchange *x)
{
    unsigned left = x->bits > x->p.depth ? x->bits - x->p.depth : 0;
    unsigned most = x->p.depth == 0 ? 11 : 5;
    unsigned split = left < most ? left : most;
    return x->p.n << split <= X_DIGESTS_MAX ? split : 0;
}

/* The next question, or ORSET_KNOWN after the vector was raised. */
static int next_question(struct orset *os, struct orset_exchange *x, struct orset_buf *q)
{
    int r = x->at >= x->nwork && x->watch.any_again ? look_again(os, x) : 0;
    if (r < 0)
        return r;
    if (x->at >= x->nwork && !x->named && x->watch.named_again) {
        x->named = true;
        x->watch.named_again = false;
        x->cursor_len = 0;
    }
    if (x->at < x->nwork) {
        if (!x->in_folder) {
            const struct folder *f = os->folder[x->work[x->at]];
            uint64_t n =
                x->their_messages[x->at] > f->messages ? x->their_messages[x->at] : f->messages;
            x->p.v = orset_mem(os, NULL, sizeof *x->p.v);
            if (!x->p.v)
                return ORSET_E_MEMORY;
            x->p.v[0] = 0;
            x->p.n = 1;
            x->p.depth = 0;
            /* A few messages are shorter than their digests; a folder that is new on one side
             * differs everywhere. */
            bool one_sided = f->messages == 0 || x->their_messages[x->at] == 0;
            x->bits =
                n <= 64 ? 0 : log2_up(n) - (one_sided ? (log2_up(n) < 5 ? log2_up(n) : 5) : 0);
            x->in_folder = true;
            if (one_sided && x->bits) {
                /* No digests: straight to ranges of about 32 messages. */
                size_t ranges = (size_t)1 << (x->bits < 16 ? x->bits : 16);
                uint32_t *v = orset_mem(os, x->p.v, ranges * sizeof *v);
                if (!v)
                    return ORSET_E_MEMORY;
                for (size_t i = 0; i < ranges; i++)
                    v[i] = (uint32_t)i;
                x->p.v = v;
                x->p.n = ranges;
                x->p.depth = x->bits = x->bits < 16 ? x->bits : 16;
            }
        }
        unsigned split = next_split(x);
        ask_ranges(os, x, split ? X_RANGES : X_MESSAGES, split, q);
    } else if (x->named) {
        begin_question(os, q, X_NAMED);
        orset_buf_text(q, x->cursor, x->cursor_len);
    } else {
        r = orset_raise(os, x);
        return r < 0 ? r : ORSET_KNOWN;
    }
    return q->failed ? orset_fail(os, ORSET_E_MEMORY, "no memory for a question") : 0;
}

/* --- answers
 * -------------------------------------------------------------------------------------------------
 */

static int take_folders(struct orset *os, struct orset_exchange *x, struct peer *p,
                        struct op_run *in)
{
    uint64_t n = orset_read_num(&in->in, ORSET_FOLDERS_MAX);
    if (in->in.bad || (uint64_t)(in->in.end - in->in.at) < n * 18)
        return orset_fail(os, ORSET_E_MALFORMED, "a hello that cannot be read");
    x->work = orset_mem(os, NULL, (n + 1) * sizeof *x->work);
    x->their_messages = x->work ? orset_mem(os, NULL, (n + 1) * sizeof *x->their_messages) : NULL;
    uint8_t *met = x->their_messages ? orset_mem(os, NULL, os->nfolders + n + 1) : NULL;
    uint32_t before = os->nfolders;
    int r = met ? 0 : ORSET_E_MEMORY;
    if (met)
        memset(met, 0, os->nfolders + n + 1);
    for (uint64_t i = 0; r == 0 && i < n; i++) {
        struct folder *f;
        if ((r = orset_read_folder_made(in, &f)) < 0)
            break;
        struct orset_sum theirs = {orset_read_u64(&in->in), 0}, mine = orset_folder_sum(os, f);
        theirs.hi = orset_read_u64(&in->in);
        uint64_t messages = orset_read_num(&in->in, UINT64_MAX);
        if (in->in.bad || met[f->index]) {
            r = orset_fail(os, ORSET_E_MALFORMED, "a hello that cannot be read");
            break;
        }
        met[f->index] = 1;
        if (mine.lo == theirs.lo && mine.hi == theirs.hi)
            continue;
        x->their_messages[x->nwork] = messages;
        x->work[x->nwork++] = f->index;
    }
    for (uint32_t i = 0; r == 0 && i < before; i++)
        if (!met[i] && orset_folder_live(os->folder[i]))
            r = orset_merge_absent(os, x, p, os->folder[i]);
    if (met)
        os->alloc.resize(os->alloc.ctx, met, 0);
    return r;
}

/* x->base is the answer's vector. */
static int take_hello(struct orset *os, struct orset_exchange *x, struct op_run *in)
{
    struct orset_sum theirs = {orset_read_u64(&in->in), 0};
    theirs.hi = orset_read_u64(&in->in);
    x->named = theirs.lo != os->named.lo || theirs.hi != os->named.hi;
    int r = orset_merge_hello_rows(os, x, in);
    return r < 0 ? r : take_folders(os, x, &x->base, in);
}

static bool same_prefixes(const struct prefixes *a, const struct prefixes *b)
{
    return a->depth == b->depth && a->n <= b->n && memcmp(a->v, b->v, a->n * sizeof *a->v) == 0;
}

/* The answer must be to the question asked: its folder, depth and ranges. */
static int answered(struct orset *os, struct orset_exchange *x, struct op_run *in,
                    struct folder **f)
{
    int r = orset_read_folder(in, f);
    if (r < 0)
        return r;
    if (x->at >= x->nwork || !x->in_folder || !*f || (*f)->index != x->work[x->at])
        return orset_fail(os, ORSET_E_MALFORMED, "an answer to a question that was not asked");
    return 0;
}

static int take_ranges(struct orset *os, struct orset_exchange *x, struct peer *p,
                       struct op_run *in)
{
    struct folder *f;
    struct prefixes asked;
    int r = answered(os, x, in, &f);
    if (r < 0)
        return r;
    unsigned depth = (unsigned)orset_read_num(&in->in, X_DEPTH_MAX),
             split = (unsigned)orset_read_num(&in->in, X_DEPTH_MAX);
    if ((r = orset_prefixes_read(os, &in->in, depth, &asked)) == 0 &&
        (!same_prefixes(&asked, &x->p) || asked.n != x->p.n || split == 0 ||
         split != next_split(x)))
        r = orset_fail(os, ORSET_E_MALFORMED, "an answer to a question that was not asked");
    orset_prefixes_free(os, &asked);
    if (r < 0 || (r = orset_merge_head(os, x, p, in, &f)) < 0)
        return r;
    size_t n = x->p.n << split, differ = 0;
    uint64_t *sums = orset_mem(os, NULL, n * sizeof *sums);
    uint32_t *v = sums ? orset_mem(os, NULL, n * sizeof *v) : NULL;
    r = !v ? ORSET_E_MEMORY : orset_range_sums(os, f->index, &x->p, split, sums);
    for (size_t i = 0; r == 0 && i < n; i++)
        if (orset_read_u64(&in->in) != sums[i])
            v[differ++] = x->p.v[i >> split] << split | (uint32_t)(i & ((1U << split) - 1));
    if (r == 0 && in->in.bad)
        r = orset_fail(os, ORSET_E_MALFORMED, "an answer that is cut");
    if (sums)
        os->alloc.resize(os->alloc.ctx, sums, 0);
    if (r < 0) {
        if (v)
            os->alloc.resize(os->alloc.ctx, v, 0);
        return r;
    }
    orset_prefixes_free(os, &x->p);
    x->p = (struct prefixes){depth + split, differ, v};
    if (differ == 0) {
        orset_prefixes_free(os, &x->p);
        x->in_folder = false;
        x->at++;
    }
    return 0;
}

static int take_messages(struct orset *os, struct orset_exchange *x, struct peer *p,
                         struct op_run *in)
{
    struct folder *f;
    struct prefixes given;
    int r = answered(os, x, in, &f);
    if (r < 0)
        return r;
    unsigned depth = (unsigned)orset_read_num(&in->in, X_DEPTH_MAX);
    if ((r = orset_prefixes_read(os, &in->in, depth, &given)) == 0 && !same_prefixes(&given, &x->p))
        r = orset_fail(os, ORSET_E_MALFORMED, "an answer to a question that was not asked");
    if (r == 0)
        r = orset_merge_head(os, x, p, in, &f);
    if (r == 0)
        r = orset_merge_messages(os, x, p, in, f, &given);
    if (r == 0) {
        memmove(x->p.v, x->p.v + given.n, (x->p.n - given.n) * sizeof *x->p.v);
        x->p.n -= given.n;
        if (x->p.n == 0) {
            orset_prefixes_free(os, &x->p);
            x->in_folder = false;
            x->at++;
        }
    }
    orset_prefixes_free(os, &given);
    return r;
}

/* What is merged after the hello must be at least as new as it, or its vector would be raised to
 * what nobody gave: a giver that was restored, or lost its state, in the middle (e). */
static int as_new(struct orset *os, const struct orset_exchange *x, const struct peer *now)
{
    const struct peer *base = &x->base;
    bool older = now->sender != base->sender;
    for (unsigned i = 0; i < base->n && !older; i++) {
        bool same_place = i < now->n && now->map[i] == base->map[i];
        older = (same_place ? now->seen[i] : orset_peer_has(now, base->map[i])) < base->seen[i];
    }
    return older ? orset_fail(
                       os, ORSET_E_ABSENT,
                       "site %llu is an older state than at the hello: begin the exchange anew",
                       (unsigned long long)x->site)
                 : 0;
}

static int take_body(struct orset *os, struct orset_exchange *x, uint8_t kind, struct peer *p,
                     struct orset_reader *r)
{
    struct op_run in = {.os = os,
                        .by = p->sender,
                        .first = ORSET_COUNTER_MAX + 1,
                        .map = p->map,
                        .seen = p->seen,
                        .nmap = p->n,
                        .in = *r};
    bool end = false;
    int e;
    if (kind == X_HELLO)
        e = take_hello(os, x, &in);
    else if (kind == X_RANGES)
        e = take_ranges(os, x, p, &in);
    else if (kind == X_MESSAGES)
        e = take_messages(os, x, p, &in);
    else if (x->at < x->nwork || !x->named)
        e = orset_fail(os, ORSET_E_MALFORMED, "an answer to a question that was not asked");
    else
        e = orset_merge_named(os, x, p, &in, &end);
    if (e == 0 && (in.in.bad || in.in.at != in.in.end))
        e = orset_fail(os, ORSET_E_MALFORMED, "bytes behind an answer's end");
    if (end)
        x->named = false;
    return e;
}

bool orset_is_stale(const struct orset_exchange *x, const uint8_t *answer, size_t len)
{
    struct orset_reader r = orset_reader_of(answer, len);
    uint8_t version = orset_read_u8(&r), kind = orset_read_u8(&r);
    return !r.bad && version == ORSET_WIRE_VERSION && kind >= X_HELLO && kind <= X_NAMED &&
           (kind == X_HELLO) == x->helloed;
}

int orset_take(struct orset *os, struct orset_exchange *x, const uint8_t *answer, size_t len,
               struct orset_buf *q)
{
    struct orset_reader r = orset_reader_of(answer, len);
    struct peer now = {0};
    int e = orset_need_transaction(os);
    if (e < 0)
        return e;
    uint8_t version = orset_read_u8(&r), kind = orset_read_u8(&r);
    if (r.bad || version != ORSET_WIRE_VERSION || kind < X_HELLO || kind > X_NAMED)
        return orset_fail(os, r.bad ? ORSET_E_MALFORMED : ORSET_E_KIND,
                          "an answer of version %u, kind %u", version, kind);
    if ((kind == X_HELLO) == x->helloed)
        return orset_fail(os, ORSET_E_MALFORMED, "an answer to a question that was not asked");
    x->watch.paused = true; /* it looks at what it takes itself */
    e = orset_vector_read(os, &r, x->site, true, &now);
    if (kind == X_HELLO && e == 0) {
        x->base = now;
        x->helloed = true;
        x->watch.upto = &x->base;
        e = take_body(os, x, kind, &x->base, &r);
    } else {
        if (e == 0)
            e = as_new(os, x, &now);
        if (e == 0)
            e = take_body(os, x, kind, &now, &r);
        orset_peer_free(os, &now);
    }
    if (e == 0)
        e = next_question(os, x, q);
    x->watch.paused = false;
    /* Half an answer may be merged: each element by itself is, but the transaction is better
     * given up than explained. */
    if (e < 0)
        os->broken = true;
    return e;
}

static bool orphan_gone(const void *arg, struct orset_dot flag)
{
    return orset_orphan_gone(arg, flag);
}

/* (e): all folders that differed are merged in this transaction or an earlier one. */
int orset_raise(struct orset *os, struct orset_exchange *x)
{
    int e = orset_pending_drop_flags(os, orphan_gone, x);
    if (e < 0)
        return e;
    for (unsigned i = 0; i < x->base.n; i++) {
        struct origin *o = &os->origin[x->base.map[i]];
        uint64_t from = o->counter;
        if (x->base.seen[i] <= from)
            continue;
        o->counter = x->base.seen[i];
        o->chain = x->base.chain[i];
        o->dirty = true;
        int r = orset_pending_covered(os, x->base.map[i], from, x->base.seen[i]);
        if (r < 0)
            return r;
    }
    return 0;
}
