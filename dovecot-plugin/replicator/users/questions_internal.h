/* questions_internal - the table of questions, by user and by GUID. Of questions.c and
 * question_table.c alone. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_QUESTIONS_INTERNAL_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_QUESTIONS_INTERNAL_H

#include "dovecot-plugin/replicator/users/questions.h"

#define QUESTIONS_MAX 50000 /* in memory; beyond, the one that was asked longest ago goes */
#define BUCKETS 4096

struct asker;

/* What is to be done for a question: in which of its asker's lists it is. */
enum todo {
    NOTHING, /* other sites were asked; or the relay is to ask again */
    LOOK,    /* a worker is to be asked */
    LOOKING, /* ... and is */
    ASK,     /* the other sites are to be asked */
    TODOS
};

struct question {
    TAILQ_ENTRY(question) in_asker;
    TAILQ_ENTRY(question) in_all; /* by asked_at */
    LIST_ENTRY(question) in_guid;
    struct asker *asker;
    struct disk_question is;
    enum todo todo;
    double asked_at, looked_at, sent_at;
    unsigned looks;             /* times that it was put again */
    struct disk_waiter *waiter; /* a mail process's; NULL: a relay's */
    LIST_ENTRY(question) in_waiter;
    bool leased; /* it lies in the lane still */
    bool here;   /* on this site's disk, as a worker found last */
    /* by peer: the epoch of which it confirmed the mail, 0: it did not */
    uint64_t confirmed[];
};
TAILQ_HEAD(question_queue, question);
LIST_HEAD(question_list, question);

/* A request to a worker. It outlives its asker. */
struct inquiry {
    struct admin_request request;
    struct questions *all;
    struct asker *asker; /* NULL: nobody asks any more */
    uint64_t epoch;      /* of the state, as the worker said; 0: not yet */
    bool owned;          /* the worker said whose files the user's are: */
    uint32_t owner;
};

/* All that is asked of one user. */
struct asker {
    LIST_ENTRY(asker) in_hash;
    TAILQ_ENTRY(asker) in_asking;
    char *name;
    struct question_queue list[TODOS];
    uint64_t number; /* of its ASK_DISKs */
    uint64_t epoch;  /* of this site's state, as a worker said last; 0: none did */
    struct inquiry *look;
    bool asking;      /* in that list */
    uint64_t heard[]; /* by peer: its epoch, as heard last; 0: it was not */
};
LIST_HEAD(asker_list, asker);
TAILQ_HEAD(asker_queue, asker);

struct questions {
    struct replicator *r;
    size_t n;
    struct question_queue all;
    struct asker_queue asking; /* in the next turn of the loop: they ask other sites */
    struct asker_list bucket[BUCKETS];
    struct question_list guid[BUCKETS];
    uint64_t seed; /* of these */
    double said, said_sites;
    bool closing;
    ev_timer every;
};

uint64_t questions_random(void);

/* All that is asked of him; NULL: nothing is. */
struct asker *asker_find(struct questions *, const char *name, size_t n);
struct asker *asker_get(struct questions *, const char *name); /* or made */
void asker_drop(struct questions *, struct asker *);           /* if nothing is asked of him */

struct question_list *questions_of_guid(struct questions *, const char *guid);
bool question_is_of(const struct question *, const struct asker *, const char *guid);
/* That relay's, asked before; NULL: it was not. */
struct question *question_same(struct questions *, const struct asker *,
                               const struct disk_question *);
struct question *question_add(struct questions *, struct asker *, const struct disk_question *);
void question_asked(struct questions *, struct question *); /* now */
void question_set(struct questions *, struct question *, enum todo);

/* The four that follow leave its asker. */
void question_let_go(struct questions *, struct question *); /* of its lane, not of the table */
void question_drop(struct questions *, struct question *);
void question_tell(struct questions *, struct question *, enum disk_told); /* a mail process's */
void question_forget(struct questions *, struct question *); /* nothing is said of it */
void questions_drop_oldest(struct questions *);

#endif
