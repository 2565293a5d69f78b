/* kept - at a site with role = backup: mails that other sites removed, for a time.
 *
 *     <control root>/dovelane/kept/<day of removal, UTC>/<id>           one mail: a head, its bytes
 *                                                        <id>.r<time>   the same: put back then
 *                                                        .<id>          being written
 *
 * A mail is kept before the commit that expunges it, and is on the disk by then. What is cut short
 * between is kept once more, under the same id. Kept mails are no mailbox's: clients do not see
 * them, and no other site has them. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_KEPT_KEPT_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_KEPT_KEPT_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/protocol/frame.h"

struct box;
struct session;

/* --- keep.c: keeping -------------------------------------------------------------------------- */

struct kept_new;
/* The mails of one mailbox transaction. */
struct keeping {
    struct session *s;
    const char *directory; /* of today */
    const char *vname;     /* of the mailbox */
    bool failed;           /* none can be kept now: *why was noted */
    uint64_t bytes;
    ARRAY(struct kept_new) mails; /* data stack */
};

/* A mail that a peer's word lets be removed: by whom, for keep_mail(). In a transaction. 0, -1 */
int kept_removed_by(struct session *, uint64_t site, uint32_t home, uint32_t uid);
/* It is removed here: nobody asks any more. In a transaction. 0, -1 */
int kept_removed(struct session *, uint32_t home, uint32_t uid);

void keep_begin(struct keeping *, struct session *);
/* FALSE: the mail cannot be kept now, and is not to be expunged. TRUE also for one that lives on
 * elsewhere, since it was moved, and for all at a site with another role. */
bool keep_mail(struct keeping *, const struct box *, struct mail *);
/* All that were kept are on the disk. -1: they are not, and none is to be expunged. */
int keep_end(struct keeping *);

/* --- kept_files.c: what is there -------------------------------------------------------------- */

/* Hex digits: so many that no site can make a mail of another one's id, and push it out. */
#define KEPT_ID_SIZE 24

struct kept_mail {
    const char *path; /* pool */
    const char *id;   /* pool */
    const char *vname;
    time_t removed, received;
    time_t restored; /* put back then; 0: it was not */
    uint64_t site;   /* which removed it; 0: not known */
    uint64_t size;   /* of the form that is hashed */
    uint32_t uid;
    const char *const *flags; /* \Seen ..., keywords */
    uint8_t sha256[32];
    uoff_t offset; /* of the mail's bytes in the file */
};
ARRAY_DEFINE_TYPE(kept_mail, struct kept_mail);

const char *kept_directory(struct session *);
/* All, in the order of their removal; what cannot be read is noted and left out. -1: the
 * directory cannot be read (session_error()). */
int kept_list(struct session *, pool_t, ARRAY_TYPE(kept_mail) *);
/* How many there are. */
unsigned kept_count(struct session *);
/* Removes those that are older than keep_expunged; looks once an hour. */
void kept_purge(struct session *);

/* --- kept_verbs.c, unexpunge.c: verbs of doveadm ---------------------------------------------- */

struct kept_choice {
    const char *mailbox, *into; /* NULL: not said */
    time_t since, until;        /* of the removal; 0: not said */
    bool dry_run, again;
    const char *const *ids; /* none: all */
};

/* kept [--mailbox M] [--since T] [--until T] [ID ...] */
enum frame_result kept_show(struct session *, const char *const *args);
/* unexpunge [--mailbox M] [--since T] [--until T] [--into M] [--dry-run] [--again] [ID ...]. What
 * was put back is a new mail, which a scan has to find. *restored_r: how many */
enum frame_result kept_unexpunge(struct session *, const char *const *args, unsigned *restored_r);

/* Those that fit, perhaps none: of all users, most have none. FRAME_OK, or the answer was given. */
enum frame_result kept_choose(struct session *, const char *const *args, pool_t,
                              struct kept_choice *, ARRAY_TYPE(kept_mail) *);
/* Sorted SHA-256s of all mails that are in the mailboxes here. */
ARRAY_DEFINE_TYPE(kept_hash, struct kept_hash);
struct kept_hash {
    uint8_t sha256[32];
};
int kept_alive(struct session *, ARRAY_TYPE(kept_hash) *);
bool kept_is_alive(ARRAY_TYPE(kept_hash) *, const struct kept_mail *);

#endif
