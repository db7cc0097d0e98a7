#include "world.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "audit.h"
#include "liar.h"

enum { BAD_TIER = 77, PLACES = 64 };

static void must(world *w, kvp_status status, const char *call)
{
    if (status != KVP_OK)
        verdict_bad(&w->verdict, "%s gave %s", call, kvp_status_name(status));
}

/* ---------------------------------------------------------------------------------- open, close */

world_options world_defaults(void)
{
    return (world_options){
        .seed = 1,
        .block_tokens = 4,
        .unit_tokens = 4,
        .record_blocks = 2,
        .n_groups = 1,
        .n_blocks = 64,
        .host_blocks = 64,
        .max_ops = 64,
        .url = "memory:?size=1MiB",
        .more = {.min_tokens = 1, .load_bytes_s = UINT64_C(1000000000)},
    };
}

uint32_t world_tokens(const world_options *options, uint32_t group)
{
    const uint32_t S = options->group_tokens[group];
    return S > 0 ? S : options->block_tokens;
}

static uint32_t largest_block(const world_options *options)
{
    uint32_t S = 0;
    for (uint32_t g = 0; g < options->n_groups; g++)
        S = world_tokens(options, g) > S ? world_tokens(options, g) : S;
    return S;
}

static uint64_t world_clock(void *context)
{
    return ((world *)context)->now;
}

static void open_cache(world *w)
{
    const world_options *o = &w->options;
    kvp_config_init(&w->config);
    w->config.block_tokens = o->block_tokens;
    w->config.unit_tokens = o->unit_tokens;
    w->config.n_blocks = o->n_blocks;
    w->config.host_blocks = o->host_blocks;
    w->config.n_nodes = o->n_nodes;
    w->config.max_seqs = 16;
    w->config.max_seq_tokens = WORLD_TOKENS;
    w->config.max_namespaces = WORLD_SPACES;
    w->config.max_unit_keys = WORLD_KEYS;
    w->config.max_loads = 16;
    w->config.test_hash_bits = o->hash_bits;
    w->config.uncached_tokens = o->uncached;
    w->config.n_uncached_tokens = o->n_uncached;
    w->config.n_groups = o->n_groups;
    for (uint32_t g = 0; g < o->n_groups; g++)
        w->config.groups[g] =
            (kvp_group){o->windows[g].sink_tokens, o->windows[g].recent_tokens, o->group_tokens[g]};
    w->config.state_slots = o->state_slots;
    w->config.host_state_slots = o->host_state_slots;
    if (o->overlapped) {
        w->config.steps = KVP_STEPS_OVERLAPPED;
        w->config.max_steps_out = WORLD_STEPS;
    }
    must(w, kvp_cache_create(&w->config, NULL, 0, &w->cache), "kvp_cache_create");
    must(w, kvp_cache_config_get(w->cache, &w->config), "kvp_cache_config_get");
    const size_t S = largest_block(o);
    w->device = random_allocate(o->n_blocks * S, sizeof *w->device);
    w->host = random_allocate(o->host_blocks * S, sizeof *w->host);
    w->states[KVP_DEVICE] =
        random_allocate((o->state_slots + 1) * (size_t)WORLD_STATE, sizeof **w->states);
    w->states[KVP_HOST] =
        random_allocate((o->host_state_slots + PLACES) * (size_t)WORLD_STATE, sizeof **w->states);
}

static uint32_t n_kinds(const world_options *o)
{
    return o->n_groups + (o->state_slots > 0);
}

static uint64_t piece_bytes(const world_options *o, uint32_t group)
{
    return sizeof(uint64_t) * (group == o->n_groups ? WORLD_STATE : world_tokens(o, group));
}

static uint64_t *slot_of(world *w, uint32_t tier, int32_t block)
{
    return (tier == KVP_DEVICE ? w->device : w->host) + (size_t)block * largest_block(&w->options);
}

/* What a store is told: records that the engine moves are one block each. */
static uint32_t n_moved(const world_options *o)
{
    return o->moves ? o->record_blocks : 1;
}

static uint64_t stored_bytes(const world_options *o, uint32_t group)
{
    return o->moves ? sizeof(uint64_t) * o->record_blocks * o->block_tokens : piece_bytes(o, group);
}

static void open_store(world *w, const kvp_digest *fingerprint)
{
    kvp_store_config config;
    char why[256] = "";
    kvp_store_config_init(&config);
    config.url = w->options.url;
    config.fingerprint = *fingerprint;
    config.block_tokens = n_moved(&w->options) * w->options.block_tokens;
    config.n_groups = n_kinds(&w->options);
    for (uint32_t g = 0; g < config.n_groups; g++) {
        config.block_bytes[g] = stored_bytes(&w->options, g);
        config.group_tokens[g] = w->options.moves ? 0 : w->options.group_tokens[g];
        config.group_blocks[g] = w->options.group_blocks[g];
    }
    config.record_blocks = w->options.record_blocks / n_moved(&w->options);
    config.max_ops = w->options.max_ops;
    config.threads = 0;
    config.now = world_clock;
    config.now_context = w;
    const kvp_status status =
        w->options.lies ? kvpi_store_open(&config, &liar_backend, &w->store, why, sizeof why)
                        : kvp_store_open(&config, &w->store, why, sizeof why);
    if (status != KVP_OK)
        verdict_bad(&w->verdict, "kvp_store_open: %s", why);
}

static int move_record(world *w, const kvp_spill_record *record, int is_take)
{
    const uint32_t T = w->options.record_blocks * w->options.block_tokens;
    const kvp_range tokens = record->tokens;
    kvp_stats stats;
    const int refuses = random_percent(&w->random, w->options.refuse_rate);
    w->n_refused[is_take] += (uint64_t)refuses;
    must(w, kvp_cache_stats_get(w->cache, &stats), "kvp_cache_stats_get");
    if (tokens.begin % T != 0 || tokens.end - tokens.begin != T ||
        (uintptr_t)record->bytes % 4096 || (record->seq.bits == 0) != is_take ||
        (record->blocks != NULL) != is_take)
        verdict_bad(&w->verdict, "a record that is moved is none");
    return !refuses && (is_take || stats.pending_copies + w->n_copies == 0);
}

/* In a record each number is its complement: nothing else than these two can have moved it. */
static int give_record(void *engine, const kvp_spill_record *record)
{
    world *w = engine;
    const uint32_t S = world_tokens(&w->options, record->group);
    const int32_t *row;
    uint32_t n_row = 0;
    if (!move_record(w, record, 0))
        return 0;
    must(w, kvp_seq_row(w->cache, record->seq, record->group, &row, &n_row), "kvp_seq_row");
    for (uint32_t p = record->tokens.begin; p < record->tokens.end && !w->verdict.is_bad; p++)
        ((uint64_t *)record->bytes)[p - record->tokens.begin] =
            ~slot_of(w, KVP_DEVICE, row[p / S])[p % S];
    return 1;
}

static int take_record(void *engine, const kvp_spill_record *record)
{
    world *w = engine;
    const uint32_t S = world_tokens(&w->options, record->group);
    if (!move_record(w, record, 1))
        return 0;
    for (uint32_t p = 0; p < record->tokens.end - record->tokens.begin; p++)
        if (record->blocks[p / S] != KVP_NULL_BLOCK)
            slot_of(w, KVP_HOST, record->blocks[p / S])[p % S] = ~((uint64_t *)record->bytes)[p];
    return 1;
}

static void open_spill(world *w, const kvp_digest *fingerprint)
{
    const kvp_spill_config *more = &w->options.more;
    kvp_spill_config config;
    char why[256] = "";
    kvp_spill_config_init(&config);
    config.cache = w->cache;
    config.store = w->store;
    config.fingerprint = *fingerprint;
    config.slice = (kvp_slice){.n_layers = 1, .n_heads = 1};
    for (uint32_t g = 0; g < n_kinds(&w->options); g++) {
        const int is_state = g == w->options.n_groups;
        config.block_bytes[g] = stored_bytes(&w->options, g);
        config.host[g] = (kvp_spill_host){
            is_state ? w->states[KVP_HOST] : w->host,
            sizeof(uint64_t) * (is_state ? WORLD_STATE : largest_block(&w->options))};
    }
    if (w->options.moves) {
        memset(config.host, 0, sizeof config.host);
        config.record_blocks = w->options.record_blocks;
        config.give = give_record;
        config.take = take_record;
        config.engine = w;
    }
    config.max_states = more->max_states;
    config.policy = w->options.policy;
    config.max_asks = more->max_asks > 0 ? more->max_asks : 8;
    config.max_gets = more->max_gets > 0 ? more->max_gets : 4;
    config.max_puts = more->max_puts > 0 ? more->max_puts : 64;
    config.max_keys = more->max_keys > 0 ? more->max_keys : WORLD_KEYS;
    config.n_scratch = more->n_scratch > 0 ? more->n_scratch : 2;
    config.spare_blocks = more->spare_blocks;
    config.min_tokens = more->min_tokens;
    config.put_bytes = more->put_bytes > 0 ? more->put_bytes : config.put_bytes;
    config.put_bytes_s = more->put_bytes_s;
    config.put_bytes_day = more->put_bytes_day;
    config.get_bytes = more->get_bytes > 0 ? more->get_bytes : config.get_bytes;
    config.load_bytes_s = more->load_bytes_s > 0 ? more->load_bytes_s : config.load_bytes_s;
    config.compute_tokens_s =
        more->compute_tokens_s > 0 ? more->compute_tokens_s : config.compute_tokens_s;
    config.max_wait_ns = more->max_wait_ns > 0 ? more->max_wait_ns : config.max_wait_ns;
    config.max_tokens = more->max_tokens;
    config.note = more->note;
    config.note_context = more->note_context;
    if (kvp_spill_create(&config, &w->spill, why, sizeof why) != KVP_OK)
        verdict_bad(&w->verdict, "kvp_spill_create: %s", why);
}

static const char *const names[WORLD_SPACES] = {"one", "two"};

void world_open(world *w, const world_options *options)
{
    kvp_digest fingerprint = {{7}};
    memset(w, 0, sizeof *w);
    w->options = *options;
    w->now = UINT64_C(1000000000000);
    w->random = options->seed + 3;
    open_cache(w);
    open_store(w, &fingerprint);
    if (!w->verdict.is_bad)
        open_spill(w, &fingerprint);
    for (uint32_t i = 0; i < WORLD_SPACES && !w->verdict.is_bad; i++) {
        must(w, kvp_ns_open(w->cache, names[i], 3, &w->spaces[i]), "kvp_ns_open");
        must(w, kvp_spill_space(w->spill, w->spaces[i], names[i], 3, 0), "kvp_spill_space");
    }
}

void world_close(world *w)
{
    kvp_store_close(w->store);
    kvp_spill_destroy(w->spill);
    if (w->cache != NULL && !w->verdict.is_bad) {
        kvp_violation violation;
        if (kvp_cache_check(w->cache, 3, &violation) != KVP_OK)
            verdict_bad(&w->verdict, "%s: %s", violation.invariant, violation.detail);
    }
    kvp_cache_destroy(w->cache);
    free(w->device);
    free(w->host);
    free(w->states[KVP_DEVICE]);
    free(w->states[KVP_HOST]);
}

/* ---------------------------------------------------------------------------------------- truth */

static uint64_t mix(uint64_t state, uint64_t value)
{
    state ^= value * 0x9e3779b97f4a7c15u;
    return random_next(&state);
}

void world_truth(const world *w, world_line *line)
{
    line->weights = w->epochs[line->space];
    uint64_t kv = mix(line->weights + 1000, line->space);
    for (uint32_t p = 0; p < line->n_tokens; p++) {
        kv = mix(kv, (uint64_t)line->tokens[p]);
        for (uint32_t i = 0; i < line->n_keys; i++)
            for (uint32_t b = 0; line->keys[i].begin == p && b < line->keys[i].n_bytes; b++)
                kv = mix(kv, 500 + line->keys[i].type + ((const uint8_t *)line->keys[i].bytes)[b]);
        line->kv[p] = kv;
    }
}

uint64_t world_kv(const world_line *line, uint32_t position, uint32_t group)
{
    return mix(line->kv[position], group);
}

uint64_t world_state(const world_line *line, uint32_t n, uint32_t i)
{
    return mix(line->kv[n - 1], 9000 + i);
}

kvp_prompt world_prompt(const world_line *line)
{
    return (kvp_prompt){.struct_size = sizeof(kvp_prompt),
                        .tokens = line->tokens,
                        .n_tokens = line->n_tokens,
                        .keys = line->n_keys > 0 ? line->keys : NULL,
                        .n_keys = line->n_keys};
}

/* --------------------------------------------------------------------------------------- engine */

static uint64_t *state_of(world *w, uint32_t tier, int32_t slot)
{
    return w->states[tier] + (size_t)slot * WORLD_STATE;
}

static void report_step(world *w)
{
    if (w->step_fails[0])
        must(w, kvp_step_failed(w->cache, w->steps[0], NULL, 0, NULL), "kvp_step_failed");
    else
        must(w, kvp_step_done(w->cache, w->steps[0], NULL), "kvp_step_done");
    w->n_failed += w->step_fails[0];
    w->n_steps--;
    memmove(w->steps, w->steps + 1, w->n_steps * sizeof *w->steps);
    memmove(w->step_fails, w->step_fails + 1, w->n_steps * sizeof *w->step_fails);
}

/* The copies of a step that fails are others than they should be. */
static void begin_step(world *w)
{
    uint32_t n = 0;
    if (w->n_steps == WORLD_STEPS) {
        world_run(w);
        if (w->n_steps == WORLD_STEPS)
            report_step(w);
    }
    must(w,
         kvp_step_begin(w->cache, w->copies + w->n_copies, WORLD_COPIES - w->n_copies, &n,
                        &w->steps[w->n_steps]),
         "kvp_step_begin");
    w->step_fails[w->n_steps] = random_percent(&w->random, w->options.fail_rate);
    for (uint32_t i = 0; i < n && w->step_fails[w->n_steps]; i++)
        w->copies[w->n_copies + i].src_tier = BAD_TIER;
    w->n_copies += n;
    w->n_steps++;
}

void world_take(world *w)
{
    uint32_t n = 0;
    if (w->options.overlapped) {
        begin_step(w);
        return;
    }
    must(w, kvp_plan_take(w->cache, w->copies + w->n_copies, WORLD_COPIES - w->n_copies, &n),
         "kvp_plan_take");
    w->n_copies += n;
    w->n_plans++;
    if (w->spill != NULL) {
        must(w, kvp_spill_copies(w->spill, w->copies + w->n_copies, WORLD_COPIES - w->n_copies, &n),
             "kvp_spill_copies");
        w->n_copies += n;
    }
}

static void run_copies(world *w)
{
    for (uint32_t i = 0; i < w->n_copies; i++) {
        const kvp_copy *copy = &w->copies[i];
        if (copy->src_tier == BAD_TIER) {
            memset(slot_of(w, copy->dst_tier, copy->dst_block), 0xBB,
                   copy->n_tokens * sizeof(uint64_t));
            continue;
        }
        if (copy->group == w->options.n_groups) {
            memcpy(state_of(w, copy->dst_tier, copy->dst_block),
                   state_of(w, copy->src_tier, copy->src_block), WORLD_STATE * sizeof(uint64_t));
            continue;
        }
        memmove(slot_of(w, copy->dst_tier, copy->dst_block),
                slot_of(w, copy->src_tier, copy->src_block), copy->n_tokens * sizeof(uint64_t));
    }
    w->n_copies = 0;
}

void world_run(world *w)
{
    run_copies(w);
    if (!w->options.overlapped) {
        must(w, kvp_plan_done(w->cache, w->n_plans), "kvp_plan_done");
        return;
    }
    while (w->n_steps > w->keep_out)
        report_step(w);
}

static bool sees(const world *w, uint32_t group, uint32_t query, uint32_t key)
{
    const kvp_window *window = &w->options.windows[group];
    if (window->sink_tokens == KVP_CHUNKED)
        return key / window->recent_tokens >= query / window->recent_tokens;
    return window->recent_tokens == 0 || key < window->sink_tokens ||
           key + window->recent_tokens > query;
}

/* Is the state that the next step reads the one after n tokens? */
static void read_state(world *w, kvp_seq seq, const world_line *line, uint32_t n)
{
    kvp_state_info info;
    if (w->options.state_slots == 0 || w->verdict.is_bad)
        return;
    must(w, kvp_seq_state_get(w->cache, seq, &info), "kvp_seq_state_get");
    if (n == 0 || info.lost)
        return;
    w->n_states_read++;
    for (uint32_t i = 0; i < WORLD_STATE && !w->verdict.is_bad; i++)
        if (info.read_slot == 0 ||
            state_of(w, KVP_DEVICE, (int32_t)info.read_slot)[i] != world_state(line, n, i))
            verdict_bad(&w->verdict, "slot %" PRIu32 " is not the state after %" PRIu32 " tokens",
                        info.read_slot, n);
}

static void write_state(world *w, kvp_seq seq, const world_line *line, uint32_t n)
{
    int32_t slot = 0;
    if (w->options.state_slots == 0)
        return;
    must(w, kvp_meta_states(w->cache, &seq, 1, NULL, &slot), "kvp_meta_states");
    for (uint32_t i = 0; i < WORLD_STATE; i++)
        state_of(w, KVP_DEVICE, slot)[i] = world_state(line, n, i);
}

/* Where the next chunk ends: not beyond a place where a state is to be kept. */
static uint32_t chunk_end(world *w, kvp_seq seq, uint32_t at, uint32_t end)
{
    kvp_state_info info = {0};
    if (w->options.state_slots > 0)
        must(w, kvp_seq_state_get(w->cache, seq, &info), "kvp_seq_state_get");
    if (info.prompt_end > at && info.prompt_end < end)
        end = info.prompt_end;
    if (info.branch_end > at && info.branch_end < end)
        end = info.branch_end;
    return end;
}

static void keep_state(world *w, kvp_seq seq, uint32_t at)
{
    kvp_state_info info = {0};
    if (w->options.state_slots == 0 || at % w->options.unit_tokens != 0)
        return;
    must(w, kvp_seq_state_get(w->cache, seq, &info), "kvp_seq_state_get");
    if (at == info.prompt_end || at == info.branch_end ||
        random_percent(&w->random, w->options.keep_rate)) {
        const kvp_status status = kvp_seq_checkpoint(w->cache, seq, NULL);
        if (status != KVP_E_STATE) /* no node was free for the unit */
            must(w, status, "kvp_seq_checkpoint");
    }
}

void world_read(world *w, kvp_seq seq, const world_line *line, uint32_t n_tokens)
{
    read_state(w, seq, line, n_tokens);
    const uint32_t query = n_tokens < line->n_tokens ? n_tokens : line->n_tokens - 1;
    for (uint32_t g = 0; g < w->options.n_groups; g++) {
        const uint32_t S = world_tokens(&w->options, g);
        const int32_t *row;
        uint32_t n_row = 0;
        must(w, kvp_seq_row(w->cache, seq, g, &row, &n_row), "kvp_seq_row");
        for (uint32_t p = 0; p < n_tokens && !w->verdict.is_bad; p++) {
            if (!sees(w, g, query, p))
                continue;
            const uint64_t kv = slot_of(w, KVP_DEVICE, row[p / S])[p % S];
            w->n_read++;
            if (row[p / S] == KVP_NULL_BLOCK || kv != world_kv(line, p, g))
                verdict_bad(&w->verdict,
                            "group %" PRIu32 ", token %" PRIu32 " of %" PRIu32 ": block %" PRId32
                            " has foreign KV",
                            g, p, n_tokens, row[p / S]);
        }
    }
}

static void write_kv(world *w, kvp_seq seq, const world_line *line, kvp_range tokens, bool fails)
{
    for (uint32_t g = 0; g < w->options.n_groups; g++) {
        const uint32_t S = world_tokens(&w->options, g);
        const int32_t *row;
        uint32_t n_row = 0;
        must(w, kvp_seq_row(w->cache, seq, g, &row, &n_row), "kvp_seq_row");
        for (uint32_t p = tokens.begin; p < tokens.end; p++)
            slot_of(w, KVP_DEVICE, row[p / S])[p % S] = world_kv(line, p, g) ^ (fails ? 5 : 0);
    }
}

/* Step after step: each takes its plan, computes, and says what will be there when it is done. */
static void compute_steps(world *w, const world_line *line, kvp_seq seq, uint32_t at)
{
    const uint32_t step = 3 * w->options.block_tokens;
    while (at < line->n_tokens && !w->verdict.is_bad) {
        const uint32_t n = line->n_tokens - at < step ? line->n_tokens - at : step;
        const uint32_t end = at + n;
        begin_step(w);
        const bool fails = w->step_fails[w->n_steps - 1];
        must(w, kvp_step_commit(w->cache, w->steps[w->n_steps - 1], &seq, &end, 1),
             "kvp_step_commit");
        run_copies(w);
        write_kv(w, seq, line, (kvp_range){at, end}, fails);
        world_run(w);
        must(w, kvp_spill_sealed(w->spill, seq, w->now), "kvp_spill_sealed");
        world_audit(w);
        at = end;
        if (fails) /* what comes after would be computed from it */
            return;
    }
}

/* Chunk after chunk, each reported when it is committed. */
static void compute_chunks(world *w, const world_line *line, kvp_seq seq, uint32_t at)
{
    const uint32_t step = 3 * w->options.block_tokens;
    while (at < line->n_tokens && !w->verdict.is_bad) {
        const uint32_t end = line->n_tokens - at < step ? line->n_tokens : at + step;
        const uint32_t n = chunk_end(w, seq, at, end) - at;
        world_run(w);
        read_state(w, seq, line, at);
        write_kv(w, seq, line, (kvp_range){at, at + n}, false);
        write_state(w, seq, line, at + n);
        must(w, kvp_seq_commit(w->cache, seq, at + n), "kvp_seq_commit");
        keep_state(w, seq, at + n);
        must(w, kvp_spill_sealed(w->spill, seq, w->now), "kvp_spill_sealed");
        world_audit(w);
        at += n;
        world_take(w);
        if (!w->is_lazy)
            world_run(w);
    }
}

kvp_status world_again(world *w, const world_line *line, kvp_seq seq, uint32_t from)
{
    kvp_status status = kvp_seq_truncate(w->cache, seq, from, NULL);
    if (status == KVP_OK)
        status = kvp_seq_extend(w->cache, seq, line->tokens + from, line->n_tokens - from, 0);
    if (status != KVP_OK)
        return status;
    world_take(w);
    const bool fails = w->options.overlapped && w->step_fails[w->n_steps - 1];
    world_run(w);
    if (fails)
        return KVP_OK;
    world_read(w, seq, line, from);
    if (w->options.overlapped)
        compute_steps(w, line, seq, from);
    else
        compute_chunks(w, line, seq, from);
    return KVP_OK;
}

kvp_status world_compute(world *w, const world_line *line, kvp_seq *out_seq,
                         kvp_open_info *out_info)
{
    const kvp_prompt prompt = world_prompt(line);
    const kvp_status status =
        kvp_seq_open(w->cache, w->spaces[line->space], &prompt, out_seq, out_info);
    if (status != KVP_OK)
        return status;
    must(w, kvp_spill_hit(w->spill, *out_seq, out_info->hit_tokens, w->now), "kvp_spill_hit");
    world_audit(w);
    world_take(w);
    if (w->options.overlapped) {
        const bool fails = w->step_fails[w->n_steps - 1];
        world_run(w);
        if (!fails) {
            world_read(w, *out_seq, line, out_info->hit_tokens);
            compute_steps(w, line, *out_seq, out_info->hit_tokens);
        }
        return KVP_OK;
    }
    world_run(w);
    world_read(w, *out_seq, line, out_info->hit_tokens);
    compute_chunks(w, line, *out_seq, out_info->hit_tokens);
    return KVP_OK;
}

/* ---------------------------------------------------------------------------------------- store */

void world_store(world *w)
{
    int idle = 0;
    for (int i = 0; i < 1000 && !idle; i++)
        must(w, kvp_store_work(w->store, &idle), "kvp_store_work");
}

kvp_spill_stats world_stats(const world *w)
{
    kvp_spill_stats stats = {0};
    (void)kvp_spill_stats_get(w->spill, &stats);
    return stats;
}

void world_audit(world *w)
{
    const char *wrong = w->spill == NULL ? NULL : spill_audit(w->spill);
    if (wrong != NULL)
        verdict_bad(&w->verdict, "the spill's audit: %s", wrong);
}

kvp_spill_answer world_settle(world *w)
{
    kvp_spill_answer last = {0};
    kvp_spill_stats stats = {.waiting = 1};
    for (int i = 0; i < 1000 && (i < 4 || stats.waiting + stats.puts + stats.gets > 0); i++) {
        kvp_spill_answer answers[8];
        uint32_t n = 0;
        w->now += 1000000;
        world_store(w);
        world_take(w);
        world_run(w);
        must(w, kvp_spill_work(w->spill, w->now, answers, 8, &n), "kvp_spill_work");
        if (n > 0)
            last = answers[n - 1];
        stats = world_stats(w);
        world_audit(w);
    }
    if (stats.waiting + stats.puts + stats.gets > 0)
        verdict_bad(&w->verdict, "it does not settle");
    return last;
}

kvp_spill_answer world_ask_now(world *w, const world_line *line, uint64_t tag)
{
    const kvp_prompt prompt = world_prompt(line);
    const kvp_spill_request request = {
        .struct_size = sizeof request, .tag = tag, .deadline_ns = UINT64_MAX};
    kvp_spill_answer answer = {0};
    must(w, kvp_spill_ask(w->spill, w->spaces[line->space], &prompt, &request, w->now, &answer),
         "kvp_spill_ask");
    world_audit(w);
    return answer;
}

kvp_spill_answer world_ask(world *w, const world_line *line, uint64_t tag)
{
    const kvp_spill_answer answer = world_ask_now(w, line, tag);
    return answer.outcome == KVP_SPILL_WAITS ? world_settle(w) : answer;
}

uint32_t world_work_once(world *w, kvp_spill_answer answers[8])
{
    uint32_t n = 0;
    w->now += 1000;
    must(w, kvp_spill_work(w->spill, w->now, answers, 8, &n), "kvp_spill_work");
    world_audit(w);
    return n;
}

void world_flush(world *w, uint32_t space)
{
    w->epochs[space]++;
    must(w, kvp_spill_space(w->spill, w->spaces[space], names[space], 3, w->epochs[space]),
         "kvp_spill_space");
    must(w, kvp_ns_flush(w->cache, w->spaces[space]), "kvp_ns_flush");
    world_audit(w);
}

void world_stop(world *w)
{
    kvp_status status = KVP_E_AGAIN;
    kvp_stats stats;
    for (int i = 0; i < 2000 && status == KVP_E_AGAIN; i++) {
        kvp_spill_answer answers[8];
        uint32_t n;
        status = kvp_spill_stop(w->spill, w->now);
        world_audit(w);
        world_store(w);
        must(w, kvp_spill_work(w->spill, w->now, answers, 8, &n), "kvp_spill_work");
    }
    must(w, status, "kvp_spill_stop");
    must(w, kvp_cache_stats_get(w->cache, &stats), "kvp_cache_stats_get");
    if (stats.host_lent_blocks + stats.open_loads > 0)
        verdict_bad(&w->verdict, "stopped, and %" PRIu64 " blocks are lent, %" PRIu64 " loads open",
                    stats.host_lent_blocks, stats.open_loads);
}
