/* Any bytes as calls on a cache: a configuration, then calls with arguments, right and wrong ones.
 * The cache is recorded, and audited after every call, as a whole after every eighth and at the
 * end, when its log must replay bit for bit.
 *
 * With KVP_FUZZ_LOG=FILE in the environment the log is written there, call by call, also when the
 * input crashes: `kvpager trace show FILE` says what the bytes meant. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpager/hash.h>
#include <kvpager/oplog.h>

#include "oplog/replay.h"

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define N_OPS      ((uint32_t)KVP_CALL_NS_INFO)
#define MAX_CALLS  400u
#define MAX_TOKENS 64u
#define N_HANDLES  8u

/* The bytes, used up from the front; 0 when there are none left. */
struct input {
    const uint8_t *at;
    const uint8_t *end;
};

struct session {
    struct input input;
    struct kvpi_oplog_replay replay;
    struct kvpi_oplog_memory log;
    FILE *file;
    uint64_t spaces[2];
    uint64_t seqs[N_HANDLES];
    uint32_t next;
    uint32_t n_calls;
    uint64_t step;  /* the newest */
    uint64_t event; /* the newest that was read */
    int32_t tokens[4 * MAX_TOKENS];
    uint64_t handles[4];
    uint32_t counts[4];
    int32_t nodes[4 * MAX_TOKENS]; /* parents, leaves */
    kvp_key keys[2];
    kvp_range ranges[2];
    kvp_hash hashes[MAX_TOKENS];
    kvp_config config;
};

static uint32_t take(struct session *s, uint32_t below)
{
    return s->input.at < s->input.end ? *s->input.at++ % below : 0;
}

/* Mostly small; sometimes an edge. */
static uint32_t take_number(struct session *s)
{
    static const uint32_t edges[] = {KVP_END, KVP_END - 1, 1u << 31, 255, 64, 65};
    uint32_t n = take(s, 256);
    return n < 240 ? n % 48 : edges[n % 6];
}

/* A sequence that was opened, as long as there is one; closed ones, too. */
static uint64_t take_seq(struct session *s)
{
    uint32_t at = take(s, N_HANDLES);
    for (uint32_t i = 0; i < N_HANDLES && s->seqs[at] == 0; i++)
        at = (at + 1) % N_HANDLES;
    return s->seqs[at];
}

/* What the cache says of a sequence, beside the log; zeros when there is none. */
static kvp_seq_info look(const struct session *s, uint64_t handle)
{
    kvp_seq_info info;
    const kvp_seq seq = {kvp_handle_flip(s->replay.cache, handle)};
    if (kvp_seq_info_get(s->replay.cache, seq, &info) != KVP_OK)
        memset(&info, 0, sizeof info);
    return info;
}

static void take_tiers(struct session *s, kvp_config *config)
{
    uint32_t bits = take(s, 32);
    config->host_blocks = (bits & 3) != 0 ? 2 + take(s, 24) : 0;
    config->keep_evicted = (bits & 4) != 0;
    config->max_copies += (bits & 3) != 0 ? take(s, 16) : 0;
    config->steps = bits >> 3 & 1;
    config->max_steps_out = 1 + (config->steps != 0 ? take(s, 4) : 0);
    config->max_events = (bits & 16) != 0 ? 1 + take(s, 32) : 0;
}

static kvp_window take_window(struct session *s)
{
    uint32_t sink = take(s, 8);
    return (kvp_window){sink == 7 ? KVP_CHUNKED : sink, take(s, 24)};
}

static void take_groups(struct session *s, kvp_config *config)
{
    uint32_t bits = take(s, 16);
    config->max_tree_tokens = (bits & 3) != 0 ? 1 + take(s, 24) : 0;
    config->n_groups = (bits & 4) != 0 ? 1 + take(s, 4) : 1;
    for (uint32_t i = 0; i < config->n_groups && (bits & 12) != 0; i++) {
        const kvp_window window = take_window(s);
        config->groups[i] = (kvp_group){window.sink_tokens, window.recent_tokens, 0};
        if (config->groups[i].recent_tokens == 0)
            config->groups[i].sink_tokens = 0;
    }
}

static kvp_config take_config(struct session *s)
{
    static const uint32_t sizes[] = {1, 2, 4, 8};
    static const int32_t uncached[] = {3, 2};
    kvp_config config;
    kvp_config_init(&config);
    uint32_t block = take(s, 4);
    config.block_tokens = sizes[block];
    config.unit_tokens = sizes[take(s, block + 1)];
    config.n_blocks = 2 + take(s, 40);
    config.max_seqs = 1 + take(s, 8);
    config.max_seq_tokens = 1 + take(s, 64);
    config.max_namespaces = 1 + take(s, 3);
    config.n_nodes = take(s, 4) == 0 ? 1 + take(s, 64) : 0;
    config.max_unit_keys = take(s, 3);
    config.max_copies = 1 + take(s, 6);
    uint32_t bits = take(s, 256);
    config.commit_policy = bits & 1;
    config.full_hit = bits >> 1 & 1;
    config.prefix_cache = (bits & 12) != 0;
    config.quotas = bits >> 7;
    config.test_hash_bits = (bits & 16) != 0 ? 1 + take(s, 4) : 0;
    config.watermark = (bits & 32) != 0 ? 0.1 : 0;
    config.uncached_tokens = uncached;
    config.n_uncached_tokens = (bits & 192) == 192 ? 2 : 0;
    take_tiers(s, &config);
    take_groups(s, &config);
    return config;
}

static void take_tokens(struct session *s, kvp_call *call, uint32_t n)
{
    uint32_t way = take(s, 8);
    for (uint32_t i = 0; i < n; i++)
        s->tokens[i] = (int32_t)(way < 4 ? (i + way) % 3 : take(s, 4));
    if (way == 7 && n > 0)
        s->tokens[n - 1] = -1;
    call->tokens = s->tokens;
    call->n_tokens = n;
}

static void take_keys(struct session *s, kvp_call *call)
{
    call->n_keys = take(s, 8) < 6 ? 0 : 1 + take(s, 2);
    for (uint32_t i = 0; i < call->n_keys; i++) {
        uint32_t begin = take(s, 48);
        s->keys[i] = (kvp_key){take(s, 2), begin, begin + take(s, 20), take(s, 54),
                               "0123456789012345678901234567890123456789012345678901234"};
    }
    call->keys = call->n_keys > 0 ? s->keys : NULL;
}

/* Hashes made elsewhere: those of the prompt in the first namespace, or one of them wrong. */
static void take_hashes(struct session *s, kvp_call *call)
{
    const uint32_t unit = s->config.unit_tokens, wrong = take(s, 2 * MAX_TOKENS);
    const kvp_hash_input input = {.unit_tokens = unit,
                                  .n_tokens = call->n_tokens,
                                  .tokens = call->tokens,
                                  .n_keys = call->n_keys,
                                  .keys = call->keys};
    kvp_hash root;
    require(kvp_hash_root(unit, s->config.hash_seed, "a", 1, &root) == KVP_OK);
    if (kvp_hash_units(&input, &root, s->hashes) != KVP_OK)
        return;
    if (wrong < MAX_TOKENS)
        s->hashes[wrong].bytes[0] ^= 1;
    call->hashes = s->hashes;
    call->n_hashes = call->n_tokens / unit;
}

static void take_prompt(struct session *s, kvp_call *call)
{
    call->handle = s->spaces[take(s, 2)];
    take_tokens(s, call, take(s, MAX_TOKENS));
    call->reserve_tokens = take(s, 4) == 0 ? take_number(s) : 0;
    take_keys(s, call);
    call->n_ranges = take(s, 8) < 6 ? 0 : 1 + take(s, 2);
    for (uint32_t i = 0; i < call->n_ranges; i++)
        s->ranges[i] = (kvp_range){take(s, 48), take_number(s)};
    call->ranges = call->n_ranges > 0 ? s->ranges : NULL;
    call->flags = take(s, 4) == 0 ? take(s, 5) : 0;
    uint32_t more = take(s, 256);
    call->retention = more % 8 == 0 ? take(s, 9) : 0;
    if (more >= 192)
        take_hashes(s, call);
}

static void take_seqs(struct session *s, kvp_call *call)
{
    call->n_seqs = take(s, 8) < 6 ? 1 : take(s, 5);
    for (uint32_t i = 0; i < call->n_seqs; i++) {
        s->handles[i] = take_seq(s);
        s->counts[i] = call->op == KVP_CALL_STEP_COMMIT ? take_number(s) : 0;
    }
    call->handles = s->handles;
}

/* Calls about tiers, steps and events. */
static void take_tier_call(struct session *s, kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_SWAP_IN:
    case KVP_CALL_CAN_SWAP_IN: call->reserve_tokens = take(s, 4) == 0 ? take_number(s) : 0;
    /* fall through */
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_OUT: take_seqs(s, call); return;
    case KVP_CALL_STEP_COMMIT: take_seqs(s, call); call->counts = s->counts;
    /* fall through */
    case KVP_CALL_STEP_DONE: call->number = s->step - take(s, 6); return;
    case KVP_CALL_EVENTS_READ: call->number = s->event + (take(s, 3) == 0 ? take(s, 40) : 1); break;
    case KVP_CALL_STEP_FAILED: call->number = s->step - take(s, 6); break;
    default: break;
    }
    call->count = take(s, 4) == 0 ? take_number(s) : 60;
    call->no_report = call->op == KVP_CALL_STEP_FAILED && call->count == 0;
    call->with_tokens = call->op >= KVP_CALL_EVENTS_READ && take(s, 2) == 0;
}

static void take_batch(struct session *s, kvp_call *call)
{
    uint32_t sum = 0;
    call->n_seqs = take(s, 5);
    for (uint32_t i = 0; i < call->n_seqs; i++) {
        s->handles[i] = take_seq(s);
        s->counts[i] = call->op == KVP_CALL_COMMIT_MANY ? take_number(s) : take(s, MAX_TOKENS / 4);
        sum += s->counts[i];
    }
    call->handles = s->handles;
    call->counts = s->counts;
    if (call->op == KVP_CALL_COMMIT_MANY)
        return;
    take_tokens(s, call, sum);
    if (take(s, 3) == 0)
        call->tokens = NULL;
    call->reserve_tokens = take(s, 4) == 0 ? take_number(s) : 0;
    call->flags = take(s, 2);
    if (call->n_seqs == 1)
        take_keys(s, call);
}

/* A node of `n`, or none; now and then one that there is not. */
static int32_t take_node(struct session *s, uint32_t n)
{
    uint32_t way = take(s, 16);
    return (int32_t)(way == 0 ? take(s, 64) : take(s, n + 1)) - (way == 1 ? 2 : 1);
}

static void take_parents(struct session *s, kvp_call *call)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < call->n_seqs; i++) {
        uint32_t n_nodes = look(s, s->handles[i]).tree_tokens;
        for (uint32_t j = 0; j < s->counts[i]; j++)
            s->nodes[n++] = take_node(s, n_nodes + j);
    }
    call->parents = s->nodes;
}

static void take_leaves(struct session *s, kvp_call *call)
{
    for (uint32_t i = 0; i < call->n_seqs; i++)
        s->nodes[i] = take_node(s, look(s, s->handles[i]).tree_tokens);
    call->leaves = s->nodes;
}

static void take_tree_call(struct session *s, kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_EXTEND_TREE:
        take_batch(s, call);
        take_parents(s, call);
        return;
    case KVP_CALL_ACCEPT:
        take_seqs(s, call);
        take_leaves(s, call);
        call->count = take(s, 4) == 0 ? take_number(s) : 60;
        return;
    case KVP_CALL_WINDOW: call->window = take_window(s); /* fall through */
    case KVP_CALL_WINDOW_GET: call->group = take(s, 4); break;
    default:
        call->count = take_number(s);
        call->with_tokens = take(s, 2);
        call->with_parents = take(s, 2);
        break;
    }
    call->handle = take_seq(s);
}

static kvp_call take_call(struct session *s)
{
    static const uint8_t names[] = "abc";
    kvp_call call = {.op = 1 + take(s, N_OPS)};
    switch (call.op) {
    case KVP_CALL_NS_OPEN:
        call.name = names + take(s, 3);
        call.name_bytes = 1;
        return call;
    case KVP_CALL_NS_CLOSE:
    case KVP_CALL_NS_FLUSH: call.handle = s->spaces[take(s, 2)]; return call;
    case KVP_CALL_MATCH:
    case KVP_CALL_OPEN:
    case KVP_CALL_CAN_OPEN: take_prompt(s, &call); return call;
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_FILL_MANY:
    case KVP_CALL_COMMIT_MANY:
    case KVP_CALL_CAN_EXTEND: take_batch(s, &call); return call;
    case KVP_CALL_NS_QUOTA: call.tier = take(s, 3); call.count = take_number(s); /* fall through */
    case KVP_CALL_NS_INFO: call.handle = s->spaces[take(s, 2)]; return call;
    default: break;
    }
    if (call.op >= KVP_CALL_WINDOW) {
        take_tree_call(s, &call);
        return call;
    }
    if (call.op >= KVP_CALL_SWAP_OUT) {
        take_tier_call(s, &call);
        return call;
    }
    call.handle = take_seq(s);
    call.position = take_number(s);
    if (call.op == KVP_CALL_COMMIT && take(s, 2) == 0)
        call.position = look(s, call.handle).n_tokens;
    if (call.op == KVP_CALL_EXTEND || call.op == KVP_CALL_FILL) {
        take_tokens(s, &call, take(s, MAX_TOKENS / 4));
        if (call.op == KVP_CALL_EXTEND && take(s, 4) == 0)
            call.tokens = NULL;
        call.reserve_tokens = call.op == KVP_CALL_EXTEND && take(s, 4) == 0 ? take_number(s) : 0;
        return call;
    }
    call.count = take_number(s);
    call.group = take(s, 16) == 0 ? 1 + take(s, 4) : 0;
    call.tier = take(s, 3);
    call.block = (int32_t)take_number(s);
    call.range = (kvp_range){call.position, call.count};
    call.retention = take(s, 9);
    call.no_report = call.op == KVP_CALL_INVALIDATE && call.count == 0;
    return call;
}

/* Keeps what the call recorded. */
static void keep(struct session *s)
{
    const struct kvpi_oplog_memory *made = &s->replay.made;
    require(kvpi_oplog_memory_write(&s->log, made->bytes, made->n_bytes) == 0);
    if (s->file != NULL) {
        fwrite(made->bytes, 1, made->n_bytes, s->file);
        fflush(s->file);
    }
}

static void run_call(struct session *s)
{
    kvp_call call = take_call(s);
    kvp_status status = kvpi_oplog_replay_call(&s->replay, &call, s->n_calls++ % 8 == 7 ? 3 : 2);
    keep(s);
    require(status == KVP_OK);
    if (s->replay.outcome.status != KVP_OK)
        return;
    if (call.op == KVP_CALL_NS_OPEN)
        s->spaces[call.name[0] % 2] = s->replay.outcome.handle;
    if (call.op == KVP_CALL_OPEN || call.op == KVP_CALL_FORK)
        s->seqs[s->next++ % N_HANDLES] = s->replay.outcome.handle;
    if (call.op == KVP_CALL_STEP_BEGIN && call.count > 0)
        s->step = s->replay.outcome.number;
    if (call.op == KVP_CALL_EVENTS_READ)
        s->event = call.number + s->replay.outcome.n - 1;
    if (call.op == KVP_CALL_EVENTS_SNAPSHOT)
        s->event = s->replay.outcome.number;
}

/* The whole log once more, from its bytes. */
static void replay(const struct session *s)
{
    kvp_oplog *log;
    uint64_t index;
    require(kvp_oplog_open(s->log.bytes, s->log.n_bytes, &log) == KVP_OK);
    require(kvp_oplog_replay(log, 0, &index) == KVP_OK);
    kvp_oplog_close(log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct session s;
    memset(&s, 0, sizeof s);
    s.input = (struct input){data, data + size};
    s.config = take_config(&s);
    kvp_status status = kvpi_oplog_replay_begin(&s.replay, &s.config);
    if (status == KVP_E_ARG) /* too few nodes, for instance */
        return 0;
    require(status == KVP_OK);
    const char *path = getenv("KVP_FUZZ_LOG");
    s.file = path != NULL ? fopen(path, "wb") : NULL;
    keep(&s);
    kvp_call open = {.op = KVP_CALL_NS_OPEN, .name = (const uint8_t *)"a", .name_bytes = 1};
    require(kvpi_oplog_replay_call(&s.replay, &open, 0) == KVP_OK);
    keep(&s);
    s.spaces[0] = s.spaces[1] = s.replay.outcome.handle;
    for (uint32_t i = 0; i < MAX_CALLS && s.input.at < s.input.end; i++)
        run_call(&s);
    kvp_call check = {.op = KVP_CALL_CHECK, .position = 3};
    require(kvpi_oplog_replay_call(&s.replay, &check, 0) == KVP_OK);
    require(s.replay.outcome.status == KVP_OK);
    keep(&s);
    kvpi_oplog_replay_end(&s.replay);
    replay(&s);
    free(s.log.bytes);
    if (s.file != NULL)
        fclose(s.file);
    return 0;
}
