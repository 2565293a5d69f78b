#include "ctl/remark.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctl/out.h"
#include "ctl/row.h"

static void show_remark(const json_t *row)
{
    out("%s\n", row_get_text(row, "message"));
}

void remark(const char *node, const char *code, const char *format, ...)
{
    static const struct out_kind remarks = {"remarks", show_remark};
    va_list ap;
    char *message = NULL;
    va_start(ap, format);
    if (vasprintf(&message, format, ap) < 0)
        abort();
    va_end(ap);
    json_t *row = row_new();
    row_add_text(row, "node", node);
    row_add_text(row, "code", code);
    row_add_text(row, "message", message);
    out_row(&remarks, row);
    free(message);
}
