/* kvpager/recording.h: record every call on a cache. oplog.h says what is written, and how to read
 * it and run it again.
 */
#ifndef KVPAGER_RECORDING_H
#define KVPAGER_RECORDING_H

#include "cache.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Record every call on the cache from now on, with arguments and results (oplog.h).
 *
 * The log begins with the configuration, so a cache whose state is not new cannot be recorded.
 *
 * Takes:   sink         copied
 * Returns: KVP_OK; KVP_E_STATE when a sequence or namespace was opened before, or a recording runs;
 *          KVP_E_IO when the sink refused the header
 * Thread:  cache. Cost: at most 30 ns per recorded call, plus its bytes, plus the sink
 */
KVP_API kvp_status kvp_cache_record_start(kvp_cache *cache, const kvp_sink *sink);

/* End the recording. Returns: KVP_OK; KVP_E_STATE when none runs; KVP_E_IO when the sink refused
 * bytes at some point: the log ends there. */
KVP_API kvp_status kvp_cache_record_stop(kvp_cache *cache);

/* Take the cache's number out of a handle's bits, or put it in (the same operation). Handles in
 * logs do not have it. Zero, which is never a handle, stays zero. Not a recorded call. */
KVP_API uint64_t kvp_handle_flip(const kvp_cache *cache, uint64_t bits);

/* Read the configuration as kvp_cache_config_get does, but do not record the call: a program that
 * runs a log must know sizes. Returns: KVP_OK; KVP_E_ARG */
KVP_API kvp_status kvp_cache_config_peek(const kvp_cache *cache, kvp_config *out_config);

#ifdef __cplusplus
}
#endif
#endif
