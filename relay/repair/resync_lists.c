/* What this server holds, and what the others hold: ids and revisions, matched as they come. */
#include "relay/repair/resync_work.h"

#include <stdlib.h>
#include <string.h>

#include "relay/repair/lane_scan.h"
#include "relay/tables/namehash.h"
#include "relay/repair/backfill.h"

/* ---- LIST_HERE ---- */

static struct own_lane *find_here(struct resync *w, const char *name, size_t len)
{
    struct own_lane *h = w->bucket[namehash(name, len) & (BUCKETS - 1)];
    while (h && (h->len != len || memcmp(h->name, name, len)))
        h = h->next;
    return h;
}

static size_t slot_of(const unsigned char id[ENTRYID_LEN], size_t nslots)
{
    uint64_t x;
    memcpy(&x, id + ENTRYID_LEN - sizeof x, sizeof x);
    return (size_t)((x * 0x9e3779b97f4a7c15u) >> 20) & (nslots - 1);
}

static void place(struct own_lane *h, uint32_t i)
{
    size_t at = slot_of(h->entry[i].id, h->nslots);
    while (h->slot[at])
        at = (at + 1) & (h->nslots - 1);
    h->slot[at] = i + 1;
}

static void grow_here(struct own_lane *h)
{
    h->size = h->size ? 2 * h->size : 64;
    h->entry = mem_grow(h->entry, h->size * sizeof *h->entry);
    free(h->slot);
    h->nslots = 2 * h->size;
    h->slot = mem_zero(h->nslots * sizeof *h->slot);
    for (uint32_t i = 0; i < h->n; i++)
        place(h, i);
}

static struct own_entry *find_own(const struct own_lane *h, const unsigned char id[ENTRYID_LEN])
{
    if (!h || !h->n)
        return NULL;
    for (size_t at = slot_of(id, h->nslots); h->slot[at]; at = (at + 1) & (h->nslots - 1))
        if (!memcmp(h->entry[h->slot[at] - 1].id, id, ENTRYID_LEN))
            return &h->entry[h->slot[at] - 1];
    return NULL;
}

static void *here_lane(const char *name, size_t len, const struct lanename *parsed, void *arg)
{
    struct resync *w = ((struct site *)arg)->w;
    struct set *s = resync_set_of_lane(w, parsed);
    if (!s || !s->active)
        return NULL;
    struct own_lane *h = mem_zero(sizeof *h),
                    **bucket = &w->bucket[namehash(name, len) & (BUCKETS - 1)];
    h->name = mem_strndup(name, len);
    h->len = len;
    h->set = s;
    h->next = *bucket;
    *bucket = h;
    return h;
}

static bool no_id(const unsigned char id[ENTRYID_LEN])
{
    static const unsigned char none[ENTRYID_LEN];
    return !memcmp(id, none, ENTRYID_LEN);
}

static void here_ids(void *lane, const struct scanned_entry *l, size_t n, void *arg)
{
    struct resync *w = ((struct site *)arg)->w;
    struct own_lane *h = lane;
    for (size_t i = 0; i < n; i++) {
        if (no_id(l[i].id))
            continue; /* not ours */
        if (h->n == h->size)
            grow_here(h);
        struct own_entry *e = &h->entry[h->n];
        *e = (struct own_entry){.revision = l[i].revision, .old = l[i].age >= w->min_age};
        memcpy(e->id, l[i].id, ENTRYID_LEN);
        place(h, (uint32_t)h->n++);
        h->set->held++;
    }
}

static void on_listed(const char *trouble, void *arg)
{
    struct site *site = arg;
    struct resync *w = site->w;
    if (trouble && !w->closing)
        resync_site_failed(w, site->index, trouble);
    site->listed = !trouble;
    resync_answered(w);
    resync_advance(w);
}

void resync_list_here(struct resync *w)
{
    static const struct lane_scan_calls calls = {here_lane, here_ids, on_listed};
    struct site *own = &w->site[w->self];
    if (node_ready(own->node) && lane_scan_open(node_wire(own->node), &calls, own))
        w->open++;
    else
        w->abandoned = true;
}

/* ---- LIST_THERE ---- */

static void *there_lane(const char *name, size_t len, const struct lanename *parsed, void *arg)
{
    struct site *site = arg;
    struct resync *w = site->w;
    struct set *s = resync_set_of_lane(w, parsed);
    if (!s || !resync_uses(s, site->index))
        return NULL;
    struct other_lane *t = mem_zero(sizeof *t);
    t->site = site->index;
    t->name = mem_strndup(name, len);
    t->len = len;
    t->set = s;
    t->here = find_here(w, name, len);
    t->ordered = parsed->generation != 0 && !s->whole;
    t->next = w->there;
    w->there = t;
    return t;
}

static void there_ids(void *lane, const struct scanned_entry *l, size_t n, void *arg)
{
    struct other_lane *t = lane;
    for (size_t i = 0; i < n; i++) {
        uint32_t at = t->place++;
        struct own_entry *e = find_own(t->here, l[i].id);
        if (e) {
            e->matched = true;
            if (t->ordered && (t->n || (t->last && e < t->last)))
                buf_add(&t->behind, l[i].id, ENTRYID_LEN);
            else
                t->last = e;
            if (e->revision != l[i].revision)
                buf_add(e->revision < l[i].revision ? &t->newer_there : &t->newer_here, l[i].id,
                        ENTRYID_LEN);
            continue;
        }
        /* Between two whole owners what one lacks was delivered, or never promised. */
        if (t->set->whole || no_id(l[i].id))
            continue;
        if (t->n == t->size) {
            t->size = t->size ? 2 * t->size : 256;
            t->wanted = mem_grow(t->wanted, t->size * sizeof *t->wanted);
        }
        t->wanted[t->n] = (struct missing_entry){l[i].sequence, l[i].revision, at, {0}};
        memcpy(t->wanted[t->n++].id, l[i].id, ENTRYID_LEN);
    }
}

void resync_list_there(struct resync *w)
{
    static const struct lane_scan_calls calls = {there_lane, there_ids, on_listed};
    for (size_t i = 0; i < w->nsites; i++) {
        struct site *site = &w->site[i];
        bool needed = false;
        for (struct set *s = w->sets; s; s = s->next)
            needed |= i != w->self && resync_uses(s, i) && (w->mode != PERIODIC || s->held);
        site->listed = false;
        if (!needed)
            continue;
        if (node_ready(site->node) && lane_scan_open(node_wire(site->node), &calls, site))
            w->open++;
        else
            resync_site_failed(w, i, "the connection was lost");
    }
}

/* ---- afterwards ---- */

void resync_free_lists(struct resync *w)
{
    for (size_t i = 0; i < BUCKETS; i++)
        while (w->bucket[i]) {
            struct own_lane *h = w->bucket[i];
            w->bucket[i] = h->next;
            free(h->name);
            free(h->entry);
            free(h->slot);
            free(h);
        }
    while (w->there) {
        struct other_lane *t = w->there;
        w->there = t->next;
        free(t->name);
        free(t->wanted);
        buf_free(&t->newer_there);
        buf_free(&t->newer_here);
        buf_free(&t->behind);
        free(t);
    }
}
