/* keep - writes mails that other sites removed, before they are expunged here. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/kept/kept.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/fsync_saves.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <hex-binary.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <str.h>
#include <strescape.h>
#include <time-util.h>
#include <write-full.h>

#include <openssl/evp.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define AGAIN 30000 /* milliseconds until mails that could not be kept are tried again */

struct kept_new {
    char id[KEPT_ID_SIZE + 1];
};

/* --- who removed it --------------------------------------------------------------------------- */

/* A row's value. */
struct removed_by {
    uint64_t site;
    int64_t at;
};

static struct orset_key removed_key(uint32_t home, uint32_t uid)
{
    struct orset_key k = rows_folder_key(home);
    orset_key_num(&k, uid);
    return k;
}

int kept_removed_by(struct session *s, uint64_t site, uint32_t home, uint32_t uid)
{
    const struct removed_by by = {.site = site, .at = time(NULL)};
    struct orset_key k = removed_key(home, uid);
    uint8_t guid[16];
    const uint8_t *v;
    size_t len;
    int r = orset_task_doomed_guid(s->os, home, uid, guid);
    /* The first one who said so. */
    if (r > 0 && (r = rows_get(s, ROW_REMOVED_BY, k.b, k.n, &v, &len)) == 0)
        r = rows_put(s, ROW_REMOVED_BY, k.b, k.n, &by, sizeof by);
    return I_MIN(r, 0);
}

int kept_removed(struct session *s, uint32_t home, uint32_t uid)
{
    struct orset_key k = removed_key(home, uid);
    return s->group->backup ? rows_del(s, ROW_REMOVED_BY, k.b, k.n) : 0;
}

static struct removed_by who_removed(struct session *s, uint32_t home, uint32_t uid)
{
    struct removed_by by = {.site = 0, .at = time(NULL)};
    struct orset_key k = removed_key(home, uid);
    const uint8_t *v;
    size_t len;
    if (rows_get(s, ROW_REMOVED_BY, k.b, k.n, &v, &len) > 0 && len == sizeof by)
        memcpy(&by, v, sizeof by);
    return by;
}

/* --- one mail --------------------------------------------------------------------------------- */

/* The same for each try to remove it, and no other mail's. */
static void make_id(char id[KEPT_ID_SIZE + 1], const struct box *x, uint32_t uid,
                    const struct orset_facts *f)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    uint8_t of[GUID_128_SIZE + sizeof uid + sizeof f->guid + sizeof f->sha256];
    memcpy(of, x->guid, GUID_128_SIZE);
    memcpy(of + GUID_128_SIZE, &uid, sizeof uid);
    memcpy(of + GUID_128_SIZE + sizeof uid, f->guid, sizeof f->guid);
    memcpy(of + sizeof of - sizeof f->sha256, f->sha256, sizeof f->sha256);
    if (EVP_Digest(of, sizeof of, digest, NULL, EVP_sha256(), NULL) != 1)
        i_fatal("OpenSSL: SHA-256");
    i_strocpy(id, binary_to_hex(digest, KEPT_ID_SIZE / 2), KEPT_ID_SIZE + 1);
}

static const char *head_of(struct session *s, const struct box *x, struct mail *mail,
                           const struct orset_facts *f)
{
    static const struct {
        enum mail_flags flag;
        const char *name;
    } flags[] = {{MAIL_ANSWERED, "\\Answered"},
                 {MAIL_FLAGGED, "\\Flagged"},
                 {MAIL_DELETED, "\\Deleted"},
                 {MAIL_SEEN, "\\Seen"},
                 {MAIL_DRAFT, "\\Draft"}};
    string_t *head = t_str_new(256);
    struct removed_by by = who_removed(s, x->folder, mail->uid);
    enum mail_flags set = mail_get_flags(mail);
    str_append(head, "dovelane-kept 1\nfolder ");
    str_append_tabescaped(head, x->vname);
    str_printfa(head, "\nremoved %lld\nby %llu\nreceived %lld\nuid %u\nsize %llu\nsha256 %s\n",
                (long long)by.at, (unsigned long long)by.site, (long long)f->received, mail->uid,
                (unsigned long long)f->size, binary_to_hex(f->sha256, sizeof f->sha256));
    for (unsigned i = 0; i < N_ELEMENTS(flags); i++)
        if ((set & flags[i].flag) != 0)
            str_printfa(head, "flag %s\n", flags[i].name);
    for (const char *const *k = mail_get_keywords(mail); *k != NULL; k++) {
        str_append(head, "flag ");
        str_append_tabescaped(head, *k);
        str_append_c(head, '\n');
    }
    str_append_c(head, '\n');
    return str_c(head);
}

/* 0; -1: errno; -2: the mail cannot be read */
static int write_bytes(int fd, struct istream *in)
{
    const unsigned char *data;
    size_t n;
    i_stream_seek(in, 0);
    while (i_stream_read_more(in, &data, &n) > 0) {
        if (write_full(fd, data, n) < 0)
            return -1;
        i_stream_skip(in, n);
    }
    return in->stream_errno == 0 ? 0 : -2;
}

static const char *path_of(const struct keeping *k, const char *prefix, const char *id)
{
    return t_strconcat(k->directory, "/", prefix, id, NULL);
}

/* Under a name of its own until keep_end(). As write_bytes(). */
static int write_mail(struct keeping *k, const char *id, const char *head, struct istream *in)
{
    const char *path = path_of(k, ".", id);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd == -1)
        return -1;
    int r = write_full(fd, head, strlen(head));
    if (r == 0)
        r = write_bytes(fd, in);
    sync_gather();
    if (r == 0 && fdatasync(fd) < 0)
        r = -1;
    sync_let();
    int error = errno;
    i_close_fd(&fd);
    if (r < 0)
        i_unlink_if_exists(path);
    errno = error;
    return r;
}

/* The disk is full, or the directory cannot be had: no other mail is tried either. */
static void cannot_keep(struct keeping *k, const char *what)
{
    session_note(k->s, NOTE_ERROR,
                 "%s: %s: mails that other sites removed cannot be kept: they stay in their "
                 "mailboxes here, and are tried again",
                 what, strerror(errno));
    k->failed = TRUE;
}

static bool waits(struct session *s)
{
    s->kept.failed++;
    session_want_tick(s, AGAIN);
    return FALSE;
}

/* TRUE: there are no bytes any more that could be kept. */
static bool is_gone(struct session *s, const struct box *x, struct mail *mail)
{
    if (mail->expunged || mailbox_get_last_mail_error(mail->box) == MAIL_ERROR_EXPUNGED)
        return TRUE;
    session_note(s, NOTE_ERROR,
                 "%s: UID %u: cannot be read, and so not be kept: it stays in the mailbox, though "
                 "another site removed it: %s",
                 x->vname, mail->uid, mailbox_get_last_internal_error(mail->box, NULL));
    return waits(s);
}

static int make(const char *path)
{
    return mkdir(path, 0700) < 0 && errno != EEXIST ? -1 : 0;
}

static bool has_directory(struct keeping *k)
{
    if (k->directory != NULL || k->failed)
        return !k->failed;
    const char *root = kept_directory(k->s);
    k->directory = t_strconcat(root, "/", t_strfgmtime("%Y%m%d", time(NULL)), NULL);
    if (make(root) < 0 || make(k->directory) < 0)
        cannot_keep(k, k->directory);
    return !k->failed;
}

static void keep_id(struct keeping *k, const char *id, uint64_t size)
{
    struct kept_new *n = array_append_space(&k->mails);
    i_strocpy(n->id, id, sizeof n->id);
    k->bytes += size;
}

void keep_begin(struct keeping *k, struct session *s)
{
    i_zero(k);
    k->s = s;
    t_array_init(&k->mails, 16);
}

static bool keep_bytes(struct keeping *k, const struct box *x, struct mail *mail,
                       const struct orset_facts *f)
{
    char id[KEPT_ID_SIZE + 1];
    struct istream *in;
    if (mail_get_stream_because(mail, NULL, NULL, "dovelane keep", &in) < 0)
        return is_gone(k->s, x, mail);
    make_id(id, x, mail->uid, f);
    int r = write_mail(k, id, head_of(k->s, x, mail, f), in);
    if (r == 0)
        keep_id(k, id, f->size);
    else if (r == -2)
        return is_gone(k->s, x, mail);
    else
        cannot_keep(k, k->directory);
    return r == 0 || waits(k->s);
}

bool keep_mail(struct keeping *k, const struct box *x, struct mail *mail)
{
    struct session *s = k->s;
    struct orset_facts f;
    bool kept = FALSE;
    if (!s->group->backup)
        return TRUE;
    k->vname = x->vname;
    if (!has_directory(k))
        return waits(s);
    if (body_facts(mail, &f, NULL) < 0)
        return is_gone(s, x, mail);
    int lives = orset_mail_lives(s->os, f.guid, f.sha256);
    if (lives < 0)
        return waits(s);
    if (lives > 0)
        session_explain(s, "%s: UID %u: not kept, since it was moved", x->vname, mail->uid);
    else
        kept = keep_bytes(k, x, mail, &f);
    return lives > 0 || kept;
}

/* --- all of them ------------------------------------------------------------------------------ */

static int sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1)
        return -1;
    int r = fsync(fd), error = errno;
    i_close_fd(&fd);
    errno = error;
    return r;
}

static int name_all(struct keeping *k)
{
    const struct kept_new *n;
    array_foreach (&k->mails, n) {
        if (rename(path_of(k, ".", n->id), path_of(k, "", n->id)) < 0)
            return -1;
    }
    if (sync_directory(k->directory) < 0 || sync_directory(kept_directory(k->s)) < 0)
        return -1;
    return sync_directory(k->s->dir);
}

int keep_end(struct keeping *k)
{
    struct session *s = k->s;
    unsigned n = array_count(&k->mails);
    if (n == 0)
        return 0;
    int r = sync_gathered();
    crash_at("keep-written");
    if (r == 0)
        r = name_all(k);
    if (r < 0) {
        cannot_keep(k, k->directory);
        s->kept.failed += n;
        session_want_tick(s, AGAIN);
        return -1;
    }
    crash_at("kept");
    s->kept.mails += n;
    s->kept.bytes += k->bytes;
    session_report(s, "%s: %u mails that other sites removed are kept", k->vname, n);
    return 0;
}
