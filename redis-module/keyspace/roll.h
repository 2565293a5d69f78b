/* roll - lanes in the order in which something happened to them, numbered.
 *
 *    no:    17   18   19   20   23       a cursor is the number that was read last; what follows it is found
 *         | A  | -- | C  | -- | B  |     by binary search; what has left is a gap, swept out when half of
 *                                        the roll is gaps
 *
 * One roll has all lanes in the order of their appearance (LANE.LIST), one the lanes with something to take
 * (LANE.READY). */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_ROLL_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_ROLL_H

#include <stddef.h>
#include <stdint.h>

struct value;

struct roll_item {
    uint64_t no;
    struct value *value; /* NULL: left */
};

struct roll {
    struct roll_item *item;
    size_t begin, end, room, left;
    uint64_t last; /* the last number given */
};

uint64_t roll_add(struct roll *, struct value *); /* its number, from last + 1 */
void roll_remove(struct roll *, uint64_t no);
size_t roll_after(const struct roll *,
                  uint64_t no); /* index of the first item with a higher number; end: none */

#endif
