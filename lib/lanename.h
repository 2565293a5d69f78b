/* lanename - who owns a lane stands in its name (docs/design.md, "Mail in" 1):
 *
 *   dovelane:<transport>:<next hop>|<owner>><owner>...[|<origin>.<generation>]
 *
 * Bytes outside [!-~] and '%', '|', '>' inside a part are percent-encoded. */
#ifndef DOVELANE_LANENAME_H
#define DOVELANE_LANENAME_H

#include <stdbool.h>
#include <stddef.h>

#define LANENAME_PREFIX "dovelane:"
#define LANENAME_OWNERS_MAX 8

struct lanename {
    char *destination; /* "lmtp:[10.0.0.5]:24", decoded */
    size_t nowners;
    char *owner[LANENAME_OWNERS_MAX];
    char *generation; /* "mx1.3" for ordered lanes, else NULL */
};

/* A malloc'd name. */
char *lanename_make(const char *destination, const char *const *owner, size_t nowners);

/* Returns false when it is not the name of a lane of ours; nothing is left to free then. */
bool lanename_parse(const char *name, size_t len, struct lanename *out);
void lanename_free(struct lanename *);

#endif
