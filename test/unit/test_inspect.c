/* A look into the arena of a cache: right when the owner rests, harmless when it does not.
 *
 * At rest the figures are the cache's own, and the blocks are those that a snapshot restores, on
 * eight kinds of cache. With a call made between any two reads, the figures are of one moment and
 * the rest is called moving. Beside a second process that never rests, 2,000 looks never call the
 * arena damaged.
 *
 *   test_inspect --serve FILE KIND     a cache in FILE that works while stdin gives bytes: a byte,
 *                                      200 calls or more, then a byte on stdout; for tests of the
 *                                      command. One with a host tier and one group, and one
 *                                      with recurrent state, has quotas
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <fcntl.h>
#include <kvpager/inspect.h>
#include <kvpager/lend.h>
#include <kvpager/states.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arenas.h"
#include "snaps.h"
#include "tiers.h"

/* What is told, in words that can be sorted. */
typedef struct told {
    kvp_snapshot_item blocks[2 * 64];
    uint32_t n_blocks;
    char names[8][4];
    uint32_t n_names;
    kvp_arena_seq seqs[SNAP_OPEN];
    uint32_t n_seqs;
} told;

static void note(void *context, const kvp_snapshot_item *item)
{
    told *t = context;
    if (item->kind == KVP_SNAPSHOT_NAMESPACE) {
        assert_true(t->n_blocks == 0 && item->ns == t->n_names && t->n_names < 8);
        assert_in_range(item->name_bytes, 0, 3);
        memcpy(t->names[t->n_names++], item->name, item->name_bytes);
        return;
    }
    assert_true(t->n_blocks < 2 * 64 && item->ns < t->n_names);
    t->blocks[t->n_blocks++] = *item;
}

static void note_seq(void *context, const kvp_arena_seq *seq)
{
    told *t = context;
    assert_true(t->n_seqs < SNAP_OPEN);
    t->seqs[t->n_seqs++] = *seq;
}

static int by_block(const void *a, const void *b)
{
    const kvp_snapshot_item *x = a, *y = b;
    const int is_slot[2] = {x->block.n_tokens == 1, y->block.n_tokens == 1}; /* units have more */
    if (is_slot[0] != is_slot[1])
        return is_slot[0] - is_slot[1];
    return x->block.tier != y->block.tier ? (int)x->block.tier - (int)y->block.tier
                                          : x->block.block - y->block.block;
}

/* Restoring a snapshot tells the same of the same cache. */
static told of_snapshot(kvp_cache *cache, const kvp_config *config)
{
    told t = {0};
    kvp_cache *restored;
    snap s = snap_of(cache, NULL);
    kvp_snapshot_options options = snap_options();
    const kvp_source source = snap_source(&s);
    options.context = &t;
    options.tell = note;
    assert_ok(kvp_cache_create(config, NULL, 0, &restored));
    assert_ok(kvp_snapshot_load(restored, &options, &source, NULL));
    kvp_cache_destroy(restored);
    snap_drop(&s);
    return t;
}

static told of_arena(const arena *a, kvp_arena_report *report)
{
    told t = {0};
    kvp_arena_options options;
    kvp_arena_options_init(&options);
    options.context = &t;
    options.tell = note;
    options.tell_seq = note_seq;
    const kvp_arena_source source = arena_source(a);
    assert_ok(kvp_arena_inspect(&source, &options, report));
    return t;
}

static void check_blocks(told *seen, told *saved)
{
    qsort(seen->blocks, seen->n_blocks, sizeof(*seen->blocks), by_block);
    qsort(saved->blocks, saved->n_blocks, sizeof(*saved->blocks), by_block);
    assert_fields(*seen, n_blocks, saved->n_blocks, n_names, saved->n_names);
    assert_memory_equal(seen->names, saved->names, sizeof(seen->names));
    for (uint32_t i = 0; i < seen->n_blocks; i++)
        assert_memory_equal(&seen->blocks[i], &saved->blocks[i], sizeof(seen->blocks[i]));
}

static void check_seqs(const load_run *run, const told *t)
{
    assert_int_equal(t->n_seqs, run->n_open);
    for (uint32_t i = 0; i < run->n_open; i++) {
        kvp_seq_info info;
        uint32_t n = 0;
        assert_ok(kvp_seq_info_get(run->cache, run->open[i], &info));
        for (uint32_t k = 0; k < t->n_seqs; k++) {
            const kvp_arena_seq *seq = &t->seqs[k];
            n += seq->tag == info.tag && seq->n_tokens == info.n_tokens && seq->tier == info.tier &&
                 seq->prompt_tokens == info.prompt_tokens &&
                 seq->cached_tokens == info.cached_tokens &&
                 seq->computed_tokens == info.computed_tokens && seq->n_blocks == info.n_blocks &&
                 info.ns.bits == run->ns[seq->ns].bits;
        }
        assert_in_range(n, 1, SNAP_OPEN);
    }
}

static uint64_t sum_of(const kvp_arena_report *report, uint32_t tier, uint32_t state)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < report->config.n_groups; g++)
        n += report->blocks[tier][g][state];
    return n;
}

static void check_figures(kvp_cache *cache, const kvp_arena_report *report)
{
    kvp_stats stats;
    kvp_config config;
    assert_ok(kvp_cache_stats_get(cache, &stats));
    assert_ok(kvp_cache_config_get(cache, &config));
    assert_memory_equal(&report->stats, &stats, sizeof(stats));
    assert_memory_equal(&report->config, &config, sizeof(config)); /* nothing is uncached here */
    assert_fields(*report, state, KVP_ARENA_WHOLE, inside, 0, calls_since, 0);
    assert_int_equal(sum_of(report, KVP_DEVICE, KVP_ARENA_HELD), stats.held_blocks);
    assert_int_equal(sum_of(report, KVP_DEVICE, KVP_ARENA_CACHED), stats.cached_blocks);
    assert_int_equal(sum_of(report, KVP_DEVICE, KVP_ARENA_PARKED), stats.parked_blocks);
    kvp_state_stats states;
    assert_ok(kvp_cache_state_stats_get(cache, &states));
    if (config.state_slots > 0) {
        const uint64_t *slots = report->blocks[KVP_DEVICE][config.n_groups];
        assert_int_equal(slots[KVP_ARENA_HELD], states.held_slots);
        assert_int_equal(slots[KVP_ARENA_CACHED], states.cached_slots);
        assert_int_equal(slots[KVP_ARENA_PARKED], states.parked_slots);
    }
    assert_int_equal(sum_of(report, KVP_HOST, KVP_ARENA_HELD), stats.host_held_blocks);
    assert_int_equal(sum_of(report, KVP_HOST, KVP_ARENA_CACHED), stats.host_cached_blocks);
}

static uint64_t unreachable_in(const arena *a)
{
    kvp_arena_report report;
    kvp_arena_options options;
    const kvp_arena_source source = arena_source(a);
    kvp_arena_options_init(&options);
    assert_ok(kvp_arena_inspect(&source, &options, &report));
    assert_int_equal(report.state, KVP_ARENA_WHOLE);
    return report.unreachable_blocks;
}

/* Blocks behind the last checkpoint are cached, and no prompt hits them. */
TEST(test_blocks_without_a_checkpoint_are_counted)
{
    kvp_config config = config_of(4, 2, 20);
    config.state_slots = 3;
    arena a = arena_of(&config);
    world w = {.cache = a.cache};
    uint32_t outcome;
    assert_ok(kvp_ns_open(a.cache, NULL, 0, &w.ns));
    kvp_seq seq = open_seq(&w, ints(0), 18, NULL); /* the last block has one unit only */
    assert_ok(kvp_seq_commit(a.cache, seq, 6));
    assert_ok(kvp_seq_checkpoint(a.cache, seq, &outcome));
    assert_int_equal(outcome, KVP_CHECKPOINT_MADE);
    assert_ok(kvp_seq_commit(a.cache, seq, 18));
    assert_int_equal(unreachable_in(&a), 0); /* they are held */
    close_seq(&w, seq);
    assert_int_equal(unreachable_in(&a), 3); /* of tokens 8 to 17; it is inside the second one */
    seq = open_seq(&w, ints(100), 4, NULL);
    assert_ok(kvp_seq_commit(a.cache, seq, 4));
    assert_ok(kvp_seq_checkpoint(a.cache, seq, &outcome)); /* which evicts the other one */
    close_seq(&w, seq);
    assert_int_equal(unreachable_in(&a), 5);
    arena_drop(&a);
}

TEST(test_it_tells_what_a_snapshot_would_hold)
{
    for (int which = 0; which < SNAP_N_KINDS; which++) {
        const kvp_config config = snap_config(which);
        arena a = arena_of(&config);
        load_run run = run_begin(a.cache, 70 + (uint64_t)which);
        for (int round = 0; round < 12; round++) {
            kvp_arena_report report;
            told seen = of_arena(&a, &report);
            check_figures(a.cache, &report);
            check_seqs(&run, &seen);
            told saved = of_snapshot(a.cache, &config);
            check_blocks(&seen, &saved);
            assert_true(seen.n_blocks > 20 || round < 3);
            run_on(&run, 40);
        }
        run_close(&run);
        arena_drop(&a);
    }
}

/* Blocks of the host are not counted, and checkpoints of namespaces that are gone not told of. */
TEST(test_checkpoints_of_namespaces_that_are_gone)
{
    kvp_config config = config_of(4, 4, 20);
    config.state_slots = 4;
    config.host_blocks = 9;
    config.host_state_slots = 4;
    arena a = arena_of(&config);
    world w = {.cache = a.cache};
    kvp_arena_report report;
    assert_ok(kvp_ns_open(a.cache, NULL, 0, &w.ns));
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    assert_ok(kvp_seq_commit(a.cache, seq, 8));
    assert_ok(kvp_seq_checkpoint(a.cache, seq, NULL));
    assert_ok(kvp_seq_swap_out(a.cache, &seq, 1, NULL));
    told t = of_arena(&a, &report);
    const uint32_t n_blocks = t.n_blocks; /* and the checkpoint */
    assert_true(report.blocks[KVP_HOST][0][KVP_ARENA_HELD] > 0);
    assert_int_equal(report.blocks[KVP_DEVICE][1][KVP_ARENA_CACHED], 1);
    assert_int_equal(unreachable_in(&a), 0);
    assert_ok(kvp_ns_flush(a.cache, w.ns));
    t = of_arena(&a, &report);
    assert_true(n_blocks > 2 && t.n_blocks == 0);
    assert_int_equal(report.blocks[KVP_DEVICE][1][KVP_ARENA_CACHED], 1);
    arena_drop(&a);
}

TEST(test_calls_are_counted)
{
    const kvp_config config = snap_config(SNAP_PLAIN);
    arena a = arena_of(&config);
    kvp_arena_report report;
    kvp_ns ns;
    const kvp_arena_source source = arena_source(&a);
    assert_ok(kvp_arena_inspect(&source, NULL, &report));
    assert_int_equal(report.calls, 0);
    assert_ok(kvp_ns_open(a.cache, "x", 1, &ns));
    assert_status(KVP_E_HANDLE, kvp_ns_close(a.cache, (kvp_ns){0}));
    assert_ok(kvp_arena_inspect(&source, NULL, &report));
    assert_fields(report, calls, 2, state, KVP_ARENA_WHOLE);
    assert_int_equal(report.stats.open_namespaces, 1);
    assert_int_equal(report.arena_bytes, a.n);
    arena_drop(&a);
}

TEST(test_namespaces_that_are_gone)
{
    const kvp_config config = snap_config(SNAP_PLAIN);
    arena a = arena_of(&config);
    load_run run = run_begin(a.cache, 3);
    kvp_arena_report report;
    run_on(&run, 100);
    for (int i = 0; i < SNAP_SPACES; i++)
        assert_ok(i == 1 ? kvp_ns_flush(a.cache, run.ns[i]) : kvp_ns_close(a.cache, run.ns[i]));
    const told t = of_arena(&a, &report);
    assert_int_equal(report.state, KVP_ARENA_WHOLE);
    assert_int_equal(t.n_names, 1);
    assert_int_equal(t.n_blocks, 0); /* cached, and never hit again */
    assert_true(report.stats.cached_blocks > 0 && t.n_seqs > 0);
    for (uint32_t i = 0; i < t.n_seqs; i++)
        assert_int_equal(t.seqs[i].ns, UINT32_MAX);
    arena_drop(&a);
}

/* What namespaces have, by their numbers. */
typedef struct quotas_told {
    kvp_ns_info spaces[SNAP_SPACES];
    uint32_t n;
} quotas_told;

static void note_quota(void *context, uint32_t ns, const kvp_ns_info *info)
{
    quotas_told *t = context;
    assert_true(ns == t->n && t->n < SNAP_SPACES);
    t->spaces[t->n++] = *info;
}

static quotas_told quotas_of_arena(const arena *a)
{
    quotas_told t = {0};
    kvp_arena_options options;
    kvp_arena_report report;
    const kvp_arena_source source = arena_source(a);
    kvp_arena_options_init(&options);
    options.context = &t;
    options.tell_quota = note_quota;
    assert_ok(kvp_arena_inspect(&source, &options, &report));
    assert_int_equal(report.state, KVP_ARENA_WHOLE);
    return t;
}

/* A namespace that closes between two others leaves no gap in the numbers. */
TEST(test_quotas_are_told)
{
    for (int which = 0; which < SNAP_N_KINDS; which++) {
        kvp_config config = snap_config(which);
        config.quotas = 1;
        config.policy = KVP_POLICY_LRU; /* the learned one has none */
        arena a = arena_of(&config);
        load_run run = run_begin(a.cache, 40 + (uint64_t)which);
        assert_ok(kvp_ns_quota(a.cache, run.ns[2], KVP_DEVICE, 7));
        if (config.host_blocks > 0)
            assert_ok(kvp_ns_quota(a.cache, run.ns[2], KVP_HOST, 0));
        if (config.state_slots > 0)
            assert_ok(kvp_ns_quota(a.cache, run.ns[2], KVP_STATE_SLOTS, 3));
        run_on(&run, 300);
        for (uint32_t n_open = SNAP_SPACES; n_open >= SNAP_SPACES - 1; n_open--) {
            const quotas_told t = quotas_of_arena(&a);
            assert_int_equal(t.n, n_open);
            for (uint32_t i = 0; i < n_open; i++) {
                kvp_ns_info info;
                const kvp_ns ns = run.ns[n_open == SNAP_SPACES || i == 0 ? i : i + 1];
                assert_ok(kvp_ns_info_get(a.cache, ns, &info));
                assert_memory_equal(&t.spaces[i], &info, sizeof(info));
            }
            assert_true(t.spaces[n_open - 1].quota == 7 && t.spaces[n_open - 1].blocks > 0);
            if (n_open == SNAP_SPACES)
                assert_ok(kvp_ns_close(a.cache, run.ns[1]));
        }
        arena_drop(&a);
        config.quotas = 0;
        a = arena_of(&config);
        run = run_begin(a.cache, 40);
        assert_int_equal(quotas_of_arena(&a).n, 0);
        run_close(&run);
        arena_drop(&a);
    }
}

/* Loads and lent blocks are part of what is audited. */
TEST(test_what_is_lent)
{
    kvp_config config = tiers_config(4, 4, 4, 8);
    config.max_loads = 2;
    arena a = arena_of(&config);
    const kvp_arena_source source = arena_source(&a);
    int32_t blocks[2];
    kvp_load load = {.struct_size = sizeof(load), .entries = {0, 2}, .blocks = blocks};
    const kvp_prompt prompt = prompt_of(ints(0), 8);
    kvp_arena_options options;
    kvp_arena_report report;
    kvp_ns ns;
    kvp_arena_options_init(&options);
    assert_ok(kvp_ns_open(a.cache, "a", 1, &ns));
    assert_ok(kvp_load_begin(a.cache, ns, &prompt, &load));
    assert_ok(kvp_arena_inspect(&source, &options, &report));
    assert_int_equal(report.state, KVP_ARENA_WHOLE);
    assert_ok(kvp_load_done(a.cache, load.number, (const uint8_t[]){1, 0}, 2, NULL));
    assert_ok(kvp_cache_lend(a.cache, &blocks[0], 1));
    assert_ok(kvp_arena_inspect(&source, &options, &report));
    assert_int_equal(report.state, KVP_ARENA_WHOLE);
    assert_ok(kvp_cache_give_back(a.cache, &blocks[0], 1));
    arena_drop(&a);
}

/* ------------------------------------------------------------------------------ two processes */

/* The cache of a child that works until it is killed. */
static pid_t busy_owner(const kvp_config *config, void *memory, size_t n)
{
    int ready[2];
    uint8_t byte = 0;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        kvp_cache *cache;
        if (kvp_cache_create(config, memory, n, &cache) != KVP_OK)
            _exit(1);
        load_run run = run_begin(cache, 11);
        run_on(&run, 200);
        if (write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            run_on(&run, 100);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void note_nothing(void *context, const kvp_snapshot_item *item)
{
    uint64_t *n = context;
    *n += item->kind == KVP_SNAPSHOT_BLOCK;
}

TEST(test_an_owner_at_work_is_looked_at)
{
    const kvp_config config = snap_config(SNAP_GROUPS);
    size_t n;
    uint64_t n_blocks = 0;
    kvp_arena_options options;
    assert_ok(kvp_cache_bytes(&config, &n));
    void *memory = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    const pid_t child = busy_owner(&config, memory, n);
    const arena shared = {.bytes = memory, .n = n};
    const kvp_arena_source source = arena_source(&shared);
    kvp_arena_options_init(&options);
    options.context = &n_blocks;
    options.tell = note_nothing;
    uint64_t calls = 0;
    for (int i = 0; i < 2000; i++) {
        kvp_arena_report r;
        assert_ok(kvp_arena_inspect(&source, &options, &r));
        assert_true(r.state != KVP_ARENA_DAMAGED && r.calls >= calls);
        assert_true(r.inside ||
                    r.stats.free_blocks + r.stats.cached_blocks + r.stats.held_blocks == 60);
        calls = r.calls;
    }
    assert_true(n_blocks > 0 && calls > 0);
    /* Stopped, it rests: between two calls, or inside one. */
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    kvp_arena_report r;
    assert_ok(kvp_arena_inspect(&source, &options, &r));
    assert_fields(r, state, r.inside ? KVP_ARENA_MOVING : KVP_ARENA_WHOLE, calls_since, 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(munmap(memory, n), 0);
}

/* A source in front of an owner that makes a call when the inspector is at a given read. */
typedef struct interrupted {
    const arena *a;
    load_run *run;
    int left;
} interrupted;

static int read_and_work(void *context, uint64_t offset, void *out, size_t n)
{
    interrupted *i = context;
    if (i->left-- == 0)
        run_on(i->run, 1);
    memcpy(out, i->a->bytes + offset, n);
    return 0;
}

/* Wherever a call comes between, figures are of one moment, and the rest is known not to be. */
TEST(test_a_call_between_any_two_reads)
{
    const kvp_config config = snap_config(SNAP_UNITS);
    arena a = arena_of(&config);
    load_run run = run_begin(a.cache, 9);
    run_on(&run, 100);
    uint32_t n_moving = 0;
    int at = 0;
    for (int done = 0; !done; at++) {
        interrupted i = {&a, &run, at};
        uint64_t n_blocks = 0;
        kvp_arena_options options;
        kvp_arena_report r;
        const kvp_arena_source source = {&i, a.n, read_and_work};
        kvp_arena_options_init(&options);
        options.context = &n_blocks;
        options.tell = note_nothing;
        assert_ok(kvp_arena_inspect(&source, &options, &r));
        done = i.left >= 0;
        assert_fields(r, inside, 0, state, r.calls_since > 0 ? KVP_ARENA_MOVING : KVP_ARENA_WHOLE);
        assert_int_equal(r.stats.free_blocks + r.stats.cached_blocks + r.stats.held_blocks, 60);
        /* The first three reads are the figures': they are read again. */
        assert_int_equal(r.calls_since > 0, at >= 3 && !done);
        n_moving += r.state == KVP_ARENA_MOVING;
    }
    assert_true(n_moving > 10 && (int)n_moving == at - 4);
    run_close(&run);
    arena_drop(&a);
}

/* --------------------------------------------------------------------------------- the command */

static int serve(const char *path, int which)
{
    kvp_config config = snap_config(which);
    kvp_cache *cache;
    size_t n;
    config.quotas = which == SNAP_HOST || which == SNAP_STATES;
    assert_ok(kvp_cache_bytes(&config, &n));
    const int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0 && ftruncate(file, (off_t)n) == 0);
    void *memory = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(memory != MAP_FAILED);
    assert_ok(kvp_cache_create(&config, memory, n, &cache));
    load_run run = run_begin(cache, 5);
    if (config.quotas) {
        assert_ok(kvp_ns_quota(cache, run.ns[1], KVP_DEVICE, 9));
        assert_ok(
            kvp_ns_quota(cache, run.ns[2], which == SNAP_HOST ? KVP_HOST : KVP_STATE_SLOTS, 0));
    }
    for (int byte = getchar(); byte != EOF; byte = getchar()) {
        run_on(&run, byte == 'l' ? 1000000 : 200); /* 'l': for long */
        putchar(byte);
        fflush(stdout);
    }
    kvp_cache_destroy(cache);
    return 0;
}

/* An arena of which only the cache's own structure is there: the rest is holes. */
static int claim(const char *path, uint32_t n_blocks)
{
    kvp_config config;
    size_t n;
    kvp_cache *cache;
    kvp_config_init(&config);
    config.n_blocks = n_blocks;
    assert_ok(kvp_cache_bytes(&config, &n));
    void *memory =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_ok(kvp_cache_create(&config, memory, n, &cache));
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int done = file >= 0 && write(file, memory, 8192) == 8192 &&
                     ftruncate(file, (off_t)n) == 0 && close(file) == 0;
    munmap(memory, n);
    return !done;
}

/* The copy takes what max_bytes allows, or nothing is told. */
TEST(test_memory_for_the_copy)
{
    const kvp_config config = snap_config(SNAP_HOST);
    arena a = arena_of(&config);
    load_run run = run_begin(a.cache, 5);
    run_on(&run, 100);
    const kvp_arena_source source = arena_source(&a);
    uint64_t least = 0;
    for (uint64_t bytes = 1; bytes < UINT64_C(1) << 30; bytes += bytes / 64 + 1) {
        told t = {0};
        kvp_arena_report report;
        kvp_arena_options options;
        kvp_arena_options_init(&options);
        options.context = &t;
        options.tell = note;
        options.tell_seq = note_seq;
        options.max_bytes = bytes;
        const kvp_status status = kvp_arena_inspect(&source, &options, &report);
        if (least == 0 && status == KVP_OK)
            least = bytes;
        assert_status(least == 0 ? KVP_E_TOO_SMALL : KVP_OK, status);
        assert_true((t.n_names > 0) == (least != 0) && (t.n_blocks > 0) == (least != 0));
    }
    assert_in_range(least, 4096, a.n + (UINT64_C(1) << 20));
    run_close(&run);
    arena_drop(&a);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--claim") == 0)
        return claim(argv[2], (uint32_t)strtoul(argv[3], NULL, 10));
    if (argc == 4 && strcmp(argv[1], "--serve") == 0)
        return serve(argv[2], atoi(argv[3]));
    return run_all_tests(NULL, NULL);
}
