/* bench: what libggml-kvpager.so is worth.
 *
 *     bench LIBRARY op THREADS                  the operation alone, by ggml and by kvpager
 *     bench LIBRARY|none MODEL prompt|token|idle CELLS THREADS FA
 *         prompt    a prompt of CELLS tokens
 *         token     tokens one by one behind CELLS cells, which are not computed but copied
 *         idle      tokens of a user of 256 cells, alone and beside CELLS cells of others, who do
 *                   nothing
 *
 * By the clock: median, and the quarters around it. FA is 0 or 1, or 8: 1 and a cache of q8_0.
 * LIBRARY none: ggml's own back end.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <llama.h>

enum { ROUNDS = 9, DECODED = 40, OWN = 256, PIECE = 256, IDLE = 512 };

static double now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct spread {
    double median, low, high;
};

static struct spread spread_of(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return (struct spread){values[n / 2], values[n / 4], values[n - 1 - n / 4]};
}

/* -------------------------------------------------------------------------------- the operation */

struct scene {
    const char *name;
    int64_t n_rows, n_cells, n_streams;
    int n_users;  /* of a stream: rows that see cells of their own */
    int n_shared; /* cells that all users see */
    enum ggml_type type;
};

static const struct scene scenes[] = {
    {"1 x 256", 1, 256, 1, 1, 0, GGML_TYPE_F16},
    {"1 x 2,048", 1, 2048, 1, 1, 0, GGML_TYPE_F16},
    {"1 x 8,192", 1, 8192, 1, 1, 0, GGML_TYPE_F16},
    {"1 x 8,192, f32", 1, 8192, 1, 1, 0, GGML_TYPE_F32},
    {"1 x 8,192, bf16", 1, 8192, 1, 1, 0, GGML_TYPE_BF16},
    {"1 x 256, q8_0", 1, 256, 1, 1, 0, GGML_TYPE_Q8_0},
    {"1 x 2,048, q8_0", 1, 2048, 1, 1, 0, GGML_TYPE_Q8_0},
    {"1 x 8,192, q8_0", 1, 8192, 1, 1, 0, GGML_TYPE_Q8_0},
    {"8 x 2,048, unified", 8, 16384, 1, 8, 0, GGML_TYPE_F16},
    {"8 x 2,048, streams", 1, 2048, 8, 1, 0, GGML_TYPE_F16},
    {"32 x (1,500 shared + 160), unified", 32, 6656, 1, 32, 1500, GGML_TYPE_F16},
    {"256 queries on 256", 256, 256, 1, 1, 0, GGML_TYPE_F16},
    {"256 queries on 2,048", 256, 2048, 1, 1, 0, GGML_TYPE_F16},
    {"256 queries on 2,048, q8_0", 256, 2048, 1, 1, 0, GGML_TYPE_Q8_0},
    {"256 queries on 8,192", 256, 8192, 1, 1, 0, GGML_TYPE_F16},
};

static struct ggml_tensor *make_kv(struct ggml_context *context, const struct scene *scene)
{
    struct ggml_tensor *whole =
        ggml_new_tensor_4d(context, scene->type, 128, 8, scene->n_cells, scene->n_streams);
    return ggml_permute(context, whole, 0, 2, 1, 3);
}

static void fill_kv(struct ggml_tensor *tensor, int64_t step)
{
    const int64_t n = ggml_nelements(tensor);
    float *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)(i * step % 2003) / 1000.0f - 1.0f;
    if (tensor->type == GGML_TYPE_F32)
        memcpy(tensor->data, values, (size_t)n * sizeof *values);
    else
        (void)ggml_quantize_chunk(tensor->type, values, tensor->data, 0, n / 128, 128, NULL);
    free(values);
}

static int sees(const struct scene *scene, int64_t row, int64_t cell)
{
    if (scene->n_users == 1)
        return cell <= scene->n_cells - scene->n_rows + row;
    return cell < scene->n_shared ||
           (cell - scene->n_shared) / ((scene->n_cells - scene->n_shared) / scene->n_users) == row;
}

static void run_scene(const struct scene *scene, ggml_backend_t backends[2])
{
    struct ggml_context *context = ggml_init((struct ggml_init_params){
        .mem_size = 64 * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true});
    struct ggml_tensor *q =
        ggml_new_tensor_4d(context, GGML_TYPE_F32, 128, 32, scene->n_rows, scene->n_streams);
    struct ggml_tensor *k = make_kv(context, scene), *v = make_kv(context, scene);
    struct ggml_tensor *mask = ggml_new_tensor_4d(context, GGML_TYPE_F16, scene->n_cells,
                                                  scene->n_rows, 1, scene->n_streams);
    struct ggml_tensor *op = ggml_flash_attn_ext(context, ggml_permute(context, q, 0, 2, 1, 3), k,
                                                 v, mask, 0.088f, 0.0f, 0.0f);
    struct ggml_cgraph *graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, op);
    ggml_backend_buffer_t buffer =
        ggml_backend_alloc_ctx_tensors_from_buft(context, ggml_backend_cpu_buffer_type());
    for (int64_t i = 0; i < ggml_nelements(q); i++)
        ((float *)q->data)[i] = (float)(i * 7919 % 2003) / 1000.0f - 1.0f;
    fill_kv(k, 104729);
    fill_kv(v, 15485);
    ggml_fp16_t *out = mask->data;
    for (int64_t s = 0; s < scene->n_streams; s++) {
        for (int64_t row = 0; row < scene->n_rows; row++) {
            for (int64_t cell = 0; cell < scene->n_cells; cell++)
                *out++ = sees(scene, row, cell) ? 0 : 0xfc00;
        }
    }
    double times[2][ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        for (int b = 0; b < 2; b++) {
            const double before = now_ms();
            (void)ggml_backend_graph_compute(backends[b], graph);
            times[b][i] = now_ms() - before;
        }
    }
    const struct spread ggml = spread_of(times[0], ROUNDS), ours = spread_of(times[1], ROUNDS);
    printf("%-36s ggml %8.3f ms (%.3f-%.3f)   kvpager %8.3f ms (%.3f-%.3f)   %5.2f x\n",
           scene->name, ggml.median, ggml.low, ggml.high, ours.median, ours.low, ours.high,
           ggml.median / ours.median);
    (void)fflush(stdout);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

static int bench_op(const char *library, int n_threads)
{
    ggml_backend_reg_t registry = ggml_backend_load(library);
    if (registry == NULL)
        return 1;
    ggml_backend_t backends[2] = {
        ggml_backend_cpu_init(),
        ggml_backend_dev_init(ggml_backend_reg_dev_get(registry, 0), NULL)};
    union {
        void *address;
        void (*call)(ggml_backend_t backend, int n);
    } set_threads = {ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads")};
    ggml_backend_cpu_set_n_threads(backends[0], n_threads);
    set_threads.call(backends[1], n_threads);
    printf("ggml: %s\n", llama_print_system_info());
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        run_scene(&scenes[i], backends);
    return 0;
}

/* ------------------------------------------------------------------------------ the whole model */

static void keep_quiet(enum ggml_log_level level, const char *text, void *context)
{
    (void)context;
    if (level == GGML_LOG_LEVEL_ERROR)
        (void)fputs(text, stderr);
}

/* What the command line says. */
struct options {
    int n_cells, n_threads, fa, is_idle;
};

static struct llama_context *open_context(struct llama_model *model, const struct options *options)
{
    struct llama_context_params params = llama_context_default_params();
    const int n_threads = options->n_threads, fa = options->fa;
    params.n_ctx = (uint32_t)options->n_cells + 2 * OWN + IDLE;
    params.n_batch = 512;
    params.n_ubatch = 512;
    params.n_seq_max = options->is_idle ? (uint32_t)(options->n_cells / IDLE + 2) : 2;
    params.kv_unified = true;
    if (fa == 8)
        params.type_k = params.type_v = GGML_TYPE_Q8_0;
    params.n_threads = params.n_threads_batch = n_threads;
    params.flash_attn_type = fa ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *context = llama_init_from_model(model, params);
    if (context != NULL && n_threads > 1) { /* as llama-server does */
        struct ggml_threadpool_params pool = ggml_threadpool_params_default(n_threads);
        llama_attach_threadpool(context, ggml_threadpool_new(&pool), NULL);
    }
    return context;
}

/* Decode n tokens; ms. */
static double decode(struct llama_context *context, llama_token *tokens, int n)
{
    const double before = now_ms();
    if (llama_decode(context, llama_batch_get_one(tokens, n)) != 0)
        (void)fprintf(stderr, "llama_decode failed\n");
    llama_synchronize(context);
    return now_ms() - before;
}

/* A prompt; ms. */
static double run_prompt(struct llama_context *context, int n_cells, int32_t n_vocab)
{
    double prompt = 0.0;
    llama_token tokens[512];
    for (int at = 0; at < n_cells; at += 512) {
        const int n = n_cells - at < 512 ? n_cells - at : 512;
        for (int i = 0; i < n; i++)
            tokens[i] = (llama_token)((at + i) * INT64_C(7919) % (n_vocab - 200) + 100);
        prompt += decode(context, tokens, n);
    }
    return prompt;
}

static struct spread run_tokens(struct llama_context *context)
{
    double times[DECODED];
    for (int i = 0; i < DECODED; i++) {
        llama_token token = i * 31 + 100;
        times[i] = decode(context, &token, 1);
    }
    return spread_of(times, DECODED);
}

/* The state of a prompt of n tokens, of sequence 0, which ends. NULL: a call failed. */
static uint8_t *state_of_prompt(struct llama_context *context, int n, int32_t n_vocab,
                                size_t *out_bytes)
{
    (void)run_prompt(context, n, n_vocab);
    const size_t n_bytes = *out_bytes = llama_state_seq_get_size(context, 0);
    uint8_t *state = malloc(n_bytes);
    if (llama_state_seq_get_data(context, state, n_bytes, 0) == n_bytes &&
        llama_memory_seq_rm(llama_get_memory(context), 0, -1, -1))
        return state;
    free(state);
    return NULL;
}

/* Sequence 0 becomes pieces of the same content, one behind the other. 0: a call failed. */
static int fill_own(struct llama_context *context, int n_cells, int32_t n_vocab)
{
    llama_memory_t memory = llama_get_memory(context);
    size_t n_bytes;
    uint8_t *state = state_of_prompt(context, PIECE, n_vocab, &n_bytes);
    int is_right = state != NULL;
    for (int at = 0; is_right && at < n_cells; at += PIECE) {
        is_right = llama_state_seq_set_data(context, state, n_bytes, 1) == n_bytes;
        llama_memory_seq_add(memory, 1, -1, -1, at);
        llama_memory_seq_cp(memory, 1, 0, -1, -1);
        is_right = is_right && llama_memory_seq_rm(memory, 1, -1, -1);
    }
    free(state);
    return is_right;
}

/* Sequences that do nothing: one is computed, and written into the others. 0: a call failed. */
static int fill_idle(struct llama_context *context, int n_cells, int32_t n_vocab)
{
    size_t n_bytes;
    uint8_t *state = state_of_prompt(context, IDLE, n_vocab, &n_bytes);
    int is_right = state != NULL;
    for (llama_seq_id seq = 1; is_right && seq <= n_cells / IDLE; seq++)
        is_right = llama_state_seq_set_data(context, state, n_bytes, seq) == n_bytes;
    free(state);
    return is_right;
}

static int run_only_prompt(struct llama_context *context, int n_cells, int32_t n_vocab)
{
    (void)run_prompt(context, 16, n_vocab);
    llama_memory_clear(llama_get_memory(context), true);
    const double prompt = run_prompt(context, n_cells, n_vocab);
    printf("prompt of %d: %.1f ms (%.0f tokens/s)\n", n_cells, prompt, n_cells / prompt * 1e3);
    return 0;
}

static int run_token(struct llama_context *context, int n_cells, int32_t n_vocab)
{
    if (!fill_own(context, n_cells, n_vocab)) {
        (void)fprintf(stderr, "the cache cannot be filled\n");
        return 1;
    }
    llama_token token = 100;
    (void)decode(context, &token, 1); /* which also turns the keys to their places */
    const struct spread times = run_tokens(context);
    printf("%d cells: a token %.2f ms (%.2f-%.2f)\n", n_cells, times.median, times.low, times.high);
    return 0;
}

static int run_idle(struct llama_context *context, int n_cells, int32_t n_vocab)
{
    struct spread token[2];
    for (int i = 0; i < 2; i++) {
        llama_memory_clear(llama_get_memory(context), true);
        if (i == 1 && !fill_idle(context, n_cells, n_vocab)) {
            (void)fprintf(stderr, "the cache cannot be filled\n");
            return 1;
        }
        (void)run_prompt(context, OWN, n_vocab);
        token[i] = run_tokens(context);
    }
    printf("%d idle cells: a token %.2f ms (%.2f-%.2f), alone %.2f ms (%.2f-%.2f): %.3f\n", n_cells,
           token[1].median, token[1].low, token[1].high, token[0].median, token[0].low,
           token[0].high, token[1].median / token[0].median);
    return 0;
}

static int bench_model(char **argv)
{
    const struct options options = {.n_cells = atoi(argv[4]),
                                    .n_threads = atoi(argv[5]),
                                    .fa = atoi(argv[6]),
                                    .is_idle = strcmp(argv[3], "idle") == 0};
    llama_log_set(keep_quiet, NULL);
    llama_backend_init();
    if (strcmp(argv[1], "none") != 0 && ggml_backend_load(argv[1]) == NULL)
        return 1;
    struct llama_model *model = llama_model_load_from_file(argv[2], llama_model_default_params());
    struct llama_context *context = model == NULL ? NULL : open_context(model, &options);
    if (context == NULL)
        return 1;
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    printf("%s, -fa %d, %d threads: ", strcmp(argv[1], "none") == 0 ? "ggml" : "kvpager",
           options.fa, options.n_threads);
    const int status = options.is_idle ? run_idle(context, options.n_cells, n_vocab)
                       : strcmp(argv[3], "token") == 0
                           ? run_token(context, options.n_cells, n_vocab)
                           : run_only_prompt(context, options.n_cells, n_vocab);
    llama_free(context);
    llama_model_free(model);
    return status;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[2], "op") == 0)
        return bench_op(argv[1], atoi(argv[3]));
    if (argc == 7)
        return bench_model(argv);
    (void)fprintf(stderr, "usage: bench LIBRARY op THREADS\n"
                          "       bench LIBRARY|none MODEL prompt|token|idle CELLS THREADS FA\n");
    return 2;
}
