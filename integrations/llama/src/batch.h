/* batch: a step as llama_decode takes it, and LoRA adapters. llama.cpp has one set of adapters at a
 * time, so a step with several of them is decoded one after the other. Then logits of the earlier
 * ones are copied, because a decode overwrites them. */
#ifndef KVPI_LLAMA_BATCH_H
#define KVPI_LLAMA_BATCH_H

#include <kvpager/sched.h>

#include <llama.h>

enum { KVPI_ADAPTERS_MOST = 64 };

/* Sequences of the namespace are computed with the adapter. */
typedef struct kvpi_adapter {
    kvp_ns ns;
    struct llama_adapter_lora *lora;
    float scale;
} kvpi_adapter;

typedef struct kvpi_batch {
    struct llama_batch llama; /* [step_tokens] */
    llama_token *tokens;      /* [step_tokens] of one adapter's sequences */
    llama_seq_id *seq_ids;    /* [step_tokens x 2] a token's id, and its second one */
    llama_seq_id **seq_lists; /* [step_tokens] as llama_batch wants them */
    int32_t *counts;          /* [step_tokens] how many of them */
    int32_t *outputs;         /* [step_tokens + max_running] of each sampled token: its batch index;
                                 with several decodes, the row of `saved` */
    uint32_t n_outputs;
    uint32_t *seq_adapters; /* [max_running] of the step's sequences: 1 + the adapter; 0: none */
    kvpi_adapter adapters[KVPI_ADAPTERS_MOST];
    uint32_t n_adapters;
    uint32_t n_vocab;
    uint32_t max_running;
    float *saved; /* [max_running x n_vocab], when there were adapters */
    uint32_t is_saved;
} kvpi_batch;

struct kvp_llama;

/* KVP_OK, or KVP_E_NO_MEMORY: kvpi_batch_end frees what is there. */
kvp_status kvpi_batch_init(kvpi_batch *batch, uint32_t step_tokens, uint32_t max_running);
void kvpi_batch_end(kvpi_batch *batch);

/* Decode the step. What llama_decode returned, the first that is not 0. */
int32_t kvpi_batch_decode(struct kvp_llama *engine, const kvp_step *step);

#endif
