#include "relay/tables/poison.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

#define ALONE 3
#define HOLD 6
#define LEAVE 9
#define EXCUSES 1000

struct excuse {
    unsigned char id[ENTRYID_LEN];
    long long n;
};

struct poison {
    struct excuse excuse[EXCUSES];
    size_t n, next; /* used; where the next one goes when all are */
};

static struct excuse *find(struct poison *p, const unsigned char *id)
{
    for (size_t i = 0; i < p->n; i++)
        if (!memcmp(p->excuse[i].id, id, ENTRYID_LEN))
            return &p->excuse[i];
    return NULL;
}

void poison_excuse(struct relay *r, const unsigned char id[ENTRYID_LEN], long long n)
{
    struct poison *p = r->poison;
    struct excuse *e = find(p, id);
    if (!e) {
        e = &p->excuse[p->n < EXCUSES ? p->n++ : p->next++ % EXCUSES];
        memcpy(e->id, id, ENTRYID_LEN);
        e->n = 0;
    }
    e->n += n;
}

enum poison_verdict poison_judge(const struct relay *r, const unsigned char id[ENTRYID_LEN],
                                 long long failed_leases)
{
    if (failed_leases < ALONE)
        return POISON_NO;
    const struct excuse *e = find(r->poison, id);
    long long crashes = failed_leases - (e ? e->n : 0);
    return crashes < ALONE   ? POISON_NO
           : crashes < HOLD  ? POISON_ALONE
           : crashes < LEAVE ? POISON_HOLD
                             : POISON_LEAVE;
}

struct poison *poison_open(void)
{
    return mem_zero(sizeof(struct poison));
}

void poison_close(struct poison *p)
{
    free(p);
}
