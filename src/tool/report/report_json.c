/* The report for programs: one object, the names of which are an interface and stay. */
#include <errno.h>
#include <jansson.h>

#include "tool/report/report.h"

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *mean(uint64_t sum, uint64_t n)
{
    return json_real(kvpi_report_ratio(sum, n));
}

json_t *kvpi_report_text(const char *text)
{
    errno = 0;
    json_t *string = json_string(text);
    return string != NULL || errno == ENOMEM ? string : json_null();
}

static json_t *group_kind(const kvpi_size *size, const kvpi_size_group *group)
{
    json_t *object = json_object();
    int wrong = json_object_set_new(object, "groups", integer(group->n_rows));
    wrong += json_object_set_new(object, "layers", integer(group->n_layers));
    wrong += json_object_set_new(object, "layers_per_group", integer(size->row_layers));
    wrong +=
        json_object_set_new(object, "window_tokens",
                            group->window_tokens > 0 ? integer(group->window_tokens) : json_null());
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

json_t *kvpi_report_groups(const kvpi_size *size)
{
    json_t *array = size == NULL ? json_null() : json_array();
    int wrong = 0;
    for (uint32_t i = 0; size != NULL && wrong == 0 && i < size->n_groups; i++)
        wrong = json_array_append_new(array, group_kind(size, &size->groups[i]));
    if (wrong == 0)
        return array;
    json_decref(array);
    return NULL;
}

json_t *kvpi_report_tokens(const kvpi_size *size, uint64_t tokens)
{
    return integer(size == NULL ? tokens : size->tokens);
}

static int add_pool(json_t *object, const kvpi_report *report)
{
    const char *model = report->model != NULL ? report->model->name : NULL;
    const char *device = report->device != NULL ? report->device->name : NULL;
    int wrong =
        json_object_set_new(object, "model", model != NULL ? kvpi_report_text(model) : json_null());
    wrong +=
        json_object_set_new(object, "device", device != NULL ? json_string(device) : json_null());
    wrong += json_object_set_new(object, "layer_groups", kvpi_report_groups(report->size));
    wrong += json_object_set_new(
        object, "tokens", kvpi_report_tokens(report->size, report->blocks * report->block_tokens));
    wrong += json_object_set_new(object, "host_blocks", integer(report->host_blocks));
    wrong += json_object_set_new(object, "keep_evicted", json_boolean(report->keep_evicted));
    return wrong;
}

/* json_object_set_new takes over the value, and refuses NULL: so any failure shows in the sum. */
static int add_settings(json_t *object, const kvpi_report *report)
{
    int wrong = 0;
    wrong += json_object_set_new(object, "trace", kvpi_report_text(report->path));
    wrong += json_object_set_new(object, "format", json_string(report->format));
    wrong += json_object_set_new(object, "block_tokens", integer(report->block_tokens));
    wrong += json_object_set_new(object, "unit_tokens", integer(report->unit_tokens));
    wrong += json_object_set_new(object, "blocks", integer(report->blocks));
    wrong +=
        json_object_set_new(object, "memory_bytes",
                            report->memory_bytes > 0 ? integer(report->memory_bytes) : json_null());
    wrong += add_pool(object, report);
    wrong += json_object_set_new(object, "prefix_cache", json_boolean(report->prefix_cache));
    wrong += json_object_set_new(object, "output_appended", json_boolean(report->output));
    wrong += json_object_set_new(object, "seed", integer(report->seed));
    return wrong;
}

static int add_counts(json_t *object, const kvpi_report *report)
{
    int wrong = 0;
    wrong += json_object_set_new(object, "skipped", integer(report->skipped));
    wrong += json_object_set_new(object, "saved_blocks", integer(report->saved_blocks));
    wrong += json_object_set_new(object, "restored_blocks", integer(report->restored_blocks));
    wrong += json_object_set_new(object, "requests", integer(report->requests));
    wrong += json_object_set_new(object, "rejected", integer(report->rejected));
    wrong += json_object_set_new(object, "mended", integer(report->mended));
    wrong += json_object_set_new(object, "input_tokens", integer(report->input_tokens));
    wrong += json_object_set_new(object, "output_tokens", integer(report->output_tokens));
    wrong += json_object_set_new(object, "hit_tokens", integer(report->hit_tokens));
    wrong += json_object_set_new(object, "host_hit_tokens", integer(report->host_hit_tokens));
    wrong +=
        json_object_set_new(object, "hit_ratio", mean(report->hit_tokens, report->input_tokens));
    wrong += json_object_set_new(object, "blocks_looked_up", integer(report->blocks_looked_up));
    wrong += json_object_set_new(object, "block_hits", integer(report->block_hits));
    wrong += json_object_set_new(object, "evictions", integer(report->evictions));
    wrong += json_object_set_new(object, "host_evictions", integer(report->host_evictions));
    wrong += json_object_set_new(object, "peak_held_blocks", integer(report->peak_held_blocks));
    return wrong;
}

static int add_times(json_t *object, const kvpi_report *report)
{
    uint64_t opened = report->requests - report->rejected;
    double seconds = (double)report->wall_ns / 1e9;
    double tokens = (double)(report->input_tokens + report->output_tokens);
    int wrong = 0;
    wrong += json_object_set_new(object, "wall_seconds", json_real(seconds));
    wrong += json_object_set_new(object, "tokens_per_second",
                                 json_real(seconds > 0 ? tokens / seconds : 0.0));
    wrong += json_object_set_new(object, "ns_per_open", mean(report->open_ns, opened));
    wrong += json_object_set_new(object, "ns_per_commit", mean(report->commit_ns, opened));
    wrong += json_object_set_new(object, "ns_per_extend",
                                 mean(report->extend_ns, report->output_tokens));
    wrong += json_object_set_new(object, "ns_per_close", mean(report->close_ns, opened));
    return wrong;
}

static json_t *interval(const kvpi_report_timeline *timeline, size_t i)
{
    const kvpi_report_interval *part = &timeline->intervals[i];
    json_t *object = json_object();
    json_t *start = timeline->by_time ? json_real((double)(timeline->step * i) / 1e6) : json_null();
    int wrong = 0;
    wrong += json_object_set_new(object, "start_seconds", start);
    wrong += json_object_set_new(object, "requests", integer(part->requests));
    wrong += json_object_set_new(object, "input_tokens", integer(part->input_tokens));
    wrong += json_object_set_new(object, "hit_tokens", integer(part->hit_tokens));
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

static int add_timeline(json_t *object, const kvpi_report_timeline *timeline)
{
    json_t *array = json_array();
    int wrong = json_object_set_new(object, "timeline", array);
    for (size_t i = 0; wrong == 0 && i < timeline->n; i++)
        wrong = json_array_append_new(array, interval(timeline, i));
    return wrong;
}

json_t *kvpi_report_json(const kvpi_report *report)
{
    json_t *object = json_object();
    int wrong = add_settings(object, report) + add_counts(object, report) +
                add_times(object, report) + add_timeline(object, &report->timeline);
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

int kvpi_report_print_json(const kvpi_report *report, FILE *file)
{
    json_t *object = kvpi_report_json(report);
    int wrong = object == NULL;
    if (wrong == 0)
        wrong = json_dumpf(object, file, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    json_decref(object);
    return wrong != 0 || fputc('\n', file) == EOF ? -1 : 0;
}
