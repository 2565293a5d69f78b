/* worker_state - what worker.c (one connection: questions and answers) and workers.c (all of
 * them: who may have one) have in common. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_WORKER_STATE_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_WORKERS_WORKER_STATE_H

#include "dovecot-plugin/replicator/workers/ending.h"
#include "dovecot-plugin/replicator/workers/job.h"
#include "dovecot-plugin/replicator/workers/worker.h"

enum state { IDLE, LOOKING, OPENING, ENDING, WARM, BUSY, CLOSING, LISTING };

struct worker {
    TAILQ_ENTRY(worker) link;
    struct workers *all;
    int fd;
    enum state state;
    ev_io rd, wr;
    ev_timer patience; /* active while an answer is owed; or until an idle user is closed */
    struct buf in;
    struct orset_buf out;
    size_t sent;     /* of out */
    size_t reserved; /* of out: the last answer to a RESERVE ends there; 0: it was sent */
    struct user *user;
    struct job job;
    double slice;      /* since when its user has it while others wait */
    double used;       /* when it became warm */
    bool leaving;      /* the present question is its user's last one: others need the worker */
    bool told_origins; /* for the present question */
    bool heard;        /* it has said something: a process of Dovecot's is there; when last: */
    double heard_at;
    bool existing;        /* its user is opened only if there is a state of his */
    bool old;             /* to be closed when its user is (workers_renew) */
    bool root;            /* the one that opens nobody: looks users up, lists them */
    uint64_t credentials; /* of those whom it can open; 0: it has opened nobody */
};
TAILQ_HEAD(worker_list, worker);

struct workers {
    struct replicator *r;
    char *path;
    size_t n;                /* without root */
    struct endings *endings; /* which are in no list here */
    struct worker_list list;
    struct worker *root; /* also in the list; NULL: none now */
    double connect_after, said;
    uint64_t credentials; /* of the user who was opened first; 0: nobody was */
    bool several;         /* others have other ones */
    char *unreachable;    /* why, the last time; valid until connect_after while there are none */
};

/* NULL: it cannot be reached, or there is no descriptor (logged; workers_unreachable). */
struct worker *worker_connect(struct workers *, bool root);
/* Asks what leads to that state, and sends it in the same turn (workers_flush). */
void worker_ask(struct worker *, enum state, const struct frame *);
void worker_ask_close(struct worker *);
/* Goes before OPEN, where users of this name were forgotten. */
void worker_tell_retired(struct worker *, const struct user *);
void worker_flush(struct worker *);
/* So long, from now on, an answer is waited for, or an idle user stays open. */
void worker_set_patience(struct worker *, int64_t ms);
/* Main is done with it. judged: see endings_add. A process that was asked to open nobody is root's:
 * no user can stop it. When main itself ends, it waits for none. */
void worker_end(struct worker *, bool judged);
/* Its connection is closed, its user is not told. */
void worker_free(struct worker *);

#endif
