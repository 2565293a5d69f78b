/* dovelane acl - what each program may do in a node's Redis, as lines of its ACL file. No more than
 * it sends: tests/integration/gateway/test_links.py compares this table with the programs' sources, and
 * lets every program work under it.
 *
 * Mail lanes and lanes between replicas never meet in one user. What a script does (EVAL) Redis
 * asks the user's rights for, command by command. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <openssl/sha.h>

#include "ctl/acl.h"
#include "ctl/ctl.h"
#include "lib/redis/endpoint.h"
#include "lib/mail/disk_question.h"
#include "lib/mail/lanename.h"
#include "lib/base/mem.h"
#include "ctl/out.h"
#include "ctl/row.h"
#include "lib/redis/control_keys.h"

#define HELP                                                                                       \
    "usage: dovelane acl [--site NAME] > users.acl\n"                                              \
    "Prints the users of all programs, for the aclfile of every node's Redis: the names and "      \
    "(hashed) passwords of the files that node_user_file\n"                                        \
    "names, with the rights that each program needs. The default user gets none. A program whose " \
    "file is not there gets no user; stderr says so.\n"                                            \
    "With replica_user_file each replica has a user of its own at each node. --site NAME: only "   \
    "those for the node of that replica (none: NAME is -)."

/* Sorted by what they are for: of the connection; of lanes. %W: only to write, so that PUSH and
 * REVOKE are all that can be done with them. Who meets strangers' mail (milter, proxy) may write
 * nothing else: no beat, no script, no word of an admin's. It reads no mail, but how long lanes
 * are and how old (lib/ingress/depth_watch.h). */
#define CONNECTION "+ping +client|setname +lane.info"
#define MAIL(how) how "~dovelane:lmtp:* " how "~dovelane:smtp:* " how "~dovelane:relay:*"
#define STORES                                                                             \
    CONNECTION " +lane.push +lane.revoke +lane.beats +lane.list " MAIL("%W") " (" MAIL(    \
        "%R") " +lane.info) (%R~" CONTROL_DIVERT " %R~" CONTROL_HOLDS " %R~" CONTROL_SHAPE \
              " %R~" CONTROL_NODES " +get)"

static const struct rights {
    const char *program, *may;
} rights[] = {
    {"dovelane-milter", STORES},
    {"dovelane-proxy", STORES},
    {"dovelane-relay", CONNECTION
     " +lane.push +lane.take +lane.ack +lane.nack +lane.extend +lane.meta +lane.read +lane.get "
     "+lane.ids +lane.len +lane.list +lane.ready "
     "+lane.move +multi +exec +lane.beat +lane.whole " MAIL(
         "") " ~dovelane:order (~" CONTROL_DRAIN " +get) (~" CONTROL_LOOK
             " +spop) (~" CONTROL_DIVERT " ~" CONTROL_HOLDS " ~" CONTROL_SHAPE " ~" CONTROL_NODES
             " +get +set +eval) (~" CONTROL_BUCKET "* +eval +get +set +hget +hgetall +hset +hdel "
             "+pexpire +pexpireat +time) (~" CONTROL_AWAY " ~" CONTROL_CONFIG
             " +eval +del +hset +pexpire) (%W~" DISK_ASKED "* +lane.push) (~" DISK_ANSWERED
             "* +lane.take +lane.ack)"},
    {"dovelane", CONNECTION
     " +lane.read +lane.get +lane.ack +lane.meta +lane.list +lane.beats +lane.whole " MAIL(
         "") " +client|list +config|get +info +time +acl|getuser "
             "(~" CONTROL_DIVERT " ~" CONTROL_HOLDS " ~" CONTROL_SHAPE " ~" CONTROL_NODES
             " ~" CONTROL_DRAIN " ~" CONTROL_LOOK " ~" CONTROL_AWAY " ~" CONTROL_CONFIG
             " ~" CONTROL_GROUP
             " +get +set +del +exists +sadd +hget +hgetall +eval) (~" CONTROL_FACTS
             "* %R~" CONTROL_SITE "* +get +set) (%R~" CONTROL_BUCKET "* +hgetall)"},
    {"dovelane-replicator", CONNECTION
     " +lane.create +lane.push +lane.take +lane.ack +lane.len +lane.ready ~dovelane:replica:* "
     "(~" DISK_ASKED "* +lane.take +lane.ack) (%W~" DISK_ANSWERED "* +lane.push) "
     "(~" CONTROL_SITE "* +get +set)"},
};

#define PROGRAMS (sizeof rights / sizeof *rights)

const char *acl_program(size_t i)
{
    return i < PROGRAMS ? rights[i].program : NULL;
}

const char *acl_program_rights(size_t i)
{
    return rights[i].may;
}

/* Who runs under its name (dovecot-plugin/replicator/lanes/claims.h). */
#define CLAIM "(~" CONTROL_SITE "%s ~" CONTROL_SITE "%s" CONTROL_SITE_SECOND " +get +set)"

/* Lanes of a replica are on its own node: there it fills them, and the others empty those to
 * them. */
char *acl_replica_rights(const char *replica, int64_t site, const char *node)
{
    if (!strcmp(replica, node))
        return mem_printf(CONNECTION " (%%W~" LANENAME_REPLICA
                                     "%s>* +lane.create +lane.push) (%%R~" LANENAME_REPLICA
                                     "%s>* +lane.len) (~" DISK_ASKED "%" PRId64
                                     " +lane.take +lane.ack) (%%W~" DISK_ANSWERED
                                     "* +lane.push) " CLAIM,
                          replica, replica, site, replica, replica);
    return mem_printf(CONNECTION " +lane.take +lane.ack +lane.ready ~" LANENAME_REPLICA
                                 "%s>%s ~" LANENAME_REPLICA "%s>%s:bulk " CLAIM,
                      node, replica, node, replica, replica, replica);
}

/* ---- what a server's user may, against the table ---- */

#define SELECTORS 16 /* the first is what stands outside of parentheses */

/* Each a list of words, with a blank in front of each. A right holds within its selector: +eval
 * in one says nothing of the keys of another. */
struct selectors {
    size_t n;
    struct buf words[SELECTORS];
};

static void add_words(struct selectors *s, size_t which, const char *words, size_t len)
{
    if (which < SELECTORS)
        buf_printf(&s->words[which], " %.*s", (int)len, words);
}

static struct selectors of_table(const char *may)
{
    struct selectors s = {.n = 1};
    size_t at = 0;
    for (const char *p = may; *p;) {
        size_t n = strcspn(p, "()");
        add_words(&s, at, p, n);
        p += n;
        at = *p == '(' ? s.n++ : 0;
        p += *p != '\0';
    }
    return s;
}

static struct selectors of_user(const redisReply *user)
{
    static const char *const field[] = {"commands", "keys"};
    struct selectors s = {.n = 1};
    const redisReply *more = conn_field(user, "selectors");
    for (size_t i = 0;
         more && more->type == REDIS_REPLY_ARRAY && i < more->elements && s.n < SELECTORS; i++)
        s.n++;
    for (size_t i = 0; i < s.n; i++)
        for (size_t k = 0; k < 2; k++) {
            const char *text = conn_text(i ? more->element[i - 1] : user, field[k]);
            add_words(&s, i, text, strlen(text));
        }
    return s;
}

static void free_selectors(struct selectors *s)
{
    for (size_t i = 0; i < SELECTORS; i++)
        buf_free(&s->words[i]);
}

/* Commands have no case: Redis writes a module's as that spelt them. */
static bool has_word(const char *list, const char *word, size_t len)
{
    for (const char *s = list + strspn(list, " "); *s; s += strspn(s, " ")) {
        size_t n = strcspn(s, " ");
        if (n == len && (*word == '+' ? !strncasecmp(s, word, n) : !memcmp(s, word, n)))
            return true;
        s += n;
    }
    return false;
}

/* A pattern for reading and writing is one for either; and who may do all commands, or
 * LANE.BEAT, may read the beats (lib/redis/beat_reader.h). */
static bool allows(const char *list, const char *word, size_t len)
{
    static const char beats[] = "+lane.beats";
    return has_word(list, word, len) || (*word == '%' && has_word(list, word + 2, len - 2)) ||
           (*word == '+' && has_word(list, "+@all", 5)) ||
           (len == strlen(beats) && !strncasecmp(word, beats, len) &&
            has_word(list, "+lane.beat", 10));
}

static bool allows_both(const struct selectors *s, const char *command, size_t command_len,
                        const char *key, size_t key_len)
{
    for (size_t i = 0; i < s->n && i < SELECTORS; i++) {
        const char *words = s->words[i].data ? s->words[i].data : "";
        if ((!command || allows(words, command, command_len)) &&
            (!key || allows(words, key, key_len)))
            return true;
    }
    return false;
}

static void name_word(const char *word, size_t len, struct buf *out)
{
    if (!out->len || !has_word(out->data, word, len))
        buf_printf(out, " %.*s", (int)len, word);
}

/* The next word that begins with one of these signs, from *at on; NULL: none. What a user must
 * not do at first ("-@all") is no right, and channels are nobody's. */
static const char *next_word(const char **at, const char *signs, size_t *len_r)
{
    for (*at += strspn(*at, " "); **at; *at += strspn(*at, " ")) {
        const char *word = *at;
        *len_r = strcspn(word, " ");
        *at += *len_r;
        if (strchr(signs, *word))
            return word;
    }
    return NULL;
}

/* One command with each key of its selector: of what b does not allow, what nowhere in b is; or
 * both, when only their being together is new. */
static void compare_command(const char *words, const char *command, size_t command_len,
                            const struct selectors *b, struct buf *out)
{
    const char *at = words, *key;
    size_t key_len, keys = 0;
    for (; (key = next_word(&at, "~%", &key_len)); keys++) {
        if (allows_both(b, command, command_len, key, key_len))
            continue;
        bool knows_command = allows_both(b, command, command_len, NULL, 0),
             knows_key = allows_both(b, NULL, 0, key, key_len);
        if (!knows_command || knows_key)
            name_word(command, command_len, out);
        if (!knows_key || knows_command)
            name_word(key, key_len, out);
    }
    if (!keys && !allows_both(b, command, command_len, NULL, 0))
        name_word(command, command_len, out);
}

/* The rights of a that b has not. */
static void compare(const struct selectors *a, const struct selectors *b, struct buf *out)
{
    for (size_t i = 0; i < a->n && i < SELECTORS; i++) {
        const char *words = a->words[i].data ? a->words[i].data : "", *at = words, *command;
        size_t len;
        while ((command = next_word(&at, "+", &len)))
            compare_command(words, command, len, b, out);
    }
}

void acl_compare(const redisReply *user, const char *may, struct buf *wider, struct buf *missing)
{
    const redisReply *flags = conn_field(user, "flags");
    struct selectors has = of_user(user), needs = of_table(may);
    compare(&has, &needs, wider);
    compare(&needs, &has, missing);
    free_selectors(&needs);
    for (size_t i = 0; flags && flags->type == REDIS_REPLY_ARRAY && i < flags->elements; i++)
        if (flags->element[i]->str && !strcmp(flags->element[i]->str, "nopass"))
            buf_adds(wider, " nopass");
    free_selectors(&has);
}

const char *acl_again(const struct ctl *ctl)
{
    const char *slash = strrchr(ctl->config_path, '/');
    char *group =
        mem_printf("%.*sgroup", slash ? (int)(slash + 1 - ctl->config_path) : 0, ctl->config_path);
    bool made = !access(group, F_OK);
    free(group);
    return made ? "`dovelane init`, on the authority's host first, then on all others"
                : "`dovelane acl` again, into the aclfile of that Redis, and ACL LOAD";
}

/* ---- printing ---- */

static void show_user(const json_t *row)
{
    out("%s\n", row_get_text(row, "line"));
}

static const struct out_kind users = {"users", show_user};

static void print_line(const char *name, const char *line)
{
    json_t *row = row_new();
    row_add_text(row, "user", name);
    row_add_text(row, "line", line);
    out_row(&users, row);
}

static void print_user(const struct endpoint_user *user, const char *may)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    struct buf line = {0};
    SHA256((const unsigned char *)user->password, strlen(user->password), hash);
    buf_printf(&line, "user %s on #", user->name);
    for (size_t i = 0; i < sizeof hash; i++)
        buf_printf(&line, "%02x", hash[i]);
    buf_printf(&line, " resetchannels -@all %s", may);
    print_line(user->name, line.data);
    buf_free(&line);
}

/* Of each replica, one for each node, or for the node of one. The number printed. */
static size_t print_replicas(const struct config *c, const char *site)
{
    size_t printed = 0;
    for (size_t i = 0; i < c->nreplicas && *c->replica_user_file; i++) {
        char *file = endpoint_file_of_replica(c->replica_user_file, c->replica[i].name),
             *error = NULL;
        struct endpoint_user user;
        bool known = endpoint_read_replica(file, &user, &error) > 0;
        if (!known)
            out_error("dovelane: no user for the replicator of %s: %s\n", c->replica[i].name,
                      error);
        for (size_t n = 0; n < c->nreplicas && known; n++) {
            struct endpoint_user at = user;
            if (site && strcmp(site, c->replica[n].name))
                continue;
            if (!endpoint_user_at(&at, c->replica[n].name))
                ctl_usage("%s: its user's name is too long", file);
            char *may =
                acl_replica_rights(c->replica[i].name, c->replica[i].id, c->replica[n].name);
            print_user(&at, may);
            explicit_bzero(&at, sizeof at);
            free(may);
            printed++;
        }
        explicit_bzero(&user, sizeof user);
        free(error);
        free(file);
    }
    return printed;
}

/* One user for all replicas is wanted where they have none of their own, or some still come as
 * him. */
static bool is_replaced(const struct config *c, const char *program, const char *file)
{
    return *c->replica_user_file && !strcmp(program, "dovelane-replicator") && access(file, F_OK);
}

const struct option acl_options[] = {
    {"help", no_argument, NULL, 'h'}, {"site", required_argument, NULL, 's'}, {0}};

void acl_command(struct ctl *ctl, int argc, char **argv)
{
    const char *site = NULL;
    struct endpoint_user user;
    size_t printed = 0;
    int o;
    while ((o = getopt_long(argc, argv, "h", acl_options, NULL)) != -1) {
        if (o == 's') {
            site = optarg;
            continue;
        }
        if (o != 'h')
            ctl_usage("see `dovelane acl --help`");
        puts(HELP);
        return;
    }
    if (optind != argc)
        ctl_usage("acl: %s is no option", argv[optind]);
    const char *template = ctl->config->node_user_file;
    if (!strstr(template, "%p"))
        ctl_usage("%s: node_user_file = \"%s\": write it with %%p, like "
                  "\"/etc/dovelane/%%p/user\": a file, and a user, for each program",
                  ctl->config_path, template);
    if (site && strcmp(site, "-") && config_replica_index(ctl->config, site) < 0)
        ctl_usage("acl --site %s: %s has no replica of that name", site, ctl->config_path);
    static const char *const lists[] = {"users", NULL};
    out_begin("acl/1", lists);
    print_line("default", "user default off resetchannels -@all");
    for (size_t i = 0; i < PROGRAMS; i++) {
        char *file = endpoint_file_of(template, rights[i].program), *error = NULL;
        if (is_replaced(ctl->config, rights[i].program, file)) {
            free(file);
            continue;
        }
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
    printed += print_replicas(ctl->config, site);
    ctl_status(ctl, printed ? STATUS_DONE : STATUS_FAILED);
}
