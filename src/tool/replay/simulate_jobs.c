/* Owns the table of requests. A request's tokens are made when it arrives and freed when it ends:
 * the scheduler borrows the prompt. They stand in one piece, prompt then output, so that a sampled
 * token is one look. Prompts of a session mostly begin with the one before and its answer, so what
 * a request leaves is kept, within a limit, and goes over to the next one, which makes the rest.
 *
 * A request without output (none in the trace, or --output-tokens off) still samples the one token
 * that ends its prompt; it is not counted, and not computed.
 */
#include "tool/replay/simulate_jobs.h"

#include <stdlib.h>

#include "tool/tool.h"

/* Tokens of requests that left and may be followed, at most. */
#define MAX_KEPT ((size_t)1 << 24)

/* Room for answers and prompts to come, so that tokens are not moved with every turn. */
static size_t room_for(size_t n)
{
    return n + n / 4;
}

/* Microseconds x 1000 x 1000 / thousandths, without leaving 64 bits. */
static uint64_t arrival_of(int64_t us, uint64_t speedup_milli)
{
    uint64_t n = (uint64_t)us;
    return n / speedup_milli * 1000000 + n % speedup_milli * 1000000 / speedup_milli;
}

/* The job that job i follows; NULL: there is none. */
static kvpi_job *job_before(const kvpi_jobs *jobs, size_t i)
{
    const kvpi_request *first = kvpi_requests_get(jobs->requests, 0);
    const kvpi_request *before = first[i].before;
    return before != NULL && before - first < (ptrdiff_t)jobs->n ? &jobs->all[before - first]
                                                                 : NULL;
}

int kvpi_jobs_create(const kvpi_requests *requests, const kvpi_simulate_options *options,
                     kvpi_jobs *out)
{
    uint64_t n = kvpi_requests_count(requests);
    *out = (kvpi_jobs){.requests = requests, .options = options, .window_ns = KVPI_JOB_NEVER};
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
        out->all[i].arrival_ns =
            options->closed.on ? KVPI_JOB_NEVER : arrival_of(us, options->speedup_milli);
        out->all[i].admitted_ns = KVPI_JOB_NEVER;
        out->all[i].outcome = KVP_SPILL_OUTCOMES;
        kvpi_job *before = job_before(out, i);
        if (before != NULL)
            before->n_followers++;
    }
    return TOOL_OK;
}

void kvpi_jobs_free(kvpi_jobs *jobs)
{
    for (size_t i = 0; jobs->all != NULL && i < jobs->n; i++)
        free(jobs->all[i].tokens);
    free(jobs->all);
    free(jobs->order);
    free(jobs->gaps);
    jobs->all = NULL;
    jobs->order = NULL;
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

static void let_go(kvpi_jobs *jobs, kvpi_job *job)
{
    if (job->tokens == NULL)
        return;
    jobs->kept -= job->room;
    free(job->tokens);
    job->tokens = NULL;
}

/* Job i has come, and needs nothing of the one before any more. */
static void unfollow(kvpi_jobs *jobs, size_t i)
{
    kvpi_job *before = job_before(jobs, i);
    if (before == NULL || jobs->all[i].has_come)
        return;
    jobs->all[i].has_come = true;
    before->n_followers--;
    if (before->n_followers == 0 && before->stage > KVPI_JOB_THERE)
        let_go(jobs, before);
}

/* Take over what the job before left, if it has tokens of this one. Gives how many. */
static uint32_t take_over(kvpi_jobs *jobs, size_t i)
{
    kvpi_job *job = &jobs->all[i], *before = job_before(jobs, i);
    if (before == NULL || before->stage <= KVPI_JOB_THERE)
        return 0;
    const size_t place = (size_t)(before - jobs->all);
    const uint32_t there = kvpi_jobs_input(jobs, place) + kvpi_jobs_output(jobs, place);
    uint32_t n = kvpi_requests_common(kvpi_requests_get(jobs->requests, i),
                                      &jobs->options->replay.trace.key);
    n = n < there ? n : there;
    if (before->tokens != NULL && n > 0) {
        job->tokens = before->tokens;
        job->room = before->room;
        jobs->kept -= job->room;
        before->tokens = NULL;
        return n;
    }
    return 0;
}

static bool make_room(kvpi_job *job, size_t n)
{
    if (job->tokens != NULL && n <= job->room)
        return true;
    int32_t *tokens = realloc(job->tokens, room_for(n) * sizeof *tokens);
    if (tokens == NULL)
        return false;
    job->tokens = tokens;
    job->room = room_for(n);
    return true;
}

int kvpi_jobs_make_tokens(kvpi_jobs *jobs, size_t i)
{
    const kvpi_request *request = kvpi_requests_get(jobs->requests, i);
    const kvpi_requests_key *key = &jobs->options->replay.trace.key;
    size_t input = kvpi_jobs_input(jobs, i), all = input + kvpi_jobs_sampled(jobs, i);
    kvpi_job *job = &jobs->all[i];
    if (job->tokens != NULL)
        return TOOL_OK;
    const uint32_t there = take_over(jobs, i);
    unfollow(jobs, i);
    if (!make_room(job, all))
        return kvpi_tool_fail("replay", "out of memory for a request of %zu tokens", all);
    kvpi_requests_input(request, key, there, job->tokens);
    job->tokens[input] = 0;
    if (kvpi_jobs_output(jobs, i) > 0)
        kvpi_requests_output(request, key, job->tokens + input);
    return TOOL_OK;
}

void kvpi_jobs_leave(kvpi_jobs *jobs, size_t i, kvpi_job_stage stage)
{
    kvpi_job *job = &jobs->all[i];
    unfollow(jobs, i); /* one that was rejected has no tokens */
    if (job->tokens != NULL)
        jobs->kept += job->room;
    if (job->n_followers == 0 || jobs->kept > MAX_KEPT)
        let_go(jobs, job);
    job->stage = stage;
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
        } else if (job->stage != KVPI_JOB_REJECTED && job->stage != KVPI_JOB_DROPPED) {
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

/* In the order of arrival those of an interval stand together. */
static const kvpi_job *by_arrival(const kvpi_jobs *jobs, size_t i)
{
    return &jobs->all[jobs->order != NULL ? jobs->order[i] : i];
}

static bool is_counted(const kvpi_jobs *jobs, const kvpi_job *job)
{
    return job->stage == KVPI_JOB_FINISHED && job->arrival_ns < jobs->window_ns;
}

static void spread_over_time(const kvpi_jobs *jobs, int which, uint64_t *values,
                             kvpi_load_report *report)
{
    kvpi_load_latency *latency = &report->latencies[which];
    size_t i = 0;
    for (size_t part = 0; part < report->timeline.n; part++) {
        uint64_t end_ns = (part + 1) * report->timeline.width_ns;
        size_t n = 0;
        for (; i < jobs->n && by_arrival(jobs, i)->arrival_ns < end_ns; i++) {
            if (!is_counted(jobs, by_arrival(jobs, i)))
                continue;
            values[n] = figure_of(by_arrival(jobs, i), which);
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
        if (!is_counted(jobs, &jobs->all[i]))
            continue;
        values[n] = figure_of(&jobs->all[i], which);
        n += values[n] != KVPI_JOB_NEVER;
    }
    return kvpi_percentiles_of(values, n);
}

/* ----------------------------------------------------------------------------- the closed loop */

typedef struct arrived {
    uint64_t ns;
    uint32_t i;
} arrived;

static int compare_arrivals(const void *left, const void *right)
{
    const arrived *a = left, *b = right;
    if (a->ns != b->ns)
        return a->ns < b->ns ? -1 : 1;
    return a->i < b->i ? -1 : a->i > b->i;
}

static int order_arrivals(kvpi_jobs *jobs)
{
    arrived *all = malloc(jobs->n * sizeof *all);
    jobs->order = malloc(jobs->n * sizeof *jobs->order);
    if (all == NULL || jobs->order == NULL) {
        free(all);
        return kvpi_tool_fail("replay", "out of memory for %zu requests", jobs->n);
    }
    for (size_t i = 0; i < jobs->n; i++)
        all[i] = (arrived){jobs->all[i].arrival_ns, (uint32_t)i};
    qsort(all, jobs->n, sizeof *all, compare_arrivals);
    for (size_t i = 0; i < jobs->n; i++)
        jobs->order[i] = all[i].i;
    free(all);
    return TOOL_OK;
}

int kvpi_jobs_close(kvpi_jobs *jobs, const kvpi_closed *closed, kvpi_load_sessions *out)
{
    kvpi_closed_tell(closed, out);
    jobs->window_ns = out->window_ns;
    for (size_t i = 0; i < jobs->n; i++) {
        kvpi_job *job = &jobs->all[i];
        if (job->stage == KVPI_JOB_COMING && kvpi_closed_is_dropped(closed, i))
            job->stage = KVPI_JOB_DROPPED;
        if (job->arrival_ns >= out->window_ns || job->arrival_ns == KVPI_JOB_NEVER)
            continue;
        out->window_requests++;
        out->window_input_tokens += kvpi_jobs_input(jobs, i);
        out->window_hit_tokens += job->hit_tokens;
        out->window_output_tokens += kvpi_jobs_output(jobs, i) > 0 ? job->n_sampled : 0;
    }
    return order_arrivals(jobs);
}

/* ---------------------------------------------------------------------------------------- all */

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
