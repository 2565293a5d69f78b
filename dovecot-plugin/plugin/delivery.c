/* delivery - reads a mail's delivery id, and has the mail saved with the GUID of it.
 *
 * lib-lda calls one function per delivery; each plugin replaces it and may call the one before.
 * Sieve, which is loaded after us, never does. So ours is set when a user is created, when all
 * of that user's plugins have been loaded. */
#include "dovecot-plugin/compat.h"

#include "dovecot-plugin/protocol/delivery_id.h"

#include "dovecot-plugin/plugin/delivery.h"
#include "dovecot-plugin/plugin/intent.h"
#include "dovecot-plugin/plugin/user.h"

#include <hex-binary.h>
#include <istream.h>
#include <istream-header-filter.h>
#include <mail-deliver.h>
#include <mail-storage-private.h>
#include <raw-storage.h>
#include <safe-memset.h>
#include <sha2.h>
#include <smtp-address.h>
#include <str.h>

/* Only lmtp and dovecot-lda are linked with lib-lda. */
#pragma weak mail_deliver_hook_set

static bool hooked;
static deliver_mail_func_t *first_next; /* the hook that was there when ours was set first */
static deliver_mail_func_t *next;       /* the one ours calls */

/* What the relay says of the mail that is being delivered. lmtp saves a mail for its second
 * recipient from the first one's copy, where the line is gone: so it is kept until the next
 * mail. */
static struct {
    char *value; /* NULL: there is no such line, or none that counts */
    char hash[DELIVERY_HASH_HEX + 1];
} said;

static void forget_said(void)
{
    i_free(said.value);
}

/* The next line's first bytes, without the line end, and how long it is with it; false at the
 * stream's end. It is not read yet. A longer line than the stream buffers is given in parts. */
static bool peek_line(struct istream *in, const char **line_r, size_t *size_r, size_t *all_r)
{
    const unsigned char *data, *end;
    size_t size;
    ssize_t r;

    for (;;) {
        data = i_stream_get_data(in, &size);
        end = size == 0 ? NULL : memchr(data, '\n', size);
        if (end != NULL || (r = i_stream_read(in)) <= 0)
            break;
    }
    if (size == 0)
        return FALSE;
    *line_r = (const char *)data;
    *all_r = end == NULL ? size : (size_t)(end - data) + 1;
    *size_r = *all_r;
    while (*size_r > 0 && ((*line_r)[*size_r - 1] == '\n' || (*line_r)[*size_r - 1] == '\r'))
        (*size_r)--;
    return TRUE;
}

/* Reads the line and what is folded into it. False: nothing above the message's own header is
 * such a line. What stands above it does not matter, since the codes cover all that is below. */
static bool read_line(struct istream *in, string_t *value)
{
    const size_t name = strlen(DELIVERY_ID_HEADER ":");
    const char *line;
    size_t size, all;
    bool found = FALSE;

    while (peek_line(in, &line, &size, &all)) {
        bool folded = size > 0 && (line[0] == ' ' || line[0] == '\t');

        if (found && !folded)
            return TRUE;
        if (!folded && !delivery_id_is_trace(line, size))
            return FALSE;
        if (!folded && i_memcasecmp(line, DELIVERY_ID_HEADER ":", I_MIN(size, name)) == 0) {
            str_append_data(value, line + name, size - name);
            found = TRUE;
        } else if (found) {
            str_append_data(value, line, size);
        }
        if (str_len(value) > DELIVERY_ID_MOST)
            return FALSE;
        i_stream_skip(in, all);
    }
    return found;
}

/* LF for CRLF, and a line end after the last line. False: it cannot be read. */
static bool hash_rest(struct istream *in, char hash_r[DELIVERY_HASH_HEX + 1])
{
    unsigned char digest[SHA256_RESULTLEN];
    const unsigned char *data;
    struct sha256_ctx ctx;
    bool cr = FALSE, open_line = FALSE;
    size_t size;

    sha256_init(&ctx);
    while (i_stream_read_more(in, &data, &size) > 0) {
        size_t from = 0;

        for (size_t i = 0; i < size; i++) {
            if (cr && data[i] != '\n')
                sha256_loop(&ctx, "\r", 1);
            cr = data[i] == '\r';
            if (cr) {
                sha256_loop(&ctx, data + from, i - from);
                from = i + 1;
            }
        }
        sha256_loop(&ctx, data + from, size - from);
        open_line = data[size - 1] != '\n';
        i_stream_skip(in, size);
    }
    if (in->stream_errno != 0)
        return FALSE;
    if (cr)
        sha256_loop(&ctx, "\r", 1);
    if (open_line)
        sha256_loop(&ctx, "\n", 1);
    sha256_result(&ctx, digest);
    i_strocpy(hash_r, binary_to_hex(digest, sizeof(digest)), DELIVERY_HASH_HEX + 1);
    return TRUE;
}

/* A mail that comes from the network, not another recipient's copy. */
static void read_said(struct mail *mail)
{
    struct istream *in;
    string_t *value = t_str_new(256);

    forget_said();
    if (mail_get_stream_because(mail, NULL, NULL, "dovelane delivery", &in) < 0)
        return;
    i_stream_seek(in, 0);
    if (read_line(in, value) && hash_rest(in, said.hash))
        said.value = i_strdup(str_c(value));
    i_stream_seek(in, 0);
}

/* The mail's valid entry id. False is normal: most mail has no such line. */
static bool find_entry(struct plugin_user *puser, struct mail_deliver_context *ctx,
                       const char *rcpt, char entry_r[DELIVERY_ID_HEX + 1])
{
    struct delivery_key key;
    const char *error;
    bool valid;

    if (said.value == NULL)
        return FALSE;
    if (!delivery_key_read(&key, puser->set.group_key_file, &error)) {
        e_error(ctx->event,
                "dovelane: dovelane_group_key_file: %s; a second delivery of this mail would show "
                "twice",
                error);
        return FALSE;
    }
    valid = delivery_id_verify(entry_r, &key, said.value, said.hash, rcpt);
    if (!valid)
        e_warning(ctx->event,
                  "dovelane: %s header without a valid code for this recipient and these bytes is "
                  "ignored",
                  DELIVERY_ID_HEADER);
    i_zero_safe(&key);
    return valid;
}

/* What is delivered is the gateway's word, not the sender's: the line is for us, and does not
 * stay in the mail. */
static void begin_delivery(struct plugin_user *puser, struct mail_deliver_context *ctx)
{
    char entry[DELIVERY_ID_HEX + 1];
    const char *value, *rcpt;

    puser->delivery_guid[0] = '\0';
    puser->delivery_strip = puser->delivery_saved = FALSE;
    if (puser->set.group_key_file[0] == '\0')
        return;
    puser->delivery_strip = mail_get_first_header(ctx->src_mail, DELIVERY_ID_HEADER, &value) > 0;
    if (strcmp(ctx->src_mail->box->storage->name, RAW_STORAGE_NAME) == 0)
        read_said(ctx->src_mail);
    if (ctx->rcpt_to == NULL)
        return;
    rcpt = smtp_address_encode(ctx->rcpt_to);
    if (find_entry(puser, ctx, rcpt, entry))
        delivery_id_guid(puser->delivery_guid, entry, said.hash, rcpt);
}

static int pass_on(deliver_mail_func_t *hook, struct mail_deliver_context *ctx,
                   struct mail_storage **storage_r)
{
    return hook == NULL ? 0 : hook(ctx, storage_r); /* 0: nobody took it, save it as usual */
}

static int deliver(struct mail_deliver_context *ctx, struct mail_storage **storage_r)
{
    static bool inside;
    struct plugin_user *puser = plugin_user_get(ctx->rcpt_user);
    int ret;

    if (inside) /* a hook that was set between two of ours calls the one before it */
        return pass_on(first_next, ctx, storage_r);
    if (puser != NULL) {
        T_BEGIN
        {
            begin_delivery(puser, ctx);
        }
        T_END;
    }
    inside = TRUE;
    ret = pass_on(next, ctx, storage_r);
    inside = FALSE;
    /* Sieve discarded it, or sent it on. */
    if (ret > 0 && puser != NULL && puser->delivery_guid[0] != '\0' && !ctx->saved_mail &&
        !puser->delivery_saved) {
        T_BEGIN
        {
            intent_note_discarded(ctx->rcpt_user, puser->delivery_guid);
        }
        T_END;
    }
    /* The GUID stays: when no hook took the mail, lib-lda saves it after us. The user has no
     * other saves than this delivery's until the next one begins, or ends with it. */
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

    forget_said();
    if (!hooked)
        return;
    last = mail_deliver_hook_set(next);
    if (last != deliver)
        /* set after ours, and unloaded before us or with the process */
        (void)mail_deliver_hook_set(last);
}

bool delivery_set_guid(struct plugin_user *puser, struct mail_save_context *ctx)
{
    /* saving: not a copy that some other plugin makes meanwhile */
    if (puser->delivery_guid[0] == '\0' || !ctx->saving)
        return FALSE;
    mailbox_save_set_guid(ctx, puser->delivery_guid);
    puser->delivery_saved = TRUE;
    return TRUE;
}

struct istream *delivery_strip(const struct plugin_user *puser, const struct mail_save_context *ctx,
                               struct istream *input)
{
    static const char *const names[] = {DELIVERY_ID_HEADER};

    if (!puser->delivery_strip || !ctx->saving)
        return NULL;
    return i_stream_create_header_filter(input, HEADER_FILTER_EXCLUDE | HEADER_FILTER_CRLF_PRESERVE,
                                         names, N_ELEMENTS(names), *null_header_filter_callback,
                                         NULL);
}
