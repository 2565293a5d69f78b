/* kept_verbs - which kept mails an admin means, and the list of them. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/kept/kept.h"
#include "dovecot-plugin/worker/session/link.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <istream.h>
#include <message-header-decode.h>
#include <message-header-parser.h>
#include <str.h>
#include <str-sanitize.h>
#include <strescape.h>
#include <time-util.h>

#include <fcntl.h>
#include <time.h>

#define ROWS_MOST 2000 /* so much of an answer is kept for one who reads slowly */
#define SHOWN_MOST 60  /* characters of a header */
#define HEADER_READ 65536

/* --- a request -------------------------------------------------------------------------------- */

/* "3d": that long ago; "2026-11-28", "2026-11-28 07:30", "2026-11-28T07:30:00": local time; "@":
 * seconds since 1970. */
static bool parse_time(const char *text, time_t *at_r)
{
    static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S",
                                        "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"};
    static const struct {
        char unit;
        unsigned secs;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
    size_t n = strlen(text);
    uint64_t number;
    if (*text == '@' && str_to_uint64(text + 1, &number) == 0) {
        *at_r = (time_t)number;
        return TRUE;
    }
    for (unsigned i = 0; i < N_ELEMENTS(units); i++)
        if (n > 1 && text[n - 1] == units[i].unit &&
            str_to_uint64(t_strndup(text, n - 1), &number) == 0 && number < UINT32_MAX) {
            *at_r = time(NULL) - (time_t)(number * units[i].secs);
            return TRUE;
        }
    for (unsigned i = 0; i < N_ELEMENTS(forms); i++) {
        struct tm tm;
        i_zero(&tm);
        tm.tm_isdst = -1;
        const char *end = strptime(text, forms[i], &tm);
        if (end != NULL && *end == '\0' && (*at_r = mktime(&tm)) != (time_t)-1)
            return TRUE;
    }
    return FALSE;
}

static enum frame_result refuse(struct session *s, const char *why)
{
    link_reply(s->link, "-%s", str_tabescape(why));
    return FRAME_REFUSED;
}

/* An option with a value. 1: it was; 0: it is none of these; -1: answered */
static int parse_value(struct session *s, struct kept_choice *c, const char *name,
                       const char *value)
{
    time_t *at = strcmp(name, "--since") == 0   ? &c->since
                 : strcmp(name, "--until") == 0 ? &c->until
                                                : NULL;
    if (at == NULL && strcmp(name, "--mailbox") != 0 && strcmp(name, "--into") != 0)
        return 0;
    if (value == NULL || *value == '\0') {
        (void)refuse(s, t_strdup_printf("%s needs a value", name));
        return -1;
    }
    if (strcmp(name, "--mailbox") == 0)
        c->mailbox = value;
    else if (strcmp(name, "--into") == 0)
        c->into = value;
    if (at == NULL || parse_time(value, at))
        return 1;
    (void)refuse(s, t_strdup_printf("%s %s is no time: 2026-11-28, \"2026-11-28 07:30\" (local "
                                    "time), 3d (so long ago), or @ and seconds since 1970",
                                    name, value));
    return -1;
}

static int parse_args(struct session *s, const char *const *args, struct kept_choice *c)
{
    i_zero(c);
    for (; *args != NULL && str_begins_with(*args, "--"); args++) {
        int r = parse_value(s, c, args[0], args[1]);
        if (r < 0)
            return -1;
        if (r > 0)
            args++;
        else if (strcmp(*args, "--dry-run") == 0)
            c->dry_run = TRUE;
        else if (strcmp(*args, "--again") == 0)
            c->again = TRUE;
        else {
            (void)refuse(s, t_strdup_printf("%s: there is no such option", *args));
            return -1;
        }
    }
    c->ids = args;
    return 0;
}

/* --- which ------------------------------------------------------------------------------------ */

static bool fits(const struct kept_choice *c, const struct kept_mail *m)
{
    return (c->mailbox == NULL || strcmp(c->mailbox, m->vname) == 0) &&
           (c->since == 0 || m->removed >= c->since) && (c->until == 0 || m->removed < c->until) &&
           (*c->ids == NULL || str_array_find(c->ids, m->id));
}

static const char *unknown_id(const struct kept_choice *c, const ARRAY_TYPE(kept_mail) * all)
{
    const struct kept_mail *m;
    for (const char *const *id = c->ids; *id != NULL; id++) {
        bool found = FALSE;
        array_foreach (all, m)
            found = found || strcmp(m->id, *id) == 0;
        if (!found)
            return *id;
    }
    return NULL;
}

static const char not_here[] =
    "nothing is kept of this user: this site's role is full; a site with role = backup in "
    "dovelane.conf keeps what others remove: ask there";

enum frame_result kept_choose(struct session *s, const char *const *args, pool_t pool,
                              struct kept_choice *c, ARRAY_TYPE(kept_mail) * mails)
{
    const struct kept_mail *m;
    ARRAY_TYPE(kept_mail) all;
    if (parse_args(s, args, c) < 0)
        return FRAME_REFUSED;
    p_array_init(&all, pool, 64);
    p_array_init(mails, pool, 64);
    if (kept_list(s, pool, &all) < 0)
        return FRAME_TEMPORARY;
    if (array_count(&all) == 0 && !s->group->backup)
        return refuse(s, not_here);
    const char *unknown = unknown_id(c, &all);
    if (unknown != NULL)
        return refuse(
            s, t_strdup_printf("%s is no kept mail's id: see doveadm dovelane kept -u", unknown));
    array_foreach (&all, m) {
        if (fits(c, m))
            array_push_back(mails, m);
    }
    return FRAME_OK;
}

/* --- whether they are here -------------------------------------------------------------------- */

static int collect_hash(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    ARRAY_TYPE(kept_hash) *hashes = arg;
    struct kept_hash h;
    (void)own;
    memcpy(h.sha256, m->facts.sha256, sizeof h.sha256);
    if (m->uid != 0) /* another site's word alone is no mail: its bytes may never come */
        array_push_back(hashes, &h);
    return 0;
}

static int by_hash(const struct kept_hash *a, const struct kept_hash *b)
{
    return memcmp(a->sha256, b->sha256, sizeof a->sha256);
}

int kept_alive(struct session *s, ARRAY_TYPE(kept_hash) * hashes)
{
    for (uint32_t i = 0; i < orset_folders(s->os); i++)
        if (orset_each_message(s->os, i, collect_hash, hashes) < 0)
            return session_core_failed(s, "messages");
    array_sort(hashes, by_hash);
    return 0;
}

bool kept_is_alive(ARRAY_TYPE(kept_hash) * hashes, const struct kept_mail *m)
{
    struct kept_hash h;
    memcpy(h.sha256, m->sha256, sizeof h.sha256);
    return array_bsearch(hashes, &h, by_hash) != NULL;
}

/* --- the list --------------------------------------------------------------------------------- */

struct headers {
    const char *from, *subject;
};

/* What came from anywhere goes to a terminal. */
static const char *shown(const struct message_header_line *hdr)
{
    string_t *text = t_str_new(128);
    message_header_decode_utf8(hdr->full_value, hdr->full_value_len, text, NULL);
    return str_sanitize_utf8(str_c(text), SHOWN_MOST);
}

static struct headers read_headers(const struct kept_mail *m)
{
    struct headers h = {"", ""};
    struct message_header_line *hdr;
    int fd = open(m->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd == -1)
        return h;
    struct istream *file = i_stream_create_fd_autoclose(&fd, HEADER_READ);
    struct istream *in = i_stream_create_range(file, m->offset, HEADER_READ);
    struct message_header_parser_ctx *parser = message_parse_header_init(in, NULL, 0);
    while (message_parse_header_next(parser, &hdr) > 0 && !hdr->eoh) {
        const char **value = strcasecmp(hdr->name, "From") == 0      ? &h.from
                             : strcasecmp(hdr->name, "Subject") == 0 ? &h.subject
                                                                     : NULL;
        if (value != NULL && hdr->continues)
            hdr->use_full_value = TRUE;
        else if (value != NULL && **value == '\0')
            *value = shown(hdr);
    }
    message_parse_header_deinit(&parser);
    i_stream_unref(&in);
    i_stream_unref(&file);
    return h;
}

static const char *site_name(struct session *s, uint64_t site)
{
    const char *const *all = t_strsplit_spaces(s->group->replicas, " ");
    const char *number = t_strdup_printf("=%llu", (unsigned long long)site);
    for (; *all != NULL; all++) {
        const char *is = strchr(*all, '=');
        if (is != NULL && strcmp(is, number) == 0)
            return t_strdup_until(*all, is);
    }
    return site == 0 ? "-" : number + 1;
}

static const char *when(time_t at)
{
    return t_strftime("%Y-%m-%d %H:%M:%S", localtime(&at));
}

static void show(struct session *s, const struct kept_mail *m, bool alive)
{
    struct headers h = read_headers(m);
    const char *now = m->restored != 0 ? t_strconcat("put back ", when(m->restored), NULL)
                      : alive          ? "in a mailbox"
                                       : "kept";
    link_reply(s->link, "%s\t%s\t%s\t%s\t%llu\t%s\t%s\t%s\t%s", m->id, when(m->removed),
               str_tabescape(site_name(s, m->site)), str_tabescape(m->vname),
               (unsigned long long)m->size, str_tabescape(t_strarray_join(m->flags, " ")), now,
               str_tabescape(h.from), str_tabescape(h.subject));
}

enum frame_result kept_show(struct session *s, const char *const *args)
{
    struct kept_choice c;
    ARRAY_TYPE(kept_mail) mails;
    ARRAY_TYPE(kept_hash) hashes;
    const struct kept_mail *m;
    unsigned n = 0;
    pool_t pool = pool_alloconly_create("kept mails", 65536);
    enum frame_result result = kept_choose(s, args, pool, &c, &mails);
    i_array_init(&hashes, 64);
    if (result == FRAME_OK && (c.into != NULL || c.dry_run || c.again))
        result = refuse(s, "kept: --into, --dry-run and --again are options of unexpunge");
    if (result == FRAME_OK && array_count(&mails) > 0 && kept_alive(s, &hashes) < 0)
        result = FRAME_TEMPORARY;
    if (result == FRAME_OK) {
        link_reply(s->link, "#\tid\tremoved\tby\tmailbox\tsize\tflags\tnow\tfrom\tsubject");
        array_foreach (&mails, m) {
            if (n++ == ROWS_MOST)
                break;
            T_BEGIN
            {
                show(s, m, kept_is_alive(&hashes, m));
            }
            T_END;
        }
    }
    if (result == FRAME_OK && array_count(&mails) > ROWS_MOST)
        result = refuse(s, t_strdup_printf("%u more are kept: narrow it by --mailbox, --since or "
                                           "--until",
                                           array_count(&mails) - ROWS_MOST));
    array_free(&hashes);
    pool_unref(&pool);
    return result;
}
