/* postconf - Postfix's settings as its services have them, by postconf(1). */
#ifndef DOVELANE_LIB_POSTFIX_POSTCONF_H
#define DOVELANE_LIB_POSTFIX_POSTCONF_H

#include <stdbool.h>
#include <stddef.h>

struct postconf;

/* A line of master.cf (master(5)). */
struct postconf_service {
    char *key;  /* "smtp/inet", "[::1]:10025/inet" */
    char *name; /* "smtp" */
    bool inet, chroot;
    char *command; /* "smtpd" */
    char *flags;   /* "DORX" of flags=DORX among its arguments, or "" */
    /* it has "-oname=value" in one word, of which postconf(1) makes something else */
    bool misread;
};

/* Reads them (about 50 ms) from that directory, or from Postfix's own (NULL). NULL and *error_r
 * (malloc'd): why not. */
struct postconf *postconf_read(const char *directory, char **error_r);
void postconf_free(struct postconf *);

/* The directory that was read. */
const char *postconf_directory(const struct postconf *);

/* The services in the order of master.cf; NULL behind the last one. */
const struct postconf_service *postconf_service(const struct postconf *, size_t i);
/* The inet service that a connection to that address reaches ("127.0.0.1:10626"; "smtp" is port
 * 25), or NULL. It is the one of that host and port; else the one of that port on all hosts; else
 * any of that port. */
const struct postconf_service *postconf_listener(const struct postconf *, const char *address);

/* A parameter as service has it (-o in master.cf, else main.cf). $names are expanded as the service
 * does: -o myhostname=... changes its smtp_helo_name, too. NULL service: main.cf. "" when it is not
 * known. */
const char *postconf_get(const struct postconf *, const char *service, const char *name);

/* The words of a list: parted by blanks and commas, {...} counts as a word (its braces are left
 * on). Calls fn for each until it returns false. */
typedef bool postconf_word_fn(void *arg, const char *word);
bool postconf_words(const char *list, postconf_word_fn *, void *arg);

/* Calls fn for the name of each parameter that this Postfix knows, or of those that its main.cf
 * sets; until fn returns false. False: postconf(1) does not work. Blocks (about 30 ms). */
bool postconf_names(const char *directory, bool set, postconf_word_fn *, void *arg);

#endif
