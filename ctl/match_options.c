#include "ctl/match_options.h"

#include <stdio.h>
#include <stdlib.h>

static const char help[] =
    "Which mails (given several times, one of a kind must fit; of different kinds, all must; "
    "nothing depends on case):\n"
    "  --id ID           Postfix's queue id, or the entry's own in hex (--queue-id, or the bare "
    "ID: the same)\n"
    "  --sender GLOB     \"*@example.org\"; \"\" is the null sender (--from: the same)\n"
    "  --rcpt GLOB       a recipient that is not delivered yet (--recipient, --to: the same)\n"
    "  --dest GLOB       the next hop, as `mailq -j` and `divert` write it: "
    "\"smtp:[10.0.0.5]:25\", \"lmtp:*\"\n"
    "                    (--destination, --next-hop: the same)\n"
    "  --sasl-user GLOB  who was logged in (--login: the same)\n"
    "  --client GLOB     the client's address, network (192.0.2.0/24) or name\n"
    "  --age TIME        arrived at least so long ago: 30s, 10m, 2h, 1d, 1w; with < in front: less "
    "long ago\n"
    "  --size SIZE       at least so large: 512, 10kB, 1MB; with < in front: smaller\n"
    "  --error REGEX     in the last error of a recipient that is not delivered yet\n"
    "  --header REGEX    a header line: \"^subject: .*invoice\"\n"
    "  --all             every mail";

void match_options_print_help(void)
{
    puts(help);
}

void match_options_ids(struct match *m, int argc, char **argv)
{
    for (; optind < argc; optind++)
        match_options_add(m, MATCH_OPTION + MATCH_ID, argv[optind]);
}

void match_options_add(struct match *m, int option, const char *value)
{
    char *wrong = match_add(m, (enum match_kind)(option - MATCH_OPTION), value);
    if (wrong)
        ctl_usage("%s", wrong);
}

/* ---- an item as facts ---- */

struct reading {
    struct item *item;
    struct buf body;
};

static const char *error_of(void *arg, const struct recipient *r)
{
    return recipient_error(((struct reading *)arg)->item, r);
}

static bool message_of(void *arg, const char **data, size_t *len)
{
    struct reading *reading = arg;
    if (!reading->body.len && !queue_body(reading->item, &reading->body))
        return false;
    *data = reading->body.data;
    *len = reading->body.len;
    return *data != NULL;
}

bool match_options_fit(const struct match *m, struct item *item)
{
    struct reading reading = {.item = item};
    struct match_facts facts = {item->wrong ? NULL : &item->envelope,
                                item->id,
                                item->name.nowners ? item->name.destination : NULL,
                                &reading,
                                error_of,
                                message_of};
    bool fits = match_fits(m, &facts);
    buf_free(&reading.body);
    return fits;
}

void match_options_filter(const struct match *m, struct queue *q)
{
    size_t kept = 0;
    for (size_t i = 0; i < q->n; i++) {
        struct item item = q->item[i];
        if (match_options_fit(m, &item))
            q->item[kept++] = item;
        else
            item_free(&item);
    }
    q->n = kept;
}
