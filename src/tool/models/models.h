/* What a language model's shape says about its memory: KV per token, weights. From a table of
 * well-known models, or from a config.json. */
#ifndef KVPI_MODELS_H
#define KVPI_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest values that are believed. They are far beyond any model and keep every product of the
 * arithmetic (models.c, size.c) below 2^63 without checks:
 *
 *   KV of a token    2 x 2^10 layers x 2^10 heads x 2^12 values x 2^2 bytes        = 2^35
 *   of a sequence    x 2^27 tokens, rounded up to blocks of at most 2^16           < 2^63
 *   weights          2^10 layers x 2^12 experts x 3 x 2^17 x 2^20 x 2^2 bytes      < 2^63
 *   a state          2^10 layers x (2^21 channels x 2^12 or 2^10 heads x 2^24) x 2^2 < 2^47
 *                    2^10 layers x (2^21 + 2^10 x 3 x 2^12) x 2^6 steps x 2^2      < 2^43
 */
enum {
    KVPI_MODELS_MAX_LAYERS = 1024,
    KVPI_MODELS_MAX_HEADS = 1024,
    KVPI_MODELS_MAX_HEAD_DIM = 4096,
    KVPI_MODELS_MAX_LATENT = 65536,
    KVPI_MODELS_MAX_HIDDEN = 131072,
    KVPI_MODELS_MAX_INTERMEDIATE = 1048576,
    KVPI_MODELS_MAX_VOCAB = 1 << 26,
    KVPI_MODELS_MAX_EXPERTS = 4096,
    KVPI_MODELS_MAX_SHARED = 16,
    KVPI_MODELS_MAX_WINDOW = 1 << 27,
    KVPI_MODELS_MAX_CHECKPOINTS = 1024
};

/* How numbers are stored. KV uses the first KVPI_MODELS_N_KV_DTYPES only. */
typedef enum kvpi_dtype {
    KVPI_DTYPE_BF16,
    KVPI_DTYPE_F16,
    KVPI_DTYPE_F32,
    KVPI_DTYPE_FP8,
    KVPI_DTYPE_INT8,
    KVPI_DTYPE_INT4, /* weights: groups of 128 share a 16-bit scale */
    KVPI_DTYPE_MXFP4 /* weights: groups of 32 share an 8-bit scale; experts only, if any */
} kvpi_dtype;

#define KVPI_MODELS_N_KV_DTYPES 5

/* Names as on the command line, in the order of kvpi_dtype; NULL after the last. */
extern const char *const kvpi_models_kv_dtypes[];
extern const char *const kvpi_models_weights_dtypes[];

typedef struct kvpi_models_attention {
    uint32_t n_layers;
    uint32_t n_windowed; /* of these, how many keep the last window_tokens only */
    uint32_t window_tokens;
    uint32_t q_heads;
    uint32_t kv_heads;
    uint32_t head_dim;
} kvpi_models_attention;

/* Multi-head latent attention: a token's KV in a layer is one vector of kv_rank + rope_dim values,
 * whatever the number of heads. kv_rank 0: the model has none of it. */
typedef struct kvpi_models_latent {
    uint32_t kv_rank;
    uint32_t rope_dim;
    uint32_t q_rank; /* 0: queries are not compressed */
    uint32_t nope_dim;
    uint32_t v_dim;
} kvpi_models_latent;

/* Layers that keep one state of fixed size for a sequence, whatever its length (recurrent.c): a
 * matrix for each head, and the last inputs of a convolution. Heads are divided over accelerators;
 * groups, too, and repeated when there are fewer of them. n_layers 0: the model has none.
 *
 *   matrices     heads x head_values
 *   convolution  (heads x conv_of_head + groups x conv_of_group) x conv_steps
 */
typedef struct kvpi_models_states {
    const char *kind;
    uint32_t n_layers; /* not in attention.n_layers */
    uint32_t heads;
    uint32_t groups;
    uint32_t head_values;
    uint32_t conv_of_head;
    uint32_t conv_of_group;
    uint32_t conv_steps;
    kvpi_dtype
        dtype; /* of the matrices; the inputs of the convolution have kv_dtype of the model */
} kvpi_models_states;

typedef struct kvpi_models_mlp {
    uint32_t hidden;
    uint32_t intermediate; /* of the layers without experts */
    uint32_t vocab;
    bool tied;    /* one matrix for input and output embedding */
    bool ungated; /* two matrices instead of three */
} kvpi_models_mlp;

/* Mixture of experts; n_experts 0: there are none. */
typedef struct kvpi_models_experts {
    uint32_t n_experts;
    uint32_t per_token;
    uint32_t intermediate;        /* of one routed expert */
    uint32_t shared_intermediate; /* of all shared experts together */
    uint32_t n_dense_layers;      /* layers without experts */
} kvpi_models_experts;

typedef struct kvpi_model {
    const char *name;    /* as on the command line; the path for a file */
    const char *source;  /* the repository whose config.json the row is from; NULL for a file */
    uint64_t parameters; /* published, of the whole checkpoint; 0: not known */
    kvpi_dtype kv_dtype; /* of the activations, hence of KV if nothing else is asked for */
    kvpi_dtype weights_dtype;
    kvpi_models_attention attention;
    bool chunked; /* layers with a window attend in chunks of window_tokens */
    kvpi_models_latent latent;
    kvpi_models_states states;
    uint32_t n_other_layers; /* with neither attention nor state */
    kvpi_models_mlp mlp;
    kvpi_models_experts experts;
    char unknown[120];       /* why parameters cannot be counted; "": they can */
    char unknown_dtype[120]; /* why weights_dtype is not known; "": it is */
} kvpi_model;

/* Parameters by part, matrices only: norms and biases are less than 0.1 % of any model here. */
typedef struct kvpi_models_count {
    uint64_t embeddings; /* input and output */
    uint64_t layers;     /* matrices of all layers, routed experts included */
    uint64_t experts;    /* of these, the routed experts */
    uint64_t total;
    uint64_t active; /* what a token is multiplied with: the experts it uses, no input embedding */
} kvpi_models_count;

/* Find a row of the table by its name or by its source, in upper or lower case.
 *
 * Returns: NULL for an unknown name
 */
const kvpi_model *kvpi_models_find(const char *name);

/* Give the whole table.
 *
 * Gives:   n        number of rows
 * Returns: [n], static
 */
const kvpi_model *kvpi_models_all(size_t *n);

/* Count a model's parameters from its shape.
 *
 * Takes:   model    with `unknown` empty
 */
kvpi_models_count kvpi_models_count_parameters(const kvpi_model *model);

/* Give the bytes of all weights: the published number of parameters, or the counted one. Types of
 * 8 bits and fewer are for the matrices of the layers; embeddings and the rest stay at 16 bits, as
 * in published quantised checkpoints.
 *
 * Takes:   model    with `unknown` empty
 */
uint64_t kvpi_models_weights_bytes(const kvpi_model *model, kvpi_dtype dtype);

/* Bytes of weights that a step reads. */
typedef struct kvpi_models_traffic {
    uint64_t every_step; /* all but the routed experts and an input embedding of its own */
    uint64_t experts;    /* all routed experts: a step reads those that its tokens use */
} kvpi_models_traffic;

/* Count the bytes that a step reads, as kvpi_models_weights_bytes counts them.
 *
 * Takes:   model    with `unknown` empty
 */
kvpi_models_traffic kvpi_models_count_traffic(const kvpi_model *model, kvpi_dtype dtype);

/* Give how many values one token's KV has in one layer on one accelerator. Heads are divided; when
 * there are more accelerators than heads, each keeps one; a latent vector is on all of them.
 *
 * Takes:   tensor_parallel  one that kvpi_models_divides
 */
uint64_t kvpi_models_kv_values(const kvpi_model *model, uint32_t tensor_parallel);

/* Give the bytes that a sequence's state has in all layers on one accelerator; 0 without states.
 *
 * Takes:   tensor_parallel  one that kvpi_models_divides
 *          matrices         type of the matrices
 */
uint64_t kvpi_models_state_bytes(const kvpi_model *model, uint32_t tensor_parallel,
                                 kvpi_dtype matrices);

/* Say whether the heads can be spread over so many accelerators: query heads and heads of a state
 * evenly, KV heads and groups of a state evenly or each on several. */
bool kvpi_models_divides(const kvpi_model *model, uint32_t tensor_parallel);

typedef struct kvpi_models_error {
    char text[512]; /* "FILE: message" */
} kvpi_models_error;

/* Read a config.json as Hugging Face's transformers writes it.
 *
 * Takes:   path     "-" for standard input; kept by reference as the model's name
 * Gives:   out      on success only; `unknown` and `unknown_dtype` say what only weights need and
 *                   is not there
 * Returns: 0; -1 with error->text
 */
int kvpi_models_read(const char *path, kvpi_model *out, kvpi_models_error *error);

#endif
