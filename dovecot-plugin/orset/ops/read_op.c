/* read_op - what ops name, as their bytes say it: dots, folders, flags, names, stamps. */
#include "dovecot-plugin/orset/ops/read_op.h"
#include "dovecot-plugin/orset/base/keywords.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/state/epoch.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/quota.h"

int orset_op_malformed(struct op_run *x, const char *what)
{
    return orset_fail(x->os, ORSET_E_MALFORMED, "op %llu of site %llu: %s",
                      (unsigned long long)x->first,
                      (unsigned long long)x->os->origin[x->by].id.site, what);
}

/* dot = origin index, counter. A number of this replica that was never given, or of the op's own
 * origin from the op on, is an alarm. Others' numbers cannot be judged: a replica may know
 * elements above its own vector, from an exchange. */
int orset_read_dot(struct op_run *x, struct orset_dot *d)
{
    struct orset *os = x->os;
    uint64_t i = orset_read_num(&x->in, ORSET_ORIGINS_MAX);
    d->counter = orset_read_num(&x->in, ORSET_COUNTER_MAX);
    if (x->in.bad || d->counter == 0 || i >= (x->map ? x->nmap : os->norigins))
        return orset_op_malformed(x, "a dot that cannot be read");
    d->origin = x->map ? x->map[i] : (uint16_t)i;
    if (d->origin == os->self && x->by != os->self && orset_own_unknown(os, d->counter))
        return orset_own_ahead(os, "a peer's op names", d->counter);
    if (d->origin == x->by && d->counter >= x->first)
        return orset_fail(
            os, ORSET_E_FORGED,
            "op %llu of site %llu names number %llu of site %llu, which was never given",
            (unsigned long long)x->first, (unsigned long long)os->origin[x->by].id.site,
            (unsigned long long)d->counter, (unsigned long long)os->origin[d->origin].id.site);
    if (x->dry && !orset_covered(os, *d))
        x->named++;
    return 0;
}

/* folder = 0 (INBOX) | origin index + 1, counter of its create. *f: NULL when unknown here and
 * not made. */
static int read_folder(struct op_run *x, bool make, struct folder **f)
{
    struct orset *os = x->os;
    struct orset_reader at = x->in;
    *f = NULL;
    if (orset_read_num(&at, UINT64_MAX) == 0) {
        if (at.bad)
            return orset_op_malformed(x, "a folder that cannot be read");
        x->in = at;
        *f = orset_folder_at(os, ORSET_INBOX);
        return 0;
    }
    uint64_t i = orset_read_num(&x->in, ORSET_ORIGINS_MAX);
    struct orset_dot id = {0, orset_read_num(&x->in, ORSET_COUNTER_MAX)};
    if (x->in.bad || id.counter == 0 || i - 1 >= (x->map ? x->nmap : os->norigins))
        return orset_op_malformed(x, "a folder that cannot be read");
    id.origin = x->map ? x->map[i - 1] : (uint16_t)(i - 1);
    if (id.origin == os->self && x->by != os->self && orset_own_unknown(os, id.counter))
        return orset_own_ahead(os, "a peer's op names a folder with", id.counter);
    if (id.origin == x->by && id.counter >= x->first)
        return orset_fail(os, ORSET_E_FORGED, "op %llu names a folder that was never made",
                          (unsigned long long)x->first);
    *f = make && !x->dry ? orset_bring_folder(os, id, x->by) : orset_folder_find(os, id);
    x->folders += make && x->dry && !*f;
    if (make && !x->dry && !*f)
        return os->broken ? ORSET_E_MEMORY : ORSET_E_LIMIT;
    return 0;
}

int orset_read_folder(struct op_run *x, struct folder **f)
{
    return read_folder(x, false, f);
}

int orset_read_folder_made(struct op_run *x, struct folder **f)
{
    return read_folder(x, true, f);
}

/* flag = 0 to 4 (bit of the system flags) | 5, text (keyword) */
int orset_read_flag(struct op_run *x, uint16_t *flag)
{
    uint8_t f = orset_read_u8(&x->in);
    size_t n;
    *flag = f;
    if (f < ORSET_SYSTEM_FLAGS)
        return x->in.bad ? orset_op_malformed(x, "a flag that cannot be read") : 0;
    const char *name = (const char *)orset_read_text(&x->in, ORSET_KEYWORD_MAX, &n);
    if (f != ORSET_SYSTEM_FLAGS || x->in.bad || n == 0)
        return orset_op_malformed(x, "a keyword that cannot be read");
    if (!orset_keyword_valid(name, n))
        return orset_op_malformed(x, "a keyword with a space or control character");
    if (x->dry) {
        x->keywords += orset_keyword_find(x->os, name, n) < 0;
        return 0;
    }
    int kw = orset_bring_keyword(x->os, name, n, x->by);
    *flag = (uint16_t)(kw + ORSET_SYSTEM_FLAGS);
    return kw < 0 ? kw : 0;
}

int orset_read_count(struct op_run *x, uint64_t most, uint64_t *n)
{
    *n = orset_read_num(&x->in, most);
    return x->in.bad ? orset_op_malformed(x, "a count above its bound") : 0;
}

/* name = text: namespace key, then components, separated by NUL */
int orset_read_name(struct op_run *x, const uint8_t **name, size_t *len)
{
    *name = orset_read_text(&x->in, ORSET_NAME_MAX, len);
    if (x->in.bad || !orset_name_valid(*name, *len))
        return orset_op_malformed(x, "a folder name that is empty, too long or too deep");
    return 0;
}

int orset_read_clock(struct op_run *x, struct stamp *s)
{
    const struct orset_origin *o = &x->os->origin[x->by].id;
    *s = (struct stamp){orset_read_num(&x->in, ORSET_CLOCK_MAX), o->site, o->epoch};
    if (x->in.bad || s->clock == 0)
        return orset_op_malformed(x, "a Lamport stamp that cannot be read");
    int r = orset_see_clock(x->os, s->clock);
    if (r == 0 && !x->dry && s->clock > x->os->clock) {
        x->os->clock = s->clock;
        x->os->meta_dirty = true;
    }
    return r;
}

struct orset_dot orset_take_number(struct op_run *x)
{
    return (struct orset_dot){x->by, x->next++};
}
