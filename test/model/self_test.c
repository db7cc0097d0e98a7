/* See self_test.h. Each test is a handful of calls with the numbers that the header names; the last
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

static oracle *make(uint32_t block_tokens, uint32_t unit_tokens, uint32_t n_blocks,
                    double watermark)
{
    kvp_call call = {.op = KVP_CALL_NS_OPEN};
    kvp_config config;
    oracle *o;

    kvp_config_init(&config);
    config.block_tokens = block_tokens;
    config.unit_tokens = unit_tokens;
    config.n_blocks = n_blocks;
    config.watermark = watermark;
    config.n_nodes = 1000;
    config.max_copies = 16;
    config.max_seqs = 8;
    next_handle = 100;
    o = oracle_create(&config);
    run(o, &call);
    return o;
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
    expect(o->held, 2, "held blocks after a fork");
    extend.handle = child;
    expect((uint64_t)run(o, &extend).status, KVP_OK, "extend the child");
    expect(o->n_plan, 1, "copies");
    expect(o->held, 3, "held blocks after copy-on-write");
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
    expect(o->held, 1, "held blocks");
    expect(on(o, KVP_CALL_INVALIDATE, b, 5).status == KVP_E_ARG, 1, "invalidate beyond the tokens");
    oracle_destroy(o);
}

static void test_difference(void)
{
    kvp_call call = {.op = KVP_CALL_STATS};
    kvp_outcome a, b;
    oracle *o = make(4, 4, 16, 0);

    a = b = run(o, &call);
    expect(outcome_difference(&call, &a, &b) == NULL, 1, "equal outcomes");
    b.u.stats.refused++;
    expect(outcome_difference(&call, &a, &b) != NULL, 1, "a changed counter is seen");
    b = a;
    b.status = KVP_E_ARG;
    expect(outcome_difference(&call, &a, &b) != NULL, 1, "a changed status is seen");
    oracle_destroy(o);
}

int self_test_run(void)
{
    test_open_example();
    test_hit_inside_block();
    test_copy_on_write();
    test_admission();
    test_adoption();
    test_difference();
    printf("self-test: %d failures\n", n_failures);
    return n_failures ? 1 : 0;
}
