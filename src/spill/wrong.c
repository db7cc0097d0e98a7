/* wrong: records whose KV turned out to be wrong. The store is told to drop them, and told again in
 * each step until it says that it has: it may be away. Until then they count as absent. */
#include "spill/load/spill_load.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------- what is to go */

static int compare_marks(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void sort_marks(kvp_spill *spill)
{
    struct kvpi_spill_wrong *wrong = &spill->wrong;
    for (uint32_t i = 0; i < wrong->n_keys; i++) {
        wrong->marks[i] = kvpi_records_mark_of(&wrong->keys[i]);
    }
    wrong->n_marks = wrong->n_keys;
    if (wrong->n_marks > 0) {
        qsort(wrong->marks, wrong->n_marks, sizeof(*wrong->marks), compare_marks);
    }
}

/* Two keys with one mark: the other is a miss for a while. */
int kvpi_wrong_has(const kvp_spill *spill, const kvp_digest *key)
{
    const uint64_t mark = kvpi_records_mark_of(key);
    return spill->wrong.n_marks > 0 && bsearch(&mark, spill->wrong.marks, spill->wrong.n_marks,
                                               sizeof(mark), compare_marks) != NULL;
}

/* What is being written then still finds room here. */
int kvpi_wrong_is_full(const kvp_spill *spill)
{
    return spill->wrong.n_keys >= KVP_STORE_KEYS_MAX;
}

/* A drop that is out may be over before what is written now: then it does not count. */
void kvpi_wrong_add(kvp_spill *spill, const kvp_digest *key)
{
    struct kvpi_spill_wrong *wrong = &spill->wrong;
    if (wrong->n_out > 0 || !kvpi_wrong_has(spill, key)) {
        wrong->keys[wrong->n_keys++] = *key;
    }
    kvpi_records_forget(spill, key);
}

/* ------------------------------------------------------------------------------------ the store */

/* One that has failed leaves its place in the store's queue to others first. What was added since
 * the last step is sorted in: who had asked for it was answered when it was added. */
void kvpi_wrong_work(kvp_spill *spill)
{
    struct kvpi_spill_wrong *wrong = &spill->wrong;
    const uint32_t n = kvpi_spill_min(wrong->n_keys, KVP_STORE_KEYS_MAX);
    const int rests = (int)wrong->rests;
    wrong->rests = 0;
    if (wrong->n_marks < wrong->n_keys) {
        sort_marks(spill);
    }
    if (n == 0 || wrong->n_out > 0 || rests || (spill->is_stopping && wrong->is_failed)) {
        return;
    }
    const uint64_t tag = kvpi_spill_tag(spill, KVPI_OP_DROP, 0);
    if (kvp_store_drop(spill->config.store, wrong->keys, n, tag) == KVP_OK) {
        wrong->tag = tag;
        wrong->n_out = n;
        spill->n_ops++;
    }
}

/* The put may take effect after the drop. */
static int is_being_written(kvp_spill *spill, const kvp_digest *key)
{
    const struct kvpi_spill_put *put = kvpi_puts_find(spill, key);
    return put != NULL && put->is_doomed;
}

void kvpi_wrong_ended(kvp_spill *spill, uint32_t result)
{
    struct kvpi_spill_wrong *wrong = &spill->wrong;
    const uint32_t n = wrong->n_out;
    wrong->n_out = 0;
    wrong->is_failed = wrong->rests = result != KVP_STORE_OK;
    if (wrong->is_failed) {
        spill->stats.drop_failed++;
        return;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < wrong->n_keys; i++) {
        kvpi_records_forget(spill, &wrong->keys[i]);
        if (i >= n || is_being_written(spill, &wrong->keys[i])) {
            wrong->keys[kept++] = wrong->keys[i];
        }
    }
    wrong->n_keys = kept;
    sort_marks(spill);
}

/* -------------------------------------------------------------------------------------- records */

/* Who has asked for the record must not load it. */
void kvpi_wrong_void(kvp_spill *spill, uint64_t space, uint32_t record, const kvp_digest *digest)
{
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        if (ask->space == space && ask->n_records > record &&
            memcmp(&ask->digests[record], digest, sizeof(*digest)) == 0) {
            kvpi_answers_void(spill, ask, KVP_SPILL_NOTHING);
        }
    }
}

void kvpi_wrong_put(kvp_spill *spill, const struct kvpi_spill_put *put)
{
    kvpi_wrong_add(spill, &put->key);
    kvpi_wrong_void(spill, put->space, put->identity.position / spill->record_tokens,
                    &put->identity.digest);
}
