/* survey - what one site's mailboxes hold, as a file: `doveadm dovelane survey` writes it, and
 * `doveadm dovelane compare` reads two. Lines, their fields divided by a TAB:
 *
 *     dovelane-survey  1  HOST           the first line
 *     U  user                            what follows is this user's
 *     F  folder  GUID  UIDVALIDITY  UIDNEXT
 *     M  UID  GUID  SHA-256              a mail of that folder, by rising UID
 *     X  text                            the user cannot be read, and this is why
 *     end  number of users               the last line: else the file was cut short
 *
 * A user's name and a folder's are bytes; %XX for a control byte, a %, and a / in a component. A
 * folder is its namespace's key and its components with a / between, INBOX a -. SHA-256 is that
 * of the canonical form. */
#ifndef DOVELANE_DOVECOT_PLUGIN_COMPARE_SURVEY_H
#define DOVELANE_DOVECOT_PLUGIN_COMPARE_SURVEY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct survey_mail {
    uint32_t uid;
    uint8_t guid[16], sha256[32];
};

struct survey_folder {
    char *name; /* as in struct orset_folder; NULL: INBOX */
    size_t name_len;
    uint8_t guid[16];
    uint32_t uid_validity, uid_next;
    size_t n;
    struct survey_mail *mail;
};

struct survey_user {
    char *name, *failed; /* failed: why he could not be read, or NULL */
    size_t n;
    struct survey_folder *folder;
};

/* --- writing: what fails is seen by ferror() --- */

void survey_put_head(FILE *, const char *host);
void survey_put_user(FILE *, const char *name);
void survey_put_folder(FILE *, const struct survey_folder *); /* without its mails */
void survey_put_mail(FILE *, const struct survey_mail *);
void survey_put_failure(FILE *, const char *why);
void survey_put_end(FILE *, size_t users);
/* A folder's name as it is written: malloc's, or NULL. */
char *survey_folder_text(const char *name, size_t len);

/* --- reading --- */

struct survey;

/* Looks at the whole file once. NULL: *error_r (malloc's, or NULL) names the file, the line and
 * what is wrong. */
struct survey *survey_open(const char *path, char **error_r);
void survey_close(struct survey *);
const char *survey_host(const struct survey *);
/* By their names' bytes. */
size_t survey_users(const struct survey *);
const char *survey_user_name(const struct survey *, size_t i);
/* 0, or -1 and *error_r. */
int survey_read(struct survey *, size_t i, struct survey_user *, char **error_r);
void survey_user_free(struct survey_user *);

#endif
