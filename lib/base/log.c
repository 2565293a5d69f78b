#include "lib/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/log_journal.h"
#include "lib/base/log_json.h"

static char program_name[128] = "dovelane", host_name[65] = "localhost";
static int fd = STDERR_FILENO;
static char *file_path; /* of fd; NULL: it is stderr */
static enum { TO_FD, TO_SYSLOG, TO_JOURNAL } use;
static bool json;
static const char *node;
static void (*instead)(enum log_level, const char *line);
static enum log_level most = LOG_LEVEL_INFO;
static bool gathering;
static char gathered[32768];
static size_t ngathered;

static void write_all(const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        data += n;
        len -= (size_t)n;
    }
}

void log_flush(void)
{
    write_all(gathered, ngathered);
    ngathered = 0;
}

void log_gather(void)
{
    if (!gathering)
        atexit(log_flush);
    gathering = true;
}

/* Other threads may be writing: the descriptor keeps its number. */
static int open_file(const char *path)
{
    int f = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    if (f < 0)
        return -1;
    log_flush();
    if (fd == STDERR_FILENO) {
        fd = f;
    } else {
        int failed = dup3(f, fd, O_CLOEXEC) < 0 ? errno : 0;
        close(f);
        errno = failed;
        if (failed)
            return -1;
    }
    if (path != file_path) {
        free(file_path);
        file_path = strdup(path);
    }
    return 0;
}

int log_open(const char *tag, const char *where, enum log_level level)
{
    snprintf(program_name, sizeof program_name, "%s", tag);
    most = level;
    gethostname(host_name, sizeof host_name - 1);
    if (!strcmp(where, "syslog")) {
        /* LOG_NDELAY: a chroot or a lost descriptor table must not end logging later. */
        openlog(program_name, LOG_PID | LOG_NDELAY, LOG_MAIL);
        use = TO_SYSLOG;
        return 0;
    }
    if (!strncmp(where, "journal", 7) && (!where[7] || where[7] == ':')) {
        if (log_journal_open(where[7] ? where + 8 : NULL) < 0)
            return -1;
        use = TO_JOURNAL;
        return 0;
    }
    use = TO_FD;
    if (!strncmp(where, "file:", 5))
        return open_file(where + 5);
    if (strcmp(where, "stderr")) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}

void log_as_json(bool yes)
{
    json = yes;
}

void log_node(const char *name)
{
    node = name;
}

int log_reopen(void)
{
    return file_path && use == TO_FD ? open_file(file_path) : 0;
}

void log_stderr_to(void (*fn)(enum log_level, const char *line))
{
    instead = fn;
}

static int syslog_priority(enum log_level level)
{
    static const int priority[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
    return priority[level];
}

/* Length of the UTF-8 character at s (RFC 3629), 0 when there is none, or only a control
 * character: C1 controls drive terminals, too. */
static size_t character(const unsigned char *s)
{
    if (*s < 0x80)
        return *s >= 0x20 && *s != 0x7f;
    size_t n = *s >= 0xf0 && *s <= 0xf4  ? 4
               : *s >= 0xe0 && *s < 0xf0 ? 3
               : *s >= 0xc2 && *s < 0xe0 ? 2
                                         : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool c1 = n == 2 && *s == 0xc2 && s[1] < 0xa0,
         overlong = (*s == 0xe0 && s[1] < 0xa0) || (*s == 0xf0 && s[1] < 0x90);
    return c1 || overlong ? 0 : n;
}

/* Eight bytes of printable ASCII. A borrow can only spoil the answer for what stands behind a
 * byte that is none. */
static bool printable(const char *s)
{
    uint64_t x;
    memcpy(&x, s, sizeof x);
    return !(((x - 0x2020202020202020u) | (x + 0x0101010101010101u) | x) & 0x8080808080808080u);
}

/* Addresses may be UTF-8 (RFC 6531); what is none, or moves a cursor, is not. */
static void clean(char *s, size_t len)
{
    for (const char *end = s + len; s < end;) {
        if (end - s >= 8 && printable(s)) {
            s += 8;
            continue;
        }
        if (*s >= ' ' && *s < 0x7f) {
            s++;
            continue;
        }
        size_t n = character((unsigned char *)s);
        if (!n)
            *s = '?';
        s += n ? n : 1;
    }
}

/* What stands before a line's text, "2026-11-21T10:14:15.123456+01:00 host program[123]: "; its
 * length. Most of it is made once a second. */
static size_t stamp(char *out, size_t size)
{
    static _Thread_local time_t second;
    static _Thread_local char date[40], rest[240];
    static _Thread_local size_t date_len, rest_len;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != second || !date_len) {
        struct tm tm;
        char zone[8];
        second = now.tv_sec;
        localtime_r(&second, &tm);
        date_len = strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S.", &tm);
        strftime(zone, sizeof zone, "%z", &tm); /* "+0100", in RFC 3339 "+01:00" */
        rest_len = (size_t)snprintf(rest, sizeof rest, "%.3s:%s %s %s[%d]: ", zone, zone + 3,
                                    host_name, program_name, (int)getpid());
    }
    if (date_len + 6 + rest_len > size)
        return 0;
    memcpy(out, date, date_len);
    long micro = now.tv_nsec / 1000;
    for (size_t i = 6; i--; micro /= 10)
        out[date_len + i] = (char)('0' + micro % 10);
    memcpy(out + date_len + 6, rest, rest_len);
    return date_len + 6 + rest_len;
}

static const char *const level_word[] = {"error: ", "warning: ", "", "debug: "};

/* One write per line: lines of several threads and processes do not mix (O_APPEND). */
static void put(enum log_level level, const char *line, size_t n)
{
    if (!gathering) {
        write_all(line, n);
        return;
    }
    if (ngathered + n > sizeof gathered)
        log_flush();
    memcpy(gathered + ngathered, line, n);
    ngathered += n;
    if (level <= LOG_LEVEL_WARNING)
        log_flush();
}

static void emit_json(enum log_level level, const char *text, const struct log_marks *m)
{
    char line[LOG_JSON_MAX + 2], when[300];
    size_t n = stamp(when, sizeof when);
    const struct log_json_origin origin = {.time = when,
                                           .time_len = strcspn(when, n ? " " : ""),
                                           .host = host_name,
                                           .program = program_name,
                                           .pid = (int)getpid(),
                                           .node = node};
    n = log_json(line, &origin, level, text, m);
    if (use == TO_SYSLOG) {
        syslog(syslog_priority(level), "%s", line);
    } else if (instead && fd == STDERR_FILENO) {
        instead(level, line);
    } else {
        line[n++] = '\n';
        put(level, line, n);
    }
}

static void emit_text(enum log_level level, const char *text, size_t len)
{
    char line[LOG_TEXT_MAX + 400];
    size_t n = stamp(line, 300), kind = strlen(level_word[level]);
    memcpy(line + n, level_word[level], kind);
    memcpy(line + n + kind, text, len);
    n += kind + len;
    line[n++] = '\n';
    put(level, line, n);
}

static void emit(enum log_level level, char *text, const struct log_marks *m)
{
    size_t len = strlen(text);
    clean(text, len);
    if (use == TO_JOURNAL) {
        /* Without the journal the line goes where the program's own errors go. */
        if (!log_journal_send(syslog_priority(level), program_name, node, level_word[level], text,
                              m))
            emit_text(level, text, len);
    } else if (json) {
        emit_json(level, text, m);
    } else if (use == TO_SYSLOG) {
        syslog(syslog_priority(level), "%s%s", level_word[level], text);
    } else if (instead && fd == STDERR_FILENO) {
        instead(level, text);
    } else {
        emit_text(level, text, len);
    }
}

static const struct log_marks no_marks;

static void format_line(enum log_level level, const char *format, va_list ap)
{
    char text[LOG_TEXT_MAX + 1];
    int n = vsnprintf(text, sizeof text, format, ap);
    if (n < 0)
        return;
    if ((size_t)n >= sizeof text)
        memcpy(text + sizeof text - 5, "[..]", 5);
    emit(level, text, &no_marks);
}

void log_marked(enum log_level level, char *text, const struct log_marks *m)
{
    if (level > most)
        return;
    if (strlen(text) > LOG_TEXT_MAX)
        memcpy(text + LOG_TEXT_MAX - 4, "[..]", 5);
    emit(level, text, m);
}

#define VALUE_MOST 300

void log_of(enum log_level level, enum log_field field, const char *value, const char *format, ...)
{
#define FIELD(name, kind, before, help) before,
    static const char *const before[] = {
#include "lib/base/log_fields.def"
    };
    if (level > most)
        return;
    char text[LOG_TEXT_MAX + 1];
    size_t from = strlen(before[field]), len = value ? strnlen(value, VALUE_MOST) : 0,
           n = from + len;
    struct log_marks m = {.n = 1, .mark = {{(uint16_t)from, (uint16_t)len, (uint8_t)field}}};
    memcpy(text, before[field], from);
    if (len)
        memcpy(text + from, value, len);
    memcpy(text + n, ": ", 2);
    va_list ap;
    va_start(ap, format);
    int more = vsnprintf(text + n + 2, sizeof text - n - 2, format, ap);
    va_end(ap);
    if (more >= 0 && n + 2 + (size_t)more >= sizeof text)
        memcpy(text + sizeof text - 5, "[..]", 5);
    emit(level, text, &m);
}

void log_line(enum log_level level, const char *format, ...)
{
    if (level > most)
        return;
    va_list ap;
    va_start(ap, format);
    format_line(level, format, ap);
    va_end(ap);
}

void log_fatal(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    format_line(LOG_LEVEL_ERROR, format, ap);
    va_end(ap);
    exit(1);
}
