/* retry - doubles the wait for each thing that goes on failing. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>

#define TIMES_MOST 30 /* the longest wait, in first ones */
#define FORGET 60000  /* milliseconds after a try was due: nobody tried */
#define RETRIES_MAX 1000

static struct retry *find_or_add(struct session *s, uint64_t hash)
{
    struct retry *r, fresh = {.hash = hash};
    array_foreach_modifiable (&s->retries, r) {
        if (r->hash == hash)
            return r;
    }
    if (array_count(&s->retries) == RETRIES_MAX)
        array_pop_front(&s->retries);
    array_push_back(&s->retries, &fresh);
    return array_back_modifiable(&s->retries);
}

bool session_retry(struct session *s, const char *what, const char *name, unsigned first_msecs)
{
    const char *key = t_strconcat(what, "\n", name, NULL);
    struct retry *r = find_or_add(s, orset_hash(key, strlen(key)).lo);
    uint64_t now = clock_msecs();
    bool over = now >= r->again;
    if (over) {
        bool in_a_row = r->wait != 0 && now - r->again < FORGET;
        r->wait = in_a_row ? I_MIN(r->wait * 2, TIMES_MOST * first_msecs) : first_msecs;
        r->again = now + r->wait;
    }
    session_want_tick(s, (unsigned)(r->again - now));
    return over;
}

void session_retries_end(struct session *s, uint64_t begun)
{
    const struct retry *r = array_count(&s->retries) == 0 ? NULL : array_front(&s->retries);
    for (unsigned i = array_count(&s->retries); i-- > 0;)
        if (r[i].again <= begun)
            array_delete(&s->retries, i, 1);
}
