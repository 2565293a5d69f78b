/* rows - this program's own rows, in the core's transactions. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_ROWS_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_ROWS_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/base/bytes.h"
#include "dovecot-plugin/orset/store.h"
#include "dovecot-plugin/protocol/frame.h"

struct box;
struct peer;
struct session;

/* The key of a row that a folder has one of. */
static inline struct orset_key rows_folder_key(uint32_t folder)
{
    struct orset_key k;
    k.n = 0;
    orset_key_num(&k, folder);
    return k;
}

int rows_load(struct session *);
int rows_put_box(struct session *, const struct box *);
int rows_put_peer(struct session *, const struct peer *);
int rows_put_join(struct session *);
int rows_put_rewound(struct session *, bool);
int rows_put(struct session *, char kind, const void *key, size_t key_len, const void *value,
             size_t len);
int rows_del(struct session *, char kind, const void *key, size_t key_len);
/* 1 and the value, good until the next call on the store; 0; -1 */
int rows_get(struct session *, char kind, const void *key, size_t key_len, const uint8_t **value,
             size_t *len);
int rows_each(struct session *, char kind, orset_row_fn *, void *arg);
/* A row holds what cannot be true: the state is put aside at the user's next question, and made
 * anew. -1 */
int rows_corrupt(struct session *, const char *what);
#define ROW_UIDS_MAX 10000000 /* UIDs that one row names, in ranges */
/* Kinds of rows() above that have no struct: */
/* names as seen last, each with a length; "-": those that went (subscriptions.c) */
#define ROW_SUBSCRIPTIONS 's'
#define ROW_RENUMBER 'r'     /* folder: UIDs that a move is about to expunge */
#define ROW_ROUND 'u'        /* folder: a UID round under way */
#define ROW_ROUND_ANSWER 'v' /* folder, site: its bytes */
#define ROW_STEPPED 'n' /* folder: when a round followed another site's UIDNEXT by a step only */
#define ROW_UIDNEXT_ASK 'U' /* folder, site: how often it was asked for UIDNEXT, and when last */
#define ROW_ROOT 'd'        /* the mail directory: struct file_id */
/* the directory of Sieve scripts, when one was last seen in it: struct file_id, path; "-": how
 * many are gone, since when */
#define ROW_SIEVE 'e'
/* folder, key: hash of the value seen last, since when, and of those before it (attributes.c) */
#define ROW_ATTRIBUTES 'a'
#define ROW_SAVING 'm' /* folder, a Maildir: process that saves there */
/* folder: what is about to be committed to its mailbox (write_intent.c) */
#define ROW_WRITE_INTENT 'w'
#define ROW_MOVED 'o' /* folder: UIDs that got another one lately */
#define ROW_LIVED 'i' /* folders that came and went between two looks (lived.c) */
/* storage directory of an mdbox: the index id of its map, what its last rebuild left (mdbox.c) */
#define ROW_MAP 'y'
#define ROW_EXPUNGED 'g' /* time, folder, GUID of a mail of an mdbox that was expunged */
/* bytes of a mailbox's name in a row: the library's names are longer in UTF-8 than in the form
 * that it bounds */
#define ROW_NAME_MAX (4 * FRAME_NAME_MAX)
/* hashes of the names of mailboxes that could not be read when nothing was missed (unreadable.c) */
#define ROW_UNREADABLE 'q'
/* folder: its mailbox's files at the last look, as a hash (unseen.c) */
#define ROW_LOOKED 't'
/* mailboxes that cannot be opened, and whether removals wait for them (unseen.c) */
#define ROW_UNSEEN 'c'
/* folder: UIDs whose changes are to be dated behind a peer's modseq (modseq_repair.c) */
#define ROW_MODSEQ_REPAIR 'k'
#define ROW_MODSEQ_FLOOR 'l' /* folder: a modseq (modseq_floor.c) */
/* folder: how often other sites spoke while mails waited for the body of one before them, and
 * when last (patience.c) */
#define ROW_WAITS 'h'
#define ROW_REMOVED_BY 'z' /* folder, UID: site that removed the mail, and when (kept/keep.c) */
/* GUID of a delivery: when the last message of it was removed (removed.c) */
#define ROW_REMOVED 'f'
#define ROW_STUB_KEY 'K' /* the key of stubs: a copy of its file (bodies/stubs.c) */
/* the state was found to be older than the mailboxes; until all were looked at */
#define ROW_REWOUND 'x'

/* Before this program saves into a mailbox. A Maildir's file is there before its line in
 * dovecot-uidlist, where its GUID is: ended in between, it looks like somebody's new mail. Only
 * the process' number in the file's name tells whose it is. */
int rows_say_saving(struct session *, struct mailbox *, struct box *);
/* what an earlier process left was looked at; in a transaction */
int rows_saved(struct session *, struct box *);
int rows_close(struct session *); /* nothing is half done */
/* its file has that process' number, and no GUID but its name */
bool saved_by(struct mail *, pid_t saver);
/* its file has that process' number, whatever its GUID */
bool file_by(struct mail *, pid_t saver);

#endif
