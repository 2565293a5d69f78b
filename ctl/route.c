/* dovelane route - what would become of a mail to an address, and why. The milter's way:
 * Postfix's trivial-rewrite(8) is asked where it goes, as smtpd(8) asks it. The proxy's: the
 * setting `route` says it. Then both judge by the rules that the programs judge by
 * (lib/ingress/reasons.h). Nothing is sent. */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/mail/address.h"
#include "ctl/ctl.h"
#include "ctl/divert.h"
#include "lib/base/mem.h"
#include "ctl/out.h"
#include "ctl/row.h"
#include "lib/config/nexthop.h"
#include "lib/postfix/postconf.h"
#include "lib/postfix/postfix.h"
#include "lib/ingress/reasons.h"
#include "ctl/rewrite.h"
#include "lib/ingress/route.h"
#include "ctl/hold_rules.h"

static const char help[] =
    "usage: dovelane route [--sender ADDRESS] [--proxy] [--postfix-config DIR] ADDRESS\n"
    "What would become of a mail to this address: its next hop as Postfix resolves it, and each "
    "reason "
    "against diverting it. The last line says\n"
    "what follows. Nothing is sent. Run it as root on a host with Postfix; the nodes are asked for "
    "`divert off` and the rules of `dovelane hold`.\n"
    "  --sender ADDRESS  from whom; \"\" (as without it): the null sender (--from: the same)\n"
    "  --proxy           as dovelane-proxy judges, not as the milter: the setting `route` has the "
    "next hop, and Postfix need not run\n"
    "A mail to several recipients is diverted only when each of them would be. What only a mail's "
    "content decides is not known here:\n"
    "its size, its header, DSN's NOTIFY=SUCCESS, and what your restrictions make of a client.\n"
    "That mail comes by an smtpd(8) that asks our milter, or by the proxy, is taken for granted. "
    "Where none asks the milter, that is a reason (unasked).\n"
    "Exit status: 0 diverted; 1 Postfix's own queue, for the reasons named; 2 not known.";

struct route_query {
    struct ctl *ctl;
    const char *sender, *address;
    char *destination; /* as `divert` has it; NULL: none */
    size_t reasons;
};

/* ---- reasons ---- */

static void show_reason(const json_t *row)
{
    static bool another;
    out("  %-10s reason=%s: %s\n", another ? "" : "because", row_get_text(row, "reason"),
        row_get_text(row, "message"));
    another = true;
}

static void against(struct route_query *q, const char *reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void against(struct route_query *q, const char *reason, const char *format, ...)
{
    static const struct out_kind reasons = {"reasons", show_reason};
    va_list ap;
    char *message = NULL;
    va_start(ap, format);
    if (vasprintf(&message, format, ap) < 0)
        abort();
    va_end(ap);
    json_t *row = row_new();
    row_add_text(row, "reason", reason);
    row_add_text(row, "message", message);
    free(message);
    q->reasons++;
    out_row(&reasons, row);
}

static void show_note(const json_t *row)
{
    out("  note       %s\n", row_get_text(row, "note"));
}

static void show_next_hop(const json_t *row)
{
    out("  next hop   %s",
        row_has(row, "next_hop") ? row_get_text(row, "next_hop") : "by Postfix, behind proxy_next");
    if (row_has(row, "rewritten_as"))
        out(", as <%s>", row_get_text(row, "rewritten_as"));
    out("\n");
}

static void print_next_hop(const char *hop, const char *rewritten_as)
{
    json_t *row = row_new();
    row_add_text(row, "next_hop", hop);
    row_add_text(row, "rewritten_as", rewritten_as);
    out_facts(show_next_hop, row);
}

static void of_maps(struct route_query *q, enum maps_of of, const char *address)
{
    char detail[600];
    const char *reason = reasons_of_maps(of, address, maps_patience(), detail, sizeof detail);
    if (reason)
        against(q, reason, "%s<%s>, by %s", of == MAPS_SENDER ? "the sender " : "", address,
                detail);
}

/* What both ways in look at, in the words of their logs. */
static void find_reasons(struct route_query *q)
{
    const struct config *c = q->ctl->config;
    char detail[600];
    if (!postfix_asks())
        against(q, "unasked",
                "no smtpd(8) of this Postfix asks the milter at milter_socket = %s; "
                "`dovelane check postfix`",
                c->milter_socket);
    const char *reason = reasons_of_all(divert_is_on(q->ctl), detail, sizeof detail);
    if (reason && *detail)
        against(q, reason, "%s: diverted mail would miss it; `dovelane check postfix`", detail);
    else if (reason)
        against(q, reason, "`dovelane divert off` was said; `dovelane divert status`");
    reason = q->destination
                 ? reasons_of_recipient(c, q->destination, q->address, NULL, detail, sizeof detail)
                 : NULL;
    if (reason && !strcmp(reason, "postfix"))
        against(q, reason, "%s: Postfix does it as it delivers; `dovelane check postfix`", detail);
    else if (reason)
        against(q, reason, "`divert` has no \"%s\"", q->destination);
    of_maps(q, MAPS_SENDER, q->sender);
    of_maps(q, MAPS_RECIPIENT, q->address);
    if (*c->postfix_config)
        return;
    json_t *row = row_new();
    row_add_text(row, "note",
                 "postfix_config is empty: neither programs nor this command look at Postfix's "
                 "maps and filters");
    out_facts(show_note, row);
}

/* ---- the milter's way ---- */

static void by_postfix(struct route_query *q, const struct postconf *conf)
{
    struct rewrite *asked = rewrite_open(conf);
    struct resolved to = rewrite_ask(asked, q->sender, q->address), from = {0};
    bool anew = address_rewritten(q->address, to.recipient);
    if (*q->sender)
        from = rewrite_ask(asked, "", q->sender);
    rewrite_close(asked);
    if (to.unavailable)
        ctl_usage("route: <%s>: Postfix could not ask one of its maps, so nobody knows where this "
                  "goes; its log names the map",
                  q->address);
    char *resolved = mem_printf("%s:%s", to.transport, to.nexthop);
    q->destination = nexthop_spell(resolved);
    free(resolved);
    print_next_hop(q->destination, anew ? to.recipient : NULL);
    if (to.impossible || !strcmp(to.transport, "error") || !strcmp(to.transport, "retry")) {
        against(q, to.impossible ? "address" : to.transport, "Postfix cannot deliver it: %s",
                *to.nexthop ? to.nexthop : "this is not an address");
    } else {
        if (anew)
            against(q, "rewritten", "Postfix writes it as <%s>", to.recipient);
        if (*q->sender && address_rewritten(q->sender, from.recipient))
            against(q, "rewritten", "Postfix writes the sender <%s> as <%s>", q->sender,
                    from.recipient);
        find_reasons(q);
    }
    resolved_free(&to);
    resolved_free(&from);
}

/* ---- the proxy's ---- */

static void by_route(struct route_query *q)
{
    char delimiter[POSTFIX_DELIMITER];
    struct route *route = route_new(q->ctl->config);
    bool plain = address_plain(q->address, true);
    postfix_delimiter(delimiter);
    const char *hop = plain ? route_of(route, q->address, delimiter) : NULL;
    q->destination = hop ? mem_strdup(hop) : NULL;
    print_next_hop(hop, NULL);
    if (!plain)
        against(q, "rewritten", "Postfix may write <%s> in another way", q->address);
    else if (!hop)
        against(q, "no-route", "`route` has nothing for <%s>", q->address);
    if (*q->sender && !address_plain(q->sender, true))
        against(q, "rewritten", "Postfix may write the sender <%s> in another way", q->sender);
    find_reasons(q);
    route_free(route);
}

/* ---- what follows ---- */

static void print_holds(struct route_query *q)
{
    struct recipient to = {.address = mem_strdup(q->address)};
    struct envelope e = {.sender = mem_strdup(q->sender), .recipient = &to, .nrecipients = 1};
    hold_rules_explain(q->ctl,
                       &(struct match_facts){.envelope = &e, .destination = q->destination});
    free(to.address);
    free(e.sender);
}

static void show_order(const json_t *row)
{
    if (row_get_is(row, "ordered"))
        out("  ordered    yes: mail of one host goes to it one after the other (placement = "
            "ordered)\n");
}

static void show_verdict(const json_t *row)
{
    long long copies = row_get_number(row, "copies"), nodes = row_get_number(row, "nodes");
    if (row_get_is(row, "diverted"))
        out("  diverted   yes: to lanes on %lld node%s\n", copies,
            ctl_s((unsigned long long)copies));
    else if (row_has(row, "nodes"))
        out("  diverted   no: copies = %lld, and this file names %lld node%s: Postfix's own "
            "queue\n",
            copies, nodes, ctl_s((unsigned long long)nodes));
    else
        out("  diverted   no: Postfix's own queue\n");
}

/* Its last line is the verdict. */
static void conclude(struct route_query *q)
{
    const struct config *c = q->ctl->config;
    json_t *order = row_new(), *verdict = row_new();
    bool few = q->ctl->nconns && (size_t)c->copies > q->ctl->nconns;
    if (!q->reasons) {
        row_add_is(order, "ordered",
                   config_destination(c, q->destination)->placement == PLACEMENT_ORDERED);
        out_facts(show_order, order);
        print_holds(q);
        row_add_number(verdict, "copies", (long long)c->copies);
        if (few)
            row_add_number(verdict, "nodes", (long long)q->ctl->nconns);
    } else {
        json_decref(order);
    }
    row_add_is(verdict, "diverted", !q->reasons && !few);
    out_facts(show_verdict, verdict);
    if (q->reasons || few)
        ctl_status(q->ctl, STATUS_LOOK);
}

static void show_address(const json_t *row)
{
    out("<%s>\n", row_get_text(row, "address"));
}

static void print_question(const struct route_query *q, enum postfix_way way)
{
    json_t *row = row_new();
    row_add_text(row, "address", q->address);
    row_add_text(row, "sender", q->sender);
    row_add_text(row, "way_in", way == POSTFIX_MILTER ? "milter" : "proxy");
    out_facts(show_address, row);
}

static void judge(struct route_query *q, enum postfix_way way, const char *directory)
{
    char *error = NULL;
    struct postconf *conf = way == POSTFIX_MILTER ? postconf_read(directory, &error) : NULL;
    if (way == POSTFIX_MILTER && !conf)
        ctl_usage("route: postconf does not work here (%s): run it on a host with Postfix, or name "
                  "--postfix-config",
                  error);
    static const char *const lists[] = {"reasons", "holds", NULL};
    out_begin("route/1", lists);
    ctl_connect(q->ctl);
    postfix_look(q->ctl->config, way);
    print_question(q, way);
    if (way == POSTFIX_MILTER)
        by_postfix(q, conf);
    else
        by_route(q);
    conclude(q);
    postconf_free(conf);
}

const struct option route_options[] = {
    {"sender", required_argument, NULL, 's'}, {"from", required_argument, NULL, 's'},
    {"proxy", no_argument, NULL, 'x'},        {"postfix-config", required_argument, NULL, 'p'},
    {"help", no_argument, NULL, 'h'},         {0}};

void route_command(struct ctl *ctl, int argc, char **argv)
{
    struct route_query q = {.ctl = ctl, .sender = ""};
    enum postfix_way way = POSTFIX_MILTER;
    const char *directory = NULL;
    int o;
    while ((o = getopt_long(argc, argv, "s:h", route_options, NULL)) != -1) {
        switch (o) {
        case 's': q.sender = strcmp(optarg, "<>") ? optarg : ""; break;
        case 'x': way = POSTFIX_PROXY; break;
        case 'p': directory = optarg; break;
        case 'h': puts(help); return;
        default: ctl_usage("see `dovelane route --help`");
        }
    }
    if (optind + 1 != argc)
        ctl_usage("route wants one address; see `dovelane route --help`");
    q.address = argv[optind];
    if (!*q.address || strpbrk(q.address, "\r\n"))
        ctl_usage("route: \"%s\" is no address", q.address);
    if (!directory && *ctl->config->postfix_config)
        directory = ctl->config->postfix_config;
    judge(&q, way, directory);
    free(q.destination);
}
