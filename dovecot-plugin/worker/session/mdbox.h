/* mdbox - what an mdbox does by itself when its map is lost. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_MDBOX_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_MDBOX_H

#include "dovecot-plugin/compat.h"

#include <guid.h>

struct box;
struct session;

bool mdbox_is(const struct mailbox *);
/* The map that is open here was removed: the session is to be opened again. */
bool mdbox_map_is_removed(struct session *);
/* Before mails of the opened mailbox are judged, in a transaction. other: its index is another one
 * than at the last scan. If that or the map is another one, and files have mails that the map does
 * not know, the storage is rebuilt. 1: it was rebuilt; the mailbox is closed and to be opened anew,
 * and all are to be looked at. 0: nothing. -1: nothing can be judged now, which was noted. */
int mdbox_mend(struct session *, struct mailbox *, bool other);
/* The opened mailbox, or the map, is another one than the last scan of it saw, or was rebuilt
 * since. */
bool mdbox_is_other(struct session *, const struct box *, struct mailbox *);
/* A mail was expunged on somebody's word; its bytes stay until a purge. In a transaction. */
int mdbox_expunged(struct session *, uint32_t folder, const uint8_t guid[16]);
struct expunged_guid {
    guid_128_t guid;
};
ARRAY_DEFINE_TYPE(expunged_guid, struct expunged_guid);
/* All of a folder, sorted, with those that are about to go. */
int mdbox_expunged_load(struct session *, uint32_t folder, ARRAY_TYPE(expunged_guid) *);
/* Such a mail that a rebuild put back: its bytes are named once, as no client's copy is. */
bool mdbox_is_back(struct mail *, const uint8_t guid[16], ARRAY_TYPE(expunged_guid) *);

#endif
