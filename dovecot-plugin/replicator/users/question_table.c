/* question_table - finds, makes and drops askers and their questions. */
#include "dovecot-plugin/replicator/users/questions_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/metrics.h"

uint64_t questions_random(void)
{
    uint64_t n;
    if (getrandom(&n, sizeof n, 0) != sizeof n)
        log_fatal("getrandom failed");
    return n;
}

static struct asker_list *bucket_of(struct questions *t, const char *name, size_t n)
{
    return &t->bucket[orset_hash(name, n).lo % BUCKETS];
}

struct asker *asker_find(struct questions *t, const char *name, size_t n)
{
    struct asker *a;
    LIST_FOREACH (a, bucket_of(t, name, n), in_hash)
        if (strlen(a->name) == n && !memcmp(a->name, name, n))
            return a;
    return NULL;
}

struct asker *asker_get(struct questions *t, const char *name)
{
    struct asker *a = asker_find(t, name, strlen(name));
    if (a)
        return a;
    a = mem_zero(sizeof *a + t->r->group.npeers * sizeof *a->heard);
    a->name = mem_strdup(name);
    a->number = questions_random();
    for (int i = 0; i < TODOS; i++)
        TAILQ_INIT(&a->list[i]);
    LIST_INSERT_HEAD(bucket_of(t, name, strlen(name)), a, in_hash);
    return a;
}

/* If nothing is asked of him any more. */
void asker_drop(struct questions *t, struct asker *a)
{
    for (int i = 0; i < TODOS; i++)
        if (!TAILQ_EMPTY(&a->list[i]))
            return;
    if (a->look)
        a->look->asker = NULL;
    if (a->asking)
        TAILQ_REMOVE(&t->asking, a, in_asking);
    LIST_REMOVE(a, in_hash);
    free(a->name);
    free(a);
}

void question_set(struct questions *t, struct question *q, enum todo todo)
{
    struct asker *a = q->asker;
    TAILQ_REMOVE(&a->list[q->todo], q, in_asker);
    q->todo = todo;
    TAILQ_INSERT_TAIL(&a->list[todo], q, in_asker);
    if (todo == ASK && !a->asking) {
        a->asking = true;
        TAILQ_INSERT_TAIL(&t->asking, a, in_asking);
    }
}

void question_asked(struct questions *t, struct question *q)
{
    q->asked_at = clock_monotonic();
    TAILQ_REMOVE(&t->all, q, in_all);
    TAILQ_INSERT_TAIL(&t->all, q, in_all);
}

/* Mail processes choose their GUIDs: which of them share a bucket nobody can know. */
struct question_list *questions_of_guid(struct questions *t, const char *guid)
{
    char text[sizeof t->seed + DISK_GUID_HEX - 1];
    memcpy(text, &t->seed, sizeof t->seed);
    memcpy(text + sizeof t->seed, guid, DISK_GUID_HEX - 1);
    return &t->guid[orset_hash(text, sizeof text).lo % BUCKETS];
}

bool question_is_of(const struct question *q, const struct asker *a, const char *guid)
{
    return q->asker == a && !strcmp(q->is.guid, guid);
}

void question_let_go(struct questions *t, struct question *q)
{
    if (q->leased)
        asked_let_go(t->r->asked, &q->is);
    q->leased = false;
}

/* Its asker stays. */
void question_drop(struct questions *t, struct question *q)
{
    ASSERT(t->n > 0);
    TAILQ_REMOVE(&q->asker->list[q->todo], q, in_asker);
    TAILQ_REMOVE(&t->all, q, in_all);
    LIST_REMOVE(q, in_guid);
    if (q->waiter)
        LIST_REMOVE(q, in_waiter);
    free(q);
    metric_set(replicator_questions_open, (long long)--t->n);
}

/* A mail process's, and its asker stays. */
void question_tell(struct questions *t, struct question *q, enum disk_told what)
{
    struct disk_waiter *w = q->waiter;
    question_drop(t, q);
    w->told(w, what);
}

/* Nothing is said of it. Its asker stays. */
void question_forget(struct questions *t, struct question *q)
{
    if (q->waiter) {
        question_tell(t, q, DISK_FORGOTTEN);
        return;
    }
    question_let_go(t, q);
    question_drop(t, q);
}

void questions_drop_oldest(struct questions *t)
{
    struct question *q = TAILQ_FIRST(&t->all);
    struct asker *a = q->asker;
    question_forget(t, q);
    asker_drop(t, a);
}

struct question *question_same(struct questions *t, const struct asker *a,
                               const struct disk_question *is)
{
    struct question *q;
    LIST_FOREACH (q, questions_of_guid(t, is->guid), in_guid)
        if (!q->waiter && question_is_of(q, a, is->guid) && !strcmp(q->is.node, is->node))
            return q;
    return NULL;
}

struct question *question_add(struct questions *t, struct asker *a, const struct disk_question *is)
{
    size_t npeers = t->r->group.npeers;
    struct question *q = mem_zero(sizeof *q + npeers * sizeof *q->confirmed);
    q->asker = a;
    q->is = *is;
    TAILQ_INSERT_TAIL(&a->list[NOTHING], q, in_asker);
    TAILQ_INSERT_TAIL(&t->all, q, in_all);
    LIST_INSERT_HEAD(questions_of_guid(t, is->guid), q, in_guid);
    metric_set(replicator_questions_open, (long long)++t->n);
    if (!ev_is_active(&t->every))
        ev_timer_again(t->r->loop, &t->every);
    return q;
}
