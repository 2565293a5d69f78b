#!/bin/sh
# Billing records in a lane, with nothing but redis-cli. A switch stores what it has to bill; the billing system takes records in
# their order, books them and acknowledges. billing.py shows more: what cannot be booked is tried again, and waits for a person at last.
#
#     clients/python/examples/billing.sh ARGUMENTS OF REDIS-CLI: -p 7009, or -s /run/redis/lane.sock
set -eu
[ $# -gt 0 ] || { echo "billing: name the server, as for redis-cli: -p 7009" >&2; exit 2; }

lane() { redis-cli -e "$@"; }
fail() { echo "billing: $*" >&2; exit 1; }

# What became of a record: its sequence, or DONE (it is there already, or was not long ago); anything else says why it is not stored.
store() {
    answer=$(lane "$@")
    case $answer in
    DONE) echo "there already" ;;
    *[!0-9]*) fail "not stored: $answer" ;; # FULL, MEMORY, POLICY ...: no errors for redis-cli; keep the record, try later
    *) echo "stored as $answer" ;;
    esac
}

# Made once: billed in strict order, at most a million records, no record lost to a full server without the switch being told.
lane "$@" LANE.CREATE billing STRICT MAXLEN 1000000 MAXATTEMPTS 3 DEAD billing:manual >/dev/null

# The switch. The id, 16 bytes of its own choice, makes it safe to send again after a lost answer: as long as the record is in the lane,
# and for lane.settle-ms (5 seconds) after it was acknowledged. Set that to the longest time after which you send again.
store "$@" LANE.PUT billing '{"caller":"4670001","seconds":61}' call-00000000001
store "$@" LANE.PUT billing '{"caller":"4670002","seconds":7}' call-00000000002
store "$@" LANE.PUT billing '{"caller":"4670001","seconds":61}' call-00000000001

# An offer that is worth nothing tomorrow: it expires.
lane "$@" LANE.PUSH 1 offers EXPIRE 86400000 ENTRIES 1 1 '' '' 'a free minute today' >/dev/null

# The billing system. redis-cli ends its connection after each command, and with it the lease (which counts as a failed attempt: look with
# LANE.READ, not with LANE.TAKE). So both commands go through one redis-cli, on its input. A real program books before it acknowledges.
printf 'LANE.TAKE 1 billing COUNT 10\nLANE.ACK billing IDS 2 call-00000000001 call-00000000002\n' | lane "$@"

left=$(lane "$@" LANE.LEN billing)
[ "$left" = 0 ] || fail "$left records are left"
echo "all booked"
