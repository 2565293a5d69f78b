/* What Dovecot's files say to the plugin: names and values that it would not take, and what must
 * be the same in dovelane.conf. */
#include "ctl/replica_here.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/mem.h"

#define PREFIX "dovelane_"
#define KEY_MOST 1100     /* bytes that are compared */
#define WAIT_MOST 300000. /* milliseconds, as PLUGIN_COMMIT_WAIT_MAX */
#define NAMES                                                                              \
    "dovelane_commit, dovelane_commit_wait, dovelane_group_key_file, dovelane_dirty_dir, " \
    "dovelane_public_user or dovelane_hint_path"

static const char *value_of(const struct replica_here *h, const char *name)
{
    char *path = mem_printf("plugin/%s", name);
    const char *value = dovecot_conf_get(h->dovecot, path);
    free(path);
    return value ? value : dovecot_conf_get(h->dovecot, name);
}

static bool is_known(const char *name)
{
    static const char *const known[] = {"dovelane_commit",         "dovelane_commit_wait",
                                        "dovelane_group_key_file", "dovelane_dirty_dir",
                                        "dovelane_public_user",    "dovelane_hint_path",
                                        "dovelane_replicate"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i]))
            return true;
    return false;
}

/* As Dovecot reads a time: a unit may be shortened to its first letters. */
static bool is_wait(const char *value)
{
    static const struct {
        const char *name;
        double ms;
    } unit[] = {{"seconds", 1e3}, {"secs", 1e3},    {"minutes", 6e4},  {"mins", 6e4},
                {"msecs", 1.},    {"mseconds", 1.}, {"millisecs", 1.}, {"milliseconds", 1.}};
    char *end;
    unsigned long n = strtoul(value, &end, 10);
    while (*end == ' ')
        end++;
    if (*value < '0' || *value > '9')
        return false;
    for (size_t i = 0; *end && i < sizeof unit / sizeof *unit; i++)
        if (!strncasecmp(unit[i].name, end, strlen(end)))
            return n > 0 && (double)n * unit[i].ms <= WAIT_MOST;
    return false;
}

/* What is to be written; NULL: the value is good. */
static const char *wanted_for(const char *name, const char *value)
{
    if (!strcmp(name, "dovelane_commit") && *value && strcmp(value, "local") != 0 &&
        strcmp(value, "peers") != 0)
        return "dovelane_commit = peers, or local";
    if (!strcmp(name, "dovelane_commit_wait") && !is_wait(value))
        return "dovelane_commit_wait = 2s, from 1 ms to 5 min";
    if ((!strcmp(name, "dovelane_group_key_file") || !strcmp(name, "dovelane_dirty_dir") ||
         !strcmp(name, "dovelane_hint_path")) &&
        *value && !strchr("/%", *value))
        return "an absolute path";
    return NULL;
}

static bool check_line(const struct replica_here *h, const struct dovecot_line *line)
{
    const char *slash = strrchr(line->path, '/'), *name = slash ? slash + 1 : line->path, *wanted;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || !strcmp(line->value, "{"))
        return true;
    if (!is_known(name))
        check_say(h->ctl, FINDING_WARNING, FOUND_PLUGIN_SETTING, "dovecot",
                  "write " NAMES ", or take the line out",
                  "%s = %s: the plugin has no setting of that name, and does nothing with it", name,
                  line->value);
    else if ((wanted = wanted_for(name, line->value)))
        check_say(h->ctl, FINDING_CRITICAL, FOUND_PLUGIN_SETTING, "dovecot", wanted,
                  "%s = %s is not taken: until it is mended the plugin tells the replicator "
                  "nothing, and no reply waits for another site",
                  name, line->value);
    else
        return true;
    return false;
}

static void check_settings(const struct replica_here *h)
{
    bool good = true;
    for (size_t i = 0; i < h->dovecot->n; i++)
        good &= check_line(h, &h->dovecot->line[i]);
    if (good)
        check_good(h->ctl, "dovecot", "the plugin takes all its settings");
}

/* ---- what stands in two files ---- */

static const struct config_destination *with_id(const struct config *c)
{
    const struct config_destination *found = c->other.delivery_id ? &c->other : NULL;
    for (size_t i = 0; i < c->ndestinations; i++)
        if (c->destination[i].delivery_id &&
            (!found || c->destination[i].until == UNTIL_REPLICATED))
            found = &c->destination[i];
    return found;
}

/* Without line ends behind it; errno where it cannot be read. */
static bool read_key(const char *path, char key[KEY_MOST], size_t *len)
{
    FILE *file = fopen(path, "re");
    *len = file ? fread(key, 1, KEY_MOST, file) : 0;
    if (!file)
        return false;
    fclose(file);
    while (*len && strchr(" \t\r\n", key[*len - 1]))
        (*len)--;
    return true;
}

static void check_key_file(const struct replica_here *h, const char *path)
{
    const char *other = h->ctl->config->group_key_file;
    char here[KEY_MOST], there[KEY_MOST];
    size_t nhere, nthere;
    char *mend =
        mem_printf("the key of the other hosts into %s, readable for the mail users' group", path);
    if (!read_key(path, here, &nhere))
        check_say(h->ctl, FINDING_CRITICAL, FOUND_GROUP_KEY, "dovecot", mend,
                  "dovelane_group_key_file = %s cannot be read: %s", path, strerror(errno));
    else if (*other && read_key(other, there, &nthere) &&
             (nhere != nthere || memcmp(here, there, nhere) != 0))
        check_say(h->ctl, FINDING_CRITICAL, FOUND_GROUP_KEY, "dovecot", mend,
                  "dovelane_group_key_file = %s and group_key_file = %s hold different keys: the "
                  "plugin believes no Dovelane-Id, and a mail that is delivered twice shows twice",
                  path, other);
    else
        check_good(h->ctl, "dovecot", "%s has the group's key", path);
    explicit_bzero(here, sizeof here);
    explicit_bzero(there, sizeof there);
    free(mend);
}

static void check_group_key(const struct replica_here *h)
{
    const struct config *c = h->ctl->config;
    const struct config_destination *d = with_id(c);
    const char *path = value_of(h, "dovelane_group_key_file");
    if (path && *path) {
        check_key_file(h, path);
    } else if (d) {
        char *mend = mem_printf("dovelane_group_key_file = %s in 11-dovelane.conf, and restart "
                                "Dovecot",
                                c->group_key_file);
        check_say(h->ctl, FINDING_WARNING, FOUND_GROUP_KEY, "dovecot", mend,
                  "destination \"%s\" has delivery_id = yes, and Dovecot has no "
                  "dovelane_group_key_file: a mail that is delivered twice shows twice%s",
                  d->name,
                  d->until == UNTIL_REPLICATED
                      ? ", and no site finds a mail for which a relay asks (until = replicated)"
                      : "");
        free(mend);
    }
}

static void check_public_user(const struct replica_here *h)
{
    const char *here = h->ctl->config->replicate_public_user,
               *there = value_of(h, "dovelane_public_user");
    there = there ? there : "";
    if (strcmp(here, there) != 0)
        check_say(h->ctl, FINDING_WARNING, FOUND_PUBLIC_USER, "dovecot",
                  "the same user in both, or in neither",
                  "dovelane_public_user is \"%s\" in Dovecot's files, and replicate_public_user "
                  "\"%s\" in %s: changes of public mailboxes are seen by a sweep only, or not "
                  "at all",
                  there, here, h->ctl->config_path);
}

void check_plugin(const struct replica_here *h)
{
    check_settings(h);
    check_group_key(h);
    check_public_user(h);
}
