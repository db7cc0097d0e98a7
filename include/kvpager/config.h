/* kvpager/config.h: what a cache is made with. kvp_config_init sets the defaults; most engines set
 * block_tokens, n_blocks, max_seqs and max_seq_tokens, and leave the rest. */
#ifndef KVPAGER_CONFIG_H
#define KVPAGER_CONFIG_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What commit does when a full block's content is in another block already. */
enum {
    KVP_ADOPT = 0, /* switch the row to the block that is there, release ours (default) */
    KVP_KEEP = 1   /* rows are append-only: ours stays a private duplicate */
};

/* What open does when every token of the prompt is cached. */
enum {
    KVP_FULL_HIT_SHARE = 0,    /* share all; the last token's KV is there: not written (default) */
    KVP_FULL_HIT_RECOMPUTE = 1 /* end the hit at the last block boundary before the last token */
};

/* When a released block may be taken again: see steps.h. */
enum {
    KVP_STEPS_ORDERED = 0,   /* at once: later work runs after earlier work (default) */
    KVP_STEPS_OVERLAPPED = 1 /* when the steps that may still touch it are done */
};

/* Which cached block a take evicts: the head of the queue (default), or by what came back, without
 * quotas, groups, windows and KVP_KEEP (docs/POLICY.md). */
enum { KVP_POLICY_LRU = 0, KVP_POLICY_LEARNED = 1 };

/* retain_tokens: no multiples, only places that prompts give (windows.h). */
#define KVP_RETAIN_PROMPTS UINT32_MAX

typedef struct kvp_config {
    size_t struct_size;         /* set by kvp_config_init */
    uint32_t block_tokens;      /* S, 1..65536; default 16 */
    uint32_t unit_tokens;       /* U, divides S; 0 = S (default) */
    uint32_t n_blocks;          /* N, null block included, 2..2^31-1; default 1024 */
    uint32_t max_seqs;          /* open at once, forks included, 1..2^20; default 256 */
    uint32_t max_seq_tokens;    /* tokens and reserve of one sequence, 1..2^31-1; default 32768 */
    uint32_t max_namespaces;    /* open at once, 1..65536; default 16 */
    uint32_t n_nodes;           /* prefix nodes, roots included, > max_namespaces, up to 2^31-2;
                                    0 = enough for all units of the pools and 1/64 more, with a host
                                    tier 1/4, with states 1/1. None free: content is evicted */
    uint32_t max_unit_keys;     /* extra keys that may touch one unit, 0..64; default 0 */
    uint32_t max_copies;        /* that wait, or are out; 0 = max_seqs + 64, + n_blocks with host */
    uint32_t commit_policy;     /* KVP_ADOPT, KVP_KEEP */
    uint32_t full_hit;          /* KVP_FULL_HIT_SHARE, KVP_FULL_HIT_RECOMPUTE */
    uint32_t prefix_cache;      /* 0: nothing is matched or published; default 1 */
    double watermark;           /* 0 <= w < 1: floor(w * (N-1)) blocks kept free when opening */
    uint64_t hash_seed;         /* default 0 */
    uint32_t n_uncached_tokens; /* size of the set below; default 0 */
    uint32_t test_hash_bits;    /* tests only: bits of the hash for look-ups, 1..32; 0 = all */
    const int32_t *uncached_tokens; /* [n_uncached_tokens] ids never matched or published; copied */
    uint32_t host_blocks;     /* of the host tier, null block included; 0: none (default), else
                               2..2^31-1; with N fewer than 2^32-1 units of U; see swap.h */
    uint32_t keep_evicted;    /* on the host: KVP_EVICTED_KEEP (default), _DROP, _KEEP_ONCE */
    uint32_t steps;           /* KVP_STEPS_ORDERED, KVP_STEPS_OVERLAPPED */
    uint32_t max_steps_out;   /* steps begun and not reported, 1..64; default 4; see steps.h */
    uint32_t max_events;      /* events that are remembered; 0 (default): none are made; events.h */
    uint32_t max_tree_tokens; /* tokens of one sequence's tree, 0..65536; default 0; trees.h */
    uint32_t n_groups;        /* layer groups, 1..8; default 1; windows.h */
    kvp_group groups[KVP_GROUPS_MAX]; /* [n_groups] zero: no window, blocks of S tokens */
    uint32_t quotas;                  /* 1: quotas of namespaces can be set; default 0; quotas.h */
    uint32_t max_loads;   /* begun at once, with a host tier, 0..4096; default 0: none; lend.h */
    uint32_t lent_blocks; /* most host blocks lent at once; 0 = half of them, with max_loads */
    uint32_t policy;      /* KVP_POLICY_LRU, KVP_POLICY_LEARNED */
    uint32_t state_slots; /* of recurrent state: 2..2^30, slot 0 too; 0 (default): none; states.h */
    uint32_t host_state_slots; /* the same on the host: if there are state_slots and host_blocks */
    uint32_t retain_tokens;    /* window blocks for hits at multiples of it, a multiple of U up to
                                  2^31-1, and at prompts' places stay longer than others;
                                  KVP_RETAIN_PROMPTS; 0 (default): all stay alike; windows.h */
} kvp_config;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
KVP_API void kvp_config_init(kvp_config *config);

/* Check a configuration, as kvp_cache_bytes and kvp_cache_create do.
 * Gives:   out_why      written always; may be NULL
 * Returns: KVP_OK; KVP_E_ARG. Thread: pure */
KVP_API kvp_status kvp_config_check(const kvp_config *config, kvp_why *out_why);

#ifdef __cplusplus
}
#endif
#endif
