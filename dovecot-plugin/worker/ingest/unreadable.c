/* unreadable - names of mailboxes that could not be read when nothing was missed. A mailbox that
 * is missed later is none of these, under another name: it was there, beside them. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/worker/ingest/pass.h"
#include "dovecot-plugin/worker/ingest/scan.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <buffer.h>

#define KEPT 1000 /* names; of more, each may be what is missed */

static uint64_t hash_of(const char *vname)
{
    return orset_hash(vname, strlen(vname)).lo;
}

int unreadable_was(struct session *s, const char *vname)
{
    const uint8_t *v;
    size_t len;
    uint64_t hash = hash_of(vname), one;
    int r = rows_get(s, ROW_UNREADABLE, "", 0, &v, &len);
    for (size_t at = 0; r > 0 && at + sizeof one <= len; at += sizeof one) {
        memcpy(&one, v + at, sizeof one);
        if (one == hash)
            return 1;
    }
    return r < 0 ? -1 : 0;
}

int unreadable_keep(struct session *s, const char *const *vnames, unsigned n)
{
    const uint8_t *v;
    size_t len;
    buffer_t *now = t_buffer_create(64);
    for (unsigned i = 0; i < n && i < KEPT; i++) {
        uint64_t hash = hash_of(vnames[i]);
        buffer_append(now, &hash, sizeof hash);
    }
    int r = rows_get(s, ROW_UNREADABLE, "", 0, &v, &len);
    if (r < 0 || (r == 0 && now->used == 0) ||
        (r > 0 && len == now->used && memcmp(v, now->data, len) == 0))
        return r < 0 ? -1 : 0;
    return now->used == 0 ? rows_del(s, ROW_UNREADABLE, "", 0)
                          : rows_put(s, ROW_UNREADABLE, "", 0, now->data, now->used);
}
