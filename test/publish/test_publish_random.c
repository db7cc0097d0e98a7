/* Random events over a reader that is stricter than any router: on the device it forgets what is
 * behind a removed unit, it never takes a unit twice, behind one that it does not know, or out that
 * it has not. After each batch it has what the rules promise; and so has one that comes late. */
#include <msgpack/unpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

enum { UNITS = 24, TIERS = 3, ROUNDS = 30, STEPS = 200 };

/* A tree of units: all behind an earlier one, or first in one of two namespaces. */
static struct {
    int before; /* -1: first */
    int space;
    int in[TIERS];
} tree[UNITS];

static struct wire wire;
static int has[TIERS][UNITS]; /* the reader's */

static uint32_t draw(uint32_t n)
{
    return (uint32_t)rand() % n;
}

static void make_tree(void)
{
    for (int i = 0; i < UNITS; i++) {
        tree[i].before = i < 2 || draw(5) == 0 ? -1 : (int)draw((uint32_t)i);
        tree[i].space = tree[i].before < 0 ? (int)draw(2) : tree[tree[i].before].space;
        memset(tree[i].in, 0, sizeof(tree[i].in));
        wire_unit(&wire, (char)('a' + i), tree[i].before < 0 ? '\0' : (char)('a' + tree[i].before),
                  tree[i].space ? "n" : "m", NULL);
    }
}

/* ------------------------------------------------------------------------------- the reader */

static int unit_of(uint64_t number)
{
    for (int i = 0; i < UNITS; i++)
        if (wire_number(&wire, (char)('a' + i)) == number)
            return i;
    fail_msg("an unknown hash");
    return -1;
}

static void take_stored(int tier, int unit, int before)
{
    assert_int_equal(before, tree[unit].before);
    assert_false(has[tier][unit]);
    assert_true(tier != 0 || before < 0 || has[0][before]);
    has[tier][unit] = 1;
}

static void take_removed(int tier, int unit)
{
    assert_true(has[tier][unit]);
    for (int i = 0; tier == 0 && i < UNITS; i++)
        assert_false(tree[i].before == unit && has[0][i]); /* what is behind it went first */
    has[tier][unit] = 0;
}

static const msgpack_object *field(const msgpack_object *event, uint32_t at)
{
    return &event->via.array.ptr[at];
}

static int tier_of(const msgpack_object *medium)
{
    const char first = medium->via.str.ptr[0];
    return first == 'G' ? 0 : first == 'C' ? 1 : 2;
}

/* Events as arrays: type, hashes, then parent and medium of a stored, or the medium. */
static void take_event(const msgpack_object *event)
{
    const size_t type = event->via.array.ptr[0].via.str.size;
    if (type == strlen("AllBlocksCleared")) {
        memset(has, 0, sizeof(has));
        return;
    }
    const int is_stored = type == strlen("BlockStored");
    const msgpack_object_array *hashes = &field(event, 1)->via.array;
    const int tier = tier_of(field(event, is_stored ? 6 : 2));
    const msgpack_object *parent = is_stored ? field(event, 2) : NULL;
    int before =
        parent == NULL || parent->type == MSGPACK_OBJECT_NIL ? -1 : unit_of(parent->via.u64);
    for (uint32_t i = 0; i < hashes->size; i++) {
        const int unit = unit_of(hashes->ptr[i].via.u64);
        if (is_stored) {
            take_stored(tier, unit, before);
            before = unit;
        } else {
            take_removed(tier, unit);
        }
    }
}

static void take_batch(void)
{
    msgpack_unpacked batch;
    size_t at = 0;
    msgpack_unpacked_init(&batch);
    assert_int_equal(
        msgpack_unpack_next(&batch, (const char *)wire.payload, wire.payload_bytes, &at),
        MSGPACK_UNPACK_SUCCESS);
    const msgpack_object_array *events = &batch.data.via.array.ptr[1].via.array;
    for (uint32_t i = 0; i < events->size; i++)
        take_event(&events->ptr[i]);
    msgpack_unpacked_destroy(&batch);
}

/* ---------------------------------------------------------------------------------- the rules */

static int is_known(const int known[UNITS], int unit)
{
    return unit < 0 || (known[unit] && is_known(known, tree[unit].before));
}

/* Units that the publisher knows were stored and not forgotten since. A unit has a place if it is
 * in a tier, or before one that is known and has a place. */
static void find_known(int known[UNITS], const int ever[UNITS])
{
    for (int i = UNITS - 1; i >= 0; i--) {
        int is_placed = tree[i].in[0] || tree[i].in[1] || tree[i].in[2];
        for (int child = i + 1; child < UNITS; child++)
            is_placed = is_placed || (tree[child].before == i && known[child]);
        known[i] = is_placed && ever[i];
    }
}

static int is_whole(int unit)
{
    return unit < 0 || (tree[unit].in[0] && is_whole(tree[unit].before));
}

static void expect_set(int ever[UNITS])
{
    int known[UNITS];
    find_known(known, ever);
    for (int i = 0; i < UNITS; i++) {
        assert_int_equal(has[0][i], is_whole(i));
        for (int tier = 1; tier < TIERS; tier++)
            assert_int_equal(has[tier][i], tree[i].in[tier] && is_known(known, i));
        ever[i] = known[i]; /* a place that was freed is unknown again */
    }
}

/* --------------------------------------------------------------------------------- the events */

static char letters[8];

static const char *change(int ever[UNITS])
{
    const uint32_t what = draw(100);
    if (what < 3) {
        const int space = (int)draw(2);
        for (int i = 0; i < UNITS; i++)
            if (tree[i].space == space)
                memset(tree[i].in, 0, sizeof(tree[i].in));
        return space ? "!n" : "!m";
    }
    if (what < 4) {
        for (int i = 0; i < UNITS; i++)
            memset(tree[i].in, 0, sizeof(tree[i].in));
        return "!*";
    }
    const int unit = (int)draw(UNITS);
    const int tier = (int)draw(4) % TIERS;
    const int is_stored = !tree[unit].in[tier];
    tree[unit].in[tier] = is_stored;
    ever[unit] = ever[unit] || is_stored;
    (void)snprintf(letters, sizeof(letters), "%c%c%c", is_stored ? '+' : '-', "GCS"[tier],
                   'a' + unit);
    return letters;
}

static void come_late(void)
{
    uint64_t number;
    int before[TIERS][UNITS];
    memcpy(before, has, sizeof(has));
    memset(has, 1, sizeof(has)); /* whatever it had */
    wire_request(&wire, 0);
    while (wire_take_answer(&wire, &number))
        take_batch();
    assert_memory_equal(has, before, sizeof(has));
}

static void run(unsigned seed)
{
    kvp_publisher_config config = wire_config();
    int ever[UNITS] = {0};
    config.form = KVP_PUBLISH_ARRAYS;
    config.max_units = UNITS + 2;
    config.hashes = KVP_PUBLISH_OWN;
    srand(seed);
    wire_open(&wire, &config);
    memset(has, 0, sizeof(has));
    make_tree();
    for (int step = 0; step < STEPS; step++) {
        const uint64_t newest = wire.newest;
        wire_put_only(&wire, change(ever));
        wire_skip(&wire);
        if (wire.newest != newest) {
            assert_int_equal(wire.newest, newest + 1);
            take_batch();
        }
        expect_set(ever);
        if (draw(20) == 0)
            come_late();
    }
    wire_close(&wire);
}

TEST(test_a_strict_reader_has_the_set)
{
    for (unsigned seed = 0; seed < ROUNDS; seed++) {
        print_message("seed %u\n", seed);
        run(seed);
    }
}

TEST_MAIN(NULL, NULL)
