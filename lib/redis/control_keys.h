/* control_keys - the few small keys beside the lanes by which the admin's command and the programs
 * hear of each other, in every node's Redis.
 *
 *   key               type     who writes            who reads          what
 *   dovelane.divert   string   ctl, relays           milters, relays    "<serial> on|off <who>": the highest serial counts, off before on
 *   dovelane.holds    string   ctl, relays           milters, relays    "<serial> on <who>", then the rules of `dovelane hold` (lib/ingress/hold_rules.h)
 *   dovelane.shape    string   ctl, relays           relays, milters    "<serial> on <who>", then the rules of `dovelane shape` (lib/shape/shape_rules.h)
 *   dovelane.nodes    string   relays, ctl           relays, milters    the nodes of the group that joined or were taken out (lib/cluster/members.h)
 *   dovelane.drain    string   ctl, for seconds      that node's relay  there: everything goes to Postfix's queue
 *   dovelane.look     set      ctl                   that node's relay  lanes of which entries were marked (a hint: the marks are in the entries)
 *   dovelane.away     hash     that node's relay     ctl                next hop -> why it cannot be reached, or "suspended: " and why
 *   dovelane.config   hash     that node's relay     ctl                "relay" -> config_digest of the file that it has read,
 *                                                                      "shape" -> serial of dovelane.shape that it obeys
 *   dovelane.group*   string   hosts' root           hosts' root        the group's description and certificates (provision/distribute.py)
 *   dovelane.site:S   string   S's replicator       the same, ctl      who runs as replica S, for some seconds (dovecot-plugin/replicator/lanes/claims.h);
 *                                                                      :second behind it: who was refused because of that
 *   dovelane.facts:S  string   ctl at S             ctl                what S's Dovecot is set to, of what must be alike (ctl/facts.h)
 *   dovelane.bucket:D string   relays               relays, ctl        tokens of the rate to the next hop D (relay/shape/scripts.h); with
 *                                                                      |connections or |backoff behind it a hash: who has how many, what D asked for
 *
 * Written by scripts that Redis executes above maxmemory, too (allow-oom, since 7.0): a full
 * node is when an admin needs them. */
#ifndef DOVELANE_LIB_REDIS_CONTROL_KEYS_H
#define DOVELANE_LIB_REDIS_CONTROL_KEYS_H

#define CONTROL_DIVERT "dovelane.divert"
#define CONTROL_HOLDS "dovelane.holds"
#define CONTROL_SHAPE "dovelane.shape"
#define CONTROL_NODES "dovelane.nodes"
#define CONTROL_DRAIN "dovelane.drain"
#define CONTROL_LOOK "dovelane.look"
#define CONTROL_AWAY "dovelane.away"
#define CONTROL_SUSPENDED "suspended: " /* before the reason: nothing is sent by a rule */
#define CONTROL_CONFIG "dovelane.config"
#define CONTROL_GROUP "dovelane.group*"
#define CONTROL_SITE "dovelane.site:"
#define CONTROL_SITE_SECOND ":second"
#define CONTROL_FACTS "dovelane.facts:"
/* <next hop> behind it, and nothing, or one of these */
#define CONTROL_BUCKET "dovelane.bucket:"
#define CONTROL_BUCKET_CONNECTIONS "|connections"
#define CONTROL_BUCKET_BACKOFF "|backoff"

/* The name with which a relay greets reinject_port when what comes is to be held there
 * (relay/tables/poison.h): smtpd_helo_restrictions know it. */
#define POISON_HELO "dovelane-hold.invalid"

#define CONTROL_SCRIPT "#!lua flags=allow-oom\n"

/* EVAL ... 1 key value */
#define CONTROL_SET CONTROL_SCRIPT "return redis.call('SET', KEYS[1], ARGV[1])"

/* EVAL ... 1 key milliseconds: the key is there for so long. */
#define CONTROL_KEEP CONTROL_SCRIPT "return redis.call('SET', KEYS[1], 'on', 'PX', ARGV[1])"

/* EVAL ... 1 key member... */
#define CONTROL_ADD CONTROL_SCRIPT "return redis.call('SADD', KEYS[1], unpack(ARGV))"

/* EVAL ... 1 key milliseconds (field value)...: the hash is these fields, for so long; without
 * fields it goes. */
#define CONTROL_FIELDS                                                                          \
    CONTROL_SCRIPT "redis.call('DEL', KEYS[1]) if #ARGV < 2 then return 0 end "                 \
                   "redis.call('HSET', KEYS[1], unpack(ARGV, 2)) return redis.call('PEXPIRE', " \
                   "KEYS[1], ARGV[1])"

/* EVAL ... 1 key value serial on|off [most]: sets value, unless what is there counts more. Nor does
 * it when the serial there is above most: somebody else changed meanwhile what value was made from.
 * Answers what is there then. */
#define CONTROL_NEWER                                                                           \
    CONTROL_SCRIPT "local old = redis.call('GET', KEYS[1]) or '' "                              \
                   "local serial, word = string.match(old, '^(%d+) (%a+)') serial = "           \
                   "tonumber(serial) or -1 local new = tonumber(ARGV[2]) "                      \
                   "if ARGV[4] and serial > tonumber(ARGV[4]) then return old end "             \
                   "if new > serial or (new == serial and ARGV[3] == 'off' and word ~= 'off') " \
                   "then redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1] end "               \
                   "return old"

#endif
