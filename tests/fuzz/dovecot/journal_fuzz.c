/* journal_fuzz - lines of a journal, which is its user's file: any bytes, after a power loss
 * zeros. */
#include "tests/fuzz/dovecot/fuzz.h"

#include "dovecot-plugin/worker/logs/journal_said.h"

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
        array_foreach (&j.deletions, d) {
            require(has_name(data, size, d->vname), "a name that is longer than its line");
            require((journal_said_deleted(&j, d->guid) != NULL) == (d->times > 0),
                    "a deletion that is not found");
        }
        array_foreach (&j.subscribed, said) {
            require((**said == 'S' || **said == 'U') &&
                        journal_said_subscription(&j, *said + 1, **said == 'S'),
                    "a subscription that is not found");
        }
    }
    (void)journal_said_deleted(&j, guid);
    journal_said_free(&j);
}

/* Of what waits everything is kept, of the rest nothing: what is kept says the same of it. */
static void keep_lines(const uint8_t *data, size_t size)
{
    struct journal_said all, kept;
    const struct deletion *d;
    ARRAY_TYPE(guid_128_t) waiting;
    string_t *text = str_new(default_pool, 256);
    unsigned n = 0;
    journal_said_init(&all);
    journal_said_init(&kept);
    journal_said_parse(&all, data, size);
    t_array_init(&waiting, 8);
    array_foreach (&all.deletions, d) {
        if (n++ % 2 == 0)
            memcpy(array_append_space(&waiting), d->guid, sizeof d->guid);
    }
    bool names = size % 2 == 0;
    journal_said_keep(data, size, &waiting, names, text);
    journal_said_parse(&kept, str_data(text), str_len(text));
    require(array_count(&kept.deletions) == array_count(&waiting),
            "a folder that was not kept, or should not be");
    array_foreach (&all.deletions, d) {
        const struct deletion *k = journal_said_deleted(&kept, d->guid);
        bool waits = FALSE;
        const guid_128_t *guid;
        array_foreach (&waiting, guid)
            waits = waits || guid_128_equals(*guid, d->guid);
        require((k != NULL) == (waits && d->times > 0), "a deletion that is not kept as it was");
    }
    require(array_count(&kept.subscribed) == (names ? array_count(&all.subscribed) : 0),
            "subscriptions that are not kept as they were");
    str_free(&text);
    journal_said_free(&all);
    journal_said_free(&kept);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin_library();
    T_BEGIN
    {
        read_lines(data, size);
        keep_lines(data, size);
    }
    T_END;
    return 0;
}
