/* Replicas: as whom each comes to the others' nodes, as whom its replicator runs here, and whether
 * it can: its service, sockets and directories. */
#include "ctl/replica_here.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/redis/endpoint.h"
#include "lib/base/mem.h"
#include "lib/base/subprocess.h"

#define PATIENCE 30000 /* milliseconds, for `dovelane-replicator -t` */
#define OWN_FILES                                                                                 \
    "replica_user_file = \"/etc/dovelane/dovelane-replicator/%r.user\", a file for each replica " \
    "(replication guide, \"TLS and users\")"

static bool is_there(const char *template, const char *replica)
{
    char *file = endpoint_file_of_replica(template, replica);
    bool there = !access(file, F_OK);
    free(file);
    return there;
}

void check_replica_users(struct ctl *ctl)
{
    const struct config *c = ctl->config;
    if (c->nreplicas < 2 || !strstr(c->node_user_file, "%p"))
        return;
    if (!*c->replica_user_file) {
        check_say(ctl, FINDING_WARNING, FOUND_REPLICAS_TOGETHER, "config", OWN_FILES,
                  "replica_user_file is empty: all replicas come to all nodes as one user, so each "
                  "could speak in another's name");
        return;
    }
    /* Where the files of all replicas are, `dovelane acl` is run: while the one for all is
     * there, it makes a user of it. */
    char *shared = endpoint_file_of(c->node_user_file, "dovelane-replicator");
    bool all = !access(shared, F_OK);
    for (size_t i = 0; i < c->nreplicas; i++)
        all = all && is_there(c->replica_user_file, c->replica[i].name);
    char *mend = mem_printf("rm %s, when no replica comes as that user any more; then `dovelane "
                            "acl` again, into the aclfile of each Redis, and ACL LOAD",
                            shared);
    if (all)
        check_say(ctl, FINDING_WARNING, FOUND_REPLICATOR_USER_LEFT, "config", mend,
                  "%s is still there: its user may write and empty the lanes of all replicas",
                  shared);
    else
        check_good(ctl, "config", "each replica comes to a node as a user of its own");
    free(mend);
    free(shared);
}

char *check_replicator_user(void)
{
    struct dovecot_conf *c = dovecot_conf_read(NULL);
    const char *user = dovecot_conf_of(c, REPLICATOR, "user");
    char *copy = user ? mem_strdup(user) : NULL;
    dovecot_conf_free(c);
    return copy;
}

void check_replicator(struct ctl *ctl)
{
    char *user = check_replicator_user();
    if (user && !strcmp(user, "dovelane"))
        check_say(ctl, FINDING_WARNING, FOUND_REPLICATOR_USER, "dovecot",
                  "user = dovelane-replicator, in both services, after the steps of the upgrade "
                  "page (\"The replicator's own user\")",
                  "dovelane-replicator runs as dovelane, as the relay and the milter do: who "
                  "breaks into one of them reaches all mailboxes through its workers");
    else if (user)
        check_good(ctl, "dovecot", "dovelane-replicator runs as %s", user);
    free(user);
}

/* ---- dovelane check replicas: the service ---- */

#define WORDS_MOST 16

/* The words of an executable's line; both are the caller's to free. */
static size_t words_of(const char *line, char **copy_r, char *word[WORDS_MOST])
{
    char *rest = NULL;
    size_t n = 0;
    *copy_r = mem_strdup(line);
    for (char *w = strtok_r(*copy_r, " ", &rest); w && n < WORDS_MOST;
         w = strtok_r(NULL, " ", &rest))
        word[n++] = w;
    return n;
}

/* What stands behind -n or -C; NULL: it is not there. */
static const char *option_of(char *const word[], size_t n, const char *option)
{
    for (size_t i = 1; i < n; i++) {
        if (!strcmp(word[i], option) && i + 1 < n)
            return word[i + 1];
        if (!strncmp(word[i], option, 2) && word[i][2])
            return word[i] + 2;
    }
    return NULL;
}

/* What it says with -t; NULL: nothing is wrong. The caller's. */
static char *what_it_says(const char *libexec, char *const word[], size_t n)
{
    const char *argv[WORDS_MOST + 2] = {NULL};
    char *program = *word[0] == '/' ? mem_strdup(word[0]) : mem_printf("%s/%s", libexec, word[0]);
    for (size_t i = 1; i < n; i++)
        argv[i] = word[i];
    argv[0] = program;
    argv[n] = "-t";
    struct subprocess_result r = subprocess_run(argv, NULL, 0, PATIENCE);
    const char *said = r.err.data && *r.err.data ? r.err.data : r.failure;
    char *text = r.status == 0              ? NULL
                 : r.status == 127 || !said ? mem_printf("%s cannot be run", program)
                                            : mem_strndup(said, strcspn(said, "\n"));
    subprocess_free(&r);
    free(program);
    return text;
}

/* However each path is written; where one of the two is not there, the paths count. */
static bool is_one_file(const char *a, const char *b)
{
    struct stat x, y;
    if (stat(a, &x) < 0 || stat(b, &y) < 0)
        return !strcmp(a, b);
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static void check_start(struct replica_here *h, const char *executable)
{
    char *libexec = *executable == '/' ? NULL : dovecot_conf_ask(h->dovecot_file, "libexec_dir");
    char *copy, *word[WORDS_MOST], *wrong = NULL;
    size_t n = words_of(executable, &copy, word);
    const char *name = option_of(word, n, "-n"), *config = option_of(word, n, "-C");
    h->self = name ? config_replica_index(h->ctl->config, name) : -1;
    h->name = h->self >= 0 ? mem_strdup(name) : NULL;
    if (!name)
        wrong = mem_strdup("-n NAME is not in its executable: which replica this is, nobody knows");
    else if (!is_one_file(config ? config : "/etc/dovelane/dovelane.conf", h->ctl->config_path))
        wrong = mem_printf("it reads %s, and this check %s",
                           config ? config : "/etc/dovelane/dovelane.conf", h->ctl->config_path);
    else
        wrong = what_it_says(libexec ? libexec : "/usr/lib/dovecot", word, n);
    if (wrong)
        check_say(h->ctl, FINDING_CRITICAL, FOUND_REPLICATOR_START, "dovelane-replicator",
                  "what it says; executable = dovelane-replicator -n NAME, with this host's name "
                  "in dovelane.conf",
                  "it would not start: %s", wrong);
    else
        check_good(h->ctl, "dovelane-replicator", "it is %s, and can start", name);
    free(libexec);
    free(wrong);
    free(copy);
}

static void check_processes(const struct replica_here *h)
{
    const struct dovecot_conf *d = h->dovecot;
    long long workers = h->ctl->config->replicator_workers, needed = 2 * workers + 2;
    char *mend =
        mem_printf("client_limit = 1 and process_limit = %lld in service dovelane-worker", needed);
    if (dovecot_conf_number(d, REPLICATOR, "process_min_avail", 0) != 1 ||
        dovecot_conf_number(d, REPLICATOR, "process_limit", 0) != 1)
        check_say(h->ctl, FINDING_CRITICAL, FOUND_REPLICATOR_PROCESSES, "dovelane-replicator",
                  "process_min_avail = 1 and process_limit = 1 in service dovelane-replicator",
                  "there must be one process of it, always: without process_min_avail it starts "
                  "with the first change here, and a second one cannot open its state");
    else
        check_good(h->ctl, "dovelane-replicator", "there is one process of it");
    if (dovecot_conf_number(d, WORKER, "process_limit", 100) < needed ||
        dovecot_conf_number(d, WORKER, "client_limit", 0) != 1)
        check_say(h->ctl, FINDING_WARNING, FOUND_WORKER_PROCESSES, "dovelane-worker", mend,
                  "a process of it serves one user at a time, and with replicator_workers = %lld "
                  "there may be %lld of them",
                  workers, needed);
    else
        check_good(h->ctl, "dovelane-worker", "there may be enough processes of it");
    free(mend);
}

/* A listener's mode; -1: it is not there. */
static long mode_of(const struct dovecot_conf *d, const char *listener)
{
    const char *mode = dovecot_conf_of(d, listener, "mode");
    return !dovecot_conf_get(d, listener) ? -1 : mode ? strtol(mode, NULL, 8) : 0600;
}

/* A site with headers of large mails, whose text mail processes ask for over the same socket. */
static void check_fetches(const struct replica_here *h, long mode)
{
    if (h->self < 0 || !config_is_on_demand(&h->ctl->config->replica[h->self]) ||
        (mode >= 0 && (mode & 0006) == 0006))
        return;
    check_say(h->ctl, FINDING_CRITICAL, FOUND_COMMIT_SOCKET, "dovelane-replicator",
              "unix_listener dovelane-commit { mode = 0666 } in service dovelane-replicator",
              "role = on-demand: mail processes cannot ask it for the text of mails of which only "
              "the header is here");
}

/* dovelane_commit = peers needs a socket that all mail processes may connect to. */
static void check_commit(const struct replica_here *h)
{
    static const char socket[] = REPLICATOR "/unix_listener dovelane-commit";
    const char *commit = dovecot_conf_get(h->dovecot, "plugin/dovelane_commit");
    long mode = mode_of(h->dovecot, socket);
    if (!commit)
        commit = dovecot_conf_get(h->dovecot, "dovelane_commit");
    check_fetches(h, mode);
    if (!commit || strcmp(commit, "peers") != 0)
        return;
    if (mode < 0 || (mode & 0006) != 0006)
        check_say(h->ctl, FINDING_WARNING, FOUND_COMMIT_SOCKET, "dovelane-replicator",
                  "unix_listener dovelane-commit { mode = 0666 } in service dovelane-replicator",
                  "dovelane_commit = peers: mail processes cannot ask it, and reply without "
                  "another site's word");
    else
        check_good(h->ctl, "dovelane-replicator", "mail processes may wait for another site");
}

static void check_sockets(const struct replica_here *h)
{
    static const char worker[] = WORKER "/unix_listener dovelane-worker",
                      hint[] = REPLICATOR "/fifo_listener dovelane-hint";
    const char *owner = dovecot_conf_of(h->dovecot, worker, "user");
    long mode = mode_of(h->dovecot, worker);
    bool reaches =
        mode >= 0 && ((mode & 0006) == 0006 || (owner && h->user && !strcmp(owner, h->user)));
    char *mend = mem_printf("unix_listener dovelane-worker { mode = 0600, user = %s } in service "
                            "dovelane-worker",
                            h->user ? h->user : "dovelane-replicator");
    if (!reaches)
        check_say(h->ctl, FINDING_CRITICAL, FOUND_WORKER_SOCKET, "dovelane-worker", mend,
                  "%s, whom the replicator runs as, cannot connect to it: no mailbox is looked at",
                  h->user ? h->user : "the user");
    else
        check_good(h->ctl, "dovelane-worker", "the replicator may connect to it");
    free(mend);
    if ((mode = mode_of(h->dovecot, hint)) < 0 || !(mode & 0002))
        check_say(h->ctl, FINDING_WARNING, FOUND_HINT_SOCKET, "dovelane-replicator",
                  "fifo_listener dovelane-hint { mode = 0622 } in service dovelane-replicator",
                  "mail processes cannot tell it what they changed: that is seen by a sweep only");
    else
        check_good(h->ctl, "dovelane-replicator", "mail processes may tell it what they changed");
    if (mode_of(h->dovecot, REPLICATOR "/unix_listener dovelane-admin") < 0)
        check_say(h->ctl, FINDING_WARNING, FOUND_ADMIN_SOCKET, "dovelane-replicator",
                  "unix_listener dovelane-admin { mode = 0600 } in service dovelane-replicator",
                  "`doveadm dovelane` cannot ask it");
    check_commit(h);
}

/* ---- its user and directories ---- */

static void check_own_directory(const struct replica_here *h, const struct passwd *user)
{
    const char *set = h->ctl->config->replicator_dir,
               *path = *set ? set : "/var/lib/dovelane-replicator";
    struct stat st;
    if (stat(path, &st) < 0)
        return; /* what it says with -t names it */
    char *mend = mem_printf("chown %s: %s && chmod 0700 %s", user->pw_name, path, path), mode[8];
    snprintf(mode, sizeof mode, "%04o", (unsigned)st.st_mode & 07777);
    if (st.st_uid != user->pw_uid || (st.st_mode & 0022))
        check_say(h->ctl, FINDING_CRITICAL, FOUND_REPLICATOR_DIRECTORY, "dovelane-replicator", mend,
                  "%s belongs to uid %u (mode %s), and must be %s's alone", path,
                  (unsigned)st.st_uid, mode, user->pw_name);
    else
        check_good(h->ctl, "dovelane-replicator", "%s is its user's", path);
    free(mend);
}

static void check_dirty(const struct replica_here *h)
{
    const char *path = h->ctl->config->dirty_dir,
               *set = dovecot_conf_get(h->dovecot, "plugin/dovelane_dirty_dir");
    struct stat st;
    char *mend = mem_printf("install -d -m 1733 %s", path),
         *same = mem_printf("dovelane_dirty_dir = %s in Dovecot's files, or dirty_dir", path);
    bool there = !stat(path, &st) && S_ISDIR(st.st_mode);
    if (!set)
        set = dovecot_conf_get(h->dovecot, "dovelane_dirty_dir");
    if (!there || (st.st_mode & 01733) != 01733)
        check_say(h->ctl, FINDING_CRITICAL, FOUND_DIRTY_DIRECTORY, "dovelane-replicator", mend,
                  "dirty_dir = %s: %s: what changes while it is away would be found late", path,
                  there ? "not every mail user may leave a mark in it"
                        : "there is no such directory");
    else
        check_good(h->ctl, "dovelane-replicator", "dirty_dir %s takes marks", path);
    if (strcmp(set ? set : "/var/lib/dovelane/dirty", path) != 0)
        check_say(h->ctl, FINDING_WARNING, FOUND_DIRTY_SETTING, "dovelane-replicator", same,
                  "the plugin leaves marks in %s, and the replicator looks for them in %s",
                  set ? set : "/var/lib/dovelane/dirty", path);
    free(same);
    free(mend);
}

static void check_service(struct replica_here *h)
{
    const char *executable = dovecot_conf_of(h->dovecot, REPLICATOR, "executable"),
               *user = dovecot_conf_of(h->dovecot, REPLICATOR, "user");
    if (!executable || !dovecot_conf_get(h->dovecot, WORKER)) {
        check_say(h->ctl, FINDING_CRITICAL, FOUND_REPLICATOR_SERVICE, "dovecot",
                  "install -m 0644 /usr/share/doc/dovelane/examples/11-dovelane.conf "
                  "/etc/dovecot/conf.d/, and -n in it",
                  "it has no service dovelane-replicator, or no dovelane-worker: nothing is "
                  "replicated here");
        return;
    }
    h->user = mem_strdup(user ? user : "root");
    check_start(h, executable);
    check_processes(h);
    check_sockets(h);
    const struct passwd *who = getpwnam(h->user);
    if (!who)
        check_say(h->ctl, FINDING_CRITICAL, FOUND_USER_MISSING, "dovelane-replicator",
                  "systemd-sysusers", "there is no user %s here", h->user);
    else
        check_own_directory(h, who);
    check_dirty(h);
}

void check_replicas(struct ctl *ctl, const char *dovecot_file, bool asked)
{
    struct replica_here h = {.ctl = ctl, .asked = asked, .dovecot_file = dovecot_file, .self = -1};
    if (ctl->config->nreplicas < 2) {
        if (asked)
            check_say(ctl, FINDING_WARNING, FOUND_REPLICAS_FEW, "config",
                      "a section `replica NAME { id = N  redis = ... }` for each site, the same on "
                      "all (replication guide)",
                      "%s has %zu replica%s: there is nobody to replicate to", ctl->config_path,
                      ctl->config->nreplicas, ctl_s(ctl->config->nreplicas));
        return;
    }
    h.dovecot = dovecot_conf_read(dovecot_file);
    bool replicates = dovecot_conf_get(h.dovecot, REPLICATOR) != NULL;
    if (!asked && !replicates && (h.dovecot->absent || !h.dovecot->error)) {
        dovecot_conf_free(h.dovecot); /* another host's part of the group */
        return;
    }
    if (h.dovecot->error) {
        check_say(ctl, FINDING_CRITICAL, FOUND_DOVECOT_UNKNOWN, "dovecot",
                  "`doveconf -n` shows it once it is mended",
                  "what Dovecot is set to is not known: %s", h.dovecot->error);
    } else {
        check_service(&h);
        check_mailboxes(&h);
        check_plugin(&h);
    }
    check_sites(&h);
    free(h.name);
    free(h.user);
    dovecot_conf_free(h.dovecot);
}
