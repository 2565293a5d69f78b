/* dovelane show ID, dovelane cat ID - one mail: what is known of it; what a next hop would get. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl/mailq.h"
#include "ctl/out.h"
#include "ctl/match_options.h"

static void print_time(const char *label, int64_t microseconds)
{
    char when[64];
    time_t t = (time_t)(microseconds / 1000000);
    struct tm tm;
    if (microseconds > 0 && localtime_r(&t, &tm) &&
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S %z", &tm))
        out("%s%s\n", label, when);
}

static const char *text_of(const char *s)
{
    return s ? s : "";
}

static void print_text(const char *label, const char *s)
{
    if (s && *s)
        out("%s%s\n", label, s);
}

static void __attribute__((format(printf, 2, 3)))
print_line(const char *label, const char *format, ...)
{
    char text[20000]; /* five texts of the envelope's longest */
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    print_text(label, text);
}

static void print_copies(const struct item *item)
{
    static const char *const word[] = {"waiting", "delayed", "being delivered"};
    for (size_t i = 0; i < item->ncopies; i++)
        out("copy        %s: %s, revision %u\n", item->copy[i].conn->name,
            word[item->copy[i].state], (unsigned)item->copy[i].revision);
    for (size_t i = 0; i < item->name.nowners; i++) {
        bool held = false;
        for (size_t k = 0; k < item->ncopies; k++)
            held |= !strcmp(item->copy[k].conn->name, item->name.owner[i]);
        if (!held)
            out("copy        %s: none, or the node does not answer\n", item->name.owner[i]);
    }
}

static void print_recipient(const struct item *item, const struct recipient *r)
{
    static const char *const word[] = {"waiting", "sent", "failed, not bounced yet", "bounced"};
    print_text("recipient   ", r->address);
    print_text("              arguments ", r->args);
    out("              %s, %u attempt%s\n", word[r->state], (unsigned)r->attempts,
        ctl_s(r->attempts));
    print_time("              last attempt ", r->last_attempt);
    print_text("              ", *recipient_error(item, r) ? recipient_error(item, r) : "");
}

static void print_item(const struct item *item)
{
    const struct envelope *e = &item->envelope;
    char hex[ENTRYID_HEX];
    print_text("queue id    ", item_queue_id(item, hex));
    out("queue       %s%s%s\n", item_queue_name(item),
        e->marks & ENVELOPE_REQUEUE ? ", goes to Postfix's queue" : "",
        e->marks & ENVELOPE_DELETED ? ", deleted as soon as every owner can be told" : "");
    entryid_hex(item->id, hex);
    out("entry       %s\n", hex);
    print_text("lane        ", item->lane);
    if (item->name.generation)
        out("order       mail from %s, generation %" PRIu64 "%s\n", item->name.origin,
            item->name.generation,
            e->marks & ENVELOPE_ASIDE ? "; stepped aside: those behind it go first" : "");
    print_copies(item);
    if (item->wrong) {
        out("The envelope cannot be read: %s.\n", item->wrong);
        return;
    }
    print_time("arrived     ", e->arrived);
    out("size        %" PRIu64 "\n", e->size);
    print_line("sender      ", "<%s>", e->sender);
    print_text("arguments   ", e->sender_args);
    print_text("message-id  ", e->message_id);
    print_line("client      ", "%s[%s]:%s, helo=%s, %s", text_of(e->client_name),
               text_of(e->client_addr), text_of(e->client_port), text_of(e->helo),
               text_of(e->protocol));
    print_text("host        ", e->host);
    print_text("login       ", e->login);
    if (e->tls_version)
        print_line("tls         ", "%s, %s, %s bits", e->tls_version, text_of(e->tls_cipher),
                   text_of(e->tls_bits));
    for (size_t i = 0; i < e->nrecipients; i++)
        print_recipient(item, &e->recipient[i]);
}

static void load(struct ctl *ctl, int argc, char **argv, const char *help, struct queue *q)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'}, MATCH_LONG_OPTIONS, {0}};
    struct match pick = {0};
    int o;
    while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (o >= MATCH_OPTION)
            match_options_add(&pick, o, optarg);
        else if (o == 'h') {
            puts(help);
            match_options_print_help();
            exit(STATUS_DONE);
        } else
            ctl_usage("see `dovelane %s --help`", argv[0]);
    }
    match_options_ids(&pick, argc, argv);
    if (!pick.n)
        ctl_usage("%s wants to know which mail: Postfix's queue id or an entry's own in hex "
                  "(`dovelane mailq` shows them), "
                  "or options such as --sender",
                  argv[0]);
    ctl_connect(ctl);
    queue_load(ctl, q);
    match_options_filter(&pick, q);
    if (!q->n) {
        char *which = match_text(&pick);
        if (argc == 2 && *argv[1] != '-')
            out_error("dovelane: no lane holds %s: delivered, in Postfix's own queue (postcat -q "
                      "%s), or never there\n",
                      argv[1], argv[1]);
        else
            out_error("dovelane: no mail in the lanes fits %s\n", which);
        free(which);
        ctl_status(ctl, STATUS_LOOK);
    }
    match_free(&pick);
}

void show_command(struct ctl *ctl, int argc, char **argv)
{
    struct queue q;
    load(
        ctl, argc, argv,
        "usage: dovelane show ID... | which mails\n"
        "All that is known of a mail: sender, client, recipients with their last errors, copies.\n",
        &q);
    for (size_t i = 0; i < q.n; i++) {
        if (i)
            putchar('\n');
        print_item(&q.item[i]);
    }
    queue_free(&q);
}

static void refuse_several(const struct queue *q)
{
    char first[ENTRYID_HEX], other[ENTRYID_HEX];
    for (size_t i = 1; i < q->n; i++)
        if (strcmp(item_queue_id(&q->item[0], first), item_queue_id(&q->item[i], other)))
            ctl_usage("cat prints one mail, and several fit: %s, %s%s; name one by its id",
                      item_queue_id(&q->item[0], first), item_queue_id(&q->item[i], other),
                      q->n > 2 ? ", ..." : "");
}

/* A mail to two next hops is two entries with one body: it is printed once. */
void cat_command(struct ctl *ctl, int argc, char **argv)
{
    struct queue q;
    struct buf body = {0};
    load(ctl, argc, argv,
         "usage: dovelane cat ID | which mails\n"
         "The message as the next hop gets it, header and body, with CRLF at the ends of lines.\n"
         "On a terminal control characters are shown as \\x1b; into a file or a pipe goes every "
         "byte as it is.\n",
         &q);
    refuse_several(&q);
    bool found = false;
    for (size_t i = 0; i < q.n && !found; i++)
        found = queue_body(&q.item[i], &body);
    if (found)
        out_body(body.data, body.len);
    else if (q.n) {
        out_error("dovelane: it was delivered this moment\n");
        ctl_status(ctl, STATUS_LOOK);
    }
    buf_free(&body);
    queue_free(&q);
}
