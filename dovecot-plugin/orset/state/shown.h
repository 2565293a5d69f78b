/* shown - folder names as a storage can show them, and back (rule 6).
 *
 * A component that the storage can hold is shown as it is. Another one is escaped: bytes become
 * %XX, and so does a '%' before two hex digits, so that no two components share an escaped form. It
 * shares none with a component that is shown as it is, either. Where there is such a folder, more
 * bytes are escaped, or %00 is put behind. So what a storage shows is a function of the names
 * alone, the same in whichever order they came, and one to one. */
#ifndef DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_SHOWN_H
#define DOVELANE_DOVECOT_PLUGIN_ORSET_STATE_SHOWN_H

#include "dovecot-plugin/orset/orset.h"

/* Names and what is shown: a namespace key and components, NUL between. */
struct orset_layout {
    void *arg;
    /* bytes that an escaped component has not as they are, beside those that no storage holds */
    const char *special;
    /* Whether the storage can show the last component there; last: of the whole name. */
    bool (*holds)(void *arg, const char *shown, size_t len, bool last);
    /* Whether a folder has that name, or one below it. */
    bool (*exists)(void *arg, const char *name, size_t len);
};

/* How long that many bytes of a name are shown at most, with a NUL behind. */
#define ORSET_SHOWN_MAX(len) (3 * (len) + 12 * ORSET_COMPONENTS_MAX + 1)
/* out: ORSET_SHOWN_MAX(len) bytes. Returns its length; 0: the storage cannot show it. */
size_t orset_show(const struct orset_layout *, const char *name, size_t len, char *out);
/* Which name is shown like this, or would be made by who makes this. out: len + 1 bytes. Returns
 * its length. */
size_t orset_unshow(const struct orset_layout *, const char *shown, size_t len, char *out);

#endif
