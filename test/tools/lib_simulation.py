"""A slow, obvious simulation of a sequential replay, written from the definitions.

It knows nothing of hashes, nodes or queues of the library. A block's content is a whole prefix, as
a number: content_of[(number of the prefix before, what follows)]. `where` says which block has a
content. The queue is an ordered dictionary: its first block is taken next.

  open    the longest run of leading full blocks whose contents are somewhere is shared; the rest is
          taken from the front of the queue, and what was in those blocks is evicted
  commit  full blocks get their content. If it is somewhere else already, that block is used and
          ours goes back, empty
  extend  one token; a block is taken when there is no room
  close   last block first: one with content to the end of the queue, an empty one to its front
"""

import collections
import csv
import json


class Request:
    """`unit(i)` names the content of tokens [i * size, (i + 1) * size), given what is before it."""

    def __init__(self, number, timestamp, input_length, output_length, ids=(), trace_block=512,
                 tokens=None):
        self.number = number
        self.timestamp = timestamp
        self.input_length = input_length
        self.output_length = output_length
        self.ids = ids
        self.trace_block = trace_block
        self.tokens = tokens

    def unit(self, i, size):
        begin, end = i * size, (i + 1) * size
        if self.tokens is not None and end <= len(self.tokens):
            return tuple(self.tokens[begin:end])
        if end <= self.input_length and end <= len(self.ids) * self.trace_block:
            return ("id", self.ids[begin // self.trace_block], begin % self.trace_block)
        return ("own", self.number, begin)


def read_jsonl(path, trace_block=512):
    requests = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file):
            fields = json.loads(line)
            if "hash_ids" in fields:
                requests.append(Request(number, fields["timestamp"], fields["input_length"],
                                        fields["output_length"], fields["hash_ids"], trace_block))
            else:
                tokens = fields["input_tok_ids"] + fields["output_tok_ids"]
                requests.append(Request(number, fields["arrival_time_ns"], fields["input_toks"],
                                        fields["output_toks"], tokens=tokens))
    return sorted(requests, key=lambda request: request.timestamp)


def read_azure(path):
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    requests = [Request(number, row[0], int(row[1]), int(row[2]))
                for number, row in enumerate(rows)]
    return sorted(requests, key=lambda request: request.timestamp)


class Simulation:
    def __init__(self, block_tokens, blocks, prefix_cache=True):
        self.size = block_tokens
        self.n_blocks = blocks
        self.prefix_cache = prefix_cache
        self.queue = collections.OrderedDict.fromkeys(range(1, blocks + 1))
        self.content_of = {}
        self.where = {}
        self.content_in = {}
        self.counts = dict.fromkeys(
            ["requests", "rejected", "input_tokens", "output_tokens", "hit_tokens",
             "blocks_looked_up", "block_hits", "evictions", "peak_held_blocks"], 0)

    def note_held(self):
        held = self.n_blocks - len(self.queue)
        self.counts["peak_held_blocks"] = max(self.counts["peak_held_blocks"], held)

    def contents(self, request, n_tokens):
        """The contents of the full blocks of the first n_tokens."""
        content, found = 0, []
        for i in range(n_tokens // self.size):
            key = (content, request.unit(i, self.size))
            content = self.content_of.setdefault(key, len(self.content_of) + 1)
            found.append(content)
        return found

    def take(self):
        block, _ = self.queue.popitem(last=False)
        if block in self.content_in:
            del self.where[self.content_in.pop(block)]
            self.counts["evictions"] += 1
        return block

    def release(self, block):
        self.queue[block] = None
        if block not in self.content_in:
            self.queue.move_to_end(block, last=False)

    def seal(self, row, i, content):
        if not self.prefix_cache or self.content_in.get(row[i]) == content:
            return
        if content in self.where:
            mine, row[i] = row[i], self.where[content]
            del self.queue[row[i]]
            self.release(mine)
        else:
            self.where[content] = row[i]
            self.content_in[row[i]] = content

    def serve(self, request, output):
        contents = self.contents(request, request.input_length + output)
        full = request.input_length // self.size
        row = []
        while self.prefix_cache and len(row) < full and contents[len(row)] in self.where:
            row.append(self.where[contents[len(row)]])
        for block in row:
            del self.queue[block]
        self.counts["block_hits"] += len(row)
        self.counts["hit_tokens"] += max(0, min(len(row) * self.size, request.input_length - 1))
        while len(row) * self.size < request.input_length:
            row.append(self.take())
        self.note_held()
        for i in range(full):
            self.seal(row, i, contents[i])
        for n in range(request.input_length + 1, request.input_length + output + 1):
            if len(row) * self.size < n:
                row.append(self.take())
                self.note_held()
            if n % self.size == 0:
                self.seal(row, n // self.size - 1, contents[n // self.size - 1])
        self.counts["output_tokens"] += output
        for block in reversed(row):
            self.release(block)

    def replay(self, requests, output=True):
        for request in requests:
            appended = request.output_length if output else 0
            self.counts["requests"] += 1
            self.counts["input_tokens"] += request.input_length
            self.counts["blocks_looked_up"] += request.input_length // self.size
            if -(-(request.input_length + appended) // self.size) > self.n_blocks:
                self.counts["rejected"] += 1
            else:
                self.serve(request, appended)
        return self.counts
