/* fetch - opens the file of a mail's bytes, and has it made where it is not there. */
#include "dovecot-plugin/plugin/ask.h"
#include "dovecot-plugin/plugin/fetch.h"
#include "dovecot-plugin/plugin/owner.h"
#include "dovecot-plugin/plugin/user.h"
#include "dovecot-plugin/protocol/fetch.h"
#include "dovecot-plugin/stub/key.h"
#include "dovecot-plugin/stub/mail.h"

#include <guid.h>
#include <hex-binary.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <sha2.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* The replicator says after on_demand_wait that there is no answer. This is for one that hangs. */
#define WAIT_MOST 60000 /* milliseconds */
/* A command may look at one mail several times: what was in vain is not asked for again at once. */
#define VAIN_LASTS 2000 /* milliseconds */

static struct {
    uint8_t sha256[32];
    int64_t until;
    char why[256];
} vain;

static bool has_hash(struct istream *in, const uint8_t sha256[32])
{
    struct sha256_ctx ctx;
    uint8_t is[SHA256_RESULTLEN];
    const unsigned char *data;
    size_t n;

    sha256_init(&ctx);
    while (i_stream_read_more(in, &data, &n) > 0) {
        sha256_loop(&ctx, data, n);
        i_stream_skip(in, n);
    }
    sha256_result(&ctx, is);
    return in->stream_errno == 0 && memcmp(is, sha256, sizeof(is)) == 0;
}

/* NULL: it is not there, cannot be read (why_r says so), or has other bytes. */
static struct istream *open_fetched(struct mail *mail, const char *sha256, const struct stub *stub,
                                    const char **why_r)
{
    const char *path =
        t_strdup_printf("%s/" FETCH_DIRECTORY "/%s", stub_directory(mail->box), sha256);
    struct istream *in;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

    *why_r = t_strdup_printf("open(%s): %m", path);
    if (fd == -1)
        return NULL;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != stub->size) {
        i_close_fd(&fd);
        *why_r = t_strdup_printf("%s is not as long as the mail", path);
        return NULL;
    }
    in = i_stream_create_fd_autoclose(&fd, IO_BLOCK_SIZE * 8);
    if (!has_hash(in, stub->sha256)) {
        *why_r = t_strdup_printf("%s has other bytes than the mail", path);
        i_stream_unref(&in);
        return NULL;
    }
    i_stream_seek(in, 0);
    return in;
}

/* 1: it was put there; 0: it was not. */
static int have_it_fetched(struct mail *mail, const char *sha256, uint64_t bytes,
                           const char **why_r)
{
    struct ask w = {
        .path = ask_path(mail->box->storage->user), .end = ask_now() + WAIT_MOST, .fd = -1};
    struct plugin_user *puser = plugin_user_get(mail->box->storage->user);
    const char *owner = puser == NULL ? NULL : owner_of(puser, mail->box), *guid;
    char line[LINE_FETCH_MAX];
    guid_128_t hash;
    size_t size;
    int r;

    *why_r = "this mailbox is not replicated";
    if (owner == NULL)
        return 0;
    if (mail_get_special(mail, MAIL_FETCH_GUID, &guid) < 0) {
        *why_r = "its GUID cannot be read";
        return 0;
    }
    mail_generate_guid_128_hash(guid, hash);
    size = line_fetch(line, owner, guid_128_to_string(hash), sha256, bytes);
    *why_r = "the user's name is too long";
    if (size == 0)
        return 0;
    r = ask(&w, line, size);
    ask_end(&w);
    *why_r = r < 0 ? "the replicator does not answer" : w.why;
    return r > 0 ? 1 : 0;
}

static void say_failed(struct mail *mail, const char *sha256, const char *why)
{
    e_error(mail->box->storage->user->event,
            "dovelane: %s: UID %u: only its header is held at this site, and its text (SHA-256 %s) "
            "cannot be had from another one now: %s",
            mailbox_get_vname(mail->box), mail->uid, sha256, why);
}

static struct istream *fetch_now(struct mail *mail, const struct stub *stub, const char **error_r)
{
    const char *sha256 = binary_to_hex(stub->sha256, sizeof(stub->sha256));
    struct istream *in = open_fetched(mail, sha256, stub, error_r);

    if (in != NULL)
        return in;
    if (memcmp(vain.sha256, stub->sha256, sizeof(vain.sha256)) == 0 && ask_now() < vain.until) {
        *error_r = t_strdup(vain.why);
        return NULL;
    }
    if (have_it_fetched(mail, sha256, stub->size, error_r) > 0)
        in = open_fetched(mail, sha256, stub, error_r);
    if (in != NULL)
        return in;
    say_failed(mail, sha256, *error_r);
    memcpy(vain.sha256, stub->sha256, sizeof(vain.sha256));
    vain.until = ask_now() + VAIN_LASTS;
    i_strocpy(vain.why, t_strcut(t_strndup(*error_r, sizeof(vain.why) - 1), '\n'),
              sizeof(vain.why));
    return NULL;
}

static struct istream *fetch(void *context, const struct stub *stub, const char **error_r)
{
    struct mail *mail = context;
    struct istream *in;
    int old_errno = errno;

    /* what the storage failed with stays the last error */
    mail_storage_last_error_push(mail->box->storage);
    in = fetch_now(mail, stub, error_r);
    mail_storage_last_error_pop(mail->box->storage);
    errno = old_errno;
    return in;
}

void plugin_mail_allocated(struct mail *mail)
{
    stub_mail_allocated(mail, fetch);
}
