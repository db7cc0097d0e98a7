/* Two prompts that share a prefix: the second one computes only what is new. */
#include <kvpager/kvpager.h>
#include <stdio.h>

int main(void)
{
    kvp_config config;
    kvp_cache *cache;
    kvp_ns model;
    kvp_config_init(&config); /* 1,024 blocks of 16 tokens */
    if (kvp_cache_create(&config, NULL, 0, &cache) || kvp_ns_open(cache, "llama-8b", 8, &model))
        return 1;
    int32_t tokens[100] = {0}, next_token = 7;
    for (int turn = 0; turn < 2; turn++) {
        tokens[99] = turn; /* the rest of the prompt stays the same */
        kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = 100};
        kvp_open_info info;
        kvp_seq seq;
        if (kvp_seq_open(cache, model, &prompt, &seq, &info))
            return 1;
        printf("%u of %u prompt tokens are cached\n", info.cached_tokens, prompt.n_tokens);
        kvp_seq_commit(cache, seq, 100); /* after the model ran on those that are not */
        if (kvp_seq_extend(cache, seq, &next_token, 1, 0) == KVP_OK)
            kvp_seq_commit(cache, seq, 101); /* after it ran on the sampled token */
        kvp_seq_close(cache, seq, NULL);     /* full blocks stay cached */
    }
    kvp_cache_destroy(cache);
    return 0;
}
