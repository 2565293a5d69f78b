/* dovelane trace - the whole story of a mail, from what logs say of it and from what lies in the
 * lanes now. Logs of other hosts are read where they are given; which were not is said. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl/ctl.h"
#include "ctl/out.h"
#include "ctl/queue_stream.h"
#include "ctl/row.h"
#include "ctl/trace_recipients.h"
#include "ctl/trace_story.h"
#include "lib/base/mem.h"
#include "lib/base/units.h"

#define SINCE (8 * 86400) /* seconds; Postfix keeps a mail for five days */

static const char help[] =
    "usage: dovelane trace [-f FILE]... [--since TIME] ID\n"
    "What became of a mail: who took it, on which nodes it was stored, and each attempt with "
    "its reply. Also in which mailbox it is,\n"
    "and what the lanes have now.\n"
    "  ID            Postfix's queue id, an entry's id (32 hex digits), or a Message-ID\n"
    "  -f FILE       reads this log and not this host's; several are possible, - is stdin. Text, "
    "JSON,\n"
    "                `journalctl -o json`, and what gzip, xz or zstd made of them\n"
    "  --since TIME  how old lines of this host's logs may be (8d): 2h, 30d\n"
    "Without -f: the journal, the files that the settings of Dovelane, Postfix and Dovecot name, "
    "and /var/log/mail.log.\n"
    "Another host's, where hosts may log in to each other:\n"
    "  ssh mx2 journalctl -o json --since -8d -t postfix/dovelane-relay | dovelane trace -f - -f "
    "/var/log/mail.log ID\n"
    "Exit status: 0 found; 1 nothing found, or a node does not answer; 2 wrong usage.";

/* ---- the lanes ---- */

struct lanes {
    struct trace_story *story;
    json_t *rows; /* with "queue_id" and "entry_id" */
};

static json_t *lane_recipients(const struct item *item)
{
    static const char *const word[] = {"waiting", "sent", "failed", "bounced", "retained"};
    json_t *list = json_array();
    for (size_t i = 0; i < item->envelope.nrecipients; i++) {
        const struct recipient *r = &item->envelope.recipient[i];
        const char *error = recipient_error(item, r);
        json_t *row = row_new();
        row_add_text(row, "address", r->address);
        row_add_text(row, "state", word[r->state]);
        row_add_is(row, "open", recipient_open(r));
        row_add_number(row, "attempts", r->attempts);
        row_add_text(row, "error", *error ? error : NULL);
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *lane_row(const struct item *item)
{
    static const char *const word[] = {"waiting", "delayed", "being_delivered"};
    char hex[ENTRYID_HEX];
    json_t *row = row_new(), *copies = json_array();
    row_add_text(row, "queue_id", item_queue_id(item, hex));
    entryid_hex(item->id, hex);
    row_add_text(row, "entry_id", hex);
    row_add_text(row, "queue_name", item_queue_name(item));
    row_add_text(row, "lane", item->lane);
    row_add_text(row, "from", item->envelope.sender);
    row_add_text(row, "message_id", item->envelope.message_id);
    row_add_time(row, "arrived_at", item->envelope.arrived);
    for (size_t i = 0; i < item->ncopies; i++) {
        json_t *copy = row_new();
        row_add_text(copy, "node", item->copy[i].conn->name);
        row_add_text(copy, "state", word[item->copy[i].state]);
        json_array_append_new(copies, copy);
    }
    row_add(row, "copies", copies);
    row_add(row, "recipients", lane_recipients(item));
    return row;
}

static void look_at_item(struct item *item, void *arg)
{
    struct lanes *lanes = arg;
    struct trace_story *t = lanes->story;
    char hex[ENTRYID_HEX];
    const char *id = item_queue_id(item, hex);
    const char *message_id = item->envelope.message_id ? item->envelope.message_id : "";
    size_t mail = trace_story_mail(t, TRACE_QUEUE_ID, id), len = strlen(t->asked.text);
    entryid_hex(item->id, hex);
    if (mail == TRACE_NO_MAIL)
        mail = trace_story_mail(t, TRACE_ENTRY, hex);
    bool asked = t->asked.kind == TRACE_MESSAGE_ID && strlen(message_id) == len + 2 &&
                 !strncmp(message_id + 1, t->asked.text, len);
    if (mail == TRACE_NO_MAIL && !asked)
        return;
    mail = trace_story_learn(t, TRACE_QUEUE_ID, item_queue_id(item, hex), mail);
    entryid_hex(item->id, hex);
    mail = trace_story_learn(t, TRACE_ENTRY, hex, mail);
    trace_story_learn(t, TRACE_MESSAGE_ID, message_id, mail);
    json_array_append_new(lanes->rows, lane_row(item));
}

static void look_into_lanes(struct ctl *ctl, struct lanes *lanes)
{
    json_array_clear(lanes->rows);
    queue_stream(ctl, look_at_item, lanes);
}

/* ---- text ---- */

static void show_time(const json_t *row, const char *key)
{
    char when[40] = "";
    int64_t at = row_get_time(row, key);
    time_t seconds = (time_t)(at / 1000000);
    struct tm tm;
    if (at > 0 && localtime_r(&seconds, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    out("%s.%03d", *when ? when : "                   ", (int)(at / 1000 % 1000));
}

static const char *or_else(const char *s, const char *other)
{
    return *s ? s : other;
}

static void show_stored(const json_t *e)
{
    struct buf nodes = {0};
    row_join(e, "nodes", ", ", "no node", &nodes);
    buf_addc(&nodes, '\0');
    out("on %s, from=<%s>, client=%s[%s]", nodes.data, row_get_text(e, "from"),
        or_else(row_get_text(e, "client_name"), "unknown"), row_get_text(e, "client_address"));
    buf_free(&nodes);
}

static void show_attempt(const json_t *e)
{
    const char *why = row_get_text(e, "why");
    out("<%s>", row_get_text(e, "to"));
    if (*row_get_text(e, "relay"))
        out(" at %s", row_get_text(e, "relay"));
    out(": %s", row_get_text(e, "reply"));
    if (*why && strcmp(why, "first"))
        out(", why=%s", why);
}

static void show_place(const json_t *e)
{
    out("%s of %s", row_get_text(e, "mailbox"), or_else(row_get_text(e, "user"), "?"));
    if (row_has(e, "uid"))
        out(", UID %lld", row_get_number(e, "uid"));
    if (row_has(e, "site"))
        out(", came in at site %lld", row_get_number(e, "site"));
}

static void show_event(const json_t *e)
{
    static const struct {
        const char *event;
        void (*show)(const json_t *);
    } by[] = {{"stored", show_stored},     {"split", show_stored},
              {"delivered", show_attempt}, {"deferred", show_attempt},
              {"bounced", show_attempt},   {"notified", show_attempt},
              {"stays", show_attempt},     {"handed_over", show_attempt},
              {"saved", show_place},       {"placed", show_place}};
    const char *event = row_get_text(e, "event"), *node = row_get_text(e, "node");
    bool shown = false;
    if (!strcmp(event, "headers"))
        return;
    out("  ");
    show_time(e, "at");
    out("  %-8s %-12s ", *node ? node : or_else(row_get_text(e, "host"), "-"), event);
    for (size_t i = 0; i < sizeof by / sizeof *by && !shown; i++)
        if ((shown = !strcmp(by[i].event, event)))
            by[i].show(e);
    if (!shown)
        out("%s", row_get_text(e, "text"));
    out("\n");
}

static void show_lane(const json_t *lane)
{
    out("  now                      %-12s %s", row_get_text(lane, "queue_name"),
        row_get_text(lane, "lane"));
    for (size_t i = 0; i < row_size(lane, "copies"); i++)
        out("%s %s: %s", i ? "," : "; on", row_get_text(row_item(lane, "copies", i), "node"),
            row_get_text(row_item(lane, "copies", i), "state"));
    out("\n");
    for (size_t i = 0; i < row_size(lane, "recipients"); i++) {
        const json_t *r = row_item(lane, "recipients", i);
        out("                           <%s> %s, %lld attempts%s%s\n", row_get_text(r, "address"),
            row_get_text(r, "state"), row_get_number(r, "attempts"),
            *row_get_text(r, "error") ? ": " : "", row_get_text(r, "error"));
    }
}

static void show_names(const json_t *mail, const char *label, const char *key)
{
    struct buf names = {0};
    row_join(mail, key, ", ", "", &names);
    buf_addc(&names, '\0');
    if (*names.data)
        out("%s%s\n", label, names.data);
    buf_free(&names);
}

/* Who may be the node or the replica that no line names. */
static void show_perhaps(const json_t *row)
{
    struct buf hosts = {0};
    row_join(row, "perhaps", ", ", "", &hosts);
    buf_addc(&hosts, '\0');
    out("no line names it; it may be %s\n", hosts.data);
    buf_free(&hosts);
}

static void show_ends(const json_t *mail)
{
    for (size_t i = 0; i < row_size(mail, "recipients"); i++) {
        const json_t *r = row_item(mail, "recipients", i);
        long long n = row_get_number(r, "attempts");
        out("recipient   <%s> %s", row_get_text(r, "address"), row_get_text(r, "state"));
        if (n)
            out(", %lld attempt%s", n, ctl_s((unsigned long long)n));
        out("\n");
    }
    for (size_t i = 0; i < row_size(mail, "places"); i++) {
        const json_t *p = row_item(mail, "places", i);
        out("mailbox     %s of %s at %s, by %s\n", row_get_text(p, "mailbox"),
            row_get_text(p, "user"),
            or_else(row_get_text(p, "node"),
                    or_else(row_get_text(p, "host"), row_get_text(p, "log"))),
            row_get_text(p, "by"));
    }
    for (size_t i = 0; i < row_size(mail, "unseen"); i++) {
        const json_t *u = row_item(mail, "unseen", i);
        out("not seen    at replica %s: ", row_get_text(u, "replica"));
        if (row_get_is(u, "log_read"))
            out("its log says nothing of it\n");
        else if (row_size(u, "perhaps"))
            show_perhaps(u);
        else
            out("its log was not read\n");
    }
    for (size_t i = 0; i < row_size(mail, "clocks"); i++) {
        const json_t *c = row_item(mail, "clocks", i);
        out("clock       of %s is at least %.3f s behind that of %s: what it logged is sorted by "
            "that\n",
            row_get_text(c, "host"), row_get_real(c, "behind_seconds"), row_get_text(c, "than"));
    }
}

static void show_mail(const json_t *mail)
{
    static bool another;
    if (another)
        out("\n");
    another = true;
    show_names(mail, "queue id    ", "queue_ids");
    show_names(mail, "entry       ", "entry_ids");
    show_names(mail, "message-id  ", "message_ids");
    for (size_t i = 0; i < row_size(mail, "events"); i++)
        show_event(row_item(mail, "events", i));
    for (size_t i = 0; i < row_size(mail, "lanes"); i++)
        show_lane(row_item(mail, "lanes", i));
    show_ends(mail);
}

static void show_log(const json_t *row)
{
    const char *trouble = row_get_text(row, "trouble");
    out("%s: %lld line%s%s%s\n", row_get_text(row, "log"), row_get_number(row, "lines"),
        ctl_s((unsigned long long)row_get_number(row, "lines")), *trouble ? "; " : "", trouble);
}

static void show_unread(const json_t *row)
{
    if (row_size(row, "perhaps")) {
        out("not known: the log of %s %s: ", row_get_text(row, "kind"), row_get_text(row, "name"));
        show_perhaps(row);
        return;
    }
    out("not read: the log of %s %s%s\n", row_get_text(row, "kind"), row_get_text(row, "name"),
        row_get_is(row, "answers") || strcmp(row_get_text(row, "kind"), "node")
            ? ""
            : ", whose lanes do not answer");
}

static void show_other(const json_t *row)
{
    out("another mail with that Message-ID: %s\n", row_get_text(row, "queue_id"));
}

static const struct out_kind mails = {"mails", show_mail}, logs = {"logs", show_log},
                             unread = {"not_read", show_unread}, others = {"others", show_other};

/* ---- what is found ---- */

static json_t *lanes_of(const struct trace_story *t, const json_t *rows, size_t mail)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (trace_story_mail(t, TRACE_ENTRY, row_get_text(json_array_get(rows, i), "entry_id")) ==
            mail)
            json_array_append(list, json_array_get(rows, i));
    return list;
}

static void without_inner_names(json_t *mail)
{
    for (size_t i = 0; i < row_size(mail, "events"); i++)
        json_object_del(json_array_get(json_object_get(mail, "events"), i), "at_us");
}

static size_t print_mails(struct ctl *ctl, struct trace_story *t, const struct trace_sources *s,
                          const json_t *rows)
{
    size_t n = 0;
    for (size_t mail = 0; mail < t->nmails; mail++) {
        json_t *list = trace_story_events(t, mail), *lanes = lanes_of(t, rows, mail);
        if (!json_array_size(list) && json_array_size(lanes)) {
            json_t *row = row_new();
            json_t *id = json_array();
            row_append_text(id, row_get_text(json_array_get(lanes, 0), "queue_id"));
            row_add(row, "queue_ids", id);
            json_array_append_new(list, row);
        }
        for (size_t i = 0; i < json_array_size(list); i++, n++) {
            json_t *row = json_array_get(list, i);
            bool last = i + 1 == json_array_size(list);
            json_t *none = json_array();
            trace_recipients_add(row, last ? lanes : none, ctl->config, s);
            row_add(row, "lanes", last ? json_incref(lanes) : json_incref(none));
            json_decref(none);
            without_inner_names(row);
            out_row(&mails, json_incref(row));
        }
        json_decref(list);
        json_decref(lanes);
    }
    return n;
}

static void print_unread(const struct ctl *ctl, const struct trace_sources *s)
{
    for (size_t i = 0; i < ctl->config->nnodes + ctl->config->nreplicas; i++) {
        bool node = i < ctl->config->nnodes;
        const char *name =
            node ? ctl->config->node[i].name : ctl->config->replica[i - ctl->config->nnodes].name;
        if (trace_hosts_heard(&s->hosts, name))
            continue;
        json_t *row = row_new();
        row_add_text(row, "kind", node ? "node" : "replica");
        row_add_text(row, "name", name);
        if (node)
            row_add_is(row, "answers", conn_up(&ctl->conn[i]));
        row_add(row, "perhaps", trace_hosts_strangers(&s->hosts, ctl->config, !node));
        out_row(&unread, row);
    }
}

static void print_logs(const struct trace_sources *s)
{
    for (size_t i = 0; i < s->n; i++) {
        json_t *row = row_new();
        row_add_text(row, "log", s->v[i].path);
        row_add_number(row, "lines", (long long)s->v[i].lines);
        row_add_text(row, "trouble", s->v[i].trouble);
        out_row(&logs, row);
    }
}

static void connect_nodes(struct ctl *ctl)
{
    for (size_t i = 0; i < ctl->nconns; i++) {
        if (conn_open(&ctl->conn[i], ctl->config, i))
            continue;
        out_error("dovelane: node %s (%s): %s; what only it holds is missing here\n",
                  ctl->conn[i].name, ctl->conn[i].address, ctl->conn[i].trouble);
        ctl_status(ctl, STATUS_LOOK);
    }
}

static void trace(struct ctl *ctl, struct trace_sources *s, const char *id)
{
    static const char *const lists[] = {"mails", "others", "logs", "not_read", NULL};
    struct trace_story t;
    struct lanes lanes = {&t, json_array()};
    trace_story_begin(&t, id);
    connect_nodes(ctl);
    look_into_lanes(ctl, &lanes);
    size_t before = t.nnames;
    trace_story_read(&t, s);
    if (t.nnames > before)
        look_into_lanes(ctl, &lanes);
    out_begin("trace/1", lists);
    size_t n = print_mails(ctl, &t, s, lanes.rows);
    for (size_t i = 0; i < json_array_size(t.others); i++) {
        json_t *row = row_new();
        row_add_text(row, "queue_id", json_string_value(json_array_get(t.others, i)));
        out_row(&others, row);
    }
    if (n)
        out("\n");
    print_logs(s);
    print_unread(ctl, s);
    if (!n) {
        out_error("dovelane: neither the lanes nor these logs know %s\n", id);
        ctl_status(ctl, STATUS_LOOK);
    }
    if (t.too_many)
        out_error("dovelane: more belongs to it than is shown here\n");
    json_decref(lanes.rows);
    trace_story_free(&t);
}

const struct option trace_options[] = {{"file", required_argument, NULL, 'f'},
                                       {"since", required_argument, NULL, 's'},
                                       {"help", no_argument, NULL, 'h'},
                                       {0}};

void trace_command(struct ctl *ctl, int argc, char **argv)
{
    struct trace_sources s = {.since = time(NULL) - SINCE};
    int64_t age;
    int o;
    while ((o = getopt_long(argc, argv, "f:h", trace_options, NULL)) != -1) {
        switch (o) {
        case 'f': trace_sources_add(&s, optarg); break;
        case 's':
            if (!units_time(optarg, &age))
                ctl_usage("--since %s: not a time, such as 2h or 30d", optarg);
            s.since = time(NULL) - age / 1000;
            break;
        case 'h': puts(help); exit(STATUS_DONE);
        default: ctl_usage("see `dovelane trace --help`");
        }
    }
    if (optind + 1 != argc || !*argv[optind])
        ctl_usage("trace wants to know which mail: a queue id, an entry's id or a Message-ID");
    if (!strcmp(argv[optind], "<>"))
        ctl_usage("trace: <> is the Message-ID of no mail, but of all that have none: say a queue "
                  "id, or an entry's id");
    if (!s.n)
        trace_sources_find(&s, ctl->config);
    trace(ctl, &s, argv[optind]);
    trace_sources_free(&s);
}
