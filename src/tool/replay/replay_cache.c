/* Owns one replay: the cache, the buffers that hold a request's tokens, and the counts.
 *
 *   request --(tool/requests/request_tokens.c)--> tokens [input + output]
 *     open    the input: hits and taken blocks
 *     commit  the input
 *     extend, commit   each output token, one at a time, as a decoding engine does
 *     close
 *
 * In a cache with recurrent state the chunks of a prompt end where the cache says, and the state
 * there is kept. How an output ends, an engine does not know before; it can keep a fork at the last
 * full unit, and make its state the checkpoint. The replay knows, and makes that one alone.
 *
 * In a cache with windows a long prompt is opened in part, extended and committed piece by piece.
 *
 * Only one sequence is ever open, so no request can be refused for lack of blocks that the count
 * before it did not foresee; any other status is an error of ours and ends the replay.
 *
 * Times are taken around the calls only, making tokens is not in them. The decoding of a request is
 * timed as a whole: two clock readings cost as much as a token.
 */
#include "tool/replay/replay_cache.h"

#include <kvpager/all.h>
#include <kvpager/states.h>
#include <stdlib.h>
#include <string.h>

#include "tool/progress.h"
#include "tool/replay/cache.h"
#include "tool/size/size.h"
#include "tool/tool.h"

typedef struct replay {
    const kvpi_requests *requests;
    const kvpi_replay_options *options;
    kvpi_report *report;
    uint64_t first;   /* in replay order */
    uint64_t place;   /* of the request that is served, from there */
    uint32_t outcome; /* of what the store was asked for it: KVP_SPILL_... */
    uint64_t n_requests;
    uint64_t max_tokens; /* of a request that is not rejected, output included; >= 1 */
    int32_t *tokens;     /* [max_tokens] input, then output */
    kvp_copy *copies;    /* [max_copies] */
    uint32_t max_copies;
    uint64_t last_blocks; /* of the request that was served last; 0 when it was rejected */
    uint64_t n_evicted;   /* so far; these two for the page, as is the next */
    kvpi_load_policy policy;
    kvpi_replay_cache cache;
    kvpi_attach *store; /* NULL: there is none */
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

static bool has_windows(const replay *run)
{
    return run->options->n_groups > 1 || run->options->groups[0].recent_tokens > 0;
}

/* Blocks that a row of a request holds at most. The n tokens of a piece see n + R - 1 of them. */
static uint64_t row_blocks(const replay *run, const kvpi_request *request, const kvp_group *window)
{
    const uint32_t block_tokens =
        window->block_tokens > 0 ? window->block_tokens : (uint32_t)run->options->block_tokens;
    uint64_t all = kvp_blocks_for_tokens(block_tokens, tokens_of(run, request));
    uint64_t piece = (uint64_t)request->input_length;
    if (window->recent_tokens == 0)
        return all;
    piece = piece < 1 ? 1 : piece < KVPI_REPLAY_PIECE_TOKENS ? piece : KVPI_REPLAY_PIECE_TOKENS;
    uint64_t most = kvp_blocks_for_tokens(block_tokens, window->recent_tokens + piece - 2) + 1;
    if (window->sink_tokens == KVP_CHUNKED)
        most = kvpi_size_chunk_blocks(window->recent_tokens, piece, block_tokens);
    return most < all ? most : all;
}

static bool fits(const replay *run, const kvpi_request *request)
{
    uint64_t needed = 0;
    for (uint32_t g = 0; g < run->options->n_groups; g++)
        needed += row_blocks(run, request, &run->options->groups[g]);
    return needed <= run->options->blocks;
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
    config.max_copies = run->max_copies;
    config.max_seq_tokens = (uint32_t)run->max_tokens;
    config.max_namespaces = 1;
    config.prefix_cache = run->options->prefix_cache;
    config.policy = run->options->policy;
    config.n_groups = run->options->n_groups;
    memcpy(config.groups, run->options->groups, sizeof config.groups);
    config.retain_tokens = run->options->retain_tokens;
    if (run->options->state_slots > 0)
        config.state_slots = (uint32_t)run->options->state_slots + 1;
    if (run->options->host_blocks > 0) {
        config.host_blocks = (uint32_t)run->options->host_blocks + 1;
        config.keep_evicted = run->options->keep_evicted;
        kvpi_attach_configure(&run->options->store, &config);
    }
    if (run->options->host_state_slots > 0)
        config.host_state_slots = (uint32_t)run->options->host_state_slots + 1;
    if (run->options->watch != NULL)
        kvpi_watch_configure(&config);
    return config;
}

/* ------------------------------------------------------------------------------- a request */

static void make_tokens(replay *run, const kvpi_request *request)
{
    const kvpi_trace_args *trace = &run->options->trace;
    kvpi_requests_input(request, &trace->key, 0, run->tokens);
    if (trace->output)
        kvpi_requests_output(request, &trace->key, run->tokens + request->input_length);
}

/* Without a store nothing is copied; but the plan must not get full. */
static kvp_status drop_plan(replay *run)
{
    uint32_t n;
    if (run->store != NULL)
        return kvpi_attach_run_plan(run->store);
    return kvp_plan_take(run->cache.cache, run->copies, run->max_copies, &n);
}

static uint32_t longest_window(const replay *run)
{
    uint32_t most = 0;
    for (uint32_t g = 0; g < run->options->n_groups; g++)
        if (run->options->groups[g].recent_tokens > most)
            most = run->options->groups[g].recent_tokens;
    return most;
}

/* Where a piece ends that begins at `at`. With a store, at the last end of a record in it; at the
 * first one if a window needs several: each is in the row, all of it, at its end. */
static uint32_t piece_end(const replay *run, uint32_t at, uint32_t end)
{
    uint32_t n = end - at < KVPI_REPLAY_PIECE_TOKENS ? end : at + KVPI_REPLAY_PIECE_TOKENS;
    if (run->store == NULL)
        return n;
    const uint32_t T = kvpi_attach_record_tokens(run->store);
    const uint32_t first = at - at % T + T;
    const uint32_t last = n - n % T;
    if (longest_window(run) > T && first < n)
        return first;
    return last > at ? last : n;
}

/* How much of the prompt to open: all of it, or what is cached and a piece more. */
static kvp_status first_piece(replay *run, const kvp_prompt *prompt, uint32_t *n_tokens,
                              kvp_open_info *info)
{
    *n_tokens = prompt->n_tokens;
    if (!has_windows(run))
        return KVP_OK;
    kvp_status status = kvp_cache_match(run->cache.cache, run->cache.ns, prompt, info);
    if (status == KVP_OK)
        *n_tokens = piece_end(run, info->hit_tokens, prompt->n_tokens);
    return status;
}

/* A piece was computed: what the windows keep at its end is written. */
static kvp_status report_piece(replay *run, kvp_seq seq)
{
    kvp_status status = drop_plan(run);
    return status == KVP_OK && run->store != NULL && has_windows(run)
               ? kvpi_attach_sealed(run->store, seq)
               : status;
}

static kvp_status commit(replay *run, kvp_seq seq, uint32_t n_tokens)
{
    uint64_t start = kvpi_progress_now_ns();
    kvp_status status = kvp_seq_commit(run->cache.cache, seq, n_tokens);
    run->report->commit_ns += kvpi_progress_now_ns() - start;
    return status;
}

static kvp_status compute_pieces(replay *run, kvp_seq seq, uint32_t at, uint32_t end)
{
    kvp_status status = KVP_OK;
    while (at < end && status == KVP_OK) {
        uint32_t n = piece_end(run, at, end) - at;
        uint64_t start = kvpi_progress_now_ns();
        status = kvp_seq_extend(run->cache.cache, seq, run->tokens + at, n, 0);
        run->report->open_ns += kvpi_progress_now_ns() - start;
        at += n;
        if (status == KVP_OK && at == end && run->options->retain_tokens != 0)
            status = kvp_seq_prompt_end(run->cache.cache, seq, end);
        if (status == KVP_OK)
            status = commit(run, seq, at);
        if (status == KVP_OK)
            status = report_piece(run, seq);
    }
    return status;
}

/* A state that is kept is the sequence's until more is computed: the store must see it now. */
static kvp_status checkpoint(replay *run, kvp_seq seq)
{
    kvp_status status = kvp_seq_checkpoint(run->cache.cache, seq, NULL);
    return status == KVP_OK && run->store != NULL ? kvpi_attach_sealed(run->store, seq) : status;
}

/* Computes up to n tokens, in the sequence's place for them, and keeps the state after them. */
static kvp_status keep_state(replay *run, kvp_seq seq, uint32_t n_tokens)
{
    kvp_status status = n_tokens > 0 ? commit(run, seq, n_tokens) : KVP_OK;
    return status == KVP_OK && n_tokens > 0 ? checkpoint(run, seq) : status;
}

/* Did a missing state end the hit? */
static bool lacked_state(const replay *run, const kvp_open_info *info)
{
    return info->stop == KVP_STOP_NO_KV && info->stop_group == run->options->n_groups;
}

/* Ends chunks where states are to be kept. Counts known tokens that no state made useful. */
static kvp_status compute_chunks(replay *run, kvp_seq seq, const kvp_open_info *info)
{
    kvp_state_info state;
    kvp_status status = kvp_seq_state_get(run->cache.cache, seq, &state);
    if (status != KVP_OK)
        return status;
    if (lacked_state(run, info))
        status =
            kvpi_hits_count_missed(&run->report->hits, run->cache.cache, seq, info->hit_tokens);
    if (status == KVP_OK)
        status = keep_state(run, seq, state.branch_end);
    return status == KVP_OK ? keep_state(run, seq, state.prompt_end) : status;
}

/* Before anything of the request is written to the store. */
static kvp_status watch_opened(replay *run, const kvpi_request *request,
                               const kvp_open_info *opened, const kvp_open_info *whole)
{
    kvpi_watch_prompt prompt = {.tokens = run->tokens,
                                .n_tokens = (uint32_t)request->input_length,
                                .cached_tokens = opened->cached_tokens,
                                .host_tokens = opened->host_tokens,
                                .stop = whole->stop,
                                .stop_group = whole->stop_group,
                                .file = request->file,
                                .line = request->line,
                                .of_line = request->of_line};
    kvp_status status = KVP_OK;
    if (run->options->watch == NULL)
        return KVP_OK;
    if (run->store != NULL)
        status = kvpi_attach_see(run->store, prompt.tokens, prompt.n_tokens, run->outcome,
                                 &prompt.store);
    if (run->options->sizes != NULL)
        prompt.enough = kvpi_mrc_sizes_of(run->options->sizes, run->place + run->first);
    if (status == KVP_OK && kvpi_watch_admit(run->options->watch, &prompt, run->place) != TOOL_OK)
        status = KVP_E_NO_MEMORY;
    return status;
}

/* Gives why the match of the whole prompt ended, also when it is opened in part. */
static kvp_status open_request(replay *run, const kvpi_request *request, kvp_seq *seq,
                               kvp_open_info *info)
{
    const uint32_t n_tokens = (uint32_t)request->input_length;
    kvp_open_info whole = {0};
    kvp_prompt prompt = {.struct_size = sizeof prompt,
                         .tokens = run->tokens,
                         .n_tokens = n_tokens,
                         .tag = request->number};
    uint64_t start = kvpi_progress_now_ns();
    kvp_status status = first_piece(run, &prompt, &prompt.n_tokens, &whole);
    if (status == KVP_OK)
        status = kvp_seq_open(run->cache.cache, run->cache.ns, &prompt, seq, info);
    run->report->open_ns += kvpi_progress_now_ns() - start;
    if (status == KVP_OK)
        status = watch_opened(run, request, info, prompt.n_tokens < n_tokens ? &whole : info);
    if (status == KVP_OK && run->store != NULL)
        status = kvpi_attach_hit(run->store, *seq, info->hit_tokens);
    if (status == KVP_OK && run->options->state_slots > 0)
        status = compute_chunks(run, *seq, info);
    if (status == KVP_OK)
        status = commit(run, *seq, prompt.n_tokens);
    if (status == KVP_OK)
        status = report_piece(run, *seq);
    if (status != KVP_OK || prompt.n_tokens == n_tokens)
        return status;
    info->stop = whole.stop;
    info->stop_group = whole.stop_group;
    return compute_pieces(run, *seq, prompt.n_tokens, n_tokens);
}

/* The unit is not kept if no node was free for it; then neither is its state. */
static kvp_status keep_last(replay *run, kvp_seq seq)
{
    kvp_status status = checkpoint(run, seq);
    return status == KVP_E_STATE ? KVP_OK : status;
}

static kvp_status decode(replay *run, const kvpi_request *request, kvp_seq seq)
{
    uint32_t n = (uint32_t)request->input_length, end = (uint32_t)tokens_of(run, request);
    const uint32_t last = end - end % (uint32_t)run->options->unit_tokens; /* of full units */
    uint64_t start = kvpi_progress_now_ns();
    for (; n < end; n++) {
        kvp_status status = kvp_seq_extend(run->cache.cache, seq, &run->tokens[n], 1, 0);
        if (status == KVP_OK)
            status = kvp_seq_commit(run->cache.cache, seq, n + 1);
        if (status == KVP_OK && run->options->state_slots > 0 && n + 1 == last)
            status = keep_last(run, seq);
        if (status == KVP_OK && run->options->host_blocks > 0)
            status = drop_plan(run); /* of what is evicted */
        if (status == KVP_OK && run->store != NULL && has_windows(run) &&
            (n + 1) % kvpi_attach_record_tokens(run->store) == 0)
            status = kvpi_attach_sealed(run->store, seq);
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
    kvp_policy_info learned;
    kvp_status status = kvp_cache_stats_get(run->cache.cache, &stats);
    if (status == KVP_OK)
        status = kvpi_learned_counters(run->cache.cache, &learned);
    if (status != KVP_OK)
        return kvpi_replay_cache_fail("reading the counters", status);
    const kvpi_load_level level = {.held_blocks = (double)run->last_blocks,
                                   .cached_blocks =
                                       (double)(stats.cached_blocks + stats.held_blocks) -
                                       (double)run->last_blocks,
                                   .host_held_blocks = (double)stats.host_held_blocks,
                                   .host_cached_blocks = (double)stats.host_cached_blocks};
    kvpi_load_timeline_span(course, begin_ns, begin_ns + KVPI_REPORT_REQUEST_NS, &level);
    kvpi_load_interval *part = kvpi_load_timeline_at(course, begin_ns);
    part->arrived++;
    part->input_tokens += (uint64_t)request->input_length;
    part->hit_tokens += info->cached_tokens;
    part->evictions += stats.evicted_blocks - run->n_evicted;
    run->n_evicted = stats.evicted_blocks;
    kvpi_load_policy_note(part, &run->policy, &stats, &learned);
    return TOOL_OK;
}

static kvp_status fetch(replay *run, const kvpi_request *request)
{
    const kvp_prompt prompt = {.struct_size = sizeof prompt,
                               .tokens = run->tokens,
                               .n_tokens = (uint32_t)request->input_length};
    return run->store == NULL ? KVP_OK : kvpi_attach_fetch(run->store, &prompt, &run->outcome);
}

/* Evictions of the next request, between the two. */
static kvp_status reclaim(replay *run)
{
    kvp_status status = KVP_OK;
    if (run->options->reclaim > 0)
        status = kvp_cache_reclaim(run->cache.cache, run->options->reclaim, NULL);
    return status == KVP_OK && run->options->reclaim > 0 ? drop_plan(run) : status;
}

/* Gives the request's hits. */
static kvp_status serve(replay *run, const kvpi_request *request, kvp_open_info *info)
{
    kvp_seq seq = {0};
    make_tokens(run, request);
    kvp_status status = fetch(run, request);
    if (status == KVP_OK)
        status = open_request(run, request, &seq, info);
    if (status == KVP_OK)
        status = decode(run, request, seq);
    if (status == KVP_OK && run->store != NULL)
        status = kvpi_attach_sealed(run->store, seq);
    if (status == KVP_OK)
        status = close_request(run, seq);
    return status == KVP_OK ? reclaim(run) : status;
}

static int replay_request(replay *run, uint64_t place)
{
    const kvpi_request *request = kvpi_requests_get(run->requests, run->first + place);
    kvpi_report *report = run->report;
    kvpi_report_interval *part =
        kvpi_report_timeline_at(&report->timeline, place, request->timestamp_us);
    kvp_open_info info = {0};
    uint64_t input = (uint64_t)request->input_length;
    run->place = place;
    if (run->store != NULL)
        kvpi_attach_clock(run->store, place);
    report->requests++;
    report->input_tokens += input;
    report->blocks_looked_up += input / run->options->block_tokens;
    if (fits(run, request)) {
        kvp_status status = serve(run, request, &info);
        if (status != KVP_OK)
            return kvpi_tool_fail("replay", "the request of line %llu: %s",
                                  (unsigned long long)request->line, kvp_status_text(status));
        const kvpi_hit hit = {info.stop, info.stop_group, run->options->n_groups};
        kvpi_hits_count(&report->hits, &hit);
        run->last_blocks =
            kvp_blocks_for_tokens((uint32_t)run->options->block_tokens, tokens_of(run, request));
        if (run->options->watch != NULL &&
            kvpi_watch_look(run->options->watch, run->cache.cache, place) != TOOL_OK)
            return TOOL_FAILED;
    } else {
        run->last_blocks = 0;
        report->rejected++;
    }
    report->hit_tokens += info.cached_tokens;
    report->host_hit_tokens += info.host_tokens;
    report->block_hits += info.hit_tokens / run->options->block_tokens;
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
    kvp_status status = kvp_cache_stats_get(run->cache.cache, &stats);
    if (status != KVP_OK)
        return kvpi_replay_cache_fail("reading the counters", status);
    status = kvp_cache_state_stats_get(run->cache.cache, &run->report->hits.state_slots);
    if (status != KVP_OK)
        return kvpi_replay_cache_fail("reading the counters of states", status);
    status = kvpi_learned_read(run->cache.cache, &run->report->learned);
    if (status != KVP_OK)
        return kvpi_replay_cache_fail("reading what the policy learned", status);
    run->report->cache = stats;
    run->report->evictions = stats.evicted_blocks;
    run->report->host_evictions = stats.host_evicted_blocks;
    run->report->peak_held_blocks = stats.peak_held_blocks;
    return TOOL_OK;
}

/* Token values are made from these: a snapshot is of no use to a replay with others. */
static kvpi_replay_snapshot snapshot_of(const replay *run, const char *path)
{
    kvpi_replay_snapshot snapshot = {.path = path};
    snprintf(snapshot.model, sizeof snapshot.model, KVPI_REPLAY_SNAPSHOT_MODEL,
             (unsigned long long)run->options->trace.key.trace_block,
             (unsigned long long)run->options->trace.key.seed);
    return snapshot;
}

static int open_store(replay *run)
{
    kvpi_attach_options store = run->options->store;
    store.watched = run->options->watch != NULL;
    return store.url == NULL ? TOOL_OK
                             : kvpi_attach_open(&store, run->cache.cache, run->cache.ns,
                                                &run->report->store, &run->store);
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
        status = open_store(run);
    if (status == TOOL_OK)
        status = replay_all(run);
    kvpi_attach_close(run->store);
    if (status == TOOL_OK)
        status = kvpi_store_report_verdict(&run->report->store);
    if (status == TOOL_OK)
        status = read_counters(run);
    if (status == TOOL_OK && to.path != NULL)
        status = kvpi_replay_snapshot_save(run->cache.cache, &to);
    return kvpi_replay_cache_close(&run->cache, status);
}

/* Without a host tier an open makes one copy at most. With one, a call copies what it hits there,
 * and what it evicts, as far as that fills half of the plan. */
static uint32_t count_copies(const replay *run)
{
    uint64_t blocks = kvp_blocks_for_tokens((uint32_t)run->options->block_tokens, run->max_tokens);
    uint64_t n = run->options->host_blocks == 0 ? 4 : 4 * blocks * run->options->n_groups + 64;
    return n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

int kvpi_replay_run(const kvpi_requests *requests, const kvpi_replay_options *options,
                    kvpi_report *report)
{
    replay run = {.requests = requests, .options = options, .report = report};
    int status = TOOL_FAILED;
    if (measure_requests(&run) != TOOL_OK)
        return TOOL_FAILED;
    run.max_copies = count_copies(&run);
    run.tokens = malloc((size_t)run.max_tokens * sizeof *run.tokens);
    run.copies = malloc((size_t)run.max_copies * sizeof *run.copies);
    if (run.tokens != NULL && run.copies != NULL)
        status = replay_in(&run);
    else
        kvpi_tool_fail("replay", "out of memory for a request of %llu tokens",
                       (unsigned long long)run.max_tokens);
    free(run.tokens);
    free(run.copies);
    return status;
}
