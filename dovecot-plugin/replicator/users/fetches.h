/* fetches - mail processes of this site that read a mail of which only a stub is here
 * (role = on-demand; protocol/fetch.h). The user's worker is asked for its bytes, again and again.
 * That ends when it has them from another site, or on_demand_wait is over. */
#ifndef DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_FETCHES_H
#define DOVELANE_DOVECOT_PLUGIN_REPLICATOR_USERS_FETCHES_H

#include "dovecot-plugin/replicator/replicator.h"

struct fetches *fetches_open(struct replicator *);
void fetches_stop(struct fetches *);  /* before the users are closed: nobody waits any more */
void fetches_close(struct fetches *); /* behind them */

/* A process of that id has sent this line; fd is owned from here on, and has its events nowhere
 * else. */
void fetches_client(struct fetches *, int fd, uint32_t uid, const char *line, size_t n);
/* A worker of the user has taken this parcel: who waits for a text that is in it is answered. */
void fetches_came(struct fetches *, const char *user, unsigned kind, struct text body);

#endif
