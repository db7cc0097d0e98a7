/* record: the writer of operation logs. docs/OPLOG.md describes the bytes, src/trace/oplog_decode.c
 * reads them: the two share nothing but that page, so that a mistake in one shows.
 *
 * A record is put together in a small buffer on the stack and handed to the sink in one piece;
 * arrays too long for it go to the sink from where they lie. Nothing is allocated, and no length
 * has to be known beforehand: the reader finds the end of a record by reading it.
 *
 *     op | arguments | status, digest of the decisions when there were any | results
 *     1B |           | 1B      4B                                          | only on success
 *
 * R1  What is written depends on arguments, results and configuration only: no address, no padding
 *     byte, no byte order. Results that would be long are written as a count and an XXH3-64 of
 *     their little-endian bytes: replay makes them anew and compares digests.
 * R2  After the sink refused bytes nothing is written any more: a log has no holes.
 * R3  `decisions` is 0 whenever no call runs.
 */
#include "record.h"

#include <string.h>

#include <kvpager/oplog.h>

#include "record_put.h"

static void put_handles(struct kvpi_writer *writer, const kvp_seq *seqs, uint32_t n_seqs)
{
    for (uint32_t i = 0; i < n_seqs; i++) {
        kvpi_put_room(writer, KVPI_VARINT_BYTES);
        kvpi_put_handle(writer, seqs[i].bits);
    }
}

static void put_varints(struct kvpi_writer *writer, const uint32_t *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        kvpi_put_room(writer, KVPI_VARINT_BYTES);
        kvpi_put_varint(writer, values[i]);
    }
}

static void put_keys(struct kvpi_writer *writer, const kvp_key *keys, uint32_t n_keys)
{
    kvpi_put_room(writer, KVPI_VARINT_BYTES);
    kvpi_put_varint(writer, n_keys);
    for (uint32_t i = 0; i < n_keys; i++) {
        kvpi_put_room(writer, KVPI_GROUP_BYTES);
        kvpi_put_fields(
            writer, (const uint32_t[]){keys[i].type, keys[i].begin, keys[i].end, keys[i].n_bytes},
            4);
        kvpi_put_bytes(writer, keys[i].bytes, keys[i].n_bytes);
    }
}

static void put_ranges(struct kvpi_writer *writer, const kvp_range *ranges, uint32_t n_ranges)
{
    kvpi_put_room(writer, KVPI_VARINT_BYTES);
    kvpi_put_varint(writer, n_ranges);
    for (uint32_t i = 0; i < n_ranges; i++) {
        kvpi_put_room(writer, KVPI_GROUP_BYTES);
        kvpi_put_varint(writer, ranges[i].begin);
        kvpi_put_varint(writer, ranges[i].end);
    }
}

/* ---------------------------------------------------------------------- arguments, results */

/* Which pointers were given: a bit each, so that "none" and "none of them" stay two things. */
enum {
    HAS_TOKENS = 1,
    HAS_KEYS = 2,
    HAS_HASHES = 4,   /* prompt */
    HAS_UNCACHED = 8, /* prompt */
    HAS_COUNTS = 16   /* batch */
};

static uint8_t has(const void *pointer, unsigned bit)
{
    return (uint8_t)(pointer != NULL ? bit : 0);
}

static void put_prompt(struct kvpi_writer *writer, const kvp_prompt *prompt)
{
    kvpi_put_byte(writer,
                  (uint8_t)(has(prompt->tokens, HAS_TOKENS) | has(prompt->keys, HAS_KEYS) |
                            has(prompt->hashes, HAS_HASHES) | has(prompt->uncached, HAS_UNCACHED)));
    kvpi_put_fields(
        writer, (const uint32_t[]){prompt->reserve_tokens, prompt->flags, prompt->retention}, 3);
    kvpi_put_varint(writer, prompt->tag);
    kvpi_put_varint(writer, prompt->n_tokens);
    if (prompt->tokens != NULL)
        kvpi_put_array(writer, prompt->tokens, prompt->n_tokens, KVPI_ELEMENT_32);
    if (prompt->hashes != NULL)
        kvpi_put_array(writer, prompt->hashes,
                       (size_t)(prompt->n_tokens / writer->recorder->unit_tokens) *
                           sizeof(kvp_hash),
                       KVPI_ELEMENT_BYTE);
    if (prompt->keys != NULL)
        put_keys(writer, prompt->keys, prompt->n_keys);
    if (prompt->uncached != NULL)
        put_ranges(writer, prompt->uncached, prompt->n_uncached);
}

static size_t sum_of_counts(const kvp_batch *batch)
{
    if (batch->n_tokens == NULL)
        return batch->n_seqs;
    size_t sum = 0;
    for (uint32_t i = 0; i < batch->n_seqs; i++)
        sum += batch->n_tokens[i];
    return sum;
}

static void put_batch(struct kvpi_writer *writer, const kvp_batch *batch)
{
    kvpi_put_byte(writer, (uint8_t)(has(batch->tokens, HAS_TOKENS) | has(batch->keys, HAS_KEYS) |
                                    has(batch->n_tokens, HAS_COUNTS)));
    kvpi_put_fields(writer, (const uint32_t[]){batch->reserve_tokens, batch->flags, batch->n_seqs},
                    3);
    put_handles(writer, batch->seqs, batch->n_seqs);
    if (batch->n_tokens != NULL)
        put_varints(writer, batch->n_tokens, batch->n_seqs);
    if (batch->tokens != NULL)
        kvpi_put_array(writer, batch->tokens, sum_of_counts(batch), KVPI_ELEMENT_32);
    if (batch->keys != NULL)
        put_keys(writer, batch->keys, batch->n_keys);
}

/* Ends the arguments: status, decisions (R3). Leaves room for a group of results. */
static void put_status(struct kvpi_writer *writer, kvp_status status)
{
    uint64_t decisions = writer->recorder->decisions;
    uint8_t code = (uint8_t)(-(int)status & 0x7f);
    kvpi_put_room(writer, KVPI_GROUP_BYTES);
    if (decisions == 0) {
        kvpi_put_byte(writer, code);
        return;
    }
    kvpi_put_byte(writer, (uint8_t)(code | 0x80));
    kvpi_put_fixed(writer, (uint32_t)(decisions ^ (decisions >> 32)), 4);
    writer->recorder->decisions = 0;
}

static void put_statuses(struct kvpi_writer *writer, const kvp_batch *batch)
{
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        kvpi_put_room(writer, 1);
        kvpi_put_byte(writer, (uint8_t) - (int)batch->statuses[i]);
    }
}

static void put_open_info(struct kvpi_writer *writer, const kvp_open_info *info)
{
    kvpi_put_fields(writer,
                    (const uint32_t[]){info->cached_tokens, info->hit_tokens, info->stop,
                                       info->shared_blocks, info->cached_blocks,
                                       info->copied_tokens, info->taken_blocks,
                                       info->evicted_blocks},
                    8);
}

static void put_admission(struct kvpi_writer *writer, const kvp_admission *admission)
{
    kvpi_put_fields(writer,
                    (const uint32_t[]){admission->verdict, admission->need_blocks,
                                       admission->available, admission->missing_blocks},
                    4);
}

static void put_config(struct kvpi_writer *writer, const kvp_config *config)
{
    uint64_t watermark;
    memcpy(&watermark, &config->watermark, sizeof watermark);
    kvpi_put_room(writer, KVPI_GROUP_BYTES);
    kvpi_put_fields(writer,
                    (const uint32_t[]){config->block_tokens, config->unit_tokens, config->n_blocks,
                                       config->max_seqs, config->max_seq_tokens,
                                       config->max_namespaces, config->n_nodes,
                                       config->max_unit_keys, config->max_copies,
                                       config->commit_policy, config->full_hit,
                                       config->prefix_cache, config->test_hash_bits},
                    13);
    kvpi_put_fixed(writer, watermark, 8);
    kvpi_put_fixed(writer, config->hash_seed, 8);
    kvpi_put_varint(writer, config->n_uncached_tokens);
    kvpi_put_array(writer, config->uncached_tokens, config->n_uncached_tokens, KVPI_ELEMENT_32);
}

/* ------------------------------------------------------------------------------- begin and end */

kvp_status kvpi_record_begin(struct kvpi_recorder *recorder, const kvp_sink *sink,
                             const kvp_config *resolved)
{
    if (recorder->on != 0)
        return KVP_E_STATE;
    recorder->sink = *sink;
    recorder->decisions = 0;
    recorder->unit_tokens = resolved->unit_tokens;
    recorder->failed = 0;
    struct kvpi_writer writer;
    writer.recorder = recorder;
    writer.n_bytes = 0;
    kvpi_put_bytes(&writer, "kvplog1\n", 8);
    put_config(&writer, resolved);
    kvpi_put_flush(&writer);
    if (recorder->failed != 0) {
        recorder->failed = 0;
        return KVP_E_IO;
    }
    recorder->on = 1;
    return KVP_OK;
}

kvp_status kvpi_record_end(struct kvpi_recorder *recorder)
{
    if (recorder->failed != 0) {
        recorder->failed = 0;
        return KVP_E_IO;
    }
    if (recorder->on == 0)
        return KVP_E_STATE;
    recorder->on = 0;
    return KVP_OK;
}

/* ------------------------------------------------------------------------------ the calls */

/* Calls of a handle alone that give nothing. */
static void handle_call(struct kvpi_recorder *recorder, uint8_t op, uint64_t bits,
                        kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, op);
    kvpi_put_handle(&writer, bits);
    put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_ns_open(struct kvpi_recorder *recorder, const void *name, size_t name_bytes,
                         kvp_status status, const kvp_ns *ns)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_NS_OPEN);
    kvpi_put_varint(&writer, name_bytes);
    kvpi_put_bytes(&writer, name, name_bytes);
    put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_handle(&writer, ns->bits);
    kvpi_put_finish(&writer);
}

void kvpi_record_ns_close(struct kvpi_recorder *recorder, kvp_ns ns, kvp_status status)
{
    handle_call(recorder, KVP_CALL_NS_CLOSE, ns.bits, status);
}

void kvpi_record_ns_flush(struct kvpi_recorder *recorder, kvp_ns ns, kvp_status status)
{
    handle_call(recorder, KVP_CALL_NS_FLUSH, ns.bits, status);
}

static void begin_prompt(struct kvpi_writer *writer, struct kvpi_recorder *recorder, uint8_t op,
                         kvp_ns ns, const kvp_prompt *prompt)
{
    kvpi_put_begin(writer, recorder, op);
    kvpi_put_handle(writer, ns.bits);
    put_prompt(writer, prompt);
}

void kvpi_record_match(struct kvpi_recorder *recorder, kvp_ns ns, const kvp_prompt *prompt,
                       kvp_status status, const kvp_open_info *info)
{
    struct kvpi_writer writer;
    begin_prompt(&writer, recorder, KVP_CALL_MATCH, ns, prompt);
    put_status(&writer, status);
    if (status == KVP_OK)
        put_open_info(&writer, info);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_open(struct kvpi_recorder *recorder, kvp_ns ns, const kvp_prompt *prompt,
                          kvp_status status, const kvp_seq *seq, const kvp_open_info *info)
{
    struct kvpi_writer writer;
    begin_prompt(&writer, recorder, KVP_CALL_OPEN, ns, prompt);
    put_status(&writer, status);
    if (status == KVP_OK) {
        kvpi_put_handle(&writer, seq->bits);
        put_open_info(&writer, info);
    }
    kvpi_put_finish(&writer);
}

void kvpi_record_can_open(struct kvpi_recorder *recorder, kvp_ns ns, const kvp_prompt *prompt,
                          kvp_status status, const kvp_admission *admission)
{
    struct kvpi_writer writer;
    begin_prompt(&writer, recorder, KVP_CALL_CAN_OPEN, ns, prompt);
    put_status(&writer, status);
    if (status == KVP_OK)
        put_admission(&writer, admission);
    kvpi_put_finish(&writer);
}

static void put_values(struct kvpi_writer *writer, const int32_t *tokens, uint32_t n_tokens)
{
    kvpi_put_byte(writer, has(tokens, HAS_TOKENS));
    kvpi_put_varint(writer, n_tokens);
    if (tokens != NULL)
        kvpi_put_array(writer, tokens, n_tokens, KVPI_ELEMENT_32);
}

void kvpi_record_seq_extend(struct kvpi_recorder *recorder, kvp_seq seq, const int32_t *tokens,
                            uint32_t n_tokens, uint32_t reserve_tokens, kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_EXTEND);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_varint(&writer, reserve_tokens);
    put_values(&writer, tokens, n_tokens);
    put_status(&writer, status);
    kvpi_put_finish(&writer);
}

static void batch_call(struct kvpi_recorder *recorder, uint8_t op, const kvp_batch *batch,
                       kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, op);
    put_batch(&writer, batch);
    put_status(&writer, status);
    if (status == KVP_OK && (batch->flags & KVP_BATCH_EACH) != 0)
        put_statuses(&writer, batch);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_extend_many(struct kvpi_recorder *recorder, const kvp_batch *batch,
                                 kvp_status status)
{
    batch_call(recorder, KVP_CALL_EXTEND_MANY, batch, status);
}

void kvpi_record_seq_fill_many(struct kvpi_recorder *recorder, const kvp_batch *batch,
                               kvp_status status)
{
    batch_call(recorder, KVP_CALL_FILL_MANY, batch, status);
}

void kvpi_record_can_extend(struct kvpi_recorder *recorder, const kvp_batch *batch,
                            kvp_status status, const kvp_admission *admission)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_CAN_EXTEND);
    put_batch(&writer, batch);
    put_status(&writer, status);
    if (status == KVP_OK)
        put_admission(&writer, admission);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_fill(struct kvpi_recorder *recorder, kvp_seq seq, const int32_t *tokens,
                          uint32_t n_tokens, kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_FILL);
    kvpi_put_handle(&writer, seq.bits);
    put_values(&writer, tokens, n_tokens);
    put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_commit(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t n_tokens,
                            kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_COMMIT);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_varint(&writer, n_tokens);
    put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_commit_many(struct kvpi_recorder *recorder, const kvp_seq *seqs,
                                 const uint32_t *n_tokens, uint32_t n_seqs, kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_COMMIT_MANY);
    kvpi_put_varint(&writer, n_seqs);
    put_handles(&writer, seqs, n_seqs);
    put_varints(&writer, n_tokens, n_seqs);
    put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_invalidate(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t from,
                                uint32_t capacity, kvp_status status, const kvp_seq *seqs,
                                const uint32_t *n_seqs)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_INVALIDATE);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_fields(&writer, (const uint32_t[]){from, capacity, n_seqs == NULL}, 3);
    put_status(&writer, status);
    if (n_seqs != NULL && (status == KVP_OK || status == KVP_E_TOO_SMALL)) {
        kvpi_put_varint(&writer, *n_seqs);
        if (status == KVP_OK)
            put_handles(&writer, seqs, *n_seqs);
    }
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_fork(struct kvpi_recorder *recorder, kvp_seq parent, uint32_t at, uint64_t tag,
                          kvp_status status, const kvp_seq *child)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_FORK);
    kvpi_put_handle(&writer, parent.bits);
    kvpi_put_varint(&writer, at);
    kvpi_put_varint(&writer, tag);
    put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_handle(&writer, child->bits);
    kvpi_put_finish(&writer);
}

static void put_released(struct kvpi_writer *writer, kvp_status status,
                         const kvp_released *released)
{
    put_status(writer, status);
    if (status != KVP_OK)
        return;
    kvpi_put_varint(writer, released->freed_blocks);
    kvpi_put_varint(writer, released->cached_blocks);
}

void kvpi_record_seq_truncate(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t n_tokens,
                              kvp_status status, const kvp_released *released)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_TRUNCATE);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_varint(&writer, n_tokens);
    put_released(&writer, status, released);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_close(struct kvpi_recorder *recorder, kvp_seq seq, kvp_status status,
                           const kvp_released *released)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_CLOSE);
    kvpi_put_handle(&writer, seq.bits);
    put_released(&writer, status, released);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_info_get(struct kvpi_recorder *recorder, kvp_seq seq, kvp_status status,
                              const kvp_seq_info *info)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_SEQ_INFO);
    kvpi_put_handle(&writer, seq.bits);
    put_status(&writer, status);
    if (status == KVP_OK) {
        kvpi_put_handle(&writer, info->ns.bits);
        kvpi_put_varint(&writer, info->tag);
        kvpi_put_fields(&writer,
                        (const uint32_t[]){info->tokens, info->known_tokens, info->prompt_tokens,
                                           info->cached_tokens, info->computed_tokens,
                                           info->writable_tokens, info->public_tokens,
                                           info->kept_tokens, info->blocks, info->stop,
                                           info->retention, info->row_version},
                        12);
        kvpi_put_signed(&writer, info->last_token);
    }
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_tokens(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t from,
                            uint32_t n_tokens, kvp_status status, const int32_t *tokens)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_SEQ_TOKENS);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_varint(&writer, from);
    kvpi_put_varint(&writer, n_tokens);
    put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_digest(&writer, tokens, n_tokens, KVPI_ELEMENT_32);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_block_tokens(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t block_idx,
                                  kvp_status status, const int32_t *tokens,
                                  const uint32_t *n_tokens)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_SEQ_BLOCK_TOKENS);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_varint(&writer, block_idx);
    put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_digest(&writer, tokens, *n_tokens, KVPI_ELEMENT_32);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_row(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t group,
                         kvp_status status, const int32_t *const *row, const uint32_t *n_blocks)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_ROW);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_varint(&writer, group);
    put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_digest(&writer, *row, *n_blocks, KVPI_ELEMENT_32);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_slots(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t group,
                           uint32_t from, uint32_t n_tokens, kvp_status status,
                           const int64_t *slots)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_SLOTS);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_fields(&writer, (const uint32_t[]){group, from, n_tokens}, 3);
    put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_digest(&writer, slots, n_tokens, KVPI_ELEMENT_64);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_retain(struct kvpi_recorder *recorder, kvp_seq seq, kvp_range range,
                            uint32_t retention, kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_RETAIN);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_fields(&writer, (const uint32_t[]){range.begin, range.end, retention}, 3);
    put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_uncache(struct kvpi_recorder *recorder, kvp_seq seq, kvp_range range,
                             kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_UNCACHE);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_varint(&writer, range.begin);
    kvpi_put_varint(&writer, range.end);
    put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_plan_take(struct kvpi_recorder *recorder, uint32_t capacity, kvp_status status,
                           const kvp_copy *copies, const uint32_t *n_copies)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_PLAN_TAKE);
    kvpi_put_varint(&writer, capacity);
    put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_digest(&writer, copies, *n_copies, KVPI_ELEMENT_COPY);
    else if (status == KVP_E_TOO_SMALL)
        kvpi_put_varint(&writer, *n_copies);
    kvpi_put_finish(&writer);
}

void kvpi_record_cache_evicted(struct kvpi_recorder *recorder, kvp_status status,
                               const kvp_evicted *const *evicted, const uint32_t *n_evicted)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_EVICTED);
    put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_digest(&writer, *evicted, *n_evicted, KVPI_ELEMENT_EVICTED);
    kvpi_put_finish(&writer);
}

void kvpi_record_block_info_get(struct kvpi_recorder *recorder, uint32_t group, int32_t block,
                                kvp_status status, const kvp_block_info *info)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_BLOCK_INFO);
    kvpi_put_varint(&writer, group);
    kvpi_put_signed(&writer, block);
    put_status(&writer, status);
    if (status == KVP_OK) {
        kvpi_put_fields(&writer,
                        (const uint32_t[]){info->state, info->ref_count, info->generation,
                                           info->retention, info->sealed_units,
                                           info->sealed_tokens},
                        6);
        kvpi_put_bytes(&writer, info->hash.bytes, sizeof info->hash.bytes);
    }
    kvpi_put_finish(&writer);
}

void kvpi_record_block_tokens(struct kvpi_recorder *recorder, uint32_t group, int32_t block,
                              kvp_status status, const int32_t *tokens, const uint32_t *n_tokens)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_BLOCK_TOKENS);
    kvpi_put_varint(&writer, group);
    kvpi_put_signed(&writer, block);
    put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_digest(&writer, tokens, *n_tokens, KVPI_ELEMENT_32);
    kvpi_put_finish(&writer);
}

/* Calls on the cache itself: no arguments. */
static void begin_plain(struct kvpi_writer *writer, struct kvpi_recorder *recorder, uint8_t op,
                        kvp_status status)
{
    kvpi_put_begin(writer, recorder, op);
    put_status(writer, status);
}

void kvpi_record_cache_stats(struct kvpi_recorder *recorder, kvp_status status,
                             const kvp_stats *stats)
{
    struct kvpi_writer writer;
    begin_plain(&writer, recorder, KVP_CALL_STATS, status);
    if (status == KVP_OK)
        kvpi_put_digest(&writer, stats, sizeof *stats / 8, KVPI_ELEMENT_64);
    kvpi_put_finish(&writer);
}

void kvpi_record_cache_shortage(struct kvpi_recorder *recorder, kvp_status status,
                                const kvp_shortage *shortage)
{
    struct kvpi_writer writer;
    begin_plain(&writer, recorder, KVP_CALL_SHORTAGE, status);
    if (status == KVP_OK) {
        kvpi_put_signed(&writer, shortage->status);
        kvpi_put_varint(&writer, shortage->index);
        kvpi_put_varint(&writer, shortage->missing_blocks);
    }
    kvpi_put_finish(&writer);
}

void kvpi_record_check(struct kvpi_recorder *recorder, int level, kvp_status status,
                       const kvp_violation *violation)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_CHECK);
    kvpi_put_signed(&writer, level);
    put_status(&writer, status);
    if (status == KVP_E_CORRUPT) {
        kvpi_put_bytes(&writer, violation->invariant, sizeof violation->invariant);
        kvpi_put_varint(&writer, violation->object);
    }
    kvpi_put_finish(&writer);
}

void kvpi_record_cache_reset(struct kvpi_recorder *recorder, kvp_status status)
{
    struct kvpi_writer writer;
    begin_plain(&writer, recorder, KVP_CALL_RESET, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_cache_config(struct kvpi_recorder *recorder, kvp_status status,
                              const kvp_config *config)
{
    struct kvpi_writer writer;
    begin_plain(&writer, recorder, KVP_CALL_CONFIG, status);
    if (status == KVP_OK)
        put_config(&writer, config);
    kvpi_put_finish(&writer);
}
