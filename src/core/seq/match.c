/* match: how much of a prompt is cached, and what opening it would take.
 *
 * A walk from the namespace's root: unit u is hit when a node after the one before has its tokens
 * and keys, and a block has its KV. Only that comparison decides, in order. Its cost is memory
 * latency, so the nodes to compare are named and asked for AHEAD units before they are needed:
 *
 *   by the node AHEAD units back, whose `jump` is the node that the last prompt of this path had
 *   here; no hash is made and no index read; or, where that hint does not fit, and at the start,
 *   by the index, for the next AHEAD units at once: all hashes, then all slots, then all nodes.
 *
 *          compared           named
 *   root -- u-2 -- u-1 -- u .. .. .. u+AHEAD-1     u's comparison names u + AHEAD
 *
 * Everything is written to the row of a place that no sequence has: the one that is opened next, or
 * scratch. For an open, blocks are held on the way, while their memory is at hand; a refusal puts
 * them back in reverse order, which restores the queues exactly. Nothing else is observable.
 */
#include "core/cache/frame.h"
#include "core/seq/match.h"
#include "core/seq/match_groups.h"
#include "core/cache/spaces.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/cache/tokens.h"
#include "core/stages/hash_chain.h"

#include <stdlib.h>
#include <string.h>

#define AHEAD KVPI_NODE_JUMP

/* Bytes of a node that are asked for; of longer ones the processor fetches the rest by itself. */
#define NODE_AHEAD 512u

/* Where a walk puts what it finds, and how far it may go. */
struct walk {
    uint32_t *nodes; /* [limit] */
    int32_t *blocks;
    uint32_t limit; /* units */
    uint32_t units_per_block;
    int host;       /* hits on the host count */
    int nodes_only; /* where their KV is, each layer group will say */
};

static kvp_status check_prompt_values(const kvp_cache *cache, const kvp_prompt *prompt)
{
    for (uint32_t i = 0; i < prompt->n_uncached; i++) {
        if (prompt->uncached[i].begin >= prompt->uncached[i].end) {
            return KVP_E_ARG;
        }
    }
    if (prompt->retention >= KVP_RETENTION_CLASSES ||
        (prompt->flags & ~(uint32_t)KVPI_OPEN_FLAGS) != 0 ||
        !kvpi_keys_valid(prompt->keys, prompt->n_keys, 0, prompt->n_tokens) ||
        !kvpi_keys_fit(cache, prompt->keys, prompt->n_keys, 0, prompt->n_tokens, 0)) {
        return KVP_E_ARG;
    }
    return KVP_OK;
}

/* The hash of unit u of the prompt after `parent`. *cursor as in kvpi_keys_of_unit. */
static void hash_unit(const kvp_cache *cache, const kvp_prompt *prompt, uint32_t u,
                      const kvp_hash *parent, uint32_t *cursor, kvp_hash *out)
{
    const uint32_t U = cache->config.unit_tokens;
    struct kvpi_key keys[KVPI_UNIT_KEYS_MAX];
    uint32_t n_keys = 0;
    if (prompt->n_keys > 0) {
        n_keys = kvpi_keys_of_unit(prompt->keys, prompt->n_keys, u * U, U, keys, KVPI_UNIT_KEYS_MAX,
                                   cursor);
    }
    kvpi_hash_unit(parent, prompt->tokens + (size_t)u * U, U, keys, n_keys, out);
}

/* Hashes from outside: the first and the last must be what we would have made. */
static int hashes_verify(const kvp_cache *cache, const struct kvpi_match *match)
{
    const kvp_hash *given = match->prompt->hashes;
    const uint32_t last = match->n_units - 1;
    uint32_t cursor = 0;
    kvp_hash hash;
    hash_unit(cache, match->prompt, 0, &kvpi_node(&cache->prefix, match->root)->hash, &cursor,
              &hash);
    if (memcmp(&hash, &given[0], sizeof(hash)) != 0) {
        return 0;
    }
    if (last > 0) {
        hash_unit(cache, match->prompt, last, &given[last - 1], &cursor, &hash);
    }
    return memcmp(&hash, &given[last], sizeof(hash)) == 0;
}

/* Leading units that hold nothing uncacheable. */
static uint32_t count_public(const kvp_cache *cache, const kvp_prompt *prompt, uint32_t n_units)
{
    const uint32_t U = cache->config.unit_tokens;
    uint32_t first = prompt->n_tokens;
    if (!cache->config.prefix_cache) {
        return 0;
    }
    (void)kvpi_is_uncached(cache, prompt->tokens, prompt->n_tokens, &first);
    for (uint32_t i = 0; i < prompt->n_uncached; i++) {
        first = kvpi_min_u32(first, prompt->uncached[i].begin);
    }
    return kvpi_min_u32(n_units, first / U);
}

kvp_status kvpi_match_begin(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                            struct kvpi_match *match)
{
    const struct kvpi_space *space = kvpi_find_space(cache, ns);
    if (space == NULL) {
        return KVP_E_HANDLE;
    }
    memset(match, 0, sizeof(*match));
    match->prompt = prompt;
    match->root = space->root;
    match->n_units = prompt->n_tokens / cache->config.unit_tokens;
    if (check_prompt_values(cache, prompt) != KVP_OK ||
        (prompt->hashes != NULL && match->n_units > 0 && !hashes_verify(cache, match))) {
        return KVP_E_ARG;
    }
    if (prompt->n_tokens > cache->table.max_tokens ||
        prompt->reserve_tokens > cache->table.max_tokens - prompt->n_tokens) {
        return KVP_E_TOO_LONG;
    }
    match->n_public = count_public(cache, prompt, match->n_units);
    match->scratch = prompt->hashes == NULL ? kvpi_at(cache, cache->hashes_at) : NULL;
    match->hashes = prompt->hashes == NULL ? match->scratch : prompt->hashes;
    KVPI_ASSERT(match->hashes != NULL);
    return KVP_OK;
}

kvp_status kvpi_match_refuse(const kvp_prompt *prompt, kvp_status status)
{
    return status != KVP_E_HANDLE && kvpi_any_negative(prompt->tokens, prompt->n_tokens) ? KVP_E_ARG
                                                                                         : status;
}

kvp_status kvpi_match_prepare(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                              struct kvpi_match *match)
{
    return kvpi_match_refuse(prompt, kvpi_match_begin(cache, ns, prompt, match));
}

int kvpi_match_rest_is_valid(const kvp_cache *cache, const struct kvpi_match *match)
{
    const uint32_t hit = match->n_hits * cache->config.unit_tokens;
    return !kvpi_any_negative(match->prompt->tokens + hit, match->prompt->n_tokens - hit);
}

/* Hash units [begin, end) of a prompt after node `parent`, into scratch. */
static void hash_run(const kvp_cache *cache, const struct kvpi_match *match, uint32_t parent,
                     uint32_t begin, uint32_t end)
{
    const kvp_prompt *prompt = match->prompt;
    const kvp_hash *before = &kvpi_node(&cache->prefix, parent)->hash;
    uint32_t cursor = 0;
    if (KVPI_CHAIN_16 && cache->config.unit_tokens == 16 && prompt->n_keys == 0) {
        struct kvpi_hash_chain chain = kvpi_chain_begin(before);
        for (uint32_t u = begin; u < end; u++) {
            kvpi_chain_16(&chain, prompt->tokens + (size_t)u * 16);
            kvpi_chain_store(&chain, &match->scratch[u]);
        }
        return;
    }
    for (uint32_t u = begin; u < end; u++) {
        hash_unit(cache, prompt, u, before, &cursor, &match->scratch[u]);
        before = &match->scratch[u];
    }
}

void kvpi_match_hash_rest(const kvp_cache *cache, struct kvpi_match *match)
{
    if (match->scratch != NULL && !match->hashed && match->n_hits < match->n_public) {
        const uint32_t *nodes = kvpi_row_nodes(&cache->table, match->place);
        hash_run(cache, match, match->n_hits == 0 ? match->root : nodes[match->n_hits - 1],
                 match->n_hits, match->n_public);
    }
    match->hashed = 1;
}

uint32_t kvpi_match_known(const kvp_cache *cache, struct kvpi_match *match)
{
    const kvp_prompt *prompt = match->prompt;
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, match->place);
    struct kvpi_key keys[KVPI_UNIT_KEYS_MAX];
    uint32_t node = match->n_hits == 0 ? match->root : nodes[match->n_hits - 1];
    uint32_t cursor = 0;
    uint64_t n_collisions = 0;
    uint32_t u = match->n_hits;
    kvpi_match_hash_rest(cache, match);
    for (; u < match->n_public; u++) {
        struct kvpi_unit unit = {prompt->tokens + (size_t)u * U, keys, 0};
        if (prompt->n_keys > 0) {
            unit.n_keys = kvpi_keys_of_unit(prompt->keys, prompt->n_keys, u * U, U, keys,
                                            KVPI_UNIT_KEYS_MAX, &cursor);
        }
        node = kvpi_prefix_look(&cache->prefix, node, &match->hashes[u], &unit, &n_collisions);
        if (node == KVPI_NO_NODE) {
            break;
        }
    }
    return u;
}

/* See a block on the host. 0: the plan would never have room for so many. */
static int see_host_block(kvp_cache *cache, uint32_t block, struct kvpi_match *match)
{
    if (match->n_host + 1 >= cache->plan.capacity) {
        return 0;
    }
    match->n_host++;
    if (match->hold) {
        kvpi_pool_hold(&cache->host, block);
    }
    return 1;
}

/* Look at the blocks of row entries [n_seen, end): count those that are cached on the device, and
 * those on the host; hold them all if the walk is for an open. */
static inline void see_blocks(kvp_cache *cache, const int32_t *blocks, uint32_t end,
                              struct kvpi_match *match)
{
    for (; match->n_seen < end; match->n_seen++) {
        if (match->hold && !kvpi_pool_is_watched(&cache->pool)) {
            match->n_seen = kvpi_pool_hold_run(&cache->pool, blocks, match->n_seen, end,
                                               &match->n_unheld, &match->n_idle);
            if (match->n_seen == end) {
                return;
            }
        }
        if (kvpi_unlikely(blocks[match->n_seen] < 0)) {
            if (!see_host_block(cache, (uint32_t)-blocks[match->n_seen], match)) {
                return;
            }
            continue;
        }
        const uint32_t block = (uint32_t)blocks[match->n_seen];
        match->n_unheld += (uint32_t)kvpi_block_is_cached(kvpi_block(&cache->pool, block));
        match->n_idle += kvpi_pool_refs(&cache->pool, block) == 0;
        if (match->hold) {
            kvpi_pool_hold(&cache->pool, block);
        }
    }
}

/* Undo see_blocks for entries from the last down to `end`. */
static void unsee_blocks(kvp_cache *cache, const int32_t *blocks, uint32_t end,
                         struct kvpi_match *match)
{
    for (; match->n_seen > end; match->n_seen--) {
        const int on_host = blocks[match->n_seen - 1] < 0;
        const uint32_t block = (uint32_t)abs(blocks[match->n_seen - 1]);
        struct kvpi_pool *pool = on_host ? &cache->host : &cache->pool;
        if (match->hold) {
            kvpi_pool_unhold(pool, block);
        }
        if (on_host) {
            match->n_host--;
        } else {
            match->n_unheld -= (uint32_t)kvpi_block_is_cached(kvpi_block(pool, block));
            match->n_idle -= kvpi_pool_refs(pool, block) == 0;
        }
    }
}

void kvpi_match_let_go(kvp_cache *cache, struct kvpi_match *match)
{
    if (cache->grouped) {
        kvpi_match_groups_let_go(cache, match);
        return;
    }
    unsee_blocks(cache, kvpi_row_blocks(&cache->table, match->place), 0, match);
}

/* Take unit u's node as matched: into the row, if a block has its KV, or whether or not. */
static inline uint32_t take_match(const kvp_cache *cache, const struct walk *walk, uint32_t u,
                                  uint32_t node)
{
    if (node == KVPI_NO_NODE) {
        return KVP_STOP_MISS;
    }
    walk->nodes[u] = node;
    if (kvpi_unlikely(walk->nodes_only)) {
        return KVP_STOP_END;
    }
    const struct kvpi_place *at = kvpi_node(&cache->prefix, node)->at;
    int32_t entry = (int32_t)at[KVP_DEVICE].block;
    if (kvpi_unlikely(entry == KVP_NULL_BLOCK)) {
        if (!walk->host || at[KVP_HOST].block == KVP_NULL_BLOCK) {
            return KVP_STOP_NO_KV;
        }
        entry = -(int32_t)at[KVP_HOST].block;
        kvpi_pool_prefetch(&cache->host, at[KVP_HOST].block);
    } else {
        kvpi_pool_prefetch(&cache->pool, at[KVP_DEVICE].block);
    }
    /* The last unit's block of each row entry stands: it has all units before it too. */
    walk->blocks[walk->units_per_block == 1 ? u : u / walk->units_per_block] = entry;
    return KVP_STOP_END;
}

/* The walk for a prompt with extra keys: one unit after the other. */
static void walk_keyed(kvp_cache *cache, struct kvpi_match *match, const struct walk *walk)
{
    const kvp_prompt *prompt = match->prompt;
    const uint32_t U = cache->config.unit_tokens;
    struct kvpi_key keys[KVPI_UNIT_KEYS_MAX];
    uint32_t cursor = 0;
    if (match->scratch != NULL) {
        hash_run(cache, match, match->root, 0, walk->limit);
    }
    for (uint32_t u = 0; u < walk->limit; u++) {
        const struct kvpi_unit unit = {prompt->tokens + (size_t)u * U, keys,
                                       kvpi_keys_of_unit(prompt->keys, prompt->n_keys, u * U, U,
                                                         keys, KVPI_UNIT_KEYS_MAX, &cursor)};
        const uint32_t parent = u == 0 ? match->root : walk->nodes[u - 1];
        const uint32_t node = kvpi_prefix_find(&cache->prefix, parent, &match->hashes[u], &unit);
        const uint32_t stop = take_match(cache, walk, u, node);
        if (stop != KVP_STOP_END) {
            match->stop = stop;
            return;
        }
        match->n_hits = u + 1;
    }
}

static inline void prefetch_node(const struct kvpi_prefix *prefix, uint32_t node)
{
    const char *n = (const char *)kvpi_node(prefix, node);
    const size_t bytes = prefix->node_bytes < NODE_AHEAD ? prefix->node_bytes : NODE_AHEAD;
    for (size_t at = 0; at < bytes; at += KVPI_CACHE_LINE) {
        kvpi_prefetch(n + at);
    }
}

/* The node that a look-up of this hash would compare first. */
static uint32_t candidate_of(const struct kvpi_prefix *prefix, const kvp_hash *hash)
{
    struct kvpi_tags_search search = kvpi_tags_search(&prefix->tags, kvpi_prefix_tag(prefix, hash));
    return kvpi_tags_next(&prefix->tags, &search);
}

/* Name the nodes of units [begin, end) by the index. */
static void name_by_index(const kvp_cache *cache, const struct kvpi_match *match, uint32_t parent,
                          uint32_t begin, uint32_t end, uint32_t *named)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    if (match->scratch != NULL) {
        hash_run(cache, match, parent, begin, end);
    }
    for (uint32_t u = begin; u < end; u++) {
        kvpi_prefix_prefetch_line(prefix, &match->hashes[u]);
    }
    for (uint32_t u = begin; u < end; u++) {
        named[u % AHEAD] = candidate_of(prefix, &match->hashes[u]);
        prefetch_node(prefix, named[u % AHEAD]);
    }
}

/* Hit units from match->n_hits on whose nodes jumps name, and whose block is on the device: almost
 * all of a long prompt. Blocks are looked at AHEAD units later, a batch at once: their memory is
 * there by then, and here still. */
static inline void follow_jumps(kvp_cache *cache, struct kvpi_match *match, const struct walk *walk,
                                uint32_t *named)
{
    const struct kvpi_prefix *prefix = &cache->prefix;
    const int32_t *tokens = match->prompt->tokens + (size_t)match->n_hits * 16;
    uint32_t parent = walk->nodes[match->n_hits - 1];
    uint32_t u = match->n_hits;
    for (; u < walk->limit; u++, tokens += 16) {
        const uint32_t index = named[u % AHEAD];
        const struct kvpi_node *node = kvpi_node(prefix, index);
        const uint32_t block = node->at[KVP_DEVICE].block;
        if (index == KVPI_NO_NODE || node->parent != parent || block == KVP_NULL_BLOCK ||
            (node->flags & KVPI_NODE_PUBLIC) == 0 || node->n_keys != 0 ||
            !kvpi_same_16_tokens(kvpi_node_tokens(node), tokens)) {
            break;
        }
        walk->nodes[u] = index;
        walk->blocks[u] = (int32_t)block;
        kvpi_prefetch(kvpi_block(&cache->pool, block));
        named[u % AHEAD] = node->jump;
        const struct kvpi_node *ahead = kvpi_node(prefix, node->jump);
        kvpi_prefetch(ahead);
        kvpi_prefetch(ahead + 1);
        parent = index;
        KVPI_NOTE(by_jump, 1);
        KVPI_NOTE(in_a_row, 1);
        if (u % AHEAD == 0) {
            see_blocks(cache, walk->blocks, u - AHEAD, match);
        }
    }
    match->n_hits = u;
}

/* The walk for a prompt without keys, see the top. */
static void walk_plain(kvp_cache *cache, struct kvpi_match *match, const struct walk *walk)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    const uint32_t U = cache->config.unit_tokens;
    uint32_t named[AHEAD];
    uint32_t by_index = 0; /* units before this one were named by the index */
    uint32_t parent = match->root;
    const int follows = U == 16 && walk->units_per_block == 1 && !walk->nodes_only;
    for (uint32_t u = 0; u < walk->limit; u++) {
        if (follows && u >= by_index && u > 0) {
            follow_jumps(cache, match, walk, named);
            u = match->n_hits;
            if (u == walk->limit) {
                return;
            }
            parent = walk->nodes[u - 1];
        }
        const struct kvpi_unit unit = {match->prompt->tokens + (size_t)u * U, NULL, 0};
        uint32_t node = u == 0 ? KVPI_NO_NODE : named[u % AHEAD];
        if (u >= by_index &&
            (node == KVPI_NO_NODE || !kvpi_prefix_same(prefix, node, parent, &unit))) {
            by_index = kvpi_min_u32(u + AHEAD, walk->limit);
            match->stale_hints = u > 0;
            name_by_index(cache, match, parent, u, by_index, named);
            node = named[u % AHEAD];
        }
        if (u < by_index && node != KVPI_NO_NODE &&
            !kvpi_prefix_same(prefix, node, parent, &unit)) {
            node = kvpi_prefix_find(prefix, parent, &match->hashes[u], &unit); /* equal tags */
        }
        const uint32_t stop = take_match(cache, walk, u, node);
        if (stop != KVP_STOP_END) {
            match->stop = stop;
            return;
        }
        KVPI_NOTE(by_index, u < by_index);
        KVPI_NOTE(by_jump, u >= by_index);
        named[u % AHEAD] = kvpi_node(prefix, node)->jump;
        prefetch_node(prefix, named[u % AHEAD]);
        parent = node;
        match->n_hits = u + 1;
        if (walk->units_per_block == 1 && u >= AHEAD && !walk->nodes_only) {
            see_blocks(cache, walk->blocks, u - AHEAD, match); /* there by now, and here still */
        }
    }
}

/* All of the prompt was hit: cut back where the configuration says so. */
static void cut_full_hit(const kvp_cache *cache, struct kvpi_match *match)
{
    const uint32_t n = match->prompt->n_tokens;
    if (n > 0 && cache->config.full_hit == KVP_FULL_HIT_RECOMPUTE &&
        match->n_hits * cache->config.unit_tokens == n) {
        const uint32_t blocks = (n - 1) / kvpi_block_tokens(cache, 0);
        match->n_hits = blocks * kvpi_units_per_block(cache, 0);
        match->stop = KVP_STOP_FULL_HIT;
    }
}

/* The hit ends at the longest prefix of its first `most` units, a multiple of `step`, that a
 * checkpoint has the state after. */
static void cut_to_state(const kvp_cache *cache, struct kvpi_match *match, uint32_t most,
                         uint32_t step)
{
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, match->place);
    uint32_t u = most;
    while (u > 0 && kvpi_checkpoint_there(cache, nodes[u - 1]) == 0) {
        u -= step;
    }
    match->n_hits = u;
    match->state = u == 0 ? 0 : kvpi_checkpoint_there(cache, nodes[u - 1]);
}

/* Tokens that come from the host, in whole blocks and in the last one. */
static void note_host_tokens(const kvp_cache *cache, struct kvpi_match *match)
{
    match->host_tokens = match->n_host * kvpi_block_tokens(cache, 0);
    if (match->sources[0] < 0) {
        match->host_tokens += match->n_hits * cache->config.unit_tokens -
                              match->n_shared * kvpi_block_tokens(cache, 0);
    }
}

/* Count blocks from n_hits. */
static void count_blocks(kvp_cache *cache, struct kvpi_match *match)
{
    const uint32_t units_per_block = kvpi_units_per_block(cache, 0);
    const int32_t *blocks = kvpi_row_blocks(&cache->table, match->place);
    match->n_shared = match->n_hits / units_per_block;
    unsee_blocks(cache, blocks, kvpi_min_u32(match->n_seen, match->n_shared), match); /* cut */
    see_blocks(cache, blocks, match->n_shared, match);
    if (match->n_seen < match->n_shared) {
        match->n_hits = match->n_seen * units_per_block;
        match->stop = KVP_STOP_NO_ROOM;
        match->stop_group = 0;
        if (kvpi_has_states(cache)) {
            cut_to_state(cache, match, match->n_hits, units_per_block);
        }
        match->n_shared = match->n_hits / units_per_block;
        unsee_blocks(cache, blocks, match->n_shared, match);
    }
    match->n_kept = match->n_shared;
    if (match->n_hits % units_per_block != 0) {
        match->sources[0] = blocks[match->n_shared];
    }
    note_host_tokens(cache, match);
}

/* Whole units that may be matched: with recurrent state not the one with the last token. */
static uint32_t count_matchable(const kvp_cache *cache, const struct kvpi_match *match)
{
    const uint32_t n_tokens = match->prompt->n_tokens;
    return kvpi_has_states(cache) && n_tokens > 0 ? (n_tokens - 1) / cache->config.unit_tokens
                                                  : match->n_units;
}

/* Cut what was hit to where its state was kept. The last entry may be another block then. */
static void cut_to_checkpoint(const kvp_cache *cache, struct kvpi_match *match)
{
    const uint32_t units_per_block = kvpi_units_per_block(cache, 0);
    const uint32_t n_hits = match->n_hits;
    cut_to_state(cache, match, n_hits, 1);
    if (match->n_hits < n_hits) {
        match->stop = KVP_STOP_NO_KV;
        match->stop_group = cache->config.n_groups;
    }
    if (match->n_hits % units_per_block != 0) {
        const uint32_t last = kvpi_row_nodes(&cache->table, match->place)[match->n_hits - 1];
        const uint32_t device =
            kvpi_node_at(&cache->prefix, last, KVPI_WHERE(KVP_DEVICE, 0))->block;
        const uint32_t host = kvpi_node_at(&cache->prefix, last, KVPI_WHERE(KVP_HOST, 0))->block;
        kvpi_row_blocks(&cache->table, match->place)[match->n_hits / units_per_block] =
            device != 0 ? (int32_t)device : -(int32_t)host;
    }
}

void kvpi_match_walk(kvp_cache *cache, uint32_t place, struct kvpi_match *match)
{
    const int off = !cache->config.prefix_cache || (match->prompt->flags & KVP_OPEN_NO_MATCH);
    const uint32_t matchable = count_matchable(cache, match);
    const uint32_t n_public = kvpi_min_u32(match->n_public, matchable);
    const struct walk walk = {kvpi_row_nodes(&cache->table, place),
                              kvpi_row_blocks(&cache->table, place),
                              off ? 0 : n_public,
                              kvpi_units_per_block(cache, 0),
                              !(match->prompt->flags & KVP_OPEN_DEVICE_ONLY),
                              cache->grouped != 0};
    match->place = place;
    match->stop = off ? KVP_STOP_OFF : n_public < matchable ? KVP_STOP_UNCACHED : KVP_STOP_END;
    if (match->prompt->n_keys > 0) {
        walk_keyed(cache, match, &walk);
    } else {
        walk_plain(cache, match, &walk);
    }
    if (cache->grouped) {
        kvpi_match_groups(cache, match);
    } else {
        cut_full_hit(cache, match);
        if (kvpi_has_states(cache)) {
            cut_to_checkpoint(cache, match);
        }
        count_blocks(cache, match);
    }
}

uint32_t kvpi_match_slots_needed(const kvp_cache *cache, const struct kvpi_match *match)
{
    const struct kvpi_pool *pool = &cache->states.pool;
    uint32_t need = match->prompt->n_tokens + match->prompt->reserve_tokens > 0;
    need += match->state != 0 && kvpi_block_is_cached(kvpi_block(pool, match->state));
    return need;
}

uint32_t kvpi_match_slots_missing(const kvp_cache *cache, const struct kvpi_match *match)
{
    const uint64_t available =
        kvpi_has_states(cache) ? kvpi_pool_available(&cache->states.pool) : UINT64_MAX;
    const uint32_t need = kvpi_match_slots_needed(cache, match);
    return need > available ? (uint32_t)(need - available) : 0;
}

/* No room for the sources of a hit inside a block: end the hit at a block boundary before. */
static void cut_inside(kvp_cache *cache, struct kvpi_match *match)
{
    const uint32_t units_per_block = kvpi_units_per_block(cache, 0);
    if (cache->grouped) {
        kvpi_match_groups_whole(cache, match);
        return;
    }
    match->n_hits -= match->n_hits % units_per_block;
    match->sources[0] = 0;
    match->stop = KVP_STOP_NO_ROOM;
    if (kvpi_has_states(cache)) {
        match->stop_group = 0;
        cut_to_state(cache, match, match->n_hits, units_per_block);
        match->n_shared = match->n_kept = match->n_hits / units_per_block;
        unsee_blocks(cache, kvpi_row_blocks(&cache->table, match->place), match->n_shared, match);
    }
    note_host_tokens(cache, match);
}

static uint64_t count_new(const kvp_cache *cache, const struct kvpi_match *match)
{
    const uint32_t end = match->prompt->n_tokens + match->prompt->reserve_tokens;
    uint64_t n = 0;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        n += kvpi_row_length(cache, g, end) - kvpi_match_shared(cache, match, g);
    }
    return n - match->n_absent;
}

uint32_t kvpi_match_sources(const kvp_cache *cache, const struct kvpi_match *match)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        n += match->sources[g] != 0;
    }
    return n;
}

/* Sources of a hit inside a block that are cached: they leave the queue while they are read. */
static uint32_t count_leaving(const kvp_cache *cache, const struct kvpi_match *match)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const int32_t source = match->sources[g];
        n += source > 0 && kvpi_block_is_cached(kvpi_block(&cache->pool, (uint32_t)source));
    }
    return n;
}

void kvpi_match_admit(kvp_cache *cache, struct kvpi_match *match, kvp_admission *out)
{
    /* As it was before the walk, which may hold the hits already. */
    const uint64_t n_taken_out = match->hold ? match->n_unheld : 0;
    const uint64_t available = kvpi_pool_available(&cache->pool) + n_taken_out;
    const uint64_t usable = cache->config.n_blocks - 1;
    const uint64_t n_held = cache->pool.n_held - (match->hold ? match->n_idle : 0);
    const uint64_t watermark = n_held > 0 ? cache->watermark : 0;
    uint64_t need = count_new(cache, match) + match->n_unheld + match->n_host;
    const uint32_t n_leaving = count_leaving(cache, match);
    if (n_leaving > 0) {
        if (need + n_leaving + watermark <= available) {
            need += n_leaving;
        } else {
            cut_inside(cache, match);
            need = count_new(cache, match) + match->n_unheld + match->n_host;
        }
    }
    const uint64_t n_all = count_new(cache, match) + match->n_kept;
    memset(out, 0, sizeof(*out));
    out->need_blocks = (uint32_t)need;
    out->available = (uint32_t)available;
    if (need + watermark <= available) {
        out->verdict = kvpi_match_slots_missing(cache, match) > 0 ? KVP_ADMIT_LATER : KVP_ADMIT_OK;
    } else if (n_all + watermark > usable) {
        out->verdict = KVP_ADMIT_NEVER;
        out->missing_blocks = (uint32_t)(n_all + watermark - usable);
    } else {
        out->verdict = KVP_ADMIT_LATER;
        out->missing_blocks = (uint32_t)(need + watermark - available);
    }
}

void kvpi_match_info(const kvp_cache *cache, const struct kvpi_match *match, kvp_open_info *out)
{
    const uint32_t n = match->prompt->n_tokens;
    memset(out, 0, sizeof(*out));
    out->hit_tokens = match->n_hits * cache->config.unit_tokens;
    out->cached_tokens = kvpi_min_u32(out->hit_tokens, n > 0 ? n - 1 : 0);
    out->stop = match->stop;
    out->stop_group = match->stop_group;
    out->shared_blocks = match->n_kept - match->n_host;
    out->host_blocks = match->n_host;
    out->cached_blocks = match->n_unheld;
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        out->copied_tokens =
            kvpi_max_u32(out->copied_tokens, out->hit_tokens % kvpi_block_tokens(cache, g));
    }
    out->host_tokens = match->host_tokens;
    out->taken_blocks = (uint32_t)count_new(cache, match) + match->n_host;
}

int kvpi_bad_prompt(const kvp_prompt *prompt)
{
    return prompt == NULL || (prompt->tokens == NULL && prompt->n_tokens > 0) ||
           (prompt->keys == NULL && prompt->n_keys > 0) ||
           (prompt->uncached == NULL && prompt->n_uncached > 0);
}

/* Walk along a prompt: for what it would hit, or for whether it would find its blocks. */
static kvp_status walk_for(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                           kvp_open_info *info, kvp_admission *admission)
{
    struct kvpi_match match;
    prompt = kvpi_sized(prompt, sizeof(*prompt));
    kvp_status status =
        cache == NULL || kvpi_bad_prompt(prompt) || (info == NULL && admission == NULL)
            ? KVP_E_ARG
            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = kvpi_match_prepare(cache, ns, prompt, &match);
    if (status == KVP_OK) {
        kvpi_match_walk(cache, kvpi_table_scratch(&cache->table), &match);
        info != NULL ? kvpi_match_info(cache, &match, info)
                     : kvpi_match_admit(cache, &match, admission);
    }
    if (kvpi_recording(cache)) {
        info != NULL ? kvpi_record_cache_match(&cache->recorder, ns, prompt, status, info)
                     : kvpi_record_cache_can_open(&cache->recorder, ns, prompt, status, admission);
    }
    return kvpi_leave(cache, status);
}

kvp_status kvp_cache_match(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                           kvp_open_info *out_info)
{
    return walk_for(cache, ns, prompt, out_info, NULL);
}

kvp_status kvp_cache_can_open(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt,
                              kvp_admission *out_admission)
{
    return walk_for(cache, ns, prompt, NULL, out_admission);
}
