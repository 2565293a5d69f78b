#include "tests/model/rules.h"

#include <stdio.h>

void rules_describe(const struct move *v, char *text, size_t size)
{
    static const char *const partition[] = {
        "", "A|B", "A|BC", "B|AC", "A may not call B", "B may not call A"};
    static const char *const word[KINDS] = {[HEAL] = "links healed",
                                            [RESUME] = "resumes",
                                            [COME_BACK] = "back empty",
                                            [COME_BACK_OLD] = "back with an old RDB",
                                            [PUSH] = "push arrives at",
                                            [PUSH_AGAIN] = "push again to",
                                            [PROMISE] = "250",
                                            [GIVE_UP] = "given up",
                                            [REVOKE] = "revoked at",
                                            [BEAT] = "hears",
                                            [SILENCE] = "finds silent",
                                            [FOUND_TAKEN] = "finds itself taken over",
                                            [NOTICE_LOSS] = "finds itself not whole",
                                            [ACCEPT] = "delivers",
                                            [ACK_OWN] = "acks at home",
                                            [ACK_OTHER] = "acks at",
                                            [COMPARE_PEER] = "reads the list of",
                                            [COMPARE_FETCH] = "reads the body at",
                                            [COMPARE_END] = "ends comparing with",
                                            [UNITE] = "unites with all",
                                            [TO_READY] = "ready",
                                            [GIVE_BACK] = "gives back",
                                            [TO_ALIVE] = "alive",
                                            [TAKE] = "takes",
                                            [TAKE_OVER] = "takes over",
                                            [COMPARE] = "compares with",
                                            [SAVE] = "saves an RDB",
                                            [LATE_PROMISE] = "250 after giving up",
                                            [REVOKE_LOST] = "revocation lost:",
                                            [CRASH] = "CRASH",
                                            [CRASH_REDIS] = "REDIS CRASH",
                                            [KILL_RELAY] = "RELAY KILLED",
                                            [FLUSH] = "FLUSHALL",
                                            [PAUSE] = "PAUSE",
                                            [CUT] = "CUT",
                                            [LIE] = "falsely calls dead",
                                            [REPLY_LOST] = "delivers, LAST REPLY LOST",
                                            [HURRY] = "alive, handover_wait is over",
                                            [ACK_LOST] = "forgets the ack for",
                                            [RESET] = "emptied, to be filled from",
                                            [SELF_DECLARE] = "calls itself whole"};
    bool pair = v->kind == BEAT || v->kind == SILENCE || v->kind == ACK_OTHER ||
                v->kind == COMPARE_PEER || v->kind == COMPARE_FETCH || v->kind == COMPARE_END ||
                v->kind == GIVE_BACK || v->kind == TAKE_OVER || v->kind == COMPARE ||
                v->kind == LIE || v->kind == ACK_LOST || v->kind == RESET;
    char a = (char)('A' + v->i), b = (char)('A' + v->j);
    if (v->kind == CUT)
        snprintf(text, size, "CUT %s", partition[v->i]);
    else if (v->kind == PROMISE || v->kind == GIVE_UP || v->kind == LATE_PROMISE || v->kind == HEAL)
        snprintf(text, size, "%s", word[v->kind]);
    else if (v->kind == PUSH || v->kind == PUSH_AGAIN || v->kind == REVOKE ||
             v->kind == REVOKE_LOST)
        snprintf(text, size, "%s %c", word[v->kind], a);
    else if (pair)
        snprintf(text, size, "%c %s %c", a, word[v->kind], b);
    else
        snprintf(text, size, "%c %s%s", a, word[v->kind],
                 v->kind == RESUME && v->j ? " after long" : "");
}
