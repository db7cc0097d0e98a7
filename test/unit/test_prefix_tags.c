/* The index against a plain list of entries, under random changes: what a search gives, and what
 * each line counts. */
#include <string.h>

#include "mocka.h"
#include "core/stages/prefix_tags.h"

enum { LINES = 5, ENTRIES = 44 }; /* of 50 places: most lines are full */

struct entry {
    uint32_t tag;
    uint32_t node; /* 0: not there */
};

struct made {
    struct kvpi_tags tags;
    _Alignas(64) uint8_t arena[LINES * 64];
    struct entry entries[ENTRIES];
    uint64_t random;
};

static uint32_t draw(struct made *made)
{
    made->random = made->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(made->random >> 32);
}

static void make(struct made *made, uint64_t seed)
{
    memset(made, 0, sizeof(*made));
    memset(made->arena, 0xA5, sizeof(made->arena));
    made->tags.n_lines = LINES;
    made->tags.lines_at = offsetof(struct made, arena);
    made->random = seed;
    kvpi_tags_reset(&made->tags);
}

static uint32_t home_of(uint32_t tag)
{
    return (uint32_t)((double)tag / 4294967296.0 * LINES);
}

/* What a search gives: each node of the tag once, and others only if their mark is the same. */
static void assert_found(const struct made *made, uint32_t tag)
{
    uint32_t times[ENTRIES + 1] = {0};
    struct kvpi_tags_search search = kvpi_tags_search(&made->tags, tag);
    uint32_t n_found = 0;
    for (uint32_t node; (node = kvpi_tags_next(&made->tags, &search)) != 0; n_found++) {
        assert_true(n_found < ENTRIES);
        assert_in_range(node, 1, ENTRIES);
        times[node]++;
    }
    for (uint32_t i = 0; i < ENTRIES; i++) {
        const struct entry *e = &made->entries[i];
        const uint32_t mark = e->tag % 65536 == 0 ? 1 : e->tag % 65536;
        const uint32_t wanted = tag % 65536 == 0 ? 1 : tag % 65536;
        if (e->node != 0 && e->tag == tag)
            assert_int_equal(times[e->node], 1);
        else if (e->node == 0 || mark != wanted)
            assert_int_equal(times[i + 1], 0);
    }
}

/* Where each entry lies says which lines have passed it over. */
static void assert_counts(const struct made *made)
{
    uint32_t beyond[LINES] = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < LINES; i++) {
        const struct kvpi_tags_line *line = kvpi_tags_line(&made->tags, i);
        for (uint32_t place = 0; place < KVPI_TAGS_PLACES; place++) {
            assert_int_equal(line->node[place] == 0, line->mark[place] == 0);
            if (line->node[place] == 0)
                continue;
            const struct entry *e = &made->entries[line->node[place] - 1];
            assert_int_equal(e->node, line->node[place]);
            for (uint32_t at = home_of(e->tag); at != i; at = (at + 1) % LINES)
                beyond[at]++;
            n++;
        }
    }
    for (uint32_t i = 0; i < LINES; i++)
        assert_int_equal(kvpi_tags_line(&made->tags, i)->n_beyond, beyond[i]);
    for (uint32_t i = 0; i < ENTRIES; i++)
        n -= made->entries[i].node != 0;
    assert_int_equal(n, 0);
}

/* Tags of which many have the same home, the same mark, a mark of 0 or 1, or one that differs in
 * its lowest bit from another. */
static uint32_t draw_tag(struct made *made)
{
    const uint32_t tag = draw(made);
    switch (draw(made) % 4) {
    case 0: return tag;
    case 1: return tag & 0xFFFF0001u;
    case 2: return UINT32_MAX - tag % 4;
    default: return tag % 4;
    }
}

TEST(test_it_equals_a_list_under_random_changes)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct made made;
        make(&made, seed);
        for (int turn = 0; turn < 3000; turn++) {
            struct entry *e = &made.entries[draw(&made) % ENTRIES];
            if (e->node != 0) {
                kvpi_tags_remove(&made.tags, e->tag, e->node);
                e->node = 0;
            } else {
                e->tag = draw_tag(&made);
                e->node = (uint32_t)(e - made.entries) + 1;
                kvpi_tags_add(&made.tags, e->tag, e->node);
            }
            assert_counts(&made);
            assert_found(&made, e->tag);
            assert_found(&made, draw_tag(&made));
        }
    }
}

/* Each line was full when an entry came that belonged there: none of them ends a search. */
TEST(test_a_search_ends_where_it_began)
{
    struct made made;
    make(&made, 1);
    for (uint32_t home = 0; home < LINES; home++) {
        const uint32_t tag = (uint32_t)(((uint64_t)home << 32) / LINES) + 2;
        for (uint32_t i = 0; i <= KVPI_TAGS_PLACES; i++)
            kvpi_tags_add(&made.tags, tag, 1 + home * 16 + i);
        for (uint32_t i = 0; i < KVPI_TAGS_PLACES; i++)
            kvpi_tags_remove(&made.tags, tag, 1 + home * 16 + i);
        assert_true(kvpi_tags_line(&made.tags, home)->n_beyond > 0);
        assert_found(&made, tag + 1);
    }
}

TEST(test_there_are_two_places_for_a_node)
{
    for (uint32_t n_nodes = 1; n_nodes < 2000; n_nodes += 7) {
        struct kvpi_tags tags;
        struct kvpi_layout layout = {0, 0};
        kvpi_tags_layout(&tags, &layout, 0, n_nodes);
        assert_true(tags.n_lines * KVPI_TAGS_PLACES > n_nodes * 19 / 10);
        assert_int_equal(layout.bytes, tags.n_lines * sizeof(struct kvpi_tags_line));
    }
}

TEST_MAIN(NULL, NULL)
