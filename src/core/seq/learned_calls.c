/* learned_calls: the public calls about the learned policy. core/policy has what was learned, and
 * knows no public header; here its tables become the fields of policy.h. */
#include <kvpager/policy.h>

#include "base/sized.h"
#include "core/cache/frame.h"
#include "core/cache/state.h"
#include "core/seq/learned.h"

#include <string.h>

_Static_assert(KVP_POLICY_CLASSES == KVPI_CLASSES && KVP_POLICY_AGES == KVPI_BINS,
               "policy.h has the sizes of the tables");
_Static_assert(KVP_POLICY_ENTRY == KVPI_HITS_ONE, "as the counts are");
_Static_assert(KVP_POLICY_DENSITY == 1 << (KVPI_VALUE_BITS - 5), "an index is for C/32 references");
_Static_assert(KVP_POLICY_CREDIT == KVPI_POLICY_CREDIT_ONE, "as the guard's is");
_Static_assert((int)KVP_FALLBACK_COLD == KVPI_FALLBACK_COLD &&
                   (int)KVP_FALLBACK_GUARD == KVPI_FALLBACK_GUARD &&
                   (int)KVP_FALLBACK_GATE == KVPI_FALLBACK_GATE,
               "reasons have the same numbers");

kvp_status kvp_policy_info_get_sized(const kvp_cache *cache, kvp_policy_info *out_info,
                                     size_t info_size)
{
    if (cache == NULL || out_info == NULL || kvpi_sized_bad(out_info, info_size)) {
        return KVP_E_ARG;
    }
    if (!kvpi_learns(cache)) {
        return KVP_E_STATE;
    }
    const struct kvpi_policy *policy = kvpi_leaves_policy(&cache->pool.leaves);
    const uint64_t *by = cache->counters.fallback_by;
    const kvp_policy_info full = {.references = policy->references,
                                  .cold_references = kvpi_read(&by[KVPI_FALLBACK_COLD]),
                                  .guard_references = kvpi_read(&by[KVPI_FALLBACK_GUARD]),
                                  .gate_references = kvpi_read(&by[KVPI_FALLBACK_GATE]),
                                  .returned = policy->returned,
                                  .returned_late = policy->returned_late,
                                  .credit = policy->credit,
                                  .credit_floor = kvpi_policy_credit_floor(policy),
                                  .credit_limit = kvpi_policy_credit_limit(policy),
                                  .fallback = (uint32_t)kvpi_policy_fallback(policy),
                                  .entry_blocks = policy->group_blocks};
    kvpi_sized_give(out_info, info_size, &full, sizeof(full));
    return KVP_OK;
}

static void fill_class(const struct kvpi_hits *hits, uint32_t class_, kvp_policy_class *out)
{
    static const uint32_t uses[] = {1, 2, 3, 5}, output[] = {0, 32, 256, 512},
                          fresh[] = {0, 513, 4097, 32769};
    out->least_uses = uses[class_ / 16];
    out->least_output = output[class_ / 4 % 4];
    out->least_new = fresh[class_ % 4];
    for (uint32_t b = 0; b < KVPI_BINS; b++) {
        out->ages[b] = kvpi_bins_32nds(b);
    }
    memcpy(out->seen, hits->at_risk[class_], sizeof(out->seen));
    memcpy(out->used, hits->hits[class_], sizeof(out->used));
    memcpy(out->density, hits->now[class_], sizeof(out->density));
    memcpy(out->best_density, hits->best[class_], sizeof(out->best_density));
}

kvp_status kvp_policy_class_get_sized(const kvp_cache *cache, uint32_t class_,
                                      kvp_policy_class *out_class, size_t class_size)
{
    if (cache == NULL || out_class == NULL || class_ >= KVP_POLICY_CLASSES ||
        kvpi_sized_bad(out_class, class_size)) {
        return KVP_E_ARG;
    }
    if (!kvpi_learns(cache)) {
        return KVP_E_STATE;
    }
    kvp_policy_class full;
    fill_class(&kvpi_leaves_policy(&cache->pool.leaves)->hits, class_, &full);
    kvpi_sized_give(out_class, class_size, &full, sizeof(full));
    return KVP_OK;
}

static kvp_status prompt_end(kvp_cache *cache, kvp_seq handle, uint32_t n_tokens)
{
    struct kvpi_seq *seq = kvpi_find_seq(cache, handle);
    if (seq == NULL) {
        return kvpi_fail(cache, KVP_E_HANDLE, 0, 0);
    }
    if (n_tokens > seq->tokens) {
        return kvpi_fail(cache, KVP_E_ARG, 0, 0);
    }
    kvpi_begin_change(cache);
    kvpi_set32(&seq->prompt, n_tokens);
    return KVP_OK;
}

kvp_status kvp_seq_prompt_end(kvp_cache *cache, kvp_seq seq, uint32_t n_tokens)
{
    if (cache == NULL) {
        return KVP_E_ARG;
    }
    kvp_status status = kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = prompt_end(cache, seq, n_tokens);
    if (kvpi_recording(cache)) {
        kvpi_record_seq_prompt_end(&cache->recorder, seq, n_tokens, status);
    }
    return kvpi_leave(cache, status);
}
