/* survey_read - finds the users of a survey, and reads one of them. It may come from another
 * host: each line is held to its form, and nothing of a wrong file is used. */
#include "dovecot-plugin/compare/survey.h"

#include "dovecot-plugin/orset/orset.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS_MOST 5

struct place {
    char *name;
    off_t at; /* of the line behind U */
    size_t line;
};

struct survey {
    char *path, *host;
    FILE *file;
    size_t n, room, line;
    struct place *user;
    char *text; /* the line in work, its fields ended by NULs */
    size_t text_room;
    char *field[FIELDS_MOST];
    size_t fields;
};

static int wrong(const struct survey *s, char **error_r, const char *form, ...)
    __attribute__((format(printf, 3, 4)));

static int wrong(const struct survey *s, char **error_r, const char *form, ...)
{
    char why[256];
    va_list args;
    va_start(args, form);
    vsnprintf(why, sizeof why, form, args);
    va_end(args);
    if (asprintf(error_r, "%s:%zu: %s", s->path, s->line, why) < 0)
        *error_r = NULL;
    return -1;
}

/* --- lines ------------------------------------------------------------------------------------ */

/* What is told of a line goes to a terminal. */
static bool is_text(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (((unsigned char)line[i] < 0x20 && line[i] != '\t') || line[i] == 0x7f)
            return false;
    }
    return true;
}

/* 1; 0: the file's end; -1 */
static int next_line(struct survey *s, char **error_r)
{
    ssize_t n = getline(&s->text, &s->text_room, s->file);
    if (n < 0)
        return ferror(s->file) ? wrong(s, error_r, "cannot be read: %s", strerror(errno)) : 0;
    s->line++;
    if (s->text[n - 1] != '\n' || !is_text(s->text, (size_t)n - 1))
        return wrong(s, error_r, "the line is cut, or is no text");
    s->text[n - 1] = '\0';
    s->fields = 0;
    for (char *at = s->text; at; at = strchr(at, '\t')) {
        if (at != s->text)
            *at++ = '\0';
        if (s->fields == FIELDS_MOST)
            return wrong(s, error_r, "it has too many fields");
        s->field[s->fields++] = at;
    }
    return 1;
}

static bool is_line(const struct survey *s, const char *kind, size_t fields)
{
    return s->fields == fields && !strcmp(s->field[0], kind);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool take_hex(const char *text, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int high = hex_digit(text[2 * i]), low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);
        if (low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return text[2 * n] == '\0';
}

static bool take_number(const char *text, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    *out = n;
    return *text >= '0' && *text <= '9' && !*end && errno == 0 && n <= most;
}

/* In place. FALSE: a % is not followed by two digits. */
static bool unescape(char *text, size_t *len, char divider)
{
    char *out = text;
    for (char *at = text; *at; at++) {
        int high = *at == '%' ? hex_digit(at[1]) : 0, low = high < 0 ? -1 : 0;
        if (*at == '%' && low == 0)
            low = hex_digit(at[2]);
        if (high < 0 || low < 0)
            return false;
        if (*at == '%') {
            *out++ = (char)(high << 4 | low);
            at += 2;
        } else {
            *out++ = (char)(divider != '\0' && *at == divider ? '\0' : *at);
        }
    }
    *out = '\0';
    *len = (size_t)(out - text);
    return true;
}

/* --- the file --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct place *)a)->name, ((const struct place *)b)->name);
}

static int add_user(struct survey *s, char **error_r)
{
    size_t len, room = s->room ? 2 * s->room : 64;
    struct place *more = s->n < s->room ? s->user : realloc(s->user, room * sizeof *more);
    if (!more)
        return wrong(s, error_r, "no memory");
    if (more != s->user || s->n == s->room)
        s->room = room;
    s->user = more;
    if (!unescape(s->field[1], &len, '\0') || !is_text(s->field[1], len) ||
        strchr(s->field[1], '\t'))
        return wrong(s, error_r, "the user's name cannot be read");
    struct place *u = &s->user[s->n];
    *u = (struct place){strdup(s->field[1]), ftello(s->file), s->line};
    if (!u->name)
        return wrong(s, error_r, "no memory");
    s->n++;
    return 0;
}

static int read_head(struct survey *s, char **error_r)
{
    int r = next_line(s, error_r);
    if (r < 0)
        return -1;
    if (r == 0 || !is_line(s, "dovelane-survey", 3))
        return wrong(s, error_r, "this is no file of `doveadm dovelane survey`");
    if (strcmp(s->field[1], "1") != 0)
        return wrong(s, error_r,
                     "the survey's form is %s, and this program knows 1: let both "
                     "sites have one version of Dovelane",
                     s->field[1]);
    s->host = strdup(s->field[2]);
    return s->host ? 0 : wrong(s, error_r, "no memory");
}

static int find_users(struct survey *s, char **error_r)
{
    uint64_t users;
    bool ended = false;
    int r = read_head(s, error_r);
    while (r == 0 && (r = next_line(s, error_r)) > 0) {
        r = 0;
        if (ended)
            r = wrong(s, error_r, "something stands behind the end");
        else if (is_line(s, "U", 2))
            r = add_user(s, error_r);
        else if (is_line(s, "end", 2))
            ended = true;
        if (ended && r == 0 && (!take_number(s->field[1], SIZE_MAX, &users) || users != s->n))
            r = wrong(s, error_r, "it has %zu users, and should have %s", s->n, s->field[1]);
    }
    if (r == 0 && !ended)
        r = wrong(s, error_r, "the survey was cut short: it has no end; make it again");
    if (r == 0 && s->n)
        qsort(s->user, s->n, sizeof *s->user, by_name);
    for (size_t i = 1; r == 0 && i < s->n; i++)
        if (!strcmp(s->user[i].name, s->user[i - 1].name)) {
            s->line = s->user[i].line;
            r = wrong(s, error_r, "%s is there twice", s->user[i].name);
        }
    return r;
}

struct survey *survey_open(const char *path, char **error_r)
{
    struct survey *s = calloc(1, sizeof *s);
    *error_r = NULL;
    if (!s)
        return NULL;
    s->path = strdup(path);
    s->file = s->path ? fopen(path, "re") : NULL;
    if (s->file && find_users(s, error_r) == 0)
        return s;
    if (!s->file && asprintf(error_r, "%s: %s", path, strerror(errno)) < 0)
        *error_r = NULL;
    survey_close(s);
    return NULL;
}

void survey_close(struct survey *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        free(s->user[i].name);
    free(s->user);
    free(s->text);
    free(s->path);
    free(s->host);
    if (s->file)
        fclose(s->file);
    free(s);
}

const char *survey_host(const struct survey *s)
{
    return s->host;
}

size_t survey_users(const struct survey *s)
{
    return s->n;
}

const char *survey_user_name(const struct survey *s, size_t i)
{
    return s->user[i].name;
}

/* --- a user ----------------------------------------------------------------------------------- */

static int take_folder(struct survey *s, struct survey_user *u, char **error_r)
{
    uint64_t validity, next;
    size_t len;
    char *name = s->field[1];
    bool inbox = !strcmp(name, "-");
    if ((u->n & (u->n - 1)) == 0) {
        struct survey_folder *more = realloc(u->folder, (u->n ? 2 * u->n : 1) * sizeof *more);
        if (!more)
            return wrong(s, error_r, "no memory");
        u->folder = more;
    }
    struct survey_folder *f = &u->folder[u->n];
    *f = (struct survey_folder){0};
    if (!unescape(name, &len, '/') || !take_hex(s->field[2], f->guid, sizeof f->guid) ||
        !take_number(s->field[3], UINT32_MAX, &validity) ||
        !take_number(s->field[4], UINT32_MAX, &next) || next == 0)
        return wrong(s, error_r, "the folder's line cannot be read");
    f->uid_validity = (uint32_t)validity;
    f->uid_next = (uint32_t)next;
    f->name = inbox ? NULL : malloc(len + 1);
    if (!inbox && !f->name)
        return wrong(s, error_r, "no memory");
    if (!inbox)
        memcpy(f->name, name, len + 1);
    f->name_len = inbox ? 0 : len;
    u->n++;
    return 0;
}

static int take_mail(struct survey *s, struct survey_user *u, char **error_r)
{
    uint64_t uid;
    struct survey_folder *f = u->n ? &u->folder[u->n - 1] : NULL;
    if (!f)
        return wrong(s, error_r, "a mail stands before any folder");
    if ((f->n & (f->n - 1)) == 0) {
        struct survey_mail *more = realloc(f->mail, (f->n ? 2 * f->n : 1) * sizeof *more);
        if (!more)
            return wrong(s, error_r, "no memory");
        f->mail = more;
    }
    struct survey_mail *m = &f->mail[f->n];
    if (!take_number(s->field[1], UINT32_MAX, &uid) || uid == 0 ||
        !take_hex(s->field[2], m->guid, sizeof m->guid) ||
        !take_hex(s->field[3], m->sha256, sizeof m->sha256))
        return wrong(s, error_r, "the mail's line cannot be read");
    m->uid = (uint32_t)uid;
    if (f->n && m->uid <= m[-1].uid)
        return wrong(s, error_r, "its UID is not above the one before");
    f->n++;
    return 0;
}

int survey_read(struct survey *s, size_t i, struct survey_user *u, char **error_r)
{
    int r;
    *u = (struct survey_user){.name = s->user[i].name};
    *error_r = NULL;
    s->line = s->user[i].line;
    if (fseeko(s->file, s->user[i].at, SEEK_SET) < 0)
        return wrong(s, error_r, "cannot be read: %s", strerror(errno));
    while ((r = next_line(s, error_r)) > 0 && !is_line(s, "U", 2) && !is_line(s, "end", 2)) {
        if (is_line(s, "F", 5))
            r = take_folder(s, u, error_r);
        else if (is_line(s, "M", 4))
            r = take_mail(s, u, error_r);
        else if (!is_line(s, "X", 2))
            r = wrong(s, error_r, "a line of no known kind");
        else if (!u->failed && !(u->failed = strdup(s->field[1])))
            r = wrong(s, error_r, "no memory");
        if (r < 0)
            break;
    }
    if (r >= 0)
        return 0;
    survey_user_free(u);
    return -1;
}

void survey_user_free(struct survey_user *u)
{
    for (size_t i = 0; i < u->n; i++) {
        free(u->folder[i].name);
        free(u->folder[i].mail);
    }
    free(u->folder);
    free(u->failed);
    *u = (struct survey_user){0};
}
