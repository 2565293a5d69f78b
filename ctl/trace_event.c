#include "ctl/trace_event.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/row.h"
#include "lib/base/mem.h"

/* ---- pieces of a text ---- */

static void set(json_t *row, const char *key, const char *s, size_t n)
{
    char *value = mem_strndup(s, n);
    json_object_del(row, key);
    row_add_text(row, key, value);
    free(value);
}

/* What stands behind `before`, up to the first `until` (NULL: to the end). */
static bool take(json_t *row, const char *key, const char *text, const char *before,
                 const char *until)
{
    const char *at = strstr(text, before);
    if (!at)
        return false;
    at += strlen(before);
    const char *end = until ? strstr(at, until) : NULL;
    set(row, key, at, end ? (size_t)(end - at) : strlen(at));
    return true;
}

static size_t word(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]))
        n++;
    return n;
}

/* "ID: ", as Postfix and we begin a mail's line. What follows, or NULL. */
static const char *take_queue_id(json_t *row, const char *text)
{
    size_t n = word(text);
    static const char *const level[] = {"warning: ", "error: ", "debug: "};
    for (size_t i = 0; i < 3; i++)
        if (!strncmp(text, level[i], strlen(level[i])))
            return take_queue_id(row, text + strlen(level[i]));
    if (n < 5 || strncmp(text + n, ": ", 2) || !strncmp(text, "NOQUEUE", 7))
        return NULL;
    set(row, "queue_id", text, n);
    return text + n + 2;
}

/* What others answered: "250 2.0.0 Ok: queued as ID", "250 2.0.0 <u> SESSION Saved". */
static void take_reply(json_t *row)
{
    const char *reply = row_get_text(row, "reply");
    const char *next = *reply ? reply : row_get_text(row, "next");
    const char *at = strstr(next, "queued as "), *saved = strstr(reply, " Saved");
    if (at && word(at + 10))
        set(row, "next_queue_id", at + 10, word(at + 10));
    const char *begin = saved;
    while (begin && begin > reply && begin[-1] != ' ')
        begin--;
    if (begin && begin < saved)
        set(row, "session", begin, (size_t)(saved - begin));
}

static const char *status_event(const json_t *row)
{
    const char *status = row_get_text(row, "status");
    return !strcmp(status, "sent")       ? "delivered"
           : !strcmp(status, "deferred") ? "deferred"
           : *status                     ? "bounced" /* also expired */
                                         : "note";
}

/* "(...)" behind at, whose last parenthesis may have others in it. */
static void take_parenthesis(json_t *row, const char *at, const char *until)
{
    const char *begin = at ? strchr(at, '(') : NULL;
    const char *end = begin && until ? strstr(begin, until) : NULL;
    if (begin && !end)
        end = strrchr(begin, ')');
    if (begin && end)
        set(row, "reply", begin + 1, (size_t)(end - begin) - 1);
}

/* An address in "<...>" behind `before`, whose quoted local part may look like what follows it.
 * Returns what does follow; text itself where there is none. */
static const char *take_address(json_t *row, const char *key, const char *text, const char *before)
{
    const char *at = strstr(text, before), *end;
    if (!at)
        return text;
    at += strlen(before);
    const char *s = at;
    if (*s == '"')
        for (s++; *s && *s != '"'; s++)
            s += *s == '\\' && s[1];
    end = strchr(*s ? s : at, '>'); /* a long one was cut */
    if (!end)
        return text;
    set(row, key, at, (size_t)(end - at));
    return end;
}

static void take_delivery(json_t *row, const char *text)
{
    text = take_address(row, "to", text, "to=<");
    take(row, "relay", text, "relay=", ", ");
    take(row, "delay", text, "delay=", ",");
    take(row, "dsn", text, "dsn=", ",");
    take(row, "status", text, "status=", " ");
    take_parenthesis(row, strstr(text, "status="), "), why=");
}

/* ---- our lines ---- */

/* "mx1>mx2" as a list, as JSON has it. */
static void take_nodes(json_t *row)
{
    json_t *list = json_array();
    const char *s = row_get_text(row, "nodes");
    for (size_t n; *s && strcmp(s, "none"); s += n + (s[n] == '>')) {
        n = strcspn(s, ">");
        char *name = mem_strndup(s, n);
        row_append_text(list, name);
        free(name);
    }
    if (json_is_string(json_object_get(row, "nodes")))
        json_object_set(row, "nodes", list);
    json_decref(list);
}

/* The other side's words end there: behind them are ours. The whole text where there are none. */
static const char *behind_reply(const char *text)
{
    for (const char *at = text; (at = strstr(at, "), why=")); at++)
        text = at;
    return text;
}

/* What a sender wrote: his address, and the Message-ID. Returns what follows, which is ours. */
static const char *take_mail(json_t *row, const char *of)
{
    if (!strncmp(of, "from=<", 6))
        of = take_address(row, "from", of, "from=<");
    take(row, "size", of, ", size=", ",");
    take(row, "nrcpt", of, ", nrcpt=", ",");
    const char *id = strstr(of, "message-id=<"), *end = id ? strstr(id, ">, client=") : NULL;
    if (!end)
        return of;
    id += strlen("message-id=");
    set(row, "message_id", id, (size_t)(end - id) + 1);
    return end;
}

static void take_text(json_t *row, const char *text)
{
    const char *of = take_queue_id(row, text);
    static const struct {
        const char *key, *before, *until;
    } piece[] = {{"client_name", "client=", "["}, {"hold", ", hold=", ","},
                 {"entries", ", entries=", ","},  {"nodes", ", nodes=", ","},
                 {"store_ms", ", store=", "ms"},  {"next", ", next=", ", entries="},
                 {"why", "), why=", ","},         {"lane", "lane=", ", id="},
                 {"entry_id", ", id=", " "}};
    if (!of)
        of = text;
    const char *delivery = strncmp(of, "to=<", 4) ? NULL : of;
    of = delivery ? behind_reply(of) : take_mail(row, of);
    for (size_t i = 0; i < sizeof piece / sizeof *piece; i++)
        take(row, piece[i].key, of, piece[i].before, piece[i].until);
    take_delivery(row, delivery ? delivery : of);
    const char *client = strstr(of, "client="), *action = strstr(of, ", action=");
    if (client)
        take(row, "client_address", client, "[", "]");
    if (action) {
        const char *at = action + strlen(", action=");
        set(row, "action", at, word(at));
        take(row, "reason", at, " reason=", strstr(at, ", next=") ? ", next=" : ", entries=");
    }
    take_nodes(row);
    if (delivery)
        of = delivery;
    if (!row_has(row, "status"))
        take_parenthesis(row, strstr(of, " ("), strstr(of, "), why=") ? "), why=" : "); stays");
}

static const char *mail_event(const json_t *row)
{
    const char *action = row_get_text(row, "action");
    return !strcmp(action, "lane")    ? "stored"
           : !strcmp(action, "split") ? "split"
           : !strcmp(action, "queue") ? "left"
                                      : "refused";
}

static const char *our_event(const json_t *row, const struct trace_line *l)
{
    static const struct {
        const char *event, *words;
    } by[] = {{"handed_over", ": given to Postfix's queue ("},
              {"notified", ": given to the bounce port ("},
              {"stays", " did not take it ("},
              {"out_of_order", ": out of order: "},
              {"deleted", ": deleted, as an admin"},
              {"retained", ": retained until "},
              {"let_go", ": let go before "},
              {"removed", ": removed"},
              {"left", ": recipients passed on: "}};
    const char *declared = row_get_text(l->fields, "event");
    if (*row_get_text(row, "action"))
        return mail_event(row);
    if (!strcmp(declared, "delivery") || (!*declared && *row_get_text(row, "status")))
        return status_event(row);
    for (size_t i = 0; i < sizeof by / sizeof *by; i++)
        if (!strcmp(declared, by[i].event) || strstr(l->text, by[i].words))
            return by[i].event;
    return "note";
}

static const char *take_ours(json_t *row, const struct trace_line *l)
{
    static const char *const of_line[] = {"time",  "host", "program", "pid",
                                          "level", "node", "message", "event"};
    const char *key;
    json_t *value;
    if (!row_has(l->fields, "queue_id"))
        take_text(row, l->text);
    else
        json_object_foreach(l->fields, key, value)
        {
            bool known = false;
            for (size_t i = 0; i < sizeof of_line / sizeof *of_line; i++)
                known |= !strcmp(key, of_line[i]);
            if (!known)
                json_object_set(row, key, value);
        }
    if (row_has(l->fields, "node"))
        row_add_text(row, "node", row_get_text(l->fields, "node"));
    take_nodes(row); /* the journal's are text */
    take_reply(row);
    return our_event(row, l);
}

/* ---- Postfix's ---- */

static const char *take_postfix(json_t *row, const char *text)
{
    const char *of = take_queue_id(row, text);
    if (!of)
        return "note";
    if (!strncmp(of, "client=", 7)) {
        take(row, "client_name", of, "client=", "[");
        take(row, "client_address", of, "[", "]");
        take(row, "orig_queue_id", of, "orig_queue_id=", ",");
        return "accepted";
    }
    if (!strncmp(of, "uid=", 4))
        return "accepted";
    if ((!strncmp(of, "message-id=", 11) || !strncmp(of, "resent-message-id=", 18)) &&
        take(row, "message_id", of, "message-id=", NULL))
        return "headers";
    if (!strncmp(of, "from=<", 6)) {
        of = take_address(row, "from", of, "from=<");
        take(row, "size", of, ", size=", ",");
        take(row, "nrcpt", of, ", nrcpt=", " ");
        return strstr(of, "queue active") ? "queued" : status_event(row);
    }
    if (strstr(of, "status=")) {
        take_delivery(row, of);
        take_reply(row);
        return status_event(row);
    }
    if (take(row, "next_queue_id", of, "notification: ", NULL))
        return "notified";
    return !strcmp(of, "removed") ? "removed" : "note";
}

/* ---- Dovecot's, and the replicator's through it ---- */

/* "lmtp(user)<pid><session>: ..." */
static void take_process(json_t *row, const char *text)
{
    const char *end = strstr(text, ": "), *user = strchr(text, '(');
    if (!end || !user || user > end)
        return;
    const char *close = memchr(user, ')', (size_t)(end - user));
    if (close)
        set(row, "user", user + 1, (size_t)(close - user) - 1);
    const char *session = end;
    while (session > text && session[-1] != '<')
        session--;
    if (session > text && end[-1] == '>')
        set(row, "session", session, (size_t)(end - session) - 1);
}

static void take_msgid(json_t *row, const char *text)
{
    const char *at = strstr(text, "msgid=");
    if (!at)
        return;
    at += strlen("msgid=");
    const char *end = *at == '<' ? strchr(at, '>') : NULL;
    set(row, "message_id", at, end ? (size_t)(end - at) + 1 : strcspn(at, ":, "));
}

static const char *take_placed(json_t *row, const char *text)
{
    const char *at = strstr(text, "user=");
    const char *name = at ? strstr(at, ": ") : NULL;
    const char *uid = name ? strstr(name, ": UID ") : NULL;
    if (!uid)
        return "note";
    set(row, "user", at + 5, (size_t)(name - at) - 5);
    set(row, "mailbox", name + 2, (size_t)(uid - name) - 2);
    take(row, "uid", uid, "UID ", ":");
    take(row, "site", uid, "of site ", NULL);
    return "placed";
}

static const char *take_dovecot(json_t *row, const char *text)
{
    take_msgid(row, text);
    if (strstr(text, ": placed, msgid="))
        return take_placed(row, text);
    take_process(row, text);
    if (take(row, "mailbox", text, "saved mail to ", NULL) ||
        take(row, "mailbox", text, "stored mail into mailbox '", "'"))
        return "saved";
    if (strstr(text, "save: box=")) {
        take(row, "mailbox", text, "save: box=", ",");
        take(row, "uid", text, "uid=", ",");
        return "saved";
    }
    return "note";
}

/* ---- all ---- */

static bool is_ours(const struct trace_line *l)
{
    const char *slash = strrchr(l->program, '/');
    return !strncmp(slash ? slash + 1 : l->program, "dovelane-", 9);
}

/* Text forms have them as text. */
static void make_numbers(json_t *row)
{
    static const char *const key[] = {"size",          "nrcpt",          "entries",    "store_ms",
                                      "delay",         "delay_lane",     "delay_wait", "uid",
                                      "delay_connect", "delay_transfer", "site"};
    for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
        const char *text = row_get_text(row, key[i]);
        char *end;
        double n = strtod(text, &end);
        if (!*text || *end)
            continue;
        json_object_set_new(row, key[i],
                            strchr(text, '.') ? json_real(n) : json_integer((json_int_t)n));
    }
}

json_t *trace_event_make(const struct trace_line *l)
{
    json_t *row = row_new();
    const char *event;
    row_add_time(row, "at", l->time);
    row_add_text(row, "host", l->host);
    row_add_text(row, "program", l->program);
    row_add_number(row, "at_us", l->time); /* taken out before it is shown */
    row_add_text(row, "event", "note");
    if (strstr(l->text, "msgid=") && (is_ours(l) || strstr(l->program, "dovecot")))
        event = take_dovecot(row, l->text);
    else if (is_ours(l))
        event = take_ours(row, l);
    else
        event = take_postfix(row, l->text);
    json_object_set_new(row, "event", json_string(event));
    row_add_text(row, "text", l->text);
    make_numbers(row);
    return row;
}
