/* log - one line per event, to stderr, syslog (facility mail) or a file. Thread safe.
 *
 * Lines about a mail begin with its queue id: "4jWhSH0G8Sz1SS5l: to=<a@example.net>, ...". Control characters in a line are
 * replaced by '?', so that nothing from the wire can forge a line. */
#ifndef DOVELANE_LOG_H
#define DOVELANE_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* where: "stderr", "syslog" or "file:/path". Returns -1 with errno when the file cannot be opened. */
int log_open(const char *program, const char *where, enum log_level most);
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* Logs an error and ends the program with status 1 (75, EX_TEMPFAIL, is never used: a supervisor restarts us anyway). */
void log_fatal(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
