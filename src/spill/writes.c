/* writes: records on their way to the store.
 *
 * Host blocks are lent when the copies that write them have run, and given back when the put has
 * ended. Generations say whether a block still has the content that the record was made for: they
 * are compared before it is lent, and when the put has ended. Puts stand in their queue behind the
 * put of the record before, so one pass drops all that cannot be written any more.
 *
 * For a state the block of KV that ends with it is lent: it tells the same, while the bytes lie
 * elsewhere (slots.c).
 */
#include "spill/spill_state.h"

#include <string.h>

/* --------------------------------------------------------------------------------------- submit */

#define REST_NS      UINT64_C(1000000000)
#define MOST_REST_NS (64 * REST_NS)

enum { REFUSALS = 16 };

enum { NOT_YET, READY, GONE };

/* May the store be told of it, for the sake of the record before? */
static int parent_state(const kvp_spill *spill, const struct kvpi_spill_put *put)
{
    if (put->parent == KVPI_SPILL_NONE) {
        return READY;
    }
    const struct kvpi_spill_put *parent = &spill->puts[put->parent];
    if (parent->order != put->parent_order || parent->state == KVPI_PUT_FREE) {
        return GONE;
    }
    return parent->state == KVPI_PUT_WRITING ? READY : NOT_YET;
}

/* Have its blocks the content that it was made for? */
static int content_state(const kvp_spill *spill, const struct kvpi_spill_put *put)
{
    int state = READY;
    for (uint32_t i = 0; i < put->n_blocks; i++) {
        kvp_block_info info;
        const kvp_status status =
            kvp_block_info_get(spill->config.cache, put->kv_group, KVP_HOST, put->blocks[i], &info);
        if (status != KVP_OK || info.generation != put->generations[i]) {
            return GONE;
        }
        if (info.sealed_tokens < kvpi_spill_block_tokens(spill, put->kv_group)) {
            state = NOT_YET;
        } else if (memcmp(&info.hash, &put->hashes[i], sizeof(info.hash)) != 0) {
            return GONE;
        }
    }
    return state;
}

/* The blocks are lent: 0 when the store has no place for it now. */
static int submit_lent(kvp_spill *spill, struct kvpi_spill_put *put)
{
    const uint32_t number = (uint32_t)(put - spill->puts);
    for (uint32_t i = 0; i < put->n_blocks; i++) {
        put->addresses[i] = put->slot.place == KVPI_SPILL_NONE
                                ? kvpi_records_address(spill, put->kv_group, put->blocks[i])
                                : kvpi_slots_address(spill, put);
    }
    const uint64_t tag = kvpi_spill_tag(spill, KVPI_OP_PUT, number);
    const kvp_status status =
        kvp_store_put(spill->config.store, &put->identity, put->addresses, tag);
    if (status == KVP_OK) {
        put->tag = tag;
        put->state = KVPI_PUT_WRITING;
        spill->n_ops++;
        return 1;
    }
    (void)kvp_cache_give_back(spill->config.cache, put->blocks, put->n_blocks);
    if (status != KVP_E_AGAIN) {
        spill->stats.put_failed++;
        kvpi_puts_end(spill, put);
    }
    return status != KVP_E_AGAIN;
}

/* 0: nothing more can be submitted now. */
static int submit_put(kvp_spill *spill, struct kvpi_spill_put *put)
{
    const int parent = parent_state(spill, put);
    const int content = content_state(spill, put);
    if (parent == GONE || content == GONE) {
        spill->stats.lost += content == GONE;
        spill->stats.put_failed += content != GONE;
        kvpi_puts_end(spill, put);
        return 1;
    }
    if (parent == NOT_YET || content == NOT_YET || put->after > spill->plans_done ||
        !put->slot.is_told) {
        return 1;
    }
    const kvp_status status = kvp_cache_lend(spill->config.cache, put->blocks, put->n_blocks);
    return status == KVP_OK ? submit_lent(spill, put) : status != KVP_E_AGAIN;
}

void kvpi_writes_work(kvp_spill *spill)
{
    int may_submit = !kvpi_wrong_is_full(spill);
    kvpi_slots_work(spill);
    for (uint32_t i = 0; i < spill->n_puts && may_submit; i++) {
        struct kvpi_spill_put *put = &spill->puts[spill->put_queue[i]];
        if (put->state == KVPI_PUT_COPYING) {
            may_submit = submit_put(spill, put);
        }
    }
    kvpi_puts_sweep(spill);
}

/* ------------------------------------------------------------------------------------------ end */

/* It is there: those behind it need not wait for it any more. They stand behind it in the queue. */
static void release_children(kvp_spill *spill, struct kvpi_spill_put *of)
{
    const uint32_t number = (uint32_t)(of - spill->puts);
    for (uint32_t i = 0; i < spill->n_puts && of->n_children > 0; i++) {
        struct kvpi_spill_put *put = &spill->puts[spill->put_queue[i]];
        if (put->parent == number && put->parent_order == of->order) {
            put->parent = KVPI_SPILL_NONE;
            of->n_children--;
        }
    }
}

/* After many in a row: a second, then twice as long. What was under way does not count. */
static void be_refused(kvp_spill *spill)
{
    struct kvpi_spill_refusals *refusals = &spill->refusals;
    if (++refusals->n < REFUSALS || spill->now_ns < refusals->until_ns) {
        return;
    }
    if (refusals->rest_ns < MOST_REST_NS) {
        refusals->rest_ns = refusals->rest_ns == 0 ? REST_NS : 2 * refusals->rest_ns;
    }
    refusals->until_ns = spill->now_ns + refusals->rest_ns;
}

static void end_written(kvp_spill *spill, struct kvpi_spill_put *put, uint32_t result)
{
    spill->refusals = (struct kvpi_spill_refusals){0};
    spill->stats.written += result == KVP_STORE_OK;
    spill->stats.states_written += result == KVP_STORE_OK && put->slot.place != KVPI_SPILL_NONE;
    spill->stats.written_bytes += result == KVP_STORE_OK ? put->bytes : 0;
    spill->stats.known += result == KVP_STORE_KNOWN;
    kvpi_records_know(spill, &put->key);
    release_children(spill, put);
    kvpi_puts_end(spill, put);
}

static void end_failed(kvp_spill *spill, struct kvpi_spill_put *put, uint32_t result)
{
    if (result == KVP_STORE_NO_PARENT) {
        kvpi_records_forget(spill, &put->identity.parent);
    } else {
        be_refused(spill);
    }
    spill->stats.put_failed++;
    kvpi_puts_end(spill, put);
}

void kvpi_writes_ended(kvp_spill *spill, uint32_t number, uint32_t result)
{
    struct kvpi_spill_put *put = &spill->puts[number];
    const int is_there = result == KVP_STORE_OK || result == KVP_STORE_KNOWN;
    const int content = content_state(spill, put);
    spill->is_broken |=
        kvp_cache_give_back(spill->config.cache, put->blocks, put->n_blocks) != KVP_OK;
    if (is_there && (content != READY || put->is_doomed)) {
        kvpi_wrong_put(spill, put);
        spill->stats.taken_back++;
        kvpi_puts_end(spill, put);
    } else if (is_there) {
        end_written(spill, put, result);
    } else {
        end_failed(spill, put, result);
    }
}

void kvpi_writes_forget(kvp_spill *spill, uint64_t serial, int doom)
{
    for (uint32_t i = 0; i < spill->n_puts; i++) {
        struct kvpi_spill_put *put = &spill->puts[spill->put_queue[i]];
        if (serial != 0 && put->space != serial) {
            continue;
        }
        put->is_doomed |= (uint32_t)doom;
        if (put->state == KVPI_PUT_COPYING) {
            spill->stats.lost++;
            kvpi_puts_end(spill, put);
        }
    }
    kvpi_puts_sweep(spill);
}
