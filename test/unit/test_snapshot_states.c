/* Snapshots of caches with recurrent state: checkpoints come back with their bytes, also into
 * caches of other sizes; damage is noticed, and takes what depends on it. */
#include <kvpager/drop.h>
#include <stdlib.h>
#include <string.h>

#include "core/snapshot/frames.h"
#include "snaps.h"

enum { KV_BYTES = 24, STATE_BYTES = 40, STATES = 2 };

typedef struct memory {
    uint8_t kv[3][64][STATE_BYTES]; /* of the two tiers, and of states */
    uint32_t n_calls, fail_at;
    uint32_t n_states; /* that were put */
    uint32_t n_told;   /* checkpoints */
    kvp_snapshot_item told[64];
} memory;

static uint8_t *bytes_of(memory *m, const kvp_snapshot_block *block)
{
    const int is_state = block->group == 1; /* there is one group of blocks */
    assert_true(!is_state || (block->tier == KVP_DEVICE && block->n_tokens == 1));
    return m->kv[is_state ? STATES : block->tier][block->block];
}

static int get_kv(void *context, const kvp_snapshot_block *block, void *out)
{
    memory *m = context;
    memcpy(out, bytes_of(m, block), block->group == 1 ? STATE_BYTES : KV_BYTES);
    return ++m->n_calls == m->fail_at;
}

static int put_kv(void *context, const kvp_snapshot_block *block, const void *bytes)
{
    memory *m = context;
    memcpy(bytes_of(m, block), bytes, block->group == 1 ? STATE_BYTES : KV_BYTES);
    m->n_states += block->group == 1;
    return ++m->n_calls == m->fail_at;
}

static void tell(void *context, const kvp_snapshot_item *item)
{
    memory *m = context;
    if (item->kind == KVP_SNAPSHOT_BLOCK && item->block.group == 1)
        m->told[m->n_told++] = *item;
}

static kvp_snapshot_options kv_options(memory *m)
{
    kvp_snapshot_options options = snap_options();
    options.block_bytes = KV_BYTES;
    options.state_bytes = STATE_BYTES;
    options.context = m;
    options.get = get_kv;
    options.put = put_kv;
    options.tell = tell;
    return options;
}

static kvp_config config_with(uint32_t usable, uint32_t state_slots)
{
    kvp_config config = snap_config(SNAP_STATES);
    config.n_blocks = usable + 1;
    config.state_slots = state_slots;
    return config;
}

/* Write every block's and checkpoint's hash into it; or expect it there. Gives the checkpoints. */
static uint32_t each_hash(memory *m, const kvp_cache *cache, int write)
{
    uint32_t n = 0;
    for (uint32_t group = 0; group < 2; group++) {
        for (int32_t b = 1; b < 64; b++) {
            kvp_block_info info;
            if (kvp_block_info_get(cache, group, KVP_DEVICE, b, &info) != KVP_OK ||
                info.sealed_units == 0)
                continue;
            uint8_t *bytes = m->kv[group == 1 ? STATES : KVP_DEVICE][b];
            if (write)
                memcpy(bytes, info.hash.bytes, 16);
            else
                assert_memory_equal(bytes, info.hash.bytes, 16);
            n += group == 1;
        }
    }
    return n;
}

/* A small cache with checkpoints, saved; with m, its bytes. */
static snap small_snap(memory *m, uint32_t n)
{
    const kvp_config config = config_with(20, 9);
    kvp_cache *cache = cache_of(&config);
    load_run run = run_begin(cache, 5);
    run_on(&run, n);
    run_close(&run);
    assert_true(each_hash(m, cache, 1) > 1);
    const kvp_snapshot_options options = kv_options(m);
    snap s = snap_of(cache, m->n_calls == 0 ? &options : NULL);
    kvp_cache_destroy(cache);
    *m = (memory){0};
    return s;
}

/* Load into a new cache; all that is there is sound, right, reachable and told of. */
static kvp_status try_load(snap *s, const kvp_config *config, int with_bytes, memory *m,
                           kvp_snapshot_report *report)
{
    kvp_cache *cache = cache_of(config);
    const kvp_snapshot_options options = with_bytes ? kv_options(m) : snap_options();
    const kvp_source source = snap_source(s);
    kvp_stats stats;
    kvp_state_stats states;
    *report = (kvp_snapshot_report){0};
    const kvp_status status = kvp_snapshot_load(cache, &options, &source, report);
    assert_sound(cache);
    assert_report(report);
    assert_ok(kvp_cache_stats_get(cache, &stats));
    assert_ok(kvp_cache_state_stats_get(cache, &states));
    assert_int_equal(stats.cached_blocks + states.cached_slots, report->blocks);
    if (with_bytes) {
        assert_int_equal(each_hash(m, cache, 0), states.cached_slots);
        assert_int_equal(m->n_told, states.cached_slots);
    }
    load_run run = run_begin(cache, 9); /* every call audits the cache */
    run_on(&run, 6);
    kvp_cache_destroy(cache);
    return status;
}

/* Everything of the same sizes; what goes last of others. A checkpoint without its KV is none. */
TEST(test_other_sizes)
{
    static const uint32_t sizes[][2] = {{20, 9}, {40, 30}, {20, 4}, {6, 9}, {2, 2}};
    memory m = {0};
    snap s = small_snap(&m, 60);
    kvp_snapshot_info info;
    const kvp_source source = snap_source(&s);
    assert_ok(kvp_snapshot_peek(&source, &info));
    assert_fields(info, state_slots, 9, state_bytes, STATE_BYTES);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const kvp_config config = config_with(sizes[i][0], sizes[i][1]);
        kvp_snapshot_report report;
        m = (memory){0};
        assert_ok(try_load(&s, &config, 1, &m, &report));
        assert_fields(report, complete, 1, damaged_records, 0);
        assert_int_equal(report.blocks + report.dropped_blocks[KVP_DROP_NO_ROOM],
                         report.saved_blocks);
        assert_int_equal(report.blocks == report.saved_blocks, i < 2);
        assert_true(m.n_told < sizes[i][1] && m.n_states == m.n_told);
        for (uint32_t t = 0; t < m.n_told; t++) {
            assert_int_equal(m.told[t].n_units, 1);
            assert_int_equal(m.told[t].prefix_tokens % config.unit_tokens, 0);
        }
    }
    snap_drop(&s);
}

/* One prompt: the hit is the one that the saved cache had. */
TEST(test_hits_are_the_same)
{
    const kvp_config config = config_with(20, 9);
    scoped_world w = make_world(&config);
    kvp_seq seq = open_seq(&w, ints(0), 15, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 8));
    assert_ok(kvp_seq_checkpoint(w.cache, seq, NULL));
    assert_ok(kvp_seq_commit(w.cache, seq, 15));
    snap s = snap_of(w.cache, NULL); /* while it is open */
    kvp_cache *restored = cache_of(&config);
    kvp_snapshot_report report;
    assert_ok(snap_load(&s, restored, &report));
    assert_int_equal(report.saved_blocks, 4); /* three full blocks, and the checkpoint */
    assert_int_equal(report.saved_units, 4);
    world other = {.cache = restored};
    assert_ok(kvp_ns_open(restored, "ns", 2, &other.ns));
    assert_int_equal(match(&other, ints(0), 15).cached_tokens, 0); /* another namespace */
    assert_ok(kvp_ns_open(restored, NULL, 0, &other.ns));
    assert_int_equal(match(&other, ints(0), 15).cached_tokens, 8);
    seq = open_seq(&other, ints(0), 15, NULL);
    kvp_state_info info;
    assert_ok(kvp_seq_state_get(restored, seq, &info));
    assert_int_equal(info.read_slot, 1); /* the saved cache's own id */
    snap_drop(&s);
    kvp_cache_destroy(restored);
}

/* A bit of every byte: nothing wrong comes in, with bytes and without, and the sums are right. */
TEST(test_a_bit_flipped_in_every_byte)
{
    const kvp_config config = config_with(20, 9);
    for (int with_bytes = 0; with_bytes < 2; with_bytes++) {
        memory m = {.n_calls = !with_bytes};
        uint32_t n_lost = 0;
        kvp_snapshot_report whole;
        snap s = small_snap(&m, 12);
        assert_ok(try_load(&s, &config, with_bytes, &m, &whole));
        assert_int_equal(whole.blocks, whole.saved_blocks);
        for (size_t i = 0; i < s.n; i += 1 + i % 5) { /* each takes a cache and its audits */
            kvp_snapshot_report report;
            m = (memory){0};
            s.bytes[i] ^= (uint8_t)(1u << i % 8);
            const kvp_status status = try_load(&s, &config, with_bytes, &m, &report);
            s.bytes[i] ^= (uint8_t)(1u << i % 8);
            assert_true(status == KVP_OK || status == KVP_E_FORMAT || status == KVP_E_VERSION);
            assert_true(status != KVP_OK || report.saved_blocks == whole.saved_blocks);
            assert_true(report.damaged_records > 0 || status != KVP_OK ||
                        report.blocks == whole.blocks);
            n_lost += status == KVP_OK && report.blocks < whole.blocks;
        }
        assert_true(n_lost > s.n / 24); /* heads are there twice */
        snap_drop(&s);
    }
}

/* Cut anywhere, it has what was whole before. */
TEST(test_cut_at_every_byte)
{
    const kvp_config config = config_with(20, 9);
    memory m = {0};
    snap s = small_snap(&m, 12);
    const size_t n = s.n;
    uint64_t before = 0;
    for (s.n = 0; s.n < n; s.n += 1 + s.n % 5) {
        kvp_snapshot_report report;
        m = (memory){0};
        const kvp_status status = try_load(&s, &config, 1, &m, &report);
        assert_true(status == KVP_OK || status == KVP_E_FORMAT);
        assert_true(report.blocks >= before && !report.complete);
        before = report.blocks;
    }
    s.n = n;
    snap_drop(&s);
}

TEST(test_what_makes_no_sense_is_dropped)
{
    const kvp_config config = config_with(20, 9);
    memory m = {.n_calls = 1};
    snap s = small_snap(&m, 12);
    uint32_t n_checkpoints = 0, kind = 1;
    for (uint32_t number = 1; kind != 0; number++) {
        size_t byte = 0;
        for (kind = 1; kind != 0; byte++) {
            kvp_snapshot_report report;
            m = (memory){0};
            snap forged = snap_forge(&s, number, byte, &kind);
            if (kind == KVPI_SNAP_CHECKPOINT || byte == 0)
                assert_ok(try_load(&forged, &config, 0, &m, &report));
            n_checkpoints += kind == KVPI_SNAP_CHECKPOINT;
            snap_drop(&forged);
        }
        kind = byte > 1; /* the last record, the end mark, has no byte */
    }
    assert_true(n_checkpoints > 12);
    snap_drop(&s);
}

static int is_not_of(void *kind, snap_record *record)
{
    return record->kind != *(uint32_t *)kind;
}

/* The file without the records of one kind. */
static snap without(const snap *s, uint32_t kind)
{
    return snap_edit(s, is_not_of, &kind);
}

/* States whose bytes are missing are dropped, and so are checkpoints without blocks. */
TEST(test_what_depends_on_it_is_dropped)
{
    const kvp_config config = config_with(20, 9);
    memory m = {0};
    kvp_snapshot_report whole, report;
    snap s = small_snap(&m, 60);
    assert_ok(try_load(&s, &config, 1, &m, &whole));
    const uint32_t n_states = m.n_told;
    snap cut = without(&s, KVPI_SNAP_STATE);
    m = (memory){0};
    assert_ok(try_load(&cut, &config, 1, &m, &report));
    assert_int_equal(m.n_told, 0);
    assert_int_equal(report.dropped_blocks[KVP_DROP_KV], n_states);
    snap_drop(&cut);
    cut = without(&s, KVPI_SNAP_BLOCK);
    m = (memory){0};
    assert_ok(try_load(&cut, &config, 1, &m, &report));
    assert_int_equal(report.blocks, 0);
    snap_drop(&cut);
    for (uint32_t n = 1; n <= whole.blocks; n++) { /* put refuses the n-th */
        m = (memory){.fail_at = n};
        assert_ok(try_load(&s, &config, 1, &m, &report));
        assert_int_equal(report.dropped_blocks[KVP_DROP_KV], 1);
        assert_true(report.blocks < whole.blocks);
    }
    snap_drop(&s);
}

/* A number that the second record of a kind is given; or the bytes at its end that it loses. */
struct another {
    uint32_t kind;
    uint32_t at;
    uint32_t value;
    uint32_t lost;
    uint32_t n_met;
};

static int give_another(void *context, snap_record *record)
{
    struct another *another = context;
    if (record->kind != another->kind || ++another->n_met != 2)
        return 1;
    if (another->lost == 0)
        kvpi_bytes_store(record->payload + another->at, another->value, 4);
    record->n -= another->lost;
    return 1;
}

/* A file of one prompt with checkpoints after 4 and 8 tokens, one record of which is another. Gives
 * the checkpoints that come back. */
static uint32_t with_other(struct another another)
{
    const kvp_config config = config_with(20, 9);
    memory m = {0};
    world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 13, NULL);
    for (uint32_t n = 4; n <= 8; n += 4) {
        assert_ok(kvp_seq_commit(w.cache, seq, n));
        assert_ok(kvp_seq_checkpoint(w.cache, seq, NULL));
    }
    assert_ok(kvp_seq_commit(w.cache, seq, 13));
    (void)each_hash(&m, w.cache, 1);
    const kvp_snapshot_options options = kv_options(&m);
    const int with_bytes = another.kind == KVPI_SNAP_STATE;
    snap s = snap_of(w.cache, with_bytes ? &options : NULL);
    snap copy = snap_edit(&s, give_another, &another);
    kvp_snapshot_report report;
    m = (memory){0};
    assert_ok(try_load(&copy, &config, with_bytes, &m, &report));
    assert_int_equal(report.saved_blocks, 5);
    snap_drop(&s);
    snap_drop(&copy);
    assert_ok(kvp_seq_close(w.cache, seq, NULL));
    end_world(&w);
    return (uint32_t)report.blocks - 3; /* of KV */
}

static uint32_t with_another(uint32_t kind, uint32_t at, uint32_t value)
{
    return with_other((struct another){.kind = kind, .at = at, .value = value});
}

TEST(test_records_that_end_too_early)
{
    assert_int_equal(with_other((struct another){.kind = KVPI_SNAP_CHECKPOINT, .lost = 1}), 1);
    assert_int_equal(with_other((struct another){.kind = KVPI_SNAP_STATE, .lost = 1}), 1);
}

/* A file without states in which a record says that it is a checkpoint: damaged, it counts as none
 * of its blocks. */
static int is_a_checkpoint(void *context, snap_record *record)
{
    (void)context;
    record->kind = record->kind == KVPI_SNAP_FREE ? KVPI_SNAP_CHECKPOINT : record->kind;
    return 1;
}

TEST(test_a_damaged_checkpoint_where_there_are_none)
{
    kvp_config config = config_with(20, 0);
    kvp_snapshot_report report;
    kvp_cache *cache = cache_of(&config);
    world w = {.cache = cache};
    assert_ok(kvp_ns_open(cache, NULL, 0, &w.ns));
    close_seq(&w, open_done(&w, ints(0), 8));
    snap s = snap_of(cache, NULL);
    snap forged = snap_edit(&s, is_a_checkpoint, NULL);
    uint32_t n_damaged = 0;
    for (size_t i = 8; i < forged.n; i++) {
        kvp_cache *other = cache_of(&config);
        forged.bytes[i] ^= 1;
        if (snap_load(&forged, other, &report) == KVP_OK) {
            assert_report(&report);
            n_damaged += report.damaged_records > 0 && report.blocks == 2;
        }
        forged.bytes[i] ^= 1;
        kvp_cache_destroy(other);
    }
    assert_true(n_damaged > 0);
    snap_drop(&s);
    snap_drop(&forged);
    kvp_cache_destroy(cache);
}

/* Checkpoints of a namespace that was flushed, and those whose block lost its content, are not in
 * the file. */
TEST(test_what_nobody_hits_is_not_saved)
{
    const kvp_config config = config_with(20, 9);
    kvp_snapshot_info info;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    for (uint32_t n = 4; n <= 8; n += 4) {
        assert_ok(kvp_seq_commit(w.cache, seq, n));
        assert_ok(kvp_seq_checkpoint(w.cache, seq, NULL));
    }
    const int32_t *row;
    uint32_t n_blocks;
    assert_ok(kvp_seq_row(w.cache, seq, 0, &row, &n_blocks));
    const int32_t last = row[1];
    close_seq(&w, seq);
    for (uint64_t expected = 4; expected > 0; expected -= 2) { /* blocks, and their checkpoints */
        snap s = snap_of(w.cache, NULL);
        const kvp_source source = snap_source(&s);
        assert_ok(kvp_snapshot_peek(&source, &info));
        assert_int_equal(info.saved_blocks, expected);
        snap_drop(&s);
        assert_ok(kvp_cache_drop(w.cache, KVP_DEVICE, &last, 1, NULL));
    }
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    snap s = snap_of(w.cache, NULL);
    const kvp_source source = snap_source(&s);
    assert_ok(kvp_snapshot_peek(&source, &info));
    assert_int_equal(info.saved_blocks, 0);
    snap_drop(&s);
}

/* The caller cannot give the n-th block, or state. */
TEST(test_bytes_that_cannot_be_read)
{
    const kvp_config config = config_with(20, 9);
    kvp_cache *cache = cache_of(&config);
    load_run run = run_begin(cache, 5);
    run_on(&run, 12);
    run_close(&run);
    memory m = {0};
    const kvp_snapshot_options options = kv_options(&m);
    snap s = snap_of(cache, &options);
    const uint32_t n_calls = m.n_calls;
    snap_drop(&s);
    for (uint32_t n = 1; n <= n_calls; n++) {
        const kvp_sink sink = snap_sink(&s);
        m = (memory){.fail_at = n};
        assert_status(KVP_E_IO, kvp_snapshot_save(cache, &options, &sink));
        assert_int_equal(m.n_calls, n);
        snap_drop(&s);
    }
    kvp_cache_destroy(cache);
}

TEST(test_records_that_disagree)
{
    assert_int_equal(with_another(KVPI_SNAP_CHECKPOINT, 4, 0), 2); /* its class, as it was */
    assert_int_equal(with_another(KVPI_SNAP_CHECKPOINT, 8, 4), 1); /* no node */
    uint32_t n = 0;
    for (uint32_t node = 1; node <= 3; node++) /* one of them has the first checkpoint */
        n += with_another(KVPI_SNAP_CHECKPOINT, 8, node);
    assert_int_equal(n, 5);
    assert_int_equal(with_another(KVPI_SNAP_STATE, 0, 8), 1); /* of another slot */
}

TEST(test_refused)
{
    const kvp_config config = config_with(20, 9);
    const kvp_config stateless = config_with(20, 0);
    memory m = {0};
    kvp_snapshot_report report;
    snap s = small_snap(&m, 20);
    kvp_cache *cache = cache_of(&config);
    kvp_cache *plain = cache_of(&stateless);
    kvp_snapshot_options options = kv_options(&m);
    const kvp_sink sink = snap_sink(&s);
    kvp_source source = snap_source(&s);
    assert_status(KVP_E_MISMATCH, kvp_snapshot_load(plain, &options, &source, &report));
    options.state_bytes = 0; /* bytes of blocks, and none of states; and the other way round */
    assert_status(KVP_E_ARG, kvp_snapshot_save(cache, &options, &sink));
    assert_status(KVP_E_ARG, kvp_snapshot_load(cache, &options, &source, &report));
    options.block_bytes = 0;
    options.state_bytes = 1;
    assert_status(KVP_E_ARG, kvp_snapshot_save(cache, &options, &sink));
    options.state_bytes = (uint64_t)INT32_MAX + 1;
    options.block_bytes = KV_BYTES;
    assert_status(KVP_E_ARG, kvp_snapshot_save(plain, &options, &sink));
    options.state_bytes = STATE_BYTES + 1;
    source = snap_source(&s);
    assert_status(KVP_E_MISMATCH, kvp_snapshot_load(cache, &options, &source, &report));
    snap_drop(&s);
    s = snap_of(plain, NULL);
    assert_status(KVP_E_MISMATCH, snap_load(&s, cache, &report));
    snap_drop(&s);
    kvp_cache_destroy(cache);
    kvp_cache_destroy(plain);
}

/* Without bytes the numbers of slots must be the same, as those of blocks. */
TEST(test_ids_stay_without_bytes)
{
    const kvp_config other = config_with(20, 10);
    memory m = {.n_calls = 1};
    kvp_snapshot_report report;
    snap s = small_snap(&m, 20);
    kvp_cache *cache = cache_of(&other);
    assert_status(KVP_E_MISMATCH, snap_load(&s, cache, &report));
    kvp_cache_destroy(cache);
    snap_drop(&s);
}

TEST_MAIN(NULL, NULL)
