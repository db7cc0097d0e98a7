/* run: a step, from the scheduler's to llama_decode's. */
#include "engine.h"
#include "keepers.h"

static kvp_status open_id(kvp_llama *engine, kvp_request request, kvp_seq seq, uint32_t n_tokens,
                          uint32_t *out_id)
{
    kvp_request_info info;
    *out_id = kvpi_ids_find(&engine->ids, seq);
    if (*out_id != KVPI_NO_ID)
        return KVP_OK;
    if (kvp_request_info_get(engine->sched, request, &info) != KVP_OK)
        return KVP_E_CORRUPT;
    const kvp_status status = kvpi_ids_open(&engine->ids, seq, n_tokens, out_id);
    if (status == KVP_OK)
        engine->groups[*out_id] = (kvpi_group){request, info.n_samples};
    return status;
}

/* Samples of a request that were forked since the last step. */
static kvp_status open_samples(kvp_llama *engine, const kvpi_group *group)
{
    kvp_sample_info sample;
    kvp_seq_info seq;
    uint32_t id;
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; i < group->n_samples && status == KVP_OK; i++)
        if (kvp_request_sample(engine->sched, group->request, i, &sample) == KVP_OK &&
            kvp_seq_info_get(engine->cache, sample.seq, &seq) == KVP_OK && seq.tier == KVP_DEVICE)
            status = open_id(engine, group->request, sample.seq, seq.computed_tokens, &id);
    return status;
}

/* Forks come from finishes and reorders. They get their ids before the next step, which may give
 * them blocks of their own, and release those of the sequences that they share with. */
static kvp_status open_forks(kvp_llama *engine)
{
    const kvpi_ids *ids = &engine->ids;
    kvp_status status = KVP_OK;
    for (uint32_t id = 0; id < ids->n_ids && status == KVP_OK; id++) {
        const kvpi_group group = engine->groups[id];
        if (ids->ids[id].state == KVPI_ID_OPEN && group.n_samples > 1)
            status = open_samples(engine, &group);
    }
    return status;
}

/* Sequences that are swapped out lose their ids. */
static kvp_status note_swapped(kvp_llama *engine)
{
    const kvpi_ids *ids = &engine->ids;
    kvp_seq_info info;
    for (uint32_t id = 0; id < ids->n_ids; id++) {
        const kvpi_id *entry = &ids->ids[id];
        if (entry->state != KVPI_ID_OPEN ||
            kvp_seq_info_get(engine->cache, entry->seq, &info) != KVP_OK || info.tier != KVP_HOST)
            continue;
        if (engine->n_swapped == engine->max_swapped)
            return KVP_E_CORRUPT;
        engine->swapped[engine->n_swapped++] = (kvpi_swapped){entry->seq, engine->groups[id]};
    }
    return KVP_OK;
}

/* Those that came back get ids, also if they compute nothing in this step: only blocks that an id
 * has can leave their keepers. */
static kvp_status open_swapped(kvp_llama *engine)
{
    kvp_seq_info info;
    uint32_t n = 0, id;
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; i < engine->n_swapped && status == KVP_OK; i++) {
        const kvpi_swapped *swapped = &engine->swapped[i];
        if (kvp_seq_info_get(engine->cache, swapped->seq, &info) != KVP_OK)
            continue;
        if (info.tier == KVP_HOST)
            engine->swapped[n++] = *swapped;
        else
            status =
                open_id(engine, swapped->group.request, swapped->seq, info.computed_tokens, &id);
    }
    engine->n_swapped = n;
    return status;
}

/* Gives every sequence of the step an id, and every block of theirs its cells: ids.h has the
 * order. */
static kvp_status prepare_ids(kvp_llama *engine, const kvp_step *step)
{
    kvpi_ids *ids = &engine->ids;
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; i < step->n_seqs && status == KVP_OK; i++)
        status = open_id(engine, step->seqs[i].request, step->seqs[i].seq, step->seqs[i].begin,
                         &engine->step_ids[i]);
    if (status == KVP_OK)
        status = open_swapped(engine);
    if (status == KVP_OK)
        status = kvpi_keepers_retire(ids);
    if (status == KVP_OK)
        status = kvpi_keepers_limit(ids);
    if (status == KVP_OK)
        status = kvpi_ids_refresh(ids);
    if (status == KVP_OK)
        status = kvpi_keepers_limit(ids);
    for (uint32_t i = 0; i < step->n_seqs && status == KVP_OK; i++)
        status =
            kvpi_ids_claim(ids, engine->step_ids[i], step->seqs[i].begin, step->seqs[i].n_tokens);
    kvpi_moves_flush(&ids->moves);
    return status;
}

/* llama.cpp may have kept some of the step's cells, and what it computed counts for nothing. */
static kvp_status take_back(kvp_llama *engine, const kvp_step *step, int32_t result)
{
    engine->failed_decodes++;
    engine->is_out = 0;
    engine->batch.n_outputs = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++)
        kvpi_ids_cut(&engine->ids, engine->step_ids[i], step->seqs[i].begin);
    const kvp_status status = kvp_sched_fail(engine->sched);
    if (status != KVP_OK || result == 1) /* 1: no cells, which the count of blocks rules out */
        return KVP_E_CORRUPT;
    return result == 2 ? KVP_E_AGAIN : KVP_E_IO;
}

/* With a host tier, steps that compute prompts are measured: what comes back must be faster. */
static int32_t decode(kvp_llama *engine, const kvp_step *step)
{
    kvpi_rates *rates = &engine->host.rates;
    if (engine->host.host_blocks == 0 || step->n_tokens < 2 * step->n_seqs)
        return kvpi_batch_decode(engine, step);
    const uint64_t begin = kvpi_rates_now(rates);
    const int32_t result = kvpi_batch_decode(engine, step);
    llama_synchronize(engine->context);
    if (result == 0)
        kvpi_rates_computed(rates, begin, step->n_tokens);
    return result;
}

kvp_status kvp_llama_run(kvp_llama *engine, kvp_step *out_step)
{
    uint32_t n_copies = 0;
    if (engine == NULL || out_step == NULL)
        return KVP_E_ARG;
    if (engine->is_out)
        return KVP_E_STATE;
    if (engine->disk != NULL)
        engine->disk_calls->begin_step(engine);
    kvp_status status = open_forks(engine);
    if (status == KVP_OK && engine->idle_blocks != UINT32_MAX)
        status = kvpi_keepers_limit_idle(&engine->ids, engine->idle_blocks);
    if (status == KVP_OK)
        status = kvp_sched_step(engine->sched, out_step);
    if (status == KVP_OK) /* copies on write: the cells stay where they are, and are shared */
        status = kvp_plan_take(engine->cache, engine->copies, engine->max_copies, &n_copies);
    if (status == KVP_OK && engine->host.host_blocks > 0)
        status = note_swapped(engine);
    if (status == KVP_OK)
        status = kvpi_host_run(&engine->host, engine->copies, n_copies);
    kvpi_ids_note_plan(&engine->ids, engine->copies, n_copies);
    if (status == KVP_OK && engine->disk != NULL)
        engine->disk_calls->end_plan(engine);
    if (status == KVP_OK)
        status = prepare_ids(engine, out_step);
    if (status != KVP_OK)
        return KVP_E_CORRUPT;
    if (out_step->n_seqs == 0)
        return KVP_OK;
    engine->is_out = 1;
    engine->decoded_tokens += out_step->n_tokens;
    const int32_t result = decode(engine, out_step);
    return result == 0 ? KVP_OK : take_back(engine, out_step, result);
}

kvp_status kvp_llama_finish(kvp_llama *engine, const int32_t *tokens, const uint8_t *ended,
                            kvp_step_end *out_end)
{
    if (engine == NULL)
        return KVP_E_ARG;
    if (engine->disk != NULL)
        engine->disk_calls->end_step(engine);
    const kvp_status status = kvp_sched_finish(engine->sched, tokens, ended, out_end);
    if (status == KVP_OK)
        engine->is_out = engine->batch.n_outputs = 0;
    return status;
}
