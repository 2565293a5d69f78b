/* What is known of shapes, said, and obeyed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/divert.h"
#include "ctl/notice.h"
#include "ctl/out.h"
#include "ctl/row.h"
#include "ctl/shape.h"
#include "lib/base/clock.h"
#include "lib/redis/control_keys.h"

#define PATIENCE 5. /* seconds for all relays to obey; they need half a one */

static void cannot_be_read(void *arg, const char *why)
{
    out_error("dovelane: %s\n", why);
    ctl_status(arg, STATUS_LOOK);
}

void shape_known_read(struct ctl *ctl, struct shape_known *k)
{
    char *file = config_shape_text(ctl->config),
         *text = notice_read(ctl, CONTROL_SHAPE, &k->serial),
         *lines = text ? strchr(text, '\n') : NULL;
    k->file = k->said = (struct shape_rules){0};
    shape_rules_parse(&k->file, file, cannot_be_read, ctl);
    if (lines)
        shape_rules_parse(&k->said, lines + 1, cannot_be_read, ctl);
    free(text);
    free(file);
}

void shape_known_free(struct shape_known *k)
{
    shape_rules_free(&k->file);
    shape_rules_free(&k->said);
}

struct shapes *shape_known_shapes(struct ctl *ctl, const struct shape_known *k)
{
    struct buf file = {0}, said = {0};
    shape_rules_print(&k->file, &file);
    shape_rules_print(&k->said, &said);
    struct shapes *shapes = shapes_new(file.data, said.data, cannot_be_read, ctl);
    buf_free(&file);
    buf_free(&said);
    return shapes;
}

unsigned long long shape_known_say(struct ctl *ctl, const struct shape_known *k)
{
    struct buf text = {0};
    shape_rules_print(&k->said, &text);
    if (text.len > SHAPE_TEXT_MOST)
        ctl_usage("shape: that would be more than %d bytes of rules; put those that stay into "
                  "sections `shape` of dovelane.conf",
                  SHAPE_TEXT_MOST);
    unsigned long long serial =
        notice_write(ctl, CONTROL_SHAPE, k->serial, true, text.data ? text.data : "", true);
    buf_free(&text);
    return serial;
}

/* ---- who obeys ---- */

static void show_slow(const json_t *row)
{
    out("%s %s\n", row_get_text(row, "who"), row_get_text(row, "why"));
}

static const struct out_kind slow = {"not_obeying", show_slow};

static void say_slow(struct ctl *ctl, const char *who, const char *why)
{
    json_t *row = row_new();
    row_add_text(row, "who", who);
    row_add_text(row, "why", why);
    out_row(&slow, row);
    ctl_status(ctl, STATUS_LOOK);
}

/* NULL: it obeys. */
static const char *why_relay_is_slow(struct conn *c, unsigned long long serial)
{
    const char *why = NULL;
    redisReply *relay = conn_call(c, "HGET " CONTROL_CONFIG " relay"),
               *shape = conn_call(c, "HGET " CONTROL_CONFIG " shape");
    if (!relay || relay->type != REDIS_REPLY_STRING)
        why = "is not connected; it obeys when it is back";
    else if (!shape || shape->type != REDIS_REPLY_STRING)
        why = "does not know `dovelane shape`: it is of an earlier version";
    else if (strtoull(shape->str, NULL, 10) < serial)
        why = "has not heard of it yet";
    if (relay)
        freeReplyObject(relay);
    if (shape)
        freeReplyObject(shape);
    return why;
}

static bool relays_obey(struct ctl *ctl, unsigned long long serial)
{
    bool all = true;
    for (size_t i = 0; i < ctl->nconns && all; i++)
        all = !conn_up(&ctl->conn[i]) || !why_relay_is_slow(&ctl->conn[i], serial);
    return all;
}

static void wait_for_relays(struct ctl *ctl, unsigned long long serial)
{
    double until = clock_monotonic() + PATIENCE;
    while (!relays_obey(ctl, serial) && clock_monotonic() < until)
        usleep(50000);
    for (size_t i = 0; i < ctl->nconns; i++) {
        struct conn *c = &ctl->conn[i];
        const char *why = conn_up(c) ? why_relay_is_slow(c, serial) : NULL;
        char *who = mem_printf("the relay of %s", c->name);
        if (why)
            say_slow(ctl, who, why);
        free(who);
    }
}

void shape_wait_obeyed(struct ctl *ctl, unsigned long long serial)
{
    wait_for_relays(ctl, serial);
    if (divert_rules_obeyed(ctl, DIVERT_SHAPE, serial) == DIVERT_NOT_YET)
        say_slow(ctl, "some milter or proxy",
                 "has not heard of it yet: `dovelane divert status` lists them");
}
