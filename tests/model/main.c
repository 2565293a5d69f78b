/* model - checks the rules of takeover and return (docs/takeover.md), and that each of them is
 * needed.
 *
 *     model              all states within small bounds, random walks beyond them, and every rule left out once: under a minute
 *     model long         larger bounds, more walks
 *     model mutants      the rules left out only, each with the shortest story found
 *     model try OWNERS FAULTS [MUTANT [SEEDS]]    one run; with SEEDS random walks
 *
 * FAULTS is a string of what may happen, each letter once more for each time: c crash (a node or
 * its Redis, back empty, with an old RDB or never), x partition, p pause, k relay killed, f
 * FLUSHALL, l a false death, r last reply lost, h handover_wait over. Before them: s the mail is
 * promised at the start, = beats are not late, b more than f nodes may be lost at a time (then
 * only: nothing waits for ever). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/model/explore.h"

#define STEPS 400
#define STATES_MOST 60000000u
#define HUNT_MOST 100000u /* to find a broken rule, fewer states do */

struct run {
    unsigned owners;
    const char *faults;
    uint64_t seeds; /* 0: all states */
};

static const struct run usual[] = {
    {2, "", 0},
    {2, "=c", 0},
    {2, "x", 0},
    {2, "p", 0},
    {2, "k", 0},
    {2, "f", 0},
    {2, "l", 0},
    {2, "r", 0},
    {2, "s=bcc", 0},
    {2, "s=cc", 0},
    {2, "s=cp", 0},
    {2, "s=ck", 0},
    {2, "s=cf", 0},
    {2, "spx", 0},
    {3, "s=p", 0},
    {3, "s=k", 0},
    {2, "cccxxppkkfflllrrh", 10000},
    {2, "scccxxppkkfflllrrh", 10000},
    {3, "cccxxppkkfflllrrh", 4000},
    {3, "scccxxppkkfflllrrh", 4000},
    {2, "bcccxxppkkfff", 3000},
    {3, "bcccxxppkkfff", 1000},
};

static const struct run more[] = {
    {2, "c", 0},
    {2, "=ck", 0},
    {2, "s=cx", 0},
    {2, "scc", 0},
    {2, "scx", 0},
    {2, "scp", 0},
    {3, "=", 0},
    {3, "s=c", 0},
    {2, "cccxxppkkfflllrrh", 400000},
    {2, "scccxxppkkfflllrrh", 400000},
    {3, "cccxxppkkfflllrrh", 200000},
    {3, "scccxxppkkfflllrrh", 200000},
    {2, "bcccxxppkkfff", 100000},
    {3, "bcccxxppkkfff", 50000},
};

/* The first of these that finds a mutant; those of all states come first and in order of what
 * happens, so their stories are the shortest. */
static const struct run hunt[] = {
    {2, "=c", 0},
    {2, "=p", 0},
    {2, "=x", 0},
    {2, "=k", 0},
    {2, "scccxxppkkfflllrrh", 20000},
    {2, "cccxxppkkfflllrrh", 20000},
    {3, "scccxxppkkfflllrrh", 20000},
    {3, "cccxxppkkfflllrrh", 20000},
};

static const char *const mutants[MUTANTS] = {
    [RESET_AND_RESEND] = "a copy in doubt is emptied and sent again",
    [COMPARE_WITHOUT_SETTLE] = "entries are compared before settle",
    [LATE_250] = "250 after the deadline",
    [NO_WAIT_AFTER_RESTART] = "a returning node compares at once",
    [PEER_LIST_FIRST] = "the peer's list is read before the own",
    [WHOLE_BEFORE_BODIES] = "whole before the bodies are here",
    [WITNESS_NOT_WHOLE] = "a node that is not whole is compared with",
    [WHOLE_BY_ITSELF] = "a node calls itself whole after a while",
    [WHOLE_BY_PART] = "union without all owners",
    [WHOLE_SURVIVES_RESTART] = "whole is not tied to the run_id",
    [WHOLE_WITHOUT_TOKEN] = "FLUSHALL during a comparison is not noticed",
    [FETCH_INSTEAD_OF_DROP] = "between whole nodes, what one lacks is fetched",
    [RETURN_WITHOUT_COMPARISON] = "a node returns as it is",
    [LOSS_NOT_NOTICED] = "a new run_id, FLUSHALL are not noticed",
    [PAUSE_NOT_NOTICED] = "a node that stood still just goes on",
    [TAKEOVER_NOT_NOTICED] = "a node does not look who took it over",
    [OLD_BEATS_COUNT] = "beats of before the return count",
    [HEAR_FOR_ONESELF] = "dead, though others hear it",
    [TAKE_WHEN_READY] = "a ready node takes before the others gave back",
    [READY_UNHEARD] = "alive before all have heard it ready",
    [GIVE_BACK_WITH_HAND_FULL] = "a lane is given back with mail in hand",
    [GIVE_BACK_OWING] = "a lane is given back with acks owed",
    [ACKS_NOT_KEPT] = "acks that could not be told are dropped",
    [NOTHING_REMEMBERED] = "no memory of what was let go",
    [NO_COMPARISON_LATER] = "no comparison every minute",
    [RETURNING_COUNTS_AS_ALIVE] = "nobody takes over a returning node",
};

static struct rules rules_of(const struct run *run, enum mutant mutant)
{
    struct rules r = {.owners = run->owners, .mutant = mutant};
    for (const char *p = run->faults; *p; p++)
        switch (*p) {
        case 'c': r.crashes++; break;
        case 'x': r.cuts++; break;
        case 'p': r.pauses++; break;
        case 'k': r.kills++; break;
        case 'f': r.flushes++; break;
        case 'l': r.lies++; break;
        case 'r': r.losses++; break;
        case 'h': r.hurries++; break;
        case 's': r.stored = true; break;
        case '=': r.prompt_beats = true; break;
        case 'b': r.beyond = true; break;
        default: fprintf(stderr, "fault %c is none of c x p k f l r h s = b\n", *p); exit(2);
        }
    return r;
}

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void run_one(const struct run *run, enum mutant mutant, uint64_t most, struct found *f)
{
    struct rules r = rules_of(run, mutant);
    if (run->seeds)
        explore_randomly(&r, 1, run->seeds, STEPS, f);
    else
        explore(&r, most, f);
}

static int run_all(const struct run *run, size_t n)
{
    static struct found f;
    int wrong = 0;
    for (size_t i = 0; i < n; i++) {
        double begun = seconds();
        run_one(&run[i], AS_BUILT, STATES_MOST, &f);
        printf("%u owners, %-20s %10" PRIu64 " %-21s %11" PRIu64 " moves %6.1f s  %s\n",
               run[i].owners, run[i].faults, f.states,
               run[i].seeds ? "states at random" : "states, all of them", f.moves,
               seconds() - begun, f.wrong ? f.wrong : "ok");
        fflush(stdout);
        if (f.wrong)
            printf("    %s\n", f.story);
        if (!f.wrong && !run[i].seeds && !f.all)
            printf("    more than %u states: not all were seen\n", STATES_MOST);
        wrong += f.wrong || (!run[i].seeds && !f.all);
    }
    return wrong;
}

static int hunt_mutants(bool stories)
{
    static struct found f;
    int alive = 0;
    for (unsigned k = 1; k < MUTANTS; k++) {
        size_t i = 0, n = sizeof hunt / sizeof hunt[0];
        double begun = seconds();
        do
            run_one(&hunt[i], (enum mutant)k, HUNT_MOST, &f);
        while (!f.wrong && ++i < n);
        printf("%2u %-50s %5.1f s  %s\n", k, mutants[k], seconds() - begun,
               f.wrong ? f.wrong : "NOT FOUND");
        if (f.wrong && stories)
            printf("    %u owners, %s: %s\n", hunt[i].owners,
                   *hunt[i].faults ? hunt[i].faults : "no fault", f.story);
        fflush(stdout);
        alive += !f.wrong;
    }
    return alive;
}

static int try(int argc, char **argv)
{
    static struct found f;
    struct run run = {(unsigned)atoi(argv[2]), argv[3], argc > 5 ? strtoull(argv[5], NULL, 10) : 0};
    int mutant = argc > 4 ? atoi(argv[4]) : 0;
    if (run.owners < 2 || run.owners > 3 || mutant < 0 || mutant >= MUTANTS) {
        fprintf(stderr, "owners are 2 or 3, mutants 0 to %d\n", MUTANTS - 1);
        return 2;
    }
    run_one(&run, (enum mutant)mutant, STATES_MOST, &f);
    printf("%" PRIu64 " states, %" PRIu64 " moves, %.1f s: %s\n%s\n", f.states, f.moves, seconds(),
           f.wrong ? f.wrong : "ok", f.wrong ? f.story : "");
    return f.wrong != NULL;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "try") && argc > 3)
        return try(argc, argv);
    int wrong = 0;
    if (!strcmp(what, ""))
        wrong += run_all(usual, sizeof usual / sizeof usual[0]);
    else if (!strcmp(what, "long"))
        wrong += run_all(more, sizeof more / sizeof more[0]);
    else if (strcmp(what, "mutants") != 0) {
        fprintf(stderr, "usage: model [long | mutants | try OWNERS FAULTS [MUTANT [SEEDS]]]\n");
        return 2;
    }
    if (strcmp(what, "long") != 0)
        wrong += hunt_mutants(*what != 0);
    printf("%.1f s of CPU; %s\n", seconds(),
           wrong ? "NOT what the rules promise" : "all as promised");
    return wrong != 0;
}
