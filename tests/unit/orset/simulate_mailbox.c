/* simulate_mailbox - users at their mailboxes, ingest of what they did, work that the state asks
 * for. */
#include "tests/unit/orset/simulate.h"
#include "dovecot-plugin/orset/ops/uid.h"

static bool in_vain; /* the transaction will be rolled back */

struct box *box_of(struct site *s, uint32_t folder)
{
    if (folder >= BOXES)
        fail("too many folders for the simulation", s);
    struct box *b = &s->box[folder];
    struct orset_folder f = {.uid_next = 1};
    if (b->uid_next > 0)
        return b;
    /* Made anew: never below what it was (F23). */
    orset_folder_get(s->os, folder, &f);
    b->uid_next = f.uid_next;
    return b;
}

struct mail *mail_by_uid(struct box *b, uint32_t uid)
{
    for (unsigned i = 0; i < b->n; i++)
        if (b->mail[i].uid == uid)
            return &b->mail[i];
    return NULL;
}

static struct mail *save(struct box *b, uint32_t uid, struct mail m)
{
    if (b->n == MAILS)
        fail("too many mails for the simulation", NULL);
    m.uid = uid < b->uid_next ? b->uid_next : uid;
    b->uid_next = m.uid + 1;
    b->mail[b->n] = m;
    return &b->mail[b->n++];
}

static void take_out(struct box *b, uint32_t uid)
{
    for (unsigned i = 0; i < b->n; i++)
        if (b->mail[i].uid == uid) {
            memmove(&b->mail[i], &b->mail[i + 1], (b->n - i - 1) * sizeof b->mail[0]);
            b->n--;
            return;
        }
}

void facts_of(const struct mail *m, struct orset_facts *f)
{
    memset(f, 0, sizeof *f);
    f->guid[0] = (uint8_t)m->guid;
    f->guid[1] = (uint8_t)(m->guid >> 8);
    f->sha256[0] = m->body;
    f->sha256[1] = (uint8_t)m->content;
    f->sha256[2] = (uint8_t)(m->content >> 8);
    f->received = f->saved = 1700000000 + m->content;
    f->size = 1000u + m->content;
}

static struct mail mail_of(const struct orset_message *m, const struct orset_flags *flags)
{
    const uint8_t *g = m->facts.guid, *s = m->facts.sha256;
    return (struct mail){0, (uint16_t)(g[0] | g[1] << 8), (uint16_t)(s[1] | s[2] << 8), s[0],
                         flags->system};
}

bool is_home(struct site *s, uint32_t i)
{
    struct orset_folder f;
    return orset_folder_get(s->os, i, &f) == 0 && f.live && f.named && f.home == i;
}

uint32_t some_home(struct site *s)
{
    uint32_t n = orset_folders(s->os), at = below(n);
    for (uint32_t i = 0; i < n; i++)
        if (is_home(s, (at + i) % n))
            return (at + i) % n;
    return ORSET_INBOX;
}

/* --- users
 * ---------------------------------------------------------------------------------------------- */

static struct mail new_mail(struct site *s)
{
    struct group *g = s->group;
    struct mail m = {.flags = below(4) == 0 ? ORSET_FLAGGED : 0};
    m.guid = m.content = (uint16_t)below(SHARED_CONTENTS);
    if (below(2) && g->nmails < CONTENTS) {
        m.guid = m.content = (uint16_t)g->nmails++;
        g->mail[m.content] = (struct known_mail){.site = s->index};
    }
    return m;
}

/* A gateway delivered to one site, did not hear its OK, and delivered to the next: other
 * Received lines, one GUID. */
static void deliver_again(struct site *s)
{
    struct group *g = s->group;
    struct box *b = box_of(s, ORSET_INBOX);
    if (g->nmails == SHARED_CONTENTS || b->n >= 60)
        return;
    uint16_t content = (uint16_t)(SHARED_CONTENTS + below(g->nmails - SHARED_CONTENTS));
    if (g->mail[content].site == s->index || g->delivered[content] & 1U << s->index)
        return;
    g->delivered[content] |= 1U << s->index;
    happened[DELIVERED_TWICE]++;
    save(b, 0, (struct mail){.guid = content, .content = content, .body = (uint8_t)(1 + below(3))});
}

/* Somebody saves another mail under its GUID, here or at another site: both are to live. */
static void claim_guid(struct site *s)
{
    struct group *g = s->group;
    struct box *b = box_of(s, ORSET_INBOX);
    if (g->nmails == SHARED_CONTENTS || g->nmails == CONTENTS || b->n >= 60)
        return;
    struct mail m = {.guid = (uint16_t)(SHARED_CONTENTS + below(g->nmails - SHARED_CONTENTS)),
                     .content = (uint16_t)g->nmails++};
    g->mail[m.content] = (struct known_mail){.site = s->index, .claimed = true};
    g->mail[m.guid].claimed = true;
    happened[GUID_CLAIMED]++;
    save(b, 0, m);
}

static void expunge(struct site *s, struct box *b, unsigned i, bool for_good)
{
    if (for_good)
        s->group->mail[b->mail[i].content].removed = true;
    b->expunged[b->nexpunged++] = b->mail[i].uid;
    take_out(b, b->mail[i].uid);
}

struct marking {
    struct site *s;
    struct orset_message m;
    bool all_placed;
};

static int mark_removed(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct marking *a = arg;
    (void)own;
    if (!in_vain &&
        (a->all_placed ? m->uid != 0
                       : m->k == a->m.k && memcmp(m->facts.guid, a->m.facts.guid, 16) == 0))
        journal(a->s, m->dot)->removed |= 1U << a->s->index;
    return 0;
}

/* What is still there of that: he had not seen its bytes. */
static int mark_unseen(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    struct marking *a = arg;
    (void)own;
    if (!in_vain)
        journal(a->s, m->dot)->removed &= ~(1U << a->s->index);
    return 0;
}

static void delete_folder(struct site *s, uint32_t f)
{
    struct marking a = {.s = s, .all_placed = true};
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder g;
        must(s, orset_folder_get(s->os, i, &g));
        if (g.home == f && g.live)
            must(s, orset_each_message(s->os, i, mark_removed, &a));
    }
    for (unsigned i = 0; i < box_of(s, f)->n; i++)
        s->group->mail[s->box[f].mail[i].content].removed = true;
    must(s, orset_local_delete(s->os, f));
    for (uint32_t i = 0; i < orset_folders(s->os); i++)
        must(s, orset_each_message(s->os, i, mark_unseen, &a));
    memset(&s->box[f], 0, sizeof s->box[f]);
}

static void ingest_adds(struct site *);
static void ingest_removes(struct site *);
static void ingested(struct site *);

/* What the user sees is in the state before his command on folders is: the plugin's intent comes
 * behind the hints. */
static void folder_command(struct site *s, unsigned z)
{
    char name[2] = {0, (char)('a' + below(4))}, other[2] = {0, (char)('a' + below(4))};
    uint8_t guid[16] = {1};
    uint32_t f = orset_folder_by_name(s->os, name, 2);
    must(s, orset_begin(s->os));
    ingest_adds(s);
    ingest_removes(s);
    if (f == ORSET_NO_FOLDER && orset_folders(s->os) < BOXES - 12) {
        must(s, orset_local_create(s->os, name, 2, 1000 + below(5), guid, &f));
    } else if (f != ORSET_NO_FOLDER && z < 90) {
        delete_folder(s, f);
    } else if (f != ORSET_NO_FOLDER && orset_folder_by_name(s->os, other, 2) == ORSET_NO_FOLDER) {
        must(s, orset_local_rename(s->os, f, other, 2));
    } else {
        must(s, orset_local_subscribe(s->os, name, 2, below(2)));
        must(s, orset_local_attribute(s->os, below(2) ? ORSET_NO_FOLDER : ORSET_INBOX, "sieve", 5,
                                      (uint8_t *)other, 2));
        must(s, orset_local_uid_validity(s->os, some_home(s), 1000 + below(50), 2000));
    }
    ingested(s);
}

void user(struct site *s)
{
    struct box *b = box_of(s, some_home(s));
    unsigned z = below(100);
    if (z < 4) {
        deliver_again(s);
    } else if (z < 6) {
        claim_guid(s);
    } else if (z < 40 || b->n == 0) {
        if (b->n < 60)
            save(b, 0, new_mail(s));
    } else if (z < 60) {
        b->mail[below(b->n)].flags ^= (uint8_t)(1U << below(5));
    } else if (z < 75) {
        expunge(s, b, below(b->n), true);
    } else if (z < 82) { /* COPY or MOVE */
        unsigned i = below(b->n);
        struct mail m = b->mail[i];
        struct box *to = box_of(s, some_home(s));
        /* Not one whose GUID another has: a folder that moves into another mailbox (two ids, one
         * name) takes its mails along by GUID. */
        if (to->n >= 60 || s->group->mail[m.content].claimed)
            return;
        save(to, 0, m);
        if (z < 78)
            expunge(s, b, i, false);
    } else {
        folder_command(s, z);
    }
}

void damage(struct site *s)
{
    uint32_t home = some_home(s);
    struct box *b = box_of(s, home);
    struct orset_message m;
    happened[DAMAGE]++;
    unsigned left = b->n > 0 ? below(b->n) : 0; /* the rest of the mailbox vanishes */
    for (; b->n > left; b->n--) {
        if (must(s, orset_message_by_uid(s->os, home, b->mail[b->n - 1].uid, &m)) == 0 ||
            /* and another has its GUID: nobody else may hold these bytes */
            s->group->mail[b->mail[b->n - 1].content].claimed)
            s->group->mail[b->mail[b->n - 1].content].unsure = true; /* nobody knew of it yet */
        else
            s->group->mail[b->mail[b->n - 1].content].damaged = true;
    }
}

/* --- ingest
 * ---------------------------------------------------------------------------------------------- */

static void ingest_mail(struct site *s, uint32_t folder, const struct mail *m, struct orset_join *j)
{
    struct orset_flags f = {.system = m->flags};
    struct orset_facts facts;
    struct orset_message bound;
    struct orset_dot d;
    facts_of(m, &facts);
    int r = must(s, j ? orset_join_add(s->os, j, m->uid, &facts, &f, &d)
                      : orset_local_add(s->os, folder, m->uid, &facts, &f, &d));
    if (r == ORSET_OK && !in_vain) {
        journal(s, d);
        happened[MAILS_MADE]++;
    }
    if (is_home(s, folder) && must(s, orset_message_by_uid(s->os, folder, m->uid, &bound)) > 0)
        must(s, orset_local_flags(s->os, folder, m->uid, &f, NULL));
}

/* Adds of all mailboxes go before removes (F17): whoever has a part of a move has the mail. */
static void ingest_adds(struct site *s)
{
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        must(s, orset_folder_get(s->os, i, &f));
        if (!f.live || !f.named)
            continue;
        /* Also mailboxes that another one shows by now, as long as something is in them. */
        struct box *b = box_of(s, i);
        for (unsigned n = 0; n < b->n; n++)
            ingest_mail(s, i, &b->mail[n], NULL);
        must(s, orset_local_uid_next(s->os, i, b->uid_next));
    }
}

static int collect_bound(void *arg, const struct orset_message *m, const struct orset_flags *own)
{
    uint32_t *list = arg;
    (void)own;
    bool there = m->uid == 0 || list[0] == MAILS;
    for (uint32_t i = 1; i <= list[0]; i++)
        there |= list[i] == m->uid;
    if (!there)
        list[++list[0]] = m->uid;
    return 0;
}

/* What the state has bound and the mailbox lacks, without a user's word: damage. */
static void ingest_missing(struct site *s, uint32_t folder)
{
    uint32_t list[MAILS + 1] = {0};
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct orset_folder f;
        must(s, orset_folder_get(s->os, i, &f));
        if (f.home == folder)
            must(s, orset_each_message(s->os, i, collect_bound, list));
    }
    for (uint32_t i = 1; i <= list[0]; i++)
        if (!mail_by_uid(box_of(s, folder), list[i]))
            must(s, orset_local_missing(s->os, folder, list[i]));
}

static void ingest_removes(struct site *s)
{
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        struct box *b = i < BOXES ? box_of(s, i) : NULL;
        if (!b || (!is_home(s, i) && b->nexpunged == 0))
            continue;
        for (unsigned n = 0; n < b->nexpunged; n++) {
            struct marking a = {.s = s};
            if (must(s, orset_message_by_uid(s->os, i, b->expunged[n], &a.m)) > 0)
                must(s, orset_each_message(s->os, a.m.folder, mark_removed, &a));
            must(s, orset_local_expunge(s->os, i, b->expunged[n]));
            if (a.m.dot.counter)
                must(s, orset_each_message(s->os, a.m.folder, mark_unseen, &a));
        }
        if (is_home(s, i))
            ingest_missing(s, i);
    }
}

/* The log's cursor is in the commit: only now the log behind it is done with. */
static void ingested(struct site *s)
{
    commit(s);
    for (unsigned i = 0; i < BOXES; i++)
        s->box[i].nexpunged = 0;
}

void ingest_all(struct site *s)
{
    must(s, orset_begin(s->os));
    ingest_adds(s);
    ingest_removes(s);
    ingested(s);
}

void ingest(struct site *s, enum fault crash_at)
{
    in_vain = crash_at == CRASH_INGEST;
    if (!in_vain) {
        ingest_all(s);
    } else {
        must(s, orset_begin(s->os));
        ingest_adds(s);
        ingest_removes(s);
        orset_rollback(s->os);
    }
    in_vain = false;
    if (crash_at != FAULT_KINDS)
        crash(s, crash_at);
}

/* --- a new state takes full mailboxes in
 * ----------------------------------------------------------------------------- */

static uint32_t folder_named(struct site *s, const struct box *b)
{
    uint8_t guid[16] = {1};
    uint32_t f = orset_folder_by_name(s->os, b->name, b->name_len);
    if (f == ORSET_NO_FOLDER)
        must(s, orset_local_create(s->os, b->name, b->name_len, 1000, guid, &f));
    return f;
}

/* Two mailboxes, if their ids are one name now, become one. */
static void put_together(struct site *s, const struct box *old)
{
    must(s, orset_begin(s->os));
    uint32_t f = old->name_len ? folder_named(s, old) : ORSET_INBOX;
    commit(s);
    struct box *b = box_of(s, f);
    if (b->n == 0) {
        *b = *old;
        b->nexpunged = 0;
        return;
    }
    for (unsigned n = 0; n < old->n; n++)
        save(b, 0, old->mail[n]);
}

void join_all(struct site *s, struct box *old)
{
    struct orset_join *j;
    unsigned united, left;
    memset(s->box, 0, BOXES * sizeof *s->box);
    for (unsigned i = 0; i < BOXES; i++)
        if (old[i].n > 0)
            put_together(s, &old[i]);
    for (uint32_t f = 0; f < orset_folders(s->os); f++) {
        if (!is_home(s, f))
            continue;
        struct box *b = box_of(s, f);
        must(s, orset_begin(s->os));
        must(s, orset_join_begin(s->os, f, &j));
        for (unsigned n = 0; n < b->n; n++)
            ingest_mail(s, f, &b->mail[n], j);
        must(s, orset_local_uid_next(s->os, f, b->uid_next));
        must(s, orset_join_end(s->os, j, &united, &left));
        orset_join_free(s->os, j);
        commit(s);
    }
}

/* --- work on the mailboxes
 * ------------------------------------------------------------------------------------------- */

static void place(struct site *s, const struct orset_task *t, bool bind)
{
    struct mail *m = save(box_of(s, t->folder), t->uid, mail_of(&t->message, &t->flags));
    if (bind)
        must(s, orset_done_place(s->os, t->message.folder, t->message.dot, m->uid, &t->flags));
}

/* In the order of the new UIDs: the mailbox gives rising ones only. The move is recognised by
 * its intent row: it and the row are one journalled step at the caller. */
static void renumber(struct site *s, struct orset_task *t)
{
    static struct orset_task other;
    for (other = *t;
         must(s, orset_task_next(s->os, &other)) > 0 && other.kind == ORSET_TASK_RENUMBER;)
        if (other.folder == t->folder && other.new_uid < t->new_uid) {
            t->uid = other.uid;
            t->new_uid = other.new_uid;
        }
    struct box *b = box_of(s, t->folder);
    struct mail *m = mail_by_uid(b, t->uid), copy;
    if (!m) {
        must(s, orset_local_missing(s->os, t->folder, t->uid));
        return;
    }
    copy = *m;
    take_out(b, t->uid);
    m = save(b, t->new_uid, copy);
    happened[UIDS_MOVED]++;
    must(s, orset_done_renumber(s->os, t->folder, t->uid, m->uid));
}

/* False: the mailbox has the mail under another UID, too. */
static bool part(struct site *s, const struct orset_task *t, const struct mail *m)
{
    struct orset_facts facts;
    struct orset_flags flags = {.system = m->flags};
    uint8_t there[16];
    facts_of(m, &facts);
    memcpy(there, facts.guid, 16);
    memset(facts.guid, 0, 16);
    facts.guid[0] = (uint8_t)m->content;
    facts.guid[1] = (uint8_t)(m->content >> 8 | 0x80);
    struct marking a = {.s = s, .m = t->message};
    must(s, orset_each_message(s->os, t->message.folder, mark_removed, &a));
    int r = must(s, orset_local_part(s->os, t->folder, t->uid, there, &facts, &flags));
    must(s, orset_each_message(s->os, t->message.folder, mark_unseen, &a));
    happened[BODY_PARTED] += r != ORSET_KNOWN;
    return r != ORSET_KNOWN;
}

static void replace_body(struct site *s, const struct orset_task *t)
{
    struct box *b = box_of(s, t->folder);
    struct mail *m = mail_by_uid(b, t->uid), copy;
    if (!m && t->message.dot.counter == 0) {
        must(s, orset_done_alone(s->os, t->folder, t->uid));
        return;
    }
    if (!m) {
        must(s, orset_local_missing(s->os, t->folder, t->uid));
        return;
    }
    if (t->message.dot.counter == 0) {
        ingest_mail(s, t->folder, m, NULL);
        must(s, orset_done_alone(s->os, t->folder, t->uid));
        return;
    }
    copy = mail_of(&t->message, &t->flags);
    if (copy.content != m->content && part(s, t, m))
        return;
    copy.flags = m->flags;
    take_out(b, t->uid);
    m = save(b, 0, copy);
    happened[BODY_REPLACED]++;
    struct marking a = {.s = s, .m = t->message};
    must(s, orset_each_message(s->os, t->message.folder, mark_removed, &a));
    must(s, orset_done_body(s->os, t->folder, t->uid, m->uid, t->message.facts.sha256));
    must(s, orset_each_message(s->os, t->message.folder, mark_unseen, &a));
}

static void do_work(struct site *s, struct orset_task *t, bool known)
{
    struct orset_folder f;
    struct mail *m;
    switch (t->kind) {
    case ORSET_TASK_FOLDER:
        must(s, orset_folder_get(s->os, t->folder, &f));
        for (unsigned i = 0; !f.live && t->folder < BOXES && i < s->box[t->folder].n; i++)
            ingest_mail(s, t->folder, &s->box[t->folder].mail[i], NULL);
        must(s, orset_folder_get(s->os, t->folder, &f));
        if (!f.live && t->folder < BOXES)
            memset(&s->box[t->folder], 0, sizeof s->box[0]);
        must(s, orset_done_folder(s->os, t->folder));
        break;
    case ORSET_TASK_PLACE: place(s, t, known); break;
    case ORSET_TASK_FLAGS:
        m = mail_by_uid(box_of(s, t->folder), t->uid);
        if (!m) { /* damage that ingest has not met yet */
            must(s, orset_local_missing(s->os, t->folder, t->uid));
            break;
        }
        m->flags = t->flags.system;
        if (known)
            must(s, orset_done_flags(s->os, t->folder, t->uid, &t->flags));
        break;
    case ORSET_TASK_REMOVE:
        take_out(box_of(s, t->folder), t->uid);
        if (known)
            must(s, orset_done_remove(s->os, t->folder, t->uid));
        break;
    case ORSET_TASK_RENUMBER: renumber(s, t); break;
    case ORSET_TASK_BODY: replace_body(s, t); break;
    case ORSET_TASK_SUBSCRIPTION:
        must(s, orset_done_subscription(s->os, t->name, t->name_len));
        break;
    case ORSET_TASK_ATTRIBUTE:
        must(s, orset_done_attribute(s->os, t->folder, t->name, t->name_len));
        break;
    }
}

/* A removal comes after the placing that copies from it: nobody else may have the body. */
static void no_source(struct site *s, const struct orset_task *t)
{
    static struct orset_task other;
    other.at_len = 0;
    while (must(s, orset_task_next(s->os, &other)) > 0 && other.kind <= ORSET_TASK_PLACE)
        if (other.kind == ORSET_TASK_PLACE && other.source_folder == t->folder &&
            other.source_uid == t->uid)
            fail("a mail is to be removed before its copy is made", s);
}

/* What uid_rounds.c does: a round that came while mails lacked is followed when nothing is
 * waited for. */
static void follow_rounds(struct site *s)
{
    static struct orset_task t;
    for (uint32_t i = 0; i < orset_folders(s->os); i++) {
        bool lacks = false;
        if (!is_home(s, i) || !orset_uid_dirty(s->os, i, false))
            continue;
        t.at_len = 0;
        while (!lacks && must(s, orset_task_next(s->os, &t)) > 0 && t.kind <= ORSET_TASK_PLACE)
            lacks = t.kind == ORSET_TASK_PLACE && t.folder == i;
        if (lacks && below(4) != 0) /* else they were given up */
            continue;
        must(s, orset_begin(s->os));
        must(s, orset_uid_follow(s->os, i));
        commit(s);
    }
}

bool work(struct site *s, unsigned skip, enum fault crash_at)
{
    follow_rounds(s);
    static struct orset_task t;
    t.at_len = 0;
    do {
        if (must(s, orset_task_next(s->os, &t)) == 0)
            return false;
    } while (skip-- > 0);
    if (t.kind == ORSET_TASK_REMOVE)
        no_source(s, &t);
    if (t.kind == ORSET_TASK_RENUMBER || t.kind == ORSET_TASK_BODY)
        crash_at = crash_at == CRASH_PLACED ? FAULT_KINDS : crash_at; /* journalled, see renumber */
    if (crash_at == CRASH_UNPLACED) {
        crash(s, crash_at);
        return true;
    }
    must(s, orset_begin(s->os));
    in_vain = crash_at == CRASH_PLACED;
    do_work(s, &t, !in_vain);
    in_vain = false;
    if (crash_at == CRASH_PLACED) {
        orset_rollback(s->os);
        crash(s, crash_at);
        /* Restart: unplaced messages are matched with unknown UIDs before anything else (F13). */
        ingest_all(s);
        return true;
    }
    commit(s);
    if (crash_at == CRASH_BOUND)
        crash(s, crash_at);
    return true;
}
