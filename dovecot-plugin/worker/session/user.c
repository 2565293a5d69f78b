/* user - OPEN and CLOSE: who the user is, whether he can be replicated, his lock, his state; and
 * the state's commits. */
#include "dovecot-plugin/worker/worker.h"

#include <eacces-error.h>
#include <mail-index-private.h>
#include <mail-storage-private.h>
#include <mail-transaction-log.h>
#include <mailbox-list-private.h>
#include <mkdir-parents.h>
#include <randgen.h>
#include <str.h>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_WAIT_SECS 2
#define SAY_AGAIN_SECS 60

/* log_debug = category=dovelane */
static struct event_category event_category_dovelane = {.name = "dovelane"};

/* Programs that act on mail by themselves belong to the site where the mail came in, not to the
 * one it is copied to (F39). */
static const char *const behaviour_plugins[] = {
    "sieve",         "imap_sieve",  "lazy_expunge", "trash",      "expire",  "push_notification",
    "notify_status", "quota_clone", "replication",  "autocreate", "welcome", NULL};

/* --- memory and errors ------------------------------------------------------------------------ */

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, n);
}

const struct orset_alloc *session_alloc(void)
{
    static const struct orset_alloc heap = {NULL, resize};
    return &heap;
}

int session_fail(struct session *s, const char *fmt, ...)
{
    va_list va;
    /* The first reason is the one that counts. */
    if (str_len(s->error) == 0) {
        va_start(va, fmt);
        str_vprintfa(s->error, fmt, va);
        va_end(va);
    }
    return -1;
}

int session_core_failed(struct session *s, const char *what)
{
    return session_fail(s, "%s: %s", what, orset_error_text(s->os));
}

const char *session_error(struct session *s)
{
    return str_c(s->error);
}

/* What is retried says the same again and again. */
static bool said_lately(struct session *s, const char *text)
{
    uint64_t hash = orset_hash(text, strlen(text)).lo;
    time_t now = time(NULL);
    for (unsigned i = 0; i < N_ELEMENTS(s->said); i++)
        if (s->said[i].hash == hash && now - s->said[i].at < SAY_AGAIN_SECS)
            return TRUE;
    s->said[s->said_next].hash = hash;
    s->said[s->said_next].at = now;
    s->said_next = (s->said_next + 1) % N_ELEMENTS(s->said);
    return FALSE;
}

void session_note(struct session *s, enum note_level level, const char *fmt, ...)
{
    va_list va;
    struct frame f = {.type = FRAME_NOTE};
    va_start(va, fmt);
    const char *text = t_strdup_vprintf(fmt, va);
    va_end(va);
    if (said_lately(s, text))
        return;
    f.u.note.level = level;
    f.u.note.text = (struct text){(const uint8_t *)text, I_MIN(strlen(text), FRAME_TEXT_MAX)};
    if (level != NOTE_DEBUG && link_send(s->link, &f) == 0)
        return; /* main logs it */
    switch (level) {
    case NOTE_ERROR: e_error(s->event, "%s", text); break;
    case NOTE_WARNING: e_warning(s->event, "%s", text); break;
    case NOTE_INFO: e_info(s->event, "%s", text); break;
    case NOTE_DEBUG: e_debug(s->event, "%s", text); break;
    }
}

uint64_t clock_msecs(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void session_want_tick(struct session *s, unsigned msecs)
{
    if (s->tick == 0 || msecs < s->tick)
        s->tick = msecs;
}

void session_send(struct session *s, uint64_t site, enum parcel_kind kind, bool bulk,
                  const void *body, size_t len)
{
    struct frame f = {.type = FRAME_SEND};
    f.u.send.site = site;
    f.u.send.kind = kind;
    f.u.send.bulk = bulk;
    f.u.send.body = (struct text){body, len};
    (void)link_send(s->link, &f);
}

void session_send_batch(struct session *s, uint64_t site, uint64_t first, const void *body,
                        size_t len)
{
    struct frame f = {.type = FRAME_SEND};
    f.u.send = (struct frame_parcel){
        .site = site, .kind = PARCEL_BATCH, .first = first, .body = {body, len}};
    (void)link_send(s->link, &f);
}

/* --- namespaces ------------------------------------------------------------------------------- */

bool storage_known(const struct mail_storage *storage)
{
    return strcmp(storage->name, "sdbox") == 0 || strcmp(storage->name, "mdbox") == 0 ||
           strcmp(storage->name, "maildir") == 0;
}

/* The mailbox's storage is one that replicates: sdbox, mdbox, maildir with an index on disk
 * (F8). */
static bool storage_ok(struct mail_namespace *ns, const char **error_r)
{
    const char *path;
    struct mail_storage *storage = mail_namespace_get_default_storage(ns);
    if (storage == NULL || !storage_known(storage)) {
        *error_r = t_strdup_printf(
            "namespace %s: storage %s is not replicated; sdbox, mdbox and maildir are",
            compat_namespace_name(ns), storage == NULL ? "none" : storage->name);
        return FALSE;
    }
    if (!mailbox_list_get_root_path(ns->list, MAILBOX_LIST_PATH_TYPE_INDEX, &path) ||
        *path == '\0') {
        *error_r = t_strdup_printf(
            "namespace %s: the index is in memory only, its log cannot be followed: "
            "give the mail location an index directory",
            compat_namespace_name(ns));
        return FALSE;
    }
    return TRUE;
}

bool session_has_namespace(struct session *s, struct mail_namespace *ns)
{
    const char *name = compat_namespace_name(ns);
    if (ns->type == MAIL_NAMESPACE_TYPE_SHARED ||
        (ns->type == MAIL_NAMESPACE_TYPE_PUBLIC &&
         strcmp(s->group->public_user, s->user->username) != 0) ||
        ns->alias_for != NULL)
        return FALSE;
    for (unsigned i = 0; i < s->group->nnamespaces; i++)
        if (strcmp(s->group->ns[i], name) == 0)
            return TRUE;
    return FALSE;
}

/* One that only some users have is nothing; one that no user has is a slip of the pen, and its
 * folders would go nowhere. */
static void say_unknown_namespaces(struct session *s)
{
    static bool said;
    for (unsigned i = 0; i < s->group->nnamespaces && !said; i++) {
        struct mail_namespace *ns = s->user->namespaces;
        while (ns != NULL && strcmp(compat_namespace_name(ns), s->group->ns[i]) != 0)
            ns = ns->next;
        if (ns == NULL) {
            said = TRUE;
            e_warning(s->event,
                      "replicate_namespaces names \"%s\", but this user has no namespace section "
                      "of that name; "
                      "nothing more is said of it",
                      s->group->ns[i]);
        }
    }
}

static const char *no_namespace(struct session *s)
{
    string_t *text = t_str_new(128);
    str_append(text, "no namespace of this user is named in replicate_namespaces, which has");
    for (unsigned i = 0; i < s->group->nnamespaces; i++)
        str_printfa(text, "%s \"%s\"", i > 0 ? "," : "", s->group->ns[i]);
    str_append(text, "; this user's namespace sections are");
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL; ns = ns->next)
        str_printfa(text, "%s \"%s\"", ns != s->user->namespaces ? "," : "",
                    compat_namespace_name(ns));
    return str_c(text);
}

static bool namespaces_ok(struct session *s, const char **error_r)
{
    unsigned n = 0;
    say_unknown_namespaces(s);
    for (struct mail_namespace *ns = s->user->namespaces; ns != NULL; ns = ns->next) {
        if (!session_has_namespace(s, ns))
            continue;
        n++;
        if (!storage_ok(ns, error_r))
            return FALSE;
    }
    if (n == 0)
        *error_r = no_namespace(s);
    return n > 0;
}

static bool plugins_ok(struct session *s, const char **error_r)
{
    for (const char *const *p = compat_mail_plugins(s->user); *p != NULL; p++) {
        const char *name = *p;
        if (str_begins_with(name, "dovelane"))
            continue;
        for (const char *const *b = behaviour_plugins; *b != NULL; b++)
            if (strcmp(name, *b) == 0) {
                *error_r = t_strdup_printf(
                    "plugin %s would act on replicated mail: leave it out of mail_plugins in "
                    "protocol dovelane { }",
                    name);
                return FALSE;
            }
    }
    return TRUE;
}

int session_open_file(struct session *s, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd != -1 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    if (fd == -1 && errno != ELOOP && errno != ENXIO)
        return -1;
    i_close_fd(&fd);
    errno = unlink(path) < 0 ? errno : ENOENT;
    session_note(s, NOTE_WARNING, "%s is no regular file: %s", path,
                 errno == ENOENT ? "removed" : strerror(errno));
    return -1;
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

static uint64_t random_number(void)
{
    uint64_t n;
    do
        random_fill(&n, sizeof n);
    while (n == 0);
    return n;
}

struct file_id file_id(const char *path)
{
    struct statx st;
    if (path == NULL || statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &st) < 0)
        return (struct file_id){0};
    return (struct file_id){(uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor, st.stx_ino,
                            (st.stx_mask & STATX_BTIME) == 0
                                ? 0
                                : (uint64_t)st.stx_btime.tv_sec * 1000000000U +
                                      st.stx_btime.tv_nsec};
}

bool same_file(const struct file_id *then, const char *path)
{
    struct file_id now = file_id(path);
    return now.dev == then->dev && now.ino == then->ino && now.born == then->born;
}

static const char *state_path(struct session *s)
{
    return t_strconcat(s->dir, "/state.db", NULL);
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

static int open_state(struct session *s, const char **error_r)
{
    int r = read_state(s, error_r);
    if (r != -2)
        return r;
    if (s->os != NULL)
        orset_close(s->os);
    s->os = NULL;
    if (s->db != NULL)
        state_sqlite_close(s->db);
    s->db = NULL;
    mailbox_table_clear(s);
    state_put_aside(s, state_path(s), *error_r);
    str_truncate(s->error, 0);
    *error_r = NULL;
    return read_state(s, error_r) < 0 ? -1 : 0;
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
        box_unread(*x);
        if (r >= 0 && rows_put_box(s, *x) < 0)
            r = -1;
    }
    if (r >= 0 && session_commit(s) >= 0)
        return 0;
    *error_r = session_error(s);
    return -1;
}

/* A state with nobody to ask ingests at once. */
static int ask_first(struct session *s)
{
    s->exchange_first = s->npeers > 0;
    s->unasked = s->read = FALSE;
    for (unsigned i = 0; i < s->npeers; i++) {
        s->peer[i].answered = FALSE;
        if (rows_put_peer(s, &s->peer[i]) < 0)
            return -1;
    }
    s->join_until = s->join_since = 0;
    return rows_put_join(s);
}

/* What the mailboxes went through since is read with other eyes (ingest.c). */
static int exchange_first(struct session *s)
{
    struct box **x;
    array_foreach_modifiable (&s->boxes, x) {
        (*x)->rewound = TRUE;
        if (rows_put_box(s, *x) < 0)
            return -1;
    }
    /* A state that was just made is no old one: who did what in its mailboxes before it came is
     * not asked. */
    if (!s->created && rows_put_rewound(s, TRUE) < 0)
        return -1;
    return ask_first(s);
}

int session_join(struct session *s)
{
    struct box **x;
    int r = session_begin(s);
    if (r < 0)
        return -1;
    array_foreach_modifiable (&s->boxes, x) {
        (*x)->all = TRUE;
        box_unread(*x);
        if (r >= 0)
            r = rows_put_box(s, *x);
    }
    if (r < 0 || ask_first(s) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

static int session_init(struct session *s, bool *permanent_r, const char **error_r)
{
    *permanent_r = TRUE;
    if (!namespaces_ok(s, error_r) || !plugins_ok(s, error_r) || !session_keys_ok(s, error_r))
        return -1;
    *permanent_r = FALSE;
    for (unsigned i = 0; i < s->group->nsites; i++)
        if (s->group->site[i] != s->group->self)
            s->peer[s->npeers++].site = s->group->site[i];
    if (open_directory(s, error_r) < 0 || open_state(s, error_r) < 0)
        return -1;
    orset_bound_uid_validity(s->os, (uint32_t)I_MIN(time(NULL) + 86400, UINT32_MAX - 2));
    if (check_reserve(s, error_r) < 0 || check_root(s, error_r) < 0)
        return -1;
    if (s->created && (session_begin(s) < 0 || exchange_first(s) < 0 || session_commit(s) < 0)) {
        *error_r = session_error(s);
        return -1;
    }
    s->state_id = file_id(state_path(s));
    s->fully_open = TRUE;
    return 0;
}

static int look_up(struct mail_storage_service_ctx *storage_service, const char *username,
                   struct mail_storage_service_user **user_r, uint64_t *credentials_r,
                   bool *permanent_r, const char **error_r)
{
    struct mail_storage_service_input input;
    const char *const *fields;
    compat_input_init(&input, "dovelane", username);
    if (credentials_kept() != 0) {
        /* There is nothing left to drop, and root cannot be had again. */
        input.flags_override_remove = MAIL_STORAGE_SERVICE_FLAG_TEMP_PRIV_DROP;
        input.flags_override_add = MAIL_STORAGE_SERVICE_FLAG_NO_RESTRICT_ACCESS;
    }
    pool_t pool = pool_alloconly_create("userdb fields", 512);
    int r = compat_lookup(storage_service, &input, pool, user_r, &fields, error_r);
    if (r > 0)
        *credentials_r = credentials_of(*user_r, fields);
    pool_unref(&pool);
    *permanent_r = r == 0;
    if (r == 0)
        *error_r = "no such user";
    return r > 0 ? 0 : -1;
}

uint64_t user_credentials(struct mail_storage_service_ctx *storage_service, const char *username,
                          const char **name_r, bool *permanent_r, const char **error_r)
{
    struct mail_storage_service_user *service_user;
    uint64_t credentials;
    if (look_up(storage_service, username, &service_user, &credentials, permanent_r, error_r) < 0)
        return 0;
    *name_r = t_strdup(compat_service_username(service_user));
    mail_storage_service_user_unref(&service_user);
    return credentials;
}

static struct mail_user *open_user(struct mail_storage_service_ctx *storage_service,
                                   const char *username, uint64_t wanted, bool *permanent_r,
                                   const char **error_r)
{
    struct mail_storage_service_user *service_user;
    struct mail_user *user = NULL;
    uint64_t credentials;
    if (look_up(storage_service, username, &service_user, &credentials, permanent_r, error_r) < 0)
        return NULL;
    if ((wanted != 0 && wanted != credentials) || !credentials_fit(service_user, credentials)) {
        *error_r = NULL;
    } else {
        /* Another connection might be for another user. So the listener goes before anything of
         * this one's is read. */
        master_service_stop_new_connections(master_service);
        if (mail_storage_service_next(storage_service, service_user, &user, error_r) < 0)
            user = NULL;
        credentials_keep(credentials);
    }
    mail_storage_service_user_unref(&service_user); /* the mail_user has its own */
    return user;
}

struct session *session_open(struct link *link, struct group *group,
                             struct mail_storage_service_ctx *storage_service, const char *username,
                             uint64_t credentials, bool *permanent_r, const char **error_r)
{
    struct mail_user *user =
        open_user(storage_service, username, credentials, permanent_r, error_r);
    if (user == NULL)
        return NULL;
    pool_t pool = pool_alloconly_create("session", 1024);
    struct session *s = p_new(pool, struct session, 1);
    s->pool = pool;
    s->group = group;
    s->link = link;
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
    s->plan = plan_create();
    /* not the same site first in each session: it may be down */
    s->ask_next = (unsigned)time(NULL);
    i_array_init(&s->pending_wants, 1);
    i_array_init(&s->failing, 4);
    /* Quotas were asked and rights were checked where the change was made. */
    user->dsyncing = TRUE;
    if (session_init(s, permanent_r, error_r) < 0) {
        *error_r = t_strdup(*error_r != NULL ? *error_r : session_error(s));
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
    plan_free(&s->plan);
    give_free(s);
    array_free(&s->failing);
    i_close_fd(&s->lock_fd);
    event_unref(&s->event);
    compat_user_deinit(&s->user);
    str_free(&s->error);
    pool_unref(&s->pool);
}

/* --- commits ---------------------------------------------------------------------------------- */

int session_begin(struct session *s)
{
    if (s->stale) {
        if (rows_load(s) < 0)
            return -1;
        s->stale = FALSE;
    }
    return orset_begin(s->os) < 0 ? session_core_failed(s, "begin") : 0;
}

void session_rollback(struct session *s)
{
    orset_rollback(s->os);
    s->stale = TRUE;
}

int session_commit(struct session *s)
{
    struct orset_origin self = orset_origin_get(s->os, orset_self(s->os));
    uint64_t counter = orset_vector_get(s->os, orset_self(s->os));
    bool numbers = counter != s->noted;
    if (numbers && link_reserve(s->link, FRAME_RESERVE_RAISE, self.epoch, counter, NULL) < 0) {
        session_rollback(s);
        return session_fail(s, "the reserve file cannot be written");
    }
    if (orset_commit(s->os) < 0) {
        s->stale = TRUE;
        return session_core_failed(s, "commit");
    }
    s->noted = counter;
    if (numbers)
        (void)link_reserve(s->link, FRAME_RESERVE_NOTE, self.epoch, counter, NULL);
    return 0;
}

int session_new_epoch(struct session *s, const char *why)
{
    session_note(s, NOTE_WARNING,
                 "new epoch: %s; exchanging with the other sites before the next ingest", why);
    for (unsigned i = 0; i < s->npeers; i++) {
        struct peer *p = &s->peer[i];
        if (p->exchange != NULL)
            orset_exchange_free(s->os, p->exchange);
        p->exchange = NULL;
    }
    if (session_begin(s) < 0)
        return -1;
    if (orset_new_epoch(s->os, random_number()) < 0) {
        session_rollback(s);
        return session_core_failed(s, "new epoch");
    }
    for (unsigned i = 0; i < s->npeers; i++) {
        s->peer[i].confirmed = s->peer[i].sent = 0;
        if (rows_put_peer(s, &s->peer[i]) < 0) {
            session_rollback(s);
            return -1;
        }
    }
    if (exchange_first(s) < 0) {
        session_rollback(s);
        return -1;
    }
    s->noted = UINT64_MAX; /* the new epoch is to be reserved and noted, whatever its counter */
    return session_commit(s);
}
