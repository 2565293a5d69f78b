/* local_changes - what changed in a mailbox becomes an op. Each function compares the mailbox as it
 * is now with what was seen last, names the dots the state has, and lets apply_op.c do the rest. */
#include "dovecot-plugin/orset/ops/local_changes.h"
#include "dovecot-plugin/orset/base/flags.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/ops/emit.h"
#include "dovecot-plugin/orset/ops/apply_op.h"
#include "dovecot-plugin/orset/state/aliases.h"
#include "dovecot-plugin/orset/state/binding.h"
#include "dovecot-plugin/orset/state/doomed.h"
#include "dovecot-plugin/orset/state/folder.h"
#include "dovecot-plugin/orset/state/group.h"
#include "dovecot-plugin/orset/state/message.h"
#include "dovecot-plugin/orset/state/task_list.h"
#include "dovecot-plugin/orset/state/tasks.h"

#include <string.h>

/* --- folders
 * ---------------------------------------------------------------------------------------------- */

int orset_local_create(struct orset *os, const char *name, size_t len, uint32_t uid_validity,
                       const uint8_t guid[16], uint32_t *folder_r)
{
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (!orset_name_valid(name, len))
        return orset_fail(
            os, ORSET_E_LIMIT,
            "a folder name of %zu bytes: 1 to %d bytes, at most %d levels, none empty", len,
            ORSET_NAME_MAX, ORSET_COMPONENTS_MAX);
    if (os->nfolders >= ORSET_MAKE_FOLDERS_MAX)
        return orset_fail(
            os, ORSET_E_LIMIT,
            "this user had %u folders, those that are gone included, and a site makes no more",
            os->nfolders);
    orset_op_begin(os, OP_FOLDER);
    orset_buf_text(&os->op, name, len);
    orset_buf_num(&os->op, orset_next_stamp(os).clock);
    orset_buf_num(&os->op, uid_validity < os->most_uid_validity ? uid_validity : 0);
    orset_buf_put(&os->op, guid, 16);
    r = orset_emit(os, 0);
    if (r == 0)
        *folder_r =
            orset_folder_find(os, (struct orset_dot){os->self, os->origin[os->self].counter})
                ->index;
    return r < 0 ? r : orset_done_folder(os, *folder_r);
}

int orset_local_rename(struct orset *os, uint32_t folder, const char *name, size_t len)
{
    int r;
    struct folder *home = orset_need_folder(os, folder, &r);
    if (!home)
        return r;
    if (folder == ORSET_INBOX)
        return orset_fail(
            os, ORSET_E_LIMIT,
            "INBOX has no name to change: create the other folder, then move the mails");
    if (!orset_name_valid(name, len))
        return orset_fail(
            os, ORSET_E_LIMIT,
            "a folder name of %zu bytes: 1 to %d bytes, at most %d levels, none empty", len,
            ORSET_NAME_MAX, ORSET_COMPONENTS_MAX);
    bool any = false;
    for (uint32_t i = 0; i < os->nfolders && r >= 0; i++) {
        struct folder *f = os->folder[i];
        bool same = f->name_len == len && memcmp(f->name, name, len) == 0;
        if (f->home != folder || (orset_folder_live(f) ? same : f != home))
            continue;
        any = true;
        orset_op_begin(os, OP_NAME);
        orset_folder_id_write(&os->op, f);
        orset_buf_text(&os->op, name, len);
        orset_buf_num(&os->op, orset_next_stamp(os).clock);
        orset_op_presence(os, f);
        r = orset_emit(os, 0);
    }
    if (r < 0)
        return r;
    /* The mailbox has the name already. */
    r = orset_done_folder(os, folder);
    return r < 0 ? r : any ? ORSET_OK : ORSET_KNOWN;
}

/* A dot of a message that the mailbox shows, and the bytes that its site saved are those there:
 * who removes the mail has seen it. */
static int was_seen(struct orset *os, const struct orset_message *m)
{
    struct orset_dot speaker;
    uint8_t bytes[32];
    if (!m->uid)
        return 0;
    int r = orset_task_bytes(os, orset_folder_at(os, m->folder)->home, m->uid, bytes);
    if (r == 0) {
        struct message *whole = &os->m[0];
        r = orset_message_load(os, m->folder, m->dot, whole);
        if (r > 0 && !whole->siblings)
            return 1;
        r = r > 0   ? orset_group_speaker(os, whole, &speaker, bytes)
            : r < 0 ? r
                    : orset_storage_fail(os, "a message vanished");
    }
    return r < 0 ? r : memcmp(bytes, m->facts.sha256, 32) == 0;
}

struct some_dots {
    struct orset *os;
    unsigned n;
    struct orset_dot dot[ORSET_OP_DOTS_MAX];
};

static int collect_placed(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct some_dots *s = arg;
    (void)own;
    int seen = was_seen(s->os, m);
    if (seen > 0)
        s->dot[s->n++] = m->dot;
    return seen < 0 ? seen : s->n == ORSET_OP_DOTS_MAX;
}

/* A user who deletes a folder deletes what he could see in it: mails not placed yet stay, and
 * the folder with them (F4). */
static int delete_one(struct orset *os, struct folder *f)
{
    struct some_dots s = {.os = os};
    int r;
    do {
        s.n = 0;
        if ((r = orset_each_message(os, f->index, collect_placed, &s)) < 0)
            return r;
        if (s.n > 0 && (r = orset_emit_remove(os, f, s.dot, s.n)) < 0)
            return r;
    } while (s.n > 0);
    if (f->npresence == 0)
        return 0;
    orset_op_begin(os, OP_DELETE);
    orset_folder_id_write(&os->op, f);
    orset_op_presence(os, f);
    return orset_emit(os, 0);
}

int orset_local_delete(struct orset *os, uint32_t folder)
{
    int r;
    struct folder *home = orset_need_folder(os, folder, &r);
    if (!home)
        return r;
    if (folder == ORSET_INBOX)
        return orset_fail(os, ORSET_E_LIMIT, "INBOX cannot be deleted, only emptied");
    if (home->home != folder || !orset_folder_live(home))
        return ORSET_KNOWN;
    for (uint32_t i = 0; i < os->nfolders && r >= 0; i++)
        if (os->folder[i]->home == folder && orset_folder_live(os->folder[i]))
            r = delete_one(os, os->folder[i]);
    if (r < 0)
        return r;
    /* What lives on has no mailbox any more. Another id with its name: orset_rehome() sees to
     * that. */
    return orset_folder_live(home) ? orset_folder_changed(os, home) : orset_done_folder(os, folder);
}

int orset_local_uid_validity(struct orset *os, uint32_t folder, uint32_t value, int64_t now)
{
    int r;
    struct folder *f = orset_need_folder(os, folder, &r);
    if (!f)
        return r;
    if (value == 0 || (int64_t)value > now + 86400)
        return orset_fail(os, ORSET_E_LIMIT,
                          "UIDVALIDITY %u of %s: 1 to %lld (now and a day) are believed", value,
                          orset_folder_label(os, folder), (long long)now + 86400);
    if (value <= f->uid_validity)
        return ORSET_KNOWN;
    orset_op_begin(os, OP_UID_VALIDITY);
    orset_folder_id_write(&os->op, f);
    orset_buf_num(&os->op, value);
    r = orset_emit(os, 0);
    return r < 0 ? r : orset_done_folder(os, folder);
}

int orset_local_uid_next(struct orset *os, uint32_t folder, uint32_t uid_next)
{
    int r;
    struct folder *f = orset_need_folder(os, folder, &r);
    return f ? orset_folder_uid_next(os, f, uid_next) : r;
}

/* --- messages
 * ---------------------------------------------------------------------------------------------- */

struct find_guid {
    const uint8_t *guid;
    struct orset_dot found; /* of the unplaced one with the smallest k. counter 0: none */
};

/* Looks at all dots of (folder, GUID): which message waits for a UID. */
static int look(struct orset *os, const struct folder *f, struct find_guid *g)
{
    g->found.counter = 0;
    /* Nearly always no mail of the folder waits: nothing is read of the copies then. */
    int waits = orset_task_any_place(os, f->index),
        n = waits > 0 ? orset_copies(os, g->guid, f->index) : waits;
    for (int i = 0; i < n; i++) {
        struct message *o = &os->m[2];
        struct orset_dot d = os->copies.v[i].dot;
        int r = orset_message_load(os, f->index, d, o);
        if (r < 0)
            return r;
        if (r == 0 || o->p.uid != 0 || memcmp(o->p.facts.guid, g->guid, 16) != 0)
            continue;
        g->found = d;
        return 0;
    }
    return n < 0 ? n : 0;
}

/* The smallest k that no live dot of (folder, GUID) has. */
static int free_k(struct orset *os, const struct folder *f, const uint8_t guid[16])
{
    int n = orset_copies(os, guid, f->index), k = 1;
    for (int i = 0; i < n && os->copies.v[i].k <= (uint32_t)k; i++)
        k = (int)os->copies.v[i].k + 1;
    return n < 0 ? n : k;
}

static int emit_add(struct orset *os, struct folder *f, uint32_t uid, uint32_t k,
                    const struct orset_facts *facts, const struct orset_flags *flags)
{
    struct orset_buf *b = &os->op;
    unsigned n = flags->nkeywords;
    for (unsigned i = 0; i < ORSET_SYSTEM_FLAGS; i++)
        n += flags->system >> i & 1;
    orset_op_begin(os, OP_ADD);
    orset_folder_id_write(b, f);
    orset_buf_put(b, facts->guid, 16);
    orset_buf_put(b, facts->sha256, 32);
    orset_buf_num(b, (uint64_t)facts->received);
    orset_buf_num(b, (uint64_t)facts->saved);
    orset_buf_num(b, facts->size);
    orset_buf_num(b, k);
    orset_buf_num(b, uid);
    orset_buf_text(b, facts->guid_text, facts->guid_text_len);
    orset_op_presence(os, f);
    orset_buf_num(b, n);
    for (uint16_t i = 0; i < ORSET_SYSTEM_FLAGS; i++)
        if (flags->system >> i & 1)
            orset_flag_write(os, &os->op, i);
    for (unsigned i = 0; i < flags->nkeywords; i++)
        orset_flag_write(os, &os->op, (uint16_t)(flags->keyword[i] + ORSET_SYSTEM_FLAGS));
    return orset_emit(os, uid);
}

static bool facts_valid(uint32_t uid, const struct orset_facts *f)
{
    return uid != 0 && f->received >= 0 && f->received <= ORSET_DATE_MAX && f->saved >= 0 &&
           f->saved <= ORSET_DATE_MAX && f->size <= ORSET_SIZE_MAX &&
           f->guid_text_len <= ORSET_GUID_TEXT_MAX;
}

/* 1 and an unplaced message of this GUID in the mailbox. */
static int find_unplaced(struct orset *os, uint32_t home, struct find_guid *g, uint32_t *folder)
{
    for (uint32_t i = 0; i < os->nfolders; i++) {
        if (os->folder[i]->home != home)
            continue;
        int r = look(os, os->folder[i], g);
        if (r < 0)
            return r;
        if (g->found.counter) {
            *folder = i;
            return 1;
        }
    }
    return 0;
}

/* The message of that dot has these bytes. 1, 0, error. */
static int has_bytes(struct orset *os, uint32_t folder, struct orset_dot d,
                     const uint8_t sha256[32])
{
    struct orset_dot speaker;
    uint8_t body[32];
    int r = orset_message_load(os, folder, d, &os->m[0]);
    if (r <= 0 || (r = orset_group_speaker(os, &os->m[0], &speaker, body)) < 0)
        return r < 0 ? r : orset_storage_fail(os, "a message vanished");
    return memcmp(body, sha256, 32) == 0;
}

int orset_unplaced_guid(struct orset *os, uint32_t home, const uint8_t guid[16])
{
    struct alias a;
    int r = orset_alias_get(os, guid, &a);
    struct find_guid g = {.guid = r > 0 ? a.guid : guid};
    uint32_t folder;
    return r < 0 ? r : find_unplaced(os, home, &g, &folder);
}

/* A message of that GUID and these bytes in that folder: its UID, 0 where it waits to be placed.
 * 1, 0, error. */
static int find_parted(struct orset *os, struct folder *f, const struct orset_facts *facts,
                       uint32_t *uid_r, struct orset_dot *dot_r)
{
    const uint8_t *guid = facts->guid;
    int n = orset_copies(os, guid, f->index);
    for (int i = 0; i < n; i++) {
        struct message *o = &os->m[2];
        int r = orset_message_load(os, f->index, os->copies.v[i].dot, o);
        if (r < 0)
            return r;
        if (r == 0 || memcmp(o->p.facts.guid, guid, 16) != 0 ||
            memcmp(o->p.facts.sha256, facts->sha256, 32) != 0)
            continue;
        *uid_r = o->p.uid;
        *dot_r = o->p.dot;
        return 1;
    }
    return n < 0 ? n : 0;
}

int orset_local_part(struct orset *os, uint32_t folder, uint32_t uid, const uint8_t there[16],
                     const struct orset_facts *given, const struct orset_flags *flags)
{
    int r;
    struct folder *home = orset_need_folder(os, folder, &r);
    struct orset_facts facts = *given;
    struct orset_dot same = {0, 0};
    uint32_t same_uid = 0;
    if (!home)
        return r;
    if (!facts_valid(uid, given))
        return orset_fail(os, ORSET_E_LIMIT,
                          "UID %u of %s: its UID, dates, size or GUID are out of bounds", uid,
                          orset_folder_label(os, folder));
    facts.guid_text_len = 0;
    int known = find_parted(os, home, &facts, &same_uid, &same);
    if (known < 0 || (known > 0 && same_uid != 0))
        return known < 0 ? known : ORSET_KNOWN;
    if ((r = orset_message_by_uid(os, folder, uid, NULL)) <= 0)
        return r < 0 ? r
                     : orset_fail(os, ORSET_E_ABSENT,
                                  "UID %u of %s is another message: it is bound to none", uid,
                                  orset_folder_label(os, folder));
    if ((r = orset_drop_bytes(os, facts.sha256)) < 0 ||
        (r = orset_message_by_uid(os, folder, uid, NULL)) <= 0)
        return r < 0 ? r : orset_storage_fail(os, "a message vanished");
    if ((r = orset_unbind(os, home, &os->m[0], true)) < 0 ||
        (r = orset_parted_put(os, facts.guid, there)) < 0)
        return r;
    return known ? orset_placed(os, folder, same, uid, flags, facts.sha256)
                 : emit_add(os, home, uid, 1, &facts, flags);
}

int orset_local_add(struct orset *os, uint32_t folder, uint32_t uid,
                    const struct orset_facts *given, const struct orset_flags *flags,
                    struct orset_dot *dot_r)
{
    int r;
    struct folder *home = orset_need_folder(os, folder, &r);
    struct orset_facts facts = *given;
    struct orset_message there = {.uid = 0};
    struct alias alias;
    if (!home)
        return r;
    if (!facts_valid(uid, given))
        return orset_fail(os, ORSET_E_LIMIT,
                          "UID %u of %s: its UID, dates, size or GUID are out of bounds", uid,
                          orset_folder_label(os, folder));
    /* Peers save the mail under the GUID's 16 bytes then, as they do where there is no text. */
    if (!orset_guid_text_valid(given->guid_text, given->guid_text_len))
        facts.guid_text_len = 0;
    if ((r = orset_alias_get(os, given->guid, &alias)) < 0)
        return r;
    if (r > 0) {
        memcpy(facts.guid, alias.guid, 16);
        facts.guid_text = alias.text;
        facts.guid_text_len = alias.text_len;
    }
    if ((r = orset_message_by_uid(os, folder, uid, &there)) < 0)
        return r;
    if (r > 0 && (memcmp(there.facts.guid, facts.guid, 16) == 0 ||
                  memcmp(there.facts.sha256, facts.sha256, 32) == 0)) {
        if (dot_r)
            *dot_r = there.dot;
        return ORSET_KNOWN;
    }
    /* Removed elsewhere and not expunged here yet: it was seen, a scan must not take it for a
     * new mail. */
    if (r == 0 && (r = orset_task_doomed(os, folder, uid, facts.guid)) != 0) {
        if (dot_r)
            *dot_r = (struct orset_dot){0, 0};
        return r < 0 ? r : ORSET_KNOWN;
    }
    /* The mailbox uses this UID for another mail: what was bound to it is damage, not a removal
     * (F1). */
    if (there.uid && (r = orset_local_missing(os, folder, uid)) < 0)
        return r;
    struct find_guid g = {.guid = facts.guid};
    uint32_t in = folder;
    bool moved = home->home != folder;
    r = find_unplaced(os, home->home, &g, &in);
    if (moved && r > 0 && (r = has_bytes(os, in, g.found, facts.sha256)) == 0)
        in = folder; /* another mail under that GUID */
    if (moved && r >= 0) {
        /* The folder is shown in another mailbox by now: the mail is to be placed there, and
         * leaves this one. */
        int e = orset_doom(os, home, facts.guid, uid);
        if (e < 0 || r > 0)
            return e < 0 ? e : ORSET_KNOWN;
        uid = 0;
    }
    if (r != 0) {
        if (dot_r)
            *dot_r = g.found;
        r = r < 0 ? r : orset_placed(os, in, g.found, uid, flags, facts.sha256);
        return r < 0 ? r : ORSET_KNOWN;
    }
    int k = free_k(os, home, facts.guid);
    if (k < 0)
        return k;
    if (k > ORSET_SAME_MESSAGE_MAX)
        return orset_fail(os, ORSET_E_LIMIT,
                          "there are %d copies of it in the mailbox, and no more are replicated",
                          ORSET_SAME_MESSAGE_MAX);
    if (dot_r)
        *dot_r = (struct orset_dot){os->self, os->origin[os->self].counter + 1};
    return emit_add(os, home, uid, (uint32_t)k, &facts, flags);
}

int orset_local_also(struct orset *os, uint32_t folder, uint32_t uid,
                     const struct orset_facts *given, const struct orset_flags *flags,
                     struct orset_dot *dot_r)
{
    int r;
    struct folder *home = orset_need_folder(os, folder, &r);
    struct orset_message there = {.uid = 0};
    const struct copy *dots;
    if (!home || (r = orset_message_by_uid(os, folder, uid, &there)) < 0)
        return r;
    if (r == 0 || there.folder != home->index || memcmp(there.facts.sha256, given->sha256, 32) != 0)
        return ORSET_KNOWN;
    struct orset_facts facts = there.facts;
    char guid_text[ORSET_GUID_TEXT_MAX + 1];
    memcpy(guid_text, facts.guid_text, facts.guid_text_len);
    facts.guid_text = guid_text;
    int n = orset_copies_of(os, facts.guid, home->index, there.k, &dots);
    for (int i = 0; i < n; i++)
        if (os->origin[dots[i].dot.origin].id.site == os->origin[os->self].id.site)
            return ORSET_KNOWN;
    if (n < 0 || n >= ORSET_SAME_MESSAGE_MAX)
        return n < 0 ? n : ORSET_KNOWN;
    facts.received = given->received;
    facts.saved = given->saved;
    *dot_r = (struct orset_dot){os->self, os->origin[os->self].counter + 1};
    return emit_add(os, home, uid, there.k, &facts, flags);
}

int orset_local_back(struct orset *os, uint32_t folder, uint32_t uid, const uint8_t guid[16])
{
    int r;
    struct folder *home = orset_need_folder(os, folder, &r);
    if (!home || (r = orset_message_by_uid(os, folder, uid, NULL)) != 0)
        return r < 0 ? r : 0;
    /* Some message may have that GUID: then the mail may be a copy of it, or it moved back by a
     * client's hand. */
    if ((r = orset_unplaced_guid(os, home->home, guid)) != 0 ||
        (r = orset_guid_lives(os, guid)) != 0)
        return r < 0 ? r : 0;
    r = orset_doom(os, home, guid, uid);
    return r < 0 ? r : 1;
}

int orset_local_removed_moved(struct orset *os, uint32_t folder, uint32_t old, uint32_t uid,
                              const uint8_t guid[16])
{
    uint8_t doomed[16];
    int r;
    struct folder *home = orset_need_folder(os, folder, &r);
    if (!home || (r = orset_message_by_uid(os, folder, uid, NULL)) != 0)
        return r < 0 ? r : 0;
    if ((r = orset_task_doomed_guid(os, old, uid, doomed)) <= 0 ||
        memcmp(doomed, guid, sizeof doomed) != 0)
        return r < 0 ? r : 0;
    if ((r = orset_unplaced_guid(os, home->home, guid)) != 0)
        return r < 0 ? r : 0;
    r = orset_doom(os, home, guid, uid);
    return r < 0 ? r : 1;
}

int orset_local_expunge(struct orset *os, uint32_t folder, uint32_t uid)
{
    int r;
    if (!orset_need_folder(os, folder, &r) || (r = orset_message_by_uid(os, folder, uid, NULL)) < 0)
        return r;
    if (r == 0) {
        r = orset_done_remove(os, folder, uid);
        return r < 0 ? r : ORSET_KNOWN;
    }
    const struct message *m = &os->m[0];
    struct folder *f = orset_folder_at(os, m->p.folder);
    int n = orset_group_load(os, m);
    if (n < 0)
        return n;
    struct orset_dot dots[ORSET_SAME_MESSAGE_MAX];
    memcpy(dots, os->group, (size_t)n * sizeof dots[0]);
    int kept = 0;
    for (int i = 0; i < n; i++) {
        struct orset_message one;
        int seen = orset_message_get(os, f->index, dots[i], &one);
        if (seen <= 0 || (seen = was_seen(os, &one)) < 0)
            return seen < 0 ? seen : orset_storage_fail(os, "a message vanished");
        if (seen)
            dots[kept++] = dots[i];
    }
    if (kept > 0 && (r = orset_emit_remove(os, f, dots, (unsigned)kept)) < 0)
        return r;
    return kept == n                                  ? ORSET_OK
           : orset_local_missing(os, folder, uid) < 0 ? ORSET_E_STORAGE
           : kept                                     ? ORSET_OK
                                                      : ORSET_KNOWN;
}

static int expunge_moved(struct orset *os, uint32_t folder, uint32_t uid, bool placed)
{
    struct orset_dot dots[ORSET_SAME_MESSAGE_MAX];
    int r = orset_find_moved(os, folder, uid, placed);
    if (r != ORSET_OK)
        return r;
    const struct folder *f = orset_folder_at(os, folder);
    const uint32_t there = os->m[0].p.uid;
    uint8_t guid[16];
    int n = orset_group_load(os, &os->m[0]);
    if (n < 0)
        return n;
    memcpy(guid, os->m[0].p.facts.guid, sizeof guid);
    memcpy(dots, os->group, (size_t)n * sizeof dots[0]);
    if ((r = orset_emit_remove(os, f, dots, (unsigned)n)) < 0 ||
        (there && (r = orset_doom(os, orset_folder_at(os, f->home), guid, there)) < 0))
        return r;
    return orset_done_remove(os, folder, uid) < 0 ? ORSET_E_STORAGE : ORSET_OK;
}

int orset_local_expunge_moved(struct orset *os, uint32_t folder, uint32_t uid)
{
    return expunge_moved(os, folder, uid, true);
}

/* What is in the other mailbox by now, he did not see in this one. */
int orset_local_delete_moved(struct orset *os, uint32_t folder)
{
    int r;
    struct folder *f = orset_need_folder(os, folder, &r);
    if (!f)
        return r;
    if (f->home == folder)
        return ORSET_KNOWN;
    struct orset_task t = {.at_len = 1, .at = {ORSET_TASK_REMOVE}};
    while (r >= 0 && (r = orset_task_next_removal(os, &t)) > 0)
        if (t.folder == folder)
            r = expunge_moved(os, folder, t.uid, false);
    if (r < 0 || f->npresence == 0)
        return r < 0 ? r : ORSET_OK;
    orset_op_begin(os, OP_DELETE);
    orset_folder_id_write(&os->op, f);
    orset_op_presence(os, f);
    return orset_emit(os, 0);
}

int orset_local_missing(struct orset *os, uint32_t folder, uint32_t uid)
{
    int r;
    struct folder *home = orset_need_folder(os, folder, &r);
    if (!home || (r = orset_message_by_uid(os, folder, uid, NULL)) < 0)
        return r;
    if (r == 0) {
        r = orset_done_remove(os, folder, uid);
        return r < 0 ? r : ORSET_KNOWN;
    }
    return orset_unbind(os, home, &os->m[0], true);
}
