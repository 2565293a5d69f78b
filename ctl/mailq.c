/* dovelane mailq - what waits in the lanes, as postqueue -p prints a queue (the formats are
 * showq's, so that scripts which read it go on working), oldest arrival first; or as postqueue -j
 * does, with more keys, lane after lane, so that a million mails need no memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl/mailq.h"
#include "ctl/out.h"
#include "ctl/match_options.h"
#include "ctl/queue_stream.h"
#include "ctl/row.h"

/* Postfix has two layouts, by the length of its ids. */
struct layout {
    int id, size, time;
    const char *heading;
};
static const struct layout short_ids = {
    11, 7, 20, "-Queue ID-  --Size-- ----Arrival Time---- -Sender/Recipient-------"};
static const struct layout long_ids = {
    17, 8, 19, "----Queue ID----- --Size-- ---Arrival Time---- --Sender/Recipient------"};

static const struct layout *layout_of(const struct queue *q)
{
    char hex[ENTRYID_HEX];
    for (size_t i = 0; i < q->n; i++)
        if (strlen(item_queue_id(&q->item[i], hex)) > 10)
            return &long_ids;
    return &short_ids;
}

static void print_reason(const char *reason)
{
    int padding = 76 - (int)strlen(reason);
    out("%*s(%s)\n", padding > 0 ? padding : 0, "", reason);
}

#define RETAINED_WHY "delivered; retained until enough sites have it on disk"

static const struct layout *layout; /* of the list that is printed */

static void show_recipients(const json_t *mail)
{
    const char *said = "";
    for (size_t i = 0; i < row_size(mail, "recipients"); i++) {
        const json_t *r = row_item(mail, "recipients", i);
        /* Recipients with one reason stand together below it. */
        const char *error = row_get_text(r, "delay_reason");
        if (*error && strcmp(said, error))
            print_reason(said = error);
        out("%-*s %*s %-*s %s\n", layout->id, "", layout->size, "", layout->time, "",
            row_get_text(r, "address"));
    }
    out("\n");
}

static void show_mail(const json_t *mail)
{
    char id[80], when[32] = "";
    const char *queue = row_get_text(mail, "queue_name"), *sender = row_get_text(mail, "sender");
    time_t arrived = (time_t)row_get_number(mail, "arrival_time");
    struct tm tm;
    snprintf(id, sizeof id, "%s%c", row_get_text(mail, "queue_id"),
             *queue == 'a'   ? '*'
             : *queue == 'h' ? '!'
                             : ' ');
    if (localtime_r(&arrived, &tm))
        strftime(when, sizeof when, "%a %b %e %H:%M:%S ", &tm);
    out("%-*s %*lld %-*.*s ", layout->id, id, layout->size, row_get_number(mail, "message_size"),
        layout->time, layout->time, when);
    if (row_has(mail, "unreadable")) {
        out("(the envelope cannot be read: %s)\n\n", row_get_text(mail, "unreadable"));
        return;
    }
    out("%s\n", *sender ? sender : "MAILER-DAEMON");
    show_recipients(mail);
}

static const struct out_kind mails = {"mails", show_mail};

/* ---- rows ---- */

/* Those who wait; of a mail that is delivered and kept, those whom it is kept for. */
static json_t *recipients(const struct item *item)
{
    const struct envelope *e = &item->envelope;
    bool kept = envelope_is_retained(e);
    json_t *list = json_array();
    for (size_t i = 0; i < e->nrecipients; i++) {
        const struct recipient *r = &e->recipient[i];
        if (!recipient_open(r) && !(kept && r->state == RECIPIENT_RETAINED))
            continue;
        json_t *one = row_new();
        const char *error = kept ? RETAINED_WHY : recipient_error(item, r);
        row_add_text(one, "address", r->address);
        row_add_text(one, "delay_reason", *error ? error : NULL);
        json_array_append_new(list, one);
    }
    return list;
}

/* As one line of postqueue -j, and more behind it. */
static json_t *mail_row(const struct item *item)
{
    const struct envelope *e = &item->envelope;
    char hex[ENTRYID_HEX];
    json_t *row = row_new(), *nodes = json_array();
    row_add_text(row, "queue_name", item_queue_name(item));
    row_add_text(row, "queue_id", item_queue_id(item, hex));
    row_add_number(row, "arrival_time", e->arrived / 1000000);
    row_add_number(row, "message_size", (long long)e->size);
    row_add_is(row, "forced_expire", false);
    row_add_text(row, "sender", e->sender ? e->sender : "");
    row_add(row, "recipients", recipients(item));
    for (size_t i = 0; i < item->ncopies; i++)
        row_append_text(nodes, item->copy[i].conn->name);
    row_add(row, "nodes", nodes);
    row_add_text(row, "lane", item->lane);
    row_add_text(row, "class", item->name.class);
    row_add_text(row, "unreadable", item->wrong);
    return row;
}

void mailq_print(const struct queue *q)
{
    unsigned long long bytes = 0;
    layout = layout_of(q);
    out("%s\n", q->n ? layout->heading : "Mail queue is empty");
    for (size_t i = 0; i < q->n; i++) {
        out_row(&mails, mail_row(&q->item[i]));
        bytes += q->item[i].envelope.size;
    }
    if (q->n)
        out("-- %llu Kbytes in %zu Request%s.\n", bytes / 1024, q->n, ctl_s(q->n));
}

static void print_one(struct item *item, void *pick)
{
    if (match_options_fit(pick, item))
        out_row(&mails, mail_row(item));
}

/* ---- command ---- */

const struct option mailq_options[] = {
    {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, MATCH_LONG_OPTIONS, {0}};

void mailq_command(struct ctl *ctl, int argc, char **argv)
{
    struct match pick = {0};
    struct queue q;
    int o;
    while ((o = getopt_long(argc, argv, "jph", mailq_options, NULL)) != -1) {
        if (o >= MATCH_OPTION)
            match_options_add(&pick, o, optarg);
        else if (o == 'j')
            out_choose_json(true);
        else if (o == 'h') {
            puts("usage: dovelane mailq [-j] [which mails | ID...]\n"
                 "Prints what waits in the lanes as `postqueue -p` prints Postfix's queue; * after "
                 "an id: being delivered, !: held.\n"
                 "  -j  one JSON object a line, with the keys of `postqueue -j`, and more: `nodes` "
                 "(who holds it), `lane`, `class`\n");
            match_options_print_help();
            exit(STATUS_DONE);
        } else if (o != 'p')
            ctl_usage("see `dovelane mailq --help`");
    }
    match_options_ids(&pick, argc, argv);
    out_begin_lines("mailq/1");
    ctl_connect(ctl);
    if (out_is_json()) {
        queue_stream(ctl, print_one, &pick);
    } else {
        queue_load(ctl, &q);
        match_options_filter(&pick, &q);
        mailq_print(&q);
        queue_free(&q);
    }
    match_free(&pick);
}
