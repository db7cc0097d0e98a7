/* What a language model's shape says about its memory: KV per token, weights. From a table of
 * well-known models, or from a config.json. */
#ifndef KVPI_MODELS_H
#define KVPI_MODELS_H

#include <stdarg.h>
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
    KVPI_MODELS_MAX_LAYERS = 1024, /* that keep heads, of all kinds together */
    KVPI_MODELS_MAX_HEADS = 1024,
    KVPI_MODELS_MAX_HEAD_DIM = 4096,
    KVPI_MODELS_MAX_LATENT = 65536,
    KVPI_MODELS_MAX_HIDDEN = 131072,
    KVPI_MODELS_MAX_INTERMEDIATE = 1048576,
    KVPI_MODELS_MAX_VOCAB = 1 << 26,
    KVPI_MODELS_MAX_EXPERTS = 4096,
    KVPI_MODELS_MAX_SHARED = 16,
    KVPI_MODELS_MAX_WINDOW = 1 << 27,
    KVPI_MODELS_MAX_ENTRY = 4096,
    KVPI_MODELS_MAX_CHECKPOINTS = 1024,
    KVPI_MODELS_MAX_KINDS = 12
};

/* How numbers are stored; their names are kvpi_models_dtypes. */
typedef enum kvpi_dtype {
    KVPI_DTYPE_BF16,
    KVPI_DTYPE_F16,
    KVPI_DTYPE_F32,
    KVPI_DTYPE_FP8, /* KV that is attended to sparsely: with scales, its rope part in 16 bits */
    KVPI_DTYPE_INT8,
    KVPI_DTYPE_INT4,  /* weights: groups of 128 share a 16-bit scale */
    KVPI_DTYPE_MXFP4, /* groups of 32 share an 8-bit scale; of weights experts only, if any */
    KVPI_DTYPE_NVFP4, /* groups of 16 share an 8-bit scale */
    KVPI_DTYPE_Q8_0,  /* KV: groups of 32 share a 16-bit scale */
    KVPI_DTYPE_Q4_0,  /* the same */
    KVPI_DTYPE_K8V4,  /* KV: 8 bits for K; 4 for V, with 4 bytes of scale and zero for a head */
    KVPI_N_DTYPES
} kvpi_dtype;

extern const char *const kvpi_models_dtypes[KVPI_N_DTYPES];

/* Names as on the command line; NULL after the last. */
extern const char *const kvpi_models_kv_dtypes[];
extern const char *const kvpi_models_weights_dtypes[];
extern const char *const kvpi_models_state_dtypes[];
extern const char *const kvpi_models_index_dtypes[];

/* Is it one of these names, which blanks separate? */
bool kvpi_models_is_of(const char *names, const char *name);

/* Give the type of a name. Returns: KVPI_N_DTYPES for another one */
kvpi_dtype kvpi_models_dtype_of(const char *name);

/* State of fixed size that a layer keeps for a sequence, whatever its length (recurrent.c): a
 * matrix for each head, and the last inputs of a convolution. Heads are divided over accelerators;
 * groups, too, and repeated when there are fewer of them.
 *
 *   matrices     heads x head_values
 *   convolution  (heads x conv_of_head + groups x conv_of_group) x conv_steps
 */
typedef struct kvpi_models_state {
    uint32_t heads;
    uint32_t groups;
    uint32_t head_values;
    uint32_t conv_of_head;
    uint32_t conv_of_group;
    uint32_t conv_steps;
} kvpi_models_state;

/* What an entry of a kind is. */
typedef enum kvpi_models_keeps {
    KVPI_KEEPS_HEADS,  /* kv_heads x (k_dim + v_dim) values: divided over accelerators */
    KVPI_KEEPS_LATENT, /* one vector of latent + rope values for all heads: on each accelerator */
    KVPI_KEEPS_INDEX,  /* one key of index_dim values, of an indexer: on each accelerator */
    KVPI_KEEPS_STATE,  /* no entries: one state for a sequence */
    KVPI_KEEPS_INPUTS  /* k_dim values in f32, inputs of entries to come: on each accelerator.
                          A running sequence has them beside its KV */
} kvpi_models_keeps;

/* Layers that keep the same. A layer is in several kinds if it keeps several things, such as latent
 * vectors and keys of an indexer, or a window and entries of 4 tokens; in none if it keeps nothing
 * or reads what another layer keeps; and as often as it attends to a token. */
typedef struct kvpi_models_kind {
    kvpi_models_keeps keeps;
    uint32_t n_layers;
    uint32_t window_tokens; /* keeps the last so many tokens; 0: all */
    bool chunked;           /* it is the length of chunks */
    bool recomputed;        /* the window is computed again behind a hit: kept while it runs only */
    uint32_t entry_tokens;  /* tokens of an entry, a power of two: n tokens have floor(n / this);
                               0 is 1 */
    uint32_t kv_heads;      /* 0 without heads */
    uint32_t k_dim;
    uint32_t v_dim;
    uint32_t latent;
    uint32_t rope;
    uint32_t index_dim;
    uint32_t scale_bytes; /* beside an entry in fp8, whose rope part is then in 16 bits */
    bool has_own_dtype;   /* keys of an indexer: own_dtype was asked for, whatever KV is */
    kvpi_dtype own_dtype;
    kvpi_models_state state;
} kvpi_models_kind;

/* Of multi-head latent attention, what only its matrices need. */
typedef struct kvpi_models_latent {
    uint32_t q_rank; /* 0: queries are not compressed */
    uint32_t nope_dim;
    uint32_t v_dim;
} kvpi_models_latent;

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
    uint64_t parameters; /* published, of the whole checkpoint; round: announced; 0: not known */
    kvpi_dtype kv_dtype; /* of KV if nothing else is asked for: the activations', or a file's own */
    kvpi_dtype weights_dtype;
    kvpi_dtype state_dtype;       /* of the matrices of states */
    bool state_dtype_is_said;     /* by the file, or fixed for its kind: engines follow it */
    kvpi_dtype activations_dtype; /* of the inputs of their convolutions */
    uint32_t n_layers;            /* of the model, whatever they keep */
    uint32_t q_heads;
    kvpi_models_kind kinds[KVPI_MODELS_MAX_KINDS]; /* [n_kinds] */
    uint32_t n_kinds;
    const char *state_kind; /* "Mamba-2"; NULL without recurrent layers */
    uint32_t n_passes;      /* times that a token runs through the layers, each with KV of its own:
                               all are in the kinds' n_layers. 0: once */
    kvpi_models_latent latent;
    kvpi_models_mlp mlp;
    kvpi_models_experts experts;
    uint64_t mixers;           /* parameters of attention and recurrence, of all layers */
    uint32_t n_mlp_layers;     /* layers with an MLP or experts */
    uint32_t n_memory_layers;  /* with a table of n-grams, which no number of parameters has */
    char unknown[120];         /* why parameters cannot be counted; "": they can */
    char unknown_dtype[120];   /* why weights_dtype is not known; "": it is */
    char unknown_kv_dtype[80]; /* why kv_dtype is not known; "": it is */
    char strange[240];         /* keys that may mean KV and are not known; "": there are none */
} kvpi_model;

/* Give a kind with a window, the first one of those that are kept. Returns: NULL: there is none */
const kvpi_models_kind *kvpi_models_find_window(const kvpi_model *model);

/* Add layers of a kind: to the kind that is equal, or as a new one. None for n_layers 0.
 *
 * Returns: false when there are too many kinds
 */
bool kvpi_models_add(kvpi_model *model, const kvpi_models_kind *kind);

/* Sum the layers of kinds that keep `keeps`. */
uint32_t kvpi_models_layers(const kvpi_model *model, kvpi_models_keeps keeps);

/* Find a kind: with a window, or without. Returns: NULL: there is none */
const kvpi_models_kind *kvpi_models_find_kind(const kvpi_model *model, kvpi_models_keeps keeps,
                                              bool windowed);

/* Parameters by part, matrices only: norms and biases are less than 0.1 % of any model here. */
typedef struct kvpi_models_count {
    uint64_t embeddings; /* input and output */
    uint64_t layers;     /* matrices of all layers, routed experts included */
    uint64_t experts;    /* of these, the routed experts */
    uint64_t total;
    uint64_t active; /* what a token is multiplied with: the experts it uses, no input embedding */
} kvpi_models_count;

/* A row of the table: a published config.json, of which the shape is kept (models.def). */
typedef struct kvpi_models_row {
    const char *name;   /* as on the command line */
    const char *source; /* the repository */
    const char *date;   /* when it was read: "2026-09" */
    uint64_t parameters;
    const char *config;
} kvpi_models_row;

/* Give the table. Returns: [*n], static */
const kvpi_models_row *kvpi_models_rows(size_t *n);

/* Read a row, which is known to be good. */
void kvpi_models_read_row(const kvpi_models_row *row, kvpi_model *out);

/* Find a row by its name or by its source, in upper or lower case, and of a repository that holds a
 * variant: meta-llama/Llama-3.1-8B-Instruct, or RedHatAI/Qwen3-32B-FP8-dynamic, whose weights are
 * fp8.
 *
 * Gives:   out      for true
 */
bool kvpi_models_find(const char *name, kvpi_model *out);

/* Count a model's parameters from its shape.
 *
 * Takes:   model    with `unknown` empty
 */
kvpi_models_count kvpi_models_count_parameters(const kvpi_model *model);

/* Say whether the bytes of a model's weights are known: from its shape, or a published number. */
bool kvpi_models_weighs(const kvpi_model *model);

/* Give the bytes of all weights: the published number of parameters, or the counted one. Types of
 * 8 bits and fewer are for the matrices of the layers; embeddings and the rest stay at 16 bits, as
 * in published quantised checkpoints. Of a model whose shape is not known all is of one type.
 *
 * Takes:   model    that kvpi_models_weighs
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

/* Give the bytes that one entry has in one layer on one accelerator. Heads are divided; when there
 * are more accelerators than heads, each keeps one.
 *
 * Takes:   kind             with entries
 *          tensor_parallel  one that kvpi_models_divides
 *          dtype            of KV; an index has the type of kvpi_models_index_dtype
 */
uint64_t kvpi_models_entry_bytes(const kvpi_models_kind *kind, uint32_t tensor_parallel,
                                 kvpi_dtype dtype);

/* Give the type of an indexer's keys beside KV of a type: what was asked for, or what goes with the
 * KV. */
kvpi_dtype kvpi_models_index_dtype(const kvpi_models_kind *kind, kvpi_dtype dtype);

/* Give the tokens of the longest entry, a multiple of those of every other one. */
uint32_t kvpi_models_longest_entry(const kvpi_model *model);

/* Give a kind of keys of an indexer. Returns: NULL: there is none */
const kvpi_models_kind *kvpi_models_find_index(const kvpi_model *model);

/* Store the keys of all indexers in a type, whatever KV is. */
void kvpi_models_set_index_dtype(kvpi_model *model, kvpi_dtype dtype);

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

/* Write "NAME: message": a name that is too long is cut, control characters of the message are "?".
 * Returns: -1 */
int kvpi_models_vwrong(kvpi_models_error *error, const char *name, const char *format,
                       va_list arguments);

#endif
