/* rename - takes what is in the way aside, and gives a mailbox its name.
 *
 * Dovecot renames the children with their parent. From that comes what it cannot do, and what is
 * done here by two renames or more:
 *  - below itself, or to the name of its parent: rename(2) refuses it, and a Maildir++ renames the
 *    new one once more as a child of the old one, which the next look takes for a client's doing.
 *    It goes aside first.
 *  - where a child would get the name of another mailbox: a Maildir++ leaves that child where it
 *    was, and says nothing.
 *  - to a name that only children have. A Maildir++ has no such directory; elsewhere it is in the
 *    way. It goes aside with all that is in it, and what was in it comes back.
 *
 * Each row says before where its mailbox will be (moving), so that a mailbox that is found there
 * after a crash is known as this program's work. */
#include "dovecot-plugin/worker/apply/rename.h"
#include "dovecot-plugin/worker/session/crash.h"
#include "dovecot-plugin/worker/session/mailbox_table.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/retry.h"
#include "dovecot-plugin/worker/session/rows.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <guid.h>
#include <mail-storage-private.h>
#include <mailbox-list-iter.h>
#include <mailbox-list-private.h>
#include <str.h>
#include <unichar.h>

#include <sys/stat.h>

#define ASIDE "-dovelane-"
#define ASIDE_SHOWN 100 /* bytes of the name that it had */
#define ASIDE_BOX 8     /* digits of the GUID: a mailbox */
#define ASIDE_DIR 32    /* a directory that was in its way */
#define ASIDE_TRIES 16  /* names of such directories that still hold something */

static char separator_of(struct session *s, const char *vname)
{
    return mail_namespace_get_sep(mail_namespace_find(s->user->namespaces, vname));
}

bool is_below(struct session *s, const char *name, const char *parent)
{
    size_t len = strlen(parent);
    return strncmp(name, parent, len) == 0 && name[len] == separator_of(s, parent);
}

/* Without what an iteration takes for a pattern. digits: of the GUID. The first 8 count
 * nanoseconds, the next 8 are the second in which its process began: only the whole is its own. */
static const char *aside_name(struct session *s, const char *vname, const struct box *x,
                              size_t digits)
{
    struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, vname);
    const char *last = strrchr(vname, mail_namespace_get_sep(ns));
    size_t skip = I_MIN(ns->prefix_len, strlen(vname));
    string_t *name = t_str_new(ASIDE_SHOWN + 32);
    str_append(name, ns->prefix);
    const char *shown = last != NULL && last >= vname + skip ? last + 1 : vname + skip;
    size_t len = uni_utf8_data_truncate((const unsigned char *)shown, strlen(shown), ASIDE_SHOWN);
    for (size_t i = 0; i < len; i++) {
        char c = shown[i] == '%' || shown[i] == '*' ? '_' : shown[i];
        str_append_c(name, (unsigned char)c);
    }
    str_append(name, ASIDE);
    str_append(name, t_strndup(guid_128_to_string(x->guid), digits));
    return str_c(name);
}

/* It was given such a name, and is there. */
static bool is_aside(struct session *s, const struct box *x)
{
    struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, x->vname);
    const char *end = t_strconcat(ASIDE, t_strndup(guid_128_to_string(x->guid), 8), NULL);
    size_t len = strlen(x->vname), skip = I_MIN(ns->prefix_len, len), n = strlen(end);
    return len - skip > n && strcmp(x->vname + len - n, end) == 0 &&
           strchr(x->vname + skip, mail_namespace_get_sep(ns)) == NULL;
}

/* --- rows ------------------------------------------------------------------------------------- */

/* Of a rename: whatever is there, or below it. */
struct step {
    const char *from, *to;
};

/* Where the row's mailbox will be. NULL: where it is. */
static const char *after(struct session *s, const struct box *x, const struct step *step)
{
    if (x->vname == NULL)
        return NULL;
    if (strcmp(x->vname, step->from) == 0)
        return step->to;
    return is_below(s, x->vname, step->from)
               ? t_strconcat(step->to, x->vname + strlen(step->from), NULL)
               : NULL;
}

/* Children that the state does not want moved go back later. */
static int announce(struct session *s, const struct step *steps, unsigned n)
{
    struct box *const *y;
    if (session_begin(s) < 0)
        return -1;
    array_foreach (&s->boxes, y) {
        const char *to = NULL;
        for (unsigned i = 0; i < n && to == NULL; i++)
            to = after(s, *y, &steps[i]);
        if (to == NULL)
            continue;
        i_free((*y)->moving);
        (*y)->moving = i_strdup(to);
        (*y)->astray = TRUE;
        if (rows_put_box(s, *y) < 0) {
            session_rollback(s);
            return -1;
        }
    }
    return session_commit(s);
}

/* done: it happened, else it did not. */
static int announced(struct session *s, bool done)
{
    struct box *const *y;
    s->renames += done;
    if (session_begin(s) < 0)
        return -1;
    array_foreach (&s->boxes, y) {
        if ((*y)->moving == NULL)
            continue;
        if (done)
            box_set_vname(s, *y, (*y)->moving);
        i_free((*y)->moving);
        if (rows_put_box(s, *y) < 0) {
            session_rollback(s);
            return -1;
        }
    }
    return session_commit(s);
}

/* --- under the lists' lock -------------------------------------------------------------------- */

bool nobody_moved(struct session *s, const struct box *x)
{
    struct mailbox *box = session_mailbox(s, x->vname, 0);
    enum mail_error error;
    bool ours = session_open_refreshed(box) == 0 && session_is_box(s, x, box);
    if (!ours) {
        session_note(s, NOTE_INFO, "%s: %s", x->vname,
                     mailbox_get_last_internal_error(box, &error));
        s->scan_again = s->scan_again || error == MAIL_ERROR_NOTFOUND;
        (void)session_retry(s, "open", x->vname, 1000);
    }
    mailbox_free(&box);
    return ours;
}

/* FALSE: error_r is why. */
static bool rename_now(struct session *s, const char *from, const char *to,
                       enum mail_error *error_r, const char **text_r)
{
    struct mailbox *src = session_mailbox(s, from, 0), *dest = session_mailbox(s, to, 0);
    bool done = mailbox_rename(src, dest) == 0;
    *error_r = MAIL_ERROR_NONE;
    if (!done)
        *text_r = t_strdup(mailbox_get_last_internal_error(src, error_r));
    /* The directory of a parent whose children were all deleted: a dbox keeps it. */
    if (*error_r == MAIL_ERROR_EXISTS && mailbox_list_delete_dir(dest->list, dest->name) == 0) {
        done = mailbox_rename(src, dest) == 0;
        if (!done)
            *text_r = t_strdup(mailbox_get_last_internal_error(src, error_r));
    }
    mailbox_free(&src);
    mailbox_free(&dest);
    return done;
}

static void note_waits(struct session *s, const char *from, const char *to, const char *why)
{
    session_note(s, NOTE_WARNING, "%s: cannot be renamed to %s and waits: %s", from, to, why);
}

static bool is_only_parent(struct session *s, const char *vname)
{
    enum mailbox_existence is = MAILBOX_EXISTENCE_NONE;
    struct mailbox *box = session_mailbox(s, vname, 0);
    bool only = mailbox_exists(box, FALSE, &is) == 0 && is == MAILBOX_EXISTENCE_NOSELECT;
    mailbox_free(&box);
    return only;
}

/* One that no directory has: what could not come back from an earlier one is still in that. */
static const char *directory_aside(struct session *s, const char *vname, const struct box *x)
{
    const char *first = aside_name(s, vname, x, ASIDE_DIR), *name = first;
    for (unsigned i = 2; i <= ASIDE_TRIES; i++) {
        enum mailbox_existence is = MAILBOX_EXISTENCE_NONE;
        struct mailbox *box = session_mailbox(s, name, 0);
        bool is_free = mailbox_exists(box, FALSE, &is) == 0 && is == MAILBOX_EXISTENCE_NONE;
        mailbox_free(&box);
        if (is_free)
            break;
        name = t_strdup_printf("%s-%u", first, i);
    }
    return name;
}

/* Of the names below that parent, those that fit the pattern. */
static void list_below(struct session *s, const char *parent, const char *pattern,
                       ARRAY_TYPE(const_string) * names)
{
    struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, parent);
    const struct mailbox_info *info;
    struct mailbox_list_iterate_context *iter = mailbox_list_iter_init(
        ns->list, t_strdup_printf("%s%c%s", parent, mail_namespace_get_sep(ns), pattern),
        MAILBOX_LIST_ITER_RAW_LIST | MAILBOX_LIST_ITER_NO_AUTO_BOXES);
    while ((info = mailbox_list_iter_next(iter)) != NULL) {
        const char *vname = t_strdup(info->vname);
        array_push_back(names, &vname);
    }
    if (mailbox_list_iter_deinit(&iter) < 0)
        session_note(s, NOTE_WARNING, "%s cannot be listed: %s", parent,
                     mailbox_list_get_last_internal_error(ns->list, NULL));
}

static int longest_first(const char *const *a, const char *const *b)
{
    size_t x = strlen(*a), y = strlen(*b);
    return x > y ? -1 : x < y;
}

/* A directory that went aside, and all that are in it, but those in which there is a mailbox. */
static void drop_directories(struct session *s, const char *aside)
{
    struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, aside);
    ARRAY_TYPE(const_string) names;
    const char *const *name;
    t_array_init(&names, 8);
    list_below(s, aside, "*", &names);
    array_push_back(&names, &aside);
    array_sort(&names, longest_first);
    array_foreach (&names, name)
        (void)mailbox_list_delete_dir(ns->list, mailbox_list_get_storage_name(ns->list, *name));
}

/* What went along with the directory comes back below the mailbox that has its name now. What
 * meets one of the same name there stays, and its turn comes. */
static void bring_back(struct session *s, const char *aside, const char *parent)
{
    ARRAY_TYPE(const_string) names;
    const char *const *name, *why;
    enum mail_error error;
    struct box *const *y;
    t_array_init(&names, 8);
    list_below(s, aside, "%", &names);
    array_foreach (&names, name) {
        struct step back = {*name, t_strconcat(parent, *name + strlen(aside), NULL)};
        crash_at("rename-back");
        if (!rename_now(s, back.from, back.to, &error, &why))
            continue;
        array_foreach (&s->boxes, y) {
            struct box moved = {.vname = (*y)->moving};
            const char *to = after(s, &moved, &back);
            if (to == NULL)
                continue;
            i_free((*y)->moving);
            (*y)->moving = i_strdup(to);
        }
    }
    drop_directories(s, aside);
}

/* --- one mailbox ------------------------------------------------------------------------------ */

/* What goes along with the mailbox does not move: the rest of what was announced happened. */
static void stays(struct session *s, const struct step *step)
{
    struct box *const *y;
    array_foreach (&s->boxes, y) {
        if ((*y)->moving == NULL || after(s, *y, step) == NULL)
            continue;
        i_free((*y)->moving);
        (*y)->moving = i_strdup((*y)->vname);
    }
}

/* steps[1] is that of the directory that is in the way. *done_r: steps[0] happened. Whether any
 * did. */
static bool rename_over(struct session *s, const struct box *x, const struct step steps[2],
                        bool *done_r)
{
    const char *why;
    enum mail_error error;
    if (!nobody_moved(s, x) || !is_only_parent(s, steps[1].from))
        return FALSE;
    if (!rename_now(s, steps[1].from, steps[1].to, &error, &why)) {
        note_waits(s, x->vname, steps[0].to, why);
        return FALSE;
    }
    crash_at("rename-aside");
    *done_r = rename_now(s, steps[0].from, steps[0].to, &error, &why);
    if (*done_r) {
        bring_back(s, steps[1].to, steps[1].from);
        return TRUE;
    }
    note_waits(s, x->vname, steps[0].to, why);
    if (rename_now(s, steps[1].to, steps[1].from, &error, &why))
        return FALSE;
    stays(s, &steps[0]);
    return TRUE;
}

/* A Maildir++ renames the children one by one, and leaves those whose new name is taken. */
static void see_who_stayed(struct session *s, const struct box *x)
{
    struct box *const *y;
    array_foreach (&s->boxes, y) {
        struct stat st;
        const char *path;
        if (*y == x || (*y)->moving == NULL)
            continue;
        struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, (*y)->vname);
        const char *name = mailbox_list_get_storage_name(ns->list, (*y)->vname);
        if (strcmp(ns->list->name, MAILBOX_LIST_NAME_MAILDIRPLUSPLUS) != 0 ||
            mailbox_list_get_path(ns->list, name, MAILBOX_LIST_PATH_TYPE_DIR, &path) <= 0 ||
            stat(path, &st) < 0)
            continue;
        i_free((*y)->moving);
        (*y)->moving = i_strdup((*y)->vname);
    }
}

/* 1; 0; -1; a directory is in the way: *parent_r */
static int move(struct session *s, struct box *x, const char *to, bool *parent_r)
{
    struct step step = {t_strdup(x->vname), to};
    const char *why;
    enum mail_error error;
    bool done = FALSE;
    *parent_r = FALSE;
    if (announce(s, &step, 1) < 0)
        return -1;
    int r = session_lock_lists(s);
    if (r == 0) {
        if (nobody_moved(s, x)) {
            crash_at("rename");
            done = rename_now(s, step.from, to, &error, &why);
            *parent_r = !done && error == MAIL_ERROR_EXISTS && is_only_parent(s, to);
            if (done)
                see_who_stayed(s, x);
            else if (!*parent_r)
                note_waits(s, x->vname, to, why);
        }
        session_unlock_lists(s);
    }
    return announced(s, done) < 0 || r < 0 ? -1 : done;
}

static int move_over(struct session *s, struct box *x, const char *to)
{
    struct step steps[2] = {{t_strdup(x->vname), to}, {to, directory_aside(s, to, x)}};
    bool done = FALSE, any = FALSE;
    if (announce(s, steps, 2) < 0)
        return -1;
    int r = session_lock_lists(s);
    if (r == 0) {
        any = rename_over(s, x, steps, &done);
        session_unlock_lists(s);
    }
    return announced(s, any) < 0 || r < 0 ? -1 : done;
}

/* A mailbox that could not come back with its directory has left it. */
static void drop_aside(struct session *s, const char *vname)
{
    struct mail_namespace *ns = mail_namespace_find(s->user->namespaces, vname);
    const char *end = strchr(vname + I_MIN(ns->prefix_len, strlen(vname)), separator_of(s, vname));
    const char *top = end == NULL ? NULL : t_strdup_until(vname, end);
    if (top != NULL && strstr(top, ASIDE) != NULL)
        drop_directories(s, top);
}

int rename_aside(struct session *s, struct box *x)
{
    bool parent = FALSE;
    const char *aside = aside_name(s, x->vname, x, ASIDE_BOX), *was = t_strdup(x->vname);
    int r = is_aside(s, x) ? 1 : move(s, x, aside, &parent);
    if (r == 0 && parent)
        note_waits(s, was, aside, "a folder is there");
    if (r > 0)
        drop_aside(s, was);
    return r;
}

int rename_box(struct session *s, struct box *x, const char *to)
{
    const char *was = t_strdup(x->vname);
    bool parent;
    int r = is_below(s, to, was) || is_below(s, was, to) ? rename_aside(s, x) : 1;
    if (r > 0)
        r = move(s, x, to, &parent);
    else
        return r;
    if (r == 0 && parent)
        r = move_over(s, x, to);
    if (r > 0)
        drop_aside(s, was);
    return r;
}
