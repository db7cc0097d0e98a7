/* The tree of nodes and its index: what find decides by, removal without tombstones, when nodes
 * die, and the lists of duplicates. Hashes are made up here: tags collide where they should. */
#include <string.h>

#include "mocka.h"
#include "core/stages/prefix.h"

enum { U = 2, NODES = 12, BLOCKS = 6, KEYS = 2 };

struct made {
    struct kvpi_prefix prefix;
    _Alignas(64) uint8_t arena[8192];
    uint32_t root;
};

static kvp_hash hash_of_tag(uint32_t tag)
{
    kvp_hash hash = {{0}};
    for (int i = 0; i < 4; i++)
        hash.bytes[12 + i] = (uint8_t)(tag >> (24 - 8 * i));
    return hash;
}

static void make(struct made *made, uint32_t units_per_block)
{
    struct kvpi_layout layout = {0, 0};
    const kvp_hash hash = hash_of_tag(0);
    memset(made, 0xA5, sizeof(*made));
    made->prefix.unit_tokens = U;
    made->prefix.units_per_block[0] = made->prefix.block_slots = units_per_block;
    made->prefix.n_nodes = NODES;
    made->prefix.n_where = KVPI_TIERS;
    made->prefix.has_below = 0;
    made->prefix.has_kin = 0;
    made->prefix.max_unit_keys = KEYS;
    made->prefix.tag_mask = UINT32_MAX;
    made->prefix.has_dups = KVPI_DUPS_ALL;
    made->prefix.n_collisions = 0;
    (void)kvpi_layout_take(&layout, 1, offsetof(struct made, arena));
    made->prefix.n_blocks = BLOCKS;
    made->prefix.host_blocks = 0;
    kvpi_prefix_layout(&made->prefix, &layout, 0);
    assert_true(layout.bytes <= offsetof(struct made, root));
    kvpi_prefix_reset(&made->prefix);
    made->root = kvpi_prefix_add_root(&made->prefix, &hash);
    assert_int_equal(made->root, 1);
}

static struct kvpi_node *node(const struct made *made, uint32_t index)
{
    return kvpi_node(&made->prefix, index);
}

/* The unit of a number: tokens [number, -number]. */
static struct kvpi_unit unit_of(int32_t number, int32_t out_tokens[U])
{
    out_tokens[0] = number;
    out_tokens[1] = -number;
    return (struct kvpi_unit){out_tokens, NULL, 0};
}

static uint32_t find(struct made *made, uint32_t parent, uint32_t tag, int32_t number)
{
    int32_t tokens[U];
    const kvp_hash hash = hash_of_tag(tag);
    const struct kvpi_unit unit = unit_of(number, tokens);
    return kvpi_prefix_find(&made->prefix, parent, &hash, &unit);
}

static uint32_t add(struct made *made, uint32_t parent, uint32_t tag, int32_t number)
{
    int32_t tokens[U];
    const kvp_hash hash = hash_of_tag(tag);
    const struct kvpi_unit unit = unit_of(number, tokens);
    return kvpi_prefix_add(&made->prefix, parent, &hash, &unit, KVPI_NODE_PUBLIC);
}

static void attach(struct made *made, uint32_t index, uint32_t block)
{
    node(made, index)->at[KVP_DEVICE].block = block;
}

/* ----------------------------------------------------------------------------------------- find */

TEST(test_a_node_keeps_what_it_was_made_of)
{
    struct made made;
    int32_t tokens[U];
    make(&made, 1);
    const uint32_t a = add(&made, made.root, 5, 10);
    const uint32_t b = add(&made, a, 6, 11);
    (void)unit_of(11, tokens);
    assert_fields(*node(&made, b), parent, a, depth, 2);
    assert_int_equal(node(&made, a)->children, 1);
    assert_int_equal(node(&made, b)->flags, KVPI_NODE_PUBLIC);
    assert_memory_equal(kvpi_node_tokens(node(&made, b)), tokens, sizeof(tokens));
    assert_int_equal(made.prefix.n_used, 3);
}

TEST(test_parent_tokens_and_hash_decide_however_few_bits_of_it_count)
{
    for (uint32_t bits = 0; bits <= 4; bits++) {
        struct made made;
        make(&made, 1);
        made.prefix.tag_mask = (1u << bits) - 1;
        const uint32_t a = add(&made, made.root, 0x10, 1);
        const uint32_t b = add(&made, made.root, 0x20, 2); /* the same tag, in 4 bits */
        const uint32_t under_a = add(&made, a, 0x30, 3);
        const uint32_t under_b = add(&made, b, 0x40, 3); /* the same tokens after another prefix */
        assert_int_equal(find(&made, made.root, 0x10, 1), a);
        assert_int_equal(find(&made, made.root, 0x20, 2), b);
        assert_int_equal(find(&made, a, 0x30, 3), under_a);
        assert_int_equal(find(&made, b, 0x40, 3), under_b);
        assert_int_equal(find(&made, made.root, 0x10, 3), KVPI_NO_NODE); /* other tokens */
        assert_int_equal(find(&made, a, 0x10, 1), KVPI_NO_NODE);         /* another parent */
        assert_true(made.prefix.n_collisions > 0);
    }
}

TEST(test_an_equal_tag_that_is_not_the_prefix_counts_as_collision)
{
    struct made made;
    make(&made, 1);
    (void)add(&made, made.root, 7, 1);
    (void)find(&made, made.root, 7, 1);
    (void)find(&made, made.root, 8, 1);
    assert_int_equal(made.prefix.n_collisions, 0);
    (void)find(&made, made.root, 7, 2);
    assert_int_equal(made.prefix.n_collisions, 1);
}

static struct kvpi_key key_of(uint32_t type, int32_t offset, uint32_t n_bytes, uint8_t byte)
{
    struct kvpi_key key = {.type = type, .offset = offset, .n_bytes = n_bytes};
    memset(key.bytes, byte, n_bytes);
    return key;
}

TEST(test_keys_decide_by_every_field)
{
    struct made made;
    int32_t tokens[U];
    const kvp_hash hash = hash_of_tag(9);
    struct kvpi_unit unit = unit_of(1, tokens);
    struct kvpi_key keys[KEYS] = {key_of(1, 0, 4, 'a'), key_of(2, -3, 52, 'b')};
    make(&made, 1);
    unit.keys = keys;
    unit.n_keys = 2;
    const uint32_t keyed = kvpi_prefix_add(&made.prefix, made.root, &hash, &unit, KVPI_NODE_PUBLIC);
    struct kvpi_key same[KEYS] = {keys[0], keys[1]};
    memset(keys, 0, sizeof(keys)); /* they were copied */
    unit.keys = same;
    assert_int_equal(kvpi_prefix_find(&made.prefix, made.root, &hash, &unit), keyed);

    const struct kvpi_key others[] = {key_of(3, -3, 52, 'b'), key_of(2, -2, 52, 'b'),
                                      key_of(2, -3, 51, 'b'), key_of(2, -3, 52, 'c')};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        struct kvpi_key differ[KEYS] = {same[0], others[i]};
        unit.keys = differ;
        assert_int_equal(kvpi_prefix_find(&made.prefix, made.root, &hash, &unit), KVPI_NO_NODE);
    }
    unit.keys = same;
    unit.n_keys = 1;
    assert_int_equal(kvpi_prefix_find(&made.prefix, made.root, &hash, &unit), KVPI_NO_NODE);
    unit.n_keys = 0;
    assert_int_equal(kvpi_prefix_find(&made.prefix, made.root, &hash, &unit), KVPI_NO_NODE);
}

TEST(test_private_nodes_are_never_found)
{
    struct made made;
    int32_t tokens[U];
    const kvp_hash zero = {{0}};
    make(&made, 1);
    const struct kvpi_unit unit = unit_of(4, tokens);
    const uint32_t hidden = kvpi_prefix_add(&made.prefix, made.root, NULL, &unit, 0);
    assert_int_not_equal(hidden, KVPI_NO_NODE);
    assert_false(kvpi_prefix_same(&made.prefix, hidden, made.root, &unit));
    assert_int_equal(kvpi_prefix_find(&made.prefix, made.root, &zero, &unit), KVPI_NO_NODE);
    kvpi_prefix_reap(&made.prefix, hidden); /* not in the index: nothing to take out */
    assert_int_equal(made.prefix.n_used, 1);
}

/* ------------------------------------------------------------------------------------ the index */

struct entry {
    uint32_t tag;
    int32_t number;
    uint32_t node; /* 0: not there */
};

/* Two lines: entries are passed on from each to the other. (test_prefix_tags.c has longer runs.) */
TEST(test_the_index_equals_an_array_under_random_changes)
{
    static const uint32_t masks[] = {UINT32_MAX, 0, 1, 0xC0000000u, 0xFFFFFFF0u};
    for (size_t m = 0; m < sizeof(masks) / sizeof(*masks); m++) {
        struct made made;
        struct entry entries[NODES * 2];
        uint64_t random = m + 1;
        for (int32_t i = 0; i < NODES * 2; i++)
            entries[i] = (struct entry){0, -1 - i, 0};
        make(&made, 1);
        made.prefix.tags.n_lines = 2;
        made.prefix.tag_mask = masks[m];
        for (int turn = 0; turn < 5000; turn++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            struct entry *e = &entries[(random >> 33) % (NODES * 2)];
            if (e->node != 0) {
                kvpi_prefix_reap(&made.prefix, e->node);
                e->node = 0;
            } else {
                /* Half of the homes are the last slots. */
                const uint32_t tag = (uint32_t)(random >> 20);
                e->tag = turn % 2 ? tag : UINT32_MAX - tag % 1000;
                e->number = turn;
                e->node = add(&made, made.root, e->tag, turn); /* none when all are in use */
            }
            for (size_t i = 0; i < NODES * 2; i++) {
                const uint32_t expected = entries[i].node;
                assert_int_equal(find(&made, made.root, entries[i].tag, entries[i].number),
                                 expected);
            }
        }
    }
}

/* ---------------------------------------------------------------------------- life of the nodes */

TEST(test_nodes_run_out_and_come_back_last_freed_first)
{
    struct made made;
    uint32_t nodes[NODES];
    const kvp_hash hash = hash_of_tag(3);
    make(&made, 1);
    for (int32_t i = 1; i < NODES; i++) {
        nodes[i] = add(&made, made.root, (uint32_t)i, i);
        assert_int_equal(nodes[i], i + 1);
    }
    assert_int_equal(made.prefix.n_used, NODES);
    assert_int_equal(add(&made, made.root, 99, 99), KVPI_NO_NODE);
    assert_int_equal(kvpi_prefix_add_root(&made.prefix, &hash), KVPI_NO_NODE);
    assert_int_equal(made.prefix.n_used, NODES);
    assert_int_equal(node(&made, made.root)->children, NODES - 1);
    kvpi_prefix_reap(&made.prefix, nodes[3]);
    kvpi_prefix_reap(&made.prefix, nodes[7]);
    assert_int_equal(made.prefix.n_used, NODES - 2);
    assert_int_equal(add(&made, made.root, 50, 50), nodes[7]);
    assert_int_equal(add(&made, made.root, 51, 51), nodes[3]);
    assert_int_equal(add(&made, made.root, 52, 52), KVPI_NO_NODE);
    assert_int_equal(find(&made, made.root, 3, 3), KVPI_NO_NODE);
}

TEST(test_a_death_goes_up_as_far_as_nothing_keeps_it)
{
    struct made made;
    make(&made, 1);
    const uint32_t a = add(&made, made.root, 1, 1);
    const uint32_t b = add(&made, a, 2, 2);
    const uint32_t c = add(&made, b, 3, 3);
    const uint32_t d = add(&made, c, 4, 4);
    const uint32_t e = add(&made, a, 5, 5);
    kvpi_prefix_use(&made.prefix, d);
    kvpi_prefix_use(&made.prefix, d);
    kvpi_prefix_unuse(&made.prefix, d); /* one user left */
    assert_int_equal(made.prefix.n_used, 6);
    attach(&made, b, 1);
    kvpi_prefix_unuse(&made.prefix, d); /* d and c die; b has a block */
    assert_int_equal(made.prefix.n_used, 4);
    assert_int_equal(find(&made, b, 3, 3), KVPI_NO_NODE);
    assert_int_equal(find(&made, a, 2, 2), b);
    attach(&made, b, 0);
    kvpi_prefix_reap(&made.prefix, b); /* a has another child */
    assert_int_equal(made.prefix.n_used, 3);
    assert_int_equal(find(&made, made.root, 1, 1), a);
    kvpi_prefix_reap(&made.prefix, e); /* e and a; the root has its opener */
    assert_int_equal(made.prefix.n_used, 1);
    kvpi_prefix_unuse(&made.prefix, made.root);
    assert_int_equal(made.prefix.n_used, 0);
}

TEST(test_a_closed_root_lives_as_long_as_what_hangs_from_it)
{
    struct made made;
    make(&made, 1);
    const uint32_t a = add(&made, made.root, 1, 1);
    attach(&made, a, 1);
    kvpi_prefix_unuse(&made.prefix, made.root);
    assert_int_equal(made.prefix.n_used, 2);
    assert_int_equal(kvpi_prefix_detach(&made.prefix, a, KVP_DEVICE), 0);
    kvpi_prefix_reap(&made.prefix, a);
    assert_int_equal(made.prefix.n_used, 0);
}

TEST(test_a_withdrawn_node_lives_but_is_not_found)
{
    struct made made;
    make(&made, 1);
    const uint32_t a = add(&made, made.root, 1, 1);
    const uint32_t b = add(&made, a, 2, 2);
    kvpi_prefix_withdraw(&made.prefix, a);
    assert_int_equal(find(&made, made.root, 1, 1), KVPI_NO_NODE);
    assert_int_equal(find(&made, a, 2, 2), b); /* but nobody can come by its parent */
    const uint32_t anew = add(&made, made.root, 1, 1);
    assert_int_not_equal(anew, a);
    assert_int_equal(find(&made, made.root, 1, 1), anew);
    kvpi_prefix_reap(&made.prefix, b);
    assert_int_equal(find(&made, made.root, 1, 1), anew);
    assert_int_equal(made.prefix.n_used, 2);
}

TEST(test_reset_forgets_every_node)
{
    struct made made;
    const kvp_hash hash = hash_of_tag(0);
    make(&made, 1);
    const uint32_t a = add(&made, made.root, 1, 1);
    attach(&made, a, 2);
    kvpi_prefix_add_dup(&made.prefix, a, KVP_DEVICE, 3);
    (void)add(&made, a, 2, 2);
    kvpi_prefix_reap(&made.prefix, add(&made, a, 3, 3));
    kvpi_prefix_reset(&made.prefix);
    assert_int_equal(made.prefix.n_used, 0);
    assert_false(kvpi_prefix_is_dup(&made.prefix, KVP_DEVICE, 3, 0));
    assert_int_equal(kvpi_prefix_add_root(&made.prefix, &hash), 1);
    assert_int_equal(find(&made, 1, 1, 1), KVPI_NO_NODE);
    assert_int_equal(add(&made, 1, 1, 1), 2);
}

/* ----------------------------------------------------------------------------------- duplicates */

TEST(test_the_oldest_duplicate_takes_the_place)
{
    struct made made;
    make(&made, 1);
    const uint32_t a = add(&made, made.root, 1, 1);
    attach(&made, a, 1);
    kvpi_prefix_add_dup(&made.prefix, a, KVP_DEVICE, 4);
    kvpi_prefix_add_dup(&made.prefix, a, KVP_DEVICE, 2);
    kvpi_prefix_add_dup(&made.prefix, a, KVP_DEVICE, 5);
    assert_true(kvpi_prefix_is_dup(&made.prefix, KVP_DEVICE, 4, 0));
    assert_int_equal(kvpi_prefix_detach(&made.prefix, a, KVP_DEVICE), 4);
    assert_int_equal(node(&made, a)->at[KVP_DEVICE].block, 4);
    assert_false(kvpi_prefix_is_dup(&made.prefix, KVP_DEVICE, 4, 0));
    assert_int_equal(kvpi_prefix_detach(&made.prefix, a, KVP_DEVICE), 2);
    assert_int_equal(kvpi_prefix_detach(&made.prefix, a, KVP_DEVICE), 5);
    assert_int_equal(kvpi_prefix_detach(&made.prefix, a, KVP_DEVICE), 0);
    assert_int_equal(node(&made, a)->at[KVP_DEVICE].block, 0);
}

TEST(test_striking_a_duplicate_keeps_the_order_of_the_rest)
{
    const uint32_t left[3][2] = {{3, 4}, {2, 4}, {2, 3}}; /* the oldest, the middle, the youngest */
    for (uint32_t struck = 0; struck < 3; struck++) {
        struct made made;
        make(&made, 1);
        const uint32_t a = add(&made, made.root, 1, 1);
        attach(&made, a, 1);
        for (uint32_t block = 2; block <= 4; block++)
            kvpi_prefix_add_dup(&made.prefix, a, KVP_DEVICE, block);
        kvpi_prefix_strike_dups(&made.prefix, KVP_DEVICE, struck + 2, 0);
        kvpi_prefix_strike_dups(&made.prefix, KVP_DEVICE, struck + 2, 0); /* there is none */
        assert_int_equal(kvpi_prefix_detach(&made.prefix, a, KVP_DEVICE), left[struck][0]);
        assert_int_equal(kvpi_prefix_detach(&made.prefix, a, KVP_DEVICE), left[struck][1]);
        assert_int_equal(kvpi_prefix_detach(&made.prefix, a, KVP_DEVICE), 0);
    }
}

TEST(test_units_of_a_block_are_struck_from_a_place_on)
{
    struct made made;
    uint32_t path[3];
    make(&made, 3);
    uint32_t parent = made.root;
    for (int32_t i = 0; i < 3; i++) {
        parent = path[i] = add(&made, parent, (uint32_t)i, i);
        assert_int_equal(kvpi_prefix_place(&made.prefix, node(&made, parent), 0), i);
        attach(&made, parent, 1);
        kvpi_prefix_add_dup(&made.prefix, parent, KVP_DEVICE, 2);
    }
    const uint32_t next = add(&made, parent, 7, 7); /* the first unit of the next block */
    assert_int_equal(kvpi_prefix_place(&made.prefix, node(&made, next), 0), 0);
    kvpi_prefix_strike_dups(&made.prefix, KVP_DEVICE, 2, 1);
    assert_true(kvpi_prefix_is_dup(&made.prefix, KVP_DEVICE, 2, 0));
    assert_false(kvpi_prefix_is_dup(&made.prefix, KVP_DEVICE, 2, 1));
    assert_false(kvpi_prefix_is_dup(&made.prefix, KVP_DEVICE, 2, 2));
    assert_int_equal(kvpi_prefix_detach(&made.prefix, path[0], KVP_DEVICE), 2);
    assert_int_equal(kvpi_prefix_detach(&made.prefix, path[1], KVP_DEVICE), 0);
}

TEST(test_without_duplicates_there_is_nothing_to_strike)
{
    struct made made;
    make(&made, 1);
    made.prefix.has_dups = 0;
    made.prefix.dups_at = SIZE_MAX / 2; /* must not be looked at */
    kvpi_prefix_strike_dups(&made.prefix, KVP_DEVICE, 1, 0);
    assert_false(kvpi_prefix_is_dup(&made.prefix, KVP_DEVICE, 1, 0));
    kvpi_prefix_reset(&made.prefix);
}

TEST(test_nodes_of_two_lines_begin_at_an_odd_line)
{
    for (size_t lines = 0; lines < 2; lines++) {
        struct kvpi_layout layout = {0, 0};
        struct kvpi_prefix prefix = {.unit_tokens = 16,
                                     .units_per_block = {1},
                                     .block_slots = 1,
                                     .n_nodes = NODES,
                                     .n_where = KVPI_TIERS,
                                     .n_blocks = BLOCKS};
        (void)kvpi_layout_take(&layout, lines, 64);
        kvpi_prefix_layout(&prefix, &layout, 0);
        assert_fields(prefix, node_bytes, 128, nodes_at, 64);
    }
}

TEST_MAIN(NULL, NULL)
