/* copying - what a node held that is lost for good gets another owner, as a state machine
 * (docs/takeover/copying.md, "Copying what a lost node held").
 *
 * One message and three nodes, two copies. It lies in lane L of A and B, in this or the other
 * order; when B is lost, A copies it to C, and moves it at home to lane L' of A and C. Liveness is
 * simpler than in rules.h: who can be heard is heard at once (late beats are its business); a node
 * that is cut off, or falsely called dead, is not. Everything else stands between any two steps of
 * the copying: deliveries, comparisons of both sets, crashes of each node, B back empty, with an
 * old file, or never really gone.
 *
 * Walked through by the same explore.c: this header has what it wants to know, as rules.h has. */
#ifndef DOVELANE_TESTS_MODEL_COPYING_H
#define DOVELANE_TESTS_MODEL_COPYING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODES 3
#define LANES 2 /* L: A and B; L': A and C */
#define MOVES_MAX 160

enum { A, B, C };
enum role { ALIVE, RETURNING, READY };
enum compared { COMPARE_NOT, COMPARE_OWN_READ, COMPARE_BOTH_READ, COMPARE_FETCHED };
enum in_hand { HAND_EMPTY, HAND_SENDING, HAND_ACCEPTED };
/* C has answered that it stored the copy, and A's MOVE is not executed yet; C has had it for
 * settle */
enum window { CLOSED, STORED, OVERDUE };

/* A lane as one node has it. */
struct copy {
    uint16_t held : 1;
    uint16_t young : 1;      /* younger than settle: not listed, so never dropped */
    uint16_t saved : 1;      /* in the last RDB */
    uint16_t whole : 1;      /* the node is, for the lane's owners */
    uint16_t checked : 1;    /* compared since it is returning */
    uint16_t remembered : 1; /* let go here */
    uint16_t hand : 2;
    uint16_t owed : 1; /* an ack to the other owner */
    uint16_t compared : 2;
    uint16_t own_seen : 1, own_listed : 1, peer_listed : 1;
    uint16_t unused : 2;
};

struct node {
    struct copy lane[LANES];
    uint16_t down : 1, role : 2, taken : 3, unused : 10;
    uint16_t unused2;
};

struct state {
    struct node node[NODES];
    /* cut: 1 + the node that is alone; moved: its owners are A and C; halted: B has no relay,
     * but its server lives; owes: A is to tell B that it was moved */
    uint32_t delivered : 2, excuses : 3, window : 2, cut : 2, moved : 1, halted : 1, owes : 1,
        gap : 20;
    uint32_t crashes : 2, cuts : 2, kills : 2, flushes : 2, lies : 2, halts : 2, unused : 20;
};

enum mutant {
    AS_BUILT,
    MOVED_LATE,
    MOVED_FIRST,
    HELD_COUNTS,
    DONE_COUNTS,
    COPIED_WHILE_RETURNING,
    RETURNED_TOO_SOON,
    NOT_TOLD,
    MUTANTS
};

struct rules {
    enum mutant mutant;
    bool second; /* the order of L is B, A: the lost node was first */
    unsigned crashes, cuts, kills, flushes, lies, halts;
};

enum kind {
    HEAL,
    COME_BACK,
    COME_BACK_OLD,
    FOUND_TAKEN,
    NOTICE_LOSS,
    TAKE_OVER,
    ACCEPT,
    ACK_OWN,
    ACK_OTHER,
    TELL,
    COMPARE_PEER,
    COMPARE_FETCH,
    COMPARE_END,
    UNITE,
    TO_READY,
    GIVE_BACK,
    TO_ALIVE,
    MOVE,
    LATE,
    COPY,
    TAKE,
    AGE,
    COMPARE,
    SAVE,
    CRASH,
    KILL_RELAY,
    FLUSH,
    CUT,
    LIE,
    HALT,
    KINDS
};

struct move {
    struct state to;
    uint8_t kind, i, j;
};

struct quiet {
    bool healed, back;
};

struct state rules_start(const struct rules *);
size_t rules_moves(const struct rules *, const struct state *, struct move *);
const char *rules_wrong(const struct rules *, const struct state *);
int rules_quiet(const struct state *, struct quiet, const struct move *, size_t n);
const char *rules_unfinished(const struct rules *, const struct state *, struct quiet);
void rules_describe(const struct move *, char *text, size_t size);

#endif
