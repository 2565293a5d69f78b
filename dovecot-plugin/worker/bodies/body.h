/* body - mails as bytes: what of a mail never changes, bodies of a parcel, and the spool. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_BODY_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_BODIES_BODY_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/protocol/frame.h"

#include <buffer.h>

struct orset_facts;
struct parcel_body;
struct session;
struct stub;
struct stub_key;

/* Bodies that a scan has read, at most as many as go along with one batch. What it found new is
 * sent with them, without reading them again, and what is a copy goes without any. */
struct batch_bodies *batch_bodies_create(void);
void batch_bodies_free(struct batch_bodies **);
void batch_bodies_clear(struct batch_bodies *);
/* Another one like the last would not fit beside them. */
bool batch_bodies_is_full(const struct batch_bodies *);
bool batch_bodies_find(const struct batch_bodies *, const uint8_t sha256[32], struct text *body_r);
/* The mail read last is a copy, or was moved, from one that the peers mostly have by now, or get
 * with this batch. Peers copy it too; a peer that lacks the source asks for the body. Its bytes are
 * not kept. */
void batch_bodies_skip_last(struct batch_bodies *);
/* The op that adds it is this one of this site's. */
void batch_bodies_copied(struct batch_bodies *, uint64_t number);
bool batch_bodies_is_copied(const struct batch_bodies *, uint64_t number);

/* Everything of a mail that never changes. Reads the body once, and keeps it if kept is not NULL
 * and it fits. guid_text is on the data stack. */
int body_facts(struct mail *, struct orset_facts *, struct batch_bodies *bodies);
/* Part of the canonical form (canonical.h), or, where that is not it, of all the bytes with
 * CRLF. 1; 0: no such mail any more, or its bytes are not those of that SHA-256; -1 */
int body_read(struct mail *, const uint8_t sha256[32], uint64_t offset, size_t most, buffer_t *part,
              uint64_t *size_r);
/* The mail has these bytes, as body_read() has them. One that cannot be read has not. */
bool body_is_of(struct mail *, const uint8_t sha256[32]);
/* The same of a stream that has a mail as a storage has it. It is at its start, before and after. */
bool body_stream_is_of(struct istream *, const uint8_t sha256[32]);

/* Whether two mails are one message: their bytes are equal below the lines that a delivery puts
 * in front (Return-Path, Delivered-To, Received), CRs aside. 1, 0; -1: one cannot be read. A
 * stream is one that can go back: it is given at its start, and is there again afterwards. */
int body_same_mail(struct mail *, struct istream *);
int body_same_mails(struct mail *, struct mail *);

/* The GUID of a mail that is another message than the one whose GUID it has: first 16 bytes of
 * SHA-256("dovelane-parted:" guid sha256). */
void body_own_guid(uint8_t own_r[16], const uint8_t guid[16], const uint8_t sha256[32]);

/* mailbox_copy(), whose copy shows as many bytes as the mail has. */
int copy_mail(struct mail_save_context **, struct mail *);
/* Saves what the stream has; ends or cancels the save. */
int save_stream(struct mail_save_context *, struct istream *);
/* The same without the mail's text, unless stub is NULL (stub/mail.h). */
int save_stream_as(struct mail_save_context *, struct istream *, const struct stub *,
                   const struct stub_key *);

/* Bodies that came with a parcel, by SHA-256; NULL where absent. Points into the parcel. */
struct bodies *bodies_create(bool whole); /* whole: who gave them keeps them so (stubs.h) */
void bodies_free(struct bodies **);
/* checked: body_is() says so */
void bodies_put(struct bodies *, const uint8_t sha256[32], struct text mail, bool checked);
unsigned bodies_count(const struct bodies *);
bool bodies_has(const struct bodies *, const uint8_t sha256[32]);
bool body_is(struct session *, const uint8_t sha256[32], struct text mail);
/* The body as a stream, from the parcel in work or the spool, or NULL. Checked against its hash. */
struct istream *body_open(struct session *, const uint8_t sha256[32]);
/* A part of a body that was asked for. 1: whole now, 0: *next_r is the offset to ask for, -1 */
int spool_put(struct session *, const struct parcel_body *, uint64_t *next_r);
/* What is whole there is dropped unless its bytes are those. */
bool spool_is(struct session *, const uint8_t sha256[32]);
/* something whole, whose bytes are not looked at */
bool spool_has(struct session *, const uint8_t sha256[32]);
/* What came with the parcel in work, whole: false when it cannot be kept. */
bool spool_keep(struct session *, const uint8_t sha256[32]);
void spool_drop(struct session *, const uint8_t sha256[32]);
/* Removes what is there when nothing waits for it: of mails that were removed before they were
 * whole. */
void spool_clear(struct session *);
/* A site that keeps whole what it gives gave a part of it. */
void spool_is_whole_elsewhere(struct session *, const uint8_t sha256[32]);
/* The same of a body that body_open() opens: then that site has all of it. */
bool body_is_whole_elsewhere(struct session *, const uint8_t sha256[32]);
/* How much of it is there. */
uint64_t spool_size(struct session *, const uint8_t sha256[32]);

#endif
