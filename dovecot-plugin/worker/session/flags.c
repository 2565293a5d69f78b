/* flags - flags and keywords between Dovecot and the core. */
#include "dovecot-plugin/compat.h"
#include "dovecot-plugin/orset/orset.h"
#include "dovecot-plugin/worker/session/flags.h"
#include "dovecot-plugin/worker/session/open.h"
#include "dovecot-plugin/worker/session/session.h"

#include <array.h>
#include <maildir-keywords.h>
#include <maildir-storage.h>
#include <maildir-uidlist.h>
#include <sort.h>
#include <str.h>

#include <dirent.h>

static const struct {
    enum mail_flags mail;
    uint8_t core;
} system_flags[] = {{MAIL_ANSWERED, ORSET_ANSWERED},
                    {MAIL_FLAGGED, ORSET_FLAGGED},
                    {MAIL_DELETED, ORSET_DELETED},
                    {MAIL_SEEN, ORSET_SEEN},
                    {MAIL_DRAFT, ORSET_DRAFT}};

uint8_t flags_system(enum mail_flags flags)
{
    uint8_t system = 0;
    for (unsigned i = 0; i < N_ELEMENTS(system_flags); i++)
        if ((flags & system_flags[i].mail) != 0)
            system |= system_flags[i].core;
    return system;
}

static int by_number(const uint16_t *a, const uint16_t *b)
{
    return *a < *b ? -1 : *a > *b;
}

/* Rising, each once: two spellings are one keyword. */
static void sort_keywords(struct orset_flags *f)
{
    uint16_t n = 0;
    i_qsort(f->keyword, f->nkeywords, sizeof f->keyword[0], by_number);
    for (uint16_t i = 0; i < f->nkeywords; i++)
        if (n == 0 || f->keyword[n - 1] != f->keyword[i])
            f->keyword[n++] = f->keyword[i];
    f->nkeywords = n;
}

void flags_of_mail(struct session *s, struct mail *mail, struct orset_flags *f)
{
    i_zero(f);
    f->system = flags_system(mail_get_flags(mail));
    for (const char *const *k = mail_get_keywords(mail); *k != NULL; k++) {
        int n = orset_keyword(s->os, *k, strlen(*k));
        if (n >= 0 && f->nkeywords < ORSET_MESSAGE_KEYWORDS_MAX)
            f->keyword[f->nkeywords++] = (uint16_t)n;
        else
            session_note(
                s, NOTE_WARNING, "%s: keyword %s of UID %u is not replicated: %s",
                mailbox_get_vname(mail->box), *k, mail->uid,
                n < 0 ? orset_error_text(s->os)
                      : t_strdup_printf("a mail has %d of them", ORSET_MESSAGE_KEYWORDS_MAX));
    }
    sort_keywords(f);
}

static bool is_nameless(struct session *s, uint16_t keyword)
{
    static const char prefix[] = "unknown-";
    size_t len, n = sizeof prefix - 1;
    const char *name = orset_keyword_name(s->os, keyword, &len);
    if (len <= n || strncasecmp(name, prefix, n) != 0)
        return FALSE;
    while (n < len && name[n] >= '0' && name[n] <= '9')
        n++;
    return n == len;
}

bool flags_drop_nameless(struct session *s, const struct mailbox *box, struct orset_flags *f)
{
    uint16_t n = 0, had = f->nkeywords;
    if (!is_maildir(box))
        return FALSE;
    for (uint16_t i = 0; i < had; i++)
        if (!is_nameless(s, f->keyword[i]))
            f->keyword[n++] = f->keyword[i];
    f->nkeywords = n;
    return n != had;
}

const char *flags_text(struct session *s, const struct orset_flags *f)
{
    static const char *const names[] = {"\\Answered", "\\Flagged", "\\Deleted", "\\Seen",
                                        "\\Draft"};
    string_t *text = t_str_new(64);
    for (unsigned i = 0; i < N_ELEMENTS(names); i++)
        if ((f->system & 1U << i) != 0)
            str_printfa(text, " %s", names[i]);
    for (unsigned i = 0; i < f->nkeywords; i++) {
        size_t len;
        const char *name = orset_keyword_name(s->os, f->keyword[i], &len);
        str_printfa(text, " %.*s", (int)len, name);
    }
    return str_len(text) == 0 ? "none" : str_c(text) + 1;
}

bool flags_equal(const struct orset_flags *a, const struct orset_flags *b)
{
    return a->system == b->system && a->nkeywords == b->nkeywords &&
           memcmp(a->keyword, b->keyword, a->nkeywords * sizeof a->keyword[0]) == 0;
}

void flags_unite(struct orset_flags *f, const struct orset_flags *more)
{
    f->system |= more->system;
    for (unsigned i = 0; i < more->nkeywords && f->nkeywords < ORSET_MESSAGE_KEYWORDS_MAX; i++)
        f->keyword[f->nkeywords++] = more->keyword[i];
    sort_keywords(f);
}

void flags_without(struct orset_flags *f, const struct orset_flags *less)
{
    uint16_t n = 0;
    f->system &= (uint8_t)~less->system;
    for (unsigned i = 0, j = 0; i < f->nkeywords; i++) {
        while (j < less->nkeywords && less->keyword[j] < f->keyword[i])
            j++;
        if (j == less->nkeywords || less->keyword[j] != f->keyword[i])
            f->keyword[n++] = f->keyword[i];
    }
    f->nkeywords = n;
}

void flags_holdable(struct session *s, struct mailbox *box, const struct orset_flags *wanted,
                    struct orset_flags *seen)
{
    *seen = *wanted;
    seen->nkeywords = 0;
    for (unsigned i = 0; i < wanted->nkeywords; i++) {
        const char *why;
        size_t len;
        const char *name = orset_keyword_name(s->os, wanted->keyword[i], &len);
        if (mailbox_keyword_is_valid(box, t_strndup(name, len), &why))
            seen->keyword[seen->nkeywords++] = wanted->keyword[i];
    }
}

/* Ends ctx, which writes the letters that it gave. Whether all have one. */
static bool have_letters(struct maildir_keywords_sync_ctx *ctx,
                         const struct mail_keywords *keywords)
{
    bool all = TRUE;
    for (unsigned i = 0; i < keywords->count; i++)
        if (maildir_keywords_idx_char(ctx, keywords->idx[i]) == '\0')
            all = FALSE;
    maildir_keywords_sync_deinit(&ctx);
    return all;
}

/* Each letter of the file's name. */
static void name_letters_of(struct maildir_keywords_sync_ctx *ctx, const char *file)
{
    const char *info = strstr(file, MAILDIR_FLAGS_FULL_SEP);
    for (const char *p = info == NULL ? "" : info + strlen(MAILDIR_FLAGS_FULL_SEP);
         *p != '\0' && *p != MAILDIR_FLAGS_SEP; p++)
        if (*p >= MAILDIR_KEYWORD_FIRST && *p <= MAILDIR_KEYWORD_LAST)
            (void)maildir_keywords_char_idx(ctx, *p);
}

/* Where the file is lost that says what the letters mean, the next keyword that is set gets the
 * first one, and is then what all mails have whose names have it. So those in use are named
 * first: "unknown-<n>", which is damage. */
void flags_name_letters(struct mailbox *box)
{
    struct maildir_mailbox *maildir = (struct maildir_mailbox *)box;
    const struct dirent *entry;
    const char *path;
    if (array_count(mail_index_get_keywords(box->index)) == 0 ||
        maildir_has(box, MAILDIR_KEYWORDS_NAME) ||
        mailbox_get_path_to(box, MAILBOX_LIST_PATH_TYPE_MAILBOX, &path) <= 0)
        return;
    DIR *dir = opendir(t_strconcat(path, "/cur", NULL));
    if (dir == NULL)
        return;
    if (maildir_uidlist_lock(maildir->uidlist) > 0) {
        struct maildir_keywords_sync_ctx *ctx =
            maildir_keywords_sync_init(maildir->keywords, box->index);
        while ((entry = readdir(dir)) != NULL)
            name_letters_of(ctx, entry->d_name);
        maildir_keywords_sync_deinit(&ctx);
        maildir_uidlist_unlock(maildir->uidlist);
    }
    (void)closedir(dir);
}

/* The name of a Maildir's file tells its keywords by letters, and dovecot-keywords what they
 * mean. Dovecot gives files a new letter first and writes then what it means; who is killed
 * between has left a letter that the next new keyword gets, whatever was meant. So it is written
 * before. Where that fails, Dovecot's own order is left. */
static void list_keywords(struct mailbox *box, const struct mail_keywords *keywords)
{
    struct maildir_mailbox *maildir = (struct maildir_mailbox *)box;
    flags_name_letters(box);
    if (have_letters(maildir_keywords_sync_init_readonly(maildir->keywords, box->index),
                     keywords) ||
        maildir_uidlist_lock(maildir->uidlist) <= 0)
        return;
    (void)have_letters(maildir_keywords_sync_init(maildir->keywords, box->index), keywords);
    maildir_uidlist_unlock(maildir->uidlist);
}

void flags_to_dovecot(struct session *s, struct mailbox *box, const struct orset_flags *f,
                      enum mail_flags *flags, struct mail_keywords **keywords)
{
    const char *names[ORSET_MESSAGE_KEYWORDS_MAX + 1];
    *flags = 0;
    for (unsigned i = 0; i < N_ELEMENTS(system_flags); i++)
        if ((f->system & system_flags[i].core) != 0)
            *flags |= system_flags[i].mail;
    for (unsigned i = 0; i < f->nkeywords; i++) {
        size_t len;
        const char *name = orset_keyword_name(s->os, f->keyword[i], &len);
        names[i] = t_strndup(name, len);
    }
    names[f->nkeywords] = NULL;
    /* What this storage cannot hold stays in the state (F29). */
    *keywords = f->nkeywords == 0 ? NULL : mailbox_keywords_create_valid(box, names);
    if (*keywords != NULL && is_maildir(box))
        list_keywords(box, *keywords);
}
