/* drop: records whose KV turned out to be wrong. The store is told to drop them, and told again in
 * each step until it says that it has: it may be away. Until then they count as absent. */
#include "spill/state.h"

#include "base/sized.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------- what is to go */

static int compare_marks(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void sort_marks(struct kvpi_spill_drop *drop)
{
    for (uint32_t i = 0; i < drop->n_keys; i++) {
        drop->marks[i] = kvpi_records_mark_of(&drop->keys[i]);
    }
    drop->n_marks = drop->n_keys;
    if (drop->n_marks > 0) {
        qsort(drop->marks, drop->n_marks, sizeof(*drop->marks), compare_marks);
    }
}

/* Two keys with one mark: the other is a miss for a while. */
int kvpi_drop_has(const kvp_spill *spill, const kvp_digest *key)
{
    const uint64_t mark = kvpi_records_mark_of(key);
    return spill->drop.n_marks > 0 && bsearch(&mark, spill->drop.marks, spill->drop.n_marks,
                                              sizeof(mark), compare_marks) != NULL;
}

/* What is being written then still finds room here. */
int kvpi_drop_is_full(const kvp_spill *spill)
{
    return spill->drop.n_keys >= KVP_STORE_KEYS_MAX;
}

/* A drop that is out may be over before what is written now: then it does not count. */
static void add(kvp_spill *spill, const kvp_digest *key)
{
    struct kvpi_spill_drop *drop = &spill->drop;
    if (drop->n_out > 0 || !kvpi_drop_has(spill, key)) {
        drop->keys[drop->n_keys++] = *key;
    }
    kvpi_records_forget(spill, key);
}

/* ------------------------------------------------------------------------------------ the store */

/* One that has failed leaves its place in the store's queue to others first. */
void kvpi_drop_work(kvp_spill *spill)
{
    struct kvpi_spill_drop *drop = &spill->drop;
    const uint32_t n = kvpi_spill_min(drop->n_keys, KVP_STORE_KEYS_MAX);
    const uint64_t tag = kvpi_spill_tag(spill, KVPI_OP_DROP, 0);
    const int rests = (int)drop->rests;
    drop->rests = 0;
    if (n == 0 || drop->n_out > 0 || rests || (spill->is_stopping && drop->is_failed) ||
        kvp_store_drop(spill->config.store, drop->keys, n, tag) != KVP_OK) {
        return;
    }
    drop->tag = tag;
    drop->n_out = n;
    spill->n_ops++;
}

void kvpi_drop_ended(kvp_spill *spill, uint32_t result)
{
    struct kvpi_spill_drop *drop = &spill->drop;
    const uint32_t n = drop->n_out;
    drop->n_out = 0;
    drop->is_failed = drop->rests = result != KVP_STORE_OK;
    if (drop->is_failed) {
        spill->stats.drop_failed++;
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        kvpi_records_forget(spill, &drop->keys[i]);
    }
    drop->n_keys -= n;
    memmove(drop->keys, drop->keys + n, drop->n_keys * sizeof(*drop->keys));
    sort_marks(drop);
}

/* -------------------------------------------------------------------------------------- records */

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

void kvpi_drop_put(kvp_spill *spill, const struct kvpi_spill_put *put)
{
    add(spill, &put->key);
    sort_marks(&spill->drop);
    void_asks(spill, put->space, put->identity.position / spill->record_tokens,
              &put->identity.digest);
}

/* The keys of all records from `first` on: not every store drops what was written behind one. */
static kvp_status add_records(kvp_spill *spill, uint32_t first, uint32_t n_records)
{
    const uint32_t before = spill->drop.n_keys;
    kvp_status status = KVP_OK;
    for (uint32_t g = 0; g < spill->cache.n_groups; g++) {
        for (uint32_t r = first; r < n_records && status == KVP_OK; r++) {
            kvp_digest key;
            status = kvpi_records_key(spill, &spill->digests[(r + 1) * spill->record_blocks - 1], g,
                                      &key);
            if (status == KVP_OK) {
                add(spill, &key);
            }
        }
    }
    if (status != KVP_OK) {
        spill->drop.n_keys = before;
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
    if (first >= n_records) {
        return KVP_OK;
    }
    const uint64_t n = (uint64_t)(n_records - first) * spill->cache.n_groups;
    if (n + spill->drop.n_keys > KVP_STORE_KEYS_MAX) {
        return n > KVP_STORE_KEYS_MAX ? KVP_E_TOO_LONG : KVP_E_AGAIN;
    }
    kvp_status status = kvpi_records_digests(spill, &space->root, &input);
    if (status == KVP_OK) {
        status = add_records(spill, first, n_records);
    }
    if (status != KVP_OK) {
        return status;
    }
    sort_marks(&spill->drop);
    void_asks(spill, space->serial, first, &spill->digests[(first + 1) * spill->record_blocks - 1]);
    /* Others may have gone on from what is wrong, and what they computed be on its way. */
    kvpi_writes_forget(spill, space->serial, 1);
    kvpi_drop_work(spill);
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
    return drop_records(spill, space, prompt, from);
}
