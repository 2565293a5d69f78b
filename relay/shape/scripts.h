/* scripts - what the arbiter's Redis does for relay/shape (keys: lib/redis/control_keys.h).
 *
 * Numbers go to and fro as text, times are the server's own (TIME). */
#ifndef DOVELANE_RELAY_SHAPE_SCRIPTS_H
#define DOVELANE_RELAY_SHAPE_SCRIPTS_H

#include "lib/redis/control_keys.h"

/* EVAL ... 1 key rate burst byte_rate byte_burst mails bytes owed known: takes and books tokens for
 * up to that many mails of so many bytes. Who asks first has the first ones. owed: bytes that left
 * beyond what was granted before; below 0: bytes that were granted, and did not leave. known:
 * seconds for which nobody can have taken from another bucket; one that is not there has filled for
 * no longer. Answers how many mails may leave, their bytes, and after how many microseconds. A mail
 * may be larger than what is in the bucket of bytes, which owes the rest then. The key goes when
 * the bucket would be full. */
#define SHAPE_TAKE                                                                            \
    CONTROL_SCRIPT                                                                            \
    "local t = redis.call('TIME') local now = t[1] + t[2] / 1e6 local ahead = 0.2 "           \
    "local r, b, br, bb = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), "          \
    "tonumber(ARGV[4]) local n, s = tonumber(ARGV[5]), tonumber(ARGV[6]) "                    \
    "local owed, known = tonumber(ARGV[7]), tonumber(ARGV[8]) "                               \
    "local m, y, at = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%S+) (%S+)$') " \
    "m, y, at = tonumber(m), tonumber(y), tonumber(at) "                                      \
    "if m == m and y == y and m and y and at then local d = math.max(0, now - at) "           \
    "m, y = math.min(b, m + r * d), math.min(bb, y + br * d) "                                \
    "else m, y = math.min(b, r * known), math.min(bb, br * known) end "                       \
    "local k, g, d, f = n, 0, 0, 60 "                                                         \
    "if r > 0 then m = m - k d, f = math.max(0, -m / r), f + (b - m) / r else m = 0 end "     \
    "if br > 0 then y = y - owed local room = math.max(0, y) + br * ahead "                   \
    "if s > room then k = math.max(1, math.floor(n * room / s)) "                             \
    "if r > 0 then m = m + n - k end end "                                                    \
    "if y <= 0 then d = math.max(d, (1 - y) / br) end g = s * k / n y = y - g "               \
    "f = math.max(f, 60 + (bb - y) / br) else y = 0 end "                                     \
    "redis.call('SET', KEYS[1], string.format('%.6f %.6f %.6f', m, y, now), 'PX', "           \
    "string.format('%.0f', math.min(f, 1e9) * 1000)) "                                        \
    "return {k, string.format('%.3f', g), string.format('%.0f', math.min(d, 1e9) * 1e6)}"

/* EVAL ... 1 key relay held wanted most milliseconds: the connections of a group to one next hop.
 * Each relay says how many it has and could use, again and again; who has said nothing for so many
 * milliseconds has none. Answers how many it may have: what is free, and, when others want some,
 * its fair part. The parts are max-min; what cannot be divided goes around every ten seconds. What
 * a relay has not closed yet counts. */
#define SHAPE_SLOTS                                                                          \
    CONTROL_SCRIPT                                                                           \
    "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) "        \
    "local me, held, want = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]) "                  \
    "local most, ttl = tonumber(ARGV[4]), tonumber(ARGV[5]) "                                \
    "local all = redis.call('HGETALL', KEYS[1]) local who, others = {}, 0 "                  \
    "for i = 1, #all, 2 do local h, w, e = string.match(all[i + 1], '^(%d+) (%d+) (%d+)$') " \
    "e = tonumber(e) if not e or e < now or e > now + 10 * ttl then "                        \
    "redis.call('HDEL', KEYS[1], all[i]) elseif all[i] ~= me then "                          \
    "others = others + tonumber(h) if tonumber(w) > 0 then "                                 \
    "who[#who + 1] = {all[i], tonumber(w), 0} end end end "                                  \
    "local mine = {me, want, 0} if want > 0 then who[#who + 1] = mine end "                  \
    "table.sort(who, function(a, b) return a[1] < b[1] end) "                                \
    "local left, turn = most, math.floor(now / 10000) "                                      \
    "while left > 0 do local open = {} for i, w in ipairs(who) do "                          \
    "if w[3] < w[2] then open[#open + 1] = w end end if #open == 0 then break end "          \
    "local each = math.floor(left / #open) if each == 0 then for i = 1, left do "            \
    "local w = open[(turn + i) % #open + 1] w[3] = w[3] + 1 end break end "                  \
    "for i, w in ipairs(open) do local g = math.min(each, w[2] - w[3]) "                     \
    "w[3] = w[3] + g left = left - g end end "                                               \
    "local may = math.max(0, math.min(want, mine[3], most - others)) "                       \
    "redis.call('HSET', KEYS[1], me, string.format('%d %d %d', math.max(held, may), want, "  \
    "now + ttl)) redis.call('PEXPIRE', KEYS[1], 10 * ttl) return may"

/* EVAL ... 1 key [kind value milliseconds]...: keeps what a next hop asked for, for so long, for
 * all relays. Of one kind the stricter word counts, and the later end. Answers kind, value and the
 * milliseconds that are left, of all that is there. Kept is "value end milliseconds". The last is
 * the longest time that was asked for: no more is left of it, though the clock was set back. */
#define SHAPE_BACKOFF                                                                        \
    CONTROL_SCRIPT                                                                           \
    "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) "        \
    "local function of(kind) local v, e, l = "                                               \
    "string.match(redis.call('HGET', KEYS[1], kind) or '', '^(%S+) (%S+) (%S+)$') "          \
    "v, e, l = tonumber(v), tonumber(e), tonumber(l) "                                       \
    "if v and e and l and e > now and l > 0 then return v, math.min(e, now + l), l end end " \
    "local function put(kind, v, e, l) "                                                     \
    "redis.call('HSET', KEYS[1], kind, string.format('%.9g %.0f %.0f', v, e, l)) end "       \
    "local last, out = now, {} for i = 1, #ARGV, 3 do "                                      \
    "local v, l = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]) local e = now + l "           \
    "local ov, oe, ol = of(ARGV[i]) "                                                        \
    "if ov then v, e, l = math.min(v, ov), math.max(e, oe), math.max(l, ol) end "            \
    "put(ARGV[i], v, e, l) end "                                                             \
    "for i, kind in ipairs(redis.call('HKEYS', KEYS[1])) do local v, e, l = of(kind) "       \
    "if v then put(kind, v, e, l) last = math.max(last, e) "                                 \
    "out[#out + 1] = kind out[#out + 1] = string.format('%.9g', v) "                         \
    "out[#out + 1] = string.format('%.0f', e - now) "                                        \
    "else redis.call('HDEL', KEYS[1], kind) end end "                                        \
    "if last > now then redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', last)) end "  \
    "return out"

#endif
