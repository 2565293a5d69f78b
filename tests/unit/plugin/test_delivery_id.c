#include "tests.h"

#include "../../../dovecot-plugin/compat.h"
#include "../../../dovecot-plugin/plugin/delivery_id.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRY "00112233445566778899aabbccddeeff"
/* Python: hmac.new(bytes(range(32)), b"dovelane-id:" + ENTRY, "sha256").hexdigest()[:32] */
#define MAC "349ea0d817746c435a566ad7f7e85c07"
/* Python: hashlib.sha256(b"dovelane-guid:" + ENTRY + b":user@example.org").hexdigest()[:32] */
#define GUID "ca5e56381c63062c6498476189039d8c"

static struct delivery_key key;

static void setup(void)
{
    key.size = 32;
    for (size_t i = 0; i < key.size; i++)
        key.bytes[i] = (unsigned char)i;
}

START_TEST(test_mac_and_guid_are_as_specified)
{
    char mac[DELIVERY_ID_HEX + 1], guid[DELIVERY_ID_HEX + 1], other[DELIVERY_ID_HEX + 1];

    delivery_id_mac(mac, &key, ENTRY);
    ck_assert_str_eq(mac, MAC);
    delivery_id_guid(guid, ENTRY, "user@example.org");
    ck_assert_str_eq(guid, GUID);
    delivery_id_guid(other, ENTRY, "user+x@example.org");
    ck_assert_str_ne(guid, other);
}
END_TEST

START_TEST(test_a_valid_header_gives_its_entry)
{
    char entry[DELIVERY_ID_HEX + 1];

    ck_assert(delivery_id_verify(entry, &key, ENTRY " " MAC));
    ck_assert_str_eq(entry, ENTRY);
    ck_assert(delivery_id_verify(entry, &key, "  " ENTRY "\r\n\t" MAC " "));
}
END_TEST

START_TEST(test_anything_else_has_no_authority)
{
    static const char *const values[] = {
        "", " ", ENTRY, ENTRY " ", ENTRY MAC, ENTRY " " MAC "0", ENTRY " " MAC " x", "x " ENTRY " " MAC, MAC " " ENTRY,
        ENTRY " 349ea0d817746c435a566ad7f7e85c0", ENTRY " 349ea0d817746c435a566ad7f7e85c08",
        "00112233445566778899AABBCCDDEEFF " MAC, ENTRY " 349EA0D817746C435A566AD7F7E85C07",
        "00112233445566778899aabbccddeefe " MAC, ENTRY " 00000000000000000000000000000000",
    };
    char entry[DELIVERY_ID_HEX + 1];

    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
        ck_assert_msg(!delivery_id_verify(entry, &key, values[i]), "%s", values[i]);
    key.bytes[31] ^= 1;
    ck_assert(!delivery_id_verify(entry, &key, ENTRY " " MAC));
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
    static const mode_t good[] = {0400, 0600, 0640, 0440}, bad[] = {0644, 0604, 0602, 0620, 0601, 0660};
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
    tcase_add_test(t, test_mac_and_guid_are_as_specified);
    tcase_add_test(t, test_a_valid_header_gives_its_entry);
    tcase_add_test(t, test_anything_else_has_no_authority);
    tcase_add_test(t, test_a_key_is_raw_or_hex);
    tcase_add_test(t, test_a_key_file_is_for_its_owner_only);
    return t;
}
