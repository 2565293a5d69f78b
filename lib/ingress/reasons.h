/* reasons - why a mail goes to Postfix's own queue and not to lanes. It has what the milter, the
 * proxy and `dovelane route` judge alike (docs/design.md, "Mail in" 9). Each answer is NULL, or the
 * word that logs have after "reason="; detail then says about whom or what. */
#ifndef DOVELANE_LIB_INGRESS_REASONS_H
#define DOVELANE_LIB_INGRESS_REASONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/config/config.h"
#include "lib/postfix/maps.h"

/* Of every mail. on: the switch of `dovelane divert`. */
const char *reasons_of_all(bool on, char *detail, size_t size);

/* Of a mail whose MAIL FROM had these parameters, or NULL: only Postfix's own delivery can do what
 * XVERP or REQUIRETLS (RFC 8689) ask. */
const char *reasons_of_sender(const char *args, char *detail, size_t size);

/* Of a recipient with this next hop. args: of its RCPT, or NULL. */
const char *reasons_of_recipient(const struct config *, const char *destination,
                                 const char *address, const char *args, char *detail, size_t size);

/* By Postfix's maps (postfix_changes). until: 0: no map is asked here, and one whose answer is
 * not known by now counts. */
const char *reasons_of_maps(enum maps_of, const char *address, int64_t until, char *detail,
                            size_t size);

#endif
