/* What llama.cpp allocates for the KV of a model: its caches, and the largest context that fits. */
#ifndef KVPI_ENGINE_LLAMA_H
#define KVPI_ENGINE_LLAMA_H

#include <stdbool.h>
#include <stdint.h>

#include "tool/models/models.h"

typedef struct kvpi_llama_options {
    uint64_t context_tokens; /* its -c: of all sequences together */
    uint32_t n_sequences;    /* its -np */
    uint64_t batch_tokens;   /* its -ub */
    bool unified;            /* its -kvu: one cache for all sequences */
    bool full_windows;       /* its --swa-full */
    bool all_windowed;       /* a model of which all layers have a window has it there, too: its
                                converters drop it (Mistral, Phi-3), so only a GGUF says so */
    kvpi_dtype dtype;        /* its -ctk and -ctv */
    uint64_t memory_bytes;   /* for KV; 0: not known */
} kvpi_llama_options;

/* Layers that keep the same. */
typedef struct kvpi_llama_layers {
    uint32_t n_layers;
    bool windowed;
    bool state;
    uint64_t cell_bytes; /* of one layer; of a state, all of it, in f32 */
    uint64_t cells;      /* of each cache; 1 of a state */
    uint64_t bytes;      /* of all of them */
} kvpi_llama_layers;

typedef struct kvpi_llama {
    kvpi_llama_layers layers[KVPI_MODELS_MAX_KINDS]; /* [n] */
    uint32_t n;
    uint64_t sequence_cells; /* its n_ctx_seq: the longest sequence */
    uint32_t n_caches;       /* one, or one a sequence */
    uint64_t bytes;
    /* With memory only. */
    bool fits;
    uint64_t most_context_tokens; /* the largest -c of which all fits; 0: none */
} kvpi_llama;

/* Count.
 *
 * Takes:   options  context_tokens and n_sequences at least 1
 * Gives:   why      [n_why] after a failure: what llama.cpp refuses, for a sentence
 * Returns: 0; -1
 */
int kvpi_llama_count(const kvpi_model *model, const kvpi_llama_options *options, kvpi_llama *out,
                     char *why, size_t n_why);

#endif
