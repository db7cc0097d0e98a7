/* The audit, of what no prompt can hit (K1 to K3): broken by hand, it is seen and named. See
 * test_cache_check.c. */
#include <kvpager/drop.h>
#include <stdlib.h>

#include "planted.h"
#include "tiers.h"

#include "core/cache/audit.h"
#include "core/cache/state.h"

/* Four blocks of a prompt were on the host, and one with another end; a third prompt has nothing in
 * common with them. The second block is lost. */
struct scene {
    world w;
    struct kvpi_prefix *prefix;
    struct kvpi_kin *kin;
    uint32_t first, second, third, other; /* nodes; `other` follows the first, too */
};

static uint32_t node_of_host(const struct scene *s, int32_t block)
{
    return kvpi_block(&s->w.cache->host, (uint32_t)block)->content;
}

static void make_scene(struct scene *s)
{
    static const int32_t other[] = {0, 1, 2, 3, 90, 91, 92, 93};
    const int32_t lost = 3;
    s->w = tiers_world(5, 9);
    leave_cached(&s->w, ints(0), 16);
    wipe_device(&s->w);
    leave_cached(&s->w, other, 8);
    leave_cached(&s->w, ints(200), 4);
    drop_plan(&s->w);
    s->prefix = &s->w.cache->prefix;
    s->kin = kvpi_at(s->prefix, s->prefix->kin_at);
    s->first = node_of_host(s, 4);
    s->second = node_of_host(s, 3);
    s->third = node_of_host(s, 2);
    s->other = s->kin[s->first].child;
    assert_int_not_equal(s->other, s->second);
    assert_ok(kvp_cache_drop(s->w.cache, KVP_HOST, &lost, 1, NULL));
    assert_int_equal(stats_of(&s->w).host_unreachable, 2);
}

PLANT(k1_lost_and_not_marked, "K1", 3,
      kvpi_node(s->prefix, s->third)->flags &= ~(uint32_t)KVPI_NODE_LOST);
PLANT(k1_without_a_block_and_not_marked, "K1", 3,
      kvpi_node(s->prefix, s->second)->flags &= ~(uint32_t)KVPI_NODE_LOST);
PLANT(k1_marked_and_not_lost, "K1", 3, kvpi_node(s->prefix, s->first)->flags |= KVPI_NODE_LOST);
PLANT(k1_not_counted, "K1", 3,
      kvpi_node(s->prefix, s->third)->flags &= ~(uint32_t)KVPI_NODE_COUNTED);
PLANT(k1_a_root, "K1", 3,
      kvpi_node(s->prefix, kvpi_node(s->prefix, s->first)->root)->flags |= KVPI_NODE_LOST);
PLANT(k2_one_less, "K2", 3, s->prefix->n_lost--);
PLANT(k3_no_child, "K3", 3, s->kin[s->first].child = s->second);
PLANT(k3_no_neighbour, "K3", 3, s->kin[s->other].next = 0);

/* Two parents have two children each: the older ones change places. */
PLANTED(k3_a_neighbour_of_another_parent, "K3", 3)
{
    const uint32_t apart = s->kin[kvpi_node(s->prefix, s->first)->root].child;
    assert_int_equal(s->kin[apart].next, s->first);
    assert_int_equal(s->kin[s->other].next, s->second);
    s->kin[apart].next = s->second;
    s->kin[s->second].before = apart;
    s->kin[s->other].next = s->first;
    s->kin[s->first].before = s->other;
}

PLANT(k3_not_its_neighbours_neighbour, "K3", 3, s->kin[s->second].before = 0);
PLANT(k3_no_such_node, "K3", 3, s->kin[s->other].next = s->prefix->n_touched + 1);
PLANT(k3_no_such_node_before, "K3", 3, s->kin[s->second].before = UINT32_MAX);

TEST(test_every_planted_fault_is_named)
{
    struct scene scene;
    assert_planted(&scene);
}

TEST_MAIN(NULL, NULL)
