/* joining_main - the starts, and the rules that are left out; see joining.h. */
#include "tests/model/joining.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *what;
} left_out[RULES] = {
    [ALL_RULES] = {"none", "all rules"},
    [AS_THEY_COME] = {"order", "a mail is placed when its body comes, whatever lacks before it"},
    [FILLING_NOT_MINDED] = {"filling", "rounds are begun and answered while mails come in"},
    [ROUND_AT_ONCE] = {"at-once", "a round's UIDs are followed while mails come in"},
    [ASKED_ONCE] =
        {"asked-once",
         "a mail is given up when it was refused as often as there are others, by whomever"},
    [UNKNOWN_REFUSED] = {"unknown", "a site says that it has not got a mail that it does not know"},
    [ALONE_SAYS] =
        {"alone",
         "a mailbox that never had a mail gives its UIDVALIDITY before all others were asked"},
    [NO_READING] = {"reading", "nobody says that he has not read his mailbox"},
    [READING_OVERTAKEN] = {"overtaken", "that it has not read comes behind the answer"},
    [READ_AHEAD] = {"read-ahead", "that it has read comes before the ops of what it read"},
    [YOUNGER_WINS] = {"way", "a mailbox that never had a mail does not give way"},
    [WAYS_LEFT_LATER] = {"later", "a mailbox gives way after the look, without the lock"},
    [LOWERED_WITH_MAIL] = {"with-mail", "a mailbox with mail gives way, too"},
    [INBOX_AT_ONCE] = {"inbox", "INBOX is made before its UIDVALIDITY is known"},
    [GIVES_NOTHING_UP] = {"give-up", "a mail that nobody has is waited for"},
    [NO_ROUNDS] = {"rounds", "UIDs that differ are not settled"},
    [OTHERS_NOT_AWAITED] = {"others", "a mail does not wait for what its site had before it"},
};

static const struct start starts_of[] = {
    {"full-first", "a full site and one that joins", 2, 3, .first = 1, .joins = 2, .alone = 1,
     .sessions = 1, .safe = true},
    {"full-last", "a full site, and one that joins and is keeper", 2, 3, .first = 2, .joins = 1,
     .alone = 2, .sessions = 1, .safe = true},
    {"full-mail", "mail comes to the full one", 2, 2, .first = 1, .joins = 2, .delivers = 1,
     .alone = 1, .sessions = 1, .deliveries = 2, .safe = true},
    {"dies", "the joining one loses its home", 2, 3, .first = 1, .joins = 2, .loses = 2, .alone = 1,
     .sessions = 1, .losses = 1, .safe = true},
    {"turns", "two full ones lose their homes by turns", 2, 3, .first = 3, .worked = 3, .joins = 3,
     .loses = 3, .sessions = 1, .losses = 2, .safe = true},
    {"early", "the same, before the other one is whole again", 2, 3, .first = 3, .worked = 3,
     .joins = 3, .loses = 3, .sessions = 1, .losses = 2},
    {"anew", "the full one's state is made anew", 2, 3, .first = 1, .worked = 1, .joins = 2,
     .renewed = 1, .sessions = 1, .renewals = 1, .safe = true},
    {"anew-last", "the full one's state is made anew, and the joining one is keeper", 2, 3,
     .first = 2, .worked = 2, .joins = 1, .renewed = 2, .sessions = 1, .renewals = 1, .safe = true},
    {"alone", "the joining one goes on alone", 2, 2, .first = 1, .joins = 2, .alone = 3,
     .sessions = 1, .safe = true},
    {"alone-unseen", "the joining one goes on alone, and no session comes", 2, 2, .first = 1,
     .alone = 3, .safe = true},
    {"mail", "one mail comes to either, and bodies stay away", 2, 2, .first = 1, .joins = 2,
     .delivers = 3, .alone = 1, .sessions = 1, .deliveries = 1, .silences = 1},
    {"mail-last", "the same, and the joining one is keeper", 2, 2, .first = 2, .joins = 1,
     .delivers = 3, .alone = 2, .sessions = 1, .deliveries = 1, .silences = 1},
    {"mails-last", "two mails come to either, and the joining one is keeper", 2, 1, .first = 2,
     .joins = 1, .delivers = 3, .alone = 2, .deliveries = 2},
    {"lost", "mail comes to the joining one, which loses its home", 2, 2, .first = 1, .joins = 2,
     .delivers = 2, .loses = 2, .alone = 1, .sessions = 1, .deliveries = 1, .losses = 1},
    {"empty", "nobody has mail yet", 2, 0, .joins = 3, .delivers = 3, .alone = 3, .sessions = 2,
     .deliveries = 2},
    {"three", "a full site and two that join", 3, 3, .first = 1, .joins = 6, .alone = 1,
     .sessions = 1, .safe = true},
    {"three-last", "a full site and two that join, one of them as keeper", 3, 2, .first = 4,
     .joins = 3, .alone = 4, .sessions = 1, .safe = true},
    {"pair", "two full ones, mail comes to both, and one that joins", 3, 2, .first = 3, .worked = 3,
     .delivers = 3, .deliveries = 2, .safe = true},
    {"pair-dies", "two full ones, of which one loses its home, and one that joins", 3, 2,
     .first = 3, .worked = 3, .joins = 6, .loses = 2, .sessions = 1, .losses = 1, .safe = true},
    {"in-turn", "three full ones, to which mail comes in turn", 3, 1, .first = 7, .worked = 7,
     .delivers = 7, .deliveries = 2, .safe = true, .in_turn = true},
    {"mails", "two mails come to either, and bodies stay away", 2, 2, .first = 1, .joins = 2,
     .delivers = 3, .alone = 1, .sessions = 1, .deliveries = 2, .silences = 1, .large = true},
    {"three-mail", "a full site, to which mail comes, and two that join", 3, 2, .first = 1,
     .joins = 6, .delivers = 1, .alone = 1, .sessions = 1, .deliveries = 1, .safe = true,
     .large = true},
    {"three-dies", "a full site and two that join, of which one loses its home", 3, 2, .first = 1,
     .joins = 6, .loses = 4, .alone = 1, .sessions = 1, .losses = 1, .safe = true, .large = true},
    {"three-more", "a full site and two that join, with sessions at both", 3, 3, .first = 1,
     .joins = 6, .alone = 1, .sessions = 2, .safe = true, .large = true},
    {"pair-session", "two full ones, mail comes to both, and one that joins with a session", 3, 2,
     .first = 3, .worked = 3, .joins = 4, .delivers = 3, .sessions = 1, .deliveries = 2,
     .safe = true, .large = true},
    {"pair-lost", "the same, and the joining one loses its home", 3, 2, .first = 3, .worked = 3,
     .loses = 4, .delivers = 3, .deliveries = 2, .losses = 1, .safe = true, .large = true},
    {"pair-keeper", "two full ones, mail comes to both, and one that joins as keeper", 3, 2,
     .first = 6, .worked = 6, .delivers = 6, .deliveries = 2, .safe = true, .large = true},
    {"in-turn-last", "the same, and one that joins as keeper", 3, 1, .first = 6, .worked = 6,
     .delivers = 6, .deliveries = 2, .safe = true, .in_turn = true, .large = true},
    {"in-turn-mails", "three full ones, to which more mail comes in turn", 3, 1, .first = 7,
     .worked = 7, .delivers = 6, .deliveries = 3, .safe = true, .in_turn = true, .large = true},
};

static uint64_t states;

static bool told(const struct start *with, enum rule rule, bool story)
{
    struct verdict v = run(with, rule);
    states += v.states;
    printf("%-15s %-12s %9u states %11llu steps %8u rests  %s\n", with->name, left_out[rule].name,
           v.states, (unsigned long long)v.steps, v.rests, v.broken ? v.broken : "kept");
    if (v.broken && story)
        tell_story();
    fflush(stdout);
    return v.broken != NULL;
}

/* Where a rule that is left out shows. */
static const struct hunt {
    enum rule rule;
    const char *start;
} hunts[] = {
    {AS_THEY_COME, "full-first"},    {FILLING_NOT_MINDED, "mail"},      {ROUND_AT_ONCE, "pair"},
    {ASKED_ONCE, "three-last"},      {UNKNOWN_REFUSED, "anew"},         {ALONE_SAYS, "alone"},
    {NO_READING, "full-first"},      {READING_OVERTAKEN, "full-first"}, {READ_AHEAD, "full-first"},
    {YOUNGER_WINS, "full-last"},     {WAYS_LEFT_LATER, "full-first"},   {LOWERED_WITH_MAIL, "mail"},
    {INBOX_AT_ONCE, "alone-unseen"}, {GIVES_NOTHING_UP, "lost"},        {NO_ROUNDS, "mail"},
    {OTHERS_NOT_AWAITED, "in-turn"},
};

#define N(list) (sizeof(list) / sizeof(list)[0])

static const struct start *find_start(const char *name)
{
    for (size_t i = 0; i < N(starts_of); i++)
        if (!strcmp(starts_of[i].name, name))
            return &starts_of[i];
    fprintf(stderr, "no start is called %s\n", name);
    exit(2);
}

static enum rule find_rule(const char *name)
{
    for (unsigned r = 0; r < RULES; r++)
        if (!strcmp(left_out[r].name, name))
            return (enum rule)r;
    fprintf(stderr, "no rule is called %s\n", name);
    exit(2);
}

static void list(void)
{
    for (size_t i = 0; i < N(starts_of); i++)
        printf("%-13s %s%s\n", starts_of[i].name, starts_of[i].what,
               starts_of[i].large ? " (long)" : "");
    for (unsigned r = 1; r < RULES; r++)
        printf("%-13s left out: %s\n", left_out[r].name, left_out[r].what);
}

static bool hunt(const struct hunt *h)
{
    struct verdict v = run(find_start(h->start), h->rule);
    printf("%s: %s%s\n", left_out[h->rule].what, v.broken ? "noticed: " : "NOT NOTICED",
           v.broken ? v.broken : "");
    fflush(stdout);
    return v.broken != NULL;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    bool bad = false, all = !strcmp(what, "long");
    if (!strcmp(what, "list"))
        return list(), 0;
    if (!strcmp(what, "try") && argc > 2)
        return told(find_start(argv[2]), argc > 3 ? find_rule(argv[3]) : ALL_RULES, true);
    if (*what && !all) {
        fprintf(stderr, "usage: joining-model [long | list | try START [RULE]]\n");
        return 2;
    }
    for (size_t i = 0; i < N(starts_of); i++)
        if (all || !starts_of[i].large)
            bad |= told(&starts_of[i], ALL_RULES, true);
    for (size_t i = 0; i < N(hunts); i++)
        bad |= !hunt(&hunts[i]);
    printf("%llu states, %u rules left out: %s\n", (unsigned long long)states, RULES - 1,
           bad ? "NOT what the rules promise" : "all as promised");
    return bad;
}
