/* site_links - the lanes in which sites are asked whether a delivery is safe, and in which they
 * answer (lib/mail/disk_question.h): on each site's node, two connections. There are some only while
 * the config has a destination with until = replicated. */
#ifndef DOVELANE_RELAY_RETAINED_SITE_LINKS_H
#define DOVELANE_RELAY_RETAINED_SITE_LINKS_H

#include "lib/mail/disk_question.h"
#include "relay/relay.h"

typedef void site_answer_fn(struct relay *, const struct disk_answer *);

struct site_links *site_links_open(struct relay *, site_answer_fn *);
void site_links_close(struct relay *);
void site_links_reload(struct relay *); /* the config was read again */

/* The question leaves at the end of this turn of the loop. Where the site's node cannot be reached
 * the question is forgotten: it is asked again. */
void site_links_ask(struct relay *, uint32_t site, const struct disk_question *);
void site_links_flush(struct relay *);

/* Seconds since that site's node last answered anything; INFINITY: there is no such site. */
double site_links_silence(const struct relay *, uint32_t site);

/* Whether the log may say that of a site once more: at most once a minute. */
bool site_links_may_tell(struct relay *, uint32_t site);

/* The site's name, or "of no replica section"; the config's. */
const char *site_links_name(const struct relay *, uint32_t site);

#endif
