/* postconf - runs postconf(1), and takes what it prints apart. */
#include "lib/postfix/postconf.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/mem.h"
#include "lib/base/subprocess.h"

struct setting {
    char *name; /* "header_checks", "smtp/inet/smtpd_milters" */
    char *value;
};

struct postconf {
    char *directory;
    struct setting *setting; /* by name */
    size_t n;
    struct postconf_service *service;
    size_t nservices;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct setting *)a)->name, ((const struct setting *)b)->name);
}

/* "name = value" per line. */
static void take_settings(struct postconf *p, char *text)
{
    for (char *save, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char *is = strstr(line, " =");
        if (!is)
            continue;
        *is = '\0';
        for (is += 2; *is == ' '; is++)
            ;
        p->setting = mem_grow(p->setting, (p->n + 1) * sizeof *p->setting);
        p->setting[p->n++] = (struct setting){mem_strdup(line), mem_strdup(is)};
    }
}

/* The value of flags= among a command's arguments; malloc'd, "" when there is none. */
static char *flags_of(char *args)
{
    char *flags = NULL;
    for (char *save, *word = strtok_r(args, " \t", &save); word && !flags;
         word = strtok_r(NULL, " \t", &save))
        if (!strncmp(word, "flags=", 6))
            flags = mem_strdup(word + 6);
    return flags ? flags : mem_strdup("");
}

/* "-oname=value" is legal, and postconf(1) takes each o in it for the beginning of an option. What
 * it makes of that has an -o without name=value somewhere. */
static bool misread(const char *args)
{
    for (const char *s = args; *(s += strspn(s, " \t")) == '-';) {
        bool option = s[1] == 'o';
        s += strcspn(s, " \t");
        if (!option)
            continue;
        s += strspn(s, " \t");
        size_t name = strcspn(s, "= \t");
        if (*s == '-' || (*s != '{' && s[name] != '='))
            return true;
        for (int depth = 0; *s && (depth > 0 || !isspace((unsigned char)*s)); s++)
            depth += *s == '{' ? 1 : *s == '}' ? -1 : 0;
    }
    return false;
}

/* "name type private unpriv chroot wakeup maxproc command args..." per line. */
static void take_services(struct postconf *p, char *text)
{
    for (char *save, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char *field[8], *inner = NULL, none[1] = "";
        size_t n = 0;
        if (isspace((unsigned char)*line)) /* goes on with options */
            continue;
        for (char *word = line; n < 8 && (word = strtok_r(word, " \t", &inner)); word = NULL)
            field[n++] = word;
        if (n < 8)
            continue;
        char *args = inner ? inner : none;
        bool wrong = misread(args); /* before flags_of parts them */
        p->service = mem_grow(p->service, (p->nservices + 1) * sizeof *p->service);
        /* "-" is the default: no chroot since Postfix 3.0 */
        p->service[p->nservices++] = (struct postconf_service){
            .key = mem_printf("%s/%s", field[0], field[1]),
            .name = mem_strdup(field[0]),
            .inet = !strcmp(field[1], "inet"),
            .chroot = *field[4] == 'y',
            .command = mem_strdup(field[7]),
            .misread = wrong,
            .flags = flags_of(args),
        };
    }
}

/* On one line the last two of what it said: why it ended, and often what was wrong before that. */
static const char *last_words(char *text)
{
    size_t len = strlen(text);
    char *end = text + len, *begin = text;
    while (end > text && end[-1] == '\n')
        *--end = '\0';
    unsigned lines = 0;
    for (char *at = end; at > text && lines < 2; at--)
        if (at[-1] == '\n' && ++lines < 2)
            at[-1] = ' ';
        else if (lines == 2)
            begin = at;
    return begin;
}

/* Its output is left in r. False: there is none, and *error_r says why, if that is wrong.
 * directory: NULL for Postfix's own. */
static bool ask(const char *directory, const char *const *how, struct subprocess_result *r,
                char **error_r)
{
    size_t n = 1, most = 4;
    for (const char *const *word = how; *word; word++)
        most++;
    const char **argv = mem_zero(most * sizeof *argv);
    argv[0] = "postconf";
    if (directory) {
        argv[n++] = "-c";
        argv[n++] = directory;
    }
    while (*how)
        argv[n++] = *how++;
    *r = subprocess_run(argv, NULL, 0, 20000);
    bool good = r->status == 0 && r->out.data && !r->cut;
    if (r->status || r->cut) /* nothing at all: no -o in all of master.cf */
        *error_r = mem_printf("postconf%s%s %s: %s", directory ? " -c " : "",
                              directory ? directory : "", argv[n - 1],
                              r->failure    ? r->failure
                              : r->cut      ? "said too much"
                              : r->err.data ? last_words(r->err.data)
                                            : "failed");
    free(argv);
    return good;
}

static void take_directory(struct postconf *p, char *text)
{
    text[strcspn(text, "\n")] = '\0';
    p->directory = mem_strdup(text);
}

static void free_settings(struct postconf *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->setting[i].name);
        free(p->setting[i].value);
    }
    free(p->setting);
}

static const char *find(const struct postconf *p, const char *name)
{
    struct setting key = {.name = (char *)name};
    struct setting *found = p->n ? bsearch(&key, p->setting, p->n, sizeof key, by_name) : NULL;
    return found ? found->value : NULL;
}

/* ---- what -o of a service changes of other parameters ---- */

/* "$name", "${name...", "$(name)". */
static bool mentions(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *s = text; (s = strchr(s, '$'));) {
        s++;
        s += *s == '{' || *s == '(';
        if (!strncmp(s, name, n) && s[n] != '_' && !isalnum((unsigned char)s[n]))
            return true;
    }
    return false;
}

static bool is_asked_about(const struct postconf_service *s)
{
    static const char *const commands[] = {"smtpd", "cleanup", "smtp", "lmtp", "qmgr", "oqmgr"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(s->command, commands[i]))
            return true;
    return false;
}

/* Adds to more what the service has otherwise than main.cf and its own -o say. */
static void take_differences(const struct postconf *p, const struct postconf_service *s,
                             struct postconf *its, struct postconf *more)
{
    for (size_t i = 0; i < its->n; i++) {
        char *whole = mem_printf("%s/%s", s->key, its->setting[i].name);
        const char *own = find(p, whole), *common = find(p, its->setting[i].name);
        if (strcmp(own ? own : common ? common : "", its->setting[i].value)) {
            more->setting = mem_grow(more->setting, (more->n + 1) * sizeof *more->setting);
            more->setting[more->n++] = (struct setting){whole, mem_strdup(its->setting[i].value)};
        } else {
            free(whole);
        }
    }
}

/* options: what master.cf has, raw; text: every value that may name another parameter. */
static void ask_for_service(const struct postconf *p, const struct postconf_service *s,
                            const struct postconf *options, const char *text, struct postconf *more,
                            char **error_r)
{
    size_t prefix = strlen(s->key), n = 0;
    char **how = mem_zero((2 * options->n + 2) * sizeof *how);
    bool mentioned = false;
    how[n++] = mem_strdup("-x");
    for (size_t i = 0; i < options->n; i++) {
        const char *name = options->setting[i].name;
        if (strncmp(name, s->key, prefix) || name[prefix] != '/')
            continue;
        mentioned |= mentions(text, name + prefix + 1);
        how[n++] = mem_strdup("-o");
        how[n++] = mem_printf("%s=%s", name + prefix + 1, options->setting[i].value);
    }
    struct subprocess_result r = {0};
    if (mentioned && ask(p->directory, (const char *const *)how, &r, error_r)) {
        struct postconf its = {0};
        take_settings(&its, r.out.data);
        take_differences(p, s, &its, more);
        free_settings(&its);
    }
    subprocess_free(&r);
    while (n)
        free(how[--n]);
    free(how);
}

/* A setting that is there already gets the value of the other one. */
static void add_settings(struct postconf *p, struct postconf *more)
{
    size_t known = p->n;
    for (size_t i = 0; i < more->n; i++) {
        struct setting *s = &more->setting[i],
                       *old = known ? bsearch(s, p->setting, known, sizeof *s, by_name) : NULL;
        if (old) {
            free(old->value);
            free(s->name);
            old->value = s->value;
        } else {
            p->setting = mem_grow(p->setting, (p->n + 1) * sizeof *p->setting);
            p->setting[p->n++] = *s;
        }
    }
    free(more->setting);
    if (p->n)
        qsort(p->setting, p->n, sizeof *p->setting, by_name);
}

static void ask_for_services(struct postconf *p, char **error_r)
{
    static const char *const of_master[] = {"-P", NULL}, *const of_main[] = {NULL};
    struct postconf options = {0}, more = {0};
    struct subprocess_result r = {0}, values = {0};
    if (ask(p->directory, of_master, &r, error_r) && ask(p->directory, of_main, &values, error_r)) {
        char *text = mem_printf("%s%s", values.out.data, r.out.data);
        take_settings(&options, r.out.data);
        for (size_t i = 0; i < p->nservices && !*error_r; i++)
            if (is_asked_about(&p->service[i]))
                ask_for_service(p, &p->service[i], &options, text, &more, error_r);
        free(text);
    }
    add_settings(p, &more);
    free_settings(&options);
    subprocess_free(&r);
    subprocess_free(&values);
}

struct postconf *postconf_read(const char *directory, char **error_r)
{
    struct postconf *p = mem_zero(sizeof *p);
    static const struct {
        const char *how[3];
        void (*take)(struct postconf *, char *text);
    } part[] = {{{"-h", "config_directory"}, take_directory},
                {{"-x"}, take_settings},
                {{"-Px"}, take_settings},
                {{"-M"}, take_services}};
    *error_r = NULL;
    if (directory) /* asked for it alone, postconf of Postfix 3.10 forgets its -c */
        p->directory = mem_strdup(directory);
    for (size_t i = p->directory ? 1 : 0; i < sizeof part / sizeof *part && !*error_r; i++) {
        struct subprocess_result r;
        if (ask(directory, part[i].how, &r, error_r))
            part[i].take(p, r.out.data);
        subprocess_free(&r);
    }
    if (p->n)
        qsort(p->setting, p->n, sizeof *p->setting, by_name);
    if (!*error_r)
        ask_for_services(p, error_r);
    if (*error_r) {
        postconf_free(p);
        return NULL;
    }
    return p;
}

void postconf_free(struct postconf *p)
{
    if (!p)
        return;
    free_settings(p);
    for (size_t i = 0; i < p->nservices; i++) {
        free(p->service[i].key);
        free(p->service[i].name);
        free(p->service[i].command);
        free(p->service[i].flags);
    }
    free(p->service);
    free(p->directory);
    free(p);
}

const char *postconf_directory(const struct postconf *p)
{
    return p->directory;
}

const struct postconf_service *postconf_service(const struct postconf *p, size_t i)
{
    return i < p->nservices ? &p->service[i] : NULL;
}

/* "25" and "smtp" are one; 0: unknown. */
static int port_number(const char *text)
{
    struct servent found, *is = NULL;
    char buf[1024];
    if (*text >= '0' && *text <= '9')
        return atoi(text);
    return getservbyname_r(text, "tcp", &found, buf, sizeof buf, &is) == 0 && is
               ? ntohs((uint16_t)is->s_port)
               : 0;
}

/* "127.0.0.1" of "127.0.0.1:25", "::1" of "[::1]:25", nothing of "smtp". Without its port and
 * brackets. */
static size_t host_part(const char *name, const char **host)
{
    const char *colon = strrchr(name, ':');
    size_t n = colon ? (size_t)(colon - name) : 0;
    *host = name;
    if (n > 1 && *name == '[' && colon[-1] == ']') {
        (*host)++;
        n -= 2;
    }
    return n;
}

static int fits(const struct postconf_service *s, const char *address)
{
    const char *ours, *its, *port = strrchr(s->name, ':');
    size_t n = host_part(address, &ours), m = host_part(s->name, &its);
    if (!s->inet ||
        port_number(port ? port + 1 : s->name) != port_number(strrchr(address, ':') + 1))
        return 0;
    return !m ? 2 : m == n && !strncasecmp(ours, its, n) ? 3 : 1;
}

const struct postconf_service *postconf_listener(const struct postconf *p, const char *address)
{
    const struct postconf_service *best = NULL;
    int most = 0;
    for (size_t i = 0; strrchr(address, ':') && i < p->nservices; i++) {
        int fit = fits(&p->service[i], address);
        if (fit > most) {
            most = fit;
            best = &p->service[i];
        }
    }
    return best;
}

const char *postconf_get(const struct postconf *p, const char *service, const char *name)
{
    char *own = service ? mem_printf("%s/%s", service, name) : mem_strdup(name);
    const char *value = find(p, own);
    if (!value)
        value = find(p, name);
    free(own);
    return value ? value : "";
}

bool postconf_words(const char *list, postconf_word_fn *fn, void *arg)
{
    for (const char *s = list;;) {
        while (*s && (isspace((unsigned char)*s) || *s == ','))
            s++;
        if (!*s)
            return true;
        const char *from = s;
        for (int depth = 0; *s && (depth > 0 || !(isspace((unsigned char)*s) || *s == ',')); s++)
            depth += *s == '{' ? 1 : *s == '}' ? -1 : 0;
        char *word = mem_strndup(from, (size_t)(s - from));
        bool on = fn(arg, word);
        free(word);
        if (!on)
            return false;
    }
}

bool postconf_names(const char *directory, bool set, postconf_word_fn *fn, void *arg)
{
    const char *how[] = {set ? "-n" : "-d", NULL};
    struct subprocess_result r;
    char *error = NULL, *save = NULL;
    bool good = ask(directory, how, &r, &error), on = good;
    for (char *line = good ? strtok_r(r.out.data, "\n", &save) : NULL; line && on;
         line = strtok_r(NULL, "\n", &save)) {
        line[strcspn(line, " =")] = '\0';
        on = fn(arg, line);
    }
    subprocess_free(&r);
    free(error);
    return good;
}
