/* reserve - the ends of the blocks of numbers that states may give, in one file for all users,
 * outside the mail storage (F12).
 *
 * A state is committed without a flush. So a power cut can take its last numbers back although
 * peers have their ops already; a restored mail storage takes back more. Giving such a number again
 * to another op makes peers delete mail (F11). So before a number above a block's end is given, the
 * end is moved on and flushed here. After each commit the counter is noted here, not flushed, which
 * is enough for everything but a power cut. What a state that says "counter" must do at open:
 *
 *     stopped cleanly                        counter must be the one noted
 *     not cleanly, host still in that boot   counter must not be below the one noted
 *     not cleanly, host booted since         counter must be the block's end; it hardly ever is
 *     else                                   the state lacks what it may have sent:    orset_new_epoch,
 * exchange, then ingest
 *
 * A state that was stopped cleanly and gives no number is as good as one that was not opened.
 * Opening and closing it writes nothing here, so that a sweep over users with nothing new does not
 * wait for the disk.
 *
 * Going on behind the block's end under the old epoch would not do. The vector would cover numbers
 * that peers have and this state lost, and "covered and absent" means removed.
 *
 * Records of 64 bytes: key, epoch, end, noted counter and the clean mark, boot, check sum. */
#ifndef DOVELANE_DOVECOT_PLUGIN_STORE_RESERVE_H
#define DOVELANE_DOVECOT_PLUGIN_STORE_RESERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESERVE_BLOCK 1000

struct reserve;

enum reserve_verdict {
    RESERVE_GO_ON,    /* nothing to do */
    RESERVE_NEW_EPOCH /* numbers may be lost: new epoch, exchange before ingest */
};

/* Opens or makes the file. 0, or -1 with errno: EILSEQ when it is not such a file. Locked
 * against a second process. boot: a hash of the host's boot id. */
int reserve_open(struct reserve **r_r, const char *path, uint64_t boot);
void reserve_close(struct reserve *);

/* The verdict for a state that says (epoch, counter). A key not known yet is RESERVE_GO_ON for a
 * state that has given no number. One that has comes from a time before this file: a backup beside
 * which the file was not kept, perhaps older than what peers have. From then on, or from the first
 * number that a cleanly stopped one gives, the record says "in use". key: a hash of user and
 * namespace. Returns -1 with errno when it cannot be written: do not ingest. */
int reserve_check(struct reserve *, const uint8_t key[16], uint64_t epoch, uint64_t counter);

/* After each commit of the state; not flushed (about a microsecond). */
int reserve_note(struct reserve *, const uint8_t key[16], uint64_t counter);

/* Called before counter may exceed the end of its block. Moves the end to at least counter +
 * RESERVE_BLOCK and flushes it (0.1 to 10 ms; once per RESERVE_BLOCK numbers). Does nothing while
 * counter is below the end. 0, or -1 with errno: do not commit. */
int reserve_raise(struct reserve *, const uint8_t key[16], uint64_t epoch, uint64_t counter);

/* The key of a user's state. */
void reserve_user_key(const char *user, uint8_t key[16]);

/* The epoch of the state that was seen last; 0: none is known. */
uint64_t reserve_epoch(struct reserve *, const uint8_t key[16]);

/* The user is gone, and his state with him: the next state of that name is the first one. */
int reserve_forget(struct reserve *, const uint8_t key[16]);

/* The state was closed with this counter, after its own storage was flushed. */
int reserve_clean(struct reserve *, const uint8_t key[16], uint64_t epoch, uint64_t counter);

#endif
