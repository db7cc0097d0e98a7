/* kvpager/recover.h: one call at a time, and how to recover when a call did not end.
 *
 * A call with "Thread: cache" marks in the arena that it is inside, and is guarded:
 *
 *   Busy        A call that finds another's mark returns KVP_E_BUSY and touches nothing. The first
 *               call is not disturbed. In every build.
 *   Processes   A cache belongs to the process that created it. In a child that this process forks,
 *               calls return KVP_E_BUSY, also when parent and child share the arena. A byte copy of
 *               the arena belongs to the process that uses it.
 *   Reads       Calls with "Thread: read" or "any" neither look at the mark nor set it.
 *   Destroy     kvp_cache_destroy in a child unmaps the child's mapping, and does nothing else.
 *
 * What may slip through. In release builds the mark is loaded, tested and stored, which is not one
 * operation. A call is always refused if another's mark has become visible to its processor before
 * it begins. Two calls that begin within that time, some ten nanoseconds, may both continue; when
 * the first of them ends, a third may enter beside the second. Checked builds exchange the mark
 * atomically and refuse each of them. No build detects a child made by a bare clone() or vfork(),
 * unless it shares the arena and finds the mark.
 */
#ifndef KVPAGER_RECOVER_H
#define KVPAGER_RECOVER_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Take over a cache whose last call did not end, or that another process created.
 *
 * Use it for an arena in memory that outlives its process (/dev/shm, a file), and for a cache that
 * was created before a fork. Also use it after a thread ended inside a call. `cache` is the arena's
 * address. The caller makes sure that no other thread or process uses the cache any more. The call
 * audits everything, as kvp_cache_check does at level 3. Only if all of it holds, it clears the
 * mark and makes the cache this process's. A running recording ends: its log lacks the call that
 * did not end, and the next kvp_cache_record_stop returns KVP_E_IO. It is not known whether that
 * call has taken effect: check with kvp_seq_info_get.
 *
 * Takes:   cache        kvp_cache_bytes bytes, 64-byte aligned; nothing in them is believed
 * Gives:   out_violation  on KVP_E_CORRUPT; may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_FORMAT: there is no cache, or its configuration is damaged;
 *          KVP_E_VERSION: of another version; KVP_E_CORRUPT: an invariant does not hold
 * After-failure: unchanged: calls that were refused are refused
 * Thread:  cache. Blocks: never
 * Cost:    as kvp_cache_check at level 3; allocates nothing
 */
KVP_API kvp_status kvp_cache_recover(kvp_cache *cache, kvp_violation *out_violation);

/* List the open sequences.
 *
 * Use it for sequences without an owner: in a cache that was taken over, or after an exception
 * between kvp_seq_open and the place that stores its handle. A caller that knows its own handles
 * (or their tags: kvp_seq_info_get) closes the others.
 *
 * Takes:   capacity     of out_seqs; 0 asks for the number only
 * Gives:   out_seqs     [out_n_seqs] in the order of their places; out_n_seqs is written also on
 *                       KVP_E_TOO_SMALL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_SMALL: capacity is neither 0 nor enough
 * Thread:  read. Not recorded. Cost: O(max_seqs), allocates nothing
 */
KVP_API kvp_status kvp_cache_seqs(const kvp_cache *cache, kvp_seq *out_seqs, uint32_t capacity,
                                  uint32_t *out_n_seqs);

#ifdef __cplusplus
}
#endif
#endif
