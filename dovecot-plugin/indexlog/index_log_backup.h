/* index_log_backup - backs a mailbox's index log up when a rebuild is about to throw it away, so
 * that what clients did is still known.
 *
 * `doveadm force-resync` has a dbox make its index anew, an mdbox those of all its mailboxes; so
 * has Dovecot by itself where it finds something wrong. The log begins anew. The one before it is
 * not kept as at a rotation. Yet it is the only witness of an expunge or a cleared flag that the
 * replicator has not read yet. Without it such a mail would merely be missing, and come back from
 * the peers. It gets a second name beside the first, by link(2), one for each rebuild; the
 * replicator removes it when it has read it (docs/replicator/recording.md). Maildir's log goes on
 * through a rebuild. */
#ifndef DOVELANE_DOVECOT_PLUGIN_INDEXLOG_INDEX_LOG_BACKUP_H
#define DOVELANE_DOVECOT_PLUGIN_INDEXLOG_INDEX_LOG_BACKUP_H

struct mailbox;

/* Its name, beside the index; the inode's number follows. */
#define INDEX_LOG_BACKUP_PREFIX "dovelane.index.log-"

/* Before the sync that rebuilds. A failure is logged and changes nothing else. */
void index_log_backup(struct mailbox *box);

#endif
