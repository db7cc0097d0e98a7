/* Namespaces: one handle per name, nothing shared across two (W1), and forgetting. */
#include <string.h>

#include "world.h"

#include "core/cache/state.h"

static kvp_ns open_ns(world *w, const void *name, size_t name_bytes)
{
    kvp_ns ns;
    assert_ok(kvp_ns_open(w->cache, name, name_bytes, &ns));
    return ns;
}

static kvp_status match_in(world *w, kvp_ns ns, const int32_t *tokens, uint32_t n,
                           kvp_open_info *out_info)
{
    const kvp_prompt prompt = prompt_of(tokens, n);
    return kvp_cache_match(w->cache, ns, &prompt, out_info);
}

static uint32_t hit_in(world *w, kvp_ns ns, const int32_t *tokens, uint32_t n)
{
    kvp_open_info info;
    assert_ok(match_in(w, ns, tokens, n, &info));
    return info.hit_tokens;
}

static kvp_seq open_in(world *w, kvp_ns ns, const int32_t *tokens, uint32_t n)
{
    const kvp_prompt prompt = prompt_of(tokens, n);
    kvp_seq seq;
    assert_ok(kvp_seq_open(w->cache, ns, &prompt, &seq, NULL));
    assert_ok(kvp_seq_commit(w->cache, seq, n));
    return seq;
}

TEST(test_a_name_that_is_open_gives_the_same_handle)
{
    scoped_world w = small_world(7);
    const kvp_ns first = open_ns(&w, "llama", 5);
    assert_int_equal(open_ns(&w, "llama", 5).bits, first.bits);
    assert_int_equal(stats_of(&w).open_namespaces, 2);
    assert_ok(kvp_ns_close(w.cache, first)); /* one opener is left */
    assert_int_equal(open_ns(&w, "llama", 5).bits, first.bits);
    assert_ok(kvp_ns_close(w.cache, first));
    assert_ok(kvp_ns_close(w.cache, first));
    assert_status(KVP_E_HANDLE, kvp_ns_close(w.cache, first));
    assert_int_equal(stats_of(&w).open_namespaces, 1);
}

TEST(test_names_are_compared_byte_by_byte)
{
    kvp_config config = config_of(4, 4, 7);
    config.max_namespaces = 8;
    scoped_world w = make_world(&config);
    char longest[KVP_NAME_MAX_BYTES + 1];
    memset(longest, 'x', sizeof(longest));
    const kvp_ns spaces[] = {w.ns,
                             open_ns(&w, "a", 1),
                             open_ns(&w, "a\0", 2),
                             open_ns(&w, "a\0b", 3),
                             open_ns(&w, "a\0c", 3),
                             open_ns(&w, longest, KVP_NAME_MAX_BYTES),
                             open_ns(&w, longest, KVP_NAME_MAX_BYTES - 1)};
    for (size_t i = 0; i < 7; i++)
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(spaces[i].bits, spaces[k].bits);
    longest[KVP_NAME_MAX_BYTES - 1] = 'y';
    assert_int_not_equal(open_ns(&w, longest, KVP_NAME_MAX_BYTES).bits, spaces[5].bits);
    kvp_ns ns = {77};
    assert_unchanged(&w, assert_status(KVP_E_ARG, kvp_ns_open(w.cache, longest, 256, &ns)));
    assert_int_equal(ns.bits, 77);
    assert_int_equal(open_ns(&w, "", 0).bits, w.ns.bits);
}

TEST(test_all_open_is_refused_until_one_is_closed)
{
    scoped_world w = small_world(7); /* four namespaces */
    const kvp_ns b = open_ns(&w, "b", 1);
    (void)open_ns(&w, "c", 1);
    (void)open_ns(&w, "d", 1);
    kvp_ns ns = {77};
    assert_unchanged(&w, assert_status(KVP_E_NO_NAMESPACES, kvp_ns_open(w.cache, "e", 1, &ns)));
    assert_int_equal(ns.bits, 77);
    assert_shortage(&w, KVP_E_NO_NAMESPACES, 0, 0);
    assert_int_equal(open_ns(&w, "b", 1).bits, b.bits); /* an open one needs no place */
    assert_ok(kvp_ns_close(w.cache, b));
    assert_ok(kvp_ns_close(w.cache, b));
    ns = open_ns(&w, "e", 1);
    assert_int_not_equal(ns.bits, b.bits);
    assert_status(KVP_E_HANDLE, kvp_ns_flush(w.cache, b));
}

TEST(test_without_a_node_for_its_root_a_namespace_does_not_open)
{
    kvp_config config = config_of(4, 4, 7);
    config.max_namespaces = 2;
    config.n_nodes = 3;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    kvp_ns ns = {77};
    assert_unchanged(&w, assert_status(KVP_E_NO_NAMESPACES, kvp_ns_open(w.cache, "b", 1, &ns)));
    assert_int_equal(ns.bits, 77);
    assert_ok(kvp_seq_truncate(w.cache, seq, 4, NULL)); /* the second unit's block stays cached */
    assert_status(KVP_E_NO_NAMESPACES, kvp_ns_open(w.cache, "b", 1, &ns));
    assert_ok(kvp_seq_invalidate(w.cache, seq, 0, NULL, 0, NULL));
    close_seq(&w, seq);
    assert_ok(kvp_cache_reset(w.cache));
    assert_ok(kvp_ns_open(w.cache, "b", 1, &ns));
}

TEST(test_two_namespaces_share_nothing)
{
    scoped_world w = small_world(7);
    const kvp_ns other = open_ns(&w, "other", 5);
    const kvp_seq ours = open_done(&w, ints(0), 8);
    assert_int_equal(hit_in(&w, other, ints(0), 8), 0);
    const kvp_seq theirs = open_in(&w, other, ints(0), 8); /* nothing is adopted either */
    assert_row(&w, ours, 1, 2);
    assert_row(&w, theirs, 3, 4);
    const kvp_hash a = block_of(&w, 1).hash;
    const kvp_hash b = block_of(&w, 3).hash;
    assert_memory_not_equal(&a, &b, sizeof(a));
    close_seq(&w, ours);
    close_seq(&w, theirs);
    assert_int_equal(hit_in(&w, w.ns, ints(0), 8), 8);
    assert_int_equal(hit_in(&w, other, ints(0), 8), 8);
    assert_ok(kvp_ns_flush(w.cache, other));
    assert_int_equal(hit_in(&w, w.ns, ints(0), 8), 8);
    assert_int_equal(hit_in(&w, other, ints(0), 8), 0);
}

/* Not even when all hashes are equal. */
TEST(test_two_namespaces_share_nothing_with_no_bit_of_the_hash)
{
    for (uint32_t bits = 1; bits <= 2; bits++) {
        kvp_config config = config_of(4, 4, 15);
        config.test_hash_bits = bits;
        scoped_world w = make_world(&config);
        const kvp_ns spaces[] = {w.ns, open_ns(&w, "b", 1), open_ns(&w, "c", 1)};
        for (int32_t i = 0; i < 3; i++) {
            assert_int_equal(hit_in(&w, spaces[i], ints(0), 8), 0);
            close_seq(&w, open_in(&w, spaces[i], ints(0), 8));
            assert_int_equal(hit_in(&w, spaces[i], ints(0), 8), 8);
        }
    }
}

TEST(test_a_flushed_namespace_has_nothing_cached_and_its_blocks_go_in_their_turn)
{
    scoped_world w = small_world(3);
    const kvp_evicted *evicted;
    leave_cached(&w, ints(0), 8);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
    assert_int_equal(match(&w, ints(0), 8).stop, KVP_STOP_MISS);
    assert_int_equal(stats_of(&w).cached_blocks, 2);
    assert_queue(&w, 0, 3, 2, 1);
    const kvp_seq seq = open_seq(&w, ints(0), 12, NULL); /* all anew; the old ones are evicted */
    assert_row(&w, seq, 3, 2, 1);
    assert_int_equal(evicted_of(&w, &evicted), 2);
    assert_int_equal(evicted[0].block, 2);
    assert_int_equal(evicted[1].block, 1);
    assert_int_equal(stats_of(&w).nodes_used, 4);
}

TEST(test_a_flush_of_nothing_does_nothing)
{
    scoped_world w = small_world(3);
    const uint64_t nodes = stats_of(&w).nodes_used;
    assert_unchanged(&w, assert_ok(kvp_ns_flush(w.cache, w.ns)));
    assert_int_equal(stats_of(&w).nodes_used, nodes);
}

TEST(test_open_sequences_go_on_after_a_flush_unseen)
{
    scoped_world w = small_world(15);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    assert_ok(kvp_seq_extend(w.cache, seq, ints(6), 6, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 12));
    assert_int_equal(info_of(&w, seq).public_tokens, 12); /* a flush does not show here */
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 0);
    const kvp_seq anew = open_done(&w, ints(0), 12); /* does not meet the old one */
    assert_row(&w, anew, 4, 5, 6);
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 12);
    close_seq(&w, seq);
    assert_int_equal(match(&w, ints(0), 12).hit_tokens, 12);
}

TEST(test_a_close_flushes_and_a_reopened_name_begins_empty)
{
    scoped_world w = small_world(7);
    kvp_open_info info;
    const kvp_ns ns = open_ns(&w, "tenant", 6);
    const kvp_seq seq = open_in(&w, ns, ints(0), 8);
    assert_ok(kvp_ns_close(w.cache, ns));
    assert_status(KVP_E_HANDLE, match_in(&w, ns, ints(0), 8, &info));
    assert_ok(kvp_seq_extend(w.cache, seq, ints(8), 1, 0)); /* undisturbed */
    assert_int_equal(info_of(&w, seq).ns.bits, ns.bits);
    const kvp_ns anew = open_ns(&w, "tenant", 6);
    assert_int_not_equal(anew.bits, ns.bits);
    assert_int_equal(hit_in(&w, anew, ints(0), 8), 0);
    close_seq(&w, seq);
    assert_int_equal(hit_in(&w, anew, ints(0), 8), 0);
}

/* --------------------------------------------------------------------- flush without a new root */

TEST(test_without_a_node_a_flush_takes_the_first_units_away)
{
    kvp_config config = config_of(4, 4, 15);
    config.max_namespaces = 1;
    config.n_nodes = 4;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    const kvp_seq branch = open_seq(&w, ints(100), 4, NULL);
    assert_int_equal(stats_of(&w).nodes_used, 4);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
    assert_int_equal(match(&w, ints(100), 4).hit_tokens, 0);
    close_seq(&w, branch);                               /* leaves a node */
    assert_int_equal(info_of(&w, seq).public_tokens, 0); /* private for good */
    assert_ok(kvp_seq_truncate(w.cache, seq, 2, NULL));
    assert_ok(kvp_seq_extend(w.cache, seq, ints(2), 2, 0));
    assert_ok(kvp_seq_commit(w.cache, seq, 4));
    assert_fields(info_of(&w, seq), public_tokens, 0, kept_tokens, 4);
    assert_int_equal(match(&w, ints(0), 4).hit_tokens, 0);
    close_seq(&w, seq);
}

TEST(test_private_for_good_holds_for_children_too)
{
    kvp_config config = config_of(4, 4, 15);
    config.max_namespaces = 1;
    config.n_nodes = 3;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    const kvp_seq child = fork_seq(&w, seq, 0);
    close_seq(&w, seq);
    assert_ok(kvp_seq_extend(w.cache, child, ints(50), 4, 0));
    assert_int_equal(info_of(&w, child).public_tokens, 0);
}

/* -------------------------------------------------------------------------------------- handles */

TEST(test_a_place_is_retired_at_its_last_generation)
{
    scoped_world w = small_world(7);
    struct kvpi_space *spaces = kvpi_at(w.cache, w.cache->spaces_at);
    const uint64_t last = kvpi_handle_last_generation(w.cache->space_bits);
    for (uint32_t place = 1; place < 4; place++)
        spaces[place].generation = place == 2 ? last - 2 : last; /* 1 and 3 are used up */
    const kvp_ns ns = open_ns(&w, "x", 1);
    assert_ok(kvp_ns_flush(w.cache, ns));
    kvp_ns none;
    assert_status(KVP_E_NO_NAMESPACES, kvp_ns_open(w.cache, "y", 1, &none));
    assert_ok(kvp_ns_close(w.cache, ns));
    assert_int_equal(spaces[2].generation, last);
    assert_status(KVP_E_HANDLE, kvp_ns_flush(w.cache, ns));
    assert_status(KVP_E_NO_NAMESPACES, kvp_ns_open(w.cache, "x", 1, &none));
}

TEST(test_made_up_handles_are_refused)
{
    kvp_config config = config_of(4, 4, 7);
    config.max_namespaces = 3; /* places take 2 bits: a fourth can be named */
    scoped_world w = make_world(&config);
    assert_status(KVP_E_HANDLE, kvp_ns_flush(w.cache, (kvp_ns){0}));
    assert_status(KVP_E_HANDLE, kvp_ns_flush(w.cache, (kvp_ns){UINT64_MAX}));
    for (uint32_t bit = 0; bit < 64; bit++) {
        const kvp_ns ns = {w.ns.bits ^ (uint64_t)1 << bit};
        assert_status(KVP_E_HANDLE, kvp_ns_flush(w.cache, ns));
    }
    assert_status(KVP_E_HANDLE, kvp_ns_flush(w.cache, (kvp_ns){w.ns.bits | 3}));
}

TEST_MAIN(NULL, NULL)
