/* parcel - what replicas put into each other's lanes.
 *
 * A parcel is a lane entry. Its id is 16 random bytes. Its meta, as below, is read and written by
 * main alone. Its body, by kind, is read and written by the workers; main only passes it on.
 * Grammar: docs/replicator/sending.md, "Parcels".
 *
 * Decoding copies nothing, all bounds are checked, what is left over at the end makes it
 * malformed. */
#ifndef DOVELANE_DOVECOT_PLUGIN_PROTOCOL_PARCEL_H
#define DOVELANE_DOVECOT_PLUGIN_PROTOCOL_PARCEL_H

#include "dovecot-plugin/protocol/frame.h"

#define PARCEL_VERSION 1
#define PARCEL_MAX (4 * 1024 * 1024) /* bytes of a body */
#define PARCEL_META_MAX 512          /* bytes of the meta */
/* bytes of one mail beside its add; longer ones are asked for */
#define PARCEL_MAIL_MAX (1024 * 1024)
#define PARCEL_MAILS_BYTES (2 * 1024 * 1024) /* of all mails of one BATCH or BODIES */
#define PARCEL_MAILS_MAX 1000
#define PARCEL_WANTS_MAX 1000
#define PARCEL_PART_MAX (1024 * 1024) /* bytes of one BODY */
/* of one body, in answer to a WANT that names no other */
#define PARCEL_PARTS_MAX 8
#define PARCEL_SIZE_MAX (1ULL << 40) /* bytes of a mail, as in the op */

enum parcel_kind {
    PARCEL_BATCH = 1, /* an orset batch, and bodies of its adds */
    PARCEL_QUESTION,  /* of an exchange: orset/exchange/exchange.h */
    PARCEL_ANSWER,
    PARCEL_WANT,      /* mails whose bodies are missing here */
    PARCEL_BODY,      /* a part of one */
    PARCEL_UID_DIRTY, /* of a UID round: orset/ops/uid.h */
    PARCEL_UID_ASK,
    PARCEL_UID_ANSWER,
    PARCEL_BODIES,         /* whole ones that were asked for */
    PARCEL_READING,        /* u8 enum parcel_reading */
    PARCEL_ANSWER_READING, /* as ANSWER, of a new state that has not read its mailboxes yet */
    PARCEL_RAISE,          /* mails get a modseq: apply/modseq_repair.c */
    PARCEL_RAISED,         /* that will be done */
    PARCEL_RETIRE,         /* the user was forgotten: origins of his states. Main's own, as is */
    PARCEL_RETIRED,        /* ... that this site knows of these */
    PARCEL_ASK_DISK,       /* which of these mails are on the disk */
    PARCEL_ON_DISK,        /* these are; read by main alone */
    PARCEL_KINDS
};

#define PARCEL_GUIDS_MAX 1000 /* of one ASK_DISK or ON_DISK */
#define PARCEL_GUID 16        /* bytes of one */

/* of one user name: its users who were forgotten, one after the other */
#define PARCEL_ORIGINS_MAX 1024

/* READING: the sender has read its mailboxes; it asks whether the receiver has. */
enum parcel_reading { PARCEL_HAS_READ = 0, PARCEL_HAS_IT_READ = 2 };

/* What it says is of the user as such, also of one who is nobody here any more. */
static inline bool parcel_is_retirement(unsigned kind)
{
    return kind == PARCEL_RETIRE || kind == PARCEL_RETIRED;
}

static inline bool parcel_is_answer(unsigned kind)
{
    return kind == PARCEL_ANSWER || kind == PARCEL_ANSWER_READING;
}

/* ---- meta ---- */

struct parcel {
    unsigned version;
    uint8_t group[16]; /* digest of the group, parcel_group */
    struct text user;
    unsigned kind;
    uint64_t from, to; /* sites */
};

/* 0, or -1: no memory, or not within the bounds (then b is as before). */
int parcel_encode(struct orset_buf *b, const struct parcel *);

/* -1: malformed. A version other than PARCEL_VERSION: 0, and only version is set, and group if
 * it is there. */
int parcel_decode(struct parcel *, const uint8_t *meta, size_t n);

/* The digest that all replicas of a group must have in common (F15). It is of the wire version, the
 * sites' numbers and the namespaces' names, in any order. */
void parcel_group(const uint64_t *site, size_t nsites, const struct text *ns, size_t nns,
                  uint8_t digest[16]);

/* The sender's own origin in the vector of a BATCH, a QUESTION or an ANSWER. false: it has none. */
bool parcel_sender(unsigned kind, struct text body, struct frame_origin *);

/* ---- bodies ---- */

/* BATCH = text batch, num n, n { 32 bytes SHA-256, text mail }. */
struct parcel_mail {
    const uint8_t *sha256;
    struct text mail;
};

/* Begins a batch that nmails mails will follow, each by parcel_put_mail. */
void parcel_put_batch(struct orset_buf *b, struct text batch, size_t nmails);
void parcel_put_mail(struct orset_buf *b, const uint8_t sha256[32], struct text mail);

/* Checks all of it, then *mails gives the mails one by one. -1: malformed. */
int parcel_batch(struct text body, struct text *batch_r, size_t *nmails_r,
                 struct orset_reader *mails_r);
bool parcel_next_mail(struct orset_reader *mails, struct parcel_mail *);
/* The number of a batch's first op (docs/replication-protocol.md). 0: it has none, or cannot be
 * read. */
uint64_t parcel_batch_first(struct text body);
/* A BATCH without ops and modseqs whose vector has this origin's numbers up to counter, and no
 * higher one. A site that has more shows that this one's state is an old copy. */
bool parcel_confirms(struct text body, uint64_t site, uint64_t epoch, uint64_t counter);

/* The sender's vector, of a BATCH, a QUESTION or an ANSWER, names one of these origins. */
bool parcel_names(unsigned kind, struct text body, struct text origins);

/* RETIRE, RETIRED = n { u64 site, u64 epoch }. -1: malformed. */
int parcel_origins(struct text body, size_t *n_r);

/* ASK_DISK = u64 asked, n { 16 bytes GUID }; ON_DISK = u64 asked, u64 epoch, n { 16 bytes GUID }.
 * asked: a random number of the site that asks, which the answer repeats. So the answer is of a
 * later moment than the question. epoch: of the answering site's state. */
struct parcel_guids {
    uint64_t asked, epoch;
    size_t n; /* 1 to PARCEL_GUIDS_MAX */
    const uint8_t *guid;
};

/* Of ASK_DISK, epoch is not written. */
void parcel_put_guids(struct orset_buf *b, unsigned kind, const struct parcel_guids *);
int parcel_guids(unsigned kind, struct text body, struct parcel_guids *);

/* BODIES = num n, n { 32 bytes SHA-256, text mail }, within the same bounds. */
void parcel_put_bodies(struct orset_buf *b, size_t nmails);
int parcel_bodies(struct text body, size_t *nmails_r, struct orset_reader *mails_r);

/* WANT = num n, n { num site, u64 epoch, num number; 32 bytes SHA-256, num offset }. The dot is
 * one of the message's, so that the peer finds it; the part behind offset is missing. */
struct parcel_want {
    uint64_t site, epoch, number;
    const uint8_t *sha256;
    uint64_t offset;
};

void parcel_put_wants(struct orset_buf *b, size_t n);
void parcel_put_want(struct orset_buf *b, const struct parcel_want *);
int parcel_wants(struct text body, size_t *n_r, struct orset_reader *wants_r);
bool parcel_next_want(struct orset_reader *wants, struct parcel_want *);

/* BODY = 32 bytes SHA-256, num size, num offset, text part. size 0 and an empty part: not held
 * here. */
struct parcel_body {
    const uint8_t *sha256; /* of the whole mail */
    uint64_t size, offset;
    struct text part;
};

void parcel_put_body(struct orset_buf *b, const struct parcel_body *);
int parcel_body(struct text body, struct parcel_body *);

/* The SHA-256 of each mail of which a parcel of this kind has the last bytes. */
typedef void parcel_text_fn(void *arg, const uint8_t sha256[32]);
void parcel_each_text(unsigned kind, struct text body, parcel_text_fn *each, void *arg);

#endif
