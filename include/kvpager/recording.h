/* kvpager/recording.h: writing down every call on a cache. oplog.h has what is written, and how it
 * is read and run again.
 */
#ifndef KVPAGER_RECORDING_H
#define KVPAGER_RECORDING_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the bytes of an operation log go. `write` is called with pieces of records, during calls on
 * the cache; it returns 0, or anything else to end the recording (the call itself is not affected).
 * It must not call the cache. */
typedef struct kvp_sink {
    void *context;
    int (*write)(void *context, const void *bytes, size_t n_bytes);
} kvp_sink;

/* Record every call on the cache from now on, with arguments and results: see oplog.h.
 *
 * The log begins with the configuration, so a cache whose state is not new cannot be recorded.
 *
 * Takes:   sink         copied
 * Returns: KVP_OK; KVP_E_STATE when a sequence or namespace was opened before, or a recording runs;
 *          KVP_E_IO when the sink refused the header
 * Thread:  cache. Cost: at most 30 ns per recorded call, plus its bytes, plus the sink
 */
KVP_API kvp_status kvp_record_start(kvp_cache *cache, const kvp_sink *sink);

/* End the recording. Returns: KVP_OK; KVP_E_STATE when none runs; KVP_E_IO when the sink refused
 * bytes at some point: the log ends there. */
KVP_API kvp_status kvp_record_stop(kvp_cache *cache);

#ifdef __cplusplus
}
#endif
#endif
