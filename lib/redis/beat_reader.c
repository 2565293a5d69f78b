#include "lib/redis/beat_reader.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

const char *beat_reader_command(const struct beat_reader *r)
{
    return r->older ? "LANE.BEAT" : "LANE.BEATS";
}

static bool is_refusal(const char *error)
{
    return !strncmp(error, "NOPERM", 6) || !strncasecmp(error, "ERR unknown command", 19);
}

bool beat_reader_turns(struct beat_reader *r, const char *error)
{
    if (!error || !is_refusal(error)) {
        r->refused = false;
        return false;
    }
    /* Both refused: the next look is with the other one, not this one. */
    bool turns = !r->refused;
    r->refused = turns;
    r->older = !r->older;
    return turns;
}
