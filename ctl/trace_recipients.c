#include "ctl/trace_recipients.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ctl/row.h"

static json_t *recipient_of(json_t *list, const char *address)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!strcasecmp(row_get_text(json_array_get(list, i), "address"), address))
            return json_array_get(list, i);
    json_t *row = row_new();
    row_add_text(row, "address", address);
    json_array_append_new(list, row);
    return row;
}

static void set(json_t *row, const char *key, const char *value)
{
    json_object_del(row, key);
    if (*value)
        row_add_text(row, key, value);
}

static void take_attempt(json_t *list, const json_t *e)
{
    static const char *const state[] = {"delivered", "deferred", "bounced", "handed_over"};
    const char *event = row_get_text(e, "event"), *to = row_get_text(e, "to");
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(event, state[i]) || !*to)
            continue;
        json_t *row = recipient_of(list, to);
        long long attempts = row_get_number(row, "attempts");
        json_object_set_new(row, "attempts", json_integer(attempts + (i < 3)));
        if (i && !strcmp(row_get_text(row, "state"), "delivered"))
            continue; /* it has arrived */
        set(row, "state", event);
        set(row, "at", row_get_text(e, "at"));
        set(row, "reply", row_get_text(e, "reply"));
        set(row, "next_queue_id", row_get_text(e, "next_queue_id"));
    }
}

/* Who is still in a lane has not arrived, whatever a log of before says. */
static void take_lane(json_t *list, const json_t *lane)
{
    for (size_t i = 0; i < row_size(lane, "recipients"); i++) {
        const json_t *of = row_item(lane, "recipients", i);
        json_t *row = recipient_of(list, row_get_text(of, "address"));
        const char *state = row_get_text(row, "state");
        if (row_get_is(of, "open") && (!*state || !strcmp(state, "delivered")))
            set(row, "state", "in_lane");
        set(row, "lane_state", row_get_text(of, "state"));
    }
}

static void take_place(json_t *places, const json_t *e)
{
    static const char *const keys[] = {"at", "host", "log", "node", "user", "mailbox"};
    const char *event = row_get_text(e, "event");
    if (strcmp(event, "saved") && strcmp(event, "placed"))
        return;
    json_t *row = row_new();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        set(row, keys[i], row_get_text(e, keys[i]));
    if (row_has(e, "uid"))
        row_add_number(row, "uid", row_get_number(e, "uid"));
    row_add_text(row, "by", *event == 's' ? "delivery" : "replication");
    json_array_append_new(places, row);
}

static bool is_at(const json_t *places, const char *replica)
{
    size_t len = strlen(replica);
    for (size_t i = 0; i < json_array_size(places); i++) {
        const json_t *row = json_array_get(places, i);
        const char *host = row_get_text(row, "host");
        if (!strcmp(row_get_text(row, "node"), replica) ||
            (strcspn(host, ".") == len && !strncasecmp(host, replica, len)))
            return true;
    }
    return false;
}

void trace_recipients_add(json_t *mail, const json_t *lanes, const struct config *c,
                          const struct trace_sources *logs)
{
    json_t *recipients = json_array(), *places = json_array(), *unseen = json_array();
    for (size_t i = 0; i < row_size(mail, "events"); i++) {
        take_attempt(recipients, row_item(mail, "events", i));
        take_place(places, row_item(mail, "events", i));
    }
    for (size_t i = 0; i < json_array_size(lanes); i++)
        take_lane(recipients, json_array_get(lanes, i));
    for (size_t i = 0; i < c->nreplicas && json_array_size(places); i++) {
        if (is_at(places, c->replica[i].name))
            continue;
        json_t *row = row_new();
        row_add_text(row, "replica", c->replica[i].name);
        bool heard = trace_hosts_heard(&logs->hosts, c->replica[i].name);
        row_add_is(row, "log_read", heard);
        if (!heard)
            row_add(row, "perhaps", trace_hosts_strangers(&logs->hosts, c, true));
        json_array_append_new(unseen, row);
    }
    row_add(mail, "recipients", recipients);
    row_add(mail, "places", places);
    row_add(mail, "unseen", unseen);
}
