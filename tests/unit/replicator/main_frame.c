/* Frames: what was put in comes out, and nothing else does. */
#include <stdlib.h>
#include <string.h>

#include "dovecot-plugin/protocol/frame.h"
#include "tests/unit/replicator/tests.h"

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

#define TEXT(s) ((struct text){(const uint8_t *)(s), strlen(s)})

static bool is(struct text t, const char *s)
{
    return t.n == strlen(s) && !memcmp(t.p, s, t.n);
}

/* Encodes, decodes, and encodes again: both encodings are equal, every shorter or longer stream
 * is refused or asks for more, and what came out is in *out (its texts point into *b). */
static void round_trip(const struct frame *in, struct frame *out, struct orset_buf *b)
{
    struct orset_buf twice = {.alloc = &HEAP};
    size_t len;
    *b = (struct orset_buf){.alloc = &HEAP};
    ck_assert_int_eq(frame_encode(b, in), 0);
    for (size_t n = 0; n < b->len; n++) {
        ck_assert_int_eq(frame_split(b->data, n, &len), 0);
        ck_assert_int_eq(frame_decode(out, b->data, n), -1);
    }
    ck_assert_int_eq(frame_split(b->data, b->len, &len), 1);
    ck_assert_uint_eq(len, b->len);
    ck_assert_int_eq(frame_decode(out, b->data, b->len), 0);
    ck_assert_int_eq(out->type, in->type);
    ck_assert_int_eq(frame_encode(&twice, out), 0);
    ck_assert_uint_eq(twice.len, b->len);
    ck_assert_mem_eq(twice.data, b->data, b->len);
    /* A byte behind the body, counted by the length: left over, so malformed. */
    orset_buf_u8(&twice, 0);
    twice.data[0]++;
    ck_assert_int_eq(frame_decode(out, twice.data, twice.len), -1);
    ck_assert_int_eq(frame_decode(out, b->data, b->len), 0);
    orset_buf_free(&twice);
}

START_TEST(hello_carries_group_and_settings)
{
    struct frame f = {.type = FRAME_HELLO}, g;
    struct orset_buf b;
    f.u.hello = (struct frame_hello){.version = FRAME_VERSION,
                                     .self = 2,
                                     .nsites = 3,
                                     .site = {1, 2, 300},
                                     .nnamespaces = 1,
                                     .nsettings = 1};
    f.u.hello.digest[15] = 9;
    f.u.hello.ns[0] = TEXT("inbox");
    f.u.hello.setting[0].key = TEXT("brake");
    f.u.hello.setting[0].value = TEXT("20");
    round_trip(&f, &g, &b);
    ck_assert_uint_eq(g.u.hello.self, 2);
    ck_assert_uint_eq(g.u.hello.nsites, 3);
    ck_assert_uint_eq(g.u.hello.site[2], 300);
    ck_assert_uint_eq(g.u.hello.digest[15], 9);
    ck_assert(is(g.u.hello.ns[0], "inbox"));
    ck_assert(is(g.u.hello.setting[0].value, "20"));
    orset_buf_free(&b);
}
END_TEST

START_TEST(hello_without_own_site_or_out_of_order_is_refused)
{
    struct frame f = {.type = FRAME_HELLO};
    struct orset_buf b = {.alloc = &HEAP};
    f.u.hello = (struct frame_hello){.version = 1, .self = 4, .nsites = 3, .site = {1, 2, 3}};
    ck_assert_int_eq(frame_encode(&b, &f), -1);
    f.u.hello = (struct frame_hello){.version = 1, .self = 1, .nsites = 3, .site = {1, 3, 3}};
    ck_assert_int_eq(frame_encode(&b, &f), -1);
    ck_assert_uint_eq(b.len, 0);
    f.u.hello = (struct frame_hello){.version = 1, .self = 1, .nsites = 3, .site = {1, 2, 3}};
    ck_assert_int_eq(frame_encode(&b, &f), 0);
    orset_buf_free(&b);
}
END_TEST

START_TEST(questions_of_main_come_through)
{
    struct frame f = {.type = FRAME_OPEN}, g;
    struct orset_buf b;
    f.u.open.user = TEXT("m\xc3\xbcller@example.net");
    f.u.open.credentials = 1ULL << 63;
    f.u.open.existing = true;
    round_trip(&f, &g, &b);
    ck_assert_uint_eq(g.u.open.credentials, 1ULL << 63);
    ck_assert(g.u.open.existing);
    ck_assert(is(g.u.open.user, "m\xc3\xbcller@example.net"));
    orset_buf_free(&b);

    f = (struct frame){.type = FRAME_CREDENTIALS};
    f.u.credentials.number = 7;
    f.u.credentials.user = TEXT("user@example.net");
    round_trip(&f, &g, &b);
    ck_assert_uint_eq(g.u.credentials.number, 7);
    ck_assert(is(g.u.credentials.user, "user@example.net"));
    orset_buf_free(&b);

    f = (struct frame){.type = FRAME_INGEST};
    f.u.ingest = (struct frame_ingest){.n = 2, .sweep = true};
    f.u.ingest.mailbox[0].guid = TEXT("0123456789abcdef0123456789abcdef");
    f.u.ingest.mailbox[0].name = TEXT("INBOX");
    f.u.ingest.mailbox[1].guid = TEXT("-");
    f.u.ingest.mailbox[1].name = TEXT("a\tb");
    round_trip(&f, &g, &b);
    ck_assert_uint_eq(g.u.ingest.n, 2);
    ck_assert(g.u.ingest.sweep);
    ck_assert(is(g.u.ingest.mailbox[1].name, "a\tb"));
    orset_buf_free(&b);

    f = (struct frame){.type = FRAME_PARCEL};
    f.u.parcel = (struct frame_parcel){.site = 3, .kind = 200, .body = TEXT("body")};
    round_trip(&f, &g, &b);
    ck_assert_uint_eq(g.u.parcel.site, 3);
    ck_assert_uint_eq(g.u.parcel.kind, 200);
    ck_assert(is(g.u.parcel.body, "body"));
    orset_buf_free(&b);

    f = (struct frame){.type = FRAME_SHIP};
    f.u.ship.site = 2;
    f.u.ship.how = FRAME_SHIP_FORGET;
    f.u.ship.from = 1ULL << 47;
    round_trip(&f, &g, &b);
    ck_assert_int_eq(g.u.ship.how, FRAME_SHIP_FORGET);
    ck_assert_uint_eq(g.u.ship.from, 1ULL << 47);
    orset_buf_free(&b);

    f = (struct frame){.type = FRAME_ADMIN};
    f.u.admin.n = 2;
    f.u.admin.arg[0] = TEXT("accept");
    f.u.admin.arg[1] = TEXT("");
    round_trip(&f, &g, &b);
    ck_assert(is(g.u.admin.arg[0], "accept"));
    ck_assert(is(g.u.admin.arg[1], ""));
    orset_buf_free(&b);

    for (int type = FRAME_TICK; type <= FRAME_CLOSE; type++) {
        if (type == FRAME_ADMIN)
            continue;
        f = (struct frame){.type = (enum frame_type)type};
        round_trip(&f, &g, &b);
        orset_buf_free(&b);
    }
    f = (struct frame){.type = FRAME_RESERVED};
    f.u.reserved.ok = true;
    f.u.reserved.new_epoch = true;
    round_trip(&f, &g, &b);
    ck_assert(g.u.reserved.ok && g.u.reserved.new_epoch);
    orset_buf_free(&b);
}
END_TEST

START_TEST(origins_come_through)
{
    struct frame f = {.type = FRAME_RETIRED}, g;
    struct orset_buf b, origins = {.alloc = &HEAP};
    const struct frame_origin one = {1, UINT64_MAX}, two = {7, 3}, other = {1, 3};
    frame_put_origin(&origins, one);
    frame_put_origin(&origins, two);
    for (int i = 0; i < 2; i++) {
        f.type = i == 0 ? FRAME_RETIRED : FRAME_ORIGINS;
        f.u.origins = (struct text){origins.data, origins.len};
        round_trip(&f, &g, &b);
        ck_assert_uint_eq(g.u.origins.n, 2 * FRAME_ORIGIN);
        ck_assert_uint_eq(frame_origin_at(g.u.origins, 1).site, 7);
        ck_assert(frame_has_origin(g.u.origins, one) && frame_has_origin(g.u.origins, two));
        ck_assert(!frame_has_origin(g.u.origins, other));
        orset_buf_free(&b);
        f.u.origins.n--;
        b = (struct orset_buf){.alloc = &HEAP};
        ck_assert_int_eq(frame_encode(&b, &f), -1);
        orset_buf_free(&b);
    }
    orset_buf_free(&origins);
}
END_TEST

START_TEST(answers_of_a_worker_come_through)
{
    struct frame f = {.type = FRAME_READY}, g;
    struct orset_buf b;
    f.u.ready.created = true;
    f.u.ready.unconfirmed = 1ULL << 40;
    round_trip(&f, &g, &b);
    ck_assert(g.u.ready.created && !g.u.ready.exchange);
    ck_assert_uint_eq(g.u.ready.unconfirmed, 1ULL << 40);
    orset_buf_free(&b);

    f = (struct frame){.type = FRAME_FAIL};
    f.u.fail.permanent = true;
    f.u.fail.text = TEXT("no such user");
    round_trip(&f, &g, &b);
    ck_assert(g.u.fail.permanent && !g.u.fail.nobody && is(g.u.fail.text, "no such user"));
    orset_buf_free(&b);
    f.u.fail.nobody = true;
    round_trip(&f, &g, &b);
    ck_assert(g.u.fail.permanent && g.u.fail.nobody);
    orset_buf_free(&b);

    f = (struct frame){.type = FRAME_SEND};
    f.u.send =
        (struct frame_parcel){.site = 0, .kind = 1, .bulk = true, .first = 300, .body = TEXT("x")};
    round_trip(&f, &g, &b);
    ck_assert_uint_eq(g.u.send.site, 0);
    ck_assert(g.u.send.bulk);
    ck_assert_uint_eq(g.u.send.first, 300);
    orset_buf_free(&b);

    f = (struct frame){.type = FRAME_RESERVE};
    f.u.reserve.what = FRAME_RESERVE_CLEAN;
    f.u.reserve.epoch = UINT64_MAX;
    f.u.reserve.counter = 1ULL << 48;
    round_trip(&f, &g, &b);
    ck_assert(g.u.reserve.epoch == UINT64_MAX && g.u.reserve.counter == 1ULL << 48);
    orset_buf_free(&b);

    f = (struct frame){.type = FRAME_DONE};
    f.u.done =
        (struct frame_done){.result = FRAME_TEMPORARY,
                            .text = TEXT("disk full"),
                            .nsites = 2,
                            .unplaced = 5,
                            .names = 7,
                            .state_bytes = 1ULL << 33,
                            .held = 6,
                            .tick = 200,
                            .joins = FRAME_READING,
                            .placed = 7,
                            .placed_bytes = 1ULL << 40,
                            .kept = 8,
                            .kept_bytes = 1ULL << 41,
                            .kept_restored = 9,
                            .kept_purged = 10,
                            .kept_failed = 11,
                            .unseen = 12,
                            .site = {{.site = 2, .unconfirmed = 17, .owed = true},
                                     {.site = 3, .behind = true, .more = true, .asking = true}}};
    round_trip(&f, &g, &b);
    ck_assert_int_eq(g.u.done.result, FRAME_TEMPORARY);
    ck_assert_uint_eq(g.u.done.site[0].unconfirmed, 17);
    ck_assert(g.u.done.site[1].behind && !g.u.done.site[1].owed && g.u.done.site[0].owed);
    ck_assert(g.u.done.site[1].more && !g.u.done.site[0].more);
    ck_assert(g.u.done.site[1].asking && !g.u.done.site[0].asking);
    ck_assert(g.u.done.unplaced == 5 && g.u.done.held == 6 && g.u.done.names == 7 &&
              g.u.done.tick == 200 && g.u.done.state_bytes == 1ULL << 33);
    ck_assert(g.u.done.joins == FRAME_READING && g.u.done.placed == 7 &&
              g.u.done.placed_bytes == 1ULL << 40);
    ck_assert(g.u.done.kept == 8 && g.u.done.kept_bytes == 1ULL << 41 &&
              g.u.done.kept_restored == 9 && g.u.done.kept_purged == 10 &&
              g.u.done.kept_failed == 11 && g.u.done.unseen == 12);
    orset_buf_free(&b);

    f = (struct frame){.type = FRAME_REPLY};
    f.u.reply.more = true;
    f.u.reply.text = TEXT("row");
    round_trip(&f, &g, &b);
    ck_assert(g.u.reply.more && is(g.u.reply.text, "row"));
    orset_buf_free(&b);

    f = (struct frame){.type = FRAME_NOTE};
    f.u.note.level = 3;
    f.u.note.text = TEXT("why");
    round_trip(&f, &g, &b);
    ck_assert_uint_eq(g.u.note.level, 3);
    orset_buf_free(&b);
}
END_TEST

START_TEST(what_the_decoder_would_refuse_is_not_encoded)
{
    struct orset_buf b = {.alloc = &HEAP};
    struct frame f = {.type = FRAME_PARCEL};
    f.u.parcel = (struct frame_parcel){.site = 0, .kind = 1};
    ck_assert_int_eq(frame_encode(&b, &f), -1); /* of no site */
    f = (struct frame){.type = FRAME_ADMIN};
    ck_assert_int_eq(frame_encode(&b, &f), -1); /* without a verb */
    f = (struct frame){.type = (enum frame_type)63};
    ck_assert_int_eq(frame_encode(&b, &f), -1);
    uint8_t *large = calloc(1, FRAME_MAX);
    f = (struct frame){.type = FRAME_SEND};
    f.u.send = (struct frame_parcel){.kind = 1, .body = {large, FRAME_MAX}};
    ck_assert_int_eq(frame_encode(&b, &f), -1);
    f.u.send.body.n = FRAME_MAX - 16;
    ck_assert_int_eq(frame_encode(&b, &f), 0);
    ck_assert_uint_eq(b.len, FRAME_MAX - 16 + FRAME_HEADER + 5 + 4);
    free(large);
    orset_buf_free(&b);
}
END_TEST

START_TEST(a_length_out_of_bounds_is_no_frame)
{
    size_t len;
    const uint8_t zero[8] = {0}, most[8] = {0, 0, 0, 1}, above[8] = {1, 0, 0, 1},
                  huge[8] = {255, 255, 255, 255};
    ck_assert_int_eq(frame_split(zero, 8, &len), -1);
    ck_assert_int_eq(frame_split(above, 8, &len), -1);
    ck_assert_int_eq(frame_split(huge, 4, &len), -1);
    ck_assert_int_eq(frame_split(most, 8, &len), 0);
    ck_assert_uint_eq(len, FRAME_MAX + FRAME_HEADER);
}
END_TEST

START_TEST(user_names_are_bounded)
{
    char longest[FRAME_USER_MAX + 1];
    const char *bad[] = {"", ".", "..", "a/b", "a\tb", "a\nb", "\x7f"};
    memset(longest, 'a', sizeof longest);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!frame_user_ok((const uint8_t *)bad[i], strlen(bad[i])), "user %zu", i);
    ck_assert(frame_user_ok((const uint8_t *)longest, FRAME_USER_MAX));
    ck_assert(!frame_user_ok((const uint8_t *)longest, FRAME_USER_MAX + 1));
    ck_assert(frame_user_ok((const uint8_t *)"...", 3));
    ck_assert(!frame_user_ok((const uint8_t *)"a\0b", 3));
    ck_assert(frame_user_ok((const uint8_t *)"a b+c@d.e", 9));
}
END_TEST

TCase *frame_tests(void)
{
    TCase *t = tcase_create("frame");
    tcase_add_test(t, hello_carries_group_and_settings);
    tcase_add_test(t, hello_without_own_site_or_out_of_order_is_refused);
    tcase_add_test(t, questions_of_main_come_through);
    tcase_add_test(t, origins_come_through);
    tcase_add_test(t, answers_of_a_worker_come_through);
    tcase_add_test(t, what_the_decoder_would_refuse_is_not_encoded);
    tcase_add_test(t, a_length_out_of_bounds_is_no_frame);
    tcase_add_test(t, user_names_are_bounded);
    return t;
}
