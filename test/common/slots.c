/* slots: see slots.h. */
#include "slots.h"

kvp_state_info state_of(const world *w, kvp_seq seq)
{
    kvp_state_info info;
    assert_ok(kvp_seq_state_get(w->cache, seq, &info));
    return info;
}

kvp_state_stats slots_of(const world *w)
{
    kvp_state_stats stats;
    assert_ok(kvp_cache_state_stats_get(w->cache, &stats));
    return stats;
}

uint32_t checkpoint(const world *w, kvp_seq seq)
{
    uint32_t outcome = 99;
    assert_ok(kvp_seq_checkpoint(w->cache, seq, &outcome));
    return outcome;
}

uint64_t state_behind(uint64_t before, int32_t token)
{
    return (before ^ (uint64_t)(uint32_t)token) * 0x9E3779B97F4A7C15u + 0x1234567u;
}

uint64_t state_after(const int32_t *tokens, uint32_t n)
{
    uint64_t state = INITIAL_STATE;
    for (uint32_t i = 0; i < n; i++)
        state = state_behind(state, tokens[i]);
    return state;
}

void draw_alike(uint64_t *random, int32_t *tokens, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < from + n; i++)
        tokens[i] = (int32_t)draw(random, draw(random, 4) == 0 ? 3 : 1);
}
