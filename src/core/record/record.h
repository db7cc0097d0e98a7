/* record: writes the operation log (docs/OPLOG.md has the bytes, kvpager/oplog.h reads them).
 *
 * What the core does:
 *
 *   - Embeds a kvpi_recorder in the cache, all zero, and sets cache_bits once.
 *   - Ends every public call of KVP_CALL_TABLE, whatever its status, with
 *
 *         if (cache->recorder.on)
 *             kvpi_record_<name>(&cache->recorder, <arguments>, status, <outputs>);
 *
 *     except those that may run beside a change (kvpi_record_has), and calls refused for a NULL
 *     pointer or a wrong struct_size, which are not recorded: here every pointer with a count above
 *     0 behind it may be followed. A call that calls another public one records itself only.
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
#include <kvpager/steps.h>
#include <kvpager/swap.h>
#include <kvpager/trees.h>
#include <kvpager/windows.h>

/* How a log begins: ends with KVP_OPLOG_VERSION and a line's end. */
#define KVPI_RECORD_MAGIC "kvplog4\n"

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

/* Is a call of KVP_CALL_TABLE recorded? Not those that may run beside a change: two writers would
 * tear the log, and what they read depends on the moment. Nor what a store looks for: much, and it
 * decides nothing here. */
static inline int kvpi_record_has(uint32_t op)
{
    return op != KVP_CALL_SEQ_INFO && op != KVP_CALL_EVENTS_READ && op < KVP_CALL_COLD_END;
}

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
 *          resolved     the configuration as kvp_cache_config gives it
 * Returns: KVP_OK; KVP_E_STATE when one runs; KVP_E_IO when the sink refused the header
 * After-failure: no recording runs
 */
kvp_status kvpi_record_begin(struct kvpi_recorder *recorder, const kvp_sink *sink,
                             const kvp_config *resolved);

/* End the recording. Returns: KVP_OK; KVP_E_STATE when none runs; KVP_E_IO when the sink refused
 * bytes. */
kvp_status kvpi_record_end(struct kvpi_recorder *recorder);

/* ---------------------------------------------------------------------- one for each call */

void kvpi_record_ns_open(struct kvpi_recorder *recorder, const void *name, size_t name_bytes,
                         kvp_status status, const kvp_ns *ns);
void kvpi_record_ns_close(struct kvpi_recorder *recorder, kvp_ns ns, kvp_status status);
void kvpi_record_ns_flush(struct kvpi_recorder *recorder, kvp_ns ns, kvp_status status);
void kvpi_record_ns_quota(struct kvpi_recorder *recorder, kvp_ns ns, uint32_t tier,
                          uint32_t n_blocks, kvp_status status);
void kvpi_record_ns_info_get(struct kvpi_recorder *recorder, kvp_ns ns, kvp_status status,
                             const kvp_ns_info *info);

void kvpi_record_match(struct kvpi_recorder *recorder, kvp_ns ns, const kvp_prompt *prompt,
                       kvp_status status, const kvp_open_info *info);
void kvpi_record_seq_open(struct kvpi_recorder *recorder, kvp_ns ns, const kvp_prompt *prompt,
                          kvp_status status, const kvp_seq *seq, const kvp_open_info *info);
void kvpi_record_can_open(struct kvpi_recorder *recorder, kvp_ns ns, const kvp_prompt *prompt,
                          kvp_status status, const kvp_admission *admission);

void kvpi_record_seq_extend(struct kvpi_recorder *recorder, kvp_seq seq, const int32_t *tokens,
                            uint32_t n_tokens, uint32_t reserve_tokens, kvp_status status);
void kvpi_record_seq_extend_many(struct kvpi_recorder *recorder, const kvp_batch *batch,
                                 kvp_status status);
void kvpi_record_can_extend(struct kvpi_recorder *recorder, const kvp_batch *batch,
                            kvp_status status, const kvp_admission *admission);
void kvpi_record_seq_fill(struct kvpi_recorder *recorder, kvp_seq seq, const int32_t *tokens,
                          uint32_t n_tokens, kvp_status status);
void kvpi_record_seq_fill_many(struct kvpi_recorder *recorder, const kvp_batch *batch,
                               kvp_status status);
void kvpi_record_seq_commit(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t n_tokens,
                            kvp_status status);
void kvpi_record_seq_commit_many(struct kvpi_recorder *recorder, const kvp_seq *seqs,
                                 const uint32_t *n_tokens, uint32_t n_seqs, kvp_status status);
void kvpi_record_seq_invalidate(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t from,
                                uint32_t capacity, kvp_status status, const kvp_seq *seqs,
                                const uint32_t *n_seqs);

void kvpi_record_seq_fork(struct kvpi_recorder *recorder, kvp_seq parent, uint32_t at, uint64_t tag,
                          kvp_status status, const kvp_seq *child);
void kvpi_record_seq_truncate(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t n_tokens,
                              kvp_status status, const kvp_released *released);
void kvpi_record_seq_close(struct kvpi_recorder *recorder, kvp_seq seq, kvp_status status,
                           const kvp_released *released);

void kvpi_record_seq_tokens(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t from,
                            uint32_t n_tokens, kvp_status status, const int32_t *tokens);
void kvpi_record_seq_block_tokens(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t block_idx,
                                  kvp_status status, const int32_t *tokens,
                                  const uint32_t *n_tokens);
void kvpi_record_seq_row(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t group,
                         kvp_status status, const int32_t *const *row, const uint32_t *n_blocks);
void kvpi_record_seq_slots(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t group,
                           uint32_t from, uint32_t n_tokens, kvp_status status,
                           const int64_t *slots);
void kvpi_record_seq_retain(struct kvpi_recorder *recorder, kvp_seq seq, kvp_range range,
                            uint32_t retention, kvp_status status);
void kvpi_record_seq_uncache(struct kvpi_recorder *recorder, kvp_seq seq, kvp_range range,
                             kvp_status status);

void kvpi_record_plan_take(struct kvpi_recorder *recorder, uint32_t capacity, kvp_status status,
                           const kvp_copy *copies, const uint32_t *n_copies);
void kvpi_record_cache_evicted(struct kvpi_recorder *recorder, kvp_status status,
                               const kvp_evicted *const *evicted, const uint32_t *n_evicted);
void kvpi_record_block_info_get(struct kvpi_recorder *recorder, uint32_t group, uint32_t tier,
                                int32_t block, kvp_status status, const kvp_block_info *info);
void kvpi_record_block_tokens(struct kvpi_recorder *recorder, uint32_t group, uint32_t tier,
                              int32_t block, kvp_status status, const int32_t *tokens,
                              const uint32_t *n_tokens);

void kvpi_record_cache_stats(struct kvpi_recorder *recorder, kvp_status status,
                             const kvp_stats *stats);
void kvpi_record_cache_shortage(struct kvpi_recorder *recorder, kvp_status status,
                                const kvp_shortage *shortage);
void kvpi_record_check(struct kvpi_recorder *recorder, int level, kvp_status status,
                       const kvp_violation *violation);
void kvpi_record_cache_reset(struct kvpi_recorder *recorder, kvp_status status);
void kvpi_record_cache_config(struct kvpi_recorder *recorder, kvp_status status,
                              const kvp_config *config);

void kvpi_record_seq_swap_out(struct kvpi_recorder *recorder, const kvp_seq *seqs, uint32_t n_seqs,
                              kvp_status status, const kvp_swapped *swapped);
void kvpi_record_seq_swap_in(struct kvpi_recorder *recorder, const kvp_seq *seqs, uint32_t n_seqs,
                             uint32_t reserve_tokens, kvp_status status,
                             const kvp_swapped *swapped);
void kvpi_record_can_swap_out(struct kvpi_recorder *recorder, const kvp_seq *seqs, uint32_t n_seqs,
                              kvp_status status, const kvp_admission *admission);
void kvpi_record_can_swap_in(struct kvpi_recorder *recorder, const kvp_seq *seqs, uint32_t n_seqs,
                             uint32_t reserve_tokens, kvp_status status,
                             const kvp_admission *admission);

void kvpi_record_step_begin(struct kvpi_recorder *recorder, uint32_t capacity, kvp_status status,
                            const kvp_copy *copies, uint32_t n_copies, uint64_t step);
void kvpi_record_step_commit(struct kvpi_recorder *recorder, uint64_t step, const kvp_seq *seqs,
                             const uint32_t *n_tokens, uint32_t n_seqs, kvp_status status);
void kvpi_record_step_done(struct kvpi_recorder *recorder, uint64_t step, kvp_status status,
                           uint64_t effective);
void kvpi_record_step_failed(struct kvpi_recorder *recorder, uint64_t step, uint32_t capacity,
                             kvp_status status, const kvp_seq *out_seqs,
                             const uint32_t *out_n_seqs);

void kvpi_record_events_snapshot(struct kvpi_recorder *recorder, uint32_t capacity, int with_tokens,
                                 kvp_status status, const kvp_event *events, const int32_t *tokens,
                                 uint32_t n_events, uint64_t number);

/* --- lend.c: stores. Blocks of a load are followed when the status is KVP_OK */

void kvpi_record_plan_done(struct kvpi_recorder *recorder, uint64_t n_plans, kvp_status status);
void kvpi_record_mirror(struct kvpi_recorder *recorder, const int32_t *blocks, uint32_t n_blocks,
                        uint32_t spare_blocks, kvp_status status, const int32_t *out_host,
                        const kvp_mirrored *mirrored);
void kvpi_record_blocks_lend(struct kvpi_recorder *recorder, const int32_t *blocks,
                             uint32_t n_blocks, kvp_status status);
void kvpi_record_blocks_return(struct kvpi_recorder *recorder, const int32_t *blocks,
                               uint32_t n_blocks, kvp_status status);
void kvpi_record_load_begin(struct kvpi_recorder *recorder, kvp_ns ns, const kvp_prompt *prompt,
                            const kvp_load *load, kvp_status status);
void kvpi_record_load_done(struct kvpi_recorder *recorder, uint64_t load, const uint8_t *whole,
                           uint32_t n_blocks, kvp_status status, const kvp_loaded *loaded);
void kvpi_record_load_cancel(struct kvpi_recorder *recorder, uint64_t load, kvp_status status);

/* --- windows and trees */

void kvpi_record_seq_window(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t group,
                            kvp_window window, kvp_status status, const kvp_released *released);
void kvpi_record_seq_window_get(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t group,
                                kvp_status status, const kvp_window_info *info);
void kvpi_record_seq_extend_tree(struct kvpi_recorder *recorder, const kvp_batch *batch,
                                 const int32_t *parents, kvp_status status);
void kvpi_record_seq_accept(struct kvpi_recorder *recorder, const kvp_accept *accept,
                            uint32_t n_groups, kvp_status status);
void kvpi_record_seq_tree(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t capacity,
                          kvp_status status, const int32_t *tokens, const int32_t *parents,
                          const uint32_t *n_nodes);

#endif
