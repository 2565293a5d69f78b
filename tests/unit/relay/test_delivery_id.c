#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "relay/smtp/delivery_id.h"
#include "tests/unit/relay/tests.h"

/* Python: hmac.new(bytes(range(32)), f"dovelane-id 2:{ENTRY}:{HASH}:user@example.org".encode(),
 * "sha256").hexdigest()[:32], HASH being that of "Subject: a\n\nb\n"; the plugin's test has the
 * same. */
#define CODE "e2e9ffe9cfedf11738326f56c2cb85cb"
#define GUID "6976db148a860ed78b862f91f4d1c4d5"
#define GUID_OTHER "473645bcb7f5826b79647b153699f2fb"
#define OTHER "dff8412872c9883ba7881af6db53f069" /* of o@x */

static const unsigned char id[ENTRYID_LEN] = {0,    0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                              0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
static char *error;

static struct delivery_key *key_of(const void *data, size_t size, mode_t mode)
{
    char path[] = "/tmp/dovelane-key-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_eq(write(fd, data, size), (ssize_t)size);
    fchmod(fd, mode);
    close(fd);
    free(error);
    error = NULL;
    struct delivery_key *k = delivery_key_read(path, &error);
    unlink(path);
    ck_assert((k != NULL) == (error == NULL));
    return k;
}

static void expect(struct delivery_key *k)
{
    static const char *const forms[] = {"Subject: a\r\n\r\nb\r\n", "Subject: a\n\nb\n",
                                        "Subject: a\r\n\r\nb"};
    static const char *const address[] = {"User@Example.ORG", "o@x", "o@x"};
    ck_assert_msg(k != NULL, "%s", error);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char *line = delivery_id_header(k, id, forms[i], strlen(forms[i]), address, 3);
        ck_assert_str_eq(line, "Dovelane-Id: 00112233445566778899aabbccddeeff\r\n " CODE " " OTHER
                               "\r\n " OTHER "\r\n");
        free(line);
    }
    char *other = delivery_id_header(k, id, "Subject: a\r\r\n\r\nb\r\n", 18, address, 1);
    ck_assert(!strstr(other, CODE));
    free(other);
    delivery_key_free(k);
}

START_TEST(test_the_line_is_the_plugins)
{
    unsigned char raw[32];
    for (unsigned i = 0; i < sizeof raw; i++)
        raw[i] = (unsigned char)i;
    expect(key_of(raw, sizeof raw, 0640));
    const char *hex = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F\n";
    expect(key_of(hex, strlen(hex), 0400));
}
END_TEST

static void refuse(const void *data, size_t size, mode_t mode, const char *why)
{
    ck_assert(!key_of(data, size, mode));
    ck_assert_msg(strstr(error, why) != NULL, "%s", error);
}

/* tests/support/stack/delivery_id.py: guid("00112233...", b"Subject: a\n\nb\n", "user@example.org")
 */
START_TEST(test_the_guid_is_the_plugins)
{
    static const char *const address[] = {"user@example.org", "o@x"};
    char guid[2][DELIVERY_GUID];
    delivery_id_guids(id, "Subject: a\r\n\r\nb", 15, address, 2, guid);
    ck_assert_str_eq(guid[0], GUID);
    ck_assert_str_eq(guid[1], GUID_OTHER);
}
END_TEST

START_TEST(test_a_key_that_is_none_is_refused)
{
    static char large[2 * 1024 + 3];
    memset(large, 'x', sizeof large);
    refuse("0123456789abcde", 15, 0600, "16 to 1024 bytes");
    refuse(large, 1025, 0600, "16 to 1024 bytes");
    refuse(large, sizeof large, 0600, "16 to 1024 bytes");
    refuse("0123456789abcdef", 16, 0644, "it has mode 0644");
    refuse("0123456789abcdef", 16, 0660, "it has mode 0660");
    free(error);
    error = NULL;
    ck_assert(!delivery_key_read("/does/not/exist", &error) &&
              strstr(error, "/does/not/exist: No such file"));
    free(error);
    error = NULL;
}
END_TEST

TCase *delivery_id_tests(void)
{
    TCase *t = tcase_create("delivery_id");
    tcase_add_test(t, test_the_line_is_the_plugins);
    tcase_add_test(t, test_the_guid_is_the_plugins);
    tcase_add_test(t, test_a_key_that_is_none_is_refused);
    return t;
}
