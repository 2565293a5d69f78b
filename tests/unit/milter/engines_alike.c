/* engines-alike - both engines of the milter hear the same and answer the same.
 *
 *   engines-alike DIRECTORY [SESSIONS [SEED]]
 *
 * Both listen, each on a socket of its own, with a session of this test behind them
 * (stub_session.c) that writes down what it hears and answers by the queue id. What was recorded
 * from Postfix (DIRECTORY) is said to both, cut at each of its bytes; then SESSIONS generated ones,
 * as Postfix may speak, whole, cut, byte by byte, or broken off.
 *
 * What may differ (agreed):
 *   - libmilter answers the end of the header (c), and writes progress before each answer (p);
 *   - at the end of a connection libmilter aborts a mail that is under way;
 *   - a new client on the same connection (K): Postfix never says it, and it is not tried;
 *   - our own engine hears a piece of the body that is not complete: bodies are compared when the
 *   message is;
 *   - the last packet of a message may have content in it, which ours takes; libmilter then does
 *     not ask us at the end, and nothing is answered. Postfix sends none there;
 *   - a macro of the end of the header that the end of the message does not repeat: libmilter still
 *     knows it. Postfix repeats the queue id, the only one that is used there;
 *   - a packet of macros without one: libmilter still knows those of the recipient before. Postfix
 *     has all three for each recipient that it accepts;
 *   - a message that must not be answered: ours closes the connection, libmilter leaves it
 *   without an answer. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "tests/unit/milter/stub_session.h"

#include "lib/daemon/listener.h"
#include "lib/daemon/program.h"
#include "milter/session.h"

static const struct engine *const engines[] = {&engine_own, &engine_libmilter};
enum { ENGINES = 2, PATIENCE = 60000 /* ms */ };
static char path[ENGINES][100];

static struct {
    const char *engine;
    size_t at; /* the packet */
    char command;
    const struct buf *in;
} now;

static void fail(const char *what)
{
    fprintf(stderr, "engines-alike: %s (%s, at %zu, packet %c)\n", what, now.engine, now.at,
            now.command);
    if (now.in)
        fwrite(now.in->data, 1, now.in->len, stderr);
    abort();
}

/* ---- one session ---- */

struct admin_notice {
    struct buf events, answers;
};

static void read_some(int fd, void *data, size_t len, bool *over)
{
    size_t n = 0;
    while (n < len && !*over) {
        struct pollfd p = {fd, POLLIN, 0};
        ssize_t got = poll(&p, 1, PATIENCE) == 1 ? recv(fd, (char *)data + n, len - n, 0) : -1;
        if (got < 0 && errno != ECONNRESET)
            fail("no answer in time");
        *over = got <= 0;
        n += got > 0 ? (size_t)got : 0;
    }
}

/* One packet of the milter. c and p are no answer. False: the connection is over. */
static bool read_packet(int fd, struct buf *answers, char *command_r)
{
    unsigned char head[5];
    char data[2048];
    bool over = false;
    read_some(fd, head, sizeof head, &over);
    if (over)
        return false;
    size_t len = ((size_t)head[2] << 8 | head[3]) - 1;
    if (head[0] || head[1] || len > sizeof data)
        fail("a large answer");
    read_some(fd, data, len, &over);
    *command_r = (char)head[4];
    if (*command_r == 'c' || *command_r == 'p')
        return !over;
    buf_addc(answers, *command_r);
    if (*command_r != 'O') /* what the two negotiate differs */
        buf_add(answers, data, len);
    buf_addc(answers, '\n');
    return !over;
}

/* Waits until the milter has read what was sent, so that it has seen the cut; not for long. */
static void let_it_read(int fd)
{
    int waiting = 1;
    for (int i = 0; i < 30 && ioctl(fd, SIOCOUTQ, &waiting) == 0 && waiting; i++)
        nanosleep(&(struct timespec){0, 100000}, NULL);
}

static bool send_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

static int reach(const char *to)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(un.sun_path, to);
    if (fd < 0 || connect(fd, (struct sockaddr *)&un, sizeof un) < 0)
        fail("cannot connect");
    return fd;
}

static size_t packet_len(const char *data)
{
    const unsigned char *at = (const void *)data;
    return 4 + ((size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3]);
}

/* Waits for an answer, or for the stub's word that there is none: libmilter does not close the
 * connection then. */
static bool answered(int fd)
{
    for (int i = 0; i < PATIENCE; i++) {
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, 1) == 1)
            return true;
        if (stub_unanswered())
            return false;
    }
    return true;
}

/* Awaits what Postfix would await behind this packet. False: the connection is over. */
static bool await(int fd, char packet, int which, struct buf *answers)
{
    char command = ' ';
    bool open = true;
    if (packet == 'O')
        return read_packet(fd, answers, &command);
    if (packet == 'N' && engines[which] == &engine_libmilter)
        return read_packet(fd, answers, &command) &&
               (command == 'c' || (fail("no answer to the end of the header"), false));
    while (open && packet == 'E' && !strchr("ady", command))
        open = answered(fd) && read_packet(fd, answers, &command);
    return open;
}

/* Says the bytes, cut before `cut` (and with `each`, everywhere), and waits for answers as
 * Postfix does. */
static struct admin_notice speak(int which, const struct buf *in, size_t cut, bool each)
{
    struct admin_notice said = {{0}, {0}};
    int fd = reach(path[which]);
    bool open = true;
    now.engine = engines[which]->name;
    now.in = in;
    stub_begin();
    for (size_t at = 0; open && at < in->len;) {
        size_t len = in->len - at >= 5 ? packet_len(in->data + at) : in->len - at, end = at + len;
        bool whole = in->len - at >= 5 && end <= in->len;
        char command = in->len - at >= 5 ? in->data[at + 4] : ' ';
        now.at = at;
        now.command = command;
        for (end = end < in->len ? end : in->len; open && at < end;) {
            size_t to = each ? at + 1 : at < cut && cut < end ? cut : end;
            open = send_all(fd, in->data + at, to - at);
            at = to;
            if (open && at == cut)
                let_it_read(fd);
        }
        if (open && whole)
            open = await(fd, command, which, &said.answers);
    }
    shutdown(fd, SHUT_WR);
    for (char command; read_packet(fd, &said.answers, &command);)
        ;
    close(fd);
    said.events = stub_heard();
    return said;
}

static void show(const char *what, const struct buf *b)
{
    fprintf(stderr, "---- %s\n", what);
    fwrite(b->data, 1, b->len, stderr);
    fprintf(stderr, "\n");
}

static bool same(const struct buf *a, const struct buf *b)
{
    return a->len == b->len && (!a->len || !memcmp(a->data, b->data, a->len));
}

static void compare(const struct buf *in, size_t cut, bool each)
{
    struct admin_notice a = speak(0, in, cut, each), b = speak(1, in, cut, each);
    if (!same(&a.events, &b.events) || !same(&a.answers, &b.answers)) {
        show("own heard", &a.events);
        show("libmilter heard", &b.events);
        show("own answered", &a.answers);
        show("libmilter answered", &b.answers);
        fail("the engines differ");
    }
    buf_free(&a.events);
    buf_free(&a.answers);
    buf_free(&b.events);
    buf_free(&b.answers);
}

/* ---- what was recorded ---- */

static void add_packet(struct buf *out, char command, const void *data, size_t len)
{
    unsigned char head[5] = {(unsigned char)((len + 1) >> 24), (unsigned char)((len + 1) >> 16),
                             (unsigned char)((len + 1) >> 8), (unsigned char)(len + 1),
                             (unsigned char)command};
    buf_add(out, head, sizeof head);
    buf_add(out, data, len);
}

/* With the end of the header, which our own engine has Postfix leave out. */
static struct buf with_eoh(const struct buf *in)
{
    struct buf out = {0};
    bool in_header = false;
    for (size_t at = 0, len; at < in->len; at += len) {
        char command = in->data[at + 4];
        len = packet_len(in->data + at);
        if ((command == 'B' || command == 'E') && in_header)
            add_packet(&out, 'N', "", 0);
        in_header = command == 'M' || (in_header && command != 'B' && command != 'E');
        buf_add(&out, in->data + at, len);
    }
    return out;
}

static size_t recordings(const char *directory)
{
    static const char *const names[] = {"postfix-3.7.milter", "postfix-3.10.milter"};
    size_t cuts = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[4096], bytes[65536];
        struct buf in = {0};
        snprintf(name, sizeof name, "%s/%s", directory, names[i]);
        FILE *f = fopen(name, "rb");
        if (!f)
            fail(name);
        for (size_t n; (n = fread(bytes, 1, sizeof bytes, f));)
            buf_add(&in, bytes, n);
        fclose(f);
        struct buf said = with_eoh(&in);
        for (size_t cut = 0; cut <= said.len; cut++, cuts++)
            compare(&said, cut, false);
        compare(&said, 0, true);
        buf_free(&in);
        buf_free(&said);
    }
    return cuts;
}

/* ---- what is generated ---- */

static unsigned long long state;

static unsigned pick(unsigned n)
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(state >> 33) % n;
}

#define ONE_OF(list) list[pick(sizeof list / sizeof *list)]

static void add_text(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s) + 1);
}

static void add_macros(struct buf *out, char command, const char *const *pairs)
{
    struct buf b = {0};
    buf_addc(&b, command);
    for (; *pairs; pairs += 2) {
        add_text(&b, pairs[0]);
        add_text(&b, pairs[1]);
    }
    add_packet(out, 'D', b.data, b.len);
    buf_free(&b);
}

/* Some of the pairs, one at least. */
static void macros(struct buf *out, char command, const char *const *pairs)
{
    const char *some[20] = {NULL};
    for (size_t n = 0; *pairs; pairs += 2)
        if (!n || pick(4)) {
            some[n++] = pairs[0];
            some[n++] = pairs[1];
        }
    add_macros(out, command, some);
}

static void add_address(struct buf *out, char command)
{
    static const char *const addresses[] = {"<a@b.example>", "<>", "<\"q u\"@x.example>",
                                            "<u+t@a.example>", "<gr\xc3\xbc@x>"};
    static const char *const args[] = {"SIZE=100", "BODY=8BITMIME", "NOTIFY=NEVER",
                                       "ORCPT=rfc822;x@y", ""};
    struct buf b = {0};
    add_text(&b, ONE_OF(addresses));
    for (unsigned n = pick(3); n; n--)
        add_text(&b, ONE_OF(args));
    add_packet(out, command, b.data, b.len);
    buf_free(&b);
}

static void add_headers(struct buf *out)
{
    static const char *const names[] = {"Subject", "X-A", "Dovelane-Id", "received", "To"};
    static const char *const values[] = {
        "", " x", "x", " one\n\ttwo\n three", "\ttab", " gr\xc3\xbc\xc3\x9f", "  ", " a:b"};
    for (unsigned n = pick(5); n; n--) {
        struct buf b = {0};
        add_text(&b, ONE_OF(names));
        add_text(&b, ONE_OF(values));
        add_packet(out, 'L', b.data, b.len);
        buf_free(&b);
    }
}

static void add_body(struct buf *out)
{
    static const char *const pieces[] = {"hello\r\n", "\r\n", "x", ".\r\n", "\r", "\n", "\0nul"};
    for (unsigned n = pick(3); n; n--) {
        struct buf b = {0};
        for (unsigned m = 1 + pick(pick(20) ? 6 : 9000); m; m--) {
            const char *piece = ONE_OF(pieces);
            buf_add(&b, piece, *piece ? strlen(piece) : 4);
        }
        add_packet(out, 'B', b.data, b.len < 65535 ? b.len : 65535);
        buf_free(&b);
    }
}

/* One mail, or some of one. */
static void add_mail(struct buf *out)
{
    static const char *const of_mail[] = {"{mail_addr}",   "a@b.example", "{auth_type}", "PLAIN",
                                          "{auth_authen}", "u",           NULL};
    static const char *const of_rcpt[] = {
        "{rcpt_mailer}", "smtp",        "{rcpt_host}", "[127.0.0.1]:25",
        "{rcpt_addr}",   "a@b.example", NULL};
    /* stub_session.c: what becomes of it */
    static const char *const ids[] = {"A", "D", "T", "R", "M", "G"};
    const char *const id[] = {pick(8) ? "i" : NULL, pick(12) ? ids[pick(5)] : ids[pick(6)], NULL};
    unsigned stage = pick(8); /* where it is given up; mostly not */
    macros(out, 'M', of_mail);
    add_address(out, 'M');
    for (unsigned n = stage ? 1 + pick(3) : 0; n; n--) {
        macros(out, 'R', of_rcpt);
        add_address(out, 'R');
    }
    if (stage > 1)
        add_headers(out);
    if (stage > 2) {
        add_macros(out, 'N', id);
        add_packet(out, 'N', "", 0);
        add_body(out);
    }
    if (stage > 3) {
        add_macros(out, 'E', id);
        add_packet(out, 'E', "", 0);
    }
    if (stage < 4 || pick(2))
        add_packet(out, 'A', "", 0);
}

static void add_client(struct buf *out)
{
    static const char *const of_client[] = {"j", "mx.example", "{client_name}", "unknown", NULL};
    static const char *const of_helo[] = {"{tls_version}", "TLSv1.3", "{cipher}", "X", NULL};
    static const struct {
        const char *data;
        size_t len;
    } clients[] = {{"c\0"
                    "4\x1f\x90"
                    "192.0.2.1",
                    15},
                   {"c\0"
                    "6\0\x19"
                    "IPv6:2001:db8::1",
                    22},
                   {"c\0U", 3},
                   {"[x]\0"
                    "4\0\0"
                    "127.0.0.1",
                    17}};
    unsigned which = pick(4);
    macros(out, 'C', of_client);
    add_packet(out, 'C', clients[which].data, clients[which].len);
    if (pick(5)) {
        macros(out, 'H', of_helo);
        add_packet(out, 'H', "client.example", 15);
    }
}

static struct buf generate(void)
{
    struct buf out = {0};
    add_packet(&out, 'O', "\0\0\0\6\0\0\1\xff\0\x1f\xff\xff", 12);
    add_client(&out);
    for (unsigned n = pick(4); n; n--)
        add_mail(&out);
    if (pick(2))
        add_packet(&out, 'Q', "", 0);
    return out;
}

static void generated(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct buf in = generate();
        size_t cut = pick((unsigned)in.len);
        if (!pick(8))
            in.len = 17 + pick((unsigned)in.len - 17); /* broken off */
        compare(&in, cut, in.len < 1000 && !pick(20));
        buf_free(&in);
    }
}

/* ---- */

static void *feed(void *arg)
{
    char **argv = arg;
    size_t n = argv[2] ? strtoul(argv[2], NULL, 10) : 2000;
    state = argv[2] && argv[3] ? strtoull(argv[3], NULL, 10) : 1;
    size_t cuts = recordings(argv[1]);
    generated(n);
    printf("%zu cuts of what was recorded, %zu generated sessions: both engines alike\n", cuts, n);
    fflush(stdout);
    for (int i = 0; i < ENGINES; i++)
        unlink(path[i]);
    _exit(0);
}

int main(int argc, char **argv)
{
    static struct config config = {.metrics_socket = (char *)"", .milter_memory = 1 << 30};
    struct program program = {.name = "engines-alike", .config = &config};
    pthread_t feeder;
    if (argc < 2)
        return 2;
    milter.config = &config;
    milter.loop = ev_loop_new(EVFLAG_AUTO);
    for (int i = 0; i < ENGINES; i++) {
        snprintf(path[i], sizeof path[i], "/tmp/engines-alike.%d.%s", (int)getpid(),
                 engines[i]->name);
        struct listener_options o = {
            .setting = "milter_socket", .path = path[i], .group = (gid_t)-1, .mode = 0600};
        engines[i]->open(&program, &o);
    }
    if (pthread_create(&feeder, NULL, feed, argv))
        return 1;
    ev_run(milter.loop, 0);
    return 1;
}
