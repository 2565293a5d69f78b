/* tls against a server of OpenSSL's in a thread of its own: what its end looks like to who still
 * writes. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "tests/unit/lib/tests.h"
#include "lib/base/tls.h"

struct server {
    int listener, port;
    SSL_CTX *context;
    pthread_t thread;
};

static SSL_CTX *self_signed(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    SSL_CTX *c = SSL_CTX_new(TLS_server_method());
    ck_assert(key && x && c);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    ck_assert(X509_sign(x, key, EVP_sha256()) > 0);
    ck_assert_int_eq(SSL_CTX_use_certificate(c, x), 1);
    ck_assert_int_eq(SSL_CTX_use_PrivateKey(c, key), 1);
    X509_free(x);
    EVP_PKEY_free(key);
    return c;
}

/* It says goodbye and closes while there is something to read, so that its kernel sends a reset. */
static void *serve(void *arg)
{
    struct server *s = arg;
    int fd = accept(s->listener, NULL, NULL), one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct pollfd unread = {fd, POLLIN, 0};
    SSL *ssl = SSL_new(s->context);
    SSL_set_fd(ssl, fd);
    if (SSL_accept(ssl) == 1 && poll(&unread, 1, 60000) == 1 && SSL_write(ssl, "+OK\r\n", 5) == 5)
        SSL_shutdown(ssl);
    SSL_free(ssl);
    close(fd);
    return NULL;
}

static int connected_to(struct server *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    s->context = self_signed();
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(s->listener, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(s->listener, 1), 0);
    ck_assert_int_eq(getsockname(s->listener, (struct sockaddr *)&a, &len), 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(pthread_create(&s->thread, NULL, serve, s), 0);
    return fd;
}

/* OpenSSL 3.0 calls that an orderly end, 0 bytes written, again and again: whoever writes until
 * all is written would do so for ever. */
START_TEST(test_a_write_after_the_servers_goodbye_fails)
{
    struct server s;
    char *error = NULL, got[100];
    struct iovec v = {"PING\r\n", 6};
    ssize_t n;
    signal(SIGPIPE, SIG_IGN);
    int fd = connected_to(&s);
    struct tls_peer *peer = tls_peer_new(&(struct tls_options){.verify = false}, &error);
    ck_assert_msg(peer != NULL, "%s", error);
    struct tls *t = tls_open(peer, fd);
    ck_assert_int_eq(tls_handshake(t), 1);
    ck_assert_int_eq(tls_writev(t, &v, 1), 6);
    pthread_join(s.thread, NULL);
    while ((n = tls_read(t, got, sizeof got)) > 0 || (n < 0 && errno == EAGAIN))
        ;
    ck_assert_int_le(n, 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(tls_writev(t, &v, 1), -1);
        ck_assert_int_ne(errno, EAGAIN);
        ck_assert_str_ne(tls_error(t), "");
    }
    tls_close(t);
    tls_peer_release(peer);
    close(fd);
    close(s.listener);
    SSL_CTX_free(s.context);
}
END_TEST

TCase *tls_tests(void)
{
    TCase *t = tcase_create("tls");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, test_a_write_after_the_servers_goodbye_fails);
    return t;
}
