/* compare - "doveadm dovelane compare FIRST SECOND": what a join of the two sites would do to each
 * user's mailboxes, from their surveys. Nothing is opened but the two files. */
#include "dovecot-plugin/doveadm/commands.h"

#include "dovecot-plugin/compare/meeting.h"

#include <doveadm-print.h>
#include <stdlib.h>
#include <time.h>

#define failed(code, ...)                          \
    do {                                           \
        i_error("dovelane compare: " __VA_ARGS__); \
        doveadm_exit_code = (code);                \
    } while (0)

struct comparing {
    struct survey *survey[2];
    const char *user; /* the one that was asked for, or NULL */
    struct meeting_counts sum;
    uint64_t users;
    bool seen;
};

static const char *const columns[] = {
    "folders",    "united",      "only-first",        "only-second",
    "uids-first", "uids-second", "uidvalidity-first", "uidvalidity-second",
    "names",      "renamed",     "other-bytes",       "refused",
};

static void print_titles(const char *first)
{
    doveadm_print_init(DOVEADM_PRINT_TYPE_TABLE);
    doveadm_print_header(first, first, 0);
    for (unsigned int i = 0; i < N_ELEMENTS(columns); i++)
        doveadm_print_header(columns[i], columns[i], DOVEADM_PRINT_HEADER_FLAG_RIGHT_JUSTIFY);
}

static void print_row(const char *first, const struct meeting_counts *c)
{
    const uint64_t values[] = {c->folders, c->united,  c->only[0],       c->only[1],
                               c->uids[0], c->uids[1], c->validities[0], c->validities[1],
                               c->names,   c->renamed, c->other_bytes,   c->refused};
    doveadm_print(first);
    for (unsigned int i = 0; i < N_ELEMENTS(values); i++)
        doveadm_print(t_strdup_printf("%llu", (unsigned long long)values[i]));
}

static void print_folder(void *arg, const char *name, size_t len, const struct meeting_counts *c)
{
    char *text = name == NULL ? i_strdup("INBOX") : survey_folder_text(name, len);
    (void)arg;
    print_row(text == NULL ? "" : text, c);
    free(text);
}

static void add(struct meeting_counts *sum, const struct meeting_counts *c)
{
    const uint64_t *from = (const uint64_t *)c;
    uint64_t *to = (uint64_t *)sum;
    for (size_t i = 0; i < sizeof *c / sizeof *from; i++)
        to[i] += from[i];
}

/* Clients notice something, or an admin has to decide. */
static bool is_remarkable(const struct meeting_counts *c)
{
    return c->uids[0] + c->uids[1] + c->validities[0] + c->validities[1] + c->names + c->renamed +
               c->other_bytes + c->refused >
           0;
}

static bool is_read(const struct survey_user *u, const char *host)
{
    if (u->failed != NULL)
        failed(EX_TEMPFAIL, "%s could not be read at %s: %s", u->name, host, u->failed);
    return u->failed == NULL;
}

static void meet(struct comparing *c, const struct survey_user *first,
                 const struct survey_user *second)
{
    struct meeting_counts counts;
    const char *name = first->name != NULL ? first->name : second->name;
    char *error = NULL;
    struct survey_user none = {.name = (char *)(uintptr_t)name};
    if (!is_read(first, survey_host(c->survey[0])) || !is_read(second, survey_host(c->survey[1])))
        return;
    if (meeting_run(first->name != NULL ? first : &none, second->name != NULL ? second : &none,
                    time(NULL), &counts, c->user != NULL ? print_folder : NULL, c, &error) < 0) {
        failed(EX_TEMPFAIL, "%s", error != NULL ? error : "no memory");
        free(error);
        return;
    }
    c->users++;
    add(&c->sum, &counts);
    if (c->user == NULL)
        print_row(name, &counts);
}

/* i, j: their places in the surveys; SIZE_MAX: he is not there. */
static void compare_user(struct comparing *c, size_t i, size_t j)
{
    struct survey_user user[2] = {{.n = 0}, {.n = 0}};
    const size_t at[2] = {i, j};
    char *error = NULL;
    int r = 0;
    for (unsigned int n = 0; r == 0 && n < 2; n++)
        if (at[n] != SIZE_MAX)
            r = survey_read(c->survey[n], at[n], &user[n], &error);
    if (r < 0)
        failed(EX_DATAERR, "%s", error != NULL ? error : "no memory");
    else
        meet(c, &user[0], &user[1]);
    free(error);
    survey_user_free(&user[0]);
    survey_user_free(&user[1]);
}

static void compare_all(struct comparing *c)
{
    size_t i = 0, j = 0, n = survey_users(c->survey[0]), m = survey_users(c->survey[1]);
    while (i < n || j < m) {
        const char *a = i < n ? survey_user_name(c->survey[0], i) : NULL,
                   *b = j < m ? survey_user_name(c->survey[1], j) : NULL;
        int order = a == NULL ? 1 : b == NULL ? -1 : strcmp(a, b);
        if (c->user == NULL || strcmp(c->user, order <= 0 ? a : b) == 0) {
            c->seen = TRUE;
            T_BEGIN
            {
                compare_user(c, order <= 0 ? i : SIZE_MAX, order >= 0 ? j : SIZE_MAX);
            }
            T_END;
        }
        i += order <= 0;
        j += order >= 0;
    }
}

static bool open_surveys(struct comparing *c, const char *const *paths)
{
    char *error = NULL;
    for (unsigned int i = 0; i < 2; i++) {
        c->survey[i] = survey_open(paths[i], &error);
        if (c->survey[i] == NULL) {
            failed(EX_DATAERR, "%s", error != NULL ? error : "no memory");
            free(error);
            return FALSE;
        }
    }
    return TRUE;
}

void compare_run(struct doveadm_cmd_context *cctx)
{
    struct comparing c = {.users = 0};
    const char *const *paths;
    (void)doveadm_cmd_param_str(cctx, "user", &c.user);
    if (!doveadm_cmd_param_array(cctx, "args", &paths) || str_array_length(paths) != 2) {
        failed(EX_USAGE, "it needs two files of doveadm dovelane survey: that of the site that "
                         "starts first, and the other one's");
        return;
    }
    if (open_surveys(&c, paths)) {
        print_titles(c.user == NULL ? "user" : "folder");
        compare_all(&c);
        print_row("(all)", &c.sum);
        if (c.user != NULL && !c.seen)
            failed(EX_NOUSER, "%s is in neither of the files", c.user);
        if (doveadm_exit_code == 0 && is_remarkable(&c.sum))
            doveadm_exit_code = 1;
    }
    survey_close(c.survey[0]);
    survey_close(c.survey[1]);
}
