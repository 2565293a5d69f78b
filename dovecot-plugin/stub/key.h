/* key - the key of a user's stubs: DIRECTORY/stub-key, where DIRECTORY is the one that has the
 * replication state. Who reads the user's mails reads it; no other user does. */
#ifndef DOVELANE_DOVECOT_PLUGIN_STUB_KEY_H
#define DOVELANE_DOVECOT_PLUGIN_STUB_KEY_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/stub/format.h"

struct mailbox;

#define STUB_KEY_FILE "stub-key"

/* The directory of the mailbox's owner (data stack), or NULL. */
const char *stub_directory(const struct mailbox *);
/* 1; 0: there is none; -1: *error_r says why it cannot be read (data stack). */
int stub_key_read(const char *directory, struct stub_key *key_r, const char **error_r);

#endif
