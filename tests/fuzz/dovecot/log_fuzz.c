/* log_fuzz - an index's log as its user may have written it: a head, records of every type with any
 * bytes and sizes, and a file that is none.
 *
 * Each record's data is read from a copy of its own size, so that a byte too many is seen. */
#include "tests/fuzz/dovecot/fuzz.h"

#include "dovecot-plugin/indexlog/log_file.h"
#include "dovecot-plugin/worker/logs/log_record.h"

#include <mail-index-util.h>
#include <mail-transaction-log-private.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[100];

static void remove_file(void)
{
    unlink(path);
}

static const uint32_t type[] = {MAIL_TRANSACTION_EXPUNGE | MAIL_TRANSACTION_EXPUNGE_PROT,
                                MAIL_TRANSACTION_EXPUNGE_GUID | MAIL_TRANSACTION_EXPUNGE_PROT,
                                MAIL_TRANSACTION_APPEND,
                                MAIL_TRANSACTION_FLAG_UPDATE,
                                MAIL_TRANSACTION_KEYWORD_UPDATE,
                                MAIL_TRANSACTION_KEYWORD_RESET,
                                MAIL_TRANSACTION_ATTRIBUTE_UPDATE,
                                MAIL_TRANSACTION_BOUNDARY,
                                MAIL_TRANSACTION_MODSEQ_UPDATE,
                                MAIL_TRANSACTION_EXT_INTRO,
                                MAIL_TRANSACTION_HEADER_UPDATE,
                                MAIL_TRANSACTION_EXT_REC_UPDATE};

/* Records: type, size and a byte of what is wrong, then the data. */
static size_t make_file(const uint8_t *data, size_t size, uint8_t *out, size_t room)
{
    struct mail_transaction_log_header head = {.major_version = MAIL_TRANSACTION_LOG_MAJOR_VERSION,
                                               .minor_version = MAIL_TRANSACTION_LOG_MINOR_VERSION,
                                               .hdr_size = sizeof head,
                                               .indexid = 5,
                                               .file_seq = 3,
                                               .initial_modseq = 7};
    size_t n = sizeof head, at = 0;
    memcpy(out, &head, sizeof head);
    while (at + 3 <= size) {
        size_t len = data[at + 1] * 4u % 200, have = I_MIN(len, size - at - 3);
        struct mail_transaction_header hdr = {
            .type = type[data[at] % N_ELEMENTS(type)] |
                    (data[at] & 0x80 ? MAIL_TRANSACTION_EXTERNAL : 0),
            .size = mail_index_uint32_to_offset((uint32_t)(sizeof hdr + len))};
        uint8_t wrong = data[at + 2];
        if (wrong == 1)
            hdr.size = wrong;
        else if (wrong == 2)
            hdr.size = mail_index_uint32_to_offset((uint32_t)(sizeof hdr + len + data[at] * 4u));
        else if (wrong == 3)
            hdr.type = data[at] * 0x01010101u;
        if (n + sizeof hdr + len > room)
            break;
        memcpy(out + n, &hdr, sizeof hdr);
        n += sizeof hdr;
        memset(out + n, 0, len);
        memcpy(out + n, data + at + 3, have);
        n += len;
        at += 3 + have;
    }
    return n;
}

static void read_record(const struct mail_transaction_header *hdr, const void *data)
{
    struct log_keyword k;
    struct log_attributes a;
    const char *key;
    uint32_t written;
    if (log_record_keyword(hdr, data, &k)) {
        sum(k.name, k.name_len);
        sum(k.uids, k.n * 2 * sizeof *k.uids);
    }
    log_record_attributes(hdr, data, &a);
    size_t all = 0;
    while (log_record_attribute(&a, &key, &written))
        all += strlen(key) + 1;
    require(all <= hdr->size, "keys that are longer than their record");
    const struct mail_transaction_expunge_guid *rec = data;
    sum(rec, LOG_RECORD_ENTRIES(hdr, rec) * sizeof *rec);
}

static void read_file(void)
{
    struct log_file f;
    if (log_file_open(&f, path) < 0)
        return;
    while (log_file_next(&f)) {
        require(f.data >= f.bytes && f.data + f.hdr.size <= f.bytes + f.size,
                "a record outside the file");
        (void)log_file_requests(&f);
        (void)log_file_speaks(&f);
        uint32_t *copy = malloc(I_MAX(f.hdr.size, 1));
        memcpy(copy, f.data, f.hdr.size);
        read_record(&f.hdr, copy);
        free(copy);
    }
    log_file_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[1 << 16];
    struct stat st;
    if (size == 0)
        return 0;
    begin_library();
    if (*path == '\0') {
        snprintf(path, sizeof path, "%s/dovelane-fuzz-log-%ld",
                 stat("/dev/shm", &st) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
        atexit(remove_file);
    }
    size_t n = I_MIN(size - 1, sizeof bytes);
    if (data[0] % 8 != 0)
        n = make_file(data + 1, size - 1, bytes, sizeof bytes);
    else
        memcpy(bytes, data + 1, n);
    FILE *f = fopen(path, "w");
    require(f != NULL && fwrite(bytes, 1, n, f) == n && fclose(f) == 0, "write");
    read_file();
    return 0;
}
