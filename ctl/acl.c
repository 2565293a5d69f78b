/* dovelane acl - what each program may do in a node's Redis, as lines of its ACL file. No more than it sends: tests/integration/test_links.py compares this
 * table with the programs' sources, and lets every program work under it.
 *
 * Mail lanes and lanes between replicas never meet in one user. What a script does (EVAL) Redis asks the user's rights for, command by command. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/sha.h>

#include "ctl.h"
#include "endpoint.h"
#include "mem.h"
#include "signals.h"

#define HELP                                                                                                                              \
    "usage: dovelane acl > users.acl\n"                                                                                                   \
    "Prints the users of all programs, for the aclfile of every node's Redis: the names and (hashed) passwords of the files that node_user_file\n" \
    "names, with the rights that each program needs. The default user gets none. A program whose file is not there gets no user; stderr says so."

/* Sorted by what they are for: of the connection; of lanes. %W: only to write, so that PUSH and REVOKE are all that can be done with them. */
#define CONNECTION "+ping +client|setname +lane.info"
#define MAIL(how) how "~dovelane:lmtp:* " how "~dovelane:smtp:* " how "~dovelane:relay:*"
#define STORES CONNECTION " +lane.push +lane.revoke +lane.beat " MAIL("%W") " (~" SIGNAL_DIVERT " ~" SIGNAL_HOLDS " +get +set +eval) (%R~" SIGNAL_NODES " +get)"

static const struct rights {
    const char *program, *may;
} rights[] = {
    {"dovelane-milter", STORES},
    {"dovelane-proxy", STORES},
    {"dovelane-relay", CONNECTION " +lane.push +lane.take +lane.ack +lane.nack +lane.extend +lane.meta +lane.read +lane.get +lane.ids +lane.len +lane.list +lane.ready "
                       "+lane.move +multi +exec +lane.beat +lane.whole " MAIL("") " ~dovelane:order (~" SIGNAL_DRAIN " +get) (~" SIGNAL_LOOK " +spop) (~" SIGNAL_NODES " +get +set +eval) (~" SIGNAL_AWAY " ~" SIGNAL_CONFIG
                       " +eval +del +hset +pexpire)"},
    {"dovelane", CONNECTION " +lane.read +lane.get +lane.ack +lane.meta +lane.list +lane.beat +lane.whole " MAIL("") " +client|list +config|get +info +acl|getuser "
                 "(~" SIGNAL_DIVERT " ~" SIGNAL_HOLDS " ~" SIGNAL_NODES " ~" SIGNAL_DRAIN " ~" SIGNAL_LOOK " ~" SIGNAL_AWAY " ~" SIGNAL_CONFIG " ~" SIGNAL_GROUP
                 " +get +set +del +exists +sadd +hget +hgetall +eval)"},
    {"dovelane-replicator", CONNECTION " +lane.create +lane.push +lane.take +lane.ack +lane.len +lane.ready ~dovelane:replica:*"},
};

static void print_user(const struct endpoint_user *user, const char *may)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    SHA256((const unsigned char *)user->password, strlen(user->password), hash);
    printf("user %s on #", user->name);
    for (size_t i = 0; i < sizeof hash; i++)
        printf("%02x", hash[i]);
    printf(" resetchannels -@all %s\n", may);
}

void acl_command(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {0}};
    struct endpoint_user user;
    size_t printed = 0;
    int o;
    while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (o != 'h')
            ctl_usage("see `dovelane acl --help`");
        puts(HELP);
        return;
    }
    if (optind != argc)
        ctl_usage("acl: %s is no option", argv[optind]);
    const char *template = ctl->config->node_user_file;
    if (!strstr(template, "%p"))
        ctl_usage("%s: node_user_file = \"%s\": write it with %%p, like \"/etc/dovelane/%%p/user\": a file, and a user, for each program", ctl->config_path, template);
    puts("user default off resetchannels -@all");
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        char *file = endpoint_file_of(template, rights[i].program), *error = NULL;
        if (endpoint_read_user(file, &user, &error) > 0) {
            print_user(&user, rights[i].may);
            printed++;
        } else {
            fprintf(stderr, "dovelane: no user for %s: %s\n", rights[i].program, error);
        }
        explicit_bzero(&user, sizeof user);
        free(error);
        free(file);
    }
    ctl_status(ctl, printed ? STATUS_DONE : STATUS_FAILED);
}
