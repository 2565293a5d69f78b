/* body - mails as bytes: always in the canonical form, so that the hash does not depend on how a
 * storage ends its lines. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/mailbox/canonical.h"
#include "dovecot-plugin/mailbox/mail_facts.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/delivery_id.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/stub/mail.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/stubs.h"
#include "dovecot-plugin/worker/session/files.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <buffer.h>
#include <guid.h>
#include <hash.h>
#include <hex-binary.h>
#include <istream-crlf.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <openssl/evp.h>
#include <str.h>
#include <write-full.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- read by a scan, and sent with its ops ---------------------------------------------------- */

struct batch_body {
    uint8_t sha256[32];
    size_t at, n;
};

struct batch_bodies {
    buffer_t *bytes;
    ARRAY(struct batch_body) list;
    ARRAY(uint64_t) copied;
    size_t begun; /* where that of the mail being read begins */
};

struct batch_bodies *batch_bodies_create(void)
{
    struct batch_bodies *k = i_new(struct batch_bodies, 1);
    k->bytes = buffer_create_dynamic(default_pool, 65536);
    i_array_init(&k->list, 16);
    i_array_init(&k->copied, 16);
    return k;
}

void batch_bodies_free(struct batch_bodies **_k)
{
    struct batch_bodies *k = *_k;
    *_k = NULL;
    if (k == NULL)
        return;
    buffer_free(&k->bytes);
    array_free(&k->list);
    array_free(&k->copied);
    i_free(k);
}

void batch_bodies_clear(struct batch_bodies *k)
{
    buffer_set_used_size(k->bytes, 0);
    array_clear(&k->list);
    array_clear(&k->copied);
}

/* How long the next one may be. A longer one is asked for, or does not go along with what is
 * kept. */
static size_t batch_bodies_begin(struct batch_bodies *k)
{
    k->begun = k->bytes->used;
    return k->begun >= PARCEL_MAILS_BYTES ? 0
                                          : I_MIN(PARCEL_MAILS_BYTES - k->begun, PARCEL_MAIL_MAX);
}

static void batch_bodies_end(struct batch_bodies *k, const uint8_t sha256[32], size_t n)
{
    struct batch_body b = {.at = k->begun, .n = n};
    buffer_set_used_size(k->bytes, k->begun + n);
    memcpy(b.sha256, sha256, sizeof b.sha256);
    if (n > 0)
        array_push_back(&k->list, &b);
}

void batch_bodies_skip_last(struct batch_bodies *k)
{
    unsigned n;
    const struct batch_body *b = array_get(&k->list, &n);
    if (n > 0 && b[n - 1].at == k->begun)
        array_pop_back(&k->list);
    buffer_set_used_size(k->bytes, k->begun);
}

void batch_bodies_copied(struct batch_bodies *k, uint64_t number)
{
    array_push_back(&k->copied, &number);
}

bool batch_bodies_is_copied(const struct batch_bodies *k, uint64_t number)
{
    const uint64_t *c;
    array_foreach (&k->copied, c) {
        if (*c == number)
            return TRUE;
    }
    return FALSE;
}

bool batch_bodies_is_full(const struct batch_bodies *k)
{
    unsigned n;
    const struct batch_body *b = array_get(&k->list, &n);
    return n > 0 && (n >= PARCEL_MAILS_MAX || k->bytes->used + b[n - 1].n > PARCEL_MAILS_BYTES);
}

bool batch_bodies_find(const struct batch_bodies *k, const uint8_t sha256[32], struct text *body_r)
{
    const struct batch_body *b;
    array_foreach (&k->list, b) {
        if (memcmp(b->sha256, sha256, sizeof b->sha256) != 0)
            continue;
        *body_r = (struct text){CONST_PTR_OFFSET(k->bytes->data, b->at), b->n};
        return TRUE;
    }
    return FALSE;
}

/* What its line says; none of its bytes is here. 1; 0: it is no stub; -1 */
static int stub_facts(struct mail *mail, struct orset_facts *f)
{
    int r = stubs_is(mail);
    if (r <= 0)
        return r;
    const struct stub stub = *stub_of_mail(mail);
    if (mail_facts_head(mail, f) < 0)
        return -1;
    memcpy(f->sha256, stub.sha256, sizeof f->sha256);
    f->size = stub.size;
    return 1;
}

int body_facts(struct mail *mail, struct orset_facts *f, struct batch_bodies *bodies)
{
    int is_stub = stub_facts(mail, f);
    if (is_stub != 0)
        return is_stub < 0 ? -1 : 0;
    size_t room = bodies == NULL ? 0 : batch_bodies_begin(bodies);
    int r = mail_facts(mail, f, room == 0 ? NULL : bodies->bytes, room);
    if (room > 0)
        batch_bodies_end(bodies, f->sha256, r == 0 && f->size <= room ? f->size : 0);
    return r;
}

/* --- of the mailbox --------------------------------------------------------------------------- */

static bool hash_ends(EVP_MD_CTX *hash, const uint8_t sha256[32])
{
    uint8_t is[32];
    if (EVP_DigestFinal_ex(hash, is, NULL) != 1)
        i_fatal("OpenSSL: SHA-256");
    return memcmp(is, sha256, 32) == 0;
}

/* Of a stub: which mail it is, its line says; bytes to give are not here. */
static int read_stub(const struct stub *stub, const uint8_t sha256[32], size_t most,
                     uint64_t *size_r)
{
    *size_r = most == 0 ? stub->size : 0;
    return most == 0 && memcmp(stub->sha256, sha256, sizeof stub->sha256) == 0;
}

/* dropped_r: the form is not all that is there. */
static int read_form(struct mail *mail, bool as_it_is, const uint8_t sha256[32], uint64_t offset,
                     size_t most, buffer_t *part, uint64_t *size_r, bool *dropped_r)
{
    mail_storage_clear_error(mail->box->storage);
    struct canonical form = {.in = mail_crlf_stream(mail), .as_it_is = as_it_is};
    EVP_MD_CTX *hash = mail_sha256_begin();
    const unsigned char *data;
    size_t n;
    uint64_t at = 0;
    int r = 1;
    *size_r = 0;
    *dropped_r = FALSE;
    if (form.in == NULL)
        return mailbox_get_last_mail_error(mail->box) == MAIL_ERROR_EXPUNGED ? 0 : -1;
    buffer_set_used_size(part, 0);
    const struct stub *stub = stub_of_mail(mail);
    if (stub != NULL) {
        i_stream_unref(&form.in);
        return read_stub(stub, sha256, most, size_r);
    }
    while (canonical_next(&form, &data, &n)) {
        uint64_t skip = offset > at ? I_MIN(offset - at, n) : 0;
        if (EVP_DigestUpdate(hash, data, n) != 1)
            i_fatal("OpenSSL: SHA-256");
        if (skip < n && part->used < most)
            buffer_append(part, data + skip, I_MIN(n - skip, most - part->used));
        at += n;
    }
    if (form.in->stream_errno != 0)
        r = -1;
    else if (!hash_ends(hash, sha256))
        r = 0;
    i_stream_unref(&form.in);
    *size_r = at;
    *dropped_r = form.dropped;
    return r;
}

int body_read(struct mail *mail, const uint8_t sha256[32], uint64_t offset, size_t most,
              buffer_t *part, uint64_t *size_r)
{
    bool dropped;
    int r = read_form(mail, FALSE, sha256, offset, most, part, size_r, &dropped);
    /* Its message may be of a release before 0.2. */
    return r == 0 && dropped ? read_form(mail, TRUE, sha256, offset, most, part, size_r, &dropped)
                             : r;
}

bool body_is_of(struct mail *mail, const uint8_t sha256[32])
{
    uint64_t size;
    buffer_t *none = t_buffer_create(16);
    return body_read(mail, sha256, 0, 0, none, &size) > 0;
}

bool body_stream_is_of(struct istream *in, const uint8_t sha256[32])
{
    uint8_t is[32];
    uint64_t size;
    const char *error;
    bool same = mail_hash_stream((struct canonical){.in = i_stream_create_crlf(in)}, is, &size,
                                 NULL, 0, &error) == 0 &&
                memcmp(is, sha256, sizeof is) == 0;
    i_stream_seek(in, 0);
    return same;
}

/* The lines that a delivery puts in front of a message, with what is folded into them. */
static void skip_trace(struct istream *in)
{
    const unsigned char *data, *end;
    size_t size;
    for (bool trace = FALSE;;) {
        do {
            data = i_stream_get_data(in, &size);
            end = size == 0 ? NULL : memchr(data, '\n', size);
        } while (end == NULL && i_stream_read(in) > 0);
        if (end == NULL || !((trace && (data[0] == ' ' || data[0] == '\t')) ||
                             delivery_id_is_trace((const char *)data, size)))
            return;
        trace = TRUE;
        i_stream_skip(in, (size_t)(end - data) + 1);
    }
}

/* The next byte that is no CR: storages may keep one CR more or less at a line's end. -1: the
 * end. */
static int next_byte(struct istream *in, const unsigned char **data, size_t *left)
{
    for (;;) {
        while (*left > 0) {
            unsigned char c = *(*data)++;
            --*left;
            if (c != '\r')
                return c;
        }
        size_t had;
        (void)i_stream_get_data(in, &had);
        i_stream_skip(in, had);
        if (i_stream_read_more(in, data, left) <= 0)
            return -1;
    }
}

static int same_message(struct istream *one, struct istream *two)
{
    const unsigned char *data[2] = {NULL, NULL};
    size_t left[2] = {0, 0};
    int a, b;
    skip_trace(one);
    skip_trace(two);
    (void)i_stream_read_more(one, &data[0], &left[0]);
    (void)i_stream_read_more(two, &data[1], &left[1]);
    do {
        a = next_byte(one, &data[0], &left[0]);
        b = next_byte(two, &data[1], &left[1]);
    } while (a == b && a >= 0);
    return one->stream_errno != 0 || two->stream_errno != 0 ? -1 : a == b;
}

static int same_as(struct mail *mail, struct istream *in)
{
    mail_storage_clear_error(mail->box->storage);
    struct istream *own = mail_crlf_stream(mail);
    if (own == NULL)
        return -1;
    int r = same_message(own, in);
    i_stream_unref(&own);
    return r;
}

int body_same_mail(struct mail *mail, struct istream *in)
{
    int r = same_as(mail, in);
    i_stream_seek(in, 0);
    return r;
}

int body_same_mails(struct mail *one, struct mail *two)
{
    mail_storage_clear_error(one->box->storage);
    struct istream *in = mail_crlf_stream(one); /* cannot go back */
    if (in == NULL)
        return -1;
    int r = same_as(two, in);
    i_stream_unref(&in);
    return r;
}

void body_own_guid(uint8_t own_r[16], const uint8_t guid[16], const uint8_t sha256[32])
{
    static const char purpose[] = "dovelane-parted:";
    uint8_t digest[32];
    EVP_MD_CTX *hash = mail_sha256_begin();
    if (EVP_DigestUpdate(hash, purpose, sizeof purpose - 1) != 1 ||
        EVP_DigestUpdate(hash, guid, 16) != 1 || EVP_DigestUpdate(hash, sha256, 32) != 1 ||
        EVP_DigestFinal_ex(hash, digest, NULL) != 1)
        i_fatal("OpenSSL: SHA-256");
    memcpy(own_r, digest, 16);
}

int copy_mail(struct mail_save_context **ctx, struct mail *mail)
{
    uoff_t size;
    /* Dovecot names the copy of a Maildir file after the size of its LF form when it does not
     * know that of the CRLF form (",S=42" without ",W="), and shows only that many bytes of it
     * from then on. */
    if (is_maildir(mail->box) && mail_get_virtual_size(mail, &size) < 0) {
        mailbox_save_cancel(ctx);
        return -1;
    }
    return mailbox_copy(ctx, mail);
}

int save_stream(struct mail_save_context *ctx, struct istream *in)
{
    return save_stream_as(ctx, in, NULL, NULL);
}

int save_stream_as(struct mail_save_context *ctx, struct istream *in, const struct stub *stub,
                   const struct stub_key *key)
{
    ssize_t n;
    if (mailbox_save_begin(&ctx, in) < 0)
        return -1;
    if (stub != NULL)
        stub_save(ctx, stub, key);
    while ((n = i_stream_read(in)) > 0 || n == -2)
        if (mailbox_save_continue(ctx) < 0) {
            mailbox_save_cancel(&ctx);
            return -1;
        }
    if (in->stream_errno != 0) {
        mailbox_save_cancel(&ctx);
        return -1;
    }
    return mailbox_save_finish(&ctx);
}

/* --- of the parcel in work -------------------------------------------------------------------- */

struct body {
    const uint8_t *sha256;
    struct text mail;
    bool checked;
};

struct bodies {
    bool whole;              /* the site that gave them keeps them whole */
    ARRAY(struct body) list; /* at most PARCEL_MAILS_MAX */
};

struct bodies *bodies_create(bool whole)
{
    struct bodies *b = i_new(struct bodies, 1);
    b->whole = whole;
    i_array_init(&b->list, 16);
    return b;
}

void bodies_free(struct bodies **_b)
{
    struct bodies *b = *_b;
    *_b = NULL;
    array_free(&b->list);
    i_free(b);
}

void bodies_put(struct bodies *b, const uint8_t sha256[32], struct text mail, bool checked)
{
    i_assert(array_count(&b->list) < PARCEL_MAILS_MAX);
    struct body *body = array_append_space(&b->list);
    body->sha256 = sha256;
    body->mail = mail;
    body->checked = checked;
}

unsigned bodies_count(const struct bodies *b)
{
    return array_count(&b->list);
}

static const struct body *bodies_find(const struct bodies *b, const uint8_t sha256[32])
{
    const struct body *body;
    array_foreach (&b->list, body) {
        if (memcmp(body->sha256, sha256, 32) == 0)
            return body;
    }
    return NULL;
}

bool bodies_has(const struct bodies *b, const uint8_t sha256[32])
{
    return bodies_find(b, sha256) != NULL;
}

static bool is_hash_of(const uint8_t sha256[32], struct istream *in)
{
    uint8_t is[32];
    uint64_t size;
    const char *error;
    i_stream_ref(in);
    bool same = mail_hash_stream((struct canonical){.in = in, .as_it_is = TRUE}, is, &size, NULL, 0,
                                 &error) == 0 &&
                memcmp(is, sha256, 32) == 0;
    i_stream_seek(in, 0);
    return same;
}

static void say_wrong(struct session *s, const uint8_t sha256[32])
{
    session_note(s, NOTE_WARNING, "a body that came is not that of its SHA-256 %s: dropped",
                 binary_to_hex(sha256, 32));
}

bool body_is(struct session *s, const uint8_t sha256[32], struct text mail)
{
    EVP_MD_CTX *hash = mail_sha256_begin();
    if (EVP_DigestUpdate(hash, mail.p, mail.n) != 1)
        i_fatal("OpenSSL: SHA-256");
    if (hash_ends(hash, sha256))
        return TRUE;
    say_wrong(s, sha256);
    return FALSE;
}

/* --- spool: bodies in parts ------------------------------------------------------------------- */

static const char *spool_path(struct session *s, const uint8_t sha256[32], bool whole)
{
    return t_strconcat(s->dir, "/bodies/", binary_to_hex(sha256, 32), whole ? "" : ".part", NULL);
}

/* There is such a file: a site that keeps it whole gave a part of what is there. */
static const char *whole_path(struct session *s, const uint8_t sha256[32])
{
    return t_strconcat(s->dir, "/bodies/", binary_to_hex(sha256, 32), ".whole", NULL);
}

void spool_is_whole_elsewhere(struct session *s, const uint8_t sha256[32])
{
    int fd = open(whole_path(s, sha256), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    i_close_fd(&fd);
}

bool body_is_whole_elsewhere(struct session *s, const uint8_t sha256[32])
{
    struct stat st;
    if (s->bodies != NULL && bodies_has(s->bodies, sha256))
        return s->bodies->whole;
    return stat(whole_path(s, sha256), &st) == 0;
}

uint64_t spool_size(struct session *s, const uint8_t sha256[32])
{
    struct stat st;
    return stat(spool_path(s, sha256, FALSE), &st) == 0 ? (uint64_t)st.st_size : 0;
}

void spool_drop(struct session *s, const uint8_t sha256[32])
{
    if (s->spool_empty)
        return;
    (void)unlink(spool_path(s, sha256, TRUE));
    (void)unlink(spool_path(s, sha256, FALSE));
    (void)unlink(whole_path(s, sha256));
}

static struct istream *spool_open(struct session *s, const uint8_t sha256[32])
{
    int fd = session_open_file(s, spool_path(s, sha256, TRUE));
    if (fd == -1)
        return NULL;
    struct istream *in = i_stream_create_fd_autoclose(&fd, 65536);
    if (!is_hash_of(sha256, in)) {
        say_wrong(s, sha256);
        spool_drop(s, sha256);
        i_stream_unref(&in);
    }
    return in;
}

bool spool_is(struct session *s, const uint8_t sha256[32])
{
    struct istream *in = spool_open(s, sha256);
    if (in == NULL)
        return FALSE;
    i_stream_unref(&in);
    return TRUE;
}

struct istream *body_open(struct session *s, const uint8_t sha256[32])
{
    const struct body *b = s->bodies == NULL ? NULL : bodies_find(s->bodies, sha256);
    if (b == NULL)
        return spool_open(s, sha256);
    return b->checked || body_is(s, sha256, b->mail)
               ? i_stream_create_from_data(b->mail.p, b->mail.n)
               : NULL;
}

static int append_part(struct session *s, const char *path, const struct parcel_body *b,
                       uint64_t *size_r)
{
    struct stat st;
    const int how = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int fd = open(path, how, 0600), r = 0;
    if (fd == -1 && errno == ENOENT && mkdir(t_strconcat(s->dir, "/bodies", NULL), 0700) == 0)
        fd = open(path, how, 0600);
    if (fd == -1 || fstat(fd, &st) < 0) {
        i_close_fd(&fd);
        return session_fail(s, "open(%s): %m", path);
    }
    *size_r = (uint64_t)st.st_size;
    /* Parts come in order; a repeated or early one changes nothing. */
    if (b->offset == *size_r && pwrite_full(fd, b->part.p, b->part.n, (off_t)b->offset) < 0) {
        r = session_fail(s, "write(%s): %m", path);
        (void)ftruncate(fd, st.st_size);
    } else if (b->offset == *size_r) {
        *size_r += b->part.n;
    }
    i_close_fd(&fd);
    return r;
}

void spool_clear(struct session *s)
{
    const char *path = t_strconcat(s->dir, "/bodies", NULL);
    DIR *dir = s->spool_empty ? NULL : opendir(path);
    const struct dirent *entry;
    s->spool_empty = TRUE;
    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.')
            (void)unlink(t_strconcat(path, "/", entry->d_name, NULL));
    (void)closedir(dir);
}

int spool_put(struct session *s, const struct parcel_body *b, uint64_t *next_r)
{
    s->spool_empty = FALSE;
    const char *path = spool_path(s, b->sha256, FALSE);
    if (append_part(s, path, b, next_r) < 0)
        return -1;
    if (*next_r < b->size)
        return 0;
    /* Whole by size; by hash it is looked at when it is opened. */
    if (*next_r > b->size || rename(path, spool_path(s, b->sha256, TRUE)) < 0)
        spool_drop(s, b->sha256);
    return 1;
}

bool spool_has(struct session *s, const uint8_t sha256[32])
{
    struct stat st;
    return !s->spool_empty && stat(spool_path(s, sha256, TRUE), &st) == 0;
}

bool spool_keep(struct session *s, const uint8_t sha256[32])
{
    const struct body *b = bodies_find(s->bodies, sha256);
    uint64_t next;
    if (spool_has(s, sha256))
        return TRUE;
    spool_drop(s, sha256); /* a part of it */
    const struct parcel_body whole = {.sha256 = sha256, .size = b->mail.n, .part = b->mail};
    if ((!b->checked && !body_is(s, sha256, b->mail)) || spool_put(s, &whole, &next) <= 0)
        return FALSE;
    if (s->bodies->whole)
        spool_is_whole_elsewhere(s, sha256);
    return TRUE;
}
