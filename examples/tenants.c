/* What is shared: namespaces separate tenants, extra keys separate from where they begin, and a
 * flush forgets. The example opens the same eight tokens again and again. */
#include <kvpager/cache.h>
#include <stdio.h>

enum { N_TOKENS = 8, ADAPTER = 1 };

static const int32_t tokens[N_TOKENS] = {1, 2, 3, 4, 5, 6, 7, 8};

/* Run a request from beginning to end, and print how much of it was cached. */
static void serve(kvp_cache *cache, kvp_ns ns, const char *what, const kvp_key *key)
{
    kvp_prompt prompt = {.struct_size = sizeof prompt,
                         .tokens = tokens,
                         .n_tokens = N_TOKENS,
                         .keys = key,
                         .n_keys = key ? 1 : 0};
    kvp_open_info info;
    kvp_seq seq;
    kvp_status status = kvp_seq_open(cache, ns, &prompt, &seq, &info);
    if (status != KVP_OK) {
        printf("%-34s %s\n", what, kvp_status_name(status));
        return;
    }
    printf("%-34s %u of %d tokens cached\n", what, info.hit_tokens, N_TOKENS);
    kvp_seq_commit(cache, seq, N_TOKENS);
    kvp_seq_close(cache, seq, NULL);
}

int main(void)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = 4;
    config.n_blocks = 64;
    config.max_unit_keys = 1;

    kvp_cache *cache;
    kvp_ns acme;
    kvp_ns umbrella;
    if (kvp_cache_create(&config, NULL, 0, &cache) != KVP_OK ||
        kvp_ns_open(cache, "acme", 4, &acme) != KVP_OK ||
        kvp_ns_open(cache, "umbrella", 8, &umbrella) != KVP_OK)
        return 1;

    serve(cache, acme, "acme", NULL);
    serve(cache, acme, "acme again", NULL);
    serve(cache, umbrella, "umbrella", NULL);

    /* An adapter that applies from position 4 on: the first unit is still shared. */
    kvp_key adapter = {ADAPTER, 4, N_TOKENS, 7, "legal-2"};
    serve(cache, acme, "acme, adapter from token 4", &adapter);
    serve(cache, acme, "acme, adapter again", &adapter);

    /* New weights: nothing computed with the old ones may be hit. */
    if (kvp_ns_flush(cache, acme) != KVP_OK)
        return 1;
    serve(cache, acme, "acme after the flush", NULL);
    serve(cache, umbrella, "umbrella is untouched", NULL);

    if (kvp_ns_close(cache, umbrella) != KVP_OK)
        return 1;
    serve(cache, umbrella, "umbrella after its close", NULL);
    kvp_cache_destroy(cache);
    return 0;
}
