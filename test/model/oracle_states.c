/* Recurrent state: what states.h says of slots, checkpoints and the sequences that use them.
 *
 * A node's checkpoint is its spot in the group behind those of blocks; `block` there is a slot.
 * Slots have queues of their own. A sequence's state is whole as long as it is not `lost`: it is in
 * the slot that it reads.
 */
#include "oracle_parts.h"

#include <string.h>

bool oracle_has_states(const oracle *o)
{
    return o->config.state_slots > 0;
}

static oracle_spot *checkpoint_of(oracle *o, uint32_t node)
{
    return &o->nodes[node].at[o->config.n_groups][KVP_DEVICE];
}

uint32_t oracle_checkpoint(const oracle *o, uint32_t node)
{
    return oracle_has_states(o) ? (uint32_t)o->nodes[node].at[o->config.n_groups][KVP_DEVICE].block
                                : 0;
}

/* The same, if no copy brings its state still: then it can be hit. */
uint32_t oracle_checkpoint_there(const oracle *o, uint32_t node)
{
    uint32_t slot = oracle_checkpoint(o, node);

    return slot && o->slots[slot].filled_by ? 0 : slot;
}

/* ---------------------------------------------------------------------------------------- slots */

static oracle_queue *queue_of(oracle *o, uint32_t slot)
{
    const oracle_slot *s = &o->slots[slot];

    return &o->slot_queues[s->node == ORACLE_NONE ? 0 : s->retention];
}

static void queue_slot(oracle *o, uint32_t slot, bool at_tail)
{
    oracle_queue *queue = queue_of(o, slot);

    if (!at_tail)
        memmove(queue->items + 1, queue->items, queue->n * sizeof *queue->items);
    queue->items[at_tail ? queue->n : 0] = (int32_t)slot;
    queue->n++;
}

static void unqueue_slot(oracle *o, uint32_t slot)
{
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++) {
        oracle_queue *queue = &o->slot_queues[c];

        for (uint32_t i = 0; i < queue->n; i++) {
            if (queue->items[i] != (int32_t)slot)
                continue;
            queue->n--;
            memmove(queue->items + i, queue->items + i + 1, (queue->n - i) * sizeof *queue->items);
            return;
        }
    }
}

uint32_t oracle_free_slots(const oracle *o)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++)
        n += o->slot_queues[c].n;
    return n;
}

void oracle_states_reset(oracle *o, bool fresh)
{
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++)
        o->slot_queues[c].n = 0;
    for (uint32_t s = 1; s < o->config.state_slots; s++) {
        oracle_slot *slot = &o->slots[s];

        slot->generation += !fresh && (slot->refs || slot->node != ORACLE_NONE);
        slot->refs = slot->retention = 0;
        slot->parked_for = slot->filled_by = 0;
        slot->node = ORACLE_NONE;
        queue_slot(o, s, true);
    }
    o->n_parked_slots = 0;
    o->host_slot_queue.n = 0;
    o->slot_turn = 0;
    for (uint32_t s = 1; s < o->config.host_state_slots; s++) {
        o->host_slots[s].generation += !fresh && o->host_slots[s].refs;
        o->host_slots[s].refs = o->host_slots[s].retention = 0;
        o->host_slots[s].used_by = o->host_slots[s].filled_by = 0;
        o->host_slots[s].node = ORACLE_NONE;
        o->host_slot_queue.items[o->host_slot_queue.n++] = (int32_t)s;
    }
}

void oracle_states_create(oracle *o)
{
    o->slots = oracle_allocate(o->config.state_slots, sizeof *o->slots);
    o->parked_slots = oracle_allocate(o->config.state_slots, sizeof *o->parked_slots);
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++)
        o->slot_queues[c].items = oracle_allocate(o->config.state_slots, sizeof(int32_t));
    o->host_slots = oracle_allocate(o->config.host_state_slots, sizeof *o->host_slots);
    o->host_slot_queue.items = oracle_allocate(o->config.host_state_slots, sizeof(int32_t));
    oracle_states_reset(o, true);
}

/* The slot is no checkpoint any more. Where it is queued is the caller's matter. */
static void forget_checkpoint(oracle *o, uint32_t slot)
{
    uint32_t node = o->slots[slot].node;

    o->slots[slot].node = ORACLE_NONE;
    checkpoint_of(o, node)->block = 0;
    o->told++;
}

/* Has the node, or one after it, a checkpoint? */
static bool leads_to_state(const oracle *o, uint32_t node)
{
    bool leads = oracle_checkpoint(o, node) != 0;

    for (uint32_t i = o->nodes[node].first_child; i != ORACLE_NONE && !leads;
         i = o->nodes[i].sibling)
        leads = leads_to_state(o, i);
    return leads;
}

/* Could a unit of the block be reached on the way to a state? */
static bool is_needed(const oracle *o, int32_t block)
{
    const oracle_block *b = &o->blocks[block];

    for (uint32_t k = 0; k < o->block_units; k++)
        if (b->unit_kind[k] == UNIT_SEALED && leads_to_state(o, b->unit_node[k]))
            return true;
    return false;
}

/* Is the node the first of those whose KV the block has, as the one that they have attached? */
static bool is_first_unit(const oracle *o, uint32_t node, int32_t block)
{
    const oracle_block *b = &o->blocks[block];
    uint32_t k = 0;

    while (b->unit_kind[k] != UNIT_SEALED)
        k++;
    return b->unit_node[k] == node;
}

/* Of the cached blocks of its class, this one is the next but `n`. */
void oracle_move_ahead(oracle *o, int32_t block, uint32_t n)
{
    oracle_queue *queue = &o->pools[oracle_tier(o, block)].queues[o->blocks[block].retention];
    uint32_t at = 0;

    oracle_queue_remove(o, block);
    while (at < queue->n && !oracle_block_sealed(o, queue->items[at]))
        at++;
    at += n;
    memmove(queue->items + at + 1, queue->items + at, (queue->n - at) * sizeof *queue->items);
    queue->items[at] = block;
    queue->n++;
}

/* A checkpoint went alone: what it alone made reachable goes next. */
static void expose(oracle *o, uint32_t node)
{
    uint32_t n[KVP_RETENTION_CLASSES] = {0};

    for (; !o->nodes[node].is_root && !leads_to_state(o, node); node = o->nodes[node].parent) {
        for (uint32_t k = o->config.n_groups; k-- > 0;) {
            int32_t block = o->nodes[node].at[k][KVP_DEVICE].block;

            if (!block || o->blocks[block].refs || o->blocks[block].parked_for ||
                is_needed(o, block) || !is_first_unit(o, node, block))
                continue;
            oracle_move_ahead(o, block, n[o->blocks[block].retention]++);
            o->marks.state_exposes++;
        }
    }
}

/* A checkpoint that nobody holds is evicted: the list says so. */
static void tell_evicted(oracle *o, uint32_t slot)
{
    kvp_evicted *e;

    o->evicted =
        oracle_grow(o->evicted, &o->evicted_capacity, o->n_evicted + 1u, sizeof *o->evicted);
    e = &o->evicted[o->n_evicted++];
    memset(e, 0, sizeof *e);
    e->hash = o->nodes[o->slots[slot].node].hash;
    e->block = (int32_t)slot;
    e->group = (uint16_t)o->config.n_groups;
    o->slots[slot].generation++;
    o->state_stats.evicted++;
}

/* A copy into a slot is of no use any more. */
static void forget_copies(oracle *o, uint32_t tier, uint32_t slot)
{
    oracle_plan_forget(o, oracle_slot_number(o, tier, slot), &o->marks.state_copy_gone);
}

/* A checkpoint that nobody holds goes. Its slot is in no queue. */
void oracle_slot_clear(oracle *o, uint32_t slot)
{
    uint32_t node = o->slots[slot].node;

    unqueue_slot(o, slot);
    tell_evicted(o, slot);
    forget_copies(o, KVP_DEVICE, slot);
    forget_checkpoint(o, slot);
    expose(o, node);
    oracle_node_prune(o, node);
}

uint32_t oracle_slot_take(oracle *o, const oracle_seq *seq)
{
    uint32_t slot = (uint32_t)oracle_choose(o, KVP_STATE_SLOTS, seq->ns_handle);

    unqueue_slot(o, slot);
    if (o->slots[slot].node != ORACLE_NONE) {
        o->marks.state_evicts++;
        oracle_slot_clear(o, slot);
    }
    o->slots[slot].refs = 1;
    o->slots[slot].filled_by = 0;
    o->slots[slot].retention = seq->retention;
    o->slots[slot].ns_handle = seq->ns_handle;
    o->state_stats.taken++;
    return slot;
}

/* Not held by anybody, and waiting for no step: in a queue. */
bool oracle_slot_is_idle(const oracle *o, uint32_t slot)
{
    return !o->slots[slot].refs && !o->slots[slot].parked_for;
}

static void leave_parked(oracle *o, uint32_t at)
{
    o->slots[o->parked_slots[at]].parked_for = 0;
    o->n_parked_slots--;
    memmove(o->parked_slots + at, o->parked_slots + at + 1,
            (o->n_parked_slots - at) * sizeof *o->parked_slots);
}

void oracle_slot_hold(oracle *o, uint32_t slot)
{
    if (!slot || o->slots[slot].refs++)
        return;
    if (!o->slots[slot].parked_for) {
        unqueue_slot(o, slot);
        return;
    }
    o->marks.state_parked_hit++;
    for (uint32_t i = o->n_parked_slots; i-- > 0;)
        if (o->parked_slots[i] == slot)
            leave_parked(o, i);
}

/* Queue what was parked until this step. */
void oracle_unpark_slots(oracle *o, uint64_t step)
{
    for (uint32_t i = 0; i < o->n_parked_slots;) {
        uint32_t slot = o->parked_slots[i];

        if (o->slots[slot].parked_for != step) {
            i++;
            continue;
        }
        leave_parked(o, i);
        queue_slot(o, slot, o->slots[slot].node != ORACLE_NONE);
    }
}

void oracle_slot_release(oracle *o, uint32_t slot)
{
    bool is_checkpoint;

    if (!slot || --o->slots[slot].refs)
        return;
    is_checkpoint = o->slots[slot].node != ORACLE_NONE;
    o->slots[slot].generation += !is_checkpoint;
    if (o->n_steps) {
        o->slots[slot].parked_for = o->steps[o->n_steps - 1].number;
        o->parked_slots[o->n_parked_slots++] = slot;
        o->marks.state_parked++;
    } else {
        queue_slot(o, slot, is_checkpoint);
    }
    if (!is_checkpoint)
        forget_copies(o, KVP_DEVICE, slot);
}

/* Of the host: there, free slots are all that there is to take. The one freed last goes first. */
uint32_t oracle_host_slot_take(oracle *o, const oracle_seq *seq)
{
    oracle_queue *queue = &o->host_slot_queue;
    uint32_t slot = (uint32_t)queue->items[0];

    queue->n--;
    memmove(queue->items, queue->items + 1, queue->n * sizeof *queue->items);
    o->host_slots[slot].refs = 1;
    o->host_slots[slot].filled_by = 0;
    o->host_slots[slot].retention = seq->retention;
    o->host_slots[slot].ns_handle = seq->ns_handle;
    return slot;
}

static void release_host(oracle *o, uint32_t slot)
{
    oracle_queue *queue = &o->host_slot_queue;

    if (!slot || --o->host_slots[slot].refs)
        return;
    o->host_slots[slot].generation++;
    memmove(queue->items + 1, queue->items, queue->n * sizeof *queue->items);
    queue->items[0] = (int32_t)slot;
    queue->n++;
    forget_copies(o, KVP_HOST, slot);
}

/* Not for a sequence: for a load, which has taken it, and leaves it. */
uint32_t oracle_host_slot_take_for(oracle *o, uint32_t retention, uint64_t ns_handle)
{
    const oracle_seq owner = {.retention = retention, .ns_handle = ns_handle};

    return oracle_host_slot_take(o, &owner);
}

void oracle_host_slot_release(oracle *o, uint32_t slot)
{
    release_host(o, slot);
}

/* "The state is there": on the host, and needs a slot here. */
void oracle_state_loaded(oracle *o, uint32_t node, uint32_t host_slot, const oracle_load *load)
{
    const oracle_seq owner = {.retention = load->retention, .ns_handle = load->ns_handle};
    const uint64_t n_evicted = o->n_evicted;
    uint32_t slot = oracle_slot_take(o, &owner);

    o->marks.load_state_evicts += o->n_evicted > n_evicted;
    o->to_come++;
    oracle_plan_state(o, KVP_DEVICE, host_slot, slot);
    o->slots[slot].node = node;
    checkpoint_of(o, node)->block = (int32_t)slot;
    o->told++;
    oracle_slot_release(o, slot);
}

/* The sequence reads another slot from now on, which is held already. */
static void read_slot(oracle *o, oracle_seq *seq, uint32_t slot)
{
    if (seq->read_slot != seq->write_slot)
        oracle_slot_release(o, seq->read_slot);
    seq->read_slot = slot;
    seq->lost = false;
}

/* -------------------------------------------------------------------------------- open and grow */

/* The checkpoint after the first n tokens of a sequence, as far as its units are public. */
uint32_t oracle_state_kept(const oracle *o, const oracle_seq *seq, uint32_t n)
{
    return n && n % o->unit == 0 && n / o->unit <= oracle_public_units(o, seq)
               ? oracle_checkpoint_there(o, seq->chain[n / o->unit - 1])
               : 0;
}

/* Alone with a slot that is no checkpoint, a sequence can write it. */
static bool writes_over(const oracle *o, const oracle_seq *seq)
{
    return !oracle_overlapped(o) && seq->read_slot && o->slots[seq->read_slot].refs == 1 &&
           o->slots[seq->read_slot].node == ORACLE_NONE;
}

uint32_t oracle_slots_needed(const oracle *o, const oracle_seq *seq, uint64_t end)
{
    return oracle_has_states(o) && end > seq->computed && !seq->write_slot && !writes_over(o, seq);
}

void oracle_state_grow(oracle *o, oracle_seq *seq, uint64_t end)
{
    if (!oracle_has_states(o) || end <= seq->computed || seq->write_slot)
        return;
    o->marks.state_alone += writes_over(o, seq);
    seq->write_slot = writes_over(o, seq) ? seq->read_slot : oracle_slot_take(o, seq);
}

/* Slots that an open lacks. */
uint32_t oracle_slots_missing(const oracle *o, bool has_entries, uint32_t checkpoint)
{
    uint32_t need = has_entries, available = oracle_free_slots(o);

    need += checkpoint && oracle_slot_is_idle(o, checkpoint);
    return oracle_has_states(o) && need > available ? need - available : 0;
}

/* Leading units of a prompt that are known, and public in the prompt. */
static uint32_t known_units(oracle *o, const kvp_call *call, uint32_t root, uint32_t most)
{
    oracle_keys keys = {0};
    uint32_t parent = root, i;

    for (i = 0; i < most; i++) {
        oracle_unit_keys(o, call, i, &keys);
        parent = oracle_node_find(o, parent, call->tokens + (size_t)i * o->unit, &keys);
        if (parent == ORACLE_NONE)
            break;
        o->marks.load_state_awaits +=
            oracle_checkpoint(o, parent) && !oracle_checkpoint_there(o, parent);
    }
    oracle_keys_free(&keys);
    return i;
}

/* A new sequence; nothing has been taken for it. */
void oracle_state_open(oracle *o, oracle_seq *seq, const kvp_call *call, uint32_t hit_units,
                       uint32_t checkpoint)
{
    uint32_t n_public = 0, last = call->n_tokens ? (call->n_tokens - 1) / o->unit : 0, known;

    if (!oracle_has_states(o))
        return;
    while (o->config.prefix_cache && n_public < call->n_tokens / o->unit &&
           !oracle_is_uncached(o, call, n_public))
        n_public++;
    known = known_units(o, call, seq->root, n_public);
    last = oracle_lower(last, n_public);
    if (known > hit_units && known < last) {
        o->marks.chunk_branches++;
        seq->branch_end = known * o->unit;
    }
    if (last > hit_units)
        seq->prompt_end = last * o->unit;
    for (uint32_t i = o->n_copies - o->n_plan; checkpoint && i < o->n_copies; i++)
        o->marks.load_state_hit += o->copies[i].to == oracle_slot_number(o, KVP_DEVICE, checkpoint);
    oracle_slot_hold(o, checkpoint);
    seq->read_slot = checkpoint;
    o->state_stats.hits += checkpoint != 0;
}

/* Its tokens are known. A place at which the units before are not all kept is none. */
void oracle_state_opened(const oracle *o, oracle_seq *seq)
{
    const uint32_t kept = seq->n_chain * o->unit;

    if (!oracle_has_states(o) || seq->prompt_end <= kept)
        return;
    seq->prompt_end = kept > seq->computed ? kept : 0;
    if (seq->branch_end && seq->branch_end >= seq->prompt_end)
        seq->branch_end = 0;
}

/* ------------------------------------------------------------------------------ commit and back */

void oracle_state_commit(oracle *o, oracle_seq *seq)
{
    if (!oracle_has_states(o))
        return;
    o->marks.state_released += seq->read_slot && seq->read_slot != seq->write_slot;
    oracle_ring_commit(o, seq);
    if (!oracle_overlapped(o)) {
        read_slot(o, seq, seq->write_slot);
        return;
    }
    oracle_slot_release(o, seq->read_slot);
    seq->read_slot = oracle_ahead_take(seq);
}

/* Can the sequence go back to n tokens? */
bool oracle_state_lacks(const oracle *o, const oracle_seq *seq, uint32_t n)
{
    if (n > seq->computed && oracle_ahead_between(seq, n))
        return true;
    if (!oracle_has_states(o) || !n || !seq->computed || (n >= seq->computed && !seq->lost))
        return false;
    return !oracle_state_kept(o, seq, oracle_lower(n, seq->computed));
}

/* It goes back to n tokens; its counts are those of before. */
void oracle_state_cut(oracle *o, oracle_seq *seq, uint32_t n)
{
    uint32_t slot;

    while (seq->n_ahead && seq->ahead[seq->n_ahead - 1].n_tokens > n) {
        oracle_ahead_drop(o, seq);
        o->marks.state_ahead_cut += seq->n_ahead > 0;
    }
    oracle_ring_keep(o, seq, n);
    if (!oracle_has_states(o) || (n >= seq->computed && !seq->lost))
        return;
    slot = oracle_state_kept(o, seq, oracle_lower(n, seq->computed));
    o->marks.state_back += slot != 0;
    oracle_slot_hold(o, slot);
    read_slot(o, seq, slot);
}

/* On the host there are no checkpoints: the state is lost, unless none is needed. */
static void lose_on_host(oracle *o, oracle_seq *seq)
{
    release_host(o, seq->read_slot);
    seq->read_slot = 0;
    seq->lost = seq->computed > 0;
    o->marks.state_spoiled_out += seq->lost;
}

/* What steps leave behind is taken back; `before` tokens were computed that the state read is of
 * (ORACLE_NONE: it is of none), now it is what is left. */
void oracle_state_back(oracle *o, oracle_seq *seq, uint32_t before)
{
    uint32_t slot, write = seq->write_slot;

    if (!oracle_has_states(o))
        return;
    if (seq->tier == KVP_HOST) {
        lose_on_host(o, seq);
        return;
    }
    for (; seq->n_ahead; o->marks.state_ahead_back++)
        oracle_ahead_drop(o, seq);
    oracle_ring_drop(o, seq);
    seq->writable = seq->computed;
    if (!seq->lost && seq->read_slot != write && seq->computed == before) {
        o->marks.state_unharmed += seq->read_slot != 0;
        return;
    }
    slot = oracle_state_kept(o, seq, seq->computed);
    oracle_slot_hold(o, slot);
    read_slot(o, seq, slot);
    if (slot || !seq->computed)
        return;
    o->marks.state_lost++;
    oracle_slot_release(o, write);
    seq->write_slot = 0;
    seq->lost = true;
}

kvp_status oracle_state_fork_status(const oracle *o, const oracle_seq *parent, uint32_t at)
{
    if (!oracle_has_states(o) || !at || oracle_state_kept(o, parent, at))
        return KVP_OK;
    if (at < parent->computed || parent->lost)
        return KVP_E_DROPPED;
    /* A step may be writing what is read. */
    return parent->tokens > parent->computed && parent->read_slot == parent->write_slot
               ? KVP_E_STATE
               : KVP_OK;
}

void oracle_state_fork(oracle *o, oracle_seq *parent, oracle_seq *child, uint32_t at)
{
    uint32_t checkpoint = oracle_has_states(o) ? oracle_state_kept(o, parent, at) : 0;

    if (!oracle_has_states(o) || !at)
        return;
    child->read_slot = checkpoint ? checkpoint : parent->read_slot;
    oracle_slot_hold(o, child->read_slot);
    if (checkpoint)
        return;
    o->marks.state_shared++;
    if (parent->read_slot == parent->write_slot) {
        parent->write_slot = 0;
        parent->writable = parent->computed;
    }
}

/* Checkpoints of the node and all after it. */
static uint32_t count_checkpoints(const oracle *o, uint32_t node)
{
    uint32_t n = oracle_checkpoint(o, node) != 0;

    for (uint32_t i = o->nodes[node].first_child; i != ORACLE_NONE; i = o->nodes[i].sibling)
        n += count_checkpoints(o, i);
    return n;
}

/* Is it the last checkpoint of a path, or one with two others behind it that do not come after the
 * next one of the path? */
static bool is_renewed(oracle *o, uint32_t node, uint32_t next)
{
    bool branches;

    if (next == ORACLE_NONE)
        return true;
    branches = count_checkpoints(o, node) >= 3 + count_checkpoints(o, next);
    o->marks.state_renewed += branches;
    o->marks.state_passed += !branches;
    return branches;
}

/* The sequence leaves its tier: it has no slots there any more, and its checkpoints were used. */
void oracle_state_leave(oracle *o, oracle_seq *seq)
{
    if (seq->tier == KVP_HOST) {
        release_host(o, seq->read_slot);
    } else {
        if (seq->write_slot != seq->read_slot)
            oracle_slot_release(o, seq->write_slot);
        while (seq->n_ahead)
            oracle_ahead_drop(o, seq);
        oracle_ring_drop(o, seq);
        oracle_slot_release(o, seq->read_slot);
    }
    seq->read_slot = seq->write_slot = 0;
    for (uint32_t i = oracle_public_units(o, seq), next = ORACLE_NONE; i-- > 0;) {
        uint32_t node = seq->chain[i], slot = oracle_checkpoint(o, node);
        bool renews = slot && oracle_slot_is_idle(o, slot) && is_renewed(o, node, next);

        next = slot ? node : next;
        if (!renews)
            continue;
        unqueue_slot(o, slot);
        queue_slot(o, slot, true);
    }
}

void oracle_state_close(oracle *o, oracle_seq *seq)
{
    if (oracle_has_states(o))
        oracle_state_leave(o, seq);
}

/* -------------------------------------------------------------------------------- checkpoints */

/* A checkpoint that nobody holds is none any more. Where it waits for a step, it waits on. */
static void free_checkpoint(oracle *o, uint32_t slot)
{
    forget_copies(o, KVP_DEVICE, slot);
    if (o->slots[slot].parked_for) {
        o->marks.state_parked_gone++;
        forget_checkpoint(o, slot);
        return;
    }
    unqueue_slot(o, slot);
    forget_checkpoint(o, slot);
    queue_slot(o, slot, false);
}

/* Nobody finds the node any more. */
void oracle_state_withdraw(oracle *o, uint32_t node)
{
    uint32_t slot = oracle_checkpoint(o, node);

    if (!slot)
        return;
    if (o->slots[slot].refs) {
        forget_checkpoint(o, slot);
        return;
    }
    o->slots[slot].generation++;
    free_checkpoint(o, slot);
}

/* A block that is evicted takes the checkpoints with it that nobody holds, unless the other tier
 * has their units, or will have them. */
void oracle_state_follow(oracle *o, int32_t block, bool kept)
{
    const oracle_block *b = &o->blocks[block];

    for (uint32_t k = o->block_units; oracle_has_states(o) && k-- > 0;) {
        uint32_t node = b->unit_node[k], slot;

        if (b->unit_kind[k] != UNIT_SEALED || oracle_spot_of(o, node, block)->n_duplicates)
            continue;
        slot = oracle_checkpoint(o, node);
        if (!slot || o->slots[slot].refs)
            continue;
        if (o->nodes[node].at[b->group][!oracle_tier(o, block)].block) {
            o->marks.state_stays++;
            continue;
        }
        o->marks.state_on_its_way += kept;
        if (kept)
            continue;
        o->marks.state_follows++;
        tell_evicted(o, slot);
        free_checkpoint(o, slot);
    }
}

/* "The unit is not public or was flushed; others read the slot; no slot to go on with." */
static bool may_keep(const oracle *o, const oracle_seq *seq)
{
    uint32_t unit = seq->computed / o->unit - 1;

    return unit < oracle_public_units(o, seq) && o->nodes[seq->root].has_ns &&
           !oracle_checkpoint(o, seq->chain[unit]) && !o->slots[seq->read_slot].filled_by &&
           o->slots[seq->read_slot].refs == 1 &&
           (oracle_overlapped(o) || (seq->write_slot && seq->write_slot != seq->read_slot) ||
            oracle_free_slots(o));
}

static kvp_status checkpoint_status(const oracle *o, const oracle_seq *seq)
{
    if (!oracle_has_states(o) || seq->tier != KVP_DEVICE || !seq->computed ||
        seq->computed % o->unit || seq->computed / o->unit > seq->n_chain)
        return KVP_E_STATE;
    return seq->lost ? KVP_E_DROPPED : KVP_OK;
}

kvp_status oracle_checkpoint_call(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t place = oracle_find_seq(o, call->handle);
    kvp_status status = KVP_E_HANDLE;
    oracle_seq *seq = NULL;
    uint32_t node;

    if (place != ORACLE_NONE) {
        seq = &o->seqs[place];
        status = checkpoint_status(o, seq);
    }
    if (status != KVP_OK)
        return oracle_fail(o, status, 0, 0);
    oracle_begin_change(o);
    out->n = KVP_CHECKPOINT_THERE;
    if (oracle_state_kept(o, seq, seq->computed)) {
        o->marks.state_there++;
        return KVP_OK;
    }
    out->n = KVP_CHECKPOINT_SKIPPED;
    if (!may_keep(o, seq)) {
        o->marks.state_no_slot += !oracle_free_slots(o);
        o->marks.state_arriving += o->slots[seq->read_slot].filled_by > 0;
        o->marks.state_awaited += oracle_checkpoint(o, seq->chain[seq->computed / o->unit - 1]) > 0;
        o->state_stats.skipped++;
        return KVP_OK;
    }
    out->n = KVP_CHECKPOINT_MADE;
    node = seq->chain[seq->computed / o->unit - 1];
    if (!oracle_overlapped(o) && (!seq->write_slot || seq->write_slot == seq->read_slot))
        seq->write_slot = oracle_slot_take(o, seq);
    o->slots[seq->read_slot].node = node;
    checkpoint_of(o, node)->block = (int32_t)seq->read_slot;
    o->told++;
    o->state_stats.made++;
    return KVP_OK;
}

/* ---------------------------------------------------------------------------------------- reads */

static void stats(const oracle *o, kvp_state_stats *s)
{
    *s = o->state_stats;
    if (!oracle_has_states(o))
        return;
    s->usable_slots = o->config.state_slots - 1;
    for (uint32_t i = 1; i < o->config.state_slots; i++) {
        s->held_slots += o->slots[i].refs > 0;
        s->cached_slots += oracle_slot_is_idle(o, i) && o->slots[i].node != ORACLE_NONE;
    }
    s->parked_slots = o->n_parked_slots;
    s->free_slots = s->usable_slots - s->held_slots - s->cached_slots - s->parked_slots;
    s->host_usable_slots = o->config.host_state_slots ? o->config.host_state_slots - 1 : 0;
    s->host_free_slots = o->host_slot_queue.n;
    s->host_loading_slots = oracle_loading_slots(o);
    s->host_held_slots = s->host_usable_slots - s->host_free_slots - s->host_loading_slots;
}

kvp_status oracle_state_read(const oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t place = oracle_find_seq(o, call->handle);
    kvp_state_info *info = &out->u.state;
    const oracle_seq *seq;

    if (call->op == KVP_CALL_STATE_STATS) {
        stats(o, &out->u.state_stats);
        return KVP_OK;
    }
    if (place == ORACLE_NONE)
        return KVP_E_HANDLE;
    if (!oracle_has_states(o))
        return KVP_E_STATE;
    seq = &o->seqs[place];
    info->read_slot = seq->n_ahead ? seq->ahead[seq->n_ahead - 1].slot : seq->read_slot;
    info->write_slot = seq->write_slot;
    info->lost = seq->lost;
    info->branch_end = seq->branch_end;
    info->prompt_end = seq->prompt_end;
    info->ring_slots = oracle_ring_slots(seq);
    info->computed_slot = seq->read_slot;
    return KVP_OK;
}
