/* The audit: each invariant of the design, broken by hand, is seen and named. At check levels 2 and
 * 3 the library stops at a broken cache, so the audit is called from below the public function. */
#include <stdlib.h>
#include <string.h>

#include "planted.h"

#include "core/cache/audit.h"
#include "core/cache/state.h"

/* Units of 2 in blocks of 4. Row of `seq`: blocks 1 2 3, units 0 to 3 sealed, 4 not. A child shares
 * 1 and 2, block 4 is cached, another's own block duplicates unit 0, and two copies wait. */
struct scene {
    world w;
    kvp_cache *cache;
    struct kvpi_seq *seq;
    uint32_t *nodes;
    int32_t *row;
};

static void make_scene(struct scene *scene)
{
    const kvp_config config = config_of(4, 2, 15);
    scene->w = make_world(&config);
    world *w = &scene->w;
    const kvp_seq seq = open_seq(w, ints(0), 10, NULL);
    assert_ok(kvp_seq_commit(w->cache, seq, 8));
    (void)fork_seq(w, seq, 8);
    leave_cached(w, ints(100), 4);
    (void)open_seq(w, ints(0), 3, NULL); /* hit inside a block: a copy of unit 0 */
    const kvp_seq writer = fork_seq(w, seq, 7);
    assert_ok(kvp_seq_extend(w->cache, writer, ints(60), 1, 0));
    scene->cache = w->cache;
    scene->seq = kvpi_find_seq(w->cache, seq);
    scene->nodes = kvpi_row_nodes(&w->cache->table, 0);
    scene->row = kvpi_row_blocks(&w->cache->table, 0);
    assert_int_equal(w->cache->plan.n, 2);
}

static struct kvpi_node *node(struct scene *s, uint32_t u)
{
    return kvpi_node(&s->cache->prefix, s->nodes[u]);
}

static struct kvpi_block *block(struct scene *s, uint32_t i)
{
    return kvpi_block(&s->cache->pool, (uint32_t)s->row[i]);
}

static struct kvpi_dup *first_dup(struct scene *s)
{
    return kvpi_prefix_dups(&s->cache->prefix) + node(s, 0)->at[KVP_DEVICE].dups;
}

static struct kvpi_copy *first_copy(struct scene *s)
{
    return kvpi_at(&s->cache->plan, s->cache->plan.copies_at);
}

/* ------------------------------------------------------------------------------ what is planted */

static void b2_sum(struct scene *s)
{
    s->cache->pool.n_parked = 1;
}

static void b2_nodes_used(struct scene *s)
{
    s->cache->prefix.n_used = (uint64_t)s->cache->prefix.n_nodes + 1;
}

static void b2_plan(struct scene *s)
{
    s->cache->plan.n = (uint64_t)s->cache->plan.capacity + 1;
}

static void b2_seqs(struct scene *s)
{
    s->cache->table.n_open++;
}

static void b2_more_seqs_than_places(struct scene *s)
{
    s->cache->table.n_open = s->cache->table.max_seqs + 1;
}

static void b3_queue(struct scene *s)
{
    kvpi_block(&s->cache->pool, 4)->prev = 1;
}

static void m2_known(struct scene *s)
{
    s->seq->known = s->seq->tokens + 1;
}

static void m2_computed(struct scene *s)
{
    s->seq->computed = s->seq->tokens + 1;
}

static void m2_prompt(struct scene *s)
{
    s->seq->prompt = s->seq->tokens + 1;
}

static void m2_cached(struct scene *s)
{
    s->seq->cached = s->seq->tokens + 1;
}

static void m2_writable(struct scene *s)
{
    s->seq->writable = 13;
}

static void m2_exclusive(struct scene *s)
{
    s->seq->exclusive = 13;
}

static void m2_tokens(struct scene *s)
{
    s->seq->tokens = 13;
}

static void m2_row_too_short(struct scene *s)
{
    s->seq->room -= 4;
}

static void m2_last(struct scene *s)
{
    s->seq->last++;
}

static void m2_units(struct scene *s)
{
    s->seq->n_units--;
}

static void m2_units_private(struct scene *s)
{
    s->seq->n_public = --s->seq->n_units;
}

static void m2_units_beyond(struct scene *s)
{
    s->seq->known = 9;
}

static void m2_public(struct scene *s)
{
    s->seq->n_public = s->seq->n_units + 1;
}

static void m2_null_entry(struct scene *s)
{
    s->row[1] = 0;
}

static void m2_free_entry(struct scene *s)
{
    s->row[1] = 15;
}

static void m2_entry_beyond(struct scene *s)
{
    s->row[1] = (int32_t)s->cache->pool.n_blocks;
}

static void t2_unknown_window(struct scene *s)
{
    kvpi_windows(&s->cache->table, 0)->recent = 4;
}

static void n2_no_node(struct scene *s)
{
    s->nodes[4] = KVPI_NO_NODE;
}

static void n2_node_beyond(struct scene *s)
{
    s->nodes[4] = (uint32_t)s->cache->prefix.n_touched + 1;
}

static void n2_path_depth(struct scene *s)
{
    node(s, 4)->depth++;
}

static void n2_path(struct scene *s)
{
    s->nodes[3] = s->nodes[1];
}

static void n1_private(struct scene *s)
{
    node(s, 2)->flags = 0;
}

static void t3_shared(struct scene *s)
{
    s->seq->computed = 7; /* of block 2, which the child holds too */
    s->seq->exclusive = 8;
}

static void t3_sealed(struct scene *s)
{
    s->seq->computed = 8;
    s->seq->exclusive = 12;
    block(s, 2)->content = s->nodes[4];
}

static void t1_refs(struct scene *s)
{
    block(s, 0)->refs++;
}

static void t1_two_refs(struct scene *s)
{
    block(s, 0)->refs++;
    block(s, 1)->refs++;
}

static void n4_users(struct scene *s)
{
    node(s, 1)->users++;
}

static void n4_children(struct scene *s)
{
    node(s, 1)->children++;
}

static void n4_used(struct scene *s)
{
    s->cache->prefix.n_used--;
}

/* The entry of a node; of 0: the first empty one. */
static uint16_t *mark_of(struct scene *s, uint32_t node, uint32_t **out_node)
{
    struct kvpi_tags *tags = &s->cache->prefix.tags;
    for (uint32_t i = 0; i < tags->n_lines; i++) {
        struct kvpi_tags_line *line = kvpi_tags_line(tags, i);
        for (uint32_t place = 0; place < KVPI_TAGS_PLACES; place++) {
            if (line->node[place] == node) {
                *out_node = &line->node[place];
                return &line->mark[place];
            }
        }
    }
    fail();
    return NULL;
}

static void n1_lost(struct scene *s)
{
    uint32_t *entry;
    *mark_of(s, s->nodes[3], &entry) ^= 2;
}

static void n1_extra(struct scene *s)
{
    uint32_t *entry;
    *mark_of(s, 0, &entry) = 7;
    *entry = 3;
}

static void n1_no_mark(struct scene *s)
{
    uint32_t *entry;
    *mark_of(s, 0, &entry) = 7;
}

static void i1_beyond(struct scene *s)
{
    kvpi_tags_line(&s->cache->prefix.tags, 0)->n_beyond++;
}

static void n2_tokens(struct scene *s)
{
    int32_t *tokens = (int32_t *)(void *)(node(s, 2) + 1);
    tokens[1]++;
}

static void n2_depth(struct scene *s)
{
    kvpi_node(&s->cache->prefix, block(s, 0)[3].content)->depth++;
}

static void n2_root(struct scene *s)
{
    kvpi_node(&s->cache->prefix, s->seq->root)->depth = 1;
}

static void n2_root_with_a_block(struct scene *s)
{
    kvpi_node(&s->cache->prefix, s->seq->root)->at[KVP_DEVICE].block = 3;
}

static void n2_root_below_another(struct scene *s)
{
    kvpi_node(&s->cache->prefix, s->seq->root)->root = s->nodes[0];
}

static void n2_other_root(struct scene *s)
{
    node(s, 4)->root = s->nodes[0];
}

static void n3_unattached_dups(struct scene *s)
{
    node(s, 4)->at[KVP_DEVICE].dups = 3;
}

static void n3_unknown(struct scene *s)
{
    block(s, 2)->content = 0;
    node(s, 4)->at[KVP_DEVICE].block = 3;
}

static void n3_content_above(struct scene *s)
{
    block(s, 1)->content = s->nodes[2];
}

static void n3_other_content(struct scene *s)
{
    block(s, 1)->content = block(s, 0)->content;
    node(s, 2)->at[KVP_DEVICE].block = node(s, 3)->at[KVP_DEVICE].block = (uint32_t)s->row[0];
    block(s, 0)->content = s->nodes[3];
}

static void n3_dups_broken(struct scene *s)
{
    first_dup(s)->next++;
}

static void n3_dup_of_itself(struct scene *s)
{
    node(s, 0)->at[KVP_DEVICE].block = node(s, 0)->at[KVP_DEVICE].dups / 2;
}

static void n3_dup_elsewhere_in_its_block(struct scene *s)
{
    struct kvpi_dup *dup = first_dup(s);
    dup[1] = dup[0];
    dup->node = KVPI_NO_NODE;
}

static void n3_dup_of_nothing(struct scene *s)
{
    node(s, 0)->at[KVP_DEVICE] = (struct kvpi_place){0};
}

static void n3_dup_where_the_node_is(struct scene *s)
{
    const uint32_t slot = kvpi_prefix_slot(&s->cache->prefix, KVP_DEVICE, (uint32_t)s->row[0], 0);
    kvpi_prefix_dups(&s->cache->prefix)[slot] = *first_dup(s);
}

static void n3_dups_forgotten(struct scene *s)
{
    node(s, 0)->at[KVP_DEVICE].dups = 0;
}

static void n3_dups_one_way(struct scene *s)
{
    struct kvpi_dup *dup = first_dup(s);
    kvpi_prefix_add_dup(&s->cache->prefix, s->nodes[0], KVP_DEVICE, 4);
    dup->next = (uint32_t)(dup - kvpi_prefix_dups(&s->cache->prefix));
}

static void n3_off_the_path(struct scene *s)
{
    node(s, 0)->at[KVP_DEVICE].block = 4; /* another prefix is there */
}

static void n3_free_dup(struct scene *s)
{
    kvpi_prefix_add_dup(&s->cache->prefix, s->nodes[2], KVP_DEVICE, 15);
}

static void x2_same_block(struct scene *s)
{
    first_copy(s)->src = first_copy(s)->dst;
}

static void x2_source_beyond(struct scene *s)
{
    first_copy(s)->src = s->cache->pool.n_blocks;
}

static void x2_null_target(struct scene *s)
{
    first_copy(s)->dst = 0;
}

static void x2_no_tokens(struct scene *s)
{
    first_copy(s)->n_tokens = 0;
}

static void x2_too_many_tokens(struct scene *s)
{
    first_copy(s)->n_tokens = 5;
}

static void b1_mark(struct scene *s)
{
    block(s, 0)->refs |= KVPI_REFS_MARKED;
}

TEST(test_every_planted_fault_is_named)
{
    const struct planted faults[] = {
        {b2_sum, "B2", 1},
        {b2_nodes_used, "B2", 1},
        {b2_plan, "B2", 1},
        {b2_more_seqs_than_places, "B2", 1},
        {b3_queue, "B3", 2},
        {b1_mark, "B1", 2},
        {b2_seqs, "B2", 3},
        {m2_known, "M2", 3},
        {m2_computed, "M2", 3},
        {m2_prompt, "M2", 3},
        {m2_cached, "M2", 3},
        {m2_writable, "M2", 3},
        {m2_exclusive, "M2", 3},
        {m2_tokens, "M2", 3},
        {m2_row_too_short, "M2", 3},
        {m2_last, "M2", 3},
        {m2_units, "M2", 3},
        {m2_units_private, "M2", 3},
        {m2_units_beyond, "M2", 3},
        {m2_public, "M2", 3},
        {m2_null_entry, "M2", 3},
        {m2_free_entry, "M2", 3},
        {m2_entry_beyond, "M2", 3},
        {t2_unknown_window, "T2", 3},
        {n2_no_node, "N2", 3},
        {n2_node_beyond, "N2", 3},
        {n2_path_depth, "N2", 3},
        {n2_path, "N2", 3},
        {n1_private, "N1", 3},
        {t3_shared, "T3", 3},
        {t3_sealed, "T3", 3},
        {t1_refs, "T1", 3},
        {t1_two_refs, "T1", 3},
        {n4_users, "N4", 3},
        {n4_children, "N4", 3},
        {n4_used, "N4", 3},
        {n1_lost, "N1", 3},
        {n1_extra, "N1", 3},
        {n1_no_mark, "N1", 3},
        {i1_beyond, "I1", 3},
        {n2_tokens, "N2", 3},
        {n2_depth, "N2", 3},
        {n2_root, "N2", 3},
        {n2_root_with_a_block, "N2", 3},
        {n2_root_below_another, "N2", 3},
        {n2_other_root, "N2", 3},
        {n3_unattached_dups, "N3", 3},
        {n3_unknown, "N3", 3},
        {n3_content_above, "N3", 3},
        {n3_other_content, "N3", 3},
        {n3_dups_broken, "N3", 3},
        {n3_dup_elsewhere_in_its_block, "N3", 3},
        {n3_dup_of_nothing, "N3", 3},
        {n3_dup_where_the_node_is, "N3", 3},
        {n3_dups_forgotten, "N3", 3},
        {n3_dups_one_way, "N3", 3},
        {n3_off_the_path, "N3", 3},
        {n3_free_dup, "N3", 3},
        {n3_dup_of_itself, "N3", 3},
        {x2_same_block, "X2", 3},
        {x2_source_beyond, "X2", 3},
        {x2_null_target, "X2", 3},
        {x2_no_tokens, "X2", 3},
        {x2_too_many_tokens, "X2", 3},
    };
    struct scene scene;
    assert_planted(&scene, make_scene, faults, sizeof(faults) / sizeof(*faults));
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
    block(&scene, 0)->refs++;
    memcpy(before, scene.w.arena, scene.w.arena_bytes);
    assert_false(kvpi_audit(scene.cache, 3, NULL)); /* not even when it finds something */
    assert_memory_equal(scene.w.arena, before, scene.w.arena_bytes);
    block(&scene, 0)->refs--;
    free(before);
    end_world(&scene.w);
}

TEST(test_levels_are_1_to_3)
{
    world w = small_world(7);
    kvp_violation violation;
    memset(&violation, 0xA5, sizeof(violation));
    assert_status(KVP_E_ARG, kvp_cache_check(w.cache, 0, &violation));
    assert_status(KVP_E_ARG, kvp_cache_check(w.cache, 4, &violation));
    assert_int_equal((unsigned char)violation.invariant[0], 0xA5);
    for (int level = 1; level <= 3; level++) {
        assert_ok(kvp_cache_check(w.cache, level, &violation));
        assert_string_equal(violation.invariant, "");
        assert_string_equal(violation.detail, "");
    }
    end_world(&w);
}

TEST(test_the_public_call_reports_a_corrupt_cache)
{
#if KVP_CHECK >= 2
    print_message("skipped: at this check level the library stops at a broken cache\n");
    skip();
#else
    struct scene scene;
    kvp_violation violation;
    make_scene(&scene);
    t1_refs(&scene);
    assert_ok(kvp_cache_check(scene.cache, 2, &violation));
    assert_status(KVP_E_CORRUPT, kvp_cache_check(scene.cache, 3, NULL));
    assert_status(KVP_E_CORRUPT, kvp_cache_check(scene.cache, 3, &violation));
    assert_string_equal(violation.invariant, "T1");
    assert_int_equal(violation.object, scene.row[0]);
    free(scene.w.arena);
#endif
}

TEST_MAIN(NULL, NULL)
