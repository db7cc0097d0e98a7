/* What outlives a process: a store on a disk, and snapshots. See sim.h. */
#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../store/sim_disk.h"
#include "../store/sim_queue.h"
#include "store/file/store_file.h"
#include "store/front.h"

/* ------------------------------------------------------------------------------------ the store */

static struct kvpi_disk interface;
static struct sim_queue queue; /* of transfers that end late, in parts and in any order */
static struct kvpi_queue_system queue_system;
static bool has_queue; /* else each is done when it begins */

static kvp_status open_on_sim(const struct kvpi_backend_config *config, void **out_self,
                              char *out_why, size_t why_bytes)
{
    const struct kvpi_engine_config engine = {.n_threads = 0,
                                              .queue = has_queue ? &queue_system : NULL};
    return kvpi_file_open(config, &interface, &engine, out_self, out_why, why_bytes);
}

static uint64_t clock_of(void *context)
{
    return ((const sim *)context)->now;
}

static const kvp_digest fingerprint = {{7}};

/* Of a block, or of a slot of the state group. */
static uint64_t bytes_of_group(const sim *s, uint32_t group)
{
    const uint32_t slots = group == s->config.n_groups
                               ? 1
                               : s->memory.groups[group].block_tokens / s->memory.entry[group];
    return slots * sizeof(uint64_t);
}

/* A block is as large for each group. */
static uint64_t bytes_of_block(const sim *s)
{
    return s->memory.S * sizeof(uint64_t);
}

static void open_store(sim *s)
{
    static struct kvpi_backend backend;
    kvp_store_config config;
    char url[64], why[300] = "";
    backend = kvpi_file_backend;
    backend.open = open_on_sim;
    interface = sim_disk_interface(s->disk);
    has_queue = s->slow_rate > 0;
    queue = (struct sim_queue){.disk = &interface,
                               .random = s->random,
                               .short_rate = 20,
                               .again_rate = 10,
                               .late_rate = s->slow_rate};
    queue_system = sim_queue_interface(&queue);
    kvp_store_config_init(&config);
    snprintf(url, sizeof url, "file:/kv?size=%" PRIu64, s->store_bytes);
    config.url = url;
    config.fingerprint = fingerprint;
    config.block_tokens = s->config.block_tokens;
    config.n_groups = s->config.n_groups + (s->states.n > 0);
    for (uint32_t g = 0; g < config.n_groups; g++) {
        config.block_bytes[g] = bytes_of_group(s, g);
        config.group_tokens[g] = g < s->config.n_groups ? s->config.groups[g].block_tokens : 0;
    }
    config.record_blocks = s->record_blocks;
    config.threads = 0;
    config.now = clock_of;
    config.now_context = s;
    if (kvpi_store_open(&config, &backend, &s->store, why, sizeof why) != KVP_OK)
        verdict_bad(&s->verdict, "kvp_store_open: %s", why);
}

static void tell_space(sim *s, uint32_t space)
{
    static const char *const names[SIM_SPACES] = {"a", "b"};
    (void)sim_ok(s, "kvp_spill_space",
                 kvp_spill_space(s->spill, s->spaces[space], names[space], 1, s->weights[space]));
}

/* What the old ones made must not be hit: in the cache, the store, or by a restart. */
void sim_new_weights(sim *s, uint32_t space)
{
    s->weights[space]++;
    (void)sim_ok(s, "kvp_ns_flush", kvp_ns_flush(s->cache, s->spaces[space]));
    tell_space(s, space);
    snap_drop(&s->saved);
    s->seen[SIM_new_weights]++;
}

static void open_spill(sim *s)
{
    kvp_spill_config config;
    char why[300] = "";
    kvp_spill_config_init(&config);
    config.cache = s->cache;
    config.store = s->store;
    config.fingerprint = fingerprint;
    config.slice = (kvp_slice){.n_layers = 1, .n_heads = 1};
    for (uint32_t g = 0; g < s->config.n_groups + (s->states.n > 0); g++) {
        config.block_bytes[g] = bytes_of_group(s, g);
        config.host[g] = g < s->config.n_groups
                             ? (kvp_spill_host){s->memory.slots[KVP_HOST], bytes_of_block(s)}
                             : (kvp_spill_host){s->states.host, config.block_bytes[g]};
    }
    config.max_states = SIM_STATES;
    config.policy = s->seed % 2 == 0 ? KVP_SPILL_SECOND : KVP_SPILL_THROUGH;
    config.max_asks = SIM_REQUESTS;
    config.min_tokens = 1;
    config.spare_blocks = sim_below(s, 5);
    config.compute_tokens_s = 1000;
    if (kvp_spill_create(&config, &s->spill, why, sizeof why) != KVP_OK) {
        verdict_bad(&s->verdict, "kvp_spill_create: %s", why);
        return;
    }
    for (uint32_t i = 0; i < SIM_SPACES; i++)
        tell_space(s, i);
}

void sim_store_begin(sim *s)
{
    open_store(s);
    if (!s->verdict.is_bad)
        open_spill(s);
}

void sim_disk_error(sim *s)
{
    sim_disk_fail_write(s->disk, 1 + sim_below(s, 20), sim_percent(s, 50) ? EIO : ENOSPC);
    s->seen[SIM_disk_errors]++;
}

void sim_store_work(sim *s)
{
    kvp_spill_answer answers[SIM_REQUESTS];
    uint32_t n = 0;
    (void)sim_ok(s, "kvp_store_work", kvp_store_work(s->store, NULL));
    (void)sim_ok(s, "kvp_spill_work", kvp_spill_work(s->spill, s->now, answers, SIM_REQUESTS, &n));
    for (uint32_t i = 0; i < n; i++)
        sim_answered(s, &answers[i]);
}

void sim_spill_reports(sim *s)
{
    for (uint32_t i = 0; i < s->step.n_seqs; i++) {
        const kvp_seq seq = s->step.seqs[i].seq;
        kvp_seq_info info;
        if (kvp_seq_info_get(s->cache, seq, &info) == KVP_OK)
            (void)sim_ok(s, "kvp_spill_sealed", kvp_spill_sealed(s->spill, seq, s->now));
    }
}

/* In between steps run, which make room and report plans. The deadline is over after 1,000 rounds;
 * what the disk has begun, a slow one ends later. */
void sim_flush_store(sim *s)
{
    enum { ROUNDS = 4000 };
    const uint64_t deadline = s->now + 1000000000;
    kvp_status status = KVP_E_AGAIN;
    for (int i = 0; i < ROUNDS && status == KVP_E_AGAIN && !s->verdict.is_bad; i++) {
        status = kvp_spill_flush(s->spill, s->now, deadline);
        sim_store_work(s);
        sim_advance(s);
        sim_device(s);
        s->now += 1000000;
    }
    if (status != KVP_OK && status != KVP_E_STATE && status != KVP_E_IO)
        verdict_bad(&s->verdict, "kvp_spill_flush does not end: %s", kvp_status_name(status));
    status = KVP_E_AGAIN;
    for (int i = 0; i < ROUNDS && status == KVP_E_AGAIN && !s->verdict.is_bad; i++) {
        status = kvp_spill_stop(s->spill, s->now);
        sim_store_work(s);
        sim_advance(s);
        sim_device(s);
    }
    (void)sim_ok(s, "kvp_spill_stop", status);
}

/* ------------------------------------------------------------------------------------ snapshots */

static uint64_t *bytes_of(sim *s, const kvp_snapshot_block *block)
{
    return block->group < s->config.n_groups
               ? sched_memory_block(&s->memory, block->tier, block->block)
               : sched_states_slot(&s->states, block->tier, block->block);
}

static size_t saved_bytes(const sim *s, const kvp_snapshot_block *block)
{
    return block->group < s->config.n_groups ? bytes_of_block(s) : sizeof(uint64_t);
}

static int get_kv(void *context, const kvp_snapshot_block *block, void *out)
{
    sim *s = context;
    memcpy(out, bytes_of(s, block), saved_bytes(s, block));
    return 0;
}

static int put_kv(void *context, const kvp_snapshot_block *block, const void *bytes)
{
    sim *s = context;
    memcpy(bytes_of(s, block), bytes, saved_bytes(s, block));
    return 0;
}

static kvp_snapshot_options options_of(sim *s)
{
    kvp_snapshot_options options;
    kvp_snapshot_options_init(&options);
    options.block_bytes = bytes_of_block(s);
    options.state_bytes = sizeof(uint64_t);
    options.context = s;
    options.get = get_kv;
    options.put = put_kv;
    return options;
}

/* Between two steps, with nothing in the plan. */
void sim_save(sim *s)
{
    const kvp_snapshot_options options = options_of(s);
    snap fresh = {0};
    const kvp_sink sink = snap_sink(&fresh);
    kvp_stats stats;
    sim_settle(s);
    if (s->n_out > 0 || !sim_ok(s, "kvp_cache_stats_get", kvp_cache_stats_get(s->cache, &stats)) ||
        stats.pending_copies > 0)
        return;
    if (sim_ok(s, "kvp_snapshot_save", kvp_snapshot_save(s->cache, &options, &sink))) {
        snap_drop(&s->saved);
        s->saved = fresh;
        s->seen[SIM_snapshots]++;
    }
}

void sim_load(sim *s)
{
    const kvp_snapshot_options options = options_of(s);
    kvp_snapshot_report report;
    if (s->saved.n == 0)
        return;
    const kvp_source source = snap_source(&s->saved);
    if (sim_ok(s, "kvp_snapshot_load", kvp_snapshot_load(s->cache, &options, &source, &report))) {
        s->seen[SIM_blocks_restored] += report.blocks;
        if (!report.complete || report.damaged_records > 0 ||
            report.blocks != report.saved_blocks) {
            verdict_bad(&s->verdict,
                        "of %" PRIu64 " blocks %" PRIu64 " were restored; dropped %" PRIu64
                        " damaged, %" PRIu64 " cut, %" PRIu64 " no room, %" PRIu64 " KV",
                        report.saved_blocks, report.blocks, report.dropped_blocks[0],
                        report.dropped_blocks[1], report.dropped_blocks[2],
                        report.dropped_blocks[4]);
        }
    }
}
