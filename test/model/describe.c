/* Tables of the fields of every result drive both the comparison and the text. */
#include "describe.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

typedef struct field {
    const char *name;
    size_t offset;
    size_t size;
} field;

#define FIELD(type, name)                                                                          \
    {                                                                                              \
#name, offsetof(type, name), sizeof(((type *)0)->name)                                     \
    }

static const field open_fields[] = {
    FIELD(kvp_open_info, cached_tokens), FIELD(kvp_open_info, hit_tokens),
    FIELD(kvp_open_info, stop),          FIELD(kvp_open_info, host_tokens),
    FIELD(kvp_open_info, shared_blocks), FIELD(kvp_open_info, host_blocks),
    FIELD(kvp_open_info, cached_blocks), FIELD(kvp_open_info, copied_tokens),
    FIELD(kvp_open_info, taken_blocks),  FIELD(kvp_open_info, evicted_blocks),
    FIELD(kvp_open_info, stop_group),    {NULL, 0, 0},
};
static const field released_fields[] = {
    FIELD(kvp_released, freed_blocks),
    FIELD(kvp_released, cached_blocks),
    {NULL, 0, 0},
};
static const field swapped_fields[] = {
    FIELD(kvp_swapped, copied_blocks),
    FIELD(kvp_swapped, found_blocks),
    FIELD(kvp_swapped, released.freed_blocks),
    FIELD(kvp_swapped, released.cached_blocks),
    {NULL, 0, 0},
};
static const field admission_fields[] = {
    FIELD(kvp_admission, verdict),       FIELD(kvp_admission, need_blocks),
    FIELD(kvp_admission, available),     FIELD(kvp_admission, missing_blocks),
    FIELD(kvp_admission, copied_blocks), {NULL, 0, 0},
};
static const field seq_fields[] = {
    FIELD(kvp_seq_info, ns),
    FIELD(kvp_seq_info, tag),
    FIELD(kvp_seq_info, n_tokens),
    FIELD(kvp_seq_info, known_tokens),
    FIELD(kvp_seq_info, prompt_tokens),
    FIELD(kvp_seq_info, cached_tokens),
    FIELD(kvp_seq_info, computed_tokens),
    FIELD(kvp_seq_info, writable_tokens),
    FIELD(kvp_seq_info, public_tokens),
    FIELD(kvp_seq_info, kept_tokens),
    FIELD(kvp_seq_info, n_blocks),
    FIELD(kvp_seq_info, stop),
    FIELD(kvp_seq_info, last_token),
    FIELD(kvp_seq_info, retention),
    FIELD(kvp_seq_info, row_version),
    FIELD(kvp_seq_info, tier),
    FIELD(kvp_seq_info, tree_tokens),
    FIELD(kvp_seq_info, stop_group),
    FIELD(kvp_seq_info, reserved),
    {NULL, 0, 0},
};
static const field block_fields[] = {
    FIELD(kvp_block_info, state),
    FIELD(kvp_block_info, ref_count),
    FIELD(kvp_block_info, generation),
    FIELD(kvp_block_info, retention),
    FIELD(kvp_block_info, sealed_units),
    FIELD(kvp_block_info, sealed_tokens),
    FIELD(kvp_block_info, hash),
    FIELD(kvp_block_info, group),
    {NULL, 0, 0},
};
static const field window_fields[] = {
    FIELD(kvp_window_info, window.sink_tokens),
    FIELD(kvp_window_info, window.recent_tokens),
    FIELD(kvp_window_info, dropped_begin),
    FIELD(kvp_window_info, dropped_end),
    {NULL, 0, 0},
};
static const field ns_fields[] = {
    FIELD(kvp_ns_info, openers),
    FIELD(kvp_ns_info, quota),
    FIELD(kvp_ns_info, blocks),
    FIELD(kvp_ns_info, cached_blocks),
    FIELD(kvp_ns_info, host_quota),
    FIELD(kvp_ns_info, host_blocks),
    FIELD(kvp_ns_info, host_cached_blocks),
    FIELD(kvp_ns_info, state_quota),
    FIELD(kvp_ns_info, state_slots),
    FIELD(kvp_ns_info, cached_state_slots),
    FIELD(kvp_ns_info, host_state_slots),
    {NULL, 0, 0},
};
static const field load_fields[] = {
    FIELD(kvp_load, number),  FIELD(kvp_load, after),       FIELD(kvp_load, n_blocks),
    FIELD(kvp_load, n_found), FIELD(kvp_load, n_elsewhere), {NULL, 0, 0},
};
static const field loaded_fields[] = {
    FIELD(kvp_loaded, cached),
    FIELD(kvp_loaded, dropped),
    FIELD(kvp_loaded, failed),
    {NULL, 0, 0},
};
static const field mirrored_fields[] = {
    FIELD(kvp_mirrored, copied),
    FIELD(kvp_mirrored, found),
    FIELD(kvp_mirrored, left_out),
    {NULL, 0, 0},
};
static const field cursor_fields[] = {
    FIELD(kvp_cold_cursor, generation),
    FIELD(kvp_cold_cursor, block),
    FIELD(kvp_cold_cursor, ended),
    {NULL, 0, 0},
};
static const field origin_fields[] = {
    FIELD(kvp_block_origin, generation), FIELD(kvp_block_origin, after),
    FIELD(kvp_block_origin, ns),         FIELD(kvp_block_origin, root),
    FIELD(kvp_block_origin, parent),     FIELD(kvp_block_origin, hash),
    FIELD(kvp_block_origin, group),      FIELD(kvp_block_origin, first),
    FIELD(kvp_block_origin, n_tokens),   FIELD(kvp_block_origin, n_keys),
    FIELD(kvp_block_origin, written),    {NULL, 0, 0},
};
/* Made of stats.h. Not nodes_total and hash_collisions: both are matters of the implementation. */
static const field stats_fields[] = {
#include <stats_fields.h>
    {NULL, 0, 0},
};
static const field shortage_fields[] = {
    FIELD(kvp_shortage, status), FIELD(kvp_shortage, index),    FIELD(kvp_shortage, missing_blocks),
    FIELD(kvp_shortage, tier),   FIELD(kvp_shortage, reserved), {NULL, 0, 0},
};
static const field state_fields[] = {
    FIELD(kvp_state_info, read_slot),     FIELD(kvp_state_info, write_slot),
    FIELD(kvp_state_info, lost),          FIELD(kvp_state_info, branch_end),
    FIELD(kvp_state_info, prompt_end),    FIELD(kvp_state_info, ring_slots),
    FIELD(kvp_state_info, computed_slot), {NULL, 0, 0},
};
static const field state_stats_fields[] = {
    FIELD(kvp_state_stats, usable_slots),
    FIELD(kvp_state_stats, free_slots),
    FIELD(kvp_state_stats, cached_slots),
    FIELD(kvp_state_stats, held_slots),
    FIELD(kvp_state_stats, taken),
    FIELD(kvp_state_stats, made),
    FIELD(kvp_state_stats, skipped),
    FIELD(kvp_state_stats, hits),
    FIELD(kvp_state_stats, evicted),
    FIELD(kvp_state_stats, parked_slots),
    {NULL, 0, 0},
};
static const field no_fields[] = {{NULL, 0, 0}};

static const field *fields_of(const kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_MATCH:
    case KVP_CALL_OPEN: return open_fields;
    case KVP_CALL_TRUNCATE:
    case KVP_CALL_WINDOW:
    case KVP_CALL_CLOSE: return released_fields;
    case KVP_CALL_WINDOW_GET: return window_fields;
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_SWAP_IN: return swapped_fields;
    case KVP_CALL_CAN_OPEN:
    case KVP_CALL_CAN_EXTEND:
    case KVP_CALL_CAN_SWAP_OUT:
    case KVP_CALL_CAN_SWAP_IN: return admission_fields;
    case KVP_CALL_SEQ_INFO: return seq_fields;
    case KVP_CALL_NS_INFO: return ns_fields;
    case KVP_CALL_BLOCK_INFO: return block_fields;
    case KVP_CALL_STATS: return stats_fields;
    case KVP_CALL_SHORTAGE: return shortage_fields;
    case KVP_CALL_LOAD_BEGIN: return load_fields;
    case KVP_CALL_LOAD_DONE: return loaded_fields;
    case KVP_CALL_MIRROR: return mirrored_fields;
    case KVP_CALL_COLD_END: return cursor_fields;
    case KVP_CALL_BLOCK_ORIGIN: return origin_fields;
    case KVP_CALL_STATE_GET: return state_fields;
    case KVP_CALL_STATE_STATS: return state_stats_fields;
    default: return no_fields;
    }
}

/* Numbers in the array of i32: of events, U tokens each (none of them tells U if none has any). */
static size_t count_i32(const kvp_outcome *outcome)
{
    uint32_t unit = 0;

    if (!outcome->i32 || !outcome->events)
        return outcome->i32 ? outcome->n : 0;
    for (uint32_t i = 0; i < outcome->n; i++)
        unit = outcome->events[i].n_tokens > unit ? outcome->events[i].n_tokens : unit;
    return (size_t)outcome->n * unit;
}

static const char *array_difference(uint32_t n_groups, const kvp_outcome *a, const kvp_outcome *b)
{
    size_t n = b->n;

    if (a->n != b->n)
        return "n";
    if (!a->i32 != !b->i32 || !a->i64 != !b->i64 || !a->u64 != !b->u64 ||
        !a->copies != !b->copies || !a->events != !b->events || !a->parents != !b->parents ||
        !a->moves != !b->moves)
        return n ? "which array there is" : NULL;
    if (n && a->cold && b->cold && memcmp(a->cold, b->cold, n * sizeof *a->cold) != 0)
        return "cold blocks";
    if (n && b->events && memcmp(a->events, b->events, n * sizeof *a->events) != 0)
        return "events";
    if (n && b->i32 && memcmp(a->i32, b->i32, count_i32(b) * sizeof *a->i32) != 0)
        return "array of i32";
    if (n && b->i64 && memcmp(a->i64, b->i64, n * sizeof *a->i64) != 0)
        return "array of i64";
    if (n && b->u64 && memcmp(a->u64, b->u64, n * sizeof *a->u64) != 0)
        return "array of handles";
    if (n && b->parents && memcmp(a->parents, b->parents, n * sizeof *a->parents) != 0)
        return "parents";
    if (n && b->moves && memcmp(a->moves, b->moves, n * n_groups * sizeof *a->moves) != 0)
        return "moves";
    for (size_t i = 0; b->copies && i < n; i++)
        if (memcmp(&a->copies[i], &b->copies[i], sizeof *a->copies) != 0)
            return "copies";
    for (size_t i = 0; b->evicted && i < n; i++)
        if (memcmp(&a->evicted[i], &b->evicted[i], sizeof *a->evicted) != 0)
            return "evicted";
    return NULL;
}

const char *outcome_difference(const kvp_call *call, uint32_t n_groups, const kvp_outcome *cache,
                               const kvp_outcome *oracle)
{
    if (cache->status != oracle->status)
        return "status";
    if (cache->handle != oracle->handle)
        return "handle";
    if (cache->number != oracle->number)
        return "number";
    for (const field *f = fields_of(call); f->name && cache->status == KVP_OK; f++)
        if (memcmp((const char *)&cache->u + f->offset, (const char *)&oracle->u + f->offset,
                   f->size) != 0)
            return f->name;
    return array_difference(n_groups, cache, oracle);
}

/* ---------------------------------------------------------------------------------------- words */

static void print_bytes(FILE *file, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fprintf(file, "%02x", bytes[i]);
}

static void print_keys(FILE *file, const kvp_call *call)
{
    for (uint32_t i = 0; i < call->n_keys; i++) {
        const kvp_key *key = &call->keys[i];

        fprintf(file, " key(%" PRIu32 " [%" PRIu32 ",%" PRIu32 ") ", key->type, key->begin,
                key->end);
        if (key->bytes)
            print_bytes(file, key->bytes, key->n_bytes < 8 ? key->n_bytes : 8);
        fprintf(file, ":%" PRIu32 ")", key->n_bytes);
    }
}

static void print_tokens(FILE *file, const int32_t *tokens, uint32_t n)
{
    fprintf(file, " tokens[%" PRIu32 "]", n);
    if (!tokens) {
        fprintf(file, n ? "=unknown" : "");
        return;
    }
    fprintf(file, "=");
    for (uint32_t i = 0; i < n && i < 64; i++)
        fprintf(file, "%s%" PRId32, i ? "," : "", tokens[i]);
    fprintf(file, n > 64 ? ",..." : "");
}

static void print_members(FILE *file, const kvp_call *call)
{
    for (uint32_t i = 0; i < call->n_seqs; i++) {
        fprintf(file, " %" PRIx64, call->handles[i]);
        if (call->counts)
            fprintf(file, ":%" PRIu32, call->counts[i]);
        if (call->leaves)
            fprintf(file, " leaf %" PRId32, call->leaves[i]);
    }
}

void call_print(FILE *file, const kvp_call *call)
{
    fprintf(file, "%s", kvp_oplog_call_name(call->op));
    if (call->handle)
        fprintf(file, " %" PRIx64, call->handle);
    print_members(file, call);
    if (call->op == KVP_CALL_NS_OPEN || call->op == KVP_CALL_LOAD_DONE) {
        fprintf(file, call->op == KVP_CALL_NS_OPEN ? " name=" : " whole=");
        print_bytes(file, call->name, call->name_bytes);
    }
    if (call->tokens || call->n_tokens)
        print_tokens(file, call->tokens, call->n_tokens);
    for (uint32_t i = 0; i < call->n_tokens && i < 64 && call->parents; i++)
        fprintf(file, "%s%" PRId32, i ? "," : " parents=", call->parents[i]);
    if (call->op == KVP_CALL_WINDOW)
        fprintf(file, " window{%" PRIu32 ",%" PRIu32 "}", call->window.sink_tokens,
                call->window.recent_tokens);
    print_keys(file, call);
    for (uint32_t i = 0; i < call->n_ranges; i++)
        fprintf(file, " uncached[%" PRIu32 ",%" PRIu32 ")", call->ranges[i].begin,
                call->ranges[i].end);
    if (call->range.begin || call->range.end)
        fprintf(file, " range[%" PRIu32 ",%" PRIu32 ")", call->range.begin, call->range.end);
#define SHOW(name)                                                                                 \
    if (call->name)                                                                                \
        fprintf(file, " " #name "=%" PRId64, (int64_t)call->name);
    SHOW(position)
    SHOW(count)
    SHOW(group)
    SHOW(tier)
    SHOW(block)
    SHOW(number)
    SHOW(with_tokens)
    SHOW(with_parents)
    SHOW(reserve_tokens) SHOW(flags) SHOW(retention) SHOW(tag) SHOW(no_report) SHOW(n_hashes)
#undef SHOW
}

static void print_field(FILE *file, const kvp_outcome *outcome, const field *f)
{
    const char *at = (const char *)&outcome->u + f->offset;
    uint64_t wide = 0;
    uint32_t narrow = 0;

    fprintf(file, " %s=", f->name);
    if (f->size == 4) {
        memcpy(&narrow, at, 4);
        fprintf(file, "%" PRId32, (int32_t)narrow);
    } else if (f->size == 8) {
        memcpy(&wide, at, 8);
        fprintf(file, "%" PRIu64, wide);
    } else {
        print_bytes(file, (const uint8_t *)at, f->size);
    }
}

static char tier_letter(uint32_t tier)
{
    return tier == KVP_DEVICE ? 'd' : tier == KVP_HOST ? 'h' : '?';
}

static void print_copy(FILE *file, const kvp_copy *copy)
{
    fprintf(file, "%" PRIu32 ": %c%" PRId32 "->%c%" PRId32 " x%" PRIu32 " g%u", copy->phase,
            tier_letter(copy->src_tier), copy->src_block, tier_letter(copy->dst_tier),
            copy->dst_block, copy->n_tokens, (unsigned)copy->group);
}

static void print_event(FILE *file, const kvp_event *event)
{
    fprintf(file, "%" PRIu64 " %s %c ", event->number,
            event->kind == KVP_EVENT_STORED    ? "stored"
            : event->kind == KVP_EVENT_REMOVED ? "removed"
                                               : "cleared",
            tier_letter(event->tier));
    print_bytes(file, event->hash.bytes, 8);
    fprintf(file, " at %" PRIu32 " g%" PRIu32, event->position, event->group);
}

static void print_moves(FILE *file, uint32_t n_groups, const kvp_outcome *outcome)
{
    for (size_t i = 0; i < (size_t)n_groups * outcome->n && i < 64; i++)
        fprintf(file, "%s%" PRId64 "->%" PRId64, i % outcome->n ? "," : " moves ",
                outcome->moves[i].src, outcome->moves[i].dst);
}

void outcome_print(FILE *file, const kvp_call *call, uint32_t n_groups, const kvp_outcome *outcome)
{
    fprintf(file, "%s", kvp_status_name(outcome->status));
    if (outcome->handle)
        fprintf(file, " handle=%" PRIx64, outcome->handle);
    if (outcome->number)
        fprintf(file, " number=%" PRIu64, outcome->number);
    for (const field *f = fields_of(call); f->name && outcome->status == KVP_OK; f++)
        print_field(file, outcome, f);
    fprintf(file, " n=%" PRIu32, outcome->n);
    for (uint32_t i = 0; i < outcome->n && i < 64; i++) {
        fprintf(file, i ? "," : " [");
        if (outcome->i32 && !outcome->events)
            fprintf(file, "%" PRId32, outcome->i32[i]);
        if (outcome->parents)
            fprintf(file, " after %" PRId32, outcome->parents[i]);
        if (outcome->i64)
            fprintf(file, "%" PRId64, outcome->i64[i]);
        if (outcome->u64)
            fprintf(file, "%" PRIx64, outcome->u64[i]);
        if (outcome->cold)
            fprintf(file, "%" PRId32, outcome->cold[i].block);
        if (outcome->copies)
            print_copy(file, &outcome->copies[i]);
        if (outcome->evicted) {
            fprintf(file, "%c%" PRId32 "%s g%u ", tier_letter(outcome->evicted[i].tier),
                    outcome->evicted[i].block, outcome->evicted[i].kept ? " kept" : "",
                    (unsigned)outcome->evicted[i].group);
            print_bytes(file, outcome->evicted[i].hash.bytes, 16);
        }
        if (outcome->events)
            print_event(file, &outcome->events[i]);
    }
    fprintf(file, outcome->n ? "]" : "");
    if (outcome->moves)
        print_moves(file, n_groups, outcome);
}
