/* record: writes the operation log (docs/FORMATS.md has the bytes, kvpager/oplog.h reads them).
 *
 * What the core does:
 *
 *   - Embeds a kvpi_recorder in the cache, all zero, and sets cache_bits once.
 *   - Ends every call that calls.def has, whatever its status, with
 *
 *         if (cache->recorder.on)
 *             kvpi_record_<name>(&cache->recorder, <arguments>, status, <outputs>);
 *
 *     except calls refused for a NULL pointer or a wrong struct_size, which are not recorded: here
 *     every pointer with a count above 0 behind it may be followed. A call that calls another
 *     public one records itself only.
 *   - Passes as outputs its own out arguments, in their order, as const pointers. They are followed
 *     only when the status is KVP_OK; n_seqs of invalidate and step_failed, n_copies of plan_take
 *     and step_begin, n_events and number of events_snapshot, n_moves of accept, n_nodes of tree
 *     also for KVP_E_TOO_SMALL, and without the arrays for capacity 0, the violation of check only
 *     for KVP_E_CORRUPT. Outputs that a caller may leave out (info of open, released, swapped,
 *     violation) must be here all the same: pass a local one. Only n_seqs of invalidate and
 *     step_failed may be NULL (the caller asked for no report), and the arrays of tree. Of the
 *     tokens of events, those of events with n_tokens above 0 are followed.
 *   - Calls kvpi_record_decision for every block that it takes and every block that it evicts, in
 *     order, whether a recording runs or not (it is three instructions). Ids of host blocks are
 *     passed negative.
 *   - In checked builds, records first and audits itself then, so that a log ends with the call
 *     that broke the cache.
 *
 * A recorded call costs its bytes, a call of sink.write (two or more when arrays are long: those go
 * from the caller's memory to the sink without a copy), and less than 30 ns.
 */
#ifndef KVPI_RECORD_H
#define KVPI_RECORD_H

#include <kvpager/cache.h>
#include <kvpager/events.h>
#include <kvpager/lend.h>
#include <kvpager/oplog.h>
#include <kvpager/quotas.h>
#include <kvpager/states.h>
#include <kvpager/steps.h>
#include <kvpager/swap.h>
#include <kvpager/trees.h>
#include <kvpager/windows.h>

/* How a log begins: its digit is KVP_OPLOG_VERSION. */
#define KVPI_RECORD_MAGIC "kvpops1\n"

/* Which pointers were given: a bit each, so that "none" and "none of them" stay two things. */
enum {
    KVPI_HAS_TOKENS = 1,
    KVPI_HAS_KEYS = 2,
    KVPI_HAS_HASHES = 4,   /* prompt */
    KVPI_HAS_UNCACHED = 8, /* prompt */
    KVPI_HAS_COUNTS = 16,  /* batch */
    KVPI_HAS_PARENTS = 32  /* trees */
};

struct kvpi_recorder {
    kvp_sink sink;
    uint64_t cache_bits;  /* XORed out of handles: the cache's number at its place in a handle */
    uint64_t decisions;   /* of the call that runs: blocks taken and evicted, mixed; 0 between */
    uint32_t unit_tokens; /* U: a prompt of n tokens comes with n / U hashes */
    uint32_t max_seqs;    /* of the configuration: most moves there can be, with max_tree_tokens */
    uint32_t max_tree_tokens;
    uint32_t on;     /* a recording runs */
    uint32_t failed; /* the sink refused bytes: the recording ended there, stop will say so */
};

/* Mix a block id into the digest of what the call decides: a host block's negative, so that taking
 * block 5 of one tier and of the other are two things. */
static inline void kvpi_record_decision(struct kvpi_recorder *recorder, int32_t block)
{
    /* Odd multiplier (2^64 / golden ratio): ids other than 0 in two orders give two digests. */
    recorder->decisions = (recorder->decisions + (uint32_t)block) * 0x9E3779B97F4A7C15u;
}

/* Turn a handle's bits into portable ones, or back. Zero, which is never a handle, stays zero: a
 * valid handle's generation must therefore never be 0, so that no valid one turns into zero. */
static inline uint64_t kvpi_record_flip(const struct kvpi_recorder *recorder, uint64_t bits)
{
    return bits == 0 ? 0 : bits ^ recorder->cache_bits;
}

/* Begin a recording: write the header. The caller has made sure that the cache is new.
 *
 * Takes:   sink         copied; sink->write is not NULL
 *          resolved     the configuration as kvp_cache_config_get gives it
 * Returns: KVP_OK; KVP_E_STATE when one runs; KVP_E_IO when the sink refused the header
 * After-failure: no recording runs
 */
kvp_status kvpi_record_begin(struct kvpi_recorder *recorder, const kvp_sink *sink,
                             const kvp_config *resolved);

/* End the recording. Returns: KVP_OK; KVP_E_STATE when none runs; KVP_E_IO when the sink refused
 * bytes. */
kvp_status kvpi_record_end(struct kvpi_recorder *recorder);

/* One for each call of calls.def: kvpi_record_<name>(recorder, its parameters). */
#define KVPI_RECORD_LIST(...) __VA_ARGS__
#define LOG_CALL_BY_HAND(NAME, name, parameters, arguments, results)                               \
    void kvpi_record_##name(struct kvpi_recorder *recorder, KVPI_RECORD_LIST parameters);
#include "core/record/calls.def"

#endif
