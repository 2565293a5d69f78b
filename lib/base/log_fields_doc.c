/* log-fields-doc - writes docs/log-fields.md from log_fields.def. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char head[] =
    "<!-- made by: build/lib/log-fields-doc markdown -->\n"
    "# Fields of log lines\n\n"
    "A log line is made once, as text in Postfix's form. Its parts are also fields, for programs\n"
    "that read logs:\n\n"
    "| setting | form |\n"
    "|---|---|\n"
    "| `log_format = text` (default) | `TIME HOST PROGRAM[PID]: ID: from=<...>, size=...` |\n"
    "| `log_format = json` | one JSON object a line, in a file, on stderr, or as syslog's message. "
    "Behind what syslog and Dovecot's log write before it |\n"
    "| `log = \"journal\"` | the text as MESSAGE, and the fields beside it |\n\n"
    "## JSON\n\n"
    "```\n"
    "{\"time\":\"2026-11-27T10:14:15.123456+01:00\",\"host\":\"mx1\",\n"
    " \"program\":\"postfix/dovelane-relay\",\"pid\":123,\"level\":\"info\",\n"
    " \"event\":\"delivery\",\"queue_id\":\"4jWv...\",\"to\":\"u@example.org\",...,\n"
    " \"message\":\"4jWv...: to=<u@example.org>, ...\"}\n"
    "```\n\n"
    "* `time`, `host`, `program`, `pid`, `level` (error, warning, info, debug) and `message` are "
    "in "
    "each\n"
    "  line. `message` is what the text form has behind the program; a key is there when the line "
    "has\n"
    "  that fact, and is never null.\n"
    "* `node`: the node or the replica that the program works for (`-n`).\n"
    "* Control characters and bytes that are no UTF-8 are `?` in both forms, so a line is one "
    "line. "
    "A\n"
    "  value is exact: what looks like another field in an address or in a reply is not one.\n"
    "* Texts of strangers are cut (addresses and Message-IDs at 256 bytes, replies at 512), and a\n"
    "  message at 2047. A JSON line has at most 11 kB.\n"
    "* New keys may be added. Unknown ones are to be passed over.\n\n"
    "## The journal\n\n"
    "MESSAGE, PRIORITY, SYSLOG_IDENTIFIER (`postfix/dovelane-relay`) and SYSLOG_FACILITY (mail) "
    "are\n"
    "in each entry. DOVELANE_NODE is in it where the program works for a node. A line's fields\n"
    "have DOVELANE_ before their names in capitals:\n\n"
    "```sh\n"
    "journalctl DOVELANE_QUEUE_ID=4jWv5K1lQ7z2xT\n"
    "journalctl -o json DOVELANE_STATUS=deferred\n"
    "```\n\n"
    "`log = \"journal:/path\"` names the socket of another journal (a namespace's). Where the "
    "journal\n"
    "cannot be reached at the start, a program does not start; later, lines go to stderr.\n\n"
    "## Events\n\n"
    "| `event` | what |\n"
    "|---|---|\n";

static const struct {
    const char *name, *help;
} event[] = {
#define EVENT(name, help) {#name, help},
#include "lib/base/log_fields.def"
};

static const struct {
    const char *name, *kind, *help;
} field[] = {
#define FIELD(name, kind, before, help) {#name, #kind, help},
#include "lib/base/log_fields.def"
};

static void markdown(void)
{
    fputs(head, stdout);
    for (size_t i = 1; i < sizeof event / sizeof *event; i++)
        printf("| `%s` | %s |\n", event[i].name, event[i].help);
    puts("\nOther lines have none: they are about the program, a node or a next hop.\n\n"
         "## Fields\n\n"
         "| key | journal | JSON | what |\n"
         "|---|---|---|---|");
    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        char journal[64];
        size_t n = 0;
        for (; field[i].name[n]; n++)
            journal[n] = (char)toupper((unsigned char)field[i].name[n]);
        journal[n] = '\0';
        printf("| `%s` | `DOVELANE_%s` | %s | %s |\n", field[i].name, journal,
               *field[i].kind == 'N'   ? "number"
               : *field[i].kind == 'L' ? "list"
                                       : "text",
               field[i].help);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "markdown")) {
        markdown();
        return 0;
    }
    fputs("usage: log-fields-doc markdown\n", stderr);
    return 2;
}
