/* Replicas: as whom each comes to the others' nodes, and as whom its replicator runs here. */
#include "ctl/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/redis/endpoint.h"
#include "lib/base/mem.h"
#include "lib/base/subprocess.h"

#define PATIENCE 30000 /* milliseconds, for doveconf */
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

/* The value of "user" in what doveconf -n shows of the service; malloc'd, NULL: there is no such
 * service, or no user is set. */
static char *user_of_service(const char *text)
{
    const char *at = strstr(text, "\nservice dovelane-replicator {\n"),
               *end = at ? strstr(at, "\n}") : NULL, *user = at ? strstr(at, "\n  user = ") : NULL;
    if (!user || !end || user > end)
        return NULL;
    user += strlen("\n  user = ");
    return mem_strndup(user, strcspn(user, "\n"));
}

char *check_replicator_user(void)
{
    const char *const argv[] = {"doveconf", "-n", NULL};
    struct subprocess_result r = subprocess_run(argv, NULL, 0, PATIENCE);
    char *user = r.status == 0 && r.out.data ? user_of_service(r.out.data) : NULL;
    subprocess_free(&r);
    return user;
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
