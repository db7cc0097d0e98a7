/* model: a real model with libggml-kvpager.so and without it. Logits must differ by no more than
 * 1.5 times what ggml's own do between flash attention and none; a prompt of which some tokens are
 * others must differ by more.
 *
 * Caches of f16 with the weights of the file, which amplify rounding, and of f16 and q8_0 with
 * three layers in f32, where a few other tokens show. There what is without flash attention has a
 * cache of f32.
 *
 *     model LIBRARY MODEL      prints the differences; status 1 if one is wrong
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ggml-backend.h>
#include <ggml.h>
#include <llama.h>

#include "f32_model.h"

enum { PROMPT = 256, CHUNK = 128, USERS = 3, OWN = 7, RUNS = 4, LAYERS = 3 };

static void keep_quiet(enum ggml_log_level level, const char *text, void *context)
{
    (void)context;
    if (level == GGML_LOG_LEVEL_ERROR)
        (void)fputs(text, stderr);
}

static struct llama_model *model;
static int32_t n_vocab;

static void put_token(struct llama_batch *batch, int32_t token, int32_t position,
                      llama_seq_id seq_id, int is_wanted)
{
    const int32_t i = batch->n_tokens++;
    batch->token[i] = token;
    batch->pos[i] = position;
    batch->n_seq_id[i] = 1;
    batch->seq_id[i][0] = seq_id;
    batch->logits[i] = (int8_t)is_wanted;
}

static int32_t token_at(int32_t i)
{
    return (int32_t)(((int64_t)i * 7919) % (n_vocab - 200)) + 100;
}

/* A prompt that USERS share; then each has tokens of its own, all decoded at once. Gives the logits
 * [USERS, vocabulary] of the last step. 0: a call failed. */
static int run(const struct llama_context_params *params, int32_t n_changed, float *out_logits)
{
    struct llama_context *context = llama_init_from_model(model, *params);
    if (context == NULL)
        return 0;
    struct llama_batch batch = llama_batch_init(CHUNK, 0, 1);
    int failed = 0;
    for (int32_t at = 0; at < PROMPT; at += CHUNK) {
        batch.n_tokens = 0;
        for (int32_t i = at; i < PROMPT && i < at + CHUNK; i++)
            put_token(&batch, token_at(i < PROMPT - n_changed ? i : i + 7), i, 0, i + 1 == PROMPT);
        failed |= llama_decode(context, batch);
    }
    for (llama_seq_id user = 1; user < USERS; user++)
        llama_memory_seq_cp(llama_get_memory(context), 0, user, -1, -1);
    for (int32_t i = 0; i < OWN; i++) {
        batch.n_tokens = 0;
        for (llama_seq_id user = 0; user < USERS; user++)
            put_token(&batch, token_at(1000 * (user + 1) + i), PROMPT + i, user, 1);
        failed |= llama_decode(context, batch);
    }
    for (int32_t user = 0; failed == 0 && user < USERS; user++)
        memcpy(out_logits + (size_t)user * (size_t)n_vocab, llama_get_logits_ith(context, user),
               (size_t)n_vocab * sizeof *out_logits);
    llama_batch_free(batch);
    llama_free(context);
    return failed == 0;
}

static double difference(const float *a, const float *b)
{
    double most = 0.0;
    for (size_t i = 0; i < (size_t)USERS * (size_t)n_vocab; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= most))
            most = d;
    }
    return most;
}

static int compare_runs(const char *library, int unified, enum ggml_type exact, enum ggml_type type)
{
    struct llama_context_params params = llama_context_default_params();
    const size_t n = (size_t)USERS * (size_t)n_vocab;
    const int32_t n_changed = exact == GGML_TYPE_F16 ? 20 : 2;
    float *logits = calloc(RUNS * n, sizeof *logits);
    params.n_ctx = (uint32_t)(USERS * 1024);
    params.n_batch = params.n_ubatch = CHUNK;
    params.n_seq_max = USERS;
    params.kv_unified = unified != 0;
    params.n_threads = params.n_threads_batch = 1; /* what runs beside does not matter then */
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = exact;
    int is_run = logits != NULL && run(&params, 0, logits);
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = type;
    is_run = is_run && run(&params, 0, logits + n);
    ggml_backend_reg_t registry = is_run ? ggml_backend_load(library) : NULL;
    is_run = registry != NULL && run(&params, 0, logits + 2 * n) &&
             run(&params, n_changed, logits + 3 * n);
    if (registry != NULL)
        ggml_backend_unload(registry);
    const double own = is_run ? difference(logits, logits + n) : 0.0;
    const double off = is_run ? difference(logits, logits + 2 * n) : 0.0;
    const double on = is_run ? difference(logits + n, logits + 2 * n) : 0.0;
    const double planted = is_run ? difference(logits + 2 * n, logits + 3 * n) : 0.0;
    const int is_right = is_run && off <= 1.5 * own && on <= 1.5 * own && planted > 1.5 * own;
    printf("model, %s of %s: -fa on to off %.4f; kvpager to off %.4f, to on %.4f; with %d other "
           "tokens %.4f: %s\n",
           unified ? "one cache" : "streams", ggml_type_name(type), own, off, on, (int)n_changed,
           planted,
           is_right ? "right"
           : is_run ? "WRONG"
                    : "a call failed");
    free(logits);
    return is_right;
}

/* One cache for all, and a stream for each. */
static int compare_types(const char *library, enum ggml_type exact, enum ggml_type type)
{
    if (model == NULL)
        return 0;
    n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    return compare_runs(library, 1, exact, type) & compare_runs(library, 0, exact, type);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        printf("usage: model LIBRARY MODEL\n");
        return 2;
    }
    llama_log_set(keep_quiet, NULL);
    llama_backend_init();
    model = llama_model_load_from_file(argv[2], llama_model_default_params());
    int is_right = compare_types(argv[1], GGML_TYPE_F16, GGML_TYPE_F16);
    llama_model_free(model);
    model = f32_model_load(argv[2], LAYERS);
    is_right &= compare_types(argv[1], GGML_TYPE_F32, GGML_TYPE_F16) &
                compare_types(argv[1], GGML_TYPE_F32, GGML_TYPE_Q8_0);
    llama_model_free(model);
    return !is_right;
}
