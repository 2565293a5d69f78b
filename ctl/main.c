/* dovelane - the admin's command. */
#include "ctl/ctl.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/program_name.h"
#include "lib/base/std_streams.h"
#include "lib/base/mem.h"
#include "ctl/commands.h"
#include "ctl/complete.h"
#include "ctl/out.h"

static void help(void (*print)(const char *format, ...))
{
    print("usage: dovelane [-c dovelane.conf] [-j] COMMAND [options]    `dovelane COMMAND --help` "
          "says more\n");
    for (size_t i = 0; i < commands_n; i++) {
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
    const struct command *command = commands_find(name);
    if (!command)
        ctl_usage("there is no command %s; `dovelane -h` lists them", name);
    return command;
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
    bool has_own = command->own_help, asks = has_own;
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
    return ctl->status;
}

static int print_help(void)
{
    out_choose_json(false);
    help(out);
    return STATUS_DONE;
}

static int run(int argc, char **argv)
{
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
    if (optind < argc && !strcmp(argv[optind], "complete"))
        return complete(&ctl, argc - optind - 1, argv + optind + 1);
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

/* Also for `exit` in a command. */
static void end_output(void)
{
    bool failed = ferror(stdout) != 0;
    errno = 0;
    if (!fflush(stdout) && !failed)
        return;
    if (errno != EPIPE)
        out_error("dovelane: the output cannot be written: %s\n",
                  errno ? strerror(errno) : "some of it is missing");
    _exit(STATUS_FAILED);
}

int main(int argc, char **argv)
{
    std_streams_keep();
    program_name_set("dovelane");
    atexit(end_output);
    return run(argc, argv);
}
