/* The codec: docs/envelope.md has the field order. Encoder and decoder walk the same list of
 * fields (the FIELDS macro), so that they cannot drift apart. */
#include "lib/mail/envelope.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* clang-format off */
#define TEXT_FIELDS(X) \
    X(queue_id) X(host) X(sender) X(sender_args) \
    X(client_name) X(client_addr) X(client_port) X(helo) \
    X(protocol) X(login) X(login_method) X(login_sender) \
    X(tls_version) X(tls_cipher) X(tls_bits) X(tls_subject) \
    X(tls_issuer) X(message_id)
/* clang-format on */

/* Times before the year 2200: what is later is no time, and could not be calculated with. */
#define TIME_MOST ((uint64_t)7258118400 * 1000000)

/* ---- check ---- */

static bool in_command(const char *s)
{
    size_t n = 0;
    for (; s && *s; s++, n++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return false;
    return n <= ENVELOPE_TEXT_MAX;
}

const char *envelope_unfit(const struct envelope *e)
{
    if (!in_command(e->sender) || !in_command(e->sender_args))
        return "control characters in the sender or its arguments, or more than 4,096 bytes";
    if (!e->nrecipients)
        return "no recipients";
    if (e->nrecipients > ENVELOPE_RECIPIENTS_MAX)
        return "too many recipients";
    for (size_t i = 0; i < e->nrecipients; i++) {
        const struct recipient *r = &e->recipient[i];
        if (!r->address || !*r->address || !in_command(r->address) || !in_command(r->args))
            return "an empty recipient, control characters in one or its arguments, or more than "
                   "4,096 bytes";
    }
    return NULL;
}

/* ---- encode ---- */

static void put_number(struct buf *b, uint64_t v)
{
    unsigned char out[10];
    size_t n = 0;
    do {
        out[n] = (unsigned char)(v & 0x7f);
        v >>= 7;
        if (v)
            out[n] |= 0x80;
        n++;
    } while (v);
    buf_add(b, out, n);
}

static void put_text(struct buf *b, const char *s)
{
    size_t n = s ? strlen(s) : 0;
    if (n > ENVELOPE_TEXT_MAX)
        n = ENVELOPE_TEXT_MAX;
    put_number(b, n);
    buf_add(b, s, n);
}

static bool any_retained(const struct envelope *e)
{
    for (size_t i = 0; i < e->nrecipients; i++)
        if (e->recipient[i].state == RECIPIENT_RETAINED)
            return true;
    return false;
}

bool envelope_is_retained(const struct envelope *e)
{
    for (size_t i = 0; i < e->nrecipients; i++)
        if (e->recipient[i].state == RECIPIENT_WAITING || e->recipient[i].state == RECIPIENT_FAILED)
            return false;
    return any_retained(e);
}

bool recipient_was_delivered(const struct recipient *r)
{
    return r->state == RECIPIENT_WAITING && r->code / 100 == 2;
}

void envelope_encode(const struct envelope *e, struct buf *b)
{
    bool retained = any_retained(e);
    buf_addc(b, retained   ? ENVELOPE_VERSION_RETAINED
                : e->marks ? ENVELOPE_VERSION_MARKED
                           : ENVELOPE_VERSION);
    put_number(b, (uint64_t)e->arrived);
    put_number(b, e->size);
#define X(field) put_text(b, e->field);
    TEXT_FIELDS(X)
#undef X
    put_number(b, e->nrecipients);
    for (size_t i = 0; i < e->nrecipients; i++) {
        const struct recipient *r = &e->recipient[i];
        put_text(b, r->address);
        put_text(b, r->args);
        put_number(b, r->state);
        if (r->state == RECIPIENT_RETAINED)
            put_number(b, r->site);
        put_number(b, r->attempts);
        put_number(b, r->code);
        put_text(b, r->text);
        put_number(b, (uint64_t)r->last_attempt);
    }
    if (e->marks || retained)
        put_number(b, e->marks);
}

/* ---- decode ---- */

struct in {
    const unsigned char *p, *end;
    unsigned char version;
    const char *wrong; /* the first error; reads after it give 0 and "" */
};

static uint64_t get_number(struct in *in)
{
    uint64_t v = 0;
    for (unsigned shift = 0; !in->wrong; shift += 7) {
        if (in->p == in->end) {
            in->wrong = "truncated number";
            break;
        }
        unsigned char c = *in->p++;
        if (shift == 63 && c > 1) {
            in->wrong = "number above 64 bits";
            break;
        }
        v |= (uint64_t)(c & 0x7f) << shift;
        if (!(c & 0x80))
            return v;
    }
    return 0;
}

static int64_t get_time(struct in *in)
{
    uint64_t t = get_number(in);
    if (!in->wrong && t > TIME_MOST)
        in->wrong = "time out of range";
    return in->wrong ? 0 : (int64_t)t;
}

static char *get_text(struct in *in)
{
    uint64_t n = get_number(in);
    if (!in->wrong && n > ENVELOPE_TEXT_MAX)
        in->wrong = "text too long";
    if (!in->wrong && n > (uint64_t)(in->end - in->p))
        in->wrong = "truncated text";
    if (!in->wrong && memchr(in->p, '\0', (size_t)n))
        in->wrong = "NUL in text";
    if (in->wrong)
        return NULL;
    /* Half of a mail's texts are empty, and an allocation for each would be what reading an
     * envelope costs most. */
    char *s = n ? mem_strndup((const char *)in->p, (size_t)n) : NULL;
    in->p += n;
    return s;
}

static uint32_t get_site(struct in *in)
{
    uint64_t site = get_number(in);
    if (!in->wrong && (!site || site > UINT32_MAX))
        in->wrong = "no number of a site";
    return in->wrong ? 0 : (uint32_t)site;
}

static void get_recipient(struct in *in, struct recipient *r)
{
    r->address = get_text(in);
    r->args = get_text(in);
    uint64_t state = get_number(in);
    if (!in->wrong &&
        state > (in->version == ENVELOPE_VERSION_RETAINED ? RECIPIENT_RETAINED : RECIPIENT_BOUNCED))
        in->wrong = "unknown recipient state";
    r->state = (enum recipient_state)state;
    if (!in->wrong && state == RECIPIENT_RETAINED)
        r->site = get_site(in);
    r->attempts = (uint32_t)get_number(in);
    r->code = (uint32_t)get_number(in);
    r->text = get_text(in);
    r->last_attempt = get_time(in);
}

static void get_recipients(struct in *in, struct envelope *e)
{
    uint64_t n = get_number(in);
    if (!in->wrong && n > ENVELOPE_RECIPIENTS_MAX)
        in->wrong = "too many recipients";
    /* A recipient takes at least 7 bytes: a large count with nothing behind it costs no memory. */
    if (!in->wrong && n > (uint64_t)(in->end - in->p) / 7)
        in->wrong = "truncated recipients";
    if (in->wrong)
        return;
    e->recipient = mem_zero((size_t)n * sizeof *e->recipient);
    e->nrecipients = (size_t)n;
    for (size_t i = 0; i < e->nrecipients && !in->wrong; i++)
        get_recipient(in, &e->recipient[i]);
}

/* One that we do not know may say that the mail must not be delivered. */
static uint32_t get_marks(struct in *in)
{
    uint64_t marks = get_number(in);
    bool none = !marks && in->version == ENVELOPE_VERSION_MARKED;
    if (!in->wrong && (none || marks & ~(uint64_t)ENVELOPE_MARKS))
        in->wrong = "unknown marks";
    return in->wrong ? 0 : (uint32_t)marks;
}

const char *envelope_decode(const void *data, size_t len, struct envelope *e)
{
    *e = (struct envelope){0};
    if (len > ENVELOPE_SIZE_MAX)
        return "envelope too large";
    struct in in = {.p = data, .end = (const unsigned char *)data + len};
    if (in.p == in.end)
        return "empty envelope";
    in.version = *in.p++;
    if (in.version < ENVELOPE_VERSION || in.version > ENVELOPE_VERSION_RETAINED)
        return "unknown version";
    e->arrived = get_time(&in);
    e->size = get_number(&in);
#define X(field) e->field = get_text(&in);
    TEXT_FIELDS(X)
#undef X
    if (!e->sender)
        e->sender = mem_strdup("");
    get_recipients(&in, e);
    if (in.version != ENVELOPE_VERSION)
        e->marks = get_marks(&in);
    if (!in.wrong && in.p != in.end)
        in.wrong = "bytes behind the last field";
    if (in.wrong)
        envelope_free(e);
    return in.wrong;
}

void envelope_free(struct envelope *e)
{
#define X(field) free(e->field);
    TEXT_FIELDS(X)
#undef X
    for (size_t i = 0; i < e->nrecipients; i++) {
        free(e->recipient[i].address);
        free(e->recipient[i].args);
        free(e->recipient[i].text);
    }
    free(e->recipient);
    *e = (struct envelope){0};
}

char *envelope_arg(const char *args, const char *keyword)
{
    size_t k = strlen(keyword);
    for (const char *s = args ? args : ""; *s;) {
        size_t n = strcspn(s, " ");
        if (n >= k && !strncasecmp(s, keyword, k)) {
            if (n == k)
                return mem_strdup("");
            if (s[k] == '=')
                return mem_strndup(s + k + 1, n - k - 1);
        }
        s += n;
        s += strspn(s, " ");
    }
    return NULL;
}
