/* states: slots of recurrent state, and the sequences that read and write them.
 *
 *   - Configured by kvp_config.state_slots. The state group is number n_groups: all layers of this
 *     kind share one slot, so there is one group at most.
 *   - Slots are the blocks of a pool of their own, cache->states.pool, the same pool.c. `content`
 *     is the one node whose checkpoint the slot is.
 *   - A node has one place more, KVPI_WHERE(device, n_groups): the slot of its checkpoint. It never
 *     has duplicates. A checkpoint keeps its node alive as a block does.
 *   - Sequences have a struct kvpi_state each, in an array beside the table:
 *
 *        read  K ----step----> write W        after a hit: K is a checkpoint, held
 *        commit: K released,   read = write = W
 *        read  W ----step----> write W        most steps
 *        checkpoint:           W is the node's, a slot F is taken
 *        read  W ----step----> write F
 *
 *   S1  The slot that a sequence writes has one reference, its, and no content.
 *   S2  A sequence reads a slot exactly if it has computed tokens, and its state is not lost.
 *   S3  While slots of tokens are writable, there is a slot of state to write. A sequence whose
 *       state is lost has neither. (So the fast path of extend, `exclusive`, needs to know nothing:
 *       it is 0 while there is no slot to write.)
 *   S4  A slot's content and the node's place name each other.
 *   S5  A node counts its checkpoint, and those below each child, of which at most two. Who asks
 *       wants to know whether there are none, one, or more; and so most counts stay when one comes
 *       or goes: the way up ends at the first node with two others below it. What an eviction
 *       walks, the call that made the checkpoint has walked before.
 *   S6  A sequence on the host reads a slot of the host, which is no checkpoint, and writes none.
 *
 * With overlapped steps no step writes the slot that it reads. A step that is out and will commit a
 * sequence has the slot that it leaves the state in (steps.ahead_at), until it takes effect:
 *
 *        read R   steps: 5 -> A, 6 -> B   write W      the next step reads B and writes W
 *        step 5 takes effect: R released, read = A
 *        step 6 fails: B released; the next step reads A again
 *
 *   S7  Slots of steps have one reference and no content. What their steps commit ascends, above
 *       the computed tokens.
 *   S8  Then S3 does not hold: a sequence without slot to write has `exclusive` 0, and is given one
 *       by the next extend.
 *
 * A ring is there from an extend with KVP_BATCH_RING until the tokens are committed or taken back.
 * The first n_ring tokens of the step have a slot each, the others share the slot to write:
 *
 *        tokens     c    c+1   c+2   c+3          c: computed (ring_at)
 *        slots    [ A     B     C ]   W           ring, write
 *
 *        commit c+2:   read = write = B;  A, C, W and the slot that was read are released
 *        truncate c+2: write = B, ring = [ A ];   C and W are released
 *
 *   S9  The slots of a ring are as the one to write (S1), and fewer than the tokens that are not
 *       computed. No step has a slot for a sequence with a ring: which of them it leaves the state
 *       in is known when the step has run.
 *
 * Slots that are released while steps are out are parked, as blocks are.
 *
 * A copy of the plan brings a state into a slot: of a sequence that is swapped in, or, loaded, of a
 * node. The pool's `arriving` has the number of its step until that is in effect. If it fails, the
 * sequences that hold the slot lose their state. So that no other sequence does:
 *
 *   S10 No checkpoint is made of such a slot, and one that is loaded is hit by no prompt (and so is
 *       held by no sequence) while its copy waits or is out.
 *
 * Refuses nothing: callers have counted before they take.
 */
#include "core/cache/states.h"

#include "core/cache/events.h"

/* Mixed into the digest of decisions: no block of a small pool has such an id. */
#define SLOT_DECISION      0x40000000u
#define HOST_SLOT_DECISION 0xC0000000u

static struct kvpi_pool *slots_of(kvp_cache *cache)
{
    return &cache->states.pool;
}

/* The node has a checkpoint, or none any more: 1 or -1 more below it and its ancestors. */
static void count_below(kvp_cache *cache, uint32_t node, uint32_t by)
{
    uint32_t told;
    do {
        uint32_t *below = kvpi_node_below(&cache->prefix, node);
        told = kvpi_below_told(*below);
        *below += by;
        told ^= kvpi_below_told(*below);
        node = kvpi_node(&cache->prefix, node)->parent;
        kvpi_count(&cache->states.walked, 1);
    } while (told != 0 && node != KVPI_NO_NODE);
}

/* The node has no checkpoint any more. The caller lets it die if nothing keeps it. */
static void detach(kvp_cache *cache, uint32_t node)
{
    const uint32_t where = kvpi_states_where(cache);
    kvpi_node_at(&cache->prefix, node, where)->block = 0;
    count_below(cache, node, UINT32_MAX);
    if (cache->events.capacity > 0) {
        kvpi_tell_removed(cache, where, node);
    }
}

/* Is the node the first one of its block's units that has the block attached? */
static int is_topmost(const kvp_cache *cache, uint32_t node, uint32_t where)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const uint32_t block = kvpi_node_at(prefix, node, where)->block;
    for (uint32_t n = kvpi_prefix_place(prefix, kvpi_node(prefix, node), KVPI_GROUP_OF(where));
         n > 0; n--) {
        node = kvpi_node(prefix, node)->parent;
        if (kvpi_node_at(prefix, node, where)->block == block) {
            return 0;
        }
    }
    return 1;
}

/* The node's checkpoint has gone alone: blocks that no other one reaches, and that no sequence
 * holds, go first in their queue, the last of the path before the ones that it needs. */
static void expose(kvp_cache *cache, uint32_t node)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    uint32_t after[KVP_RETENTION_CLASSES] = {0};
    const uint32_t root = kvpi_node(prefix, node)->root;
    for (; node != root && *kvpi_node_below(prefix, node) == 0;
         node = kvpi_node(prefix, node)->parent) {
        kvpi_count(&cache->states.walked, 1);
        for (uint32_t g = cache->config.n_groups; g > 0; g--) {
            const uint32_t where = KVPI_WHERE(KVP_DEVICE, g - 1);
            const uint32_t block = kvpi_node_at(prefix, node, where)->block;
            const struct kvpi_block *b = kvpi_block(&cache->pool, block);
            if (block != 0 && kvpi_block_is_cached(b) && is_topmost(cache, node, where)) {
                kvpi_pool_expose(&cache->pool, block, after[kvpi_block_class(b)]);
                after[kvpi_block_class(b)] = block;
            }
        }
    }
}

/* List a checkpoint that is evicted. */
static void tell_evicted(kvp_cache *cache, uint32_t slot)
{
    const uint32_t node = kvpi_block(slots_of(cache), slot)->content;
    *kvpi_next_evicted(cache) = (kvp_evicted){.hash = kvpi_node(&cache->prefix, node)->hash,
                                              .block = (int32_t)slot,
                                              .tier = KVP_DEVICE,
                                              .group = (uint16_t)cache->config.n_groups};
    kvpi_count(&cache->states.evicted, 1);
}

/* A cached checkpoint goes: its slot has no content. */
static void evict_checkpoint(kvp_cache *cache, uint32_t slot)
{
    struct kvpi_pool *pool = slots_of(cache);
    const uint32_t node = kvpi_block(pool, slot)->content;
    tell_evicted(cache, slot);
    kvpi_pool_set_content(pool, slot, KVPI_NO_NODE);
    kvpi_plan_drop(&cache->plan, KVPI_SLOTS, slot);
    detach(cache, node);
    expose(cache, node);
    kvpi_prefix_reap(&cache->prefix, node);
}

int kvpi_states_evict_coldest(kvp_cache *cache)
{
    struct kvpi_pool *pool = slots_of(cache);
    uint32_t turn;
    const uint32_t slot = pool->n_cached == 0 ? 0 : kvpi_pool_coldest(pool, &turn);
    if (slot == 0) {
        return 0;
    }
    evict_checkpoint(cache, slot);
    kvpi_pool_last(pool, slot, turn);
    kvpi_record_decision(&cache->recorder, (int32_t)(slot | SLOT_DECISION));
    return 1;
}

/* The slot has no content, and becomes the namespace's. */
static void take_for(struct kvpi_pool *pool, uint32_t slot, uint32_t retention, uint64_t ns)
{
    kvpi_pool_take(pool, slot, retention, 0);
    if (kvpi_pool_counts(pool)) {
        kvpi_quotas_own(&pool->quotas, slot, ns);
    }
}

uint32_t kvpi_states_take_for(kvp_cache *cache, uint32_t retention, uint64_t ns)
{
    struct kvpi_pool *pool = slots_of(cache);
    const uint32_t slot =
        kvpi_pool_is_watched(pool) ? kvpi_pool_choose(pool, ns) : kvpi_pool_victim(pool);
    if (kvpi_block(pool, slot)->content != KVPI_NO_NODE) {
        evict_checkpoint(cache, slot);
    }
    kvpi_record_decision(&cache->recorder, (int32_t)(slot | SLOT_DECISION));
    take_for(pool, slot, retention, ns);
    if (cache->config.steps == KVP_STEPS_OVERLAPPED) {
        kvpi_pool_arriving(pool)[slot] = 0;
    }
    kvpi_count(&cache->states.taken, 1);
    return slot;
}

uint32_t kvpi_states_take_host_for(kvp_cache *cache, uint32_t retention, uint64_t ns)
{
    struct kvpi_pool *pool = &cache->states.host;
    const uint32_t slot = kvpi_pool_victim(pool);
    kvpi_record_decision(&cache->recorder, (int32_t)(slot | HOST_SLOT_DECISION));
    take_for(pool, slot, retention, ns);
    return slot;
}

void kvpi_states_copy_to(kvp_cache *cache, uint32_t to, uint32_t src, uint32_t dst)
{
    const uint32_t from = to == KVP_DEVICE ? KVP_HOST : KVP_DEVICE;
    const int chained = to == KVP_DEVICE || kvpi_states_arrives(cache, src);
    kvpi_plan_add(&cache->plan, &(struct kvpi_copy){.src_tier = (uint8_t)(KVPI_SLOTS | from),
                                                    .dst_tier = (uint8_t)(KVPI_SLOTS | to),
                                                    .chained = (uint8_t)chained,
                                                    .group = cache->config.n_groups,
                                                    .src = src,
                                                    .dst = dst,
                                                    .n_tokens = 1});
    if (to == KVP_DEVICE && cache->config.steps == KVP_STEPS_OVERLAPPED) {
        kvpi_pool_arriving(slots_of(cache))[dst] = cache->steps.begun + 1;
    }
    if (cache->lending.max_loads > 0) { /* a load that takes the slot has to wait for the plan */
        kvpi_lent(cache, kvpi_lent_slot(cache, to == KVP_HOST ? dst : src))->used =
            kvpi_plans_taken(cache) + 1;
    }
    kvpi_count(&cache->counters.copies, 1);
}

void kvpi_states_release(kvp_cache *cache, uint32_t tier, uint32_t slot)
{
    struct kvpi_pool *pool = kvpi_states_pool(cache, tier);
    if (slot != 0 && kvpi_pool_release(pool, slot) == 0 &&
        kvpi_block(pool, slot)->content == KVPI_NO_NODE) {
        kvpi_plan_drop(&cache->plan, KVPI_SLOTS | tier, slot);
    }
}

static void release(kvp_cache *cache, uint32_t slot)
{
    kvpi_states_release(cache, KVP_DEVICE, slot);
}

/* Read another slot, which is held for it already; 0: none. */
static void read_other(kvp_cache *cache, struct kvpi_state *state, uint32_t slot)
{
    if (state->read != state->write) {
        release(cache, state->read);
    }
    state->read = slot;
    state->lost = 0;
}

/* Hold the checkpoint after n tokens, and read it. */
static void read_kept(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n)
{
    const uint32_t slot = kvpi_states_kept(cache, seq, n);
    if (slot != 0) {
        kvpi_pool_hold(slots_of(cache), slot);
    }
    read_other(cache, kvpi_states_of(cache, seq), slot);
}

uint32_t kvpi_states_kept(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n)
{
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    return n == 0 || n % U != 0 || n / U > seq->n_public
               ? 0
               : kvpi_checkpoint_there(cache, nodes[n / U - 1]);
}

/* May it write the slot that it reads? */
static int may_write_over(const kvp_cache *cache, const struct kvpi_state *state)
{
    const struct kvpi_block *slot = kvpi_block(&cache->states.pool, state->read);
    return state->read != 0 && cache->config.steps == KVP_STEPS_ORDERED &&
           kvpi_block_refs(slot) == 1 && slot->content == KVPI_NO_NODE;
}

uint32_t kvpi_states_need(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    const struct kvpi_state *state = kvpi_states_of(cache, seq);
    return state->write == 0 && !may_write_over(cache, state);
}

void kvpi_states_grow(kvp_cache *cache, const struct kvpi_seq *seq)
{
    struct kvpi_state *state = kvpi_states_of(cache, seq);
    if (state->write == 0) {
        state->write = may_write_over(cache, state) ? state->read : kvpi_states_take(cache, seq);
    }
}

void kvpi_states_open(kvp_cache *cache, struct kvpi_seq *seq, uint32_t checkpoint)
{
    seq->windowed |= KVPI_STATEFUL;
    *kvpi_states_of(cache, seq) = (struct kvpi_state){.read = checkpoint};
    if (checkpoint != 0) {
        kvpi_pool_hold(slots_of(cache), checkpoint);
        kvpi_count(&cache->states.hits, 1);
    }
}

/* --------------------------------------------------------------------------------------- rings */

/* Slots that a ring for all tokens but the last one has. */
static uint32_t whole(const struct kvpi_seq *seq, uint32_t n_tokens)
{
    return n_tokens > seq->computed ? n_tokens - seq->computed - 1 : 0;
}

uint32_t kvpi_states_ring_need(const kvp_cache *cache, const struct kvpi_seq *seq,
                               uint32_t n_tokens)
{
    const uint32_t there = kvpi_states_of(cache, seq)->n_ring;
    const uint32_t n = whole(seq, n_tokens);
    return n > there ? n - there : 0;
}

void kvpi_states_ring_grow(kvp_cache *cache, const struct kvpi_seq *seq)
{
    struct kvpi_state *state = kvpi_states_of(cache, seq);
    const uint32_t n = whole(seq, seq->tokens);
    state->ring_at = seq->computed;
    while (state->n_ring < n) {
        state->ring[state->n_ring++] = kvpi_states_take(cache, seq);
    }
}

/* The ring keeps its first n slots. */
static void release_from(kvp_cache *cache, struct kvpi_state *state, uint32_t n)
{
    for (uint32_t i = n; i < state->n_ring; i++) {
        release(cache, state->ring[i]);
    }
    state->n_ring = kvpi_min_u32(state->n_ring, n);
}

void kvpi_states_ring_cut(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n)
{
    struct kvpi_state *state = kvpi_states_of(cache, seq);
    if (n <= state->ring_at) {
        release_from(cache, state, 0);
        return;
    }
    const uint32_t last = n - state->ring_at - 1;
    if (last >= state->n_ring) {
        return;
    }
    const uint32_t slot = state->ring[last];
    release_from(cache, state, last + 1);
    state->n_ring = last;
    if (state->write != state->read) {
        release(cache, state->write);
    }
    state->write = slot;
}

void kvpi_states_ring_drop(kvp_cache *cache, const struct kvpi_seq *seq)
{
    release_from(cache, kvpi_states_of(cache, seq), 0);
}

/* ------------------------------------------------------------------------- steps that are out */

uint32_t kvpi_states_next(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    uint32_t slot = kvpi_states_of(cache, seq)->read;
    for (uint64_t step = cache->steps.effective + 1; step <= cache->steps.begun; step++) {
        const uint32_t ahead = *kvpi_ahead_of(cache, seq, step);
        slot = ahead != 0 ? ahead : slot;
    }
    return slot;
}

/* The tokens that will be computed when steps up to this one are done. */
static uint32_t end_after(const kvp_cache *cache, const struct kvpi_seq *seq, uint64_t step)
{
    uint32_t end = seq->computed;
    for (uint64_t s = cache->steps.effective + 1; s <= step; s++) {
        end = *kvpi_ahead_of(cache, seq, s) != 0 ? kvpi_ahead_end(cache, seq, s) : end;
    }
    return end;
}

kvp_status kvpi_states_check_ahead(const kvp_cache *cache, const struct kvpi_seq *seq,
                                   uint64_t step, uint32_t n)
{
    if (n <= end_after(cache, seq, step)) {
        return KVP_OK;
    }
    if (kvpi_states_of(cache, seq)->n_ring > 0) {
        return KVP_E_STATE;
    }
    for (uint64_t s = step + 1; s <= cache->steps.begun; s++) {
        if (*kvpi_ahead_of(cache, seq, s) != 0) {
            return KVP_E_STATE;
        }
    }
    return (*kvpi_ahead_of(cache, seq, step) | kvpi_states_of(cache, seq)->write) != 0
               ? KVP_OK
               : KVP_E_STATE;
}

/* Do steps leave a state after more than n tokens, and none after n? */
static int lies_between(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n)
{
    int passes = 0;
    for (uint64_t s = cache->steps.effective + 1; s <= cache->steps.begun; s++) {
        const uint32_t end = *kvpi_ahead_of(cache, seq, s) == 0 ? 0 : kvpi_ahead_end(cache, seq, s);
        if (end == n) {
            return 0;
        }
        passes |= end > n;
    }
    return passes;
}

kvp_status kvpi_states_check_commit(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n)
{
    const int is_ready = kvpi_states_of(cache, seq)->write != 0 &&
                         end_after(cache, seq, cache->steps.begun) == seq->computed;
    return n > seq->computed && !is_ready ? KVP_E_STATE : KVP_OK;
}

void kvpi_states_ahead(kvp_cache *cache, struct kvpi_seq *seq, uint64_t step, uint32_t n)
{
    struct kvpi_state *state = kvpi_states_of(cache, seq);
    uint32_t *ahead = kvpi_ahead_of(cache, seq, step);
    if (*ahead == 0 && n > end_after(cache, seq, step)) {
        *ahead = state->write;
        state->write = 0;
        seq->exclusive = 0;
    }
}

/* Steps from `step` on leave nothing after more than n tokens. */
static void cut_steps(kvp_cache *cache, const struct kvpi_seq *seq, uint64_t step, uint32_t n)
{
    for (uint64_t s = cache->steps.begun; s > cache->steps.effective && s >= step; s--) {
        uint32_t *ahead = kvpi_ahead_of(cache, seq, s);
        if (*ahead != 0 && (n == 0 || kvpi_ahead_end(cache, seq, s) > n)) {
            release(cache, *ahead);
            *ahead = 0;
        }
    }
}

void kvpi_states_drop_ahead(kvp_cache *cache, const struct kvpi_seq *seq, uint64_t step)
{
    cut_steps(cache, seq, step, 0);
}

/* The slot with the state after the computed tokens, which have just been raised: of the step that
 * takes effect, or else the one that is written. */
static uint32_t take_written(kvp_cache *cache, struct kvpi_seq *seq)
{
    struct kvpi_state *state = kvpi_states_of(cache, seq);
    uint32_t written = state->write;
    for (uint32_t i = 0; i < cache->steps.max; i++) { /* one of them is not out any more */
        uint32_t *ahead = kvpi_ahead_of(cache, seq, i);
        if (*ahead != 0 && kvpi_ahead_end(cache, seq, i) == seq->computed) {
            written = *ahead;
            *ahead = 0;
            return written;
        }
    }
    state->write = 0;
    seq->exclusive = 0;
    return written;
}

void kvpi_states_commit(kvp_cache *cache, struct kvpi_seq *seq)
{
    struct kvpi_state *state = kvpi_states_of(cache, seq);
    KVPI_ASSERT(!state->lost);
    kvpi_states_ring_cut(cache, seq, seq->computed);
    kvpi_states_ring_drop(cache, seq);
    if (cache->config.steps == KVP_STEPS_ORDERED) {
        read_other(cache, state, state->write);
    } else {
        release(cache, state->read);
        state->read = take_written(cache, seq);
    }
    KVPI_ASSERT(state->read != 0);
}

/* ------------------------------------------------------------------------- back, and to others */

int kvpi_states_lacks(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n)
{
    const int is_there = n >= seq->computed && !kvpi_states_of(cache, seq)->lost;
    if (n > seq->computed && lies_between(cache, seq, n)) {
        return 1;
    }
    n = kvpi_min_u32(n, seq->computed);
    return n > 0 && !is_there && kvpi_states_kept(cache, seq, n) == 0;
}

void kvpi_states_cut(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t n)
{
    cut_steps(cache, seq, 0, n);
    kvpi_states_ring_cut(cache, seq, n);
    if (n < seq->computed || kvpi_states_of(cache, seq)->lost) {
        read_kept(cache, seq, kvpi_min_u32(n, seq->computed));
    }
}

void kvpi_states_back(kvp_cache *cache, struct kvpi_seq *seq, int is_there)
{
    struct kvpi_state *state = kvpi_states_of(cache, seq);
    const int is_whole = is_there && !state->lost && state->read != state->write;
    kvpi_states_drop_ahead(cache, seq, 0);
    kvpi_states_ring_drop(cache, seq);
    kvpi_set32(&seq->writable, seq->computed);
    if (is_whole) {
        return;
    }
    if (seq->tier == KVP_HOST) { /* no checkpoints are there */
        kvpi_states_release(cache, KVP_HOST, state->read);
        state->read = 0;
        state->lost = seq->computed > 0;
        return;
    }
    if (seq->computed == 0 || kvpi_states_kept(cache, seq, seq->computed) != 0) {
        read_kept(cache, seq, seq->computed);
        return;
    }
    const uint32_t write = state->write;
    read_other(cache, state, 0);
    release(cache, write);
    state->write = 0;
    state->lost = 1;
}

kvp_status kvpi_states_check_fork(const kvp_cache *cache, const struct kvpi_seq *parent,
                                  uint32_t at)
{
    const struct kvpi_state *state = kvpi_states_of(cache, parent);
    if (at == 0 || kvpi_states_kept(cache, parent, at) != 0) {
        return KVP_OK;
    }
    if (at != parent->computed || state->lost) {
        return KVP_E_DROPPED;
    }
    const int is_written = state->read == state->write; /* by a step that is ordered, perhaps */
    return is_written && parent->tokens > parent->computed ? KVP_E_STATE : KVP_OK;
}

void kvpi_states_fork(kvp_cache *cache, struct kvpi_seq *parent, const struct kvpi_seq *child,
                      uint32_t at)
{
    struct kvpi_state *from = kvpi_states_of(cache, parent);
    struct kvpi_state *state = kvpi_states_of(cache, child);
    const uint32_t kept = kvpi_states_kept(cache, parent, at);
    *state = (struct kvpi_state){.read = kept != 0 ? kept : at == 0 ? 0 : from->read};
    if (state->read != 0) {
        kvpi_pool_hold(slots_of(cache), state->read);
    }
    if (state->read != 0 && state->read == from->write) {
        from->write = 0; /* shared now: never written again */
        kvpi_set32(&parent->writable, parent->computed);
    }
}

/* A sequence leaves: checkpoints of its path go to the tail of their queue. First the deepest, then
 * upwards each with two or more checkpoints below it that are not below the next one of the path:
 *
 *      A ------ B ------ C       renewed: C; A, because of D and E
 *       \ \      \              B keeps its place, as once the path has gone on beyond B nothing
 *        D E      F              reads it again; F may be as dead, the end of an answer, perhaps
 */
static void renew(kvp_cache *cache, const struct kvpi_seq *seq)
{
    struct kvpi_pool *pool = slots_of(cache);
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    const uint32_t parking = pool->parking;
    uint32_t beside = 0; /* checkpoints after this one, not after the next one; 3: or more */
    uint32_t told = 0;   /* of them, those below the next node of the path */
    int is_last = 1;
    pool->parking = 0; /* what is cached is not parked again: no step has it */
    for (uint32_t u = seq->n_public; u > 0 && pool->n_cached > 0; u--) {
        const uint32_t slot = kvpi_checkpoint_of(cache, nodes[u - 1]);
        const uint32_t here = *kvpi_node_below(&cache->prefix, nodes[u - 1]);
        beside = kvpi_min_u32(beside, 3) + here - told; /* with its own */
        told = kvpi_below_told(here);
        if (slot == 0) {
            continue;
        }
        if ((is_last || beside > 2) && kvpi_block_is_cached(kvpi_block(pool, slot))) {
            kvpi_pool_hold(pool, slot);
            (void)kvpi_pool_release(pool, slot);
        }
        beside = 0;
        is_last = 0;
    }
    pool->parking = parking;
}

void kvpi_states_leave(kvp_cache *cache, const struct kvpi_seq *seq)
{
    const struct kvpi_state *state = kvpi_states_of(cache, seq);
    if (state->read != state->write) {
        kvpi_states_release(cache, seq->tier, state->write);
    }
    kvpi_states_drop_ahead(cache, seq, 0);
    kvpi_states_ring_drop(cache, seq);
    kvpi_states_release(cache, seq->tier, state->read);
    renew(cache, seq);
}

void kvpi_states_close(kvp_cache *cache, const struct kvpi_seq *seq)
{
    kvpi_states_leave(cache, seq);
    *kvpi_states_of(cache, seq) = (struct kvpi_state){0};
}

/* -------------------------------------------------------------------------------- checkpoints */

/* Could the state be kept in the node? Others who read the slot without a checkpoint could go on
 * in it alone, later: they must not need another one for our sake. */
static int may_keep(kvp_cache *cache, const struct kvpi_seq *seq, const struct kvpi_state *state)
{
    const uint32_t u = seq->computed / cache->config.unit_tokens;
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    return u <= seq->n_public &&
           kvpi_prefix_is_live(&cache->prefix, kvpi_node(&cache->prefix, nodes[u - 1])) &&
           kvpi_checkpoint_of(cache, nodes[u - 1]) == 0 && /* or its state is not there yet */
           kvpi_pool_refs(slots_of(cache), state->read) == 1 &&
           !kvpi_states_arrives(cache, state->read) &&
           (cache->config.steps == KVP_STEPS_OVERLAPPED ||
            (state->write != 0 && state->write != state->read) ||
            kvpi_pool_available(slots_of(cache)) > 0);
}

void kvpi_states_attach(kvp_cache *cache, uint32_t node, uint32_t slot)
{
    const uint32_t where = kvpi_states_where(cache);
    kvpi_node_at(&cache->prefix, node, where)->block = slot;
    count_below(cache, node, 1);
    kvpi_pool_set_content(slots_of(cache), slot, node);
    if (cache->events.capacity > 0) {
        kvpi_tell_stored(cache, where, node);
    }
}

uint32_t kvpi_states_checkpoint(kvp_cache *cache, const struct kvpi_seq *seq)
{
    struct kvpi_state *state = kvpi_states_of(cache, seq);
    if (kvpi_states_kept(cache, seq, seq->computed) != 0) {
        return KVP_CHECKPOINT_THERE;
    }
    if (!may_keep(cache, seq, state)) {
        kvpi_count(&cache->states.skipped, 1);
        return KVP_CHECKPOINT_SKIPPED;
    }
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    const uint32_t node = nodes[seq->computed / cache->config.unit_tokens - 1];
    if (cache->config.steps == KVP_STEPS_ORDERED &&
        (state->write == 0 || state->write == state->read)) {
        state->write = kvpi_states_take(cache, seq);
    }
    kvpi_states_attach(cache, node, state->read);
    kvpi_count(&cache->states.made, 1);
    return KVP_CHECKPOINT_MADE;
}

void kvpi_states_withdraw(kvp_cache *cache, uint32_t node)
{
    struct kvpi_pool *pool = slots_of(cache);
    const uint32_t slot = kvpi_checkpoint_of(cache, node);
    if (slot == 0) {
        return;
    }
    if (kvpi_pool_refs(pool, slot) == 0) {
        kvpi_pool_uncache(pool, slot);
        kvpi_plan_drop(&cache->plan, KVPI_SLOTS, slot);
    } else {
        kvpi_pool_set_content(pool, slot, KVPI_NO_NODE);
    }
    detach(cache, node); /* lives: sequences have it */
}

void kvpi_states_miss(kvp_cache *cache, uint32_t slot, uint64_t step)
{
    uint64_t *arriving = &kvpi_pool_arriving(slots_of(cache))[slot];
    const uint32_t node = kvpi_block(slots_of(cache), slot)->content;
    if (*arriving != step) {
        return;
    }
    *arriving = 0;
    if (node != KVPI_NO_NODE) {
        kvpi_states_withdraw(cache, node);
        kvpi_prefix_reap(&cache->prefix, node);
    }
}

void kvpi_states_follow(kvp_cache *cache, uint32_t tier, uint32_t block, int kept)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    struct kvpi_pool *pool = slots_of(cache);
    const uint32_t where = kvpi_where(cache, tier, block);
    const uint32_t other = where ^ KVP_HOST; /* the same on the other tier */
    uint32_t node = kvpi_block(kvpi_tier_pool(cache, tier), block)->content;
    while (node != KVPI_NO_NODE && !kept) {
        const struct kvpi_node *n = kvpi_node(prefix, node);
        const struct kvpi_place *at = kvpi_node_at(prefix, node, where);
        const uint32_t slot = kvpi_checkpoint_of(cache, node);
        const uint32_t above =
            kvpi_prefix_place(prefix, n, KVPI_GROUP_OF(where)) == 0 ? KVPI_NO_NODE : n->parent;
        if (slot != 0 && at->block == block && at->dups == 0 &&
            kvpi_node_at(prefix, node, other)->block == 0 && kvpi_pool_refs(pool, slot) == 0) {
            tell_evicted(cache, slot);
            kvpi_pool_uncache(pool, slot);
            kvpi_plan_drop(&cache->plan, KVPI_SLOTS, slot);
            detach(cache, node); /* lives: the block is attached still */
        }
        node = above;
    }
}
