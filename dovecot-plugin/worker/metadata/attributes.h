/* attributes - what attributes.c and scripts.c share. A key is its type's letter, then Dovecot's
 * key. */
#ifndef DOVELANE_DOVECOT_PLUGIN_WORKER_METADATA_ATTRIBUTES_H
#define DOVELANE_DOVECOT_PLUGIN_WORKER_METADATA_ATTRIBUTES_H

#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/metadata/metadata.h"

#include <buffer.h>
#include <mailbox-attribute.h>

struct session;

#define SIEVE_PREFIX MAILBOX_ATTRIBUTE_PREFIX_DOVECOT_PVT_SERVER "sieve/"
#define ATTRIBUTE_FORMERS_MAX 32

/* Of one attribute: hashes of values, 0: unset. */
struct attribute_seen {
    bool any; /* it was seen once */
    uint64_t hash;
    time_t since;
    unsigned nformer;
    uint64_t former[ATTRIBUTE_FORMERS_MAX]; /* set before, and superseded, the latest first */
};

struct attributes_known {
    uint32_t folder;
    const char *prefix;
    ARRAY_TYPE(const_string) list; /* on the data stack */
};

uint64_t attribute_hash(const buffer_t *value);
int attribute_seen_load(struct session *, uint32_t folder, const char *key, size_t len,
                        struct attribute_seen *);
bool attribute_is_former(const struct attribute_seen *, uint64_t hash);
/* 1: *value; 0: unset; -1. written_r (may be NULL): when the file that it is was written, 0: it
 * is no file. */
int attribute_read(struct mailbox *, const char *key, buffer_t *value, time_t *written_r);
/* What is there against what was seen, in a transaction. unset_too: the log says that it was
 * changed, so "not there" means unset. */
int attribute_ingest(struct session *, struct mailbox *, uint32_t folder, const char *key,
                     enum attributes_said, bool unset_too);
/* Nobody unset it: it is seen unset, and is to be set again. */
int attribute_lost(struct session *, uint32_t folder, const char *key);
/* Those that are there. These are Sieve scripts, which Pigeonhole lists by their whole keys below
 * any prefix, or all others below a prefix. type: 0 private, 1 shared */
int attribute_keys(struct mailbox *, unsigned type, const char *prefix, bool scripts,
                   ARRAY_TYPE(const_string) * keys);
/* Those that were seen set, in the folder. */
int attributes_known(struct session *, uint32_t folder, const char *prefix,
                     struct attributes_known *);

/* scripts.c, in a transaction. unset: what the log says was deleted, or is not active any more. */
int scripts_ingest(struct session *, struct mailbox *inbox, const ARRAY_TYPE(const_string) * unset);
/* key makes a script the active one that is not there yet: Pigeonhole would log an error. */
bool scripts_active_waits(struct mailbox *inbox, const char *key, const uint8_t *value, size_t len);
/* key, if it is a script, was seen: by its directory the next deletion is known to be the
 * user's. */
int scripts_remember_directory(struct session *, struct mailbox *inbox, const char *key);

#endif
