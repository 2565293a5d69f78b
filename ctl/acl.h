/* acl - what each program may do in a node's Redis (acl.c has the table). */
#ifndef DOVELANE_CTL_ACL_H
#define DOVELANE_CTL_ACL_H

#include <stddef.h>

#include "conn.h"
#include "mem.h"

/* "dovelane-milter", ...; NULL behind the last one. */
const char *acl_program(size_t i);

/* Compares the reply of ACL GETUSER with what `dovelane acl` prints for a program today: " +config|set ~*", each with a blank in front. */
void acl_compare(const redisReply *user, const char *program, struct buf *wider, struct buf *missing);

#endif
