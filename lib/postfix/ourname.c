/* ourname - see ourname.h. */
#include "lib/postfix/ourname.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/postfix/postconf.h"

/* The services of master.cf that deliver for Postfix, and that a destination begins with. */
static const struct transport {
    const char *name, *service, *parameter;
} transports[] = {{"smtp:", "smtp/unix", "smtp_helo_name"},
                  {"relay:", "relay/unix", "smtp_helo_name"},
                  {"lmtp:", "lmtp/unix", "lmtp_lhlo_name"}};

#define TRANSPORTS (sizeof transports / sizeof *transports)

struct ourname {
    char *name[TRANSPORTS];
    char *source, *wrong;
};

/* One word of a command's line. */
static bool speakable(const char *name)
{
    for (const char *s = name; *s; s++)
        if (*s <= ' ' || *s > '~')
            return false;
    return *name && strlen(name) <= 255;
}

/* reject_non_fqdn_helo_hostname: a dot within it, or an address in brackets. */
static bool qualified(const char *name)
{
    const char *dot = strchr(name, '.');
    return *name == '[' || (dot && dot > name && dot[1]);
}

static void set_all(struct ourname *o, const char *name, const char *source)
{
    for (size_t i = 0; i < TRANSPORTS; i++)
        o->name[i] = mem_strdup(name);
    o->source = mem_strdup(source);
}

/* False: there is no Postfix that could be asked. */
static bool by_postfix(struct ourname *o, const char *directory)
{
    char *error = NULL, *file = mem_printf("%s/main.cf", directory);
    struct postconf *conf =
        *directory && access(file, F_OK) == 0 ? postconf_read(directory, &error) : NULL;
    const char *host = conf ? postconf_get(conf, NULL, "myhostname") : "";
    bool good = speakable(host);
    for (size_t i = 0; good && i < TRANSPORTS; i++) {
        const char *said = postconf_get(conf, transports[i].service, transports[i].parameter);
        o->name[i] = mem_strdup(speakable(said) ? said : host);
    }
    if (good)
        o->source = mem_strdup(file);
    postconf_free(conf);
    free(error);
    free(file);
    return good;
}

/* Malloc'd; NULL when it knows none. */
static char *by_resolver(const char *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_CANONNAME};
    struct addrinfo *found = NULL;
    char *name = NULL;
    if (getaddrinfo(host, NULL, &hints, &found) == 0 && found && found->ai_canonname)
        name = mem_strdup(found->ai_canonname);
    if (found)
        freeaddrinfo(found);
    /* /etc/hosts of some systems has this host among the names of localhost. */
    if (name && speakable(name) && qualified(name) && strncasecmp(name, "localhost.", 10))
        return name;
    free(name);
    return NULL;
}

static void by_host(struct ourname *o)
{
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) || !speakable(host))
        snprintf(host, sizeof host, "localhost");
    char *full = qualified(host) ? NULL : by_resolver(host);
    set_all(o, full ? full : host, full ? "the resolver" : "the kernel");
    free(full);
}

/* One line for all: what a next hop would refuse. */
static void judge(struct ourname *o, const char *host_name)
{
    if (*host_name && !speakable(host_name)) {
        o->wrong = mem_printf(
            "host_name = \"%.300s\" is no host name, and not used: write it like mx1.example.org",
            host_name);
        return;
    }
    for (size_t i = 0; i < TRANSPORTS && !o->wrong; i++)
        if (!qualified(o->name[i]))
            o->wrong = mem_printf("this host calls itself %s (by %s), a name without a dot, to "
                                  "next hops: some refuse that for good, and the mail bounces; "
                                  "set host_name = \"%s.example.org\" in dovelane.conf, or "
                                  "myhostname in Postfix's main.cf",
                                  o->name[i], o->source, o->name[i]);
}

struct ourname *ourname_find(const char *host_name, const char *postfix_config)
{
    struct ourname *o = mem_zero(sizeof *o);
    if (speakable(host_name))
        set_all(o, host_name, "host_name");
    else if (!by_postfix(o, postfix_config))
        by_host(o);
    judge(o, host_name);
    return o;
}

void ourname_free(struct ourname *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < TRANSPORTS; i++)
        free(o->name[i]);
    free(o->source);
    free(o->wrong);
    free(o);
}

const char *ourname_for(const struct ourname *o, const char *destination)
{
    for (size_t i = 0; destination && i < TRANSPORTS; i++)
        if (!strncmp(destination, transports[i].name, strlen(transports[i].name)))
            return o->name[i];
    return o->name[0];
}

const char *ourname_source(const struct ourname *o)
{
    return o->source;
}

const char *ourname_wrong(const struct ourname *o)
{
    return o->wrong;
}
