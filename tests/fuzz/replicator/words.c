#include "tests/fuzz/words.h"

const char *const fuzz_words[] = {"1\tuser\t-\n",
                                  "1\tuser@example.org\t00112233445566778899aabbccddeeff\tINBOX\n",
                                  "\001t",
                                  "\001n",
                                  "\t",
                                  "\n",
                                  "%2F",
                                  "+all",
                                  "user",
                                  "\1\0\0\0",
                                  "\5",
                                  "\x10",
                                  "\x80\1",
                                  "\xff\xff\xff\xff\xf",
                                  0};
const char fuzz_start[] = "";
