/* mailbox_table - the user's mailboxes in memory, and which of them has a folder's UIDs, a GUID, a
 * name.
 *
 * A folder has one mailbox at most. A name may be that of several for a while: of one that is
 * gone and of its successor; a GUID, while a mailbox becomes another folder's. Those stand in a
 * chain behind the first, in the order in which they came. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <hash.h>

void mailbox_table_init(struct session *s)
{
    i_array_init(&s->boxes, 16);
    hash_table_create_direct(&s->by_folder, default_pool, 0);
    hash_table_create(&s->by_guid, default_pool, 0, guid_128_hash, guid_128_cmp);
    hash_table_create(&s->by_vname, default_pool, 0, str_hash, strcmp);
}

static void box_free(struct box *x)
{
    if (array_is_created(&x->moved))
        array_free(&x->moved);
    array_free(&x->quarantine);
    i_free(x->vname);
    i_free(x->moving);
    i_free(x->called);
    i_free(x);
}

void mailbox_table_clear(struct session *s)
{
    struct box *const *x;
    hash_table_clear(s->by_folder, TRUE);
    hash_table_clear(s->by_guid, TRUE);
    hash_table_clear(s->by_vname, TRUE);
    array_foreach (&s->boxes, x)
        box_free(*x);
    array_clear(&s->boxes);
}

void mailbox_table_deinit(struct session *s)
{
    mailbox_table_clear(s);
    hash_table_destroy(&s->by_folder);
    hash_table_destroy(&s->by_guid);
    hash_table_destroy(&s->by_vname);
    array_free(&s->boxes);
}

/* A folder's number may be 0, and a key may not be NULL. */
static void *folder_key(uint32_t folder)
{
    return POINTER_CAST((uintptr_t)folder + 1);
}

/* The key of a chain is that of its first: it is freed with it. */
static void guid_link(struct session *s, struct box *x)
{
    uint8_t *key = x->guid;
    struct box *last = hash_table_lookup(s->by_guid, key);
    if (guid_128_is_empty(key))
        return;
    if (last == NULL) {
        hash_table_insert(s->by_guid, key, x);
        return;
    }
    while (last->next_guid != NULL)
        last = last->next_guid;
    last->next_guid = x;
}

static void guid_unlink(struct session *s, struct box *x)
{
    uint8_t *key = x->guid;
    struct box *before = hash_table_lookup(s->by_guid, key), *next = x->next_guid;
    if (guid_128_is_empty(key))
        return;
    x->next_guid = NULL;
    if (before == x) {
        hash_table_remove(s->by_guid, key);
        if (next != NULL) {
            key = next->guid;
            hash_table_insert(s->by_guid, key, next);
        }
        return;
    }
    while (before != NULL && before->next_guid != x)
        before = before->next_guid;
    i_assert(before != NULL);
    before->next_guid = next;
}

static void vname_link(struct session *s, struct box *x)
{
    if (x->vname == NULL)
        return;
    struct box *last = hash_table_lookup(s->by_vname, x->vname);
    if (last == NULL) {
        hash_table_insert(s->by_vname, x->vname, x);
        return;
    }
    while (last->next_vname != NULL)
        last = last->next_vname;
    last->next_vname = x;
}

static void vname_unlink(struct session *s, struct box *x)
{
    if (x->vname == NULL)
        return;
    struct box *before = hash_table_lookup(s->by_vname, x->vname), *next = x->next_vname;
    x->next_vname = NULL;
    if (before == x) {
        hash_table_remove(s->by_vname, x->vname);
        if (next != NULL)
            hash_table_insert(s->by_vname, next->vname, next);
        return;
    }
    while (before != NULL && before->next_vname != x)
        before = before->next_vname;
    i_assert(before != NULL);
    before->next_vname = next;
}

struct box *box_add(struct session *s, uint32_t folder)
{
    i_assert(folder != ORSET_NO_FOLDER && box_by_folder(s, folder) == NULL);
    struct box *x = i_new(struct box, 1);
    x->folder = folder;
    x->rewound = s->rewound;
    i_array_init(&x->quarantine, 1);
    array_push_back(&s->boxes, &x);
    hash_table_insert(s->by_folder, folder_key(folder), x);
    return x;
}

void box_drop(struct session *s, struct box *x)
{
    struct box *const *at;
    bool found = FALSE;
    hash_table_remove(s->by_folder, folder_key(x->folder));
    guid_unlink(s, x);
    vname_unlink(s, x);
    array_foreach (&s->boxes, at) {
        found = *at == x;
        if (found) {
            array_delete(&s->boxes, array_foreach_idx(&s->boxes, at), 1);
            break;
        }
    }
    i_assert(found);
    box_free(x);
}

void box_set_vname(struct session *s, struct box *x, const char *vname)
{
    char *copy = i_strdup(vname);
    vname_unlink(s, x);
    i_free(x->vname);
    x->vname = copy;
    vname_link(s, x);
}

void box_set_guid(struct session *s, struct box *x, const uint8_t guid[GUID_128_SIZE])
{
    guid_128_t now = {0};
    if (guid != NULL)
        memcpy(now, guid, sizeof now);
    guid_unlink(s, x);
    memcpy(x->guid, now, sizeof x->guid);
    guid_link(s, x);
}

void box_unread(struct box *x)
{
    i_zero(&x->at);
    i_zero(&x->now.reasserted);
    x->adopted = 0;
    array_clear(&x->quarantine); /* what is missing is damage */
}

struct box *box_by_folder(struct session *s, uint32_t folder)
{
    return hash_table_lookup(s->by_folder, folder_key(folder));
}

struct box *box_of_folder(struct session *s, uint32_t folder)
{
    struct box *x = box_by_folder(s, folder);
    struct orset_folder f;
    if (x == NULL && orset_folder_get(s->os, folder, &f) == 0 && f.home != folder)
        x = box_by_folder(s, f.home);
    return x;
}

struct box *box_by_guid(struct session *s, const guid_128_t guid)
{
    return hash_table_lookup(s->by_guid, guid);
}

struct box *box_first_of_vname(struct session *s, const char *vname)
{
    return hash_table_lookup(s->by_vname, vname);
}

struct box *box_by_vname(struct session *s, const char *vname)
{
    struct box *first = box_first_of_vname(s, vname), *x = first;
    while (x != NULL && (x->gone || x->now.leaving))
        x = x->next_vname;
    return x != NULL ? x : first;
}
