/* Quotas of slots of recurrent state: what counts, whose checkpoints go first, and that queues of
 * blocks keep their order when a checkpoint goes alone (quotas.h, states.h). */
#include <kvpager/states.h>
#include <kvpager/swap.h>

#include "groups.h"
#include "snaps.h"
#include "tenants.h"

#include "core/cache/audit.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/snapshot/ranges.h"

#include <stdlib.h>

static kvp_config slots_config(uint32_t usable, uint32_t usable_slots, uint32_t host)
{
    kvp_config config = tenants_config(usable, host);
    config.state_slots = usable_slots + 1;
    config.host_state_slots = host == 0 ? 0 : 4;
    return config;
}

/* A sequence of n tokens, all computed, with a checkpoint after the last if they end a unit. */
static kvp_seq open_kept(const struct tenants *t, kvp_ns ns, int32_t first, uint32_t n_tokens)
{
    uint32_t outcome = KVP_CHECKPOINT_MADE;
    const kvp_seq seq = open_in(t, ns, first, n_tokens);
    if (n_tokens % 4 == 0)
        assert_ok(kvp_seq_checkpoint(t->w.cache, seq, &outcome));
    assert_int_equal(outcome, KVP_CHECKPOINT_MADE);
    return seq;
}

static void leave_kept(struct tenants *t, kvp_ns ns, int32_t first, uint32_t n_tokens)
{
    close_seq(&t->w, open_kept(t, ns, first, n_tokens));
}

static uint32_t hit_in(const struct tenants *t, kvp_ns ns, int32_t first, uint32_t n_tokens)
{
    const kvp_prompt prompt = prompt_of(ints(first), n_tokens + 1);
    kvp_open_info info;
    assert_ok(kvp_cache_match(t->w.cache, ns, &prompt, &info));
    return info.hit_tokens;
}

static void set_quota(const struct tenants *t, kvp_ns ns, uint32_t n_slots)
{
    assert_ok(kvp_ns_quota(t->w.cache, ns, KVP_STATE_SLOTS, n_slots));
}

#define assert_slots(t, ns, slots_, cached_)                                                       \
    do {                                                                                           \
        assert_int_equal(info_in(t, ns).state_slots, slots_);                                      \
        assert_int_equal(info_in(t, ns).cached_state_slots, cached_);                              \
    } while (0)

/* ---------------------------------------------------------------------------------- what counts */

TEST(test_a_slot_counts_once_from_take_to_free)
{
    const kvp_config config = slots_config(12, 8, 6);
    struct tenants t = make_tenants(&config);
    const kvp_seq seq = open_kept(&t, t.a, 0, 8); /* reads a checkpoint, has one to write */
    assert_slots(&t, t.a, 2, 0);
    const kvp_seq child = fork_seq(&t.w, seq, 8); /* shares the checkpoint; no slot yet */
    assert_slots(&t, t.a, 2, 0);
    assert_ok(kvp_seq_extend(t.w.cache, child, ints(500), 1, 0));
    assert_slots(&t, t.a, 3, 0);
    close_seq(&t.w, child);
    assert_ok(kvp_seq_swap_out(t.w.cache, &seq, 1, NULL)); /* the checkpoint stays, cached */
    assert_slots(&t, t.a, 1, 1);
    assert_int_equal(info_in(&t, t.a).host_state_slots, 1);
    assert_ok(kvp_seq_swap_in(t.w.cache, &seq, 1, 1, NULL)); /* and is found again */
    assert_slots(&t, t.a, 2, 0);
    assert_int_equal(info_in(&t, t.a).host_state_slots, 0);
    assert_slots(&t, t.b, 0, 0);
    assert_ok(kvp_seq_invalidate(t.w.cache, seq, 4, NULL, 0, NULL)); /* no checkpoint any more */
    close_seq(&t.w, seq);
    assert_slots(&t, t.a, 0, 0);
    leave_kept(&t, t.a, 100, 8);
    assert_slots(&t, t.a, 1, 1);
    assert_ok(kvp_ns_flush(t.w.cache, t.a)); /* it is memory that the namespace still has */
    assert_slots(&t, t.a, 1, 1);
    assert_ok(kvp_cache_reset(t.w.cache));
    assert_slots(&t, t.a, 0, 0);
    end_world(&t.w);
}

TEST(test_calls_that_are_refused)
{
    const kvp_config config = slots_config(8, 4, 4);
    struct tenants t = make_tenants(&config);
    set_quota(&t, t.a, 3);
    assert_unchanged(&t.w, {
        assert_status(KVP_E_ARG, kvp_ns_quota(t.w.cache, t.a, KVP_HOST_STATE_SLOTS, 1));
        assert_status(KVP_E_HANDLE, kvp_ns_quota(t.w.cache, (kvp_ns){0}, KVP_STATE_SLOTS, 1));
    });
    assert_int_equal(info_in(&t, t.a).state_quota, 3);
    assert_int_equal(info_in(&t, t.a).quota, KVP_NO_QUOTA);
    assert_int_equal(info_in(&t, t.a).host_quota, KVP_NO_QUOTA);
    assert_int_equal(info_in(&t, t.b).state_quota, KVP_NO_QUOTA);
    assert_ok(kvp_cache_reset(t.w.cache)); /* keeps it */
    assert_int_equal(info_in(&t, t.a).state_quota, 3);
    assert_ok(kvp_ns_close(t.w.cache, t.a)); /* forgets it */
    assert_ok(kvp_ns_open(t.w.cache, "a", 1, &t.a));
    assert_int_equal(info_in(&t, t.a).state_quota, KVP_NO_QUOTA);
    end_world(&t.w);

    kvp_config other = config_of(4, 4, 8);
    other.quotas = 1;
    t = make_tenants(&other);
    assert_status(KVP_E_ARG, kvp_ns_quota(t.w.cache, t.a, KVP_STATE_SLOTS, 1)); /* there are none */
    assert_int_equal(info_in(&t, t.a).state_quota, KVP_NO_QUOTA);
    end_world(&t.w);
    other = slots_config(8, 4, 0);
    other.quotas = 0;
    t = make_tenants(&other);
    assert_status(KVP_E_STATE, kvp_ns_quota(t.w.cache, t.a, KVP_STATE_SLOTS, 1));
    end_world(&t.w);
}

/* ------------------------------------------------------------------------------- who goes first */

/* a has two checkpoints; b has many prompts. Without a quota its checkpoints evict a's. */
TEST(test_a_noisy_namespace_lives_on_its_own_slots)
{
    for (uint32_t quota = 2; quota <= 3; quota++) {
        const kvp_config config = slots_config(40, 5, 0);
        struct tenants t = make_tenants(&config);
        set_quota(&t, t.b, quota == 3 ? KVP_NO_QUOTA : quota);
        leave_kept(&t, t.a, 0, 4);
        leave_kept(&t, t.a, 100, 8);
        for (int32_t i = 2; i < 9; i++)
            leave_kept(&t, t.b, 100 * i, 4);
        assert_int_equal(hit_in(&t, t.a, 0, 4), quota == 3 ? 0 : 4);
        assert_int_equal(hit_in(&t, t.a, 100, 8), quota == 3 ? 0 : 8);
        assert_int_equal(hit_in(&t, t.b, 800, 4), 4); /* the newest */
        assert_int_equal(info_in(&t, t.a).blocks, 3); /* all of the blocks are there in any case */
        end_world(&t.w);
    }
}

/* Those who are over give first, in turns, and only down to their quotas. */
TEST(test_what_is_borrowed_goes_first)
{
    const kvp_config config = slots_config(40, 8, 0);
    struct tenants t = make_tenants(&config);
    leave_kept(&t, t.w.ns, 0, 4); /* the oldest */
    for (int32_t i = 1; i < 4; i++)
        leave_kept(&t, t.a, 100 * i, 4);
    for (int32_t i = 4; i < 7; i++)
        leave_kept(&t, t.b, 100 * i, 4);
    set_quota(&t, t.a, 2);
    set_quota(&t, t.b, 2);
    const kvp_seq seq = open_kept(&t, t.w.ns, 700, 4);  /* takes the free one, and a's */
    const kvp_seq next = open_kept(&t, t.w.ns, 800, 3); /* b's */
    assert_slots(&t, t.a, 2, 2);
    assert_slots(&t, t.b, 2, 2);
    assert_slots(&t, t.w.ns, 4, 1);
    assert_int_equal(hit_in(&t, t.a, 100, 4), 0);
    assert_int_equal(hit_in(&t, t.b, 400, 4), 0);
    const kvp_seq last = open_kept(&t, t.w.ns, 900, 3); /* nobody is over: the queue's first */
    assert_int_equal(hit_in(&t, t.w.ns, 0, 4), 0);
    assert_slots(&t, t.a, 2, 2);
    assert_slots(&t, t.b, 2, 2);
    close_seq(&t.w, seq);
    close_seq(&t.w, next);
    close_seq(&t.w, last);
    end_world(&t.w);
}

/* A namespace that has its quota takes its own oldest checkpoint, not the oldest of all. */
TEST(test_a_full_namespace_takes_its_own)
{
    const kvp_config config = slots_config(40, 5, 0);
    struct tenants t = make_tenants(&config);
    for (int32_t i = 0; i < 4; i++)
        leave_kept(&t, i < 2 ? t.a : t.b, 100 * i, 4);
    set_quota(&t, t.b, 2);
    const kvp_seq last = open_kept(&t, t.w.ns, 400, 3); /* takes the last free one */
    const kvp_seq seq = open_kept(&t, t.b, 500, 3);
    assert_int_equal(hit_in(&t, t.a, 0, 4), 4);
    assert_int_equal(hit_in(&t, t.b, 200, 4), 0);
    assert_int_equal(hit_in(&t, t.b, 300, 4), 4);
    close_seq(&t.w, last);
    close_seq(&t.w, seq);
    end_world(&t.w);
}

/* A quota refuses nothing: with all its slots held, a namespace takes from the queue. */
TEST(test_a_full_namespace_takes_others)
{
    const kvp_config config = slots_config(40, 3, 0);
    struct tenants t = make_tenants(&config);
    leave_kept(&t, t.a, 0, 4);
    set_quota(&t, t.b, 1);
    const kvp_seq one = open_kept(&t, t.b, 100, 3);
    const kvp_seq two = open_kept(&t, t.b, 200, 3);
    assert_slots(&t, t.b, 2, 0);
    const kvp_seq three = open_kept(&t, t.b, 300, 3);
    assert_slots(&t, t.b, 3, 0);
    assert_slots(&t, t.a, 0, 0);
    close_seq(&t.w, one);
    close_seq(&t.w, two);
    close_seq(&t.w, three);
    end_world(&t.w);
}

/* -------------------------------------------------------------------------- the order of blocks */

/* The blocks that a checkpoint alone made reachable go first in the queue of all, and in that of
 * their namespace: whoever is over gives them first. */
TEST(test_what_is_unreachable_is_given_first)
{
    const kvp_config config = slots_config(6, 2, 0);
    struct tenants t = make_tenants(&config);
    leave_kept(&t, t.a, 0, 4); /* block 1 */
    leave_kept(&t, t.a, 100,
               8); /* blocks 3, 2; its slot to go on with evicts the checkpoint at 0 */
    assert_slots(&t, t.a, 1, 1);
    assert_queue(&t.w, 0, 4, 5, 6, 1, 3, 2);
    const kvp_seq seq =
        open_kept(&t, t.b, 200, 8); /* 4, 5; evicts the checkpoint at 8: 3, 2 first */
    assert_queue(&t.w, 0, 6, 3, 2, 1);
    set_quota(&t, t.a, 0);
    assert_ok(kvp_ns_quota(t.w.cache, t.a, KVP_DEVICE, 0));
    assert_ok(kvp_seq_extend(t.w.cache, seq, ints(300), 8, 0)); /* the free one, and a's first */
    assert_row(&t.w, seq, 4, 5, 6, 3);
    assert_ok(kvp_cache_check(t.w.cache, 3, NULL));
    close_seq(&t.w, seq);
    end_world(&t.w);
}

/* ------------------------------------------------------------------------------------ snapshots */

TEST(test_restored_checkpoints_count)
{
    const kvp_config config = slots_config(12, 6, 0);
    struct tenants t = make_tenants(&config);
    leave_kept(&t, t.a, 0, 8);
    leave_kept(&t, t.b, 100, 4);
    leave_kept(&t, t.b, 200, 4);
    const kvp_snapshot_options options = snap_options();
    snap s = snap_of(t.w.cache, &options);
    end_world(&t.w);
    kvp_cache *cache;
    kvp_snapshot_report report;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    assert_ok(snap_load(&s, cache, &report));
    snap_drop(&s);
    t.w.cache = cache;
    assert_ok(kvp_ns_open(cache, "a", 1, &t.a));
    assert_ok(kvp_ns_open(cache, "b", 1, &t.b));
    assert_slots(&t, t.a, 1, 1);
    assert_slots(&t, t.b, 2, 2);
    assert_int_equal(info_in(&t, t.b).state_quota, KVP_NO_QUOTA);
    assert_ok(kvp_cache_check(cache, 3, NULL));
    kvp_cache_destroy(cache);
}

/* ------------------------------------------------------------------------------------ the audit */

static struct tenants make_scene(kvp_seq *out_seq)
{
    const kvp_config config = slots_config(12, 6, 6);
    struct tenants t = make_tenants(&config);
    leave_kept(&t, t.a, 0, 8);
    *out_seq = open_kept(&t, t.b, 100, 8);
    return t;
}

static struct kvpi_quotas *slot_quotas(const struct tenants *t)
{
    return &t->w.cache->states.pool.quotas;
}

TEST(test_planted_faults_are_named)
{
    for (uint32_t i = 0; i < 4; i++) {
        kvp_seq seq;
        kvp_violation violation;
        struct tenants t = make_scene(&seq);
        const struct kvpi_state *its = kvpi_states_of(t.w.cache, kvpi_find_seq(t.w.cache, seq));
        const uint32_t slot = i == 0 ? its->read : its->write;
        const uint32_t cached = kvpi_block(&t.w.cache->states.pool, t.w.cache->states.pool.n_blocks)
                                    ->prev; /* of a, the tail of class 0 */
        assert_true(kvpi_audit(t.w.cache, 3, NULL));
        if (i < 2) { /* counts for another one, whose count is right */
            kvpi_quotas_disown(slot_quotas(&t), slot);
            kvpi_quotas_own(slot_quotas(&t), slot, t.a.bits);
        } else if (i == 2) {
            kvpi_quotas_unlink(slot_quotas(&t), cached, 0);
            kvpi_quotas_disown(slot_quotas(&t), cached);
            kvpi_quotas_own(slot_quotas(&t), cached, t.b.bits);
            kvpi_quotas_link(slot_quotas(&t), cached, 0, 0);
        } else {
            kvpi_account(slot_quotas(&t), 1)->n_blocks++;
        }
        assert_false(kvpi_audit(t.w.cache, 3, &violation));
        assert_string_equal(violation.invariant, "Q1");
        free(t.w.arena);
    }
}

TEST(test_rings_that_lead_outside_are_not_followed)
{
    for (uint32_t i = 0; i < 2; i++) {
        kvp_seq seq;
        kvp_violation violation;
        struct tenants t = make_scene(&seq);
        struct kvpi_states *states = &t.w.cache->states;
        struct kvpi_quotas *quotas = i == 0 ? &states->pool.quotas : &states->host.quotas;
        assert_true(kvpi_in_range(t.w.cache, &violation));
        kvpi_owned(quotas, 1)->next = (uint32_t)kvpi_quotas_n_owned(quotas);
        assert_false(kvpi_in_range(t.w.cache, &violation));
        assert_string_equal(violation.invariant, "Q3");
        free(t.w.arena);
    }
}

TEST_MAIN(NULL, NULL)
