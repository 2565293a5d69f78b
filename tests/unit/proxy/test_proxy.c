/* The proxy's pure parts: content, commands, routes, and the engine that joins them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/mail/address.h"
#include "proxy/engine.h"
#include "lib/ingress/route.h"

static const struct postfix_header header = {.drop = "bcc,content-length,resent-bcc,return-path,",
                                             .hops = 3};

/* ---- content ---- */

struct read {
    struct content c;
    struct buf out;
    size_t used;
    bool end;
};

/* Bytes as they come after 354; all in one, then one by one: the same. */
static struct read read_content(const char *wire, size_t len)
{
    struct read whole = {.c.header = &header}, cut = {.c.header = &header};
    whole.used = content_feed(&whole.c, wire, len, &whole.out, &whole.end);
    while (cut.used < len && !cut.end)
        cut.used += content_feed(&cut.c, wire + cut.used, 1, &cut.out, &cut.end);
    ck_assert_uint_eq(whole.used, cut.used);
    ck_assert(whole.end == cut.end && whole.c.bare_lf == cut.c.bare_lf &&
              whole.c.long_line == cut.c.long_line && whole.c.bare_cr == cut.c.bare_cr &&
              whole.c.odd_header == cut.c.odd_header);
    ck_assert_uint_eq(whole.c.hops, cut.c.hops);
    ck_assert_uint_eq(whole.out.len, cut.out.len);
    ck_assert(!whole.out.len || !memcmp(whole.out.data, cut.out.data, cut.out.len));
    content_free(&cut.c);
    buf_free(&cut.out);
    return whole;
}

static void done(struct read *r)
{
    content_free(&r->c);
    buf_free(&r->out);
}

static void becomes(const char *wire, const char *kept)
{
    struct read r = read_content(wire, strlen(wire));
    ck_assert_msg(r.end && r.used == strlen(wire), "does not end at its end: %s", wire);
    ck_assert_str_eq(r.out.data ? r.out.data : "", kept);
    done(&r);
}

START_TEST(content_loses_its_dots_and_nothing_else)
{
    becomes("A: b\r\n\r\nhello\r\n.\r\n", "A: b\r\n\r\nhello\r\n");
    becomes("A: b\r\n\r\n..\r\n...\r\n.a\r\na.\r\n.\r\n", "A: b\r\n\r\n.\r\n..\r\na\r\na.\r\n");
    becomes("A: b\r\n\r\na\rb\r\n.\r\n", "A: b\r\n\r\na\rb\r\n");
    becomes("A: b\r\n\r\n.\r.\r\n.\r\n", "A: b\r\n\r\n\r.\r\n");
    becomes("A: b\r\n\r\n.\r\r\n.\r\n", "A: b\r\n\r\n\r\r\n");
    becomes(".\r\n", "");
}
END_TEST

START_TEST(content_ends_at_nothing_but_crlf_dot_crlf)
{
    static const char *const smuggled[] = {
        "\n.\n", "\n.\r\n",          "\r\n.\n",     "\r.\r",         "\r.\r\n",    "\r\n.\r",
        "\n.\r", "\r\n\x2e\x2e\r\n", "\r\n.\r\r\n", "\r\r\n.\r\r\n", "\r\n .\r\n", "\r\n. \r\n"};
    for (size_t i = 0; i < sizeof smuggled / sizeof *smuggled; i++) {
        char *wire = mem_printf("A: b\r\n\r\nx%sMAIL FROM:<a@b>\r\n", smuggled[i]);
        struct read r = read_content(wire, strlen(wire));
        ck_assert_msg(!r.end, "variant %zu ends the content", i);
        bool lf = false;
        for (const char *s = smuggled[i]; *s; s++)
            lf |= *s == '\n' && (s == smuggled[i] || s[-1] != '\r');
        ck_assert_msg(r.c.bare_lf == lf, "variant %zu: bare LF is %sseen", i, lf ? "not " : "");
        done(&r);
        free(wire);
    }
}
END_TEST

START_TEST(header_loses_what_cleanup_drops)
{
    becomes("A: b\r\nBcc: x\r\n y\r\nC: d\r\n\r\nBcc: z\r\n.\r\n",
            "A: b\r\nC: d\r\n\r\nBcc: z\r\n");
    becomes("BCC:x\r\nReturn-Path: <q>\r\ncontent-length: 5\r\nBccx: y\r\n\r\n.\r\n",
            "Bccx: y\r\n\r\n");
    becomes("Dovelane-Id: x\r\n\ty\r\nA: b\r\n\r\n.\r\n", "A: b\r\n\r\n");
}
END_TEST

START_TEST(a_line_that_is_no_header_ends_the_header)
{
    becomes("Subject: x\r\nhello, this is text\r\nBcc: is how you write it\r\n and this "
            "too\r\n\r\nb\r\n.\r\n",
            "Subject: x\r\nhello, this is text\r\nBcc: is how you write it\r\n and this "
            "too\r\n\r\nb\r\n");
    becomes("hello\r\nBcc: x\r\nDovelane-Id: y\r\n.\r\n", "hello\r\nBcc: x\r\nDovelane-Id: y\r\n");
    becomes(" folded\r\nBcc: x\r\n\r\n.\r\n", " folded\r\nBcc: x\r\n\r\n");
    becomes(": no name\r\nBcc: x\r\n.\r\n", ": no name\r\nBcc: x\r\n");
    /* those are headers, which cleanup mends */
    becomes("A : b\r\nBcc : x\r\nBcc: y\r\n\r\n.\r\n", "A : b\r\n\r\n");
    char wire[2300];
    memset(wire, 'x', 2200);
    memcpy(wire, "hello, this", 11);
    strcpy(wire + 2200, "\r\nBcc: y\r\n.\r\n");
    struct read r = read_content(wire, strlen(wire));
    ck_assert(r.end && r.c.odd_header && !r.c.dropped);
    ck_assert_uint_eq(r.out.len, strlen(wire) - 3);
    done(&r);
}
END_TEST

static void is_odd(const char *wire, bool odd)
{
    struct read r = read_content(wire, strlen(wire));
    ck_assert(r.end);
    ck_assert_msg(r.c.odd_header == odd, "%s: %s", odd ? "not odd" : "odd", wire);
    done(&r);
}

START_TEST(what_postfix_would_mend_is_odd)
{
    is_odd("A: b\r\n\tc\r\n\r\nx\r\n.\r\n", false);
    is_odd("A:\r\n\r\n.\r\n", false);
    is_odd("hello\r\n.\r\n", true);
    is_odd("A: b\r\nhello world\r\n\r\n.\r\n", true);
    is_odd("A : b\r\n\r\n.\r\n", true);
    is_odd(" folded\r\nA: b\r\n\r\n.\r\n", true);
    is_odd("A: b\r\n.\r\n", true); /* no empty line */
    static const char nul[] = "A: b\0c\r\n\r\n.\r\n";
    struct read r = read_content(nul, sizeof nul - 1);
    ck_assert(r.end && r.c.odd_header);
    done(&r);
}
END_TEST

static void has_bare_cr(const char *wire, bool bare)
{
    struct read r = read_content(wire, strlen(wire));
    ck_assert_msg(r.end && r.c.bare_cr == bare, "%s bare CR: %s", bare ? "no" : "a", wire);
    done(&r);
}

START_TEST(a_bare_cr_is_seen)
{
    has_bare_cr("A: b\r\n\r\nx\r\n..\r\n\r\n.\r\n", false);
    has_bare_cr("A: b\r\n\r\na\rb\r\n.\r\n", true);
    has_bare_cr("A: b\r\n\r\n\rb\r\n.\r\n", true);
    has_bare_cr("A: b\r\n\r\nb\r\r\n.\r\n", true);
    has_bare_cr("A: b\r\n\r\n.\r.\r\n.\r\n", true);
    has_bare_cr("A: b\rc\r\n\r\n.\r\n", true);
}
END_TEST

START_TEST(parts_with_odd_headers_are_seen)
{
    static const char odd[] = "A: b\r\n\r\n--x\r\nContent-Type\t: text/plain\r\n\r\n",
                      text[] = "A: b\r\n\r\nNote : this\r\n--x\r\nB: c\r\n\r\nNote : that\r\n";
    ck_assert(content_odd_parts(odd, sizeof odd - 1));
    ck_assert(!content_odd_parts(text, sizeof text - 1));
}
END_TEST

START_TEST(lines_and_hops_are_counted)
{
    char wire[2200], *at = wire;
    at += sprintf(
        at,
        "Received: a\r\nReceived: b\r\n\tc\r\nX-Received: d\r\nMessage-ID: <i@j.example>\r\n\r\n");
    memset(at, 'x', 998);
    strcpy(at + 998, "\r\n.\r\n");
    struct read r = read_content(wire, strlen(wire));
    ck_assert(r.end && !r.c.long_line);
    ck_assert_uint_eq(r.c.hops, 2);
    ck_assert_str_eq(r.c.message_id, "<i@j.example>");
    done(&r);
    strcpy(at + 998, "x\r\n.\r\n");
    r = read_content(wire, strlen(wire));
    ck_assert(r.end && r.c.long_line);
    done(&r);
    /* a header line longer than what is enough to judge it */
    at = wire + sprintf(wire, "Bcc: ");
    memset(at, 'y', 2100);
    strcpy(at + 2050, "\r\nA: b\r\n\r\n.\r\n");
    r = read_content(wire, strlen(wire));
    ck_assert(r.end && r.c.long_line);
    ck_assert_str_eq(r.out.data, "A: b\r\n\r\n");
    done(&r);
}
END_TEST

/* ---- commands ---- */

static void plain(const char *line, const char *address, const char *args)
{
    struct command_path p;
    ck_assert(command_path(line, "RCPT", "TO", &p));
    ck_assert_msg(p.plain == (address != NULL), "%s: %s", line, address ? "not plain" : "plain");
    if (address) {
        ck_assert_str_eq(p.address, address);
        ck_assert_str_eq(p.args ? p.args : "", args);
    }
    command_path_free(&p);
}

START_TEST(only_addresses_that_postfix_would_not_change_are_plain)
{
    plain("RCPT TO:<a@b.example>", "a@b.example", "");
    plain("rcpt to: <A.b+c@B.example>  NOTIFY=NEVER\tORCPT=rfc822;x", "A.b+c@B.example",
          "NOTIFY=NEVER ORCPT=rfc822;x");
    plain("RCPT TO:<\xc3\xa4@b.example>", "\xc3\xa4@b.example", "");
    static const char *const odd[] = {"a@b.example",
                                      "<a>",
                                      "<a@b>",
                                      "<\"a b\"@c.example>",
                                      "<@x.example:a@b.example>",
                                      "<a%b@c.example>",
                                      "<x!a@c.example>",
                                      "<a@[192.0.2.1]>",
                                      "<a@192.0.2.1>",
                                      "<a@b.example.>",
                                      "<.a@b.example>",
                                      "<a..b@c.example>",
                                      "<-a@b.example>",
                                      "<a@b@c.example>",
                                      "<>",
                                      "<a@b..example>",
                                      "<a@b.example>x",
                                      "<a@b.example",
                                      "(c) <a@b.example>",
                                      "<a @b.example>",
                                      "<a@b.example XVERP>"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char *line = mem_printf("RCPT TO:%s", odd[i]);
        plain(line, NULL, NULL);
        free(line);
    }
    struct command_path p;
    ck_assert(!command_path("RCPT FROM:<a@b.example>", "RCPT", "TO", &p));
    ck_assert(!command_path("RCPTTO:<a@b.example>", "RCPT", "TO", &p));
    ck_assert(command_path("MAIL FROM:<> BODY=8BITMIME", "MAIL", "FROM", &p) && p.plain &&
              !*p.address);
    command_path_free(&p);
    ck_assert(command_path("MAIL FROM:<a@b.example> XVERP==+", "MAIL", "FROM", &p) && !p.plain);
    ck_assert(!address_plain("\xc3\xa4@b.example", false));
    char *left = command_args_without("SIZE=1 AUTH=<> RET=HDRS", "AUTH");
    ck_assert_str_eq(left, "SIZE=1 RET=HDRS");
    free(left);
    static const char *const line[][2] = {
        {"MAIL FROM:<root@web1> SIZE=9 AUTH=<>", "MAIL FROM:<root@web1> SIZE=9"},
        {"MAIL FROM:<a@b> auth=x  SIZE=9", "MAIL FROM:<a@b> SIZE=9"},
        {"MAIL FROM:root AUTH=<> BODY=7BIT", "MAIL FROM:root BODY=7BIT"},
        {"MAIL FROM:<\"x AUTH=y\"@c> AUTH=z", "MAIL FROM:<\"x AUTH=y\"@c>"},
        {"MAIL FROM:<\"\\\" AUTH=y\"@c>", "MAIL FROM:<\"\\\" AUTH=y\"@c>"},
        {"MAIL FROM:<a AUTH=y> XAUTH=1", "MAIL FROM:<a AUTH=y> XAUTH=1"}};
    for (size_t i = 0; i < sizeof line / sizeof *line; i++) {
        left = command_line_without(line[i][0], "AUTH");
        ck_assert_str_eq(left, line[i][1]);
        free(left);
    }
}
END_TEST

START_TEST(xforward_is_decoded)
{
    char *value[XFORWARD_ATTRIBUTES] = {0};
    ck_assert(command_xforward("XFORWARD NAME=a.example ADDR=IPv6:2001:db8::1 PORT=12 HELO=x+20y "
                               "PROTO=ESMTP IDENT=[UNAVAILABLE]",
                               value));
    ck_assert_str_eq(value[XFORWARD_NAME], "a.example");
    ck_assert_str_eq(value[XFORWARD_HELO], "x y");
    ck_assert_ptr_null(value[XFORWARD_IDENT]);
    ck_assert(command_xforward("xforward source=LOCAL name=[unavailable]", value));
    ck_assert_str_eq(value[XFORWARD_SOURCE], "LOCAL");
    ck_assert_ptr_null(value[XFORWARD_NAME]);
    static const char *const bad[] = {
        "XFORWARD FOO=a",      "XFORWARD NAME", "XFORWARD NAME=+4", "XFORWARD NAME=+zz",
        "XFORWARD NAME=a+00b", "XFORWARD =x",   "XFORWARDX NAME=a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!command_xforward(bad[i], value), "%s", bad[i]);
    for (int i = 0; i < XFORWARD_ATTRIBUTES; i++)
        free(value[i]);
}
END_TEST

START_TEST(the_most_exact_route_counts)
{
    char *lines[] = {"example.com=lmtp:[a]:24", ".example.com=lmtp:[b]:24",
                     "boss@example.com=smtp:[c]:25", ".sub.example.com=smtp:[d]:25",
                     "exemple.org=smtp:[e]:25"};
    struct config c = {.route = {5, lines}};
    struct route *r = route_new(&c);
    ck_assert_str_eq(route_of(r, "a@example.com", "+"), "lmtp:[a]:24");
    ck_assert_str_eq(route_of(r, "a@EXAMPLE.com", "+"), "lmtp:[a]:24");
    ck_assert_str_eq(route_of(r, "Boss@example.com", "+"), "smtp:[c]:25");
    ck_assert_str_eq(route_of(r, "boss+x@example.com", "+"), "smtp:[c]:25");
    ck_assert_str_eq(route_of(r, "boss-x+y@example.com", "+-"), "smtp:[c]:25");
    ck_assert_str_eq(route_of(r, "boss+x@example.com", ""), "lmtp:[a]:24");
    ck_assert_str_eq(route_of(r, "+boss@example.com", "+"), "lmtp:[a]:24");
    ck_assert_str_eq(route_of(r, "a@x.example.com", "+"), "lmtp:[b]:24");
    ck_assert_str_eq(route_of(r, "a@x.y.example.com", "+"), "lmtp:[b]:24");
    ck_assert_str_eq(route_of(r, "a@x.sub.example.com", "+"), "smtp:[d]:25");
    ck_assert_str_eq(route_of(r, "a@sub.example.com", "+"), "lmtp:[b]:24");
    ck_assert_ptr_null(route_of(r, "a@example.org", "+"));
    ck_assert_ptr_null(route_of(r, "a@notexample.com", "+"));
    route_free(r);
}
END_TEST

/* ---- engine ---- */

static void says(struct engine *e, const char *bytes, enum engine_event event, const char *reply)
{
    size_t used, at = 0, len = strlen(bytes);
    enum engine_event got = ENGINE_MORE;
    buf_free(&e->out);
    while (at < len && got == ENGINE_MORE) {
        got = engine_feed(e, bytes + at, len - at, &used);
        at += used;
    }
    ck_assert_msg(got == event, "%s: event %d", bytes, got);
    ck_assert_msg(!strncmp(e->out.data ? e->out.data : "", reply, strlen(reply)), "%s: %s", bytes,
                  e->out.data ? e->out.data : "nothing");
}

/* The final lines of replies. */
static unsigned replies(const char *out)
{
    unsigned n = 0;
    for (const char *s = out; s && *s; s = strchr(s, '\n'), s += s != NULL)
        n += s[3] == ' ';
    return n;
}

START_TEST(a_session_as_postfix_has_it)
{
    struct engine e = {.name = "mx.example", .most_envelope = 100000};
    engine_greet(&e);
    ck_assert(!strncmp(e.out.data,
                       "220 mx.example ESMTP Dovelane\r\n250-mx.example\r\n250-SIZE\r\n", 54));
    ck_assert_ptr_nonnull(strstr(e.out.data, "\r\n250 XFORWARD NAME ADDR PORT PROTO HELO IDENT "
                                             "SOURCE\r\n250 2.0.0 Ok\r\n250 2.0.0 Ok\r\n"));
    ck_assert_uint_eq(replies(e.out.data), 4);
    says(&e,
         "EHLO mx.example\r\nXFORWARD NAME=c.example ADDR=192.0.2.1\r\nMAIL FROM:<a@b.example> "
         "SIZE=100\r\n",
         ENGINE_MORE, "");
    ck_assert_ptr_null(e.out.data);
    says(&e, "RCPT TO:<c@d.example>\r\n", ENGINE_MORE, "250 2.1.5");
    ck_assert_str_eq(e.helo, "mx.example");
    ck_assert_str_eq(e.sender.address, "a@b.example");
    says(&e, "DATA\r\n", ENGINE_DATA, "");
    engine_go(&e, &header);
    says(&e, "A: b\r\n\r\nx\r\n.\r\n", ENGINE_END, "");
    engine_answer(&e, "250 2.0.0 Ok: queued as X");
    says(&e, "EHLO mx.example\r\n", ENGINE_MORE, "250-");
    engine_free(&e);
}
END_TEST

/* Whatever comes, the client reads as many answers as it sent commands, and DATA's is never one
 * that was given ahead. */
START_TEST(what_was_answered_ahead_is_refused_later)
{
    static const struct {
        const char *lines;
        unsigned answers; /* with the greeting */
        enum engine_event end;
        const char *refusal;
    } cases[] = {
        /* a long XFORWARD comes in two */
        {"EHLO x\r\nXFORWARD NAME=a\r\nXFORWARD HELO=b\r\nMAIL FROM:<a@b.example>\r\nRCPT "
         "TO:<c@d.example>\r\nDATA\r\n",
         6, ENGINE_DATA, NULL},
        {"EHLO x\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n", 4, ENGINE_DATA,
         NULL},
        {"EHLO x\r\nXFORWARD rubbish\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\n", 5,
         ENGINE_MORE, "451 4.3.0"},
        {"EHLO x\r\nXFORWARD NAME=a\r\nMAIL rubbish\r\nRCPT TO:<c@d.example>\r\n", 5, ENGINE_MORE,
         "501 5.5.4 Syntax: MAIL"},
        {"EHLO x\r\nMAIL FROM:<a@b.example>\r\nRCPT rubbish\r\nRCPT TO:<c@d.example>\r\n", 5,
         ENGINE_MORE, "501 5.5.4 Syntax: RCPT"},
        {"EHLO x\r\nMAIL FROM:<a@b.example>\r\nRCPT rubbish\r\nDATA\r\n", 5, ENGINE_MORE,
         "501 5.5.4 Syntax: RCPT"},
        {"EHLO\r\nMAIL FROM:<a@b.example>\r\nNOOP\r\nRCPT TO:<c@d.example>\r\n", 5, ENGINE_MORE,
         "501 5.5.4 Syntax: EHLO"},
        /* EHLO begins anew */
        {"NOOP\r\nNOOP\r\nBLURB\r\nEHLO x\r\nMAIL FROM:<a@b.example>\r\nRCPT "
         "TO:<c@d.example>\r\nDATA\r\n",
         7, ENGINE_DATA, NULL},
        /* the greeting's answers are 4 */
        {"EHLO x\r\nMAIL FROM:<a@b.example>\r\nDATA\r\n", 5, ENGINE_CLOSE, "421 4.5.1"},
        {"DATA\r\n", 5, ENGINE_CLOSE, "421 4.5.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine e = {.name = "mx.example", .most_envelope = 100000};
        engine_greet(&e);
        size_t used;
        enum engine_event event = engine_feed(&e, cases[i].lines, strlen(cases[i].lines), &used);
        ck_assert_msg(event == cases[i].end, "case %zu: event %d", i, event);
        ck_assert_msg(replies(e.out.data) == cases[i].answers, "case %zu: %u answers: %s", i,
                      replies(e.out.data), e.out.data);
        ck_assert_msg(!cases[i].refusal || strstr(e.out.data, cases[i].refusal), "case %zu: %s", i,
                      e.out.data);
        if (event == ENGINE_MORE) {
            says(&e, "DATA\r\n", ENGINE_MORE, cases[i].refusal);
            says(&e, "RSET\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n",
                 e.helo ? ENGINE_DATA : ENGINE_MORE, "250 2.0.0 Ok\r\n");
        }
        engine_free(&e);
    }
}
END_TEST

START_TEST(commands_are_answered_in_their_order)
{
    struct engine e = {.name = "mx.example", .most_envelope = 100000};
    says(&e, "MAIL FROM:<a@b.example>\r\n", ENGINE_MORE, "503");
    says(&e, "EHLO mx.example\r\n", ENGINE_MORE, "250-");
    says(&e, "XFORWARD NAME=c.example ADDR=192.0.2.1\r\n", ENGINE_MORE, "250");
    says(&e, "RCPT TO:<c@d.example>\r\n", ENGINE_MORE, "503");
    says(&e, "MAIL FROM:<a@b.example> SIZE=100 BODY=8BITMIME\r\n", ENGINE_MORE, "250");
    says(&e, "MAIL FROM:<a@b.example>\r\n", ENGINE_MORE, "503");
    says(&e, "DATA\r\n", ENGINE_MORE, "554");
    says(&e, "RCPT TO:<c@d.example> NOTIFY=NEVER\r\n", ENGINE_MORE, "250");
    says(&e, "RCPT TO:<C@d.example>\r\n", ENGINE_MORE, "250");
    says(&e, "DATA\r\n", ENGINE_DATA, "");
    ck_assert(e.nrecipients == 2 && !e.recipient[0].again && e.recipient[1].again);
    engine_go(&e, &header);
    says(&e, "A: b\r\n\r\nx\r\n.\r\n", ENGINE_END, "");
    ck_assert_str_eq(e.body.data, "A: b\r\n\r\nx\r\n");
    engine_answer(&e, "250 2.0.0 Ok: queued as X");
    ck_assert(engine_idle(&e));
    ck_assert_str_eq(e.out.data, "250 2.0.0 Ok: queued as X\r\n");
    says(&e, "QUIT\r\n", ENGINE_CLOSE, "221");
    engine_free(&e);
}
END_TEST

START_TEST(nothing_is_read_behind_what_postfix_never_sends)
{
    static const char *const bad[] = {"EHLO x\nMAIL FROM:<a@b.example>\r\n", "EHLO \x01\r\n", "\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct engine e = {.name = "mx.example", .most_envelope = 100000};
        says(&e, bad[i], ENGINE_CLOSE, "500 5.5.2");
        ck_assert_ptr_null(strstr(e.out.data, "250"));
        engine_free(&e);
    }
    struct engine e = {.name = "mx.example", .most_envelope = 100000};
    says(&e, "EHLO x\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n", ENGINE_DATA,
         "250-");
    engine_go(&e, &header);
    says(&e, "A: b\r\n\r\nx\n.\r\nMAIL FROM:<evil@b.example>\r\n", ENGINE_CLOSE, "550 5.5.2");
    engine_free(&e);
    struct engine long_line = {.name = "mx.example", .most_envelope = 100000};
    char *line = mem_alloc(5001);
    memset(line, 'x', 5000);
    line[5000] = '\0';
    says(&long_line, line, ENGINE_CLOSE, "500 5.5.2 Error: line too long");
    free(line);
    engine_free(&long_line);
}
END_TEST

START_TEST(envelopes_are_bounded)
{
    struct engine e = {.name = "mx.example", .most_envelope = 1000};
    says(&e, "EHLO x\r\nMAIL FROM:<a@b.example>\r\n", ENGINE_MORE, "250-");
    int taken = 0;
    for (int i = 0; i < 50; i++) {
        char line[64];
        size_t used;
        snprintf(line, sizeof line, "RCPT TO:<u%d@d.example>\r\n", i);
        buf_free(&e.out);
        engine_feed(&e, line, strlen(line), &used);
        taken += *e.out.data == '2';
        ck_assert(*e.out.data == '2' || !strncmp(e.out.data, "452 4.5.3", 9));
    }
    ck_assert(taken > 0 && taken < 50 && (size_t)taken == e.nrecipients);
    says(&e, "DATA\r\n", ENGINE_DATA, "");
    engine_free(&e);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("proxy");
    TCase *t = tcase_create("proxy");
    tcase_add_test(t, content_loses_its_dots_and_nothing_else);
    tcase_add_test(t, content_ends_at_nothing_but_crlf_dot_crlf);
    tcase_add_test(t, header_loses_what_cleanup_drops);
    tcase_add_test(t, a_line_that_is_no_header_ends_the_header);
    tcase_add_test(t, what_postfix_would_mend_is_odd);
    tcase_add_test(t, a_bare_cr_is_seen);
    tcase_add_test(t, parts_with_odd_headers_are_seen);
    tcase_add_test(t, lines_and_hops_are_counted);
    tcase_add_test(t, only_addresses_that_postfix_would_not_change_are_plain);
    tcase_add_test(t, xforward_is_decoded);
    tcase_add_test(t, the_most_exact_route_counts);
    tcase_add_test(t, a_session_as_postfix_has_it);
    tcase_add_test(t, what_was_answered_ahead_is_refused_later);
    tcase_add_test(t, commands_are_answered_in_their_order);
    tcase_add_test(t, nothing_is_read_behind_what_postfix_never_sends);
    tcase_add_test(t, envelopes_are_bounded);
    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
