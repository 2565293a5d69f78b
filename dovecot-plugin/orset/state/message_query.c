/* message_query - what the state says of its messages. */
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"

#include <string.h>

int orset_message_get(struct orset *os, uint32_t folder, struct orset_dot d,
                      struct orset_message *out)
{
    int got = orset_message_load(os, folder, d, &os->m[0]);
    if (got <= 0)
        return got;
    *out = os->m[0].p;
    return orset_group_agreed(os, &os->m[0], &out->agreed) < 0 ? ORSET_E_STORAGE : 1;
}

int orset_message_flags(struct orset *os, uint32_t folder, struct orset_dot d,
                        struct orset_flags *flags)
{
    int got = orset_message_load(os, folder, d, &os->m[0]);
    if (got <= 0)
        return got < 0 ? got
                       : orset_fail(os, ORSET_E_ABSENT, "no such message in %s",
                                    orset_folder_label(os, folder));
    return orset_group_union(os, &os->m[0], flags);
}

int orset_message_rescued(struct orset *os, uint32_t folder, struct orset_dot d)
{
    int got = orset_message_load(os, folder, d, &os->m[0]);
    return got <= 0 ? got : orset_group_rescued(os, &os->m[0]);
}

struct each {
    struct orset *os;
    orset_message_fn *fn;
    void *arg;
};

/* m[0] */
static int call_each(struct each *e)
{
    struct message *m = &e->os->m[0];
    struct orset_flags yes = {0}, no = {0};
    m->p.agreed = m->round ? m->agreed : m->p.claim;
    orset_flags_of(m, &yes, &no);
    yes.system &= (uint8_t)~no.system;
    return e->fn(e->arg, &m->p, &yes);
}

static int each_row(void *arg, const uint8_t *key, size_t len, const uint8_t *v, size_t vlen)
{
    struct each *e = arg;
    struct orset_reader k = orset_reader_of(key, len), r = orset_reader_of(v, vlen);
    struct message *m = &e->os->m[0];
    if (!orset_message_key_read(e->os, &k, m))
        return orset_corrupt(e->os, "a message's key");
    int got = orset_message_parse(e->os, &r, m);
    return got < 0 ? got : call_each(e);
}

int orset_each_message(struct orset *os, uint32_t folder, orset_message_fn *fn, void *arg)
{
    struct orset_key k = {0};
    struct each e = {os, fn, arg};
    orset_key_num(&k, folder);
    return os->store.each(os->store.ctx, ORSET_T_MESSAGE, k.b, k.n, k.n, each_row, &e);
}

int orset_each_copy(struct orset *os, uint32_t folder, const uint8_t guid[16], orset_message_fn *fn,
                    void *arg)
{
    struct each e = {os, fn, arg};
    int n = orset_copies(os, guid, folder), r = 0;
    for (int i = 0; i < n && r == 0; i++) {
        r = orset_message_load(os, folder, os->copies.v[i].dot, &os->m[0]);
        r = r > 0 && memcmp(os->m[0].p.facts.guid, guid, 16) == 0 ? call_each(&e) : r < 0 ? r : 0;
    }
    return n < 0 ? n : r;
}
