/* oplog_run: makes the call that a kvp_call describes, and collects what it gives.
 *
 * Handles come in portable and go out portable; in between they are this cache's. Outputs go to the
 * outcome's storage. Its size is bounded by the configuration, not by the call: a log can ask for
 * any number of tokens, slots or events, but more than max_seq_tokens is refused by the cache
 * before it writes the first, and events are never more than there are, so the buffer needs no
 * place for them.
 */
#include <kvpager/oplog.h>

#include <stdlib.h>
#include <string.h>

/* What a call is made with. */
typedef struct oplog_run {
    kvp_cache *cache;
    const kvp_call *call;
    kvp_outcome *out;
    kvp_config config;
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

static uint32_t at_most(uint32_t n, uint32_t limit)
{
    return n < limit ? n : limit;
}

/* Everything but the storage begins anew. */
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

/* ------------------------------------------------------------------------------------ arguments */

static kvp_seq local_seq(const run *r, uint64_t bits)
{
    return (kvp_seq){kvp_handle_flip(r->cache, bits)};
}

static kvp_ns local_ns(const run *r)
{
    return (kvp_ns){kvp_handle_flip(r->cache, r->call->handle)};
}

static void portable(const run *r, uint64_t bits)
{
    if (r->out->status == KVP_OK)
        r->out->handle = kvp_handle_flip(r->cache, bits);
}

static kvp_prompt prompt_of_call(const kvp_call *call)
{
    kvp_prompt prompt;
    memset(&prompt, 0, sizeof prompt);
    prompt.struct_size = sizeof prompt;
    prompt.tokens = call->tokens;
    prompt.n_tokens = call->n_tokens;
    prompt.reserve_tokens = call->reserve_tokens;
    prompt.hashes = call->hashes;
    prompt.keys = call->keys;
    prompt.n_keys = call->n_keys;
    prompt.n_uncached = call->n_ranges;
    prompt.uncached = call->ranges;
    prompt.flags = call->flags;
    prompt.retention = call->retention;
    prompt.tag = call->tag;
    return prompt;
}

/* The calls that follow return KVP_OK when they were made. */

static kvp_status run_prompt(run *r)
{
    kvp_prompt prompt = prompt_of_call(r->call);
    kvp_outcome *out = r->out;
    kvp_seq seq = {0};
    if (prompt.hashes != NULL && r->call->n_hashes != prompt.n_tokens / r->config.unit_tokens)
        return KVP_E_ARG;
    if (r->call->op == KVP_CALL_MATCH) {
        out->status = kvp_match(r->cache, local_ns(r), &prompt, &out->u.open);
    } else if (r->call->op == KVP_CALL_CAN_OPEN) {
        out->status = kvp_can_open(r->cache, local_ns(r), &prompt, &out->u.admission);
    } else {
        out->status = kvp_seq_open(r->cache, local_ns(r), &prompt, &seq, &out->u.open);
        portable(r, seq.bits);
    }
    return KVP_OK;
}

/* Local handles at the start of the storage, with `more` bytes behind them; NULL: no memory. */
static kvp_seq *local_seqs(run *r, uint64_t more)
{
    const kvp_call *call = r->call;
    kvp_seq *seqs = storage(r->out, (uint64_t)call->n_seqs * sizeof *seqs + more);
    for (uint32_t i = 0; seqs != NULL && i < call->n_seqs; i++)
        seqs[i] = local_seq(r, call->handles[i]);
    return seqs;
}

static int counts_fit(const kvp_call *call)
{
    uint64_t sum = call->counts == NULL ? call->n_seqs : 0;
    for (uint32_t i = 0; call->counts != NULL && i < call->n_seqs; i++)
        sum += call->counts[i];
    return (call->tokens == NULL && call->parents == NULL) || sum == call->n_tokens;
}

static kvp_status run_batch(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    int each = (call->flags & KVP_BATCH_EACH) != 0;
    if (!counts_fit(call) || (call->handles == NULL && call->n_seqs > 0))
        return KVP_E_ARG;
    kvp_seq *seqs = local_seqs(r, (uint64_t)call->n_seqs * sizeof(kvp_status));
    if (seqs == NULL)
        return KVP_E_NO_MEMORY;
    kvp_status *statuses = (kvp_status *)(void *)(seqs + call->n_seqs);
    kvp_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.struct_size = sizeof batch;
    batch.n_seqs = call->n_seqs;
    batch.flags = call->flags;
    batch.seqs = seqs;
    batch.n_tokens = call->counts;
    batch.tokens = call->tokens;
    batch.reserve_tokens = call->reserve_tokens;
    batch.n_keys = call->n_keys;
    batch.keys = call->keys;
    batch.statuses = each ? statuses : NULL;
    if (call->op == KVP_CALL_EXTEND_MANY)
        out->status = kvp_seq_extend_many(r->cache, &batch);
    else if (call->op == KVP_CALL_FILL_MANY)
        out->status = kvp_seq_fill_many(r->cache, &batch);
    else if (call->op == KVP_CALL_EXTEND_TREE)
        out->status = kvp_seq_extend_tree(r->cache, &batch, call->parents);
    else
        out->status = kvp_can_extend(r->cache, &batch, &out->u.admission);
    if (each && out->status == KVP_OK && call->op != KVP_CALL_CAN_EXTEND) {
        out->n = call->n_seqs;
        out->i32 = (const int32_t *)(const void *)statuses;
    }
    return KVP_OK;
}

static kvp_status run_commits(run *r)
{
    const kvp_call *call = r->call;
    if (call->n_seqs > 0 && (call->handles == NULL || call->counts == NULL))
        return KVP_E_ARG;
    kvp_seq *seqs = local_seqs(r, 0);
    if (seqs == NULL)
        return KVP_E_NO_MEMORY;
    if (call->op == KVP_CALL_STEP_COMMIT)
        r->out->status = kvp_step_commit(r->cache, call->number, seqs, call->counts, call->n_seqs);
    else
        r->out->status = kvp_seq_commit_many(r->cache, seqs, call->counts, call->n_seqs);
    return KVP_OK;
}

static kvp_status run_swap(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    if (call->n_seqs > 0 && call->handles == NULL)
        return KVP_E_ARG;
    kvp_seq *seqs = local_seqs(r, 0);
    if (seqs == NULL)
        return KVP_E_NO_MEMORY;
    uint32_t n = call->n_seqs, reserve = call->reserve_tokens;
    if (call->op == KVP_CALL_SWAP_OUT)
        out->status = kvp_seq_swap_out(r->cache, seqs, n, &out->u.swapped);
    else if (call->op == KVP_CALL_SWAP_IN)
        out->status = kvp_seq_swap_in(r->cache, seqs, n, reserve, &out->u.swapped);
    else if (call->op == KVP_CALL_CAN_SWAP_OUT)
        out->status = kvp_can_swap_out(r->cache, seqs, n, &out->u.admission);
    else
        out->status = kvp_can_swap_in(r->cache, seqs, n, reserve, &out->u.admission);
    return KVP_OK;
}

/* Calls that report the sequences whose KV is wrong. */
static kvp_status run_report(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    uint32_t room = at_most(call->count, r->config.max_seqs);
    kvp_seq *seqs = storage(out, (uint64_t)room * sizeof *seqs);
    if (seqs == NULL)
        return KVP_E_NO_MEMORY;
    uint32_t n = 0;
    uint32_t *out_n = call->no_report != 0 ? NULL : &n;
    kvp_seq *out_seqs = call->count > 0 ? seqs : NULL;
    if (call->op == KVP_CALL_STEP_FAILED)
        out->status = kvp_step_failed(r->cache, call->number, out_seqs, call->count, out_n);
    else
        out->status = kvp_seq_invalidate(r->cache, local_seq(r, call->handle), call->position,
                                         out_seqs, call->count, out_n);
    if (call->no_report != 0 || (out->status != KVP_OK && out->status != KVP_E_TOO_SMALL))
        return KVP_OK;
    out->n = n;
    if (out->status != KVP_OK || call->count == 0)
        return KVP_OK;
    for (uint32_t i = 0; i < n; i++)
        seqs[i].bits = kvp_handle_flip(r->cache, seqs[i].bits);
    out->u64 = &seqs[0].bits; /* a kvp_seq is a uint64_t and nothing else */
    return KVP_OK;
}

static kvp_status run_fork(run *r)
{
    kvp_seq child = {0};
    r->out->status = kvp_seq_fork(r->cache, local_seq(r, r->call->handle), r->call->position,
                                  r->call->tag, &child);
    portable(r, child.bits);
    return KVP_OK;
}

static kvp_status run_ns_open(run *r)
{
    kvp_ns ns = {0};
    r->out->status = kvp_ns_open(r->cache, r->call->name, r->call->name_bytes, &ns);
    portable(r, ns.bits);
    return KVP_OK;
}

static kvp_status run_seq_info(run *r)
{
    kvp_seq_info *info = &r->out->u.seq;
    r->out->status = kvp_seq_info_get(r->cache, local_seq(r, r->call->handle), info);
    if (r->out->status == KVP_OK)
        info->ns.bits = kvp_handle_flip(r->cache, info->ns.bits);
    return KVP_OK;
}

/* Calls that give tokens: of a range, of a block of the row, of a block. */
static kvp_status run_tokens(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    uint32_t room = call->op == KVP_CALL_SEQ_TOKENS ? at_most(call->count, r->config.max_seq_tokens)
                                                    : r->config.block_tokens;
    int32_t *tokens = storage(out, (uint64_t)room * sizeof *tokens);
    if (tokens == NULL)
        return KVP_E_NO_MEMORY;
    uint32_t n = call->count;
    if (call->op == KVP_CALL_SEQ_TOKENS)
        out->status =
            kvp_seq_tokens(r->cache, local_seq(r, call->handle), call->position, n, tokens);
    else if (call->op == KVP_CALL_SEQ_BLOCK_TOKENS)
        out->status =
            kvp_seq_block_tokens(r->cache, local_seq(r, call->handle), call->position, tokens, &n);
    else
        out->status = kvp_block_tokens(r->cache, call->group, call->tier, call->block, tokens, &n);
    if (out->status == KVP_OK) {
        out->n = n;
        out->i32 = tokens;
    }
    return KVP_OK;
}

static kvp_status run_row(run *r)
{
    kvp_outcome *out = r->out;
    const int32_t *row = NULL;
    uint32_t n = 0;
    out->status = kvp_seq_row(r->cache, local_seq(r, r->call->handle), r->call->group, &row, &n);
    if (out->status != KVP_OK)
        return KVP_OK;
    int32_t *copy = storage(out, (uint64_t)n * sizeof *copy);
    if (copy == NULL)
        return KVP_E_NO_MEMORY;
    if (n > 0)
        memcpy(copy, row, n * sizeof *copy);
    out->n = n;
    out->i32 = copy;
    return KVP_OK;
}

static kvp_status run_slots(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    uint32_t room = at_most(call->count, r->config.max_seq_tokens);
    int64_t *slots = storage(out, (uint64_t)room * sizeof *slots);
    if (slots == NULL)
        return KVP_E_NO_MEMORY;
    out->status = kvp_seq_slots(r->cache, local_seq(r, call->handle), call->group, call->position,
                                call->count, slots);
    if (out->status == KVP_OK) {
        out->n = call->count;
        out->i64 = slots;
    }
    return KVP_OK;
}

static kvp_status run_plan(run *r)
{
    kvp_outcome *out = r->out;
    uint32_t room = at_most(r->call->count, r->config.max_copies);
    kvp_copy *copies = storage(out, (uint64_t)room * sizeof *copies);
    if (copies == NULL)
        return KVP_E_NO_MEMORY;
    uint32_t n = 0;
    uint64_t step = 0;
    if (r->call->op == KVP_CALL_STEP_BEGIN)
        out->status = kvp_step_begin(r->cache, copies, r->call->count, &n, &step);
    else
        out->status = kvp_plan_take(r->cache, copies, r->call->count, &n);
    if (out->status == KVP_OK || out->status == KVP_E_TOO_SMALL)
        out->n = n;
    if (out->status == KVP_OK && r->call->count > 0) {
        out->copies = copies;
        out->number = step;
    }
    return KVP_OK;
}

static kvp_status run_evicted(run *r)
{
    kvp_outcome *out = r->out;
    const kvp_evicted *evicted = NULL;
    uint32_t n = 0;
    out->status = kvp_cache_evicted(r->cache, &evicted, &n);
    if (out->status != KVP_OK)
        return KVP_OK;
    kvp_evicted *copy = storage(out, (uint64_t)n * sizeof *copy);
    if (copy == NULL)
        return KVP_E_NO_MEMORY;
    if (n > 0)
        memcpy(copy, evicted, n * sizeof *copy);
    out->n = n;
    out->evicted = copy;
    return KVP_OK;
}

/* How many events a call can give: those that are remembered; of a snapshot, every node in every
 * tier and group. */
static uint32_t event_room(const run *r)
{
    const uint32_t n_tiers = 2;
    if (r->call->op == KVP_CALL_EVENTS_READ)
        return at_most(r->call->count, r->config.max_events);
    uint64_t most = (uint64_t)n_tiers * r->config.n_groups * r->config.n_nodes;
    return most < r->call->count ? (uint32_t)most : r->call->count;
}

/* Only stored units have tokens: the cache leaves the places of other events as they were. */
static void clear_untold(const run *r, const kvp_event *events, int32_t *tokens, uint32_t n)
{
    size_t unit_tokens = r->config.unit_tokens;
    for (size_t i = 0; i < n; i++)
        if (events[i].n_tokens == 0)
            memset(tokens + i * unit_tokens, 0, unit_tokens * sizeof *tokens);
}

static kvp_status run_events(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    uint64_t room = event_room(r);
    uint64_t token_bytes = call->with_tokens != 0 ? r->config.unit_tokens * sizeof(int32_t) : 0;
    kvp_event *events = storage(out, room * (sizeof *events + token_bytes));
    if (events == NULL)
        return KVP_E_NO_MEMORY;
    int32_t *tokens = call->with_tokens != 0 ? (int32_t *)(void *)(events + room) : NULL;
    uint32_t n = 0;
    if (call->op == KVP_CALL_EVENTS_READ)
        out->status = kvp_events_read(r->cache, call->number, events, call->count, tokens, &n);
    else
        out->status = kvp_events_snapshot(r->cache, events, call->count, tokens, &n, &out->number);
    if (out->status == KVP_OK || out->status == KVP_E_TOO_SMALL)
        out->n = n;
    if (out->status != KVP_OK || call->count == 0)
        return KVP_OK;
    out->events = events;
    if (tokens != NULL)
        clear_untold(r, events, tokens, n);
    out->i32 = tokens;
    return KVP_OK;
}

static kvp_status run_window(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    kvp_seq seq = local_seq(r, call->handle);
    if (call->op == KVP_CALL_WINDOW)
        out->status = kvp_seq_window(r->cache, seq, call->group, call->window, &out->u.released);
    else
        out->status = kvp_seq_window_get(r->cache, seq, call->group, &out->u.window);
    return KVP_OK;
}

/* The moves of one group behind those of another, with nothing between them. */
static void gather_moves(kvp_slot_move *moves, size_t n_groups, size_t n_moves, size_t room)
{
    for (size_t group = 1; group < n_groups; group++)
        memmove(moves + group * n_moves, moves + group * room, n_moves * sizeof *moves);
}

/* Room for the moves is also their distance: what the call has beyond all that can be needed is
 * left out here, as the recorder does. */
static kvp_status run_accept(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    if (call->n_seqs > 0 && (call->handles == NULL || call->leaves == NULL))
        return KVP_E_ARG;
    uint64_t most = (uint64_t)at_most(call->n_seqs, r->config.max_seqs) * r->config.max_tree_tokens;
    uint32_t room = most < call->count ? (uint32_t)most : call->count;
    uint64_t seq_bytes = (uint64_t)call->n_seqs * sizeof(kvp_seq);
    uint64_t move_bytes = (uint64_t)room * sizeof(kvp_slot_move);
    if (move_bytes > (UINT64_MAX - seq_bytes) / r->config.n_groups)
        return KVP_E_NO_MEMORY;
    kvp_slot_move *moves = storage(out, move_bytes * r->config.n_groups + seq_bytes);
    if (moves == NULL)
        return KVP_E_NO_MEMORY;
    kvp_seq *seqs = (kvp_seq *)(void *)(moves + (size_t)room * r->config.n_groups);
    for (uint32_t i = 0; i < call->n_seqs; i++)
        seqs[i] = local_seq(r, call->handles[i]);
    kvp_accept accept;
    memset(&accept, 0, sizeof accept);
    accept.struct_size = sizeof accept;
    accept.n_seqs = call->n_seqs;
    accept.max_moves = room;
    accept.seqs = seqs;
    accept.leaves = call->leaves;
    accept.moves = room > 0 ? moves : NULL;
    out->status = kvp_seq_accept(r->cache, &accept);
    if (out->status == KVP_OK || out->status == KVP_E_TOO_SMALL)
        out->n = accept.n_moves;
    if (out->status == KVP_OK && call->count > 0) {
        gather_moves(moves, r->config.n_groups, out->n, room);
        out->moves = moves;
    }
    return KVP_OK;
}

static kvp_status run_tree(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    uint32_t room = at_most(call->count, r->config.max_tree_tokens);
    int32_t *tokens = storage(out, 2 * (uint64_t)room * sizeof *tokens);
    if (tokens == NULL)
        return KVP_E_NO_MEMORY;
    int32_t *parents = call->with_parents != 0 ? tokens + room : NULL;
    uint32_t n = 0;
    if (call->with_tokens == 0)
        tokens = NULL;
    out->status =
        kvp_seq_tree(r->cache, local_seq(r, call->handle), tokens, parents, call->count, &n);
    if (out->status == KVP_OK || out->status == KVP_E_TOO_SMALL)
        out->n = n;
    if (out->status == KVP_OK && call->count > 0) {
        out->i32 = tokens;
        out->parents = parents;
    }
    return KVP_OK;
}

/* Calls on blocks, given as tokens are. */
static kvp_status run_blocks(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    if (call->n_tokens > 0 && call->tokens == NULL)
        return KVP_E_ARG;
    if (call->op == KVP_CALL_BLOCKS_LEND) {
        out->status = kvp_blocks_lend(r->cache, call->tokens, call->n_tokens);
        return KVP_OK;
    }
    if (call->op == KVP_CALL_BLOCKS_RETURN) {
        out->status = kvp_blocks_return(r->cache, call->tokens, call->n_tokens);
        return KVP_OK;
    }
    int32_t *host = storage(out, (uint64_t)call->n_tokens * sizeof *host);
    if (host == NULL)
        return KVP_E_NO_MEMORY;
    out->status =
        kvp_mirror(r->cache, call->tokens, call->n_tokens, call->count, host, &out->u.mirrored);
    if (out->status == KVP_OK) {
        out->n = call->n_tokens;
        out->i32 = host;
    }
    return KVP_OK;
}

static kvp_status run_load(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    kvp_prompt prompt = prompt_of_call(call);
    if (prompt.hashes != NULL && call->n_hashes != prompt.n_tokens / r->config.unit_tokens)
        return KVP_E_ARG;
    /* Entries beyond the prompt are refused before any is written. */
    const uint32_t most = prompt.n_tokens / r->config.block_tokens;
    const int in_order = call->range.begin < call->range.end && call->range.end <= most;
    const uint32_t room = in_order ? call->range.end - call->range.begin : 1;
    int32_t *blocks = storage(out, (uint64_t)room * sizeof *blocks);
    if (blocks == NULL)
        return KVP_E_NO_MEMORY;
    kvp_load load;
    memset(&load, 0, sizeof load);
    load.struct_size = sizeof load;
    load.group = call->group;
    load.entries = call->range;
    load.spare_blocks = call->count;
    load.blocks = blocks;
    out->status = kvp_load_begin(r->cache, local_ns(r), &prompt, &load);
    if (out->status == KVP_OK) {
        out->u.load.number = load.number;
        out->u.load.after = load.after;
        out->u.load.n_blocks = load.n_blocks;
        out->u.load.n_found = load.n_found;
        out->u.load.n_elsewhere = load.n_elsewhere;
        out->n = room;
        out->i32 = blocks;
    }
    return KVP_OK;
}

static kvp_status run_load_done(run *r)
{
    const kvp_call *call = r->call;
    if (call->name == NULL)
        return KVP_E_ARG;
    r->out->status =
        kvp_load_done(r->cache, call->number, call->name, call->name_bytes, &r->out->u.loaded);
    return KVP_OK;
}

static kvp_status run_cold(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    /* Never more than there are blocks, whatever is asked for. */
    uint32_t most = call->tier == KVP_HOST ? r->config.host_blocks : r->config.n_blocks;
    uint32_t room = at_most(call->count, most);
    kvp_cold *cold = storage(out, (uint64_t)room * sizeof *cold);
    if (cold == NULL)
        return KVP_E_NO_MEMORY;
    kvp_cold_cursor *cursor = &out->u.cursor;
    cursor->block = call->block;
    cursor->generation = call->number;
    out->status = kvp_cold_end(r->cache, call->tier, cursor, cold, call->count, &out->n);
    if (out->status == KVP_OK && call->count > 0)
        out->cold = cold;
    return KVP_OK;
}

static kvp_status run_prefix(run *r)
{
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    uint32_t room = at_most(call->count, r->config.max_seq_tokens);
    int32_t *tokens = storage(out, (uint64_t)room * sizeof *tokens);
    if (tokens == NULL)
        return KVP_E_NO_MEMORY;
    uint32_t n = 0;
    out->status = kvp_block_prefix(r->cache, call->tier, call->block, tokens, call->count, &n);
    if (out->status == KVP_OK || out->status == KVP_E_TOO_SMALL)
        out->n = n;
    if (out->status == KVP_OK && call->count > 0)
        out->i32 = tokens;
    return KVP_OK;
}

static kvp_status run_origin(run *r)
{
    kvp_block_origin *origin = &r->out->u.origin;
    r->out->status = kvp_block_origin_get(r->cache, r->call->tier, r->call->block, origin);
    if (r->out->status == KVP_OK)
        origin->ns.bits = kvp_handle_flip(r->cache, origin->ns.bits);
    return KVP_OK;
}

/* Calls that give no array and no handle. */
static kvp_status run_plain(run *r)
{
    kvp_cache *cache = r->cache;
    const kvp_call *call = r->call;
    kvp_outcome *out = r->out;
    kvp_seq seq = local_seq(r, call->handle);
    kvp_config config;
    switch (call->op) {
    case KVP_CALL_NS_CLOSE: out->status = kvp_ns_close(cache, local_ns(r)); break;
    case KVP_CALL_NS_FLUSH: out->status = kvp_ns_flush(cache, local_ns(r)); break;
    case KVP_CALL_NS_QUOTA:
        out->status = kvp_ns_quota(cache, local_ns(r), call->tier, call->count);
        break;
    case KVP_CALL_NS_INFO: out->status = kvp_ns_info_get(cache, local_ns(r), &out->u.ns); break;
    case KVP_CALL_EXTEND:
        out->status =
            kvp_seq_extend(cache, seq, call->tokens, call->n_tokens, call->reserve_tokens);
        break;
    case KVP_CALL_FILL: out->status = kvp_seq_fill(cache, seq, call->tokens, call->n_tokens); break;
    case KVP_CALL_COMMIT: out->status = kvp_seq_commit(cache, seq, call->position); break;
    case KVP_CALL_TRUNCATE:
        out->status = kvp_seq_truncate(cache, seq, call->position, &out->u.released);
        break;
    case KVP_CALL_CLOSE: out->status = kvp_seq_close(cache, seq, &out->u.released); break;
    case KVP_CALL_RETAIN:
        out->status = kvp_seq_retain(cache, seq, call->range, call->retention);
        break;
    case KVP_CALL_UNCACHE: out->status = kvp_seq_uncache(cache, seq, call->range); break;
    case KVP_CALL_BLOCK_INFO:
        out->status =
            kvp_block_info_get(cache, call->group, call->tier, call->block, &out->u.block);
        break;
    case KVP_CALL_STEP_DONE: out->status = kvp_step_done(cache, call->number, &out->number); break;
    case KVP_CALL_PLAN_DONE: out->status = kvp_plan_done(cache, call->number); break;
    case KVP_CALL_LOAD_CANCEL: out->status = kvp_load_cancel(cache, call->number); break;
    case KVP_CALL_STATS: out->status = kvp_cache_stats(cache, &out->u.stats); break;
    case KVP_CALL_SHORTAGE: out->status = kvp_cache_shortage(cache, &out->u.shortage); break;
    case KVP_CALL_CHECK:
        out->status = kvp_check(cache, (int)(int32_t)call->position, &out->u.violation);
        break;
    case KVP_CALL_RESET: out->status = kvp_cache_reset(cache); break;
    case KVP_CALL_CONFIG:
        kvp_config_init(&config);
        out->status = kvp_cache_config(cache, &config);
        break;
    default: return KVP_E_ARG;
    }
    return KVP_OK;
}

kvp_status kvp_call_run(kvp_cache *cache, const kvp_call *call, kvp_outcome *out_outcome)
{
    if (cache == NULL || call == NULL || out_outcome == NULL)
        return KVP_E_ARG;
    run r = {cache, call, out_outcome, {0}};
    kvp_config_init(&r.config);
    kvp_status status = kvp_config_peek(cache, &r.config);
    if (status != KVP_OK)
        return status;
    clear(out_outcome);
    switch (call->op) {
    case KVP_CALL_MATCH:
    case KVP_CALL_OPEN:
    case KVP_CALL_CAN_OPEN: return run_prompt(&r);
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_FILL_MANY:
    case KVP_CALL_CAN_EXTEND:
    case KVP_CALL_EXTEND_TREE: return run_batch(&r);
    case KVP_CALL_WINDOW:
    case KVP_CALL_WINDOW_GET: return run_window(&r);
    case KVP_CALL_ACCEPT: return run_accept(&r);
    case KVP_CALL_TREE: return run_tree(&r);
    case KVP_CALL_COMMIT_MANY:
    case KVP_CALL_STEP_COMMIT: return run_commits(&r);
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_SWAP_IN:
    case KVP_CALL_CAN_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_IN: return run_swap(&r);
    case KVP_CALL_INVALIDATE:
    case KVP_CALL_STEP_FAILED: return run_report(&r);
    case KVP_CALL_MIRROR:
    case KVP_CALL_BLOCKS_LEND:
    case KVP_CALL_BLOCKS_RETURN: return run_blocks(&r);
    case KVP_CALL_LOAD_BEGIN: return run_load(&r);
    case KVP_CALL_LOAD_DONE: return run_load_done(&r);
    case KVP_CALL_COLD_END: return run_cold(&r);
    case KVP_CALL_BLOCK_PREFIX: return run_prefix(&r);
    case KVP_CALL_BLOCK_ORIGIN: return run_origin(&r);
    case KVP_CALL_FORK: return run_fork(&r);
    case KVP_CALL_NS_OPEN: return run_ns_open(&r);
    case KVP_CALL_SEQ_INFO: return run_seq_info(&r);
    case KVP_CALL_SEQ_TOKENS:
    case KVP_CALL_SEQ_BLOCK_TOKENS:
    case KVP_CALL_BLOCK_TOKENS: return run_tokens(&r);
    case KVP_CALL_ROW: return run_row(&r);
    case KVP_CALL_SLOTS: return run_slots(&r);
    case KVP_CALL_PLAN_TAKE:
    case KVP_CALL_STEP_BEGIN: return run_plan(&r);
    case KVP_CALL_EVICTED: return run_evicted(&r);
    case KVP_CALL_EVENTS_READ:
    case KVP_CALL_EVENTS_SNAPSHOT: return run_events(&r);
    default: return run_plain(&r);
    }
}
