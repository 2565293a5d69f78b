/* choice - with which sites a user is replicated, by the userdb's field dovelane_replicate:
 *
 *     no                   with none
 *     yes, or no field     with all
 *     site-a,site-c        between these, where this one is among them; also with blanks
 *
 * Its value must be the same in the userdb of all sites. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_CHOICE_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_SESSION_CHOICE_H

#include "dovecot-plugin/compat.h"

#include <stdint.h>

struct group;
struct session;

#define CHOICE_FIELD "dovelane_replicate"

/* Of the fields "name=value", NULL at the end. False: he is not replicated here; *error_r (data
 * stack) says why, *slip_r: since it cannot be meant so. site: FRAME_SITES_MAX. */
bool choice_read(const struct group *, const char *const *fields, uint64_t *site, unsigned *nsites,
                 bool *slip_r, const char **error_r);
/* Main hears with which sites the user is not replicated. */
void choice_tell(struct session *);
bool choice_has(const struct session *, uint64_t site);

#endif
