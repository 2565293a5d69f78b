/* Writes and reads a site's facts: a line each, name and value. */
#include "ctl/facts.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/redis/control_keys.h"

#define LAST "2592000" /* seconds that a node keeps them: 30 days */
#define TEXT_MOST 8192

static const char *const name_of[FACTS] = {"time",       "host",     "version", "group",
                                           "separators", "prefixes", "formats", "acl"};

int64_t facts_time(const struct facts *f)
{
    return strtoll(f->text[FACT_TIME], NULL, 10);
}

static void read_line(struct facts *f, const char *line, size_t len)
{
    for (size_t i = 0; i < FACTS; i++) {
        size_t n = strlen(name_of[i]);
        if (len > n && !memcmp(line, name_of[i], n) && line[n] == ' ' &&
            len - n - 1 < sizeof f->text[i]) {
            memcpy(f->text[i], line + n + 1, len - n - 1);
            f->text[i][len - n - 1] = '\0';
        }
    }
}

bool facts_read(struct conn *c, const char *site, struct facts *facts)
{
    struct facts there = {.text = {""}};
    redisReply *r = conn_call(c, "GET " CONTROL_FACTS "%s", site);
    bool found = r && r->type == REDIS_REPLY_STRING && r->len < TEXT_MOST;
    for (const char *at = found ? r->str : ""; *at; at += strcspn(at, "\n"), at += *at != '\0')
        read_line(&there, at, strcspn(at, "\n"));
    found = found && facts_time(&there) > facts_time(facts);
    if (found)
        *facts = there;
    if (r)
        freeReplyObject(r);
    return found;
}

bool facts_write(struct conn *c, const char *site, const struct facts *facts)
{
    struct buf b = {0};
    for (size_t i = 0; i < FACTS; i++)
        buf_printf(&b, "%s %s\n", name_of[i], facts->text[i]);
    redisReply *r = conn_call(c, "SET " CONTROL_FACTS "%s %b EX " LAST, site, b.data, b.len);
    bool written = r && r->type == REDIS_REPLY_STATUS;
    if (r)
        freeReplyObject(r);
    buf_free(&b);
    return written;
}
