#include "relay/delivery/retry.h"

int64_t retry_wait(const struct retry_policy *p, const unsigned char id[ENTRYID_LEN], int64_t age,
                   uint32_t attempts)
{
    /* passed: the age at which a mail tried on schedule would have used up the waits up to this
     * one. */
    int64_t wait = p->first, passed = p->first;
    for (uint32_t n = 1; wait < p->most && (n < attempts || passed <= age); n++) {
        wait *= 2;
        passed += wait;
    }
    if (wait > p->most)
        wait = p->most;
    return wait - (int64_t)((double)wait / 4 * entryid_fraction(id, attempts));
}

/* The open recipients of one entry share a schedule: the most attempts and the latest one count. */
static void last_try(const struct envelope *env, uint32_t *attempts, int64_t *at)
{
    *attempts = 0;
    *at = 0;
    for (size_t i = 0; i < env->nrecipients; i++) {
        const struct recipient *r = &env->recipient[i];
        if (r->state != RECIPIENT_WAITING && r->state != RECIPIENT_FAILED)
            continue;
        if (r->attempts > *attempts)
            *attempts = r->attempts;
        if (r->last_attempt > *at)
            *at = r->last_attempt;
    }
}

int64_t retry_due(const struct retry_policy *p, const unsigned char id[ENTRYID_LEN],
                  const struct envelope *env)
{
    uint32_t attempts;
    int64_t at;
    last_try(env, &attempts, &at);
    if (!attempts || at <= 0)
        return 0;
    int64_t age = at > env->arrived ? at - env->arrived : 0;
    return at + retry_wait(p, id, age, attempts);
}

int64_t retry_left(const struct retry_policy *p, const unsigned char id[ENTRYID_LEN],
                   const struct envelope *env, int64_t now)
{
    int64_t due = retry_due(p, id, env);
    if (due <= now)
        return 0;
    return due - now < p->most ? due - now : p->most;
}
