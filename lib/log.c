#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

static char program_name[64] = "dovelane";
static int fd = STDERR_FILENO;
static int use_syslog;
static enum log_level most = LOG_LEVEL_INFO;

int log_open(const char *program, const char *where, enum log_level level)
{
    snprintf(program_name, sizeof program_name, "%s", program);
    most = level;
    if (!strcmp(where, "syslog")) {
        /* LOG_NDELAY: a chroot or a lost descriptor table must not end logging later. */
        openlog(program_name, LOG_PID | LOG_NDELAY, LOG_MAIL);
        use_syslog = 1;
        return 0;
    }
    use_syslog = 0;
    if (!strncmp(where, "file:", 5)) {
        int f = open(where + 5, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
        if (f < 0)
            return -1;
        if (fd != STDERR_FILENO)
            close(fd);
        fd = f;
        return 0;
    }
    if (strcmp(where, "stderr")) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}

static int syslog_priority(enum log_level level)
{
    static const int priority[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
    return priority[level];
}

/* Length of the UTF-8 character at s (RFC 3629), 0 when there is none, or only a control character: C1 controls drive terminals, too. */
static size_t character(const unsigned char *s)
{
    if (*s < 0x80)
        return *s >= 0x20 && *s != 0x7f;
    size_t n = *s >= 0xf0 && *s <= 0xf4 ? 4 : *s >= 0xe0 && *s < 0xf0 ? 3 : *s >= 0xc2 && *s < 0xe0 ? 2 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool c1 = n == 2 && *s == 0xc2 && s[1] < 0xa0, overlong = (*s == 0xe0 && s[1] < 0xa0) || (*s == 0xf0 && s[1] < 0x90);
    return c1 || overlong ? 0 : n;
}

/* Addresses may be UTF-8 (RFC 6531); what is none, or moves a cursor, is not. */
static void clean(char *s)
{
    while (*s) {
        size_t n = character((unsigned char *)s);
        if (!n)
            *s = '?';
        s += n ? n : 1;
    }
}

static void emit(enum log_level level, const char *format, va_list ap)
{
    static const char *const word[] = {"error: ", "warning: ", "", "debug: "};
    char text[2048];
    int n = vsnprintf(text, sizeof text, format, ap);
    if (n < 0)
        return;
    if ((size_t)n >= sizeof text)
        memcpy(text + sizeof text - 5, "[..]", 5);
    clean(text);
    if (use_syslog) {
        syslog(syslog_priority(level), "%s%s", word[level], text);
        return;
    }
    struct timespec now;
    struct tm tm;
    char stamp[40], line[2300];
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
    n = snprintf(line, sizeof line, "%s.%06ld %s[%d]: %s%s\n", stamp, now.tv_nsec / 1000, program_name, (int)getpid(), word[level], text);
    /* One write per line: lines of several threads and processes do not mix (O_APPEND). */
    if (write(fd, line, (size_t)n) < 0)
        return;
}

void log_line(enum log_level level, const char *format, ...)
{
    if (level > most)
        return;
    va_list ap;
    va_start(ap, format);
    emit(level, format, ap);
    va_end(ap);
}

void log_fatal(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    emit(LOG_LEVEL_ERROR, format, ap);
    va_end(ap);
    exit(1);
}
