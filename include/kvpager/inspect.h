/* kvpager/inspect.h: read what is in a cache that another process uses.
 *
 *   memory = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);     the owner: a cache in
 *   kvp_cache_create(&config, memory, n, &cache);                            a file (/dev/shm/x)
 *
 *   kvp_arena_inspect(&source, &options, &report);             another process, at any time
 *   kvpager inspect /dev/shm/x                                 the same as a command
 *
 * The inspector takes no lock and writes nothing; the owner does not notice it. It copies what it
 * needs of the arena and reads the copy.
 *
 *   One moment  Every call marks in the arena that it is inside, at the cost of two stores.
 *               Configuration and figures are read again until no call was inside. The rest takes
 *               longer. If calls were made meanwhile, the state is KVP_ARENA_MOVING: sequences and
 *               blocks were read at several moments, and may not add up.
 *   Any bytes   Nothing in the arena is trusted. Sizes and offsets must be those that the
 *               configuration gives, and everything that points somewhere is checked first. A
 *               damaged or forged arena is refused or reported as damaged.
 *   Whole       A copy of one moment is audited as kvp_cache_check(cache, 3, ...) audits a cache.
 *   Version     The layout of arenas changes from version to version. Inspector and owner must have
 *               the same version and the same kind of machine.
 *   Not secret  An arena holds token values and the hash seed: make the file readable by its owner
 *               only.
 */
#ifndef KVPAGER_INSPECT_H
#define KVPAGER_INSPECT_H

#include "quotas.h"
#include "snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first bytes of an arena in which there is a cache, of any version. */
#define KVP_ARENA_MARK       "kvparena"
#define KVP_ARENA_MARK_BYTES 8

/* Where an arena's bytes are: a file, a mapping, another process's memory. `read` gives exactly the
 * n_bytes at `offset`, which lie before the source's own n_bytes, and returns 0; else it failed.
 * Reading a file (pread) is safer than a mapping: one that is cut is an error, no signal. */
typedef struct kvp_arena_source {
    void *context;
    uint64_t n_bytes;
    int (*read)(void *context, uint64_t offset, void *out_bytes, size_t n_bytes);
} kvp_arena_source;

/* An open sequence. */
typedef struct kvp_arena_seq {
    uint64_t tag;
    uint32_t
        ns; /* number of its namespace, as told before; UINT32_MAX: closed, or flushed, since */
    uint32_t tier; /* KVP_HOST: swapped out */
    uint32_t n_tokens;
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    uint32_t computed_tokens;
    uint32_t tree_tokens;
    uint32_t n_blocks; /* of its row */
} kvp_arena_seq;

typedef struct kvp_arena_options {
    size_t struct_size; /* set by kvp_arena_options_init */
    void *context;      /* of the functions */
    void (*tell)(void *context, const kvp_snapshot_item *item);
    /* namespaces in the order of their places, then, after all sequences, the blocks of
       both tiers, and the slots of recurrent state, in which something can be hit: what
       a snapshot would hold, for a moment between two steps. May be NULL */
    void (*tell_seq)(void *context, const kvp_arena_seq *seq); /* in places' order; may be NULL */
    uint64_t max_bytes; /* of memory for the copy; more: KVP_E_TOO_SMALL. 0: no limit (default). A
                           file with holes can claim far more than it has */
    /* If the owner has config.quotas: what a namespace has, directly after its item of `tell`. `ns`
       is its number there. May be NULL */
    void (*tell_quota)(void *context, uint32_t ns, const kvp_ns_info *info);
} kvp_arena_options;

/* Fill with the defaults: nothing is reported. NULL is ignored. Thread: pure. */
KVP_API void kvp_arena_options_init(kvp_arena_options *options);

enum {
    KVP_ARENA_WHOLE = 0,  /* of one moment, and every invariant holds */
    KVP_ARENA_MOVING = 1, /* calls were made while it was read, or one was inside all the time */
    KVP_ARENA_DAMAGED = 2 /* of one moment, and `violation` says what is wrong */
};

enum { KVP_ARENA_HELD = 0, KVP_ARENA_CACHED = 1, KVP_ARENA_PARKED = 2, KVP_ARENA_STATES = 3 };

typedef struct kvp_arena_report {
    KVP_EXTENSION union {
        kvp_config config; /* resolved; uncached_tokens is NULL */
        uint64_t config_room[64];
    };
    KVP_EXTENSION union {
        kvp_stats stats;
        uint64_t stats_room[128];
    };
    uint64_t arena_bytes;
    uint64_t calls;       /* that the owner has made */
    uint64_t calls_since; /* begun or ended after `stats` were read, before the end */
    uint32_t inside;      /* 1: a call was inside whenever `stats` were read: nothing adds up. The
                             owner is in a long call, was stopped in one, or died in it */
    uint32_t state;       /* KVP_ARENA_WHOLE, MOVING, DAMAGED */
    uint64_t blocks[2][KVP_GROUPS_MAX][KVP_ARENA_STATES]; /* counted one by one, by tier and group:
                             those that are not free; at n_groups slots of recurrent state */
    kvp_violation violation;                              /* DAMAGED */
    uint64_t unreachable_blocks; /* with recurrent state: cached ones of the device that no hit
                                    uses, as no checkpoint is at their units or after them */
} kvp_arena_report;

/* Look into an arena, once.
 *
 * Takes:   options      NULL: configuration and figures only; `blocks` stay 0 and nothing is
 *                       audited. O(1)
 * Gives:   out_report   on KVP_OK
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_FORMAT: no arena, one whose owner has destroyed its cache, a
 *          damaged configuration, or fewer bytes than that asks for; KVP_E_VERSION; KVP_E_IO when
 *          the source failed; KVP_E_TOO_SMALL: max_bytes is, for what the arena says is in use;
 *          KVP_E_NO_MEMORY
 * Thread:  any. Blocks: never. Cost: O(what is in use): works on a copy, mapped for the time of the
 *          call
 */
KVP_API kvp_status kvp_arena_inspect(const kvp_arena_source *source,
                                     const kvp_arena_options *options,
                                     kvp_arena_report *out_report);

#ifdef __cplusplus
}
#endif
#endif
