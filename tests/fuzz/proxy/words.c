#include "tests/fuzz/words.h"

const char *const fuzz_words[] = {"EHLO x\r\n", "XFORWARD NAME=a ADDR=1.2.3.4\r\n", "XFORWARD SOURCE=LOCAL HELO=+20\r\n", "MAIL FROM:<a@b.example> SIZE=10\r\n",
                                  "MAIL FROM:<> SMTPUTF8\r\n", "RCPT TO:<c@d.example> NOTIFY=NEVER\r\n", "RCPT TO:<\"c d\"@e>\r\n", "DATA\r\n", "\r\n", "\n", "\r", ".",
                                  "\r\n.\r\n", "\n.\r\n", "\r\n.\n", "\r\n..\r\n", "Subject: x\r\n", "Bcc: y\r\n z\r\n", "Received: by z\r\n", "Message-ID: <i@j>\r\n",
                                  "Dovelane-Id: x\r\n", "RSET\r\n", "QUIT\r\n", " ", ":", "<", ">", "a@b.example", 0};
const char fuzz_start[] = "EHLO x\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\nSubject: x\r\n\r\n";
