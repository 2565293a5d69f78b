/* mail_entries - a mail as a request to the store: one entry per destination, all with the same
 * body. What both ways in (milter, proxy) do alike. */
#ifndef DOVELANE_LIB_INGRESS_MAIL_ENTRIES_H
#define DOVELANE_LIB_INGRESS_MAIL_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/config/config.h"
#include "lib/ingress/verdict.h"
#include "lib/mail/envelope.h"
#include "lib/store/store.h"

struct mail_recipient {
    /* "<a@example.net>" as Postfix gave it: what smfi_delrcpt wants, and what Postfix is sent
     * again */
    char *given;
    char *destination; /* "lmtp:[10.0.0.5]:24"; NULL: none, it is Postfix's */
    /* the same address was given before: stored once, as Postfix would deliver it */
    bool again;
    struct recipient r;
};

void mail_recipient_free(struct mail_recipient *);

struct mail_entries {
    struct store_request request;
    struct buf *meta;  /* per entry */
    const char *unfit; /* why the mail cannot be kept, or NULL */
    size_t held;       /* entries that a hold rule holds (hold_rules.h) */
    /* per entry, what it counts as against the limits of receipt (receipt.h); NULL: nothing does */
    struct receipt_count *counted;
};

/* Makes the entries of the recipients that have a destination. Everything is borrowed until
 * mail_entries_free; the envelope's own recipients are not looked at. */
void mail_entries_make(struct mail_entries *, const struct envelope *,
                       const struct mail_recipient *, size_t nrecipients, const char *body,
                       size_t len);
void mail_entries_free(struct mail_entries *);

/* Why it cannot be stored, and *detail_r what about it; or NULL: then *bytes_r is what it takes
 * in memory until it is. Each entry has the whole body, and each copy of it waits as a request
 * of its own. */
const char *mail_entries_misfit(const struct mail_entries *, const struct config *, size_t body,
                                const char **detail_r, size_t *bytes_r);

/* The index of a destination's entry; nentries when it has none. */
size_t mail_entries_find(const struct mail_entries *, const char *destination);

/* Nothing is left to do for it: it is stored by all its owners, or delivered already. */
bool mail_entries_done(const struct store_entry *);
size_t mail_entries_count_done(const struct mail_entries *);
/* With what the store says by now. revoked, queued: verdict.h. */
enum verdict mail_entries_verdict(const struct mail_entries *, const struct config *, bool revoked,
                                  bool queued);

/* Why not all of it is stored, for the mail's one line in the log: "store (mx2: FULL)". With
 * several destinations each reason comes once, behind the first destination that has it. Also
 * warns, once a minute, that storing fails and how often it did since. So a long outage costs one
 * log line a mail, not two. */
#define MAIL_ENTRIES_WHY 700
void mail_entries_why(const struct mail_entries *, char out[MAIL_ENTRIES_WHY]);

/* A line per entry, for a mail that gets no line of its own: what became of it. Held ones only
 * with log_level = debug. */
void mail_entries_log(const struct mail_entries *);

#endif
