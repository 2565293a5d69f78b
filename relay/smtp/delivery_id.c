#include "relay/smtp/delivery_id.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "lib/base/mem.h"

#define KEY_LEAST 16
#define KEY_MOST 1024
#define FILE_MOST (2 * KEY_MOST + 2)
#define MAC 16        /* bytes of it that are shown */
#define GUID_BYTES 12 /* of the hash; the rest is the check */
#define HASH_HEX 65   /* of SHA-256, with its 0 */

struct delivery_key {
    size_t size;
    unsigned char bytes[FILE_MOST];
};

/* ---- the key ---- */

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool all_hex(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (hex_digit(p[i]) < 0)
            return false;
    return true;
}

/* One line of hex digits is the bytes that they spell; anything else is the key itself. */
static bool parse(struct delivery_key *k)
{
    unsigned char *p = k->bytes;
    size_t n = k->size;
    while (n && strchr(" \t\r\n", p[n - 1]) && p[n - 1])
        n--;
    if (n % 2 == 0 && n >= 2 * KEY_LEAST && n <= 2 * KEY_MOST && all_hex(p, n)) {
        for (size_t i = 0; i < n / 2; i++)
            p[i] = (unsigned char)(hex_digit(p[2 * i]) << 4 | hex_digit(p[2 * i + 1]));
        k->size = n / 2;
    }
    return k->size >= KEY_LEAST && k->size <= KEY_MOST;
}

struct delivery_key *delivery_key_read(const char *path, char **error_r)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        *error_r = mem_printf("%s: %s", path, strerror(errno));
        return NULL;
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & 0027)) {
        *error_r = mem_printf("%s: must be a file that only its owner writes and others cannot "
                              "read (mode 0640, 0600 or 0400), "
                              "it has mode %04o",
                              path, (unsigned)(st.st_mode & 07777));
        close(fd);
        return NULL;
    }
    struct delivery_key *k = mem_zero(sizeof *k);
    ssize_t n = read(fd, k->bytes, sizeof k->bytes);
    close(fd);
    k->size = n > 0 ? (size_t)n : 0;
    if (parse(k))
        return k;
    delivery_key_free(k);
    *error_r = mem_printf("%s: a key has %d to %d bytes, raw or as one line of hex digits", path,
                          KEY_LEAST, KEY_MOST);
    return NULL;
}

void delivery_key_free(struct delivery_key *k)
{
    if (!k)
        return;
    OPENSSL_cleanse(k, sizeof *k);
    free(k);
}

/* ---- the line ---- */

static void to_hex(char *out, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

/* The hash of the message in the form that no way to Dovecot changes: LF for CRLF, and a line
 * end after the last line. */
static void hash_message(char hex[HASH_HEX], const char *message, size_t len)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    const char *end = message + len;
    bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL), open_line = len && end[-1] != '\n';
    while (ok && message < end) {
        const char *crlf = memmem(message, (size_t)(end - message), "\r\n", 2);
        const char *to = crlf ? crlf : end;
        ok = EVP_DigestUpdate(ctx, message, (size_t)(to - message)) &&
             (!crlf || EVP_DigestUpdate(ctx, "\n", 1));
        message = crlf ? crlf + 2 : end;
    }
    if (!ok || (open_line && !EVP_DigestUpdate(ctx, "\n", 1)) ||
        !EVP_DigestFinal_ex(ctx, digest, NULL))
        abort(); /* it fails only without memory */
    EVP_MD_CTX_free(ctx);
    to_hex(hex, digest, 32);
}

/* Domains know no case, and Dovecot may write them otherwise than the envelope does. */
static void add_code(struct buf *line, const struct delivery_key *k, const char *purpose,
                     const char *address)
{
    char mac[2 * MAC + 1];
    unsigned char digest[EVP_MAX_MD_SIZE];
    char *said = mem_printf("%s%s", purpose, address);
    for (char *c = said; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c |= 0x20;
    if (!HMAC(EVP_sha256(), k->bytes, (int)k->size, (unsigned char *)said, strlen(said), digest,
              NULL))
        abort();
    free(said);
    to_hex(mac, digest, MAC);
    buf_adds(line, mac);
}

char *delivery_id_header(const struct delivery_key *k, const unsigned char id[ENTRYID_LEN],
                         const char *message, size_t len, const char *const *address, size_t n)
{
    char entry[ENTRYID_HEX], hash[HASH_HEX];
    struct buf line = {0};
    entryid_hex(id, entry);
    hash_message(hash, message, len);
    char *purpose = mem_printf("dovelane-id 2:%s:%s:", entry, hash);
    buf_printf(&line, ENTRYID_HEADER ": %s", entry);
    for (size_t i = 0; i < n; i++) {
        buf_adds(&line, i % 2 ? " " : "\r\n ");
        add_code(&line, k, purpose, address[i]);
    }
    free(purpose);
    buf_add(&line, "\r\n", 3); /* with its 0 */
    return line.data;
}

/* ---- the GUID ---- */

static void hash_two(unsigned char digest[EVP_MAX_MD_SIZE], const char *purpose, const void *data,
                     size_t len)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (!ctx || !EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) ||
        !EVP_DigestUpdate(ctx, purpose, strlen(purpose)) || !EVP_DigestUpdate(ctx, data, len) ||
        !EVP_DigestFinal_ex(ctx, digest, NULL))
        abort();
    EVP_MD_CTX_free(ctx);
}

void delivery_id_guids(const unsigned char id[ENTRYID_LEN], const char *message, size_t len,
                       const char *const *address, size_t n, char (*guid_r)[DELIVERY_GUID])
{
    char entry[ENTRYID_HEX], hash[HASH_HEX];
    unsigned char digest[EVP_MAX_MD_SIZE], check[EVP_MAX_MD_SIZE];
    entryid_hex(id, entry);
    hash_message(hash, message, len);
    for (size_t i = 0; i < n; i++) {
        char *said = mem_printf("%s:%s:%s", entry, hash, address[i]);
        hash_two(digest, "dovelane-guid 2:", said, strlen(said));
        free(said);
        hash_two(check, "dovelane-guid check:", digest, GUID_BYTES);
        memcpy(digest + GUID_BYTES, check, (DELIVERY_GUID - 1) / 2 - GUID_BYTES);
        to_hex(guid_r[i], digest, (DELIVERY_GUID - 1) / 2);
    }
}
