/* journal_said - takes the lines apart, and keeps what the last one of each name says. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/logs/journal_said.h"

#include <array.h>
#include <guid.h>
#include <str.h>
#include <strescape.h>

static int by_guid(const struct deletion *a, const struct deletion *b)
{
    return memcmp(a->guid, b->guid, sizeof a->guid);
}

static int by_guid_and_line(const struct deletion *a, const struct deletion *b)
{
    int r = by_guid(a, b);
    return r != 0 ? r : a->at < b->at ? -1 : a->at > b->at;
}

static int by_text(const char *const *a, const char *const *b)
{
    return strcmp(*a, *b);
}

static bool parse_uids(const char *text, struct deletion *d)
{
    const char *end;
    if (str_parse_uint32(text, &d->uid_next, &end) < 0)
        return FALSE;
    return *end == '\0' || (*end == ' ' && str_to_uint32(end + 1, &d->uid_validity) == 0);
}

/* "D", the GUID, the name or none: a deletion begins. "x", the GUID: it failed. "N", the GUID,
 * UIDNEXT, a space, UIDVALIDITY: it was done. FALSE: another line. */
static bool parse_deletion(const char *line, size_t len, struct deletion *d)
{
    char hex[33] = "";
    bool begins = len >= 35 && line[0] == 'D' && line[34] == '\t',
         failed = len == 34 && line[0] == 'x',
         done = len >= 36 && line[0] == 'N' && line[34] == '\t';
    if ((!begins && !failed && !done) || line[1] != '\t')
        return FALSE;
    d->uid_next = d->uid_validity = 0;
    if (done && !parse_uids(t_strndup(line + 35, len - 35), d))
        return FALSE;
    memcpy(hex, line + 2, 32);
    d->times = begins ? 1 : done ? 0 : -1;
    d->vname = begins && len > 35 ? t_str_tabunescape(t_strndup(line + 35, len - 35)) : NULL;
    return guid_128_from_string(hex, d->guid) == 0;
}

/* "S" or "U", "-", the name. */
static bool is_subscription(const char *line, size_t len)
{
    return len > 4 && (line[0] == 'S' || line[0] == 'U') && memcmp(line + 1, "\t-\t", 3) == 0;
}

static void parse_line(struct journal_said *j, const char *line, size_t len)
{
    struct deletion d;
    if (parse_deletion(line, len, &d)) {
        d.at = array_count(&j->deletions);
        array_push_back(&j->deletions, &d);
    } else if (is_subscription(line, len)) {
        const char *said =
            t_strdup_printf("%c%s", line[0], t_str_tabunescape(t_strndup(line + 4, len - 4)));
        array_push_back(&j->subscribed, &said);
    }
}

/* Of each folder one. Each process that fails takes back its own deletion: another one's,
 * before, between or behind, stands. */
static void count_deletions(struct journal_said *j)
{
    unsigned n, bodies = 0;
    array_sort(&j->deletions, by_guid_and_line);
    struct deletion *d = array_get_modifiable(&j->deletions, &n);
    for (unsigned at = 0; at < n; at++) {
        if (bodies == 0 || by_guid(&d[bodies - 1], &d[at]) != 0) {
            d[bodies++] = d[at];
            continue;
        }
        d[bodies - 1].times += d[at].times;
        d[bodies - 1].uid_next = I_MAX(d[bodies - 1].uid_next, d[at].uid_next);
        d[bodies - 1].uid_validity = I_MAX(d[bodies - 1].uid_validity, d[at].uid_validity);
        if (d[at].times > 0)
            d[bodies - 1].vname = d[at].vname;
    }
    array_delete(&j->deletions, bodies, n - bodies);
}

/* The line that ends at lf. After a power loss zeros may stand before it. */
static const char *line_before(const char *at, const char *lf)
{
    const char *zero = memrchr(at, '\0', (size_t)(lf - at));
    return zero == NULL ? at : zero + 1;
}

void journal_said_parse(struct journal_said *j, const void *text, size_t len)
{
    const char *at = text, *end = at + len, *lf;
    array_clear(&j->deletions);
    array_clear(&j->subscribed);
    for (; (lf = memchr(at, '\n', (size_t)(end - at))) != NULL; at = lf + 1) {
        const char *line = line_before(at, lf);
        parse_line(j, line, (size_t)(lf - line));
    }
    count_deletions(j);
    array_sort(&j->subscribed, by_text);
}

static bool is_of(const struct deletion *d, const ARRAY_TYPE(guid_128_t) * folders)
{
    const guid_128_t *guid;
    array_foreach (folders, guid) {
        if (guid_128_equals(*guid, d->guid))
            return TRUE;
    }
    return FALSE;
}

void journal_said_keep(const void *text, size_t len, const ARRAY_TYPE(guid_128_t) * folders,
                       bool names, string_t *bodies)
{
    const char *at = text, *end = at + len, *lf;
    for (; (lf = memchr(at, '\n', (size_t)(end - at))) != NULL; at = lf + 1) {
        const char *line = line_before(at, lf);
        size_t n = (size_t)(lf - line);
        T_BEGIN
        {
            struct deletion d;
            if (parse_deletion(line, n, &d) ? is_of(&d, folders)
                                            : names && is_subscription(line, n))
                str_append_data(bodies, line, n + 1);
        }
        T_END;
    }
}

const struct deletion *journal_said_deleted(struct journal_said *j, const guid_128_t guid)
{
    struct deletion wanted;
    memcpy(wanted.guid, guid, sizeof wanted.guid);
    const struct deletion *d = array_bsearch(&j->deletions, &wanted, by_guid);
    return d != NULL && d->times > 0 ? d : NULL;
}

bool journal_said_subscription(struct journal_said *j, const char *vname, bool on)
{
    const char *wanted = t_strconcat(on ? "S" : "U", vname, NULL);
    return array_bsearch(&j->subscribed, &wanted, by_text) != NULL;
}

void journal_said_init(struct journal_said *j)
{
    i_array_init(&j->deletions, 64);
    t_array_init(&j->subscribed, 8);
}

void journal_said_free(struct journal_said *j)
{
    array_free(&j->deletions);
}
