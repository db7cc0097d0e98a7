/* See self_test.h. Each test is a handful of calls with the numbers that the headers name; the last
 * shows that the comparison sees a changed field. */
#include "self_test.h"
#include "describe.h"
#include "oracle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int n_failures;

static void expect(uint64_t got, uint64_t wanted, const char *what)
{
    if (got == wanted)
        return;
    printf("self-test: %s: got %" PRIu64 ", wanted %" PRIu64 "\n", what, got, wanted);
    n_failures++;
}

/* An oracle alone has nobody to learn handles from: they are 100, 101, ... here. */
static uint64_t next_handle;

static kvp_outcome run(oracle *o, const kvp_call *call)
{
    kvp_outcome out, seen;

    oracle_run(o, call, &out);
    seen = out;
    if (seen.status == KVP_OK && o->new_place != ORACLE_NONE)
        seen.handle = next_handle++;
    oracle_learn(o, call, &seen, &out);
    return out;
}

static kvp_config configure(uint32_t block_tokens, uint32_t unit_tokens, uint32_t n_blocks)
{
    kvp_config config;

    kvp_config_init(&config);
    config.block_tokens = block_tokens;
    config.unit_tokens = unit_tokens;
    config.n_blocks = n_blocks;
    config.n_nodes = 1000;
    config.max_copies = 16;
    config.max_seqs = 8;
    config.max_seq_tokens = 64;
    return config;
}

/* An oracle with a namespace, whose handle is 100. */
static oracle *make_of(const kvp_config *config)
{
    kvp_call call = {.op = KVP_CALL_NS_OPEN};
    oracle *o = oracle_create(config);

    next_handle = 100;
    run(o, &call);
    return o;
}

static oracle *make(uint32_t block_tokens, uint32_t unit_tokens, uint32_t n_blocks,
                    double watermark)
{
    kvp_config config = configure(block_tokens, unit_tokens, n_blocks);

    config.watermark = watermark;
    return make_of(&config);
}

static const int32_t counting[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static kvp_outcome open_first(oracle *o, uint32_t n_tokens)
{
    kvp_call call = {.op = KVP_CALL_OPEN, .handle = 100, .tokens = counting};

    call.n_tokens = n_tokens;
    return run(o, &call);
}

static kvp_outcome on(oracle *o, uint32_t op, uint64_t handle, uint32_t position)
{
    kvp_call call = {.op = op, .handle = handle, .position = position};

    return run(o, &call);
}

/* "Example: S = U = 4, blocks for [1 2 3 4][5 6 7 8] cached ..." */
static void test_open_example(void)
{
    oracle *o = make(4, 4, 16, 0);
    uint64_t first = open_first(o, 8).handle;
    kvp_outcome out;

    expect((uint64_t)on(o, KVP_CALL_COMMIT, first, 8).status, KVP_OK, "commit");
    out = on(o, KVP_CALL_CLOSE, first, 0);
    expect(out.u.released.cached_blocks, 2, "blocks cached by close");
    out = open_first(o, 10);
    expect(out.u.open.shared_blocks, 2, "shared blocks of 1..10");
    expect(out.u.open.taken_blocks, 1, "taken blocks of 1..10");
    expect(out.u.open.cached_tokens, 8, "cached tokens of 1..10");
    out = open_first(o, 8);
    expect(out.u.open.shared_blocks, 2, "shared blocks of 1..8");
    expect(out.u.open.taken_blocks, 0, "taken blocks of 1..8");
    expect(out.u.open.cached_tokens, 7, "cached tokens of 1..8");
    oracle_destroy(o);
}

/* A hit inside a block is copied; "all slots of computed tokens are KVP_NO_SLOT". */
static void test_hit_inside_block(void)
{
    oracle *o = make(4, 2, 16, 0);
    uint64_t first = open_first(o, 6).handle;
    kvp_call plan = {.op = KVP_CALL_PLAN_TAKE, .count = 16};
    kvp_outcome out;

    on(o, KVP_CALL_COMMIT, first, 6);
    out = open_first(o, 7);
    expect(out.u.open.hit_tokens, 6, "hit tokens");
    expect(out.u.open.copied_tokens, 2, "copied tokens");
    out = run(o, &plan);
    expect(out.n, 1, "copies in the plan");
    expect(out.copies ? out.copies[0].n_tokens : 0, 2, "slots of the copy");
    oracle_destroy(o);
}

/* "Whoever writes into the shared one first copies it." */
static void test_copy_on_write(void)
{
    oracle *o = make(4, 4, 16, 0);
    uint64_t parent = open_first(o, 6).handle, child;
    kvp_call extend = {.op = KVP_CALL_EXTEND, .tokens = counting, .n_tokens = 1};

    on(o, KVP_CALL_COMMIT, parent, 6);
    child = on(o, KVP_CALL_FORK, parent, KVP_END).handle;
    expect(o->pools[KVP_DEVICE].held, 2, "held blocks after a fork");
    extend.handle = child;
    expect((uint64_t)run(o, &extend).status, KVP_OK, "extend the child");
    expect(o->n_plan, 1, "copies");
    expect(o->pools[KVP_DEVICE].held, 3, "held blocks after copy-on-write");
    extend.handle = parent;
    run(o, &extend);
    expect(o->n_plan, 1, "the parent owns its block again");
    oracle_destroy(o);
}

/* "The watermark counts as 0 while no block is held"; NEVER beyond usable minus watermark. */
static void test_admission(void)
{
    oracle *o = make(4, 4, 5, 0.25);
    kvp_call ask = {.op = KVP_CALL_CAN_OPEN, .handle = 100, .tokens = counting, .n_tokens = 12};

    expect(run(o, &ask).u.admission.verdict, KVP_ADMIT_OK, "3 of 4 blocks, none held");
    ask.reserve_tokens = 8;
    expect(run(o, &ask).u.admission.verdict, KVP_ADMIT_NEVER, "5 of 4 blocks");
    open_first(o, 4);
    ask.reserve_tokens = 0;
    ask.tokens = counting + 1;
    ask.n_tokens = 11;
    expect(run(o, &ask).u.admission.verdict, KVP_ADMIT_LATER, "3 of 3, one kept free");
    expect(run(o, &ask).u.admission.missing_blocks, 1, "missing");
    oracle_destroy(o);
}

/* Two sequences compute the same: the second adopts the first one's block. */
static void test_adoption(void)
{
    oracle *o = make(4, 4, 16, 0);
    uint64_t a = open_first(o, 4).handle, b = open_first(o, 4).handle;

    on(o, KVP_CALL_COMMIT, a, 4);
    on(o, KVP_CALL_COMMIT, b, 4);
    expect(o->stats.adopted_blocks, 1, "adopted blocks");
    expect(o->pools[KVP_DEVICE].held, 1, "held blocks");
    expect(on(o, KVP_CALL_INVALIDATE, b, 5).status == KVP_E_ARG, 1, "invalidate beyond the tokens");
    oracle_destroy(o);
}

/* Take every block of the device, and give it back empty. */
static void sweep(oracle *o)
{
    kvp_call open = {.op = KVP_CALL_OPEN, .handle = 100};

    open.reserve_tokens = oracle_usable(o, KVP_DEVICE) * o->config.block_tokens;
    on(o, KVP_CALL_CLOSE, run(o, &open).handle, 0);
}

/* "Four beams with 37 computed tokens each, S = 16, that share the first two blocks, the third one
 * too, nothing left on the device: 3 new blocks; with reserve 1, 6." */
static void test_beams(void)
{
    static const int32_t zeros[37];
    kvp_config config = configure(16, 16, 12);
    kvp_call open = {.op = KVP_CALL_OPEN, .handle = 100, .tokens = zeros, .n_tokens = 37};
    kvp_call group = {.op = KVP_CALL_SWAP_OUT, .n_seqs = 4};
    uint64_t beams[4];
    oracle *o;

    config.host_blocks = 8;
    config.keep_evicted = 0;
    config.max_seq_tokens = 256;
    o = make_of(&config);
    beams[0] = run(o, &open).handle;
    on(o, KVP_CALL_COMMIT, beams[0], 37);
    for (uint32_t i = 1; i < 4; i++)
        beams[i] = on(o, KVP_CALL_FORK, beams[0], KVP_END).handle;
    group.handles = beams;
    expect(run(o, &group).u.swapped.copied_blocks, 3, "blocks copied by the swap-out");
    sweep(o);
    group.op = KVP_CALL_CAN_SWAP_IN;
    expect(run(o, &group).u.admission.need_blocks, 3, "blocks that four beams need");
    group.reserve_tokens = 1;
    expect(run(o, &group).u.admission.need_blocks, 6, "and with a reserve");
    group.op = KVP_CALL_SWAP_IN;
    expect(run(o, &group).u.swapped.copied_blocks, 3, "blocks copied by the swap-in");
    expect(o->pools[KVP_DEVICE].held, 6, "held blocks after the swap-in");
    expect(o->pools[KVP_HOST].held, 0, "held host blocks after it");
    oracle_destroy(o);
}

/* "What is evicted from the device is kept on the host"; "kvp_seq_open finds it there". */
static void test_kept(void)
{
    kvp_config config = configure(4, 4, 4);
    kvp_call evicted = {.op = KVP_CALL_EVICTED};
    uint64_t first;
    kvp_outcome out;
    oracle *o;

    config.host_blocks = 4;
    o = make_of(&config);
    first = open_first(o, 8).handle;
    on(o, KVP_CALL_COMMIT, first, 8);
    on(o, KVP_CALL_CLOSE, first, 0);
    open_first(o, 0); /* so that the list below is the sweep's */
    sweep(o);
    expect(o->stats.kept_blocks, 2, "kept blocks");
    out = open_first(o, 9);
    expect(out.u.open.host_blocks, 2, "blocks copied from the host");
    expect(out.u.open.host_tokens, 8, "tokens copied from the host");
    expect(out.u.open.cached_tokens, 8, "cached tokens");
    expect(run(o, &evicted).n, 0, "nothing was evicted for it");
    expect(o->n_plan, 4, "copies there and back");
    oracle_destroy(o);
}

/* "What a plan writes is found when its step is done; not before." "A device block whose last
 * reference goes while steps are out is parked." */
static void test_steps(void)
{
    kvp_config config = configure(4, 4, 4);
    kvp_call begin = {.op = KVP_CALL_STEP_BEGIN, .count = 16};
    kvp_call done = {.op = KVP_CALL_STEP_DONE, .number = 1};
    kvp_call match = {.op = KVP_CALL_MATCH, .handle = 100, .tokens = counting, .n_tokens = 4};
    uint64_t first;
    oracle *o;

    config.host_blocks = 4;
    config.steps = KVP_STEPS_OVERLAPPED;
    o = make_of(&config);
    first = open_first(o, 4).handle;
    on(o, KVP_CALL_COMMIT, first, 4);
    on(o, KVP_CALL_CLOSE, first, 0);
    sweep(o); /* evicted; on its way to the host */
    expect(run(o, &match).u.open.stop, KVP_STOP_NO_KV, "not found while it is copied");
    expect(run(o, &begin).number, 1, "the first step");
    first = open_first(o, 4).handle;
    on(o, KVP_CALL_CLOSE, first, 0);
    expect(o->n_parked, 1, "parked while the step is out");
    expect(run(o, &done).number, 1, "the newest step in effect");
    expect(o->n_parked, 0, "parked when it is done");
    expect(run(o, &match).u.open.host_tokens, 4, "found when it is done");
    oracle_destroy(o);
}

/* "Each sequence whose row refers to a block that a copy of it should have filled has computed
 * tokens up to that row entry only." */
static void test_failed_step(void)
{
    kvp_config config = configure(4, 4, 8);
    kvp_call begin = {.op = KVP_CALL_STEP_BEGIN, .count = 16};
    kvp_call failed = {.op = KVP_CALL_STEP_FAILED, .number = 1, .count = 8};
    kvp_call swap = {.op = KVP_CALL_SWAP_OUT, .n_seqs = 1};
    uint64_t first;
    kvp_outcome out;
    oracle *o;

    config.host_blocks = 4;
    config.steps = KVP_STEPS_OVERLAPPED;
    o = make_of(&config);
    first = open_first(o, 6).handle;
    on(o, KVP_CALL_COMMIT, first, 6);
    swap.handles = &first;
    run(o, &swap);
    expect(run(o, &begin).n, 2, "copies of the step");
    out = run(o, &failed);
    expect(out.n, 1, "sequences that are cut");
    expect(o->seqs[0].computed, 0, "computed tokens after a failure");
    expect(o->seqs[0].n_row[0], 0, "row entries after a failure");
    expect(o->pools[KVP_HOST].held, 0, "held host blocks after a failure");
    oracle_destroy(o);
}

static kvp_outcome set_window(oracle *o, uint64_t seq, uint32_t group, kvp_window window)
{
    kvp_call call = {.op = KVP_CALL_WINDOW, .handle = seq, .group = group, .window = window};

    return run(o, &call);
}

static kvp_window_info window_of(oracle *o, uint64_t seq, uint32_t group)
{
    kvp_call call = {.op = KVP_CALL_WINDOW_GET, .handle = seq, .group = group};

    return run(o, &call).u.window;
}

/* "K = 3, R = 6, S = 4, q = 17: entries 1 and 2 are dropped."
 * The other group keeps all of it. */
static void test_window_figure(void)
{
    static const int32_t ones[17] = {1};
    kvp_config config = configure(4, 4, 24);
    kvp_call open = {.op = KVP_CALL_OPEN, .handle = 100, .tokens = ones, .n_tokens = 17};
    kvp_window_info info;
    uint64_t seq;
    oracle *o;

    config.n_groups = 2;
    config.groups[1] = (kvp_group){3, 6, 0};
    o = make_of(&config);
    seq = run(o, &open).handle;
    on(o, KVP_CALL_COMMIT, seq, 17);
    info = window_of(o, seq, 1);
    expect(info.dropped_begin, 1, "the first entry that is dropped");
    expect(info.dropped_end, 3, "the entry after the last one");
    expect(window_of(o, seq, 0).dropped_end, 0, "nothing of a group without a window");
    expect(o->pools[KVP_DEVICE].held, 8, "held blocks");
    expect(o->stats.dropped_blocks, 2, "dropped blocks");
    expect((uint64_t)on(o, KVP_CALL_TRUNCATE, seq, 12).status, (uint64_t)KVP_E_DROPPED,
           "truncate to where a dropped entry is needed");
    expect((uint64_t)on(o, KVP_CALL_FORK, seq, 4).status, KVP_OK, "fork to where none is");
    oracle_destroy(o);
}

/* "Of the prefixes of that path the longest is taken for which each group has what it keeps." */
static void test_window_hit(void)
{
    kvp_config config = configure(2, 2, 8);
    kvp_call match = {.op = KVP_CALL_MATCH, .handle = 100, .tokens = counting, .n_tokens = 9};
    uint64_t seq;
    oracle *o;

    config.groups[0] = (kvp_group){0, 2, 0};
    o = make_of(&config);
    seq = open_first(o, 8).handle;
    on(o, KVP_CALL_COMMIT, seq, 8); /* entries 0 .. 2 are dropped, and cached */
    expect(window_of(o, seq, 0).dropped_end, 3, "dropped entries");
    match.n_tokens = 12;
    match.op = KVP_CALL_OPEN;
    match.flags = KVP_OPEN_NO_MATCH;
    on(o, KVP_CALL_CLOSE, run(o, &match).handle, 0); /* takes all but the one that is held */
    match.op = KVP_CALL_MATCH;
    match.flags = 0;
    match.n_tokens = 9;
    expect(run(o, &match).u.open.hit_tokens, 8, "hit tokens behind a hole");
    expect(run(o, &match).u.open.shared_blocks, 1, "blocks that are hit");
    match.n_tokens = 7;
    expect(run(o, &match).u.open.stop, KVP_STOP_NO_KV, "a prefix that ends in the hole");
    oracle_destroy(o);
}

/* "From the first such position on its units are private: max(computed, the smaller of K + R)"; "or
 * lower: as of when the sequence was taken back". */
static void test_own_window(void)
{
    uint64_t seq;
    oracle *o = make(2, 1, 16, 0);

    seq = open_first(o, 8).handle;
    on(o, KVP_CALL_COMMIT, seq, 6);
    set_window(o, seq, 0, (kvp_window){0, 4});
    expect(on(o, KVP_CALL_SEQ_INFO, seq, 0).u.seq.public_tokens, 6, "public tokens");
    on(o, KVP_CALL_TRUNCATE, seq, 5);
    expect(on(o, KVP_CALL_SEQ_INFO, seq, 0).u.seq.public_tokens, 5, "public ones, taken back");
    expect(o->seqs[0].private_from, 5, "where they become private");
    oracle_destroy(o);
}

/* "7 -> 8 -> 5, and 7 -> 9; leaf 1: tokens 7 and 8 are the sequence's now". And leaf 3 moves 5. */
static void test_tree(void)
{
    static const int32_t tokens[] = {7, 8, 9, 5}, parents[] = {-1, 0, 0, 1};
    kvp_config config = configure(4, 4, 16);
    uint64_t seq;
    uint32_t count = 4;
    int32_t leaf = 3;
    kvp_call extend = {.op = KVP_CALL_EXTEND_TREE, .n_seqs = 1, .n_tokens = 4};
    kvp_call accept = {.op = KVP_CALL_ACCEPT, .n_seqs = 1, .leaves = &leaf};
    kvp_outcome out;
    oracle *o;

    config.max_tree_tokens = 4;
    o = make_of(&config);
    seq = open_first(o, 6).handle;
    on(o, KVP_CALL_COMMIT, seq, 6);
    extend.handles = accept.handles = &seq;
    extend.counts = &count;
    extend.tokens = tokens;
    extend.parents = parents;
    expect((uint64_t)run(o, &extend).status, KVP_OK, "extend by a tree");
    expect(o->seqs[0].n_row[0], 3, "row entries with a tree");
    out = run(o, &accept);
    expect((uint64_t)out.status, (uint64_t)KVP_E_TOO_SMALL, "no room for the move");
    expect(out.n, 1, "moves");
    accept.count = 1;
    out = run(o, &accept);
    expect((uint64_t)out.moves[0].src, 3 * 4 + 1, "the slot of node 3");
    expect((uint64_t)out.moves[0].dst, 3 * 4 + 0, "the slot of position 8");
    expect(on(o, KVP_CALL_SEQ_INFO, seq, 0).u.seq.computed_tokens, 9, "computed tokens");
    expect(o->stats.sealed_units, 2, "sealed units");
    oracle_destroy(o);
}

static void test_difference(void)
{
    kvp_call call = {.op = KVP_CALL_STATS};
    kvp_outcome a, b;
    oracle *o = make(4, 4, 16, 0);

    a = b = run(o, &call);
    expect(outcome_difference(&call, 1, &a, &b) == NULL, 1, "equal outcomes");
    b.u.stats.refused++;
    expect(outcome_difference(&call, 1, &a, &b) != NULL, 1, "a changed counter is seen");
    b = a;
    b.status = KVP_E_ARG;
    expect(outcome_difference(&call, 1, &a, &b) != NULL, 1, "a changed status is seen");
    b = a;
    b.number = 1;
    expect(outcome_difference(&call, 1, &a, &b) != NULL, 1, "a changed number is seen");
    oracle_destroy(o);
}

/* The tier of a copy, of an evicted block, of an event. */
static void test_array_difference(void)
{
    kvp_copy copies[2] = {{.src_block = 1, .dst_block = 2}, {.src_block = 1, .dst_block = 2}};
    kvp_evicted evicted[2] = {{.block = 1}, {.block = 1}};
    kvp_event events[2] = {{.number = 1}, {.number = 1}};
    kvp_call call = {.op = KVP_CALL_PLAN_TAKE};
    kvp_outcome a = {.n = 1}, b = {.n = 1};

    copies[1].dst_tier = KVP_HOST;
    evicted[1].tier = KVP_HOST;
    events[1].tier = KVP_HOST;
    a.copies = b.copies = &copies[0];
    expect(outcome_difference(&call, 1, &a, &b) == NULL, 1, "equal copies");
    b.copies = &copies[1];
    expect(outcome_difference(&call, 1, &a, &b) != NULL, 1, "a copy's tier is seen");
    a.copies = b.copies = NULL;
    a.evicted = &evicted[0];
    b.evicted = &evicted[1];
    expect(outcome_difference(&call, 1, &a, &b) != NULL, 1, "an evicted block's tier is seen");
    a.evicted = b.evicted = NULL;
    a.events = &events[0];
    b.events = &events[1];
    expect(outcome_difference(&call, 1, &a, &b) != NULL, 1, "an event's tier is seen");
}

int self_test_run(void)
{
    test_open_example();
    test_hit_inside_block();
    test_copy_on_write();
    test_admission();
    test_adoption();
    test_beams();
    test_kept();
    test_steps();
    test_failed_step();
    test_window_figure();
    test_window_hit();
    test_own_window();
    test_tree();
    test_difference();
    test_array_difference();
    printf("self-test: %d failures\n", n_failures);
    return n_failures ? 1 : 0;
}
