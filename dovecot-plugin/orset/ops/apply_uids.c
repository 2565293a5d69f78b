/* apply_uids - a keeper's round into the state (uid.h): each message's agreed UID, and a RENUMBER
 * row where the mailbox can follow. */
#include "dovecot-plugin/orset/ops/apply_uids.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/ops/read_op.h"
#include "dovecot-plugin/orset/ops/uid.h"
#include "dovecot-plugin/orset/state/binding.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/pending_dots.h"
#include "dovecot-plugin/orset/state/tasks.h"

/* Applied here: the row says it; the mailbox follows by a RENUMBER row, when its UIDNEXT allows. */
static int agree(struct orset *os, struct folder *f, struct orset_dot d, const struct agreed *a,
                 bool room)
{
    struct message *m = &os->m[1];
    int r = f ? orset_message_load(os, f->index, d, m) : 0;
    if (r <= 0) {
        if (r == 0 && !orset_covered(os, d) && (r = orset_pending_killed(os, d)) == 0)
            return orset_pending_agreed(os, d, a);
        return r < 0 ? r : 0;
    }
    struct orset_sum before = orset_message_sum(os, m);
    if (!orset_agree(os, m, a))
        return 0;
    orset_sum_sub(&f->sum, before);
    orset_sum_add(&f->sum, orset_message_sum(os, m));
    os->place_changes += m->p.uid == 0;
    if ((r = orset_message_store(os, m)) < 0 || (r = orset_folder_touch(os, f)) < 0 ||
        m->p.uid == 0)
        return r;
    struct folder *home = orset_folder_at(os, f->home);
    if ((r = orset_note_mismatch(os, home, m, m->p.uid)) < 0)
        return r;
    if (!room || m->p.uid == a->uid)
        return orset_task_uid(os, ORSET_TASK_RENUMBER, home->index, m->p.uid, NULL);
    return orset_task_renumber(os, home->index, m->p.uid, a->uid);
}

/* 1: mails of the mailbox have no UID here yet, or it is not known whether they have. */
static int lacks(struct orset *os, const struct folder *home)
{
    int r = os->holds_rounds;
    for (uint32_t i = 0; r == 0 && i < os->nfolders; i++)
        if (os->folder[i]->home == home->index)
            r = orset_task_any_place(os, i);
    return r;
}

int orset_uids_apply(struct op_run *x, struct folder *home)
{
    struct orset *os = x->os;
    struct agreed a = {.by = x->by};
    int waits = x->dry ? 0 : lacks(os, home);
    if (waits < 0)
        return waits;
    a.term = orset_read_num(&x->in, ORSET_CLOCK_MAX);
    a.round = (uint32_t)orset_read_num(&x->in, UINT32_MAX - 1);
    uint32_t base = (uint32_t)orset_read_num(&x->in, ORSET_UID_MAX);
    uint64_t n = orset_read_num(&x->in, ORSET_ROUND_MAX), dots;
    if (x->in.bad || a.round == 0 || base == 0 || base + n > ORSET_UID_MAX)
        return orset_fail(os, ORSET_E_MALFORMED, "a UID round's op cannot be read");
    /* A base far above would use up the UIDs (F32): it is believed, but not followed. */
    bool room =
        !x->dry && !waits && home->uid_next <= base && base - home->uid_next <= ORSET_UID_JUMP;
    for (uint64_t i = 0; i < n; i++) {
        struct folder *f;
        int r = orset_read_folder(x, &f);
        dots = orset_read_num(&x->in, ORSET_SAME_MESSAGE_MAX);
        a.uid = base + (uint32_t)i;
        for (uint64_t j = 0; r == 0 && j < dots && !x->in.bad; j++) {
            struct orset_dot d;
            r = orset_read_dot(x, &d);
            if (r == 0 && !x->dry)
                r = agree(os, f, d, &a, room && f && f->home == home->index);
        }
        if (r < 0)
            return r;
    }
    if (x->in.bad)
        return orset_fail(os, ORSET_E_MALFORMED, "a UID round's op cannot be read");
    if (x->dry)
        return 0;
    if (a.term > home->round_term || (a.term == home->round_term && a.round > home->round)) {
        home->round_term = a.term;
        home->round = a.round;
    }
    if (room)
        home->uid_next = base + (uint32_t)n;
    int r = n ? orset_folder_given(os, home, base + (uint32_t)n - 1, x->by) : 0;
    if (r < 0)
        return r;
    return orset_folder_touch(os, home);
}
