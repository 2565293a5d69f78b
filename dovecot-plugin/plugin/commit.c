/* commit - asks the replicator, and waits. */
#include "dovecot-plugin/plugin/commit.h"
#include "dovecot-plugin/protocol/line.h"

#include <array.h>
#include <guid.h>
#include <ioloop.h>
#include <mail-storage-private.h>
#include <net.h>

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define COMMIT_SOCKET "dovelane-commit"
#define COMPLAIN_EVERY 60000 /* milliseconds */
#define AGAIN 20             /* milliseconds, until a lost connection is made again */

struct commit_save {
    const struct mailbox_transaction_context *of;
    char guid[LINE_GUID_HEX];
};

/* What is asked, and until when. */
struct wait {
    const char *path, *why; /* the second: there is nothing to wait for */
    int64_t end;            /* as now() */
    int fd;
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

static int64_t now(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

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
        return now();
    if (delivery.ends == NULL) {
        delivery.since = now();
        delivery.ends = timeout_add_short_to(io_loop_get_root(), 0, delivery_ends, (void *)NULL);
    }
    return delivery.since;
}

static void pause_for(const struct wait *w, int milliseconds)
{
    int64_t left = w->end - now();

    if (left > 0)
        (void)poll(NULL, 0, (int)I_MIN(left, milliseconds));
}

static void disconnect(struct wait *w)
{
    if (w->fd != -1)
        i_close_fd(&w->fd);
}

/* FALSE: nobody listens. Where too many do already, it is tried again. */
static bool connect_once(struct wait *w)
{
    w->fd = net_connect_unix(w->path);
    if (w->fd != -1 || errno == EAGAIN || errno == EINTR)
        return TRUE;
    w->why = t_strdup_printf("%s: %m", w->path);
    return FALSE;
}

/* A line's first bytes; 0: the connection was lost; -1: the time is over. */
static ssize_t read_reply(struct wait *w, char *reply, size_t size)
{
    size_t n = 0;

    for (;;) {
        struct pollfd in = {.fd = w->fd, .events = POLLIN};
        int64_t left = w->end - now();
        ssize_t r;

        if (left <= 0)
            return -1;
        if (poll(&in, 1, (int)left) <= 0)
            continue;
        r = read(w->fd, reply + n, size - 1 - n);
        if (r < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (r <= 0)
            return 0;
        n += (size_t)r;
        reply[n] = '\0';
        if (memchr(reply, '\n', n) != NULL || n == size - 1) {
            reply[strcspn(reply, "\n")] = '\0';
            return (ssize_t)n;
        }
    }
}

/* 1: another site has them; 0: there is nothing to wait for, why says; -1: the time is over. A
 * replicator that is killed meanwhile is started again, and asked again. One is asked also when the
 * time was over before: it counts the reply as late. */
static int ask(struct wait *w, const char *line, size_t size)
{
    char reply[256];
    ssize_t n;

    do {
        if (w->fd == -1 && !connect_once(w))
            return 0;
        if (w->fd == -1 || send(w->fd, line, size, MSG_NOSIGNAL) != (ssize_t)size)
            n = 0;
        else
            n = read_reply(w, reply, sizeof(reply));
        if (n > 0 && reply[0] == '+')
            return 1;
        if (n > 0) {
            w->why = t_strdup(reply + (reply[0] == '-' ? 1 : 0));
            return 0;
        }
        disconnect(w);
        if (n < 0)
            return -1;
        pause_for(w, AGAIN);
    } while (now() < w->end);
    return -1;
}

/* As many at a time as one line holds. */
static int ask_all(struct wait *w, struct mailbox *box, const char (*guid)[LINE_GUID_HEX],
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
    disconnect(w);
    return r;
}

/* Once a minute of this process, not of each save. */
static void say_nothing_to_wait_for(struct mailbox *box, const char *why)
{
    static int64_t said = -COMPLAIN_EVERY;

    if (now() - said < COMPLAIN_EVERY)
        return;
    said = now();
    e_warning(box->storage->user->event,
              "dovelane: dovelane_commit = peers, but the reply to a save in %s does not wait for "
              "another site: %s",
              box->vname, why);
}

static void wait_for(struct plugin_user *puser, struct mailbox *box,
                     const char (*guid)[LINE_GUID_HEX], unsigned count)
{
    struct wait w = {.path =
                         t_strconcat(box->storage->user->set->base_dir, "/" COMMIT_SOCKET, NULL),
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
