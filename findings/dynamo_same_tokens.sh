#!/usr/bin/env bash
# ai-dynamo-runtime 1.6.1: of two blocks with the same tokens a router's index knows the first alone.
#
# Expected: an engine keeps the same tokens twice under different block hashes, as vLLM and SGLang do for two
# cache salts. Both are reported as stored; when the first is removed, a prompt still finds the second.
# Seen: "stored" of the second is applied without an error and leaves no trace. When the first is removed, the
# prompt matches nothing, though the second is there. A removal of the second alone is an error, and the prompt
# matches as before.
#
# kvpager's: a publisher reports one namespace, or those that the caller gives adapter names
# (kvp_publisher_space), and no unit with extra keys (test/publish/test_publish_rules.c,
# test_named_namespaces_alone_are_told, test_units_with_keys_and_those_behind_them_are_not_told).
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

ids = iter(range(1, 100))


def apply(tree, data):
    event = {"event_id": next(ids), "dp_rank": 0, "data": data}
    try:
        tree.apply_event(7, json.dumps(event).encode())
        return "applied"
    except RuntimeError as error:
        return str(error)


def stored(tree, block):
    return apply(tree, {"stored": {"parent_hash": None,
                                   "blocks": [{"block_hash": block, "tokens_hash": 1}]}})


def removed(tree, block):
    return apply(tree, {"removed": {"block_hashes": [block]}})


for gone in (101, 201):
    tree = RadixTree()
    print("stored 101:", stored(tree, 101), "- stored 201:", stored(tree, 201))
    print(f"removed {gone}:", removed(tree, gone), "- matched", list(tree.find_matches([1]).scores.values()))
END
diff - "$room/printed" <<'END'
stored 101: applied - stored 201: applied
removed 101: applied - matched []
stored 101: applied - stored 201: applied
removed 201: Failed to apply event: Failed to find block - matched [1]
END
