/* aliases - mails whose GUID in the mailbox is another one than their message's: rows of
 * ORSET_T_META.
 *
 *     "alias", GUID in the mailbox   -> GUID of the message, its text   joined by its bytes (match_mails.h)
 *     "parted", GUID of the message  -> GUID in the mailbox             orset_local_part() */
#include "dovecot-plugin/orset/state/aliases.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/message.h"

#include <string.h>

static void alias_key(struct orset_key *k, const uint8_t guid[16])
{
    k->n = 0;
    orset_key_put(k, "alias", 5);
    orset_key_put(k, guid, 16);
}

int orset_alias_get(struct orset *os, const uint8_t guid[16], struct alias *a)
{
    struct orset_key k;
    struct orset_reader r;
    if (os->aliases == 0)
        return 0;
    alias_key(&k, guid);
    int got = orset_row_get(os, ORSET_T_META, &k, &r);
    if (got <= 0)
        return got;
    const uint8_t *to = orset_read_bytes(&r, 16),
                  *text = orset_read_text(&r, ORSET_GUID_TEXT_MAX, &a->text_len);
    if (r.bad || !orset_guid_text_valid(text, a->text_len))
        return orset_corrupt(os, "an alias");
    memcpy(a->guid, to, 16);
    memcpy(a->text, text, a->text_len);
    return 1;
}

static void parted_key(struct orset_key *k, const uint8_t guid[16])
{
    k->n = 0;
    orset_key_put(k, "parted", 6);
    orset_key_put(k, guid, 16);
}

int orset_parted_put(struct orset *os, const uint8_t guid[16], const uint8_t there[16])
{
    struct orset_key k;
    parted_key(&k, guid);
    os->row.len = 0;
    orset_buf_put(&os->row, there, 16);
    return orset_row_put(os, ORSET_T_META, &k, &os->row);
}

int orset_guid_is(struct orset *os, const uint8_t guid[16], const uint8_t there[16])
{
    struct alias a;
    struct orset_key k;
    struct orset_reader row;
    if (memcmp(guid, there, 16) == 0)
        return 1;
    int r = orset_alias_get(os, there, &a);
    if (r < 0 || (r > 0 && memcmp(guid, a.guid, 16) == 0))
        return r;
    parted_key(&k, guid);
    if ((r = orset_row_get(os, ORSET_T_META, &k, &row)) <= 0)
        return r;
    const uint8_t *is = orset_read_bytes(&row, 16);
    return is == NULL ? orset_corrupt(os, "a parted GUID") : memcmp(is, there, 16) == 0;
}

int orset_alias_put(struct orset *os, const uint8_t guid[16], const struct message *to)
{
    struct orset_key k;
    struct alias there;
    int got = orset_alias_get(os, guid, &there);
    if (got || memcmp(guid, to->p.facts.guid, 16) == 0)
        return got < 0 ? got : 0;
    alias_key(&k, guid);
    os->row.len = 0;
    orset_buf_put(&os->row, to->p.facts.guid, 16);
    orset_buf_text(&os->row, to->guid_text, to->p.facts.guid_text_len);
    os->aliases++;
    os->meta_dirty = true;
    return orset_row_put(os, ORSET_T_META, &k, &os->row);
}
