/* dovelane - the admin's command. */
#include "ctl/ctl.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/program_name.h"
#include "lib/base/mem.h"
#include "ctl/out.h"
#include "ctl/provision.h"

static const struct command {
    const char *name, *arguments, *help;
    command_fn *run;
    const char *unconfigured; /* an option with which it needs no configuration, as with --help */
} commands[] = {
    {NULL, NULL, "Looking", NULL},
    {"mailq", "[-j] [which mails]",
     "what waits in the lanes, as postqueue -p prints it (-j: as postqueue -j)", mailq_command},
    {"show", "ID... | which mails",
     "all that is known of a mail, with the last error of each recipient", show_command},
    {"cat", "ID | which mails", "the message itself", cat_command},
    {"trace", "[-f FILE]... ID",
     "the whole story of a mail, from logs and lanes: each host, each attempt, which mailbox",
     trace_command},
    {"qshape", "[-s] [which mails]", "recipients by domain and age", qshape_command},
    {NULL, NULL, "Doing something about mails (--dry-run says only which)", NULL},
    {"hold", "which mails | --add which mails",
     "not delivered until it is released; --add: mail that comes in, too", hold_command},
    {"release", "which mails", "held mail is delivered again", release_command},
    {"flush", "[which mails]", "deferred mail is tried now", flush_command},
    {"requeue", "which mails", "out of its lane, into Postfix's own queue", requeue_command},
    {"delete", "which mails", "removed, and nobody is told", delete_command},
    {NULL, NULL, "Switching", NULL},
    {"divert", "on|off|status",
     "whether the milters divert at all; every one obeys within a second", divert_command},
    {"drain", "--to-postfix", "diverting off, and all that lies in lanes into Postfix's own queue",
     drain_command},
    {NULL, NULL, "Is all well?", NULL},
    {"check", "[-v] [config] [nodes] [postfix] [dovecot] [host]",
     "names every trap with the setting that mends it; status for monitoring", check_command,
     "--list"},
    {"nodes", "[-v | --forget NODE | --join NODE]",
     "who is alive, who holds all it promised, who took over whom", nodes_command},
    {"acl", "", "the users of a node's Redis, with the rights that each program needs",
     acl_command},
    {"route", "[--sender S] ADDRESS",
     "what would become of a mail to it: next hop, diverted or not, and why", route_command},
    {"capacity", "[--seconds N]", "how long memory lasts if every next hop stopped now",
     capacity_command},
    {NULL, NULL, "Setting hosts up", NULL},
    {"init", "--address A [--gateway] [--replicas] | --undo",
     "makes this host the first of a group; shows what it changes, and asks", provision_command},
    {"join", "A:PORT --token T", "lets this host into a group", provision_command},
    {"invite", "[--replace HOST]",
     "a token for one more host, or for one in the place of a lost one", provision_command},
    {"group", "[divert | replicate | remove]",
     "who is in the group; what is diverted, and whether mailboxes are replicated",
     provision_command},
    {"cert", "[renew]", "certificates, and until when they are good", provision_command},
    {"enroll", "", "the listener of an open invitation (its unit runs it)", provision_command},
};
#define NCOMMANDS (sizeof commands / sizeof *commands)

static void help(void (*print)(const char *format, ...))
{
    print("usage: dovelane [-c dovelane.conf] [-j] COMMAND [options]    `dovelane COMMAND --help` "
          "says more\n");
    for (size_t i = 0; i < NCOMMANDS; i++) {
        char usage[80];
        if (!commands[i].name) {
            print("\n%s\n", commands[i].help);
            continue;
        }
        snprintf(usage, sizeof usage, "%s %s", commands[i].name, commands[i].arguments);
        print("  %-44s %s\n", usage, commands[i].help);
    }
    print("\nIt asks every node of the file (default /etc/dovelane/dovelane.conf). -j with any "
          "command: "
          "JSON (docs/json.md). Exit status: 0\ndone; 1 done, but look at what it says; 2 not "
          "done.\n");
}

/* ---- main ---- */

static void perform(struct ctl *ctl, const struct command *command, int nargs, char **args,
                    bool configured)
{
    char *error = NULL;
    if (configured) {
        ctl->config = config_read(ctl->config_path, &error);
        if (!ctl->config && access(ctl->config_path, F_OK) < 0)
            ctl_usage("%s: this host is not set up yet: dovelane init or dovelane join (man "
                      "dovelane-init), or write that file (admin guide)",
                      error);
        if (!ctl->config)
            ctl_usage("%s", error);
        ctl->nconns = ctl->config->nnodes;
        ctl->conn = mem_zero(ctl->nconns * sizeof *ctl->conn);
    }
    optind = 0; /* getopt begins anew with the command's own */
    command->run(ctl, nargs, args);
    for (size_t i = 0; i < ctl->nconns; i++)
        conn_close(&ctl->conn[i]);
    free(ctl->conn);
    config_free(ctl->config);
}

/* Every command takes it, so it is taken here, wherever it is: before a command's own options are
 * read, so that what is wrong with those is JSON, too. */
static bool is_json(const char *word)
{
    return !strcmp(word, "-j") || !strcmp(word, "--json");
}

static bool has_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (is_json(argv[i]))
            return true;
    return false;
}

/* Behind the command: what stands before it getopt has read. */
static int without_json(int argc, char **argv)
{
    int kept = optind;
    bool options = true;
    for (int i = optind; i < argc; i++) {
        options &= strcmp(argv[i], "--") != 0;
        if (!options || !is_json(argv[i]))
            argv[kept++] = argv[i];
    }
    argv[kept] = NULL;
    return kept;
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < NCOMMANDS; i++)
        if (commands[i].name && !strcmp(commands[i].name, name))
            return &commands[i];
    ctl_usage("there is no command %s; `dovelane -h` lists them", name);
}

static int print_version(void)
{
    puts("dovelane " DOVELANE_VERSION);
    return STATUS_DONE;
}

/* args[0]: the command's name. */
static int run_command(struct ctl *ctl, int nargs, char **args)
{
    char *for_help[] = {args[0], "--help", NULL};
    const struct command *command = find_command(args[0]);
    bool has_own = command->run == provision_command, asks = has_own;
    for (int i = 1; i < nargs && strcmp(args[i], "--"); i++) {
        if (!strcmp(args[i], "--version") || !strcmp(args[i], "-V"))
            return print_version();
        if (!strcmp(args[i], "--help") || !strcmp(args[i], "-h")) {
            /* Whatever else is asked: help needs neither a configuration nor the other words. */
            out_choose_json(false);
            args = has_own ? args : for_help;
            nargs = has_own ? nargs : 2;
            asks = true;
        } else if (command->unconfigured && !strcmp(args[i], command->unconfigured)) {
            asks = true;
        }
    }
    perform(ctl, command, nargs, args, !asks);
    out_end();
    return fflush(stdout) ? STATUS_FAILED : ctl->status;
}

static int print_help(void)
{
    out_choose_json(false);
    help(out);
    return STATUS_DONE;
}

int main(int argc, char **argv)
{
    program_name_set("dovelane");
    struct ctl ctl = {.config_path = "/etc/dovelane/dovelane.conf"};
    static const struct option options[] = {{"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},
                                            {"json", no_argument, NULL, 'j'},
                                            {0}};
    int o;
    out_choose_json(has_json(argc, argv));
    opterr = !out_is_json();
    while ((o = getopt_long(argc, argv, "+c:jhV", options, NULL)) != -1) {
        switch (o) {
        case 'c': ctl.config_path = optarg; break;
        case 'j': break;
        case 'h': return print_help();
        case 'V': return print_version();
        default: ctl_usage("`dovelane --help` lists options and commands");
        }
    }
    argc = without_json(argc, argv);
    if (optind == argc && out_is_json())
        ctl_usage("which command? `dovelane --help` lists them");
    if (optind == argc) {
        help(out_error);
        return STATUS_FAILED;
    }
    char **args = argv + optind;
    if (!strcmp(args[0], "help") && !args[1])
        return print_help();
    char *of_command[] = {args[1], "--help", NULL};
    if (!strcmp(args[0], "help")) /* `dovelane help COMMAND` */
        return run_command(&ctl, 2, of_command);
    return run_command(&ctl, argc - optind, args);
}
