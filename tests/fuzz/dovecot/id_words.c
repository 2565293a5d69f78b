#include "tests/fuzz/words.h"

const char *const fuzz_words[] = {"0123456789abcdef0123456789abcdef",
                                  "\r\n ",
                                  "\t",
                                  " ",
                                  "F",
                                  "Received:",
                                  "Dovelane-Id:",
                                  "DELIVERED-TO:",
                                  "\n",
                                  "00",
                                  0};
const char fuzz_start[] = "";
