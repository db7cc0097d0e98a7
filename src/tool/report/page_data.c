/* Owns what the page is given: the report's own object, as --json prints it, and beside it what the
 * page draws: the course in intervals, what the watch saw, how latencies are spread. The names are
 * between this file and the scripts in page/, and may change with them.
 */
#include "tool/report/page.h"

#include <kvpager/kvpager.h>
#include <stddef.h>
#include <string.h>

#include "tool/tool.h"

static int set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value);
}

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *whole_or_null(json_t *object, int wrong)
{
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

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

static json_t *course(const kvpi_load_timeline *timeline, uint64_t end_ns, const char *unit,
                      double width)
{
    json_t *object = json_object();
    int wrong = set(object, "unit", json_string(unit)) + set(object, "width", json_real(width)) +
                set(object, "n", integer(timeline->n));
    for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) {
        json_t *values = json_array();
        wrong += set(object, figures[f].name, values);
        for (size_t i = 0; wrong == 0 && i < timeline->n; i++) {
            kvpi_load_level mean = kvpi_load_timeline_mean(timeline, i, end_ns);
            wrong += json_array_append_new(values,
                                           json_real(figure_of(&timeline->intervals[i], &mean, f)));
        }
    }
    return whole_or_null(object, wrong);
}

/* ------------------------------------------------------------------------------------ the watch */

static json_t *bins(const kvpi_bins *counted)
{
    json_t *array = json_array();
    int wrong = 0;
    for (size_t i = 0; i < KVPI_BINS; i++)
        wrong += json_array_append_new(array, integer(counted->counts[i]));
    return whole_or_null(array, wrong);
}

static json_t *edges_of_bins(void)
{
    json_t *array = json_array();
    int wrong = 0;
    for (size_t i = 0; i < KVPI_BINS; i++)
        wrong += json_array_append_new(array, integer(kvpi_bins_first(i)));
    return whole_or_null(array, wrong);
}

static json_t *by_part(const uint64_t values[KVPI_WATCH_PARTS])
{
    json_t *object = json_object();
    int wrong = 0;
    for (size_t i = 0; i < KVPI_WATCH_PARTS; i++)
        wrong += set(object, kvpi_watch_part_names[i], integer(values[i]));
    return whole_or_null(object, wrong);
}

static json_t *prefix(const kvpi_watch_prefix *from)
{
    json_t *object = json_object();
    int wrong = set(object, "end_tokens", integer(from->end_tokens));
    wrong += set(object, "run_tokens", integer(from->run_tokens));
    wrong += set(object, "hits", integer(from->hits));
    wrong += set(object, "first_line", integer(from->first_line));
    wrong += set(object, "saved_tokens", integer(from->saved_tokens));
    return whole_or_null(object, wrong);
}

static json_t *watched(const kvpi_watch *watch, const char *unit)
{
    json_t *object = json_object(), *prefixes = json_array();
    int wrong = set(object, "unit", json_string(unit));
    wrong += set(object, "tokens", by_part(watch->tokens));
    wrong += set(object, "stopped_at", by_part(watch->stopped_at));
    wrong += set(object, "idle", bins(&watch->idle));
    wrong += set(object, "lifetime", bins(&watch->lifetime));
    wrong += set(object, "gap_hit", bins(&watch->gap_hit));
    wrong += set(object, "gap_lost", bins(&watch->gap_lost));
    wrong += set(object, "evicted", integer(watch->evicted));
    wrong += set(object, "evicted_unused", integer(watch->evicted_unused));
    wrong += set(object, "missed_events", integer(watch->missed_events));
    wrong += set(object, "prefixes", prefixes);
    for (size_t i = 0; wrong == 0 && i < watch->n_prefixes; i++)
        wrong += json_array_append_new(prefixes, prefix(&watch->prefixes[i]));
    return whole_or_null(object, wrong);
}

/* -------------------------------------------------------------------------------- the latencies */

static const char *const latency_names[KVPI_LOAD_LATENCIES] = {"queue", "first_token", "per_token",
                                                               "end_to_end"};

static json_t *per_interval(const uint64_t *ns, size_t n)
{
    json_t *array = json_array();
    int wrong = 0;
    for (size_t i = 0; i < n; i++)
        wrong += json_array_append_new(array, integer(ns[i]));
    return whole_or_null(array, wrong);
}

static int add_latencies(json_t *data, json_t *over_time, const kvpi_load_report *report)
{
    json_t *spread = json_object();
    int wrong = set(data, "spread", spread);
    for (size_t i = 0; wrong == 0 && i < KVPI_LOAD_LATENCIES; i++) {
        const kvpi_load_latency *latency = &report->latencies[i];
        char name[32];
        snprintf(name, sizeof name, "%s_p50", latency_names[i]);
        wrong += set(over_time, name, per_interval(latency->p50_ns, report->timeline.n));
        snprintf(name, sizeof name, "%s_p90", latency_names[i]);
        wrong += set(over_time, name, per_interval(latency->p90_ns, report->timeline.n));
        wrong += set(spread, latency_names[i], bins(&latency->spread));
    }
    return wrong;
}

/* --------------------------------------------------------------------------------------- pages */

static json_t *page(const char *kind, const char *path, json_t *result)
{
    json_t *data = json_object();
    int wrong = set(data, "kind", json_string(kind));
    wrong += set(data, "version", json_string(kvp_version()));
    wrong += set(data, "title", kvpi_page_string(path));
    wrong += set(data, "result", result);
    wrong += set(data, "bins", edges_of_bins());
    return whole_or_null(data, wrong);
}

int kvpi_page_load(const char *path, const kvpi_load_report *report, const kvpi_watch *watch)
{
    json_t *data = page("load", report->path, kvpi_load_report_json(report));
    json_t *over_time =
        course(&report->timeline, report->end_ns, "s", (double)report->timeline.width_ns / 1e9);
    int wrong = set(data, "watch", watched(watch, "ms"));
    wrong += set(data, "course", over_time);
    if (wrong == 0)
        wrong = add_latencies(data, over_time, report);
    return kvpi_page_write("replay", path, whole_or_null(data, wrong));
}

int kvpi_page_sequential(const char *path, const kvpi_report *report, const kvpi_watch *watch)
{
    json_t *data = page("sequential", report->path, kvpi_report_json(report));
    uint64_t end_ns = report->requests * KVPI_REPORT_REQUEST_NS;
    double width = (double)report->course.width_ns / (double)KVPI_REPORT_REQUEST_NS;
    int wrong = set(data, "watch", watched(watch, "requests"));
    wrong += set(data, "course", course(&report->course, end_ns, "requests", width));
    return kvpi_page_write("replay", path, whole_or_null(data, wrong));
}

int kvpi_page_mrc(const char *path, const kvpi_mrc_report *report)
{
    return kvpi_page_write("mrc", path,
                           page("mrc", report->options->trace.path, kvpi_mrc_report_json(report)));
}
