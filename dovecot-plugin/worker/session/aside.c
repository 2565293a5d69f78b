/* aside - a state that cannot be believed: no database, or one that holds what was never written
 * there (guard.h).
 *
 * It is kept for whoever wants to know why; the mailboxes and the other sites know what it held
 * (F36). Not each: what spoils it may come again, and a home that is full takes no mail. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>

#include <dirent.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define KEPT 3
#define ASIDE ".spoilt-"

static const char *const parts[] = {"", "-wal", "-journal"};

struct old {
    const char *name;
    long long at;
};

static int by_time(const struct old *a, const struct old *b)
{
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Those of earlier times: file is the state's name in dir. */
static void find_old(const char *dir, const char *file, ARRAY_TYPE(const_string) * names)
{
    const char *prefix = t_strconcat(file, ASIDE, NULL);
    ARRAY(struct old) found;
    struct dirent *e;
    const struct old *o;
    DIR *d = opendir(dir);
    t_array_init(&found, 4);
    while (d != NULL && (e = readdir(d)) != NULL) {
        struct old one;
        char *end;
        if (!str_begins_with(e->d_name, prefix))
            continue;
        one.at = strtoll(e->d_name + strlen(prefix), &end, 10);
        if (*end != '\0') /* a companion goes with its state */
            continue;
        one.name = t_strconcat(dir, "/", e->d_name, NULL);
        array_push_back(&found, &one);
    }
    if (d != NULL)
        closedir(d);
    array_sort(&found, by_time);
    array_foreach (&found, o)
        array_push_back(names, &o->name);
}

static void remove_old(const char *path)
{
    ARRAY_TYPE(const_string) names;
    const char *slash = strrchr(path, '/');
    unsigned n;
    t_array_init(&names, 4);
    find_old(t_strdup_until(path, slash), slash + 1, &names);
    const char *const *name = array_get(&names, &n);
    for (unsigned i = 0; i + KEPT <= n; i++)
        for (unsigned k = 0; k < N_ELEMENTS(parts); k++)
            (void)unlink(t_strconcat(name[i], parts[k], NULL));
}

void state_put_aside(struct session *s, const char *path, const char *why)
{
    const char *aside = t_strdup_printf("%s" ASIDE "%lld", path, (long long)time(NULL));
    session_note(s, NOTE_ERROR,
                 "%s: it is now %s, and a new state is made from the mailboxes and the other sites",
                 why, aside);
    remove_old(path);
    for (unsigned i = 0; i < N_ELEMENTS(parts); i++)
        if (rename(t_strconcat(path, parts[i], NULL), t_strconcat(aside, parts[i], NULL)) < 0 &&
            errno != ENOENT)
            session_note(s, NOTE_ERROR, "rename(%s%s): %m", path, parts[i]);
}
