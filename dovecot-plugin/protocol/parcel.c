/* parcel - encodes and decodes the meta and the bodies of parcels. */
#include "dovecot-plugin/protocol/parcel.h"

#include "dovecot-plugin/orset/ops/op_batch.h"

#include <string.h>

#define SHA256 32

/* ---- meta ---- */

int parcel_encode(struct orset_buf *b, const struct parcel *p)
{
    size_t start = b->len;
    struct parcel again;
    orset_buf_u8(b, (uint8_t)p->version);
    orset_buf_put(b, p->group, sizeof p->group);
    orset_buf_text(b, p->user.p, p->user.n);
    orset_buf_u8(b, (uint8_t)p->kind);
    orset_buf_num(b, p->from);
    orset_buf_num(b, p->to);
    if (b->failed)
        return -1;
    if (parcel_decode(&again, b->data + start, b->len - start) < 0) {
        b->len = start;
        return -1;
    }
    return 0;
}

int parcel_decode(struct parcel *p, const uint8_t *meta, size_t n)
{
    struct orset_reader r = orset_reader_of(meta, n);
    r.bad = n > PARCEL_META_MAX;
    memset(p, 0, sizeof *p);
    p->version = orset_read_u8(&r);
    const uint8_t *group = orset_read_bytes(&r, sizeof p->group);
    if (group)
        memcpy(p->group, group, sizeof p->group);
    if (p->version != PARCEL_VERSION && n)
        return 0;
    p->user.p = orset_read_text(&r, FRAME_USER_MAX, &p->user.n);
    p->kind = orset_read_u8(&r);
    p->from = orset_read_num(&r, UINT64_MAX);
    p->to = orset_read_num(&r, UINT64_MAX);
    if (r.bad || r.at != r.end || !p->from || !p->to || p->kind == 0)
        return -1;
    return frame_user_ok(p->user.p, p->user.n) ? 0 : -1;
}

/* The sum of hashes asks for no order and needs no memory. */
void parcel_group(const uint64_t *site, size_t nsites, const struct text *ns, size_t nns,
                  uint8_t digest[16])
{
    const uint64_t version[2] = {0, PARCEL_VERSION};
    struct orset_sum sum = orset_hash_words(version, 2);
    for (size_t i = 0; i < nsites; i++) {
        const uint64_t word[2] = {1, site[i]};
        orset_sum_add(&sum, orset_hash_words(word, 2));
    }
    for (size_t i = 0; i < nns; i++) {
        struct orset_sum h = orset_hash(ns[i].p, ns[i].n);
        const uint64_t word[3] = {2, h.lo, h.hi};
        orset_sum_add(&sum, orset_hash_words(word, 3));
    }
    for (int i = 0; i < 8; i++) {
        digest[i] = (uint8_t)(sum.lo >> 8 * i);
        digest[8 + i] = (uint8_t)(sum.hi >> 8 * i);
    }
}

/* ---- BATCH ---- */

void parcel_put_batch(struct orset_buf *b, struct text batch, size_t nmails)
{
    orset_buf_text(b, batch.p, batch.n);
    orset_buf_num(b, nmails);
}

void parcel_put_mail(struct orset_buf *b, const uint8_t sha256[32], struct text mail)
{
    orset_buf_put(b, sha256, SHA256);
    orset_buf_text(b, mail.p, mail.n);
}

static bool read_mail(struct orset_reader *r, struct parcel_mail *m)
{
    m->sha256 = orset_read_bytes(r, SHA256);
    m->mail.p = orset_read_text(r, PARCEL_MAIL_MAX, &m->mail.n);
    return !r->bad;
}

/* Up to the end. */
static int check_mails(struct orset_reader r, size_t *nmails_r, struct orset_reader *mails_r)
{
    struct parcel_mail m;
    size_t bytes = 0;
    *nmails_r = (size_t)orset_read_num(&r, PARCEL_MAILS_MAX);
    *mails_r = r;
    for (size_t i = 0; i < *nmails_r && read_mail(&r, &m); i++)
        bytes += m.mail.n;
    return r.bad || r.at != r.end || bytes > PARCEL_MAILS_BYTES ? -1 : 0;
}

static struct orset_reader reader_of(struct text body)
{
    struct orset_reader r = orset_reader_of(body.p, body.n);
    r.bad = body.n > PARCEL_MAX;
    return r;
}

int parcel_batch(struct text body, struct text *batch_r, size_t *nmails_r,
                 struct orset_reader *mails_r)
{
    struct orset_reader r = reader_of(body);
    batch_r->p = orset_read_text(&r, PARCEL_MAX, &batch_r->n);
    return check_mails(r, nmails_r, mails_r);
}

/* The batch of a BATCH, behind its vector. counter_r: the vector's number of origin, 0 if it has
 * none. */
static struct orset_reader behind_vector(struct text body, const struct orset_origin *origin,
                                         uint64_t *counter_r)
{
    struct orset_reader r = reader_of(body);
    size_t n;
    const uint8_t *batch = orset_read_text(&r, PARCEL_MAX, &n);
    struct orset_reader in = orset_reader_of(batch, batch ? n : 0);
    in.bad = !batch;
    *counter_r = 0;
    orset_read_u8(&in); /* version */
    for (uint64_t i = orset_read_num(&in, ORSET_ORIGINS_MAX); i > 0 && !in.bad; i--) {
        uint64_t site = orset_read_u64(&in), epoch = orset_read_u64(&in);
        uint64_t counter = orset_read_num(&in, ORSET_COUNTER_MAX);
        orset_read_u64(&in);
        if (site == origin->site && epoch == origin->epoch)
            *counter_r = counter;
    }
    orset_read_num(&in, ORSET_ORIGINS_MAX); /* the sender's own */
    return in;
}

bool parcel_confirms(struct text body, uint64_t site, uint64_t epoch, uint64_t counter)
{
    const struct orset_origin origin = {site, epoch};
    uint64_t confirmed;
    struct orset_reader in = behind_vector(body, &origin, &confirmed);
    bool modseqs = orset_read_num(&in, ORSET_MODSEQS_MAX) > 0;
    orset_read_num(&in, ORSET_COUNTER_MAX);
    orset_read_u64(&in); /* the hash before it */
    bool ops = orset_read_num(&in, ORSET_COUNTER_MAX) > 0;
    return !in.bad && !modseqs && !ops && counter > 0 && confirmed == counter;
}

uint64_t parcel_batch_first(struct text body)
{
    uint64_t counter;
    struct orset_reader in = behind_vector(body, &(struct orset_origin){0}, &counter);
    for (uint64_t i = orset_read_num(&in, ORSET_MODSEQS_MAX); i > 0 && !in.bad; i--) {
        if (orset_read_num(&in, ORSET_ORIGINS_MAX) > 0)
            orset_read_num(&in, ORSET_COUNTER_MAX);
        orset_read_num(&in, ORSET_MODSEQ_MAX);
    }
    uint64_t first = orset_read_num(&in, ORSET_COUNTER_MAX);
    orset_read_u64(&in); /* the hash before it */
    return orset_read_num(&in, ORSET_COUNTER_MAX) > 0 && !in.bad ? first : 0;
}

/* ---- RETIRE, RETIRED, and whom they are about ---- */

/* And what the vector says of it. */
static struct frame_origin read_origin(struct orset_reader *in)
{
    struct frame_origin o = {orset_read_u64(in), 0};
    o.epoch = orset_read_u64(in);
    orset_read_num(in, ORSET_COUNTER_MAX);
    orset_read_u64(in); /* a hash */
    return o;
}

/* At the vector of a BATCH, a QUESTION or an ANSWER; bad: it is none of these. */
static struct orset_reader vector_of(unsigned kind, struct text body)
{
    struct orset_reader in = reader_of(body);
    if (kind != PARCEL_BATCH && kind != PARCEL_QUESTION && !parcel_is_answer(kind))
        in.bad = true;
    if (kind == PARCEL_BATCH) {
        size_t n;
        const uint8_t *batch = orset_read_text(&in, PARCEL_MAX, &n);
        in = orset_reader_of(batch, batch ? n : 0);
        in.bad = !batch;
    }
    orset_read_u8(&in); /* version */
    if (kind != PARCEL_BATCH)
        orset_read_u8(&in); /* kind of the question */
    return in;
}

bool parcel_sender(unsigned kind, struct text body, struct frame_origin *o)
{
    struct orset_reader in = vector_of(kind, body);
    uint64_t n = orset_read_num(&in, ORSET_ORIGINS_MAX);
    struct orset_reader again = in;
    for (uint64_t i = 0; i < n && !in.bad; i++)
        (void)read_origin(&in);
    uint64_t own = orset_read_num(&in, ORSET_ORIGINS_MAX);
    if (in.bad || own >= n)
        return false;
    for (uint64_t i = 0; i <= own; i++)
        *o = read_origin(&again);
    return true;
}

bool parcel_names(unsigned kind, struct text body, struct text origins)
{
    struct orset_reader in = vector_of(kind, body);
    for (uint64_t i = orset_read_num(&in, ORSET_ORIGINS_MAX); i > 0 && !in.bad; i--) {
        struct frame_origin o = read_origin(&in);
        if (!in.bad && frame_has_origin(origins, o))
            return true;
    }
    return false;
}

int parcel_origins(struct text body, size_t *n_r)
{
    *n_r = body.n / FRAME_ORIGIN;
    return body.n % FRAME_ORIGIN != 0 || *n_r == 0 || *n_r > PARCEL_ORIGINS_MAX ? -1 : 0;
}

/* ---- ASK_DISK, ON_DISK ---- */

void parcel_put_guids(struct orset_buf *b, unsigned kind, const struct parcel_guids *g)
{
    orset_buf_u64(b, g->asked);
    if (kind == PARCEL_ON_DISK)
        orset_buf_u64(b, g->epoch);
    orset_buf_put(b, g->guid, g->n * PARCEL_GUID);
}

int parcel_guids(unsigned kind, struct text body, struct parcel_guids *g)
{
    struct orset_reader r = reader_of(body);
    *g = (struct parcel_guids){.asked = orset_read_u64(&r)};
    if (kind == PARCEL_ON_DISK)
        g->epoch = orset_read_u64(&r);
    if (r.bad)
        return -1;
    size_t bytes = (size_t)(r.end - r.at);
    g->n = bytes / PARCEL_GUID;
    g->guid = r.at;
    return bytes % PARCEL_GUID != 0 || g->n == 0 || g->n > PARCEL_GUIDS_MAX ? -1 : 0;
}

/* ---- BODIES ---- */

void parcel_put_bodies(struct orset_buf *b, size_t nmails)
{
    orset_buf_num(b, nmails);
}

int parcel_bodies(struct text body, size_t *nmails_r, struct orset_reader *mails_r)
{
    return check_mails(reader_of(body), nmails_r, mails_r);
}

bool parcel_next_mail(struct orset_reader *mails, struct parcel_mail *m)
{
    return mails->at != mails->end && read_mail(mails, m);
}

/* ---- WANT ---- */

void parcel_put_wants(struct orset_buf *b, size_t n)
{
    orset_buf_num(b, n);
}

void parcel_put_want(struct orset_buf *b, const struct parcel_want *w)
{
    orset_buf_num(b, w->site);
    orset_buf_u64(b, w->epoch);
    orset_buf_num(b, w->number);
    orset_buf_put(b, w->sha256, SHA256);
    orset_buf_num(b, w->offset);
}

static bool read_want(struct orset_reader *r, struct parcel_want *w)
{
    w->site = orset_read_num(r, UINT64_MAX);
    w->epoch = orset_read_u64(r);
    w->number = orset_read_num(r, 1ULL << 48);
    w->sha256 = orset_read_bytes(r, SHA256);
    w->offset = orset_read_num(r, PARCEL_SIZE_MAX);
    return !r->bad;
}

int parcel_wants(struct text body, size_t *n_r, struct orset_reader *wants_r)
{
    struct orset_reader r = reader_of(body);
    struct parcel_want w;
    *n_r = (size_t)orset_read_num(&r, PARCEL_WANTS_MAX);
    *wants_r = r;
    for (size_t i = 0; i < *n_r && read_want(&r, &w); i++)
        ;
    return r.bad || r.at != r.end ? -1 : 0;
}

bool parcel_next_want(struct orset_reader *wants, struct parcel_want *w)
{
    return wants->at != wants->end && read_want(wants, w);
}

/* ---- BODY ---- */

void parcel_put_body(struct orset_buf *b, const struct parcel_body *p)
{
    orset_buf_put(b, p->sha256, SHA256);
    orset_buf_num(b, p->size);
    orset_buf_num(b, p->offset);
    orset_buf_text(b, p->part.p, p->part.n);
}

int parcel_body(struct text body, struct parcel_body *p)
{
    struct orset_reader r = reader_of(body);
    p->sha256 = orset_read_bytes(&r, SHA256);
    p->size = orset_read_num(&r, PARCEL_SIZE_MAX);
    p->offset = orset_read_num(&r, PARCEL_SIZE_MAX);
    p->part.p = orset_read_text(&r, PARCEL_PART_MAX, &p->part.n);
    if (r.bad || r.at != r.end || p->offset > p->size || p->part.n > p->size - p->offset)
        return -1;
    return 0;
}

/* ---- both ---- */

void parcel_each_text(unsigned kind, struct text body, parcel_text_fn *each, void *arg)
{
    struct parcel_body b;
    struct parcel_mail m;
    struct orset_reader mails;
    size_t n;
    if (kind == PARCEL_BODY && parcel_body(body, &b) == 0 && b.size > 0 &&
        b.offset + b.part.n == b.size)
        each(arg, b.sha256);
    if (kind == PARCEL_BODIES && parcel_bodies(body, &n, &mails) == 0)
        while (parcel_next_mail(&mails, &m))
            each(arg, m.sha256);
}
