#include "lib/base/assert.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"

void assert_failed(const char *file, int line, const char *holds)
{
    while (!strncmp(file, "../", 3)) /* the build's folder is in the source's */
        file += 3;
    log_error("%s:%d: this must hold, and does not: %s", file, line, holds);
    abort();
}
