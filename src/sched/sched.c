/* sched: creation, submission, and what callers do to single requests.
 *
 * One piece of memory holds everything (state.h draws it). Places of requests and samples
 * come from free lists; a handle is a place and its generation, which rises when it is freed.
 */
#include "sched/sched_state.h"
#include "base/aligned.h"
#include "base/sized.h"
#include "base/why.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, MAX_REQUESTS = 1 << 20, MAX_STEP_TOKENS = 1 << 24, FREE_SHARE = 64 };

static const uint32_t KNOWN_FLAGS = KVP_SUBMIT_BORROW | KVP_SUBMIT_NO_LOAD | KVP_SUBMIT_NO_STORE;

/* ------------------------------------------------------------------------------ configuration */

void kvp_sched_config_init(kvp_sched_config *config)
{
    if (config == NULL)
        return;
    *config = (kvp_sched_config){
        .struct_size = sizeof(*config),
        .max_requests = 1024,
        .step_tokens = 8192,
        .chunk_tokens = KVP_SCHED_CHUNK_HALF,
        .max_passed_over = 16,
        .max_tries = 4,
        .preempt = KVP_PREEMPT_RECOMPUTE,
        .arena_tokens = 1u << 20,
    };
}

static void resolve_config(const kvp_sched_config *config, const kvp_config *cache,
                           kvp_sched_config *out)
{
    *out = *config;
    out->max_samples = config->max_samples ? config->max_samples : config->max_requests;
    out->max_running = config->max_running ? config->max_running : cache->max_seqs;
    if (config->chunk_tokens == 0) {
        out->chunk_tokens = UINT32_MAX;
    } else if (config->chunk_tokens == KVP_SCHED_CHUNK_HALF) {
        out->chunk_tokens = kvpi_sched_ceil(config->step_tokens, 2);
    }
}

static unsigned may_have_rings(const kvp_sched_config *config, const kvp_config *cache)
{
    return cache->state_slots > 0 && config->draft_tokens > 0;
}

/* Is a field of a resolved configuration wrong? The first one that is goes to `why`. */
static int sched_wrong(const kvp_sched_config *c, const kvp_config *cache, kvp_why *why)
{
    const uint64_t most = cache->max_seqs < cache->max_copies ? cache->max_seqs : cache->max_copies;
    return kvpi_why_range(why, "max_requests", c->max_requests, 1, MAX_REQUESTS) ||
           kvpi_why_range(why, "max_samples", c->max_samples, c->max_requests, MAX_REQUESTS) ||
           kvpi_why_range(why, "max_running", c->max_running, 1, most) ||
           kvpi_why_range(why, "draft_tokens", c->draft_tokens, 0, KVP_SCHED_DRAFTS_MAX) ||
           kvpi_why_range(why, "step_tokens", c->step_tokens,
                          (uint64_t)c->max_running * (1 + c->draft_tokens), MAX_STEP_TOKENS) ||
           kvpi_why_range(why, "max_tries", c->max_tries, 1, c->max_requests) ||
           kvpi_why_range(why, "preempt", c->preempt, 0, KVP_PREEMPT_CHEAPER) ||
           kvpi_why_range(why, "swap_ahead", c->swap_ahead, 0, 1) ||
           kvpi_why_range(why, "max_loading", c->max_loading, 0, c->max_requests) ||
           kvpi_why_range(why, "arena_tokens", c->arena_tokens, 0,
                          (uint64_t)KVPI_PAGE_TOKENS * INT32_MAX) ||
           kvpi_why_range(why, "wait_for_prefix", c->wait_for_prefix, 0, 1) ||
           kvpi_why_range(why, "make_way", c->make_way, 0, 1) ||
           kvpi_why_range(why, "state_rings", c->state_rings, 0, may_have_rings(c, cache)) ||
           kvpi_why_range(why, "free_target", c->free_target, 0,
                          kvpi_sched_ceil(cache->n_blocks - 1, FREE_SHARE));
}

kvp_status kvp_sched_config_check(const kvp_sched_config *config, const kvp_cache *cache,
                                  kvp_why *out_why)
{
    kvp_sched_config resolved;
    kvp_config of_cache;
    const kvp_sched_config *known = kvpi_sized(config, sizeof(*config));
    kvpi_why_clear(out_why);
    if (kvpi_why_missing(out_why, config, known, "config") ||
        kvpi_why_if(out_why, kvp_cache_config_get(cache, &of_cache) != KVP_OK, "cache", NULL,
                    "is NULL")) {
        return KVP_E_ARG;
    }
    resolve_config(known, &of_cache, &resolved);
    return sched_wrong(&resolved, &of_cache, out_why) ? KVP_E_ARG : KVP_OK;
}

/* ------------------------------------------------------------------------------------- memory */

struct layout {
    char *base; /* NULL: sizes only */
    size_t bytes;
    int overflow;
};

static void *take_array(struct layout *layout, uint64_t n, size_t size)
{
    size_t bytes;
    size_t end;
    void *here = layout->base == NULL ? NULL : layout->base + layout->bytes;
    if (__builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)LINE - 1, &bytes) ||
        __builtin_add_overflow(layout->bytes, bytes / LINE * LINE, &end)) {
        layout->overflow = 1;
        return here;
    }
    layout->bytes = end;
    return here;
}

static uint32_t count_pages(const kvp_sched_config *config)
{
    return (uint32_t)((config->arena_tokens + KVPI_PAGE_TOKENS - 1) / KVPI_PAGE_TOKENS);
}

/* Lay the arrays out; `sched` is the scheduler, or any place to write to when sizes are asked. */
static void lay_out(struct layout *layout, kvp_sched *sched, const kvp_sched_config *config,
                    const kvp_config *cache)
{
    const uint32_t running = config->max_running;
    const uint32_t n_pages = count_pages(config);
    (void)take_array(layout, 1, sizeof(*sched));
    sched->requests = take_array(layout, config->max_requests, sizeof(*sched->requests));
    sched->samples = take_array(layout, config->max_samples, sizeof(*sched->samples));
    sched->pages.tokens = take_array(layout, n_pages, KVPI_PAGE_TOKENS * sizeof(int32_t));
    sched->pages.next = take_array(layout, n_pages, sizeof(uint32_t));
    sched->items = take_array(layout, running, sizeof(*sched->items));
    sched->item_samples = take_array(layout, running, sizeof(*sched->item_samples));
    sched->item_seqs = take_array(layout, running, sizeof(*sched->item_seqs));
    sched->item_ends = take_array(layout, running, sizeof(*sched->item_ends));
    sched->item_drafts = take_array(layout, running, sizeof(*sched->item_drafts));
    sched->tokens = take_array(layout, config->step_tokens, sizeof(*sched->tokens));
    sched->admitted = take_array(layout, running, sizeof(*sched->admitted));
    sched->preempted =
        take_array(layout, (uint64_t)cache->max_seqs + running, sizeof(*sched->preempted));
    sched->swapped_out = take_array(layout, running, sizeof(*sched->swapped_out));
    sched->swapped_in = take_array(layout, running, sizeof(*sched->swapped_in));
    sched->refused = take_array(layout, config->max_requests, sizeof(*sched->refused));
    sched->expired = take_array(layout, config->max_loading, sizeof(*sched->expired));
    sched->ended = take_array(layout, running, sizeof(*sched->ended));
    sched->text = take_array(layout, cache->max_seq_tokens, sizeof(*sched->text));
    sched->newest = take_array(layout, running, sizeof(*sched->newest));
    sched->few_seqs = take_array(layout, running, sizeof(*sched->few_seqs));
    sched->few_counts = take_array(layout, running, sizeof(*sched->few_counts));
    sched->few_ids = take_array(layout, running, sizeof(*sched->few_ids));
    sched->more_ids = take_array(layout, running, sizeof(*sched->more_ids));
    sched->swap_seqs = take_array(layout, running, sizeof(*sched->swap_seqs));
    sched->accepted_drafts = take_array(layout, (uint64_t)running * config->draft_tokens,
                                        sizeof(*sched->accepted_drafts));
    sched->tried = take_array(layout, config->max_tries, sizeof(*sched->tried));
}

kvp_status kvp_sched_bytes(const kvp_sched_config *config, const kvp_cache *cache,
                           size_t *out_bytes)
{
    kvp_config cache_config;
    kvp_sched_config resolved;
    config = kvpi_sized(config, sizeof(*config));
    if (config == NULL || out_bytes == NULL ||
        kvp_cache_config_get(cache, &cache_config) != KVP_OK) {
        return KVP_E_ARG;
    }
    resolve_config(config, &cache_config, &resolved);
    if (sched_wrong(&resolved, &cache_config, NULL)) {
        return KVP_E_ARG;
    }
    kvp_sched ignored = {0};
    struct layout layout = {0};
    lay_out(&layout, &ignored, &resolved, &cache_config);
    if (layout.overflow) {
        return KVP_E_TOO_LONG;
    }
    *out_bytes = layout.bytes;
    return KVP_OK;
}

static void init_places(kvp_sched *sched)
{
    for (uint32_t i = 0; i < sched->config.max_requests; i++) {
        struct kvpi_request *request = &sched->requests[i];
        memset(request, 0, sizeof(*request));
        request->queue = KVPI_QUEUE_UNUSED;
        request->first_sample = KVPI_NONE;
        request->next_free = i + 1 < sched->config.max_requests ? i + 1 : KVPI_NONE;
    }
    for (uint32_t i = 0; i < sched->config.max_samples; i++) {
        struct kvpi_sample *sample = &sched->samples[i];
        memset(sample, 0, sizeof(*sample));
        sample->next = i + 1 < sched->config.max_samples ? i + 1 : KVPI_NONE;
    }
    sched->n_free_samples = sched->config.max_samples;
    for (uint32_t i = 0; i < KVPI_QUEUES; i++) {
        sched->queues[i] =
            (struct kvpi_queue){sched->requests, sizeof(*sched->requests), KVPI_QUEUE_NONE, 0};
    }
    sched->pages.n_pages = sched->pages.n_free = count_pages(&sched->config);
    sched->pages.free = KVPI_NO_PAGE;
    sched->prefill_first = sched->prefill_last = KVPI_NONE;
}

static void init(kvp_sched *sched, kvp_cache *cache, const kvp_config *cache_config)
{
    kvp_stats stats;
    (void)kvp_cache_stats_get(cache, &stats);
    sched->cache = cache;
    sched->n_groups = cache_config->n_groups;
    for (uint32_t g = 0; g < cache_config->n_groups; g++) {
        sched->block_tokens[g] = cache_config->groups[g].block_tokens;
        sched->has_windows |= cache_config->groups[g].recent_tokens > 0;
        sched->ends_inside |= cache_config->groups[g].block_tokens > cache_config->unit_tokens;
    }
    sched->learns = cache_config->policy == KVP_POLICY_LEARNED;
    sched->ends_prompts = sched->learns || cache_config->retain_tokens != 0;
    sched->unit_tokens = cache_config->unit_tokens;
    sched->max_seqs = cache_config->max_seqs;
    sched->max_seq_tokens = cache_config->max_seq_tokens;
    sched->max_copies = cache_config->max_copies;
    sched->usable_blocks = (uint32_t)stats.usable_blocks;
    sched->usable_slots = cache_config->state_slots > 0 ? cache_config->state_slots - 1 : 0;
    sched->renews_slots = sched->usable_slots > 0 && cache_config->steps == KVP_STEPS_OVERLAPPED;
    sched->watermark_blocks = (uint32_t)stats.watermark_blocks;
    init_places(sched);
}

kvp_status kvp_sched_create(const kvp_sched_config *config, kvp_cache *cache, void *arena,
                            size_t arena_bytes, kvp_sched **out_sched)
{
    size_t bytes;
    if (out_sched == NULL || (uintptr_t)arena % LINE != 0) {
        return KVP_E_ARG;
    }
    config = kvpi_sized(config, sizeof(*config));
    const kvp_status status = kvp_sched_bytes(config, cache, &bytes);
    if (status != KVP_OK) {
        return status;
    }
    if (arena != NULL && arena_bytes < bytes) {
        return KVP_E_TOO_SMALL;
    }
    void *memory = arena != NULL ? arena : kvpi_aligned_take(LINE, bytes);
    if (memory == NULL) {
        return KVP_E_NO_MEMORY;
    }
    kvp_config cache_config;
    kvp_sched *sched = memory;
    memset(sched, 0, sizeof(*sched));
    (void)kvp_cache_config_get(cache, &cache_config);
    resolve_config(config, &cache_config, &sched->config);
    struct layout layout = {.base = memory};
    lay_out(&layout, sched, &sched->config, &cache_config);
    sched->owns_memory = arena == NULL;
    init(sched, cache, &cache_config);
    *out_sched = sched;
    return KVP_OK;
}

void kvp_sched_destroy(kvp_sched *sched)
{
    if (sched == NULL) {
        return;
    }
    for (uint32_t i = 0; i < sched->config.max_requests; i++) {
        if (sched->requests[i].queue != KVPI_QUEUE_UNUSED) {
            kvpi_life_release(sched, &sched->requests[i], KVPI_QUEUE_UNUSED);
        }
    }
    if (sched->owns_memory) {
        kvpi_aligned_free(sched);
    }
}

#if KVP_CHECK >= 1

/* So far before the last generation no run of a test comes to it: places are not retired. */
enum { LEFT = 1 << 20 };

void kvpi_sched_start_at(kvp_sched *sched, uint64_t start)
{
    const uint32_t most = KVPI_LAST_GENERATION - LEFT;
    assert(sched->arrivals == 0); /* nothing knows a number yet */
    sched->arrivals = start;
    sched->report.number = start;
    for (uint32_t i = 0; i < sched->config.max_requests; i++) {
        sched->requests[i].generation = start < most ? (uint32_t)start : most;
    }
}

#endif

/* ------------------------------------------------------------------------------------- submit */

/* Blocks of all layer groups for sequences of `tokens` tokens, which share the full blocks of their
 * first `shared` tokens. */
static uint64_t blocks_of_samples(const kvp_sched *sched, uint32_t n_samples, uint32_t shared,
                                  uint32_t tokens)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < sched->n_groups; g++) {
        const uint32_t S = sched->block_tokens[g];
        const uint32_t full = shared / S;
        n += full + (uint64_t)n_samples * (kvpi_sched_max(kvpi_sched_ceil(tokens, S), full) - full);
    }
    return n;
}

/* Can a prompt of so many tokens come in, and go on for a token? Samples except the first have a
 * block of each group for themselves. */
static int prompt_fits(const kvp_sched *sched, uint32_t n_samples, uint32_t prompt)
{
    return kvpi_sched_blocks(sched, prompt) + (uint64_t)(n_samples - 1) * sched->n_groups +
                   sched->watermark_blocks <=
               sched->usable_blocks &&
           blocks_of_samples(sched, n_samples, prompt, prompt + 1) <= sched->usable_blocks;
}

/* The longest prompt, and the longest sequence with the prompt that there is. Every group has a
 * block for each S tokens when a request comes in, whatever its window drops later. Longer
 * ones need no fewer blocks: what fits is found by halves. */
static kvp_sched_limit limit_of(const kvp_sched *sched, uint32_t n_samples, uint32_t prompt)
{
    kvp_sched_limit limit = {0, 0};
    if (sched->usable_slots > 0 && kvpi_slots_most_of(sched, n_samples) > sched->usable_slots) {
        return limit;
    }
    uint32_t most = sched->max_seq_tokens - 1;
    while (limit.max_prompt_tokens < most) {
        const uint32_t middle = most - (most - limit.max_prompt_tokens) / 2;
        if (prompt_fits(sched, n_samples, middle)) {
            limit.max_prompt_tokens = middle;
        } else {
            most = middle - 1;
        }
    }
    most = blocks_of_samples(sched, 1, prompt, prompt + 1) > sched->usable_blocks
               ? 0
               : sched->max_seq_tokens;
    while (limit.max_tokens < most) {
        const uint32_t middle = most - (most - limit.max_tokens) / 2;
        if (blocks_of_samples(sched, n_samples, prompt, middle) <= sched->usable_blocks) {
            limit.max_tokens = middle;
        } else {
            most = middle - 1;
        }
    }
    return limit;
}

static kvp_status check_lengths(const kvp_sched *sched, const kvp_submission *submission,
                                uint32_t n_samples, kvp_sched_limit *out_limit)
{
    const uint32_t prompt = submission->prompt->n_tokens;
    const uint64_t all = (uint64_t)prompt + submission->max_new_tokens;
    const kvp_sched_limit limit = limit_of(sched, n_samples, prompt);
    if (out_limit != NULL) {
        *out_limit = limit;
    }
    if (all > sched->max_seq_tokens) {
        return KVP_E_TOO_LONG;
    }
    return prompt <= limit.max_prompt_tokens && all <= limit.max_tokens ? KVP_OK : KVP_E_NEVER;
}

static int submission_is_sound(const kvp_sched *sched, const kvp_submission *submission)
{
    const kvp_prompt *prompt = submission->prompt;
    return prompt != NULL && prompt->n_tokens >= 1 && prompt->tokens != NULL &&
           prompt->reserve_tokens == 0 && (prompt->flags & KVP_OPEN_RECEIVE) == 0 &&
           submission->n_samples <= sched->config.max_running &&
           (submission->n_samples < 2 ||
            (uint64_t)submission->n_samples * sched->n_groups <= sched->max_copies) &&
           submission->max_new_tokens >= 1 && (submission->flags & ~KNOWN_FLAGS) == 0;
}

static uint64_t count_needed_pages(const kvp_submission *submission, uint32_t n_samples)
{
    const uint64_t S = KVPI_PAGE_TOKENS;
    const uint64_t prompt =
        submission->flags & KVP_SUBMIT_BORROW ? 0 : (submission->prompt->n_tokens + S - 1) / S;
    return prompt + n_samples * ((submission->max_new_tokens + S - 1) / S);
}

static void add_samples(kvp_sched *sched, struct kvpi_request *request)
{
    uint32_t *link = &request->first_sample;
    for (uint32_t i = 0; i < request->n_samples; i++) {
        const uint32_t place = sched->free_sample;
        struct kvpi_sample *sample = &sched->samples[place];
        sched->free_sample = sample->next;
        *sample = (struct kvpi_sample){
            .request = kvpi_sched_place(sched, request),
            .stage = KVPI_STAGE_NONE,
            .slot = KVPI_NONE,
            .known = request->prompt.n_tokens,
            .limit = request->limit,
            .generated = kvpi_chain_empty(),
            .idx = i,
            .next = KVPI_NONE,
        };
        *link = place;
        link = &sample->next;
    }
    sched->n_free_samples -= request->n_samples;
}

static struct kvpi_request *add_request(kvp_sched *sched, const kvp_submission *submission,
                                        uint32_t n_samples, uint32_t n_pages)
{
    struct kvpi_request *request = &sched->requests[sched->free_request];
    sched->free_request = request->next_free;
    const uint32_t generation = request->generation;
    *request = (struct kvpi_request){
        .rank = {.arrival = ++sched->arrivals, .priority = submission->priority},
        .queue = KVPI_QUEUE_IDLE,
        .generation = generation,
        .first_sample = KVPI_NONE,
        .n_samples = n_samples,
        .n_live = n_samples,
        .limit = submission->prompt->n_tokens + submission->max_new_tokens,
        .n_pages = n_pages,
        .flags = submission->flags,
        .load_deadline = submission->load_deadline,
        .cursor = kvpi_cursor_start(),
        .pages = kvpi_chain_empty(),
        .ns = submission->ns,
        .prompt = *submission->prompt,
    };
    sched->pages.n_reserved += n_pages;
    add_samples(sched, request);
    if (!(submission->flags & KVP_SUBMIT_BORROW)) {
        request->prompt.tokens = NULL;
        kvpi_pages_append_many(&sched->pages, &request->pages, submission->prompt->tokens,
                               submission->prompt->n_tokens);
    }
    kvpi_life_move(sched, request, KVPI_QUEUE_WAITING);
    return request;
}

static kvp_status submit(kvp_sched *sched, const kvp_submission *submission,
                         kvp_request *out_request, kvp_sched_limit *out_limit)
{
    const uint32_t n_samples = submission->n_samples ? submission->n_samples : 1;
    kvp_status status = kvp_prompt_check(sched->cache, submission->ns, submission->prompt, NULL);
    if (status == KVP_OK || status == KVP_E_TOO_LONG) {
        const kvp_status lengths = check_lengths(sched, submission, n_samples, out_limit);
        status = lengths != KVP_OK ? lengths : status;
    }
    if (status != KVP_OK) {
        return status;
    }
    if (sched->free_request == KVPI_NONE || sched->n_free_samples < n_samples) {
        return KVP_E_NO_SEQS;
    }
    const uint64_t n_pages = count_needed_pages(submission, n_samples);
    if (n_pages > sched->pages.n_pages - sched->pages.n_reserved) {
        return KVP_E_NO_BLOCKS;
    }
    const struct kvpi_request *request =
        add_request(sched, submission, n_samples, (uint32_t)n_pages);
    *out_request = kvpi_sched_handle(sched, request);
    return KVP_OK;
}

kvp_status kvp_sched_submit(kvp_sched *sched, const kvp_submission *submission,
                            kvp_request *out_request, kvp_sched_limit *out_limit)
{
    submission = kvpi_sized(submission, sizeof(*submission));
    if (sched == NULL || submission == NULL || out_request == NULL) {
        return KVP_E_ARG;
    }
    kvp_submission known = *submission;
    known.prompt = kvpi_sized(known.prompt, sizeof(*known.prompt));
    if (!submission_is_sound(sched, &known)) {
        return KVP_E_ARG;
    }
    const kvp_status status = submit(sched, &known, out_request, out_limit);
    if (status == KVP_OK) {
        sched->stats.submitted++;
    } else {
        sched->stats.refused++;
    }
    return status;
}

/* ----------------------------------------------------------------------- abort, pause, resume */

struct kvpi_request *kvpi_sched_find(const kvp_sched *sched, kvp_request handle)
{
    const uint32_t place = (uint32_t)handle.bits - 1;
    if (handle.bits == 0 || place >= sched->config.max_requests) {
        return NULL;
    }
    struct kvpi_request *request = &sched->requests[place];
    const int is_there =
        request->queue != KVPI_QUEUE_UNUSED && request->generation == (uint32_t)(handle.bits >> 32);
    return is_there ? request : NULL;
}

kvp_status kvp_sched_abort(kvp_sched *sched, kvp_request handle)
{
    if (sched == NULL) {
        return KVP_E_ARG;
    }
    struct kvpi_request *request = kvpi_sched_find(sched, handle);
    if (request == NULL) {
        return KVP_E_HANDLE;
    }
    kvpi_life_forget(sched, request);
    sched->stats.aborted++;
    return KVP_OK;
}

kvp_status kvp_sched_pause(kvp_sched *sched, kvp_request handle)
{
    if (sched == NULL) {
        return KVP_E_ARG;
    }
    struct kvpi_request *request = kvpi_sched_find(sched, handle);
    if (request == NULL) {
        return KVP_E_HANDLE;
    }
    sched->stats.dropped += request->queue == KVPI_QUEUE_LOADING;
    switch (request->queue) {
    case KVPI_QUEUE_WAITING:
    case KVPI_QUEUE_LOADING: kvpi_life_move(sched, request, KVPI_QUEUE_IDLE); break;
    case KVPI_QUEUE_SWAPPED: kvpi_life_move(sched, request, KVPI_QUEUE_STORED); break;
    case KVPI_QUEUE_RUNNING:
    case KVPI_QUEUE_JOINING: kvpi_life_leave(sched, request, KVPI_QUEUE_HALTED); break;
    default: return KVP_OK;
    }
    sched->n_paused++;
    return KVP_OK;
}

kvp_status kvp_sched_resume(kvp_sched *sched, kvp_request handle)
{
    if (sched == NULL) {
        return KVP_E_ARG;
    }
    struct kvpi_request *request = kvpi_sched_find(sched, handle);
    if (request == NULL) {
        return KVP_E_HANDLE;
    }
    switch (request->queue) {
    case KVPI_QUEUE_IDLE: kvpi_life_move(sched, request, KVPI_QUEUE_WAITING); break;
    case KVPI_QUEUE_STORED: kvpi_life_move(sched, request, KVPI_QUEUE_SWAPPED); break;
    case KVPI_QUEUE_HALTED: kvpi_life_move(sched, request, KVPI_QUEUE_JOINING); break;
    default: return KVP_OK;
    }
    sched->n_paused--;
    return KVP_OK;
}
