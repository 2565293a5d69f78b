#include "ctl/out.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/escape.h"
#include "ctl/row.h"

#define OUT_ERROR_SCHEMA "error/1"

/* ---- printf's conversions ---- */

struct spec {
    char flags[8];
    int width, precision; /* -1: none */
    char length;          /* of the argument: 0 int, l long, L long long, z size_t */
    char conversion;
};

struct arguments {
    va_list ap;
};

static int number(const char **s, struct arguments *a)
{
    int n = 0;
    if (**s == '*') {
        ++*s;
        return va_arg(a->ap, int);
    }
    for (; **s >= '0' && **s <= '9'; ++*s)
        n = 10 * n + (**s - '0');
    return n;
}

/* s: behind the '%'. Returns what follows the conversion. */
static const char *parse(const char *s, struct spec *p, struct arguments *a)
{
    size_t n = strspn(s, "-+ #0");
    *p = (struct spec){.precision = -1};
    memcpy(p->flags, s, n < sizeof p->flags ? n : sizeof p->flags - 1);
    s += n;
    p->width = number(&s, a);
    if (p->width < 0) { /* as printf has it */
        p->width = -p->width;
        strcpy(p->flags, "-");
    }
    if (*s == '.') {
        s++;
        p->precision = number(&s, a);
    }
    if (*s == 'z' || *s == 'l')
        p->length = *s++;
    if (*s == 'l')
        p->length = 'L', s++;
    p->conversion = *s;
    return s + 1;
}

static void add_string(struct buf *b, const struct spec *p, const char *s)
{
    struct buf shown = {0};
    escape_for_terminal(&shown, s, p->precision >= 0 ? strnlen(s, (size_t)p->precision) : strlen(s),
                        "");
    size_t blanks = (size_t)p->width > shown.len ? (size_t)p->width - shown.len : 0;
    bool left = strchr(p->flags, '-') != NULL;
    buf_printf(b, "%*s", left ? 0 : (int)blanks, "");
    buf_add(b, shown.data ? shown.data : "", shown.len);
    buf_printf(b, "%*s", left ? (int)blanks : 0, "");
    buf_free(&shown);
}

static void add_number(struct buf *b, const struct spec *p, struct arguments *a)
{
    char format[32];
    bool fraction = p->conversion == 'f', sign = p->conversion == 'd' || p->conversion == 'i';
    snprintf(format, sizeof format, "%%%s*.*%s%c", p->flags, fraction ? "" : "ll", p->conversion);
    if (fraction)
        buf_printf(b, format, p->width, p->precision, va_arg(a->ap, double));
    else if (p->length == 'z')
        buf_printf(b, format, p->width, p->precision, (unsigned long long)va_arg(a->ap, size_t));
    else if (p->length == 'L')
        buf_printf(b, format, p->width, p->precision, va_arg(a->ap, long long));
    else if (p->length == 'l')
        buf_printf(b, format, p->width, p->precision,
                   sign ? va_arg(a->ap, long) : (long long)va_arg(a->ap, unsigned long));
    else
        buf_printf(b, format, p->width, p->precision,
                   sign ? va_arg(a->ap, int) : (long long)va_arg(a->ap, unsigned));
}

static void add(struct buf *b, const struct spec *p, struct arguments *a)
{
    char one;
    switch (p->conversion) {
    case '%': buf_addc(b, '%'); break;
    case 's': add_string(b, p, va_arg(a->ap, const char *)); break;
    case 'c':
        one = (char)va_arg(a->ap, int);
        escape_for_terminal(b, &one, 1, "");
        break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'f': add_number(b, p, a); break;
    default: abort(); /* a conversion that nothing here needed */
    }
}

static void format_into(struct buf *b, const char *format, va_list ap)
{
    struct arguments a;
    struct spec p;
    va_copy(a.ap, ap);
    while (*format) {
        size_t n = strcspn(format, "%");
        buf_add(b, format, n);
        format += n;
        if (*format) {
            format = parse(format + 1, &p, &a);
            add(b, &p, &a);
        }
    }
    va_end(a.ap);
}

/* ---- JSON ---- */

static struct {
    bool chosen, lines;
    const char *schema;
    json_t *document;
    struct buf problem; /* of a line on stderr, what there is */
} json;

void out_choose_json(bool is)
{
    json.chosen = is;
}

bool out_is_json(void)
{
    return json.chosen;
}

/* The object is freed. */
static void print_json(FILE *f, json_t *object)
{
    struct buf b = {0};
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(12));
    if (!text)
        abort(); /* row.h makes only what is JSON */
    escape_json(&b, text, strlen(text));
    buf_addc(&b, '\n');
    fwrite(b.data, 1, b.len, f);
    buf_free(&b);
    free(text);
    json_decref(object);
}

static json_t *new_document(const char *schema)
{
    json_t *document = row_new();
    row_add_text(document, "schema", schema);
    return document;
}

static void print_problem(const char *level, const char *text, size_t len)
{
    static const char prefix[] = "dovelane: ";
    json_t *problem = new_document(OUT_ERROR_SCHEMA);
    if (len >= strlen(prefix) && !strncmp(text, prefix, strlen(prefix)))
        text += strlen(prefix), len -= strlen(prefix);
    char *message = mem_strndup(text, len);
    row_add_text(problem, "level", level);
    row_add_text(problem, "message", message);
    free(message);
    print_json(stderr, problem);
}

void out_log(const char *line)
{
    print_problem("info", line, strlen(line));
}

/* Whole lines of what was gathered. */
static void print_problems(void)
{
    struct buf *b = &json.problem;
    for (char *end; b->len && (end = memchr(b->data, '\n', b->len));) {
        print_problem("warning", b->data, (size_t)(end - b->data));
        buf_consume(b, (size_t)(end - b->data) + 1);
    }
}

void out_begin(const char *schema, const char *const *lists)
{
    json.schema = schema;
    json.lines = false;
    if (!json.chosen)
        return;
    json.document = new_document(schema);
    for (; lists && *lists; lists++)
        row_add(json.document, *lists, json_array());
}

void out_begin_lines(const char *schema)
{
    json.schema = schema;
    json.lines = true;
}

void out_row(const struct out_kind *kind, json_t *row)
{
    if (!json.chosen) {
        if (kind->show)
            kind->show(row);
        json_decref(row);
    } else if (json.lines) {
        row_add_text(row, "schema", json.schema);
        print_json(stdout, row);
    } else if (!json.document) {
        json_decref(row);
    } else {
        json_t *list = json_object_get(json.document, kind->list);
        if (!list)
            row_add(json.document, kind->list, list = json_array());
        if (json_array_append_new(list, row) < 0)
            abort();
    }
}

void out_facts(void (*show)(const json_t *row), json_t *row)
{
    if (json.chosen && json.document && json_object_update(json.document, row) < 0)
        abort();
    if (!json.chosen && show)
        show(row);
    json_decref(row);
}

void out_end(void)
{
    if (json.document)
        print_json(stdout, json.document);
    json.document = NULL;
}

/* ---- printing ---- */

static void print(const char *format, va_list ap)
{
    struct buf b = {0};
    if (json.chosen)
        return;
    format_into(&b, format, ap);
    fwrite(b.data ? b.data : "", 1, b.len, stdout);
    buf_free(&b);
}

static void __attribute__((format(printf, 1, 0))) print_error(const char *format, va_list ap)
{
    struct buf b = {0};
    format_into(json.chosen ? &json.problem : &b, format, ap);
    if (json.chosen)
        print_problems();
    else
        fwrite(b.data ? b.data : "", 1, b.len, stderr);
    buf_free(&b);
}

void out_fatal_list(const char *format, va_list ap)
{
    struct buf b = {0};
    format_into(&b, format, ap);
    if (json.chosen)
        print_problem("error", b.data ? b.data : "", b.len);
    else
        fputs("dovelane: ", stderr), buf_addc(&b, '\n'), fwrite(b.data, 1, b.len, stderr);
    buf_free(&b);
}

void out(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    print(format, ap);
    va_end(ap);
}

void out_error(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    print_error(format, ap);
    va_end(ap);
}

void out_body(const char *data, size_t len)
{
    struct buf b = {0};
    if (!isatty(STDOUT_FILENO)) {
        fwrite(data, 1, len, stdout);
        return;
    }
    for (size_t i = 0, n; i < len; i += n) { /* CRLF is how its lines end */
        const char *end = memmem(data + i, len - i, "\r\n", 2);
        n = end ? (size_t)(end - data) - i : len - i;
        escape_for_terminal(&b, data + i, n, "\n\t");
        if (end)
            buf_adds(&b, "\n"), n += 2;
    }
    fwrite(b.data ? b.data : "", 1, b.len, stdout);
    buf_free(&b);
}
