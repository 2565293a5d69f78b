/* dovelane divert on|off|status - the switch of all milters. What is said goes to every node; every milter looks there four times a second (lib/ingress/divert_switch.h)
 * and shows what it obeys in the name of its connections. */
#include "ctl/divert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "ctl/notice.h"
#include "ctl/out.h"
#include "ctl/row.h"
#include "lib/redis/control_keys.h"

#define PATIENCE 3. /* seconds for all milters to obey; they need a quarter of one */

struct admin_notice {
    unsigned long long serial;
    bool on;
    char text[160];
};

struct milter {
    char host[80];
    bool on;
    unsigned long long serial; /* of the switch */
    unsigned long long rules[DIVERT_RULES];
    size_t nodes; /* that it is connected to */
};

struct picture {
    struct admin_notice said; /* what counts */
    bool differ;              /* nodes do not agree, or do not all know it */
    size_t nmilters;
    struct milter *milter;
};

/* ---- reading ---- */

static bool parse(const char *text, struct admin_notice *out)
{
    char word[8] = "";
    *out = (struct admin_notice){0};
    bool good = sscanf(text, "%20llu %7[a-z]", &out->serial, word) == 2 &&
                (!strcmp(word, "on") || !strcmp(word, "off"));
    out->on = !strcmp(word, "on");
    snprintf(out->text, sizeof out->text, "%s", text);
    return good;
}

static void add_milter(struct picture *p, const char *name)
{
    struct milter m = {.nodes = 1};
    char word[8];
    /* Earlier versions have no rules there, or those of hold only. */
    if (sscanf(name, "dovelane-switch:%79[^:]:%7[a-z]:%20llu:%*[0-9a-f]:%20llu:%20llu", m.host,
               word, &m.serial, &m.rules[DIVERT_HOLDS], &m.rules[DIVERT_SHAPE]) < 3)
        return;
    m.on = !strcmp(word, "on");
    for (size_t i = 0; i < p->nmilters; i++)
        if (!strcmp(p->milter[i].host, m.host)) {
            p->milter[i].nodes++;
            for (size_t k = 0; k < DIVERT_RULES; k++)
                if (m.rules[k] < p->milter[i].rules[k])
                    p->milter[i].rules[k] = m.rules[k];
            /* the slower of two on one host, or a name that changes this moment */
            if (m.serial < p->milter[i].serial) {
                m.nodes = p->milter[i].nodes;
                memcpy(m.rules, p->milter[i].rules, sizeof m.rules);
                p->milter[i] = m;
            }
            return;
        }
    p->milter = mem_grow(p->milter, (p->nmilters + 1) * sizeof *p->milter);
    p->milter[p->nmilters++] = m;
}

static void read_milters(struct conn *c, struct picture *p)
{
    redisReply *list = conn_call(c, "CLIENT LIST");
    for (char *at = list && list->str ? list->str : NULL;
         at && (at = strstr(at, " name=dovelane-switch:")); at++) {
        char name[240];
        if (sscanf(at, " name=%239s", name) == 1)
            add_milter(p, name);
    }
    if (list)
        freeReplyObject(list);
}

static void read_picture(struct ctl *ctl, struct picture *p)
{
    size_t told = 0, up = 0;
    free(p->milter);
    *p = (struct picture){.said = {.on = true}};
    for (size_t i = 0; i < ctl->nconns; i++) {
        struct admin_notice one = {.on = true};
        if (!conn_up(&ctl->conn[i]))
            continue;
        redisReply *r = conn_call(&ctl->conn[i], "GET " CONTROL_DIVERT);
        up++;
        if (r && r->type == REDIS_REPLY_STRING && !parse(r->str, &one))
            one = (struct admin_notice){.on = true};
        if (r)
            freeReplyObject(r);
        if (one.serial > p->said.serial ||
            (one.serial && one.serial == p->said.serial && !one.on)) {
            told = one.serial == p->said.serial && one.on == p->said.on ? told : 0;
            p->said = one;
        }
        told += one.serial == p->said.serial && one.on == p->said.on;
        read_milters(&ctl->conn[i], p);
    }
    p->differ = told < up;
}

static bool all_obey(const struct picture *p)
{
    for (size_t i = 0; i < p->nmilters; i++)
        if (p->milter[i].serial != p->said.serial || p->milter[i].on != p->said.on)
            return false;
    return true;
}

/* ---- saying ---- */

static void say(struct ctl *ctl, bool on)
{
    struct picture before = {0};
    char *caller = ctl_caller();
    read_picture(ctl, &before);
    notice_write(ctl, CONTROL_DIVERT, before.said.serial, on, "", false);
    ctl_log(ctl, "divert %s by %s", on ? "on" : "off", caller);
    free(caller);
    free(before.milter);
}

/* ---- text ---- */

static void show_switch(const json_t *row)
{
    char when[40] = "";
    time_t at = (time_t)(row_get_time(row, "since_at") / 1000000);
    struct tm tm;
    if (at && localtime_r(&at, &tm))
        strftime(when, sizeof when, " since %Y-%m-%d %H:%M:%S", &tm);
    out("diverting is %s%s", row_get_is(row, "on") ? "on" : "off", when);
    if (row_has(row, "by"))
        out(" by %s", row_get_text(row, "by"));
    out("\n");
    if (row_get_is(row, "on") && !row_get_number(row, "next_hops"))
        out("but divert = {} in the config: nothing is diverted\n");
}

static void show_milter(const json_t *row)
{
    out("milter %s: %s%s\n", row_get_text(row, "host"), row_get_is(row, "on") ? "on" : "off",
        row_get_is(row, "obeys") ? "" : " (does not know it yet)");
}

static void show_nodes(const json_t *row)
{
    if (!row_get_is(row, "nodes_agree"))
        out("not every node knows it; the milters will tell them\n");
}

static const struct out_kind milters = {"milters", show_milter};

/* ---- rows ---- */

/* What was said is "12345 off root (uid 0)". The number is milliseconds since 1970, by the clock
 * of whoever said it (notice.c). */
static json_t *switch_row(struct ctl *ctl, const struct admin_notice *said)
{
    int caller = 0;
    json_t *row = row_new();
    row_add_is(row, "on", said->on);
    row_add_number(row, "next_hops", (long long)ctl->config->divert.n);
    if (said->serial < INT64_MAX / 1000) /* what a node says may be anything */
        row_add_time(row, "since_at", (int64_t)said->serial * 1000);
    if (sscanf(said->text, "%*u %*s %n", &caller) >= 0 && caller && said->text[caller]) {
        char *by = mem_strndup(said->text + caller, strcspn(said->text + caller, "\n"));
        row_add_text(row, "by", by);
        free(by);
    }
    return row;
}

static void print(struct ctl *ctl, const struct picture *p)
{
    out_facts(show_switch, switch_row(ctl, &p->said));
    for (size_t i = 0; i < p->nmilters; i++) {
        const struct milter *m = &p->milter[i];
        bool obeys = m->serial == p->said.serial && m->on == p->said.on;
        json_t *row = row_new();
        row_add_text(row, "host", m->host);
        row_add_is(row, "on", m->on);
        row_add_is(row, "obeys", obeys);
        out_row(&milters, row);
        if (!obeys)
            ctl_status(ctl, STATUS_LOOK);
    }
    if (!p->nmilters) {
        out("no milter is connected to any node\n");
        ctl_status(ctl, STATUS_LOOK);
    }
    json_t *row = row_new();
    row_add_is(row, "nodes_agree", !p->differ || !p->said.serial);
    out_facts(show_nodes, row);
}

bool divert_say(struct ctl *ctl, bool on)
{
    struct picture p = {0};
    say(ctl, on);
    double until = clock_monotonic() + PATIENCE;
    for (read_picture(ctl, &p); !all_obey(&p) && clock_monotonic() < until; read_picture(ctl, &p))
        usleep(50000);
    bool obeyed = all_obey(&p) && p.said.on == on;
    print(ctl, &p);
    free(p.milter);
    return obeyed;
}

enum divert_obeyed divert_rules_obeyed(struct ctl *ctl, enum divert_rules which,
                                       unsigned long long serial)
{
    struct picture p = {0};
    double until = clock_monotonic() + PATIENCE;
    bool all = false;
    do {
        read_picture(ctl, &p);
        all = p.nmilters > 0;
        for (size_t i = 0; i < p.nmilters; i++)
            all &= p.milter[i].rules[which] >= serial;
        if (!all)
            usleep(50000);
    } while (!all && p.nmilters && clock_monotonic() < until);
    enum divert_obeyed obeyed = all ? DIVERT_OBEYED : p.nmilters ? DIVERT_NOT_YET : DIVERT_NOBODY;
    free(p.milter);
    return obeyed;
}

bool divert_is_on(struct ctl *ctl)
{
    struct picture p = {0};
    read_picture(ctl, &p);
    free(p.milter);
    return p.said.on;
}

void divert_command(struct ctl *ctl, int argc, char **argv)
{
    const char *word = argc == 2 ? argv[1] : "";
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
        puts("usage: dovelane divert on|off|status\n"
             "off: every milter leaves all mail to Postfix's own queue, within a second, and after "
             "restarts, too, until `divert on`. What lies in lanes is\n"
             "delivered from there as before; `dovelane drain --to-postfix` empties them.");
        return;
    }
    if (strcmp(word, "on") && strcmp(word, "off") && strcmp(word, "status"))
        ctl_usage("usage: dovelane divert on|off|status");
    static const char *const lists[] = {"milters", NULL};
    out_begin("divert/1", lists);
    ctl_connect(ctl);
    if (strcmp(word, "status")) {
        if (!divert_say(ctl, !strcmp(word, "on")))
            ctl_status(ctl, STATUS_LOOK);
        return;
    }
    struct picture p = {0};
    read_picture(ctl, &p);
    print(ctl, &p);
    free(p.milter);
}
