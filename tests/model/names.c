/* names - a model of how mailboxes come to the names that the state wants
 * (docs/replication-protocol.md, "Names on a storage"): random trees, from any one to any other, on
 * a storage with directories (dbox, LAYOUT=fs) and on a flat one (Maildir++).
 *
 * Promises: each mailbox that the storage can hold under its name ends there, within a bound of
 * renames; none is lost or doubled; none is ever renamed below itself; nothing that this program
 * made is left; a name that the storage refuses keeps no other mailbox from its place. From 100,000
 * trees on each rule is left out once, and the model must notice.
 *
 * names-model TREES [FIRST] */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOXES 9
#define NODES 96
#define PATH 96
#define RENAMES 400

enum rule {
    NONE,
    SELF_ASIDE,
    MAKE_ROOM,
    OVER,
    BRING_BACK,
    ALL_ASIDE,
    WHO_STAYED,
    AGAIN,
    OWN_NAME,
    RULES
};
static const char *const rule_name[RULES] = {
    "",           "below itself by a name aside", "who has the name goes aside",
    "directory",  "what was in it comes back",    "all go aside",
    "who stayed", "once more while it helps",     "a directory's name of its own"};

/* A name in the storage. box 0: a directory alone. */
struct node {
    char path[PATH];
    unsigned box;
};

struct world {
    bool flat;
    struct node node[NODES];
    unsigned nodes;
    unsigned boxes;
    char row[BOXES + 1][PATH];    /* where the program believes each is, by box */
    char wanted[BOXES + 1][PATH]; /* empty: to be deleted later */
    unsigned order[BOXES];        /* boxes by wanted name */
    unsigned norder;
    char refused[PATH]; /* a name that the storage never takes */
    unsigned renames, tries;
    enum rule without;
    const char *broken;
};

static uint64_t random_state;

static unsigned below(unsigned n)
{
    random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(random_state >> 33) % n;
}

static void broke(struct world *w, const char *what)
{
    if (!w->broken)
        w->broken = what;
}

static bool is_below(const char *path, const char *parent)
{
    size_t n = strlen(parent);
    return strncmp(path, parent, n) == 0 && path[n] == '/';
}

/* --- the storage ------------------------------------------------------------------------------ */

static struct node *node_at(struct world *w, const char *path)
{
    for (unsigned i = 0; i < w->nodes; i++)
        if (strcmp(w->node[i].path, path) == 0)
            return &w->node[i];
    return NULL;
}

static bool has_below(struct world *w, const char *path)
{
    for (unsigned i = 0; i < w->nodes; i++)
        if (is_below(w->node[i].path, path))
            return true;
    return false;
}

static void remove_node(struct world *w, struct node *n)
{
    *n = w->node[--w->nodes];
}

static void add_node(struct world *w, const char *path, unsigned box)
{
    struct node *n = node_at(w, path);
    if (!n && w->nodes == NODES) {
        broke(w, "the model is too small");
        return;
    }
    if (!n) {
        n = &w->node[w->nodes++];
        n->box = 0;
        strcpy(n->path, path);
    }
    if (box)
        n->box = box;
}

static void add_parents(struct world *w, const char *path)
{
    char parent[PATH];
    for (const char *p = strchr(path, '/'); p && !w->flat; p = strchr(p + 1, '/')) {
        memcpy(parent, path, (size_t)(p - path));
        parent[p - path] = '\0';
        add_node(w, parent, 0);
    }
}

enum answer { REFUSED, DONE, DIRECTORY };

static enum answer may_rename(struct world *w, const char *from, const char *to)
{
    struct node *n = node_at(w, to);
    if (is_below(to, from))
        broke(w, "a mailbox is renamed below itself");
    if (is_below(to, from) || !node_at(w, from) || strcmp(to, w->refused) == 0 ||
        (n && n->box != 0))
        return REFUSED;
    if (n && has_below(w, to))
        return DIRECTORY;
    if (n)
        remove_node(w, n);
    return DONE;
}

/* With what is below it. A flat storage leaves a child whose new name is taken. */
static enum answer storage_rename(struct world *w, const char *from, const char *to)
{
    enum answer may = may_rename(w, from, to);
    char name[2 * PATH];
    if (++w->tries > RENAMES)
        broke(w, "no end");
    if (may != DONE || w->broken)
        return may;
    w->renames++;
    add_parents(w, to);
    for (unsigned i = 0; i < w->nodes; i++) {
        struct node *n = &w->node[i];
        bool itself = strcmp(n->path, from) == 0;
        if (!itself && !is_below(n->path, from))
            continue;
        snprintf(name, sizeof name, "%s%s", to, n->path + strlen(from));
        if (strlen(name) >= PATH) {
            broke(w, "a name gets longer and longer");
            return REFUSED;
        }
        if (node_at(w, name))
            continue;
        strcpy(n->path, name);
    }
    return DONE;
}

/* --- the program (worker/apply/rename.c) ------------------------------------------------------- */

/* Of the rows that say from or below it. */
static void rows_follow(struct world *w, const char *from, const char *to, unsigned x)
{
    char name[2 * PATH];
    for (unsigned b = 1; b <= w->boxes; b++) {
        if (strcmp(w->row[b], from) != 0 && !is_below(w->row[b], from))
            continue;
        struct node *old = node_at(w, w->row[b]);
        if (w->flat && b != x && old && w->without != WHO_STAYED)
            continue; /* it stayed */
        snprintf(name, sizeof name, "%s%s", to, w->row[b] + strlen(from));
        if (strlen(name) < PATH)
            strcpy(w->row[b], name);
    }
}

static const char *aside_name(unsigned box, char kind)
{
    static char name[8];
    snprintf(name, sizeof name, "~%c%u", kind, box);
    return name;
}

static enum answer move(struct world *w, unsigned x, const char *to)
{
    char from[PATH];
    strcpy(from, w->row[x]);
    struct node *n = node_at(w, from);
    if (!n || n->box != x) {
        broke(w, "a row is wrong");
        return REFUSED;
    }
    enum answer is = storage_rename(w, from, to);
    if (is == DONE)
        rows_follow(w, from, to, x);
    return is;
}

/* All that are empty, but for a mailbox. */
static void drop_directories(struct world *w, const char *aside)
{
    for (bool any = true; any;) {
        any = false;
        for (unsigned i = 0; i < w->nodes && !any; i++) {
            struct node *n = &w->node[i];
            any = n->box == 0 && (strcmp(n->path, aside) == 0 || is_below(n->path, aside)) &&
                  !has_below(w, n->path);
            if (any)
                remove_node(w, n);
        }
    }
}

/* A mailbox that could not come back with its directory has left it. */
static void drop_aside(struct world *w, const char *was)
{
    char top[PATH];
    const char *end = strchr(was, '/');
    if (end && was[0] == '~') {
        memcpy(top, was, (size_t)(end - was));
        top[end - was] = '\0';
        drop_directories(w, top);
    }
}

static bool go_aside(struct world *w, unsigned x)
{
    char was[PATH];
    const char *aside = aside_name(x, 'a');
    strcpy(was, w->row[x]);
    if (strcmp(was, aside) == 0)
        return true;
    if (move(w, x, aside) != DONE)
        return false;
    drop_aside(w, was);
    return true;
}

static void bring_back(struct world *w, const char *aside, const char *parent)
{
    char child[NODES][PATH], to[2 * PATH];
    unsigned n = 0;
    for (unsigned i = 0; i < w->nodes; i++)
        if (is_below(w->node[i].path, aside) && !strchr(w->node[i].path + strlen(aside) + 1, '/'))
            strcpy(child[n++], w->node[i].path);
    for (unsigned i = 0; i < n && w->without != BRING_BACK; i++) {
        snprintf(to, sizeof to, "%s%s", parent, child[i] + strlen(aside));
        if (strlen(to) < PATH && storage_rename(w, child[i], to) == DONE)
            rows_follow(w, child[i], to, 0);
    }
    drop_directories(w, aside);
}

static bool move_over(struct world *w, unsigned x, const char *to)
{
    char aside[8];
    strcpy(aside, aside_name(w->without == OWN_NAME ? 0 : x, 'd'));
    if (storage_rename(w, to, aside) != DONE)
        return false;
    rows_follow(w, to, aside, 0);
    bool done = move(w, x, to) == DONE;
    if (done)
        bring_back(w, aside, to);
    else if (storage_rename(w, aside, to) == DONE)
        rows_follow(w, aside, to, 0);
    return done;
}

static bool rename_box(struct world *w, unsigned x, const char *to)
{
    char was[PATH];
    strcpy(was, w->row[x]);
    if ((is_below(to, was) || is_below(was, to)) && w->without != SELF_ASIDE && !go_aside(w, x))
        return false;
    enum answer is = move(w, x, to);
    if (is == DIRECTORY && w->without != OVER)
        is = move_over(w, x, to) ? DONE : REFUSED;
    if (is == DONE)
        drop_aside(w, was);
    return is == DONE;
}

/* --- and folders.c ---------------------------------------------------------------------------- */

static bool is_misplaced(const struct world *w, unsigned x)
{
    return w->wanted[x][0] && strcmp(w->row[x], w->wanted[x]) != 0;
}

static void shape_all(struct world *w)
{
    for (unsigned i = 0; i < w->norder && !w->broken; i++) {
        unsigned x = w->order[i];
        bool room = true;
        if (!is_misplaced(w, x))
            continue;
        for (unsigned o = 1; o <= w->boxes; o++)
            if (o != x && strcmp(w->row[o], w->wanted[x]) == 0 && w->without != MAKE_ROOM)
                room = go_aside(w, o);
        if (room)
            rename_box(w, x, w->wanted[x]);
    }
}

static unsigned count_misplaced(const struct world *w)
{
    unsigned n = 0;
    for (unsigned b = 1; b <= w->boxes; b++)
        n += is_misplaced(w, b);
    return n;
}

static void all_aside(struct world *w)
{
    bool goes[BOXES + 1] = {false};
    for (unsigned b = 1; b <= w->boxes; b++)
        for (unsigned m = 1; m <= w->boxes; m++)
            goes[b] |= is_misplaced(w, m) && (b == m || is_below(w->row[b], w->row[m]));
    for (;;) {
        unsigned deepest = 0;
        for (unsigned b = 1; b <= w->boxes; b++)
            if (goes[b] && (!deepest || strlen(w->row[b]) > strlen(w->row[deepest])))
                deepest = b;
        if (!deepest || w->broken)
            return;
        goes[deepest] = false;
        go_aside(w, deepest);
    }
}

static unsigned long by_all_aside, by_directory;

static void arrange(struct world *w)
{
    unsigned before = UINT32_MAX;
    while (!w->broken) {
        unsigned renames = w->renames;
        shape_all(w);
        unsigned left = count_misplaced(w);
        if (left == 0 || w->renames == renames || w->without == AGAIN)
            return;
        if (left >= before)
            break;
        before = left;
    }
    if (w->without == ALL_ASIDE || w->broken)
        return;
    by_all_aside++;
    all_aside(w);
    shape_all(w);
}

/* --- random worlds, and what is promised -------------------------------------------------------- */

static void some_path(char *path)
{
    unsigned depth = 1 + below(4);
    size_t n = 0;
    for (unsigned i = 0; i < depth; i++) {
        if (i)
            path[n++] = '/';
        path[n++] = (char)('0' + below(3));
    }
    path[n] = '\0';
}

static bool is_wanted(const struct world *w, const char *path)
{
    for (unsigned b = 1; b <= w->boxes; b++)
        if (strcmp(w->wanted[b], path) == 0)
            return true;
    return false;
}

static int by_wanted(const void *a, const void *b, void *arg)
{
    const struct world *w = arg;
    const char *x = w->wanted[*(const unsigned *)a], *y = w->wanted[*(const unsigned *)b];
    while (*x && *x == *y) {
        x++;
        y++;
    }
    /* A separator is the smallest byte, as in the state's names. */
    unsigned char p = *x == '/' ? 1 : (unsigned char)*x, q = *y == '/' ? 1 : (unsigned char)*y;
    return p < q ? -1 : p > q;
}

static void make_world(struct world *w, uint64_t seed, enum rule without)
{
    char path[PATH];
    memset(w, 0, sizeof *w);
    random_state = seed;
    below(1);
    w->without = without;
    w->flat = below(2);
    unsigned n = 1 + below(BOXES);
    for (unsigned i = 0; i < n; i++) {
        some_path(path);
        struct node *there = node_at(w, path);
        if (there && there->box)
            continue;
        w->boxes++;
        add_parents(w, path);
        add_node(w, path, w->boxes);
        strcpy(w->row[w->boxes], path);
    }
    for (unsigned b = 1; b <= w->boxes; b++) {
        for (unsigned tries = 0; tries < 4 && !w->wanted[b][0]; tries++) {
            if (below(3) == 0)
                strcpy(path, w->row[b]);
            else
                some_path(path);
            if (!is_wanted(w, path) && below(8))
                strcpy(w->wanted[b], path);
        }
        if (w->wanted[b][0])
            w->order[w->norder++] = b;
    }
    qsort_r(w->order, w->norder, sizeof *w->order, by_wanted, w);
    if (below(10) == 0 && w->norder)
        strcpy(w->refused, w->wanted[w->order[below(w->norder)]]);
}

static void check_rows(struct world *w)
{
    bool seen[BOXES + 1] = {false};
    for (unsigned i = 0; i < w->nodes; i++) {
        unsigned b = w->node[i].box;
        if (b && seen[b])
            broke(w, "a mailbox is there twice");
        seen[b] = true;
        if (b && strcmp(w->row[b], w->node[i].path) != 0)
            broke(w, "a row is wrong");
        if (!b && strncmp(w->node[i].path, "~d", 2) == 0 && !has_below(w, w->node[i].path))
            broke(w, "a directory is left");
    }
    for (unsigned b = 1; b <= w->boxes; b++)
        if (!seen[b])
            broke(w, "a mailbox is lost");
}

static void check_places(struct world *w)
{
    for (unsigned b = 1; b <= w->boxes; b++) {
        bool refused = strcmp(w->wanted[b], w->refused) == 0;
        if (is_misplaced(w, b) && !refused)
            broke(w, "a mailbox is not in its place");
    }
}

static const char *run(uint64_t seed, enum rule without)
{
    struct world w;
    make_world(&w, seed, without);
    arrange(&w);
    /* What the storage refused was there before, and is there the next time. */
    unsigned renames = w.renames;
    if (!w.broken) {
        check_rows(&w);
        check_places(&w);
    }
    if (!w.broken && !w.refused[0]) {
        arrange(&w);
        if (w.renames != renames)
            broke(&w, "it does not come to rest");
    }
    by_directory += !w.flat;
    return w.broken;
}

int main(int argc, char **argv)
{
    unsigned long seeds = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
    unsigned long first = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    int failed = 0;
    for (unsigned long i = first; i < first + seeds; i++) {
        const char *broken = run(i, NONE);
        if (broken) {
            printf("seed %lu: %s\n", i, broken);
            if (++failed == 10)
                return 1;
        }
    }
    printf("%lu trees, %lu with directories: %d did not come to their places; in %lu all went "
           "aside\n",
           seeds, by_directory, failed, by_all_aside);
    for (enum rule rule = NONE + 1; seeds >= 100000 && rule < RULES; rule++) {
        const char *broken = NULL;
        unsigned long at = first;
        for (; at < first + seeds && !broken; at++)
            broken = run(at, rule);
        printf("without \"%s\": %s\n", rule_name[rule], broken ? broken : "nothing is noticed");
        failed += !broken;
    }
    return failed != 0;
}
