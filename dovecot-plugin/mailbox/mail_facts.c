/* mail_facts - reads a mail's GUID, dates and bytes. */
#include "dovecot-plugin/mailbox/mail_facts.h"
#include "dovecot-plugin/orset/orset.h"

#include <guid.h>
#include <istream-crlf.h>
#include <istream.h>
#include <mail-storage-private.h>

struct istream *mail_crlf_stream(struct mail *mail)
{
    struct istream *in;
    if (mail_get_stream_because(mail, NULL, NULL, "dovelane", &in) < 0)
        return NULL;
    return i_stream_create_crlf(in);
}

/* OpenSSL's, not the library's, which does not use the processor's instructions for it: a tenth
 * of the time. */
EVP_MD_CTX *mail_sha256_begin(void)
{
    static EVP_MD_CTX *ctx;
    static EVP_MD *sha256;
    if (ctx == NULL) {
        ctx = EVP_MD_CTX_new();
        sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    }
    if (ctx == NULL || sha256 == NULL || EVP_DigestInit_ex2(ctx, sha256, NULL) != 1)
        i_fatal("OpenSSL: no SHA-256");
    return ctx;
}

int mail_hash_stream(struct canonical form, uint8_t sha256[32], uint64_t *size_r, buffer_t *keep,
                     size_t room, const char **error_r)
{
    EVP_MD_CTX *hash = mail_sha256_begin();
    struct istream *in = form.in;
    const unsigned char *data;
    size_t n;
    *size_r = 0;
    while (canonical_next(&form, &data, &n)) {
        if (EVP_DigestUpdate(hash, data, n) != 1)
            i_fatal("OpenSSL: SHA-256");
        *size_r += n;
        if (keep != NULL && *size_r <= room)
            buffer_append(keep, data, n);
    }
    *error_r = in->stream_errno != 0 ? t_strdup(i_stream_get_error(in)) : NULL;
    if (EVP_DigestFinal_ex(hash, sha256, NULL) != 1)
        i_fatal("OpenSSL: SHA-256");
    i_stream_unref(&in);
    return *error_r != NULL ? -1 : 0;
}

int mail_facts_head(struct mail *mail, struct orset_facts *f)
{
    const char *guid;
    guid_128_t hash;
    time_t received, saved;
    i_zero(f);
    mail_storage_clear_error(mail->box->storage); /* it may tell of another mail, which is gone */
    if (mail_get_special(mail, MAIL_FETCH_GUID, &guid) < 0 ||
        mail_get_received_date(mail, &received) < 0 || mail_get_save_date(mail, &saved) < 0)
        return -1;
    guid = t_strdup(guid);
    mail_generate_guid_128_hash(guid, hash);
    memcpy(f->guid, hash, 16);
    if (strcasecmp(guid, guid_128_to_string(hash)) != 0) {
        f->guid_text = guid;
        f->guid_text_len = strlen(guid);
    }
    f->received = received > 0 ? received : 0;
    f->saved = saved > 0 ? saved : 0;
    return 0;
}

int mail_facts(struct mail *mail, struct orset_facts *f, buffer_t *keep, size_t room)
{
    const char *error;
    struct istream *in;
    if (mail_facts_head(mail, f) < 0 || (in = mail_crlf_stream(mail)) == NULL)
        return -1;
    int r = mail_hash_stream((struct canonical){.in = in}, f->sha256, &f->size, keep, room, &error);
    if (r < 0)
        /* a stream's error is not the storage's by itself */
        mail_storage_set_error(mail->box->storage, MAIL_ERROR_TEMP, error);
    return r;
}
