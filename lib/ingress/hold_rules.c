#include "lib/ingress/hold_rules.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"

static struct {
    pthread_rwlock_t lock;
    size_t n;
    struct match *rule;
} holds = {.lock = PTHREAD_RWLOCK_INITIALIZER};

static void add(struct match **rule, size_t *n, const char *text, size_t len)
{
    struct match m = {0};
    char *wrong = match_parse(&m, text, len);
    if (wrong || !m.n) {
        if (wrong)
            log_error("a standing rule of `dovelane hold` is left out: %s", wrong);
        free(wrong);
        match_free(&m);
        return;
    }
    *rule = mem_grow(*rule, (*n + 1) * sizeof **rule);
    (*rule)[(*n)++] = m;
}

void hold_rules_set(const char *text)
{
    struct match *rule = NULL, *old;
    size_t n = 0, nold;
    while (*text) {
        const char *end = strstr(text, "\n\n");
        size_t len = end ? (size_t)(end - text) : strlen(text);
        add(&rule, &n, text, len);
        text += len + (end ? 2 : 0);
    }
    pthread_rwlock_wrlock(&holds.lock);
    old = holds.rule;
    nold = holds.n;
    holds.rule = rule;
    holds.n = n;
    pthread_rwlock_unlock(&holds.lock);
    while (nold)
        match_free(&old[--nold]);
    free(old);
}

bool hold_rules_fit(const struct match_facts *f)
{
    bool fits = false;
    pthread_rwlock_rdlock(&holds.lock);
    for (size_t i = 0; i < holds.n && !fits; i++)
        fits = match_fits(&holds.rule[i], f);
    pthread_rwlock_unlock(&holds.lock);
    return fits;
}
