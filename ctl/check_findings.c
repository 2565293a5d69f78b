/* What `dovelane check` found, a line each, and how much of it. */
#include "ctl/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/out.h"
#include "ctl/row.h"

static bool verbose;
static size_t found[3];

static const char *const section_of[] = {
#define FINDING(section, name, text) #section,
#include "ctl/findings.def"
#undef FINDING
};

static const char *const name_of[] = {
#define FINDING(section, name, text) text,
#include "ctl/findings.def"
#undef FINDING
};

static void show(const json_t *row)
{
    const char *level = row_get_text(row, "level"), *about = row_get_text(row, "about"),
               *message = row_get_text(row, "message");
    if (row_has(row, "mend"))
        out("%s %s: %s [%s]\n           mend: %s\n",
            strcmp(level, "warning") ? "CRITICAL" : "WARNING ", about, message,
            row_get_text(row, "name"), row_get_text(row, "mend"));
    else
        out("ok       %s: %s\n", about, message);
}

static const struct out_kind findings = {"findings", show};

void check_begin(void)
{
    static const char *const lists[] = {"findings", NULL};
    out_begin("check/1", lists);
}

static json_t *row_of(enum finding finding, const char *about, const char *format, va_list ap)
{
    static const char *const level[] = {"good", "warning", "critical"};
    json_t *row = row_new();
    char *message = NULL;
    if (vasprintf(&message, format, ap) < 0)
        abort();
    row_add_text(row, "level", level[finding]);
    row_add_text(row, "about", about);
    row_add_text(row, "message", message);
    free(message);
    return row;
}

void check_say(struct ctl *ctl, enum finding finding, enum found which, const char *about,
               const char *mend, const char *format, ...)
{
    va_list ap;
    found[finding]++;
    ctl_status(ctl, finding == FINDING_WARNING ? STATUS_LOOK : STATUS_FAILED);
    va_start(ap, format);
    json_t *row = row_of(finding, about, format, ap);
    va_end(ap);
    row_add_text(row, "section", section_of[which]);
    row_add_text(row, "name", name_of[which]);
    row_add_text(row, "mend", mend);
    out_row(&findings, row);
}

void check_good(struct ctl *ctl, const char *about, const char *format, ...)
{
    va_list ap;
    found[FINDING_GOOD]++;
    if (!verbose)
        return;
    va_start(ap, format);
    out_row(&findings, row_of(FINDING_GOOD, about, format, ap));
    va_end(ap);
}

static void show_name(const json_t *row)
{
    out("%-8s %s\n", row_get_text(row, "section"), row_get_text(row, "name"));
}

void check_list(void)
{
    static const struct out_kind names = {"findings", show_name};
    out_begin("check-list/1", NULL);
    for (size_t i = 0; i < FOUND_MOST; i++) {
        json_t *row = row_new();
        row_add_text(row, "section", section_of[i]);
        row_add_text(row, "name", name_of[i]);
        out_row(&names, row);
    }
}

void check_verbose(void)
{
    verbose = true;
}

static void show_sum(const json_t *row)
{
    long long warnings = row_get_number(row, "warning");
    out("%lld critical, %lld warning%s, %lld good\n", row_get_number(row, "critical"), warnings,
        ctl_s((unsigned long long)warnings), row_get_number(row, "good"));
}

void check_sum(void)
{
    json_t *row = row_new();
    row_add_number(row, "critical", (long long)found[FINDING_CRITICAL]);
    row_add_number(row, "warning", (long long)found[FINDING_WARNING]);
    row_add_number(row, "good", (long long)found[FINDING_GOOD]);
    out_facts(show_sum, row);
}
