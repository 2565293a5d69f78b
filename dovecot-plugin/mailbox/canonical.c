#include "dovecot-plugin/mailbox/canonical.h"

static const unsigned char CRS[] =
    "\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r\r";

static bool give_crs(struct canonical *c, const unsigned char **data_r, size_t *size_r)
{
    *data_r = CRS;
    *size_r = I_MIN(c->give, sizeof CRS - 1);
    c->give -= *size_r;
    return TRUE;
}

/* Up to the first CR that may have to go: one that another CR, or nothing that is here yet,
 * follows. */
static size_t plain(const unsigned char *data, size_t size)
{
    const unsigned char *two = memmem(data, size, "\r\r", 2);
    if (two != NULL)
        return (size_t)(two - data);
    return data[size - 1] == '\r' ? size - 1 : size;
}

bool canonical_next(struct canonical *c, const unsigned char **data_r, size_t *size_r)
{
    const unsigned char *data;
    size_t size, n = 0;
    i_stream_skip(c->in, c->skip);
    c->skip = 0;
    if (c->give > 0)
        return give_crs(c, data_r, size_r);
    while (i_stream_read_more(c->in, &data, &size) > 0) {
        if (c->crs == 0 && (n = c->as_it_is ? size : plain(data, size)) > 0) {
            *data_r = data;
            *size_r = c->skip = n;
            return TRUE;
        }
        for (n = 0; n < size && data[n] == '\r'; n++)
            ;
        c->crs += n;
        bool line_ends = n < size && data[n] == '\n', known = n < size;
        i_stream_skip(c->in, n);
        if (!known)
            continue;
        c->dropped = c->dropped || (line_ends && c->crs > 1);
        c->give = line_ends ? 1 : c->crs;
        c->crs = 0;
        return give_crs(c, data_r, size_r);
    }
    c->dropped = c->dropped || c->crs > 0;
    c->crs = 0;
    return FALSE;
}
