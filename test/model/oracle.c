/* The oracle's frame: making it, running a call, namespaces, handles, failures.
 *
 * Every call goes the same way: it is looked at completely first, and refused without a trace, or
 * carried out by steps that cannot fail. The step from one to the other is oracle_begin_change.
 */
#include "oracle_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *oracle_allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);

    if (!memory) {
        fprintf(stderr, "kvp_model: no memory\n");
        exit(2);
    }
    return memory;
}

void *oracle_grow(void *items, uint32_t *capacity, uint64_t needed, size_t size)
{
    uint64_t wanted = *capacity ? *capacity : 8;

    if (needed <= *capacity)
        return items;
    while (wanted < needed)
        wanted *= 2;
    items = realloc(items, (size_t)wanted * size);
    if (!items) {
        fprintf(stderr, "kvp_model: no memory\n");
        exit(2);
    }
    *capacity = (uint32_t)wanted;
    return items;
}

int32_t *oracle_out_i32(oracle *o, uint64_t n)
{
    o->i32 = oracle_grow(o->i32, &o->i32_capacity, n, sizeof *o->i32);
    return o->i32;
}

static void create_blocks(oracle *o)
{
    uint32_t sizes[ORACLE_TIERS] = {o->config.n_blocks, o->config.host_blocks};

    o->n_all_blocks = o->config.n_blocks + o->config.host_blocks;
    o->blocks = oracle_allocate(o->n_all_blocks, sizeof *o->blocks);
    o->block_count = oracle_allocate(o->n_all_blocks, sizeof *o->block_count);
    o->block_left = oracle_allocate(o->n_all_blocks, sizeof *o->block_left);
    o->parked = oracle_allocate(o->n_all_blocks, sizeof *o->parked);
    for (uint32_t b = 0; b < o->n_all_blocks; b++) {
        o->blocks[b].unit_node = oracle_allocate(o->block_units, sizeof(uint32_t));
        o->blocks[b].unit_kind = oracle_allocate(o->block_units, 1);
    }
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++) {
        oracle_pool *pool = &o->pools[tier];

        pool->n = sizes[tier];
        pool->first = tier == KVP_HOST ? (int32_t)o->config.n_blocks : 0;
        for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++)
            pool->queues[c].items = oracle_allocate(pool->n, sizeof(int32_t));
        for (uint32_t i = 1; i < pool->n; i++)
            oracle_queue_put(o, pool->first + (int32_t)i, true);
    }
}

static void create_seqs(oracle *o)
{
    uint32_t max = o->config.max_seqs;

    o->seqs = oracle_allocate(max, sizeof *o->seqs);
    o->free_places = oracle_allocate(max, sizeof *o->free_places);
    o->n_free_places = max;
    for (uint32_t i = 0; i < max; i++)
        o->free_places[i] = max - 1 - i;
}

oracle *oracle_create(const kvp_config *resolved)
{
    oracle *o = oracle_allocate(1, sizeof *o);
    uint64_t remembered = (uint64_t)resolved->max_events * resolved->unit_tokens;

    o->config = *resolved;
    o->uncached_tokens = oracle_allocate(resolved->n_uncached_tokens, sizeof *o->uncached_tokens);
    if (resolved->n_uncached_tokens)
        memcpy(o->uncached_tokens, resolved->uncached_tokens,
               resolved->n_uncached_tokens * sizeof *o->uncached_tokens);
    o->config.uncached_tokens = o->uncached_tokens;
    o->unit = resolved->unit_tokens;
    for (uint32_t k = 0; k < resolved->n_groups; k++)
        o->block_units = oracle_units(o, k) > o->block_units ? oracle_units(o, k) : o->block_units;
    o->watermark = (uint32_t)floor(resolved->watermark * (resolved->n_blocks - 1));
    o->node_limit = resolved->n_nodes;
    o->free_node = ORACLE_NONE;
    oracle_learned_create(o);
    create_blocks(o);
    create_seqs(o);
    oracle_states_create(o);
    o->namespaces = oracle_allocate(resolved->max_namespaces, sizeof *o->namespaces);
    o->copies = oracle_allocate(resolved->max_copies, sizeof *o->copies);
    o->loads = oracle_allocate(resolved->max_loads, sizeof *o->loads);
    o->history = oracle_allocate(resolved->max_events, sizeof *o->history);
    o->history_tokens = oracle_allocate(remembered, sizeof *o->history_tokens);
    return o;
}

void oracle_start(oracle *o, uint64_t start)
{
    o->load_number = o->plans = o->plans_done = o->step_number = o->effective = o->newest_event =
        o->stats.steps = start;
    for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++)
        for (uint32_t i = 1; i < o->pools[tier].n; i++)
            o->blocks[o->pools[tier].first + (int32_t)i].generation = start;
    for (uint32_t s = 1; s < o->config.state_slots; s++)
        o->slots[s].generation = start;
    for (uint32_t s = 1; s < o->config.host_state_slots; s++)
        o->host_slots[s].generation = start;
}

static void destroy_seq(oracle_seq *seq)
{
    for (uint32_t k = 0; k < KVP_GROUPS_MAX; k++)
        free(seq->rows[k]);
    free(seq->tree_tokens);
    free(seq->tree_parents);
    free(seq->chain);
    free(seq->tail);
    free(seq->tail_keys.items);
}

void oracle_destroy(oracle *o)
{
    if (!o)
        return;
    for (uint32_t i = 0; i < o->n_nodes; i++) {
        free(o->nodes[i].tokens);
        free(o->nodes[i].keys.items);
        for (uint32_t k = 0; k < ORACLE_TIERS * KVP_GROUPS_MAX; k++)
            free(o->nodes[i].at[k / ORACLE_TIERS][k % ORACLE_TIERS].duplicates);
    }
    for (uint32_t b = 0; b < o->n_all_blocks; b++) {
        free(o->blocks[b].unit_node);
        free(o->blocks[b].unit_kind);
    }
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++) {
        free(o->pools[KVP_DEVICE].queues[c].items);
        free(o->pools[KVP_HOST].queues[c].items);
        free(o->slot_queues[c].items);
    }
    for (uint32_t i = 0; i < o->config.max_seqs; i++)
        destroy_seq(&o->seqs[i]);
    free(o->uncached_tokens);
    free(o->slots);
    free(o->parked_slots);
    free(o->host_slots);
    free(o->host_slot_queue.items);
    free(o->nodes);
    free(o->blocks);
    free(o->block_count);
    free(o->block_left);
    free(o->namespaces);
    free(o->seqs);
    free(o->free_places);
    free(o->copies);
    free(o->commitments);
    free(o->parked);
    for (uint32_t i = 0; i < o->config.max_loads; i++)
        oracle_load_forget(&o->loads[i]);
    free(o->loads);
    free(o->cold);
    free(o->history);
    free(o->history_tokens);
    free(o->evicted);
    free(o->i32);
    free(o->i64);
    free(o->u64);
    free(o->wire);
    free(o->events);
    free(o->moves);
    free(o->prompt_nodes);
    plain_destroy(o->policy);
    free(o);
}

uint32_t oracle_find_seq(const oracle *o, uint64_t handle)
{
    for (uint32_t i = 0; i < o->config.max_seqs; i++)
        if (o->seqs[i].open && o->seqs[i].handle == handle)
            return i;
    return ORACLE_NONE;
}

uint32_t oracle_find_ns(const oracle *o, uint64_t handle)
{
    for (uint32_t i = 0; i < o->config.max_namespaces; i++)
        if (o->namespaces[i].open && o->namespaces[i].handle == handle)
            return i;
    return ORACLE_NONE;
}

/* The blocks that are in a queue: free ones and cached ones. */
uint32_t oracle_available(const oracle *o, uint32_t tier)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++)
        n += o->pools[tier].queues[c].n;
    return n;
}

uint32_t oracle_usable(const oracle *o, uint32_t tier)
{
    return o->pools[tier].n ? o->pools[tier].n - 1 : 0;
}

uint32_t oracle_tier(const oracle *o, int32_t block)
{
    return (uint32_t)block < o->config.n_blocks ? KVP_DEVICE : KVP_HOST;
}

int32_t oracle_id(const oracle *o, int32_t block)
{
    return block - o->pools[oracle_tier(o, block)].first;
}

bool oracle_overlapped(const oracle *o)
{
    return o->config.steps == KVP_STEPS_OVERLAPPED;
}

/* A changing call, or one sequence of a batch, fails: remember why. */
kvp_status oracle_fail_blocks(oracle *o, kvp_status status, uint32_t index, uint32_t tier,
                              uint64_t missing)
{
    memset(&o->shortage, 0, sizeof o->shortage);
    o->shortage.status = status;
    o->shortage.index = index;
    o->shortage.missing_blocks = missing;
    o->shortage.tier = tier;
    return status;
}

kvp_status oracle_fail(oracle *o, kvp_status status, uint32_t index, uint64_t missing)
{
    return oracle_fail_blocks(o, status, index, KVP_DEVICE, missing);
}

/* A changing call will succeed: the list of evicted blocks starts anew. */
void oracle_begin_change(oracle *o)
{
    o->n_evicted = 0;
}

/* ----------------------------------------------------------------------------------- namespaces */

static uint32_t find_name(const oracle *o, const uint8_t *name, uint32_t name_bytes)
{
    for (uint32_t i = 0; i < o->config.max_namespaces; i++) {
        const oracle_ns *ns = &o->namespaces[i];

        if (ns->open && ns->name_bytes == name_bytes &&
            (!name_bytes || memcmp(ns->name, name, name_bytes) == 0))
            return i;
    }
    return ORACLE_NONE;
}

/* Is a place free that a namespace of this name has left? */
static bool is_left(const oracle_ns *ns, const kvp_call *call)
{
    return ns->left && ns->name_bytes == call->name_bytes &&
           (!call->name_bytes || memcmp(ns->name, call->name, call->name_bytes) == 0);
}

static kvp_status ns_open(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t i;
    bool reopened;

    if (call->name_bytes > KVP_NAME_MAX_BYTES)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    i = find_name(o, call->name, call->name_bytes);
    if (i != ORACLE_NONE) {
        oracle_begin_change(o);
        o->namespaces[i].openers++;
        out->handle = o->namespaces[i].handle;
        return KVP_OK;
    }
    if (o->open_namespaces == o->config.max_namespaces || o->nodes_used >= o->node_limit)
        return oracle_fail(o, KVP_E_NO_NAMESPACES, 0, 0);
    oracle_begin_change(o);
    for (i = 0; o->namespaces[i].open; i++)
        ;
    reopened = is_left(&o->namespaces[i], call);
    memset(&o->namespaces[i], 0, sizeof o->namespaces[i]);
    o->namespaces[i].reopened = reopened;
    o->namespaces[i].open = true;
    o->namespaces[i].openers = 1;
    for (uint32_t pool = 0; pool <= KVP_STATE_SLOTS; pool++)
        o->namespaces[i].quotas[pool] = KVP_NO_QUOTA;
    o->namespaces[i].name_bytes = call->name_bytes;
    if (call->name_bytes)
        memcpy(o->namespaces[i].name, call->name, call->name_bytes);
    o->namespaces[i].root = oracle_root_make(o, call->name, call->name_bytes);
    o->open_namespaces++;
    o->new_place = i;
    return KVP_OK;
}

/* The namespace lets go of its root, which lives on while anything is below it. */
static void leave_root(oracle *o, oracle_ns *ns)
{
    o->nodes[ns->root].has_ns = false;
    o->told++;
    oracle_node_prune(o, ns->root);
}

/* No node for another root: what is below the old one is withdrawn, and who uses it is private. */
static void keep_root(oracle *o, uint32_t root)
{
    o->marks.kept_roots++;

    for (uint32_t i = 0; i < o->config.max_seqs; i++)
        o->seqs[i].flushed |= o->seqs[i].open && o->seqs[i].root == root;
    for (uint32_t i = 0; i < o->n_nodes; i++)
        o->nodes[i].is_private |= !o->nodes[i].is_root && o->nodes[i].root == root;
}

static void new_root(oracle *o, oracle_ns *ns)
{
    const oracle_node *root = &o->nodes[ns->root];

    if (root->children == 0 && root->users == 0)
        return;
    o->told++;
    if (o->nodes_used >= o->node_limit) {
        keep_root(o, ns->root);
        return;
    }
    leave_root(o, ns);
    ns->root = oracle_root_make(o, ns->name, ns->name_bytes);
}

static kvp_status ns_close_or_flush(oracle *o, const kvp_call *call)
{
    uint32_t i = oracle_find_ns(o, call->handle);
    oracle_ns *ns;

    if (i == ORACLE_NONE)
        return oracle_fail(o, KVP_E_HANDLE, 0, 0);
    oracle_begin_change(o);
    ns = &o->namespaces[i];
    if (call->op == KVP_CALL_NS_FLUSH) {
        ns->flushes++;
        new_root(o, ns);
    } else if (--ns->openers == 0) {
        leave_root(o, ns);
        ns->open = false;
        ns->left = true;
        o->open_namespaces--;
    }
    return KVP_OK;
}

static kvp_status reset(oracle *o)
{
    oracle_begin_change(o);
    oracle_reset(o);
    for (uint32_t i = 0; i < o->config.max_namespaces; i++)
        if (o->namespaces[i].open)
            new_root(o, &o->namespaces[i]);
    return KVP_OK;
}

/* ------------------------------------------------------------------------------------- dispatch */

static kvp_status check(const kvp_call *call)
{
    return call->position >= 1 && call->position <= 3 ? KVP_OK : KVP_E_ARG;
}

static kvp_status dispatch(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    switch (call->op) {
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_SWAP_IN: return oracle_swap(o, call, out);
    case KVP_CALL_CAN_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_IN: return oracle_can_swap(o, call, out);
    case KVP_CALL_STEP_BEGIN: return oracle_step_begin(o, call, out);
    case KVP_CALL_STEP_COMMIT: return oracle_step_commit(o, call);
    case KVP_CALL_STEP_DONE: return oracle_step_done(o, call, out);
    case KVP_CALL_STEP_FAILED: return oracle_step_failed(o, call, out);
    case KVP_CALL_NS_OPEN: return ns_open(o, call, out);
    case KVP_CALL_NS_CLOSE:
    case KVP_CALL_NS_FLUSH: return ns_close_or_flush(o, call);
    case KVP_CALL_NS_QUOTA:
    case KVP_CALL_NS_INFO: return oracle_quota_call(o, call, out);
    case KVP_CALL_MATCH: return oracle_match_call(o, call, out);
    case KVP_CALL_OPEN: return oracle_open(o, call, out);
    case KVP_CALL_EXTEND:
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_EXTEND_TREE: return oracle_extend(o, call, out);
    case KVP_CALL_ACCEPT: return oracle_accept(o, call, out);
    case KVP_CALL_WINDOW: return oracle_window(o, call, out);
    case KVP_CALL_FILL:
    case KVP_CALL_FILL_MANY: return oracle_fill(o, call, out);
    case KVP_CALL_COMMIT:
    case KVP_CALL_COMMIT_MANY: return oracle_commit(o, call, out);
    case KVP_CALL_INVALIDATE: return oracle_invalidate(o, call, out);
    case KVP_CALL_FORK: return oracle_fork(o, call, out);
    case KVP_CALL_TRUNCATE: return oracle_truncate(o, call, out);
    case KVP_CALL_CLOSE: return oracle_close(o, call, out);
    case KVP_CALL_RETAIN: return oracle_retain(o, call);
    case KVP_CALL_UNCACHE: return oracle_uncache(o, call);
    case KVP_CALL_PROMPT_END: return oracle_prompt_end(o, call);
    case KVP_CALL_CAN_OPEN: return oracle_can_open(o, call, out);
    case KVP_CALL_CAN_EXTEND: return oracle_can_extend(o, call, out);
    case KVP_CALL_PLAN_TAKE: return oracle_plan_take(o, call, out);
    case KVP_CALL_PLAN_DONE:
    case KVP_CALL_MIRROR:
    case KVP_CALL_BLOCKS_LEND:
    case KVP_CALL_BLOCKS_RETURN:
    case KVP_CALL_LOAD_BEGIN:
    case KVP_CALL_LOAD_DONE:
    case KVP_CALL_LOAD_CANCEL:
    case KVP_CALL_COLD_END:
    case KVP_CALL_BLOCK_ORIGIN:
    case KVP_CALL_BLOCK_PREFIX: return oracle_lend_call(o, call, out);
    case KVP_CALL_DROP: return oracle_drop(o, call, out);
    case KVP_CALL_RECLAIM: return oracle_reclaim(o, call, out);
    case KVP_CALL_CHECKPOINT: return oracle_checkpoint_call(o, call, out);
    case KVP_CALL_STATE_GET:
    case KVP_CALL_STATE_STATS: return oracle_state_read(o, call, out);
    case KVP_CALL_CHECK: return check(call);
    case KVP_CALL_RESET: return reset(o);
    case KVP_CALL_CONFIG: return KVP_OK;
    default: return oracle_read(o, call, out);
    }
}

void oracle_run(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    memset(out, 0, sizeof *out);
    o->call_number++;
    o->new_place = ORACLE_NONE;
    o->lied = false;
    o->to_come = 0;
    out->status = dispatch(o, call, out);
    if (o->stats.peak_held_blocks < o->pools[KVP_DEVICE].held)
        o->stats.peak_held_blocks = o->pools[KVP_DEVICE].held;
}

static void learn_version(oracle_seq *seq, const kvp_outcome *seen, kvp_outcome *foretold)
{
    uint64_t version = seen->u.seq.row_version, least = seq->version + seq->moves;
    bool fits = !seq->version_known || (seq->row_changed ? version > least : version == least);

    foretold->u.seq.row_version = fits ? version : least + seq->row_changed;
    seq->version_known = true;
    seq->version = version;
    seq->row_changed = false;
    seq->moves = 0;
}

/* "A wrong one between costs hits, never correctness": a match may fall short of the honest one. */
static void learn_lied(const oracle *o, const kvp_outcome *seen, kvp_outcome *foretold)
{
    const kvp_open_info *info = &seen->u.open;

    if (info->hit_tokens <= o->honest_units * o->unit && info->hit_tokens % o->unit == 0)
        foretold->u.open = *info;
}

void oracle_learn(oracle *o, const kvp_call *call, const kvp_outcome *seen, kvp_outcome *foretold)
{
    uint32_t i;

    if (seen->status != KVP_OK || foretold->status != KVP_OK)
        return;
    if (call->op == KVP_CALL_EVENTS_SNAPSHOT)
        oracle_learn_snapshot(o, call, seen, foretold);
    if (call->op == KVP_CALL_SEQ_INFO) {
        i = oracle_find_seq(o, call->handle);
        learn_version(&o->seqs[i], seen, foretold);
    }
    if (o->lied && call->op == KVP_CALL_MATCH)
        learn_lied(o, seen, foretold);
    if (o->new_place == ORACLE_NONE)
        return;
    /* A new handle is not zero, and not one that is in use; else it stays 0 here, and differs. */
    if (call->op == KVP_CALL_NS_OPEN) {
        if (oracle_find_ns(o, seen->handle) == ORACLE_NONE)
            o->namespaces[o->new_place].handle = foretold->handle = seen->handle;
    } else if (oracle_find_seq(o, seen->handle) == ORACLE_NONE) {
        o->seqs[o->new_place].handle = foretold->handle = seen->handle;
    }
    o->new_place = ORACLE_NONE;
}
