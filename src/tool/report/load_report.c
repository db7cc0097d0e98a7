/* The report of a replay under load. Owns the list of its figures. Their keys are an interface and
 * stay; simulated durations are whole nanoseconds; what was measured stands apart, so that without
 * it equal input gives equal bytes. Owns also the layout for people:
 *
 *   what was replayed, on what model of a machine
 *   counts          label, value, what it means
 *   latencies       mean and percentiles, one row each
 *   waiting         why, and how long
 *   course          one row for an interval of simulated time
 *
 * Nothing is wider than 80 columns, except a long file name.
 */
#include "tool/report/load_report.h"

#include <inttypes.h>
#include <string.h>

#include "tool/log/reading.h"
#include "tool/report/report.h"
#include "tool/watch/reasons_report.h"
#include "tool/text.h"
#include "tool/input/escape.h"

#define COURSE_ROWS   20
#define NS_PER_US     1000
#define NS_PER_SECOND 1000000000

const char *const kvpi_load_reason_names[] = {"empty_prompt", "prompt_too_long", "output_too_long"};
const char *const kvpi_load_wait_names[] = {"blocks",     "places", "step_tokens", "plan",
                                            "preemption", "order",  "prefix"};

uint64_t kvpi_load_report_rejected(const kvpi_load_report *report)
{
    uint64_t n = 0;
    for (size_t i = 0; i < KVPI_LOAD_REASONS; i++)
        n += report->rejected[i];
    return n;
}

static void add_seconds(kvpi_figures *to, const char *key, double ns)
{
    kvpi_figures_real(to, key, ns / 1e9);
}

static double per_second(uint64_t n, uint64_t ns)
{
    return ns == 0 ? 0.0 : (double)n * 1e9 / (double)ns;
}

/* ------------------------------------------------------------------------- figures: settings */

static void add_roofline(kvpi_figures *to, const kvpi_load_setting *setting)
{
    const kvpi_step_roofline *r = &setting->step_model->roofline;
    const kvpi_size_options *options = setting->size_options;
    kvpi_figures_open(to, "step_model");
    kvpi_figures_text(to, "kind", "roofline");
    kvpi_figures_text(to, "model", setting->model->name);
    kvpi_figures_text(to, "device", setting->device->name);
    kvpi_figures_integer(to, "tensor_parallel", options->tensor_parallel);
    kvpi_figures_text(to, "kv_dtype", kvpi_models_dtypes[options->kv_dtype]);
    kvpi_figures_text(to, "weights_dtype", kvpi_models_dtypes[options->weights_dtype]);
    kvpi_figures_integer(to, "step_ns", setting->step_model->step_ns);
    kvpi_figures_real(to, "flops_per_second", r->flops_per_second);
    kvpi_figures_real(to, "bytes_per_second", r->bytes_per_second);
    kvpi_figures_real(to, "host_bytes_per_second", r->host_bytes_per_second);
    kvpi_figures_real(to, "token_flops", r->token_flops);
    kvpi_figures_real(to, "sampled_flops", r->sampled_flops);
    kvpi_figures_real(to, "weights_bytes", r->weights_bytes);
    kvpi_figures_real(to, "expert_bytes", r->expert_bytes);
    kvpi_figures_close(to);
}

static void add_rates(kvpi_figures *to, const kvpi_load_setting *setting)
{
    const kvpi_step_model *model = setting->step_model;
    kvpi_figures_open(to, "step_model");
    kvpi_figures_text(to, "kind", "rates");
    if (setting->size != NULL)
        kvpi_figures_text(to, "model", setting->model->name);
    kvpi_figures_integer(to, "step_ns", model->step_ns);
    kvpi_figures_real(to, "prompt_token_ns", (double)model->rates.prompt_token_ps / 1000);
    kvpi_figures_real(to, "decode_token_ns", (double)model->rates.decode_token_ps / 1000);
    kvpi_figures_real(to, "context_token_ns", (double)model->rates.context_token_ps / 1000);
    kvpi_figures_real(to, "copy_token_ns", (double)model->rates.copy_token_ps / 1000);
    kvpi_figures_close(to);
}

static void add_scheduler(kvpi_figures *to, const kvpi_load_report *report)
{
    static const char *const means[] = {"recompute", "swap", "cheaper"};
    const kvp_sched_config *config = &report->sched_config;
    kvpi_figures_open(to, "scheduler");
    kvpi_figures_integer(to, "max_running", config->max_running);
    kvpi_figures_integer(to, "step_tokens", config->step_tokens);
    kvpi_figures_integer(to, "chunk_tokens", config->chunk_tokens);
    kvpi_figures_integer(to, "max_passed_over", config->max_passed_over);
    kvpi_figures_integer(to, "max_tries", config->max_tries);
    kvpi_figures_integer(to, "watermark_blocks", report->cache.watermark_blocks);
    kvpi_figures_text(to, "preempt", means[config->preempt]);
    kvpi_figures_flag(to, "swap_ahead", config->swap_ahead);
    kvpi_figures_flag(to, "wait_for_prefix", config->wait_for_prefix);
    kvpi_figures_integer(to, "free_target", config->free_target);
    kvpi_figures_close(to);
}

static void add_window(kvpi_figures *to, const kvpi_load_sessions *sessions)
{
    const bool ends = sessions->window_ns != UINT64_MAX;
    kvpi_figures_open(to, "window");
    kvpi_figures_json(to, "seconds",
                      ends ? json_real((double)sessions->window_ns / 1e9) : json_null());
    kvpi_figures_integer(to, "requests", sessions->window_requests);
    kvpi_figures_integer(to, "input_tokens", sessions->window_input_tokens);
    kvpi_figures_integer(to, "output_tokens", sessions->window_output_tokens);
    kvpi_figures_integer(to, "hit_tokens", sessions->window_hit_tokens);
    kvpi_figures_real(
        to, "hit_ratio",
        kvpi_report_ratio(sessions->window_hit_tokens, sessions->window_input_tokens));
    kvpi_figures_close(to);
}

/* Null where requests came at their recorded times. */
static void add_sessions(kvpi_figures *to, const kvpi_load_sessions *sessions)
{
    if (!sessions->closed) {
        kvpi_figures_json(to, "closed_loop", json_null());
        return;
    }
    kvpi_figures_open(to, "closed_loop");
    kvpi_figures_integer(to, "sessions", sessions->sessions);
    kvpi_figures_integer_if(to, sessions->at_once > 0, "at_once", sessions->at_once);
    kvpi_figures_json(to, "sessions_per_second",
                      sessions->rate_milli > 0 ? json_real((double)sessions->rate_milli / 1000)
                                               : json_null());
    kvpi_figures_real(to, "think_scale", (double)sessions->think_milli / 1000);
    kvpi_figures_json(to, "think_cap_seconds",
                      sessions->cap_milli > 0 ? json_real((double)sessions->cap_milli / 1000)
                                              : json_null());
    kvpi_figures_integer(to, "ended", sessions->over);
    kvpi_figures_integer(to, "ended_by_rejection", sessions->rejected);
    kvpi_figures_integer(to, "dropped_requests", sessions->dropped);
    kvpi_figures_integer(to, "estimated_gaps", sessions->estimated);
    kvpi_figures_integer(to, "overlapping_requests", sessions->overlapping);
    add_window(to, sessions);
    kvpi_figures_close(to);
}

static void add_settings(kvpi_figures *to, const kvpi_load_report *report)
{
    const kvpi_load_setting *setting = &report->setting;
    uint64_t bytes = setting->token_bytes * setting->block_tokens;
    kvpi_figures_text(to, "mode", "load");
    kvpi_figures_text(to, "trace", report->path);
    kvpi_figures_text(to, "format", report->format);
    kvpi_reading_add(to, report->about);
    kvpi_figures_real(to, "speedup", (double)setting->speedup_milli / 1000);
    kvpi_figures_integer(to, "block_tokens", setting->block_tokens);
    kvpi_figures_integer(to, "unit_tokens", setting->unit_tokens);
    kvpi_figures_integer(to, "blocks", setting->blocks);
    kvpi_figures_integer(to, "host_blocks", setting->host_blocks);
    kvpi_report_add_kept(to, setting->keep_evicted);
    kvpi_figures_integer_if(to, bytes > 0, "block_bytes", bytes);
    kvpi_report_add_groups(to, setting->size);
    kvpi_report_add_retained(to, setting->retain_tokens);
    kvpi_figures_integer(to, "tokens",
                         setting->size != NULL ? setting->size->tokens
                                               : setting->blocks * setting->block_tokens);
    kvpi_figures_flag(to, "prefix_cache", setting->prefix_cache);
    kvpi_figures_flag(to, "output_appended", setting->output);
    kvpi_figures_integer(to, "seed", setting->seed);
    if (setting->step_model->is_roofline)
        add_roofline(to, setting);
    else
        add_rates(to, setting);
    add_scheduler(to, report);
    add_sessions(to, &report->sessions);
}

/* --------------------------------------------------------------------------- figures: counts */

static void add_rejection(kvpi_figures *to, const kvpi_load_rejection *r)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_text(to, "file", r->file);
    kvpi_figures_integer(to, "line", r->line);
    kvpi_figures_integer_if(to, r->of_line > 0, "request", r->of_line);
    kvpi_figures_integer(to, "input_tokens", r->input_tokens);
    kvpi_figures_integer(to, "output_tokens", r->output_tokens);
    kvpi_figures_text(to, "reason", kvpi_load_reason_names[r->reason]);
    kvpi_figures_integer(to, "max_prompt_tokens", r->limit.max_prompt_tokens);
    kvpi_figures_integer(to, "max_tokens", r->limit.max_tokens);
    kvpi_figures_close(to);
}

static void add_rejections(kvpi_figures *to, const kvpi_load_report *report)
{
    kvpi_figures_integer(to, "rejected", kvpi_load_report_rejected(report));
    kvpi_figures_open(to, "rejected_by_reason");
    for (size_t i = 0; i < KVPI_LOAD_REASONS; i++)
        kvpi_figures_integer(to, kvpi_load_reason_names[i], report->rejected[i]);
    kvpi_figures_close(to);
    kvpi_figures_open_array(to, "rejections");
    for (size_t i = 0; i < report->n_rejections; i++)
        add_rejection(to, &report->rejections[i]);
    kvpi_figures_close(to);
}

static void add_counts(kvpi_figures *to, const kvpi_load_report *report)
{
    const kvp_stats *cache = &report->cache;
    uint64_t device = cache->cached_tokens - cache->host_tokens;
    kvpi_figures_integer(to, "requests", report->requests);
    kvpi_figures_integer(to, "finished", report->finished);
    kvpi_figures_integer(to, "unfinished", report->unfinished);
    kvpi_figures_integer(to, "mended", report->mended);
    add_rejections(to, report);
    kvpi_figures_integer(to, "input_tokens", report->input_tokens);
    kvpi_figures_integer(to, "output_tokens", report->output_tokens);
    kvpi_figures_integer(to, "hit_tokens", report->hit_tokens);
    kvpi_figures_real(to, "hit_ratio", kvpi_report_ratio(report->hit_tokens, report->input_tokens));
    kvpi_figures_integer(to, "admitted_tokens", cache->prompt_tokens);
    kvpi_figures_integer(to, "device_tokens", device);
    kvpi_figures_integer(to, "host_tokens", cache->host_tokens);
    kvpi_figures_integer(to, "computed_tokens", cache->prompt_tokens - cache->cached_tokens);
    kvpi_figures_real(to, "device_share", kvpi_report_ratio(device, cache->prompt_tokens));
    kvpi_figures_real(to, "host_share",
                      kvpi_report_ratio(cache->host_tokens, cache->prompt_tokens));
    kvpi_figures_real(
        to, "computed_share",
        kvpi_report_ratio(cache->prompt_tokens - cache->cached_tokens, cache->prompt_tokens));
    kvpi_hits_add(to, &report->hits, report->setting.size);
}

static void add_blocks(kvpi_figures *to, const kvpi_load_report *report)
{
    const kvp_stats *cache = &report->cache;
    const kvp_sched_stats *sched = &report->sched;
    double all = (double)report->setting.blocks * (double)report->end_ns;
    kvpi_figures_integer(to, "evictions", cache->evicted_blocks);
    kvpi_figures_integer(to, "peak_held_blocks", cache->peak_held_blocks);
    kvpi_figures_real(to, "occupancy", all > 0 ? report->held_block_ns / all : 0.0);
    kvpi_figures_integer(to, "admissions", sched->admissions);
    kvpi_figures_integer(to, "preemptions_recompute", report->recompute_preemptions);
    kvpi_figures_integer(to, "preemptions_swap", report->swap_preemptions);
    kvpi_figures_integer(to, "left_out", sched->left_out);
    kvpi_figures_integer(to, "lost_tokens", sched->lost_tokens);
    kvpi_figures_integer(to, "prompt_tokens_scheduled", report->prompt_tokens);
    kvpi_figures_integer(to, "swapped_out_blocks", cache->swapped_out_blocks);
    kvpi_figures_integer(to, "swapped_in_blocks", cache->swapped_in_blocks);
    kvpi_figures_integer(to, "blocks_to_host", report->blocks_to_host);
    kvpi_figures_integer(to, "blocks_from_host", report->blocks_from_host);
    kvpi_figures_integer(to, "states_to_host", report->states_to_host);
    kvpi_figures_integer(to, "states_from_host", report->states_from_host);
    kvpi_figures_integer(to, "host_evictions", cache->host_evicted_blocks);
    kvpi_report_add_policy(to, cache);
    kvpi_learned_add(to, &report->learned);
    kvpi_store_report_add(to, &report->store);
}

/* ---------------------------------------------------------------------------- figures: times */

static void add_percentiles(kvpi_figures *to, const char *key, const kvpi_percentiles *p)
{
    kvpi_figures_open(to, key);
    kvpi_figures_integer(to, "n", p->n);
    kvpi_figures_real(to, "mean", p->mean);
    kvpi_figures_integer(to, "p50", p->p50);
    kvpi_figures_integer(to, "p90", p->p90);
    kvpi_figures_integer(to, "p95", p->p95);
    kvpi_figures_integer(to, "p99", p->p99);
    kvpi_figures_integer(to, "max", p->max);
    kvpi_figures_close(to);
}

static void add_waited(kvpi_figures *to, const kvpi_load_report *report)
{
    kvpi_figures_open(to, "waited");
    for (size_t r = 0; r < KVP_WAIT_REASONS; r++) {
        kvpi_figures_open(to, kvpi_load_wait_names[r]);
        kvpi_figures_integer(to, "request_steps",
                             report->sched.waited[r] + report->sched.waited_swapped[r]);
        add_seconds(to, "seconds", report->waited_ns[r]);
        kvpi_figures_close(to);
    }
    kvpi_figures_close(to);
}

static void add_times(kvpi_figures *to, const kvpi_load_report *report)
{
    add_seconds(to, "simulated_seconds", (double)report->end_ns);
    add_seconds(to, "busy_seconds", (double)report->busy_ns);
    add_seconds(to, "compute_bound_seconds", report->bound_by_compute_ns);
    add_seconds(to, "copy_seconds", report->copy_ns);
    kvpi_figures_integer(to, "steps", report->step.n);
    kvpi_figures_real(to, "input_tokens_per_second",
                      per_second(report->finished_input_tokens, report->end_ns));
    kvpi_figures_real(to, "output_tokens_per_second",
                      per_second(report->output_tokens, report->end_ns));
    add_percentiles(to, "queue_ns", &report->queue);
    add_percentiles(to, "time_to_first_token_ns", &report->first_token);
    add_percentiles(to, "time_per_output_token_ns", &report->per_token);
    add_percentiles(to, "between_tokens_ns", &report->gap);
    add_percentiles(to, "end_to_end_ns", &report->end_to_end);
    add_percentiles(to, "step_ns", &report->step);
    if (report->store.url != NULL)
        add_percentiles(to, "load_wait_ns", &report->load_wait);
    add_waited(to, report);
}

static void add_interval(kvpi_figures *to, const kvpi_load_report *report, size_t i)
{
    const kvpi_load_timeline *timeline = &report->timeline;
    const kvpi_load_interval *part = &timeline->intervals[i];
    kvpi_load_level mean = kvpi_load_timeline_mean(timeline, i, report->end_ns);
    kvpi_figures_open(to, NULL);
    add_seconds(to, "start_seconds", (double)(i * timeline->width_ns));
    kvpi_figures_real(to, "running", mean.running);
    kvpi_figures_real(to, "waiting", mean.waiting);
    kvpi_figures_real(to, "swapped", mean.swapped);
    kvpi_figures_real(to, "held_blocks", mean.held_blocks);
    kvpi_figures_real(to, "host_held_blocks", mean.host_held_blocks);
    kvpi_figures_integer(to, "arrived", part->arrived);
    kvpi_figures_integer(to, "finished", part->finished);
    kvpi_figures_integer(to, "steps", part->steps);
    kvpi_figures_integer(to, "prompt_tokens", part->prompt_tokens);
    kvpi_figures_integer(to, "output_tokens", part->output_tokens);
    kvpi_figures_integer(to, "input_tokens", part->input_tokens);
    kvpi_figures_integer(to, "hit_tokens", part->hit_tokens);
    kvpi_figures_integer(to, "preemptions", part->preemptions);
    kvpi_figures_close(to);
}

static void add_timeline(kvpi_figures *to, const kvpi_load_report *report)
{
    kvpi_figures_open_array(to, "timeline");
    for (size_t i = 0; i < report->timeline.n; i++)
        add_interval(to, report, i);
    kvpi_figures_close(to);
}

static void add_measured(kvpi_figures *to, const kvpi_load_report *report)
{
    kvpi_figures_open(to, "measured");
    kvpi_figures_real(to, "scheduler_ns_per_step",
                      kvpi_report_ratio(report->sched_ns, report->sched.steps));
    add_seconds(to, "scheduler_seconds", (double)report->sched_ns);
    add_seconds(to, "wall_seconds", (double)report->wall_ns);
    kvpi_figures_close(to);
}

json_t *kvpi_load_report_figures(const kvpi_load_report *report)
{
    kvpi_figures figures = kvpi_figures_begin();
    add_settings(&figures, report);
    add_counts(&figures, report);
    add_blocks(&figures, report);
    add_times(&figures, report);
    kvpi_reasons_figures(&figures, report->why);
    add_timeline(&figures, report);
    if (report->measured)
        add_measured(&figures, report);
    return kvpi_figures_end(&figures);
}

/* ------------------------------------------------------------------------------------- the head */

/* Exact up to a microsecond. */
static kvpi_text price_text(uint64_t ps)
{
    kvpi_text out;
    if (ps >= 1000000)
        return kvpi_text_duration((double)ps / 1000);
    snprintf(out.of, sizeof out.of, "%g ns", (double)ps / 1000);
    return out;
}

static void print_model(const kvpi_load_setting *setting, FILE *file)
{
    const kvpi_step_model *model = setting->step_model;
    kvpi_text overhead = kvpi_text_duration((double)model->step_ns);
    if (!model->is_roofline) {
        const kvpi_step_rates *rates = &model->rates;
        fprintf(file, "Time is a model: %s a step, %s a prompt token,\n", overhead.of,
                price_text(rates->prompt_token_ps).of);
        fprintf(file, "  %s a decoding sequence, %s a token of context, %s a copied one\n",
                price_text(rates->decode_token_ps).of, price_text(rates->context_token_ps).of,
                price_text(rates->copy_token_ps).of);
        return;
    }
    fprintf(file, "Time is a model: %s on ", kvpi_escape(setting->model->name).of);
    if (setting->size_options->tensor_parallel > 1)
        fprintf(file, "%" PRIu32 " x ", setting->size_options->tensor_parallel);
    fprintf(file, "%s,\n", setting->device->title);
    fprintf(file, "  roofline at %.0f %% of its FLOP/s and %.0f %% of its bandwidth, + %s a step\n",
            (double)setting->shares->compute_milli / 10,
            (double)setting->shares->bandwidth_milli / 10, overhead.of);
}

static void print_pool(const kvpi_load_setting *setting, const char *name, uint64_t blocks,
                       FILE *file)
{
    bool is_device = name[0] == 'K';
    const kvpi_report_pool pool = {.name = name,
                                   .blocks = blocks,
                                   .block_tokens = setting->block_tokens,
                                   .bytes = blocks * setting->block_tokens * setting->token_bytes,
                                   .context_tokens =
                                       is_device ? setting->size_options->context_tokens : 0,
                                   .size = setting->size,
                                   .retain_tokens = is_device ? setting->retain_tokens : 0};
    kvpi_report_print_pool(&pool, file);
    fputc('\n', file);
}

static void print_sessions(const kvpi_load_sessions *sessions, FILE *file)
{
    if (!sessions->closed)
        return;
    fprintf(file, "Closed loop: %s sessions", kvpi_text_count(sessions->sessions).of);
    if (sessions->at_once > 0)
        fprintf(file, ", %s at once", kvpi_text_count(sessions->at_once).of);
    if (sessions->rate_milli > 0)
        fprintf(file, ", %g start a second", (double)sessions->rate_milli / 1000);
    if (sessions->think_milli != 1000)
        fprintf(file, ", gaps x %g", (double)sessions->think_milli / 1000);
    if (sessions->cap_milli > 0)
        fprintf(file, ", at most %g s", (double)sessions->cap_milli / 1000);
    fputc('\n', file);
    if (sessions->window_ns != UINT64_MAX)
        fprintf(file, "  latencies of the first %s, while so many ran: %s requests, %.1f %% hit\n",
                kvpi_text_clock(sessions->window_ns / 1000).of,
                kvpi_text_count(sessions->window_requests).of,
                100 *
                    kvpi_report_ratio(sessions->window_hit_tokens, sessions->window_input_tokens));
    if (sessions->estimated > 0)
        fprintf(file, "  gaps that are estimates, after a turn without an end: %s\n",
                kvpi_text_count(sessions->estimated).of);
    if (sessions->dropped > 0)
        fprintf(file, "  requests that did not come, after one that was rejected: %s\n",
                kvpi_text_count(sessions->dropped).of);
}

static void print_head(const kvpi_load_report *report, FILE *file)
{
    const kvpi_load_setting *setting = &report->setting;
    fprintf(file, "%s: %s, %s of traffic", kvpi_escape(report->path).of, report->format,
            kvpi_text_clock((uint64_t)report->span_us).of);
    if (setting->speedup_milli != 1000)
        fprintf(file, ", %g times as fast", (double)setting->speedup_milli / 1000);
    fputc('\n', file);
    kvpi_reading_print(report->about, file);
    print_sessions(&report->sessions, file);
    print_model(setting, file);
    print_pool(setting, "KV: ", setting->blocks, file);
    if (setting->host_blocks > 0)
        print_pool(setting, "Host: ", setting->host_blocks, file);
    if (!setting->prefix_cache)
        fputs("Prefix cache off\n", file);
    fputc('\n', file);
}

/* -------------------------------------------------------------------------------------- counts */

static void print_requests(const kvpi_load_report *report, const json_t *figures, FILE *file)
{
    bool is_short = report->end_ns < UINT64_C(60) * NS_PER_SECOND;
    kvpi_text time = is_short ? kvpi_text_duration((double)report->end_ns)
                              : kvpi_text_clock(report->end_ns / NS_PER_US);
    const kvpi_figures_row rows[] = {
        {true, "requests", "{requests}", "{rejected} could never be served"},
        {true, "finished", "{finished}",
         report->unfinished == 0 ? "all that could be" : "{unfinished} DID NOT FINISH"},
        {true, "time", time.of,
         "until the last token, {busy_seconds/simulated_seconds} of it busy"},
        {true, "steps", "{steps}",
         report->setting.step_model->is_roofline
             ? "{compute_bound_seconds/busy_seconds} of their time bound by computing"
             : "with something to compute"},
    };
    kvpi_figures_print_rows(figures, rows, sizeof rows / sizeof *rows, file);
}

static void print_tokens(const kvpi_load_report *report, const json_t *figures, FILE *file)
{
    const char *generated = report->setting.output ? "{output_tokens_per_second} a second"
                                                   : "not generated: --output-tokens off";
    const kvpi_figures_row rows[] = {
        {true, "input tokens", "{input_tokens}",
         "{input_tokens_per_second} a second; {hit_tokens/input_tokens} hit at admission"},
        {true, "  device", "{device_tokens/admitted_tokens}",
         "of {admitted_tokens} admitted, on the device"},
        {report->setting.host_blocks > 0, "  host", "{host_tokens/admitted_tokens}", "on the host"},
        {true, "  computed", "{computed_tokens/admitted_tokens}",
         report->recompute_preemptions > 0 ? "some of them again, after preemptions" : "once each"},
        {true, "output tokens", "{output_tokens}", generated},
    };
    kvpi_figures_print_rows(figures, rows, sizeof rows / sizeof *rows, file);
}

static void print_blocks(const kvpi_load_report *report, const json_t *figures, FILE *file)
{
    bool host = report->setting.host_blocks > 0;
    double all = (double)report->setting.blocks * (double)report->end_ns;
    kvpi_text occupancy = kvpi_text_share(report->held_block_ns, all);
    kvpi_text preemptions =
        kvpi_text_count(report->recompute_preemptions + report->swap_preemptions);
    const kvpi_figures_row rows[] = {
        {true, "evictions", "{evictions}", "cached blocks dropped to make room"},
        {true, "occupancy", occupancy.of,
         "of the blocks held on average; peak {peak_held_blocks/blocks}"},
        {true, "preemptions", preemptions.of,
         "{preemptions_recompute} by recompute, {preemptions_swap} by swap"},
        {report->sched.lost_tokens > 0, "lost tokens", "{lost_tokens}",
         "computed, and given up by preemptions"},
        {host, "copied out", "{blocks_to_host}",
         "blocks to the host, {swapped_out_blocks} of them by swap"},
        {host, "copied in", "{blocks_from_host}",
         "blocks back, {swapped_in_blocks} of them by swap"},
        {report->hits.state_slots.host_usable_slots > 0, "states out", "{states_to_host}",
         "of sequences, to {host_state_slots} host slots; {states_from_host} from there"},
    };
    kvpi_figures_print_rows(figures, rows, sizeof rows / sizeof *rows, file);
}

static void print_rejections(const kvpi_load_report *report, FILE *file)
{
    enum { SHOWN = 3 };
    uint64_t n = kvpi_load_report_rejected(report);
    for (size_t i = 0; i < report->n_rejections && i < SHOWN; i++) {
        const kvpi_load_rejection *r = &report->rejections[i];
        fprintf(file, "\n  %s%sline %" PRIu64, r->file != NULL ? kvpi_escape(r->file).of : "",
                r->file != NULL ? ", " : "", r->line);
        if (r->of_line > 0)
            fprintf(file, ", request %" PRIu32, r->of_line);
        fprintf(file, ": %" PRIu64 " + %" PRIu64 " tokens: ", r->input_tokens, r->output_tokens);
        if (r->reason == KVPI_LOAD_EMPTY)
            fputs("the prompt is empty", file);
        else if (r->reason == KVPI_LOAD_PROMPT)
            fprintf(file, "at most %" PRIu32 " fit in a prompt", r->limit.max_prompt_tokens);
        else
            fprintf(file, "at most %" PRIu32 " fit, output included", r->limit.max_tokens);
    }
    if (n > SHOWN)
        fprintf(file, "\n  and %s more that could never be served", kvpi_text_count(n - SHOWN).of);
    if (n > 0)
        fputc('\n', file);
}

/* ----------------------------------------------------------------------------------- latencies */

static void print_latency(FILE *file, const char *label, const kvpi_percentiles *p)
{
    const double figures[] = {p->mean, (double)p->p50, (double)p->p90, (double)p->p99,
                              (double)p->max};
    fprintf(file, "  %-21s", label);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        fprintf(file, "%11s", p->n == 0 ? "-" : kvpi_text_span(figures[i]).of);
    fputc('\n', file);
}

static void print_latencies(const kvpi_load_report *report, FILE *file)
{
    fprintf(file, "\n  %-21s%11s%11s%11s%11s%11s\n", "simulated", "mean", "p50", "p90", "p99",
            "max");
    print_latency(file, "queue", &report->queue);
    print_latency(file, "time to first token", &report->first_token);
    print_latency(file, "time per output token", &report->per_token);
    print_latency(file, "between two tokens", &report->gap);
    print_latency(file, "end to end", &report->end_to_end);
    print_latency(file, "step", &report->step);
    if (report->store.url != NULL)
        print_latency(file, "wait for the store", &report->load_wait);
}

/* ------------------------------------------------------------------------------------- waiting */

static void print_waiting(const kvpi_load_report *report, FILE *file)
{
    static const char *const words[] = {"their blocks are not there",
                                        "as many run as may (--max-running)",
                                        "the step's tokens are spent (--step-tokens)",
                                        "the plan of copies is full",
                                        "the step preempted somebody",
                                        "behind others that do not fit",
                                        "another request computes their prefix"};
    double all = 0;
    for (size_t r = 0; r < KVP_WAIT_REASONS; r++)
        all += report->waited_ns[r];
    if (all <= 0)
        return;
    fprintf(file, "\n  Requests waited while steps ran, %s in all, because\n",
            kvpi_text_span(all).of);
    for (size_t r = 0; r < KVP_WAIT_REASONS; r++)
        if (report->waited_ns[r] > 0)
            fprintf(file, "  %31.1f %%  %s\n", 100.0 * report->waited_ns[r] / all, words[r]);
}

static void print_measured(const kvpi_load_report *report, FILE *file)
{
    char meaning[128];
    uint64_t steps = report->sched.steps;
    if (!report->measured || steps == 0)
        return;
    snprintf(meaning, sizeof meaning, "a step, measured; the replay took %s",
             kvpi_text_duration((double)report->wall_ns).of);
    fputc('\n', file);
    kvpi_text_row(file, "scheduler", kvpi_text_duration((double)report->sched_ns / (double)steps),
                  meaning);
}

/* -------------------------------------------------------------------------------------- course */

static void print_interval(const kvpi_load_report *report, const kvpi_load_timeline *timeline,
                           size_t i, FILE *file)
{
    const kvpi_load_interval *part = &timeline->intervals[i];
    kvpi_load_level mean = kvpi_load_timeline_mean(timeline, i, report->end_ns);
    double held = mean.held_blocks / (double)report->setting.blocks;
    uint64_t start_ns = i * timeline->width_ns;
    kvpi_text start = kvpi_text_clock(start_ns / NS_PER_US), hit = {"-"};
    if (timeline->width_ns % NS_PER_SECOND != 0)
        snprintf(start.of, sizeof start.of, "%.3f s", (double)start_ns / NS_PER_SECOND);
    if (part->input_tokens > 0)
        hit = kvpi_text_percent(part->hit_tokens, part->input_tokens);
    fprintf(file, "  %9s%8.1f%9.1f", start.of, mean.running, mean.waiting);
    if (report->setting.host_blocks > 0)
        fprintf(file, "%9.1f", mean.swapped);
    fprintf(file, "%9s%9s%7.1f %%", kvpi_text_count(part->preemptions).of, hit.of, 100.0 * held);
    kvpi_text_bar(file, held, report->setting.host_blocks > 0 ? 14 : 20);
    fputc('\n', file);
}

static void print_course(const kvpi_load_report *report, FILE *file)
{
    kvpi_load_timeline timeline = report->timeline;
    bool host = report->setting.host_blocks > 0;
    kvpi_load_timeline_limit(&timeline, COURSE_ROWS);
    fputs("\nRequests on average, preemptions, hit tokens per input token, blocks held\n", file);
    fprintf(file, "  %9s%8s%9s%s%9s%9s%9s\n", "from", "running", "waiting", host ? "  swapped" : "",
            "preempt", "hit", "held");
    for (size_t i = 0; i < timeline.n; i++)
        print_interval(report, &timeline, i, file);
}

void kvpi_load_report_print(const kvpi_load_report *report, const json_t *figures, FILE *file)
{
    print_head(report, file);
    print_requests(report, figures, file);
    print_tokens(report, figures, file);
    kvpi_hits_print(&report->hits, figures, file);
    print_blocks(report, figures, file);
    print_rejections(report, file);
    print_latencies(report, file);
    print_waiting(report, file);
    print_measured(report, file);
    kvpi_store_report_print(&report->store, figures, file);
    kvpi_reasons_print(report->why, file);
    print_course(report, file);
}
