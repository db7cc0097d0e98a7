/* Lives of a process, one after the other, and which call comes next. See sim.h. */
#include "sim.h"

#include <string.h>

#include "../store/sim_disk.h"
#include "start_sched.h"

bool sim_ok(sim *s, const char *call, kvp_status status)
{
    if (status != KVP_OK) {
        verdict_bad(&s->verdict, "%s: %s", call, kvp_status_name(status));
    }
    return status == KVP_OK;
}

/* ---------------------------------------------------------------------------------------- lives */

static void begin_life(sim *s)
{
    static const char *const spaces[SIM_SPACES] = {"a", "b"};
    kvp_stats stats;
    if (!sim_ok(s, "kvp_cache_create", kvp_cache_create(&s->config, NULL, 0, &s->cache)) ||
        !sim_ok(s, "kvp_cache_config_get", kvp_cache_config_get(s->cache, &s->config)) ||
        !sched_memory_create(&s->memory, s->cache) ||
        !sched_states_create(&s->states, s->cache, SIM_STATES)) {
        return;
    }
    s->memory.entry[0] = s->entry;
    start_cache(s->cache);
    (void)sim_ok(s, "kvp_cache_stats_get", kvp_cache_stats_get(s->cache, &stats));
    s->n_plans = stats.plans;
    sim_load(s);
    for (uint32_t i = 0; i < SIM_SPACES; i++) {
        (void)sim_ok(s, "kvp_ns_open", kvp_ns_open(s->cache, spaces[i], 1, &s->spaces[i]));
        sim_other_quota(s, i);
    }
    (void)sim_ok(s, "kvp_sched_create",
                 kvp_sched_create(&s->sched_config, s->cache, NULL, 0, &s->sched));
    start_sched(s->sched);
    sim_store_begin(s);
    sim_workers_begin(s);
    sim_reader_begin(s);
    if (!s->verdict.is_bad) {
        sim_sides_begin(s);
    }
}

static void add_stats(sim *s)
{
    kvp_spill_stats stats;
    if (s->spill != NULL && kvp_spill_stats_get(s->spill, &stats) == KVP_OK) {
        s->seen[SIM_records_loaded] += stats.loaded;
        s->seen[SIM_records_written] += stats.written;
        s->seen[SIM_states_loaded] += stats.states_loaded;
        s->seen[SIM_states_written] += stats.states_written;
    }
}

/* All memory goes. */
static void end_life(sim *s, bool is_last)
{
    add_stats(s);
    sim_sides_end(s, is_last);
    kvp_store_close(s->store);
    kvp_spill_destroy(s->spill);
    sim_workers_end(s);
    sim_reader_end(s);
    kvp_sched_destroy(s->sched);
    kvp_cache_destroy(s->cache);
    sched_memory_destroy(&s->memory);
    sched_states_destroy(&s->states);
    memset(&s->cache, 0, sizeof *s - offsetof(sim, cache));
}

static void next_life(sim *s, uint32_t how)
{
    end_life(s, false);
    if (how == SIM_power_losses) {
        sim_disk_power_off(s->disk);
    } else {
        sim_disk_kill(s->disk);
    }
    sim_disk_fail_write(s->disk, UINT64_MAX, 0); /* what was to fail is over, too */
    s->seen[how]++;
    if (!s->verdict.is_bad) {
        begin_life(s);
    }
}

static void stop(sim *s)
{
    sim_moves_drop(s, SIM_SPACES);
    sim_flush_store(s);
    sim_save(s);
    next_life(s, SIM_stops);
}

/* Nothing is done that a killed process would not do. */
static void die(sim *s)
{
    sim_disk_stop_after(s->disk, 0);
    next_life(s, SIM_kills);
}

static void lose_power(sim *s)
{
    sim_disk_stop_after(s->disk, 0);
    next_life(s, SIM_power_losses);
}

/* --------------------------------------------------------------------------------------- calls */

static void audit(sim *s)
{
    kvp_violation violation;
    if (kvp_cache_check(s->cache, 3, &violation) != KVP_OK ||
        kvp_sched_check(s->sched, &violation) != KVP_OK) {
        verdict_bad(&s->verdict, "%s: %s", violation.invariant, violation.detail);
    }
}

static void flush_space(sim *s)
{
    const uint32_t space = sim_below(s, SIM_SPACES);
    (void)sim_ok(s, "kvp_ns_flush", kvp_ns_flush(s->cache, s->spaces[space]));
    s->seen[SIM_flushes]++;
}

static void change_weights(sim *s)
{
    const uint32_t space = sim_below(s, SIM_SPACES);
    if (s->work == NULL) {
        sim_abort_all(s, space);
        sim_moves_drop(s, space);
        sim_new_weights(s, space);
    }
}

enum { OF_CALLS = 3000 };

/* Nothing happens for up to 40 days. */
static void pause_all(sim *s)
{
    s->now += (uint64_t)sim_below(s, 40 * 86400) * 1000000000;
}

static void change_quota(sim *s)
{
    sim_other_quota(s, sim_below(s, SIM_SPACES));
}

/* How many of so many calls are of a kind, and who makes them. */
static const struct {
    uint32_t rate;
    void (*make)(sim *s);
} kinds[SIM_KINDS_N] = {[SIM_OF_submissions] = {540, sim_submit},
                        [SIM_OF_steps] = {1012, sim_advance},
                        [SIM_OF_device] = {240, sim_device},
                        [SIM_OF_store] = {356, sim_store_work},
                        [SIM_OF_disk_errors] = {4, sim_disk_error},
                        [SIM_OF_reads] = {180, sim_read},
                        [SIM_OF_moves] = {356, sim_moves},
                        [SIM_OF_peer_deaths] = {4, sim_peer_dies},
                        [SIM_OF_ticks] = {30, sim_tick},
                        [SIM_OF_comparisons] = {120, sim_compare},
                        [SIM_OF_aborts] = {60, sim_abort},
                        [SIM_OF_failures] = {30, sim_fail},
                        [SIM_OF_flushes] = {13, flush_space},
                        [SIM_OF_weights] = {4, change_weights},
                        [SIM_OF_other_quotas] = {6, change_quota},
                        [SIM_OF_snapshots] = {21, sim_save},
                        [SIM_OF_audits] = {10, audit},
                        [SIM_OF_pauses] = {2, pause_all},
                        [SIM_OF_stops] = {4, stop},
                        [SIM_OF_kills] = {4, die},
                        [SIM_OF_power] = {4, lose_power}};

/* A call draws from numbers of its own: without it, the others draw what they did. */
static void one_call(sim *s)
{
    uint64_t own =
        s->run->seed * UINT64_C(0x2545f4914f6cdd1d) + s->run->config + (s->n_calls << 32);
    uint32_t kind = 0;
    s->random = random_next(&own);
    s->now += sim_below(s, 2000000);
    uint32_t at = sim_below(s, OF_CALLS);
    while (at >= kinds[kind].rate) {
        at -= kinds[kind++].rate;
    }
    if (sim_has(s, kind) && (s->n_calls > SIM_CALLS || !s->run->skips[s->n_calls])) {
        kinds[kind].make(s);
    }
}

void sim_run_config(const sim_run *run, sim_result *result)
{
    static sim s;
    memset(&s, 0, sizeof s);
    s.run = run;
    s.seed = run->seed + run->config;
    s.random = run->seed * UINT64_C(0x2545f4914f6cdd1d) + run->config;
    s.now = UINT64_C(1000000000000);
    s.seen = result->seen;
    s.disk = sim_disk_create(s.seed);
    sim_draw(&s);
    begin_life(&s);
    while (s.n_calls < run->calls && !s.verdict.is_bad) {
        result->n_calls = ++s.n_calls;
        one_call(&s);
    }
    if (!s.verdict.is_bad) {
        sim_compare(&s);
        audit(&s);
    }
    end_life(&s, true);
    snap_drop(&s.saved);
    sim_disk_destroy(s.disk);
    result->verdict = s.verdict;
}
