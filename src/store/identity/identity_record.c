/* identity_record: headers written, read and compared. No state, no memory, no files.
 *
 * Readers take any bytes. A header's lengths are believed only after its checksum, and then they
 * must be the expected ones. */
#include "store/identity/identity_record.h"

#include <string.h>

#include "store/identity/identity_bytes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static const uint8_t MAGIC[8] = {'k', 'v', 'p', 'a', 'g', 'e', 'r', 'S'};

enum {
    AT_VERSION = 8,
    AT_KIND = 12,
    AT_HEADER_BYTES = 16,
    AT_FLAGS = 20,
    AT_PAYLOAD_BYTES = 24,
    AT_GROUP = 32,
    AT_SLICE = 36,
    AT_BLOCK_TOKENS = 52,
    AT_N_BLOCKS = 56,
    AT_POSITION = 60,
    AT_FINGERPRINT = 64,
    AT_DIGEST = 96,
    AT_PARENT = 128,
    AT_SPACE = 160,
    AT_WRITTEN = 168,
    AT_SLOT = 176,
    AT_GENERATION = 184,
    AT_N_KEYS = 192,
    AT_BODY_BYTES = 196,
    AT_PAYLOAD_SUM = 200,
    AT_CODE = 216,
    AT_SUM = 248,
    AT_BODY = KVPI_RECORD_FIXED,
    KEY_FIXED = 12, /* of a key before its bytes */
    DIGEST_BYTES = 32
};

static uint32_t own_byte_order(void)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return 0;
#else
    return KVPI_RECORD_BIG_ENDIAN;
#endif
}

const char *kvpi_record_fault_name(enum kvpi_record_fault fault)
{
    static const char *const names[KVPI_RECORD_FAULTS] = {
        "good", "damaged", "version", "place", "length", "identity", "payload", "code",
    };
    return (unsigned)fault < KVPI_RECORD_FAULTS ? names[fault] : "?";
}

/* ------------------------------------------------------------------------------------- identity */

int kvpi_identity_has_tokens(uint32_t kind)
{
    return kind == KVP_IDENTITY_TOKENS || kind == KVP_IDENTITY_STATE;
}

static int key_valid(const kvp_key *key, uint64_t begin, uint64_t end)
{
    return key->begin < key->end && key->begin < end && key->end > begin &&
           key->n_bytes <= KVP_KEY_MAX_BYTES && (key->bytes || key->n_bytes == 0);
}

int kvpi_identity_valid(const kvp_identity *identity)
{
    if (identity->n_blocks == 0 || identity->n_blocks > KVP_RECORD_BLOCKS_MAX ||
        identity->block_tokens == 0 || identity->block_tokens > KVP_BLOCK_TOKENS_MAX ||
        identity->position % identity->block_tokens != 0 || identity->group >= KVP_GROUPS_MAX ||
        identity->slice.n_layers == 0 || identity->slice.n_heads == 0)
        return 0;
    if (identity->kind == KVP_IDENTITY_KEY)
        return !identity->tokens && identity->n_keys == 0;
    const uint64_t begin = identity->position;
    const uint64_t end = begin + (uint64_t)identity->n_blocks * identity->block_tokens;
    if (!kvpi_identity_has_tokens(identity->kind) || !identity->tokens || end > UINT32_MAX ||
        identity->n_keys > KVPI_RECORD_KEYS_MAX || (!identity->keys && identity->n_keys > 0))
        return 0;
    for (uint32_t i = 0; i < identity->n_keys; i++) {
        const kvp_key *key = &identity->keys[i];
        if (!key_valid(key, begin, end) || (i > 0 && key->begin < key[-1].begin))
            return 0;
    }
    return 1;
}

static uint64_t n_tokens_of(const kvp_identity *identity)
{
    return kvpi_identity_has_tokens(identity->kind)
               ? (uint64_t)identity->n_blocks * identity->block_tokens
               : 0;
}

uint64_t kvpi_identity_key_bytes(const kvp_identity *identity)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < identity->n_keys; i++)
        bytes += KEY_FIXED + identity->keys[i].n_bytes;
    return bytes;
}

uint32_t kvpi_record_header_bytes(uint64_t n_tokens, uint64_t key_bytes)
{
    const uint64_t bytes = KVPI_RECORD_FIXED + n_tokens * 4 + key_bytes;
    return (uint32_t)((bytes + KVPI_RECORD_PAGE - 1) / KVPI_RECORD_PAGE * KVPI_RECORD_PAGE);
}

/* -------------------------------------------------------------------------------------- written */

static void put_body(const kvp_identity *identity, uint8_t *at)
{
    const uint64_t n_tokens = n_tokens_of(identity);
    for (uint64_t i = 0; i < n_tokens; i++, at += 4)
        kvpi_put32(at, (uint32_t)identity->tokens[i]);
    for (uint32_t i = 0; i < identity->n_keys; i++) {
        const kvp_key *key = &identity->keys[i];
        kvpi_put32(at, key->type);
        kvpi_put32(at + 4, key->begin - identity->position);
        kvpi_put32(at + 8, key->n_bytes);
        if (key->n_bytes > 0)
            memcpy(at + KEY_FIXED, key->bytes, key->n_bytes);
        at += KEY_FIXED + key->n_bytes;
    }
}

static void put_identity(const kvp_identity *identity, uint8_t *header)
{
    kvpi_put32(header + AT_KIND, identity->kind);
    kvpi_put32(header + AT_GROUP, identity->group);
    kvpi_put32(header + AT_SLICE, identity->slice.first_layer);
    kvpi_put32(header + AT_SLICE + 4, identity->slice.n_layers);
    kvpi_put32(header + AT_SLICE + 8, identity->slice.first_head);
    kvpi_put32(header + AT_SLICE + 12, identity->slice.n_heads);
    kvpi_put32(header + AT_BLOCK_TOKENS, identity->block_tokens);
    kvpi_put32(header + AT_N_BLOCKS, identity->n_blocks);
    kvpi_put32(header + AT_POSITION, identity->position);
    memcpy(header + AT_FINGERPRINT, identity->fingerprint.bytes, DIGEST_BYTES);
    memcpy(header + AT_DIGEST, identity->digest.bytes, DIGEST_BYTES);
    memcpy(header + AT_PARENT, identity->parent.bytes, DIGEST_BYTES);
    kvpi_put64(header + AT_SPACE, identity->space);
    kvpi_put32(header + AT_N_KEYS, identity->n_keys);
}

static void sum_payload(const struct kvpi_span *spans, uint32_t n_spans, uint8_t *out_sum)
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (uint32_t i = 0; i < n_spans; i++)
        XXH3_128bits_update(&state, spans[i].bytes, spans[i].n_bytes);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(out_sum, canonical.digest, sizeof canonical.digest);
}

static uint64_t sum_header(const uint8_t *header, uint32_t body_bytes)
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, header, AT_SUM);
    XXH3_64bits_update(&state, header + AT_BODY, body_bytes);
    return XXH3_64bits_digest(&state);
}

static kvp_status make_code(struct kvpi_mac *mac, const uint8_t *header, uint32_t body_bytes,
                            const struct kvpi_span *spans, uint32_t n_spans, kvp_digest *out_code)
{
    kvpi_mac_begin(mac);
    kvpi_mac_add(mac, header, AT_CODE);
    kvpi_mac_add(mac, header + AT_BODY, body_bytes);
    for (uint32_t i = 0; i < n_spans; i++)
        kvpi_mac_add(mac, spans[i].bytes, spans[i].n_bytes);
    return kvpi_mac_end(mac, out_code);
}

kvp_status kvpi_record_write(const kvp_identity *identity, const struct kvpi_place *place,
                             const struct kvpi_span *spans, uint32_t n_spans, struct kvpi_mac *mac,
                             uint32_t header_bytes, uint8_t *out_header)
{
    const uint64_t body_bytes = n_tokens_of(identity) * 4 + kvpi_identity_key_bytes(identity);
    if (KVPI_RECORD_FIXED + body_bytes > header_bytes)
        return KVP_E_TOO_SMALL;
    uint64_t payload_bytes = 0;
    for (uint32_t i = 0; i < n_spans; i++)
        payload_bytes += spans[i].n_bytes;
    memset(out_header, 0, header_bytes);
    memcpy(out_header, MAGIC, sizeof MAGIC);
    kvpi_put32(out_header + AT_VERSION, KVPI_RECORD_VERSION);
    kvpi_put32(out_header + AT_HEADER_BYTES, header_bytes);
    kvpi_put32(out_header + AT_FLAGS, own_byte_order() | (mac ? KVPI_RECORD_MAC : 0u));
    kvpi_put64(out_header + AT_PAYLOAD_BYTES, payload_bytes);
    put_identity(identity, out_header);
    kvpi_put64(out_header + AT_WRITTEN, place->written);
    kvpi_put64(out_header + AT_SLOT, place->slot);
    kvpi_put64(out_header + AT_GENERATION, place->generation);
    kvpi_put32(out_header + AT_BODY_BYTES, (uint32_t)body_bytes);
    put_body(identity, out_header + AT_BODY);
    sum_payload(spans, n_spans, out_header + AT_PAYLOAD_SUM);
    if (mac) {
        kvp_digest code;
        kvp_status status = make_code(mac, out_header, (uint32_t)body_bytes, spans, n_spans, &code);
        if (status != KVP_OK)
            return status;
        memcpy(out_header + AT_CODE, code.bytes, DIGEST_BYTES);
    }
    kvpi_put64(out_header + AT_SUM, sum_header(out_header, (uint32_t)body_bytes));
    return KVP_OK;
}

/* ----------------------------------------------------------------------------------------- read */

/* The header is whole: nothing of it is believed before this. */
static enum kvpi_record_fault check_whole(const uint8_t *header, uint32_t header_bytes)
{
    if (header_bytes < KVPI_RECORD_FIXED || memcmp(header, MAGIC, sizeof MAGIC) != 0)
        return KVPI_RECORD_DAMAGED;
    /* Another version may lie differently behind its number: its checksum is not ours to know. */
    if (kvpi_get32(header + AT_VERSION) != KVPI_RECORD_VERSION)
        return KVPI_RECORD_VERSION_;
    const uint32_t body_bytes = kvpi_get32(header + AT_BODY_BYTES);
    if (body_bytes > header_bytes - KVPI_RECORD_FIXED ||
        kvpi_get64(header + AT_SUM) != sum_header(header, body_bytes))
        return KVPI_RECORD_DAMAGED;
    if ((kvpi_get32(header + AT_FLAGS) & KVPI_RECORD_BIG_ENDIAN) != own_byte_order())
        return KVPI_RECORD_VERSION_;
    return KVPI_RECORD_GOOD;
}

static void get_place(const uint8_t *header, struct kvpi_place *out_place)
{
    out_place->slot = kvpi_get64(header + AT_SLOT);
    out_place->generation = kvpi_get64(header + AT_GENERATION);
    out_place->written = kvpi_get64(header + AT_WRITTEN);
}

enum kvpi_record_fault kvpi_record_read_head(const uint8_t *header, uint32_t header_bytes,
                                             struct kvpi_record_head *out_head)
{
    const enum kvpi_record_fault fault = check_whole(header, header_bytes);
    if (fault != KVPI_RECORD_GOOD)
        return fault;
    out_head->kind = kvpi_get32(header + AT_KIND);
    out_head->group = kvpi_get32(header + AT_GROUP);
    out_head->slice.first_layer = kvpi_get32(header + AT_SLICE);
    out_head->slice.n_layers = kvpi_get32(header + AT_SLICE + 4);
    out_head->slice.first_head = kvpi_get32(header + AT_SLICE + 8);
    out_head->slice.n_heads = kvpi_get32(header + AT_SLICE + 12);
    out_head->block_tokens = kvpi_get32(header + AT_BLOCK_TOKENS);
    out_head->n_blocks = kvpi_get32(header + AT_N_BLOCKS);
    out_head->position = kvpi_get32(header + AT_POSITION);
    out_head->header_bytes = kvpi_get32(header + AT_HEADER_BYTES);
    out_head->payload_bytes = kvpi_get64(header + AT_PAYLOAD_BYTES);
    memcpy(out_head->fingerprint.bytes, header + AT_FINGERPRINT, DIGEST_BYTES);
    memcpy(out_head->digest.bytes, header + AT_DIGEST, DIGEST_BYTES);
    memcpy(out_head->parent.bytes, header + AT_PARENT, DIGEST_BYTES);
    out_head->space = kvpi_get64(header + AT_SPACE);
    get_place(header, &out_head->place);
    return KVPI_RECORD_GOOD;
}

/* Keys as key_valid has them, from `at` on in the body: where the last one ends; 0: they are none.
 * An offset is negative where a key begins before the record, at position 0 or later. */
static uint64_t pass_keys(const uint8_t *header, uint64_t at, uint64_t end)
{
    const uint8_t *body = header + AT_BODY;
    const int64_t n_tokens = (int64_t)at / 4;
    int64_t before = -(int64_t)kvpi_get32(header + AT_POSITION);
    for (uint32_t left = kvpi_get32(header + AT_N_KEYS); left > 0; left--) {
        if (at + KEY_FIXED > end)
            return 0;
        const int64_t offset = (int32_t)kvpi_get32(body + at + 4);
        const uint32_t n_bytes = kvpi_get32(body + at + 8);
        if (offset < before || offset >= n_tokens || n_bytes > KVP_KEY_MAX_BYTES)
            return 0;
        before = offset;
        at += KEY_FIXED + n_bytes;
    }
    return at;
}

int kvpi_record_well_formed(const uint8_t *header)
{
    const uint32_t kind = kvpi_get32(header + AT_KIND);
    const uint64_t n_blocks = kvpi_get32(header + AT_N_BLOCKS);
    const uint64_t block_tokens = kvpi_get32(header + AT_BLOCK_TOKENS);
    const uint64_t position = kvpi_get32(header + AT_POSITION);
    const uint32_t n_keys = kvpi_get32(header + AT_N_KEYS);
    const uint64_t end = kvpi_get32(header + AT_BODY_BYTES);
    if (n_blocks == 0 || n_blocks > KVP_RECORD_BLOCKS_MAX || block_tokens == 0 ||
        block_tokens > KVP_BLOCK_TOKENS_MAX || n_keys > KVPI_RECORD_KEYS_MAX ||
        position % block_tokens != 0 || kvpi_get32(header + AT_GROUP) >= KVP_GROUPS_MAX ||
        kvpi_get32(header + AT_SLICE + 4) == 0 || kvpi_get32(header + AT_SLICE + 12) == 0 ||
        kvpi_get32(header + AT_FLAGS) > (KVPI_RECORD_MAC | KVPI_RECORD_BIG_ENDIAN))
        return 0;
    if (kind == KVP_IDENTITY_KEY)
        return n_keys == 0 && end == 0;
    const uint64_t n_tokens = n_blocks * block_tokens;
    return kvpi_identity_has_tokens(kind) && position + n_tokens <= UINT32_MAX &&
           n_tokens * 4 <= end && pass_keys(header, n_tokens * 4, end) == end;
}

static int same_body(const kvp_identity *identity, const uint8_t *at, uint64_t body_bytes)
{
    const uint64_t n_tokens = n_tokens_of(identity);
    if (body_bytes != n_tokens * 4 + kvpi_identity_key_bytes(identity))
        return 0;
    for (uint64_t i = 0; i < n_tokens; i++, at += 4)
        if (kvpi_get32(at) != (uint32_t)identity->tokens[i])
            return 0;
    for (uint32_t i = 0; i < identity->n_keys; i++) {
        const kvp_key *key = &identity->keys[i];
        if (kvpi_get32(at) != key->type || kvpi_get32(at + 4) != key->begin - identity->position ||
            kvpi_get32(at + 8) != key->n_bytes)
            return 0;
        if (key->n_bytes > 0 && memcmp(at + KEY_FIXED, key->bytes, key->n_bytes) != 0)
            return 0;
        at += KEY_FIXED + key->n_bytes;
    }
    return 1;
}

static int same_identity(const kvp_identity *identity, const uint8_t *header)
{
    uint8_t expected[KVPI_RECORD_FIXED] = {0};
    put_identity(identity, expected);
    return kvpi_get32(header + AT_KIND) == identity->kind &&
           memcmp(header + AT_GROUP, expected + AT_GROUP, AT_WRITTEN - AT_GROUP) == 0 &&
           kvpi_get32(header + AT_N_KEYS) == identity->n_keys &&
           same_body(identity, header + AT_BODY, kvpi_get32(header + AT_BODY_BYTES));
}

enum kvpi_record_fault kvpi_record_check_header(const kvp_identity *identity,
                                                const struct kvpi_place *place,
                                                uint64_t payload_bytes, const uint8_t *header,
                                                uint32_t header_bytes)
{
    const enum kvpi_record_fault fault = check_whole(header, header_bytes);
    if (fault != KVPI_RECORD_GOOD)
        return fault;
    if (place && (kvpi_get64(header + AT_SLOT) != place->slot ||
                  kvpi_get64(header + AT_GENERATION) != place->generation))
        return KVPI_RECORD_PLACE;
    if (!same_identity(identity, header))
        return KVPI_RECORD_IDENTITY;
    if (kvpi_get32(header + AT_HEADER_BYTES) != header_bytes ||
        kvpi_get64(header + AT_PAYLOAD_BYTES) != payload_bytes)
        return KVPI_RECORD_LENGTH;
    return KVPI_RECORD_GOOD;
}

enum kvpi_record_fault kvpi_record_check_payload(const uint8_t *header,
                                                 const struct kvpi_span *spans, uint32_t n_spans,
                                                 struct kvpi_mac *mac)
{
    uint8_t sum[16];
    sum_payload(spans, n_spans, sum);
    if (memcmp(sum, header + AT_PAYLOAD_SUM, sizeof sum) != 0)
        return KVPI_RECORD_PAYLOAD;
    if (!mac)
        return KVPI_RECORD_GOOD;
    kvp_digest expected;
    kvp_digest code;
    memcpy(code.bytes, header + AT_CODE, DIGEST_BYTES);
    if (!(kvpi_get32(header + AT_FLAGS) & KVPI_RECORD_MAC) ||
        make_code(mac, header, kvpi_get32(header + AT_BODY_BYTES), spans, n_spans, &expected) !=
            KVP_OK ||
        !kvpi_same_code(&expected, &code))
        return KVPI_RECORD_CODE;
    return KVPI_RECORD_GOOD;
}
