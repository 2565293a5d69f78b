/* postfix - reads the settings, and finds what a diverted mail would miss. What was read is one
 * struct, made anew at each change and swapped in whole. */
#include "lib/postfix/postfix.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/postfix/features.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/config/nexthop.h"
#include "lib/postfix/postconf.h"
#include "lib/postfix/sockets.h"

/* What keeps mail in Postfix. */
struct finding {
    char *text;         /* "always_bcc = a@b" */
    char *transport;    /* NULL: all mail; else mail to its next hops ("smtp") */
    const char *unless; /* as in parameters.h */
    bool by_name;       /* as in features.h */
};

struct facts {
    unsigned refs;
    struct finding *finding;
    size_t nfindings;
    char **file; /* what was read, for the next look at whether it changed */
    size_t nfiles;
    uint64_t state; /* of these files; 0: to be read again */
    bool unread;    /* they could not be read */
    bool quiet;     /* nobody has written main.cf or master.cf just now */
    bool named;     /* a service names our socket */
    bool asks;      /* and asks us by it */
    struct postfix_header header;
    struct postfix_received received;
    struct maps *maps;
    char delimiter[POSTFIX_DELIMITER];
};

static struct {
    const struct config *config;
    enum postfix_way way;
    pthread_mutex_t lock;
    struct facts *facts; /* NULL: not checked */
} postfix = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const struct postfix_header default_header = {
    .drop = "bcc,content-length,resent-bcc,return-path,", .hops = 50};

/* ---- what is read ---- */

static void add_text(char ***list, size_t *n, char *text)
{
    for (size_t i = 0; i < *n; i++)
        if (!strcmp((*list)[i], text)) {
            free(text);
            return;
        }
    *list = mem_grow(*list, (*n + 1) * sizeof **list);
    (*list)[(*n)++] = text;
}

/* Of each table in the word its file, and the ones that postmap makes of it. */
static bool note_file(void *arg, const char *word)
{
    static const char *const suffix[] = {"", ".db", ".lmdb", ".cdb", ".dir"};
    struct facts *f = arg;
    for (const char *path = word; (path = strstr(path, ":/"));) {
        char *file = mem_strndup(path + 1, strcspn(path + 1, " \t,{}"));
        for (size_t i = 0; i < COUNT(suffix); i++)
            add_text(&f->file, &f->nfiles, mem_printf("%s%s", file, suffix[i]));
        path += 1 + strlen(file);
        free(file);
    }
    return true;
}

static uint64_t state_of(const struct facts *f)
{
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < f->nfiles; i++) {
        struct stat st = {0};
        if (stat(f->file[i], &st) < 0)
            st.st_ino = 0;
        /* ctime: also who may read it */
        const uint64_t word[] = {(uint64_t)st.st_ino,         (uint64_t)st.st_size,
                                 (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec,
                                 (uint64_t)st.st_ctim.tv_sec, (uint64_t)st.st_ctim.tv_nsec};
        for (size_t k = 0; k < COUNT(word); k++)
            hash = (hash ^ word[k]) * 1099511628211u;
    }
    return hash;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static void add_finding(struct facts *f, char *text, const char *transport, const char *unless,
                        bool by_name)
{
    for (size_t i = 0; i < f->nfindings; i++)
        if (!strcmp(f->finding[i].text, text) && same_text(f->finding[i].transport, transport)) {
            free(text);
            return;
        }
    f->finding = mem_grow(f->finding, (f->nfindings + 1) * sizeof *f->finding);
    f->finding[f->nfindings++] =
        (struct finding){text, transport ? mem_strdup(transport) : NULL, unless, by_name};
}

static void take(void *arg, const struct postfix_feature *b)
{
    struct facts *f = arg;
    if (b->ignored)
        return;
    if (b->kind == FEATURE_FOR_SENDERS || b->kind == FEATURE_FOR_RECIPIENTS)
        maps_add(f->maps, b->kind == FEATURE_FOR_SENDERS ? MAPS_SENDER : MAPS_RECIPIENT,
                 b->parameter, b->what);
    else
        add_finding(f, mem_printf("%s = %.200s", b->parameter, b->what), b->transport, b->unless,
                    b->by_name);
}

static bool loopback(const char *address)
{
    return !strncmp(address, "127.", 4) || !strncmp(address, "[::1]", 5) ||
           !strncmp(address, "localhost:", 10);
}

/* A service without an address of its own listens on these. */
static bool hears(const struct postconf *conf, const struct postconf_service *s,
                  const char *address)
{
    const char *interfaces = postconf_get(conf, NULL, "inet_interfaces");
    char *host = mem_strndup(address, strcspn(address, ":"));
    bool local = loopback(address) &&
                 (strstr(interfaces, "loopback-only") || strstr(interfaces, "localhost"));
    bool hears = strchr(s->name, ':') || !strcmp(interfaces, "all") || local ||
                 (*host && strstr(interfaces, host));
    free(host);
    return hears;
}

static char *port_wrong(const struct config *c, const struct postconf *conf, const char *setting,
                        const char *address, const char *instead)
{
    const struct postconf_service *s =
        *address && strncmp(address, "unix:", 5) ? postconf_listener(conf, address) : NULL;
    if (!s || !hears(conf, s, address))
        return NULL;
    const char *milters = postconf_get(conf, s->key, "smtpd_milters"),
               *filter = postconf_get(conf, s->key, "smtpd_proxy_filter"),
               *by = sockets_named(conf, s, milters, c->milter_socket) ? "smtpd_milters"
                     : sockets_named(conf, s, filter, c->proxy_socket) ? "smtpd_proxy_filter"
                                                                       : NULL;
    if (!by)
        return NULL;
    return mem_printf("%s = %s is a port on which mail is diverted (service %s of %s/master.cf has "
                      "%s): what comes there would be diverted again and again. Write the port of "
                      "a service of its own, as in examples/master.cf: %s",
                      setting, address, s->name, c->postfix_config, by, instead);
}

char *postfix_ports_wrong(const struct config *c)
{
    char *error = NULL, *wrong = NULL;
    struct postconf *conf = *c->postfix_config && (*c->reinject_port || *c->bounce_port)
                                ? postconf_read(c->postfix_config, &error)
                                : NULL;
    free(error);
    if (conf &&
        !(wrong = port_wrong(c, conf, "reinject_port", c->reinject_port, "127.0.0.1:10627")))
        wrong = port_wrong(c, conf, "bounce_port", c->bounce_port, "127.0.0.1:10626");
    postconf_free(conf);
    return wrong;
}

/* cleanup(8) compares names without case; what does not fit in forbids diverting. */
static void note_header(struct facts *f, const char *drop, const char *hops)
{
    size_t len = 0;
    long limit = strtol(hops, NULL, 10);
    f->header = default_header;
    if (limit > 0)
        f->header.hops = (unsigned)limit;
    if (strlen(drop) + 2 > sizeof f->header.drop) {
        /* more than 510 bytes of names */
        add_finding(f, mem_printf("message_drop_headers = %.200s", drop), NULL, "", false);
        return;
    }
    for (const char *s = drop; *s; s++) {
        bool part = *s == ',' || *s == ' ' || *s == '\t' || *s == '\n';
        if (!part)
            f->header.drop[len++] = (char)tolower((unsigned char)*s);
        else if (len && f->header.drop[len - 1] != ',')
            f->header.drop[len++] = ',';
    }
    if (len && f->header.drop[len - 1] != ',')
        f->header.drop[len++] = ',';
    f->header.drop[len] = '\0';
}

/* With the milter these were over when the mail was diverted, or had a verdict that it saw. */
static void take_behind_proxy(struct facts *f, const struct postconf *conf, const char *service)
{
    char *cleanup = mem_printf("%s/unix", postconf_get(conf, service, "cleanup_service_name"));
    features_behind_proxy(conf, service, &postfix.config->ignore, take, f);
    note_header(f, postconf_get(conf, cleanup, "message_drop_headers"),
                postconf_get(conf, cleanup, "hopcount_limit"));
    free(cleanup);
}

#define TLS_LINE "smtpd_tls_received_header"
#define OVERRIDES "receive_override_options"

static bool says_yes(const struct postconf *conf, const char *service, const char *parameter)
{
    return !strcasecmp(postconf_get(conf, service, parameter), "yes");
}

/* Of all services whose mail we get: what one hides is hidden for all, and what one says is
 * said. */
static void note_received(struct facts *f, const struct postconf *conf, const char *service)
{
    f->received.login |= says_yes(conf, service, "smtpd_sasl_authenticated_header");
    f->received.tls |=
        says_yes(conf, service, TLS_LINE) && !config_list_has(&postfix.config->ignore, TLS_LINE);
    f->received.hidden |= says_yes(conf, service, "smtpd_hide_client_session");
}

static void take_service(struct facts *f, const struct postconf *conf)
{
    const struct config *c = postfix.config;
    const struct postconf_service *s;
    if (postfix.way == POSTFIX_PROXY) {
        s = postconf_listener(conf, c->proxy_next);
        f->named = s != NULL;
        features_of_service(conf, s ? s->key : NULL, &c->ignore, take, note_file, f);
        take_behind_proxy(f, conf, s ? s->key : "smtp/inet");
        return;
    }
    for (size_t i = 0; (s = postconf_service(conf, i)); i++) {
        bool ours =
            sockets_named(conf, s, postconf_get(conf, s->key, "smtpd_milters"), c->milter_socket);
        /* for some clients another milter, which may be ours */
        bool may_be = *postconf_get(conf, s->key, "smtpd_milter_maps");
        if (!strcmp(s->command, "smtpd") && (ours || may_be)) {
            f->named |= ours;
            f->asks |= !strstr(postconf_get(conf, s->key, OVERRIDES), "no_milters");
            note_received(f, conf, s->key);
            features_of_service(conf, s->key, &c->ignore, take, note_file, f);
        }
    }
    if (!f->named)
        features_of_service(conf, NULL, &c->ignore, take, note_file, f);
}

/* Seconds for which main.cf and master.cf stay as they are before less is kept in Postfix. */
#define QUIET 6

/* In the future: written by a clock that is ahead of ours. st_ctime is by ours. */
static bool is_old(const char *file)
{
    struct stat st;
    if (stat(file, &st))
        return true;
    time_t now = time(NULL), at = st.st_mtim.tv_sec > now ? st.st_ctim.tv_sec : st.st_mtim.tv_sec;
    return at > now || now - at >= QUIET;
}

static struct facts *read_facts(void)
{
    const struct config *c = postfix.config;
    struct facts *f = mem_zero(sizeof *f);
    char *error = NULL;
    f->refs = 1;
    f->header = default_header;
    add_text(&f->file, &f->nfiles, mem_printf("%s/main.cf", c->postfix_config));
    add_text(&f->file, &f->nfiles, mem_printf("%s/master.cf", c->postfix_config));
    uint64_t before = state_of(f);
    struct postconf *conf = postconf_read(c->postfix_config, &error);
    snprintf(f->delimiter, sizeof f->delimiter, "%s",
             conf ? postconf_get(conf, NULL, "recipient_delimiter") : "");
    f->maps = maps_new(c->postfix_config, f->delimiter);
    if (conf) {
        take_service(f, conf);
        features_of_delivery(conf, &c->ignore, take, f);
    } else {
        add_finding(f, mem_printf("postfix_config = %s: %s", c->postfix_config, error), NULL, "",
                    false);
        f->named = f->asks = true; /* one complaint is enough */
    }
    size_t all = f->nfiles;
    f->nfiles = 2;
    bool good = conf && state_of(f) == before;
    f->nfiles = all;
    /* not read, or changed while it was read: again at the next look */
    f->state = good ? state_of(f) : 0;
    f->unread = !conf;
    f->quiet = is_old(f->file[0]) && is_old(f->file[1]);
    postconf_free(conf);
    free(error);
    return f;
}

/* ---- what is less strict ---- */

static bool has_finding(const struct facts *f, const struct finding *wanted)
{
    for (size_t i = 0; i < f->nfindings; i++)
        if (!strcmp(f->finding[i].text, wanted->text) &&
            same_text(f->finding[i].transport, wanted->transport))
            return true;
    return false;
}

/* Whether it keeps in Postfix whatever was kept before. */
static bool as_strict(const struct facts *before, const struct facts *f)
{
    for (size_t i = 0; i < before->nfindings; i++)
        if (!has_finding(f, &before->finding[i]))
            return false;
    return maps_has_all(f->maps, before->maps) &&
           !memcmp(&f->received, &before->received, sizeof f->received) &&
           !strcmp(f->header.drop, before->header.drop) && f->header.hops == before->header.hops &&
           !strcmp(f->delimiter, before->delimiter);
}

/* A main.cf that is being written may be read without an error, and say less than it will: what
 * was there before counts, too, until it is quiet. */
static void be_as_strict(struct facts *f, const struct facts *before)
{
    for (size_t i = 0; i < before->nfindings; i++)
        add_finding(f, mem_strdup(before->finding[i].text), before->finding[i].transport,
                    before->finding[i].unless, before->finding[i].by_name);
    maps_add_all(f->maps, before->maps);
    f->header = before->header;
    f->received.login = before->received.login;
    f->received.tls |= before->received.tls;
    f->received.hidden |= before->received.hidden;
    memcpy(f->delimiter, before->delimiter, sizeof f->delimiter);
    f->state = 0;
}

/* ---- sharing ---- */

static struct facts *hold(void)
{
    pthread_mutex_lock(&postfix.lock);
    struct facts *f = postfix.facts;
    if (f)
        f->refs++;
    pthread_mutex_unlock(&postfix.lock);
    return f;
}

static void release(struct facts *f)
{
    pthread_mutex_lock(&postfix.lock);
    bool last = f && --f->refs == 0;
    pthread_mutex_unlock(&postfix.lock);
    if (!last)
        return;
    for (size_t i = 0; i < f->nfindings; i++) {
        free(f->finding[i].text);
        free(f->finding[i].transport);
    }
    for (size_t i = 0; i < f->nfiles; i++)
        free(f->file[i]);
    free(f->finding);
    free(f->file);
    maps_free(f->maps);
    free(f);
}

static bool same_findings(const struct facts *a, const struct facts *b)
{
    bool same = a && a->nfindings == b->nfindings;
    for (size_t i = 0; same && i < b->nfindings; i++)
        same = !strcmp(a->finding[i].text, b->finding[i].text) &&
               same_text(a->finding[i].transport, b->finding[i].transport);
    return same;
}

/* A next hop of that transport, for which no setting of its section stands in. NULL destination:
 * any mail's. */
static bool concerns(const struct finding *f, const char *destination)
{
    size_t n = f->transport ? strlen(f->transport) : 0;
    return !f->transport ||
           (destination && !strncmp(destination, f->transport, n) && destination[n] == ':' &&
            (!f->by_name || nexthop_by_name(destination)) &&
            !config_destination_says(config_destination(postfix.config, destination), f->unless));
}

static void tell_finding(const struct finding *f)
{
    const struct config_list *divert = &postfix.config->divert;
    int name = (int)strcspn(f->text, " ");
    if (!f->transport)
        log_warning("diverting is off: %s: Postfix would do this to a mail only when it queues it "
                    "itself. Change it, or take it on yourself: ignore = { \"%.*s\" }",
                    f->text, name, f->text);
    for (size_t i = 0; i < divert->n && f->transport; i++)
        if (concerns(f, divert->v[i]))
            log_warning("mail to %s is not diverted: %s: Postfix does this as it delivers, and the "
                        "relay would not. Change it%s%s%s, or take it on yourself: "
                        "ignore = { \"%.*s\" }",
                        divert->v[i], f->text, *f->unless ? ", or set `" : "", f->unless,
                        *f->unless ? "` in the destination's section" : "", name, f->text);
}

static void tell(const struct facts *before, const struct facts *f)
{
    const char *directory = postfix.config->postfix_config;
    if (!f->named && (!before || before->named) && postfix.way == POSTFIX_PROXY)
        log_warning(
            "%s/master.cf: no smtpd service listens on proxy_next = %s, so Postfix takes nothing "
            "from this proxy. Add the lines of examples/master-proxy.cf there and run `postfix "
            "reload`. Until then main.cf alone says what forbids diverting",
            directory, postfix.config->proxy_next);
    else if (!f->named && (!before || before->named))
        log_warning(
            "%s/master.cf: Postfix sends this milter no mail, because no smtpd service has "
            "milter_socket = %s in its smtpd_milters. Add the lines of examples/master.cf there "
            "and run `postfix reload`. Until then main.cf alone says what forbids diverting",
            directory, postfix.config->milter_socket);
    if (same_findings(before, f))
        return;
    for (size_t i = 0; i < f->nfindings; i++)
        tell_finding(&f->finding[i]);
    if (before && before->nfindings && !f->nfindings)
        log_info("nothing in Postfix's settings forbids diverting any more");
}

static void swap(struct facts *f)
{
    struct facts *before = hold();
    tell(before, f);
    pthread_mutex_lock(&postfix.lock);
    struct facts *old = postfix.facts;
    postfix.facts = f;
    pthread_mutex_unlock(&postfix.lock);
    release(before);
    release(old);
}

/* Looks to wait after one at which they could not be read, while nothing changes. */
#define WAIT_MOST 30

static void read_again(const struct facts *before)
{
    struct facts *f = read_facts();
    if (!f->quiet && !as_strict(before, f)) {
        if (before->state)
            log_info("%s/main.cf or master.cf has just been written: what kept mail in Postfix "
                     "does so until they stay the same for %d s",
                     postfix.config->postfix_config, QUIET);
        be_as_strict(f, before);
    }
    swap(f);
}

static void *watch(void *arg)
{
    uint64_t last = 0;
    unsigned wait = 0, waited = 0;
    for (;;) {
        sleep(2);
        struct facts *f = hold();
        uint64_t state = state_of(f);
        if (!f->unread || state != last)
            wait = waited = 0;
        last = state;
        if (state != f->state && waited++ >= wait) {
            waited = 0;
            wait = wait * 2 + 1 < WAIT_MOST ? wait * 2 + 1 : WAIT_MOST;
            read_again(f);
        }
        release(f);
    }
    return arg;
}

void postfix_look(const struct config *config, enum postfix_way way)
{
    postfix.way = way;
    postfix.config = config;
    struct facts *before = postfix.facts;
    postfix.facts = *config->postfix_config ? read_facts() : NULL;
    release(before);
}

void postfix_open(const struct config *config, enum postfix_way way)
{
    pthread_t thread;
    postfix.way = way;
    postfix.config = config;
    if (!*config->postfix_config) {
        log_warning("postfix_config is empty: what Postfix would do to a mail (aliases, BCCs, "
                    "filters) is not looked at");
        return;
    }
    swap(read_facts());
    if (pthread_create(&thread, NULL, watch, NULL) == 0)
        pthread_detach(thread);
    else
        log_error("no thread to watch %s: restart this program when it changes",
                  config->postfix_config);
}

static bool forbids(const char *destination, char *detail, size_t size)
{
    struct facts *f = hold();
    const struct finding *found = NULL;
    for (size_t i = 0; f && i < f->nfindings && !found; i++)
        if (!f->finding[i].transport == !destination && concerns(&f->finding[i], destination))
            found = &f->finding[i];
    if (found)
        snprintf(detail, size, "%.*s", (int)strcspn(found->text, " "), found->text);
    release(f);
    return found;
}

bool postfix_forbids(char *detail, size_t size)
{
    return forbids(NULL, detail, size);
}

bool postfix_forbids_destination(const char *destination, char *detail, size_t size)
{
    return forbids(destination, detail, size);
}

void postfix_header(struct postfix_header *out)
{
    pthread_mutex_lock(&postfix.lock);
    *out = postfix.facts ? postfix.facts->header : default_header;
    pthread_mutex_unlock(&postfix.lock);
}

void postfix_received(struct postfix_received *out)
{
    pthread_mutex_lock(&postfix.lock);
    *out = postfix.facts ? postfix.facts->received : (struct postfix_received){0};
    pthread_mutex_unlock(&postfix.lock);
}

void postfix_delimiter(char out[POSTFIX_DELIMITER])
{
    pthread_mutex_lock(&postfix.lock);
    memcpy(out, postfix.facts ? postfix.facts->delimiter : "",
           postfix.facts ? POSTFIX_DELIMITER : 1);
    pthread_mutex_unlock(&postfix.lock);
}

/* The answer is kept already, or none is needed. */
bool postfix_knows(enum maps_of of, const char *address)
{
    struct facts *f = hold();
    bool knows = !f || maps_know(f->maps, of, address);
    release(f);
    return knows;
}

bool postfix_asks(void)
{
    struct facts *f = hold();
    bool asks = !f || postfix.way == POSTFIX_PROXY || f->asks;
    release(f);
    return asks;
}

bool postfix_changes(enum maps_of of, const char *address, int64_t until, char *detail, size_t size)
{
    struct facts *f = hold();
    bool changes = f && maps_change(f->maps, of, address, until, detail, size);
    release(f);
    return changes;
}
