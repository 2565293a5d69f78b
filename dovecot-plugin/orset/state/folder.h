/* folder - identity, presence, name and registers of folders; all of them are cached. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_FOLDER_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_FOLDER_H

#include "dovecot-plugin/orset/base/handle.h"

struct folder *orset_folder_at(const struct orset *, uint32_t index);
struct folder *orset_need_folder(struct orset *, uint32_t folder, int *r); /* NULL: *r says why */
struct folder *orset_folder_find(const struct orset *, struct orset_dot id);
/* finds or makes; NULL: broken or limit */
struct folder *orset_folder_make(struct orset *, struct orset_dot id);
/* 0 (INBOX) | origin index + 1, counter of its create */
void orset_folder_id_write(struct orset_buf *, const struct folder *);
void orset_folder_reidentify(struct orset *, struct folder *, struct orset_dot id);
int orset_folder_touch(struct orset *, struct folder *);
int orset_folder_write(struct orset *, struct folder *);
int orset_folders_read(struct orset *);
void orset_folders_free(struct orset *);

bool orset_folder_live(const struct folder *);
bool orset_has_presence(const struct folder *, struct orset_dot);
int orset_presence_put(struct orset *, struct folder *, struct orset_dot);
int orset_presence_kill(struct orset *, struct folder *, struct orset_dot);

/* In a row. */
void orset_stamp_write(struct orset_buf *, struct stamp);
struct stamp orset_stamp_read(struct orset_reader *);

bool orset_name_valid(const void *name, size_t len);
int orset_folder_name(struct orset *, struct folder *, const void *name, size_t len, struct stamp);
/* Never lowered: ORSET_KNOWN then. */
int orset_folder_uid_next(struct orset *, struct folder *, uint32_t uid_next);
/* An op of that origin gives that UID out in the folder's mailbox. One that is out of bounds (F32)
 * is not believed. */
int orset_folder_given(struct orset *, struct folder *, uint32_t uid, uint16_t by);
int orset_folder_changed(struct orset *, struct folder *); /* task row, tree to compute */
/* For errors: its name, cut where it is long; without one its number. Good until the next call. */
const char *orset_folder_label(struct orset *, uint32_t folder);
struct orset_sum orset_folder_sum(const struct orset *, const struct folder *);

#endif
