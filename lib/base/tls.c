#include "lib/base/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "lib/base/mem.h"

#define RECORD 16384 /* RFC 8446 section 5.1 */
/* messages of TLS itself behind the handshake, in all: a server sends a ticket or two */
#define AFTERWARDS 64

struct tls_peer {
    unsigned users; /* its owner, and its connections */
    SSL_CTX *context;
    SSL_SESSION *session; /* the last that the server gave us */
    char *name;
    bool verify;
};

struct tls {
    struct tls_peer *peer;
    SSL *ssl;
    bool wants_write, failed; /* failed: no goodbye */
    bool established;
    unsigned afterwards;
    char error[256], shown[512];
};

/* As mem.h: OpenSSL's objects fail to be made only when memory is out. */
static void need(bool made)
{
    if (made)
        return;
    fprintf(stderr, "out of memory: OpenSSL\n");
    abort();
}

static bool set(const char *text)
{
    return text && *text;
}

static bool is_address(const char *name)
{
    unsigned char a[16];
    return inet_pton(AF_INET, name, a) == 1 || inet_pton(AF_INET6, name, a) == 1;
}

/* ---- what one server is to us ---- */

/* OpenSSL's word for what failed last; it keeps a list, of which the first is the cause. */
static void openssl_says(char *out, size_t size)
{
    unsigned long e = ERR_get_error();
    const char *reason = e && ERR_SYSTEM_ERROR(e) ? strerror(ERR_GET_REASON(e))
                         : e                      ? ERR_reason_error_string(e)
                                                  : NULL;
    snprintf(out, size, "%s", reason ? reason : e ? ERR_lib_error_string(e) : "no reason given");
    ERR_clear_error();
}

static char *unusable(const char *file, const char *what)
{
    char why[128];
    openssl_says(why, sizeof why);
    return mem_printf("%s: no %s can be read from it: %s", file, what, why);
}

static char *load(SSL_CTX *c, const struct tls_options *o)
{
    if (set(o->ca_file) ? SSL_CTX_load_verify_file(c, o->ca_file) != 1
                        : SSL_CTX_set_default_verify_paths(c) != 1)
        return unusable(set(o->ca_file) ? o->ca_file : "the system's directory",
                        "certificates of authorities");
    if (!set(o->cert_file))
        return NULL;
    if (SSL_CTX_use_certificate_chain_file(c, o->cert_file) != 1)
        return unusable(o->cert_file, "certificate");
    const char *key = set(o->key_file) ? o->key_file : o->cert_file;
    if (SSL_CTX_use_PrivateKey_file(c, key, SSL_FILETYPE_PEM) != 1)
        return unusable(key, "key that fits the certificate");
    return NULL;
}

/* A ticket came. Each one replaces the last: a server may refuse one that was used before, and
 * then the handshake is a full one, no more. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
    struct tls *t = SSL_get_app_data(ssl);
    SSL_SESSION_free(t->peer->session);
    t->peer->session = session;
    return 1; /* it is ours now */
}

/* Tickets and new keys (RFC 8446 section 4.6), of which a server may send as many as it likes:
 * each costs us much more than it. */
static void on_message(int sent, int version, int type, const void *data, size_t len, SSL *ssl,
                       void *arg)
{
    struct tls *t = SSL_get_app_data(ssl);
    if (t && t->established && !sent && type == SSL3_RT_HANDSHAKE)
        t->afterwards++;
}

/* ---- what a server showed ---- */

static void add_text(struct buf *out, BIO *bio)
{
    char *data;
    long n = BIO_get_mem_data(bio, &data);
    for (long i = 0; i < n; i++)
        buf_add(out, data[i] >= ' ' && data[i] <= '~' ? data + i : "?", 1);
    (void)BIO_reset(bio);
}

static void add_names(struct buf *out, const X509 *cert)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && i < 8; i++) {
        const GENERAL_NAME *n = sk_GENERAL_NAME_value(names, i);
        char text[INET6_ADDRSTRLEN] = "?";
        buf_adds(out, i ? " " : ", for ");
        if (n->type == GEN_DNS) {
            buf_printf(out, "DNS:%.*s", ASN1_STRING_length(n->d.dNSName),
                       (const char *)ASN1_STRING_get0_data(n->d.dNSName));
        } else if (n->type == GEN_IPADD) {
            int len = ASN1_STRING_length(n->d.iPAddress);
            if (len == 4 || len == 16)
                inet_ntop(len == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(n->d.iPAddress),
                          text, sizeof text);
            buf_printf(out, "IP:%s", text);
        } else {
            buf_adds(out, "another kind of name");
        }
    }
    GENERAL_NAMES_free(names);
}

static void describe_certificate(struct tls *t, X509 *cert)
{
    struct buf out = {0};
    BIO *bio = BIO_new(BIO_s_mem());
    need(bio != NULL);
    X509_NAME_print_ex(bio, X509_get_subject_name(cert), 0, XN_FLAG_RFC2253);
    add_text(&out, bio);
    add_names(&out, cert);
    buf_adds(&out, ", by ");
    X509_NAME_print_ex(bio, X509_get_issuer_name(cert), 0, XN_FLAG_RFC2253);
    add_text(&out, bio);
    buf_adds(&out, ", until ");
    ASN1_TIME_print(bio, X509_get0_notAfter(cert));
    add_text(&out, bio);
    snprintf(t->shown, sizeof t->shown, "%s", out.data);
    for (char *p = t->shown; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    buf_free(&out);
    BIO_free(bio);
}

static int on_verify(int good, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls *t = ssl ? SSL_get_app_data(ssl) : NULL;
    X509 *leaf = X509_STORE_CTX_get0_cert(store);
    if (!good && t && leaf && t->peer->verify)
        describe_certificate(t, leaf);
    return good;
}

struct tls_peer *tls_peer_new(const struct tls_options *o, char **error_r)
{
    ERR_clear_error();
    SSL_CTX *c = SSL_CTX_new(TLS_client_method());
    need(c != NULL);
    SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION); /* RFC 8996 */
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                               SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(c, on_session);
    SSL_CTX_set_msg_callback(c, on_message);
    /* else one read goes on for as long as such messages come */
    SSL_CTX_clear_mode(c, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_verify(c, o->verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                       o->verify ? on_verify : NULL);
    *error_r = load(c, o);
    if (*error_r) {
        SSL_CTX_free(c);
        return NULL;
    }
    struct tls_peer *p = mem_zero(sizeof *p);
    p->users = 1;
    p->context = c;
    p->verify = o->verify;
    p->name = set(o->name) ? mem_strdup(o->name) : NULL;
    return p;
}

void tls_peer_release(struct tls_peer *p)
{
    if (!p || --p->users)
        return;
    SSL_SESSION_free(p->session);
    SSL_CTX_free(p->context);
    free(p->name);
    free(p);
}

/* ---- one connection ---- */

/* The name is also compared when nothing depends on it, so that the log can tell. */
static void expect_name(SSL *ssl, const struct tls_peer *p)
{
    if (!p->name)
        return;
    if (is_address(p->name)) {
        X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), p->name);
        return;
    }
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    SSL_set1_host(ssl, p->name);
    SSL_set_tlsext_host_name(ssl, p->name);
}

struct tls *tls_open(struct tls_peer *p, int fd)
{
    struct tls *t = mem_zero(sizeof *t);
    t->peer = p;
    p->users++;
    t->ssl = SSL_new(p->context);
    need(t->ssl && SSL_set_fd(t->ssl, fd) == 1);
    SSL_set_app_data(t->ssl, t);
    SSL_set_connect_state(t->ssl);
    expect_name(t->ssl, p);
    if (p->session)
        SSL_set_session(t->ssl, p->session);
    return t;
}

void tls_close(struct tls *t)
{
    if (!t)
        return;
    ERR_clear_error();
    if (!t->failed && SSL_is_init_finished(t->ssl))
        SSL_shutdown(t->ssl);
    ERR_clear_error();
    SSL_free(t->ssl);
    tls_peer_release(t->peer);
    free(t);
}

/* What a call that did not succeed means, as an errno; 0: the end. */
static int outcome(struct tls *t, int ret)
{
    int saved = errno, e = SSL_get_error(t->ssl, ret);
    t->wants_write = e == SSL_ERROR_WANT_WRITE;
    switch (e) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return EAGAIN;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL:
        t->failed = true;
        snprintf(t->error, sizeof t->error, "%s", saved ? strerror(saved) : "lost connection");
        return saved == EAGAIN || !saved ? ECONNRESET : saved;
    default: break;
    }
    t->failed = true;
    long verify = SSL_get_verify_result(t->ssl);
    unsigned long first = ERR_peek_error();
    bool other_name =
        verify == X509_V_ERR_HOSTNAME_MISMATCH || verify == X509_V_ERR_IP_ADDRESS_MISMATCH;
    if (ERR_GET_REASON(first) == SSL_R_CERTIFICATE_VERIFY_FAILED)
        snprintf(t->error, sizeof t->error, "certificate verification failed: %s%s%s",
                 X509_verify_cert_error_string(verify), other_name ? ", it is not for " : "",
                 other_name ? t->peer->name : "");
    else
        openssl_says(t->error, sizeof t->error);
    ERR_clear_error();
    return EPROTO;
}

static ssize_t failed(struct tls *t, int ret)
{
    errno = outcome(t, ret);
    return errno ? -1 : 0;
}

int tls_handshake(struct tls *t)
{
    ERR_clear_error();
    errno = 0;
    int ret = SSL_do_handshake(t->ssl);
    t->wants_write = false;
    if (ret == 1) {
        t->established = true;
        return 1;
    }
    int e = outcome(t, ret);
    if (!e)
        snprintf(t->error, sizeof t->error, "lost connection");
    return e == EAGAIN ? 0 : -1;
}

ssize_t tls_read(struct tls *t, void *data, size_t size)
{
    ERR_clear_error();
    errno = 0;
    size_t n;
    int ret = SSL_read_ex(t->ssl, data, size, &n);
    t->wants_write = false;
    if (t->afterwards > AFTERWARDS) {
        snprintf(t->error, sizeof t->error, "no end of tickets or new keys");
        t->failed = true;
        errno = EPROTO;
        return -1;
    }
    return ret == 1 ? (ssize_t)n : failed(t, ret);
}

/* What goes into one record: the first part alone when it fills one, else as much as does. After
 * EAGAIN the same bytes come again, with more behind them maybe: OpenSSL takes that, but never
 * fewer bytes than before. */
static const char *piece(const struct iovec *iov, int n, char joined[RECORD], size_t *len_r)
{
    size_t len = 0;
    *len_r = iov[0].iov_len;
    if (n == 1 || iov[0].iov_len >= RECORD)
        return iov[0].iov_base;
    for (int i = 0; i < n && len < RECORD; i++) {
        size_t part = iov[i].iov_len < RECORD - len ? iov[i].iov_len : RECORD - len;
        memcpy(joined + len, iov[i].iov_base, part);
        len += part;
    }
    *len_r = len;
    return joined;
}

ssize_t tls_writev(struct tls *t, const struct iovec *iov, int n)
{
    static _Thread_local char joined[RECORD];
    while (n > 0 && !iov->iov_len) {
        iov++;
        n--;
    }
    if (n <= 0)
        return 0;
    ERR_clear_error();
    errno = 0;
    size_t len, sent;
    const char *data = piece(iov, n, joined, &len);
    int ret = SSL_write_ex(t->ssl, data, len, &sent);
    t->wants_write = false;
    if (ret == 1)
        return (ssize_t)sent;
    int e = outcome(t, ret);
    if (!e) {
        /* OpenSSL 3.0 speaks of the other end's close_notify, which came before, when the socket
         * does not take bytes any more. Nothing was written: 0 would say that all is well. */
        snprintf(t->error, sizeof t->error, "closed by the other end");
        t->failed = true;
        e = EPIPE;
    }
    errno = e;
    return -1;
}

const char *tls_shown(const struct tls *t)
{
    return t->shown;
}

bool tls_wants_write(const struct tls *t)
{
    return t->wants_write;
}

static int64_t until(const X509 *certificate)
{
    struct tm tm;
    return certificate && ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &tm) == 1
               ? (int64_t)timegm(&tm)
               : 0;
}

int64_t tls_until(const struct tls *t)
{
    return until(SSL_get0_peer_certificate(t->ssl));
}

int64_t tls_own_until(const struct tls *t)
{
    return until(SSL_get_certificate(t->ssl));
}

const char *tls_error(const struct tls *t)
{
    return t->error;
}

void tls_describe(const struct tls *t, const char *peer, char *out, size_t size)
{
    long verify = SSL_get_verify_result(t->ssl);
    bool shown = SSL_get0_peer_certificate(t->ssl) != NULL;
    bool trusted = shown && (verify == X509_V_OK || verify == X509_V_ERR_HOSTNAME_MISMATCH ||
                             verify == X509_V_ERR_IP_ADDRESS_MISMATCH);
    int algorithm = 0, used = SSL_get_cipher_bits(t->ssl, &algorithm);
    snprintf(out, size, "%s TLS connection established to %s: %s with cipher %s (%d/%d bits)%s",
             trusted && verify == X509_V_OK && t->peer->name ? "Verified"
             : trusted                                       ? "Trusted"
                                                             : "Untrusted",
             peer, SSL_get_version(t->ssl), SSL_get_cipher_name(t->ssl), used, algorithm,
             SSL_session_reused(t->ssl) ? "; session resumed" : "");
}
