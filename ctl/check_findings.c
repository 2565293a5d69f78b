/* What `dovelane check` found, a line each, and how much of it. */
#include "ctl/check.h"

#include <stdarg.h>

#include "ctl/out.h"

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

void check_say(struct ctl *ctl, enum finding finding, enum found which, const char *about,
               const char *mend, const char *format, ...)
{
    va_list ap;
    found[finding]++;
    ctl_status(ctl, finding == FINDING_WARNING ? STATUS_LOOK : STATUS_FAILED);
    out("%s %s: ", finding == FINDING_WARNING ? "WARNING " : "CRITICAL", about);
    va_start(ap, format);
    out_list(format, ap);
    va_end(ap);
    out(" [%s]\n           mend: %s\n", name_of[which], mend);
}

void check_good(struct ctl *ctl, const char *about, const char *format, ...)
{
    va_list ap;
    found[FINDING_GOOD]++;
    if (!verbose)
        return;
    out("ok       %s: ", about);
    va_start(ap, format);
    out_list(format, ap);
    va_end(ap);
    out("\n");
}

void check_list(void)
{
    for (size_t i = 0; i < FOUND_MOST; i++)
        out("%-8s %s\n", section_of[i], name_of[i]);
}

void check_verbose(void)
{
    verbose = true;
}

void check_sum(void)
{
    out("%zu critical, %zu warning%s, %zu good\n", found[FINDING_CRITICAL], found[FINDING_WARNING],
        ctl_s(found[FINDING_WARNING]), found[FINDING_GOOD]);
}
