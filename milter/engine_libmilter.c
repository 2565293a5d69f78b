/* engine_libmilter - the engine on libmilter, which has threads of its own: one for each
 * connection, or a pool of them (as Debian builds it).
 *
 *   the thread a session is in               the loop's thread
 *   ───────────────────────────────          ─────────────────
 *   connect ... body: session.c gathers
 *   end of message ──── NEWS_END ──────────▶ milter_session_end: rules, maps, store
 *      waits ◀────────── progress ────────── now and then
 *      smfi_progress fails ── NEWS_LOST ───▶ milter_session_lost
 *      waits ◀─────────── answer ─────────── the store has an outcome
 *   tells libmilter ──── NEWS_TOLD ────────▶ milter_session_answered
 *   (or not ────────── NEWS_UNTOLD)
 *   (heard too late ─── NEWS_LATE) ────────▶ milter_session_late: the same once more, or another
 *   the next mail waits ◀── over ─────────── nothing is left of this one
 *
 * What the threads share is guarded by shared.lock. A session's mail belongs to the thread that it
 * is in, and to the loop's between NEWS_END and `over`.
 *
 * Since when does Postfix wait for the end of a message? It writes that after it has our answer to
 * the end of the header. So this one step is answered, and that moment counts. All others are not,
 * as in the engine of our own.
 *
 * What libmilter does not let us do: it does not say which descriptor a session has. So nobody
 * reads from a session whose message is complete. That Postfix hung up is noticed when progress
 * is written: every few seconds, and right before the answer. And a connection cannot be closed
 * at once: a message that must not be answered is left without an answer, and so are all others
 * of that session. Postfix ends it after content_timeout. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <libmilter/mfapi.h>
#include <libmilter/mfdef.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/daemon/listener.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "lib/daemon/program.h"
#include "milter/peer_credentials.h"
#include "milter/session.h"

#define NO_REPLIES                                                                  \
    (SMFIP_NR_HDR | SMFIP_NR_CONN | SMFIP_NR_HELO | SMFIP_NR_MAIL | SMFIP_NR_RCPT | \
     SMFIP_NR_DATA | SMFIP_NR_UNKN | SMFIP_NR_BODY)
#define NEEDED (SMFIP_HDR_LEADSPC | NO_REPLIES)
#define NOT_SENT (SMFIP_NOUNKNOWN | SMFIP_NODATA) /* if the mail server can leave it out */
#define PACKET_MOST (1024 * 1024 - 1)
#define QUEUE 4096 /* connections that may wait */
/* seconds between the order to answer and the answer: the store's promise is of that moment */
#define TELL_WITHIN 1.
/* seconds: libmilter writes an answer after the callback, and does not say when */
#define WRITE_WITHIN 1.

/* A change to Postfix's copy of the mail. */
struct change {
    char *text;      /* a recipient, or a header's name */
    uint32_t number; /* of the header; 0: a recipient */
};

enum news { NEWS_END = 1, NEWS_LOST = 2, NEWS_TOLD = 4, NEWS_UNTOLD = 8, NEWS_LATE = 16 };

struct peer {
    struct peer *prev, *next;
    struct peer *next_news; /* of those that have some for the loop */
    unsigned news;
    SMFICTX *ctx;
    struct milter_session *session;
    char *queue_id;
    double since; /* our answer to the end of the header */
    _Atomic enum { BETWEEN, IN_MAIL, COMPLETE } stage;
    bool dead;   /* nothing of it is answered any more */
    double told; /* when the last answer was given to libmilter */
    /* orders of the loop */
    pthread_cond_t ordered; /* or the stage is another one */
    bool progress_due, answer_due;
    double answer_ordered;
    enum engine_answer answer;
    char *reply;
    struct change *change;
    size_t nchanges;
};

static struct {
    pthread_mutex_t lock;
    struct peer *first;            /* all */
    struct peer *news, **news_end; /* those that have some */
    ev_async wake;
    struct listener *listener;
    bool stopping;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .news_end = &shared.news};

static void lock(void)
{
    pthread_mutex_lock(&shared.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&shared.lock);
}

/* ---- from a session to the loop ---- */

static void post(struct peer *p, enum news news)
{
    if (!p->news) {
        p->next_news = NULL;
        *shared.news_end = p;
        shared.news_end = &p->next_news;
    }
    p->news |= news;
    ev_async_send(milter.loop, &shared.wake);
}

static struct peer *next_news(unsigned *news_r)
{
    lock();
    struct peer *p = shared.news;
    if (p) {
        shared.news = p->next_news;
        if (!shared.news)
            shared.news_end = &shared.news;
        *news_r = p->news;
        p->news = 0;
    }
    unlock();
    return p;
}

static void order_answer(struct peer *p)
{
    p->answer_ordered = clock_boottime();
    p->answer_due = true;
    pthread_cond_broadcast(&p->ordered);
}

static void on_late(struct peer *p)
{
    if (!milter_session_late(p->session))
        return;
    lock();
    order_answer(p);
    unlock();
}

/* The peer may be gone when the session has heard of it. */
static void on_news(struct ev_loop *loop, ev_async *w, int events)
{
    struct peer *p;
    for (unsigned news; (p = next_news(&news));) {
        struct milter_session *s = p->session;
        if (news & NEWS_END)
            milter_session_end(s, p->queue_id, p->since);
        if (news & NEWS_LOST)
            milter_session_lost(s);
        if (news & (NEWS_TOLD | NEWS_UNTOLD))
            milter_session_answered(s, news & NEWS_TOLD);
        if (news & NEWS_LATE)
            on_late(p);
    }
}

/* ---- the end of a message, in the session's thread ---- */

static void set(char **field, const char *value)
{
    free(*field);
    *field = value ? mem_strdup(value) : NULL;
}

static bool make_change(struct peer *p, const struct change *c)
{
    if (c->number)
        return smfi_chgheader(p->ctx, c->text, (int)c->number, NULL) == MI_SUCCESS;
    return smfi_delrcpt(p->ctx, c->text) == MI_SUCCESS;
}

/* "451 4.3.0 text" */
static bool set_reply(struct peer *p)
{
    char *code = mem_strdup(p->reply), *status = code + 4, *text = strchr(status, ' ');
    bool good = text != NULL;
    if (good) {
        status[-1] = '\0';
        *text++ = '\0';
        good = smfi_setmlreply(p->ctx, code, status, text, NULL) == MI_SUCCESS;
    }
    free(code);
    return good;
}

static bool is_late(const struct peer *p)
{
    return clock_boottime() - p->answer_ordered > TELL_WITHIN;
}

/* Gives the answer if it is in time, and Postfix is there. To write may take long, too. */
static enum news tell(struct peer *p, sfsistat *given_r)
{
    if (is_late(p))
        return NEWS_LATE;
    if (smfi_progress(p->ctx) != MI_SUCCESS)
        return NEWS_UNTOLD;
    if (is_late(p))
        return NEWS_LATE;
    for (size_t i = 0; i < p->nchanges; i++)
        if (!make_change(p, &p->change[i]))
            return NEWS_UNTOLD;
    if (p->answer == ENGINE_REPLY && !set_reply(p))
        return NEWS_UNTOLD;
    *given_r = p->answer == ENGINE_ACCEPT    ? SMFIS_ACCEPT
               : p->answer == ENGINE_DISCARD ? SMFIS_DISCARD
               : *p->reply == '4'            ? SMFIS_TEMPFAIL
                                             : SMFIS_REJECT;
    return NEWS_TOLD;
}

/* Without the lock while something is written. */
static void do_progress(struct peer *p)
{
    p->progress_due = false;
    unlock();
    bool written = smfi_progress(p->ctx) == MI_SUCCESS;
    lock();
    /* else it was over meanwhile, and on_close frees what the loop would hear of */
    if (!written && p->stage == COMPLETE)
        post(p, NEWS_LOST);
}

static bool do_answer(struct peer *p, sfsistat *given_r)
{
    p->answer_due = false;
    unlock();
    enum news news = tell(p, given_r);
    lock();
    p->told = clock_boottime();
    post(p, news);
    return news == NEWS_TOLD;
}

/* Hands the mail to the loop, and does what it orders. SMFIS_NOREPLY: there is no answer. */
static sfsistat ask(struct peer *p)
{
    sfsistat given = SMFIS_NOREPLY;
    bool told = false;
    set(&p->queue_id, smfi_getsymval(p->ctx, (char *)"i"));
    lock();
    if (!p->dead) {
        p->stage = COMPLETE;
        post(p, NEWS_END);
    }
    while (!told && p->stage == COMPLETE) {
        if (p->progress_due)
            do_progress(p);
        else if (p->answer_due)
            told = do_answer(p, &given);
        else
            pthread_cond_wait(&p->ordered, &shared.lock);
    }
    if (!told)
        p->dead = true;
    unlock();
    return told ? given : SMFIS_NOREPLY;
}

/* Waits until the loop is done with the mail before. False: nothing is heard any more. */
static bool settle(struct peer *p)
{
    lock();
    while (p->stage == COMPLETE)
        pthread_cond_wait(&p->ordered, &shared.lock);
    bool lives = !p->dead;
    unlock();
    return lives;
}

/* ---- callbacks ---- */

static sfsistat on_negotiate(SMFICTX *ctx, unsigned long actions, unsigned long steps,
                             unsigned long f2, unsigned long f3, unsigned long *actions_r,
                             unsigned long *steps_r, unsigned long *f2_r, unsigned long *f3_r)
{
    if (!(actions & SMFIF_DELRCPT) || (steps & NEEDED) != NEEDED) {
        milter_session_complain("the mail server does not offer what is needed (milter protocol 6, "
                                "delrcpt, leading space, "
                                "no replies): Postfix has it since 2.6");
        return SMFIS_REJECT;
    }
    *actions_r = SMFIF_DELRCPT | (actions & (SMFIF_SETSYMLIST | SMFIF_CHGHDRS));
    *steps_r = NEEDED | (steps & NOT_SENT);
    *f2_r = *f3_r = 0;
    if (actions & SMFIF_SETSYMLIST) {
        smfi_setsymlist(ctx, SMFIM_CONNECT, (char *)"j {client_name}");
        smfi_setsymlist(
            ctx, SMFIM_HELO,
            (char *)"{tls_version} {cipher} {cipher_bits} {cert_subject} {cert_issuer}");
        smfi_setsymlist(ctx, SMFIM_ENVFROM,
                        (char *)"{auth_type} {auth_authen} {auth_author} {mail_addr}");
        smfi_setsymlist(ctx, SMFIM_ENVRCPT, (char *)"{rcpt_mailer} {rcpt_host} {rcpt_addr}");
        smfi_setsymlist(ctx, SMFIM_EOM, (char *)"i");
    }
    return SMFIS_CONTINUE;
}

static struct peer *new_peer(SMFICTX *ctx)
{
    struct peer *p = mem_zero(sizeof *p);
    p->ctx = ctx;
    p->session = milter_session_new(&engine_libmilter, p);
    pthread_cond_init(&p->ordered, NULL);
    lock();
    p->dead = shared.stopping;
    p->next = shared.first;
    if (p->next)
        p->next->prev = p;
    shared.first = p;
    unlock();
    metric_add(milter_sessions, 1);
    smfi_setpriv(ctx, p);
    return p;
}

static sfsistat on_connect(SMFICTX *ctx, char *name, _SOCK_ADDR *address)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct peer *p = new_peer(ctx);
    unsigned port = 0;
    if (address && address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        port = ntohs(in->sin_port);
    } else if (address && address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
        port = ntohs(in6->sin6_port);
    }
    milter_session_connect(p->session, name, *text ? text : NULL, port);
    return SMFIS_NOREPLY;
}

static sfsistat on_helo(SMFICTX *ctx, char *name)
{
    struct peer *p = smfi_getpriv(ctx);
    if (p && settle(p))
        milter_session_helo(p->session, name);
    return SMFIS_NOREPLY;
}

static sfsistat on_mail(SMFICTX *ctx, char **argv)
{
    struct peer *p = smfi_getpriv(ctx);
    if (p && settle(p)) {
        milter_session_mail(p->session, argv);
        p->since = clock_boottime();
        p->stage = IN_MAIL;
    }
    return SMFIS_NOREPLY;
}

/* The session, while a mail is heard. */
static struct milter_session *in_mail(SMFICTX *ctx)
{
    struct peer *p = smfi_getpriv(ctx);
    return p && p->stage == IN_MAIL ? p->session : NULL;
}

static sfsistat on_rcpt(SMFICTX *ctx, char **argv)
{
    struct milter_session *s = in_mail(ctx);
    if (s)
        milter_session_rcpt(s, argv);
    return SMFIS_NOREPLY;
}

static sfsistat on_header(SMFICTX *ctx, char *name, char *value)
{
    struct milter_session *s = in_mail(ctx);
    if (s)
        milter_session_header(s, name, value);
    return SMFIS_NOREPLY;
}

static sfsistat on_eoh(SMFICTX *ctx)
{
    struct peer *p = smfi_getpriv(ctx);
    if (p)
        p->since = clock_boottime();
    return SMFIS_CONTINUE;
}

/* Content in the last packet, which Postfix never has there, would need SMFIS_CONTINUE: without
 * it libmilter does not call on_eom, and the message stays without an answer. */
static sfsistat on_body(SMFICTX *ctx, unsigned char *data, size_t len)
{
    struct milter_session *s = in_mail(ctx);
    if (s && len)
        milter_session_body(s, data, len);
    return SMFIS_NOREPLY;
}

static sfsistat on_eom(SMFICTX *ctx)
{
    return in_mail(ctx) ? ask(smfi_getpriv(ctx)) : SMFIS_NOREPLY;
}

static sfsistat on_abort(SMFICTX *ctx)
{
    struct peer *p = smfi_getpriv(ctx);
    if (p && settle(p)) {
        milter_session_abort(p->session);
        p->stage = BETWEEN;
    }
    return SMFIS_CONTINUE;
}

static void forget_orders(struct peer *p)
{
    for (size_t i = 0; i < p->nchanges; i++)
        free(p->change[i].text);
    free(p->change);
    p->change = NULL;
    p->nchanges = 0;
    set(&p->reply, NULL);
    p->progress_due = p->answer_due = false;
}

static sfsistat on_close(SMFICTX *ctx)
{
    struct peer *p = smfi_getpriv(ctx);
    if (!p) /* connected, and left without a word */
        return SMFIS_CONTINUE;
    settle(p);
    smfi_setpriv(ctx, NULL);
    lock();
    if (p->next)
        p->next->prev = p->prev;
    if (p->prev)
        p->prev->next = p->next;
    else
        shared.first = p->next;
    unlock();
    metric_add(milter_sessions, -1);
    milter_session_free(p->session);
    forget_orders(p);
    free(p->queue_id);
    pthread_cond_destroy(&p->ordered);
    free(p);
    return SMFIS_CONTINUE;
}

/* ---- what the loop orders ---- */

static const char *macro(void *peer, const char *name)
{
    return smfi_getsymval(((struct peer *)peer)->ctx, (char *)name);
}

/* No order is due while they are made. */
static void add_change(struct peer *p, const char *text, uint32_t number)
{
    p->change = mem_grow(p->change, (p->nchanges + 1) * sizeof *p->change);
    p->change[p->nchanges++] = (struct change){mem_strdup(text), number};
}

static void delete_recipient(void *peer, const char *given)
{
    add_change(peer, given, 0);
}

static void delete_header(void *peer, const char *name, uint32_t number)
{
    add_change(peer, name, number);
}

static bool progress(void *peer)
{
    struct peer *p = peer;
    lock();
    p->progress_due = true;
    pthread_cond_broadcast(&p->ordered);
    unlock();
    return true;
}

static void answer(void *peer, enum engine_answer answer, const char *reply)
{
    struct peer *p = peer;
    lock();
    p->answer = answer;
    set(&p->reply, reply);
    order_answer(p);
    unlock();
}

/* The session's thread waits until the mail is over: its memory is in use until then. */
static void hang_up(void *peer)
{
    (void)peer;
}

static void over(void *peer)
{
    struct peer *p = peer;
    forget_orders(p);
    lock();
    ASSERT(p->stage == COMPLETE);
    p->dead |= p->session->gone;
    p->stage = BETWEEN;
    pthread_cond_broadcast(&p->ordered);
    unlock();
}

/* ---- connections ---- */

/* libmilter calls accept(2) and does not say who connects. So this is the accept that it finds:
 * nothing else here calls that. The name in the object file is given apart, as C libraries
 * declare its arguments in different ways. */
int accept_for_libmilter(int fd, struct sockaddr *, socklen_t *) __asm__("accept");

int accept_for_libmilter(int fd, struct sockaddr *address, socklen_t *len)
{
    int connection = accept4(fd, address, len, SOCK_CLOEXEC);
    if (connection < 0 || peer_may_connect(connection))
        return connection;
    close(connection);
    errno = EINTR; /* libmilter tries again */
    return -1;
}

static struct smfiDesc description = {
    .xxfi_name = (char *)"dovelane",
    .xxfi_version = SMFI_VERSION,
    .xxfi_flags = SMFIF_DELRCPT | SMFIF_CHGHDRS | SMFIF_SETSYMLIST,
    .xxfi_connect = on_connect,
    .xxfi_helo = on_helo,
    .xxfi_envfrom = on_mail,
    .xxfi_envrcpt = on_rcpt,
    .xxfi_header = on_header,
    .xxfi_eoh = on_eoh,
    .xxfi_body = on_body,
    .xxfi_eom = on_eom,
    .xxfi_abort = on_abort,
    .xxfi_close = on_close,
    .xxfi_negotiate = on_negotiate,
};

/* libmilter listens at the path. */
static int bind_at(const char *path)
{
    char *address = mem_printf("unix:%s", path);
    errno = 0;
    bool good = smfi_setconn(address) == MI_SUCCESS && smfi_opensocket(false) == MI_SUCCESS;
    free(address);
    if (!good && !errno)
        errno = EINVAL;
    return good ? 0 : -1;
}

static void *serve(void *arg)
{
    int outcome = smfi_main();
    lock();
    bool stopping = shared.stopping;
    unlock();
    if (!stopping)
        log_fatal("libmilter serves no longer (%d); syslog says why", outcome);
    return arg;
}

/* Signals are the main thread's: libmilter has a thread that would wait for some. */
static void start_serving(void)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = pthread_create(&thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        log_fatal("no thread for libmilter: %s", strerror(error));
    pthread_detach(thread);
}

static struct listener *open_socket(const struct program *program, struct listener_options *o)
{
    ev_async_init(&shared.wake, on_news);
    ev_async_start(milter.loop, &shared.wake);
    smfi_setmaxdatasize(PACKET_MOST);
    if (smfi_register(description) != MI_SUCCESS || smfi_setbacklog(QUEUE) != MI_SUCCESS)
        log_fatal("libmilter cannot be used: syslog says why");
    o->loop = milter.loop;
    o->bind_at = bind_at;
    shared.listener = program_listen(program, o);
    start_serving();
    return shared.listener;
}

static void close_socket(void)
{
    lock();
    shared.stopping = true;
    unlock();
    listener_leave(shared.listener);
    smfi_stop();
}

/* The end of this process closes the connections; until then those that may end are left without
 * an answer. */
static size_t leave(bool all)
{
    size_t left = 0;
    double now = clock_boottime();
    lock();
    for (struct peer *p = shared.first; p; p = p->next) {
        bool being_written = p->told && now - p->told < WRITE_WITHIN;
        if (p->stage == COMPLETE || being_written || (p->stage == IN_MAIL && !all && !p->dead))
            left++;
        else
            p->dead = true;
    }
    unlock();
    return left;
}

const struct engine engine_libmilter = {
    .name = "libmilter",
    .open = open_socket,
    .close = close_socket,
    .leave = leave,
    .macro = macro,
    .delete_recipient = delete_recipient,
    .delete_header = delete_header,
    .progress = progress,
    .answer = answer,
    .hang_up = hang_up,
    .over = over,
};
