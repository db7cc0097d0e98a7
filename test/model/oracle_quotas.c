/* Quotas: which namespace a block counts for, and whose blocks go first (quotas.h).
 *
 * Nothing is kept but what was said: a block's namespace, and each namespace's quotas. Everything
 * else is counted anew, over all blocks, when it is asked.
 */
#include "oracle_parts.h"

/* Does the block count for anybody: is it held, or does it have content? */
static bool is_in_use(const oracle *o, int32_t block)
{
    return o->blocks[block].refs > 0 || oracle_block_sealed(o, block);
}

/* Blocks of the tier that count for the namespace; only cached ones, if so. */
static uint32_t count_blocks(const oracle *o, const oracle_ns *ns, uint32_t tier, bool cached)
{
    const oracle_pool *pool = &o->pools[tier];
    uint32_t n = 0;

    for (uint32_t i = 1; i < pool->n; i++) {
        int32_t block = pool->first + (int32_t)i;

        if (o->blocks[block].ns_handle == ns->handle && is_in_use(o, block))
            n += !cached || oracle_block_state(o, block) == KVP_BLOCK_CACHED;
    }
    return n;
}

static bool is_over(const oracle *o, const oracle_ns *ns, uint32_t tier)
{
    return ns->open && count_blocks(o, ns, tier, false) > ns->quotas[tier] &&
           count_blocks(o, ns, tier, true) > 0;
}

/* The cached block of the namespace that stands first; 0: it has none. */
static int32_t first_of(const oracle *o, const oracle_ns *ns, uint32_t tier)
{
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++) {
        const oracle_queue *queue = &o->pools[tier].queues[c];

        for (uint32_t i = 0; i < queue->n; i++) {
            int32_t block = queue->items[i];

            if (oracle_block_sealed(o, block) && o->blocks[block].ns_handle == ns->handle)
                return block;
        }
    }
    return 0;
}

/* The block at the head of the lowest class. */
static int32_t first_of_all(const oracle *o, uint32_t tier)
{
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++) {
        if (o->pools[tier].queues[c].n)
            return o->pools[tier].queues[c].items[0];
    }
    return 0;
}

/* The next namespace that is over, behind the one that was last; ORACLE_NONE: none is. */
static uint32_t next_over(const oracle *o, uint32_t tier)
{
    uint32_t n = o->config.max_namespaces;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t place = (o->pools[tier].turn + i) % n;

        if (is_over(o, &o->namespaces[place], tier))
            return place;
    }
    return ORACLE_NONE;
}

static uint32_t count_over(const oracle *o, uint32_t tier)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < o->config.max_namespaces; i++)
        n += is_over(o, &o->namespaces[i], tier);
    return n;
}

/* Has the namespace as many blocks as its quota, or more? */
static bool is_full(const oracle *o, uint32_t place, uint32_t tier)
{
    return place != ORACLE_NONE &&
           count_blocks(o, &o->namespaces[place], tier, false) >= o->namespaces[place].quotas[tier];
}

/* The block that a take for a namespace takes. The caller knows that there is one. */
int32_t oracle_choose(oracle *o, uint32_t tier, uint64_t ns_handle)
{
    int32_t first = first_of_all(o, tier), own = 0;
    uint32_t place = o->config.quotas ? oracle_find_ns(o, ns_handle) : ORACLE_NONE;
    bool full = o->config.quotas && is_full(o, place, tier);
    uint32_t other;

    if (o->policy && tier == KVP_DEVICE && oracle_block_sealed(o, first))
        return oracle_learned_choose(o, first);
    if (!o->config.quotas)
        return first;
    if (!oracle_block_sealed(o, first)) {
        o->marks.quota_idle += full;
        return first;
    }
    own = full ? first_of(o, &o->namespaces[place], tier) : 0;
    if (own) {
        o->marks.quota_own += own != first;
        o->marks.quota_own_host += own != first && tier == KVP_HOST;
        return own;
    }
    o->marks.quota_held += full;
    other = next_over(o, tier);
    if (other == ORACLE_NONE)
        return first;
    o->marks.quota_turns += count_over(o, tier) > 1;
    o->pools[tier].turn = (other + 1) % o->config.max_namespaces;
    own = first_of(o, &o->namespaces[other], tier);
    o->marks.quota_others += own != first;
    return own;
}

/* The device's cached block that a take for a namespace below its quota evicts, if nothing is free;
 * 0: none is cached. `turn`: whose it is after that. */
int32_t oracle_coldest(oracle *o, uint32_t *turn)
{
    int32_t first = 0;
    uint32_t other;

    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES && !first; c++) {
        const oracle_queue *queue = &o->pools[KVP_DEVICE].queues[c];

        for (uint32_t i = 0; i < queue->n && !first; i++)
            first = oracle_block_sealed(o, queue->items[i]) ? queue->items[i] : 0;
    }
    if (first && o->policy)
        return oracle_learned_choose(o, first);
    other = o->config.quotas ? next_over(o, KVP_DEVICE) : ORACLE_NONE;
    if (!first || other == ORACLE_NONE)
        return first;
    *turn = (other + 1) % o->config.max_namespaces;
    o->marks.reclaim_over++;
    return first_of(o, &o->namespaces[other], KVP_DEVICE);
}

/* Would keeping something of this namespace on the host evict what is not over, though it has as
 * many blocks there as its quota? */
bool oracle_displaces(oracle *o, uint64_t ns_handle)
{
    uint32_t place = o->config.quotas ? oracle_find_ns(o, ns_handle) : ORACLE_NONE;
    int32_t first = first_of_all(o, KVP_HOST);
    bool displaces = first && oracle_block_sealed(o, first) && is_full(o, place, KVP_HOST) &&
                     !first_of(o, &o->namespaces[place], KVP_HOST) &&
                     next_over(o, KVP_HOST) == ORACLE_NONE;

    o->marks.quota_unkept += displaces;
    return displaces;
}

static kvp_status ns_quota(oracle *o, const kvp_call *call, uint32_t place)
{
    if (call->tier >= ORACLE_TIERS || !o->pools[call->tier].n)
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    if (!o->config.quotas)
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    oracle_begin_change(o);
    o->namespaces[place].quotas[call->tier] = call->count;
    return KVP_OK;
}

static kvp_status ns_info(const oracle *o, const oracle_ns *ns, kvp_ns_info *info)
{
    if (!o->config.quotas)
        return KVP_E_STATE;
    info->openers = ns->openers;
    info->quota = ns->quotas[KVP_DEVICE];
    info->blocks = count_blocks(o, ns, KVP_DEVICE, false);
    info->cached_blocks = count_blocks(o, ns, KVP_DEVICE, true);
    info->host_quota = ns->quotas[KVP_HOST];
    info->host_blocks = count_blocks(o, ns, KVP_HOST, false);
    info->host_cached_blocks = count_blocks(o, ns, KVP_HOST, true);
    return KVP_OK;
}

kvp_status oracle_quota_call(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t place = oracle_find_ns(o, call->handle);
    bool sets = call->op == KVP_CALL_NS_QUOTA;

    if (place == ORACLE_NONE)
        return sets ? oracle_fail(o, KVP_E_HANDLE, 0, 0) : KVP_E_HANDLE;
    return sets ? ns_quota(o, call, place) : ns_info(o, &o->namespaces[place], &out->u.ns);
}
