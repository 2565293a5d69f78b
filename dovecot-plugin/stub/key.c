/* key - finds and reads the key. */
#include "dovecot-plugin/stub/key.h"

#include <errno.h>
#include <fcntl.h>
#include <mail-storage-private.h>
#include <mailbox-list-private.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY "dovelane"

const char *stub_directory(const struct mailbox *box)
{
    struct mail_namespace *ns = box->list->ns, *each;
    const char *root;

    if (ns->type == MAIL_NAMESPACE_TYPE_PRIVATE) {
        for (each = ns->user->namespaces; each != NULL; each = each->next) {
            if ((each->flags & NAMESPACE_FLAG_INBOX_USER) != 0)
                ns = each;
        }
    }
    if (!mailbox_list_get_root_path(ns->list, MAILBOX_LIST_PATH_TYPE_CONTROL, &root))
        return NULL;
    return t_strdup_printf("%s/" DIRECTORY, root);
}

static int fail(const char **error_r, const char *what, const char *path)
{
    *error_r = t_strdup_printf("%s(%s): %m", what, path);
    return -1;
}

int stub_key_read(const char *directory, struct stub_key *key_r, const char **error_r)
{
    const char *path = t_strconcat(directory, "/" STUB_KEY_FILE, NULL);
    char text[STUB_KEY_TEXT + 1];
    struct stat st;
    ssize_t n = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

    if (fd == -1)
        return errno == ENOENT || errno == ENOTDIR ? 0 : fail(error_r, "open", path);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        n = read(fd, text, sizeof(text));
    i_close_fd(&fd);
    if (n >= 0 && stub_key_read_text(text, (size_t)n, key_r))
        return 1;
    *error_r = t_strdup_printf("%s is no key: %u hexadecimal digits and a line's end are expected",
                               path, 2 * STUB_KEY);
    return -1;
}
