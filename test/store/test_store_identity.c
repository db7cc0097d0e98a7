/* Fingerprints, digests and keys: equal to the independent program's vectors, different when any
 * field is, and what the calls refuse. */
#include <string.h>

#include "mocka.h"

#include <kvpager/identity.h>

#include <golden/store_vectors.h>
#include "store/identity/digest.h"
#include "store_inputs.h"

static kvp_digester *digester;

static int open_digester(void **state)
{
    (void)state;
    return kvp_digester_create(&digester) == KVP_OK ? 0 : -1;
}

static int close_digester(void **state)
{
    (void)state;
    kvp_digester_destroy(digester);
    kvp_digester_destroy(NULL);
    return 0;
}

static kvp_digest print_of(const kvp_fingerprint_input *input)
{
    kvp_digest digest;
    const char *why = NULL;
    assert_int_equal(kvp_fingerprint_make(digester, input, &digest, &why), KVP_OK);
    assert_string_equal(why, "");
    return digest;
}

static kvp_fingerprint_input full_input(void)
{
    kvp_fingerprint_input input = input_fingerprint();
    input.weights = input_digest(2);
    input.quantisation = "gptq-int4-g128";
    input.compute_type = "f16";
    input.rope = "{\"theta\":1e6}";
    input.rope_bytes = 13;
    input.draft = "draft-1b";
    input.draft_bytes = 8;
    input.type = KVP_INT8;
    input.scales = 1;
    input.k_size = 64;
    input.v_size = 0;
    input.model_layers = 48;
    input.model_heads = 16;
    input.slice = (kvp_slice){.first_layer = 24, .n_layers = 24, .first_head = 8, .n_heads = 4};
    input.block_tokens = 32;
    input.n_groups = 2;
    input.groups[1] = (kvp_group){.sink_tokens = 4, .recent_tokens = 1024};
    input.order = "NSHD";
    return input;
}

/* -------------------------------------------------------------------------------------- vectors */

TEST(test_fingerprints_equal_the_vectors)
{
    kvp_fingerprint_input plain = input_fingerprint();
    kvp_fingerprint_input full = full_input();
    assert_memory_equal(print_of(&plain).bytes, FINGERPRINT_PLAIN, 32);
    assert_memory_equal(print_of(&full).bytes, FINGERPRINT_FULL, 32);
    full.groups[0].block_tokens = 32; /* as it is without */
    assert_memory_equal(print_of(&full).bytes, FINGERPRINT_FULL, 32);
    full.groups[1].block_tokens = 16;
    assert_memory_equal(print_of(&full).bytes, FINGERPRINT_SIZES, 32);
}

TEST(test_a_fingerprint_of_states_equals_the_vector)
{
    kvp_fingerprint_input plain = input_fingerprint();
    const kvp_digest without = print_of(&plain);
    kvp_digest print = without;
    assert_int_equal(kvp_fingerprint_states(digester, &print, "gdn:48x128", 10, &print), KVP_OK);
    assert_memory_equal(print.bytes, FINGERPRINT_STATES, 32);
    kvp_digest other;
    assert_int_equal(kvp_fingerprint_states(digester, &without, "gdn:48x128", 9, &other), KVP_OK);
    assert_memory_not_equal(print.bytes, other.bytes, 32);
}

TEST(test_fingerprints_of_states_are_refused)
{
    static const kvp_digest none;
    kvp_digest print = input_digest(1);
    kvp_digest out = input_digest(2);
    const kvp_digest before = out;
#define REFUSED(...) assert_int_equal(kvp_fingerprint_states(__VA_ARGS__), KVP_E_ARG)
    REFUSED(NULL, &print, "s", 1, &out);
    REFUSED(digester, NULL, "s", 1, &out);
    REFUSED(digester, &none, "s", 1, &out);
    REFUSED(digester, &print, NULL, 1, &out);
    REFUSED(digester, &print, "s", 0, &out);
    REFUSED(digester, &print, "s", KVP_FINGERPRINT_BYTES_MAX + 1, &out);
    REFUSED(digester, &print, "s", 1, NULL);
#undef REFUSED
    assert_memory_equal(&out, &before, sizeof out);
}

TEST(test_roots_and_keys_equal_the_vectors)
{
    kvp_fingerprint_input plain = input_fingerprint();
    kvp_fingerprint_input full = full_input();
    kvp_digest print = print_of(&plain);
    kvp_digest digest;
    assert_int_equal(kvp_digest_root(digester, &print, "tenant", 6, 7, &digest), KVP_OK);
    assert_memory_equal(digest.bytes, ROOT, 32);
    print = print_of(&full);
    assert_int_equal(kvp_digest_root(digester, &print, NULL, 0, 0, &digest), KVP_OK);
    assert_memory_equal(digest.bytes, ROOT_NAMELESS, 32);

    const kvp_slice slice = {.n_layers = 32, .n_heads = 8};
    memcpy(print.bytes, DIGESTS_KEYED + 32, 32);
    assert_int_equal(kvp_record_key(digester, &print, 2, &slice, &digest), KVP_OK);
    assert_memory_equal(digest.bytes, RECORD_KEY, 32);

    uint64_t number = 0, expected = 0;
    for (int i = 7; i >= 0; i--)
        expected = expected << 8 | NAMESPACE_NUMBER[i];
    assert_int_equal(kvp_namespace_number(digester, "tenant", 6, &number), KVP_OK);
    assert_true(number == expected);
}

TEST(test_chains_equal_the_vectors)
{
    kvp_digest parent;
    memcpy(parent.bytes, ROOT, 32);
    int32_t tokens[INPUT_TOKENS];
    input_tokens(tokens);
    kvp_hash_input input = {.unit_tokens = 16, .n_tokens = INPUT_TOKENS, .tokens = tokens};
    kvp_digest digests[2];
    assert_int_equal(kvp_digest_blocks(digester, &input, &parent, digests), KVP_OK);
    assert_memory_equal(digests, DIGESTS, sizeof digests);
    input.n_keys = INPUT_KEYS;
    input.keys = input_keys;
    assert_int_equal(kvp_digest_blocks(digester, &input, &parent, digests), KVP_OK);
    assert_memory_equal(digests, DIGESTS_KEYED, sizeof digests);

    int32_t many[200];
    for (int32_t i = 0; i < 200; i++)
        many[i] = i - 3;
    kvp_hash_input large = {
        .unit_tokens = 100, .n_tokens = 200, .tokens = many, .first_position = 200};
    assert_int_equal(kvp_digest_blocks(digester, &large, &parent, digests), KVP_OK);
    assert_memory_equal(digests, DIGESTS_LARGE, sizeof digests);
}

/* With the processor's instructions and without: every size of a block, keys between blocks. */
TEST(test_chains_are_the_same_without_the_instructions)
{
    enum { BLOCKS = 7 };
    static int32_t tokens[BLOCKS * (KVPI_CHAIN_TOKENS + 1)];
    const kvpi_chain_fn chain = digester->chain;
    for (uint32_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        tokens[i] = (int32_t)(i * 2654435761u);
    for (uint32_t size = 1; size <= KVPI_CHAIN_TOKENS + 1; size++) {
        const kvp_key key = {.type = 1, .begin = 3 * size, .end = 4 * size, .n_bytes = 1, "a"};
        kvp_hash_input input = {
            .unit_tokens = size, .n_tokens = BLOCKS * size, .tokens = tokens, .keys = &key};
        for (input.n_keys = 0; input.n_keys < 2; input.n_keys++) {
            kvp_digest fast[BLOCKS] = {[4] = input_digest(size)};
            kvp_digest slow[BLOCKS] = {[4] = input_digest(size)};
            assert_int_equal(kvp_digest_blocks(digester, &input, &fast[4], fast), KVP_OK);
            digester->chain = NULL;
            assert_int_equal(kvp_digest_blocks(digester, &input, &slow[4], slow), KVP_OK);
            digester->chain = chain;
            assert_memory_equal(fast, slow, sizeof fast);
        }
    }
}

/* ------------------------------------------------------------------------------------ one field */

TEST(test_one_field_of_a_fingerprint_changes_it)
{
    const kvp_fingerprint_input same = input_fingerprint();
    kvp_fingerprint_input other[INPUT_OTHERS];
    const size_t n = input_other_fingerprints(other);
    kvp_digest prints[INPUT_OTHERS + 1];
    prints[n] = print_of(&same);
    for (size_t i = 0; i < n; i++)
        prints[i] = print_of(&other[i]);
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(prints[i].bytes, prints[j].bytes, 32);
}

/* The only block of a prompt, as a model with this fingerprint knows it. */
static kvp_identity identity_for(const kvp_fingerprint_input *input, const int32_t *tokens)
{
    kvp_identity identity = {.kind = KVP_IDENTITY_TOKENS,
                             .slice = {.n_layers = 1, .n_heads = 1},
                             .fingerprint = print_of(input),
                             .block_tokens = 4,
                             .n_blocks = 1,
                             .tokens = tokens};
    const kvp_hash_input block = {.unit_tokens = 4, .n_tokens = 4, .tokens = tokens};
    kvp_digest root;
    assert_int_equal(kvp_digest_root(digester, &identity.fingerprint, "ns", 2, 0, &root), KVP_OK);
    assert_int_equal(kvp_digest_blocks(digester, &block, &root, &identity.digest), KVP_OK);
    return identity;
}

/* The same through a store: what another model has stored is no hit. */
TEST(test_one_field_changed_is_no_hit)
{
    static const int32_t tokens[4] = {1, 2, 3, 4};
    const kvp_fingerprint_input same = input_fingerprint();
    kvp_fingerprint_input other[INPUT_OTHERS];
    const size_t n = input_other_fingerprints(other);
    uint8_t kv[64] = {7};
    void *block = kv;
    for (size_t i = 0; i <= n; i++) {
        const kvp_identity written = identity_for(i < n ? &other[i] : &same, tokens);
        const kvp_identity wanted = identity_for(&same, tokens);
        const kvp_digest key = input_key(&wanted);
        kvp_store_config config;
        scoped_store *store = NULL;
        uint64_t bits = 0;
        kvp_store_config_init(&config);
        config.url = "memory:?size=1MiB";
        config.fingerprint = written.fingerprint;
        config.block_tokens = 4;
        config.block_bytes[0] = sizeof kv;
        config.record_blocks = 1;
        config.threads = 0;
        assert_int_equal(kvp_store_open(&config, &store, NULL, 0), KVP_OK);
        assert_int_equal(kvp_store_put(store, &written, &block, 0), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        assert_int_equal(kvp_store_have(store, &key, 1, &bits, 0), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_OK);
        assert_int_equal(bits, i == n);
        const kvp_status status = kvp_store_get(store, &wanted, &block, 0);
        if (status == KVP_OK)
            assert_int_equal(input_result(store), i == n ? KVP_STORE_OK : KVP_STORE_ABSENT);
        else
            assert_true(status == KVP_E_ARG && i < n); /* it is not this store's fingerprint */
    }
}

static void refuse(const kvp_fingerprint_input *input, const char *field)
{
    kvp_digest digest = input_digest(77);
    const char *why = NULL;
    assert_int_equal(kvp_fingerprint_make(digester, input, &digest, &why), KVP_E_ARG);
    assert_non_null(strstr(why, field));
    assert_memory_equal(digest.bytes, input_digest(77).bytes, 32);
}

TEST(test_a_wrong_field_is_named)
{
    const kvp_fingerprint_input good = input_fingerprint();
    kvp_fingerprint_input bad;
    char text[300];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
#define REFUSE(member, value, name)                                                                \
    do {                                                                                           \
        bad = good;                                                                                \
        bad.member = (value);                                                                      \
        refuse(&bad, name);                                                                        \
    } while (0)
    REFUSE(struct_size, 8, "struct_size");
    REFUSE(weights, (kvp_digest){{0}}, "weights");
    REFUSE(quantisation, NULL, "quantisation");
    REFUSE(quantisation, text, "quantisation");
    REFUSE(compute_type, "", "compute_type");
    REFUSE(rope_bytes, 1, "rope");
    REFUSE(draft_bytes, KVP_FINGERPRINT_BYTES_MAX + 1, "draft");
    REFUSE(type, 0, "type");
    REFUSE(k_size, 0, "k_size");
    REFUSE(v_size, KVP_HEAD_SIZE_MAX + 1, "v_size");
    REFUSE(model_layers, 0, "model_layers");
    REFUSE(model_heads, KVP_HEADS_MAX + 1, "model_heads");
    REFUSE(slice.n_layers, 33, "layers");
    REFUSE(slice.first_layer, UINT32_MAX, "layers");
    REFUSE(slice.n_heads, 0, "heads");
    REFUSE(block_tokens, 0, "block_tokens");
    REFUSE(unit_tokens, 3, "unit_tokens");
    REFUSE(n_groups, KVP_GROUPS_MAX + 1, "n_groups");
    REFUSE(groups[0].sink_tokens, 1, "n_groups");
    REFUSE(groups[0].block_tokens, 8, "block_tokens of a group");
    REFUSE(groups[0].block_tokens, 2 * KVP_BLOCK_TOKENS_MAX, "block_tokens of a group");
    REFUSE(order, "", "order");
#undef REFUSE
}

/* --------------------------------------------------------------------------------------- chains */

TEST(test_a_chain_may_be_continued)
{
    kvp_digest root = input_digest(3);
    int32_t tokens[INPUT_TOKENS];
    input_tokens(tokens);
    kvp_hash_input input = {.unit_tokens = 4,
                            .n_tokens = INPUT_TOKENS,
                            .tokens = tokens,
                            .n_keys = INPUT_KEYS,
                            .keys = input_keys};
    kvp_digest whole[8];
    assert_int_equal(kvp_digest_blocks(digester, &input, &root, whole), KVP_OK);
    kvp_digest piece = root;
    for (uint32_t i = 0; i < 8; i++) {
        input.first_position = 4 * i;
        input.tokens = tokens + 4 * i;
        input.n_tokens = 4;
        assert_int_equal(kvp_digest_blocks(digester, &input, &piece, &piece), KVP_OK);
        assert_memory_equal(piece.bytes, whole[i].bytes, 32);
    }
}

TEST(test_prefix_key_and_position_change_a_digest)
{
    kvp_digest root = input_digest(3);
    int32_t tokens[INPUT_TOKENS];
    input_tokens(tokens);
    kvp_key key = {.type = 1, .begin = 18, .end = 19, .n_bytes = 1, .bytes = "a"};
    kvp_hash_input input = {
        .unit_tokens = 16, .n_tokens = INPUT_TOKENS, .tokens = tokens, .n_keys = 1, .keys = &key};
    kvp_digest first[2], other[2];
    assert_int_equal(kvp_digest_blocks(digester, &input, &root, first), KVP_OK);
    for (int change = 0; change < 4; change++) {
        kvp_key changed = key;
        if (change == 0)
            changed.type = 2;
        else if (change == 1)
            changed.begin = 17;
        else if (change == 2)
            changed.bytes = "b";
        else
            tokens[0]++;
        input.keys = &changed;
        assert_int_equal(kvp_digest_blocks(digester, &input, &root, other), KVP_OK);
        assert_memory_not_equal(first[1].bytes, other[1].bytes, 32);
        assert_int_equal(memcmp(first[0].bytes, other[0].bytes, 32) == 0, change < 3);
    }
}

TEST(test_calls_refuse_what_is_wrong)
{
    kvp_digest digest = input_digest(3);
    kvp_digest out;
    kvp_slice slice = {.n_layers = 1, .n_heads = 1};
    uint64_t number;
    char name[256] = {0};
    assert_int_equal(kvp_digester_create(NULL), KVP_E_ARG);
    assert_int_equal(kvp_digest_root(digester, &digest, NULL, 1, 0, &out), KVP_E_ARG);
    assert_int_equal(kvp_digest_root(digester, &digest, name, 256, 0, &out), KVP_E_ARG);
    assert_int_equal(kvp_digest_root(digester, NULL, name, 1, 0, &out), KVP_E_ARG);
    assert_int_equal(kvp_namespace_number(digester, name, 256, &number), KVP_E_ARG);
    assert_int_equal(kvp_namespace_number(digester, name, 1, NULL), KVP_E_ARG);
    assert_int_equal(kvp_record_key(digester, &digest, KVP_GROUPS_MAX, &slice, &out), KVP_E_ARG);
    assert_int_equal(kvp_record_key(digester, &digest, 0, NULL, &out), KVP_E_ARG);

    int32_t tokens[INPUT_TOKENS];
    input_tokens(tokens);
    kvp_hash_input good = {.unit_tokens = 16, .n_tokens = 32, .tokens = tokens};
    kvp_hash_input bad = good;
    kvp_digest two[2];
    bad.unit_tokens = 0;
    assert_int_equal(kvp_digest_blocks(digester, &bad, &digest, two), KVP_E_ARG);
    bad.unit_tokens = KVP_BLOCK_TOKENS_MAX + 1;
    assert_int_equal(kvp_digest_blocks(digester, &bad, &digest, two), KVP_E_ARG);
    bad.unit_tokens = KVP_BLOCK_TOKENS_MAX;
    assert_int_equal(kvp_digest_blocks(digester, &bad, &digest, two), KVP_OK);
    bad = good;
    bad.first_position = UINT32_MAX - 47;
    assert_int_equal(kvp_digest_blocks(digester, &bad, &digest, two), KVP_OK);
    bad.first_position = 8;
    assert_int_equal(kvp_digest_blocks(digester, &bad, &digest, two), KVP_E_ARG);
    bad.first_position = UINT32_MAX - 15;
    assert_int_equal(kvp_digest_blocks(digester, &bad, &digest, two), KVP_E_ARG);
    assert_int_equal(kvp_digest_blocks(digester, &good, &digest, NULL), KVP_E_ARG);
    kvp_key keys[65];
    for (uint32_t i = 0; i < 65; i++)
        keys[i] = (kvp_key){.type = i, .begin = 2, .end = 40};
    bad = good;
    bad.keys = keys;
    bad.n_keys = 65;
    assert_int_equal(kvp_digest_blocks(digester, &bad, &digest, two), KVP_E_ARG);
    bad.n_keys = 64;
    assert_int_equal(kvp_digest_blocks(digester, &bad, &digest, two), KVP_OK);
    keys[1].begin = 1;
    assert_int_equal(kvp_digest_blocks(digester, &bad, &digest, two), KVP_E_ARG);
    static const char bytes[KVP_KEY_MAX_BYTES + 1];
    const struct {
        kvp_key key;
        kvp_status status;
    } cases[] = {
        {{.end = 1, .n_bytes = KVP_KEY_MAX_BYTES, .bytes = bytes}, KVP_OK},
        {{.end = 1, .n_bytes = KVP_KEY_MAX_BYTES + 1, .bytes = bytes}, KVP_E_ARG},
        {{.end = 1, .n_bytes = 1}, KVP_E_ARG},
        {{.begin = 1, .end = 1}, KVP_E_ARG},
        {{.begin = 31, .end = 32}, KVP_OK},
    };
    bad.n_keys = 1;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        bad.keys = &cases[i].key;
        assert_int_equal(kvp_digest_blocks(digester, &bad, &digest, two), cases[i].status);
    }
}

TEST_MAIN(open_digester, close_digester)
