/* Beam search swapped out to host memory and back: four beams move together and keep sharing.
 *
 * The engine only has to run the plan: copies between device and host, in order of phase. Full
 * blocks that are still on the device are not copied on the way back.
 */
#include <kvpager/swap.h>
#include <stdio.h>

enum { BEAMS = 4, S = 4 };

static void print_rows(kvp_cache *cache, const kvp_seq *beams)
{
    for (int i = 0; i < BEAMS; i++) {
        kvp_seq_info info;
        const int32_t *row;
        uint32_t n_blocks;
        if (kvp_seq_info_get(cache, beams[i], &info) != KVP_OK ||
            kvp_seq_row(cache, beams[i], 0, &row, &n_blocks) != KVP_OK)
            return;
        printf("  beam %d on the %s:", i, info.tier == KVP_HOST ? "host" : "device");
        for (uint32_t k = 0; k < n_blocks; k++)
            printf(" %d", row[k]);
        printf("\n");
    }
}

static void print_plan(kvp_cache *cache)
{
    static const char *const tiers[] = {"device", "host"};
    kvp_copy copies[16];
    uint32_t n_copies;
    if (kvp_plan_take(cache, copies, 16, &n_copies) != KVP_OK)
        return;
    if (n_copies == 0)
        printf("  plan: nothing to copy\n");
    for (uint32_t i = 0; i < n_copies; i++)
        printf("  plan: phase %u, %u slots of %s block %d to %s block %d\n", copies[i].phase,
               copies[i].n_tokens, tiers[copies[i].src_tier], copies[i].src_block,
               tiers[copies[i].dst_tier], copies[i].dst_block);
}

/* Compute a prompt of ten tokens once, and fork every beam from it. */
static int open_beams(kvp_cache *cache, kvp_seq *beams)
{
    static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = 10};
    kvp_ns ns;
    if (kvp_ns_open(cache, NULL, 0, &ns) != KVP_OK ||
        kvp_seq_open(cache, ns, &prompt, &beams[0], NULL) != KVP_OK ||
        kvp_seq_commit(cache, beams[0], 10) != KVP_OK)
        return 0;
    for (int i = 1; i < BEAMS; i++)
        if (kvp_seq_fork(cache, beams[0], KVP_END, 0, &beams[i]) != KVP_OK)
            return 0;
    return 1;
}

static int swap_out(kvp_cache *cache, const kvp_seq *beams)
{
    kvp_swapped swapped;
    if (kvp_seq_swap_out(cache, beams, BEAMS, &swapped) != KVP_OK)
        return 0;
    printf("  %u blocks copied, %u there already; the device has %u more free and %u more cached\n",
           swapped.copied_blocks, swapped.found_blocks, swapped.released.freed_blocks,
           swapped.released.cached_blocks);
    print_rows(cache, beams);
    print_plan(cache);
    return 1;
}

/* With room for one more token each, three of the four copy the block that they share. */
static int swap_in(kvp_cache *cache, const kvp_seq *beams)
{
    kvp_admission admission;
    kvp_swapped swapped;
    if (kvp_cache_can_swap_in(cache, beams, BEAMS, 1, &admission) != KVP_OK ||
        kvp_seq_swap_in(cache, beams, BEAMS, 1, &swapped) != KVP_OK)
        return 0;
    printf("  needs %u of %u available blocks: %u copied from the host, %u there already\n",
           admission.need_blocks, admission.available, swapped.copied_blocks, swapped.found_blocks);
    print_rows(cache, beams);
    print_plan(cache);
    return 1;
}

int main(void)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = S;
    config.n_blocks = 16;
    config.host_blocks = 8;

    kvp_cache *cache;
    kvp_seq beams[BEAMS];
    if (kvp_cache_create(&config, NULL, 0, &cache) != KVP_OK || !open_beams(cache, beams))
        return 1;
    printf("four beams of ten tokens\n");
    print_rows(cache, beams);

    printf("swapped out, all or none\n");
    if (!swap_out(cache, beams))
        return 1;

    printf("swapped in, with room for one more token each\n");
    if (!swap_in(cache, beams))
        return 1;

    const int32_t next[BEAMS] = {11, 12, 13, 14};
    kvp_batch batch = {.struct_size = sizeof batch, .n_seqs = BEAMS, .seqs = beams, .tokens = next};
    if (kvp_seq_extend_many(cache, &batch) != KVP_OK)
        return 1;
    printf("each has its next token\n");
    print_rows(cache, beams);
    print_plan(cache);
    kvp_cache_destroy(cache);
    return 0;
}
