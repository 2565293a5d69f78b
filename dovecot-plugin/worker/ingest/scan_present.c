/* scan_present - a mail that is there, against what the state says of its UID: is it the same
 * one, whose flags are newer, is it new. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/ops/match_mails.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/delivery_id.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/ingest/classify.h"
#include "dovecot-plugin/worker/ingest/guids.h"
#include "dovecot-plugin/worker/ingest/pass.h"
#include "dovecot-plugin/worker/ingest/scan.h"
#include "dovecot-plugin/worker/logs/log.h"
#include "dovecot-plugin/worker/logs/verdict.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/lasting.h"
#include "dovecot-plugin/worker/session/mdbox.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <mail-index-private.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

/* Flags that a client set last. By now this program may have cleared one, for a site that had not
 * heard of that: setting wins, but for \Deleted. Or a client has, behind what was read of the log:
 * that is the next scan's. */
static void reassert_of(struct mailbox_scan *l, uint32_t uid, const struct orset_flags *now,
                        struct orset_flags *set)
{
    uint8_t counts = now->system, said = 0;
    if (l->log.verdict == LOG_SCAN_UNBROKEN)
        counts |= (uint8_t)~ORSET_DELETED;
    for (unsigned i = 0; i < ORSET_SYSTEM_FLAGS; i++)
        if ((counts & 1U << i) != 0 && seq_range_exists(&l->log.reasserts[i], uid))
            said |= (uint8_t)(1U << i);
    if ((said & ~now->system) != 0)
        said &= (uint8_t)(now->system | ~log_later_flags(&l->later, l->pool, l->box, uid));
    set->system |= said;
}

/* Clients set \Deleted and cleared it since the last scan: who sets it elsewhere meanwhile has not
 * seen that. This program may have set it for such a site since; or a client, whom the next scan
 * hears. */
static bool was_undeleted(struct mailbox_scan *l, uint32_t uid, const struct orset_flags *now)
{
    if (!seq_range_exists(&l->log.undeleted, uid))
        return FALSE;
    return (now->system & ORSET_DELETED) == 0 ||
           (l->log.verdict == LOG_SCAN_UNBROKEN &&
            (log_later_flags(&l->later, l->pool, l->box, uid) & ORSET_DELETED) == 0);
}

/* Whose the last word on each flag is, by the log since the state's cursor. */
struct last_words {
    struct orset_flags set, cut; /* a client's */
    struct orset_flags own;      /* this program's, whatever it said */
    uint32_t first;              /* the UID it had first */
    /* this program saved it first, with the flags that the state had then */
    bool placed;
};

/* The UIDs that the mail at l->mail had, by the log: it may have got another one more than once.
 * The first of them first. */
static void former_uids(struct mailbox_scan *l, uint32_t uid, bool bound,
                        ARRAY_TYPE(seq_range) * uids)
{
    const struct renumbered *moved;
    const struct expunged_mail *former;
    guid_128_t hash;
    seq_range_array_add(uids, uid);
    array_foreach (&l->renumbered, moved) {
        if (moved->uid == uid)
            seq_range_array_add(uids, moved->old_uid);
    }
    if (array_count(&l->log.former) == 0 ||
        (bound && array_count(uids) == 1 && !seq_range_exists(&l->log.saved, uid)) ||
        !scan_guid(l, hash))
        return;
    array_foreach (&l->log.former, former) {
        if (former->uid < uid && memcmp(former->guid, hash, sizeof hash) == 0)
            seq_range_array_add(uids, former->uid);
    }
}

static bool says_of(const struct flag_change *w, const ARRAY_TYPE(seq_range) * uids)
{
    const struct seq_range *range;
    array_foreach (uids, range) {
        if (range->seq1 <= w->uid2 && range->seq2 >= w->uid1)
            return TRUE;
    }
    return FALSE;
}

static void last_words(struct mailbox_scan *l, const ARRAY_TYPE(flag_change) * flag_changes,
                       uint32_t uid, bool bound, struct last_words *last)
{
    struct flag_change *const *wp;
    ARRAY_TYPE(seq_range) uids;
    t_array_init(&uids, 4);
    former_uids(l, uid, bound, &uids);
    i_zero(last);
    const struct seq_range *first = array_idx(&uids, 0);
    last->first = first->seq1;
    last->placed = seq_range_exists(&l->log.saved, first->seq1);
    array_foreach (flag_changes, wp) {
        const struct flag_change *w = *wp;
        if (!says_of(w, &uids))
            continue;
        flags_without(&last->set, &w->cut);
        flags_without(&last->cut, &w->set);
        if (w->own) {
            flags_without(&last->set, &w->set);
            flags_without(&last->cut, &w->cut);
            flags_unite(&last->own, &w->set);
            flags_unite(&last->own, &w->cut);
        } else {
            flags_without(&last->own, &w->set);
            flags_without(&last->own, &w->cut);
            flags_unite(&last->set, &w->set);
            flags_unite(&last->cut, &w->cut);
        }
    }
}

/* Takes out of flags what a client cleared before the rebuild or after it, and what is seen as
 * if it had been there: so it is an op. */
static int cleared_since(struct mailbox_scan *l, uint32_t folder, const struct orset_flags *now,
                         struct orset_flags *flags)
{
    struct last_words last;
    struct orset_flags left = *flags, gone = *flags, seen;
    last_words(l, &l->said.flag_changes, l->mail->uid, TRUE, &last);
    flags_without(&last.cut, now);
    flags_without(&left, &last.cut);
    flags_without(&gone, &left);
    if (gone.system == 0 && gone.nkeywords == 0)
        return 0;
    int r = orset_flags_seen(l->s->os, folder, l->mail->uid, &seen);
    if (r <= 0)
        return r;
    flags_unite(&seen, &gone);
    *flags = left;
    return orset_done_flags(l->s->os, folder, l->mail->uid, &seen);
}

/* An index that was rebuilt has lost flags; what it has more than before is a user's, what it
 * has less is not (F30). Flags of an old backup are none of his. named: now without keywords
 * that lost their names. Where that is all of the damage, system flags are as the user set them.
 * set: flags of named that are to be set though the mailbox was seen with them, or NULL. */
static int flags_after_damage(struct mailbox_scan *l, uint32_t folder,
                              const struct orset_message *m, const struct orset_flags *now,
                              const struct orset_flags *named, const struct orset_flags *set)
{
    struct orset_flags both, wanted;
    struct session *s = l->s;
    if (l->x->restored)
        return orset_done_flags(s->os, folder, l->mail->uid, now);
    if (orset_message_flags(s->os, m->folder, m->dot, &wanted) < 0)
        return -1;
    both = *named;
    if (l->log.verdict != LOG_SCAN_BROKEN)
        wanted.system = 0;
    flags_unite(&both, &wanted);
    if (l->log.verdict == LOG_SCAN_BROKEN && cleared_since(l, folder, now, &both) < 0)
        return -1;
    int r = orset_local_flags(s->os, folder, l->mail->uid, &both, set);
    return r < 0 ? r : orset_done_flags(s->os, folder, l->mail->uid, now) < 0 ? -1 : r;
}

/* A mail was bound to a message that this state has from the peers, and nobody knows which of its
 * flags were published (classify_adds_flags()): those that the message lacks are set (setting
 * wins). Not \Deleted: where it was cleared elsewhere, somebody rescued the mail. */
static int flags_of_bound(struct mailbox_scan *l, const struct orset_message *m,
                          const struct orset_flags *named, struct orset_flags *set)
{
    struct orset_flags wanted, more = *named;
    if (orset_message_flags(l->s->os, m->folder, m->dot, &wanted) < 0)
        return -1;
    flags_without(&more, &wanted);
    more.system &= (uint8_t)~ORSET_DELETED;
    flags_unite(set, &more);
    return 0;
}

/* Removals of its GUID wait; of all mails where not even that can be read (unseen.c). */
static void say_unread(struct mailbox_scan *l)
{
    struct mail_guid unread;
    if (scan_guid(l, unread.guid))
        array_push_back(&l->in->unread, &unread);
    else
        l->blind = I_MAX(l->blind, l->mail->uid);
}

/* A client saved it while a message of its GUID was to be placed here. It is not one that this
 * program placed and died before it wrote its UID down (F13), nor one that was found. */
static bool was_made_here(const struct mailbox_scan *l)
{
    return l->join == NULL && l->log.verdict != LOG_SCAN_BROKEN && !l->x->restored &&
           seq_range_exists(&l->log.made, l->mail->uid);
}

/* Of a rewound state it is not known whether he has told of a \Deleted, and somebody rescued the
 * mail since. */
static int made_here(struct mailbox_scan *l, const struct orset_facts *facts,
                     const struct orset_flags *now, struct orset_dot *dot)
{
    struct orset_flags said = *now;
    if (l->x->rewound)
        said.system &= (uint8_t)~ORSET_DELETED;
    return orset_local_also(l->s->os, l->x->folder, l->mail->uid, facts, &said, dot);
}

/* For what the log tells once. */
static const char *mail_name(const struct mailbox_scan *l)
{
    return t_strdup_printf("%s\n%u", l->x->vname, l->mail->uid);
}

/* 1; 0: it cannot be read, or will not be replicated; -1 */
static int add_mail(struct mailbox_scan *l, const struct orset_flags *now)
{
    struct orset_facts facts;
    struct orset_dot dot = {0};
    struct batch_bodies *bodies = l->in->send != NULL ? l->s->batch_bodies : NULL;
    if (body_facts(l->mail, &facts, bodies) < 0) {
        scan_unreadable(l);
        if (l->locked)
            return 0;
        if (mailbox_get_last_mail_error(l->box) != MAIL_ERROR_EXPUNGED) {
            lasting_note(l->s, "mail", mail_name(l), "%s: UID %u cannot be read and waits: %s",
                         l->x->vname, l->mail->uid, mailbox_get_last_internal_error(l->box, NULL));
            l->x->all = TRUE;
            say_unread(l);
        } else if (l->log.verdict == LOG_SCAN_BROKEN) {
            /* its index named files that its new uidlist does not have: they have other UIDs by
             * now */
            l->other = TRUE;
        }
        return 0;
    }
    lasting_over(l->s, "mail", mail_name(l));
    if (array_is_created(&l->expunged) && mdbox_is_back(l->mail, facts.guid, &l->expunged)) {
        int back = orset_local_back(l->s->os, l->x->folder, l->mail->uid, facts.guid);
        if (back != 0) {
            session_note(
                l->s, NOTE_INFO,
                "%s: UID %u was expunged before its storage was rebuilt: it is expunged again",
                l->x->vname, l->mail->uid);
            return scan_changed(l, back < 0 ? back : ORSET_OK) < 0 ? -1 : 0;
        }
    }
    /* One that this program was about to save there is matched with what it was to be. */
    bool match =
        l->join != NULL && (l->log.verdict == LOG_SCAN_BROKEN || saved_by(l->mail, l->x->saver));
    int r = match ? 0 : scan_quarantined_back(l, &facts);
    int copied = r != 0 || match || bodies == NULL
                     ? 0
                     : orset_mail_lives(l->s->os, facts.guid, facts.sha256);
    if (copied > 0)
        batch_bodies_skip_last(bodies);
    if (copied < 0)
        r = copied;
    else if (r == 0)
        r = match ? orset_join_add(l->s->os, l->join, l->mail->uid, &facts, now, NULL)
                  : orset_local_add(l->s->os, l->x->folder, l->mail->uid, &facts, now, &dot);
    if (r == ORSET_KNOWN && !match && was_made_here(l))
        r = made_here(l, &facts, now, &dot);
    if (copied > 0 && r == ORSET_OK)
        batch_bodies_copied(bodies, dot.counter);
    if (r == ORSET_E_LIMIT) {
        session_note(l->s, NOTE_WARNING, "%s: UID %u is not replicated: %s", l->x->vname,
                     l->mail->uid, orset_error_text(l->s->os));
        l->x->beyond = TRUE;
        say_unread(l); /* moved there, it is removed nowhere else */
        return 0;
    }
    return scan_changed(l, r) < 0 ? -1 : 1;
}

static bool same_guid(struct mailbox_scan *l, const struct orset_message *m)
{
    guid_128_t guid;
    return scan_guid(l, guid) && memcmp(guid, m->facts.guid, sizeof guid) == 0;
}

/* The UID names the mail that the state has under it. Asked only where another index may have
 * given it anew. */
static bool same_mail(struct mailbox_scan *l, const struct orset_message *m)
{
    return l->log.verdict != LOG_SCAN_BROKEN || same_guid(l, m);
}

/* Bound by its UID or its bytes, under another GUID than the message's: on a Maildir it can be
 * given that one (guids.c). */
static void keep_guid(struct mailbox_scan *l, const struct orset_message *m)
{
    struct known_guid g = {.uid = m->uid};
    if (!l->maildir || same_guid(l, m))
        return;
    guid_128_t hex;
    memcpy(hex, m->facts.guid, sizeof hex);
    g.guid = m->facts.guid_text_len > 0
                 ? p_strndup(l->pool, m->facts.guid_text, m->facts.guid_text_len)
                 : p_strdup(l->pool, guid_128_to_string(hex));
    array_push_back(&l->guids, &g);
}

/* Two mails of the mailbox have one GUID there. */
static bool same_guid_as(struct mailbox_scan *l, struct mail *other)
{
    guid_128_t mine, theirs;
    const char *text;
    mail_storage_clear_error(other->box->storage);
    if (!scan_guid(l, mine) || mail_get_special(other, MAIL_FETCH_GUID, &text) < 0)
        return FALSE;
    mail_generate_guid_128_hash(text, theirs);
    return memcmp(mine, theirs, sizeof mine) == 0;
}

/* Copies have the same bytes as their mail: the first few are enough to find one with others. */
#define FIRST_TRIED 32

struct first {
    const struct orset_message *second;
    uint32_t uid; /* 0: none */
    unsigned tried;
};

static int find_first(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct first *f = arg;
    (void)own;
    if (m->uid != 0 && m->uid < f->second->uid &&
        (memcmp(m->facts.sha256, f->second->facts.sha256, 32) != 0 ||
         m->facts.received != f->second->facts.received))
        f->uid = m->uid;
    return f->uid != 0 || ++f->tried == FIRST_TRIED;
}

/* Only the gateway's deliveries of one entry have one GUID that the plugin made, and other trace
 * lines or another date; a copy has the same of both. That GUID is a claim, too: what is removed
 * as a second delivery has the first one's bytes. */
static int look_for_first(struct mailbox_scan *l, const struct orset_message *m)
{
    struct first f = {.second = m};
    if (m->k <= 1 || !delivery_id_is_guid(m->facts.guid))
        return 0;
    if (orset_each_copy(l->s->os, m->folder, m->facts.guid, find_first, &f) < 0)
        return -1;
    struct mail *first = f.uid == 0 ? NULL : mail_by_uid(l->mail->transaction, f.uid);
    if (first == NULL)
        return 0;
    if (same_guid_as(l, first) && body_same_mails(first, l->mail) > 0) {
        session_note(l->s, NOTE_INFO,
                     "%s: UID %u is a second delivery of a mail that is there: removed",
                     l->x->vname, m->uid);
        seq_range_array_add(&l->seconds, m->uid);
    }
    mail_free(&first);
    return 0;
}

/* As a client would: the next scan finds the request in the log. */
int scan_expunge_seconds(struct mailbox_scan *l)
{
    int r = 0;
    struct mailbox_transaction_context *trans = mailbox_transaction_begin(
        l->box, MAILBOX_TRANSACTION_FLAG_NO_NOTIFY, "dovelane second delivery");
    struct seq_range_iter iter;
    uint32_t uid;
    seq_range_array_iter_init(&iter, &l->seconds);
    for (unsigned i = 0; seq_range_array_iter_nth(&iter, i, &uid); i++) {
        struct mail *mail = mail_by_uid(trans, uid);
        if (mail != NULL) {
            mail_expunge(mail);
            mail_free(&mail);
        }
    }
    if (mailbox_transaction_commit(&trans) < 0 || mailbox_sync(l->box, 0) < 0) {
        session_note(l->s, NOTE_WARNING, "%s: %s", l->x->vname,
                     mailbox_get_last_internal_error(l->box, NULL));
        r = -1;
    }
    l->s->scan_again = TRUE;
    session_want_tick(l->s, 100);
    return r;
}

struct older {
    guid_128_t guid;
    uint32_t uid, found;
    bool wanted; /* another copy is to be placed */
};

static int find_older(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct older *o = arg;
    (void)own;
    if (memcmp(m->facts.guid, o->guid, sizeof o->guid) != 0)
        return 0;
    o->wanted = o->wanted || m->uid == 0;
    if (m->uid != 0 && m->uid < o->uid)
        o->found = m->uid;
    return 0;
}

/* The same, where the power went between the copy and the expunge. Only a mail that this program
 * saved, and that is nothing the state wants there besides. 1: the message is bound to it, and
 * the old mail is to go. */
static int find_half_renumbered(struct mailbox_scan *l, uint32_t uid)
{
    struct older o = {.uid = uid};
    uint32_t seq;
    if (!l->x->rewound || l->log.verdict == LOG_SCAN_BROKEN ||
        !seq_range_exists(&l->log.saved, uid) || !scan_guid(l, o.guid))
        return 0;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < orset_folders(l->s->os); i++) {
        struct orset_folder f;
        if (orset_folder_get(l->s->os, i, &f) == 0 && f.home == l->x->folder && f.messages > 0)
            r = orset_each_message(l->s->os, i, find_older, &o);
    }
    if (r != 0 || o.found == 0 || o.wanted || !mail_index_lookup_seq(l->box->view, o.found, &seq))
        return I_MIN(r, 0);
    session_note(l->s, NOTE_INFO, "%s: UID %u was about to become UID %u when the power went",
                 l->x->vname, o.found, uid);
    seq_range_array_add(&l->seconds, o.found);
    r = orset_done_renumber(l->s->os, l->x->folder, o.found, uid);
    return r < 0 ? r : 1;
}

/* undeleted: clients cleared \Deleted last. */
static int local_flags(struct mailbox_scan *l, uint32_t uid, const struct orset_flags *now,
                       const struct orset_flags *set, bool undeleted)
{
    struct orset *os = l->s->os;
    return undeleted ? orset_local_undeleted(os, l->x->folder, uid, now, set)
                     : orset_local_flags(os, l->x->folder, uid, now, set);
}

/* What a client said of the mail under its old UID is as good as said of this one; the mailbox
 * does not show it yet. */
static int flags_late(struct mailbox_scan *l, uint32_t uid, const struct orset_flags *now,
                      const struct late_change *late, const struct orset_flags *set)
{
    struct orset_flags meant = *now;
    flags_unite(&meant, &late->set);
    flags_without(&meant, &late->cut);
    bool undeleted = late->rescued || was_undeleted(l, uid, &meant);
    int r = local_flags(l, uid, &meant, set, undeleted && (meant.system & ORSET_DELETED) == 0);
    return r < 0 ? r : orset_done_flags(l->s->os, l->x->folder, uid, now) < 0 ? -1 : r;
}

/* flags: those of some that are in which are as in from. */
static void flags_take(struct orset_flags *flags, const struct orset_flags *from,
                       const struct orset_flags *which)
{
    struct orset_flags taken = *from, not_taken = *from;
    flags_without(&not_taken, which);
    flags_without(&taken, &not_taken);
    flags_without(flags, which);
    flags_unite(flags, &taken);
}

/* Whether \Deleted, which a client set last, is his word as other flags are. 1; 0: somebody may have
 * rescued the mail whom he had not seen: in another folder that this mailbox belongs to by now, or
 * in what a state that is older has lost. */
static int deleted_counts(struct mailbox_scan *l, const struct orset_message *m)
{
    if (l->x->adopted == 0 || l->x->rewound || l->log.verdict != LOG_SCAN_UNBROKEN)
        return 0;
    int rescued = orset_message_rescued(l->s->os, m->folder, m->dot);
    return rescued < 0 ? rescued : !rescued;
}

/* The state is older than the mailbox, and the log says what happened since. What this program
 * did by the later state's word is no change of a client's; what a client did last stands,
 * though the state that knew of it is lost. What nobody is known to have cleared stays set.
 * bound: the old state had it there. */
static int flags_rewound(struct mailbox_scan *l, uint32_t uid, const struct orset_message *m,
                         const struct orset_flags *now, bool bound)
{
    struct last_words last;
    struct orset_flags seen, wanted, set, cut, gone;
    struct session *s = l->s;
    int r = bound ? orset_flags_seen(s->os, l->x->folder, uid, &seen) : 1;
    if (r <= 0 || (r = orset_message_flags(s->os, m->folder, m->dot, &wanted)) < 0)
        return r < 0 ? r : ORSET_KNOWN;
    last_words(l, &l->log.flag_changes, uid, bound, &last);
    if (l->locked)
        return ORSET_KNOWN;
    if ((r = deleted_counts(l, m)) < 0)
        return r;
    if (r == 0)
        last.set.system &= (uint8_t)~ORSET_DELETED;
    if (!bound) {
        /* What it has more, a client saved it with: nobody else is known to have set it. But
         * where this program saved it, the later state knew, and whoever cleared it since had
         * seen it. And so where the log is there since then: the mail has its message from the
         * other sites, so the later state had told them of it, with what it was saved with; what
         * a client set since stands in the log. */
        bool reaches = l->log.verdict == LOG_SCAN_UNBROKEN ||
                       (l->log.verdict == LOG_SCAN_GAP && l->log.begins);
        bool told = reaches && (l->x->adopted == 0 || last.first < l->x->at.uid_next);
        struct orset_flags more = *now;
        flags_without(&more, &wanted);
        flags_without(&more, &last.own);
        if (last.placed || told)
            more = last.set;
        more.system &= (uint8_t)~ORSET_DELETED | last.set.system;
        seen = *now;
        flags_without(&seen, &more);
    }
    flags_take(&seen, now, &last.own);
    gone = seen;
    flags_without(&gone, now);
    flags_without(&gone, &last.cut);
    flags_without(&seen, &gone);
    /* A client cleared it: as if it had been seen set. */
    cut = last.cut;
    flags_without(&cut, now);
    flags_take(&seen, &wanted, &cut);
    set = last.set;
    flags_take(&set, now, &last.set);
    session_explain(s,
                    "%s: UID %u: the state is older: it has %s, wanted %s. A client's last words "
                    "set %s and cleared %s, this program's were on %s",
                    l->x->vname, uid, flags_text(s, now), flags_text(s, &wanted),
                    flags_text(s, &last.set), flags_text(s, &last.cut), flags_text(s, &last.own));
    bool undeleted = ((last.cut.system & ~now->system) & ORSET_DELETED) != 0;
    r = orset_done_flags(s->os, l->x->folder, uid, &seen);
    return r < 0 ? r : local_flags(l, uid, now, &set, undeleted);
}

/* While the mailbox was another folder's: it is to go here, too. */
static int removed_by_others(struct mailbox_scan *l, uint32_t uid)
{
    guid_128_t guid;
    int r = scan_guid(l, guid)
                ? orset_local_removed_moved(l->s->os, l->x->folder, l->x->adopted - 1, uid, guid)
                : 0;
    if (r > 0)
        session_explain(l->s,
                        "%s: UID %u: other sites removed it from the folder that this mailbox was",
                        l->x->vname, uid);
    return r;
}

/* A removal that names no GUID is good for the mailbox that it was meant for alone: with other
 * UIDs it would meet any mail. */
static int drop_nameless_removal(struct mailbox_scan *l, uint32_t uid)
{
    guid_128_t guid;
    if (l->log.verdict != LOG_SCAN_BROKEN)
        return 0;
    int r = orset_task_doomed_guid(l->s->os, l->x->folder, uid, guid);
    if (r > 0)
        r = guid_128_is_empty(guid) ? orset_done_remove(l->s->os, l->x->folder, uid) : 0;
    return I_MIN(r, 0);
}

/* The message that the state has under the UID. 1; 0: there is none; or the core's error */
static int find_message(struct mailbox_scan *l, uint32_t uid, struct orset_message *m)
{
    int r = orset_message_by_uid(l->s->os, l->x->folder, uid, m);
    if (r == 0 && (r = find_half_renumbered(l, uid)) > 0)
        r = orset_message_by_uid(l->s->os, l->x->folder, uid, m);
    return r;
}

/* A mail that the state does not have under the UID. 1: it has by now, m; 0: it is done with; -1 */
static int bind_new(struct mailbox_scan *l, uint32_t uid, const struct orset_flags *named,
                    struct orset_message *m)
{
    int added = add_mail(l, named);
    if (added < 0)
        return -1;
    /* Bound to what was there already, perhaps with other flags. */
    int r = orset_message_by_uid(l->s->os, l->x->folder, uid, m);
    if (r <= 0)
        return scan_changed(l, r < 0 ? r : ORSET_KNOWN);
    if (added == 0)
        return 0; /* which mail has the UID is not known */
    keep_guid(l, m);
    return 1;
}

static int flags_of_client(struct mailbox_scan *l, uint32_t uid, const struct orset_flags *now,
                           const struct orset_flags *set)
{
    int r = local_flags(l, uid, now, set, was_undeleted(l, uid, now));
    if (r == ORSET_OK)
        session_explain(l->s, "%s: UID %u: a client's flags: %s", l->x->vname, uid,
                        flags_text(l->s, now));
    return r;
}

static struct present_facts facts_of(const struct mailbox_scan *l, const struct late_change *late,
                                     bool nameless)
{
    return (struct present_facts){
        .verdict = l->log.verdict,
        .log_is_complete = l->log.complete,
        .rewound = l->x->rewound,
        .adopted = l->x->adopted != 0,
        .restored = l->x->restored,
        .nameless = nameless,
        .late = late == NULL     ? LATE_NOTHING
                : late->expunged ? LATE_EXPUNGE
                                 : LATE_FLAGS,
    };
}

int scan_present(struct mailbox_scan *l, uint32_t uid)
{
    const struct late_change *late = scan_late(l, uid);
    struct orset_flags now, named, set;
    struct orset_message m;
    flags_of_mail(l->s, l->mail, &now);
    named = now;
    bool nameless = flags_drop_nameless(l->s, l->box, &named);
    const struct present_facts facts = facts_of(l, late, nameless);
    i_zero(&set);
    int r = find_message(l, uid, &m);
    if (r < 0)
        return scan_changed(l, r);
    if (l->locked)
        return 0;
    bool bound = r > 0;
    if (!bound && l->x->now.elsewhere && (r = scan_leaves(l, uid)) != 0)
        return scan_changed(l, r < 0 ? r : ORSET_KNOWN);
    if (!bound && facts.adopted && (r = removed_by_others(l, uid)) != 0)
        return scan_changed(l, r < 0 ? r : ORSET_OK);
    if (!bound && drop_nameless_removal(l, uid) < 0)
        return scan_changed(l, -1);
    if (!bound || !same_mail(l, &m)) {
        if ((r = bind_new(l, uid, &named, &m)) <= 0)
            return r;
        if (classify_adds_flags(&facts) && flags_of_bound(l, &m, &named, &set) < 0)
            return scan_changed(l, -1);
        if (look_for_first(l, &m) < 0)
            return -1;
    } else if (l->x->saver != 0) {
        keep_guid(l, &m); /* a copy under another UID, ended by renumber_recover() */
    }
    if (nameless)
        session_note(l->s, NOTE_WARNING,
                     "%s: UID %u has keywords without a name: its keywords are restored",
                     l->x->vname, uid);
    enum flags_case flags = classify_flags(&facts);
    if (facts.late == LATE_EXPUNGE && flags != FLAGS_DAMAGED)
        seq_range_array_add(&l->seconds, uid);
    if (flags == FLAGS_OF_CLIENTS || flags == FLAGS_SAID_LATE)
        reassert_of(l, uid, &now, &set);
    switch (flags) {
    case FLAGS_OF_CLIENTS: r = flags_of_client(l, uid, &now, &set); break;
    case FLAGS_SAID_LATE: r = flags_late(l, uid, &now, late, &set); break;
    case FLAGS_REWOUND: r = flags_rewound(l, uid, &m, &now, bound); break;
    case FLAGS_DAMAGED: r = flags_after_damage(l, l->x->folder, &m, &now, &named, &set); break;
    }
    return scan_changed(l, r);
}

int scan_other(struct mailbox_scan *l, uint32_t uid)
{
    struct orset_message m;
    struct orset_facts facts;
    int r = orset_message_by_uid(l->s->os, l->x->folder, uid, &m);
    seq_range_array_remove(&l->x->quarantine, uid);
    if (r <= 0 || same_mail(l, &m))
        return scan_changed(l, r < 0 ? r : ORSET_KNOWN);
    uint8_t sha256[32];
    memcpy(sha256, m.facts.sha256, sizeof sha256);
    if (body_facts(l->mail, &facts, NULL) < 0) {
        scan_unreadable(l);
        return 0;
    }
    if (memcmp(facts.sha256, sha256, sizeof sha256) == 0 || body_is_of(l->mail, sha256))
        return 0;
    return scan_changed(l, orset_local_missing(l->s->os, l->x->folder, uid));
}
