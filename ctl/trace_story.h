/* trace_story - finds what belongs to one mail among the lines of logs: from one of its names to
 * the others, and with these again.
 *
 *   Message-ID  --headers, stored-->  queue id  --id= of a delivery-->  entry
 *   queue id  --"queued as", orig_queue_id-->  another queue id of the same mail
 *   queue id  --message-id=-->  Message-ID, and an LMTP reply's session  -->  Dovecot's lines
 *
 * Another mail with the same Message-ID is another mail. */
#ifndef DOVELANE_CTL_TRACE_STORY_H
#define DOVELANE_CTL_TRACE_STORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "ctl/trace_source.h"

enum trace_kind { TRACE_QUEUE_ID, TRACE_ENTRY, TRACE_MESSAGE_ID, TRACE_SESSION };

struct trace_name {
    enum trace_kind kind;
    char *text; /* a Message-ID's is without <> */
    size_t mail;
};

struct trace_found {
    json_t *event; /* trace_event.h */
    size_t mail, source;
};

struct trace_story {
    struct trace_name asked; /* what the admin gave */
    size_t nmails;           /* some have no event: they became part of another one */
    size_t nnames;
    struct trace_name *name;
    size_t nfound;
    struct trace_found *found;
    json_t *others; /* queue ids of other mails with the same Message-ID */
    int64_t now;    /* microseconds */
    bool too_many;  /* names or lines: not all of them are here */
};

void trace_story_begin(struct trace_story *, const char *asked);
void trace_story_free(struct trace_story *);

/* Reads until no more is found. */
void trace_story_read(struct trace_story *, struct trace_sources *);

/* One more name of a mail; TRACE_NO_MAIL: of one that is not known yet. Returns its mail. */
#define TRACE_NO_MAIL ((size_t)-1)
size_t trace_story_learn(struct trace_story *, enum trace_kind, const char *text, size_t mail);

/* The mail of a name, or TRACE_NO_MAIL. */
size_t trace_story_mail(const struct trace_story *, enum trace_kind, const char *text);

/* A list, the caller's, of rows: queue_ids, entry_ids, message_ids, clocks (host, than,
 * behind_seconds), events in the order of time. Several: a queue id was used again. */
json_t *trace_story_events(struct trace_story *, size_t mail);

#endif
