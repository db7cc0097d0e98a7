/* match_groups: which prefix of a path every layer group has what it keeps of; windows.h.
 *
 * The path is there: nodes of the prompt's units, as far as they were found. One pass over them
 * writes every group's entries into its row, and judges each prefix on the way, by what it knows of
 * each group: where the run of entries that are there, and reaches up to here, begins; whether the
 * sinks are there; how many of those it keeps are on the host; and, inside an entry, which block
 * has all of its units up to here.
 *
 *   entries    a b . d e f        for the prefix of 6, a window that keeps 3 entries has what it
 *              0 1 2 3 4 5        needs, full attention has not: it ends at 2
 *
 * Then the rows are cut to the prefix, what is not kept becomes null, and the rest is counted, and
 * held if the walk is for an open. What the prefix has of its last entry, when it ends inside one,
 * is copied: each group names its source. A window keeps that entry always, as the next query is in
 * it or at its end; and all leading units are copied, because a block that has a unit has all units
 * of its entry before it.
 */
#include "core/seq/match_groups.h"
#include "core/cache/state.h"
#include "core/cache/states.h"

#include <string.h>

/* What is known of one group while the prefixes are judged. */
struct judged {
    struct kvpi_window window;
    uint32_t block_tokens; /* S of the group */
    int32_t *row;
    uint32_t sinks;       /* entries */
    uint32_t run;         /* entries [run, here) are there */
    uint32_t sinks_there; /* entries [0, sinks_there) of the sinks are there */
    uint32_t begin;       /* the first entry kept behind the sinks */
    uint32_t sinks_host;  /* of the sinks, those on the host */
    uint32_t host;        /* of entries [begin, here), those on the host */
    int32_t last;         /* has the units of the entry that was begun, negative on the host; 0: a
                             unit is nowhere */
};

/* Prefixes that may be hit, or could be if the plan had room. */
struct chosen {
    uint32_t best;    /* units of the longest that may be */
    uint32_t no_room; /* of the longest that has too much on the host */
};

struct group_judge {
    uint32_t n_groups;
    uint32_t n_path;      /* units */
    uint32_t boundary;    /* the last one of a block before the last token: tokens */
    uint32_t valid;       /* of the longest prefix that is there */
    uint32_t lacking;     /* the group that ends it */
    struct chosen chosen; /* of all prefixes, */
    struct chosen before; /* and of those up to the boundary */
    int whole;            /* only prefixes of whole blocks may be hit */
    int full;             /* all tokens of the prompt are there, and must not be hit */
    struct judged groups[KVP_GROUPS_MAX];
};

/* The row entry for a node's unit: a block that has it, negative on the host; 0: none. */
static int32_t unit_entry(const kvp_cache *cache, const struct kvpi_match *match, uint32_t group,
                          uint32_t node)
{
    const struct kvpi_place *device =
        kvpi_node_at(&cache->prefix, node, KVPI_WHERE(KVP_DEVICE, group));
    if (device->block != KVP_NULL_BLOCK || (match->prompt->flags & KVP_OPEN_DEVICE_ONLY)) {
        return (int32_t)device->block;
    }
    return -(int32_t)kvpi_node_at(&cache->prefix, node, KVPI_WHERE(KVP_HOST, group))->block;
}

/* The position of the next query after n tokens: of the last token at most. */
static uint32_t query_after(const struct kvpi_match *match, uint32_t n)
{
    const uint32_t n_tokens = match->prompt->n_tokens;
    return kvpi_min_u32(n, n_tokens - (n_tokens > 0));
}

static void begin_group(const kvp_cache *cache, const struct kvpi_match *match, uint32_t group,
                        struct judged *g)
{
    *g = (struct judged){.window = kvpi_window_of(cache->config.groups[group]),
                         .block_tokens = kvpi_block_tokens(cache, group)};
    g->row = kvpi_group_row(&cache->table, group, match->place);
    g->sinks = kvpi_row_length(cache, group, g->window.sink);
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

/* Unit u, of entry i, is looked at. */
static void see_unit(const kvp_cache *cache, const struct kvpi_match *match, uint32_t u, uint32_t i,
                     struct group_judge *judge)
{
    const uint32_t units_per_block = kvpi_entry_units(cache);
    const uint32_t node = kvpi_row_nodes(&cache->table, match->place)[u];
    const int begins = u == i * units_per_block;
    const int ends = u + 1 == (i + 1) * units_per_block;
    for (uint32_t k = 0; k < judge->n_groups; k++) {
        struct judged *g = &judge->groups[k];
        g->last = begins || g->last != 0 ? unit_entry(cache, match, k, node) : 0;
        if (ends) {
            see_entry(g, i, g->last);
        }
    }
}

/* Has the group what it keeps of the prefix of n entries, and the begin of the next one if
 * `inside`? */
static int has_prefix(struct judged *g, uint32_t n, int inside, uint32_t q)
{
    const uint32_t begin =
        kvpi_max_u32(kvpi_window_begin(&g->window, q, g->block_tokens), g->sinks);
    for (; g->begin < begin && g->begin < n; g->begin++) {
        g->host -= g->row[g->begin] < 0;
    }
    return g->sinks_there == kvpi_min_u32(g->sinks, n) && (g->run <= begin || begin >= n) &&
           (!inside || g->last != 0);
}

/* Is there recurrent state, and none after the prefix of n units? */
static int lacks_checkpoint(const kvp_cache *cache, const struct kvpi_match *match, uint32_t n)
{
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, match->place);
    return kvpi_has_states(cache) && kvpi_checkpoint_there(cache, nodes[n - 1]) == 0;
}

/* The first group that lacks something for the prefix of n units; n_groups: the one of state, and
 * one more: none does. Also what must be copied for it from the host. */
static uint32_t lacking_group(const kvp_cache *cache, const struct kvpi_match *match, uint32_t n,
                              struct group_judge *judge, uint64_t *out_host)
{
    const uint32_t units_per_block = kvpi_entry_units(cache);
    const uint32_t q = query_after(match, n * cache->config.unit_tokens);
    const int inside = n % units_per_block != 0;
    uint32_t lacking = lacks_checkpoint(cache, match, n) ? judge->n_groups : judge->n_groups + 1;
    *out_host = 0;
    if (lacking == judge->n_groups && n != judge->valid + 1) {
        return lacking; /* it is none of those that are asked for */
    }
    for (uint32_t k = judge->n_groups; k > 0; k--) {
        struct judged *g = &judge->groups[k - 1];
        if (!has_prefix(g, n / units_per_block, inside, q)) {
            lacking = k - 1;
        }
        *out_host += g->sinks_host + g->host;
    }
    return lacking;
}

/* Has the plan room, ever, for what a prefix needs copied? */
static int fits_plan(const kvp_cache *cache, uint64_t n_host, uint32_t n_inside)
{
    return n_host < cache->plan.capacity && n_host + n_inside <= cache->plan.capacity;
}

/* Judge the prefix of n units. */
static void judge_prefix(const kvp_cache *cache, const struct kvpi_match *match, uint32_t n,
                         struct group_judge *judge)
{
    const uint32_t n_tokens = match->prompt->n_tokens;
    const uint32_t inside = n % kvpi_entry_units(cache) != 0;
    uint64_t n_host = 0;
    const uint32_t lacking = lacking_group(cache, match, n, judge, &n_host);
    if (lacking <= judge->n_groups) {
        judge->lacking = judge->valid + 1 == n ? lacking : judge->lacking;
        return;
    }
    judge->valid = n;
    if (cache->config.full_hit == KVP_FULL_HIT_RECOMPUTE &&
        n * cache->config.unit_tokens == n_tokens) {
        judge->full = 1;
        judge->chosen = judge->before;
    } else if (!fits_plan(cache, n_host, inside * judge->n_groups)) {
        judge->chosen.no_room = n;
    } else if (!judge->whole || !inside) {
        judge->chosen.best = n;
    }
    if (n * cache->config.unit_tokens <= judge->boundary) {
        judge->before = judge->chosen;
    }
}

/* Cut the rows to the prefix; what is not kept of it becomes null, and what it has of its last
 * entry is a source. If the rest is received, so does what is not kept when it is there. */
static void cut_rows(const kvp_cache *cache, struct kvpi_match *match,
                     const struct group_judge *judge)
{
    const int receives = (match->prompt->flags & KVP_OPEN_RECEIVE) != 0;
    const int inside = match->n_hits % kvpi_entry_units(cache) != 0;
    const uint32_t q = query_after(match, receives ? match->prompt->n_tokens
                                                   : match->n_hits * cache->config.unit_tokens);
    for (uint32_t k = 0; k < judge->n_groups; k++) {
        const struct judged *g = &judge->groups[k];
        const uint32_t begin = kvpi_window_begin(&g->window, q, g->block_tokens);
        const uint32_t from = kvpi_max_u32(g->sinks, match->n_shared);
        match->n_absent += receives && begin > from ? begin - from : 0;
        for (uint32_t i = g->sinks; i < begin && i < match->n_shared; i++) {
            g->row[i] = KVP_NULL_BLOCK;
        }
        if (inside && (match->n_shared >= begin || match->n_shared < g->sinks)) {
            const uint32_t node = kvpi_row_nodes(&cache->table, match->place)[match->n_hits - 1];
            match->sources[k] = unit_entry(cache, match, k, node);
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

/* Judge the first n_hits units, and cut the match to the prefix that is chosen. */
static void choose_prefix(kvp_cache *cache, struct kvpi_match *match, struct group_judge *judge)
{
    const uint32_t units_per_block = kvpi_entry_units(cache);
    KVPI_ASSERT(units_per_block > 0);
    judge->n_groups = cache->config.n_groups;
    judge->n_path = match->n_hits;
    judge->boundary = query_after(match, match->prompt->n_tokens) / kvpi_entry_tokens(cache) *
                      kvpi_entry_tokens(cache);
    for (uint32_t k = 0; k < judge->n_groups; k++) {
        begin_group(cache, match, k, &judge->groups[k]);
    }
    for (uint32_t i = 0, u = 0; u < judge->n_path; i++) {
        for (uint32_t end = kvpi_min_u32(judge->n_path, u + units_per_block); u < end; u++) {
            see_unit(cache, match, u, i, judge);
            judge_prefix(cache, match, u + 1, judge);
        }
    }
    match->n_hits = judge->chosen.best;
    match->n_shared = match->n_hits / units_per_block;
    match->n_absent = 0;
    memset(match->sources, 0, sizeof(match->sources));
    match->state = 0;
    if (kvpi_has_states(cache) && match->n_hits > 0) {
        const uint32_t *nodes = kvpi_row_nodes(&cache->table, match->place);
        match->state = kvpi_checkpoint_there(cache, nodes[match->n_hits - 1]);
    }
    cut_rows(cache, match, judge);
    see_hits(cache, match);
}

void kvpi_match_groups(kvp_cache *cache, struct kvpi_match *match)
{
    struct group_judge judge = {0};
    match->n_blocks =
        kvpi_rows_length(cache, match->prompt->n_tokens + match->prompt->reserve_tokens);
    choose_prefix(cache, match, &judge);
    if (judge.chosen.no_room > judge.chosen.best) {
        match->stop = KVP_STOP_NO_ROOM;
    } else if (judge.full) {
        match->stop = KVP_STOP_FULL_HIT;
    } else if (judge.chosen.best < judge.n_path) {
        match->stop = KVP_STOP_NO_KV;
        match->stop_group = judge.lacking;
    }
}

void kvpi_match_groups_whole(kvp_cache *cache, struct kvpi_match *match)
{
    struct group_judge judge = {.whole = 1};
    if (match->hold) {
        kvpi_match_groups_let_go(cache, match);
    }
    match->n_kept = match->n_unheld = match->n_idle = match->n_host = match->n_host_entries = 0;
    match->n_hits = match->n_shared * kvpi_entry_units(cache);
    choose_prefix(cache, match, &judge);
    match->stop = KVP_STOP_NO_ROOM;
    match->stop_group = 0;
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
