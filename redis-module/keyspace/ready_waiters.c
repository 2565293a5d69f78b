/* ready_waiters - blocks clients, and wakes them when a lane is ready. */
#include "redis-module/keyspace/ready_waiters.h"

struct waiting {
    RedisModuleBlockedClient *client;
    struct waiting *next;
};

static struct waiting *all_waiting;

void ready_wait(RedisModuleBlockedClient *client)
{
    struct waiting *w = must_alloc(sizeof *w);
    *w = (struct waiting){client, all_waiting};
    all_waiting = w;
}

void ready_leave(RedisModuleBlockedClient *client)
{
    for (struct waiting **at = &all_waiting; *at; at = &(*at)->next)
        if ((*at)->client == client) {
            struct waiting *w = *at;
            *at = w->next;
            RedisModule_Free(w);
            RedisModule_UnblockClient(client, NULL);
            return;
        }
}

void ready_wake(void)
{
    while (all_waiting) {
        struct waiting *w = all_waiting;
        all_waiting = w->next;
        RedisModule_UnblockClient(w->client, NULL);
        RedisModule_Free(w);
    }
}
