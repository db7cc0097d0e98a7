/* The learned policy: what it is told of sequences, and who may go. How it chooses is in
 * oracle_policy.h.
 *
 * Nothing is kept here but how many leading blocks a sequence hit when it was opened. Which cached
 * blocks are leaves is looked up anew for every victim.
 */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

/* Groups of 512 tokens, or of a 128th of a small cache. */
static uint64_t group_blocks(const kvp_config *config)
{
    uint64_t tokens = 512 / config->block_tokens, share = (config->n_blocks - 1) / 128;
    uint64_t group = tokens < share ? tokens : share;

    return group ? group : 1;
}

void oracle_learned_create(oracle *o)
{
    if (o->config.policy == KVP_POLICY_LEARNED)
        o->policy = plain_create(o->config.n_blocks - 1, o->config.host_blocks,
                                 o->config.block_tokens, group_blocks(&o->config));
}

static bool is_cached(const oracle *o, int32_t block)
{
    return !o->blocks[block].refs && !o->blocks[block].parked_for && oracle_block_sealed(o, block);
}

/* The last unit before the block that has this unit; a root, if there is none. */
static uint32_t before_block(const oracle *o, uint32_t node)
{
    uint32_t in_block = o->nodes[node].depth % o->block_units + 1;

    for (uint32_t i = 0; i < in_block; i++)
        node = o->nodes[node].parent;
    return node;
}

static uint32_t deepest_of(const oracle *o, int32_t block)
{
    return o->blocks[block].unit_node[oracle_block_depth(o, block) - 1];
}

/* Does another cached block of its tier continue this one? */
static bool is_continued(const oracle *o, int32_t block)
{
    const oracle_pool *pool = &o->pools[oracle_tier(o, block)];
    uint32_t last = deepest_of(o, block);

    for (int32_t i = pool->first + 1; i < pool->first + (int32_t)pool->n; i++)
        if (is_cached(o, i) && before_block(o, deepest_of(o, i)) == last)
            return true;
    return false;
}

int32_t oracle_learned_choose(oracle *o, int32_t first)
{
    const oracle_pool *pool = &o->pools[oracle_tier(o, first)];
    bool on_host = oracle_tier(o, first) == KVP_HOST;
    bool *leaves = oracle_allocate(o->config.n_blocks + o->config.host_blocks, sizeof *leaves);
    uint64_t oldest = o->policy->chose_oldest, old = o->policy->chose_old;
    uint64_t young = o->policy->chose_young;
    uint32_t block;

    for (int32_t i = pool->first + 1; i < pool->first + (int32_t)pool->n; i++)
        leaves[i] = is_cached(o, i) && o->blocks[i].retention == o->blocks[first].retention &&
                    !is_continued(o, i);
    block = plain_choose(o->policy, leaves);
    free(leaves);
    o->marks.learned_oldest += o->policy->chose_oldest > oldest;
    o->marks.learned_old += o->policy->chose_old > old;
    o->marks.learned_young += o->policy->chose_young > young;
    o->marks.host_old += on_host && o->policy->chose_old > old;
    o->marks.host_young += on_host && o->policy->chose_young > young;
    o->marks.learned_no_leaf += block == PLAIN_NONE;
    o->marks.learned_leaf += block != PLAIN_NONE && is_continued(o, first);
    return block == PLAIN_NONE ? first : (int32_t)block;
}

/* Leading entries that are in the block of their last unit. */
static uint32_t count_sealed(const oracle *o, const oracle_seq *seq)
{
    uint32_t n = 0, last = o->block_units - 1;

    while (n < seq->n_row[0] && (n + 1) * o->block_units <= seq->n_chain) {
        int32_t block = seq->rows[0][n];

        if (!block || o->blocks[block].unit_kind[last] != UNIT_SEALED ||
            o->blocks[block].unit_node[last] != seq->chain[n * o->block_units + last])
            break;
        n++;
    }
    return n;
}

/* Held blocks, without those that other requests hit when they were opened; at least its own. */
static uint32_t count_held(const oracle *o, const oracle_seq *seq)
{
    uint64_t held = o->pools[KVP_DEVICE].held, hits = 0;

    for (uint32_t i = 0; i < o->config.max_seqs; i++)
        if (o->seqs[i].open && !o->seqs[i].is_fork && &o->seqs[i] != seq)
            hits += o->seqs[i].hit_blocks;
    held = held > hits ? held - hits : 0;
    return (uint32_t)(held > seq->n_row[0] ? held : seq->n_row[0]);
}

static uint32_t fallback_of(const plain_policy *p)
{
    return p->now < 2 * p->c ? KVP_FALLBACK_COLD
           : p->distrusted   ? KVP_FALLBACK_GUARD
           : p->gated        ? KVP_FALLBACK_GATE
                             : KVP_FALLBACK_NONE;
}

void oracle_learned_close(oracle *o, const oracle_seq *seq)
{
    uint32_t n, group, *names;
    plain_request request = {0};

    if (!o->policy || seq->is_fork || seq->tier != KVP_DEVICE)
        return;
    n = count_sealed(o, seq);
    group = (uint32_t)o->policy->group;
    names = oracle_allocate(n / group, sizeof *names);
    for (uint32_t g = 0; g < n / group; g++) {
        const uint8_t *hash = o->nodes[seq->chain[(g + 1) * group * o->block_units - 1]].hash.bytes;

        for (uint32_t i = 12; i < 16; i++)
            names[g] = names[g] << 8 | hash[i];
    }
    request.blocks = seq->rows[0];
    request.names = names;
    request.n_blocks = n;
    request.n_held = count_held(o, seq);
    request.n_prompt = oracle_lower(n, seq->prompt / o->config.block_tokens);
    request.n_hits = seq->hit_blocks;
    request.prompt_tokens = seq->prompt;
    request.output_tokens = seq->tokens - seq->prompt;
    o->stats.references += n;
    o->stats.fallback_references += plain_is_lru(o->policy) ? n : 0;
    o->fallback_by[fallback_of(o->policy)] += n;
    o->marks.learned_returned += o->policy->returned;
    plain_use(o->policy, &request);
    o->stats.learned_hits = o->policy->hit_blocks;
    o->stats.lru_hits = o->policy->lru_blocks;
    free(names);
}

void oracle_learned_rest(oracle *o, int32_t block)
{
    if (o->policy && oracle_block_sealed(o, block))
        plain_rest(o->policy, (uint32_t)block);
}

void oracle_learned_lost(oracle *o, int32_t block)
{
    if (o->policy && !oracle_block_sealed(o, block))
        plain_forget(o->policy, (uint32_t)block);
}

/* --------------------------------------------------------------------------- what can be read */

kvp_status oracle_learned_info(const oracle *o, kvp_policy_info *out)
{
    const plain_policy *p = o->policy;
    int64_t slack;

    if (!p)
        return KVP_E_STATE;
    slack = (int64_t)((1u << 20) / p->block_tokens);
    memset(out, 0, sizeof *out);
    out->references = p->now;
    out->cold_references = o->fallback_by[KVP_FALLBACK_COLD];
    out->guard_references = o->fallback_by[KVP_FALLBACK_GUARD];
    out->gate_references = o->fallback_by[KVP_FALLBACK_GATE];
    out->returned = p->returned;
    out->returned_late = p->late;
    out->credit = p->credit;
    out->credit_floor = -((int64_t)(p->c / 8) + slack) * 200;
    out->credit_limit = ((int64_t)(p->c / 4) + slack) * 200;
    out->fallback = fallback_of(p);
    out->entry_blocks = (uint32_t)p->group;
    return KVP_OK;
}

kvp_status oracle_learned_class(const oracle *o, uint32_t class_, kvp_policy_class *out)
{
    static const uint32_t ages[PLAIN_BINS] = {0,  2,  3,  4,  6,   8,   12,  16, 24,
                                              32, 48, 64, 96, 128, 192, 256, 384};
    static const uint32_t least[3][4] = {{1, 2, 3, 5}, {0, 32, 256, 512}, {0, 513, 4097, 32769}};

    if (class_ >= PLAIN_CLASSES)
        return KVP_E_ARG;
    if (!o->policy)
        return KVP_E_STATE;
    memset(out, 0, sizeof *out);
    out->least_uses = least[0][class_ / 16];
    out->least_output = least[1][class_ / 4 % 4];
    out->least_new = least[2][class_ % 4];
    for (uint32_t b = 0; b < PLAIN_BINS; b++) {
        out->ages[b] = ages[b];
        out->seen[b] = (uint32_t)o->policy->at_risk[class_][b];
        out->used[b] = (uint32_t)o->policy->hits[class_][b];
        out->density[b] = (uint32_t)o->policy->near[class_][b];
        out->best_density[b] = (uint32_t)o->policy->far[class_][b];
    }
    return KVP_OK;
}

/* Is the content of a device block worth less than what would have to leave the host for it? What a
 * cached block of the host continues is kept. */
bool oracle_learned_spares(oracle *o, int32_t block)
{
    const oracle_pool *host = &o->pools[KVP_HOST];
    uint32_t last = deepest_of(o, block);
    bool full = true, cached = false;
    int32_t victim;

    for (int32_t i = host->first + 1; i < host->first + (int32_t)host->n; i++) {
        full &= oracle_block_state(o, i) != KVP_BLOCK_FREE;
        cached |= is_cached(o, i);
        if (is_cached(o, i) && before_block(o, deepest_of(o, i)) == last)
            return false;
    }
    if (!o->policy || !full || !cached)
        return false;
    victim = oracle_choose(o, KVP_HOST, 0);
    return plain_is_worth_less(o->policy, (uint32_t)block, (uint32_t)victim);
}

void oracle_learned_follow(oracle *o, int32_t block, int32_t other)
{
    if (o->policy)
        plain_follow(o->policy, (uint32_t)block, (uint32_t)other);
}
