/* bench: tokens per second of the example model, with the reference and with fast attention. */
#define _POSIX_C_SOURCE 200809L

#include "bench.h"

#include <kvpager/attention.h>
#include <stdio.h>
#include <time.h>

#include "engine.h"

enum { N_REQUESTS = 8, N_PROMPT = 256, N_NEW = 64 };

struct run {
    int32_t prompts[N_REQUESTS][N_PROMPT];
    int32_t out[N_REQUESTS][N_NEW];
    struct generation generations[N_REQUESTS];
};

static void make_run(struct run *run)
{
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        for (uint32_t at = 0; at < N_PROMPT; at++)
            run->prompts[i][at] = (int32_t)((at * 37 + i * 101 + at * at * i) % 211);
        run->generations[i] = (struct generation){.prompt = run->prompts[i],
                                                  .n_prompt = N_PROMPT,
                                                  .n_new = N_NEW,
                                                  .n_samples = 1,
                                                  .seed = 1000 + i,
                                                  .out = run->out[i]};
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int time_run(struct model *model, const char *name, uint32_t impl)
{
    static struct run run;
    struct engine *engine = NULL;
    engine_options options = engine_default_options();
    options.block_tokens = 16;
    options.step_tokens = N_PROMPT;
    options.impl = impl;
    make_run(&run);
    kvp_status status = engine_create(model, &options, &engine);
    const double start = seconds();
    if (status == KVP_OK)
        status = engine_run(engine, run.generations, N_REQUESTS);
    const double took = seconds() - start;
    if (status == KVP_OK)
        printf("%-22s %8.0f tokens/s, prompts included; %.0f generated/s\n", name,
               N_REQUESTS * (N_PROMPT + N_NEW) / took, N_REQUESTS * N_NEW / took);
    else
        printf("%-22s %s\n", name, kvp_status_text(status));
    engine_destroy(engine);
    return status != KVP_OK;
}

int bench_run(void)
{
    const model_config config = {.n_layers = 4,
                                 .n_heads = 16,
                                 .n_kv_heads = 4,
                                 .head_size = 64,
                                 .width = 256,
                                 .hidden = 512,
                                 .vocabulary = 211,
                                 .max_tokens = N_PROMPT,
                                 .seed = 2,
                                 .theta = 10000.0};
    struct model *model = model_create(&config);
    if (model == NULL)
        return 1;
    const int failed = time_run(model, "reference attention", KVP_ATTENTION_REFERENCE) |
                       time_run(model, "fast attention", KVP_ATTENTION_AUTO);
    model_destroy(model);
    return failed;
}
