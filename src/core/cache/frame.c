/* frame: what every public call begins and ends with. */
#include "core/cache/frame.h"

#include "base/platform/process.h"
#include "core/cache/audit.h"

int kvpi_is_ours(const kvp_cache *cache)
{
    return cache->process == kvpi_process_number || kvpi_is_copy(cache);
}

int kvpi_recording_here(const kvp_cache *cache)
{
    return kvpi_is_ours(cache) && !kvpi_is_copy(cache);
}

kvp_status kvpi_enter(const kvp_cache *cache)
{
    uint64_t *calls = (uint64_t *)(uintptr_t)&cache->calls;
    if (kvpi_unlikely(!kvpi_is_ours(cache))) {
        return KVP_E_BUSY;
    }
#if KVP_CHECK >= 1
    const int entered = kvpi_mark_exact(calls);
#else
    const int entered = kvpi_mark_plain(calls);
#endif
    if (kvpi_unlikely(!entered)) {
        return KVP_E_BUSY;
    }
    kvpi_fence(); /* who reads along sees the mark before what the call changes */
    return KVP_OK;
}

kvp_status kvpi_leave(const kvp_cache *cache, kvp_status status)
{
    kvp_cache *self = (kvp_cache *)(uintptr_t)cache; /* gauges are not part of what reads promise */
    if (self->pool.n_held > self->counters.peak_held_blocks) {
        kvpi_count(&self->counters.peak_held_blocks,
                   self->pool.n_held - self->counters.peak_held_blocks);
    }
    self->recorder.decisions = 0;
    if (status == KVP_E_NO_BLOCKS || status == KVP_E_NEVER) {
        kvpi_count(&self->counters.refused, 1);
    }
#if KVP_CHECK >= 2
    kvp_violation violation; /* for a debugger on the core file */
    KVPI_ASSERT(kvpi_audit(self, KVP_CHECK, &violation));
#endif
    __atomic_store_n(&self->calls, self->calls + 1, __ATOMIC_RELEASE);
    return status;
}

kvp_status kvpi_fail(kvp_cache *cache, kvp_status status, uint32_t index, uint64_t missing)
{
    cache->shortage.status = status;
    cache->shortage.index = index;
    cache->shortage.missing_blocks = missing;
    cache->shortage.tier = KVP_DEVICE;
    return status;
}

kvp_status kvpi_fail_slots(kvp_cache *cache, uint32_t index, uint64_t missing)
{
    (void)kvpi_fail(cache, KVP_E_NO_BLOCKS, index, missing);
    cache->shortage.tier = KVP_STATE_SLOTS;
    return KVP_E_NO_BLOCKS;
}

kvp_status kvpi_faults_fail(kvp_cache *cache, const struct kvpi_faults *faults)
{
    const struct kvpi_fault *fault = faults->handle.status != KVP_OK  ? &faults->handle
                                     : faults->twice.status != KVP_OK ? &faults->twice
                                                                      : &faults->other;
    return kvpi_fail(cache, fault->status, fault->index, 0);
}

void kvpi_begin_change(kvp_cache *cache)
{
    cache->plan.promised = 0;
    cache->n_evicted = 0;
}
