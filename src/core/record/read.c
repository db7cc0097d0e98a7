/* record_read: records of the calls that read: sequences, blocks, evictions, events, the cache. */
#include "core/record/record.h"

#include <string.h>

#include <kvpager/oplog.h>

#include "core/record/put.h"

void kvpi_record_ns_info_get(struct kvpi_recorder *recorder, kvp_ns ns, kvp_status status,
                             const kvp_ns_info *info)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_NS_INFO);
    kvpi_put_handle(&writer, ns.bits);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK) {
        kvpi_put_varint(&writer, info->openers);
        kvpi_put_fields(&writer,
                        (const uint32_t[]){info->quota, info->blocks, info->cached_blocks,
                                           info->host_quota, info->host_blocks,
                                           info->host_cached_blocks},
                        6);
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
    kvpi_put_status(&writer, status);
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
    kvpi_put_status(&writer, status);
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
    kvpi_put_status(&writer, status);
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
    kvpi_put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_digest(&writer, slots, n_tokens, KVPI_ELEMENT_64);
    kvpi_put_finish(&writer);
}

void kvpi_record_cache_evicted(struct kvpi_recorder *recorder, kvp_status status,
                               const kvp_evicted *const *evicted, const uint32_t *n_evicted)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_EVICTED);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_digest(&writer, *evicted, *n_evicted, KVPI_ELEMENT_EVICTED);
    kvpi_put_finish(&writer);
}

void kvpi_record_block_info_get(struct kvpi_recorder *recorder, uint32_t group, uint32_t tier,
                                int32_t block, kvp_status status, const kvp_block_info *info)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_BLOCK_INFO);
    kvpi_put_varint(&writer, group);
    kvpi_put_varint(&writer, tier);
    kvpi_put_signed(&writer, block);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK) {
        kvpi_put_fields(&writer, (const uint32_t[]){info->state, info->ref_count}, 2);
        kvpi_put_varint(&writer, info->generation);
        kvpi_put_fields(&writer,
                        (const uint32_t[]){info->retention, info->sealed_units, info->sealed_tokens,
                                           info->group},
                        4);
        kvpi_put_bytes(&writer, info->hash.bytes, sizeof info->hash.bytes);
    }
    kvpi_put_finish(&writer);
}

void kvpi_record_block_tokens(struct kvpi_recorder *recorder, uint32_t group, uint32_t tier,
                              int32_t block, kvp_status status, const int32_t *tokens,
                              const uint32_t *n_tokens)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_BLOCK_TOKENS);
    kvpi_put_varint(&writer, group);
    kvpi_put_varint(&writer, tier);
    kvpi_put_signed(&writer, block);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_digest(&writer, tokens, *n_tokens, KVPI_ELEMENT_32);
    kvpi_put_finish(&writer);
}

void kvpi_record_cache_stats(struct kvpi_recorder *recorder, kvp_status status,
                             const kvp_stats *stats)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_STATS);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK)
        kvpi_put_digest(&writer, stats, sizeof *stats / 8, KVPI_ELEMENT_64);
    kvpi_put_finish(&writer);
}

void kvpi_record_cache_shortage(struct kvpi_recorder *recorder, kvp_status status,
                                const kvp_shortage *shortage)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_SHORTAGE);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK) {
        kvpi_put_signed(&writer, shortage->status);
        kvpi_put_varint(&writer, shortage->index);
        kvpi_put_varint(&writer, shortage->missing_blocks);
        kvpi_put_varint(&writer, shortage->tier);
    }
    kvpi_put_finish(&writer);
}

void kvpi_record_check(struct kvpi_recorder *recorder, int level, kvp_status status,
                       const kvp_violation *violation)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_CHECK);
    kvpi_put_signed(&writer, level);
    kvpi_put_status(&writer, status);
    if (status == KVP_E_CORRUPT) {
        kvpi_put_bytes(&writer, violation->invariant, sizeof violation->invariant);
        kvpi_put_varint(&writer, violation->object);
    }
    kvpi_put_finish(&writer);
}

/* --------------------------------------------------------------------------------------- events */

/* Only a stored unit has tokens, and only its place in the caller's array was written (R1). */
static void put_event_tokens(struct kvpi_writer *writer, const kvp_event *events,
                             const int32_t *tokens, uint32_t n_events)
{
    size_t unit_tokens = writer->recorder->unit_tokens;
    XXH3_state_t state;
    uint64_t n_tokens = 0;
    XXH3_64bits_reset(&state);
    for (size_t i = 0; i < n_events; i++) {
        kvpi_put_update(&state, tokens + i * unit_tokens, events[i].n_tokens, KVPI_ELEMENT_32);
        n_tokens += events[i].n_tokens;
    }
    kvpi_put_varint(writer, n_tokens);
    if (n_tokens > 0)
        kvpi_put_fixed(writer, XXH3_64bits_digest(&state), 8);
}

static void put_events(struct kvpi_writer *writer, int with_tokens, const kvp_event *events,
                       const int32_t *tokens, uint32_t n_events)
{
    kvpi_put_digest(writer, events, n_events, KVPI_ELEMENT_EVENT);
    if (with_tokens != 0)
        put_event_tokens(writer, events, tokens, n_events);
}

void kvpi_record_events_snapshot(struct kvpi_recorder *recorder, uint32_t capacity, int with_tokens,
                                 kvp_status status, const kvp_event *events, const int32_t *tokens,
                                 uint32_t n_events, uint64_t number)
{
    struct kvpi_writer writer;
    kvpi_put_begin(&writer, recorder, KVP_CALL_EVENTS_SNAPSHOT);
    kvpi_put_varint(&writer, capacity);
    kvpi_put_byte(&writer, with_tokens != 0);
    kvpi_put_status(&writer, status);
    if (status == KVP_OK || status == KVP_E_TOO_SMALL)
        kvpi_put_varint(&writer, number);
    if (status == KVP_E_TOO_SMALL || (status == KVP_OK && capacity == 0))
        kvpi_put_varint(&writer, n_events);
    else if (status == KVP_OK)
        put_events(&writer, with_tokens, events, tokens, n_events);
    kvpi_put_finish(&writer);
}
