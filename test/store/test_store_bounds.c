/* Records and logs of stores, each right but for one field: at its bound it is one, one below or
 * above it is none. And inputs of fingerprints, whose error names the field. */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "bounds.h"
#include "sim_disk.h"
#include "store/file/log.h"
#include "store/file/recover.h"
#include "store/identity/identity_bytes.h"
#include "store/identity/identity_record.h"
#include "store_inputs.h"

#define NONE NO_BOUND

enum { MOST_TOKENS = KVP_BLOCK_TOKENS_MAX + 1, MOST_KEYS = KVPI_RECORD_KEYS_MAX + 1 };

/* -------------------------------------------------------------------------------------- records */

enum { TOKENS = KVP_IDENTITY_TOKENS, KEY = KVP_IDENTITY_KEY, ILL_FORMED = 100 };

/* What an identity has besides: its keys, alike but for these. */
struct record {
    kvp_identity identity;
    uint64_t blocks_before; /* its position */
    kvp_key first, second;
};

struct record_row {
    struct bound bound;
    uint32_t kind;
    size_t at; /* 4 bytes of struct record; blocks_before: 8 */
};

#define IN(field) offsetof(struct record, field)

/* One block of 16 tokens, with two keys, or named by an engine's key. */
static const struct record_row of_records[] = {
    {{"kind", 1, 1, ILL_FORMED, NONE}, TOKENS, IN(identity.kind)},
    {{"kind of another sort", KVP_IDENTITY_STATE, KVP_IDENTITY_STATE, NONE, ILL_FORMED},
     TOKENS,
     IN(identity.kind)},
    {{"n_blocks", 1, KVP_RECORD_BLOCKS_MAX, ILL_FORMED, ILL_FORMED}, TOKENS, IN(identity.n_blocks)},
    {{"n_blocks by key", 1, KVP_RECORD_BLOCKS_MAX, ILL_FORMED, ILL_FORMED},
     KEY,
     IN(identity.n_blocks)},
    {{"block_tokens", 5, KVP_BLOCK_TOKENS_MAX, NONE, ILL_FORMED},
     TOKENS,
     IN(identity.block_tokens)},
    {{"block_tokens by key", 1, KVP_BLOCK_TOKENS_MAX, ILL_FORMED, ILL_FORMED},
     KEY,
     IN(identity.block_tokens)},
    {{"position in a block", 0, 0, ILL_FORMED, ILL_FORMED}, TOKENS, IN(identity.position)},
    {{"blocks before", 0, (1u << 28) - 2, NONE, ILL_FORMED}, TOKENS, IN(blocks_before)},
    {{"blocks before by key", 0, (1u << 28) - 1, NONE, NONE}, KEY, IN(blocks_before)},
    {{"group", 0, KVP_GROUPS_MAX - 1, ILL_FORMED, ILL_FORMED}, TOKENS, IN(identity.group)},
    {{"n_layers", 1, UINT32_MAX, ILL_FORMED, NONE}, TOKENS, IN(identity.slice.n_layers)},
    {{"n_heads", 1, UINT32_MAX, ILL_FORMED, NONE}, TOKENS, IN(identity.slice.n_heads)},
    {{"n_keys", 0, KVPI_RECORD_KEYS_MAX, NONE, ILL_FORMED}, TOKENS, IN(identity.n_keys)},
    {{"n_keys by key", 0, 0, NONE, ILL_FORMED}, KEY, IN(identity.n_keys)},
    {{"bytes of a key", 0, KVP_KEY_MAX_BYTES, NONE, ILL_FORMED}, TOKENS, IN(second.n_bytes)},
    {{"begin of a key", 0, 4, ILL_FORMED, ILL_FORMED}, TOKENS, IN(first.begin)},
    {{"begin of the last key", 4, 15, ILL_FORMED, ILL_FORMED}, TOKENS, IN(second.begin)},
};

static struct record right_record(uint32_t kind)
{
    static int32_t tokens[KVP_RECORD_BLOCKS_MAX * 16 + MOST_TOKENS];
    static const uint8_t bytes[KVP_KEY_MAX_BYTES + 1];
    struct record r = {.identity = input_identity(tokens, 1, 16, 0, 7),
                       .first = {.type = 1, .begin = 4, .end = UINT32_MAX},
                       .second = {.type = 2, .begin = 4, .end = UINT32_MAX}};
    r.first.bytes = r.second.bytes = bytes;
    r.identity.kind = kind;
    r.identity.n_keys = kind == KEY ? 0 : 2;
    r.identity.tokens = kind == KEY ? NULL : tokens;
    return r;
}

/* The header that a writer makes of it, which does not ask whether it may. */
static uint32_t header_of(struct record *r, uint8_t *out, size_t most)
{
    static kvp_key keys[MOST_KEYS];
    static uint8_t payload[8];
    const struct kvpi_span span = {payload, sizeof payload};
    const struct kvpi_place place = {.slot = 3, .generation = 5};
    r->identity.keys = keys;
    r->identity.position += (uint32_t)(r->blocks_before * r->identity.block_tokens);
    for (uint32_t i = 0; i < MOST_KEYS; i++) {
        keys[i] = i == 0 ? r->first : r->second;
        keys[i].begin += r->identity.position;
    }
    assert_int_equal(kvpi_record_write(&r->identity, &place, &span, 1, NULL, (uint32_t)most, out),
                     KVP_OK);
    return (uint32_t)most;
}

static uint8_t header[1 << 20];

static void patch_record(const struct record_row *row, uint64_t value, struct record *out)
{
    const uint32_t number = (uint32_t)value;
    *out = right_record(row->kind);
    if (row->at == IN(blocks_before))
        out->blocks_before = value;
    else
        memcpy((char *)out + row->at, &number, sizeof number);
}

static int decode_record(const struct bound *bound, void *context, uint64_t value)
{
    struct record r;
    struct kvpi_record_head head;
    patch_record(context, value, &r);
    const uint32_t n = header_of(&r, header, sizeof header);
    const int fault = (int)kvpi_record_read_head(header, n, &head);
    const int good = fault == KVPI_RECORD_GOOD && kvpi_record_well_formed(header);
    /* What is read is what may be written. */
    if (kvpi_identity_valid(&r.identity) != good) {
        print_error("%s = %llu is %s\n", bound->field, (unsigned long long)value,
                    good ? "read and not written" : "written and not read");
        return -1;
    }
    return good ? 0 : fault != KVPI_RECORD_GOOD ? fault : ILL_FORMED;
}

TEST(test_records)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof of_records / sizeof *of_records; i++) {
        struct record_row row = of_records[i];
        n_wrong += bounds_wrong(&row.bound, decode_record, &row);
    }
    assert_int_equal(n_wrong, 0);
}

/* Bytes of a header, under a right checksum: what a reader that knows the identity says. */
struct header_row {
    struct bound bound;
    uint32_t at, n_bytes;
    int well_formed; /* 1: ask that of its own accord */
};

enum { HEADER_BYTES = 4096, BODY_BYTES = 16 * 4 + 2 * 12 };

static const struct header_row of_headers[] = {
    {{"version", 1, 1, KVPI_RECORD_VERSION_, KVPI_RECORD_VERSION_}, 8, 4, 0},
    {{"kind", TOKENS, TOKENS, KVPI_RECORD_IDENTITY, KVPI_RECORD_IDENTITY}, 12, 4, 0},
    {{"header bytes", HEADER_BYTES, HEADER_BYTES, KVPI_RECORD_LENGTH, KVPI_RECORD_LENGTH},
     16,
     4,
     0},
    {{"flags", 0, 1, NONE, KVPI_RECORD_VERSION_}, 20, 4, 0},
    {{"flags without a meaning", 0, 1, NONE, KVPI_RECORD_VERSION_}, 20, 4, 1},
    {{"payload bytes", 8, 8, KVPI_RECORD_LENGTH, KVPI_RECORD_LENGTH}, 24, 8, 0},
    {{"group", 0, 0, KVPI_RECORD_IDENTITY, KVPI_RECORD_IDENTITY}, 32, 4, 0},
    {{"first layer", 0, 0, KVPI_RECORD_IDENTITY, KVPI_RECORD_IDENTITY}, 36, 4, 0},
    {{"n_layers", 1, 1, KVPI_RECORD_IDENTITY, KVPI_RECORD_IDENTITY}, 40, 4, 0},
    {{"first head", 0, 0, KVPI_RECORD_IDENTITY, KVPI_RECORD_IDENTITY}, 44, 4, 0},
    {{"n_heads", 1, 1, KVPI_RECORD_IDENTITY, KVPI_RECORD_IDENTITY}, 48, 4, 0},
    {{"block_tokens", 16, 16, KVPI_RECORD_IDENTITY, KVPI_RECORD_IDENTITY}, 52, 4, 0},
    {{"n_blocks", 1, 1, KVPI_RECORD_IDENTITY, KVPI_RECORD_IDENTITY}, 56, 4, 0},
    {{"position", 0, 0, KVPI_RECORD_IDENTITY, KVPI_RECORD_IDENTITY}, 60, 4, 0},
    {{"space", 0, 0, KVPI_RECORD_IDENTITY, KVPI_RECORD_IDENTITY}, 160, 8, 0},
    {{"slot", 3, 3, KVPI_RECORD_PLACE, KVPI_RECORD_PLACE}, 176, 8, 0},
    {{"generation", 5, 5, KVPI_RECORD_PLACE, KVPI_RECORD_PLACE}, 184, 8, 0},
    {{"n_keys", 2, 2, KVPI_RECORD_IDENTITY, KVPI_RECORD_IDENTITY}, 192, 4, 0},
    {{"n_keys, alone", 2, 2, ILL_FORMED, ILL_FORMED}, 192, 4, 1},
    {{"body bytes", BODY_BYTES, BODY_BYTES, KVPI_RECORD_IDENTITY, KVPI_RECORD_IDENTITY}, 196, 4, 0},
    {{"body bytes, alone", BODY_BYTES, BODY_BYTES, ILL_FORMED, ILL_FORMED}, 196, 4, 1},
};

static int decode_header(const struct bound *bound, void *context, uint64_t value)
{
    const struct header_row *row = context;
    const struct kvpi_place place = {.slot = 3, .generation = 5};
    struct record r = right_record(TOKENS);
    struct kvpi_record_head head;
    XXH3_state_t sum;
    (void)bound;
    header_of(&r, header, HEADER_BYTES);
    for (uint32_t i = 0; i < row->n_bytes; i++)
        header[row->at + i] = (uint8_t)(value >> 8 * i);
    XXH3_64bits_reset(&sum);
    XXH3_64bits_update(&sum, header, 248);
    XXH3_64bits_update(&sum, header + KVPI_RECORD_FIXED, kvpi_get32(header + 196));
    kvpi_put64(header + 248, XXH3_64bits_digest(&sum));
    if (!row->well_formed)
        return (int)kvpi_record_check_header(&r.identity, &place, 8, header, HEADER_BYTES);
    const int fault = (int)kvpi_record_read_head(header, HEADER_BYTES, &head);
    return fault != KVPI_RECORD_GOOD || kvpi_record_well_formed(header) ? fault : ILL_FORMED;
}

TEST(test_headers)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof of_headers / sizeof *of_headers; i++) {
        struct header_row row = of_headers[i];
        n_wrong += bounds_wrong(&row.bound, decode_header, &row);
    }
    assert_int_equal(n_wrong, 0);
}

/* The most that a header's body may be. */
TEST(test_body_that_is_longer_than_its_header)
{
    struct record r = right_record(TOKENS);
    struct kvpi_record_head head;
    header_of(&r, header, HEADER_BYTES);
    assert_int_equal(kvpi_record_read_head(header, KVPI_RECORD_FIXED + BODY_BYTES, &head),
                     KVPI_RECORD_GOOD);
    assert_int_equal(kvpi_record_read_head(header, KVPI_RECORD_FIXED + BODY_BYTES - 1, &head),
                     KVPI_RECORD_DAMAGED);
}

/* ----------------------------------------------------------------------------------------- logs */

enum { SLOTS = 8, LOG_ID = 77, DAMAGED = 50, LOST = 51 };

static const struct kvpi_log_form right_form = {.slot_bytes = 8192,
                                                .header_bytes = 4096,
                                                .record_blocks = 1,
                                                .block_tokens = 16,
                                                .slab_slots = 4,
                                                .n_slots = SLOTS};

static const struct header_row of_logs[] = {
    {{"version", 1, 1, KVP_E_VERSION, KVP_E_VERSION}, 8, 4, 0},
    {{"bytes of an entry", 52, 52, KVP_E_FORMAT, KVP_E_FORMAT}, 12, 4, 0},
    {{"bytes of a slot", 1, INT64_MAX / SLOTS, KVP_E_FORMAT, KVP_E_FORMAT}, 24, 8, 0},
    {{"slots of a slab", 1, SLOTS, KVP_E_FORMAT, KVP_E_FORMAT}, 44, 4, 0},
    {{"slots", 4, INT32_MAX, KVP_E_FORMAT, KVP_E_FORMAT}, 48, 4, 0},
    {{"reserved", 0, 0, NONE, KVP_E_FORMAT}, 52, 4, 0},
};

static int open_log(const struct bound *bound, void *context, uint64_t value)
{
    const struct header_row *row = context;
    struct sim_disk *sim = sim_disk_create(1);
    const struct kvpi_disk disk = sim_disk_interface(sim);
    struct kvpi_log log;
    uint8_t bytes[KVPI_LOG_HEADER];
    (void)bound;
    assert_int_equal(kvpi_log_create(&log, &disk, "log", &right_form, LOG_ID), 0);
    kvpi_log_close(&log);
    assert_true(sim_disk_peek(sim, "log", 0, bytes, sizeof bytes));
    for (uint32_t i = 0; i < row->n_bytes; i++)
        bytes[row->at + i] = (uint8_t)(value >> 8 * i);
    kvpi_put64(bytes + 56, XXH3_64bits(bytes, 56));
    assert_true(sim_disk_poke(sim, "log", 0, bytes, sizeof bytes));
    const kvp_status status = kvpi_log_open(&log, &disk, "log", 0);
    kvpi_log_close(&log);
    sim_disk_destroy(sim);
    return (int)status;
}

TEST(test_heads_of_logs)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof of_logs / sizeof *of_logs; i++) {
        struct header_row row = of_logs[i];
        n_wrong += bounds_wrong(&row.bound, open_log, &row);
    }
    assert_int_equal(n_wrong, 0);
}

struct entry_row {
    struct bound bound;
    size_t at; /* 4 bytes of the second entry */
};

#define ENTRY(field) offsetof(struct kvpi_log_entry, field)

/* The second of two records, behind the first in slot 2 with generation 4. */
static const struct entry_row of_entries[] = {
    {{"kind", KVPI_LOG_PUT, KVPI_LOG_PUT, DAMAGED, NONE}, ENTRY(kind)},
    {{"slot", 3, SLOTS - 1, NONE, LOST}, ENTRY(slot)},
    {{"generation", 1, UINT32_MAX, LOST, NONE}, ENTRY(generation)},
    {{"slot of the record before", 2, 2, LOST, LOST}, ENTRY(parent)},
    {{"generation of the record before", 4, 4, LOST, LOST}, ENTRY(parent_generation)},
};

static int recover_entry(const struct bound *bound, void *context, uint64_t value)
{
    const struct entry_row *row = context;
    struct sim_disk *sim = sim_disk_create(1);
    const struct kvpi_disk disk = sim_disk_interface(sim);
    struct kvpi_log log;
    struct kvpi_index index;
    uint64_t n_damaged = 0;
    struct kvpi_log_entry first = {
        .kind = KVPI_LOG_PUT, .slot = 2, .generation = 4, .parent = KVPI_INDEX_NONE, .key = {1}};
    struct kvpi_log_entry entry = {.kind = KVPI_LOG_PUT,
                                   .slot = 5,
                                   .generation = 1,
                                   .parent = 2,
                                   .parent_generation = 4,
                                   .key = {2}};
    const uint32_t number = (uint32_t)value;
    const kvp_digest key = {{2}};
    (void)bound;
    memcpy((char *)&entry + row->at, &number, sizeof number);
    assert_int_equal(kvpi_log_create(&log, &disk, "log", &right_form, LOG_ID), 0);
    assert_int_equal(kvpi_log_append(&log, &first), 0);
    assert_int_equal(kvpi_log_append(&log, &entry), 0);
    assert_int_equal(kvpi_index_open(&index, SLOTS), KVP_OK);
    assert_int_equal(kvpi_recover(&log, &index, SLOTS, &n_damaged), KVP_OK);
    const int there = kvpi_index_find(&index, &key) != KVPI_INDEX_NONE;
    kvpi_index_close(&index);
    kvpi_log_close(&log);
    sim_disk_destroy(sim);
    return there ? 0 : n_damaged > 0 ? DAMAGED : LOST;
}

TEST(test_entries_of_logs)
{
    const struct entry_row drop = {{"kind, a drop", 2, 2, NONE, DAMAGED}, ENTRY(kind)};
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof of_entries / sizeof *of_entries; i++) {
        struct entry_row row = of_entries[i];
        n_wrong += bounds_wrong(&row.bound, recover_entry, &row);
    }
    assert_int_equal(n_wrong, 0);
    struct entry_row row = drop;
    assert_int_equal(recover_entry(&row.bound, &row, KVPI_LOG_DROP), LOST);
    assert_int_equal(recover_entry(&row.bound, &row, KVPI_LOG_DROP + 1), DAMAGED);
}

/* A log that is cut in its head is none; one that is cut in an entry has those before it. */
TEST(test_lengths_of_logs)
{
    for (uint64_t n = KVPI_LOG_HEADER - 1; n <= KVPI_LOG_HEADER + KVPI_LOG_ENTRY; n++) {
        struct sim_disk *sim = sim_disk_create(1);
        const struct kvpi_disk disk = sim_disk_interface(sim);
        const struct kvpi_log_entry entry = {.kind = KVPI_LOG_PUT, .generation = 1};
        struct kvpi_log log;
        assert_int_equal(kvpi_log_create(&log, &disk, "log", &right_form, LOG_ID), 0);
        assert_int_equal(kvpi_log_append(&log, &entry), 0);
        kvpi_log_close(&log);
        sim_disk_cut(sim, "log", n);
        const kvp_status status = kvpi_log_open(&log, &disk, "log", 0);
        assert_int_equal(status, n < KVPI_LOG_HEADER ? KVP_E_FORMAT : KVP_OK);
        if (status == KVP_OK)
            assert_int_equal(log.n_entries, n == KVPI_LOG_HEADER + KVPI_LOG_ENTRY);
        kvpi_log_close(&log);
        sim_disk_destroy(sim);
    }
}

/* --------------------------------------------------------------------------------- fingerprints */

struct input_row {
    struct bound bound;
    size_t at; /* 4 bytes of the input */
};

#define INPUT(field) offsetof(kvp_fingerprint_input, field)

/* The reason begins with the field's name, or its struct's. */
static const struct input_row of_inputs[] = {
    {{"rope", 0, KVP_FINGERPRINT_BYTES_MAX, NONE, 1}, INPUT(rope_bytes)},
    {{"draft", 0, KVP_FINGERPRINT_BYTES_MAX, NONE, 1}, INPUT(draft_bytes)},
    {{"type", KVP_F32, KVP_F32, 1, NONE}, INPUT(type)},
    {{"k_size", 1, KVP_HEAD_SIZE_MAX, 1, 1}, INPUT(k_size)},
    {{"v_size", 0, KVP_HEAD_SIZE_MAX, NONE, 1}, INPUT(v_size)},
    {{"model_layers", 4, KVP_LAYERS_MAX, NONE, 1}, INPUT(model_layers)},
    {{"model_heads", 4, KVP_HEADS_MAX, NONE, 1}, INPUT(model_heads)},
    {{"slice", 0, 1, NONE, 1}, INPUT(slice.first_layer)},
    {{"slice", 1, 4, 1, 1}, INPUT(slice.n_layers)},
    {{"slice", 0, 1, NONE, 1}, INPUT(slice.first_head)},
    {{"slice", 1, 4, 1, 1}, INPUT(slice.n_heads)},
    {{"block_tokens", 1, KVP_BLOCK_TOKENS_MAX, 1, 1}, INPUT(block_tokens)},
    {{"unit_tokens", 1, 1, 1, NONE}, INPUT(unit_tokens)},
    {{"n_groups", 1, KVP_GROUPS_MAX, 1, 1}, INPUT(n_groups)},
    {{"n_groups", 0, 0, NONE, 1}, INPUT(groups[0].sink_tokens)},
};

static int make_fingerprint(const struct bound *bound, void *context, uint64_t value)
{
    static const uint8_t bytes[KVP_FINGERPRINT_BYTES_MAX + 1];
    const struct input_row *row = context;
    kvp_fingerprint_input input = input_fingerprint();
    kvp_digester *digester;
    kvp_digest digest;
    const char *why;
    const uint32_t number = (uint32_t)value;
    const int of_first = row->at == INPUT(slice.first_layer) || row->at == INPUT(slice.first_head);
    input.rope = input.draft = bytes;
    input.model_layers = input.model_heads = 4;
    input.slice = of_first ? (kvp_slice){0, 3, 0, 3} : (kvp_slice){0, 4, 0, 4};
    input.unit_tokens = 1;
    memcpy((char *)&input + row->at, &number, sizeof number);
    assert_int_equal(kvp_digester_create(&digester), KVP_OK);
    const kvp_status status = kvp_fingerprint_make(digester, &input, &digest, &why);
    kvp_digester_destroy(digester);
    if (status != KVP_OK && strncmp(why, bound->field, strlen(bound->field)) != 0) {
        print_error("%s = %llu: %s\n", bound->field, (unsigned long long)value, why);
        return -1;
    }
    return status != KVP_OK;
}

TEST(test_inputs_of_fingerprints)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof of_inputs / sizeof *of_inputs; i++) {
        struct input_row row = of_inputs[i];
        n_wrong += bounds_wrong(&row.bound, make_fingerprint, &row);
    }
    assert_int_equal(n_wrong, 0);
}

TEST_MAIN(NULL, NULL)
