/* The report of a replay under load, for people. Owns its layout:
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

#include "tool/report/report.h"
#include "tool/text.h"
#include "tool/input/escape.h"

#define COURSE_ROWS   20
#define NS_PER_US     1000
#define NS_PER_SECOND 1000000000

const char *const kvpi_load_reason_names[] = {"empty_prompt", "prompt_too_long", "output_too_long"};
const char *const kvpi_load_wait_names[] = {"blocks", "places",     "step_tokens",
                                            "plan",   "preemption", "order"};

static kvpi_text rate(uint64_t n, uint64_t ns)
{
    return kvpi_text_count(ns == 0 ? 0 : (uint64_t)((double)n * 1e9 / (double)ns + 0.5));
}

/* ------------------------------------------------------------------------------------- the head */

static void print_model(const kvpi_load_setting *setting, FILE *file)
{
    const kvpi_step_model *model = setting->step_model;
    kvpi_text overhead = kvpi_text_duration((double)model->step_ns);
    if (!model->is_roofline) {
        const kvpi_step_rates *rates = &model->rates;
        fprintf(file, "Time is a model: %s a step, %g ns a prompt token,\n", overhead.of,
                (double)rates->prompt_token_ps / 1000);
        fprintf(file, "  %g ns a decoding sequence, %g ns a token of context, %g ns a copied one\n",
                (double)rates->decode_token_ps / 1000, (double)rates->context_token_ps / 1000,
                (double)rates->copy_token_ps / 1000);
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
                                   .size = setting->size};
    kvpi_report_print_pool(&pool, file);
    fputc('\n', file);
}

static void print_head(const kvpi_load_report *report, FILE *file)
{
    const kvpi_load_setting *setting = &report->setting;
    fprintf(file, "%s: %s, %s of traffic", kvpi_escape(report->path).of, report->format,
            kvpi_text_clock((uint64_t)report->span_us).of);
    if (setting->speedup_milli != 1000)
        fprintf(file, ", %g times as fast", (double)setting->speedup_milli / 1000);
    fputc('\n', file);
    print_model(setting, file);
    print_pool(setting, "KV: ", setting->blocks, file);
    if (setting->host_blocks > 0)
        print_pool(setting, "Host: ", setting->host_blocks, file);
    if (!setting->prefix_cache)
        fputs("Prefix cache off\n", file);
    fputc('\n', file);
}

/* -------------------------------------------------------------------------------------- counts */

static uint64_t count_rejected(const kvpi_load_report *report)
{
    uint64_t n = 0;
    for (size_t i = 0; i < KVPI_LOAD_REASONS; i++)
        n += report->rejected[i];
    return n;
}

static void print_requests(const kvpi_load_report *report, FILE *file)
{
    char meaning[128];
    snprintf(meaning, sizeof meaning, "%s could never be served",
             kvpi_text_count(count_rejected(report)).of);
    kvpi_text_row(file, "requests", kvpi_text_count(report->requests), meaning);
    if (report->unfinished == 0)
        snprintf(meaning, sizeof meaning, "all that could be");
    else
        snprintf(meaning, sizeof meaning, "%s DID NOT FINISH",
                 kvpi_text_count(report->unfinished).of);
    kvpi_text_row(file, "finished", kvpi_text_count(report->finished), meaning);
    snprintf(meaning, sizeof meaning, "until the last token, %.1f %% of it busy",
             report->end_ns == 0 ? 0.0 : 100.0 * (double)report->busy_ns / (double)report->end_ns);
    kvpi_text_row(file, "time",
                  report->end_ns < UINT64_C(60) * NS_PER_SECOND
                      ? kvpi_text_duration((double)report->end_ns)
                      : kvpi_text_clock(report->end_ns / NS_PER_US),
                  meaning);
    snprintf(meaning, sizeof meaning, "%.1f %% of their time bound by computing",
             report->busy_ns == 0 ? 0.0
                                  : 100.0 * report->bound_by_compute_ns / (double)report->busy_ns);
    kvpi_text_row(file, "steps", kvpi_text_count(report->step.n),
                  report->setting.step_model->is_roofline ? meaning : "with something to compute");
}

static void print_tokens(const kvpi_load_report *report, FILE *file)
{
    char meaning[128];
    const kvp_stats *cache = &report->cache;
    uint64_t opened = cache->prompt_tokens, host = cache->host_tokens;
    uint64_t device = cache->cached_tokens - host;
    snprintf(meaning, sizeof meaning, "%s a second; %s hit at admission",
             rate(report->finished_input_tokens, report->end_ns).of,
             kvpi_text_percent(report->hit_tokens, report->input_tokens).of);
    kvpi_text_row(file, "input tokens", kvpi_text_count(report->input_tokens), meaning);
    snprintf(meaning, sizeof meaning, "of %s admitted, on the device", kvpi_text_count(opened).of);
    kvpi_text_row(file, "  device", kvpi_text_percent(device, opened), meaning);
    if (report->setting.host_blocks > 0)
        kvpi_text_row(file, "  host", kvpi_text_percent(host, opened), "on the host");
    kvpi_text_row(file, "  computed", kvpi_text_percent(opened - device - host, opened),
                  report->recompute_preemptions > 0 ? "some of them again, after preemptions"
                                                    : "once each");
    snprintf(meaning, sizeof meaning, "%s a second",
             rate(report->output_tokens, report->end_ns).of);
    kvpi_text_row(file, "output tokens", kvpi_text_count(report->output_tokens),
                  report->setting.output ? meaning : "not generated: --output-tokens off");
}

static void print_blocks(const kvpi_load_report *report, FILE *file)
{
    char meaning[128];
    const kvpi_load_setting *setting = &report->setting;
    double all = (double)setting->blocks * (double)report->end_ns;
    kvpi_text_row(file, "evictions", kvpi_text_count(report->cache.evicted_blocks),
                  "cached blocks dropped to make room");
    snprintf(meaning, sizeof meaning, "of the blocks held on average; peak %s",
             kvpi_text_percent(report->cache.peak_held_blocks, setting->blocks).of);
    kvpi_text occupancy;
    snprintf(occupancy.of, sizeof occupancy.of, "%.1f %%",
             all > 0 ? 100.0 * report->held_block_ns / all : 0.0);
    kvpi_text_row(file, "occupancy", occupancy, meaning);
    snprintf(meaning, sizeof meaning, "%s by recompute, %s by swap",
             kvpi_text_count(report->recompute_preemptions).of,
             kvpi_text_count(report->swap_preemptions).of);
    kvpi_text_row(file, "preemptions",
                  kvpi_text_count(report->recompute_preemptions + report->swap_preemptions),
                  meaning);
    if (report->sched.lost_tokens > 0)
        kvpi_text_row(file, "lost tokens", kvpi_text_count(report->sched.lost_tokens),
                      "computed, and given up by preemptions");
    if (setting->host_blocks == 0)
        return;
    snprintf(meaning, sizeof meaning, "blocks to the host, %s of them by swap",
             kvpi_text_count(report->cache.swapped_out_blocks).of);
    kvpi_text_row(file, "copied out", kvpi_text_count(report->blocks_to_host), meaning);
    snprintf(meaning, sizeof meaning, "blocks back, %s of them by swap",
             kvpi_text_count(report->cache.swapped_in_blocks).of);
    kvpi_text_row(file, "copied in", kvpi_text_count(report->blocks_from_host), meaning);
}

static void print_rejections(const kvpi_load_report *report, FILE *file)
{
    enum { SHOWN = 3 };
    uint64_t n = count_rejected(report);
    for (size_t i = 0; i < report->n_rejections && i < SHOWN; i++) {
        const kvpi_load_rejection *r = &report->rejections[i];
        fprintf(file, "\n  line %" PRIu64 ": %" PRIu64 " + %" PRIu64 " tokens: ", r->line,
                r->input_tokens, r->output_tokens);
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
}

/* ------------------------------------------------------------------------------------- waiting */

static void print_waiting(const kvpi_load_report *report, FILE *file)
{
    static const char *const words[] = {"their blocks are not there",
                                        "as many run as may (--max-running)",
                                        "the step's tokens are spent (--step-tokens)",
                                        "the plan of copies is full",
                                        "the step preempted somebody",
                                        "behind others that do not fit"};
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

void kvpi_load_report_print(const kvpi_load_report *report, FILE *file)
{
    print_head(report, file);
    print_requests(report, file);
    print_tokens(report, file);
    print_blocks(report, file);
    print_rejections(report, file);
    print_latencies(report, file);
    print_waiting(report, file);
    print_measured(report, file);
    print_course(report, file);
}
