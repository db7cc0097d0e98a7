/* Parallel sampling: fork a prompt, let both sequences continue differently, copy on write.
 *
 * A fork takes no block. The half-filled last block is shared until one sequence writes into it.
 * That sequence then gets its own block, and the plan says what to copy into it before the forward
 * pass.
 */
#include <kvpager/cache.h>
#include <stdio.h>

static void print_row(kvp_cache *cache, const char *name, kvp_seq seq)
{
    const int32_t *row;
    uint32_t n_blocks;
    if (kvp_seq_row(cache, seq, 0, &row, &n_blocks) != KVP_OK)
        return;
    printf("%-7s blocks", name);
    for (uint32_t i = 0; i < n_blocks; i++)
        printf(" %d", row[i]);
    printf("\n");
}

/* An engine runs these copies, in order of phase, before the forward pass that follows. */
static void print_plan(kvp_cache *cache)
{
    kvp_copy copies[8];
    uint32_t n_copies;
    if (kvp_plan_take(cache, copies, 8, &n_copies) != KVP_OK)
        return;
    if (n_copies == 0)
        printf("plan    nothing to copy\n");
    for (uint32_t i = 0; i < n_copies; i++)
        printf("plan    phase %u: %u slots of block %d to block %d\n", copies[i].phase,
               copies[i].n_tokens, copies[i].src_block, copies[i].dst_block);
}

static int append(kvp_cache *cache, kvp_seq seq, int32_t token)
{
    kvp_seq_info info;
    return kvp_seq_extend(cache, seq, &token, 1, 0) == KVP_OK &&
           kvp_seq_info_get(cache, seq, &info) == KVP_OK &&
           kvp_seq_commit(cache, seq, info.n_tokens) == KVP_OK;
}

int main(void)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = 4;
    config.n_blocks = 16;

    const int32_t tokens[] = {1, 2, 3, 4, 5, 6};
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = 6};
    kvp_cache *cache;
    kvp_ns ns;
    kvp_seq parent;
    kvp_seq child;
    if (kvp_cache_create(&config, NULL, 0, &cache) != KVP_OK ||
        kvp_ns_open(cache, NULL, 0, &ns) != KVP_OK ||
        kvp_seq_open(cache, ns, &prompt, &parent, NULL) != KVP_OK ||
        kvp_seq_commit(cache, parent, 6) != KVP_OK ||
        kvp_seq_fork(cache, parent, KVP_END, 0, &child) != KVP_OK)
        return 1;
    printf("forked\n");
    print_row(cache, "parent", parent);
    print_row(cache, "child", child);

    printf("the child writes token 7: the shared last block is copied first\n");
    if (!append(cache, child, 7))
        return 1;
    print_row(cache, "parent", parent);
    print_row(cache, "child", child);
    print_plan(cache);

    printf("the parent writes token 8: its last block is its own now\n");
    if (!append(cache, parent, 8))
        return 1;
    print_row(cache, "parent", parent);
    print_plan(cache);

    kvp_released released;
    if (kvp_seq_close(cache, parent, &released) != KVP_OK)
        return 1;
    printf("closed the parent: %u freed, %u cached\n", released.freed_blocks,
           released.cached_blocks);
    if (kvp_seq_close(cache, child, &released) != KVP_OK)
        return 1;
    printf("closed the child: %u freed, %u cached\n", released.freed_blocks,
           released.cached_blocks);
    kvp_cache_destroy(cache);
    return 0;
}
