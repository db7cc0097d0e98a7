#include "snaps.h"

#include <stdlib.h>
#include <string.h>

#include "core/snapshot/frames.h"
#include "core/stages/table.h"

static int take_bytes(void *context, const void *bytes, size_t n)
{
    snap *s = context;
    if (s->fail_at != 0 && s->n + n > s->fail_at)
        return 1;
    if (s->n + n > s->room) {
        s->room = (s->n + n) * 2;
        s->bytes = realloc(s->bytes, s->room);
        assert_non_null(s->bytes);
    }
    memcpy(s->bytes + s->n, bytes, n);
    s->n += n;
    return 0;
}

static int give_bytes(void *context, void *out, size_t capacity, size_t *out_n)
{
    snap *s = context;
    size_t n = s->n - s->at < capacity ? s->n - s->at : capacity;
    n = s->piece != 0 && n > s->piece ? s->piece : n;
    if (s->fail_at != 0 && s->at + n > s->fail_at)
        return 1;
    memcpy(out, s->bytes + s->at, n);
    s->at += n;
    *out_n = n;
    return 0;
}

kvp_sink snap_sink(snap *s)
{
    return (kvp_sink){s, take_bytes};
}

kvp_source snap_source(snap *s)
{
    s->at = 0;
    return (kvp_source){s, give_bytes};
}

kvp_snapshot_options snap_options(void)
{
    kvp_snapshot_options options;
    kvp_snapshot_options_init(&options);
    options.model = "toy";
    options.model_bytes = 3;
    return options;
}

kvp_cache *cache_of(const kvp_config *config)
{
    kvp_cache *cache;
    assert_ok(kvp_cache_create(config, NULL, 0, &cache));
    return cache;
}

snap snap_of(kvp_cache *cache, const kvp_snapshot_options *options)
{
    const kvp_snapshot_options plain = snap_options();
    snap s = {0};
    const kvp_sink sink = snap_sink(&s);
    assert_ok(kvp_snapshot_save(cache, options == NULL ? &plain : options, &sink));
    return s;
}

void snap_drop(snap *s)
{
    free(s->bytes);
    *s = (snap){0};
}

snap snap_edit(const snap *s, int (*edit)(void *context, snap_record *record), void *context)
{
    uint8_t buffer[8192];
    snap out = {0};
    const kvp_sink sink = snap_sink(&out);
    struct kvpi_snap_writer writer = {&sink, buffer, sizeof(buffer), 0, 0};
    assert_int_equal(sink.write(&out, s->bytes, 8), 0);
    for (size_t at = 8; at < s->n;) {
        struct kvpi_snap_bytes head = {s->bytes + at, s->bytes + at + 8, 0};
        struct kvpi_snap_bytes b = kvpi_snap_begin(&writer);
        snap_record record = {.number = writer.number, .payload = b.at};
        record.kind = kvpi_snap_get_u32(&head);
        const uint32_t n = record.n = kvpi_snap_get_u32(&head);
        kvpi_snap_put(&b, s->bytes + at + 2 * KVPI_SNAP_HEAD, n);
        const int stays = edit(context, &record);
        b.at = record.payload + record.n;
        if (stays)
            kvpi_snap_end(&writer, record.kind, &b);
        at += n + KVPI_SNAP_OVERHEAD;
    }
    return out;
}

struct forge {
    uint32_t number;
    size_t byte;
    uint32_t kind;
};

static int forge_byte(void *context, snap_record *record)
{
    struct forge *forge = context;
    if (record->number == forge->number && forge->byte < record->n) {
        forge->kind = record->kind;
        record->payload[forge->byte] ^= (uint8_t)(1u << forge->byte % 8);
    }
    return 1;
}

snap snap_forge(const snap *s, uint32_t number, size_t byte, uint32_t *out_kind)
{
    struct forge forge = {number, byte, 0};
    const snap forged = snap_edit(s, forge_byte, &forge);
    *out_kind = forge.kind;
    return forged;
}

kvp_status snap_load(snap *s, kvp_cache *cache, kvp_snapshot_report *report)
{
    const kvp_snapshot_options options = snap_options();
    const kvp_source source = snap_source(s);
    return kvp_snapshot_load(cache, &options, &source, report);
}

void assert_sound(kvp_cache *cache)
{
    kvp_violation violation;
    if (kvp_cache_check(cache, 3, &violation) != KVP_OK)
        fail_msg("%s: %s (%llu)", violation.invariant, violation.detail,
                 (unsigned long long)violation.object);
}

void assert_report(const kvp_snapshot_report *report)
{
    uint64_t spaces = report->namespaces;
    uint64_t blocks = report->blocks;
    for (int i = 0; i < KVP_DROP_REASONS; i++) {
        spaces += report->dropped_namespaces[i];
        blocks += report->dropped_blocks[i];
    }
    assert_int_equal(spaces, report->saved_namespaces);
    assert_int_equal(blocks, report->saved_blocks);
    assert_int_equal(report->units + report->dropped_units, report->saved_units);
}

/* ------------------------------------------------------------------------------- the workload */

kvp_config snap_config(int which)
{
    const int has_host = which == SNAP_HOST || which == SNAP_GROUPS || which == SNAP_LEARNED;
    const int small = which == SNAP_UNITS || which == SNAP_KEEP || which == SNAP_GROUPS;
    kvp_config config =
        tiers_config(which == SNAP_KEEP ? 8 : 4, small ? 2 : 4, 60, has_host ? 25 : 0);
    config.max_seq_tokens = 512;
    config.max_unit_keys = 1;
    config.max_namespaces = 4;
    config.max_copies = 400;
    config.commit_policy = which == SNAP_KEEP ? KVP_KEEP : KVP_ADOPT;
    if (which == SNAP_OVERLAPPED || which == SNAP_STATES_STEPS)
        config.steps = KVP_STEPS_OVERLAPPED;
    config.test_hash_bits = which == SNAP_BITS ? 3 : 0;
    config.policy = which == SNAP_LEARNED ? KVP_POLICY_LEARNED : KVP_POLICY_LRU;
    if (which == SNAP_GROUPS) {
        config.n_groups = 2;
        config.groups[1] = (kvp_group){2, 9, 0};
    }
    if (which == SNAP_WINDOWED)
        config.groups[0] = (kvp_group){0, 16, 0};
    if (which == SNAP_CHUNKED)
        config.groups[0] = (kvp_group){KVP_CHUNKED, 14, 0};
    config.state_slots = which == SNAP_STATES || which == SNAP_STATES_STEPS ? 20 : 0;
    return config;
}

load_run run_begin(kvp_cache *cache, uint64_t seed)
{
    load_run run = {.cache = cache, .random = seed, .n_prefixes = 5};
    for (int i = 0; i < SNAP_SPACES; i++)
        assert_ok(kvp_ns_open(cache, "abc", (size_t)i, &run.ns[i]));
    return run;
}

static void mix(load_run *run, uint64_t value)
{
    run->digest = (run->digest ^ value) * 0x9E3779B97F4A7C15u;
    run->digest ^= run->digest >> 29;
}

static void mix_bytes(load_run *run, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mix(run, bytes[i]);
}

/* What the last call evicted. */
static void note_evicted(load_run *run)
{
    const kvp_evicted *evicted;
    uint32_t n;
    assert_ok(kvp_cache_evicted(run->cache, &evicted, &n));
    run->n_evicted += n;
    mix(run, n);
    for (uint32_t i = 0; i < n; i++) {
        mix(run, (uint64_t)evicted[i].block << 8 | evicted[i].tier * 16u | evicted[i].kept);
        mix(run, evicted[i].group);
        mix_bytes(run, evicted[i].hash.bytes, sizeof(evicted[i].hash.bytes));
    }
}

static void note_plan(load_run *run)
{
    kvp_copy copies[512];
    uint32_t n;
    kvp_config config;
    assert_ok(kvp_cache_config_get(run->cache, &config));
    if (config.steps == KVP_STEPS_OVERLAPPED) {
        uint64_t step;
        assert_ok(kvp_step_begin(run->cache, copies, 512, &n, &step));
        assert_ok(kvp_step_done(run->cache, step, NULL));
    } else {
        assert_ok(kvp_plan_take(run->cache, copies, 512, &n));
    }
    mix(run, n);
    for (uint32_t i = 0; i < n; i++) {
        mix(run, (uint64_t)copies[i].src_block << 32 | (uint32_t)copies[i].dst_block);
        mix(run, copies[i].n_tokens);
    }
}

static void note_rows(load_run *run, kvp_seq seq)
{
    kvp_config config;
    assert_ok(kvp_cache_config_get(run->cache, &config));
    for (uint32_t g = 0; g < config.n_groups; g++) {
        const int32_t *row;
        uint32_t n;
        assert_ok(kvp_seq_row(run->cache, seq, g, &row, &n));
        for (uint32_t i = 0; i < n; i++)
            mix(run, (uint32_t)row[i]);
    }
}

/* Compute up to n tokens; with recurrent state in two chunks, and a checkpoint between them. */
static void compute(load_run *run, kvp_seq seq, uint32_t n)
{
    kvp_config config;
    kvp_seq_info info;
    assert_ok(kvp_cache_config_get(run->cache, &config));
    assert_ok(kvp_seq_info_get(run->cache, seq, &info));
    const uint32_t end = (n - 1) / config.unit_tokens * config.unit_tokens;
    if (config.state_slots > 0 && end > info.computed_tokens) {
        int32_t slots[2];
        uint32_t outcome;
        assert_ok(kvp_seq_commit(run->cache, seq, end));
        assert_ok(kvp_seq_checkpoint(run->cache, seq, &outcome));
        assert_ok(kvp_seq_extend(run->cache, seq, NULL, 0, 0)); /* a slot to write */
        assert_ok(kvp_meta_states(run->cache, &seq, 1, &slots[0], &slots[1]));
        mix(run, (uint64_t)slots[0] << 32 | (uint64_t)slots[1] << 2 | outcome);
        note_evicted(run);
    }
    assert_ok(kvp_seq_commit(run->cache, seq, n));
}

/* A prompt of a family: members share a beginning of any length, keys with some. */
static void open_one(load_run *run)
{
    int32_t tokens[64];
    kvp_open_info info;
    const uint32_t family = draw(&run->random, run->n_prefixes);
    const uint32_t shared = draw(&run->random, 40);
    const uint32_t n = shared + 1 + draw(&run->random, 12);
    const int32_t own = (int32_t)(100 + draw(&run->random, 3));
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(1000 * (family + 1) + i) + (i < shared ? 0 : own);
    const kvp_key key = {7, 3, 9, 2, family & 1 ? "xy" : "xz"};
    kvp_prompt prompt = prompt_of(tokens, n);
    if (draw(&run->random, 4) == 0 && n > 9) {
        prompt.keys = &key;
        prompt.n_keys = 1;
    }
    prompt.retention = draw(&run->random, 6) == 0 ? 3 : 0;
    const kvp_ns ns = run->ns[draw(&run->random, SNAP_SPACES)];
    kvp_seq seq;
    const kvp_status status = kvp_seq_open(run->cache, ns, &prompt, &seq, &info);
    mix(run, (uint64_t)(uint32_t)status);
    if (status != KVP_OK)
        return;
    run->cached_tokens += info.cached_tokens;
    mix(run, (uint64_t)info.cached_tokens << 32 | info.stop << 16 | info.host_tokens);
    note_evicted(run);
    note_rows(run, seq);
    compute(run, seq, n);
    run->open[run->n_open++] = seq;
}

static void close_one(load_run *run)
{
    const uint32_t i = draw(&run->random, run->n_open);
    assert_ok(kvp_seq_close(run->cache, run->open[i], NULL));
    run->open[i] = run->open[--run->n_open];
}

static void extend_one(load_run *run)
{
    const kvp_seq seq = run->open[draw(&run->random, run->n_open)];
    int32_t tokens[8];
    kvp_seq_info info;
    const uint32_t n = 1 + draw(&run->random, 8);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)draw(&run->random, 3);
    const kvp_status status = kvp_seq_extend(run->cache, seq, tokens, n, 0);
    mix(run, (uint64_t)(uint32_t)status);
    if (status == KVP_OK) {
        note_evicted(run);
        note_plan(run);
        assert_ok(kvp_seq_info_get(run->cache, seq, &info));
        compute(run, seq, info.n_tokens);
        note_rows(run, seq);
    }
}

void run_on(load_run *run, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t what = draw(&run->random, 8);
        if (run->n_open == 0 || (what < 3 && run->n_open < SNAP_OPEN))
            open_one(run);
        else if (what < 6)
            extend_one(run);
        else
            close_one(run);
        note_plan(run);
    }
}

static uint64_t place_of(const load_run *run, kvp_seq seq)
{
    kvp_config config;
    assert_ok(kvp_cache_config_get(run->cache, &config));
    const uint64_t mask = ((uint64_t)1 << kvpi_handle_place_bits(config.max_seqs)) - 1;
    return seq.bits & mask;
}

void run_close(load_run *run)
{
    while (run->n_open > 0) {
        uint32_t first = 0;
        for (uint32_t i = 1; i < run->n_open; i++)
            if (place_of(run, run->open[i]) < place_of(run, run->open[first]))
                first = i;
        assert_ok(kvp_seq_close(run->cache, run->open[first], NULL));
        run->open[first] = run->open[--run->n_open];
    }
}

load_run run_again(kvp_cache *cache, const load_run *half)
{
    load_run run = run_begin(cache, 0);
    run.random = half->random;
    run.digest = half->digest;
    run.cached_tokens = half->cached_tokens;
    run.n_evicted = half->n_evicted;
    run_on(&run, 300);
    return run;
}
