#include "delivery_id.h"

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

#include "mem.h"

#define KEY_LEAST 16
#define KEY_MOST 1024
#define FILE_MOST (2 * KEY_MOST + 2)
#define MAC 16 /* bytes of it that are shown */

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
        *error_r = mem_printf("%s: must be a file that only its owner writes and others cannot read (mode 0640, 0600 or 0400), "
                              "it has mode %04o", path, (unsigned)(st.st_mode & 07777));
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
    *error_r = mem_printf("%s: a key has %d to %d bytes, raw or as one line of hex digits", path, KEY_LEAST, KEY_MOST);
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

char *delivery_id_header(const struct delivery_key *k, const unsigned char id[ENTRYID_LEN])
{
    char entry[ENTRYID_HEX], said[12 + ENTRYID_HEX], mac[2 * MAC + 1];
    unsigned char digest[EVP_MAX_MD_SIZE];
    entryid_hex(id, entry);
    int n = snprintf(said, sizeof said, "dovelane-id:%s", entry);
    if (!HMAC(EVP_sha256(), k->bytes, (int)k->size, (unsigned char *)said, (size_t)n, digest, NULL))
        abort(); /* it fails only without memory */
    for (size_t i = 0; i < MAC; i++)
        snprintf(mac + 2 * i, 3, "%02x", digest[i]);
    return mem_printf(ENTRYID_HEADER ": %s %s\r\n", entry, mac);
}
