#!/usr/bin/env bash
# libcachesim 0.3.5: CLOCK-Pro fills half of its room, so it looks like a cache of half the size.
#
# Expected: a cache of 30 objects, asked for 30 distinct ones again and again, misses each once; and a cache
# evicts only when it is full.
# Seen: 3,000 requests for 30 distinct objects. LRU, ARC and 2Q miss 30 of them in a room of 30. CLOCK-Pro, with its
# default parameters, misses 821, and keeps 15; in a room of 60 it keeps all 30. Of a room of 1 it uses nothing, and
# misses every time, also an object that was asked for just before.
#
# kvpager's: `kvpager mrc` gives each policy all of the room: where everything fits, each misses each block once
# (test/tools/mrc_numbers.py, check_room_for_all).
#
# Downloads 20 MB. Status 0: it is so.
set -euo pipefail

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet libcachesim==0.3.5
cat >"$room/run.py" <<'END'
import random

import libcachesim as lcs

keys = random.Random(3).choices(range(1, 31), [1 / (i + 1) for i in range(30)], k=3000)


def run(policy, room):
    cache, misses = policy(room), 0
    for key in keys:
        request = lcs.Request()
        request.obj_id, request.obj_size = key, 1
        misses += not cache.get(request)
    return f"{misses} misses, keeps {cache.get_n_obj()}"


print(len(set(keys)), "objects,", sum(a == b for a, b in zip(keys, keys[1:])), "asked for twice in a row")
for policy in (lcs.LRU, lcs.ARC, lcs.TwoQ, lcs.ClockPro):
    print(policy.__name__, "of 30:", run(policy, 30))
for size in (1, 2, 10, 20, 60):
    print("ClockPro of", size, run(lcs.ClockPro, size))
END
timeout 120 "$room/venv/bin/python" "$room/run.py" | tee "$room/printed"
diff - "$room/printed" <<'END'
30 objects, 295 asked for twice in a row
LRU of 30: 30 misses, keeps 30
ARC of 30: 30 misses, keeps 30
TwoQ of 30: 30 misses, keeps 30
ClockPro of 30: 821 misses, keeps 15
ClockPro of 1 3000 misses, keeps 0
ClockPro of 2 2265 misses, keeps 1
ClockPro of 10 1474 misses, keeps 5
ClockPro of 20 1116 misses, keeps 10
ClockPro of 60 30 misses, keeps 30
END
