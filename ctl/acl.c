/* dovelane acl - what each program may do in a node's Redis, as lines of its ACL file. No more than it sends: tests/integration/test_links.py compares this
 * table with the programs' sources, and lets every program work under it.
 *
 * Mail lanes and lanes between replicas never meet in one user. What a script does (EVAL) Redis asks the user's rights for, command by command. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <openssl/sha.h>

#include "acl.h"
#include "ctl.h"
#include "endpoint.h"
#include "mem.h"
#include "out.h"
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
    {"dovelane", CONNECTION " +lane.read +lane.get +lane.ack +lane.meta +lane.list +lane.beat +lane.whole " MAIL("") " +client|list +config|get +info +time +acl|getuser "
                 "(~" SIGNAL_DIVERT " ~" SIGNAL_HOLDS " ~" SIGNAL_NODES " ~" SIGNAL_DRAIN " ~" SIGNAL_LOOK " ~" SIGNAL_AWAY " ~" SIGNAL_CONFIG " ~" SIGNAL_GROUP
                 " +get +set +del +exists +sadd +hget +hgetall +eval)"},
    {"dovelane-replicator", CONNECTION " +lane.create +lane.push +lane.take +lane.ack +lane.len +lane.ready ~dovelane:replica:*"},
};

#define PROGRAMS (sizeof rights / sizeof *rights)

const char *acl_program(size_t i)
{
    return i < PROGRAMS ? rights[i].program : NULL;
}

/* ---- what a server's user may, against the table ---- */

/* Whether a list, with blanks and parentheses between its words, has that word. Commands have no case: Redis writes a module's as that spelt them. */
static bool has_word(const char *list, const char *word, size_t len)
{
    static const char between[] = " ()";
    for (const char *s = list + strspn(list, between); *s; s += strspn(s, between)) {
        size_t n = strcspn(s, between);
        if (n == len && (*word == '+' ? !strncasecmp(s, word, n) : !memcmp(s, word, n)))
            return true;
        s += n;
    }
    return false;
}

/* The words of a that b has not. What a user must not do at first is no right, and channels are nobody's. */
static void add_difference(const char *a, const char *b, struct buf *out)
{
    static const char between[] = " ()";
    for (const char *s = a + strspn(a, between); *s; s += strspn(s, between)) {
        size_t n = strcspn(s, between);
        if (*s != '-' && !has_word(b, s, n) && !(out->len && has_word(out->data, s, n)))
            buf_printf(out, " %.*s", (int)n, s);
        s += n;
    }
}

static void add_rights(const redisReply *user, struct buf *out)
{
    static const char *const field[] = {"commands", "keys"};
    for (size_t i = 0; i < 2; i++)
        buf_printf(out, " %s", conn_text(user, field[i]));
    const redisReply *selectors = conn_field(user, "selectors");
    for (size_t i = 0; selectors && selectors->type == REDIS_REPLY_ARRAY && i < selectors->elements; i++)
        for (size_t k = 0; k < 2; k++)
            buf_printf(out, " %s", conn_text(selectors->element[i], field[k]));
}

void acl_compare(const redisReply *user, const char *program, struct buf *wider, struct buf *missing)
{
    struct buf has = {0};
    const redisReply *flags = conn_field(user, "flags");
    add_rights(user, &has);
    for (size_t i = 0; i < PROGRAMS; i++)
        if (!strcmp(rights[i].program, program)) {
            add_difference(has.data, rights[i].may, wider);
            if (!has_word(has.data, "+@all", 5)) /* with that nothing is missing */
                add_difference(rights[i].may, has.data, missing);
        }
    for (size_t i = 0; flags && flags->type == REDIS_REPLY_ARRAY && i < flags->elements; i++)
        if (flags->element[i]->str && !strcmp(flags->element[i]->str, "nopass"))
            buf_adds(wider, " nopass");
    buf_free(&has);
}

/* ---- printing ---- */

static void print_user(const struct endpoint_user *user, const char *may)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    SHA256((const unsigned char *)user->password, strlen(user->password), hash);
    out("user %s on #", user->name);
    for (size_t i = 0; i < sizeof hash; i++)
        out("%02x", hash[i]);
    out(" resetchannels -@all %s\n", may);
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
    for (size_t i = 0; i < PROGRAMS; i++) {
        char *file = endpoint_file_of(template, rights[i].program), *error = NULL;
        if (endpoint_read_user(file, &user, &error) > 0) {
            print_user(&user, rights[i].may);
            printed++;
        } else {
            out_error("dovelane: no user for %s: %s\n", rights[i].program, error);
        }
        explicit_bzero(&user, sizeof user);
        free(error);
        free(file);
    }
    ctl_status(ctl, printed ? STATUS_DONE : STATUS_FAILED);
}
