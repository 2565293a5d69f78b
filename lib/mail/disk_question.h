/* disk_question - whether a delivery is safe: a relay asks the site that took it, the site's
 * replicator answers (docs/two-disks.md, "Question and answer").
 *
 * Both are entries of lanes on the site's node, without a meta part. A body is one line without
 * its end, fields are parted by one space each:
 *
 *     question   1 <guid> <node> <sites> <recipient>     lane dovelane:asked:<site>
 *     answer     1 <guid> <site> <epoch> <word>          lane dovelane:answered:<node>
 *
 * guid: the delivery's GUID, 32 lower-case hex digits. node: the node that asks, and takes the
 * answer. sites: on the disks of so many sites the mail has to be, 2 to DISK_SITES_MAX, decimal.
 * recipient: the final recipient's address as in RCPT TO, without <>, to the end; it may hold
 * spaces. site: decimal. epoch: of the site's state of that user, lower-case hex. word: "safe" or
 * "unknown". Numbers have no leading zeros, so that there is one body for each question.
 *
 * An entry's id is a hash of its body (disk_id). What waits already is not stored again, and
 * neither is what was acked within the server's settle. */
#ifndef DOVELANE_LIB_MAIL_DISK_QUESTION_H
#define DOVELANE_LIB_MAIL_DISK_QUESTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/mail/entryid.h"
#include "lib/mail/lanename.h"

#define DISK_ASKED LANENAME_PREFIX "asked:"       /* and the site's number */
#define DISK_ANSWERED LANENAME_PREFIX "answered:" /* and the node's name */
#define DISK_GUID_HEX 33                          /* with its NUL */
#define DISK_NODE_MAX 64                          /* bytes of a node's name: [a-z0-9.-] */
#define DISK_SITES_MAX 64                         /* of a group */
#define DISK_RCPT_MAX 320                         /* bytes of an address */
#define DISK_BODY_MAX 512                         /* bytes of either body, with a NUL */

struct disk_question {
    char guid[DISK_GUID_HEX];
    char node[DISK_NODE_MAX + 1];
    unsigned sites;
    char rcpt[DISK_RCPT_MAX + 1]; /* 1 byte at least, no control characters */
};

struct disk_answer {
    char guid[DISK_GUID_HEX];
    uint64_t site;
    uint64_t epoch;
    bool safe; /* false: the site knows nothing of that mail */
};

/* The body and its length without the NUL. 0: a field is out of its bounds. */
size_t disk_question_write(char body[DISK_BODY_MAX], const struct disk_question *);
size_t disk_answer_write(char body[DISK_BODY_MAX], const struct disk_answer *);

/* false: it is not one. What was read, written again, is the same bytes. */
bool disk_question_read(struct disk_question *, const void *body, size_t len);
bool disk_answer_read(struct disk_answer *, const void *body, size_t len);

/* The entry's id: the first bytes of the body's SHA-256. */
void disk_id(unsigned char id[ENTRYID_LEN], const void *body, size_t len);

/* Whether a lane is one of these. */
bool disk_lane(const char *name);

#endif
