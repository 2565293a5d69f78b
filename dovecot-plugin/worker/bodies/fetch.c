/* fetch - asks one site after the other, and keeps what comes. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/mailbox/canonical.h"
#include "dovecot-plugin/mailbox/mail_facts.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/fetch.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/bodies/fetch.h"
#include "dovecot-plugin/worker/bodies/stubs.h"
#include "dovecot-plugin/worker/session/files.h"
#include "dovecot-plugin/worker/session/link.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <hex-binary.h>
#include <istream.h>
#include <str.h>
#include <write-full.h>

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define NEXT_AFTER 3000   /* milliseconds without a word: the next site is asked */
#define SILENT_FOR 60000  /* milliseconds in which it comes last */
#define WANTED_FOR 120000 /* milliseconds after which what nobody asks for any more is forgotten */
#define KEPT_SECS 600     /* since it was wanted last */
#define KEPT_BYTES (256 * 1024 * 1024)
#define KEPT_FILES 10000
#define FREE_PART 10 /* of the disk one in so many bytes stays free, or only the last text stays */
#define FETCHING_MOST 256
#define LOOK_EVERY 60000 /* milliseconds */

/* --- files ------------------------------------------------------------------------------------ */

static const char *directory(const struct session *s)
{
    return t_strconcat(s->dir, "/" FETCH_DIRECTORY, NULL);
}

static const char *path_of(const struct session *s, const uint8_t sha256[32])
{
    return t_strconcat(directory(s), "/", binary_to_hex(sha256, 32), NULL);
}

/* With the size that is asked for: a made-up one takes no part of the true one. */
static const char *part_of(const struct session *s, const struct fetching *f)
{
    return t_strdup_printf("%s.%llu.part", path_of(s, f->sha256), (unsigned long long)f->size);
}

struct fetched_file {
    char name[96]; /* a SHA-256, a size and "part" */
    time_t used;
    uint64_t size;
};
ARRAY_DEFINE_TYPE(fetched_file, struct fetched_file);

static int by_age(const struct fetched_file *a, const struct fetched_file *b)
{
    return a->used < b->used ? 1 : a->used > b->used ? -1 : 0; /* the youngest first */
}

static void list_files(DIR *dir, ARRAY_TYPE(fetched_file) * files)
{
    const struct dirent *entry;
    struct stat st;
    while ((entry = readdir(dir)) != NULL && array_count(files) < KEPT_FILES) {
        if (entry->d_name[0] == '.' ||
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        struct fetched_file *f = array_append_space(files);
        i_strocpy(f->name, t_strndup(entry->d_name, sizeof f->name - 1), sizeof f->name);
        f->used = st.st_mtime;
        f->size = (uint64_t)st.st_size;
    }
}

/* How much may stay: mail needs the disk more. */
static uint64_t most_bytes(const struct session *s)
{
    struct statvfs disk;
    bool full = statvfs(directory(s), &disk) == 0 && disk.f_bavail < disk.f_blocks / FREE_PART;
    return full ? 0 : KEPT_BYTES;
}

/* What is old, and the oldest texts above most bytes; never the one that came last, nor a part to
 * which more comes. */
static void drop_old(struct session *s, uint64_t most)
{
    ARRAY_TYPE(fetched_file) files;
    const struct fetched_file *f;
    uint64_t bytes = 0;
    time_t now = time(NULL);
    DIR *dir = opendir(directory(s));
    s->fetched = FALSE;
    if (dir == NULL)
        return;
    i_array_init(&files, 16);
    list_files(dir, &files);
    array_sort(&files, by_age);
    array_foreach (&files, f) {
        bytes += f->size;
        bool part = strchr(f->name, '.') != NULL;
        if ((bytes > most && bytes > f->size && !part) || f->used + KEPT_SECS < now ||
            f->used > now + 1)
            (void)unlinkat(dirfd(dir), f->name, 0);
        else
            s->fetched = TRUE;
    }
    array_free(&files);
    (void)closedir(dir);
}

void fetch_end(struct session *s)
{
    uint64_t now = clock_msecs();
    if (!s->fetched)
        return;
    if (now >= s->fetched_look) {
        drop_old(s, most_bytes(s));
        s->fetched_look = now + LOOK_EVERY;
    }
    if (s->fetched)
        session_want_tick(s, KEPT_SECS * 1000 + 1000);
}

/* It is here; and it is wanted now. */
static bool is_here(struct session *s, const uint8_t sha256[32])
{
    return utimensat(AT_FDCWD, path_of(s, sha256), NULL, AT_SYMLINK_NOFOLLOW) == 0;
}

/* --- what is fetched -------------------------------------------------------------------------- */

static struct fetching *find(struct session *s, const uint8_t sha256[32], uint64_t size)
{
    struct fetching *f;
    array_foreach_modifiable (&s->fetching, f) {
        if (memcmp(f->sha256, sha256, sizeof f->sha256) == 0 && f->size == size)
            return f;
    }
    return NULL;
}

static void forget(struct session *s, const struct fetching *is)
{
    const struct fetching *f = find(s, is->sha256, is->size);
    if (f != NULL)
        array_delete(&s->fetching, array_ptr_to_idx(&s->fetching, f), 1);
}

static void forget_unwanted(struct session *s)
{
    uint64_t now = clock_msecs();
    for (unsigned i = array_count(&s->fetching); i > 0; i--) {
        const struct fetching *f = array_idx(&s->fetching, i - 1);
        if (now - f->wanted > WANTED_FOR || array_count(&s->fetching) > FETCHING_MOST)
            array_delete(&s->fetching, i - 1, 1);
    }
}

struct search {
    const uint8_t *sha256;
    uint64_t size;
    struct orset_message found;
    bool is;
};

static int has_bytes(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct search *look = arg;
    (void)own;
    if (memcmp(m->facts.sha256, look->sha256, 32) != 0 || m->facts.size != look->size)
        return 0;
    look->found = *m;
    look->is = TRUE;
    return 1;
}

/* A message of these bytes: one of that GUID, or, where a GUID is another than the message's, any.
 * 1, 0, -1 */
static int find_message(struct session *s, const uint8_t guid[16], struct search *look)
{
    for (uint32_t i = 0; i < orset_folders(s->os) && !look->is; i++)
        if (orset_each_copy(s->os, i, guid, has_bytes, look) < 0)
            return session_core_failed(s, "GUID");
    for (uint32_t i = 0; i < orset_folders(s->os) && !look->is; i++)
        if (orset_each_message(s->os, i, has_bytes, look) < 0)
            return session_core_failed(s, "messages");
    return look->is;
}

/* NULL: no message has these bytes, or *failed_r */
static struct fetching *add(struct session *s, const uint8_t guid[16], const uint8_t sha256[32],
                            uint64_t size, bool *failed_r)
{
    struct search look = {.sha256 = sha256, .size = size};
    int r = find_message(s, guid, &look);
    *failed_r = r < 0;
    if (r <= 0)
        return NULL;
    struct orset_origin o = orset_origin_get(s->os, look.found.dot.origin);
    struct fetching *f = array_append_space(&s->fetching);
    memcpy(f->sha256, sha256, sizeof f->sha256);
    f->size = size;
    f->site = o.site;
    f->epoch = o.epoch;
    f->number = look.found.dot.counter;
    return f;
}

/* --- asking ----------------------------------------------------------------------------------- */

static uint64_t have(struct session *s, const struct fetching *f)
{
    struct stat st;
    return stat(part_of(s, f), &st) == 0 ? (uint64_t)st.st_size : 0;
}

static int write_part(struct session *s, const char *path, uint64_t offset, const struct text *part)
{
    const int how = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int fd = open(path, how, 0600), r;
    if (fd == -1 && errno == ENOENT && mkdir(directory(s), 0700) == 0)
        fd = open(path, how, 0600);
    r = fd == -1 ? -1 : pwrite_full(fd, part->p, part->n, (off_t)offset);
    int error = errno;
    i_close_fd(&fd);
    errno = error;
    return r < 0 ? -1 : 0;
}

/* The file says to a session that comes after this one that a text is awaited. */
static void await(struct session *s, const struct fetching *f)
{
    const struct text nothing = {"", 0};
    (void)write_part(s, part_of(s, f), 0, &nothing);
    s->fetched = TRUE;
}

static void ask(struct session *s, struct fetching *f, const struct peer *p)
{
    await(s, f);
    struct orset_buf list = {.alloc = session_alloc()}, b = {.alloc = session_alloc()};
    const struct parcel_want want = {.site = f->site,
                                     .epoch = f->epoch,
                                     .number = f->number,
                                     .sha256 = f->sha256,
                                     .offset = have(s, f)};
    f->asked = clock_msecs();
    f->until = want.offset + (uint64_t)PARCEL_PARTS_MAX * PARCEL_PART_MAX;
    f->last = (unsigned)(p - s->peer);
    f->tried |= 1ULL << f->last;
    parcel_put_wants(&b, 1);
    parcel_put_want(&list, &want);
    orset_buf_put(&b, list.data, list.len);
    if (!b.failed && !list.failed)
        session_send(s, p->site, PARCEL_WANT, TRUE, b.data, b.len);
    orset_buf_free(&b);
    orset_buf_free(&list);
}

/* Who said nothing lately comes last: each mail would wait for it. */
static bool is_of_class(const struct session *s, const struct peer *p, bool silent, bool whole)
{
    return silent == (clock_msecs() < p->silent_until) && whole == stubs_site_is_whole(s, p->site);
}

/* The next one that was not asked in this turn. Of those that speak, and then of those that do not,
 * they come first who have all mails whole. */
static const struct peer *next_peer(const struct session *s, const struct fetching *f)
{
    for (unsigned class = 0; class < 4; class ++) {
        for (unsigned i = 0; i < s->npeers; i++)
            if ((f->tried & 1ULL << i) == 0 &&
                is_of_class(s, &s->peer[i], class >= 2, class % 2 == 0))
                return &s->peer[i];
    }
    return NULL;
}

static void ask_next(struct session *s, struct fetching *f)
{
    const struct peer *p = next_peer(s, f);
    if (p == NULL) {
        f->tried = f->not_at = 0;
        p = next_peer(s, f);
    }
    if (p != NULL)
        ask(s, f, p);
}

/* A turn in which all said no ends with a pause, too. */
static void ask_if_due(struct session *s, struct fetching *f)
{
    uint64_t now = clock_msecs();
    bool missed = f->not_at != 0 && f->not_at == f->tried && next_peer(s, f) != NULL;
    bool silent = f->asked != 0 && now - f->asked >= NEXT_AFTER;
    if (silent && (f->not_at & 1ULL << f->last) == 0)
        s->peer[f->last].silent_until = now + SILENT_FOR;
    if (f->asked == 0 || missed || silent)
        ask_next(s, f);
}

static const char *name_of(const struct session *s, uint64_t site)
{
    const char *const *all = t_strsplit_spaces(s->group->replicas, " ");
    const char *end = t_strdup_printf("=%llu", (unsigned long long)site);
    for (; *all != NULL; all++) {
        const char *is = strchr(*all, '=');
        if (is != NULL && strcmp(is, end) == 0)
            return t_strdup_until(*all, is);
    }
    return end + 1;
}

static const char *say_asked(const struct session *s, const struct fetching *f)
{
    string_t *text = t_str_new(128);
    for (unsigned i = 0; i < s->npeers; i++)
        if (((f->tried | f->without) & 1ULL << i) != 0)
            str_printfa(text, "%s%s%s", str_len(text) > 0 ? ", " : "", name_of(s, s->peer[i].site),
                        (f->without & 1ULL << i) != 0 ? " (has not got it)" : "");
    return t_strdup_printf("asked: %s", str_len(text) > 0 ? str_c(text) : "nobody yet");
}

static bool has_its_bytes(struct session *s, const struct fetching *f, const char *path)
{
    uint8_t is[32];
    uint64_t size;
    const char *error;
    int fd = session_open_file(s, path);
    return fd != -1 &&
           mail_hash_stream(
               (struct canonical){.in = i_stream_create_fd_autoclose(&fd, 65536), .as_it_is = TRUE},
               is, &size, NULL, 0, &error) == 0 &&
           memcmp(is, f->sha256, sizeof is) == 0;
}

/* What a process left that died between the last byte and the new name: no site has to be reached.
 * What is too long, or has other bytes, goes: what a site gives from its end on makes no mail. */
static bool finish_part(struct session *s, const struct fetching *f)
{
    const char *path = part_of(s, f);
    if (have(s, f) < f->size)
        return FALSE;
    if (has_its_bytes(s, f, path) && rename(path, path_of(s, f->sha256)) == 0)
        return TRUE;
    (void)unlink(path);
    return FALSE;
}

/* Between two questions other users may come, and the session may go: main gives back what it was
 * told. */
static void say_state(struct session *s, const struct fetching *f)
{
    link_reply(s->link, "state %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %x",
               f->tried, f->not_at, f->without, f->until, f->asked, f->last);
}

static void go_on(const struct session *s, struct fetching *f, const char *state)
{
    struct fetching was;
    if (state != NULL &&
        sscanf(state, "%" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %x", &was.tried,
               &was.not_at, &was.without, &was.until, &was.asked, &was.last) == 6 &&
        was.last < s->npeers) {
        f->tried = was.tried;
        f->not_at = was.not_at;
        f->without = was.without;
        f->until = was.until;
        f->asked = was.asked;
        f->last = was.last;
    }
}

static enum frame_result fetch_it(struct session *s, const uint8_t guid[16],
                                  const uint8_t sha256[32], uint64_t size, const char *state)
{
    bool failed = FALSE;
    if (is_here(s, sha256)) {
        s->fetched = TRUE;
        link_reply(s->link, "here");
        return FRAME_OK;
    }
    struct fetching *f = find(s, sha256, size);
    if (f == NULL && (f = add(s, guid, sha256, size, &failed)) != NULL)
        go_on(s, f, state);
    if (failed)
        return FRAME_TEMPORARY;
    if (f == NULL && !is_joining(s)) {
        link_reply(s->link, "never no message of this user has these bytes");
        return FRAME_REFUSED;
    }
    if (f == NULL) {
        link_reply(s->link, "asked the other sites were not heard yet since the state is new");
        return FRAME_OK;
    }
    if (finish_part(s, f)) {
        forget(s, f);
        s->fetched = TRUE;
        link_reply(s->link, "here");
        return FRAME_OK;
    }
    f->wanted = clock_msecs();
    ask_if_due(s, f);
    say_state(s, f);
    link_reply(s->link, "asked %s", say_asked(s, f));
    forget_unwanted(s);
    return FRAME_OK;
}

enum frame_result fetch_verb(struct session *s, const char *const *args)
{
    guid_128_t guid;
    uint8_t sha256[32];
    uint64_t size;
    buffer_t *bytes = t_buffer_create(32);
    if (args[0] == NULL || args[1] == NULL || args[2] == NULL ||
        guid_128_from_string(args[0], guid) < 0 || hex_to_binary(args[1], bytes) < 0 ||
        bytes->used != sizeof sha256 || str_to_uint64(args[2], &size) < 0) {
        link_reply(s->link, "never that is no GUID, SHA-256 and size");
        return FRAME_REFUSED;
    }
    memcpy(sha256, bytes->data, sizeof sha256);
    link_reply(s->link, "owner %lu", (unsigned long)geteuid());
    return fetch_it(s, guid, sha256, size, args[3]);
}

/* --- what comes ------------------------------------------------------------------------------- */

/* Bytes for a place that is the end of what is here. Where the disk is full, earlier texts give
 * room. 0, -1 */
static int append(struct session *s, const char *path, uint64_t offset, const struct text *part)
{
    int r = write_part(s, path, offset, part);
    if (r < 0 && (errno == ENOSPC || errno == EDQUOT)) {
        drop_old(s, 0);
        r = write_part(s, path, offset, part);
    }
    if (r < 0)
        session_note(s, NOTE_WARNING, "write(%s): %m", path);
    return r;
}

/* The answer names no size. */
static void missed(struct session *s, const uint8_t sha256[32], struct peer *p)
{
    struct fetching *f;
    array_foreach_modifiable (&s->fetching, f) {
        if (memcmp(f->sha256, sha256, sizeof f->sha256) != 0)
            continue;
        if ((f->tried & 1ULL << (p - s->peer)) != 0)
            p->silent_until = 0;
        f->not_at |= 1ULL << (p - s->peer);
        f->without |= f->not_at;
        ask_if_due(s, f);
    }
}

/* All bytes have come. */
static void came(struct session *s, const struct fetching *f, struct peer *p)
{
    const char *path = part_of(s, f);
    if (!has_its_bytes(s, f, path)) {
        session_note(s, NOTE_WARNING,
                     "a mail's text that site %s gave is not that of its SHA-256 %s: dropped",
                     name_of(s, p->site), binary_to_hex(f->sha256, sizeof f->sha256));
        (void)unlink(path);
        missed(s, f->sha256, p);
        return;
    }
    if (rename(path, path_of(s, f->sha256)) < 0)
        session_note(s, NOTE_WARNING, "rename(%s): %m", path);
    s->fetched = TRUE;
    drop_old(s, most_bytes(s));
    forget(s, f);
}

/* NULL: nobody awaits it. asked_r: for one that an earlier session asked for. */
static struct fetching *awaited(struct session *s, const struct parcel_body *b,
                                struct fetching *asked_r)
{
    struct fetching *f = find(s, b->sha256, b->size);
    if (f != NULL || !stubs_are_here(s))
        return f;
    i_zero(asked_r);
    memcpy(asked_r->sha256, b->sha256, sizeof asked_r->sha256);
    asked_r->size = b->size;
    asked_r->until = b->size;
    return access(part_of(s, asked_r), F_OK) == 0 ? asked_r : NULL;
}

/* It goes on where this one ends. A part is as large as can be, but for the last one: with smaller
 * ones, or empty ones, a site would have others not asked, and give nothing. */
static bool is_next(const struct fetching *f, uint64_t had, const struct parcel_body *b)
{
    return b->offset == had && had <= f->size && b->part.n <= f->size - had &&
           (b->part.n == PARCEL_PART_MAX || b->part.n == f->size - had);
}

void fetch_part(struct session *s, struct peer *p, const struct parcel_body *b)
{
    struct fetching asked, *f;
    if (b->size == 0) {
        missed(s, b->sha256, p);
        return;
    }
    if ((f = awaited(s, b, &asked)) == NULL)
        return;
    uint64_t had = have(s, f);
    if (!is_next(f, had, b) || append(s, part_of(s, f), had, &b->part) < 0)
        return;
    s->fetched = TRUE;
    p->silent_until = 0;
    f->asked = clock_msecs();
    had += b->part.n;
    if (had == f->size)
        came(s, f, p);
    else if (had >= f->until)
        ask(s, f, p);
}

void fetch_mail(struct session *s, struct peer *p, const struct parcel_mail *m)
{
    const struct parcel_body whole = {.sha256 = m->sha256, .size = m->mail.n, .part = m->mail};
    struct fetching asked;
    const struct fetching *f = awaited(s, &whole, &asked);
    if (f == NULL)
        return;
    if (truncate(part_of(s, f), 0) < 0 && errno != ENOENT)
        session_note(s, NOTE_WARNING, "truncate(%s): %m", part_of(s, f));
    fetch_part(s, p, &whole);
}
