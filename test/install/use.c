/* An embedder's first program, built against the installed tree: a cache, a namespace, a sequence.
 * Prints the version of the library; the caller compares it. */
#include <kvpager/all.h>
#include <stdio.h>

/* Opens the sequence 1..10, which takes three blocks of four tokens. */
static kvp_status open_sequence(kvp_cache *cache)
{
    static const int32_t tokens[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    kvp_ns ns;
    kvp_status status = kvp_ns_open(cache, "embedder", 8, &ns);
    if (status != KVP_OK)
        return status;

    const kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = 10};
    kvp_seq seq;
    kvp_open_info info;
    status = kvp_seq_open(cache, ns, &prompt, &seq, &info);
    if (status != KVP_OK)
        return status;
    if (info.taken_blocks != 3 || info.hit_tokens != 0)
        return KVP_E_MISMATCH;
    return kvp_seq_close(cache, seq, NULL);
}

int main(void)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = 4;
    config.n_blocks = 16;
    kvp_cache *cache;
    kvp_status status = kvp_cache_create(&config, NULL, 0, &cache);
    if (status == KVP_OK) {
        status = open_sequence(cache);
        kvp_cache_destroy(cache);
    }
    if (status != KVP_OK) {
        fprintf(stderr, "%s: %s\n", kvp_status_name(status), kvp_status_text(status));
        return 1;
    }
    printf("kvpager %s\n", kvp_version());
    return 0;
}
