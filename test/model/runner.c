/* kvp_model: random calls on a cache and on the oracle, compared one by one.
 *
 *   kvp_model [--seed N] [--ops N] [--configs N] [--config-index I] [--seconds S]
 *             [--check-level L] [--audit-every K] [--record FILE] [--start-at N] [--quiet]
 *             [--verbose]
 *   kvp_model --replay FILE [--start-at N]
 *   kvp_model --shrink FILE -o OUT [--start-at N]
 *   kvp_model --allocations          count what the library allocates after creation
 *   kvp_model --self-test            the header's examples, on the oracle alone
 *
 * Exit status: 0 all equal; 1 a difference, or a situation that was never met; 2 wrong usage.
 */
#include "coverage.h"
#include "describe.h"
#include "generate.h"
#include "allocations.h"
#include "script.h"
#include "self_test.h"
#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct options {
    uint64_t seed, ops, configs, config_index, seconds, start_at;
    bool one_config, quiet, verbose, allocations, no_coverage, no_shrink, self_test;
    int check_level;
    uint32_t audit_every;
    const char *record, *replay, *shrink, *out;
    const char *program; /* its path, of which the first n_folder bytes are the folder's */
    int n_folder;
} options;

/* A library built with KVP_CHECK 3 audits itself after every call. */
#if defined(KVP_CHECK) && KVP_CHECK >= 3
#define OWN_CHECK_LEVEL 1
#else
#define OWN_CHECK_LEVEL 3
#endif

/* A run of at least so many calls must have met everything. */
#define LONG_RUN_OPS 300000u

static double now_seconds(void)
{
    struct timespec t;

    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------------------- one configuration */

static session_options session_options_of(const options *opt, uint64_t index,
                                          const kvp_config *config)
{
    session_options s = {0};
    uint32_t unit = config->unit_tokens ? config->unit_tokens : config->block_tokens;
    uint32_t blocks = config->n_blocks + config->host_blocks;
    uint32_t units = blocks * (config->block_tokens / unit);

    /* The whole of a large cache is looked at as often as its size allows. */
    s.check_level = opt->check_level >= 0 ? opt->check_level : OWN_CHECK_LEVEL;
    s.check_every = 1 + units / 256;
    s.audit_every = opt->audit_every ? opt->audit_every : 61 + blocks * 2;
    s.own_arena = index % 3 == 1;
    s.move_every = 101;
    s.record = index % 2 == 1 && !opt->record && !opt->start_at; /* a log begins with a new cache */
    s.record_fd = -1;
    return s;
}

static uint64_t ops_for(const kvp_config *config, uint64_t ops)
{
    if (config->block_tokens > 64)
        ops /= 200;
    else if (config->n_blocks + config->host_blocks > 200)
        ops /= 4;
    return ops < 20 ? 20 : ops;
}

static void print_config(FILE *file, const kvp_config *c)
{
    fprintf(file,
            "block %" PRIu32 " unit %" PRIu32 " blocks %" PRIu32 " seqs %" PRIu32
            " seq_tokens %" PRIu32 " namespaces %" PRIu32 " nodes %" PRIu32 " unit_keys %" PRIu32
            " copies %" PRIu32 " %s %s prefix_cache %" PRIu32 " watermark %g hash_bits %" PRIu32
            " uncached %" PRIu32 " host %" PRIu32 "%s steps %s %" PRIu32 " events %" PRIu32
            " tree %" PRIu32 "%s groups",
            c->block_tokens, c->unit_tokens, c->n_blocks, c->max_seqs, c->max_seq_tokens,
            c->max_namespaces, c->n_nodes, c->max_unit_keys, c->max_copies,
            c->commit_policy == KVP_KEEP ? "keep" : "adopt",
            c->full_hit == KVP_FULL_HIT_RECOMPUTE ? "recompute" : "share", c->prefix_cache,
            c->watermark, c->test_hash_bits, c->n_uncached_tokens, c->host_blocks,
            c->keep_evicted == KVP_EVICTED_KEEP_ONCE ? " keep once"
            : c->keep_evicted                        ? ""
                                                     : " keep nothing",
            c->steps == KVP_STEPS_OVERLAPPED ? "overlapped" : "ordered", c->max_steps_out,
            c->max_events, c->max_tree_tokens,
            c->quotas                         ? " quotas"
            : c->policy == KVP_POLICY_LEARNED ? " learned"
                                              : "");
    fprintf(file,
            " loads %" PRIu32 " of %" PRIu32 " states %" PRIu32 "+%" PRIu32 " retain %" PRIu32,
            c->max_loads, c->lent_blocks, c->state_slots, c->host_state_slots, c->retain_tokens);
    for (uint32_t k = 0; k < c->n_groups; k++)
        fprintf(file, " {%" PRIu32 ",%" PRIu32 ",%" PRIu32 "}", c->groups[k].sink_tokens,
                c->groups[k].recent_tokens, c->groups[k].block_tokens);
    fprintf(file, "\n");
}

/* Run calls [0, ops) of a configuration. Counts into c and writes down into p, unless NULL. */
static bool run_calls(session *s, uint64_t seed, uint64_t index, uint64_t ops, coverage *c,
                      script *p)
{
    generator *g = generator_create(seed, index, s->o);
    coverage_before before;
    bool good = true;
    kvp_call call;

    for (uint64_t i = 0; i < ops && good; i++) {
        generator_next(g, &call);
        if (p)
            script_add(p, &call, 0);
        if (c)
            coverage_look(s->o, &call, &before);
        good = session_step(s, &call);
        if (p)
            p->opened[p->n - 1] = script_opened(&call, &s->seen);
        if (c)
            coverage_count(c, s->o, &call, &s->seen, &before);
        if (c)
            c->points[COVER_lie_between_hashes] += g->lied && s->seen.status == KVP_OK;
        generator_saw(g, &call, &s->seen);
    }
    if (!good) {
        fprintf(stderr,
                "kvp_model: seed %" PRIu64 ", configuration %" PRIu64 ", call %" PRIu64 "\n", seed,
                index, s->n_calls - 1);
        print_config(stderr, &s->o->config);
        session_explain(stderr, s, &call);
    }
    generator_destroy(g);
    return good;
}

/* The failing calls once more, written down; shrunk, and kept as a log. */
static void keep_failure(const options *opt, uint64_t index, const session_options *how,
                         const kvp_config *config, uint64_t calls)
{
    session_options again = *how;
    session *s;
    script *p;
    char path[4096];
    uint32_t at;

    again.record = false;
    again.audit_every = 1;
    s = session_create(config, &again);
    p = script_create(config);
    if (!s)
        return;
    if (!freopen("/dev/null", "w", stderr)) /* it was told already */
        return;
    run_calls(s, opt->seed, index, calls, NULL, p);
    session_destroy(s);
    if (script_shrink(p, &again)) {
        snprintf(path, sizeof path, "%.*skvp_model-%" PRIu64 "-%" PRIu64 ".kvplog", opt->n_folder,
                 opt->program, opt->seed, index);
        again.record_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        printf("shrunk, and written to %s:\n", path);
        fflush(stdout);
        script_run(p, &again, true, &at, &at);
        close(again.record_fd);
    }
    script_destroy(p);
}

static void count_events(coverage *c, const view *v)
{
    c->points[COVER_events_stored] += v->stored;
    c->points[COVER_events_removed] += v->removed;
    c->points[COVER_events_cleared] += v->cleared;
    c->points[COVER_events_behind] += v->behind;
}

static void count_collisions(coverage *c, uint32_t hash_bits, uint64_t n)
{
    c->points[COVER_hash_collision] += n > 0;
    c->points[COVER_collision_of_4_bits] += n > 0 && hash_bits == 4;
    c->points[COVER_collision_of_1_bit] += n > 0 && hash_bits == 1;
}

static bool run_config(const options *opt, uint64_t index, uint64_t ops, coverage *c,
                       uint64_t *out_calls)
{
    kvp_config config;
    session_options how;
    kvp_stats stats;
    session *s;
    bool good;

    generate_config(opt->seed, index, &config);
    how = session_options_of(opt, index, &config);
    if (opt->record)
        how.record_fd = open(opt->record, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (opt->verbose) {
        printf("configuration %" PRIu64 ": ", index);
        print_config(stdout, &config);
        fflush(stdout);
    }
    s = session_create(&config, &how);
    if (!s) {
        print_config(stderr, &config);
        return false;
    }
    good = run_calls(s, opt->seed, index, ops_for(&config, ops), c, NULL);
    *out_calls += s->n_calls;
    if (good && how.record && !session_replay_log(s)) {
        fprintf(stderr, "kvp_model: seed %" PRIu64 ", configuration %" PRIu64 ": %s\n", opt->seed,
                index, s->why);
        good = false;
    } else if (!good) {
        uint64_t calls = s->n_calls;

        session_destroy(s);
        s = NULL;
        if (!opt->no_shrink)
            keep_failure(opt, index, &how, &config, calls);
    }
    if (s && kvp_cache_stats_get(s->cache, &stats) == KVP_OK)
        count_collisions(c, config.test_hash_bits, stats.hash_collisions);
    if (s)
        count_events(c, s->v);
    session_destroy(s);
    if (how.record_fd >= 0)
        close(how.record_fd);
    return good;
}

static int run_random(const options *opt)
{
    coverage *c = calloc(1, sizeof *c);
    double begin = now_seconds(), taken;
    uint64_t calls = 0, i, missing = 0;
    bool good = c != NULL;

    for (i = 0; good; i++) {
        if (opt->one_config ? i == 1
            : opt->seconds  ? now_seconds() - begin >= (double)opt->seconds
                            : i == opt->configs)
            break;
        good = run_config(opt, opt->one_config ? opt->config_index : i, opt->ops / opt->configs, c,
                          &calls);
    }
    taken = now_seconds() - begin;
    if (c && opt->verbose)
        coverage_print(stdout, c);
    if (!opt->quiet && good)
        printf("seed %" PRIu64 ": %" PRIu64 " calls, %" PRIu64
               " configurations, cache and oracle agree; %.1f s, %.0f calls/s\n",
               opt->seed, calls, i, taken, (double)calls / (taken > 0 ? taken : 1));
    if (c && good && calls >= LONG_RUN_OPS && !opt->no_coverage && !opt->one_config)
        missing = coverage_missing(stderr, c);
    free(c);
    return good && !missing ? 0 : 1;
}

/* ----------------------------------------------------------------------------- logs and options */

static session_options log_options(const options *opt)
{
    session_options how = {0};

    how.check_level = opt->check_level >= 0 ? opt->check_level : 3;
    how.audit_every = opt->audit_every ? opt->audit_every : 1;
    how.record_fd = -1;
    return how;
}

static int replay(const options *opt)
{
    session_options how = log_options(opt);
    script *p = script_load(opt->replay);
    uint32_t index = 0, signature = 0;
    bool good;

    if (!p)
        return 2;
    good = script_run(p, &how, !opt->quiet, &index, &signature);
    if (good)
        printf("%" PRIu32 " calls, cache and oracle agree\n", p->n);
    else
        printf("they differ at call %" PRIu32 "\n", index);
    script_destroy(p);
    return good ? 0 : 1;
}

static int shrink(const options *opt)
{
    session_options how = log_options(opt);
    script *p = script_load(opt->shrink);
    uint32_t index = 0, signature = 0;

    if (!p)
        return 2;
    if (!script_shrink(p, &how)) {
        printf("cache and oracle agree on this log: nothing to shrink\n");
        script_destroy(p);
        return 1;
    }
    script_print(stdout, p);
    fflush(stdout);
    if (opt->out) {
        how.record_fd = open(opt->out, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        script_run(p, &how, !opt->quiet, &index, &signature);
        close(how.record_fd);
    }
    script_destroy(p);
    return 0;
}

static bool read_number(const char *text, uint64_t *out)
{
    char *end = NULL;

    errno = 0;
    *out = text ? strtoull(text, &end, 0) : 0;
    return text && *text >= '0' && *text <= '9' && !*end && !errno;
}

typedef struct number_option {
    const char *name;
    uint64_t *to;
} number_option;

/* One option; false when it is not known, or its value is bad. */
static bool read_option(options *opt, const char *name, const char *value, int *used)
{
    uint64_t level = 0, every = 0;
    const number_option numbers[] = {
        {"--seed", &opt->seed},       {"--ops", &opt->ops},
        {"--configs", &opt->configs}, {"--config-index", &opt->config_index},
        {"--seconds", &opt->seconds}, {"--check-level", &level},
        {"--audit-every", &every},    {"--start-at", &opt->start_at},
    };
    const struct {
        const char *name;
        const char **to;
    } texts[] = {{"--record", &opt->record},
                 {"--replay", &opt->replay},
                 {"--shrink", &opt->shrink},
                 {"-o", &opt->out}};
    const struct {
        const char *name;
        bool *to;
    } flags[] = {{"--quiet", &opt->quiet},
                 {"--verbose", &opt->verbose},
                 {"--allocations", &opt->allocations},
                 {"--no-coverage", &opt->no_coverage},
                 {"--no-shrink", &opt->no_shrink},
                 {"--self-test", &opt->self_test}};

    *used = 1;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(name, flags[i].name) == 0)
            return *flags[i].to = true;
    *used = 2;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(name, texts[i].name) == 0)
            return (*texts[i].to = value) != NULL;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(name, numbers[i].name) != 0)
            continue;
        if (!read_number(value, numbers[i].to))
            return false;
        opt->one_config |= numbers[i].to == &opt->config_index;
        opt->check_level = numbers[i].to == &level ? (int)level : opt->check_level;
        opt->audit_every = numbers[i].to == &every ? (uint32_t)every : opt->audit_every;
        return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    options opt = {.seed = 1, .ops = 200000, .configs = 0, .check_level = -1};
    const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;
    int used;

    opt.program = argv[0];
    opt.n_folder = name ? (int)(name + 1 - argv[0]) : 0;
    for (int i = 1; i < argc; i += used) {
        if (!read_option(&opt, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used)) {
            fprintf(stderr, "kvp_model: bad option %s (see test/model/README.md)\n", argv[i]);
            return 2;
        }
    }
    if (!start_at(opt.start_at)) {
        fprintf(stderr, "kvp_model: --start-at needs a library with checks\n");
        return 2;
    }
    if (opt.configs == 0)
        opt.configs = opt.ops / 2000 + 1;
    if (opt.replay)
        return replay(&opt);
    if (opt.shrink)
        return shrink(&opt);
    if (opt.self_test)
        return self_test_run();
    if (opt.allocations)
        return allocations_run(opt.seed, opt.ops);
    return run_random(&opt);
}
