/* list_mark - a mark by which the next process that lists mailboxes reads their names anew.
 *
 * Dovecot's index of the mailbox list has a flag for it, which a CREATE sets only where it does
 * not see it set. What a session sees of it may be old: it is cleared on the disk. Or it is about
 * to be cleared, by who read the names before the mailbox was made. Then no LIST shows the mailbox
 * until the next one is made. */
#ifndef DOVELANE_DOVECOT_PLUGIN_INDEXLOG_LIST_MARK_H
#define DOVELANE_DOVECOT_PLUGIN_INDEXLOG_LIST_MARK_H

struct mailbox_list;

/* After mailboxes were made, renamed or deleted. Waits for who brings the index up to date. */
void list_mark(struct mailbox_list *);

#endif
