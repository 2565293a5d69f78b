/* cursor_list - lanes in the order in which something happened to them, numbered.
 *
 *    no:    17   18   19   20   23       a cursor is the number that was read last; what follows it is found
 *         | A  | -- | C  | -- | B  |     by binary search; what has left is a gap, swept out when half of
 *                                        the list is gaps
 *
 * One list has all lanes in the order of their appearance (LANE.LIST), one the lanes with
 * something to take (LANE.READY). */
#ifndef DOVELANE_REDIS_MODULE_KEYSPACE_CURSOR_LIST_H
#define DOVELANE_REDIS_MODULE_KEYSPACE_CURSOR_LIST_H

#include <stddef.h>
#include <stdint.h>

struct value;

struct cursor_list_item {
    uint64_t no;
    struct value *value; /* NULL: left */
};

struct cursor_list {
    struct cursor_list_item *item;
    size_t begin, end, room, left;
    uint64_t last; /* the last number given */
};

uint64_t cursor_list_add(struct cursor_list *, struct value *); /* its number, from last + 1 */
void cursor_list_remove(struct cursor_list *, uint64_t no);
size_t cursor_list_after(const struct cursor_list *,
                         uint64_t no); /* index of the first item with a higher number; end: none */

#endif
