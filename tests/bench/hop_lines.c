#include "tests/bench/hop_lines.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

struct hop_lines {
    int fd;
    bool content;
    const struct hop_calls *calls;
    void *arg;
    char out[4096];
    size_t out_len, len, room;
    char in[]; /* what is kept until its line is complete */
};

static bool flush(struct hop_lines *h)
{
    size_t n = h->out_len;
    h->out_len = 0;
    return !n || send(h->fd, h->out, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static bool say(struct hop_lines *h, const char *text)
{
    size_t n = strlen(text);
    if (h->out_len + n > sizeof h->out && !flush(h))
        return false;
    memcpy(h->out + h->out_len, text, n);
    h->out_len += n;
    return true;
}

static bool one_line_of_content(struct hop_lines *h, const char *line)
{
    if (strcmp(line, ".") != 0) {
        h->calls->line(h->arg, line);
        return true;
    }
    h->content = false;
    bool said = say(h, "250 2.0.0 Ok\r\n") && flush(h);
    h->calls->taken(h->arg);
    return said;
}

/* False: the connection ends. */
static bool one_line(struct hop_lines *h, const char *line)
{
    if (h->content)
        return one_line_of_content(h, line);
    if (!strncasecmp(line, "DATA", 4)) {
        h->content = true;
        return say(h, "354 go on\r\n");
    }
    if (!strncasecmp(line, "EHLO", 4))
        return say(h, "250-next.example\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 SIZE\r\n");
    if (!strncasecmp(line, "QUIT", 4)) {
        say(h, "221 2.0.0 bye\r\n");
        flush(h);
        return false;
    }
    return say(h, "250 2.0.0 Ok\r\n");
}

bool hop_lines_serve(struct hop_lines *h)
{
    ssize_t n = recv(h->fd, h->in + h->len, h->room - h->len, 0);
    if (n <= 0)
        return false;
    h->len += (size_t)n;
    char *line = h->in, *end;
    while ((end = memchr(line, '\n', h->len - (size_t)(line - h->in)))) {
        *(end > line && end[-1] == '\r' ? end - 1 : end) = '\0';
        if (!one_line(h, line))
            return false;
        line = end + 1;
    }
    h->len -= (size_t)(line - h->in);
    memmove(h->in, line, h->len);
    return flush(h) && h->len < h->room;
}

void hop_lines_greet(struct hop_lines *h)
{
    say(h, "220 next.example ESMTP\r\n");
    flush(h);
}

struct hop_lines *hop_lines_new(int fd, size_t room, const struct hop_calls *calls, void *arg)
{
    struct hop_lines *h = calloc(1, sizeof *h + room);
    if (!h)
        return NULL;
    h->fd = fd;
    h->calls = calls;
    h->arg = arg;
    h->room = room;
    return h;
}
