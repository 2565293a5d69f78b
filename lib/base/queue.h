/* queue - lists whose links are in their elements: what we use of BSD's sys/queue.h, which glibc
 * has and musl has not. Names and arguments are those of queue(3), macro for macro.
 *
 *     LIST     one way, removes in O(1)          head -> a -> b -> NULL, each knows its pointer
 *     STAILQ   one way, first in, first out      adds at the tail in O(1), removes any in O(n)
 *     TAILQ    both ways                         adds and removes everywhere in O(1)
 *
 * An element that is freed within FOREACH must be removed by a loop of FIRST or NEXT instead. */
#ifndef DOVELANE_LIB_BASE_QUEUE_H
#define DOVELANE_LIB_BASE_QUEUE_H

#include <stddef.h>

/* ---- LIST ---- */

#define LIST_HEAD(name, type)  \
    struct name {              \
        struct type *lh_first; \
    }
#define LIST_ENTRY(type)                                                            \
    struct {                                                                        \
        struct type *le_next, **le_prev; /* le_prev: what points at this element */ \
    }
#define LIST_INIT(head) ((void)((head)->lh_first = NULL))
#define LIST_FIRST(head) ((head)->lh_first)
#define LIST_EMPTY(head) ((head)->lh_first == NULL)
#define LIST_NEXT(elm, field) ((elm)->field.le_next)
#define LIST_FOREACH(var, head, field) \
    for ((var) = LIST_FIRST(head); (var); (var) = LIST_NEXT(var, field))
#define LIST_INSERT_HEAD(head, elm, field)                           \
    do {                                                             \
        if (((elm)->field.le_next = (head)->lh_first))               \
            (head)->lh_first->field.le_prev = &(elm)->field.le_next; \
        (head)->lh_first = (elm);                                    \
        (elm)->field.le_prev = &(head)->lh_first;                    \
    } while (0)
#define LIST_REMOVE(elm, field)                                         \
    do {                                                                \
        if ((elm)->field.le_next)                                       \
            (elm)->field.le_next->field.le_prev = (elm)->field.le_prev; \
        *(elm)->field.le_prev = (elm)->field.le_next;                   \
    } while (0)

/* ---- STAILQ ---- */

#define STAILQ_HEAD(name, type)                                                                 \
    struct name {                                                                               \
        struct type *stqh_first, **stqh_last; /* stqh_last: the NULL behind the last element */ \
    }
#define STAILQ_HEAD_INITIALIZER(head) \
    {                                 \
        NULL, &(head).stqh_first      \
    }
#define STAILQ_ENTRY(type)      \
    struct {                    \
        struct type *stqe_next; \
    }
#define STAILQ_FIRST(head) ((head)->stqh_first)
#define STAILQ_EMPTY(head) ((head)->stqh_first == NULL)
#define STAILQ_INSERT_TAIL(head, elm, field)         \
    do {                                             \
        (elm)->field.stqe_next = NULL;               \
        *(head)->stqh_last = (elm);                  \
        (head)->stqh_last = &(elm)->field.stqe_next; \
    } while (0)
#define STAILQ_REMOVE_HEAD(head, field)                                  \
    do {                                                                 \
        if (!((head)->stqh_first = (head)->stqh_first->field.stqe_next)) \
            (head)->stqh_last = &(head)->stqh_first;                     \
    } while (0)
#define STAILQ_REMOVE(head, elm, type, field)           \
    do {                                                \
        struct type **stailq_at = &(head)->stqh_first;  \
        while (*stailq_at != (elm))                     \
            stailq_at = &(*stailq_at)->field.stqe_next; \
        if (!(*stailq_at = (elm)->field.stqe_next))     \
            (head)->stqh_last = stailq_at;              \
    } while (0)

/* ---- TAILQ ---- */

#define TAILQ_HEAD(name, type)                                                               \
    struct name {                                                                            \
        struct type *tqh_first, **tqh_last; /* tqh_last: the NULL behind the last element */ \
    }
#define TAILQ_ENTRY(type)                                                              \
    struct {                                                                           \
        struct type *tqe_next, **tqe_prev; /* tqe_prev: what points at this element */ \
    }
#define TAILQ_INIT(head)                       \
    do {                                       \
        (head)->tqh_first = NULL;              \
        (head)->tqh_last = &(head)->tqh_first; \
    } while (0)
#define TAILQ_FIRST(head) ((head)->tqh_first)
#define TAILQ_EMPTY(head) ((head)->tqh_first == NULL)
#define TAILQ_NEXT(elm, field) ((elm)->field.tqe_next)
#define TAILQ_FOREACH(var, head, field) \
    for ((var) = TAILQ_FIRST(head); (var); (var) = TAILQ_NEXT(var, field))
/* A head and an entry are both two pointers, and tqh_last and tqe_prev are the second one. So what
 * is read here as the head of `headname` may be the entry of an element. */
#define TAILQ_LAST(head, headname) (*(((struct headname *)((head)->tqh_last))->tqh_last))
#define TAILQ_PREV(elm, headname, field) (*(((struct headname *)((elm)->field.tqe_prev))->tqh_last))
#define TAILQ_INSERT_HEAD(head, elm, field)                             \
    do {                                                                \
        if (((elm)->field.tqe_next = (head)->tqh_first))                \
            (head)->tqh_first->field.tqe_prev = &(elm)->field.tqe_next; \
        else                                                            \
            (head)->tqh_last = &(elm)->field.tqe_next;                  \
        (head)->tqh_first = (elm);                                      \
        (elm)->field.tqe_prev = &(head)->tqh_first;                     \
    } while (0)
#define TAILQ_INSERT_TAIL(head, elm, field)        \
    do {                                           \
        (elm)->field.tqe_next = NULL;              \
        (elm)->field.tqe_prev = (head)->tqh_last;  \
        *(head)->tqh_last = (elm);                 \
        (head)->tqh_last = &(elm)->field.tqe_next; \
    } while (0)
#define TAILQ_INSERT_AFTER(head, listelm, elm, field)                       \
    do {                                                                    \
        if (((elm)->field.tqe_next = (listelm)->field.tqe_next))            \
            (elm)->field.tqe_next->field.tqe_prev = &(elm)->field.tqe_next; \
        else                                                                \
            (head)->tqh_last = &(elm)->field.tqe_next;                      \
        (listelm)->field.tqe_next = (elm);                                  \
        (elm)->field.tqe_prev = &(listelm)->field.tqe_next;                 \
    } while (0)
#define TAILQ_REMOVE(head, elm, field)                                     \
    do {                                                                   \
        if ((elm)->field.tqe_next)                                         \
            (elm)->field.tqe_next->field.tqe_prev = (elm)->field.tqe_prev; \
        else                                                               \
            (head)->tqh_last = (elm)->field.tqe_prev;                      \
        *(elm)->field.tqe_prev = (elm)->field.tqe_next;                    \
    } while (0)
#define TAILQ_CONCAT(head1, head2, field)                           \
    do {                                                            \
        if (!TAILQ_EMPTY(head2)) {                                  \
            *(head1)->tqh_last = (head2)->tqh_first;                \
            (head2)->tqh_first->field.tqe_prev = (head1)->tqh_last; \
            (head1)->tqh_last = (head2)->tqh_last;                  \
            TAILQ_INIT(head2);                                      \
        }                                                           \
    } while (0)

#endif
