/* Owns what the page is given: the report's own object, as --json prints it, and beside it what the
 * page draws: the course in intervals, what the watch saw, how latencies are spread. The names are
 * between this file and the scripts in page/, and may change with them.
 */
#include "tool/report/page.h"

#include <kvpager/all.h>
#include <stddef.h>
#include <string.h>

#include "tool/tool.h"

/* ----------------------------------------------------------------------------------- the course */

/* Where a figure stands: a double of the mean level, or a count of the interval. */
static const struct {
    const char *name;
    bool is_level;
    size_t at;
} figures[] = {
    {"running", true, offsetof(kvpi_load_level, running)},
    {"waiting", true, offsetof(kvpi_load_level, waiting)},
    {"swapped", true, offsetof(kvpi_load_level, swapped)},
    {"held", true, offsetof(kvpi_load_level, held_blocks)},
    {"cached", true, offsetof(kvpi_load_level, cached_blocks)},
    {"host_held", true, offsetof(kvpi_load_level, host_held_blocks)},
    {"host_cached", true, offsetof(kvpi_load_level, host_cached_blocks)},
    {"arrived", false, offsetof(kvpi_load_interval, arrived)},
    {"finished", false, offsetof(kvpi_load_interval, finished)},
    {"prompt_tokens", false, offsetof(kvpi_load_interval, prompt_tokens)},
    {"output_tokens", false, offsetof(kvpi_load_interval, output_tokens)},
    {"input_tokens", false, offsetof(kvpi_load_interval, input_tokens)},
    {"hit_tokens", false, offsetof(kvpi_load_interval, hit_tokens)},
    {"preemptions", false, offsetof(kvpi_load_interval, preemptions)},
    {"evictions", false, offsetof(kvpi_load_interval, evictions)},
    {"references", false, offsetof(kvpi_load_interval, policy.references)},
    {"cold_references", false, offsetof(kvpi_load_interval, policy.cold_references)},
    {"guard_references", false, offsetof(kvpi_load_interval, policy.guard_references)},
    {"gate_references", false, offsetof(kvpi_load_interval, policy.gate_references)},
    {"learned_hits", false, offsetof(kvpi_load_interval, policy.learned_hits)},
    {"lru_hits", false, offsetof(kvpi_load_interval, policy.lru_hits)},
};

static double figure_of(const kvpi_load_interval *part, const kvpi_load_level *mean, size_t f)
{
    double level;
    uint64_t count;
    if (figures[f].is_level) {
        memcpy(&level, (const char *)mean + figures[f].at, sizeof level);
        return level;
    }
    memcpy(&count, (const char *)part + figures[f].at, sizeof count);
    return (double)count;
}

/* Opens the course; the caller closes it. */
static void open_course(kvpi_figures *to, const kvpi_load_timeline *timeline, uint64_t end_ns,
                        const char *unit, double width)
{
    kvpi_figures_open(to, "course");
    kvpi_figures_text(to, "unit", unit);
    kvpi_figures_real(to, "width", width);
    kvpi_figures_integer(to, "n", timeline->n);
    for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) {
        kvpi_figures_open_array(to, figures[f].name);
        for (size_t i = 0; i < timeline->n; i++) {
            kvpi_load_level mean = kvpi_load_timeline_mean(timeline, i, end_ns);
            kvpi_figures_real(to, NULL, figure_of(&timeline->intervals[i], &mean, f));
        }
        kvpi_figures_close(to);
    }
}

/* ------------------------------------------------------------------------------------ the watch */

static void add_integers(kvpi_figures *to, const char *key, const uint64_t *values, size_t n)
{
    kvpi_figures_open_array(to, key);
    for (size_t i = 0; i < n; i++)
        kvpi_figures_integer(to, NULL, values[i]);
    kvpi_figures_close(to);
}

static void add_bins(kvpi_figures *to, const char *key, const kvpi_bins *counted)
{
    add_integers(to, key, counted->counts, KVPI_BINS);
}

static void add_prefix(kvpi_figures *to, const kvpi_watch_prefix *from)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_integer(to, "end_tokens", from->end_tokens);
    kvpi_figures_integer(to, "run_tokens", from->run_tokens);
    kvpi_figures_integer(to, "hits", from->hits);
    kvpi_figures_text(to, "first_file", from->first_file);
    kvpi_figures_integer(to, "first_line", from->first_line);
    kvpi_figures_integer_if(to, from->first_of_line > 0, "first_request", from->first_of_line);
    kvpi_figures_integer(to, "saved_tokens", from->saved_tokens);
    kvpi_figures_close(to);
}

static void add_watch(kvpi_figures *to, const kvpi_watch *watch, const char *unit)
{
    kvpi_figures_open(to, "watch");
    kvpi_figures_text(to, "unit", unit);
    add_bins(to, "idle", &watch->idle);
    add_bins(to, "lifetime", &watch->lifetime);
    add_bins(to, "gap_hit", &watch->gap_hit);
    add_bins(to, "gap_lost", &watch->gap_lost);
    kvpi_figures_integer(to, "evicted", watch->evicted);
    kvpi_figures_integer(to, "evicted_unused", watch->evicted_unused);
    kvpi_figures_integer(to, "missed_events", watch->missed_events);
    kvpi_figures_open_array(to, "prefixes");
    for (size_t i = 0; i < watch->n_prefixes; i++)
        add_prefix(to, &watch->prefixes[i]);
    kvpi_figures_close(to);
    kvpi_figures_close(to);
}

/* -------------------------------------------------------------------------------- the latencies */

static const char *const latency_names[KVPI_LOAD_LATENCIES] = {"queue", "first_token", "per_token",
                                                               "end_to_end"};

static void add_latencies(kvpi_figures *to, const kvpi_load_report *report)
{
    char name[32];
    for (size_t i = 0; i < KVPI_LOAD_LATENCIES; i++) {
        const kvpi_load_latency *latency = &report->latencies[i];
        snprintf(name, sizeof name, "%s_p50", latency_names[i]);
        add_integers(to, name, latency->p50_ns, report->timeline.n);
        snprintf(name, sizeof name, "%s_p90", latency_names[i]);
        add_integers(to, name, latency->p90_ns, report->timeline.n);
    }
}

static void add_spreads(kvpi_figures *to, const kvpi_load_report *report)
{
    kvpi_figures_open(to, "spread");
    for (size_t i = 0; i < KVPI_LOAD_LATENCIES; i++)
        add_bins(to, latency_names[i], &report->latencies[i].spread);
    kvpi_figures_close(to);
}

/* --------------------------------------------------------------------------------------- pages */

/* Pages are handed on: they do not name folders of this machine. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(path, "-") == 0 ? "standard input" : slash != NULL ? slash + 1 : path;
}

static kvpi_figures begin_page(const char *kind, const char *path, json_t *result)
{
    kvpi_figures page = kvpi_figures_begin();
    kvpi_figures_text(&page, "kind", kind);
    kvpi_figures_text(&page, "version", kvp_version());
    kvpi_figures_json(&page, "title", kvpi_page_string(name_of(path)));
    kvpi_figures_json(&page, "result", json_incref(result));
    kvpi_figures_open_array(&page, "bins");
    for (size_t i = 0; i < KVPI_BINS; i++)
        kvpi_figures_integer(&page, NULL, kvpi_bins_first(i));
    kvpi_figures_close(&page);
    return page;
}

int kvpi_page_load(const char *path, const kvpi_load_report *report, json_t *result,
                   const kvpi_watch *watch)
{
    kvpi_figures page = begin_page("load", report->path, result);
    add_watch(&page, watch, "ms");
    open_course(&page, &report->timeline, report->end_ns, "s",
                (double)report->timeline.width_ns / 1e9);
    add_latencies(&page, report);
    kvpi_figures_close(&page);
    add_spreads(&page, report);
    return kvpi_page_write("replay", path, kvpi_figures_end(&page));
}

int kvpi_page_sequential(const char *path, const kvpi_report *report, json_t *result,
                         const kvpi_watch *watch)
{
    kvpi_figures page = begin_page("sequential", report->path, result);
    uint64_t end_ns = report->requests * KVPI_REPORT_REQUEST_NS;
    double width = (double)report->course.width_ns / (double)KVPI_REPORT_REQUEST_NS;
    add_watch(&page, watch, "requests");
    open_course(&page, &report->course, end_ns, "requests", width);
    kvpi_figures_close(&page);
    return kvpi_page_write("replay", path, kvpi_figures_end(&page));
}

int kvpi_page_policies(const char *path, const char *path_of_trace, json_t *result)
{
    kvpi_figures page = begin_page("policies", path_of_trace, result);
    return kvpi_page_write("replay", path, kvpi_figures_end(&page));
}

int kvpi_page_mrc(const char *path, const kvpi_mrc_report *report, json_t *result)
{
    kvpi_figures page = begin_page("mrc", report->options->trace.path, result);
    return kvpi_page_write("mrc", path, kvpi_figures_end(&page));
}
