/* tile: up to 64 keys of an item, as addresses, masks and scales; and their rows as f32 where a
 * kernel cannot use them as they lie. */
#ifndef KVPI_TILE_H
#define KVPI_TILE_H

#include "attention/fast/kernels.h"
#include "attention/attention_plan.h"
#include "attention/rope.h"

/* Where the keys of a tile lie, for all heads. */
struct kvpi_places {
    uint32_t n_keys;
    uint32_t first; /* number of the first one, or its place in the list */
    int32_t block[KVPI_TILE];
    const unsigned char *k[KVPI_TILE]; /* of head 0; behind n_keys, up to a multiple of 16, one
                                            that can be read */
    const unsigned char *v[KVPI_TILE];
    uint32_t is_even;      /* rows of each 16 keys lie as far apart as tokens of a block */
    uint32_t is_one_block; /* all keys are of the same one */
    uint32_t has_masks;
};

/* Walks through the keys of an item. */
struct kvpi_walk {
    const kvp_layer *layer;
    const struct kvpi_keys *keys;
    const struct kvpi_reach *reaches; /* [n_queries] of the item; NULL: all see all */
    struct kvpi_reach all;            /* between what they lie */
    uint32_t n_queries;
    uint32_t first_query; /* of the sequence's */
    const uint32_t *list; /* [end] numbers of keys; NULL: all from next to end */
    uint32_t next;
    uint32_t end;
};

/* The next tile; 0 at the end. `masks` [n_queries] are right if has_masks says that some query does
 * not see all of it. Keys that no query sees are left out. */
int kvpi_walk_next(struct kvpi_walk *walk, struct kvpi_places *places, uint64_t *masks);

/* Turns of keys, where K is turned when it is read. Positions differ from key to key, but not from
 * head to head, and are made of a part that a tile has in common and a part below 64. */
struct kvpi_turns {
    const struct kvpi_rope *rope;
    double *low;  /* [64, pairs, 2] cos, sin of 0, 1, ..., 63 */
    double *high; /* [pairs, 2] of the tile's first position */
    float *turns; /* [64, pairs, 2] of its keys, stretched */
};

void kvpi_turns_begin(struct kvpi_turns *turns);
/* Keys at positions first, first + 1, ..., first + n - 1. */
void kvpi_turns_tile(struct kvpi_turns *turns, uint32_t first, uint32_t n);

/* Rows of one head as a kernel needs them: elements of `type`, padded with zeros. */
struct kvpi_staging {
    const struct kvpi_kernels *kernels;
    const kvp_layer *layer;
    uint32_t type;              /* that the kernel reads: KVP_F32 or the layer's */
    uint32_t size;              /* elements that are wanted of a row: D or Dv */
    size_t row_bytes;           /* of a staged row */
    unsigned char *memory;      /* [64, row_bytes] */
    const unsigned char **rows; /* [64] */
};

/* Copy or convert a part's rows; `turns` NULL: they are not turned. Gives rows and no scales if the
 * type changes. */
void kvpi_stage(const struct kvpi_staging *staging, const kvp_layer_part *part,
                const struct kvpi_places *places, const unsigned char *const *at, uint32_t head,
                const struct kvpi_turns *turns);

/* Scales of the keys' blocks; 0 where there are none. */
int kvpi_scales(const kvp_layer_part *part, const struct kvpi_places *places, uint32_t head,
                float *out);

#endif
