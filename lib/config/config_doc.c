/* config-doc - writes the sample dovelane.conf, the man page dovelane.conf(5) or docs/settings.md
 * from settings.def.
 *
 * config-doc sample | config-doc man | config-doc markdown */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/units.h"
#include "lib/shape/shape_rules.h"

enum kind {
    KIND_HEAD,
    KIND_INT,
    KIND_TIME,
    KIND_SIZE,
    KIND_WORD,
    KIND_TEXT,
    KIND_LIST,
    KIND_NODE_TEXT,
    KIND_REPLICA,
    KIND_SHAPE,
    KIND_CLASS_LIST,
    KIND_CLASS_INT,
    KIND_DESTINATION_WORD,
    KIND_DESTINATION_TEXT,
    KIND_DESTINATION_LIST,
    KIND_DESTINATION_INT,
    KIND_DESTINATION_TIME
};

static const struct setting {
    enum kind kind;
    const char *name; /* or the heading */
    long long value, least, most;
    const char *text; /* default text, unit or words */
    const char *help;
} settings[] = {
#define HEAD(title) {KIND_HEAD, title, 0, 0, 0, "", ""},
#define INT(name, unit, def, least, most, help) {KIND_INT, #name, def, least, most, unit, help},
#define TIME(name, def, least, most, help) {KIND_TIME, #name, def, least, most, "", help},
#define SIZE(name, def, least, most, help) {KIND_SIZE, #name, def, least, most, "", help},
#define WORD(name, def, words, help) {KIND_WORD, #name, def, 0, 0, words, help},
#define TEXT(name, def, help) {KIND_TEXT, #name, 0, 0, 0, def, help},
#define LIST(name, help) {KIND_LIST, #name, 0, 0, 0, "", help},
#define NODE_TEXT(name, def, help) {KIND_NODE_TEXT, #name, 0, 0, 0, def, help},
#define REPLICA_TEXT(name, def, help) {KIND_REPLICA, #name, 0, 0, 0, def, help},
#define REPLICA_INT(name, unit, least, most, help) {KIND_REPLICA, #name, 0, least, most, "", help},
#define SHAPE(name, help) {KIND_SHAPE, #name, 0, 0, 0, "", help},
#define CLASS_LIST(name, help) {KIND_CLASS_LIST, #name, 0, 0, 0, "", help},
#define CLASS_INT(name, unit, def, least, most, help) \
    {KIND_CLASS_INT, #name, def, least, most, unit, help},
#define DESTINATION_WORD(name, def, words, help) \
    {KIND_DESTINATION_WORD, #name, def, 0, 0, words, help},
#define DESTINATION_TEXT(name, def, help) {KIND_DESTINATION_TEXT, #name, 0, 0, 0, def, help},
#define DESTINATION_LIST(name, words, help) {KIND_DESTINATION_LIST, #name, 0, 0, 0, words, help},
#define DESTINATION_INT(name, unit, def, least, most, help) \
    {KIND_DESTINATION_INT, #name, def, least, most, unit, help},
#define DESTINATION_TIME(name, def, least, most, help) \
    {KIND_DESTINATION_TIME, #name, def, least, most, "", help},
#include "lib/config/settings.def"
};
#define SETTINGS (sizeof settings / sizeof *settings)

static bool is_class(const struct setting *s)
{
    return s->kind == KIND_CLASS_LIST || s->kind == KIND_CLASS_INT;
}

/* The section that a setting stands in, NULL for none. */
static const char *section(const struct setting *s)
{
    return s->kind == KIND_NODE_TEXT          ? "node"
           : s->kind == KIND_REPLICA          ? "replica"
           : s->kind == KIND_SHAPE            ? "shape"
           : is_class(s)                      ? "class"
           : s->kind >= KIND_DESTINATION_WORD ? "destination"
                                              : NULL;
}

static bool has_default(const struct setting *s)
{
    return s->kind != KIND_NODE_TEXT && s->kind != KIND_REPLICA && s->kind != KIND_SHAPE &&
           s->kind != KIND_CLASS_LIST;
}

/* ---- values and ranges as one writes them ---- */

static void number(char *out, size_t size, enum kind kind, long long v)
{
    bool time = kind == KIND_TIME || kind == KIND_DESTINATION_TIME;
    char text[UNITS_TEXT];
    if (kind == KIND_INT || kind == KIND_CLASS_INT || kind == KIND_DESTINATION_INT)
        snprintf(out, size, "%lld", v);
    else
        snprintf(out, size, "%s", time ? units_time_text(text, v) : units_size_text(text, v));
}

static void default_value(const struct setting *s, char *out, size_t size)
{
    const char *word = s->text;
    switch (s->kind) {
    case KIND_INT:
    case KIND_CLASS_INT:
    case KIND_DESTINATION_INT:
    case KIND_DESTINATION_TIME:
    case KIND_TIME:
    case KIND_SIZE: number(out, size, s->kind, s->value); return;
    case KIND_DESTINATION_WORD:
    case KIND_WORD:
        for (long long i = 0; i < s->value; i++)
            word += strcspn(word, "|") + 1;
        snprintf(out, size, "%.*s", (int)strcspn(word, "|"), word);
        return;
    case KIND_DESTINATION_LIST:
    case KIND_LIST: snprintf(out, size, "{}"); return;
    default: snprintf(out, size, "\"%s\"", s->text);
    }
}

static void range(const struct setting *s, char *out, size_t size)
{
    char least[32], most[32];
    *out = '\0';
    if (s->kind == KIND_WORD || s->kind == KIND_DESTINATION_WORD) {
        snprintf(out, size, "one of %s", s->text);
    } else if (s->kind == KIND_DESTINATION_LIST) {
        snprintf(out, size, "a list of %s", s->text);
    } else if (s->kind == KIND_LIST || s->kind == KIND_CLASS_LIST) {
        snprintf(out, size, "a list: { \"one\", \"two\" }");
    } else if (s->kind == KIND_SHAPE) {
        const char *like = shape_word_like(s->name);
        snprintf(out, size, "%s", like ? like : "a class's name");
    } else if (s->kind == KIND_REPLICA && s->most) {
        snprintf(out, size, "%lld to %lld", s->least, s->most);
    } else if (s->kind == KIND_INT || s->kind == KIND_TIME || s->kind == KIND_SIZE ||
               s->kind == KIND_CLASS_INT || s->kind == KIND_DESTINATION_INT ||
               s->kind == KIND_DESTINATION_TIME) {
        number(least, sizeof least, s->kind, s->least);
        number(most, sizeof most, s->kind, s->most);
        snprintf(out, size, "%s to %s%s%s", least, most, *s->text ? " " : "", s->text);
    }
}

/* ---- the three forms ---- */

static void wrapped(const char *prefix, const char *text)
{
    size_t column = 0;
    for (const char *s = text; *s;) {
        size_t n = strcspn(s, " ");
        if (column && column + n + 1 > 100) {
            putchar('\n');
            column = 0;
        }
        column += (size_t)printf("%s%.*s", column ? " " : prefix, (int)n, s);
        s += n;
        s += strspn(s, " ");
    }
    putchar('\n');
}

static void sample(const struct setting *s, const char *value, const char *limits)
{
    if (s->kind == KIND_HEAD) {
        printf("#### %s\n\n", s->name);
        return;
    }
    wrapped("# ", s->help);
    if (*limits)
        printf("# (%s)\n", limits);
    if (s->kind == KIND_REPLICA)
        printf("#replica site-a { %s = ... }\n\n", s->name);
    else if (s->kind == KIND_NODE_TEXT && strcmp(s->name, "redis"))
        printf("#node mx1 { %s = ... }\n\n", s->name);
    else if (s->kind == KIND_NODE_TEXT)
        printf("#node mx1 { %s = \"10.0.0.1:7001\" }\n#node mx2 { %s = \"10.0.0.2:7001\" }\n\n",
               s->name, s->name);
    else if (s->kind == KIND_SHAPE)
        printf("#shape \"smtp:[mx1.example.net]:25\" { %s = ... }\n\n", s->name);
    else if (is_class(s))
        printf("#class bulk { %s = %s }\n\n", s->name, has_default(s) ? value : "...");
    else if (section(s))
        printf("#destination \"lmtp:[10.0.0.5]:24\" { %s = %s }\n\n", s->name, value);
    else
        printf("#%s = %s\n\n", s->name, value);
}

/* Characters that the form would take for its own get a backslash. */
static void escaped(const char *s, const char *special)
{
    for (; *s; s++) {
        if (strchr(special, *s))
            putchar('\\');
        putchar(*s);
    }
}

static void man(const struct setting *s, const char *value, const char *limits)
{
    if (s->kind == KIND_HEAD) {
        printf(".SH %s\n", s->name);
        return;
    }
    if (section(s))
        printf(".TP\n.B %s NAME { %s = ... }\n", section(s), s->name);
    else
        printf(".TP\n.B %s\n", s->name);
    if (has_default(s)) {
        printf("(default: ");
        escaped(value, "\\-");
        if (*limits) {
            printf("; ");
            escaped(limits, "\\-");
        }
        printf(")\n.br\n");
    }
    escaped(s->help, "\\-");
    putchar('\n');
}

static void markdown(const struct setting *s, const char *value, const char *limits)
{
    if (s->kind == KIND_HEAD) {
        printf("\n## %s\n\n| setting | default | range | what |\n|---|---|---|---|\n", s->name);
        return;
    }
    if (section(s))
        printf("| `%s NAME { %s }` | %s | ", section(s), s->name, has_default(s) ? value : "none");
    else
        printf("| `%s` | %s | ", s->name, value);
    escaped(limits, "|<");
    printf(" | ");
    escaped(s->help, "|<");
    printf(" |\n");
}

static const struct form {
    const char *name, *before, *behind;
    void (*print)(const struct setting *, const char *value, const char *limits);
} forms[] = {
    {"sample",
     "# dovelane.conf - one file for all Dovelane programs and hosts; it holds no secrets.\n"
     "# Every setting is shown with its default. Times: 400ms, 1.5s, 5m or 5min, 1h, 2d, 1w. "
     "Sizes: 512, 256kB, 25MB.\n\n",
     "", sample},
    {"man",
     ".TH DOVELANE.CONF 5 \"\" \"Dovelane " DOVELANE_VERSION
     "\" \"Dovelane\"\n.SH NAME\ndovelane.conf \\- settings of all Dovelane programs\n"
     ".SH DESCRIPTION\nOne file serves all programs on all hosts; it holds no secrets. A line "
     "is\n.IR \"name = value\" ;\n"
     "texts with other characters than letters, digits and . \\- _ are quoted; lists are "
     "written\n.IR \"{ one, two }\" ;\n# begins a comment.\n"
     "A setting stands once, or once in its section; more for a list is added by\n.IR \"name += { "
     "three }\" .\n"
     "Times have a unit (ms, s, min, h, d), sizes may have one (kB, MB, GB, 1024\\-based).\n",
     ".SH SEE ALSO\n.BR dovelane\\-milter (8),\n.BR dovelane\\-relay (8),\n.BR "
     "dovelane\\-replicator (8)\n",
     man},
    {"markdown",
     "# Settings of dovelane.conf\n\nOne file serves all programs on all hosts. A setting stands "
     "once, or once in its section.\nTimes: 400ms, 1.5s, 5m or 5min, 1h, 2d, 1w. Sizes: 512, "
     "256kB, "
     "25MB. Lists: `{ \"one\", \"two\" }`.\nThis page is made "
     "from `lib/config/settings.def` by `config-doc markdown`.\n",
     "", markdown},
};

int main(int argc, char **argv)
{
    char value[128], limits[256];
    for (size_t f = 0; argc == 2 && f < sizeof forms / sizeof *forms; f++) {
        if (strcmp(argv[1], forms[f].name))
            continue;
        fputs(forms[f].before, stdout);
        for (size_t i = 0; i < SETTINGS; i++) {
            default_value(&settings[i], value, sizeof value);
            range(&settings[i], limits, sizeof limits);
            forms[f].print(&settings[i], value, limits);
        }
        fputs(forms[f].behind, stdout);
        return 0;
    }
    fprintf(stderr, "usage: config-doc sample | man | markdown\n");
    return 2;
}
