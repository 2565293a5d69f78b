/* file_names - a Maildir's file name is not used a second time. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_FILE_NAMES_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_FILE_NAMES_H

/* Until the end, a mail with that GUID is saved under a new name, though its GUID is one and no
 * file has it. */
void file_name_is_used(const char *guid);
void file_names_end(void);

#endif
