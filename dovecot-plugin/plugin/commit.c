/* commit - asks the replicator, and waits. */
#include "dovecot-plugin/plugin/ask.h"
#include "dovecot-plugin/plugin/commit.h"
#include "dovecot-plugin/protocol/line.h"

#include <array.h>
#include <guid.h>
#include <ioloop.h>
#include <mail-storage-private.h>

#include <errno.h>

#define COMPLAIN_EVERY 60000 /* milliseconds */

struct commit_save {
    const struct mailbox_transaction_context *of;
    char guid[LINE_GUID_HEX];
};

/* --- which saves ------------------------------------------------------------------------------ */

static bool is_service(const char *name)
{
    return master_service != NULL && strcmp(master_service_get_name(master_service), name) == 0;
}

/* Those whose reply is somebody's promise. What doveadm saves comes from where it is still. */
static bool is_asked_by_a_client(void)
{
    static const char *const services[] = {"imap", "lmtp", "lda"};

    for (unsigned i = 0; i < N_ELEMENTS(services); i++) {
        if (is_service(services[i]))
            return TRUE;
    }
    return FALSE;
}

/* Others' mailboxes have other names, and may be of another id. */
static bool is_own(const struct mailbox *box)
{
    return box->list->ns->type == MAIL_NAMESPACE_TYPE_PRIVATE;
}

bool commit_begin(struct plugin_user *puser, struct mail_save_context *ctx)
{
    const char *guid = ctx->data.guid;
    guid_128_t made;

    if (!puser->set.commit_peers || puser->delivery_guid[0] != '\0' ||
        !is_own(ctx->transaction->box) || !is_asked_by_a_client())
        return FALSE;
    if (guid != NULL)
        return guid_128_from_string(guid, made) == 0;
    guid_128_generate(made);
    mailbox_save_set_guid(ctx, guid_128_to_string(made));
    return TRUE;
}

void commit_saved(struct commit_saves *saves, struct mailbox_transaction_context *t,
                  const char *guid)
{
    struct commit_save *save;

    if (!array_is_created(&saves->all))
        i_array_init(&saves->all, 4);
    save = array_append_space(&saves->all);
    save->of = t;
    i_strocpy(save->guid, guid, sizeof(save->guid));
}

bool commit_has(const struct commit_saves *saves, const struct mailbox_transaction_context *t)
{
    const struct commit_save *save;

    if (!array_is_created(&saves->all))
        return FALSE;
    array_foreach (&saves->all, save) {
        if (save->of == t)
            return TRUE;
    }
    return FALSE;
}

void commit_forget(struct commit_saves *saves, const struct mailbox_transaction_context *t)
{
    if (!array_is_created(&saves->all))
        return;
    for (unsigned i = array_count(&saves->all); i > 0; i--) {
        const struct commit_save *save = array_idx(&saves->all, i - 1);

        if (t == NULL || save->of == t)
            array_delete(&saves->all, i - 1, 1);
    }
    if (array_count(&saves->all) == 0)
        array_free(&saves->all);
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* A delivery to several recipients by LMTP: since when it waits, and what ends it. */
static struct {
    int64_t since;
    struct timeout *ends;
} delivery;

void commit_deinit(void)
{
    timeout_remove(&delivery.ends);
}

static void delivery_ends(void *context ATTR_UNUSED)
{
    timeout_remove(&delivery.ends);
}

/* LMTP replies to all recipients when the last one has the mail: if each waited for its own time,
 * the client would give up, and deliver to all of them again. So they share one. The process comes
 * back to its loop behind the last of them. */
static int64_t begin_of_wait(void)
{
    if (!is_service("lmtp") || io_loop_get_root() == NULL)
        return ask_now();
    if (delivery.ends == NULL) {
        delivery.since = ask_now();
        delivery.ends = timeout_add_short_to(io_loop_get_root(), 0, delivery_ends, (void *)NULL);
    }
    return delivery.since;
}

/* As many at a time as one line holds. */
static int ask_all(struct ask *w, struct mailbox *box, const char (*guid)[LINE_GUID_HEX],
                   unsigned count)
{
    char line[LINE_COMMIT_MAX];
    int r = 1;

    for (unsigned i = 0; i < count && r > 0; i += LINE_COMMIT_GUIDS) {
        size_t size =
            line_commit(line, box->list->ns->user->username, compat_namespace_name(box->list->ns),
                        guid + i, I_MIN(count - i, LINE_COMMIT_GUIDS));

        if (size == 0) {
            w->why = "the user's name is too long";
            r = 0;
        } else {
            r = ask(w, line, size);
        }
    }
    ask_end(w);
    return r;
}

/* Once a minute of this process, not of each save. */
static void say_nothing_to_wait_for(struct mailbox *box, const char *why)
{
    static int64_t said = -COMPLAIN_EVERY;

    if (ask_now() - said < COMPLAIN_EVERY)
        return;
    said = ask_now();
    e_warning(box->storage->user->event,
              "dovelane: dovelane_commit = peers, but the reply to a save in %s does not wait for "
              "another site: %s",
              box->vname, why);
}

static void wait_for(struct plugin_user *puser, struct mailbox *box,
                     const char (*guid)[LINE_GUID_HEX], unsigned count)
{
    struct ask w = {.path = ask_path(box->storage->user),
                    .end = begin_of_wait() + puser->set.commit_wait,
                    .fd = -1};
    int r = 0;

    if (box->storage->set->parsed_fsync_mode == FSYNC_MODE_NEVER)
        w.why = "with mail_fsync = never no mail is known to be on a disk";
    else
        r = ask_all(&w, box, guid, count);
    if (r == 0)
        say_nothing_to_wait_for(box, w.why);
    if (r < 0)
        e_warning(box->storage->user->event,
                  "dovelane: no other site has said within %u ms that it has the %u mails that "
                  "were saved in %s, %s the first. The reply is given all the same",
                  puser->set.commit_wait, count, box->vname, guid[0]);
}

void commit_wait(struct commit_saves *saves, const struct mailbox_transaction_context *t,
                 struct plugin_user *puser, struct mailbox *box)
{
    const struct commit_save *save;
    unsigned count = 0;
    char(*guid)[LINE_GUID_HEX];

    guid = i_malloc(array_count(&saves->all) * sizeof(*guid));
    array_foreach (&saves->all, save) {
        if (save->of == t)
            memcpy(guid[count++], save->guid, sizeof(*guid));
    }
    commit_forget(saves, t);
    T_BEGIN
    {
        int old_errno = errno;

        wait_for(puser, box, (const char(*)[LINE_GUID_HEX])guid, count);
        errno = old_errno;
    }
    T_END;
    i_free(guid);
}
