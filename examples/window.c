/* Two layer groups: layers with full attention, and layers that keep one sink block and a window.
 *
 * A sequence has a row for each group, and both rows take blocks from one pool. A block that falls
 * out of the window becomes null in that group's row only, and can be taken again. A second prompt
 * is hit as far as each group has what it keeps: every block for full attention, only the sinks and
 * the last tokens for the window.
 */
#include <kvpager/windows.h>
#include <stdio.h>

enum { S = 4, SINKS = 4, RECENT = 6, PROMPT = 20 };

static void print_rows(kvp_cache *cache, kvp_seq seq)
{
    static const char *const names[] = {"full  ", "window"};
    for (uint32_t g = 0; g < 2; g++) {
        const int32_t *row;
        uint32_t n_blocks;
        if (kvp_seq_row(cache, seq, g, &row, &n_blocks) != KVP_OK)
            return;
        printf("  %s", names[g]);
        for (uint32_t i = 0; i < n_blocks; i++)
            printf(" %2d", row[i]);
        printf("\n");
    }
}

static int decode(kvp_cache *cache, kvp_seq seq, int n_steps)
{
    for (int i = 0; i < n_steps; i++) {
        const int32_t token = 100 + i;
        kvp_seq_info info;
        if (kvp_seq_extend(cache, seq, &token, 1, 0) != KVP_OK ||
            kvp_seq_info_get(cache, seq, &info) != KVP_OK ||
            kvp_seq_commit(cache, seq, info.n_tokens) != KVP_OK)
            return 0;
    }
    return 1;
}

int main(void)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = S;
    config.n_blocks = 24;
    config.n_groups = 2;
    config.groups[1] = (kvp_group){.sink_tokens = SINKS, .recent_tokens = RECENT};

    int32_t tokens[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        tokens[i] = i;
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = PROMPT};

    kvp_cache *cache;
    kvp_ns ns;
    kvp_seq seq;
    kvp_open_info info;
    if (kvp_cache_create(&config, NULL, 0, &cache) != KVP_OK ||
        kvp_ns_open(cache, "hybrid", 6, &ns) != KVP_OK ||
        kvp_seq_open(cache, ns, &prompt, &seq, &info) != KVP_OK)
        return 1;
    printf("a prompt of %d tokens, being computed: %u blocks taken\n", PROMPT, info.taken_blocks);
    print_rows(cache, seq);
    if (kvp_seq_commit(cache, seq, PROMPT) != KVP_OK)
        return 1;
    printf("computed: the window keeps its sinks and what the next query sees\n");
    print_rows(cache, seq);
    if (!decode(cache, seq, 9))
        return 1;
    printf("nine tokens later\n");
    print_rows(cache, seq);

    kvp_seq child;
    if (kvp_seq_fork(cache, seq, 12, 0, &child) == KVP_E_DROPPED)
        printf("a fork at 12 is refused: %s\n", kvp_status_text(KVP_E_DROPPED));

    kvp_seq second;
    tokens[18] = 77; /* parts from the first prompt in its last block */
    if (kvp_seq_open(cache, ns, &prompt, &second, &info) != KVP_OK)
        return 1;
    printf("a prompt that begins alike: %u tokens cached, %u blocks shared\n", info.cached_tokens,
           info.shared_blocks);
    print_rows(cache, second);
    kvp_cache_destroy(cache);
    return 0;
}
