/* files - files in the user's directory, and which file a path names. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_FILES_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_FILES_H

#include "dovecot-plugin/compat.h"

struct session;

/* Which file a path names; born, where the file system knows: an inode's number may come again. */
struct file_id {
    uint64_t dev, ino, born;
};

/* Zeros: there is none, or path is NULL. */
struct file_id file_id(const char *path);
bool same_file(const struct file_id *then, const char *path);
/* A file of the worker's own in the user's directory, for reading: never waits, follows no link.
 * What is no regular file is removed, and is ENOENT. -1 and errno. */
int session_open_file(struct session *, const char *path);

#endif
