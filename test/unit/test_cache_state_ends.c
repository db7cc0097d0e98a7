/* Places where chunks of a prompt should end (states.h), when nodes are short: none lies behind the
 * units that are kept, and at each a checkpoint can be made. */
#include <kvpager/states.h>

#include "groups.h"
#include "slots.h"

static world short_world(uint32_t n_nodes)
{
    kvp_config config = config_of(4, 4, 32);
    config.state_slots = 16;
    config.max_namespaces = 2;
    config.n_nodes = n_nodes;
    return make_world(&config);
}

static uint32_t kept_units(const world *w, kvp_seq seq)
{
    kvp_seq_info info;
    assert_ok(kvp_seq_info_get(w->cache, seq, &info));
    return info.kept_tokens / 4;
}

static void keep_at(const world *w, kvp_seq seq, uint32_t n)
{
    uint32_t outcome = KVP_CHECKPOINT_SKIPPED;
    assert_ok(kvp_seq_commit(w->cache, seq, n));
    assert_ok(kvp_seq_checkpoint(w->cache, seq, &outcome));
    assert_int_equal(outcome, KVP_CHECKPOINT_MADE);
}

TEST(test_the_end_of_a_prompt_is_where_its_units_end)
{
    uint32_t n_cut = 0;
    for (uint32_t n = 3; n < 12; n++) {
        scoped_world w = short_world(n);
        const kvp_seq seq = open_seq(&w, ints(0), 25, NULL);
        const uint32_t kept = kept_units(&w, seq);
        assert_int_equal(state_of(&w, seq).prompt_end, kept < 6 ? 4 * kept : 24);
        n_cut += kept > 0 && kept < 6;
        if (kept > 0)
            keep_at(&w, seq, state_of(&w, seq).prompt_end);
    }
    assert_true(n_cut > 2);
}

TEST(test_a_branch_is_no_end_behind_the_last)
{
    uint32_t n_branches = 0;
    for (uint32_t n = 4; n < 13; n++) {
        scoped_world w = short_world(n);
        int32_t other[25];
        leave_cached(&w, ints(0), 13);
        for (uint32_t i = 0; i < 25; i++)
            other[i] = i < 12 ? *ints((int32_t)i) : 1000 + (int32_t)i;
        const kvp_seq seq = open_seq(&w, other, 25, NULL);
        const kvp_state_info ends = state_of(&w, seq);
        assert_true(ends.prompt_end <= 4 * kept_units(&w, seq));
        assert_true(ends.branch_end == 0 || ends.branch_end < ends.prompt_end);
        if (ends.branch_end != 0) {
            keep_at(&w, seq, ends.branch_end);
            n_branches++;
        }
        if (ends.prompt_end != 0)
            keep_at(&w, seq, ends.prompt_end);
    }
    assert_in_range(n_branches, 1, 8);
}

TEST_MAIN(NULL, NULL)
