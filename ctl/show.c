/* dovelane show ID, dovelane cat ID - one mail: what is known of it; what a next hop would get. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/evp.h>

#include "ctl/mailq.h"
#include "ctl/out.h"
#include "ctl/match_options.h"
#include "ctl/row.h"

/* ---- rows ---- */

static json_t *copies(const struct item *item)
{
    static const char *const word[] = {"waiting", "delayed", "leased"};
    json_t *list = json_array();
    for (size_t i = 0; i < item->ncopies; i++) {
        json_t *row = row_new();
        row_add_text(row, "node", item->copy[i].conn->name);
        row_add_text(row, "state", word[item->copy[i].state]);
        row_add_number(row, "revision", item->copy[i].revision);
        json_array_append_new(list, row);
    }
    for (size_t i = 0; i < item->name.nowners; i++) {
        bool held = false;
        for (size_t k = 0; k < item->ncopies; k++)
            held |= !strcmp(item->copy[k].conn->name, item->name.owner[i]);
        if (held)
            continue;
        json_t *row = row_new();
        row_add_text(row, "node", item->name.owner[i]);
        row_add_text(row, "state", "absent");
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *recipients(const struct item *item)
{
    static const char *const word[] = {"waiting", "sent", "failed", "bounced", "retained"};
    const struct envelope *e = &item->envelope;
    json_t *list = json_array();
    for (size_t i = 0; i < e->nrecipients; i++) {
        const struct recipient *r = &e->recipient[i];
        const char *error = recipient_error(item, r);
        json_t *row = row_new();
        row_add_text(row, "address", r->address);
        row_add_text(row, "arguments", r->args && *r->args ? r->args : NULL);
        row_add_text(row, "state", word[r->state]);
        row_add_number(row, "attempts", r->attempts);
        row_add_time(row, "last_attempt_at", r->last_attempt);
        row_add_text(row, "error", *error ? error : NULL);
        json_array_append_new(list, row);
    }
    return list;
}

static const char *if_any(const char *s)
{
    return s && *s ? s : NULL;
}

static json_t *client(const struct envelope *e)
{
    json_t *row = row_new();
    row_add_text(row, "name", if_any(e->client_name));
    row_add_text(row, "address", if_any(e->client_addr));
    row_add_text(row, "port", if_any(e->client_port));
    row_add_text(row, "helo", if_any(e->helo));
    row_add_text(row, "protocol", if_any(e->protocol));
    row_add_text(row, "login", if_any(e->login));
    return row;
}

static void add_envelope(json_t *row, const struct item *item)
{
    const struct envelope *e = &item->envelope;
    row_add_time(row, "arrived_at", e->arrived);
    row_add_number(row, "size_bytes", (long long)e->size);
    row_add_text(row, "sender", e->sender ? e->sender : "");
    row_add_text(row, "arguments", if_any(e->sender_args));
    row_add_text(row, "message_id", if_any(e->message_id));
    row_add(row, "client", client(e));
    row_add_text(row, "host", if_any(e->host));
    if (e->tls_version) {
        json_t *tls = row_new();
        row_add_text(tls, "version", e->tls_version);
        row_add_text(tls, "cipher", if_any(e->tls_cipher));
        row_add_text(tls, "bits", if_any(e->tls_bits));
        row_add(row, "tls", tls);
    }
    row_add(row, "recipients", recipients(item));
}

static json_t *mail_row(const struct item *item)
{
    const struct envelope *e = &item->envelope;
    char hex[ENTRYID_HEX];
    json_t *row = row_new();
    row_add_text(row, "queue_id", item_queue_id(item, hex));
    row_add_text(row, "queue_name", item_queue_name(item));
    row_add_is(row, "to_postfix", e->marks & ENVELOPE_REQUEUE);
    row_add_is(row, "deleted", e->marks & ENVELOPE_DELETED);
    entryid_hex(item->id, hex);
    row_add_text(row, "entry", hex);
    row_add_text(row, "lane", item->lane);
    row_add_text(row, "class", item->name.class);
    if (item->name.generation) {
        json_t *order = row_new();
        row_add_text(order, "origin", item->name.origin);
        row_add_number(order, "generation", (long long)item->name.generation);
        row_add_is(order, "aside", e->marks & ENVELOPE_ASIDE);
        row_add(row, "order", order);
    }
    row_add(row, "copies", copies(item));
    row_add_text(row, "unreadable", item->wrong);
    if (!item->wrong)
        add_envelope(row, item);
    return row;
}

/* ---- text ---- */

static void show_text(const char *label, const json_t *row, const char *key)
{
    const char *s = row_get_text(row, key);
    if (*s)
        out("%s%s\n", label, s);
}

static void show_time(const char *label, const json_t *row, const char *key)
{
    char when[64];
    time_t t = (time_t)(row_get_time(row, key) / 1000000);
    struct tm tm;
    if (t > 0 && localtime_r(&t, &tm) && strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S %z", &tm))
        out("%s%s\n", label, when);
}

static void show_copy(const json_t *copy)
{
    const char *node = row_get_text(copy, "node"), *state = row_get_text(copy, "state");
    if (!strcmp(state, "absent"))
        out("copy        %s: none, or the node does not answer\n", node);
    else
        out("copy        %s: %s, revision %lld\n", node,
            strcmp(state, "leased") ? state : "being delivered", row_get_number(copy, "revision"));
}

static void show_recipient(const json_t *r)
{
    long long attempts = row_get_number(r, "attempts");
    const char *state = row_get_text(r, "state");
    show_text("recipient   ", r, "address");
    show_text("              arguments ", r, "arguments");
    out("              %s, %lld attempt%s\n",
        strcmp(state, "failed") ? state : "failed, not bounced yet", attempts,
        ctl_s((unsigned long long)attempts));
    show_time("              last attempt ", r, "last_attempt_at");
    show_text("              ", r, "error");
}

static void show_envelope(const json_t *mail)
{
    const json_t *c = json_object_get(mail, "client"), *tls = json_object_get(mail, "tls");
    show_time("arrived     ", mail, "arrived_at");
    out("size        %lld\n", row_get_number(mail, "size_bytes"));
    out("sender      <%s>\n", row_get_text(mail, "sender"));
    show_text("arguments   ", mail, "arguments");
    show_text("message-id  ", mail, "message_id");
    out("client      %s[%s]:%s, helo=%s, %s\n", row_get_text(c, "name"), row_get_text(c, "address"),
        row_get_text(c, "port"), row_get_text(c, "helo"), row_get_text(c, "protocol"));
    show_text("host        ", mail, "host");
    show_text("login       ", c, "login");
    if (tls)
        out("tls         %s, %s, %s bits\n", row_get_text(tls, "version"),
            row_get_text(tls, "cipher"), row_get_text(tls, "bits"));
    for (size_t i = 0; i < row_size(mail, "recipients"); i++)
        show_recipient(row_item(mail, "recipients", i));
}

static void show_mail(const json_t *mail)
{
    static bool another;
    const json_t *order = json_object_get(mail, "order");
    if (another)
        out("\n");
    another = true;
    show_text("queue id    ", mail, "queue_id");
    out("queue       %s%s%s\n", row_get_text(mail, "queue_name"),
        row_get_is(mail, "to_postfix") ? ", goes to Postfix's queue" : "",
        row_get_is(mail, "deleted") ? ", deleted as soon as every owner can be told" : "");
    show_text("entry       ", mail, "entry");
    show_text("lane        ", mail, "lane");
    show_text("class       ", mail, "class");
    if (order)
        out("order       mail from %s, generation %lld%s\n", row_get_text(order, "origin"),
            row_get_number(order, "generation"),
            row_get_is(order, "aside") ? "; stepped aside: those behind it go first" : "");
    for (size_t i = 0; i < row_size(mail, "copies"); i++)
        show_copy(row_item(mail, "copies", i));
    if (row_has(mail, "unreadable"))
        out("The envelope cannot be read: %s.\n", row_get_text(mail, "unreadable"));
    else
        show_envelope(mail);
}

static const struct out_kind mails = {"mails", show_mail};

/* ---- commands ---- */

const struct option show_options[] = {{"help", no_argument, NULL, 'h'}, MATCH_LONG_OPTIONS, {0}};

static void load(struct ctl *ctl, int argc, char **argv, const char *help, struct queue *q)
{
    struct match pick = {0};
    int o;
    while ((o = getopt_long(argc, argv, "h", show_options, NULL)) != -1) {
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
    static const char *const lists[] = {"mails", NULL};
    struct queue q;
    out_begin("show/1", lists);
    load(
        ctl, argc, argv,
        "usage: dovelane show ID... | which mails\n"
        "All that is known of a mail: sender, client, recipients with their last errors, copies.\n",
        &q);
    for (size_t i = 0; i < q.n; i++)
        out_row(&mails, mail_row(&q.item[i]));
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

/* A mail is bytes, which JSON has no text for. */
static void print_body(const struct item *item, const struct buf *body)
{
    if (!out_is_json()) {
        out_body(body->data, body->len);
        return;
    }
    char hex[ENTRYID_HEX], *base64 = mem_alloc(body->len / 3 * 4 + 8);
    json_t *row = row_new();
    EVP_EncodeBlock((unsigned char *)base64, (const unsigned char *)body->data, (int)body->len);
    row_add_text(row, "queue_id", item_queue_id(item, hex));
    row_add_number(row, "size_bytes", (long long)body->len);
    row_add_text(row, "message_base64", base64);
    out_facts(NULL, row);
    free(base64);
}

/* A mail to two next hops is two entries with one body: it is printed once. */
void cat_command(struct ctl *ctl, int argc, char **argv)
{
    struct queue q;
    struct buf body = {0};
    out_begin("cat/1", NULL);
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
        print_body(&q.item[0], &body);
    else if (q.n) {
        out_error("dovelane: it was delivered this moment\n");
        ctl_status(ctl, STATUS_LOOK);
    }
    buf_free(&body);
    queue_free(&q);
}
