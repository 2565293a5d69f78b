/* delivery - see delivery.h
 *
 * lib-lda calls one function per delivery; each plugin replaces it and may call the one before. Sieve, which is loaded
 * after us, never does. So ours is set when a user is created, when all of that user's plugins have been loaded. */
#include "../compat.h"

#include "delivery.h"
#include "delivery_id.h"
#include "user.h"

#include <mail-deliver.h>
#include <mail-storage-private.h>
#include <safe-memset.h>
#include <smtp-address.h>

/* Only lmtp and dovecot-lda are linked with lib-lda. */
#pragma weak mail_deliver_hook_set

static bool hooked;
static deliver_mail_func_t *first_next; /* the hook that was there when ours was set first */
static deliver_mail_func_t *next;       /* the one ours calls */

/* The mail's valid entry id. False is normal: most mail has no such header. */
static bool find_entry(struct plugin_user *puser, struct mail_deliver_context *ctx, char entry_r[DELIVERY_ID_HEX + 1])
{
    struct delivery_key key;
    const char *value, *error;
    bool valid;

    if (puser->set.group_key_file[0] == '\0' || mail_get_first_header(ctx->src_mail, DELIVERY_ID_HEADER, &value) <= 0)
        return FALSE;
    if (!delivery_key_read(&key, puser->set.group_key_file, &error)) {
        e_error(ctx->event, "dovelane: dovelane_group_key_file: %s; a second delivery of this mail would show twice",
                error);
        return FALSE;
    }
    valid = delivery_id_verify(entry_r, &key, value);
    if (!valid)
        e_warning(ctx->event, "dovelane: %s header without a valid code is ignored", DELIVERY_ID_HEADER);
    i_zero_safe(&key);
    return valid;
}

static int pass_on(deliver_mail_func_t *hook, struct mail_deliver_context *ctx, struct mail_storage **storage_r)
{
    return hook == NULL ? 0 : hook(ctx, storage_r); /* 0: nobody took it, save it as usual */
}

static int deliver(struct mail_deliver_context *ctx, struct mail_storage **storage_r)
{
    static bool inside;
    struct plugin_user *puser = plugin_user_get(ctx->rcpt_user);
    char entry[DELIVERY_ID_HEX + 1];
    int ret;

    if (inside) /* a hook that was set between two of ours calls the one before it */
        return pass_on(first_next, ctx, storage_r);
    if (puser != NULL) {
        puser->delivery_guid[0] = '\0';
        if (ctx->rcpt_to != NULL && find_entry(puser, ctx, entry))
            delivery_id_guid(puser->delivery_guid, entry, smtp_address_encode(ctx->rcpt_to));
    }
    inside = TRUE;
    ret = pass_on(next, ctx, storage_r);
    inside = FALSE;
    /* The GUID stays: when no hook took the mail, lib-lda saves it after us. The user has no other saves than this
     * delivery's until the next one begins, or ends with it. */
    return ret;
}

void delivery_hook(void)
{
    deliver_mail_func_t *before;

    if (mail_deliver_hook_set == NULL)
        return;
    before = mail_deliver_hook_set(deliver);
    if (before == deliver)
        return;
    if (!hooked)
        first_next = before;
    hooked = TRUE;
    next = before;
}

void delivery_unhook(void)
{
    deliver_mail_func_t *last;

    if (!hooked)
        return;
    last = mail_deliver_hook_set(next);
    if (last != deliver)
        (void)mail_deliver_hook_set(last); /* set after ours, and unloaded before us or with the process */
}

bool delivery_set_guid(const struct plugin_user *puser, struct mail_save_context *ctx)
{
    /* saving: not a copy that some other plugin makes meanwhile */
    if (puser->delivery_guid[0] == '\0' || !ctx->saving)
        return FALSE;
    mailbox_save_set_guid(ctx, puser->delivery_guid);
    return TRUE;
}
