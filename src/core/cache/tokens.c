/* tokens: token values and the units they make.
 *
 * A sequence's kept tokens are in the nodes of its full units, and the rest in its partial unit:
 *
 *   row_nodes   [n0][n1][n2]         each U tokens, shared with every equal prefix
 *   partial                 [t t .]  known % U of them, its own
 *
 * A unit that fills becomes a node: the public one of this prefix, found or made, as long as every
 * unit before is public and nothing in it must not be cached; else a private one. When no node can
 * be freed (blocks.h), the tokens from there on are not kept (seq->unkept), and only counted.
 */
#include "core/cache/blocks.h"
#include "core/cache/state.h"
#include "core/cache/tokens.h"

#include <string.h>

/* Sets of up to this size are searched from end to end. */
#define LINEAR_SET 8u

static int in_set(const int32_t *set, uint32_t n, int32_t token)
{
    uint32_t low = 0;
    if (n <= LINEAR_SET) {
        for (uint32_t i = 0; i < n; i++) {
            if (set[i] == token) {
                return 1;
            }
        }
        return 0;
    }
    while (low < n) {
        const uint32_t middle = low + (n - low) / 2;
        if (set[middle] == token) {
            return 1;
        }
        if (set[middle] < token) {
            low = middle + 1;
        } else {
            n = middle;
        }
    }
    return 0;
}

int kvpi_is_uncached(const kvp_cache *cache, const int32_t *tokens, uint32_t n, uint32_t *out_first)
{
    const uint32_t n_set = cache->config.n_uncached_tokens;
    const int32_t *set = kvpi_at(cache, cache->uncached_at);
    for (uint32_t i = 0; i < n && n_set > 0; i++) {
        if (in_set(set, n_set, tokens[i])) {
            *out_first = i;
            return 1;
        }
    }
    return 0;
}

int kvpi_any_negative(const int32_t *tokens, uint32_t n)
{
    int32_t any = 0;
    for (uint32_t i = 0; i < n; i++) {
        any |= tokens[i];
    }
    return any < 0;
}

uint32_t kvpi_last_node(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    const uint32_t place = kvpi_seq_place(&cache->table, seq);
    return seq->n_units > 0 ? kvpi_row_nodes(&cache->table, place)[seq->n_units - 1] : seq->root;
}

int kvpi_keys_fit(const kvp_cache *cache, const kvp_key *keys, uint32_t n_keys, uint32_t from,
                  uint32_t to, uint32_t pending)
{
    const uint32_t U = cache->config.unit_tokens;
    uint32_t cursor = 0;
    if (n_keys == 0) {
        return 1;
    }
    for (uint32_t begin = from / U * U; begin < to; begin += U) {
        const uint32_t n = kvpi_keys_of_unit(keys, n_keys, begin, U, NULL, 0, &cursor);
        if (n + (begin <= from ? pending : 0) > cache->config.max_unit_keys) {
            return 0;
        }
        if (begin > UINT32_MAX - U) {
            break;
        }
    }
    return 1;
}

void kvpi_push_node(kvp_cache *cache, struct kvpi_seq *seq, uint32_t node, int is_public)
{
    const uint32_t last = kvpi_last_node(cache, seq);
    uint32_t *nodes = kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, seq));
    if (seq->n_units >= KVPI_NODE_JUMP) {
        kvpi_node(&cache->prefix, nodes[seq->n_units - KVPI_NODE_JUMP])->jump = node;
    }
    nodes[seq->n_units] = node;
    kvpi_set32(&seq->n_units, seq->n_units + 1);
    kvpi_prefix_use(&cache->prefix, node);
    KVPI_ASSERT(kvpi_node(&cache->prefix, node)->parent == last); /* which lives, therefore */
    kvpi_node(&cache->prefix, last)->users--;
    if (is_public) {
        kvpi_set32(&seq->n_public, seq->n_units);
    } else {
        kvpi_count(&cache->counters.private_units, 1);
    }
}

/* kvpi_prefix_add, if need be in the place of what is cached. */
static uint32_t add_unit(kvp_cache *cache, uint32_t parent, const kvp_hash *hash,
                         const struct kvpi_unit *unit, uint32_t flags)
{
    const uint32_t node = kvpi_prefix_add(&cache->prefix, parent, hash, unit, flags);
    return kvpi_unlikely(node == KVPI_NO_NODE) && kvpi_free_node(cache)
               ? kvpi_prefix_add(&cache->prefix, parent, hash, unit, flags)
               : node;
}

/* Find or make the public node of the next unit, or make a private one. */
static uint32_t unit_node(kvp_cache *cache, const struct kvpi_seq *seq,
                          const struct kvpi_unit *unit, int is_public)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    const uint32_t parent = kvpi_last_node(cache, seq);
    uint32_t node;
    kvp_hash hash;
    if (!is_public) {
        return add_unit(cache, parent, NULL, unit, 0);
    }
    kvpi_hash_unit(&kvpi_node(prefix, parent)->hash, unit->tokens, prefix->unit_tokens, unit->keys,
                   unit->n_keys, &hash);
    node = kvpi_prefix_find(prefix, parent, &hash, unit);
    if (node == KVPI_NO_NODE) {
        node = add_unit(cache, parent, &hash, unit, KVPI_NODE_PUBLIC);
        kvpi_note_made(cache, seq, node);
    }
    return node;
}

static int may_publish(const kvp_cache *cache, const struct kvpi_seq *seq, const int32_t *tokens)
{
    const uint32_t U = cache->config.unit_tokens;
    uint32_t first;
    return cache->config.prefix_cache && seq->n_public == seq->n_units &&
           (uint64_t)(seq->n_units + 1) * U <= seq->uncached_from &&
           !kvpi_is_uncached(cache, tokens, U, &first);
}

/* The partial unit is full. */
static void finish_unit(kvp_cache *cache, struct kvpi_seq *seq)
{
    const uint32_t place = kvpi_seq_place(&cache->table, seq);
    const struct kvpi_unit unit = {kvpi_row_partial(&cache->table, place),
                                   kvpi_row_keys(&cache->table, place), seq->n_partial_keys};
    const int is_public = may_publish(cache, seq, unit.tokens);
    const uint32_t node = unit_node(cache, seq, &unit, is_public);
    seq->n_partial_keys = 0;
    if (node == KVPI_NO_NODE) {
        kvpi_set16(&seq->unkept, 1);
        kvpi_set32(&seq->last, KVPI_NO_TOKEN);
        kvpi_count(&cache->counters.unkept_units, 1);
        return;
    }
    kvpi_push_node(cache, seq, node, is_public);
}

/* Tokens of a sequence whose tail is not kept: only counted. */
static void count_unkept(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n)
{
    const uint32_t U = cache->config.unit_tokens;
    kvpi_count(&cache->counters.unkept_units, (seq->known + n) / U - seq->known / U);
    kvpi_set32(&seq->known, seq->known + n);
}

void kvpi_append_tokens(kvp_cache *cache, struct kvpi_seq *seq, const int32_t *tokens, uint32_t n,
                        const kvp_key *keys, uint32_t n_keys)
{
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t place = kvpi_seq_place(&cache->table, seq);
    int32_t *partial = kvpi_row_partial(&cache->table, place);
    struct kvpi_key *unit_keys = kvpi_row_keys(&cache->table, place);
    uint32_t cursor = 0;
    while (n > 0 && !seq->unkept) {
        const uint32_t at = seq->known - seq->n_units * U;
        const uint32_t part = kvpi_min_u32(n, U - at);
        if (n_keys > 0) {
            seq->n_partial_keys +=
                kvpi_keys_of_unit(keys, n_keys, seq->known - at, U, unit_keys + seq->n_partial_keys,
                                  cache->config.max_unit_keys - seq->n_partial_keys, &cursor);
        }
        if (part == 1) { /* decoding: cheaper than a call */
            partial[at] = tokens[0];
        } else {
            memcpy(partial + at, tokens, (size_t)part * sizeof(int32_t));
        }
        kvpi_set32(&seq->known, seq->known + part);
        kvpi_set32(&seq->last, (uint32_t)tokens[part - 1]);
        tokens += part;
        n -= part;
        if (at + part == U) {
            finish_unit(cache, seq);
        }
    }
    if (n > 0) {
        count_unkept(cache, seq, n);
    }
}

/* Keys of the partial unit that belong to its first n tokens: those that begin before. */
static uint32_t copy_keys(struct kvpi_key *to, const struct kvpi_key *from, uint32_t n_keys,
                          uint32_t n)
{
    uint32_t kept = 0;
    KVPI_ASSERT(n > 0); /* an offset may be negative */
    for (uint32_t i = 0; i < n_keys; i++) {
        if (from[i].offset < (int32_t)n) {
            to[kept++] = from[i]; /* in place too: kept <= i */
        }
    }
    return kept;
}

/* Fill the partial unit of `seq` with the first `rest` tokens of `from`'s unit u. */
static void cut_partial(kvp_cache *cache, const struct kvpi_seq *from, struct kvpi_seq *seq,
                        uint32_t u, uint32_t rest)
{
    const struct kvpi_table *table = &cache->table;
    const uint32_t from_place = kvpi_seq_place(table, from);
    const uint32_t place = kvpi_seq_place(table, seq);
    const int32_t *tokens = kvpi_row_partial(table, from_place);
    const struct kvpi_key *keys = kvpi_row_keys(table, from_place);
    uint32_t n_keys = from->n_partial_keys;
    if (u < from->n_units) { /* the unit was full */
        const uint32_t node = kvpi_row_nodes(table, from_place)[u];
        tokens = kvpi_node_tokens(kvpi_node(&cache->prefix, node));
        keys = kvpi_node_keys(&cache->prefix, node);
        n_keys = kvpi_node(&cache->prefix, node)->n_keys;
    }
    memmove(kvpi_row_partial(table, place), tokens, (size_t)rest * sizeof(int32_t));
    seq->n_partial_keys = copy_keys(kvpi_row_keys(table, place), keys, n_keys, rest);
}

/* Is unit u of `from` being cut, whose KV it has? Then the first part of that KV goes on without
 * the unit: an invalidate has to find it (core/calls/drop.c). */
static void mark_cut(const kvp_cache *cache, const struct kvpi_seq *from, uint32_t u)
{
    if (u < from->n_public && from->computed / cache->config.unit_tokens > u) {
        struct kvpi_node *node = kvpi_node(
            &cache->prefix, kvpi_row_nodes(&cache->table, kvpi_seq_place(&cache->table, from))[u]);
        node->flags |= KVPI_NODE_CUT;
        kvpi_node(&cache->prefix, node->parent)->flags |= KVPI_NODE_CUTS;
    }
}

void kvpi_cut_tokens(kvp_cache *cache, const struct kvpi_seq *from, struct kvpi_seq *seq,
                     uint32_t n)
{
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t known = kvpi_min_u32(from->known, n);
    const uint32_t u = known / U; /* the unit that is cut */
    const uint32_t n_units = kvpi_min_u32(from->n_units, u);
    const uint32_t last = kvpi_last_node(cache, from);
    const uint16_t unkept = from->unkept && known > from->n_units * U;
    const int is_cut = known < from->known; /* else `seq` has what depends on known values */
    if (unkept || known == u * U) {
        seq->n_partial_keys = 0;
    } else {
        mark_cut(cache, from, u);
        cut_partial(cache, from, seq, u, known - u * U);
    }
    kvpi_set32(&seq->tokens, kvpi_min_u32(from->tokens, n));
    kvpi_set32(&seq->prompt, kvpi_min_u32(from->prompt, n));
    kvpi_set32(&seq->cached, kvpi_min_u32(from->cached, n));
    kvpi_set16(&seq->unkept, unkept & 1);
    if (is_cut) {
        kvpi_set32(&seq->known, known);
        kvpi_set32(&seq->n_public, kvpi_min_u32(from->n_public, n_units));
        kvpi_set32(&seq->n_units, n_units);
        kvpi_note_last(cache, seq);
    }
    kvpi_prefix_use(&cache->prefix, kvpi_last_node(cache, seq));
    if (from == seq) {
        kvpi_prefix_unuse(&cache->prefix, last);
    }
}

uint32_t kvpi_last_token(const kvp_cache *cache, const struct kvpi_seq *seq)
{
    int32_t last;
    return seq->known > 0 && kvpi_read_tokens(cache, seq, seq->known - 1, 1, &last) ? (uint32_t)last
                                                                                    : KVPI_NO_TOKEN;
}

void kvpi_note_last(const kvp_cache *cache, struct kvpi_seq *seq)
{
    kvpi_set32(&seq->last, kvpi_last_token(cache, seq));
}

int kvpi_read_tokens(const kvp_cache *cache, const struct kvpi_seq *seq, uint32_t from, uint32_t n,
                     int32_t *out)
{
    const struct kvpi_table *table = &cache->table;
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t place = kvpi_seq_place(table, seq);
    const uint32_t kept = seq->unkept ? seq->n_units * U : seq->known;
    if (n > 0 && (from >= kept || n > kept - from)) {
        return 0;
    }
    while (n > 0) {
        const uint32_t u = from / U;
        const uint32_t at = from - u * U;
        const uint32_t part = kvpi_min_u32(n, U - at);
        const int32_t *tokens = kvpi_row_partial(table, place);
        if (u < seq->n_units) {
            tokens = kvpi_node_tokens(kvpi_node(&cache->prefix, kvpi_row_nodes(table, place)[u]));
        }
        memcpy(out, tokens + at, (size_t)part * sizeof(int32_t));
        out += part;
        from += part;
        n -= part;
    }
    return 1;
}
