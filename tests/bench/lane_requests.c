/* lane_requests - what each variant of lane_load sends: stores, removals, and blocks to read. */
#include <stdio.h>
#include <string.h>

#include "tests/bench/lane_link.h"
#include "tests/bench/lane_load.h"

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

uint64_t salt;

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

static bool with_ids(void)
{
    return o.doing == LANE_RIDE || o.doing == LANE_IDS || o.doing == FILL_LANE;
}

bool packs(void)
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

void store(uint64_t n)
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

void remove_some(uint64_t from, uint64_t n)
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

void ask_block(void)
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

void make_group(void)
{
    put_number('*', 6);
    text("XGROUP"), text("CREATE"), word_queue(0), text("g"), text("$"), text("MKSTREAM");
    ask(OTHER, 0, 1);
}
