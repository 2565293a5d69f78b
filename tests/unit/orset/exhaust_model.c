/* exhaust_model - see exhaust_model.h. */
#include "tests/unit/orset/exhaust_model.h"

#define BIT(i) (1U << (i))

static bool adds(const struct event *e)
{
    return e->kind == EV_APPEND || e->kind == EV_COPY || e->kind == EV_MOVE;
}

static bool removes(const struct event *e)
{
    return e->kind == EV_MOVE || e->kind == EV_EXPUNGE || e->kind == EV_DELETE;
}

unsigned model_live_adds(const struct model *m, unsigned s)
{
    unsigned live = 0;
    for (unsigned i = 0; i < m->n; i++)
        if (s & BIT(i) && adds(&m->e[i]))
            live |= BIT(i);
    for (unsigned i = 0; i < m->n; i++)
        if (s & BIT(i) && removes(&m->e[i]))
            live &= ~m->e[i].target;
    return live;
}

/* Does the event say "this folder is here"? */
static bool presents(const struct event *e, unsigned i, unsigned folder)
{
    return (e->kind == EV_CREATE && i == folder) || (adds(e) && e->folder == folder) ||
           (e->kind == EV_RENAME && e->folders & BIT(folder));
}

/* The presence of the folder that stands in s: said by an event that no other in s replaces. */
static unsigned presence(const struct model *m, unsigned s, unsigned folder)
{
    unsigned alive = 0;
    for (unsigned p = 0; p < m->n; p++)
        if (s & BIT(p) && presents(&m->e[p], p, folder))
            alive |= BIT(p);
    for (unsigned q = 0; q < m->n; q++)
        if (s & BIT(q))
            alive &= ~m->e[q].presence[folder];
    return alive;
}

bool model_folder_live(const struct model *m, unsigned s, unsigned folder)
{
    unsigned live = model_live_adds(m, s);
    for (unsigned i = 0; i < m->n; i++)
        if (live & BIT(i) && m->e[i].folder == folder)
            return true;
    return presence(m, s, folder) != 0;
}

char model_folder_name(const struct model *m, unsigned s, unsigned folder)
{
    char name = 0;
    uint64_t best = 0;
    unsigned site = 0;
    for (unsigned i = 0; i < m->n; i++) {
        const struct event *e = &m->e[i];
        bool create = e->kind == EV_CREATE && i == folder;
        if (!(s & BIT(i)) || !(create || (e->kind == EV_RENAME && e->folders & BIT(folder))))
            continue;
        uint64_t clock = create ? e->clock : e->clocks[folder];
        if (clock > best || (clock == best && e->site > site)) {
            best = clock;
            site = e->site;
            name = e->name;
        }
    }
    return name;
}

unsigned model_message(const struct model *m, unsigned s, unsigned folder, unsigned guid,
                       unsigned k)
{
    unsigned live = model_live_adds(m, s), mine = 0;
    for (unsigned i = 0; i < m->n; i++)
        if (live & BIT(i) && m->e[i].folder == folder && m->e[i].guid == guid && m->e[i].k == k)
            mine |= BIT(i);
    return mine;
}

static bool flags(const struct event *e)
{
    return e->kind == EV_FLAG || e->kind == EV_UNFLAG;
}

/* The changes of the flag on this add that stand in s. */
static unsigned standing(const struct model *m, unsigned s, unsigned add)
{
    unsigned stand = 0;
    for (unsigned e = 0; e < m->n; e++)
        if (s & BIT(e) && flags(&m->e[e]) && m->e[e].target & BIT(add) &&
            (m->disable_wins || m->e[e].kind == EV_FLAG))
            stand |= BIT(e);
    if (s & BIT(add) && m->e[add].flagged)
        stand |= BIT(add);
    for (unsigned x = 0; x < m->n; x++)
        if (s & BIT(x))
            stand &= ~m->e[x].flag[add];
    return stand;
}

bool model_flag(const struct model *m, unsigned s, unsigned adds_of_message)
{
    bool on = false, off = false;
    for (unsigned a = 0; a < m->n; a++) {
        unsigned stand = adds_of_message & BIT(a) ? standing(m, s, a) : 0;
        for (unsigned e = 0; e < m->n; e++) {
            on |= stand & BIT(e) && m->e[e].kind != EV_UNFLAG;
            off |= stand & BIT(e) && m->e[e].kind == EV_UNFLAG;
        }
    }
    return on && !off;
}

static unsigned subscription(const struct model *m, unsigned s)
{
    unsigned stand = 0;
    for (unsigned e = 0; e < m->n; e++)
        if (s & BIT(e) && m->e[e].kind == EV_SUBSCRIBE)
            stand |= BIT(e);
    for (unsigned x = 0; x < m->n; x++)
        if (s & BIT(x))
            stand &= ~m->e[x].subscription;
    return stand;
}

bool model_subscribed(const struct model *m, unsigned s)
{
    return subscription(m, s) != 0;
}

/* The site's own earlier events of a kind. */
static unsigned own(const struct model *m, unsigned s, unsigned site,
                    bool (*is)(const struct model *, unsigned, unsigned), unsigned of)
{
    unsigned mine = 0;
    for (unsigned i = 0; i < m->n; i++)
        if (s & BIT(i) && m->e[i].site == site && is(m, i, of))
            mine |= BIT(i);
    return mine;
}

static bool says_present(const struct model *m, unsigned i, unsigned folder)
{
    return presents(&m->e[i], i, folder);
}

static bool sets(const struct model *m, unsigned i, unsigned add)
{
    return (i == add && m->e[i].flagged) || (m->e[i].kind == EV_FLAG && m->e[i].target & BIT(add));
}

static bool clears(const struct model *m, unsigned i, unsigned add)
{
    return m->disable_wins && m->e[i].kind == EV_UNFLAG && m->e[i].target & BIT(add);
}

static bool subscribes(const struct model *m, unsigned i, unsigned nothing)
{
    (void)nothing;
    return m->e[i].kind == EV_SUBSCRIBE;
}

/* A site has one presence dot per folder, one dot per flag and direction, one per subscription:
 * a new one takes the place of its own earlier one also where what had removed that has not come
 * yet. */
void model_replaces(const struct model *m, unsigned s, struct event *e)
{
    for (unsigned i = 0; i < EVENTS_MAX; i++) {
        bool there = i < m->n, named = there && e->folders & BIT(i);
        bool fresh = (named && e->kind == EV_RENAME) || (there && adds(e) && e->folder == i);
        bool flag = flags(e) && e->target & BIT(i);
        e->presence[i] = fresh || (named && e->kind == EV_DELETE) ? presence(m, s, i) : 0;
        e->flag[i] = flag ? standing(m, s, i) : 0;
        if (fresh)
            e->presence[i] |= own(m, s, e->site, says_present, i);
        if (flag)
            e->flag[i] |= own(m, s, e->site, e->kind == EV_FLAG ? sets : clears, i);
    }
    e->subscription = e->kind == EV_SUBSCRIBE || e->kind == EV_UNSUBSCRIBE ? subscription(m, s) : 0;
    if (e->kind == EV_SUBSCRIBE)
        e->subscription |= own(m, s, e->site, subscribes, 0);
}

/* The value of the last write of a kind, to a folder or to none. */
static char written(const struct model *m, unsigned s, enum kind kind, unsigned folders)
{
    char value = 0;
    uint64_t best = 0;
    unsigned site = 0;
    for (unsigned i = 0; i < m->n; i++) {
        const struct event *e = &m->e[i];
        if (s & BIT(i) && e->kind == kind && (e->folders & folders) == folders &&
            (e->clock > best || (e->clock == best && e->site > site))) {
            best = e->clock;
            site = e->site;
            value = e->name;
        }
    }
    return value;
}

char model_attribute(const struct model *m, unsigned s)
{
    return written(m, s, EV_ATTRIBUTE, 0);
}

unsigned model_keeper(const struct model *m, unsigned s, unsigned folder)
{
    return (unsigned)written(m, s, EV_KEEPER, BIT(folder));
}

unsigned model_uid_validity(const struct model *m, unsigned s, unsigned folder)
{
    unsigned most = UIDVALIDITY_FIRST;
    for (unsigned i = 0; i < m->n; i++)
        if (s & BIT(i) && m->e[i].kind == EV_UIDVALIDITY && m->e[i].folders & BIT(folder) &&
            (unsigned)m->e[i].name > most)
            most = (unsigned)m->e[i].name;
    return most;
}

static uint64_t mix(uint64_t h)
{
    h ^= h >> 30;
    h *= 0xbf58476d1ce4e5b9ULL;
    h ^= h >> 27;
    h *= 0x94d049bb133111ebULL;
    return h ^ h >> 31;
}

uint64_t shown_message(uint64_t folder, unsigned guid, unsigned k, bool flag)
{
    return folder + mix(guid * 1000 + k * 10 + flag + 7);
}

uint64_t shown_folder(char name, unsigned uid_validity, unsigned keeper, uint64_t messages)
{
    return mix(messages ^ mix((uint64_t)name << 32 | keeper << 16 | uid_validity));
}

uint64_t shown_rest(bool subscribed, char attribute)
{
    return mix(subscribed * 3U + (uint64_t)attribute * 17 + 5);
}

uint64_t model_shown(const struct model *m, unsigned s)
{
    uint64_t all = shown_rest(model_subscribed(m, s), model_attribute(m, s));
    unsigned live = model_live_adds(m, s);
    for (unsigned f = 0; f < m->n; f++) {
        if (!(s & BIT(f)) || m->e[f].kind != EV_CREATE || !model_folder_live(m, s, f))
            continue;
        uint64_t messages = 0;
        for (unsigned a = 0; a < m->n; a++) {
            const struct event *e = &m->e[a];
            if (!(live & BIT(a)) || e->folder != f)
                continue;
            unsigned same = model_message(m, s, f, e->guid, e->k);
            if ((same & (BIT(a) - 1)) == 0) /* its first add speaks for the message */
                messages = shown_message(messages, e->guid, e->k, model_flag(m, s, same));
        }
        all += shown_folder(model_folder_name(m, s, f), model_uid_validity(m, s, f),
                            model_keeper(m, s, f), messages);
    }
    return all;
}
