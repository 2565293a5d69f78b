/* worker - dovelane-worker: one user's mailboxes and the user's OR-Set state, kept equal to each
 * other in both directions.
 *
 *     main ──frames──▶ serve.c ──▶ user.c     OPEN and CLOSE: the user, the lock, the state
 *                         ├──────▶ round.c    the steps of a question, in order
 *                         ├──────▶ parcels.c  what a peer sent
 *                         ├──────▶ on_disk.c  whether mails are on this site's disk
 *                         └──────▶ admin.c    verbs of doveadm for this user
 *
 *     round.c ─▶ ingest/    mailboxes ─▶ ops: which mailboxes there are, what became of their mails
 *             ─▶ exchange/  ops ─▶ parcels for a peer; exchanges of states; UID rounds
 *             ─▶ apply/     state ─▶ mailboxes: folders, mails, flags, UIDs, removals
 *     below them:
 *         metadata/ attributes, Sieve scripts, subscriptions
 *         bodies/   mails as bytes: which are here, which are asked for, in which order
 *         logs/     the mailboxes' index logs, the plugin's journal
 *         session/  the user: mailboxes, the connection with main, what this program remembers
 *
 * Reasons in the comments (F1 ...) are rows of docs/failure-catalogue.md; the order of commits
 * is that of docs/replicator/applying.md. Everything here runs with the user's privileges.
 * Functions return 0 (or more) or -1; then why is in session_error(). What concerns one mail,
 * folder or name only is logged and retried, it stops nobody else (F14). */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_WORKER_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_WORKER_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/protocol/frame.h"

struct group;
struct link;
struct session;

/* --- round.c ---------------------------------------------------------------------------------- */

/* What changed in the mailboxes becomes ops, which go out; then all that the mailboxes lack. */
int round_ingest(struct session *, const struct frame_ingest *);
/* Of the mailboxes whose files changed only the first half: before a peer's state is taken. */
int round_look(struct session *);
/* Does what the mailboxes still lack, in the core's order. Mails without a body are asked for
 * from ask (0: nobody in particular). */
int round_apply(struct session *, uint64_t ask);
int round_settled(struct session *); /* settled_fn */
int round_tick(struct session *);
/* Behind each question. What its result is then. */
enum frame_result round_end(struct session *, enum frame_result);

/* --- serve.c, user.c, parcels.c, admin.c ------------------------------------------------------ */

/* Serves one connection until it ends. */
void serve_begin(int fd, struct mail_storage_service_ctx *, void (*ended)(void));
void serve_end(void);

/* Why a user is not opened. */
struct failure {
    bool permanent, nobody, unwanted; /* FAIL has the same */
    const char *text;                 /* data stack */
};

/* The number of a user's credentials, without opening anything of his, and *name_r (data stack),
 * what Dovecot calls him. 0: *failure_r says why not. */
uint64_t user_credentials(struct mail_storage_service_ctx *, const char *username,
                          const char **name_r, struct failure *failure_r);
struct open_user {
    const char *name;
    uint64_t credentials; /* those he should have; 0: whatever they are */
    bool existing;        /* nothing is made: neither his home nor a state */
    struct text retired;  /* origins (session/retired.h) */
};
/* NULL: *failure_r says why not; its text is NULL when another process has to be asked, since he
 * has other credentials, or this one has. */
struct session *session_open(struct link *, struct group *, struct mail_storage_service_ctx *,
                             const struct open_user *, struct failure *failure_r);
void session_close(struct session **);
uint64_t session_state_bytes(struct session *); /* of the file and what SQLite has beside it */
/* An old backup has the place of the state or of the mails, they are gone, or the state is no
 * database. So what is open here belongs to no user any more. The session is to be closed and
 * opened again. */
bool session_replaced(struct session *);

/* --- on_disk.c -------------------------------------------------------------------------------- */

/* A peer asks which mails are on this site's disk. */
enum frame_result on_disk_asked(struct session *, uint64_t site, struct text body);
/* Behind each question of main's: what was asked for and came to the disk since is said. */
int on_disk_say(struct session *);
/* ADMIN's verb: where the mails with these GUIDs are at this site, looked for in all mailboxes. */
enum frame_result on_disk(struct session *, const char *const *guids);

/* A peer's parcel. FRAME_REFUSED: it will never be understood. */
enum frame_result parcel_take(struct session *, const struct frame_parcel *);
enum frame_result admin(struct session *, const char *const *args);

#endif
