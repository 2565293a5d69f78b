/* streams - Dovecot's streams over a stub. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/stub/streams.h"

#include <buffer.h>
#include <errno.h>
#include <istream-crlf.h>
#include <istream-private.h>
#include <ostream-private.h>
#include <string.h>

/* --- in --------------------------------------------------------------------------------------- */

struct stub_istream {
    struct istream_private istream;
    struct stub stub;
    buffer_t *head;
    bool crlf;                    /* how its lines end */
    struct istream *came, *whole; /* the second: with such lines; its place is the first one's */
    stub_fetch_fn *fetch;
    void *context;
};

static void close_whole(struct stub_istream *s)
{
    i_stream_unref(&s->whole);
    i_stream_unref(&s->came);
}

static void stub_istream_close(struct iostream_private *stream, bool close_parent ATTR_UNUSED)
{
    close_whole(container_of(stream, struct stub_istream, istream.iostream));
}

static void stub_istream_destroy(struct iostream_private *stream)
{
    struct stub_istream *s = container_of(stream, struct stub_istream, istream.iostream);

    close_whole(s);
    buffer_free(&s->head);
    i_stream_free_buffer(&s->istream);
}

/* Lines may be converted in one direction only. */
static void begin_whole(struct stub_istream *s)
{
    i_stream_unref(&s->whole);
    i_stream_seek(s->came, 0);
    s->whole = s->crlf ? i_stream_create_crlf(s->came) : i_stream_create_lf(s->came);
}

static int fetch(struct stub_istream *s, const char **error_r)
{
    if (s->came != NULL)
        return 0;
    *error_r = "only its header is held at this site";
    if (s->fetch == NULL || (s->came = s->fetch(s->context, &s->stub, error_r)) == NULL)
        return -1;
    begin_whole(s);
    return 0;
}

static ssize_t fail(struct stub_istream *s, int error, const char *text)
{
    io_stream_set_error(&s->istream.iostream, "%s", text);
    s->istream.istream.stream_errno = error;
    return -1;
}

/* What follows at that place, at least a byte; 0: the end; -1 */
static int next_bytes(struct stub_istream *s, uoff_t at, const unsigned char **data, size_t *n)
{
    const char *error;

    if (s->came == NULL && at < s->head->used) {
        *data = CONST_PTR_OFFSET(s->head->data, at);
        *n = s->head->used - at;
        return 1;
    }
    if (at >= s->stub.stored)
        return 0;
    if (fetch(s, &error) < 0)
        return (int)fail(s, EIO, error);
    if (s->whole->v_offset > at)
        begin_whole(s);
    i_stream_seek(s->whole, at);
    if (i_stream_read_more(s->whole, data, n) > 0) {
        *n = I_MIN(*n, s->stub.stored - at);
        return 1;
    }
    return (int)fail(s, EIO, "what another site gave is shorter than this mail");
}

static ssize_t stub_istream_read(struct istream_private *stream)
{
    struct stub_istream *s = container_of(stream, struct stub_istream, istream);
    const unsigned char *data;
    size_t n, room;
    int r = next_bytes(s, stream->istream.v_offset + (stream->pos - stream->skip), &data, &n);

    if (r <= 0) {
        stream->istream.eof = r == 0;
        return -1;
    }
    if (!i_stream_try_alloc(stream, n, &room))
        return -2;
    n = I_MIN(n, room);
    memcpy(stream->w_buffer + stream->pos, data, n);
    stream->pos += n;
    return (ssize_t)n;
}

static void stub_istream_seek(struct istream_private *stream, uoff_t v_offset,
                              bool mark ATTR_UNUSED)
{
    stream->istream.v_offset = v_offset;
    stream->skip = stream->pos = 0;
}

static int stub_istream_stat(struct istream_private *stream, bool exact ATTR_UNUSED)
{
    struct stub_istream *s = container_of(stream, struct stub_istream, istream);

    stream->statbuf.st_size = (off_t)s->stub.stored;
    return 0;
}

struct istream *stub_istream_create(const struct stub *stub, const void *head, size_t n,
                                    stub_fetch_fn *fetch_it, void *context)
{
    struct stub_istream *s = i_new(struct stub_istream, 1);
    const unsigned char *lf = memchr(head, '\n', n);

    s->stub = *stub;
    s->head = buffer_create_dynamic(default_pool, n);
    buffer_append(s->head, head, n);
    s->crlf = lf != NULL && lf > (const unsigned char *)head && lf[-1] == '\r';
    s->fetch = fetch_it;
    s->context = context;
    s->istream.max_buffer_size = IO_BLOCK_SIZE;
    s->istream.read = stub_istream_read;
    s->istream.seek = stub_istream_seek;
    s->istream.stat = stub_istream_stat;
    s->istream.iostream.close = stub_istream_close;
    s->istream.iostream.destroy = stub_istream_destroy;
    s->istream.istream.readable_fd = FALSE;
    s->istream.istream.blocking = TRUE;
    s->istream.istream.seekable = TRUE;
    return compat_istream_create_hiding(&s->istream);
}

int stub_istream_fetch(struct istream *in, const char **error_r)
{
    struct stub_istream *s = container_of(in->real_stream, struct stub_istream, istream);

    return fetch(s, error_r);
}

/* --- out -------------------------------------------------------------------------------------- */

struct stub_ostream {
    struct ostream_private ostream;
    struct stub stub;
    struct stub_key key;
    buffer_t *head; /* what was written first */
    size_t most;    /* so much of it is kept: STUB_BEHIND bytes behind the header; 0: which does
                       not end yet */
    bool written;
};

static void stub_ostream_destroy(struct iostream_private *stream)
{
    struct stub_ostream *s = container_of(stream, struct stub_ostream, ostream.iostream);

    buffer_free(&s->head);
    o_stream_unref(&s->ostream.parent);
}

static void take(struct stub_ostream *s, const void *data, size_t n)
{
    size_t end;

    if (s->most > 0 && s->head->used == s->most)
        return;
    buffer_append(s->head, data, n);
    end = s->most > 0 ? 0 : stub_header_size(s->head->data, s->head->used);
    if (end > 0 && end <= STUB_HEADER_MAX)
        s->most = end + STUB_BEHIND;
    if (s->most > 0 && s->head->used > s->most)
        buffer_set_used_size(s->head, s->most);
}

static int refuse(struct stub_ostream *s)
{
    io_stream_set_error(&s->ostream.iostream, "a mail that is to be stored without its body has a "
                                              "header that does not end, or is too long");
    s->ostream.ostream.stream_errno = EINVAL;
    return -1;
}

static ssize_t stub_ostream_sendv(struct ostream_private *stream, const struct const_iovec *iov,
                                  unsigned int count)
{
    struct stub_ostream *s = container_of(stream, struct stub_ostream, ostream);
    ssize_t n = 0;

    for (unsigned i = 0; i < count; i++) {
        take(s, iov[i].iov_base, iov[i].iov_len);
        if (s->most == 0 && s->head->used > STUB_HEADER_MAX)
            return refuse(s);
        n += (ssize_t)iov[i].iov_len;
    }
    stream->ostream.offset += (uoff_t)n;
    return n;
}

static int write_stub(struct stub_ostream *s)
{
    char line[STUB_LINE];

    if (s->most == 0)
        return refuse(s);
    s->written = TRUE;
    s->stub.stored = s->ostream.ostream.offset;
    stub_write(line, &s->stub, &s->key, s->head->data, s->head->used);
    const struct const_iovec iov[] = {{line, sizeof(line)}, {s->head->data, s->head->used}};
    if (o_stream_sendv(s->ostream.parent, iov, N_ELEMENTS(iov)) ==
        (ssize_t)(sizeof(line) + s->head->used))
        return 0;
    o_stream_copy_error_from_parent(&s->ostream);
    return -1;
}

static int stub_ostream_flush(struct ostream_private *stream)
{
    struct stub_ostream *s = container_of(stream, struct stub_ostream, ostream);

    if (stream->finished && !s->written && write_stub(s) < 0)
        return -1;
    return o_stream_flush_parent(stream);
}

struct ostream *stub_ostream_create(struct ostream *out, const struct stub *stub,
                                    const struct stub_key *key)
{
    struct stub_ostream *s = i_new(struct stub_ostream, 1);

    s->stub = *stub;
    s->key = *key;
    s->head = buffer_create_dynamic(default_pool, 4096);
    s->ostream.sendv = stub_ostream_sendv;
    s->ostream.flush = stub_ostream_flush;
    s->ostream.iostream.destroy = stub_ostream_destroy;
    return o_stream_create(&s->ostream, out, o_stream_get_fd(out));
}
