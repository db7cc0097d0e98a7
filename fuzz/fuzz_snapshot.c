/* Any bytes as snapshots. The first byte says how the rest is read:
 *
 *   bit 0    1: as the file itself. 0: as pieces (kind, length in two bytes, payload), made records
 *            with right numbers, heads and checksums, behind a right configuration; nodes get the
 *            hash of their content, so that what they say is looked at. With bit 7 of the kind the
 *            record's checksum is wrong
 *   bit 1    with KV, 3 bytes a block
 *   bit 2    into a cache of fewer blocks
 *
 * Nothing may crash, or use more memory and reads than there are bytes for; what was restored is
 * sound, is what the report says, saves and loads to the same again, and can be evicted. */
#include <stdlib.h>
#include <string.h>

#include <kvpager/all.h>

#include "core/stages/hash.h"
#include "core/snapshot/frames.h"

#include "meter.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_FILE = 1 << 17, MAX_PIECE = 8192, N_HASHES = 256, U = 2, KV_BYTES = 3 };

/* 65,536 namespaces with their names' places, nodes, paths, and the largest record. */
#define SCRATCH (UINT64_C(1) << 20)

typedef struct bytes {
    uint8_t *at;
    size_t n;
    size_t read;
    size_t n_reads; /* calls of give */
} bytes;

static int append(void *context, const void *more, size_t n)
{
    bytes *b = context;
    if (b->n + n > MAX_FILE)
        return 1;
    memcpy(b->at + b->n, more, n);
    b->n += n;
    return 0;
}

static int give(void *context, void *out, size_t capacity, size_t *out_n)
{
    bytes *b = context;
    *out_n = b->n - b->read < capacity ? b->n - b->read : capacity;
    memcpy(out, b->at + b->read, *out_n);
    b->read += *out_n;
    b->n_reads++;
    return 0;
}

static int get_kv(void *context, const kvp_snapshot_block *block, void *out)
{
    (void)context;
    memset(out, block->block, KV_BYTES);
    return 0;
}

static int put_kv(void *context, const kvp_snapshot_block *block, const void *kv)
{
    (void)context;
    require(block->block > 0 && block->n_tokens > 0 && block->n_tokens <= 4);
    return *(const uint8_t *)kv == 0xEE;
}

/* What was restored, one by one. */
static void tell(void *context, const kvp_snapshot_item *item)
{
    (void)context;
    require(item->kind == KVP_SNAPSHOT_NAMESPACE || item->kind == KVP_SNAPSHOT_BLOCK);
    require(item->ns < 4 && item->name_bytes <= KVP_NAME_MAX_BYTES);
    if (item->kind == KVP_SNAPSHOT_BLOCK)
        require(item->block.block > 0 && item->n_units > 0 && item->prefix_tokens >= U);
}

/* The cache that the seeds are of. */
static kvp_cache *create(int fewer)
{
    kvp_config config;
    kvp_cache *cache;
    kvp_config_init(&config);
    config.block_tokens = 4;
    config.unit_tokens = U;
    config.n_blocks = fewer ? 9 : 61;
    config.host_blocks = fewer ? 5 : 26;
    config.max_seqs = 2;
    config.max_seq_tokens = 256;
    config.max_namespaces = 4;
    config.max_unit_keys = 1;
    config.n_groups = 2;
    config.groups[1] = (kvp_group){2, 9, 0};
    require(kvp_cache_create(&config, NULL, 0, &cache) == KVP_OK);
    return cache;
}

/* --------------------------------------------------------------------------- pieces to records */

typedef struct maker {
    struct kvpi_snap_writer writer;
    kvp_hash roots[4];
    kvp_hash hashes[N_HASHES]; /* of nodes by number */
    uint8_t buffer[MAX_PIECE + KVPI_SNAP_OVERHEAD];
} maker;

static void put_config(maker *m, int with_kv)
{
    kvp_snapshot_info info = {.block_tokens = 4,
                              .unit_tokens = U,
                              .n_blocks = 61,
                              .host_blocks = 26,
                              .n_groups = 2,
                              .max_unit_keys = 1,
                              .block_bytes = with_kv ? KV_BYTES : 0,
                              .n_namespaces = 4,
                              .n_nodes = N_HASHES,
                              .saved_blocks = 30,
                              .saved_units = 50,
                              .model_bytes = 3};
    info.groups[0] = (kvp_group){0, 0, 4};
    info.groups[1] = (kvp_group){2, 9, 4};
    memcpy(info.model, "toy", 3);
    struct kvpi_snap_bytes b = kvpi_snap_begin(&m->writer);
    kvpi_snap_put_config(&b, &info);
    kvpi_snap_end(&m->writer, KVPI_SNAP_CONFIG, &b);
}

/* The node gets the hash that its content has after the node that it names. */
static void set_hash(maker *m, uint8_t *payload, size_t n)
{
    struct kvpi_snap_bytes b = {payload, payload + n, 0};
    struct kvpi_key key;
    int32_t tokens[U];
    const uint32_t number = kvpi_snap_get_u32(&b);
    const uint32_t space = kvpi_snap_get_u32(&b) % 4;
    const uint32_t above = kvpi_snap_get_u32(&b) % N_HASHES;
    const uint8_t *hash = kvpi_snap_get(&b, 16);
    for (int i = 0; i < U; i++)
        tokens[i] = (int32_t)kvpi_snap_get_u32(&b);
    const uint32_t n_keys = kvpi_snap_get_u32(&b);
    memset(&key, 0, sizeof(key));
    if (n_keys == 1) {
        key.type = kvpi_snap_get_u32(&b);
        key.offset = (int32_t)kvpi_snap_get_u32(&b);
        key.n_bytes = kvpi_snap_get_u32(&b);
        const uint8_t *of_key =
            key.n_bytes > KVP_KEY_MAX_BYTES ? NULL : kvpi_snap_get(&b, key.n_bytes);
        if (of_key != NULL)
            memcpy(key.bytes, of_key, key.n_bytes);
    }
    if (b.bad || n_keys > 1 || key.n_bytes > KVP_KEY_MAX_BYTES)
        return;
    kvpi_hash_unit(above == 0 ? &m->roots[space] : &m->hashes[above], tokens, U, &key, n_keys,
                   &m->hashes[number % N_HASHES]);
    memcpy(payload + (hash - payload), m->hashes[number % N_HASHES].bytes, 16);
}

static void put_piece(maker *m, uint8_t kind, const uint8_t *payload, size_t n)
{
    struct kvpi_snap_bytes b = kvpi_snap_begin(&m->writer);
    kvpi_snap_put(&b, payload, n);
    if (kind == KVPI_SNAP_NODE)
        set_hash(m, b.at - n, n);
    if (kind == KVPI_SNAP_SPACE && n >= 8 && n - 8 <= KVP_NAME_MAX_BYTES)
        (void)kvp_hash_root(U, 0, payload + 8, n - 8, &m->roots[payload[0] % 4]);
    kvpi_snap_end(&m->writer, kind, &b);
}

static void put_any_piece(bytes *file, maker *m, uint8_t kind, const uint8_t *payload, size_t n)
{
    const size_t before = file->n;
    put_piece(m, kind & 0x7F, payload, n);
    if ((kind & 0x80) != 0 && file->n > before)
        file->at[file->n - 1] ^= 1;
}

static void make_file(bytes *file, const uint8_t *data, size_t size, int with_kv)
{
    maker *m = calloc(1, sizeof(*m));
    require(m != NULL);
    const kvp_sink sink = {file, append};
    m->writer.sink = &sink;
    m->writer.buffer = m->buffer;
    m->writer.capacity = sizeof(m->buffer);
    (void)append(file, KVPI_SNAP_MAGIC, 8);
    put_config(m, with_kv);
    while (size >= 3) {
        size_t n = (size_t)data[1] | (size_t)data[2] << 8;
        n = n > size - 3 ? size - 3 : n;
        n = n > MAX_PIECE ? MAX_PIECE : n;
        put_any_piece(file, m, data[0], data + 3, n);
        data += 3 + n;
        size -= 3 + n;
    }
    free(m);
}

/* ---------------------------------------------------------------------------------- what holds */

static void check_report(const kvp_cache *cache, const kvp_snapshot_report *report)
{
    kvp_stats stats;
    uint64_t blocks = report->blocks;
    uint64_t spaces = report->namespaces;
    for (int i = 0; i < KVP_DROP_REASONS; i++) {
        blocks += report->dropped_blocks[i];
        spaces += report->dropped_namespaces[i];
    }
    require(blocks == report->saved_blocks && spaces == report->saved_namespaces);
    require(report->units + report->dropped_units == report->saved_units);
    require(kvp_cache_stats_get(cache, &stats) == KVP_OK);
    require(stats.cached_blocks + stats.host_cached_blocks == report->blocks);
    require(stats.open_namespaces == report->namespaces);
}

/* Saved and loaded once more it is all there. */
static void check_again(kvp_cache *cache, const kvp_snapshot_options *options, int fewer,
                        const kvp_snapshot_report *before)
{
    bytes file = {malloc(MAX_FILE), 0, 0, 0};
    const kvp_sink sink = {&file, append};
    const kvp_source source = {&file, give};
    kvp_snapshot_report report;
    kvp_cache *other = create(fewer);
    require(file.at != NULL && kvp_snapshot_save(cache, options, &sink) == KVP_OK);
    require(kvp_snapshot_load(other, options, &source, &report) == KVP_OK);
    require(report.complete && report.damaged_records == 0);
    require(report.saved_blocks == before->blocks && report.namespaces == before->namespaces);
    require(report.blocks + report.dropped_blocks[KVP_DROP_KV] == before->blocks);
    require(kvp_cache_check(other, 3, NULL) == KVP_OK);
    kvp_cache_destroy(other);
    free(file.at);
}

/* Fill the pool: everything there is goes. */
static void evict_all(kvp_cache *cache)
{
    int32_t tokens[128];
    kvp_ns ns;
    kvp_seq seq;
    kvp_prompt prompt = {.struct_size = sizeof(prompt), .tokens = tokens};
    for (int i = 0; i < 128; i++)
        tokens[i] = i;
    if (kvp_ns_open(cache, "", 0, &ns) != KVP_OK)
        return;
    prompt.n_tokens = 128;
    if (kvp_seq_open(cache, ns, &prompt, &seq, NULL) != KVP_OK) {
        prompt.n_tokens = 16;
        require(kvp_seq_open(cache, ns, &prompt, &seq, NULL) == KVP_OK);
    }
    require(kvp_seq_commit(cache, seq, prompt.n_tokens) == KVP_OK);
    require(kvp_cache_check(cache, 3, NULL) == KVP_OK);
    require(kvp_seq_close(cache, seq, NULL) == KVP_OK);
    require(kvp_ns_close(cache, ns) == KVP_OK);
    require(kvp_cache_check(cache, 3, NULL) == KVP_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > MAX_FILE / 4)
        return 0;
    const int with_kv = (data[0] & 2) != 0;
    const int fewer = (data[0] & 4) != 0;
    bytes file = {malloc(MAX_FILE), 0, 0, 0};
    require(file.at != NULL);
    if (data[0] & 1)
        (void)append(&file, data + 1, size - 1);
    else
        make_file(&file, data + 1, size - 1, with_kv);
    const kvp_source source = {&file, give};
    kvp_snapshot_options options;
    kvp_snapshot_report report;
    kvp_snapshot_info info;
    (void)kvp_snapshot_peek(&source, &info);
    file.read = 0;
    kvp_snapshot_options_init(&options);
    options.model = "toy";
    options.model_bytes = 3;
    options.block_bytes = with_kv ? KV_BYTES : 0;
    options.get = get_kv;
    options.put = put_kv;
    options.tell = tell;
    kvp_cache *cache = create(fewer);
    meter_begin();
    const kvp_status status = kvp_snapshot_load(cache, &options, &source, &report);
    const meter used = meter_end();
    require(used.peak <= SCRATCH && used.n_asked <= 2);
    require(file.n_reads <= 16 + file.n / 8);
    require(kvp_cache_check(cache, 3, NULL) == KVP_OK);
    if (status == KVP_OK) {
        check_report(cache, &report);
        check_again(cache, &options, fewer, &report);
        evict_all(cache);
    }
    kvp_cache_destroy(cache);
    free(file.at);
    return 0;
}
