/* What the learned policy knows, saved and restored: the same victims afterwards, all of it or
 * nothing, and no bytes that the audit would not pass. */
#include <string.h>

#include "core/cache/state.h"
#include "core/snapshot/frames.h"
#include "scan.h"
#include "snaps.h"

enum { USABLE = 64 };

static kvp_config learned_config(uint32_t usable)
{
    kvp_config config = config_of(4, 4, usable);
    config.policy = KVP_POLICY_LEARNED;
    config.max_namespaces = 1;
    return config;
}

typedef struct halves {
    kvp_cache *cache; /* goes on */
    snap saved;
    uint64_t digest; /* of what it did after it was saved */
    uint64_t n_hits;
} halves;

static halves make_halves(void)
{
    const kvp_config config = learned_config(USABLE);
    halves h = {0};
    uint64_t before = 0;
    assert_ok(kvp_cache_create(&config, NULL, 0, &h.cache));
    (void)scan(h.cache, 40, &before);
    const kvp_snapshot_options options = snap_options();
    h.saved = snap_of(h.cache, &options);
    h.digest = scan(h.cache, 20, &h.n_hits);
    return h;
}

static void end_halves(halves *h)
{
    kvp_cache_destroy(h->cache);
    snap_drop(&h->saved);
}

#define scoped_halves ENDED_BY(end_halves) halves

static kvp_cache *load(snap *s, const kvp_config *config, kvp_snapshot_report *report)
{
    kvp_cache *cache = NULL;
    assert_ok(kvp_cache_create(config, NULL, 0, &cache));
    assert_ok(snap_load(s, cache, report));
    assert_report(report);
    assert_sound(cache);
    return cache;
}

/* The record at `at`, and the next one. */
static uint32_t kind_at(const snap *s, size_t at)
{
    return kvpi_bytes_load32(s->bytes + at);
}

static size_t behind(const snap *s, size_t at)
{
    return at + kvpi_bytes_load32(s->bytes + at + 4) + KVPI_SNAP_OVERHEAD;
}

/* The file without records of what was learned but those that `keep` says by their order. */
static snap without(const snap *s, int (*keep)(uint32_t nth))
{
    snap out = {0};
    const kvp_sink sink = snap_sink(&out);
    uint32_t nth = 0;
    assert_int_equal(sink.write(&out, s->bytes, 8), 0);
    for (size_t at = 8; at < s->n; at = behind(s, at))
        if (kind_at(s, at) != KVPI_SNAP_LEARNED || keep(nth++))
            assert_int_equal(sink.write(&out, s->bytes + at, behind(s, at) - at), 0);
    return out;
}

static int none(uint32_t nth)
{
    (void)nth;
    return 0;
}

static int all_but_the_first(uint32_t nth)
{
    return nth != 0;
}

static int all_but_a_class(uint32_t nth)
{
    return nth != 64;
}

static int all_but_entries(uint32_t nth)
{
    return nth != 65;
}

static int all_but_blocks(uint32_t nth)
{
    return nth <= 65;
}

/* ------------------------------------------------------------------------------------- restored */

TEST(test_the_same_victims)
{
    const kvp_config config = learned_config(USABLE);
    scoped_halves h = make_halves();
    kvp_snapshot_report report;
    uint64_t n_hits = 0;
    kvp_cache *cache = load(&h.saved, &config, &report);
    assert_int_equal(report.learned, 1);
    assert_true(scan(cache, 20, &n_hits) == h.digest);
    assert_int_equal(n_hits, h.n_hits);
    assert_true(n_hits > 20 * USABLE / 2);
    const struct kvpi_hits *there = &kvpi_leaves_policy(&h.cache->pool.leaves)->hits;
    const struct kvpi_hits *here = &kvpi_leaves_policy(&cache->pool.leaves)->hits;
    assert_memory_equal(here->hits, there->hits, sizeof(here->hits));
    assert_memory_equal(here->at_risk, there->at_risk, sizeof(here->at_risk));
    for (uint32_t c = 0; c < KVPI_CLASSES; c++) {
        uint32_t now[2][KVPI_BINS], best[2][KVPI_BINS];
        kvpi_hits_index(here, c, now[0], best[0]);
        kvpi_hits_index(there, c, now[1], best[1]);
        assert_memory_equal(now[0], now[1], sizeof(now[0]));
        assert_memory_equal(best[0], best[1], sizeof(best[0]));
    }
    kvp_stats stats;
    assert_ok(kvp_cache_stats_get(cache, &stats)); /* of this process */
    assert_fields(stats, fallback_references, 0, references, 20 * SCAN_BLOCKS);
    assert_true(stats.learned_hits <= n_hits);
    assert_sound(cache);
    kvp_cache_destroy(cache);
}

/* Saved again at once, it is the same file. */
TEST(test_the_same_bytes)
{
    const kvp_config config = learned_config(USABLE);
    const kvp_snapshot_options options = snap_options();
    scoped_halves h = make_halves();
    kvp_snapshot_report report;
    kvp_cache *cache = load(&h.saved, &config, &report);
    snap again = snap_of(cache, &options);
    assert_int_equal(again.n, h.saved.n);
    assert_memory_equal(again.bytes, h.saved.bytes, again.n);
    snap_drop(&again);
    kvp_cache_destroy(cache);
}

/* Blocks are there all the same, and it begins to learn anew. */
TEST(test_all_or_nothing)
{
    int (*const keeps[])(uint32_t) = {none, all_but_the_first, all_but_a_class, all_but_entries,
                                      all_but_blocks};
    const kvp_config config = learned_config(USABLE);
    scoped_halves h = make_halves();
    for (size_t i = 0; i < sizeof keeps / sizeof *keeps; i++) {
        snap part = without(&h.saved, keeps[i]);
        kvp_snapshot_report report;
        uint64_t n_hits = 0;
        kvp_cache *cache = load(&part, &config, &report);
        assert_fields(report, learned, 0, blocks, report.saved_blocks);
        assert_int_equal(kvpi_leaves_policy(&cache->pool.leaves)->references, 0);
        assert_true(scan(cache, 20, &n_hits) != h.digest);
        assert_true(n_hits < h.n_hits);
        kvp_cache_destroy(cache);
        snap_drop(&part);
    }
}

static int get_nothing(void *context, const kvp_snapshot_block *block, void *out)
{
    (void)context;
    *(uint8_t *)out = (uint8_t)block->block;
    return 0;
}

static int put_nothing(void *context, const kvp_snapshot_block *block, const void *bytes)
{
    (void)context, (void)block, (void)bytes;
    return 0;
}

/* With bytes, blocks get other ids: what was known of the old ones is left. */
TEST(test_other_ids)
{
    const kvp_config config = learned_config(2 * USABLE);
    kvp_snapshot_options options = snap_options();
    kvp_snapshot_report report;
    kvp_cache *cache;
    scoped_halves h = make_halves();
    options.block_bytes = 1;
    options.get = get_nothing;
    options.put = put_nothing;
    snap s = snap_of(h.cache, &options);
    const kvp_source source = snap_source(&s);
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    assert_ok(kvp_snapshot_load(cache, &options, &source, &report));
    assert_report(&report);
    assert_sound(cache);
    assert_fields(report, learned, 0, blocks, report.saved_blocks);
    snap_drop(&s);
    kvp_cache_destroy(cache);
}

/* A cache with LRU takes the blocks and leaves the rest. */
TEST(test_other_caches)
{
    kvp_config config = learned_config(USABLE);
    scoped_halves h = make_halves();
    kvp_snapshot_report report;
    config.policy = KVP_POLICY_LRU;
    kvp_cache *cache = load(&h.saved, &config, &report);
    assert_fields(report, learned, 0, damaged_records, 0, complete, 1);
    kvp_cache_destroy(cache);
}

/* --------------------------------------------------------------------------------------- forged */

struct word {
    uint32_t number; /* of its record */
    size_t at;
    uint64_t value;
    uint32_t n_bytes; /* 0: 4 */
};

static int set_word(void *context, snap_record *record)
{
    const struct word *word = context;
    if (record->number == word->number)
        kvpi_bytes_store(record->payload + 4 * word->at, word->value,
                         word->n_bytes == 0 ? 4 : word->n_bytes);
    return 1;
}

/* Records with right checksums, and one word of them changed. */
static snap forged(const snap *s, uint32_t number, size_t at, uint32_t value)
{
    struct word word = {number, at, value, 4};
    return snap_edit(s, set_word, &word);
}

/* Whatever a word is: the cache is sound, and serves under its own audit. */
TEST(test_forged_words)
{
    static const uint32_t values[] = {0, 1, 63, 64, 0x7fffffff, 0x80000000, UINT32_MAX};
    const kvp_config config = learned_config(USABLE);
    scoped_halves h = make_halves();
    uint64_t random = 7;
    uint32_t n_learned = 0, n_refused = 0, number = 0;
    for (size_t at = 8; at < h.saved.n; at = behind(&h.saved, at), number++) {
        const size_t n_words = kvpi_bytes_load32(h.saved.bytes + at + 4) / 4;
        if (kind_at(&h.saved, at) != KVPI_SNAP_LEARNED)
            continue;
        for (int i = 0; i < 12; i++) {
            const size_t word = draw(&random, (uint32_t)n_words);
            snap s = forged(&h.saved, number, word, values[draw(&random, 7)]);
            kvp_snapshot_report report;
            uint64_t n_hits = 0;
            kvp_cache *cache = load(&s, &config, &report);
            n_learned += report.learned;
            n_refused += !report.learned;
            (void)scan(cache, i == 0, &n_hits);
            assert_sound(cache);
            kvp_cache_destroy(cache);
            snap_drop(&s);
        }
    }
    assert_true(n_learned > 50 && n_refused > 50);
}

/* The first record's words that are bounded: the most that is accepted, and one more. */
TEST(test_one_too_many)
{
    static const struct word most[] = {
        {0, 7, 1, 4},                              /* is it distrusted? */
        {0, 8, 1, 4},                              /* is it gated? */
        {0, 9, INT32_MAX, 4},                      /* uses */
        {0, 10, INT32_MAX, 4},                     /* sampled */
        {0, 11, UINT16_MAX, 4},                    /* loose blocks */
        {0, 16, KVPI_CLASSES - KVPI_HITS_TURN, 4}, /* whose turn it is */
        {0, 3, UINT64_C(1) << 62, 8},              /* rests */
        {0, 12, UINT64_C(1) << 32, 8}              /* groups that came back */
    };
    const kvp_config config = learned_config(USABLE);
    scoped_halves h = make_halves();
    uint32_t number = 0;
    for (size_t at = 8; kind_at(&h.saved, at) != KVPI_SNAP_LEARNED; at = behind(&h.saved, at))
        number++;
    for (size_t i = 0; i < sizeof most / sizeof *most; i++)
        for (uint32_t more = 0; more < 2; more++) {
            struct word word = {number, most[i].at, most[i].value + more, most[i].n_bytes};
            snap s = snap_edit(&h.saved, set_word, &word);
            kvp_snapshot_report report;
            kvp_cache *cache = load(&s, &config, &report);
            assert_int_equal(report.learned, !more);
            kvp_cache_destroy(cache);
            snap_drop(&s);
        }
}

/* An index that no counts give would overflow where it is multiplied. */
TEST(test_forged_index)
{
    const kvp_config config = learned_config(USABLE);
    scoped_halves h = make_halves();
    uint32_t n_seen = 0, number = 0;
    for (size_t at = 8; at < h.saved.n && n_seen < 2; at = behind(&h.saved, at), number++) {
        if (kind_at(&h.saved, at) == KVPI_SNAP_LEARNED && n_seen++ == 1) { /* the first class */
            snap s = forged(&h.saved, number, 4, 0x7fffffff);
            kvp_snapshot_report report;
            kvp_cache *cache = load(&s, &config, &report);
            assert_int_equal(report.learned, 0);
            kvp_cache_destroy(cache);
            snap_drop(&s);
        }
    }
}

TEST_MAIN(NULL, NULL)
