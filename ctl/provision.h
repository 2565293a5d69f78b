/* Commands that set hosts up; they need no dovelane.conf. */
#ifndef DOVELANE_CTL_PROVISION_H
#define DOVELANE_CTL_PROVISION_H

#include "ctl/ctl.h"

/* Does not return. */
void provision_command(struct ctl *ctl, int argc, char **argv);

#endif
