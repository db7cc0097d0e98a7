/* See coverage.h. Situations are told from the oracle's counters before and after a call. */
#include "coverage.h"
#include "oracle_parts.h"

#include <inttypes.h>
#include <string.h>

/* Statuses that each call must have given in a long run. */
typedef struct expected {
    uint32_t op;
    int32_t statuses[11]; /* KVP_OK and what is before the first 0 */
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
     {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_TOO_LONG, KVP_E_IN_FLIGHT, KVP_E_NEVER,
      KVP_E_NO_BLOCKS, KVP_E_PLAN_FULL, KVP_E_DROPPED}},
    {KVP_CALL_EXTEND_MANY,
     {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_TOO_LONG, KVP_E_IN_FLIGHT, KVP_E_NEVER,
      KVP_E_NO_BLOCKS, KVP_E_PLAN_FULL, KVP_E_DROPPED}},
    {KVP_CALL_FILL, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_FILL_MANY, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_COMMIT, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_DROPPED}},
    {KVP_CALL_COMMIT_MANY, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_DROPPED}},
    {KVP_CALL_INVALIDATE, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_TOO_SMALL}},
    {KVP_CALL_FORK, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_NO_SEQS, KVP_E_DROPPED}},
    {KVP_CALL_TRUNCATE, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_DROPPED}},
    {KVP_CALL_CLOSE, {KVP_E_HANDLE}},
    {KVP_CALL_SEQ_INFO, {KVP_E_HANDLE}},
    {KVP_CALL_SEQ_TOKENS, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_UNKNOWN}},
    {KVP_CALL_SEQ_BLOCK_TOKENS, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_UNKNOWN}},
    {KVP_CALL_ROW, {KVP_E_ARG, KVP_E_HANDLE}},
    {KVP_CALL_SLOTS, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_RETAIN, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_UNCACHE, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_CAN_OPEN, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_TOO_LONG}},
    {KVP_CALL_CAN_EXTEND,
     {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_TOO_LONG, KVP_E_IN_FLIGHT, KVP_E_DROPPED}},
    {KVP_CALL_PLAN_TAKE, {KVP_E_STATE, KVP_E_TOO_SMALL}},
    {KVP_CALL_EVICTED, {0}},
    {KVP_CALL_BLOCK_INFO, {KVP_E_ARG}},
    {KVP_CALL_BLOCK_TOKENS, {KVP_E_ARG}},
    {KVP_CALL_STATS, {0}},
    {KVP_CALL_SHORTAGE, {0}},
    {KVP_CALL_CHECK, {0}},
    {KVP_CALL_RESET, {0}},
    {KVP_CALL_CONFIG, {0}},
    {KVP_CALL_SWAP_OUT,
     {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_NEVER, KVP_E_NO_BLOCKS, KVP_E_PLAN_FULL}},
    {KVP_CALL_SWAP_IN,
     {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_TOO_LONG, KVP_E_NEVER, KVP_E_NO_BLOCKS,
      KVP_E_PLAN_FULL, KVP_E_DROPPED}},
    {KVP_CALL_CAN_SWAP_OUT, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_CAN_SWAP_IN, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_TOO_LONG, KVP_E_DROPPED}},
    {KVP_CALL_STEP_BEGIN, {KVP_E_STATE, KVP_E_NO_STEPS, KVP_E_TOO_SMALL}},
    {KVP_CALL_STEP_COMMIT, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_DROPPED}},
    {KVP_CALL_STEP_DONE, {KVP_E_ARG}},
    {KVP_CALL_STEP_FAILED, {KVP_E_ARG, KVP_E_TOO_SMALL}},
    {KVP_CALL_EVENTS_READ, {KVP_E_ARG, KVP_E_STATE, KVP_E_BEHIND}},
    {KVP_CALL_EVENTS_SNAPSHOT, {KVP_E_STATE, KVP_E_TOO_SMALL}},
    {KVP_CALL_WINDOW, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_DROPPED}},
    {KVP_CALL_WINDOW_GET, {KVP_E_ARG, KVP_E_HANDLE}},
    {KVP_CALL_EXTEND_TREE,
     {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_TOO_LONG, KVP_E_IN_FLIGHT, KVP_E_NEVER,
      KVP_E_NO_BLOCKS, KVP_E_PLAN_FULL, KVP_E_DROPPED}},
    /* What drops a tree is what can make its sequence lack something: no KVP_E_DROPPED. */
    {KVP_CALL_ACCEPT, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE, KVP_E_TOO_SMALL, KVP_E_IN_FLIGHT}},
    {KVP_CALL_TREE, {KVP_E_HANDLE, KVP_E_TOO_SMALL}},
    {KVP_CALL_NS_QUOTA, {KVP_E_ARG, KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_NS_INFO, {KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_PLAN_DONE, {KVP_E_ARG, KVP_E_STATE}},
    {KVP_CALL_MIRROR, {KVP_E_ARG, KVP_E_STATE}},
    {KVP_CALL_BLOCKS_LEND, {KVP_E_ARG, KVP_E_STATE, KVP_E_IN_FLIGHT, KVP_E_AGAIN}},
    {KVP_CALL_BLOCKS_RETURN, {KVP_E_ARG, KVP_E_STATE}},
    {KVP_CALL_LOAD_BEGIN,
     {KVP_E_ARG, KVP_E_HANDLE, KVP_E_TOO_LONG, KVP_E_STATE, KVP_E_NEVER, KVP_E_NO_BLOCKS,
      KVP_E_AGAIN}},
    {KVP_CALL_LOAD_DONE, {KVP_E_ARG, KVP_E_IN_FLIGHT}},
    {KVP_CALL_LOAD_CANCEL, {KVP_E_ARG}},
    {KVP_CALL_DROP, {KVP_E_ARG}},
    {KVP_CALL_RECLAIM, {0}},
    {KVP_CALL_PROMPT_END, {KVP_E_HANDLE, KVP_E_ARG}},
    {KVP_CALL_CHECKPOINT, {KVP_E_HANDLE, KVP_E_STATE, KVP_E_DROPPED}},
    {KVP_CALL_STATE_GET, {KVP_E_HANDLE, KVP_E_STATE}},
    {KVP_CALL_STATE_STATS, {0}},
    {KVP_CALL_COLD_END, {KVP_E_ARG}},
    {KVP_CALL_BLOCK_ORIGIN, {KVP_E_ARG}},
    {KVP_CALL_BLOCK_PREFIX, {KVP_E_ARG, KVP_E_TOO_SMALL}},
};

/* Calls that answer with an admission. */
static const uint32_t asking[COVERAGE_ASKED] = {KVP_CALL_CAN_OPEN, KVP_CALL_CAN_EXTEND,
                                                KVP_CALL_CAN_SWAP_OUT, KVP_CALL_CAN_SWAP_IN};

/* What the sequences of a swap have before it. */
static void look_at_group(const oracle *o, const kvp_call *call, coverage_before *before)
{
    int32_t seen[256];

    for (uint32_t i = 0; i < call->n_seqs; i++) {
        uint32_t place = oracle_find_seq(o, call->handles[i]);
        const oracle_seq *seq = &o->seqs[place];

        if (place == ORACLE_NONE)
            continue;
        before->uncomputed += seq->tokens > seq->computed;
        before->inside += seq->computed % oracle_size(o, 0) != 0;
        for (uint32_t k = 0; k < seq->n_row[0]; k++) {
            uint32_t at = 0;

            while (at < before->distinct && seen[at] != seq->rows[0][k])
                at++;
            if (at == before->distinct && at < sizeof seen / sizeof *seen)
                seen[before->distinct++] = seq->rows[0][k];
            before->entries++;
        }
    }
}

static bool has_holes(const oracle *o, const oracle_seq *seq)
{
    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        for (uint32_t i = 0; i < seq->n_row[k]; i++)
            if (!seq->rows[k][i])
                return true;
    }
    return false;
}

/* What the sequences of a call have of trees and windows before it. */
static void look_at_members(const oracle *o, const kvp_call *call, coverage_before *before)
{
    for (uint32_t i = 0; i < call->n_seqs; i++) {
        uint32_t place = oracle_find_seq(o, call->handles[i]);

        if (place == ORACLE_NONE)
            continue;
        before->n_trees += o->seqs[place].n_tree > 0;
        before->holes |= has_holes(o, &o->seqs[place]);
    }
}

static void look_at_step(const oracle *o, const kvp_call *call, coverage_before *before)
{
    before->oldest_step = o->n_steps ? o->steps[0].number : 0;
    for (uint32_t i = 0; i < o->n_steps; i++)
        before->noted |= o->steps[i].number == call->number && o->steps[i].reported;
    for (uint32_t i = 0; i < o->n_copies; i++)
        before->n_copies_of_step += o->copies[i].step == call->number && call->number;
}

void coverage_look(const oracle *o, const kvp_call *call, coverage_before *before)
{
    uint32_t place = call->handle ? oracle_find_seq(o, call->handle) : ORACLE_NONE;

    memset(before, 0, sizeof *before);
    before->stats = o->stats;
    before->marks = o->marks;
    before->available = oracle_available(o, KVP_DEVICE);
    before->held = o->pools[KVP_DEVICE].held;
    before->n_plan = o->n_plan;
    before->n_steps = o->n_steps;
    before->n_commitments = o->n_commitments;
    if (call->op == KVP_CALL_SWAP_OUT || call->op == KVP_CALL_SWAP_IN)
        look_at_group(o, call, before);
    look_at_step(o, call, before);
    look_at_members(o, call, before);
    if (place == ORACLE_NONE)
        return;
    before->n_row = o->seqs[place].n_row[0];
    before->public_units = oracle_public_units(o, &o->seqs[place]);
    before->fork = o->seqs[place].is_fork;
    before->tier = o->seqs[place].tier;
    before->holes |= has_holes(o, &o->seqs[place]);
    before->n_tree = o->seqs[place].n_tree;
    if (call->group < o->config.n_groups)
        before->window = o->seqs[place].windows[call->group];
}

static void meet(coverage *c, coverage_point point, bool is_met)
{
    c->points[point] += is_met;
}

static bool is_windowed(kvp_window window)
{
    return window.recent_tokens > 0;
}

static bool has_windows(const oracle *o)
{
    bool has = false;

    for (uint32_t k = 0; k < o->config.n_groups; k++)
        has |= is_windowed(oracle_window_of(o, k));
    return has;
}

/* Where a hit ends in chunks: a group needs nothing of it, or what lies in the last of them. */
static void count_chunked_hit(coverage *c, const oracle *o, const kvp_call *call,
                              const kvp_open_info *info)
{
    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        kvp_window window = oracle_window_of(o, k);

        if (window.sink_tokens != KVP_CHUNKED || !info->hit_tokens)
            continue;
        meet(c, COVER_hit_with_chunks, true);
        meet(c, COVER_hit_up_to_a_chunk,
             info->hit_tokens < call->n_tokens && info->hit_tokens % window.recent_tokens == 0);
        meet(c, COVER_hit_into_a_chunk,
             info->hit_tokens > window.recent_tokens &&
                 info->hit_tokens % window.recent_tokens != 0);
    }
}

static void count_group_hit(coverage *c, const oracle *o, const kvp_call *call,
                            const kvp_open_info *info)
{
    bool windows = has_windows(o), several = o->config.n_groups > 1;

    meet(c, COVER_hit_of_several_groups, several && info->hit_tokens);
    meet(c, COVER_hit_with_window, windows && info->hit_tokens);
    meet(c, COVER_hit_cut_by_group, info->stop == KVP_STOP_NO_KV && info->stop_group > 0);
    meet(c, COVER_hit_full_with_window,
         windows && info->hit_tokens && info->hit_tokens == call->n_tokens);
    count_chunked_hit(c, o, call, info);
}

/* A prompt hits what was computed after its namespace was emptied, or opened again. */
static void count_renewed_hit(coverage *c, const oracle *o, const kvp_call *call)
{
    uint32_t ns = oracle_find_ns(o, call->handle);

    meet(c, COVER_hit_after_flush, o->namespaces[ns].flushes > 0);
    meet(c, COVER_hit_after_reopening, o->namespaces[ns].reopened);
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
    meet(c, COVER_open_keeps_evicted, o->stats.kept_blocks > before->stats.kept_blocks);
    meet(c, COVER_host_hit, info->host_blocks > 0);
    meet(c, COVER_host_hit_inside_block,
         info->host_tokens > info->host_blocks * o->config.block_tokens);
    meet(c, COVER_host_and_device_hit, info->host_blocks && info->shared_blocks);
    meet(c, COVER_hit_cut_for_the_plan,
         info->stop == KVP_STOP_NO_ROOM && info->host_blocks == o->config.max_copies - 1);
    count_group_hit(c, o, call, info);
    if (info->hit_tokens)
        count_renewed_hit(c, o, call);
    meet(c, COVER_hit_of_device_only, (call->flags & KVP_OPEN_DEVICE_ONLY) && info->hit_tokens);
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
    meet(c, COVER_extend_keeps_evicted, o->stats.kept_blocks > before->stats.kept_blocks);
    meet(c, COVER_extend_with_steps_out, before->n_steps > 0);
    meet(c, COVER_extend_with_three_out, before->n_steps >= 3);
    meet(c, COVER_units_overwritten, o->stats.detached_units > before->stats.detached_units);
    meet(c, COVER_extend_behind_tree, before->n_tree > 0);
    meet(c, COVER_unknown_values, call->n_tokens && !call->tokens);
    meet(c, COVER_copy_on_write_without_copy,
         call->op == KVP_CALL_EXTEND && place != ORACLE_NONE && !copied &&
             o->stats.taken_blocks - before->stats.taken_blocks >
                 o->seqs[place].n_row[0] - before->n_row);
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
    uint32_t S = oracle_size(o, 0);
    bool inside;

    meet(c, COVER_swapped_refused, out->status == KVP_E_STATE && before->tier == KVP_HOST);
    if (out->status != KVP_OK || place == ORACLE_NONE)
        return;
    meet(c, COVER_truncate_with_steps_out, call->op == KVP_CALL_TRUNCATE && before->n_steps);
    inside = seq->tokens % S != 0;
    if (call->op == KVP_CALL_FORK) {
        meet(c, COVER_fork_inside_block, inside);
        meet(c, COVER_fork_of_fork, before->fork);
        meet(c, COVER_fork_with_holes, before->holes);
        return;
    }
    meet(c, COVER_truncate_before_holes, before->holes && !has_holes(o, seq));
    meet(c, COVER_truncate_into_sealed,
         inside && before->public_units > seq->tokens / o->unit &&
             oracle_public_units(o, seq) < before->public_units);
    meet(c, COVER_truncate_into_shared,
         inside && o->blocks[seq->rows[0][seq->n_row[0] - 1]].refs > 1);
}

static void count_swap_out(coverage *c, const oracle *o, const kvp_swapped *swapped,
                           const coverage_before *before)
{
    const kvp_stats *then = &before->stats, *now = &o->stats;

    meet(c, COVER_swap_out_copies, swapped->copied_blocks);
    meet(c, COVER_swap_out_finds, swapped->found_blocks);
    meet(c, COVER_swap_out_without_copy, swapped->found_blocks && !swapped->copied_blocks);
    meet(c, COVER_swap_out_of_sharers, before->entries > before->distinct);
    meet(c, COVER_swap_out_of_uncomputed, before->uncomputed);
    meet(c, COVER_swap_out_inside_block, before->inside);
    meet(c, COVER_swap_out_evicts, now->host_evicted_blocks > then->host_evicted_blocks);
}

static void count_swap_in(coverage *c, const oracle *o, const kvp_call *call,
                          const kvp_swapped *swapped, const coverage_before *before)
{
    const kvp_stats *then = &before->stats, *now = &o->stats;
    uint64_t kept = now->kept_blocks - then->kept_blocks;

    meet(c, COVER_swap_in_copies, swapped->copied_blocks);
    meet(c, COVER_swap_in_finds, swapped->found_blocks);
    meet(c, COVER_swap_in_of_sharers, before->entries > before->distinct);
    meet(c, COVER_swap_in_with_reserve, call->reserve_tokens);
    meet(c, COVER_swap_in_copies_on_write,
         now->copies - then->copies > swapped->copied_blocks + kept);
    meet(c, COVER_swap_in_evicts, now->evicted_blocks > then->evicted_blocks);
    meet(c, COVER_swap_in_keeps_evicted, kept);
}

static void count_swap(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                       const coverage_before *before)
{
    bool in = call->op == KVP_CALL_SWAP_IN;

    meet(c, COVER_host_short, out->status == KVP_E_NO_BLOCKS && o->shortage.tier == KVP_HOST);
    meet(c, COVER_swap_in_found_by_watermark,
         in && out->status == KVP_E_NO_BLOCKS && o->shortage.missing_blocks <= o->watermark);
    if (out->status != KVP_OK)
        return;
    meet(c, COVER_swap_with_steps_out, before->n_steps);
    meet(c, in ? COVER_swap_in_with_holes : COVER_swap_out_with_holes, before->holes);
    if (in)
        count_swap_in(c, o, call, &out->u.swapped, before);
    else
        count_swap_out(c, o, &out->u.swapped, before);
}

static void count_plan(coverage *c, const kvp_outcome *out)
{
    bool to_host = false, to_device = false, groups = false;

    if (out->status != KVP_OK || !out->n || !out->copies)
        return;
    for (uint32_t i = 0; i < out->n; i++) {
        to_host |= out->copies[i].dst_tier == KVP_HOST;
        to_device |= out->copies[i].src_tier == KVP_HOST;
        groups |= out->copies[i].group != out->copies[0].group;
    }
    meet(c, COVER_plan_of_two_phases, out->copies[out->n - 1].phase > 0);
    meet(c, COVER_plan_of_three_phases, out->copies[out->n - 1].phase > 1);
    meet(c, COVER_plan_of_both_ways, to_host && to_device);
    meet(c, COVER_plan_of_several_groups, groups);
}

static void count_step(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                       const coverage_before *before)
{
    bool failed = call->op == KVP_CALL_STEP_FAILED;

    if (out->status != KVP_OK || (failed && !call->no_report && !call->count))
        return;
    meet(c, COVER_step_done_out_of_order,
         call->op == KVP_CALL_STEP_DONE && call->number != before->oldest_step);
    meet(c, COVER_three_done_out_of_order,
         call->op == KVP_CALL_STEP_DONE && call->number != before->oldest_step &&
             before->n_steps >= 3);
    meet(c, COVER_one_of_three_failed, failed && before->n_steps >= 3);
    meet(c, COVER_step_with_copies, call->op == KVP_CALL_STEP_DONE && before->n_copies_of_step);
    meet(c, COVER_step_failed_with_copies, failed && before->n_copies_of_step);
    meet(c, COVER_step_failed_reports, failed && out->n);
    meet(c, COVER_failed_with_window, failed && out->n && has_windows(o));
    if (call->op != KVP_CALL_STEP_COMMIT)
        return;
    meet(c, COVER_step_commit_of_noted, before->noted);
    meet(c, COVER_step_commit_twice,
         before->n_commitments && call->n_seqs > o->n_commitments - before->n_commitments);
}

static void count_window(coverage *c, const kvp_call *call, const kvp_outcome *out,
                         const coverage_before *before)
{
    bool full = !is_windowed(call->window), was_full = !is_windowed(before->window);

    if (out->status != KVP_OK)
        return;
    meet(c, COVER_window_drops, out->u.released.freed_blocks + out->u.released.cached_blocks);
    meet(c, COVER_chunk_drops,
         call->window.sink_tokens == KVP_CHUNKED &&
             out->u.released.freed_blocks + out->u.released.cached_blocks);
    meet(c, COVER_window_taken_back, full && !was_full);
    meet(c, COVER_window_widened,
         !full && !was_full && before->holes &&
             call->window.recent_tokens > before->window.recent_tokens);
}

static uint32_t count_roots(const oracle_seq *seq)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < seq->n_tree; i++)
        n += seq->tree_parents[i] < 0;
    return n;
}

static void count_extend_tree(coverage *c, const oracle *o, const kvp_call *call,
                              const kvp_outcome *out, const coverage_before *before)
{
    meet(c, COVER_tree_of_several, out->status == KVP_OK && call->n_seqs > 1 && call->n_tokens > 1);
    meet(c, COVER_tree_in_rounds, out->status == KVP_OK && before->n_trees && call->n_tokens);
    for (uint32_t i = 0; i < call->n_seqs && out->status == KVP_OK; i++) {
        const oracle_seq *seq = &o->seqs[oracle_find_seq(o, call->handles[i])];

        meet(c, COVER_tree_of_several_roots, count_roots(seq) > 1);
        meet(c, COVER_tree_behind_uncomputed, seq->n_tree && seq->computed < seq->tokens);
        meet(c, COVER_tree_behind_unknown, seq->n_tree && seq->known < seq->tokens);
    }
}

static void count_accept(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                         const coverage_before *before)
{
    uint64_t accepted = o->stats.accepted_tokens - before->stats.accepted_tokens;

    meet(c, COVER_accept_before_done, out->status == KVP_E_IN_FLIGHT);
    if (out->status == KVP_E_STATE && o->shortage.index < call->n_seqs) {
        uint32_t place = oracle_find_seq(o, call->handles[o->shortage.index]);
        const oracle_seq *seq = &o->seqs[place];

        meet(c, COVER_accept_waits_for_plan,
             seq->n_tree && seq->computed == seq->tokens && seq->known == seq->tokens);
    }
    if (out->status != KVP_OK)
        return;
    meet(c, COVER_accept_nothing, before->n_trees && !accepted);
    meet(c, COVER_accept_in_place, accepted && !out->n);
    meet(c, COVER_accept_with_moves, out->n);
    meet(c, COVER_accept_of_several, before->n_trees > 1 && accepted > 1);
    meet(c, COVER_accept_for_several_groups, out->n && o->config.n_groups > 1);
}

static void count_rest(coverage *c, const oracle *o, const kvp_call *call, const kvp_outcome *out,
                       const coverage_before *before)
{
    const kvp_stats *then = &before->stats, *now = &o->stats;
    bool fill = call->op == KVP_CALL_FILL || call->op == KVP_CALL_FILL_MANY;
    bool invalidate = call->op == KVP_CALL_INVALIDATE && out->status == KVP_OK &&
                      (call->count || call->no_report);

    meet(c, COVER_adoption, now->adopted_blocks > then->adopted_blocks);
    meet(c, COVER_duplicate_kept, now->duplicate_blocks > then->duplicate_blocks);
    meet(c, COVER_duplicate_promoted, o->marks.promotions > before->marks.promotions);
    meet(c, COVER_invalidate_withdraws, invalidate && now->detached_units > then->detached_units);
    meet(c, COVER_invalidate_reports, invalidate && out->n);
    meet(c, COVER_invalidate_frees_cached, o->marks.freed_cached > before->marks.freed_cached);
    meet(c, COVER_fill_seals, fill && now->sealed_units > then->sealed_units);
    meet(c, COVER_copy_removed, o->marks.removed_copies > before->marks.removed_copies);
    meet(c, COVER_retention_spares, o->marks.spared > before->marks.spared);
    meet(c, COVER_flush_without_free_node, o->marks.kept_roots > before->marks.kept_roots);
    meet(c, COVER_flush_under_sequence,
         call->op == KVP_CALL_NS_FLUSH && out->status == KVP_OK && o->open_seqs);
    meet(c, COVER_reset_with_content, call->op == KVP_CALL_RESET && before->held);
    meet(c, COVER_reset_with_steps_out, call->op == KVP_CALL_RESET && before->n_steps);
    meet(c, COVER_full_of_copies_out,
         out->status == KVP_E_PLAN_FULL && o->n_copies > o->n_plan && !o->n_plan);
    meet(c, COVER_swapped_closed,
         call->op == KVP_CALL_CLOSE && out->status == KVP_OK && before->tier == KVP_HOST);
    meet(c, COVER_close_with_steps_out,
         call->op == KVP_CALL_CLOSE && out->status == KVP_OK && before->n_steps);
    for (uint32_t i = 0; i < out->n && invalidate && out->u64; i++) {
        uint32_t place = oracle_find_seq(o, out->u64[i]);

        meet(c, COVER_swapped_reported, place != ORACLE_NONE && o->seqs[place].tier == KVP_HOST);
    }
    for (uint32_t i = 0; i < o->n_evicted; i++)
        meet(c, COVER_evicted_of_a_group, o->evicted[i].group > 0);
    meet(c, COVER_host_units_withdrawn, o->marks.host_withdrawn > before->marks.host_withdrawn);
    meet(c, COVER_cut_units_withdrawn, o->marks.cut_withdrawn > before->marks.cut_withdrawn);
    meet(c, COVER_cut_units_reported, o->marks.cut_reported > before->marks.cut_reported);
}

static bool asks_for_a_size(const kvp_call *call)
{
    switch (call->op) {
    case KVP_CALL_INVALIDATE:
    case KVP_CALL_STEP_FAILED:
    case KVP_CALL_PLAN_TAKE:
    case KVP_CALL_STEP_BEGIN:
    case KVP_CALL_EVENTS_SNAPSHOT:
    case KVP_CALL_TREE: return !call->count && !call->no_report;
    default: return false;
    }
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
    case KVP_CALL_SWAP_OUT:
    case KVP_CALL_SWAP_IN: count_swap(c, o, call, out, before); break;
    case KVP_CALL_PLAN_TAKE:
    case KVP_CALL_STEP_BEGIN: count_plan(c, out); break;
    case KVP_CALL_STEP_COMMIT:
    case KVP_CALL_STEP_DONE:
    case KVP_CALL_STEP_FAILED: count_step(c, o, call, out, before); break;
    case KVP_CALL_WINDOW: count_window(c, call, out, before); break;
    case KVP_CALL_EXTEND_TREE: count_extend_tree(c, o, call, out, before); break;
    case KVP_CALL_ACCEPT: count_accept(c, o, call, out, before); break;
    default: break;
    }
    meet(c, COVER_size_asked, asks_for_a_size(call) && out->status == KVP_OK && out->n);
    for (uint32_t i = 0; i < COVERAGE_ASKED; i++)
        if (call->op == asking[i] && out->status == KVP_OK)
            c->verdicts[i][out->u.admission.verdict]++;
    count_rest(c, o, call, out, before);
#define COVERAGE_ADD(name) c->marks.name += o->marks.name - before->marks.name;
    ORACLE_MARKS(COVERAGE_ADD)
#undef COVERAGE_ADD
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
                fprintf(file, "%-18s", kvp_oplog_call_name(op));
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
    fprintf(file, "\n");
    for (uint32_t i = 0; i < COVERAGE_ASKED; i++)
        fprintf(file, "%s OK %" PRIu64 " LATER %" PRIu64 " NEVER %" PRIu64 "\n",
                kvp_oplog_call_name(asking[i]), c->verdicts[i][0], c->verdicts[i][1],
                c->verdicts[i][2]);
    for (uint32_t i = 0; i < COVER_COUNT; i++)
        fprintf(file, "%-30s %" PRIu64 "\n", point_name(i), c->points[i]);
#define COVERAGE_PRINT(name) fprintf(file, "inside: %-22s %" PRIu64 "\n", #name, c->marks.name);
    ORACLE_MARKS(COVERAGE_PRINT)
#undef COVERAGE_PRINT
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

        n += miss(file, c->calls[e->op][0], kvp_oplog_call_name(e->op), "KVP_OK");
        for (uint32_t k = 0; e->statuses[k]; k++)
            n += miss(file, c->calls[e->op][-e->statuses[k]], kvp_oplog_call_name(e->op),
                      kvp_status_name(e->statuses[k]));
    }
    for (uint32_t i = 0; i < COVERAGE_STOPS; i++)
        n += miss(file, c->stops[i], "a match that ends in", stop_name(i));
    for (uint32_t i = 0; i < COVERAGE_ASKED; i++) {
        static const char *names[] = {"OK", "LATER", "NEVER"};

        for (uint32_t k = 0; k < 3; k++)
            n += miss(file, c->verdicts[i][k], kvp_oplog_call_name(asking[i]), names[k]);
    }
    for (uint32_t i = 0; i < COVER_COUNT; i++)
        n += miss(file, c->points[i], "the situation", point_name(i));
#define COVERAGE_MISS(name) n += miss(file, c->marks.name, "inside", #name);
    ORACLE_MARKS(COVERAGE_MISS)
#undef COVERAGE_MISS
    return n;
}
