#include "ctl/trace_source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/base/subprocess.h"
#include "lib/redis/endpoint.h"

extern char **environ;

/* ---- which there are ---- */

static struct trace_source *add(struct trace_sources *t, int kind, const char *path)
{
    t->v = mem_grow(t->v, (t->n + 1) * sizeof *t->v);
    t->v[t->n] = (struct trace_source){.kind = kind, .path = mem_strdup(path)};
    return &t->v[t->n++];
}

void trace_sources_add(struct trace_sources *t, const char *path)
{
    add(t, strcmp(path, "-") ? TRACE_FILE : TRACE_STDIN, strcmp(path, "-") ? path : "stdin");
}

static void add_once(struct trace_sources *t, const char *path)
{
    struct stat st;
    char *real = realpath(path, NULL);
    bool known = !real || stat(real, &st) < 0 || !S_ISREG(st.st_mode);
    for (size_t i = 0; i < t->n && !known; i++)
        known = !strcmp(t->v[i].path, real);
    if (!known)
        add(t, TRACE_FILE, real);
    free(real);
}

/* PATH, and PATH.1, PATH-20261127.gz and the like, unless they ended before `since`. */
static void add_rotated(struct trace_sources *t, const char *path)
{
    char *for_dir = mem_strdup(path), *for_base = mem_strdup(path);
    const char *dir = dirname(for_dir), *base = basename(for_base);
    size_t len = strlen(base);
    DIR *d = opendir(dir);
    add_once(t, path);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        const char *rest = strncmp(e->d_name, base, len) ? "" : e->d_name + len;
        if ((*rest != '.' && *rest != '-') || rest[1] < '0' || rest[1] > '9')
            continue;
        char *one = mem_printf("%s/%s", dir, e->d_name);
        if (stat(one, &st) == 0 && st.st_mtime >= t->since)
            add_once(t, one);
        free(one);
    }
    if (d)
        closedir(d);
    free(for_dir);
    free(for_base);
}

/* The files that another program's settings name, a line each. */
static void add_named_by(struct trace_sources *t, const char *const *argv)
{
    if (!subprocess_exists(argv[0]))
        return;
    struct subprocess_result r = subprocess_run(argv, NULL, 0, 5000);
    buf_addc(&r.out, '\0');
    for (char *save, *line = strtok_r(r.out.data, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save))
        if (*line == '/')
            add_rotated(t, line);
    subprocess_free(&r);
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void add_own_files(struct trace_sources *t, const struct config *c)
{
    static const char *const program[] = {"dovelane-milter", "dovelane-proxy", "dovelane-relay",
                                          "dovelane-replicator", "dovelane"};
    for (size_t i = 0; !strncmp(c->log, "file:", 5) && i < 5; i++) {
        char *path = endpoint_file_of(c->log + 5, program[i]);
        add_rotated(t, path);
        free(path);
    }
}

void trace_sources_find(struct trace_sources *t, const struct config *c)
{
    static const char *const postfix[] = {"postconf", "-h", "maillog_file", NULL};
    static const char *const dovecot[] = {"doveconf", "-h", "log_path", "info_log_path", NULL};
    if (subprocess_exists("journalctl") &&
        (is_directory("/run/log/journal") || is_directory("/var/log/journal")))
        add(t, TRACE_JOURNAL, "journal");
    add_own_files(t, c);
    add_named_by(t, postfix);
    add_named_by(t, dovecot);
    add_rotated(t, "/var/log/mail.log");
    add_rotated(t, "/var/log/maillog");
    if (t->n)
        trace_hosts_hear_own(&t->hosts);
}

void trace_sources_free(struct trace_sources *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->v[i].path);
        free(t->v[i].trouble);
        if (t->v[i].kept)
            fclose(t->v[i].kept);
    }
    trace_hosts_free(&t->hosts);
    free(t->v);
}

/* ---- reading ---- */

/* The journal's form of what is not printable, in which no word is seen. */
static bool is_bytes(const char *line, size_t len)
{
    const char *at = *line == '{' ? memmem(line, len, "\"MESSAGE\"", 9) : NULL;
    return at && at[9 + strspn(at + 9, " :")] == '[';
}

/* The words by their last four bytes, so that a line costs the same for ten and for thousands. */
#define TAIL 4
#define FEW 6 /* for which memmem() is faster */
struct words {
    size_t n;
    char *const *word;
    uint16_t *next; /* of each, with the same hash: index + 1 */
    uint16_t first[1 << 16];
};

static uint16_t hash_tail(const char *s)
{
    uint32_t bytes;
    memcpy(&bytes, s, sizeof bytes);
    return (uint16_t)(bytes * 2654435761u >> 16);
}

static struct words *words_new(size_t n, char *const *word)
{
    struct words *w = mem_zero(sizeof *w);
    w->n = n < UINT16_MAX ? n : UINT16_MAX;
    w->word = word;
    w->next = mem_zero((w->n + 1) * sizeof *w->next);
    for (size_t i = 0; i < w->n; i++) {
        size_t len = strlen(word[i]);
        if (len < TAIL)
            continue;
        uint16_t *first = &w->first[hash_tail(word[i] + len - TAIL)];
        w->next[i] = *first;
        *first = (uint16_t)(i + 1);
    }
    return w;
}

static void words_free(struct words *w)
{
    free(w->next);
    free(w);
}

/* A word that ends at line[end]. */
static bool ends_here(const char *line, size_t end, const struct words *w)
{
    for (size_t i = w->first[hash_tail(line + end - TAIL)]; i; i = w->next[i - 1]) {
        size_t len = strlen(w->word[i - 1]);
        if (len <= end && !memcmp(line + end - len, w->word[i - 1], len))
            return true;
    }
    return false;
}

static bool has_word(const char *line, size_t len, const struct words *w)
{
    bool few = w->n <= FEW;
    for (size_t end = TAIL; end <= len && !few; end++)
        if (ends_here(line, end, w))
            return true;
    for (size_t i = 0; i < w->n; i++)
        if ((few || strlen(w->word[i]) < TAIL) && memmem(line, len, w->word[i], strlen(w->word[i])))
            return true;
    return is_bytes(line, len);
}

/* What a program writes, or NULL with why in errno. */
static FILE *open_output(char *const *argv, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int pipe_fd[2];
    if (pipe2(pipe_fd, O_CLOEXEC) < 0)
        return NULL;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_fd[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int wrong = posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fd[1]);
    if (wrong) {
        close(pipe_fd[0]);
        errno = wrong;
        return NULL;
    }
    return fdopen(pipe_fd[0], "r");
}

static const char *unpacker(const char *path)
{
    static const char *const by[][2] = {{".gz", "gzip"}, {".xz", "xz"}, {".zst", "zstd"}};
    size_t len = strlen(path);
    for (size_t i = 0; i < 3; i++)
        if (len > strlen(by[i][0]) && !strcmp(path + len - strlen(by[i][0]), by[i][0]))
            return by[i][1];
    return NULL;
}

static FILE *open_file(const char *path, pid_t *pid)
{
    const char *program = unpacker(path);
    if (!program)
        return fopen(path, "re");
    char *argv[] = {(char *)program, (char *)"-dc", (char *)"--", (char *)path, NULL};
    return open_output(argv, pid);
}

static FILE *open_stdin(struct trace_source *s)
{
    char data[65536];
    ssize_t n = 1;
    if (!s->kept && (s->kept = tmpfile()))
        while ((n = read(STDIN_FILENO, data, sizeof data)) > 0)
            if (write(fileno(s->kept), data, (size_t)n) < n)
                return NULL;
    if (s->kept)
        rewind(s->kept);
    return s->kept;
}

/* The journals of all hosts that this one has (systemd-journal-remote). journalctl looks for the
 * words itself, which it does faster. */
static FILE *open_journal(const struct trace_sources *t, size_t nwords, char *const *word,
                          pid_t *pid)
{
    struct buf pattern = {0};
    char since[40];
    snprintf(since, sizeof since, "--since=@%lld", (long long)t->since);
    buf_adds(&pattern, "--grep=");
    for (size_t i = 0; i < nwords; i++)
        if (!strstr(word[i], "\\E"))
            buf_printf(&pattern, "%s\\Q%s\\E", i ? "|" : "", word[i]);
    buf_addc(&pattern, '\0');
    char *argv[] = {(char *)"journalctl",
                    (char *)"--merge",
                    (char *)"--quiet",
                    (char *)"--no-pager",
                    (char *)"--output=json",
                    (char *)"--case-sensitive=yes",
                    since,
                    pattern.data,
                    NULL};
    FILE *f = open_output(argv, pid);
    buf_free(&pattern);
    return f;
}

static void hear_journals(struct trace_sources *t)
{
    static const char *const argv[] = {"journalctl", "--merge",   "--quiet", "--no-pager",
                                       "-F",         "_HOSTNAME", NULL};
    struct subprocess_result r = subprocess_run(argv, NULL, 0, 60000);
    buf_addc(&r.out, '\0');
    for (char *save, *line = strtok_r(r.out.data, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save))
        trace_hosts_hear(&t->hosts, line, strlen(line));
    subprocess_free(&r);
}

static FILE *open_source(struct trace_sources *t, struct trace_source *s, size_t nwords,
                         char *const *word, pid_t *pid)
{
    switch (s->kind) {
    case TRACE_STDIN: return open_stdin(s);
    case TRACE_JOURNAL: return open_journal(t, nwords, word, pid);
    default: return open_file(s->path, pid);
    }
}

static void close_source(struct trace_source *s, FILE *f, pid_t pid)
{
    int status = 0;
    if (f != s->kept)
        fclose(f);
    if (pid && waitpid(pid, &status, 0) == pid && status && !s->trouble &&
        (s->kind == TRACE_FILE || WEXITSTATUS(status) > 1)) /* 1: journalctl found no such line */
        s->trouble =
            mem_printf("%s ended with %d", s->kind == TRACE_FILE ? unpacker(s->path) : "journalctl",
                       WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

void trace_sources_read(struct trace_sources *t, size_t nwords, char *const *word,
                        void (*each)(size_t source, const char *line, size_t len, void *arg),
                        void *arg)
{
    struct words *words = words_new(nwords, word);
    char *line = NULL;
    size_t size = 0;
    for (size_t i = 0; i < t->n; i++) {
        struct trace_source *s = &t->v[i];
        pid_t pid = 0;
        FILE *f = open_source(t, s, nwords, word, &pid);
        s->lines = 0;
        if (!f && !s->trouble)
            s->trouble = mem_strdup(strerror(errno));
        if (s->kind == TRACE_JOURNAL && !t->journals_heard++)
            hear_journals(t);
        for (ssize_t n; f && (n = getline(&line, &size, f)) > 0;) {
            size_t len = (size_t)n - (line[n - 1] == '\n');
            line[len] = '\0';
            trace_hosts_hear_line(&t->hosts, i, s->path, line, len);
            if (!has_word(line, len, words))
                continue;
            s->lines++;
            each(i, line, len, arg);
        }
        if (f && ferror(f) && !s->trouble)
            s->trouble = mem_printf("not read to its end: %s", strerror(errno));
        if (f)
            close_source(s, f, pid);
    }
    words_free(words);
    free(line);
}
