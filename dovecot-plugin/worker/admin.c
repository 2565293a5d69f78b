/* admin - verbs of doveadm for one user: what the state says, whether the mailboxes say the
 * same, and what to do about it. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/ops/uid.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/fetch.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/worker/apply/apply.h"
#include "dovecot-plugin/worker/apply/uidnext.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/body_requests.h"
#include "dovecot-plugin/worker/bodies/fetch.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/bodies/stubs.h"
#include "dovecot-plugin/worker/exchange/exchange.h"
#include "dovecot-plugin/worker/ingest/ingest.h"
#include "dovecot-plugin/worker/kept/kept.h"
#include "dovecot-plugin/worker/session/choice.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/link.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/names.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/worker.h"

#include <array.h>
#include <hex-binary.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>
#include <strescape.h>

/* Names and texts may hold what ends a field (protocol/admin_reply.h). */
static const char *shown(const char *text)
{
    return str_tabescape(text);
}

/* The folder is shown nowhere here, or not by its name (folders.c). */
static bool name_waits(struct session *s, const struct box *x, const struct orset_folder *f)
{
    if (f->index == ORSET_INBOX || !f->named)
        return FALSE;
    if (x == NULL || x->gone || x->vname == NULL)
        return TRUE;
    return null_strcmp(x->vname, vname_as_is(s, f->name, f->name_len)) != 0 &&
           null_strcmp(x->vname, vname_of_name(s, f->name, f->name_len)) != 0;
}

static const char *to_be(struct session *s, const struct orset_folder *f)
{
    const char *vname = vname_of_name(s, f->name, f->name_len);
    if (vname == NULL)
        vname = vname_as_is(s, f->name, f->name_len);
    return vname != NULL ? vname : name_text(f->name, f->name_len);
}

static unsigned count_names_waiting(struct session *s)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        if (orset_folder_get(s->os, i, &f) == 0 && f.live && f.home == i)
            n += name_waits(s, box_by_folder(s, i), &f);
    }
    return n;
}

/* --- status ----------------------------------------------------------------------------------- */

/* Before the exchange no mailbox was read, and the state lacks what the others have: 0 is no
 * count then. */
static const char *counted(struct session *s, unsigned n)
{
    return n == 0 && is_joining(s) ? "-" : dec2str(n);
}

/* How much there is of what a site makes no more of from some number on; what is beyond is not
 * replicated, and the log names it. */
static void reply_bounds(struct session *s)
{
    size_t keywords = orset_keywords(s->os);
    uint32_t folders = orset_folders(s->os);
    link_reply(s->link, "bounds\tkeywords=%zu\tof=%d\tfolders-ever=%u\tof=%d%s", keywords,
               ORSET_MAKE_KEYWORDS_MAX, folders, ORSET_MAKE_FOLDERS_MAX,
               keywords >= ORSET_MAKE_KEYWORDS_MAX || folders >= ORSET_MAKE_FOLDERS_MAX ? "\tfull"
                                                                                        : "");
}

/* By home: of folders that are one mailbox, the mails of all. */
static const uint64_t *count_messages(struct session *s)
{
    uint64_t *n = t_new(uint64_t, orset_folders(s->os) + 1);
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        if (orset_folder_get(s->os, i, &f) == 0 && f.home < orset_folders(s->os))
            n[f.home] += f.messages;
    }
    return n;
}

/* Of a backup site, and of one that was. */
static void reply_kept(struct session *s)
{
    unsigned n = kept_count(s);
    if (s->group->backup || n > 0)
        link_reply(s->link, "role\t%s\tkept=%u\tcannot-be-kept=%llu",
                   s->group->backup ? "backup" : "full", n, (unsigned long long)s->kept.failed);
    else if (s->group->on_demand)
        link_reply(s->link, "role\ton-demand");
}

/* What clients removed here stays at the other sites until it can be read. */
static void reply_unseen(struct session *s, const char *vname)
{
    link_reply(s->link, "cannot-be-read\t%s\tremovals-wait", shown(vname));
}

static enum frame_result status(struct session *s)
{
    uint16_t self = orset_self(s->os);
    struct orset_origin o = orset_origin_get(s->os, self);
    uint64_t counter = orset_vector_get(s->os, self), ops, lowest;
    int unplaced = orset_unplaced(s->os, UINT_MAX);
    if (unplaced < 0) {
        session_core_failed(s, "todo");
        return FRAME_TEMPORARY;
    }
    count_waiting(s);
    (void)orset_out(s->os, &ops, &lowest);
    link_reply(s->link,
               "state\tsite=%llu\tepoch=%llx\tops=%llu\twaiting=%llu\tunplaced=%s\theld=%s"
               "\tnames=%s%s",
               (unsigned long long)o.site, (unsigned long long)o.epoch, (unsigned long long)counter,
               (unsigned long long)ops, counted(s, (unsigned)unplaced),
               counted(s, (unsigned)s->quarantined),
               counted(s, is_joining(s) ? 0 : count_names_waiting(s)),
               is_joining(s) ? "\texchange-first" : "");
    for (unsigned i = 0; i < s->npeers; i++) {
        const struct peer *p = &s->peer[i];
        link_reply(s->link, "peer\tsite=%llu\tconfirmed=%llu\tunconfirmed=%llu%s%s%s",
                   (unsigned long long)p->site, (unsigned long long)p->confirmed,
                   (unsigned long long)(counter - I_MIN(counter, p->confirmed)),
                   p->behind ? "\tbehind" : "", p->forgotten ? "\tforgotten" : "",
                   p->exchange != NULL ? "\texchanging" : "");
    }
    for (unsigned i = 0; i < s->group->nsites; i++)
        if (!choice_has(s, s->group->site[i]))
            link_reply(s->link, "peer\tsite=%llu\tnot-replicated\tby=" CHOICE_FIELD,
                       (unsigned long long)s->group->site[i]);
    reply_bounds(s);
    reply_kept(s);
    (void)unseen_each(s, reply_unseen);
    const uint64_t *messages = count_messages(s);
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        if (orset_folder_get(s->os, i, &f) < 0 || !f.live || f.home != i)
            continue;
        struct box *x = box_by_folder(s, i);
        unsigned held = x == NULL ? 0 : seq_range_count(&x->quarantine);
        bool here = x != NULL && !x->gone;
        const char *waits =
            here && name_waits(s, x, &f) ? t_strdup_printf("\tto-be=%s", shown(to_be(s, &f))) : "";
        int unsettled = orset_uid_mismatches(s->os, i);
        link_reply(s->link, "folder\t%s\tmessages=%llu\tuids-to-settle=%s%s%s%s",
                   shown(folder_text(s, f.index)), (unsigned long long)messages[i],
                   unsettled < 0 ? "-" : dec2str((unsigned)unsettled), here ? "" : "\tnot-here",
                   waits, held == 0 ? "" : t_strdup_printf("\theld=%u", held));
    }
    return FRAME_OK;
}

/* --- verify: counting ------------------------------------------------------------------------- */

struct verify {
    struct session *s;
    struct mailbox *box;
    struct mailbox_transaction_context *trans;
    unsigned bound, missing, unplaced, flags, bodies, stubs;
};

static int verify_message(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct verify *v = arg;
    struct mail *mail;
    (void)own;
    if (m->uid == 0) {
        v->unplaced++;
        return 0;
    }
    v->bound++;
    mail = v->box == NULL ? NULL : mail_by_uid(v->trans, m->uid);
    if (mail == NULL) {
        v->missing++;
        return 0;
    }
    mail_free(&mail);
    return 0;
}

/* Flags and hashes of what is there, in the mailbox's order. */
static unsigned verify_mails(struct verify *v, uint32_t folder, bool bodies)
{
    struct mailbox_status st;
    unsigned unknown = 0;
    mailbox_get_open_status(v->box, STATUS_MESSAGES, &st);
    struct mail *mail = mail_alloc(v->trans, 0, NULL);
    for (uint32_t seq = 1; seq <= st.messages; seq++) {
        T_BEGIN
        {
            struct orset_message m;
            struct orset_flags now, wanted;
            mail_set_seq(mail, seq);
            if (orset_message_by_uid(v->s->os, folder, mail->uid, &m) <= 0) {
                unknown++;
            } else {
                uint8_t sha256[32];
                memcpy(sha256, m.facts.sha256, 32);
                flags_of_mail(v->s, mail, &now);
                if (orset_message_flags(v->s->os, m.folder, m.dot, &wanted) < 0 ||
                    now.system != wanted.system || now.nkeywords != wanted.nkeywords ||
                    memcmp(now.keyword, wanted.keyword, now.nkeywords * sizeof now.keyword[0]) != 0)
                    v->flags++;
                if (bodies && !body_is_of(mail, sha256))
                    v->bodies++;
                else if (bodies)
                    v->stubs += stubs_is(mail) > 0;
            }
        }
        T_END;
    }
    mail_free(&mail);
    return unknown;
}

/* --- duplicates ------------------------------------------------------------------------------- */

/* An APPEND that a client repeated after a failover is a second mail; this counts such. */
struct copy {
    uint8_t sha256[32];
    uint32_t uid;
};

static int collect_copy(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    ARRAY(struct copy) *copies = arg;
    struct copy c = {.uid = m->uid};
    (void)own;
    memcpy(c.sha256, m->facts.sha256, 32);
    if (m->uid != 0)
        array_push_back(copies, &c);
    return 0;
}

static int by_bytes(const struct copy *a, const struct copy *b)
{
    int c = memcmp(a->sha256, b->sha256, 32);
    return c != 0 ? c : a->uid < b->uid ? -1 : a->uid > b->uid;
}

/* How many mails of the mailbox are there under another UID too, byte for byte. */
static unsigned duplicates(struct session *s, uint32_t home)
{
    ARRAY(struct copy) copies;
    unsigned n = 0;
    i_array_init(&copies, 64);
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        if (orset_folder_get(s->os, i, &f) == 0 && f.home == home)
            (void)orset_each_message(s->os, i, collect_copy, &copies);
    }
    array_sort(&copies, by_bytes);
    for (unsigned i = 1; i < array_count(&copies); i++) {
        const struct copy *a = array_idx(&copies, i - 1), *b = array_idx(&copies, i);
        /* Two dots of one message have one UID. */
        n += a->uid != b->uid && memcmp(a->sha256, b->sha256, 32) == 0;
    }
    array_free(&copies);
    return n;
}

static enum frame_result verify_duplicates(struct session *s)
{
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        if (orset_folder_get(s->os, i, &f) == 0 && f.live && f.home == i)
            link_reply(s->link, "folder\t%s\tduplicates=%u", shown(folder_text(s, f.index)),
                       duplicates(s, i));
    }
    return FRAME_OK;
}

/* --- verify ----------------------------------------------------------------------------------- */

/* Fields of a mailbox that may give a UID which another site has given already; else "". Not while
 * mails come in. */
static const char *uidnext_behind(struct session *s, uint32_t home, uint32_t uidnext)
{
    uint64_t site;
    uint32_t given = uidnext_given(s, home, &site);
    if (uidnext == 0 || uidnext >= given || uidnext_waits(s, home))
        return "";
    return t_strdup_printf("\tuidnext-here=%u\tlast-of-site-%llu=%u", uidnext,
                           (unsigned long long)site, given - 1);
}

/* verify [bodies]: the state's digest, and each mailbox against the state. */
static enum frame_result verify(struct session *s, bool bodies)
{
    uint8_t digest[16];
    bool same = TRUE;
    orset_digest(s->os, digest);
    link_reply(s->link, "digest\t%s", binary_to_hex(digest, sizeof digest));
    for (uint32_t home = 0; home < orset_folders(s->os); home++) {
        struct orset_folder f;
        struct verify v = {.s = s};
        struct mailbox_status status = {.uidvalidity = 0};
        unsigned unknown = 0;
        if (orset_folder_get(s->os, home, &f) < 0 || !f.live || f.home != home)
            continue;
        struct box *x = box_by_folder(s, home);
        if (x != NULL && !x->gone && x->vname != NULL) {
            v.box = session_mailbox(s, x->vname, 0);
            if (session_open_mailbox(s, x, v.box) < 0 || mailbox_sync(v.box, 0) < 0)
                mailbox_free(&v.box);
        }
        if (v.box != NULL)
            v.trans = mailbox_transaction_begin(v.box, 0, "dovelane verify");
        for (uint32_t i = 0; i < orset_folders(s->os); i++) {
            struct orset_folder g;
            if (orset_folder_get(s->os, i, &g) == 0 && g.home == home)
                (void)orset_each_message(s->os, i, verify_message, &v);
        }
        if (v.box != NULL) {
            unknown = verify_mails(&v, home, bodies);
            session_read_end(&v.trans);
            mailbox_get_open_status(v.box, STATUS_UIDVALIDITY | STATUS_UIDNEXT, &status);
            mailbox_free(&v.box);
        }
        /* The state's own is raised by the next look, or it is later than is believed. */
        bool other = status.uidvalidity != 0 && status.uidvalidity != f.uid_validity;
        bool waits = name_waits(s, x, &f);
        const char *behind = v.unplaced > 0 ? "" : uidnext_behind(s, home, status.uidnext);
        same = same && v.missing == 0 && v.unplaced == 0 && unknown == 0 && v.flags == 0 &&
               v.bodies == 0 && !waits && !other && *behind == '\0';
        link_reply(s->link,
                   "folder\t%s\tplaced=%u\tunplaced=%u\tmissing=%u\tunknown=%u\tflags=%u"
                   "\tbodies=%u\tnames=%u\tuidvalidity=%u\tuidnext=%u%s%s",
                   shown(folder_text(s, f.index)), v.bound, v.unplaced, v.missing, unknown, v.flags,
                   v.bodies, waits, other, *behind != '\0', behind,
                   v.stubs == 0 ? "" : t_strdup_printf("\tstubs=%u", v.stubs));
    }
    /* before it no mailbox was read */
    link_reply(s->link, "verdict\t%s",
               is_joining(s) ? "exchange-first"
               : same        ? "same"
                             : "different");
    return FRAME_OK;
}

/* --- doing ------------------------------------------------------------------------------------ */

/* resync [site]: all mailboxes are compared whole, and that peer, or every one, is asked for its
 * state. */
static enum frame_result resync(struct session *s, const char *only)
{
    uint64_t site = 0;
    const struct frame_ingest all = {.n = 0};
    struct box *const *x;
    if (only != NULL && (str_to_uint64(only, &site) < 0 || session_peer(s, site) == NULL)) {
        link_reply(s->link, "-%s is no other site's number: see doveadm dovelane peers",
                   shown(only));
        return FRAME_REFUSED;
    }
    array_foreach (&s->boxes, x)
        (*x)->all = TRUE;
    body_requests_forget(s);
    array_clear(&s->failing);
    for (unsigned i = 0; i < s->npeers; i++)
        if ((site == 0 || site == s->peer[i].site) && peer_ask(s, s->peer[i].site) < 0)
            return FRAME_TEMPORARY;
    return round_ingest(s, &all) < 0 ? FRAME_TEMPORARY : FRAME_OK;
}

static bool is_mailbox(struct session *s, const char *vname)
{
    struct box *const *x;
    array_foreach (&s->boxes, x) {
        if (!(*x)->gone && (*x)->vname != NULL && strcmp((*x)->vname, vname) == 0)
            return TRUE;
    }
    return FALSE;
}

static bool named(const char *const *args, const char *vname)
{
    return *args == NULL || str_array_find(args, vname);
}

static bool is_in(const ARRAY_TYPE(const_string) * names, const char *vname)
{
    const char *const *name;
    array_foreach (names, name) {
        if (strcmp(*name, vname) == 0)
            return TRUE;
    }
    return FALSE;
}

/* accept of a mailbox that cannot be opened: removals do not wait for it any more. 1; 0: none waits
 * for it; -1 */
static int accept_unseen(struct session *s, const char *vname)
{
    int waits = unseen_waits(s, vname);
    if (waits > 0 && unseen_accept(s, vname) < 0)
        waits = -1;
    if (waits > 0)
        link_reply(s->link, "%s\tremovals-go", shown(vname));
    if (waits < 0)
        link_reply(s->link, "-%s: %s", shown(vname), shown(session_error(s)));
    return waits;
}

/* accept | restore [mailbox ...]: what is quarantined is a removal, or damage. One that cannot be
 * opened has to be named. */
static enum frame_result decide(struct session *s, bool accept, const char *const *args)
{
    const struct frame_ingest all = {.n = 0};
    struct box *const *x;
    ARRAY_TYPE(const_string) unseen;
    unsigned n = 0;
    t_array_init(&unseen, 4);
    /* After a commit that failed this reads all mailboxes' rows anew: not while they are gone
     * through. */
    if (session_begin(s) < 0 || session_commit(s) < 0) {
        link_reply(s->link, "-%s", shown(session_error(s)));
        return FRAME_TEMPORARY;
    }
    for (const char *const *a = args; *a != NULL; a++) {
        int waits = accept ? accept_unseen(s, *a) : 0;
        if (waits < 0)
            return FRAME_TEMPORARY;
        if (waits > 0) {
            array_push_back(&unseen, a);
        } else if (!is_mailbox(s, *a)) {
            link_reply(s->link, "-no mailbox %s is replicated here: see status", shown(*a));
            return FRAME_REFUSED;
        }
    }
    array_foreach (&s->boxes, x) {
        if (array_count(&(*x)->quarantine) == 0 || !named(args, (*x)->vname) ||
            is_in(&unseen, (*x)->vname))
            continue;
        int decided = quarantine_decide(s, *x, accept);
        if (decided < 0) {
            link_reply(s->link, "-%s: %s", shown((*x)->vname), shown(session_error(s)));
            return FRAME_REFUSED;
        }
        link_reply(s->link, "%s\t%s=%d", shown((*x)->vname), accept ? "accepted" : "restored",
                   decided);
        n++;
    }
    if (array_count(&unseen) > 0)
        return round_ingest(s, &all) < 0 ? FRAME_TEMPORARY : FRAME_OK;
    if (n == 0) {
        link_reply(s->link, "-nothing is held%s", *args != NULL ? " there" : "");
        return FRAME_REFUSED;
    }
    return send_new_ops(s) < 0 || round_apply(s, 0) < 0 ? FRAME_TEMPORARY : FRAME_OK;
}

/* join: mailboxes that were filled by other ways than this program's, and not looked at since.
 * Once the others have said what there is, all mails are compared as of mailboxes that were
 * never looked at: those with the bytes of a message that waits for its mail are that one. */
static enum frame_result join(struct session *s)
{
    const struct frame_ingest all = {.n = 0};
    if (session_join(s) < 0)
        return FRAME_TEMPORARY;
    return round_ingest(s, &all) < 0 ? FRAME_TEMPORARY : FRAME_OK;
}

static enum frame_result new_epoch(struct session *s)
{
    const struct frame_ingest all = {.n = 0};
    if (session_new_epoch(s, "an admin said so") < 0)
        return FRAME_TEMPORARY;
    return round_ingest(s, &all) < 0 ? FRAME_TEMPORARY : FRAME_OK;
}

/* unexpunge ...: those are new mails, and are looked for at once. And before: what a process that
 * died put back counts as here. */
static enum frame_result unexpunge(struct session *s, const char *const *args)
{
    const struct frame_ingest all = {.n = 0};
    unsigned restored;
    if (kept_count(s) > 0 && round_ingest(s, &all) < 0)
        return FRAME_TEMPORARY;
    if (is_joining(s)) {
        link_reply(s->link, "-the other sites are still asked for this user's state: what is in "
                            "his mailboxes is not known yet; say it again in a minute");
        return FRAME_REFUSED;
    }
    enum frame_result result = kept_unexpunge(s, args, &restored);
    return restored > 0 && round_ingest(s, &all) < 0 ? FRAME_TEMPORARY : result;
}

enum frame_result admin(struct session *s, const char *const *args)
{
    if (strcmp(args[0], "status") == 0)
        return status(s);
    const char *how = args[1] != NULL ? args[1] : "";
    if (strcmp(args[0], "verify") == 0 && strcmp(how, "--duplicates") == 0)
        return verify_duplicates(s);
    if (strcmp(args[0], "verify") == 0 &&
        (*how == '\0' || (strcmp(how, "bodies") == 0 && args[2] == NULL)))
        return verify(s, *how != '\0');
    if (strcmp(args[0], "resync") == 0)
        return resync(s, args[1]);
    if (strcmp(args[0], "accept") == 0 || strcmp(args[0], "restore") == 0)
        return decide(s, *args[0] == 'a', args + 1);
    if (strcmp(args[0], "new-epoch") == 0)
        return new_epoch(s);
    if (strcmp(args[0], "join") == 0 && args[1] == NULL)
        return join(s);
    if (strcmp(args[0], ON_DISK_VERB) == 0)
        return on_disk(s, args + 1);
    if (strcmp(args[0], FETCH_VERB) == 0)
        return fetch_verb(s, args + 1);
    if (strcmp(args[0], "kept") == 0)
        return kept_show(s, args + 1);
    if (strcmp(args[0], "unexpunge") == 0)
        return unexpunge(s, args + 1);
    link_reply(s->link,
               "-%s: there is status, verify [bodies | --duplicates], resync [site], accept "
               "[mailbox ...], restore [mailbox ...], new-epoch, join, kept, unexpunge",
               shown(t_strarray_join(args, " ")));
    return FRAME_REFUSED;
}
