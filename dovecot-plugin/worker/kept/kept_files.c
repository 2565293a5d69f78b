/* kept_files - reads the directory of kept mails, and removes those that are too old. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/kept/kept.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <hex-binary.h>
#include <istream.h>
#include <strescape.h>
#include <utc-mktime.h>

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DAY 86400
#define PURGE_EVERY 3600
#define HEAD_MAX 65536

const char *kept_directory(struct session *s)
{
    return t_strconcat(s->dir, "/kept", NULL);
}

/* --- directories ------------------------------------------------------------------------------ */

typedef void entry_fn(void *arg, const char *path, const char *name);

/* -1: it cannot be read; one that is not there has nothing. */
static int each_entry(const char *path, entry_fn *fn, void *arg)
{
    const struct dirent *e;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return errno == ENOENT ? 0 : -1;
    while ((e = readdir(dir)) != NULL) {
        T_BEGIN
        {
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                fn(arg, t_strconcat(path, "/", e->d_name, NULL), e->d_name);
        }
        T_END;
    }
    (void)closedir(dir);
    return 0;
}

/* When the day of a directory began; -1: it is none of a day. */
static time_t day_of(const char *name)
{
    struct tm tm;
    i_zero(&tm);
    const char *end = strptime(name, "%Y%m%d", &tm);
    return end != NULL && *end == '\0' ? utc_mktime(&tm) : -1;
}

/* "<id>" or "<id>.r<time>" */
static bool parse_name(const char *name, time_t *restored_r)
{
    uint64_t at = 0;
    *restored_r = 0;
    for (unsigned i = 0; i < KEPT_ID_SIZE; i++)
        if (!i_isxdigit(name[i]))
            return FALSE;
    if (name[KEPT_ID_SIZE] == '\0')
        return TRUE;
    if (strncmp(name + KEPT_ID_SIZE, ".r", 2) != 0 ||
        str_to_uint64(name + KEPT_ID_SIZE + 2, &at) < 0)
        return FALSE;
    *restored_r = (time_t)at;
    return TRUE;
}

/* --- one mail --------------------------------------------------------------------------------- */

struct reading {
    struct session *s;
    pool_t pool;
    ARRAY_TYPE(kept_mail) * mails;
    unsigned n;
};

static void read_number(const char *value, uint64_t *number_r)
{
    if (str_to_uint64(value, number_r) < 0)
        *number_r = 0;
}

static void read_field(struct kept_mail *m, pool_t pool, ARRAY_TYPE(const_string) * flags,
                       const char *name, const char *value)
{
    uint64_t n = 0;
    const char *text = str_tabunescape(p_strdup(pool, value));
    if (strcmp(name, "folder") == 0)
        m->vname = text;
    else if (strcmp(name, "flag") == 0)
        array_push_back(flags, &text);
    read_number(value, &n);
    if (strcmp(name, "removed") == 0)
        m->removed = (time_t)n;
    else if (strcmp(name, "received") == 0)
        m->received = (time_t)n;
    else if (strcmp(name, "by") == 0)
        m->site = n;
    else if (strcmp(name, "size") == 0)
        m->size = n;
    else if (strcmp(name, "uid") == 0)
        m->uid = (uint32_t)n;
    else if (strcmp(name, "sha256") == 0 && strlen(value) == 2 * sizeof m->sha256) {
        buffer_t *bytes = t_buffer_create(sizeof m->sha256);
        if (hex_to_binary(value, bytes) == 0)
            memcpy(m->sha256, bytes->data, sizeof m->sha256);
    }
}

/* FALSE: it is no kept mail. */
static bool read_head(struct kept_mail *m, pool_t pool, struct istream *in)
{
    ARRAY_TYPE(const_string) flags;
    const char *line = i_stream_read_next_line(in);
    if (line == NULL || strcmp(line, "dovelane-kept 1") != 0)
        return FALSE;
    p_array_init(&flags, pool, 4);
    while ((line = i_stream_read_next_line(in)) != NULL && *line != '\0') {
        const char *blank = strchr(line, ' ');
        if (blank != NULL)
            read_field(m, pool, &flags, t_strdup_until(line, blank), blank + 1);
    }
    m->offset = in->v_offset;
    array_append_zero(&flags);
    m->flags = array_front(&flags);
    return line != NULL && m->vname != NULL;
}

static void read_mail(void *arg, const char *path, const char *name)
{
    struct reading *r = arg;
    struct kept_mail m;
    i_zero(&m);
    if (*name == '.' || !parse_name(name, &m.restored))
        return;
    m.path = p_strdup(r->pool, path);
    m.id = p_strndup(r->pool, name, KEPT_ID_SIZE);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct istream *in = fd == -1 ? NULL : i_stream_create_fd_autoclose(&fd, HEAD_MAX);
    if (in != NULL && read_head(&m, r->pool, in))
        array_push_back(r->mails, &m);
    else
        session_note(r->s, NOTE_WARNING, "%s: cannot be read as a kept mail: %s", path,
                     in == NULL ? strerror(errno) : "its head is incomplete");
    i_stream_unref(&in);
}

static void read_day(void *arg, const char *path, const char *name)
{
    struct reading *r = arg;
    if (day_of(name) >= 0 && each_entry(path, read_mail, r) < 0)
        session_note(r->s, NOTE_WARNING, "%s: %m", path);
}

/* One that was put back first. */
static int by_id(const struct kept_mail *a, const struct kept_mail *b)
{
    int c = strcmp(a->id, b->id);
    c = c != 0 ? c : (a->restored == 0) - (b->restored == 0);
    return c != 0 ? c : strcmp(a->path, b->path);
}

/* Its removal was cut short, and tried again on another day, or when it was put back already. */
static void leave_out_second(ARRAY_TYPE(kept_mail) * mails)
{
    struct kept_mail *m;
    unsigned n, left = 0;
    array_sort(mails, by_id);
    m = array_get_modifiable(mails, &n);
    for (unsigned i = 0; i < n; i++)
        if (left == 0 || strcmp(m[i].id, m[left - 1].id) != 0)
            m[left++] = m[i];
    array_delete(mails, left, n - left);
}

static int by_removal(const struct kept_mail *a, const struct kept_mail *b)
{
    int c = a->removed < b->removed ? -1 : a->removed > b->removed;
    c = c != 0 ? c : strcmp(a->vname, b->vname);
    c = c != 0 ? c : a->uid < b->uid ? -1 : a->uid > b->uid;
    return c != 0 ? c : strcmp(a->path, b->path);
}

int kept_list(struct session *s, pool_t pool, ARRAY_TYPE(kept_mail) * mails)
{
    struct reading r = {.s = s, .pool = pool, .mails = mails};
    if (each_entry(kept_directory(s), read_day, &r) < 0)
        return session_fail(s, "%s: %m", kept_directory(s));
    leave_out_second(mails);
    array_sort(mails, by_removal);
    return 0;
}

static void count_mail(void *arg, const char *path, const char *name)
{
    unsigned *n = arg;
    time_t restored;
    (void)path;
    *n += parse_name(name, &restored);
}

static void count_day(void *arg, const char *path, const char *name)
{
    if (day_of(name) >= 0)
        (void)each_entry(path, count_mail, arg);
}

unsigned kept_count(struct session *s)
{
    unsigned n = 0;
    (void)each_entry(kept_directory(s), count_day, &n);
    return n;
}

/* --- age -------------------------------------------------------------------------------------- */

struct purging {
    struct session *s;
    time_t before;
};

/* By the time at which it was written: who copies the directory without the files' times keeps
 * them for longer. */
static void purge_mail(void *arg, const char *path, const char *name)
{
    struct purging *p = arg;
    struct stat st;
    if (lstat(path, &st) < 0 || st.st_mtime >= p->before)
        return;
    if (unlink(path) < 0)
        session_note(p->s, NOTE_WARNING, "unlink(%s), a kept mail that is too old: %m", path);
    else if (*name != '.')
        p->s->kept.purged++;
}

static void purge_day(void *arg, const char *path, const char *name)
{
    struct purging *p = arg;
    time_t day = day_of(name);
    if (day < 0 || day >= p->before)
        return;
    if (each_entry(path, purge_mail, p) < 0)
        session_note(p->s, NOTE_WARNING, "%s: %m", path);
    else if (day + DAY < p->before && rmdir(path) < 0 && errno != ENOTEMPTY && errno != EEXIST)
        session_note(p->s, NOTE_WARNING, "rmdir(%s): %m", path);
}

void kept_purge(struct session *s)
{
    time_t now = time(NULL), keep = s->group->keep_expunged;
    struct purging p = {.s = s, .before = now - keep};
    if (keep == 0 || now < s->kept.purge_after)
        return;
    s->kept.purge_after = now + I_MIN(PURGE_EVERY, keep);
    uint64_t had = s->kept.purged;
    if (each_entry(kept_directory(s), purge_day, &p) < 0)
        session_note(s, NOTE_WARNING, "%s: %m", kept_directory(s));
    if (s->kept.purged > had)
        session_report(s, "%llu kept mails are older than keep_expunged, and are removed",
                       (unsigned long long)(s->kept.purged - had));
}
