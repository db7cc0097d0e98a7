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
    assert_ok(kvp_cache_state_stats(w->cache, &stats));
    return stats;
}

uint32_t checkpoint(const world *w, kvp_seq seq)
{
    uint32_t outcome = 99;
    assert_ok(kvp_seq_checkpoint(w->cache, seq, &outcome));
    return outcome;
}
