/* Speculative decoding with a token tree: a draft proposes, the target model accepts one path.
 *
 *   tokens    1 2 3 4 5 6 |      7
 *                         |     / \
 *                         |    8   9
 *                         |    |
 *                         |    5
 *
 * Every node has a slot behind the sequence's tokens. The tokens of the accepted path become tokens
 * of the sequence. The slot moves bring their KV to the slots of these tokens.
 */
#include <kvpager/trees.h>
#include <stdio.h>

enum { S = 4, NODES = 4 };

static int print_tokens(kvp_cache *cache, kvp_seq seq)
{
    kvp_seq_info info;
    int32_t tokens[32];
    if (kvp_seq_info_get(cache, seq, &info) != KVP_OK ||
        kvp_seq_tokens(cache, seq, 0, info.n_tokens, tokens) != KVP_OK)
        return 0;
    printf("  tokens");
    for (uint32_t i = 0; i < info.n_tokens; i++)
        printf(" %d", tokens[i]);
    printf(", %u in the tree, %u computed, %u public\n", info.tree_tokens, info.computed_tokens,
           info.public_tokens);
    return 1;
}

int main(void)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = S;
    config.n_blocks = 16;
    config.max_tree_tokens = 16;

    static const int32_t tokens[] = {1, 2, 3, 4, 5, 6};
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = 6};
    kvp_cache *cache;
    kvp_ns ns;
    kvp_seq seq;
    if (kvp_cache_create(&config, NULL, 0, &cache) != KVP_OK ||
        kvp_ns_open(cache, NULL, 0, &ns) != KVP_OK ||
        kvp_seq_open(cache, ns, &prompt, &seq, NULL) != KVP_OK ||
        kvp_seq_commit(cache, seq, 6) != KVP_OK)
        return 1;

    static const int32_t nodes[NODES] = {7, 9, 8, 5};
    static const int32_t parents[NODES] = {-1, 0, 0, 2};
    const uint32_t n_nodes = NODES;
    kvp_batch batch = {.struct_size = sizeof batch,
                       .n_seqs = 1,
                       .seqs = &seq,
                       .n_tokens = &n_nodes,
                       .tokens = nodes};
    int64_t slots[NODES];
    if (kvp_seq_extend_tree(cache, &batch, parents) != KVP_OK ||
        kvp_seq_slots(cache, seq, 0, 6, NODES, slots) != KVP_OK)
        return 1;
    printf("a tree of four nodes\n");
    for (int j = 0; j < NODES; j++)
        printf("  node %d: token %d, parent %d, slot %d\n", j, nodes[j], parents[j], (int)slots[j]);
    if (!print_tokens(cache, seq))
        return 1;

    /* ... the target model runs all four at once, and says 7, 8 ... */
    const int32_t leaf = 2;
    kvp_slot_move moves[NODES];
    kvp_accept accept = {.struct_size = sizeof accept,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .leaves = &leaf,
                         .moves = moves,
                         .max_moves = NODES};
    if (kvp_seq_accept(cache, &accept) != KVP_OK)
        return 1;
    printf("accepted up to node %d\n", leaf);
    for (uint32_t i = 0; i < accept.n_moves; i++)
        printf("  move slot %d to slot %d\n", (int)moves[i].src, (int)moves[i].dst);
    if (!print_tokens(cache, seq))
        return 1;
    kvp_cache_destroy(cache);
    return 0;
}
