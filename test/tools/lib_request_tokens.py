"""The tokens that stand for a trace's ids, written from the formula in src/tool/requests/request_tokens.c.

Run it to print the vectors of test/unit/test_requests.c.
"""

RANGE = 1 << 30
STEP = 663608941


def mix64(x):
    """The finalizer of splitmix64."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def permute30(x, seed):
    x = (x + mix64(seed) % RANGE) % RANGE
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) % RANGE
    x = ((x ^ (x >> 12)) * 0x297A2D39) % RANGE
    return x ^ (x >> 15)


def token_of_id(block_id, offset, seed=0):
    name = block_id
    if block_id >= RANGE:
        mixed = mix64(block_id)
        name = mixed >> 34 if offset % 2 else mixed % RANGE
    return (permute30(name, seed) + offset * STEP) % RANGE


def token_of_request(number, position, seed=0):
    return RANGE + (permute30(number, seed) + position * STEP) % RANGE


if __name__ == "__main__":
    for block_id, seed in [(0, 0), (1, 0), (1, 7), (RANGE - 1, 0), (RANGE, 0),
                           (2**63 - 1, 2**64 - 1)]:
        print(f"id {block_id} seed {seed}:",
              [token_of_id(block_id, offset, seed) for offset in range(4)])
    for number, position in [(0, 0), (7, 100)]:
        print(f"request {number} position {position}:", token_of_request(number, position))
