/* remark - what `dovelane nodes` says of nodes below their table. */
#ifndef DOVELANE_CTL_REMARK_H
#define DOVELANE_CTL_REMARK_H

/* One line; code: a word for programs. node: NULL when it is of no single one. */
void remark(const char *node, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
