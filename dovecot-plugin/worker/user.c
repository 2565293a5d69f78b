/* user - OPEN and CLOSE: who the user is, whether he can be replicated, his lock, his state. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/exchange/exchange.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/store/state_sqlite.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/bodies/body_requests.h"
#include "dovecot-plugin/worker/bodies/fetch.h"
#include "dovecot-plugin/worker/bodies/give.h"
#include "dovecot-plugin/worker/bodies/plan.h"
#include "dovecot-plugin/worker/bodies/stubs.h"
#include "dovecot-plugin/worker/ingest/ingest.h"
#include "dovecot-plugin/worker/session/choice.h"
#include "dovecot-plugin/worker/session/credentials.h"
#include "dovecot-plugin/worker/session/files.h"
#include "dovecot-plugin/worker/session/link.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/mdbox.h"
#include "dovecot-plugin/worker/session/modseq_floor.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retired.h"
#include "dovecot-plugin/worker/session/removed.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/session/validity.h"
#include "dovecot-plugin/worker/worker.h"
#include "lib/config/acting_plugins.h"

#include <array.h>
#include <mail-storage-private.h>
#include <mailbox-list-private.h>
#include <mkdir-parents.h>
#include <str.h>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_WAIT_SECS 2

/* log_debug = category=dovelane */
static struct event_category event_category_dovelane = {.name = "dovelane"};

static const char *const behaviour_plugins[] = {ACTING_PLUGINS, NULL};

static bool plugins_ok(struct session *s, const char **error_r)
{
    for (const char *const *p = compat_mail_plugins(s->user); *p != NULL; p++) {
        const char *name = *p;
        if (str_begins_with(name, "dovelane"))
            continue;
        for (const char *const *b = behaviour_plugins; *b != NULL; b++)
            if (strcmp(name, *b) == 0) {
                *error_r = t_strdup_printf(
                    strcmp(name, "replication") == 0
                        ? "plugin %s: Dovecot's own replicator is on, and mails would come twice: "
                          "take notify and replication out of mail_plugins, "
                          "on all sites, and restart Dovecot"
                        : "plugin %s would act on replicated mail: leave it out of mail_plugins "
                          "in protocol dovelane { }",
                    name);
                return FALSE;
            }
    }
    return TRUE;
}

/* --- the directory, its lock, the state ------------------------------------------------------- */

static int open_directory(struct session *s, const char **error_r)
{
    struct mail_namespace *ns = mail_namespace_find_inbox(s->user->namespaces);
    const char *root;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (!mailbox_list_get_root_path(ns->list, MAILBOX_LIST_PATH_TYPE_CONTROL, &root)) {
        *error_r = "INBOX has no control directory";
        return -1;
    }
    s->dir = p_strconcat(s->pool, root, "/dovelane", NULL);
    if (mailbox_list_get_root_path(ns->list, MAILBOX_LIST_PATH_TYPE_DIR, &root))
        s->root = p_strdup(s->pool, root);
    if (mkdir_parents(s->dir, 0700) < 0 && errno != EEXIST) {
        *error_r = t_strdup_printf("mkdir(%s): %m", s->dir);
        return -1;
    }
    const char *path = t_strconcat(s->dir, "/lock", NULL);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd == -1) {
        *error_r = t_strdup_printf("open(%s): %m", path);
        return -1;
    }
    for (unsigned tries = 0; fcntl(s->lock_fd, F_SETLK, &lock) < 0; tries++) {
        if (tries == LOCK_WAIT_SECS * 20) {
            *error_r = t_strdup_printf("%s is locked by another process", path);
            return -1;
        }
        usleep(50000);
    }
    return 0;
}

static const char *state_path(struct session *s)
{
    return t_strconcat(s->dir, "/state.db", NULL);
}

uint64_t session_state_bytes(struct session *s)
{
    static const char *const companions[] = {"", "-wal"};
    const char *path = state_path(s);
    uint64_t bytes = 0;
    for (unsigned i = 0; i < N_ELEMENTS(companions); i++) {
        struct stat st;
        if (stat(t_strconcat(path, companions[i], NULL), &st) == 0)
            bytes += (uint64_t)st.st_size;
    }
    return bytes;
}

/* 0; -1; -2: it is spoilt, *error_r says by what */
static int read_state(struct session *s, const char **error_r)
{
    struct orset_origin self = {s->group->self, random_number()};
    char *error;
    int r = state_sqlite_open(&s->db, state_path(s), &error);
    if (r < 0) {
        *error_r = t_strdup(error);
        free(error);
        return r;
    }
    state_sqlite_interface(s->db, &s->store);
    r = orset_open(&s->os, session_alloc(), &s->store, &self, &s->created);
    if (r == ORSET_E_LIMIT) {
        *error_r =
            t_strdup_printf("%s/state.db: is the state of another site, and this is site %llu: is "
                            "-n of dovelane-replicator this host's name? If it is, "
                            "and this home came from there, remove state.db and its companions",
                            s->dir, (unsigned long long)self.site);
        return -1;
    }
    if (r < 0) {
        const char *why = r == ORSET_E_MEMORY ? "out of memory" : state_sqlite_error(s->db);
        *error_r = t_strdup_printf("%s/state.db: %s", s->dir,
                                   *why != '\0' ? why : "its rows cannot be read");
    } else if ((r = rows_load(s)) < 0) {
        *error_r = t_strdup_printf("%s/state.db: %s", s->dir, session_error(s));
    }
    return r >= 0 ? 0 : state_sqlite_spoilt(s->db) ? -2 : -1;
}

static void unread_state(struct session *s)
{
    if (s->os != NULL)
        orset_close(s->os);
    s->os = NULL;
    if (s->db != NULL)
        state_sqlite_close(s->db);
    s->db = NULL;
    mailbox_table_clear(s);
    for (unsigned i = 0; i < s->npeers; i++)
        s->peer[i] = (struct peer){.site = s->peer[i].site};
}

static int open_state(struct session *s, const char **error_r)
{
    int r = read_state(s, error_r);
    if (r != -2)
        return r;
    unread_state(s);
    state_put_aside(s, state_path(s), *error_r);
    str_truncate(s->error, 0);
    *error_r = NULL;
    return read_state(s, error_r) < 0 ? -1 : 0;
}

/* Its mailboxes are of a user who was forgotten, as far as anybody can know: another one of that
 * name may have got mail in them since. *permanent_r: an admin has to decide. */
static int check_retired(struct session *s, bool *permanent_r, const char **error_r)
{
    if (!retired_state(s))
        return 0;
    if (retired_unused(s)) {
        session_note(s, NOTE_INFO,
                     "what came of the user of this name who was forgotten is dropped");
        unread_state(s);
        retired_remove(state_path(s));
        return read_state(s, error_r) < 0 ? -1 : 0;
    }
    *permanent_r = TRUE;
    *error_r = t_strdup_printf("his mailboxes here are those of the user of this name who was "
                               "forgotten, and are not replicated: move his home away, with %s. "
                               "Or, if they are to be the present user's, remove %s alone",
                               s->dir, s->dir);
    return -1;
}

/* Is this state the one that gave the numbers last? Main alone has the file that knows. */
static int check_reserve(struct session *s, const char **error_r)
{
    bool new_epoch;
    struct orset_origin self = orset_origin_get(s->os, orset_self(s->os));
    s->noted = orset_vector_get(s->os, orset_self(s->os));
    if (link_reserve(s->link, FRAME_RESERVE_CHECK, self.epoch, s->noted, &new_epoch) < 0) {
        *error_r = "the reserve file cannot be written";
        return -1;
    }
    /* The reserve is kept apart from the state and was not restored with it: what the state has
     * given is its own history. */
    if (new_epoch &&
        (session_begin(s) < 0 || orset_epoch_trust(s->os) < 0 || orset_commit(s->os) < 0 ||
         session_new_epoch(s, "the state may have lost numbers that it gave") < 0)) {
        *error_r = session_error(s);
        return -1;
    }
    return 0;
}

/* Another mail directory than last time: an old one may look untouched since its mailboxes were
 * read last, but lacks what was placed in them since. All of it is compared. */
static int check_root(struct session *s, const char **error_r)
{
    const uint8_t *v;
    size_t len;
    struct box **x;
    s->root_id = file_id(s->root);
    int r = rows_get(s, ROW_ROOT, "", 0, &v, &len);
    if (r > 0 && len == sizeof s->root_id && memcmp(v, &s->root_id, len) == 0)
        return 0;
    bool other = r > 0;
    if (r < 0 || session_begin(s) < 0 ||
        rows_put(s, ROW_ROOT, "", 0, &s->root_id, sizeof s->root_id) < 0)
        r = -1;
    array_foreach_modifiable (&s->boxes, x) {
        if (!other)
            continue;
        (*x)->all = (*x)->restored = TRUE;
        if (r >= 0)
            r = modseq_floor_keep(s, *x);
        box_unread(*x);
        if (r >= 0 && rows_put_box(s, *x) < 0)
            r = -1;
    }
    if (r >= 0 && session_commit(s) >= 0)
        return 0;
    *error_r = session_error(s);
    return -1;
}

/* Of a user whose state is not there nothing is made, who only asks. */
static bool is_there(struct session *s, const char **error_r)
{
    struct stat st;
    const char *root, *path;
    struct mail_namespace *ns = mail_namespace_find_inbox(s->user->namespaces);
    if (!mailbox_list_get_root_path(ns->list, MAILBOX_LIST_PATH_TYPE_CONTROL, &root))
        return TRUE; /* open_directory() says it */
    path = t_strconcat(root, "/dovelane/state.db", NULL);
    if (stat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return TRUE;
    *error_r = t_strdup_printf("nothing of this user was replicated here yet (there is no %s); "
                               "doveadm dovelane resync -u has the mailboxes looked at",
                               path);
    return FALSE;
}

static int session_init(struct session *s, bool existing, bool *permanent_r, const char **error_r)
{
    *permanent_r = TRUE;
    if (!session_namespaces_ok(s, error_r) || !plugins_ok(s, error_r) ||
        !session_keys_ok(s, error_r))
        return -1;
    *permanent_r = FALSE;
    for (unsigned i = 0; i < s->nsites; i++)
        if (s->site[i] != s->group->self)
            s->peer[s->npeers++].site = s->site[i];
    /* One of them is this site. A body_request has a bit for each other one. */
    i_assert(s->npeers < FRAME_SITES_MAX);
    if (existing && !is_there(s, error_r)) {
        *permanent_r = TRUE;
        return -1;
    }
    if (open_directory(s, error_r) < 0 || open_state(s, error_r) < 0 ||
        check_retired(s, permanent_r, error_r) < 0)
        return -1;
    orset_bound_uid_validity(s->os, (uint32_t)I_MIN(time(NULL) + 86400, UINT32_MAX - 2));
    if (check_reserve(s, error_r) < 0 || check_root(s, error_r) < 0)
        return -1;
    if (s->created &&
        (session_begin(s) < 0 || session_exchange_first(s) < 0 || session_commit(s) < 0)) {
        *error_r = session_error(s);
        return -1;
    }
    removed_begin(s);
    validity_count_all(s);
    if (stubs_open(s) < 0 || unseen_begin(s) < 0) {
        *error_r = session_error(s);
        return -1;
    }
    s->state_id = file_id(state_path(s));
    s->fully_open = TRUE;
    return 0;
}

/* What the userdb says of a user. */
struct looked_up {
    struct mail_storage_service_user *user;
    uint64_t credentials;
    uint64_t site[FRAME_SITES_MAX]; /* with which he is replicated, own one too */
    unsigned nsites;
};

/* group: NULL: whether he is replicated here does not matter. -1: *why says why not, and its text
 * is on the data stack. */
static int look_up(struct mail_storage_service_ctx *storage_service, const struct group *group,
                   const char *username, struct looked_up *l, struct failure *why)
{
    struct mail_storage_service_input input;
    const char *const *fields;
    bool slip, wanted = TRUE;
    i_zero(why);
    i_zero(l);
    compat_input_init(&input, "dovelane", username);
    if (credentials_kept() != 0) {
        /* There is nothing left to drop, and root cannot be had again. */
        input.flags_override_remove = MAIL_STORAGE_SERVICE_FLAG_TEMP_PRIV_DROP;
        input.flags_override_add = MAIL_STORAGE_SERVICE_FLAG_NO_RESTRICT_ACCESS;
    }
    pool_t pool = pool_alloconly_create("userdb fields", 512);
    int r = compat_lookup(storage_service, &input, pool, &l->user, &fields, &why->text);
    if (r > 0) {
        l->credentials = credentials_of(l->user, fields);
        wanted =
            group == NULL || choice_read(group, fields, l->site, &l->nsites, &slip, &why->text);
    }
    if (!wanted) {
        why->permanent = TRUE;
        why->unwanted = !slip;
        mail_storage_service_user_unref(&l->user);
    }
    pool_unref(&pool);
    if (r == 0) {
        why->permanent = why->nobody = TRUE;
        why->text = "no such user";
    }
    return r > 0 && wanted ? 0 : -1;
}

uint64_t user_credentials(struct mail_storage_service_ctx *storage_service, const char *username,
                          const char **name_r, struct failure *failure_r)
{
    struct looked_up l;
    if (look_up(storage_service, NULL, username, &l, failure_r) < 0)
        return 0;
    *name_r = t_strdup(compat_service_username(l.user));
    mail_storage_service_user_unref(&l.user);
    return l.credentials;
}

static struct mail_user *open_user(struct mail_storage_service_ctx *storage_service,
                                   const struct group *group, const struct open_user *asked,
                                   struct looked_up *l, struct failure *why)
{
    struct mail_user *user = NULL;
    uint64_t wanted = asked->credentials;
    if (look_up(storage_service, group, asked->name, l, why) < 0)
        return NULL;
    if ((wanted == 0 || wanted == l->credentials) && credentials_fit(l->user, l->credentials)) {
        /* Another connection might be for another user. So the listener goes before anything of
         * this one's is read. */
        master_service_stop_new_connections(master_service);
        if (mail_storage_service_next(storage_service, l->user, &user, &why->text) < 0)
            user = NULL;
        credentials_keep(l->credentials);
    }
    mail_storage_service_user_unref(&l->user); /* the mail_user has its own */
    return user;
}

struct session *session_open(struct link *link, struct group *group,
                             struct mail_storage_service_ctx *storage_service,
                             const struct open_user *asked, struct failure *failure_r)
{
    struct looked_up l;
    struct mail_user *user = open_user(storage_service, group, asked, &l, failure_r);
    if (user == NULL)
        return NULL;
    pool_t pool = pool_alloconly_create("session", 1024);
    struct session *s = p_new(pool, struct session, 1);
    s->pool = pool;
    s->group = group;
    s->link = link;
    memcpy(s->site, l.site, sizeof s->site);
    s->nsites = l.nsites;
    if (asked->retired.n > 0)
        s->retired =
            (struct text){p_memdup(pool, asked->retired.p, asked->retired.n), asked->retired.n};
    s->user = user;
    s->lock_fd = -1;
    s->uncounted = TRUE;
    s->error = str_new(default_pool, 128);
    s->event = event_create(user->event);
    event_add_category(s->event, &event_category_dovelane);
    event_set_append_log_prefix(s->event, "dovelane: ");
    mailbox_table_init(s);
    session_lists_init(s);
    i_array_init(&s->wanted, 16);
    i_array_init(&s->fetching, 4);
    s->fetched = TRUE;
    s->plan = plan_create();
    /* not the same site first in each session: it may be down */
    s->ask_next = (unsigned)time(NULL);
    i_array_init(&s->pending_wants, 1);
    i_array_init(&s->failing, 4);
    i_array_init(&s->retries, 4);
    i_array_init(&s->scan_modseqs, 4);
    i_array_init(&s->asked, 1);
    /* Quotas were asked and rights were checked where the change was made. */
    user->dsyncing = TRUE;
    if (session_init(s, asked->existing, &failure_r->permanent, &failure_r->text) < 0) {
        failure_r->text = t_strdup(failure_r->text != NULL ? failure_r->text : session_error(s));
        session_close(&s);
    }
    return s;
}

static void say_clean(struct session *s)
{
    struct orset_origin self = orset_origin_get(s->os, orset_self(s->os));
    if (!s->stale && state_sqlite_checkpoint(s->db) == 0)
        (void)link_reserve(s->link, FRAME_RESERVE_CLEAN, self.epoch,
                           orset_vector_get(s->os, orset_self(s->os)), NULL);
}

bool session_replaced(struct session *s)
{
    if (state_sqlite_spoilt(s->db))
        return TRUE;
    if (s->index_lost) {
        session_note(s, NOTE_WARNING, "the index of a mailbox was removed: looking at all anew");
        return TRUE;
    }
    if (s->scripts_lost) {
        session_note(s, NOTE_WARNING,
                     "the directory of the Sieve scripts was removed: looking at it anew");
        return TRUE;
    }
    if (s->root_id.ino == 0)
        s->root_id = file_id(s->root); /* made meanwhile */
    if (session_list_is_another(s)) {
        session_note(s, NOTE_WARNING,
                     "the index of the list of mailboxes is another one than "
                     "before: looking at all anew");
        return TRUE;
    }
    if (mdbox_map_is_removed(s)) {
        session_note(s, NOTE_WARNING, "the map of an mdbox was removed: looking at it anew");
        return TRUE;
    }
    if (same_file(&s->state_id, state_path(s)) && same_file(&s->root_id, s->root))
        return FALSE;
    session_note(
        s, NOTE_WARNING,
        "the state or the mail directory is another one than before: looking at both anew");
    return TRUE;
}

static void close_state(struct session *s)
{
    bool spoilt = state_sqlite_spoilt(s->db);
    if (!same_file(&s->state_id, state_path(s)))
        state_sqlite_replaced(s->db);
    const char *why = t_strdup(state_sqlite_error(s->db));
    state_sqlite_close(s->db);
    if (spoilt)
        state_put_aside(s, state_path(s), why);
}

void session_close(struct session **_s)
{
    struct session *s = *_s;
    *_s = NULL;
    for (unsigned i = 0; i < s->npeers; i++)
        if (s->peer[i].exchange != NULL)
            orset_exchange_free(s->os, s->peer[i].exchange);
    if (s->os != NULL) {
        if (s->fully_open && same_file(&s->state_id, state_path(s)) && rows_close(s) == 0)
            say_clean(s);
        orset_close(s->os);
    }
    if (s->db != NULL)
        close_state(s);
    mailbox_table_deinit(s);
    session_lists_deinit(s);
    array_free(&s->wanted);
    array_free(&s->fetching);
    plan_free(&s->plan);
    give_free(s);
    array_free(&s->failing);
    array_free(&s->retries);
    array_free(&s->scan_modseqs);
    array_free(&s->asked);
    removed_end(s);
    i_close_fd(&s->lock_fd);
    event_unref(&s->event);
    compat_user_deinit(&s->user);
    str_free(&s->error);
    pool_unref(&s->pool);
}
