#include "tests/fuzz/words.h"

const char *const fuzz_words[] = {"+p", "-s", "vendor/key",       "\1",   "\2",   "\3",
                                  "\4", "\6", "\xff\xff\xff\xff", "\x10", "\x20", "keyword",
                                  0};
const char fuzz_start[] = "";
