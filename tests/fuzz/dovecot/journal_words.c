#include "tests/fuzz/words.h"

const char *const fuzz_words[] = {"D\t",
                                  "x\t",
                                  "S\t-\t",
                                  "U\t-\t",
                                  "00112233445566778899aabbccddeeff",
                                  "ffeeddccbbaa99887766554433221100",
                                  "\t",
                                  "\n",
                                  "\001t",
                                  "\001n",
                                  "\0010",
                                  "\001",
                                  "INBOX",
                                  "\xc3\xa4",
                                  "x\t00112233445566778899aabbccddeeff\n",
                                  "D\t00112233445566778899aabbccddeeff\tname\n",
                                  0};
const char fuzz_start[] = "D\t00112233445566778899aabbccddeeff\tfolder\n";
