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
 * Each group has entries of its own size: a prefix may end inside an entry of some groups, and at
 * the end of one of others.
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
    uint32_t units_per_block;
    int32_t *row;
    uint32_t entry;       /* entries [0, entry) are looked at */
    uint32_t filled;      /* units of the next one that are: the prefix ends inside it */
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
    uint32_t boundary;    /* the last one of a block, of any group, before the last token: tokens */
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
    *g = (struct judged){.window = kvpi_window_of_group(&cache->config.groups[group]),
                         .block_tokens = kvpi_block_tokens(cache, group),
                         .units_per_block = kvpi_units_per_block(cache, group)};
    g->row = kvpi_group_row(&cache->table, group, match->place);
    g->sinks = kvpi_row_length(cache, group, g->window.sink);
    g->begin = g->sinks;
}

/* The next entry is looked at. */
static void see_entry(struct judged *g, int32_t entry)
{
    const uint32_t i = g->entry++;
    g->filled = 0;
    g->row[i] = entry;
    g->run = entry == KVP_NULL_BLOCK ? i + 1 : g->run;
    if (i < g->sinks) {
        g->sinks_there += g->sinks_there == i && entry != KVP_NULL_BLOCK;
        g->sinks_host += entry < 0;
    } else {
        g->host += entry < 0;
    }
}

/* Unit u is looked at. */
static void see_unit(const kvp_cache *cache, const struct kvpi_match *match, uint32_t u,
                     struct group_judge *judge)
{
    const uint32_t node = kvpi_row_nodes(&cache->table, match->place)[u];
    for (uint32_t k = 0; k < judge->n_groups; k++) {
        struct judged *g = &judge->groups[k];
        g->last = g->filled == 0 || g->last != 0 ? unit_entry(cache, match, k, node) : 0;
        if (++g->filled == g->units_per_block) {
            see_entry(g, g->last);
        }
    }
}

/* Has the group what it keeps of the entries that were looked at, and the begin of the next one, if
 * the prefix ends inside it? */
static int has_prefix(struct judged *g, uint32_t q)
{
    const uint32_t n = g->entry;
    const uint32_t begin =
        kvpi_max_u32(kvpi_window_begin(&g->window, q, g->block_tokens), g->sinks);
    for (; g->begin < begin && g->begin < n; g->begin++) {
        g->host -= g->row[g->begin] < 0;
    }
    return g->sinks_there == kvpi_min_u32(g->sinks, n) && (g->run <= begin || begin >= n) &&
           (g->filled == 0 || g->last != 0);
}

/* Is there recurrent state, and none after the prefix of n units? */
static int lacks_checkpoint(const kvp_cache *cache, const struct kvpi_match *match, uint32_t n)
{
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, match->place);
    return kvpi_has_states(cache) && kvpi_checkpoint_there(cache, nodes[n - 1]) == 0;
}

/* The first group that lacks something for the prefix of n units, before others one that keeps all
 * tokens; n_groups: the one of state, and one more: none does. Also what must be copied for it from
 * the host. */
static uint32_t lacking_group(const kvp_cache *cache, const struct kvpi_match *match, uint32_t n,
                              struct group_judge *judge, uint64_t *out_host)
{
    const uint32_t q = query_after(match, n * cache->config.unit_tokens);
    uint32_t lacking = lacks_checkpoint(cache, match, n) ? judge->n_groups : judge->n_groups + 1;
    *out_host = 0;
    if (lacking == judge->n_groups && n != judge->valid + 1) {
        return lacking; /* it is none of those that are asked for */
    }
    int lacks_all = 0; /* a group that keeps all tokens lacks some */
    for (uint32_t k = judge->n_groups; k > 0; k--) {
        struct judged *g = &judge->groups[k - 1];
        const int keeps_all = cache->config.groups[k - 1].recent_tokens == 0;
        if (!has_prefix(g, q) && (keeps_all || !lacks_all)) {
            lacking = k - 1;
            lacks_all = keeps_all;
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

/* The groups inside an entry of which the prefix ends. */
static uint32_t count_inside(const struct group_judge *judge)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < judge->n_groups; k++) {
        n += judge->groups[k].filled != 0;
    }
    return n;
}

/* Judge the prefix of n units. */
static void judge_prefix(const kvp_cache *cache, const struct kvpi_match *match, uint32_t n,
                         struct group_judge *judge)
{
    const uint32_t n_tokens = match->prompt->n_tokens;
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
    } else if (!fits_plan(cache, n_host, count_inside(judge))) {
        judge->chosen.no_room = n;
    } else if (!judge->whole || count_inside(judge) == 0) {
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
    const uint32_t q = query_after(match, receives ? match->prompt->n_tokens
                                                   : match->n_hits * cache->config.unit_tokens);
    for (uint32_t k = 0; k < judge->n_groups; k++) {
        const struct judged *g = &judge->groups[k];
        const uint32_t begin = kvpi_window_begin(&g->window, q, g->block_tokens);
        const uint32_t n_shared = kvpi_match_shared(cache, match, k);
        const uint32_t from = kvpi_max_u32(g->sinks, n_shared);
        match->n_absent += receives && begin > from ? begin - from : 0;
        for (uint32_t i = g->sinks; i < begin && i < n_shared; i++) {
            g->row[i] = KVP_NULL_BLOCK;
        }
        if (kvpi_match_inside(cache, match, k) && (n_shared >= begin || n_shared < g->sinks)) {
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

/* What the hit has in an entry of a group: of its last one, which is begun, the source. */
static int32_t hit_entry(const kvp_cache *cache, const struct kvpi_match *match, uint32_t group,
                         uint32_t i)
{
    return i < kvpi_match_shared(cache, match, group)
               ? kvpi_group_row(&cache->table, group, match->place)[i]
               : match->sources[group];
}

/* Tokens that any group copies from the host. */
static uint32_t count_host_tokens(const kvp_cache *cache, const struct kvpi_match *match)
{
    const uint32_t end = match->n_hits * cache->config.unit_tokens;
    struct kvpi_entries entries = kvpi_entries_from(cache, 0);
    uint32_t n = 0;
    uint32_t counted = 0; /* up to this token */
    for (; entries.t < end; kvpi_entries_next(cache, &entries)) {
        for (uint32_t g = 0; g < cache->config.n_groups; g++) {
            const uint32_t until = kvpi_min_u32(end, entries.t + kvpi_block_tokens(cache, g));
            if (entries.at[g] == entries.t && until > counted &&
                hit_entry(cache, match, g, entries.entry[g]) < 0) {
                n += until - kvpi_max_u32(counted, entries.t);
                counted = until;
            }
        }
    }
    return n;
}

static void see_hits(kvp_cache *cache, struct kvpi_match *match)
{
    int on_host = 0;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const int32_t *row = kvpi_group_row(&cache->table, g, match->place);
        const uint32_t n = kvpi_match_shared(cache, match, g);
        for (uint32_t i = 0; i < n; i++) {
            if (row[i] != KVP_NULL_BLOCK) {
                see_hit(cache, match, row[i]);
            }
        }
        on_host |= match->sources[g] < 0;
    }
    match->host_tokens = on_host || match->n_host > 0 ? count_host_tokens(cache, match) : 0;
}

/* Judge the first n_hits units, and cut the match to the prefix that is chosen. */
static void choose_prefix(kvp_cache *cache, struct kvpi_match *match, struct group_judge *judge)
{
    const uint32_t q = query_after(match, match->prompt->n_tokens);
    judge->n_groups = cache->config.n_groups;
    judge->n_path = match->n_hits;
    for (uint32_t k = 0; k < judge->n_groups; k++) {
        begin_group(cache, match, k, &judge->groups[k]);
        judge->boundary = kvpi_max_u32(judge->boundary, q - q % judge->groups[k].block_tokens);
    }
    for (uint32_t u = 0; u < judge->n_path; u++) {
        see_unit(cache, match, u, judge);
        judge_prefix(cache, match, u + 1, judge);
    }
    match->n_hits = judge->chosen.best;
    match->n_shared = kvpi_match_shared(cache, match, 0);
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
    match->n_kept = match->n_unheld = match->n_idle = match->n_host = 0;
    choose_prefix(cache, match, &judge);
    match->stop = KVP_STOP_NO_ROOM;
    match->stop_group = 0;
}

void kvpi_match_groups_let_go(kvp_cache *cache, const struct kvpi_match *match)
{
    for (uint32_t g = cache->config.n_groups; g > 0; g--) {
        const int32_t *row = kvpi_group_row(&cache->table, g - 1, match->place);
        for (uint32_t i = kvpi_match_shared(cache, match, g - 1); i > 0; i--) {
            if (row[i - 1] < 0) {
                kvpi_pool_unhold(&cache->host, (uint32_t)-row[i - 1]);
            } else if (row[i - 1] > 0) {
                kvpi_pool_unhold(&cache->pool, (uint32_t)row[i - 1]);
            }
        }
    }
}
