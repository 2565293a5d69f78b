/* renumber - a new epoch: doubtful numbers of the old one get numbers of the new one. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_RENUMBER_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_OPS_RENUMBER_H

#include "dovecot-plugin/orset/base/handle.h"

struct renumber {
    struct orset *os;
    uint16_t old;   /* origin of the numbers that may be twins; the new one is os->self */
    uint64_t keep;  /* numbers up to here stay */
    uint64_t clock; /* stamps of the old origin up to here stay */
};

int orset_renumber(struct renumber *);       /* folders and messages */
int orset_named_renumber(struct renumber *); /* renumber_metadata.c */
/* The dot's new number if it needs one: true and *d changed. */
bool orset_renumber_dot(struct renumber *, struct orset_dot *d);
bool orset_restamp(struct renumber *, struct stamp *);

#endif
