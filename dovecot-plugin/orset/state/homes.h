/* homes - which mailbox shows which folder. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_HOMES_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_HOMES_H

#include "dovecot-plugin/orset/base/handle.h"

struct named_folder {
    const struct orset *os;
    struct folder *f;
};

/* Live and named folders but INBOX, sorted. *list_r is freed by the caller. Returns how many. */
int orset_folders_by_name(struct orset *, struct named_folder **list_r);
bool orset_same_name(const struct folder *, const struct folder *);
int orset_rehome(struct orset *);

#endif
