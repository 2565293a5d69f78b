#include "relay/shape/shape_control.h"

#include <stdlib.h>

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "relay/shape/gate_work.h"
#include "relay/tables/classes.h"

static void wrong(void *arg, const char *why)
{
    (void)arg;
    log_error("a rule of shape is left out: %s", why);
}

static void look_again(struct destination *d, void *arg)
{
    (void)arg;
    if (d->gate)
        gate_refresh(d);
    else if (!d->head)
        gate_of(d);
}

static void read_rules(struct shape_control *c)
{
    char *file = config_shape_text(c->relay->config);
    shapes_free(c->shapes);
    c->shapes = shapes_new(file, c->said, wrong, NULL);
    free(file);
    c->any = shapes_any(c->shapes);
    classes_reload(c->relay);
    destinations_each(c->relay, look_again, NULL);
}

void shape_control_reload(struct relay *r)
{
    reply_rules_reload(r->shape);
    read_rules(r->shape);
}

void shape_control_said(struct relay *r, const char *text, unsigned long long serial)
{
    struct shape_control *c = r->shape;
    free(c->said);
    c->said = mem_strdup(text);
    read_rules(c);
}

double shape_class_weight(const struct destination *d, const char *class)
{
    struct shape shape = {0};
    if (d->relay->shape->any && !d->own)
        shape_of(d->relay->shape->shapes, destination_named(d), class, &shape);
    return shape.weight ? (double)shape.weight : class_weight(d, class);
}

bool shape_control_may_bounce(const struct relay *r)
{
    return r->shape->any;
}

const struct shape *shape_for(struct destination *d)
{
    static const struct shape none;
    struct gate *g = gate_of(d);
    return g ? &g->shape : &none;
}

struct shape_control *shape_control_open(struct relay *r, const struct shape_calls *calls)
{
    struct shape_control *c = mem_zero(sizeof *c);
    c->relay = r;
    c->calls = calls;
    r->shape = c;
    c->arbiters = arbiters_open(r);
    shape_control_reload(r);
    return c;
}

void shape_control_close(struct relay *r)
{
    arbiters_close(r->shape->arbiters);
    shapes_free(r->shape->shapes);
    backoff_rules_free(r->shape->backoff);
    free(r->shape->said);
    free(r->shape);
}
