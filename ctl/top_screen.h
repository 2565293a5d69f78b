/* top_screen - draws what `dovelane top` knows, and hears keys. It knows the rows (top_rows.h), no
 * node. */
#ifndef DOVELANE_CTL_TOP_SCREEN_H
#define DOVELANE_CTL_TOP_SCREEN_H

#include <stdbool.h>

#include "ctl/top_rows.h"

struct top_picture {
    const json_t *rows;
    const char *title;   /* the first line */
    const char *message; /* the last one */
    enum top_sort sort;
    size_t selected; /* which next hop */
    bool help;       /* the keys in the place of all */
};

/* NULL, or why there is no screen. */
const char *top_screen_open(void);
void top_screen_close(void);
void top_screen_draw(const struct top_picture *);

enum top_key { TOP_KEY_NONE = 0, TOP_KEY_UP = 1000, TOP_KEY_DOWN, TOP_KEY_RESIZE };

/* A character, one of these, or none when no key waits. */
int top_screen_key(void);

#endif
