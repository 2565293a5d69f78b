/* keywords - the table of keywords, which flags name by number. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_KEYWORDS_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_BASE_KEYWORDS_H

#include "dovecot-plugin/orset/base/handle.h"

/* no space, no control character: what an atom of IMAP may not have at the least */
bool orset_keyword_valid(const char *name, size_t n);
int orset_keyword_find(const struct orset *, const char *name, size_t len); /* number or -1 */
/* as orset_keyword(), for a caller that has counted it */
int orset_keyword_make(struct orset *, const char *name, size_t len);
uint64_t orset_flag_hash(const struct orset *, uint16_t flag);

int orset_keywords_read(struct orset *);
void orset_keywords_free(struct orset *);

#endif
