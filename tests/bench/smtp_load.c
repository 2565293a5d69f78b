/* smtp_load - sends numbered mails over many SMTP sessions at a time and times every answer.
 *
 *   smtp_load --to 127.0.0.1:25 --mails 6000 [options]
 *
 * Closed loop: each of N sessions sends its next mail when the last one was answered, so the server
 * sets the pace, and a server that stands still is asked nothing meanwhile: the slow moment shows
 * in one mail per session only (coordinated omission). Open loop (--rate): mail i is due at start +
 * i / rate whatever the server does, and due_to_250 counts from there; it is the latency a client
 * sees.
 *
 * Behaves as an MTA does: MAIL, RCPT and DATA go in one piece, the content with its final dot in
 * the next. --also sends to a second server one mail of the same size for each one that the first
 * has answered: the load that a gateway would have put on its next hop, without a gateway.
 * --next-hop is the other end: the gateway delivers to an address where this program itself
 * answers, and way_ms is the time of each mail from its 250 here to its 250 there; 0 when it was
 * there first.
 *
 * Any answer but the expected one ends the run with an error: there is no figure for a load that
 * was not carried. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/histogram.h"
#include "tests/bench/next_hop.h"

enum {
    MAX_SIZES = 8,
    HEAD_ROOM = 512, /* the least size of a mail; all of its header fits */
    REPLY_ROOM = 4096,
};

/* What a session waits for. */
enum step { CLOSED, GREETING, HELLO, IDLE, ENVELOPE, DOT, BYE };

struct session {
    struct target *target;
    struct session *next_idle;
    int fd;
    enum step step;
    unsigned replies;   /* ENVELOPE: how many of MAIL, RCPT, DATA are answered */
    unsigned sent_here; /* mails over this connection */
    uint64_t mail;      /* its number; ENVELOPE and DOT */
    uint64_t due;       /* when it should have begun (open loop), or did */
    uint64_t begun;     /* MAIL sent */
    uint64_t dot;       /* dot sent */
    char *out;          /* what is being written */
    size_t out_len, out_done;
    char in[REPLY_ROOM];
    size_t in_len;
};

/* One server, its sessions, and what was measured there. */
struct target {
    const char *name;
    struct sockaddr_in address;
    struct session *sessions;
    struct session *idle;
    unsigned nsessions;
    unsigned nready; /* past EHLO once */
    uint64_t allowed, begun, done, bytes;
    uint64_t finished; /* when the last answer came */
    struct histogram dot_to_250, mail_to_250, due_to_250;
};

static struct {
    uint64_t mails;
    double rate; /* mails a second; 0: closed loop */
    unsigned per_connection, users, seed;
    const char *run, *domain;
    struct {
        size_t bytes;
        unsigned weight;
        uint64_t mails;
    } sizes[MAX_SIZES];
    unsigned nsizes, weights;
} options = {.mails = 1000, .users = 1000, .run = "load", .domain = "sink.example", .seed = 1};

static struct {
    struct sockaddr_in address;
    uint64_t *accepted; /* per mail: when the first server's 250 came */
    bool wanted;
} hop;

static struct target first = {.name = "first", .nsessions = 20},
                     second = {.name = "second", .nsessions = 20};
static int loop;
static uint64_t started; /* 0 until all sessions are ready */
static char *filler;     /* text of the largest size, in lines */

static void open_session(struct session *s);
static void work(struct target *t);

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
    va_list args;
    fputs("smtp_load: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* ---- what is sent
 * ---------------------------------------------------------------------------------------------- */

/* The size of a mail depends on its number and the seed alone, so every run sends the same mix
 * in the same order. */
static unsigned size_of(uint64_t mail)
{
    uint64_t x = mail * 0x9e3779b97f4a7c15u + options.seed;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    unsigned draw = (unsigned)((x ^ (x >> 31)) % options.weights), i = 0;
    while (draw >= options.sizes[i].weight)
        draw -= options.sizes[i++].weight;
    return i;
}

static void make_filler(size_t bytes)
{
    static const char line[] =
        "The quick brown fox jumps over the lazy dog and the mail goes through it. 0123\r\n";
    filler = malloc(bytes + sizeof line);
    if (!filler)
        fail("no memory");
    for (size_t at = 0; at < bytes; at += sizeof line - 1)
        memcpy(filler + at, line, sizeof line - 1);
}

static void flush(struct session *s)
{
    bool waits = s->out_done > 0;
    while (s->out_done < s->out_len) {
        ssize_t n = write(s->fd, s->out + s->out_done, s->out_len - s->out_done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            fail("%s: write: %s", s->target->name, strerror(errno));
        if (n < 0)
            break;
        s->out_done += (size_t)n;
    }
    bool unfinished = s->out_done < s->out_len;
    if (unfinished || waits) {
        struct epoll_event event = {.events = EPOLLIN | (unfinished ? (unsigned)EPOLLOUT : 0u),
                                    .data.ptr = s};
        epoll_ctl(loop, EPOLL_CTL_MOD, s->fd, &event);
    }
    if (!unfinished)
        s->out_len = s->out_done = 0;
}

__attribute__((format(printf, 2, 3))) static void say(struct session *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(s->out, HEAD_ROOM, format, args);
    va_end(args);
    if (n < 0 || n >= HEAD_ROOM)
        fail("a command is too long");
    s->out_len = (size_t)n;
    s->out_done = 0;
    flush(s);
}

static void send_envelope(struct session *s)
{
    struct target *t = s->target;
    s->mail = t->begun++;
    s->begun = now();
    s->due = options.rate > 0 && t == &first
                 ? started + (uint64_t)((double)s->mail * 1e9 / options.rate)
                 : s->begun;
    s->step = ENVELOPE;
    s->replies = 0;
    s->sent_here++;
    say(s, "MAIL FROM:<load@stack.example> SIZE=%zu\r\nRCPT TO:<user%llu@%s>\r\nDATA\r\n",
        options.sizes[size_of(s->mail)].bytes, (unsigned long long)(s->mail % options.users),
        options.domain);
}

/* X-T0 is this machine's CLOCK_MONOTONIC, in nanoseconds, when the mail was due. X-Oracle-Id is
 * what the stack's recording sinks note. */
static void send_content(struct session *s)
{
    size_t bytes = options.sizes[size_of(s->mail)].bytes;
    unsigned long long mail = s->mail;
    char date[64];
    time_t seconds = time(NULL);
    struct tm broken;
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S +0000", gmtime_r(&seconds, &broken));
    int head =
        snprintf(s->out, HEAD_ROOM,
                 "From: load@stack.example\r\nTo: user%llu@%s\r\nDate: %s\r\n"
                 "Message-Id: <%s.%llu.%s@stack.example>\r\nSubject: load %llu\r\n"
                 "X-Oracle-Id: %s-%llu-%s\r\nX-T0: %llu\r\n\r\n",
                 mail % options.users, options.domain, date, options.run, mail, s->target->name,
                 mail, options.run, mail, s->target->name, (unsigned long long)s->due);
    if (head < 0 || head + 2 > (int)HEAD_ROOM)
        fail("the header does not fit into %d bytes", HEAD_ROOM);
    size_t body = bytes - (size_t)head;
    memcpy(s->out + head, filler, body);
    memcpy(s->out + bytes - 2, "\r\n.\r\n", 5);
    if (s->out[bytes - 3] == '\r') /* the filler was cut inside a line's end */
        s->out[bytes - 3] = '!';
    s->out_len = bytes + 3;
    s->out_done = 0;
    s->step = DOT;
    s->dot = now();
    flush(s);
}

/* ---- what is answered
 * ---------------------------------------------------------------------------------------------- */

static void become_idle(struct session *s)
{
    s->step = IDLE;
    s->next_idle = s->target->idle;
    s->target->idle = s;
}

static void mail_done(struct session *s)
{
    struct target *t = s->target;
    unsigned size = size_of(s->mail);
    t->finished = now();
    t->done++;
    t->bytes += options.sizes[size].bytes;
    histogram_add(&t->dot_to_250, t->finished - s->dot);
    histogram_add(&t->mail_to_250, t->finished - s->begun);
    histogram_add(&t->due_to_250, t->finished - s->due);
    if (hop.wanted && t == &first)
        hop.accepted[s->mail] = t->finished;
    if (t == &first) {
        options.sizes[size].mails++;
        if (second.nsessions) {
            second.allowed++;
            work(&second);
        }
    }
    if (options.per_connection && s->sent_here >= options.per_connection) {
        s->step = BYE;
        say(s, "QUIT\r\n");
    } else {
        become_idle(s);
    }
    work(t);
}

static void answered(struct session *s, const char *line)
{
    static const char *const expected[] = {
        [GREETING] = "220", [HELLO] = "250", [ENVELOPE] = "250", [DOT] = "250", [BYE] = "221"};
    const char *wanted = s->step == ENVELOPE && s->replies == 2 ? "354" : expected[s->step];
    if (s->step == IDLE || strncmp(line, wanted, 3) != 0)
        fail("%s: mail %llu: expected %s, got: %s", s->target->name, (unsigned long long)s->mail,
             wanted ? wanted : "nothing", line);
    switch (s->step) {
    case GREETING:
        s->step = HELLO;
        say(s, "EHLO load.stack.example\r\n");
        break;
    case HELLO:
        if (s->target->nready < s->target->nsessions)
            s->target->nready++;
        become_idle(s);
        work(s->target);
        break;
    case ENVELOPE:
        if (++s->replies == 3)
            send_content(s);
        break;
    case DOT: mail_done(s); break;
    default: break; /* BYE: the end of the connection says the rest */
    }
}

static void readable(struct session *s)
{
    ssize_t n = read(s->fd, s->in + s->in_len, sizeof s->in - 1 - s->in_len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        if (s->step != BYE)
            fail("%s: mail %llu: the server ended the connection%s%s", s->target->name,
                 (unsigned long long)s->mail, n < 0 ? ": " : "", n < 0 ? strerror(errno) : "");
        close(s->fd);
        s->step = CLOSED;
        if (s->target->begun < options.mails)
            open_session(s);
        return;
    }
    s->in_len += (size_t)n;
    s->in[s->in_len] = '\0';
    char *line = s->in, *end;
    while ((end = memchr(line, '\n', s->in_len - (size_t)(line - s->in)))) {
        *end = '\0';
        if (strnlen(line, 4) < 4 || line[3] != '-')
            answered(s, line);
        line = end + 1;
    }
    s->in_len -= (size_t)(line - s->in);
    memmove(s->in, line, s->in_len);
    if (s->in_len == sizeof s->in - 1)
        fail("%s: a reply line of more than %d bytes", s->target->name, REPLY_ROOM);
}

/* ---- sessions
 * -------------------------------------------------------------------------------------------------
 */

static void open_session(struct session *s)
{
    int one = 1;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0)
        fail("socket: %s", strerror(errno));
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(s->fd, (struct sockaddr *)&s->target->address, sizeof s->target->address) < 0 &&
        errno != EINPROGRESS)
        fail("%s: connect: %s", s->target->name, strerror(errno));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = s};
    if (epoll_ctl(loop, EPOLL_CTL_ADD, s->fd, &event) < 0)
        fail("epoll_ctl: %s", strerror(errno));
    s->step = GREETING;
    s->sent_here = 0;
    s->in_len = 0;
}

static void open_target(struct target *t, size_t largest)
{
    t->sessions = calloc(t->nsessions + 1, sizeof *t->sessions);
    if (!t->sessions)
        fail("no memory");
    for (unsigned i = 0; i < t->nsessions; i++) {
        struct session *s = &t->sessions[i];
        s->target = t;
        s->out = malloc(largest + HEAD_ROOM);
        if (!s->out)
            fail("no memory");
        open_session(s);
    }
}

/* Gives idle sessions what is allowed to begin. */
static void work(struct target *t)
{
    while (t->idle && t->begun < t->allowed) {
        struct session *s = t->idle;
        t->idle = s->next_idle;
        send_envelope(s);
    }
}

/* Asks every session to end, and waits for those that do. */
static void close_target(struct target *t)
{
    for (unsigned i = 0; i < t->nsessions; i++) {
        struct session *s = &t->sessions[i];
        if (s->step == CLOSED)
            continue;
        fcntl(s->fd, F_SETFL, 0);
        struct timeval patience = {.tv_sec = 1};
        setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (write(s->fd, "QUIT\r\n", 6) == 6)
            while (read(s->fd, s->in, sizeof s->in) > 0)
                ;
        close(s->fd);
    }
}

/* ---- the run
 * -------------------------------------------------------------------------------------------------
 */

/* Open loop: lets begin what is due by now, and sets the timer to the next. */
static void pace(int timer)
{
    uint64_t due = (uint64_t)((double)(now() - started) * options.rate / 1e9) + 1;
    first.allowed = due < options.mails ? due : options.mails;
    work(&first);
    if (first.allowed == options.mails)
        return;
    uint64_t next = started + (uint64_t)((double)first.allowed * 1e9 / options.rate);
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(next / 1000000000u),
                                           .tv_nsec = (long)(next % 1000000000u)}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void start(int timer)
{
    started = now();
    if (options.rate > 0) {
        pace(timer);
    } else {
        first.allowed = options.mails;
        work(&first);
    }
}

static bool finished(void)
{
    return first.done >= options.mails && (!second.nsessions || second.done >= options.mails);
}

static void run(void)
{
    struct epoll_event events[256];
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(loop, EPOLL_CTL_ADD, timer, &event);
    while (!finished()) {
        int n = epoll_wait(loop, events, 256, 60000);
        if (n == 0)
            fail("nothing happened for a minute; %llu of %llu mails done",
                 (unsigned long long)first.done, (unsigned long long)options.mails);
        for (int i = 0; i < n; i++) {
            struct session *s = events[i].data.ptr;
            if (!s) {
                uint64_t times;
                if (read(timer, &times, sizeof times) > 0)
                    pace(timer);
                continue;
            }
            if (events[i].events & EPOLLOUT)
                flush(s);
            if (events[i].events & ~(unsigned)EPOLLOUT)
                readable(s);
        }
        if (!started && first.nready == first.nsessions && second.nready == second.nsessions)
            start(timer);
    }
}

/* Mails that are delivered later than all are accepted. */
static void wait_for_next_hop(void)
{
    for (unsigned tenths = 0; next_hop_count() < options.mails; tenths++) {
        if (tenths == 600)
            fail("%llu of %llu mails came to the next hop within a minute",
                 (unsigned long long)next_hop_count(), (unsigned long long)options.mails);
        usleep(100000);
    }
}

static void print_way(void)
{
    static struct histogram way;
    for (uint64_t i = 0; i < options.mails; i++) {
        uint64_t there = next_hop_answered(i), here = hop.accepted[i];
        histogram_add(&way, there > here ? there - here : 0);
    }
    printf(", \"twice\": %llu, \"way_ms\": ", (unsigned long long)next_hop_twice());
    histogram_print(stdout, &way);
}

static void print_target(const struct target *t)
{
    double seconds = (double)(t->finished - started) / 1e9;
    printf("{\"mails\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"mails_per_second\": %.2f, "
           "\"dot_to_250_ms\": ",
           (unsigned long long)t->done, (unsigned long long)t->bytes, seconds,
           (double)t->done / seconds);
    histogram_print(stdout, &t->dot_to_250);
    printf(", \"mail_to_250_ms\": ");
    histogram_print(stdout, &t->mail_to_250);
    if (options.rate > 0 && t == &first) {
        printf(", \"due_to_250_ms\": ");
        histogram_print(stdout, &t->due_to_250);
    }
    printf("}");
}

static void print(uint64_t start_realtime)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"sessions\": %u, \"rate\": %.2f, \"start_ns\": %llu, \"sizes\": {", first.nsessions,
           options.rate, (unsigned long long)start_realtime);
    for (unsigned i = 0; i < options.nsizes; i++)
        printf("%s\"%zu\": %llu", i ? ", " : "", options.sizes[i].bytes,
               (unsigned long long)options.sizes[i].mails);
    printf("}, \"cpu_ms\": %.3f, \"first\": ",
           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3);
    print_target(&first);
    if (second.nsessions) {
        printf(", \"second\": ");
        print_target(&second);
    }
    if (hop.wanted)
        print_way();
    printf("}\n");
}

/* ---- options
 * -------------------------------------------------------------------------------------------------
 */

static const char usage[] =
    "usage: smtp_load --to HOST:PORT [options]\n"
    "  --mails N            how many (1000)\n"
    "  --sessions N         connections at a time (20)\n"
    "  --per-connection N   mails over one connection; 0: no limit (0)\n"
    "  --rate R             open loop, R mails a second (0: closed loop)\n"
    "  --sizes B[:W],...    bytes of a mail with its header, and weights: 1024:70,10240:30 (1024)\n"
    "  --also HOST:PORT     one mail of the same size to here for each one answered\n"
    "  --also-sessions N    connections there (20)\n"
    "  --next-hop HOST:PORT be the server that the mails come out at\n"
    "  --domain NAME        recipients are userN@NAME (sink.example)\n"
    "  --users N            how many different recipients (1000)\n"
    "  --run TEXT           part of every id (load)\n"
    "  --seed N             of the order of sizes (1)\n"
    "Prints one JSON object.\n";

__attribute__((noreturn)) static void misused(const char *what, const char *value)
{
    fprintf(stderr, "smtp_load: %s%s%s\n%s", what, value ? ": " : "", value ? value : "", usage);
    exit(2);
}

static unsigned long number(const char *name, const char *text, unsigned long least,
                            unsigned long most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end || *text == '-' || value < least || value > most)
        misused(name, text);
    return value;
}

static void read_address(const char *text, struct sockaddr_in *address)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof host)
        misused("not an address", text);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)number("not a port", colon + 1, 1, 65535));
    if (inet_pton(AF_INET, host, &address->sin_addr) != 1)
        misused("not an IPv4 address", host);
}

static void read_sizes(char *text)
{
    char *rest, *part = strtok_r(text, ",", &rest);
    for (options.nsizes = options.weights = 0; part; part = strtok_r(NULL, ",", &rest)) {
        if (options.nsizes == MAX_SIZES)
            misused("too many sizes", part);
        char *colon = strchr(part, ':');
        if (colon)
            *colon++ = '\0';
        options.sizes[options.nsizes].bytes =
            number("a size is from 512 bytes to 64 MB", part, HEAD_ROOM, 64 << 20);
        options.sizes[options.nsizes].weight =
            colon ? (unsigned)number("not a weight", colon, 1, 10000) : 1;
        options.weights += options.sizes[options.nsizes++].weight;
    }
    if (!options.nsizes)
        misused("--sizes is empty", NULL);
}

static size_t largest_size(void)
{
    size_t largest = 0;
    for (unsigned i = 0; i < options.nsizes; i++)
        if (options.sizes[i].bytes > largest)
            largest = options.sizes[i].bytes;
    return largest;
}

static void read_options(int argc, char **argv)
{
    static const struct option known[] = {{"to", required_argument, NULL, 't'},
                                          {"mails", required_argument, NULL, 'm'},
                                          {"sessions", required_argument, NULL, 's'},
                                          {"per-connection", required_argument, NULL, 'c'},
                                          {"rate", required_argument, NULL, 'r'},
                                          {"sizes", required_argument, NULL, 'z'},
                                          {"also", required_argument, NULL, 'a'},
                                          {"also-sessions", required_argument, NULL, 'A'},
                                          {"domain", required_argument, NULL, 'd'},
                                          {"users", required_argument, NULL, 'u'},
                                          {"run", required_argument, NULL, 'n'},
                                          {"seed", required_argument, NULL, 'S'},
                                          {"next-hop", required_argument, NULL, 'N'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    char standard[] = "1024";
    read_sizes(standard);
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 't': read_address(optarg, &first.address); break;
        case 'a': read_address(optarg, &second.address); break;
        case 'N':
            read_address(optarg, &hop.address);
            hop.wanted = true;
            break;
        case 'm': options.mails = number("--mails", optarg, 1, 1000000000); break;
        case 's': first.nsessions = (unsigned)number("--sessions", optarg, 1, 20000); break;
        case 'A': second.nsessions = (unsigned)number("--also-sessions", optarg, 1, 20000); break;
        case 'c':
            options.per_connection = (unsigned)number("--per-connection", optarg, 0, 1000000000);
            break;
        case 'r': options.rate = (double)number("--rate", optarg, 0, 1000000); break;
        case 'z': read_sizes(optarg); break;
        case 'd': options.domain = optarg; break;
        case 'u': options.users = (unsigned)number("--users", optarg, 1, 1000000000); break;
        case 'n': options.run = optarg; break;
        case 'S': options.seed = (unsigned)number("--seed", optarg, 0, 4294967295u); break;
        case 'h': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (optind < argc)
        misused("unknown word", argv[optind]);
    if (!first.address.sin_port)
        misused("--to is missing", NULL);
    if (!second.address.sin_port)
        second.nsessions = 0;
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    loop = epoll_create1(EPOLL_CLOEXEC);
    if (loop < 0)
        fail("epoll_create1: %s", strerror(errno));
    size_t largest = largest_size();
    make_filler(largest);
    if (hop.wanted) {
        hop.accepted = calloc(options.mails, sizeof *hop.accepted);
        const char *why =
            hop.accepted ? next_hop_open(&hop.address, options.run, options.mails) : "no memory";
        if (why)
            fail("--next-hop: %s", why);
    }
    open_target(&first, largest);
    open_target(&second, largest);
    run();
    if (hop.wanted)
        wait_for_next_hop();
    uint64_t start_realtime = clock_ns(CLOCK_REALTIME) - (now() - started);
    print(start_realtime);
    fflush(stdout);
    close_target(&first);
    close_target(&second);
    return 0;
}
