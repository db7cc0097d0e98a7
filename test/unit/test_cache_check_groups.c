/* The audit, of what layer groups, windows and trees add: broken by hand, it is seen and named. See
 * test_cache_check.c. */
#include <stdlib.h>

#include "groups.h"
#include "planted.h"

#include "core/cache/audit.h"
#include "core/cache/state.h"

/* Blocks of 4. A sequence of 12 tokens and a tree of 2 nodes, in two groups: one keeps everything,
 * the other the last 4 tokens, and has dropped its first blocks. */
struct scene {
    world w;
    kvp_cache *cache;
    struct kvpi_seq *seq;
    uint32_t place;
    int32_t *rows[2];
};

static void make_scene(struct scene *scene)
{
    static const int32_t parents[] = {-1, 0};
    const kvp_window groups[] = {{0, 0}, {0, 4}};
    kvp_config config = groups_config(4, 16, groups, 2);
    config.max_tree_tokens = 2;
    scene->w = make_world(&config);
    const kvp_seq seq = open_done(&scene->w, ints(0), 12);
    add_tree(&scene->w, seq, ints(50), parents, 2);
    scene->cache = scene->w.cache;
    scene->seq = kvpi_find_seq(scene->cache, seq);
    scene->place = kvpi_seq_place(&scene->cache->table, scene->seq);
    for (uint32_t g = 0; g < 2; g++)
        scene->rows[g] = kvpi_row(scene->cache, scene->seq, g);
    assert_int_equal(kvpi_row_entries(scene->cache, scene->seq, 1), 4);
    assert_int_equal(scene->rows[1][0], KVP_NULL_BLOCK);
}

/* ------------------------------------------------------------------------------ what is planted */

PLANT(m2_tree_too_large, "M2 a tree has no slots", 3, s->seq->n_tree = 3);
PLANT(m2_tree_without_slots, "M2 a tree has no slots", 3, s->seq->writable = 13);
PLANT(m2_other_group, "M2 a row's block is of another group", 3, s->rows[0][3] = s->rows[1][3]);
PLANT(t2_dropped_and_there, "T2 a dropped entry is not null", 3, s->rows[1][0] = s->rows[1][3]);

PLANTED(t2_more_dropped_than_there_is, "T2 more is dropped than there is", 3)
{
    const uint32_t n = kvpi_row_entries(s->cache, s->seq, 1);
    for (uint32_t i = 0; i < n; i++)
        s->rows[1][i] = KVP_NULL_BLOCK;
    kvpi_windows(&s->cache->table, s->place)[1].dropped = n + 1;
}

PLANTED(n3_block_of_another_group, "N3 a node's block is of another group", 3)
{
    const uint32_t node = kvpi_row_nodes(&s->cache->table, s->place)[2];
    kvpi_node_at(&s->cache->prefix, node, KVPI_WHERE(KVP_DEVICE, 1))->block =
        (uint32_t)s->rows[0][2];
}

TEST(test_every_planted_fault_is_named)
{
    struct scene scene;
    assert_planted(&scene);
}

TEST_MAIN(NULL, NULL)
