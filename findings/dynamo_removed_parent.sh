#!/usr/bin/env bash
# ai-dynamo-runtime 1.6.1: a router's index forgets what hangs behind a removed block, for good.
#
# Expected: an engine reports blocks 101, 102, 103 of one prompt as stored, then 102 as removed, then 102 as
# stored again. 103 was never removed, so the prompt matches three blocks.
# Seen: three blocks at first, then one, then two: with 102 the index dropped 103, and only another "stored" of
# 103 brings it back. Nothing is logged.
#
# kvpager's: a publisher withdraws what is behind a removed unit, the last first, and reports it again when the
# unit comes back (test/publish/test_publish_rules.c, test_what_is_behind_a_removed_unit_goes_first_and_comes_again).
#
# Downloads 75 MB. Status 0: it is so.
set -euo pipefail

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 -m venv "$room/venv"
"$room/venv/bin/pip" install --quiet ai-dynamo-runtime==1.6.1
"$room/venv/bin/python" - <<'END' | tee "$room/printed"
import json
from dynamo._core import RadixTree

ENGINE = 7
PROMPT = [1, 2, 3]  # hashes of its blocks' tokens
ids = iter(range(1, 100))


def apply(tree, data):
    event = {"event_id": next(ids), "dp_rank": 0, "data": data}
    tree.apply_event(ENGINE, json.dumps(event).encode())


def stored(tree, parent, blocks):
    apply(tree, {"stored": {"parent_hash": parent, "blocks": [
        {"block_hash": block, "tokens_hash": tokens} for block, tokens in blocks]}})


def removed(tree, block):
    apply(tree, {"removed": {"block_hashes": [block]}})


def matched(tree):
    return list(tree.find_matches(PROMPT).scores.values())


tree = RadixTree()
stored(tree, None, [(101, 1), (102, 2), (103, 3)])
print("stored", matched(tree))
removed(tree, 102)
print("removed the second", matched(tree))
stored(tree, 101, [(102, 2)])
print("stored it again", matched(tree))

stored(tree, 102, [(103, 3)])
print("stored the third again", matched(tree))
END
diff - "$room/printed" <<'END'
stored [3]
removed the second [1]
stored it again [2]
stored the third again [3]
END
