/* The ghost: what outlived which bin, what came back in which, and what LRU has. All uses ever are
 * kept here, and the counts are made from them by the definition. */
#include <string.h>

#include "core/policy/ghost.h"
#include "world.h"

enum { USES = 4000, NAMES = 400, SPACE = 1 << 21 };

struct use {
    uint32_t name;
    uint64_t time;
    uint64_t next; /* 0: not used again, or only when it was forgotten */
    uint32_t class_;
    uint32_t blocks;
    int in_lru;
};

struct made {
    struct kvpi_ghost ghost;
    _Alignas(64) unsigned char arrays[SPACE];
};

static struct made made;
static struct kvpi_hits hits;
static struct use uses[USES];
static uint32_t n_uses;

static void make(uint32_t n_blocks, uint32_t group_blocks)
{
    struct kvpi_layout layout = {0, 0};
    memset(&made, 0xA5, sizeof made);
    made.ghost.n_blocks = n_blocks;
    (void)kvpi_layout_take(&layout, 1, sizeof made.ghost);
    kvpi_ghost_layout(&made.ghost, group_blocks, &layout, 0);
    assert_false(layout.overflow);
    assert_true(layout.bytes <= sizeof made);
    kvpi_ghost_reset(&made.ghost);
    kvpi_hits_reset(&hits);
    n_uses = 0;
    assert_null(kvpi_ghost_check(&made.ghost));
}

/* Ages are differences of times in units. */
static uint64_t age(uint64_t from, uint64_t to)
{
    const uint32_t shift = kvpi_bins_shift(made.ghost.n_blocks);
    return ((to >> shift) - (from >> shift)) << shift;
}

static struct use *latest(uint32_t name)
{
    for (uint32_t i = n_uses; i-- > 0;)
        if (uses[i].name == name)
            return &uses[i];
    return NULL;
}

/* Forgotten when it is 16 C old. */
static int is_known(const struct use *use, uint64_t now)
{
    return use != NULL && age(use->time, now) < 16 * (uint64_t)made.ghost.n_blocks;
}

/* ------------------------------------------------------------------------------ a use, on both */

static void use_on_ghost(uint32_t name, uint64_t now, uint32_t class_, uint32_t blocks)
{
    const uint32_t place = kvpi_ghost_find(&made.ghost, name);
    const struct use *before = latest(name);
    assert_int_equal(place != KVPI_GHOST_NONE, is_known(before, now));
    if (place != KVPI_GHOST_NONE) {
        const struct kvpi_ghost_entry *entry = kvpi_ghost_entry(&made.ghost, place);
        assert_int_equal(entry->class_ & KVPI_GHOST_CLASS, before->class_);
        assert_int_equal((entry->class_ & KVPI_GHOST_IN_LRU) != 0, before->in_lru);
        assert_int_equal(entry->count, before->class_ + 1);
        kvpi_hits_used(&hits, before->class_, kvpi_ghost_bin(&made.ghost, entry, now));
        kvpi_ghost_strike(&made.ghost, name);
    }
    kvpi_ghost_trim(&made.ghost, made.ghost.n_blocks - blocks);
    kvpi_ghost_enter(&made.ghost,
                     &(struct kvpi_ghost_entry){.name = name,
                                                .blocks = (uint16_t)blocks,
                                                .count = (uint8_t)(class_ + 1),
                                                .class_ = (uint8_t)class_},
                     now);
}

static void use_on_list(uint32_t name, uint64_t now, uint32_t class_, uint32_t blocks)
{
    struct use *before = latest(name);
    uint64_t left = made.ghost.n_blocks;
    if (is_known(before, now)) {
        before->next = now;
        before->in_lru = 0;
    }
    uses[n_uses++] = (struct use){name, now, 0, class_, blocks, 1};
    for (uint32_t i = n_uses; i-- > 0;) { /* the newest that fit */
        if (uses[i].in_lru && uses[i].blocks > left)
            left = 0;
        uses[i].in_lru = uses[i].in_lru && left > 0;
        left -= uses[i].in_lru ? uses[i].blocks : 0;
    }
}

static void expect_counts(uint64_t now)
{
    static uint32_t at_risk[KVPI_CLASSES][KVPI_BINS], used[KVPI_CLASSES][KVPI_BINS];
    const uint32_t n = made.ghost.n_blocks;
    memset(at_risk, 0, sizeof at_risk);
    memset(used, 0, sizeof used);
    for (uint32_t i = 0; i < n_uses; i++) {
        const uint64_t end = age(uses[i].time, uses[i].next != 0 ? uses[i].next : now);
        for (uint32_t b = 0; b < KVPI_BINS; b++)
            at_risk[uses[i].class_][b] += end >= kvpi_bins_edge(n, b + 1) ? 16 : 0;
        const uint32_t bin = kvpi_bins_of(n, end);
        if (uses[i].next != 0 && bin < KVPI_BINS) {
            used[uses[i].class_][bin] += 16;
            at_risk[uses[i].class_][bin] += 16;
        }
    }
    assert_memory_equal(hits.at_risk, at_risk, sizeof at_risk);
    assert_memory_equal(hits.hits, used, sizeof used);
    assert_null(kvpi_ghost_check(&made.ghost));
    assert_null(kvpi_hits_check(&hits));
}

static uint64_t run(uint64_t seed, uint32_t n_blocks, uint32_t n_names)
{
    uint64_t now = 0;
    make(n_blocks, 4);
    while (n_uses < USES) {
        /* Half of the names soon again, and at times nothing for as long as everything lives. */
        const uint32_t name = 77 * draw(&seed, draw(&seed, 2) == 0 ? n_names : n_names / 16);
        const uint32_t blocks = 4 + draw(&seed, 3);
        now += blocks;
        now += draw(&seed, 400) == 0 ? 17 * (uint64_t)n_blocks : 0;
        kvpi_ghost_age(&made.ghost, &hits, now);
        const uint32_t class_ = draw(&seed, KVPI_CLASSES);
        use_on_ghost(name, now, class_, blocks);
        use_on_list(name, now, class_, blocks);
        if (n_uses % 97 == 0)
            expect_counts(now);
    }
    expect_counts(now);
    return now;
}

TEST(test_small)
{
    assert_true(run(1, 64, NAMES) > 100 * 64); /* the ring went round many times */
    run(2, 30, NAMES);
    run(3, 300, NAMES);
}

/* Units of two references, and then of four. */
TEST(test_units)
{
    run(4, 8200, NAMES);
    run(5, 16384, NAMES);
}

/* More groups than references: the oldest go before their time, and LRU is left with the rest. */
TEST(test_full)
{
    make(8, 4);
    const uint32_t most = made.ghost.n_places - 1;
    for (uint32_t i = 0; i < 3 * most; i++) {
        const struct kvpi_ghost_entry entry = {.name = i, .blocks = 0, .class_ = 1};
        kvpi_ghost_enter(&made.ghost, &entry, 1);
        assert_null(kvpi_ghost_check(&made.ghost));
        assert_int_equal(kvpi_ghost_find(&made.ghost, i), i % (most + 1));
        if (i >= most) {
            assert_int_equal(kvpi_ghost_find(&made.ghost, i - most), KVPI_GHOST_NONE);
            assert_true(kvpi_ghost_find(&made.ghost, i - most + 1) != KVPI_GHOST_NONE);
        }
    }
}

/* The ring has room for all that 16 C references and a request of C can enter. */
TEST(test_room)
{
    make(100, 1);
    assert_true(made.ghost.n_places > 17 * 100);
    make(100, 32);
    assert_true(made.ghost.n_places > 17 * 100 / 32);
    assert_true(made.ghost.n_places < 17 * 100 / 32 + 4);
    struct kvpi_layout layout = {0, 0};
    struct kvpi_ghost huge = {.n_blocks = UINT32_MAX};
    kvpi_ghost_layout(&huge, 1, &layout, 0);
    assert_true(layout.overflow);
}

/* ------------------------------------------------------------------------------------ the audit */

static void expect_wrong(void *field, const void *value, size_t size, const char *rule)
{
    unsigned char before[8];
    memcpy(before, field, size);
    memcpy(field, value, size);
    const char *detail = kvpi_ghost_check(&made.ghost);
    assert_non_null(detail);
    assert_memory_equal(detail, rule, 2);
    memcpy(field, before, size);
    assert_null(kvpi_ghost_check(&made.ghost));
}

#define EXPECT_WRONG(field, wrong, rule)                                                           \
    expect_wrong(&(field), &(__typeof__(field)){wrong}, sizeof(field), rule)

TEST(test_audit)
{
    const uint64_t now = run(6, 64, NAMES);
    struct kvpi_ghost *ghost = &made.ghost;
    const uint32_t newest = ghost->head == 0 ? ghost->n_places - 1 : ghost->head - 1;
    struct kvpi_ghost_entry *entry = kvpi_ghost_entry(ghost, newest);
    EXPECT_WRONG(entry->stamp, (uint32_t)now - 2000, "G1");
    EXPECT_WRONG(entry->name, entry->name + 1, "G2");
    EXPECT_WRONG(entry->class_, entry->class_ | KVPI_GHOST_DEAD, "G4");
    EXPECT_WRONG(entry->class_, entry->class_ & KVPI_GHOST_CLASS, "G4");
    EXPECT_WRONG(entry->class_, KVPI_GHOST_DEAD, "G2");
    EXPECT_WRONG(ghost->cursors[3], ghost->head == 0 ? 1 : 0, "G3");
    EXPECT_WRONG(ghost->cursors[3], ghost->n_places, "G3");
    EXPECT_WRONG(ghost->head, ghost->n_places, "G3");
    EXPECT_WRONG(ghost->lru, ghost->n_places, "G3");
    EXPECT_WRONG(ghost->lru, ghost->head, "G4");
    const uint32_t outside = (ghost->head + 1) % ghost->n_places;
    assert_true(outside != ghost->cursors[KVPI_BINS - 1]);
    EXPECT_WRONG(ghost->lru, outside, "G3");
    EXPECT_WRONG(entry->next, newest, "G2");
    EXPECT_WRONG(entry->next, ghost->n_places, "G2");
    EXPECT_WRONG(ghost->lru_blocks, ghost->lru_blocks + 1, "G4");
    EXPECT_WRONG(entry->blocks, (uint16_t)(entry->blocks + 1), "G4");
}

TEST_MAIN(NULL, NULL)
