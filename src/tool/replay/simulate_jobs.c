/* Owns the table of requests. A request's tokens are made when it arrives and freed when it ends:
 * the scheduler borrows the prompt. They stand in one piece, prompt then output, so that a sampled
 * token is one look.
 *
 * A request without output (none in the trace, or --output-tokens off) still samples the one token
 * that ends its prompt; it is not counted, and nobody computes it.
 */
#include "tool/replay/simulate_jobs.h"

#include <stdlib.h>

#include "tool/tool.h"

/* Microseconds x 1000 x 1000 / thousandths, without leaving 64 bits. */
static uint64_t arrival_of(int64_t us, uint64_t speedup_milli)
{
    uint64_t n = (uint64_t)us;
    return n / speedup_milli * 1000000 + n % speedup_milli * 1000000 / speedup_milli;
}

int kvpi_jobs_create(const kvpi_requests *requests, const kvpi_simulate_options *options,
                     kvpi_jobs *out)
{
    uint64_t n = kvpi_requests_count(requests);
    *out = (kvpi_jobs){.requests = requests, .options = options};
    out->n = n < options->replay.trace.limit ? (size_t)n : (size_t)options->replay.trace.limit;
    out->all = calloc(out->n, sizeof *out->all);
    out->gaps = calloc(1, sizeof *out->gaps);
    if (out->all == NULL || out->gaps == NULL) {
        kvpi_jobs_free(out);
        return kvpi_tool_fail("replay", "out of memory for %zu requests", out->n);
    }
    int64_t first_us = kvpi_requests_get(requests, 0)->timestamp_us;
    for (size_t i = 0; i < out->n; i++) {
        int64_t us = kvpi_requests_get(requests, i)->timestamp_us - first_us;
        out->all[i].arrival_ns = arrival_of(us, options->speedup_milli);
        out->all[i].admitted_ns = KVPI_JOB_NEVER;
    }
    return TOOL_OK;
}

void kvpi_jobs_free(kvpi_jobs *jobs)
{
    for (size_t i = 0; jobs->all != NULL && i < jobs->n; i++)
        free(jobs->all[i].tokens);
    free(jobs->all);
    free(jobs->gaps);
    jobs->all = NULL;
    jobs->gaps = NULL;
}

uint32_t kvpi_jobs_input(const kvpi_jobs *jobs, size_t i)
{
    return (uint32_t)kvpi_requests_get(jobs->requests, i)->input_length;
}

uint32_t kvpi_jobs_output(const kvpi_jobs *jobs, size_t i)
{
    return jobs->options->replay.trace.output
               ? (uint32_t)kvpi_requests_get(jobs->requests, i)->output_length
               : 0;
}

uint32_t kvpi_jobs_sampled(const kvpi_jobs *jobs, size_t i)
{
    uint32_t output = kvpi_jobs_output(jobs, i);
    return output > 0 ? output : 1;
}

int kvpi_jobs_make_tokens(kvpi_jobs *jobs, size_t i)
{
    const kvpi_request *request = kvpi_requests_get(jobs->requests, i);
    const kvpi_requests_key *key = &jobs->options->replay.trace.key;
    size_t input = kvpi_jobs_input(jobs, i), all = input + kvpi_jobs_sampled(jobs, i);
    kvpi_job *job = &jobs->all[i];
    if (job->tokens != NULL)
        return TOOL_OK;
    job->tokens = malloc(all * sizeof *job->tokens);
    if (job->tokens == NULL)
        return kvpi_tool_fail("replay", "out of memory for a request of %zu tokens", all);
    kvpi_requests_input(request, key, job->tokens);
    job->tokens[input] = 0;
    if (kvpi_jobs_output(jobs, i) > 0)
        kvpi_requests_output(request, key, job->tokens + input);
    return TOOL_OK;
}

void kvpi_jobs_leave(kvpi_jobs *jobs, size_t i, kvpi_job_stage stage)
{
    free(jobs->all[i].tokens);
    jobs->all[i].tokens = NULL;
    jobs->all[i].stage = stage;
}

int32_t kvpi_jobs_next_token(const kvpi_jobs *jobs, size_t i)
{
    const kvpi_job *job = &jobs->all[i];
    return job->tokens[kvpi_jobs_input(jobs, i) + job->n_sampled];
}

void kvpi_jobs_note_token(kvpi_jobs *jobs, size_t i, uint64_t now_ns)
{
    kvpi_job *job = &jobs->all[i];
    if (job->n_sampled == 0)
        job->first_ns = now_ns;
    else
        kvpi_histogram_add(jobs->gaps, now_ns - job->newest_ns);
    job->newest_ns = now_ns;
    job->n_sampled++;
}

/* ------------------------------------------------------------------------------------- report */

static void count_jobs(const kvpi_jobs *jobs, kvpi_load_report *report)
{
    report->requests = jobs->n;
    for (size_t i = 0; i < jobs->n; i++) {
        const kvpi_job *job = &jobs->all[i];
        uint64_t input = kvpi_jobs_input(jobs, i);
        report->input_tokens += input;
        report->output_tokens += kvpi_jobs_output(jobs, i) > 0 ? job->n_sampled : 0;
        if (job->stage == KVPI_JOB_FINISHED) {
            report->finished++;
            report->finished_input_tokens += input;
            if (job->newest_ns > report->end_ns)
                report->end_ns = job->newest_ns;
        } else if (job->stage != KVPI_JOB_REJECTED) {
            report->unfinished++;
        }
    }
}

/* Gives KVPI_JOB_NEVER when the request has no such figure. */
static uint64_t figure_of(const kvpi_job *job, int which)
{
    switch (which) {
    case KVPI_LOAD_QUEUE: return job->admitted_ns - job->arrival_ns;
    case KVPI_LOAD_FIRST_TOKEN: return job->first_ns - job->arrival_ns;
    case KVPI_LOAD_END_TO_END: return job->newest_ns - job->arrival_ns;
    case KVPI_LOAD_PER_TOKEN:
        return job->n_sampled < 2 ? KVPI_JOB_NEVER
                                  : (job->newest_ns - job->first_ns) / (job->n_sampled - 1);
    default: return KVPI_JOB_NEVER;
    }
}

/* Requests are in the order of their arrival, so those of an interval stand together. */
static void spread_over_time(const kvpi_jobs *jobs, int which, uint64_t *values,
                             kvpi_load_report *report)
{
    kvpi_load_latency *latency = &report->latencies[which];
    size_t i = 0;
    for (size_t part = 0; part < report->timeline.n; part++) {
        uint64_t end_ns = (part + 1) * report->timeline.width_ns;
        size_t n = 0;
        for (; i < jobs->n && jobs->all[i].arrival_ns < end_ns; i++) {
            if (jobs->all[i].stage != KVPI_JOB_FINISHED)
                continue;
            values[n] = figure_of(&jobs->all[i], which);
            if (values[n] != KVPI_JOB_NEVER)
                kvpi_bins_add(&latency->spread, values[n++] / 100000);
        }
        kvpi_percentiles found = kvpi_percentiles_of(values, n);
        latency->p50_ns[part] = found.p50;
        latency->p90_ns[part] = found.p90;
    }
}

static kvpi_percentiles collect(const kvpi_jobs *jobs, int which, uint64_t *values)
{
    size_t n = 0;
    for (size_t i = 0; i < jobs->n; i++) {
        if (jobs->all[i].stage != KVPI_JOB_FINISHED)
            continue;
        values[n] = figure_of(&jobs->all[i], which);
        n += values[n] != KVPI_JOB_NEVER;
    }
    return kvpi_percentiles_of(values, n);
}

int kvpi_jobs_report(const kvpi_jobs *jobs, kvpi_load_report *report)
{
    uint64_t *values = malloc(jobs->n * sizeof *values);
    if (values == NULL)
        return kvpi_tool_fail("replay", "out of memory for %zu requests", jobs->n);
    count_jobs(jobs, report);
    report->queue = collect(jobs, KVPI_LOAD_QUEUE, values);
    report->first_token = collect(jobs, KVPI_LOAD_FIRST_TOKEN, values);
    report->per_token = collect(jobs, KVPI_LOAD_PER_TOKEN, values);
    report->end_to_end = collect(jobs, KVPI_LOAD_END_TO_END, values);
    for (int which = 0; which < KVPI_LOAD_LATENCIES; which++)
        spread_over_time(jobs, which, values, report);
    report->gap = kvpi_histogram_percentiles(jobs->gaps);
    free(values);
    return TOOL_OK;
}
