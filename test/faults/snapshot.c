/* A cache under load, saved and restored: any mapping, write, read and block of KV fails. */
#include "faults.h"

#include "snaps.h"

#include <string.h>

enum { FILE_BYTES = 1 << 20, BLOCK_BYTES = 24, BLOCKS = 64, TIERS = 2 };

typedef struct file {
    uint8_t bytes[FILE_BYTES];
    size_t n, at;
} file;

/* KV of every block, by tier. */
typedef struct memory {
    uint8_t kv[TIERS][BLOCKS][BLOCK_BYTES];
} memory;

static int write_file(void *context, const void *bytes, size_t n_bytes)
{
    file *f = context;
    if (fault_comes(SEAM_write))
        return 1;
    assert_true(n_bytes <= FILE_BYTES - f->n);
    memcpy(f->bytes + f->n, bytes, n_bytes);
    f->n += n_bytes;
    return 0;
}

static int read_file(void *context, void *out_bytes, size_t capacity, size_t *out_n)
{
    file *f = context;
    const size_t left = f->n - f->at;
    if (fault_comes(SEAM_read))
        return 1;
    *out_n = left < capacity ? left : capacity;
    memcpy(out_bytes, f->bytes + f->at, *out_n);
    f->at += *out_n;
    return 0;
}

static int get_block(void *context, const kvp_snapshot_block *block, void *out_bytes)
{
    const memory *m = context;
    memcpy(out_bytes, m->kv[block->tier][block->block], BLOCK_BYTES);
    return fault_comes(SEAM_get);
}

static int put_block(void *context, const kvp_snapshot_block *block, const void *bytes)
{
    memory *m = context;
    if (fault_comes(SEAM_put))
        return 1;
    memcpy(m->kv[block->tier][block->block], bytes, BLOCK_BYTES);
    return 0;
}

static kvp_config draw_config(uint64_t seed)
{
    uint64_t random = seed;
    kvp_config config = tiers_config(4, draw(&random, 2) ? 2 : 4, 40, draw(&random, 2) ? 15 : 0);
    config.max_seq_tokens = 512;
    config.max_unit_keys = 1;
    config.max_copies = 400;
    config.commit_policy = draw(&random, 2) ? KVP_KEEP : KVP_ADOPT;
    config.steps = draw(&random, 2) ? KVP_STEPS_OVERLAPPED : KVP_STEPS_ORDERED;
    if (draw(&random, 2)) {
        config.n_groups = 2;
        config.groups[1] = (kvp_group){2, 9, 0};
    }
    return config;
}

static void fill(memory *m, uint64_t seed)
{
    uint8_t *bytes = &m->kv[0][0][0];
    for (size_t i = 0; i < sizeof(*m); i++)
        bytes[i] = (uint8_t)draw(&seed, 256);
}

static kvp_snapshot_options options_of(memory *m)
{
    kvp_snapshot_options options = snap_options();
    options.block_bytes = BLOCK_BYTES;
    options.context = m;
    options.get = get_block;
    options.put = put_block;
    return options;
}

static void save(const world *w, memory *m, file *f)
{
    const kvp_snapshot_options options = options_of(m);
    const kvp_sink sink = {f, write_file};
    CALL(w, fault_is(SEAM_mapping) ? KVP_E_NO_MEMORY : KVP_E_IO,
         (f->n = 0, kvp_snapshot_save(w->cache, &options, &sink)));
}

/* What the file says of itself; one that ends in the middle of that is none. */
static void peek(file *f)
{
    kvp_snapshot_info info;
    const kvp_source source = {f, read_file};
    CALL(NULL, KVP_E_FORMAT, (f->at = 0, kvp_snapshot_peek(&source, &info)));
    fault_mix_number(info.saved_units);
}

/* Whether all of it is there, in the cache and in the memory. */
static bool is_whole(const kvp_snapshot_report *report, const memory *saved, const memory *loaded)
{
    static const uint8_t nothing[BLOCK_BYTES];
    assert_report(report);
    for (uint32_t i = 0; i < TIERS * BLOCKS; i++) {
        const uint8_t *kv = loaded->kv[i / BLOCKS][i % BLOCKS];
        assert_true(memcmp(kv, nothing, BLOCK_BYTES) == 0 ||
                    memcmp(kv, saved->kv[i / BLOCKS][i % BLOCKS], BLOCK_BYTES) == 0);
    }
    return report->complete && report->blocks == report->saved_blocks &&
           report->units == report->saved_units;
}

/* Restore into a new cache. What a fault has cut short or left out is told, and is not there;
 * memory that the system did not give changes nothing. Then once more. */
static kvp_cache *restore(const kvp_config *config, file *f, const memory *saved)
{
    static memory loaded;
    kvp_snapshot_report report;
    world w = {0};
    const kvp_snapshot_options options = options_of(&loaded);
    const kvp_source source = {f, read_file};
    const bool is_memory = fault_is(SEAM_mapping) || fault_is(SEAM_allocation);
    memset(&loaded, 0, sizeof(loaded));
    CALL(NULL, KVP_E_NO_MEMORY, kvp_cache_create(config, NULL, 0, &w.cache));
    f->at = 0;
    fault_call call = fault_begin(&w);
    kvp_status status = kvp_snapshot_load(w.cache, &options, &source, &report);
    const bool had_happened = call.had_happened;
    (void)fault_end(&call, status, is_memory ? KVP_E_NO_MEMORY : status);
    if (had_happened || !fault_happened()) {
        assert_ok(status);
        assert_true(is_whole(&report, saved, &loaded));
        return w.cache;
    }
    assert_true(status == KVP_OK || status == (is_memory ? KVP_E_NO_MEMORY : KVP_E_FORMAT));
    assert_true(status != KVP_OK || !is_whole(&report, saved, &loaded));
    assert_sound(w.cache);
    kvp_cache_destroy(w.cache);
    return restore(config, f, saved);
}

void scene_snapshot(uint64_t seed)
{
    static file f;
    static memory m;
    const kvp_config config = draw_config(seed);
    scoped_world w = make_world(&config);
    fill(&m, seed);
    load_run run = run_begin(w.cache, seed);
    run_on(&run, 120);
    save(&w, &m, &f);
    fault_mix(f.bytes, f.n);
    run_close(&run);
    peek(&f);
    kvp_cache *restored = restore(&config, &f, &m);
    load_run on = run_begin(restored, 0);
    on.random = run.random;
    run_on(&on, 120);
    run_on(&run, 120);
    fault_mix_number(on.cached_tokens);
    fault_mix_number(on.digest);
    run_close(&run);
    run_close(&on);
    assert_sound(restored);
    kvp_cache_destroy(restored);
}
