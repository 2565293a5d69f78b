/* send_ops - own ops to the peers: batches from the number a peer has, with the bodies of the
 * mails they add. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/ops/op_batch.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/exchange/exchange.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <buffer.h>
#include <mail-storage-private.h>

#define OPS_MOST (64 * 1024) /* bytes of ops in a batch; their bodies are the other bound */
#define TOUCHED_MOST 4000

struct touched {
    uint32_t folder, uid;
    uint64_t number; /* of the op; its own mail's, if it is an add */
    bool add;        /* its mail is sent along */
    uint64_t size;
    uint8_t sha256[32];
};

struct shipment {
    struct session *s;
    uint64_t from, next;
    /* ops from this number on wait for the next batch, which has room for their bodies */
    uint64_t behind;
    uint64_t bytes; /* of the bodies */
    size_t nbodies;
    ARRAY(struct touched) touched;
    struct orset_buf mails;
    size_t nmails;
    struct mailbox *box;
    struct mailbox_transaction_context *trans;
    uint32_t box_folder;
};

/* --- bodies ----------------------------------------------------------------------------------- */

static int collect_touched(void *arg, uint64_t number, uint32_t folder,
                           const struct orset_message *m)
{
    struct shipment *sh = arg;
    struct touched t = {.folder = folder, .uid = m->uid, .number = number};
    /* A larger mail is asked for, and a copy is made there from what it was copied from here. */
    t.add = m->dot.origin == orset_self(sh->s->os) && m->dot.counter == number &&
            m->facts.size <= PARCEL_MAIL_MAX &&
            (sh->s->batch_bodies == NULL || !batch_bodies_is_copied(sh->s->batch_bodies, number));
    if (array_count(&sh->touched) == TOUCHED_MOST ||
        (t.add &&
         (sh->nbodies == PARCEL_MAILS_MAX || sh->bytes + m->facts.size > PARCEL_MAILS_BYTES))) {
        sh->behind = number;
        return 1;
    }
    if (t.add) {
        sh->nbodies++;
        sh->bytes += t.size = m->facts.size;
        memcpy(t.sha256, m->facts.sha256, sizeof t.sha256);
    }
    array_push_back(&sh->touched, &t);
    return 0;
}

static void close_box(struct shipment *sh)
{
    if (sh->box == NULL)
        return;
    session_read_end(&sh->trans);
    mailbox_free(&sh->box);
}

static bool open_box(struct shipment *sh, uint32_t folder)
{
    struct box *x = box_of_folder(sh->s, folder);
    if (sh->box != NULL && sh->box_folder == folder)
        return TRUE;
    close_box(sh);
    if (x == NULL || x->gone || x->vname == NULL)
        return FALSE;
    sh->box = session_mailbox(sh->s, x->vname, MAILBOX_FLAG_READONLY);
    sh->box_folder = folder;
    if (session_open_mailbox(sh->s, x, sh->box) < 0) {
        mailbox_free(&sh->box);
        return FALSE;
    }
    sh->trans =
        mailbox_transaction_begin(sh->box, MAILBOX_TRANSACTION_FLAG_NO_CACHE_DEC, "dovelane ship");
    return TRUE;
}

/* A body that cannot be read now is asked for. */
static void put_body(struct shipment *sh, const struct touched *t)
{
    uint64_t size;
    struct text bodies;
    if (!t->add || t->number >= sh->next)
        return;
    if (sh->s->batch_bodies != NULL && batch_bodies_find(sh->s->batch_bodies, t->sha256, &bodies) &&
        bodies.n == t->size) {
        parcel_put_mail(&sh->mails, t->sha256, bodies);
        sh->nmails++;
        return;
    }
    if (!open_box(sh, t->folder))
        return;
    struct mail *mail = mail_by_uid(sh->trans, t->uid);
    buffer_t *body = mail == NULL ? NULL : buffer_create_dynamic(default_pool, (size_t)t->size + 1);
    if (mail != NULL && body_read(mail, t->sha256, 0, PARCEL_MAIL_MAX, body, &size) > 0 &&
        size == t->size) {
        parcel_put_mail(&sh->mails, t->sha256, (struct text){body->data, body->used});
        sh->nmails++;
    }
    if (mail != NULL) {
        buffer_free(&body);
        mail_free(&mail);
    }
}

static void collect_bodies(struct shipment *sh)
{
    const struct touched *t;
    array_foreach (&sh->touched, t)
        put_body(sh, t);
    close_box(sh);
}

/* --- batches ---------------------------------------------------------------------------------- */

struct modseqs {
    struct orset_modseq *v;
    size_t n;
};

/* A folder's two numbers go together. An admin can give a mailbox a HIGHESTMODSEQ that no batch
 * holds. */
static void put_modseq(void *arg, uint32_t folder, uint64_t modseq)
{
    struct modseqs *m = arg;
    bool second = m->n > 0 && m->v[m->n - 1].folder == folder;
    if (m->n + !second < ORSET_MODSEQS_MAX)
        m->v[m->n++] = (struct orset_modseq){folder, I_MIN(modseq, ORSET_MODSEQ_MAX)};
}

/* The batch, with the modseqs that its changes have here (F33): which it has room for is known
 * when it is made. */
static int make_batch(struct shipment *sh, uint64_t from, struct orset_buf *batch)
{
    struct orset *os = sh->s->os;
    int r = orset_batch_below(os, from, sh->behind, OPS_MOST, NULL, 0, batch, &sh->next);
    if (r != 0)
        return r;
    struct modseqs m = {.v = i_new(struct orset_modseq, ORSET_MODSEQS_MAX)};
    scan_modseqs_of(sh->s, from, sh->next - 1, put_modseq, &m);
    if (m.n > 0) {
        batch->len = 0;
        r = orset_batch_below(os, from, sh->next, OPS_MOST, m.v, m.n, batch, &sh->next);
    }
    i_free(m.v);
    return r;
}

static void sent(struct session *s, uint64_t site, uint64_t upto)
{
    for (unsigned i = 0; i < s->npeers; i++) {
        struct peer *p = &s->peer[i];
        if (site != 0 && p->site != site)
            continue;
        p->owed = FALSE;
        p->sent = I_MAX(p->sent, upto);
    }
}

/* One batch for a site, or all. 1: more ops wait; 0: that was the last; -1 */
static int send_ops_batch(struct session *s, uint64_t site, uint64_t *from, bool hello)
{
    struct shipment sh = {.s = s,
                          .from = *from,
                          .behind = ORSET_COUNTER_MAX + 1,
                          .mails = {.alloc = session_alloc()}};
    struct orset_buf batch = {.alloc = session_alloc()}, body = {.alloc = session_alloc()};
    uint64_t counter = orset_vector_get(s->os, orset_self(s->os));
    i_array_init(&sh.touched, 64);
    int r = 0;
    if (*from <= counter && (r = orset_touched_since(s->os, *from - 1, collect_touched, &sh)) >= 0)
        r = 0;
    if (r == 0)
        r = make_batch(&sh, *from, &batch);
    bool gap = r == ORSET_E_GAP;
    if (gap) {
        /* Only the vector: the site sees that it is behind, and exchanges. */
        batch.len = 0;
        array_clear(&sh.touched);
        hello = TRUE;
        r = orset_batch_make(s->os, counter + 1, OPS_MOST, NULL, 0, &batch, &sh.next);
    }
    if (r == 0 || (r == ORSET_KNOWN && hello)) {
        if (r == 0)
            collect_bodies(&sh);
        parcel_put_batch(&body, (struct text){batch.data, batch.len}, sh.nmails);
        if (sh.mails.len > 0)
            orset_buf_put(&body, sh.mails.data, sh.mails.len);
        if (body.failed || sh.mails.failed) {
            r = session_fail(s, "out of memory");
        } else {
            session_send_batch(s, site, gap || sh.next <= *from ? 0 : *from, body.data, body.len);
            s->send_room -= I_MIN(s->send_room, body.len);
            sent(s, site, sh.next - 1);
            *from = sh.next;
        }
    }
    array_free(&sh.touched);
    orset_buf_free(&sh.mails);
    orset_buf_free(&batch);
    orset_buf_free(&body);
    return r < 0 ? session_core_failed(s, "ship") : r == 0 && sh.next <= counter;
}

static void set_more(struct session *s, uint64_t site, bool more)
{
    for (unsigned i = 0; i < s->npeers; i++)
        if (site == 0 || s->peer[i].site == site)
            s->peer[i].more = more;
}

static int put_peers(struct session *s)
{
    if (session_begin(s) < 0)
        return -1;
    for (unsigned i = 0; i < s->npeers; i++)
        if (rows_put_peer(s, &s->peer[i]) < 0) {
            session_rollback(s);
            return -1;
        }
    return session_commit(s);
}

static int send_ops_from(struct session *s, uint64_t site, uint64_t from, bool hello)
{
    uint64_t counter = orset_vector_get(s->os, orset_self(s->os));
    int r = 1;
    set_more(s, site, FALSE);
    if (from > counter && !hello)
        return 0;
    while (s->send_room > 0 && (r = send_ops_batch(s, site, &from, hello)) > 0)
        hello = FALSE;
    set_more(s, site, r > 0);
    return r < 0 ? -1 : put_peers(s);
}

int send_new_ops(struct session *s)
{
    bool alike = s->npeers > 0;
    for (unsigned i = 1; i < s->npeers; i++)
        alike = alike && s->peer[i].sent == s->peer[0].sent && !s->peer[i].forgotten &&
                !s->peer[0].forgotten;
    if (is_joining(s))
        return 0;
    if (alike && s->npeers > 1)
        return send_ops_from(s, 0, s->peer[0].sent + 1, FALSE);
    for (unsigned i = 0; i < s->npeers; i++)
        if (!s->peer[i].forgotten &&
            send_ops_from(s, s->peer[i].site, s->peer[i].sent + 1, FALSE) < 0)
            return -1;
    return 0;
}

static int forget(struct session *s, struct peer *p)
{
    session_note(s, NOTE_WARNING, "site %llu is too far behind: it will exchange when it is back",
                 (unsigned long long)p->site);
    p->forgotten = TRUE;
    p->more = FALSE;
    if (session_begin(s) < 0)
        return -1;
    if (rows_put_peer(s, p) < 0 || peer_drop_confirmed(s) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

/* The first that is not confirmed: whether the peer can take it by now. What is new goes on
 * where it was. */
static int send_one(struct session *s, struct peer *p)
{
    uint64_t was = p->sent;
    bool more = p->more;
    s->send_room = I_MIN(s->send_room, 1);
    int r = send_ops_from(s, p->site, p->confirmed + 1, FALSE);
    p->more = more;
    p->sent = I_MAX(was, p->sent);
    return r;
}

int ship(struct session *s, uint64_t site, enum frame_ship how, uint64_t from)
{
    struct peer *p = session_peer(s, site);
    if (p == NULL)
        return session_fail(s, "site %llu is not in the group", (unsigned long long)site);
    if (how == FRAME_SHIP_CONFIRMED && from > 0)
        return send_one(s, p);
    /* Where it ends before the last op, what is sent next goes on from there. */
    if (how == FRAME_SHIP_CONFIRMED)
        p->sent = p->confirmed;
    else if (how == FRAME_SHIP_NEW && from > 0)
        p->sent = I_MAX(p->confirmed, I_MIN(p->sent, from - 1));
    switch (how) {
    case FRAME_SHIP_NEW:
    case FRAME_SHIP_CONFIRMED: return send_ops_from(s, site, p->sent + 1, FALSE);
    case FRAME_SHIP_HELLO: return send_ops_from(s, site, p->sent + 1, TRUE);
    case FRAME_SHIP_EXCHANGE: return peer_exchange(s, p);
    case FRAME_SHIP_FORGET: return forget(s, p);
    }
    return 0;
}
