/* slots: shorthand for recurrent state. See world.h. */
#ifndef TEST_SLOTS_H
#define TEST_SLOTS_H

#include <kvpager/states.h>

#include "world.h"

/* assert_slots(&w, seq, 1, 2): the next step reads slot 1 and writes slot 2. */
#define assert_slots(w, seq, read_, write_)                                                        \
    do {                                                                                           \
        const kvp_state_info state_ = state_of(w, seq);                                            \
        assert_int_equal(state_.read_slot, read_);                                                 \
        assert_int_equal(state_.write_slot, write_);                                               \
    } while (0)

kvp_state_info state_of(const world *w, kvp_seq seq);
kvp_state_stats slots_of(const world *w);

/* KVP_CHECKPOINT_... */
uint32_t checkpoint(const world *w, kvp_seq seq);

/* For slots that know what they hold: a number that is chained over all tokens up to there. */
#define INITIAL_STATE 77u
uint64_t state_behind(uint64_t before, int32_t token);
uint64_t state_after(const int32_t *tokens, uint32_t n);

/* Tokens [from, from + n) of sequences that begin alike, mostly, for a while. */
void draw_alike(uint64_t *random, int32_t *tokens, uint32_t from, uint32_t n);

#endif
