/* Snapshots, each right but for one field: at its bound all is restored, one below or above it the
 * file is refused, or what has the field is dropped. The learned policy's fields are in
 * test_snapshot_learned.c. */
#include <string.h>

#include "base/bytes.h"
#include "bounds.h"
#include "core/cache/state.h"
#include "core/snapshot/frames.h"
#include "snaps.h"

enum { U = 2, KV_BYTES = 8, MOST_KEYS = KVPI_UNIT_KEYS_MAX + 1 };

/* What came of a snapshot; of a drop, also the reason. */
enum { RECORD = 50, SPACE = 60, BLOCK = 70 };

#define FORMAT  KVP_E_FORMAT
#define NONE    NO_BOUND
#define DAMAGED KVP_DROP_DAMAGED
#define NO_ROOM KVP_DROP_NO_ROOM

enum { LENGTH = 1000 }; /* instead of a place: the record's bytes are value - 1000 more */

struct row {
    struct bound bound;
    uint32_t kind;
    uint32_t nth;
    uint32_t at;
    uint32_t n_bytes;
    uint32_t slots; /* of a snapshot with recurrent state, 0: without */
};

/* --------------------------------------------------------------------------- the first record */

/* S = 4, U = 2, 16 blocks, no host, two namespaces, four nodes. */
static const struct row of_config[] = {
    {{"block_tokens", 2, 65536, FORMAT, FORMAT}, KVPI_SNAP_CONFIG, 0, 0, 4, 0},
    {{"unit_tokens", 1, 2, FORMAT, FORMAT}, KVPI_SNAP_CONFIG, 0, 4, 4, 0},
    {{"n_blocks", 2, INT32_MAX, FORMAT, FORMAT}, KVPI_SNAP_CONFIG, 0, 8, 4, 0},
    {{"host_blocks", 0, INT32_MAX, NONE, FORMAT}, KVPI_SNAP_CONFIG, 0, 12, 4, 0},
    {{"max_unit_keys", 0, 64, NONE, FORMAT}, KVPI_SNAP_CONFIG, 0, 16, 4, 0},
    {{"block_bytes", 0, INT32_MAX, NONE, FORMAT}, KVPI_SNAP_CONFIG, 0, 36, 8, 0},
    {{"n_namespaces", 0, 65536, NONE, FORMAT}, KVPI_SNAP_CONFIG, 0, 44, 8, 0},
    {{"n_nodes", 0, UINT32_MAX - 1, NONE, FORMAT}, KVPI_SNAP_CONFIG, 0, 52, 8, 0},
    {{"n_groups", 1, 1, FORMAT, FORMAT}, KVPI_SNAP_CONFIG, 0, 76, 4, 0},
    {{"model_bytes", 5, 5, FORMAT, FORMAT}, KVPI_SNAP_CONFIG, 0, 104, 4, 0},
    {{"state_bytes without slots", 0, 0, NONE, FORMAT}, KVPI_SNAP_CONFIG, 0, 96, 8, 0},
    {{"length", LENGTH, LENGTH, FORMAT, FORMAT}, KVPI_SNAP_CONFIG, 0, LENGTH, 0, 0},
    {{"state_slots", 2, 1u << 30, FORMAT, FORMAT}, KVPI_SNAP_CONFIG, 0, 92, 4, 5},
    {{"state_bytes", 1, INT32_MAX, FORMAT, FORMAT}, KVPI_SNAP_CONFIG, 0, 96, 8, 5},
};

struct change {
    const struct row *row;
    uint64_t value;
    uint32_t left; /* records of the kind before it */
};

static int change_field(void *context, snap_record *record)
{
    struct change *change = context;
    const struct row *row = change->row;
    if (record->kind != row->kind || change->left-- > 0)
        return 1;
    if (row->slots > 0 && row->kind == KVPI_SNAP_CONFIG) { /* with bytes */
        kvpi_bytes_store(record->payload + 36, KV_BYTES, 8);
        kvpi_bytes_store(record->payload + 92, row->slots, 4);
        kvpi_bytes_store(record->payload + 96, 16, 8);
    }
    if (row->at == LENGTH) {
        record->payload[record->n] = 0;
        record->n += (uint32_t)change->value - LENGTH;
    } else {
        kvpi_bytes_store(record->payload + row->at, change->value, row->n_bytes);
    }
    return 1;
}

/* The KV of a block is its id. */
static int get_kv(void *context, const kvp_snapshot_block *block, void *out)
{
    (void)context;
    memset(out, block->block, KV_BYTES);
    return 0;
}

static int put_kv(void *context, const kvp_snapshot_block *block, const void *bytes)
{
    (void)context;
    (void)block;
    (void)bytes;
    return 0;
}

static kvp_snapshot_options options_with(int with_kv)
{
    kvp_snapshot_options options = snap_options();
    options.model = "model";
    options.model_bytes = 5;
    options.block_bytes = with_kv ? KV_BYTES : 0;
    options.get = get_kv;
    options.put = put_kv;
    return options;
}

static kvp_config config_with(uint32_t max_unit_keys)
{
    kvp_config config = config_of(4, U, 15);
    config.max_unit_keys = max_unit_keys;
    return config;
}

/* Two prompts of two units, in a namespace without a name and in one that is called b. */
static snap saved(int with_kv)
{
    const kvp_config config = config_with(64);
    const kvp_snapshot_options options = options_with(with_kv);
    world w = make_world(&config);
    leave_cached(&w, ints(0), 4);
    assert_ok(kvp_ns_open(w.cache, "b", 1, &w.ns));
    leave_cached(&w, ints(100), 4);
    snap s = snap_of(w.cache, &options);
    end_world(&w);
    return s;
}

static int peek(const struct bound *bound, void *context, uint64_t value)
{
    const struct row *row = context;
    struct change change = {row, value, row->nth};
    kvp_snapshot_info info;
    (void)bound;
    snap s = saved(0);
    snap changed = snap_edit(&s, change_field, &change);
    const kvp_source source = snap_source(&changed);
    const kvp_status status = kvp_snapshot_peek(&source, &info);
    snap_drop(&changed);
    snap_drop(&s);
    return (int)status;
}

TEST(test_configurations)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof of_config / sizeof *of_config; i++) {
        struct row row = of_config[i];
        n_wrong += bounds_wrong(&row.bound, peek, &row);
    }
    assert_int_equal(n_wrong, 0);
}

/* Each group has three numbers; more of them are like the first. */
static int add_groups(void *context, snap_record *record)
{
    const uint32_t n_groups = *(uint32_t *)context;
    if (record->number == 0) {
        uint8_t *groups = record->payload + 80;
        const size_t n_rest = record->n - 80 - 12;
        memmove(groups + (size_t)12 * n_groups, groups + 12, n_rest);
        for (uint32_t g = 0; g < n_groups; g++) {
            memset(groups + (size_t)12 * g, 0, 8);
            kvpi_bytes_store(groups + (size_t)12 * g + 8, 4, 4);
        }
        kvpi_bytes_store(record->payload + 76, n_groups, 4);
        record->n = (uint32_t)(80 + 12 * n_groups + n_rest);
    }
    return 1;
}

static int peek_groups(const struct bound *bound, void *context, uint64_t value)
{
    uint32_t n_groups = (uint32_t)value;
    kvp_snapshot_info info;
    (void)bound;
    (void)context;
    snap s = saved(0);
    snap changed = snap_edit(&s, add_groups, &n_groups);
    const kvp_source source = snap_source(&changed);
    const kvp_status status = kvp_snapshot_peek(&source, &info);
    snap_drop(&changed);
    snap_drop(&s);
    return (int)status;
}

static int set_size(void *context, snap_record *record)
{
    if (record->number == 0)
        kvpi_bytes_store(record->payload + 88, *(uint64_t *)context, 4);
    return 1;
}

static int peek_sizes(const struct bound *bound, void *context, uint64_t value)
{
    uint64_t size = value * U;
    kvp_snapshot_info info;
    (void)bound;
    (void)context;
    snap s = saved(0);
    snap changed = snap_edit(&s, set_size, &size);
    const kvp_source source = snap_source(&changed);
    const kvp_status status = kvp_snapshot_peek(&source, &info);
    snap_drop(&changed);
    snap_drop(&s);
    return (int)status;
}

TEST(test_groups)
{
    const struct bound groups = {"groups", 1, KVP_GROUPS_MAX, FORMAT, FORMAT};
    const struct bound units = {"units of a group's block", 1, 32768, FORMAT, FORMAT};
    assert_int_equal(bounds_wrong(&groups, peek_groups, NULL), 0);
    assert_int_equal(bounds_wrong(&units, peek_sizes, NULL), 0);
}

/* ---------------------------------------------------------------------------------- the rest */

static const struct row of_records[] = {
    {{"number of a namespace", 1, 1, SPACE + DAMAGED, SPACE + DAMAGED},
     KVPI_SNAP_SPACE,
     1,
     0,
     4,
     0},
    {{"name_bytes", 1, 1, SPACE + DAMAGED, SPACE + DAMAGED}, KVPI_SNAP_SPACE, 1, 4, 4, 0},
    {{"length of a namespace", LENGTH, LENGTH, SPACE + DAMAGED, SPACE + DAMAGED},
     KVPI_SNAP_SPACE,
     1,
     LENGTH,
     0,
     0},
    {{"number of a node", 2, 2, RECORD, RECORD}, KVPI_SNAP_NODE, 1, 0, 4, 0},
    {{"number of the last node", 4, 4, RECORD, RECORD}, KVPI_SNAP_NODE, 3, 0, 4, 0},
    {{"namespace of a node", 1, 1, BLOCK + DAMAGED, RECORD}, KVPI_SNAP_NODE, 1, 4, 4, 0},
    {{"node before", 3, 3, BLOCK + DAMAGED, RECORD}, KVPI_SNAP_NODE, 3, 8, 4, 0},
    {{"keys of a node without", 0, 0, NONE, RECORD}, KVPI_SNAP_NODE, 1, 36, 4, 0},
    {{"length of a node", LENGTH, LENGTH, RECORD, RECORD}, KVPI_SNAP_NODE, 1, LENGTH, 0, 0},
    {{"block", 3, 15, NONE, BLOCK + DAMAGED}, KVPI_SNAP_BLOCK, 1, 0, 4, 0},
    {{"the null block", 1, 1, BLOCK + DAMAGED, NONE}, KVPI_SNAP_BLOCK, 1, 0, 4, 0},
    {{"tier", 0, 0, NONE, BLOCK + DAMAGED}, KVPI_SNAP_BLOCK, 0, 4, 1, 0},
    {{"group", 0, 0, NONE, BLOCK + DAMAGED}, KVPI_SNAP_BLOCK, 0, 5, 1, 0},
    {{"class", 0, KVP_RETENTION_CLASSES - 1, NONE, BLOCK + DAMAGED}, KVPI_SNAP_BLOCK, 0, 6, 2, 0},
    {{"deepest node", 2, 2, BLOCK + DAMAGED, BLOCK + DAMAGED}, KVPI_SNAP_BLOCK, 0, 8, 4, 0},
    {{"units of a block", 2, 2, BLOCK + DAMAGED, BLOCK + DAMAGED}, KVPI_SNAP_BLOCK, 0, 12, 4, 0},
    {{"bits of the units", 2, 3, BLOCK + DAMAGED, BLOCK + DAMAGED}, KVPI_SNAP_BLOCK, 0, 16, 1, 0},
    {{"length of a block", LENGTH, LENGTH, BLOCK + DAMAGED, BLOCK + DAMAGED},
     KVPI_SNAP_BLOCK,
     0,
     LENGTH,
     0,
     0},
    {{"block of KV", 2, 2, BLOCK + KVP_DROP_KV, BLOCK + KVP_DROP_KV}, KVPI_SNAP_KV, 0, 0, 4, 0},
    {{"tier of KV", 0, 0, NONE, BLOCK + KVP_DROP_KV}, KVPI_SNAP_KV, 0, 4, 4, 0},
    {{"length of KV", LENGTH, LENGTH, BLOCK + KVP_DROP_KV, BLOCK + KVP_DROP_KV},
     KVPI_SNAP_KV,
     0,
     LENGTH,
     0,
     0},
};

/* What a new cache says of a snapshot. */
static int load(snap *s, const kvp_config *config, int with_kv)
{
    const kvp_snapshot_options options = options_with(with_kv);
    const kvp_source source = snap_source(s);
    kvp_snapshot_report report;
    kvp_cache *cache;
    assert_ok(kvp_cache_create(config, NULL, 0, &cache));
    assert_ok(kvp_snapshot_load(cache, &options, &source, &report));
    assert_report(&report);
    assert_sound(cache);
    kvp_cache_destroy(cache);
    if (report.damaged_records > 0)
        return RECORD;
    for (int reason = 0; reason < KVP_DROP_REASONS; reason++)
        if (report.dropped_namespaces[reason] > 0 || report.dropped_blocks[reason] > 0)
            return reason + (report.dropped_namespaces[reason] > 0 ? SPACE : BLOCK);
    return 0;
}

static int load_changed(const struct bound *bound, void *context, uint64_t value)
{
    const struct row *row = context;
    const int with_kv = row->kind == KVPI_SNAP_KV;
    const kvp_config config = config_with(64);
    struct change change = {row, value, row->nth};
    (void)bound;
    snap s = saved(with_kv);
    snap changed = snap_edit(&s, change_field, &change);
    const int result = load(&changed, &config, with_kv);
    snap_drop(&changed);
    snap_drop(&s);
    return result;
}

TEST(test_records)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof of_records / sizeof *of_records; i++) {
        struct row row = of_records[i];
        n_wrong += bounds_wrong(&row.bound, load_changed, &row);
    }
    assert_int_equal(n_wrong, 0);
}

/* A name of so many bytes. */
static int set_name(void *context, snap_record *record)
{
    const uint32_t n = *(uint32_t *)context;
    if (record->kind == KVPI_SNAP_SPACE && record->payload[0] == 1) {
        kvpi_bytes_store(record->payload + 4, n, 4);
        memset(record->payload + 8, 'x', n);
        record->n = 8 + n;
    }
    return record->kind != KVPI_SNAP_NODE && record->kind != KVPI_SNAP_BLOCK;
}

static int load_name(const struct bound *bound, void *context, uint64_t value)
{
    uint32_t n = (uint32_t)value;
    const kvp_config config = config_with(64);
    const kvp_snapshot_options options = options_with(0);
    kvp_snapshot_report report;
    kvp_cache *cache;
    (void)bound;
    (void)context;
    snap s = saved(0);
    snap changed = snap_edit(&s, set_name, &n);
    const kvp_source source = snap_source(&changed);
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    assert_ok(kvp_snapshot_load(cache, &options, &source, &report));
    kvp_cache_destroy(cache);
    snap_drop(&changed);
    snap_drop(&s);
    return report.namespaces == 2 ? 0 : SPACE;
}

TEST(test_names)
{
    const struct bound name = {"bytes of a name", 1, KVP_NAME_MAX_BYTES, NONE, SPACE};
    assert_int_equal(bounds_wrong(&name, load_name, NULL), 0);
}

/* ------------------------------------------------------------------------------------- units */

/* The second node of the first prompt, with other content and a right hash. */
struct unit {
    int32_t token;
    uint32_t n_keys;
    uint32_t key_bytes;
    int32_t offset, second_offset;
    kvp_hash above;
};

static void put_unit(snap_record *record, const struct unit *unit)
{
    static struct kvpi_key keys[MOST_KEYS];
    const int32_t tokens[U] = {2, unit->token};
    struct kvpi_snap_bytes b = {record->payload + 12, record->payload + 8000, 0};
    kvp_hash hash;
    memset(keys, 0, sizeof keys);
    for (uint32_t i = 0; i < unit->n_keys; i++) {
        keys[i].offset = i == 0 ? unit->offset : unit->second_offset;
        keys[i].n_bytes = unit->key_bytes < KVP_KEY_MAX_BYTES ? unit->key_bytes : KVP_KEY_MAX_BYTES;
    }
    kvpi_hash_unit(&unit->above, tokens, U, keys, unit->n_keys, &hash);
    kvpi_snap_put(&b, hash.bytes, sizeof hash.bytes);
    for (int i = 0; i < U; i++)
        kvpi_snap_put_u32(&b, (uint32_t)tokens[i]);
    kvpi_snap_put_u32(&b, unit->n_keys);
    for (uint32_t i = 0; i < unit->n_keys; i++) {
        kvpi_snap_put_u32(&b, keys[i].type);
        kvpi_snap_put_u32(&b, (uint32_t)keys[i].offset);
        kvpi_snap_put_u32(&b, unit->key_bytes);
        for (uint32_t k = 0; k < unit->key_bytes; k++)
            *b.at++ = 0;
    }
    record->n = (uint32_t)(b.at - record->payload);
}

static int set_unit(void *context, snap_record *record)
{
    struct unit *unit = context;
    if (record->kind == KVPI_SNAP_NODE && record->payload[0] == 1)
        memcpy(unit->above.bytes, record->payload + 12, sizeof unit->above.bytes);
    if (record->kind == KVPI_SNAP_NODE && record->payload[0] == 2)
        put_unit(record, unit);
    return 1;
}

struct unit_row {
    struct bound bound;
    uint32_t max_unit_keys; /* of the cache */
    size_t at;              /* 4 bytes of struct unit */
};

#define OF(field) offsetof(struct unit, field)

static const struct unit_row of_units[] = {
    {{"token", 0, INT32_MAX, RECORD, RECORD}, 64, OF(token)},
    {{"keys", 0, KVPI_UNIT_KEYS_MAX, NONE, RECORD}, 64, OF(n_keys)},
    {{"keys of this cache", 0, 3, NONE, BLOCK + NO_ROOM}, 3, OF(n_keys)},
    {{"bytes of a key", 0, KVP_KEY_MAX_BYTES, NONE, RECORD}, 64, OF(key_bytes)},
    {{"offset, back to the first token", (uint64_t)-2, 1, BLOCK + DAMAGED, NONE}, 64, OF(offset)},
    {{"offset of the last key", 1, 1, RECORD, RECORD}, 64, OF(second_offset)},
};

static int load_unit(const struct bound *bound, void *context, uint64_t value)
{
    const struct unit_row *row = context;
    const kvp_config config = config_with(row->max_unit_keys);
    struct unit unit = {.token = 3, .n_keys = 2, .key_bytes = 5, .offset = 1, .second_offset = 1};
    const uint32_t number = (uint32_t)value;
    (void)bound;
    memcpy((char *)&unit + row->at, &number, sizeof number);
    snap s = saved(0);
    snap changed = snap_edit(&s, set_unit, &unit);
    const int result = load(&changed, &config, 0);
    snap_drop(&changed);
    snap_drop(&s);
    return result;
}

TEST(test_units)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof of_units / sizeof *of_units; i++) {
        struct unit_row row = of_units[i];
        n_wrong += bounds_wrong(&row.bound, load_unit, &row);
    }
    assert_int_equal(n_wrong, 0);
}

TEST_MAIN(NULL, NULL)
