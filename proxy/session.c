#include "proxy/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/daemon/listener.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"
#include "lib/ingress/ingress_metrics.h"
#include "lib/ingress/mailline.h"
#include "lib/postfix/postfix.h"
#include "proxy/proxy.h"

#define IDLE_MOST 5.       /* seconds without a mail, when this process is to end */
#define SILENCE_MOST 600.  /* seconds; smtpd_timeout of its client is 300 s */
#define PENDING_MOST 65536 /* bytes that may come before they are wanted */
#define ENVELOPE_MOST (4 * 1024 * 1024)

static struct proxy_session *sessions;
static size_t nsessions;

size_t proxy_session_count(void)
{
    return nsessions;
}

/* ---- the end ---- */

static void end_session(struct proxy_session *s)
{
    ASSERT(s->gone && nsessions && s->course == COURSE_NONE);
    ev_io_stop(proxy.loop, &s->reading);
    ev_io_stop(proxy.loop, &s->writing);
    if (s->fd >= 0)
        close(s->fd);
    if (s->next_session)
        s->next_session->prev = s->prev;
    if (s->prev)
        s->prev->next_session = s->next_session;
    else
        sessions = s->next_session;
    nsessions--;
    metric_add(proxy_sessions, -1);
    engine_free(&s->engine);
    buf_free(&s->pending);
    free(s);
}

void proxy_session_mail_over(struct proxy_session *s)
{
    if (s->lookup)
        lookup_forget(s->lookup);
    next_close(s->next);
    if (s->stored)
        store_finish(proxy.store, &s->entries.request);
    mail_entries_free(&s->entries);
    free(s->envelope.sender_args);
    free(s->which);
    free(s->passed);
    ASSERT(proxy.bytes >= (long long)s->claimed);
    proxy.bytes -= (long long)s->claimed;
    s->lookup = NULL;
    s->next = NULL;
    s->entries = (struct mail_entries){0};
    s->envelope = (struct envelope){0};
    s->which = s->passed = NULL;
    s->stored = false;
    s->claimed = 0;
    s->course = COURSE_NONE;
    s->full = false;
    if (s->gone)
        end_session(s);
    else if (s->pending.len)
        ev_feed_event(proxy.loop, &s->writing, EV_WRITE); /* on_writable goes on with it */
}

/* Postfix hung up, or does not behave. */
static void lose(struct proxy_session *s)
{
    ev_io_stop(proxy.loop, &s->reading);
    ev_io_stop(proxy.loop, &s->writing);
    s->gone = true;
    if (s->course == COURSE_STREAM && s->engine.state == ENGINE_ANSWERING)
        log_mail(LOG_LEVEL_WARNING, s->id,
                 "Postfix hung up before the answer: proxy_next has the last dot, and it "
                 "may be sent more than once");
    if (s->course == COURSE_OUTCOME)
        outcome_gone(s);
    else
        proxy_session_mail_over(s);
}

/* ---- writing ---- */

static bool write_out(struct proxy_session *s)
{
    return listener_send(proxy.loop, &s->writing, &s->engine.out);
}

bool proxy_session_answer(struct proxy_session *s, const char *reply)
{
    engine_answer(&s->engine, reply);
    s->last = clock_monotonic();
    return write_out(s);
}

/* ---- a mail begins ---- */

bool proxy_session_claim(struct proxy_session *s, size_t n)
{
    if (proxy.bytes + (long long)n > proxy.config->proxy_memory)
        return false;
    proxy.bytes += (long long)n;
    s->claimed += n;
    return true;
}

/* Microseconds since 1970 and chance, in letters that look like a queue id of Postfix and are
 * none of its (the longest it makes have 16). */
static void make_id(char id[MAIL_ID])
{
    static const char letter[] = "0123456789BCDFGHJKLMNPQRSTVWXYZ";
    static uint64_t chance;
    uint64_t time = (uint64_t)clock_wall();
    if (!chance)
        while (getrandom(&chance, sizeof chance, 0) != sizeof chance)
            ;
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    uint64_t rest = chance >> 33;
    for (int i = MAIL_ID - 2; i >= 11; i--, rest /= 31)
        id[i] = letter[rest % 31];
    for (int i = 10; i >= 0; i--, time /= 31)
        id[i] = letter[time % 31];
    id[MAIL_ID - 1] = '\0';
}

static void on_next(void *arg, enum next_event event, const char *reply, bool unsure);
static void feed(struct proxy_session *s, const char *data, size_t len);

static void go(struct proxy_session *s)
{
    postfix_header(&s->header);
    engine_go(&s->engine, &s->header);
}

static void stream(struct proxy_session *s, const char *reason)
{
    s->reason = reason;
    for (size_t i = 0; i < s->engine.nrecipients; i++) {
        free(s->engine.recipient[i].destination);
        s->engine.recipient[i].destination = NULL;
    }
    ASSERT(!s->next && !s->stored);
    s->course = COURSE_OPENING;
    s->next = next_open(&s->engine, NULL, s->id, on_next, s);
}

static void choose(struct proxy_session *s)
{
    const char *map = rules_maps(&s->engine, s->detail);
    if (map && !s->reason)
        s->reason = map;
    if (!rules_diverted(&s->engine)) {
        stream(s, s->reason ? s->reason : map);
        return;
    }
    s->course = COURSE_BUFFER;
    go(s);
}

static void resume(struct proxy_session *s)
{
    struct buf pending = s->pending;
    s->pending = (struct buf){0};
    feed(s, pending.data, pending.len);
    buf_free(&pending);
}

static void on_looked_up(void *arg)
{
    struct proxy_session *s = arg;
    s->lookup = NULL;
    choose(s);
    resume(s);
}

static void begin(struct proxy_session *s)
{
    struct engine *e = &s->engine;
    ASSERT(s->course == COURSE_NONE && !s->which && !s->stored);
    make_id(s->id);
    *s->detail = *s->refusal = *s->unstored = *s->handed = *s->handed_next = '\0';
    s->started = clock_monotonic();
    s->reason = rules_envelope(e, s->detail);
    if (!rules_diverted(e)) {
        stream(s, s->reason);
        return;
    }
    const char **address = mem_alloc(e->nrecipients * sizeof *address);
    size_t n = 0;
    for (size_t i = 0; i < e->nrecipients; i++)
        if (e->recipient[i].destination && !e->recipient[i].again)
            address[n++] = e->recipient[i].r.address;
    s->course = COURSE_LOOKUP;
    s->lookup = lookup_start(e->sender.address, address, n, on_looked_up, s);
    free(address);
    if (!s->lookup)
        choose(s);
}

/* ---- its content ---- */

static void pass_body(struct proxy_session *s)
{
    struct buf *body = &s->engine.body;
    next_add(s->next, body->data, body->len);
    buf_consume(body, body->len);
    s->full = next_full(s->next);
}

/* Some more of it is there. */
static void take_body(struct proxy_session *s, size_t had)
{
    struct buf *body = &s->engine.body;
    bool large = s->engine.content.size > (uint64_t)proxy.config->max_entry;
    switch (s->course) {
    case COURSE_STREAM: pass_body(s); return;
    case COURSE_SINK: buf_consume(body, body->len); return;
    case COURSE_BUFFER:
        if (!large && proxy_session_claim(s, body->len - had))
            return;
        snprintf(s->detail, sizeof s->detail, "%s", large ? "max_entry" : "proxy_memory");
        stream(s, large ? "too-large" : "busy");
        return;
    default: return;
    }
}

static void finish_stream(struct proxy_session *s, enum next_event event, const char *reply,
                          bool unsure)
{
    const struct engine *e = &s->engine;
    const char *name = e->xforward[XFORWARD_NAME];
    if (unsure)
        log_mail(LOG_LEVEL_WARNING, s->id,
                 "proxy_next was lost behind the last dot: it may be sent more than once");
    if (event == NEXT_DONE) {
        metric_add(mails_queued, 1);
        ingress_queued(s->reason);
    }
    ingress_answered(event == NEXT_DONE ? ANSWER_QUEUE : ANSWER_REFUSE,
                     s->ended ? clock_monotonic() - s->ended : 0.);
    /* Without its size: Postfix's qmgr is going to log that. */
    char reason[1024];
    snprintf(reason, sizeof reason, "%s%s%s", s->reason, *s->detail ? " " : "", s->detail);
    mailline_say_left(&(struct mailline){.id = s->id,
                                         .sender = e->sender.address,
                                         .nrecipients = e->nrecipients,
                                         .client_name = name ? name : "unknown",
                                         .client_addr = e->xforward[XFORWARD_ADDR],
                                         .next = reply},
                      event == NEXT_DONE ? "queue" : "refuse", reason);
    if (!proxy_session_answer(s, reply)) {
        log_mail(LOG_LEVEL_WARNING, s->id, "Postfix did not hear the answer%s",
                 event == NEXT_DONE ? ": it may be sent more than once" : "");
        s->gone = true;
    }
    proxy_session_mail_over(s);
}

static void end_body(struct proxy_session *s)
{
    s->ended = clock_monotonic();
    if (s->course == COURSE_SINK) {
        finish_stream(s, NEXT_REFUSED, s->refusal, false);
    } else if (s->course == COURSE_STREAM) {
        next_end(s->next);
    } else if (s->course == COURSE_BUFFER) {
        s->course = COURSE_OUTCOME;
        outcome_begin(s);
    } /* COURSE_OPENING: it ended just as it became too large; on_next sees to it */
}

static void opened(struct proxy_session *s)
{
    bool begun = s->engine.state != ENGINE_DECIDING;
    ASSERT(s->course == COURSE_OPENING);
    s->course = COURSE_STREAM;
    if (!begun)
        go(s);
    else
        pass_body(s);
    if (s->engine.state == ENGINE_ANSWERING)
        next_end(s->next);
    else
        resume(s);
}

static void refused(struct proxy_session *s, const char *reply, bool unsure)
{
    if (s->engine.state == ENGINE_CONTENT) {
        snprintf(s->refusal, sizeof s->refusal, "%s", reply);
        next_close(s->next);
        s->next = NULL;
        s->full = false;
        s->course = COURSE_SINK;
        buf_consume(&s->engine.body, s->engine.body.len);
        resume(s);
        return;
    }
    finish_stream(s, NEXT_REFUSED, reply, unsure);
}

static void on_next(void *arg, enum next_event event, const char *reply, bool unsure)
{
    struct proxy_session *s = arg;
    if (s->course == COURSE_OUTCOME) {
        outcome_next(s, event, reply, unsure);
        return;
    }
    switch (event) {
    case NEXT_READY: opened(s); return;
    case NEXT_DRAINED:
        s->full = false;
        resume(s);
        return;
    case NEXT_DONE: finish_stream(s, event, reply, false); break;
    case NEXT_REFUSED: refused(s, reply, unsure); return;
    }
    /* The session may be gone with its mail. */
}

/* ---- reading ---- */

static bool wants(const struct proxy_session *s)
{
    return !s->closing && !s->full && s->course != COURSE_OPENING &&
           (s->engine.state == ENGINE_COMMANDS || s->engine.state == ENGINE_CONTENT);
}

/* True: go on. Otherwise the session may be gone. */
static bool do_event(struct proxy_session *s, enum engine_event event, size_t had)
{
    switch (event) {
    case ENGINE_DATA: begin(s); break;
    case ENGINE_BODY: take_body(s, had); break;
    case ENGINE_END: {
        if (s->course == COURSE_BUFFER || s->course == COURSE_STREAM)
            take_body(s, had);
        end_body(s); /* may end with the mail, and the session with it */
        return false;
    }
    case ENGINE_CLOSE: s->closing = true; break;
    case ENGINE_MORE: break;
    }
    return true;
}

static void keep_for_later(struct proxy_session *s, const char *data, size_t len)
{
    buf_add(&s->pending, data, len);
    if (s->pending.len > PENDING_MOST)
        ev_io_stop(proxy.loop, &s->reading);
}

static void feed(struct proxy_session *s, const char *data, size_t len)
{
    size_t at = 0;
    while (at < len && wants(s)) {
        size_t used, had = s->engine.body.len;
        enum engine_event event = engine_feed(&s->engine, data + at, len - at, &used);
        at += used;
        /* what follows is kept first: the session may be gone afterwards */
        if (event == ENGINE_END) {
            keep_for_later(s, data + at, len - at);
            do_event(s, event, had);
            return;
        }
        do_event(s, event, had);
    }
    if (at < len && !s->closing)
        keep_for_later(s, data + at, len - at);
    bool written = write_out(s);
    if (!written || (s->closing && !s->engine.out.len)) {
        lose(s);
        return;
    }
    if (s->full || s->pending.len > PENDING_MOST || s->closing)
        ev_io_stop(proxy.loop, &s->reading);
    else
        ev_io_start(proxy.loop, &s->reading);
}

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    static char bytes[65536];
    struct proxy_session *s = io->data;
    ssize_t n = recv(s->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        lose(s);
        return;
    }
    s->last = clock_monotonic();
    if (s->pending.len) /* in order */
        keep_for_later(s, bytes, (size_t)n);
    else
        feed(s, bytes, (size_t)n);
}

static void on_writable(struct ev_loop *loop, ev_io *io, int events)
{
    struct proxy_session *s = io->data;
    if (s->pending.len && wants(s)) {
        resume(s);
        return;
    }
    if (!write_out(s) || (s->closing && !s->engine.out.len))
        lose(s);
}

/* ---- sessions ---- */

void proxy_session_new(int fd)
{
    struct proxy_session *s = mem_zero(sizeof *s);
    s->fd = fd;
    s->last = clock_monotonic();
    s->engine.name = proxy.name;
    s->engine.most_envelope = ENVELOPE_MOST;
    s->next_session = sessions;
    if (sessions)
        sessions->prev = s;
    sessions = s;
    nsessions++;
    metric_add(proxy_sessions, 1);
    ev_io_init(&s->reading, on_readable, fd, EV_READ);
    ev_io_init(&s->writing, on_writable, fd, EV_WRITE);
    s->reading.data = s->writing.data = s;
    ev_io_start(proxy.loop, &s->reading);
    engine_greet(&s->engine);
    if (!write_out(s))
        lose(s);
}

void proxy_session_leave(double seconds)
{
    for (struct proxy_session *s = sessions, *next; s; s = next) {
        next = s->next_session;
        bool idle = s->course == COURSE_NONE && engine_idle(&s->engine) && !s->engine.out.len &&
                    !s->pending.len;
        s->idle = idle ? s->idle + seconds : 0.;
        if (s->idle > IDLE_MOST)
            lose(s);
    }
}

void proxy_session_sweep(void)
{
    double now = clock_monotonic();
    for (struct proxy_session *s = sessions, *next; s; s = next) {
        next = s->next_session;
        if (s->course != COURSE_OUTCOME && s->course != COURSE_OPENING && !s->full &&
            now - s->last > SILENCE_MOST) {
            log_warning("%s: Postfix was silent for %.0f s: its connection is closed",
                        s->course == COURSE_NONE ? "NOQUEUE" : s->id, SILENCE_MOST);
            lose(s);
        }
    }
}
