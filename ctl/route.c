/* dovelane route - what would become of a mail to an address, and why. Postfix's trivial-rewrite(8) is asked where it goes, as smtpd(8) asks it; the rest is
 * judged by what the milter and the proxy judge by (lib/postfix.h, lib/match.h). Nothing is sent. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "ctl.h"
#include "divert.h"
#include "mem.h"
#include "postconf.h"
#include "postfix.h"
#include "standing.h"

#define PATIENCE 10 /* seconds for trivial-rewrite(8), which may have to ask a slow map */
#define RESOLVE_ERROR 4 /* the address cannot be */
#define RESOLVE_FAIL 8  /* a map could not be asked */

static const char help[] =
    "usage: dovelane route [--sender ADDRESS] [--proxy] [--postfix-config DIR] ADDRESS\n"
    "What would become of a mail to this address: its next hop as Postfix resolves it, whether it is diverted, and each reason against.\n"
    "Nothing is sent. Run it as root on a host with Postfix; the nodes are asked for `divert off` and the rules of `dovelane hold`.\n"
    "  --sender ADDRESS  from whom; \"\" (as without it): the null sender\n"
    "  --proxy           as dovelane-proxy judges, not as the milter\n"
    "A mail to several recipients is diverted only when each of them would be. What only a mail's content decides is not known here:\n"
    "its size, its header, DSN's NOTIFY=SUCCESS, and what your restrictions make of a client.\n"
    "Exit status: 0 diverted; 1 Postfix's own queue, for the reasons named; 2 not known.";

struct route {
    struct ctl *ctl;
    const char *sender, *address;
    char *transport, *nexthop, *recipient; /* by Postfix */
    int flags;
    char *destination; /* as `divert` has it */
    size_t reasons;
};

/* ---- Postfix's answer ---- */

/* One list of attributes, "name\0value\0...\0\0", as attr_print0(3) sends it. Its length, 0: it does not end, or is too long. */
static size_t read_list(int fd, char *out, size_t size)
{
    size_t n = 0;
    bool name_next = true, empty = true;
    while (n < size && read(fd, out + n, 1) == 1) {
        if (out[n++]) {
            empty = false;
            continue;
        }
        if (name_next && empty)
            return n;
        name_next = !name_next;
        empty = true;
    }
    return 0;
}

/* Values may come twice (flags): the last counts. */
static const char *value_of(const char *list, size_t len, const char *name)
{
    const char *found = NULL;
    for (const char *s = list; s < list + len && *s;) {
        const char *value = s + strlen(s) + 1;
        if (value >= list + len)
            break;
        if (!strcmp(s, name))
            found = value;
        s = value + strlen(value) + 1;
    }
    return found;
}

static void add(struct buf *b, const char *name, const char *value)
{
    buf_add(b, name, strlen(name) + 1);
    buf_add(b, value, strlen(value) + 1);
}

static void ask(struct route *r, int fd, const char *socket)
{
    char list[8192];
    struct buf query = {0};
    size_t n = read_list(fd, list, sizeof list); /* which protocol it speaks */
    add(&query, "request", "resolve");
    add(&query, "sender", r->sender);
    add(&query, "address", r->address);
    buf_addc(&query, '\0');
    bool sent = n && write(fd, query.data, query.len) == (ssize_t)query.len;
    buf_free(&query);
    n = sent ? read_list(fd, list, sizeof list) : 0;
    const char *transport = value_of(list, n, "transport"), *nexthop = value_of(list, n, "nexthop"), *recipient = value_of(list, n, "recipient");
    if (!transport || !nexthop || !recipient)
        ctl_usage("route: %s: Postfix's trivial-rewrite did not answer as expected; its log may say why", socket);
    r->transport = mem_strdup(transport);
    r->nexthop = mem_strdup(nexthop);
    r->recipient = mem_strdup(recipient);
    r->flags = value_of(list, n, "flags") ? atoi(value_of(list, n, "flags")) : 0;
    if (r->flags & RESOLVE_FAIL)
        ctl_usage("route: <%s>: Postfix could not ask one of its maps, so nobody knows where this goes; its log names the map", r->address);
}

static void resolve(struct route *r, const char *directory)
{
    char *error = NULL;
    struct postconf *conf = postconf_read(directory, &error);
    if (!conf)
        ctl_usage("route: postconf does not work here (%s): run it on a host with Postfix, or name --postfix-config", error);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char *path = mem_printf("%s/private/%s", postconf_get(conf, NULL, "queue_directory"), postconf_get(conf, NULL, "rewrite_service_name"));
    struct timeval wait = {.tv_sec = PATIENCE};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (strlen(path) >= sizeof a.sun_path)
        ctl_usage("route: %s: the path is too long for a socket", path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait); /* for connect(2), too */
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        ctl_usage("route: %s: %s: Postfix must run, and only root may ask it", path, strerror(errno));
    ask(r, fd, path);
    close(fd);
    free(path);
    postconf_free(conf);
}

/* ---- reasons ---- */

static void against(struct route *r, const char *reason, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void against(struct route *r, const char *reason, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    printf("  %-10s reason=%s: ", r->reasons++ ? "" : "because", reason);
    vprintf(format, ap);
    putchar('\n');
    va_end(ap);
}

/* The same words as in the log of the milter. */
static void find_reasons(struct route *r)
{
    const struct config *c = r->ctl->config;
    char detail[600];
    if (!divert_is_on(r->ctl))
        against(r, "divert-off", "`dovelane divert off` was said; `dovelane divert status`");
    if (postfix_forbids(detail, sizeof detail))
        against(r, "postfix", "%s: diverted mail would miss it; `dovelane check postfix`", detail);
    if (!config_list_has(&c->divert, r->destination))
        against(r, "not-in-divert", "`divert` has no \"%s\"", r->destination);
    if (postfix_changes(MAPS_SENDER, r->sender, maps_patience(), detail, sizeof detail))
        against(r, "map", "the sender <%s>, by %s", r->sender, detail);
    if (postfix_changes(MAPS_RECIPIENT, r->address, maps_patience(), detail, sizeof detail))
        against(r, "map", "<%s>, by %s", r->address, detail);
    if (!*c->postfix_config)
        printf("  note       postfix_config is empty: neither programs nor this command look at Postfix's maps and filters\n");
}

static void print_holds(struct route *r)
{
    struct recipient to = {.address = mem_strdup(r->address)};
    struct envelope e = {.sender = mem_strdup(r->sender), .recipient = &to, .nrecipients = 1};
    standing_explain(r->ctl, &(struct match_facts){.envelope = &e, .destination = r->destination});
    free(to.address);
    free(e.sender);
}

static void judge(struct route *r)
{
    const struct config *c = r->ctl->config;
    printf("<%s>\n  next hop   %s%s", r->address, r->destination, strcmp(r->recipient, r->address) ? ", as " : "");
    printf(strcmp(r->recipient, r->address) ? "<%s>\n" : "\n", r->recipient);
    if (r->flags & RESOLVE_ERROR || !strcmp(r->transport, "error") || !strcmp(r->transport, "retry"))
        against(r, r->flags & RESOLVE_ERROR ? "address" : r->transport, "Postfix cannot deliver it: %s", *r->nexthop ? r->nexthop : "the address is none");
    else
        find_reasons(r);
    if (r->reasons) {
        printf("  diverted   no: Postfix's own queue\n");
        ctl_status(r->ctl, STATUS_LOOK);
        return;
    }
    printf("  diverted   yes: to lanes on %lld node%s\n", (long long)c->copies, ctl_s((unsigned long long)c->copies));
    if (config_destination(c, r->destination)->placement == PLACEMENT_ORDERED)
        printf("  ordered    yes: mail of one host goes to it one after the other (placement = ordered)\n");
    print_holds(r);
}

void route_command(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {{"sender", required_argument, NULL, 's'}, {"proxy", no_argument, NULL, 'x'}, {"postfix-config", required_argument, NULL, 'p'}, {"help", no_argument, NULL, 'h'}, {0}};
    struct route r = {.ctl = ctl, .sender = ""};
    enum postfix_way way = POSTFIX_MILTER;
    const char *directory = NULL;
    int o;
    while ((o = getopt_long(argc, argv, "s:h", options, NULL)) != -1) {
        switch (o) {
        case 's': r.sender = strcmp(optarg, "<>") ? optarg : ""; break;
        case 'x': way = POSTFIX_PROXY; break;
        case 'p': directory = optarg; break;
        case 'h': puts(help); return;
        default: ctl_usage("see `dovelane route --help`");
        }
    }
    if (optind + 1 != argc)
        ctl_usage("route wants one address; see `dovelane route --help`");
    r.address = argv[optind];
    if (!strrchr(r.address, '@') || !strrchr(r.address, '@')[1])
        ctl_usage("route: %s: write the address with its domain", r.address);
    if (!directory && *ctl->config->postfix_config)
        directory = ctl->config->postfix_config;
    resolve(&r, directory);
    r.destination = mem_printf("%s:%s", r.transport, r.nexthop);
    ctl_connect(ctl);
    postfix_look(ctl->config, way);
    judge(&r);
    free(r.transport);
    free(r.nexthop);
    free(r.recipient);
    free(r.destination);
}
