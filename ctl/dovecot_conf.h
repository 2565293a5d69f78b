/* dovecot_conf - what this host's Dovecot is set to, as `doveconf -n` shows it (2.3 and 2.4). */
#ifndef DOVELANE_CTL_DOVECOT_CONF_H
#define DOVELANE_CTL_DOVECOT_CONF_H

#include <stdbool.h>
#include <stddef.h>

struct dovecot_conf {
    char *error;   /* NULL, or why it is not known: there is no Dovecot, or its file is wrong */
    bool absent;   /* there is no Dovecot here */
    char *version; /* "2.3.19.1" */
    size_t n;
    struct dovecot_line {
        char *path, *value; /* "service lmtp/user": sections and the name; of a section "{" */
    } * line;
};

/* file: another one than Dovecot's own; NULL: that. */
struct dovecot_conf *dovecot_conf_read(const char *file);
/* What `doveconf -h` says of one setting, also where it has its default. The caller's; NULL: it
 * says nothing. */
char *dovecot_conf_ask(const char *file, const char *name);
void dovecot_conf_free(struct dovecot_conf *);

/* NULL: it is not set, and has its default. */
const char *dovecot_conf_get(const struct dovecot_conf *, const char *path);
/* The same, of a section. */
const char *dovecot_conf_of(const struct dovecot_conf *, const char *section, const char *name);
/* Set in a section, or else for all; "" when neither. */
const char *dovecot_conf_or_global(const struct dovecot_conf *, const char *section,
                                   const char *name);
long long dovecot_conf_number(const struct dovecot_conf *, const char *section, const char *name,
                              long long otherwise);

/* Whether a protocol's processes load that plugin. */
bool dovecot_conf_loads(const struct dovecot_conf *, const char *protocol, const char *plugin);

/* A word of a list that blanks divide. */
bool dovecot_conf_has_word(const char *list, const char *word);

#endif
