#include "ctl/complete.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/commands.h"
#include "ctl/out.h"
#include "lib/base/mem.h"
#include "lib/shape/shape_rules.h"

enum value {
    VALUE_ANY,
    VALUE_HOP,
    VALUE_NODE,
    VALUE_REPLICA,
    VALUE_FILES,
    VALUE_FOLDERS,
    VALUE_USER
};

/* Options and words behind which a name of the configuration comes. */
static const struct {
    const char *word;
    enum value value;
} values[] = {
    {"--dest", VALUE_HOP},
    {"--destination", VALUE_HOP},
    {"--next-hop", VALUE_HOP},
    {"--explain", VALUE_HOP},
    {"--forget", VALUE_NODE},
    {"--join", VALUE_NODE},
    {"--lost", VALUE_NODE},
    {"--replace", VALUE_NODE},
    {"--site", VALUE_REPLICA},
    {"-c", VALUE_FILES},
    {"-f", VALUE_FILES},
    {"--file", VALUE_FILES},
    {"--defaults", VALUE_FILES},
    {"--dovecot-config", VALUE_FILES},
    {"--postfix-config", VALUE_FOLDERS},
    {"--as", VALUE_USER},
};

struct completion {
    const char *begun;  /* of the word, what is there */
    const char *prefix; /* of the line, printed in front of each: "--dest=", or "" */
    const struct config *config;
    struct buf said; /* "\nword\n", so that none comes twice */
};

static void offer(struct completion *c, const char *word, const char *help)
{
    char *line = mem_printf("\n%s\n", word);
    bool fits =
        !strncmp(word, c->begun, strlen(c->begun)) && (!c->said.len || !strstr(c->said.data, line));
    if (fits) {
        out("%s%s", c->prefix, word);
        if (help)
            out("\t%s", help);
        out("\n");
        buf_adds(&c->said, line);
    }
    free(line);
}

static void offer_words(struct completion *c, const char *words, bool options)
{
    for (const char *s = words ? words + strspn(words, " ") : ""; *s; s += strspn(s, " ")) {
        size_t n = strcspn(s, " ");
        char *word = mem_strndup(s, n);
        if ((*word == '-') == options)
            offer(c, word, NULL);
        free(word);
        s += n;
    }
}

static void offer_options(struct completion *c, const struct command *command)
{
    for (const struct option *o = command->options; o && o->name; o++) {
        char *word = mem_printf("--%s", o->name);
        offer(c, word, NULL);
        free(word);
    }
    offer_words(c, command->words, true);
    offer(c, "--json", NULL);
    offer(c, "--help", NULL);
}

static void offer_commands(struct completion *c)
{
    for (size_t i = 0; i < commands_n; i++)
        if (commands[i].name)
            offer(c, commands[i].name, commands[i].help);
}

static void offer_values(struct completion *c, enum value value)
{
    static const char *const of_shells[] = {
        [VALUE_FILES] = ":files", [VALUE_FOLDERS] = ":directories", [VALUE_USER] = ":users"};
    const struct config *k = c->config;
    if (value >= VALUE_FILES)
        out("%s\n", of_shells[value]);
    for (size_t i = 0; k && value == VALUE_HOP && i < k->divert.n; i++)
        offer(c, k->divert.v[i], NULL);
    for (size_t i = 0; k && value == VALUE_HOP && i < k->ndestinations; i++)
        offer(c, k->destination[i].name, NULL);
    for (size_t i = 0; k && value == VALUE_NODE && i < k->nnodes; i++)
        offer(c, k->node[i].name, k->node[i].redis);
    for (size_t i = 0; k && value == VALUE_REPLICA && i < k->nreplicas; i++)
        offer(c, k->replica[i].name, NULL);
}

static enum value value_of(const char *word, size_t len)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strlen(values[i].word) == len && !strncmp(values[i].word, word, len))
            return values[i].value;
    return VALUE_ANY;
}

static bool wants_value(const struct command *command, const char *word)
{
    for (const struct option *o = command->options; o && o->name && !strncmp(word, "--", 2); o++)
        if (!strcmp(o->name, word + 2))
            return o->has_arg == required_argument;
    return value_of(word, strlen(word)) != VALUE_ANY;
}

/* `group divert add HOP`, `group replicate on`, `group role SITE full`, `group remove HOST`.
 * word[0] is "group". */
static void offer_of_group(struct completion *c, int n, char **word)
{
    const char *what = n > 2 ? word[1] : "", *how = n > 3 ? word[2] : "";
    if (n == 3 && !strcmp(what, "divert"))
        offer_words(c, "add remove", false);
    else if (n == 3 && !strcmp(what, "replicate"))
        offer_words(c, "on off", false);
    else if (n == 3 && !strcmp(what, "remove"))
        offer_values(c, VALUE_NODE);
    else if (n == 3 && !strcmp(what, "role"))
        offer_values(c, VALUE_REPLICA);
    else if (n == 4 && !strcmp(what, "role"))
        offer_words(c, "full on-demand backup", false);
    else if (n > 3 && !strcmp(what, "divert") && !strcmp(how, "remove"))
        offer_values(c, VALUE_HOP);
}

/* `shape PATTERN WORD=VALUE`. */
static void offer_of_shape(struct completion *c, int n)
{
    if (n == 2)
        offer_values(c, VALUE_HOP);
    for (size_t i = 0; n > 2 && shape_word_name(i); i++) {
        char *word = mem_printf("%s=", shape_word_name(i));
        offer(c, word, shape_word_like(shape_word_name(i)));
        free(word);
    }
}

/* word[0] is the command's name. */
static void offer_of(struct completion *c, const struct command *command, int n, char **word)
{
    const char *last = word[n - 2], *equals = strchr(c->begun, '=');
    if (!strncmp(c->begun, "--", 2) && equals) {
        size_t len = (size_t)(equals - c->begun);
        char *option = mem_strndup(c->begun, len + 1);
        enum value value = value_of(option, len);
        c->prefix = option;
        c->begun = equals + 1;
        offer_values(c, value);
        free(option);
    } else if (n > 2 && wants_value(command, last)) {
        offer_values(c, value_of(last, strlen(last)));
    } else if (*c->begun == '-') {
        offer_options(c, command);
    } else if (command->own_help && n > 2) {
        offer_of_group(c, n, word);
    } else if (command->run == shape_command) {
        offer_of_shape(c, n);
    } else {
        offer_words(c, command->words, false);
        if (!command->words || *command->words == '-')
            offer_options(c, command);
    }
}

/* How many words stand in front of the command. */
static int before_command(struct ctl *ctl, int n, char **word)
{
    int at = 0;
    while (at < n - 1 && *word[at] == '-') {
        bool value = !strcmp(word[at], "-c");
        if (value && at + 2 < n)
            ctl->config_path = word[at + 1];
        at += value ? 2 : 1;
    }
    return at;
}

int complete(struct ctl *ctl, int n, char **word)
{
    struct completion c = {.begun = n ? word[n - 1] : "", .prefix = ""};
    char *error = NULL;
    out_choose_json(false);
    int at = before_command(ctl, n, word);
    const struct command *command = at + 1 < n ? commands_find(word[at]) : NULL;
    struct config *config = config_read(ctl->config_path, &error);
    c.config = config;
    if (command)
        offer_of(&c, command, n - at, word + at);
    else if (at >= n && n)
        offer_values(&c, VALUE_FILES); /* behind -c */
    else if (at + 1 < n && !strcmp(word[at], "help"))
        offer_commands(&c);
    else if (at + 1 >= n && *c.begun == '-')
        offer_words(&c, "-c -j --json -h --help -V --version", true);
    else if (at + 1 >= n)
        offer_commands(&c);
    free(error);
    config_free(config);
    buf_free(&c.said);
    return STATUS_DONE;
}
