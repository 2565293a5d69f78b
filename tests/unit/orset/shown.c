/* shown - random names on random storages: what is shown (orset/state/shown.h) is one to one,
 * what a storage can hold is shown as it is, and what a client makes there is shown where it made
 * it.
 *
 * orset-shown SEEDS [FIRST] */
#include "dovecot-plugin/orset/state/shown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES 14
#define MOST 64

struct name {
    char text[MOST];
    size_t len;
};

/* One storage with its limits, and the names that it is to show. */
struct storage {
    char special[4];
    const char *reserved[3]; /* what it has for itself, or what a namespace begins with */
    size_t longest;          /* of all that is shown; 0: no bound */
    bool inbox;              /* its last component must not be INBOX */
    struct name name[NAMES];
    unsigned n;
};

static uint64_t seed, state;
static unsigned long shown_as_is, escaped, not_shown, made;

static unsigned below(unsigned n)
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(state >> 33) % n;
}

static void print_name(const char *what, const char *s, size_t len)
{
    fprintf(stderr, "%s ", what);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == 0)
            fputs("|", stderr);
        else if (c < 0x20 || c > 0x7e)
            fprintf(stderr, "\\x%02x", c);
        else
            fputc(c, stderr);
    }
    fputc('\n', stderr);
}

static void require(bool is, const char *what, const char *a, size_t alen, const char *b,
                    size_t blen)
{
    if (is)
        return;
    fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, what);
    print_name("  name ", a, alen);
    print_name("  shown", b, blen);
    exit(1);
}

static bool is_text(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == 0xc3 && i + 1 < len && (unsigned char)s[i + 1] == 0xa9)
            i++;
        else if (c >= 0x7f || c < 0x20)
            return false;
    }
    return true;
}

static bool holds(void *arg, const char *shown, size_t len, bool last)
{
    const struct storage *st = arg;
    size_t begin = len;
    while (begin > 0 && shown[begin - 1] != '\0')
        begin--;
    const char *part = shown + begin;
    size_t n = len - begin;
    if (n == 0 || !is_text(part, n) || (st->longest && len > st->longest) || part[0] == '~')
        return false;
    if ((n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
        return false;
    for (size_t i = 0; i < n; i++)
        if (strchr(st->special, part[i]))
            return false;
    for (unsigned i = 0; i < 3; i++)
        if (st->reserved[i] && strlen(st->reserved[i]) == n && !memcmp(part, st->reserved[i], n))
            return false;
    return !(st->inbox && last && n == 5 && memcmp(part, "INBOX", 5) == 0);
}

static bool exists(void *arg, const char *name, size_t len)
{
    const struct storage *st = arg;
    for (unsigned i = 0; i < st->n; i++)
        if (st->name[i].len >= len && memcmp(st->name[i].text, name, len) == 0 &&
            (st->name[i].len == len || st->name[i].text[len] == '\0'))
            return true;
    return false;
}

static void add_text(struct name *n, const char *s, size_t len)
{
    if (n->len + len < MOST) {
        memcpy(n->text + n->len, s, len);
        n->len += len;
    }
}

static void make_part(struct name *n)
{
    static const char *const bit[] = {
        "a",     "b", "/",    ".",  "%",     "%2F",      "%2E",  "%6",  "1",   "25",       "tmp",
        "INBOX", "~", "\x01", "..", "%74mp", "\xc3\xa9", "\xff", "%61", "box", "Foo%20Bar"};
    unsigned most = 1 + below(3);
    for (unsigned i = 0; i < most; i++) {
        const char *s = bit[below(sizeof bit / sizeof *bit)];
        add_text(n, s, strlen(s));
    }
}

static void make_name(struct name *n)
{
    unsigned parts = 1 + below(3);
    n->len = 0;
    add_text(n, "inbox", 5);
    for (unsigned i = 0; i < parts && n->len < MOST - 16; i++) {
        n->text[n->len++] = '\0';
        make_part(n);
    }
}

static void make_storage(struct storage *st)
{
    static const char *const special[] = {"/", "/.", "/\\", "."};
    static const char *const reserved[] = {"tmp", "box", "Foo%20Bar", "a"};
    memset(st, 0, sizeof *st);
    strcpy(st->special, special[below(4)]);
    for (unsigned i = 0; i < 3; i++)
        st->reserved[i] = below(2) ? reserved[below(4)] : NULL;
    st->inbox = below(2);
    st->longest = below(4) ? 0 : 12 + below(40);
    unsigned n = 1 + below(NAMES);
    for (unsigned i = 0; i < n; i++) {
        make_name(&st->name[st->n]);
        if (!exists(st, st->name[st->n].text, st->name[st->n].len) || below(2))
            st->n++;
    }
}

static bool held_as_it_is(struct storage *st, const struct name *n)
{
    for (size_t i = 6; i <= n->len; i++)
        if ((i == n->len || n->text[i] == '\0') && !holds(st, n->text, i, i == n->len))
            return false;
    return true;
}

static bool same(const struct name *a, const struct name *b)
{
    return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

static void check_names(struct storage *st, const struct orset_layout *l)
{
    char shown[NAMES][ORSET_SHOWN_MAX(MOST)], back[ORSET_SHOWN_MAX(MOST)];
    size_t len[NAMES];
    for (unsigned i = 0; i < st->n; i++) {
        const struct name *n = &st->name[i];
        len[i] = orset_show(l, n->text, n->len, shown[i]);
        require(len[i] > 0 || st->longest, "is not shown", n->text, n->len, "", 0);
        if (len[i] == 0) {
            not_shown++;
            continue;
        }
        if (held_as_it_is(st, n)) {
            shown_as_is++;
            require(len[i] == n->len && memcmp(shown[i], n->text, n->len) == 0,
                    "can be held and is shown otherwise", n->text, n->len, shown[i], len[i]);
        } else {
            escaped++;
        }
        require(holds(st, shown[i], len[i], true), "cannot be held", n->text, n->len, shown[i],
                len[i]);
        size_t k = orset_unshow(l, shown[i], len[i], back);
        require(k == n->len && memcmp(back, n->text, k) == 0, "does not come back", back, k,
                shown[i], len[i]);
        for (unsigned j = 0; j < i; j++)
            require(same(n, &st->name[j]) || len[j] != len[i] ||
                        memcmp(shown[i], shown[j], len[i]) != 0,
                    "two names are shown alike", n->text, n->len, shown[i], len[i]);
    }
}

/* A client at that storage makes something: it gets a name that is shown where it was made. */
static void check_made(struct storage *st, const struct orset_layout *l)
{
    struct name n;
    char out[ORSET_SHOWN_MAX(MOST)], again[ORSET_SHOWN_MAX(3 * MOST)];
    if (st->n == NAMES)
        return;
    make_name(&n);
    if (below(2)) { /* below one that is shown */
        const struct name *of = &st->name[below(st->n)];
        size_t len = orset_show(l, of->text, of->len, out);
        if (len == 0 || len + 3 > MOST)
            return;
        memcpy(n.text, out, len);
        memcpy(n.text + len, "\0q", 2);
        n.len = len + 2;
    }
    if (!held_as_it_is(st, &n))
        return;
    size_t len = orset_unshow(l, n.text, n.len, out);
    memcpy(st->name[st->n].text, out, len);
    st->name[st->n++].len = len;
    size_t k = orset_show(l, out, len, again);
    made++;
    require(k == n.len && memcmp(again, n.text, k) == 0, "was made elsewhere", out, len, n.text,
            n.len);
}

int main(int argc, char **argv)
{
    unsigned long seeds = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    unsigned long first = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    for (unsigned long i = 0; i < seeds; i++) {
        struct storage st;
        seed = state = first + i;
        below(1);
        make_storage(&st);
        if (st.n == 0)
            continue;
        const struct orset_layout l = {&st, st.special, holds, exists};
        check_names(&st, &l);
        check_made(&st, &l);
        check_names(&st, &l);
    }
    printf("%lu seeds: %lu names as they are, %lu escaped, %lu too long; %lu made by clients\n",
           seeds, shown_as_is, escaped, not_shown, made);
    return shown_as_is && escaped && made ? 0 : 1;
}
