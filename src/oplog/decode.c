/* decode: the reader of what src/core/record/put.c writes. Both follow docs/FORMATS.md, and
 * the table of calls, core/record/calls.def; here is how each kind of argument and result is read.
 *
 * D1  Nothing is believed. Every length is compared with the bytes that are left before anything is
 *     allocated or read; the smallest entry of a list has one byte, so a small log can ask for
 *     little memory only (the most: 32 bytes for a key of 4).
 * D2  One meaning has one form: a varint that is longer than needed, a bit or a status without
 *     meaning, is damage. So what decodes would be written the same again.
 * D3  The first mistake stops everything: status says what, `at` stays where.
 */
#include "oplog/decode.h"

#include "base/bytes.h"
#include "core/record/record.h"

#include <stdlib.h>
#include <string.h>

typedef struct kvpi_oplog_decoder decoder;
typedef struct kvpi_oplog_results results;

/* --------------------------------------------------------------------------------- small things */

static size_t left(const decoder *d)
{
    return (size_t)(d->end - d->at);
}

/* D3. Gives 0, for the caller to return. */
static int wrong_bytes(decoder *d, const uint8_t *at, kvp_status status)
{
    if (d->status == KVP_OK) {
        d->status = status;
        d->at = at;
    }
    return 0;
}

static int damaged(decoder *d, const uint8_t *at)
{
    return wrong_bytes(d, at, KVP_E_FORMAT);
}

static int take_byte(decoder *d, uint8_t *out)
{
    if (d->status != KVP_OK || left(d) < 1)
        return damaged(d, d->at);
    *out = *d->at++;
    return 1;
}

static int take_bytes(decoder *d, size_t n_bytes, const uint8_t **out)
{
    if (d->status != KVP_OK || left(d) < n_bytes)
        return damaged(d, d->at);
    *out = d->at;
    d->at += n_bytes;
    return 1;
}

/* Not inlined, as take_digest: many calls take one, and each copy is larger than the call. */
__attribute__((noinline)) static int take_fixed(decoder *d, unsigned n_bytes, uint64_t *out)
{
    const uint8_t *at;
    if (!take_bytes(d, n_bytes, &at))
        return 0;
    *out = kvpi_bytes_load(at, n_bytes);
    return 1;
}

static int take_u64(decoder *d, uint64_t *out)
{
    if (d->status != KVP_OK || !kvpi_varint_load(&d->at, d->end, UINT64_MAX, out))
        return damaged(d, d->at);
    return 1;
}

static int take_u32(decoder *d, uint32_t *out)
{
    uint64_t value;
    if (d->status != KVP_OK || !kvpi_varint_load(&d->at, d->end, UINT32_MAX, &value))
        return damaged(d, d->at);
    *out = (uint32_t)value;
    return 1;
}

static int take_i32(decoder *d, int32_t *out)
{
    uint32_t value;
    if (!take_u32(d, &value))
        return 0;
    uint32_t half = value >> 1;
    *out = (value & 1) != 0 ? -(int32_t)half - 1 : (int32_t)half;
    return 1;
}

static int take_hash(decoder *d, kvp_hash *out)
{
    const uint8_t *bytes;
    if (!take_bytes(d, sizeof out->bytes, &bytes))
        return 0;
    memcpy(out->bytes, bytes, sizeof out->bytes);
    return 1;
}

static int take_flag(decoder *d, uint32_t *out)
{
    const uint8_t *start = d->at;
    return take_u32(d, out) && (*out <= 1 || damaged(d, start));
}

static int take_level(decoder *d, uint32_t *out)
{
    int32_t level;
    if (!take_i32(d, &level))
        return 0;
    *out = (uint32_t)level;
    return 1;
}

/* The table's lists are statements: NOLINTBEGIN(bugprone-macro-parentheses) */
#define FIELD(kind, name) take_##kind(d, &value->name);
#define LOG_STRUCT(type, fields)                                                                   \
    static int take_##type(decoder *d, kvp_##type *value)                                          \
    {                                                                                              \
        fields return d->status == KVP_OK;                                                         \
    }
#include "core/record/calls.def"
/* NOLINTEND(bugprone-macro-parentheses) */

/* A number of entries that have at least `least` bytes each (D1). */
static int take_count(decoder *d, size_t least, uint32_t *out)
{
    const uint8_t *start = d->at;
    if (!take_u32(d, out))
        return 0;
    return *out <= left(d) / least || damaged(d, start);
}

/* Makes the buffer hold n entries; never NULL after success, even for none of them. */
static void *make(decoder *d, struct kvpi_oplog_buffer *buffer, size_t n, size_t entry_bytes)
{
    size_t n_bytes = n * entry_bytes; /* cannot overflow: n is at most what is left of a log (D1) */
    if (n_bytes < 64)
        n_bytes = 64;
    if (buffer->n_bytes < n_bytes) {
        void *data = realloc(buffer->data, n_bytes);
        if (data == NULL) {
            wrong_bytes(d, d->at, KVP_E_NO_MEMORY);
            return NULL;
        }
        buffer->data = data;
        buffer->n_bytes = n_bytes;
    }
    return buffer->data;
}

void kvpi_oplog_decoder_free(decoder *d)
{
    free(d->tokens.data);
    free(d->parents.data);
    free(d->keys.data);
    free(d->ranges.data);
    free(d->handles.data);
    free(d->counts.data);
    free(d->shared.data);
    memset(d, 0, sizeof *d);
}

/* --------------------------------------------------------------------------------------- arrays */

static int take_i32s(decoder *d, struct kvpi_oplog_buffer *buffer, uint64_t n, const int32_t **out)
{
    if (d->status != KVP_OK || n > left(d) / 4)
        return damaged(d, d->at);
    int32_t *values = make(d, buffer, (size_t)n, sizeof *values);
    if (values == NULL)
        return 0;
    for (size_t i = 0; i < n; i++)
        values[i] = (int32_t)(uint32_t)kvpi_bytes_load(d->at + 4 * i, 4);
    d->at += 4 * n;
    *out = values;
    return 1;
}

static int take_tokens(decoder *d, uint64_t n, const int32_t **out)
{
    return take_i32s(d, &d->tokens, n, out);
}

static int take_u64s(decoder *d, struct kvpi_oplog_buffer *buffer, uint32_t n, const uint64_t **out)
{
    if (d->status != KVP_OK || n > left(d))
        return damaged(d, d->at);
    uint64_t *values = make(d, buffer, n, sizeof *values);
    if (values == NULL)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!take_u64(d, &values[i]))
            return 0;
    *out = values;
    return 1;
}

static int take_counts(decoder *d, uint32_t n, const uint32_t **out)
{
    if (d->status != KVP_OK || n > left(d))
        return damaged(d, d->at);
    uint32_t *counts = make(d, &d->counts, n, sizeof *counts);
    if (counts == NULL)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!take_u32(d, &counts[i]))
            return 0;
    *out = counts;
    return 1;
}

static int take_keys(decoder *d, kvp_call *call)
{
    if (!take_count(d, 4, &call->n_keys))
        return 0;
    kvp_key *keys = make(d, &d->keys, call->n_keys, sizeof *keys);
    if (keys == NULL)
        return 0;
    for (uint32_t i = 0; i < call->n_keys; i++) {
        const uint8_t *bytes;
        if (!take_key(d, &keys[i]) || !take_bytes(d, keys[i].n_bytes, &bytes))
            return 0;
        keys[i].bytes = bytes;
    }
    call->keys = keys;
    return 1;
}

static int take_ranges(decoder *d, kvp_call *call)
{
    if (!take_count(d, 2, &call->n_ranges))
        return 0;
    kvp_range *ranges = make(d, &d->ranges, call->n_ranges, sizeof *ranges);
    if (ranges == NULL)
        return 0;
    for (uint32_t i = 0; i < call->n_ranges; i++)
        if (!take_range(d, &ranges[i]))
            return 0;
    call->ranges = ranges;
    return 1;
}

/* Bits for the pointers that were given; others are damage (D2). */
static int take_bits(decoder *d, unsigned known, unsigned *out)
{
    const uint8_t *start = d->at;
    uint8_t byte;
    if (!take_byte(d, &byte))
        return 0;
    *out = byte;
    return (byte & ~known) == 0 || damaged(d, start);
}

/* ------------------------------------------------------------------------------------ arguments */

static int take_name(decoder *d, kvp_call *call)
{
    return take_u32(d, &call->name_bytes) && take_bytes(d, call->name_bytes, &call->name);
}

static int take_hashes(decoder *d, kvp_call *call)
{
    const uint8_t *bytes;
    call->n_hashes = call->n_tokens / d->unit_tokens;
    if (call->n_hashes > left(d) / sizeof(kvp_hash))
        return damaged(d, d->at);
    if (!take_bytes(d, call->n_hashes * sizeof(kvp_hash), &bytes))
        return 0;
    call->hashes = (const kvp_hash *)(const void *)bytes; /* bytes only: any address will do */
    return 1;
}

static int take_prompt(decoder *d, kvp_call *call)
{
    unsigned bits;
    if (!take_bits(d, KVPI_HAS_TOKENS | KVPI_HAS_KEYS | KVPI_HAS_HASHES | KVPI_HAS_UNCACHED,
                   &bits) ||
        !take_u32(d, &call->reserve_tokens) || !take_u32(d, &call->flags) ||
        !take_u32(d, &call->retention) || !take_u64(d, &call->tag) || !take_u32(d, &call->n_tokens))
        return 0;
    return ((bits & KVPI_HAS_TOKENS) == 0 || take_tokens(d, call->n_tokens, &call->tokens)) &&
           ((bits & KVPI_HAS_HASHES) == 0 || take_hashes(d, call)) &&
           ((bits & KVPI_HAS_KEYS) == 0 || take_keys(d, call)) &&
           ((bits & KVPI_HAS_UNCACHED) == 0 || take_ranges(d, call));
}

static int take_values(decoder *d, kvp_call *call)
{
    unsigned bits;
    return take_bits(d, KVPI_HAS_TOKENS, &bits) && take_u32(d, &call->n_tokens) &&
           ((bits & KVPI_HAS_TOKENS) == 0 || take_tokens(d, call->n_tokens, &call->tokens));
}

static int take_blocks(decoder *d, kvp_call *call)
{
    return take_count(d, 4, &call->n_tokens) && take_tokens(d, call->n_tokens, &call->tokens);
}

/* Sequences, each with `least` bytes here and behind. */
static int take_handles(decoder *d, kvp_call *call, size_t least)
{
    return take_count(d, least, &call->n_seqs) &&
           take_u64s(d, &d->handles, call->n_seqs, &call->handles);
}

static int take_seqs(decoder *d, kvp_call *call)
{
    return take_handles(d, call, 1);
}

static int take_commits(decoder *d, kvp_call *call)
{
    return take_handles(d, call, 2) && take_counts(d, call->n_seqs, &call->counts);
}

/* The tokens of a batch: one for each sequence, or the sum of the counts. */
static uint64_t batch_tokens(const kvp_call *call)
{
    if (call->counts == NULL)
        return call->n_seqs;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < call->n_seqs; i++)
        sum += call->counts[i];
    return sum;
}

static int take_some_batch(decoder *d, kvp_call *call, unsigned known)
{
    unsigned bits;
    if (!take_bits(d, known, &bits) || !take_u32(d, &call->reserve_tokens) ||
        !take_u32(d, &call->flags) || !take_seqs(d, call) ||
        ((bits & KVPI_HAS_COUNTS) != 0 && !take_counts(d, call->n_seqs, &call->counts)))
        return 0;
    uint64_t n_tokens = batch_tokens(call);
    call->n_tokens = n_tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)n_tokens;
    return ((bits & KVPI_HAS_TOKENS) == 0 || take_tokens(d, n_tokens, &call->tokens)) &&
           ((bits & KVPI_HAS_KEYS) == 0 || take_keys(d, call)) &&
           ((bits & KVPI_HAS_PARENTS) == 0 || take_i32s(d, &d->parents, n_tokens, &call->parents));
}

static int take_batch(decoder *d, kvp_call *call)
{
    return take_some_batch(d, call, KVPI_HAS_TOKENS | KVPI_HAS_KEYS | KVPI_HAS_COUNTS);
}

static int take_tree_batch(decoder *d, kvp_call *call)
{
    return take_some_batch(d, call,
                           KVPI_HAS_TOKENS | KVPI_HAS_KEYS | KVPI_HAS_COUNTS | KVPI_HAS_PARENTS);
}

static int take_accept(decoder *d, kvp_call *call)
{
    if (!take_handles(d, call, 2))
        return 0;
    int32_t *leaves = make(d, &d->parents, call->n_seqs, sizeof *leaves);
    if (leaves == NULL)
        return 0;
    for (uint32_t i = 0; i < call->n_seqs; i++)
        if (!take_i32(d, &leaves[i]))
            return 0;
    call->leaves = leaves;
    return take_u32(d, &call->count);
}

/* What of the nodes to read. */
static int take_wanted(decoder *d, kvp_call *call)
{
    unsigned bits;
    if (!take_bits(d, KVPI_HAS_TOKENS | KVPI_HAS_PARENTS, &bits))
        return 0;
    call->with_tokens = (bits & KVPI_HAS_TOKENS) != 0;
    call->with_parents = (bits & KVPI_HAS_PARENTS) != 0;
    return 1;
}

/* -------------------------------------------------------------------------------------- results */

static int is_status(int number)
{
    switch (number) {
#define CASE(name, number_, class_, text) case number_:
        KVP_STATUS_TABLE(CASE)
#undef CASE
        return 1;
    default: return 0;
    }
}

static int take_status(decoder *d, results *r)
{
    uint8_t byte;
    uint64_t decisions = 0;
    r->bytes = d->at;
    if (!take_byte(d, &byte))
        return 0;
    int number = -(byte & 0x7f);
    if (!is_status(number))
        return damaged(d, r->bytes);
    r->outcome.status = (kvp_status)number;
    r->has_decisions = (byte & 0x80) != 0;
    if (r->has_decisions && !take_fixed(d, 4, &decisions))
        return 0;
    r->decisions = (uint32_t)decisions;
    return 1;
}

__attribute__((noinline)) static int take_digest(decoder *d, const kvp_call *call, results *r)
{
    (void)call;
    if (!take_u32(d, &r->outcome.n))
        return 0;
    r->has_array = 1;
    r->has_digest = r->outcome.n > 0;
    return !r->has_digest || take_fixed(d, 8, &r->digest);
}

static int take_statuses(decoder *d, const kvp_call *call, results *r)
{
    if ((call->flags & KVP_BATCH_EACH) == 0)
        return 1;
    if (!take_bytes(d, call->n_seqs, &r->statuses))
        return 0;
    r->outcome.n = call->n_seqs;
    for (uint32_t i = 0; i < call->n_seqs; i++)
        if (!is_status(-(int)r->statuses[i]))
            return damaged(d, r->statuses + i);
    return 1;
}

static int take_violation(decoder *d, const kvp_call *call, results *r)
{
    kvp_violation *violation = &r->outcome.u.violation;
    const uint8_t *invariant;
    (void)call;
    if (r->outcome.status != KVP_E_CORRUPT)
        return 1;
    if (!take_bytes(d, sizeof violation->invariant, &invariant) || !take_u64(d, &violation->object))
        return 0;
    memcpy(violation->invariant, invariant, sizeof violation->invariant);
    violation->detail = "";
    return 1;
}

/* There is always one group at least. */
static int take_groups(decoder *d, kvp_config *config)
{
    const uint8_t *start = d->at;
    if (!take_u32(d, &config->n_groups))
        return 0;
    if (config->n_groups < 1 || config->n_groups > KVP_GROUPS_MAX)
        return damaged(d, start);
    for (uint32_t i = 0; i < config->n_groups; i++) {
        if (!take_group(d, &config->groups[i]))
            return 0;
    }
    return 1;
}

static int take_whole_config(decoder *d, kvp_config *config)
{
    uint64_t watermark;
    if (!take_config(d, config) || !take_groups(d, config) || !take_fixed(d, 8, &watermark) ||
        !take_fixed(d, 8, &config->hash_seed) || !take_u32(d, &config->n_uncached_tokens) ||
        !take_tokens(d, config->n_uncached_tokens, &config->uncached_tokens))
        return 0;
    memcpy(&config->watermark, &watermark, sizeof config->watermark);
    return 1;
}

static int take_configuration(decoder *d, const kvp_call *call, results *r)
{
    kvp_config ignored;
    (void)call;
    (void)r;
    return take_whole_config(d, &ignored);
}

/* Does the array follow? If not, because it did not fit or was only asked for, then its length. */
static int take_array_or_length(decoder *d, uint32_t capacity, results *r, int *out_array)
{
    kvp_status status = r->outcome.status;
    *out_array = status == KVP_OK && capacity > 0;
    if (*out_array || (status != KVP_OK && status != KVP_E_TOO_SMALL))
        return 1;
    return take_u32(d, &r->outcome.n);
}

static int take_plan(decoder *d, const kvp_call *call, results *r)
{
    int array;
    return take_array_or_length(d, call->count, r, &array) && (!array || take_digest(d, call, r));
}

#define take_nodes take_plan

static int take_step(decoder *d, const kvp_call *call, results *r)
{
    return r->outcome.status != KVP_OK || call->count == 0 || take_u64(d, &r->outcome.number);
}

/* Room for no moves is room enough where there are none. */
static int take_moves(decoder *d, const kvp_call *call, results *r)
{
    int array;
    return take_array_or_length(d, 1, r, &array) && (!array || take_digest(d, call, r));
}

/* The sequences that an invalidate or a failed step reports: their number when it was asked for,
 * and they themselves when they fitted. */
static int take_report(decoder *d, const kvp_call *call, results *r)
{
    kvp_outcome *o = &r->outcome;
    int array;
    if (call->no_report != 0)
        return 1;
    return take_array_or_length(d, call->count, r, &array) &&
           (!array || (take_u32(d, &o->n) && take_u64s(d, &d->shared, o->n, &o->u64)));
}

/* The number of the newest event, also when the snapshot did not fit. */
static int take_newest(decoder *d, const kvp_call *call, results *r)
{
    kvp_status status = r->outcome.status;
    (void)call;
    return (status != KVP_OK && status != KVP_E_TOO_SMALL) || take_u64(d, &r->outcome.number);
}

static int take_events(decoder *d, const kvp_call *call, results *r)
{
    int array;
    if (!take_array_or_length(d, call->count, r, &array))
        return 0;
    if (!array)
        return 1;
    if (!take_digest(d, call, r))
        return 0;
    r->has_tokens = call->with_tokens != 0;
    return !r->has_tokens ||
           (take_u64(d, &r->n_tokens) && (r->n_tokens == 0 || take_fixed(d, 8, &r->token_digest)));
}

/* ------------------------------------------------------------------------------------ the whole */

kvp_status kvpi_oplog_decode_header(decoder *d, kvp_config *out_config)
{
    const uint8_t *start = d->at;
    const uint8_t *magic;
    if (!take_bytes(d, 8, &magic))
        return d->status;
    if (memcmp(magic, KVPI_RECORD_MAGIC, 8) != 0) {
        const int is_log = memcmp(magic, KVPI_RECORD_MAGIC, 6) == 0 && magic[7] == '\n';
        wrong_bytes(d, start, is_log ? KVP_E_VERSION : KVP_E_FORMAT);
        return d->status;
    }
    kvp_config config;
    memset(&config, 0, sizeof config);
    kvp_config_init(&config);
    start = d->at;
    if (!take_whole_config(d, &config))
        return d->status;
    /* Only what reading needs; the rest is for kvp_cache_create to judge. */
    if (config.unit_tokens < 1 || config.unit_tokens > KVP_BLOCK_TOKENS_MAX)
        damaged(d, start);
    if (d->status == KVP_OK) {
        d->unit_tokens = config.unit_tokens;
        *out_config = config;
    }
    return d->status;
}

/* After a mistake the rest takes nothing (D3). */
#define HANDLE(type, value) take_u64(d, &call->handle);
/* NOLINTBEGIN(bugprone-macro-parentheses): lists of statements, too */
#define ARG(kind, value, field) take_##kind(d, &call->field);
#define ARGS(kind, ...)         take_##kind(d, call);
#define LOG_CALL_BY_HAND(NAME, name, parameters, arguments, results)                               \
    case KVP_CALL_##NAME: arguments break;

static void take_arguments(decoder *d, kvp_call *call)
{
    const uint8_t *start = d->at;
    uint8_t op = 0;
    take_byte(d, &op);
    call->op = op;
    switch (op) {
#include "core/record/calls.def"
    default: damaged(d, start);
    }
}

#define NEW(type, value)        take_u64(d, &r->outcome.handle);
#define OUT(kind, value, field) take_##kind(d, &r->outcome.field);
#define OUTS(kind, ...)         take_##kind(d, call, r);
#define ON_OK(...)                                                                                 \
    if (r->outcome.status == KVP_OK) {                                                             \
        __VA_ARGS__                                                                                \
    }
#define LOG_CALL_BY_HAND(NAME, name, parameters, arguments, results)                               \
    case KVP_CALL_##NAME: results break;
/* NOLINTEND(bugprone-macro-parentheses) */

static void take_results(decoder *d, const kvp_call *call, results *r)
{
    switch (call->op) {
#include "core/record/calls.def"
    default: break;
    }
}

kvp_status kvpi_oplog_decode_record(decoder *d, kvp_call *out_call, results *out_results)
{
    memset(out_call, 0, sizeof *out_call);
    memset(out_results, 0, sizeof *out_results);
    take_arguments(d, out_call);
    take_status(d, out_results);
    take_results(d, out_call, out_results);
    return d->status;
}
