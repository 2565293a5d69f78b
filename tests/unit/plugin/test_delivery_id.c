#include "tests/unit/plugin/tests.h"

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/protocol/delivery_id.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRY "00112233445566778899aabbccddeeff"
/* Python: hashlib.sha256(b"Subject: a\n\nb\n").hexdigest() */
#define HASH "26ce9c62746373e3389c9d794ed58c4c27ec13b17b4005881ad9423caee49e44"
/* Python: hmac.new(bytes(range(32)), f"dovelane-id 2:{ENTRY}:{HASH}:user@example.org".encode(),
 * "sha256").hexdigest()[:32] */
#define CODE "e2e9ffe9cfedf11738326f56c2cb85cb"
#define OTHER "dff8412872c9883ba7881af6db53f069" /* of o@x */
/* Python: d = hashlib.sha256(f"dovelane-guid
 * 2:{ENTRY}:{HASH}:user@example.org".encode()).digest()[:12]; (d +
 * hashlib.sha256(b"dovelane-guid check:" + d).digest()[:4]).hex() */
#define GUID "6976db148a860ed78b862f91f4d1c4d5"
#define USER "user@example.org"

static struct delivery_key key;

static void setup(void)
{
    key.size = 32;
    for (size_t i = 0; i < key.size; i++)
        key.bytes[i] = (unsigned char)i;
}

START_TEST(test_code_and_guid_are_as_specified)
{
    char code[DELIVERY_ID_HEX + 1], guid[DELIVERY_ID_HEX + 1], other[DELIVERY_ID_HEX + 1],
        hash[] = HASH;
    unsigned char bytes[DELIVERY_ID_HEX / 2];

    delivery_id_code(code, &key, ENTRY, HASH, "User@EXAMPLE.org");
    ck_assert_str_eq(code, CODE);
    delivery_id_guid(guid, ENTRY, HASH, USER);
    ck_assert_str_eq(guid, GUID);
    delivery_id_guid(other, ENTRY, HASH, "user+x@example.org");
    ck_assert_str_ne(guid, other);
    hash[0] ^= 1;
    delivery_id_guid(other, ENTRY, hash, USER);
    ck_assert_str_ne(guid, other);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] =
            (unsigned char)strtoul((const char[]){guid[2 * i], guid[2 * i + 1], '\0'}, NULL, 16);
    ck_assert(delivery_id_is_guid(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] ^= 1;
        ck_assert(!delivery_id_is_guid(bytes));
        bytes[i] ^= 1;
    }
}
END_TEST

START_TEST(test_a_valid_line_gives_its_entry)
{
    static const char *const values[] = {
        ENTRY " " CODE,           " " ENTRY "\r\n\t" CODE " ",
        ENTRY " " OTHER " " CODE, ENTRY " " CODE "\n " OTHER,
        ENTRY " " CODE " " CODE,
    };
    char entry[DELIVERY_ID_HEX + 1];

    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        ck_assert_msg(delivery_id_verify(entry, &key, values[i], HASH, USER), "%s", values[i]);
        ck_assert_str_eq(entry, ENTRY);
    }
}
END_TEST

START_TEST(test_anything_else_has_no_authority)
{
    static const char *const values[] = {
        "",
        " ",
        ENTRY,
        ENTRY " ",
        ENTRY CODE,
        ENTRY " " CODE "0",
        ENTRY " " CODE " x",
        "x " ENTRY " " CODE,
        CODE " " ENTRY,
        ENTRY " " OTHER,
        ENTRY " " OTHER " " OTHER,
        ENTRY " x " CODE,
        ENTRY " " CODE CODE,
        "00112233445566778899AABBCCDDEEFF " CODE,
        "00112233445566778899aabbccddeefe " CODE,
        ENTRY " 00000000000000000000000000000000",
    };
    char entry[DELIVERY_ID_HEX + 1], shorter[] = ENTRY " " CODE, hash[] = HASH;

    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
        ck_assert_msg(!delivery_id_verify(entry, &key, values[i], HASH, USER), "%s", values[i]);
    shorter[sizeof(shorter) - 2] = '\0';
    ck_assert(!delivery_id_verify(entry, &key, shorter, HASH, USER));
    /* another recipient, other bytes, another key */
    ck_assert(!delivery_id_verify(entry, &key, ENTRY " " CODE, HASH, "other@example.org"));
    hash[63] ^= 1;
    ck_assert(!delivery_id_verify(entry, &key, ENTRY " " CODE, hash, USER));
    key.bytes[31] ^= 1;
    ck_assert(!delivery_id_verify(entry, &key, ENTRY " " CODE, HASH, USER));
}
END_TEST

START_TEST(test_what_a_delivery_adds_is_known)
{
    static const char *const lines[] = {"Return-Path: <a@b>", "received: from x", "DELIVERED-TO: x",
                                        "Dovelane-Id: x"};
    static const char *const others[] = {
        "", "Received", "Received : x", " Received: x", "X-Received: x", "Subject: Received: x"};

    for (size_t i = 0; i < N_ELEMENTS(lines); i++)
        ck_assert(delivery_id_is_trace(lines[i], strlen(lines[i])));
    for (size_t i = 0; i < N_ELEMENTS(others); i++)
        ck_assert(!delivery_id_is_trace(others[i], strlen(others[i])));
}
END_TEST

START_TEST(test_a_key_is_raw_or_hex)
{
    struct delivery_key k;
    char large[DELIVERY_KEY_MAX * 2 + 3];

    ck_assert(delivery_key_parse(&k, "000102030405060708090a0b0C0D0E0F\n", 33));
    ck_assert_uint_eq(k.size, 16);
    ck_assert_mem_eq(k.bytes, key.bytes, 16);
    /* not hex: as it is, with its line end */
    ck_assert(delivery_key_parse(&k, "correct horse battery\n", 22));
    ck_assert_uint_eq(k.size, 22);
    ck_assert_mem_eq(k.bytes, "correct horse battery\n", 22);
    /* hex of 16 characters spells 8 bytes, but is 16 raw ones */
    ck_assert(delivery_key_parse(&k, "0001020304050607", 16));
    ck_assert_uint_eq(k.size, 16);
    ck_assert(!delivery_key_parse(&k, "000102030405060", 15));
    ck_assert(!delivery_key_parse(&k, "", 0));
    memset(large, 'x', sizeof(large));
    ck_assert(delivery_key_parse(&k, large, DELIVERY_KEY_MAX));
    ck_assert(!delivery_key_parse(&k, large, DELIVERY_KEY_MAX + 1));
    memset(large, 'a', sizeof(large));
    ck_assert(delivery_key_parse(&k, large, DELIVERY_KEY_MAX * 2));
    ck_assert_uint_eq(k.size, DELIVERY_KEY_MAX);
    ck_assert(!delivery_key_parse(&k, large, DELIVERY_KEY_MAX * 2 + 2));
}
END_TEST

START_TEST(test_a_key_file_is_for_its_owner_only)
{
    static const mode_t good[] = {0400, 0600, 0640, 0440},
                        bad[] = {0644, 0604, 0602, 0620, 0601, 0660};
    char path[] = "/tmp/dovelane-key-XXXXXX";
    struct delivery_key k;
    const char *error;
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "0123456789abcdefg", 17), 17);
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        ck_assert_int_eq(fchmod(fd, good[i]), 0);
        ck_assert_msg(delivery_key_read(&k, path, &error), "%04o", (unsigned int)good[i]);
        ck_assert_uint_eq(k.size, 17);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        ck_assert_int_eq(fchmod(fd, bad[i]), 0);
        ck_assert_msg(!delivery_key_read(&k, path, &error), "%04o", (unsigned int)bad[i]);
        ck_assert_ptr_nonnull(strstr(error, path));
    }
    ck_assert_int_eq(fchmod(fd, 0600), 0);
    ck_assert_int_eq(ftruncate(fd, 15), 0);
    ck_assert(!delivery_key_read(&k, path, &error));
    ck_assert_ptr_nonnull(strstr(error, "16 to 1024"));
    close(fd);
    unlink(path);
    ck_assert(!delivery_key_read(&k, path, &error));
    ck_assert_ptr_nonnull(strstr(error, path));
    ck_assert(!delivery_key_read(&k, "/tmp", &error));
}
END_TEST

TCase *delivery_id_tests(void)
{
    TCase *t = tcase_create("delivery id");

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, test_code_and_guid_are_as_specified);
    tcase_add_test(t, test_a_valid_line_gives_its_entry);
    tcase_add_test(t, test_anything_else_has_no_authority);
    tcase_add_test(t, test_what_a_delivery_adds_is_known);
    tcase_add_test(t, test_a_key_is_raw_or_hex);
    tcase_add_test(t, test_a_key_file_is_for_its_owner_only);
    return t;
}
