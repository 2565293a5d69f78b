/* discard_milter - the floor under every number of dovelane-milter: takes in all of a mail as that does, stores nothing, and
 * has Postfix discard it.
 *
 *   discard_milter <socket>
 *
 * What Postfix, libmilter and the UNIX socket cost between them is what this costs. It asks for the same steps and
 * agrees to answer none of them before the end of the message. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <libmilter/mfapi.h>

static const unsigned long no_reply = SMFIP_NR_CONN | SMFIP_NR_HELO | SMFIP_NR_MAIL | SMFIP_NR_RCPT | SMFIP_NR_DATA |
                                      SMFIP_NR_UNKN | SMFIP_NR_HDR | SMFIP_NR_EOH | SMFIP_NR_BODY;

static sfsistat on_negotiate(SMFICTX *ctx, unsigned long actions, unsigned long steps, unsigned long f2, unsigned long f3,
                             unsigned long *my_actions, unsigned long *my_steps, unsigned long *my_f2, unsigned long *my_f3)
{
    *my_actions = 0;
    *my_steps = steps & (no_reply | SMFIP_HDR_LEADSPC);
    *my_f2 = *my_f3 = 0;
    return SMFIS_CONTINUE;
}

/* A step that is answered nothing must be answered so by its callback too. */
static sfsistat on_connect(SMFICTX *ctx, char *name, _SOCK_ADDR *address)
{
    return SMFIS_NOREPLY;
}

static sfsistat on_text(SMFICTX *ctx, char *text)
{
    return SMFIS_NOREPLY;
}

static sfsistat on_unknown(SMFICTX *ctx, const char *command)
{
    return SMFIS_NOREPLY;
}

static sfsistat on_address(SMFICTX *ctx, char **argv)
{
    return SMFIS_NOREPLY;
}

static sfsistat on_header(SMFICTX *ctx, char *name, char *value)
{
    return SMFIS_NOREPLY;
}

static sfsistat on_step(SMFICTX *ctx)
{
    return SMFIS_NOREPLY;
}

static sfsistat on_body(SMFICTX *ctx, unsigned char *data, size_t len)
{
    return SMFIS_NOREPLY;
}

static sfsistat on_end_of_message(SMFICTX *ctx)
{
    return SMFIS_DISCARD;
}

static struct smfiDesc description = {
    .xxfi_name = (char *)"discard",
    .xxfi_version = SMFI_VERSION,
    .xxfi_connect = on_connect,
    .xxfi_helo = on_text,
    .xxfi_envfrom = on_address,
    .xxfi_envrcpt = on_address,
    .xxfi_data = on_step,
    .xxfi_unknown = on_unknown,
    .xxfi_header = on_header,
    .xxfi_eoh = on_step,
    .xxfi_body = on_body,
    .xxfi_eom = on_end_of_message,
    .xxfi_negotiate = on_negotiate,
};

int main(int argc, char **argv)
{
    char address[200];
    if (argc != 2 || argv[1][0] != '/' || strlen(argv[1]) > 107) {
        fprintf(stderr, "usage: discard_milter /path/of/socket (at most 107 bytes)\n");
        return 2;
    }
    unlink(argv[1]); /* libmilter removes no stale socket when it runs as root */
    snprintf(address, sizeof address, "unix:%s", argv[1]);
    umask(0);
    smfi_setmaxdatasize(1024 * 1024 - 1);
    if (smfi_register(description) != MI_SUCCESS || smfi_setconn(address) != MI_SUCCESS ||
        smfi_opensocket(0) != MI_SUCCESS) {
        fprintf(stderr, "discard_milter: cannot listen on %s\n", argv[1]);
        return 1;
    }
    return smfi_main() == MI_SUCCESS ? 0 : 1;
}
