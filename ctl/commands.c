#include "ctl/commands.h"

#include <string.h>

#include "ctl/provision.h"

/* Of `init` and `join`: provision/main.py. A test compares. */
#define HOST_OPTIONS "--address --name --gateway --replicas --site --maxmemory --dry-run --yes"

#define HEADING(text)  \
    {                  \
        .help = (text) \
    }

const struct command commands[] = {
    HEADING("Looking"),
    {"mailq", "[which mails]",
     "what waits in the lanes, as postqueue -p prints it (-j: as postqueue -j)", mailq_command,
     .options = mailq_options},
    {"show", "ID... | which mails",
     "all that is known of a mail, with the last error of each recipient", show_command,
     .options = show_options},
    {"cat", "ID | which mails", "the message itself", cat_command, .options = show_options},
    {"trace", "[-f FILE]... ID",
     "the whole story of a mail, from logs and lanes: each host, each attempt, which mailbox",
     trace_command, .options = trace_options},
    {"qshape", "[-s] [which mails]", "recipients by domain and age", qshape_command,
     .options = qshape_options},
    {"top", "[--once] [--sort KEY]",
     "nodes, next hops, lanes and replicas, once a second; keys hold and flush", top_command,
     .options = top_options},
    HEADING("Doing something about mails (--dry-run says only which)"),
    {"hold", "which mails | --add which mails",
     "not delivered until it is released; --add: mail that comes in, too", hold_command,
     .options = change_options},
    {"release", "which mails", "held mail is delivered again", release_command,
     .options = change_options},
    {"flush", "[which mails]", "deferred mail is tried now", flush_command,
     .options = change_options},
    {"requeue", "which mails", "out of its lane, into Postfix's own queue", requeue_command,
     .options = change_options},
    {"delete", "which mails", "removed, without a bounce", delete_command,
     .options = change_options},
    HEADING("Switching"),
    {"divert", "on|off|status",
     "whether the milters divert at all; every one obeys within a second", divert_command,
     .words = "on off status"},
    {"shape", "[PATTERN WORD=VALUE... | --explain NEXTHOP]",
     "how much next hops get: rates, connections, suspended; every relay obeys within a second",
     shape_command, .options = shape_options},
    {"drain", "--to-postfix", "diverting off, and all that lies in lanes into Postfix's own queue",
     drain_command, .words = "--to-postfix"},
    HEADING("Is all well?"),
    {"check", "[-v] [config] [nodes] [postfix] [dovecot] [host] [replicas]",
     "names every trap with the setting that mends it; status for monitoring", check_command,
     .options = check_options, .words = "config host nodes redis postfix dovecot replicas",
     .unconfigured = "--list"},
    {"nodes", "[-v | --forget NODE | --join NODE]",
     "who is alive, who holds all it promised, who took over whom", nodes_command,
     .options = nodes_options},
    {"acl", "", "the users of a node's Redis, with the rights that each program needs", acl_command,
     .options = acl_options},
    {"route", "[--sender S] ADDRESS",
     "what would become of a mail to it: next hop, diverted or not, and why", route_command,
     .options = route_options},
    {"capacity", "[--seconds N]", "how long memory lasts if every next hop stopped now",
     capacity_command, .options = capacity_options},
    HEADING("Setting hosts up"),
    {"init", "--address A [--gateway] [--replicas] | --undo",
     "makes this host the first of a group; shows what it changes, and asks", provision_command,
     .words = HOST_OPTIONS " --undo --force --lose-mail", .own_help = true},
    {"join", "A:PORT --token T", "lets this host into a group", provision_command,
     .words = HOST_OPTIONS " --token", .own_help = true},
    {"invite", "[--replace HOST]",
     "a token for one more host, or for one in the place of a lost one", provision_command,
     .words = "--replace --minutes --port", .own_help = true},
    {"group", "[divert | replicate | role | remove]",
     "who is in the group; what is diverted, whether mailboxes are replicated, what sites store",
     provision_command, .words = "divert replicate role remove sync", .own_help = true},
    {"cert", "[renew]", "certificates, and until when they are good", provision_command,
     .words = "renew", .own_help = true},
    {"enroll", "", "the listener of an open invitation (its unit runs it)", provision_command,
     .own_help = true},
};
const size_t commands_n = sizeof commands / sizeof *commands;

const struct command *commands_find(const char *name)
{
    for (size_t i = 0; i < commands_n; i++)
        if (commands[i].name && !strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}
