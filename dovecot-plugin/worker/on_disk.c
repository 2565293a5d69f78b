/* on_disk - whether mails of the gateway's deliveries are on this site's disk (docs/two-disks.md).
 *
 * A message that has a UID in the state is: the mailbox's commit came back before the state's, and
 * Dovecot's with fsync (place_save.c waits for it likewise). By GUID, which an old backup does not
 * give a second time to another mail, as it does UIDs and numbers. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/protocol/delivery_id.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/bodies/stubs.h"
#include "dovecot-plugin/worker/session/files.h"
#include "dovecot-plugin/worker/session/link.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/removed.h"
#include "dovecot-plugin/worker/session/session.h"
#include "dovecot-plugin/worker/worker.h"

#include <array.h>
#include <guid.h>
#include <hex-binary.h>
#include <mail-storage-private.h>
#include <seq-range-array.h>

#include <unistd.h>

/* --- here ------------------------------------------------------------------------------------- */

static bool syncs(struct session *s)
{
    struct mail_namespace *ns;
    for (ns = s->user->namespaces; ns != NULL; ns = ns->next) {
        if (session_has_namespace(s, ns) && ns->storage != NULL &&
            ns->storage->set->parsed_fsync_mode == FSYNC_MODE_NEVER) {
            session_note(s, NOTE_WARNING,
                         "mail_fsync = never: no mail is confirmed to be on the disk");
            return FALSE;
        }
    }
    return TRUE;
}

/* A message that was asked for, and where it is. */
struct place {
    uint32_t folder, uid;
};
struct look {
    struct session *s;
    ARRAY(struct place) places;
};

/* The state's word counts but for mails that went since, and are not judged yet. */
static bool is_there(void *arg, uint32_t home, uint32_t uid)
{
    struct look *look = arg;
    const struct place p = {home, uid};
    const struct box *x = box_by_folder(look->s, home);
    array_push_back(&look->places, &p);
    return x != NULL && !x->gone && !x->all && !x->rewound && !x->now.lost && !x->now.doubted &&
           x->vanished == 0 && !seq_range_exists(&x->quarantine, uid);
}

/* Only its header is on this disk: it counts as little as a mail that is awaited. */
static bool is_stub(struct session *s, const struct look *look)
{
    const struct place *p;
    if (!stubs_are_here(s))
        return FALSE;
    array_foreach (&look->places, p) {
        if (stubs_is_at(s, box_by_folder(s, p->folder), p->uid))
            return TRUE;
    }
    return FALSE;
}

/* enum orset_where, or -1. *stub_r: it waits, and will not come. */
static int where(struct session *s, const uint8_t guid[16], bool *stub_r)
{
    struct look look = {.s = s};
    t_array_init(&look.places, 4);
    int r = orset_guid_where(s->os, guid, is_there, &look);
    *stub_r = r == ORSET_PLACED && is_stub(s, &look);
    return r < 0 ? session_core_failed(s, "GUID") : *stub_r ? ORSET_WAITING : r;
}

/* --- what a peer asks ------------------------------------------------------------------------- */

static void confirm(struct session *s, uint64_t site, uint64_t asked, const buffer_t *guids)
{
    struct orset_buf b = {.alloc = session_alloc()};
    const struct parcel_guids g = {.asked = asked,
                                   .epoch = orset_origin_get(s->os, orset_self(s->os)).epoch,
                                   .n = guids->used / PARCEL_GUID,
                                   .guid = guids->data};
    if (g.n == 0)
        return;
    parcel_put_guids(&b, PARCEL_ON_DISK, &g);
    if (!b.failed)
        session_send(s, site, PARCEL_ON_DISK, FALSE, b.data, b.len);
    orset_buf_free(&b);
}

/* What was asked before, and is asked again, is asked once. */
static void await(struct session *s, const struct asked_guid *a)
{
    const struct asked_guid *each;
    array_foreach (&s->asked, each) {
        if (each->site == a->site && each->asked == a->asked &&
            guid_128_equals(each->guid, a->guid))
            return;
    }
    if (array_count(&s->asked) >= PARCEL_GUIDS_MAX)
        array_delete(&s->asked, 0, 1);
    array_push_back(&s->asked, a);
}

enum frame_result on_disk_asked(struct session *s, uint64_t site, struct text body)
{
    struct parcel_guids g;
    buffer_t *here = t_buffer_create(256);
    if (parcel_guids(PARCEL_ASK_DISK, body, &g) < 0) {
        session_fail(s, "site %llu sent a malformed ASK_DISK", (unsigned long long)site);
        return FRAME_REFUSED;
    }
    if (!syncs(s))
        return FRAME_OK;
    for (size_t i = 0; i < g.n; i++) {
        struct asked_guid a = {.site = site, .asked = g.asked};
        bool stub;
        memcpy(a.guid, g.guid + i * PARCEL_GUID, sizeof a.guid);
        int r = where(s, a.guid, &stub);
        if (r < 0)
            return FRAME_TEMPORARY;
        if (r == ORSET_PLACED)
            buffer_append(here, a.guid, sizeof a.guid);
        else if (!stub)
            await(s, &a);
    }
    confirm(s, site, g.asked, here);
    return FRAME_OK;
}

int on_disk_say(struct session *s)
{
    for (unsigned i = 0; i < array_count(&s->asked);) {
        const struct asked_guid a = *array_idx(&s->asked, i);
        bool stub;
        int r = where(s, a.guid, &stub);
        if (r < 0)
            return -1;
        if (r != ORSET_PLACED && !stub) {
            i++;
            continue;
        }
        if (stub) {
            array_delete(&s->asked, i, 1);
            continue;
        }
        T_BEGIN
        {
            buffer_t *guid = t_buffer_create(sizeof a.guid);
            buffer_append(guid, a.guid, sizeof a.guid);
            confirm(s, a.site, a.asked, guid);
        }
        T_END;
        array_delete(&s->asked, i, 1);
    }
    return 0;
}

/* --- what a relay asks, through main ---------------------------------------------------------- */

/* Whether a line is that GUID. After a power loss zeros may stand before it. */
static bool has_line(const char *text, size_t len, const char *hex)
{
    const char *end = text + len, *lf;
    for (const char *at = text; (lf = memchr(at, '\n', (size_t)(end - at))) != NULL; at = lf + 1) {
        if (lf - at >= DELIVERY_ID_HEX && memcmp(lf - DELIVERY_ID_HEX, hex, DELIVERY_ID_HEX) == 0)
            return TRUE;
    }
    return FALSE;
}

/* The file is the user's own: any bytes. 1, 0, -1 */
static int stands_in(struct session *s, const char *name, const char *hex)
{
    const size_t most = 2 * DELIVERY_DISCARDED_MOST;
    const char *path = t_strconcat(s->dir, "/", name, NULL);
    int fd = session_open_file(s, path);
    if (fd == -1)
        return errno == ENOENT ? 0 : session_fail(s, "open(%s): %m", path);
    char *text = i_malloc(most);
    ssize_t n = read(fd, text, most);
    int r = n < 0 ? session_fail(s, "read(%s): %m", path) : has_line(text, (size_t)n, hex);
    i_close_fd(&fd);
    i_free(text);
    return r;
}

/* 1: it was removed by a user, or its delivery saved nothing; 0; -1 */
static int was_removed(struct session *s, const uint8_t guid[16], const char *hex)
{
    int r = removed_has(s, guid);
    if (r == 0)
        r = stands_in(s, DELIVERY_DISCARDED, hex);
    return r == 0 ? stands_in(s, DELIVERY_DISCARDED_OLD, hex) : r;
}

/* The state may lack what the mailboxes or another site have. */
static bool may_lack(struct session *s)
{
    struct box *const *x;
    if (s->join.phase != JOINED || s->rewound || s->cut_short || s->scan_again || !s->read)
        return TRUE;
    for (unsigned i = 0; i < s->npeers; i++)
        if (s->peer[i].exchange != NULL || s->peer[i].behind || s->peer[i].lost_since != 0)
            return TRUE;
    array_foreach (&s->boxes, x) {
        if (!(*x)->gone && ((*x)->now.waits || (*x)->now.leaving || (*x)->all || (*x)->rewound ||
                            (*x)->at.indexid == 0 || (*x)->vanished > 0))
            return TRUE;
    }
    return FALSE;
}

/* NULL: -1. scanned: all mailboxes were looked at for this question. */
static const char *word_of(struct session *s, const char *hex, bool scanned)
{
    guid_128_t guid;
    bool stub;
    if (guid_128_from_string(hex, guid) < 0)
        return ON_DISK_WAIT;
    int r = where(s, guid, &stub);
    if (r < 0)
        return NULL;
    if (r == ORSET_PLACED)
        return syncs(s) ? ON_DISK_HERE : ON_DISK_WAIT;
    if (r == ORSET_WAITING)
        return ON_DISK_WAIT;
    if (r == ORSET_DOOMED)
        return ON_DISK_REMOVED;
    if ((r = was_removed(s, guid, hex)) < 0)
        return NULL;
    return r > 0 ? ON_DISK_REMOVED : scanned && !may_lack(s) ? ON_DISK_UNKNOWN : ON_DISK_WAIT;
}

enum frame_result on_disk(struct session *s, const char *const *guids)
{
    const struct frame_ingest look = {.n = 0, .sweep = TRUE};
    const char *const *hex, *word;
    bool scan = FALSE;
    for (hex = guids; *hex != NULL && !scan; hex++) {
        if ((word = word_of(s, *hex, FALSE)) == NULL)
            return FRAME_TEMPORARY;
        scan = strcmp(word, ON_DISK_WAIT) == 0;
    }
    if (scan && round_ingest(s, &look) < 0)
        return FRAME_TEMPORARY;
    link_reply(s->link, "epoch %llx",
               (unsigned long long)orset_origin_get(s->os, orset_self(s->os)).epoch);
    link_reply(s->link, "owner %lu", (unsigned long)geteuid());
    for (hex = guids; *hex != NULL; hex++) {
        if ((word = word_of(s, *hex, scan)) == NULL)
            return FRAME_TEMPORARY;
        link_reply(s->link, "%s %s", *hex, word);
    }
    return FRAME_OK;
}
