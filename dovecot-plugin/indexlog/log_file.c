/* log_file - opens a log, checks its header and each record's size, and gives the next one. */
#include "dovecot-plugin/indexlog/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <mail-index-util.h>
#include <mail-transaction-log-private.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST (64 * 1024 * 1024) /* bytes; Dovecot rotates at 1 MB */
/* behind the last byte, for the library's look at a record that is cut */
#define SPARE 64

static int read_all(struct log_file *f, int fd)
{
    ssize_t n;
    f->bytes = i_malloc(f->size + SPARE);
    for (size_t at = 0; at < f->size; at += (size_t)n) {
        if ((n = read(fd, f->bytes + at, f->size - at)) < 0)
            return -1;
        if (n == 0)
            f->size = at;
    }
    memcpy(&f->head, f->bytes, I_MIN(f->size, sizeof f->head));
    if (f->size < MAIL_TRANSACTION_LOG_HEADER_MIN_SIZE ||
        f->head.major_version != MAIL_TRANSACTION_LOG_MAJOR_VERSION ||
        f->head.hdr_size < MAIL_TRANSACTION_LOG_HEADER_MIN_SIZE ||
        f->head.hdr_size % sizeof(uint32_t) != 0) {
        errno = EINVAL;
        return -1;
    }
    f->next = f->head.hdr_size;
    f->modseq = f->head.initial_modseq;
    return 0;
}

int log_file_open(struct log_file *f, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), ret = -1;

    i_zero(f);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0) {
        errno = EFBIG;
        if (!S_ISREG(st.st_mode))
            errno = EINVAL;
        else if (st.st_size <= MOST) {
            f->size = (size_t)st.st_size;
            ret = read_all(f, fd);
        }
    }
    int error = errno;
    i_close_fd(&fd);
    if (ret < 0)
        log_file_close(f);
    errno = error;
    return ret;
}

bool log_file_next(struct log_file *f)
{
    struct mail_transaction_header raw;

    if (f->next > f->size || f->size - f->next < sizeof raw)
        return FALSE;
    memcpy(&raw, f->bytes + f->next, sizeof raw);
    /* with its header; 0: not written to its end */
    size_t n = mail_index_offset_to_uint32(raw.size);
    if (n < sizeof raw || n > f->size - f->next || n % sizeof(uint32_t) != 0)
        return FALSE;
    f->data = f->bytes + f->next + sizeof raw;
    f->before = f->modseq;
    mail_transaction_update_modseq(&raw, f->data, &f->modseq,
                                   MAIL_TRANSACTION_LOG_HDR_VERSION(&f->head));
    f->hdr.size = (uint32_t)(n - sizeof raw);
    f->hdr.type = raw.type;
    if ((raw.type & (MAIL_TRANSACTION_EXPUNGE | MAIL_TRANSACTION_EXPUNGE_GUID)) != 0 &&
        (raw.type & MAIL_TRANSACTION_EXPUNGE_PROT) == MAIL_TRANSACTION_EXPUNGE_PROT)
        f->hdr.type &= ~(uint32_t)MAIL_TRANSACTION_EXPUNGE_PROT;
    f->next += n;
    return TRUE;
}

void log_file_close(struct log_file *f)
{
    i_free(f->bytes);
}

bool log_file_speaks(const struct log_file *f)
{
    uint32_t type = f->hdr.type & MAIL_TRANSACTION_TYPE_MASK;

    return log_file_requests(f) ||
           ((f->hdr.type & (MAIL_TRANSACTION_EXTERNAL | MAIL_TRANSACTION_SYNC)) == 0 &&
            (type == MAIL_TRANSACTION_FLAG_UPDATE || type == MAIL_TRANSACTION_KEYWORD_UPDATE));
}

bool log_file_requests(const struct log_file *f)
{
    uint32_t type = f->hdr.type & MAIL_TRANSACTION_TYPE_MASK;

    return (f->hdr.type & (MAIL_TRANSACTION_EXTERNAL | MAIL_TRANSACTION_SYNC)) == 0 &&
           (type == MAIL_TRANSACTION_EXPUNGE || type == MAIL_TRANSACTION_EXPUNGE_GUID);
}
