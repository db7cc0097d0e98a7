/* groups: shorthand for layer groups, windows and trees. See world.h and tiers.h. */
#ifndef TEST_GROUPS_H
#define TEST_GROUPS_H

#include <kvpager/trees.h>
#include <kvpager/windows.h>

#include "tiers.h"

/* assert_row_in(&w, 1, seq, 2, 0, 6): the row of group 1 is [2 0 6]. */
#define assert_row_in(w, group, seq, ...)                                                          \
    assert_row_in_is(w, group, seq, (const int32_t[]){__VA_ARGS__},                                \
                     sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), __FILE__, __LINE__)

/* assert_dropped(&w, 1, seq, 1, 3): in group 1, entries 1 and 2 are null, and no others. */
#define assert_dropped(w, group, seq, begin, end)                                                  \
    do {                                                                                           \
        const kvp_window_info window_ = window_of(w, group, seq);                                  \
        assert_int_equal(window_.dropped_begin, begin);                                            \
        assert_int_equal(window_.dropped_end, end);                                                \
    } while (0)

#define assert_released(released, freed, cached)                                                   \
    do {                                                                                           \
        const kvp_released released_ = released;                                                   \
        assert_int_equal(released_.freed_blocks, freed);                                           \
        assert_int_equal(released_.cached_blocks, cached);                                         \
    } while (0)

/* assert_tree(&w, seq, tokens, parents, 4) */
#define assert_tree(w, seq, tokens, parents, n)                                                    \
    assert_tree_is(w, seq, tokens, parents, n, __FILE__, __LINE__)

/* As config_of, with a window for each group. */
kvp_config groups_config(uint32_t S, uint32_t usable, const kvp_window *groups, uint32_t n_groups);
world window_world(uint32_t usable, uint32_t K, uint32_t R); /* S = U = 4, one group */

kvp_window_info window_of(const world *w, uint32_t group, kvp_seq seq);
const int32_t *row_of(const world *w, uint32_t group, kvp_seq seq); /* until the next change */

/* Give the sequence a window of its own. */
kvp_released set_window(world *w, uint32_t group, kvp_seq seq, uint32_t K, uint32_t R);

/* Does a window keep entry i with the next query at q, as windows.h has it? R = 0: all. */
int keeps(kvp_window window, uint32_t S, uint32_t i, uint32_t q);

/* Room for n more tokens, whose values are their positions; n times with a commit: decoding. */
void extend_seq(world *w, kvp_seq seq, uint32_t n);
void decode(world *w, kvp_seq seq, uint32_t n);

/* Let a held block be evicted before, or after, others: its retention class, of this block only. */
void retain_block(const world *w, int32_t block, uint32_t retention);

/* Open a sequence that takes n blocks (of the first group's entries; n is a multiple of the number
 * of groups), and close it: what it evicts is gone. */
void evict_blocks(world *w, uint32_t n);

/* One sequence's tree: nodes with their values and parents; room for them, or the status. */
kvp_status try_tree(world *w, kvp_seq seq, const int32_t *tokens, const int32_t *parents,
                    uint32_t n);
void add_tree(world *w, kvp_seq seq, const int32_t *tokens, const int32_t *parents, uint32_t n);

/* Accept one path; moves (of all groups, `capacity` each) may be NULL. Gives their number. */
kvp_status try_accept(world *w, kvp_seq seq, int32_t leaf, kvp_slot_move *moves, uint32_t capacity);
uint32_t accept_path(world *w, kvp_seq seq, int32_t leaf, kvp_slot_move *moves, uint32_t capacity);

void assert_row_in_is(const world *w, uint32_t group, kvp_seq seq, const int32_t *expected,
                      size_t n, const char *file, int line);
void assert_tree_is(const world *w, kvp_seq seq, const int32_t *tokens, const int32_t *parents,
                    uint32_t n, const char *file, int line);

#endif
