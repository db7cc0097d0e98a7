/* kvpager/quotas.h: how many blocks a namespace may have before its own go first.
 *
 *   config.quotas = 1;
 *   ...
 *   kvp_ns_open(cache, "tenant-7", 8, &ns);
 *   kvp_ns_quota(cache, ns, KVP_DEVICE, 2000);      others' cached blocks are safe from it
 *   kvp_ns_quota(cache, ns, KVP_HOST, 8000);
 *   ...
 *   kvp_ns_info_get(cache, ns, &info);              info.blocks, info.cached_blocks
 *
 * Without quotas one tenant with many distinct prompts evicts what all others have cached. A quota
 * bounds what that tenant can take from them. It never makes a call fail, and never leaves memory
 * idle: a namespace may have more blocks than its quota as long as nobody needs them.
 *
 * What counts. A block counts for the namespace of the sequence that it was taken for (a restored
 * block: for its namespace), from then until it is free, or parked without content. Held, cached
 * and parked blocks count once each, however many sequences hold them: forks and hits add nothing,
 * a copy-on-write, a duplicate and a copy from the host add one each. Blocks of all layer groups
 * count alike; null entries of a window do not. Each tier counts for itself: a swapped sequence's
 * blocks count on the host, a block that is kept there (swap.h) for the namespace that it was
 * evicted from. A flush changes no count: what it forgot is memory that the namespace still has,
 * and is the first to go. When the last opener closes, its blocks count for nobody, and the quota
 * is forgotten; so is the count, not the quota, on kvp_cache_reset.
 *
 * Which block a take takes. One of a tier for a namespace T, in this order:
 *   1. the first block in the queue (cache.h), if it is free;
 *   2. if T has a cached block there, and as many blocks as its quota or more: the first cached
 *      block of T;
 *   3. if namespaces are over their quotas (more blocks than the quota, at least one of them
 *      cached): the first cached block of one of them. They take turns in the order of their
 *      places, beginning behind the one that was last, with the lowest after a reset; a namespace
 *      opens at the lowest free place;
 *   4. the first block in the queue.
 * "The first" of a namespace is that of its blocks which stands first in the queue: the lowest
 * retention class, in it the one that was released first. Case 2 goes before 3: whoever is at its
 * quota lives on its own blocks.
 *
 * What follows, for a namespace with quota Q that holds fewer than Q blocks: its takes evict only
 * its own blocks, or those of others that are over their quotas, once it has Q. If what its
 * running sequences hold reaches Q, it has nothing of its own to give, and takes from the queue
 * (4): a quota bounds the cache of a namespace, not its running sequences; limit these where
 * requests are admitted. As keeping evicted content is optional, that is not done in such a case:
 * content of a namespace with as many host blocks as its quota, which has none cached there, is
 * not kept if that evicts content of a namespace which is not over (counted in unkept_blocks).
 *
 * Quotas change which block is taken, nothing else: whether a call succeeds, what is missing, and
 * the order of the queue are as without. A snapshot does not save them: set them again after the
 * restored namespace is opened. They cost 16 bytes for each block, and some nanoseconds for each
 * block taken, released or hit; without config.quotas, nothing.
 */
#ifndef KVPAGER_QUOTAS_H
#define KVPAGER_QUOTAS_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVP_NO_QUOTA UINT32_MAX

/* Set the quota of a namespace on a tier.
 *
 * From the next take on. With 0, nothing of it is safe from anybody; KVP_NO_QUOTA, which every
 * namespace has when it is opened: it is never over.
 *
 * Takes:   tier         KVP_DEVICE, KVP_HOST
 *          n_blocks     any number, also more than there are
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_ARG: there is no such tier; KVP_E_STATE: config.quotas is 0
 * After-failure: unchanged
 * Thread:  cache. Cost: O(1)
 */
KVP_API kvp_status kvp_ns_quota(kvp_cache *cache, kvp_ns ns, uint32_t tier, uint32_t n_blocks);

/* What a namespace has. */
typedef struct kvp_ns_info {
    uint64_t openers;
    uint32_t quota;         /* KVP_NO_QUOTA: none */
    uint32_t blocks;        /* that count for it: held, cached, parked with content */
    uint32_t cached_blocks; /* of them, cached */
    uint32_t host_quota;    /* the same on the host; without a host tier KVP_NO_QUOTA, 0, 0 */
    uint32_t host_blocks;
    uint32_t host_cached_blocks;
} kvp_ns_info;

/* Read what a namespace has.
 *
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_STATE: config.quotas is 0: blocks are not counted
 * Thread:  read. Cost: O(1)
 */
KVP_SIZED kvp_status kvp_ns_info_get(const kvp_cache *cache, kvp_ns ns, kvp_ns_info *out_info);

#include "sized/quotas.h"

#ifdef __cplusplus
}
#endif
#endif
