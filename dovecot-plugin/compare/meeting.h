/* meeting - what would become of one user's mailboxes when two sites that know nothing of each
 * other are joined. Both surveys are read into states that are thrown away, and these meet as the
 * replicators' states do (match_mails.h, uid.h). So the rules are not written down a second time.
 *
 * The first site starts first, and has the smaller id: it has read its mailboxes when the second
 * one asks. No mail comes meanwhile. Flags do not count. */
#ifndef DOVELANE_DOVECOT_PLUGIN_COMPARE_MEETING_H
#define DOVELANE_DOVECOT_PLUGIN_COMPARE_MEETING_H

#include "dovecot-plugin/compare/survey.h"

struct meeting_counts {
    uint64_t folders;       /* that there are afterwards, at both sites */
    uint64_t united;        /* mails that are at both: one message each */
    uint64_t only[2];       /* mails that one site alone has, and the other one gets */
    uint64_t uids[2];       /* mails of that site that get another UID there */
    uint64_t validities[2]; /* folders of that site that get another UIDVALIDITY there */
    uint64_t names;         /* folders of one name that are two mailboxes, and become one */
    uint64_t renamed;       /* one mailbox that has two names: both are there afterwards */
    /* of the united, those that have one GUID and other bytes at each site. The join compares
     * these, and one gives way, or both live; counted as if it gave way */
    uint64_t other_bytes;
    uint64_t refused; /* folders and mails beyond a bound: they stay at their site */
};

/* name: as in struct survey_folder. */
typedef void meeting_folder_fn(void *arg, const char *name, size_t len,
                               const struct meeting_counts *);

/* now: seconds. fn: for each folder, or NULL. 0; -1: *error_r (malloc's, or NULL) says why. It
 * makes a directory below TMPDIR, /tmp without it, and removes it again. */
int meeting_run(const struct survey_user *first, const struct survey_user *second, int64_t now,
                struct meeting_counts *sum, meeting_folder_fn *fn, void *arg, char **error_r);

#endif
