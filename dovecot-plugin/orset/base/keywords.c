/* keywords - the table of keywords, which flags name by number. */
#include "dovecot-plugin/orset/base/keywords.h"
#include "dovecot-plugin/orset/base/rows.h"

#include <string.h>

static uint64_t keyword_hash(const char *name, size_t len)
{
    uint8_t low[ORSET_KEYWORD_MAX];
    for (size_t i = 0; i < len; i++)
        low[i] = (uint8_t)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
    return orset_hash(low, len).lo;
}

static bool same_keyword(const struct keyword *k, const char *name, size_t len, uint64_t hash)
{
    if (k->hash != hash || k->len != len)
        return false;
    for (size_t i = 0; i < len; i++) {
        char a = k->name[i], b = name[i];
        if ((a >= 'A' && a <= 'Z' ? a + 32 : a) != (b >= 'A' && b <= 'Z' ? b + 32 : b))
            return false;
    }
    return true;
}

static int keyword_cache(struct orset *os, const char *name, size_t len, uint64_t hash)
{
    struct keyword *k = orset_mem(os, os->keyword, (os->nkeywords + 1u) * sizeof *k);
    if (!k)
        return ORSET_E_MEMORY;
    os->keyword = k;
    char *copy = orset_mem(os, NULL, len + 1);
    if (!copy)
        return ORSET_E_MEMORY;
    memcpy(copy, name, len);
    copy[len] = '\0';
    k[os->nkeywords] = (struct keyword){copy, len, hash};
    return os->nkeywords++;
}

bool orset_keyword_valid(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)name[i] <= ' ' || name[i] == 0x7f)
            return false;
    return n > 0;
}

int orset_keyword_find(const struct orset *os, const char *name, size_t len)
{
    if (len > ORSET_KEYWORD_MAX)
        return -1;
    uint64_t hash = keyword_hash(name, len);
    for (int i = 0; i < os->nkeywords; i++)
        if (same_keyword(&os->keyword[i], name, len, hash))
            return i;
    return -1;
}

int orset_keyword(struct orset *os, const char *name, size_t len)
{
    int i = orset_keyword_find(os, name, len);
    if (i < 0 && os->nkeywords >= ORSET_MAKE_KEYWORDS_MAX)
        return orset_fail(os, ORSET_E_LIMIT, "this user has %d keywords, and a site makes no more",
                          os->nkeywords);
    return i >= 0 ? i : orset_keyword_make(os, name, len);
}

int orset_keyword_make(struct orset *os, const char *name, size_t len)
{
    if (len == 0 || len > ORSET_KEYWORD_MAX)
        return orset_fail(os, ORSET_E_LIMIT, "a keyword of %zu bytes; 1 to %d are possible", len,
                          ORSET_KEYWORD_MAX);
    int i = orset_keyword_find(os, name, len);
    if (i >= 0)
        return i;
    int r = orset_need_transaction(os);
    if (r < 0)
        return r;
    if (os->nkeywords >= ORSET_KEYWORDS_MAX)
        return orset_fail(os, ORSET_E_LIMIT, "keyword %.*s: there are %d already", (int)len, name,
                          ORSET_KEYWORDS_MAX);
    struct orset_key key = {0};
    orset_key_num(&key, os->nkeywords);
    if (os->store.put(os->store.ctx, ORSET_T_KEYWORD, key.b, key.n, name, len) < 0)
        return orset_storage_fail(os, "keyword");
    return keyword_cache(os, name, len, keyword_hash(name, len));
}

const char *orset_keyword_name(const struct orset *os, uint16_t i, size_t *len)
{
    if (i >= os->nkeywords)
        return NULL;
    *len = os->keyword[i].len;
    return os->keyword[i].name;
}

uint64_t orset_flag_hash(const struct orset *os, uint16_t flag)
{
    return flag < ORSET_SYSTEM_FLAGS ? flag
                                     : os->keyword[flag - ORSET_SYSTEM_FLAGS].hash | 1ULL << 63;
}

size_t orset_keywords(const struct orset *os)
{
    return os->nkeywords;
}

/* --- their rows */

static int read_keyword(void *arg, const uint8_t *key, size_t key_len, const uint8_t *v, size_t len)
{
    struct orset *os = arg;
    struct orset_reader k = orset_reader_of(key, key_len);
    uint64_t index = orset_key_read(&k, ORSET_KEYWORDS_MAX);
    if (k.bad || index != os->nkeywords || index >= ORSET_KEYWORDS_MAX || len == 0 ||
        len > ORSET_KEYWORD_MAX)
        return orset_corrupt(os, "a keyword's row");
    return keyword_cache(arg, (const char *)v, len, keyword_hash((const char *)v, len)) < 0 ? -1
                                                                                            : 0;
}

int orset_keywords_read(struct orset *os)
{
    if (os->store.each(os->store.ctx, ORSET_T_KEYWORD, "", 0, 0, read_keyword, os) < 0)
        return orset_storage_fail(os, "keywords cannot be read");
    return 0;
}

void orset_keywords_free(struct orset *os)
{
    for (int i = 0; i < os->nkeywords; i++)
        os->alloc.resize(os->alloc.ctx, os->keyword[i].name, 0);
    if (os->keyword)
        os->alloc.resize(os->alloc.ctx, os->keyword, 0);
    os->keyword = NULL;
    os->nkeywords = 0;
}
