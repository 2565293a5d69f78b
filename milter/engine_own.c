/* engine_own - the engine of our own: all connections on the loop, protocol.c for their packets.
 *
 * Nothing but the end of a message is answered: three fewer context switches a mail, and a third
 * more mails a second, measured. A step without an answer cannot refuse anything either; everything
 * is decided at the end.
 *
 * Since when does Postfix wait? It cannot tell us when it wrote the end of a message. When the
 * loop began to wait for events the time before, it was not there yet (the connection was: the
 * negotiation is waited for). But a turn of the loop does not report all that is ready: libev
 * takes 64 descriptors at first. So after each long turn we look which connections have
 * something to read: that may be as old as the turn. What Postfix sends before our answer says
 * that it does not wait. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/daemon/listener.h"
#include "lib/base/metrics.h"
#include "lib/daemon/program.h"
#include "milter/protocol.h"
#include "milter/peer_credentials.h"
#include "milter/session.h"

#define READ_MOST (256 * 1024)

struct peer {
    struct peer *prev, *next;
    struct milter_session *session;
    int fd;
    ev_io reading, writing;
    struct protocol protocol;
    /* not 0: this process stood still, and what is to be read may have come since then */
    double stood;
};

static struct peer *first;
static struct listener *listener;

/* ---- the end ---- */

static void end_peer(struct peer *p)
{
    ASSERT(p->session->stage == STAGE_READING); /* nothing of a mail is under way */
    ev_io_stop(milter.loop, &p->reading);
    ev_io_stop(milter.loop, &p->writing);
    close(p->fd);
    if (p->next)
        p->next->prev = p->prev;
    if (p->prev)
        p->prev->next = p->next;
    else
        first = p->next;
    metric_add(milter_sessions, -1);
    milter_session_free(p->session);
    protocol_free(&p->protocol);
    free(p);
}

static void hang_up(void *peer)
{
    struct peer *p = peer;
    ev_io_stop(milter.loop, &p->reading);
    ev_io_stop(milter.loop, &p->writing);
    shutdown(p->fd, SHUT_RDWR); /* Postfix must not wait for us until the store has ended */
}

static void over(void *peer)
{
    struct peer *p = peer;
    if (p->session->gone)
        end_peer(p);
}

/* Postfix hung up, does not behave, or does not wait any more. */
static void lose(struct peer *p)
{
    if (p->session->stage == STAGE_READING)
        end_peer(p);
    else
        milter_session_lost(p->session);
}

/* ---- answers ---- */

static bool write_out(struct peer *p)
{
    return listener_send(milter.loop, &p->writing, &p->protocol.out);
}

static void on_writable(struct ev_loop *loop, ev_io *io, int events)
{
    struct peer *p = io->data;
    if (!write_out(p))
        lose(p);
}

static const char *macro(void *peer, const char *name)
{
    return protocol_macro(&((struct peer *)peer)->protocol, name);
}

static void delete_recipient(void *peer, const char *given)
{
    protocol_delete_recipient(&((struct peer *)peer)->protocol, given);
}

static void delete_header(void *peer, const char *name, uint32_t number)
{
    protocol_delete_header(&((struct peer *)peer)->protocol, name, number);
}

static bool progress(void *peer)
{
    struct peer *p = peer;
    protocol_progress(&p->protocol);
    return write_out(p);
}

static void answer(void *peer, enum engine_answer answer, const char *reply)
{
    struct peer *p = peer;
    protocol_answer(&p->protocol, answer, reply);
    milter_session_answered(p->session, write_out(p));
}

/* ---- reading ---- */

/* False: the peer may be gone, or its message is complete. */
static bool on_end(struct peer *p, bool more)
{
    double last = milter_session_last_turn(), since = p->stood && p->stood < last ? p->stood : last;
    p->stood = 0;
    if (more) {
        milter_session_complain(
            "it goes on behind the end of a message, without waiting for an answer");
        lose(p);
    } else {
        milter_session_end(p->session, protocol_macro(&p->protocol, "i"), since);
    }
    return false;
}

static bool on_hello(struct peer *p, bool more)
{
    if (!more)
        return true;
    milter_session_complain("it goes on behind the negotiation, without waiting for an answer");
    lose(p);
    return false;
}

/* False: the peer may be gone, or its message is complete. */
static bool do_event(struct peer *p, enum protocol_event event, bool more)
{
    const struct protocol *e = &p->protocol;
    struct milter_session *s = p->session;
    switch (event) {
    case PROTOCOL_HELLO: return on_hello(p, more);
    case PROTOCOL_CONNECT: milter_session_connect(s, e->text, e->address, e->port); break;
    case PROTOCOL_HELO: milter_session_helo(s, e->text); break;
    case PROTOCOL_MAIL: milter_session_mail(s, e->argv); break;
    case PROTOCOL_RCPT: milter_session_rcpt(s, e->argv); break;
    case PROTOCOL_HEADER: milter_session_header(s, e->text, e->value); break;
    case PROTOCOL_BODY: milter_session_body(s, e->data, e->len); break;
    case PROTOCOL_ABORT: milter_session_abort(s); break;
    case PROTOCOL_MORE: break;
    case PROTOCOL_END: return on_end(p, more);
    case PROTOCOL_BAD:
        milter_session_complain(e->text);
        lose(p);
        return false;
    case PROTOCOL_QUIT: lose(p); return false;
    }
    return true;
}

/* False: the peer may be gone, or its message is complete. */
static bool feed(struct peer *p, const char *data, size_t len)
{
    enum protocol_event event;
    size_t at = 0;
    do {
        size_t used;
        event = protocol_feed(&p->protocol, data + at, len - at, &used);
        at += used;
        if (!do_event(p, event, at < len))
            return false;
    } while (event != PROTOCOL_MORE);
    if (p->protocol.out.len && !write_out(p)) { /* the negotiation */
        lose(p);
        return false;
    }
    return true;
}

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    static char bytes[READ_MOST];
    struct peer *p = io->data;
    ssize_t n = recv(p->fd, bytes, sizeof bytes, 0);
    bool reading = p->session->stage == STAGE_READING;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && !reading)
        milter_session_complain("Postfix did not wait for the answer to a message");
    if (n <= 0 || !reading) {
        lose(p);
        return;
    }
    bool emptied = (size_t)n < sizeof bytes;
    if (feed(p, bytes, (size_t)n) && emptied)
        p->stood = 0; /* what comes from now on is fresh */
}

/* ---- connections ---- */

static void take(int fd)
{
    if (!peer_may_connect(fd)) {
        close(fd);
        return;
    }
    struct peer *p = mem_zero(sizeof *p);
    p->fd = fd;
    p->session = milter_session_new(&engine_own, p);
    p->next = first;
    if (p->next)
        p->next->prev = p;
    first = p;
    metric_add(milter_sessions, 1);
    ev_io_init(&p->reading, on_readable, fd, EV_READ);
    ev_io_init(&p->writing, on_writable, fd, EV_WRITE);
    p->reading.data = p->writing.data = p;
    ev_io_start(milter.loop, &p->reading);
}

static struct listener *open_socket(const struct program *program, struct listener_options *o)
{
    o->loop = milter.loop;
    o->take = take;
    listener = program_listen(program, o);
    return listener;
}

static void close_socket(void)
{
    listener_leave(listener);
}

static size_t leave(bool all)
{
    size_t left = 0;
    for (struct peer *p = first, *next; p; p = next) {
        next = p->next;
        bool may_end = all || p->protocol.state != PROTOCOL_IN_MAIL;
        if (p->session->stage == STAGE_READING && !p->protocol.out.len && may_end)
            end_peer(p);
        else
            left++;
    }
    return left;
}

/* What lies in a socket now may have come since that moment, and may be reported only some turns
 * later. */
static void stood_still(double since)
{
    for (struct peer *p = first; p; p = p->next) {
        char byte;
        if (!p->stood && recv(p->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1)
            p->stood = since;
    }
}

const struct engine engine_own = {
    .name = "own",
    .open = open_socket,
    .close = close_socket,
    .leave = leave,
    .stood_still = stood_still,
    .macro = macro,
    .delete_recipient = delete_recipient,
    .delete_header = delete_header,
    .progress = progress,
    .answer = answer,
    .hang_up = hang_up,
    .over = over,
};
