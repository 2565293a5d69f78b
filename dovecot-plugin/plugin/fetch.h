/* fetch - gets the bytes of a mail of which only a stub is at this site (role = on-demand). The
 * replicator asks other sites. They come into a directory beside the user's state. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PLUGIN_FETCH_H
#define DOVELANE_DOVECOT_PLUGIN_PLUGIN_FETCH_H

struct mail;

/* Hook. */
void plugin_mail_allocated(struct mail *);

#endif
