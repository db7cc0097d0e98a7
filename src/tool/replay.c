/* Owns one replay: the cache, the buffers that hold a request's tokens, and the counts.
 *
 *   request --(requests_tokens.c)--> tokens [input + output]
 *     open    the input: hits and taken blocks
 *     commit  the input
 *     extend, commit   each output token, one at a time, as a decoding engine does
 *     close
 *
 * Only one sequence is ever open, so no request can be refused for lack of blocks that the count
 * before it did not foresee; any other status is an error of ours and ends the replay.
 *
 * Times are taken around the calls only, making tokens is not in them. The decoding of a request is
 * timed as a whole: two clock readings cost as much as a token.
 */
#include "replay.h"

#include <kvpager/kvpager.h>
#include <stdlib.h>

#include "progress.h"
#include "replay_cache.h"
#include "tool.h"

#define MAX_COPIES 4 /* an open makes one at most */

typedef struct replay {
    const kvpi_requests *requests;
    const kvpi_replay_options *options;
    kvpi_report *report;
    uint64_t first; /* in replay order */
    uint64_t n_requests;
    uint64_t max_tokens;  /* of a request that is not rejected, output included; >= 1 */
    int32_t *tokens;      /* [max_tokens] input, then output */
    uint64_t last_blocks; /* of the request that was served last; 0 when it was rejected */
    uint64_t n_evicted;   /* so far; these two for the page */
    kvpi_replay_cache cache;
} replay;

/* -------------------------------------------------------------------------------- preparing */

static uint64_t output_of(const replay *run, const kvpi_request *request)
{
    return run->options->trace.output ? (uint64_t)request->output_length : 0;
}

static uint64_t tokens_of(const replay *run, const kvpi_request *request)
{
    return (uint64_t)request->input_length + output_of(run, request);
}

static bool fits(const replay *run, const kvpi_request *request)
{
    uint32_t block_tokens = (uint32_t)run->options->block_tokens;
    return kvp_blocks_for_tokens(block_tokens, tokens_of(run, request)) <= run->options->blocks;
}

static int measure_requests(replay *run)
{
    const uint64_t n = kvpi_requests_count(run->requests);
    run->first = run->options->skip;
    if (run->first >= n)
        return kvpi_tool_fail("replay", "--skip %llu leaves none of %llu requests",
                              (unsigned long long)run->first, (unsigned long long)n);
    const uint64_t left = n - run->first, limit = run->options->trace.limit;
    run->n_requests = left < limit ? left : limit;
    run->max_tokens = 1;
    for (uint64_t i = 0; i < run->n_requests; i++) {
        const kvpi_request *request = kvpi_requests_get(run->requests, run->first + i);
        uint64_t tokens = tokens_of(run, request);
        if (tokens > run->max_tokens && fits(run, request))
            run->max_tokens = tokens;
    }
    int64_t first_us = kvpi_requests_get(run->requests, run->first)->timestamp_us;
    int64_t last_us =
        kvpi_requests_get(run->requests, run->first + run->n_requests - 1)->timestamp_us;
    run->report->span_us = last_us - first_us;
    kvpi_report_timeline_init(&run->report->timeline, first_us, last_us, run->n_requests);
    kvpi_load_timeline_init(&run->report->course);
    return TOOL_OK;
}

static kvp_config configure(const replay *run)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = (uint32_t)run->options->block_tokens;
    config.unit_tokens = (uint32_t)run->options->unit_tokens;
    config.n_blocks = (uint32_t)run->options->blocks + 1;
    config.max_seqs = 1;
    config.max_copies = MAX_COPIES;
    config.max_seq_tokens = (uint32_t)run->max_tokens;
    config.max_namespaces = 1;
    config.prefix_cache = run->options->prefix_cache;
    if (run->options->watch != NULL)
        kvpi_watch_configure(&config);
    return config;
}

/* ------------------------------------------------------------------------------- a request */

static void make_tokens(replay *run, const kvpi_request *request)
{
    const kvpi_trace_args *trace = &run->options->trace;
    kvpi_requests_input(request, &trace->key, run->tokens);
    if (trace->output)
        kvpi_requests_output(request, &trace->key, run->tokens + request->input_length);
}

static kvp_status open_request(replay *run, const kvpi_request *request, kvp_seq *seq,
                               kvp_open_info *info)
{
    kvp_prompt prompt = {.struct_size = sizeof prompt,
                         .tokens = run->tokens,
                         .n_tokens = (uint32_t)request->input_length,
                         .tag = request->number};
    uint64_t start = kvpi_progress_now_ns();
    kvp_status status = kvp_seq_open(run->cache.cache, run->cache.ns, &prompt, seq, info);
    uint64_t opened = kvpi_progress_now_ns();
    if (status != KVP_OK)
        return status;
    status = kvp_seq_commit(run->cache.cache, *seq, prompt.n_tokens);
    run->report->open_ns += opened - start;
    run->report->commit_ns += kvpi_progress_now_ns() - opened;
    return status;
}

/* Hits that end inside a block are copied. Nothing is, here; but the plan must not get full. */
static kvp_status drop_plan(replay *run)
{
    kvp_copy copies[MAX_COPIES];
    uint32_t n;
    return kvp_plan_take(run->cache.cache, copies, MAX_COPIES, &n);
}

static kvp_status decode(replay *run, const kvpi_request *request, kvp_seq seq)
{
    uint32_t n = (uint32_t)request->input_length, end = (uint32_t)tokens_of(run, request);
    uint64_t start = kvpi_progress_now_ns();
    for (; n < end; n++) {
        kvp_status status = kvp_seq_extend(run->cache.cache, seq, &run->tokens[n], 1, 0);
        if (status == KVP_OK)
            status = kvp_seq_commit(run->cache.cache, seq, n + 1);
        if (status != KVP_OK)
            return status;
    }
    run->report->extend_ns += kvpi_progress_now_ns() - start;
    run->report->output_tokens += output_of(run, request);
    return KVP_OK;
}

static kvp_status close_request(replay *run, kvp_seq seq)
{
    uint64_t start = kvpi_progress_now_ns();
    kvp_status status = kvp_seq_close(run->cache.cache, seq, NULL);
    run->report->close_ns += kvpi_progress_now_ns() - start;
    return status;
}

/* Blocks as the request leaves them, and what was evicted for it. */
static int note_course(replay *run, const kvpi_request *request, uint64_t place,
                       const kvp_open_info *info)
{
    kvp_stats stats;
    kvpi_load_timeline *course = &run->report->course;
    uint64_t begin_ns = place * KVPI_REPORT_REQUEST_NS;
    kvp_status status = kvp_cache_stats(run->cache.cache, &stats);
    if (status != KVP_OK)
        return kvpi_replay_cache_fail("reading the counters", status);
    const kvpi_load_level level = {.held_blocks = (double)run->last_blocks,
                                   .cached_blocks =
                                       (double)(stats.cached_blocks + stats.held_blocks) -
                                       (double)run->last_blocks};
    kvpi_load_timeline_span(course, begin_ns, begin_ns + KVPI_REPORT_REQUEST_NS, &level);
    kvpi_load_interval *part = kvpi_load_timeline_at(course, begin_ns);
    part->arrived++;
    part->input_tokens += (uint64_t)request->input_length;
    part->hit_tokens += info->cached_tokens;
    part->evictions += stats.evicted_blocks - run->n_evicted;
    run->n_evicted = stats.evicted_blocks;
    return TOOL_OK;
}

static int watch_request(replay *run, const kvpi_request *request, uint64_t place,
                         const kvp_open_info *info)
{
    kvpi_watch *watch = run->options->watch;
    const kvpi_watch_prompt prompt = {.tokens = run->tokens,
                                      .n_tokens = (uint32_t)request->input_length,
                                      .cached_tokens = info->cached_tokens,
                                      .stop = info->stop,
                                      .line = request->line};
    run->last_blocks =
        kvp_blocks_for_tokens((uint32_t)run->options->block_tokens, tokens_of(run, request));
    if (kvpi_watch_admit(watch, &prompt, place) != TOOL_OK)
        return TOOL_FAILED;
    return kvpi_watch_look(watch, run->cache.cache, place);
}

/* Gives the request's hits. */
static kvp_status serve(replay *run, const kvpi_request *request, kvp_open_info *info)
{
    kvp_seq seq;
    make_tokens(run, request);
    kvp_status status = open_request(run, request, &seq, info);
    if (status == KVP_OK)
        status = drop_plan(run);
    if (status == KVP_OK)
        status = decode(run, request, seq);
    return status == KVP_OK ? close_request(run, seq) : status;
}

static int replay_request(replay *run, uint64_t place)
{
    const kvpi_request *request = kvpi_requests_get(run->requests, run->first + place);
    kvpi_report *report = run->report;
    kvpi_report_interval *part =
        kvpi_report_timeline_at(&report->timeline, place, request->timestamp_us);
    kvp_open_info info = {0};
    uint64_t input = (uint64_t)request->input_length;
    report->requests++;
    report->input_tokens += input;
    report->blocks_looked_up += input / run->options->block_tokens;
    if (fits(run, request)) {
        kvp_status status = serve(run, request, &info);
        if (status != KVP_OK)
            return kvpi_tool_fail("replay", "the request of line %llu: %s (%s)",
                                  (unsigned long long)request->line, kvp_status_text(status),
                                  kvp_status_name(status));
        if (run->options->watch != NULL && watch_request(run, request, place, &info) != TOOL_OK)
            return TOOL_FAILED;
    } else {
        run->last_blocks = 0;
        report->rejected++;
    }
    report->hit_tokens += info.cached_tokens;
    report->block_hits += info.shared_blocks;
    part->requests++;
    part->input_tokens += input;
    part->hit_tokens += info.cached_tokens;
    return run->options->watch != NULL ? note_course(run, request, place, &info) : TOOL_OK;
}

/* -------------------------------------------------------------------------------- the replay */

static int replay_all(replay *run)
{
    kvpi_progress progress;
    int status = TOOL_OK;
    kvpi_progress_start(&progress, "replaying requests", run->n_requests);
    uint64_t start = kvpi_progress_now_ns();
    for (uint64_t i = 0; i < run->n_requests && status == TOOL_OK; i++) {
        status = replay_request(run, i);
        kvpi_progress_update(&progress, i + 1);
    }
    run->report->wall_ns = kvpi_progress_now_ns() - start;
    kvpi_progress_end(&progress);
    return status;
}

static int read_counters(replay *run)
{
    kvp_stats stats;
    kvp_status status = kvp_cache_stats(run->cache.cache, &stats);
    if (status != KVP_OK)
        return kvpi_replay_cache_fail("reading the counters", status);
    run->report->evictions = stats.evicted_blocks;
    run->report->peak_held_blocks = stats.peak_held_blocks;
    return TOOL_OK;
}

/* Token values are made from these: a snapshot is of no use to a replay with others. */
static kvpi_replay_snapshot snapshot_of(const replay *run, const char *path)
{
    kvpi_replay_snapshot snapshot = {.path = path};
    snprintf(snapshot.model, sizeof snapshot.model, "replay, trace block %d, seed %llu",
             (int)run->options->trace.key.trace_block,
             (unsigned long long)run->options->trace.key.seed);
    return snapshot;
}

static int replay_in(replay *run)
{
    kvpi_replay_snapshot from = snapshot_of(run, run->options->snapshot_in);
    const kvpi_replay_snapshot to = snapshot_of(run, run->options->snapshot_out);
    const kvp_config config = configure(run);
    int status = kvpi_replay_cache_open(&config, run->options->record, &from, &run->cache);
    run->report->skipped = run->first;
    run->report->saved_blocks = from.report.saved_blocks;
    run->report->restored_blocks = from.report.blocks;
    if (status == TOOL_OK)
        status = replay_all(run);
    if (status == TOOL_OK)
        status = read_counters(run);
    if (status == TOOL_OK && to.path != NULL)
        status = kvpi_replay_snapshot_save(run->cache.cache, &to);
    return kvpi_replay_cache_close(&run->cache, status);
}

int kvpi_replay_run(const kvpi_requests *requests, const kvpi_replay_options *options,
                    kvpi_report *report)
{
    replay run = {.requests = requests, .options = options, .report = report};
    if (measure_requests(&run) != TOOL_OK)
        return TOOL_FAILED;
    run.tokens = malloc((size_t)run.max_tokens * sizeof *run.tokens);
    if (run.tokens == NULL)
        return kvpi_tool_fail("replay", "out of memory for a request of %llu tokens",
                              (unsigned long long)run.max_tokens);
    const int status = replay_in(&run);
    free(run.tokens);
    return status;
}
