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

#endif
