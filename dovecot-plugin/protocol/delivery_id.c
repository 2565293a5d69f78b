/* delivery_id - reads the key, checks the line's code with it, and makes the GUID. */
#include "dovecot-plugin/compat.h"

#include "dovecot-plugin/protocol/delivery_id.h"

#include <errno.h>
#include <fcntl.h>
#include <hash-method.h>
#include <hmac.h>
#include <safe-memset.h>
#include <sha2.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool white(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void to_hex(char out[DELIVERY_ID_HEX + 1], const unsigned char *bytes)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < DELIVERY_ID_HEX / 2; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[DELIVERY_ID_HEX] = '\0';
}

/* True when text is hex digits only; then their bytes are in key_r. */
static bool parse_hex(struct delivery_key *key_r, const char *text, size_t size)
{
    if (size % 2 != 0 || size / 2 < DELIVERY_KEY_MIN || size / 2 > DELIVERY_KEY_MAX)
        return FALSE;
    for (size_t i = 0; i < size; i++) {
        if (hex_digit(text[i]) < 0)
            return FALSE;
    }
    key_r->size = size / 2;
    for (size_t i = 0; i < key_r->size; i++)
        key_r->bytes[i] = (unsigned char)(hex_digit(text[2 * i]) << 4 | hex_digit(text[2 * i + 1]));
    return TRUE;
}

bool delivery_key_parse(struct delivery_key *key_r, const void *data, size_t size)
{
    const char *text = data;
    size_t length = size;

    while (length > 0 && white(text[length - 1]))
        length--;
    if (parse_hex(key_r, text, length))
        return TRUE;
    if (size < DELIVERY_KEY_MIN || size > DELIVERY_KEY_MAX)
        return FALSE;
    memcpy(key_r->bytes, data, size);
    key_r->size = size;
    return TRUE;
}

bool delivery_key_read(struct delivery_key *key_r, const char *path, const char **error_r)
{
    char data[DELIVERY_KEY_MAX * 2 + 3];
    struct stat st;
    ssize_t size;
    bool ok;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd == -1) {
        *error_r = t_strdup_printf(
            "open(%s): %m; it must be readable by the user who delivers mail", path);
        return FALSE;
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & 0027) != 0) {
        *error_r = t_strdup_printf(
            "%s: must be a file that only its owner writes and others cannot read (mode 0640, 0600 "
            "or 0400), it has mode %04o",
            path, (unsigned int)(st.st_mode & 07777));
        i_close_fd(&fd);
        return FALSE;
    }
    size = read(fd, data, sizeof(data));
    i_close_fd(&fd);
    ok = size >= 0 && delivery_key_parse(key_r, data, (size_t)size);
    safe_memset(data, 0, sizeof(data));
    if (!ok)
        *error_r = t_strdup_printf("%s: a key has %d to %d bytes, raw or as one line of hex digits",
                                   path, DELIVERY_KEY_MIN, DELIVERY_KEY_MAX);
    return ok;
}

void delivery_id_code(char code_r[DELIVERY_ID_HEX + 1], const struct delivery_key *key,
                      const char *entry, const char *hash, const char *rcpt)
{
    static const char purpose[] = "dovelane-id 2:";
    unsigned char digest[SHA256_RESULTLEN];
    struct hmac_context hmac;

    hmac_init(&hmac, key->bytes, key->size, &hash_method_sha256);
    hmac_update(&hmac, purpose, sizeof(purpose) - 1);
    hmac_update(&hmac, entry, DELIVERY_ID_HEX);
    hmac_update(&hmac, ":", 1);
    hmac_update(&hmac, hash, DELIVERY_HASH_HEX);
    hmac_update(&hmac, ":", 1);
    for (; *rcpt != '\0'; rcpt++) {
        char c = *rcpt >= 'A' && *rcpt <= 'Z' ? (char)(*rcpt | 0x20) : *rcpt;

        hmac_update(&hmac, &c, 1);
    }
    hmac_final(&hmac, digest);
    to_hex(code_r, digest);
}

/* Takes DELIVERY_ID_HEX lower-case hex digits, as one word, from *text. */
static bool take_hex(char out[DELIVERY_ID_HEX + 1], const char **text)
{
    while (white(**text))
        (*text)++;
    for (size_t i = 0; i < DELIVERY_ID_HEX; i++) {
        char c = (*text)[i];

        if (hex_digit(c) < 0 || (c >= 'A' && c <= 'F'))
            return FALSE;
        out[i] = c;
    }
    out[DELIVERY_ID_HEX] = '\0';
    *text += DELIVERY_ID_HEX;
    return **text == '\0' || white(**text);
}

bool delivery_id_verify(char entry_r[DELIVERY_ID_HEX + 1], const struct delivery_key *key,
                        const char *value, const char *hash, const char *rcpt)
{
    char code[DELIVERY_ID_HEX + 1], wanted[DELIVERY_ID_HEX + 1];
    bool valid = FALSE;

    if (!take_hex(entry_r, &value))
        return FALSE;
    delivery_id_code(wanted, key, entry_r, hash, rcpt);
    while (take_hex(code, &value))
        valid = mem_equals_timing_safe(code, wanted, DELIVERY_ID_HEX) || valid;
    return valid && *value == '\0'; /* white space at its end is skipped, too */
}

#define GUID_BYTES 12 /* of the hash; the rest is the check */

static void guid_check(const unsigned char guid[DELIVERY_ID_HEX / 2],
                       unsigned char check[SHA256_RESULTLEN])
{
    static const char purpose[] = "dovelane-guid check:";
    struct sha256_ctx ctx;

    sha256_init(&ctx);
    sha256_loop(&ctx, purpose, sizeof(purpose) - 1);
    sha256_loop(&ctx, guid, GUID_BYTES);
    sha256_result(&ctx, check);
}

void delivery_id_guid(char guid_r[DELIVERY_ID_HEX + 1], const char *entry, const char *hash,
                      const char *rcpt)
{
    static const char purpose[] = "dovelane-guid 2:";
    unsigned char digest[SHA256_RESULTLEN], check[SHA256_RESULTLEN];
    struct sha256_ctx ctx;

    sha256_init(&ctx);
    sha256_loop(&ctx, purpose, sizeof(purpose) - 1);
    sha256_loop(&ctx, entry, DELIVERY_ID_HEX);
    sha256_loop(&ctx, ":", 1);
    sha256_loop(&ctx, hash, DELIVERY_HASH_HEX);
    sha256_loop(&ctx, ":", 1);
    sha256_loop(&ctx, rcpt, strlen(rcpt));
    sha256_result(&ctx, digest);
    guid_check(digest, check);
    memcpy(digest + GUID_BYTES, check, DELIVERY_ID_HEX / 2 - GUID_BYTES);
    to_hex(guid_r, digest);
}

bool delivery_id_is_guid(const unsigned char guid[DELIVERY_ID_HEX / 2])
{
    unsigned char check[SHA256_RESULTLEN];

    guid_check(guid, check);
    return memcmp(guid + GUID_BYTES, check, DELIVERY_ID_HEX / 2 - GUID_BYTES) == 0;
}

bool delivery_id_is_trace(const char *line, size_t size)
{
    static const char *const names[] = {
        "Return-Path:", "Delivered-To:", "Received:", DELIVERY_ID_HEADER ":"};

    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        size_t n = strlen(names[i]);

        if (size >= n && i_memcasecmp(line, names[i], n) == 0)
            return TRUE;
    }
    return FALSE;
}
