/* scan: see scan.h. */
#include "scan.h"

static uint64_t mix(uint64_t digest, uint64_t with)
{
    return (digest ^ with) * UINT64_C(0x9E3779B97F4A7C15);
}

uint64_t scan_one(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt, uint64_t *n_hits)
{
    uint64_t digest = 0;
    kvp_open_info info;
    kvp_seq seq;
    const int32_t *row;
    const kvp_evicted *evicted;
    kvp_copy copies[256];
    uint32_t n, n_evicted, n_copies;
    assert_ok(kvp_seq_open(cache, ns, prompt, &seq, &info));
    assert_ok(kvp_cache_evicted(cache, &evicted, &n_evicted));
    assert_ok(kvp_plan_take(cache, copies, 256, &n_copies));
    assert_ok(kvp_seq_row(cache, seq, 0, &row, &n));
    *n_hits += info.hit_tokens / 4;
    for (uint32_t k = 0; k < n; k++)
        digest = mix(digest, (uint32_t)row[k]);
    for (uint32_t k = 0; k < n_evicted; k++)
        digest =
            mix(digest, (uint32_t)evicted[k].block * 4u + evicted[k].tier * 2u + evicted[k].kept);
    assert_ok(kvp_seq_commit(cache, seq, prompt->n_tokens));
    assert_ok(kvp_seq_close(cache, seq, NULL));
    return digest;
}

uint64_t scan(kvp_cache *cache, int rounds, uint64_t *n_hits)
{
    uint64_t digest = 0;
    kvp_ns ns;
    assert_ok(kvp_ns_open(cache, "", 0, &ns));
    for (int i = 0; i < rounds * SCAN_PROMPTS; i++) {
        const int32_t which = i % SCAN_PROMPTS;
        const kvp_prompt prompt = prompt_of(ints(80 * which), 4 * (1 + (uint32_t)which % 3) + 1);
        digest = mix(digest, scan_one(cache, ns, &prompt, n_hits));
    }
    return digest;
}
