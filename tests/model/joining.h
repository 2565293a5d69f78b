/* joining - checks what a site that joins, lost its mail or is made anew does to those that are
 * there (docs/replication-protocol.md, "UIDs" and "Joining full mailboxes"), and that each of the
 * rules is needed.
 *
 *     joining-model              all states of the small starts, and every rule left out once
 *     joining-model long         the large starts as well
 *     joining-model list         the names of starts and rules
 *     joining-model try START [RULE]    one run, and the shortest story where a promise is broken
 *
 * One user's INBOX at two or three sites. What is checked:
 * - while nothing is delivered at a site that joins, no UID and no UIDVALIDITY changes at a site
 *   that was there first;
 * - nor does the UID of a mail that is delivered where all earlier ones are;
 * - when nothing is left to do, all sites show the same mails under the same UIDVALIDITY and UIDs,
 *   and no UID names two mails;
 * - from every state it comes to that, also where a mail is left that nobody can give;
 * - a mailbox that had a mail never gets a lower UIDVALIDITY.
 *
 * What a worker does for one parcel or one hint is one step: it takes or makes ops, makes or raises
 * the mailbox, places mails and changes UIDs. Nothing has a duration: whatever may happen may also
 * wait. So a body that is lost and asked for again is one that comes later. A mail waits for what
 * its site had before it until that has come, where a worker waits for seconds. What a site knows
 * is how many ops of each origin it has: an exchange gives whole origins, too. */
#ifndef DOVELANE_TESTS_MODEL_JOINING_H
#define DOVELANE_TESTS_MODEL_JOINING_H

#include <stdbool.h>
#include <stdint.h>

#define SITES 3
#define MAILS 4
#define EPOCHS 2                 /* of a site: it loses its state once at most */
#define ORIGINS (SITES * EPOCHS) /* in the order of their dots */
#define OPS 9                    /* of an origin */
#define UID_MOST 40              /* no small number of mails needs more but by rounds without end */
#define FIRST_VALIDITY 2         /* of the mailboxes with mail at the beginning */
#define FIRST_NEXT 6

enum phase { OFF, ASKS, WORKS }; /* ASKS: its state is new, and has not read the mailbox */

struct site {
    uint8_t phase, epoch;
    uint8_t answered; /* bits: the sites whose state it has taken over */
    uint8_t unasked;  /* it went on without all of them */
    uint8_t reading;  /* bits: the sites that told it that they have not read their mailboxes */
    uint8_t looked;   /* it has read the mailbox that is there */
    uint8_t validity, next; /* of the mailbox; 0: there is none */
    uint8_t state_next;     /* UIDNEXT as the state has it */
    uint8_t uid[MAILS];     /* in the mailbox; 0: not there */
    uint8_t bound;          /* bits: mails that the state knows to be there */
    uint8_t here;           /* bits: bodies that wait for their turn */
    uint8_t impatient; /* others spoke often and did not bring the first mail: it waits for none */
    uint8_t gives_way; /* with WAYS_LEFT_LATER alone: the UIDVALIDITY it is about to take */
    uint8_t refused[MAILS]; /* bits: the sites that said that they have not got it; with ASKED_ONCE:
                               how often it was said */
    uint8_t has[ORIGINS];   /* ops of each */
};

struct state {
    struct site site[SITES];
    uint16_t op[ORIGINS][OPS];
    uint8_t ops[ORIGINS];
    uint8_t had[MAILS][ORIGINS];  /* ops of each at a mail's site, when that spoke of it */
    uint8_t tells[SITES][SITES];  /* READING: by whom, to whom */
    uint8_t behind[SITES][SITES]; /* READ comes behind so many ops of his */
    uint8_t clock;                /* the UIDVALIDITY of the mailbox made last */
    uint8_t round; /* under way: 1 and the keeper's ops before the question; 0: none is */
    uint8_t answers, answer_next[SITES], differ[SITES], gap; /* bits: who has answered; with what */
    uint8_t sessions, deliveries, losses, renewals, silences; /* left */
    uint8_t delivered;                                        /* mails, the first ones included */
};

enum { OWES_READ = 1, READING_ON_THE_WAY = 2, READ_ON_THE_WAY = 4 };

enum rule {
    ALL_RULES,
    AS_THEY_COME,
    FILLING_NOT_MINDED,
    ROUND_AT_ONCE,
    ASKED_ONCE,
    UNKNOWN_REFUSED,
    ALONE_SAYS,
    NO_READING,
    READING_OVERTAKEN,
    READ_AHEAD,
    YOUNGER_WINS,
    WAYS_LEFT_LATER,
    LOWERED_WITH_MAIL,
    INBOX_AT_ONCE,
    GIVES_NOTHING_UP,
    NO_ROUNDS,
    OTHERS_NOT_AWAITED,
    RULES
};

struct start {
    const char *name, *what;
    unsigned sites, mails;  /* mails at the beginning */
    uint8_t first;          /* bits: sites with these mails */
    uint8_t worked;         /* bits: of these, such as have a state already */
    uint8_t joins;          /* bits: sites where a session may come */
    uint8_t delivers;       /* bits: sites where mails may be delivered */
    uint8_t loses, renewed; /* bits: sites that may lose their home; their state alone */
    uint8_t alone;          /* bits: sites that may go on before all have answered */
    uint8_t sessions, deliveries, losses, renewals, silences;
    bool safe; /* no UID and no UIDVALIDITY of the first ones may change; of what is delivered only
                  that of clashing ones */
    bool in_turn; /* delivered where all that was delivered before is: none of them clash */
    bool large;
};

extern const uint8_t first_uid[MAILS];
extern enum rule without;
extern const struct start *start;
extern unsigned n;         /* sites */
extern const char *broken; /* the promise; NULL: none yet */

/* ---- joining.c: ops, and what a worker does ---- */

enum { SAYS_VALIDITY, ADDS, ROUND };
#define OP(kind, a, b) ((uint16_t)((kind) << 14 | (a) << 6 | (b)))

struct uids {
    uint8_t round, base, n, uid[MAILS];
};

/* What a site's ops say. */
struct known {
    uint8_t validity, mails, round;
    uint8_t agreed[MAILS], round_of[MAILS], claim[MAILS];
    uint8_t origin[MAILS], at[MAILS]; /* of the op that speaks for it */
};

unsigned origin_of(const struct state *s, unsigned i);
struct known known_at(const struct state *s, unsigned i);
void say(struct state *s, unsigned i, uint16_t op);
uint16_t round_op(const struct uids *);
void forget_rounds(void);

uint8_t others(unsigned i);
uint8_t lacks(const struct state *s, unsigned i, const struct known *k);
bool waits_for_mails(const struct state *s, unsigned i, const struct known *k);
bool fills(const struct state *s, unsigned i, const struct known *k);
uint8_t differing(const struct state *s, unsigned i, const struct known *k);
bool gives(const struct state *s, unsigned i, const struct known *asker, unsigned m);
bool refuses(const struct state *s, unsigned i, const struct known *asker, unsigned m);

void look(struct state *, unsigned i);
void apply(struct state *, unsigned i);
/* The next op of that origin becomes known. uid: of mails that are to be renumbered then; NULL: it
 * came with an exchange. */
void take(struct state *, unsigned i, unsigned origin, uint8_t *uid);
void renumber(struct state *, unsigned i, const uint8_t *uid);

struct item {
    uint8_t mail, late, order, origin, at;
};

int by_plan(const void *, const void *); /* struct item */

/* ---- joining_steps.c ---- */

enum step {
    BEGINS,
    STARTS,
    GOES_ON,
    IS_ANSWERED,
    TAKES_OP,
    HEARS_READING,
    HEARS_READ,
    FORGETS_READING,
    LOOKS,
    GETS_BODY,
    IS_REFUSED,
    LOWERS,
    ASKS_ROUND,
    ANSWERS_ROUND,
    SETTLES,
    SESSION,
    DELIVERY,
    SILENCE,
    LOSES_HOME,
    LOSES_HOME_AND_LANES,
    LOSES_STATE
};

/* All that may follow: go() is called for each. */
void steps(const struct state *);

/* ---- joining_walk.c ---- */

struct verdict {
    uint32_t states, rests;
    uint64_t steps;
    const char *broken;
};

void go(const struct state *, enum step, unsigned site, unsigned what, unsigned other);
struct verdict run(const struct start *, enum rule);
void tell_story(void); /* of the last run */

#endif
