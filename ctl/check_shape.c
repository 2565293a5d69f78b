/* dovelane check: what the shapes of next hops say, and an admin may have forgotten. */
#include <stdlib.h>
#include <string.h>

#include "ctl/check.h"
#include "ctl/shape.h"
#include "lib/base/clock.h"
#include "lib/shape/backoff.h"

static bool any_backs_off(const struct ctl *ctl)
{
    struct shape_rules rules = {0};
    bool any = false;
    char *text = config_shape_text(ctl->config);
    shape_rules_parse(&rules, text, NULL, NULL);
    for (size_t i = 0; i < rules.n; i++) {
        const char *value = shape_rule_value(&rules.rule[i], "backoff");
        any |= value && !strcasecmp(value, "yes");
    }
    shape_rules_free(&rules);
    free(text);
    return any;
}

void check_backoff_rules(struct ctl *ctl)
{
    char *error = NULL;
    if (!any_backs_off(ctl))
        return;
    struct backoff_rules *rules = backoff_rules_read(ctl->config->backoff_rules, &error);
    if (!rules)
        check_say(ctl, FINDING_WARNING, FOUND_BACKOFF_RULES, "config",
                  "mend that line, or name another file by backoff_rules; then reload the relays",
                  "backoff = yes in a shape section, and backoff_rules cannot be read: %s", error);
    free(error);
    backoff_rules_free(rules);
}

/* The rule's reason; NULL: it suspends nothing now. */
static const char *suspends(const struct shape_rule *r, char until_r[SHAPE_TIME_TEXT])
{
    const char *why = shape_rule_value(r, "suspend"), *until = shape_rule_value(r, "suspend_until");
    int64_t end = 0;
    *until_r = '\0';
    if (!why || !strcmp(why, "none"))
        return NULL;
    if (until && shape_time_read(until, &end) && end <= clock_wall())
        return NULL;
    if (end)
        shape_time_text(end, until_r);
    return why;
}

static void check_rule(struct ctl *ctl, const struct shape_rule *r)
{
    char until[SHAPE_TIME_TEXT], *mend = mem_printf("dovelane shape '%s'%s%s --resume", r->pattern,
                                                    *r->class ? " --class " : "", r->class);
    const char *why = suspends(r, until);
    if (why)
        check_say(ctl, FINDING_WARNING, FOUND_HOP_SUSPENDED, r->pattern, mend,
                  "nothing%s%s is sent there%s%s: %s (right until that is over)",
                  *r->class ? " of class " : "", r->class, *until ? " until " : "", until, why);
    free(mend);
}

void check_suspended(struct ctl *ctl)
{
    struct shape_known k;
    shape_known_read(ctl, &k);
    for (size_t i = 0; i < k.said.n; i++)
        check_rule(ctl, &k.said.rule[i]);
    for (size_t i = 0; i < k.file.n; i++) {
        const struct shape_rule *said =
            shape_rules_find(&k.said, k.file.rule[i].pattern, k.file.rule[i].class);
        if (!said || !shape_rule_value(said, "suspend"))
            check_rule(ctl, &k.file.rule[i]);
    }
    shape_known_free(&k);
}
