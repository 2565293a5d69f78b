/* log_record - checks a record's size, and gives what is in it. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/logs/log_record.h"
#include "dovecot-plugin/worker/session/session.h"

#include <mail-types.h>

bool log_record_keyword(const struct mail_transaction_header *hdr, const void *data,
                        struct log_keyword *k)
{
    const struct mail_transaction_keyword_update *rec = data;
    if (hdr->size < sizeof *rec || rec->name_size > hdr->size - sizeof *rec)
        return FALSE;
    size_t at = (sizeof *rec + rec->name_size + 3) & ~(size_t)3;
    k->name = (const char *)(rec + 1);
    k->name_len = rec->name_size;
    k->set = rec->modify_type == MODIFY_ADD;
    k->uids = CONST_PTR_OFFSET(data, I_MIN(at, hdr->size));
    k->n = at < hdr->size ? (hdr->size - at) / (2 * sizeof *k->uids) : 0;
    return TRUE;
}

/* The keys, a NUL, and from the next multiple of 4 on the time of each, with the value's length
 * behind it where it was set. */
void log_record_attributes(const struct mail_transaction_header *hdr, const void *data,
                           struct log_attributes *a)
{
    i_zero(a);
    a->data = data;
    a->size = hdr->size;
    while (a->end < a->size && a->data[a->end] != '\0') {
        const char *nul = memchr(a->data + a->end, '\0', a->size - a->end);
        if (nul == NULL)
            break; /* a key that is cut */
        a->end = (size_t)(nul - a->data) + 1;
    }
    a->value = (a->end + 1 + 3) & ~(size_t)3;
}

bool log_record_attribute(struct log_attributes *a, const char **key_r, uint32_t *written_r)
{
    *written_r = 0;
    if (a->at >= a->end)
        return FALSE;
    *key_r = a->data + a->at;
    a->at += strlen(*key_r) + 1; /* the keys before end have their NULs */
    if (a->value <= a->size && a->size - a->value >= sizeof *written_r)
        memcpy(written_r, a->data + a->value, sizeof *written_r);
    a->value += **key_r == '+' ? 2 * sizeof *written_r : sizeof *written_r;
    return TRUE;
}
