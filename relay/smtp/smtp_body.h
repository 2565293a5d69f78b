/* smtp_body - a message on its way out, in the form that DATA or BDAT wants. It is sent from the
 * caller's memory; only what must be changed (a leading dot, a bare LF) is copied, for DATA
 * piece by piece. Pure. */
#ifndef DOVELANE_RELAY_SMTP_SMTP_BODY_H
#define DOVELANE_RELAY_SMTP_SMTP_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "lib/mail/smtp_dots.h"

#define SMTP_BODY_PARTS 3

/* {0}: none. The texts stay the caller's, until the next begin or clear. */
struct smtp_body {
    struct iovec part[SMTP_BODY_PARTS]; /* head, message, end; what was sent is gone from them */
    int at, n;
    const char *message; /* what is still to be changed */
    size_t left;
    struct smtp_dots dots;
    struct buf changed;
    bool begun;
};

/* head: header lines before the message; may be NULL when head_len is 0. */
void smtp_body_data(struct smtp_body *, const char *head, size_t head_len, const char *message,
                    size_t len);

/* The size of the chunk. */
size_t smtp_body_chunk(struct smtp_body *, const char *head, size_t head_len, const char *message,
                       size_t len);

/* What comes next: at most SMTP_BODY_PARTS of out are filled; how many, 0 at the end. */
int smtp_body_next(struct smtp_body *, struct iovec *out);
void smtp_body_sent(struct smtp_body *, size_t n); /* that many bytes of it */
bool smtp_body_over(const struct smtp_body *);     /* begun, and nothing is left */
void smtp_body_clear(struct smtp_body *);

#endif
