/* kvp_shadow: random engines over a memory that knows what it holds.
 *
 *   kvp_shadow [--engine ordered|overlapped|sched] [--seed N] [--ops N] [--config-index I]
 *              [--seconds S] [--start-at N] [--plant DEFECT] [--trace] [--block ID] [--verbose]
 *              [--no-coverage]
 *   kvp_shadow --sweep [--engine E] [--seed N] [--ops N] [--config-index I]
 *                                 every copy and every pass of a run fails, one in each run
 *   kvp_shadow --self-test        every planted defect must be found
 *
 * Exit status: 0 nothing wrong; 1 something was, or a situation was never met; 2 wrong usage.
 */
#include "drive.h"
#include "self_test.h"
#include "start.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPS_OF_CONFIG = 1500, OPS_OF_SWEEP = 300 };

/* A run of at least so many operations must have met everything. */
#define LONG_RUN_OPS 100000u

static const char *const engines[DRIVE_ENGINES] = {"ordered", "overlapped", "sched"};

typedef struct options {
    drive_options drive;
    uint64_t ops, seconds, start_at;
    bool one_config, verbose, no_coverage, self_test;
} options;

static bool read_number(const char *text, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    *out = text == NULL ? 0 : strtoull(text, &end, 0);
    return text != NULL && *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

static bool read_engine(const char *text, drive_engine *out)
{
    for (uint32_t i = 0; text != NULL && i < DRIVE_ENGINES; i++) {
        if (strcmp(text, engines[i]) == 0) {
            *out = (drive_engine)i;
            return true;
        }
    }
    return false;
}

static bool read_plant(const char *text, plant *out)
{
    for (uint32_t i = 0; text != NULL && i < PLANTS; i++) {
        if (strcmp(text, plant_name((plant)i)) == 0) {
            *out = (plant)i;
            return true;
        }
    }
    return false;
}

/* One option; false when it is not known, or its value is bad. */
static bool read_option(options *o, const char *name, const char *value, int *used)
{
    const struct {
        const char *name;
        bool *to;
    } flags[] = {{"--trace", &o->drive.trace},
                 {"--verbose", &o->verbose},
                 {"--no-coverage", &o->no_coverage},
                 {"--self-test", &o->self_test},
                 {"--sweep", &o->drive.sweeps}};
    const struct {
        const char *name;
        uint64_t *to;
    } numbers[] = {{"--seed", &o->drive.seed},
                   {"--ops", &o->ops},
                   {"--seconds", &o->seconds},
                   {"--start-at", &o->start_at},
                   {"--config-index", &o->drive.index}};
    *used = 1;
    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
        if (strcmp(name, flags[i].name) == 0)
            return *flags[i].to = true;
    *used = 2;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            o->one_config = o->one_config || numbers[i].to == &o->drive.index;
            return read_number(value, numbers[i].to);
        }
    }
    if (strcmp(name, "--block") == 0)
        return (o->drive.block = value) != NULL;
    if (strcmp(name, "--engine") == 0)
        return read_engine(value, &o->drive.engine);
    return strcmp(name, "--plant") == 0 && read_plant(value, &o->drive.planted);
}

static bool is_over(const options *o, uint64_t n_configs, time_t begin)
{
    if (o->one_config)
        return n_configs == 1;
    if (o->seconds > 0)
        return difftime(time(NULL), begin) >= (double)o->seconds;
    return n_configs * OPS_OF_CONFIG >= o->ops;
}

/* One run with this fault; it must have come. */
static bool sweep_at(const options *o, uint32_t work, uint64_t at, coverage *seen)
{
    static const char *const names[DEVICE_WORK] = {"copy", "pass"};
    drive_options one = o->drive;
    verdict v = {0};
    one.fail_at[work] = at;
    seen->n_refused = 0;
    const bool good = drive_run(&one, &v, seen) && seen->n_refused == (at != 0);
    if (!good) {
        printf("kvp_shadow: %s\n%s %" PRIu64 " of engine %s, seed %" PRIu64
               ", configuration %" PRIu64 " failed\n",
               v.is_bad ? v.why : "it did not fail", names[work], at, engines[one.engine], one.seed,
               one.index);
    }
    return good;
}

/* A configuration without a fault, which counts, and then once for each copy and pass. */
static bool sweep_config(const options *o, uint64_t *n_failed)
{
    coverage clean = {.n_planted = 0}, seen = {.n_planted = 0};
    if (!sweep_at(o, 0, 0, &clean))
        return false;
    for (uint32_t work = 0; work < DEVICE_WORK; work++) {
        for (uint64_t at = 1; at <= clean.n_asked[work]; at++) {
            if (!sweep_at(o, work, at, &seen))
                return false;
            n_failed[work]++;
        }
    }
    return true;
}

static int sweep(options *o)
{
    uint64_t n_failed[DEVICE_WORK] = {0};
    const uint64_t first = o->drive.index;
    const uint64_t n = o->one_config ? 1 : (o->ops + OPS_OF_SWEEP - 1) / OPS_OF_SWEEP;
    o->drive.ops = OPS_OF_SWEEP;
    for (; o->drive.index < first + n; o->drive.index++)
        if (!sweep_config(o, n_failed))
            return 1;
    printf("%s, seed %" PRIu64 ": %" PRIu64 " configurations; %" PRIu64 " copies and %" PRIu64
           " passes failed, one in each run: nothing read that was not its own\n",
           engines[o->drive.engine], o->drive.seed, n, n_failed[DEVICE_COPY],
           n_failed[DEVICE_PASS]);
    return n_failed[DEVICE_PASS] > 0 ? 0 : 1;
}

static int run(options *o)
{
    coverage seen = {.n_planted = 0};
    const time_t begin = time(NULL);
    uint64_t n_configs = 0;
    uint32_t missing = 0;
    o->drive.ops = OPS_OF_CONFIG;
    for (; !is_over(o, n_configs, begin); n_configs++) {
        verdict v = {0};
        if (!o->one_config)
            o->drive.index = n_configs;
        if (!drive_run(&o->drive, &v, &seen)) {
            printf("kvp_shadow: %s\nagain: kvp_shadow --engine %s --seed %" PRIu64
                   " --config-index %" PRIu64 " --trace\n",
                   v.why, engines[o->drive.engine], o->drive.seed, o->drive.index);
            return 1;
        }
    }
    if (o->verbose)
        coverage_print(stdout, &seen, o->drive.engine);
    printf("%s, seed %" PRIu64 ": %" PRIu64 " configurations, %" PRIu64
           " operations: nothing read that was not its own\n",
           engines[o->drive.engine], o->drive.seed, n_configs, n_configs * OPS_OF_CONFIG);
    if (n_configs * OPS_OF_CONFIG >= LONG_RUN_OPS && !o->no_coverage)
        missing = coverage_missing(stderr, &seen, o->drive.engine);
    return missing == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    options o = {.ops = 150000};
    int used;
    o.drive.seed = 1;
    for (int i = 1; i < argc; i += used) {
        if (!read_option(&o, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used)) {
            fprintf(stderr, "kvp_shadow: bad option %s (see test/shadow/README.md)\n", argv[i]);
            return 2;
        }
    }
    if (!start_at(o.start_at)) {
        fprintf(stderr, "kvp_shadow: --start-at needs a library with checks\n");
        return 2;
    }
    return o.self_test ? self_test_run() : o.drive.sweeps ? sweep(&o) : run(&o);
}
