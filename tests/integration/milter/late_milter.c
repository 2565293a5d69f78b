/* late-milter - a milter on libmilter that discards every mail, some of them after a while. For
 * test_milter_late.py.
 *
 *   late-milter SOCKET JOURNAL replies|silent
 *
 * A mail with the header field X-Late waits for so many seconds at its end. replies: each step
 * is answered; silent: only the end of a message is. A line of the journal for each mail, when
 * it waits ("waits ID") and when its answer is given to libmilter ("discards ID"); ID is the
 * value of X-Oracle-Id. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libmilter/mfapi.h>

#define NO_REPLIES                                                                   \
    (SMFIP_NR_CONN | SMFIP_NR_HELO | SMFIP_NR_MAIL | SMFIP_NR_RCPT | SMFIP_NR_DATA | \
     SMFIP_NR_UNKN | SMFIP_NR_HDR | SMFIP_NR_EOH | SMFIP_NR_BODY)

struct mail {
    char id[80];
    unsigned late; /* seconds */
};

static int journal;
static sfsistat go_on = SMFIS_CONTINUE;

/* One write(2) a line: the sessions are threads. */
static void note(const char *what, const char *id)
{
    char line[120];
    int n = snprintf(line, sizeof line, "%s %s\n", what, id);
    if (write(journal, line, (size_t)n) != n)
        abort();
}

static sfsistat on_negotiate(SMFICTX *ctx, unsigned long actions, unsigned long steps,
                             unsigned long f2, unsigned long f3, unsigned long *actions_r,
                             unsigned long *steps_r, unsigned long *f2_r, unsigned long *f3_r)
{
    *actions_r = 0;
    *steps_r = go_on == SMFIS_NOREPLY ? steps & NO_REPLIES : 0;
    *f2_r = *f3_r = 0;
    return SMFIS_CONTINUE;
}

static sfsistat on_connect(SMFICTX *ctx, char *name, _SOCK_ADDR *address)
{
    smfi_setpriv(ctx, calloc(1, sizeof(struct mail)));
    return go_on;
}

static sfsistat on_text(SMFICTX *ctx, char *text)
{
    return go_on;
}

static sfsistat on_address(SMFICTX *ctx, char **argv)
{
    return go_on;
}

static sfsistat on_header(SMFICTX *ctx, char *name, char *value)
{
    struct mail *m = smfi_getpriv(ctx);
    if (!strcasecmp(name, "X-Late"))
        m->late = (unsigned)atoi(value);
    if (!strcasecmp(name, "X-Oracle-Id"))
        snprintf(m->id, sizeof m->id, "%s", value);
    return go_on;
}

static sfsistat on_eoh(SMFICTX *ctx)
{
    return go_on;
}

static sfsistat on_body(SMFICTX *ctx, unsigned char *data, size_t len)
{
    return go_on;
}

static sfsistat on_eom(SMFICTX *ctx)
{
    struct mail *m = smfi_getpriv(ctx);
    if (m->late) {
        note("waits", m->id);
        sleep(m->late);
    }
    note("discards", m->id);
    *m = (struct mail){0};
    return SMFIS_DISCARD;
}

static sfsistat on_abort(SMFICTX *ctx)
{
    struct mail *m = smfi_getpriv(ctx);
    if (m)
        *m = (struct mail){0};
    return SMFIS_CONTINUE;
}

static sfsistat on_close(SMFICTX *ctx)
{
    free(smfi_getpriv(ctx));
    smfi_setpriv(ctx, NULL);
    return SMFIS_CONTINUE;
}

static struct smfiDesc description = {
    .xxfi_name = (char *)"late",
    .xxfi_version = SMFI_VERSION,
    .xxfi_connect = on_connect,
    .xxfi_helo = on_text,
    .xxfi_envfrom = on_address,
    .xxfi_envrcpt = on_address,
    .xxfi_header = on_header,
    .xxfi_eoh = on_eoh,
    .xxfi_body = on_body,
    .xxfi_eom = on_eom,
    .xxfi_abort = on_abort,
    .xxfi_close = on_close,
    .xxfi_negotiate = on_negotiate,
};

int main(int argc, char **argv)
{
    char address[200];
    if (argc != 4) {
        fprintf(stderr, "usage: late-milter SOCKET JOURNAL replies|silent\n");
        return 2;
    }
    if (!strcmp(argv[3], "silent"))
        go_on = SMFIS_NOREPLY;
    journal = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    unlink(argv[1]);
    umask(0);
    snprintf(address, sizeof address, "unix:%s", argv[1]);
    if (journal < 0 || smfi_register(description) != MI_SUCCESS ||
        smfi_setconn(address) != MI_SUCCESS) {
        fprintf(stderr, "late-milter: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    return smfi_main() == MI_SUCCESS ? 0 : 1;
}
