#include "lib/mail/disk_question.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/log.h"

#define VERSION "1 "
#define DIGITS "0123456789"
#define HEX DIGITS "abcdef"

static bool is_made_of(const char *text, size_t len, const char *bytes)
{
    return strnlen(text, len + 1) == len && strspn(text, bytes) == len;
}

static bool is_node(const char *node)
{
    size_t n = strnlen(node, DISK_NODE_MAX + 1);
    return n > 0 && n <= DISK_NODE_MAX &&
           is_made_of(node, n, "abcdefghijklmnopqrstuvwxyz.-" DIGITS);
}

static bool is_rcpt(const char *rcpt)
{
    size_t n = strnlen(rcpt, DISK_RCPT_MAX + 1);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)rcpt[i] < ' ' || rcpt[i] == 127)
            return false;
    return n > 0 && n <= DISK_RCPT_MAX;
}

static bool question_ok(const struct disk_question *q)
{
    return is_made_of(q->guid, DISK_GUID_HEX - 1, HEX) && is_node(q->node) && q->sites >= 2 &&
           q->sites <= DISK_SITES_MAX && is_rcpt(q->rcpt);
}

static bool answer_ok(const struct disk_answer *a)
{
    return is_made_of(a->guid, DISK_GUID_HEX - 1, HEX) && a->site > 0;
}

size_t disk_question_write(char body[DISK_BODY_MAX], const struct disk_question *q)
{
    if (!question_ok(q))
        return 0;
    return (size_t)snprintf(body, DISK_BODY_MAX, VERSION "%s %s %u %s", q->guid, q->node, q->sites,
                            q->rcpt);
}

size_t disk_answer_write(char body[DISK_BODY_MAX], const struct disk_answer *a)
{
    if (!answer_ok(a))
        return 0;
    return (size_t)snprintf(body, DISK_BODY_MAX, VERSION "%s %" PRIu64 " %" PRIx64 " %s", a->guid,
                            a->site, a->epoch, a->safe ? "safe" : "unknown");
}

/* ---- reading ---- */

/* Takes what stands before the next space, or at the end all of it. false: it has not at least
 * one byte and at most size - 1. */
static bool take(const char **at, char *word, size_t size)
{
    size_t n = strcspn(*at, " ");
    if (n == 0 || n >= size)
        return false;
    memcpy(word, *at, n);
    word[n] = '\0';
    *at += n + ((*at)[n] == ' ');
    return true;
}

/* 0 where it is no number of that base, or too large. */
static uint64_t take_number(const char **at, int base)
{
    char word[21];
    uint64_t v = 0;
    if (!take(at, word, sizeof word))
        return 0;
    for (const char *p = word; *p; p++) {
        const char *digit = memchr(HEX, *p, (size_t)base);
        uint64_t d = digit ? (uint64_t)(digit - HEX) : 0;
        if (!digit || v > (UINT64_MAX - d) / (uint64_t)base)
            return 0;
        v = v * (uint64_t)base + d;
    }
    return v;
}

/* A copy that ends with a NUL, and has no other; behind its version. NULL: it has not these. */
static const char *begin(char copy[DISK_BODY_MAX], const void *body, size_t len)
{
    if (len == 0 || len >= DISK_BODY_MAX || memchr(body, '\0', len))
        return NULL;
    memcpy(copy, body, len);
    copy[len] = '\0';
    return strncmp(copy, VERSION, strlen(VERSION)) ? NULL : copy + strlen(VERSION);
}

/* Another spelling of the same (a zero before a number, a space more) is refused. */
static bool is_same(const char *written, size_t n, const void *body, size_t len)
{
    return n > 0 && n == len && !memcmp(written, body, len);
}

bool disk_question_read(struct disk_question *q, const void *body, size_t len)
{
    char copy[DISK_BODY_MAX];
    const char *at = begin(copy, body, len);
    memset(q, 0, sizeof *q);
    if (!at || !take(&at, q->guid, sizeof q->guid) || !take(&at, q->node, sizeof q->node))
        return false;
    uint64_t sites = take_number(&at, 10);
    size_t n = strlen(at);
    if (sites > DISK_SITES_MAX || n > DISK_RCPT_MAX)
        return false;
    q->sites = (unsigned)sites;
    memcpy(q->rcpt, at, n + 1);
    char again[DISK_BODY_MAX];
    return is_same(again, disk_question_write(again, q), body, len);
}

bool disk_answer_read(struct disk_answer *a, const void *body, size_t len)
{
    char copy[DISK_BODY_MAX];
    const char *at = begin(copy, body, len);
    memset(a, 0, sizeof *a);
    if (!at || !take(&at, a->guid, sizeof a->guid))
        return false;
    a->site = take_number(&at, 10);
    a->epoch = take_number(&at, 16);
    a->safe = !strcmp(at, "safe");
    char again[DISK_BODY_MAX];
    return is_same(again, disk_answer_write(again, a), body, len);
}

/* ---- lanes ---- */

void disk_id(unsigned char id[ENTRYID_LEN], const void *body, size_t len)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    if (!EVP_Digest(body, len, hash, NULL, EVP_sha256(), NULL))
        log_fatal("SHA-256 failed");
    memcpy(id, hash, ENTRYID_LEN);
}

bool disk_lane(const char *name)
{
    return !strncmp(name, DISK_ASKED, strlen(DISK_ASKED)) ||
           !strncmp(name, DISK_ANSWERED, strlen(DISK_ANSWERED));
}
