/* Records: headers equal to the independent program's, every byte of them guarded, and every way
 * in which a record can be another one's told apart. */
#include <string.h>

#include "mocka.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <golden/store_vectors.h>
#include "store/identity/identity_record.h"
#include "store_inputs.h"

enum { HEADER_BYTES = 4096, PAYLOAD_BYTES = 377 };

/* A record in memory: two spans of payload, as two blocks of a pool would be. */
struct fixture {
    int32_t tokens[INPUT_TOKENS];
    kvp_identity identity;
    struct kvpi_place place;
    uint8_t payload[PAYLOAD_BYTES];
    struct kvpi_span spans[2];
    uint8_t header[HEADER_BYTES];
};

static void make_fixture(struct fixture *f)
{
    input_tokens(f->tokens);
    f->identity = (kvp_identity){.kind = KVP_IDENTITY_TOKENS,
                                 .group = 2,
                                 .slice = {.n_layers = 32, .n_heads = 8},
                                 .space = 0,
                                 .block_tokens = 16,
                                 .n_blocks = 2,
                                 .n_keys = INPUT_KEYS,
                                 .tokens = f->tokens,
                                 .keys = input_keys};
    memcpy(f->identity.fingerprint.bytes, FINGERPRINT_PLAIN, 32);
    memcpy(f->identity.digest.bytes, DIGESTS_KEYED + 32, 32);
    for (int i = 7; i >= 0; i--)
        f->identity.space = f->identity.space << 8 | NAMESPACE_NUMBER[i];
    f->place =
        (struct kvpi_place){.slot = 5, .generation = UINT64_C(1) << 33, .written = 1700000000};
    input_pattern(f->payload, 300, 4);
    input_pattern(f->payload + 300, 77, 5);
    f->spans[0] = (struct kvpi_span){f->payload, 300};
    f->spans[1] = (struct kvpi_span){f->payload + 300, 77};
    assert_int_equal(
        kvpi_record_write(&f->identity, &f->place, f->spans, 2, NULL, HEADER_BYTES, f->header),
        KVP_OK);
}

static enum kvpi_record_fault check(const struct fixture *f)
{
    return kvpi_record_check_header(&f->identity, &f->place, PAYLOAD_BYTES, f->header,
                                    HEADER_BYTES);
}

/* -------------------------------------------------------------------------------------- vectors */

TEST(test_a_header_equals_the_vector)
{
    struct fixture f;
    make_fixture(&f);
    assert_int_equal(kvpi_record_header_bytes(INPUT_TOKENS, kvpi_identity_key_bytes(&f.identity)),
                     HEADER_BYTES);
    assert_memory_equal(f.header, HEADER_TOKENS, sizeof HEADER_TOKENS);
    for (size_t i = sizeof HEADER_TOKENS; i < HEADER_BYTES; i++)
        assert_int_equal(f.header[i], 0);
    assert_int_equal(check(&f), KVPI_RECORD_GOOD);
    assert_int_equal(kvpi_record_check_payload(f.header, f.spans, 2, NULL), KVPI_RECORD_GOOD);
}

static void make_engine_fixture(struct fixture *f, struct kvpi_mac *mac)
{
    make_fixture(f);
    f->identity.kind = KVP_IDENTITY_KEY;
    f->identity.tokens = NULL;
    f->identity.keys = NULL;
    f->identity.n_keys = 0;
    f->identity.digest = input_digest(9);
    f->identity.parent = input_digest(11);
    f->identity.position = 64;
    assert_int_equal(
        kvpi_record_write(&f->identity, &f->place, f->spans, 2, mac, HEADER_BYTES, f->header),
        KVP_OK);
}

TEST(test_a_header_with_a_code_equals_the_vector)
{
    uint8_t secret[32];
    input_pattern(secret, sizeof secret, 8);
    struct kvpi_mac mac;
    struct fixture f;
    assert_int_equal(kvpi_mac_open(&mac, secret, sizeof secret), KVP_OK);
    make_engine_fixture(&f, &mac);
    assert_memory_equal(f.header, HEADER_CODE, sizeof HEADER_CODE);
    assert_int_equal(check(&f), KVPI_RECORD_GOOD);
    assert_int_equal(kvpi_record_check_payload(f.header, f.spans, 2, &mac), KVPI_RECORD_GOOD);
    /* A reader without the secret takes it; one with another secret, or of a record without code,
     * does not. */
    assert_int_equal(kvpi_record_check_payload(f.header, f.spans, 2, NULL), KVPI_RECORD_GOOD);
    struct kvpi_mac other;
    secret[0] ^= 1;
    assert_int_equal(kvpi_mac_open(&other, secret, sizeof secret), KVP_OK);
    assert_int_equal(kvpi_record_check_payload(f.header, f.spans, 2, &other), KVPI_RECORD_CODE);
    make_engine_fixture(&f, NULL);
    assert_int_equal(kvpi_record_check_payload(f.header, f.spans, 2, &mac), KVPI_RECORD_CODE);
    kvpi_mac_close(&mac);
    kvpi_mac_close(&other);
}

/* The state after the fixture's tokens: the first span alone. */
static void make_state_fixture(struct fixture *f)
{
    make_fixture(f);
    f->identity.kind = KVP_IDENTITY_STATE;
    f->identity.group = 3;
    memcpy(f->identity.fingerprint.bytes, FINGERPRINT_STATES, 32);
    assert_int_equal(
        kvpi_record_write(&f->identity, &f->place, f->spans, 1, NULL, HEADER_BYTES, f->header),
        KVP_OK);
}

static enum kvpi_record_fault check_state(const struct fixture *f, uint64_t payload_bytes)
{
    return kvpi_record_check_header(&f->identity, &f->place, payload_bytes, f->header,
                                    HEADER_BYTES);
}

TEST(test_a_header_of_a_state_equals_the_vector)
{
    struct fixture f;
    make_state_fixture(&f);
    assert_memory_equal(f.header, HEADER_STATE, sizeof HEADER_STATE);
    assert_true(kvpi_record_well_formed(f.header));
    assert_int_equal(check_state(&f, 300), KVPI_RECORD_GOOD);
    assert_int_equal(check_state(&f, 299), KVPI_RECORD_LENGTH);
    assert_int_equal(kvpi_record_check_payload(f.header, f.spans, 1, NULL), KVPI_RECORD_GOOD);
}

/* In everything but their kind alike, and yet neither is taken for the other. */
TEST(test_a_state_is_no_kv_and_kv_is_no_state)
{
    struct fixture f;
    make_state_fixture(&f);
    f.identity.kind = KVP_IDENTITY_TOKENS;
    assert_int_equal(check_state(&f, 300), KVPI_RECORD_IDENTITY);
    make_fixture(&f);
    f.identity.kind = KVP_IDENTITY_STATE;
    assert_int_equal(check(&f), KVPI_RECORD_IDENTITY);
}

/* --------------------------------------------------------------------------------------- damage */

TEST(test_every_bit_of_a_header_is_guarded)
{
    struct fixture f;
    make_fixture(&f);
    for (size_t bit = 0; bit < sizeof HEADER_TOKENS * 8; bit++) {
        f.header[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(check(&f), KVPI_RECORD_GOOD);
        f.header[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(check(&f), KVPI_RECORD_GOOD);
}

TEST(test_every_bit_of_a_payload_is_guarded)
{
    struct fixture f;
    make_fixture(&f);
    for (size_t bit = 0; bit < PAYLOAD_BYTES * 8; bit++) {
        f.payload[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(kvpi_record_check_payload(f.header, f.spans, 2, NULL),
                         KVPI_RECORD_PAYLOAD);
        f.payload[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    struct kvpi_span swapped[2] = {f.spans[1], f.spans[0]};
    assert_int_equal(kvpi_record_check_payload(f.header, swapped, 2, NULL), KVPI_RECORD_PAYLOAD);
}

TEST(test_any_bytes_are_no_record)
{
    struct fixture f;
    make_fixture(&f);
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 2000; round++) {
        uint8_t bytes[HEADER_BYTES];
        for (size_t i = 0; i < sizeof bytes; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes[i] = (uint8_t)random;
        }
        /* From the front more and more of it is right, lengths that are believed too early among
         * it. */
        memcpy(bytes, f.header, (size_t)(round % 260));
        struct kvpi_record_head head;
        assert_int_not_equal(kvpi_record_read_head(bytes, sizeof bytes, &head), KVPI_RECORD_GOOD);
    }
    struct kvpi_record_head head;
    assert_int_equal(kvpi_record_read_head(f.header, KVPI_RECORD_FIXED - 1, &head),
                     KVPI_RECORD_DAMAGED);
    assert_int_equal(kvpi_record_read_head(f.header, KVPI_RECORD_FIXED, &head),
                     KVPI_RECORD_DAMAGED);
}

/* ------------------------------------------------------------------------------------- identity */

static void expect_other(const struct fixture *f, const kvp_identity *identity)
{
    assert_true(kvpi_identity_valid(identity));
    assert_int_equal(
        kvpi_record_check_header(identity, &f->place, PAYLOAD_BYTES, f->header, HEADER_BYTES),
        KVPI_RECORD_IDENTITY);
}

TEST(test_one_field_of_an_identity_is_another_record)
{
    struct fixture f;
    make_fixture(&f);
    kvp_identity other;
#define OTHER(field, value)                                                                        \
    do {                                                                                           \
        other = f.identity;                                                                        \
        other.field = (value);                                                                     \
        expect_other(&f, &other);                                                                  \
    } while (0)
    OTHER(group, 3);
    OTHER(slice.first_layer, 1);
    OTHER(slice.n_layers, 31);
    OTHER(slice.first_head, 1);
    OTHER(slice.n_heads, 7);
    OTHER(fingerprint.bytes[31], 0xEE);
    OTHER(digest.bytes[0], (uint8_t)(f.identity.digest.bytes[0] + 1));
    OTHER(parent.bytes[0], 1);
    OTHER(space, 1);
    OTHER(n_keys, 1);
    other.n_blocks = 1; /* the second key lies behind the first block */
    expect_other(&f, &other);
    OTHER(block_tokens, 32);
    other.n_blocks = 1;
    expect_other(&f, &other);
#undef OTHER
    int32_t tokens[INPUT_TOKENS];
    for (int i = 0; i < INPUT_TOKENS; i++) {
        input_tokens(tokens);
        tokens[i] ^= 1 << i % 31;
        other = f.identity;
        other.tokens = tokens;
        expect_other(&f, &other);
    }
    for (int change = 0; change < 4; change++) {
        kvp_key keys[INPUT_KEYS];
        memcpy(keys, input_keys, sizeof keys);
        if (change == 0)
            keys[0].type = 9;
        else if (change == 1)
            keys[0].begin = 2;
        else if (change == 2)
            keys[0].bytes = "imagf";
        else
            keys[0].n_bytes = 4;
        other = f.identity;
        other.keys = keys;
        expect_other(&f, &other);
    }
    other = f.identity;
    other.kind = KVP_IDENTITY_KEY;
    other.tokens = NULL;
    other.keys = NULL;
    other.n_keys = 0;
    expect_other(&f, &other);
}

TEST(test_a_right_record_in_a_wrong_place_is_bad)
{
    struct fixture f;
    make_fixture(&f);
    struct kvpi_place place = f.place;
    place.slot++;
    assert_int_equal(
        kvpi_record_check_header(&f.identity, &place, PAYLOAD_BYTES, f.header, HEADER_BYTES),
        KVPI_RECORD_PLACE);
    place = f.place;
    place.generation--;
    assert_int_equal(
        kvpi_record_check_header(&f.identity, &place, PAYLOAD_BYTES, f.header, HEADER_BYTES),
        KVPI_RECORD_PLACE);
    assert_int_equal(
        kvpi_record_check_header(&f.identity, NULL, PAYLOAD_BYTES, f.header, HEADER_BYTES),
        KVPI_RECORD_GOOD);
    assert_int_equal(
        kvpi_record_check_header(&f.identity, NULL, PAYLOAD_BYTES + 1, f.header, HEADER_BYTES),
        KVPI_RECORD_LENGTH);
}

TEST(test_another_version_is_told_apart)
{
    struct fixture f;
    make_fixture(&f);
    f.header[8] = 2;
    assert_int_equal(check(&f), KVPI_RECORD_VERSION_);
}

/* The flag of the other byte order, under a checksum that fits. */
TEST(test_another_byte_order_is_told_apart)
{
    struct fixture f;
    make_fixture(&f);
    f.header[20] ^= KVPI_RECORD_BIG_ENDIAN;
    assert_int_equal(check(&f), KVPI_RECORD_DAMAGED);
    uint32_t body_bytes;
    memcpy(&body_bytes, f.header + 196, sizeof body_bytes);
    XXH3_state_t sum;
    XXH3_64bits_reset(&sum);
    XXH3_64bits_update(&sum, f.header, 248);
    XXH3_64bits_update(&sum, f.header + KVPI_RECORD_FIXED, body_bytes);
    const uint64_t value = XXH3_64bits_digest(&sum);
    memcpy(f.header + 248, &value, sizeof value);
    assert_int_equal(check(&f), KVPI_RECORD_VERSION_);
}

TEST(test_a_head_can_be_read_without_an_identity)
{
    struct fixture f;
    make_fixture(&f);
    struct kvpi_record_head head;
    assert_int_equal(kvpi_record_read_head(f.header, HEADER_BYTES, &head), KVPI_RECORD_GOOD);
    assert_fields(head, kind, KVP_IDENTITY_TOKENS, group, 2);
    assert_fields(head.slice, n_layers, 32, n_heads, 8);
    assert_fields(head, block_tokens, 16, n_blocks, 2, position, 0, header_bytes, HEADER_BYTES);
    assert_true(head.payload_bytes == PAYLOAD_BYTES);
    assert_memory_equal(head.fingerprint.bytes, f.identity.fingerprint.bytes, 32);
    assert_memory_equal(head.digest.bytes, f.identity.digest.bytes, 32);
    assert_memory_equal(head.parent.bytes, f.identity.parent.bytes, 32);
    assert_true(head.space == f.identity.space);
    assert_memory_equal(&head.place, &f.place, sizeof f.place);
}

/* ------------------------------------------------------------------------------------- refusals */

TEST(test_wrong_identities_are_refused)
{
    struct fixture f;
    make_fixture(&f);
    assert_true(kvpi_identity_valid(&f.identity));
    kvp_identity bad;
#define REFUSE(field, value)                                                                       \
    do {                                                                                           \
        bad = f.identity;                                                                          \
        bad.field = (value);                                                                       \
        assert_false(kvpi_identity_valid(&bad));                                                   \
    } while (0)
    REFUSE(kind, 0);
    REFUSE(kind, KVP_IDENTITY_KEY); /* with tokens */
    REFUSE(kind, KVP_IDENTITY_STATE + 1);
    REFUSE(group, KVP_GROUPS_MAX);
    REFUSE(slice.n_layers, 0);
    REFUSE(slice.n_heads, 0);
    REFUSE(block_tokens, 0);
    REFUSE(n_blocks, 0);
    REFUSE(n_blocks, KVP_RECORD_BLOCKS_MAX + 1);
    REFUSE(position, 8);
    REFUSE(position, UINT32_MAX - 15);
    REFUSE(tokens, NULL);
    REFUSE(keys, NULL);
    REFUSE(position, 32); /* the keys lie before it */
#undef REFUSE
}

TEST(test_a_small_header_is_refused)
{
    struct fixture f;
    make_fixture(&f);
    static int32_t tokens[64 * 16];
    f.identity.n_blocks = 64;
    f.identity.tokens = tokens;
    assert_int_equal(
        kvpi_record_write(&f.identity, &f.place, f.spans, 2, NULL, HEADER_BYTES, f.header),
        KVP_E_TOO_SMALL);
    assert_int_equal(kvpi_record_header_bytes(64 * 16, 0), 2 * HEADER_BYTES);
}

TEST(test_faults_have_names)
{
    assert_string_equal(kvpi_record_fault_name(KVPI_RECORD_GOOD), "good");
    assert_string_equal(kvpi_record_fault_name(KVPI_RECORD_CODE), "code");
    assert_string_equal(kvpi_record_fault_name(KVPI_RECORD_FAULTS), "?");
}

TEST_MAIN(NULL, NULL)
