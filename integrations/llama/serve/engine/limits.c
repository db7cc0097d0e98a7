/* limits: the rules of kvp_sched_submit, with S, B, P, F and L as it names them. */
#include "limits.h"

#include <kvpager/sched.h>

uint32_t kvpi_limits_new(const kvpi_limits *limits, uint32_t n_prompt, uint32_t n_samples)
{
    const uint64_t s = limits->block_tokens, n = n_samples, p = n_prompt;
    const uint64_t first = limits->usable_blocks - limits->watermark_blocks;
    if (p == 0 || p >= limits->max_seq_tokens || n == 0 || n > limits->max_running ||
        (p + s - 1) / s + n - 1 > first)
        return 0;
    const uint64_t shared = p / s;
    if (shared > limits->usable_blocks)
        return 0;
    /* Each sample has so many blocks of its own. */
    const uint64_t own = (limits->usable_blocks - shared) / n;
    uint64_t most = (shared + own) * s;
    if (most > limits->max_seq_tokens)
        most = limits->max_seq_tokens;
    if (most <= p)
        return 0;
    /* Pages of the token arena are whole, and the prompt needs some, too. */
    const uint64_t page = KVP_SCHED_PAGE_TOKENS, pages = limits->arena_tokens / page;
    const uint64_t for_prompt = p / page + 2;
    const uint64_t for_each = for_prompt < pages ? (pages - for_prompt) / n : 0;
    const uint64_t room = for_each > 1 ? (for_each - 1) * page : 0;
    return (uint32_t)(most - p < room ? most - p : room);
}

uint32_t kvpi_limits_prompt(const kvpi_limits *limits, uint32_t n_samples)
{
    uint32_t low = 0, high = limits->max_seq_tokens;
    while (low < high) { /* the longest one with room for a token */
        const uint32_t middle = low + (high - low + 1) / 2;
        if (kvpi_limits_new(limits, middle, n_samples) > 0)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
