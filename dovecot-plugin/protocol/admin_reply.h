/* admin_reply - how doveadm and the replicator speak over $base_dir/dovelane-admin. Pure C, no
 * Dovecot.
 *
 * Request, one line:   verb TAB user TAB arg TAB arg ... LF      user: empty = the replicator itself, "*" = all users
 * Reply, lines:        # TAB title TAB title ...                 at most one, before the rows
 *                      + column TAB column ...                   a row; the first column follows the "+" at once
 *                      - text                                    an error
 *                      = TAB exit code                           the last line
 *
 * All texts are tab-escaped (protocol/line.h). Without titles the columns have none. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PROTOCOL_ADMIN_REPLY_H
#define DOVELANE_DOVECOT_PLUGIN_PROTOCOL_ADMIN_REPLY_H

#include <stddef.h>

enum admin_reply {
    ADMIN_REPLY_TITLES,
    ADMIN_REPLY_ROW,
    ADMIN_REPLY_ERROR,
    ADMIN_REPLY_END,
    ADMIN_REPLY_BROKEN /* not a line of this protocol */
};

/* What a line (without LF) is. rest_r: its fields after the mark, still escaped and separated by
 * TAB. For ADMIN_REPLY_END the exit code, 0 to 255, is in *code_r. */
enum admin_reply admin_reply_parse(const char *line, const char **rest_r, int *code_r);

/* Takes the next field of *rest, unescaped in place, or NULL at the end. *rest is NULL after the
 * last one. */
char *admin_reply_field(char **rest);

#endif
