/* seq_states: the public calls of states.h. What they do to slots is in core/cache/states.c. */
#include <kvpager/states.h>

#include "core/cache/frame.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/seq/match.h"

static kvp_status check_checkpoint(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    const uint32_t U = cache->config.unit_tokens;
    if (!kvpi_has_states(cache) || seq->tier != KVP_DEVICE || seq->computed == 0 ||
        seq->computed % U != 0 || seq->computed / U > seq->n_units) {
        return KVP_E_STATE;
    }
    return kvpi_states_of(cache, seq)->lost ? KVP_E_DROPPED : KVP_OK;
}

kvp_status kvp_seq_checkpoint(kvp_cache *cache, kvp_seq seq, uint32_t *out_outcome)
{
    uint32_t outcome = KVP_CHECKPOINT_SKIPPED;
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    const struct kvpi_seq *s = kvpi_find_seq(cache, seq);
    status = s == NULL ? KVP_E_HANDLE : check_checkpoint(cache, s);
    if (status != KVP_OK) {
        (void)kvpi_fail(cache, status, 0, 0);
    } else {
        kvpi_begin_change(cache);
        outcome = kvpi_states_checkpoint(cache, s);
        if (out_outcome != NULL) {
            *out_outcome = outcome;
        }
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_checkpoint(&cache->recorder, seq, status, outcome);
    }
    return kvpi_leave(cache, status);
}

static kvp_status get_state(const kvp_cache *cache, kvp_seq seq, kvp_state_info *out)
{
    const struct kvpi_seq *s = kvpi_find_seq(cache, seq);
    if (s == NULL || !kvpi_has_states(cache)) {
        return s == NULL ? KVP_E_HANDLE : KVP_E_STATE;
    }
    const struct kvpi_state *state = kvpi_states_of(cache, s);
    *out =
        (kvp_state_info){kvpi_states_next(cache, s), state->write,  state->lost, state->branch_end,
                         state->prompt_end,          state->n_ring, state->read};
    return KVP_OK;
}

kvp_status kvp_seq_state_get(const kvp_cache *cache, kvp_seq seq, kvp_state_info *out_info)
{
    return cache == NULL || out_info == NULL ? KVP_E_ARG : get_state(cache, seq, out_info);
}

kvp_status kvp_state_need(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                          uint32_t *out_slots)
{
    struct kvpi_match match;
    kvp_admission admission;
    prompt = kvpi_sized(prompt, sizeof(*prompt));
    kvp_status status = cache == NULL || kvpi_bad_prompt(prompt) || out_slots == NULL
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = kvpi_match_prepare(cache, ns, prompt, &match);
    if (status == KVP_OK && !kvpi_has_states(cache)) {
        status = KVP_E_STATE;
    }
    if (status == KVP_OK) {
        kvpi_match_walk(cache, kvpi_table_scratch(&cache->table), &match);
        kvpi_match_admit(cache, &match, &admission); /* may end the hit at another checkpoint */
        *out_slots = kvpi_match_slots_needed(cache, &match);
    }
    return kvpi_leave(cache, status);
}

static kvp_status check_member(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    if (seq == NULL) {
        return KVP_E_HANDLE;
    }
    if (!kvpi_has_states(cache)) {
        return KVP_E_STATE;
    }
    const struct kvpi_state *state = kvpi_states_of(cache, seq);
    return state->lost ? KVP_E_DROPPED : state->write == 0 ? KVP_E_STATE : KVP_OK;
}

static kvp_status check_members(const kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs)
{
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; i < n_seqs && status == KVP_OK; i++) {
        status = check_member(cache, kvpi_find_seq(cache, seqs[i]));
    }
    return status;
}

kvp_status kvp_meta_states(const kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                           int32_t *out_read, int32_t *out_write)
{
    if (cache == NULL || (seqs == NULL && n_seqs > 0)) {
        return KVP_E_ARG;
    }
    const kvp_status status = check_members(cache, seqs, n_seqs);
    if (status != KVP_OK) {
        return status;
    }
    for (uint32_t i = 0; i < n_seqs; i++) {
        const struct kvpi_seq *seq = kvpi_known_seq(cache, seqs[i]);
        if (out_read != NULL) {
            out_read[i] = (int32_t)kvpi_states_next(cache, seq);
        }
        if (out_write != NULL) {
            out_write[i] = (int32_t)kvpi_states_of(cache, seq)->write;
        }
    }
    return KVP_OK;
}

/* One row of kvp_meta_state_rings. Gives its slots that are written. */
static uint32_t write_row(const struct kvpi_state *state, uint32_t capacity, int32_t *row)
{
    for (uint32_t j = 0; j < capacity; j++) {
        row[j] = j < state->n_ring    ? (int32_t)state->ring[j]
                 : j == state->n_ring ? (int32_t)state->write
                                      : -1;
    }
    return state->n_ring + 1;
}

kvp_status kvp_meta_state_rings(const kvp_cache *cache, const kvp_seq *seqs, uint32_t n_seqs,
                                uint32_t capacity, int32_t *out_read, uint32_t *out_n,
                                int32_t *out_write)
{
    if (cache == NULL || ((seqs == NULL || out_n == NULL || out_write == NULL) && n_seqs > 0)) {
        return KVP_E_ARG;
    }
    kvp_status status = check_members(cache, seqs, n_seqs);
    for (uint32_t i = 0; i < n_seqs && status == KVP_OK; i++) {
        const struct kvpi_seq *seq = kvpi_known_seq(cache, seqs[i]);
        status = kvpi_states_of(cache, seq)->n_ring >= capacity ? KVP_E_TOO_SMALL : KVP_OK;
    }
    for (uint32_t i = 0; i < n_seqs && status == KVP_OK; i++) {
        const struct kvpi_seq *seq = kvpi_known_seq(cache, seqs[i]);
        if (out_read != NULL) {
            out_read[i] = (int32_t)kvpi_states_next(cache, seq);
        }
        out_n[i] =
            write_row(kvpi_states_of(cache, seq), capacity, out_write + (size_t)i * capacity);
    }
    return status;
}

kvp_status kvp_cache_state_stats_get(const kvp_cache *cache, kvp_state_stats *out_stats)
{
    if (cache == NULL || out_stats == NULL) {
        return KVP_E_ARG;
    }
    const struct kvpi_states *states = &cache->states;
    const struct kvpi_pool *pool = &states->pool;
    kvp_state_stats full = {.usable_slots = pool->n_blocks == 0 ? 0 : pool->n_blocks - 1,
                            .free_slots = kvpi_read(&pool->n_free),
                            .cached_slots = kvpi_read(&pool->n_cached),
                            .held_slots = kvpi_read(&pool->n_held),
                            .taken = kvpi_read(&states->taken),
                            .made = kvpi_read(&states->made),
                            .skipped = kvpi_read(&states->skipped),
                            .hits = kvpi_read(&states->hits),
                            .evicted = kvpi_read(&states->evicted),
                            .host_usable_slots =
                                states->host.n_blocks == 0 ? 0 : states->host.n_blocks - 1,
                            .host_free_slots = kvpi_read(&states->host.n_free),
                            .host_loading_slots = kvpi_read(&cache->lending.n_slots),
                            .parked_slots = kvpi_read(&pool->n_parked)};
    full.host_held_slots = kvpi_read(&states->host.n_held);
    full.host_held_slots -= kvpi_min_u64(full.host_held_slots, full.host_loading_slots);
    *out_stats = full;
    return KVP_OK;
}
