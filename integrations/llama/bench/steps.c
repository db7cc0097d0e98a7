/* steps: what a step costs beside llama_decode, when every new block is taken by eviction.
 *
 *     kvp_llama_steps MODEL CELLS BLOCK_TOKENS THREADS [LAYERS]
 *
 * Fills CELLS with conversations that are over, and then USERS decode beside them. Steps that give
 * each user a token are measured by the clock: scheduler, cache and ids, llama.cpp's own
 * bookkeeping of cells among it, without llama_decode and without sampling. LAYERS (0: those of the
 * file): so many layers of zeros instead of the model's weights, which fills many cells in seconds
 * and costs a step the same.
 *
 * Linked with --wrap=llama_decode, so that its time is known. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include <kvpager/llama.h>

#include <llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { USERS = 32, OLD = 1500, OWN = 400, NEW = 128, STEPS_MOST = 1 << 16, CONTEXT_MOST = 4096 };

int32_t __real_llama_decode(struct llama_context *context, struct llama_batch batch);
int32_t __wrap_llama_decode(struct llama_context *context, struct llama_batch batch);

static uint64_t decode_ns;

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int32_t __wrap_llama_decode(struct llama_context *context, struct llama_batch batch)
{
    const uint64_t begin = now_ns();
    const int32_t result = __real_llama_decode(context, batch);
    llama_synchronize(context);
    decode_ns += now_ns() - begin;
    return result;
}

static void stop(const char *what, long long a)
{
    (void)fprintf(stderr, "steps: %s (%lld)\n", what, a);
    exit(1);
}

/* ------------------------------------------------------------------------------------ the model */

static void set_zeros(struct ggml_tensor *tensor, void *data)
{
    (void)data;
    ggml_backend_tensor_memset(tensor, 0, 0, ggml_nbytes(tensor));
}

static struct llama_model *load(const char *path, uint32_t n_layers)
{
    if (n_layers == 0)
        return llama_model_load_from_file(path, llama_model_default_params());
    struct gguf_context *metadata =
        gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true, .ctx = NULL});
    if (metadata == NULL)
        return NULL;
    struct gguf_context *fewer = gguf_init_empty();
    gguf_set_kv(fewer, metadata);
    gguf_set_val_u32(fewer, "llama.block_count", n_layers);
    struct llama_model *model =
        llama_model_init_from_user(fewer, set_zeros, NULL, llama_model_default_params());
    gguf_free(fewer);
    gguf_free(metadata);
    return model;
}

static kvp_llama *make_engine(struct llama_model *model, char **argv)
{
    struct llama_context_params params = llama_context_default_params();
    kvp_llama_config config;
    kvp_llama *engine = NULL;
    kvp_why why;
    params.n_ctx = (uint32_t)atoi(argv[2]);
    params.n_batch = params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = atoi(argv[4]);
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    kvp_llama_config_init(&config);
    config.block_tokens = (uint32_t)atoi(argv[3]);
    config.max_running = USERS;
    if (kvp_llama_create(&config, model, &params, &engine, &why) != KVP_OK)
        stop(why.text, 0);
    return engine;
}

/* ------------------------------------------------------------------------------------ the steps */

typedef struct figures {
    double own_us[STEPS_MOST];
    double decode_us[STEPS_MOST];
    uint64_t evicted; /* blocks, in these steps */
    uint32_t n;
} figures;

static void submit(kvp_llama *engine, kvp_ns ns, uint32_t first_token, uint32_t n_tokens,
                   uint32_t n_new)
{
    static int32_t tokens[CONTEXT_MOST];
    kvp_request request;
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n_tokens};
    const kvp_submission submission = {
        .struct_size = sizeof submission, .prompt = &prompt, .ns = ns, .max_new_tokens = n_new};
    for (uint32_t i = 0; i < n_tokens; i++)
        tokens[i] = (int32_t)(100 + (first_token * 2654435761u + i * 7919u) % 40000u);
    if (kvp_sched_submit(kvp_llama_sched(engine), &submission, &request, NULL) != KVP_OK)
        stop("submit", n_tokens);
}

/* All that was submitted. */
static void run(kvp_llama *engine, figures *out)
{
    static int32_t tokens[USERS];
    kvp_step step;
    kvp_stats before, after;
    for (;;) {
        decode_ns = 0;
        (void)kvp_cache_stats_get(kvp_llama_cache(engine), &before);
        const uint64_t begin = now_ns();
        if (kvp_llama_run(engine, &step) != KVP_OK)
            stop("run", 0);
        if (step.n_seqs == 0)
            return;
        if (kvp_llama_finish(engine, tokens, NULL, NULL) != KVP_OK)
            stop("finish", 0);
        const uint64_t end = now_ns();
        if (out == NULL || step.n_seqs != USERS || step.n_tokens != USERS || out->n == STEPS_MOST)
            continue;
        (void)kvp_cache_stats_get(kvp_llama_cache(engine), &after);
        out->evicted += after.evicted_blocks - before.evicted_blocks;
        out->own_us[out->n] = (double)(end - begin - decode_ns) / 1e3;
        out->decode_us[out->n++] = (double)decode_ns / 1e3;
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double mean(const double *values, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += values[i];
    return sum / n;
}

static void report(kvp_llama *engine, figures *f)
{
    kvp_llama_stats stats;
    kvp_llama_stats_get(engine, &stats);
    if (f->n == 0)
        stop("no step gave each user a token", 0);
    const double own = mean(f->own_us, f->n), decode = mean(f->decode_us, f->n);
    qsort(f->own_us, f->n, sizeof *f->own_us, compare);
    qsort(f->decode_us, f->n, sizeof *f->decode_us, compare);
    printf(
        "%u steps of %d users: %.0f us beside llama_decode (median %.0f, p99 %.0f), llama_decode "
        "%.0f us (median %.0f): %.2f %%; %.2f blocks evicted a step, %u keepers\n",
        f->n, USERS, own, f->own_us[f->n / 2], f->own_us[f->n * 99 / 100], decode,
        f->decode_us[f->n / 2], 100 * own / (own + decode), (double)f->evicted / f->n,
        stats.keepers);
}

static void quiet(enum ggml_log_level level, const char *text, void *data)
{
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR)
        (void)fputs(text, stderr);
}

int main(int argc, char **argv)
{
    static figures f;
    kvp_ns ns;
    kvp_stats stats;
    if (argc < 5 || argc > 6) {
        (void)fprintf(stderr, "usage: kvp_llama_steps MODEL CELLS BLOCK_TOKENS THREADS [LAYERS]\n");
        return 2;
    }
    llama_log_set(quiet, NULL);
    llama_backend_init();
    const uint32_t n_cells = (uint32_t)atoi(argv[2]);
    struct llama_model *model = load(argv[1], argc > 5 ? (uint32_t)atoi(argv[5]) : 0);
    if (model == NULL)
        stop("the model cannot be loaded", 0);
    kvp_llama *engine = make_engine(model, argv);
    if (kvp_ns_open(kvp_llama_cache(engine), "", 0, &ns) != KVP_OK)
        stop("namespace", 0);
    uint32_t n = 0;
    do {
        submit(engine, ns, n, OLD, 1);
        run(engine, NULL);
        (void)kvp_cache_stats_get(kvp_llama_cache(engine), &stats);
    } while (stats.evicted_blocks == 0 && ++n < 2 * n_cells / OLD);
    for (uint32_t user = 0; user < USERS; user++)
        submit(engine, ns, 100000 + user, OWN, NEW);
    run(engine, &f);
    report(engine, &f);
    kvp_llama_destroy(engine);
    llama_model_free(model);
    return 0;
}
