/* drop: records whose KV turned out to be wrong are dropped from the store. The keys of one
 * call at a time; no question goes to the store before them. */
#include "spill/state.h"

#include "base/sized.h"

#include <string.h>

int kvpi_drop_work(kvp_spill *spill)
{
    struct kvpi_spill_drop *drop = &spill->drop;
    const uint64_t tag = kvpi_spill_tag(spill, KVPI_OP_DROP, 0);
    if (drop->n_keys > 0 && !drop->is_out &&
        kvp_store_drop(spill->config.store, drop->keys, drop->n_keys, tag) == KVP_OK) {
        drop->tag = tag;
        drop->is_out = 1;
        spill->n_ops++;
    }
    return drop->n_keys == 0 || drop->is_out;
}

void kvpi_drop_ended(kvp_spill *spill)
{
    spill->drop.n_keys = 0;
    spill->drop.is_out = 0;
}

/* Who has asked for the record must not load it. */
static void void_asks(kvp_spill *spill, uint64_t space, uint32_t record, const kvp_digest *digest)
{
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        if (ask->space == space && ask->n_records > record &&
            memcmp(&ask->digests[record], digest, sizeof(*digest)) == 0) {
            kvpi_answers_void(spill, ask, KVP_SPILL_NOTHING);
        }
    }
}

/* The first record of a chain is enough: the store drops those that need it. */
static kvp_status list_keys(kvp_spill *spill, uint32_t first, uint32_t n_records, uint32_t *out_n)
{
    kvp_status status = KVP_OK;
    *out_n = 0;
    for (uint32_t g = 0; g < spill->cache.n_groups; g++) {
        const uint32_t end = kvpi_records_is_full(spill, g) ? first + 1 : n_records;
        for (uint32_t r = first; r < end && status == KVP_OK; r++) {
            if (*out_n == KVP_STORE_KEYS_MAX) {
                return KVP_E_TOO_LONG;
            }
            status = kvpi_records_key(spill, &spill->digests[(r + 1) * spill->record_blocks - 1], g,
                                      &spill->drop.keys[(*out_n)++]);
        }
    }
    return status;
}

static kvp_status drop_records(kvp_spill *spill, const struct kvpi_spill_space *space,
                               const kvp_prompt *prompt, uint32_t from)
{
    const uint32_t n_records = prompt->n_tokens / spill->record_tokens;
    const uint32_t first = from / spill->record_tokens;
    const kvp_hash_input input = {.unit_tokens = spill->cache.block_tokens,
                                  .n_tokens = n_records * spill->record_tokens,
                                  .tokens = prompt->tokens,
                                  .keys = prompt->keys,
                                  .n_keys = prompt->n_keys};
    uint32_t n = 0;
    if (first >= n_records) {
        return KVP_OK;
    }
    kvp_status status = kvpi_records_digests(spill, &space->root, &input);
    if (status == KVP_OK) {
        status = list_keys(spill, first, n_records, &n);
    }
    if (status != KVP_OK) {
        return status;
    }
    for (uint32_t i = 0; i < n; i++) {
        kvpi_records_forget(spill, &spill->drop.keys[i]);
    }
    void_asks(spill, space->serial, first, &spill->digests[(first + 1) * spill->record_blocks - 1]);
    /* Others may have gone on from what is wrong, and what they computed be on its way. */
    kvpi_writes_forget(spill, space->serial, 1);
    spill->drop.n_keys = n;
    (void)kvpi_drop_work(spill);
    return KVP_OK;
}

kvp_status kvp_spill_drop(kvp_spill *spill, kvp_ns ns, const kvp_prompt *prompt, uint32_t from,
                          uint64_t now_ns)
{
    kvp_prompt own = {0};
    prompt = kvpi_sized_take(prompt, &own, sizeof(own));
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
    return spill->drop.n_keys > 0 ? KVP_E_AGAIN : drop_records(spill, space, prompt, from);
}
