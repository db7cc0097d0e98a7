/* oplog_decode: the reader of what src/core/record/record.c writes; docs/OPLOG.md describes what
 * both follow.
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

enum {
    HAS_TOKENS = 1,
    HAS_KEYS = 2,
    HAS_HASHES = 4,
    HAS_UNCACHED = 8,
    HAS_COUNTS = 16,
    HAS_PARENTS = 32
};

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

static int take_fixed(decoder *d, unsigned n_bytes, uint64_t *out)
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

static int take_signed(decoder *d, int32_t *out)
{
    uint32_t value;
    if (!take_u32(d, &value))
        return 0;
    uint32_t half = value >> 1;
    *out = (value & 1) != 0 ? -(int32_t)half - 1 : (int32_t)half;
    return 1;
}

/* Numbers one after the other; NULL ends the list. */
static int take_fields(decoder *d, uint32_t *const *fields)
{
    for (; *fields != NULL; fields++)
        if (!take_u32(d, *fields))
            return 0;
    return 1;
}

#define TAKE_FIELDS(d, ...) take_fields(d, (uint32_t *const[]){__VA_ARGS__, NULL})

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

static int take_handles(decoder *d, struct kvpi_oplog_buffer *buffer, uint32_t n,
                        const uint64_t **out)
{
    if (d->status != KVP_OK || n > left(d))
        return damaged(d, d->at);
    uint64_t *handles = make(d, buffer, n, sizeof *handles);
    if (handles == NULL)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!take_u64(d, &handles[i]))
            return 0;
    *out = handles;
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
        if (!TAKE_FIELDS(d, &keys[i].type, &keys[i].begin, &keys[i].end, &keys[i].n_bytes) ||
            !take_bytes(d, keys[i].n_bytes, &bytes))
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
        if (!TAKE_FIELDS(d, &ranges[i].begin, &ranges[i].end))
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
    if (!take_u64(d, &call->handle) ||
        !take_bits(d, HAS_TOKENS | HAS_KEYS | HAS_HASHES | HAS_UNCACHED, &bits) ||
        !TAKE_FIELDS(d, &call->reserve_tokens, &call->flags, &call->retention) ||
        !take_u64(d, &call->tag) || !take_u32(d, &call->n_tokens))
        return 0;
    return ((bits & HAS_TOKENS) == 0 || take_tokens(d, call->n_tokens, &call->tokens)) &&
           ((bits & HAS_HASHES) == 0 || take_hashes(d, call)) &&
           ((bits & HAS_KEYS) == 0 || take_keys(d, call)) &&
           ((bits & HAS_UNCACHED) == 0 || take_ranges(d, call));
}

static int take_values(decoder *d, kvp_call *call)
{
    unsigned bits;
    return take_bits(d, HAS_TOKENS, &bits) && take_u32(d, &call->n_tokens) &&
           ((bits & HAS_TOKENS) == 0 || take_tokens(d, call->n_tokens, &call->tokens));
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

static int take_batch(decoder *d, kvp_call *call)
{
    unsigned bits;
    unsigned more = call->op == KVP_CALL_EXTEND_TREE ? HAS_PARENTS : 0;
    if (!take_bits(d, HAS_TOKENS | HAS_KEYS | HAS_COUNTS | more, &bits) ||
        !TAKE_FIELDS(d, &call->reserve_tokens, &call->flags) || !take_count(d, 1, &call->n_seqs) ||
        !take_handles(d, &d->handles, call->n_seqs, &call->handles) ||
        ((bits & HAS_COUNTS) != 0 && !take_counts(d, call->n_seqs, &call->counts)))
        return 0;
    uint64_t n_tokens = batch_tokens(call);
    call->n_tokens = n_tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)n_tokens;
    return ((bits & HAS_TOKENS) == 0 || take_tokens(d, n_tokens, &call->tokens)) &&
           ((bits & HAS_KEYS) == 0 || take_keys(d, call)) &&
           ((bits & HAS_PARENTS) == 0 || take_i32s(d, &d->parents, n_tokens, &call->parents));
}

static int take_commits(decoder *d, kvp_call *call)
{
    return take_count(d, 2, &call->n_seqs) &&
           take_handles(d, &d->handles, call->n_seqs, &call->handles) &&
           take_counts(d, call->n_seqs, &call->counts);
}

static int take_leaves(decoder *d, kvp_call *call)
{
    int32_t *leaves = make(d, &d->parents, call->n_seqs, sizeof *leaves);
    if (leaves == NULL)
        return 0;
    for (uint32_t i = 0; i < call->n_seqs; i++)
        if (!take_signed(d, &leaves[i]))
            return 0;
    call->leaves = leaves;
    return 1;
}

static int take_accept(decoder *d, kvp_call *call)
{
    return take_count(d, 2, &call->n_seqs) &&
           take_handles(d, &d->handles, call->n_seqs, &call->handles) && take_leaves(d, call) &&
           take_u32(d, &call->count);
}

/* Which nodes to read, and what of them. */
static int take_nodes_call(decoder *d, kvp_call *call)
{
    unsigned bits;
    if (!take_u32(d, &call->count) || !take_bits(d, HAS_TOKENS | HAS_PARENTS, &bits))
        return 0;
    call->with_tokens = (bits & HAS_TOKENS) != 0;
    call->with_parents = (bits & HAS_PARENTS) != 0;
    return 1;
}

static int take_windows(decoder *d, kvp_window *window)
{
    return TAKE_FIELDS(d, &window->sink_tokens, &window->recent_tokens);
}

static int take_seqs(decoder *d, kvp_call *call)
{
    return take_count(d, 1, &call->n_seqs) &&
           take_handles(d, &d->handles, call->n_seqs, &call->handles);
}

static int take_events_call(decoder *d, kvp_call *call)
{
    unsigned bits;
    if (!take_u32(d, &call->count) || !take_bits(d, HAS_TOKENS, &bits))
        return 0;
    call->with_tokens = bits & HAS_TOKENS;
    return 1;
}

static int take_level(decoder *d, kvp_call *call)
{
    int32_t level;
    if (!take_signed(d, &level))
        return 0;
    call->position = (uint32_t)level;
    return 1;
}

static int take_no_report(decoder *d, kvp_call *call)
{
    const uint8_t *start = d->at;
    return take_u32(d, &call->no_report) && (call->no_report <= 1 || damaged(d, start));
}

/* Arguments of calls on a sequence, after its handle. */
static int take_seq_call(decoder *d, kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_EXTEND: return take_u32(d, &call->reserve_tokens) && take_values(d, call);
    case KVP_CALL_FILL: return take_values(d, call);
    case KVP_CALL_COMMIT:
    case KVP_CALL_TRUNCATE:
    case KVP_CALL_SEQ_BLOCK_TOKENS: return take_u32(d, &call->position);
    case KVP_CALL_INVALIDATE:
        return TAKE_FIELDS(d, &call->position, &call->count) && take_no_report(d, call);
    case KVP_CALL_FORK: return take_u32(d, &call->position) && take_u64(d, &call->tag);
    case KVP_CALL_SEQ_TOKENS: return TAKE_FIELDS(d, &call->position, &call->count);
    case KVP_CALL_ROW:
    case KVP_CALL_WINDOW_GET: return take_u32(d, &call->group);
    case KVP_CALL_WINDOW: return take_u32(d, &call->group) && take_windows(d, &call->window);
    case KVP_CALL_TREE: return take_nodes_call(d, call);
    case KVP_CALL_SLOTS: return TAKE_FIELDS(d, &call->group, &call->position, &call->count);
    case KVP_CALL_RETAIN:
        return TAKE_FIELDS(d, &call->range.begin, &call->range.end, &call->retention);
    case KVP_CALL_UNCACHE: return TAKE_FIELDS(d, &call->range.begin, &call->range.end);
    case KVP_CALL_NS_QUOTA: return TAKE_FIELDS(d, &call->tier, &call->count);
    default: return 1; /* close, namespaces: the handle is all */
    }
}

/* Arguments of calls about tiers, steps and events: those without a handle in front. */
static int take_tier_call(decoder *d, kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_OUT: return take_seqs(d, call);
    case KVP_CALL_SWAP_IN:
    case KVP_CALL_CAN_SWAP_IN: return take_seqs(d, call) && take_u32(d, &call->reserve_tokens);
    case KVP_CALL_STEP_COMMIT: return take_u64(d, &call->number) && take_commits(d, call);
    case KVP_CALL_STEP_DONE: return take_u64(d, &call->number);
    case KVP_CALL_STEP_FAILED:
        return take_u64(d, &call->number) && take_u32(d, &call->count) && take_no_report(d, call);
    default: return take_events_call(d, call); /* the snapshot */
    }
}

/* Arguments of calls that stores need. */
static int take_lend_call(decoder *d, kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_MIRROR:
    case KVP_CALL_BLOCKS_LEND:
    case KVP_CALL_BLOCKS_RETURN:
        return take_count(d, 4, &call->n_tokens) && take_tokens(d, call->n_tokens, &call->tokens) &&
               (call->op != KVP_CALL_MIRROR || take_u32(d, &call->count));
    case KVP_CALL_LOAD_BEGIN:
        return take_prompt(d, call) &&
               TAKE_FIELDS(d, &call->group, &call->range.begin, &call->range.end, &call->count);
    case KVP_CALL_LOAD_DONE: return take_u64(d, &call->number) && take_name(d, call);
    default: return take_u64(d, &call->number); /* plan_done, load_cancel */
    }
}

static int take_arguments(decoder *d, kvp_call *call)
{
    if (call->op >= KVP_CALL_PLAN_DONE)
        return take_lend_call(d, call);
    switch (call->op) {
    case KVP_CALL_NS_OPEN: return take_name(d, call);
    case KVP_CALL_MATCH:
    case KVP_CALL_OPEN:
    case KVP_CALL_CAN_OPEN: return take_prompt(d, call);
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_FILL_MANY:
    case KVP_CALL_CAN_EXTEND:
    case KVP_CALL_EXTEND_TREE: return take_batch(d, call);
    case KVP_CALL_ACCEPT: return take_accept(d, call);
    case KVP_CALL_COMMIT_MANY: return take_commits(d, call);
    case KVP_CALL_PLAN_TAKE:
    case KVP_CALL_STEP_BEGIN: return take_u32(d, &call->count);
    case KVP_CALL_BLOCK_INFO:
    case KVP_CALL_BLOCK_TOKENS:
        return TAKE_FIELDS(d, &call->group, &call->tier) && take_signed(d, &call->block);
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_SWAP_IN:
    case KVP_CALL_CAN_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_IN:
    case KVP_CALL_STEP_COMMIT:
    case KVP_CALL_STEP_DONE:
    case KVP_CALL_STEP_FAILED:
    case KVP_CALL_EVENTS_SNAPSHOT: return take_tier_call(d, call);
    case KVP_CALL_CHECK: return take_level(d, call);
    case KVP_CALL_EVICTED:
    case KVP_CALL_STATS:
    case KVP_CALL_SHORTAGE:
    case KVP_CALL_RESET:
    case KVP_CALL_CONFIG: return 1;
    default: return take_u64(d, &call->handle) && take_seq_call(d, call);
    }
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
    const uint8_t *start = d->at;
    uint8_t byte;
    uint64_t decisions = 0;
    if (!take_byte(d, &byte))
        return 0;
    int number = -(byte & 0x7f);
    if (!is_status(number))
        return damaged(d, start);
    r->outcome.status = (kvp_status)number;
    r->has_decisions = (byte & 0x80) != 0;
    if (r->has_decisions && !take_fixed(d, 4, &decisions))
        return 0;
    r->decisions = (uint32_t)decisions;
    return 1;
}

static int take_digest(decoder *d, results *r)
{
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

static int take_open_info(decoder *d, kvp_open_info *info)
{
    return TAKE_FIELDS(d, &info->cached_tokens, &info->hit_tokens, &info->stop, &info->host_tokens,
                       &info->shared_blocks, &info->host_blocks, &info->cached_blocks,
                       &info->copied_tokens, &info->taken_blocks, &info->evicted_blocks,
                       &info->stop_group);
}

static int take_admission(decoder *d, kvp_admission *admission)
{
    return TAKE_FIELDS(d, &admission->verdict, &admission->need_blocks, &admission->available,
                       &admission->missing_blocks, &admission->copied_blocks);
}

static int take_ns_info(decoder *d, kvp_ns_info *info)
{
    return take_u64(d, &info->openers) &&
           TAKE_FIELDS(d, &info->quota, &info->blocks, &info->cached_blocks, &info->host_quota,
                       &info->host_blocks, &info->host_cached_blocks);
}

static int take_block_info(decoder *d, kvp_block_info *info)
{
    const uint8_t *hash;
    if (!TAKE_FIELDS(d, &info->state, &info->ref_count) || !take_u64(d, &info->generation) ||
        !TAKE_FIELDS(d, &info->retention, &info->sealed_units, &info->sealed_tokens,
                     &info->group) ||
        !take_bytes(d, sizeof info->hash.bytes, &hash))
        return 0;
    memcpy(info->hash.bytes, hash, sizeof info->hash.bytes);
    return 1;
}

static int take_violation(decoder *d, kvp_violation *violation)
{
    const uint8_t *invariant;
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
    for (uint32_t i = 0; i < config->n_groups; i++)
        if (!take_windows(d, &config->groups[i]))
            return 0;
    return 1;
}

static int take_config(decoder *d, kvp_config *config)
{
    uint64_t watermark, seed;
    if (!TAKE_FIELDS(
            d, &config->block_tokens, &config->unit_tokens, &config->n_blocks, &config->max_seqs,
            &config->max_seq_tokens, &config->max_namespaces, &config->n_nodes,
            &config->max_unit_keys, &config->max_copies, &config->commit_policy, &config->full_hit,
            &config->prefix_cache, &config->test_hash_bits, &config->host_blocks,
            &config->keep_evicted, &config->steps, &config->max_steps_out, &config->max_events,
            &config->max_tree_tokens, &config->quotas, &config->max_loads, &config->lent_blocks) ||
        !take_groups(d, config) || !take_fixed(d, 8, &watermark) || !take_fixed(d, 8, &seed) ||
        !take_u32(d, &config->n_uncached_tokens) ||
        !take_tokens(d, config->n_uncached_tokens, &config->uncached_tokens))
        return 0;
    memcpy(&config->watermark, &watermark, sizeof config->watermark);
    config->hash_seed = seed;
    return 1;
}

static int take_shortage(decoder *d, kvp_shortage *shortage)
{
    return take_signed(d, &shortage->status) && take_u32(d, &shortage->index) &&
           take_u64(d, &shortage->missing_blocks) && take_u32(d, &shortage->tier);
}

static int take_swapped(decoder *d, kvp_swapped *swapped)
{
    return TAKE_FIELDS(d, &swapped->copied_blocks, &swapped->found_blocks,
                       &swapped->released.freed_blocks, &swapped->released.cached_blocks);
}

static int take_window_info(decoder *d, kvp_window_info *info)
{
    return take_windows(d, &info->window) &&
           TAKE_FIELDS(d, &info->dropped_begin, &info->dropped_end);
}

static int take_load(decoder *d, results *r)
{
    kvp_load *load = &r->outcome.u.load;
    return take_u64(d, &load->number) && take_u64(d, &load->after) &&
           TAKE_FIELDS(d, &load->n_blocks, &load->n_found, &load->n_elsewhere) && take_digest(d, r);
}

static int take_events(decoder *d, const kvp_call *call, results *r)
{
    if (!take_digest(d, r))
        return 0;
    r->has_tokens = call->with_tokens != 0;
    if (!r->has_tokens)
        return 1;
    return take_u64(d, &r->n_tokens) && (r->n_tokens == 0 || take_fixed(d, 8, &r->token_digest));
}

/* The number of the newest event comes first, also when the snapshot did not fit. */
static int take_snapshot(decoder *d, const kvp_call *call, results *r)
{
    kvp_status status = r->outcome.status;
    if (status != KVP_OK && status != KVP_E_TOO_SMALL)
        return 1;
    if (!take_u64(d, &r->outcome.number))
        return 0;
    return status == KVP_OK && call->count > 0 ? take_events(d, call, r)
                                               : take_u32(d, &r->outcome.n);
}

/* The sequences that an invalidate or a failed step reports: their number when it was asked for,
 * and they themselves when they fitted. */
static int take_reported(decoder *d, const kvp_call *call, results *r)
{
    kvp_outcome *o = &r->outcome;
    if (call->no_report != 0 || (o->status != KVP_OK && o->status != KVP_E_TOO_SMALL))
        return 1;
    return take_u32(d, &o->n) &&
           (o->status != KVP_OK || call->count == 0 || take_handles(d, &d->shared, o->n, &o->u64));
}

/* The results of a call that succeeded. */
static int take_results(decoder *d, const kvp_call *call, results *r)
{
    kvp_outcome *o = &r->outcome;
    kvp_config ignored;
    switch (call->op) {
    case KVP_CALL_NS_OPEN:
    case KVP_CALL_FORK: return take_u64(d, &o->handle);
    case KVP_CALL_OPEN: return take_u64(d, &o->handle) && take_open_info(d, &o->u.open);
    case KVP_CALL_MATCH: return take_open_info(d, &o->u.open);
    case KVP_CALL_EXTEND_MANY:
    case KVP_CALL_FILL_MANY: return take_statuses(d, call, r);
    case KVP_CALL_TRUNCATE:
    case KVP_CALL_CLOSE:
    case KVP_CALL_WINDOW:
        return TAKE_FIELDS(d, &o->u.released.freed_blocks, &o->u.released.cached_blocks);
    case KVP_CALL_NS_INFO: return take_ns_info(d, &o->u.ns);
    case KVP_CALL_SEQ_TOKENS:
    case KVP_CALL_SEQ_BLOCK_TOKENS:
    case KVP_CALL_ROW:
    case KVP_CALL_SLOTS:
    case KVP_CALL_PLAN_TAKE:
    case KVP_CALL_EVICTED:
    case KVP_CALL_BLOCK_TOKENS:
    case KVP_CALL_ACCEPT:
    case KVP_CALL_TREE:
    case KVP_CALL_STATS: return take_digest(d, r);
    case KVP_CALL_WINDOW_GET: return take_window_info(d, &o->u.window);
    case KVP_CALL_CAN_OPEN:
    case KVP_CALL_CAN_EXTEND:
    case KVP_CALL_CAN_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_IN: return take_admission(d, &o->u.admission);
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_SWAP_IN: return take_swapped(d, &o->u.swapped);
    case KVP_CALL_STEP_BEGIN: return take_digest(d, r) && take_u64(d, &o->number);
    case KVP_CALL_STEP_DONE: return take_u64(d, &o->number);
    case KVP_CALL_BLOCK_INFO: return take_block_info(d, &o->u.block);
    case KVP_CALL_SHORTAGE: return take_shortage(d, &o->u.shortage);
    case KVP_CALL_LOAD_BEGIN: return take_load(d, r);
    case KVP_CALL_LOAD_DONE:
        return TAKE_FIELDS(d, &o->u.loaded.cached, &o->u.loaded.dropped, &o->u.loaded.failed);
    case KVP_CALL_MIRROR:
        return TAKE_FIELDS(d, &o->u.mirrored.copied, &o->u.mirrored.found,
                           &o->u.mirrored.left_out) &&
               take_digest(d, r);
    case KVP_CALL_CONFIG: r->has_config = 1; return take_config(d, &ignored);
    default: return 1;
    }
}

/* Calls that say how long the array is that did not fit, or that was only asked for. */
static int tells_how_many(const kvp_call *call, kvp_status status)
{
    const int asks = call->op == KVP_CALL_PLAN_TAKE || call->op == KVP_CALL_STEP_BEGIN ||
                     call->op == KVP_CALL_TREE;
    if (status == KVP_OK)
        return asks && call->count == 0;
    return status == KVP_E_TOO_SMALL && (asks || call->op == KVP_CALL_ACCEPT);
}

static int take_outcome(decoder *d, const kvp_call *call, results *r)
{
    if (!take_status(d, r))
        return 0;
    kvp_status status = r->outcome.status;
    if (call->op == KVP_CALL_INVALIDATE || call->op == KVP_CALL_STEP_FAILED)
        return take_reported(d, call, r);
    if (call->op == KVP_CALL_EVENTS_SNAPSHOT)
        return take_snapshot(d, call, r);
    if (call->op == KVP_CALL_CHECK && status == KVP_E_CORRUPT)
        return take_violation(d, &r->outcome.u.violation);
    if (tells_how_many(call, status))
        return take_u32(d, &r->outcome.n);
    return status != KVP_OK || take_results(d, call, r);
}

/* ------------------------------------------------------------------------------------ the whole */

kvp_status kvpi_oplog_decode_header(decoder *d, kvp_config *out_config)
{
    const uint8_t *start = d->at;
    const uint8_t *magic;
    if (!take_bytes(d, 8, &magic))
        return d->status;
    if (memcmp(magic, KVPI_RECORD_MAGIC, 8) != 0) {
        int version = memcmp(magic, "kvplog", 6) == 0 && magic[6] >= '0' && magic[6] <= '9';
        wrong_bytes(d, start, version ? KVP_E_VERSION : KVP_E_FORMAT);
        return d->status;
    }
    kvp_config config;
    memset(&config, 0, sizeof config);
    kvp_config_init(&config);
    start = d->at;
    if (!take_config(d, &config))
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

kvp_status kvpi_oplog_decode_record(decoder *d, kvp_call *out_call, results *out_results,
                                    const uint8_t **out_result_bytes)
{
    const uint8_t *start = d->at;
    uint8_t op;
    memset(out_call, 0, sizeof *out_call);
    memset(out_results, 0, sizeof *out_results);
    if (!take_byte(d, &op))
        return d->status;
    if (op < KVP_CALL_NS_OPEN || op > KVP_CALL_LOAD_CANCEL || !kvpi_record_has(op)) {
        damaged(d, start);
        return d->status;
    }
    out_call->op = op;
    if (take_arguments(d, out_call)) {
        *out_result_bytes = d->at;
        take_outcome(d, out_call, out_results);
    }
    return d->status;
}
