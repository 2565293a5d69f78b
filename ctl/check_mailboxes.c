/* This host's Dovecot, as replication needs it: namespaces, formats, plugins, who is listed. */
#include "ctl/replica_here.h"

#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/subprocess.h"
#include "lib/config/acting_plugins.h"

#define PATIENCE 60000 /* milliseconds, for a userdb */
#define PLUGIN "dovelane"
#define DSYNC_PLUGIN "replication" /* check_dsync_replicator() speaks of it */

/* ---- how mail is kept ---- */

static void copy_small(char *out, size_t size, const char *word, size_t len)
{
    size_t n = len < size - 1 ? len : size - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = (char)tolower((unsigned char)word[i]);
    out[n] = '\0';
}

/* "maildir:~/Maildir:LAYOUT=fs:INDEX=MEMORY" */
static void read_location(const char *location, struct storage *s)
{
    size_t n = strcspn(location, ":");
    copy_small(s->driver, sizeof s->driver, location, n);
    for (const char *at = location + n; *at; at += n) {
        at++;
        n = strcspn(at, ":");
        if (!strncmp(at, "LAYOUT=", 7) && n > 7)
            copy_small(s->layout, sizeof s->layout, at + 7, n - 7);
        if (!strncmp(at, "INDEX=", 6) && n > 6)
            copy_small(s->index, sizeof s->index, at + 6, n - 6);
    }
}

void storage_of(const struct dovecot_conf *c, const char *section, struct storage *s)
{
    memset(s, 0, sizeof *s);
    const char *location = dovecot_conf_of(c, section, "location");
    if (!location || !*location)
        location = dovecot_conf_get(c, "mail_location");
    if (location && *location) {
        read_location(location, s);
    } else {
        const char *driver = dovecot_conf_or_global(c, section, "mail_driver"),
                   *layout = dovecot_conf_or_global(c, section, "mailbox_list_layout"),
                   *index = dovecot_conf_or_global(c, section, "mail_index_path");
        copy_small(s->driver, sizeof s->driver, driver, strlen(driver));
        copy_small(s->layout, sizeof s->layout, layout, strlen(layout));
        copy_small(s->index, sizeof s->index, index, strlen(index));
    }
    if (*s->driver && !*s->layout)
        strcpy(s->layout, strcmp(s->driver, "maildir") ? "fs" : "maildir++");
}

char separator_of(const struct dovecot_conf *c, const char *section)
{
    const char *set = dovecot_conf_of(c, section, "separator");
    struct storage s;
    if (set && *set)
        return *set;
    storage_of(c, section, &s);
    return !*s.driver ? '\0' : !strcmp(s.layout, "maildir++") ? '.' : '/';
}

static void check_storage(const struct replica_here *h, const char *section, const char *about)
{
    struct storage s;
    storage_of(h->dovecot, section, &s);
    bool fits =
        !strcmp(s.driver, "maildir") || !strcmp(s.driver, "sdbox") || !strcmp(s.driver, "mdbox");
    if (*s.driver && !fits && strcmp(s.driver, "auto") != 0)
        check_say(h->ctl, FINDING_CRITICAL, FOUND_FORMAT_UNFIT, about,
                  "sdbox, mdbox or Maildir (`doveadm sync` copies from one to the other)",
                  "its mail is kept as %s, which cannot be replicated: each user is refused",
                  s.driver);
    else if (!strcmp(s.index, "memory"))
        check_say(h->ctl, FINDING_CRITICAL, FOUND_INDEX_MEMORY, about,
                  "indexes on a disk: INDEX=MEMORY out of mail_location, or a path in "
                  "mail_index_path",
                  "its indexes are in memory, and nothing tells what changed: each user is "
                  "refused");
    else
        check_good(h->ctl, about, "keeps mail as %s",
                   *s.driver ? s.driver : "the userdb says for each user");
}

/* ---- namespaces ---- */

static void check_namespace(const struct replica_here *h, const char *name)
{
    char *section = mem_printf("namespace %s", name), *about = mem_printf("namespace %s", name);
    const char *separator = dovecot_conf_of(h->dovecot, section, "separator");
    if (!dovecot_conf_get(h->dovecot, section)) {
        check_say(h->ctl, FINDING_CRITICAL, FOUND_NAMESPACE_MISSING, about,
                  "replicate_namespaces = the titles of `namespace` sections that `doveconf -n` "
                  "shows, the same on all sites",
                  "replicate_namespaces in %s names it, and Dovecot has none of that name: each "
                  "user is refused",
                  h->ctl->config_path);
    } else {
        check_storage(h, section, about);
        if (!separator || !*separator)
            check_say(h->ctl, FINDING_WARNING, FOUND_SEPARATOR_UNSET, about,
                      "separator = / in that section, the same on all sites (clients see folders "
                      "by other names where it was another one)",
                      "no separator is set: it is the format's, `.` of Maildir and `/` of dbox, "
                      "and changes with the format");
        else
            check_good(h->ctl, about, "its separator is %s", separator);
    }
    free(about);
    free(section);
}

/* ---- plugins ---- */

/* Whether mails are changed by its processes. lda and doveadm are run, and stand in no list. */
static bool is_used(const struct dovecot_conf *d, const char *protocol)
{
    const char *list = dovecot_conf_get(d, "protocols"),
               *one = dovecot_conf_of(d, "protocols", protocol);
    if (!list || !strcmp(protocol, "lda") || !strcmp(protocol, "doveadm"))
        return true;
    return one ? !strcmp(one, "yes") : dovecot_conf_has_word(list, protocol);
}

static void check_loaded(const struct replica_here *h)
{
    static const char *const protocols[] = {"imap", "lmtp", "lda", "pop3", "sieve", "doveadm"};
    struct buf without = {0};
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
        if (is_used(h->dovecot, protocols[i]) &&
            !dovecot_conf_loads(h->dovecot, protocols[i], PLUGIN))
            buf_printf(&without, "%s%s", without.len ? ", " : "", protocols[i]);
    }
    if (without.len)
        check_say(h->ctl, FINDING_WARNING, FOUND_PLUGIN_MISSING, "dovecot",
                  "mail_plugins = $mail_plugins " PLUGIN " (2.4: mail_plugins { " PLUGIN
                  " = yes }) for all, before the protocol sections that add to it",
                  "the plugin " PLUGIN " is not loaded for %s: what they change is seen by a "
                  "sweep only, up to sweep_all later",
                  without.data);
    else
        check_good(h->ctl, "dovecot", "the plugin " PLUGIN " is loaded everywhere");
    buf_free(&without);
}

static void check_acting(const struct replica_here *h)
{
    static const char *const acting[] = {ACTING_PLUGINS};
    bool any = false;
    for (size_t i = 0; i < sizeof acting / sizeof *acting; i++) {
        if (!strcmp(acting[i], DSYNC_PLUGIN) ||
            !dovecot_conf_loads(h->dovecot, "dovelane", acting[i]))
            continue;
        any = true;
        check_say(h->ctl, FINDING_CRITICAL, FOUND_PLUGIN_ACTS, "dovecot",
                  "protocol dovelane { mail_plugins = all but those } (2.4: mail_plugins { NAME = "
                  "no } there); the example 11-dovelane.conf has the lines",
                  "the workers load %s, which would act on replicated mail: each user is refused",
                  acting[i]);
    }
    if (!any)
        check_good(h->ctl, "dovecot", "the workers load no plugin that acts by itself");
}

/* What such a site fetches is a file outside of any mailbox, too. */
static void check_on_demand(const struct replica_here *h)
{
    if (dovecot_conf_loads(h->dovecot, "dovelane", "mail_crypt"))
        check_say(
            h->ctl, FINDING_CRITICAL, FOUND_ON_DEMAND_CRYPT, "dovecot",
            "mail_crypt out of the mail_plugins of this site, or role = full for it in "
            "dovelane.conf",
            "%s has role = on-demand, and the workers load mail_crypt: fetched mail would not "
            "be encrypted, so users whose mails are encrypted are refused",
            h->name);
    else
        check_good(h->ctl, "dovelane-replicator",
                   "its role is on-demand: it has headers of large mails, and fetches their text");
}

/* What a backup site keeps is a file outside of any mailbox. */
static void check_backup(const struct replica_here *h)
{
    if (h->self >= 0 && config_is_on_demand(&h->ctl->config->replica[h->self]))
        check_on_demand(h);
    if (h->self < 0 || !config_is_backup(&h->ctl->config->replica[h->self]))
        return;
    if (dovecot_conf_loads(h->dovecot, "dovelane", "mail_crypt"))
        check_say(h->ctl, FINDING_CRITICAL, FOUND_BACKUP_CRYPT, "dovecot",
                  "mail_crypt out of the mail_plugins of this site, or role = full for it in "
                  "dovelane.conf",
                  "%s has role = backup, and the workers load mail_crypt: kept mail would not be "
                  "encrypted, so users whose mails are encrypted are refused",
                  h->name);
    else
        check_good(h->ctl, "dovelane-replicator",
                   "its role is backup: it keeps what other sites remove; clients use others");
}

/* What a commit comes back from is on the disk, but for that setting. */
static void check_fsync(const struct replica_here *h)
{
    static const char *const section[] = {"protocol imap", "protocol lmtp", "protocol dovelane"};
    for (size_t i = 0; i < sizeof section / sizeof *section; i++) {
        if (strcmp(dovecot_conf_or_global(h->dovecot, section[i], "mail_fsync"), "never") != 0)
            continue;
        check_say(h->ctl, FINDING_WARNING, FOUND_FSYNC_NEVER, "dovecot",
                  "mail_fsync = optimized, or no such line, in Dovecot's files",
                  "mail_fsync = never (%s): a power cut takes mail that was answered OK or 250, "
                  "and no mail here counts as on disk (until = replicated)",
                  section[i]);
        return;
    }
    check_good(h->ctl, "dovecot", "mail is on the disk when it is answered");
}

/* Access rights are the plugin's. */
static void check_acl_plugin(const struct replica_here *h)
{
    bool here = dovecot_conf_loads(h->dovecot, "imap", "acl"),
         workers = dovecot_conf_loads(h->dovecot, "dovelane", "acl");
    if (here && !workers)
        check_say(h->ctl, FINDING_WARNING, FOUND_ACL_LEFT_OUT, "dovecot",
                  "acl in the mail_plugins of protocol dovelane { }, too",
                  "acl is loaded for imap and not for the workers: access rights stay at the site "
                  "where they are changed");
    else
        check_good(h->ctl, "dovecot", "%s",
                   workers ? "access rights are replicated" : "access rights are not in use");
}

/* ---- what keeps the sites equal by now ---- */

static bool loads_anywhere(const struct dovecot_conf *d, const char *plugin)
{
    static const char *const protocols[] = {"imap",  "lmtp",    "lda",     "pop3",
                                            "sieve", "doveadm", "dovelane"};
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++)
        if (dovecot_conf_loads(d, protocols[i], plugin))
            return true;
    return false;
}

/* The replicator of 2.3 runs dsync: beside ours it saves mails that are just being placed. */
static void check_dsync_replicator(const struct replica_here *h)
{
    const struct dovecot_conf *d = h->dovecot;
    struct buf found = {0};
    bool loads = loads_anywhere(d, DSYNC_PLUGIN),
         target = dovecot_conf_get(d, "mail_replica") || dovecot_conf_get(d, "plugin/mail_replica");
    if (loads)
        buf_printf(&found, ", the plugin " DSYNC_PLUGIN);
    if (target)
        buf_printf(&found, ", mail_replica");
    if (dovecot_conf_get(d, "service replicator"))
        buf_printf(&found, ", service replicator");
    if (dovecot_conf_get(d, "service aggregator"))
        buf_printf(&found, ", service aggregator");
    if (found.len)
        check_say(h->ctl, loads || target ? FINDING_CRITICAL : FINDING_WARNING,
                  FOUND_DSYNC_REPLICATOR, "dovecot",
                  "on all sites, before Dovelane's start: notify and replication out of "
                  "mail_plugins, mail_replica and the services replicator and aggregator away; "
                  "then restart Dovecot (docs/migration.md)",
                  "Dovecot's own replicator is still configured (%s): both at once put mails into "
                  "mailboxes twice",
                  found.data + 2);
    else
        check_good(h->ctl, "dovecot", "its own replicator is off");
    buf_free(&found);
}

static bool has_dsync(const char *path)
{
    static const char *const words[] = {"doveadm sync", "doveadm backup", "dsync "};
    FILE *file = fopen(path, "re");
    char line[1024];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file))
        for (size_t i = 0; line[strspn(line, " \t")] != '#' && i < sizeof words / sizeof *words;
             i++)
            found = found || strstr(line, words[i]);
    if (file)
        fclose(file);
    return found;
}

static void check_dsync_jobs(const struct replica_here *h)
{
    static const char *const places[] = {"/etc/crontab", "/etc/cron.*/*",
                                         "/var/spool/cron/crontabs/*",
                                         "/etc/systemd/system/*.service"};
    glob_t found = {0};
    bool any = false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        glob(places[i], i ? GLOB_APPEND : 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (!has_dsync(found.gl_pathv[i]))
            continue;
        any = true;
        check_say(h->ctl, FINDING_WARNING, FOUND_DSYNC_JOB, "host",
                  "take the job out, where it is between sites (docs/migration.md); a `doveadm "
                  "backup` to a place that is no site may stay",
                  "%s runs dsync: between two sites, beside Dovelane, it puts mails into mailboxes "
                  "twice",
                  found.gl_pathv[i]);
    }
    globfree(&found);
    if (!any)
        check_good(h->ctl, "host", "no job of cron or systemd runs dsync");
}

/* ---- who is listed ---- */

static void check_listed(const struct replica_here *h)
{
    const char *argv[] = {"doveadm", "user", "*", NULL, NULL, NULL};
    if (h->dovecot_file) {
        static const char *const with[] = {"doveadm", "-c", NULL, "user", "*", NULL};
        memcpy(argv, with, sizeof with);
        argv[2] = h->dovecot_file;
    }
    struct subprocess_result r = subprocess_run(argv, NULL, 0, PATIENCE);
    size_t users = 0;
    for (const char *at = r.out.data; at && *at; at = strchr(at, '\n'), at += at != NULL)
        users++;
    const char *said = r.err.data && *r.err.data ? r.err.data : "";
    /* What Dovecot says of a userdb that can list nobody (static), while it runs. */
    bool cannot = strstr(said, "User listing returned failure");
    if (r.status != 0 && !users && !cannot)
        check_say(h->ctl, FINDING_WARNING, FOUND_USERS_UNLISTED, "userdb",
                  "start Dovecot, with the replicator or without, and look again; or iterate_query "
                  "(SQL and its like)",
                  "`doveadm user '*'` lists nobody: %.*s", (int)strcspn(said, "\n"), said);
    else if (!users)
        check_say(h->ctl, FINDING_WARNING, FOUND_USERS_UNLISTED, "userdb",
                  "iterate_query (SQL and its like), or doveadm dovelane resync -u USER for each "
                  "who has mail already",
                  "`doveadm user '*'` lists nobody: a user comes with his first change (right with "
                  "a static userdb)");
    else
        check_good(h->ctl, "userdb", "it lists %zu user%s", users, ctl_s(users));
    subprocess_free(&r);
}

void check_mailboxes(const struct replica_here *h)
{
    const struct config *c = h->ctl->config;
    for (size_t i = 0; i < c->replicate_namespaces.n; i++)
        check_namespace(h, c->replicate_namespaces.v[i]);
    check_loaded(h);
    check_acting(h);
    check_backup(h);
    check_acl_plugin(h);
    check_fsync(h);
    check_dsync_replicator(h);
    check_dsync_jobs(h);
    if (h->asked) /* a static userdb logs an error each time, and a monitoring asks often */
        check_listed(h);
}
