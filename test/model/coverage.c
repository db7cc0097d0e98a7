/* See coverage.h. Situations are told from the oracle's counters before and after a call. */
#include "coverage.h"

#include <inttypes.h>
#include <string.h>

/* Statuses that each call must have given in a long run. */
typedef struct expected {
    uint32_t op;
    int32_t statuses[8]; /* KVP_OK and what is before the first 0 */
} expected;

static const expected expectations[] = {
    {KVP_CALL_NS_OPEN, {KVP_E_ARG, KVP_E_NO_NAMESPACES}},
    {KVP_CALL_NS_CLOSE, {KVP_E_HANDLE}},
    {KVP_CALL_NS_FLUSH, {KVP_E_HANDLE}},
    {KVP_CALL_MATCH, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_TOO_LONG}},
    {KVP_CALL_OPEN,
     {KVP_E_ARG, KVP_E_HANDLE, KVP_E_TOO_LONG, KVP_E_NEVER, KVP_E_NO_BLOCKS, KVP_E_NO_SEQS,
      KVP_E_PLAN_FULL}},
    {KVP_CALL_EXTEND,
     {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_TOO_LONG, KVP_E_NEVER, KVP_E_NO_BLOCKS,
      KVP_E_PLAN_FULL}},
    {KVP_CALL_EXTEND_MANY,
     {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_TOO_LONG, KVP_E_NEVER, KVP_E_NO_BLOCKS,
      KVP_E_PLAN_FULL}},
    {KVP_CALL_FILL, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_FILL_MANY, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_COMMIT, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_COMMIT_MANY, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_INVALIDATE, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_TOO_SMALL}},
    {KVP_CALL_FORK, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_NO_SEQS}},
    {KVP_CALL_TRUNCATE, {KVP_E_ARG, KVP_E_HANDLE}},
    {KVP_CALL_CLOSE, {KVP_E_HANDLE}},
    {KVP_CALL_SEQ_INFO, {KVP_E_HANDLE}},
    {KVP_CALL_SEQ_TOKENS, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_UNKNOWN}},
    {KVP_CALL_SEQ_BLOCK_TOKENS, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_UNKNOWN}},
    {KVP_CALL_ROW, {KVP_E_ARG, KVP_E_HANDLE}},
    {KVP_CALL_SLOTS, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_RETAIN, {KVP_E_ARG, KVP_E_HANDLE}},
    {KVP_CALL_UNCACHE, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_CAN_OPEN, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_TOO_LONG}},
    {KVP_CALL_CAN_EXTEND, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_TOO_LONG}},
    {KVP_CALL_PLAN_TAKE, {KVP_E_TOO_SMALL}},
    {KVP_CALL_EVICTED, {0}},
    {KVP_CALL_BLOCK_INFO, {KVP_E_ARG}},
    {KVP_CALL_BLOCK_TOKENS, {KVP_E_ARG}},
    {KVP_CALL_STATS, {0}},
    {KVP_CALL_SHORTAGE, {0}},
    {KVP_CALL_CHECK, {0}},
    {KVP_CALL_RESET, {0}},
    {KVP_CALL_CONFIG, {0}},
};

void coverage_look(const oracle *o, const kvp_call *call, coverage_before *before)
{
    uint32_t place = call->handle ? oracle_find_seq(o, call->handle) : ORACLE_NONE;

    memset(before, 0, sizeof *before);
    before->stats = o->stats;
    before->events = o->events;
    before->available = oracle_available(o);
    before->held = o->held;
    if (place == ORACLE_NONE)
        return;
    before->n_row = o->seqs[place].n_row;
    before->public_units = oracle_public_units(o, &o->seqs[place]);
    before->fork = o->seqs[place].is_fork;
}

static void meet(coverage *c, coverage_point point, bool is_met)
{
    c->points[point] += is_met;
}

static void count_open(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                       const coverage_before *before)
{
    const kvp_open_info *info = &out->u.open;

    if (out->status == KVP_E_NO_BLOCKS)
        meet(c, COVER_watermark_refuses, o->shortage.missing_blocks <= o->watermark);
    if (out->status != KVP_OK)
        return;
    c->stops[info->stop]++;
    if (call->op != KVP_CALL_OPEN)
        return;
    meet(c, COVER_full_hit, call->n_tokens && info->hit_tokens == call->n_tokens);
    meet(c, COVER_hit_inside_block, info->copied_tokens > 0);
    meet(c, COVER_hit_with_keys, call->n_keys && call->keys[0].begin < info->hit_tokens);
    meet(c, COVER_hit_of_cached_block, info->cached_blocks > 0);
    meet(c, COVER_hit_of_held_block, info->shared_blocks > info->cached_blocks);
    meet(c, COVER_open_evicts, info->evicted_blocks > 0);
    meet(c, COVER_unkept_unit, o->stats.unkept_units > before->stats.unkept_units);
    meet(c, COVER_private_unit, o->stats.private_units > before->stats.private_units);
}

static void count_extend(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                         const coverage_before *before)
{
    uint32_t place = oracle_find_seq(o, call->handle), good = 0, short_of = 0;
    bool copied = o->stats.copies > before->stats.copies;

    meet(c, COVER_batch_refused_whole, out->status == KVP_E_NO_BLOCKS && call->n_seqs > 1);
    if (out->status != KVP_OK)
        return;
    meet(c, COVER_copy_on_write, copied);
    meet(c, COVER_units_overwritten, o->stats.detached_units > before->stats.detached_units);
    meet(c, COVER_unknown_values, call->n_tokens && !call->tokens);
    meet(c, COVER_copy_on_write_without_copy,
         call->op == KVP_CALL_EXTEND && place != ORACLE_NONE && !copied &&
             o->stats.taken_blocks - before->stats.taken_blocks >
                 o->seqs[place].n_row - before->n_row);
    for (uint32_t i = 0; i < out->n; i++) {
        c->members[-out->i32[i]]++;
        good += out->i32[i] == KVP_OK;
        short_of += out->i32[i] == KVP_E_NO_BLOCKS;
    }
    meet(c, COVER_batch_each_partly, good && short_of);
}

static void count_seq(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                      const coverage_before *before)
{
    uint32_t place = oracle_find_seq(o, call->op == KVP_CALL_FORK ? out->handle : call->handle);
    const oracle_seq *seq = &o->seqs[place];
    uint32_t S = o->config.block_tokens;
    bool inside;

    if (out->status != KVP_OK || place == ORACLE_NONE)
        return;
    inside = seq->tokens % S != 0;
    if (call->op == KVP_CALL_FORK) {
        meet(c, COVER_fork_inside_block, inside);
        meet(c, COVER_fork_of_fork, before->fork);
        return;
    }
    meet(c, COVER_truncate_into_sealed,
         inside && before->public_units > seq->tokens / o->unit &&
             oracle_public_units(o, seq) < before->public_units);
    meet(c, COVER_truncate_into_shared, inside && o->blocks[seq->row[seq->n_row - 1]].refs > 1);
}

static void count_rest(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                       const coverage_before *before)
{
    const kvp_stats *then = &before->stats, *now = &o->stats;
    bool fill = call->op == KVP_CALL_FILL || call->op == KVP_CALL_FILL_MANY;
    bool invalidate = call->op == KVP_CALL_INVALIDATE && out->status == KVP_OK;

    meet(c, COVER_adoption, now->adopted_blocks > then->adopted_blocks);
    meet(c, COVER_duplicate_kept, now->duplicate_blocks > then->duplicate_blocks);
    meet(c, COVER_duplicate_promoted, o->events.promotions > before->events.promotions);
    meet(c, COVER_invalidate_withdraws, invalidate && now->detached_units > then->detached_units);
    meet(c, COVER_invalidate_reports, invalidate && out->n);
    meet(c, COVER_invalidate_frees_cached, o->events.freed_cached > before->events.freed_cached);
    meet(c, COVER_fill_seals, fill && now->sealed_units > then->sealed_units);
    meet(c, COVER_copy_removed, o->events.removed_copies > before->events.removed_copies);
    meet(c, COVER_plan_of_two_phases,
         call->op == KVP_CALL_PLAN_TAKE && out->status == KVP_OK && out->n &&
             out->copies[out->n - 1].phase > 0);
    meet(c, COVER_retention_spares, o->events.spared > before->events.spared);
    meet(c, COVER_flush_without_free_node, o->events.kept_roots > before->events.kept_roots);
    meet(c, COVER_flush_under_sequence,
         call->op == KVP_CALL_NS_FLUSH && out->status == KVP_OK && o->open_seqs);
    meet(c, COVER_reset_with_content, call->op == KVP_CALL_RESET && before->held);
}

void coverage_count(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                    const coverage_before *before)
{
    uint32_t status = out->status <= 0 ? (uint32_t)-out->status : 0;

    if (call->op < COVERAGE_OPS && status < COVERAGE_STATUSES)
        c->calls[call->op][status]++;
    switch (call->op) {
    case KVP_CALL_MATCH:
    case KVP_CALL_OPEN: count_open(c, o, call, out, before); break;
    case KVP_CALL_EXTEND:
    case KVP_CALL_EXTEND_MANY: count_extend(c, o, call, out, before); break;
    case KVP_CALL_FORK:
    case KVP_CALL_TRUNCATE: count_seq(c, o, call, out, before); break;
    case KVP_CALL_CAN_OPEN:
    case KVP_CALL_CAN_EXTEND: c->verdicts[out->status == KVP_OK ? out->u.admission.verdict : 0]++;
    default: break;
    }
    count_rest(c, o, call, out, before);
}

/* ------------------------------------------------------------------------------------ reporting */

static const char *point_name(uint32_t point)
{
#define COVERAGE_NAME(name) #name,
    static const char *names[] = {COVERAGE_TABLE(COVERAGE_NAME)};
#undef COVERAGE_NAME

    return names[point];
}

static const char *stop_name(uint32_t stop)
{
    static const char *names[] = {"END", "MISS", "NO_KV", "UNCACHED", "OFF", "FULL_HIT", "NO_ROOM"};

    return names[stop];
}

void coverage_print(FILE *file, const coverage *c)
{
    for (uint32_t op = 0; op < COVERAGE_OPS; op++) {
        bool first = true;

        for (uint32_t status = 0; status < COVERAGE_STATUSES; status++) {
            if (!c->calls[op][status])
                continue;
            if (first)
                fprintf(file, "%-18s", kvp_call_name(op));
            first = false;
            fprintf(file, " %s %" PRIu64, kvp_status_name((kvp_status)(-(int)status)) + 4,
                    c->calls[op][status]);
        }
        if (!first)
            fprintf(file, "\n");
    }
    fprintf(file, "match ends");
    for (uint32_t i = 0; i < COVERAGE_STOPS; i++)
        fprintf(file, " %s %" PRIu64, stop_name(i), c->stops[i]);
    fprintf(file, "\nadmission OK %" PRIu64 " LATER %" PRIu64 " NEVER %" PRIu64 "\n",
            c->verdicts[0], c->verdicts[1], c->verdicts[2]);
    for (uint32_t i = 0; i < COVER_COUNT; i++)
        fprintf(file, "%-30s %" PRIu64 "\n", point_name(i), c->points[i]);
}

static uint32_t miss(FILE *file, bool is_met, const char *what, const char *which)
{
    if (!is_met)
        fprintf(file, "kvp_model: never met: %s %s\n", what, which);
    return !is_met;
}

uint32_t coverage_missing(FILE *file, const coverage *c)
{
    uint32_t n = 0;

    for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++) {
        const expected *e = &expectations[i];

        n += miss(file, c->calls[e->op][0], kvp_call_name(e->op), "KVP_OK");
        for (uint32_t k = 0; e->statuses[k]; k++)
            n += miss(file, c->calls[e->op][-e->statuses[k]], kvp_call_name(e->op),
                      kvp_status_name(e->statuses[k]));
    }
    for (uint32_t i = 0; i < COVERAGE_STOPS; i++)
        n += miss(file, c->stops[i], "a match that ends in", stop_name(i));
    for (uint32_t i = 0; i < 3; i++)
        n += miss(file, c->verdicts[i], "an admission verdict", i == 0 ? "0" : i == 1 ? "1" : "2");
    for (uint32_t i = 0; i < COVER_COUNT; i++)
        n += miss(file, c->points[i], "the situation", point_name(i));
    return n;
}
