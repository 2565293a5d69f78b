#include "tests/unit/milter/stub_session.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "milter/peer_credentials.h"
#include "milter/session.h"

struct milter milter;

/* What was heard of one session. */
struct stub {
    struct milter_session s;
    struct buf body;
    bool in_mail;
};

static struct {
    pthread_mutex_t lock;
    struct buf heard;
    size_t live;
    bool unanswered;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void note(const char *format, ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    pthread_mutex_lock(&all.lock);
    buf_adds(&all.heard, text);
    pthread_mutex_unlock(&all.lock);
}

static void note_bytes(const void *data, size_t len)
{
    pthread_mutex_lock(&all.lock);
    buf_add(&all.heard, data, len);
    pthread_mutex_unlock(&all.lock);
}

void stub_begin(void)
{
    pthread_mutex_lock(&all.lock);
    buf_free(&all.heard);
    all.unanswered = false;
    pthread_mutex_unlock(&all.lock);
}

struct buf stub_heard(void)
{
    for (size_t live = 1; live;) {
        pthread_mutex_lock(&all.lock);
        live = all.live;
        pthread_mutex_unlock(&all.lock);
        if (live)
            nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    pthread_mutex_lock(&all.lock);
    struct buf heard = all.heard;
    all.heard = (struct buf){0};
    pthread_mutex_unlock(&all.lock);
    return heard;
}

bool stub_unanswered(void)
{
    pthread_mutex_lock(&all.lock);
    bool is = all.unanswered;
    pthread_mutex_unlock(&all.lock);
    return is;
}

/* ---- what engines call ---- */

struct milter_session *milter_session_new(const struct engine *engine, void *peer)
{
    struct stub *stub = mem_zero(sizeof *stub);
    stub->s.engine = engine;
    stub->s.peer = peer;
    pthread_mutex_lock(&all.lock);
    all.live++;
    pthread_mutex_unlock(&all.lock);
    return &stub->s;
}

void milter_session_free(struct milter_session *s)
{
    struct stub *stub = (struct stub *)s;
    buf_free(&stub->body);
    free(stub);
    pthread_mutex_lock(&all.lock);
    all.live--;
    pthread_mutex_unlock(&all.lock);
}

static const char *macro(struct milter_session *s, const char *name)
{
    const char *value = s->engine->macro(s->peer, name);
    return value ? value : "-";
}

/* One that something follows is told of then. */
static void mail_ends(struct milter_session *s)
{
    struct stub *stub = (struct stub *)s;
    stub->in_mail = false;
    stub->body.len = 0;
}

void milter_session_connect(struct milter_session *s, const char *name, const char *address,
                            unsigned port)
{
    char plain[100] = "-";
    if (address)
        snprintf(plain, sizeof plain, "%s", strncmp(address, "IPv6:", 5) ? address : address + 5);
    note("connect %s %s %u j=%s", name, plain, address ? port : 0, macro(s, "j"));
    note(" name=%s\n", macro(s, "{client_name}"));
}

void milter_session_helo(struct milter_session *s, const char *name)
{
    note("helo %s tls=%s\n", name, macro(s, "{tls_version}"));
}

void milter_session_mail(struct milter_session *s, char *const *argv)
{
    struct stub *stub = (struct stub *)s;
    mail_ends(s);
    stub->in_mail = true;
    note("mail");
    for (; *argv; argv++)
        note(" [%s]", *argv);
    note(" %s", macro(s, "{mail_addr}"));
    note(" %s tls=", macro(s, "{auth_authen}"));
    note("%s\n", macro(s, "{tls_version}"));
}

void milter_session_rcpt(struct milter_session *s, char *const *argv)
{
    note("rcpt");
    for (; *argv; argv++)
        note(" [%s]", *argv);
    note(" %s", macro(s, "{rcpt_mailer}"));
    note(" %s", macro(s, "{rcpt_host}"));
    note(" %s\n", macro(s, "{rcpt_addr}"));
}

void milter_session_header(struct milter_session *s, const char *name, const char *value)
{
    note("header %s:%s\n", name, value);
}

void milter_session_body(struct milter_session *s, const void *data, size_t len)
{
    buf_add(&((struct stub *)s)->body, data, len);
}

void milter_session_abort(struct milter_session *s)
{
    mail_ends(s);
}

static void no_answer(struct milter_session *s)
{
    pthread_mutex_lock(&all.lock);
    all.unanswered = true;
    pthread_mutex_unlock(&all.lock);
    s->gone = true;
    s->engine->hang_up(s->peer);
    mail_ends(s);
    s->stage = STAGE_READING;
    s->engine->over(s->peer);
}

void milter_session_end(struct milter_session *s, const char *queue_id, double since)
{
    struct stub *stub = (struct stub *)s;
    const struct engine *e = s->engine;
    char what = queue_id ? *queue_id : 'D';
    note("body ");
    note_bytes(stub->body.data, stub->body.len);
    note("end %s\n", queue_id ? queue_id : "-");
    s->stage = STAGE_STORE;
    if (what == 'A') {
        e->delete_header(s->peer, "Dovelane-Id", 2);
        e->delete_header(s->peer, "Dovelane-Id", 1);
        e->delete_recipient(s->peer, "<a@b.example>");
    }
    if (what == 'M' && !e->progress(s->peer))
        abort();
    switch (what) {
    case 'G': no_answer(s); break;
    case 'A': e->answer(s->peer, ENGINE_ACCEPT, NULL); break;
    case 'T':
        e->answer(s->peer, ENGINE_REPLY,
                  "451 4.3.0 Mail could not be stored on enough hosts, try again later");
        break;
    case 'R':
        e->answer(s->peer, ENGINE_REPLY, "550 5.6.0 Too many Dovelane-Id header lines");
        break;
    default: e->answer(s->peer, ENGINE_DISCARD, NULL);
    }
}

void milter_session_answered(struct milter_session *s, bool told)
{
    note("%s\n", told ? "told" : "not told");
    mail_ends(s);
    s->stage = STAGE_READING;
    s->engine->over(s->peer);
}

bool milter_session_late(struct milter_session *s)
{
    milter_session_answered(s, false);
    return false;
}

void milter_session_lost(struct milter_session *s)
{
    note("lost\n");
    no_answer(s);
}

void milter_session_complain(const char *what)
{
    note("closed: %s\n", what);
}

double milter_session_last_turn(void)
{
    return 0;
}

bool peer_may_connect(int fd)
{
    return true;
}
