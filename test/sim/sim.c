/* Lives of a process, one after the other; see sim.h.
 *
 *   kvp_sim [--seed N] [--calls N] [--seconds N] [--config I] [--start-at N] [--verbose]
 *
 * A run consists of configurations of 3,000 calls. One of 60,000 calls or more also fails if a
 * situation never happened. With --start-at the counters of each life begin near N. Exit status: 0
 * nothing wrong; 1 something, and the command that does it again: with fewer calls it can be cut
 * down; 2 usage. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../store/sim_disk.h"
#include "start_sched.h"

enum { CALLS_A_CONFIG = 3000, CALLS_OF_ALL = 60000 /* after which everything has happened */ };

typedef struct run_options {
    uint64_t seed, calls, seconds, config, start;
    bool is_one, is_verbose;
} run_options;

static const char *const names[] = {
#define NAME(name) #name,
    SIM_SITUATIONS(NAME)
#undef NAME
};

bool sim_ok(sim *s, const char *call, kvp_status status)
{
    if (status != KVP_OK)
        verdict_bad(&s->verdict, "%s: %s", call, kvp_status_name(status));
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
        !sched_states_create(&s->states, s->cache, SIM_STATES))
        return;
    s->memory.entry[0] = s->entry;
    start_cache(s->cache);
    (void)sim_ok(s, "kvp_cache_stats_get", kvp_cache_stats_get(s->cache, &stats));
    s->n_plans = stats.plans;
    sim_load(s);
    for (uint32_t i = 0; i < SIM_SPACES; i++)
        (void)sim_ok(s, "kvp_ns_open", kvp_ns_open(s->cache, spaces[i], 1, &s->spaces[i]));
    (void)sim_ok(s, "kvp_sched_create",
                 kvp_sched_create(&s->sched_config, s->cache, NULL, 0, &s->sched));
    start_sched(s->sched);
    sim_store_begin(s);
    sim_workers_begin(s);
    sim_reader_begin(s);
    if (!s->verdict.is_bad)
        sim_sides_begin(s);
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

/* A stop, a kill, a loss of power: which, chance decides. */
static void next_life(sim *s)
{
    const uint32_t how = sim_below(s, 3);
    if (how == 0) {
        sim_moves_drop(s, SIM_SPACES);
        sim_flush_store(s);
        sim_save(s);
    } else {
        sim_disk_stop_after(s->disk, 0); /* nothing that a killed process would not do */
    }
    end_life(s, false);
    if (how == 2)
        sim_disk_power_off(s->disk);
    else
        sim_disk_kill(s->disk);
    sim_disk_fail_write(s->disk, UINT64_MAX, 0); /* what was to fail is over, too */
    s->seen[how == 0 ? SIM_stops : how == 1 ? SIM_kills : SIM_power_losses]++;
    if (!s->verdict.is_bad)
        begin_life(s);
}

static void audit(sim *s)
{
    kvp_violation violation;
    if (kvp_cache_check(s->cache, 3, &violation) != KVP_OK ||
        kvp_sched_check(s->sched, &violation) != KVP_OK)
        verdict_bad(&s->verdict, "%s: %s", violation.invariant, violation.detail);
}

static void flush_space(sim *s)
{
    const uint32_t space = sim_below(s, SIM_SPACES);
    if (s->work == NULL && sim_percent(s, 30)) {
        sim_abort_all(s, space);
        sim_moves_drop(s, space);
        sim_new_weights(s, space);
        return;
    }
    (void)sim_ok(s, "kvp_ns_flush", kvp_ns_flush(s->cache, s->spaces[space]));
    s->seen[SIM_flushes]++;
}

static void one_call(sim *s)
{
    const uint32_t what = sim_below(s, 1000);
    s->now += sim_below(s, 2000000);
    if (what < 180)
        sim_submit(s);
    else if (what < 520)
        sim_advance(s);
    else if (what < 600)
        sim_device(s);
    else if (what < 720)
        sim_store_work(s);
    else if (what < 780)
        sim_read(s);
    else if (what < 900)
        sim_moves(s);
    else if (what < 910)
        sim_tick(s);
    else if (what < 950)
        sim_compare(s);
    else if (what < 970)
        sim_abort(s);
    else if (what < 980)
        sim_fail(s);
    else if (what < 985)
        flush_space(s);
    else if (what < 992)
        sim_save(s);
    else if (what < 996)
        audit(s);
    else
        next_life(s);
}

/* ----------------------------------------------------------------------------------------- runs */

static bool run_config(const run_options *o, uint64_t index, uint64_t calls, uint64_t *seen)
{
    static sim s;
    memset(&s, 0, sizeof s);
    s.seed = o->seed + index;
    s.random = o->seed * UINT64_C(0x2545f4914f6cdd1d) + index;
    s.now = UINT64_C(1000000000000);
    s.seen = seen;
    s.disk = sim_disk_create(s.seed);
    sim_draw(&s);
    begin_life(&s);
    while (s.n_calls < calls && !s.verdict.is_bad) {
        s.n_calls++;
        one_call(&s);
    }
    if (!s.verdict.is_bad) {
        sim_compare(&s);
        audit(&s);
    }
    end_life(&s, true);
    snap_drop(&s.saved);
    sim_disk_destroy(s.disk);
    if (s.verdict.is_bad) {
        printf("%s\nkvp_sim --seed %" PRIu64 " --config %" PRIu64 " --calls %" PRIu64
               " --start-at %" PRIu64 "\n",
               s.verdict.why, o->seed, index, s.n_calls, o->start);
    }
    return !s.verdict.is_bad;
}

static int tell(const uint64_t *seen, uint64_t calls, bool is_verbose)
{
    int n_missing = 0;
    for (int i = 0; i < SIM_SITUATIONS_N; i++) {
        if (is_verbose)
            printf("%12" PRIu64 "  %s\n", seen[i], names[i]);
        if (seen[i] == 0 && calls >= CALLS_OF_ALL) {
            printf("never happened: %s\n", names[i]);
            n_missing++;
        }
    }
    return n_missing > 0;
}

static bool parse(int argc, char **argv, run_options *o)
{
    for (int i = 1; i < argc; i++) {
        uint64_t *value = strcmp(argv[i], "--seed") == 0       ? &o->seed
                          : strcmp(argv[i], "--calls") == 0    ? &o->calls
                          : strcmp(argv[i], "--seconds") == 0  ? &o->seconds
                          : strcmp(argv[i], "--config") == 0   ? &o->config
                          : strcmp(argv[i], "--start-at") == 0 ? &o->start
                                                               : NULL;
        if (strcmp(argv[i], "--verbose") == 0) {
            o->is_verbose = true;
        } else if (value == NULL || i + 1 == argc) {
            return false;
        } else {
            o->is_one |= value == &o->config;
            *value = strtoull(argv[++i], NULL, 0);
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    run_options o = {.seed = 1, .calls = CALLS_OF_ALL};
    uint64_t seen[SIM_SITUATIONS_N] = {0}, n = 0;
    if (!parse(argc, argv, &o) || !start_at(o.start)) {
        fprintf(stderr, "usage: kvp_sim [--seed N] [--calls N] [--seconds N] [--config I] "
                        "[--start-at N] [--verbose]\n");
        return 2;
    }
    if (o.is_one)
        return !run_config(&o, o.config, o.calls, seen);
    const time_t begin = time(NULL);
    for (uint64_t i = 0; o.seconds > 0 ? (uint64_t)(time(NULL) - begin) < o.seconds : n < o.calls;
         i++, n += CALLS_A_CONFIG)
        if (!run_config(&o, i, CALLS_A_CONFIG, seen))
            return 1;
    printf("%" PRIu64 " calls of seed %" PRIu64 "\n", n, o.seed);
    return tell(seen, n, o.is_verbose);
}
