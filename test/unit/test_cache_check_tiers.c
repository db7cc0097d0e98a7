/* The audit, of what tiers and steps add: broken by hand, it is seen and named. See
 * test_cache_check.c. */
#include <stdlib.h>
#include <string.h>

#include "planted.h"
#include "tiers.h"

#include "core/cache/audit.h"
#include "core/cache/state.h"
#include "core/snapshot/ranges.h"

/* Steps overlap, and one is out with two copies. Of the device: 1 2 are parked, 3 is held. Of the
 * host: 1 2 are held by a swapped sequence, their units awaited, 3 is cached, 4 to 6 are free. */
struct scene {
    world w;
    kvp_cache *cache;
    struct kvpi_seq *swapped;
    int32_t *row;
};

static void make_scene(struct scene *scene)
{
    scene->w = steps_world(6, 6);
    world *w = &scene->w;
    const kvp_seq kept = open_done(w, ints(100), 4);
    swap_out(w, &kept, 1);
    pass_step(w);
    close_seq(w, kept); /* host 1 */
    const kvp_seq seq = open_done(w, ints(0), 8);
    assert_ok(kvp_seq_retain(w->cache, seq, (kvp_range){0, 8}, 1));
    (void)open_done(w, ints(200), 4);
    swap_out(w, &seq, 1);
    close_seq(w, seq);
    const kvp_seq again = open_done(w, ints(300), 8);
    (void)begin_step(w);
    swap_out(w, &again, 1);
    (void)begin_step(w);
    scene->cache = w->cache;
    scene->swapped = kvpi_find_seq(w->cache, again);
    scene->row =
        kvpi_row_blocks(&w->cache->table, kvpi_seq_place(&w->cache->table, scene->swapped));
    assert_int_equal(scene->cache->plan.n_out, 2);
    assert_int_equal(scene->cache->pool.n_parked, 2);
    assert_int_equal(scene->cache->host.n_held, 2);
}

/* A block of the device that is parked: the first of its list. */
static uint32_t parked(const struct scene *s)
{
    const struct kvpi_pool *pool = &s->cache->pool;
    uint32_t block = 1;
    while (!(kvpi_block(pool, block)->refs & KVPI_REFS_PARKED))
        block++;
    return block;
}

static struct kvpi_block *host_block_at(const struct scene *s, uint32_t i)
{
    return kvpi_block(&s->cache->host, (uint32_t)s->row[i]);
}

static struct kvpi_copy *first_copy(const struct scene *s)
{
    return kvpi_plan_copies(&s->cache->plan);
}

/* ------------------------------------------------------------------------------ what is planted */

/* Of an arena from elsewhere that is looked at first: a tier is the device, or the host without
 * slots to write. */
TEST(test_tiers_that_are_none)
{
    static const struct {
        uint16_t tier;
        uint32_t exclusive;
        int is_right;
    } seqs[] = {{KVP_HOST, 0, 1}, {KVP_HOST, 1, 0}, {KVP_HOST + 1, 0, 0}};
    struct scene s;
    kvp_violation violation;
    make_scene(&s);
    for (size_t i = 0; i < sizeof(seqs) / sizeof(*seqs); i++) {
        s.swapped->tier = seqs[i].tier;
        s.swapped->exclusive = seqs[i].exclusive;
        assert_int_equal(kvpi_in_range(s.cache, &violation), seqs[i].is_right);
        assert_true(seqs[i].is_right || strcmp(violation.invariant, "T3") == 0);
    }
    s.swapped->tier = KVP_HOST;
    s.swapped->exclusive = 0;
    end_world(&s.w);
}

PLANT(b2_host_sum, "B2", 1, s->cache->host.n_free--);
PLANT(b2_parked_sum, "B2", 1, s->cache->pool.n_parked--);
PLANT(b2_steps, "B2", 1, s->cache->steps.begun += s->cache->steps.max);
PLANT(b2_plan, "B2", 1, s->cache->plan.n_out = s->cache->plan.capacity + UINT64_C(1));
PLANT(b2_parked_count, "B2", 2, s->cache->pool.n_parked--, s->cache->pool.n_free++);
PLANT(b3_host_queue, "B3", 2,
      kvpi_block(&s->cache->host, kvpi_pool_victim(&s->cache->host))->prev = (uint32_t)s->row[0]);
PLANT(b1_host_mark, "B1", 2, host_block_at(s, 0)->refs |= KVPI_REFS_MARKED);
PLANT(b1_parked_in_a_queue, "B1", 2,
      kvpi_block(&s->cache->pool, kvpi_pool_victim(&s->cache->pool))->refs |= KVPI_REFS_PARKED);
PLANT(x1_parked_links, "X1", 2, kvpi_block(&s->cache->pool, parked(s))->prev = 0);

static struct kvpi_block *parked_list(const struct scene *s)
{
    return kvpi_block(&s->cache->pool, kvpi_block(&s->cache->pool, parked(s))->prev);
}

PLANT(x1_null_block_in_a_parked_list, "X1", 2, parked_list(s)->next = 0);
PLANT(x1_parked_list_into_a_queue, "X1", 2, parked_list(s)->next = s->cache->pool.n_blocks);
PLANT(x1_not_parked, "X1", 2, kvpi_block(&s->cache->pool, parked(s))->refs &= ~KVPI_REFS_PARKED);
PLANT(x1_held_in_a_parked_list, "X1", 2, kvpi_block(&s->cache->pool, parked(s))->refs++);
PLANT(t1_host_refs, "T1", 3, host_block_at(s, 1)->refs++);
PLANT(t1_kept_by_no_copy, "T1", 3, first_copy(s)->keeps = 1);
PLANT(m2_host_entry, "M2", 3, s->row[1] = (int32_t)kvpi_pool_victim(&s->cache->host));
PLANT(m2_host_row_too_long, "M2", 3, s->swapped->computed = s->swapped->writable = 4);

PLANTED(n4_awaited_users, "N4", 3)
{
    struct kvpi_dup *dups = kvpi_prefix_dups(&s->cache->prefix);
    const uint32_t slot = kvpi_prefix_slot(&s->cache->prefix, KVP_HOST, (uint32_t)s->row[0], 0);
    assert_int_equal(dups[slot].next, KVPI_AWAITED);
    dups[slot] = (struct kvpi_dup){0, 0, 0};
}

PLANT(x1_awaited_in_order, "X1", 3, s->cache->config.steps = KVP_STEPS_ORDERED);

static struct kvpi_dup *awaited(const struct scene *s)
{
    const struct kvpi_prefix *prefix = &s->cache->prefix;
    return kvpi_prefix_dups(prefix) + kvpi_prefix_slot(prefix, KVP_HOST, (uint32_t)s->row[0], 0);
}

PLANT(x3_of_a_step_in_effect, "X3", 3, awaited(s)->prev = (uint32_t)s->cache->steps.effective);
PLANT(x3_of_no_step_yet, "X3", 3, awaited(s)->prev = (uint32_t)s->cache->steps.begun + 2);

PLANTED(n3_free_block_awaits, "N3", 3)
{
    struct kvpi_dup *dups = kvpi_prefix_dups(&s->cache->prefix);
    const uint32_t from = kvpi_prefix_slot(&s->cache->prefix, KVP_HOST, (uint32_t)s->row[0], 0);
    const uint32_t to =
        kvpi_prefix_slot(&s->cache->prefix, KVP_HOST, kvpi_pool_victim(&s->cache->host), 0);
    dups[to] = dups[from];
    dups[from] = (struct kvpi_dup){0, 0, 0};
}

PLANTED(n3_host_content, "N3", 3)
{
    host_block_at(s, 0)->content = s->cache->pool.n_blocks; /* some node */
}

PLANT(x2_out, "X2", 3, s->cache->plan.n_out--, s->cache->plan.n++);
PLANT(x2_beyond_the_host, "X2", 3, first_copy(s)->dst = s->cache->host.n_blocks);
PLANT(x2_null_source, "X2", 3, first_copy(s)->src = 0);

PLANTED(x2_onto_itself, "X2", 3)
{
    first_copy(s)->src = first_copy(s)->dst;
    first_copy(s)->src_tier = first_copy(s)->dst_tier;
}

TEST(test_every_planted_fault_is_named)
{
    struct scene scene;
    assert_planted(&scene);
}

/* The cache adds the counts up first; a pool by itself knows how many are parked. */
TEST(test_a_pool_counts_what_is_parked)
{
    struct scene scene;
    uint64_t block;
    const char *detail;
    make_scene(&scene);
    scene.cache->pool.n_parked--;
    assert_false(kvpi_pool_check(&scene.cache->pool, &block, &detail));
    assert_string_equal(detail, "B2 the counts are not those of the queues");
    scene.cache->pool.n_parked++;
    assert_true(kvpi_pool_check(&scene.cache->pool, &block, &detail));
    end_world(&scene.w);
}

TEST(test_the_audit_changes_nothing)
{
    struct scene scene;
    make_scene(&scene);
    char *before = malloc(scene.w.arena_bytes);
    assert_non_null(before);
    memcpy(before, scene.w.arena, scene.w.arena_bytes);
    assert_true(kvpi_audit(scene.cache, 3, NULL));
    assert_memory_equal(scene.w.arena, before, scene.w.arena_bytes);
    free(before);
    end_world(&scene.w);
}

TEST_MAIN(NULL, NULL)
