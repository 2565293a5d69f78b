/* survey - writes the lines of a survey. */
#include "dovecot-plugin/compare/survey.h"

#include <stdlib.h>
#include <string.h>

#define VERSION 1

static size_t escaped(char *out, const char *text, size_t len, char divider)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (divider != '\0' && c == '\0') {
            out[n++] = divider;
        } else if (c < 0x20 || c == 0x7f || c == '%' || (divider != '\0' && c == divider)) {
            out[n++] = '%';
            out[n++] = hex[c >> 4];
            out[n++] = hex[c & 15];
        } else {
            out[n++] = (char)c;
        }
    }
    out[n] = '\0';
    return n;
}

static char *text_of(const char *text, size_t len, char divider)
{
    char *out = malloc(3 * len + 1);
    if (out)
        escaped(out, text, len, divider);
    return out;
}

char *survey_folder_text(const char *name, size_t len)
{
    return name ? text_of(name, len, '/') : strdup("-");
}

/* Without memory it is no line that can be read. */
static void put_text(FILE *f, const char *kind, char *text)
{
    fprintf(f, "%s\t%s", kind, text ? text : "\t");
    free(text);
}

static void put_hex(FILE *f, const uint8_t *bytes, size_t n)
{
    fputc('\t', f);
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%02x", bytes[i]);
}

void survey_put_head(FILE *f, const char *host)
{
    fprintf(f, "dovelane-survey\t%d\t%s\n", VERSION, host);
}

void survey_put_user(FILE *f, const char *name)
{
    put_text(f, "U", text_of(name, strlen(name), '\0'));
    fputc('\n', f);
}

void survey_put_folder(FILE *f, const struct survey_folder *folder)
{
    put_text(f, "F", survey_folder_text(folder->name, folder->name_len));
    put_hex(f, folder->guid, sizeof folder->guid);
    fprintf(f, "\t%u\t%u\n", (unsigned)folder->uid_validity, (unsigned)folder->uid_next);
}

void survey_put_mail(FILE *f, const struct survey_mail *m)
{
    fprintf(f, "M\t%u", (unsigned)m->uid);
    put_hex(f, m->guid, sizeof m->guid);
    put_hex(f, m->sha256, sizeof m->sha256);
    fputc('\n', f);
}

void survey_put_failure(FILE *f, const char *why)
{
    put_text(f, "X", text_of(why, strlen(why), '\0'));
    fputc('\n', f);
}

void survey_put_end(FILE *f, size_t users)
{
    fprintf(f, "end\t%zu\n", users);
}
