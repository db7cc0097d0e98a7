/* spill_slots: states on their way to the host, from where the store takes them.
 *
 * A checkpoint lies in a slot of the device, and the cache has no host slots for what stores read.
 * So the spill has places of its own, behind the cache's host slots, and the engine copies there:
 *
 *     held -> told -> copied -> written
 *      |       |        |
 *      |       |        the copy's plan is over: the sequence is closed, the place has the state
 *      |       kvp_spill_copies gave the copy
 *      a sequence holds the slot, and a place is taken
 *
 * What is copied is not written again while the sequence holds it. From then on the block of KV
 * that ends with the state, and is lent with it, tells whether it was invalidated (writes.c).
 */
#include "spill/spill_state.h"

/* ----------------------------------------------------------------------------------------- hold */

/* There is one. */
static uint32_t take_place(kvp_spill *spill)
{
    uint32_t place = 0;
    while (spill->slots_used >> place & 1) {
        place++;
    }
    spill->slots_used |= UINT64_C(1) << place;
    spill->n_slots++;
    return place;
}

/* Is the slot that the sequence reads a checkpoint? A fork of another one would share it. */
static int is_kept(const kvp_spill *spill, kvp_seq seq)
{
    kvp_state_info state;
    kvp_block_info info;
    return kvp_seq_state_get(spill->config.cache, seq, &state) == KVP_OK && state.read_slot != 0 &&
           kvp_block_info_get(spill->config.cache, spill->cache.n_groups, KVP_DEVICE,
                              (int32_t)state.read_slot, &info) == KVP_OK &&
           info.sealed_units > 0;
}

static kvp_status fork_at(const kvp_spill *spill, const struct kvpi_spill_prefix *prefix,
                          kvp_seq *out_seq)
{
    kvp_seq_info info = {0};
    (void)kvp_seq_info_get(spill->config.cache, prefix->seq, &info);
    if (info.tier != KVP_DEVICE ||
        (info.computed_tokens == prefix->n_tokens && !is_kept(spill, prefix->seq))) {
        return KVP_E_DROPPED;
    }
    return kvp_seq_fork(spill->config.cache, prefix->seq, prefix->n_tokens, 0, out_seq);
}

/* No sequence is known: a prompt of the prefix and one token more hits the checkpoint. It hits
 * another one if the plan has no room for the copies of the blocks. */
static kvp_status open_at(kvp_spill *spill, const struct kvpi_spill_prefix *prefix,
                          kvp_seq *out_seq)
{
    const kvp_prompt prompt = {.struct_size = sizeof(prompt),
                               .tokens = spill->tokens,
                               .n_tokens = prefix->n_tokens + 1,
                               .keys = prefix->n_keys > 0 ? spill->keys : NULL,
                               .n_keys = prefix->n_keys};
    kvp_open_info info = {0};
    const kvp_status status =
        kvp_seq_open(spill->config.cache, prefix->space->ns, &prompt, out_seq, &info);
    if (status == KVP_OK && info.hit_tokens != prefix->n_tokens) {
        (void)kvp_seq_close(spill->config.cache, *out_seq, NULL);
        return KVP_E_DROPPED;
    }
    return status;
}

kvp_status kvpi_slots_hold(kvp_spill *spill, const struct kvpi_spill_prefix *prefix,
                           struct kvpi_spill_put *put)
{
    kvp_state_info state = {0};
    kvp_seq seq;
    kvp_status status = spill->n_slots == spill->config.max_states ? KVP_E_AGAIN : KVP_OK;
    if (status == KVP_OK) {
        status = prefix->is_unproven ? open_at(spill, prefix, &seq) : fork_at(spill, prefix, &seq);
    }
    if (status != KVP_OK) {
        return status;
    }
    (void)kvp_seq_state_get(spill->config.cache, seq, &state);
    put->slot = (struct kvpi_spill_slot){
        .seq = seq, .slot = (int32_t)state.read_slot, .place = take_place(spill)};
    return KVP_OK;
}

/* ------------------------------------------------------------------------------------------ end */

static void close_seq(kvp_spill *spill, struct kvpi_spill_put *put)
{
    if (put->slot.seq.bits != 0) {
        (void)kvp_seq_close(spill->config.cache, put->slot.seq, NULL);
    }
    put->slot.seq.bits = 0;
}

void kvpi_slots_end(kvp_spill *spill, struct kvpi_spill_put *put)
{
    if (put->slot.place != KVPI_SPILL_NONE) {
        close_seq(spill, put);
        spill->slots_used &= ~(UINT64_C(1) << put->slot.place);
        spill->n_slots--;
        put->slot.place = KVPI_SPILL_NONE;
    }
}

void kvpi_slots_work(kvp_spill *spill)
{
    for (uint32_t i = 0; i < spill->n_puts && spill->n_slots > 0; i++) {
        struct kvpi_spill_put *put = &spill->puts[spill->put_queue[i]];
        if (put->slot.place != KVPI_SPILL_NONE && put->slot.is_told &&
            put->slot.plan <= spill->plans_done) {
            close_seq(spill, put);
        }
    }
}

/* ----------------------------------------------------------------------------------------- copy */

static int32_t host_slot(const kvp_spill *spill, const struct kvpi_spill_put *put)
{
    return (int32_t)(spill->cache.host_state_slots + put->slot.place);
}

void *kvpi_slots_address(const kvp_spill *spill, const struct kvpi_spill_put *put)
{
    return kvpi_records_address(spill, spill->cache.n_groups, host_slot(spill, put));
}

kvp_status kvp_spill_copies(kvp_spill *spill, kvp_copy *out_copies, uint32_t capacity,
                            uint32_t *out_n)
{
    kvp_stats stats = {0};
    if (spill == NULL || out_n == NULL || (out_copies == NULL && capacity > 0)) {
        return KVP_E_ARG;
    }
    *out_n = 0;
    if (spill->n_slots == 0) {
        return KVP_OK;
    }
    (void)kvp_cache_stats_get(spill->config.cache, &stats);
    for (uint32_t i = 0; i < spill->n_puts && *out_n < capacity && stats.plans > 0; i++) {
        struct kvpi_spill_put *put = &spill->puts[spill->put_queue[i]];
        if (put->slot.place == KVPI_SPILL_NONE || put->slot.is_told) {
            continue;
        }
        out_copies[(*out_n)++] = (kvp_copy){.group = (uint16_t)spill->cache.n_groups,
                                            .src_tier = KVP_DEVICE,
                                            .dst_tier = KVP_HOST,
                                            .src_block = put->slot.slot,
                                            .dst_block = host_slot(spill, put),
                                            .n_tokens = 1};
        put->slot.is_told = 1;
        put->slot.plan = stats.plans;
        put->after = put->after > stats.plans ? put->after : stats.plans;
    }
    return KVP_OK;
}
