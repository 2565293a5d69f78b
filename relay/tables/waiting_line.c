#include "relay/tables/waiting_line.h"

#include "lib/base/assert.h"
#include "relay/tables/classes.h"

static struct mail_queue *queue_of(struct destination *d, unsigned class)
{
    return class ? &d->classes->queue[class] : &d->queue;
}

static void comes(struct destination *d, struct smtp_mail *m)
{
    classes_expect(d, m->class);
    if (d->classes)
        d->classes->waiting |= 1u << m->class;
    m->waiting = true;
    d->queued++;
}

void waiting_add(struct destination *d, struct smtp_mail *m)
{
    comes(d, m);
    TAILQ_INSERT_TAIL(queue_of(d, m->class), m, link);
}

void waiting_put_back(struct destination *d, struct smtp_mail *m)
{
    comes(d, m);
    TAILQ_INSERT_HEAD(queue_of(d, m->class), m, link);
}

void waiting_remove(struct destination *d, struct smtp_mail *m)
{
    struct mail_queue *queue = queue_of(d, m->class);
    ASSERT(m->waiting && d->queued);
    TAILQ_REMOVE(queue, m, link);
    if (d->classes && TAILQ_EMPTY(queue))
        d->classes->waiting &= ~(1u << m->class);
    d->queued--;
    m->waiting = false;
}

struct smtp_mail *waiting_next(struct destination *d)
{
    if (!d->classes)
        return TAILQ_FIRST(&d->queue);
    if (!d->classes->waiting)
        return NULL;
    return TAILQ_FIRST(queue_of(
        d, class_shares_next(&d->classes->shares, d->classes->waiting, classes_weights(d))));
}

void waiting_leaves(struct destination *d, struct smtp_mail *m)
{
    waiting_remove(d, m);
    if (d->classes)
        class_shares_took(&d->classes->shares, m->class, classes_weights(d));
}

static size_t bytes_of(const struct mail_queue *queue)
{
    const struct smtp_mail *m;
    size_t bytes = 0;
    TAILQ_FOREACH (m, queue, link)
        bytes += m->body_len;
    return bytes;
}

size_t waiting_bytes(const struct destination *d)
{
    size_t bytes = bytes_of(&d->queue);
    for (unsigned i = 1; d->classes && i < CLASS_SHARES_MOST; i++)
        bytes += bytes_of(&d->classes->queue[i]);
    return bytes;
}

struct smtp_mail *waiting_any(struct destination *d)
{
    struct smtp_mail *m = TAILQ_FIRST(&d->queue);
    for (unsigned i = 1; !m && d->classes && i < CLASS_SHARES_MOST; i++)
        m = TAILQ_FIRST(&d->classes->queue[i]);
    return m;
}
