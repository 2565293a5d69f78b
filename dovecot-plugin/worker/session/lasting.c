/* lasting - a table of what was said, and when. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/worker/session/lasting.h"
#include "dovecot-plugin/worker/session/session.h"

#define SAY_AGAIN 3600000 /* milliseconds */

/* Of all users whom this process had open. Of more, the one that was said first is forgotten: at
 * worst it is said again at each look. */
static struct said {
    uint64_t about;
    uint64_t at; /* milliseconds of the monotonic clock */
} said[1000];
static unsigned n_said;

static uint64_t about_of(struct session *s, const char *what, const char *name)
{
    const char *key = t_strconcat(s->user->username, "\n", what, "\n", name, NULL);
    return orset_hash(key, strlen(key)).lo;
}

static void forget(unsigned at)
{
    n_said--;
    memmove(&said[at], &said[at + 1], (n_said - at) * sizeof said[0]);
}

static bool is_said(const struct said *now)
{
    unsigned i = 0;
    while (i < n_said && said[i].about != now->about)
        i++;
    bool lately = i < n_said && now->at - said[i].at < SAY_AGAIN;
    if (i < n_said && !lately)
        forget(i);
    return lately;
}

void lasting_note(struct session *s, const char *what, const char *name, const char *fmt, ...)
{
    const struct said now = {about_of(s, what, name), clock_msecs()};
    if (is_said(&now))
        return;
    va_list va;
    va_start(va, fmt);
    const char *text = t_strdup_vprintf(fmt, va);
    va_end(va);
    if (n_said == N_ELEMENTS(said))
        forget(0);
    said[n_said++] = now;
    session_write_note(s, NOTE_WARNING, text);
}

void lasting_over(struct session *s, const char *what, const char *name)
{
    if (n_said == 0)
        return;
    uint64_t about = about_of(s, what, name);
    for (unsigned i = 0; i < n_said; i++) {
        if (said[i].about == about) {
            forget(i);
            return;
        }
    }
}
