/* config-doc - writes the sample dovelane.conf, the man page dovelane.conf(5) or docs/settings.md from settings.def.
 *
 * config-doc sample | config-doc man | config-doc markdown */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void default_time(char *out, size_t size, long long ms)
{
    if (ms && ms % 3600000 == 0)
        snprintf(out, size, "%lldh", ms / 3600000);
    else if (ms && ms % 60000 == 0)
        snprintf(out, size, "%lldmin", ms / 60000);
    else if (ms && ms % 1000 == 0)
        snprintf(out, size, "%llds", ms / 1000);
    else
        snprintf(out, size, "%lldms", ms);
}

static void default_size(char *out, size_t size, long long n)
{
    if (n && n % 1073741824 == 0)
        snprintf(out, size, "%lldGB", n / 1073741824);
    else if (n && n % 1048576 == 0)
        snprintf(out, size, "%lldMB", n / 1048576);
    else if (n && n % 1024 == 0)
        snprintf(out, size, "%lldkB", n / 1024);
    else
        snprintf(out, size, "%lld", n);
}

static const char *word_at(const char *words, int i)
{
    static char word[64];
    while (i-- > 0)
        words += strcspn(words, "|") + 1;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(words, "|"), words);
    return word;
}

/* ---- sample ---- */

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

static void sample_line(const char *name, const char *value, const char *range, const char *help)
{
    wrapped("# ", help);
    if (*range)
        printf("# (%s)\n", range);
    printf("#%s = %s\n\n", name, value);
}

static void sample(void)
{
    char value[64], least_text[32], most_text[32], range[128];
    printf("# dovelane.conf - one file for all Dovelane programs and hosts; it holds no secrets.\n"
           "# Every setting is shown with its default. Times: 400ms, 1.5s, 10min, 1h. Sizes: 512, 256kB, 25MB.\n\n");
#define HEAD(title) printf("#### %s\n\n", title);
#define INT(name, unit, def, least, most, help)                                                                        \
    snprintf(value, sizeof value, "%lld", (long long)def);                                                             \
    snprintf(range, sizeof range, "%lld to %lld %s", (long long)least, (long long)most, unit);                         \
    sample_line(#name, value, range, help);
#define RANGED(name, print, def, least, most, help)                                                                    \
    print(value, sizeof value, def);                                                                                   \
    print(least_text, sizeof least_text, least);                                                                       \
    print(most_text, sizeof most_text, most);                                                                          \
    snprintf(range, sizeof range, "%s to %s", least_text, most_text);                                                  \
    sample_line(#name, value, range, help);
#define TIME(name, def, least, most, help) RANGED(name, default_time, def, least, most, help)
#define SIZE(name, def, least, most, help) RANGED(name, default_size, def, least, most, help)
#define WORD(name, def, words, help) sample_line(#name, word_at(words, def), "one of " words, help);
#define TEXT(name, def, help) sample_line(#name, "\"" def "\"", "", help);
#define LIST(name, help) sample_line(#name, "{}", "a list: { \"one\", \"two\" }", help);
#define NODE_TEXT(name, def, help)                                                                                     \
    wrapped("# ", help);                                                                                               \
    printf("#node mx1 { " #name " = \"10.0.0.1:6379\" }\n#node mx2 { " #name " = \"10.0.0.2:6379\" }\n\n");
#include "settings.def"
}

/* ---- man ---- */

static void escaped(const char *s)
{
    for (; *s; s++) {
        if (*s == '\\' || *s == '-')
            putchar('\\');
        putchar(*s);
        if (*s == '\n' && (s[1] == '.' || s[1] == '\''))
            fputs("\\&", stdout);
    }
}

static void man_entry(const char *name, const char *value, const char *range, const char *help)
{
    printf(".TP\n.B %s\n(default: ", name);
    escaped(value);
    if (*range) {
        printf("; ");
        escaped(range);
    }
    printf(")\n.br\n");
    escaped(help);
    putchar('\n');
}

static void man(void)
{
    char value[64], least_text[32], most_text[32], range[128];
    printf(".TH DOVELANE.CONF 5 \"\" \"Dovelane " DOVELANE_VERSION "\" \"Dovelane\"\n.SH NAME\ndovelane.conf \\- settings of all Dovelane programs\n"
           ".SH DESCRIPTION\nOne file serves all programs on all hosts; it holds no secrets. A line is\n.IR \"name = value\" ;\n"
           "texts with other characters than letters, digits and . \\- _ are quoted; lists are written\n.IR \"{ one, two }\" ;\n# begins a comment.\n"
           "Times have a unit (ms, s, min, h, d), sizes may have one (kB, MB, GB, 1024\\-based).\n");
#define HEAD(title) printf(".SH %s\n", title);
#define INT(name, unit, def, least, most, help)                                                                        \
    snprintf(value, sizeof value, "%lld", (long long)def);                                                             \
    snprintf(range, sizeof range, "%lld to %lld %s", (long long)least, (long long)most, unit);                         \
    man_entry(#name, value, range, help);
#undef RANGED
#define RANGED(name, print, def, least, most, help)                                                                    \
    print(value, sizeof value, def);                                                                                   \
    print(least_text, sizeof least_text, least);                                                                       \
    print(most_text, sizeof most_text, most);                                                                          \
    snprintf(range, sizeof range, "%s to %s", least_text, most_text);                                                  \
    man_entry(#name, value, range, help);
#define TIME(name, def, least, most, help) RANGED(name, default_time, def, least, most, help)
#define SIZE(name, def, least, most, help) RANGED(name, default_size, def, least, most, help)
#define WORD(name, def, words, help) man_entry(#name, word_at(words, def), "one of " words, help);
#define TEXT(name, def, help) man_entry(#name, *def ? def : "empty", "", help);
#define LIST(name, help) man_entry(#name, "empty", "a list", help);
#define NODE_TEXT(name, def, help) man_entry("node NAME { " #name " = ... }", "none", "", help);
#include "settings.def"
    printf(".SH SEE ALSO\n.BR dovelane\\-milter (8),\n.BR dovelane\\-relay (8)\n");
}

/* ---- markdown ---- */

static void cell(const char *s)
{
    for (; *s; s++) {
        if (*s == '|' || *s == '<')
            putchar('\\');
        putchar(*s);
    }
}

static void markdown_row(const char *name, const char *value, const char *range, const char *help)
{
    printf("| `%s` | ", name);
    cell(value);
    printf(" | ");
    cell(range);
    printf(" | ");
    cell(help);
    printf(" |\n");
}

static void markdown(void)
{
    char value[64], least_text[32], most_text[32], range[128];
    printf("# Settings of dovelane.conf\n\nOne file serves all programs on all hosts. Times: 400ms, 1.5s, 10min, 1h; sizes: 512, 256kB, 25MB; lists: "
           "`{ \"one\", \"two\" }`.\nThis page is made from `lib/settings.def` by `config-doc markdown`.\n");
#define HEAD(title) printf("\n## %s\n\n| setting | default | range | what |\n|---|---|---|---|\n", title);
#define INT(name, unit, def, least, most, help)                                                                        \
    snprintf(value, sizeof value, "%lld", (long long)def);                                                             \
    snprintf(range, sizeof range, "%lld to %lld %s", (long long)least, (long long)most, unit);                         \
    markdown_row(#name, value, range, help);
#undef RANGED
#define RANGED(name, print, def, least, most, help)                                                                    \
    print(value, sizeof value, def);                                                                                   \
    print(least_text, sizeof least_text, least);                                                                       \
    print(most_text, sizeof most_text, most);                                                                          \
    snprintf(range, sizeof range, "%s to %s", least_text, most_text);                                                  \
    markdown_row(#name, value, range, help);
#define TIME(name, def, least, most, help) RANGED(name, default_time, def, least, most, help)
#define SIZE(name, def, least, most, help) RANGED(name, default_size, def, least, most, help)
#define WORD(name, def, words, help) markdown_row(#name, word_at(words, def), words, help);
#define TEXT(name, def, help) markdown_row(#name, *def ? def : "empty", "", help);
#define LIST(name, help) markdown_row(#name, "empty", "a list", help);
#define NODE_TEXT(name, def, help) markdown_row("node NAME { " #name " }", "none", "", help);
#include "settings.def"
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    if (!strcmp(what, "sample"))
        sample();
    else if (!strcmp(what, "man"))
        man();
    else if (!strcmp(what, "markdown"))
        markdown();
    else {
        fprintf(stderr, "usage: config-doc sample | man | markdown\n");
        return 2;
    }
    return 0;
}
