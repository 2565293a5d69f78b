/* The milter protocol: what Postfix 3.7 and 3.10 said (recorded between them and a milter), and
 * what it must not say. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "milter/protocol.h"

static const char *directory; /* of the recordings */

/* ---- what is said ---- */

/* A queue id differs from recording to recording. */
static void note_id(const struct protocol *e, struct buf *out)
{
    const char *id = protocol_macro(e, "i");
    buf_adds(out, !id ? "-"
                  : strlen(id) >= 10 &&
                          strspn(id, "0123456789BCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz") ==
                              strlen(id)
                      ? "ID"
                      : id);
}

static void note_args(const struct protocol *e, const char *what, struct buf *out)
{
    buf_adds(out, what);
    for (char **arg = e->argv; *arg; arg++)
        buf_printf(out, " %s", *arg);
}

static const char *or_none(const char *s)
{
    return s ? s : "-";
}

/* The value of a header that Postfix made up itself is left out, and so are ports. */
static void note(struct protocol *e, enum protocol_event event, struct buf *out)
{
    switch (event) {
    case PROTOCOL_CONNECT:
        buf_printf(out, "connect %s %s host=%s name=%s\n", e->text, or_none(e->address),
                   or_none(protocol_macro(e, "j")), or_none(protocol_macro(e, "{client_name}")));
        break;
    case PROTOCOL_HELO: buf_printf(out, "helo %s\n", e->text); break;
    case PROTOCOL_MAIL:
        note_args(e, "mail", out);
        buf_printf(out, " mail_addr=%s\n", or_none(protocol_macro(e, "{mail_addr}")));
        break;
    case PROTOCOL_RCPT:
        note_args(e, "rcpt", out);
        buf_printf(
            out, " mailer=%s host=%.11s addr=%s\n", or_none(protocol_macro(e, "{rcpt_mailer}")),
            or_none(protocol_macro(e, "{rcpt_host}")), or_none(protocol_macro(e, "{rcpt_addr}")));
        break;
    case PROTOCOL_HEADER:
        buf_printf(out, "header %s:%s\n", e->text,
                   !strcmp(e->text, "Date") || !strcmp(e->text, "From") ? "" : e->value);
        break;
    case PROTOCOL_BODY: buf_add(out, e->data, e->len); break;
    case PROTOCOL_END:
        buf_adds(out, "end ");
        note_id(e, out);
        buf_adds(out, "\n");
        protocol_answer(e, ENGINE_DISCARD, NULL);
        break;
    case PROTOCOL_ABORT: buf_adds(out, "abort\n"); break;
    case PROTOCOL_QUIT: buf_adds(out, "quit\n"); break;
    case PROTOCOL_BAD: buf_printf(out, "bad: %s\n", e->text); break;
    case PROTOCOL_HELLO:
    case PROTOCOL_MORE: break;
    }
}

struct heard {
    struct buf said, answers;
};

static struct heard hear(const char *data, size_t len, size_t piece)
{
    struct protocol e = {0};
    struct heard h = {{0}, {0}};
    enum protocol_event event = PROTOCOL_MORE;
    for (size_t at = 0, used;
         (at < len || event != PROTOCOL_MORE) && event != PROTOCOL_BAD && event != PROTOCOL_QUIT;
         at += used) {
        event = protocol_feed(&e, data + at, len - at < piece ? len - at : piece, &used);
        note(&e, event, &h.said);
    }
    h.answers = e.out;
    e.out = (struct buf){0};
    protocol_free(&e);
    buf_adds(&h.said, "");
    return h;
}

/* In one piece and byte by byte. */
static struct heard session(const char *data, size_t len)
{
    struct heard whole = hear(data, len, len ? len : 1), cut = hear(data, len, 1);
    ck_assert_str_eq(whole.said.data, cut.said.data);
    ck_assert_uint_eq(whole.answers.len, cut.answers.len);
    buf_free(&cut.said);
    buf_free(&cut.answers);
    return whole;
}

static void done(struct heard *h)
{
    buf_free(&h->said);
    buf_free(&h->answers);
}

/* ---- Postfix ---- */

static const char *const recordings[] = {"postfix-3.7.milter", "postfix-3.10.milter"};

static const char expected[] =
    "connect [127.0.0.1] 127.0.0.1 host=mx.stack.example name=unknown\n"
    "helo client.example\n"
    "mail <s@x.example> size=81 SIZE=100 BODY=8BITMIME mail_addr=s@x.example\n"
    "rcpt <u1@a.example> NOTIFY=FAILURE mailer=smtp host=[127.0.0.1] addr=u1@a.example\n"
    "rcpt <u2@a.example> NOTIFY=FAILURE mailer=smtp host=[127.0.0.1] addr=u2@a.example\n"
    "header Subject: x\nheader To: u1@a.example,\n\tu2@a.example\nheader Message-ID: "
    "<m1@x>\nheader Date:\nheader From:\n"
    "hello\r\n.dot\r\nend ID\nabort\n"
    "mail <s2@x.example> mail_addr=s2@x.example\n"
    "rcpt <u3@a.example> mailer=smtp host=[127.0.0.1] addr=u3@a.example\n"
    "abort\n"
    "mail <> mail_addr=\n"
    "rcpt <u4@a.example> mailer=smtp host=[127.0.0.1] addr=u4@a.example\n"
    "header Subject: empty\nheader Message-ID: <m2@x>\nheader Date:\nheader From:\n"
    "end ID\nabort\n"
    "mail <s@x.example> size=252 mail_addr=s@x.example\n"
    "rcpt <u5@a.example> mailer=smtp host=[127.0.0.1] addr=u5@a.example\n"
    "header Subject: big\nheader Message-ID: <m3@x>\nheader Date:\nheader From:\n"
    "0123456789012345678901234567890123456789012345678901234567890123456789\r\n"
    "0123456789012345678901234567890123456789012345678901234567890123456789\r\n"
    "0123456789012345678901234567890123456789012345678901234567890123456789\r\n"
    "end ID\nabort\nabort\nquit\n";

START_TEST(what_postfix_says_is_understood)
{
    char path[4096], data[16384];
    snprintf(path, sizeof path, "%s/%s", directory, recordings[_i]);
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s", path);
    size_t n = fread(data, 1, sizeof data, file);
    fclose(file);
    struct heard h = session(data, n);
    ck_assert_str_eq(h.said.data, expected);
    /* The negotiation, and a discard for each of three mails. */
    ck_assert_int_eq(h.answers.data[4], 'O');
    ck_assert_uint_gt(h.answers.len, 15);
    ck_assert(!memcmp(h.answers.data + h.answers.len - 15, "\0\0\0\1d\0\0\0\1d\0\0\0\1d", 15));
    done(&h);
}
END_TEST

/* ---- what else may come ---- */

#define OPEN "\0\0\0\x0dO\0\0\0\6\0\0\1\xff\0\x1f\xff\xff"
#define CLIENT   \
    "\0\0\0\x0b" \
    "Cc\0"       \
    "4\x1f\x90"  \
    "1.2\0"      \
    "\0"
#define BEGIN OPEN CLIENT

static void says(const char *data, size_t len, const char *what)
{
    struct heard h = session(data, len);
    ck_assert_str_eq(h.said.data, what);
    done(&h);
}
#define SAYS(text, what) says(text, sizeof text - 1, what)

#define CONNECTED "connect c 1.2 host=- name=-\n"

START_TEST(what_is_out_of_place_is_refused)
{
    SAYS("\0\0\0\1E", "bad: content without a sender\n");
    SAYS("\0\0\0\1A", "bad: no negotiation first\n");
    SAYS(OPEN OPEN, "bad: a second negotiation\n");
    SAYS(OPEN "\0\0\0\6M<a>\0\0", "bad: a mail of an unknown client\n");
    SAYS(BEGIN "\0\0\0\5R<a>\0", CONNECTED "bad: a recipient or content without a sender\n");
    SAYS(BEGIN "\0\0\0\5La\0b\0", CONNECTED "bad: a recipient or content without a sender\n");
    SAYS(BEGIN "\0\0\0\3Bxy", CONNECTED "bad: content without a sender\n");
    SAYS(BEGIN "\0\0\0\1E", CONNECTED "bad: content without a sender\n");
    SAYS(BEGIN "\0\0\0\5M<a>\0\0\0\0\1A\0\0\0\1E",
         CONNECTED "mail <a> mail_addr=-\nabort\nbad: content without a sender\n");
    SAYS(BEGIN "\0\0\0\5M<a>\0\0\0\0\1E\0\0\0\1E",
         CONNECTED "mail <a> mail_addr=-\nend -\nbad: content without a sender\n");
    SAYS(BEGIN "\0\0\0\1Z", CONNECTED "bad: an unknown command\n");
}
END_TEST

START_TEST(what_has_no_end_is_refused)
{
    SAYS(BEGIN "\0\0\0\4M<a>", CONNECTED "bad: a sender without an end\n");
    SAYS(BEGIN "\0\0\0\1M", CONNECTED "bad: a sender without an end\n");
    SAYS(BEGIN "\0\0\0\2Hx", CONNECTED "bad: a HELO without an end\n");
    SAYS(BEGIN "\0\0\0\3DMi", CONNECTED "bad: macros without an end\n");
    SAYS(BEGIN "\0\0\0\1D", CONNECTED "bad: macros without an end\n");
    SAYS(BEGIN "\0\0\0\5M<a>\0\0\0\0\3La\0",
         CONNECTED "mail <a> mail_addr=-\nbad: a header without a value\n");
    SAYS(BEGIN "\0\0\0\5M<a>\0\0\0\0\4R<b>",
         CONNECTED "mail <a> mail_addr=-\nbad: a recipient or header without an end\n");
    SAYS(OPEN "\0\0\0\3Cxy", "bad: a connection without a name\n");
    SAYS("\0\0\0\5O\0\0\0\6", "bad: a negotiation that is too short\n");
}
END_TEST

START_TEST(lengths_are_bounded)
{
    SAYS(BEGIN "\0\0\0\0", CONNECTED);
    SAYS(BEGIN "\0\0\0\0M", CONNECTED "bad: a packet's length\n");
    SAYS(BEGIN "\0\x10\0\1L", CONNECTED "bad: a packet's length\n");
    SAYS(BEGIN "\xff\xff\xff\xffL", CONNECTED "bad: a packet's length\n");
}
END_TEST

/* Older Postfix, or milter_protocol = 2. */
START_TEST(a_mail_server_without_what_is_needed_is_refused)
{
    static const char *const least =
        "bad: the mail server does not offer what is needed (milter protocol 6, delrcpt, leading "
        "space, no replies): Postfix has it since 2.6\n";
    SAYS("\0\0\0\x0dO\0\0\0\2\0\0\0\x3f\0\0\0\x7f", least);
    SAYS("\0\0\0\x0dO\0\0\0\6\0\0\1\xf7\0\x1f\xff\xff", least);
    SAYS("\0\0\0\x0dO\0\0\0\6\0\0\1\xff\0\x0f\xff\xff", least);
}
END_TEST

/* The next mail must not have the last one's queue id, nor a session the last one's client. */
START_TEST(macros_end_with_what_they_belong_to)
{
    SAYS(BEGIN "\0\0\0\7DEi\0ab\0"
               "\0\0\0\5M<a>\0\0\0\0\1E"
               "\0\0\0\5M<b>\0\0\0\0\1E",
         CONNECTED "mail <a> mail_addr=-\nend ab\nmail <b> mail_addr=-\nend -\n");
    SAYS(BEGIN "\0\0\0\5M<a>\0"
               "\0\0\0\7DEi\0ab\0"
               "\0\0\0\1A"
               "\0\0\0\5M<b>\0\0\0\0\1E",
         CONNECTED "mail <a> mail_addr=-\nabort\nmail <b> mail_addr=-\nend -\n");
    SAYS(BEGIN "\0\0\0\7DEi\0ab\0"
               "\0\0\0\2DM"
               "\0\0\0\5M<a>\0\0\0\0\1E",
         CONNECTED "mail <a> mail_addr=-\nend -\n");
    SAYS(OPEN "\0\0\0\7DCj\0mx\0" CLIENT "\0\0\0\1K" CLIENT,
         "connect c 1.2 host=mx name=-\nabort\n" CONNECTED);
}
END_TEST

/* Postfix may send the last of the body with the end. */
START_TEST(body_with_the_end_belongs_to_it)
{
    SAYS(BEGIN "\0\0\0\5M<a>\0\0\0\0\3Bxy\0\0\0\3Ez\n",
         CONNECTED "mail <a> mail_addr=-\nxyz\nend -\n");
    SAYS(BEGIN "\0\0\0\5M<a>\0\0\0\0\1B\0\0\0\1E", CONNECTED "mail <a> mail_addr=-\nend -\n");
}
END_TEST

START_TEST(answers_are_packets)
{
    struct protocol e = {0};
    static const char wanted[] = "\0\0\0\5-<a>\0"
                                 "\0\0\0\x08m\0\0\0\2X\0\0"
                                 "\0\0\0\1p"
                                 "\0\0\0\7y451 x\0"
                                 "\0\0\0\1a"
                                 "\0\0\0\1d";
    protocol_delete_recipient(&e, "<a>");
    protocol_delete_header(&e, "X", 2);
    protocol_progress(&e);
    protocol_answer(&e, ENGINE_REPLY, "451 x");
    protocol_answer(&e, ENGINE_ACCEPT, NULL);
    protocol_answer(&e, ENGINE_DISCARD, NULL);
    ck_assert_uint_eq(e.out.len, sizeof wanted - 1);
    ck_assert(!memcmp(e.out.data, wanted, sizeof wanted - 1));
    protocol_free(&e);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    directory = argv[1];
    Suite *suite = suite_create("milter engine");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, what_postfix_says_is_understood, 0, 2);
    tcase_add_test(tests, what_is_out_of_place_is_refused);
    tcase_add_test(tests, what_has_no_end_is_refused);
    tcase_add_test(tests, lengths_are_bounded);
    tcase_add_test(tests, a_mail_server_without_what_is_needed_is_refused);
    tcase_add_test(tests, macros_end_with_what_they_belong_to);
    tcase_add_test(tests, body_with_the_end_belongs_to_it);
    tcase_add_test(tests, answers_are_packets);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
