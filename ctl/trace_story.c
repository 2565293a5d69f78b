#include "ctl/trace_story.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl/row.h"
#include "ctl/trace_event.h"
#include "ctl/trace_line.h"
#include "lib/base/mem.h"
#include "lib/mail/entryid.h"

#define NAMES_MOST 2000
#define MAILS_MOST 100 /* with the Message-ID that is asked for */
#define FOUND_MOST 20000
#define PASSES 12
#define SAME_WITHIN 2000000 /* microseconds: one line, in two logs of a host */
#define FOREIGN_ID_LEAST 8  /* bytes: what is shorter names no mail of a Postfix */

/* ---- names ---- */

static const char *bare(const char *id, size_t *len)
{
    *len = strlen(id);
    if (*id == '<' && *len > 1 && id[*len - 1] == '>') {
        id++;
        *len -= 2;
    }
    return id;
}

static struct trace_name *find(const struct trace_story *t, enum trace_kind kind, const char *text)
{
    size_t len;
    text = bare(text, &len);
    for (size_t i = 0; len && i < t->nnames; i++)
        if (t->name[i].kind == kind && strlen(t->name[i].text) == len &&
            !memcmp(t->name[i].text, text, len))
            return &t->name[i];
    return NULL;
}

size_t trace_story_mail(const struct trace_story *t, enum trace_kind kind, const char *text)
{
    const struct trace_name *name = find(t, kind, text);
    return name ? name->mail : TRACE_NO_MAIL;
}

static void join(struct trace_story *t, size_t from, size_t to)
{
    for (size_t i = 0; i < t->nnames; i++)
        if (t->name[i].mail == from)
            t->name[i].mail = to;
    for (size_t i = 0; i < t->nfound; i++)
        if (t->found[i].mail == from)
            t->found[i].mail = to;
}

size_t trace_story_learn(struct trace_story *t, enum trace_kind kind, const char *text, size_t mail)
{
    struct trace_name *known = find(t, kind, text);
    size_t len;
    text = bare(text, &len);
    if (!len)
        return mail;
    if (known && mail == TRACE_NO_MAIL)
        return known->mail;
    if (known && known->mail != mail && (kind == TRACE_QUEUE_ID || kind == TRACE_ENTRY))
        join(t, mail, known->mail);
    if (known && (known->mail == mail || kind != TRACE_MESSAGE_ID))
        return known->mail;
    for (size_t i = 0; known && i < t->nnames; i++) /* of several mails */
        if (t->name[i].kind == kind && t->name[i].mail == mail &&
            !strcmp(t->name[i].text, known->text))
            return mail;
    if (mail == TRACE_NO_MAIL)
        mail = t->nmails++;
    if (t->nnames == NAMES_MOST) {
        t->too_many = true;
        return mail;
    }
    t->name = mem_grow(t->name, (t->nnames + 1) * sizeof *t->name);
    t->name[t->nnames++] = (struct trace_name){kind, mem_strndup(text, len), mail};
    return mail;
}

static enum trace_kind kind_of(const char *s)
{
    size_t len = strlen(s), hex = strspn(s, "0123456789abcdef");
    return strchr(s, '@') || *s == '<'            ? TRACE_MESSAGE_ID
           : hex == len && len == ENTRYID_HEX - 1 ? TRACE_ENTRY
                                                  : TRACE_QUEUE_ID;
}

void trace_story_begin(struct trace_story *t, const char *asked)
{
    struct timespec now;
    size_t len;
    clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct trace_story){.others = json_array(),
                              .now = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000};
    t->asked.kind = kind_of(asked);
    const char *text = bare(asked, &len);
    t->asked.text = mem_strndup(text, len);
    if (t->asked.kind != TRACE_MESSAGE_ID)
        trace_story_learn(t, t->asked.kind, asked, TRACE_NO_MAIL);
}

static void forget_found(struct trace_story *t)
{
    for (size_t i = 0; i < t->nfound; i++)
        json_decref(t->found[i].event);
    t->nfound = 0;
    json_array_clear(t->others);
}

void trace_story_free(struct trace_story *t)
{
    forget_found(t);
    for (size_t i = 0; i < t->nnames; i++)
        free(t->name[i].text);
    free(t->name);
    free(t->found);
    free(t->asked.text);
    json_decref(t->others);
}

/* ---- whose line it is ---- */

static bool is_event(const json_t *e, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(row_get_text(e, "event"), *words))
            return true;
    return false;
}

/* Of these lines the queue id and the Message-ID are one mail's. */
static const char *const beginnings[] = {"stored", "split", "left", "refused", "headers", NULL};
/* After these the mail goes on under the other queue id. */
static const char *const goes_on[] = {"handed_over", "delivered", "left", NULL};

static bool is_asked(const struct trace_story *t, const char *message_id)
{
    size_t len;
    message_id = bare(message_id, &len);
    return t->asked.kind == TRACE_MESSAGE_ID && len == strlen(t->asked.text) &&
           !memcmp(message_id, t->asked.text, len);
}

static size_t by_next(const struct trace_story *t, const json_t *e)
{
    const char *next = row_get_text(e, "next_queue_id");
    bool on = is_event(e, goes_on) && strlen(next) >= FOREIGN_ID_LEAST;
    return on || !strcmp(row_get_text(e, "event"), "notified")
               ? trace_story_mail(t, TRACE_QUEUE_ID, next)
               : TRACE_NO_MAIL;
}

static size_t mail_of(struct trace_story *t, const json_t *e)
{
    const char *id = row_get_text(e, "queue_id"), *message_id = row_get_text(e, "message_id");
    size_t mail = trace_story_mail(t, TRACE_QUEUE_ID, id);
    if (mail == TRACE_NO_MAIL)
        mail = trace_story_mail(t, TRACE_ENTRY, row_get_text(e, "entry_id"));
    if (mail == TRACE_NO_MAIL)
        mail = trace_story_mail(t, TRACE_QUEUE_ID, row_get_text(e, "orig_queue_id"));
    if (mail == TRACE_NO_MAIL)
        mail = by_next(t, e);
    if (mail == TRACE_NO_MAIL && *id && is_asked(t, message_id) && is_event(e, beginnings)) {
        if (t->nmails == MAILS_MOST) {
            t->too_many = true;
            return TRACE_NO_MAIL;
        }
        mail = trace_story_learn(t, TRACE_QUEUE_ID, id, TRACE_NO_MAIL);
    }
    if (mail == TRACE_NO_MAIL)
        mail = trace_story_mail(t, TRACE_SESSION, row_get_text(e, "session"));
    if (mail == TRACE_NO_MAIL && !*id)
        mail = trace_story_mail(t, TRACE_MESSAGE_ID, message_id);
    return mail;
}

static void learn_all(struct trace_story *t, const json_t *e, size_t mail)
{
    const char *id = row_get_text(e, "queue_id"), *next = row_get_text(e, "next_queue_id");
    bool notice = !strcmp(row_get_text(e, "event"), "notified");
    if (notice && trace_story_mail(t, TRACE_QUEUE_ID, id) != mail)
        return; /* the bounced mail, of which this one is the notice */
    mail = trace_story_learn(t, TRACE_QUEUE_ID, id, mail);
    mail = trace_story_learn(t, TRACE_QUEUE_ID, row_get_text(e, "orig_queue_id"), mail);
    mail = trace_story_learn(t, TRACE_ENTRY, row_get_text(e, "entry_id"), mail);
    if (is_event(e, goes_on) && strlen(next) >= FOREIGN_ID_LEAST)
        mail = trace_story_learn(t, TRACE_QUEUE_ID, next, mail);
    if (*id && is_event(e, beginnings))
        trace_story_learn(t, TRACE_MESSAGE_ID, row_get_text(e, "message_id"), mail);
    if (*id)
        trace_story_learn(t, TRACE_SESSION, row_get_text(e, "session"), mail);
}

static void note_other(struct trace_story *t, const json_t *e)
{
    const char *id = row_get_text(e, "queue_id");
    if (!*id || !is_event(e, beginnings) ||
        trace_story_mail(t, TRACE_MESSAGE_ID, row_get_text(e, "message_id")) == TRACE_NO_MAIL)
        return;
    for (size_t i = 0; i < json_array_size(t->others); i++)
        if (!strcmp(json_string_value(json_array_get(t->others, i)), id))
            return;
    if (json_array_size(t->others) < 100)
        row_append_text(t->others, id);
}

/* ---- reading ---- */

static const char *const in_mailboxes[] = {"saved", "placed", NULL};

static bool is_same(const struct trace_found *f, const json_t *e, size_t source)
{
    if (f->source == source)
        return false;
    int64_t apart = row_get_number(f->event, "at_us") - row_get_number(e, "at_us");
    return apart < SAME_WITHIN && apart > -SAME_WITHIN &&
           !strcmp(row_get_text(f->event, "text"), row_get_text(e, "text")) &&
           !strcmp(row_get_text(f->event, "program"), row_get_text(e, "program"));
}

static void keep(struct trace_story *t, json_t *e, size_t mail, size_t source)
{
    bool known = t->nfound == FOUND_MOST;
    t->too_many |= known;
    for (size_t i = t->nfound; i-- && !known;)
        known = is_same(&t->found[i], e, source);
    if (known) {
        json_decref(e);
        return;
    }
    t->found = mem_grow(t->found, (t->nfound + 1) * sizeof *t->found);
    t->found[t->nfound++] = (struct trace_found){e, mail, source};
}

static void take_in(size_t source, const char *text, size_t len, void *arg)
{
    struct trace_story *t = arg;
    struct trace_line l;
    trace_line_parse(&l, text, len, t->now);
    json_t *e = trace_event_make(&l);
    trace_line_free(&l);
    size_t mail = mail_of(t, e);
    if (mail == TRACE_NO_MAIL) {
        note_other(t, e);
        json_decref(e);
        return;
    }
    learn_all(t, e, mail);
    keep(t, e, mail, source);
}

/* What is looked for in a line as it lies in the log: also as JSON writes it. */
static size_t words_of(const struct trace_story *t, char ***word_r)
{
    char **word = mem_alloc((2 * t->nnames + 2) * sizeof *word);
    size_t n = 0;
    for (size_t i = 0; i <= t->nnames; i++) {
        const char *text = i < t->nnames ? t->name[i].text : t->asked.text;
        word[n++] = mem_strdup(text);
        if (!strpbrk(text, "\"\\"))
            continue;
        json_t *j = row_new();
        row_add_text(j, "text", text);
        char *quoted = json_dumps(json_object_get(j, "text"), JSON_ENCODE_ANY);
        word[n++] = mem_strndup(quoted + 1, strlen(quoted) - 2);
        free(quoted);
        json_decref(j);
    }
    *word_r = word;
    return n;
}

static void read_until_known(struct trace_story *t, struct trace_sources *s)
{
    size_t before;
    int pass = 0;
    do {
        char **word;
        size_t n = words_of(t, &word);
        before = t->nnames;
        forget_found(t);
        trace_sources_read(s, n, word, take_in, t);
        for (size_t i = 0; i < n; i++)
            free(word[i]);
        free(word);
    } while (t->nnames > before && ++pass < PASSES);
    t->too_many |= pass == PASSES;
}

static bool is_of_relay(const char *program)
{
    size_t n = strlen(program), of = strlen("dovelane-relay");
    return n >= of && !strcmp(program + n - of, "dovelane-relay");
}

/* Text lines name hosts, and Dovecot's own not even that. */
static void name_events(struct trace_story *t, const struct trace_sources *s)
{
    for (size_t i = 0; i < t->nfound; i++) {
        json_t *e = t->found[i].event;
        const char *path = s->v[t->found[i].source].path, *host = row_get_text(e, "host");
        const char *program = row_get_text(e, "program");
        bool relay = is_of_relay(program), replica = is_event(e, in_mailboxes);
        if (!*host)
            row_add_text(e, "log", path);
        if ((relay || replica) && !row_has(e, "node"))
            row_add_text(
                e, "node",
                trace_hosts_name(&s->hosts, t->found[i].source, *host ? host : path, replica));
    }
}

void trace_story_read(struct trace_story *t, struct trace_sources *s)
{
    read_until_known(t, s);
    if (!t->nfound && !t->nnames && t->asked.kind == TRACE_MESSAGE_ID) {
        /* Nobody has a queue id for it, and a mailbox may have it all the same. */
        trace_story_learn(t, TRACE_MESSAGE_ID, t->asked.text, TRACE_NO_MAIL);
        read_until_known(t, s);
    }
    name_events(t, s);
}

/* ---- the order of events ---- */

struct ordered {
    json_t *event;
    int64_t at; /* as it is sorted */
};

static int by_time(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return 0;
}

static const char *const stores[] = {"stored", "split", NULL};
static const char *const afterwards[] = {"delivered",   "deferred",     "bounced",
                                         "handed_over", "out_of_order", "retained",
                                         "saved",       "placed",       NULL};

static const struct ordered *storing(const struct ordered *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_event(v[i].event, stores))
            return &v[i];
    return NULL;
}

/* Times of whole seconds: a line that comes after another one in that second goes behind it. */
static void refine(struct ordered *v, size_t n)
{
    const struct ordered *stored = storing(v, n);
    for (size_t i = 0; i < n; i++) {
        const char *session = row_get_text(v[i].event, "session");
        int64_t from = v[i].at, to = from + 1000000;
        if (from % 1000000 || !is_event(v[i].event, afterwards))
            continue;
        if (stored && stored->at >= from && stored->at < to)
            v[i].at = stored->at + 1;
        for (size_t k = 0; *session && k < n; k++)
            if (k != i && v[k].at >= from && v[k].at < to &&
                !strcmp(row_get_text(v[k].event, "session"), session) &&
                !strcmp(row_get_text(v[k].event, "event"), "delivered"))
                v[i].at = v[k].at - 1;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n && !strcmp(row_get_text(v[i].event, "event"), "placed"); k++)
            if (!strcmp(row_get_text(v[k].event, "event"), "saved") && v[i].at <= v[k].at &&
                v[k].at - v[i].at < 1000000)
                v[i].at = v[k].at + 2; /* behind the delivery, which is behind the saving */
}

/* Whose clock it is by: a host's, or that of the log where lines name none. */
static const char *clock_of(const json_t *e)
{
    const char *host = row_get_text(e, "host");
    return *host ? host : row_get_text(e, "log");
}

/* What follows on a mail's storing and has an earlier time was written by a clock that is behind. */
static json_t *compare_clocks(struct ordered *v, size_t n)
{
    const struct ordered *stored = storing(v, n);
    json_t *clocks = json_array();
    for (size_t i = 0; stored && i < n; i++) {
        const char *host = clock_of(v[i].event);
        const char *of = clock_of(stored->event);
        int64_t behind = 0;
        if (!strcmp(host, of) || !is_event(v[i].event, afterwards))
            continue;
        for (size_t k = i; k < n; k++)
            if (!strcmp(clock_of(v[k].event), host) && is_event(v[k].event, afterwards) &&
                stored->at - v[k].at > behind)
                behind = stored->at - v[k].at;
        if (!behind)
            continue;
        for (size_t k = 0; k < n; k++)
            if (!strcmp(clock_of(v[k].event), host))
                v[k].at += behind + 1;
        json_t *row = row_new();
        row_add_text(row, "host", host);
        row_add_text(row, "than", of);
        row_add_real(row, "behind_seconds", (double)behind / 1e6);
        json_array_append_new(clocks, row);
    }
    return clocks;
}

static json_t *names_of(const struct trace_story *t, enum trace_kind kind, size_t mail)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->nnames; i++)
        if (t->name[i].kind == kind && t->name[i].mail == mail)
            row_append_text(list, t->name[i].text);
    return list;
}

static const char *const comes_in[] = {"accepted", "stored", "split", NULL};

/* A queue id that was removed and comes in again is another mail's. Returns how many of the events
 * are the first one's. */
static size_t first_mail(const struct ordered *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; is_event(v[i].event, comes_in) && k < i; k++)
            if (!strcmp(row_get_text(v[k].event, "event"), "removed") &&
                !strcmp(row_get_text(v[k].event, "queue_id"), row_get_text(v[i].event, "queue_id")))
                return i;
    return n;
}

static json_t *gather(struct trace_story *t, size_t mail, const json_t *clocks,
                      const struct ordered *v, size_t n)
{
    json_t *row = row_new(), *events = json_array();
    row_add(row, "queue_ids", names_of(t, TRACE_QUEUE_ID, mail));
    row_add(row, "entry_ids", names_of(t, TRACE_ENTRY, mail));
    row_add(row, "message_ids", names_of(t, TRACE_MESSAGE_ID, mail));
    row_add(row, "clocks", json_deep_copy(clocks));
    for (size_t i = 0; i < n; i++)
        json_array_append(events, v[i].event);
    row_add(row, "events", events);
    return row;
}

json_t *trace_story_events(struct trace_story *t, size_t mail)
{
    struct ordered *v = mem_alloc((t->nfound + 1) * sizeof *v);
    json_t *mails = json_array();
    size_t n = 0;
    for (size_t i = 0; i < t->nfound; i++)
        if (t->found[i].mail == mail)
            v[n++] =
                (struct ordered){t->found[i].event, row_get_number(t->found[i].event, "at_us")};
    qsort(v, n, sizeof *v, by_time);
    refine(v, n);
    json_t *clocks = compare_clocks(v, n);
    qsort(v, n, sizeof *v, by_time);
    for (size_t from = 0, some; from < n; from += some) {
        some = first_mail(v + from, n - from);
        json_array_append_new(mails, gather(t, mail, clocks, v + from, some));
    }
    json_decref(clocks);
    free(v);
    return mails;
}
