/* llama.h of the tests: what integrations/llama uses of llama.cpp's interface, declared again from
 * its documentation. fake.c has a small library of it. Names and types are llama.cpp's, so that the
 * same sources compile against either. */
#ifndef FAKE_LLAMA_H
#define FAKE_LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct llama_model;
struct llama_context;
typedef struct llama_memory_i *llama_memory_t;
typedef int32_t llama_pos;
typedef int32_t llama_token;
typedef int32_t llama_seq_id;

enum ggml_type { GGML_TYPE_F32 = 0, GGML_TYPE_F16 = 1 };

enum llama_flash_attn_type {
    LLAMA_FLASH_ATTN_TYPE_AUTO = -1,
    LLAMA_FLASH_ATTN_TYPE_DISABLED = 0,
    LLAMA_FLASH_ATTN_TYPE_ENABLED = 1
};

enum llama_rope_type {
    LLAMA_ROPE_TYPE_NONE = -1,
    LLAMA_ROPE_TYPE_NORM = 0,
    LLAMA_ROPE_TYPE_NEOX = 2,
    LLAMA_ROPE_TYPE_MROPE = 8,
    LLAMA_ROPE_TYPE_IMROPE = 40,
    LLAMA_ROPE_TYPE_VISION = 24
};

typedef struct llama_batch {
    int32_t n_tokens;
    llama_token *token;
    float *embd;
    llama_pos *pos;
    int32_t *n_seq_id;
    llama_seq_id **seq_id;
    int8_t *logits;
} llama_batch;

struct llama_context_params {
    uint32_t n_ctx;
    uint32_t n_batch;
    uint32_t n_ubatch;
    uint32_t n_seq_max;
    enum llama_flash_attn_type flash_attn_type;
    enum ggml_type type_k;
    enum ggml_type type_v;
    bool embeddings;
    bool offload_kqv;
    bool op_offload;
    bool swa_full;
    bool kv_unified;
    void *samplers;
    size_t n_samplers;
    struct llama_context *ctx_other;
};

struct llama_context_params llama_context_default_params(void);
struct llama_context *llama_init_from_model(struct llama_model *model,
                                            struct llama_context_params params);
void llama_free(struct llama_context *context);
llama_memory_t llama_get_memory(const struct llama_context *context);
uint32_t llama_n_ctx(const struct llama_context *context);
uint32_t llama_n_ctx_seq(const struct llama_context *context);
uint32_t llama_n_batch(const struct llama_context *context);

int32_t llama_model_n_swa(const struct llama_model *model);
enum llama_rope_type llama_model_rope_type(const struct llama_model *model);
bool llama_model_is_recurrent(const struct llama_model *model);
bool llama_model_is_hybrid(const struct llama_model *model);
bool llama_model_is_diffusion(const struct llama_model *model);
bool llama_model_has_encoder(const struct llama_model *model);
bool llama_model_has_decoder(const struct llama_model *model);
int32_t llama_model_meta_val_str(const struct llama_model *model, const char *key, char *out,
                                 size_t capacity);

bool llama_memory_seq_rm(llama_memory_t memory, llama_seq_id id, llama_pos p0, llama_pos p1);
void llama_memory_seq_cp(llama_memory_t memory, llama_seq_id from, llama_seq_id to, llama_pos p0,
                         llama_pos p1);
llama_pos llama_memory_seq_pos_min(llama_memory_t memory, llama_seq_id id);
llama_pos llama_memory_seq_pos_max(llama_memory_t memory, llama_seq_id id);

/* 0; 1: no cells; 2: aborted, and -3: failed, both with a part of the batch in its cells; -1: the
 * batch is refused */
int32_t llama_decode(struct llama_context *context, struct llama_batch batch);
float *llama_get_logits_ith(struct llama_context *context, int32_t i);

#include "state.h"

#endif
