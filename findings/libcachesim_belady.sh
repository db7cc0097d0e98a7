#!/usr/bin/env bash
# libcachesim 0.3.5: Belady over a text trace misses as often as LRU, without a word.
#
# Expected: "Belady's optimal algorithm" over a trace file of object ids has the fewest misses that there can be,
# or refuses a trace that does not name the next use of each object.
# Seen: 2,000 random requests for 20 objects, room for 8: LRU misses 60.15 %, Belady 60.10 %. The optimum is
# 32.65 %, which Belady reaches when the same requests come as an oracleGeneral trace, whose records have the
# next use. LRU and Sieve miss as many of either file.
#
# kvpager's: `kvpager mrc` finds the next uses itself, in every format. test/tools/long_mrc.py compares its
# optimum with every choice of victims that there is.
#
# Downloads 20 MB. Status 0: it is so.
set -euo pipefail

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet libcachesim==0.3.5
cat >"$room/run.py" <<'END'
import random
import struct
import sys

import libcachesim as lcs

ROOM = 8
random.seed(1)
keys = [random.randrange(20) for _ in range(2000)]
never, following, next_use = -1, {}, []
for at in range(len(keys) - 1, -1, -1):
    next_use.append(following.get(keys[at], never))
    following[keys[at]] = at
next_use.reverse()

kept, misses = {}, 0
for key, following_use in zip(keys, next_use):
    if key not in kept:
        misses += 1
        if len(kept) >= ROOM:
            del kept[max(kept, key=lambda one: kept[one] if kept[one] != never else len(keys))]
    kept[key] = following_use
print(f"optimum {misses / len(keys):.4f}")

text, oracle = sys.argv[1] + "/trace.txt", sys.argv[1] + "/trace.oracleGeneral"
with open(text, "w", encoding="ascii") as file:
    file.writelines(f"{key + 1}\n" for key in keys)
with open(oracle, "wb") as file:
    for at, (key, following_use) in enumerate(zip(keys, next_use)):
        file.write(struct.pack("<IQIq", at, key + 1, 1, following_use))


def miss_ratio(policy, path, kind):
    reader = lcs.TraceReader(trace=path, trace_type=kind,
                             reader_init_params=lcs.ReaderInitParam(ignore_obj_size=True))
    return policy(ROOM).process_trace(reader)[0]


for name, policy in (("LRU", lcs.LRU), ("Sieve", lcs.Sieve), ("Belady", lcs.Belady)):
    print(f"{name} text {miss_ratio(policy, text, lcs.TraceType.PLAIN_TXT_TRACE):.4f}",
          f"oracleGeneral {miss_ratio(policy, oracle, lcs.TraceType.ORACLE_GENERAL_TRACE):.4f}")
END
timeout 120 "$room/venv/bin/python" "$room/run.py" "$room" | tee "$room/printed"
diff - "$room/printed" <<'END'
optimum 0.3265
LRU text 0.6015 oracleGeneral 0.6015
Sieve text 0.5865 oracleGeneral 0.5865
Belady text 0.6010 oracleGeneral 0.3265
END
