/* unexpunge - puts kept mails back, as new mails: the next scan makes ops of them, and all sites
 * get them. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/kept/kept.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/fsync_saves.h"
#include "dovecot-plugin/worker/session/link.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <strescape.h>

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE 100 /* mails in one mailbox transaction */

struct counts {
    unsigned restored, before, here, failed;
    uint64_t bytes;
};

struct unexpunge {
    struct session *s;
    const struct kept_choice *choice;
    ARRAY_TYPE(kept_hash) alive;
    struct counts all;
};

/* Those of one mailbox. */
struct target {
    struct unexpunge *u;
    const char *vname;
    struct mailbox *box; /* NULL: a dry run, or it cannot be had */
    const char *error;
    struct counts n;
    ARRAY(const struct kept_mail *) mails;
};

/* --- the mailbox ------------------------------------------------------------------------------ */

static int open_or_make(struct session *s, struct mailbox *box)
{
    if (session_open_refreshed(box) == 0)
        return 0;
    if (mailbox_get_last_mail_error(box) != MAIL_ERROR_NOTFOUND)
        return -1;
    session_mark_list(box->list);
    if (mailbox_create(box, NULL, FALSE) < 0 &&
        mailbox_get_last_mail_error(box) != MAIL_ERROR_EXISTS)
        return -1;
    session_mark_list(box->list);
    s->reshaped = TRUE;
    return session_open_refreshed(box);
}

static void open_target(struct target *t)
{
    struct session *s = t->u->s;
    struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, t->vname);
    if (ns == NULL || !session_has_namespace(s, ns)) {
        t->error = "is in no namespace that is replicated here";
        return;
    }
    if (t->u->choice->dry_run)
        return;
    t->box = session_mailbox(s, t->vname, 0);
    if (open_or_make(s, t->box) < 0 || mailbox_sync(t->box, 0) < 0) {
        t->error = t_strdup(mailbox_get_last_internal_error(t->box, NULL));
        mailbox_free(&t->box);
    }
}

/* --- its mails -------------------------------------------------------------------------------- */

static void set_flags(struct target *t, struct mail_save_context *ctx, const struct kept_mail *m,
                      struct mail_keywords **keywords_r)
{
    static const struct {
        const char *name;
        enum mail_flags flag;
    } system_flags[] = {{"\\Answered", MAIL_ANSWERED},
                        {"\\Flagged", MAIL_FLAGGED},
                        {"\\Seen", MAIL_SEEN},
                        {"\\Draft", MAIL_DRAFT}};
    ARRAY_TYPE(const_string) names;
    enum mail_flags flags = 0;
    t_array_init(&names, 8);
    for (const char *const *f = m->flags; *f != NULL; f++) {
        for (unsigned i = 0; i < N_ELEMENTS(system_flags); i++)
            if (strcmp(*f, system_flags[i].name) == 0)
                flags |= system_flags[i].flag;
        if (**f != '\\')
            array_push_back(&names, f);
    }
    array_append_zero(&names);
    *keywords_r = array_count(&names) == 1
                      ? NULL
                      : mailbox_keywords_create_valid(t->box, array_front(&names));
    mailbox_save_set_flags(ctx, flags, *keywords_r);
}

/* A file that is damaged by now is put back as it is: what is left of the mail is in it. */
static void look_at(struct target *t, const struct kept_mail *m, struct istream *in)
{
    if (!body_stream_is_of(in, m->sha256))
        session_note(t->u->s, NOTE_WARNING,
                     "%s: kept mail %s: its bytes are not those that were kept: see %s", t->vname,
                     m->id, m->path);
}

static int save(struct target *t, struct mailbox_transaction_context *trans,
                const struct kept_mail *m)
{
    struct mail_keywords *keywords;
    int fd = open(m->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd == -1)
        return session_fail(t->u->s, "open(%s): %m", m->path);
    struct istream *file = i_stream_create_fd_autoclose(&fd, 65536);
    struct istream *in = i_stream_create_range(file, m->offset, UOFF_T_MAX);
    look_at(t, m, in);
    struct mail_save_context *ctx = mailbox_save_alloc(trans);
    set_flags(t, ctx, m, &keywords);
    mailbox_save_set_received_date(ctx, m->received, 0);
    sync_gather();
    int r = save_stream(ctx, in);
    sync_let();
    if (r < 0)
        (void)session_fail(t->u->s, "kept mail %s: %s", m->id,
                           in->stream_errno != 0 ? i_stream_get_error(in)
                                                 : mailbox_get_last_internal_error(t->box, NULL));
    if (keywords != NULL)
        mailbox_keywords_unref(&keywords);
    i_stream_unref(&in);
    i_stream_unref(&file);
    return r;
}

static void mark_restored(struct session *s, const struct kept_mail *m)
{
    const char *path = t_strdup_printf("%s.r%lld", m->path, (long long)time(NULL));
    if (m->restored == 0 && rename(m->path, path) < 0)
        session_note(s, NOTE_WARNING, "rename(%s, %s): %m", m->path, path);
}

/* All of them, or none. */
static int save_some(struct target *t, const struct kept_mail *const *mails, unsigned n)
{
    struct session *s = t->u->s;
    int r = 0;
    struct mailbox_transaction_context *trans =
        mailbox_transaction_begin(t->box, MAILBOX_TRANSACTION_FLAG_EXTERNAL, "dovelane unexpunge");
    for (unsigned i = 0; i < n && r == 0; i++) {
        T_BEGIN
        {
            r = save(t, trans, mails[i]);
        }
        T_END;
    }
    if (sync_gathered() < 0 && r == 0)
        r = session_fail(s, "fsync(): %m");
    if (r < 0) {
        mailbox_transaction_rollback(&trans);
        return -1;
    }
    if (mailbox_transaction_commit(&trans) < 0)
        return session_fail(s, "%s", mailbox_get_last_internal_error(t->box, NULL));
    if (mailbox_sync(t->box, 0) < 0) /* they are there all the same */
        session_note(s, NOTE_WARNING, "%s: %s", t->vname,
                     mailbox_get_last_internal_error(t->box, NULL));
    crash_at("unexpunged");
    for (unsigned i = 0; i < n; i++)
        mark_restored(s, mails[i]);
    return 0;
}

/* A line for each part: an admin sees it going on, and the replicator that this process lives. */
static void save_all(struct target *t)
{
    const struct kept_mail *const *mails;
    unsigned n, at = 0;
    mails = array_get(&t->mails, &n);
    while (at < n && t->error == NULL) {
        unsigned some = I_MIN(n - at, AT_ONCE);
        int r;
        T_BEGIN
        {
            r = save_some(t, mails + at, some);
        }
        T_END;
        if (r < 0) {
            t->error = session_error(t->u->s);
            break;
        }
        for (unsigned i = at; i < at + some; i++)
            t->n.bytes += mails[i]->size;
        at += some;
        t->n.restored += some;
        session_report(t->u->s, "%s: an admin put back %u mails that were removed", t->vname, some);
    }
    t->n.failed += n - at;
}

static void plan_all(struct target *t)
{
    const struct kept_mail *const *m;
    array_foreach (&t->mails, m) {
        t->n.bytes += (*m)->size;
        t->n.restored++;
    }
}

/* --- the answer ------------------------------------------------------------------------------- */

static void reply_counts(struct session *s, const char *what, const struct counts *n)
{
    link_reply(s->link, "%s\trestored=%u\tbefore=%u\there=%u\tfailed=%u\tbytes=%llu", what,
               n->restored, n->before, n->here, n->failed, (unsigned long long)n->bytes);
}

static void end_target(struct target *t)
{
    struct unexpunge *u = t->u;
    if (t->vname == NULL)
        return;
    open_target(t);
    if (t->error != NULL)
        t->n.failed += array_count(&t->mails);
    else if (u->choice->dry_run)
        plan_all(t);
    else if (array_count(&t->mails) > 0)
        save_all(t);
    if (t->box != NULL)
        mailbox_free(&t->box);
    reply_counts(u->s, t_strconcat("folder\t", str_tabescape(t->vname), NULL), &t->n);
    if (t->error != NULL)
        link_reply(u->s->link, "-%s: %s", str_tabescape(t->vname), str_tabescape(t->error));
    u->all.restored += t->n.restored;
    u->all.before += t->n.before;
    u->all.here += t->n.here;
    u->all.failed += t->n.failed;
    u->all.bytes += t->n.bytes;
}

static void take(struct target *t, const struct kept_mail *m)
{
    bool again = t->u->choice->again;
    if (m->restored != 0 && !again)
        t->n.before++;
    else if (!again && kept_is_alive(&t->u->alive, m))
        t->n.here++;
    else
        array_push_back(&t->mails, &m);
}

/* By mailbox, in the order that they had there. */
static int by_place(const struct kept_mail *a, const struct kept_mail *b)
{
    int c = strcmp(a->vname, b->vname);
    c = c != 0 ? c : a->received < b->received ? -1 : a->received > b->received;
    return c != 0 ? c : a->uid < b->uid ? -1 : a->uid > b->uid;
}

static void put_back(struct unexpunge *u, const ARRAY_TYPE(kept_mail) * mails)
{
    const struct kept_mail *m;
    struct target t = {.u = u};
    t_array_init(&t.mails, 64);
    array_foreach (mails, m) {
        const char *vname = u->choice->into != NULL ? u->choice->into : m->vname;
        if (t.vname == NULL || strcmp(t.vname, vname) != 0) {
            end_target(&t);
            array_clear(&t.mails);
            t.vname = vname;
            t.error = NULL;
            i_zero(&t.n);
        }
        take(&t, m);
    }
    end_target(&t);
}

enum frame_result kept_unexpunge(struct session *s, const char *const *args, unsigned *restored_r)
{
    struct kept_choice c;
    struct unexpunge u = {.s = s, .choice = &c};
    ARRAY_TYPE(kept_mail) mails;
    *restored_r = 0;
    pool_t pool = pool_alloconly_create("kept mails", 65536);
    enum frame_result result = kept_choose(s, args, pool, &c, &mails);
    i_array_init(&u.alive, 64);
    if (result == FRAME_OK && kept_alive(s, &u.alive) < 0)
        result = FRAME_TEMPORARY;
    if (result == FRAME_OK) {
        array_sort(&mails, by_place);
        put_back(&u, &mails);
        reply_counts(s, c.dry_run ? "would be" : "total", &u.all);
        *restored_r = c.dry_run ? 0 : u.all.restored;
        s->kept.restored += *restored_r;
        if (u.all.failed > 0)
            result = FRAME_REFUSED;
    }
    array_free(&u.alive);
    pool_unref(&pool);
    return result;
}
