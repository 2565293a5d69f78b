/* config_text - a configuration as a test writes it, read as a file is. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/config/config.h"
#include "tests/unit/lib/tests.h"

struct config *config_of_text(const char *text, char **error_r)
{
    char path[] = "/tmp/dovelane-config-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    *error_r = NULL;
    struct config *c = config_read(path, error_r);
    unlink(path);
    return c;
}
