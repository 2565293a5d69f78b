#include "lib/cluster/admin_notice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

#define YEARS_AHEAD 10

bool admin_notice_parse(const char *text, struct admin_notice *out)
{
    char word[8] = "";
    unsigned long long serial;
    *out = (struct admin_notice){.on = true};
    if (sscanf(text, "%20llu %7[a-z]", &serial, word) != 2 || !serial ||
        (strcmp(word, "on") && strcmp(word, "off")))
        return false;
    /* Milliseconds since 1970. One that no clock can have said would count for ever. */
    if (serial > (unsigned long long)(clock_wall() / 1000) + YEARS_AHEAD * 365ull * 86400 * 1000)
        return false;
    *out = (struct admin_notice){serial, !strcmp(word, "on"), mem_strdup(text)};
    return true;
}

bool admin_notice_counts_more(const struct admin_notice *a, const struct admin_notice *than)
{
    return a->serial > than->serial || (a->serial == than->serial && !a->on && than->on);
}

int admin_notice_first_line(const struct admin_notice *s)
{
    return s->text ? (int)strcspn(s->text, "\r\n") : 0;
}

bool admin_notice_load(const char *file, struct admin_notice *out)
{
    char *text = mem_zero(ADMIN_NOTICE_MOST + 1);
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool there = fd >= 0 || errno != ENOENT;
    ssize_t got = fd < 0 ? -1 : read(fd, text, ADMIN_NOTICE_MOST);
    if (fd >= 0)
        close(fd);
    *out = (struct admin_notice){.on = true};
    bool good = !there || (got > 0 && admin_notice_parse(text, out));
    free(text);
    return good;
}

bool admin_notice_save(const struct admin_notice *s, const char *file)
{
    char *fresh = mem_printf("%s.new", file);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool good = fd >= 0 && dprintf(fd, "%s", s->text) > 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    good = good && rename(fresh, file) == 0;
    free(fresh);
    return good;
}
