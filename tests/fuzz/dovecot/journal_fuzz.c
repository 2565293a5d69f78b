/* journal_fuzz - lines of a journal, which is its user's file: any bytes, after a power loss zeros. */
#include "fuzz.h"

#include "../../../dovecot-plugin/replicator/worker/journal_said.h"

static bool has_name(const void *data, size_t size, const char *name)
{
    return name == NULL || strlen(name) <= size;
}

static void read_lines(const uint8_t *data, size_t size)
{
    struct journal_said j;
    const struct deletion *d;
    const char *const *said;
    guid_128_t guid = {0};
    journal_said_init(&j);
    for (int again = 0; again < 2; again++) {
        journal_said_parse(&j, data, size);
        array_foreach(&j.deletions, d)
        {
            require(has_name(data, size, d->vname), "a name that is longer than its line");
            require((journal_said_deleted(&j, d->guid) != NULL) == (d->times > 0),
                    "a deletion that is not found");
        }
        array_foreach(&j.subscribed, said)
        {
            require((**said == 'S' || **said == 'U') &&
                        journal_said_subscription(&j, *said + 1, **said == 'S'),
                    "a subscription that is not found");
        }
    }
    (void)journal_said_deleted(&j, guid);
    journal_said_free(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin_library();
    T_BEGIN
    {
        read_lines(data, size);
    }
    T_END;
    return 0;
}
