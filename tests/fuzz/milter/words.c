#include "tests/fuzz/words.h"

/* Packets have NULs, which a word cannot have: the target makes them of single bytes. */
const char *const fuzz_words[] = {
    "\x01", "\x02", "\x03", "\x04", "\x05", "\x06",        "\x06\x07", "\x06\x07\x08\x0e\x16\x0f",
    "\x07", "\x08", "\x0e", "\x0f", "\x10", "\x11",        "\x12",     "\x13",
    "\x14", "\x15", "\x16", "\x17", "i",    "{mail_addr}", "<a@b>",    0};
const char fuzz_start[] = "\x01\x02\x03\x05\x06\x07\x08\x0e";
