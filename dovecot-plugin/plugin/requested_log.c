/* requested_log - see requested_log.h */
#include "../compat.h"

#include "requested_log.h"

#include <errno.h>
#include <fcntl.h>
#include <mail-index-util.h>
#include <mail-transaction-log.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void take_requests(uint32_t type, const uint8_t *data, size_t size, requested_fn *fn, void *arg)
{
    struct mail_transaction_expunge_guid rec;

    if ((type & (MAIL_TRANSACTION_EXTERNAL | MAIL_TRANSACTION_SYNC)) != 0 ||
        (type & MAIL_TRANSACTION_TYPE_MASK) != (MAIL_TRANSACTION_EXPUNGE_GUID | MAIL_TRANSACTION_EXPUNGE_PROT))
        return;
    for (; size >= sizeof rec; data += sizeof rec, size -= sizeof rec) {
        memcpy(&rec, data, sizeof rec);
        fn(arg, rec.uid, rec.guid_128);
    }
}

static void take_log(const uint8_t *log, size_t size, uint32_t indexid, requested_fn *fn, void *arg)
{
    struct mail_transaction_log_header head;
    struct mail_transaction_header rec;

    if (size < MAIL_TRANSACTION_LOG_HEADER_MIN_SIZE)
        return;
    i_zero(&head);
    memcpy(&head, log, I_MIN(size, sizeof head));
    if (head.major_version != MAIL_TRANSACTION_LOG_MAJOR_VERSION || head.hdr_size < MAIL_TRANSACTION_LOG_HEADER_MIN_SIZE ||
        (indexid != 0 && head.indexid != indexid))
        return;
    for (size_t at = head.hdr_size; at < size && size - at >= sizeof rec;) {
        memcpy(&rec, log + at, sizeof rec);
        size_t n = mail_index_offset_to_uint32(rec.size); /* with its header; 0: not written to its end */
        if (n < sizeof rec || n > size - at)
            return;
        take_requests(rec.type, log + at + sizeof rec, n - sizeof rec, fn, arg);
        at += n;
    }
}

int requested_log_read(const char *path, uint32_t indexid, requested_fn *fn, void *arg)
{
    struct stat st;
    void *log = MAP_FAILED;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), ret = -1;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        if (st.st_size == 0)
            ret = 0;
        else if ((log = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) != MAP_FAILED) {
            take_log(log, (size_t)st.st_size, indexid, fn, arg);
            munmap(log, (size_t)st.st_size);
            ret = 0;
        }
    }
    if (fd >= 0)
        i_close_fd(&fd);
    return ret;
}
