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

enum ggml_type {
    GGML_TYPE_F32 = 0,
    GGML_TYPE_F16 = 1,
    GGML_TYPE_Q4_0 = 2,
    GGML_TYPE_Q4_1 = 3,
    GGML_TYPE_Q5_0 = 6,
    GGML_TYPE_Q5_1 = 7,
    GGML_TYPE_Q8_0 = 8,
    GGML_TYPE_IQ4_NL = 20,
    GGML_TYPE_BF16 = 30
};

enum ggml_log_level { GGML_LOG_LEVEL_NONE = 0, GGML_LOG_LEVEL_WARN = 3, GGML_LOG_LEVEL_ERROR = 4 };
typedef void (*ggml_log_callback)(enum ggml_log_level level, const char *text, void *context);
typedef bool (*ggml_abort_callback)(void *data);

/* ggml's back ends: backends.c */
typedef struct ggml_backend_reg *ggml_backend_reg_t;
typedef struct ggml_backend_device *ggml_backend_dev_t;
size_t ggml_backend_dev_count(void);
ggml_backend_dev_t ggml_backend_dev_by_name(const char *name);
ggml_backend_reg_t ggml_backend_load(const char *path);
void ggml_backend_load_all(void);

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
    int32_t n_threads;
    int32_t n_threads_batch;
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

struct llama_model_params {
    void *devices;
    const float *tensor_split;
    int32_t n_gpu_layers;
    bool vocab_only;
    bool load_mtp;
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
void llama_set_abort_callback(struct llama_context *context, ggml_abort_callback callback,
                              void *data);

/* ------------------------------------------------------- models, text and samplers: text.c */

struct llama_vocab;
struct llama_sampler;

typedef struct llama_token_data {
    llama_token id;
    float logit;
    float p;
} llama_token_data;

typedef struct llama_token_data_array {
    llama_token_data *data;
    size_t size;
    int64_t selected;
    bool sorted;
} llama_token_data_array;

typedef struct llama_logit_bias {
    llama_token token;
    float bias;
} llama_logit_bias;

typedef struct llama_sampler_chain_params {
    bool no_perf;
} llama_sampler_chain_params;

typedef struct llama_chat_message {
    const char *role;
    const char *content;
} llama_chat_message;

void llama_backend_init(void);
void llama_backend_free(void);
#define LLAMA_SESSION_VERSION   11
#define LLAMA_STATE_SEQ_VERSION 4

const char *llama_print_system_info(void);
const char *ggml_version(void);
const char *ggml_commit(void);
void llama_log_set(ggml_log_callback callback, void *context);
struct llama_model_params llama_model_default_params(void);
struct llama_sampler_chain_params llama_sampler_chain_default_params(void);
struct llama_model *llama_model_load_from_file(const char *path, struct llama_model_params params);
void llama_model_free(struct llama_model *model);
int32_t llama_model_n_ctx_train(const struct llama_model *model);
int32_t llama_model_desc(const struct llama_model *model, char *out, size_t capacity);
uint64_t llama_model_size(const struct llama_model *model);
uint64_t llama_model_n_params(const struct llama_model *model);
const char *llama_model_chat_template(const struct llama_model *model, const char *name);
const struct llama_vocab *llama_model_get_vocab(const struct llama_model *model);
int32_t llama_vocab_n_tokens(const struct llama_vocab *vocab);
bool llama_vocab_is_eog(const struct llama_vocab *vocab, llama_token token);
int32_t llama_tokenize(const struct llama_vocab *vocab, const char *text, int32_t n_bytes,
                       llama_token *out, int32_t capacity, bool add_special, bool parse_special);
int32_t llama_token_to_piece(const struct llama_vocab *vocab, llama_token token, char *out,
                             int32_t capacity, int32_t lstrip, bool special);
int32_t llama_chat_apply_template(const char *name, const struct llama_chat_message *messages,
                                  size_t n_messages, bool add_assistant, char *out,
                                  int32_t capacity);

struct llama_sampler *llama_sampler_chain_init(struct llama_sampler_chain_params params);
void llama_sampler_chain_add(struct llama_sampler *chain, struct llama_sampler *sampler);
struct llama_sampler *llama_sampler_init_greedy(void);
struct llama_sampler *llama_sampler_init_dist(uint32_t seed);
struct llama_sampler *llama_sampler_init_top_k(int32_t k);
struct llama_sampler *llama_sampler_init_top_p(float p, size_t min_keep);
struct llama_sampler *llama_sampler_init_min_p(float p, size_t min_keep);
struct llama_sampler *llama_sampler_init_temp(float t);
struct llama_sampler *llama_sampler_init_grammar(const struct llama_vocab *vocab, const char *text,
                                                 const char *root);
struct llama_sampler *llama_sampler_init_penalties(int32_t n_vocab, int32_t last_n, float repeat,
                                                   float frequency, float presence);
struct llama_sampler *llama_sampler_init_logit_bias(int32_t n_vocab, int32_t n,
                                                    const llama_logit_bias *bias);
void llama_sampler_accept(struct llama_sampler *sampler, llama_token token);
void llama_sampler_apply(struct llama_sampler *sampler, llama_token_data_array *array);
void llama_sampler_free(struct llama_sampler *sampler);

#include "state.h"

#endif
