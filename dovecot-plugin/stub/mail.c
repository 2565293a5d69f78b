/* mail - finds out, as a mail is opened, that it is a stub. */
#include "dovecot-plugin/stub/key.h"
#include "dovecot-plugin/stub/mail.h"

#include <buffer.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <ostream.h>
#include <string.h>

struct stub_mail {
    union mail_module_context module_ctx;
    stub_fetch_fn *fetch;
    bool is, opening;
    struct stub stub;
    struct istream *in; /* while it is open; not a reference */
};

static MODULE_CONTEXT_DEFINE_INIT(stub_mail_module, &mail_module_register);

#define STUB_MAIL(mail) \
    ((struct stub_mail *)MODULE_CONTEXT_REQUIRE((struct mail_private *)(mail), stub_mail_module))

/* The whole of it; NULL: it is longer than a stub, or cannot be read. */
static buffer_t *read_text(struct istream *in)
{
    const size_t most = STUB_MAX;
    buffer_t *text = t_buffer_create(4096);
    const unsigned char *data;
    size_t n;

    while (i_stream_read_more(in, &data, &n) > 0 && text->used <= most) {
        buffer_append(text, data, I_MIN(n, most + 1 - text->used));
        i_stream_skip(in, n);
    }
    return in->stream_errno != 0 || text->used > most ? NULL : text;
}

static bool looks_so(struct istream *in, struct stub *stub_r)
{
    const unsigned char *data;
    size_t n;

    return i_stream_read_bytes(in, &data, &n, STUB_LINE) > 0 && stub_read(data, n, stub_r);
}

/* What the storage noted at the save is what the line says of the whole mail, and less is here:
 * nobody who sends a mail can bring that about. */
static bool was_cut(struct mail *mail, const struct stub *stub, size_t here)
{
    struct stub_mail *sm = STUB_MAIL(mail);
    uoff_t size;
    bool is;

    sm->opening = TRUE;
    is = mail_get_physical_size(mail, &size) == 0 && size == stub->stored && size != here;
    sm->opening = FALSE;
    return is;
}

static int say_no_key(struct mail *mail, const char *why)
{
    e_error(mail->box->storage->user->event,
            "dovelane: %s: UID %u: only its header is held at this site, and the key that proves "
            "it is lost: %s",
            mailbox_get_vname(mail->box), mail->uid, why);
    mail_storage_set_error(mail->box->storage, MAIL_ERROR_TEMP,
                           "The text of this mail cannot be fetched from another site");
    return -1;
}

/* 1: it is a stub, and *in_r the mail; 0: it is a mail as it is; -1: an error is set. */
static int open_stub(struct mail *mail, struct istream *in, struct istream **in_r)
{
    struct stub_mail *sm = STUB_MAIL(mail);
    const char *directory = stub_directory(mail->box), *error = "there is no such file";
    struct stub_key key;
    buffer_t *text = read_text(in);
    int r = text == NULL || directory == NULL ? 0 : stub_key_read(directory, &key, &error);

    if (text == NULL)
        return 0;
    const void *head = CONST_PTR_OFFSET(text->data, STUB_LINE);
    size_t n = text->used - STUB_LINE;
    if (r > 0 && stub_is_true(text->data, &key, head, n)) {
        *in_r = stub_istream_create(&sm->stub, head, n, sm->fetch, mail);
        i_stream_set_name(*in_r, i_stream_get_name(in));
        return 1;
    }
    if (r > 0)
        error = "it proves others, not this one";
    if (was_cut(mail, &sm->stub, text->used))
        return say_no_key(mail, t_strdup_printf("%s/" STUB_KEY_FILE ": %s",
                                                directory == NULL ? "" : directory, error));
    return 0;
}

static int look(struct mail *mail, struct istream **stream)
{
    struct stub_mail *sm = STUB_MAIL(mail);
    struct istream *in = *stream;
    int r;

    if (!looks_so(in, &sm->stub))
        return 0;
    T_BEGIN
    {
        r = open_stub(mail, in, stream);
    }
    T_END;
    if (r > 0) {
        i_stream_unref(&in);
        sm->in = *stream;
        sm->is = TRUE;
    } else {
        i_stream_seek(in, 0);
    }
    return r;
}

static int istream_opened(struct mail *mail, struct istream **stream)
{
    struct stub_mail *sm = STUB_MAIL(mail);

    sm->is = FALSE;
    if (mail->saving || sm->opening)
        return sm->module_ctx.super.istream_opened(mail, stream);
    /* What is below may change the bytes that are on the disk, and is asked first. */
    if (sm->module_ctx.super.istream_opened(mail, stream) < 0)
        return -1;
    return look(mail, stream) < 0 ? -1 : 0;
}

/* The library only makes ready what may be read, or not; whoever reads it asks once more. */
static bool is_made_ready(const struct mail *mail)
{
    static const char *const reasons[] = {"prefetch", "access", NULL};
    const char *reason = ((const struct mail_private *)mail)->get_stream_reason;

    return reason != NULL && str_array_find(reasons, reason);
}

/* A reply has not begun yet: here it can still be an error of this mail's alone. */
static int get_stream(struct mail *mail, bool get_body, struct message_size *hdr_size,
                      struct message_size *body_size, struct istream **stream_r)
{
    struct stub_mail *sm = STUB_MAIL(mail);
    const char *error;

    if (!get_body || mail->saving || sm->fetch == NULL || is_made_ready(mail))
        return sm->module_ctx.super.get_stream(mail, get_body, hdr_size, body_size, stream_r);
    if (sm->module_ctx.super.get_stream(mail, get_body, NULL, NULL, stream_r) < 0)
        return -1;
    if (sm->is && stub_istream_fetch(sm->in, &error) < 0) {
        mail_storage_set_error(mail->box->storage, MAIL_ERROR_TEMP,
                               "The text of this mail is at another site, which did not give it. "
                               "Try again later");
        return -1;
    }
    return hdr_size == NULL && body_size == NULL
               ? 0
               : sm->module_ctx.super.get_stream(mail, get_body, hdr_size, body_size, stream_r);
}

static void close_mail(struct mail *mail)
{
    struct stub_mail *sm = STUB_MAIL(mail);

    sm->is = FALSE;
    sm->in = NULL;
    sm->module_ctx.super.close(mail);
}

bool stub_fits(const struct mailbox *box)
{
    static const char *const storages[] = {"sdbox", "mdbox", NULL};
    return str_array_find(storages, box->storage->name);
}

void stub_mail_allocated(struct mail *mail, stub_fetch_fn *fetch)
{
    struct mail_private *pmail = (struct mail_private *)mail;
    struct mail_vfuncs *v = pmail->vlast;
    struct stub_mail *sm;

    if (!stub_fits(mail->box))
        return;
    sm = p_new(pmail->pool, struct stub_mail, 1);
    sm->fetch = fetch;
    sm->module_ctx.super = *v;
    pmail->vlast = &sm->module_ctx.super;
    v->istream_opened = istream_opened;
    v->get_stream = get_stream;
    v->close = close_mail;
    MODULE_CONTEXT_SET(pmail, stub_mail_module, sm);
}

const struct stub *stub_of_mail(struct mail *mail)
{
    struct stub_mail *sm = MODULE_CONTEXT((struct mail_private *)mail, stub_mail_module);

    return sm == NULL || !sm->is ? NULL : &sm->stub;
}

void stub_save(struct mail_save_context *ctx, const struct stub *stub, const struct stub_key *key)
{
    struct ostream *out = stub_ostream_create(ctx->data.output, stub, key);

    o_stream_unref(&ctx->data.output);
    ctx->data.output = out;
    o_stream_cork(out);
}
