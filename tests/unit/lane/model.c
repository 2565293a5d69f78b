#include "tests/unit/lane/model.h"

#include <stdlib.h>
#include <string.h>

void model_add(struct model *m, const struct model_entry *e)
{
    if (m->n == m->room) {
        m->room = m->room ? 2 * m->room : 64;
        m->entry = realloc(m->entry, m->room * sizeof *m->entry);
        if (!m->entry)
            abort();
    }
    m->entry[m->n++] = *e;
}

void model_remove(struct model *m, size_t i)
{
    m->n--;
    memmove(&m->entry[i], &m->entry[i + 1], (m->n - i) * sizeof *m->entry);
}

size_t model_find(const struct model *m, uint64_t seq)
{
    size_t i = 0;
    while (i < m->n && m->entry[i].seq != seq)
        i++;
    return i;
}

size_t model_find_id(const struct model *m, const uint8_t *id)
{
    size_t i = 0;
    while (i < m->n && !(m->entry[i].has_id && memcmp(m->entry[i].id, id, LANE_ID_LEN) == 0))
        i++;
    return i;
}

bool model_fits(const struct model *m, uint64_t entries, uint64_t bytes)
{
    for (size_t i = 0; i < m->n; i++)
        bytes += m->entry[i].meta_len + m->entry[i].body_len;
    return (!m->settings.maxlen || m->n + entries <= m->settings.maxlen) &&
           (!m->settings.maxbytes || bytes <= m->settings.maxbytes);
}

size_t model_candidate(const struct model *m, uint64_t lease)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct model_entry *e = &m->entry[i];
        if (e->state == LANE_WAITING) {
            if (m->settings.strict)
                for (size_t j = i; j < m->n; j++)
                    if (m->entry[j].state == LANE_LEASED)
                        return m->n; /* somebody has one behind it */
            return i;
        }
        if (m->settings.strict && !(e->state == LANE_LEASED && e->lease == lease))
            return m->n;
    }
    return m->n;
}

static const char *entry_differs(const struct model_entry *want, const struct lane_entry *got)
{
    if (want->seq != got->seq)
        return "sequence";
    if (want->has_id != (got->id != NULL) ||
        (got->id && memcmp(want->id, got->id, LANE_ID_LEN) != 0))
        return "id";
    if (want->meta_len != got->meta_len || memcmp(want->meta, got->meta, got->meta_len) != 0)
        return "meta";
    if (want->body_len != got->body_len || memcmp(want->body, got->body, got->body_len) != 0)
        return "body";
    if (want->state != got->state || want->lease != got->lease || want->revoked != got->revoked)
        return "state";
    if (want->state != LANE_WAITING && want->until != got->until)
        return "time";
    if (want->revision != got->revision || want->attempts != got->attempts ||
        want->born != got->born)
        return "revision, attempts or age";
    if (want->expires != got->expires)
        return "expiry";
    return NULL;
}

const char *model_differs(const struct model *m, struct lane *lane)
{
    struct lane_entry e;
    uint64_t at = 0, bytes = 0;
    for (size_t i = 0; i < m->n; i++, at = e.seq + 1) {
        if (!lane_next(lane, at, &e))
            return "an entry is missing";
        const char *differs = entry_differs(&m->entry[i], &e);
        if (differs)
            return differs;
        bytes += e.meta_len + e.body_len;
    }
    if (lane_next(lane, at, &e))
        return "an entry too many";
    struct lane_counts n = lane_counts(lane);
    if (n.length != m->n || n.bytes != bytes)
        return "counts";
    return lane_takeable(lane) == (model_candidate(m, 0) < m->n) ? NULL : "takeable";
}
