#include "dovecot-plugin/replicator/admin/verbs.h"

#include <string.h>

#include "dovecot-plugin/replicator/workers/forget.h"

void verb_unescape(char *s)
{
    char *out = s;
    for (; *s; s++) {
        char ch = *s;
        if (ch == '\001' && s[1]) {
            s++;
            ch = *s == '1' ? '\001' : *s == 't' ? '\t' : *s == 'n' ? '\n' : *s == 'r' ? '\r' : *s;
        }
        *out++ = ch;
    }
    *out = '\0';
}

bool verb_is_known(const char *verb)
{
    static const char *const verbs[] = {"status",    "verify", "resync", "accept", "restore",
                                        "new-epoch", "join",   "forget", "kept",   "unexpunge"};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(verbs[i], verb))
            return true;
    return false;
}

bool verb_is_join_status(char *const *field, size_t nfields)
{
    return !strcmp(field[0], "join") && nfields > 2 && !strcmp(field[2], "--status");
}

bool verb_is_forget_wrong(char *const *field, size_t nfields)
{
    bool forced = nfields == 3 && !strcmp(field[2], FORGET_FORCED);
    return !strcmp(field[1], "*") || (nfields > 2 && !forced);
}

bool verb_exchanges(const char *verb)
{
    return !strcmp(verb, "resync") || !strcmp(verb, "new-epoch") || !strcmp(verb, "join");
}

bool verb_differs(const char *verb, struct text row)
{
    static const char different[] = "verdict\tdifferent";
    return !strcmp(verb, "verify") && row.n == sizeof different - 1 &&
           !memcmp(row.p, different, row.n);
}

bool verb_leaves_out(const char *verb, struct text row)
{
    static const char state[] = "state\t";
    if (strcmp(verb, "status") != 0 || (row.n && strchr("#-", row.p[0])))
        return false;
    size_t skip = row.n && row.p[0] == '+';
    return row.n - skip < sizeof state - 1 || memcmp(row.p + skip, state, sizeof state - 1) != 0;
}
