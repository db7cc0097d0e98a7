/* frame: what every public call begins and ends with; how it fails. */
#ifndef KVPI_CACHE_FRAME_H
#define KVPI_CACHE_FRAME_H

#include "core/cache/state.h"

/* Enter and leave every public call that needs the cache for itself: the mark that one is inside,
 * which is the guard (KVP_E_BUSY) and what inspect.h looks at; the peak, the check levels. */
kvp_status kvpi_enter(const kvp_cache *cache);
kvp_status kvpi_leave(const kvp_cache *cache, kvp_status status);

/* Put the mark; 0: it is there. Exact: of two at once, one. 7.5 ns.
 * Acquire pairs with the release of kvpi_leave: calls in turn from several threads are fine. */
static inline int kvpi_mark_exact(uint64_t *calls)
{
    return (__atomic_fetch_or(calls, 1u, __ATOMIC_ACQUIRE) & 1u) == 0;
}

/* The same in 1 ns: two that load at once may both put it. */
static inline int kvpi_mark_plain(uint64_t *calls)
{
    const uint64_t now = __atomic_load_n(calls, __ATOMIC_ACQUIRE);
    if (kvpi_unlikely((now & 1u) != 0)) {
        return 0;
    }
    __atomic_store_n(calls, now | 1u, __ATOMIC_RELAXED);
    return 1;
}

/* Reads beside a change: what is read between these two is of one moment when no call was inside at
 * the first one, and the second one gives the same number. What changes stores it by kvpi_set*. */
static inline uint64_t kvpi_read_begin(const kvp_cache *cache)
{
    return __atomic_load_n(&cache->calls, __ATOMIC_ACQUIRE); /* pairs with kvpi_leave */
}

static inline uint64_t kvpi_read_end(const kvp_cache *cache)
{
    kvpi_fence(); /* pairs with that of kvpi_enter */
    return kvpi_read(&cache->calls);
}

/* Is it a byte copy of an arena? It is whose memory it is in. */
static inline int kvpi_is_copy(const kvp_cache *cache)
{
    return cache->self != (uintptr_t)cache;
}

/* A forked child has its parent's caches in its memory, or shares theirs; they are not its own. */
int kvpi_is_ours(const kvp_cache *cache);

/* Does a recording run? Not in a copy, nor in a child of the process that has the cache. */
int kvpi_recording_here(const kvp_cache *cache);

static inline int kvpi_recording(const kvp_cache *cache)
{
    return cache->recorder.on && kvpi_recording_here(cache);
}

/* Note why a changing call fails; gives `status` back. The blocks are the device's. */
kvp_status kvpi_fail(kvp_cache *cache, kvp_status status, uint32_t index, uint64_t missing);

/* The same for slots of recurrent state. */
kvp_status kvpi_fail_slots(kvp_cache *cache, uint32_t index, uint64_t missing);

/* A changing call goes ahead: what the last one evicted is forgotten. */
void kvpi_begin_change(kvp_cache *cache);

/* The first thing wrong with a batch, in one pass: a bad handle goes before a sequence named
 * twice, and that before anything else. */
struct kvpi_fault {
    kvp_status status;
    uint32_t index;
};

struct kvpi_faults {
    uint64_t batch; /* its number: marks the sequences that were named */
    struct kvpi_fault handle;
    struct kvpi_fault twice;
    struct kvpi_fault other;
};

static inline struct kvpi_faults kvpi_faults_begin(kvp_cache *cache)
{
    return (struct kvpi_faults){++cache->batch, {KVP_OK, 0}, {KVP_OK, 0}, {KVP_OK, 0}};
}

/* The next sequence of the batch; NULL ends the pass: nothing can come before a bad handle. */
static inline struct kvpi_seq *kvpi_faults_find(const kvp_cache *cache, struct kvpi_faults *faults,
                                                kvp_seq handle, uint32_t index)
{
    struct kvpi_seq *seq = kvpi_find_seq(cache, handle);
    if (seq == NULL) {
        faults->handle = (struct kvpi_fault){KVP_E_HANDLE, index};
        return NULL;
    }
    if (seq->batch == faults->batch && faults->twice.status == KVP_OK) {
        faults->twice = (struct kvpi_fault){KVP_E_ARG, index};
    }
    seq->batch = faults->batch;
    return seq;
}

static inline void kvpi_faults_other(struct kvpi_faults *faults, kvp_status status, uint32_t index)
{
    if (status != KVP_OK && faults->other.status == KVP_OK) {
        faults->other = (struct kvpi_fault){status, index};
    }
}

static inline int kvpi_faults_any(const struct kvpi_faults *faults)
{
    return (faults->handle.status | faults->twice.status | faults->other.status) != KVP_OK;
}

/* Fail with the one that goes first. */
kvp_status kvpi_faults_fail(kvp_cache *cache, const struct kvpi_faults *faults);

#endif
