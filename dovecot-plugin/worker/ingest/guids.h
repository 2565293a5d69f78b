/* guids - of a Maildir: GUIDs that its dovecot-uidlist lost. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_GUIDS_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_INGEST_GUIDS_H

#include "dovecot-plugin/compat.h"

struct session;

struct known_guid {
    uint32_t uid;
    const char *guid;
};
ARRAY_DEFINE_TYPE(known_guid, struct known_guid);
/* Writes them into dovecot-uidlist. -1: they wait, which was noted. */
int guids_restore(struct session *, struct mailbox *, const ARRAY_TYPE(known_guid) *);

#endif
