/* sched_states: recurrent state for tests of the scheduler. A slot holds one number, a sum of all
 * tokens up to a place. A pass reads the slot that kvp_meta_states names, which must hold the
 * sequence's own state, and writes the state after its tokens. Functions give 0 when something is
 * wrong, and 1 for a cache without such state. */
#ifndef TEST_SCHED_STATES_H
#define TEST_SCHED_STATES_H

#include "sched_memory.h"

#include <kvpager/states.h>

typedef struct sched_states {
    uint32_t n; /* 0: the cache has no such state */
    uint32_t n_groups;
    uint32_t n_slots[2];
    uint64_t *slots; /* [n] of the device */
    uint64_t *host;
} sched_states;

/* n_store: slots of the host behind the cache's, which a spill writes from. */
static inline int sched_states_create(sched_states *states, const kvp_cache *cache,
                                      uint32_t n_store)
{
    kvp_config config;
    if (kvp_cache_config_get(cache, &config) != KVP_OK)
        return 0;
    states->n = config.state_slots;
    states->n_groups = config.n_groups;
    states->n_slots[KVP_DEVICE] = config.state_slots;
    states->n_slots[KVP_HOST] = config.host_state_slots + n_store;
    states->slots = calloc((size_t)states->n + 1, sizeof(*states->slots));
    states->host = calloc((size_t)states->n_slots[KVP_HOST] + 1, sizeof(*states->host));
    return states->slots != NULL && states->host != NULL;
}

static inline void sched_states_destroy(sched_states *states)
{
    free(states->slots);
    free(states->host);
}

static inline uint64_t *sched_states_slot(const sched_states *states, uint32_t tier, int32_t slot)
{
    if (tier > KVP_HOST || slot <= 0 || (uint32_t)slot >= states->n_slots[tier])
        return NULL;
    return (tier == KVP_DEVICE ? states->slots : states->host) + slot;
}

/* Run what a plan copies of states. */
static inline int sched_states_copy(const sched_states *states, const kvp_copy *copies, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t *from = sched_states_slot(states, copies[i].src_tier, copies[i].src_block);
        uint64_t *to = sched_states_slot(states, copies[i].dst_tier, copies[i].dst_block);
        if (states->n == 0 || copies[i].group != states->n_groups)
            continue;
        if (from == NULL || to == NULL || copies[i].n_tokens != 1)
            return 0;
        *to = *from;
    }
    return 1;
}

/* A plan did not run: what it was to bring is nothing's state. */
static inline void sched_states_miss(const sched_states *states, const kvp_copy *copies, uint32_t n)
{
    for (uint32_t i = 0; i < n && states->n > 0; i++)
        if (copies[i].group == states->n_groups)
            *sched_states_slot(states, copies[i].dst_tier, copies[i].dst_block) = 0;
}

/* After the first n tokens. */
static inline uint64_t sched_states_after(const int32_t *text, uint32_t n)
{
    uint64_t sum = 99;
    for (uint32_t at = 0; at < n; at++)
        sum = sched_memory_sum(sum, text[at]);
    return sum;
}

/* The slots that a sequence's pass writes, in the order of its tokens. Gives how many; 0: wrong. */
static inline uint32_t sched_states_writes(const sched_states *states, const kvp_cache *cache,
                                           kvp_seq seq, int32_t writes[KVP_STATE_RING_MAX])
{
    int32_t write, read, same;
    uint32_t n;
    if (kvp_meta_states(cache, &seq, 1, &read, &write) != KVP_OK ||
        kvp_meta_state_rings(cache, &seq, 1, KVP_STATE_RING_MAX, &same, &n, writes) != KVP_OK ||
        same != read || n == 0 || writes[n - 1] != write || (uint32_t)read >= states->n)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (writes[i] <= 0 || (uint32_t)writes[i] >= states->n)
            return 0;
    return n;
}

/* The pass over tokens [begin, end). All passes of a step read (is_writing 0) before any writes. */
static inline int sched_states_pass(const sched_states *states, const kvp_cache *cache, kvp_seq seq,
                                    const int32_t *text, kvp_range range, int is_writing)
{
    int32_t read, writes[KVP_STATE_RING_MAX];
    if (states->n == 0)
        return 1;
    const uint32_t n = sched_states_writes(states, cache, seq, writes);
    if (n == 0 || kvp_meta_states(cache, &seq, 1, &read, NULL) != KVP_OK)
        return 0;
    if (is_writing) { /* with a ring, drafts that are not accepted leave states, too */
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t end = n == 1 ? range.end : range.begin + i + 1;
            states->slots[writes[i]] = sched_states_after(text, end);
        }
        return 1;
    }
    return read == 0 ? range.begin == 0
                     : states->slots[read] == sched_states_after(text, range.begin);
}

/* The pass failed: what it leaves in the slot that it was to write is nothing's state. */
static inline int sched_states_spoil(const sched_states *states, const kvp_cache *cache,
                                     kvp_seq seq)
{
    int32_t writes[KVP_STATE_RING_MAX];
    if (states->n == 0)
        return 1;
    const uint32_t n = sched_states_writes(states, cache, seq, writes);
    for (uint32_t i = 0; i < n; i++)
        states->slots[writes[i]] = 0;
    return n > 0;
}

#endif
