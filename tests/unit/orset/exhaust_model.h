/* exhaust_model - what the mailboxes should show, said by events alone: each event replaces what
 * stood in the set of events that its replica knew, and nothing else. No numbers, no vectors, no
 * order of arrival, no stored state. */
#ifndef DOVELANE_TESTS_UNIT_ORSET_EXHAUST_MODEL_H
#define DOVELANE_TESTS_UNIT_ORSET_EXHAUST_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum kind {
    EV_CREATE,
    EV_APPEND,
    EV_COPY, /* add in another folder, with the flag */
    EV_MOVE, /* the same, and remove here */
    EV_EXPUNGE,
    EV_FLAG,
    EV_UNFLAG,
    EV_DELETE,
    EV_RENAME,
    EV_SUBSCRIBE,
    EV_UNSUBSCRIBE,
    EV_ATTRIBUTE,
    EV_UIDVALIDITY,
    EV_KEEPER
};

#define EVENTS_MAX 12
#define FOLDERS_MAX 8
#define UIDVALIDITY_FIRST 5

struct event {
    enum kind kind;
    unsigned site;
    uint64_t number;  /* first number of its ops: orders folder ids of one site */
    unsigned known;   /* events its replica knew, itself included */
    char name;        /* CREATE, RENAME: the name; ATTRIBUTE, UIDVALIDITY, KEEPER: the value */
    unsigned folder;  /* APPEND, COPY, MOVE: folder added to (index of its CREATE) */
    unsigned guid, k; /* APPEND, COPY, MOVE */
    /* of that folder's id, as the replica said it; the model knows better */
    uint64_t id_site, id_number;
    bool flagged;     /* COPY, MOVE: the mail came with the flag */
    unsigned target;  /* MOVE, EXPUNGE, DELETE: adds removed; FLAG, UNFLAG: adds flagged */
    unsigned folders; /* DELETE, RENAME, UIDVALIDITY, KEEPER: folder ids */
    /* What it replaces, events by bit: presence per folder, the flag per add, the subscription
     * (model_replaces). */
    unsigned presence[EVENTS_MAX], flag[EVENTS_MAX], subscription;
    uint64_t clock;              /* ATTRIBUTE, KEEPER, CREATE */
    uint64_t clocks[EVENTS_MAX]; /* RENAME: per folder id */
};

struct model {
    struct event e[EVENTS_MAX];
    unsigned n;
    bool disable_wins; /* the flag is \Deleted */
};

unsigned model_live_adds(const struct model *, unsigned s);
bool model_folder_live(const struct model *, unsigned s, unsigned folder);
char model_folder_name(const struct model *, unsigned s, unsigned folder); /* 0: none known */
/* Live adds of the message (folder, guid, k); flag of it. */
unsigned model_message(const struct model *, unsigned s, unsigned folder, unsigned guid,
                       unsigned k);
bool model_flag(const struct model *, unsigned s, unsigned adds);
bool model_subscribed(const struct model *, unsigned s);
unsigned model_uid_validity(const struct model *, unsigned s, unsigned folder);
char model_attribute(const struct model *, unsigned s);
unsigned model_keeper(const struct model *, unsigned s, unsigned folder); /* 0: none */
/* Fills in what e, made by who knows s, replaces. e is not in the model yet. */
void model_replaces(const struct model *, unsigned s, struct event *e);
/* All of it as one number; see shown_* for what is mixed in. */
uint64_t model_shown(const struct model *, unsigned s);

/* The same mixing for the real state: start at 0, add one folder at a time. */
uint64_t shown_message(uint64_t folder, unsigned guid, unsigned k, bool flag);
uint64_t shown_folder(char name, unsigned uid_validity, unsigned keeper, uint64_t messages);
uint64_t shown_rest(bool subscribed, char attribute);

#endif
