/* Random calls on a cache (test/model draws them), recorded; and the log of such a run, read and
 * replayed. */
#include "faults.h"

#include "../model/generate.h"

#include <kvpager/oplog.h>

#include <string.h>

enum { CALLS = 300, LOG_BYTES = 1 << 22 };

typedef struct log_sink {
    uint8_t bytes[LOG_BYTES];
    size_t n;
    bool has_failed;
    uint32_t n_after; /* writes after the one that failed */
} log_sink;

static log_sink sink_of_run;

static int write_log(void *context, const void *bytes, size_t n_bytes)
{
    log_sink *sink = context;
    sink->n_after += sink->has_failed;
    if (fault_comes(SEAM_write)) {
        sink->has_failed = true;
        return -1;
    }
    assert_true(n_bytes <= LOG_BYTES - sink->n);
    memcpy(sink->bytes + sink->n, bytes, n_bytes);
    sink->n += n_bytes;
    return 0;
}

/* A configuration whose whole state is soon looked at. */
static uint64_t draw_config(uint64_t seed, kvp_config *out_config)
{
    uint64_t index = 0;
    do {
        generate_config(seed, index++, out_config);
    } while (out_config->block_tokens > 16 || out_config->n_blocks > 40 ||
             out_config->max_namespaces < 2 || out_config->max_seqs < 3);
    out_config->max_namespaces++; /* room for what is planted */
    return index - 1;
}

static void start_recording(const world *w)
{
    const kvp_sink sink = {&sink_of_run, write_log};
    CALL(w, KVP_E_IO, kvp_cache_record_start(w->cache, &sink));
    sink_of_run.has_failed = false; /* a header that is refused starts nothing */
    sink_of_run.n_after = 0;
}

static void run_call(world *w, oracle *o, generator *g)
{
    kvp_outcome seen = {0}, foretold;
    kvp_call call;
    generator_next(g, &call);
    CALL(w, fault_is(SEAM_write) ? KVP_OK : KVP_E_NO_MEMORY,
         kvp_oplog_call_run(w->cache, &call, &seen));
    oracle_run(o, &call, &foretold);
    oracle_learn(o, &call, &seen, &foretold);
    generator_saw(g, &call, &seen);
    fault_mix_number((uint64_t)(uint32_t)seen.status << 32 | seen.n);
    fault_mix_number(seen.handle ^ seen.number);
    kvp_outcome_free(&seen);
    assert_ok(kvp_cache_check(w->cache, 3, NULL));
}

/* Make a recorded run; the log is in sink_of_run then. */
static void run_calls(uint64_t seed, uint32_t n)
{
    kvp_config config, resolved;
    world w = {0};
    const uint64_t index = draw_config(seed, &config);
    CALL(NULL, KVP_E_NO_MEMORY, kvp_cache_create(&config, NULL, 0, &w.cache));
    start_recording(&w);
    kvp_config_init(&resolved);
    assert_ok(kvp_cache_config_peek(w.cache, &resolved));
    oracle *o = oracle_create(&resolved);
    generator *g = generator_create(seed, index, o);
    for (uint32_t i = 0; i < n; i++)
        run_call(&w, o, g);
    assert_int_equal(kvp_cache_record_stop(w.cache), sink_of_run.has_failed ? KVP_E_IO : KVP_OK);
    assert_int_equal(sink_of_run.n_after, 0);
    observed end = observe(&w);
    fault_mix(end.bytes, end.n);
    drop_observed(&end);
    generator_destroy(g);
    oracle_destroy(o);
    kvp_cache_destroy(w.cache);
}

void scene_calls(uint64_t seed)
{
    run_calls(seed, CALLS);
}

/* ------------------------------------------------------------------------------------- the log */

static kvp_record next_record(kvp_oplog *log, int *out_end)
{
    kvp_record record = {.index = 0};
    const uint64_t before = kvp_oplog_offset(log);
    fault_call call = fault_begin(NULL);
    kvp_status status = kvp_oplog_next(log, &record, out_end);
    call.held = wrap_now().allocations; /* what the log has it may keep, until it is closed */
    if (fault_end(&call, status, KVP_E_NO_MEMORY)) {
        assert_int_equal(kvp_oplog_offset(log), before);
        status = kvp_oplog_next(log, &record, out_end);
    }
    assert_ok(status);
    return record;
}

void scene_log(uint64_t seed)
{
    kvp_oplog *log = NULL;
    int at_end = 0;
    uint64_t index;
    fault_quiet = true;
    run_calls(seed, CALLS);
    fault_quiet = false;
    CALL(NULL, KVP_E_NO_MEMORY, kvp_oplog_open(sink_of_run.bytes, sink_of_run.n, &log));
    while (!at_end) {
        const kvp_record record = next_record(log, &at_end);
        fault_mix_number((uint64_t)record.index << 32 | record.n_bytes);
    }
    kvp_oplog_rewind(log);
    CALL(NULL, KVP_E_NO_MEMORY, kvp_oplog_replay(log, 3, &index));
    kvp_oplog_close(log);
}
