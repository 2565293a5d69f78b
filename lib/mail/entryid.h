/* entryid - the 16 bytes that name one mail for one destination on every node. They are 48 bits of
 * milliseconds (big-endian, so that ids of one host sort by time), and 80 random bits. */
#ifndef DOVELANE_LIB_MAIL_ENTRYID_H
#define DOVELANE_LIB_MAIL_ENTRYID_H

#include <stddef.h>
#include <stdint.h>

#define ENTRYID_LEN 16
#define ENTRYID_HEX (2 * ENTRYID_LEN + 1)

/* The header line by which our own Dovecot knows a mail (dovecot-plugin/protocol/delivery_id.h):
 * the relay writes it, the milter drops what a sender wrote. */
#define ENTRYID_HEADER "Dovelane-Id"

void entryid_make(unsigned char id[ENTRYID_LEN]); /* thread safe */
void entryid_hex(const unsigned char id[ENTRYID_LEN], char hex[ENTRYID_HEX]);

/* A number in [0, 1) that depends on the id and n alone: every owner computes the same jitter. */
double entryid_fraction(const unsigned char id[ENTRYID_LEN], uint32_t n);

#endif
