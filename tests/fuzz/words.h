/* words - what random.c makes input of: pieces of what the other side says. Each target's folder
 * has its own words.c. */
#ifndef DOVELANE_TESTS_FUZZ_WORDS_H
#define DOVELANE_TESTS_FUZZ_WORDS_H

extern const char *const fuzz_words[]; /* NULL at the end */
/* where a third of the inputs begin: all of it, or without its last CRLF; "": none */
extern const char fuzz_start[];

#endif
