#include "tests/fuzz/words.h"

const char *const fuzz_words[] = {"250 2.0.0 Ok\r\n",
                                  "250-",
                                  "250 ",
                                  "354 go\r\n",
                                  "421 4.3.2 bye\r\n",
                                  "550 5.1.1 no\r\n",
                                  "\r\n",
                                  "\n",
                                  "PIPELINING\r\n",
                                  "CHUNKING\r\n",
                                  "SIZE 100\r\n",
                                  "XCLIENT ADDR NAME\r\n",
                                  "STARTTLS\r\n",
                                  "220 x\r\n",
                                  "2.1.5",
                                  " ",
                                  "-",
                                  0};
const char fuzz_start[] = "";
