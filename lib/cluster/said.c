#include "lib/cluster/said.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

#define YEARS_AHEAD 10

bool said_parse(const char *text, struct said *out)
{
    char word[8] = "";
    unsigned long long serial;
    *out = (struct said){.on = true};
    if (sscanf(text, "%20llu %7[a-z]", &serial, word) != 2 || !serial || (strcmp(word, "on") && strcmp(word, "off")))
        return false;
    /* Milliseconds since 1970. One that no clock can have said would count for ever. */
    if (serial > (unsigned long long)(clock_wall() / 1000) + YEARS_AHEAD * 365ull * 86400 * 1000)
        return false;
    *out = (struct said){serial, !strcmp(word, "on"), mem_strdup(text)};
    return true;
}

bool said_counts_more(const struct said *a, const struct said *than)
{
    return a->serial > than->serial || (a->serial == than->serial && !a->on && than->on);
}

int said_first_line(const struct said *s)
{
    return s->text ? (int)strcspn(s->text, "\r\n") : 0;
}

bool said_load(const char *file, struct said *out)
{
    char *text = mem_zero(SAID_MOST + 1);
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool there = fd >= 0 || errno != ENOENT;
    ssize_t got = fd < 0 ? -1 : read(fd, text, SAID_MOST);
    if (fd >= 0)
        close(fd);
    *out = (struct said){.on = true};
    bool good = !there || (got > 0 && said_parse(text, out));
    free(text);
    return good;
}

bool said_save(const struct said *s, const char *file)
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
