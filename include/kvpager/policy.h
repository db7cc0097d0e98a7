/* kvpager/policy.h: what the learned policy has learned (docs/POLICY.md).
 *
 *   kvp_policy_class_get(cache, 0, &c);
 *   for (a = 0; a < KVP_POLICY_AGES; a++)
 *       share = c.seen[a] == 0 ? -1 : (double)c.used[a] / c.seen[a];    -1: it never saw any
 *
 * With config.policy = KVP_POLICY_LEARNED the cache counts, for each of KVP_POLICY_CLASSES classes
 * of content and KVP_POLICY_AGES bins of age, how much content there was and how much of it was
 * used again. It evicts what is worth its place least. These calls read the counts, what follows
 * from them, and when the policy was LRU instead. They change nothing, and are in no log.
 *
 * Content is counted in entries, of kvp_policy_info.entry_blocks blocks each: 512 tokens, or a
 * 128th of a small cache. An age is a number of block references. C is the number of blocks.
 */
#ifndef KVPAGER_POLICY_H
#define KVPAGER_POLICY_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVP_POLICY_CLASSES 64
#define KVP_POLICY_AGES    17

/* Units of the fields below. */
#define KVP_POLICY_ENTRY   16       /* of seen and used: one entry */
#define KVP_POLICY_DENSITY 0x800000 /* of density: one use for each C references of place */
#define KVP_POLICY_CREDIT  200      /* of credit: one block */

/* Why the policy is LRU. If several hold, references are counted for the first of them. */
enum {
    KVP_FALLBACK_NONE = 0,  /* it is not */
    KVP_FALLBACK_COLD = 1,  /* fewer than 2 C references were seen */
    KVP_FALLBACK_GUARD = 2, /* it has lost too much against LRU, and not paid it back */
    KVP_FALLBACK_GATE = 3   /* hardly anything comes back that LRU would have lost */
};

typedef struct kvp_policy_info {
    uint64_t references;       /* so far, since creation or the last reset: the policy's time */
    uint64_t cold_references;  /* counters since creation: references while the policy was LRU, by
                                  reason. They add up to kvp_stats.fallback_references */
    uint64_t guard_references; /* see cold_references */
    uint64_t gate_references;  /* see cold_references */
    uint64_t returned;         /* entries that were used again, halved from time to time */
    uint64_t returned_late;    /* of these, the ones that LRU had lost: the gate's share */
    int64_t credit;            /* hits above LRU's, as the guard counts them */
    int64_t credit_floor;      /* below it the policy is LRU until the credit is 0 */
    int64_t credit_limit;      /* it is never higher */
    uint32_t fallback;         /* KVP_FALLBACK_..., now */
    uint32_t entry_blocks;     /* blocks of an entry */
} kvp_policy_info;

/* Read why and for how long the policy was LRU, and what gate and guard look at.
 *
 * Gives:   out_info     on KVP_OK
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_STATE: config.policy is not KVP_POLICY_LEARNED
 * Thread:  read. Cost: O(1)
 */
KVP_API kvp_status kvp_policy_info_get(const kvp_cache *cache, kvp_policy_info *out_info);

/* One class: content of blocks with so many uses, of requests with so much output and so much new
 * in their prompts. A class ends where the next one of its kind begins. */
typedef struct kvp_policy_class {
    uint32_t least_uses;   /* 1, 2, 3 or 5 */
    uint32_t least_output; /* tokens: 0, 32, 256 or 512 */
    uint32_t least_new;    /* tokens behind the leading known blocks: 0, 513, 4097 or 32769 */
    uint32_t ages[KVP_POLICY_AGES]; /* where a bin begins, in 32nds of C; the last ends at 512 */
    uint32_t seen[KVP_POLICY_AGES]; /* content that lived through the bin, or was used again in it;
                                       halved from time to time */
    uint32_t used[KVP_POLICY_AGES]; /* of that, what was used again in it */
    uint32_t density[KVP_POLICY_AGES];      /* uses to expect for place and time if it stays from
                                               the begin of the bin for as long as pays best */
    uint32_t best_density[KVP_POLICY_AGES]; /* the same at the best of this and all later bins */
} kvp_policy_class;

/* Read the table of a class.
 *
 * Densities are computed again for four classes after each request, so they may be 16 requests
 * behind the counts. Content of a class that was rarely seen is taken to be like the others: its
 * density is a belief, as long as `seen` is small.
 *
 * Takes:   class_       below KVP_POLICY_CLASSES: (uses x 4 + output) x 4 + new, each 0..3
 * Gives:   out_class    on KVP_OK
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_STATE: config.policy is not KVP_POLICY_LEARNED
 * Thread:  read. Cost: O(1)
 */
KVP_API kvp_status kvp_policy_class_get(const kvp_cache *cache, uint32_t class_,
                                        kvp_policy_class *out_class);

/* Tell where the prompt of a sequence ends, if it was opened with output behind it, of a request
 * that was preempted and is computed again; or in part, and extended.
 *
 * The learned policy counts what is behind as output when the sequence closes; windows retain this
 * place (windows.h); and kvp_seq_info.prompt_tokens is n_tokens. Nothing else changes. The
 * scheduler makes this call.
 *
 * Takes:   n_tokens     of the prompt, at most those of the sequence
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_ARG: the sequence has fewer tokens
 * After-failure: unchanged
 * Thread:  cache. Cost: O(1)
 */
KVP_API kvp_status kvp_seq_prompt_end(kvp_cache *cache, kvp_seq seq, uint32_t n_tokens);

#ifdef __cplusplus
}
#endif
#endif
