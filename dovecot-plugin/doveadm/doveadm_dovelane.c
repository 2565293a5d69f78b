/* doveadm_dovelane - lib10_doveadm_dovelane_plugin.so: "doveadm dovelane ...", answered by the
 * running replicator.
 *
 * Nothing is opened here, neither mailboxes nor state: the replicator has them locked and knows
 * more. So these are plain commands, not mail commands, which would become the user first and
 * then not be let near the socket. Those before the first start are another matter: preflight,
 * survey.c, compare.c. */
#include "dovecot-plugin/compat.h"

#include "dovecot-plugin/doveadm/commands.h"
#include "dovecot-plugin/protocol/admin_reply.h"

#include <array.h>
#include <doveadm.h>
#include <doveadm-mail.h>
#include <doveadm-print.h>
#include <istream.h>
#include <master-service.h>
#include <module-dir.h>
#include <net.h>
#include <str.h>
#include <strescape.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <write-full.h>

#define SOCKET_NAME "dovelane-admin"
#define LINE_MAX_SIZE (1024 * 1024)
#define ALL_USERS "*"

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char *doveadm_dovelane_plugin_version;
EXPORT void doveadm_dovelane_plugin_init(struct module *module);
EXPORT void doveadm_dovelane_plugin_deinit(void);

const char *doveadm_dovelane_plugin_version = DOVECOT_ABI_VERSION;

#define failed(code, ...)                  \
    do {                                   \
        i_error("dovelane: " __VA_ARGS__); \
        doveadm_exit_code = (code);        \
    } while (0)

/* --- request ---------------------------------------------------------------------------------- */

/* Options that take a value, handed on as they are written on the command line. */
static const char *const options[] = {"remove", "mailbox", "since", "until", "into", NULL};
/* Options without one. */
static const char *const switches[] = {"duplicates", "status", "force", "dry-run", "again", NULL};

static void add_arg(string_t *line, const char *arg)
{
    str_append_c(line, '\t');
    str_append_tabescaped(line, arg);
}

static void add_args(string_t *line, const struct doveadm_cmd_context *cctx)
{
    const char *value, *const *words;
    bool set;

    for (const char *const *name = options; *name != NULL; name++) {
        if (doveadm_cmd_param_str(cctx, *name, &value)) {
            add_arg(line, t_strconcat("--", *name, NULL));
            add_arg(line, value);
        }
    }
    for (const char *const *name = switches; *name != NULL; name++) {
        if (doveadm_cmd_param_bool(cctx, *name, &set) && set)
            add_arg(line, t_strconcat("--", *name, NULL));
    }
    if (doveadm_cmd_param_array(cctx, "args", &words)) {
        for (; *words != NULL; words++)
            add_arg(line, *words);
    }
}

static const char *request_line(const struct doveadm_cmd_context *cctx)
{
    string_t *line = t_str_new(128);
    const char *user = "";
    bool all = FALSE;

    (void)doveadm_cmd_param_str(cctx, "user", &user);
    if (doveadm_cmd_param_bool(cctx, "all-users", &all) && all)
        user = ALL_USERS;
    str_append(line, strrchr(cctx->cmd->name, ' ') + 1);
    add_arg(line, user);
    add_args(line, cctx);
    str_append_c(line, '\n');
    return str_c(line);
}

/* --- reply ------------------------------------------------------------------------------------ */

/* Titles, or as many nameless columns as the first row has. Returns the number of columns. */
static size_t print_titles(const char *rest, bool named)
{
    char *left = t_strdup_noconst(rest), *field;
    size_t n = 0;

    while ((field = admin_reply_field(&left)) != NULL) {
        n++;
        if (named)
            doveadm_print_header(field, field, 0);
        else
            doveadm_print_header(t_strdup_printf("column%u", (unsigned int)n), "",
                                 DOVEADM_PRINT_HEADER_FLAG_HIDE_TITLE);
    }
    return n;
}

/* A row has as many fields as there are columns, else all later rows would be askew; what is too
 * much goes into the last. */
static void print_row(const char *rest, size_t columns)
{
    char *left = t_strdup_noconst(rest), *field;
    string_t *last = t_str_new(64);

    for (size_t i = 0; i + 1 < columns; i++) {
        field = admin_reply_field(&left);
        doveadm_print(field == NULL ? "" : field);
    }
    while ((field = admin_reply_field(&left)) != NULL) {
        if (str_len(last) > 0)
            str_append_c(last, ' ');
        str_append(last, field);
    }
    doveadm_print(str_c(last));
}

/* Prints until the last line. False when the replicator went away before. */
static bool print_reply(struct istream *input)
{
    const char *line, *rest;
    size_t columns = 0;
    int code;

    while ((line = i_stream_read_next_line(input)) != NULL) {
        switch (admin_reply_parse(line, &rest, &code)) {
        case ADMIN_REPLY_TITLES:
            if (columns == 0)
                columns = print_titles(rest, TRUE);
            break;
        case ADMIN_REPLY_ROW:
            if (columns == 0)
                columns = print_titles(rest, FALSE);
            T_BEGIN
            {
                print_row(rest, columns);
            }
            T_END;
            break;
        case ADMIN_REPLY_ERROR: {
            char *left = t_strdup_noconst(rest);

            failed(EX_TEMPFAIL, "%s", admin_reply_field(&left));
            break;
        }
        case ADMIN_REPLY_END: doveadm_exit_code = code; return TRUE;
        case ADMIN_REPLY_BROKEN:
            failed(EX_PROTOCOL, "the replicator sent what is no reply: %s", line);
            return TRUE;
        }
    }
    return FALSE;
}

static void ask(const char *path, const char *line)
{
    struct istream *input;
    int fd = net_connect_unix(path);

    if (fd == -1) {
        if (errno == EACCES)
            failed(EX_NOPERM,
                   "cannot connect to %s: %m; only root may, or whom unix_listener dovelane-admin "
                   "names",
                   path);
        else
            failed(EX_TEMPFAIL,
                   "cannot connect to %s: %m; is dovelane-replicator running? It is a Dovecot "
                   "service: "
                   "service dovelane-replicator in dovecot.conf, then doveadm reload",
                   path);
        return;
    }
    net_set_nonblock(fd, FALSE);
    if (write_full(fd, line, strlen(line)) < 0) {
        failed(EX_TEMPFAIL, "write(%s): %m", path);
        i_close_fd(&fd);
        return;
    }
    input = i_stream_create_fd_autoclose(&fd, LINE_MAX_SIZE);
    if (!print_reply(input))
        failed(EX_TEMPFAIL,
               "%s: the replicator went away before its answer was complete%s%s; Dovecot's log "
               "says why, "
               "also when it cannot start (doveadm log find)",
               path, input->stream_errno == 0 ? "" : ": ",
               input->stream_errno == 0 ? "" : i_stream_get_error(input));
    i_stream_unref(&input);
}

static void run(struct doveadm_cmd_context *cctx)
{
    const char *path = t_strconcat(doveadm_settings->base_dir, "/" SOCKET_NAME, NULL);

    doveadm_print_init(DOVEADM_PRINT_TYPE_TABLE);
    ask(path, request_line(cctx));
}

/* --- preflight -------------------------------------------------------------------------------- */

/* Another program's work: it says what is wrong also where the replicator does not start. With an
 * environment of its own: doveadm's holds the settings of its file, and no PATH. */
static void preflight(struct doveadm_cmd_context *cctx)
{
    static const char *const env[] = {
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    const char *config = COMMANDS_CONFIG;
    bool all = FALSE;
    (void)doveadm_cmd_param_str(cctx, "config", &config);
    (void)doveadm_cmd_param_bool(cctx, "verbose", &all);
    const char *const argv[] = {"dovelane",
                                "-c",
                                config,
                                "check",
                                "--dovecot-config",
                                master_service_get_config_path(master_service),
                                "replicas",
                                all ? "-v" : NULL,
                                NULL};
    pid_t child;
    int status;
    errno =
        posix_spawn(&child, DOVELANE_PROGRAM, NULL, NULL, (char *const *)argv, (char *const *)env);
    if (errno != 0)
        failed(EX_UNAVAILABLE, "%s cannot be run: %m; is it installed?", DOVELANE_PROGRAM);
    else if (waitpid(child, &status, 0) < 0 || !WIFEXITED(status))
        failed(EX_TEMPFAIL, "%s did not end by itself", DOVELANE_PROGRAM);
    else
        doveadm_exit_code = WEXITSTATUS(status) == 0 ? 0 : 1;
}

/* --- commands --------------------------------------------------------------------------------- */

#define USER_PARAMS                                  \
    DOVEADM_CMD_PARAM('u', "user", CMD_PARAM_STR, 0) \
    DOVEADM_CMD_PARAM('A', "all-users", CMD_PARAM_BOOL, 0)
#define KEPT_PARAMS                                      \
    DOVEADM_CMD_PARAM('\0', "mailbox", CMD_PARAM_STR, 0) \
    DOVEADM_CMD_PARAM('\0', "since", CMD_PARAM_STR, 0)   \
    DOVEADM_CMD_PARAM('\0', "until", CMD_PARAM_STR, 0)
#define ARGS_PARAM DOVEADM_CMD_PARAM('\0', "args", CMD_PARAM_ARRAY, CMD_PARAM_FLAG_POSITIONAL)

/* clang-format off: Dovecot's macros hold the braces */
static struct doveadm_cmd_ver2 commands[] = {
    {.name = "dovelane status",
     .usage = "[-u <user> | -A]",
     .cmd = run,
     DOVEADM_CMD_PARAMS_START USER_PARAMS DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane lag",
     .usage = "[-u <user> | -A]",
     .cmd = run,
     DOVEADM_CMD_PARAMS_START USER_PARAMS DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane verify",
     .usage = "-u <user> | -A [bodies | --duplicates]",
     .cmd = run,
     DOVEADM_CMD_PARAMS_START USER_PARAMS DOVEADM_CMD_PARAM('\0', "duplicates", CMD_PARAM_BOOL, 0)
         ARGS_PARAM DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane resync",
     .usage = "-u <user> | -A [<site>]",
     .cmd = run,
     DOVEADM_CMD_PARAMS_START USER_PARAMS ARGS_PARAM DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane accept",
     .usage = "-u <user> | -A [<folder> ...]",
     .cmd = run,
     DOVEADM_CMD_PARAMS_START USER_PARAMS ARGS_PARAM DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane restore",
     .usage = "-u <user> | -A [<folder> ...]",
     .cmd = run,
     DOVEADM_CMD_PARAMS_START USER_PARAMS ARGS_PARAM DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane kept",
     .usage = "-u <user> | -A [--mailbox <folder>] [--since <time>] [--until <time>] [<id> ...]",
     .cmd = run,
     DOVEADM_CMD_PARAMS_START USER_PARAMS KEPT_PARAMS ARGS_PARAM DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane unexpunge",
     .usage = "-u <user> | -A [--mailbox <folder>] [--since <time>] [--until <time>] "
              "[--into <folder>] [--dry-run] [--again] [<id> ...]",
     .cmd = run,
     DOVEADM_CMD_PARAMS_START USER_PARAMS KEPT_PARAMS DOVEADM_CMD_PARAM(
         '\0', "into", CMD_PARAM_STR, 0) DOVEADM_CMD_PARAM('\0', "dry-run", CMD_PARAM_BOOL, 0)
         DOVEADM_CMD_PARAM('\0', "again", CMD_PARAM_BOOL, 0) ARGS_PARAM DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane new-epoch",
     .usage = "-u <user> | -A",
     .cmd = run,
     DOVEADM_CMD_PARAMS_START USER_PARAMS DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane peers",
     .usage = "[--remove <site id>]",
     .cmd = run,
     DOVEADM_CMD_PARAMS_START DOVEADM_CMD_PARAM('\0', "remove", CMD_PARAM_STR, 0)
         DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane preflight",
     .usage = "[-C <dovelane.conf>] [-v]",
     .cmd = preflight,
     DOVEADM_CMD_PARAMS_START DOVEADM_CMD_PARAM('C', "config", CMD_PARAM_STR, 0)
         DOVEADM_CMD_PARAM('v', "verbose", CMD_PARAM_BOOL, 0) DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane survey",
     .usage = DOVEADM_CMD_MAIL_USAGE_PREFIX "[-C <dovelane.conf>]",
     .mail_cmd = survey_alloc,
     DOVEADM_CMD_PARAMS_START DOVEADM_CMD_MAIL_COMMON DOVEADM_CMD_PARAM(
         'C', "config", CMD_PARAM_STR, 0) DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane compare",
     .usage = "[-u <user>] <survey of the first site> <survey of the second>",
     .cmd = compare_run,
     DOVEADM_CMD_PARAMS_START DOVEADM_CMD_PARAM('u', "user", CMD_PARAM_STR, 0)
         ARGS_PARAM DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane forget",
     .usage = "[-u <user> [--force]]",
     .cmd = run,
     DOVEADM_CMD_PARAMS_START DOVEADM_CMD_PARAM('u', "user", CMD_PARAM_STR, 0)
         DOVEADM_CMD_PARAM('\0', "force", CMD_PARAM_BOOL, 0) DOVEADM_CMD_PARAMS_END},
    {.name = "dovelane join",
     .usage = "-u <user> | -A | --status [-u <user> | -A]",
     .cmd = run,
     DOVEADM_CMD_PARAMS_START USER_PARAMS DOVEADM_CMD_PARAM('\0', "status", CMD_PARAM_BOOL, 0)
         DOVEADM_CMD_PARAMS_END},
};
/* clang-format on */

void doveadm_dovelane_plugin_init(struct module *module)
{
    for (unsigned int i = 0; i < N_ELEMENTS(commands); i++)
        doveadm_cmd_register_ver2(&commands[i]);
}

void doveadm_dovelane_plugin_deinit(void)
{
}
