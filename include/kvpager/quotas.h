/* kvpager/quotas.h: how many blocks a namespace may have before its own are evicted first.
 *
 *   config.quotas = 1;
 *   ...
 *   kvp_ns_open(cache, "tenant-7", 8, &ns);
 *   kvp_ns_quota(cache, ns, KVP_DEVICE, 2000);      others' cached blocks are safe from it
 *   kvp_ns_quota(cache, ns, KVP_HOST, 8000);
 *   ...
 *   kvp_ns_info_get(cache, ns, &info);              info.blocks, info.cached_blocks
 *
 * Without quotas, one tenant with many distinct prompts evicts what all others have cached. A quota
 * bounds what that tenant can take from them. It never makes a call fail, and never leaves memory
 * idle: a namespace may have more blocks than its quota while no other namespace needs them.
 *
 * What counts. A block counts for the namespace of the sequence that it was taken for (a restored
 * block: for its namespace). It counts from then until it is free, or parked without content. Held,
 * cached and parked blocks count once each, however many sequences hold them. So forks and hits add
 * nothing; a copy-on-write, a duplicate and a copy from the host add one each. Blocks of all layer
 * groups count equally; null entries of a window do not count. Each tier counts separately: a
 * swapped sequence's blocks count on the host. A block that is kept there (swap.h) counts for the
 * namespace that it was evicted from. A flush changes no count: the forgotten blocks are memory
 * that the namespace still has, and go first. When the last opener closes, its blocks count for no
 * namespace, and the quota is forgotten. kvp_cache_reset sets the count to 0, and keeps the quota.
 *
 * Which block a take takes. For a namespace T on one tier, in this order:
 *   1. the first block in the queue (cache.h), if it is free;
 *   2. if T has a cached block there, and as many blocks as its quota or more: the first cached
 *      block of T;
 *   3. if namespaces are over their quotas (more blocks than the quota, at least one of them
 *      cached): the first cached block of one of them. They take turns in the order of their
 *      places, beginning behind the one that was last. After a reset the lowest begins. A namespace
 *      opens at the lowest free place;
 *   4. the first block in the queue.
 * "The first" block of a namespace stands first in the queue: in the lowest retention class, the
 * one that was released first. Case 2 comes before 3: a namespace at its quota uses its own blocks.
 *
 * What follows, for a namespace with quota Q that holds fewer than Q blocks: once it has Q blocks,
 * its takes evict only its own blocks, or those of others that are over their quotas. If its
 * running sequences hold Q blocks, it has no cached block to give, and takes from the queue (4). So
 * a quota bounds the cache of a namespace, not its running sequences; limit these where requests
 * are admitted. Keeping evicted content is optional, so it gives way here. Say a namespace has as
 * many host blocks as its quota, none of them cached. Its content is not kept on the host (counted
 * in unkept_blocks) if that would evict content of a namespace that is not over its quota.
 *
 * Slots of recurrent state (states.h) are counted beside blocks, by the same rules, with a quota of
 * their own: without it, a tenant could evict all checkpoints of others, and what they made
 * reachable, with few blocks. A slot counts for the namespace of the sequence that it was taken
 * for, also as a checkpoint. A checkpoint that goes with a block that is evicted is not chosen by
 * these rules. On the host slots are counted but have no quota: nothing is evicted there.
 *
 * Quotas change only which block is taken. Whether a call succeeds, what is missing, and the order
 * of the queue stay the same. A snapshot does not save quotas: set them again after the restored
 * namespace is opened. They cost 16 bytes for each block or slot, and some nanoseconds for each one
 * taken, released or hit; without config.quotas, nothing.
 */
#ifndef KVPAGER_QUOTAS_H
#define KVPAGER_QUOTAS_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVP_NO_QUOTA UINT32_MAX

/* Set the quota of a namespace on a tier, or for slots of state, from the next take on.
 *
 * With 0, all its cached blocks may be taken by others first. With KVP_NO_QUOTA, the value when it
 * is opened, a namespace is never over its quota.
 *
 * Takes:   tier         KVP_DEVICE, KVP_HOST; KVP_STATE_SLOTS (states.h)
 *          n_blocks     or slots: any number, also more than there are
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_ARG: there is no such tier; KVP_E_STATE: config.quotas is 0
 * After-failure: unchanged
 * Thread:  cache. Cost: O(1)
 */
KVP_API kvp_status kvp_ns_quota(kvp_cache *cache, kvp_ns ns, uint32_t tier, uint32_t n_blocks);

/* What a namespace has. A log (oplog.h) has all but the last four. */
typedef struct kvp_ns_info {
    uint64_t openers;
    uint32_t quota;         /* KVP_NO_QUOTA: none */
    uint32_t blocks;        /* that count for it: held, cached, parked with content */
    uint32_t cached_blocks; /* of them, cached */
    uint32_t host_quota;    /* the same on the host; without a host tier KVP_NO_QUOTA, 0, 0 */
    uint32_t host_blocks;
    uint32_t host_cached_blocks;
    uint32_t state_quota; /* the same for slots of state; without them KVP_NO_QUOTA, 0, 0 */
    uint32_t state_slots;
    uint32_t cached_state_slots; /* checkpoints without a holder */
    uint32_t host_state_slots;   /* of sequences that are swapped out */
} kvp_ns_info;

/* Read what a namespace has.
 *
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_STATE: config.quotas is 0: blocks are not counted
 * Thread:  read. Cost: O(1)
 */
KVP_API kvp_status kvp_ns_info_get(const kvp_cache *cache, kvp_ns ns, kvp_ns_info *out_info);

#ifdef __cplusplus
}
#endif
#endif
