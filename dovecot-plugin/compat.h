/* compat - every difference between Dovecot 2.3.19 and 2.4 that our code meets, and nowhere else an
 * #if for it.
 *
 * Dovecot's own headers are included with <>, as what they are: a foreign library's. Its own
 * "compat.h" is found by lib.h beside itself and never mixed up with this file. Include this file
 * in place of <lib.h>.
 *
 * Conventions: compat_* functions have the newer version's form; values are owned as Dovecot's
 * function of the same name says unless noted. */
#ifndef DOVELANE_DOVECOT_PLUGIN_COMPAT_H
#define DOVELANE_DOVECOT_PLUGIN_COMPAT_H

#include <lib.h>
#include <array.h>
#include <lib-event.h>
#include <event-log.h>
#include <istream-private.h>
#include <mail-index-private.h>
#include <mail-user.h>
#include <mdbox-storage.h>
#include <mdbox-storage-rebuild.h>
#include <mail-namespace.h>
#include <mail-storage.h>
#include <mail-storage-service.h>
#include <mail-storage-settings.h>
#include <mailbox-list-private.h>
#include <master-service.h>
#include <master-service-settings.h>
#include <settings-parser.h>

#define COMPAT_24 DOVECOT_PREREQ(2, 4, 0)

#if COMPAT_24
#include <settings.h>

#include <dlfcn.h>
#endif

/* --- strings ---------------------------------------------------------------------------------- */

#if !COMPAT_24
#define str_begins_with(haystack, needle) str_begins(haystack, needle)
#endif

/* --- streams ---------------------------------------------------------------------------------- */

/* A stream that has no parent, and reads files of its own that it opens as it goes. */
static inline struct istream *compat_istream_create_hiding(struct istream_private *stream)
{
#ifdef COMPAT_HIDDEN_INPUTS
    return i_stream_create(stream, NULL, -1, ISTREAM_HIDDEN_INPUTS_UNCHECKED, 0);
#else
    return i_stream_create(stream, NULL, -1, 0);
#endif
}

/* --- services --------------------------------------------------------------------------------- */

#if COMPAT_24
/* 2.4 keeps no connection to the config service: settings come as one mapped file. */
#define COMPAT_SERVICE_FLAG_KEEP_CONFIG_OPEN 0
/* Nothing to leave out: settings are read when they are asked for. */
#define COMPAT_SERVICE_FLAG_DISABLE_SSL_SET 0
#else
#define COMPAT_SERVICE_FLAG_KEEP_CONFIG_OPEN MASTER_SERVICE_FLAG_KEEP_CONFIG_OPEN
#define COMPAT_SERVICE_FLAG_DISABLE_SSL_SET MASTER_SERVICE_FLAG_DISABLE_SSL_SET
#endif

/* Reads the service's basic settings (base_dir, logging). 0, or -1 and *error_r. Call before
 * privileges are dropped. protocol: whose "protocol NAME { }" later lookups may have, or NULL;
 * 2.4 drops those of others at once. */
static inline int compat_settings_read_simple(struct master_service *service, const char *protocol,
                                              const char **error_r)
{
#if COMPAT_24
    const struct master_service_settings_input input = {.protocol = protocol};
    struct master_service_settings_output output;
    return master_service_settings_read(service, &input, &output, error_r);
#else
    (void)protocol;
    return master_service_settings_read_simple(service, NULL, error_r);
#endif
}

/* The basic settings; valid after compat_settings_read_simple(). */
static inline const struct master_service_settings *
compat_service_settings(struct master_service *service)
{
#if COMPAT_24
    return master_service_get_service_settings(service);
#else
    return master_service_settings_get(service);
#endif
}

/* $base_dir of the basic settings. */
static inline const char *compat_base_dir(struct master_service *service)
{
    return compat_service_settings(service)->base_dir;
}

/* A root event for a program's log lines; the caller's, for event_unref(). 2.3's has no parent. */
static inline struct event *compat_service_event_create(struct master_service *service)
{
#if COMPAT_24
    return event_create(master_service_get_event(service));
#else
    (void)service;
    return event_create(NULL);
#endif
}

/* --- users ------------------------------------------------------------------------------------ */

static inline struct mail_storage_service_ctx *
compat_storage_service_init(struct master_service *service, enum mail_storage_service_flags flags)
{
#if COMPAT_24
    return mail_storage_service_init(service, flags);
#else
    return mail_storage_service_init(service, NULL, flags);
#endif
}

/* As Dovecot calls him after the lookup, which may be another spelling, or another name, than
 * was asked for. */
static inline const char *compat_service_username(const struct mail_storage_service_user *user)
{
#if COMPAT_24
    return mail_storage_service_user_get_username(user);
#else
    return mail_storage_service_user_get_input((struct mail_storage_service_user *)user)->username;
#endif
}

/* Names who asks: the settings of "protocol NAME" and service NAME apply. input is zeroed first. */
static inline void compat_input_init(struct mail_storage_service_input *input, const char *service,
                                     const char *username)
{
    i_zero(input);
#if COMPAT_24
    input->protocol = service;
#else
    input->module = "mail";
#endif
    input->service = service;
    input->username = username;
}

/* As mail_storage_service_lookup(), with the userdb's fields ("name=value", NULL at the end;
 * pool's, or the user's). */
static inline int compat_lookup(struct mail_storage_service_ctx *ctx,
                                const struct mail_storage_service_input *input, pool_t pool,
                                struct mail_storage_service_user **user_r,
                                const char *const **fields_r, const char **error_r)
{
    *fields_r = NULL;
#if COMPAT_24
    (void)pool;
    int ret = mail_storage_service_lookup(ctx, input, user_r, error_r);
    if (ret > 0)
        *fields_r = mail_storage_service_user_get_userdb_fields(*user_r);
    return ret;
#else
    mail_storage_service_save_userdb_fields(ctx, pool, fields_r);
    return mail_storage_service_lookup(ctx, input, user_r, error_r);
#endif
}

/* mail_access_groups, as one text on the data stack. */
static inline const char *compat_access_groups(const struct mail_user_settings *set)
{
#if COMPAT_24
    return array_is_created(&set->mail_access_groups)
               ? t_array_const_string_join(&set->mail_access_groups, ",")
               : "";
#else
    return set->mail_access_groups;
#endif
}

/* A setting that may have variables, as compat_user_set() gives it. 2.3 has a mark before it. */
static inline const char *compat_not_expanded(const char *value)
{
#if COMPAT_24
    return value;
#else
    return *value == SETTING_STRVAR_UNEXPANDED[0] || *value == SETTING_STRVAR_EXPANDED[0]
               ? value + 1
               : value;
#endif
}

/* Whose files a user's mails are, and where: the settings of the user's own. */
static inline const struct mail_user_settings *
compat_user_set(struct mail_storage_service_user *user)
{
#if COMPAT_24
    return mail_storage_service_user_get_set(user);
#else
    return mail_storage_service_user_get_set(user)[0];
#endif
}

static inline void compat_user_deinit(struct mail_user **user)
{
    mail_user_deinit(user);
}

/* The service user behind a mail_user made by mail_storage_service, or NULL. Not a new
 * reference. */
static inline struct mail_storage_service_user *compat_service_user(struct mail_user *user)
{
#if COMPAT_24
    return user->service_user;
#else
    return user->_service_user;
#endif
}

/* The names in the user's mail_plugins, NULL at the end, on the data stack. */
static inline const char *const *compat_mail_plugins(struct mail_user *user)
{
#if COMPAT_24
    ARRAY_TYPE(const_string) names;
    t_array_init(&names, 8);
    if (array_is_created(&user->set->mail_plugins))
        array_append_array(&names, &user->set->mail_plugins);
    array_append_zero(&names);
    return array_front(&names);
#else
    return t_strsplit_spaces(user->set->mail_plugins, " ");
#endif
}

/* A setting of mail_crypt, which is loaded, as the configuration or the userdb has it for this
 * user. "" when it is not set, NULL when that is not known. */
#if COMPAT_24
#define COMPAT_CRYPT_PASSWORD "crypt_user_key_password"
#define COMPAT_CRYPT_GLOBAL_KEY "crypt_global_public_key_file"
static inline const char *compat_crypt_setting(struct mail_user *user, const char *key)
{
    /* The plugin's settings have no installed header; where in them the one is, its definition
     * says. */
    const struct setting_parser_info *info = dlsym(RTLD_DEFAULT, "crypt_setting_parser_info");
    const void *set;
    const char *error, *value = "";
    if (info == NULL || (settings_get)(user->event, info, 0, __FILE__, __LINE__, &set, &error) < 0)
        return NULL;
    for (const struct setting_define *d = info->defines; d->key != NULL; d++)
        if (strcmp(d->key, key) == 0)
            value = t_strdup(*(const char *const *)CONST_PTR_OFFSET(set, d->offset));
    pool_t pool = *(const pool_t *)CONST_PTR_OFFSET(set, info->pool_offset1 - 1);
    pool_unref(&pool);
    return value == NULL ? "" : value;
}
static inline bool compat_crypt_writes(struct mail_user *user)
{
    const char *value = compat_crypt_setting(user, "crypt_write_algorithm");
    return value == NULL || *value != '\0';
}
#else
#define COMPAT_CRYPT_PASSWORD "mail_crypt_private_password"
#define COMPAT_CRYPT_GLOBAL_KEY "mail_crypt_global_public_key"
static inline const char *compat_crypt_setting(struct mail_user *user, const char *key)
{
    const char *value = mail_user_plugin_getenv(user, key);
    return value == NULL ? "" : value;
}
static inline bool compat_crypt_writes(struct mail_user *user)
{
    const char *version = compat_crypt_setting(user, "mail_crypt_save_version");
    return *version != '\0' && *version != '0';
}
#endif

/* --- namespaces and mailboxes ----------------------------------------------------------------- */

/* The name of the namespace's section in the configuration ("inbox" in "namespace inbox {"), or
 * "". */
static inline const char *compat_namespace_name(const struct mail_namespace *ns)
{
    return ns->set == NULL || ns->set->name == NULL ? "" : ns->set->name;
}

/* --- doveadm ---------------------------------------------------------------------------------- */

/* A mail command's own option with a value, which it finds in ctx->cctx. 2.3 asks it first. */
#if COMPAT_24
#define compat_mail_cmd_option(ctx, letter) ((void)(ctx))
#else
struct doveadm_mail_cmd_context;
static inline bool compat_mail_cmd_takes(struct doveadm_mail_cmd_context *ctx, int letter)
{
    (void)ctx;
    (void)letter;
    return TRUE;
}
#define compat_mail_cmd_option(ctx, letter)         \
    do {                                            \
        (ctx)->getopt_args = letter ":";            \
        (ctx)->v.parse_arg = compat_mail_cmd_takes; \
    } while (0)
#endif

/* --- indexes ---------------------------------------------------------------------------------- */

/* All mailboxes of the storage get the mails that its files have. Not by a sync with
 * MAILBOX_SYNC_FLAG_FORCE_RESYNC: in 2.3 that leaves the map marked as repaired. */
static inline int compat_mdbox_rebuild(struct mdbox_storage *storage)
{
#if COMPAT_24
    return mdbox_storage_rebuild(storage, NULL, MDBOX_REBUILD_REASON_FORCED);
#else
    return mdbox_storage_rebuild(storage);
#endif
}

/* Something was found wrong in it: the next process that closes a mailbox of it rebuilds it. */
static inline bool compat_mdbox_is_corrupted(const struct mdbox_storage *storage)
{
#if COMPAT_24
    return storage->corrupted_reason != NULL;
#else
    return storage->corrupted;
#endif
}

static inline void compat_mdbox_forget_corrupted(struct mdbox_storage *storage)
{
#if COMPAT_24
    i_free(storage->corrupted_reason);
#else
    storage->corrupted = FALSE;
#endif
}

/* 2.3 remembers beside the index that modseqs are enabled, also of an index that was reset
 * since; 2.4 looks each time. */
static inline void compat_index_forget_modseqs(struct mail_index *index)
{
#if !COMPAT_24
    index->modseqs_enabled = FALSE;
#endif
}

/* Whether who lists the mailboxes removes empty directories among them (2.4 does, 2.3 with
 * NO-NOSELECT). */
static inline bool compat_list_drops_empty(const struct mailbox_list *list)
{
#if COMPAT_24
    return list->mail_set->mailbox_list_drop_noselect;
#else
    return list->set.no_noselect;
#endif
}

static inline void compat_list_drop_empty(struct mailbox_list *list, bool drop)
{
#if COMPAT_24
    /* the list's own copy */
    bool *setting = (bool *)(uintptr_t)&list->mail_set->mailbox_list_drop_noselect;
    *setting = drop;
#else
    list->set.no_noselect = drop;
#endif
}

#endif
