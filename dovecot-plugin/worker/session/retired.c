/* retired - compares origins with those of users who were forgotten. */
#include "dovecot-plugin/worker/session/retired.h"

#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/session/link.h"

#include <array.h>

#include <unistd.h>

static struct frame_origin origin(struct session *s, unsigned i)
{
    struct orset_origin o = orset_origin_get(s->os, (uint16_t)i);
    return (struct frame_origin){o.site, o.epoch};
}

bool retired_state(struct session *s)
{
    for (unsigned i = 0; s->retired.n > 0 && i < orset_origins(s->os); i++)
        if (frame_has_origin(s->retired, origin(s, i)))
            return TRUE;
    return FALSE;
}

bool retired_unused(struct session *s)
{
    return is_joining(s) && array_count(&s->boxes) == 0;
}

void retired_remove(const char *state_path)
{
    static const char *const parts[] = {"", "-wal", "-shm", "-journal"};
    for (unsigned i = 0; i < N_ELEMENTS(parts); i++)
        (void)unlink(t_strconcat(state_path, parts[i], NULL));
}

bool retired_parcel(struct session *s, const struct frame_parcel *f)
{
    if (s->retired.n == 0 || !parcel_names(f->kind, f->body, s->retired))
        return FALSE;
    session_send(s, f->site, PARCEL_RETIRE, FALSE, s->retired.p, s->retired.n);
    session_fail(
        s, "site %llu speaks of the user of this name who was forgotten: it is sent that he was",
        (unsigned long long)f->site);
    return TRUE;
}

void retired_tell_origins(struct session *s)
{
    struct frame f = {.type = FRAME_ORIGINS};
    struct orset_buf b = {.alloc = session_alloc()};
    unsigned n = orset_origins(s->os);
    if (n == s->origins)
        return;
    for (unsigned i = 0; i < n; i++)
        frame_put_origin(&b, origin(s, i));
    f.u.origins = (struct text){b.data, b.len};
    if (!b.failed && link_send(s->link, &f) == 0)
        s->origins = n;
    orset_buf_free(&b);
}
