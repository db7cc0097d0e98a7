/* Damaged, cut and unfitting snapshots: never a crash, never a wrong hit, and a report that says
 * what was lost; KV bytes that come back, or not. Files are cut at every byte, and a bit is flipped
 * in every byte; test_snapshot_forged.c changes every payload byte under a right checksum. */
#include <stdlib.h>
#include <string.h>

#include "core/snapshot/frames.h"
#include "snaps.h"

enum { KV_BYTES = 24 };

/* KV that knows what it is of: a block's hash, kept per tier and block. */
typedef struct memory {
    const kvp_cache *cache;
    uint8_t kv[2][64][KV_BYTES];
    uint32_t n_put;
    uint32_t fail_at; /* the n-th call fails; 0: none */
    uint32_t n_calls;
    kvp_snapshot_item items[256];
    uint32_t n_items;
} memory;

static int get_kv(void *context, const kvp_snapshot_block *block, void *out)
{
    memory *m = context;
    if (++m->n_calls == m->fail_at)
        return 1;
    memcpy(out, m->kv[block->tier][block->block], KV_BYTES);
    return 0;
}

static int put_kv(void *context, const kvp_snapshot_block *block, const void *bytes)
{
    memory *m = context;
    if (++m->n_calls == m->fail_at)
        return 1;
    memcpy(m->kv[block->tier][block->block], bytes, KV_BYTES);
    m->n_put++;
    return 0;
}

static void tell(void *context, const kvp_snapshot_item *item)
{
    memory *m = context;
    assert_in_range(m->n_items, 0, 255);
    m->items[m->n_items++] = *item;
}

static kvp_snapshot_options kv_options(memory *m)
{
    kvp_snapshot_options options = snap_options();
    options.block_bytes = KV_BYTES;
    options.context = m;
    options.get = get_kv;
    options.put = put_kv;
    return options;
}

/* Write every block's hash and tokens into it, as a forward pass would. */
static void compute(memory *m, const kvp_cache *cache)
{
    for (uint32_t tier = 0; tier < 2; tier++) {
        for (int32_t b = 1; b < 64; b++) {
            kvp_block_info info;
            if (kvp_block_info_get(cache, 0, tier, b, &info) != KVP_OK)
                continue;
            memcpy(m->kv[tier][b], info.hash.bytes, 16);
            m->kv[tier][b][16] = (uint8_t)info.group;
        }
    }
}

/* The KV of every block that can be hit is its own. */
static void assert_kv(const memory *m, const kvp_cache *cache)
{
    for (uint32_t tier = 0; tier < 2; tier++) {
        for (int32_t b = 1; b < 64; b++) {
            kvp_block_info info;
            if (kvp_block_info_get(cache, 0, tier, b, &info) != KVP_OK || info.sealed_units == 0)
                continue;
            assert_memory_equal(m->kv[tier][b], info.hash.bytes, 16);
            assert_int_equal(m->kv[tier][b][16], info.group);
        }
    }
}

static kvp_config config_with(uint32_t usable, uint32_t host)
{
    kvp_config config = tiers_config(4, 2, usable, host);
    config.max_unit_keys = 1;
    config.max_namespaces = 4;
    config.max_seq_tokens = 512;
    config.max_copies = 400;
    return config;
}

/* A small cache with something of everything in it, saved. */
static snap small_snap(memory *m, uint32_t n)
{
    const kvp_config config = config_with(9, 5);
    kvp_cache *cache = cache_of(&config);
    load_run run = run_begin(cache, 3);
    run_on(&run, n);
    run_close(&run);
    snap s;
    if (m != NULL) {
        compute(m, cache);
        const kvp_snapshot_options options = kv_options(m);
        s = snap_of(cache, &options);
    } else {
        s = snap_of(cache, NULL);
    }
    kvp_cache_destroy(cache);
    return s;
}

/* Load into a new cache; what is there is sound, right, and told of. */
static kvp_status try_load(snap *s, const kvp_config *config, memory *m,
                           kvp_snapshot_report *report)
{
    kvp_cache *cache = cache_of(config);
    kvp_snapshot_options options = m != NULL ? kv_options(m) : snap_options();
    const kvp_source source = snap_source(s);
    memset(report, 0, sizeof(*report));
    const kvp_status status = kvp_snapshot_load(cache, &options, &source, report);
    kvp_stats stats;
    assert_sound(cache);
    assert_report(report);
    assert_ok(kvp_cache_stats_get(cache, &stats));
    assert_int_equal(stats.cached_blocks + stats.host_cached_blocks, report->blocks);
    assert_int_equal(stats.open_namespaces, report->namespaces);
    if (m != NULL)
        assert_kv(m, cache);
    load_run run = run_begin(cache, 9); /* every call audits the cache */
    run_on(&run, 6);
    kvp_cache_destroy(cache);
    return status;
}

TEST(test_cut_at_every_byte)
{
    const kvp_config config = config_with(9, 5);
    kvp_snapshot_report whole;
    snap s = small_snap(NULL, 40);
    const size_t n = s.n;
    assert_ok(try_load(&s, &config, NULL, &whole));
    assert_int_equal(whole.blocks, whole.saved_blocks);
    assert_in_range(whole.blocks, 8, 14);
    uint64_t last = 0;
    for (s.n = 0; s.n < n; s.n++) {
        kvp_snapshot_report report;
        const kvp_status status = try_load(&s, &config, NULL, &report);
        if (status != KVP_OK) {
            assert_int_equal(status, KVP_E_FORMAT);
            assert_int_equal(last, 0);
            continue;
        }
        assert_fields(report, saved_blocks, whole.saved_blocks, dropped_blocks[KVP_DROP_CUT],
                      whole.blocks - report.blocks, dropped_namespaces[KVP_DROP_CUT],
                      3 - report.namespaces, complete, 0);
        assert_true(report.blocks >= last); /* never less of a longer file */
        last = report.blocks;
    }
    assert_int_equal(last, whole.blocks);
    s.n = n;
    s.fail_at = n / 2; /* a source that fails is a cut */
    kvp_snapshot_report report;
    assert_ok(try_load(&s, &config, NULL, &report));
    assert_int_equal(report.complete, 0);
    snap_drop(&s);
}

/* Flip one bit in every byte. */
static void flip_all(snap *s, const kvp_config *config, memory *m)
{
    kvp_snapshot_report whole;
    assert_ok(try_load(s, config, m, &whole));
    uint32_t n_harmless = 0;
    for (size_t i = 0; i < s->n; i++) {
        kvp_snapshot_report report;
        s->bytes[i] ^= (uint8_t)(1u << i % 8);
        if (m != NULL)
            memset(m->kv, 0, sizeof(m->kv));
        const kvp_status status = try_load(s, config, m, &report);
        s->bytes[i] ^= (uint8_t)(1u << i % 8);
        if (status != KVP_OK) {
            assert_true(status == KVP_E_FORMAT || status == KVP_E_VERSION);
            assert_int_equal(report.blocks, 0);
            assert_true(i < 8 || report.saved_blocks == 0);
            continue;
        }
        assert_fields(report, saved_blocks, whole.saved_blocks, saved_units, whole.saved_units);
        assert_true(report.damaged_records <= 1 && (report.complete || report.damaged_records));
        if (report.damaged_records == 0) {
            assert_int_equal(report.blocks, whole.blocks);
            n_harmless++;
        }
    }
    assert_true(n_harmless > 0); /* heads are there twice */
}

TEST(test_a_bit_flipped_in_every_byte)
{
    const kvp_config config = config_with(9, 5);
    snap s = small_snap(NULL, 40);
    flip_all(&s, &config, NULL);
    snap_drop(&s);
}

TEST(test_a_bit_flipped_in_every_byte_with_kv)
{
    const kvp_config config = config_with(9, 5);
    memory m = {0};
    snap s = small_snap(&m, 40);
    flip_all(&s, &config, &m);
    snap_drop(&s);
}

/* Every byte of every record but the first; gives the kinds that there were. */
static uint32_t forge_all(const snap *s, const kvp_config *config)
{
    uint32_t n_kinds = 0, kind = 0;
    for (uint32_t number = 1; number < 200; number++) {
        for (size_t byte = 0; byte == 0 || kind != 0; byte++) {
            kvp_snapshot_report report;
            snap forged = snap_forge(s, number, byte, &kind);
            assert_ok(try_load(&forged, config, NULL, &report));
            n_kinds |= 1u << kind;
            if (kind == KVPI_SNAP_NODE && byte >= 12) /* hash, tokens, keys */
                assert_true(report.dropped_blocks[KVP_DROP_DAMAGED] > 0);
            snap_drop(&forged);
        }
    }
    return n_kinds;
}

TEST(test_what_makes_no_sense_is_dropped_whatever_its_checksum)
{
    const kvp_config config = config_with(9, 5);
    uint32_t n_kinds = 0;
    for (uint32_t n = 2; n <= 40; n += 38) {
        snap s = small_snap(NULL, n);
        n_kinds |= forge_all(&s, &config);
        snap_drop(&s);
    }
    assert_int_equal(n_kinds & 0xFE, 1u << KVPI_SNAP_SPACE | 1u << KVPI_SNAP_NODE |
                                         1u << KVPI_SNAP_BLOCK | 1u << KVPI_SNAP_FREE);
}

TEST(test_both_heads_gone_is_a_cut)
{
    const kvp_config config = config_with(9, 5);
    kvp_snapshot_report report;
    snap s = small_snap(NULL, 40);
    const size_t config_bytes = (size_t)s.bytes[12] | (size_t)s.bytes[13] << 8;
    uint8_t *head = s.bytes + 8 + 32 + config_bytes + 8;
    head[2] ^= 1;
    assert_ok(try_load(&s, &config, NULL, &report));
    assert_int_equal(report.complete, 1);
    head[18] ^= 1;
    assert_ok(try_load(&s, &config, NULL, &report));
    assert_fields(report, complete, 0, namespaces, 0, dropped_blocks[KVP_DROP_CUT],
                  report.saved_blocks);
    snap_drop(&s);
}

TEST(test_a_smaller_pool_keeps_what_goes_last)
{
    memory m = {0};
    memory other = {0};
    const kvp_config config = config_with(20, 10);
    kvp_cache *cache = cache_of(&config);
    load_run run = run_begin(cache, 4);
    run_on(&run, 150);
    run_close(&run);
    compute(&m, cache);
    kvp_snapshot_options options = kv_options(&m);
    snap s = snap_of(cache, &options);
    /* All that is there, first evicted last, from a cache of the same size. */
    options = kv_options(&other);
    options.tell = tell;
    kvp_source source = snap_source(&s);
    kvp_snapshot_report whole;
    kvp_cache *same = cache_of(&config);
    assert_ok(kvp_snapshot_load(same, &options, &source, &whole));
    assert_int_equal(whole.blocks, whole.saved_blocks);
    const uint32_t n_items = other.n_items;
    assert_int_equal(n_items, whole.blocks + whole.namespaces);
    for (uint32_t usable = 1; usable < 24; usable++) {
        const kvp_config less = config_with(usable, 6);
        memory left = {0};
        kvp_snapshot_report report;
        kvp_cache *small = cache_of(&less);
        options = kv_options(&left);
        options.tell = tell;
        source = snap_source(&s);
        assert_ok(kvp_snapshot_load(small, &options, &source, &report));
        assert_report(&report);
        assert_sound(small);
        assert_kv(&left, small);
        assert_int_equal(report.dropped_blocks[KVP_DROP_NO_ROOM], whole.blocks - report.blocks);
        uint32_t n_of[2] = {0, 0};
        uint32_t at = 0;
        for (uint32_t i = 0; i < n_items; i++) {
            const kvp_snapshot_item *item = &other.items[i];
            const uint32_t room = item->block.tier == KVP_DEVICE ? usable : 6;
            if (item->kind == KVP_SNAPSHOT_BLOCK && n_of[item->block.tier]++ >= room)
                continue;
            assert_in_range(at, 0, left.n_items - 1);
            assert_memory_equal(left.items[at].hash.bytes, item->hash.bytes, 16);
            assert_int_equal(left.items[at].retention, item->retention);
            assert_int_equal(left.items[at].prefix_tokens, item->prefix_tokens);
            at++;
        }
        assert_int_equal(at, left.n_items);
        kvp_cache_destroy(small);
    }
    kvp_cache_destroy(cache);
    kvp_cache_destroy(same);
    snap_drop(&s);
}

TEST(test_too_few_nodes_keys_and_namespaces)
{
    kvp_snapshot_report whole;
    snap s = small_snap(NULL, 40);
    kvp_config config = config_with(9, 5);
    assert_ok(try_load(&s, &config, NULL, &whole));
    for (uint32_t n_nodes = 5; n_nodes < 30; n_nodes++) {
        kvp_snapshot_report report;
        config.n_nodes = n_nodes;
        assert_ok(try_load(&s, &config, NULL, &report));
        assert_int_equal(report.dropped_blocks[KVP_DROP_NO_ROOM], whole.blocks - report.blocks);
    }
    config = config_with(9, 5);
    config.n_nodes = 5;
    kvp_snapshot_report report;
    assert_ok(try_load(&s, &config, NULL, &report));
    assert_true(report.dropped_blocks[KVP_DROP_NO_ROOM] > 0);
    const int32_t never[] = {1001, 2001, 3001, 4001, 5001};
    config = config_with(9, 5);
    config.uncached_tokens = never;
    config.n_uncached_tokens = 5;
    assert_ok(try_load(&s, &config, NULL, &report));
    assert_true(report.dropped_blocks[KVP_DROP_UNCACHED] > 0);
    snap_drop(&s);
}

/* The cache has room for five nodes, and looks at no more than 16 times as many. */
TEST(test_far_more_nodes_than_there_is_room_for)
{
    kvp_config config = config_with(63, 0);
    kvp_snapshot_report whole, report;
    scoped_world w = make_world(&config);
    for (int32_t i = 0; i < 63; i++)
        leave_cached(&w, ints(10 * i), 4);
    snap s = snap_of(w.cache, NULL);
    assert_ok(try_load(&s, &config, NULL, &whole));
    assert_fields(whole, blocks, 63, units, 126);
    config.n_nodes = 5;
    kvp_cache *cache = cache_of(&config);
    assert_ok(snap_load(&s, cache, &report));
    assert_report(&report);
    assert_sound(cache);
    kvp_cache_destroy(cache);
    assert_int_equal(report.blocks, 2); /* a root, and two units for each */
    assert_fields(report, dropped_blocks[KVP_DROP_NO_ROOM], 61, damaged_records, 0, complete, 1);
    snap_drop(&s);
}

TEST(test_keys_and_namespaces_without_room)
{
    kvp_config config = config_with(15, 0);
    scoped_world w = make_world(&config);
    const kvp_key key = {1, 0, 2, 1, "k"};
    kvp_prompt prompt = prompt_of(ints(0), 8);
    prompt.keys = &key;
    prompt.n_keys = 1;
    kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    close_seq(&w, seq);
    leave_cached(&w, ints(50), 4);
    kvp_ns second;
    assert_ok(kvp_ns_open(w.cache, "second", 6, &second));
    snap s = snap_of(w.cache, NULL);
    kvp_snapshot_report report;
    kvp_config other = config;
    other.max_unit_keys = 0;
    kvp_cache *cache = cache_of(&other);
    assert_ok(snap_load(&s, cache, &report));
    assert_fields(report, blocks, 1, dropped_blocks[KVP_DROP_NO_ROOM], 2);
    kvp_cache_destroy(cache);
    other = config;
    other.max_namespaces = 1;
    cache = cache_of(&other);
    assert_ok(snap_load(&s, cache, &report));
    assert_fields(report, namespaces, 1, dropped_namespaces[KVP_DROP_NO_ROOM], 1, blocks, 3);
    kvp_cache_destroy(cache);
    snap_drop(&s);
}

TEST(test_every_put_and_get_may_fail)
{
    const kvp_config config = config_with(9, 5);
    memory m = {0};
    kvp_snapshot_report whole;
    snap s = small_snap(&m, 40);
    assert_ok(try_load(&s, &config, &m, &whole));
    for (uint32_t i = 1; i <= whole.blocks; i++) {
        memory other = {.fail_at = i};
        kvp_snapshot_report report;
        assert_ok(try_load(&s, &config, &other, &report));
        assert_fields(report, blocks, whole.blocks - 1, dropped_blocks[KVP_DROP_KV], 1);
    }
    kvp_cache *cache = cache_of(&config);
    const kvp_source source = snap_source(&s);
    m.n_calls = m.fail_at = 0;
    kvp_snapshot_options options = kv_options(&m);
    assert_ok(kvp_snapshot_load(cache, &options, &source, NULL));
    for (uint32_t i = 1; i <= whole.blocks; i++) {
        snap again = {0};
        const kvp_sink sink = snap_sink(&again);
        m.n_calls = 0;
        m.fail_at = i;
        assert_status(KVP_E_IO, kvp_snapshot_save(cache, &options, &sink));
        kvp_snapshot_report report;
        memory other = {0};
        assert_ok(try_load(&again, &config, &other, &report)); /* no KV of that block, at least */
        assert_in_range(report.blocks, 0, i - 1);
        snap_drop(&again);
    }
    kvp_cache_destroy(cache);
    snap_drop(&s);
}

TEST(test_every_write_may_fail)
{
    const kvp_config config = config_with(9, 5);
    memory m = {0};
    snap s = small_snap(&m, 40);
    kvp_cache *cache = cache_of(&config);
    const kvp_source source = snap_source(&s);
    const kvp_snapshot_options options = kv_options(&m);
    assert_ok(kvp_snapshot_load(cache, &options, &source, NULL));
    for (size_t room = 1; room < s.n; room += 29) {
        snap cut = {.fail_at = room};
        const kvp_sink sink = snap_sink(&cut);
        assert_status(KVP_E_IO, kvp_snapshot_save(cache, &options, &sink));
        assert_memory_equal(cut.bytes == NULL ? s.bytes : cut.bytes, s.bytes, cut.n);
        snap_drop(&cut);
    }
    kvp_cache_destroy(cache);
    snap_drop(&s);
}

/* Says that it gave more than it was asked for. */
static int give_too_much(void *context, void *out, size_t capacity, size_t *out_n)
{
    (void)context;
    memset(out, 0, capacity);
    *out_n = capacity + 1;
    return 0;
}

TEST(test_a_source_that_gives_too_much)
{
    const kvp_source source = {NULL, give_too_much};
    kvp_snapshot_info info;
    assert_status(KVP_E_FORMAT, kvp_snapshot_peek(&source, &info));
}

TEST(test_bytes_or_none_must_be_as_saved)
{
    const kvp_config config = config_with(9, 5);
    memory m = {0};
    snap with = small_snap(&m, 10);
    snap without = small_snap(NULL, 10);
    kvp_snapshot_report report;
    assert_status(KVP_E_MISMATCH, try_load(&with, &config, NULL, &report));
    assert_status(KVP_E_MISMATCH, try_load(&without, &config, &m, &report));
    snap_drop(&with);
    snap_drop(&without);
}

TEST_MAIN(NULL, NULL)
