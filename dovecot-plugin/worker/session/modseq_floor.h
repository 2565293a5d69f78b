/* modseq_floor - a number above what clients know of a mailbox that is no more, under the
 * UIDVALIDITY that its folder has still. The mailbox was deleted, or lost, or its index was. One
 * that is made in its place counts from 1 on, and is to go on from there
 * (docs/replication-protocol.md, "Modseqs"). */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_MODSEQ_FLOOR_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_MODSEQ_FLOOR_H

#include "dovecot-plugin/compat.h"

struct box;
struct session;

/* Before the mailbox is forgotten, or counts as never read, or another one is read in its place.
 * In a transaction. 0, -1 */
int modseq_floor_keep(struct session *, const struct box *);
/* This site has raised a mailbox's modseqs that far: clients may be told so before it is looked at
 * again. In a transaction. 0, -1 */
int modseq_floor_written(struct session *, const struct box *, uint64_t modseq);
/* A peer spoke of this modseq while there is no mailbox: one far above is not believed. In a
 * transaction. 0, -1 */
int modseq_floor_heard(struct session *, uint32_t folder, uint64_t modseq);
/* 0: it had no other mailbox. -1 */
int modseq_floor_get(struct session *, uint32_t folder, uint64_t *floor_r);

#endif
