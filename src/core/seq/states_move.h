/* states_move: the states of sequences that change tiers, beside their blocks (calls/swap.c). */
#ifndef KVPI_SEQ_STATES_MOVE_H
#define KVPI_SEQ_STATES_MOVE_H

#include "core/cache/state.h"

/* The slots of one call. */
struct kvpi_states_move {
    uint32_t to; /* the tier */
    uint32_t n_new;
    uint32_t n_cached; /* checkpoints that are there, and leave their queue */
    uint32_t n_room;   /* slots that making room takes */
};

/* Mark and count the state of a sequence; then, when all were, what making room for it takes. */
void kvpi_states_count(kvp_cache *cache, const struct kvpi_seq *seq, struct kvpi_states_move *move);
void kvpi_states_count_room(kvp_cache *cache, const struct kvpi_seq *seq,
                            struct kvpi_states_move *move);

/* Slots that are missing there. */
uint64_t kvpi_states_missing(kvp_cache *cache, const struct kvpi_states_move *move);

/* Take the marks off a sequence's slots; those of its old one, too, with `all`. */
void kvpi_states_clear(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t to, int all);

/* Hold the checkpoint that was found for the sequence. Before anything is taken. */
void kvpi_states_hold_found(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t to);

/* Have the state copied that was not found. */
void kvpi_states_copy(kvp_cache *cache, const struct kvpi_seq *seq, uint32_t to);

/* Leave the old tier: the sequence reads its new slot, writes none. Before seq->tier changes. */
void kvpi_states_arrive(kvp_cache *cache, const struct kvpi_seq *seq);

#endif
