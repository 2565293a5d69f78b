/* This host: what a service could not read after its next start, passwords, DOVELANE_NODE,
 * disks, units. */
#include "ctl/check.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/redis/endpoint.h"
#include "lib/base/mem.h"
#include "lib/base/subprocess.h"

#define SYSTEMCTL 10000 /* milliseconds */
#define LITTLE 5        /* percent of a file system */
#define MEGABYTE 1048576.

static const struct service {
    const char *program, *unit, *user;
} services[] = {{"dovelane-milter", "dovelane-milter.service", "dovelane"},
                {"dovelane-relay", "dovelane-relay.service", "dovelane"},
                {"dovelane-proxy", "dovelane-proxy.service", "dovelane-proxy"},
                {"dovelane-replicator", "dovelane-replicator.service", "dovelane-replicator"}};
#define SERVICES (sizeof services / sizeof *services)

/* ---- files, with the eyes of a service ---- */

/* What a child of ours found: why it may not, and at which part of the path. */
struct refusal {
    int error;
    size_t len; /* bytes of the path up to what refused it */
};

/* As that user from here on; groups as login would give them. */
static bool become(const struct passwd *user)
{
    return !initgroups(user->pw_name, user->pw_gid) && !setgid(user->pw_gid) &&
           !setuid(user->pw_uid);
}

static struct refusal look(const char *path)
{
    char part[4096];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (access(part, X_OK) < 0)
            return (struct refusal){errno, (size_t)(slash - path)};
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return (struct refusal){errno, strlen(path)};
    close(fd);
    return (struct refusal){0};
}

/* False when that cannot be found out: we are not root. */
static bool readable(const char *path, const struct passwd *user, struct refusal *out)
{
    int pipes[2];
    *out = (struct refusal){0};
    if (geteuid() || pipe2(pipes, O_CLOEXEC) < 0)
        return false;
    pid_t child = fork();
    if (!child) {
        struct refusal found = {0};
        bool known = become(user);
        if (known)
            found = look(path);
        _exit(known && write(pipes[1], &found, sizeof found) == sizeof found ? 0 : 1);
    }
    close(pipes[1]);
    bool known = child > 0 && read(pipes[0], out, sizeof *out) == sizeof *out;
    close(pipes[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return known;
}

static void check_file(struct ctl *ctl, const struct service *s, const struct passwd *user,
                       const char *what, const char *path)
{
    struct refusal r;
    if (!*path || !readable(path, user, &r))
        return;
    if (!r.error) {
        check_good(ctl, s->program, "%s may read %s", user->pw_name, path);
        return;
    }
    bool file = r.len == strlen(path);
    const struct group *group = getgrgid(user->pw_gid);
    char *at = mem_strndup(path, r.len);
    char *mend = r.error == ENOENT ? mem_printf("put it there, or %s in %s", what, ctl->config_path)
                 : file            ? mem_printf("chgrp %s %s && chmod 0640 %s",
                                     group ? group->gr_name : user->pw_name, at, at)
                                   : mem_printf("chmod o+x %s", at);
    check_say(ctl, FINDING_CRITICAL, FOUND_FILE_UNREADABLE, s->program, mend,
              "its user %s cannot read %s (%s: %s): it does not come up after its next start",
              user->pw_name, path, at, strerror(r.error));
    free(mend);
    free(at);
}

/* ---- passwords ---- */

static void check_password(struct ctl *ctl, const struct service *s, const struct passwd *user)
{
    const char *template = ctl->config->node_user_file;
    struct endpoint_user who;
    struct stat st;
    char *file = endpoint_file_of(template, s->program), *error = NULL;
    if (*ctl->config->replica_user_file && !strcmp(s->program, "dovelane-replicator"))
        template = ""; /* it has a file of its site's; which site this is Dovecot knows */
    if (*template && endpoint_read_user(file, &who, &error) < 0) {
        check_say(ctl, FINDING_CRITICAL, FOUND_PASSWORD_USELESS, s->program,
                  "chmod 0640; one line, a name and a password", "its password is of no use: %s",
                  error);
    } else if (*template && !stat(file, &st)) {
        check_file(ctl, s, user, "node_user_file", file);
        if (st.st_uid && st.st_uid != user->pw_uid)
            check_say(ctl, FINDING_WARNING, FOUND_PASSWORD_OWNER, s->program,
                      "chown root of that file", "%s belongs to user %u, who may change it", file,
                      (unsigned)st.st_uid);
    }
    explicit_bzero(&who, sizeof who);
    free(error);
    free(file);
}

static void check_layout(struct ctl *ctl)
{
    const char *template = ctl->config->node_user_file, *program = strstr(template, "%p");
    if (!program || strchr(program, '/'))
        return;
    check_say(ctl, FINDING_WARNING, FOUND_PASSWORDS_TOGETHER, "config",
              "node_user_file = \"/etc/dovelane/%p/user\", each file into the directory of its "
              "program, and restart the services (upgrade page)",
              "node_user_file = \"%s\": files side by side, and a service sees another one's as "
              "soon as that is replaced",
              template);
}

static void check_files(struct ctl *ctl, const char *as)
{
    const struct config *c = ctl->config;
    /* Another file than the services': who may read it is known only when it is said. */
    if (!as && strcmp(ctl->config_path, "/etc/dovelane/dovelane.conf"))
        return;
    for (size_t i = 0; i < SERVICES; i++) {
        const struct service *s = &services[i];
        bool wanted = i == 2 ? *c->proxy_next != '\0' : i != 3 || c->nreplicas;
        if (!wanted)
            continue;
        /* versions before had it run as another */
        char *runs_as = i == 3 ? check_replicator_user() : NULL;
        const struct passwd *user = getpwnam(as ? as : runs_as ? runs_as : s->user);
        free(runs_as);
        if (!user) {
            check_say(ctl, FINDING_WARNING, FOUND_USER_MISSING, s->program, "systemd-sysusers",
                      "there is no user %s here", as ? as : s->user);
            continue;
        }
        check_file(ctl, s, user, "-c", ctl->config_path);
        check_file(ctl, s, user, "node_ca_file", c->node_ca_file);
        check_file(ctl, s, user, "node_cert_file", c->node_cert_file);
        check_file(ctl, s, user, "node_key_file", c->node_key_file);
        check_password(ctl, s, user);
    }
}

/* ---- which node this is ---- */

/* The name in /etc/default/dovelane, malloc'd; NULL: there is none. */
static char *node_of_host(const char *file)
{
    char line[300], *name = NULL;
    FILE *f = fopen(file, "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *value = line + strlen("DOVELANE_NODE=");
        if (strncmp(line, "DOVELANE_NODE=", strlen("DOVELANE_NODE=")))
            continue;
        value += strspn(value, "\"' \t");
        free(name);
        name = mem_strndup(value, strcspn(value, "\"' \t\r\n#"));
    }
    if (f)
        fclose(f);
    return name;
}

enum ours { OURS, FOREIGN, OURS_UNKNOWN };

/* Only an address of this host can be bound. One that is a name counts by what the resolver
 * makes of it. */
static enum ours whose(const char *address, const char **why_r)
{
    char buf[512];
    const char *host, *port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    enum ours found = FOREIGN;
    *why_r = "it is no address";
    if (config_address(address, buf, sizeof buf, &host, &port) < 0)
        return OURS_UNKNOWN;
    if (!port)
        return OURS; /* the path of a socket */
    int e = getaddrinfo(host, "0", &hints, &list);
    *why_r = e ? gai_strerror(e) : NULL;
    if (e)
        return OURS_UNKNOWN;
    for (struct addrinfo *a = list; a; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && !bind(fd, a->ai_addr, a->ai_addrlen))
            found = OURS;
        else if (found != OURS && (fd < 0 || errno != EADDRNOTAVAIL)) {
            found = OURS_UNKNOWN;
            *why_r = strerror(errno);
        }
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(list);
    return found;
}

/* By either of its addresses. */
static enum ours whose_node(const struct config_node *n, const char **why_r)
{
    enum ours one = whose(n->redis, why_r);
    if (one == OURS || !*n->standby)
        return one;
    const char *why = *why_r;
    enum ours other = whose(n->standby, why_r);
    if (other == FOREIGN && one == OURS_UNKNOWN)
        *why_r = why;
    return other == FOREIGN ? one : other;
}

static void check_address(struct ctl *ctl, const char *file, const char *name, size_t at,
                          const char *mend)
{
    const struct config *c = ctl->config;
    const char *why, *ignored, *address = c->node[at].redis;
    const struct config_node *another = NULL;
    enum ours ours = whose_node(&c->node[at], &why);
    for (size_t i = 0; i < c->nnodes && ours == FOREIGN; i++)
        if (i != at && whose_node(&c->node[i], &ignored) == OURS)
            another = &c->node[i];
    if (ours == OURS)
        check_good(ctl, "host", "it is node %s", name);
    else if (ours == OURS_UNKNOWN)
        check_say(
            ctl, FINDING_WARNING, FOUND_NODE_UNRESOLVED, "host",
            "that name in /etc/hosts or the name server, or an address in the node's section",
            "%s has DOVELANE_NODE=%s, and whether %s is an address of this host is not known: %s",
            file, name, address, why);
    else if (another)
        check_say(ctl, FINDING_CRITICAL, FOUND_NODE_OTHERS, "host", mend,
                  "%s has DOVELANE_NODE=%s, but %s is not an address of this host, and node %s's "
                  "is (%s): two relays of one name stop each other",
                  file, name, address, another->name, another->redis);
    else
        check_say(ctl, FINDING_WARNING, FOUND_NODE_ADDRESS, "host", mend,
                  "%s has DOVELANE_NODE=%s, and %s is no address of this host (right behind "
                  "address translation; the disk of its Redis is not looked at then)",
                  file, name, address);
}

static void check_name(struct ctl *ctl, const char *file)
{
    const struct config *c = ctl->config;
    char *name = node_of_host(file),
         *mend = mem_printf("DOVELANE_NODE=NAME in %s, with the name of this host's own section, "
                            "then restart dovelane-relay",
                            file);
    int at = name ? config_node_index(c, name) : -1;
    if (!name || !*name)
        check_say(ctl, FINDING_WARNING, FOUND_NODE_UNNAMED, "host", mend,
                  "%s names no node: no relay can be started here (right on a Postfix host without "
                  "a node)",
                  file);
    else if (at < 0)
        check_say(ctl, FINDING_CRITICAL, FOUND_NODE_UNKNOWN, "host", mend,
                  "%s has DOVELANE_NODE=%s, and %s has no node of that name: the relay does not "
                  "come up after its next start",
                  file, name, ctl->config_path);
    else
        check_address(ctl, file, name, (size_t)at, mend);
    free(mend);
    free(name);
}

/* ---- disks ---- */

static void check_space(struct ctl *ctl, const char *what, const char *path, double least,
                        const char *why, const char *mend)
{
    struct statvfs s;
    if (!*path || statvfs(path, &s) < 0)
        return;
    double room = (double)s.f_bavail * (double)s.f_frsize,
           all = (double)s.f_blocks * (double)s.f_frsize;
    if (room < least)
        check_say(ctl, FINDING_CRITICAL, FOUND_DISK_FULL, "disk", mend,
                  "%s %s has room for %.0f MB: %s (%.0f MB)", what, path, room / MEGABYTE, why,
                  least / MEGABYTE);
    else if (s.f_files && s.f_favail * 1000 < s.f_files)
        check_say(ctl, FINDING_CRITICAL, FOUND_DISK_FILES, "disk", mend,
                  "%s %s has room for %llu more files", what, path, (unsigned long long)s.f_favail);
    else if (all > 0 && 100 * room < LITTLE * all && room < 1024 * MEGABYTE)
        check_say(ctl, FINDING_WARNING, FOUND_DISK_LITTLE, "disk", mend,
                  "%s %s has room for %.0f MB, %.0f%% of its file system", what, path,
                  room / MEGABYTE, 100 * room / all);
    else
        check_good(ctl, "disk", "%s %s has room for %.0f MB", what, path, room / MEGABYTE);
}

/* Without it a save by a child fails where memory is half full; without saves nothing forks. */
static void check_overcommit(struct ctl *ctl, struct conn *c)
{
    char mode = '1';
    FILE *f = fopen("/proc/sys/vm/overcommit_memory", "re");
    if (!f || fread(&mode, 1, 1, f) != 1)
        mode = '1';
    if (f)
        fclose(f);
    redisReply *save = conn_call(c, "CONFIG GET save"),
               *aof = conn_call(c, "CONFIG GET appendonly");
    bool forks =
        (save && *conn_text(save, "save")) || (aof && !strcmp(conn_text(aof, "appendonly"), "yes"));
    if (mode != '1' && forks)
        check_say(ctl, FINDING_WARNING, FOUND_OVERCOMMIT, "host",
                  "sysctl -w vm.overcommit_memory=1, and the same in /etc/sysctl.d",
                  "vm.overcommit_memory is %c: the Redis of %s may fail to save what it holds",
                  mode, c->name);
    else
        check_good(
            ctl, "host", "vm.overcommit_memory is %c%s", mode,
            mode == '1'
                ? ""
                : ": Redis warns of it at each start, but this one never saves while it runs");
    if (save)
        freeReplyObject(save);
    if (aof)
        freeReplyObject(aof);
}

/* Whether that Redis is a process of this host: its address may be a tunnel's, and then the
 * directory of that name here is another one. Redis works in its directory. */
static bool runs_here(struct conn *c, const char *directory)
{
    redisReply *r = conn_call(c, "INFO server");
    const char *pid = r && r->str ? strstr(r->str, "process_id:") : NULL;
    char *link = mem_printf("/proc/%lld/cwd", pid ? atoll(pid + strlen("process_id:")) : 0),
         *cwd = realpath(link, NULL);
    /* who is not root cannot look, and goes by the address */
    bool here = cwd ? !strcmp(cwd, directory) : geteuid() != 0;
    if (r)
        freeReplyObject(r);
    free(link);
    free(cwd);
    return here;
}

static void check_redis_disk(struct ctl *ctl, size_t node)
{
    struct conn *c = &ctl->conn[node];
    const char *ignored;
    if (whose_node(&ctl->config->node[node], &ignored) == FOREIGN ||
        (!conn_up(c) && !conn_open(c, ctl->config, node)))
        return;
    redisReply *dir = conn_call(c, "CONFIG GET dir"), *info = conn_call(c, "LANE.INFO");
    if (dir && info && !runs_here(c, conn_text(dir, "dir"))) {
        check_good(ctl, "disk",
                   "the Redis of %s is no process of this host: its disk is not looked at",
                   c->name);
    } else if (dir && info) {
        char what[100];
        check_overcommit(ctl, c);
        snprintf(what, sizeof what, "dir of the Redis of %s,", c->name);
        check_space(ctl, what, conn_text(dir, "dir"), (double)conn_number(info, "used-memory"),
                    "a clean stop writes all that it holds there, and fails without",
                    "make room there (bad-days.md, \"The disk is full\")");
    }
    if (dir)
        freeReplyObject(dir);
    if (info)
        freeReplyObject(info);
}

static void check_disks(struct ctl *ctl)
{
    char *error = NULL;
    struct postconf *conf =
        postconf_read(*ctl->config->postfix_config ? ctl->config->postfix_config : NULL, &error);
    for (size_t i = 0; i < ctl->nconns; i++)
        check_redis_disk(ctl, i);
    check_space(ctl, "state_directory", ctl->config->state_directory, MEGABYTE,
                "`divert off` and the nodes' names are kept there", "make room there");
    if (conf)
        check_space(ctl, "Postfix's queue_directory", postconf_get(conf, NULL, "queue_directory"),
                    1.5 * atof(postconf_get(conf, NULL, "message_size_limit")),
                    "with less than 1.5 x message_size_limit Postfix refuses all mail, that from "
                    "lanes, too",
                    "make room there (bad-days.md, \"The disk is full\")");
    postconf_free(conf);
    free(error);
}

/* ---- units ---- */

/* "ActiveState=active\n..." -> "active"; malloc'd. */
static char *property(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *s = text; s && *s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL)
        if (!strncmp(s, name, n) && s[n] == '=')
            return mem_strndup(s + n + 1, strcspn(s + n + 1, "\n"));
    return mem_strdup("");
}

static void judge_unit(struct ctl *ctl, const char *unit, const char *text)
{
    char *active = property(text, "ActiveState"), *sub = property(text, "SubState"),
         *enabled = property(text, "UnitFileState"), *restarts = property(text, "NRestarts");
    char *pid_file = property(text, "PIDFile"), *after = property(text, "ExecStartPost");
    char *start = mem_printf("journalctl -u %s says why; then systemctl restart %s", unit, unit),
         *enable = mem_printf("systemctl enable %s", unit);
    bool on = !strncmp(enabled, "enabled", 7),
         loops =
             !strcmp(sub, "auto-restart") || (!strcmp(active, "activating") && atol(restarts) > 0);
    if (loops && atol(restarts) < 3)
        check_say(ctl, FINDING_WARNING, FOUND_UNIT_RESTARTS, unit, start,
                  "it ended and is being restarted (%s times so far)", restarts);
    else if (loops)
        check_say(ctl, FINDING_CRITICAL, FOUND_UNIT_RESTARTS, unit, start,
                  "it is restarted again and again (%s times so far)", restarts);
    else if (on && strcmp(active, "active") && strcmp(active, "reloading"))
        check_say(ctl, FINDING_CRITICAL, FOUND_UNIT_DOWN, unit, start, "it is enabled and %s",
                  active);
    else if (!on && !strcmp(active, "active"))
        check_say(ctl, FINDING_WARNING, FOUND_UNIT_NOT_ENABLED, unit, enable,
                  "it runs, and would not after a reboot");
    else if (on)
        check_good(ctl, unit, "it is enabled and active");
    if (*pid_file && *after && !strncmp(unit, "redis", 5) && access(pid_file, F_OK) < 0)
        check_say(ctl, FINDING_CRITICAL, FOUND_UNIT_PID_FILE, unit,
                  "PIDFile= (empty) in [Service] of its drop-in, as the package has it, or pidfile "
                  "in redis-dovelane.conf; then systemctl daemon-reload",
                  "systemd waits for %s, which this Redis does not write, and ends it after 90 s",
                  pid_file);
    free(active), free(sub), free(enabled), free(restarts), free(pid_file), free(after),
        free(start), free(enable);
}

static void check_unit(struct ctl *ctl, const char *unit)
{
    const char *const argv[] = {
        "systemctl", "show",
        "-p",        "LoadState,ActiveState,SubState,UnitFileState,NRestarts,PIDFile,ExecStartPost",
        unit,        NULL};
    struct subprocess_result r = subprocess_run(argv, NULL, 0, SYSTEMCTL);
    if (!r.status && r.out.data) { /* else there is no systemd */
        char *loaded = property(r.out.data, "LoadState");
        if (!strcmp(loaded, "loaded"))
            judge_unit(ctl, unit, r.out.data);
        free(loaded);
    }
    subprocess_free(&r);
}

/* ---- all ---- */

void check_host(struct ctl *ctl, const char *as, const char *defaults)
{
    check_layout(ctl);
    check_files(ctl, as);
    if (as || !strcmp(ctl->config_path, "/etc/dovelane/dovelane.conf") ||
        strcmp(defaults, "/etc/default/dovelane"))
        check_name(ctl, defaults);
    check_disks(ctl);
    if (!strcmp(ctl->config_path, "/etc/dovelane/dovelane.conf")) {
        for (size_t i = 0; i < SERVICES; i++)
            check_unit(ctl, services[i].unit);
        check_unit(ctl, "redis-server@dovelane.service");
        check_unit(ctl, "valkey-server@dovelane.service");
    }
}
