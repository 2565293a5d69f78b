/* maps - whether Postfix's own maps would change an address: aliases, canonical addresses, BCCs.
 *
 * Postfix applies them when it queues a mail, after the milter has seen the addresses as the client
 * gave them. A diverted mail would miss that. Thread safe. Answers are kept for a minute, at most
 * MAPS_KEPT of them. */
#ifndef DOVELANE_LIB_POSTFIX_MAPS_H
#define DOVELANE_LIB_POSTFIX_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAPS_KEPT 100000

struct maps;

enum maps_of { MAPS_SENDER, MAPS_RECIPIENT };

struct maps *maps_new(const char *directory, const char *recipient_delimiter);
void maps_free(struct maps *);

/* parameter is for the log ("virtual_alias_maps"); table one of its tables. The same table twice
 * counts once. */
void maps_add(struct maps *, enum maps_of, const char *parameter, const char *table);

/* Adds those of another one; whether all of them are there. */
void maps_add_all(struct maps *, const struct maps *);
bool maps_has_all(const struct maps *, const struct maps *wanted);

/* Five seconds from now, in milliseconds of the monotonic clock: how long the maps may take for
 * one mail, however many addresses it has. Postfix gives up after content_timeout and queues the
 * mail; what were stored then would come twice. */
int64_t maps_patience(void);
bool maps_over(int64_t until);

/* True when a map has an answer for the address, cannot be asked, or has not answered by then
 * (which counts as an answer). detail says which of these. Blocks: runs postmap(1) for what is not
 * kept, a few milliseconds per table. A proxy: is asked without its proxy, which only Postfix may
 * reach. */
bool maps_change(struct maps *, enum maps_of, const char *address, int64_t until, char *detail,
                 size_t size);

/* True when maps_change would answer at once: no map is asked. */
bool maps_know(struct maps *, enum maps_of, const char *address);

#endif
