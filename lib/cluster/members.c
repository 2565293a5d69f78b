#include "lib/cluster/members.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"

#define WORDS_MOST 9 /* of a record */

static void clear(struct member *m)
{
    free(m->name);
#define MEMBER_TEXT(text) free(m->text);
    MEMBER_TEXTS
#undef MEMBER_TEXT
}

bool member_out(const struct member *m)
{
    return m->gone || (m->joining && m->epoch);
}

void members_free(struct members *t)
{
    for (size_t i = 0; i < t->n; i++)
        clear(&t->v[i]);
    free(t->v);
    *t = (struct members){0};
}

const struct member *members_find(const struct members *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->v[i].name, name))
            return &t->v[i];
    return NULL;
}

/* ---- text ---- */

static const char *dash(const char *text)
{
    return *text ? text : "-";
}

static void write_one(const struct member *m, struct buf *out)
{
    buf_printf(out, "%llu", m->serial);
    if (m->epoch)
        buf_printf(out, "/%llu", m->epoch);
    if (m->gone) {
        buf_printf(out, " gone %s\n", m->name);
        return;
    }
    buf_printf(out, " %s %s %s %s %s %s", m->joining ? "joining" : "node", m->name, m->redis,
               dash(m->standby), dash(m->tls), dash(m->tls_name));
    if (*m->site || *m->zone)
        buf_printf(out, " %s %s", dash(m->site), dash(m->zone));
    buf_add(out, "\n", 1);
}

void members_write(const struct members *t, struct buf *out)
{
    for (size_t i = 0; i < t->n; i++)
        write_one(&t->v[i], out);
}

static char *undash(const char *text)
{
    return mem_strdup(strcmp(text, "-") ? text : "");
}

/* "<serial>" or "<serial>/<epoch>". False: it is neither. */
static bool read_serial(const char *word, unsigned long long *serial, unsigned long long *epoch)
{
    char *end;
    *epoch = 0;
    if (*word < '0' || *word > '9')
        return false;
    *serial = strtoull(word, &end, 10);
    if (*end == '/' && end[1] > '0' && end[1] <= '9')
        *epoch = strtoull(end + 1, &end, 10);
    return !*end;
}

/* line: without its end; it is written into. */
static bool read_one(char *line, struct member *out)
{
    char *word[WORDS_MOST + 1], *rest = NULL;
    unsigned long long serial, epoch;
    size_t n = 0;
    for (char *w = strtok_r(line, " ", &rest); w && n <= WORDS_MOST; w = strtok_r(NULL, " ", &rest))
        word[n++] = w;
    if (n < 3 || !read_serial(word[0], &serial, &epoch))
        return false;
    bool gone = !strcmp(word[1], "gone"), joining = !strcmp(word[1], "joining");
    if (strlen(word[2]) > 64 ||
        (gone ? n != 3 : (n != 7 && n != WORDS_MOST) || (!joining && strcmp(word[1], "node"))))
        return false;
    *out = (struct member){.serial = serial,
                           .epoch = epoch,
                           .gone = gone,
                           .joining = joining,
                           .name = mem_strdup(word[2])};
    size_t at = 3;
#define MEMBER_TEXT(text) out->text = at < n ? undash(word[at++]) : mem_strdup("");
    MEMBER_TEXTS
#undef MEMBER_TEXT
    return true;
}

/* ---- uniting ---- */

/* Of two that were said with one serial the one that takes out counts, and of two others any, as
 * long as it is the same one everywhere. */
static bool counts_more(const struct member *a, const struct member *b)
{
    if (a->epoch != b->epoch)
        return a->epoch > b->epoch;
    if (a->joining != b->joining)
        return b->joining;
    if (a->serial != b->serial)
        return a->serial > b->serial;
    if (a->gone != b->gone)
        return a->gone;
    struct buf one = {0}, other = {0};
    write_one(a, &one);
    write_one(b, &other);
    bool more = strcmp(one.data, other.data) > 0;
    buf_free(&one);
    buf_free(&other);
    return more;
}

/* old: the record that it replaces, or NULL. */
static bool has_room(const struct members *t, const struct member *m, const struct member *old)
{
    struct buf text = {0}, less = {0};
    members_write(t, &text);
    write_one(m, &text);
    if (old)
        write_one(old, &less);
    bool has = text.len - less.len <= MEMBERS_TEXT_MOST;
    buf_free(&text);
    buf_free(&less);
    return has;
}

/* A record beyond these would count more than anything that can be said after it, or keep the
 * table from being read. */
static bool in_bounds(const struct member *m)
{
    bool good = m->serial && m->serial <= MEMBERS_SERIAL_MOST && m->epoch <= MEMBERS_EPOCH_MOST &&
                strlen(m->name) <= 64;
#define MEMBER_TEXT(text) good = good && strlen(m->text) <= MEMBERS_WORD_MOST;
    MEMBER_TEXTS
#undef MEMBER_TEXT
    return good;
}

bool members_say(struct members *t, const struct member *m)
{
    if (!in_bounds(m))
        return false;
    size_t i = 0;
    while (i < t->n && strcmp(t->v[i].name, m->name) < 0)
        i++;
    bool there = i < t->n && !strcmp(t->v[i].name, m->name);
    if ((there ? !counts_more(m, &t->v[i]) : t->n == MEMBERS_MOST) ||
        !has_room(t, m, there ? &t->v[i] : NULL))
        return false;
    struct member copy = *m;
    copy.name = mem_strdup(m->name);
#define MEMBER_TEXT(text) copy.text = mem_strdup(m->text);
    MEMBER_TEXTS
#undef MEMBER_TEXT
    if (there) {
        clear(&t->v[i]);
    } else {
        t->v = mem_grow(t->v, (t->n + 1) * sizeof *t->v);
        memmove(&t->v[i + 1], &t->v[i], (t->n++ - i) * sizeof *t->v);
    }
    t->v[i] = copy;
    return true;
}

bool members_read(struct members *t, const char *text)
{
    bool changed = false;
    for (const char *end; *text; text = *end ? end + 1 : end) {
        struct member m;
        end = text + strcspn(text, "\n");
        char *line = mem_strndup(text, (size_t)(end - text));
        if (read_one(line, &m)) {
            changed |= members_say(t, &m);
            clear(&m);
        }
        free(line);
    }
    return changed;
}

unsigned long long members_serial(const struct members *t, const char *name)
{
    unsigned long long serial = (unsigned long long)clock_wall() / 1000;
    const struct member *m = members_find(t, name);
    return m && m->serial >= serial ? m->serial + 1 : serial;
}

/* ---- the file ---- */

/* The proxy is a user of its own, with a directory of its own. */
char *members_file(const char *state_directory, const char *program)
{
    return mem_printf("%s%s/nodes-%s", state_directory,
                      strcmp(program, "dovelane-proxy") ? "" : "/proxy", program);
}

int members_load(struct members *t, const char *file)
{
    /* Root reads it, too, where another user may put a FIFO or a link. */
    struct stat st;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    FILE *f = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (!f) {
        close(fd);
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        return -1;
    }
    char *text = mem_zero(MEMBERS_TEXT_MOST + 2);
    size_t n = fread(text, 1, MEMBERS_TEXT_MOST + 1, f);
    int error = ferror(f) ? errno : n > MEMBERS_TEXT_MOST ? EFBIG : 0;
    fclose(f);
    if (!error)
        members_read(t, text);
    free(text);
    errno = error;
    return error ? -1 : 0;
}

static int sync_directory(const char *file)
{
    const char *slash = strrchr(file, '/');
    char *directory = slash && slash != file ? mem_strndup(file, (size_t)(slash - file))
                                             : mem_strdup(slash ? "/" : ".");
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(directory);
    int r = fd < 0 ? -1 : fsync(fd);
    if (fd >= 0)
        close(fd);
    return r;
}

int members_save(struct members *t, const char *file)
{
    struct buf text = {0};
    if (members_load(t, file) < 0)
        return -1;
    members_write(t, &text);
    char *fresh = mem_printf("%s.new", file);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool good = fd >= 0 && (!text.len || write(fd, text.data, text.len) == (ssize_t)text.len) &&
                fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    good = good && rename(fresh, file) == 0 && sync_directory(file) == 0;
    free(fresh);
    buf_free(&text);
    return good ? 0 : -1;
}
