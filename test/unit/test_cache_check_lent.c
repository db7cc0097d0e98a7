/* The audit, of what is lent to stores: broken by hand, it is seen and named. See
 * test_cache_check.c. */
#include <stdlib.h>

#include <kvpager/lend.h>

#include "planted.h"
#include "tiers.h"

#include "core/cache/audit.h"
#include "core/cache/state.h"

/* Blocks of two units. Blocks 1 and 2 of the host are being loaded, block 3 is cached and lent. */
struct scene {
    world w;
    kvp_cache *cache;
    struct kvpi_lending *lending;
    struct kvpi_load *load;
};

static kvp_load begin_load(world *w, const int32_t *tokens, uint32_t n_blocks, int32_t *blocks)
{
    const kvp_prompt prompt = prompt_of(tokens, 4 * n_blocks);
    kvp_load load = {.struct_size = sizeof(load), .entries = {0, n_blocks}, .blocks = blocks};
    assert_ok(kvp_load_begin(w->cache, w->ns, &prompt, &load));
    return load;
}

static void make_scene(struct scene *scene)
{
    int32_t blocks[2];
    kvp_config config = tiers_config(4, 2, 4, 7);
    config.max_loads = 2;
    scene->w = make_world(&config);
    scene->cache = scene->w.cache;
    scene->lending = &scene->cache->lending;
    (void)begin_load(&scene->w, ints(0), 2, blocks);
    assert_true(blocks[0] == 1 && blocks[1] == 2);
    const uint64_t other = begin_load(&scene->w, ints(100), 1, blocks).number;
    assert_ok(kvp_load_done(scene->cache, other, (const uint8_t[]){1}, 1, NULL));
    assert_ok(kvp_cache_lend(scene->cache, blocks, 1));
    assert_int_equal(blocks[0], 3);
    scene->load = kvpi_load_at(scene->cache, 0);
    assert_int_equal(scene->load->n_blocks, 2);
}

static struct kvpi_node *node_of(struct scene *s, uint32_t block)
{
    return kvpi_node(&s->cache->prefix, kvpi_lent(s->cache, block)->node);
}

/* ------------------------------------------------------------------------------ what is planted */

PLANTED(l2_no_node, "L2 a block of a load is not its alone", 3)
{
    kvpi_lent(s->cache, 1)->node = KVPI_NO_NODE;
    kvpi_lent(s->cache, 1)->holds = 1;
}

PLANT(l2_held_besides, "L2 a block of a load is not its alone", 3,
      kvpi_lent(s->cache, 1)->holds = 1, kvpi_block(&s->cache->host, 1)->refs++);
PLANT(l2_other_group, "L2 a block of a load is not its alone", 3, s->load->group = 1);
PLANT(l2_fewer_blocks, "L2 a block of a load is not its alone", 3, s->load->n_blocks = 3);
PLANT(l2_more_blocks, "L2 a load has more blocks than it counts", 3, s->load->n_blocks = 1);
PLANT(l2_dead_node, "L2 a node of a load is not marked", 3,
      kvpi_lent(s->cache, 2)->node = s->cache->prefix.n_touched + 1);
PLANT(l2_no_mark, "L2 a node of a load is not marked", 3,
      node_of(s, 2)->flags &= ~(uint32_t)KVPI_NODE_LOADING);

PLANTED(l2_inside_a_block, "L2 a node of a load is not marked", 3)
{
    kvpi_lent(s->cache, 2)->node = node_of(s, 2)->parent;
    node_of(s, 2)->flags |= KVPI_NODE_LOADING;
}

PLANT(l1_loads, "L1 what is lent is miscounted", 3, s->lending->n_loads++);
PLANT(l1_reading, "L1 what is lent is miscounted", 3, s->lending->n_reading++);
PLANT(l1_loading, "L1 what is lent is miscounted", 3, s->lending->n_loading--);
PLANT(l1_marks, "L1 what is lent is miscounted", 3,
      kvpi_node(&s->cache->prefix, node_of(s, 2)->parent)->flags |= KVPI_NODE_LOADING);

PLANTED(l1_of_no_load, "L1 what is lent is miscounted", 3)
{
    kvpi_prefix_unuse(&s->cache->prefix, s->load->node);
    memset(s->load, 0, sizeof(*s->load));
    s->lending->n_loads--;
}

PLANT(l3_beyond_the_limit, "L3 more is lent than may be", 3, s->lending->limit = 2);

/* The same for slots: slot 1 of the host is being loaded. */
static void make_slot_scene(struct scene *scene)
{
    int32_t slot;
    kvp_config config = tiers_config(4, 4, 4, 7);
    config.max_loads = 2;
    config.state_slots = config.host_state_slots = 4;
    scene->w = make_world(&config);
    scene->cache = scene->w.cache;
    scene->lending = &scene->cache->lending;
    const kvp_prompt prompt = prompt_of(ints(0), 4);
    kvp_load load = {.struct_size = sizeof(load), .group = 1, .entries = {0, 1}, .blocks = &slot};
    assert_ok(kvp_load_begin(scene->w.cache, scene->w.ns, &prompt, &load));
    assert_int_equal(slot, 1);
    scene->load = kvpi_load_at(scene->cache, 0);
}

PLANT_IN(make_slot_scene, slot_of_a_sequence, "L2 a block of a load is not its alone", 3,
         kvpi_block(&s->cache->states.host, 1)->refs++,
         kvpi_lent(s->cache, kvpi_lent_slot(s->cache, 1))->holds = 1);
PLANT_IN(make_slot_scene, slot_is_a_block, "L2 a block of a load is not its alone", 3,
         s->load->group = 0,
         kvpi_node(&s->cache->prefix, s->load->node)->flags |= KVPI_NODE_LOADING);
PLANT_IN(make_slot_scene, slot_without_load, "L2 a block of a load is not its alone", 3,
         kvpi_lent(s->cache, kvpi_lent_slot(s->cache, 1))->node = KVPI_NO_NODE,
         kvpi_lent(s->cache, kvpi_lent_slot(s->cache, 1))->holds = 1);
PLANT_IN(make_slot_scene, slots_miscounted, "L1 what is lent is miscounted", 3,
         s->lending->n_slots++);
PLANT_IN(make_slot_scene, slots_beyond_the_limit, "L3 more is lent than may be", 3,
         s->lending->slot_limit = 0);

TEST(test_every_planted_fault_is_named)
{
    struct scene scene;
    assert_planted(&scene);
}

TEST_MAIN(NULL, NULL)
