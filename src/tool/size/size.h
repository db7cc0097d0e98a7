/* How much KV a model needs and how much of it fits: the arithmetic of `kvpager size`. */
#ifndef KVPI_SIZE_H
#define KVPI_SIZE_H

#include <stdint.h>

#include "tool/models/models.h"

/* Parts of b that hold a; 0 if b is 0. */
static inline uint64_t kvpi_size_ceil_div(uint64_t a, uint64_t b)
{
    return b == 0 ? 0 : a / b + (a % b != 0);
}

/* a x b, or UINT64_MAX. */
static inline uint64_t kvpi_size_times(uint64_t a, uint64_t b)
{
    return b > 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

static inline uint64_t kvpi_size_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

typedef struct kvpi_size_options {
    uint32_t tensor_parallel;
    uint64_t block_tokens;   /* S of the smallest blocks, a multiple of every entry's tokens */
    bool equal_blocks;       /* all layer groups have S; else each its own multiple of S */
    uint64_t context_tokens; /* of the sequence that is counted */
    uint64_t sink_tokens;    /* K: what layers with a window keep besides it */
    kvpi_dtype kv_dtype;
    kvpi_dtype state_dtype; /* of the matrices of recurrent states */
    uint64_t checkpoints;   /* that a sequence keeps, besides the state it goes on with */
    uint64_t state_slots;   /* in the memory; 0: as many as sequences that fill it need */
    kvpi_dtype weights_dtype;
    uint64_t memory_bytes; /* of one accelerator; 0: only the sizes are asked for */
    uint64_t utilization_milli;
    uint64_t overhead_bytes;
    uint64_t weights_bytes; /* of the whole model; 0: from its parameters */
} kvpi_size_options;

/* Layers that keep the same tokens: kinds with one window. All bytes are of one accelerator. */
typedef struct kvpi_size_group {
    uint32_t n_layers;      /* that keep heads or latent vectors */
    uint64_t window_tokens; /* 0: keeps all tokens */
    bool chunked;           /* attends in chunks of window_tokens */
    uint64_t layer_bytes;   /* of a token in one of them; 0: they differ */
    uint64_t token_bytes;   /* of a token in all of them; rounded up, with entries of many tokens */
    uint64_t span_tokens;   /* of the longest entry: a block has a multiple of them */
    uint64_t span_bytes;    /* of these tokens in all layers */
    /* Of the pool (size_pool.c). */
    uint32_t n_rows;          /* layer groups of the cache that these layers are */
    uint64_t block_tokens;    /* S of each */
    uint64_t block_bytes;     /* of S tokens in all layers */
    uint64_t sequence_blocks; /* most blocks that one sequence holds in each while it grows to the
                                 context */
    uint64_t sequence_bytes;  /* of these in all layers */
    uint64_t blocks;          /* that fit, when such sequences fill the memory */
} kvpi_size_group;

/* Layers of each of its layer groups; of the last one, at most. */
static inline uint64_t kvpi_size_row_layers(const kvpi_size_group *group)
{
    return kvpi_size_ceil_div(group->n_layers, group->n_rows);
}

typedef struct kvpi_size {
    kvpi_size_group groups[KVPI_MODELS_MAX_KINDS]; /* [n_groups], the one without a window first */
    uint32_t n_groups;
    uint64_t token_bytes;    /* sums over the groups */
    uint64_t sequence_bytes; /* in whole blocks without padding, with all slots of its states */
    uint64_t content_bytes;  /* of its tokens alone, and one state */
    uint64_t running_bytes;  /* what a running sequence has beside: inputs of entries to come */
    /* Of the cache: one pool of equal blocks, each of one layer group. */
    uint32_t n_rows;             /* layer groups, KVP_GROUPS_MAX at most */
    uint64_t pool_block_bytes;   /* of a block */
    uint64_t sequence_in_blocks; /* blocks of the pool that a sequence of the context holds */
    uint64_t held_bytes;         /* of these blocks, at most UINT64_MAX */
    uint64_t padding_bytes;      /* of held_bytes, what holds nothing */
    /* Of the recurrent states, which have a pool of their own; 0 for a model without. */
    uint64_t state_bytes;    /* of a slot */
    uint64_t sequence_slots; /* of a sequence: its state and the checkpoints */
    /* With memory only; of one accelerator. */
    uint64_t usable_bytes;
    uint64_t weights_bytes;
    uint64_t kv_bytes; /* what is left, for blocks and states */
    /* With memory, or from kvpi_size_fill. */
    uint64_t pool_blocks; /* of the cache; its null block comes on top */
    uint64_t state_slots; /* slot 0 comes on top */
    uint64_t tokens;      /* in the blocks of the first group */
    uint64_t sequences;   /* whole ones of context_tokens */
} kvpi_size;

/* Count the layers with a window that is kept. */
uint32_t kvpi_size_windowed(const kvpi_model *model);

/* Count.
 *
 * Takes:   options  tensor_parallel one that kvpi_models_divides; with memory, the model's weights
 *                   known or weights_bytes given
 * Gives:   out      always
 * Returns: 0; -1 when weights and overhead leave no room for a block of each group
 */
int kvpi_size_count(const kvpi_model *model, const kvpi_size_options *options, kvpi_size *out);

/* Share memory between blocks and states, and fill it (kvpi_size_fill).
 *
 * Takes:   size     counted with these options
 * Returns: 0; -1 when there is no room for the slots, or for a block of each group besides
 */
int kvpi_size_share(const kvpi_size_options *options, uint64_t kv_bytes, kvpi_size *size);

/* Say what a pool of so many blocks holds when sequences of the context fill it, one after the
 * other: pool_blocks, tokens, sequences, and the blocks of each group. With state_slots of the
 * options 0, state_slots is what those sequences need, also the one that fits in part.
 *
 * Takes:   size     counted with these options
 */
void kvpi_size_fill(const kvpi_size_options *options, uint64_t pool_blocks, kvpi_size *size);

/* size_pool.c: how layers become layer groups that share one pool. */

/* Cut the groups into layer groups of one pool of equal blocks: those with which a sequence of
 * 8,192 tokens has the fewest bytes in whole blocks; of equals those with the smallest S, then the
 * fewest. The context that is asked about does not matter: an engine cuts once.
 *
 * Takes:   size     its groups counted, state_bytes known
 * Gives:   size     what it has of the pool; sequence_bytes grows by the bytes of the blocks
 */
void kvpi_size_pool(const kvpi_size_options *options, kvpi_size *size);

/* Blocks that hold what n tokens computed at once see at most, in chunks: the chunk that the first
 * of them lies in, and all of them. */
uint64_t kvpi_size_chunk_blocks(uint64_t chunk_tokens, uint64_t n, uint64_t block_tokens);

#endif
