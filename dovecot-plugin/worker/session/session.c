/* session - what one user's session says: why something failed, lines in the log, parcels, and
 * when it wants to be asked again. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/session/link.h"
#include "dovecot-plugin/worker/session/session.h"

#include <str.h>

#include <time.h>

#define SAY_AGAIN_SECS 60

/* --- errors and notes ------------------------------------------------------------------------- */

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

void session_write_note(struct session *s, enum note_level level, const char *text)
{
    struct frame f = {.type = FRAME_NOTE};
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

void session_note(struct session *s, enum note_level level, const char *fmt, ...)
{
    va_list va;
    va_start(va, fmt);
    const char *text = t_strdup_vprintf(fmt, va);
    va_end(va);
    if (!said_lately(s, text))
        session_write_note(s, level, text);
}

void session_report(struct session *s, const char *fmt, ...)
{
    va_list va;
    va_start(va, fmt);
    session_write_note(s, NOTE_INFO, t_strdup_vprintf(fmt, va));
    va_end(va);
}

/* --- time, and parcels ------------------------------------------------------------------------ */

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
