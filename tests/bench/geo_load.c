/* geo_load - stores, takes and removes messages at nodes that are apart.
 *
 *   geo_load --node UNIX_PATH=PORT ... --rtt FILE [--domains 0,0,1] [--clients N] [--size BYTES]
 *   [--copies N] [--least DOMAINS] [--prefer listed|near] [--until stored|removed|both]
 *   [--seconds S] [--warm S]
 *
 * Each node has a gateway beside it, with so many clients. A client stores one message at all its
 * owners, and the next when that is done (--until). The gateway takes messages from its own node,
 * and removes them at all owners. Owners are chosen by lib/cluster/placement.c. FILE has the round
 * trips in milliseconds, a line for each node. A gateway reaches its own node by UNIX_PATH, others
 * by TCP at PORT; all that goes there and back is late by half a round trip each (delay_line.h).
 *
 * What comes together goes together, as in the milter: one command for all messages of one turn of
 * the loop. Prints one JSON line. bytes: what TCP carried between nodes, both ways. */
#include "tests/bench/geo_load.h"

#include <dirent.h>
#include <getopt.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "lib/base/mem.h"
#include "lib/redis/wire.h"
#include "tests/bench/delay_line.h"
#include "tests/bench/histogram.h"

#define SLOTS (1u << 20)

struct geo_options o = {
    .clients = 1, .size = 160, .copies = 2, .least = 1, .seconds = 5, .warm = 1};
struct gateway *gateways;
struct ev_loop *loop;

static struct message *slots;
static size_t *free_slot, nfree;
static uint64_t serial, stored, removed;
static struct histogram until_stored;
static bool counting, ended;
static size_t under_way, wires_up, wires;

void geo_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("geo_load: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(1);
}

uint64_t geo_slot(const struct message *m)
{
    return (uint64_t)(m - slots);
}

struct message *geo_message(uint64_t slot, uint64_t was)
{
    if (slot >= SLOTS || slots[slot].serial != was)
        geo_fail("an entry that nobody stored");
    return &slots[slot];
}

static void begin(struct gateway *g, size_t client)
{
    if (ended)
        return;
    if (!nfree)
        geo_fail("more than %u messages are under way", SLOTS);
    struct message *m = &slots[free_slot[--nfree]];
    *m =
        (struct message){g, client, ev_now(loop), (unsigned)g->nways, (unsigned)g->nways, ++serial};
    g->fresh[g->nfresh++] = m;
    under_way++;
}

static void done_with(struct message *m)
{
    struct gateway *g = m->gateway;
    size_t client = m->client;
    removed += counting;
    under_way--;
    free_slot[nfree++] = geo_slot(m);
    if (o.until != UNTIL_STORED)
        begin(g, client);
}

void geo_stored(struct message *m)
{
    stored += counting;
    if (counting)
        histogram_add(&until_stored, (uint64_t)((ev_now(loop) - m->began) * 1e9));
    if (o.until == UNTIL_STORED)
        begin(m->gateway, m->client);
    if (!m->acks)
        done_with(m);
}

void geo_removed(struct message *m)
{
    if (!m->stores)
        done_with(m);
}

static void each_turn(struct ev_loop *l, ev_check *w, int events)
{
    (void)l, (void)w, (void)events;
    for (size_t i = 0; i < o.nodes; i++)
        if (gateways[i].nfresh)
            geo_store(&gateways[i]);
}

static void turned(struct wire *w, bool up, const char *why, void *arg)
{
    (void)arg;
    if (!up)
        geo_fail("%s: %s", wire_address(w), why);
    if (++wires_up == wires)
        ev_break(loop, EVBREAK_ALL);
}

static struct wire *connection(size_t gateway, size_t node)
{
    char address[256];
    if (gateway == node)
        snprintf(address, sizeof address, "unix:%s", o.unix_path[node]);
    else
        snprintf(address, sizeof address, "127.0.0.1:%d", o.port[node]);
    struct config_link link = {.address = mem_strdup(address)};
    wires++;
    return wire_open(loop, &link, false, turned, NULL);
}

static void open_gateway(size_t i)
{
    struct gateway *g = &gateways[i];
    size_t owner[COPIES_MOST], at = 0;
    geo_owners(i, owner);
    g->node = i;
    g->nways = o.copies;
    g->fresh = mem_zero((o.clients + 1) * sizeof *g->fresh);
    at = (size_t)snprintf(g->lane, sizeof g->lane, "dovelane:smtp:geo|");
    for (size_t k = 0; k < o.copies; k++) {
        double half = o.rtt[i][owner[k]] / 2;
        g->way[k] = (struct way){owner[k], connection(i, owner[k]), connection(i, owner[k]),
                                 delay_line_open(loop, half), delay_line_open(loop, half)};
        at +=
            (size_t)snprintf(g->lane + at, sizeof g->lane - at, "%smx%zu", k ? ">" : "", owner[k]);
    }
}

/* What TCP carried to other nodes and from them, in bytes. */
static uint64_t carried(void)
{
    uint64_t all = 0;
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        struct tcp_info t;
        socklen_t len = sizeof t;
        if (!getsockopt(atoi(e->d_name), IPPROTO_TCP, TCP_INFO, &t, &len))
            all += t.tcpi_bytes_acked + t.tcpi_bytes_received;
    }
    if (d)
        closedir(d);
    return all;
}

static void nothing(struct ev_loop *l, ev_timer *t, int events)
{
    (void)l, (void)t, (void)events;
}

static void turn_until(double end)
{
    ev_timer t;
    ev_timer_init(&t, nothing, end - ev_now(loop), 0);
    ev_timer_start(loop, &t);
    while (ev_now(loop) < end)
        ev_run(loop, EVRUN_ONCE);
    ev_timer_stop(loop, &t);
}

static void measure(void)
{
    turn_until(ev_now(loop) + o.warm);
    uint64_t before = carried();
    double began = ev_now(loop);
    counting = true;
    turn_until(began + o.seconds);
    counting = false;
    double seconds = ev_now(loop) - began;
    uint64_t bytes = carried() - before;
    ended = true;
    for (double end = ev_now(loop) + 60; under_way && ev_now(loop) < end;)
        turn_until(ev_now(loop) + 0.05);
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("{\"stored\": %.1f, \"removed\": %.1f, \"seconds\": %.3f, \"left\": %zu, "
           "\"messages\": %llu, \"bytes\": %llu, \"client_cpu\": %.3f, \"until_stored\": ",
           (double)stored / seconds, (double)removed / seconds, seconds, under_way,
           (unsigned long long)stored, (unsigned long long)bytes,
           (double)use.ru_utime.tv_sec + (double)use.ru_utime.tv_usec / 1e6 +
               (double)use.ru_stime.tv_sec + (double)use.ru_stime.tv_usec / 1e6);
    histogram_print(stdout, &until_stored);
    printf(", \"owners\": [");
    for (size_t i = 0; i < o.nodes; i++)
        printf("%s\"%s\"", i ? ", " : "", strchr(gateways[i].lane, '|') + 1);
    puts("]}");
}

static void read_rtt(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f)
        geo_fail("%s cannot be read", path);
    for (size_t i = 0; i < o.nodes; i++)
        for (size_t k = 0; k < o.nodes; k++) {
            double ms;
            if (fscanf(f, "%lf", &ms) != 1 || !(ms >= 0 && ms < 60000))
                geo_fail("%s: line %zu has no round trip to node %zu", path, i + 1, k);
            o.rtt[i][k] = ms / 1000;
        }
    fclose(f);
}

static void add_node(char *text)
{
    char *port = strrchr(text, '=');
    if (!port || o.nodes == NODES_MOST)
        geo_fail("--node %s: is UNIX_PATH=PORT, and %d at most", text, NODES_MOST);
    *port++ = '\0';
    o.unix_path[o.nodes] = text;
    o.domain[o.nodes] = o.nodes;
    o.port[o.nodes++] = atoi(port);
}

static void set_domains(char *text)
{
    size_t n = 0;
    for (char *word = strtok(text, ","); word && n < NODES_MOST; word = strtok(NULL, ","))
        o.domain[n++] = strtoul(word, NULL, 10);
}

static enum until until_of(const char *word)
{
    static const char *const words[] = {"stored", "removed", "both"};
    for (size_t i = 0; i < 3; i++)
        if (!strcmp(words[i], word))
            return (enum until)i;
    geo_fail("--until %s: is stored, removed or both", word);
}

static const char *read_options(int argc, char **argv)
{
    static const struct option longs[] = {
        {"node", 1, NULL, 'n'},   {"rtt", 1, NULL, 'r'},     {"clients", 1, NULL, 'c'},
        {"size", 1, NULL, 's'},   {"copies", 1, NULL, 'k'},  {"least", 1, NULL, 'l'},
        {"prefer", 1, NULL, 'p'}, {"until", 1, NULL, 'u'},   {"seconds", 1, NULL, 't'},
        {"warm", 1, NULL, 'w'},   {"domains", 1, NULL, 'd'}, {0}};
    const char *rtt = NULL;
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;)
        switch (c) {
        case 'n': add_node(optarg); break;
        case 'r': rtt = optarg; break;
        case 'c': o.clients = strtoul(optarg, NULL, 10); break;
        case 's': o.size = strtoul(optarg, NULL, 10); break;
        case 'k': o.copies = strtoul(optarg, NULL, 10); break;
        case 'l': o.least = strtoul(optarg, NULL, 10); break;
        case 'p': o.near = !strcmp(optarg, "near"); break;
        case 'u': o.until = until_of(optarg); break;
        case 't': o.seconds = atof(optarg); break;
        case 'w': o.warm = atof(optarg); break;
        case 'd': set_domains(optarg); break;
        default: exit(2);
        }
    return rtt;
}

int main(int argc, char **argv)
{
    const char *rtt = read_options(argc, argv);
    if (!o.nodes || !rtt || !o.clients || o.clients * o.nodes > SLOTS / 4 || !o.copies ||
        o.copies > COPIES_MOST || o.copies > o.nodes)
        geo_fail("needs --node for each node, --rtt FILE, clients, and 1 to %d copies on so many "
                 "nodes",
                 COPIES_MOST);
    read_rtt(rtt);
    loop = ev_default_loop(0);
    slots = mem_zero(SLOTS * sizeof *slots);
    free_slot = mem_zero(SLOTS * sizeof *free_slot);
    for (nfree = 0; nfree < SLOTS; nfree++)
        free_slot[nfree] = nfree;
    serial = (uint64_t)time(NULL) << 32;
    gateways = mem_zero(o.nodes * sizeof *gateways);
    for (size_t i = 0; i < o.nodes; i++)
        open_gateway(i);
    ev_run(loop, 0);
    ev_check turn;
    ev_check_init(&turn, each_turn);
    ev_set_priority(&turn, EV_MINPRI); /* when all answers of this turn were heard */
    ev_check_start(loop, &turn);
    for (size_t i = 0; i < o.nodes; i++)
        for (size_t k = 0; k < o.clients; k++)
            begin(&gateways[i], k);
    each_turn(loop, &turn, 0);
    measure();
    return 0;
}
