#include "lib/ingress/reasons.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/mail/envelope.h"
#include "lib/postfix/postfix.h"

const char *reasons_of_all(bool on, char *detail, size_t size)
{
    detail[0] = '\0';
    return !on ? "divert-off" : postfix_forbids(detail, size) ? "postfix" : NULL;
}

const char *reasons_of_sender(const char *args, char *detail, size_t size)
{
    static const char *const postfixs[] = {"XVERP", "REQUIRETLS"};
    detail[0] = '\0';
    for (const char *word = args; word && *word; word += strspn(word, " ")) {
        size_t n = strcspn(word, " ="), whole = strcspn(word, " ");
        for (size_t i = 0; i < sizeof postfixs / sizeof *postfixs; i++)
            if (n == strlen(postfixs[i]) && !strncasecmp(word, postfixs[i], n)) {
                snprintf(detail, size, "%s", postfixs[i]);
                return "postfix";
            }
        word += whole;
    }
    return NULL;
}

/* RFC 3461 section 4.1: the relay cannot report success or delay, Postfix can. */
static bool wants_notice(const char *args)
{
    char *notify = envelope_arg(args, "NOTIFY"), *save = NULL;
    bool wants = false;
    for (char *word = notify ? strtok_r(notify, ",", &save) : NULL; word;
         word = strtok_r(NULL, ",", &save))
        wants |= !strcasecmp(word, "SUCCESS") || !strcasecmp(word, "DELAY");
    free(notify);
    return wants;
}

const char *reasons_of_recipient(const struct config *c, const char *destination,
                                 const char *address, const char *args, char *detail, size_t size)
{
    detail[0] = '\0';
    if (!config_list_has(&c->divert, destination)) {
        snprintf(detail, size, "%.200s to=<%.256s>", destination, address);
        return "not-in-divert";
    }
    if (postfix_forbids_destination(destination, detail, size))
        return "postfix";
    if (wants_notice(args)) {
        snprintf(detail, size, "to=<%.256s>", address);
        return "notify";
    }
    return NULL;
}

const char *reasons_of_maps(enum maps_of of, const char *address, int64_t until, char *detail,
                            size_t size)
{
    detail[0] = '\0';
    if (!until && !postfix_knows(of, address)) {
        snprintf(detail, size, "slow");
        return "map";
    }
    return postfix_changes(of, address, until, detail, size) ? "map" : NULL;
}
