/* look: from a question to the store to a prefix that is worth loading. */
#include "spill/load/spill_load.h"

/* What is to be dropped is absent, and so is what may have gone on from it. */
static void hide_dropped(const kvp_spill *spill, struct kvpi_spill_ask *ask)
{
    for (uint32_t g = 0; g < spill->n_kinds && spill->wrong.n_keys > 0; g++) {
        uint32_t i = 0;
        const uint32_t end = kvpi_records_lookups(spill, ask, g, &i);
        while (i < end && !kvpi_wrong_has(spill, &ask->lookups[i])) {
            i++;
        }
        for (; i < end; i++) {
            ask->bits[i / 64] &= ~(UINT64_C(1) << i % 64);
        }
    }
}

/* The store's answer is believed for writing, too. */
static void note_known(kvp_spill *spill, const struct kvpi_spill_ask *ask)
{
    for (uint32_t i = 0; i < ask->n_lookups; i++) {
        if (ask->bits[i / 64] >> i % 64 & 1) {
            kvpi_records_know(spill, &ask->lookups[i]);
        } else {
            kvpi_records_forget(spill, &ask->lookups[i]);
        }
    }
}

void kvpi_look_ended(kvp_spill *spill, uint32_t number, uint32_t result)
{
    struct kvpi_spill_ask *ask = &spill->asks[number];
    if (result == KVP_STORE_OK) {
        hide_dropped(spill, ask);
        note_known(spill, ask);
    }
    if (result == KVP_STORE_OK && ask->waits && !ask->is_void) {
        ask->state = KVPI_ASK_FOUND;
    } else {
        ask->state = KVPI_ASK_LOADED;
        kvpi_answers_give(spill, ask, KVP_SPILL_FAILED);
    }
}

/* Nothing behind it is begun before it: 0. */
static int look_up(kvp_spill *spill, struct kvpi_spill_ask *ask)
{
    const uint64_t tag = kvpi_spill_tag(spill, KVPI_OP_HAVE, (uint32_t)(ask - spill->asks));
    const kvp_status status =
        kvp_store_have(spill->config.store, ask->lookups, ask->n_lookups, ask->bits, tag);
    if (status == KVP_OK) {
        ask->tag = tag;
        ask->state = KVPI_ASK_LOOKED;
        spill->n_ops++;
    }
    return status == KVP_OK;
}

/* Is something of this spill on its way that gives room when it ends? For what others hold, no
 * request waits. */
static int may_get_room(const kvp_spill *spill)
{
    int is_loading = 0;
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        is_loading |= spill->asks[spill->queue[i]].state == KVPI_ASK_LOADING;
    }
    return is_loading || spill->n_ops > 0 || spill->n_puts > 0;
}

/* Once for each request, however often it is tried. */
static void count_decision(kvp_spill *spill, const struct kvpi_spill_ask *ask, uint32_t n_tokens)
{
    spill->stats.decided_all += n_tokens > 0 && !ask->is_part;
    spill->stats.decided_part += n_tokens > 0 && ask->is_part;
    spill->stats.decided_none += n_tokens == 0;
}

/* 0: there is no room now, and those behind it wait, too. */
static int choose(kvp_spill *spill, struct kvpi_spill_ask *ask)
{
    kvp_open_info info = {0};
    uint32_t outcome = KVP_SPILL_NOTHING;
    uint32_t n_tokens = 0;
    spill->n_looks--;
    if (kvp_cache_match(spill->config.cache, ask->ns, &ask->prompt, &info) == KVP_OK) {
        ask->found_tokens = info.hit_tokens;
        n_tokens = kvpi_choose_prefix(spill, ask, info.hit_tokens, &outcome);
    }
    if (n_tokens > 0) {
        const kvp_status status = kvpi_reads_begin(spill, ask, n_tokens);
        if (status == KVP_E_AGAIN && may_get_room(spill)) {
            return 0;
        }
        count_decision(spill, ask, n_tokens);
        if (status == KVP_OK) {
            return 1;
        }
    } else if (outcome == KVP_SPILL_COMPUTE) {
        count_decision(spill, ask, 0);
        kvpi_rates_refused(spill);
    }
    kvpi_answers_give(spill, ask, outcome);
    return 1;
}

void kvpi_look_work(kvp_spill *spill)
{
    int may_look = 1;
    int may_choose = 1;
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        if (ask->state == KVPI_ASK_LOOKING && may_look) {
            may_look = look_up(spill, ask);
        } else if (ask->state == KVPI_ASK_FOUND && may_choose && spill->n_looks > 0) {
            may_choose = choose(spill, ask);
        }
    }
}
