/* unseen - mailboxes that have mails, perhaps, which nobody has seen. A *closed* one cannot be opened,
 * and its files are not those of the last look. A *blind* one has mails that cannot be read, and
 * not even their GUIDs are known.
 *
 * A client moved a mail there, perhaps. Were its removal told now, no other site had a copy of it
 * until the mailbox can be read. If this site's disk is lost before, so is the mail. So all
 * removals wait while there is such a mailbox (removals_last.c). An admin ends that by accept, for
 * what is in the mailbox by then. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/worker/ingest/ingest.h"
#include "dovecot-plugin/worker/ingest/mailbox_diff.h"
#include "dovecot-plugin/worker/ingest/pass.h"
#include "dovecot-plugin/worker/session/lasting.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <mail-storage-private.h>

#define UNSEEN_MAX 1000 /* names in the row; removals wait for more, and no admin ends that */
#define TRY_FIRST 20000 /* milliseconds: mostly an admin has to mend it */

struct unseen {
    const char *vname;
    bool waits; /* removals do, for it */
    bool blind;
    /* of a closed one its files by ingest_stamp(), 0: unknown; of a blind one the highest UID of
     * such a mail */
    uint64_t state;
};
ARRAY_DEFINE_TYPE(unseen, struct unseen);

/* --- rows ------------------------------------------------------------------------------------- */

int unseen_looked(struct session *s, const struct box *x, uint64_t files)
{
    struct orset_key k = rows_folder_key(x->folder);
    return rows_put(s, ROW_LOOKED, k.b, k.n, &files, sizeof files);
}

/* 1: *files_r, 0 there: unknown; 0: an earlier version looked at it last; -1 */
static int looked(struct session *s, const struct box *x, uint64_t *files_r)
{
    struct orset_key k = rows_folder_key(x->folder);
    const uint8_t *v;
    size_t len;
    int r = rows_get(s, ROW_LOOKED, k.b, k.n, &v, &len);
    if (r > 0 && len != sizeof *files_r)
        return rows_corrupt(s, "the row of a mailbox's files");
    if (r > 0)
        memcpy(files_r, v, len);
    return r;
}

static int load(struct session *s, ARRAY_TYPE(unseen) * list)
{
    const uint8_t *v, *name;
    size_t len;
    int r = rows_get(s, ROW_UNSEEN, "", 0, &v, &len);
    struct orset_reader in = orset_reader_of(v, r > 0 ? len : 0);
    while (r > 0 && !in.bad && in.at != in.end) {
        struct unseen *u = array_append_space(list);
        uint8_t bits = orset_read_u8(&in);
        u->waits = (bits & 1) != 0;
        u->blind = (bits & 2) != 0;
        u->state = orset_read_u64(&in);
        name = orset_read_text(&in, ROW_NAME_MAX, &len);
        u->vname = name == NULL ? "" : t_strndup(name, len);
    }
    return r > 0 && in.bad ? rows_corrupt(s, "the row of mailboxes that cannot be opened") : r;
}

static uint64_t count_waiting(const ARRAY_TYPE(unseen) * list)
{
    const struct unseen *u;
    uint64_t n = 0;
    array_foreach (list, u)
        n += u->waits;
    return n;
}

static int put(struct session *s, const ARRAY_TYPE(unseen) * list)
{
    struct orset_buf b = {.alloc = session_alloc()};
    const struct unseen *u;
    const uint8_t *v;
    size_t len;
    array_foreach (list, u) {
        orset_buf_u8(&b, (uint8_t)(u->waits | u->blind << 1));
        orset_buf_u64(&b, u->state);
        orset_buf_text(&b, u->vname, strlen(u->vname));
    }
    int r = b.failed ? session_fail(s, "out of memory") : rows_get(s, ROW_UNSEEN, "", 0, &v, &len);
    bool same = r > 0 ? len == b.len && memcmp(v, b.data, len) == 0 : b.len == 0;
    if (r >= 0 && !same)
        r = b.len == 0 ? rows_del(s, ROW_UNSEEN, "", 0)
                       : rows_put(s, ROW_UNSEEN, "", 0, b.data, b.len);
    orset_buf_free(&b);
    if (r >= 0)
        s->unseen = count_waiting(list);
    return I_MIN(r, 0);
}

int unseen_begin(struct session *s)
{
    ARRAY_TYPE(unseen) list;
    t_array_init(&list, 4);
    if (load(s, &list) < 0)
        return -1;
    s->unseen = count_waiting(&list);
    return 0;
}

static struct unseen *find(const ARRAY_TYPE(unseen) * list, const char *vname)
{
    struct unseen *u;
    array_foreach_modifiable (list, u) {
        if (strcmp(u->vname, vname) == 0)
            return u;
    }
    return NULL;
}

/* --- which there are -------------------------------------------------------------------------- */

/* What unseen_wait() says of it. */
static void over(struct session *s, const char *vname)
{
    lasting_over(s, "may have more", vname);
    lasting_over(s, "has unreadable mails", vname);
}

static uint64_t files_of(struct session *s, const char *vname)
{
    struct mailbox *box = session_mailbox(s, vname, 0);
    uint64_t files;
    (void)ingest_stamp(box, &files);
    mailbox_free(&box);
    return files;
}

/* It may have mails that nobody has seen. 1; 0; -1. was: what is known of it, or NULL. */
static int may_have_more(struct session *s, const struct ingest *in, const char *vname,
                         const struct box *x, const struct unseen *was, uint64_t files)
{
    uint64_t before;
    if (in->first || (was != NULL && !was->waits && !was->blind && was->state == files))
        return 0;
    if (x == NULL) {
        /* It could not be opened when an earlier version let removals go. */
        int old = was == NULL ? unreadable_was(s, vname) : 0;
        return old < 0 ? -1 : !old;
    }
    if (x->at.indexid == 0)
        return 1;
    int r = looked(s, x, &before);
    return r <= 0 ? r : before == 0 || before != files;
}

/* 1: *u is what is to be remembered of it; 0: nothing is; -1 */
static int judge(struct tree *t, const struct found_mailbox *f, const struct unseen *was,
                 struct unseen *u)
{
    if (!f->unreadable || !f->lasting) {
        /* A lock goes, and all waits for it. One that is to be looked at is the scan's to judge. */
        bool stays =
            was != NULL && (f->unreadable || (f->x != NULL && (f->x->all || f->x->at.stamp == 0)));
        if (stays)
            *u = *was;
        if (stays && u->waits && f->unreadable)
            array_push_back(&t->in->unseen, &f->vname);
        else if (was != NULL && !stays)
            over(t->s, f->vname);
        return stays;
    }
    u->state = files_of(t->s, f->vname);
    int r = may_have_more(t->s, t->in, f->vname, f->x, was, u->state);
    u->waits = r > 0;
    if (u->waits)
        array_push_back(&t->in->unseen, &f->vname);
    return r < 0 ? -1 : 1;
}

int unseen_judge(struct tree *t)
{
    ARRAY_TYPE(unseen) before, now;
    const struct found_mailbox *f;
    t_array_init(&before, 4);
    t_array_init(&now, 4);
    if (load(t->s, &before) < 0)
        return -1;
    array_clear(&t->in->unseen);
    array_foreach (&t->found, f) {
        struct unseen u = {.vname = f->vname};
        int r = judge(t, f, find(&before, f->vname), &u);
        if (r < 0)
            return -1;
        if (r > 0 && array_count(&now) < UNSEEN_MAX)
            array_push_back(&now, &u);
    }
    return put(t->s, &now);
}

/* In place of the one of that name; NULL: it is forgotten. */
static int replace(struct session *s, ARRAY_TYPE(unseen) * list, const struct unseen *was,
                   const struct unseen *now)
{
    if (was != NULL)
        array_delete(list, array_ptr_to_idx(list, was), 1);
    if (now != NULL && array_count(list) < UNSEEN_MAX)
        array_push_back(list, now);
    return put(s, list);
}

int unseen_closed(struct session *s, struct ingest *in, const struct box *x, uint64_t files)
{
    ARRAY_TYPE(unseen) list;
    struct unseen now = {.vname = x->vname, .state = files};
    t_array_init(&list, 4);
    if (load(s, &list) < 0)
        return -1;
    const struct unseen *was = find(&list, x->vname);
    int r = may_have_more(s, in, x->vname, x, was, files);
    now.waits = r > 0;
    if (now.waits)
        in->closed = x->folder + 1;
    return r < 0 ? -1 : replace(s, &list, was, &now);
}

int unseen_scanned(struct session *s, struct ingest *in, const struct box *was, uint32_t blind)
{
    ARRAY_TYPE(unseen) list;
    struct unseen now = {.vname = was->vname, .blind = TRUE, .state = blind};
    uint64_t files;
    t_array_init(&list, 4);
    if (load(s, &list) < 0)
        return -1;
    const struct unseen *u = find(&list, was->vname);
    if (blind != 0) {
        bool accepted = u != NULL && !u->waits && u->blind && u->state >= blind;
        int r = looked(s, was, &files);
        if (r < 0)
            return -1;
        /* An earlier version let removals go. */
        bool old = u == NULL && r == 0 && was->at.indexid != 0;
        now.waits = !in->first && !accepted && !old;
    }
    if (now.waits)
        in->blind = was->folder + 1;
    else
        over(s, was->vname);
    return replace(s, &list, u, blind != 0 ? &now : NULL);
}

/* --- what waits ------------------------------------------------------------------------------- */

bool unseen_holds(const struct ingest *in)
{
    return !array_is_empty(&in->unseen) || in->closed != 0 || in->blind != 0;
}

void unseen_wait(struct session *s, struct ingest *in)
{
    bool listed = !array_is_empty(&in->unseen), closed = listed || in->closed != 0;
    const struct box *x = listed ? NULL : box_by_folder(s, (closed ? in->closed : in->blind) - 1);
    const char *vname = listed ? *(const char *const *)array_front(&in->unseen)
                        : x == NULL || x->vname == NULL ? "a folder"
                                                        : x->vname;
    if (closed)
        lasting_note(
            s, "may have more", vname,
            "%s cannot be opened, and may have got mails since it was looked at last. What "
            "clients removed stays at the other sites. Make the folder readable for the "
            "user. If nothing was moved there: doveadm dovelane accept -u USER FOLDER",
            vname);
    else
        lasting_note(
            s, "has unreadable mails", vname,
            "%s has mails that cannot be read, and what was moved there may be among them. "
            "What clients removed stays at the other sites. Make the folder readable for "
            "the user. If nothing was moved there: doveadm dovelane accept -u USER FOLDER",
            vname);
    s->scan_again = TRUE;
    (void)session_retry(s, "unseen", vname, TRY_FIRST);
}

int unseen_each(struct session *s, void (*fn)(struct session *, const char *vname))
{
    ARRAY_TYPE(unseen) list;
    const struct unseen *u;
    t_array_init(&list, 4);
    if (load(s, &list) < 0)
        return -1;
    array_foreach (&list, u) {
        if (u->waits)
            fn(s, u->vname);
    }
    return 0;
}

int unseen_waits(struct session *s, const char *vname)
{
    ARRAY_TYPE(unseen) list;
    t_array_init(&list, 4);
    if (load(s, &list) < 0)
        return -1;
    const struct unseen *u = find(&list, vname);
    return u != NULL && u->waits;
}

int unseen_accept(struct session *s, const char *vname)
{
    ARRAY_TYPE(unseen) list;
    t_array_init(&list, 4);
    if (session_begin(s) < 0)
        return -1;
    int r = load(s, &list);
    struct unseen *u = r < 0 ? NULL : find(&list, vname);
    if (u != NULL) {
        u->waits = FALSE;
        if (!u->blind)
            u->state = files_of(s, vname);
        r = put(s, &list);
    }
    if (r < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}
