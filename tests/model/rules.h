/* rules - takeover, return and comparison as a state machine that a program can walk through
 * (docs/takeover.md).
 *
 * One message, its owners, and whatever can happen to them. Messages do not touch each other but by
 * the state of the nodes, which is in here, so one message is enough; order is not modelled.
 * Nothing has a duration: a timer of the real programs is a move that may come at any time after
 * what starts it, so every length of a timer, a pause or a delay is covered, including those no one
 * would choose. What the lengths of the real timers promise (a comparison comes after the milter
 * has decided, because settle is longer than store_deadline) is written as a condition.
 *
 *   nodes     2 or 3 owners of the message. With 2 there is a witness besides: a node that never fails and hears whom its links let it hear
 *   node      one Redis with its relay; up, paused (SIGSTOP, a suspended VM), or down (what it held is lost)
 *   milter    pushes to every owner, and promises (250) when all have acked, whatever became of them since; or gives up and revokes
 *   links     all there, or one of the partitions below. A link has a direction: who may open a connection to whom
 *   excuse    an event after which a second delivery is allowed: what takeover/costs.md says each failure may cost, and nothing else, counts one */
#ifndef DOVELANE_TESTS_MODEL_RULES_H
#define DOVELANE_TESTS_MODEL_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODES 3
#define MOVES_MAX 160

enum condition { UP, PAUSED, DOWN };
enum role { ALIVE, RETURNING, READY };
enum heard { SILENT, HEARD_ALIVE, HEARD_RETURNING, HEARD_READY };
enum decision { OPEN, PROMISED, GIVEN_UP };
enum compared { COMPARE_NOT, COMPARE_OWN_READ, COMPARE_BOTH_READ, COMPARE_FETCHED };
/* accepted: by the next hop; the own ACK is to come */
enum in_hand { HAND_EMPTY, HAND_SENDING, HAND_ACCEPTED };

/* A(B): A may not connect to B. */
enum partition {
    LINKS_WHOLE,
    CUT_AB,
    CUT_A_ALONE,
    CUT_B_ALONE,
    CUT_A_TO_B,
    CUT_B_TO_A,
    PARTITIONS
};

/* What one owner is, and what it believes of the two others ("slot" 0 is the next node, 1 the
 * one after it). */
struct owner {
    uint32_t condition : 2;
    uint32_t role : 2;
    uint32_t taken : 2; /* per slot: this node says "I took that one over" */
    uint32_t heard : 4; /* per slot, 2 bits: enum heard, as of the last beat that came */
    /* per slot: that beat said "I took you over". With SILENT: nothing is known of it yet, its
     * timer runs */
    uint32_t lists : 2;
    uint32_t aware : 2; /* per slot: that beat said "I hear you ready" */
    uint32_t held : 1;  /* the message is in its lane */
    uint32_t saved : 1; /* and in its last RDB */
    uint32_t whole : 1;
    uint32_t acked : 1;   /* the push came, and the milter has the ack */
    uint32_t old_ack : 1; /* which was given before the server lost what it held */
    /* it was let go here, or acked before it came: a push is answered and not stored */
    uint32_t remembered : 1;
    uint32_t hand : 2;
    uint32_t owed : 2; /* per slot: ACK under way, or kept until it can be told */
    uint32_t compared : 2;
    uint32_t with : 1;        /* slot of the node it compares with */
    uint32_t own_seen : 1;    /* the comparison saw it here */
    uint32_t own_listed : 1;  /* and older than settle */
    uint32_t peer_listed : 1; /* it saw it there */
    uint32_t revoke : 1;      /* under way to it */
    uint32_t checked : 1;     /* compared, or united, since it is returning */
};

struct world {
    uint32_t decision : 2;
    uint32_t delivered : 2; /* how often a next hop has accepted it; 3 is "3 or more" */
    uint32_t excuses : 3;
    uint32_t partition : 3;
    /* faults that may still happen */
    uint32_t crashes : 2, cuts : 2, pauses : 2, kills : 2, flushes : 2, lies : 2, losses : 2,
        hurries : 1;
    uint32_t unused : 7;
};

struct state {
    struct owner owner[NODES];
    struct world world;
};

/* Rules that can be left out or turned round; all 0: as they are to be built. main.c says what
 * each stands for. */
enum mutant {
    AS_BUILT,
    RESET_AND_RESEND,
    COMPARE_WITHOUT_SETTLE,
    LATE_250,
    NO_WAIT_AFTER_RESTART,
    PEER_LIST_FIRST,
    WHOLE_BEFORE_BODIES,
    WITNESS_NOT_WHOLE,
    WHOLE_BY_ITSELF,
    WHOLE_BY_PART,
    WHOLE_SURVIVES_RESTART,
    WHOLE_WITHOUT_TOKEN,
    FETCH_INSTEAD_OF_DROP,
    RETURN_WITHOUT_COMPARISON,
    LOSS_NOT_NOTICED,
    PAUSE_NOT_NOTICED,
    TAKEOVER_NOT_NOTICED,
    OLD_BEATS_COUNT,
    HEAR_FOR_ONESELF,
    TAKE_WHEN_READY,
    READY_UNHEARD,
    GIVE_BACK_WITH_HAND_FULL,
    GIVE_BACK_OWING,
    ACKS_NOT_KEPT,
    NOTHING_REMEMBERED,
    NO_COMPARISON_LATER,
    RETURNING_COUNTS_AS_ALIVE,
    MUTANTS
};

struct rules {
    unsigned owners; /* 2 or 3; f is one less */
    enum mutant mutant;
    /* more than f may be lost at a time: then nothing is promised but that nothing waits for
     * ever */
    bool beyond;
    bool stored;       /* begins with the mail promised and held by all */
    bool prompt_beats; /* beats are never late but by a "lie"; far fewer states */
    unsigned crashes, cuts, pauses, kills, flushes, lies, losses, hurries;
};

/* In the order in which a quiet time takes them. */
enum kind {
    /* faults end */
    HEAL,
    RESUME,
    COME_BACK,
    COME_BACK_OLD,
    /* the milter */
    PUSH,
    PUSH_AGAIN,
    PROMISE,
    GIVE_UP,
    REVOKE,
    /* liveness */
    BEAT,
    SILENCE,
    FOUND_TAKEN,
    NOTICE_LOSS,
    /* delivery */
    ACCEPT,
    ACK_OWN,
    ACK_OTHER,
    /* return and comparison */
    COMPARE_PEER,
    COMPARE_FETCH,
    COMPARE_END,
    UNITE,
    TO_READY,
    GIVE_BACK,
    TO_ALIVE,
    TAKE,
    TAKE_OVER,
    COMPARE,
    /* faults, and what a quiet time does without */
    SAVE,
    LATE_PROMISE,
    REVOKE_LOST,
    CRASH,
    CRASH_REDIS,
    KILL_RELAY,
    FLUSH,
    PAUSE,
    CUT,
    LIE,
    REPLY_LOST,
    HURRY,
    ACK_LOST,
    RESET,
    SELF_DECLARE,
    KINDS
};

struct move {
    struct state to;
    uint8_t kind, i, j;
};

struct state rules_start(const struct rules *);

/* All moves from a state, those that change nothing left out. Returns how many. */
size_t rules_moves(const struct rules *, const struct state *, struct move *);

/* What is wrong with this state, or NULL. */
const char *rules_wrong(const struct rules *, const struct state *);

/* From now on nothing fails any more. healed: partitions end; back: nodes that are down come
 * back. */
struct quiet {
    bool healed, back;
};

/* The next of the moves in a quiet time, all of them taken in turn by their kind; -1: nothing is
 * left to do. */
int rules_quiet(const struct state *, struct quiet, const struct move *, size_t n);

/* What is wrong with a state in which nothing is left to do, or NULL. */
const char *rules_unfinished(const struct rules *, const struct state *, struct quiet);

void rules_describe(const struct move *, char *text, size_t size);

#endif
