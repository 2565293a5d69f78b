/* format - reads and writes the line of a stub, and checks its MAC. */
#include "dovecot-plugin/compat.h"

#include "dovecot-plugin/stub/format.h"

#include <hash-method.h>
#include <hmac.h>
#include <sha2.h>
#include <string.h>

#define MAGIC (sizeof(STUB_MAGIC) - 1)
#define AT_SHA256 MAGIC
#define AT_SIZE (AT_SHA256 + 64 + 1)
#define AT_STORED (AT_SIZE + 16 + 1)
#define AT_MAC (AT_STORED + 16 + 1)

static int digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const unsigned char *text, uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return FALSE;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return TRUE;
}

static void write_hex(char *text, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
}

static bool read_number(const unsigned char *text, uint64_t *n)
{
    uint8_t bytes[8];

    *n = 0;
    if (!read_hex(text, bytes, sizeof(bytes)))
        return FALSE;
    for (size_t i = 0; i < sizeof(bytes); i++)
        *n = *n << 8 | bytes[i];
    return TRUE;
}

static void write_number(char *text, uint64_t n)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(n >> (56 - 8 * i));
    write_hex(text, bytes, sizeof(bytes));
}

bool stub_read(const void *line, size_t n, struct stub *stub_r)
{
    const unsigned char *text = line;
    uint8_t mac[32];

    return n >= STUB_LINE && memcmp(text, STUB_MAGIC, MAGIC) == 0 && text[AT_SIZE - 1] == ' ' &&
           text[AT_STORED - 1] == ' ' && text[AT_MAC - 1] == ' ' && text[STUB_LINE - 1] == '\n' &&
           read_hex(text + AT_SHA256, stub_r->sha256, sizeof(stub_r->sha256)) &&
           read_number(text + AT_SIZE, &stub_r->size) &&
           read_number(text + AT_STORED, &stub_r->stored) &&
           read_hex(text + AT_MAC, mac, sizeof(mac));
}

static void make_mac(uint8_t mac_r[32], const void *line, const struct stub_key *key,
                     const void *head, size_t n)
{
    struct hmac_context hmac;

    hmac_init(&hmac, key->bytes, sizeof(key->bytes), &hash_method_sha256);
    hmac_update(&hmac, line, AT_MAC);
    hmac_update(&hmac, head, n);
    hmac_final(&hmac, mac_r);
}

bool stub_is_true(const void *line, const struct stub_key *key, const void *head, size_t n)
{
    uint8_t mac[32], is[32];
    unsigned differs = 0;

    if (!read_hex((const unsigned char *)line + AT_MAC, is, sizeof(is)))
        return FALSE;
    make_mac(mac, line, key, head, n);
    for (size_t i = 0; i < sizeof(mac); i++)
        differs |= mac[i] ^ is[i];
    return differs == 0;
}

void stub_write(char line_r[STUB_LINE], const struct stub *stub, const struct stub_key *key,
                const void *head, size_t n)
{
    uint8_t mac[32];

    memset(line_r, ' ', STUB_LINE);
    memcpy(line_r, STUB_MAGIC, MAGIC);
    write_hex(line_r + AT_SHA256, stub->sha256, sizeof(stub->sha256));
    write_number(line_r + AT_SIZE, stub->size);
    write_number(line_r + AT_STORED, stub->stored);
    make_mac(mac, line_r, key, head, n);
    write_hex(line_r + AT_MAC, mac, sizeof(mac));
    line_r[STUB_LINE - 1] = '\n';
}

size_t stub_header_size(const void *data, size_t n)
{
    const unsigned char *begin = data, *end = begin + n, *at = begin, *lf;

    while (at < end && (lf = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        if (lf == at || (lf == at + 1 && *at == '\r'))
            return (size_t)(lf + 1 - begin);
        at = lf + 1;
    }
    return 0;
}

bool stub_key_read_text(const void *text, size_t n, struct stub_key *key_r)
{
    const unsigned char *digits = text;

    return n == STUB_KEY_TEXT && digits[n - 1] == '\n' &&
           read_hex(digits, key_r->bytes, sizeof(key_r->bytes));
}

void stub_key_write_text(char text_r[STUB_KEY_TEXT], const struct stub_key *key)
{
    write_hex(text_r, key->bytes, sizeof(key->bytes));
    text_r[STUB_KEY_TEXT - 1] = '\n';
}
