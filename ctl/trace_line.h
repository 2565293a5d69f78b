/* trace_line - one line of a log, of any program: when, which host, which program, and its text.
 *
 *   2026-11-27T10:14:15.123456+01:00 mx1 postfix/smtpd[12]: TEXT    our files, Postfix's, syslog
 *   Nov 27 10:14:15 mx1 dovecot: TEXT                               syslog's older form
 *   Nov 27 10:14:15 lmtp(u)<12><session>: Info: TEXT                Dovecot's own file
 *   {"time":...}                                                    log_format = json
 *   {"__REALTIME_TIMESTAMP":...}                                    journalctl -o json
 *
 * An object of ours inside another form, as behind syslog's or Dovecot's prefix, counts. */
#ifndef DOVELANE_CTL_TRACE_LINE_H
#define DOVELANE_CTL_TRACE_LINE_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

struct trace_line {
    int64_t time;   /* microseconds since 1970; 0: it has none */
    char *host;     /* "": not said */
    char *program;  /* "postfix/smtpd", "dovecot"; "": not said */
    char *text;     /* without what the fields above say */
    json_t *fields; /* of ours, by the names of docs/log-fields.md; NULL: there are none */
};

/* now: for times without a year; microseconds. The lines' zone is this host's where they say none.
 */
void trace_line_parse(struct trace_line *, const char *line, size_t len, int64_t now);
void trace_line_free(struct trace_line *);

#endif
