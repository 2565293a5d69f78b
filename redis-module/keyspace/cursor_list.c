/* cursor_list - appends, finds by number, and sweeps gaps out. */
#include "redis-module/keyspace/cursor_list.h"

#include "redis-module/server/server.h"

static void sweep(struct cursor_list *list)
{
    size_t n = 0;
    for (size_t i = list->begin; i < list->end; i++)
        if (list->item[i].value)
            list->item[n++] = list->item[i];
    list->begin = list->left = 0;
    list->end = n;
}

uint64_t cursor_list_add(struct cursor_list *list, struct value *value)
{
    if (list->end == list->room) {
        sweep(list);
        if (list->end > list->room / 2 || !list->room) {
            size_t room = list->room ? 2 * list->room : 64;
            list->item =
                must_grow(list->item, list->end * sizeof *list->item, room * sizeof *list->item);
            list->room = room;
        }
    }
    list->item[list->end++] = (struct cursor_list_item){++list->last, value};
    return list->last;
}

size_t cursor_list_after(const struct cursor_list *list, uint64_t no)
{
    size_t low = list->begin, high = list->end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list->item[middle].no <= no)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void cursor_list_remove(struct cursor_list *list, uint64_t no)
{
    size_t at = cursor_list_after(list, no - 1);
    RedisModule_Assert(at < list->end && list->item[at].no == no && list->item[at].value);
    list->item[at].value = NULL;
    list->left++;
    while (list->begin < list->end && !list->item[list->begin].value) {
        list->begin++;
        list->left--;
    }
    while (list->begin < list->end && !list->item[list->end - 1].value) {
        list->end--;
        list->left--;
    }
    if (list->begin == list->end)
        list->begin = list->end = 0;
    else if (list->left > 64 && list->left > (list->end - list->begin) / 2)
        sweep(list);
}
