/* discard_libmilter - the floor under dovelane-milter with `milter_engine = libmilter`: takes in
 * all of a mail as that does, stores nothing, and has Postfix discard it.
 *
 *   discard_libmilter SOCKET
 *
 * What libmilter costs by itself: callbacks that do nothing, with the steps that
 * engine_libmilter.c agrees to. Only the end of the header and the end of the message are
 * answered. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libmilter/mfapi.h>

#define STEPS                                                                              \
    (SMFIP_NR_HDR | SMFIP_NR_CONN | SMFIP_NR_HELO | SMFIP_NR_MAIL | SMFIP_NR_RCPT |        \
     SMFIP_NR_DATA | SMFIP_NR_UNKN | SMFIP_NR_BODY | SMFIP_HDR_LEADSPC | SMFIP_NOUNKNOWN | \
     SMFIP_NODATA)

static sfsistat on_negotiate(SMFICTX *ctx, unsigned long actions, unsigned long steps,
                             unsigned long f2, unsigned long f3, unsigned long *actions_r,
                             unsigned long *steps_r, unsigned long *f2_r, unsigned long *f3_r)
{
    *actions_r = 0;
    *steps_r = steps & STEPS;
    *f2_r = *f3_r = 0;
    return SMFIS_CONTINUE;
}

static sfsistat on_connect(SMFICTX *ctx, char *name, _SOCK_ADDR *address)
{
    return SMFIS_NOREPLY;
}

static sfsistat on_helo(SMFICTX *ctx, char *name)
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

static sfsistat on_eoh(SMFICTX *ctx)
{
    return SMFIS_CONTINUE;
}

static sfsistat on_body(SMFICTX *ctx, unsigned char *data, size_t len)
{
    return SMFIS_NOREPLY;
}

static sfsistat on_eom(SMFICTX *ctx)
{
    return SMFIS_DISCARD;
}

static struct smfiDesc description = {
    .xxfi_name = (char *)"discard_libmilter",
    .xxfi_version = SMFI_VERSION,
    .xxfi_connect = on_connect,
    .xxfi_helo = on_helo,
    .xxfi_envfrom = on_address,
    .xxfi_envrcpt = on_address,
    .xxfi_header = on_header,
    .xxfi_eoh = on_eoh,
    .xxfi_body = on_body,
    .xxfi_eom = on_eom,
    .xxfi_negotiate = on_negotiate,
};

int main(int argc, char **argv)
{
    char address[200];
    if (argc != 2 || argv[1][0] != '/') {
        fprintf(stderr, "usage: discard_libmilter /path/of/socket\n");
        return 2;
    }
    snprintf(address, sizeof address, "unix:%s", argv[1]);
    unlink(argv[1]);
    umask(0);
    if (smfi_register(description) != MI_SUCCESS || smfi_setconn(address) != MI_SUCCESS)
        return 1;
    return smfi_main() == MI_SUCCESS ? 0 : 1;
}
