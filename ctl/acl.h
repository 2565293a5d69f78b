/* acl - what each program may do in a node's Redis (acl.c has the table). */
#ifndef DOVELANE_CTL_ACL_H
#define DOVELANE_CTL_ACL_H

#include <stddef.h>
#include <stdint.h>

#include "ctl/conn.h"
#include "ctl/ctl.h"
#include "lib/base/mem.h"

/* "dovelane-milter", ...; NULL behind the last one. */
const char *acl_program(size_t i);

/* What it may do, as Redis writes it. */
const char *acl_program_rights(size_t i);

/* What a replica may do at the node of a replica (its own, or another's), with a user of each
 * (replica_user_file); malloc'd. */
char *acl_replica_rights(const char *replica, int64_t site, const char *node);

/* Compares the reply of ACL GETUSER with such rights, as `dovelane acl` prints them today: "
 * +config|set ~*", each with a blank in front. */
void acl_compare(const redisReply *user, const char *may, struct buf *wider, struct buf *missing);

/* What brings a server's users up to date: by hand, or in a group that `dovelane init` made. There
 * a file written by hand would be made anew. */
const char *acl_again(const struct ctl *);

#endif
