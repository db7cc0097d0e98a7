/* put: the writer of operation logs. docs/FORMATS.md describes the bytes, calls.def has the calls;
 * here is how each kind of argument and result is written. src/oplog/decode.c reads them.
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
 *     their little-endian bytes: replay makes them again and compares digests.
 * R2  After the sink refused bytes nothing is written any more: a log has no holes.
 * R3  `decisions` is 0 whenever no call runs.
 * R4  Before an item of a record is written there is room for a group of numbers. Whatever ends
 *     with an array makes that room again.
 */
#include "core/record/record.h"

#include <string.h>

#include <kvpager/oplog.h>

#include "core/record/put.h"

typedef struct kvpi_writer record_writer;

/* ---------------------------------------------------------------------------- numbers, structs */

/* Not inlined: records have hundreds of numbers, and storing one takes more code than the call. */
__attribute__((noinline)) static void log_u64(record_writer *writer, uint64_t value)
{
    kvpi_put_varint(writer, value);
}

#define log_u32   log_u64
#define log_flag  log_u64
#define log_i32   kvpi_put_signed
#define log_level kvpi_put_signed

static void log_handle(record_writer *writer, uint64_t bits)
{
    log_u64(writer, kvpi_record_flip(writer->recorder, bits));
}

static void log_hash(record_writer *writer, kvp_hash hash)
{
    kvpi_put_bytes(writer, hash.bytes, sizeof hash.bytes);
}

#define FIELD(kind, name) log_##kind(writer, value->name);
#define LOG_STRUCT(type, fields)                                                                   \
    static void log_##type(record_writer *writer, const kvp_##type *value)                         \
    {                                                                                              \
        fields                                                                                     \
    }
#include "core/record/calls.def"

_Static_assert(sizeof(kvp_open_info) == 11 * 4 && sizeof(kvp_admission) == 5 * 4 &&
                   sizeof(kvp_swapped) == 4 * 4 && sizeof(kvp_released) == 2 * 4 &&
                   sizeof(kvp_block_info) == 8 + 6 * 4 + 16 && sizeof(kvp_shortage) == 4 * 4 + 8 &&
                   sizeof(kvp_seq_info) == 3 * 8 + 16 * 4 && sizeof(kvp_window) == 2 * 4 &&
                   sizeof(kvp_window_info) == 4 * 4 && sizeof(kvp_ns_info) == 8 + 10 * 4,
               "every field is recorded, but those of slots in kvp_ns_info");

/* -------------------------------------------------------------------------------------- arrays */

static uint8_t has(const void *pointer, unsigned bit)
{
    return (uint8_t)(pointer != NULL ? bit : 0);
}

static void log_tokens(record_writer *writer, const int32_t *tokens, size_t n)
{
    if (tokens != NULL)
        kvpi_put_array(writer, tokens, n, KVPI_ELEMENT_32);
}

static void log_keys(record_writer *writer, const kvp_key *keys, uint32_t n_keys)
{
    if (keys == NULL)
        return;
    kvpi_put_room(writer, KVPI_GROUP_BYTES);
    log_u32(writer, n_keys);
    for (uint32_t i = 0; i < n_keys; i++) {
        kvpi_put_room(writer, KVPI_GROUP_BYTES);
        log_key(writer, &keys[i]);
        kvpi_put_bytes(writer, keys[i].bytes, keys[i].n_bytes);
    }
}

static void log_ranges(record_writer *writer, const kvp_range *ranges, uint32_t n_ranges)
{
    if (ranges == NULL)
        return;
    kvpi_put_room(writer, KVPI_GROUP_BYTES);
    log_u32(writer, n_ranges);
    for (uint32_t i = 0; i < n_ranges; i++) {
        kvpi_put_room(writer, KVPI_GROUP_BYTES);
        log_range(writer, &ranges[i]);
    }
}

static void log_configuration(record_writer *writer, const kvp_config *config)
{
    uint64_t watermark;
    memcpy(&watermark, &config->watermark, sizeof watermark);
    kvpi_put_room(writer, KVPI_GROUP_BYTES);
    log_config(writer, config);
    log_u32(writer, config->n_groups);
    kvpi_put_room(writer, KVPI_GROUP_BYTES);
    for (uint32_t i = 0; i < config->n_groups; i++)
        log_group(writer, &config->groups[i]);
    kvpi_put_room(writer, KVPI_GROUP_BYTES);
    kvpi_put_fixed(writer, watermark, 8);
    kvpi_put_fixed(writer, config->hash_seed, 8);
    log_u32(writer, config->n_uncached_tokens);
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
    record_writer writer;
    writer.recorder = recorder;
    writer.n_bytes = 0;
    kvpi_put_bytes(&writer, KVPI_RECORD_MAGIC, sizeof KVPI_RECORD_MAGIC - 1);
    log_configuration(&writer, resolved);
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

/* ----------------------------------------------------------------------------------- arguments */

static void log_name(record_writer *writer, const void *name, size_t n_bytes)
{
    log_u64(writer, n_bytes);
    kvpi_put_bytes(writer, name, n_bytes);
}

static void log_values(record_writer *writer, const int32_t *tokens, uint32_t n_tokens)
{
    kvpi_put_byte(writer, has(tokens, KVPI_HAS_TOKENS));
    log_u64(writer, n_tokens);
    log_tokens(writer, tokens, n_tokens);
}

static void log_blocks(record_writer *writer, const int32_t *blocks, uint32_t n_blocks)
{
    log_u64(writer, n_blocks);
    kvpi_put_array(writer, blocks, n_blocks, KVPI_ELEMENT_32);
}

static void log_prompt(record_writer *writer, const kvp_prompt *prompt)
{
    kvpi_put_byte(writer, has(prompt->tokens, KVPI_HAS_TOKENS) | has(prompt->keys, KVPI_HAS_KEYS) |
                              has(prompt->hashes, KVPI_HAS_HASHES) |
                              has(prompt->uncached, KVPI_HAS_UNCACHED));
    log_u64(writer, prompt->reserve_tokens);
    log_u64(writer, prompt->flags);
    log_u64(writer, prompt->retention);
    log_u64(writer, prompt->tag);
    log_u64(writer, prompt->n_tokens);
    log_tokens(writer, prompt->tokens, prompt->n_tokens);
    if (prompt->hashes != NULL)
        kvpi_put_bytes(writer, prompt->hashes,
                       (size_t)(prompt->n_tokens / writer->recorder->unit_tokens) *
                           sizeof(kvp_hash));
    log_keys(writer, prompt->keys, prompt->n_keys);
    log_ranges(writer, prompt->uncached, prompt->n_uncached);
}

static void log_seqs(record_writer *writer, const kvp_seq *seqs, uint32_t n_seqs)
{
    log_u64(writer, n_seqs);
    for (uint32_t i = 0; i < n_seqs; i++) {
        kvpi_put_room(writer, KVPI_VARINT_BYTES);
        kvpi_put_handle(writer, seqs[i].bits);
    }
}

static void log_counts(record_writer *writer, const uint32_t *counts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        kvpi_put_room(writer, KVPI_VARINT_BYTES);
        kvpi_put_varint(writer, counts[i]);
    }
}

static void log_commits(record_writer *writer, const kvp_seq *seqs, const uint32_t *n_tokens,
                        uint32_t n_seqs)
{
    log_seqs(writer, seqs, n_seqs);
    log_counts(writer, n_tokens, n_seqs);
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

/* Parents stand behind all that the other batches have, too. */
static void log_tree_batch(record_writer *writer, const kvp_batch *batch, const int32_t *parents)
{
    kvpi_put_byte(writer, has(batch->tokens, KVPI_HAS_TOKENS) | has(batch->keys, KVPI_HAS_KEYS) |
                              has(batch->n_tokens, KVPI_HAS_COUNTS) |
                              has(parents, KVPI_HAS_PARENTS));
    log_u64(writer, batch->reserve_tokens);
    log_u64(writer, batch->flags);
    log_seqs(writer, batch->seqs, batch->n_seqs);
    if (batch->n_tokens != NULL)
        log_counts(writer, batch->n_tokens, batch->n_seqs);
    size_t n_tokens = batch->tokens != NULL || parents != NULL ? sum_of_counts(batch) : 0;
    log_tokens(writer, batch->tokens, n_tokens);
    log_keys(writer, batch->keys, batch->n_keys);
    log_tokens(writer, parents, n_tokens);
}

static void log_batch(record_writer *writer, const kvp_batch *batch)
{
    log_tree_batch(writer, batch, NULL);
}

/* More room than there can be moves is written as that: a replay of the call from a log
 * needs the room, because it is the distance of the groups' moves, too. */
static uint32_t useful_moves(const struct kvpi_recorder *recorder, const kvp_accept *accept)
{
    uint32_t n_seqs = accept->n_seqs < recorder->max_seqs ? accept->n_seqs : recorder->max_seqs;
    uint64_t most = (uint64_t)n_seqs * recorder->max_tree_tokens;
    return most < accept->max_moves ? (uint32_t)most : accept->max_moves;
}

static void log_accept(record_writer *writer, const kvp_accept *accept)
{
    log_seqs(writer, accept->seqs, accept->n_seqs);
    for (uint32_t i = 0; i < accept->n_seqs; i++) {
        kvpi_put_room(writer, KVPI_VARINT_BYTES);
        kvpi_put_signed(writer, accept->leaves[i]);
    }
    kvpi_put_room(writer, KVPI_VARINT_BYTES);
    log_u64(writer, useful_moves(writer->recorder, accept));
}

/* Which of the arrays of a tree were asked for. */
static void log_wanted(record_writer *writer, const int32_t *tokens, const int32_t *parents)
{
    kvpi_put_byte(writer, has(tokens, KVPI_HAS_TOKENS) | has(parents, KVPI_HAS_PARENTS));
}

/* ------------------------------------------------------------------------------------- results */

#define log_digest kvpi_put_digest

/* Ends the arguments: status, decisions (R3). Leaves room for a group of results. */
__attribute__((noinline)) static void log_status(record_writer *writer, kvp_status status)
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

static void log_statuses(record_writer *writer, const kvp_batch *batch)
{
    for (uint32_t i = 0; i < batch->n_seqs && (batch->flags & KVP_BATCH_EACH) != 0; i++) {
        kvpi_put_room(writer, 1);
        kvpi_put_byte(writer, (uint8_t) - (int)batch->statuses[i]);
    }
}

static void log_violation(record_writer *writer, kvp_status status, const kvp_violation *violation)
{
    if (status != KVP_E_CORRUPT)
        return;
    kvpi_put_bytes(writer, violation->invariant, sizeof violation->invariant);
    log_u64(writer, violation->object);
}

/* Is the array written? If not, because it did not fit or was only asked for, then its length. */
static int log_array_or_length(record_writer *writer, kvp_status status, uint32_t capacity,
                               const uint32_t *n)
{
    if (status == KVP_OK && capacity > 0)
        return 1;
    if (status == KVP_OK || status == KVP_E_TOO_SMALL)
        log_u32(writer, *n);
    return 0;
}

static void log_plan(record_writer *writer, kvp_status status, uint32_t capacity,
                     const kvp_copy *copies, const uint32_t *n_copies)
{
    if (log_array_or_length(writer, status, capacity, n_copies))
        kvpi_put_digest(writer, copies, *n_copies, KVPI_ELEMENT_COPY);
}

static void log_step(record_writer *writer, kvp_status status, uint32_t capacity, uint64_t step)
{
    if (status == KVP_OK && capacity > 0)
        log_u64(writer, step);
}

/* Sequences whose KV is wrong: their number when it was asked for, they themselves when they
 * fitted. */
static void log_report(record_writer *writer, kvp_status status, uint32_t capacity,
                       const kvp_seq *seqs, const uint32_t *n_seqs)
{
    if (n_seqs != NULL && log_array_or_length(writer, status, capacity, n_seqs))
        log_seqs(writer, seqs, *n_seqs);
}

static void log_newest(record_writer *writer, kvp_status status, uint64_t number)
{
    if (status == KVP_OK || status == KVP_E_TOO_SMALL)
        log_u64(writer, number);
}

/* The digest of arrays that lie in several places; n is 0 when they have nothing. */
static void log_pieces(record_writer *writer, uint64_t n, const XXH3_state_t *state)
{
    kvpi_put_varint(writer, n);
    if (n > 0)
        kvpi_put_fixed(writer, XXH3_64bits_digest(state), 8);
}

/* Only a stored unit has tokens, and only its place in the caller's array was written (R1). */
static void log_events(record_writer *writer, kvp_status status, uint32_t capacity, int with_tokens,
                       const kvp_event *events, const int32_t *tokens, uint32_t n_events)
{
    size_t unit_tokens = writer->recorder->unit_tokens;
    uint64_t n_tokens = 0;
    XXH3_state_t state;
    if (!log_array_or_length(writer, status, capacity, &n_events))
        return;
    kvpi_put_digest(writer, events, n_events, KVPI_ELEMENT_EVENT);
    if (with_tokens == 0)
        return;
    XXH3_64bits_reset(&state);
    for (size_t i = 0; i < n_events; i++) {
        kvpi_put_update(&state, tokens + i * unit_tokens, events[i].n_tokens, KVPI_ELEMENT_32);
        n_tokens += events[i].n_tokens;
    }
    log_pieces(writer, n_tokens, &state);
}

/* One group after the other, without what is left free between them. */
static void log_moves(record_writer *writer, kvp_status status, const kvp_accept *accept,
                      uint32_t n_groups)
{
    XXH3_state_t state;
    if (!log_array_or_length(writer, status, accept->n_moves, &accept->n_moves))
        return;
    XXH3_64bits_reset(&state);
    for (size_t group = 0; group < n_groups; group++)
        kvpi_put_update(&state, accept->moves + group * accept->max_moves, accept->n_moves,
                        KVPI_ELEMENT_MOVE);
    log_pieces(writer, accept->n_moves, &state);
}

/* The nodes' tokens, then their parents, as far as they were asked for. */
static void log_nodes(record_writer *writer, kvp_status status, uint32_t capacity,
                      const int32_t *tokens, const int32_t *parents, const uint32_t *n_nodes)
{
    XXH3_state_t state;
    if (!log_array_or_length(writer, status, capacity, n_nodes))
        return;
    XXH3_64bits_reset(&state);
    if (tokens != NULL)
        kvpi_put_update(&state, tokens, *n_nodes, KVPI_ELEMENT_32);
    if (parents != NULL)
        kvpi_put_update(&state, parents, *n_nodes, KVPI_ELEMENT_32);
    log_pieces(writer, *n_nodes, &state);
}

/* ----------------------------------------------------------------------------------- the calls */

#define HANDLE(type, value)     log_handle(&writer, (value).bits);
#define NEW(type, value)        log_handle(&writer, (value)->bits);
#define ARG(kind, value, field) log_##kind(&writer, value);
#define OUT(kind, value, field) log_##kind(&writer, value);
#define ARGS(kind, ...)                                                                            \
    log_##kind(&writer, __VA_ARGS__);                                                              \
    kvpi_put_room(&writer, KVPI_GROUP_BYTES);
#define OUTS(kind, ...) log_##kind(&writer, __VA_ARGS__);
#define ON_OK(...)                                                                                 \
    if (status == KVP_OK) {                                                                        \
        __VA_ARGS__                                                                                \
    }
#define LOG_CALL_BY_HAND(NAME, name, parameters, arguments, results)                               \
    void kvpi_record_##name(struct kvpi_recorder *recorder, KVPI_RECORD_LIST parameters)           \
    {                                                                                              \
        record_writer writer;                                                                      \
        kvpi_put_begin(&writer, recorder, KVP_CALL_##NAME);                                        \
        arguments log_status(&writer, status);                                                     \
        results kvpi_put_finish(&writer);                                                          \
    }
#include "core/record/calls.def"
