/* format - a stub: what lies on the disk of a mail whose bytes are at other sites (role = on-demand).
 * Pure: no I/O.
 *
 *     X-Dovelane-Stub: 1 SHA256 SIZE STORED MAC LF      STUB_LINE bytes, lower-case hexadecimal
 *     the mail's head, as it would have been stored: its header, the empty line, STUB_BEHIND bytes
 *
 * SHA256 and SIZE are those of the mail's canonical form (mailbox/canonical.h), STORED is how many
 * bytes it would have on the disk. MAC is an HMAC-SHA256, under a key of the user's, of all that
 * stands before it and of the head. So nobody who sends or saves a mail can make one. What has
 * another MAC is a mail like any other. */
#ifndef DOVELANE_DOVECOT_PLUGIN_STUB_FORMAT_H
#define DOVELANE_DOVECOT_PLUGIN_STUB_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STUB_LINE 183
#define STUB_MAGIC "X-Dovelane-Stub: 1 "
#define STUB_HEADER_MAX (64 * 1024) /* a mail with a longer header is stored whole */
/* Who reads a header looks at what follows it. */
#define STUB_BEHIND 64
#define STUB_MAX (STUB_LINE + STUB_HEADER_MAX + STUB_BEHIND)
#define STUB_KEY 32

struct stub_key {
    uint8_t bytes[STUB_KEY];
};

struct stub {
    uint8_t sha256[32];
    uint64_t size, stored;
};

/* The first bytes of a file are a stub's line, true or made up. */
bool stub_read(const void *line, size_t n, struct stub *stub_r);
/* Its MAC is that of the line and the head. */
bool stub_is_true(const void *line, const struct stub_key *, const void *head, size_t n);
void stub_write(char line_r[STUB_LINE], const struct stub *, const struct stub_key *,
                const void *head, size_t n);

/* The bytes of a header, with the empty line behind it, at the begin of data. 0: it does not end
 * there. */
size_t stub_header_size(const void *data, size_t n);

/* A key as 64 hexadecimal digits and a line's end. */
#define STUB_KEY_TEXT (2 * STUB_KEY + 1)
bool stub_key_read_text(const void *text, size_t n, struct stub_key *key_r);
void stub_key_write_text(char text_r[STUB_KEY_TEXT], const struct stub_key *);

#endif
