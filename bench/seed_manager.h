/* The yardstick: the block manager of nano-vllm, written down in C as one would.
 *
 * Same results as kvpager for the calls below (which tokens are cached), and the same costs as the
 * original where they come from the algorithm: taking a cached block back is a search through the
 * free queue, every sealed block copies its tokens into memory of its own, every sequence
 * allocates. As in newer versions a block that is reused leaves the hash map. Forks, which
 * nano-vllm does not have, are a copy of the table (not of the tokens) with a reference counted for
 * each block.
 *
 * Errors are asserts, as there. Ids are 0..n_blocks-1.
 */
#ifndef KVP_BENCH_SEED_MANAGER_H
#define KVP_BENCH_SEED_MANAGER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct seed_manager seed_manager;

typedef struct seed_sequence {
    int32_t *tokens; /* [n_tokens] */
    uint32_t n_tokens;
    uint32_t capacity_tokens;
    uint32_t n_cached_tokens;
    int32_t *block_table; /* [n_blocks] */
    uint32_t n_blocks;
    uint32_t capacity_blocks;
} seed_sequence;

/* order: the first free queue, [n_blocks] ids, head first; NULL: ascending. */
seed_manager *seed_manager_create(uint32_t n_blocks, uint32_t block_tokens, const int32_t *order);
void seed_manager_destroy(seed_manager *manager);
uint32_t seed_n_free(const seed_manager *manager);

seed_sequence *seed_sequence_create(const int32_t *tokens, uint32_t n_tokens);
void seed_sequence_append(seed_sequence *sequence, int32_t token);
void seed_sequence_destroy(seed_sequence *sequence);

bool seed_can_allocate(const seed_manager *manager, const seed_sequence *sequence);
void seed_allocate(seed_manager *manager, seed_sequence *sequence);
void seed_deallocate(seed_manager *manager, seed_sequence *sequence);
bool seed_can_append(const seed_manager *manager, const seed_sequence *sequence);
void seed_may_append(seed_manager *manager, seed_sequence *sequence);
seed_sequence *seed_fork(seed_manager *manager, const seed_sequence *parent);

#endif
