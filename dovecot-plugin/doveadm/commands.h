/* commands - verbs of "doveadm dovelane" that do not ask the replicator. */
#ifndef DOVELANE_DOVECOT_PLUGIN_DOVEADM_COMMANDS_H
#define DOVELANE_DOVECOT_PLUGIN_DOVEADM_COMMANDS_H

#include "dovecot-plugin/compat.h"

#include <doveadm.h>

struct doveadm_mail_cmd_context;

#define COMMANDS_CONFIG "/etc/dovelane/dovelane.conf"

/* survey.c: a mail command. */
struct doveadm_mail_cmd_context *survey_alloc(void);
/* compare.c */
void compare_run(struct doveadm_cmd_context *);

#endif
