/* dovelane hold, release, requeue, delete, flush - what postsuper and postqueue do, for mail in
 * lanes.
 *
 * What is wanted is written into the envelope (ENVELOPE_HELD ...), with a higher revision, on every
 * owner; the relay that serves the lane obeys it, today's relay or the one that takes over. Nothing
 * is moved between lanes: owners compare lanes by name, and a mail that is in one lane here and in
 * another there would be missing in both.
 *
 *   hold      + HELD                        release   - HELD, - REQUEUE, due now   flush    due now
 *   requeue   + REQUEUE, - HELD             delete    + DELETED; when every owner has that: removed on all
 *
 * An owner that does not answer keeps its copy as it was. Then a deleted mail stays, marked, on
 * the others: when the relay of one of them serves the lane it removes it with that owner once
 * it is back; when it is that owner's own relay, nobody but us can tell it. So the command says,
 * with status 1, to repeat it. A mark that found a relay in the middle of a delivery counts when
 * that fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/mailq.h"
#include "ctl/out.h"
#include "ctl/row.h"
#include "ctl/match_options.h"
#include "lib/redis/control_keys.h"
#include "ctl/hold_rules.h"

#define SURE 1000 /* more mails than this want --yes; not to flush them, which harms none */
#define SURE_TEXT "1000"
#define TRIES 20 /* against a relay that writes its results into the same envelope */
/* milliseconds until a copy that is on its way to an owner must have arrived, several times */
#define LATE 300

struct verb {
    const char *name, *done, *done_one, *help;
    uint32_t add, remove;
    bool due; /* the schedule ends */
};

static const struct verb hold = {
    "hold",        "held",
    "held",        "Mail is not delivered until it is released; it stays in memory meanwhile.",
    ENVELOPE_HELD, 0,
    false};
static const struct verb release = {
    "release",
    "released",
    "released",
    "Held mail is delivered again, at once; so is what was to be requeued and is still here.",
    0,
    ENVELOPE_HELD | ENVELOPE_REQUEUE,
    true};
static const struct verb requeue = {
    "requeue",
    "on their way to Postfix's queue",
    "on its way to Postfix's queue",
    "Mail leaves its lane for Postfix's own disk queue (reinject_port), held or not.",
    ENVELOPE_REQUEUE,
    ENVELOPE_HELD,
    false};
static const struct verb delete = {
    "delete",         "deleted", "deleted", "Mail is removed, unseen, without a bounce.",
    ENVELOPE_DELETED, 0,         false};
static const struct verb flush = {
    "flush",   "due now",
    "due now", "Deferred mail is tried now; next hops that are away are looked at now.",
    0,         0,
    true};

struct tally {
    size_t done;   /* every owner that answers has it */
    size_t same;   /* had it already */
    size_t gone;   /* delivered meanwhile */
    size_t busy;   /* in delivery at that moment, though it was not to be */
    size_t absent; /* some owner does not answer */
    size_t failed;
};

/* ---- one mail ---- */

static bool answers(struct ctl *ctl, const char *node)
{
    for (size_t i = 0; i < ctl->nconns; i++)
        if (!strcmp(ctl->conn[i].name, node))
            return conn_up(&ctl->conn[i]);
    return true; /* a node that the config does not know (any more) holds nothing */
}

static bool all_owners_answer(struct ctl *ctl, const struct item *item)
{
    for (size_t i = 0; i < item->name.nowners; i++)
        if (!answers(ctl, item->name.owner[i]))
            return false;
    return true;
}

static bool changed(const struct verb *v, struct envelope *e)
{
    uint32_t marks = (e->marks | v->add) & ~v->remove;
    bool any = marks != e->marks;
    e->marks = marks;
    for (size_t i = 0; v->due && i < e->nrecipients; i++) {
        any |= recipient_open(&e->recipient[i]) && e->recipient[i].last_attempt;
        e->recipient[i].last_attempt = 0;
    }
    return any;
}

/* Every copy has the same, and it is what is wanted. */
static bool equal(const struct item *item)
{
    for (size_t i = 1; i < item->ncopies; i++)
        if (item->copy[i].revision != item->copy[0].revision)
            return false;
    return true;
}

enum answer { ANSWER_OK, ANSWER_STALE, ANSWER_ABSENT, ANSWER_NO_ROOM, ANSWER_NONE };

static enum answer send_meta(struct conn *conn, const struct item *item, uint32_t revision,
                             const struct buf *meta)
{
    redisReply *r = conn_call(conn, "LANE.META %b 1 %b %u %b", item->lane, item->lane_len, item->id,
                              (size_t)ENTRYID_LEN, (unsigned)revision, meta->data, meta->len);
    const char *word = r && r->type == REDIS_REPLY_ARRAY && r->elements == 1 && r->element[0]->str
                           ? r->element[0]->str
                           : "";
    enum answer a = !strcmp(word, "OK")                                ? ANSWER_OK
                    : !strcmp(word, "STALE")                           ? ANSWER_STALE
                    : !strcmp(word, "ABSENT")                          ? ANSWER_ABSENT
                    : !strcmp(word, "MEMORY") || !strcmp(word, "FULL") ? ANSWER_NO_ROOM
                                                                       : ANSWER_NONE;
    if (r)
        freeReplyObject(r);
    return a;
}

/* A full node takes no META that grows. What only the log needs goes, as the relay does it
 * (owners.c). */
static void make_lean(struct envelope *e)
{
    for (size_t i = 0; i < e->nrecipients; i++) {
        free(e->recipient[i].text);
        e->recipient[i].text = NULL;
        if (!recipient_was_delivered(&e->recipient[i]))
            e->recipient[i].code = 0;
    }
    free(e->message_id);
    e->message_id = NULL;
}

/* The envelope to all copies. ANSWER_STALE: one was changed meanwhile, everything is to be done
 * again. */
static enum answer write_copies(struct item *item)
{
    enum answer worst = ANSWER_OK;
    uint32_t revision = item->revision + 1;
    for (bool lean = false;; lean = true) {
        struct buf meta = {0};
        bool full = false;
        if (lean)
            make_lean(&item->envelope);
        envelope_encode(&item->envelope, &meta);
        for (size_t i = 0; i < item->ncopies && !full; i++) {
            enum answer a = send_meta(item->copy[i].conn, item, revision, &meta);
            full = a == ANSWER_NO_ROOM;
            if (a == ANSWER_STALE || a == ANSWER_NONE)
                worst = a;
        }
        buf_free(&meta);
        if (!full)
            return worst;
        if (lean)
            return ANSWER_NO_ROOM;
        revision++; /* what the copies before it took is replaced as well */
    }
}

static bool in_delivery(const struct item *item)
{
    for (size_t i = 0; i < item->ncopies; i++)
        if (item->copy[i].state == COPY_LEASED)
            return true;
    return false;
}

static void remove_copies(struct ctl *ctl, const struct item *item)
{
    /* Also where no copy was seen: one that is on its way there is answered as done then, and
     * not stored. */
    for (size_t i = 0; i < ctl->nconns; i++) {
        redisReply *r = conn_call(&ctl->conn[i], "LANE.ACK %b IDS 1 %b", item->lane, item->lane_len,
                                  item->id, (size_t)ENTRYID_LEN);
        if (r)
            freeReplyObject(r);
    }
}

static void apply(struct ctl *ctl, const struct verb *v, struct item *item, struct tally *t)
{
    enum answer a = ANSWER_STALE;
    bool busy = false, had = true;
    for (int try = 0; a == ANSWER_STALE && try < TRIES; try++) {
        if (!queue_reload(ctl, item)) {
            t->gone++;
            return;
        }
        if (item->wrong && v->add != ENVELOPE_DELETED) {
            t->failed++;
            return;
        }
        /* delivered, and Postfix knows no ids: it would show twice */
        if (v->add && v->add != ENVELOPE_DELETED && envelope_is_retained(&item->envelope)) {
            t->gone++;
            return;
        }
        /* of mail that is to be delivered there is nothing to tell */
        busy |= v->add && in_delivery(item);
        a = ANSWER_OK;
        if (!item->wrong && (changed(v, &item->envelope) || !equal(item))) {
            had = false;
            a = write_copies(item);
        }
        if (a == ANSWER_STALE)
            usleep(50000);
    }
    bool everywhere = all_owners_answer(ctl, item);
    bool lost = a == ANSWER_NONE && !everywhere; /* in the middle of it: the others have it */
    if (a != ANSWER_OK && !lost &&
        !(v->add == ENVELOPE_DELETED && a == ANSWER_NO_ROOM && everywhere)) {
        t->failed++;
        return;
    }
    if (v->add == ENVELOPE_DELETED && everywhere)
        remove_copies(ctl, item);
    if (!everywhere)
        t->absent++;
    else if (had && v->add != ENVELOPE_DELETED)
        t->same++;
    else
        t->done++;
    t->busy += busy;
}

/* ---- relays are told to look ---- */

static void ring(struct ctl *ctl, const struct queue *q)
{
    for (size_t i = 0; i < q->n; i++) {
        /* Neighbours are often of one lane. */
        if (i && !strcmp(q->item[i].lane, q->item[i - 1].lane))
            continue;
        for (size_t k = 0; k < ctl->nconns; k++) {
            redisReply *r = conn_call(&ctl->conn[k], "EVAL %s 1 " CONTROL_LOOK " %b", CONTROL_ADD,
                                      q->item[i].lane, q->item[i].lane_len);
            if (r)
                freeReplyObject(r);
        }
    }
}

/* A copy may have been on its way to an owner while the others were marked: it comes unmarked,
 * and is marked now. */
static void catch_late(struct ctl *ctl, const struct verb *v, struct queue *q)
{
    if (v->add == ENVELOPE_DELETED)
        return; /* remove_copies has seen to that */
    for (size_t i = 0; i < q->n; i++) {
        struct item *item = &q->item[i];
        for (int wait = 0; wait < 5 && item->ncopies && item->ncopies < item->name.nowners &&
                           item->age < 10 * LATE && all_owners_answer(ctl, item);
             wait++) {
            struct tally ignored = {0};
            usleep(LATE * 1000);
            apply(ctl, v, item, &ignored);
        }
    }
}

/* ---- the command ---- */

static void print_help(const struct verb *v)
{
    out("usage: dovelane %s [--dry-run]%s which mails | ID...\n", v->name,
        v == &flush ? "" : " [--yes]");
    puts(v->help);
    puts("  --dry-run  only says which it would be");
    if (v != &flush)
        puts("  --yes      also when they are more than " SURE_TEXT);
    if (v == &hold)
        puts("  --add      instead: mail that comes in from now on and fits is held, until the "
             "rule is removed\n"
             "  --list     such rules     --remove N  one of them");
    puts("");
    match_options_print_help();
    puts("\nIt is done on every node that holds a copy. When one does not answer the status is 1: "
         "repeat the command when it is back.");
}

static const struct verb *shown; /* whose words show_tally takes */

static void show_tally(const json_t *row)
{
    long long n = row_get_number(row, "done"), same = row_get_number(row, "already"),
              gone = row_get_number(row, "gone"), busy = row_get_number(row, "in_delivery");
    out("%lld mail%s %s", n, ctl_s((unsigned long long)n), n == 1 ? shown->done_one : shown->done);
    if (same)
        out("; %lld %s so already", same, same == 1 ? "was" : "were");
    if (gone)
        out("; %lld delivered meanwhile", gone);
    if (busy)
        out("; %lld of them %s in delivery at that moment and may still arrive", busy,
            busy == 1 ? "was" : "were");
    out(".\n");
}

static void report(struct ctl *ctl, const struct verb *v, const struct tally *t, const char *which)
{
    char *caller = ctl_caller();
    size_t n = t->done + t->absent;
    json_t *row = row_new();
    row_add_number(row, "done", (long long)n);
    row_add_number(row, "already", (long long)t->same);
    row_add_number(row, "gone", (long long)t->gone);
    row_add_number(row, "in_delivery", (long long)t->busy);
    row_add_number(row, "owner_absent", (long long)t->absent);
    row_add_number(row, "failed", (long long)t->failed);
    shown = v;
    out_facts(show_tally, row);
    if (t->absent) {
        out_error("dovelane: %zu of them with an owner that does not answer and keeps its copy as "
                  "it was: %s. Repeat the command when it is back.\n",
                  t->absent,
                  v->add == ENVELOPE_DELETED ? "should that be the one that delivers, it may do so"
                                             : "it may deliver that as if nothing had been said");
        ctl_status(ctl, STATUS_LOOK);
    }
    if (t->failed) {
        out_error("dovelane: %zu could not be changed on every owner: a node refused it, or the "
                  "envelope cannot be read; look (`dovelane show ID`), and repeat the command\n",
                  t->failed);
        ctl_status(ctl, STATUS_LOOK);
    }
    ctl_log(ctl, "%s by %s: %zu mail%s, %zu of them not on every owner, %zu gone, %zu failed; %s",
            v->name, caller, n, ctl_s(n), t->absent, t->gone, t->failed, which);
    free(caller);
}

/* What is meant is said before anything is done. */
static void show_meaning(const json_t *row)
{
    long long n = row_get_number(row, "matched");
    out_error("%lld mail%s: %s\n", n, ctl_s((unsigned long long)n), row_get_text(row, "which"));
}

static void print_meaning(const struct verb *v, size_t n, const char *which, bool dry)
{
    json_t *row = row_new();
    row_add_text(row, "verb", v->name);
    row_add_number(row, "matched", (long long)n);
    row_add_text(row, "which", which);
    row_add_is(row, "dry_run", dry);
    out_facts(show_meaning, row);
}

static void run(struct ctl *ctl, const struct verb *v, const struct match *pick, bool dry, bool yes)
{
    struct queue q;
    struct tally t = {0};
    char *which = match_text(pick);
    out_begin("change/1", NULL);
    ctl_connect(ctl);
    queue_load(ctl, &q);
    match_options_filter(pick, &q);
    print_meaning(v, q.n, which, dry);
    if (dry) {
        mailq_print(&q);
    } else if (!q.n) {
        ctl_status(ctl, v == &flush ? STATUS_DONE : STATUS_LOOK);
    } else if (q.n > SURE && !yes && v != &flush) {
        ctl_usage("that is more than %d: nothing was done; add --yes if it is meant", SURE);
    } else {
        for (size_t i = 0; i < q.n; i++)
            apply(ctl, v, &q.item[i], &t);
        catch_late(ctl, v, &q);
        ring(ctl, &q);
        report(ctl, v, &t, which);
    }
    free(which);
    queue_free(&q);
}

const struct option change_options[] = {{"add", no_argument, NULL, 'a'},
                                        {"list", no_argument, NULL, 'l'},
                                        {"remove", required_argument, NULL, 'r'},
                                        {"dry-run", no_argument, NULL, 'n'},
                                        {"yes", no_argument, NULL, 'y'},
                                        {"help", no_argument, NULL, 'h'},
                                        MATCH_LONG_OPTIONS,
                                        {0}};

static void verb_command(struct ctl *ctl, const struct verb *v, int argc, char **argv)
{
    struct match pick = {0};
    bool dry = false, yes = false, add = false, list = false;
    const char *remove = NULL;
    int o;
    while ((o = getopt_long(argc, argv, "nyjh", change_options, NULL)) != -1) {
        if (o >= MATCH_OPTION)
            match_options_add(&pick, o, optarg);
        else if (o == 'n')
            dry = true;
        else if (o == 'j')
            out_choose_json(true);
        else if (o == 'y')
            yes = true;
        else if (o == 'a' && v == &hold)
            add = true;
        else if (o == 'l' && v == &hold)
            list = true;
        else if (o == 'r' && v == &hold)
            remove = optarg;
        else if (o == 'h') {
            print_help(v);
            exit(STATUS_DONE);
        } else
            ctl_usage("see `dovelane %s --help`", v->name);
    }
    match_options_ids(&pick, argc, argv);
    if (list || remove) {
        ctl_connect(ctl);
        if (remove)
            hold_rules_remove(ctl, remove);
        else
            hold_rules_list(ctl);
        match_free(&pick);
        return;
    }
    if (!pick.n && v == &flush)
        match_options_add(&pick, MATCH_OPTION + MATCH_ALL, NULL);
    if (!pick.n)
        ctl_usage(
            "%s wants to know which mails: an id, or options such as --sender; --all for every one",
            v->name);
    if (v == &requeue && !*ctl->config->reinject_port)
        ctl_usage("reinject_port is empty in %s: there is no way back into Postfix's queue (admin "
                  "guide, \"Postfix: two settings and two ports\")",
                  ctl->config_path);
    if (add) {
        ctl_connect(ctl);
        hold_rules_add(ctl, &pick);
    } else {
        run(ctl, v, &pick, dry, yes);
    }
    match_free(&pick);
}

void hold_command(struct ctl *ctl, int argc, char **argv)
{
    verb_command(ctl, &hold, argc, argv);
}

void release_command(struct ctl *ctl, int argc, char **argv)
{
    verb_command(ctl, &release, argc, argv);
}

void requeue_command(struct ctl *ctl, int argc, char **argv)
{
    verb_command(ctl, &requeue, argc, argv);
}

void delete_command(struct ctl *ctl, int argc, char **argv)
{
    verb_command(ctl, &delete, argc, argv);
}

void flush_command(struct ctl *ctl, int argc, char **argv)
{
    verb_command(ctl, &flush, argc, argv);
}
