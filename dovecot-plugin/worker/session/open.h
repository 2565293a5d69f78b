/* open - mailboxes, which clients make, rename and delete at the same time. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_OPEN_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_OPEN_H

#include "dovecot-plugin/compat.h"

struct box;
struct mail_index;
struct session;

/* Before any user: mailboxes that are being made are opened by nobody (MAIL_ERROR_INUSE) but
 * under the lists' lock. */
void open_init(void);
void open_deinit(void);
struct mailbox *session_mailbox(struct session *, const char *vname, enum mailbox_flags);
void session_lists_init(struct session *);
void session_lists_deinit(struct session *);
/* Until unlocked nobody makes, renames or deletes a mailbox: Dovecot does that under this lock.
 * Not for long: clients wait. May be nested. */
int session_lock_lists(struct session *);
void session_unlock_lists(struct session *);
/* Marks the list's index as old, as a CREATE does. Call it before the lists' lock, where one
 * follows that may make the INBOX. A client's process that brings the index up to date has the
 * index's lock, and wants the lists' to make that INBOX. */
void session_mark_list(struct mailbox_list *);
/* Opens it, when a CREATE that is under way has ended. What the library remembers of its index from
 * an earlier time is read anew, also that somebody deleted it. */
int session_open_refreshed(struct mailbox *);
/* Whether what failed with the mailbox just now was the lock of a Maildir's uidlist. That lock is
 * not waited for: all are looked at again soon then. */
bool session_box_is_locked(struct session *, struct mailbox *);
/* Or that it is being deleted, which may be refused yet. */
bool session_box_is_going(struct session *, const struct mailbox *);
/* A sync of a Maildir whose uidlist is locked leaves out what is new there, and reports no error.
 * With that lock it finds all. False: not now. */
bool session_sync_whole(struct session *, struct mailbox *);
bool is_maildir(const struct mailbox *);
/* A Maildir, with that file of Dovecot's own: Dovecot replaces them, and never removes one. */
bool maildir_has(struct mailbox *, const char *name);
/* Opens the row's mailbox as its index is now. Without a sync, which would keep others waiting
 * (F9). */
int session_open_mailbox(struct session *, const struct box *, struct mailbox *);
/* Or has another one its name by now? Then all are looked at soon. */
bool session_is_box(struct session *, const struct box *, struct mailbox *);
/* Its index was removed since it was looked at in this session. The library has it open, and what
 * it reads and writes there nobody else sees. The user is opened anew soon. */
bool session_index_is_lost(struct session *, const struct box *, struct mailbox *);
/* Whether the files of an index that is open were removed, and somebody made them anew. The library
 * would take the new log for a corrupt one and mark it so, again and again, also while others use
 * it. An index has its number for life, and its log says of which index it is. */
bool index_is_another(const struct mail_index *);
/* That of a namespace's list is: the user is to be opened anew. */
bool session_list_is_another(struct session *);
/* Ends a transaction in which mails were only read. It is rolled back. A commit would write what
 * was learnt by the way into the mailbox's index log and the list's index. It would take locks that
 * clients' commands wait for. Then the mailbox looks changed. */
void session_read_end(struct mailbox_transaction_context **);
/* Before a modseq is set. 0, -1 */
int session_enable_modseq(struct mailbox *);

#endif
