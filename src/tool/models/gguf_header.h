/* The header of a GGUF file, the format of llama.cpp: what its keys say of a model's shape, and how
 * large its tensors are. Their data is never read, so the first megabytes of a file will do.
 *
 *   magic, version, number of tensors, number of keys
 *   keys      name, type, value: numbers, texts, arrays of these
 *   tensors   name, dimensions, type, place
 */
#ifndef KVPI_GGUF_HEADER_H
#define KVPI_GGUF_HEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "tool/models/models.h"

/* Keys of the model's architecture that are read, as NAME, what stands behind "ARCHITECTURE.", and
 * how many values there may be. */
#define KVPI_GGUF_KEYS(X)                                                                          \
    X(LAYERS, "block_count", 1)                                                                    \
    X(CONTEXT, "context_length", 1)                                                                \
    X(HIDDEN, "embedding_length", 1)                                                               \
    X(HEADS, "attention.head_count", KVPI_MODELS_MAX_LAYERS)                                       \
    X(KV_HEADS, "attention.head_count_kv", KVPI_MODELS_MAX_LAYERS)                                 \
    X(K_DIM, "attention.key_length", 1)                                                            \
    X(V_DIM, "attention.value_length", 1)                                                          \
    X(K_DIM_WINDOWED, "attention.key_length_swa", 1)                                               \
    X(V_DIM_WINDOWED, "attention.value_length_swa", 1)                                             \
    X(K_DIM_MLA, "attention.key_length_mla", 1)                                                    \
    X(V_DIM_MLA, "attention.value_length_mla", 1)                                                  \
    X(KV_RANK, "attention.kv_lora_rank", 1)                                                        \
    X(WINDOW, "attention.sliding_window", 1)                                                       \
    X(PATTERN, "attention.sliding_window_pattern", KVPI_MODELS_MAX_LAYERS)                         \
    X(SHARED_LAYERS, "attention.shared_kv_layers", 1)                                              \
    X(RECURRENT, "attention.recurrent_layers", KVPI_MODELS_MAX_LAYERS)                             \
    X(INTERVAL, "full_attention_interval", 1)                                                      \
    X(INDEX_DIM, "attention.indexer.key_length", 1)                                                \
    X(INDEX_TYPES, "attention.indexer.types", KVPI_MODELS_MAX_LAYERS)                              \
    X(RATIOS, "attention.compress_ratios", KVPI_MODELS_MAX_LAYERS)                                 \
    X(DRAFT_LAYERS, "nextn_predict_layers", 1)                                                     \
    X(LOOPS, "num_loops", 1)                                                                       \
    X(FF, "feed_forward_length", KVPI_MODELS_MAX_LAYERS)                                           \
    X(CONV_STEPS, "ssm.conv_kernel", 1)                                                            \
    X(INNER, "ssm.inner_size", 1)                                                                  \
    X(STATE, "ssm.state_size", 1)                                                                  \
    X(STATE_HEADS, "ssm.time_step_rank", 1)                                                        \
    X(STATE_GROUPS, "ssm.group_count", 1)                                                          \
    X(KDA_DIM, "kda.head_dim", 1)                                                                  \
    X(SHORT_CONV, "shortconv.l_cache", 1)

typedef enum kvpi_gguf_key {
#define KEY(name, text, most) KVPI_GGUF_##name,
    KVPI_GGUF_KEYS(KEY)
#undef KEY
        KVPI_GGUF_N_KEYS
} kvpi_gguf_key;

typedef struct kvpi_gguf_values {
    uint32_t n; /* 0: the file has no such key */
    bool is_array;
    uint32_t of[KVPI_MODELS_MAX_LAYERS]; /* [n] */
} kvpi_gguf_values;

typedef struct kvpi_gguf_header {
    const char *name; /* of the file, for people */
    char architecture[64];
    uint32_t version;
    uint32_t n_parts; /* files that the model is split into; 0: this is all of it */
    uint64_t n_keys;
    uint64_t n_tensors;
    uint64_t parameters; /* in the tensors of this file */
    uint64_t weights_bytes;
    char unknown[80]; /* why weights_bytes is not known; "": it is */
    kvpi_gguf_values keys[KVPI_GGUF_N_KEYS];
    kvpi_models_error *error;
} kvpi_gguf_header;

/* Read a header, little-endian, version 2 or 3. What a file claims costs no memory, and at most
 * time for 128 MiB of it.
 *
 * Takes:   path     "-" for standard input
 * Gives:   out      on success; name and error are kept by reference
 * Returns: 0; -1 with error->text
 */
int kvpi_gguf_header_read(const char *path, kvpi_gguf_header *out, kvpi_models_error *error);

/* Record a message about the file. Returns: -1 */
int kvpi_gguf_wrong(const kvpi_gguf_header *header, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

#endif
