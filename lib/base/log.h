/* log - one line per event, to stderr, syslog (facility mail) or a file. Thread safe. Lines of a
 * file have the form that syslog daemons and Postfix's own maillog_file write, with RFC 3339 times,
 * so that log analysers read it.
 *
 * Lines about a mail begin with its queue id: "4jWhSH0G8Sz1SS5l: to=<a@example.net>, ...".
 * Control characters in a line are replaced by '?', so that nothing from the wire can forge a
 * line. */
#ifndef DOVELANE_LIB_BASE_LOG_H
#define DOVELANE_LIB_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* tag: what stands before the colon ("postfix/dovelane-relay"). where: "stderr", "syslog",
 * "file:/path", "journal" or "journal:/path" (its socket). Returns -1 with errno when the file
 * or the journal cannot be opened. */
int log_open(const char *tag, const char *where, enum log_level most);
/* Each line is a JSON object from now on (log_json.h); the journal has fields of its own. */
void log_as_json(bool);
/* The node that this program works for, said in JSON and in the journal; it stays the caller's. */
void log_node(const char *name);
/* Opens the file by its path again, for who rotates it. Returns -1 with errno when it cannot: the
 * old one stays. 0 when the log is no file. */
int log_reopen(void);
/* From now on lines go to fn (which gets them cleaned, without program and level) instead of
 * stderr; "syslog" and "file:" stay as they are. For a program that another one's supervisor
 * runs, which has its own form of lines. */
void log_stderr_to(void (*fn)(enum log_level, const char *line));
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define LOG_TEXT_MAX 2047 /* bytes of a line's text; what is beyond is cut */

/* ---- fields ---- */

#define EVENT(name, help) LOG_EVENT_##name,
enum log_event {
#include "lib/base/log_fields.def"
    LOG_EVENTS
};
#define FIELD(name, kind, before, help) LOG_FIELD_##name,
enum log_field {
#include "lib/base/log_fields.def"
    LOG_FIELDS
};

/* A line is made once, as text. A mark says which bytes of it are a field's value; code that writes
 * a form other than text takes them from there. Cleaning keeps each byte in its place. */
struct log_mark {
    uint16_t from, len;
    uint8_t field;
};
#define LOG_MARKS_MAX 24
struct log_marks {
    enum log_event event;
    unsigned n;
    struct log_mark mark[LOG_MARKS_MAX];
};
/* A text that is composed already (logline.h), with its fields. At most LOG_TEXT_MAX of it, and it is
 * cleaned in place. */
void log_marked(enum log_level level, char *text, const struct log_marks *);
/* A line about one thing: "ID: text", "lane=NAME: text", "user=NAME: text". */
void log_of(enum log_level level, enum log_field, const char *value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define log_mail(level, queue_id, ...) log_of(level, LOG_FIELD_queue_id, queue_id, __VA_ARGS__)

/* For a program with one thread and a loop: from now on lines for stderr or a file are gathered.
 * log_flush(), called once per turn of the loop, writes them together. Errors and warnings, a full
 * buffer and the end of the program write at once what there is. A crash loses the lines of its
 * last turn. */
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
