/* ctl - connects to the nodes, tells of wrong usage, and makes the command's exit status. */
#include "ctl/ctl.h"

#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/redis/endpoint.h"
#include "ctl/escape.h"
#include "ctl/out.h"

void ctl_status(struct ctl *ctl, int status)
{
    if (status > ctl->status)
        ctl->status = status;
}

void ctl_usage(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    out_fatal_list(format, ap);
    va_end(ap);
    exit(STATUS_FAILED);
}

/* without: NULL, or whom ctl_connect_without names. */
static void connect_all(struct ctl *ctl, const char *without)
{
    size_t up = 0;
    for (size_t i = 0; i < ctl->nconns; i++) {
        struct conn *c = &ctl->conn[i];
        if (conn_up(c) || conn_open(c, ctl->config, i)) {
            up++;
            continue;
        }
        if (without && (!strcmp(c->name, without) || config_list_has(&ctl->config->dead, c->name)))
            continue;
        out_error("dovelane: node %s (%s) does not answer: %s\n", c->name, c->address, c->trouble);
        ctl_status(ctl, STATUS_LOOK);
    }
    if (!ctl->nconns)
        ctl_usage("%s has no node", ctl->config_path);
    if (!up)
        ctl_usage("no node answers");
}

void ctl_connect(struct ctl *ctl)
{
    connect_all(ctl, NULL);
}

void ctl_connect_without(struct ctl *ctl, const char *node)
{
    connect_all(ctl, node);
}

const char *ctl_s(unsigned long long n)
{
    return n == 1 ? "" : "s";
}

/* ---- who ---- */

static void user_name(unsigned uid, char *out, size_t size)
{
    const struct passwd *p = getpwuid(uid);
    if (p)
        snprintf(out, size, "%s", p->pw_name);
    else
        snprintf(out, size, "uid %u", uid);
}

char *ctl_caller(void)
{
    char name[64], login[64] = "";
    unsigned uid = (unsigned)-1;
    FILE *f = fopen("/proc/self/loginuid", "r");
    if (f) {
        if (fscanf(f, "%u", &uid) == 1 && uid != (unsigned)-1)
            user_name(uid, login, sizeof login);
        fclose(f);
    }
    user_name(getuid(), name, sizeof name);
    return mem_printf("%s (uid %u%s%s)", name, (unsigned)getuid(), *login ? ", login " : "", login);
}

/* Where the log is stderr, and that is JSON. */
static void say_log(enum log_level level, const char *line)
{
    (void)level;
    out_log(line);
}

void ctl_log(struct ctl *ctl, const char *format, ...)
{
    char text[1500];
    struct buf shown = {0}; /* it may be the terminal */
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    escape_for_terminal(&shown, text, strlen(text), "");
    /* What goes to stderr with -j is an object already. */
    log_as_json(ctl->config->log_format == LOG_FORMAT_JSON &&
                !(out_is_json() && !strcmp(ctl->config->log, "stderr")));
    char *where = endpoint_file_of(ctl->config->log, "dovelane");
    if (log_open("dovelane", where, LOG_LEVEL_INFO) < 0)
        out_error("dovelane: log = %s cannot be opened\n", where);
    free(where);
    if (out_is_json())
        log_stderr_to(say_log);
    log_info("%s", shown.data ? shown.data : "");
    buf_free(&shown);
}
