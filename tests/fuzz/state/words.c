#include "tests/fuzz/words.h"

const char *const fuzz_words[] = {"\1",  "\2",  "\3",   "\4",   "\5",   "\7",
                                  "\10", "\17", "\100", "\177", "\376", 0};
const char fuzz_start[] = "";
