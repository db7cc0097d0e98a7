/* match_groups: which prefix of a path every layer group has what it keeps of; windows.h.
 *
 * The path is there: nodes of the prompt's units, as far as they were found. One pass over its
 * whole blocks writes every group's entries into its row, and judges each prefix on the way, by
 * what it knows of each group: where the run of entries that are there, and reaches up to here,
 * begins; whether the sinks are there; how many of those it keeps are on the host.
 *
 *   entries    a b . d e f        for the prefix of 6, a window that keeps 3 entries has what it
 *              0 1 2 3 4 5        needs, full attention has not: it ends at 2
 *
 * Then the rows are cut to the prefix, what is not kept becomes null, and the rest is counted, and
 * held if the walk is for an open.
 */
#include "core/seq/match.h"
#include "core/seq/match_groups.h"
#include "core/cache/state.h"
#include "core/cache/states.h"

/* What is known of one group while the prefixes are judged. */
struct judged {
    struct kvpi_window window;
    int32_t *row;
    uint32_t sinks;       /* entries */
    uint32_t run;         /* entries [run, here) are there */
    uint32_t sinks_there; /* entries [0, sinks_there) of the sinks are there */
    uint32_t begin;       /* the first entry kept behind the sinks */
    uint32_t sinks_host;  /* of the sinks, those on the host */
    uint32_t host;        /* of entries [begin, here), those on the host */
};

struct group_judge {
    uint32_t n_groups;
    uint32_t n_path;  /* whole blocks */
    uint32_t best;    /* entries of the longest prefix that may be hit */
    uint32_t valid;   /* of the longest that is there */
    uint32_t lacking; /* the group that ends it */
    uint32_t no_room; /* of the longest that is there and has too much on the host */
    int full;         /* all tokens of the prompt are there */
    struct judged groups[KVP_GROUPS_MAX];
};

/* Entry i of a group: the block that has all units of it, negative on the host; 0: none. */
static int32_t entry_of(const kvp_cache *cache, const struct kvpi_match *match, uint32_t group,
                        uint32_t i)
{
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, match->place);
    const uint32_t units_per_block = kvpi_units_per_block(cache);
    const int host = !(match->prompt->flags & KVP_OPEN_DEVICE_ONLY);
    int32_t entry = KVP_NULL_BLOCK;
    for (uint32_t u = i * units_per_block; u < (i + 1) * units_per_block; u++) {
        const struct kvpi_place *device =
            kvpi_node_at(&cache->prefix, nodes[u], KVPI_WHERE(KVP_DEVICE, group));
        const struct kvpi_place *on_host =
            kvpi_node_at(&cache->prefix, nodes[u], KVPI_WHERE(KVP_HOST, group));
        entry = device->block != KVP_NULL_BLOCK ? (int32_t)device->block
                : host                          ? -(int32_t)on_host->block
                                                : KVP_NULL_BLOCK;
        if (entry == KVP_NULL_BLOCK) {
            return entry;
        }
    }
    return entry;
}

/* The position of the next query after a prefix of n entries: of the last token at most. */
static uint32_t query_after(const kvp_cache *cache, const struct kvpi_match *match, uint32_t n)
{
    const uint32_t n_tokens = match->prompt->n_tokens;
    return kvpi_min_u32(n * cache->config.block_tokens, n_tokens - (n_tokens > 0));
}

static void begin_group(const kvp_cache *cache, const struct kvpi_match *match, uint32_t group,
                        struct judged *g)
{
    *g = (struct judged){.window = kvpi_window_of(cache->config.groups[group])};
    g->row = kvpi_group_row(&cache->table, group, match->place);
    g->sinks = kvpi_ceil_div(g->window.sink, cache->config.block_tokens);
    g->begin = g->sinks;
}

/* Entry i is looked at. */
static void see_entry(struct judged *g, uint32_t i, int32_t entry)
{
    g->row[i] = entry;
    g->run = entry == KVP_NULL_BLOCK ? i + 1 : g->run;
    if (i < g->sinks) {
        g->sinks_there += g->sinks_there == i && entry != KVP_NULL_BLOCK;
        g->sinks_host += entry < 0;
    } else {
        g->host += entry < 0;
    }
}

/* Has the group what it keeps of the prefix of n entries? */
static int has_prefix(const kvp_cache *cache, struct judged *g, uint32_t n, uint32_t q)
{
    const uint32_t begin =
        kvpi_max_u32(kvpi_window_begin(&g->window, q, cache->config.block_tokens), g->sinks);
    for (; g->begin < begin && g->begin < n; g->begin++) {
        g->host -= g->row[g->begin] < 0;
    }
    return g->sinks_there == kvpi_min_u32(g->sinks, n) && (g->run <= begin || begin >= n);
}

/* Is there recurrent state, and none after the prefix of n entries? */
static int lacks_checkpoint(const kvp_cache *cache, const struct kvpi_match *match, uint32_t n)
{
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, match->place);
    return kvpi_has_states(cache) &&
           kvpi_checkpoint_of(cache, nodes[n * kvpi_units_per_block(cache) - 1]) == 0;
}

/* Judge the prefix of n entries. */
static void judge_prefix(const kvp_cache *cache, const struct kvpi_match *match, uint32_t n,
                         struct group_judge *judge)
{
    const uint32_t n_tokens = match->prompt->n_tokens;
    uint64_t n_host = 0;
    const uint32_t none = judge->n_groups + 1;
    uint32_t lacking = lacks_checkpoint(cache, match, n) ? judge->n_groups : none;
    for (uint32_t k = judge->n_groups; k > 0; k--) {
        struct judged *g = &judge->groups[k - 1];
        if (!has_prefix(cache, g, n, query_after(cache, match, n))) {
            lacking = k - 1;
        }
        n_host += g->sinks_host + g->host;
    }
    if (lacking != none) {
        judge->lacking = judge->valid + 1 == n ? lacking : judge->lacking;
        return;
    }
    judge->valid = n;
    if (cache->config.full_hit == KVP_FULL_HIT_RECOMPUTE &&
        n * cache->config.block_tokens == n_tokens) {
        judge->full = 1;
    } else if (n_host >= cache->plan.capacity) {
        judge->no_room = n;
    } else {
        judge->best = n;
    }
}

/* Cut the rows to the prefix; what is not kept of it becomes null. If the rest is received, so does
 * what is not kept when it is there. */
static void cut_rows(const kvp_cache *cache, struct kvpi_match *match,
                     const struct group_judge *judge)
{
    const int receives = (match->prompt->flags & KVP_OPEN_RECEIVE) != 0;
    const uint32_t q = query_after(cache, match, receives ? match->n_blocks : judge->best);
    for (uint32_t k = 0; k < judge->n_groups; k++) {
        const struct judged *g = &judge->groups[k];
        const uint32_t begin = kvpi_window_begin(&g->window, q, cache->config.block_tokens);
        const uint32_t from = kvpi_max_u32(g->sinks, judge->best);
        match->n_absent += receives && begin > from ? begin - from : 0;
        for (uint32_t i = g->sinks; i < begin && i < judge->best; i++) {
            g->row[i] = KVP_NULL_BLOCK;
        }
    }
}

/* Count a hit entry, and hold its block if the walk is for an open. */
static void see_hit(kvp_cache *cache, struct kvpi_match *match, int32_t entry)
{
    struct kvpi_pool *pool = entry < 0 ? &cache->host : &cache->pool;
    const uint32_t block = (uint32_t)(entry < 0 ? -entry : entry);
    match->n_kept++;
    if (entry < 0) {
        match->n_host++;
    } else {
        match->n_unheld += (uint32_t)kvpi_block_is_cached(kvpi_block(pool, block));
        match->n_idle += kvpi_pool_refs(pool, block) == 0;
    }
    if (match->hold) {
        kvpi_pool_hold(pool, block);
    }
}

static void see_hits(kvp_cache *cache, struct kvpi_match *match)
{
    for (uint32_t i = 0; i < match->n_shared; i++) {
        const uint32_t n_host = match->n_host;
        for (uint32_t g = 0; g < cache->config.n_groups; g++) {
            const int32_t entry = kvpi_group_row(&cache->table, g, match->place)[i];
            if (entry != KVP_NULL_BLOCK) {
                see_hit(cache, match, entry);
            }
        }
        match->n_host_entries += match->n_host > n_host;
    }
}

void kvpi_match_groups(kvp_cache *cache, struct kvpi_match *match)
{
    struct group_judge judge = {.n_groups = cache->config.n_groups,
                                .n_path = match->n_hits / kvpi_units_per_block(cache)};
    for (uint32_t k = 0; k < judge.n_groups; k++) {
        begin_group(cache, match, k, &judge.groups[k]);
    }
    for (uint32_t i = 0; i < judge.n_path; i++) {
        for (uint32_t k = 0; k < judge.n_groups; k++) {
            see_entry(&judge.groups[k], i, entry_of(cache, match, k, i));
        }
        judge_prefix(cache, match, i + 1, &judge);
    }
    match->n_shared = judge.best;
    if (kvpi_has_states(cache) && judge.best > 0) {
        const uint32_t *nodes = kvpi_row_nodes(&cache->table, match->place);
        match->state =
            kvpi_checkpoint_of(cache, nodes[judge.best * kvpi_units_per_block(cache) - 1]);
    }
    match->n_hits = judge.best * kvpi_units_per_block(cache);
    match->n_blocks = kvpi_ceil_div(match->prompt->n_tokens + match->prompt->reserve_tokens,
                                    cache->config.block_tokens);
    cut_rows(cache, match, &judge);
    if (judge.no_room > judge.best) {
        match->stop = KVP_STOP_NO_ROOM;
    } else if (judge.full) {
        match->stop = KVP_STOP_FULL_HIT;
    } else if (judge.best < judge.n_path) {
        match->stop = KVP_STOP_NO_KV;
        match->stop_group = judge.lacking;
    }
    see_hits(cache, match);
}

void kvpi_match_groups_let_go(kvp_cache *cache, const struct kvpi_match *match)
{
    const uint32_t n_groups = cache->config.n_groups;
    for (uint32_t k = match->n_shared * n_groups; k > 0; k--) {
        const int32_t entry =
            kvpi_group_row(&cache->table, (k - 1) % n_groups, match->place)[(k - 1) / n_groups];
        if (entry < 0) {
            kvpi_pool_unhold(&cache->host, (uint32_t)-entry);
        } else if (entry > 0) {
            kvpi_pool_unhold(&cache->pool, (uint32_t)entry);
        }
    }
}
