#include "ctl/notice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "ctl/out.h"
#include "lib/redis/control_keys.h"

char *notice_read(struct ctl *ctl, const char *key, unsigned long long *serial_r)
{
    char *best = NULL;
    *serial_r = 0;
    for (size_t i = 0; i < ctl->nconns; i++) {
        unsigned long long serial;
        redisReply *r = conn_call(&ctl->conn[i], "GET %s", key);
        if (r && r->type == REDIS_REPLY_STRING && sscanf(r->str, "%20llu ", &serial) == 1 &&
            serial > *serial_r) {
            free(best);
            best = mem_strdup(r->str);
            *serial_r = serial;
        }
        if (r)
            freeReplyObject(r);
    }
    return best;
}

unsigned long long notice_write(struct ctl *ctl, const char *key, unsigned long long before,
                                bool on, const char *rest, bool made_from)
{
    /* Of the clock, so that what is said later counts more even where nodes were apart; above
     * all that is known, in case a clock is wrong. */
    unsigned long long number = (unsigned long long)(clock_wall() / 1000);
    char *caller = ctl_caller(), serial[24], most[24];
    bool overtaken = false;
    if (number <= before)
        number = before + 1;
    snprintf(serial, sizeof serial, "%llu", number);
    snprintf(most, sizeof most, "%llu", made_from ? before : number);
    char *text =
        mem_printf("%s %s %s%s%s", serial, on ? "on" : "off", caller, *rest ? "\n" : "", rest);
    for (size_t i = 0; i < ctl->nconns && !overtaken; i++) {
        struct conn *c = &ctl->conn[i];
        bool up = conn_up(c);
        redisReply *r = conn_call(c, "EVAL %s 1 %s %s %s %s %s", CONTROL_NEWER, key, text, serial,
                                  on ? "on" : "off", most);
        overtaken = made_from && r && (r->type != REDIS_REPLY_STRING || strcmp(r->str, text));
        if (r)
            freeReplyObject(r);
        else if (up)
            out_error("dovelane: node %s did not take it: %s\n", c->name, c->trouble);
        if (!r)
            ctl_status(ctl, STATUS_LOOK);
    }
    free(text);
    free(caller);
    return overtaken ? 0 : number;
}
