/* dovelane top - what is going on, once a second: nodes, next hops, lanes, replicas. All servers are
 * asked at the same time (top_reader.h), so that one that is away costs nothing but its rows. */
#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "ctl/out.h"
#include "ctl/row.h"
#include "ctl/top_reader.h"
#include "ctl/top_screen.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"

#define EVERY 1.     /* seconds between two questions */
#define ONCE_MOST 3. /* seconds for which --once waits */
#define SHOWN 200    /* rows that a screen may have of each */
#define ANSWER 400   /* bytes of a command's answer that are shown */

static const char help[] =
    "usage: dovelane top [--sort depth|age|rate|name] [--lines N] [--once]\n"
    "Nodes, next hops, lanes and what waits for replicas, once a second. Keys: d a r n sort by "
    "depth, age, rate, name. Up and down choose a next hop, h holds its mail,\n"
    "u releases it, f flushes it (each asks before); ? explains the columns; q quits.\n"
    "  --once     prints it once, with rates over one second, and ends (with -j: one JSON "
    "document)\n"
    "  --sort     by what at first (depth)\n"
    "  --lines N  of next hops, lanes and replicas each, with --once (20; 0: all)\n"
    "A server that does not answer is shown as away, and holds up nothing.\n"
    "Exit status of --once: 0 all answer and are alive; 1 look; 2 none answers.";

const struct option top_options[] = {{"once", no_argument, NULL, 'o'},
                                     {"sort", required_argument, NULL, 's'},
                                     {"lines", required_argument, NULL, 'l'},
                                     {"help", no_argument, NULL, 'h'},
                                     {0}};

struct display {
    struct ctl *ctl;
    struct ev_loop *loop;
    struct top *top;
    struct top_reader *reader;
    ev_timer tick;
    ev_io keys, answer;
    ev_signal interrupted, terminated;
    enum top_sort sort;
    char *selected; /* the next hop; NULL: the first */
    char *asked;    /* the verb to which y is the answer; NULL: none */
    char *asked_of; /* the next hop that the question names: another may be selected by then */
    char *message;
    bool help;
    pid_t child; /* the command that runs; 0: none */
    char text[ANSWER + 1];
    size_t text_len;
    double began;
    size_t lines;
};

static const char *const sorts[] = {"depth", "age", "rate", "name"};

static void say(struct display *d, char *message)
{
    free(d->message);
    d->message = message;
}

/* ---- drawing ---- */

static char *title(const struct display *d)
{
    char when[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    if (localtime_r(&now, &tm))
        strftime(when, sizeof when, "%H:%M:%S", &tm);
    return mem_printf("dovelane top  %s  %s  by %s  ? help  q quit", when, d->ctl->config_path,
                      sorts[d->sort]);
}

/* The row of the next hop that is selected; the first where that one is gone. */
static size_t selected_row(struct display *d, const json_t *rows)
{
    size_t n = row_size(rows, "next_hops");
    for (size_t i = 0; d->selected && i < n; i++)
        if (!strcmp(row_get_text(row_item(rows, "next_hops", i), "next_hop"), d->selected))
            return i;
    free(d->selected);
    d->selected = n ? mem_strdup(row_get_text(row_item(rows, "next_hops", 0), "next_hop")) : NULL;
    return 0;
}

static void draw(struct display *d)
{
    json_t *rows = top_rows(d->top, d->sort, SHOWN, clock_monotonic());
    char *first = title(d);
    struct top_picture p = {rows, first, d->message ? d->message : "", d->sort, 0, d->help};
    p.selected = selected_row(d, rows);
    top_screen_draw(&p);
    free(first);
    json_decref(rows);
}

/* ---- commands ---- */

/* The last line is what it came to; a new one begins with what follows the newline. */
static void add_answer(struct display *d, char c)
{
    if (d->text_len && d->text[d->text_len - 1] == '\n')
        d->text_len = 0;
    if (d->text_len < ANSWER || c == '\n')
        d->text[d->text_len < ANSWER ? d->text_len++ : ANSWER - 1] = c;
}

static void on_answer(struct ev_loop *loop, ev_io *w, int events)
{
    struct display *d = w->data;
    char text[512];
    ssize_t n = read(w->fd, text, sizeof text);
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    for (ssize_t i = 0; i < n; i++)
        add_answer(d, text[i]);
    if (n > 0)
        return;
    d->text[d->text_len] = '\0';
    d->text[strcspn(d->text, "\n")] = '\0';
    ev_io_stop(loop, w);
    close(w->fd);
    waitpid(d->child, NULL, 0);
    d->child = 0;
    say(d, mem_strdup(d->text));
    draw(d);
}

/* This program again: a command may wait for a node. */
static void start(struct display *d, const char *verb, const char *next_hop)
{
    int ends[2];
    const char *argv[] = {"dovelane", "-c", d->ctl->config_path, verb, "--yes", "--dest",
                          next_hop,   NULL};
    if (d->child || pipe2(ends, O_CLOEXEC) < 0)
        return;
    d->child = fork();
    if (!d->child) {
        int null = open("/dev/null", O_RDONLY);
        dup2(null, STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execv("/proc/self/exe", (char **)argv);
        _exit(STATUS_FAILED);
    }
    close(ends[1]);
    d->text_len = 0;
    if (d->child < 0) {
        d->child = 0;
        close(ends[0]);
        return;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    ev_io_init(&d->answer, on_answer, ends[0], EV_READ);
    d->answer.data = d;
    ev_io_start(d->loop, &d->answer);
    say(d, mem_printf("%s %s ...", verb, next_hop));
}

static void forget_question(struct display *d)
{
    free(d->asked);
    free(d->asked_of);
    d->asked = d->asked_of = NULL;
}

static void ask_first(struct display *d, const char *verb)
{
    if (!d->selected || d->child)
        return;
    forget_question(d);
    d->asked = mem_strdup(verb);
    d->asked_of = mem_strdup(d->selected);
    say(d, mem_printf("%s all mail for %s? [y/n]", verb, d->asked_of));
}

/* ---- keys ---- */

static void move(struct display *d, int by)
{
    json_t *rows = top_rows(d->top, d->sort, SHOWN, clock_monotonic());
    size_t n = row_size(rows, "next_hops"), at = selected_row(d, rows);
    if (n && !(by < 0 && !at) && at + (size_t)(by > 0) < n) {
        free(d->selected);
        at += (size_t)by;
        d->selected = mem_strdup(row_get_text(row_item(rows, "next_hops", at), "next_hop"));
    }
    json_decref(rows);
}

/* False: quit. */
static bool press(struct display *d, int key)
{
    if (d->asked) {
        if (key == 'y')
            start(d, d->asked, d->asked_of);
        else if (key == TOP_KEY_RESIZE)
            return true; /* no answer */
        else
            say(d, NULL);
        forget_question(d);
        return true;
    }
    switch (key) {
    case 'q': return false;
    case 'd': d->sort = TOP_BY_DEPTH; break;
    case 'a': d->sort = TOP_BY_AGE; break;
    case 'r': d->sort = TOP_BY_RATE; break;
    case 'n': d->sort = TOP_BY_NAME; break;
    case 'h': ask_first(d, "hold"); break;
    case 'u': ask_first(d, "release"); break;
    case 'f': ask_first(d, "flush"); break;
    case '?': d->help = !d->help; break;
    case 'k':
    case TOP_KEY_UP: move(d, -1); break;
    case 'j':
    case TOP_KEY_DOWN: move(d, 1); break;
    default: break;
    }
    return true;
}

static void hear(struct display *d)
{
    for (int key; (key = top_screen_key()) != TOP_KEY_NONE;)
        if (!press(d, key))
            ev_break(d->loop, EVBREAK_ALL);
}

static void on_keys(struct ev_loop *loop, ev_io *w, int events)
{
    (void)events;
    hear(w->data);
    draw(w->data);
    if (!isatty(w->fd))
        ev_break(loop, EVBREAK_ALL); /* the terminal is gone */
}

static void on_tick(struct ev_loop *loop, ev_timer *w, int events)
{
    struct display *d = w->data;
    (void)loop;
    (void)events;
    top_reader_ask(d->reader);
    hear(d); /* a new size comes without a byte */
    draw(d);
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int events)
{
    (void)w;
    (void)events;
    ev_break(loop, EVBREAK_ALL);
}

static void watch_signal(struct display *d, ev_signal *w, int number)
{
    ev_signal_init(w, on_signal, number);
    ev_signal_start(d->loop, w);
}

static void show(struct display *d)
{
    const char *why = out_is_json() ? "with -j, say --once, too" : top_screen_open();
    if (why)
        ctl_usage("top: %s", why);
    ev_timer_init(&d->tick, on_tick, 0.3, EVERY);
    ev_io_init(&d->keys, on_keys, STDIN_FILENO, EV_READ);
    d->tick.data = d->keys.data = d;
    ev_timer_start(d->loop, &d->tick);
    ev_io_start(d->loop, &d->keys);
    watch_signal(d, &d->interrupted, SIGINT);
    watch_signal(d, &d->terminated, SIGTERM);
    ev_run(d->loop, 0);
    top_screen_close();
}

/* ---- once ---- */

/* Two answers of each, between which its rates are; of one that is away the time to connect. */
static void on_once(struct ev_loop *loop, ev_timer *w, int events)
{
    struct display *d = w->data;
    double age = clock_monotonic() - d->began;
    bool all = true;
    (void)events;
    for (size_t i = 0; i < top_servers(d->top); i++)
        all &= top_reader_rounds(d->reader, i) >= 2;
    if (all || age >= ONCE_MOST)
        ev_break(loop, EVBREAK_ALL);
    else if (age >= EVERY)
        top_reader_ask(d->reader);
}

static void show_row(enum top_list list, const json_t *row)
{
    char *line = top_line(list, row);
    out("%s\n", line);
    free(line);
}

static void show_node_row(const json_t *row)
{
    show_row(TOP_NODES, row);
}

static void show_hop_row(const json_t *row)
{
    show_row(TOP_HOPS, row);
}

static void show_lane_row(const json_t *row)
{
    show_row(TOP_LANES, row);
}

static void show_replica_row(const json_t *row)
{
    show_row(TOP_REPLICAS, row);
}

static void print_list(enum top_list list, const json_t *rows)
{
    static void (*const row[])(const json_t *) = {show_node_row, show_hop_row, show_lane_row,
                                                  show_replica_row};
    const struct out_kind kind = {top_list_name(list), row[list]};
    size_t n = row_size(rows, kind.list);
    char *heading = top_heading(list);
    if (n && list != TOP_NODES)
        out("\n");
    if (n || list == TOP_NODES)
        out("%s\n", heading);
    free(heading);
    for (size_t i = 0; i < n; i++)
        out_row(&kind, json_incref((json_t *)row_item(rows, kind.list, i)));
}

static void print_once(struct display *d)
{
    static const char *const lists[] = {"nodes", "next_hops", "lanes", "replicas", NULL};
    size_t fresh = 0;
    ev_timer_init(&d->tick, on_once, 0.1, 0.1);
    d->tick.data = d;
    ev_timer_start(d->loop, &d->tick);
    ev_run(d->loop, 0);
    double now = clock_monotonic();
    json_t *rows = top_rows(d->top, d->sort, d->lines, now);
    for (size_t i = 0; i < top_servers(d->top); i++) {
        struct top_server_view v = top_server(d->top, i, now);
        fresh += v.fresh;
        if (!v.fresh || (v.node && v.state != STATE_ALIVE))
            ctl_status(d->ctl, STATUS_LOOK);
    }
    if (!fresh)
        ctl_usage("no node answers");
    out_begin("top/1", lists);
    for (int i = 0; i < TOP_LISTS; i++)
        print_list((enum top_list)i, rows);
    json_decref(rows);
}

/* ---- command ---- */

static enum top_sort sort_named(const char *name)
{
    for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++)
        if (!strcmp(sorts[i], name))
            return (enum top_sort)i;
    ctl_usage("top --sort %s: depth, age, rate or name", name);
}

static size_t lines_of(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (*end || end == text || n > 1000000)
        ctl_usage("top --lines %s: a number up to 1000000", text);
    return n;
}

void top_command(struct ctl *ctl, int argc, char **argv)
{
    struct display d = {.ctl = ctl, .lines = 20};
    bool once = false;
    int o;
    while ((o = getopt_long(argc, argv, "h", top_options, NULL)) != -1) {
        switch (o) {
        case 'o': once = true; break;
        case 's': d.sort = sort_named(optarg); break;
        case 'l': d.lines = lines_of(optarg); break;
        case 'h': puts(help); return;
        default: ctl_usage("see `dovelane top --help`");
        }
    }
    if (optind != argc)
        ctl_usage("top: %s is no option", argv[optind]);
    if (!ctl->nconns)
        ctl_usage("%s has no node", ctl->config_path);
    signal(SIGPIPE, SIG_IGN); /* a server that goes is not our end */
    d.loop = ev_default_loop(0);
    d.began = clock_monotonic();
    d.top = top_new(ctl->config);
    d.reader = top_reader_open(d.loop, d.top);
    once ? print_once(&d) : show(&d);
    top_reader_close(d.reader);
    top_free(d.top);
    free(d.selected);
    forget_question(&d);
    free(d.message);
}
