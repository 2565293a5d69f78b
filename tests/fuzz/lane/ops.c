/* ops - the queue core: the input is a program of operations, every invariant is checked after
 * each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/lane/driver.h"
#include "redis-module/core/lane.h"

static const uint8_t *input;
static size_t left;
static bool failing;

static unsigned next(void)
{
    if (!left)
        return 0;
    left--;
    return *input++;
}

static void *fuzz_alloc(size_t n)
{
    return failing && next() % 4 == 0 ? NULL : malloc(n);
}

static struct lane_env env;

static uint64_t some_seq(struct lane *lane)
{
    struct lane_entry e;
    uint64_t first = lane_first_seq(lane), span = lane_last_seq(lane) - first + 1;
    return first && lane_next(lane, first + (next() * 256 + next()) % span, &e) ? e.seq : first;
}

static void push(struct lane *lane)
{
    uint8_t id[LANE_ID_LEN] = {(uint8_t)next()};
    unsigned how = next();
    struct lane_new e = {.id = how & 1 ? id : NULL,
                         .meta = "meta",
                         .meta_len = how % 5,
                         .body = "the body",
                         .body_len = how % 9};
    e.due = how & 16 ? 1000 + how : 0;
    e.expires = how & 128 ? 1000 + next() : 0;
    e.seq = how & 32 ? lane_last_seq(lane) + 1 + next() * 7 : 0;
    e.unbounded = how & 64;
    lane_push(lane, &e, NULL);
}

static void take(struct lane *lane, struct lane_holder *holder, uint64_t number)
{
    struct lane_entry e;
    struct lane_lease *lease = lane_lease_open(lane, holder, number);
    if (!lease)
        return;
    for (unsigned n = next() % 8; n && lane_candidate(lane, lease, &e); n--)
        if (!lane_lease_add(lease, e.seq, 1000 + next()))
            break;
    lane_lease_close(lease);
}

static void run(struct lane *lane[2], struct lane_holder *holder, uint64_t number)
{
    unsigned op = next();
    struct lane *here = lane[op & 1], *there = lane[~op & 1];
    uint64_t seq;
    switch (op / 2 % 15) {
    case 0:
    case 1: push(here); break;
    case 2: lane_remove(here, some_seq(here)); break;
    case 3: lane_set_meta(here, some_seq(here), next(), "replaced", next() % 9); break;
    case 4: take(here, &holder[next() % 2], number); break;
    case 5: lane_put_back(here, some_seq(here), next() & 1, next() & 1 ? 1000 + next() : 0); break;
    case 6: lane_due(here, 1000 + next()); break;
    case 7: lane_hand_over(here, some_seq(here), there, &seq); break;
    case 8: lane_extend(here, some_seq(here), 1000 + next()); break;
    case 9: lane_mark_revoked(here, some_seq(here)); break;
    case 10: lane_settings(here)->strict = next() & 1; break;
    case 11: lane_end_leases(here); break;
    case 12: lane_sweep(&env, next()); break;
    case 13:
        for (seq = 1000 + next(); lane_expired(here, (int64_t)seq);)
            lane_remove(here, lane_expired(here, (int64_t)seq));
        break;
    default: lane_settings(here)->maxlen = next(); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    env = (struct lane_env){.alloc = fuzz_alloc, .free = free, .key = "a key of a fuzz"};
    struct lane_holder holder[2] = {{0}, {0}};
    input = data;
    left = size;
    failing = false;
    struct lane *lane[2] = {lane_create(&env), lane_create(&env)};
    failing = next() & 1;
    for (uint64_t number = 1; left; number++) {
        run(lane, holder, number);
        for (int i = 0; i < 2; i++) {
            const char *wrong = lane_check(lane[i]);
            if (wrong) {
                fprintf(stderr, "%s\n", wrong);
                abort();
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        lane_end_leases(lane[i]);
        lane_free(lane[i]);
    }
    lane_sweep(&env, UINT64_MAX);
    return 0;
}

void fuzz_seeds(void (*keep)(const uint8_t *, size_t))
{
    uint8_t program[600];
    uint32_t x = 12345;
    for (unsigned kind = 0; kind < 8; kind++) {
        for (size_t i = 0; i < sizeof program; i++)
            program[i] = (uint8_t)((x = x * 1103515245 + 12345) >> 16);
        program[0] = kind & 1; /* whether allocations fail */
        keep(program, 100 + 70 * kind);
    }
}
