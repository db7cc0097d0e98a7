/* record: the writer of operation logs. docs/OPLOG.md describes the bytes, src/oplog/decode.c
 * reads them: the two share nothing but that page, so that a mistake in one shows.
 *
 * Here: the header, and the calls that change sequences and namespaces or ask about a prompt or a
 * batch; tiers.c: plans, swaps, steps; trees.c: windows and trees; lend.c: what
 * stores need; read.c: all other calls that only read.
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
#include "core/record/record.h"

#include <string.h>

#include <kvpager/oplog.h>

#include "core/record/put.h"

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

static void put_prompt(struct kvpi_writer *writer, const kvp_prompt *prompt)
{
    kvpi_put_byte(writer, (uint8_t)(kvpi_put_has(prompt->tokens, KVPI_HAS_TOKENS) |
                                    kvpi_put_has(prompt->keys, KVPI_HAS_KEYS) |
                                    kvpi_put_has(prompt->hashes, KVPI_HAS_HASHES) |
                                    kvpi_put_has(prompt->uncached, KVPI_HAS_UNCACHED)));
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
        kvpi_put_keys(writer, prompt->keys, prompt->n_keys);
    if (prompt->uncached != NULL)
        put_ranges(writer, prompt->uncached, prompt->n_uncached);
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
                                       info->host_tokens, info->shared_blocks, info->host_blocks,
                                       info->cached_blocks, info->copied_tokens, info->taken_blocks,
                                       info->evicted_blocks, info->stop_group},
                    11);
}

static void put_config(struct kvpi_writer *writer, const kvp_config *config)
{
    uint64_t watermark;
    memcpy(&watermark, &config->watermark, sizeof watermark);
    kvpi_put_room(writer, KVPI_GROUP_BYTES);
    kvpi_put_fields(
        writer,
        (const uint32_t[]){config->block_tokens,    config->unit_tokens,    config->n_blocks,
                           config->max_seqs,        config->max_seq_tokens, config->max_namespaces,
                           config->n_nodes,         config->max_unit_keys,  config->max_copies,
                           config->commit_policy,   config->full_hit,       config->prefix_cache,
                           config->test_hash_bits,  config->host_blocks,    config->keep_evicted,
                           config->steps,           config->max_steps_out,  config->max_events,
                           config->max_tree_tokens, config->quotas,         config->max_loads,
                           config->lent_blocks,     config->n_groups},
        23);
    kvpi_put_room(writer, KVPI_GROUP_BYTES);
    for (uint32_t i = 0; i < config->n_groups; i++)
        kvpi_put_window(writer, config->groups[i]);
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
    recorder->max_seqs = resolved->max_seqs;
    recorder->max_tree_tokens = resolved->max_tree_tokens;
    recorder->failed = 0;
    struct kvpi_writer writer;
    writer.recorder = recorder;
    writer.n_bytes = 0;
    kvpi_put_bytes(&writer, KVPI_RECORD_MAGIC, 8);
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
    kvpi_put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_ns_open(struct kvpi_recorder *recorder, const void *name, size_t name_bytes,
                         kvp_status status, const kvp_ns *ns)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_NS_OPEN);
    kvpi_put_varint(&writer, name_bytes);
    kvpi_put_bytes(&writer, name, name_bytes);
    kvpi_put_status(&writer, status);
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

void kvpi_record_ns_quota(struct kvpi_recorder *recorder, kvp_ns ns, uint32_t tier,
                          uint32_t n_blocks, kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_NS_QUOTA);
    kvpi_put_handle(&writer, ns.bits);
    kvpi_put_varint(&writer, tier);
    kvpi_put_varint(&writer, n_blocks);
    kvpi_put_status(&writer, status);
    kvpi_put_finish(&writer);
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
    kvpi_put_status(&writer, status);
    if (status == KVP_OK)
        put_open_info(&writer, info);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_open(struct kvpi_recorder *recorder, kvp_ns ns, const kvp_prompt *prompt,
                          kvp_status status, const kvp_seq *seq, const kvp_open_info *info)
{
    struct kvpi_writer writer;
    begin_prompt(&writer, recorder, KVP_CALL_OPEN, ns, prompt);
    kvpi_put_status(&writer, status);
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
    kvpi_put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_admission(&writer, admission);
    kvpi_put_finish(&writer);
}

void kvpi_record_load_begin(struct kvpi_recorder *recorder, kvp_ns ns, const kvp_prompt *prompt,
                            const kvp_load *load, kvp_status status)
{
    struct kvpi_writer writer;
    begin_prompt(&writer, recorder, KVP_CALL_LOAD_BEGIN, ns, prompt);
    kvpi_put_room(&writer, KVPI_GROUP_BYTES);
    kvpi_put_fields(
        &writer,
        (const uint32_t[]){load->group, load->entries.begin, load->entries.end, load->spare_blocks},
        4);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK) {
        kvpi_put_varint(&writer, load->number);
        kvpi_put_varint(&writer, load->after);
        kvpi_put_fields(&writer,
                        (const uint32_t[]){load->n_blocks, load->n_found, load->n_elsewhere}, 3);
        kvpi_put_digest(&writer, load->blocks, load->entries.end - load->entries.begin,
                        KVPI_ELEMENT_32);
    }
    kvpi_put_finish(&writer);
}

static void put_token_values(struct kvpi_writer *writer, const int32_t *tokens, uint32_t n_tokens)
{
    kvpi_put_byte(writer, kvpi_put_has(tokens, KVPI_HAS_TOKENS));
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
    put_token_values(&writer, tokens, n_tokens);
    kvpi_put_status(&writer, status);
    kvpi_put_finish(&writer);
}

static void batch_call(struct kvpi_recorder *recorder, uint8_t op, const kvp_batch *batch,
                       kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, op);
    kvpi_put_batch(&writer, batch, NULL);
    kvpi_put_status(&writer, status);
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
    kvpi_put_batch(&writer, batch, NULL);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_admission(&writer, admission);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_fill(struct kvpi_recorder *recorder, kvp_seq seq, const int32_t *tokens,
                          uint32_t n_tokens, kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_FILL);
    kvpi_put_handle(&writer, seq.bits);
    put_token_values(&writer, tokens, n_tokens);
    kvpi_put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_commit(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t n_tokens,
                            kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_COMMIT);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_varint(&writer, n_tokens);
    kvpi_put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_commit_many(struct kvpi_recorder *recorder, const kvp_seq *seqs,
                                 const uint32_t *n_tokens, uint32_t n_seqs, kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_COMMIT_MANY);
    kvpi_put_varint(&writer, n_seqs);
    kvpi_put_handles(&writer, seqs, n_seqs);
    kvpi_put_varints(&writer, n_tokens, n_seqs);
    kvpi_put_status(&writer, status);
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
    kvpi_put_status(&writer, status);
    kvpi_put_report(&writer, capacity, status, seqs, n_seqs);
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
    kvpi_put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_handle(&writer, child->bits);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_truncate(struct kvpi_recorder *recorder, kvp_seq seq, uint32_t n_tokens,
                              kvp_status status, const kvp_released *released)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_TRUNCATE);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_varint(&writer, n_tokens);
    kvpi_put_released(&writer, status, released);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_close(struct kvpi_recorder *recorder, kvp_seq seq, kvp_status status,
                           const kvp_released *released)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_CLOSE);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_released(&writer, status, released);
    kvpi_put_finish(&writer);
}

void kvpi_record_seq_retain(struct kvpi_recorder *recorder, kvp_seq seq, kvp_range range,
                            uint32_t retention, kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_RETAIN);
    kvpi_put_handle(&writer, seq.bits);
    kvpi_put_fields(&writer, (const uint32_t[]){range.begin, range.end, retention}, 3);
    kvpi_put_status(&writer, status);
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
    kvpi_put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_cache_reset(struct kvpi_recorder *recorder, kvp_status status)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_RESET);
    kvpi_put_status(&writer, status);
    kvpi_put_finish(&writer);
}

void kvpi_record_cache_config(struct kvpi_recorder *recorder, kvp_status status,
                              const kvp_config *config)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_CONFIG);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK)
        put_config(&writer, config);
    kvpi_put_finish(&writer);
}
