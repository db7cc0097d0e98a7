/* Continuous batching with the scheduler: more requests than fit into memory.
 *
 * The device has eight blocks of four tokens, and so has the host. Three requests share a prompt's
 * first block; one of them has two samples. Each step prints which requests wait, are admitted, go
 * to the host, come back and end. It also prints the copies that the engine has to make (d: device,
 * h: host). The model is a function of the position. */
#include <kvpager/kvpager.h>
#include <kvpager/sched.h>
#include <stdio.h>

enum { N_REQUESTS = 4, MAX_TOKENS = 16, MAX_COPIES = 32 };

static const int32_t prompts[N_REQUESTS][10] = {
    {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
    {1, 2, 3, 4, 11, 12},
    {21, 22, 23, 24, 25, 26, 27, 28},
    {1, 2, 3, 4, 5},
};
static const uint32_t lengths[N_REQUESTS] = {10, 6, 8, 5};
static const uint32_t samples[N_REQUESTS] = {1, 2, 1, 1};

/* A request's tag is its number here. */
static unsigned number_of(const kvp_sched *sched, kvp_request request)
{
    kvp_request_info info;
    return kvp_request_info_get(sched, request, &info) == KVP_OK ? (unsigned)info.tag : 99;
}

static void print_step(const kvp_sched *sched, const kvp_step *step)
{
    printf("step %llu:", (unsigned long long)step->number);
    for (uint32_t i = 0; i < step->n_swapped_out; i++)
        printf("  swap out %u", number_of(sched, step->swapped_out[i]));
    for (uint32_t i = 0; i < step->n_swapped_in; i++)
        printf("  swap in %u", number_of(sched, step->swapped_in[i]));
    for (uint32_t i = 0; i < step->n_admitted; i++)
        printf("  admit %u", number_of(sched, step->admitted[i]));
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const kvp_step_seq *item = &step->seqs[i];
        printf("  %u.%u[%u..%u]", number_of(sched, item->request), item->sample, item->begin,
               item->begin + item->n_tokens - 1);
    }
    if (step->waited[KVP_WAIT_BLOCKS] + step->waited_swapped[KVP_WAIT_BLOCKS] > 0)
        printf("  (%u wait for blocks)",
               step->waited[KVP_WAIT_BLOCKS] + step->waited_swapped[KVP_WAIT_BLOCKS]);
    printf("\n");
}

static void print_copies(const kvp_copy *copies, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        printf("%s%c%d to %c%d", i == 0 ? "        copy " : ", ", "dh"[copies[i].src_tier],
               (int)copies[i].src_block, "dh"[copies[i].dst_tier], (int)copies[i].dst_block);
    printf("%s", n > 0 ? "\n" : "");
}

/* An engine would run the plan's copies and the forward pass here, and sample. */
static kvp_status run_model(kvp_cache *cache, kvp_sched *sched, const kvp_step *step)
{
    kvp_copy copies[MAX_COPIES];
    int32_t sampled[MAX_TOKENS];
    uint32_t n_copies = 0;
    kvp_step_end end;
    kvp_status status = kvp_plan_take(cache, copies, MAX_COPIES, &n_copies);
    print_copies(copies, n_copies);
    for (uint32_t i = 0; i < step->n_sampled; i++)
        sampled[i] = (int32_t)(100 + step->number * 10 + i);
    if (status == KVP_OK)
        status = kvp_sched_finish(sched, sampled, NULL, &end);
    for (uint32_t i = 0; status == KVP_OK && i < end.n_ended; i++)
        printf("        %llu.%u ended with %u new tokens\n", (unsigned long long)end.ended[i].tag,
               end.ended[i].sample, end.ended[i].new_tokens);
    return status;
}

static kvp_status submit_all(kvp_sched *sched, kvp_ns ns)
{
    kvp_status status = KVP_OK;
    for (uint32_t i = 0; i < N_REQUESTS && status == KVP_OK; i++) {
        const kvp_prompt prompt = {
            .struct_size = sizeof prompt, .tokens = prompts[i], .n_tokens = lengths[i], .tag = i};
        const kvp_submission submission = {.struct_size = sizeof submission,
                                           .prompt = &prompt,
                                           .ns = ns,
                                           .n_samples = samples[i],
                                           .max_new_tokens = 5};
        kvp_request request;
        status = kvp_sched_submit(sched, &submission, &request, NULL);
    }
    return status;
}

static kvp_status run(kvp_cache *cache, kvp_sched *sched)
{
    kvp_ns ns;
    kvp_step step;
    kvp_status status = kvp_ns_open(cache, "", 0, &ns);
    if (status == KVP_OK)
        status = submit_all(sched, ns);
    while (status == KVP_OK) {
        status = kvp_sched_step(sched, &step);
        if (status != KVP_OK || step.n_seqs == 0)
            break;
        print_step(sched, &step);
        status = run_model(cache, sched, &step);
    }
    return status;
}

int main(void)
{
    kvp_config config;
    kvp_sched_config sched_config;
    kvp_cache *cache;
    kvp_sched *sched = NULL;
    kvp_config_init(&config);
    config.block_tokens = 4;
    config.n_blocks = 9;
    config.max_seqs = 8;
    config.host_blocks = 9;
    config.max_copies = MAX_COPIES;
    kvp_sched_config_init(&sched_config);
    sched_config.step_tokens = MAX_TOKENS;
    sched_config.preempt = KVP_PREEMPT_SWAP;
    kvp_status status = kvp_cache_create(&config, NULL, 0, &cache);
    if (status != KVP_OK)
        return 1;
    status = kvp_sched_create(&sched_config, cache, NULL, 0, &sched);
    if (status == KVP_OK)
        status = run(cache, sched);
    printf("%s\n", kvp_status_text(status));
    kvp_sched_destroy(sched);
    kvp_cache_destroy(cache);
    return status != KVP_OK;
}
