/* run: makes the call that a kvp_call describes, and collects what it gives. Most calls are
 * made from the table, core/record/calls.def; those by hand give arrays, or take their arguments in
 * another order than the log has them.
 *
 * Handles come in portable and go out portable; in between they are this cache's. Outputs go to the
 * outcome's storage. Its size is bounded by the configuration, not by the call: a log can ask for
 * any number of tokens, slots or events, but more than max_seq_tokens is refused by the cache
 * before it writes the first, and events are never more than there are, so the buffer needs no
 * place for them.
 */
#include <kvpager/oplog.h>
#include <kvpager/policy.h>

#include <stdlib.h>
#include <string.h>

/* A call as it is made. */
typedef struct oplog_run {
    kvp_cache *cache;
    const kvp_call *call;
    kvp_outcome *out;
    kvp_config config;
    uint64_t handle; /* this cache's: call->handle */
    kvp_seq *seqs;   /* [n_seqs] likewise: call->handles; at the start of the storage */
    kvp_prompt prompt;
    kvp_batch batch;
    void *array;     /* behind seqs: what the call gives, of array_bytes */
    int has_no_room; /* there was no memory for what the call gave */
} run;

/* ---------------------------------------------------------------------------------- the storage */

/* Makes the storage hold n_bytes; never NULL after success. */
static void *storage(kvp_outcome *out, uint64_t n_bytes)
{
    if (n_bytes < 64)
        n_bytes = 64;
    if (n_bytes > SIZE_MAX)
        return NULL;
    if (out->storage_bytes < n_bytes) {
        void *bytes = realloc(out->storage, (size_t)n_bytes);
        if (bytes == NULL)
            return NULL;
        out->storage = bytes;
        out->storage_bytes = (size_t)n_bytes;
    }
    return out->storage;
}

static uint64_t at_most(uint64_t n, uint64_t limit)
{
    return n < limit ? n : limit;
}

/* Everything but the storage begins again. */
static void clear(kvp_outcome *out)
{
    void *bytes = out->storage;
    size_t n_bytes = out->storage_bytes;
    memset(out, 0, sizeof *out);
    out->storage = bytes;
    out->storage_bytes = n_bytes;
}

void kvp_outcome_free(kvp_outcome *outcome)
{
    if (outcome == NULL)
        return;
    free(outcome->storage);
    memset(outcome, 0, sizeof *outcome);
}

/* How many moves there can be of each group. It is also their distance: what the call has beyond
 * that is left out here, as the recorder does. */
static uint32_t move_room(const run *r)
{
    const uint64_t n_seqs = at_most(r->call->n_seqs, r->config.max_seqs);
    return (uint32_t)at_most(r->call->count, n_seqs * r->config.max_tree_tokens);
}

/* How many events a call can give: those that are remembered; of a snapshot, every node in every
 * tier and group. */
static uint64_t event_room(const run *r)
{
    const uint64_t n_tiers = 2;
    return at_most(r->call->count, r->call->op == KVP_CALL_EVENTS_READ
                                       ? r->config.max_events
                                       : n_tiers * r->config.n_groups * r->config.n_nodes);
}

/* S of a group; of recurrent state the cache's. */
static uint32_t block_tokens_of(const kvp_config *config, uint32_t group)
{
    const uint32_t S = group < config->n_groups ? config->groups[group].block_tokens : 0;
    return S == 0 ? config->block_tokens : S;
}

/* Of the group with the largest blocks. */
static uint32_t most_block_tokens(const kvp_config *config)
{
    uint32_t most = 0;
    for (uint32_t g = 0; g < config->n_groups; g++) {
        const uint32_t S = block_tokens_of(config, g);
        most = S > most ? S : most;
    }
    return most;
}

/* Entries of the load's group beyond the prompt are refused before any is written. */
static uint32_t load_room(const run *r)
{
    const kvp_range entries = r->call->range;
    const uint32_t most = r->call->n_tokens / block_tokens_of(&r->config, r->call->group);
    return entries.begin < entries.end && entries.end <= most ? entries.end - entries.begin : 1;
}

static uint64_t array_bytes(const run *r)
{
    const kvp_call *call = r->call;
    const kvp_config *config = &r->config;
    switch (call->op) {
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_FILL_MANY:
    case KVP_CALL_CAN_EXTEND:
    case KVP_CALL_EXTEND_TREE: return (uint64_t)call->n_seqs * sizeof(kvp_status);
    case KVP_CALL_INVALIDATE:
    case KVP_CALL_STEP_FAILED: return at_most(call->count, config->max_seqs) * sizeof(kvp_seq);
    case KVP_CALL_SEQ_TOKENS:
    case KVP_CALL_BLOCK_PREFIX:
        return at_most(call->count, config->max_seq_tokens) * sizeof(int32_t);
    case KVP_CALL_SEQ_BLOCK_TOKENS:
    case KVP_CALL_BLOCK_TOKENS: return (uint64_t)most_block_tokens(config) * sizeof(int32_t);
    case KVP_CALL_SLOTS: return at_most(call->count, config->max_seq_tokens) * sizeof(int64_t);
    case KVP_CALL_PLAN_TAKE:
    case KVP_CALL_STEP_BEGIN: return at_most(call->count, config->max_copies) * sizeof(kvp_copy);
    case KVP_CALL_EVENTS_READ:
    case KVP_CALL_EVENTS_SNAPSHOT:
        return event_room(r) * (sizeof(kvp_event) + config->unit_tokens * sizeof(int32_t));
    case KVP_CALL_ACCEPT: return config->n_groups * sizeof(kvp_slot_move) * (uint64_t)move_room(r);
    case KVP_CALL_TREE: return at_most(call->count, config->max_tree_tokens) * 2 * sizeof(int32_t);
    case KVP_CALL_MIRROR:
        return call->tokens == NULL ? 0 : (uint64_t)call->n_tokens * sizeof(int32_t);
    case KVP_CALL_LOAD_BEGIN: return (uint64_t)load_room(r) * sizeof(int32_t);
    case KVP_CALL_COLD_END: /* never more than there are blocks */
        return at_most(call->count,
                       call->tier == KVP_HOST ? config->host_blocks : config->n_blocks) *
               sizeof(kvp_cold);
    default: return 0;
    }
}

/* ------------------------------------------------------------------------------------ arguments */

static int arrays_fit(const run *r)
{
    const kvp_call *call = r->call;
    uint64_t sum = call->counts == NULL ? call->n_seqs : 0;
    for (uint32_t i = 0; call->counts != NULL && i < call->n_seqs; i++)
        sum += call->counts[i];
    return (call->hashes == NULL || call->n_hashes == call->n_tokens / r->config.unit_tokens) &&
           (call->handles != NULL || call->n_seqs == 0) &&
           (call->handles == NULL || (call->tokens == NULL && call->parents == NULL) ||
            sum == call->n_tokens);
}

static void ready_prompt(run *r)
{
    const kvp_call *call = r->call;
    r->prompt.struct_size = sizeof r->prompt;
    r->prompt.tokens = call->tokens;
    r->prompt.n_tokens = call->n_tokens;
    r->prompt.reserve_tokens = call->reserve_tokens;
    r->prompt.hashes = call->hashes;
    r->prompt.keys = call->keys;
    r->prompt.n_keys = call->n_keys;
    r->prompt.n_uncached = call->n_ranges;
    r->prompt.uncached = call->ranges;
    r->prompt.flags = call->flags;
    r->prompt.retention = call->retention;
    r->prompt.tag = call->tag;
}

static void ready_batch(run *r)
{
    const kvp_call *call = r->call;
    r->batch.struct_size = sizeof r->batch;
    r->batch.n_seqs = call->n_seqs;
    r->batch.flags = call->flags;
    r->batch.seqs = r->seqs;
    r->batch.n_tokens = call->counts;
    r->batch.tokens = call->tokens;
    r->batch.reserve_tokens = call->reserve_tokens;
    r->batch.n_keys = call->n_keys;
    r->batch.keys = call->keys;
    r->batch.statuses = (call->flags & KVP_BATCH_EACH) != 0 ? r->array : NULL;
}

/* Whatever the call is: what it does not have is zero. */
static kvp_status ready(run *r)
{
    const kvp_call *call = r->call;
    if (!arrays_fit(r))
        return KVP_E_ARG;
    r->seqs = storage(r->out, (uint64_t)call->n_seqs * sizeof *r->seqs + array_bytes(r));
    if (r->seqs == NULL)
        return KVP_E_NO_MEMORY;
    r->array = r->seqs + call->n_seqs;
    r->handle = kvp_handle_flip(r->cache, call->handle);
    for (uint32_t i = 0; i < call->n_seqs; i++)
        r->seqs[i].bits = kvp_handle_flip(r->cache, call->handles[i]);
    ready_prompt(r);
    ready_batch(r);
    return KVP_OK;
}

/* -------------------------------------------------------------------------------- calls by hand */

static kvp_seq seq_of(const run *r)
{
    return (kvp_seq){r->handle};
}

/* Of a call that says how much room it needs: is its array there? */
static int has_array(run *r, kvp_status status, uint32_t n)
{
    if (status == KVP_OK || status == KVP_E_TOO_SMALL)
        r->out->n = n;
    return status == KVP_OK && r->call->count > 0;
}

/* What lies in the cache until its next change, copied into the storage. */
static const void *copied(run *r, const void *array, uint32_t n, size_t entry_bytes)
{
    void *copy = storage(r->out, (uint64_t)n * entry_bytes);
    r->has_no_room = copy == NULL;
    if (copy == NULL)
        return NULL;
    if (n > 0)
        memcpy(copy, array, n * entry_bytes);
    r->out->n = n;
    return copy;
}

static kvp_status run_seq_extend(run *r)
{
    const kvp_call *call = r->call;
    return kvp_seq_extend(r->cache, seq_of(r), call->tokens, call->n_tokens, call->reserve_tokens);
}

/* The sequences whose KV is wrong, in portable bits. */
static void give_report(run *r, kvp_status status, uint32_t n)
{
    kvp_seq *seqs = r->array;
    if (r->call->no_report != 0 || !has_array(r, status, n))
        return;
    for (uint32_t i = 0; i < n; i++)
        seqs[i].bits = kvp_handle_flip(r->cache, seqs[i].bits);
    r->out->u64 = &seqs[0].bits; /* a kvp_seq is a uint64_t and nothing else */
}

static kvp_status run_seq_invalidate(run *r)
{
    const kvp_call *call = r->call;
    uint32_t n = 0;
    kvp_status status =
        kvp_seq_invalidate(r->cache, seq_of(r), call->position, call->count > 0 ? r->array : NULL,
                           call->count, call->no_report != 0 ? NULL : &n);
    give_report(r, status, n);
    return status;
}

static kvp_status run_step_failed(run *r)
{
    const kvp_call *call = r->call;
    uint32_t n = 0;
    kvp_status status = kvp_step_failed(r->cache, call->number, call->count > 0 ? r->array : NULL,
                                        call->count, call->no_report != 0 ? NULL : &n);
    give_report(r, status, n);
    return status;
}

static kvp_status run_seq_info_get(run *r)
{
    kvp_seq_info *info = &r->out->u.seq;
    kvp_status status = kvp_seq_info_get(r->cache, seq_of(r), info);
    if (status == KVP_OK)
        info->ns.bits = kvp_handle_flip(r->cache, info->ns.bits);
    return status;
}

static kvp_status give_i32s(run *r, kvp_status status, uint32_t n)
{
    if (status == KVP_OK) {
        r->out->n = n;
        r->out->i32 = r->array;
    }
    return status;
}

static kvp_status run_seq_tokens(run *r)
{
    const kvp_call *call = r->call;
    return give_i32s(r, kvp_seq_tokens(r->cache, seq_of(r), call->position, call->count, r->array),
                     call->count);
}

static kvp_status run_seq_block_tokens(run *r)
{
    uint32_t n = 0;
    kvp_status status = kvp_seq_block_tokens(r->cache, seq_of(r), r->call->position, r->array, &n);
    return give_i32s(r, status, n);
}

static kvp_status run_block_tokens(run *r)
{
    const kvp_call *call = r->call;
    uint32_t n = 0;
    kvp_status status =
        kvp_block_tokens(r->cache, call->group, call->tier, call->block, r->array, &n);
    return give_i32s(r, status, n);
}

static kvp_status run_seq_row(run *r)
{
    const int32_t *row = NULL;
    uint32_t n = 0;
    kvp_status status = kvp_seq_row(r->cache, seq_of(r), r->call->group, &row, &n);
    if (status == KVP_OK)
        r->out->i32 = copied(r, row, n, sizeof *row);
    return status;
}

static kvp_status run_seq_slots(run *r)
{
    const kvp_call *call = r->call;
    kvp_status status =
        kvp_seq_slots(r->cache, seq_of(r), call->group, call->position, call->count, r->array);
    if (status == KVP_OK) {
        r->out->n = call->count;
        r->out->i64 = r->array;
    }
    return status;
}

static kvp_status run_plan_take(run *r)
{
    uint32_t n = 0;
    kvp_status status = kvp_plan_take(r->cache, r->array, r->call->count, &n);
    if (has_array(r, status, n))
        r->out->copies = r->array;
    return status;
}

static kvp_status run_step_begin(run *r)
{
    uint32_t n = 0;
    uint64_t step = 0;
    kvp_status status = kvp_step_begin(r->cache, r->array, r->call->count, &n, &step);
    if (has_array(r, status, n)) {
        r->out->copies = r->array;
        r->out->number = step;
    }
    return status;
}

static kvp_status run_cache_evicted(run *r)
{
    const kvp_evicted *evicted = NULL;
    uint32_t n = 0;
    kvp_status status = kvp_cache_evicted(r->cache, &evicted, &n);
    if (status == KVP_OK)
        r->out->evicted = copied(r, evicted, n, sizeof *evicted);
    return status;
}

static kvp_status run_cache_stats_get(run *r)
{
    return kvp_cache_stats_get(r->cache, &r->out->u.stats);
}

static kvp_status run_cache_config_get(run *r)
{
    kvp_config config;
    kvp_config_init(&config);
    return kvp_cache_config_get(r->cache, &config);
}

static kvp_status run_cache_check(run *r)
{
    return kvp_cache_check(r->cache, (int)(int32_t)r->call->position, &r->out->u.violation);
}

/* Where the events' tokens go, when they are asked for. */
static int32_t *event_tokens(const run *r)
{
    kvp_event *events = r->array;
    return r->call->with_tokens != 0 ? (int32_t *)(void *)(events + event_room(r)) : NULL;
}

/* Only stored units have tokens: the cache leaves the places of other events as they were. */
static void give_events(run *r, kvp_status status, uint32_t n)
{
    const kvp_event *events = r->array;
    const size_t unit_tokens = r->config.unit_tokens;
    int32_t *tokens = event_tokens(r);
    if (!has_array(r, status, n))
        return;
    for (size_t i = 0; i < n && tokens != NULL; i++)
        if (events[i].n_tokens == 0)
            memset(tokens + i * unit_tokens, 0, unit_tokens * sizeof *tokens);
    r->out->events = events;
    r->out->i32 = tokens;
}

static kvp_status run_events_read(run *r)
{
    const kvp_call *call = r->call;
    uint32_t n = 0;
    kvp_status status =
        kvp_events_read(r->cache, call->number, r->array, call->count, event_tokens(r), &n);
    give_events(r, status, n);
    return status;
}

static kvp_status run_events_snapshot(run *r)
{
    uint32_t n = 0;
    kvp_status status = kvp_events_snapshot(r->cache, r->array, r->call->count, event_tokens(r), &n,
                                            &r->out->number);
    give_events(r, status, n);
    return status;
}

/* The moves of one group behind those of another, with nothing between them. */
static void gather_moves(kvp_slot_move *moves, size_t n_groups, size_t n_moves, size_t room)
{
    for (size_t group = 1; group < n_groups; group++)
        memmove(moves + group * n_moves, moves + group * room, n_moves * sizeof *moves);
}

static kvp_status run_seq_accept(run *r)
{
    const uint32_t room = move_room(r);
    kvp_accept accept;
    memset(&accept, 0, sizeof accept);
    accept.struct_size = sizeof accept;
    accept.n_seqs = r->call->n_seqs;
    accept.max_moves = room;
    accept.seqs = r->seqs;
    accept.leaves = r->call->leaves;
    accept.moves = room > 0 ? r->array : NULL;
    kvp_status status = kvp_seq_accept(r->cache, &accept);
    if (has_array(r, status, accept.n_moves)) {
        gather_moves(r->array, r->config.n_groups, accept.n_moves, room);
        r->out->moves = r->array;
    }
    return status;
}

static kvp_status run_seq_tree(run *r)
{
    const kvp_call *call = r->call;
    const uint64_t room = at_most(call->count, r->config.max_tree_tokens);
    int32_t *tokens = call->with_tokens != 0 ? r->array : NULL;
    int32_t *parents = call->with_parents != 0 ? (int32_t *)r->array + room : NULL;
    uint32_t n = 0;
    kvp_status status = kvp_seq_tree(r->cache, seq_of(r), tokens, parents, call->count, &n);
    if (has_array(r, status, n)) {
        r->out->i32 = tokens;
        r->out->parents = parents;
    }
    return status;
}

static kvp_status run_cache_mirror(run *r)
{
    const kvp_call *call = r->call;
    kvp_status status = kvp_cache_mirror(r->cache, call->tokens, call->n_tokens, call->count,
                                         r->array, &r->out->u.mirrored);
    return give_i32s(r, status, call->n_tokens);
}

static kvp_status run_load_begin(run *r)
{
    kvp_load load;
    memset(&load, 0, sizeof load);
    load.struct_size = sizeof load;
    load.group = r->call->group;
    load.entries = r->call->range;
    load.spare_blocks = r->call->count;
    load.blocks = r->array;
    kvp_status status = kvp_load_begin(r->cache, (kvp_ns){r->handle}, &r->prompt, &load);
    if (status == KVP_OK) {
        r->out->u.load.number = load.number;
        r->out->u.load.after = load.after;
        r->out->u.load.n_blocks = load.n_blocks;
        r->out->u.load.n_found = load.n_found;
        r->out->u.load.n_elsewhere = load.n_elsewhere;
    }
    return give_i32s(r, status, load_room(r));
}

static kvp_status run_cache_cold_end(run *r)
{
    const kvp_call *call = r->call;
    kvp_cold_cursor *cursor = &r->out->u.cursor;
    cursor->block = call->block;
    cursor->generation = call->number;
    kvp_status status =
        kvp_cache_cold_end(r->cache, call->tier, cursor, r->array, call->count, &r->out->n);
    if (status == KVP_OK && call->count > 0)
        r->out->cold = r->array;
    return status;
}

static kvp_status run_seq_state_get(run *r)
{
    return kvp_seq_state_get(r->cache, seq_of(r), &r->out->u.state);
}

static kvp_status run_cache_state_stats_get(run *r)
{
    return kvp_cache_state_stats_get(r->cache, &r->out->u.state_stats);
}

static kvp_status run_block_origin_get(run *r)
{
    kvp_block_origin *origin = &r->out->u.origin;
    kvp_status status = kvp_block_origin_get(r->cache, r->call->tier, r->call->block, origin);
    if (status == KVP_OK)
        origin->ns.bits = kvp_handle_flip(r->cache, origin->ns.bits);
    return status;
}

static kvp_status run_block_prefix(run *r)
{
    const kvp_call *call = r->call;
    uint32_t n = 0;
    kvp_status status =
        kvp_block_prefix(r->cache, call->tier, call->block, r->array, call->count, &n);
    if (has_array(r, status, n))
        r->out->i32 = r->array;
    return status;
}

/* ----------------------------------------------------------------------------------- all calls */

static void give_statuses(run *r)
{
    if (r->batch.statuses != NULL)
        give_i32s(r, r->out->status, r->call->n_seqs);
}

#define ARGS_name       call->name, call->name_bytes
#define ARGS_prompt     &r->prompt
#define ARGS_values     call->tokens, call->n_tokens
#define ARGS_blocks     call->tokens, call->n_tokens
#define ARGS_batch      &r->batch
#define ARGS_tree_batch &r->batch, call->parents
#define ARGS_seqs       r->seqs, call->n_seqs
#define ARGS_commits    r->seqs, call->counts, call->n_seqs

#define HANDLE(type, value)                                                                        \
    , (kvp_##type)                                                                                 \
    {                                                                                              \
        r->handle                                                                                  \
    }
#define ARG(kind, value, field) , call->field
#define ARGS(kind, ...)         , ARGS_##kind
#define NEW(type, value)        , (kvp_##type *)(void *)&out->handle
#define OUT(kind, value, field) , &out->field
#define OUTS(kind, ...)
#define LOG_CALL(NAME, name, parameters, arguments, results)                                       \
    case KVP_CALL_##NAME:                                                                          \
        out->status = kvp_##name(r->cache arguments results);                                      \
        return 1;
#define LOG_CALL_BY_HAND(NAME, name, parameters, arguments, results) LOG_UNRECORDED(NAME, name)
#define LOG_UNRECORDED(NAME, name)                                                                 \
    case KVP_CALL_##NAME: out->status = run_##name(r); return 1;

/* Gives 0 when there is no such call. */
static int make_call(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    switch (call->op) {
#include "core/record/calls.def"
    default: return 0;
    }
}

kvp_status kvp_oplog_call_run(kvp_cache *cache, const kvp_call *call, kvp_outcome *out_outcome)
{
    if (cache == NULL || call == NULL || out_outcome == NULL)
        return KVP_E_ARG;
    run r;
    memset(&r, 0, sizeof r);
    r.cache = cache;
    r.call = call;
    r.out = out_outcome;
    kvp_config_init(&r.config);
    kvp_status status = kvp_cache_config_peek(cache, &r.config);
    if (status != KVP_OK)
        return status;
    clear(out_outcome);
    status = ready(&r);
    if (status != KVP_OK)
        return status;
    if (!make_call(&r))
        return KVP_E_ARG;
    if (r.has_no_room)
        return KVP_E_NO_MEMORY;
    out_outcome->handle = kvp_handle_flip(cache, out_outcome->handle);
    if (call->op == KVP_CALL_EXTEND_MANY || call->op == KVP_CALL_FILL_MANY)
        give_statuses(&r);
    return KVP_OK;
}
