/* parameters-doc - writes docs/postfix-parameters.md, or the bare table, from parameters.def.
 *
 * parameters-doc markdown
 * parameters-doc rows     a parameter a line, tabs between: name, prefix, class, reader, off,
 *                         unless */
#include <stdio.h>
#include <string.h>

#include "lib/postfix/parameters.h"

static const char *const prefix_words[] = {
    [PARAMETER_PLAIN] = "", [PARAMETER_AGENT] = "*", [PARAMETER_TRANSPORT] = "TRANSPORT_"};

static const char *const reader_words[] = {
    [PARAMETER_READER_NONE] = "",
    [PARAMETER_READER_SMTPD] = "all mail of its smtpd(8) service",
    [PARAMETER_READER_CLEANUP] = "all mail of its cleanup(8) service",
    [PARAMETER_READER_PROXY] = "mail that comes by the proxy",
    [PARAMETER_READER_QMGR] = "all mail",
    [PARAMETER_READER_AGENT] = "mail to next hops of that transport",
    [PARAMETER_READER_ANY_AGENT] = "mail to next hops of that transport",
    [PARAMETER_READER_BY_NAME] = "mail to next hops of that transport without brackets",
    [PARAMETER_READER_TRANSPORT] = "mail to next hops of that transport",
    [PARAMETER_READER_LISTED] = "mail to next hops of the transports that it lists",
};

/* Calls print for each name of a row, in the form in which admins read it. */
static void each_name(const struct parameter *p,
                      void (*print)(const struct parameter *, const char *))
{
    for (const char *s = p->names; *s; s += strspn(s, " ")) {
        char name[128];
        size_t n = strcspn(s, " ");
        snprintf(name, sizeof name, "%s%.*s", prefix_words[p->prefix], (int)n, s);
        print(p, name);
        s += n;
    }
}

static void print_code(const struct parameter *p, const char *name)
{
    printf(" `%s`", name);
}

static void print_row(const struct parameter *p, const char *name)
{
    static const char *const prefixes[] = {"plain", "agent", "transport"};
    printf("%s\t%s\t%s\t%s\t%s\t%s\n", strrchr(name, '*') ? name + 1 : name, prefixes[p->prefix],
           parameter_class_words(p->class), reader_words[p->reader], p->off, p->unless);
}

static void print_forbidding(void)
{
    const struct parameter *p;
    puts("## Keeps mail in Postfix\n\n"
         "While one of these has another value than the one shown, the mail named stays Postfix's\n"
         "(`reason=postfix`). `ignore` takes it on, by name. Where a setting is named, it replaces "
         "the\n"
         "parameter once the destination's section in dovelane.conf has it.\n\n"
         "| parameter | unless it is | which mail | why | instead |\n"
         "|---|---|---|---|---|");
    for (size_t i = 0; (p = parameter_row(i)); i++) {
        if (p->class != PARAMETER_FORBIDS)
            continue;
        printf("|");
        each_name(p, print_code);
        printf(" | ");
        for (const char *s = p->off;; s++) {
            size_t n = strcspn(s, "|");
            printf("%s%.*s", s == p->off ? "" : ", ", n ? (int)n : 5, n ? s : "empty");
            if (!*(s += n))
                break;
        }
        printf(" | %s | %s | %s%s%s |\n", reader_words[p->reader], p->why, *p->unless ? "`" : "",
               p->unless, *p->unless ? "`" : "");
    }
    puts("");
}

static void print_class(enum parameter_class class, const char *title, const char *text)
{
    const struct parameter *p;
    printf("## %s\n\n%s\n", title, text);
    for (size_t i = 0; (p = parameter_row(i)); i++) {
        if (p->class != class)
            continue;
        printf("\n%c%s:", p->why[0] >= 'a' && p->why[0] <= 'z' ? p->why[0] - 32 : p->why[0],
               p->why + 1);
        each_name(p, print_code);
        puts("");
    }
    puts("");
}

static void print_page(void)
{
    puts(
        "<!-- made by: build/lib/parameters-doc markdown -->\n"
        "# Postfix's parameters, and diverted mail\n\n"
        "A diverted mail never comes into Postfix's queue, so what Postfix does behind that point\n"
        "is done otherwise, or the mail stays Postfix's. Here is each parameter of postconf(5),\n"
        "Postfix 3.7 to 3.11. `*` stands for `smtp_` and `lmtp_`, `TRANSPORT_` for a transport's\n"
        "name or `default_`. `dovelane check` reads your main.cf and master.cf by this table, and\n"
        "names a parameter that a newer Postfix has and the table has not.\n");
    print_forbidding();
    print_class(PARAMETER_LOOKED_INTO, "Looked into",
                "A result or an address in their tables decides, mail by mail or for all mail.");
    print_class(PARAMETER_OBEYED, "Obeyed", "Diverted mail has it, too.");
    print_class(PARAMETER_GIVEN_UP, "Given up",
                "Diverted mail misses it. `dovelane check` names those that main.cf sets.");
    print_class(PARAMETER_BEFORE, "Before us", "It has acted when the milter gets the mail.");
    print_class(PARAMETER_HARMLESS, "Harmless", "It does not concern diverted mail.");
}

int main(int argc, char **argv)
{
    const struct parameter *p;
    if (argc == 2 && !strcmp(argv[1], "markdown")) {
        print_page();
        return 0;
    }
    for (size_t i = 0; argc == 2 && !strcmp(argv[1], "rows") && (p = parameter_row(i)); i++)
        each_name(p, print_row);
    return argc == 2 && !strcmp(argv[1], "rows") ? 0 : 2;
}
