/* Any bytes in the directories of a file store: log, slabs, records, of the writer and of another
 * one. The first byte says what is done with them; then come edits, in order, of eight bytes each:
 *
 *   file and kind   which of the files; a raw edit, or one whose checksum is right afterwards
 *   place [3]       modulo what the kind has
 *   value [4]       that stands there from now on
 *
 * Nothing may crash or read outside. A get that succeeds gives the KV of its own identity; every
 * operation ends; what is damaged does not stop the store from taking new records; a scan gives a
 * reason for each record. */
#include <stdlib.h>
#include <string.h>

#include "store/file/store_file.h"
#include "store/file/log.h"
#include "store/file/survey.h"
#include "store/identity/identity_bytes.h"
#include "store_disk.h"

#include "require.h"
#include "store_chain.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORDS = 10, OWN = 6, EDIT_BYTES = 8, SLOTS = 30 };

#define HOME "/kv/0100000000000000"

static const char *const paths[] = {HOME "/w0/log", HOME "/w0/slab-000000", HOME "/w1/log",
                                    HOME "/w1/slab-000000"};

/* ----------------------------------------------------------------------------------- the store */

static struct store_disk good; /* as two writers left it */
static struct store_disk files;
static struct kvpi_disk disk;
static uint64_t now = UINT64_C(1700000000000000000);

static struct record records[RECORDS];

static uint64_t clock_of(void *context)
{
    (void)context;
    now += UINT64_C(1100000000);
    return now;
}

static kvp_status open_on_disk(const struct kvpi_backend_config *config, void **out_self,
                               char *out_why, size_t why_bytes)
{
    const struct kvpi_engine_config engine = {.choice = KVPI_ENGINE_THREADS};
    return kvpi_file_open(config, &disk, &engine, out_self, out_why, why_bytes);
}

static kvp_status open_store(kvp_store **out_store)
{
    static struct kvpi_backend backend;
    kvp_store_config config;
    char url[64];
    snprintf(url, sizeof url, "file:/kv?size=%d", SLOTS * (8192 + 256));
    kvp_store_config_init(&config);
    config.url = url;
    config.fingerprint.bytes[0] = 1;
    config.block_tokens = TOKENS;
    config.block_bytes[0] = BLOCK_BYTES;
    config.record_blocks = 1;
    config.key_bytes = 0;
    config.max_ops = 4;
    config.threads = 0;
    config.now = clock_of;
    backend = kvpi_file_backend;
    backend.open = open_on_disk;
    *out_store = NULL;
    return kvpi_store_open(&config, &backend, out_store, NULL, 0);
}

static uint32_t wait_for(kvp_store *store)
{
    kvp_store_done done = {0};
    uint32_t n = 0;
    for (int i = 0; i < 100 && n == 0; i++) {
        require(kvp_store_work(store, NULL) == KVP_OK);
        require(kvp_store_poll(store, &done, 1, &n) == KVP_OK);
    }
    require(n == 1);
    return done.result;
}

static uint32_t put(kvp_store *store, struct record *record)
{
    void *block = record->kv;
    require(kvp_store_put(store, &record->identity, &block, 0) == KVP_OK);
    return wait_for(store);
}

/* What comes back is the record's own KV. */
static uint32_t get(kvp_store *store, const struct record *record)
{
    uint8_t kv[BLOCK_BYTES] = {0};
    void *block = kv;
    require(kvp_store_get(store, &record->identity, &block, 0) == KVP_OK);
    const uint32_t result = wait_for(store);
    require(result != KVP_STORE_OK || memcmp(kv, record->kv, sizeof kv) == 0);
    return result;
}

/* A chain: six records by one writer, one of them dropped with the last, two by another. */
static void make_good(void)
{
    kvp_store *one;
    kvp_store *two;
    make_chain(records, RECORDS);
    disk = store_disk_interface(&files);
    require(open_store(&one) == KVP_OK && open_store(&two) == KVP_OK);
    for (int r = 0; r < OWN; r++)
        require(put(one, &records[r]) == KVP_STORE_OK);
    for (int r = OWN; r < OWN + 2; r++)
        require(put(two, &records[r]) == KVP_STORE_OK);
    require(kvp_store_drop(one, &records[OWN - 1].key, 1, 0) == KVP_OK);
    require(wait_for(one) == KVP_STORE_OK);
    require(put(one, &records[OWN - 1]) == KVP_STORE_OK);
    good = files; /* neither is closed: the logs are as they grew */
    for (int f = 0; f < STORE_DISK_FILES; f++)
        good.files[f].n_open = good.files[f].locked_by = 0;
    memset(good.handles, 0, sizeof good.handles);
    kvp_store_close(one);
    kvp_store_close(two);
}

/* ------------------------------------------------------------------------------------ the edits */

enum { RAW, CUT, LOG_HEADER, LOG_ENTRY, LOG_MORE, RECORD_FIELD, KINDS };

static void put_word(uint8_t *at, const uint8_t *value, size_t n)
{
    memcpy(at, value, n);
}

static void sum_entry(struct store_disk_file *log, uint64_t number)
{
    uint8_t *entry = log->bytes + KVPI_LOG_HEADER + number * KVPI_LOG_ENTRY;
    const uint64_t id = kvpi_get64(log->bytes + 16);
    kvpi_put64(entry + 44,
               XXH3_64bits_withSeed(entry, 44, id + number * UINT64_C(0x9E3779B97F4A7C15)));
}

static uint64_t count_entries(const struct store_disk_file *log)
{
    return log->n_bytes < KVPI_LOG_HEADER ? 0 : (log->n_bytes - KVPI_LOG_HEADER) / KVPI_LOG_ENTRY;
}

static void edit_log(struct store_disk_file *log, uint32_t kind, uint32_t place,
                     const uint8_t *value)
{
    if (log->n_bytes < KVPI_LOG_HEADER)
        return;
    if (kind == LOG_HEADER) {
        put_word(log->bytes + place % 14 * 4, value, 4);
        /* More slots are an index of gigabytes: not covered. */
        if (kvpi_get32(log->bytes + 48) > 1 << 12)
            kvpi_put32(log->bytes + 48, 1 << 12);
        kvpi_put64(log->bytes + 56, XXH3_64bits(log->bytes, 56));
        return;
    }
    uint64_t n = count_entries(log);
    if (kind == LOG_MORE && log->n_bytes + KVPI_LOG_ENTRY <= STORE_DISK_BYTES && n > 0) {
        uint8_t *end = log->bytes + KVPI_LOG_HEADER + n * KVPI_LOG_ENTRY;
        memcpy(end, log->bytes + KVPI_LOG_HEADER + place / 11 % n * KVPI_LOG_ENTRY, KVPI_LOG_ENTRY);
        log->n_bytes = KVPI_LOG_HEADER + ++n * KVPI_LOG_ENTRY;
        put_word(end + place % 11 * 4, value, 4);
        sum_entry(log, n - 1);
    } else if (kind == LOG_ENTRY && n > 0) {
        const uint64_t number = place / 11 % n;
        put_word(log->bytes + KVPI_LOG_HEADER + number * KVPI_LOG_ENTRY + place % 11 * 4, value, 4);
        sum_entry(log, number);
    }
}

static void edit_record(struct store_disk_file *slab, uint32_t place, const uint8_t *value)
{
    const uint64_t n = slab->n_bytes / 8192;
    if (n == 0)
        return;
    uint8_t *header = slab->bytes + place / 70 % n * 8192;
    put_word(header + place % 70 * 4, value, 4);
    const uint32_t body = kvpi_get32(header + 196);
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, header, 248);
    XXH3_64bits_update(&state, header + 256, body < 4096 - 256 ? body : 0);
    kvpi_put64(header + 248, XXH3_64bits_digest(&state));
}

static void edit(const uint8_t *at)
{
    struct store_disk_file *file =
        store_disk_find(&files, paths[at[0] % (sizeof paths / sizeof *paths)]);
    const uint32_t kind = at[0] / 4 % KINDS;
    const uint32_t place = at[1] | (uint32_t)at[2] << 8 | (uint32_t)at[3] << 16;
    if (!file)
        return;
    if (kind == RAW && file->n_bytes >= 4)
        put_word(file->bytes + place % (file->n_bytes - 3), at + 4, 4);
    else if (kind == CUT && file->n_bytes > 0)
        file->n_bytes -= place % file->n_bytes;
    else if (kind == RECORD_FIELD)
        edit_record(file, place, at + 4);
    else if (kind != RAW && kind != CUT)
        edit_log(file, kind, place, at + 4);
}

/* ------------------------------------------------------------------------------------- the use */

static void note_record(void *context, const kvp_store_record *record)
{
    uint32_t *n = context;
    ++*n;
    require(record->found < KVP_FOUND_KINDS && record->found != KVP_FOUND_UNREAD);
}

static void scan(void)
{
    kvp_store_scan_options options;
    uint32_t n = 0;
    kvp_store_scan_options_init(&options);
    options.depth = KVP_SCAN_PAYLOADS;
    options.record = note_record;
    options.context = &n;
    require(kvpi_survey_scan(&disk, "/kv", &options, NULL, 0) == KVP_OK);
    require(n <= 2 << 12);
}

static void clean(void)
{
    const kvp_store_match match = {.written_before = now / 1000000000};
    kvp_store_cleaned cleaned;
    (void)kvpi_survey_clean(&disk, "/kv", &match, &cleaned, NULL, 0);
}

static void use(int drops)
{
    kvp_store *store;
    if (open_store(&store) != KVP_OK)
        return;
    uint64_t bits = 0;
    kvp_digest keys[RECORDS];
    for (int r = 0; r < RECORDS; r++) {
        (void)get(store, &records[r]);
        keys[r] = records[r].key;
    }
    require(kvp_store_have(store, keys, RECORDS, &bits, 0) == KVP_OK);
    require(wait_for(store) == KVP_STORE_OK && bits >> RECORDS == 0);
    if (drops) {
        require(kvp_store_drop(store, keys + drops, 2, 0) == KVP_OK);
        require(wait_for(store) == KVP_STORE_OK);
    }
    for (int r = 0; r < RECORDS; r++)
        if (put(store, &records[r]) == KVP_STORE_OK)
            require(get(store, &records[r]) == KVP_STORE_OK);
    kvp_store_stats stats;
    require(kvp_store_stats_get(store, &stats) == KVP_OK && stats.bytes <= stats.size);
    kvp_store_close(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!records[0].identity.tokens)
        make_good();
    if (size == 0)
        return 0;
    store_disk_copy(&files, &good);
    for (size_t at = 1; at + EDIT_BYTES <= size; at += EDIT_BYTES)
        edit(data + at);
    if (data[0] & 1)
        scan();
    if (data[0] & 2)
        clean();
    use(data[0] >> 2 & 7);
    if (data[0] & 64)
        use(0);
    scan();
    for (int f = 0; f < STORE_DISK_FILES; f++)
        require(files.files[f].n_open == 0);
    return 0;
}
