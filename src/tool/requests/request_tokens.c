/* Makes tokens for the content that a trace only names.
 *
 * A token depends on the name of the content, the offset in it, and a seed:
 *
 *   token(name, j) = range | (start(name, j mod 2) + j * STEP  mod 2^30)
 *
 *   range = 0     content with an id; name = the id, j = offset in the trace block
 *   range = 2^30  content of one request; name = its number in the file, j = position in the
 *                 sequence; so its unshared input and its output are one stream
 *
 * start() is a permutation of the 30-bit numbers, and adding j * STEP is one too. So at equal
 * offsets, different names give different tokens, always and at every offset, not just with high
 * probability: two requests share exactly what the trace says they share, even with blocks of one
 * token. Ids of 2^30 and more cannot all have a token of their own; two different 30-bit parts of
 * their 64-bit mix serve the even and the odd offsets.
 *
 * The inner loop is one multiplication, one addition and two bit operations, without a branch: a
 * compiler makes vector code of it.
 */
#include <string.h>

#include "tool/requests/requests.h"

#define RANGE_BITS 30
#define RANGE_MASK ((UINT32_C(1) << RANGE_BITS) - 1)
#define OWN_RANGE  (UINT32_C(1) << RANGE_BITS)

/* 2^30 / golden ratio, made odd: neighbouring tokens are far apart. */
#define STEP UINT32_C(663608941)

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014): a permutation of the 64-bit numbers. */
static uint64_t mix64(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Each line is a permutation of the 30-bit numbers (odd factors, shifts of its own bits). */
static uint32_t permute30(uint32_t x, uint64_t seed)
{
    x = (x + (uint32_t)(mix64(seed) & RANGE_MASK)) & RANGE_MASK;
    x = ((x ^ (x >> 15)) * UINT32_C(0x2c1b3c6d)) & RANGE_MASK;
    x = ((x ^ (x >> 12)) * UINT32_C(0x297a2d39)) & RANGE_MASK;
    return x ^ (x >> 15);
}

typedef struct stream {
    uint32_t range;
    uint32_t start[2]; /* of even and odd offsets */
} stream;

static stream stream_of_id(uint64_t name, uint64_t seed)
{
    uint32_t even = (uint32_t)name, odd = (uint32_t)name;
    if (name > RANGE_MASK) {
        even = (uint32_t)(mix64(name) & RANGE_MASK);
        odd = (uint32_t)(mix64(name) >> 34);
    }
    return (stream){0, {permute30(even, seed), permute30(odd, seed)}};
}

static stream stream_of_request(const kvpi_request *request, uint64_t seed)
{
    uint32_t start = permute30(request->number, seed);
    return (stream){OWN_RANGE, {start, start}};
}

/* tokens[0..n) = the stream's tokens at offsets first..first+n; the steps wrap modulo 2^32, which
 * the mask makes modulo 2^30. */
static void fill(const stream *from, uint32_t first, size_t n, int32_t *tokens)
{
    const uint32_t range = from->range;
    const uint32_t here = from->start[first & 1] + first * STEP;
    const uint32_t next = from->start[(first + 1) & 1] + (first + 1) * STEP;
    for (size_t j = 0; j + 1 < n; j += 2) {
        uint32_t step = (uint32_t)j * STEP;
        tokens[j] = (int32_t)(range | ((here + step) & RANGE_MASK));
        tokens[j + 1] = (int32_t)(range | ((next + step) & RANGE_MASK));
    }
    if (n % 2 == 1)
        tokens[n - 1] = (int32_t)(range | ((here + (uint32_t)(n - 1) * STEP) & RANGE_MASK));
}

/* Tokens of a request, prompt and output, that ids name. What continues the request has the last
 * block's tokens, if the prompt ends within it. */
static uint32_t named_by_ids(const kvpi_request *request, int32_t block)
{
    if (request->n_ids == 0)
        return 0;
    const uint64_t all = (uint64_t)request->n_ids * (uint64_t)block;
    const uint32_t input = (uint32_t)request->input_length;
    if (all <= input || request->names_output)
        return (uint32_t)all;
    return request->next == NULL ? input : input - input % (uint32_t)block;
}

/* tokens = those of `request` at [from, to), of which none is spelled out. Beyond the ids they are
 * those of the request that continues this one, as far as it shares them, and so on: `to` falls on
 * the way. */
static void fill_range(const kvpi_request *request, const kvpi_requests_key *key, uint32_t from,
                       uint32_t to, int32_t *tokens)
{
    const uint32_t block = (uint32_t)key->trace_block, begin = from;
    while (from < to) {
        const uint32_t named = named_by_ids(request, key->trace_block);
        while (from < to && from < named) {
            const stream of = stream_of_id(request->ids[from / block], key->seed);
            const uint32_t at = from % block;
            uint32_t n = block - at < named - from ? block - at : named - from;
            n = n < to - from ? n : to - from;
            fill(&of, at, n, tokens + (from - begin));
            from += n;
        }
        uint32_t own = request->next == NULL ? 0 : (uint32_t)request->next->shared;
        own = own > from ? own : from;
        if (own < to) {
            const stream of = stream_of_request(request, key->seed);
            fill(&of, own, to - own, tokens + (own - begin));
            to = own;
        }
        request = request->next;
    }
}

void kvpi_requests_input(const kvpi_request *request, const kvpi_requests_key *key, uint32_t from,
                         int32_t *tokens)
{
    const uint32_t given = request->n_input_ids, begin = from > given ? from : given;
    if (given > from)
        memcpy(tokens + from, request->input_ids + from, (given - from) * sizeof *tokens);
    fill_range(request, key, begin, (uint32_t)request->input_length, tokens + begin);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Tokens that two requests begin with whose ids are equal. */
static uint32_t count_common(const kvpi_request *a, const kvpi_request *b, int32_t block)
{
    const uint32_t n = least(a->n_ids, b->n_ids);
    uint32_t i = a->ids == b->ids ? n : 0; /* they have a place in common */
    while (i < n && a->ids[i] == b->ids[i])
        i++;
    return least(i * (uint32_t)block, least(named_by_ids(a, block), named_by_ids(b, block)));
}

uint32_t kvpi_requests_common(const kvpi_request *request, const kvpi_requests_key *key)
{
    const kvpi_request *before = request->before;
    if (before == NULL || before->n_input_ids + request->n_input_ids > 0)
        return 0;
    if (before->next == request)
        return (uint32_t)request->shared;
    return least(count_common(before, request, key->trace_block), (uint32_t)request->input_length);
}

void kvpi_requests_output(const kvpi_request *request, const kvpi_requests_key *key,
                          int32_t *tokens)
{
    const uint32_t given = request->n_output_ids, input = (uint32_t)request->input_length;
    if (given > 0)
        memcpy(tokens, request->output_ids, given * sizeof *tokens);
    fill_range(request, key, input + given, input + (uint32_t)request->output_length,
               tokens + given);
}
