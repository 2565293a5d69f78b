/* dovelane mailq - what waits in the lanes, as postqueue -p prints a queue (the formats are
 * showq's, so that scripts which read it go on working), or as postqueue -j does, with two more
 * keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "ctl/mailq.h"
#include "ctl/out.h"
#include "ctl/match_options.h"

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

static void print_item(const struct layout *l, const struct item *item)
{
    const struct envelope *e = &item->envelope;
    char hex[ENTRYID_HEX], id[80], when[32] = "";
    const char *queue = item_queue_name(item), *said = NULL;
    time_t arrived = (time_t)(e->arrived / 1000000);
    struct tm tm;
    snprintf(id, sizeof id, "%s%c", item_queue_id(item, hex),
             *queue == 'a'   ? '*'
             : *queue == 'h' ? '!'
                             : ' ');
    if (localtime_r(&arrived, &tm))
        strftime(when, sizeof when, "%a %b %e %H:%M:%S ", &tm);
    out("%-*s %*llu %-*.*s ", l->id, id, l->size, (unsigned long long)e->size, l->time, l->time,
        when);
    if (item->wrong) {
        out("(the envelope cannot be read: %s)\n\n", item->wrong);
        return;
    }
    out("%s\n", *e->sender ? e->sender : "MAILER-DAEMON");
    for (size_t i = 0; i < e->nrecipients; i++) {
        const struct recipient *r = &e->recipient[i];
        if (!recipient_open(r))
            continue;
        /* Recipients with one reason stand together below it. */
        const char *error = recipient_error(item, r);
        if (*error && (!said || strcmp(said, error)))
            print_reason(said = error);
        out("%-*s %*s %-*s %s\n", l->id, "", l->size, "", l->time, "", r->address);
    }
    putchar('\n');
}

void mailq_print(const struct queue *q)
{
    const struct layout *l = layout_of(q);
    unsigned long long bytes = 0;
    if (!q->n) {
        puts("Mail queue is empty");
        return;
    }
    puts(l->heading);
    for (size_t i = 0; i < q->n; i++) {
        print_item(l, &q->item[i]);
        bytes += q->item[i].envelope.size;
    }
    out("-- %llu Kbytes in %zu Request%s.\n", bytes / 1024, q->n, ctl_s(q->n));
}

/* ---- JSON ---- */

/* Bytes that are no UTF-8 would make no JSON. */
static json_t *text(const char *s)
{
    json_t *j = json_string(s ? s : "");
    if (j)
        return j;
    char *clean = mem_strdup(s);
    for (char *p = clean; *p; p++)
        if (*p & 0x80)
            *p = '?';
    j = json_string(clean);
    free(clean);
    return j;
}

static json_t *recipients(const struct item *item)
{
    const struct envelope *e = &item->envelope;
    json_t *list = json_array();
    for (size_t i = 0; i < e->nrecipients; i++) {
        const struct recipient *r = &e->recipient[i];
        if (!recipient_open(r))
            continue;
        json_t *one = json_object();
        json_object_set_new(one, "address", text(r->address));
        const char *error = recipient_error(item, r);
        if (*error)
            json_object_set_new(one, "delay_reason", text(error));
        json_array_append_new(list, one);
    }
    return list;
}

/* As one line of postqueue -j; the caller's. */
static json_t *item_json(const struct item *item)
{
    const struct envelope *e = &item->envelope;
    char hex[ENTRYID_HEX];
    json_t *j = json_object(), *nodes = json_array();
    json_object_set_new(j, "queue_name", text(item_queue_name(item)));
    json_object_set_new(j, "queue_id", text(item_queue_id(item, hex)));
    json_object_set_new(j, "arrival_time", json_integer(e->arrived / 1000000));
    json_object_set_new(j, "message_size", json_integer((json_int_t)e->size));
    json_object_set_new(j, "forced_expire", json_false());
    json_object_set_new(j, "sender", text(e->sender));
    json_object_set_new(j, "recipients", recipients(item));
    for (size_t i = 0; i < item->ncopies; i++)
        json_array_append_new(nodes, text(item->copy[i].conn->name));
    json_object_set_new(j, "nodes", nodes);
    json_object_set_new(j, "lane", text(item->lane));
    return j;
}

static void print_json(const struct queue *q)
{
    for (size_t i = 0; i < q->n; i++) {
        json_t *j = item_json(&q->item[i]);
        char *line = json_dumps(j, JSON_PRESERVE_ORDER | JSON_COMPACT);
        out_json(line ? line : "{}");
        free(line);
        json_decref(j);
    }
}

/* ---- command ---- */

void mailq_command(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            MATCH_LONG_OPTIONS,
                                            {0}};
    struct match pick = {0};
    struct queue q;
    bool json = false;
    int o;
    while ((o = getopt_long(argc, argv, "jph", options, NULL)) != -1) {
        if (o >= MATCH_OPTION)
            match_options_add(&pick, o, optarg);
        else if (o == 'j')
            json = true;
        else if (o == 'h') {
            puts("usage: dovelane mailq [-j] [which mails | ID...]\n"
                 "Prints what waits in the lanes as `postqueue -p` prints Postfix's queue; * after "
                 "an id: being delivered, !: held.\n"
                 "  -j  one JSON object a line, with the keys of `postqueue -j` and `nodes` (who "
                 "holds it) and `lane`\n");
            match_options_print_help();
            exit(STATUS_DONE);
        } else if (o != 'p')
            ctl_usage("see `dovelane mailq --help`");
    }
    match_options_ids(&pick, argc, argv);
    ctl_connect(ctl);
    queue_load(ctl, &q);
    match_options_filter(&pick, &q);
    if (json)
        print_json(&q);
    else
        mailq_print(&q);
    queue_free(&q);
    match_free(&pick);
}
