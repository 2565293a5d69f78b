/* notify - sends datagrams to NOTIFY_SOCKET. */
#include "lib/daemon/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify(const char *format, ...)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    char text[512];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!path || !*path || strlen(path) >= sizeof a.sun_path || n < 0)
        return;
    memcpy(a.sun_path, path, strlen(path));
    if (*path == '@') /* Linux's abstract names */
        a.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    sendto(fd, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1,
           MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&a, len);
    close(fd);
}

int notify_watchdog(void)
{
    const char *us = getenv("WATCHDOG_USEC");
    long long n = us ? atoll(us) : 0;
    return n >= 2000 ? (int)(n / 2000) : 0;
}
