/* survey - "doveadm dovelane survey": writes what this site's mailboxes hold to stdout, for
 * "doveadm dovelane compare" (compare/survey.h). It needs no replicator.
 *
 * It only reads: a mailbox is opened as by EXAMINE, what was read is rolled back, and nothing is
 * made, neither a mailbox nor a user's home. (A Maildir is synced, as by any STATUS: mails in new/
 * have their UIDs then.) */
#include "dovecot-plugin/doveadm/commands.h"

#include "dovecot-plugin/compare/survey.h"
#include "dovecot-plugin/mailbox/folder_name.h"
#include "dovecot-plugin/mailbox/mail_facts.h"
#include "dovecot-plugin/mailbox/scope.h"
#include "dovecot-plugin/orset/orset.h"
#include "lib/config/config.h"

#include <doveadm-mail.h>
#include <hostpid.h>
#include <mail-storage-private.h>
#include <mailbox-list-iter.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOT_REPLICATED "dovelane_replicate=no"

struct survey_command {
    struct doveadm_mail_cmd_context ctx;
    struct config *config;
    size_t users;
    bool begun;
};

struct reading {
    struct survey_command *cmd;
    struct mail_user *user;
    const char *error; /* data stack */
};

static bool fails(struct reading *r, const char *what, const char *why)
{
    r->error = t_strdup_printf("%s: %s", what, why);
    return FALSE;
}

/* --- a mailbox -------------------------------------------------------------------------------- */

static bool read_mail(struct reading *r, struct mail *mail)
{
    struct orset_facts facts;
    struct survey_mail m = {.uid = mail->uid};
    if (mail_facts(mail, &facts, NULL, 0) < 0) {
        if (mailbox_get_last_mail_error(mail->box) == MAIL_ERROR_EXPUNGED)
            return TRUE; /* just now */
        return fails(r, t_strdup_printf("%s, UID %u", mailbox_get_vname(mail->box), mail->uid),
                     mailbox_get_last_internal_error(mail->box, NULL));
    }
    memcpy(m.guid, facts.guid, sizeof m.guid);
    memcpy(m.sha256, facts.sha256, sizeof m.sha256);
    survey_put_mail(stdout, &m);
    return TRUE;
}

static bool read_mails(struct reading *r, struct mailbox *box, uint32_t messages)
{
    struct mailbox_transaction_context *trans =
        mailbox_transaction_begin(box, MAILBOX_TRANSACTION_FLAG_NO_CACHE_DEC, "dovelane survey");
    struct mail *mail = mail_alloc(trans, 0, NULL);
    bool done = TRUE;
    for (uint32_t seq = 1; done && seq <= messages; seq++) {
        T_BEGIN
        {
            mail_set_seq(mail, seq);
            done = read_mail(r, mail);
        }
        T_END;
        if (!done)
            r->error = t_strdup(r->error);
    }
    mail_free(&mail);
    mailbox_transaction_rollback(&trans);
    return done;
}

static bool read_open(struct reading *r, struct mailbox *box)
{
    struct mailbox_metadata metadata;
    struct mailbox_status status;
    buffer_t *name = t_buffer_create(128);
    const char *vname = mailbox_get_vname(box);
    bool maildir = strcmp(box->storage->name, "maildir") == 0;
    if (mailbox_open(box) < 0 || (maildir && mailbox_sync(box, 0) < 0) ||
        mailbox_get_metadata(box, MAILBOX_METADATA_GUID, &metadata) < 0 ||
        mailbox_get_status(box, STATUS_MESSAGES | STATUS_UIDVALIDITY | STATUS_UIDNEXT, &status) < 0)
        return fails(r, vname, mailbox_get_last_internal_error(box, NULL));
    struct survey_folder f = {.uid_validity = status.uidvalidity, .uid_next = status.uidnext};
    memcpy(f.guid, metadata.guid, sizeof f.guid);
    if (folder_name_of(mailbox_get_namespace(box), vname, name)) {
        f.name = buffer_get_modifiable_data(name, &f.name_len);
    } else if (!scope_is_inbox(mailbox_get_namespace(box), vname)) {
        return TRUE; /* no folder of that name can be */
    }
    survey_put_folder(stdout, &f);
    return read_mails(r, box, status.messages);
}

/* INBOX is listed, and would be made, where there is none. */
static bool read_mailbox(struct reading *r, struct mailbox_list *list, const char *vname)
{
    enum mailbox_existence existence;
    struct mailbox *box =
        mailbox_alloc(list, vname, MAILBOX_FLAG_READONLY | MAILBOX_FLAG_IGNORE_ACLS);
    bool done = TRUE;
    if (mailbox_exists(box, FALSE, &existence) < 0)
        done = fails(r, vname, mailbox_get_last_internal_error(box, NULL));
    else if (existence == MAILBOX_EXISTENCE_SELECT)
        done = read_open(r, box);
    mailbox_free(&box);
    return done;
}

/* --- a user ----------------------------------------------------------------------------------- */

/* Listing it would make the root. */
static bool is_there(const struct mail_namespace *ns)
{
    const char *root;
    struct stat st;
    return !mailbox_list_get_root_path(ns->list, MAILBOX_LIST_PATH_TYPE_DIR, &root) ||
           stat(root, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

static bool read_namespace(struct reading *r, struct mail_namespace *ns)
{
    if (!is_there(ns))
        return TRUE;
    const struct mailbox_info *info;
    struct mailbox_list_iterate_context *iter = mailbox_list_iter_init(
        ns->list, "*", MAILBOX_LIST_ITER_RAW_LIST | MAILBOX_LIST_ITER_NO_AUTO_BOXES);
    bool done = TRUE;
    while (done && (info = mailbox_list_iter_next(iter)) != NULL)
        if ((info->flags & (MAILBOX_NOSELECT | MAILBOX_NONEXISTENT)) == 0)
            done = read_mailbox(r, ns->list, info->vname);
    if (mailbox_list_iter_deinit(&iter) < 0 && done)
        done = fails(r, compat_namespace_name(ns),
                     mailbox_list_get_last_internal_error(ns->list, NULL));
    return done;
}

static bool is_replicated(const struct mail_user *user)
{
    const char *const *field = user->userdb_fields;
    while (field != NULL && *field != NULL && strcasecmp(*field, NOT_REPLICATED) != 0)
        field++;
    return field == NULL || *field == NULL;
}

static int survey_run(struct doveadm_mail_cmd_context *ctx, struct mail_user *user)
{
    struct survey_command *cmd = container_of(ctx, struct survey_command, ctx);
    const struct config *c = cmd->config;
    struct reading r = {.cmd = cmd, .user = user};
    bool done = TRUE;
    if (!is_replicated(user))
        return 0;
    survey_put_user(stdout, user->username);
    cmd->users++;
    for (struct mail_namespace *ns = user->namespaces; done && ns != NULL; ns = ns->next)
        if (scope_has(user, ns, (const char *const *)c->replicate_namespaces.v,
                      c->replicate_namespaces.n, c->replicate_public_user))
            done = read_namespace(&r, ns);
    if (!done) {
        survey_put_failure(stdout, r.error);
        i_error("dovelane survey: %s: %s", user->username, r.error);
        doveadm_mail_failed_error(ctx, MAIL_ERROR_TEMP);
    }
    return done ? 0 : -1;
}

/* --- all of it -------------------------------------------------------------------------------- */

/* As root, and before anybody is looked up. */
static void survey_preinit(struct doveadm_mail_cmd_context *ctx)
{
    struct survey_command *cmd = container_of(ctx, struct survey_command, ctx);
    const char *path = COMMANDS_CONFIG;
    char *error = NULL;
    (void)doveadm_cmd_param_str(ctx->cctx, "config", &path);
    cmd->config = config_read(path, &error);
    if (cmd->config == NULL)
        i_fatal("dovelane survey: %s", error);
    if (cmd->config->replicate_namespaces.n == 0)
        i_fatal("dovelane survey: %s: replicate_namespaces is empty: name what is replicated, the "
                "same on all sites",
                path);
    if (isatty(STDOUT_FILENO))
        i_fatal("dovelane survey: it writes a file: say doveadm dovelane survey -A > FILE");
    survey_put_head(stdout, my_hostname);
    cmd->begun = TRUE;
}

/* A user who could not be looked up is not in it: the exit status tells. */
static void survey_deinit(struct doveadm_mail_cmd_context *ctx)
{
    struct survey_command *cmd = container_of(ctx, struct survey_command, ctx);
    if (cmd->begun)
        survey_put_end(stdout, cmd->users);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        i_error("dovelane survey: stdout cannot be written: %m");
        doveadm_mail_failed_error(ctx, MAIL_ERROR_TEMP);
        doveadm_exit_code = EX_IOERR;
    }
    if (cmd->config != NULL)
        config_free(cmd->config);
}

struct doveadm_mail_cmd_context *survey_alloc(void)
{
    struct survey_command *cmd = doveadm_mail_cmd_alloc(struct survey_command);
    compat_mail_cmd_option(&cmd->ctx, "C");
    cmd->ctx.v.preinit = survey_preinit;
    cmd->ctx.v.run = survey_run;
    cmd->ctx.v.deinit = survey_deinit;
    return &cmd->ctx;
}
