/* kvpager/reasons.h: why tokens of prompts are computed, counted while an engine runs.
 *
 *   kvp_reasons_init(reasons, 1 << 16);                   kvp_reasons_bytes(1 << 16) bytes
 *   kvp_hash_units(&input, &root, hashes);                hash.h; each namespace has its root
 *   kvp_reasons_admit(reasons, &prompt, NULL);            when kvp_seq_open has told what was hit
 *   kvp_reasons_computed(reasons, hashes, n, n);          when its KV is there; also behind answers
 *
 * Each prompt is cut in order. Every cut counts for all that is behind it, up to the next, so the
 * parts add up to the prompt:
 *
 *   | hit | resident | evicted | in flight | grid or new | last |
 *
 * What a cache has is known to it; what it had is not. The record here remembers units by their
 * hashes: which ones were computed once, and which ones a prompt is computing now. It has a fixed
 * size and forgets the units that were not used for longest. A forgotten unit counts as new, so
 * evicted tokens are a lower bound: kvp_reasons_stats.forgotten_units says how much may lack.
 * A record of as many units as all tiers, and as many again for each time that memory might grow by
 * its present size, shows what that memory would bring.
 */
#ifndef KVPAGER_REASONS_H
#define KVPAGER_REASONS_H

#include "hash.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KVP_REASON_HIT = 0,       /* not computed */
    KVP_REASON_RESIDENT = 1,  /* there, and not brought back: a window, a state or room lacks */
    KVP_REASON_EVICTED = 2,   /* from a unit on that was computed once, and is gone */
    KVP_REASON_IN_FLIGHT = 3, /* from a unit on that another prompt is computing */
    KVP_REASON_GRID = 4,      /* behind the last full unit, where all full units are known */
    KVP_REASON_NEW = 5,       /* from a unit on that is not in the record */
    KVP_REASON_UNCACHED = 6,  /* from a token on that must not be cached, or no hits are taken */
    KVP_REASON_LAST = 7,      /* the last token, which is always computed */
    KVP_REASONS = 8
};

/* Name a reason as statistics show it: "hit", "resident", "evicted", "in_flight", "grid", "new",
 * "uncached", "last"; "?" for a number that is none. Gives: a static string. Thread: pure. */
KVP_API const char *kvp_reason_name(uint32_t reason);

/* A record, in memory of the caller's. */
typedef struct kvp_reasons kvp_reasons;

/* A prompt that is admitted. Set everything to zero, then the fields. */
typedef struct kvp_reasons_prompt {
    uint32_t unit_tokens;   /* U, 1..KVP_BLOCK_TOKENS_MAX */
    uint32_t n_tokens;      /* any */
    const kvp_hash *hashes; /* [n_tokens / U] of its units, as kvp_hash_units makes them */
    uint32_t cached_tokens; /* as kvp_open_info has it, below n_tokens unless both are 0 */
    uint32_t stop;          /* KVP_STOP_... likewise. An engine with another cache says
                               KVP_STOP_MISS, or KVP_STOP_NO_ROOM for what is somewhere and was not
                               brought back */
    uint32_t stop_group;    /* likewise; 0 */
    uint32_t full_groups; /* bit g: layer group g keeps all tokens (kvp_group.recent_tokens is 0) */
} kvp_reasons_prompt;

typedef struct kvp_reasons_stats {
    uint64_t tokens[KVP_REASONS]; /* of all prompts; together their n_tokens */
    uint64_t prompts;
    uint64_t units;           /* gauge: in the record */
    uint64_t max_units;       /* that it can hold: at least what was asked for */
    uint64_t forgotten_units; /* that were computed once, and had to make room */
} kvp_reasons_stats;

/* How much memory a record takes: 16 bytes a unit, rounded up to a power of two.
 * Takes:   max_units    1..2^28
 * Returns: bytes; 0 when max_units is out of range. Thread: pure */
KVP_API size_t kvp_reasons_bytes(uint32_t max_units);

/* Begin with an empty record and no counts.
 * Takes:   reasons      kvp_reasons_bytes(max_units) bytes, aligned to 8
 * Returns: KVP_OK; KVP_E_ARG: NULL, or max_units is out of range
 * Owns:    the memory is the caller's; nothing is to be closed
 * Thread:  one call at a time for a record, here and below. Cost: O(max_units) */
KVP_API kvp_status kvp_reasons_init(kvp_reasons *reasons, uint32_t max_units);

/* Cut a prompt, count its parts, and remember its units: what is behind the hit is in flight.
 *
 * Call it once a prompt, when it is admitted for the first time. A prompt that is admitted again
 * after a preemption is computed again for another reason (kvp_sched_stats). If room ended the
 * match, or a layer group that is not in full_groups (a window, a state), known units behind the
 * hit count as resident, else as evicted.
 *
 * Takes:   prompt
 * Gives:   out_tokens   [KVP_REASONS] the parts, which add up to n_tokens; may be NULL
 * Returns: KVP_OK; KVP_E_ARG: also for sizes that are out of range
 * After-failure: unchanged
 * Cost:    O(n_tokens / U), a cache miss each; allocates nothing */
KVP_API kvp_status kvp_reasons_admit(kvp_reasons *reasons, const kvp_reasons_prompt *prompt,
                                     uint32_t *out_tokens);

/* The first n_computed of these units have their KV now; the others are not in flight any more.
 *
 * Call it when a prompt is computed, and when a request ends, with the units of its answer too.
 * One that was aborted names what it had computed.
 *
 * Takes:   hashes       [n_units]
 *          n_computed   <= n_units
 * Returns: KVP_OK; KVP_E_ARG
 * Cost:    O(n_units), a cache miss each; allocates nothing */
KVP_API kvp_status kvp_reasons_computed(kvp_reasons *reasons, const kvp_hash *hashes,
                                        uint32_t n_units, uint32_t n_computed);

/* Read the counts. Returns: KVP_OK; KVP_E_ARG. Cost: O(1) */
KVP_API kvp_status kvp_reasons_stats_get(const kvp_reasons *reasons, kvp_reasons_stats *out_stats);

#ifdef __cplusplus
}
#endif
#endif
