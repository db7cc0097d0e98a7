/* The limits of each number of a configuration: the least and the most are taken, and one less and
 * one more are refused under the field's name. A limit that another field refuses first counts as
 * taken: which fields go together is tested elsewhere. */
#include "sched_world.h"
#include "transfer_world.h"

#include <kvpager/memory.h>
#include <kvpager/transfer.h>
#include <kvpager/wire.h>
#include <stdio.h>
#include <string.h>

typedef struct limit {
    const char *field;
    size_t offset, size;
    uint64_t least, most;
} limit;

#define LIMIT(type, field, least, most)                                                            \
    {                                                                                              \
#field, offsetof(type, field), sizeof(((type *)0)->field), least, most                     \
    }

typedef kvp_status check_fn(const void *config, kvp_why *why);

typedef struct subject {
    const void *good; /* its own limits are not reached */
    size_t bytes;
    check_fn *check;
} subject;

static int is_refused(const subject *s, const limit *at, uint64_t value)
{
    unsigned char config[sizeof(kvp_layout) + sizeof(kvp_config) + sizeof(kvp_sched_config)];
    const uint32_t narrow = (uint32_t)value;
    kvp_why why;
    assert_true(s->bytes <= sizeof config);
    memcpy(config, s->good, s->bytes);
    if (at->size == sizeof narrow)
        memcpy(config + at->offset, &narrow, sizeof narrow);
    else
        memcpy(config + at->offset, &value, sizeof value);
    const kvp_status status = s->check(config, &why);
    return status != KVP_OK && strcmp(why.field, at->field) == 0;
}

static void check_limits(subject s, const limit *limits, size_t n)
{
    kvp_why why;
    assert_ok(s.check(s.good, &why));
    for (size_t i = 0; i < n; i++) {
        const limit *at = &limits[i];
        const uint64_t widest = at->size == sizeof(uint32_t) ? UINT32_MAX : UINT64_MAX;
        const int ok = !is_refused(&s, at, at->least) && !is_refused(&s, at, at->most) &&
                       (at->least == 0 || is_refused(&s, at, at->least - 1)) &&
                       (at->most == widest || is_refused(&s, at, at->most + 1));
        if (!ok)
            fail_msg("%s: %llu to %llu are not its limits", at->field,
                     (unsigned long long)at->least, (unsigned long long)at->most);
    }
}

#define CHECK_LIMITS(good, check, limits)                                                          \
    check_limits((subject){&(good), sizeof(good), check}, limits, sizeof(limits) / sizeof *(limits))

static kvp_status check_cache(const void *config, kvp_why *why)
{
    return kvp_config_check(config, why);
}

TEST(test_a_cache)
{
    kvp_config good = config_of(4, 4, 99);
    good.host_blocks = 40;
    good.max_loads = 3;
    static const limit limits[] = {
        LIMIT(kvp_config, block_tokens, 1, KVP_BLOCK_TOKENS_MAX),
        LIMIT(kvp_config, unit_tokens, 0, 4),
        LIMIT(kvp_config, n_blocks, 2, INT32_MAX),
        LIMIT(kvp_config, max_seqs, 1, 1 << 20),
        LIMIT(kvp_config, max_seq_tokens, 1, INT32_MAX),
        LIMIT(kvp_config, max_namespaces, 1, 65536),
        LIMIT(kvp_config, max_unit_keys, 0, 64),
        LIMIT(kvp_config, n_nodes, 0, INT32_MAX - 1),
        LIMIT(kvp_config, commit_policy, 0, KVP_KEEP),
        LIMIT(kvp_config, full_hit, 0, KVP_FULL_HIT_RECOMPUTE),
        LIMIT(kvp_config, prefix_cache, 0, 1),
        LIMIT(kvp_config, test_hash_bits, 0, 32),
        LIMIT(kvp_config, host_blocks, 0, INT32_MAX),
        LIMIT(kvp_config, keep_evicted, 0, KVP_EVICTED_KEEP_ONCE),
        LIMIT(kvp_config, steps, 0, KVP_STEPS_OVERLAPPED),
        LIMIT(kvp_config, max_steps_out, 1, 64),
        LIMIT(kvp_config, max_tree_tokens, 0, KVP_TREE_TOKENS_MAX),
        LIMIT(kvp_config, n_groups, 1, KVP_GROUPS_MAX),
        LIMIT(kvp_config, quotas, 0, 1),
        LIMIT(kvp_config, max_loads, 0, 4096),
        LIMIT(kvp_config, lent_blocks, 0, 39),
        LIMIT(kvp_config, policy, 0, KVP_POLICY_LEARNED),
        LIMIT(kvp_config, state_slots, 0, 1 << 30),
        LIMIT(kvp_config, host_state_slots, 0, 0),
    };
    CHECK_LIMITS(good, check_cache, limits);
    good.state_slots = good.host_state_slots = 9;
    static const limit above_zero[] = {
        LIMIT(kvp_config, n_nodes, 5, INT32_MAX - 1),
        LIMIT(kvp_config, host_blocks, 2, INT32_MAX),
        LIMIT(kvp_config, state_slots, 2, 1 << 30),
        LIMIT(kvp_config, host_state_slots, 2, 1 << 30),
    };
    CHECK_LIMITS(good, check_cache, above_zero);
}

static kvp_status check_wire(const void *config, kvp_why *why)
{
    return kvp_wire_config_check(config, why);
}

TEST(test_worker_messages)
{
    kvp_wire_config good;
    kvp_wire_config_init(&good);
    good.n_groups = 3;
    static const limit limits[] = {
        LIMIT(kvp_wire_config, block_tokens, 1, KVP_BLOCK_TOKENS_MAX),
        LIMIT(kvp_wire_config, n_blocks, 2, INT32_MAX),
        LIMIT(kvp_wire_config, host_blocks, 0, INT32_MAX),
        LIMIT(kvp_wire_config, max_seqs, 1, KVP_WIRE_MAX_SEQS),
        LIMIT(kvp_wire_config, max_row_blocks, 1, INT32_MAX),
        LIMIT(kvp_wire_config, max_step_tokens, 0, INT32_MAX),
        LIMIT(kvp_wire_config, max_copies, 0, INT32_MAX),
        LIMIT(kvp_wire_config, epoch, 1, UINT64_MAX),
        LIMIT(kvp_wire_config, n_groups, 1, KVP_GROUPS_MAX),
        LIMIT(kvp_wire_config, max_tree_tokens, 0, KVP_TREE_TOKENS_MAX),
        LIMIT(kvp_wire_config, max_moves, 0, INT32_MAX),
        LIMIT(kvp_wire_config, reserved, 0, 0),
        LIMIT(kvp_wire_config, state_slots, 0, INT32_MAX),
        LIMIT(kvp_wire_config, host_state_slots, 0, INT32_MAX),
        LIMIT(kvp_wire_config, group_tokens[0], 0, KVP_BLOCK_TOKENS_MAX),
        LIMIT(kvp_wire_config, group_tokens[2], 0, KVP_BLOCK_TOKENS_MAX),
        LIMIT(kvp_wire_config, group_tokens[3], 0, UINT32_MAX),
    };
    CHECK_LIMITS(good, check_wire, limits);
}

static const kvp_cache *scheduled;

static kvp_status check_sched_config(const void *config, kvp_why *why)
{
    return kvp_sched_config_check(config, scheduled, why);
}

TEST(test_a_scheduler)
{
    kvp_config of_cache = config_of(4, 4, 640);
    of_cache.max_seqs = 12;
    of_cache.state_slots = 200;
    world w = make_world(&of_cache);
    scheduled = w.cache;
    kvp_sched_config good;
    kvp_sched_config_init(&good);
    good.max_requests = 20;
    good.max_running = 10;
    good.draft_tokens = 3;
    good.step_tokens = 64;
    static const limit limits[] = {
        LIMIT(kvp_sched_config, max_requests, 1, 1 << 20),
        LIMIT(kvp_sched_config, max_samples, 20, 1 << 20),
        LIMIT(kvp_sched_config, max_running, 0, 12),
        LIMIT(kvp_sched_config, draft_tokens, 0, 16),
        LIMIT(kvp_sched_config, step_tokens, 40, 1 << 24),
        LIMIT(kvp_sched_config, max_tries, 1, 20),
        LIMIT(kvp_sched_config, preempt, 0, KVP_PREEMPT_CHEAPER),
        LIMIT(kvp_sched_config, swap_ahead, 0, 1),
        LIMIT(kvp_sched_config, max_loading, 0, 20),
        LIMIT(kvp_sched_config, arena_tokens, 0, 64 * (uint64_t)INT32_MAX),
        LIMIT(kvp_sched_config, wait_for_prefix, 0, 1),
        LIMIT(kvp_sched_config, make_way, 0, 1),
        LIMIT(kvp_sched_config, state_rings, 0, 1),
        LIMIT(kvp_sched_config, free_target, 0, 10),
    };
    CHECK_LIMITS(good, check_sched_config, limits);
    good.draft_tokens = 0;
    static const limit without_drafts[] = {LIMIT(kvp_sched_config, state_rings, 0, 0)};
    CHECK_LIMITS(good, check_sched_config, without_drafts);
    end_world(&w);
}

static kvp_status check_transfer(const void *config, kvp_why *why)
{
    return kvp_transfer_config_check(config, why);
}

TEST(test_transfers)
{
    const place_shape shape = small_place();
    place p = make_place(&shape);
    const kvp_transfer_config good = transfer_config_of(&p);
    static const limit limits[] = {
        LIMIT(kvp_transfer_config, max_transfers, 1, 4096),
        LIMIT(kvp_transfer_config, max_links, 1, KVP_TRANSFER_LINKS_MAX),
        LIMIT(kvp_transfer_config, reserved, 0, 0),
    };
    CHECK_LIMITS(good, check_transfer, limits);
    end_place(&p);
}

static kvp_status check_layout(const void *layout, kvp_why *why)
{
    return kvp_layout_check(layout, why);
}

TEST(test_a_layout)
{
    kvp_layout good;
    kvp_layout_init(&good);
    good.type = KVP_F16;
    good.n_blocks = 10;
    good.block_tokens = 4;
    good.n_layers = 2;
    good.n_heads = 3;
    good.k.size = good.v.size = 8;
    assert_ok(kvp_layout_arrange(&good, KVP_ORDER_CPU, NULL));
    static const limit limits[] = {
        LIMIT(kvp_layout, type, KVP_F32, KVP_E4M3),
        LIMIT(kvp_layout, n_blocks, 2, INT32_MAX),
        LIMIT(kvp_layout, block_tokens, 1, KVP_BLOCK_TOKENS_MAX),
        LIMIT(kvp_layout, n_layers, 1, KVP_LAYERS_MAX),
        LIMIT(kvp_layout, n_heads, 1, KVP_HEADS_MAX),
        LIMIT(kvp_layout, k.size, 1, KVP_HEAD_SIZE_MAX),
        LIMIT(kvp_layout, v.size, 0, KVP_HEAD_SIZE_MAX),
        LIMIT(kvp_layout, first_layer, 0, UINT32_MAX - 2),
        LIMIT(kvp_layout, first_head, 0, UINT32_MAX - 3),
        LIMIT(kvp_layout, n_tensors, 1, 4 * KVP_LAYERS_MAX),
        LIMIT(kvp_layout, k_scales.size, 0, 1),
        LIMIT(kvp_layout, v_scales.size, 0, 1),
    };
    CHECK_LIMITS(good, check_layout, limits);
}

TEST_MAIN(NULL, NULL)
