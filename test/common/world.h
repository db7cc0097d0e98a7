/* world: a cache to try things on, shorthand for what a test does with it, and a way to see all of
 * its state at once. For cmocka tests; a call that must succeed fails the test when it does not. */
#ifndef TEST_WORLD_H
#define TEST_WORLD_H

#include "mocka.h"

#include <kvpager/all.h>

/* Macros, so that a failure names the line of the test. */
#define assert_status(expected, call) assert_int_equal(call, expected)
#define assert_ok(call)               assert_int_equal(call, KVP_OK)

/* assert_row(&w, seq, 1, 2, 3): the row is [1 2 3]. An empty row: assert_no_row. */
#define assert_row(w, seq, ...)                                                                    \
    assert_row_is(w, seq, (const int32_t[]){__VA_ARGS__},                                          \
                  sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), __FILE__, __LINE__)
#define assert_no_row(w, seq) assert_row_is(w, seq, NULL, 0, __FILE__, __LINE__)

/* assert_queue(&w, 0, 3, 1): class 0's queue is block 3, then 1. */
#define assert_queue(w, class_, ...)                                                               \
    assert_queue_is(w, class_, (const int32_t[]){__VA_ARGS__},                                     \
                    sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), __FILE__, __LINE__)
#define assert_no_queue(w, class_) assert_queue_is(w, class_, NULL, 0, __FILE__, __LINE__)

/* The same of the host's blocks. */
#define assert_host_queue(w, class_, ...)                                                          \
    assert_host_queue_is(w, class_, (const int32_t[]){__VA_ARGS__},                                \
                         sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), __FILE__,       \
                         __LINE__)
#define assert_no_host_queue(w, class_) assert_host_queue_is(w, class_, NULL, 0, __FILE__, __LINE__)

/* assert_shortage(&w, KVP_E_NO_BLOCKS, 0, 2): status, index, missing blocks. */
#define assert_shortage(w, status_, index_, missing_)                                              \
    do {                                                                                           \
        const kvp_shortage shortage_ = shortage_of(w);                                             \
        assert_int_equal(shortage_.status, status_);                                               \
        assert_int_equal(shortage_.index, index_);                                                 \
        assert_int_equal(shortage_.missing_blocks, missing_);                                      \
    } while (0)

/* assert_unchanged(&w, call): the call leaves everything that can be observed as it was. */
#define assert_unchanged(w, call)                                                                  \
    do {                                                                                           \
        observed before_ = observe(w);                                                             \
        call;                                                                                      \
        assert_observed(w, &before_, __FILE__, __LINE__);                                          \
    } while (0)

typedef struct world {
    void *arena; /* the caller's, 64-byte aligned */
    size_t arena_bytes;
    kvp_cache *cache;
    kvp_ns ns; /* the namespace with the empty name */
} world;

/* S tokens in a block, U in a unit, `usable` blocks; everything else is the default, but small. */
kvp_config config_of(uint32_t S, uint32_t U, uint32_t usable);

world make_world(const kvp_config *config);
world small_world(uint32_t usable); /* S = U = 4 */
void end_world(world *w);           /* checks every invariant first */
#define scoped_world ENDED_BY(end_world) world

/* The tokens first, first + 1, ...: up to 4,096 of them. */
const int32_t *ints(int32_t first);
int fill_ints(void **state); /* for TEST_MAIN: before there are threads, or children */

/* A sink that drops all. */
int write_nothing(void *context, const void *bytes, size_t n_bytes);

kvp_prompt prompt_of(const int32_t *tokens, uint32_t n_tokens);

kvp_seq open_with(world *w, const kvp_prompt *prompt, kvp_open_info *out_info);
kvp_seq open_seq(world *w, const int32_t *tokens, uint32_t n_tokens, kvp_open_info *out_info);
kvp_seq open_done(world *w, const int32_t *tokens, uint32_t n_tokens); /* and commit all of it */
kvp_seq fork_seq(world *w, kvp_seq parent, uint32_t at);
kvp_released close_seq(world *w, kvp_seq seq);
void leave_cached(world *w, const int32_t *tokens, uint32_t n_tokens); /* open_done, close_seq */

kvp_open_info match(world *w, const int32_t *tokens, uint32_t n_tokens);
kvp_admission can_open(world *w, const kvp_prompt *prompt);
kvp_admission can_extend(world *w, const kvp_seq *seqs, const uint32_t *n_tokens, uint32_t n_seqs);
kvp_batch batch_of(const kvp_seq *seqs, const uint32_t *n_tokens, uint32_t n_seqs);

kvp_stats stats_of(const world *w);
kvp_seq_info info_of(const world *w, kvp_seq seq);
kvp_block_info block_of(const world *w, int32_t block); /* of the device */
kvp_block_info block_in(const world *w, uint32_t tier, int32_t block);
kvp_shortage shortage_of(const world *w);
int32_t row_entry(const world *w, kvp_seq seq, uint32_t idx);
uint32_t evicted_of(const world *w, const kvp_evicted **out_evicted);
uint32_t take_plan(world *w, kvp_copy *out_copies, uint32_t capacity);

void assert_row_is(const world *w, kvp_seq seq, const int32_t *expected, size_t n, const char *file,
                   int line);
void assert_queue_is(const world *w, uint32_t class_, const int32_t *expected, size_t n,
                     const char *file, int line);
void assert_host_queue_is(const world *w, uint32_t class_, const int32_t *expected, size_t n,
                          const char *file, int line);

/* got, [n_got], is expected, [n]. */
void assert_ints_are(const int32_t *got, size_t n_got, const int32_t *expected, size_t n,
                     const char *file, int line);

/* Everything that can be observed, now or by any calls to come, but for what is said to be kept up
 * by failing calls: the last shortage and the counter of refused calls. */
typedef struct observed {
    uint8_t *bytes;
    size_t n;
    size_t room;
} observed;

observed observe(const world *w);
void drop_observed(observed *o);
int same_observed(const observed *a, const observed *b);

/* Compare with `before`, and drop it. */
void assert_observed(const world *w, observed *before, const char *file, int line);

/* A fixed stream of numbers below `below`. */
uint32_t draw(uint64_t *state, uint32_t below);

#endif
