/* frame - what dovelane-replicator and its workers say to each other over a UNIX stream socket.
 *
 * A frame is u32 length (little-endian, of what follows, at most FRAME_MAX), u8 type, body. Numbers
 * are LEB128, texts are num + bytes (orset/base/bytes.h). Both sides check all they read. A worker
 * runs under a user's id and decodes what came from peers. So what it says is as foreign to main as
 * the wire itself.
 *
 * One worker has one connection, and on it at most one user open and one question of main's
 * unanswered:
 *
 *     HELLO                                            once, first; not answered
 *     LOOKUP                        CREDENTIALS | FAIL
 *     RETIRED                                          right before OPEN; not answered
 *     OPEN                          [APART ORIGINS RESERVE NOTE]... READY | FAIL | ELSEWHERE
 *     INGEST PARCEL SHIP TICK       [SEND RESERVE NOTE ORIGINS]... DONE | FAIL
 *     ADMIN                         [SEND RESERVE NOTE ORIGINS REPLY]... DONE | FAIL
 *     ADMIN "users" (no user open)  REPLY per user that exists, DONE; refused: users cannot be listed
 *     CLOSE                         [RESERVE NOTE]... DONE | FAIL
 *     RESERVED                      (main's answer to RESERVE, for which the worker waits)
 *
 * A worker takes on the credentials of the first user it opens, for good: user id, group, groups.
 * What it says from then on may be that user's word. So main asks one that opens nobody whose
 * credentials a user has (LOOKUP; a number, equal for equal ones). It opens him at a worker that
 * has opened nobody, or only users with that number. OPEN names the number. Where the user has
 * others by now, or has to have a process of his own, the answer is ELSEWHERE, and the worker ends.
 * LOOKUP, and ADMIN "users", are refused by one that has opened somebody. Where OPEN says so, a
 * user without a state is not opened, and nothing is made for him: FAIL.
 *
 * FAIL leaves the worker without an open user; DONE, whatever its result, leaves the user open
 * (after CLOSE: closed). A frame that does not follow this page ends the connection; main then
 * takes the job as failed.
 *
 * Main ends its half of the connection when it is done with the worker, and heeds nothing more. The
 * worker stops what it can stop, and exits. Where it has become a user, its exit closes the other
 * half, and nothing before.
 *
 * Decoding copies nothing: texts point into the bytes that were given. Texts are not
 * NUL-terminated. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PROTOCOL_FRAME_H
#define DOVELANE_DOVECOT_PLUGIN_PROTOCOL_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dovecot-plugin/orset/base/bytes.h"

#define FRAME_VERSION 8
#define FRAME_HEADER 4               /* bytes of the length */
#define FRAME_MAX (16 * 1024 * 1024) /* bytes behind it */
#define FRAME_SITES_MAX 64           /* replicas of a group */
#define FRAME_NAMESPACES_MAX 64
#define FRAME_SETTINGS_MAX 64
#define FRAME_MAILBOXES_MAX 64 /* of one INGEST; where hints name more, all are swept */
#define FRAME_ARGS_MAX 64
#define FRAME_USER_MAX 255 /* bytes of a user name */
/* bytes of a mailbox's or namespace's name, a setting, a verb's word */
#define FRAME_NAME_MAX 4096
#define FRAME_TEXT_MAX 65536 /* bytes of a reply's row, of a reason, of a note */
#define FRAME_ORIGIN 16      /* bytes of an origin: u64 site, u64 epoch */
#define FRAME_ORIGINS_MAX 4096
#define FRAME_SITE 8 /* bytes of a site's number in APART */

/* Seconds after which the kernel's timer ends a worker that does not go on
 * (worker/session/link.c). */
#define FRAME_ALIVE_MOST 90  /* without a question */
#define FRAME_ENDS_WITHIN 10 /* when the connection has ended */

/* With a question, since the last frame. worker_timeout is of milliseconds. */
static inline unsigned frame_patience(uint64_t worker_timeout)
{
    return 2 * ((unsigned)(worker_timeout / 1000) + 1);
}

struct text {
    const uint8_t *p;
    size_t n;
};

enum frame_type {
    FRAME_HELLO = 1,
    FRAME_OPEN,
    FRAME_INGEST,
    FRAME_PARCEL,
    FRAME_SHIP,
    FRAME_TICK,
    FRAME_ADMIN,
    FRAME_CLOSE,
    FRAME_RESERVED,
    FRAME_LOOKUP,
    FRAME_RETIRED,
    FRAME_READY = 64,
    FRAME_FAIL,
    FRAME_SEND,
    FRAME_RESERVE,
    FRAME_DONE,
    FRAME_REPLY,
    FRAME_NOTE,
    FRAME_ELSEWHERE,
    FRAME_CREDENTIALS,
    FRAME_ORIGINS,
    FRAME_APART
};

enum frame_ship {
    FRAME_SHIP_NEW,       /* what was not sent yet; nothing when there is none */
    FRAME_SHIP_CONFIRMED, /* from the number behind the last confirmed one, sent or not */
    FRAME_SHIP_HELLO,     /* what was not sent yet, and a batch without ops when there is none */
    FRAME_SHIP_EXCHANGE,  /* begin a state exchange: this user is behind that site */
    /* the site's backlog is over its bounds: ops that only it has not confirmed are dropped.
     * Later batches meet a gap there, and it exchanges (F38) */
    FRAME_SHIP_FORGET
};

enum frame_result {
    FRAME_OK,
    /* the parcel is malformed, of an unknown kind or an alarm (a NOTE says what); it is done
     * with. ADMIN: the verb failed, the last REPLY says why */
    FRAME_REFUSED,
    FRAME_TEMPORARY /* not done, nothing lost: main asks again later */
};

/* Whether a user's state has what the other sites have. */
enum frame_joins {
    FRAME_JOINED,
    FRAME_JOINING, /* it is new: it asks them all before it looks at the mailboxes */
    FRAME_UNASKED, /* it did not wait any longer for a site that has not answered since */
    FRAME_READING  /* a site that answered is new itself, and has not read its mailboxes yet */
};

enum frame_reserve {
    FRAME_RESERVE_CHECK,
    FRAME_RESERVE_RAISE,
    FRAME_RESERVE_NOTE,
    FRAME_RESERVE_CLEAN
};

struct frame_hello {
    unsigned version;
    uint64_t self;
    size_t nsites; /* of the whole group, own one too, ascending */
    uint64_t site[FRAME_SITES_MAX];
    uint8_t digest[16];
    size_t nnamespaces;
    struct text ns[FRAME_NAMESPACES_MAX];
    size_t nsettings;
    struct {
        struct text key, value;
    } setting[FRAME_SETTINGS_MAX];
};

struct frame_ingest {
    size_t n; /* 0: all mailboxes of the user */
    struct {
        struct text guid; /* 32 hex digits, or "-": not known */
        struct text name; /* vname as the plugin saw it */
    } mailbox[FRAME_MAILBOXES_MAX];
    bool sweep; /* nobody said that anything changed: look only into what differs by stat */
};

struct frame_parcel {
    uint64_t site;  /* PARCEL: whose lane it came by. SEND: to whom, 0: all others */
    unsigned kind;  /* enum parcel_kind; what is not known here is passed on */
    bool bulk;      /* SEND only: into the lane that gives way to the other */
    uint64_t first; /* SEND only: number of the first own op in it; 0: it has none */
    struct text body;
};

struct frame_done {
    enum frame_result result;
    struct text text; /* for the log: what was done, or why not */
    size_t nsites;
    struct frame_site {
        uint64_t site;
        uint64_t unconfirmed; /* own ops that this site has not confirmed */
        bool behind;          /* the site has what this replica has not, of any origin (F19) */
        /* ops of that site came into the state, and no batch to it has carried the vector since.
         * Main asks for a hello soon, which confirms them */
        bool owed;
        /* own ops were not sent yet: so much goes out for one question. SHIP NEW is wanted, when
         * the lane takes it */
        bool more;
        /* this worker waits for that site's answer in a state exchange, which does not outlive
         * CLOSE */
        bool asking;
    } site[FRAME_SITES_MAX];
    uint64_t unplaced;    /* messages in the state that no mailbox holds yet */
    uint64_t held;        /* removals that wait for an admin */
    uint64_t names;       /* folders that are not shown here, or not by their name */
    uint64_t state_bytes; /* size of the user's state */
    enum frame_joins joins;
    /* mails of other sites that were saved here since the last DONE, and their bytes */
    uint64_t placed, placed_bytes;
    /* At a backup site, since the last DONE: mails that other sites removed and that are kept, and
     * their bytes. Then those put back, and those that were removed for their age. */
    uint64_t kept, kept_bytes, kept_restored, kept_purged;
    uint64_t kept_failed; /* mails that cannot be kept now: their removal waits */
    uint64_t unseen;      /* folders that cannot be read, and for which all removals wait */
    uint64_t tick;        /* milliseconds until TICK is wanted, 0: none */
};

struct frame {
    enum frame_type type;
    union {
        struct frame_hello hello;
        struct {
            struct text user;
        } lookup;
        struct {
            struct text user;
            uint64_t credentials; /* 0: whatever they are */
            bool existing;        /* only if there is a state of his */
        } open;
        struct {
            uint64_t number; /* not 0 */
            /* as Dovecot calls him: who is asked for by several spellings is one */
            struct text user;
        } credentials;
        struct frame_ingest ingest;
        struct frame_parcel parcel, send;
        struct {
            uint64_t site;
            enum frame_ship how;
            /* of NEW: what was sent from this number on did not come into the lane; 0: all of it
             * did. Of CONFIRMED: 1: one batch will do, since all was sent again before and
             * nothing of it was confirmed; 0: all */
            uint64_t from;
        } ship;
        struct {
            size_t n; /* verb, then its arguments; the user is the open one */
            struct text arg[FRAME_ARGS_MAX];
        } admin;
        struct {
            bool ok; /* false: the reserve file cannot be written, do not commit (do not ingest) */
            bool new_epoch; /* of check: enum reserve_verdict */
        } reserved;
        struct {
            bool created; /* the state was made now */
            /* the state got a new epoch: it exchanges with a peer before it ingests */
            bool exchange;
            uint64_t unconfirmed; /* own ops that not all sites confirmed */
        } ready;
        struct {
            /* no such user, or one that cannot be replicated: do not ask again soon */
            bool permanent;
            bool nobody; /* the userdb has no such user; permanent, too */
            /* by the userdb's word he is not to be replicated here; permanent, too */
            bool unwanted;
            struct text text;
        } fail;
        /* RETIRED: those of states of this name's users who were forgotten. ORIGINS: all that the
         * open user's state has in its vector. */
        struct text origins;
        struct text apart; /* sites with which the user is not to be replicated, u64 each */
        struct {
            enum frame_reserve what;
            uint64_t epoch, counter;
        } reserve;
        struct frame_done done;
        struct {
            bool more; /* another row follows */
            struct text text;
        } reply;
        struct {
            unsigned level; /* 0 error, 1 warning, 2 info, 3 debug */
            struct text text;
        } note;
    } u;
};

/* Appends a whole frame, header included. 0, or -1 when there is no memory (b->failed) or the
 * frame would exceed a bound (b is as before). */
int frame_encode(struct orset_buf *b, const struct frame *);

/* Looks at the beginning of a stream. 1: *len_r bytes are a whole frame, header included. 0: more
 * bytes are needed (*len_r: that many in all, 0 while unknown). -1: it cannot be a frame. */
int frame_split(const uint8_t *bytes, size_t n, size_t *len_r);

/* Decodes a whole frame, header included. -1 when it is malformed: too long, too short, or
 * anything out of its bounds. */
int frame_decode(struct frame *, const uint8_t *bytes, size_t n);

/* One of the origins in a text of FRAME_ORIGIN bytes each. */
struct frame_origin {
    uint64_t site, epoch;
};
void frame_put_origin(struct orset_buf *, struct frame_origin);
struct frame_origin frame_origin_at(struct text origins, size_t i);
bool frame_has_origin(struct text origins, struct frame_origin);

/* A user name that may stand in a frame, parcel or hint: 1 to FRAME_USER_MAX bytes, no control
 * characters, no '/', not "." or "..". */
bool frame_user_ok(const uint8_t *user, size_t n);
/* ADMIN's verb of main's own: "on-disk", up to ON_DISK_GUIDS GUIDs of 32 hex digits. Replies:
 * "epoch" and that of the state in hex, and "owner" and the user id of the user's files. Then for
 * each GUID one row: itself and a word. */
#define ON_DISK_VERB "on-disk"
#define ON_DISK_GUIDS (FRAME_ARGS_MAX - 1)
#define ON_DISK_HERE "here"       /* all its mails are on this site's disk */
#define ON_DISK_REMOVED "removed" /* a user removed it, or its delivery saved nothing */
#define ON_DISK_UNKNOWN "unknown" /* there is none, and the mailboxes were looked at */
#define ON_DISK_WAIT "wait"       /* that cannot be told yet */
/* A verb of ADMIN that changes nothing. */
bool frame_verb_reads(struct text verb);

#endif
