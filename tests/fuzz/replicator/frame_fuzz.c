/* frame_fuzz - hostile bytes for what main and workers decode: a stream of frames, a parcel's meta,
 * parcel bodies, hints, questions for mails.
 *
 * After each: no texts outside the bytes given, and what decodes encodes to the same bytes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/protocol/commit.h"
#include "dovecot-plugin/protocol/hint.h"
#include "dovecot-plugin/protocol/parcel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, n);
}

static const struct orset_alloc HEAP = {NULL, resize};

static void require(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "frame_fuzz: %s\n", what);
        abort();
    }
}

static size_t used(struct text t, const uint8_t *data, size_t size)
{
    require(t.p >= data && t.p + t.n <= data + size, "a text outside the bytes");
    size_t sum = 0;
    for (size_t i = 0; i < t.n; i++)
        sum += t.p[i];
    return sum;
}

static void frames(const uint8_t *data, size_t size)
{
    struct frame f;
    size_t at = 0, len;
    while (frame_split(data + at, size - at, &len) == 1) {
        if (frame_decode(&f, data + at, len) == 0) {
            struct orset_buf b = {.alloc = &HEAP};
            require(frame_encode(&b, &f) == 0 && b.len == len && !memcmp(b.data, data + at, len),
                    "a frame is not what it encodes to");
            orset_buf_free(&b);
        }
        at += len;
    }
}

static void meta(const uint8_t *data, size_t size)
{
    struct parcel p;
    if (parcel_decode(&p, data, size) < 0 || p.version != PARCEL_VERSION)
        return;
    struct orset_buf b = {.alloc = &HEAP};
    require(parcel_encode(&b, &p) == 0 && b.len == size && !memcmp(b.data, data, size),
            "a meta is not what it encodes to");
    orset_buf_free(&b);
}

static void bodies(const uint8_t *data, size_t size)
{
    struct text body = {data, size}, batch;
    struct orset_reader r;
    struct parcel_mail m;
    struct parcel_want w;
    struct parcel_body p;
    size_t n, got = 0;
    if (parcel_batch(body, &batch, &n, &r) == 0) {
        used(batch, data, size);
        for (; parcel_next_mail(&r, &m); got++)
            used(m.mail, data, size);
        require(got == n, "not as many mails as said");
    }
    if (parcel_confirms(body, 1, 77, 1000))
        require(parcel_batch_first(body) == 0, "it confirms, and has ops");
    got = 0;
    if (parcel_bodies(body, &n, &r) == 0) {
        for (; parcel_next_mail(&r, &m); got++)
            used(m.mail, data, size);
        require(got == n, "not as many bodies as said");
    }
    got = 0;
    if (parcel_wants(body, &n, &r) == 0) {
        while (parcel_next_want(&r, &w))
            got++;
        require(got == n, "not as many wants as said");
    }
    struct parcel_guids g;
    for (unsigned kind = PARCEL_ASK_DISK; kind <= PARCEL_ON_DISK; kind++)
        if (parcel_guids(kind, body, &g) == 0)
            used((struct text){g.guid, g.n * PARCEL_GUID}, data, size);
    struct frame_origin o;
    for (unsigned kind = 1; kind < PARCEL_KINDS; kind++)
        (void)parcel_sender(kind, body, &o);
    if (parcel_body(body, &p) == 0) {
        used(p.part, data, size);
        require(p.offset + p.part.n <= p.size, "a part behind the end");
    }
}

static void hints(const uint8_t *data, size_t size)
{
    struct hint h;
    char name[300], user[256];
    bool all;
    if (hint_parse((const char *)data, size, &h)) {
        require(frame_user_ok((uint8_t *)h.user, strlen(h.user)), "a user that none can be");
        require(h.name_len < sizeof h.name && (!*h.guid || strlen(h.guid) == 32),
                "a mailbox out of bounds");
    }
    size_t n = size < sizeof name ? size : sizeof name - 1;
    memcpy(name, data, n);
    name[n] = '\0';
    if (hint_mark(name, user, &all) && !all)
        require(frame_user_ok((uint8_t *)user, strlen(user)), "a mark of a user that none can be");
}

static void commits(const uint8_t *data, size_t size)
{
    struct commit_question q;
    if (!commit_read((const char *)data, size, &q))
        return;
    require(frame_user_ok((uint8_t *)q.user, strlen(q.user)), "a user that none can be");
    require(q.n > 0 && q.n <= LINE_COMMIT_GUIDS, "no mail, or too many");
    for (size_t i = 0; i < q.n; i++)
        require(strspn(q.guid[i], "0123456789abcdef") == 32, "a mail that none can be");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    switch (data[0] % 4) {
    case 0: frames(data + 1, size - 1); break;
    case 1: meta(data + 1, size - 1); break;
    case 2:
        hints(data + 1, size - 1);
        commits(data + 1, size - 1);
        break;
    default: bodies(data + 1, size - 1); break;
    }
    return 0;
}
