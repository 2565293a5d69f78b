/* place_save - saves the mails of one run: a copy of one that is here, or the bytes that came. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/stub/mail.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/modseq_write.h"
#include "dovecot-plugin/worker/apply/place.h"
#include "dovecot-plugin/worker/apply/write_intent.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/body_requests.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/bodies/plan.h"
#include "dovecot-plugin/worker/bodies/stubs.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/file_names.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/session/fsync_saves.h"

#include <array.h>
#include <guid.h>
#include <istream.h>
#include <mail-storage-private.h>
#include <maildir-keywords.h>
#include <maildir-uidlist.h>
#include <message-header-parser.h>
#include <seq-range-array.h>

void place_failed(struct placing *p)
{
    p->failed = p->x->pass.failed = TRUE;
}

/* copy: the source's GUID comes with it, and only then a storage links instead of copying bytes. */
static struct mail_save_context *save_init(struct placing *p, const struct orset_task *t,
                                           struct mail_keywords **keywords, bool copy)
{
    const struct orset_facts *facts = &t->message.facts;
    struct mail_save_context *ctx = mailbox_save_alloc(p->trans);
    enum mail_flags flags;
    guid_128_t guid;
    flags_to_dovecot(p->s, p->box, &t->flags, &flags, keywords);
    mailbox_save_set_flags(ctx, flags, *keywords);
    /* Never below UIDNEXT, where Dovecot gives another one without a word; never far above it
     * (F32). */
    p->asked = 0;
    if (t->uid >= p->uid_next && t->uid - p->uid_next <= ORSET_UID_JUMP &&
        t->uid <= ORSET_UID_MAX) {
        mailbox_save_set_uid(ctx, t->uid);
        p->uid_next = t->uid + 1;
        p->asked = t->uid;
    }
    memcpy(guid, facts->guid, sizeof guid);
    if (!copy)
        mailbox_save_set_guid(ctx, facts->guid_text_len > 0
                                       ? t_strndup(facts->guid_text, facts->guid_text_len)
                                       : guid_128_to_string(guid));
    mailbox_save_set_received_date(ctx, (time_t)facts->received, 0);
    mailbox_save_set_save_date(ctx, (time_t)facts->saved);
    if (p->f.peer_modseq != 0 && modseq_is_believed(p->box, p->f.peer_modseq))
        mailbox_save_set_min_modseq(ctx, p->f.peer_modseq);
    return ctx;
}

static void close_source(struct placing *p)
{
    if (p->source_trans != NULL)
        session_read_end(&p->source_trans);
    if (p->source != NULL && p->source != p->box)
        mailbox_free(&p->source);
    p->source = NULL;
    p->from = NULL;
}

/* It stays open for the mails that come next: a Maildir would be read, and its list of UIDs
 * written, for each. */
static void open_source(struct placing *p, struct box *from)
{
    if (p->from == from)
        return;
    close_source(p);
    p->from = from;
    p->source = from == p->x ? p->box : session_mailbox(p->s, from->vname, MAILBOX_FLAG_READONLY);
    /* The one we save into is open, and must not be synced now. */
    if (p->source == p->box || session_open_mailbox(p->s, from, p->source) == 0)
        p->source_trans = mailbox_transaction_begin(p->source, 0, "dovelane copy");
}

#define MESSAGE_ID_MOST 256 /* bytes for the log */

static void keep_message_id(struct placing *p, struct place_item *item, const char *value)
{
    if (value != NULL)
        item->message_id = p_strndup(p->pool, value, MESSAGE_ID_MOST);
}

/* The stream is one that can go back, and is at its start, as afterwards. */
static void read_message_id(struct placing *p, struct place_item *item, struct istream *in)
{
    struct message_header_parser_ctx *parser;
    struct message_header_line *hdr;
    if (!p->s->group->log_placed)
        return;
    parser = message_parse_header_init(in, NULL, 0);
    while (item->message_id == NULL && message_parse_header_next(parser, &hdr) > 0 && !hdr->eoh) {
        if (strcasecmp(hdr->name, "Message-ID") == 0)
            keep_message_id(p, item, t_strndup(hdr->value, hdr->value_len));
    }
    message_parse_header_deinit(&parser);
    i_stream_seek(in, 0);
}

/* Who reads public mailboxes has not the key of the user's stubs (bodies/stubs.c). */
static bool stub_may_be_copied(const struct placing *p, struct mail *mail)
{
    return p->box->list->ns->type == MAIL_NAMESPACE_TYPE_PRIVATE || stub_of_mail(mail) == NULL;
}

/* 1: copied; 0: there is nothing to copy; -1: it failed */
static int copy_from(struct placing *p, struct place_item *item)
{
    const struct orset_task *t = &item->task;
    struct session *s = p->s;
    struct box *from = t->source_uid == 0 ? NULL : box_of_folder(s, t->source_folder);
    struct mail_keywords *keywords;
    const char *guid, *value;
    guid_128_t hash;
    int r = 0;
    if (from == NULL || from->gone || from->vname == NULL)
        return 0;
    open_source(p, from);
    struct mail *mail =
        p->source_trans == NULL ? NULL : mail_by_uid(p->source_trans, t->source_uid);
    if (mail == NULL)
        return 0;
    if (mail_get_special(mail, MAIL_FETCH_GUID, &guid) == 0) {
        mail_generate_guid_128_hash(guid, hash);
        /* The source's GUID says which mail it is, not which bytes: those of another delivery,
         * or of a file that was edited or rotted, or that cannot be read, are asked for. */
        if (memcmp(hash, t->message.facts.guid, 16) == 0 &&
            body_is_of(mail, t->message.facts.sha256) && stub_may_be_copied(p, mail)) {
            bool is_stub = stub_of_mail(mail) != NULL;
            uint32_t uid_next = p->uid_next;
            struct mail_save_context *ctx = save_init(p, t, &keywords, TRUE);
            r = copy_mail(&ctx, mail) < 0 ? -1 : 1;
            if (r < 0 && is_stub) { /* by a link only; else its text is asked for */
                p->uid_next = uid_next;
                r = 0;
            }
            if (r > 0 && s->group->log_placed &&
                mail_get_first_header(mail, "Message-ID", &value) > 0)
                keep_message_id(p, item, value);
            if (keywords != NULL)
                mailbox_keywords_unref(&keywords);
        }
    }
    mail_free(&mail);
    return r;
}

#define AGAIN_FIRST 1000 /* milliseconds, doubling */
#define AGAIN_LAST 30000
#define FAILING_MAX 1000

static struct failing *failing_of(struct session *s, const struct orset_task *t)
{
    struct failing *f;
    array_foreach_modifiable (&s->failing, f) {
        if (f->folder == t->folder && f->dot.origin == t->message.dot.origin &&
            f->dot.counter == t->message.dot.counter)
            return f;
    }
    return NULL;
}

static bool is_to_wait(struct session *s, const struct orset_task *t)
{
    const struct failing *f = failing_of(s, t);
    uint64_t now = clock_msecs();
    if (f == NULL || f->again <= now)
        return FALSE;
    session_want_tick(s, (unsigned)(f->again - now));
    return TRUE;
}

static void try_later(struct session *s, const struct orset_task *t)
{
    struct failing *f = failing_of(s, t), fresh = {t->folder, t->message.dot, AGAIN_FIRST / 2, 0};
    if (f == NULL) {
        if (array_count(&s->failing) == FAILING_MAX)
            array_pop_front(&s->failing);
        array_push_back(&s->failing, &fresh);
        f = array_back_modifiable(&s->failing);
    }
    f->wait = I_MIN(f->wait * 2, AGAIN_LAST);
    f->again = clock_msecs() + f->wait;
    session_want_tick(s, f->wait);
}

void place_saved(struct session *s, const struct orset_task *t)
{
    struct failing *f = array_count(&s->failing) == 0 ? NULL : failing_of(s, t);
    if (f != NULL)
        array_delete(&s->failing, array_ptr_to_idx(&s->failing, f), 1);
}

static void ask_for(struct placing *p, const struct orset_task *t, unsigned at)
{
    struct plan_item *item = plan_item(p->s, at);
    const struct body_request *body = body_request_add(p->wants, &t->message, at + 1);
    item->until = body == NULL ? 0 : (uint32_t)body_request_until(body);
    item->given_up = p->mailbox->impatient || (body != NULL && body_request_is_vain(p->s, body));
    if (item->given_up)
        body_request_given_up(p->wants);
    p->blocked = p->blocked || !item->given_up;
}

void place_later(struct placing *p, const struct orset_task *t, unsigned at)
{
    struct session *s = p->s;
    struct plan_item *item = plan_item(s, at);
    const uint8_t *sha256 = t->message.facts.sha256;
    if (s->bodies != NULL && bodies_has(s->bodies, sha256)) {
        p->handed++;
        item->bodies = spool_keep(s, sha256);
    } else if (t->source_uid != 0 || spool_has(s, sha256)) {
        item->bodies = TRUE;
    } else {
        ask_for(p, t, at);
    }
}

static int count_copy(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    unsigned *n = arg;
    (void)m;
    (void)own;
    return ++*n > 1;
}

/* Of a copy of a mail that is in the mailbox, or was: that one's file has its name, or had it. */
static void note_file_name(struct session *s, const struct orset_task *t)
{
    const struct orset_message *m = &t->message;
    unsigned n = 0;
    if (m->facts.guid_text_len == 0)
        return;
    const char *guid = t_strndup(m->facts.guid_text, m->facts.guid_text_len);
    if (m->k > 1 || orset_each_copy(s->os, m->folder, m->facts.guid, count_copy, &n) > 0)
        file_name_is_used(guid);
}

static int save_it(struct placing *p, const struct orset_task *t, struct istream *in,
                   struct mail_keywords **keywords)
{
    const struct orset_facts *facts = &t->message.facts;
    struct stub stub;
    struct stub_key key;
    bool as_stub = body_is_whole_elsewhere(p->s, facts->sha256) &&
                   stubs_wanted(p->s, p->box, facts, in, &stub, &key);
    struct mail_save_context *ctx = save_init(p, t, keywords, FALSE);
    sync_gather();
    int r = save_stream_as(ctx, in, as_stub ? &stub : NULL, &key);
    sync_let();
    return r;
}

static int save_item(struct placing *p, struct place_item *item)
{
    struct orset_task *t = &item->task;
    struct mail_keywords *keywords;
    if (array_count(&p->s->failing) > 0 && is_to_wait(p->s, t)) {
        plan_item(p->s, item->at)->given_up = TRUE;
        return 0;
    }
    if (p->blocked || item->waits) {
        place_later(p, t, item->at);
        return 0;
    }
    int r = copy_from(p, item);
    if (r == 0) {
        struct istream *in = body_open(p->s, t->message.facts.sha256);
        if (in == NULL) {
            ask_for(p, t, item->at);
            return 0;
        }
        bool handed = p->s->bodies != NULL && bodies_has(p->s->bodies, t->message.facts.sha256);
        p->handed += handed;
        item->spooled = !handed;
        read_message_id(p, item, in);
        r = save_it(p, t, in, &keywords) < 0 ? -1 : 1;
        if (keywords != NULL)
            mailbox_keywords_unref(&keywords);
        i_stream_unref(&in);
    }
    if (r < 0) {
        session_note(p->s, NOTE_WARNING, "%s: a mail cannot be saved and waits: %s", p->x->vname,
                     mailbox_get_last_internal_error(p->box, NULL));
        place_failed(p);
        try_later(p->s, t);
        return 0;
    }
    note_file_name(p->s, t);
    flags_holdable(p->s, p->box, &t->flags, &item->seen);
    item->asked = p->asked;
    item->saved = TRUE;
    p->nsaved++;
    return 0;
}

static int say_writing(struct placing *p, struct write_intent *w)
{
    for (unsigned i = 0; i < p->n; i++) {
        const struct place_item *item = &p->item[i];
        if (item->saved)
            write_intent_add(w, item->asked, item->task.message.folder, item->task.message.dot,
                             &item->seen);
    }
    if (session_begin(p->s) < 0)
        return -1;
    if (write_intent_put(p->s, p->x, w) < 0) {
        session_rollback(p->s);
        return -1;
    }
    return session_commit(p->s);
}

/* A Maildir that is being removed, file by file: mails saved now would stand there with letters
 * for keywords that the next keyword gets, or twice. Rather they wait for a scan of what is
 * left. */
static bool is_going(struct placing *p)
{
    if ((!p->has_uidlist || maildir_has(p->box, MAILDIR_UIDLIST_NAME)) &&
        (!p->has_keywords || maildir_has(p->box, MAILDIR_KEYWORDS_NAME)))
        return FALSE;
    session_note(p->s, NOTE_WARNING,
                 "%s: the Maildir is going while mails are saved there: they wait", p->x->vname);
    p->s->index_lost = p->s->scan_again = TRUE;
    session_want_tick(p->s, 100);
    return TRUE;
}

/* All that were about to be saved are tried again later, each for itself. */
static void wait_all(struct placing *p)
{
    place_failed(p);
    for (unsigned i = 0; i < p->n; i++) {
        if (p->item[i].saved)
            try_later(p->s, &p->item[i].task);
    }
    p->nsaved = 0;
}

int place_save(struct placing *p)
{
    struct mail_transaction_commit_changes changes;
    struct seq_range_iter iter;
    struct write_intent w;
    unsigned n = 0;
    file_names_end();
    p->trans = mailbox_transaction_begin(
        p->box,
        MAILBOX_TRANSACTION_FLAG_EXTERNAL | MAILBOX_TRANSACTION_FLAG_ASSIGN_UIDS |
            MAILBOX_TRANSACTION_FLAG_SYNC | MAILBOX_TRANSACTION_FLAG_NO_NOTIFY,
        "dovelane place");
    write_intent_begin(&w, p->box, WRITE_INTENT_PLACE);
    for (unsigned i = 0; i < p->n; i++) {
        T_BEGIN
        {
            (void)save_item(p, &p->item[i]);
        }
        T_END;
    }
    close_source(p);
    int said = 0;
    if (sync_gathered() < 0) {
        session_note(p->s, NOTE_WARNING, "%s: mails cannot be saved and wait: fsync(): %m",
                     p->x->vname);
        wait_all(p);
    } else if (p->nsaved > 0) {
        said = say_writing(p, &w);
    }
    write_intent_free(&w);
    if (p->nsaved == 0 || said < 0) {
        mailbox_transaction_rollback(&p->trans);
        if (said < 0)
            place_failed(p);
        p->nsaved = 0;
        return said;
    }
    crash_at("place-said");
    if (is_going(p)) {
        mailbox_transaction_rollback(&p->trans);
        p->x->all = TRUE;
        wait_all(p);
        return -1;
    }
    int committed = mailbox_transaction_commit_get_changes(&p->trans, &changes);
    file_names_end();
    if (committed < 0) {
        session_note(p->s, NOTE_WARNING, "%s: mails cannot be saved and wait: %s", p->x->vname,
                     mailbox_get_last_internal_error(p->box, NULL));
        p->x->all = TRUE;
        wait_all(p);
        return -1;
    }
    seq_range_array_iter_init(&iter, &changes.saved_uids);
    for (unsigned i = 0; i < p->n; i++)
        if (p->item[i].saved && !seq_range_array_iter_nth(&iter, n++, &p->item[i].uid))
            p->item[i].uid = 0;
    pool_unref(&changes.pool);
    return mailbox_sync(p->box, 0) < 0 ? -1 : 0;
}
