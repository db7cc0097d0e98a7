/* kvpager/stats.h: what a cache counts. A new counter is a line here, the place that counts it, and
 * the oracle's own count (test/model): kvp_cache_stats_get copies the struct as it is. */
#ifndef KVPAGER_STATS_H
#define KVPAGER_STATS_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Counters since creation, and gauges. */
typedef struct kvp_stats {  /* up to steps_out: gauges; then counters */
    uint64_t usable_blocks; /* N - 1 = free + cached + held + parked */
    uint64_t free_blocks;
    uint64_t cached_blocks;
    uint64_t held_blocks;
    uint64_t parked_blocks;    /* released; a step that is out may still touch them: steps.h */
    uint64_t peak_held_blocks; /* largest held_blocks at the end of any call */
    uint64_t watermark_blocks;
    uint64_t open_seqs;
    uint64_t open_namespaces;
    uint64_t nodes_used; /* nodes alive, roots included */
    uint64_t nodes_total;
    uint64_t pending_copies;
    uint64_t host_usable_blocks; /* host_blocks - 1 = host free + cached + held + loading; or 0 */
    uint64_t host_free_blocks;
    uint64_t host_cached_blocks;
    uint64_t host_held_blocks; /* by swapped sequences, copies of steps that are out, stores */
    uint64_t swapped_seqs;     /* of open_seqs */
    uint64_t steps_out;
    uint64_t opens; /* sequences opened (forks not counted) */
    uint64_t forks;
    uint64_t prompt_tokens;    /* tokens of all opens */
    uint64_t cached_tokens;    /* sum of kvp_open_info.cached_tokens */
    uint64_t taken_blocks;     /* blocks taken from the queue, evicting or not */
    uint64_t evicted_blocks;   /* cached blocks whose content was dropped: by a take, or drop.h */
    uint64_t sealed_units;     /* units attached to a block by commit, fill */
    uint64_t adopted_blocks;   /* rows switched to a block that was there */
    uint64_t duplicate_blocks; /* full blocks kept though the content was there (KVP_KEEP) */
    uint64_t copies;           /* copies put into the plan */
    uint64_t detached_units;   /* sealed units overwritten or invalidated */
    uint64_t private_units;    /* units filled that are not public: uncacheable */
    uint64_t unkept_units;     /* units filled for which no node was free: tokens not kept */
    uint64_t hash_collisions;  /* look-ups in which an equal hash was not the same prefix */
    uint64_t refused; /* calls that returned KVP_E_NO_BLOCKS or KVP_E_NEVER; no sequences of EACH */
    uint64_t host_tokens; /* sum of kvp_open_info.host_tokens */
    uint64_t swap_outs;   /* sequences */
    uint64_t swap_ins;
    uint64_t swapped_out_blocks;  /* copied by swap-outs */
    uint64_t swapped_in_blocks;   /* copied by swap-ins */
    uint64_t kept_blocks;         /* evicted from the device and kept on the host by a copy */
    uint64_t unkept_blocks;       /* evicted, wanted on the host; no room there or in the plan */
    uint64_t host_evicted_blocks; /* cached host blocks whose content was dropped likewise */
    uint64_t steps;               /* begun */
    uint64_t failed_steps;
    uint64_t dropped_blocks;      /* row entries that became null because of windows */
    uint64_t tree_tokens;         /* added to trees */
    uint64_t accepted_tokens;     /* of trees, that became tokens of their sequences */
    uint64_t host_loading_blocks; /* gauge: loads fill them; lend.h */
    uint64_t host_lent_blocks;    /* gauge: those, and the ones that stores read */
    uint64_t open_loads;          /* gauge */
    uint64_t plans_done;          /* plans that are over */
    uint64_t plans;               /* taken; with overlapped steps: steps begun */
    uint64_t loads;               /* begun */
    uint64_t loaded_blocks;       /* and states, by loads, and cached */
    uint64_t dropped_loads;       /* blocks that were whole and not needed any more */
    uint64_t failed_loads;        /* blocks that were not whole */
    uint64_t mirrored_blocks;
    uint64_t references;          /* blocks used by sequences, as they closed: KVP_POLICY_LEARNED */
    uint64_t fallback_references; /* of these, while the policy was LRU */
    uint64_t learned_hits;        /* blocks that leading groups of prompts hit on the device, and */
    uint64_t lru_hits;            /* that LRU would have hit of them: docs/POLICY.md */
    uint64_t host_unreachable;    /* gauge: units on the host that no prompt can hit: swap.h */
} kvp_stats;

/* Read counters and gauges. Each number is right by itself, also beside a running call. Together
 * they are exact only between calls. Returns: KVP_OK. Thread: any. Cost: O(1). */
KVP_API kvp_status kvp_cache_stats_get(const kvp_cache *cache, kvp_stats *out_stats);

#ifdef __cplusplus
}
#endif
#endif
