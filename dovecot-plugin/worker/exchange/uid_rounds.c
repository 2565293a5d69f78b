/* uid_rounds - one UID for one mail on all sites: the keeper of a folder asks, each site answers,
 * the keeper settles (F31, orset's uid.h). Mail never waits for it. A round under way is rows,
 * because the user may be closed between question and answer.
 *
 * UID_DIRTY = u64 site, u64 epoch, num number of the folder's id (zeros: INBOX). */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/ops/uid.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/orset/store.h"
#include "dovecot-plugin/protocol/frame.h"
#include "dovecot-plugin/protocol/parcel.h"
#include "dovecot-plugin/store/state_sqlite.h"
#include "dovecot-plugin/worker/bodies/plan.h"
#include "dovecot-plugin/worker/exchange/exchange.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/names.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <mail-storage-private.h>

#include <time.h>

#define QUIET_MSECS 200
/* sites that have not answered by then are left out; their folder stays dirty */
#define SETTLE_SECS 2
#define TELL_SECS 5
#define FILLING_MSECS 10000 /* while mails come into the mailbox */
/* between two rounds that follow a UIDNEXT far above: a peer can tell any, and UIDs are not had
 * back */
#define STEP_SECS 60

struct round {
    uint32_t folder;
    time_t since;
    const uint8_t *ask;
    size_t ask_len;
};

/* 1: there is one; ask points into the store */
static int round_get(struct session *s, uint32_t folder, struct round *r)
{
    struct orset_key k = rows_folder_key(folder);
    const uint8_t *v;
    size_t len;
    int got = rows_get(s, ROW_ROUND, k.b, k.n, &v, &len);
    if (got <= 0)
        return got;
    struct orset_reader in = orset_reader_of(v, len);
    r->folder = folder;
    r->since = (time_t)orset_read_num(&in, INT64_MAX);
    r->ask = in.at;
    r->ask_len = (size_t)(in.end - in.at);
    return 1;
}

static bool is_home(struct session *s, uint32_t folder)
{
    struct orset_folder f;
    return orset_folder_get(s->os, folder, &f) == 0 && f.home == folder && f.live && f.named;
}

/* The answer's UIDNEXT is the mailbox's of this moment. Inside a transaction. */
static int tell_uid_next(struct session *s, uint32_t folder)
{
    struct box *x = box_by_folder(s, folder);
    struct mailbox_status status;
    int r = 0;
    if (x == NULL || x->gone || x->vname == NULL)
        return 0;
    struct mailbox *box = session_mailbox(s, x->vname, MAILBOX_FLAG_READONLY);
    if (session_open_mailbox(s, x, box) == 0 &&
        mailbox_get_status(box, STATUS_UIDNEXT, &status) == 0)
        r = orset_local_uid_next(s->os, folder, status.uidnext);
    mailbox_free(&box);
    return r < 0 ? session_core_failed(s, "UIDNEXT") : 0;
}

/* --- the keeper ------------------------------------------------------------------------------- */

struct answers {
    pool_t pool;
    ARRAY(struct orset_answer) list;
    ARRAY(struct orset_key) keys;
    size_t skip;
};

static int collect_answer(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v,
                          size_t len)
{
    struct answers *a = arg;
    struct orset_key k = {0};
    struct orset_answer answer = {p_memdup(a->pool, v, len), len};
    orset_key_put(&k, key + 1, key_len - 1);
    array_push_back(&a->list, &answer);
    array_push_back(&a->keys, &k);
    return 0;
}

/* Rows ROW_ROUND_ANSWER: folder, site. */
static int load_answers(struct session *s, uint32_t folder, struct answers *a)
{
    struct orset_key k = {0};
    const char kind = ROW_ROUND_ANSWER;
    orset_key_put(&k, &kind, 1);
    orset_key_num(&k, folder);
    a->pool = pool_datastack_create();
    t_array_init(&a->list, 8);
    t_array_init(&a->keys, 8);
    if (s->store.each(s->store.ctx, ORSET_T_APP, k.b, k.n, k.n, collect_answer, a) < 0)
        return session_fail(s, "state: %s", state_sqlite_error(s->db));
    return 0;
}

static int drop_round(struct session *s, uint32_t folder, const struct answers *a)
{
    struct orset_key k = rows_folder_key(folder);
    const struct orset_key *key;
    array_foreach (&a->keys, key) {
        if (rows_del(s, ROW_ROUND_ANSWER, key->b, key->n) < 0)
            return -1;
    }
    return rows_del(s, ROW_ROUND, k.b, k.n);
}

/* Seconds until the next round may begin. */
static unsigned step_wait(struct session *s, uint32_t folder)
{
    struct orset_key k = rows_folder_key(folder);
    const uint8_t *v;
    size_t len;
    time_t now = time(NULL);
    if (rows_get(s, ROW_STEPPED, k.b, k.n, &v, &len) <= 0)
        return 0;
    struct orset_reader in = orset_reader_of(v, len);
    time_t since = (time_t)orset_read_num(&in, INT64_MAX);
    return in.bad || now < since || now - since >= STEP_SECS
               ? 0
               : (unsigned)(STEP_SECS - (now - since));
}

static int note_step(struct session *s, uint32_t folder)
{
    struct orset_buf row = {.alloc = session_alloc()};
    struct orset_key k = rows_folder_key(folder);
    if (!orset_uid_stepped(s->os, folder))
        return rows_del(s, ROW_STEPPED, k.b, k.n);
    orset_buf_num(&row, (uint64_t)time(NULL));
    int r = row.failed ? session_fail(s, "out of memory")
                       : rows_put(s, ROW_STEPPED, k.b, k.n, row.data, row.len);
    orset_buf_free(&row);
    session_note(s, NOTE_WARNING,
                 "another site's UIDNEXT of %s is more than %u above the one here: it is "
                 "followed in steps, one each %u s",
                 folder_text(s, folder), ORSET_UID_STEP, STEP_SECS);
    return r;
}

static int settle(struct session *s, uint32_t folder, settled_fn *settled)
{
    struct answers a;
    if (session_begin(s) < 0)
        return -1;
    int r = load_answers(s, folder, &a) < 0 || tell_uid_next(s, folder) < 0 ? -1 : 0;
    if (r == 0) {
        r = orset_uid_settle(s->os, folder, array_count(&a.list) > 0 ? array_front(&a.list) : NULL,
                             array_count(&a.list));
        if (r == ORSET_E_MALFORMED || r == ORSET_E_LIMIT || r == ORSET_E_ABSENT) {
            session_note(s, NOTE_WARNING, "%s: a UID round failed: %s", folder_text(s, folder),
                         orset_error_text(s->os));
            r = 0;
        } else if (r < 0) {
            r = session_core_failed(s, "UID round");
        } else if ((r = note_step(s, folder)) == 0) {
            session_note(s, NOTE_INFO, "UIDs of %s settled with %u answers", folder_text(s, folder),
                         array_count(&a.list));
        }
    }
    if (r < 0 || drop_round(s, folder, &a) < 0) {
        session_rollback(s);
        return -1;
    }
    crash_at("settle");
    if (session_commit(s) < 0 || send_new_ops(s) < 0)
        return -1;
    return settled(s);
}

static int ask(struct session *s, uint32_t folder, settled_fn *settled)
{
    struct orset_buf question = {.alloc = session_alloc()}, row = {.alloc = session_alloc()};
    struct answers a;
    struct orset_key k = rows_folder_key(folder);
    if (session_begin(s) < 0)
        return -1;
    int r = tell_uid_next(s, folder) < 0 || load_answers(s, folder, &a) < 0 ||
                    drop_round(s, folder, &a) < 0
                ? -1
                : 0;
    if (r == 0 && orset_uid_ask(s->os, folder, &question) < 0)
        r = session_core_failed(s, "UID round");
    orset_buf_num(&row, (uint64_t)time(NULL));
    orset_buf_put(&row, question.data, question.len);
    if (r < 0 || rows_put(s, ROW_ROUND, k.b, k.n, row.data, row.len) < 0) {
        session_rollback(s);
        r = -1;
    } else if ((r = session_commit(s)) == 0 && s->npeers > 0) {
        session_send(s, 0, PARCEL_UID_ASK, FALSE, question.data, question.len);
        session_want_tick(s, SETTLE_SECS * 1000 + 500);
    }
    orset_buf_free(&question);
    orset_buf_free(&row);
    return r == 0 && s->npeers == 0 ? settle(s, folder, settled) : r;
}

static int keep(struct session *s, uint32_t folder, settled_fn *settled)
{
    struct round round;
    int got = round_get(s, folder, &round);
    if (got < 0)
        return -1;
    if (plan_goes_on(s, folder)) {
        session_want_tick(s, FILLING_MSECS);
        return 0;
    }
    /* or the clock was set back */
    if (got > 0 && (time(NULL) < round.since || time(NULL) - round.since >= SETTLE_SECS))
        return settle(s, folder, settled);
    if (got > 0) {
        session_want_tick(s, SETTLE_SECS * 1000);
        return 0;
    }
    if (!orset_uid_dirty(s->os, folder, TRUE))
        return 0;
    unsigned wait = step_wait(s, folder);
    if (wait > 0)
        session_want_tick(s, wait * 1000);
    return wait > 0 ? 0 : ask(s, folder, settled);
}

/* --- the others ------------------------------------------------------------------------------- */

static int tell_keeper(struct session *s, uint32_t folder, uint64_t keeper)
{
    struct orset_buf b = {.alloc = session_alloc()};
    struct orset_folder f;
    int r = 0;
    if (session_peer(s, keeper) == NULL) { /* it left the group */
        if (session_begin(s) < 0)
            return -1;
        if (orset_local_keeper(s->os, folder, s->group->self) < 0) {
            session_core_failed(s, "keeper");
            session_rollback(s);
            return -1;
        }
        return session_commit(s) < 0 ? -1 : send_new_ops(s);
    }
    session_want_tick(s, TELL_SECS * 1000);
    if (orset_folder_get(s->os, folder, &f) < 0 || time(NULL) - s->told < TELL_SECS)
        return 0;
    orset_buf_u64(&b, f.id_origin.site);
    orset_buf_u64(&b, f.id_origin.epoch);
    orset_buf_num(&b, f.id_counter);
    session_send(s, keeper, PARCEL_UID_DIRTY, FALSE, b.data, b.len);
    orset_buf_free(&b);
    return r;
}

int uid_rounds_run(struct session *s, settled_fn *settled)
{
    bool told = FALSE;
    int r = 0;
    if (is_joining(s))
        return 0;
    if (plan_refresh(s) < 0)
        return -1;
    for (uint32_t i = 0; r == 0 && i < orset_folders(s->os); i++) {
        T_BEGIN
        {
            uint64_t keeper = orset_keeper(s->os, i, s->site, s->nsites);
            if (!is_home(s, i)) {
                ;
            } else if (keeper == s->group->self) {
                r = keep(s, i, settled);
            } else if (orset_uid_dirty(s->os, i, FALSE) && !plan_goes_on(s, i)) {
                told = TRUE;
                r = tell_keeper(s, i, keeper);
            }
        }
        T_END;
    }
    if (told && time(NULL) - s->told >= TELL_SECS)
        s->told = time(NULL);
    return r;
}

static int found_one(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    *(bool *)arg = TRUE;
    return 0;
}

/* Asking cleared "dirty"; a round whose answers were lost would otherwise be forgotten with the
 * next question's tick. */
static bool round_under_way(struct session *s)
{
    const char kind = ROW_ROUND;
    struct orset_key k = {0};
    bool any = FALSE;
    orset_key_put(&k, &kind, 1);
    (void)s->store.each(s->store.ctx, ORSET_T_APP, k.b, k.n, k.n, found_one, &any);
    return any;
}

void uid_rounds_wanted(struct session *s)
{
    if (!is_joining(s) && round_under_way(s))
        session_want_tick(s, SETTLE_SECS * 1000);
    for (uint32_t i = 0; !is_joining(s) && i < orset_folders(s->os); i++)
        if (is_home(s, i) &&
            orset_uid_dirty(s->os, i,
                            orset_keeper(s->os, i, s->site, s->nsites) == s->group->self)) {
            unsigned wait = step_wait(s, i);
            bool fills = plan_goes_on(s, i);
            session_want_tick(s, wait > 0 ? wait * 1000 : fills ? FILLING_MSECS : QUIET_MSECS);
            if (wait == 0 && !fills)
                return;
        }
}

/* --- rounds that came while mails lacked --- */

static int follow(struct session *s, uint32_t folder)
{
    if (session_begin(s) < 0)
        return -1;
    if (orset_uid_follow(s->os, folder) < 0) {
        session_core_failed(s, "UID round");
        session_rollback(s);
        return -1;
    }
    return session_commit(s);
}

int uid_rounds_follow(struct session *s)
{
    int r = 0;
    orset_uid_hold(s->os, FALSE);
    for (uint32_t i = 0; r == 0 && !plan_is_old(s) && i < orset_folders(s->os); i++)
        if (is_home(s, i) && !plan_goes_on(s, i) && orset_uid_dirty(s->os, i, FALSE))
            r = follow(s, i);
    return r;
}

/* --- parcels ---------------------------------------------------------------------------------- */

static uint32_t find_folder(struct session *s, uint64_t site, uint64_t epoch, uint64_t number)
{
    struct orset_folder f;
    for (uint32_t i = 0; i < orset_folders(s->os); i++)
        if (orset_folder_get(s->os, i, &f) == 0 && f.id_origin.site == site &&
            f.id_origin.epoch == epoch && f.id_counter == number)
            return f.home;
    return ORSET_NO_FOLDER;
}

static enum frame_result dirty_parcel(struct session *s, const struct frame_parcel *f)
{
    struct orset_reader in = orset_reader_of(f->body.p, f->body.n);
    uint64_t site = orset_read_u64(&in), epoch = orset_read_u64(&in),
             number = orset_read_num(&in, ORSET_COUNTER_MAX);
    if (in.bad || in.at != in.end)
        return FRAME_REFUSED;
    uint32_t folder = find_folder(s, site, epoch, number);
    if (folder == ORSET_NO_FOLDER)
        return FRAME_OK; /* it will be told again */
    if (session_begin(s) < 0)
        return FRAME_TEMPORARY;
    if (orset_uid_mark_dirty(s->os, folder) < 0) {
        session_core_failed(s, "UID round");
        session_rollback(s);
        return FRAME_TEMPORARY;
    }
    session_want_tick(s, QUIET_MSECS);
    return session_commit(s) < 0 ? FRAME_TEMPORARY : FRAME_OK;
}

/* ask = u8 version, folder id, term, round: an answer begins with it, byte for byte. */
static uint32_t folder_of_ask(struct session *s, struct text t)
{
    struct orset_reader in = orset_reader_of(t.p, t.n);
    (void)orset_read_u8(&in);
    uint64_t site = orset_read_u64(&in), epoch = orset_read_u64(&in),
             number = orset_read_num(&in, ORSET_COUNTER_MAX);
    return in.bad ? ORSET_NO_FOLDER : find_folder(s, site, epoch, number);
}

static enum frame_result ask_parcel(struct session *s, const struct frame_parcel *f)
{
    struct orset_buf answer = {.alloc = session_alloc()};
    uint32_t folder = folder_of_ask(s, f->body);
    if (plan_refresh(s) < 0)
        return FRAME_TEMPORARY;
    /* Where mails still come in, UIDs differ that will not when all have come: this site says
     * nothing, and is left out of the round. */
    if (folder == ORSET_NO_FOLDER || is_joining(s) || plan_goes_on(s, folder))
        return FRAME_OK;
    if (session_begin(s) < 0)
        return FRAME_TEMPORARY;
    if (tell_uid_next(s, folder) < 0 || session_commit(s) < 0)
        return FRAME_TEMPORARY;
    int e = orset_uid_answer(s->os, f->body.p, f->body.n, &answer);
    if (e >= 0)
        session_send(s, f->site, PARCEL_UID_ANSWER, FALSE, answer.data, answer.len);
    orset_buf_free(&answer);
    return e >= 0 || e == ORSET_E_ABSENT ? FRAME_OK : FRAME_REFUSED;
}

static enum frame_result answer_parcel(struct session *s, const struct frame_parcel *f,
                                       settled_fn *settled)
{
    uint32_t folder = folder_of_ask(s, f->body);
    struct round round;
    struct answers a;
    struct orset_key k = rows_folder_key(folder);
    int other = uidnext_ask_answered(s, f);
    if (other != 0)
        return other < 0 || settled(s) < 0 ? FRAME_TEMPORARY : FRAME_OK;
    if (folder == ORSET_NO_FOLDER || is_joining(s) || round_get(s, folder, &round) <= 0 ||
        f->body.n < round.ask_len || memcmp(f->body.p, round.ask, round.ask_len) != 0)
        return FRAME_OK; /* of a round that is settled */
    orset_key_num(&k, f->site);
    if (session_begin(s) < 0)
        return FRAME_TEMPORARY;
    if (rows_put(s, ROW_ROUND_ANSWER, k.b, k.n, f->body.p, f->body.n) < 0) {
        session_rollback(s);
        return FRAME_TEMPORARY;
    }
    if (session_commit(s) < 0 || load_answers(s, folder, &a) < 0)
        return FRAME_TEMPORARY;
    if (array_count(&a.list) < s->npeers) {
        session_want_tick(s, SETTLE_SECS * 1000);
        return FRAME_OK;
    }
    return settle(s, folder, settled) < 0 ? FRAME_TEMPORARY : FRAME_OK;
}

enum frame_result uid_rounds_parcel(struct session *s, const struct frame_parcel *f,
                                    settled_fn *settled)
{
    switch (f->kind) {
    case PARCEL_UID_DIRTY: return dirty_parcel(s, f);
    case PARCEL_UID_ASK: return ask_parcel(s, f);
    default: return answer_parcel(s, f, settled);
    }
}
