/* renumber - what renumber.c has for renumber_recover.c, and for other_bytes.c, which puts a new
 * mail in place of one, not a copy. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_RENUMBER_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_APPLY_RENUMBER_H

#include "dovecot-plugin/compat.h"

#include <array.h>
#include <guid.h>
#include <mail-types.h>

struct box;
struct log_pos;
struct mail_save_context;
struct session;

struct renumber {
    uint32_t uid;
    uint32_t new_uid; /* it is to get; 0: the next one */
    uint32_t got;     /* 0: none, or it is not known */
    bool other;       /* uid may name another mail by now */
    /* that the mail had under uid when it was known to be the state's; zeros: not known */
    guid_128_t guid;
    /* What the mail had when it was copied; without, that is not known. The keywords are numbers of
     * the mailbox's index, on the data stack. */
    bool flags_known;
    enum mail_flags flags;
    const unsigned *keywords;
    unsigned keyword_count;
};
ARRAY_DEFINE_TYPE(renumber, struct renumber);

/* Where a row begins with this, which is no UID: the copies are about to be made. Else they are
 * bound. */
#define ROW_COPYING 0

/* The row, inside a transaction. from: where the log ended when the copies were read; NULL: the
 * state has bound them. No row says that nothing is to be done. */
int renumber_put_row(struct session *, uint32_t folder, const struct renumber *v, unsigned n,
                     const struct log_pos *from);
/* The same in a transaction of its own. */
int renumber_say_copying(struct session *, uint32_t folder, const struct renumber *v, unsigned n,
                         const struct log_pos *from);
int renumber_row_done(struct session *, uint32_t folder);
/* What is said of the old UIDs from now on, or was since the copies were read, is meant for the
 * new ones. Inside a transaction. */
int renumber_say_moved(struct session *, struct box *, const struct renumber *v, unsigned n,
                       const struct log_pos *from);

/* --- renumber_old.c --------------------------------------------------------------------------- */

bool renumber_guid(struct mail *, guid_128_t guid_r);
/* The copy of m's mail gets its flags and keywords, but for \Deleted. While the mail is there under
 * both UIDs, a client who clears that clears it under the old one. Who expunges what is \Deleted
 * just then would take the copy. */
void renumber_copy_flags(struct mail_save_context *, struct mail *, struct renumber *m);
/* What is known to be there under another UID goes. In the same moment that one gets what clients
 * changed of the old one's flags since the copy. It gets \Deleted, too, if the old one has it by
 * then. */
int renumber_expunge_old(struct session *, struct box *, struct mailbox *, const struct renumber *v,
                         unsigned n);

#endif
