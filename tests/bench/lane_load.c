/* lane_load - stores and removes entries through one pipelined connection, in a lane or in what one
 * would use instead.
 *
 *   lane_load --unix PATH | --tcp PORT  --do WHAT [--size BYTES] [--count ENTRIES] [--batch N]
 *   [--ack N] [--window N] [--lanes N] [--unpacked] [--spin]
 *
 * One transaction is one entry stored and removed. Entries are removed only after their store was
 * confirmed, oldest first. In flight are at most --window entries whose store is unconfirmed.
 * Prints one JSON line.
 *
 * Entries go in their packed form, by LANE.MPUT, and by LANE.PUT when --batch is 1; --unpacked: one
 * argument for each part of each. --spin: asks for answers without ever sleeping, which wants a
 * core of its own. Else whether a wake-up of one side or the other (an interrupt to another core,
 * dear in a virtual machine) falls into the time differs from run to run.
 *
 *   lane-range  LANE.PUSH of --batch entries without ids, LANE.ACK RANGES for --ack entries at once
 *   lane-ride   LANE.PUSH of --batch entries, the acks of the oldest --ack confirmed ones (by ids) ride on it when there are so many
 *   lane-ride-upto  the same, acks by position
 *   lane-ids    LANE.PUSH of --batch entries, LANE.ACK IDS for --ack entries at once
 *   lane-take   the same, with a LANE.TAKE of --ack entries before
 *   set         SET and UNLINK, one each per entry          mset      MSET and UNLINK of --batch keys
 *   list        RPUSH of --batch, LTRIM by --ack            stream    XADD each, XDEL of --ack ids
 *   group       XADD each, XREADGROUP of --ack, XACK and XDEL of their ids
 *   memcached   set and delete, with their replies          memcached-quiet   meta commands without replies, one MN per --ack
 *   fill-lane, fill-list, fill-stream, fill-set             only store (no removing); --lanes keys in turn
 *   read-lane, read-stream, read-ids                        --count entries in blocks of --batch, the next asked for when one has come
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/lane_link.h"
#include "tests/bench/lane_load.h"

static const char *const doing_names[DOINGS] = {
    "lane-range", "lane-ride", "lane-ride-upto", "lane-ids", "lane-take", "set",
    "mset",       "list",      "stream",         "group",    "memcached", "memcached-quiet",
    "fill-lane",  "fill-list", "fill-stream",    "fill-set", "read-lane", "read-stream",
    "read-ids"};

struct load_options o = {.doing = DOINGS,
                         .size = 400,
                         .count = 1000000,
                         .batch = 1,
                         .ack = 100,
                         .window = 100,
                         .lanes = 1};
struct request ring[RING];
uint64_t ring_head, ring_tail;

uint64_t sent, stored, removing, removed, read_entries;
uint64_t *sequence;
char (*stream_id)[40];
uint64_t next_from;
char next_stream[48] = "-";
bool read_over;

static void turn(void)
{
    if (!link_turn(o.spin))
        link_fail("no answer for 60 s: %llu sent, %llu stored, %llu removed",
                  (unsigned long long)sent, (unsigned long long)stored,
                  (unsigned long long)removed);
}

static bool only_fills(void)
{
    return o.doing >= FILL_LANE && o.doing <= FILL_SET;
}
static bool reads(void)
{
    return o.doing >= READ_LANE;
}
static bool rides(void)
{
    return o.doing == LANE_RIDE || o.doing == LANE_RIDE_UPTO;
}

static bool over(void)
{
    if (reads())
        return read_over || read_entries >= o.count;
    if (only_fills())
        return stored >= o.count;
    return rides() ? stored >= o.count && ring_head == ring_tail : removed >= o.count;
}

static void produce(void)
{
    if (reads()) {
        if (ring_head == ring_tail && !over())
            ask_block();
        return;
    }
    while (link_waiting() < (4u << 20) && ring_tail - ring_head < RING - 4) {
        if (!only_fills() && !rides() && stored > removing &&
            (stored - removing >= o.ack || stored >= o.count)) {
            uint64_t n = stored - removing > o.ack ? o.ack : stored - removing;
            remove_some(removing, n);
            removing += n;
        } else if (sent < o.count && sent - stored + o.batch <= o.window) {
            store(sent);
            sent += o.batch;
        } else
            break;
    }
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"unix", 1, NULL, 'u'},     {"tcp", 1, NULL, 't'},    {"do", 1, NULL, 'd'},
        {"size", 1, NULL, 's'},     {"count", 1, NULL, 'c'},  {"batch", 1, NULL, 'b'},
        {"ack", 1, NULL, 'a'},      {"window", 1, NULL, 'w'}, {"lanes", 1, NULL, 'l'},
        {"unpacked", 0, NULL, 'U'}, {"spin", 0, NULL, 'S'},   {0}};
    const char *path = NULL;
    int port = 0, c;
    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        uint64_t n = optarg ? strtoull(optarg, NULL, 10) : 0;
        switch (c) {
        case 'u': path = optarg; break;
        case 't': port = (int)n; break;
        case 's': o.size = n; break;
        case 'c': o.count = n; break;
        case 'b': o.batch = n; break;
        case 'a': o.ack = n; break;
        case 'w': o.window = n; break;
        case 'l': o.lanes = n; break;
        case 'U': o.unpacked = true; break;
        case 'S': o.spin = true; break;
        case 'd':
            for (o.doing = 0; o.doing < DOINGS && strcmp(doing_names[o.doing], optarg); o.doing++)
                ;
            if (o.doing == DOINGS)
                link_fail("--do %s is unknown; the list stands at the head of lane_load.c", optarg);
            break;
        default: return 2;
        }
    }
    if ((!path && !port) || o.doing == DOINGS)
        link_fail("needs --unix PATH or --tcp PORT, and --do WHAT");
    if (!o.batch || !o.ack || !o.lanes || o.batch > 10000 || o.ack > 10000 || o.window > SPAN / 4)
        link_fail("--batch and --ack are 1 to 10000, --window at most %u, --lanes at least 1",
                  SPAN / 4);
    if (o.window < o.batch)
        o.window = o.batch;
    o.count -= o.count % o.batch;
    sequence = calloc(SPAN, sizeof *sequence);
    stream_id = calloc(SPAN, sizeof *stream_id);
    salt = (uint64_t)time(NULL) << 32 | (uint64_t)getpid();
    link_open(path, port, o.size);
    if (o.doing == GROUP) {
        make_group();
        while (ring_head != ring_tail) {
            turn();
            while (take_reply())
                ;
        }
    }
    double began = link_now();
    while (!over()) {
        produce();
        turn();
        while (ring_head != ring_tail && take_reply())
            ;
    }
    double seconds = link_now() - began;
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    uint64_t done = reads() ? read_entries : only_fills() ? stored : removed;
    printf("{\"do\": \"%s\", \"size\": %llu, \"entries\": %llu, \"seconds\": %.6f, \"per_second\": "
           "%.1f, \"client_cpu\": %.3f}\n",
           doing_names[o.doing], (unsigned long long)o.size, (unsigned long long)done, seconds,
           (double)done / seconds,
           ((double)use.ru_utime.tv_sec + (double)use.ru_utime.tv_usec / 1e6 +
            (double)use.ru_stime.tv_sec + (double)use.ru_stime.tv_usec / 1e6) /
               seconds);
    return 0;
}
