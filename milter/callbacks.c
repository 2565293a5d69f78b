/* No-reply flags: Postfix waits for nothing but the answer at the end of the message (three fewer context switches a mail, and a third more mails a
 * second, measured). A callback that was agreed to give no reply cannot refuse anything either; everything is decided at the end. */
#include "callbacks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <grp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <libmilter/mfapi.h>

#include "log.h"
#include "metrics.h"
#include "session.h"

#define NO_REPLIES                                                                                                     \
    (SMFIP_NR_CONN | SMFIP_NR_HELO | SMFIP_NR_MAIL | SMFIP_NR_RCPT | SMFIP_NR_DATA | SMFIP_NR_UNKN | SMFIP_NR_HDR |    \
     SMFIP_NR_EOH | SMFIP_NR_BODY)

static void set(char **field, const char *value)
{
    free(*field);
    *field = value ? mem_strdup(value) : NULL;
}

static void set_macro(SMFICTX *ctx, char **field, const char *macro)
{
    set(field, smfi_getsymval(ctx, (char *)macro));
}

/* ---- session ---- */

static sfsistat on_negotiate(SMFICTX *ctx, unsigned long f0, unsigned long f1, unsigned long f2, unsigned long f3, unsigned long *pf0,
                             unsigned long *pf1, unsigned long *pf2, unsigned long *pf3)
{
    (void)f2, (void)f3;
    if (!(f0 & SMFIF_DELRCPT) || !(f1 & SMFIP_HDR_LEADSPC) || (f1 & NO_REPLIES) != NO_REPLIES) {
        log_error("the mail server does not offer what is needed (milter protocol 6, delrcpt, leading space, no replies): Postfix has it since 2.6");
        return SMFIS_REJECT;
    }
    *pf0 = SMFIF_DELRCPT | (f0 & SMFIF_SETSYMLIST);
    *pf1 = SMFIP_HDR_LEADSPC | NO_REPLIES;
    *pf2 = *pf3 = 0;
    if (f0 & SMFIF_SETSYMLIST) {
        smfi_setsymlist(ctx, SMFIM_CONNECT, (char *)"j {client_addr} {client_name} {client_port} {daemon_name}");
        smfi_setsymlist(ctx, SMFIM_HELO, (char *)"{tls_version} {cipher} {cipher_bits} {cert_subject} {cert_issuer}");
        smfi_setsymlist(ctx, SMFIM_ENVFROM, (char *)"{auth_type} {auth_authen} {auth_author} {mail_addr}");
        smfi_setsymlist(ctx, SMFIM_ENVRCPT, (char *)"{rcpt_mailer} {rcpt_host} {rcpt_addr}");
        smfi_setsymlist(ctx, SMFIM_EOM, (char *)"i");
    }
    return SMFIS_CONTINUE;
}

static void address_text(const _SOCK_ADDR *a, char **addr, char **port)
{
    char text[INET6_ADDRSTRLEN] = "";
    unsigned p = 0;
    if (a && a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        p = ntohs(in->sin_port);
    } else if (a && a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)a;
        inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
        p = ntohs(in6->sin6_port);
    }
    set(addr, text);
    free(*port);
    *port = p ? mem_printf("%u", p) : NULL;
}

static sfsistat on_connect(SMFICTX *ctx, char *name, _SOCK_ADDR *address)
{
    struct session *s = mem_zero(sizeof *s);
    metric_add(milter_sessions, 1);
    smfi_setpriv(ctx, s);
    const char *verified = smfi_getsymval(ctx, (char *)"{client_name}");
    set(&s->client_name, verified ? verified : name);
    address_text(address, &s->client_addr, &s->client_port);
    if (*milter.config->host_name)
        set(&s->host, milter.config->host_name);
    else
        set_macro(ctx, &s->host, "j");
    return SMFIS_NOREPLY;
}

static sfsistat on_helo(SMFICTX *ctx, char *helo)
{
    struct session *s = smfi_getpriv(ctx);
    if (!s)
        return SMFIS_NOREPLY;
    set(&s->helo, helo);
    set_macro(ctx, &s->tls_version, "{tls_version}");
    set_macro(ctx, &s->tls_cipher, "{cipher}");
    set_macro(ctx, &s->tls_bits, "{cipher_bits}");
    set_macro(ctx, &s->tls_subject, "{cert_subject}");
    set_macro(ctx, &s->tls_issuer, "{cert_issuer}");
    return SMFIS_NOREPLY;
}

static sfsistat on_close(SMFICTX *ctx)
{
    struct session *s = smfi_getpriv(ctx);
    if (!s) /* a port probe: connected and left without a word */
        return SMFIS_CONTINUE;
    smfi_setpriv(ctx, NULL);
    metric_add(milter_sessions, -1);
    mail_reset(&s->mail);
    char **text[] = {&s->client_name, &s->client_addr, &s->client_port, &s->helo,        &s->host,
                     &s->tls_version, &s->tls_cipher,  &s->tls_bits,    &s->tls_subject, &s->tls_issuer};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        free(*text[i]);
    free(s);
    return SMFIS_CONTINUE;
}

/* ---- mail ---- */

static void session_facts(const struct session *s, struct envelope *e)
{
    set(&e->host, s->host);
    set(&e->client_name, s->client_name);
    set(&e->client_addr, s->client_addr);
    set(&e->client_port, s->client_port);
    set(&e->helo, s->helo);
    set(&e->tls_version, s->tls_version);
    set(&e->tls_cipher, s->tls_cipher);
    set(&e->tls_bits, s->tls_bits);
    set(&e->tls_subject, s->tls_subject);
    set(&e->tls_issuer, s->tls_issuer);
}

/* RFC 3848's names. Postfix gives a milter no macro with ESMTP or SMTP in it; a client that greeted with HELO cannot have given arguments. */
static const char *protocol_name(const struct envelope *e)
{
    bool tls = e->tls_version && *e->tls_version, login = e->login && *e->login;
    static const char *const name[] = {"ESMTP", "ESMTPA", "ESMTPS", "ESMTPSA"};
    return name[2 * tls + login];
}

static sfsistat on_mail(SMFICTX *ctx, char **argv)
{
    struct session *s = smfi_getpriv(ctx);
    if (!s)
        return SMFIS_NOREPLY;
    struct mail *m = &s->mail;
    mail_reset(m);
    mail_set_sender(m, argv, smfi_getsymval(ctx, (char *)"{mail_addr}"));
    set_macro(ctx, &m->envelope.login, "{auth_authen}");
    set_macro(ctx, &m->envelope.login_method, "{auth_type}");
    set_macro(ctx, &m->envelope.login_sender, "{auth_author}");
    session_facts(s, &m->envelope);
    set(&m->envelope.protocol, protocol_name(&m->envelope));
    return SMFIS_NOREPLY;
}

static sfsistat on_rcpt(SMFICTX *ctx, char **argv)
{
    struct session *s = smfi_getpriv(ctx);
    if (!s)
        return SMFIS_NOREPLY;
    const char *mailer = smfi_getsymval(ctx, (char *)"{rcpt_mailer}"), *host = smfi_getsymval(ctx, (char *)"{rcpt_host}");
    char *destination = mem_printf("%s:%s", mailer ? mailer : "", host ? host : "");
    mail_add_recipient(&s->mail, argv, destination, smfi_getsymval(ctx, (char *)"{rcpt_addr}"));
    free(destination);
    return SMFIS_NOREPLY;
}

/* Nothing to do at these two; but without a callback libmilter itself would answer, after no reply was agreed, and log an error for each mail. */
static sfsistat on_data(SMFICTX *ctx)
{
    (void)ctx;
    return SMFIS_NOREPLY;
}

static sfsistat on_unknown(SMFICTX *ctx, const char *command)
{
    (void)ctx, (void)command;
    return SMFIS_NOREPLY;
}

static sfsistat on_header(SMFICTX *ctx, char *name, char *value)
{
    struct session *s = smfi_getpriv(ctx);
    if (s)
        mail_add_header(&s->mail, name, value);
    return SMFIS_NOREPLY;
}

static sfsistat on_end_of_header(SMFICTX *ctx)
{
    struct session *s = smfi_getpriv(ctx);
    if (s)
        mail_end_header(&s->mail);
    return SMFIS_NOREPLY;
}

static sfsistat on_body(SMFICTX *ctx, unsigned char *data, size_t n)
{
    struct session *s = smfi_getpriv(ctx);
    if (s)
        mail_add_body(&s->mail, data, n);
    return SMFIS_NOREPLY;
}

static bool delete_recipient(void *arg, const char *given)
{
    return smfi_delrcpt(arg, (char *)given) == MI_SUCCESS;
}

static int64_t now_us(void)
{
    struct timeval t;
    gettimeofday(&t, NULL);
    return (int64_t)t.tv_sec * 1000000 + t.tv_usec;
}

static sfsistat end_of_message(SMFICTX *ctx, struct session *s)
{
    struct mail *m = &s->mail;
    char detail[600];
    m->envelope.arrived = now_us();
    set_macro(ctx, &m->envelope.queue_id, "i");
    const char *reason = rules_queue_reason(m, detail, sizeof detail);
    if (reason) {
        metric_add(mails_queued, 1);
        log_info("%s: from=<%.256s>, size=%llu, nrcpt=%zu, action=queue reason=%s%s%s", m->envelope.queue_id ? m->envelope.queue_id : "NOQUEUE",
                 m->envelope.sender ? m->envelope.sender : "", (unsigned long long)m->size, m->nrecipients, reason, *detail ? " " : "", detail);
        return SMFIS_ACCEPT;
    }
    switch (divert(s, delete_recipient, ctx)) {
    case VERDICT_DISCARD: return SMFIS_DISCARD;
    case VERDICT_ACCEPT: return SMFIS_ACCEPT;
    case VERDICT_TEMPFAIL: break;
    }
    smfi_setreply(ctx, (char *)"451", (char *)"4.3.0", (char *)"Mail could not be stored on enough hosts, try again later");
    return SMFIS_TEMPFAIL;
}

static sfsistat on_end_of_message(SMFICTX *ctx)
{
    struct session *s = smfi_getpriv(ctx);
    if (!s)
        return SMFIS_ACCEPT;
    mail_end_header(&s->mail);
    atomic_fetch_add(&milter.deciding, 1);
    sfsistat answer = end_of_message(ctx, s);
    mail_reset(&s->mail);
    atomic_fetch_sub(&milter.deciding, 1);
    return answer;
}

static sfsistat on_abort(SMFICTX *ctx)
{
    struct session *s = smfi_getpriv(ctx);
    if (s)
        mail_reset(&s->mail);
    return SMFIS_CONTINUE;
}

/* ---- socket ---- */

static bool answers(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answered = fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
    if (fd >= 0)
        close(fd);
    return answered;
}

/* libmilter removes no stale socket when it runs as root. A milter that was killed a moment ago still answers until the last of its threads is gone. */
static bool remove_stale(const char *path)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT;
    if (!S_ISSOCK(st.st_mode)) {
        errno = ENOTSOCK;
        return false;
    }
    for (int i = 0; answers(path); i++) {
        if (i == 30) {
            errno = EADDRINUSE;
            return false;
        }
        usleep(100000);
    }
    return unlink(path) == 0 || errno == ENOENT;
}

static bool guard_socket(const char *path, const char *group)
{
    struct group *g = NULL;
    if (*group && !(g = getgrnam(group))) {
        log_error("milter_socket_group = %s: there is no such group", group);
        return false;
    }
    if ((!g || chown(path, (uid_t)-1, g->gr_gid) == 0) && chmod(path, g ? 0660 : 0666) == 0)
        return true;
    log_error("milter_socket = %s: cannot set group and mode: %s", path, strerror(errno));
    return false;
}

static struct smfiDesc description = {
    .xxfi_name = (char *)"dovelane",
    .xxfi_version = SMFI_VERSION,
    .xxfi_flags = SMFIF_DELRCPT | SMFIF_SETSYMLIST,
    .xxfi_connect = on_connect,
    .xxfi_helo = on_helo,
    .xxfi_envfrom = on_mail,
    .xxfi_envrcpt = on_rcpt,
    .xxfi_data = on_data,
    .xxfi_unknown = on_unknown,
    .xxfi_header = on_header,
    .xxfi_eoh = on_end_of_header,
    .xxfi_body = on_body,
    .xxfi_eom = on_end_of_message,
    .xxfi_abort = on_abort,
    .xxfi_close = on_close,
    .xxfi_negotiate = on_negotiate,
};

bool callbacks_open(const char *path, const char *group)
{
    struct sockaddr_un fits;
    if (strlen(path) >= sizeof fits.sun_path) {
        log_error("milter_socket = %s: longer than the %zu bytes a socket's path may have", path, sizeof fits.sun_path - 1);
        return false;
    }
    if (!remove_stale(path)) {
        log_error("milter_socket = %s: %s", path, errno == EADDRINUSE ? "another milter answers there" : strerror(errno));
        return false;
    }
    char *address = mem_printf("unix:%s", path);
    mode_t before = umask(0177); /* nobody connects between bind and chmod */
    smfi_setdbg(0);
    smfi_setmaxdatasize(1024 * 1024 - 1);
    bool ok = smfi_register(description) == MI_SUCCESS && smfi_setconn(address) == MI_SUCCESS && smfi_opensocket(0) == MI_SUCCESS;
    umask(before);
    free(address);
    if (!ok) {
        log_error("milter_socket = %s: cannot listen: %s (does the directory exist?)", path, strerror(errno));
        return false;
    }
    if (guard_socket(path, group))
        return true;
    unlink(path);
    return false;
}

bool callbacks_run(void)
{
    return smfi_main() == MI_SUCCESS;
}
