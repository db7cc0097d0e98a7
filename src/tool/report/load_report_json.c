/* The report of a replay under load, for programs: one object, the names of which are an interface
 * and stay. Simulated durations are whole nanoseconds. What was measured stands apart, so that
 * without it equal input gives equal bytes.
 */
#include <jansson.h>

#include "tool/report/load_report.h"
#include "tool/report/report.h"

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static double seconds(double ns)
{
    return ns / 1e9;
}

static double per_second(uint64_t n, uint64_t ns)
{
    return ns == 0 ? 0.0 : (double)n * 1e9 / (double)ns;
}

/* json_object_set_new takes over the value, and refuses NULL: so any failure shows in the sum of
 * what these return. */
static int set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value);
}

static int set_integer(json_t *object, const char *key, uint64_t value)
{
    return set(object, key, integer(value));
}

static int set_real(json_t *object, const char *key, double value)
{
    return set(object, key, json_real(value));
}

/* ------------------------------------------------------------------------------------ settings */

static json_t *roofline(const kvpi_load_setting *setting)
{
    const kvpi_step_roofline *r = &setting->step_model->roofline;
    const kvpi_size_options *options = setting->size_options;
    json_t *object = json_object();
    int wrong = set(object, "kind", json_string("roofline"));
    wrong += set(object, "model", kvpi_report_text(setting->model->name));
    wrong += set(object, "device", json_string(setting->device->name));
    wrong += set_integer(object, "tensor_parallel", options->tensor_parallel);
    wrong += set(object, "kv_dtype", json_string(kvpi_models_kv_dtypes[options->kv_dtype]));
    wrong += set(object, "weights_dtype",
                 json_string(kvpi_models_weights_dtypes[options->weights_dtype]));
    wrong += set_integer(object, "step_ns", setting->step_model->step_ns);
    wrong += set_real(object, "flops_per_second", r->flops_per_second);
    wrong += set_real(object, "bytes_per_second", r->bytes_per_second);
    wrong += set_real(object, "host_bytes_per_second", r->host_bytes_per_second);
    wrong += set_real(object, "token_flops", r->token_flops);
    wrong += set_real(object, "sampled_flops", r->sampled_flops);
    wrong += set_real(object, "weights_bytes", r->weights_bytes);
    wrong += set_real(object, "expert_bytes", r->expert_bytes);
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *rates(const kvpi_step_model *model)
{
    json_t *object = json_object();
    int wrong = set(object, "kind", json_string("rates"));
    wrong += set_integer(object, "step_ns", model->step_ns);
    wrong += set_real(object, "prompt_token_ns", (double)model->rates.prompt_token_ps / 1000);
    wrong += set_real(object, "decode_token_ns", (double)model->rates.decode_token_ps / 1000);
    wrong += set_real(object, "context_token_ns", (double)model->rates.context_token_ps / 1000);
    wrong += set_real(object, "copy_token_ns", (double)model->rates.copy_token_ps / 1000);
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *scheduler(const kvpi_load_report *report)
{
    static const char *const means[] = {"recompute", "swap", "cheaper"};
    const kvp_sched_config *config = &report->sched_config;
    json_t *object = json_object();
    int wrong = set_integer(object, "max_running", config->max_running);
    wrong += set_integer(object, "step_tokens", config->step_tokens);
    wrong += set_integer(object, "chunk_tokens", config->chunk_tokens);
    wrong += set_integer(object, "max_passed_over", config->max_passed_over);
    wrong += set_integer(object, "max_tries", config->max_tries);
    wrong += set_integer(object, "watermark_blocks", report->cache.watermark_blocks);
    wrong += set(object, "preempt", json_string(means[config->preempt]));
    wrong += set(object, "swap_ahead", json_boolean(config->swap_ahead));
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

static int add_settings(json_t *object, const kvpi_load_report *report)
{
    const kvpi_load_setting *setting = &report->setting;
    uint64_t bytes = setting->token_bytes * setting->block_tokens;
    int wrong = set(object, "mode", json_string("load"));
    wrong += set(object, "trace", kvpi_report_text(report->path));
    wrong += set(object, "format", json_string(report->format));
    wrong += set_real(object, "speedup", (double)setting->speedup_milli / 1000);
    wrong += set_integer(object, "block_tokens", setting->block_tokens);
    wrong += set_integer(object, "unit_tokens", setting->unit_tokens);
    wrong += set_integer(object, "blocks", setting->blocks);
    wrong += set_integer(object, "host_blocks", setting->host_blocks);
    wrong += set(object, "keep_evicted", json_boolean(setting->keep_evicted));
    wrong += set(object, "block_bytes", bytes > 0 ? integer(bytes) : json_null());
    wrong += set(object, "layer_groups", kvpi_report_groups(setting->size));
    wrong += set(object, "tokens",
                 kvpi_report_tokens(setting->size, setting->blocks * setting->block_tokens));
    wrong += set(object, "prefix_cache", json_boolean(setting->prefix_cache));
    wrong += set(object, "output_appended", json_boolean(setting->output));
    wrong += set_integer(object, "seed", setting->seed);
    wrong += set(object, "step_model",
                 setting->step_model->is_roofline ? roofline(setting) : rates(setting->step_model));
    wrong += set(object, "scheduler", scheduler(report));
    return wrong;
}

/* -------------------------------------------------------------------------------------- counts */

static json_t *rejection(const kvpi_load_rejection *r)
{
    json_t *object = json_object();
    int wrong = set_integer(object, "line", r->line);
    wrong += set_integer(object, "input_tokens", r->input_tokens);
    wrong += set_integer(object, "output_tokens", r->output_tokens);
    wrong += set(object, "reason", json_string(kvpi_load_reason_names[r->reason]));
    wrong += set_integer(object, "max_prompt_tokens", r->limit.max_prompt_tokens);
    wrong += set_integer(object, "max_tokens", r->limit.max_tokens);
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

static int add_rejections(json_t *object, const kvpi_load_report *report)
{
    json_t *by_reason = json_object(), *array = json_array();
    uint64_t n = 0;
    int wrong = 0;
    for (size_t i = 0; i < KVPI_LOAD_REASONS; i++) {
        wrong += set_integer(by_reason, kvpi_load_reason_names[i], report->rejected[i]);
        n += report->rejected[i];
    }
    wrong += set_integer(object, "rejected", n);
    wrong += set(object, "rejected_by_reason", by_reason);
    wrong += set(object, "rejections", array);
    for (size_t i = 0; wrong == 0 && i < report->n_rejections; i++)
        wrong = json_array_append_new(array, rejection(&report->rejections[i]));
    return wrong;
}

static int add_counts(json_t *object, const kvpi_load_report *report)
{
    const kvp_stats *cache = &report->cache;
    uint64_t device = cache->cached_tokens - cache->host_tokens;
    int wrong = set_integer(object, "requests", report->requests);
    wrong += set_integer(object, "finished", report->finished);
    wrong += set_integer(object, "unfinished", report->unfinished);
    wrong += set_integer(object, "mended", report->mended);
    wrong += add_rejections(object, report);
    wrong += set_integer(object, "input_tokens", report->input_tokens);
    wrong += set_integer(object, "output_tokens", report->output_tokens);
    wrong += set_integer(object, "hit_tokens", report->hit_tokens);
    wrong +=
        set_real(object, "hit_ratio", kvpi_report_ratio(report->hit_tokens, report->input_tokens));
    wrong += set_integer(object, "admitted_tokens", cache->prompt_tokens);
    wrong += set_integer(object, "device_tokens", device);
    wrong += set_integer(object, "host_tokens", cache->host_tokens);
    wrong += set_integer(object, "computed_tokens", cache->prompt_tokens - cache->cached_tokens);
    wrong += set_real(object, "device_share", kvpi_report_ratio(device, cache->prompt_tokens));
    wrong +=
        set_real(object, "host_share", kvpi_report_ratio(cache->host_tokens, cache->prompt_tokens));
    wrong += set_real(
        object, "computed_share",
        kvpi_report_ratio(cache->prompt_tokens - cache->cached_tokens, cache->prompt_tokens));
    return wrong;
}

static int add_blocks(json_t *object, const kvpi_load_report *report)
{
    const kvp_stats *cache = &report->cache;
    const kvp_sched_stats *sched = &report->sched;
    double all = (double)report->setting.blocks * (double)report->end_ns;
    int wrong = set_integer(object, "evictions", cache->evicted_blocks);
    wrong += set_integer(object, "peak_held_blocks", cache->peak_held_blocks);
    wrong += set_real(object, "occupancy", all > 0 ? report->held_block_ns / all : 0.0);
    wrong += set_integer(object, "admissions", sched->admissions);
    wrong += set_integer(object, "preemptions_recompute", report->recompute_preemptions);
    wrong += set_integer(object, "preemptions_swap", report->swap_preemptions);
    wrong += set_integer(object, "left_out", sched->left_out);
    wrong += set_integer(object, "lost_tokens", sched->lost_tokens);
    wrong += set_integer(object, "prompt_tokens_scheduled", report->prompt_tokens);
    wrong += set_integer(object, "swapped_out_blocks", cache->swapped_out_blocks);
    wrong += set_integer(object, "swapped_in_blocks", cache->swapped_in_blocks);
    wrong += set_integer(object, "blocks_to_host", report->blocks_to_host);
    wrong += set_integer(object, "blocks_from_host", report->blocks_from_host);
    wrong += set_integer(object, "host_evictions", cache->host_evicted_blocks);
    return wrong;
}

/* --------------------------------------------------------------------------------------- times */

static json_t *percentiles(const kvpi_percentiles *p)
{
    json_t *object = json_object();
    int wrong = set_integer(object, "n", p->n);
    wrong += set_real(object, "mean", p->mean);
    wrong += set_integer(object, "p50", p->p50);
    wrong += set_integer(object, "p90", p->p90);
    wrong += set_integer(object, "p99", p->p99);
    wrong += set_integer(object, "max", p->max);
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *waited(const kvpi_load_report *report)
{
    json_t *object = json_object();
    int wrong = 0;
    for (size_t r = 0; r < KVP_WAIT_REASONS; r++) {
        json_t *reason = json_object();
        uint64_t n = report->sched.waited[r] + report->sched.waited_swapped[r];
        wrong += set_integer(reason, "request_steps", n);
        wrong += set_real(reason, "seconds", seconds(report->waited_ns[r]));
        wrong += set(object, kvpi_load_wait_names[r], reason);
    }
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

static int add_times(json_t *object, const kvpi_load_report *report)
{
    int wrong = set_real(object, "simulated_seconds", seconds((double)report->end_ns));
    wrong += set_real(object, "busy_seconds", seconds((double)report->busy_ns));
    wrong += set_real(object, "compute_bound_seconds", seconds(report->bound_by_compute_ns));
    wrong += set_real(object, "copy_seconds", seconds(report->copy_ns));
    wrong += set_integer(object, "steps", report->step.n);
    wrong += set_real(object, "input_tokens_per_second",
                      per_second(report->finished_input_tokens, report->end_ns));
    wrong += set_real(object, "output_tokens_per_second",
                      per_second(report->output_tokens, report->end_ns));
    wrong += set(object, "queue_ns", percentiles(&report->queue));
    wrong += set(object, "time_to_first_token_ns", percentiles(&report->first_token));
    wrong += set(object, "time_per_output_token_ns", percentiles(&report->per_token));
    wrong += set(object, "between_tokens_ns", percentiles(&report->gap));
    wrong += set(object, "end_to_end_ns", percentiles(&report->end_to_end));
    wrong += set(object, "step_ns", percentiles(&report->step));
    wrong += set(object, "waited", waited(report));
    return wrong;
}

static json_t *interval(const kvpi_load_report *report, size_t i)
{
    const kvpi_load_timeline *timeline = &report->timeline;
    const kvpi_load_interval *part = &timeline->intervals[i];
    kvpi_load_level mean = kvpi_load_timeline_mean(timeline, i, report->end_ns);
    json_t *object = json_object();
    int wrong = set_real(object, "start_seconds", seconds((double)(i * timeline->width_ns)));
    wrong += set_real(object, "running", mean.running);
    wrong += set_real(object, "waiting", mean.waiting);
    wrong += set_real(object, "swapped", mean.swapped);
    wrong += set_real(object, "held_blocks", mean.held_blocks);
    wrong += set_real(object, "host_held_blocks", mean.host_held_blocks);
    wrong += set_integer(object, "arrived", part->arrived);
    wrong += set_integer(object, "finished", part->finished);
    wrong += set_integer(object, "steps", part->steps);
    wrong += set_integer(object, "prompt_tokens", part->prompt_tokens);
    wrong += set_integer(object, "output_tokens", part->output_tokens);
    wrong += set_integer(object, "input_tokens", part->input_tokens);
    wrong += set_integer(object, "hit_tokens", part->hit_tokens);
    wrong += set_integer(object, "preemptions", part->preemptions);
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

static int add_timeline(json_t *object, const kvpi_load_report *report)
{
    json_t *array = json_array();
    int wrong = set(object, "timeline", array);
    for (size_t i = 0; wrong == 0 && i < report->timeline.n; i++)
        wrong = json_array_append_new(array, interval(report, i));
    return wrong;
}

static int add_measured(json_t *object, const kvpi_load_report *report)
{
    json_t *measured = json_object();
    int wrong = set_real(measured, "scheduler_ns_per_step",
                         kvpi_report_ratio(report->sched_ns, report->sched.steps));
    wrong += set_real(measured, "scheduler_seconds", seconds((double)report->sched_ns));
    wrong += set_real(measured, "wall_seconds", seconds((double)report->wall_ns));
    wrong += set(object, "measured", measured);
    return wrong;
}

json_t *kvpi_load_report_json(const kvpi_load_report *report)
{
    json_t *object = json_object();
    int wrong = add_settings(object, report) + add_counts(object, report) +
                add_blocks(object, report) + add_times(object, report) +
                add_timeline(object, report);
    if (report->measured)
        wrong += add_measured(object, report);
    if (wrong == 0)
        return object;
    json_decref(object);
    return NULL;
}

int kvpi_load_report_print_json(const kvpi_load_report *report, FILE *file)
{
    json_t *object = kvpi_load_report_json(report);
    int wrong = object == NULL;
    if (wrong == 0)
        wrong = json_dumpf(object, file, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    json_decref(object);
    return wrong != 0 || fputc('\n', file) == EOF ? -1 : 0;
}
