/* explore - walks through all states of the rules, or some of them at random, and says what is
 * wrong and how it comes to it.
 *
 * In every state the invariants of rules_wrong are checked, and that whoever lets it be quiet
 * from there on finds every mail delivered and every node whole and alive (rules_unfinished):
 * once with partitions healed and not, and with dead nodes back and never back. */
#ifndef DOVELANE_TESTS_MODEL_EXPLORE_H
#define DOVELANE_TESTS_MODEL_EXPLORE_H

#include MODEL /* "tests/model/rules.h", or another one with the same functions */

struct found {
    uint64_t states, moves;
    bool all;          /* every state that can be reached was seen */
    const char *wrong; /* NULL: nothing */
    char story[6000];  /* the moves that lead there; the fewest when found by rules_explore */
};

/* Every state that can be reached, up to `most` of them. Ends at the first thing that is wrong. */
void explore(const struct rules *, uint64_t most, struct found *);

/* Walks of random moves, seeds first to last, until nothing more happens but at most `steps`
 * each. */
void explore_randomly(const struct rules *, uint64_t first, uint64_t last, unsigned steps,
                      struct found *);

#endif
