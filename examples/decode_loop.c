/* Continuous batching, in small: four requests, at most three running at a time.
 *
 * Each step admits the requests that fit, runs prompts and one token of every running sequence,
 * commits, and closes what is finished. The model is a function of the last token. The example
 * shows the order of the calls, and that a step's slots are all that a kernel needs to write the
 * KV. */
#include <kvpager/cache.h>
#include <stdio.h>

enum { N_REQUESTS = 4, BATCH_MAX = 3, OUTPUT_TOKENS = 4, BLOCK_TOKENS = 4 };

typedef struct request {
    int32_t prompt[8];
    uint32_t n_prompt;
    kvp_seq seq;
    uint32_t n_tokens; /* prompt and output so far */
    int32_t last;
} request;

static request requests[N_REQUESTS] = {
    {.prompt = {1, 2, 3, 4, 5, 6}, .n_prompt = 6},
    {.prompt = {1, 2, 3, 4, 7}, .n_prompt = 5},
    {.prompt = {8, 9}, .n_prompt = 2},
    {.prompt = {1, 2, 3, 4, 5, 6, 7, 8}, .n_prompt = 8},
};

static int32_t model(int32_t last)
{
    return last + 100;
}

static void print_slots(kvp_cache *cache, const request *r, uint32_t from, uint32_t n)
{
    int64_t slots[8];
    if (kvp_seq_slots(cache, r->seq, 0, from, n, slots) != KVP_OK)
        return;
    printf("  request %d, positions %u..%u, slots", (int)(r - requests), from, from + n - 1);
    for (uint32_t i = 0; i < n; i++)
        printf(" %lld", (long long)slots[i]);
    printf("\n");
}

/* Open the prompt, compute what is not cached, sample the first output token. */
static kvp_status admit(kvp_cache *cache, kvp_ns ns, request *r)
{
    kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = r->prompt, .n_tokens = r->n_prompt};
    kvp_open_info info;
    kvp_status status = kvp_seq_open(cache, ns, &prompt, &r->seq, &info);
    if (status != KVP_OK)
        return status; /* KVP_E_NO_BLOCKS: try again after a close */
    print_slots(cache, r, info.cached_tokens, r->n_prompt - info.cached_tokens);
    r->n_tokens = r->n_prompt;
    r->last = model(r->prompt[r->n_prompt - 1]);
    return kvp_seq_commit(cache, r->seq, r->n_prompt);
}

/* One token for every running sequence: all get room, or none. */
static kvp_status decode(kvp_cache *cache, request **running, uint32_t n)
{
    kvp_seq seqs[BATCH_MAX];
    int32_t tokens[BATCH_MAX];
    uint32_t n_tokens[BATCH_MAX];
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = running[i]->seq;
        tokens[i] = running[i]->last;
        n_tokens[i] = running[i]->n_tokens + 1;
    }
    kvp_batch batch = {.struct_size = sizeof batch, .n_seqs = n, .seqs = seqs, .tokens = tokens};
    kvp_status status = kvp_seq_extend_many(cache, &batch);
    if (status != KVP_OK)
        return status; /* KVP_E_NO_BLOCKS: close the newest sequence, then repeat */
    for (uint32_t i = 0; i < n; i++) {
        print_slots(cache, running[i], running[i]->n_tokens, 1);
        running[i]->n_tokens++;
        running[i]->last = model(running[i]->last);
    }
    return kvp_seq_commit_many(cache, seqs, n_tokens, n);
}

static uint32_t close_finished(kvp_cache *cache, request **running, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (running[i]->n_tokens < running[i]->n_prompt + OUTPUT_TOKENS)
            running[kept++] = running[i];
        else
            kvp_seq_close(cache, running[i]->seq, NULL);
    }
    return kept;
}

int main(void)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = BLOCK_TOKENS;
    config.n_blocks = 16;
    config.max_seqs = BATCH_MAX;

    kvp_cache *cache;
    kvp_ns ns;
    if (kvp_cache_create(&config, NULL, 0, &cache) != KVP_OK ||
        kvp_ns_open(cache, NULL, 0, &ns) != KVP_OK)
        return 1;

    request *running[BATCH_MAX];
    uint32_t n_running = 0;
    uint32_t n_admitted = 0;
    for (int step = 0; n_running > 0 || n_admitted < N_REQUESTS; step++) {
        printf("step %d\n", step);
        if (decode(cache, running, n_running) != KVP_OK)
            return 1;
        n_running = close_finished(cache, running, n_running);
        while (n_running < BATCH_MAX && n_admitted < N_REQUESTS &&
               admit(cache, ns, &requests[n_admitted]) == KVP_OK)
            running[n_running++] = &requests[n_admitted++];
    }
    kvp_cache_destroy(cache);
    return 0;
}
