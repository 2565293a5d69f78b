/* uidnext_ask - a new state asks the other sites for the UIDNEXT of their mailboxes, since an
 * exchange does not tell of it. Mails that came and went before were perhaps shown here, too, when
 * this home was not lost yet, or are to a client that comes from another site.
 *
 * The question is that of a UID round, of term 0 and round 0, which no keeper's has. So a site of
 * any version answers it. It is asked when all mails are placed, since the answer counts only then
 * (apply/uidnext.c). A row ROW_UIDNEXT_ASK waits for each answer, since the user may be closed
 * meanwhile. An answer that no row waits for is nobody's. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/ops/uid.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/orset/store.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/worker/exchange/exchange.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>

#include <time.h>

#define AT_ONCE 100   /* questions, in one go */
#define AGAIN_SECS 30 /* after which a question without an answer is asked again, */
#define TRIES 5       /* so often; a site may have no such folder */

struct asked {
    uint32_t folder;
    uint64_t site;
    unsigned tries;
    time_t at;
};
ARRAY_DEFINE_TYPE(asked, struct asked);

static struct orset_key key_of(uint32_t folder, uint64_t site)
{
    struct orset_key k = rows_folder_key(folder);
    orset_key_num(&k, site);
    return k;
}

static int put(struct session *s, const struct asked *a)
{
    struct orset_key k = key_of(a->folder, a->site);
    struct orset_buf b = {.alloc = session_alloc()};
    orset_buf_num(&b, a->tries);
    orset_buf_num(&b, (uint64_t)a->at);
    int r = b.failed ? session_fail(s, "out of memory")
                     : rows_put(s, ROW_UIDNEXT_ASK, k.b, k.n, b.data, b.len);
    orset_buf_free(&b);
    s->asks_uidnext = TRUE;
    return r;
}

static int drop(struct session *s, uint32_t folder, uint64_t site)
{
    struct orset_key k = key_of(folder, site);
    return rows_del(s, ROW_UIDNEXT_ASK, k.b, k.n);
}

int uidnext_ask_begin(struct session *s, const struct peer *p)
{
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        const struct asked a = {.folder = i, .site = p->site};
        struct orset_folder f;
        if (orset_folder_get(s->os, i, &f) == 0 && f.live && f.named && f.home == i &&
            f.uid_validity != 0 && put(s, &a) < 0)
            return -1;
    }
    return 0;
}

static int collect(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    ARRAY_TYPE(asked) *list = arg;
    struct orset_reader k = orset_reader_of(key + 1, key_len - 1), in = orset_reader_of(v, len);
    struct asked a;
    a.folder = (uint32_t)orset_key_read(&k, ORSET_FOLDERS_MAX);
    a.site = orset_key_read(&k, UINT64_MAX);
    a.tries = (unsigned)orset_read_num(&in, UINT32_MAX);
    a.at = (time_t)orset_read_num(&in, INT64_MAX);
    if (!k.bad)
        array_push_back(list, &a);
    return 0;
}

static int ask(struct session *s, struct asked *a, time_t now)
{
    struct orset_buf question = {.alloc = session_alloc()};
    int r = a->tries >= TRIES || session_peer(s, a->site) == NULL ||
                    orset_uid_next_ask(s->os, a->folder, &question) < 0
                ? 0
                : 1;
    if (r > 0)
        session_send(s, a->site, PARCEL_UID_ASK, FALSE, question.data, question.len);
    orset_buf_free(&question);
    if (r == 0)
        return drop(s, a->folder, a->site);
    a->tries++;
    a->at = now;
    return put(s, a);
}

static bool is_due(const struct asked *a, time_t now)
{
    return a->tries == 0 || now < a->at || now - a->at >= AGAIN_SECS;
}

static int ask_those_due(struct session *s, ARRAY_TYPE(asked) * list)
{
    struct asked *a;
    time_t now = time(NULL);
    unsigned asked = 0;
    array_foreach_modifiable (list, a) {
        if (!is_due(a, now))
            continue;
        if (asked++ == AT_ONCE) {
            session_want_tick(s, 100);
            break;
        }
        if (ask(s, a, now) < 0)
            return -1;
    }
    return 0;
}

int uidnext_ask_run(struct session *s)
{
    ARRAY_TYPE(asked) list;
    int r = 0;
    if (!s->asks_uidnext)
        return 0;
    T_BEGIN
    {
        t_array_init(&list, 16);
        r = session_begin(s);
        if (r == 0 && (r = rows_each(s, ROW_UIDNEXT_ASK, collect, &list)) == 0) {
            s->asks_uidnext = !array_is_empty(&list);
            if (s->asks_uidnext)
                session_want_tick(s, AGAIN_SECS * 1000);
            r = ask_those_due(s, &list);
        }
        if (r < 0)
            session_rollback(s);
        else
            r = session_commit(s);
    }
    T_END;
    return r;
}

/* What lies below the UIDNEXT of a site that was asked was given to mails there. */
static int take(struct session *s, uint64_t site, uint32_t folder, uint32_t uid_next)
{
    if (session_begin(s) < 0)
        return -1;
    if (orset_uid_next_given(s->os, folder, site, uid_next) < 0) {
        session_core_failed(s, "UIDNEXT");
        session_rollback(s);
        return -1;
    }
    if (drop(s, folder, site) < 0) {
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

int uidnext_ask_answered(struct session *s, const struct frame_parcel *f)
{
    uint32_t folder, uid_next;
    const uint8_t *row;
    size_t len;
    if (orset_uid_next_read(s->os, f->body.p, f->body.n, &folder, &uid_next) <= 0)
        return 0;
    struct orset_key k = key_of(folder, f->site);
    int r = is_joining(s) ? 0 : rows_get(s, ROW_UIDNEXT_ASK, k.b, k.n, &row, &len);
    return r < 0 || (r > 0 && take(s, f->site, folder, uid_next) < 0) ? -1 : 1;
}
