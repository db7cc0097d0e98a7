/* The index against a slow one: an array of records, searched from end to end. Recency is compared
 * exactly where an epoch cannot blur it, and by the invariants everywhere. */
#include <string.h>

#include "mocka.h"
#include "draw.h"
#include "store/index.h"

enum { SLOTS = 24, KEYS = 96, SPACES = 5 };

/* Keys collide in their low bits, so that chains are long. */
static kvp_digest key_of(uint32_t k)
{
    kvp_digest key = {{(uint8_t)(k % 3)}};
    key.bytes[8] = (uint8_t)k;
    return key;
}

struct record {
    int used;
    int gone;
    int ready;
    uint32_t entry;
    uint32_t parent; /* key, or KEYS */
    uint32_t pins;
    uint64_t space;
};

static struct record records[KEYS];

static uint32_t count_used(void)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < KEYS; k++)
        n += records[k].used != 0;
    return n;
}

static int has_child(uint32_t parent)
{
    for (uint32_t k = 0; k < KEYS; k++)
        if (records[k].used && !records[k].gone && records[k].parent == parent)
            return 1;
    return 0;
}

static void drop_tree(uint32_t k)
{
    for (uint32_t child = 0; child < KEYS; child++)
        if (records[child].used && !records[child].gone && records[child].parent == k)
            drop_tree(child);
    records[k].gone = 1;
    if (records[k].pins == 0)
        records[k].used = 0;
}

static void do_add(struct kvpi_index *index, uint32_t k)
{
    const kvp_digest key = key_of(k);
    uint32_t parent = draw(KEYS);
    if (records[k].used || (records[parent].used && records[parent].gone))
        return;
    const int under = records[parent].used && draw(4) > 0;
    const int full = count_used() == SLOTS;
    const uint32_t no_parent =
        draw(3) == 0 ? kvpi_index_outside((uint8_t[4]){0xFF, 0xFF, 0xFF, (uint8_t)draw(256)})
                     : KVPI_INDEX_NONE;
    struct kvpi_index_record record = {.parent = under ? records[parent].entry : no_parent,
                                       .space = draw(SPACES)};
    memcpy(record.key, key.bytes, sizeof record.key);
    const uint32_t entry = kvpi_index_add(index, &record);
    assert_int_equal(entry == KVPI_INDEX_NONE, full);
    if (!full)
        records[k] = (struct record){.used = 1,
                                     .entry = entry,
                                     .parent = under ? parent : KEYS,
                                     .pins = 1,
                                     .space = under ? records[parent].space : record.space};
}

/* Of any namespace, or of one. */
static void do_evict(struct kvpi_index *index)
{
    const uint64_t space = draw(2 * SPACES);
    const int32_t id = kvpi_spaces_find(&index->spaces, space);
    if (space < SPACES && id < 0)
        return;
    const uint32_t entry = space < SPACES ? kvpi_index_victim_of(index, (uint32_t)id, SLOTS)
                                          : kvpi_index_victim(index, SLOTS);
    int possible = 0;
    for (uint32_t k = 0; k < KEYS; k++) {
        const struct record *record = &records[k];
        const int can = record->used && !record->gone && record->ready && record->pins == 0 &&
                        !has_child(k) && (space >= SPACES || record->space == space);
        possible |= can;
        if (record->used && record->entry == entry) {
            assert_true(can);
            kvpi_index_remove(index, entry);
            records[k].used = 0;
            return;
        }
    }
    assert_false(possible);
}

static void do_pins(struct kvpi_index *index, uint32_t k)
{
    struct record *record = &records[k];
    if (!record->used)
        return;
    if (record->pins > 0 && draw(2) == 0) {
        record->pins--;
        if (!record->gone && !record->ready) {
            record->ready = 1;
            index->entries[record->entry].state = KVPI_ENTRY_READY;
        }
        if (record->gone && record->pins == 0)
            record->used = 0;
        kvpi_index_unpin(index, record->entry);
    } else if (!record->gone && record->pins < 3) {
        record->pins++;
        kvpi_index_pin(index, record->entry);
    }
}

static void compare(const struct kvpi_index *index)
{
    assert_string_equal(kvpi_index_check(index), "");
    assert_int_equal(index->n_used, count_used());
    for (uint32_t k = 0; k < KEYS; k++) {
        const kvp_digest key = key_of(k);
        const uint32_t entry = kvpi_index_find(index, &key);
        if (!records[k].used || records[k].gone) {
            assert_int_equal(entry, KVPI_INDEX_NONE);
            continue;
        }
        assert_int_equal(entry, records[k].entry);
        assert_int_equal(index->entries[entry].pins, records[k].pins);
        assert_int_equal(kvpi_index_space(index, entry), records[k].space);
        assert_int_equal(index->entries[entry].children > 0, has_child(k));
    }
}

TEST(test_random_calls_agree_with_a_slow_index)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        random_state = seed * UINT64_C(0x9E3779B97F4A7C15);
        memset(records, 0, sizeof records);
        struct kvpi_index index;
        assert_int_equal(kvpi_index_open(&index, SLOTS), KVP_OK);
        index.has_quota = 1;
        kvpi_index_free(&index, SLOTS);
        for (int i = 0; i < 3000; i++) {
            const uint32_t k = draw(KEYS);
            const uint32_t what = draw(100);
            if (what < 30)
                do_add(&index, k);
            else if (what < 45)
                do_evict(&index);
            else if (what < 75)
                do_pins(&index, k);
            else if (records[k].used && !records[k].gone && what < 98)
                kvpi_index_touch(&index, records[k].entry);
            else if (records[k].used && !records[k].gone) {
                kvpi_index_drop(&index, records[k].entry);
                drop_tree(k);
            }
            compare(&index);
        }
        kvpi_index_close(&index);
    }
}

static uint32_t add_ready(struct kvpi_index *index, uint32_t k, uint32_t parent)
{
    const kvp_digest key = key_of(k);
    struct kvpi_index_record record = {.parent = parent};
    memcpy(record.key, key.bytes, sizeof record.key);
    const uint32_t entry = kvpi_index_add(index, &record);
    assert_int_not_equal(entry, KVPI_INDEX_NONE);
    index->entries[entry].state = KVPI_ENTRY_READY;
    kvpi_index_unpin(index, entry);
    return entry;
}

static void next_epoch(struct kvpi_index *index)
{
    index->epoch++;
}

static void expect_victim(struct kvpi_index *index, uint32_t entry)
{
    assert_int_equal(kvpi_index_victim(index, SLOTS), entry);
    kvpi_index_remove(index, entry);
    assert_string_equal(kvpi_index_check(index), "");
}

/* Two chains a0 a1 a2 and b0 b1; the first is older, and its middle is used again. */
TEST(test_the_coldest_leaf_goes_first)
{
    struct kvpi_index index;
    assert_int_equal(kvpi_index_open(&index, SLOTS), KVP_OK);
    kvpi_index_free(&index, SLOTS);
    const uint32_t a0 = add_ready(&index, 0, KVPI_INDEX_NONE);
    const uint32_t a1 = add_ready(&index, 1, a0);
    const uint32_t a2 = add_ready(&index, 2, a1);
    next_epoch(&index);
    const uint32_t b0 = add_ready(&index, 3, KVPI_INDEX_NONE);
    const uint32_t b1 = add_ready(&index, 4, b0);
    next_epoch(&index);
    kvpi_index_touch(&index, a1);
    expect_victim(&index, a2);
    expect_victim(&index, b1);
    expect_victim(&index, b0);
    expect_victim(&index, a1);
    expect_victim(&index, a0);
    assert_int_equal(kvpi_index_victim(&index, SLOTS), KVPI_INDEX_NONE);
    kvpi_index_close(&index);
}

/* Of all entries, and of one namespace: so many are looked at, from the cold end on. */
TEST(test_a_victim_is_not_looked_for_for_ever)
{
    struct kvpi_index index;
    assert_int_equal(kvpi_index_open(&index, SLOTS), KVP_OK);
    index.has_quota = 1;
    kvpi_index_free(&index, SLOTS);
    for (uint32_t k = 0; k < 4; k++)
        kvpi_index_pin(&index, add_ready(&index, k, KVPI_INDEX_NONE));
    const uint32_t last = add_ready(&index, 4, KVPI_INDEX_NONE);
    const uint32_t space = index.entries[last].space;
    for (uint32_t limit = 0; limit < 7; limit++) {
        const uint32_t expected = limit < 5 ? KVPI_INDEX_NONE : last;
        assert_int_equal(kvpi_index_victim(&index, limit), expected);
        assert_int_equal(kvpi_index_victim_of(&index, space, limit), expected);
    }
    kvpi_index_close(&index);
}

/* A touch moves an entry once in an epoch: the second one costs no more than a look. */
TEST(test_a_second_touch_moves_nothing)
{
    struct kvpi_index index;
    assert_int_equal(kvpi_index_open(&index, SLOTS), KVP_OK);
    kvpi_index_free(&index, SLOTS);
    const uint32_t a = add_ready(&index, 0, KVPI_INDEX_NONE);
    const uint32_t b = add_ready(&index, 1, KVPI_INDEX_NONE);
    next_epoch(&index);
    kvpi_index_touch(&index, b);
    kvpi_index_touch(&index, a);
    kvpi_index_touch(&index, b);
    expect_victim(&index, b);
    expect_victim(&index, a);
    kvpi_index_close(&index);
}

TEST(test_a_slot_is_retired_before_its_generation_wraps)
{
    struct kvpi_index index;
    assert_int_equal(kvpi_index_open(&index, 1), KVP_OK);
    kvpi_index_free(&index, 1);
    index.entries[0].generation = UINT32_MAX - 2;
    for (int round = 0; round < 2; round++)
        kvpi_index_remove(&index, add_ready(&index, 0, KVPI_INDEX_NONE));
    assert_int_equal(index.entries[0].generation, UINT32_MAX);
    assert_int_equal(index.entries[0].state, KVPI_ENTRY_RETIRED);
    struct kvpi_index_record record = {.parent = KVPI_INDEX_NONE};
    assert_int_equal(kvpi_index_add(&index, &record), KVPI_INDEX_NONE);
    assert_string_equal(kvpi_index_check(&index), "");
    kvpi_index_close(&index);
}

/* Identifiers of namespaces are given back, and a namespace too many is refused. */
TEST(test_namespaces_come_and_go)
{
    struct kvpi_spaces spaces;
    assert_int_equal(kvpi_spaces_open(&spaces, 3), KVP_OK);
    for (int round = 0; round < 3; round++) {
        for (uint64_t number = 0; number < 3; number++)
            assert_true(kvpi_spaces_enter(&spaces, number * 8 + (uint64_t)round) >= 0);
        assert_true(kvpi_spaces_full(&spaces));
        assert_int_equal(kvpi_spaces_enter(&spaces, 77), -1);
        for (uint64_t number = 0; number < 3; number++) {
            const int32_t id = kvpi_spaces_find(&spaces, number * 8 + (uint64_t)round);
            assert_true(id >= 0);
            assert_int_equal(kvpi_spaces_enter(&spaces, number * 8 + (uint64_t)round), id);
            assert_int_equal(spaces.items[id].used, 2);
            kvpi_spaces_leave(&spaces, (uint32_t)id);
            kvpi_spaces_leave(&spaces, (uint32_t)id);
            assert_int_equal(kvpi_spaces_find(&spaces, number * 8 + (uint64_t)round), -1);
        }
        assert_false(kvpi_spaces_full(&spaces));
    }
    kvpi_spaces_close(&spaces);
}

/* What was marked is not found, and its children stay until the sweep; so do their slots. */
TEST(test_marked_entries_wait_for_the_sweep)
{
    struct kvpi_index index;
    assert_int_equal(kvpi_index_open(&index, SLOTS), KVP_OK);
    kvpi_index_free(&index, SLOTS);
    const uint32_t a = add_ready(&index, 0, KVPI_INDEX_NONE);
    const uint32_t b = add_ready(&index, 1, a);
    const uint32_t c = add_ready(&index, 2, b);
    const uint32_t other = add_ready(&index, 3, KVPI_INDEX_NONE);
    kvpi_index_pin(&index, a);
    kvpi_index_pin(&index, c);
    kvpi_index_mark(&index, a);
    kvpi_index_unpin(&index, a);
    kvp_digest key = key_of(0);
    assert_int_equal(kvpi_index_find(&index, &key), KVPI_INDEX_NONE);
    key = key_of(2);
    assert_int_equal(kvpi_index_find(&index, &key), c);
    assert_int_equal(index.n_used, 4);
    assert_string_equal(kvpi_index_check(&index), "");
    assert_int_equal(kvpi_index_sweep(&index, NULL, NULL), 2);
    assert_int_equal(kvpi_index_find(&index, &key), KVPI_INDEX_NONE);
    assert_int_equal(index.n_used, 2); /* c for its pin, and the other one */
    assert_string_equal(kvpi_index_check(&index), "");
    kvpi_index_unpin(&index, c);
    assert_int_equal(index.n_used, 1);
    assert_int_equal(kvpi_index_drop(&index, other), 1);
    assert_int_equal(index.n_used, 0);
    kvpi_index_close(&index);
}

TEST(test_an_entry_is_small)
{
    assert_true(sizeof(struct kvpi_entry) + sizeof(uint32_t) <= 48);
}

TEST_MAIN(NULL, NULL)
