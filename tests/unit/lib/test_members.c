#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/config/config.h"
#include "lib/cluster/members.h"
#include "lib/cluster/admin_notice.h"
#include "tests/unit/lib/tests.h"

static const char three[] =
    "5 node mx1 10.0.0.1:7001 - yes -\n7 gone mx2\n6 node mx3 unix:/x 10.1.0.3:1 no mail.example\n";

static void is(const struct members *t, const char *text)
{
    struct buf b = {0};
    members_write(t, &b);
    ck_assert_str_eq(b.data ? b.data : "", text);
    buf_free(&b);
}

START_TEST(test_a_table_reads_what_it_wrote)
{
    struct members t = {0};
    ck_assert(members_read(&t, three));
    is(&t, three);
    ck_assert(!members_read(&t, three));
    ck_assert_str_eq(members_find(&t, "mx1")->standby, "");
    ck_assert_str_eq(members_find(&t, "mx3")->tls_name, "mail.example");
    ck_assert(members_find(&t, "mx2")->gone && !members_find(&t, "mx4"));
    members_free(&t);
}
END_TEST

START_TEST(test_labels_stand_in_a_record_only_where_there_are_any)
{
    struct members t = {0};
    ck_assert(members_read(&t, "1 node a h:1 - - -\n1 node b h:2 - - - fra -\n"
                               "1 joining c h:3 - - - ams rack-2\n1 node d h:4 - - - fra\n"));
    is(&t, "1 node a h:1 - - -\n1 node b h:2 - - - fra -\n1 joining c h:3 - - - ams rack-2\n");
    ck_assert_str_eq(members_find(&t, "a")->site, "");
    ck_assert_str_eq(members_find(&t, "b")->site, "fra");
    ck_assert_str_eq(members_find(&t, "b")->zone, "");
    ck_assert_str_eq(members_find(&t, "c")->zone, "rack-2");
    members_free(&t);
}
END_TEST

START_TEST(test_the_higher_serial_counts_in_whatever_order_they_come)
{
    static const char *const said[] = {"1 node a h:1 - - -\n", "3 gone a\n", "2 node a h:2 - - -\n",
                                       "3 node a h:3 - - -\n"};
    for (int first = 0; first < 4; first++) {
        struct members t = {0};
        for (int i = 0; i < 4; i++)
            members_read(&t, said[(first + i) % 4]);
        is(&t, "3 gone a\n");
        ck_assert(members_serial(&t, "a") > 3);
        ck_assert(members_read(&t, "4 node a h:4 - - -\n"));
        members_free(&t);
    }
    /* Two that were said at one moment: the same one everywhere. */
    struct members one = {0}, other = {0};
    members_read(&one, "1 node a h:1 - - -\n1 node a h:2 - - -\n");
    members_read(&other, "1 node a h:2 - - -\n1 node a h:1 - - -\n");
    is(&one, "1 node a h:2 - - -\n");
    is(&other, "1 node a h:2 - - -\n");
    members_free(&one);
    members_free(&other);
}
END_TEST

/* Or who was one of the group, and has forgotten it, would take itself out. */
START_TEST(test_who_joins_counts_less_than_who_is_a_node_or_gone_whatever_the_serials)
{
    static const char *const said[] = {"9 joining a h:9 - - -\n", "2 node a h:2 - - -\n",
                                       "8 joining a h:8 - - -\n", "1 node a h:1 - - -\n"};
    for (int first = 0; first < 4; first++) {
        struct members t = {0};
        for (int i = 0; i < 4; i++)
            members_read(&t, said[(first + i) % 4]);
        is(&t, "2 node a h:2 - - -\n");
        ck_assert(members_read(&t, "3 gone a\n") && !members_read(&t, said[0]));
        members_free(&t);
    }
    struct members t = {0};
    ck_assert(members_read(&t, said[2]) && members_read(&t, said[0]) && !members_read(&t, said[2]));
    is(&t, said[0]);
    ck_assert(members_find(&t, "a")->joining);
    members_free(&t);
}
END_TEST

/* Or nobody who was taken out could join again: as one that is a node at once it would not be
 * asked whom it reaches. */
START_TEST(test_who_is_taken_in_again_joins_first_whatever_was_said_before)
{
    static const char *const said[] = {"9 node a h:9 - - -\n", "3/1 joining a h:3 - - -\n",
                                       "8 gone a\n", "2/1 joining a h:2 - - -\n"};
    for (int first = 0; first < 4; first++) {
        struct members t = {0};
        for (int i = 0; i < 4; i++)
            members_read(&t, said[(first + i) % 4]);
        is(&t, said[1]);
        ck_assert_uint_eq(members_find(&t, "a")->epoch, 1);
        ck_assert(members_read(&t, "1/1 node a h:1 - - -\n") && !members_read(&t, said[1]));
        ck_assert(members_read(&t, "1/1 gone a\n") && members_read(&t, "2/1 node a h:1 - - -\n") &&
                  !members_read(&t, "7 gone a\n"));
        is(&t, "2/1 node a h:1 - - -\n");
        members_free(&t);
    }
}
END_TEST

START_TEST(test_what_is_not_understood_is_passed_over)
{
    static const char *const bad[] = {
        "",
        "\n",
        "x",
        "0 gone a",
        "1 gone",
        "1 gone a b",
        "1 node a",
        "1 node a h:1 - -",
        "1 node a h:1 - - - -",
        "1 joining a",
        "1 joining a h:1 - -",
        "1 joining a h:1 - - - -",
        "-1 gone a",
        "1x gone a",
        "1/ gone a",
        "1/0 gone a",
        "1/-1 gone a",
        "1/1x gone a",
        "/1 gone a",
        "1/1/1 gone a",
        "1/1000001 gone a",
        "1 hidden a",
        "1 gone aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "9007199254740993 gone a",
        "18446744073709551615 gone a",
        "18446744073709551616 gone a"};
    struct members t = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!members_read(&t, bad[i]), "%s", bad[i]);
    ck_assert(members_read(&t, "nonsense\n9 gone mx9"));
    is(&t, "9 gone mx9\n");
    for (int i = 0; i < 2 * MEMBERS_MOST; i++) {
        char line[32];
        snprintf(line, sizeof line, "1 gone n%d\n", i);
        members_read(&t, line);
    }
    ck_assert_uint_eq(t.n, MEMBERS_MOST);
    members_free(&t);
}
END_TEST

/* Or nobody could read it any more. */
START_TEST(test_a_table_never_gets_longer_than_what_is_read)
{
    struct members t = {0};
    struct buf text = {0};
    char line[600], word[MEMBERS_WORD_MOST + 2];
    memset(word, 'x', sizeof word);
    word[MEMBERS_WORD_MOST + 1] = '\0';
    snprintf(line, sizeof line, "1 node a %s - - -\n", word);
    ck_assert(!members_read(&t, line));
    word[MEMBERS_WORD_MOST] = '\0';
    for (int i = 0; i < MEMBERS_MOST; i++) {
        snprintf(line, sizeof line, "1 node n%d %s %s - -\n", i, word, word);
        members_read(&t, line);
    }
    members_write(&t, &text);
    ck_assert(t.n > 100 && t.n < MEMBERS_MOST && text.len <= MEMBERS_TEXT_MOST);
    /* What takes one of them out is taken all the same. */
    ck_assert(members_read(&t, "2 gone n1\n") && members_find(&t, "n1")->gone);
    buf_free(&text);
    members_free(&t);
}
END_TEST

/* ---- in a config ---- */

static char directory[] = "/tmp/test-members-XXXXXX";

static void know(const char *text)
{
    struct members t = {0};
    char *file = members_file(directory, "dovelane-relay");
    unlink(file);
    members_read(&t, text);
    ck_assert_int_eq(members_save(&t, file), 0);
    members_free(&t);
    free(file);
}

static struct config *config_of(const char *more)
{
    char path[200], *error = NULL;
    snprintf(path, sizeof path, "%s/conf", directory);
    FILE *f = fopen(path, "w");
    fprintf(f, "state_directory = \"%s\"\n%s%s", directory,
            strstr(more, "membership = ") ? "" : "membership = learned\n", more);
    fclose(f);
    struct config *c = config_read(path, &error);
    ck_assert_msg(c != NULL, "%s", error);
    return c;
}

static void names_are(const struct config *c, const char *names)
{
    struct buf b = {0};
    for (size_t i = 0; i < c->nnodes; i++)
        buf_printf(&b, "%s%s", i ? " " : "", c->node[i].name);
    ck_assert_str_eq(b.data, names);
    buf_free(&b);
}

#define TWO                                                                                       \
    "node mx1 { redis = \"10.0.0.1:1\" tls = yes }\nnode mx2 { redis = \"10.0.0.2:1\" tls = yes " \
    "}\n"

START_TEST(test_sections_come_first_and_count_more)
{
    know("5 node mx0 10.0.0.9:1 - yes -\n5 gone mx1\n5 node mx2 10.0.0.8:1 - yes -\n5 gone mx5\n");
    struct config *c = config_of(TWO);
    names_are(c, "mx1 mx2 mx0");
    ck_assert_str_eq(c->node[1].redis, "10.0.0.2:1");
    ck_assert(c->node[2].learned && !c->node[1].learned && !c->unlearned);
    ck_assert(config_list_has(&c->forgotten, "mx5") && !config_list_has(&c->forgotten, "mx1"));
    config_free(c);
    /* Not with membership = file. */
    c = config_of("membership = file\n" TWO);
    names_are(c, "mx1 mx2");
    config_free(c);
}
END_TEST

START_TEST(test_a_node_that_cannot_be_used_does_no_harm)
{
    static const char *const wrong[] = {
        "5 node mx3 nonsense - yes -\n",    "5 node mx3 10.0.0.1:1 - yes -\n",
        "5 node mx3 10.0.0.3:1 - no -\n",   "5 node mx3 10.0.0.3:1 - - -\n",
        "5 node mx3 127.0.0.1:1 - - -\n",   "5 node mx3 unix:/run/r - - -\n",
        "5 node MX3 10.0.0.3:1 - yes -\n",  "5 node mx3 10.0.0.3:1 10.0.0.2:1 yes -\n",
        "5 node mx3 10.0.0.3:1 - maybe -\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        know(wrong[i]);
        struct config *c = config_of(TWO);
        names_are(c, "mx1 mx2");
        ck_assert_msg(c->unlearned != NULL, "%s", wrong[i]);
        config_free(c);
    }
    /* Without TLS, where the file has such nodes, too. */
    know("5 node mx3 10.0.0.3:1 - no -\n");
    struct config *c = config_of("node mx1 { redis = \"10.0.0.1:1\" tls = no }\nnode mx2 { redis = "
                                 "\"10.0.0.2:1\" tls = yes }\n");
    names_are(c, "mx1 mx2 mx3");
    config_free(c);
}
END_TEST

START_TEST(test_who_joins_is_none_of_the_nodes_and_its_server_can_be_reached)
{
    struct config_link link;
    struct members t = {0};
    know("5 joining mx3 10.0.0.3:1 10.1.0.3:1 yes mail.example\n5 joining mx4 10.0.0.4:1 - no -\n5 "
         "joining mx5 10.0.0.1:1 - yes -\n");
    members_read(&t, "5 joining mx3 10.0.0.3:1 10.1.0.3:1 yes mail.example\n5 joining mx4 "
                     "10.0.0.4:1 - no -\n5 joining mx5 10.0.0.1:1 - yes -\n");
    struct config *c = config_of(TWO);
    names_are(c, "mx1 mx2");
    ck_assert(!config_learn(c) && !c->unlearned);
    ck_assert(!config_newcomer(c, members_find(&t, "mx3"), &link));
    ck_assert_str_eq(link.address, "10.0.0.3:1");
    ck_assert_str_eq(link.standby, "10.1.0.3:1");
    ck_assert(link.tls && !strcmp(link.tls_name, "mail.example"));
    /* What would not be used as a node is not connected to either: passwords go over that. */
    for (int i = 4; i <= 5; i++) {
        char name[] = {'m', 'x', (char)('0' + i), '\0'},
             *wrong = config_newcomer(c, members_find(&t, name), &link);
        ck_assert_msg(wrong && strstr(wrong, i == 4 ? "without TLS" : "the same redis"), "%s",
                      wrong);
        free(wrong);
    }
    names_are(c, "mx1 mx2");
    /* It is one of them. */
    know("5 joining mx3 10.0.0.3:1 - yes -\n6 node mx3 10.0.0.3:1 - yes -\n");
    ck_assert(config_learn(c));
    names_are(c, "mx1 mx2 mx3");
    config_free(c);
    members_free(&t);
}
END_TEST

/* More copies than sections, and a dead node that is in none: both may be learned of. An address
 * that is its own host's alone, beside others that are not: nobody could. */
START_TEST(test_what_learned_allows_and_refuses)
{
    char path[200], *error = NULL;
    know("");
    struct config *c = config_of("copies = 3\n" TWO);
    names_are(c, "mx1 mx2");
    ck_assert(!c->unlearned);
    config_free(c);
    c = config_of("dead = { mx7 }\n" TWO);
    ck_assert(c->unlearned && strstr(c->unlearned, "dead names mx7, which has no section here and "
                                                   "was not learned of: it is not waited for"));
    config_free(c);
    config_free(
        config_of("node mx1 { redis = \"127.0.0.1:1\" }\nnode mx2 { redis = \"unix:/run/r\" }\n"));
    snprintf(path, sizeof path, "%s/conf", directory);
    FILE *f = fopen(path, "w");
    fputs("membership = learned\nnode mx1 { redis = \"10.0.0.1:1\" tls = yes }\nnode mx3 { redis = "
          "\"127.0.0.1:1\" }\n",
          f);
    fclose(f);
    ck_assert(!config_read(path, &error));
    ck_assert_msg(strstr(error, "node mx3: 127.0.0.1:1 can be reached by its own host only") !=
                      NULL,
                  "%s", error);
    free(error);
}
END_TEST

/* Not taken for one that is missing, and never replaced: it may be all that tells who was taken
 * out. */
START_TEST(test_a_file_that_cannot_be_read_is_said_and_stays)
{
    struct members t = {0};
    struct stat st;
    char *file = members_file(directory, "dovelane-relay");
    ck_assert_int_eq(members_load(&t, file), 0);
    members_read(&t, three);
    ck_assert(mkdir(file, 0700) == 0);
    ck_assert(members_load(&t, file) == -1 && errno == EISDIR);
    ck_assert(members_save(&t, file) == -1 && errno == EISDIR);
    struct config *c = config_of(TWO);
    names_are(c, "mx1 mx2");
    ck_assert(c->unlearned && strstr(c->unlearned, file) &&
              strstr(c->unlearned, ": Is a directory: "));
    ck_assert(rmdir(file) == 0 && symlink("nodes-dovelane-relay", file) == 0);
    ck_assert(members_load(&t, file) == -1 && errno == ELOOP);
    ck_assert(members_save(&t, file) == -1 && errno == ELOOP);
    ck_assert(lstat(file, &st) == 0 && S_ISLNK(st.st_mode));
    /* A record that is cut off may be another one. */
    unlink(file);
    FILE *f = fopen(file, "w");
    fprintf(f, "9 gone mx9\n%*s\n8 gone mx88\n", MEMBERS_TEXT_MOST, "");
    fclose(f);
    ck_assert(members_load(&t, file) == -1 && errno == EFBIG);
    ck_assert(members_save(&t, file) == -1 && errno == EFBIG);
    is(&t, three);
    /* It can be read again. */
    know("8 gone mx8\n");
    ck_assert(config_learn(c) == false && !c->unlearned && config_list_has(&c->forgotten, "mx8"));
    ck_assert_int_eq(members_save(&t, file), 0);
    ck_assert(members_find(&t, "mx8") && members_find(&t, "mx8")->gone);
    struct members read = {0};
    ck_assert_int_eq(members_load(&read, file), 0);
    ck_assert_uint_eq(read.n, 4);
    members_free(&read);
    config_free(c);
    members_free(&t);
    free(file);
}
END_TEST

START_TEST(test_the_digest_does_not_look_at_who_learned_of_whom)
{
    char one[CONFIG_DIGEST], other[CONFIG_DIGEST];
    know("5 node mx3 10.0.0.3:1 - yes -\n");
    struct config *c = config_of(TWO);
    config_digest(c, one);
    config_free(c);
    know("5 node mx1 10.0.0.1:1 - yes -\n5 gone mx7\n");
    c = config_of("node mx3 { redis = \"10.0.0.3:1\" tls = yes }\nnode mx2 { redis = "
                  "\"10.0.0.2:1\" tls = yes }\n");
    config_digest(c, other);
    ck_assert_str_eq(one, other);
    config_free(c);
    c = config_of("node mx3 { redis = \"10.0.0.3:2\" tls = yes }\nnode mx2 { redis = "
                  "\"10.0.0.2:1\" tls = yes }\n");
    config_digest(c, other);
    ck_assert_str_ne(one, other);
    config_free(c);
}
END_TEST

START_TEST(test_a_label_that_no_config_could_say_is_not_taken_over)
{
    know("5 node mx3 10.0.0.3:1 - yes - fra rack-1\n");
    struct config *c = config_of(TWO);
    ck_assert_str_eq(c->node[2].site, "fra");
    know("6 node mx3 10.0.0.3:1 - yes - ams rack-2\n");
    config_learn(c);
    ck_assert_str_eq(c->node[2].site, "ams");
    ck_assert_str_eq(c->node[2].zone, "rack-2");
    know("7 node mx3 10.0.0.3:1 - yes - \033[2Jams a/b\n");
    config_learn(c);
    ck_assert_str_eq(c->node[2].site, "ams");
    ck_assert_str_eq(c->node[2].zone, "rack-2");
    know("8 node mx3 10.0.0.3:1 - yes -\n"); /* it has none any more */
    config_learn(c);
    ck_assert_str_eq(c->node[2].site, "");
    config_free(c);
}
END_TEST

START_TEST(test_nodes_keep_their_places_in_a_config_that_is_in_use)
{
    char one[CONFIG_DIGEST], other[CONFIG_DIGEST];
    know("5 node mx3 10.0.0.3:1 - yes -\n");
    struct config *c = config_of(TWO), *again;
    know("5 node mx0 10.0.0.9:1 - yes -\n5 node mx3 10.0.0.3:1 - yes -\n");
    ck_assert(config_learn(c) && !config_learn(c));
    names_are(c, "mx1 mx2 mx3 mx0");
    again = config_of(TWO);
    names_are(again, "mx1 mx2 mx0 mx3");
    ck_assert(config_keep_nodes(again, c));
    names_are(again, "mx1 mx2 mx3 mx0");
    config_digest(c, one);
    config_digest(again, other);
    ck_assert_str_eq(one, other);
    config_free(again);
    /* Forgotten: its place stays, and it is dead. */
    know("5 node mx0 10.0.0.9:1 - yes -\n6 gone mx3\n");
    ck_assert(config_learn(c) && !config_learn(c));
    names_are(c, "mx1 mx2 mx3 mx0");
    ck_assert(config_list_has(&c->dead, "mx3"));
    again = config_of(TWO);
    names_are(again, "mx1 mx2 mx0");
    config_digest(c, one);
    config_digest(again, other);
    ck_assert_str_eq(one, other);
    ck_assert(config_keep_nodes(again, c));
    names_are(again, "mx1 mx2 mx3 mx0");
    config_digest(again, other);
    ck_assert_str_eq(one, other);
    /* And taken in again. */
    know("5 node mx0 10.0.0.9:1 - yes -\n7 node mx3 10.0.0.3:1 - yes -\n");
    ck_assert(config_learn(c) && config_learn(again));
    ck_assert(!config_list_has(&c->dead, "mx3") && !config_list_has(&again->dead, "mx3"));
    config_free(again);
    /* This program missed that it was taken out again, and reads that it joins: the same. */
    know("5 node mx0 10.0.0.9:1 - yes -\n1/1 joining mx3 10.0.0.3:1 - yes -\n");
    ck_assert(config_learn(c) && !config_learn(c));
    names_are(c, "mx1 mx2 mx3 mx0");
    ck_assert(config_list_has(&c->dead, "mx3"));
    again = config_of(TWO);
    names_are(again, "mx1 mx2 mx0");
    config_digest(c, one);
    config_digest(again, other);
    ck_assert_str_eq(one, other);
    ck_assert(config_keep_nodes(again, c));
    names_are(again, "mx1 mx2 mx3 mx0");
    know("5 node mx0 10.0.0.9:1 - yes -\n2/1 node mx3 10.0.0.3:1 - yes -\n");
    ck_assert(config_learn(c) && config_learn(again));
    ck_assert(!config_list_has(&c->dead, "mx3") && !config_list_has(&again->dead, "mx3"));
    config_free(again);
    /* One that is missing for another reason is none that is forgotten. */
    again = config_of("node mx1 { redis = \"10.0.0.1:1\" tls = yes }\n");
    ck_assert(!config_keep_nodes(again, c));
    config_free(again);
    config_free(c);
}
END_TEST

static void setup(void)
{
    strcpy(directory + sizeof directory - 7, "XXXXXX");
    ck_assert(mkdtemp(directory) != NULL);
}

static void teardown(void)
{
    char path[200], *file = members_file(directory, "dovelane-relay");
    snprintf(path, sizeof path, "%s/conf", directory);
    unlink(path);
    unlink(file);
    rmdir(directory);
    free(file);
}

/* Whoever may write there must neither hold up who reads it, as root, nor send him to another
 * file. */
START_TEST(test_what_is_no_file_is_not_read)
{
    struct members t = {0};
    char *file = members_file(directory, "dovelane-relay"), path[200];
    ck_assert_int_eq(mkfifo(file, 0600), 0);
    ck_assert_int_eq(members_load(&t, file), -1);
    unlink(file);
    snprintf(path, sizeof path, "%s/conf", directory);
    ck_assert_int_eq(symlink(path, file), 0);
    ck_assert_int_eq(members_load(&t, file), -1);
    unlink(file);
    ck_assert_int_eq(members_load(&t, file), 0);
    members_free(&t);
    free(file);
}
END_TEST

/* It would count for ever, whatever an admin says later. */
START_TEST(test_an_admins_word_of_a_time_that_no_clock_has_is_none)
{
    struct admin_notice s;
    char text[60];
    unsigned long long now = (unsigned long long)(clock_wall() / 1000);
    ck_assert(!admin_notice_parse("18446744073709551614 off x", &s) && s.on && !s.serial);
    snprintf(text, sizeof text, "%llu off x", now + 86400ull * 365 * 11 * 1000);
    ck_assert(!admin_notice_parse(text, &s) && s.on);
    /* of a clock that is wrong */
    snprintf(text, sizeof text, "%llu off x", now + 86400ull * 365 * 1000);
    ck_assert(admin_notice_parse(text, &s) && !s.on);
    free(s.text);
}
END_TEST

TCase *members_tests(void)
{
    TCase *t = tcase_create("members");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_what_is_no_file_is_not_read);
    tcase_add_test(t, test_an_admins_word_of_a_time_that_no_clock_has_is_none);
    tcase_add_test(t, test_a_table_reads_what_it_wrote);
    tcase_add_test(t, test_labels_stand_in_a_record_only_where_there_are_any);
    tcase_add_test(t, test_the_higher_serial_counts_in_whatever_order_they_come);
    tcase_add_test(t, test_who_joins_counts_less_than_who_is_a_node_or_gone_whatever_the_serials);
    tcase_add_test(t, test_who_is_taken_in_again_joins_first_whatever_was_said_before);
    tcase_add_test(t, test_what_is_not_understood_is_passed_over);
    tcase_add_test(t, test_a_table_never_gets_longer_than_what_is_read);
    tcase_add_test(t, test_who_joins_is_none_of_the_nodes_and_its_server_can_be_reached);
    tcase_add_test(t, test_what_learned_allows_and_refuses);
    tcase_add_test(t, test_sections_come_first_and_count_more);
    tcase_add_test(t, test_a_node_that_cannot_be_used_does_no_harm);
    tcase_add_test(t, test_a_file_that_cannot_be_read_is_said_and_stays);
    tcase_add_test(t, test_the_digest_does_not_look_at_who_learned_of_whom);
    tcase_add_test(t, test_a_label_that_no_config_could_say_is_not_taken_over);
    tcase_add_test(t, test_nodes_keep_their_places_in_a_config_that_is_in_use);
    return t;
}
