/* plan - sorts what a mailbox lacks by UID, and says up to where it may be saved. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/bodies/body_requests.h"
#include "dovecot-plugin/worker/bodies/patience.h"
#include "dovecot-plugin/worker/bodies/plan.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <sort.h>

#include <time-util.h>

#define SMALL 1000       /* mails: a plan of no more is read again whenever there are others */
#define AGAIN_MSECS 5000 /* a larger one, when so long has passed or a part of it is done */

struct plan {
    struct plan_item *item;
    unsigned n, room, left;
    ARRAY(struct plan_mailbox) mailboxes;
    uint64_t changes; /* orset_place_changes() when it was read */
    uint64_t read_at; /* milliseconds of the monotonic clock */
    bool overdue;
};

struct plan *plan_create(void)
{
    struct plan *p = i_new(struct plan, 1);
    i_array_init(&p->mailboxes, 8);
    p->overdue = TRUE;
    return p;
}

void plan_free(struct plan **_p)
{
    struct plan *p = *_p;
    *_p = NULL;
    if (p == NULL)
        return;
    array_free(&p->mailboxes);
    i_free(p->item);
    i_free(p);
}

/* --- reading it ------------------------------------------------------------------------------- */

static int by_mailbox_and_uid(const struct plan_item *a, const struct plan_item *b)
{
    if (a->mailbox != b->mailbox)
        return a->mailbox < b->mailbox ? -1 : 1;
    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    if (a->uid != b->uid)
        return a->uid < b->uid ? -1 : 1;
    return memcmp(a->row, b->row, sizeof a->row);
}

static int add_item(struct session *s, const struct orset_task *t, uint32_t uid_next)
{
    struct plan *p = s->plan;
    if (t->at_len > PLAN_ROW_MAX)
        return session_fail(s, "state: a message that waits to be placed has a key of %zu bytes",
                            t->at_len);
    if (p->n == p->room) {
        unsigned room = p->room == 0 ? 64 : p->room * 2;
        p->item = i_realloc(p->item, p->room * sizeof *p->item, room * sizeof *p->item);
        p->room = room;
    }
    struct plan_item *item = &p->item[p->n++];
    i_zero(item);
    item->mailbox = t->folder;
    item->uid = t->uid;
    item->fits = t->uid >= uid_next;
    item->row_len = (uint8_t)t->at_len;
    memcpy(item->row, t->at, t->at_len);
    return 0;
}

static int read_items(struct session *s)
{
    struct orset_task *t = i_new(struct orset_task, 1);
    struct orset_folder f = {.uid_next = 0};
    uint32_t mailbox = ORSET_NO_FOLDER;
    int got, r = 0;
    while (r == 0 && (got = orset_task_next_place(s->os, t)) > 0) {
        if (t->folder != mailbox && orset_folder_get(s->os, t->folder, &f) < 0)
            got = -1;
        mailbox = t->folder;
        r = got < 0 ? -1 : add_item(s, t, f.uid_next);
    }
    i_free(t);
    return r == 0 && got == 0 ? 0 : got < 0 ? session_core_failed(s, "todo") : -1;
}

static void find_mailboxes(struct plan *p)
{
    struct plan_mailbox *m = NULL;
    array_clear(&p->mailboxes);
    for (unsigned i = 0; i < p->n; i++) {
        if (m == NULL || m->folder != p->item[i].mailbox) {
            m = array_append_space(&p->mailboxes);
            m->folder = p->item[i].mailbox;
            m->at = i;
        }
        m->end = i + 1;
    }
}

int plan_refresh(struct session *s)
{
    struct plan *p = s->plan;
    uint64_t changes = orset_place_changes(s->os), now = clock_msecs();
    struct body_request *w;
    if (!p->overdue && changes == p->changes)
        return 0;
    if (!p->overdue && p->left > SMALL && p->left > p->n - p->n / 8 &&
        now - p->read_at < AGAIN_MSECS) {
        session_want_tick(s, AGAIN_MSECS);
        return 0;
    }
    array_foreach_modifiable (&s->wanted, w)
        w->item = 0;
    p->n = p->left = 0;
    p->overdue = TRUE;
    if (read_items(s) < 0)
        return -1;
    i_qsort(p->item, p->n, sizeof *p->item, by_mailbox_and_uid);
    find_mailboxes(p);
    p->left = p->n;
    p->changes = changes;
    p->read_at = now;
    p->overdue = FALSE;
    return 0;
}

void plan_overdue(struct session *s)
{
    s->plan->overdue = TRUE;
}

bool plan_is_old(struct session *s)
{
    return s->plan->overdue || orset_place_changes(s->os) != s->plan->changes;
}

/* --- using it --------------------------------------------------------------------------------- */

struct plan_mailbox *plan_mailboxes(struct session *s, unsigned *n_r)
{
    return array_get_modifiable(&s->plan->mailboxes, n_r);
}

struct plan_item *plan_item(struct session *s, unsigned i)
{
    i_assert(i < s->plan->n);
    return &s->plan->item[i];
}

void plan_done(struct session *s, unsigned i)
{
    struct plan_item *item = plan_item(s, i);
    i_assert(item->row_len == 0 || s->plan->left > 0);
    s->plan->left -= item->row_len > 0;
    item->row_len = 0;
}

unsigned plan_left(struct session *s)
{
    return s->plan->left;
}

void plan_look_again(struct session *s, unsigned item)
{
    struct plan *p = s->plan;
    for (unsigned i = item > 0 ? item - 1 : 0; i < (item > 0 ? I_MIN(item, p->n) : p->n); i++)
        p->item[i].until = 0;
}

/* A mailbox that cannot take any now holds nobody up, nor does one that has waited long enough,
 * which an earlier session may have found out. */
static bool may_go_on(struct session *s, const struct plan_mailbox *m)
{
    const struct box *x = box_of_folder(s, m->folder);
    if (x == NULL || x->gone || x->pass.failed || patience_is_over(s, m->folder))
        return FALSE;
    for (unsigned i = m->at; i < m->end; i++) {
        if (s->plan->item[i].row_len > 0 && !s->plan->item[i].given_up)
            return TRUE;
    }
    return FALSE;
}

bool plan_goes_on(struct session *s, uint32_t folder)
{
    unsigned lo = 0, hi;
    const struct plan_mailbox *m = plan_mailboxes(s, &hi);
    while (lo < hi) {
        unsigned mid = lo + (hi - lo) / 2;
        if (m[mid].folder == folder)
            return may_go_on(s, &m[mid]);
        if (m[mid].folder < folder)
            lo = mid + 1;
        else
            hi = mid;
    }
    return FALSE;
}
