/* sched_memory: KV memory for tests of the scheduler, one number for each slot: a sum of all tokens
 * up to the one whose KV it would be. Plans are run on it, a step writes its slots and then reads
 * every slot that attention would, in every layer group; what is read must be the sequence's own. A
 * header, for it is the fuzz target's as well. Functions give 0 when something is wrong. */
#ifndef TEST_SCHED_MEMORY_H
#define TEST_SCHED_MEMORY_H

#include <kvpager/all.h>
#include <kvpager/sched.h>

#include <stdlib.h>
#include <string.h>

typedef struct sched_memory {
    uint32_t S; /* of the group with the largest blocks */
    uint32_t n_groups;
    kvp_group groups[KVP_GROUPS_MAX];
    uint32_t entry[KVP_GROUPS_MAX]; /* tokens of a slot, with compressed entries; else 1 */
    uint32_t n_blocks[2];           /* of each tier */
    uint64_t *slots[2];             /* [n_blocks][S] */
} sched_memory;

static inline int sched_memory_create(sched_memory *memory, const kvp_cache *cache)
{
    kvp_config config;
    if (kvp_cache_config_get(cache, &config) != KVP_OK)
        return 0;
    memory->n_groups = config.n_groups;
    memory->S = 0;
    for (uint32_t g = 0; g < config.n_groups; g++) {
        const uint32_t S = config.groups[g].block_tokens;
        memory->S = S > memory->S ? S : memory->S;
        memory->entry[g] = 1;
    }
    memcpy(memory->groups, config.groups, sizeof(memory->groups));
    memory->n_blocks[KVP_DEVICE] = config.n_blocks;
    memory->n_blocks[KVP_HOST] = config.host_blocks;
    for (int tier = 0; tier < 2; tier++) {
        memory->slots[tier] =
            calloc((size_t)memory->n_blocks[tier] * memory->S + 1, sizeof(uint64_t));
        if (memory->slots[tier] == NULL)
            return 0;
    }
    return 1;
}

static inline void sched_memory_destroy(sched_memory *memory)
{
    free(memory->slots[KVP_DEVICE]);
    free(memory->slots[KVP_HOST]);
}

static inline uint64_t *sched_memory_block(const sched_memory *memory, uint32_t tier, int32_t block)
{
    if (tier > KVP_HOST || block <= 0 || (uint32_t)block >= memory->n_blocks[tier])
        return NULL;
    return memory->slots[tier] + (size_t)block * memory->S;
}

/* Run a plan. The copies of a phase must not depend on each other: they run backwards. */
static inline int sched_memory_copy(const sched_memory *memory, const kvp_copy *copies, uint32_t n)
{
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        for (end = begin; end < n && copies[end].phase == copies[begin].phase; end++) {}
        for (uint32_t i = end; i-- > begin;) {
            if (copies[i].group == memory->n_groups)
                continue; /* a state: sched_states.h */
            const uint64_t *from =
                sched_memory_block(memory, copies[i].src_tier, copies[i].src_block);
            uint64_t *to = sched_memory_block(memory, copies[i].dst_tier, copies[i].dst_block);
            if (from == NULL || to == NULL ||
                copies[i].n_tokens > memory->groups[copies[i].group].block_tokens)
                return 0;
            memcpy(to, from, copies[i].n_tokens / memory->entry[copies[i].group] * sizeof(*to));
        }
    }
    return 1;
}

/* What copies that did not run have left behind. */
static inline int sched_memory_spoil(const sched_memory *memory, const kvp_copy *copies, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (copies[i].group == memory->n_groups)
            continue; /* a state: sched_states.h */
        uint64_t *to = sched_memory_block(memory, copies[i].dst_tier, copies[i].dst_block);
        if (to == NULL)
            return 0;
        memset(to, 0xee, memory->S * sizeof(*to));
    }
    return 1;
}

/* The samples that a step gives a token, in its order: their number, the most at most. */
typedef struct sched_sampled {
    kvp_request request;
    uint32_t sample;
} sched_sampled;

static inline uint32_t sched_sampled_of(const kvp_step *step, sched_sampled *out, uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *part = &step->seqs[i];
        for (uint32_t k = 0; k < part->n_sampled && n < most; k++)
            out[n++] = (sched_sampled){part->request, part->n_sampled > 1 ? k : part->sample};
    }
    return n;
}

static inline uint64_t sched_memory_sum(uint64_t sum, int32_t token)
{
    return (sum ^ (uint32_t)token) * UINT64_C(0x100000001b3) + 1;
}

/* Write the KV of tokens [begin, end) of a sequence whose tokens are `text`. */
static inline int sched_memory_write(const sched_memory *memory, const kvp_cache *cache,
                                     kvp_seq seq, const int32_t *text, kvp_range range)
{
    uint64_t sum = 14695981039346656037u;
    for (uint32_t at = 0; at < range.end; at++) {
        sum = sched_memory_sum(sum, text[at]);
        for (uint32_t g = 0; at >= range.begin && g < memory->n_groups; g++) {
            int64_t slot;
            if (kvp_seq_slots(cache, seq, g, at, 1, &slot) != KVP_OK)
                return 0;
            if (slot != KVP_NO_SLOT) {
                const uint32_t S = memory->groups[g].block_tokens;
                uint64_t *block = sched_memory_block(memory, KVP_DEVICE, (int32_t)(slot / S));
                if (block == NULL)
                    return 0;
                block[slot % S] = sum;
            }
        }
    }
    return 1;
}

/* Does the query at `query`, or a later one, see the key at `at`? */
static inline int sched_memory_sees(const kvp_group *window, uint32_t query, uint32_t at)
{
    if (window->sink_tokens == KVP_CHUNKED)
        return at / window->recent_tokens >= query / window->recent_tokens;
    return window->recent_tokens == 0 || at < window->sink_tokens ||
           (uint64_t)at + window->recent_tokens > query;
}

/* Read the KV that queries at [begin, end) see: is it theirs? */
static inline int sched_memory_read(const sched_memory *memory, const kvp_cache *cache, kvp_seq seq,
                                    const int32_t *text, kvp_range range)
{
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const int32_t *row;
        const uint32_t S = memory->groups[g].block_tokens;
        uint32_t n;
        uint64_t sum = 14695981039346656037u;
        if (kvp_seq_row(cache, seq, g, &row, &n) != KVP_OK || (uint64_t)n * S < range.end)
            return 0;
        for (uint32_t at = 0; at < range.end; at++) {
            const uint64_t *block = sched_memory_block(memory, KVP_DEVICE, row[at / S]);
            sum = sched_memory_sum(sum, text[at]);
            if (sched_memory_sees(&memory->groups[g], range.begin, at) &&
                (block == NULL || block[at % S] != sum))
                return 0;
        }
    }
    return 1;
}

#endif
