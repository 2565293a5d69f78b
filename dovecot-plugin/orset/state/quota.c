/* quota - what one peer may put into the tables that all share.
 *
 * Origins, keywords and folders have a bound each (orset.h), because they are held in memory and
 * written out in full to new replicas. Without a share per peer, one that is hostile or broken
 * would fill a table, and nobody else's mail could be taken any more. A row counts for the site
 * whose message first named it, all epochs of the site together: a new epoch is no new share.
 * What this site makes itself is not counted: it makes no more once its table holds
 * ORSET_MAKE_KEYWORDS_MAX or ORSET_MAKE_FOLDERS_MAX, whoever made them, so that it brings no
 * peer more than a share, also where several sites made theirs while they were apart. */
#include "dovecot-plugin/orset/state/quota.h"
#include "dovecot-plugin/orset/base/keywords.h"
#include "dovecot-plugin/orset/base/origins.h"
#include "dovecot-plugin/orset/base/rows.h"
#include "dovecot-plugin/orset/state/folder.h"

static const uint32_t SHARE[ORSET_QUOTAS] = {ORSET_PEER_ORIGINS_MAX, ORSET_PEER_KEYWORDS_MAX,
                                             ORSET_PEER_FOLDERS_MAX};
static const uint32_t TABLE[ORSET_QUOTAS] = {ORSET_ORIGINS_MAX, ORSET_KEYWORDS_MAX,
                                             ORSET_FOLDERS_MAX};
static const char *const NAME[ORSET_QUOTAS] = {"origins", "keywords", "folders"};

int orset_quota_check(struct orset *os, uint16_t by, enum quota q, uint64_t more)
{
    const uint32_t has[ORSET_QUOTAS] = {os->norigins, os->nkeywords, os->nfolders};
    uint64_t site = os->origin[by].id.site, n = more;
    if (more == 0)
        return 0;
    if (has[q] + more > TABLE[q])
        return orset_fail(os, ORSET_E_LIMIT,
                          "there are %u %s already, and more than %u are not held", has[q], NAME[q],
                          TABLE[q]);
    if (site == os->origin[os->self].id.site)
        return 0;
    for (unsigned i = 0; i < os->norigins; i++)
        if (os->origin[i].id.site == site)
            n += os->origin[i].brought[q];
    return n <= SHARE[q] ? 0
                         : orset_fail(os, ORSET_E_LIMIT,
                                      "site %llu brought more than %u %s: look what it does",
                                      (unsigned long long)site, SHARE[q], NAME[q]);
}

uint64_t orset_quota_ahead(const struct orset *os, uint16_t by)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < os->norigins; i++)
        if (os->origin[i].id.site == os->origin[by].id.site)
            n += os->origin[i].ahead;
    return n;
}

static void count_one(struct orset *os, uint16_t by, enum quota q)
{
    os->origin[by].brought[q]++;
    os->origin[by].dirty = true;
}

int orset_bring_origin(struct orset *os, struct orset_origin id, uint16_t by)
{
    int i = orset_find_origin(os, id);
    if (i >= 0)
        return i;
    int r = orset_quota_check(os, by, QUOTA_ORIGINS, 1);
    if (r < 0 || (i = orset_intern_origin(os, id)) < 0)
        return r < 0 ? r : i;
    count_one(os, by, QUOTA_ORIGINS);
    return i;
}

int orset_bring_keyword(struct orset *os, const char *name, size_t len, uint16_t by)
{
    int kw = orset_keyword_find(os, name, len), r;
    if (kw >= 0)
        return kw;
    if ((r = orset_quota_check(os, by, QUOTA_KEYWORDS, 1)) < 0 ||
        (kw = orset_keyword_make(os, name, len)) < 0)
        return r < 0 ? r : kw;
    count_one(os, by, QUOTA_KEYWORDS);
    return kw;
}

struct folder *orset_bring_folder(struct orset *os, struct orset_dot id, uint16_t by)
{
    struct folder *f = orset_folder_find(os, id);
    if (f || orset_quota_check(os, by, QUOTA_FOLDERS, 1) < 0)
        return f;
    f = orset_folder_make(os, id);
    if (f)
        count_one(os, by, QUOTA_FOLDERS);
    return f;
}
