/* retained - the entries that are delivered, and that their owners keep until enough sites have
 * them on disk (docs/two-disks.md). It has what this relay knows of those in lanes that it serves.
 *
 * In memory only, and never the only place of a fact. The envelope says that an entry is retained
 * and where it was delivered, so the next relay that takes it has a record again. mail.c adds, the
 * room retained/ asks the sites and decides. */
#ifndef DOVELANE_RELAY_TABLES_RETAINED_H
#define DOVELANE_RELAY_TABLES_RETAINED_H

#include "lib/base/queue.h"
#include "lib/mail/disk_question.h"
#include "relay/tables/inflight.h"

struct retained;
TAILQ_HEAD(retained_list, retained);

struct retained_recipient {
    struct retained_recipient *next; /* in the table's bucket */
    struct retained *of;
    char guid[DISK_GUID_HEX];
    char *address;
    size_t index; /* in the envelope */
    uint32_t site;
    uint32_t attempts;
    int64_t delivered; /* microseconds since 1970, 0: not known */
    bool safe;         /* a site said so */
    bool unknown;      /* its site said that it does not have it */
    /* Where and of which state a site said that last. A state is the same one as long as its disk
     * is not lost. */
    bool lost;
    uint64_t lost_epoch, lost_site;
    bool asked;      /* since the site's last word */
    unsigned doubts; /* how often that state has said it since the mail was delivered once more */
    bool never;      /* often enough: that site does not know such mail */
};

struct retained {
    struct retained *next; /* in the table's bucket */
    TAILQ_ENTRY(retained) link;
    TAILQ_ENTRY(retained) by_age;
    unsigned char id[ENTRYID_LEN];
    struct lane *lane;
    size_t bytes;
    double look_at;  /* clock_monotonic: when it is looked at again */
    double since;    /* and since when it is here */
    double moved_at; /* when another site was to get it, too; 0: never */
    bool looking;    /* that is under way, and it is in none of the table's lists */
    bool told;       /* the log says that it is retained, as it is now */
    /* NULL, or why it is removed although no site said that it is safe: "away", "until" */
    const char *let_go;
    size_t nrecipients; /* of those that are retained */
    struct retained_recipient recipient[];
};

struct retained_table {
    struct retained **bucket;
    struct retained_recipient **guid;
    size_t nbuckets, nguids; /* powers of two */
    size_t count, recipients, bytes;
    /* A destination that keeps what it retains is at its replicated_memory: its next mail is
     * Postfix's. The beat says so. */
    bool full;
    struct retained_list fresh;   /* nobody was asked yet */
    struct retained_list waiting; /* by look_at */
    struct retained_list oldest;  /* all, in the order in which they came */
};

struct retained_table *retained_open(void);
void retained_close(struct relay *);

struct retained *retained_find(struct relay *, const unsigned char id[ENTRYID_LEN]);
struct retained_recipient *retained_by_guid(struct relay *, const char *guid);
/* The next one of that GUID; NULL: it is the last. */
struct retained_recipient *retained_same_guid(const struct retained_recipient *);

/* The record of an entry whose envelope is retained, made or brought up to date. NULL: nothing is
 * waited for any more, and the entry may be removed. Also when there is no record and the entry has
 * no body to make one from: *unknown_r is true then. */
struct retained *retained_keep(struct entry *, bool *unknown_r);

/* What its envelope says now. False: it is not about the same recipients. */
bool retained_see(struct relay *, struct retained *, const struct envelope *);

/* The entry is gone, or is not ours, or waits again. */
void retained_drop(struct relay *, struct retained *);
void retained_forget(struct relay *, const unsigned char id[ENTRYID_LEN]);

/* Looked at again after so many seconds. */
void retained_look_in(struct relay *, struct retained *, double seconds);

/* The next one whose time has come, which is in no list any more; NULL: there is none. */
struct retained *retained_next(struct relay *, double now);
struct retained *retained_fresh(struct relay *);

/* Seconds that the oldest one is here; 0: there is none. */
double retained_oldest(const struct relay *);

/* Whether every recipient of it is safe, or it is let go. */
bool retained_is_done(const struct retained *);

/* Of one that is done: NULL, or why it goes although not all of it is safe. */
const char *retained_let_go(const struct retained *);

/* Seconds between two questions, for a destination. */
double retained_interval(const struct config_destination *);

/* Whether an address can be asked for, and the site makes the same GUID of it: one in quotes may
 * be written otherwise there. */
bool retained_can_ask(const char *address);

#endif
