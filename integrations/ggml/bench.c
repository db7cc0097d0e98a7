/* bench: what libggml-kvpager.so is worth.
 *
 *     bench LIBRARY op THREADS                  the operation alone, by ggml and by kvpager
 *     bench LIBRARY|none MODEL CELLS THREADS FA [ROUNDS]
 *                                               a whole model: prompt, then tokens one by one
 *
 * Medians. FA is 0 or 1. LIBRARY none: ggml's own back end. With one thread, times are the
 * processor's; with more, by the clock.
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

enum { ROUNDS = 9, DECODED = 16 };

static clockid_t clock_id = CLOCK_MONOTONIC;

static double now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(clock_id, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

/* -------------------------------------------------------------------------------- the operation */

struct scene {
    const char *name;
    int64_t n_rows, n_cells, n_streams;
    int n_users;  /* of a stream: rows that see cells of their own */
    int n_shared; /* cells that all users see */
};

static const struct scene scenes[] = {
    {"1 x 256", 1, 256, 1, 1, 0},
    {"1 x 2,048", 1, 2048, 1, 1, 0},
    {"1 x 8,192", 1, 8192, 1, 1, 0},
    {"8 x 2,048, unified", 8, 16384, 1, 8, 0},
    {"8 x 2,048, streams", 1, 2048, 8, 1, 0},
    {"32 x (1,500 shared + 160), unified", 32, 6656, 1, 32, 1500},
    {"256 queries on 256", 256, 256, 1, 1, 0},
    {"256 queries on 2,048", 256, 2048, 1, 1, 0},
    {"256 queries on 8,192", 256, 8192, 1, 1, 0},
};

static struct ggml_tensor *make_kv(struct ggml_context *context, const struct scene *scene)
{
    struct ggml_tensor *whole =
        ggml_new_tensor_4d(context, GGML_TYPE_F16, 128, 8, scene->n_cells, scene->n_streams);
    return ggml_permute(context, whole, 0, 2, 1, 3);
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
    for (int64_t i = 0; i < ggml_nelements(k); i++) {
        ((ggml_fp16_t *)k->data)[i] =
            ggml_fp32_to_fp16((float)(i * 104729 % 2003) / 1000.0f - 1.0f);
        ((ggml_fp16_t *)v->data)[i] = ggml_fp32_to_fp16((float)(i * 15485 % 2003) / 1000.0f - 1.0f);
    }
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
    const double ggml = median(times[0], ROUNDS), ours = median(times[1], ROUNDS);
    printf("%-36s ggml %8.3f ms   kvpager %8.3f ms   %5.2f x\n", scene->name, ggml, ours,
           ggml / ours);
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

static struct llama_context *open_context(struct llama_model *model, uint32_t n_cells,
                                          int n_threads, int fa)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = n_cells + 256;
    params.n_batch = 512;
    params.n_ubatch = 512;
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

static void run_model(struct llama_context *context, int n_cells, int32_t n_vocab)
{
    double times[DECODED], prompt = 0.0;
    llama_token tokens[512];
    llama_memory_clear(llama_get_memory(context), true);
    for (int at = 0; at < n_cells; at += 512) {
        const int n = n_cells - at < 512 ? n_cells - at : 512;
        for (int i = 0; i < n; i++)
            tokens[i] = (llama_token)((at + i) * INT64_C(7919) % (n_vocab - 200) + 100);
        prompt += decode(context, tokens, n);
    }
    for (int i = 0; i < DECODED; i++) {
        tokens[0] = i * 31 + 100;
        times[i] = decode(context, tokens, 1);
    }
    printf("%d cells: prompt %.1f ms (%.0f tokens/s), a token %.2f ms\n", n_cells, prompt,
           n_cells / prompt * 1e3, median(times, DECODED));
    (void)fflush(stdout);
}

static int bench_model(char **argv, int argc)
{
    const int n_cells = atoi(argv[3]), n_threads = atoi(argv[4]), fa = atoi(argv[5]);
    const int n_rounds = argc > 6 ? atoi(argv[6]) : 1;
    llama_log_set(keep_quiet, NULL);
    llama_backend_init();
    if (strcmp(argv[1], "none") != 0 && ggml_backend_load(argv[1]) == NULL)
        return 1;
    struct llama_model *model = llama_model_load_from_file(argv[2], llama_model_default_params());
    struct llama_context *context =
        model == NULL ? NULL : open_context(model, (uint32_t)n_cells, n_threads, fa);
    if (context == NULL)
        return 1;
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    printf("%s, -fa %d, %d threads: ", strcmp(argv[1], "none") == 0 ? "ggml" : "kvpager", fa,
           n_threads);
    for (int i = 0; i < n_rounds; i++)
        run_model(context, n_cells, n_vocab);
    llama_free(context);
    llama_model_free(model);
    return 0;
}

int main(int argc, char **argv)
{
    const char *n_threads = argc == 4 ? argv[3] : argc >= 6 ? argv[4] : "";
    if (strcmp(n_threads, "1") == 0)
        clock_id = CLOCK_PROCESS_CPUTIME_ID;
    if (argc == 4 && strcmp(argv[2], "op") == 0)
        return bench_op(argv[1], atoi(argv[3]));
    if (argc >= 6)
        return bench_model(argv, argc);
    (void)fprintf(stderr, "usage: bench LIBRARY op THREADS\n"
                          "       bench LIBRARY|none MODEL CELLS THREADS FA [ROUNDS]\n");
    return 2;
}
