/* inflight: what steps that are out may still write. */
#ifndef KVPI_CACHE_INFLIGHT_H
#define KVPI_CACHE_INFLIGHT_H

#include "core/cache/state.h"

static inline uint64_t kvpi_steps_out(const struct kvp_cache *cache)
{
    return cache->steps.begun - cache->steps.effective;
}

/* One of the arrays of steps, u32 [max][max_seqs]: what it has of this step, by place. */
static inline uint32_t *kvpi_of_step(const struct kvp_cache *cache, size_t array_at, uint64_t step)
{
    uint32_t *array = kvpi_at(cache, array_at);
    return array + (size_t)(step % cache->steps.max) * cache->table.max_seqs;
}

/* May a step that is out still write into the block, for a sequence that has left it? */
static inline int kvpi_is_touched(const struct kvp_cache *cache, uint32_t block)
{
    return cache->pool.parking != 0 &&
           kvpi_pool_touched(&cache->pool)[block] > cache->steps.effective;
}

/* Will a copy that is out, or waits, bring content into the block? */
static inline int kvpi_is_arriving(const struct kvp_cache *cache, uint32_t block)
{
    return cache->config.steps == KVP_STEPS_OVERLAPPED &&
           kvpi_pool_arriving(&cache->pool)[block] > cache->steps.effective;
}

/* May a step that is out write slots of the sequence? Those that it was given and has not computed,
 * or that were cut off it. */
static inline int kvpi_may_be_written(const struct kvp_cache *cache, const struct kvpi_seq *seq)
{
    return cache->pool.parking != 0 &&
           (seq->writable > seq->computed || seq->cut_step > cache->steps.effective);
}

/* Is a step out that the tree was given to? */
static inline int kvpi_tree_in_flight(const struct kvp_cache *cache, const struct kvpi_seq *seq)
{
    return seq->n_tree > 0 && cache->config.steps == KVP_STEPS_OVERLAPPED &&
           seq->tree_step > cache->steps.effective;
}

#endif
