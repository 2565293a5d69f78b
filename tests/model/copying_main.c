/* copying-model - checks how a lost node's mail gets another owner (copying.h), and that each rule
 * of it is needed.
 *
 *     copying-model              all states within small bounds, random walks beyond them, and every rule left out once
 *     copying-model long         larger bounds, more walks
 *     copying-model mutants      the rules left out only, each with the shortest story found
 *     copying-model try FAULTS [MUTANT [SEEDS]]
 *
 * FAULTS: each letter once more for each time: c crash, x a node is cut off, k relay killed, f
 * FLUSHALL, l a false death, h the lost node's relay is gone, its server not; 2: the lost node
 * was first. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/model/explore.h"

#define STEPS 400
#define STATES_MOST 30000000u

struct run {
    const char *faults;
    uint64_t seeds; /* 0: all states */
};

static const struct run usual[] = {
    {"c", 0},
    {"2c", 0},
    {"l", 0},
    {"2l", 0},
    {"hf", 0},
    {"2h", 0},
    {"cccxxkkffllh", 50000},
    {"2cccxxkkffllh", 50000},
};

static const struct run more[] = {
    {"x", 0}, {"2x", 0}, {"ck", 0}, {"2hf", 0}, {"cccxxkkffll", 500000}, {"2cccxxkkffll", 500000},
};

static const struct run hunt[] = {
    {"c", 0}, {"2c", 0}, {"hf", 0}, {"cccxxkkffll", 40000}, {"2cccxxkkffll", 40000}};

static const char *const mutants[MUTANTS] = {
    [MOVED_LATE] = "moved at home when the new copy is older than settle",
    [MOVED_FIRST] = "moved at home before the new copy is stored",
    [HELD_COUNTS] = "what the new owner held already counts as stored",
    [DONE_COUNTS] = "what the new owner let go counts as stored",
    [COPIED_WHILE_RETURNING] = "copied though the lost node is heard returning",
    [RETURNED_TOO_SOON] = "compared in a return, or found dead, within the time of a move",
    [NOT_TOLD] = "the lost node's server is not told what has other owners",
};

static struct rules rules_of(const char *faults, enum mutant mutant)
{
    struct rules r = {.mutant = mutant};
    for (const char *p = faults; *p; p++)
        switch (*p) {
        case 'c': r.crashes++; break;
        case 'x': r.cuts++; break;
        case 'k': r.kills++; break;
        case 'f': r.flushes++; break;
        case 'l': r.lies++; break;
        case 'h': r.halts++; break;
        case '2': r.second = true; break;
        default: fprintf(stderr, "fault %c is none of c x k f l h 2\n", *p); exit(2);
        }
    return r;
}

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void run_one(const struct run *run, enum mutant mutant, struct found *f)
{
    struct rules r = rules_of(run->faults, mutant);
    if (run->seeds)
        explore_randomly(&r, 1, run->seeds, STEPS, f);
    else
        explore(&r, STATES_MOST, f);
}

static int run_all(const struct run *run, size_t n)
{
    static struct found f;
    int wrong = 0;
    for (size_t i = 0; i < n; i++) {
        double begun = seconds();
        run_one(&run[i], AS_BUILT, &f);
        printf("%-14s %10" PRIu64 " %-21s %11" PRIu64 " moves %6.1f s  %s\n", run[i].faults,
               f.states, run[i].seeds ? "states at random" : "states, all of them", f.moves,
               seconds() - begun, f.wrong ? f.wrong : "ok");
        if (f.wrong)
            printf("    %s\n", f.story);
        fflush(stdout);
        wrong += f.wrong || (!run[i].seeds && !f.all);
    }
    return wrong;
}

static int hunt_mutants(bool stories)
{
    static struct found f;
    int alive = 0;
    for (unsigned k = 1; k < MUTANTS; k++) {
        size_t i = 0, n = sizeof hunt / sizeof *hunt;
        double begun = seconds();
        do
            run_one(&hunt[i], (enum mutant)k, &f);
        while (!f.wrong && ++i < n);
        printf("%2u %-60s %5.1f s  %s\n", k, mutants[k], seconds() - begun,
               f.wrong ? f.wrong : "NOT FOUND");
        if (f.wrong && stories)
            printf("    %s: %s\n", hunt[i].faults, f.story);
        fflush(stdout);
        alive += !f.wrong;
    }
    return alive;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int wrong = 0;
    if (!strcmp(what, "try") && argc > 2) {
        static struct found f;
        struct run run = {argv[2], argc > 4 ? strtoull(argv[4], NULL, 10) : 0};
        int mutant = argc > 3 ? atoi(argv[3]) : 0;
        if (mutant < 0 || mutant >= MUTANTS) {
            fprintf(stderr, "mutants are 0 to %d\n", MUTANTS - 1);
            return 2;
        }
        run_one(&run, (enum mutant)mutant, &f);
        printf("%" PRIu64 " states, %" PRIu64 " moves, %.1f s: %s\n%s\n", f.states, f.moves,
               seconds(), f.wrong ? f.wrong : "ok", f.wrong ? f.story : "");
        return f.wrong != NULL;
    }
    if (!strcmp(what, ""))
        wrong += run_all(usual, sizeof usual / sizeof *usual);
    else if (!strcmp(what, "long"))
        wrong += run_all(more, sizeof more / sizeof *more);
    else if (strcmp(what, "mutants") != 0) {
        fprintf(stderr, "usage: copying-model [long | mutants | try FAULTS [MUTANT [SEEDS]]]\n");
        return 2;
    }
    if (strcmp(what, "long") != 0)
        wrong += hunt_mutants(*what != 0);
    printf("%.1f s of CPU; %s\n", seconds(),
           wrong ? "NOT what the rules promise" : "all as promised");
    return wrong != 0;
}
