/* commands - the functions behind the commands; each is explained in docs/lane-commands.md. */
#ifndef DOVELANE_REDIS_MODULE_COMMANDS_COMMANDS_H
#define DOVELANE_REDIS_MODULE_COMMANDS_COMMANDS_H

#include "redis-module/server/redisapi.h"

#define LANE_COMMAND(name) \
    int name##_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)

LANE_COMMAND(create); /* admin.c */
LANE_COMMAND(len);
LANE_COMMAND(info);
LANE_COMMAND(reset);
LANE_COMMAND(check);
LANE_COMMAND(push); /* push.c */
LANE_COMMAND(put);
LANE_COMMAND(mput);
LANE_COMMAND(ack); /* ack.c */
LANE_COMMAND(revoke);
LANE_COMMAND(meta);
LANE_COMMAND(take); /* take.c */
LANE_COMMAND(nack);
LANE_COMMAND(extend);
LANE_COMMAND(read); /* read.c */
LANE_COMMAND(get);
LANE_COMMAND(ids);
LANE_COMMAND(move);  /* move.c */
LANE_COMMAND(ready); /* ready.c */
LANE_COMMAND(list);  /* list.c */
LANE_COMMAND(beat);  /* beat.c */
LANE_COMMAND(beats);
LANE_COMMAND(whole);

/* Registers all of them with what the server needs to know of them: cmdinfo.c. REDISMODULE_ERR
 * when it refuses. */
int commands_register(RedisModuleCtx *ctx);

#endif
