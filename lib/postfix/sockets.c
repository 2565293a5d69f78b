/* sockets - compares the paths of sockets in master.cf with ours, links followed. */
#include "lib/postfix/sockets.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/mem.h"

struct search {
    const char *queue, *socket;
    bool found;
};

/* Without links, "." and ".."; the file itself may not exist yet. Malloc'd. */
static char *resolved(const char *path)
{
    char *whole = realpath(path, NULL);
    const char *slash = strrchr(path, '/');
    if (whole || !slash)
        return whole ? whole : mem_strdup(path);
    char *directory = slash > path ? mem_strndup(path, (size_t)(slash - path)) : mem_strdup("/"),
         *real = realpath(directory, NULL);
    whole = mem_printf("%s%s", real ? real : directory, slash);
    free(directory);
    free(real);
    return whole;
}

static bool same_file(const char *a, const char *b)
{
    char *x = resolved(a), *y = resolved(b);
    bool same = !strcmp(x, y);
    free(x);
    free(y);
    return same;
}

/* "dovelane/milter.sock" of "/var/spool/postfix/dovelane/milter.sock". */
static const char *last_two(const char *path)
{
    const char *s = path + strlen(path);
    for (unsigned slashes = 0; s > path; s--)
        if (s[-1] == '/' && ++slashes == 2)
            break;
    return s;
}

static bool ends_alike(const char *path, const char *socket)
{
    const char *tail = last_two(socket);
    size_t n = strlen(path), m = strlen(tail);
    return n >= m && !strcmp(path + n - m, tail) && (n == m || path[n - m - 1] == '/');
}

static bool look_at(void *arg, const char *word)
{
    struct search *s = arg;
    word += strspn(word, "{ \t");
    size_t type = !strncasecmp(word, "unix:", 5) ? 5 : !strncasecmp(word, "local:", 6) ? 6 : 0;
    if (!type)
        return true;
    char *path = mem_strndup(word + type, strcspn(word + type, ", \t}")),
         *below = mem_printf("%s/%s", s->queue, path);
    s->found = ends_alike(path, s->socket) || same_file(below, s->socket) ||
               (*path == '/' && same_file(path, s->socket));
    free(below);
    free(path);
    return !s->found;
}

bool sockets_named(const struct postconf *conf, const struct postconf_service *service,
                   const char *list, const char *socket)
{
    struct search s = {postconf_get(conf, service->key, "queue_directory"), socket, false};
    postconf_words(list, look_at, &s);
    return s.found;
}
