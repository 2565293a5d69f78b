/* parameters - finds a parameter's row in parameters.def. */
#include "lib/postfix/parameters.h"

#include <string.h>
#include <strings.h>

static const struct parameter rows[] = {
#define GROUP(class, prefix, why, names) \
    {names, "", "", why, PARAMETER_##class, PARAMETER_##prefix, PARAMETER_READER_NONE},
#define FORBIDS(prefix, reader, name, off, unless, why) \
    {name, off, unless, why, PARAMETER_FORBIDS, PARAMETER_##prefix, PARAMETER_READER_##reader},
#include "lib/postfix/parameters.def"
};

#define ROWS (sizeof rows / sizeof *rows)

const struct parameter *parameter_row(size_t i)
{
    return i < ROWS ? &rows[i] : NULL;
}

/* True when a list parted by that mark has the word. An empty word is between two marks, or before
 * the first one. */
static bool has_word(const char *list, char mark, const char *word, size_t len)
{
    for (const char *s = list;; s++) {
        const char *end = strchrnul(s, mark);
        if ((size_t)(end - s) == len && !strncasecmp(s, word, len))
            return true;
        if (!*(s = end))
            return false;
    }
}

/* "rate_delay" of "slow_rate_delay" or "default_rate_delay". */
static bool has_suffix(const char *names, const char *name)
{
    for (const char *s = strchr(name, '_'); s; s = strchr(s + 1, '_'))
        if (s > name && has_word(names, ' ', s + 1, strlen(s + 1)))
            return true;
    return false;
}

static bool is_named(const struct parameter *p, const char *name)
{
    bool agent = !strncmp(name, "smtp_", 5) || !strncmp(name, "lmtp_", 5);
    switch (p->prefix) {
    case PARAMETER_AGENT: return agent && has_word(p->names, ' ', name + 5, strlen(name + 5));
    case PARAMETER_TRANSPORT: return has_suffix(p->names, name);
    case PARAMETER_PLAIN: break;
    }
    return has_word(p->names, ' ', name, strlen(name));
}

const struct parameter *parameter_find(const char *name)
{
    for (enum parameter_prefix prefix = PARAMETER_PLAIN; prefix <= PARAMETER_TRANSPORT; prefix++)
        for (size_t i = 0; *name && i < ROWS; i++)
            if (rows[i].prefix == prefix && is_named(&rows[i], name))
                return &rows[i];
    return NULL;
}

bool parameter_is_off(const struct parameter *p, const char *value)
{
    return !*value || has_word(p->off, '|', value, strlen(value));
}

const char *parameter_class_words(enum parameter_class class)
{
    static const char *const words[] = {
        [PARAMETER_FORBIDS] = "keeps mail in Postfix",
        [PARAMETER_LOOKED_INTO] = "its tables are looked into",
        [PARAMETER_OBEYED] = "obeyed",
        [PARAMETER_GIVEN_UP] = "given up",
        [PARAMETER_BEFORE] = "acts before us",
        [PARAMETER_HARMLESS] = "harmless",
    };
    return words[class];
}
