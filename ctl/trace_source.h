/* trace_source - the logs that `dovelane trace` reads: files, what comes on stdin, this host's
 * journal. They are read several times, each time for the lines that have one of some words. */
#ifndef DOVELANE_CTL_TRACE_SOURCE_H
#define DOVELANE_CTL_TRACE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "ctl/trace_hosts.h"
#include "lib/config/config.h"

struct trace_source {
    enum { TRACE_FILE, TRACE_STDIN, TRACE_JOURNAL } kind;
    char *path;    /* of a file; its name in the output */
    FILE *kept;    /* what came on stdin */
    char *trouble; /* why not all of it could be read, or NULL */
    size_t lines;  /* that had one of the words, last time */
};

struct trace_sources {
    size_t n;
    struct trace_source *v;
    int64_t since; /* seconds since 1970: older entries and rotated files are passed over */
    struct trace_hosts hosts; /* that wrote lines of what was read */
    unsigned journals_heard;  /* asked for their hosts */
};

/* A file, also one that gzip, xz or zstd made; "-" is stdin. */
void trace_sources_add(struct trace_sources *, const char *path);
/* What this host has: its journal, the files that the settings of Dovelane, Postfix and Dovecot
 * name, /var/log/mail.log, and what rotation made of them. */
void trace_sources_find(struct trace_sources *, const struct config *);
void trace_sources_free(struct trace_sources *);

/* Calls each with the lines that have one of these words, without the newline. */
void trace_sources_read(struct trace_sources *, size_t nwords, char *const *word,
                        void (*each)(size_t source, const char *line, size_t len, void *arg),
                        void *arg);

#endif
