/* tables - reads all results that a table can give. Indexed tables are dumped by postmap -s, those
 * of patterns are read as text. */
#include "lib/postfix/tables.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/postfix/postconf.h"
#include "lib/base/subprocess.h"

#define NESTED_MOST 8 /* tables in results of tables */

struct look {
    const char *directory;
    unsigned depth;
    char *found;
    bool access_next; /* in a list of restrictions: the next word is a table */
    enum table_kind kind;
    tables_seen_fn *seen;
    void *arg;
    unsigned ifs, received_if; /* open if blocks; the outermost one about Received, or 0 */
};

static void look_into(struct look *, const char *table);
static void look_at_restrictions(struct look *, const char *list);

static bool starts(const char *s, const char *with)
{
    return strncasecmp(s, with, strlen(with)) == 0;
}

static bool found(struct look *l, const char *where, const char *what, size_t len)
{
    if (!l->found)
        l->found = mem_printf("%s: %.*s", where, (int)(len > 60 ? 60 : len), what);
    return true;
}

/* A result of an access or checks table. */
static void look_at_result(struct look *l, const char *where, const char *result)
{
    static const char *const acts[] = {"HOLD", "FILTER", "REDIRECT", "BCC", "DISCARD"};
    result += strspn(result, " \t");
    size_t len = strcspn(result, " \t\r\n,");
    for (size_t i = 0; i < (l->kind == TABLE_MILTER_CHECKS ? 5 : 4); i++)
        if (len == strlen(acts[i]) && starts(result, acts[i])) {
            found(l, where, result, strcspn(result, "\r\n"));
            return;
        }
    if (strcasestr(result, "_access")) /* access(5): a result may be a list of restrictions */
        look_at_restrictions(l, result);
}

/* Postfix asks header_checks about the Received line that it writes, too. A rule for such lines
 * may be about that one. pattern: the whole rule. */
static void look_at_received(struct look *l, const char *where, const char *pattern,
                             const char *result)
{
    static const char *const acts[] = {"IGNORE", "STRIP", "REPLACE"};
    result += strspn(result, " \t");
    if (l->kind != TABLE_HEADER_CHECKS || !strcasestr(pattern, "received"))
        return;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (starts(result, acts[i]))
            found(l, where, result, strcspn(result, "\r\n"));
}

/* ---- text ---- */

static bool read_file(const char *path, struct buf *text)
{
    char bytes[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;
    if (fd < 0)
        return false;
    while (text->len < (64u << 20) && (n = read(fd, bytes, sizeof bytes)) > 0)
        buf_add(text, bytes, (size_t)n);
    close(fd);
    if (!text->data)
        buf_adds(text, "");
    return n == 0;
}

/* "! /pattern/flags result", "/pattern/!/but not this/flags result": the result. */
static const char *after_pattern(const char *s)
{
    s += strspn(s, "! \t");
    for (bool more = true; more && *s;) {
        char mark = *s++;
        while (*s && *s != mark)
            s += *s == '\\' && s[1] ? 2 : 1;
        s += *s == mark;
        more = *s == '!';
        s += more;
    }
    return s + strcspn(s, " \t");
}

/* "if /pattern/", "if!/pattern/". */
static bool is_if(const char *line)
{
    return starts(line, "if") && !isalnum((unsigned char)line[2]);
}

static const char *result_of(const char *line, bool patterns)
{
    if (!patterns) {
        line += strspn(line, "! \t"); /* cidr: "! 192.0.2.0/24 result" */
        return line + strcspn(line, " \t");
    }
    return is_if(line) || starts(line, "endif") ? "" : after_pattern(line);
}

static void look_at_rule_of(struct look *l, const char *where, const char *line, bool patterns)
{
    const char *result = result_of(line, patterns);
    look_at_result(l, where, result);
    if (!patterns)
        return;
    if (is_if(line)) {
        l->ifs++;
        if (!l->received_if && strcasestr(line, "received"))
            l->received_if = l->ifs;
    } else if (starts(line, "endif") && l->ifs) {
        if (l->received_if == l->ifs)
            l->received_if = 0;
        l->ifs--;
    } else {
        look_at_received(l, where, l->received_if ? "Received" : line, result);
    }
}

/* Logical lines: what begins with a blank goes on, # is a comment. */
static void look_at_lines(struct look *l, const char *name, char *text, bool patterns)
{
    unsigned number = 0, first = 0;
    struct buf logical = {0};
    for (char *line = text; line && !l->found;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        number++;
        bool more = (*line == ' ' || *line == '\t') && logical.len;
        bool empty = line[strspn(line, " \t\r")] == '\0' || line[strspn(line, " \t")] == '#';
        if (!empty && !more && logical.len) {
            char *where = mem_printf("%s, line %u", name, first);
            look_at_rule_of(l, where, logical.data, patterns);
            free(where);
            logical.len = 0;
        }
        if (!empty) {
            if (!more)
                first = number;
            buf_adds(&logical, line);
        }
        line = next;
    }
    if (logical.len && !l->found) {
        char *where = mem_printf("%s, line %u", name, first);
        look_at_rule_of(l, where, logical.data, patterns);
        free(where);
    }
    buf_free(&logical);
}

static char *without_braces(const char *word)
{
    size_t n = strlen(word);
    return n >= 2 && *word == '{' && word[n - 1] == '}' ? mem_strndup(word + 1, n - 2)
                                                        : mem_strdup(word);
}

struct rules {
    struct look *look;
    const char *name;
    bool patterns;
};

/* One {rule} of an inline table. */
static bool look_at_rule(void *arg, const char *word)
{
    struct rules *r = arg;
    char *rule = without_braces(word);
    const char *text = rule + strspn(rule, " \t");
    look_at_rule_of(r->look, r->name, text, r->patterns);
    free(rule);
    return !r->look->found;
}

static void look_at_patterns(struct look *l, const char *table, const char *name, bool patterns)
{
    struct buf text = {0};
    if (*name == '{') {
        struct rules r = {l, table, patterns};
        char *rules = without_braces(name);
        postconf_words(rules, look_at_rule, &r);
        free(rules);
    } else if (read_file(name, &text)) {
        look_at_lines(l, table, text.data, patterns);
    } else if (!l->found) {
        l->found = mem_printf("%s cannot be read: %s", table, strerror(errno));
    }
    buf_free(&text);
}

/* A pattern need not say "Received" to match such a line: the table is asked about one. */
static void ask_about_received(struct look *l, const char *table)
{
    static const char line[] = "Received: from mx.example.org (mx.example.org [192.0.2.1])\n"
                               "\tby mail.example.net (Postfix) with ESMTPS id 4bXyZ";
    const char *argv[] = {"postmap", "-c", l->directory, "-q", line, table, NULL};
    if (l->found || l->kind != TABLE_HEADER_CHECKS)
        return;
    struct subprocess_result r = subprocess_run(argv, NULL, 0, 20000);
    if (r.status == 0 && r.out.data) {
        r.out.data[strcspn(r.out.data, "\n")] = '\0';
        look_at_received(l, table, "Received", r.out.data);
    }
    subprocess_free(&r);
}

/* ---- indexed ---- */

static void look_at_index(struct look *l, const char *table, const char *name)
{
    const char *argv[] = {"postmap", "-c", l->directory, "-s", table, NULL};
    struct subprocess_result r = subprocess_run(argv, NULL, 0, 20000);
    struct buf text = {0};
    if (r.cut) {
        l->found = mem_printf("%s has too much to be looked into", table);
    } else if (r.status == 0) {
        for (char *save, *line = r.out.data ? strtok_r(r.out.data, "\n", &save) : NULL;
             line && !l->found; line = strtok_r(NULL, "\n", &save)) {
            char *tab = strchr(line, '\t');
            if (!tab)
                continue;
            *tab = '\0';
            char *where = mem_printf("%s, key %.60s", table, line);
            look_at_result(l, where, tab + 1);
            free(where);
        }
    } else if (read_file(name, &text)) {
        look_at_lines(l, table, text.data, false);
    } else {
        l->found =
            mem_printf("%s cannot be looked into (postmap -s failed, and there is no readable %s)",
                       table, name);
    }
    subprocess_free(&r);
    buf_free(&text);
}

static bool look_at_member(void *arg, const char *word)
{
    look_into(arg, word);
    return !((struct look *)arg)->found;
}

/* One result of a randmap. */
static bool look_at_choice(void *arg, const char *word)
{
    struct look *l = arg;
    char *result = without_braces(word);
    look_at_result(l, "randmap", result);
    free(result);
    return !l->found;
}

static void look_into(struct look *l, const char *table)
{
    if (starts(table, "proxy:"))
        table += 6;
    const char *colon = strchr(table, ':');
    if (l->found || l->depth >= NESTED_MOST || !colon)
        return;
    if (l->seen)
        l->seen(l->arg, table);
    const char *name = colon + 1;
    size_t n = (size_t)(colon - table);
    l->ifs = l->received_if = 0;
    char *type = mem_strndup(table, n);
    l->depth++;
    static const char *const indexed[] = {"hash", "btree", "lmdb",     "cdb",
                                          "dbm",  "sdbm",  "texthash", "inline"};
    bool index = false;
    for (size_t i = 0; i < sizeof indexed / sizeof *indexed; i++)
        index |= !strcmp(type, indexed[i]);
    if (index) {
        look_at_index(l, table, name);
    } else if (!strcmp(type, "regexp") || !strcmp(type, "pcre")) {
        look_at_patterns(l, table, name, true);
        ask_about_received(l, table);
    } else if (!strcmp(type, "cidr")) {
        look_at_patterns(l, table, name, false);
    } else if (!strcmp(type, "static")) {
        char *value = without_braces(name);
        look_at_result(l, table, value);
        free(value);
    } else if (!strcmp(type, "unionmap") || !strcmp(type, "pipemap")) {
        char *members = without_braces(name);
        postconf_words(members, look_at_member, l);
        free(members);
    } else if (!strcmp(type, "randmap")) {
        char *results = without_braces(name);
        postconf_words(results, look_at_choice, l);
        free(results);
    } else if (strcmp(type, "fail")) {
        l->found = mem_printf("%s cannot be looked into", table);
    }
    l->depth--;
    free(type);
}

/* ---- restrictions ---- */

/* The old form: a bare table among the restrictions, of any type of postconf -m. */
static bool is_table(const char *word)
{
    static const char *const types[] = {
        "btree",     "cdb",    "cidr",   "dbm",      "environ",  "fail",    "hash",    "inline",
        "internal",  "ldap",   "lmdb",   "memcache", "mongodb",  "mysql",   "netinfo", "nis",
        "nisplus",   "pcre",   "pgsql",  "pipemap",  "proxy",    "randmap", "regexp",  "sdbm",
        "socketmap", "sqlite", "static", "tcp",      "texthash", "unionmap"};
    size_t n = strcspn(word, ":");
    for (size_t i = 0; word[n] && i < sizeof types / sizeof *types; i++)
        if (strlen(types[i]) == n && starts(word, types[i]))
            return true;
    return false;
}

static bool look_at_restriction(void *arg, const char *word)
{
    struct look *l = arg;
    if (l->access_next) {
        l->access_next = false;
        char *table = without_braces(word); /* { table, search_order = ... } */
        char *first = table + strspn(table, " \t");
        if (*word == '{')
            first[strcspn(first, " \t,")] = '\0';
        look_into(l, first);
        free(table);
    } else {
        size_t n = strlen(word);
        l->access_next = starts(word, "check_") && n > 7 && !strcasecmp(word + n - 7, "_access");
        if (!l->access_next && is_table(word))
            look_into(l, word);
    }
    return !l->found;
}

static void look_at_restrictions(struct look *l, const char *list)
{
    bool before = l->access_next;
    l->access_next = false;
    if (l->depth < NESTED_MOST) {
        l->depth++;
        postconf_words(list, look_at_restriction, l);
        l->depth--;
    }
    l->access_next = before;
}

char *table_effect(const char *directory, const char *table, enum table_kind kind,
                   tables_seen_fn *seen, void *arg)
{
    struct look l = {.directory = directory, .kind = kind, .seen = seen, .arg = arg};
    look_into(&l, table);
    return l.found;
}

char *restrictions_effect(const char *directory, const char *list, tables_seen_fn *seen, void *arg)
{
    struct look l = {.directory = directory, .seen = seen, .arg = arg};
    look_at_restrictions(&l, list);
    return l.found;
}
