/* mailbox - overrides what commits, renames and deletes a mailbox.
 *
 * When a hint goes out, by what happened:
 *
 *     save, copy, flags, keywords, METADATA   at the transaction's commit
 *     expunge                                 at the end of the sync that removed the mails, by the one session that did:
 *                                             the request alone, at the commit, has changed nothing
 *                                             yet
 *     create, update, rename                  when done
 *     subscribe                               when done; the journal of intents before
 *     delete                                  when done, also in vain, for what it expunged on its way;
 *                                             the journal of intents before and after
 *
 * A hint that is sent for nothing costs a look, one that is missed costs the time until the
 * sweep. The line is made once per open mailbox, so that an IMAP STORE pays for one write()
 * only, and of many in a row one in HINT_GAP does: the last one's hint waits for its end. A
 * mailbox that each command opens anew (COPY's) takes over what the last one left. */
#include "dovecot-plugin/compat.h"

#include "dovecot-plugin/indexlog/index_log_backup.h"
#include "dovecot-plugin/indexlog/list_mark.h"
#include "dovecot-plugin/plugin/mailbox.h"
#include "dovecot-plugin/plugin/commit.h"
#include "dovecot-plugin/plugin/delivery.h"
#include "dovecot-plugin/plugin/hint.h"
#include "dovecot-plugin/plugin/intent.h"
#include "dovecot-plugin/protocol/line.h"
#include "dovecot-plugin/plugin/owner.h"
#include "dovecot-plugin/plugin/user.h"
#include "dovecot-plugin/stub/key.h"
#include "dovecot-plugin/stub/mail.h"

#include <guid.h>
#include <ioloop.h>
#include <istream.h>
#include <llist.h>
#include <mail-index.h>
#include <mail-storage-private.h>
#include <sdbox-storage.h>
#include <mailbox-list-private.h>
#include <string.h>
#include <time-util.h>

#define CHANGES                                                                      \
    (MAIL_INDEX_TRANSACTION_CHANGE_APPEND | MAIL_INDEX_TRANSACTION_CHANGE_FLAGS |    \
     MAIL_INDEX_TRANSACTION_CHANGE_KEYWORDS | MAIL_INDEX_TRANSACTION_CHANGE_MODSEQ | \
     MAIL_INDEX_TRANSACTION_CHANGE_ATTRIBUTE)

#define HINT_GAP 2 /* milliseconds: least time between two hints of one open mailbox */
#define CREATE_TRIES 10

/* An open mailbox as hints name it, and when one was sent; the user keeps that of the mailbox
 * that was closed last. */
struct target {
    pool_t pool;
    struct mailbox_list *list;
    const char *vname, *owner;
    uint32_t uid_validity; /* of the mailbox that had the hint's GUID, if that has one; else 0 */
    struct event *event;   /* the user's */
    struct hint hint;
    uint64_t told;              /* when, in nanoseconds */
    struct timeout *wait;       /* there was a reason for a hint since then; NULL: none */
    struct target *prev, *next; /* of those that wait */
};

struct plugin_mailbox {
    union mailbox_module_context module_ctx;
    struct plugin_user *puser;
    const char *owner;
    struct target *target; /* once made; while open */
    struct commit_saves saves;
    bool expunged;     /* by the sync that is going on */
    bool holds;        /* the save that has begun is one whose reply is held back */
    uint32_t uid_next; /* the last that was seen of it while it is being deleted */
    uint32_t uid_validity;
};

/* Those that wait, the oldest first. */
static struct target *waiting, *waiting_last;

static MODULE_CONTEXT_DEFINE_INIT(plugin_mailbox_module, &mail_storage_module_register);

#define PLUGIN_MAILBOX(box) \
    ((struct plugin_mailbox *)MODULE_CONTEXT_REQUIRE(box, plugin_mailbox_module))

/* --- hints ------------------------------------------------------------------------------------ */

/* GUID of an open mailbox as 32 hex digits, or NULL. */
static const char *guid_text(struct mailbox *box)
{
    struct mailbox_metadata metadata;
    const char *text = NULL;

    if (!box->opened || box->mailbox_deleted)
        return NULL;
    /* what the command failed with stays the last error */
    mail_storage_last_error_push(box->storage);
    if (mailbox_get_metadata(box, MAILBOX_METADATA_GUID, &metadata) == 0)
        text = guid_128_to_string(metadata.guid);
    mail_storage_last_error_pop(box->storage);
    return text;
}

/* dbox has the GUID in the index header. Maildir has it in dovecot-uidlist, which a delivery
 * otherwise need not read: the name will do there, unless the name is only ours because the
 * mailbox is somebody else's. */
static const char *hint_guid(struct mailbox *box)
{
    if (strcmp(box->storage->name, "maildir") == 0 &&
        box->list->ns->type != MAIL_NAMESPACE_TYPE_SHARED)
        return NULL;
    return guid_text(box);
}

static struct hint make_hint(pool_t pool, struct plugin_mailbox *pbox, struct mailbox *box,
                             const char *guid)
{
    char line[LINE_HINT_MAX];
    bool shared = box->list->ns->type == MAIL_NAMESPACE_TYPE_SHARED;
    struct hint hint = {.fifo = p_strdup(pool, pbox->puser->set.hint_path),
                        .mark = hint_mark_path(pool, pbox->puser->set.dirty_dir, pbox->owner)};

    hint.size = line_hint(line, pbox->owner, guid, shared ? "" : box->vname);
    hint.line = hint.size == 0 ? NULL : p_memdup(pool, line, hint.size);
    return hint;
}

static void tell(struct target *target)
{
    if (target->wait != NULL) {
        timeout_remove(&target->wait);
        DLLIST2_REMOVE(&waiting, &waiting_last, target);
    }
    target->told = i_nanoseconds();
    hint_send(&target->hint, target->event);
}

/* Those that wait go first: a moved mail's arrival is hinted before its removal. */
static void tell_waiting(void)
{
    while (waiting != NULL)
        tell(waiting);
}

static void on_wait(struct target *target ATTR_UNUSED)
{
    tell_waiting();
}

static void target_end(struct target **_target)
{
    struct target *target = *_target;

    *_target = NULL;
    if (target == NULL)
        return;
    if (target->wait != NULL)
        tell_waiting();
    pool_unref(&target->pool);
}

/* An open mailbox whose name is another one's by now has another one of these. */
static uint32_t uid_validity(struct mailbox *box)
{
    return strcmp(box->storage->name, "maildir") == 0
               ? 0
               : mail_index_get_header(box->view)->uid_validity;
}

static struct target *target_make(struct plugin_mailbox *pbox, struct mailbox *box)
{
    pool_t pool = pool_alloconly_create("dovelane target", 1024);
    struct target *target = p_new(pool, struct target, 1);

    target->pool = pool;
    target->list = box->list;
    target->vname = p_strdup(pool, box->vname);
    target->owner = p_strdup(pool, pbox->owner);
    target->uid_validity = uid_validity(box);
    target->event = box->storage->user->event;
    T_BEGIN
    {
        target->hint = make_hint(pool, pbox, box, hint_guid(box));
    }
    T_END;
    return target;
}

static bool told_just_now(const struct target *target)
{
    return i_nanoseconds() - target->told < HINT_GAP * 1000000ULL;
}

/* An open mailbox's. */
static struct target *target_of(struct plugin_mailbox *pbox, struct mailbox *box)
{
    struct target **left = &pbox->puser->left;

    if (pbox->target == NULL && *left != NULL && (*left)->list == box->list &&
        strcmp((*left)->vname, box->vname) == 0 && strcmp((*left)->owner, pbox->owner) == 0 &&
        (*left)->uid_validity == uid_validity(box) && told_just_now(*left)) {
        pbox->target = *left;
        *left = NULL;
    }
    if (pbox->target == NULL)
        pbox->target = target_make(pbox, box);
    return pbox->target;
}

/* Of a mailbox that is not open, whose GUID may be another one from now on. */
static void hint_with(struct plugin_mailbox *pbox, struct mailbox *box, const char *guid)
{
    tell_waiting();
    T_BEGIN
    {
        struct hint hint = make_hint(pool_datastack_create(), pbox, box, guid);

        hint_send(&hint, box->storage->user->event);
    }
    T_END;
}

static void see_uid_next(struct plugin_mailbox *pbox, struct mailbox *box)
{
    const struct mail_index_header *head = box->opened ? mail_index_get_header(box->view) : NULL;

    if (head == NULL)
        return;
    pbox->uid_next = I_MAX(pbox->uid_next, head->next_uid);
    pbox->uid_validity = head->uid_validity;
}

static void hint(struct plugin_mailbox *pbox, struct mailbox *box)
{
    struct target *target;

    if (box->deleting) {
        /* Its mails were expunged: nobody puts any more into it. */
        see_uid_next(pbox, box);
        return; /* delete_box() sends one for all */
    }
    pbox->expunged = FALSE;
    if (!box->opened) {
        hint_with(pbox, box, NULL);
        return;
    }
    target = target_of(pbox, box);
    /* The timer is of the loop that lives as long as the process: others come and go within a
     * command. A process that does not return to it is told by the clock. */
    if (io_loop_get_root() == NULL || !told_just_now(target)) {
        bool waited = target->wait != NULL;

        tell_waiting(); /* in their order, this one among them */
        if (!waited)
            tell(target);
        return;
    }
    if (target->wait == NULL)
        target->wait = timeout_add_short_to(io_loop_get_root(), HINT_GAP, on_wait, target);
    else
        /* what happened here now is younger than what the others wait with */
        DLLIST2_REMOVE(&waiting, &waiting_last, target);
    DLLIST2_APPEND(&waiting, &waiting_last, target);
}

/* The mailbox is closed, and the next command may open it again. Another user's has nothing but
 * the GUID to be found by, and what does not come back to the process' loop soon (doveadm, loops
 * within loops) would leave the last hint waiting. */
static void leave_target(struct plugin_mailbox *pbox)
{
    struct target *target = pbox->target;

    if (target == NULL)
        return;
    if (target->list->ns->type == MAIL_NAMESPACE_TYPE_SHARED ||
        (target->wait != NULL &&
         (current_ioloop != io_loop_get_root() || !io_loop_is_running(current_ioloop)))) {
        target_end(&pbox->target);
        return;
    }
    target_end(&pbox->puser->left);
    pbox->puser->left = target;
    pbox->target = NULL;
}

/* Its GUID, or that of its name, may be another one from now on. */
static void forget_target(struct plugin_mailbox *pbox)
{
    target_end(&pbox->puser->left);
    target_end(&pbox->target);
}

void plugin_mailbox_user_ends(struct plugin_user *puser)
{
    target_end(&puser->left);
}

/* --- mails ------------------------------------------------------------------------------------ */

/* A stub that is linked there would be no mail: what proves it is another user's key. */
static bool is_stub_of_another(const struct mailbox *to, struct mail *mail)
{
    struct mailbox *from = mail->box;
    struct istream *in;
    bool is = FALSE;

    if (to->list != from->list) {
        T_BEGIN
        {
            is = null_strcmp(stub_directory(to), stub_directory(from)) != 0 &&
                 mail_get_hdr_stream(mail, NULL, &in) == 0 && stub_of_mail(mail) != NULL;
        }
        T_END;
    }
    return is;
}

static int copy(struct mail_save_context *ctx, struct mail *mail)
{
    struct mailbox *box = ctx->transaction->box;
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(box);
    bool no_link = box->disable_reflink_copy_to;
    struct mailbox_transaction_context *t = ctx->transaction;
    char guid[GUID_128_HEX_SIZE + 1] = "";
    int ret;

    if (ctx->saving && commit_begin(pbox->puser, ctx))
        i_strocpy(guid, ctx->data.guid, sizeof(guid));
    if (delivery_set_guid(pbox->puser, ctx) || guid[0] != '\0' || is_stub_of_another(box, mail))
        box->disable_reflink_copy_to = TRUE;
    ret = pbox->module_ctx.super.copy(ctx, mail);
    box->disable_reflink_copy_to = no_link;
    if (ret == 0 && guid[0] != '\0')
        commit_saved(&pbox->saves, t, guid);
    return ret;
}

static int save_begin(struct mail_save_context *ctx, struct istream *input)
{
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(ctx->transaction->box);
    struct istream *stripped = delivery_strip(pbox->puser, ctx, input);
    int ret;

    /* What copy() does by a save has its GUID there. */
    if (!ctx->copying_via_save)
        pbox->holds = commit_begin(pbox->puser, ctx);
    ret = pbox->module_ctx.super.save_begin(ctx, stripped == NULL ? input : stripped);

    if (stripped != NULL)
        i_stream_unref(&stripped);
    return ret;
}

static int save_finish(struct mail_save_context *ctx)
{
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(ctx->transaction->box);
    struct mailbox_transaction_context *t = ctx->transaction;
    bool holds = !ctx->copying_via_save && pbox->holds && ctx->data.guid != NULL;
    char guid[GUID_128_HEX_SIZE + 1] = "";
    int ret;

    if (holds)
        i_strocpy(guid, ctx->data.guid, sizeof(guid));
    ret = pbox->module_ctx.super.save_finish(ctx);
    if (ret == 0 && holds)
        commit_saved(&pbox->saves, t, guid);
    return ret;
}

static int transaction_commit(struct mailbox_transaction_context *t,
                              struct mail_transaction_commit_changes *changes_r)
{
    struct mailbox *box = t->box;
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(box);
    /* A Maildir whose uidlist is locked takes the mail but not into its log (F5). */
    bool saved = t->save_count > 0, holds = commit_has(&pbox->saves, t);
    int ret = pbox->module_ctx.super.transaction_commit(t, changes_r);

    /* t is gone. A failed commit may have done its work in part. */
    if (ret < 0 || saved || (changes_r->changes_mask & CHANGES) != 0 || pbox->expunged)
        hint(pbox, box);
    if (ret < 0 || !holds) {
        commit_forget(&pbox->saves, t);
        return ret;
    }
    tell_waiting(); /* what waits for the process' loop would wait as long as the reply */
    commit_wait(&pbox->saves, t, pbox->puser, box);
    return ret;
}

static void transaction_rollback(struct mailbox_transaction_context *t)
{
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(t->box);

    commit_forget(&pbox->saves, t);
    pbox->module_ctx.super.transaction_rollback(t);
}

static void sync_notify(struct mailbox *box, uint32_t uid, enum mailbox_sync_type sync_type)
{
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(box);

    if (uid != 0 && sync_type == MAILBOX_SYNC_TYPE_EXPUNGE)
        /* the hint waits for the end of the sync, when its locks are released */
        pbox->expunged = TRUE;
    if (pbox->module_ctx.super.sync_notify != NULL)
        pbox->module_ctx.super.sync_notify(box, uid, sync_type);
}

/* Dovecot is about to make indexes anew by itself, since it found something wrong. */
static bool is_found_broken(struct mailbox *box)
{
    bool fscked = box->index != NULL && box->index->fscked;

    if (strcmp(box->storage->name, "mdbox") == 0) {
        struct mdbox_storage *storage = MDBOX_STORAGE(box->storage);

        return !storage->rebuilding_storage && (fscked || compat_mdbox_is_corrupted(storage));
    }
    if (strcmp(box->storage->name, "sdbox") == 0) {
        struct sdbox_mailbox *sbox = SDBOX_MAILBOX(box);

        return fscked || sbox->corrupted_rebuild_count != 0;
    }
    return FALSE;
}

static void keep_log(struct mailbox *box)
{
    T_BEGIN
    {
        index_log_backup(box);
    }
    T_END;
}

static struct mailbox_sync_context *sync_init(struct mailbox *box, enum mailbox_sync_flags flags)
{
    if ((flags & MAILBOX_SYNC_FLAG_FORCE_RESYNC) != 0 || is_found_broken(box))
        keep_log(box);
    return PLUGIN_MAILBOX(box)->module_ctx.super.sync_init(box, flags);
}

static int sync_deinit(struct mailbox_sync_context *ctx, struct mailbox_sync_status *status_r)
{
    struct mailbox *box = ctx->box;
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(box);
    int ret = pbox->module_ctx.super.sync_deinit(ctx, status_r);

    if (pbox->expunged)
        hint(pbox, box);
    return ret;
}

static void close_box(struct mailbox *box)
{
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(box);

    if (pbox->expunged) /* by a sync that a save did on its own and then failed */
        hint(pbox, box);
    leave_target(pbox);
    commit_forget(&pbox->saves, NULL);
    if (is_found_broken(box)) /* an mdbox is rebuilt here, too */
        keep_log(box);
    pbox->module_ctx.super.close(box);
    leave_target(pbox); /* what another plugin did on the way */
}

/* --- folders ---------------------------------------------------------------------------------- */

/* With mailbox_list_drop_noselect, 2.4's default, who lists removes a directory that is empty: also
 * one in which a mailbox is just made. Nothing else was made by then, so it can begin again. */
static int create_again(struct mailbox *box, const struct mailbox_update *update, bool directory)
{
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(box);
    int ret, tries = CREATE_TRIES;

    do
        ret = pbox->module_ctx.super.create_box(box, update, directory);
    while (ret < 0 && --tries > 0 && mailbox_get_last_mail_error(box) == MAIL_ERROR_NOTFOUND);
    return ret;
}

static int create_box(struct mailbox *box, const struct mailbox_update *update, bool directory)
{
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(box);
    int ret = create_again(box, update, directory);

    forget_target(pbox);
    if (ret == 0) {
        list_mark(box->list);
        hint(pbox, box);
    }
    return ret;
}

static int update_box(struct mailbox *box, const struct mailbox_update *update)
{
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(box);
    int ret = pbox->module_ctx.super.update_box(box, update);

    forget_target(pbox);
    if (ret == 0)
        hint(pbox, box);
    return ret;
}

static int delete_box(struct mailbox *box)
{
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(box);
    const char *guid = guid_text(box);
    struct intent intent;
    int ret;

    pbox->uid_next = pbox->uid_validity = 0;
    see_uid_next(pbox, box);
    intent_begin(&intent, box, guid);
    ret = pbox->module_ctx.super.delete_box(box);
    intent_end(&intent, ret == 0, pbox->uid_next, pbox->uid_validity);
    if (ret == 0)
        list_mark(box->list);
    forget_target(pbox);
    hint_with(pbox, box, guid); /* it is closed now */
    return ret;
}

/* src and dest may be of different owners; dest may be one that we do not watch. */
static int rename_box(struct mailbox *src, struct mailbox *dest)
{
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(src);
    struct plugin_mailbox *pdest = MODULE_CONTEXT(dest, plugin_mailbox_module);
    int ret = pbox->module_ctx.super.rename_box(src, dest);

    forget_target(pbox);
    if (ret < 0)
        return ret;
    list_mark(src->list);
    if (dest->list != src->list)
        list_mark(dest->list);
    hint(pbox, src);
    if (pdest != NULL)
        hint(pdest, dest);
    return ret;
}

static int set_subscribed(struct mailbox *box, bool set)
{
    struct plugin_mailbox *pbox = PLUGIN_MAILBOX(box);
    struct intent intent;
    int ret;

    intent_subscription_begin(&intent, box, set);
    ret = pbox->module_ctx.super.set_subscribed(box, set);
    intent_subscription_end(&intent);
    if (ret == 0)
        hint(pbox, box);
    return ret;
}

void plugin_mailbox_allocated(struct mailbox *box)
{
    struct plugin_user *puser = plugin_user_get(box->storage->user);
    struct mailbox_vfuncs *v = box->vlast;
    struct plugin_mailbox *pbox;
    const char *owner;

    if (puser == NULL || (owner = owner_of(puser, box)) == NULL)
        return;
    pbox = p_new(box->pool, struct plugin_mailbox, 1);
    pbox->puser = puser;
    pbox->owner = owner;
    pbox->module_ctx.super = *v;
    box->vlast = &pbox->module_ctx.super;
    v->copy = copy;
    v->save_begin = save_begin;
    v->save_finish = save_finish;
    v->transaction_commit = transaction_commit;
    v->transaction_rollback = transaction_rollback;
    v->sync_notify = sync_notify;
    v->sync_init = sync_init;
    v->sync_deinit = sync_deinit;
    v->close = close_box;
    v->create_box = create_box;
    v->update_box = update_box;
    v->delete_box = delete_box;
    v->rename_box = rename_box;
    v->set_subscribed = set_subscribed;
    MODULE_CONTEXT_SET(box, plugin_mailbox_module, pbox);
}
