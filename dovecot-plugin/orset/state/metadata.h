/* metadata - what hangs on a name: subscriptions and attributes. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_METADATA_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_METADATA_H

#include "dovecot-plugin/orset/base/handle.h"

#define ORSET_SUBSCRIPTION_DOTS 256                /* live dots of one name */
#define ORSET_SUBSCRIPTION_BYTES (2 * 1024 * 1024) /* of all of them, which go in one answer */

int orset_subscription_apply(struct orset *, const void *name, size_t len,
                             const struct orset_dot *kill, unsigned nkill, struct orset_dot add,
                             bool local);
int orset_subscription_dots(struct orset *, const void *name, size_t len, struct orset_dot *dots,
                            unsigned most);
/* What one more name would bring the subscriptions to, in the bytes that an exchange carries.
 * Error: below 0. */
int orset_subscriptions_with(struct orset *, size_t name_len);
struct orset_sum orset_subscription_sum(const struct orset *, const void *name, size_t len,
                                        struct orset_dot);

struct attribute {
    struct stamp stamp;
    bool set;
    const uint8_t *value;
    size_t len;
};

void orset_attribute_key(struct orset_key *, uint32_t folder, const void *key, size_t len);
/* 1; 0 and *a without a value; error */
int orset_attribute_load(struct orset *, const struct orset_key *, struct attribute *);
int orset_attribute_store(struct orset *, const struct orset_key *, const struct attribute *);
struct orset_sum orset_attribute_sum(const struct orset *, uint32_t folder, const void *key,
                                     size_t key_len, const struct attribute *);
uint64_t orset_value_hash(const uint8_t *value, size_t len, bool set);
int orset_attribute_apply(struct orset *, uint32_t folder, const void *key, size_t key_len,
                          const uint8_t *value, size_t len, bool set, struct stamp, bool local);

#endif
