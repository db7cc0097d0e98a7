/* Logs of real runs: what was recorded replays bit for bit; what was altered is found where it was;
 * and a log with calls left out is a log again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <kvpager/oplog.h>

#include "trace/oplog_decode.h"
#include "trace/oplog_replay.h"
#include "trace/oplog_rerun.h"

#define N_CALLS KVP_CALL_EVENTS_SNAPSHOT

/* --------------------------------------------------------------------------------- a random run */

/* xorshift64*; fixed seeds. */
static uint64_t next_random(uint64_t *random)
{
    *random ^= *random >> 12;
    *random ^= *random << 25;
    *random ^= *random >> 27;
    return *random * UINT64_C(2685821657736338717);
}

static uint32_t below(uint64_t *random, uint32_t n)
{
    return (uint32_t)(next_random(random) >> 33) % n;
}

#define MAX_SEQS 12

struct driver {
    struct kvpi_oplog_replay replay;
    struct kvpi_oplog_memory log;
    uint64_t random;
    int tiers;
    int overlapped;
    uint64_t ns;
    uint64_t seqs[MAX_SEQS]; /* 0: none; also closed ones, now and then */
    uint64_t step;           /* the newest */
    uint64_t next_event;
    int32_t tokens[64];
    uint32_t counts[3];
    uint64_t handles[3];
    kvp_range range;
    kvp_key key;
    uint32_t n_made[N_CALLS + 1];
    uint32_t n_ok[N_CALLS + 1];
};

static kvp_config small_config(void)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = 4;
    config.unit_tokens = 2;
    config.n_blocks = 24;
    config.max_seqs = 8;
    config.max_seq_tokens = 60;
    config.max_namespaces = 3;
    config.max_unit_keys = 2;
    config.max_copies = 4;
    config.watermark = 0.05;
    return config;
}

/* Two seeds without and two with a host tier and events, one of these with overlapped steps. */
static kvp_config config_of(uint64_t seed)
{
    kvp_config config = small_config();
    if (seed % 4 == 1 || seed % 4 == 2)
        return config;
    config.host_blocks = 14;
    config.max_copies = 12;
    config.max_events = 16;
    config.steps = seed % 4 == 0 ? KVP_STEPS_OVERLAPPED : KVP_STEPS_ORDERED;
    config.max_steps_out = 3;
    return config;
}

/* Mostly one that was opened. */
static uint64_t *any_seq(struct driver *d)
{
    uint32_t at = below(&d->random, MAX_SEQS);
    for (int i = 0; i < 3 && d->seqs[at] == 0; i++)
        at = below(&d->random, MAX_SEQS);
    return &d->seqs[at];
}

static void fill_tokens(struct driver *d, kvp_call *call, uint32_t n)
{
    /* Few values, so that prefixes repeat. */
    for (uint32_t i = 0; i < n; i++)
        d->tokens[i] = (int32_t)(below(&d->random, 8) == 0 ? below(&d->random, 3) : i % 5);
    call->tokens = d->tokens;
    call->n_tokens = n;
}

static void fill_prompt(struct driver *d, kvp_call *call)
{
    call->handle = d->ns;
    fill_tokens(d, call, below(&d->random, 30));
    call->reserve_tokens = below(&d->random, 4);
    call->tag = next_random(&d->random);
    call->retention = below(&d->random, 4) == 0 ? below(&d->random, 9) : 0;
    if (below(&d->random, 6) == 0 && call->n_tokens > 0) {
        d->key = (kvp_key){1, below(&d->random, call->n_tokens), call->n_tokens, 3, "key"};
        call->keys = &d->key;
        call->n_keys = 1;
    }
    if (below(&d->random, 6) == 0) {
        d->range = (kvp_range){below(&d->random, 30), 31};
        call->ranges = &d->range;
        call->n_ranges = 1;
    }
}

static void fill_batch(struct driver *d, kvp_call *call)
{
    uint32_t at = below(&d->random, MAX_SEQS), sum = 0;
    call->n_seqs = below(&d->random, 4);
    for (uint32_t i = 0; i < call->n_seqs; i++) {
        d->handles[i] = d->seqs[(at + i) % MAX_SEQS];
        d->counts[i] = below(&d->random, 5);
        sum += d->counts[i];
    }
    call->handles = d->handles;
    call->counts = d->counts;
    fill_tokens(d, call, sum);
    if (below(&d->random, 3) == 0 && call->op == KVP_CALL_EXTEND_MANY)
        call->tokens = NULL;
    if (call->op == KVP_CALL_COMMIT_MANY) {
        call->tokens = NULL;
        call->n_tokens = 0;
    } else {
        call->flags = below(&d->random, 2) != 0 ? KVP_BATCH_EACH : 0;
    }
}

/* Mostly one sequence, so that it goes well now and then. */
static void fill_seqs(struct driver *d, kvp_call *call)
{
    call->n_seqs = below(&d->random, 4) == 0 ? below(&d->random, 4) : 1;
    for (uint32_t i = 0; i < call->n_seqs; i++) {
        d->handles[i] = *any_seq(d);
        d->counts[i] = below(&d->random, 8);
    }
    call->handles = d->handles;
}

/* Calls about tiers, steps and events. */
static void fill_tier_call(struct driver *d, kvp_call *call)
{
    call->handle = 0;
    call->position = 0;
    switch (call->op) {
    case KVP_CALL_SWAP_IN:
    case KVP_CALL_CAN_SWAP_IN: call->reserve_tokens = below(&d->random, 3); /* fall through */
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_OUT: fill_seqs(d, call); break;
    case KVP_CALL_STEP_COMMIT: fill_seqs(d, call); call->counts = d->counts; /* fall through */
    case KVP_CALL_STEP_DONE:
    case KVP_CALL_STEP_FAILED:
        call->number = d->step - below(&d->random, 3);
        call->no_report = call->op == KVP_CALL_STEP_FAILED && call->count == 0;
        break;
    case KVP_CALL_EVENTS_READ:
        call->number = below(&d->random, 4) == 0 ? below(&d->random, 99) : d->next_event;
        call->with_tokens = below(&d->random, 2);
        break;
    case KVP_CALL_EVENTS_SNAPSHOT:
        call->count *= 10;
        call->with_tokens = below(&d->random, 2);
        break;
    default: break; /* step_begin: the capacity is all */
    }
}

static void fill_call(struct driver *d, kvp_call *call)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    uint32_t n = below(&d->random, 24);
    call->handle = *any_seq(d);
    call->position = n;
    call->count = below(&d->random, 8);
    if (call->op >= KVP_CALL_SWAP_OUT) {
        fill_tier_call(d, call);
        return;
    }
    switch (call->op) {
    case KVP_CALL_NS_OPEN:
        call->name = (const uint8_t *)names[n % 4];
        call->name_bytes = 1;
        break;
    case KVP_CALL_NS_CLOSE:
    case KVP_CALL_NS_FLUSH: call->handle = d->ns; break;
    case KVP_CALL_MATCH:
    case KVP_CALL_OPEN:
    case KVP_CALL_CAN_OPEN: fill_prompt(d, call); break;
    case KVP_CALL_EXTEND:
        fill_tokens(d, call, n % 7);
        call->reserve_tokens = n % 3;
        if (n % 4 == 0)
            call->tokens = NULL;
        break;
    case KVP_CALL_FILL: fill_tokens(d, call, n % 3); break;
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_FILL_MANY:
    case KVP_CALL_COMMIT_MANY:
    case KVP_CALL_CAN_EXTEND: fill_batch(d, call); break;
    case KVP_CALL_FORK: call->position = n < 6 ? KVP_END : n; break;
    case KVP_CALL_RETAIN:
    case KVP_CALL_UNCACHE:
        call->range = (kvp_range){n, n + call->count};
        call->retention = call->op == KVP_CALL_RETAIN ? call->count : 0;
        break;
    case KVP_CALL_INVALIDATE: call->no_report = call->count == 0; break;
    case KVP_CALL_BLOCK_INFO:
    case KVP_CALL_BLOCK_TOKENS:
        call->tier = below(&d->random, 2);
        call->block = (int32_t)n;
        break;
    case KVP_CALL_CHECK: call->position = n % 5; break;
    default: break;
    }
}

/* A closed one is kept now and then: stale handles are part of a run. */
static void keep_handle(struct driver *d, const kvp_call *call)
{
    const kvp_outcome *outcome = &d->replay.outcome;
    d->n_made[call->op]++;
    if (outcome->status != KVP_OK)
        return;
    d->n_ok[call->op]++;
    for (uint32_t i = 0; i < MAX_SEQS; i++)
        if (call->op == KVP_CALL_CLOSE && d->seqs[i] == call->handle && below(&d->random, 8) != 0)
            d->seqs[i] = 0;
    if (call->op == KVP_CALL_NS_OPEN)
        d->ns = outcome->handle;
    if (call->op == KVP_CALL_OPEN || call->op == KVP_CALL_FORK)
        d->seqs[below(&d->random, MAX_SEQS)] = outcome->handle;
    if (call->op == KVP_CALL_STEP_BEGIN)
        d->step = outcome->number;
    if (call->op == KVP_CALL_EVENTS_READ)
        d->next_event = call->number + outcome->n;
    if (call->op == KVP_CALL_EVENTS_SNAPSHOT)
        d->next_event = outcome->number + 1;
}

static void make_call(struct driver *d, uint32_t op)
{
    kvp_call call = {.op = op};
    fill_call(d, &call);
    assert_int_equal(kvpi_oplog_replay_call(&d->replay, &call, 1), KVP_OK);
    assert_true(d->replay.made.n_bytes > 0);
    kvpi_oplog_memory_write(&d->log, d->replay.made.bytes, d->replay.made.n_bytes);
    keep_handle(d, &call);
}

/* Swap, and take the plan: as steps do, where these are overlapped. */
static uint32_t draw_tier_op(struct driver *d)
{
    static const uint32_t swaps[] = {KVP_CALL_SWAP_OUT, KVP_CALL_SWAP_IN, KVP_CALL_SWAP_IN,
                                     KVP_CALL_CAN_SWAP_IN};
    static const uint32_t steps[] = {KVP_CALL_STEP_BEGIN, KVP_CALL_STEP_BEGIN, KVP_CALL_STEP_DONE,
                                     KVP_CALL_STEP_DONE, KVP_CALL_STEP_COMMIT};
    if (d->tiers && below(&d->random, 3) == 0)
        return swaps[below(&d->random, 4)];
    return d->overlapped ? steps[below(&d->random, 5)] : KVP_CALL_PLAN_TAKE;
}

/* Half of the calls open, extend, commit or close; reset and ends of namespaces are rare. */
static uint32_t draw_op(struct driver *d)
{
    static const uint32_t common[] = {KVP_CALL_OPEN,   KVP_CALL_OPEN,   KVP_CALL_EXTEND,
                                      KVP_CALL_COMMIT, KVP_CALL_COMMIT, KVP_CALL_CLOSE,
                                      KVP_CALL_FORK};
    const uint32_t n_common = sizeof common / sizeof *common;
    if (below(&d->random, 2) == 0) {
        uint32_t at = below(&d->random, n_common + (d->tiers ? 3 : 1));
        return at < n_common ? common[at] : draw_tier_op(d);
    }
    uint32_t op = 1 + below(&d->random, N_CALLS);
    int rare = op == KVP_CALL_RESET || op == KVP_CALL_NS_CLOSE || op == KVP_CALL_NS_FLUSH;
    return rare && below(&d->random, 8) != 0 ? KVP_CALL_OPEN : op;
}

static void run(struct driver *d, uint64_t seed, uint32_t n_calls)
{
    kvp_config config = config_of(seed);
    memset(d, 0, sizeof *d);
    d->tiers = config.host_blocks > 0;
    d->overlapped = config.steps == KVP_STEPS_OVERLAPPED;
    d->next_event = 1;
    d->random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    assert_int_equal(kvpi_oplog_replay_begin(&d->replay, &config), KVP_OK);
    kvpi_oplog_memory_write(&d->log, d->replay.made.bytes, d->replay.made.n_bytes);
    make_call(d, KVP_CALL_NS_OPEN);
    for (uint32_t i = 1; i < n_calls; i++)
        make_call(d, draw_op(d));
}

static void end_run(struct driver *d)
{
    kvpi_oplog_replay_end(&d->replay);
    free(d->log.bytes);
}

static kvp_oplog *open_log(const struct kvpi_oplog_memory *memory)
{
    kvp_oplog *log = NULL;
    assert_int_equal(kvp_oplog_open(memory->bytes, memory->n_bytes, &log), KVP_OK);
    return log;
}

/* --------------------------------------------------------------------------------------- replay */

static void test_recorded_runs_replay_bit_for_bit(void **state)
{
    (void)state;
    static struct driver d;
    uint32_t n_ok[N_CALLS + 1] = {0};
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t index = UINT64_MAX;
        run(&d, seed, 500);
        kvp_oplog *log = open_log(&d.log);
        assert_int_equal(kvp_oplog_replay(log, seed % 2 == 0 ? 3 : 0, &index), KVP_OK);
        assert_true(index == UINT64_MAX);
        kvp_oplog_close(log);
        for (uint32_t op = 1; op <= N_CALLS; op++)
            n_ok[op] += d.n_ok[op];
        end_run(&d);
    }
    for (uint32_t op = 1; op <= N_CALLS; op++)
        if (n_ok[op] == 0)
            fail_msg("%s never succeeded", kvp_call_name(op));
}

/* Every byte of the results is altered once; whatever is still a log must be found to differ, at
 * the record that was altered. */
static void alter_results(uint64_t seed)
{
    static struct driver d;
    run(&d, seed, 200);
    kvp_oplog *log = open_log(&d.log);
    kvp_record record;
    int at_end;
    uint64_t n_found = 0, n_damaged = 0;
    while (kvp_oplog_next(log, &record, &at_end) == KVP_OK && at_end == 0) {
        uint64_t offset = kvp_oplog_offset(log);
        uint8_t *first = d.log.bytes + offset - record.n_result_bytes;
        for (size_t i = 0; i < record.n_result_bytes; i++) {
            uint64_t index = UINT64_MAX;
            first[i] ^= 1;
            kvp_status status = kvp_oplog_replay(log, 0, &index);
            assert_true(status == KVP_E_MISMATCH || status == KVP_E_FORMAT);
            if (status == KVP_E_MISMATCH)
                assert_int_equal(index, record.index);
            n_found += status == KVP_E_MISMATCH;
            n_damaged += status == KVP_E_FORMAT;
            first[i] ^= 1;
        }
        kvpi_oplog_seek(log, offset, record.index + 1);
    }
    assert_true(n_found > 300 && n_found > 10 * n_damaged);
    kvp_oplog_close(log);
    end_run(&d);
}

static void test_altered_results_are_found(void **state)
{
    (void)state;
    for (uint64_t seed = 2; seed <= 4; seed++)
        alter_results(seed);
}

static void test_a_cut_log_replays_as_far_as_it_goes(void **state)
{
    (void)state;
    static struct driver d;
    run(&d, 5, 60);
    d.log.n_bytes -= 1;
    kvp_oplog *log = open_log(&d.log);
    uint64_t index = 0;
    assert_int_equal(kvp_oplog_replay(log, 3, &index), KVP_E_FORMAT);
    assert_int_equal(index, 59);
    kvp_oplog_close(log);
    end_run(&d);
}

/* Every argument that is a number, as `huge`, one after the other. */
static void make_hostile_calls(struct kvpi_oplog_replay *replay, uint64_t seq, uint32_t huge)
{
    for (uint32_t op = KVP_CALL_NS_OPEN; op <= N_CALLS; op++)
        for (int place = 0; place < 5; place++) {
            kvp_call call = {.op = op, .handle = op <= KVP_CALL_OPEN ? 1 : seq};
            call.position = place == 0 ? huge : 0;
            call.count = place == 1 ? huge : 0;
            call.group = place == 2 ? huge : 0;
            call.tier = place == 4 ? huge : 0;
            call.number = place == 4 ? huge : 1;
            call.block = (int32_t)huge;
            call.reserve_tokens = place == 3 ? huge : 0;
            call.range = (kvp_range){0, huge};
            call.with_tokens = 1;
            call.handles = &seq;
            call.n_seqs = op == KVP_CALL_COMMIT_MANY || op == KVP_CALL_FILL_MANY ? 0 : 1;
            call.counts = &huge;
            if (op == KVP_CALL_RESET || op == KVP_CALL_CLOSE || op == KVP_CALL_SWAP_OUT)
                continue;
            assert_int_equal(kvpi_oplog_replay_call(replay, &call, 3), KVP_OK);
        }
}

/* Counts that no call of this size of cache can have: refused, not followed. */
static void hostile_calls_on(const kvp_config *config)
{
    static const uint32_t huge[] = {61, 1000, 1u << 20, UINT32_MAX - 1, UINT32_MAX};
    struct kvpi_oplog_replay replay;
    kvp_config resolved;
    assert_int_equal(kvpi_oplog_replay_begin(&replay, config), KVP_OK);
    kvp_call call = {.op = KVP_CALL_NS_OPEN};
    assert_int_equal(kvpi_oplog_replay_call(&replay, &call, 3), KVP_OK);
    static const int32_t tokens[] = {1, 2, 3, 4, 5};
    call = (kvp_call){
        .op = KVP_CALL_OPEN, .handle = replay.outcome.handle, .tokens = tokens, .n_tokens = 5};
    assert_int_equal(kvpi_oplog_replay_call(&replay, &call, 3), KVP_OK);
    uint64_t seq = replay.outcome.handle;
    call = (kvp_call){.op = KVP_CALL_COMMIT, .handle = seq, .position = 4};
    assert_int_equal(kvpi_oplog_replay_call(&replay, &call, 3), KVP_OK);
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++)
        make_hostile_calls(&replay, seq, huge[i]);
    call = (kvp_call){.op = N_CALLS + 1};
    assert_int_equal(kvpi_oplog_replay_call(&replay, &call, 0), KVP_E_ARG);
    kvp_hash hash = {{0}};
    call = (kvp_call){
        .op = KVP_CALL_OPEN, .tokens = tokens, .n_tokens = 1, .hashes = &hash, .n_hashes = 1};
    assert_int_equal(kvpi_oplog_replay_call(&replay, &call, 0), KVP_E_ARG);
    /* The most is a snapshot: every node in both tiers, an event and U tokens each. */
    kvp_config_init(&resolved);
    assert_int_equal(kvp_config_peek(replay.cache, &resolved), KVP_OK);
    assert_true(replay.outcome.storage_bytes <=
                2 * (size_t)resolved.n_nodes * (sizeof(kvp_event) + resolved.unit_tokens * 4));
    kvpi_oplog_replay_end(&replay);
}

static void test_hostile_calls_are_harmless(void **state)
{
    (void)state;
    for (uint64_t seed = 2; seed <= 4; seed++) {
        kvp_config config = config_of(seed);
        hostile_calls_on(&config);
    }
}

/* ---------------------------------------------------------------------------------------- rerun */

static void rerun_everything(uint64_t seed)
{
    static struct driver d;
    struct kvpi_oplog_rerun rerun;
    struct kvpi_oplog_memory again = {0};
    uint32_t items[400];
    size_t n_used;
    run(&d, seed, 400);
    kvp_oplog *log = open_log(&d.log);
    assert_int_equal(kvpi_oplog_rerun_open(&rerun, log), KVP_OK);
    assert_int_equal(rerun.n_records, 400);
    for (uint32_t i = 0; i < 400; i++)
        items[i] = i;
    kvp_sink sink = {&again, kvpi_oplog_memory_write};
    assert_int_equal(kvpi_oplog_rerun_run(&rerun, items, 400, 1, &sink, &n_used), KVP_OK);
    assert_int_equal(n_used, 400);
    assert_int_equal(again.n_bytes, d.log.n_bytes);
    assert_memory_equal(again.bytes, d.log.bytes, again.n_bytes);
    free(again.bytes);
    kvpi_oplog_rerun_close(&rerun);
    kvp_oplog_close(log);
    end_run(&d);
}

static void test_a_rerun_of_everything_is_the_same_log(void **state)
{
    (void)state;
    for (uint64_t seed = 6; seed <= 8; seed++)
        rerun_everything(seed);
}

static void test_a_rerun_of_some_is_a_log(void **state)
{
    (void)state;
    static struct driver d;
    struct kvpi_oplog_rerun rerun;
    run(&d, 8, 400);
    kvp_oplog *log = open_log(&d.log);
    assert_int_equal(kvpi_oplog_rerun_open(&rerun, log), KVP_OK);
    for (uint32_t step = 2; step < 40; step++) {
        struct kvpi_oplog_memory part = {0};
        kvp_sink sink = {&part, kvpi_oplog_memory_write};
        uint32_t items[400];
        size_t n = 0, n_used;
        for (uint32_t i = 0; i < 400; i++)
            if (i % step != step - 1)
                items[n++] = i;
        assert_int_equal(kvpi_oplog_rerun_run(&rerun, items, n, 1, &sink, &n_used), KVP_OK);
        assert_true(rerun.n_calls > 100 && rerun.n_calls <= n);
        kvp_oplog *again = open_log(&part);
        uint64_t index;
        assert_int_equal(kvp_oplog_replay(again, 0, &index), KVP_OK);
        kvp_oplog_close(again);
        free(part.bytes);
    }
    kvpi_oplog_rerun_close(&rerun);
    kvp_oplog_close(log);
    end_run(&d);
}

/* Runs calls and records them. Gives the handle that the last one made. */
static uint64_t append(struct driver *d, kvp_call call)
{
    assert_int_equal(kvpi_oplog_replay_call(&d->replay, &call, 3), KVP_OK);
    kvpi_oplog_memory_write(&d->log, d->replay.made.bytes, d->replay.made.n_bytes);
    return d->replay.outcome.handle;
}

/* Without the first open, the second sequence gets its place and handle. The rerun follows it, and
 * leaves out what the first one did. */
static void test_a_rerun_follows_handles(void **state)
{
    (void)state;
    static struct driver d;
    static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8};
    kvp_config config = small_config();
    memset(&d, 0, sizeof d);
    assert_int_equal(kvpi_oplog_replay_begin(&d.replay, &config), KVP_OK);
    kvpi_oplog_memory_write(&d.log, d.replay.made.bytes, d.replay.made.n_bytes);
    uint64_t ns = append(&d, (kvp_call){.op = KVP_CALL_NS_OPEN});
    kvp_call open = {.op = KVP_CALL_OPEN, .handle = ns, .tokens = tokens, .n_tokens = 5};
    uint64_t first = append(&d, open);
    uint64_t second = append(&d, open);
    append(&d, (kvp_call){.op = KVP_CALL_COMMIT, .handle = first, .position = 2});
    const uint64_t both[] = {first, second};
    const uint32_t counts[] = {3, 1};
    append(&d, (kvp_call){.op = KVP_CALL_EXTEND_MANY,
                          .handles = both,
                          .n_seqs = 2,
                          .counts = counts,
                          .tokens = tokens,
                          .n_tokens = 4});
    append(&d, (kvp_call){.op = KVP_CALL_CLOSE, .handle = second});
    append(&d, (kvp_call){.op = KVP_CALL_CLOSE, .handle = UINT64_C(0xdead)});

    struct kvpi_oplog_rerun rerun;
    struct kvpi_oplog_memory part = {0};
    kvp_sink sink = {&part, kvpi_oplog_memory_write};
    static const uint32_t items[] = {0, 2, 3, 4, 5, 6};
    size_t n_used;
    kvp_oplog *log = open_log(&d.log);
    assert_int_equal(kvpi_oplog_rerun_open(&rerun, log), KVP_OK);
    assert_int_equal(kvpi_oplog_rerun_run(&rerun, items, 6, 3, &sink, &n_used), KVP_OK);
    assert_int_equal(rerun.n_calls, 5); /* the commit of the first sequence went with it */
    kvp_oplog *again = open_log(&part);
    kvp_record record;
    int at_end;
    assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
    assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
    assert_true(kvpi_oplog_results(again)->outcome.handle == first);
    assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
    assert_int_equal(record.call.n_seqs, 1);
    assert_true(record.call.handles[0] == first);
    assert_int_equal(record.call.n_tokens, 1);
    assert_int_equal(record.call.tokens[0], 4); /* the first sequence's three went with it */
    assert_int_equal(record.status, KVP_OK);
    assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
    assert_true(record.call.handle == first && record.status == KVP_OK);
    assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
    assert_true(record.call.handle == UINT64_C(0xdead) && record.status == KVP_E_HANDLE);
    kvp_oplog_close(again);
    free(part.bytes);
    kvpi_oplog_rerun_close(&rerun);
    kvp_oplog_close(log);
    end_run(&d);
}

/* The same in every call that names several sequences: the first one is taken out. */
static void test_a_rerun_follows_handles_of_many(void **state)
{
    (void)state;
    static struct driver d;
    static const int32_t tokens[] = {1, 2, 3, 4};
    static const uint32_t ops[] = {
        KVP_CALL_COMMIT_MANY, KVP_CALL_STEP_COMMIT, KVP_CALL_CAN_EXTEND, KVP_CALL_CAN_SWAP_OUT,
        KVP_CALL_SWAP_OUT,    KVP_CALL_CAN_SWAP_IN, KVP_CALL_SWAP_IN};
    const uint32_t counts[] = {1, 3};
    kvp_config config = config_of(4);
    memset(&d, 0, sizeof d);
    assert_int_equal(kvpi_oplog_replay_begin(&d.replay, &config), KVP_OK);
    kvpi_oplog_memory_write(&d.log, d.replay.made.bytes, d.replay.made.n_bytes);
    uint64_t ns = append(&d, (kvp_call){.op = KVP_CALL_NS_OPEN});
    kvp_call open = {.op = KVP_CALL_OPEN, .handle = ns, .tokens = tokens, .n_tokens = 4};
    uint64_t handles[2];
    for (int i = 0; i < 2; i++)
        handles[i] = append(&d, open);
    append(&d, (kvp_call){.op = KVP_CALL_STEP_BEGIN});
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        append(&d, (kvp_call){.op = ops[i],
                              .number = ops[i] == KVP_CALL_STEP_COMMIT ? 1 : 0,
                              .handles = handles,
                              .counts = counts,
                              .n_seqs = 2});

    struct kvpi_oplog_rerun rerun;
    struct kvpi_oplog_memory part = {0};
    kvp_sink sink = {&part, kvpi_oplog_memory_write};
    static const uint32_t items[] = {0, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    size_t n_used;
    kvp_oplog *log = open_log(&d.log);
    assert_int_equal(kvpi_oplog_rerun_open(&rerun, log), KVP_OK);
    assert_int_equal(kvpi_oplog_rerun_run(&rerun, items, 10, 3, &sink, &n_used), KVP_OK);
    assert_int_equal(rerun.n_calls, 10);
    kvp_oplog *again = open_log(&part);
    kvp_record record;
    int at_end;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
        assert_int_equal(record.call.op, ops[i]);
        assert_int_equal(record.status, KVP_OK);
        assert_int_equal(record.call.n_seqs, 1);
        assert_true(record.call.handles[0] == handles[0]);
        assert_true(record.call.counts == NULL || record.call.counts[0] == 3);
    }
    kvp_oplog_close(again);
    free(part.bytes);
    kvpi_oplog_rerun_close(&rerun);
    kvp_oplog_close(log);
    end_run(&d);
}

/* Without the first step, the second one gets its number. The rerun follows it, and leaves out what
 * was said of the first one; a step that was never begun stays the number it is. */
static void test_a_rerun_follows_steps(void **state)
{
    (void)state;
    static struct driver d;
    kvp_config config = config_of(4);
    memset(&d, 0, sizeof d);
    assert_int_equal(kvpi_oplog_replay_begin(&d.replay, &config), KVP_OK);
    kvpi_oplog_memory_write(&d.log, d.replay.made.bytes, d.replay.made.n_bytes);
    uint64_t ns = append(&d, (kvp_call){.op = KVP_CALL_NS_OPEN});
    static const int32_t tokens[] = {1, 2, 3, 4, 5};
    const uint64_t seq =
        append(&d, (kvp_call){.op = KVP_CALL_OPEN, .handle = ns, .tokens = tokens, .n_tokens = 5});
    const uint32_t five = 5;
    append(&d, (kvp_call){.op = KVP_CALL_STEP_BEGIN});
    append(&d, (kvp_call){.op = KVP_CALL_STEP_BEGIN});
    kvp_call commit = {.op = KVP_CALL_STEP_COMMIT, .handles = &seq, .counts = &five, .n_seqs = 1};
    for (commit.number = 1; commit.number <= 2; commit.number++)
        append(&d, commit);
    append(&d, (kvp_call){.op = KVP_CALL_STEP_DONE, .number = 7});
    append(&d, (kvp_call){.op = KVP_CALL_STEP_FAILED, .number = 1});
    append(&d, (kvp_call){.op = KVP_CALL_STEP_DONE, .number = 2});

    struct kvpi_oplog_rerun rerun;
    struct kvpi_oplog_memory part = {0};
    kvp_sink sink = {&part, kvpi_oplog_memory_write};
    static const uint32_t items[] = {0, 1, 3, 4, 5, 6, 7, 8};
    static const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    static const uint32_t ops[] = {KVP_CALL_NS_OPEN,     KVP_CALL_OPEN,      KVP_CALL_STEP_BEGIN,
                                   KVP_CALL_STEP_COMMIT, KVP_CALL_STEP_DONE, KVP_CALL_STEP_DONE};
    static const uint64_t numbers[] = {0, 0, 0, 1, 7, 1};
    size_t n_used;
    kvp_oplog *log = open_log(&d.log);
    assert_int_equal(kvpi_oplog_rerun_open(&rerun, log), KVP_OK);
    /* All of it first: what that run made is forgotten. */
    assert_int_equal(kvpi_oplog_rerun_run(&rerun, all, 9, 3, &sink, &n_used), KVP_OK);
    assert_int_equal(rerun.n_calls, 9);
    part.n_bytes = 0;
    assert_int_equal(kvpi_oplog_rerun_run(&rerun, items, 8, 3, &sink, &n_used), KVP_OK);
    assert_int_equal(rerun.n_calls, 6); /* what was said of the first step went with it */
    kvp_oplog *again = open_log(&part);
    for (size_t i = 0; i < 6; i++) {
        kvp_record record;
        int at_end;
        assert_int_equal(kvp_oplog_next(again, &record, &at_end), KVP_OK);
        assert_int_equal(record.call.op, ops[i]);
        assert_int_equal(record.call.number, numbers[i]);
        assert_int_equal(record.status, numbers[i] == 7 ? KVP_E_ARG : KVP_OK);
    }
    assert_int_equal(kvpi_oplog_results(again)->outcome.number, 1);
    kvp_oplog_close(again);
    free(part.bytes);
    kvpi_oplog_rerun_close(&rerun);
    kvp_oplog_close(log);
    end_run(&d);
}

/* test_oplog_replay --write FILE SEED CALLS: a log for the tests of the command. */
static int write_log(char **argv)
{
    static struct driver d;
    run(&d, strtoull(argv[3], NULL, 10), (uint32_t)strtoul(argv[4], NULL, 10));
    FILE *file = fopen(argv[2], "wb");
    if (file == NULL)
        return 1;
    size_t n = fwrite(d.log.bytes, 1, d.log.n_bytes, file);
    int failed = fclose(file) != 0 || n != d.log.n_bytes;
    end_run(&d);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--write") == 0)
        return write_log(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_runs_replay_bit_for_bit),
        cmocka_unit_test(test_altered_results_are_found),
        cmocka_unit_test(test_a_cut_log_replays_as_far_as_it_goes),
        cmocka_unit_test(test_hostile_calls_are_harmless),
        cmocka_unit_test(test_a_rerun_of_everything_is_the_same_log),
        cmocka_unit_test(test_a_rerun_of_some_is_a_log),
        cmocka_unit_test(test_a_rerun_follows_handles),
        cmocka_unit_test(test_a_rerun_follows_handles_of_many),
        cmocka_unit_test(test_a_rerun_follows_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
