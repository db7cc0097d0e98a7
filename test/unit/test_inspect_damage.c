/* Arenas that are damaged, cut, foreign, or no arenas: the inspector ends, reads nothing outside,
 * and does not call them whole. Every byte of the header is flipped, every word behind it set to
 * numbers that point outside; regions are random, and cut at every length. */
#include <kvpager/inspect.h>
#include <kvpager/lend.h>
#include <stdlib.h>
#include <string.h>

#include "arenas.h"
#include "core/cache/spaces.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "snaps.h"
#include "tiers.h"

typedef struct seen {
    kvp_status status;
    kvp_arena_report report;
    uint64_t n_told;
    uint64_t sum; /* every byte that was told is looked at */
} seen;

static void add_bytes(seen *s, const void *bytes, size_t n)
{
    s->n_told++;
    for (size_t i = 0; i < n; i++)
        s->sum += ((const uint8_t *)bytes)[i];
}

static void note(void *context, const kvp_snapshot_item *item)
{
    add_bytes(context, item, sizeof(*item));
    if (item->kind == KVP_SNAPSHOT_NAMESPACE)
        add_bytes(context, item->name, item->name_bytes);
    else
        assert_in_range(item->n_units, 1, 4);
}

static void note_seq(void *context, const kvp_arena_seq *seq)
{
    add_bytes(context, seq, sizeof(*seq));
}

static void note_quota(void *context, uint32_t ns, const kvp_ns_info *info)
{
    assert_in_range(ns, 0, 3); /* max_namespaces - 1 */
    add_bytes(context, info, sizeof(*info));
}

static seen look(const arena *a)
{
    seen s = {0};
    const kvp_arena_source source = arena_source(a);
    const kvp_arena_options options = {sizeof(options), &s, note, note_seq, 0, note_quota};
    s.status = kvp_arena_inspect(&source, &options, &s.report);
    assert_true(s.status == KVP_OK || s.status == KVP_E_FORMAT || s.status == KVP_E_VERSION);
    assert_true(s.status == KVP_OK || s.n_told == 0);
    if (s.status == KVP_OK && s.report.state == KVP_ARENA_DAMAGED)
        assert_true(s.report.violation.detail != NULL && s.report.violation.invariant[0] != '\0');
    return s;
}

/* A cache with everything in it. */
static arena full_arena(int which, load_run *run)
{
    kvp_config config = snap_config(which);
    config.n_blocks = 30;
    config.max_seqs = 8;
    config.max_seq_tokens = 80;
    config.max_copies = 60;
    config.host_blocks = config.host_blocks > 0 ? 12 : 0;
    config.quotas = which == SNAP_HOST || which == SNAP_UNITS;
    config.max_loads = which == SNAP_HOST ? 2 : 0;
    arena a = arena_of(&config);
    *run = run_begin(a.cache, 40 + (uint64_t)which);
    run_on(run, 300);
    while (run->n_open == 0)
        run_on(run, 1);
    if (config.max_loads > 0) {
        int32_t block;
        const kvp_prompt prompt = prompt_of(ints(900), 5);
        kvp_load load = {.struct_size = sizeof(load), .entries = {0, 1}, .blocks = &block};
        assert_ok(kvp_load_begin(a.cache, run->ns[0], &prompt, &load));
    }
    assert_int_equal(look(&a).report.state, KVP_ARENA_WHOLE);
    return a;
}

static int is_whole(const seen *s)
{
    return s->status == KVP_OK && s->report.state == KVP_ARENA_WHOLE;
}

/* ------------------------------------------------------------------------------------- damage */

TEST(test_every_byte_of_the_header)
{
    for (int which = 0; which < SNAP_N_KINDS; which++) {
        load_run run;
        arena a = full_arena(which, &run);
        uint64_t random = 5;
        uint32_t n_refused = 0;
        for (size_t i = 0; i < sizeof(kvp_cache); i++) {
            const uint8_t old = a.bytes[i];
            a.bytes[i] ^= (uint8_t)(1 + draw(&random, 255));
            n_refused += look(&a).status != KVP_OK;
            a.bytes[i] = old;
        }
        assert_true(n_refused > sizeof(kvp_config) / 2);
        assert_int_equal(look(&a).report.state, KVP_ARENA_WHOLE);
        arena_drop(&a);
    }
}

/* Numbers that point just outside, far outside, or back. */
TEST(test_every_word_behind_it)
{
    static const uint32_t values[] = {0, 1, 29, 30, 31, 1u << 28, UINT32_MAX - 1, UINT32_MAX};
    for (int which = 0; which < SNAP_N_KINDS; which++) {
        load_run run;
        arena a = full_arena(which, &run);
        uint64_t random = 6;
        uint32_t n_noticed = 0;
        for (size_t i = sizeof(kvp_cache); i + 4 <= a.n; i += 4) {
            uint32_t old;
            memcpy(&old, a.bytes + i, 4);
            memcpy(a.bytes + i, &values[draw(&random, 8)], 4);
            a.cache->calls ^= draw(&random, 8) == 0; /* now and then it moves: no audit before */
            const seen s = look(&a);
            n_noticed += s.report.state == KVP_ARENA_DAMAGED;
            a.cache->calls &= ~(uint64_t)1;
            memcpy(a.bytes + i, &old, 4);
        }
        assert_true(n_noticed > 100);
        assert_int_equal(look(&a).report.state, KVP_ARENA_WHOLE);
        arena_drop(&a);
    }
}

/* A root that has a checkpoint, a parent that is no node, and a block, or none: then a checkpoint
 * less is told of. */
TEST(test_a_root_with_a_checkpoint)
{
    load_run run;
    arena a = full_arena(SNAP_STATES, &run);
    kvp_cache *cache = a.cache;
    uint32_t slot = 1;
    while (kvpi_block(&cache->states.pool, slot)->content == KVPI_NO_NODE)
        slot++;
    const uint32_t root = kvpi_find_space(cache, run.ns[0])->root;
    struct kvpi_place *block = kvpi_node_at(&cache->prefix, root, KVPI_WHERE(KVP_DEVICE, 0));
    kvpi_node_at(&cache->prefix, root, kvpi_states_where(cache))->block = slot;
    kvpi_node(&cache->prefix, root)->parent = UINT32_MAX;
    kvpi_block(&cache->states.pool, slot)->content = root;
    block->block = 1;
    const seen with = look(&a);
    block->block = 0;
    const seen without = look(&a);
    assert_int_equal(with.report.state, KVP_ARENA_DAMAGED);
    assert_int_equal(with.n_told, without.n_told + 1);
    arena_drop(&a);
}

TEST(test_random_regions)
{
    for (int which = 0; which < SNAP_N_KINDS; which++) {
        load_run run;
        arena a = full_arena(which, &run);
        uint8_t *good = malloc(a.n);
        assert_non_null(good);
        memcpy(good, a.bytes, a.n);
        uint64_t random = 7;
        for (int round = 0; round < 400; round++) {
            for (uint32_t n = 1 + draw(&random, 8); n > 0; n--) {
                const size_t length = 1 + draw(&random, 512);
                const size_t at =
                    sizeof(kvp_cache) + draw(&random, (uint32_t)(a.n - sizeof(kvp_cache) - length));
                const uint32_t range = draw(&random, 2) ? 256 : 3; /* small numbers point inside */
                for (size_t i = 0; i < length; i++)
                    a.bytes[at + i] = i % 4 == 0 ? (uint8_t)draw(&random, range) : 0;
            }
            a.cache->calls ^= (uint64_t)round % 2;
            (void)look(&a);
            memcpy(a.bytes, good, a.n);
        }
        free(good);
        arena_drop(&a);
    }
}

/* What each kind of damage is called. */
static void assert_seen_damaged(const arena *a, const char *invariant)
{
    const seen s = look(a);
    assert_int_equal(s.status, KVP_OK);
    assert_int_equal(s.report.state, KVP_ARENA_DAMAGED);
    assert_string_equal(s.report.violation.invariant, invariant);
}

static void assert_damaged(const arena *a, uint32_t *word, uint32_t value, const char *invariant)
{
    const uint32_t old = *word;
    *word = value;
    assert_seen_damaged(a, invariant);
    *word = old;
}

static uint32_t an_alive_node(const kvp_cache *cache)
{
    uint32_t i = 1;
    while (kvpi_node(&cache->prefix, i)->depth < 2 ||
           kvpi_node(&cache->prefix, i)->at[0].block == 0)
        i++;
    return i;
}

TEST(test_what_is_damaged_is_named)
{
    load_run run;
    arena a = full_arena(SNAP_HOST, &run);
    kvp_cache *cache = a.cache;
    struct kvpi_node *node = kvpi_node(&cache->prefix, an_alive_node(cache));
    struct kvpi_block *block = kvpi_block(&cache->pool, node->at[0].block);
    struct kvpi_seq *seq = kvpi_seq_at(&cache->table, 0);
    while ((seq->generation & 1) == 0 || seq->tier != KVP_DEVICE)
        seq++;
    const uint32_t place = kvpi_seq_place(&cache->table, seq);
    uint32_t *row = (uint32_t *)(void *)kvpi_row_blocks(&cache->table, place);
    assert_damaged(&a, &block->refs, block->refs | 1u << KVPI_REFS_GROUP_SHIFT, "B1");
    struct kvpi_block *held = kvpi_block(&cache->pool, row[0]);
    assert_damaged(&a, &held->refs, held->refs + 1, "T1");
    assert_damaged(&a, &block->content, UINT32_MAX, "N3");
    assert_damaged(&a, &node->parent, cache->prefix.n_nodes + 1, "N2");
    assert_damaged(&a, &node->parent, 0, "N2");
    assert_damaged(&a, &node->depth, node->depth + 1, "N2");
    assert_damaged(&a, &node->n_keys, 2, "N2");
    assert_damaged(&a, &node->at[0].block, 30, "N3");
    assert_damaged(&a, &seq->room, cache->table.max_tokens + 1, "M2");
    assert_damaged(&a, &seq->root, UINT32_MAX, "N2");
    seq->tier = 2;
    assert_seen_damaged(&a, "T3");
    seq->tier = KVP_DEVICE;
    assert_damaged(&a, &row[0], row[0] + 1, "T1");
    assert_damaged(&a, &cache->prefix.n_touched, cache->prefix.n_nodes + 1, "B2");
    assert_damaged(&a, &kvpi_load_at(cache, 0)->node, cache->prefix.n_nodes + 1, "L2");
    assert_int_equal(look(&a).report.state, KVP_ARENA_WHOLE);
    arena_drop(&a);
}

/* A full index, duplicates of nothing; and counts that are out of range while calls are made. */
TEST(test_rings_that_are_none)
{
    load_run run;
    arena a = full_arena(SNAP_STATES, &run);
    struct kvpi_seq *seq = kvpi_seq_at(&a.cache->table, 0);
    while ((seq->generation & 1) == 0 || seq->tier != KVP_DEVICE)
        seq++;
    struct kvpi_state *of = kvpi_states_of(a.cache, seq);
    assert_damaged(&a, &of->n_ring, KVP_STATE_RING_MAX, "S9");
    assert_damaged(&a, &of->n_ring, UINT32_MAX, "S9");
    of->n_ring = 1;
    assert_damaged(&a, &of->ring[0], a.cache->states.pool.n_blocks, "S9");
    of->n_ring = 0;
    assert_int_equal(look(&a).report.state, KVP_ARENA_WHOLE);
    arena_drop(&a);
}

TEST(test_damage_that_takes_more_than_a_word)
{
    load_run run;
    arena a = full_arena(SNAP_UNITS, &run);
    const struct kvpi_prefix *prefix = &a.cache->prefix;
    struct kvpi_dup *dup = kvpi_prefix_dups(prefix);
    while (dup->node == KVPI_NO_NODE)
        dup++;
    const uint32_t n_slots = prefix->n_blocks * prefix->block_slots;
    assert_damaged(&a, &dup->node, prefix->n_nodes + 1, "N3");
    assert_damaged(&a, &dup->next, n_slots, "N3");
    assert_damaged(&a, &dup->prev, n_slots, "N3");

    uint64_t *steps[] = {&a.cache->steps.begun, &a.cache->steps.effective};
    *steps[0] = *steps[1] = UINT64_MAX;
    assert_string_equal(look(&a).report.violation.invariant, "B2");
    *steps[0] = *steps[1] = 0;

    struct kvpi_tags_line *line = kvpi_tags_line(&prefix->tags, prefix->tags.n_lines - 1);
    assert_damaged(&a, &line->node[KVPI_TAGS_PLACES - 1], prefix->n_nodes + 1, "N1");

    a.cache->prefix.n_touched = prefix->n_nodes + 1;
    assert_int_equal(look(&a).report.state, KVP_ARENA_DAMAGED);
    a.cache->calls++; /* inside a call */
    assert_int_equal(look(&a).report.state, KVP_ARENA_MOVING);
    free(a.bytes);
}

/* Units that are awaited have no neighbours. */
TEST(test_awaited_units_are_no_damage)
{
    const kvp_config config = steps_config(4, 2, 15, 0);
    arena a = arena_of(&config);
    world w = {.cache = a.cache};
    assert_ok(kvp_ns_open(w.cache, NULL, 0, &w.ns));
    const kvp_seq parent = open_done(&w, ints(0), 3);
    assert_ok(kvp_seq_extend(w.cache, fork_seq(&w, parent, 3), ints(60), 1, 0));
    const struct kvpi_dup *dup = kvpi_prefix_dups(&a.cache->prefix);
    while (dup->node == KVPI_NO_NODE)
        dup++;
    assert_int_equal(dup->next, KVPI_AWAITED);
    assert_int_equal(look(&a).report.state, KVP_ARENA_WHOLE);
    arena_drop(&a);
}

/* Slots that steps leave states in, and slots that are parked. */
TEST(test_slots_of_steps)
{
    kvp_config config = steps_config(4, 4, 15, 0);
    config.state_slots = 7;
    arena a = arena_of(&config);
    world w = {.cache = a.cache};
    assert_ok(kvp_ns_open(w.cache, NULL, 0, &w.ns));
    const kvp_seq seq = open_seq(&w, ints(0), 9, NULL);
    const kvp_seq other = open_seq(&w, ints(100), 9, NULL);
    assert_empty_step(&w, 1);
    const uint32_t n_tokens = 8;
    assert_ok(kvp_step_commit(w.cache, 1, &seq, &n_tokens, 1));
    assert_ok(kvp_seq_extend(w.cache, seq, NULL, 0, 0));
    close_seq(&w, other);
    const seen s = look(&a);
    assert_int_equal(s.report.state, KVP_ARENA_WHOLE);
    assert_int_equal(s.report.blocks[KVP_DEVICE][1][KVP_ARENA_HELD], 2);
    assert_int_equal(s.report.blocks[KVP_DEVICE][1][KVP_ARENA_PARKED], 1);
    uint32_t *ahead = kvpi_at(a.cache, a.cache->steps.ahead_at);
    while (*ahead == 0)
        ahead++;
    assert_damaged(&a, ahead, 7, "S7");
    assert_damaged(&a, ahead, 0, "T1");
    arena_drop(&a);
}

/* A copy that is in the plan, to the host and kept there until its step is done. */
TEST(test_copies_of_no_blocks)
{
    const kvp_config config = steps_config(4, 4, 7, 5);
    arena a = arena_of(&config);
    world w = {.cache = a.cache};
    assert_ok(kvp_ns_open(w.cache, NULL, 0, &w.ns));
    leave_cached(&w, ints(0), 28);
    const kvp_seq seq = open_seq(&w, ints(100), 4, NULL);
    struct kvpi_copy *copy = kvpi_plan_copies(&a.cache->plan);
    assert_int_equal(a.cache->plan.n, 1);
    assert_int_equal(copy->keeps, 1);
    const struct kvpi_copy good = *copy;
    assert_int_equal(look(&a).report.state, KVP_ARENA_WHOLE);
    for (int i = 0; i < 6; i++) {
        switch (i) {
        case 0: copy->src_tier = KVP_HOST + 1; break;
        case 1: copy->dst_tier = KVP_HOST + 1; break;
        case 2: copy->src = 8; break;
        case 3: copy->dst = 6; break;
        case 4: copy->group = 1; break;
        default: copy->dst_tier = KVP_DEVICE; /* the host's alone are kept */
        }
        const seen s = look(&a);
        assert_int_equal(s.report.state, KVP_ARENA_DAMAGED);
        assert_string_equal(s.report.violation.detail, "X2 a copy of no blocks");
        *copy = good;
    }
    close_seq(&w, seq);
    arena_drop(&a);
}

/* ----------------------------------------------------------------------------- cut and foreign */

TEST(test_cut)
{
    load_run run;
    arena a = full_arena(SNAP_GROUPS, &run);
    const size_t n = a.n;
    for (a.n = 0; a.n < n; a.n += a.n < 4096 ? 1 : 997)
        assert_int_equal(look(&a).status, KVP_E_FORMAT);
    a.n = n;
    assert_int_equal(look(&a).report.state, KVP_ARENA_WHOLE);
    arena_drop(&a);
}

TEST(test_what_is_no_arena_of_ours)
{
    load_run run;
    arena a = full_arena(SNAP_PLAIN, &run);
    a.cache->layout++;
    assert_int_equal(look(&a).status, KVP_E_VERSION);
    a.cache->layout--;
    a.cache->mark++;
    assert_int_equal(look(&a).status, KVP_E_FORMAT);
    a.cache->mark--;
    a.cache->self = 0; /* a copy: the same */
    seen s = look(&a);
    assert_true(is_whole(&s));
    a.cache->recorder.on = 1; /* nothing of the recorder is followed */
    a.cache->recorder.sink.write = (int (*)(void *, const void *, size_t))(uintptr_t)1;
    s = look(&a);
    assert_true(is_whole(&s));
    a.cache->recorder.on = 0;
    kvp_cache_destroy(a.cache);
    assert_int_equal(look(&a).status, KVP_E_FORMAT);
    free(a.bytes);
}

TEST(test_an_owner_that_died_inside_a_call)
{
    load_run run;
    arena a = full_arena(SNAP_PLAIN, &run);
    const uint64_t n = look(&a).n_told;
    a.cache->calls++;
    const seen s = look(&a);
    assert_int_equal(s.status, KVP_OK);
    assert_fields(s.report, state, KVP_ARENA_MOVING, inside, 1, calls_since, 0);
    assert_int_equal(s.n_told, n);
    a.cache->calls++;
    arena_drop(&a);
}

/* ---------------------------------------------------------------------------------- the source */

typedef struct failing {
    const arena *a;
    int left;
} failing;

static int fail_later(void *context, uint64_t offset, void *out, size_t n)
{
    failing *f = context;
    if (f->left-- == 0)
        return 1;
    assert_true(n <= f->a->n && offset <= f->a->n - n);
    memcpy(out, f->a->bytes + offset, n);
    return 0;
}

TEST(test_any_read_may_fail)
{
    load_run run;
    arena a = full_arena(SNAP_HOST, &run);
    int at = 0;
    kvp_status status = KVP_E_IO;
    for (; status != KVP_OK; at++) {
        failing f = {&a, at};
        kvp_arena_report report = {.calls = 77};
        kvp_arena_options options;
        const kvp_arena_source source = {&f, a.n, fail_later};
        kvp_arena_options_init(&options);
        status = kvp_arena_inspect(&source, &options, &report);
        assert_true(status == KVP_OK || (status == KVP_E_IO && report.calls == 77));
    }
    assert_true(at > 10);
    arena_drop(&a);
}

TEST(test_arguments)
{
    load_run run;
    arena a = full_arena(SNAP_PLAIN, &run);
    kvp_arena_report report;
    kvp_arena_options options;
    kvp_arena_source source = arena_source(&a);
    kvp_arena_options_init(NULL);
    kvp_arena_options_init(&options);
    assert_ok(kvp_arena_inspect(&source, &options, &report)); /* nobody to tell */
    assert_int_equal(report.state, KVP_ARENA_WHOLE);
    assert_int_equal(kvp_arena_inspect(NULL, &options, &report), KVP_E_ARG);
    assert_int_equal(kvp_arena_inspect(&source, &options, NULL), KVP_E_ARG);
    options.struct_size--;
    assert_int_equal(kvp_arena_inspect(&source, &options, &report), KVP_E_ARG);
    source.read = NULL;
    assert_int_equal(kvp_arena_inspect(&source, NULL, &report), KVP_E_ARG);
    arena_drop(&a);
}

TEST_MAIN(NULL, NULL)
