/* Snapshots put together wrongly out of right records: what contradicts itself is dropped. */
#include <string.h>

#include "core/snapshot/frames.h"
#include "snaps.h"

enum { MAX_RECORDS = 64, MAX_PAYLOAD = 512, KV_BYTES = 8 };

typedef struct record {
    uint32_t kind;
    uint32_t n;
    uint8_t payload[MAX_PAYLOAD];
} record;

typedef struct records {
    record at[MAX_RECORDS];
    uint32_t n;
} records;

static int get_kv(void *context, const kvp_snapshot_block *block, void *out)
{
    (void)context;
    memset(out, block->block, KV_BYTES);
    return 0;
}

static int put_kv(void *context, const kvp_snapshot_block *block, const void *bytes)
{
    (void)context;
    return *(const uint8_t *)bytes != block->block;
}

static kvp_snapshot_options options_with(int with_kv)
{
    kvp_snapshot_options options = snap_options();
    options.block_bytes = with_kv ? KV_BYTES : 0;
    options.get = get_kv;
    options.put = put_kv;
    return options;
}

/* Two prompts that share nothing, of two units in a block each; S = 4, U = 2. The second one in
 * `second`, if it has a name. */
static records saved_in(const char *second, int with_kv)
{
    const kvp_config config = config_of(4, 2, 15);
    const kvp_snapshot_options options = options_with(with_kv);
    world w = make_world(&config);
    records r = {.n = 0};
    leave_cached(&w, ints(0), 4);
    assert_ok(kvp_ns_open(w.cache, second, strlen(second), &w.ns));
    leave_cached(&w, ints(100), 4);
    snap s = snap_of(w.cache, &options);
    for (size_t at = 8; at < s.n; r.n++) {
        struct kvpi_snap_bytes head = {s.bytes + at, s.bytes + at + 8, 0};
        record *next = &r.at[r.n];
        next->kind = kvpi_snap_get_u32(&head);
        next->n = kvpi_snap_get_u32(&head);
        memcpy(next->payload, s.bytes + at + 2 * KVPI_SNAP_HEAD, next->n);
        at += next->n + KVPI_SNAP_OVERHEAD;
    }
    snap_drop(&s);
    end_world(&w);
    return r;
}

static records saved(int with_kv)
{
    return saved_in("", with_kv);
}

static record *find(records *r, uint32_t kind, uint32_t nth)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->at[i].kind == kind && nth-- == 0)
            return &r->at[i];
    fail();
    return NULL;
}

/* Insert before the end mark. */
static record *add(records *r, uint32_t kind)
{
    r->at[r->n] = r->at[r->n - 1];
    record *added = &r->at[r->n++ - 1];
    *added = (record){.kind = kind};
    return added;
}

static void put_u32(record *r, uint32_t value)
{
    struct kvpi_snap_bytes b = {r->payload + r->n, r->payload + MAX_PAYLOAD, 0};
    kvpi_snap_put_u32(&b, value);
    r->n += 4;
}

static snap written(const records *r)
{
    uint8_t buffer[MAX_PAYLOAD + KVPI_SNAP_OVERHEAD];
    snap s = {0};
    const kvp_sink sink = snap_sink(&s);
    struct kvpi_snap_writer writer = {&sink, buffer, sizeof(buffer), 0, 0};
    assert_int_equal(sink.write(&s, KVPI_SNAP_MAGIC, 8), 0);
    for (uint32_t i = 0; i < r->n; i++) {
        struct kvpi_snap_bytes b = kvpi_snap_begin(&writer);
        kvpi_snap_put(&b, r->at[i].payload, r->at[i].n);
        kvpi_snap_end(&writer, r->at[i].kind, &b);
    }
    return s;
}

/* Load; then everything that was restored is evicted, under the audit of every call. */
static kvp_snapshot_report load(const records *r, int with_kv)
{
    const kvp_config config = config_of(4, 2, 15);
    const kvp_snapshot_options options = options_with(with_kv);
    kvp_snapshot_report report;
    snap s = written(r);
    world w = {0};
    assert_ok(kvp_cache_create(&config, NULL, 0, &w.cache));
    const kvp_source source = snap_source(&s);
    assert_ok(kvp_snapshot_load(w.cache, &options, &source, &report));
    assert_report(&report);
    assert_sound(w.cache);
    assert_int_equal(stats_of(&w).cached_blocks, report.blocks);
    assert_ok(kvp_ns_open(w.cache, NULL, 0, &w.ns));
    const int32_t *own[] = {ints(0), ints(100)};
    for (int i = 0; i < 2; i++) {
        const kvp_seq seq = open_done(&w, own[i], 5); /* what they hit must be theirs */
        int32_t tokens[4];
        uint32_t n;
        assert_ok(kvp_block_tokens(w.cache, 0, KVP_DEVICE, row_entry(&w, seq, 0), tokens, &n));
        assert_int_equal(n, 4);
        assert_memory_equal(tokens, own[i], sizeof(tokens));
        close_seq(&w, seq);
    }
    close_seq(&w, open_done(&w, ints(1000), 60));
    assert_sound(w.cache);
    kvp_cache_destroy(w.cache);
    snap_drop(&s);
    return report;
}

TEST(test_unchanged_it_is_all_there)
{
    for (int with_kv = 0; with_kv < 2; with_kv++) {
        const records r = saved(with_kv);
        const kvp_snapshot_report report = load(&r, with_kv);
        assert_fields(report, blocks, 2, units, 4, complete, 1);
    }
}

TEST(test_one_node_in_two_blocks)
{
    records r = saved(0);
    record *again = add(&r, KVPI_SNAP_BLOCK);
    *again = *find(&r, KVPI_SNAP_BLOCK, 0);
    again->payload[0] = 9; /* a block that is free */
    const kvp_snapshot_report report = load(&r, 0);
    assert_fields(report, blocks, 2, dropped_blocks[KVP_DROP_DAMAGED], 1);
}

TEST(test_one_block_for_two_nodes)
{
    records r = saved(0);
    find(&r, KVPI_SNAP_BLOCK, 1)->payload[0] = find(&r, KVPI_SNAP_BLOCK, 0)->payload[0];
    const kvp_snapshot_report report = load(&r, 0);
    assert_fields(report, blocks, 1, dropped_blocks[KVP_DROP_DAMAGED], 1);
}

TEST(test_a_block_that_ends_before_its_deepest_unit)
{
    records r = saved(0);
    record *block = find(&r, KVPI_SNAP_BLOCK, 0);
    assert_int_equal(block->payload[12], 2);
    block->payload[12] = block->payload[16] = 1; /* one place, one bit of the mask */
    const kvp_snapshot_report report = load(&r, 0);
    assert_fields(report, blocks, 1, dropped_blocks[KVP_DROP_DAMAGED], 1);
}

/* Each prompt's second unit says that it is of the other prompt's namespace. */
TEST(test_a_node_below_one_of_another_namespace)
{
    for (uint32_t number = 2; number <= 4; number += 2) {
        records r = saved_in("b", 0);
        record *node = find(&r, KVPI_SNAP_NODE, number - 1);
        assert_int_equal(node->payload[0], number);
        assert_int_equal(node->payload[8], number - 1); /* the node above */
        node->payload[4] ^= 1;
        const kvp_snapshot_report report = load(&r, 0);
        assert_fields(report, namespaces, 2, blocks, 1, dropped_blocks[KVP_DROP_DAMAGED], 1);
    }
}

TEST(test_duplicates_off_their_path)
{
    for (uint32_t node = 1; node <= 4; node++) {
        records r = saved(0);
        record *dups = add(&r, KVPI_SNAP_DUPS);
        put_u32(dups, node);
        put_u32(dups, KVP_DEVICE);
        for (uint32_t block = 0; block <= 17; block++)
            put_u32(dups, block);
        dups->n += 1; /* and half a number */
        /* The other prompt's first unit is not attached, so that a duplicate would be. */
        records without = r;
        find(&without, KVPI_SNAP_BLOCK, 0)->payload[16] = 2;
        assert_int_equal(load(&r, 0).blocks, 2);
        assert_int_equal(load(&without, 0).blocks, 2);
    }
}

TEST(test_kv_that_is_too_short_or_another_blocks)
{
    records r = saved(1);
    find(&r, KVPI_SNAP_KV, 1)->n--;
    kvp_snapshot_report report = load(&r, 1);
    assert_fields(report, blocks, 1, dropped_blocks[KVP_DROP_KV], 1);
    r = saved(1);
    find(&r, KVPI_SNAP_KV, 1)->n++;
    assert_int_equal(load(&r, 1).blocks, 1);
    r = saved(1);
    find(&r, KVPI_SNAP_KV, 0)->payload[0] ^= 1;
    assert_int_equal(load(&r, 1).blocks, 1);
    r = saved(1);
    find(&r, KVPI_SNAP_KV, 0)->payload[4] = KVP_HOST;
    assert_int_equal(load(&r, 1).blocks, 1);
}

TEST(test_block_without_its_kv_at_the_end)
{
    records r = saved(1);
    r.n = (uint32_t)(find(&r, KVPI_SNAP_KV, 1) - r.at);
    const kvp_snapshot_report report = load(&r, 1);
    assert_false(report.complete);
    assert_fields(report, blocks, 1, dropped_blocks[KVP_DROP_KV], 1);
}

/* Under right checksums: nothing is made of a configuration that no cache can have. */
TEST(test_configurations_out_of_range)
{
    static const struct {
        uint32_t at; /* where put_config writes the field */
        uint32_t value;
    } wrong[] = {
        {0, 0},
        {0, 65537},
        {4, 0},
        {4, 3},
        {8, 1},
        {8, 1u << 31},
        {12, 1u << 31},
        {16, 65},
        {36, 1u << 31},
        {48, 1},
        {52, UINT32_MAX},
        {56, 1},
        {76, 0},
        {76, UINT32_MAX},
        {104, UINT32_MAX},
        {104, 100000},
        {76, KVP_GROUPS_MAX + 1},
        {104, 256}, /* bytes of the model: there are as many */
    };
    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        records r = saved(0);
        struct kvpi_snap_bytes b = {NULL, r.at[0].payload + MAX_PAYLOAD, 0};
        kvp_snapshot_info info;
        assert_int_equal(r.at[0].kind, KVPI_SNAP_CONFIG);
        b.at = r.at[0].payload + wrong[i].at;
        kvpi_snap_put_u32(&b, wrong[i].value);
        r.at[0].n = wrong[i].value == 256 ? 108 + 256 : r.at[0].n;
        snap s = written(&r);
        const kvp_source source = snap_source(&s);
        assert_status(KVP_E_FORMAT, kvp_snapshot_peek(&source, &info));
        snap_drop(&s);
    }
}

/* Whole units. */
TEST(test_sizes_out_of_range)
{
    static const uint32_t sizes[][2] = {{8, 2}, {0, 2}, {65538, 2}, {3, 2}, {8, 0}};
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        records r = saved(0);
        kvp_snapshot_info info;
        struct kvpi_snap_bytes unit = {r.at[0].payload + 4, r.at[0].payload + MAX_PAYLOAD, 0};
        kvpi_snap_put_u32(&unit, sizes[i][1]);
        struct kvpi_snap_bytes size = {r.at[0].payload + 88, r.at[0].payload + MAX_PAYLOAD, 0};
        kvpi_snap_put_u32(&size, sizes[i][0]);
        snap s = written(&r);
        const kvp_source source = snap_source(&s);
        assert_status(i == 0 ? KVP_OK : KVP_E_FORMAT, kvp_snapshot_peek(&source, &info));
        if (i == 0)
            assert_int_equal(info.groups[0].block_tokens, 8);
        snap_drop(&s);
    }
}

/* Under right checksums, too. */
TEST(test_a_configuration_that_is_cut)
{
    const uint32_t whole = saved(0).at[0].n;
    for (uint32_t n = 0; n < whole; n++) {
        records r = saved(0);
        kvp_snapshot_info info;
        r.at[0].n = n;
        snap s = written(&r);
        const kvp_source source = snap_source(&s);
        assert_status(KVP_E_FORMAT, kvp_snapshot_peek(&source, &info));
        snap_drop(&s);
    }
}

TEST(test_a_configuration_must_come_first)
{
    records r = saved(0);
    kvp_snapshot_info info;
    r.at[0].kind = KVPI_SNAP_FREE;
    snap s = written(&r);
    const kvp_source source = snap_source(&s);
    assert_status(KVP_E_FORMAT, kvp_snapshot_peek(&source, &info));
    snap_drop(&s);
}

TEST(test_a_namespace_that_is_not_counted)
{
    records r = saved_in("b", 0);
    find(&r, KVPI_SNAP_SPACE, 1)->payload[0] = 2;
    const kvp_snapshot_report report = load(&r, 0);
    assert_fields(report, namespaces, 1, dropped_namespaces[KVP_DROP_DAMAGED], 1, blocks, 1);
}

TEST(test_a_name_that_is_too_long)
{
    records r = saved_in("b", 0);
    record *space = find(&r, KVPI_SNAP_SPACE, 1);
    assert_int_equal(space->payload[4], 1);
    space->payload[4] = (KVP_NAME_MAX_BYTES + 1) & 255;
    space->payload[5] = (KVP_NAME_MAX_BYTES + 1) >> 8;
    space->n += KVP_NAME_MAX_BYTES;
    const kvp_snapshot_report report = load(&r, 0);
    assert_fields(report, namespaces, 1, dropped_namespaces[KVP_DROP_DAMAGED], 1);
}

TEST(test_two_namespaces_of_one_name)
{
    records r = saved_in("b", 0);
    record *space = find(&r, KVPI_SNAP_SPACE, 1);
    space->payload[4] = 0; /* the first one has no name */
    space->n = 8;
    const kvp_snapshot_report report = load(&r, 0);
    assert_fields(report, namespaces, 1, dropped_namespaces[KVP_DROP_NO_ROOM], 1, blocks, 1,
                  dropped_blocks[KVP_DROP_NO_ROOM], 1);
}

/* It comes after nodes, which have taken all that there are. */
TEST(test_a_namespace_without_a_node)
{
    records r = saved_in("b", 0);
    record *at = find(&r, KVPI_SNAP_SPACE, 0); /* not that of the nodes that come first */
    const record late = *at;
    for (; at[1].kind == KVPI_SNAP_SPACE || at[1].kind == KVPI_SNAP_NODE; at++)
        *at = at[1];
    *at = late;
    snap s = written(&r);
    kvp_config config = config_of(4, 2, 15);
    kvp_cache *cache;
    kvp_snapshot_report report;
    config.max_namespaces = 2;
    config.n_nodes = 3;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    assert_ok(snap_load(&s, cache, &report));
    assert_report(&report);
    assert_sound(cache);
    assert_fields(report, namespaces, 1, dropped_namespaces[KVP_DROP_NO_ROOM], 1, blocks, 1);
    kvp_cache_destroy(cache);
    snap_drop(&s);
}

/* The null block, one that is not there, one with content, and half a number. */
TEST(test_blocks_that_are_not_free)
{
    records r = saved(0);
    record *list = find(&r, KVPI_SNAP_FREE, 0);
    assert_int_equal(list->payload[0], KVP_DEVICE);
    list->n = 4;
    for (uint32_t block = 0; block <= 3; block++)
        put_u32(list, block == 3 ? 16 : block);
    list->n += 1;
    assert_int_equal(load(&r, 0).blocks, 2);
}

/* This cache has none: blocks of one unit, and rows that adopt. */
TEST(test_duplicates_where_there_are_none)
{
    const kvp_config config = config_of(2, 2, 15);
    records r = saved(0);
    record *dups = add(&r, KVPI_SNAP_DUPS);
    put_u32(dups, 1);
    put_u32(dups, KVP_DEVICE);
    put_u32(dups, 2);
    struct kvpi_snap_bytes b = {NULL, r.at[0].payload + MAX_PAYLOAD, 0};
    b.at = r.at[0].payload;
    kvpi_snap_put_u32(&b, 2); /* tokens in a block: no block of the file fits any more */
    b.at = r.at[0].payload + 88;
    kvpi_snap_put_u32(&b, 2);
    snap s = written(&r);
    kvp_cache *cache;
    kvp_snapshot_report report;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    assert_ok(snap_load(&s, cache, &report));
    assert_report(&report);
    assert_sound(cache);
    assert_int_equal(report.blocks, 0);
    kvp_cache_destroy(cache);
    snap_drop(&s);
}

/* A record that is larger than any is passed over; the file may end within. */
TEST(test_a_record_that_is_larger_than_any)
{
    enum { LARGE = 100000 };
    static uint8_t buffer[LARGE + KVPI_SNAP_OVERHEAD];
    const records r = saved(0);
    const kvp_config config = config_of(4, 2, 15);
    size_t end = 0; /* of the large one, which comes second */
    snap s = {0};
    const kvp_sink sink = snap_sink(&s);
    struct kvpi_snap_writer writer = {&sink, buffer, sizeof(buffer), 0, 0};
    assert_int_equal(sink.write(&s, KVPI_SNAP_MAGIC, 8), 0);
    for (uint32_t i = 0; i < r.n; i++) {
        struct kvpi_snap_bytes b = kvpi_snap_begin(&writer);
        kvpi_snap_put(&b, r.at[i].payload, r.at[i].n);
        kvpi_snap_end(&writer, r.at[i].kind, &b);
        if (i == 0) {
            b = kvpi_snap_begin(&writer);
            b.at += LARGE;
            kvpi_snap_end(&writer, KVPI_SNAP_KV, &b);
            end = s.n;
        }
    }
    const size_t whole = s.n;
    for (int cut = 0; cut < 3; cut++) {
        kvp_cache *cache;
        kvp_snapshot_report report;
        s.n = cut == 0 ? whole : end - (cut == 1 ? 1 : LARGE / 2);
        assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
        assert_ok(snap_load(&s, cache, &report));
        assert_report(&report);
        assert_sound(cache);
        assert_fields(report, complete, cut == 0, damaged_records, cut == 0, blocks,
                      cut == 0 ? 2 : 0, dropped_blocks[KVP_DROP_CUT], cut == 0 ? 0 : 2);
        kvp_cache_destroy(cache);
    }
    snap_drop(&s);
}

TEST(test_records_out_of_order_or_twice)
{
    const kvp_config config = config_of(4, 2, 15);
    const kvp_snapshot_options options = snap_options();
    scoped_world w = make_world(&config);
    leave_cached(&w, ints(0), 4);
    snap s = snap_of(w.cache, NULL);
    const size_t at = 8 + KVPI_SNAP_OVERHEAD + s.bytes[12] + 256u * s.bytes[13];
    const size_t n = KVPI_SNAP_OVERHEAD + s.bytes[at + 4]; /* the namespace's, once more */
    snap twice = {0};
    const kvp_sink sink = snap_sink(&twice);
    assert_int_equal(sink.write(&twice, s.bytes, at + n), 0);
    assert_int_equal(sink.write(&twice, s.bytes + at, s.n - at), 0);
    kvp_cache *cache;
    kvp_snapshot_report report;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    const kvp_source source = snap_source(&twice);
    assert_ok(kvp_snapshot_load(cache, &options, &source, &report));
    assert_report(&report);
    assert_fields(report, damaged_records, 1, blocks, 1);
    kvp_cache_destroy(cache);
    snap_drop(&twice);
    snap_drop(&s);
}

TEST_MAIN(NULL, NULL)
