/* The file's text before libconfuse has it. Its scanner counts each comment as three lines, so
 * that errors named the wrong ones, and of a setting that stands twice its parser takes the last
 * without a word. Words, quotes and comments are told apart here as that scanner does it. */
#include "lib/config/config_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum token { TOKEN_END, TOKEN_WORD, TOKEN_SIGN, TOKEN_OPEN };

struct scan {
    char *at;
    int line;
    char *word; /* what the last token was; of a quoted one with its quotes */
    size_t len;
    int began; /* the line of it */
};

static const char ends_word[] = " #\"'\t\n\r={}()+,*";

static void pass(struct scan *s, size_t n)
{
    for (; n && *s->at; n--)
        s->line += *s->at++ == '\n';
}

/* The blanks in their place keep the lines. */
static void blank(struct scan *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s->at[i] != '\n')
            s->at[i] = ' ';
    pass(s, n);
}

/* "${NAME}", or "${NAME:-default}" with whatever is in it. */
static size_t variable(const char *at)
{
    const char *end = at[0] == '$' && at[1] == '{' ? strchr(at, '}') : NULL;
    return end ? (size_t)(end + 1 - at) : 0;
}

/* Behind the closing quote, or the text's end. */
static size_t quoted(const char *at)
{
    const char quote = *at, *end = at + 1;
    while (*end && *end != quote) {
        size_t n = quote == '"' ? variable(end) : 0;
        end += n ? n : *end == '\\' && end[1] ? 2 : 1;
    }
    return (size_t)(end - at) + (*end == quote);
}

static enum token next(struct scan *s)
{
    for (;;) {
        const char *close;
        pass(s, strspn(s->at, " \t\r\n"));
        s->word = s->at;
        s->began = s->line;
        s->len = 1;
        if (!*s->at)
            return TOKEN_END;
        if (*s->at == '#' || !strncmp(s->at, "//", 2)) {
            blank(s, strcspn(s->at, "\n"));
            continue;
        }
        if (!strncmp(s->at, "/*", 2)) {
            if (!(close = strstr(s->at + 2, "*/")))
                return TOKEN_OPEN;
            blank(s, (size_t)(close + 2 - s->at));
            continue;
        }
        if (*s->at == '"' || *s->at == '\'')
            s->len = quoted(s->at);
        else if (!(s->len = variable(s->at)) && !(s->len = strcspn(s->at, ends_word)))
            s->len = strncmp(s->at, "+=", 2) ? 1 : 2;
        pass(s, s->len);
        return strchr("={}()+,*", *s->word) ? TOKEN_SIGN : TOKEN_WORD;
    }
}

char *config_text_uncomment(const char *path, char *text)
{
    struct scan s = {.at = text, .line = 1};
    enum token t;
    do
        t = next(&s);
    while (t != TOKEN_END && t != TOKEN_OPEN);
    return t == TOKEN_OPEN
               ? mem_printf("%s:%d: the comment that begins here is not closed: a */ is missing",
                            path, s.began)
               : NULL;
}

/* ---- sections with one title ---- */

/* The title that was read last, with the number behind it: in its quotes, or in new ones. */
static void number_title(struct buf *out, const struct scan *s, unsigned number)
{
    bool quotes = *s->word == '"' || *s->word == '\'';
    buf_printf(out, "%s%.*s" CONFIG_TEXT_APART "%u%c", quotes ? "" : "\"", (int)s->len - quotes,
               s->word, number, quotes ? *s->word : '"');
}

char *config_text_apart(const char *text)
{
    char *copy = mem_strdup(text);
    struct scan s = {.at = copy, .line = 1};
    struct buf out = {0};
    const char *from = copy;
    unsigned number = 0;
    bool value = false; /* of a setting: not the name of a section */
    for (enum token t = next(&s); t != TOKEN_END && t != TOKEN_OPEN;) {
        bool section = t == TOKEN_WORD && !value && s.len == 5 && !strncmp(s.word, "shape", 5);
        value = t == TOKEN_SIGN && s.word[s.len - 1] == '=';
        t = next(&s);
        if (!section || t != TOKEN_WORD)
            continue;
        buf_add(&out, from, (size_t)(s.word - from));
        number_title(&out, &s, ++number);
        from = s.word + s.len;
        t = next(&s);
    }
    buf_adds(&out, from);
    free(copy);
    return out.data ? out.data : mem_strdup("");
}

/* ---- settings that stand twice ---- */

struct seen {
    const char *name;
    size_t len;
    int line;
};

struct walk {
    struct scan s;
    struct seen *seen; /* of the section it is in follow those outside */
    size_t n, outside;
    struct seen section; /* len 0: outside */
};

/* With = what was said before does not count any more; += adds to it. */
static char *setting(struct walk *w, const char *path, struct seen is, bool adds)
{
    for (size_t i = w->section.len ? w->outside : 0; i < w->n; i++) {
        const struct seen *was = &w->seen[i];
        if (was->len != is.len || strncmp(was->name, is.name, is.len))
            continue;
        if (adds)
            return NULL;
        return mem_printf("%s:%d: %.*s is set a second time%s%.*s: line %d has it already, take "
                          "one of the two out",
                          path, is.line, (int)is.len, is.name, w->section.len ? " in section " : "",
                          (int)w->section.len, w->section.len ? w->section.name : "", was->line);
    }
    w->seen = mem_grow(w->seen, (w->n + 1) * sizeof *w->seen);
    w->seen[w->n++] = is;
    return NULL;
}

static bool is_sign(const struct walk *w, enum token t, const char *sign)
{
    return t == TOKEN_SIGN && w->s.len == strlen(sign) && !strncmp(w->s.word, sign, w->s.len);
}

static enum token pass_value(struct walk *w)
{
    enum token t = next(&w->s);
    bool list = is_sign(w, t, "{");
    while (list && t != TOKEN_END && !is_sign(w, t, "}"))
        t = next(&w->s);
    return t;
}

/* A name was read, and what follows it is. */
static char *statement(struct walk *w, const char *path)
{
    struct seen name = {w->s.word, w->s.len, w->s.began};
    enum token t = next(&w->s);
    bool adds = is_sign(w, t, "+=");
    if (adds || is_sign(w, t, "=")) {
        pass_value(w);
        return setting(w, path, name, adds);
    }
    while (t == TOKEN_WORD) { /* its title */
        name.len = (size_t)(w->s.word + w->s.len - name.name);
        t = next(&w->s);
    }
    w->section = name;
    w->outside = w->n;
    return NULL;
}

char *config_text_twice(const char *path, char *text)
{
    struct walk w = {.s = {.at = text, .line = 1}};
    char *error = NULL;
    enum token t;
    while (!error && (t = next(&w.s)) != TOKEN_END && t != TOKEN_OPEN) {
        if (t == TOKEN_WORD) {
            error = statement(&w, path);
        } else if (is_sign(&w, t, "}") && w.section.len) {
            w.section.len = 0;
            w.n = w.outside;
        }
    }
    free(w.seen);
    return error;
}
