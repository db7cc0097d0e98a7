#include "oplog_drive.h"

#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "oplog_calls.h"

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

kvp_config oplog_drive_small(void)
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

/* One, two or three groups, one of them with all tokens where there are several; and trees. */
static void take_groups(kvp_config *config, uint64_t seed)
{
    static const kvp_group windows[] = {{0, 0, 0}, {3, 6, 0}, {0, 9, 0}};
    config->n_groups = 1 + (uint32_t)(seed % 3);
    for (uint32_t i = 0; i < config->n_groups; i++)
        config->groups[i] = windows[config->n_groups == 1 ? 1 : i];
    config->n_blocks = 16 + 20 * config->n_groups;
    config->max_tree_tokens = 10;
    config->max_copies = 12;
}

/* Two seeds without and two with a host tier and events, one of these with overlapped steps; then
 * four such seeds with windows, groups and trees. */
kvp_config oplog_drive_config(uint64_t seed)
{
    kvp_config config = oplog_drive_small();
    if (seed / 4 % 2 == 1)
        take_groups(&config, seed);
    config.quotas = seed % 4 != 3;
    if (seed % 4 == 1 || seed % 4 == 2)
        return config;
    config.host_blocks = 14 * config.n_groups;
    config.max_copies = 12;
    config.max_events = 16;
    config.steps = seed % 4 == 0 ? KVP_STEPS_OVERLAPPED : KVP_STEPS_ORDERED;
    config.max_steps_out = 3;
    return config;
}

/* Mostly one that was opened. */
static uint64_t *any_seq(struct oplog_driver *d)
{
    uint32_t at = below(&d->random, OPLOG_DRIVE_SEQS);
    for (int i = 0; i < 3 && d->seqs[at] == 0; i++)
        at = below(&d->random, OPLOG_DRIVE_SEQS);
    return &d->seqs[at];
}

static void fill_tokens(struct oplog_driver *d, kvp_call *call, uint32_t n)
{
    /* Few values, so that prefixes repeat. */
    for (uint32_t i = 0; i < n; i++)
        d->tokens[i] = (int32_t)(below(&d->random, 8) == 0 ? below(&d->random, 3) : i % 5);
    call->tokens = d->tokens;
    call->n_tokens = n;
}

static void fill_prompt(struct oplog_driver *d, kvp_call *call)
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

static void fill_batch(struct oplog_driver *d, kvp_call *call)
{
    uint32_t at = below(&d->random, OPLOG_DRIVE_SEQS), sum = 0;
    call->n_seqs = below(&d->random, 4);
    for (uint32_t i = 0; i < call->n_seqs; i++) {
        d->handles[i] = d->seqs[(at + i) % OPLOG_DRIVE_SEQS];
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
static void fill_seqs(struct oplog_driver *d, kvp_call *call)
{
    call->n_seqs = below(&d->random, 4) == 0 ? below(&d->random, 4) : 1;
    for (uint32_t i = 0; i < call->n_seqs; i++) {
        d->handles[i] = *any_seq(d);
        d->counts[i] = below(&d->random, 8);
    }
    call->handles = d->handles;
}

/* Calls about tiers, steps and events. */
static void fill_tier_call(struct oplog_driver *d, kvp_call *call)
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
        call->no_report =
            call->op == KVP_CALL_STEP_FAILED && call->count == 0 && below(&d->random, 2);
        break;
    case KVP_CALL_EVENTS_SNAPSHOT:
        call->count = below(&d->random, 4) == 0 ? 1 : call->count * 10; /* 0 asks for the size */
        call->with_tokens = below(&d->random, 2);
        break;
    default: break; /* step_begin: the capacity is all */
    }
}

/* What the cache says of a sequence, beside the log; zeros when there is none. */
static kvp_seq_info look(struct oplog_driver *d, uint64_t handle)
{
    kvp_seq_info info;
    const kvp_seq seq = {kvp_handle_flip(d->replay.cache, handle)};
    if (kvp_seq_info_get(d->replay.cache, seq, &info) != KVP_OK)
        memset(&info, 0, sizeof info);
    return info;
}

/* One whose tree can be accepted, if a few tries find it. */
static uint64_t ready_seq(struct oplog_driver *d)
{
    for (int i = 0; i < 12; i++) {
        uint64_t handle = d->seqs[below(&d->random, OPLOG_DRIVE_SEQS)];
        kvp_seq_info info = look(d, handle);
        if (info.tree_tokens > 0 && info.computed_tokens == info.n_tokens)
            return handle;
    }
    return *any_seq(d);
}

/* Mostly nodes that there are. */
static void fill_parents(struct oplog_driver *d, kvp_call *call)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < call->n_seqs; i++) {
        uint32_t n_nodes = look(d, d->handles[i]).tree_tokens;
        for (uint32_t j = 0; j < d->counts[i]; j++)
            d->parents[n++] = (int32_t)below(&d->random, n_nodes + j + 1) - 1;
    }
    if (n > 0 && below(&d->random, 16) == 0)
        d->parents[n - 1] += 9;
    fill_tokens(d, call, n);
    call->counts = d->counts;
    call->parents = d->parents;
}

static void fill_tree_call(struct oplog_driver *d, kvp_call *call)
{
    call->position = 0;
    switch (call->op) {
    case KVP_CALL_WINDOW:
        call->window = (kvp_window){below(&d->random, 6), below(&d->random, 12)}; /* fall through */
    case KVP_CALL_WINDOW_GET: call->group = below(&d->random, 4); break;
    case KVP_CALL_EXTEND_TREE:
        call->handle = 0;
        fill_seqs(d, call);
        fill_parents(d, call);
        call->reserve_tokens = below(&d->random, 3);
        break;
    case KVP_CALL_ACCEPT:
        call->handle = 0;
        fill_seqs(d, call);
        d->handles[0] = ready_seq(d);
        for (uint32_t i = 0; i < call->n_seqs; i++)
            d->leaves[i] = (int32_t)below(&d->random, look(d, d->handles[i]).tree_tokens + 1) - 1;
        call->leaves = d->leaves;
        break;
    default:
        call->with_tokens = below(&d->random, 2);
        call->with_parents = below(&d->random, 2);
        break;
    }
}

static void fill_call(struct oplog_driver *d, kvp_call *call)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    uint32_t n = below(&d->random, 24);
    call->handle = *any_seq(d);
    call->position = n;
    call->count = below(&d->random, 8);
    if (call->op >= KVP_CALL_NS_QUOTA) {
        call->handle = d->ns;
        call->tier = below(&d->random, 2);
        return;
    }
    if (call->op >= KVP_CALL_WINDOW) {
        fill_tree_call(d, call);
        return;
    }
    if (call->op >= KVP_CALL_SWAP_OUT) {
        fill_tier_call(d, call);
        return;
    }
    if (call->op == KVP_CALL_COMMIT && d->trees && n % 2 == 0)
        call->position = look(d, call->handle).n_tokens;
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
    case KVP_CALL_INVALIDATE: call->no_report = call->count == 0 && below(&d->random, 2); break;
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
static void keep_handle(struct oplog_driver *d, const kvp_call *call)
{
    const kvp_outcome *outcome = &d->replay.outcome;
    d->n_made[call->op]++;
    d->n_dropped += outcome->status == KVP_E_DROPPED;
    if (outcome->status != KVP_OK)
        return;
    d->n_ok[call->op]++;
    for (uint32_t i = 0; i < OPLOG_DRIVE_SEQS; i++)
        if (call->op == KVP_CALL_CLOSE && d->seqs[i] == call->handle && below(&d->random, 8) != 0)
            d->seqs[i] = 0;
    if (call->op == KVP_CALL_NS_OPEN)
        d->ns = outcome->handle;
    if (call->op == KVP_CALL_OPEN || call->op == KVP_CALL_FORK)
        d->seqs[below(&d->random, OPLOG_DRIVE_SEQS)] = outcome->handle;
    if (call->op == KVP_CALL_STEP_BEGIN && call->count > 0)
        d->step = outcome->number;
    if (call->op == KVP_CALL_ACCEPT)
        d->n_moves += outcome->n;
}

static void make_call(struct oplog_driver *d, uint32_t op)
{
    kvp_call call = {.op = op};
    fill_call(d, &call);
    assert_int_equal(kvpi_oplog_replay_call(&d->replay, &call, 1), KVP_OK);
    assert_true(d->replay.made.n_bytes > 0);
    kvpi_oplog_memory_write(&d->log, d->replay.made.bytes, d->replay.made.n_bytes);
    keep_handle(d, &call);
}

/* Swap, and take the plan: as steps do, where these are overlapped. */
static uint32_t draw_tier_op(struct oplog_driver *d)
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
static uint32_t draw_op(struct oplog_driver *d)
{
    static const uint32_t common[] = {KVP_CALL_OPEN,   KVP_CALL_OPEN,   KVP_CALL_EXTEND,
                                      KVP_CALL_COMMIT, KVP_CALL_COMMIT, KVP_CALL_CLOSE,
                                      KVP_CALL_FORK};
    static const uint32_t trees[] = {KVP_CALL_EXTEND_TREE, KVP_CALL_EXTEND_TREE, KVP_CALL_ACCEPT,
                                     KVP_CALL_ACCEPT,      KVP_CALL_COMMIT,      KVP_CALL_COMMIT,
                                     KVP_CALL_WINDOW,      KVP_CALL_WINDOW_GET,  KVP_CALL_TREE};
    const uint32_t n_common = sizeof common / sizeof *common;
    if (d->trees && below(&d->random, 3) == 0)
        return trees[below(&d->random, 9)];
    if (below(&d->random, 2) == 0) {
        uint32_t at = below(&d->random, n_common + (d->tiers ? 3 : 1));
        return at < n_common ? common[at] : draw_tier_op(d);
    }
    uint32_t op = 1 + below(&d->random, OPLOG_DRIVE_CALLS);
    if (!oplog_has_call(op))
        op = KVP_CALL_STATS;
    int rare = op == KVP_CALL_RESET || op == KVP_CALL_NS_CLOSE || op == KVP_CALL_NS_FLUSH;
    return rare && below(&d->random, 8) != 0 ? KVP_CALL_OPEN : op;
}

void oplog_drive_run(struct oplog_driver *d, uint64_t seed, uint32_t n_calls)
{
    kvp_config config = oplog_drive_config(seed);
    memset(d, 0, sizeof *d);
    d->tiers = config.host_blocks > 0;
    d->trees = config.max_tree_tokens > 0;
    d->overlapped = config.steps == KVP_STEPS_OVERLAPPED;
    d->random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    assert_int_equal(kvpi_oplog_replay_begin(&d->replay, &config), KVP_OK);
    kvpi_oplog_memory_write(&d->log, d->replay.made.bytes, d->replay.made.n_bytes);
    make_call(d, KVP_CALL_NS_OPEN);
    for (uint32_t i = 1; i < n_calls; i++)
        make_call(d, draw_op(d));
}

void oplog_drive_end(struct oplog_driver *d)
{
    kvpi_oplog_replay_end(&d->replay);
    free(d->log.bytes);
}

kvp_oplog *oplog_drive_open(const struct kvpi_oplog_memory *memory)
{
    kvp_oplog *log = NULL;
    assert_int_equal(kvp_oplog_open(memory->bytes, memory->n_bytes, &log), KVP_OK);
    return log;
}
