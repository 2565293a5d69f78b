/* fetch - the text of a mail of which only a stub is here is got from another site, for who reads
 * it now (protocol/fetch.h). It stays in DIRECTORY/fetched for a time, so that who reads it in
 * parts asks for it once. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_FETCH_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_FETCH_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/protocol/frame.h"

struct parcel_body;
struct parcel_mail;
struct peer;
struct session;

/* What is being fetched: of one SHA-256, each size that is asked for is for itself. Others may
 * claim what size they like, and only one is true. */
struct fetching {
    uint8_t sha256[32];
    uint64_t size;
    uint64_t site, epoch, number; /* the dot of a message that has it */
    /* peers, a bit each: were asked in this turn, and said that they have it not; said so ever */
    uint64_t tried, not_at, without;
    unsigned last;   /* who was asked last */
    uint64_t until;  /* where the parts that were asked for end */
    uint64_t asked;  /* milliseconds: when, or when a part of it came */
    uint64_t wanted; /* when somebody wanted it last */
};

/* ADMIN's verb: args are GUID, SHA-256 and size. */
enum frame_result fetch_verb(struct session *, const char *const *args);
/* A part, or all of it, came from a peer. */
void fetch_part(struct session *, struct peer *, const struct parcel_body *);
void fetch_mail(struct session *, struct peer *, const struct parcel_mail *);
/* Behind each question: what has lain there for long is dropped. */
void fetch_end(struct session *);

#endif
