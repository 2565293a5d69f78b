/* message - one message dot: its row, and what it counts for in digests.
 *
 *     ORSET_T_MESSAGE  folder, dot              -> facts, flag dots, agreed UID, bound UID
 *
 * group.c has the message that several dots make (rule 4), binding.c the UID bound to it,
 * message_set.c what comes and goes. */
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/keywords.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"

#include <string.h>

/* in a row: exchanges can bring together what several sites had */
#define ROW_FLAGDOTS_MAX (10 * ORSET_MESSAGE_FLAGDOTS_MAX)

enum { HAS_AGREED = 1, HAS_GUID_TEXT = 2, HAS_SIBLINGS = 4, UID_IS_CLAIM = 8, HAS_UID = 16 };

static void message_key(struct orset_key *k, uint32_t folder, struct orset_dot d)
{
    k->n = 0;
    orset_key_num(k, folder);
    orset_key_dot(k, d);
}

/* --- the row
 * ---------------------------------------------------------------------------------------------- */

int orset_message_store(struct orset *os, struct message *m)
{
    struct orset_buf *b = &os->row;
    struct orset_key k;
    bool is_claim = m->p.uid && m->p.uid == m->p.claim;
    b->len = 0;
    orset_buf_u8(b, (uint8_t)((m->round ? HAS_AGREED : 0) |
                              (m->p.facts.guid_text_len ? HAS_GUID_TEXT : 0) |
                              (m->siblings ? HAS_SIBLINGS : 0) | (is_claim ? UID_IS_CLAIM : 0) |
                              (m->p.uid && !is_claim ? HAS_UID : 0)));
    orset_buf_put(b, m->p.facts.guid, 16);
    orset_buf_put(b, m->p.facts.sha256, 32);
    orset_buf_num(b, (uint64_t)m->p.facts.received);
    /* Saved soon after it was received, nearly always: the difference is short. Zigzag, it may be
     * negative.
     */
    int64_t later = m->p.facts.saved - m->p.facts.received;
    orset_buf_num(b, (uint64_t)later << 1 ^ (later < 0 ? UINT64_MAX : 0));
    orset_buf_num(b, m->p.facts.size);
    orset_buf_num(b, m->p.k);
    orset_buf_num(b, m->p.claim);
    if (m->p.uid && !is_claim)
        orset_buf_num(b, m->p.uid);
    if (m->round) {
        orset_buf_num(b, m->term);
        orset_buf_num(b, m->round);
        orset_buf_num(b, m->agreed);
        orset_buf_num(b, m->agreed_by);
    }
    if (m->p.facts.guid_text_len)
        orset_buf_text(b, m->guid_text, m->p.facts.guid_text_len);
    for (unsigned i = 0; i < m->nflags; i++) {
        orset_buf_num(b, (uint64_t)m->flag[i].flag << 1 | m->flag[i].off);
        orset_dot_write(b, m->flag[i].dot);
    }
    message_key(&k, m->p.folder, m->p.dot);
    return orset_row_put(os, ORSET_T_MESSAGE, &k, b);
}

int orset_message_del(struct orset *os, const struct message *m)
{
    struct orset_key k;
    message_key(&k, m->p.folder, m->p.dot);
    return orset_row_del(os, ORSET_T_MESSAGE, &k);
}

static bool is_date(int64_t seconds)
{
    return seconds >= -ORSET_DATE_MAX && seconds <= ORSET_DATE_MAX;
}

int orset_message_parse(struct orset *os, struct orset_reader *r, struct message *m)
{
    unsigned has = orset_read_u8(r);
    const uint8_t *guid = orset_read_bytes(r, 16), *sha = orset_read_bytes(r, 32);
    m->nflags = 0;
    if (r->bad)
        return orset_corrupt(os, "a message's row is cut");
    memcpy(m->p.facts.guid, guid, 16);
    memcpy(m->p.facts.sha256, sha, 32);
    uint64_t received = orset_read_num(r, UINT64_MAX), z = orset_read_num(r, UINT64_MAX);
    m->p.facts.received = (int64_t)received;
    m->p.facts.saved = (int64_t)(received + (z >> 1 ^ (z & 1 ? UINT64_MAX : 0)));
    m->p.facts.size = orset_read_num(r, ORSET_SIZE_MAX);
    m->p.k = (uint32_t)orset_read_num(r, ORSET_SAME_MESSAGE_MAX);
    m->p.claim = (uint32_t)orset_read_num(r, UINT32_MAX);
    m->p.uid = has & UID_IS_CLAIM ? m->p.claim
               : has & HAS_UID    ? (uint32_t)orset_read_num(r, UINT32_MAX)
                                  : 0;
    m->siblings = has & HAS_SIBLINGS;
    m->term = m->round = m->agreed = 0;
    if (has & HAS_AGREED) {
        m->term = orset_read_num(r, ORSET_CLOCK_MAX);
        m->round = (uint32_t)orset_read_num(r, UINT32_MAX);
        m->agreed = (uint32_t)orset_read_num(r, UINT32_MAX);
        m->agreed_by = (uint16_t)orset_read_num(r, os->norigins - 1u);
        r->bad |= m->round == 0;
    }
    r->bad |= has >= HAS_UID << 1 || m->p.k == 0 || !is_date(m->p.facts.received) ||
              !is_date(m->p.facts.saved);
    m->p.facts.guid_text_len = 0;
    m->p.facts.guid_text = NULL;
    if (has & HAS_GUID_TEXT) {
        size_t n;
        const uint8_t *t = orset_read_text(r, ORSET_GUID_TEXT_MAX, &n);
        r->bad |= !t || !orset_guid_text_valid(t, n);
        if (!r->bad) {
            memcpy(m->guid_text, t, n);
            m->p.facts.guid_text = m->guid_text;
            m->p.facts.guid_text_len = n;
        }
    }
    while (!r->bad && r->at < r->end) {
        struct flagdot f;
        uint64_t n = orset_read_num(r, 2 * (ORSET_KEYWORDS_MAX + ORSET_SYSTEM_FLAGS));
        f.flag = (uint16_t)(n >> 1);
        f.off = n & 1;
        f.dot = orset_row_read_dot(os, r);
        r->bad |= f.flag >= ORSET_SYSTEM_FLAGS + os->nkeywords || m->nflags >= ROW_FLAGDOTS_MAX;
        if (!r->bad && orset_flagdot_put(os, m, f) < 0)
            return ORSET_E_MEMORY;
    }
    return r->bad ? orset_corrupt(os, "a message's row cannot be read") : 1;
}

int orset_message_load(struct orset *os, uint32_t folder, struct orset_dot d, struct message *m)
{
    struct orset_key k;
    struct orset_reader r;
    if (folder >= os->nfolders || d.origin >= os->norigins)
        return orset_corrupt(os, "a row names a message of a folder or site that does not exist");
    message_key(&k, folder, d);
    int got = orset_row_get(os, ORSET_T_MESSAGE, &k, &r);
    if (got <= 0)
        return got;
    m->p.folder = folder;
    m->p.dot = d;
    return orset_message_parse(os, &r, m);
}

bool orset_message_key_read(const struct orset *os, struct orset_reader *k, struct message *m)
{
    m->p.folder = orset_key_read_folder(os, k);
    m->p.dot = orset_key_read_dot(os, k);
    return !k->bad && k->at == k->end;
}

bool orset_guid_text_valid(const void *text, size_t len)
{
    const uint8_t *t = text;
    if (len > ORSET_GUID_TEXT_MAX || (len > 0 && t[0] == '.'))
        return false;
    for (size_t i = 0; i < len; i++)
        if (t[i] <= ' ' || t[i] == 0x7f || t[i] == '/')
            return false;
    return true;
}

/* --- digest
 * ---------------------------------------------------------------------------------------------- */

struct orset_sum orset_message_sum(const struct orset *os, const struct message *m)
{
    const struct orset_facts *f = &m->p.facts;
    uint64_t w[20] = {0};
    unsigned n = 0;
    w[n++] = os->origin[m->p.dot.origin].hash;
    w[n++] = m->p.dot.counter;
    for (int i = 0; i < 48; i++) {
        uint8_t byte = i < 16 ? f->guid[i] : f->sha256[i - 16];
        w[n + (unsigned)i / 8] |= (uint64_t)byte << 8 * (i % 8);
    }
    n += 6;
    w[n++] = (uint64_t)f->received;
    w[n++] = (uint64_t)f->saved;
    w[n++] = f->size;
    w[n++] = (uint64_t)m->p.k << 32 | m->p.claim;
    w[n++] = f->guid_text_len ? orset_hash(m->guid_text, f->guid_text_len).lo : 0;
    if (m->round) {
        w[n++] = m->term;
        w[n++] = (uint64_t)m->round << 32 | m->agreed;
        w[n++] = os->origin[m->agreed_by].hash;
    }
    return orset_hash_words(w, n);
}

struct orset_sum orset_flagdot_sum(const struct orset *os, const struct message *m,
                                   const struct flagdot *f)
{
    uint64_t w[6] = {os->origin[m->p.dot.origin].hash, m->p.dot.counter,
                     os->origin[f->dot.origin].hash,   f->dot.counter,
                     orset_flag_hash(os, f->flag),     f->off};
    return orset_hash_words(w, 6);
}

void orset_message_count(struct orset *os, struct folder *f, const struct message *m, bool add)
{
    void (*change)(struct orset_sum *, struct orset_sum) = add ? orset_sum_add : orset_sum_sub;
    change(&f->sum, orset_message_sum(os, m));
    for (unsigned i = 0; i < m->nflags; i++)
        change(&f->sum, orset_flagdot_sum(os, m, &m->flag[i]));
}

/* --- the keeper's word */

/* The keeper's word on one dot: the later of (term, round, origin) stands, so the order of
 * arrival does not count. */
int orset_agree(struct orset *os, struct message *m, const struct agreed *a)
{
    bool older = m->round && (m->term != a->term ? a->term < m->term
                              : m->round != a->round
                                  ? a->round < m->round
                                  : orset_dot_order(os, (struct orset_dot){a->by, 0},
                                                    (struct orset_dot){m->agreed_by, 0}) <= 0);
    if (older)
        return 0;
    m->term = a->term;
    m->round = a->round;
    m->agreed = a->uid;
    m->agreed_by = a->by;
    return 1;
}
