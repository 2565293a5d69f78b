/* local_flags - a client's change of flags becomes an op: on each dot of the message, naming the
 * flag dots that it replaces. */
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/emit.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/tasks.h"

/* The change of one flag on one target: which of its dots go, whether one comes. */
static void op_change(struct orset *os, const struct message *m, uint16_t flag, bool on)
{
    unsigned n = 0;
    bool deleted = flag == 2;
    for (unsigned i = 0; i < m->nflags; i++)
        n += m->flag[i].flag == flag;
    orset_flag_write(os, &os->op, flag);
    orset_buf_u8(&os->op, on ? 1 : deleted ? 2 : 0);
    orset_buf_num(&os->op, n);
    for (unsigned i = 0; i < m->nflags; i++)
        if (m->flag[i].flag == flag)
            orset_dot_write(&os->op, m->flag[i].dot);
}

static unsigned count_flags(const struct orset_flags *s)
{
    unsigned n = s->nkeywords;
    for (unsigned i = 0; i < ORSET_SYSTEM_FLAGS; i++)
        n += s->system >> i & 1;
    return n;
}

static void op_changes(struct orset *os, const struct message *m, const struct orset_flags *s,
                       bool on)
{
    for (uint16_t i = 0; i < ORSET_SYSTEM_FLAGS; i++)
        if (s->system >> i & 1)
            op_change(os, m, i, on);
    for (unsigned i = 0; i < s->nkeywords; i++)
        op_change(os, m, (uint16_t)(s->keyword[i] + ORSET_SYSTEM_FLAGS), on);
}

/* m: one dot of the message, in os->m[0]. */
static int emit_flags(struct orset *os, struct message *m, const struct orset_flags *set,
                      const struct orset_flags *cut)
{
    int n = orset_group_load(os, m), r;
    if (n < 0)
        return n;
    orset_op_begin(os, OP_FLAGS);
    orset_folder_id_write(&os->op, orset_folder_at(os, m->p.folder));
    orset_buf_num(&os->op, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        const struct message *o = m;
        if (n > 1) {
            if ((r = orset_message_load(os, m->p.folder, os->group[i], &os->m[2])) <= 0)
                return r < 0 ? r : orset_corrupt(os, "a GUID's row without its message");
            o = &os->m[2];
        }
        orset_dot_write(&os->op, o->p.dot);
        orset_buf_num(&os->op, count_flags(set) + count_flags(cut));
        op_changes(os, o, set, true);
        op_changes(os, o, cut, false);
    }
    return orset_emit(os, 0);
}

/* Keywords that would bring this site's flags on a dot of the message above what its peers take
 * are not set. They can only be such as the mailbox does not show, since it shows fewer. */
static int leave_out_keywords(struct orset *os, const struct message *m, struct orset_flags *set)
{
    uint64_t site = os->origin[os->self].id.site;
    unsigned most = 0, system = count_flags(set) - set->nkeywords;
    int n = set->nkeywords > 0 ? orset_group_load(os, m) : 0, r;
    for (int i = 0; i < n; i++) {
        unsigned own = 0;
        if ((r = orset_message_load(os, m->p.folder, os->group[i], &os->m[2])) < 0)
            return r;
        for (unsigned j = 0; r > 0 && j < os->m[2].nflags; j++)
            own += os->origin[os->m[2].flag[j].dot.origin].id.site == site;
        most = own > most ? own : most;
    }
    unsigned room = most + system < ORSET_MAKE_MARKS_MAX ? ORSET_MAKE_MARKS_MAX - most - system : 0;
    if (n >= 0 && set->nkeywords > room) {
        os->left_out += set->nkeywords - room;
        set->nkeywords = (uint16_t)room;
    }
    return n < 0 ? n : 0;
}

static int local_flags(struct orset *os, uint32_t folder, uint32_t uid,
                       const struct orset_flags *now, const struct orset_flags *reassert,
                       bool undeleted)
{
    struct orset_flags wanted, seen, set, cut, more;
    int r;
    if (!orset_need_folder(os, folder, &r) || (r = orset_message_by_uid(os, folder, uid, NULL)) < 0)
        return r;
    if (r == 0)
        return orset_fail(os, ORSET_E_ABSENT,
                          "flags of UID %u in %s: no message is bound to it; add it first", uid,
                          orset_folder_label(os, folder));
    struct message *m = &os->m[0];
    struct orset_dot dot = m->p.dot;
    uint32_t in = m->p.folder;
    if ((r = orset_group_union(os, m, &wanted)) < 0)
        return r;
    int had = orset_task_seen(os, folder, uid, &seen);
    if (had < 0)
        return had;
    if (!had)
        seen = wanted;
    orset_flags_diff(now, &seen, &set);
    orset_flags_diff(&seen, now, &cut);
    if (reassert) {
        orset_flags_diff(reassert, &cut, &more);
        orset_flags_or(&set, &more);
    }
    if (undeleted && (set.system & ORSET_DELETED) == 0)
        cut.system |= ORSET_DELETED;
    if ((r = leave_out_keywords(os, m, &set)) < 0)
        return r;
    if (count_flags(&set) + count_flags(&cut) == 0)
        return ORSET_KNOWN;
    if ((r = emit_flags(os, m, &set, &cut)) < 0)
        return r;
    if (!had) {
        /* What the mailbox has is what was wanted but for this very change, and that is now
         * wanted too; only \Deleted can differ (a disable that is not known here yet may still
         * win elsewhere, not here). */
        struct orset_flags after = wanted;
        orset_flags_or(&after, &set);
        orset_flags_diff(&after, &cut, &seen);
        if (orset_flags_equal(&seen, now))
            return 0;
    }
    if (orset_message_load(os, in, dot, m) <= 0 || (r = orset_group_union(os, m, &wanted)) < 0)
        return orset_storage_fail(os, "a message vanished");
    return orset_task_flags(os, folder, uid, &wanted, &wanted, now);
}

int orset_local_flags(struct orset *os, uint32_t folder, uint32_t uid,
                      const struct orset_flags *now, const struct orset_flags *reassert)
{
    return local_flags(os, folder, uid, now, reassert, false);
}

int orset_local_undeleted(struct orset *os, uint32_t folder, uint32_t uid,
                          const struct orset_flags *now, const struct orset_flags *reassert)
{
    return local_flags(os, folder, uid, now, reassert, true);
}

int orset_flags_seen(struct orset *os, uint32_t folder, uint32_t uid, struct orset_flags *seen)
{
    int r = orset_message_by_uid(os, folder, uid, NULL);
    if (r <= 0)
        return r;
    if ((r = orset_task_seen(os, folder, uid, seen)) == 0)
        r = orset_group_union(os, &os->m[0], seen);
    return r < 0 ? r : 1;
}

/* Where the message is placed, its mail is to get what was said of it in another mailbox. */
static int show_flags(struct orset *os, uint32_t folder, struct orset_dot dot,
                      const struct orset_flags *before)
{
    struct message *m = &os->m[0];
    struct orset_flags now;
    if (orset_message_load(os, folder, dot, m) <= 0)
        return orset_storage_fail(os, "a message vanished");
    if (m->p.uid == 0)
        return 0;
    int r = orset_group_union(os, m, &now);
    return r < 0 ? r
                 : orset_task_flags(os, orset_folder_at(os, folder)->home, m->p.uid, before, &now,
                                    NULL);
}

int orset_local_flags_moved(struct orset *os, uint32_t folder, uint32_t uid,
                            const struct orset_flags *set, const struct orset_flags *cut)
{
    struct orset_flags wanted, kept = *set, gone, not_there;
    int r = orset_find_moved(os, folder, uid, true);
    if (r != ORSET_OK)
        return r;
    if ((r = orset_group_union(os, &os->m[0], &wanted)) < 0)
        return r;
    orset_flags_diff(cut, &wanted, &not_there);
    not_there.system &= (uint8_t)~ORSET_DELETED; /* its clearing is told: another site may set it */
    orset_flags_diff(cut, &not_there, &gone);
    const struct orset_dot dot = os->m[0].p.dot;
    if ((r = leave_out_keywords(os, &os->m[0], &kept)) < 0)
        return r;
    if (count_flags(&kept) + count_flags(&gone) == 0)
        return ORSET_KNOWN;
    r = emit_flags(os, &os->m[0], &kept, &gone);
    return r < 0 ? r : show_flags(os, folder, dot, &wanted);
}
