/* op: FLASH_ATTN_EXT by libggml-kvpager.so and by ggml's own CPU back end, beside sums in double
 * precision, on random shapes and masks. Loaded by run.py into a process that has ggml.
 *
 *     op LIBRARY [CASES [SEED]]     prints what it saw; status 1 at the first difference
 */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

enum { KINDS = 8 };

static const char *const kind_names[KINDS] = {"prompt", "window", "decode", "shared",
                                              "tree",   "all",    "random", "biased"};

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) % n);
}

static float any_float(void)
{
    return ((float)below(2001) - 1000.0f) / 500.0f;
}

/* One operation: what it computes. */
struct shape {
    int64_t dims, v_dims, n_rows, n_heads, n_kv_heads, n_cells, n_streams;
    enum ggml_type type;
    int kind, has_mask, has_sinks;
    float cap;
};

struct tensors {
    struct ggml_context *context;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *q, *k, *v, *mask, *sinks, *op;
};

/* ---------------------------------------------------------------------------------------- masks */

/* What row `row` of a stream sees. Rows of the kinds 2 and 3 are requests of their own. */
static int sees(const struct shape *shape, int64_t row, int64_t cell, uint32_t salt)
{
    const int64_t n_old = shape->n_cells - shape->n_rows, at = cell - n_old;
    const uint32_t dice = (uint32_t)((uint64_t)(cell * 2654435761 + salt) >> 7);
    switch (shape->kind) {
    case 0: return dice % 11 != 0 && (at <= row);
    case 1: return at <= row && at > row - 40;
    case 2: return (cell * 7 + salt) % shape->n_rows == row;
    case 3: return cell < n_old * 3 / 4 ? (cell + (row & 1)) % 3 != 0 : cell % shape->n_rows == row;
    case 4: return at < 0 || at == row || (at < row && (row - at) % 3 == 0);
    case 5: return dice % 5 != 0;
    case 6: return (dice ^ (uint32_t)(row * 40503)) % 3 == 0;
    default: return at <= row;
    }
}

static void fill_mask(const struct shape *shape, struct ggml_tensor *mask)
{
    ggml_fp16_t *out = mask->data;
    const int64_t n = mask->ne[3];
    for (int64_t s = 0; s < n; s++) {
        const uint32_t salt = below(1000);
        const int64_t empty = below(8) == 0 ? (int64_t)below((uint32_t)shape->n_rows) : -1;
        for (int64_t row = 0; row < mask->ne[1]; row++) {
            for (int64_t cell = 0; cell < shape->n_cells; cell++) {
                const int is_seen = row != empty && sees(shape, row, cell, salt);
                const float seen = shape->kind == 7 ? any_float() : 0.0f;
                *out++ = ggml_fp32_to_fp16(is_seen ? seen : -INFINITY);
            }
        }
    }
}

/* -------------------------------------------------------------------------------------- tensors */

static void fill_q8_0(struct ggml_tensor *tensor)
{
    const int64_t n = ggml_nelements(tensor);
    float *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        values[i] = any_float();
    (void)ggml_quantize_chunk(GGML_TYPE_Q8_0, values, tensor->data, 0, n / tensor->ne[0],
                              tensor->ne[0], NULL);
    free(values);
}

static void fill(struct ggml_tensor *tensor)
{
    const int64_t n = ggml_nelements(tensor);
    if (tensor->type == GGML_TYPE_Q8_0) {
        fill_q8_0(tensor);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const float value = any_float();
        if (tensor->type == GGML_TYPE_F32)
            ((float *)tensor->data)[i] = value;
        else if (tensor->type == GGML_TYPE_F16)
            ((ggml_fp16_t *)tensor->data)[i] = ggml_fp32_to_fp16(value);
        else
            ((ggml_bf16_t *)tensor->data)[i] = ggml_fp32_to_bf16(value);
    }
}

/* As llama.cpp has them: cells one after the other, the heads of a cell side by side. */
static struct ggml_tensor *make_kv(struct ggml_context *context, const struct shape *shape,
                                   int64_t dims)
{
    struct ggml_tensor *whole = ggml_new_tensor_4d(context, shape->type, dims, shape->n_kv_heads,
                                                   shape->n_cells + 3, shape->n_streams);
    return ggml_permute(context,
                        ggml_view_4d(context, whole, dims, shape->n_kv_heads, shape->n_cells,
                                     shape->n_streams, whole->nb[1], whole->nb[2], whole->nb[3], 0),
                        0, 2, 1, 3);
}

static struct tensors make_tensors(const struct shape *shape, ggml_backend_buffer_type_t type)
{
    struct tensors t = {.context = ggml_init((struct ggml_init_params){
                            .mem_size = 64 * ggml_tensor_overhead(), .no_alloc = true})};
    struct ggml_tensor *q = ggml_new_tensor_4d(t.context, GGML_TYPE_F32, shape->dims,
                                               shape->n_heads, shape->n_rows, shape->n_streams);
    t.q = ggml_permute(t.context, q, 0, 2, 1, 3);
    t.k = make_kv(t.context, shape, shape->dims);
    t.v = make_kv(t.context, shape, shape->v_dims);
    if (shape->has_mask)
        t.mask = ggml_new_tensor_4d(t.context, GGML_TYPE_F16, shape->n_cells, shape->n_rows, 1,
                                    shape->n_streams);
    if (shape->has_sinks)
        t.sinks = ggml_new_tensor_1d(t.context, GGML_TYPE_F32, shape->n_heads);
    t.op = ggml_flash_attn_ext(t.context, t.q, t.k, t.v, t.mask, 1.0f / sqrtf((float)shape->dims),
                               0.0f, shape->cap);
    ggml_flash_attn_ext_add_sinks(t.op, t.sinks);
    t.buffer = ggml_backend_alloc_ctx_tensors_from_buft(t.context, type);
    fill(q);
    fill(t.k->view_src);
    fill(t.v->view_src);
    if (t.sinks != NULL)
        fill(t.sinks);
    if (t.mask != NULL)
        fill_mask(shape, t.mask);
    return t;
}

static void free_tensors(struct tensors *t)
{
    ggml_backend_buffer_free(t->buffer);
    ggml_free(t->context);
}

/* ------------------------------------------------------------------------------------- the sums */

/* 32 elements behind their scale, of f16. */
static double element_q8_0(const char *row, int64_t e)
{
    const char *group = row + e / 32 * 34;
    ggml_fp16_t scale;
    memcpy(&scale, group, sizeof scale);
    return (double)ggml_fp16_to_fp32(scale) * (int8_t)group[2 + e % 32];
}

static double element(const struct ggml_tensor *tensor, int64_t e, const int64_t at[3])
{
    const char *row = (const char *)tensor->data + (size_t)at[0] * tensor->nb[1] +
                      (size_t)at[1] * tensor->nb[2] + (size_t)at[2] * tensor->nb[3];
    switch (tensor->type) {
    case GGML_TYPE_F32: return ((const float *)(const void *)row)[e];
    case GGML_TYPE_F16: return ggml_fp16_to_fp32(((const ggml_fp16_t *)(const void *)row)[e]);
    case GGML_TYPE_Q8_0: return element_q8_0(row, e);
    default: return ggml_bf16_to_fp32(((const ggml_bf16_t *)(const void *)row)[e]);
    }
}

static double bias_of(const struct tensors *t, int64_t row, int64_t cell, int64_t stream)
{
    return t->mask == NULL ? 0.0 : element(t->mask, cell, (const int64_t[3]){row, 0, stream});
}

static void sum_head(const struct shape *shape, const struct tensors *t, int64_t row, int64_t head,
                     int64_t stream, double *scores, double *out)
{
    const int64_t kv_head = head / (shape->n_heads / shape->n_kv_heads);
    double largest = t->sinks != NULL ? ((float *)t->sinks->data)[head] : -INFINITY, total = 0.0;
    for (int64_t cell = 0; cell < shape->n_cells; cell++) {
        double score = 0.0;
        for (int64_t e = 0; e < shape->dims; e++)
            score += element(t->q, e, (const int64_t[3]){row, head, stream}) *
                     element(t->k, e, (const int64_t[3]){cell, kv_head, stream});
        score /= sqrt((double)shape->dims);
        score = shape->cap > 0.0f ? shape->cap * tanh(score / shape->cap) : score;
        scores[cell] = score + bias_of(t, row, cell, stream);
        largest = scores[cell] > largest ? scores[cell] : largest;
    }
    memset(out, 0, (size_t)shape->v_dims * sizeof *out);
    if (largest == -INFINITY)
        return;
    if (t->sinks != NULL)
        total = exp(((float *)t->sinks->data)[head] - largest);
    for (int64_t cell = 0; cell < shape->n_cells; cell++) {
        const double weight = exp(scores[cell] - largest);
        total += weight;
        for (int64_t e = 0; weight > 0.0 && e < shape->v_dims; e++)
            out[e] += weight * element(t->v, e, (const int64_t[3]){cell, kv_head, stream});
    }
    for (int64_t e = 0; e < shape->v_dims; e++)
        out[e] /= total;
}

static void sum_all(const struct shape *shape, const struct tensors *t, double *out)
{
    double *scores = malloc((size_t)shape->n_cells * sizeof *scores);
    for (int64_t s = 0; s < shape->n_streams; s++) {
        for (int64_t row = 0; row < shape->n_rows; row++) {
            for (int64_t head = 0; head < shape->n_heads; head++, out += shape->v_dims)
                sum_head(shape, t, row, head, s, scores, out);
        }
    }
    free(scores);
}

/* -------------------------------------------------------------------------------- the back ends */

static ggml_backend_t ours, cpu;

static double worst(const float *got, const double *want, int64_t n)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double difference = fabs((double)got[i] - want[i]);
        if (!(difference <= most))
            most = difference;
    }
    return most;
}

static double run(ggml_backend_t backend, const struct tensors *t, const double *want)
{
    struct ggml_cgraph *graph = ggml_new_graph_custom(t->context, 8, false);
    ggml_build_forward_expand(graph, t->op);
    memset(t->op->data, 0xff, ggml_nbytes(t->op));
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS)
        return INFINITY;
    return worst(t->op->data, want, ggml_nelements(t->op));
}

static struct shape any_shape(uint32_t i)
{
    static const int64_t dims[] = {64, 128, 96, 256, 80, 40};
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16,
                                           GGML_TYPE_Q8_0};
    struct shape shape = {.type = types[below(4)], .kind = (int)(i % KINDS)};
    const uint32_t n_dims = shape.type == GGML_TYPE_Q8_0 ? 4 : 6; /* multiples of 32 */
    shape.dims = dims[below(n_dims)];
    shape.v_dims = below(4) == 0 ? dims[below(n_dims)] : shape.dims;
    shape.n_kv_heads = 1 + below(3);
    shape.n_heads = shape.n_kv_heads * (1 + below(5));
    shape.n_rows = below(3) == 0 ? 1 + below(3) : 1 + below(70);
    shape.n_cells = shape.n_rows + below(below(2) ? 60 : 500);
    shape.n_streams = below(3) == 0 ? 1 + below(3) : 1;
    shape.has_mask = below(12) != 0;
    shape.has_sinks = below(4) == 0;
    shape.cap = below(4) == 0 ? 5.0f : 0.0f;
    return shape;
}

/* What rounding alone may do: kvpager multiplies bf16 in bf16, the others as f32. */
static double most_of(enum ggml_type type)
{
    switch (type) {
    case GGML_TYPE_F16: return 3e-3;
    case GGML_TYPE_BF16: return 2e-2;
    default: return 2e-5;
    }
}

static int check(const struct shape *shape, uint32_t i)
{
    struct tensors t = make_tensors(shape, ggml_backend_cpu_buffer_type());
    const int64_t n = ggml_nelements(t.op);
    double *want = malloc((size_t)n * sizeof *want);
    const int takes = ggml_backend_dev_supports_op(ggml_backend_get_device(ours), t.op);
    sum_all(shape, &t, want);
    const double us = run(ours, &t, want), ggml = run(cpu, &t, want);
    const int is_right = takes && us <= most_of(shape->type);
    if (!is_right || getenv("OP_SHOWS") != NULL)
        printf("case %u: %s, %s, D %" PRId64 " Dv %" PRId64 ", %" PRId64 " rows, %" PRId64
               " cells, %" PRId64 "/%" PRId64 " heads, %" PRId64 " streams, cap %g, sinks %d, "
               "mask %d: kvpager is off by %.2e, ggml by %.2e%s\n",
               i, kind_names[shape->kind], ggml_type_name(shape->type), shape->dims, shape->v_dims,
               shape->n_rows, shape->n_cells, shape->n_heads, shape->n_kv_heads, shape->n_streams,
               shape->cap, shape->has_sinks, shape->has_mask, us, ggml,
               takes ? "" : "; it is not taken");
    free(want);
    free_tensors(&t);
    return is_right;
}

/* One bit of the mask changes in place, as between two layers. */
static int check_changed_bit(void)
{
    const struct shape shape = {.dims = 64,
                                .v_dims = 64,
                                .n_rows = 5,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .n_cells = 300,
                                .n_streams = 1,
                                .type = GGML_TYPE_F16,
                                .kind = 0,
                                .has_mask = 1};
    struct tensors t = make_tensors(&shape, ggml_backend_cpu_buffer_type());
    double *want = malloc((size_t)ggml_nelements(t.op) * sizeof *want);
    int is_right = 1;
    for (int i = 0; i < 40 && is_right; i++) {
        ggml_fp16_t *number = (ggml_fp16_t *)t.mask->data + below(5 * 300);
        *number = *number == 0 ? ggml_fp32_to_fp16(-INFINITY) : 0;
        sum_all(&shape, &t, want);
        is_right = run(ours, &t, want) <= most_of(shape.type);
    }
    if (!is_right)
        printf("a bit that changed was not seen\n");
    free(want);
    free_tensors(&t);
    return is_right;
}

/* Lists are made once for layers that share a mask. */
static int check_lists(ggml_backend_reg_t registry)
{
    const struct shape shape = {.dims = 64,
                                .v_dims = 64,
                                .n_rows = 1,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .n_cells = 256,
                                .n_streams = 1,
                                .type = GGML_TYPE_F16,
                                .kind = 0,
                                .has_mask = 1};
    union {
        void *address;
        void (*call)(ggml_backend_t backend, uint64_t counts[3]);
    } counts_of = {ggml_backend_reg_get_proc_address(registry, "kvpager_counts")};
    struct tensors t = make_tensors(&shape, ggml_backend_cpu_buffer_type());
    double *want = calloc((size_t)ggml_nelements(t.op), sizeof *want);
    uint64_t before[3], after[3];
    counts_of.call(ours, before);
    for (int layer = 0; layer < 30; layer++)
        (void)run(ours, &t, want);
    counts_of.call(ours, after);
    const int is_right = after[0] == before[0] + 30 && after[1] == before[1] + 1;
    if (!is_right)
        printf("30 layers of one mask: %" PRIu64 " calls, %" PRIu64 " lists\n",
               after[0] - before[0], after[1] - before[1]);
    free(want);
    free_tensors(&t);
    return is_right;
}

/* Is it taken, with K and V of these types? */
static int takes_types(enum ggml_type k_type, enum ggml_type v_type)
{
    struct ggml_context *context = ggml_init(
        (struct ggml_init_params){.mem_size = 16 * ggml_tensor_overhead(), .no_alloc = true});
    struct ggml_tensor *q = ggml_new_tensor_4d(context, GGML_TYPE_F32, 64, 3, 2, 1);
    struct ggml_tensor *k = ggml_new_tensor_4d(context, k_type, 64, 32, 1, 1);
    struct ggml_tensor *v = ggml_new_tensor_4d(context, v_type, 64, 32, 1, 1);
    struct ggml_tensor *op = ggml_flash_attn_ext(context, q, k, v, NULL, 0.1f, 0.0f, 0.0f);
    const int takes = ggml_backend_dev_supports_op(ggml_backend_get_device(ours), op);
    ggml_free(context);
    return takes;
}

/* Threads of this process. */
static int count_threads(void)
{
    char line[128];
    int n = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        (void)sscanf(line, "Threads: %d", &n);
    if (status != NULL)
        (void)fclose(status);
    return n;
}

/* Ours are ggml's: when these are there, attention with as many starts none. */
static int check_threads(void (*set_threads)(ggml_backend_t backend, int n))
{
    const struct shape shape = {.dims = 128,
                                .v_dims = 128,
                                .n_rows = 16,
                                .n_heads = 8,
                                .n_kv_heads = 2,
                                .n_cells = 1000,
                                .n_streams = 1,
                                .type = GGML_TYPE_F16,
                                .has_mask = 1};
    struct tensors t = make_tensors(&shape, ggml_backend_cpu_buffer_type());
    double *want = malloc((size_t)ggml_nelements(t.op) * sizeof *want);
    sum_all(&shape, &t, want);
    const int at_first = count_threads();
    ggml_backend_cpu_set_n_threads(cpu, 3);
    (void)run(cpu, &t, want);
    const int with_ggml = count_threads();
    set_threads(ours, 3);
    const int is_right = run(ours, &t, want) <= most_of(shape.type);
    const int with_both = count_threads();
    ggml_backend_cpu_set_n_threads(cpu, 1);
    if (!is_right || with_ggml <= at_first || with_both != with_ggml)
        printf("threads: %d, with ggml's %d, with ours %d\n", at_first, with_ggml, with_both);
    free(want);
    free_tensors(&t);
    return is_right && with_ggml > at_first && with_both == with_ggml;
}

/* ALiBi, and types that kvpager does not have, stay with ggml. */
static int check_refused(void)
{
    struct shape shape = {.dims = 64,
                          .v_dims = 64,
                          .n_rows = 3,
                          .n_heads = 2,
                          .n_kv_heads = 1,
                          .n_cells = 32,
                          .n_streams = 1,
                          .type = GGML_TYPE_F16,
                          .has_mask = 1};
    struct tensors t = make_tensors(&shape, ggml_backend_cpu_buffer_type());
    const float alibi = 8.0f;
    ggml_backend_dev_t device = ggml_backend_get_device(ours);
    const int takes = ggml_backend_dev_supports_op(device, t.op);
    memcpy((float *)(void *)t.op->op_params + 1, &alibi, sizeof alibi);
    const int takes_alibi = ggml_backend_dev_supports_op(device, t.op);
    struct ggml_tensor *sum = ggml_add(t.context, t.op, t.op);
    const int takes_sum = ggml_backend_dev_supports_op(device, sum);
    if (!takes || takes_alibi || takes_sum)
        printf("taken: attention %d, with ALiBi %d, a sum %d\n", takes, takes_alibi, takes_sum);
    free_tensors(&t);
    const int takes_q8_0 = takes_types(GGML_TYPE_Q8_0, GGML_TYPE_Q8_0);
    const int takes_q4_0 = takes_types(GGML_TYPE_Q4_0, GGML_TYPE_Q4_0);
    const int takes_two = takes_types(GGML_TYPE_Q8_0, GGML_TYPE_F16);
    if (!takes_q8_0 || takes_q4_0 || takes_two)
        printf("taken: q8_0 %d, q4_0 %d, two types %d\n", takes_q8_0, takes_q4_0, takes_two);
    return takes && !takes_alibi && !takes_sum && takes_q8_0 && !takes_q4_0 && !takes_two;
}

int main(int argc, char **argv)
{
    const uint32_t n_cases = argc > 2 ? (uint32_t)atoi(argv[2]) : 400;
    state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    ggml_backend_reg_t registry = argc > 1 ? ggml_backend_load(argv[1]) : NULL;
    if (registry == NULL) {
        printf("usage: op LIBRARY [CASES [SEED]]\n");
        return 2;
    }
    ours = ggml_backend_dev_init(ggml_backend_reg_dev_get(registry, 0), NULL);
    cpu = ggml_backend_cpu_init();
    union {
        void *address;
        void (*call)(ggml_backend_t backend, int n);
    } set_threads = {ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads")};
    int is_right = check_refused() && check_changed_bit() && check_lists(registry) &&
                   check_threads(set_threads.call);
    for (uint32_t i = 0; i < n_cases && is_right; i++) {
        set_threads.call(ours, 1 + (int)(i / 3 % 3));
        const struct shape shape = any_shape(i);
        is_right = check(&shape, i);
    }
    printf("op: %u cases, %s\n", n_cases, is_right ? "all right" : "FAILED");
    ggml_backend_free(ours);
    ggml_backend_free(cpu);
    return !is_right;
}
