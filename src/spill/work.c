/* work: a step of the spill: what the store has ended, what can be ended and begun now, and
 * who is answered. */
#include "spill/load/spill_load.h"

#include "base/sized.h"

enum { POLL = 64, LOOKS = 4 };

/* ---------------------------------------------------------------------------------------- ended */

/* The place that waits for the answer, by its tag; NULL: none does. */
static uint64_t *find_tag(kvp_spill *spill, uint32_t what, uint32_t number)
{
    switch (what) {
    case KVPI_OP_HAVE: return number < spill->config.max_asks ? &spill->asks[number].tag : NULL;
    case KVPI_OP_GET: return number < spill->config.max_gets ? &spill->gets[number].tag : NULL;
    case KVPI_OP_PUT: return number < spill->config.max_puts ? &spill->puts[number].tag : NULL;
    case KVPI_OP_DROP: return &spill->wrong.tag;
    case KVPI_OP_SYNC: return &spill->flush.tag;
    default: return NULL;
    }
}

static void end_operation(kvp_spill *spill, const kvp_store_done *done)
{
    const uint32_t number = (uint32_t)done->tag;
    const uint32_t what = KVPI_OP_WHAT(done->tag);
    uint64_t *tag = find_tag(spill, what, number);
    if (tag == NULL || *tag != done->tag) {
        spill->is_broken = 1;
        return;
    }
    *tag = 0;
    spill->n_ops--;
    switch (what) {
    case KVPI_OP_HAVE: kvpi_look_ended(spill, number, done->result); break;
    case KVPI_OP_GET: kvpi_reads_got(spill, number, done->result); break;
    case KVPI_OP_PUT: kvpi_writes_ended(spill, number, done->result); break;
    case KVPI_OP_DROP: kvpi_wrong_ended(spill, done->result); break;
    default: kvpi_flush_synced(spill, done->result); break;
    }
}

static void poll_store(kvp_spill *spill)
{
    kvp_store_done done[POLL];
    uint32_t n = POLL;
    while (n == POLL) {
        if (kvp_store_poll(spill->config.store, done, POLL, &n) != KVP_OK) {
            spill->is_broken = 1;
            return;
        }
        for (uint32_t i = 0; i < n; i++) {
            if (done[i].tag >> 63 == 0) { /* not those that the caller submitted */
                end_operation(spill, &done[i]);
            }
        }
    }
}

/* ------------------------------------------------------------------------------------ deadlines */

static void end_waits(kvp_spill *spill)
{
    for (uint32_t i = 0; i < spill->n_queue; i++) {
        struct kvpi_spill_ask *ask = &spill->asks[spill->queue[i]];
        if (spill->is_stopping && ask->waits) {
            kvpi_answers_give(spill, ask, KVP_SPILL_STOPPED);
        } else if (ask->waits && ask->deadline_ns <= spill->now_ns) {
            kvpi_answers_give(spill, ask, KVP_SPILL_DEADLINE);
        }
    }
}

/* ----------------------------------------------------------------------------------------- work */

static void note_plans(kvp_spill *spill)
{
    kvp_stats stats;
    if (kvp_cache_stats_get(spill->config.cache, &stats) == KVP_OK) {
        spill->plans_done = stats.plans_done;
    }
}

static void work(kvp_spill *spill, uint64_t now_ns)
{
    kvpi_rates_tick(spill, now_ns);
    note_plans(spill);
    poll_store(spill);
    kvpi_records_tick(spill);
    end_waits(spill);
    spill->n_looks = LOOKS;
    kvpi_wrong_work(spill);
    kvpi_look_work(spill);
    kvpi_reads_work(spill);
    kvpi_writes_work(spill);
}

kvp_status kvp_spill_work(kvp_spill *spill, uint64_t now_ns, kvp_spill_answer *out_answers,
                          uint32_t capacity, uint32_t *out_n_answers)
{
    if (spill == NULL || out_n_answers == NULL || (out_answers == NULL && capacity > 0)) {
        return KVP_E_ARG;
    }
    work(spill, now_ns);
    *out_n_answers = kvpi_answers_take(spill, out_answers, capacity);
    kvpi_answers_sweep(spill);
    return spill->is_broken ? KVP_E_CORRUPT : KVP_OK;
}

kvp_status kvp_spill_stop(kvp_spill *spill, uint64_t now_ns)
{
    if (spill == NULL) {
        return KVP_E_ARG;
    }
    if (!spill->is_stopping) {
        spill->is_stopping = 1;
        spill->wrong.is_failed = 0; /* the store is told once more */
    }
    kvpi_writes_forget(spill, 0, 0);
    work(spill, now_ns);
    kvpi_answers_sweep(spill);
    if (spill->n_ops > 0 || spill->n_queue > 0 || spill->n_puts > 0 ||
        (spill->wrong.n_keys > 0 && !spill->wrong.is_failed)) {
        return KVP_E_AGAIN;
    }
    spill->is_stopping = 0;
    spill->flush.state = KVPI_FLUSH_IDLE;
    return KVP_OK;
}

/* ---------------------------------------------------------------------------------------- stats */

kvp_status kvp_spill_stats_get(const kvp_spill *spill, kvp_spill_stats *out_stats)
{
    if (spill == NULL || out_stats == NULL) {
        return KVP_E_ARG;
    }
    kvp_spill_stats stats = spill->stats;
    stats.waiting = spill->n_waiting;
    stats.puts = spill->n_puts;
    stats.put_bytes = spill->put_bytes;
    stats.gets = spill->n_gets;
    stats.get_bytes = spill->get_bytes;
    stats.queued_bytes = spill->queued_bytes;
    stats.load_bytes_s = spill->load_bytes_s;
    stats.compute_tokens_s = spill->compute_tokens_s;
    stats.drops = spill->wrong.n_keys;
    *out_stats = stats;
    return KVP_OK;
}
