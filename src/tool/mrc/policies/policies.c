/* Owns the simulation of a sequential replay with another replacement than the cache's. Block ids
 * do not matter, only how many blocks are free and which contents are cached:
 *
 *   open    the longest run of leading contents that are cached is held; blocks are taken for the
 *           rest of the prompt
 *   commit  each full block gets its content. If that is cached already, ours is free again
 *   extend  a block is taken when the last one is full
 *   close   contents become cached, the last block's first; a partly filled block is free
 *   take    a free block; else the victim's, whose content is not cached any more
 *
 * The victims of ARC and S3-FIFO are chosen in adaptive.c.
 *
 * Lists of cached contents without a holder, each in the order in which they may be evicted:
 *
 *   FIFO      one list. A content enters it at the end, at the close of the request that computed
 *             it, and leaves it when it is evicted; who holds it is passed over
 *   optimum   one list for each request, of the contents that it will be the next to look up; and
 *             one for those that no request will, or that will be computed again before. The victim
 *             is the head of the last list that is not empty
 *
 * The optimum is one: a hit needs its content kept from its last use until the look-up, and at each
 * request in between there is room for so many. Of such intervals the most are kept when the one
 * that ends last is given up whenever there are too many. Of those that end at the same request,
 * the deepest is given up first: it was put into the list first, because each request that used it
 * used what stands before it, then or later. So what is kept is never cut off from its beginning.
 */
#include "tool/mrc/policies/policies.h"

#include <stdlib.h>
#include <string.h>

#include "tool/mrc/policies/adaptive.h"
#include "tool/tool.h"

#define NONE UINT32_MAX
#define WORD 64u

/* Which lists are not empty: a bit for each, a bit for each word of bits, and so on. */
typedef struct bits {
    uint64_t *words[6];
    size_t n_words[6];
    int n_levels;
} bits;

typedef struct list {
    uint32_t head, tail;
} list;

struct kvpi_mrc_policies {
    const kvpi_mrc_refs *refs;
    uint32_t *looked_up_next; /* [n_refs] by which request; n_requests: by none in time */
    uint32_t *next, *prev;    /* [n_contents] in a list */
    uint32_t *list_of;        /* [n_contents] NONE: not cached, or held; 0 when cached, except
                                 the optimum */
    uint32_t *held_by;        /* [n_contents] 1 + the request; 0: none yet */
    list *lists;              /* [n_requests + 1] */
    bits filled;
    kvpi_mrc_adaptive *adaptive; /* or NULL */
    /* of a run */
    kvpi_mrc_policy policy;
    uint64_t free_blocks;
    uint32_t cursor;     /* FIFO: where the search for a victim goes on */
    uint32_t request;    /* 1 + the one that is served */
    uint64_t n_borrowed; /* blocks that it has too many: in a sample, requests may be larger than
                            the cache */
};

/* ------------------------------------------------------------------------------------ the bits */

static int make_bits(bits *set, size_t n)
{
    for (set->n_levels = 0; set->n_levels == 0 || n > 1; set->n_levels++) {
        n = (n + WORD - 1) / WORD;
        set->n_words[set->n_levels] = n;
        set->words[set->n_levels] = calloc(n, sizeof(uint64_t));
        if (set->words[set->n_levels] == NULL)
            return -1;
    }
    return 0;
}

static void set_bit(bits *set, size_t i)
{
    for (int level = 0; level < set->n_levels; level++, i /= WORD)
        set->words[level][i / WORD] |= UINT64_C(1) << i % WORD;
}

static void clear_bit(bits *set, size_t i)
{
    for (int level = 0; level < set->n_levels; level++, i /= WORD) {
        set->words[level][i / WORD] &= ~(UINT64_C(1) << i % WORD);
        if (set->words[level][i / WORD] != 0)
            return;
    }
}

/* The highest bit that is set, or NONE. */
static uint32_t last_bit(const bits *set)
{
    size_t i = 0;
    if (set->words[set->n_levels - 1][0] == 0)
        return NONE;
    for (int level = set->n_levels; level-- > 0;)
        i = i * WORD + (WORD - 1 - (size_t)__builtin_clzll(set->words[level][i]));
    return (uint32_t)i;
}

/* ----------------------------------------------------------------------------------- the lists */

static void append(kvpi_mrc_policies *p, uint32_t which, uint32_t content)
{
    list *to = &p->lists[which];
    p->list_of[content] = which;
    p->next[content] = NONE;
    p->prev[content] = to->tail;
    if (to->tail == NONE) {
        to->head = content;
        set_bit(&p->filled, which);
    } else {
        p->next[to->tail] = content;
    }
    to->tail = content;
}

static void unlink_content(kvpi_mrc_policies *p, uint32_t content)
{
    uint32_t which = p->list_of[content], next = p->next[content], prev = p->prev[content];
    list *from = &p->lists[which];
    if (prev == NONE)
        from->head = next;
    else
        p->next[prev] = next;
    if (next == NONE)
        from->tail = prev;
    else
        p->prev[next] = prev;
    if (from->head == NONE)
        clear_bit(&p->filled, which);
    p->list_of[content] = NONE;
}

/* ---------------------------------------------------------------------------------- the blocks */

static bool is_held(const kvpi_mrc_policies *p, uint32_t content)
{
    return p->request != 0 && p->held_by[content] == p->request;
}

/* In a list, and not held: it can be hit, adopted, evicted. */
static bool is_idle(const kvpi_mrc_policies *p, uint32_t content)
{
    return p->list_of[content] != NONE && !is_held(p, content);
}

static bool is_adaptive(const kvpi_mrc_policies *p)
{
    return p->policy == KVPI_MRC_ARC || p->policy == KVPI_MRC_S3FIFO;
}

static void hold(kvpi_mrc_policies *p, uint32_t content)
{
    p->held_by[content] = p->request;
    if (is_adaptive(p) && p->list_of[content] != NONE)
        kvpi_mrc_adaptive_hold(p->adaptive, content);
    if (p->policy == KVPI_MRC_OPTIMUM && p->list_of[content] != NONE)
        unlink_content(p, content);
}

/* NONE when everything is held. */
static uint32_t victim(kvpi_mrc_policies *p)
{
    if (p->policy == KVPI_MRC_OPTIMUM) {
        uint32_t which = last_bit(&p->filled);
        return which == NONE ? NONE : p->lists[which].head;
    }
    while (p->cursor != NONE && is_held(p, p->cursor))
        p->cursor = p->next[p->cursor];
    return p->cursor;
}

static void take(kvpi_mrc_policies *p)
{
    if (p->free_blocks > 0) {
        p->free_blocks--;
        return;
    }
    uint32_t evicted = is_adaptive(p) ? kvpi_mrc_adaptive_evict(p->adaptive) : victim(p);
    if (evicted == NONE) {
        p->n_borrowed++;
        return;
    }
    if (is_adaptive(p)) {
        p->list_of[evicted] = NONE;
        return;
    }
    if (evicted == p->cursor)
        p->cursor = p->next[evicted];
    unlink_content(p, evicted);
}

/* ----------------------------------------------------------------------------------- a request */

static uint32_t open_request(kvpi_mrc_policies *p, const kvpi_mrc_request *request)
{
    const uint32_t *contents = p->refs->contents + request->first;
    uint32_t n_hits = 0;
    while (n_hits < request->n_prompt && is_idle(p, contents[n_hits]))
        n_hits++;
    for (uint32_t i = 0; i < n_hits; i++)
        hold(p, contents[i]);
    /* What is cached but not hit is about to be computed, so its next use counts as unknown. */
    for (uint32_t i = n_hits; p->policy == KVPI_MRC_OPTIMUM && i < request->n_full; i++)
        if (is_idle(p, contents[i])) {
            unlink_content(p, contents[i]);
            append(p, (uint32_t)p->refs->n_requests, contents[i]);
        }
    for (uint32_t i = n_hits; i < request->n_opened; i++) {
        if (is_adaptive(p) && i < request->n_prompt)
            kvpi_mrc_adaptive_miss(p->adaptive, contents[i]);
        take(p);
    }
    return n_hits;
}

static void compute(kvpi_mrc_policies *p, const kvpi_mrc_request *request, uint32_t n_hits)
{
    const uint32_t *contents = p->refs->contents + request->first;
    for (uint32_t i = n_hits; i < request->n_blocks; i++) {
        if (i >= request->n_opened)
            take(p);
        if (i >= request->n_full)
            continue;
        if (is_idle(p, contents[i]))
            p->free_blocks++;
        hold(p, contents[i]);
    }
}

static void cache(kvpi_mrc_policies *p, const kvpi_mrc_request *request)
{
    const uint32_t *contents = p->refs->contents + request->first;
    const uint32_t *looked_up_next = p->looked_up_next + request->first;
    for (uint32_t i = request->n_full; i-- > 0;)
        if (p->list_of[contents[i]] == NONE)
            append(p, p->policy == KVPI_MRC_FIFO ? 0 : looked_up_next[i], contents[i]);
    p->cursor = p->lists[0].head;
}

static void cache_adaptive(kvpi_mrc_policies *p, const kvpi_mrc_request *request)
{
    const uint32_t *contents = p->refs->contents + request->first;
    for (uint32_t i = request->n_full; i-- > 0;) {
        kvpi_mrc_adaptive_close(p->adaptive, contents[i], p->list_of[contents[i]] != NONE);
        p->list_of[contents[i]] = 0;
    }
}

static void close_request(kvpi_mrc_policies *p, const kvpi_mrc_request *request)
{
    p->free_blocks += request->n_blocks - request->n_full;
    if (is_adaptive(p))
        cache_adaptive(p, request);
    else
        cache(p, request);
    p->request = 0; /* nothing is held */
    for (; p->n_borrowed > 0; p->n_borrowed--)
        take(p);
}

static uint64_t tokens_of_hits(const kvpi_mrc_policies *p, const kvpi_mrc_request *request,
                               uint32_t n_hits)
{
    uint64_t tokens = n_hits * p->refs->block_tokens;
    if (n_hits > 0 && n_hits == request->n_prompt)
        tokens -= p->refs->block_tokens - request->last_tokens;
    return tokens;
}

/* -------------------------------------------------------------------------------------- public */

static void look_ahead(kvpi_mrc_policies *p)
{
    const kvpi_mrc_refs *refs = p->refs;
    uint32_t *seen = p->held_by; /* for this once: the next request that looks it up */
    for (uint32_t c = 0; c < refs->n_contents; c++)
        seen[c] = (uint32_t)refs->n_requests;
    for (size_t r = refs->n_requests; r-- > 0;) {
        const kvpi_mrc_request *request = &refs->requests[r];
        for (uint32_t i = 0; i < request->n_full; i++) {
            uint32_t content = refs->contents[request->first + i];
            p->looked_up_next[request->first + i] = seen[content];
            seen[content] = i < request->n_prompt ? (uint32_t)r : (uint32_t)refs->n_requests;
        }
    }
}

int kvpi_mrc_policies_make(const kvpi_mrc_refs *refs, const char *command, bool adaptive,
                           kvpi_mrc_policies **out)
{
    size_t n = (size_t)refs->n_contents + 1;
    kvpi_mrc_policies *p = calloc(1, sizeof *p);
    bool fine = p != NULL;
    if (fine) {
        p->refs = refs;
        p->looked_up_next = malloc(((size_t)refs->n_refs + 1) * sizeof *p->looked_up_next);
        p->next = malloc(n * sizeof *p->next);
        p->prev = malloc(n * sizeof *p->prev);
        p->list_of = malloc(n * sizeof *p->list_of);
        p->held_by = malloc(n * sizeof *p->held_by);
        p->lists = malloc((refs->n_requests + 1) * sizeof *p->lists);
        fine = p->looked_up_next != NULL && p->next != NULL && p->prev != NULL &&
               p->list_of != NULL && p->held_by != NULL && p->lists != NULL &&
               make_bits(&p->filled, refs->n_requests + 1) == 0 &&
               (!adaptive || (p->adaptive = kvpi_mrc_adaptive_make(refs)) != NULL);
    }
    if (!fine) {
        kvpi_mrc_policies_free(p);
        return kvpi_tool_fail(command, "out of memory for policies beside LRU (--only-lru)");
    }
    look_ahead(p);
    *out = p;
    return TOOL_OK;
}

void kvpi_mrc_policies_free(kvpi_mrc_policies *p)
{
    if (p == NULL)
        return;
    for (int level = 0; level < p->filled.n_levels; level++)
        free(p->filled.words[level]);
    kvpi_mrc_adaptive_free(p->adaptive);
    free(p->looked_up_next);
    free(p->next);
    free(p->prev);
    free(p->list_of);
    free(p->held_by);
    free(p->lists);
    free(p);
}

static void begin(kvpi_mrc_policies *p, kvpi_mrc_policy policy, uint64_t blocks)
{
    double sampled = (double)blocks * p->refs->rate;
    size_t n_contents = p->refs->n_contents;
    p->policy = policy;
    p->n_borrowed = 0;
    p->free_blocks = sampled < 1 ? 1 : (uint64_t)(sampled + 0.5);
    p->cursor = NONE;
    if (is_adaptive(p))
        kvpi_mrc_adaptive_begin(p->adaptive, policy == KVPI_MRC_ARC, p->free_blocks);
    memset(p->list_of, 0xff, n_contents * sizeof *p->list_of);
    memset(p->held_by, 0, n_contents * sizeof *p->held_by);
    memset(p->lists, 0xff, (p->refs->n_requests + 1) * sizeof *p->lists);
    for (int level = 0; level < p->filled.n_levels; level++)
        memset(p->filled.words[level], 0, p->filled.n_words[level] * sizeof(uint64_t));
}

double kvpi_mrc_policies_run(kvpi_mrc_policies *p, kvpi_mrc_policy policy, uint64_t blocks)
{
    const kvpi_mrc_refs *refs = p->refs;
    uint64_t hit_tokens = 0;
    uint64_t sampled_tokens = 0;
    begin(p, policy, blocks);
    for (size_t r = 0; r < refs->n_requests; r++) {
        const kvpi_mrc_request *request = &refs->requests[r];
        p->request = (uint32_t)r + 1;
        uint32_t n_hits = open_request(p, request);
        compute(p, request, n_hits);
        close_request(p, request);
        hit_tokens += tokens_of_hits(p, request, n_hits);
        sampled_tokens += tokens_of_hits(p, request, request->n_prompt);
    }
    if (refs->rate == 1)
        return (double)hit_tokens;
    /* As in lru.c: what the sample lacks are hits. */
    double expected = (double)refs->looked_up_tokens * refs->rate;
    double hit = (double)hit_tokens + expected - (double)sampled_tokens;
    return hit > 0 ? hit / refs->rate : 0;
}
