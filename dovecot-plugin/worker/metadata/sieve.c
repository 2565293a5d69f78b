/* sieve - Sieve scripts as attributes of INBOX, the active one as another.
 *
 * The only code that shows them so is Pigeonhole's module for doveadm (dsync carries them that
 * way). It is loaded here too; what it asks of the doveadm program is for its commands alone,
 * which nobody calls here. Without the module scripts are not replicated. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/metadata/metadata.h"

#include <module-dir.h>

#include <dlfcn.h>

#define MODULE "doveadm_sieve_plugin"

/* For the module: exported by this program, never run. */
#define NOT_CALLED(name) \
    void name(void);     \
    void name(void)      \
    {                    \
    }
NOT_CALLED(doveadm_cmd_param_array_append)
NOT_CALLED(doveadm_cmd_param_bool)
NOT_CALLED(doveadm_cmd_param_str)
NOT_CALLED(doveadm_cmd_register_ver2)
NOT_CALLED(doveadm_mail_cmd_alloc_size)
NOT_CALLED(doveadm_mail_get_input)
NOT_CALLED(doveadm_mail_help_name)
NOT_CALLED(doveadm_print)
NOT_CALLED(doveadm_print_header)
NOT_CALLED(doveadm_print_header_simple)
NOT_CALLED(doveadm_print_init)
NOT_CALLED(doveadm_print_istream)

static struct module module;

static bool same_abi(const char *version)
{
    const char *ours = DOVECOT_ABI_VERSION;
    size_t n = strcspn(ours, "(");
    return version != NULL && strncmp(version, ours, n) == 0 && strcspn(version, "(") == n;
}

void sieve_load(void)
{
    module.path = i_strdup(DOVECOT_MODULE_DIR "/doveadm/lib10_" MODULE ".so");
    module.name = i_strdup(MODULE);
    module.handle = dlopen(module.path, RTLD_NOW | RTLD_GLOBAL);
    if (module.handle == NULL)
        return;
    const char *const *version = dlsym(module.handle, MODULE "_version");
    void *init = dlsym(module.handle, MODULE "_init");
    if (init == NULL || version == NULL || !same_abi(*version)) {
        i_warning("%s is not of this Dovecot: Sieve scripts are not replicated", module.path);
        return;
    }
    memcpy(&module.init, &init, sizeof init);
    module.init(&module);
    module.initialized = TRUE;
}
