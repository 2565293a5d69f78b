/* log - one line per event, to stderr, syslog (facility mail) or a file. Thread safe. Lines of a
 * file have the form that syslog daemons and Postfix's own maillog_file write, with RFC 3339 times,
 * so that log analysers read it.
 *
 * Lines about a mail begin with its queue id: "4jWhSH0G8Sz1SS5l: to=<a@example.net>, ...".
 * Control characters in a line are replaced by '?', so that nothing from the wire can forge a
 * line. */
#ifndef DOVELANE_LIB_BASE_LOG_H
#define DOVELANE_LIB_BASE_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* tag: what stands before the colon ("postfix/dovelane-relay"). where: "stderr", "syslog" or
 * "file:/path". Returns -1 with errno when the file cannot be opened. */
int log_open(const char *tag, const char *where, enum log_level most);
/* From now on lines go to fn (which gets them cleaned, without program and level) instead of
 * stderr; "syslog" and "file:" stay as they are. For a program that another one's supervisor
 * runs, which has its own form of lines. */
void log_stderr_to(void (*fn)(enum log_level, const char *line));
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a text that is composed already; at most LOG_TEXT_MAX of it, and it is cleaned in
 * place. For lines of which there is one per mail: printf's formats are what such a line costs
 * most. */
#define LOG_TEXT_MAX 2047
void log_text(enum log_level level, char *text);

/* For a program with one thread and a loop: from now on lines for stderr or a file are gathered,
 * and log_flush(), called once per turn of the loop, writes them together; errors and warnings,
 * a full buffer and the end of the program write what there is at once. A crash loses the lines
 * of its last turn. */
void log_gather(void);
void log_flush(void);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* Logs an error and ends the program with status 1 (75, EX_TEMPFAIL, is never used: a supervisor
 * restarts us anyway). */
void log_fatal(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
