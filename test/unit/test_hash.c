/* The content hash against vectors made by a program that shares no line with the library
 * (test/golden/make_hash_vectors.py), and what its two functions refuse. */
#include <string.h>

#include "mocka.h"

#include <kvpager/hash.h>

#include <golden/hash_vectors.h>

enum { HASHES_MAX = 64 };

static const kvp_hash untouched = {{0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5,
                                    0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5}};

static kvp_hash_input input_of(const chain_vector *vector)
{
    return (kvp_hash_input){.unit_tokens = vector->unit_tokens,
                            .n_tokens = vector->n_tokens,
                            .tokens = vector->tokens,
                            .first_position = vector->first_position,
                            .n_keys = vector->n_keys,
                            .keys = vector->keys};
}

static kvp_hash parent_of(const chain_vector *vector)
{
    kvp_hash parent;
    memcpy(parent.bytes, vector->parent, sizeof parent.bytes);
    return parent;
}

TEST(test_roots_equal_the_golden_vectors)
{
    for (size_t i = 0; i < sizeof root_vectors / sizeof *root_vectors; i++) {
        const root_vector *vector = &root_vectors[i];
        kvp_hash root = untouched;
        const char *name = vector->name_bytes ? vector->name : NULL;
        assert_int_equal(
            kvp_hash_root(vector->unit_tokens, vector->seed, name, vector->name_bytes, &root),
            KVP_OK);
        assert_memory_equal(root.bytes, vector->hash, sizeof root.bytes);
    }
}

TEST(test_chains_equal_the_golden_vectors)
{
    for (size_t i = 0; i < sizeof chain_vectors / sizeof *chain_vectors; i++) {
        const chain_vector *vector = &chain_vectors[i];
        kvp_hash_input input = input_of(vector);
        kvp_hash parent = parent_of(vector);
        uint32_t n_hashes = vector->n_tokens / vector->unit_tokens;
        kvp_hash hashes[HASHES_MAX + 1];
        assert_true(n_hashes <= HASHES_MAX);
        hashes[n_hashes] = untouched;
        assert_int_equal(kvp_hash_units(&input, &parent, hashes), KVP_OK);
        assert_memory_equal(hashes, vector->hashes, n_hashes * sizeof *hashes);
        assert_memory_equal(&hashes[n_hashes], &untouched, sizeof untouched);
    }
}

/* Cut after every unit: the last hash of one part is the parent of the next. A key that began in
 * an earlier part is passed again and keeps its (now negative) offset. */
TEST(test_a_chain_can_be_continued_at_every_unit)
{
    for (size_t i = 0; i < sizeof chain_vectors / sizeof *chain_vectors; i++) {
        const chain_vector *vector = &chain_vectors[i];
        uint32_t unit = vector->unit_tokens;
        for (uint32_t cut = 0; cut + unit <= vector->n_tokens; cut += unit) {
            kvp_hash hashes[HASHES_MAX];
            kvp_hash parent = parent_of(vector);
            kvp_hash_input input = input_of(vector);
            input.n_tokens = cut;
            assert_int_equal(kvp_hash_units(&input, &parent, hashes), KVP_OK);
            kvp_hash middle = cut ? hashes[cut / unit - 1] : parent;
            input = input_of(vector);
            input.tokens += cut;
            input.n_tokens -= cut;
            input.first_position += cut;
            assert_int_equal(kvp_hash_units(&input, &middle, hashes + cut / unit), KVP_OK);
            assert_memory_equal(hashes, vector->hashes, vector->n_tokens / unit * sizeof *hashes);
        }
    }
}

TEST(test_the_parent_may_lie_just_before_the_output)
{
    int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8};
    kvp_hash_input input = {.unit_tokens = 4, .n_tokens = 8, .tokens = tokens};
    kvp_hash root, expected[2], hashes[3];
    assert_int_equal(kvp_hash_root(4, 0, "x", 1, &root), KVP_OK);
    assert_int_equal(kvp_hash_units(&input, &root, expected), KVP_OK);
    hashes[0] = root;
    assert_int_equal(kvp_hash_units(&input, &hashes[0], hashes + 1), KVP_OK);
    assert_memory_equal(hashes + 1, expected, sizeof expected);
}

TEST(test_a_tail_that_fills_no_unit_is_ignored)
{
    int32_t tokens[] = {1, 2, 3};
    kvp_hash_input input = {.unit_tokens = 4, .n_tokens = 3, .tokens = tokens};
    kvp_hash out = untouched;
    assert_int_equal(kvp_hash_units(&input, &untouched, &out), KVP_OK);
    assert_memory_equal(&out, &untouched, sizeof out);
}

/* What must tell two prefixes apart. */
static kvp_hash hash_with_key(uint32_t type, uint32_t begin, uint32_t end, const char *bytes)
{
    int32_t tokens[] = {1, 2, 3, 4};
    kvp_key key = {type, begin, end, (uint32_t)strlen(bytes), bytes};
    kvp_hash_input input = {
        .unit_tokens = 4, .n_tokens = 4, .tokens = tokens, .n_keys = 1, .keys = &key};
    kvp_hash out;
    assert_int_equal(kvp_hash_units(&input, &untouched, &out), KVP_OK);
    return out;
}

TEST(test_a_key_counts_by_type_offset_and_bytes_not_by_its_end)
{
    kvp_hash key = hash_with_key(1, 1, 2, "a");
    kvp_hash longer = hash_with_key(1, 1, 4, "a");
    kvp_hash type = hash_with_key(2, 1, 2, "a");
    kvp_hash offset = hash_with_key(1, 2, 3, "a");
    kvp_hash bytes = hash_with_key(1, 1, 2, "b");
    kvp_hash absent = hash_with_key(1, 4, 5, "a");
    assert_memory_equal(&key, &longer, sizeof key);
    assert_memory_not_equal(&key, &type, sizeof key);
    assert_memory_not_equal(&key, &offset, sizeof key);
    assert_memory_not_equal(&key, &bytes, sizeof key);
    assert_memory_not_equal(&key, &absent, sizeof key);
}

TEST(test_root_refuses_bad_arguments)
{
    char name[KVP_NAME_MAX_BYTES + 1] = {0};
    kvp_hash out = untouched;
    assert_int_equal(kvp_hash_root(0, 0, "x", 1, &out), KVP_E_ARG);
    assert_int_equal(kvp_hash_root(KVP_BLOCK_TOKENS_MAX + 1, 0, "x", 1, &out), KVP_E_ARG);
    assert_int_equal(kvp_hash_root(16, 0, name, sizeof name, &out), KVP_E_ARG);
    assert_int_equal(kvp_hash_root(16, 0, NULL, 1, &out), KVP_E_ARG);
    assert_int_equal(kvp_hash_root(16, 0, "x", 1, NULL), KVP_E_ARG);
    assert_memory_equal(&out, &untouched, sizeof out);
}

static void expect_refused(const kvp_hash_input *input)
{
    kvp_hash out[2] = {untouched, untouched};
    assert_int_equal(kvp_hash_units(input, &untouched, out), KVP_E_ARG);
    assert_memory_equal(&out[0], &untouched, sizeof untouched);
    assert_memory_equal(&out[1], &untouched, sizeof untouched);
}

TEST(test_units_refuses_bad_sizes_and_null)
{
    int32_t tokens[8] = {0};
    kvp_hash out = untouched;
    const kvp_hash_input good = {.unit_tokens = 4, .n_tokens = 8, .tokens = tokens};
    kvp_hash_input bad = good;
    bad.unit_tokens = 0;
    expect_refused(&bad);
    bad.unit_tokens = KVP_BLOCK_TOKENS_MAX + 1;
    expect_refused(&bad);
    bad = good;
    bad.first_position = 2;
    expect_refused(&bad);
    bad = good;
    bad.tokens = NULL;
    expect_refused(&bad);
    bad.n_tokens = 0; /* none is needed then */
    assert_int_equal(kvp_hash_units(&bad, &untouched, NULL), KVP_OK);
    bad = good;
    bad.first_position = UINT32_MAX - 3; /* positions end at 2^32 */
    expect_refused(&bad);
    bad = good;
    bad.n_keys = 1;
    expect_refused(&bad);
    assert_int_equal(kvp_hash_units(NULL, &untouched, &out), KVP_E_ARG);
    assert_int_equal(kvp_hash_units(&good, NULL, &out), KVP_E_ARG);
    assert_int_equal(kvp_hash_units(&good, &untouched, NULL), KVP_E_ARG);
    assert_memory_equal(&out, &untouched, sizeof out);
}

TEST(test_units_refuses_bad_keys)
{
    static const char bytes[KVP_KEY_MAX_BYTES + 1] = {0};
    int32_t tokens[8] = {0};
    kvp_key keys[2] = {{1, 0, 4, 1, bytes}, {1, 4, 8, 1, bytes}};
    const kvp_hash_input input = {
        .unit_tokens = 4, .n_tokens = 8, .tokens = tokens, .n_keys = 2, .keys = keys};
    kvp_hash out[2];
    assert_int_equal(kvp_hash_units(&input, &untouched, out), KVP_OK);
    keys[1].end = 4;
    expect_refused(&input);
    keys[1].end = 8;
    keys[1].n_bytes = KVP_KEY_MAX_BYTES + 1;
    expect_refused(&input);
    keys[1].n_bytes = 1;
    keys[1].bytes = NULL;
    expect_refused(&input);
    keys[1].n_bytes = 0;
    assert_int_equal(kvp_hash_units(&input, &untouched, out), KVP_OK);
    keys[0].begin = 5;
    keys[0].end = 6;
    expect_refused(&input);
}

TEST_MAIN(NULL, NULL)
