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
    {"check", "[-v] [config] [nodes] [postfix] [dovecot] [host] [replicas]",
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
    print("usage: dovelane [-c dovelane.conf] COMMAND [options]    `dovelane COMMAND --help` says "
          "more\n");
    for (size_t i = 0; i < NCOMMANDS; i++) {
        char usage[80];
        if (!commands[i].name) {
            print("\n%s\n", commands[i].help);
            continue;
        }
        snprintf(usage, sizeof usage, "%s %s", commands[i].name, commands[i].arguments);
        print("  %-44s %s\n", usage, commands[i].help);
    }
    print("\nIt asks every node of the file (default /etc/dovelane/dovelane.conf). Exit status: 0 "
          "done; 1 done, but look at what it says; 2 not done.\n");
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

int main(int argc, char **argv)
{
    program_name_set("dovelane");
    struct ctl ctl = {.config_path = "/etc/dovelane/dovelane.conf"};
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {0}};
    int o;
    while ((o = getopt_long(argc, argv, "+c:hV", options, NULL)) != -1) {
        switch (o) {
        case 'c': ctl.config_path = optarg; break;
        case 'h': help(out); return 0;
        case 'V': puts("dovelane " DOVELANE_VERSION); return 0;
        default:
            fputs("dovelane: `dovelane --help` lists options and commands\n", stderr);
            return STATUS_FAILED;
        }
    }
    char *of_command[] = {NULL, "--help", NULL};
    if (optind < argc && !strcmp(argv[optind], "help")) {
        if (optind + 1 == argc) {
            help(out);
            return 0;
        }
        of_command[0] = argv[optind + 1]; /* `dovelane help COMMAND` */
        argv = of_command;
        argc = 2;
        optind = 0;
    }
    if (optind == argc) {
        help(out_error);
        return STATUS_FAILED;
    }
    const struct command *command = NULL;
    for (size_t i = 0; i < NCOMMANDS; i++)
        if (commands[i].name && !strcmp(commands[i].name, argv[optind]))
            command = &commands[i];
    if (!command)
        ctl_usage("there is no command %s; `dovelane -h` lists them", argv[optind]);
    int nargs = argc - optind;
    char **args = argv + optind;
    bool has_own = command->run == provision_command, asks = has_own;
    for (int i = 1; i < nargs && strcmp(args[i], "--"); i++) {
        if (!strcmp(args[i], "--version") || !strcmp(args[i], "-V")) {
            puts("dovelane " DOVELANE_VERSION);
            return 0;
        }
        if (!has_own && (!strcmp(args[i], "--help") || !strcmp(args[i], "-h"))) {
            /* Whatever else is asked: help needs neither a configuration nor the other words. */
            of_command[0] = args[0];
            of_command[1] = "--help";
            args = of_command;
            nargs = 2;
            asks = true;
        } else if (command->unconfigured && !strcmp(args[i], command->unconfigured)) {
            asks = true;
        }
    }
    perform(&ctl, command, nargs, args, !asks);
    return fflush(stdout) ? STATUS_FAILED : ctl.status;
}
