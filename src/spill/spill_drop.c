/* spill_drop: kvp_spill_drop, for KV of a prompt that turned out to be wrong. */
#include "spill/spill_state.h"

#include "base/sized.h"

/* The keys of all records from `first` on: not every store drops what was written behind one. */
static kvp_status add_records(kvp_spill *spill, uint32_t first, uint32_t n_records)
{
    const uint32_t before = spill->wrong.n_keys;
    kvp_status status = KVP_OK;
    for (uint32_t g = 0; g < spill->n_kinds; g++) {
        for (uint32_t r = first; r < n_records && status == KVP_OK; r++) {
            kvp_digest key;
            status = kvpi_records_key(spill, kvpi_spill_digest(spill, r), g, &key);
            if (status == KVP_OK) {
                kvpi_wrong_add(spill, &key);
            }
        }
    }
    if (status != KVP_OK) {
        spill->wrong.n_keys = before;
    }
    return status;
}

static kvp_status drop_records(kvp_spill *spill, const struct kvpi_spill_space *space,
                               const kvp_prompt *prompt, uint32_t from)
{
    const uint32_t n_records = prompt->n_tokens / spill->record_tokens;
    const uint32_t first = from / spill->record_tokens;
    const kvp_hash_input input = {.unit_tokens = spill->part_tokens,
                                  .n_tokens = n_records * spill->record_tokens,
                                  .tokens = prompt->tokens,
                                  .keys = prompt->keys,
                                  .n_keys = prompt->n_keys};
    if (first >= n_records) {
        return KVP_OK;
    }
    const uint64_t n = (uint64_t)(n_records - first) * spill->n_kinds;
    if (n + spill->wrong.n_keys > KVP_STORE_KEYS_MAX) {
        return n > KVP_STORE_KEYS_MAX ? KVP_E_TOO_LONG : KVP_E_AGAIN;
    }
    kvp_status status = kvpi_records_digests(spill, &space->root, &input);
    if (status == KVP_OK) {
        status = add_records(spill, first, n_records);
    }
    if (status != KVP_OK) {
        return status;
    }
    kvpi_wrong_void(spill, space->serial, first, kvpi_spill_digest(spill, first));
    /* Others may have gone on from what is wrong, and what they computed be on its way. */
    kvpi_writes_forget(spill, space->serial, 1);
    kvpi_wrong_work(spill);
    return KVP_OK;
}

kvp_status kvp_spill_drop(kvp_spill *spill, kvp_ns ns, const kvp_prompt *prompt, uint32_t from,
                          uint64_t now_ns)
{
    prompt = kvpi_sized(prompt, sizeof(*prompt));
    if (spill == NULL || prompt == NULL) {
        return KVP_E_ARG;
    }
    kvpi_rates_tick(spill, now_ns);
    const kvp_status status = kvp_prompt_check(spill->config.cache, ns, prompt, NULL);
    const struct kvpi_spill_space *space = kvpi_epochs_find(spill, ns);
    if (status != KVP_OK) {
        return status;
    }
    if (space == NULL) {
        return KVP_E_STATE;
    }
    if (prompt->n_tokens > spill->config.max_tokens) {
        return KVP_E_TOO_LONG;
    }
    return drop_records(spill, space, prompt, from);
}
