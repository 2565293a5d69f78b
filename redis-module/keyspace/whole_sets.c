/* whole_sets - the sets, and the tokens that came with them. */
#include "redis-module/keyspace/whole_sets.h"

#include <string.h>

#define SETS_MAX 10000
#define OWNED "dovelane:" /* begins the name of a lane with owners, which stand behind a bar */

static struct whole_set *all_sets;
static size_t nsets;

const struct whole_set *whole_sets(void)
{
    return all_sets;
}

static struct whole_set *find(const char *set, size_t len)
{
    struct whole_set *w = all_sets;
    while (w && !text_is(&w->set, set, len))
        w = w->next;
    return w;
}

bool whole_begin(const char *set, size_t set_len, const char *token, size_t token_len)
{
    struct whole_set *w = find(set, set_len);
    if (!w && nsets >= SETS_MAX)
        return false;
    if (!w) {
        w = must_alloc(sizeof *w);
        *w = (struct whole_set){.next = all_sets};
        text_set(&w->set, set, set_len);
        all_sets = w;
        nsets++;
    }
    text_set(&w->begun, token, token_len);
    return true;
}

bool whole_end(const char *set, size_t set_len, const char *token, size_t token_len)
{
    struct whole_set *w = find(set, set_len);
    bool stands = w && text_is(&w->begun, token, token_len);
    /* Who was whole before stays so under the old token: others may be comparing with it just
     * now. */
    if (stands && !w->token.len) {
        text_set(&w->token, token, token_len);
        w->since = now_ms();
    }
    return stands;
}

void whole_lost(void)
{
    while (all_sets) {
        struct whole_set *w = all_sets;
        all_sets = w->next;
        text_free(&w->set);
        text_free(&w->token);
        text_free(&w->begun);
        RedisModule_Free(w);
        RedisModule_Assert(nsets);
        nsets--;
    }
}

/* A name too many is one comparison more, a name too few would be mail that nobody misses: so
 * the part behind the bar is not looked at. */
void whole_lost_with(const struct value *v)
{
    size_t prefix = strlen(OWNED);
    if (v->db == 0 && v->name_len > prefix && !memcmp(v->name, OWNED, prefix) &&
        memchr(v->name, '|', v->name_len))
        whole_lost();
}
