/* answer - the giver's side of an exchange: answers questions from the state as it is,
 * and nothing else. */
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/base/vector.h"
#include "dovecot-plugin/orset/exchange/exchange_internal.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/ops/read_op.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/pending_dots.h"
#include "dovecot-plugin/orset/state/vector_read.h"

#include <string.h>

static void write_head(const struct orset *os, struct orset_buf *b, const struct folder *f)
{
    static const struct folder none;
    (void)os;
    if (!f)
        f = &none;
    orset_buf_num(b, f->npresence);
    for (unsigned i = 0; i < f->npresence; i++)
        orset_dot_write(b, f->presence[i]);
    orset_buf_text(b, f->name, f->name_len);
    orset_buf_num(b, f->name_stamp.clock);
    orset_buf_u64(b, f->name_stamp.site);
    orset_buf_u64(b, f->name_stamp.epoch);
    orset_buf_put(b, f->guid, 16);
    orset_buf_num(b, f->uid_validity);
    orset_buf_num(b, f->keeper_stamp.clock);
    orset_buf_u64(b, f->keeper_stamp.site);
    orset_buf_u64(b, f->keeper_stamp.epoch);
    orset_buf_u64(b, f->keeper);
    orset_buf_num(b, f->round_term);
    orset_buf_num(b, f->round);
}

struct pending_rows {
    struct orset *os;
    struct orset_buf *b;
    uint64_t n;
};

static int pending_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct pending_rows *a = arg;
    if (!orset_pending_row_is_true(a->os, key, len, v, vlen))
        return orset_corrupt(a->os, "a remembered dot's row");
    orset_buf_text(a->b, key, len);
    orset_buf_text(a->b, v, vlen);
    a->n++;
    return a->b->len > X_BYTES * 2 || a->b->failed;
}

/* The remembered rows go with the hello, because they belong to its vector: one that is covered
 * a moment later leaves no trace here, and the asker, whose vector will be the hello's, would
 * not know of the remove. Flags are named by text, keyword numbers mean nothing elsewhere. */
static int hello(struct orset *os, struct orset_buf *b)
{
    struct orset_buf rows = {.alloc = &os->alloc};
    struct pending_rows a = {os, &rows, 0};
    int r = os->store.each(os->store.ctx, ORSET_T_AHEAD, "", 0, 0, pending_row, &a);
    orset_buf_u64(b, os->named.lo);
    orset_buf_u64(b, os->named.hi);
    orset_buf_num(b, a.n ? os->nkeywords : 0);
    for (int i = 0; i < os->nkeywords && a.n; i++)
        orset_buf_text(b, os->keyword[i].name, os->keyword[i].len);
    orset_buf_num(b, a.n);
    orset_buf_put(b, rows.data, rows.len);
    if (rows.failed)
        r = orset_fail(os, ORSET_E_MEMORY, "no memory for an answer");
    else if (r < 0)
        r = orset_storage_fail(os, "remembered dots");
    else if (r)
        r = orset_fail(os, ORSET_E_EXCHANGE,
                       "this site remembers too much itself: it must exchange with others first");
    orset_buf_free(&rows);
    if (r < 0)
        return r;
    orset_buf_num(b, os->nfolders);
    for (uint32_t i = 0; i < os->nfolders; i++) {
        struct orset_sum s = orset_folder_sum(os, os->folder[i]);
        orset_folder_id_write(b, os->folder[i]);
        orset_buf_u64(b, s.lo);
        orset_buf_u64(b, s.hi);
        orset_buf_num(b, os->folder[i]->messages);
    }
    return 0;
}

/* Only folders that the hello listed are asked for. */
static int known_folder(struct op_run *x, struct folder **f)
{
    int r = orset_read_folder(x, f);
    return r < 0 || *f ? r
                       : orset_fail(x->os, ORSET_E_ABSENT,
                                    "a question about a folder that is not known here");
}

static int ranges(struct orset *os, struct op_run *x, struct orset_buf *b)
{
    struct folder *f;
    struct prefixes p;
    int r = known_folder(x, &f);
    if (r < 0)
        return r;
    const uint8_t *body = x->in.at;
    unsigned depth = (unsigned)orset_read_num(&x->in, X_DEPTH_MAX),
             split = (unsigned)orset_read_num(&x->in, X_DEPTH_MAX);
    r = orset_prefixes_read(os, &x->in, depth, &p);
    if (r == 0 &&
        (depth + split > X_DEPTH_MAX || p.n << split > X_DIGESTS_MAX || x->in.at != x->in.end))
        r = orset_fail(os, ORSET_E_MALFORMED, "a question about too many ranges");
    uint64_t *sums = r == 0 ? orset_mem(os, NULL, (p.n << split) * sizeof *sums) : NULL;
    if (r == 0 && !sums)
        r = ORSET_E_MEMORY;
    if (r == 0) {
        memset(sums, 0, (p.n << split) * sizeof *sums);
        r = orset_range_sums(os, f->index, &p, split, sums);
    }
    if (r == 0) {
        orset_folder_id_write(b, f); /* by our indices, the rest as it was asked */
        orset_buf_put(b, body, (size_t)(x->in.end - body));
        write_head(os, b, f);
        for (size_t i = 0; i < p.n << split; i++)
            orset_buf_u64(b, sums[i]);
    }
    if (sums)
        os->alloc.resize(os->alloc.ctx, sums, 0);
    orset_prefixes_free(os, &p);
    return r;
}

static int count_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct scan *s = arg;
    struct orset_reader k = orset_reader_of(key, len);
    struct message *m = &s->os->m[0];
    (void)v;
    if (!orset_message_key_read(s->os, &k, m))
        return orset_corrupt(s->os, "a message's key");
    size_t range = orset_range_at(s->p, orset_place(s->os, m->p.dot));
    if (range < s->p->n)
        s->sums[range] += vlen + 40;
    return 0;
}

static void write_message(struct orset *os, struct orset_buf *b, const struct message *m)
{
    const struct orset_facts *f = &m->p.facts;
    orset_dot_write(b, m->p.dot);
    orset_buf_put(b, f->guid, 16);
    orset_buf_put(b, f->sha256, 32);
    orset_buf_num(b, (uint64_t)f->received);
    orset_buf_num(b, (uint64_t)f->saved);
    orset_buf_num(b, f->size);
    orset_buf_num(b, m->p.k);
    orset_buf_num(b, m->p.claim);
    orset_buf_text(b, m->guid_text, f->guid_text_len);
    orset_buf_num(b, m->round);
    if (m->round) {
        orset_buf_num(b, m->term);
        orset_buf_num(b, m->agreed);
        orset_buf_num(b, m->agreed_by);
    }
    orset_buf_num(b, m->nflags);
    for (unsigned i = 0; i < m->nflags; i++) {
        orset_flag_write(os, b, m->flag[i].flag);
        orset_buf_u8(b, m->flag[i].off);
        orset_dot_write(b, m->flag[i].dot);
    }
}

static int message_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct scan *s = arg;
    size_t range = 0;
    uint32_t place = 0;
    int r = orset_scan_row(s, key, len, v, vlen, &range, &place);
    if (r <= 0 || range >= s->k)
        return r < 0 ? r : 0;
    write_message(s->os, s->out, &s->os->m[0]);
    s->n++;
    return s->out->failed ? -1 : 0;
}

/* As many of the ranges as fit, whole: an absent message must mean that the giver has none. */
static int messages(struct orset *os, struct op_run *x, struct orset_buf *b)
{
    struct folder *f;
    struct prefixes p;
    struct orset_buf out = {.alloc = &os->alloc};
    int r = known_folder(x, &f);
    if (r < 0)
        return r;
    unsigned depth = (unsigned)orset_read_num(&x->in, X_DEPTH_MAX);
    r = orset_prefixes_read(os, &x->in, depth, &p);
    uint64_t *sizes = r == 0 ? orset_mem(os, NULL, p.n * sizeof *sizes) : NULL, sum = 0;
    struct scan s = {.os = os, .p = &p, .sums = sizes, .out = &out};
    if (r == 0 && !sizes)
        r = ORSET_E_MEMORY;
    if (r == 0) {
        memset(sizes, 0, p.n * sizeof *sizes);
        r = orset_scan(os, f->index, count_row, &s);
        while (s.k < p.n && (s.k == 0 || sum + sizes[s.k] + 4 <= X_BYTES))
            sum += sizes[s.k++] + 4;
    }
    if (r == 0)
        r = orset_scan(os, f->index, message_row, &s);
    if (r == 0) {
        orset_folder_id_write(b, f);
        orset_buf_num(b, depth);
        orset_buf_num(b, s.k);
        for (size_t i = 0; i < s.k; i++)
            orset_buf_num(b, p.v[i]);
        write_head(os, b, f);
        orset_buf_num(b, s.n);
        orset_buf_put(b, out.data, out.len);
    }
    orset_buf_free(&out);
    if (sizes)
        os->alloc.resize(os->alloc.ctx, sizes, 0);
    orset_prefixes_free(os, &p);
    return r;
}

int orset_answer(struct orset *os, uint64_t site, const uint8_t *question, size_t len,
                 struct orset_buf *b)
{
    struct orset_reader r = orset_reader_of(question, len);
    struct peer p = {0};
    int e = orset_need_transaction(os);
    if (e < 0)
        return e;
    if (os->doubt)
        return orset_fail(os, ORSET_E_EXCHANGE,
                          "this state may be an old copy: it has to hear all peers first");
    uint8_t version = orset_read_u8(&r), kind = orset_read_u8(&r);
    if (r.bad || version != ORSET_WIRE_VERSION || kind < X_HELLO || kind > X_NAMED)
        return orset_fail(os, r.bad ? ORSET_E_MALFORMED : ORSET_E_KIND,
                          "a question of version %u, kind %u", version, kind);
    e = orset_vector_read(os, &r, site, true, &p);
    struct op_run x = {.os = os,
                       .by = p.sender,
                       .first = ORSET_COUNTER_MAX + 1,
                       .map = p.map,
                       .seen = p.seen,
                       .nmap = p.n,
                       .in = r};
    if (e == 0) {
        orset_buf_u8(b, ORSET_WIRE_VERSION);
        orset_buf_u8(b, kind);
        orset_vector_write(os, b);
        switch (kind) {
        case X_HELLO:
            e = r.at == r.end ? hello(os, b)
                              : orset_fail(os, ORSET_E_MALFORMED, "bytes behind a hello");
            break;
        case X_RANGES: e = ranges(os, &x, b); break;
        case X_MESSAGES: e = messages(os, &x, b); break;
        case X_NAMED: e = orset_write_named(os, &r, b); break;
        }
    }
    orset_peer_free(os, &p);
    return e < 0 ? e : b->failed ? orset_fail(os, ORSET_E_MEMORY, "no memory for an answer") : 0;
}
