/* tiers: shorthand for what moves between the device and the host, and for steps. See world.h. */
#ifndef TEST_TIERS_H
#define TEST_TIERS_H

#include <kvpager/events.h>
#include <kvpager/steps.h>
#include <kvpager/swap.h>

#include "world.h"

/* Copies as a plan has them: phase, source block, destination block, slots. */
#define ON_DEVICE(phase, src, dst, n)                                                              \
    {                                                                                              \
        phase, 0, KVP_DEVICE, KVP_DEVICE, src, dst, n                                              \
    }
#define TO_HOST(phase, src, dst, n)                                                                \
    {                                                                                              \
        phase, 0, KVP_DEVICE, KVP_HOST, src, dst, n                                                \
    }
#define TO_DEVICE(phase, src, dst, n)                                                              \
    {                                                                                              \
        phase, 0, KVP_HOST, KVP_DEVICE, src, dst, n                                                \
    }

/* assert_plan(&w, TO_HOST(0, 1, 1, 4), ...): takes the plan, which is exactly this, in order. */
#define assert_plan(w, ...)                                                                        \
    assert_plan_is(w, (const kvp_copy[]){__VA_ARGS__},                                             \
                   sizeof((const kvp_copy[]){__VA_ARGS__}) / sizeof(kvp_copy), __FILE__, __LINE__)
#define assert_no_plan(w) assert_plan_is(w, NULL, 0, __FILE__, __LINE__)

/* assert_step(&w, 3, TO_HOST(0, 1, 1, 4), ...): begins step 3 and gets exactly this as its plan. */
#define assert_step(w, number, ...)                                                                \
    assert_step_is(w, number, (const kvp_copy[]){__VA_ARGS__},                                     \
                   sizeof((const kvp_copy[]){__VA_ARGS__}) / sizeof(kvp_copy), __FILE__, __LINE__)
#define assert_empty_step(w, number) assert_step_is(w, number, NULL, 0, __FILE__, __LINE__)

/* assert_moved(swap_out(&w, seqs, 2), 3, 1, 4, 2): copied and found; freed and cached. */
#define assert_moved(swapped, copied, found, freed, cached)                                        \
    do {                                                                                           \
        const kvp_swapped swapped_ = swapped;                                                      \
        assert_int_equal(swapped_.copied_blocks, copied);                                          \
        assert_int_equal(swapped_.found_blocks, found);                                            \
        assert_int_equal(swapped_.released.freed_blocks, freed);                                   \
        assert_int_equal(swapped_.released.cached_blocks, cached);                                 \
    } while (0)

#define assert_admission(admission, verdict_, need_, available_, missing_)                         \
    do {                                                                                           \
        const kvp_admission admission_ = admission;                                                \
        assert_int_equal(admission_.verdict, verdict_);                                            \
        assert_int_equal(admission_.need_blocks, need_);                                           \
        assert_int_equal(admission_.available, available_);                                        \
        assert_int_equal(admission_.missing_blocks, missing_);                                     \
    } while (0)

/* As assert_shortage, and whose blocks are missing. */
#define assert_shortage_in(w, tier_, status_, index_, missing_)                                    \
    do {                                                                                           \
        assert_shortage(w, status_, index_, missing_);                                             \
        assert_int_equal(shortage_of(w).tier, tier_);                                              \
    } while (0)

/* As config_of and small_world, with a host tier of `host` usable blocks; 0: without one. */
kvp_config tiers_config(uint32_t S, uint32_t U, uint32_t usable, uint32_t host);
world tiers_world(uint32_t usable, uint32_t host); /* S = U = 4 */

/* The same with overlapped steps. */
kvp_config steps_config(uint32_t S, uint32_t U, uint32_t usable, uint32_t host);
world steps_world(uint32_t usable, uint32_t host);

kvp_swapped swap_out(world *w, const kvp_seq *seqs, uint32_t n_seqs);
kvp_swapped swap_in(world *w, const kvp_seq *seqs, uint32_t n_seqs, uint32_t reserve_tokens);
kvp_admission can_swap_out(world *w, const kvp_seq *seqs, uint32_t n_seqs);
kvp_admission can_swap_in(world *w, const kvp_seq *seqs, uint32_t n_seqs, uint32_t reserve_tokens);

kvp_block_info host_block(const world *w, int32_t block);
void drop_plan(world *w); /* take it, whatever it is */

/* Make every block of the device lose its content: none may be held, and groups divide their
 * number. What is kept on the host by that is kept. */
void wipe_device(world *w);

/* Open a sequence that takes all free blocks of the device and the first that is cached. */
kvp_seq evict_first(world *w);

uint64_t begin_step(world *w);               /* whatever its plan is */
uint64_t done_step(world *w, uint64_t step); /* done; gives the newest that took effect */
void pass_step(world *w);                    /* begin and done */
void commit_at(world *w, uint64_t step, kvp_seq seq, uint32_t n_tokens);

void assert_plan_is(world *w, const kvp_copy *expected, size_t n, const char *file, int line);
void assert_step_is(world *w, uint64_t number, const kvp_copy *expected, size_t n, const char *file,
                    int line);

#endif
