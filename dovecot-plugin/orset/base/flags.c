/* flags - sets of flags, and the dots behind them (rule 5). */
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/rows.h"

#include <string.h>

static void set_flag(struct orset_flags *s, uint16_t flag)
{
    unsigned i = 0;
    if (flag < ORSET_SYSTEM_FLAGS) {
        s->system |= (uint8_t)(1U << flag);
        return;
    }
    uint16_t kw = (uint16_t)(flag - ORSET_SYSTEM_FLAGS);
    while (i < s->nkeywords && s->keyword[i] < kw)
        i++;
    /* More keywords than a set holds: the highest numbers are not shown. They stay in the state. */
    if (i == ORSET_MESSAGE_KEYWORDS_MAX || (i < s->nkeywords && s->keyword[i] == kw))
        return;
    if (s->nkeywords == ORSET_MESSAGE_KEYWORDS_MAX)
        s->nkeywords--;
    memmove(&s->keyword[i + 1], &s->keyword[i], (s->nkeywords - i) * sizeof s->keyword[0]);
    s->keyword[i] = kw;
    s->nkeywords++;
}

void orset_flags_of(const struct message *m, struct orset_flags *yes, struct orset_flags *no)
{
    for (unsigned i = 0; i < m->nflags; i++)
        set_flag(m->flag[i].off ? no : yes, m->flag[i].flag);
}

bool orset_flags_equal(const struct orset_flags *a, const struct orset_flags *b)
{
    return a->system == b->system && a->nkeywords == b->nkeywords &&
           memcmp(a->keyword, b->keyword, a->nkeywords * sizeof a->keyword[0]) == 0;
}

static bool has_flag(const struct orset_flags *s, uint16_t flag)
{
    if (flag < ORSET_SYSTEM_FLAGS)
        return s->system >> flag & 1;
    for (unsigned i = 0; i < s->nkeywords; i++)
        if (s->keyword[i] == flag - ORSET_SYSTEM_FLAGS)
            return true;
    return false;
}

void orset_flags_diff(const struct orset_flags *a, const struct orset_flags *minus,
                      struct orset_flags *r)
{
    r->system = (uint8_t)(a->system & ~minus->system);
    r->nkeywords = 0;
    for (unsigned i = 0; i < a->nkeywords; i++)
        if (!has_flag(minus, (uint16_t)(a->keyword[i] + ORSET_SYSTEM_FLAGS)))
            r->keyword[r->nkeywords++] = a->keyword[i];
}

void orset_flags_or(struct orset_flags *a, const struct orset_flags *b)
{
    a->system |= b->system;
    for (unsigned i = 0; i < b->nkeywords; i++)
        set_flag(a, (uint16_t)(b->keyword[i] + ORSET_SYSTEM_FLAGS));
}

/* At most one dot per origin, flag and direction: an origin's later dot replaced its earlier one
 * when it was made, so the earlier one can only be here because an exchange brought the later
 * one first. */
int orset_flagdot_put(struct orset *os, struct message *m, struct flagdot f)
{
    for (unsigned i = 0; i < m->nflags; i++) {
        struct flagdot *g = &m->flag[i];
        if (g->flag == f.flag && g->off == f.off && g->dot.origin == f.dot.origin) {
            if (g->dot.counter < f.dot.counter)
                g->dot = f.dot;
            return 0;
        }
    }
    if (m->nflags == m->room) {
        unsigned room = m->room ? m->room * 2 : 16;
        struct flagdot *p = orset_mem(os, m->flag, room * sizeof *p);
        if (!p)
            return ORSET_E_MEMORY;
        m->flag = p;
        m->room = room;
    }
    m->flag[m->nflags++] = f;
    return 0;
}

void orset_flagdot_cut(struct message *m, unsigned i)
{
    m->flag[i] = m->flag[--m->nflags];
}

void orset_flags_write(struct orset_buf *b, const struct orset_flags *s)
{
    orset_buf_u8(b, s->system);
    orset_buf_num(b, s->nkeywords);
    for (unsigned i = 0; i < s->nkeywords; i++)
        orset_buf_num(b, s->keyword[i]);
}

void orset_flags_read(const struct orset *os, struct orset_reader *r, struct orset_flags *s)
{
    s->system = orset_read_u8(r);
    s->nkeywords = (uint16_t)orset_read_num(r, ORSET_MESSAGE_KEYWORDS_MAX);
    r->bad |= s->system >= 1U << ORSET_SYSTEM_FLAGS;
    for (unsigned i = 0; i < s->nkeywords; i++) {
        s->keyword[i] = (uint16_t)orset_read_num(r, ORSET_KEYWORDS_MAX);
        r->bad |= s->keyword[i] >= os->nkeywords;
    }
    if (r->bad)
        s->system = 0, s->nkeywords = 0;
}

void orset_flag_write(const struct orset *os, struct orset_buf *b, uint16_t flag)
{
    orset_buf_u8(b, (uint8_t)(flag < ORSET_SYSTEM_FLAGS ? flag : ORSET_SYSTEM_FLAGS));
    if (flag >= ORSET_SYSTEM_FLAGS) {
        const struct keyword *k = &os->keyword[flag - ORSET_SYSTEM_FLAGS];
        orset_buf_text(b, k->name, k->len);
    }
}
