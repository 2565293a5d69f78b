/* reply - what a next hop said, read by the rules file (lib/shape/backoff.h). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/metrics.h"
#include "relay/shape/gate_work.h"

/* What was read before counts on where the file has become unreadable. */
static void read_rules(struct shape_control *c)
{
    char *error = NULL;
    struct backoff_rules *rules = backoff_rules_read(c->relay->config->backoff_rules, &error);
    c->unread = !rules;
    if (rules) {
        backoff_rules_free(c->backoff);
        c->backoff = rules;
        return;
    }
    log_error("backoff_rules: %s; %s", error,
              c->backoff ? "what was read before counts on"
                         : "next hops with backoff = yes are not backed off from");
    free(error);
}

void reply_rules_reload(struct shape_control *c)
{
    c->unread = false;
    if (c->backoff)
        read_rules(c);
}

static const struct backoff_rules *rules_of(struct shape_control *c)
{
    if (!c->backoff && !c->unread)
        read_rules(c);
    return c->backoff;
}

/* The reply's code, in the words of Postfix that the relay uses: "host h[a]:25 said: 421 4.7.0 ..."
 * and "... refused to talk to me: 421 ...". 0: there is none. */
static int code_in(const char *text)
{
    for (const char *s = text;; s += strlen(": ")) {
        if (s[0] >= '2' && s[0] <= '5' && isdigit((unsigned char)s[1]) &&
            isdigit((unsigned char)s[2]) && (s[3] == ' ' || s[3] == '-' || !s[3]))
            return atoi(s);
        s = strstr(s, ": ");
        if (!s)
            return 0;
    }
}

static void tell(struct gate *g, const struct backoff_rule *rule, const char *text)
{
    char *words =
        rule->kind == BACKOFF_SUSPEND ? mem_strdup("nothing is sent")
        : rule->kind == BACKOFF_RATE  ? mem_printf("its rate is multiplied by %g", rule->value)
        : rule->value < 1. ? mem_printf("its connections are multiplied by %g", rule->value)
                           : mem_printf("it has %g connections", rule->value);
    log_warning("next hop %s is backed off from for %lld s, by rule %s of backoff_rules: %s; it "
                "said: %s",
                g->head->name, (long long)rule->ms / 1000, rule->name, words, text);
    free(words);
}

void gate_heard(struct destination *d, const char *dsn, const char *text)
{
    struct gate *g = gate_of(d);
    const struct backoff_rules *rules =
        g && g->shape.backoff && text ? rules_of(d->relay->shape) : NULL;
    const struct backoff_rule *rule =
        rules ? backoff_rules_find(rules, g->head->name, code_in(text), dsn, text) : NULL;
    if (!rule)
        return;
    slots_tell(g->slots, rule->kind, rule->value, rule->ms);
    if (!backoff_begin(g, rule->kind, rule->value, rule->ms))
        return;
    metric_add(relay_backoffs, 1);
    tell(g, rule, text);
    gate_refresh(g->head);
}
