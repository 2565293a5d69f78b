/* top_rows - the model as rows: what `--once` prints, and the screen draws. */
#ifndef DOVELANE_CTL_TOP_ROWS_H
#define DOVELANE_CTL_TOP_ROWS_H

#include <jansson.h>

#include "ctl/top_model.h"

/* {"nodes": [...], "lanes": [...], "next_hops": [...], "replicas": [...]}: top/1 without its head.
 * most: lanes, next hops and replicas each; 0: all. */
json_t *top_rows(const struct top *, enum top_sort, size_t most, double now);

/* A row of one of these lists as a line of text, and the line above them; the caller frees. */
enum top_list { TOP_NODES, TOP_HOPS, TOP_LANES, TOP_REPLICAS, TOP_LISTS };
const char *top_list_name(enum top_list); /* "nodes" ... */
char *top_heading(enum top_list);
char *top_line(enum top_list, const json_t *row);

#endif
