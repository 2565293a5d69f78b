/* Parsing by libconfuse; the options table is made from settings.def. Times and sizes are texts
 * to libconfuse and get their units here, so that an error names the line. */
#include "lib/config/config_work.h"

#include <confuse.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/base/units.h"
#include "lib/config/nexthop.h"

/* ---- the table ---- */

enum kind { KIND_INT, KIND_TIME, KIND_SIZE, KIND_WORD, KIND_WORDS, KIND_OTHER };

struct setting {
    const char *name;
    enum kind kind;
    int64_t least, most;
    const char *words;
};

static const struct setting settings[] = {
#define INT(name, unit, def, least, most, help) {#name, KIND_INT, least, most, NULL},
#define TIME(name, def, least, most, help) {#name, KIND_TIME, least, most, NULL},
#define SIZE(name, def, least, most, help) {#name, KIND_SIZE, least, most, NULL},
#define WORD(name, def, words, help) {#name, KIND_WORD, 0, 0, words},
#define DESTINATION_WORD(name, def, words, help) {"destination|" #name, KIND_WORD, 0, 0, words},
#define DESTINATION_LIST(name, words, help) {"destination|" #name, KIND_WORDS, 0, 0, words},
#define DESTINATION_INT(name, unit, def, least, most, help) \
    {"destination|" #name, KIND_INT, least, most, NULL},
#define DESTINATION_TIME(name, def, least, most, help) \
    {"destination|" #name, KIND_TIME, least, most, NULL},
#define CLASS_INT(name, unit, def, least, most, help) {"class|" #name, KIND_INT, least, most, NULL},
#include "lib/config/settings.def"
    {NULL, KIND_OTHER, 0, 0, NULL}};

/* section: NULL, "destination" or "class". */
static const struct setting *setting_named(const char *section, const char *name)
{
    size_t n = section ? strlen(section) : 0;
    for (const struct setting *s = settings; s->name; s++)
        if (!n ? !strcmp(s->name, name)
               : !strncmp(s->name, section, n) && s->name[n] == '|' &&
                     !strcmp(s->name + n + 1, name))
            return s;
    return NULL;
}

static int find_word(const char *words, const char *text,
                     int (*compare)(const char *, const char *, size_t))
{
    size_t n = strlen(text);
    int i = 0;
    for (const char *w = words;; i++) {
        size_t len = strcspn(w, "|");
        if (len == n && !compare(w, text, n))
            return i;
        if (!w[len])
            return -1;
        w += len + 1;
    }
}

static int word_index(const char *words, const char *text)
{
    return find_word(words, text, strncmp);
}

static int check_value(cfg_t *cfg, cfg_opt_t *opt)
{
    const char *section = cfg_title(cfg) ? cfg_name(cfg) : NULL, *name = cfg_opt_name(opt);
    const struct setting *s = setting_named(section, name);
    if (!s)
        return 0;
    if (s->kind == KIND_INT) {
        long v = cfg_opt_getnint(opt, cfg_opt_size(opt) - 1);
        if (v >= s->least && v <= s->most)
            return 0;
        cfg_error(cfg, "%s = %ld, allowed is %lld to %lld", name, v, (long long)s->least,
                  (long long)s->most);
        return -1;
    }
    const char *text = cfg_opt_getnstr(opt, cfg_opt_size(opt) - 1);
    if (s->kind == KIND_WORD) {
        if (word_index(s->words, text) >= 0)
            return 0;
        cfg_error(cfg, "%s = %s, allowed is one of %s", name, text, s->words);
        return -1;
    }
    if (s->kind == KIND_WORDS) {
        if (find_word(s->words, text, strncasecmp) >= 0)
            return 0;
        cfg_error(cfg, "%s has %s, allowed are %s", name, text, s->words);
        return -1;
    }
    int64_t v;
    bool time = s->kind == KIND_TIME;
    if (time ? !units_time(text, &v) : !units_size(text, &v)) {
        cfg_error(cfg, "%s = %s is no %s, write it like %s", name, text, time ? "time" : "size",
                  time ? UNITS_TIMES : UNITS_SIZES " (no blank before the unit)");
        return -1;
    }
    if (v < s->least || v > s->most) {
        char least[UNITS_TEXT], most[UNITS_TEXT];
        char *(*say)(char *, int64_t) = time ? units_time_text : units_size_text;
        cfg_error(cfg, "%s = %s, allowed is %s to %s", name, text, say(least, s->least),
                  say(most, s->most));
        return -1;
    }
    return 0;
}

/* ---- names that are none ---- */

static const struct place {
    const char *section, *name; /* section: NULL for none */
} places[] = {
#define INT(name, unit, def, least, most, help) {NULL, #name},
#define TIME(name, def, least, most, help) {NULL, #name},
#define SIZE(name, def, least, most, help) {NULL, #name},
#define WORD(name, def, words, help) {NULL, #name},
#define TEXT(name, def, help) {NULL, #name},
#define LIST(name, help) {NULL, #name},
#define NODE_TEXT(name, def, help) {"node", #name},
#define REPLICA_TEXT(name, def, help) {"replica", #name},
#define REPLICA_INT(name, unit, least, most, help) {"replica", #name},
#define DESTINATION_WORD(name, def, words, help) {"destination", #name},
#define DESTINATION_TEXT(name, def, help) {"destination", #name},
#define DESTINATION_LIST(name, words, help) {"destination", #name},
#define DESTINATION_INT(name, unit, def, least, most, help) {"destination", #name},
#define DESTINATION_TIME(name, def, least, most, help) {"destination", #name},
#define SHAPE(name, help) {"shape", #name},
#define CLASS_LIST(name, help) {"class", #name},
#define CLASS_INT(name, unit, def, least, most, help) {"class", #name},
#define SHAPE(name, help) {"shape", #name},
#include "lib/config/settings.def"
    {NULL, "node"}, {NULL, "replica"}, {NULL, "class"}, {NULL, "destination"}, {NULL, "shape"}};
#define PLACES (sizeof places / sizeof *places)

static const struct {
    const char *was, *is;
} renamed[] = {{"connect_timeout", "smtp_connect_timeout"},
               {"command_timeout", "smtp_helo_timeout, smtp_mail_timeout, smtp_rcpt_timeout, "
                                   "smtp_data_init_timeout and smtp_data_xfer_timeout"},
               {"final_timeout", "smtp_data_done_timeout"}};

/* How many letters are to be put in, left out or replaced (Levenshtein's distance). */
static size_t letters_apart(const char *a, const char *b)
{
    size_t row[64], n = strlen(b);
    if (n >= sizeof row / sizeof *row)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 1; j <= n; j++) {
            size_t least = diagonal + (a[i] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < least)
                least = row[j] + 1;
            if (row[j - 1] + 1 < least)
                least = row[j - 1] + 1;
            row[j] = least;
        }
    }
    return row[n];
}

static bool same_place(const char *a, const char *b)
{
    return !a || !b ? a == b : !strcmp(a, b);
}

static const char *resembles(const char *section, const char *name)
{
    const char *best = NULL;
    size_t least = 3; /* two slips */
    for (size_t i = 0; i < PLACES; i++) {
        size_t apart =
            same_place(places[i].section, section) ? letters_apart(name, places[i].name) : SIZE_MAX;
        if (apart < least && apart < strlen(name)) {
            least = apart;
            best = places[i].name;
        }
    }
    return best;
}

/* One that belongs into a section, or into one of several. */
static void outside(const char *name, char *out, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < PLACES && len < size; i++) {
        const char *section = places[i].section;
        if (!section || strcmp(places[i].name, name))
            continue;
        if (!len)
            len += (size_t)snprintf(out, size,
                                    "%s is only for a %s section, write %s NAME { %s = ... }", name,
                                    section, section, name);
        else
            len +=
                (size_t)snprintf(out + len, size - len, " or %s NAME { %s = ... }", section, name);
    }
}

/* section: in which it was found, NULL for none. */
static void unknown_setting(const char *section, const char *name, char *out, size_t size)
{
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (!strcmp(renamed[i].was, name)) {
            snprintf(out, size, "%s is gone, write %s", name, renamed[i].is);
            return;
        }
    for (size_t i = 0; i < PLACES; i++) {
        if (strcmp(places[i].name, name))
            continue;
        if (places[i].section)
            outside(name, out, size);
        else
            snprintf(out, size,
                     "%s does not belong into a %s section, write it outside; or is a } missing "
                     "before it?",
                     name, section);
        return;
    }
    const char *meant = resembles(section, name);
    if (meant)
        snprintf(out, size, "no setting is named %s%s%s; is %s meant?", name,
                 section ? " in section " : "", section ? section : "", meant);
    else
        snprintf(out, size, "no setting is named %s%s%s; dovelane.conf(5) lists them", name,
                 section ? " in section " : "", section ? section : "");
}

/* ---- errors: libconfuse reports through a callback; the first one is kept ---- */

#define END_OF_FILE "end-of-file" /* put behind the text: in a section, that was never closed */
static _Thread_local char *first_error;

static void our_words(cfg_t *cfg, char *text, size_t size)
{
    static const char unknown[] = "no such option '";
    char name[80];
    const char *section = cfg && cfg_title(cfg) ? cfg_name(cfg) : NULL;
    if (!strcmp(text, "premature end of file")) {
        snprintf(text, size, "the file ends in the middle of a setting: is a \" or a } missing?");
        return;
    }
    if (strncmp(text, unknown, strlen(unknown)))
        return;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text + strlen(unknown), "'"),
             text + strlen(unknown));
    if (strcmp(name, END_OF_FILE))
        unknown_setting(section, name, text, size);
    else if (section)
        snprintf(text, size, "section %s \"%.*s\" is not closed: a } is missing", section,
                 (int)strcspn(cfg_title(cfg), CONFIG_TEXT_APART), cfg_title(cfg));
    else
        *text = '\0';
}

static void keep_error(cfg_t *cfg, const char *format, va_list ap)
{
    char text[512];
    vsnprintf(text, sizeof text, format, ap);
    our_words(cfg, text, sizeof text);
    if (first_error || !*text)
        return;
    if (cfg && cfg->filename && cfg->line)
        first_error = mem_printf("%s:%d: %s", cfg->filename, cfg->line, text);
    else if (cfg && cfg->filename)
        first_error = mem_printf("%s: %s", cfg->filename, text);
    else
        first_error = mem_strdup(text);
}

static int check_replica_alone(cfg_t *cfg, cfg_t *sec)
{
    char buf[512];
    const char *host, *port, *name = cfg_title(sec), *redis = cfg_getstr(sec, "redis");
#define REPLICA_INT(setting, unit, least, most, help)                                   \
    if (cfg_getint(sec, #setting) < least || cfg_getint(sec, #setting) > most) {        \
        cfg_error(cfg, "replica %s: %s = %ld, allowed is %lld to %lld", name, #setting, \
                  cfg_getint(sec, #setting), (long long)least, (long long)most);        \
        return -1;                                                                      \
    }
#include "lib/config/settings.def"
    if (!config_name_ok(name)) {
        cfg_error(cfg, "replica \"%s\": a replica's name has 1 to 64 of the characters a-z 0-9 . -",
                  name);
        return -1;
    }
    if (!*redis) {
        cfg_error(cfg, "replica %s has no address: add redis = \"host:port\" or \"unix:/path\"",
                  name);
        return -1;
    }
    if (config_address(redis, buf, sizeof buf, &host, &port) < 0) {
        cfg_error(cfg,
                  "replica %s: redis = %s is no address, write it like 10.0.0.1:7001, "
                  "[fd00::1]:7001 or unix:/path",
                  name, redis);
        return -1;
    }
    if (strcmp(cfg_getstr(sec, "role"), "full") != 0 &&
        strcmp(cfg_getstr(sec, "role"), "backup") != 0 &&
        strcmp(cfg_getstr(sec, "role"), "on-demand") != 0) {
        cfg_error(cfg,
                  "replica %s: role = %s is no role: full, on-demand (of large mails only headers "
                  "are there), or backup (without clients, it keeps what others remove)",
                  name, cfg_getstr(sec, "role"));
        return -1;
    }
    return 0;
}

/* Called when a section ends, so that the error has a line: that of its closing brace. */
static int check_replica(cfg_t *cfg, cfg_opt_t *opt)
{
    unsigned n = cfg_opt_size(opt) - 1;
    cfg_t *sec = cfg_opt_getnsec(opt, n);
    if (check_replica_alone(cfg, sec) < 0)
        return -1;
    for (unsigned i = 0; i < n; i++) {
        cfg_t *other = cfg_opt_getnsec(opt, i);
        if (cfg_getint(other, "id") == cfg_getint(sec, "id")) {
            cfg_error(cfg,
                      "replicas %s and %s have the same id = %ld: each needs its own, for ever",
                      cfg_title(other), cfg_title(sec), cfg_getint(sec, "id"));
            return -1;
        }
        if (!strcmp(cfg_getstr(other, "redis"), cfg_getstr(sec, "redis"))) {
            cfg_error(
                cfg,
                "replicas %s and %s have the same redis = %s: each sends from a server of its own",
                cfg_title(other), cfg_title(sec), cfg_getstr(sec, "redis"));
            return -1;
        }
    }
    return 0;
}

/* ---- reading ---- */

/* malloc'd, with a line's end behind it and without comments; NULL, and first_error says why. */
static char *text_of(const char *path)
{
    char *text = NULL, part[4096];
    size_t size = 0, n;
    struct stat st;
    FILE *in = fopen(path, "re"), *out = open_memstream(&text, &size);
    if (!out)
        abort(); /* out of memory */
    if (!in)
        first_error = mem_printf("%s: %s", path, strerror(errno));
    else if (fstat(fileno(in), &st) == 0 && S_ISDIR(st.st_mode))
        first_error = mem_printf("%s: is a directory", path);
    while (!first_error && (n = fread(part, 1, sizeof part, in)) > 0)
        fwrite(part, 1, n, out);
    if (!first_error && ferror(in))
        first_error = mem_printf("%s: %s", path, strerror(errno));
    fputc('\n', out);
    fclose(out);
    if (in)
        fclose(in);
    if (!first_error && strlen(text) < size)
        first_error = mem_printf(
            "%s: has a NUL byte, so it is no text: is it the right file, and is it whole?", path);
    if (!first_error)
        first_error = config_text_uncomment(path, text);
    if (!first_error)
        return text;
    free(text);
    return NULL;
}

static int parse_text(cfg_t *cfg, const char *path, const char *text)
{
    FILE *in = fmemopen((char *)text, strlen(text), "r");
    if (!in)
        abort();
    cfg_set_error_function(cfg, keep_error);
    free(cfg->filename);
    cfg->filename = mem_strdup(path);
    int r = cfg_parse_fp(cfg, in);
    fclose(in);
    return r;
}

/* libconfuse takes the end of the file for the end of a section. So it reads a second time what
 * it found good, with a word behind it. */
static void check_closed(const char *path, const char *text, cfg_opt_t *opts)
{
    char *longer = mem_printf("%s" END_OF_FILE " = 0\n", text);
    cfg_t *cfg = cfg_init(opts, CFGF_NONE);
    if (!cfg)
        abort();
    parse_text(cfg, path, longer);
    cfg_free(cfg);
    free(longer);
}

static void parse(const char *path, cfg_t **cfg_r)
{
    cfg_opt_t node_opts[] = {
#define NODE_TEXT(name, def, help) CFG_STR(#name, def, CFGF_NONE),
#include "lib/config/settings.def"
        CFG_END()};
    cfg_opt_t replica_opts[] = {
#define REPLICA_TEXT(name, def, help) CFG_STR(#name, def, CFGF_NONE),
#define REPLICA_INT(name, unit, least, most, help) CFG_INT(#name, 0, CFGF_NONE),
#include "lib/config/settings.def"
        CFG_END()};
    cfg_opt_t destination_opts[] = {
#define DESTINATION_WORD(name, def, words, help) CFG_STR(#name, NULL, CFGF_NODEFAULT),
#define DESTINATION_TEXT(name, def, help) CFG_STR(#name, def, CFGF_NONE),
#define DESTINATION_LIST(name, words, help) CFG_STR_LIST(#name, "{}", CFGF_NONE),
#define DESTINATION_INT(name, unit, def, least, most, help) CFG_INT(#name, def, CFGF_NONE),
#define DESTINATION_TIME(name, def, least, most, help) CFG_STR(#name, #def "ms", CFGF_NONE),
#include "lib/config/settings.def"
        CFG_END()};
    cfg_opt_t shape_opts[] = {
#define SHAPE(name, help) CFG_STR(#name, NULL, CFGF_NODEFAULT),
#include "lib/config/settings.def"
        CFG_END()};
    cfg_opt_t class_opts[] = {
#define CLASS_LIST(name, help) CFG_STR_LIST(#name, "{}", CFGF_NONE),
#define CLASS_INT(name, unit, def, least, most, help) CFG_INT(#name, def, CFGF_NONE),
#include "lib/config/settings.def"
        CFG_END()};
    cfg_opt_t opts[] = {
#define INT(name, unit, def, least, most, help) CFG_INT(#name, def, CFGF_NONE),
#define TIME(name, def, least, most, help) CFG_STR(#name, #def "ms", CFGF_NONE),
#define SIZE(name, def, least, most, help) CFG_STR(#name, #def, CFGF_NONE),
#define WORD(name, def, words, help) CFG_STR(#name, NULL, CFGF_NODEFAULT),
#define TEXT(name, def, help) CFG_STR(#name, def, CFGF_NONE),
#define LIST(name, help) CFG_STR_LIST(#name, "{}", CFGF_NONE),
#include "lib/config/settings.def"
        CFG_SEC("node", node_opts, CFGF_MULTI | CFGF_TITLE | CFGF_NO_TITLE_DUPES),
        CFG_SEC("class", class_opts, CFGF_MULTI | CFGF_TITLE | CFGF_NO_TITLE_DUPES),
        CFG_SEC("replica", replica_opts, CFGF_MULTI | CFGF_TITLE | CFGF_NO_TITLE_DUPES),
        CFG_SEC("destination", destination_opts, CFGF_MULTI | CFGF_TITLE | CFGF_NO_TITLE_DUPES),
        CFG_SEC("shape", shape_opts, CFGF_MULTI | CFGF_TITLE | CFGF_NO_TITLE_DUPES),
        CFG_END()};
    first_error = NULL;
    char *text = text_of(path), *apart = text ? config_text_apart(text) : NULL;
    cfg_t *cfg = text ? cfg_init(opts, CFGF_NONE) : NULL;
    if (!cfg)
        return;
    for (const struct setting *s = settings; s->name; s++)
        /* "section|name" is one inside a section */
        cfg_set_validate_func(cfg, s->name, check_value);
#define SHAPE(name, help) cfg_set_validate_func(cfg, "shape|" #name, config_shape_check_word);
#include "lib/config/settings.def"
    cfg_set_validate_func(cfg, "shape", config_shape_check);
    cfg_set_validate_func(cfg, "replica", check_replica);
    cfg_set_validate_func(cfg, "class", config_class_check);
    int r = parse_text(cfg, path, apart);
    if (r == CFG_SUCCESS && !first_error)
        check_closed(path, apart, opts);
    if (r == CFG_SUCCESS && !first_error)
        first_error = config_text_twice(path, text);
    free(apart);
    free(text);
    if (r == CFG_SUCCESS && !first_error) {
        *cfg_r = cfg;
        return;
    }
    if (!first_error)
        first_error = mem_printf("%s: syntax error", path);
    cfg_free(cfg);
}

static struct config_list copy_list(cfg_t *cfg, const char *name)
{
    struct config_list l = {cfg_size(cfg, name), NULL};
    l.v = mem_zero(l.n * sizeof *l.v);
    for (size_t i = 0; i < l.n; i++)
        l.v[i] = mem_strdup(cfg_getnstr(cfg, name, (unsigned)i));
    return l;
}

/* Next hops that are lists of hosts, spelled as lanes are named. */
static void spell_hops(struct config_list *l, char before)
{
    for (size_t i = 0; i < l->n; i++) {
        char *hop = before ? strchr(l->v[i], before) : l->v[i];
        if (!hop)
            continue;
        char *spelled = nexthop_spell(before ? hop + 1 : hop),
             *whole = before ? mem_printf("%.*s%s", (int)(hop + 1 - l->v[i]), l->v[i], spelled)
                             : mem_strdup(spelled);
        free(spelled);
        free(l->v[i]);
        l->v[i] = whole;
    }
}

/* check_value has found them good. */
static int64_t time_value(const char *text)
{
    int64_t v = 0;
    units_time(text, &v);
    return v;
}

static int64_t size_value(const char *text)
{
    int64_t v = 0;
    units_size(text, &v);
    return v;
}

/* sec: NULL for the defaults. */
static void fill_destination(struct config_destination *d, const char *name, cfg_t *sec)
{
    d->name = nexthop_spell(name);
#define DESTINATION_WORD(name, def, words, help) \
    d->name = sec && cfg_getstr(sec, #name) ? word_index(words, cfg_getstr(sec, #name)) : def;
#define DESTINATION_TEXT(name, def, help) d->name = mem_strdup(sec ? cfg_getstr(sec, #name) : def);
#define DESTINATION_LIST(name, words, help) \
    d->name = sec ? copy_list(sec, #name) : (struct config_list){0};
#define DESTINATION_INT(name, unit, def, least, most, help) \
    d->name = sec ? cfg_getint(sec, #name) : def;
#define DESTINATION_TIME(name, def, least, most, help) \
    d->name = sec ? time_value(cfg_getstr(sec, #name)) : def;
#include "lib/config/settings.def"
}

static void fill_destinations(struct config *c, cfg_t *cfg)
{
    size_t n = cfg_size(cfg, "destination");
    c->destination = mem_zero(n * sizeof *c->destination);
    for (size_t i = 0; i < n; i++) {
        cfg_t *sec = cfg_getnsec(cfg, "destination", (unsigned)i);
        bool other = !strcmp(cfg_title(sec), "*");
        fill_destination(other ? &c->other : &c->destination[c->ndestinations++], cfg_title(sec),
                         sec);
    }
    if (!c->other.name)
        fill_destination(&c->other, "*", NULL);
}

static void fill(struct config *c, cfg_t *cfg)
{
    fill_destinations(c, cfg);
    c->shapes = config_shape_read(cfg);
    config_classes_read(c, cfg);
#define INT(name, unit, def, least, most, help) c->name = cfg_getint(cfg, #name);
#define TIME(name, def, least, most, help) c->name = time_value(cfg_getstr(cfg, #name));
#define SIZE(name, def, least, most, help) c->name = size_value(cfg_getstr(cfg, #name));
#define WORD(name, def, words, help) \
    c->name = cfg_getstr(cfg, #name) ? word_index(words, cfg_getstr(cfg, #name)) : def;
#define TEXT(name, def, help) c->name = mem_strdup(cfg_getstr(cfg, #name));
#define LIST(name, help) c->name = copy_list(cfg, #name);
#include "lib/config/settings.def"
#define TIME(name, def, least, most, help) \
    c->says.name = !(cfg_getopt(cfg, #name)->flags & CFGF_RESET);
#include "lib/config/settings.def"
    spell_hops(&c->divert, '\0');
    spell_hops(&c->route, '=');
    c->nnodes = cfg_size(cfg, "node");
    c->node = mem_zero(c->nnodes * sizeof *c->node);
    for (size_t i = 0; i < c->nnodes; i++) {
        cfg_t *sec = cfg_getnsec(cfg, "node", (unsigned)i);
        struct config_node *n = &c->node[i];
        n->name = mem_strdup(cfg_title(sec));
#define NODE_TEXT(name, def, help) n->name = mem_strdup(cfg_getstr(sec, #name));
#include "lib/config/settings.def"
    }
    c->nreplicas = cfg_size(cfg, "replica");
    c->replica = mem_zero(c->nreplicas * sizeof *c->replica);
    for (size_t i = 0; i < c->nreplicas; i++) {
        cfg_t *sec = cfg_getnsec(cfg, "replica", (unsigned)i);
        struct config_replica *n = &c->replica[i];
        n->name = mem_strdup(cfg_title(sec));
#define REPLICA_TEXT(name, def, help) n->name = mem_strdup(cfg_getstr(sec, #name));
#define REPLICA_INT(name, unit, least, most, help) n->name = cfg_getint(sec, #name);
#include "lib/config/settings.def"
    }
}

struct config *config_read(const char *path, char **error_r)
{
    cfg_t *cfg = NULL;
    first_error = NULL;
    parse(path, &cfg);
    if (!cfg) {
        *error_r = first_error ? first_error : mem_printf("%s: cannot be parsed", path);
        first_error = NULL;
        return NULL;
    }
    struct config *c = mem_zero(sizeof *c);
    fill(c, cfg);
    cfg_free(cfg);
    if (c->membership == MEMBERSHIP_LEARNED)
        config_learn(c);
    char *error = config_wrong(c, path);
    if (error) {
        config_free(c);
        *error_r = error;
        return NULL;
    }
    return c;
}

static void list_free(struct config_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i]);
    free(l->v);
}

static void destination_clear(struct config_destination *d)
{
#define DESTINATION_TEXT(name, def, help) free(d->name);
#define DESTINATION_LIST(name, words, help) list_free(&d->name);
#include "lib/config/settings.def"
    free(d->name);
}

void config_free(struct config *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->nnodes; i++)
        config_node_clear(&c->node[i]);
    free(c->node);
    list_free(&c->forgotten);
    free(c->unlearned);
    for (size_t i = 0; i < c->nreplicas; i++) {
        struct config_replica *n = &c->replica[i];
#define REPLICA_TEXT(name, def, help) free(n->name);
#include "lib/config/settings.def"
        free(n->name);
    }
    free(c->replica);
    for (size_t i = 0; i < c->ndestinations; i++)
        destination_clear(&c->destination[i]);
    free(c->destination);
    free(c->shapes);
    destination_clear(&c->other);
    config_classes_free(c);
#define TEXT(name, def, help) free(c->name);
#define LIST(name, help) list_free(&c->name);
#include "lib/config/settings.def"
    free(c);
}
