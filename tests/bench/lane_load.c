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

enum doing {
    LANE_RANGE,
    LANE_RIDE,
    LANE_RIDE_UPTO,
    LANE_IDS,
    LANE_TAKE,
    SET,
    MSET,
    LIST,
    STREAM,
    GROUP,
    MEMCACHED,
    MEMCACHED_QUIET,
    FILL_LANE,
    FILL_LIST,
    FILL_STREAM,
    FILL_SET,
    READ_LANE,
    READ_STREAM,
    READ_IDS,
    DOINGS
};
static const char *const doing_names[DOINGS] = {
    "lane-range", "lane-ride", "lane-ride-upto", "lane-ids", "lane-take", "set",
    "mset",       "list",      "stream",         "group",    "memcached", "memcached-quiet",
    "fill-lane",  "fill-list", "fill-stream",    "fill-set", "read-lane", "read-stream",
    "read-ids"};

/* What a request in flight stands for. */
enum asked { STORE, REMOVE, OTHER, BLOCK };
struct request {
    enum asked asked;
    unsigned entries; /* stores confirmed, or removes done, by its reply */
    unsigned replies; /* replies still to come */
};

static struct {
    enum doing doing;
    uint64_t count, size, batch, ack, window, lanes;
    bool unpacked, spin;
} o = {.doing = DOINGS,
       .size = 400,
       .count = 1000000,
       .batch = 1,
       .ack = 100,
       .window = 100,
       .lanes = 1};

#define RING (1u << 20)
static struct request ring[RING];
static uint64_t ring_head, ring_tail;

/* Entry n has the id and the key made of n; sequences and stream ids come from the replies. */
static uint64_t sent, stored, removing, removed, read_entries;
static uint64_t *sequence; /* by entry modulo SPAN */
static char (*stream_id)[40];
#define SPAN (1u << 20)
static uint64_t next_from = 0;
static char next_stream[48] = "-";
static bool read_over;

static char *decimal(char *end, uint64_t n)
{
    do
        *--end = (char)('0' + n % 10);
    while (n /= 10);
    return end;
}

static void put_number(char kind, uint64_t n)
{
    char text[24], *end = text + sizeof text - 2, *at = decimal(end, n);
    end[0] = '\r';
    end[1] = '\n';
    *--at = kind;
    link_put(at, (size_t)(end + 2 - at));
}

static void word(const void *bytes, size_t len)
{
    put_number('$', len);
    link_put(bytes, len);
    link_put("\r\n", 2);
}

static void word_body(void)
{
    put_number('$', o.size);
    link_put_body();
    link_put("\r\n", 2);
}

static void text(const char *s)
{
    word(s, strlen(s));
}

static void number(uint64_t n)
{
    char digits[24], *end = digits + sizeof digits, *at = decimal(end, n);
    word(at, (size_t)(end - at));
}

static uint64_t salt; /* another one in each run: ids that were let go are remembered */

static void entry_id(char id[16], uint64_t n)
{
    memcpy(id, &salt, 8);
    memcpy(id + 8, &n, 8);
}

static void word_id(uint64_t n)
{
    char id[16];
    entry_id(id, n);
    word(id, 16);
}

static size_t key_of(char key[32], uint64_t n)
{
    return (size_t)snprintf(key, 32, "k%012llu", (unsigned long long)n);
}

static void word_key(uint64_t n)
{
    char key[32];
    word(key, key_of(key, n));
}

static void word_queue(uint64_t n)
{
    char key[32];
    word(key, (size_t)snprintf(key, sizeof key, "q%llu", (unsigned long long)(n % o.lanes)));
}

static void ask(enum asked asked, uint64_t entries, unsigned replies)
{
    ring[ring_tail++ % RING] = (struct request){asked, (unsigned)entries, replies};
}

/* --- requests */

static bool with_ids(void)
{
    return o.doing == LANE_RIDE || o.doing == LANE_IDS || o.doing == FILL_LANE;
}

static bool packs(void)
{
    return !o.unpacked && (o.doing <= LANE_TAKE || o.doing == FILL_LANE || o.doing == READ_LANE);
}

/* n ids from one on: one argument, or one each behind their number. */
static void word_ids(uint64_t from, uint64_t n)
{
    if (!packs()) {
        number(n);
        for (uint64_t i = 0; i < n; i++)
            word_id(from + i);
        return;
    }
    text("PACKED");
    put_number('$', n * 16);
    for (uint64_t i = 0; i < n; i++) {
        char id[16];
        entry_id(id, from + i);
        link_put(id, 16);
    }
    link_put("\r\n", 2);
}

static void put_packed(uint64_t n)
{
    bool ids = with_ids();
    put_number('$', o.batch * (12 + (ids ? 16 : 0) + o.size));
    for (uint64_t i = 0; i < o.batch; i++) {
        uint32_t head[3] = {ids ? 0x80000001u : 1, 0, (uint32_t)o.size};
        char id[16];
        link_put(head, sizeof head);
        entry_id(id, n + i);
        if (ids)
            link_put(id, 16);
        link_put_body();
    }
    link_put("\r\n", 2);
}

static void put_entries(uint64_t n)
{
    text("ENTRIES");
    number(o.batch);
    for (uint64_t i = 0; i < o.batch; i++) {
        text("1");
        if (with_ids())
            word_id(n + i);
        else
            word("", 0);
        word("", 0);
        word_body();
    }
}

static void push(uint64_t n, uint64_t ride)
{
    if (packs() && o.batch == 1 && !ride) {
        put_number('*', with_ids() ? 4 : 3);
        text("LANE.PUT");
        word_queue(n);
        word_body();
        if (with_ids())
            word_id(n);
        return;
    }
    if (packs() && o.doing != LANE_RIDE) {
        put_number('*', ride ? 4 : 3);
        text("LANE.MPUT");
        word_queue(n / o.batch);
        put_packed(n);
        if (ride)
            number(sequence[(removing + ride - 1) % SPAN]);
        return;
    }
    uint64_t part = ride == 0 ? 0 : o.doing == LANE_RIDE_UPTO || packs() ? 4 : 3 + ride;
    put_number('*', 3 + part + (packs() ? 2 : 2 + o.batch * 4));
    text("LANE.PUSH");
    text("1");
    word_queue(n / o.batch);
    if (packs())
        text("PACKED"), put_packed(n);
    else
        put_entries(n);
    if (!ride)
        return;
    text("ACK");
    text("1");
    if (o.doing == LANE_RIDE) {
        word_ids(removing, ride);
        return;
    }
    text("UPTO");
    number(sequence[(removing + ride - 1) % SPAN]);
}

static void store(uint64_t n)
{
    char key[32];
    size_t len;
    switch (o.doing) {
    case LANE_RIDE:
    case LANE_RIDE_UPTO: {
        uint64_t ride = stored - removing;
        ride = ride >= o.ack ? o.ack : 0;
        push(n, ride);
        removing += ride;
        removed += ride;
        ask(STORE, o.batch, 1);
        break;
    }
    case LANE_RANGE:
    case LANE_IDS:
    case LANE_TAKE:
    case FILL_LANE:
        push(n, 0);
        ask(STORE, o.batch, 1);
        break;
    case SET:
    case FILL_SET:
        put_number('*', 3);
        text("SET");
        word_key(n);
        word_body();
        ask(STORE, 1, 1);
        break;
    case MSET:
        put_number('*', 1 + 2 * o.batch);
        text("MSET");
        for (uint64_t i = 0; i < o.batch; i++) {
            word_key(n + i);
            word_body();
        }
        ask(STORE, o.batch, 1);
        break;
    case LIST:
    case FILL_LIST:
        put_number('*', 2 + o.batch);
        text("RPUSH");
        word_queue(n / o.batch);
        for (uint64_t i = 0; i < o.batch; i++)
            word_body();
        ask(STORE, o.batch, 1);
        break;
    case STREAM:
    case GROUP:
    case FILL_STREAM:
        put_number('*', 5);
        text("XADD");
        word_queue(n);
        text("*");
        text("b");
        word_body();
        ask(STORE, 1, 1);
        break;
    case MEMCACHED:
        len = key_of(key, n);
        link_print("set %.*s 0 0 %llu\r\n", (int)len, key, (unsigned long long)o.size);
        link_put_body();
        link_put("\r\n", 2);
        ask(STORE, 1, 1);
        break;
    case MEMCACHED_QUIET:
        for (uint64_t i = 0; i < o.batch; i++) {
            len = key_of(key, n + i);
            link_print("ms %.*s %llu q\r\n", (int)len, key, (unsigned long long)o.size);
            link_put_body();
            link_put("\r\n", 2);
        }
        link_put("mn\r\n", 4);
        ask(STORE, o.batch, 1);
        break;
    default: break;
    }
}

static void remove_some(uint64_t from, uint64_t n)
{
    char key[32];
    size_t len;
    switch (o.doing) {
    case LANE_TAKE:
        put_number('*', 5);
        text("LANE.TAKE");
        text("1");
        word_queue(0);
        text("COUNT");
        number(n);
        ask(OTHER, 0, 1);
        /* fall through */
    case LANE_RANGE:
        put_number('*', 6);
        text("LANE.ACK");
        word_queue(0);
        text("RANGES");
        text("1");
        number(sequence[from % SPAN]);
        number(sequence[(from + n - 1) % SPAN]);
        ask(REMOVE, n, 1);
        break;
    case LANE_IDS:
        put_number('*', packs() ? 4 : 4 + n);
        text("LANE.ACK");
        word_queue(0);
        if (!packs())
            text("IDS");
        word_ids(from, n);
        ask(REMOVE, n, 1);
        break;
    case SET:
        for (uint64_t i = 0; i < n; i++) {
            put_number('*', 2);
            text("UNLINK");
            word_key(from + i);
        }
        ask(REMOVE, n, (unsigned)n);
        break;
    case MSET:
        put_number('*', 1 + n);
        text("UNLINK");
        for (uint64_t i = 0; i < n; i++)
            word_key(from + i);
        ask(REMOVE, n, 1);
        break;
    case LIST:
        put_number('*', 4);
        text("LTRIM");
        word_queue(0);
        number(n);
        text("-1");
        ask(REMOVE, n, 1);
        break;
    case GROUP:
        put_number('*', 9);
        text("XREADGROUP");
        text("GROUP");
        text("g");
        text("c");
        text("COUNT");
        number(n);
        text("STREAMS");
        word_queue(0);
        text(">");
        ask(OTHER, 0, 1);
        put_number('*', 3 + n);
        text("XACK");
        word_queue(0);
        text("g");
        for (uint64_t i = 0; i < n; i++)
            text(stream_id[(from + i) % SPAN]);
        ask(OTHER, 0, 1);
        /* fall through */
    case STREAM:
        put_number('*', 2 + n);
        text("XDEL");
        word_queue(0);
        for (uint64_t i = 0; i < n; i++)
            text(stream_id[(from + i) % SPAN]);
        ask(REMOVE, n, 1);
        break;
    case MEMCACHED:
        for (uint64_t i = 0; i < n; i++) {
            len = key_of(key, from + i);
            link_print("delete %.*s\r\n", (int)len, key);
        }
        ask(REMOVE, n, (unsigned)n);
        break;
    case MEMCACHED_QUIET:
        for (uint64_t i = 0; i < n; i++) {
            len = key_of(key, from + i);
            link_print("md %.*s q\r\n", (int)len, key);
        }
        link_put("mn\r\n", 4);
        ask(REMOVE, n, 1);
        break;
    default: break;
    }
}

static void ask_block(void)
{
    if (o.doing == READ_STREAM) {
        put_number('*', 6);
        text("XRANGE");
        word_queue(0);
        text(next_stream);
        text("+");
        text("COUNT");
        number(o.batch);
    } else {
        bool ids = o.doing == READ_IDS;
        put_number('*', ids ? 5 : packs() ? 8 : 7);
        text(ids ? "LANE.IDS" : "LANE.READ");
        word_queue(0);
        number(next_from);
        text("COUNT");
        number(o.batch);
        if (!ids) {
            text("BYTES");
            number(64 << 20);
            if (packs())
                text("PACKED");
        }
    }
    ask(BLOCK, 0, 1);
}

/* --- replies */

static const char *line_end(const char *at, const char *end)
{
    const char *nl = memchr(at, '\n', (size_t)(end - at));
    return nl ? nl + 1 : NULL;
}

/* What is wanted of a reply, found while it is walked over. */
static struct {
    int64_t integers[3];
    unsigned nintegers;
    const char *first_bulk;
    size_t first_bulk_len;
    const char *last_id; /* of XRANGE: the last bulk at depth 3 */
    size_t last_id_len;
    uint64_t entries; /* arrays at depth 2 */
    uint64_t bulk_bytes;
} seen;

/* The end of the reply at `at`, NULL when it is not all there. Depth 1 is the reply itself. */
static const char *walk(const char *at, const char *end, unsigned depth)
{
    const char *next = line_end(at, end);
    if (!next)
        return NULL;
    switch (*at) {
    case '-': link_fail("error reply: %.*s", (int)(next - at - 2), at);
    /* fall through */
    case '+': return next;
    case ':':
        if (o.doing <= LANE_TAKE || o.doing == FILL_LANE) {
            if (depth == 1 && !seen.entries) { /* LANE.PUT: the sequence */
                sequence[stored % SPAN] = strtoull(at + 1, NULL, 10);
                seen.entries = 1;
            }
            if (depth == 2 && seen.nintegers < 3)
                seen.integers[seen.nintegers++] = strtoll(at + 1, NULL, 10);
            if (depth == 3) { /* LANE.PUSH: the sequences */
                sequence[(stored + seen.entries) % SPAN] = strtoull(at + 1, NULL, 10);
                seen.entries++;
            }
        } else if (depth == 2 && seen.nintegers < 3)
            seen.integers[seen.nintegers++] = strtoll(at + 1, NULL, 10);
        return next;
    case '$': {
        long len = strtol(at + 1, NULL, 10);
        if (len < 0)
            return next;
        if (end - next < len + 2)
            return NULL;
        if (!seen.first_bulk) {
            seen.first_bulk = next;
            seen.first_bulk_len = (size_t)len;
        }
        if (depth == 3 && o.doing == READ_STREAM) {
            seen.last_id = next;
            seen.last_id_len = (size_t)len;
        }
        if (depth <= 2 && (o.doing <= LANE_TAKE || o.doing == FILL_LANE) && packs() &&
            len == (long)((o.batch + (depth == 1)) * 8)) {
            /* LANE.MPUT: how many were removed stands before them */
            const char *answers = next + (depth == 1 ? 8 : 0);
            for (uint64_t i = 0; i < o.batch; i++) { /* packed LANE.PUSH: the sequences */
                int64_t answer;
                memcpy(&answer, answers + i * 8, 8);
                if (answer <= 0)
                    link_fail("not stored: %lld", (long long)answer);
                sequence[(stored + i) % SPAN] = (uint64_t)answer;
            }
            seen.entries = o.batch;
        }
        seen.bulk_bytes += (uint64_t)len;
        return next + len + 2;
    }
    case '*': {
        long n = strtol(at + 1, NULL, 10);
        if (depth == (o.doing == READ_STREAM ? 2 : 3) &&
            (o.doing == READ_STREAM || o.doing == READ_LANE))
            seen.entries++;
        for (long i = 0; i < n; i++) {
            next = walk(next, end, depth + 1);
            if (!next)
                return NULL;
        }
        return next;
    }
    default: break;
    }
    if (o.doing == MEMCACHED || o.doing == MEMCACHED_QUIET) {
        if (memcmp(at, "STORED", 6) && memcmp(at, "DELETED", 7) && memcmp(at, "MN", 2))
            link_fail("memcached says: %.*s", (int)(next - at - 2), at);
        return next;
    }
    link_fail("not a reply: %.20s", at);
    return NULL;
}

/* How many a packed LANE.READ has: its only string is walked. */
static uint64_t packed_entries(void)
{
    uint64_t n = 0;
    for (size_t at = 0; at < seen.first_bulk_len; n++) {
        uint32_t len[2];
        memcpy(len, seen.first_bulk + at + 40, sizeof len);
        at += 52 + (size_t)len[0] + len[1];
    }
    return n;
}

static bool take_reply(void)
{
    const char *end, *from = link_came(&end);
    if (from == end)
        return false;
    struct request *r = &ring[ring_head % RING];
    memset(&seen, 0, sizeof seen);
    const char *after = walk(from, end, 1);
    if (!after)
        return false;
    link_take(after);
    if (ring_head == ring_tail)
        link_fail("a reply that nobody asked for");
    if (r->asked == STORE) {
        if ((o.doing == STREAM || o.doing == GROUP) && seen.first_bulk_len < 40)
            memcpy(stream_id[stored % SPAN], seen.first_bulk, seen.first_bulk_len),
                stream_id[stored % SPAN][seen.first_bulk_len] = 0;
        if ((o.doing <= LANE_TAKE || o.doing == FILL_LANE) && seen.entries != r->entries)
            link_fail("%llu of %u entries were stored", (unsigned long long)seen.entries,
                      r->entries);
        stored += r->entries;
    } else if (r->asked == BLOCK) {
        if (o.doing == READ_STREAM) {
            read_over = seen.entries == 0;
            if (!read_over)
                snprintf(next_stream, sizeof next_stream, "(%.*s", (int)seen.last_id_len,
                         seen.last_id);
        } else {
            next_from = (uint64_t)seen.integers[0];
            read_over = next_from == 0;
            if (o.doing == READ_IDS)
                seen.entries = seen.bulk_bytes / 32;
            if (o.doing == READ_LANE && packs())
                seen.entries = packed_entries();
        }
        read_entries += seen.entries;
    }
    if (--r->replies == 0) {
        if (r->asked == REMOVE)
            removed += r->entries;
        ring_head++;
    }
    return true;
}

/* --- the loop */

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
        put_number('*', 6);
        text("XGROUP"), text("CREATE"), word_queue(0), text("g"), text("$"), text("MKSTREAM");
        ask(OTHER, 0, 1);
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
