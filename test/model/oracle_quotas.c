/* Quotas: which namespace a block counts for, and whose blocks go first (quotas.h).
 *
 * Nothing is kept but what was said: a block's namespace, and each namespace's quotas. Everything
 * else is counted anew, over all blocks, when it is asked.
 */
#include "oracle_parts.h"

/* Blocks of the tiers and slots of state have queues of the same kind. */
static const oracle_queue *queue_of(const oracle *o, uint32_t tier, uint32_t class_)
{
    return tier == KVP_STATE_SLOTS ? &o->slot_queues[class_] : &o->pools[tier].queues[class_];
}

static bool has_content(const oracle *o, uint32_t tier, int32_t item)
{
    return tier == KVP_STATE_SLOTS ? o->slots[item].node != ORACLE_NONE
                                   : oracle_block_sealed(o, item);
}

static uint64_t owner_of(const oracle *o, uint32_t tier, int32_t item)
{
    return tier == KVP_STATE_SLOTS ? o->slots[item].ns_handle : o->blocks[item].ns_handle;
}

static uint32_t *turn_of(oracle *o, uint32_t tier)
{
    return tier == KVP_STATE_SLOTS ? &o->slot_turn : &o->pools[tier].turn;
}

/* Does it count for anybody: is it held, or does it have content? `cached`: only if nobody holds
 * it. */
static bool counts(const oracle *o, uint32_t tier, int32_t item, bool cached)
{
    bool slot = tier == KVP_STATE_SLOTS;
    uint32_t refs = slot ? o->slots[item].refs : o->blocks[item].refs;

    if (!cached)
        return refs > 0 || has_content(o, tier, item);
    return slot ? oracle_slot_is_idle(o, (uint32_t)item) && has_content(o, tier, item)
                : oracle_block_state(o, item) == KVP_BLOCK_CACHED;
}

/* Blocks or slots that count for the namespace; only cached ones, if so. */
static uint32_t count_blocks(const oracle *o, const oracle_ns *ns, uint32_t tier, bool cached)
{
    bool slots = tier == KVP_STATE_SLOTS;
    uint32_t end = slots ? o->config.state_slots : o->pools[tier].n, n = 0;

    for (uint32_t i = 1; i < end; i++) {
        int32_t item = (slots ? 0 : o->pools[tier].first) + (int32_t)i;

        n += owner_of(o, tier, item) == ns->handle && counts(o, tier, item, cached);
    }
    return n;
}

static bool is_over(const oracle *o, const oracle_ns *ns, uint32_t tier)
{
    return ns->open && count_blocks(o, ns, tier, false) > ns->quotas[tier] &&
           count_blocks(o, ns, tier, true) > 0;
}

/* The cached one of the namespace that stands first; 0: it has none. */
static int32_t first_of(const oracle *o, const oracle_ns *ns, uint32_t tier)
{
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++) {
        const oracle_queue *queue = queue_of(o, tier, c);

        for (uint32_t i = 0; i < queue->n; i++) {
            int32_t item = queue->items[i];

            if (has_content(o, tier, item) && owner_of(o, tier, item) == ns->handle)
                return item;
        }
    }
    return 0;
}

/* The one at the head of the lowest class. */
static int32_t first_of_all(const oracle *o, uint32_t tier)
{
    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES; c++)
        if (queue_of(o, tier, c)->n)
            return queue_of(o, tier, c)->items[0];
    return 0;
}

/* The next namespace that is over, behind the one that was last; ORACLE_NONE: none is. */
static uint32_t next_over(oracle *o, uint32_t tier)
{
    uint32_t n = o->config.max_namespaces;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t place = (*turn_of(o, tier) + i) % n;

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

/* The block or slot that a take for a namespace takes. The caller knows that there is one. */
int32_t oracle_choose(oracle *o, uint32_t tier, uint64_t ns_handle)
{
    int32_t first = first_of_all(o, tier), own = 0;
    uint32_t place = o->config.quotas ? oracle_find_ns(o, ns_handle) : ORACLE_NONE;
    bool full = o->config.quotas && is_full(o, place, tier);
    uint32_t other;

    if (o->policy && oracle_block_sealed(o, first))
        return oracle_learned_choose(o, first);
    if (!o->config.quotas)
        return first;
    if (!has_content(o, tier, first)) {
        o->marks.quota_idle += full;
        return first;
    }
    own = full ? first_of(o, &o->namespaces[place], tier) : 0;
    if (own) {
        o->marks.quota_own += own != first;
        o->marks.quota_own_host += own != first && tier == KVP_HOST;
        o->marks.quota_own_slot += own != first && tier == KVP_STATE_SLOTS;
        return own;
    }
    o->marks.quota_held += full;
    other = next_over(o, tier);
    if (other == ORACLE_NONE)
        return first;
    o->marks.quota_turns += count_over(o, tier) > 1;
    *turn_of(o, tier) = (other + 1) % o->config.max_namespaces;
    own = first_of(o, &o->namespaces[other], tier);
    o->marks.quota_others += own != first;
    o->marks.quota_others_slot += own != first && tier == KVP_STATE_SLOTS;
    return own;
}

/* The tier's cached block, or the slot, that a take for a namespace below its quota evicts, if
 * nothing is free; 0: none is cached. `turn`: whose it is after that. */
int32_t oracle_coldest(oracle *o, uint32_t tier, uint32_t *turn)
{
    int32_t first = 0;
    uint32_t other;

    for (uint32_t c = 0; c < KVP_RETENTION_CLASSES && !first; c++) {
        const oracle_queue *queue = queue_of(o, tier, c);

        for (uint32_t i = 0; i < queue->n && !first; i++)
            first = has_content(o, tier, queue->items[i]) ? queue->items[i] : 0;
    }
    if (first && o->policy)
        return oracle_learned_choose(o, first);
    other = o->config.quotas ? next_over(o, tier) : ORACLE_NONE;
    if (!first || other == ORACLE_NONE)
        return first;
    *turn = (other + 1) % o->config.max_namespaces;
    o->marks.reclaim_over++;
    return first_of(o, &o->namespaces[other], tier);
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
    if (call->tier > KVP_STATE_SLOTS ||
        (call->tier == KVP_STATE_SLOTS ? !o->config.state_slots : !o->pools[call->tier].n))
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
    info->state_quota = ns->quotas[KVP_STATE_SLOTS];
    info->state_slots = count_blocks(o, ns, KVP_STATE_SLOTS, false);
    info->cached_state_slots = count_blocks(o, ns, KVP_STATE_SLOTS, true);
    for (uint32_t i = 1; i < o->config.host_state_slots; i++)
        info->host_state_slots += o->host_slots[i].refs && o->host_slots[i].ns_handle == ns->handle;
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
