/* Creation: what a configuration may hold, the arena and its size, a copy of it as a snapshot,
 * reset and the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

/* ---------------------------------------------------------------------------- the configuration */

/* Up to the end of its last field: what fills the struct up after that is nobody's. */
#define CONFIG_BYTES (offsetof(kvp_config, max_events) + sizeof(uint32_t))

TEST(test_the_defaults_are_those_of_the_header)
{
    kvp_config config;
    memset(&config, 0xA5, sizeof(config));
    kvp_config_init(&config);
    kvp_config expected;
    memset(&expected, 0, sizeof(expected));
    expected.struct_size = sizeof(expected);
    expected.block_tokens = 16;
    expected.n_blocks = 1024;
    expected.max_seqs = 256;
    expected.max_seq_tokens = 32768;
    expected.max_namespaces = 16;
    expected.prefix_cache = 1;
    expected.keep_evicted = 1;
    expected.max_steps_out = 4;
    assert_memory_equal(&config, &expected, CONFIG_BYTES);
    kvp_config_init(NULL);
}

struct field {
    size_t at;
    uint32_t value;
};

#define FIELD(name, value)                                                                         \
    {                                                                                              \
        offsetof(kvp_config, name), value                                                          \
    }

static void expect_config(const kvp_config *config, kvp_status expected)
{
    size_t bytes = 77;
    kvp_cache *cache = NULL;
    assert_status(expected, kvp_cache_bytes(config, &bytes));
    if (expected != KVP_OK) {
        assert_int_equal(bytes, 77);
        assert_status(expected, kvp_cache_create(config, NULL, 0, &cache));
        assert_null(cache);
    }
}

/* What has no place in memory of 32 bits is not taken there, and says so. */
static void expect_taken(const kvp_config *config)
{
    size_t bytes = 77;
    const kvp_status status = kvp_cache_bytes(config, &bytes);
    if (SIZE_MAX > UINT32_MAX || status != KVP_E_TOO_LONG)
        assert_ok(status);
}

static kvp_config with_field(const struct field *field)
{
    kvp_config config = config_of(4, 4, 7);
    memcpy((char *)&config + field->at, &field->value, sizeof(field->value));
    return config;
}

TEST(test_every_field_out_of_range_is_refused)
{
    static const struct field fields[] = {
        FIELD(block_tokens, 0),
        FIELD(block_tokens, 65537),
        FIELD(block_tokens, 6), /* units of 4 do not divide it */
        FIELD(unit_tokens, 3),
        FIELD(unit_tokens, 8),
        FIELD(n_blocks, 0),
        FIELD(n_blocks, 1),
        FIELD(n_blocks, 1u << 31),
        FIELD(max_seqs, 0),
        FIELD(max_seqs, (1u << 20) + 1),
        FIELD(max_seq_tokens, 0),
        FIELD(max_seq_tokens, 1u << 31),
        FIELD(max_namespaces, 0),
        FIELD(max_namespaces, 65537),
        FIELD(n_nodes, 4), /* max_namespaces */
        FIELD(n_nodes, INT32_MAX),
        FIELD(max_unit_keys, 65),
        FIELD(commit_policy, 2),
        FIELD(policy, 2),
        FIELD(full_hit, 2),
        FIELD(prefix_cache, 2),
        FIELD(n_uncached_tokens, 1), /* and no set */
        FIELD(test_hash_bits, 33),
        FIELD(host_blocks, 1),
        FIELD(host_blocks, 1u << 31),
        FIELD(keep_evicted, 3),
        FIELD(steps, 2),
        FIELD(max_steps_out, 0),
        FIELD(max_steps_out, 65),
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        const kvp_config config = with_field(&fields[i]);
        expect_config(&config, KVP_E_ARG);
    }
}

TEST(test_every_field_at_its_bound_is_taken)
{
    static const struct field fields[] = {
        FIELD(block_tokens, 65536),
        FIELD(unit_tokens, 0),
        FIELD(unit_tokens, 1),
        FIELD(n_blocks, 2),
        FIELD(n_blocks, INT32_MAX),
        FIELD(max_seqs, 1),
        FIELD(max_seqs, 1u << 20),
        FIELD(max_seq_tokens, 1),
        FIELD(max_namespaces, 1),
        FIELD(max_namespaces, 65536),
        FIELD(n_nodes, 5),
        FIELD(n_nodes, INT32_MAX - 1),
        FIELD(max_unit_keys, 64),
        FIELD(max_copies, 1),
        FIELD(commit_policy, 1),
        FIELD(full_hit, 1),
        FIELD(prefix_cache, 0),
        FIELD(test_hash_bits, 32),
        FIELD(max_seq_tokens, INT32_MAX),
        FIELD(host_blocks, 2),
        FIELD(host_blocks, INT32_MAX),
        FIELD(keep_evicted, 0),
        FIELD(keep_evicted, 2),
        FIELD(steps, 1),
        FIELD(max_steps_out, 1),
        FIELD(max_steps_out, 64),
        FIELD(max_events, 1),
        FIELD(max_events, 1u << 20),
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        const kvp_config config = with_field(&fields[i]);
        expect_taken(&config);
    }
}

TEST(test_the_watermark_is_a_fraction)
{
    const struct {
        double watermark;
        kvp_status status;
    } cases[] = {{0.0, KVP_OK},         {0.999, KVP_OK},  {1.0, KVP_E_ARG},
                 {-0.001, KVP_E_ARG},   {NAN, KVP_E_ARG}, {INFINITY, KVP_E_ARG},
                 {-INFINITY, KVP_E_ARG}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        kvp_config config = config_of(4, 4, 7);
        config.watermark = cases[i].watermark;
        expect_config(&config, cases[i].status);
    }
}

TEST(test_another_struct_size_is_refused)
{
    kvp_config config = config_of(4, 4, 7);
    config.struct_size--;
    expect_config(&config, KVP_E_ARG);
    config.struct_size = 0;
    expect_config(&config, KVP_E_ARG);
    expect_config(NULL, KVP_E_ARG);
}

TEST(test_too_many_units_for_32_bits_are_refused)
{
    kvp_config config = config_of(4, 1, 7);
    config.n_blocks = 1u << 30;
    expect_config(&config, KVP_E_ARG);
    config.n_blocks = (1u << 30) - 1;
    expect_taken(&config);
}

TEST(test_the_configuration_reads_back_resolved)
{
    static const int32_t set[] = {9, 3, 7};
    kvp_config config = config_of(4, 0, 7);
    config.max_copies = 0;
    config.n_uncached_tokens = 3;
    config.uncached_tokens = set;
    world w = make_world(&config);
    kvp_config resolved;
    assert_ok(kvp_cache_config_get(w.cache, &resolved));
    assert_int_equal(resolved.unit_tokens, 4);
    assert_true(resolved.n_nodes >= 7 + config.max_namespaces);
    assert_fields(resolved, max_copies, config.max_seqs + 64, n_uncached_tokens, 3);
    assert_ptr_not_equal(resolved.uncached_tokens, set); /* copied: the same ids in any order */
    int32_t sum = 0;
    for (uint32_t i = 0; i < 3; i++)
        sum += resolved.uncached_tokens[i];
    assert_int_equal(sum, 19);
    resolved.unit_tokens = config.unit_tokens;
    resolved.n_nodes = config.n_nodes;
    resolved.max_copies = config.max_copies;
    resolved.uncached_tokens = config.uncached_tokens;
    assert_memory_equal(&resolved, &config, CONFIG_BYTES);
    end_world(&w);

    w = small_world(7);
    assert_ok(kvp_cache_config_get(w.cache, &resolved));
    assert_null(resolved.uncached_tokens);
    end_world(&w);
}

TEST(test_a_host_tier_gives_the_plan_room_for_every_block)
{
    kvp_config config = config_of(4, 4, 7);
    config.host_blocks = 2;
    world w = make_world(&config);
    kvp_config resolved;
    assert_ok(kvp_cache_config_get(w.cache, &resolved));
    assert_int_equal(resolved.max_copies, config.max_seqs + 64 + config.n_blocks);
    end_world(&w);
    config.max_copies = 5;
    w = make_world(&config);
    assert_ok(kvp_cache_config_get(w.cache, &resolved));
    assert_int_equal(resolved.max_copies, 5);
    end_world(&w);
}

/* Units that lost their blocks keep their nodes while what follows them is cached on some tier. */
TEST(test_a_host_tier_gives_a_node_more_for_every_four_units)
{
    kvp_config config = config_of(4, 4, 100);
    config.n_nodes = 0;
    config.host_blocks = 401;
    scoped_world w = make_world(&config);
    kvp_config resolved;
    assert_ok(kvp_cache_config_get(w.cache, &resolved));
    const uint32_t units = resolved.n_blocks - 1 + 401;
    assert_true(resolved.n_nodes >= units + units / 4 + config.max_seqs + config.max_namespaces);
}

/* And more of them with states: what lies behind an evicted checkpoint stays longer. */
TEST(test_states_give_a_node_more_for_every_unit)
{
    kvp_config config = config_of(4, 4, 100);
    config.n_nodes = 0;
    config.state_slots = 2;
    scoped_world w = make_world(&config);
    kvp_config resolved;
    assert_ok(kvp_cache_config_get(w.cache, &resolved));
    assert_true(resolved.n_nodes >=
                2 * (resolved.n_blocks - 1) + config.max_seqs + config.max_namespaces);
}

TEST(test_the_largest_pool_gets_as_many_nodes_as_there_can_be)
{
    kvp_config config = config_of(4, 1, 7);
    if (SIZE_MAX == UINT32_MAX)
        skip();
    config.n_blocks = (1u << 30) - 1;
    size_t few, most;
    config.n_nodes = 0;
    assert_ok(kvp_cache_bytes(&config, &few));
    config.n_nodes = INT32_MAX - 1;
    assert_ok(kvp_cache_bytes(&config, &most));
    assert_int_equal(few, most);
}

TEST(test_the_largest_pool_gets_as_many_copies_as_there_can_be)
{
    kvp_config config = config_of(4, 4, 7);
    if (SIZE_MAX == UINT32_MAX)
        skip();
    config.n_blocks = INT32_MAX;
    config.host_blocks = 2;
    size_t some, most;
    config.max_copies = 0;
    assert_ok(kvp_cache_bytes(&config, &some));
    config.max_copies = INT32_MAX;
    assert_ok(kvp_cache_bytes(&config, &most));
    assert_int_equal(some, most);
}

/* ------------------------------------------------------------------------------------ the arena */

TEST(test_cache_bytes_is_exactly_what_create_takes)
{
    const kvp_config config = config_of(4, 2, 7);
    size_t bytes;
    kvp_cache *cache = NULL;
    assert_ok(kvp_cache_bytes(&config, &bytes));
    uint8_t *arena = aligned_alloc(64, bytes + 64);
    assert_non_null(arena);
    memset(arena, 0xA5, bytes + 64);
    assert_status(KVP_E_TOO_SMALL, kvp_cache_create(&config, arena, bytes - 1, &cache));
    assert_status(KVP_E_TOO_SMALL, kvp_cache_create(&config, arena, 0, &cache));
    assert_null(cache);
    assert_int_equal(arena[0], 0xA5);
    assert_ok(kvp_cache_create(&config, arena, bytes, &cache));
    assert_ptr_equal(cache, arena);
    for (size_t i = bytes; i < bytes + 64; i++)
        assert_int_equal(arena[i], 0xA5);
    kvp_cache_destroy(cache);
    free(arena);
}

TEST(test_a_misaligned_arena_is_refused)
{
    const kvp_config config = config_of(4, 4, 7);
    size_t bytes;
    kvp_cache *cache = NULL;
    assert_ok(kvp_cache_bytes(&config, &bytes));
    char *arena = aligned_alloc(64, bytes + 64);
    assert_non_null(arena);
    for (size_t off = 1; off < 64; off++)
        assert_status(KVP_E_ARG, kvp_cache_create(&config, arena + off, bytes, &cache));
    assert_null(cache);
    free(arena);
}

TEST(test_missing_pointers_are_refused)
{
    const kvp_config config = config_of(4, 4, 7);
    assert_status(KVP_E_ARG, kvp_cache_bytes(&config, NULL));
    assert_status(KVP_E_ARG, kvp_cache_create(&config, NULL, 0, NULL));
    kvp_cache_destroy(NULL);
}

TEST(test_an_arena_that_the_system_does_not_have_is_no_memory)
{
    kvp_config config = config_of(4, 4, 7);
    kvp_cache *cache = NULL;
    size_t bytes;
    config.max_seqs = 1u << 20;
    config.max_seq_tokens = INT32_MAX;
#if SIZE_MAX == UINT32_MAX
    assert_status(KVP_E_TOO_LONG, kvp_cache_bytes(&config, &bytes));
    assert_status(KVP_E_TOO_LONG, kvp_cache_create(&config, NULL, 0, &cache));
#else
    assert_ok(kvp_cache_bytes(&config, &bytes));
    if (bytes < (size_t)1 << 47)
        skip(); /* somebody could have it */
    assert_status(KVP_E_NO_MEMORY, kvp_cache_create(&config, NULL, 0, &cache));
#endif
    assert_null(cache);
}

static void use_a_little(world *w)
{
    const kvp_seq seq = open_done(w, ints(0), 10);
    assert_ok(kvp_seq_extend(w->cache, seq, ints(10), 3, 2));
    (void)fork_seq(w, seq, 6);
    leave_cached(w, ints(100), 12);
}

TEST(test_a_mapped_arena_does_the_same_as_the_callers)
{
    const kvp_config config = config_of(4, 2, 15);
    scoped_world w = make_world(&config);
    world mapped = w;
    assert_ok(kvp_cache_create(&config, NULL, 0, &mapped.cache));
    assert_ok(kvp_ns_open(mapped.cache, NULL, 0, &mapped.ns));
    use_a_little(&w);
    use_a_little(&mapped);
    const kvp_stats a = stats_of(&w);
    const kvp_stats b = stats_of(&mapped);
    assert_memory_equal(&a, &b, sizeof(a));
    for (int32_t block = 0; block < 16; block++) {
        const kvp_block_info x = block_of(&w, block);
        const kvp_block_info y = block_of(&mapped, block);
        assert_memory_equal(&x, &y, sizeof(x));
    }
    assert_ok(kvp_cache_check(mapped.cache, 3, NULL));
    kvp_cache_destroy(mapped.cache);
}

TEST(test_a_handle_of_another_cache_is_refused_though_all_else_is_equal)
{
    scoped_world a = small_world(7);
    scoped_world b = small_world(7);
    const kvp_seq of_a = open_done(&a, ints(0), 4);
    const kvp_seq of_b = open_done(&b, ints(0), 4);
    assert_int_not_equal(of_a.bits, of_b.bits);
    assert_status(KVP_E_HANDLE, kvp_seq_commit(a.cache, of_b, 1));
    assert_status(KVP_E_HANDLE, kvp_ns_flush(a.cache, b.ns));
}

/* ------------------------------------------------------------------------------------ snapshots */

static world copy_world(const world *w)
{
    world copy = *w;
    copy.arena = aligned_alloc(64, w->arena_bytes);
    assert_non_null(copy.arena);
    memcpy(copy.arena, w->arena, w->arena_bytes);
    copy.cache = copy.arena;
    return copy;
}

TEST(test_a_byte_copy_of_the_arena_goes_on_with_the_same_handles)
{
    const kvp_config config = config_of(4, 2, 15);
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(100), 12);
    const kvp_seq seq = open_done(&w, ints(0), 9);
    const kvp_seq child = fork_seq(&w, seq, 7);
    assert_ok(kvp_seq_extend(w.cache, child, ints(50), 2, 0)); /* a copy waits in the plan */

    scoped_world copy = copy_world(&w);
    observed before = observe(&w);
    observed copied = observe(&copy);
    assert_true(same_observed(&before, &copied));
    drop_observed(&copied);

    kvp_copy copies[1];
    assert_int_equal(take_plan(&copy, copies, 1), 1);
    assert_ok(kvp_seq_extend(copy.cache, seq, ints(9), 20, 0));
    assert_ok(kvp_seq_commit(copy.cache, seq, 29));
    close_seq(&copy, child);
    close_seq(&copy, open_done(&copy, ints(100), 12));
    assert_ok(kvp_ns_flush(copy.cache, copy.ns));
    assert_observed(&w, &before, __FILE__, __LINE__);

    close_seq(&w, seq); /* and the original does not care for the copy */
    assert_ok(kvp_seq_truncate(copy.cache, seq, 5, NULL));
}

TEST(test_a_copy_of_a_mapped_cache_is_a_cache_of_its_own)
{
    const kvp_config config = config_of(4, 2, 15);
    world mapped;
    assert_ok(kvp_cache_bytes(&config, &mapped.arena_bytes));
    assert_ok(kvp_cache_create(&config, NULL, 0, &mapped.cache));
    assert_ok(kvp_ns_open(mapped.cache, NULL, 0, &mapped.ns));
    const kvp_seq seq = open_done(&mapped, ints(0), 10);
    mapped.arena = mapped.cache;
    world copy = copy_world(&mapped);
    assert_ok(kvp_seq_extend(copy.cache, seq, ints(10), 2, 0));
    end_world(&copy); /* unmaps nothing */
    assert_int_equal(info_of(&mapped, seq).n_tokens, 10);
    copy = copy_world(&mapped);
    kvp_cache_destroy(mapped.cache);
    assert_int_equal(info_of(&copy, seq).n_tokens, 10);
    end_world(&copy);
}

static int count_write(void *context, const void *bytes, size_t n_bytes)
{
    (void)bytes;
    (void)n_bytes;
    ++*(int *)context;
    return 0;
}

TEST(test_a_recording_does_not_go_along_with_a_copy)
{
    const kvp_config config = config_of(4, 2, 15);
    int n_writes = 0;
    const kvp_sink sink = {&n_writes, count_write};
    scoped_world w = make_world(&config);
    kvp_cache_destroy(w.cache);
    assert_ok(kvp_cache_create(&config, w.arena, w.arena_bytes, &w.cache));
    world young = copy_world(&w);
    assert_status(KVP_E_STATE, kvp_cache_record_start(young.cache, &sink)); /* a copy is not new */
    end_world(&young);
    assert_ok(kvp_cache_record_start(w.cache, &sink));
    assert_ok(kvp_ns_open(w.cache, NULL, 0, &w.ns));
    world copy = copy_world(&w);
    const int before = n_writes;
    use_a_little(&copy);
    (void)stats_of(&copy);
    assert_status(KVP_E_STATE, kvp_cache_record_stop(copy.cache));
    end_world(&copy);
    assert_int_equal(n_writes, before);
    use_a_little(&w);
    assert_true(n_writes > before);
    assert_ok(kvp_cache_record_stop(w.cache));
}

/* ---------------------------------------------------------------------------------------- reset */

TEST(test_reset_closes_and_drops_everything)
{
    const kvp_config config = config_of(4, 2, 7);
    scoped_world w = make_world(&config);
    kvp_copy copies[1];
    leave_cached(&w, ints(0), 8);
    const kvp_seq seq = open_done(&w, ints(100), 6);
    const kvp_seq child = fork_seq(&w, seq, 6);
    assert_ok(kvp_seq_retain(w.cache, seq, (kvp_range){0, 4}, 5));
    assert_ok(kvp_seq_extend(w.cache, child, ints(0), 1, 0));
    const kvp_stats before = stats_of(&w);
    uint64_t generation[8];
    for (int32_t b = 1; b < 8; b++)
        generation[b] = block_of(&w, b).generation + (block_of(&w, b).state != KVP_BLOCK_FREE);

    assert_ok(kvp_cache_reset(w.cache));
    const kvp_stats after = stats_of(&w);
    assert_status(KVP_E_HANDLE, kvp_seq_commit(w.cache, seq, 1));
    assert_status(KVP_E_HANDLE, kvp_seq_close(w.cache, child, NULL));
    assert_queue(&w, 0, 1, 2, 3, 4, 5, 6, 7);
    assert_int_equal(take_plan(&w, copies, 1), 0);
    assert_fields(after, free_blocks, 7, open_seqs, 0, open_namespaces, 1, nodes_used, 1);
    assert_int_equal(after.opens, before.opens); /* counters go on */
    assert_int_equal(after.taken_blocks, before.taken_blocks);
    for (int32_t b = 1; b < 8; b++)
        assert_fields(block_of(&w, b), generation, generation[b], retention, 0);
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 0);
    leave_cached(&w, ints(0), 8); /* the namespace is open, under a new root */
    assert_int_equal(match(&w, ints(0), 8).hit_tokens, 8);
}

TEST(test_reset_empties_the_list_of_evicted_blocks)
{
    scoped_world w = small_world(1);
    const kvp_evicted *evicted;
    leave_cached(&w, ints(0), 4);
    (void)open_seq(&w, ints(100), 4, NULL);
    assert_int_equal(evicted_of(&w, &evicted), 1);
    assert_ok(kvp_cache_reset(w.cache));
    assert_int_equal(evicted_of(&w, &evicted), 0);
}

TEST(test_reset_with_every_namespace_open_and_no_node_to_spare)
{
    kvp_config config = config_of(4, 4, 3);
    config.max_namespaces = 3;
    config.n_nodes = 4;
    scoped_world w = make_world(&config);
    kvp_ns others[2];
    assert_ok(kvp_ns_open(w.cache, "a", 1, &others[0]));
    assert_ok(kvp_ns_open(w.cache, "b", 1, &others[1]));
    leave_cached(&w, ints(0), 4);
    assert_int_equal(stats_of(&w).nodes_used, 4);
    assert_ok(kvp_cache_reset(w.cache));
    assert_int_equal(stats_of(&w).nodes_used, 3);
    assert_ok(kvp_ns_close(w.cache, others[0]));
}

TEST_MAIN(NULL, NULL)
