/* Owns the simulation of a sequential replay whose victims the learned policy chooses. The policy
 * itself is the library's (core/policy); here is what a cache has around it:
 *
 *   open    the longest run of leading contents that are cached is held; blocks are taken for the
 *           rest of the prompt
 *   commit  each full block gets its content. If that is cached already, ours is free again
 *   extend  a block is taken when the last one is full
 *   close   the policy learns of the request; contents become cached, the last block's first
 *   take    a free block; else the victim's, whose content is not cached any more
 *
 * A cached block is a leaf if no cached content continues its own. Only leaves can go, so only they
 * are queued with the policy. A block whose last cached continuation goes becomes a leaf then.
 */
#include "tool/mrc/policies/mrc_learned.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/policy/policy.h"
#include "tool/progress.h"
#include "tool/tool.h"

#define NONE KVPI_POLICY_NONE

typedef enum place { FREE, HELD, QUEUED, ASIDE } place;

typedef struct cache {
    const kvpi_mrc_refs *refs;
    struct kvpi_policy *policy;
    uint32_t *block_of; /* [n_contents] NONE: not cached */
    uint32_t *parent;   /* [n_contents] the content before it; NONE: it is a first block */
    uint32_t *children; /* [n_contents] contents that continue it, and are cached and not held */
    uint32_t *content;  /* [n_blocks] of a block */
    uint8_t *place;     /* [n_blocks] */
    uint32_t *free;     /* [n_free] */
    uint64_t n_free;
    uint32_t *row;                    /* [min_blocks] blocks of the request */
    struct kvpi_policy_group *groups; /* [min_blocks] of its blocks */
    kvpi_mrc_learned_hits hits;
} cache;

/* ----------------------------------------------------------------------------------- the blocks */

static void queue(cache *c, uint32_t block)
{
    c->place[block] = QUEUED;
    kvpi_policy_queue(c->policy, 0, block);
}

static void evict(cache *c)
{
    uint32_t block = kvpi_policy_choose(c->policy, 0);
    uint32_t content = c->content[block], parent = c->parent[content];
    kvpi_policy_unqueue(c->policy, block);
    c->place[block] = FREE;
    kvpi_policy_forget(c->policy, block);
    c->block_of[content] = NONE;
    c->free[c->n_free++] = block;
    if (parent != NONE && --c->children[parent] == 0 && c->place[c->block_of[parent]] == ASIDE)
        queue(c, c->block_of[parent]);
}

static uint32_t take(cache *c)
{
    if (c->n_free == 0)
        evict(c);
    return c->free[--c->n_free];
}

static bool is_cached(const cache *c, uint32_t content)
{
    return c->block_of[content] != NONE;
}

/* What is before it is held. */
static uint32_t hold(cache *c, uint32_t content)
{
    uint32_t block = c->block_of[content];
    if (c->place[block] == QUEUED)
        kvpi_policy_unqueue(c->policy, block);
    c->place[block] = HELD;
    if (c->parent[content] != NONE)
        c->children[c->parent[content]]--;
    return block;
}

/* The last block's first: what continues it is queued. */
static void release(cache *c, uint32_t block)
{
    uint32_t content = c->content[block];
    if (c->parent[content] != NONE)
        c->children[c->parent[content]]++;
    c->place[block] = ASIDE;
    if (c->children[content] == 0)
        queue(c, block);
}

/* ----------------------------------------------------------------------------------- a request */

static uint32_t open_request(cache *c, const kvpi_mrc_request *request)
{
    const uint32_t *contents = c->refs->contents + request->first;
    uint32_t n_hits = 0;
    for (; n_hits < request->n_prompt && is_cached(c, contents[n_hits]); n_hits++)
        c->row[n_hits] = hold(c, contents[n_hits]);
    for (uint32_t i = n_hits; i < request->n_opened; i++)
        c->row[i] = take(c);
    return n_hits;
}

static void compute(cache *c, const kvpi_mrc_request *request, uint32_t n_hits)
{
    const uint32_t *contents = c->refs->contents + request->first;
    for (uint32_t i = n_hits; i < request->n_blocks; i++) {
        if (i >= request->n_opened)
            c->row[i] = take(c);
        if (i >= request->n_full)
            continue;
        if (is_cached(c, contents[i])) {
            c->free[c->n_free++] = c->row[i];
            c->row[i] = hold(c, contents[i]);
            continue;
        }
        c->block_of[contents[i]] = c->row[i];
        c->content[c->row[i]] = contents[i];
        c->place[c->row[i]] = HELD;
    }
}

/* The finalizer of murmur3: a bijection. */
static uint32_t name_of(uint32_t content)
{
    content = (content ^ content >> 16) * UINT32_C(0x85ebca6b);
    content = (content ^ content >> 13) * UINT32_C(0xc2b2ae35);
    return content ^ content >> 16;
}

static void close_request(cache *c, const kvpi_mrc_request *request, uint32_t n_hits)
{
    const uint32_t size = c->policy->group_blocks;
    const uint32_t *contents = c->refs->contents + request->first;
    for (uint32_t group = 0; group < request->n_full / size; group++)
        c->groups[group].name = name_of(contents[(group + 1) * size - 1]);
    kvpi_policy_use(c->policy,
                    &(struct kvpi_policy_request){.blocks = c->row,
                                                  .groups = c->groups,
                                                  .n_blocks = request->n_full,
                                                  .n_held = request->n_blocks,
                                                  .n_prompt = request->n_prompt,
                                                  .n_hits = n_hits,
                                                  .prompt_tokens = request->input_tokens,
                                                  .output_tokens = request->output_tokens});
    if (request->n_blocks > request->n_full)
        c->free[c->n_free++] = c->row[request->n_full];
    for (uint32_t i = request->n_full; i-- > 0;)
        release(c, c->row[i]);
}

static void count_hits(cache *c, const kvpi_mrc_request *request, uint32_t n_hits)
{
    c->hits.blocks += n_hits;
    c->hits.tokens += n_hits * c->refs->block_tokens;
    if (n_hits > 0 && n_hits == request->n_prompt)
        c->hits.tokens -= c->refs->block_tokens - request->last_tokens;
}

/* -------------------------------------------------------------------------------------- public */

static int make_policy(cache *c, uint32_t n_blocks)
{
    struct kvpi_layout layout = {0, 0};
    struct kvpi_policy plan = {
        .n_blocks = n_blocks,
        .block_tokens = (uint32_t)c->refs->block_tokens,
        .group_blocks = kvpi_policy_group_blocks(n_blocks, (uint32_t)c->refs->block_tokens)};
    kvpi_layout_take(&layout, 1, sizeof plan);
    kvpi_policy_layout(&plan, &layout, 0);
    if (!layout.overflow)
        c->policy = malloc(layout.bytes);
    if (c->policy == NULL)
        return -1;
    *c->policy = plan;
    kvpi_policy_reset(c->policy);
    return 0;
}

static int make(cache *c, uint32_t n_blocks)
{
    const kvpi_mrc_refs *refs = c->refs;
    size_t n_contents = (size_t)refs->n_contents + 1;
    c->block_of = malloc(n_contents * sizeof *c->block_of);
    c->parent = malloc(n_contents * sizeof *c->parent);
    c->children = calloc(n_contents, sizeof *c->children);
    c->content = malloc(n_blocks * sizeof *c->content);
    c->place = calloc(n_blocks, sizeof *c->place);
    c->free = malloc(n_blocks * sizeof *c->free);
    c->row = malloc(((size_t)refs->min_blocks + 1) * sizeof *c->row);
    c->groups = malloc(((size_t)refs->min_blocks + 1) * sizeof *c->groups);
    if (c->block_of == NULL || c->parent == NULL || c->children == NULL || c->content == NULL ||
        c->place == NULL || c->free == NULL || c->row == NULL || c->groups == NULL ||
        make_policy(c, n_blocks) != 0)
        return -1;
    memset(c->block_of, 0xff, n_contents * sizeof *c->block_of);
    for (uint32_t block = n_blocks; block-- > 0;)
        c->free[c->n_free++] = block;
    for (size_t r = 0; r < refs->n_requests; r++) {
        const uint32_t *contents = refs->contents + refs->requests[r].first;
        for (uint32_t i = 0; i < refs->requests[r].n_full; i++)
            c->parent[contents[i]] = i == 0 ? NONE : contents[i - 1];
    }
    return 0;
}

static void free_cache(cache *c)
{
    free(c->block_of);
    free(c->parent);
    free(c->children);
    free(c->content);
    free(c->place);
    free(c->free);
    free(c->row);
    free(c->groups);
    free(c->policy);
}

/* One size. Prints nothing: it may be one of several at a time. */
static int run_size(const kvpi_mrc_refs *refs, uint64_t blocks, kvpi_mrc_learned_hits *out)
{
    cache c = {.refs = refs};
    uint64_t most = refs->n_contents + refs->min_blocks + 1; /* nothing is evicted */
    int status = make(&c, (uint32_t)(blocks < most ? blocks : most));
    for (size_t r = 0; r < refs->n_requests && status == 0; r++) {
        const kvpi_mrc_request *request = &refs->requests[r];
        uint32_t n_hits = open_request(&c, request);
        compute(&c, request, n_hits);
        close_request(&c, request, n_hits);
        count_hits(&c, request, n_hits);
    }
    *out = c.hits;
    free_cache(&c);
    return status;
}

static int fail_for_memory(void)
{
    return kvpi_tool_fail("mrc", "out of memory for the learned policy");
}

/* ------------------------------------------------------------------------------- many at a time */

typedef struct sizes {
    const kvpi_mrc_refs *refs;
    const uint64_t *blocks; /* [n] */
    kvpi_mrc_learned_hits *out;
    size_t n;
    pthread_mutex_t lock; /* of the rest */
    kvpi_progress progress;
    size_t next;
    int failed;
} sizes;

/* The next size that no thread has; n: none is left, or one has failed. */
static size_t next_size(sizes *s, int failed)
{
    pthread_mutex_lock(&s->lock);
    s->failed |= failed;
    size_t at = s->failed ? s->n : s->next;
    kvpi_progress_update(&s->progress, at);
    s->next += at < s->n;
    pthread_mutex_unlock(&s->lock);
    return at;
}

static void *run_sizes(void *context)
{
    sizes *s = context;
    int failed = 0;
    for (size_t at = next_size(s, 0); at < s->n; at = next_size(s, failed))
        failed = run_size(s->refs, s->blocks[at], &s->out[at]) != 0;
    return NULL;
}

int kvpi_mrc_learned_run_sizes(const kvpi_mrc_refs *refs, const uint64_t *blocks, size_t n,
                               kvpi_mrc_learned_hits *out)
{
    pthread_t threads[KVPI_MRC_LEARNED_THREADS];
    size_t n_threads = 0;
    sizes s = {.refs = refs, .blocks = blocks, .out = out, .n = n};
    if (pthread_mutex_init(&s.lock, NULL) != 0)
        return fail_for_memory();
    kvpi_progress_start(&s.progress, "learned policy at sizes", n);
    /* With fewer threads than it takes, it takes longer. */
    while (n_threads + 1 < n && n_threads + 1 < KVPI_MRC_LEARNED_THREADS &&
           pthread_create(&threads[n_threads], NULL, run_sizes, &s) == 0)
        n_threads++;
    run_sizes(&s);
    for (size_t i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    kvpi_progress_end(&s.progress);
    pthread_mutex_destroy(&s.lock);
    return s.failed ? fail_for_memory() : TOOL_OK;
}
