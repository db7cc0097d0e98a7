/* text: models from files, a vocabulary of bytes, and one chat template. */
#include "fake.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const specials[] = {"<end>", "<|im_start|>", "<|im_end|>"};

float fake_text_logit(uint64_t kv, int32_t token, uint32_t i)
{
    const float x = fake_logit(kv, i) / 16777216.0f;
    if (token == 0xC3)
        return i >= 0x80 && i < 0xC0 ? 4 * x : x - 20;
    if ((i >= 0x20 && i < 0x7F) || i == FAKE_IM_END)
        return 4 * x;
    return i == 0xC3 ? 4 * x + 0.5f : x - 20;
}

/* ---------------------------------------------------------------------------------- models */

void llama_backend_init(void)
{
}

void llama_backend_free(void)
{
}

void llama_log_set(ggml_log_callback callback, void *context)
{
    (void)callback;
    (void)context;
}

struct llama_model_params llama_model_default_params(void)
{
    return (struct llama_model_params){.n_gpu_layers = -1, .load_mtp = true};
}

/* A file of words: "fake-model", then any of step_us=N, n_swa=N, architecture=NAME, no-template.
 * Nothing is loaded without a back end. */
struct llama_model *llama_model_load_from_file(const char *path, struct llama_model_params params)
{
    char word[64], name[64];
    (void)params;
    FILE *file = ggml_backend_dev_count() > 0 ? fopen(path, "r") : NULL;
    if (file == NULL)
        return NULL;
    struct llama_model *model = calloc(1, sizeof *model);
    if (model == NULL || fscanf(file, "%63s", word) != 1 || strcmp(word, "fake-model") != 0) {
        free(model);
        (void)fclose(file);
        return NULL;
    }
    model->architecture = "llama";
    model->has_text = true;
    model->chat_template = "{{ '<|im_start|>' }}";
    while (fscanf(file, "%63s", word) == 1) {
        if (sscanf(word, "step_us=%u", &model->step_us) == 1 ||
            sscanf(word, "n_swa=%d", &model->n_swa) == 1)
            continue;
        if (strcmp(word, "no-template") == 0)
            model->chat_template = "{{ messages }}";
        else if (sscanf(word, "architecture=%63s", name) == 1)
            model->is_recurrent = strcmp(name, "mamba") == 0;
    }
    (void)fclose(file);
    return model;
}

void llama_model_free(struct llama_model *model)
{
    free(model);
}

/* A file of words: "fake-adapter", then its shift, and how many tokens activate it. */
struct llama_adapter_lora *llama_adapter_lora_init(struct llama_model *model, const char *path)
{
    struct llama_adapter_lora *adapter = calloc(1, sizeof *adapter);
    FILE *file = fopen(path, "r");
    (void)model;
    if (adapter == NULL || file == NULL ||
        fscanf(file, "fake-adapter %d %" SCNu64, &adapter->shift, &adapter->n_invocation_tokens) !=
            2) {
        free(adapter);
        adapter = NULL;
    }
    if (file != NULL)
        (void)fclose(file);
    return adapter;
}

void llama_adapter_lora_free(struct llama_adapter_lora *adapter)
{
    free(adapter);
}

int32_t llama_model_n_ctx_train(const struct llama_model *model)
{
    (void)model;
    return 4096;
}

int32_t llama_model_desc(const struct llama_model *model, char *out, size_t capacity)
{
    (void)model;
    return snprintf(out, capacity, "fake");
}

uint64_t llama_model_size(const struct llama_model *model)
{
    (void)model;
    return 1;
}

uint64_t llama_model_n_params(const struct llama_model *model)
{
    return 1000 + model->n_params;
}

const char *llama_model_chat_template(const struct llama_model *model, const char *name)
{
    return name == NULL ? model->chat_template : NULL;
}

/* ---------------------------------------------------------------------------------- vocabulary */

const struct llama_vocab *llama_model_get_vocab(const struct llama_model *model)
{
    return (const struct llama_vocab *)model;
}

int32_t llama_vocab_n_tokens(const struct llama_vocab *vocab)
{
    return ((const struct llama_model *)vocab)->has_text ? FAKE_TEXT_TOKENS : FAKE_VOCABULARY;
}

bool llama_vocab_is_eog(const struct llama_vocab *vocab, llama_token token)
{
    (void)vocab;
    return token == FAKE_END || token == FAKE_IM_END;
}

int32_t llama_tokenize(const struct llama_vocab *vocab, const char *text, int32_t n_bytes,
                       llama_token *out, int32_t capacity, bool add_special, bool parse_special)
{
    int32_t n = 0;
    (void)vocab;
    (void)add_special;
    for (int32_t i = 0; i < n_bytes; n++) {
        llama_token token = (unsigned char)text[i];
        int32_t length = 1;
        for (int32_t k = 0; parse_special && k < 3; k++) {
            const int32_t size = (int32_t)strlen(specials[k]);
            if (size <= n_bytes - i && memcmp(&text[i], specials[k], (size_t)size) == 0) {
                token = FAKE_END + k;
                length = size;
            }
        }
        if (n < capacity)
            out[n] = token;
        i += length;
    }
    return n <= capacity ? n : -n;
}

int32_t llama_token_to_piece(const struct llama_vocab *vocab, llama_token token, char *out,
                             int32_t capacity, int32_t lstrip, bool special)
{
    (void)lstrip;
    if (token < 0 || token >= llama_vocab_n_tokens(vocab))
        fake_broken("a piece of no token", token, 0);
    if (token >= FAKE_END) {
        const int32_t n = special ? (int32_t)strlen(specials[token - FAKE_END]) : 0;
        if (n > capacity)
            return -n;
        memcpy(out, specials[token - FAKE_END], (size_t)n);
        return n;
    }
    if (capacity < 1)
        return -1;
    out[0] = (char)token;
    return 1;
}

int32_t llama_chat_apply_template(const char *name, const struct llama_chat_message *messages,
                                  size_t n_messages, bool add_assistant, char *out,
                                  int32_t capacity)
{
    int32_t n = 0;
    if (name == NULL || (strcmp(name, "chatml") != 0 && strstr(name, "<|im_start|>") == NULL))
        return -1;
#define ADD(text)                                                                                  \
    do {                                                                                           \
        for (const char *c = (text); *c != '\0'; c++, n++)                                         \
            if (n < capacity)                                                                      \
                out[n] = *c;                                                                       \
    } while (0)
    for (size_t i = 0; i < n_messages; i++) {
        ADD("<|im_start|>");
        ADD(messages[i].role);
        ADD("\n");
        ADD(messages[i].content);
        ADD("<|im_end|>\n");
    }
    if (add_assistant)
        ADD("<|im_start|>assistant\n");
#undef ADD
    return n;
}
