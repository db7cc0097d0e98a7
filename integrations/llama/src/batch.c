/* batch: see batch.h. */
#include "batch.h"
#include "engine.h"
#include "second.h"

#include <stdlib.h>
#include <string.h>

void kvpi_batch_end(kvpi_batch *batch)
{
    free(batch->tokens);
    free(batch->seq_ids);
    free(batch->seq_lists);
    free(batch->counts);
    free(batch->outputs);
    free(batch->seq_adapters);
    free(batch->saved);
    free(batch->llama.pos);
    free(batch->llama.logits);
}

kvp_status kvpi_batch_init(kvpi_batch *batch, uint32_t step_tokens, uint32_t max_running)
{
    struct llama_batch *llama = &batch->llama;
    batch->max_running = max_running;
    batch->tokens = calloc(step_tokens, sizeof *batch->tokens);
    batch->seq_ids = calloc(step_tokens, 2 * sizeof *batch->seq_ids);
    batch->seq_lists = calloc(step_tokens, sizeof *batch->seq_lists);
    batch->counts = calloc(step_tokens, sizeof *batch->counts);
    batch->outputs = calloc((size_t)step_tokens + max_running, sizeof *batch->outputs);
    batch->seq_adapters = calloc(max_running, sizeof *batch->seq_adapters);
    llama->pos = calloc(step_tokens, sizeof *llama->pos);
    llama->logits = calloc(step_tokens, sizeof *llama->logits);
    if (batch->tokens == NULL || batch->seq_ids == NULL || batch->seq_lists == NULL ||
        batch->counts == NULL || batch->outputs == NULL || batch->seq_adapters == NULL ||
        llama->pos == NULL || llama->logits == NULL)
        return KVP_E_NO_MEMORY;
    for (uint32_t i = 0; i < step_tokens; i++)
        batch->seq_lists[i] = &batch->seq_ids[2 * (size_t)i];
    llama->token = batch->tokens;
    llama->seq_id = batch->seq_lists;
    llama->n_seq_id = batch->counts;
    return KVP_OK;
}

/* ------------------------------------------------------------------------------------- adapters */

static uint32_t adapter_of(const kvpi_batch *batch, kvp_ns ns)
{
    for (uint32_t i = 0; i < batch->n_adapters; i++)
        if (batch->adapters[i].ns.bits == ns.bits)
            return i + 1;
    return 0;
}

static kvp_status set_adapter(kvpi_batch *batch, const kvpi_adapter *adapter)
{
    const uint32_t found = adapter_of(batch, adapter->ns);
    if (adapter->lora == NULL) {
        if (found > 0)
            batch->adapters[found - 1] = batch->adapters[--batch->n_adapters];
        return KVP_OK;
    }
    if (found == 0 && batch->n_adapters == KVPI_ADAPTERS_MOST)
        return KVP_E_NO_NAMESPACES;
    if (batch->saved == NULL)
        batch->saved = calloc((size_t)batch->max_running * batch->n_vocab, sizeof *batch->saved);
    if (batch->saved == NULL)
        return KVP_E_NO_MEMORY;
    batch->adapters[found > 0 ? found - 1 : batch->n_adapters++] = *adapter;
    return KVP_OK;
}

kvp_status kvp_llama_adapter_set(kvp_llama *engine, kvp_ns ns, struct llama_adapter_lora *adapter,
                                 float scale)
{
    kvp_stats stats;
    if (engine == NULL)
        return KVP_E_ARG;
    const kvpi_adapter given = {ns, adapter, scale};
    if (adapter != NULL && llama_adapter_get_alora_n_invocation_tokens(adapter) > 0)
        return KVP_E_ARG;
    if (kvp_cache_stats_get(engine->cache, &stats) != KVP_OK || stats.open_seqs > 0 ||
        engine->is_out)
        return KVP_E_STATE;
    const kvp_status status = kvp_ns_flush(engine->cache, ns);
    if (engine->disk != NULL)
        engine->disk_calls->forget(engine, ns);
    return status != KVP_OK ? status : set_adapter(&engine->batch, &given);
}

/* Which adapter each sequence has. Gives how many different ones; none counts, too. */
static uint32_t find_adapters(kvp_llama *engine, const kvp_step *step)
{
    kvpi_batch *batch = &engine->batch;
    kvp_seq_info info;
    uint32_t n = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        batch->seq_adapters[i] = 0;
        if (batch->n_adapters > 0 &&
            kvp_seq_info_get(engine->cache, step->seqs[i].seq, &info) == KVP_OK)
            batch->seq_adapters[i] = adapter_of(batch, info.ns);
        uint32_t k = 0;
        while (k < i && batch->seq_adapters[k] != batch->seq_adapters[i])
            k++;
        n += k == i;
    }
    return n;
}

/* 0: llama.cpp refuses it. */
static int use_adapter(kvp_llama *engine, uint32_t adapter)
{
    kvpi_adapter *a = &engine->batch.adapters[adapter > 0 ? adapter - 1 : 0];
    if (engine->batch.saved == NULL) /* there never was one */
        return 1;
    return llama_set_adapters_lora(engine->context, &a->lora, adapter > 0, &a->scale) == 0;
}

/* --------------------------------------------------------------------------------------- decode */

/* Sequences of the step with this adapter. */
static void fill(kvp_llama *engine, const kvp_step *step, uint32_t adapter)
{
    kvpi_batch *batch = &engine->batch;
    struct llama_batch *llama = &batch->llama;
    int32_t n = 0;
    uint32_t at = 0, n_outputs = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *seq = &step->seqs[i];
        const int is_here = batch->seq_adapters[i] == adapter;
        const uint32_t id = engine->step_ids[i], second = kvpi_second_of(&engine->ids, id);
        for (uint32_t k = 0; k < seq->n_tokens && is_here; k++, n++) {
            llama->token[n] = step->tokens[at + k];
            llama->pos[n] = (llama_pos)(seq->begin + k);
            llama->logits[n] = seq->n_sampled > 0 && k + 1 == seq->n_tokens;
            batch->counts[n] = second == KVPI_NO_ID ? 1 : 2;
            batch->seq_lists[n][0] = (llama_seq_id)id;
            batch->seq_lists[n][1] = (llama_seq_id)second; /* -1: not counted */
        }
        at += seq->n_tokens;
        for (uint32_t k = 0; k < seq->n_sampled; k++, n_outputs++)
            if (is_here)
                batch->outputs[n_outputs] = n - 1;
    }
    llama->n_tokens = n;
    batch->n_outputs = n_outputs;
}

/* Row i of `saved` is sequence i's. */
static void save_logits(kvp_llama *engine, const kvp_step *step, uint32_t adapter)
{
    kvpi_batch *batch = &engine->batch;
    uint32_t at = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const uint32_t n = step->seqs[i].n_sampled;
        if (n > 0 && batch->seq_adapters[i] == adapter) {
            memcpy(batch->saved + (size_t)i * batch->n_vocab,
                   llama_get_logits_ith(engine->context, batch->outputs[at]),
                   batch->n_vocab * sizeof *batch->saved);
            for (uint32_t k = 0; k < n; k++)
                batch->outputs[at + k] = (int32_t)i;
        }
        at += n;
    }
}

int32_t kvpi_batch_decode(kvp_llama *engine, const kvp_step *step)
{
    kvpi_batch *batch = &engine->batch;
    const uint32_t n_adapters = find_adapters(engine, step);
    batch->is_saved = n_adapters > 1;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const uint32_t adapter = batch->seq_adapters[i];
        uint32_t k = 0;
        while (k < i && batch->seq_adapters[k] != adapter)
            k++;
        if (k < i) /* decoded already */
            continue;
        if (!use_adapter(engine, adapter))
            return -1;
        fill(engine, step, adapter);
        engine->decodes++;
        const int32_t result = llama_decode(engine->context, batch->llama);
        if (result != 0)
            return result;
        if (batch->is_saved)
            save_logits(engine, step, adapter);
    }
    return 0;
}

const float *kvp_llama_logits(kvp_llama *engine, uint32_t i)
{
    if (engine == NULL || i >= engine->batch.n_outputs)
        return NULL;
    const kvpi_batch *batch = &engine->batch;
    return batch->is_saved ? batch->saved + (size_t)batch->outputs[i] * batch->n_vocab
                           : llama_get_logits_ith(engine->context, batch->outputs[i]);
}
