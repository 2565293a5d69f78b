/* give - what answers a peer's WANT: bodies from the mailboxes, small ones together, of larger ones
 * the first part each, of a single one several.
 *
 * A part's bytes are sent only if the whole mail is still what its SHA-256 says, so each part
 * costs a read of all of it. A parcel of 60 kB can name 1,000 large mails: no more than
 * GIVE_BYTES are read for one question; the rest is given at the next TICK, behind other users'
 * questions. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/bodies/body.h"
#include "dovecot-plugin/worker/bodies/give.h"
#include "dovecot-plugin/worker/bodies/identity.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <buffer.h>
#include <mail-storage-private.h>

#define GIVE_BYTES (64 * 1024 * 1024) /* and one more mail */
/* parcels of one peer's that wait: it asks for more parts of some mails while it waits for the
 * first ones of others */
#define OWED_MOST 4
#define FOLDER_COSTS 512 /* bytes: to look for a mail that is not there */

/* near: where the last one was found. */
static int find_dot(struct session *s, const struct parcel_want *w, uint32_t near,
                    struct orset_message *m)
{
    struct orset_dot dot = {.counter = w->number};
    uint16_t n = orset_origins(s->os);
    for (dot.origin = 0; dot.origin < n; dot.origin++) {
        struct orset_origin o = orset_origin_get(s->os, dot.origin);
        if (o.site == w->site && o.epoch == w->epoch)
            break;
    }
    if (dot.origin == n)
        return 0;
    int found = near < orset_folders(s->os) ? orset_message_get(s->os, near, dot, m) : 0;
    if (found != 0 && found != ORSET_E_ABSENT)
        return found;
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        int r = orset_message_get(s->os, i, dot, m);
        if (r != 0 && r != ORSET_E_ABSENT)
            return r;
    }
    return 0;
}

/* Mailboxes stay open from one mail to the next. */
struct giving {
    struct session *s;
    uint64_t to;
    uint32_t near, folder; /* of the last one; of box */
    struct mailbox *box;
    struct mailbox_transaction_context *trans;
    struct orset_buf mails; /* whole ones, that go together */
    size_t nmails, bytes;
    uint64_t read; /* bytes */
};

static void close_given(struct giving *g)
{
    if (g->box == NULL)
        return;
    session_read_end(&g->trans);
    mailbox_free(&g->box);
}

static bool open_given(struct giving *g, uint32_t folder)
{
    struct box *x = box_of_folder(g->s, folder);
    if (g->box != NULL && g->folder == folder)
        return TRUE;
    close_given(g);
    if (x == NULL || x->gone || x->vname == NULL)
        return FALSE;
    g->folder = folder;
    g->box = session_mailbox(g->s, x->vname, MAILBOX_FLAG_READONLY);
    if (session_open_mailbox(g->s, x, g->box) < 0) {
        mailbox_free(&g->box);
        return FALSE;
    }
    g->trans =
        mailbox_transaction_begin(g->box, MAILBOX_TRANSACTION_FLAG_NO_CACHE_DEC, "dovelane want");
    return TRUE;
}

/* A part of the body, from the mailbox. */
static int read_wanted(struct giving *g, const struct parcel_want *w, size_t most, buffer_t *part,
                       uint64_t *size_r)
{
    struct orset_message m;
    struct orset_folder f;
    if (find_dot(g->s, w, g->near, &m) <= 0) {
        g->read += (uint64_t)FOLDER_COSTS * orset_folders(g->s->os);
        return 0;
    }
    if (m.uid == 0 || orset_folder_get(g->s->os, m.folder, &f) < 0)
        return 0;
    g->near = m.folder;
    if (!open_given(g, f.home))
        return 0;
    struct mail *mail = mail_by_uid(g->trans, m.uid);
    if (mail == NULL)
        return 0;
    int r = body_read(mail, w->sha256, w->offset, most, part, size_r);
    g->read += *size_r;
    mail_free(&mail);
    if (r == 0 && *size_r > 0)
        session_note(g->s, NOTE_WARNING,
                     "%s: UID %u: a peer asks for it, and its bytes are not what they were when "
                     "the mail came: not sent",
                     mailbox_get_vname(g->box), m.uid);
    return r;
}

static void send_part(struct session *s, uint64_t site, const struct parcel_body *b)
{
    struct orset_buf out = {.alloc = session_alloc()};
    parcel_put_body(&out, b);
    if (!out.failed)
        session_send(s, site, PARCEL_BODY, TRUE, out.data, out.len);
    orset_buf_free(&out);
}

static void send_mails(struct giving *g)
{
    struct orset_buf out = {.alloc = session_alloc()};
    if (g->nmails == 0)
        return;
    parcel_put_bodies(&out, g->nmails);
    orset_buf_put(&out, g->mails.data, g->mails.len);
    if (!out.failed && !g->mails.failed)
        session_send(g->s, g->to, PARCEL_BODIES, TRUE, out.data, out.len);
    orset_buf_free(&out);
    g->mails.len = g->nmails = g->bytes = 0;
}

/* What this site does not know yet it may get, and what it has not read it may have: of such a mail
 * it does not say that it is not held here, and who asks asks again. */
static bool may_refuse(const struct session *s, const struct parcel_want *w)
{
    return !is_joining(s) && orset_knows(s->os, w->site, w->epoch, w->number);
}

static void give(struct giving *g, const struct parcel_want *w, bool single, buffer_t *read)
{
    size_t most = single ? (size_t)PARCEL_PARTS_MAX * PARCEL_PART_MAX : PARCEL_PART_MAX, at = 0;
    uint64_t size = 0;
    struct parcel_body b = {.sha256 = w->sha256};
    buffer_set_used_size(read, 0);
    bool there = read_wanted(g, w, most, read, &size) > 0 && w->offset <= size;
    if (!there && !may_refuse(g->s, w))
        return;
    if (there && w->offset == 0 && size == read->used && size <= PARCEL_MAIL_MAX) {
        if (g->nmails == PARCEL_MAILS_MAX || g->bytes + size > PARCEL_MAILS_BYTES)
            send_mails(g);
        parcel_put_mail(&g->mails, w->sha256, (struct text){read->data, read->used});
        g->nmails++;
        g->bytes += size;
        return;
    }
    do {
        size_t len = I_MIN(read->used - at, PARCEL_PART_MAX);
        if (there)
            b = (struct parcel_body){
                w->sha256, size, w->offset + at, {CONST_PTR_OFFSET(read->data, at), len}};
        send_part(g->s, g->to, &b);
        at += len;
    } while (there && at < read->used);
}

/* Of those who asked: its wants from where on it got nothing yet. */
static void keep_rest(struct session *s, uint64_t site, const struct text *body, size_t done)
{
    struct pending_wants *o = array_append_space(&s->pending_wants);
    o->site = site;
    o->done = done;
    o->body = buffer_create_dynamic(default_pool, body->n);
    buffer_append(o->body, body->p, body->n);
}

/* done: how many of them were given before. */
static void give_some(struct session *s, uint64_t site, struct text body, size_t done)
{
    struct giving g = {.s = s, .to = site, .mails = {.alloc = session_alloc()}};
    struct orset_reader wants;
    struct parcel_want w;
    size_t n, at = 0;
    if (parcel_wants(body, &n, &wants) < 0)
        return;
    buffer_t *read = buffer_create_dynamic(default_pool, 65536);
    while (g.read < GIVE_BYTES && parcel_next_want(&wants, &w)) {
        if (at++ < done)
            continue;
        T_BEGIN
        {
            give(&g, &w, n == 1, read);
        }
        T_END;
    }
    send_mails(&g);
    close_given(&g);
    buffer_free(&read);
    orset_buf_free(&g.mails);
    if (at < n)
        keep_rest(s, site, &body, at);
}

enum frame_result give_parcel(struct session *s, uint64_t site, struct text body)
{
    struct orset_reader wants;
    const struct pending_wants *o;
    unsigned bodies = 0;
    size_t n;
    if (parcel_wants(body, &n, &wants) < 0)
        return FRAME_REFUSED;
    give_some(s, site, body, 0);
    array_foreach (&s->pending_wants, o)
        bodies += o->site == site;
    /* Whoever has asked so much more waits no more for what he asked first, or does not keep to
     * what is said here. */
    for (unsigned i = 0; bodies > OWED_MOST && i < array_count(&s->pending_wants); i++) {
        struct pending_wants *first = array_idx_modifiable(&s->pending_wants, i);
        if (first->site == site) {
            buffer_free(&first->body);
            array_delete(&s->pending_wants, i, 1);
            break;
        }
    }
    return FRAME_OK;
}

void give_rest(struct session *s)
{
    if (array_count(&s->pending_wants) == 0)
        return;
    struct pending_wants o = *array_front(&s->pending_wants);
    array_delete(&s->pending_wants, 0, 1);
    give_some(s, o.site, (struct text){o.body->data, o.body->used}, o.done);
    buffer_free(&o.body);
}

void give_free(struct session *s)
{
    struct pending_wants *o;
    array_foreach_modifiable (&s->pending_wants, o)
        buffer_free(&o->body);
    array_free(&s->pending_wants);
}
