// What llama.cpp allocates for the KV of a GGUF file, in bytes (allocated.py):
//
//     kvp_llama_allocated FILE CONTEXT SEQUENCES BATCH UNIFIED FULL_WINDOWS TYPE
//
// Nothing is allocated for weights and KV, so that a file may be sparse behind its header. States
// are, so a model has few of them.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "llama.h"
#include "llama-ext.h"

static ggml_type type_of(const char *name)
{
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        const char *known = ggml_type_name(static_cast<ggml_type>(i));
        if (known != nullptr && std::strcmp(known, name) == 0)
            return static_cast<ggml_type>(i);
    }
    return GGML_TYPE_COUNT;
}

static void print_errors(ggml_log_level level, const char *text, void *)
{
    if (level == GGML_LOG_LEVEL_ERROR)
        std::fputs(text, stderr);
}

static llama_context *open(llama_model *model, char **argv)
{
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(std::atoi(argv[2]));
    params.n_seq_max = static_cast<uint32_t>(std::atoi(argv[3]));
    params.n_ubatch = static_cast<uint32_t>(std::atoi(argv[4]));
    params.n_batch = 2048;
    params.kv_unified = std::atoi(argv[5]) != 0;
    params.swa_full = std::atoi(argv[6]) != 0;
    params.type_k = params.type_v = type_of(argv[7]);
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    return llama_init_from_model(model, params);
}

int main(int argc, char **argv)
{
    if (argc != 8)
        return 2;
    llama_log_set(print_errors, nullptr);
    llama_backend_init();
    llama_model_params params = llama_model_default_params();
    params.no_alloc = true;
    params.load_mode = LLAMA_LOAD_MODE_NONE;
    params.n_gpu_layers = 0;
    llama_model *model = llama_model_load_from_file(argv[1], params);
    llama_context *context = model != nullptr ? open(model, argv) : nullptr;
    if (context == nullptr)
        return 1;
    size_t bytes = 0;
    for (const auto &of : llama_get_memory_breakdown(context))
        bytes += of.second.context;
    std::printf("%zu\n", bytes);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
