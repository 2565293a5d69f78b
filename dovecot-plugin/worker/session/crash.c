/* crash - dies between two steps, for tests: DOVELANE_CRASH_AT=<step>:<file>, and then only
 * once, so that what is started next can go on: the named file is removed by the crash. A file
 * that is not empty only has it stop there: the file becomes <file>.reached, and when that is
 * removed it goes on. More than one step is told with commas between. In test builds only
 * (DOVELANE_TEST_CRASH). */
#include "dovecot-plugin/worker/session/crash.h"

#ifdef DOVELANE_TEST_CRASH

#include <mail-storage-private.h>
#include <mailbox-list-private.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void stop_there(const char *path)
{
    const char *reached = t_strconcat(path, ".reached", NULL);
    if (rename(path, reached) < 0)
        return;
    for (unsigned i = 0; i < 6000 && access(reached, F_OK) == 0; i++)
        usleep(10000);
}

/* Without the file there nothing happens. */
static void crash_here(const char *at, const char *step)
{
    const char *path = strchr(at, ':');
    size_t n = path == NULL ? 0 : (size_t)(path - at);
    struct stat st;
    if (n == 0 || strlen(step) != n || memcmp(at, step, n) != 0 || stat(path + 1, &st) < 0)
        return;
    if (st.st_size > 0)
        stop_there(path + 1);
    else if (unlink(path + 1) == 0)
        _exit(99);
}

void crash_at(const char *step)
{
    const char *all = getenv("DOVELANE_CRASH_AT");
    T_BEGIN
    {
        for (const char *const *at = t_strsplit(all == NULL ? "" : all, ","); *at != NULL; at++)
            crash_here(*at, step);
    }
    T_END;
}

static int (*delete_mailbox)(struct mailbox_list *, const char *);

static int crash_and_delete_mailbox(struct mailbox_list *list, const char *name)
{
    crash_at("deleting");
    return delete_mailbox(list, name);
}

void crash_while_deleting(struct mailbox *box)
{
    if (box->list->v.delete_mailbox == crash_and_delete_mailbox)
        return;
    delete_mailbox = box->list->v.delete_mailbox;
    box->list->v.delete_mailbox = crash_and_delete_mailbox;
}

static int (*open_mailbox)(struct mailbox *);

static int crash_and_open_mailbox(struct mailbox *box)
{
    crash_at("creating");
    int r = open_mailbox(box);
    crash_at("opened");
    return r;
}

void crash_while_creating(struct mailbox *box)
{
    open_mailbox = box->v.open;
    box->v.open = crash_and_open_mailbox;
}

#endif
