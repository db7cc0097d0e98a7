/* state: the part of llama.h that copies states, and tells what a model is. */
#ifndef FAKE_STATE_H
#define FAKE_STATE_H

#include <stddef.h>
#include <stdint.h>

size_t llama_state_seq_get_size_ext(struct llama_context *context, llama_seq_id id, uint32_t flags);
size_t llama_state_seq_get_data_ext(struct llama_context *context, uint8_t *out, size_t size,
                                    llama_seq_id id, uint32_t flags);
size_t llama_state_seq_set_data_ext(struct llama_context *context, const uint8_t *bytes,
                                    size_t size, llama_seq_id id, uint32_t flags);

struct llama_adapter_lora;
int32_t llama_set_adapters_lora(struct llama_context *context, struct llama_adapter_lora **adapters,
                                size_t n_adapters, float *scales);
uint64_t llama_adapter_get_alora_n_invocation_tokens(const struct llama_adapter_lora *adapter);

struct llama_adapter_lora *llama_adapter_lora_init(struct llama_model *model, const char *path);
void llama_adapter_lora_free(struct llama_adapter_lora *adapter);

/* An adapter of the fake: a token that it sees is another one. */
struct llama_adapter_lora {
    int32_t shift;
    uint64_t n_invocation_tokens;
};

void llama_synchronize(struct llama_context *context);

int32_t llama_model_meta_count(const struct llama_model *model);
int32_t llama_model_meta_key_by_index(const struct llama_model *model, int32_t i, char *out,
                                      size_t capacity);
int32_t llama_model_meta_val_str_by_index(const struct llama_model *model, int32_t i, char *out,
                                          size_t capacity);

/* What ggml_commit gives. */
extern const char *fake_commit;

/* The n-th llama_state_seq_set_data_ext from now on is refused, as damaged bytes are; 0: none. */
void fake_refuse_state(uint32_t n);

/* Calls of llama_state_seq_get_data_ext and _set_data_ext since the start. */
extern uint64_t fake_states_got, fake_states_set;

#endif
