/* Between sites: who answers, what the clocks say, who else runs under this name, and what each
 * site said of itself (facts.h). */
#include "ctl/replica_here.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/acl.h"
#include "ctl/facts.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/redis/control_keys.h"

#define CLOCKS_APART 60.      /* seconds: they bound UIDVALIDITY alone */
#define FACTS_OLD (7 * 86400) /* seconds */
#define HOST_TEXT 64

static void own_host(char host[HOST_TEXT])
{
    if (gethostname(host, HOST_TEXT) < 0)
        strcpy(host, "-");
    host[HOST_TEXT - 1] = '\0';
}

/* ---- what this site says ---- */

static int by_number(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return x < y ? -1 : x > y;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void append(char text[512], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(char text[512], const char *format, ...)
{
    size_t had = strlen(text);
    va_list ap;
    va_start(ap, format);
    vsnprintf(text + had, 512 - had, format, ap);
    va_end(ap);
}

/* In an order that is the same everywhere. */
static const char **namespaces_of(const struct config *c)
{
    const char **name = mem_zero((c->replicate_namespaces.n + 1) * sizeof *name);
    for (size_t i = 0; i < c->replicate_namespaces.n; i++)
        name[i] = c->replicate_namespaces.v[i];
    qsort(name, c->replicate_namespaces.n, sizeof *name, by_text);
    return name;
}

static void tell_group(const struct config *c, const char **namespaces, char text[512])
{
    long long *id = mem_zero((c->nreplicas + 1) * sizeof *id);
    for (size_t i = 0; i < c->nreplicas; i++)
        id[i] = c->replica[i].id;
    qsort(id, c->nreplicas, sizeof *id, by_number);
    append(text, "ids");
    for (size_t i = 0; i < c->nreplicas; i++)
        append(text, " %lld", id[i]);
    append(text, ", namespaces");
    for (size_t i = 0; namespaces[i]; i++)
        append(text, " %s", namespaces[i]);
    free(id);
}

static void tell_namespace(const struct dovecot_conf *d, const char *name, struct facts *f)
{
    char *section = mem_printf("namespace %s", name), separator = separator_of(d, section);
    const char *prefix = dovecot_conf_of(d, section, "prefix");
    const char *between = *f->text[FACT_SEPARATORS] ? " " : "";
    struct storage s;
    storage_of(d, section, &s);
    append(f->text[FACT_SEPARATORS], "%s%s:%s", between, name,
           separator ? (const char[]){separator, '\0'} : "");
    append(f->text[FACT_PREFIXES], "%s%s:%s", between, name, prefix ? prefix : "");
    append(f->text[FACT_FORMATS], "%s%s:%s%s%s", between, name, s.driver, *s.driver ? "/" : "",
           s.layout);
    free(section);
}

static void tell(const struct replica_here *h, struct facts *f)
{
    const struct config *c = h->ctl->config;
    const char **namespaces = namespaces_of(c);
    char host[HOST_TEXT];
    own_host(host);
    memset(f, 0, sizeof *f);
    append(f->text[FACT_TIME], "%lld", (long long)(clock_wall() / 1000000));
    append(f->text[FACT_HOST], "%s", host);
    append(f->text[FACT_VERSION], "%s", DOVELANE_VERSION);
    tell_group(c, namespaces, f->text[FACT_GROUP]);
    for (size_t i = 0; namespaces[i]; i++)
        tell_namespace(h->dovecot, namespaces[i], f);
    append(f->text[FACT_ACL], "%s",
           dovecot_conf_loads(h->dovecot, "dovelane", "acl") ? "yes" : "no");
    free(namespaces);
}

/* ---- who runs ---- */

/* Of the value that a replicator writes (dovecot-plugin/replicator/lanes/claims.c). */
static bool runs_at(struct conn *c, const char *site, const char *behind, char host[HOST_TEXT])
{
    redisReply *r = conn_call(c, "GET " CONTROL_SITE "%s%s", site, behind);
    bool found = r && r->type == REDIS_REPLY_STRING &&
                 sscanf(r->str, "1 %*x %*x %*x %*d %63[A-Za-z0-9._-]", host) == 1;
    if (r)
        freeReplyObject(r);
    return found;
}

static bool check_name(const struct replica_here *h, struct conn *c)
{
    static const char mend[] = "its own name for each host: -n in the executable of service "
                               "dovelane-replicator, then restart Dovecot there";
    char first[HOST_TEXT] = "", second[HOST_TEXT] = "", own[HOST_TEXT];
    bool runs = runs_at(c, h->name, "", first),
         refused = runs_at(c, h->name, CONTROL_SITE_SECOND, second);
    own_host(own);
    if (refused)
        check_say(h->ctl, FINDING_CRITICAL, FOUND_NAME_TWICE, h->name, mend,
                  "two replicators run under this name: one on %s, and one on %s, which is "
                  "refused: it takes and sends nothing",
                  *first ? first : "a host unknown", second);
    else if (runs && strcmp(first, own) != 0)
        check_say(h->ctl, FINDING_CRITICAL, FOUND_NAME_TWICE, h->name, mend,
                  "%s runs under this name, and this host (%s) is to do so, too: it would be "
                  "refused",
                  first, own);
    return refused || (runs && strcmp(first, own) != 0);
}

/* ---- each node ---- */

static void check_site_clock(struct ctl *ctl, struct conn *c, const char *about)
{
    double before = (double)clock_wall() / 1e6;
    redisReply *r = conn_call(c, "TIME");
    double after = (double)clock_wall() / 1e6;
    if (conn_shaped(r, "ss")) {
        double there = atof(r->element[0]->str) + atof(r->element[1]->str) / 1e6,
               apart = there < before  ? before - there
                       : there > after ? there - after
                                       : 0;
        if (apart > CLOCKS_APART)
            check_say(ctl, FINDING_WARNING, FOUND_REPLICA_CLOCK, about,
                      "chrony or systemd-timesyncd on every host",
                      "its clock is %.0f s %s this host's: which UIDVALIDITY is believed is "
                      "bounded by clocks",
                      apart, there < before ? "behind" : "before");
        else
            check_good(ctl, about, "its clock and this host's agree");
    }
    if (r)
        freeReplyObject(r);
}

/* of: what each site said, as the newest node has it. */
static void look_at(const struct replica_here *h, size_t i, const struct facts *own,
                    struct facts *of, bool *twice)
{
    const struct config *config = h->ctl->config;
    const struct config_replica *r = &config->replica[i];
    struct conn c = {.link = NULL};
    char *about = mem_printf("site %s", r->name);
    if (!conn_open_replica(&c, config, i)) {
        bool here = (int)i == h->self;
        check_say(h->ctl, here ? FINDING_CRITICAL : FINDING_WARNING, FOUND_REPLICA_SILENT, about,
                  "start its Redis with lane.so, or mend `redis`, `tls` or `node` in its section",
                  "its Redis %s does not answer: %s", r->redis, c.trouble);
        free(about);
        return;
    }
    check_good(h->ctl, about, "its Redis answers");
    check_site_clock(h->ctl, &c, about);
    for (size_t k = 0; k < config->nreplicas; k++)
        facts_read(&c, config->replica[k].name, &of[k]);
    if (h->name && !h->dovecot->error && !facts_write(&c, h->name, own))
        check_say(h->ctl, FINDING_WARNING, FOUND_FACTS_REFUSED, about, acl_again(h->ctl),
                  "its Redis does not take what this site says of itself: %s", c.trouble);
    *twice = *twice || (h->name && check_name(h, &c));
    conn_close(&c);
    free(about);
}

/* ---- what is compared ---- */

/* What a folder's name may be, by the namespaces' layouts. */
static const char *limit_of(const char *formats)
{
    return strstr(formats, "/maildir++")
               ? "a whole name of at most 255 bytes, without `.` in a part"
               : "parts of at most 255 bytes each";
}

static void compare(const struct replica_here *h, const char *about, const struct facts *own,
                    const struct facts *of)
{
    const char *there, *here;
#define DIFFERS(fact) (here = own->text[fact], there = of->text[fact], strcmp(here, there) != 0)
    if (DIFFERS(FACT_GROUP))
        check_say(h->ctl, FINDING_CRITICAL, FOUND_REPLICA_GROUP, about,
                  "the same replica sections (ids) and replicate_namespaces on all sites, and "
                  "restart Dovecot where they changed",
                  "it is of another group, %s, and this one of %s: they do not listen to each "
                  "other",
                  there, here);
    if (DIFFERS(FACT_SEPARATORS))
        check_say(h->ctl, FINDING_WARNING, FOUND_REPLICA_SEPARATOR, about,
                  "the same separator in the namespace sections of all sites, before clients come",
                  "its separators are %s, and here %s: clients see other names of folders there, "
                  "and scripts that file into a folder below another one fail",
                  there, here);
    if (DIFFERS(FACT_PREFIXES))
        check_say(h->ctl, FINDING_WARNING, FOUND_REPLICA_PREFIX, about,
                  "the same prefix in the namespace sections of all sites",
                  "the prefixes of its namespaces are %s, and here %s: clients see other names of "
                  "folders there",
                  there, here);
    if (DIFFERS(FACT_FORMATS) && strcmp(limit_of(here), limit_of(there)) != 0)
        check_say(h->ctl, FINDING_WARNING, FOUND_REPLICA_LIMITS, about,
                  "one format and LAYOUT everywhere, or let nobody make such folders: `doveadm "
                  "dovelane status -u USER` names those that wait",
                  "it keeps mail as %s, and this one as %s. It can hold %s, and this one %s. A "
                  "folder beyond that is not shown there; where that is meant, all is well",
                  there, here, limit_of(there), limit_of(here));
    if (DIFFERS(FACT_ACL))
        check_say(h->ctl, FINDING_WARNING, FOUND_REPLICA_ACL, about,
                  "acl in mail_plugins at all sites, or at none",
                  "its workers %s acl, and those here %s: access rights are not the same at both",
                  !strcmp(there, "yes") ? "load" : "do not load",
                  !strcmp(here, "yes") ? "do" : "do not");
#undef DIFFERS
    check_good(h->ctl, about, "said of itself on host %s, Dovelane %s: %s; separators %s; %s",
               of->text[FACT_HOST], of->text[FACT_VERSION], of->text[FACT_GROUP],
               of->text[FACT_SEPARATORS], of->text[FACT_FORMATS]);
}

static void compare_with(const struct replica_here *h, size_t i, const struct facts *own,
                         const struct facts *of)
{
    char *about = mem_printf("site %s", h->ctl->config->replica[i].name);
    int64_t age = facts_time(own) - facts_time(of);
    if (!facts_time(of))
        check_say(h->ctl, FINDING_WARNING, FOUND_REPLICA_UNCHECKED, about,
                  "`dovelane check replicas` there, and then here again",
                  "it has not said what its Dovecot is set to, so nothing is compared (right until "
                  "it is checked there, too)");
    else if (age > FACTS_OLD)
        check_say(h->ctl, FINDING_WARNING, FOUND_REPLICA_UNCHECKED, about,
                  "`dovelane check replicas` there, and then here again",
                  "what it said of its Dovecot is %lld days old", (long long)age / 86400);
    if (facts_time(of))
        compare(h, about, own, of);
    free(about);
}

/* Before either has ever run. */
static void compare_host(const struct replica_here *h, const struct facts *own,
                         const struct facts *of)
{
    if (facts_time(of) && facts_time(own) - facts_time(of) < FACTS_OLD &&
        strcmp(own->text[FACT_HOST], of->text[FACT_HOST]) != 0)
        check_say(h->ctl, FINDING_WARNING, FOUND_NAME_TWICE, h->name,
                  "its own name for each host: -n in the executable of service "
                  "dovelane-replicator; then this check again, on both",
                  "host %s said of itself that it is %s, and this host, %s, says so, too (right "
                  "where this one has taken its place)",
                  of->text[FACT_HOST], h->name, own->text[FACT_HOST]);
}

void check_sites(const struct replica_here *h)
{
    const struct config *c = h->ctl->config;
    struct facts *of = mem_zero((c->nreplicas + 1) * sizeof *of), own;
    bool twice = false;
    tell(h, &own);
    for (size_t i = 0; i < c->nreplicas; i++)
        look_at(h, i, &own, of, &twice);
    for (size_t i = 0; i < c->nreplicas && h->name && !h->dovecot->error; i++) {
        if ((int)i != h->self)
            compare_with(h, i, &own, &of[i]);
        else if (!twice)
            compare_host(h, &own, &of[i]);
    }
    free(of);
}
