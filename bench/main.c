/* kvp_bench: what kvpager costs, beside a yardstick measured in the same run. See README.md. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "growth.h"
#include "steady.h"

static const group *const all_groups[] = {
    &long_prompts_group,
    &evictions_group,
    &decode_free_group,
    &decode_evicted_group,
    &fork_close_group,
    &sched_free_group,
    &sched_grouped_group,
    &sched_evicted_group,
    &sched_reclaimed_group,
    &sched_grouped_evicted_group,
    &sched_host_group,
    &sched_states_group,
    &caches_group,
    &follow_group,
    &record_group,
    &wire_group,
    &memory_group,
    &meta_group,
    &swap_group,
    &copy_64k_group,
    &copy_1m_group,
    &transfer_group,
    &attn_f32_1t_group,
    &attn_f32_2t_group,
    &attn_f16_1t_group,
    &attn_f16_2t_group,
    &attn_bf16_1t_group,
    &attn_bf16_2t_group,
    &attn_int8_1t_group,
    &attn_int8_2t_group,
    &attn_cascade_group,
    &attn_prefill_group,
    &store_open_1m_group,
    &attn_small_group,
    &attn_latent_group,
    &store_open_50k_group,
    &store_keys_group,
    &store_64k_group,
    &store_512k_group,
    &store_2m_group,
    &store_redis_512k_group,
    &store_redis_2m_group,
    &store_miss_group,
    &store_full_group,
    &store_step_group,
    &spill_long_group,
    &learned_group,
    &transfer_tcp_group,
};

/* What this run measures: all of the above, or those of growth.h. */
static const group **groups;
static size_t n_groups;

/* Named after the worse of its variants. */
static const struct worst_of {
    const char *name;
    const char *first;
    const char *second;
    const char *note;
} worst_of[] = {
    {"extend_commit_1024", "extend_commit_1024_free", "extend_commit_1024_evicted",
     "the slower of the two above"},
    {"sched_step_1024", "sched_step_1024_free", "sched_step_1024_evicted",
     "the slower of the two above"},
};

enum { N_WORST = sizeof worst_of / sizeof *worst_of };

static const char usage[] =
    "Usage: kvp_bench [--growth] [--json FILE] [--only NAMES] [--repeat N] [--quick] [--count]\n"
    "                 [--list]\n"
    "       kvp_bench --steady N [--seed N] [--quick]\n"
    "\n"
    "  --growth     instead: how cost grows with the size of pools and batches\n"
    "  --json FILE  also write the results as a JSON list\n"
    "  --only NAMES take these measurements only, with commas between the names\n"
    "  --repeat N   N samples of each measurement, at most 1001\n"
    "  --quick      a small pool and three samples: checks results, the times mean little\n"
    "  --count      one sample of each on a small pool, for callgrind to count its instructions\n"
    "  --list       print the names and exit\n"
    "  --steady N   instead: N calls on a full cache, each timed, and the longest of them\n"
    "  --seed N     other calls\n";

/* ------------------------------------------------------------------------------------- options */

static void fail_usage(const char *what, const char *value)
{
    fprintf(stderr, "kvp_bench: %s%s\n%s", what, value, usage);
    exit(2);
}

/* The name in front of a list, whose end is given back. */
static const char *next_name(const char *list, char out[64])
{
    const size_t n = strcspn(list, ",");
    snprintf(out, 64, "%.*s", n < 64 ? (int)n : 0, list);
    return list[n] ? list + n + 1 : NULL;
}

static bool lists(const char *list, const char *wanted)
{
    char name[64];
    while (list) {
        list = next_name(list, name);
        if (strcmp(name, wanted) == 0)
            return true;
    }
    return false;
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < N_WORST && groups[0] == all_groups[0]; i++) {
        if (strcmp(name, worst_of[i].name) == 0)
            return true;
    }
    for (size_t g = 0; g < n_groups; g++) {
        for (size_t i = 0; i < groups[g]->n_measurements; i++) {
            if (strcmp(name, groups[g]->measurements[i].name) == 0)
                return true;
        }
    }
    return false;
}

static bool are_known(const char *list)
{
    char name[64];
    while (list) {
        list = next_name(list, name);
        if (!is_known(name))
            return false;
    }
    return true;
}

static void print_names(void)
{
    for (size_t g = 0; g < n_groups; g++) {
        for (size_t i = 0; i < groups[g]->n_measurements; i++)
            printf("%s\n", groups[g]->measurements[i].name);
    }
    for (size_t i = 0; i < N_WORST && groups[0] == all_groups[0]; i++)
        printf("%s\n", worst_of[i].name);
}

static uint64_t parse_number(const char *option, const char *text, uint64_t most)
{
    char *end;
    errno = 0;
    const unsigned long long n = strtoull(text, &end, 10);
    if (errno || *end || end == text || n < 1 || n > most) {
        fprintf(stderr, "kvp_bench: %s takes a number from 1 to %llu, not %s\n%s", option,
                (unsigned long long)most, text, usage);
        exit(2);
    }
    return n;
}

/* An option that stands alone. */
static bool set_flag(bench_options *options, const char *option)
{
    if (strcmp(option, "--quick") == 0)
        options->quick = true;
    else if (strcmp(option, "--count") == 0)
        options->quick = options->count = true;
    else if (strcmp(option, "--growth") == 0)
        options->growth = true;
    else if (strcmp(option, "--list") == 0)
        options->list = true;
    else
        return false;
    return true;
}

static bool set_value(bench_options *options, const char *option, const char *value)
{
    if (strcmp(option, "--json") == 0)
        options->json = value;
    else if (strcmp(option, "--only") == 0)
        options->only = value;
    else if (strcmp(option, "--repeat") == 0)
        options->n_samples = (uint32_t)parse_number(option, value, MAX_SAMPLES);
    else if (strcmp(option, "--steady") == 0)
        options->steady = parse_number(option, value, UINT64_C(1000000000000));
    else if (strcmp(option, "--seed") == 0)
        options->seed = parse_number(option, value, 65535);
    else
        return false;
    return true;
}

static void choose_groups(const bench_options *options)
{
    const size_t n_all = sizeof all_groups / sizeof *all_groups;
    size_t n = 0;
    const group *growing = growth_groups(options->quick, &n);
    n_groups = options->growth ? n : n_all;
    groups = allocate(n_groups * sizeof *groups);
    for (size_t i = 0; i < n_groups; i++)
        groups[i] = options->growth ? &growing[i] : all_groups[i];
}

static bench_options parse_options(int argc, char **argv)
{
    bench_options options = {0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        }
        if (set_flag(&options, argv[i]))
            continue;
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!set_value(&options, argv[i], value))
            fail_usage("unknown option ", argv[i]);
        if (!*value)
            fail_usage("a value is missing after ", argv[i]);
        i++;
    }
    choose_groups(&options);
    if (options.list) {
        print_names();
        exit(0);
    }
    if (options.only && !are_known(options.only))
        fail_usage("--only names a measurement that does not exist: ", options.only);
    return options;
}

static bool is_wanted(const bench_options *options, const char *name)
{
    if (!options->only || lists(options->only, name))
        return true;
    for (size_t i = 0; i < N_WORST; i++) {
        if (lists(options->only, worst_of[i].name) &&
            (strcmp(name, worst_of[i].first) == 0 || strcmp(name, worst_of[i].second) == 0))
            return true;
    }
    return false;
}

/* --------------------------------------------------------------------------------------- table */

static const char header[] = "%-30s %4s %11s %11s %11s %7s %12s %7s %9s  %s\n";

static void format_number(char out[24], double value)
{
    snprintf(out, 24, value < 1000 ? "%.1f" : "%.0f", value);
}

/* More is better, and the aim is a multiple of the yardstick, if there is one. */
static bool is_rate(const result *r)
{
    return strstr(r->unit, "/s") != NULL;
}

static void print_row(const result *r)
{
    char median[24];
    char min[24];
    char max[24];
    char yardstick[24] = "-";
    char ratio[24] = "-";
    char aim[24] = "-";
    char spread[24];
    const char *mark = "";
    format_number(median, r->median);
    format_number(min, r->min);
    format_number(max, r->max);
    snprintf(spread, sizeof spread, "%.1f%%", 100 * r->spread);
    if (r->yardstick_median >= 0) {
        format_number(yardstick, r->yardstick_median);
        snprintf(ratio, sizeof ratio, "%.1fx", r->yardstick_median / r->median);
    }
    if (is_rate(r)) {
        const bool is_multiple = r->yardstick_median >= 0;
        const double reached = is_multiple ? r->median / r->yardstick_median : r->median;
        if (is_multiple)
            snprintf(ratio, sizeof ratio, "%.2fx", reached);
        if (r->aim > 0) {
            snprintf(aim, sizeof aim, is_multiple ? "%.2fx" : "%.0f", r->aim);
            mark = reached >= r->aim ? "met. " : "MISSED. ";
        }
    } else if (r->aim != 0) {
        const bool is_multiple = r->aim < 0;
        const double most = is_multiple ? -r->aim * r->yardstick_median : r->aim;
        snprintf(aim, sizeof aim, is_multiple ? "%.2fx" : "%.0f", is_multiple ? -r->aim : r->aim);
        mark = r->median <= most ? "met. " : "MISSED. ";
    }
    printf("%-30s %4s %11s %11s %11s %7s %12s %7s %9s  %s%s\n", r->name, r->unit, median, min, max,
           spread, yardstick, ratio, aim, mark, r->note ? r->note : "");
    fflush(stdout);
}

static void print_header(const bench_options *options)
{
    print_machine(stdout);
    printf("pool         %d blocks of %d tokens%s; yardstick: seed_manager.c\n\n",
           options->quick ? QUICK_POOL_BLOCKS : POOL_BLOCKS, BLOCK_TOKENS,
           options->quick ? " (--quick: the times mean little)" : "");
    printf(header, "name", "unit", "median", "min", "max", "spread", "yardstick", "ratio", "aim",
           "");
}

/* ---------------------------------------------------------------------------------------- JSON */

static void print_number_or_null(FILE *file, bool is_there, double value)
{
    if (is_there)
        fprintf(file, "%.2f", value);
    else
        fputs("null", file);
}

static int write_json(const char *path, const result *results, size_t n)
{
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "kvp_bench: %s: %s\n", path, strerror(errno));
        return 1;
    }
    fputs("[\n", file);
    for (size_t i = 0; i < n; i++) {
        const result *r = &results[i];
        fprintf(file,
                "  {\"name\": \"%s\", \"unit\": \"%s\", \"median\": %.2f, \"min\": %.2f, "
                "\"max\": %.2f, \"baseline_median\": ",
                r->name, r->unit, r->median, r->min, r->max);
        print_number_or_null(file, r->yardstick_median >= 0, r->yardstick_median);
        fputs(", \"aim\": ", file);
        print_number_or_null(file, r->aim != 0, r->aim);
        fputs(i + 1 < n ? "},\n" : "}\n", file);
    }
    fputs("]\n", file);
    bool written = !ferror(file);
    if (fclose(file) != 0 || !written) {
        fprintf(stderr, "kvp_bench: %s could not be written\n", path);
        return 1;
    }
    return 0;
}

/* ----------------------------------------------------------------------------------------- run */

/* What a group measures. Its yardstick's state is another one where sizes are compared. */
typedef struct scene {
    bool is_tried;
    bool is_here;
    void *state;
    void *yardstick_state;
} scene;

static void set_up_scene(const group *g, const bench_options *options, scene *s)
{
    bench_options sized = *options;
    sized.size = growth_size(g);
    s->state = g->set_up ? g->set_up(&sized) : NULL;
    s->is_here = !g->set_up || s->state;
    s->is_tried = true;
    sized.size = growth_yardstick_size(g);
    s->yardstick_state =
        s->is_here && options->growth && !options->count ? g->set_up(&sized) : s->state;
}

static void tear_down_scene(const group *g, const scene *s)
{
    if (s->yardstick_state != s->state)
        g->tear_down(s->yardstick_state);
    if (s->is_here && g->tear_down)
        g->tear_down(s->state);
}

/* A row that gets no result is named, with the reason. */
static size_t run_group(const group *g, const bench_options *options, result *out_results)
{
    size_t n = 0;
    scene s = {0};
    for (size_t i = 0; i < g->n_measurements; i++) {
        if (!is_wanted(options, g->measurements[i].name))
            continue;
        if (!s.is_tried)
            set_up_scene(g, options, &s);
        if (!s.is_here) {
            fprintf(stderr, "kvp_bench: %s is left out: what it needs is not here\n",
                    g->measurements[i].name);
        } else if (options->count) {
            count_sample(&g->measurements[i], s.state);
        } else {
            out_results[n] = measure(&g->measurements[i], s.state, s.yardstick_state, options);
            print_row(&out_results[n]);
            n++;
        }
    }
    tear_down_scene(g, &s);
    return n;
}

/* Room for a row of every measurement, and of every worse of two. */
static result *allocate_results(void)
{
    size_t n = N_WORST + GROWTH_CURVES;
    for (size_t g = 0; g < n_groups; g++)
        n += groups[g]->n_measurements;
    return allocate(n * sizeof(result));
}

static const result *find_result(const result *results, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(results[i].name, name) == 0)
            return &results[i];
    }
    return NULL;
}

/* Adds the results that are the worse of two others. */
static size_t add_worst(result *results, size_t n)
{
    size_t n_before = n;
    for (size_t i = 0; i < N_WORST; i++) {
        const result *first = find_result(results, n_before, worst_of[i].first);
        const result *second = find_result(results, n_before, worst_of[i].second);
        if (!first || !second)
            continue;
        results[n] = first->median > second->median ? *first : *second;
        results[n].name = worst_of[i].name;
        results[n].note = worst_of[i].note;
        n++;
    }
    return n;
}

int main(int argc, char **argv)
{
    bench_options options = parse_options(argc, argv);
    if (options.steady)
        return steady(&options);
    result *results = allocate_results();
    size_t n = 0;
    if (!options.count)
        print_header(&options);
    for (size_t i = 0; i < n_groups; i++)
        n += run_group(groups[i], &options, results + n);
    int status = 0;
    if (!options.count) {
        const size_t n_measured = n;
        n = options.growth ? growth_ratios(results, n) : add_worst(results, n);
        for (size_t i = n_measured; i < n; i++)
            print_row(&results[i]);
        print_huge_pages(stdout);
        if (options.json)
            status = write_json(options.json, results, n);
    }
    free(results);
    free(groups);
    return status;
}
