#!/usr/bin/env python3
"""32 users of one assistant: starts kvpager-serve, lets all ask at once, prints some answers and what
the cache saved, and ends.

    demo.py SERVER -m MODEL [OPTION...]
"""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time

USERS = 32
NEW_TOKENS = 24
SYSTEM = ("You are the assistant of a small public library. You answer visitors in one or two short, "
          "friendly sentences. The library opens at nine in the morning and closes at seven in the "
          "evening, on Sundays at one. It lends books for four weeks and films for one week; both can "
          "be extended twice. Children get a card for nothing, all others pay ten a year. There is a "
          "reading room with a view of the river, a room for music, and a printer that costs five "
          "cents a page. Lost books are replaced by the visitor. Dogs wait outside, where they find "
          "water and shade. Groups of more than ten persons announce themselves a day before. If you "
          "do not know an answer, send the visitor to the desk at the entrance. ")
QUESTIONS = ["When do you open?", "How long may I keep a film?", "What does a card cost?",
             "May my dog come in?", "Where can I print a page?", "Is there a place to read in silence?",
             "I lost a book. What now?", "We are a class of twenty. May we come tomorrow?"]


def ask(port, user, answers):
    body = {"messages": [{"role": "system", "content": SYSTEM},
                         {"role": "user", "content": f"I am visitor {user}. {QUESTIONS[user % 8]}"}],
            "max_tokens": NEW_TOKENS, "temperature": 0}
    begin = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    answers[user] = (answer["choices"][0]["message"]["content"], answer["usage"],
                     time.monotonic() - begin)


def read_metric(port, name):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return float(re.search(rf"^kvpager_{name} (.*)$", text, re.M).group(1))


def report(port, answers, seconds):
    prompts = sum(usage["prompt_tokens"] for _, usage, _ in answers)
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for _, usage, _ in answers)
    new = sum(usage["completion_tokens"] for _, usage, _ in answers)
    for user in range(0, USERS, 9):
        print(f"\nvisitor {user}: {QUESTIONS[user % 8]}\n  {answers[user][0].strip()}")
    print(f"\n{USERS} users, {prompts:,} prompt tokens and {new:,} new ones in {seconds:.1f} s")
    print(f"  from the cache         {cached:>8,}  {100 * cached / prompts:.1f} % of the prompts")
    print(f"  run through the model  {read_metric(port, 'decoded_tokens_total'):>8,.0f}")
    print(f"  without the cache      {prompts + new - USERS:>8,}")
    print(f"  preemptions            {read_metric(port, 'preemptions_total'):>8,.0f}")


def main(command):
    server = subprocess.Popen([*command, "--port", "0", "-c", "8192"], stdout=subprocess.PIPE, text=True)
    try:
        found = re.search(r":(\d+)/", server.stdout.readline())
        if not found:
            return 1
        port, answers = int(found.group(1)), [None] * USERS
        begin = time.monotonic()
        threads = [threading.Thread(target=ask, args=(port, user, answers)) for user in range(USERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report(port, answers, time.monotonic() - begin)
    finally:
        server.send_signal(signal.SIGTERM)
    return server.wait()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
