/* commit: the first tokens of a sequence are computed; full units are sealed. */
#include "core/calls/commit.h"

#include "core/cache/blocks.h"
#include "core/cache/frame.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/seq/seq_windows.h"

/* n_tokens are computed, more than before: seal the units that are complete. */
static inline void seal_up_to(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n_tokens)
{
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t before = kvpi_min_u32(seq->computed, seq->known);
    const uint32_t after = kvpi_min_u32(n_tokens, seq->known);
    kvpi_set32(&seq->computed, n_tokens);
    if (before >= (uint64_t)seq->n_public * U) {
        return; /* nothing to seal: most steps of decoding */
    }
    const uint32_t end = kvpi_min_u32(after / U, seq->n_public);
    for (uint32_t u = before / U; u < end; u++) {
        kvpi_seal_unit(cache, seq, u, end);
    }
}

/* What windows do not keep goes; the state is the one that was written. */
__attribute__((noinline)) static void after_commit(kvp_cache *cache, struct kvpi_seq *seq)
{
    if (seq->windowed & KVPI_WINDOWED) {
        kvpi_windows_drop(cache, seq, NULL);
    }
    if (seq->windowed & KVPI_STATEFUL) {
        kvpi_states_commit(cache, seq);
    }
}

void kvpi_commit(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n_tokens)
{
    if (n_tokens > seq->computed) {
        seal_up_to(cache, seq, n_tokens);
        if (kvpi_unlikely(seq->windowed != 0)) {
            after_commit(cache, seq);
        }
    }
}

static inline kvp_status commit_all(kvp_cache *cache, const kvp_seq *seqs, const uint32_t *n_tokens,
                                    uint32_t n_seqs, int has_states)
{
    struct kvpi_faults faults = kvpi_faults_begin(cache);
    for (uint32_t i = 0; i < n_seqs; i++) {
        struct kvpi_seq *seq = kvpi_faults_find(cache, &faults, seqs[i], i);
        if (seq == NULL) {
            break;
        }
        kvp_status status = kvpi_check_commit(cache, seq, n_tokens[i]);
        if (has_states && status == KVP_OK) {
            status = kvpi_states_check_commit(cache, seq, n_tokens[i]);
        }
        kvpi_faults_other(&faults, status, i);
    }
    if (kvpi_faults_any(&faults)) {
        return kvpi_faults_fail(cache, &faults);
    }
    kvpi_begin_change(cache);
    for (uint32_t i = 0; i < n_seqs; i++) {
        kvpi_commit(cache, kvpi_known_seq(cache, seqs[i]), n_tokens[i]);
    }
    return KVP_OK;
}

/* Apart, so that what has no states keeps its registers. */
__attribute__((noinline)) static kvp_status commit_states(kvp_cache *cache, const kvp_seq *seqs,
                                                          const uint32_t *n_tokens, uint32_t n_seqs)
{
    return commit_all(cache, seqs, n_tokens, n_seqs, 1);
}

static kvp_status commit_many(kvp_cache *cache, const kvp_seq *seqs, const uint32_t *n_tokens,
                              uint32_t n_seqs)
{
    return kvpi_unlikely(kvpi_has_states(cache)) ? commit_states(cache, seqs, n_tokens, n_seqs)
                                                 : commit_all(cache, seqs, n_tokens, n_seqs, 0);
}

kvp_status kvp_seq_commit(kvp_cache *cache, kvp_seq seq, uint32_t n_tokens)
{
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = commit_many(cache, &seq, &n_tokens, 1);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_commit(&cache->recorder, seq, n_tokens, status);
    }
    return kvpi_leave(cache, status);
}

kvp_status kvp_seq_commit_many(kvp_cache *cache, const kvp_seq *seqs, const uint32_t *n_tokens,
                               uint32_t n_seqs)
{
    kvp_status status = cache == NULL || ((seqs == NULL || n_tokens == NULL) && n_seqs > 0)
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = commit_many(cache, seqs, n_tokens, n_seqs);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_commit_many(&cache->recorder, seqs, n_tokens, n_seqs, status);
    }
    return kvpi_leave(cache, status);
}
