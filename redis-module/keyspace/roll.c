/* roll - see roll.h. */
#include "redis-module/keyspace/roll.h"

#include "redis-module/server/server.h"

static void sweep(struct roll *roll)
{
    size_t n = 0;
    for (size_t i = roll->begin; i < roll->end; i++)
        if (roll->item[i].value)
            roll->item[n++] = roll->item[i];
    roll->begin = roll->left = 0;
    roll->end = n;
}

uint64_t roll_add(struct roll *roll, struct value *value)
{
    if (roll->end == roll->room) {
        sweep(roll);
        if (roll->end > roll->room / 2 || !roll->room) {
            size_t room = roll->room ? 2 * roll->room : 64;
            roll->item = must_grow(roll->item, roll->end * sizeof *roll->item, room * sizeof *roll->item);
            roll->room = room;
        }
    }
    roll->item[roll->end++] = (struct roll_item){++roll->last, value};
    return roll->last;
}

size_t roll_after(const struct roll *roll, uint64_t no)
{
    size_t low = roll->begin, high = roll->end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (roll->item[middle].no <= no)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void roll_remove(struct roll *roll, uint64_t no)
{
    roll->item[roll_after(roll, no - 1)].value = NULL;
    roll->left++;
    while (roll->begin < roll->end && !roll->item[roll->begin].value) {
        roll->begin++;
        roll->left--;
    }
    while (roll->begin < roll->end && !roll->item[roll->end - 1].value) {
        roll->end--;
        roll->left--;
    }
    if (roll->begin == roll->end)
        roll->begin = roll->end = 0;
    else if (roll->left > 64 && roll->left > (roll->end - roll->begin) / 2)
        sweep(roll);
}
