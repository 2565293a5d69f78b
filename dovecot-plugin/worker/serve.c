/* serve - main's questions: each is answered before the next one is read. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/exchange/exchange.h"
#include "dovecot-plugin/worker/ingest/reading.h"
#include "dovecot-plugin/worker/session/choice.h"
#include "dovecot-plugin/worker/session/credentials.h"
#include "dovecot-plugin/worker/session/link.h"
#include "dovecot-plugin/worker/session/retired.h"
#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/worker.h"

#include <buffer.h>
#include <str.h>

#include <sys/resource.h>

struct server {
    struct link *link;
    struct mail_storage_service_ctx *storage_service;
    void (*ended)(void);
    struct group group;
    pool_t group_pool;
    unsigned patience; /* link_set_patience() */
    buffer_t *retired; /* origins, of the user who is opened next, or is open */
    struct session *session;
};

static struct server *the_server;

/* --- HELLO ------------------------------------------------------------------------------------ */

static const char *text_dup(pool_t pool, struct text t)
{
    return p_strndup(pool, t.p, t.n);
}

/* "3 4 " */
static void take_sites(struct group *g, const char *list)
{
    const char *const *each;
    uint64_t site;
    for (each = t_strsplit_spaces(list, " "); *each != NULL && g->nstubbing < FRAME_SITES_MAX;
         each++)
        if (str_to_uint64(*each, &site) == 0)
            g->stubbing[g->nstubbing++] = site;
}

static void take_hello(struct server *v, const struct frame_hello *h)
{
    static const char here[] = "the process is there";
    struct group *g = &v->group;
    if (h->version != FRAME_VERSION) {
        i_error("dovelane-replicator speaks version %u of the frames, this worker %d: restart "
                "Dovecot, so that both are of one version",
                h->version, FRAME_VERSION);
        link_break(v->link);
        return;
    }
    i_zero(g);
    p_clear(v->group_pool);
    g->known = TRUE;
    g->self = h->self;
    g->nsites = (unsigned)h->nsites;
    memcpy(g->site, h->site, h->nsites * sizeof h->site[0]);
    g->nnamespaces = (unsigned)h->nnamespaces;
    for (unsigned i = 0; i < g->nnamespaces; i++)
        g->ns[i] = text_dup(v->group_pool, h->ns[i]);
    g->public_user = g->replicas = "";
    g->brake_count = 20;
    g->brake_percent = 10;
    g->brake_wait = 2000;
    g->log_placed = g->backup = g->on_demand = g->questions = FALSE;
    g->on_demand_from = UINT64_MAX;
    g->nstubbing = 0;
    g->keep_expunged = 0;
    for (size_t i = 0; i < h->nsettings; i++) {
        const char *key = t_strndup(h->setting[i].key.p, h->setting[i].key.n);
        const char *value = text_dup(v->group_pool, h->setting[i].value);
        unsigned n;
        uint64_t ms;
        if (strcmp(key, "public_user") == 0)
            g->public_user = value;
        else if (strcmp(key, "replicas") == 0)
            g->replicas = value;
        else if (strcmp(key, "brake_count") == 0 && str_to_uint(value, &n) == 0)
            g->brake_count = n;
        else if (strcmp(key, "brake_percent") == 0 && str_to_uint(value, &n) == 0)
            g->brake_percent = n;
        else if (strcmp(key, "worker_timeout") == 0 && str_to_uint(value, &n) == 0)
            v->patience = frame_patience(n);
        else if (strcmp(key, "log_placed") == 0)
            g->log_placed = strcmp(value, "yes") == 0;
        else if (strcmp(key, "role") == 0)
            g->backup = strcmp(value, "backup") == 0,
            g->on_demand = strcmp(value, "on-demand") == 0;
        else if (strcmp(key, "on_demand_from") == 0 && str_to_uint64(value, &ms) == 0)
            g->on_demand_from = ms;
        else if (strcmp(key, "on_demand_sites") == 0)
            take_sites(g, value);
        else if (strcmp(key, "questions") == 0)
            g->questions = strcmp(value, "yes") == 0;
        else if (strcmp(key, "keep_expunged") == 0 && str_to_uint64(value, &ms) == 0)
            g->keep_expunged = (time_t)(ms / 1000);
        else if (strcmp(key, "brake_wait") == 0 && str_to_uint(value, &n) == 0)
            g->brake_wait = n;
        else if (strcmp(key, "nice") == 0 && str_to_uint(value, &n) == 0 &&
                 setpriority(PRIO_PROCESS, 0, (int)n) < 0)
            i_warning("setpriority(%u): %m", n);
    }
    link_set_patience(v->link, v->patience);
    const struct text text = {(const uint8_t *)here, strlen(here)};
    /* While it is root's: a process that its user stops before its first word would be taken for
     * one that Dovecot did not start. */
    if (credentials_kept() == 0)
        (void)link_send(v->link, &(struct frame){.type = FRAME_NOTE, .u.note = {NOTE_DEBUG, text}});
}

/* --- questions -------------------------------------------------------------------------------- */

static void send_fail(struct server *v, const struct failure *why)
{
    struct frame f = {.type = FRAME_FAIL};
    size_t n = strlen(why->text);
    f.u.fail.permanent = why->permanent;
    f.u.fail.nobody = why->nobody;
    f.u.fail.unwanted = why->unwanted;
    f.u.fail.text = (struct text){(const uint8_t *)why->text, I_MIN(n, FRAME_TEXT_MAX)};
    (void)link_send(v->link, &f);
}

/* The last frame: this process ends. */
static void send_elsewhere(struct server *v)
{
    (void)link_send(v->link, &(struct frame){.type = FRAME_ELSEWHERE});
    link_break(v->link);
}

#define UNPLACED_AGAIN 10000 /* milliseconds */

/* What main shows an admin, and adds up. */
static void say_progress(struct session *s, struct frame_done *d)
{
    count_waiting(s);
    d->unseen = s->unseen;
    d->unplaced = s->unplaced;
    d->held = s->quarantined;
    d->names = s->names_waiting;
    d->state_bytes = session_state_bytes(s);
    switch (s->join.phase) {
    case JOIN_ASKING: d->joins = FRAME_JOINING; break;
    case JOIN_ALONE: d->joins = FRAME_UNASKED; break;
    case JOINED: d->joins = peers_are_reading(s) ? FRAME_READING : FRAME_JOINED; break;
    }
    d->placed = s->placed;
    d->placed_bytes = s->placed_bytes;
    s->placed = s->placed_bytes = 0;
    d->kept = s->kept.mails;
    d->kept_bytes = s->kept.bytes;
    d->kept_restored = s->kept.restored;
    d->kept_purged = s->kept.purged;
    d->kept_failed = s->kept.failed;
    s->kept.mails = s->kept.bytes = s->kept.restored = s->kept.purged = 0;
}

static void send_done(struct server *v, enum frame_result result)
{
    struct session *s = v->session;
    struct frame f = {.type = FRAME_DONE};
    struct frame_done *d = &f.u.done;
    const char *text = result == FRAME_OK ? "" : session_error(s);
    uint64_t counter = orset_vector_get(s->os, orset_self(s->os));
    retired_tell_origins(s);
    d->result = result;
    d->text = (struct text){(const uint8_t *)text, I_MIN(strlen(text), FRAME_TEXT_MAX)};
    for (unsigned i = 0; i < s->npeers; i++) {
        const struct peer *p = &s->peer[i];
        d->site[d->nsites++] =
            (struct frame_site){.site = p->site,
                                .unconfirmed = counter > p->confirmed ? counter - p->confirmed : 0,
                                .behind = p->behind,
                                .owed = p->owed,
                                .more = p->more,
                                .asking = p->exchange != NULL};
    }
    say_progress(s, d);
    /* Their bodies were asked for by another question than this one, perhaps of a session that
     * was closed since. */
    d->tick = s->tick == 0 && s->unplaced > 0 && s->npeers > 0 ? UNPLACED_AGAIN : s->tick;
    /* The word that it has read may be lost, and main is told when nobody waits for it any
     * longer. */
    uint64_t read = d->joins == FRAME_READING ? peers_read_within(s) : 0;
    d->tick = read > 0 && (d->tick == 0 || read < d->tick) ? read : d->tick;
    (void)link_send(v->link, &f);
}

static void look_up(struct server *v, struct text user)
{
    struct frame f = {.type = FRAME_CREDENTIALS};
    struct failure why = {.text = "this worker has opened somebody: ask another one"};
    const struct failure bad_name = {
        .permanent = TRUE,
        .text = "the userdb gives him a name that cannot be replicated: empty, too long, or with "
                "control characters or a slash"};
    const char *name = NULL;
    if (credentials_kept() == 0)
        f.u.credentials.number =
            user_credentials(v->storage_service, t_strndup(user.p, user.n), &name, &why);
    if (f.u.credentials.number == 0) {
        send_fail(v, &why);
        return;
    }
    f.u.credentials.user = (struct text){(const uint8_t *)name, strlen(name)};
    if (frame_user_ok(f.u.credentials.user.p, f.u.credentials.user.n))
        (void)link_send(v->link, &f);
    else
        send_fail(v, &bad_name);
}

/* failure_r as session_open() has it. */
static bool open_session(struct server *v, const struct open_user *user, struct failure *failure_r)
{
    i_assert(v->session == NULL);
    v->session = session_open(v->link, &v->group, v->storage_service, user, failure_r);
    link_set_user_open(v->link, v->session != NULL);
    return v->session != NULL;
}

static void close_session(struct server *v)
{
    link_set_user_open(v->link, FALSE);
    session_close(&v->session);
}

static void open_user(struct server *v, const struct open_user *user)
{
    struct frame f = {.type = FRAME_READY};
    struct failure why;
    uint64_t lowest;
    (void)open_session(v, user, &why);
    if (v->session == NULL && why.text == NULL) {
        send_elsewhere(v);
        return;
    }
    if (v->session == NULL) {
        send_fail(v, &why);
        return;
    }
    choice_tell(v->session);
    retired_tell_origins(v->session);
    f.u.ready.created = v->session->created;
    f.u.ready.exchange = is_joining(v->session);
    (void)orset_out(v->session->os, &f.u.ready.unconfirmed, &lowest);
    (void)link_send(v->link, &f);
}

static enum frame_result result_of(int r)
{
    return r < 0 ? FRAME_TEMPORARY : FRAME_OK;
}

/* ADMIN "users" without an open user: all that the userdb lists. */
static void list_users(struct server *v)
{
    struct frame f = {.type = FRAME_DONE};
    const char *user;
    int r;
    if (credentials_kept() != 0) {
        f.u.done.result = FRAME_REFUSED;
        (void)link_send(v->link, &f);
        return;
    }
    /* Auth lists for root alone: where the service is not root's, this cannot be had. Not "":
     * 2.4 compares it with the names of a passwd-file, and lists none. */
    mail_storage_service_all_init_mask(v->storage_service, "*");
    while ((r = mail_storage_service_all_next(v->storage_service, &user)) > 0)
        link_reply(v->link, "%s", user);
    if (r < 0)
        f.u.done.result = FRAME_REFUSED;
    (void)link_send(v->link, &f);
}

static enum frame_result run_admin(struct session *s, const struct frame *f)
{
    const char *args[FRAME_ARGS_MAX + 1];
    for (size_t i = 0; i < f->u.admin.n; i++)
        args[i] = t_strndup(f->u.admin.arg[i].p, f->u.admin.arg[i].n);
    args[f->u.admin.n] = NULL;
    return admin(s, args);
}

/* The user anew, before anything is concluded from files that are not there any more. */
static bool reopen(struct server *v, const struct frame *f)
{
    const struct open_user user = {.name = t_strdup(v->session->user->username),
                                   .existing = f->type == FRAME_ADMIN &&
                                               frame_verb_reads(f->u.admin.arg[0]),
                                   .retired = {v->retired->data, v->retired->used}};
    struct failure why;
    close_session(v);
    if (open_session(v, &user, &why)) {
        choice_tell(v->session);
        v->session->scan_again = TRUE; /* the question may be about something else */
        return TRUE;
    }
    if (why.text == NULL)
        why.text = "the user has other credentials than before: a new worker will open it";
    if (user.existing) /* of one whose state went meanwhile main is not to forget what it knows */
        why.permanent = why.nobody = why.unwanted = FALSE;
    send_fail(v, &why);
    return FALSE;
}

static void serve_user(struct server *v, const struct frame *f)
{
    if (session_replaced(v->session) && !reopen(v, f))
        return;
    struct session *s = v->session;
    enum frame_result result = FRAME_OK;
    s->tick = 0;
    s->send_room = OUTBOX_MOST;
    str_truncate(s->error, 0);
    /* Before anybody holds a mailbox of those that are read anew. */
    if (session_fresh(s) < 0) {
        send_done(v, FRAME_TEMPORARY);
        return;
    }
    switch (f->type) {
    case FRAME_INGEST: result = result_of(round_ingest(s, &f->u.ingest)); break;
    case FRAME_PARCEL: result = parcel_take(s, &f->u.parcel); break;
    case FRAME_SHIP:
        result = result_of(ship(s, f->u.ship.site, f->u.ship.how, f->u.ship.from));
        break;
    case FRAME_TICK: result = result_of(round_tick(s)); break;
    case FRAME_ADMIN: result = run_admin(s, f); break;
    default: i_unreached();
    }
    s->scanned = s->scanned || f->type == FRAME_INGEST || f->type == FRAME_TICK;
    send_done(v, round_end(s, result));
}

static void close_user(struct server *v)
{
    struct frame f = {.type = FRAME_DONE};
    close_session(v);
    buffer_set_used_size(v->retired, 0);
    (void)link_send(v->link, &f);
}

static void serve(struct server *v, const struct frame *f)
{
    switch (f->type) {
    case FRAME_HELLO: take_hello(v, &f->u.hello); return;
    case FRAME_RETIRED:
        buffer_set_used_size(v->retired, 0);
        buffer_append(v->retired, f->u.origins.p, f->u.origins.n);
        return;
    case FRAME_OPEN:
        if (v->group.known && v->session == NULL) {
            const struct open_user user = {
                .name = t_strndup(f->u.open.user.p, f->u.open.user.n),
                .credentials = f->u.open.credentials,
                .existing = f->u.open.existing,
                .retired = {v->retired->data, v->retired->used},
            };
            open_user(v, &user);
            if (v->session == NULL)
                buffer_set_used_size(v->retired, 0);
            return;
        }
        break;
    case FRAME_LOOKUP:
        if (v->group.known && v->session == NULL) {
            look_up(v, f->u.lookup.user);
            return;
        }
        break;
    case FRAME_INGEST:
    case FRAME_PARCEL:
    case FRAME_SHIP:
    case FRAME_TICK:
    case FRAME_ADMIN:
        if (v->session != NULL) {
            serve_user(v, f);
            return;
        }
        if (f->type == FRAME_ADMIN && f->u.admin.n == 1 && f->u.admin.arg[0].n == 5 &&
            memcmp(f->u.admin.arg[0].p, "users", 5) == 0) {
            list_users(v);
            return;
        }
        break;
    case FRAME_CLOSE:
        if (v->session != NULL) {
            close_user(v);
            return;
        }
        break;
    default: break;
    }
    i_error("main sent frame %d out of turn", f->type);
    link_break(v->link);
}

/* --- life ------------------------------------------------------------------------------------- */

static void asked(void *owner, const struct frame *f)
{
    serve(owner, f);
}

static void link_ended(void *owner)
{
    struct server *v = owner;
    void (*ended)(void) = v->ended;
    serve_end();
    ended();
}

void serve_begin(int fd, struct mail_storage_service_ctx *storage_service, void (*ended)(void))
{
    static const struct link_events events = {asked, link_ended};
    i_assert(the_server == NULL);
    struct server *v = the_server = i_new(struct server, 1);
    v->storage_service = storage_service;
    v->ended = ended;
    v->group_pool = pool_alloconly_create("group", 1024);
    v->retired = buffer_create_dynamic(default_pool, 64);
    v->link = link_create(fd, &events, v);
}

void serve_end(void)
{
    struct server *v = the_server;
    if (v == NULL)
        return;
    the_server = NULL;
    link_put_off_end(v->link);
    if (v->session != NULL)
        close_session(v);
    link_destroy(&v->link);
    buffer_free(&v->retired);
    pool_unref(&v->group_pool);
    i_free(v);
}
