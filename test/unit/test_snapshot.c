/* Snapshots: what is saved, what comes back, and that everything goes on as if nothing had been:
 * the same block ids, hits, plans and victims, on nine kinds of cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/snapshot/frames.h"
#include "snaps.h"

static void check_goes_on(int which, uint64_t seed)
{
    const kvp_config config = snap_config(which);
    kvp_snapshot_report report;
    kvp_cache *cache = cache_of(&config);
    kvp_cache *restored = cache_of(&config);
    load_run run = run_begin(cache, seed);
    run_on(&run, 200 + (uint32_t)seed % 50);
    assert_in_range(run.n_open, 1, SNAP_OPEN); /* something is held when it is saved */
    snap s = snap_of(cache, NULL);
    assert_ok(snap_load(&s, restored, &report));
    assert_report(&report);
    assert_sound(restored);
    assert_fields(report, blocks, report.saved_blocks, units, report.saved_units, namespaces,
                  SNAP_SPACES, complete, 1);
    run_close(&run);
    const load_run other = run_again(restored, &run);
    const uint64_t evicted_before = run.n_evicted;
    run_on(&run, 300);
    assert_fields(run, cached_tokens, other.cached_tokens, n_evicted, other.n_evicted);
    assert_true(run.n_evicted > evicted_before);
    assert_true(run.digest == other.digest);
    snap_drop(&s);
    kvp_cache_destroy(cache);
    kvp_cache_destroy(restored);
}

TEST(test_hits_and_victims_go_on_as_if_nothing_had_happened)
{
    for (int which = 0; which <= SNAP_CHUNKED; which++)
        for (uint64_t seed = 1; seed <= 6; seed++)
            check_goes_on(which, seed * 77);
}

TEST(test_saving_changes_nothing)
{
    scoped_world w = tiers_world(15, 15);
    const kvp_seq seq = open_done(&w, ints(0), 14);
    leave_cached(&w, ints(100), 9);
    const kvp_snapshot_options options = snap_options();
    snap s = {0};
    const kvp_sink sink = snap_sink(&s);
    assert_unchanged(&w, assert_ok(kvp_snapshot_save(w.cache, &options, &sink)));
    s.fail_at = s.n;
    assert_unchanged(&w, assert_status(KVP_E_IO, kvp_snapshot_save(w.cache, &options, &sink)));
    close_seq(&w, seq);
    snap_drop(&s);
}

TEST(test_a_saved_cache_saves_the_same_bytes_again)
{
    for (int which = 0; which < SNAP_N_KINDS; which++) {
        const kvp_config config = snap_config(which);
        kvp_cache *cache = cache_of(&config);
        kvp_cache *restored = cache_of(&config);
        load_run run = run_begin(cache, 11);
        run_on(&run, 250);
        snap s = snap_of(cache, NULL);
        s.piece = 7; /* a source that gives little at a time */
        assert_ok(snap_load(&s, restored, NULL));
        snap again = snap_of(restored, NULL);
        assert_int_equal(again.n, s.n);
        assert_memory_equal(again.bytes, s.bytes, s.n);
        snap_drop(&s);
        snap_drop(&again);
        kvp_cache_destroy(cache);
        kvp_cache_destroy(restored);
    }
}

TEST(test_copies_and_steps_must_be_over)
{
    world w = tiers_world(15, 15);
    const kvp_snapshot_options options = snap_options();
    snap s = {0};
    const kvp_sink sink = snap_sink(&s);
    const kvp_seq seq = open_done(&w, ints(0), 6);
    swap_out(&w, &seq, 1);
    assert_status(KVP_E_STATE, kvp_snapshot_save(w.cache, &options, &sink));
    drop_plan(&w);
    assert_ok(kvp_snapshot_save(w.cache, &options, &sink));
    close_seq(&w, seq);
    snap_drop(&s);
    end_world(&w);
    w = steps_world(15, 0);
    const uint64_t step = begin_step(&w);
    assert_status(KVP_E_STATE, kvp_snapshot_save(w.cache, &options, &sink));
    assert_int_equal(s.n, 0);
    done_step(&w, step);
    assert_ok(kvp_snapshot_save(w.cache, &options, &sink));
    snap_drop(&s);
    end_world(&w);
}

TEST(test_only_a_new_cache_takes_it)
{
    scoped_world w = small_world(15);
    leave_cached(&w, ints(0), 9);
    snap s = snap_of(w.cache, NULL);
    assert_unchanged(&w, assert_status(KVP_E_STATE, snap_load(&s, w.cache, NULL)));
    kvp_config config = config_of(4, 4, 15);
    kvp_cache *cache = cache_of(&config);
    assert_ok(snap_load(&s, cache, NULL));
    assert_status(KVP_E_STATE, snap_load(&s, cache, NULL)); /* not new any more */
    snap log = {0};
    const kvp_sink sink = snap_sink(&log);
    assert_status(KVP_E_STATE, kvp_cache_record_start(cache, &sink));
    kvp_cache_destroy(cache);
    cache = cache_of(&config);
    assert_ok(kvp_cache_record_start(cache, &sink));
    assert_status(KVP_E_STATE, snap_load(&s, cache, NULL));
    kvp_cache_destroy(cache);
    config.prefix_cache = 0;
    cache = cache_of(&config);
    assert_status(KVP_E_STATE, snap_load(&s, cache, NULL));
    kvp_cache_destroy(cache);
    snap_drop(&log);
    snap_drop(&s);
}

TEST(test_what_is_foreign_is_refused_before_anything)
{
    scoped_world w = tiers_world(15, 15);
    leave_cached(&w, ints(0), 9);
    snap s = snap_of(w.cache, NULL);
    const kvp_config same = tiers_config(4, 4, 15, 15);
    kvp_config others[7] = {same, same, same, same, same, same, same};
    others[0].block_tokens = 8;
    others[1].unit_tokens = 2;
    others[2].n_groups = 2;
    others[3].groups[0] = (kvp_group){0, 4, 0};
    others[4].hash_seed = 1;
    others[5].n_blocks++; /* without bytes */
    others[6].host_blocks--;
    for (int i = 0; i < 7; i++) {
        kvp_cache *cache = cache_of(&others[i]);
        kvp_snapshot_report report = {.blocks = 99};
        assert_status(KVP_E_MISMATCH, snap_load(&s, cache, &report));
        assert_int_equal(report.blocks, 99);
        snap log = {0};
        const kvp_sink sink = snap_sink(&log);
        assert_ok(kvp_cache_record_start(cache, &sink)); /* it is new still */
        kvp_cache_destroy(cache);
        snap_drop(&log);
    }
    kvp_cache *cache = cache_of(&same);
    kvp_snapshot_options options = snap_options();
    const kvp_source source = snap_source(&s);
    options.model = "tox";
    assert_status(KVP_E_MISMATCH, kvp_snapshot_load(cache, &options, &source, NULL));
    options = snap_options();
    options.model_bytes = 2;
    snap_source(&s);
    assert_status(KVP_E_MISMATCH, kvp_snapshot_load(cache, &options, &source, NULL));
    s.bytes[7] = '2';
    assert_status(KVP_E_VERSION, snap_load(&s, cache, NULL));
    s.bytes[0] = 'K';
    assert_status(KVP_E_FORMAT, snap_load(&s, cache, NULL));
    kvp_cache_destroy(cache);
    snap_drop(&s);
}

TEST(test_what_was_flushed_or_invalidated_is_not_saved)
{
    scoped_world w = small_world(15);
    leave_cached(&w, ints(100), 8);
    assert_ok(kvp_ns_flush(w.cache, w.ns));
    leave_cached(&w, ints(0), 12);
    const kvp_seq seq = open_done(&w, ints(0), 12);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 4, NULL, 0, NULL));
    snap s = snap_of(w.cache, NULL);
    const kvp_config config = config_of(4, 4, 15);
    world other = {.cache = cache_of(&config)};
    kvp_snapshot_report report;
    assert_ok(snap_load(&s, other.cache, &report));
    assert_int_equal(report.saved_blocks, 1);
    assert_ok(kvp_ns_open(other.cache, NULL, 0, &other.ns));
    assert_int_equal(match(&other, ints(0), 12).hit_tokens, 4);
    assert_int_equal(match(&other, ints(100), 9).hit_tokens, 0);
    close_seq(&w, seq);
    kvp_cache_destroy(other.cache);
    snap_drop(&s);
}

TEST(test_namespaces_are_there_until_the_last_opener_leaves)
{
    scoped_world w = small_world(15);
    leave_cached(&w, ints(0), 9);
    snap s = snap_of(w.cache, NULL);
    const kvp_config config = config_of(4, 4, 15);
    world other = {.cache = cache_of(&config)};
    assert_ok(snap_load(&s, other.cache, NULL));
    assert_int_equal(stats_of(&other).open_namespaces, 1);
    assert_ok(kvp_ns_open(other.cache, NULL, 0, &other.ns));
    assert_int_equal(stats_of(&other).open_namespaces, 1);
    assert_int_equal(match(&other, ints(0), 9).hit_tokens, 8);
    assert_ok(kvp_ns_close(other.cache, other.ns));
    assert_int_equal(stats_of(&other).open_namespaces, 0);
    kvp_cache_destroy(other.cache);
    snap_drop(&s);
}

TEST(test_wrong_hashes_from_outside_are_right_afterwards)
{
    scoped_world w = small_world(15);
    kvp_hash hashes[4], root;
    const kvp_hash_input input = {.unit_tokens = 4, .tokens = ints(0), .n_tokens = 16};
    assert_ok(kvp_hash_root(4, 0, NULL, 0, &root));
    assert_ok(kvp_hash_units(&input, &root, hashes));
    hashes[1].bytes[3] ^= 1;
    kvp_prompt prompt = prompt_of(ints(0), 16);
    prompt.hashes = hashes;
    const kvp_seq seq = open_with(&w, &prompt, NULL);
    assert_ok(kvp_seq_commit(w.cache, seq, 16));
    snap s = snap_of(w.cache, NULL);
    const kvp_config config = config_of(4, 4, 15);
    world other = {.cache = cache_of(&config)};
    kvp_snapshot_report report;
    assert_ok(snap_load(&s, other.cache, &report));
    assert_int_equal(report.units, 4);
    assert_ok(kvp_ns_open(other.cache, NULL, 0, &other.ns));
    assert_int_equal(match(&other, ints(0), 17).hit_tokens, 16);
    assert_sound(other.cache);
    close_seq(&w, seq);
    kvp_cache_destroy(other.cache);
    snap_drop(&s);
}

TEST(test_arguments)
{
    scoped_world w = small_world(15);
    snap s = snap_of(w.cache, NULL);
    const kvp_sink sink = snap_sink(&s);
    const kvp_source source = snap_source(&s);
    kvp_snapshot_options o = snap_options();
    kvp_snapshot_info info;
    assert_status(KVP_E_ARG, kvp_snapshot_save(NULL, &o, &sink));
    assert_status(KVP_E_ARG, kvp_snapshot_save(w.cache, NULL, &sink));
    assert_status(KVP_E_ARG, kvp_snapshot_save(w.cache, &o, NULL));
    assert_status(KVP_E_ARG, kvp_snapshot_save(w.cache, &o, &(kvp_sink){0}));
    assert_status(KVP_E_ARG, kvp_snapshot_load(NULL, &o, &source, NULL));
    assert_status(KVP_E_ARG, kvp_snapshot_load(w.cache, NULL, &source, NULL));
    assert_status(KVP_E_ARG, kvp_snapshot_load(w.cache, &o, NULL, NULL));
    assert_status(KVP_E_ARG, kvp_snapshot_load(w.cache, &o, &(kvp_source){0}, NULL));
    assert_status(KVP_E_ARG, kvp_snapshot_peek(NULL, &info));
    assert_status(KVP_E_ARG, kvp_snapshot_peek(&(kvp_source){0}, &info));
    assert_status(KVP_E_ARG, kvp_snapshot_peek(&source, NULL));
    o.block_bytes = 16; /* and nothing to get or put with */
    assert_status(KVP_E_ARG, kvp_snapshot_save(w.cache, &o, &sink));
    assert_status(KVP_E_ARG, kvp_snapshot_load(w.cache, &o, &source, NULL));
    o.block_bytes = (uint64_t)INT32_MAX + 1;
    assert_status(KVP_E_ARG, kvp_snapshot_save(w.cache, &o, &sink));
    o = snap_options();
    o.model = NULL;
    assert_status(KVP_E_ARG, kvp_snapshot_save(w.cache, &o, &sink));
    o = snap_options();
    o.model_bytes = 256;
    assert_status(KVP_E_ARG, kvp_snapshot_save(w.cache, &o, &sink));
    o = snap_options();
    o.struct_size--;
    assert_status(KVP_E_ARG, kvp_snapshot_save(w.cache, &o, &sink));
    kvp_snapshot_options_init(NULL);
    assert_ok(kvp_snapshot_peek(&source, &info));
    assert_fields(info, block_tokens, 4, n_blocks, 16, model_bytes, 3);
    snap_drop(&s);
}

/* A snapshot for the tests of the command. */
static int write_file(const char *path, const kvp_config *options)
{
    const kvp_config config = *options;
    kvp_cache *cache = cache_of(&config);
    load_run run = run_begin(cache, 21);
    run_on(&run, 300);
    snap s = snap_of(cache, NULL);
    FILE *file = fopen(path, "wb");
    const int done = file != NULL && fwrite(s.bytes, 1, s.n, file) == s.n && fclose(file) == 0;
    snap_drop(&s);
    kvp_cache_destroy(cache);
    return !done;
}

/* A snapshot of nothing, that claims so many blocks, likewise. */
static int write_claim(const char *path, uint32_t n_blocks)
{
    const kvp_snapshot_info info = {.block_tokens = 16,
                                    .unit_tokens = 16,
                                    .n_blocks = n_blocks,
                                    .n_groups = 1,
                                    .groups = {{0, 0, 16}}};
    uint8_t buffer[KVPI_SNAP_OVERHEAD + KVPI_SNAP_CONFIG_MAX];
    snap s = {0};
    const kvp_sink sink = snap_sink(&s);
    struct kvpi_snap_writer writer = {&sink, buffer, sizeof(buffer), 0, 0};
    assert_int_equal(sink.write(&s, KVPI_SNAP_MAGIC, 8), 0);
    struct kvpi_snap_bytes b = kvpi_snap_begin(&writer);
    kvpi_snap_put_config(&b, &info);
    kvpi_snap_end(&writer, KVPI_SNAP_CONFIG, &b);
    b = kvpi_snap_begin(&writer);
    kvpi_snap_end(&writer, KVPI_SNAP_END, &b);
    FILE *file = fopen(path, "wb");
    const int done = file != NULL && fwrite(s.bytes, 1, s.n, file) == s.n && fclose(file) == 0;
    snap_drop(&s);
    return !done;
}

/* A thousand names: each is there, once, and told with its number. */
TEST(test_many_namespaces)
{
    enum { N = 1000 };
    kvp_config config = config_of(4, 4, N + 2);
    kvp_snapshot_report report;
    config.max_namespaces = N + 1; /* one is the world's */
    scoped_world w = make_world(&config);
    kvp_cache *restored = cache_of(&config);
    for (int i = 0; i < N; i++) {
        char name[12];
        snprintf(name, sizeof(name), "%d", i);
        assert_ok(kvp_ns_open(w.cache, name, strlen(name), &w.ns));
        if (i % 3 == 0)
            leave_cached(&w, ints(i), 4);
    }
    snap s = snap_of(w.cache, NULL);
    assert_ok(snap_load(&s, restored, &report));
    assert_report(&report);
    assert_fields(report, namespaces, N + 1, blocks, (N + 2) / 3);
    for (int i = 0; i < N; i++) {
        char name[12];
        kvp_ns ns;
        kvp_open_info info;
        const kvp_prompt prompt = {.struct_size = sizeof(prompt), .tokens = ints(i), .n_tokens = 5};
        snprintf(name, sizeof(name), "%d", i);
        assert_ok(kvp_ns_open(restored, name, strlen(name), &ns));
        assert_ok(kvp_cache_match(restored, ns, &prompt, &info));
        assert_int_equal(info.hit_tokens, i % 3 == 0 ? 4 : 0);
    }
    snap again = snap_of(restored, NULL);
    assert_int_equal(again.n, s.n);
    assert_memory_equal(again.bytes, s.bytes, s.n);
    snap_drop(&s);
    snap_drop(&again);
    kvp_cache_destroy(restored);
}

/* The unit before it was withdrawn: content that nobody can find any more is not saved. */
TEST(test_what_cannot_be_reached_is_not_saved)
{
    const kvp_config config = config_of(4, 2, 15);
    scoped_world w = make_world(&config);
    kvp_cache *restored = cache_of(&config);
    kvp_snapshot_report report;
    leave_cached(&w, ints(0), 12);
    const kvp_seq first = open_seq(&w, ints(0), 3, NULL); /* the first unit, and a token */
    assert_ok(kvp_seq_invalidate(w.cache, first, 0, NULL, 0, NULL));
    drop_plan(&w);
    assert_int_equal(block_of(&w, 1).sealed_units, 1); /* of two */
    assert_int_equal(block_of(&w, 2).sealed_units, 2);
    snap s = snap_of(w.cache, NULL);
    assert_ok(snap_load(&s, restored, &report));
    assert_int_equal(report.saved_blocks, 0);
    assert_sound(restored);
    snap_drop(&s);
    kvp_cache_destroy(restored);
}

TEST(test_without_a_model)
{
    const kvp_config config = config_of(4, 2, 15);
    scoped_world w = make_world(&config);
    kvp_cache *restored = cache_of(&config);
    kvp_cache *other = cache_of(&config);
    kvp_snapshot_options options;
    kvp_snapshot_report report;
    kvp_snapshot_options_init(&options);
    leave_cached(&w, ints(0), 12);
    snap s = snap_of(w.cache, &options);
    const kvp_source source = snap_source(&s);
    assert_ok(kvp_snapshot_load(restored, &options, &source, &report));
    assert_int_equal(report.blocks, 3);
    assert_status(KVP_E_MISMATCH, snap_load(&s, other, &report)); /* which has one */
    snap_drop(&s);
    kvp_cache_destroy(other);
    kvp_cache_destroy(restored);
}

/* More blocks with a copy of one unit than a record of duplicates holds. */
TEST(test_more_duplicates_than_a_record_holds)
{
    enum { N = 1100 };
    const kvp_config config = config_of(4, 2, N + 2);
    scoped_world w = make_world(&config);
    kvp_cache *restored = cache_of(&config);
    kvp_snapshot_report report;
    int32_t prompt[4] = {1, 2, 3, 0};
    for (int32_t i = 0; i < N; i++) {
        prompt[3] = i;
        leave_cached(&w, prompt, 4);
        drop_plan(&w);
    }
    assert_int_equal(stats_of(&w).cached_blocks, N);
    snap s = snap_of(w.cache, NULL);
    assert_ok(snap_load(&s, restored, &report));
    assert_report(&report);
    assert_int_equal(report.blocks, N);
    snap again = snap_of(restored, NULL);
    assert_int_equal(again.n, s.n);
    assert_memory_equal(again.bytes, s.bytes, s.n);
    snap_drop(&s);
    snap_drop(&again);
    kvp_cache_destroy(restored);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--write") == 0) {
        const kvp_config config = snap_config(argv[3][0] - '0');
        return write_file(argv[2], &config);
    }
    if (argc == 3 && strcmp(argv[1], "--chunks") == 0) { /* of 16 tokens */
        kvp_config config = snap_config(SNAP_WINDOWED);
        config.groups[0].sink_tokens = KVP_CHUNKED;
        return write_file(argv[2], &config);
    }
    if (argc == 4 && strcmp(argv[1], "--claim") == 0)
        return write_claim(argv[2], (uint32_t)strtoul(argv[3], NULL, 10));
    return run_all_tests(NULL, NULL);
}
