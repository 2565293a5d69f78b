#include "ctl/rewrite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/mail/address.h"
#include "ctl/ctl.h"
#include "lib/base/mem.h"
#include "lib/postfix/postconf.h"

#define PATIENCE 10     /* seconds, which it may need to ask a slow map */
#define RESOLVE_ERROR 4 /* the address cannot be */
#define RESOLVE_FAIL 8  /* a map could not be asked */

struct rewrite {
    int fd;
    char *path;
    char list[8192]; /* its last answer */
    size_t len;
};

/* ---- lists of attributes, as attr_print0(3) sends them: "name\0value\0...\0\0" ---- */

/* Its length, 0: it does not end, or is too long. */
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

/* Of an attribute that came twice (flags) the last counts. */
static const char *value_of(const struct rewrite *r, const char *name)
{
    const char *found = NULL;
    for (const char *s = r->list; s < r->list + r->len && *s;) {
        const char *value = s + strlen(s) + 1;
        if (value >= r->list + r->len)
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

/* query is freed. */
static void ask(struct rewrite *r, struct buf *query)
{
    buf_addc(query, '\0');
    bool sent = write(r->fd, query->data, query->len) == (ssize_t)query->len;
    buf_free(query);
    r->len = sent ? read_list(r->fd, r->list, sizeof r->list) : 0;
}

static const char *must(const struct rewrite *r, const char *name)
{
    const char *value = value_of(r, name);
    if (!value)
        ctl_usage(
            "route: %s: Postfix's trivial-rewrite did not answer as expected; its log may say why",
            r->path);
    return value;
}

/* ---- asking ---- */

struct rewrite *rewrite_open(const struct postconf *conf)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval wait = {.tv_sec = PATIENCE};
    struct rewrite *r = mem_zero(sizeof *r);
    r->path = mem_printf("%s/private/%s", postconf_get(conf, NULL, "queue_directory"),
                         postconf_get(conf, NULL, "rewrite_service_name"));
    if (strlen(r->path) >= sizeof a.sun_path)
        ctl_usage("route: %s: the path is too long for a socket", r->path);
    memcpy(a.sun_path, r->path, strlen(r->path) + 1);
    r->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(r->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(r->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait); /* for connect(2), too */
    if (r->fd < 0 || connect(r->fd, (struct sockaddr *)&a, sizeof a) < 0)
        ctl_usage("route: %s: %s: Postfix must run, and only root may ask it", r->path,
                  strerror(errno));
    r->len = read_list(r->fd, r->list, sizeof r->list); /* which protocol it speaks */
    must(r, "protocol");
    return r;
}

void rewrite_close(struct rewrite *r)
{
    close(r->fd);
    free(r->path);
    free(r);
}

/* As it is written inside Postfix. "local": the rules that smtpd(8) takes for the addresses of
 * envelopes, whoever the client is. malloc'd. */
static char *inside(struct rewrite *r, const char *address)
{
    struct buf query = {0};
    add(&query, "request", "rewrite");
    add(&query, "rule", "local");
    add(&query, "address", address);
    ask(r, &query);
    return address_unquoted(must(r, "address"));
}

struct resolved rewrite_ask(struct rewrite *r, const char *sender, const char *address)
{
    struct buf query = {0};
    char *from = address_unquoted(sender), *to = inside(r, address);
    add(&query, "request", "resolve");
    add(&query, "sender", from); /* smtpd gives it as it came */
    add(&query, "address", to);
    ask(r, &query);
    free(from);
    free(to);
    int flags = value_of(r, "flags") ? atoi(value_of(r, "flags")) : 0;
    return (struct resolved){mem_strdup(must(r, "transport")), mem_strdup(must(r, "nexthop")),
                             address_quoted(must(r, "recipient")), (flags & RESOLVE_ERROR) != 0,
                             (flags & RESOLVE_FAIL) != 0};
}

void resolved_free(struct resolved *r)
{
    free(r->transport);
    free(r->nexthop);
    free(r->recipient);
    *r = (struct resolved){0};
}
