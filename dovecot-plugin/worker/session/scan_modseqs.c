/* scan_modseqs - keeps the modseqs of a scan's changes by folder. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/session/scan_modseqs.h"
#include "dovecot-plugin/worker/session/session.h"

#define MOST 1000 /* in memory; the oldest go */

void scan_modseqs_begin(struct session *s, uint32_t folder, uint64_t lo, uint64_t hi)
{
    const struct scan_modseqs m = {orset_vector_get(s->os, orset_self(s->os)) + 1, UINT64_MAX,
                                   folder, lo, hi};
    if (array_count(&s->scan_modseqs) >= MOST)
        array_delete(&s->scan_modseqs, 0, MOST / 2);
    array_push_back(&s->scan_modseqs, &m);
}

void scan_modseqs_end(struct session *s)
{
    uint64_t counter = orset_vector_get(s->os, orset_self(s->os));
    for (unsigned i = array_count(&s->scan_modseqs); i-- > 0;) {
        struct scan_modseqs *m = array_idx_modifiable(&s->scan_modseqs, i);
        if (m->upto == UINT64_MAX)
            m->upto = counter;
        if (m->upto < m->from || m->from > counter)
            array_delete(&s->scan_modseqs, i, 1);
    }
}

static struct scan_modseqs *find(ARRAY_TYPE(scan_modseqs) * folders, uint32_t folder)
{
    struct scan_modseqs *m;
    array_foreach_modifiable (folders, m) {
        if (m->folder == folder)
            return m;
    }
    return NULL;
}

void scan_modseqs_of(struct session *s, uint64_t from, uint64_t upto, scan_modseqs_fn *fn,
                     void *arg)
{
    ARRAY_TYPE(scan_modseqs) folders;
    const struct scan_modseqs *m;
    i_array_init(&folders, 8);
    array_foreach (&s->scan_modseqs, m) {
        if (m->from > upto || m->upto < from)
            continue;
        struct scan_modseqs one = *m, *had = find(&folders, m->folder);
        if (m->from < from || m->upto > upto)
            one.lo = 0;
        if (had != NULL) {
            had->lo = I_MIN(had->lo, one.lo);
            had->hi = I_MAX(had->hi, one.hi);
        } else {
            array_push_back(&folders, &one);
        }
    }
    array_foreach (&folders, m) {
        if (m->lo != 0)
            fn(arg, m->folder, m->lo);
        fn(arg, m->folder, m->hi);
    }
    array_free(&folders);
}
