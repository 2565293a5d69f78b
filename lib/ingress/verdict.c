/* verdict - the table of cases, as one function. */
#include "lib/ingress/verdict.h"

#include "lib/base/assert.h"

enum verdict verdict_of(const struct verdict_facts *f)
{
    ASSERT(f->delivered <= f->done && f->done <= f->entries);
    bool for_good = f->delivered > 0 || f->queued;
    if (f->done == f->entries)
        return VERDICT_LANES;
    if (!f->tempfail || for_good)
        return f->done > 0 ? VERDICT_SPLIT : VERDICT_QUEUE;
    if (f->done == 0)
        return VERDICT_TEMPFAIL;
    /* What may not be taken back any more is kept: a lane's mail is not refused. */
    return f->revoked ? VERDICT_SPLIT : VERDICT_REVOKE;
}
