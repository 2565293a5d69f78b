/* id_fuzz - a Dovelane-Id line, a key's file and header lines, from whoever sends mail or writes
 * the key.
 *
 * The first byte chooses: bytes as they are, or a true line with changes. No line is believed
 * that has not the right code for this entry, hash and address. */
#include "tests/fuzz/dovecot/fuzz.h"

#include "dovecot-plugin/protocol/delivery_id.h"

static const char hash[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
                  rcpt[] = "User@example.org", entry[] = "0123456789abcdef0123456789abcdef";

static void verify(const struct delivery_key *key, const char *value)
{
    char found[DELIVERY_ID_HEX + 1] = "", code[DELIVERY_ID_HEX + 1], guid[DELIVERY_ID_HEX + 1];
    bool right = delivery_id_verify(found, key, value, hash, rcpt);
    if (!right)
        return;
    require(strlen(found) == DELIVERY_ID_HEX, "an entry of another length");
    delivery_id_code(code, key, found, hash, rcpt);
    require(strstr(value, code) != NULL && strstr(value, found) != NULL,
            "a line without the code is believed");
    delivery_id_guid(guid, found, hash, rcpt);
}

static void changed_line(const struct delivery_key *key, const uint8_t *data, size_t size)
{
    char code[DELIVERY_ID_HEX + 1], other[DELIVERY_ID_HEX + 1], line[300];
    delivery_id_code(code, key, entry, hash, rcpt);
    delivery_id_code(other, key, entry, hash, "other@example.org");
    int n = snprintf(line, sizeof line, "%s\r\n %s\r\n\t%s", entry, other, code);
    verify(key, line);
    for (size_t i = 0; i + 1 < size && i < 10; i += 2)
        line[data[i] % (unsigned)n] = data[i + 1] == 0 ? 'x' : (char)data[i + 1];
    char *copy = strdup(line); /* of its own size, so that a byte too many is seen */
    verify(key, copy);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct delivery_key key = {.size = 32}, read;
    if (size == 0)
        return 0;
    begin_library();
    if (data[0] % 4 == 0)
        changed_line(&key, data + 1, size - 1);
    char *value = strndup((const char *)data + 1, size - 1);
    verify(&key, value);
    free(value);
    (void)delivery_id_is_trace((const char *)data + 1, size - 1);
    if (delivery_key_parse(&read, data + 1, size - 1))
        require(read.size >= DELIVERY_KEY_MIN && read.size <= DELIVERY_KEY_MAX &&
                    sum(read.bytes, read.size) < SIZE_MAX,
                "a key out of bounds");
    return 0;
}
