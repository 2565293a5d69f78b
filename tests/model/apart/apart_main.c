/* apart - simulates groups that are larger and further apart than one machine can show.
 *
 *   apart-simulate            what a hundred nodes do, as a table
 *   apart-simulate check      a smaller group, held to what the rules promise; for the tests
 *   apart-simulate json       the table's figures, a JSON object a line
 *
 * What it assumes: mails do not differ; a node's server and links have no bound but `capacity`,
 * the mails a second that it delivers; comparing copies takes no time; a region is lost or cut off
 * as a whole and at once; whoever cannot reach an owner puts the mail into Postfix's queue. Its
 * figures are held against real nodes where there are such (docs/lab/geo.md, "geo"). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/model/apart/apart.h"

#define PATIENCE 120 /* simulated seconds until all are alive, and until all is delivered */

static void fail(const char *plan, const char *what)
{
    fprintf(stderr, "apart-simulate: %s: %s\n", plan, what);
    exit(1);
}

static void lose_first_region(void)
{
    for (size_t i = 0; i < w.plan.nodes; i++)
        if (world_in_first_region(i) && w.node[i].up)
            mail_lose(i);
}

static void step(void)
{
    w.now += STEP;
    world_step();
}

static void until_alive(const char *name)
{
    while (!world_alive()) {
        if (w.now > PATIENCE)
            fail(name, "not all nodes are alive");
        step();
    }
}

static void balance(void)
{
    double most = 0, all = 0;
    for (size_t i = 0; i < w.plan.nodes; i++) {
        double held = w.node[i].held_of_others;
        all += held;
        if (held > most)
            most = held;
    }
    w.figures.balance = all > 0 ? most * (double)w.plan.nodes / all : 0;
}

static struct figures simulate(const char *name, const struct plan *plan)
{
    world_begin(plan);
    mail_begin();
    until_alive(name);
    double began = w.now;
    w.figures.beat_bytes = 0;
    while (w.now < began + plan->seconds) {
        double at = w.now - began;
        if (plan->lose_at > 0 && at >= plan->lose_at)
            lose_first_region();
        w.parted = plan->cut > 0 && at >= plan->cut_at && at < plan->cut_at + plan->cut;
        step();
        mail_step();
    }
    double beat_bytes = w.figures.beat_bytes / ((double)plan->nodes * plan->seconds);
    w.plan.offered = 0;
    for (double end = w.now + PATIENCE; mail_waiting() > 0;) {
        if (w.now > end)
            fail(name, "mail stays in lanes");
        step();
        mail_step();
    }
    w.figures.beat_bytes = beat_bytes;
    balance();
    mail_end();
    if (plan->lose_at > 0) {
        w.figures.recovery -= w.figures.recovery > 0 ? began + plan->lose_at : 0;
        w.figures.found_dead -= began + plan->lose_at;
    }
    w.figures.bytes /= w.figures.stored > 0 ? w.figures.stored : 1;
    world_end();
    return w.figures;
}

/* ---- the plans ---- */

struct scene {
    const char *name;
    struct plan plan;
};

#define A_HUNDRED                                                                            \
    .nodes = 100, .regions = 12, .near = true, .offered = 1e6, .size = 1000, .in_lane = 0.1, \
    .capacity = 30000, .seconds = 30

static const struct scene scenes[] = {
    {"steady, spread over regions", {A_HUNDRED, .spread = true, .least = 2}},
    {"steady, any node", {A_HUNDRED, .least = 1}},
    {"a region lost, spread over regions", {A_HUNDRED, .spread = true, .least = 2, .lose_at = 5}},
    {"a region lost, any node", {A_HUNDRED, .least = 1, .lose_at = 5}},
    {"a region cut off for 20 s", {A_HUNDRED, .spread = true, .least = 2, .cut_at = 3, .cut = 20}},
    {"one gateway outside, a node of three cut off for 40 s",
     {.nodes = 3,
      .regions = 3,
      .spread = true,
      .least = 2,
      .outside = true,
      .offered = 60,
      .size = 1000,
      .in_lane = 0.05,
      .capacity = 1000,
      .seconds = 60,
      .cut_at = 5,
      .cut = 40}},
};

static void print_json(const char *name, const struct figures *f)
{
    printf("{\"name\": \"%s\", \"offered\": %.0f, \"stored\": %.0f, \"queued\": %.0f, "
           "\"delivered\": %.0f, \"lost\": %.0f, \"twice\": %.0f, \"p50\": %.4f, \"p99\": %.4f, "
           "\"balance\": %.3f, \"bytes\": %.1f, \"beat_bytes\": %.0f, \"found_dead\": %.2f, "
           "\"recovery\": %.2f}\n",
           name, f->offered, f->stored, f->queued, f->delivered, f->lost, f->twice, f->latency50,
           f->latency99, f->balance, f->bytes, f->beat_bytes, f->found_dead, f->recovery);
}

static void print_row(const char *name, const struct figures *f)
{
    printf("%-54s %11.0f %9.0f %8.0f %9.0f %7.1f %7.1f %7.2f %6.0f %7.2f %7.2f\n", name, f->stored,
           f->queued, f->lost, f->twice, f->latency50 * 1000, f->latency99 * 1000, f->balance,
           f->bytes, f->found_dead, f->recovery);
}

static void show(bool json)
{
    if (!json)
        printf("%-54s %11s %9s %8s %9s %7s %7s %7s %6s %7s %7s\n", "", "stored", "queued", "lost",
               "twice", "p50 ms", "p99 ms", "balance", "bytes", "dead s", "done s");
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        struct figures f = simulate(scenes[i].name, &scenes[i].plan);
        (json ? print_json : print_row)(scenes[i].name, &f);
        fflush(stdout);
    }
    for (size_t n = 3; n <= 100; n = n < 7 ? 7 : n < 20 ? 20 : n < 50 ? 50 : 2 * n) {
        struct plan quiet = {.nodes = n,
                             .regions = 3,
                             .least = 1,
                             .size = 1,
                             .offered = 1,
                             .capacity = 1000,
                             .seconds = 2};
        char name[64];
        snprintf(name, sizeof name, "beats of %zu nodes", n);
        struct figures f = simulate(name, &quiet);
        if (json)
            print_json(name, &f);
        else
            printf("%-54s %.0f bytes a second and node\n", name, f.beat_bytes);
    }
}

/* ---- what must hold ---- */

#define SMALL                                                                                \
    .nodes = 24, .regions = 6, .near = true, .offered = 24000, .size = 1000, .in_lane = 0.5, \
    .capacity = 3000, .seconds = 20

static void expect(const char *name, bool holds, const char *what)
{
    if (!holds)
        fail(name, what);
}

static void check(void)
{
    struct plan p = {SMALL, .spread = true, .least = 2};
    struct figures f = simulate("steady", &p);
    expect("steady", f.stored == f.offered && f.delivered == f.stored, "mail is missing");
    expect("steady", !f.lost && !f.twice && !f.queued, "mail is lost, doubled, or queued");
    expect("steady", f.balance < 4, "one node has the copies of too many");

    p.lose_at = 5;
    f = simulate("a region is lost", &p);
    expect("a region is lost", !f.lost, "mail is lost although copies are spread");
    expect("a region is lost", f.found_dead > 13 && f.found_dead < 20, "it is not found dead");

    struct plan any = {SMALL, .least = 1, .lose_at = 5};
    f = simulate("a region is lost, any node", &any);
    expect("a region is lost, any node", f.lost > 0, "nothing is lost: then nothing is shown");

    struct plan cut = {SMALL, .spread = true, .least = 2, .cut_at = 2, .cut = 18};
    f = simulate("a region is cut off", &cut);
    expect("a region is cut off", !f.lost, "mail is lost");
    expect("a region is cut off", f.twice > 0, "nothing comes twice: both parts deliver");
    expect("a region is cut off", f.twice < 24000 * 3, "too much comes twice");
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "check"))
        check();
    else
        show(argc > 1 && !strcmp(argv[1], "json"));
    return 0;
}
