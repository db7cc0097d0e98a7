/* states_move: the states of sequences that change tiers.
 *
 * As blocks do (core/calls/swap.c), a slot carries its move while it is marked. It is held by the
 * sequences that read it, so it stands in no queue:
 *
 *   old slot, marked:  next   the slot it becomes: a checkpoint found there, or taken; 0: still to
 *                             be taken
 *                      prev   counting: sequences of the call that read it;
 *                             moving: 1 when it is copied, 0 when it was found
 *
 * Only the device has checkpoints: on the way out every state is copied.
 */
#include "core/seq/states_move.h"

#include "core/cache/states.h"

/* The slot that the sequence reads on its tier; NULL: none. */
static struct kvpi_block *old_slot(kvp_cache *cache, const struct kvpi_seq *seq)
{
    const uint32_t slot = kvpi_states_of(cache, seq)->read;
    return slot == 0 ? NULL : kvpi_block(kvpi_states_pool(cache, seq->tier), slot);
}

void kvpi_states_count(kvp_cache *cache, const struct kvpi_seq *seq, struct kvpi_states_move *move)
{
    struct kvpi_block *old = old_slot(cache, seq);
    if (old == NULL) {
        return;
    }
    if (!(old->refs & KVPI_REFS_MARKED)) {
        old->refs |= KVPI_REFS_MARKED;
        old->prev = 0;
        old->next = move->to == KVP_DEVICE ? kvpi_states_kept(cache, seq, seq->computed) : 0;
        move->n_new += old->next == 0;
        struct kvpi_block *there = kvpi_block(&cache->states.pool, old->next);
        if (old->next != 0 && !(there->refs & KVPI_REFS_MARKED)) {
            there->refs |= KVPI_REFS_MARKED;
            move->n_cached += kvpi_block_refs(there) == 0;
        }
    }
    old->prev++;
}

void kvpi_states_count_room(kvp_cache *cache, const struct kvpi_seq *seq,
                            struct kvpi_states_move *move)
{
    const struct kvpi_block *old = old_slot(cache, seq);
    const int overlapped = cache->config.steps == KVP_STEPS_OVERLAPPED;
    move->n_room += overlapped || old == NULL || old->next != 0 ||
                    old->prev > 1; /* else it writes what it reads */
}

uint64_t kvpi_states_missing(kvp_cache *cache, const struct kvpi_states_move *move)
{
    const uint64_t need = (uint64_t)move->n_new + move->n_cached + move->n_room;
    const uint64_t available = kvpi_pool_available(kvpi_states_pool(cache, move->to));
    return need > available ? need - available : 0;
}

void kvpi_states_clear(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t to, int all)
{
    struct kvpi_block *old = old_slot(cache, seq);
    if (old == NULL) {
        return;
    }
    if (old->next != 0) {
        kvpi_block(kvpi_states_pool(cache, to), old->next)->refs &= ~KVPI_REFS_MARKED;
    }
    old->prev = old->next == 0;
    old->refs &= all ? ~KVPI_REFS_MARKED : UINT32_MAX;
}

void kvpi_states_hold_found(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t to)
{
    const struct kvpi_block *old = old_slot(cache, seq);
    if (old != NULL && old->next != 0) {
        kvpi_pool_hold(kvpi_states_pool(cache, to), old->next);
    }
}

void kvpi_states_copy(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t to)
{
    struct kvpi_block *old = old_slot(cache, seq);
    if (old == NULL || old->prev == 0) {
        return;
    }
    if (old->next != 0) { /* copied already, for a sequence before this one */
        kvpi_pool_hold(kvpi_states_pool(cache, to), old->next);
        return;
    }
    old->next = to == KVP_DEVICE ? kvpi_states_take(cache, seq) : kvpi_states_take_host(cache, seq);
    kvpi_states_copy_to(cache, to, kvpi_states_of(cache, seq)->read, old->next);
    cache->plan.promised -= cache->plan.promised > 0;
}

void kvpi_states_arrive(kvp_cache *cache, const struct kvpi_seq *seq)
{
    struct kvpi_block *old = old_slot(cache, seq);
    struct kvpi_state *state = kvpi_states_of(cache, seq);
    const uint32_t there = old == NULL ? 0 : old->next;
    if (old != NULL) {
        old->refs &= ~KVPI_REFS_MARKED;
    }
    kvpi_states_leave(cache, seq);
    state->read = there;
    state->write = 0;
}
