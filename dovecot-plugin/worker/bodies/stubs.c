/* stubs - which mails are stored so, and the user's key. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/stub/key.h"
#include "dovecot-plugin/stub/mail.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/bodies/stubs.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <istream.h>
#include <mail-storage-hooks.h>
#include <mail-storage-private.h>
#include <randgen.h>
#include <write-full.h>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void mail_allocated(struct mail *mail)
{
    stub_mail_allocated(mail, NULL);
}

static struct mail_storage_hooks hooks = {.mail_allocated = mail_allocated};

void stubs_init(void)
{
    mail_storage_hooks_add_internal(&hooks);
}

void stubs_deinit(void)
{
    mail_storage_hooks_remove_internal(&hooks);
}

/* --- the key ---------------------------------------------------------------------------------- */

/* 1: the state has one; 0; -1 */
static int key_of_row(struct session *s, struct stub_key *key_r)
{
    const uint8_t *value;
    size_t len;
    int r = rows_get(s, ROW_STUB_KEY, "", 0, &value, &len);
    if (r > 0 && len != sizeof key_r->bytes)
        return rows_corrupt(s, "the key of stubs");
    if (r > 0)
        memcpy(key_r->bytes, value, sizeof key_r->bytes);
    return r;
}

static int cannot(const char **error_r, const char *what, const char *path)
{
    *error_r = t_strdup_printf("%s(%s): %m", what, path);
    return -1;
}

/* Makes the name durable. */
static int sync_directory(const char *directory, const char **error_r)
{
    int fd = open(directory, O_RDONLY | O_CLOEXEC | O_DIRECTORY), r = 0;
    if (fd == -1 || fsync(fd) < 0)
        r = cannot(error_r, "fsync", directory);
    i_close_fd(&fd);
    return r;
}

/* Returns when it is on the disk. */
static int write_key(const char *directory, const struct stub_key *key, const char **error_r)
{
    const char *path = t_strconcat(directory, "/" STUB_KEY_FILE, NULL);
    const char *fresh = t_strconcat(path, ".new", NULL);
    char text[STUB_KEY_TEXT];
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    int r;
    if (fd == -1)
        return cannot(error_r, "open", fresh);
    stub_key_write_text(text, key);
    r = write_full(fd, text, sizeof(text)) < 0 || fsync(fd) < 0 ? cannot(error_r, "write", fresh)
                                                                : 0;
    i_close_fd(&fd);
    if (r == 0 && rename(fresh, path) < 0)
        r = cannot(error_r, "rename", fresh);
    return r == 0 ? sync_directory(directory, error_r) : r;
}

static int put_row(struct session *s, const struct stub_key *key)
{
    if (session_begin(s) < 0)
        return -1;
    if (rows_put(s, ROW_STUB_KEY, "", 0, key->bytes, sizeof key->bytes) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

static int no_key(struct session *s, const char *error)
{
    session_note(s, NOTE_ERROR, "the key of mails of which only the header is here: %s", error);
    return 0;
}

/* The file's is the one that counts; the state's is for a file that was lost. 1; 0: there is none
 * (made), or it cannot be had; -1: the state's failure */
static int get_key(struct session *s, bool make, struct stub_key *key_r)
{
    const char *error;
    struct stub_key copy;
    int has = stub_key_read(s->dir, key_r, &error), row = key_of_row(s, &copy);
    if (row < 0)
        return -1;
    if (has < 0)
        return no_key(s, error);
    if (has == 0 && row == 0 && !make)
        return 0;
    if (has == 0 && row > 0)
        *key_r = copy;
    else if (has == 0)
        random_fill(key_r->bytes, sizeof key_r->bytes);
    if (has == 0 && write_key(s->dir, key_r, &error) < 0)
        return no_key(s, error);
    if (row == 0 && put_row(s, key_r) < 0)
        return -1;
    s->stubs = TRUE;
    return 1;
}

int stubs_open(struct session *s)
{
    struct stub_key key;
    return get_key(s, FALSE, &key) < 0 ? -1 : 0;
}

bool stubs_are_here(const struct session *s)
{
    return s->stubs;
}

/* --- which ------------------------------------------------------------------------------------ */

bool stubs_site_is_whole(const struct session *s, uint64_t site)
{
    for (unsigned i = 0; i < s->group->nstubbing; i++)
        if (s->group->stubbing[i] == site)
            return FALSE;
    return TRUE;
}

static bool has_short_header(struct istream *in)
{
    buffer_t *head = t_buffer_create(4096);
    const unsigned char *data;
    size_t n, end = 0;
    while (end == 0 && head->used < STUB_HEADER_MAX && i_stream_read_more(in, &data, &n) > 0) {
        buffer_append(head, data, I_MIN(n, STUB_HEADER_MAX - head->used));
        i_stream_skip(in, n);
        end = stub_header_size(head->data, head->used);
    }
    i_stream_seek(in, 0);
    return end > 0;
}

/* A text is asked for by its size. Who gave another one than these bytes have gave a wrong one. */
static bool has_size(struct istream *in, const struct orset_facts *facts)
{
    uoff_t size;
    return i_stream_get_size(in, TRUE, &size) > 0 && size == facts->size;
}

/* Others than the user read public and shared mailboxes, and have not his key. */
static bool may_be(const struct session *s, const struct mailbox *box,
                   const struct orset_facts *facts)
{
    return s->group->on_demand && facts->size >= s->group->on_demand_from && stub_fits(box) &&
           box->list->ns->type == MAIL_NAMESPACE_TYPE_PRIVATE;
}

bool stubs_wanted(struct session *s, struct mailbox *box, const struct orset_facts *facts,
                  struct istream *in, struct stub *stub_r, struct stub_key *key_r)
{
    if (!may_be(s, box, facts) || !has_size(in, facts) || !has_short_header(in))
        return FALSE;
    i_zero(stub_r);
    memcpy(stub_r->sha256, facts->sha256, sizeof stub_r->sha256);
    stub_r->size = facts->size;
    return get_key(s, TRUE, key_r) > 0;
}

int stubs_is(struct mail *mail)
{
    struct istream *in;
    mail_storage_clear_error(mail->box->storage);
    if (mail_get_hdr_stream(mail, NULL, &in) < 0)
        return -1;
    return stub_of_mail(mail) != NULL;
}

bool stubs_is_at(struct session *s, struct box *x, uint32_t uid)
{
    struct mailbox *box = session_mailbox(s, x->vname, MAILBOX_FLAG_READONLY);
    bool is = TRUE; /* what cannot be looked at is not known to be whole */
    if (session_open_mailbox(s, x, box) == 0) {
        struct mailbox_transaction_context *trans =
            mailbox_transaction_begin(box, MAILBOX_TRANSACTION_FLAG_NO_CACHE_DEC, "dovelane stub");
        struct mail *mail = mail_by_uid(trans, uid);
        is = mail == NULL || stubs_is(mail) != 0;
        if (mail != NULL)
            mail_free(&mail);
        session_read_end(&trans);
    }
    mailbox_free(&box);
    return is;
}
