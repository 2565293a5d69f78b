/* frame - encodes and decodes frames. Encoding and decoding walk the same fields in the same order,
 * so both stand side by side here, type by type. */
#include "dovecot-plugin/protocol/frame.h"

#include <string.h>

/* ---- parts ---- */

enum fail { FAIL_LATER, FAIL_PERMANENT, FAIL_NOBODY, FAIL_UNWANTED }; /* on the wire */

static struct text read_text(struct orset_reader *r, size_t most)
{
    struct text t;
    t.p = orset_read_text(r, most, &t.n);
    return t;
}

static struct text read_user(struct orset_reader *r)
{
    struct text t = read_text(r, FRAME_USER_MAX);
    if (!r->bad && !frame_user_ok(t.p, t.n))
        r->bad = true;
    return t;
}

static bool read_bool(struct orset_reader *r)
{
    uint8_t v = orset_read_u8(r);
    if (v > 1)
        r->bad = true;
    return v == 1;
}

/* Site numbers begin with 1. */
static uint64_t read_site(struct orset_reader *r)
{
    uint64_t site = orset_read_num(r, UINT64_MAX);
    if (site == 0)
        r->bad = true;
    return site;
}

static void read_copy(struct orset_reader *r, void *to, size_t n)
{
    const uint8_t *p = orset_read_bytes(r, n);
    if (p)
        memcpy(to, p, n);
}

static void put_text(struct orset_buf *b, struct text t)
{
    orset_buf_text(b, t.p, t.n);
}

bool frame_user_ok(const uint8_t *user, size_t n)
{
    if (n == 0 || n > FRAME_USER_MAX || (user[0] == '.' && (n == 1 || (n == 2 && user[1] == '.'))))
        return false;
    for (size_t i = 0; i < n; i++)
        if (user[i] < 32 || user[i] == 127 || user[i] == '/')
            return false;
    return true;
}

bool frame_verb_reads(struct text verb)
{
    static const char *const reads[] = {"status", "verify", "kept"};
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        if (verb.n == strlen(reads[i]) && memcmp(verb.p, reads[i], verb.n) == 0)
            return true;
    return false;
}

/* ---- HELLO ---- */

static void put_hello(struct orset_buf *b, const struct frame_hello *h)
{
    orset_buf_num(b, h->version);
    orset_buf_num(b, h->self);
    orset_buf_num(b, h->nsites);
    for (size_t i = 0; i < h->nsites; i++)
        orset_buf_num(b, h->site[i]);
    orset_buf_put(b, h->digest, sizeof h->digest);
    orset_buf_num(b, h->nnamespaces);
    for (size_t i = 0; i < h->nnamespaces; i++)
        put_text(b, h->ns[i]);
    orset_buf_num(b, h->nsettings);
    for (size_t i = 0; i < h->nsettings; i++) {
        put_text(b, h->setting[i].key);
        put_text(b, h->setting[i].value);
    }
}

static void read_hello(struct orset_reader *r, struct frame_hello *h)
{
    bool self = false;
    h->version = (unsigned)orset_read_num(r, 255);
    h->self = read_site(r);
    h->nsites = (size_t)orset_read_num(r, FRAME_SITES_MAX);
    for (size_t i = 0; i < h->nsites; i++) {
        h->site[i] = read_site(r);
        self = self || h->site[i] == h->self;
        if (i && h->site[i] <= h->site[i - 1])
            r->bad = true;
    }
    if (!self)
        r->bad = true;
    read_copy(r, h->digest, sizeof h->digest);
    h->nnamespaces = (size_t)orset_read_num(r, FRAME_NAMESPACES_MAX);
    for (size_t i = 0; i < h->nnamespaces; i++)
        h->ns[i] = read_text(r, FRAME_NAME_MAX);
    h->nsettings = (size_t)orset_read_num(r, FRAME_SETTINGS_MAX);
    for (size_t i = 0; i < h->nsettings; i++) {
        h->setting[i].key = read_text(r, FRAME_NAME_MAX);
        h->setting[i].value = read_text(r, FRAME_NAME_MAX);
    }
}

/* ---- origins ---- */

void frame_put_origin(struct orset_buf *b, struct frame_origin o)
{
    orset_buf_u64(b, o.site);
    orset_buf_u64(b, o.epoch);
}

struct frame_origin frame_origin_at(struct text origins, size_t i)
{
    struct orset_reader r = orset_reader_of(origins.p + i * FRAME_ORIGIN, FRAME_ORIGIN);
    uint64_t site = orset_read_u64(&r);
    return (struct frame_origin){site, orset_read_u64(&r)};
}

bool frame_has_origin(struct text origins, struct frame_origin o)
{
    for (size_t i = 0; i < origins.n / FRAME_ORIGIN; i++) {
        struct frame_origin one = frame_origin_at(origins, i);
        if (one.site == o.site && one.epoch == o.epoch)
            return true;
    }
    return false;
}

static struct text read_origins(struct orset_reader *r)
{
    struct text t = read_text(r, FRAME_ORIGINS_MAX * FRAME_ORIGIN);
    if (t.n % FRAME_ORIGIN != 0)
        r->bad = true;
    return t;
}

/* ---- INGEST ---- */

static void put_ingest(struct orset_buf *b, const struct frame_ingest *g)
{
    orset_buf_num(b, g->n);
    for (size_t i = 0; i < g->n; i++) {
        put_text(b, g->mailbox[i].guid);
        put_text(b, g->mailbox[i].name);
    }
    orset_buf_u8(b, g->sweep);
}

static void read_ingest(struct orset_reader *r, struct frame_ingest *g)
{
    g->n = (size_t)orset_read_num(r, FRAME_MAILBOXES_MAX);
    for (size_t i = 0; i < g->n; i++) {
        g->mailbox[i].guid = read_text(r, 32);
        g->mailbox[i].name = read_text(r, FRAME_NAME_MAX);
    }
    g->sweep = read_bool(r);
}

/* ---- PARCEL, SEND ---- */

static void put_parcel(struct orset_buf *b, const struct frame_parcel *p, bool send)
{
    orset_buf_num(b, p->site);
    orset_buf_num(b, p->kind);
    if (send) {
        orset_buf_u8(b, p->bulk);
        orset_buf_num(b, p->first);
    }
    put_text(b, p->body);
}

static void read_parcel(struct orset_reader *r, struct frame_parcel *p, bool send)
{
    p->site = send ? orset_read_num(r, UINT64_MAX) : read_site(r);
    p->kind = (unsigned)orset_read_num(r, 255);
    p->bulk = send && read_bool(r);
    p->first = send ? orset_read_num(r, UINT64_MAX) : 0;
    p->body = read_text(r, FRAME_MAX);
}

/* ---- DONE ---- */

static void put_done(struct orset_buf *b, const struct frame_done *d)
{
    orset_buf_u8(b, (uint8_t)d->result);
    put_text(b, d->text);
    orset_buf_num(b, d->nsites);
    for (size_t i = 0; i < d->nsites; i++) {
        orset_buf_num(b, d->site[i].site);
        orset_buf_num(b, d->site[i].unconfirmed);
        orset_buf_u8(b, d->site[i].behind);
        orset_buf_u8(b, d->site[i].owed);
        orset_buf_u8(b, d->site[i].more);
        orset_buf_u8(b, d->site[i].asking);
    }
    orset_buf_num(b, d->unplaced);
    orset_buf_num(b, d->held);
    orset_buf_num(b, d->names);
    orset_buf_num(b, d->state_bytes);
    orset_buf_u8(b, (uint8_t)d->joins);
    orset_buf_num(b, d->placed);
    orset_buf_num(b, d->placed_bytes);
    orset_buf_num(b, d->kept);
    orset_buf_num(b, d->kept_bytes);
    orset_buf_num(b, d->kept_restored);
    orset_buf_num(b, d->kept_purged);
    orset_buf_num(b, d->kept_failed);
    orset_buf_num(b, d->unseen);
    orset_buf_num(b, d->tick);
}

static void read_done(struct orset_reader *r, struct frame_done *d)
{
    uint8_t result = orset_read_u8(r);
    if (result > FRAME_TEMPORARY)
        r->bad = true;
    d->result = (enum frame_result)result;
    d->text = read_text(r, FRAME_TEXT_MAX);
    d->nsites = (size_t)orset_read_num(r, FRAME_SITES_MAX);
    for (size_t i = 0; i < d->nsites; i++) {
        d->site[i].site = read_site(r);
        d->site[i].unconfirmed = orset_read_num(r, UINT64_MAX);
        d->site[i].behind = read_bool(r);
        d->site[i].owed = read_bool(r);
        d->site[i].more = read_bool(r);
        d->site[i].asking = read_bool(r);
    }
    d->unplaced = orset_read_num(r, UINT64_MAX);
    d->held = orset_read_num(r, UINT64_MAX);
    d->names = orset_read_num(r, UINT64_MAX);
    d->state_bytes = orset_read_num(r, INT64_MAX);
    uint8_t joins = orset_read_u8(r);
    if (joins > FRAME_READING)
        r->bad = true;
    d->joins = (enum frame_joins)joins;
    d->placed = orset_read_num(r, UINT64_MAX);
    d->placed_bytes = orset_read_num(r, UINT64_MAX);
    d->kept = orset_read_num(r, UINT64_MAX);
    d->kept_bytes = orset_read_num(r, UINT64_MAX);
    d->kept_restored = orset_read_num(r, UINT64_MAX);
    d->kept_purged = orset_read_num(r, UINT64_MAX);
    d->kept_failed = orset_read_num(r, UINT64_MAX);
    d->unseen = orset_read_num(r, UINT64_MAX);
    d->tick = orset_read_num(r, 86400000);
}

/* ---- the others are short ---- */

static void put_body(struct orset_buf *b, const struct frame *f)
{
    switch (f->type) {
    case FRAME_HELLO: put_hello(b, &f->u.hello); break;
    case FRAME_LOOKUP: put_text(b, f->u.lookup.user); break;
    case FRAME_OPEN:
        put_text(b, f->u.open.user);
        orset_buf_u64(b, f->u.open.credentials);
        orset_buf_u8(b, f->u.open.existing);
        break;
    case FRAME_INGEST: put_ingest(b, &f->u.ingest); break;
    case FRAME_PARCEL: put_parcel(b, &f->u.parcel, false); break;
    case FRAME_SEND: put_parcel(b, &f->u.send, true); break;
    case FRAME_SHIP:
        orset_buf_num(b, f->u.ship.site);
        orset_buf_u8(b, (uint8_t)f->u.ship.how);
        orset_buf_num(b, f->u.ship.from);
        break;
    case FRAME_ADMIN:
        orset_buf_num(b, f->u.admin.n);
        for (size_t i = 0; i < f->u.admin.n; i++)
            put_text(b, f->u.admin.arg[i]);
        break;
    case FRAME_TICK:
    case FRAME_ELSEWHERE:
    case FRAME_CLOSE: break;
    case FRAME_RESERVED:
        orset_buf_u8(b, f->u.reserved.ok);
        orset_buf_u8(b, f->u.reserved.new_epoch);
        break;
    case FRAME_CREDENTIALS:
        orset_buf_u64(b, f->u.credentials.number);
        put_text(b, f->u.credentials.user);
        break;
    case FRAME_READY:
        orset_buf_u8(b, f->u.ready.created);
        orset_buf_u8(b, f->u.ready.exchange);
        orset_buf_num(b, f->u.ready.unconfirmed);
        break;
    case FRAME_FAIL:
        orset_buf_u8(b, (uint8_t)(f->u.fail.nobody      ? FAIL_NOBODY
                                  : f->u.fail.unwanted  ? FAIL_UNWANTED
                                  : f->u.fail.permanent ? FAIL_PERMANENT
                                                        : FAIL_LATER));
        put_text(b, f->u.fail.text);
        break;
    case FRAME_RESERVE:
        orset_buf_u8(b, (uint8_t)f->u.reserve.what);
        orset_buf_u64(b, f->u.reserve.epoch);
        orset_buf_num(b, f->u.reserve.counter);
        break;
    case FRAME_RETIRED:
    case FRAME_ORIGINS: put_text(b, f->u.origins); break;
    case FRAME_APART: put_text(b, f->u.apart); break;
    case FRAME_DONE: put_done(b, &f->u.done); break;
    case FRAME_REPLY:
        orset_buf_u8(b, f->u.reply.more);
        put_text(b, f->u.reply.text);
        break;
    case FRAME_NOTE:
        orset_buf_u8(b, (uint8_t)f->u.note.level);
        put_text(b, f->u.note.text);
        break;
    }
}

static void read_ship(struct orset_reader *r, struct frame *f)
{
    f->u.ship.site = read_site(r);
    uint8_t how = orset_read_u8(r);
    if (how > FRAME_SHIP_FORGET)
        r->bad = true;
    f->u.ship.how = (enum frame_ship)how;
    f->u.ship.from = orset_read_num(r, UINT64_MAX);
}

static void read_admin(struct orset_reader *r, struct frame *f)
{
    f->u.admin.n = (size_t)orset_read_num(r, FRAME_ARGS_MAX);
    if (f->u.admin.n == 0)
        r->bad = true;
    for (size_t i = 0; i < f->u.admin.n; i++)
        f->u.admin.arg[i] = read_text(r, FRAME_NAME_MAX);
}

static void read_reserve(struct orset_reader *r, struct frame *f)
{
    uint8_t what = orset_read_u8(r);
    if (what > FRAME_RESERVE_CLEAN)
        r->bad = true;
    f->u.reserve.what = (enum frame_reserve)what;
    f->u.reserve.epoch = orset_read_u64(r);
    f->u.reserve.counter = orset_read_num(r, 1ULL << 48);
}

static void read_fail(struct orset_reader *r, struct frame *f)
{
    uint8_t how = orset_read_u8(r);
    if (how > FAIL_UNWANTED)
        r->bad = true;
    f->u.fail.permanent = how != FAIL_LATER;
    f->u.fail.nobody = how == FAIL_NOBODY;
    f->u.fail.unwanted = how == FAIL_UNWANTED;
    f->u.fail.text = read_text(r, FRAME_TEXT_MAX);
}

static void read_body(struct orset_reader *r, struct frame *f)
{
    switch (f->type) {
    case FRAME_HELLO: read_hello(r, &f->u.hello); return;
    case FRAME_LOOKUP: f->u.lookup.user = read_user(r); return;
    case FRAME_OPEN:
        f->u.open.user = read_user(r);
        f->u.open.credentials = orset_read_u64(r);
        f->u.open.existing = read_bool(r);
        return;
    case FRAME_INGEST: read_ingest(r, &f->u.ingest); return;
    case FRAME_PARCEL: read_parcel(r, &f->u.parcel, false); return;
    case FRAME_SEND: read_parcel(r, &f->u.send, true); return;
    case FRAME_SHIP: read_ship(r, f); return;
    case FRAME_ADMIN: read_admin(r, f); return;
    case FRAME_TICK:
    case FRAME_ELSEWHERE:
    case FRAME_CLOSE: return;
    case FRAME_RESERVED:
        f->u.reserved.ok = read_bool(r);
        f->u.reserved.new_epoch = read_bool(r);
        return;
    case FRAME_CREDENTIALS:
        f->u.credentials.number = orset_read_u64(r);
        if (f->u.credentials.number == 0)
            r->bad = true;
        f->u.credentials.user = read_user(r);
        return;
    case FRAME_READY:
        f->u.ready.created = read_bool(r);
        f->u.ready.exchange = read_bool(r);
        f->u.ready.unconfirmed = orset_read_num(r, UINT64_MAX);
        return;
    case FRAME_FAIL: read_fail(r, f); return;
    case FRAME_RETIRED:
    case FRAME_ORIGINS: f->u.origins = read_origins(r); return;
    case FRAME_APART:
        f->u.apart = read_text(r, FRAME_SITES_MAX * FRAME_SITE);
        if (f->u.apart.n % FRAME_SITE != 0)
            r->bad = true;
        return;
    case FRAME_RESERVE: read_reserve(r, f); return;
    case FRAME_DONE: read_done(r, &f->u.done); return;
    case FRAME_REPLY:
        f->u.reply.more = read_bool(r);
        f->u.reply.text = read_text(r, FRAME_TEXT_MAX);
        return;
    case FRAME_NOTE:
        f->u.note.level = orset_read_u8(r);
        if (f->u.note.level > 3)
            r->bad = true;
        f->u.note.text = read_text(r, FRAME_TEXT_MAX);
        return;
    }
    r->bad = true; /* no such type */
}

/* ---- whole frames ---- */

static uint32_t length_of(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int frame_encode(struct orset_buf *b, const struct frame *f)
{
    size_t start = b->len;
    const uint8_t head[FRAME_HEADER + 1] = {0, 0, 0, 0, (uint8_t)f->type};
    struct frame again;
    orset_buf_put(b, head, sizeof head);
    put_body(b, f);
    if (b->failed)
        return -1;
    size_t n = b->len - start - FRAME_HEADER;
    for (int i = 0; i < FRAME_HEADER; i++)
        b->data[start + (size_t)i] = (uint8_t)(n >> 8 * i);
    /* What the other side would refuse is not sent: the bounds stand in one place, the decoder. */
    if (n > FRAME_MAX || frame_decode(&again, b->data + start, n + FRAME_HEADER) < 0) {
        b->len = start;
        return -1;
    }
    return 0;
}

int frame_split(const uint8_t *bytes, size_t n, size_t *len_r)
{
    *len_r = 0;
    if (n < FRAME_HEADER)
        return 0;
    uint32_t len = length_of(bytes);
    if (len == 0 || len > FRAME_MAX)
        return -1;
    *len_r = FRAME_HEADER + (size_t)len;
    return n >= *len_r;
}

int frame_decode(struct frame *f, const uint8_t *bytes, size_t n)
{
    size_t len;
    if (frame_split(bytes, n, &len) != 1 || len != n)
        return -1;
    struct orset_reader r = {bytes + FRAME_HEADER, bytes + n, false};
    f->type = (enum frame_type)orset_read_u8(&r);
    read_body(&r, f);
    return r.bad || r.at != r.end ? -1 : 0;
}
