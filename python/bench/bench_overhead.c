/* C's side of bench_overhead.py: reads names of cases, prints ns for each call of a batch. The same
 * calls on the same state as the Python functions of that name. */
#include <kvpager/all.h>
#include <kvpager/meta.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEP_SEQS = 1024, STEPS = 9, MAX_STEPS = 900 }; /* 64 blocks for each */

static kvp_cache *cache;
static kvp_ns ns;
static kvp_seq base, pair[2];
static int32_t tokens[64];
static int32_t long_tokens[1 << 20];
static uint32_t n_batch;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

static kvp_seq open_tokens(const int32_t *values, uint32_t n)
{
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = values, .n_tokens = n};
    kvp_open_info info;
    kvp_seq seq = {0};
    if (kvp_seq_open(cache, ns, &prompt, &seq, &info) != KVP_OK)
        exit(1);
    return seq;
}

static kvp_seq fork_base(void)
{
    kvp_seq child = {0};
    if (kvp_seq_fork(cache, base, KVP_END, 0, &child) != KVP_OK)
        exit(1);
    return child;
}

static double commit_case(void)
{
    kvp_seq seq = open_tokens(long_tokens, n_batch);
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_seq_commit(cache, seq, i);
    double took = (now() - start) / n_batch;
    kvp_seq_close(cache, seq, NULL);
    return took;
}

static double append_case(uint32_t n)
{
    kvp_seq seq = fork_base();
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_seq_extend(cache, seq, tokens, n, 0);
    double took = (now() - start) / n_batch;
    kvp_seq_close(cache, seq, NULL);
    return took;
}

static double truncate_case(void)
{
    kvp_seq seq = fork_base();
    kvp_released released;
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_seq_truncate(cache, seq, 64, &released);
    double took = (now() - start) / n_batch;
    kvp_seq_close(cache, seq, NULL);
    return took;
}

static double fork_case(void)
{
    kvp_released released;
    double start = now();
    for (uint32_t i = 0; i < n_batch / 2; i++)
        kvp_seq_close(cache, fork_base(), &released);
    return (now() - start) / n_batch;
}

static double open_case(void)
{
    kvp_released released;
    double start = now();
    for (uint32_t i = 0; i < n_batch / 2; i++)
        kvp_seq_close(cache, open_tokens(tokens, 64), &released);
    return (now() - start) / (n_batch / 2);
}

static double slots_case(void)
{
    int64_t slots[4];
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_seq_slots(cache, base, 0, 0, 4, slots);
    return (now() - start) / n_batch;
}

static double info_case(void)
{
    kvp_seq_info info;
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_seq_info_get(cache, base, &info);
    return (now() - start) / n_batch;
}

static double retain_case(void)
{
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_seq_retain(cache, base, (kvp_range){0, 64}, 0);
    return (now() - start) / n_batch;
}

static double row_case(void)
{
    const int32_t *row;
    int32_t copy[16];
    uint32_t n;
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++) {
        kvp_seq_row(cache, base, 0, &row, &n);
        memcpy(copy, row, (n < 16 ? n : 16) * sizeof *row);
    }
    return (now() - start) / n_batch;
}

static double can_open_case(void)
{
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = 64};
    kvp_admission admission;
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_cache_can_open(cache, ns, &prompt, &admission);
    return (now() - start) / n_batch;
}

static double plan_case(void)
{
    kvp_copy copies[16];
    uint32_t n;
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_plan_take(cache, copies, 16, &n);
    return (now() - start) / n_batch;
}

static double match_case(void)
{
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = 64};
    kvp_open_info info;
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_cache_match(cache, ns, &prompt, &info);
    return (now() - start) / n_batch;
}

static double commit_many_case(void)
{
    const uint32_t counts[2] = {64, 64};
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_seq_commit_many(cache, pair, counts, 2);
    return (now() - start) / n_batch;
}

static double extend_many_case(void)
{
    const int32_t values[2] = {1, 2};
    const kvp_batch batch = {
        .struct_size = sizeof batch, .n_seqs = 2, .seqs = pair, .tokens = values};
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_seq_extend_many(cache, &batch);
    double took = (now() - start) / n_batch;
    kvp_seq_truncate(cache, pair[0], 64, NULL);
    kvp_seq_truncate(cache, pair[1], 64, NULL);
    return took;
}

static double csr_case(void)
{
    static _Alignas(KVP_META_ALIGN) unsigned char buffer[65536];
    const kvp_meta_batch batch = {.struct_size = sizeof batch, .n_seqs = 2, .seqs = pair};
    const kvp_meta_sizes sizes = {.n_seqs = 8, .n_tokens = 64, .n_entries = 1024};
    kvp_meta_csr csr = {.struct_size = sizeof csr};
    size_t n_bytes;
    if (kvp_meta_place_csr(&csr, &sizes, buffer, sizeof buffer, &n_bytes) != KVP_OK)
        exit(1);
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_meta_fill_csr(cache, &batch, &csr);
    return (now() - start) / n_batch;
}

static double dense_case(void)
{
    static _Alignas(KVP_META_ALIGN) unsigned char buffer[65536];
    const kvp_meta_batch batch = {.struct_size = sizeof batch, .n_seqs = 2, .seqs = pair};
    const kvp_meta_sizes sizes = {.n_seqs = 8, .n_tokens = 64, .max_blocks = 128};
    kvp_meta_dense dense = {.struct_size = sizeof dense};
    size_t n_bytes;
    if (kvp_meta_place_dense(&dense, &sizes, buffer, sizeof buffer, &n_bytes) != KVP_OK)
        exit(1);
    double start = now();
    for (uint32_t i = 0; i < n_batch; i++)
        kvp_meta_fill_dense(cache, &batch, &dense);
    return (now() - start) / n_batch;
}

/* Prints us of decode steps of 1,024 sequences, as DecodeSteps in Python. */
static void step_case(void)
{
    static kvp_seq seqs[STEP_SEQS];
    static uint32_t lengths[STEP_SEQS];
    static unsigned char *buffer;
    static kvp_meta_csr csr;
    static uint32_t made, grown;
    const kvp_meta_sizes sizes = {
        .n_seqs = STEP_SEQS, .n_tokens = STEP_SEQS, .n_entries = STEP_SEQS * 64};
    size_t n_bytes = 0;
    if (!made) {
        csr.struct_size = sizeof csr;
        kvp_meta_place_csr(&csr, &sizes, NULL, 0, &n_bytes);
        buffer = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
        kvp_meta_place_csr(&csr, &sizes, buffer, n_bytes, &n_bytes);
        for (uint32_t i = 0; i < STEP_SEQS; i++) {
            lengths[i] = 64 + i % 16;
            seqs[i] = open_tokens(long_tokens + i * 100, lengths[i]);
            kvp_seq_commit(cache, seqs[i], lengths[i]);
        }
        made = 1;
    }
    const kvp_batch batch = {
        .struct_size = sizeof batch, .n_seqs = STEP_SEQS, .seqs = seqs, .tokens = long_tokens};
    const kvp_meta_batch meta = {.struct_size = sizeof meta, .n_seqs = STEP_SEQS, .seqs = seqs};
    for (int turn = 0; turn < STEPS; turn++) {
        if (++grown > MAX_STEPS)
            exit(1);
        for (uint32_t i = 0; i < STEP_SEQS; i++)
            lengths[i]++;
        double start = now();
        if (kvp_seq_extend_many(cache, &batch) != KVP_OK ||
            kvp_meta_fill_csr(cache, &meta, &csr) != KVP_OK ||
            kvp_seq_commit_many(cache, seqs, lengths, STEP_SEQS) != KVP_OK)
            exit(1);
        printf("%f ", (now() - start) / 1000);
    }
    printf("\n");
}

static double run_case(const char *name)
{
    if (strcmp(name, "commit") == 0)
        return commit_case();
    if (strcmp(name, "append") == 0)
        return append_case(1);
    if (strcmp(name, "extend by 4") == 0)
        return append_case(4);
    if (strcmp(name, "truncate") == 0)
        return truncate_case();
    if (strcmp(name, "fork, close") == 0)
        return fork_case();
    if (strcmp(name, "open of 64, close") == 0)
        return open_case();
    if (strcmp(name, "slots of 4") == 0)
        return slots_case();
    if (strcmp(name, "info") == 0)
        return info_case();
    if (strcmp(name, "retain") == 0)
        return retain_case();
    if (strcmp(name, "row") == 0 || strcmp(name, "row, fresh") == 0)
        return row_case();
    if (strcmp(name, "can_open of 64") == 0)
        return can_open_case();
    if (strcmp(name, "plan_take") == 0)
        return plan_case();
    if (strcmp(name, "dense of 2") == 0)
        return dense_case();
    if (strcmp(name, "match of 64") == 0)
        return match_case();
    if (strcmp(name, "commit_many of 2") == 0)
        return commit_many_case();
    if (strcmp(name, "extend_many of 2") == 0)
        return extend_many_case();
    if (strcmp(name, "csr of 2") == 0)
        return csr_case();
    return -1;
}

int main(int argc, char **argv)
{
    char name[64];
    kvp_config config;
    kvp_config_init(&config);
    config.n_blocks = 262144;
    config.max_seqs = 2048;
    config.max_seq_tokens = 65536;
    n_batch = argc > 1 ? (uint32_t)atoi(argv[1]) : 2000;
    for (int i = 0; i < 64; i++)
        tokens[i] = i;
    for (int i = 0; i < 1 << 20; i++)
        long_tokens[i] = i;
    if (kvp_cache_create(&config, NULL, 0, &cache) || kvp_ns_open(cache, "bench", 5, &ns))
        return 1;
    base = open_tokens(tokens, 64);
    kvp_seq_commit(cache, base, 64);
    pair[0] = open_tokens(tokens, 64);
    pair[1] = open_tokens(tokens, 64);
    while (fgets(name, sizeof name, stdin) != NULL) {
        name[strcspn(name, "\n")] = '\0';
        if (strcmp(name, "decode step") == 0)
            step_case();
        else
            printf("%f\n", run_case(name));
        fflush(stdout);
    }
    kvp_cache_destroy(cache);
    return 0;
}
