/* tls - TLS (OpenSSL) as a client over a connected, non-blocking socket that somebody else watches.
 *
 *   tls_peer_new            what one server must show, what we show, and the last session with it
 *      └── tls_open(fd)     one connection; resumes that session (RFC 5077, RFC 8446 section 2.2)
 *             tls_handshake until it is not 0, then tls_read and tls_writev like read(2) and
 *             writev(2)
 *
 * -1 with EAGAIN means: wait until the socket is readable, and also writable while
 * tls_wants_write says so, whichever call it was; then repeat it. Not thread-safe: a peer and
 * its connections belong to one thread. */
#ifndef DOVELANE_LIB_BASE_TLS_H
#define DOVELANE_LIB_BASE_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct tls_peer;
struct tls;

/* A text NULL or "": not set. */
struct tls_options {
    /* host name or address: for SNI (RFC 6066 section 3; names only) and for verify */
    const char *name;
    /* the handshake fails unless a trusted certificate has that name (RFC 6125) */
    bool verify;
    const char *ca_file;   /* PEM; not set: the system's authorities */
    const char *cert_file; /* PEM, ours and what leads to its authority */
    const char *key_file;  /* PEM; not set: in cert_file */
};

/* NULL when a file cannot be used: *error_r (malloc'd) names it. The options' texts are copied. */
struct tls_peer *tls_peer_new(const struct tls_options *, char **error_r);

/* Its connections hold it: it is freed after the last. */
void tls_peer_release(struct tls_peer *);

/* Never NULL. fd stays the caller's. */
struct tls *tls_open(struct tls_peer *, int fd);

/* Says goodbye if that can be done at once (RFC 8446 section 6.1), and frees it. */
void tls_close(struct tls *);

/* 1: done. 0: wait, then again. -1: failed, tls_error says why. */
int tls_handshake(struct tls *);

/* As read(2): 0 at the end, also when the server did not say goodbye. */
ssize_t tls_read(struct tls *, void *data, size_t size);

/* As writev(2). What is small goes out as one record. */
ssize_t tls_writev(struct tls *, const struct iovec *, int n);

bool tls_wants_write(const struct tls *);

/* When a certificate ends, in seconds since 1970: the server's, after the handshake, and ours.
 * 0: there is none. */
int64_t tls_until(const struct tls *);
int64_t tls_own_until(const struct tls *);

/* What went wrong last, in words; the connection's. */
const char *tls_error(const struct tls *);

/* After a handshake that failed over the server's certificate, what that was, else "". For example
 * "CN=mx1, for DNS:mx1 IP:10.0.0.1, by CN=our CA, until Jan 1 00:00:00 2027 GMT". The
 * connection's. */
const char *tls_shown(const struct tls *);

/* After the handshake, as Postfix logs it, for its analysers: "Verified TLS connection
 * established to PEER: TLSv1.3 with cipher TLS_AES_256_GCM_SHA384 (256/256 bits)", and ";
 * session resumed". Verified: trusted, and with its name; Trusted: by an authority; else
 * Untrusted. */
void tls_describe(const struct tls *, const char *peer, char *out, size_t size);

#endif
