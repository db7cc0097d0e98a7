/* Any bytes as a GGUF file: its header is read as a model, or refused in one line; what it claims
 * costs nothing. Of a model that was read, what llama.cpp would allocate and what vLLM would plan
 * is counted, for options that the first bytes choose; the figures must add up. */
#define _GNU_SOURCE /* memfd_create */

#include "tool/models/gguf.h"
#include "tool/size/engine_llama.h"
#include "tool/size/engine_vllm.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "meter.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The values of keys, and the buffer of a file. */
enum { N_OPTION_BYTES = 3, MOST_MEMORY = 1 << 18, MOST_REQUESTS = 16 };

static const uint64_t contexts[] = {1, 8192, 100000, 1 << 27};
static const uint64_t memories[] = {0, 1000, UINT64_C(80) << 30, UINT64_C(1) << 62};

static void check_shape(const kvpi_model *model)
{
    uint32_t n_layers = 0;
    require(model->n_kinds >= 1 && model->n_kinds <= KVPI_MODELS_MAX_KINDS);
    for (uint32_t i = 0; i < model->n_kinds; i++) {
        const kvpi_models_kind *kind = &model->kinds[i];
        n_layers += kind->n_layers;
        require(kind->n_layers >= 1 && kind->window_tokens <= KVPI_MODELS_MAX_WINDOW);
        require(kind->keeps == KVPI_KEEPS_STATE || kvpi_models_entry_bytes(kind, 1, 0) > 0);
    }
    require(n_layers <= 2 * KVPI_MODELS_MAX_LAYERS && model->q_heads >= 1);
    require(kvpi_models_divides(model, 1));
}

static void check_llama(const kvpi_model *model, const uint8_t *bytes)
{
    char why[80];
    kvpi_llama counted;
    uint64_t sum = 0;
    const kvpi_llama_options options = {.context_tokens = contexts[bytes[0] % 4],
                                        .n_sequences = 1u + bytes[0] / 4 % 4,
                                        .batch_tokens = 1u + bytes[0] / 16 * 100u,
                                        .unified = bytes[1] & 1,
                                        .full_windows = (bytes[1] & 2) != 0,
                                        .dtype = (kvpi_dtype)(bytes[1] / 4 % KVPI_N_DTYPES),
                                        .memory_bytes = memories[bytes[2] % 4]};
    if (kvpi_llama_count(model, &options, &counted, why, sizeof why) != 0)
        return;
    for (uint32_t i = 0; i < counted.n; i++) {
        require(counted.layers[i].state || counted.layers[i].cells <= counted.sequence_cells);
        sum += counted.layers[i].bytes;
    }
    require(sum == counted.bytes && counted.sequence_cells % 256 == 0);
    require(counted.sequence_cells * counted.n_caches >= options.context_tokens);
    if (options.memory_bytes > 0 && counted.fits)
        require(counted.most_context_tokens + 256 * options.n_sequences > options.context_tokens);
}

static void check_vllm(const kvpi_model *model, const uint8_t *bytes)
{
    char why[80];
    kvpi_vllm plan;
    kvpi_vllm_layers layers[KVPI_VLLM_MAX_LAYERS];
    uint64_t blocks = 0;
    const kvpi_vllm_options options = {.block_tokens = 16 * (1u + bytes[0] / 4 % 4),
                                       .context_tokens = contexts[bytes[0] % 4],
                                       .batch_tokens = 1u + bytes[0] / 16 * 100u,
                                       .memory_bytes = memories[bytes[2] % 4]};
    const uint32_t n =
        kvpi_vllm_layers_of(model, 1, KVPI_DTYPE_BF16, KVPI_DTYPE_F32, layers, why, sizeof why);
    if (n == 0 || kvpi_vllm_plan(layers, n, &options, &plan) != 0)
        return;
    for (uint32_t i = 0; i < n; i++)
        blocks += plan.layers[i].request_blocks;
    require(plan.block_bytes > 0 && plan.request_blocks >= 1 && blocks == plan.request_blocks);
    require(plan.blocks <= options.memory_bytes / plan.block_bytes);
    require(!plan.starts || plan.held_tokens >= options.context_tokens);
    require(plan.starts || plan.most_context_tokens < options.context_tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    kvpi_model model;
    kvpi_gguf about;
    kvpi_models_error error = {""};
    if (size < N_OPTION_BYTES)
        return 0;
    const size_t n = size - N_OPTION_BYTES;
    const int file = memfd_create("gguf", 0);
    require(file >= 0 && write(file, data + N_OPTION_BYTES, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    meter_begin();
    const int result = kvpi_gguf_read(path, &model, &about, &error);
    const meter used = meter_end();
    require(used.peak <= MOST_MEMORY && used.n_asked <= MOST_REQUESTS);
    if (result != 0) {
        require(error.text[0] != '\0' && strchr(error.text, '\n') == NULL);
    } else {
        check_shape(&model);
        check_llama(&model, data);
        check_vllm(&model, data);
    }
    close(file);
    return 0;
}
