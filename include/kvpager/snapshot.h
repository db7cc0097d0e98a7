/* kvpager/snapshot.h: save what is cached as bytes, and restore it in another process.
 *
 *   kvp_snapshot_options options;
 *   kvp_snapshot_options_init(&options);
 *   options.model = "llama-8b fp16";
 *   options.model_bytes = 13;
 *   kvp_snapshot_save(cache, &options, &sink);                 at any time between two steps
 *   ...
 *   kvp_cache_create(&config, NULL, 0, &cache);                another process
 *   kvp_snapshot_load(cache, &options, &source, &report);      before anything is opened
 *   kvp_ns_open(cache, "tenant", 6, &ns);                      what it had cached can be hit
 *
 * A snapshot holds what is cached, not sequences. It has the names of namespaces, and the units
 * that can be hit (tokens, extra keys, prefix before). For every block with such units, of either
 * tier and every layer group, it has the units, the retention class and the place in the order of
 * eviction. Held blocks count as released, in the order in which closing all sequences, in the
 * order of their places, would release them. What cannot be hit any more (flushed namespaces,
 * invalidated units) is not saved: its blocks are free afterwards. docs/FORMATS.md has the bytes.
 *
 *   Bytes       With options.get the KV of each saved block is saved, too, and options.put restores
 *               it. Without options.get the memory must have survived (shared memory, a process
 *               image). Then ids stay, and n_blocks, host_blocks and state_slots must be the
 *               same.
 *   Continues   In a cache of the same sizes, everything is as if all sequences had been closed:
 *               the same block ids, hits and victims from there on. This holds if everything saved
 *               is restored, and nothing had become impossible to hit. With KVP_POLICY_LEARNED,
 *               report.learned tells whether victims are the same.
 *   States      Checkpoints of recurrent state (states.h) are saved like blocks, behind them. A
 *               state is a block of group n_groups with 1 token and state_bytes bytes. A checkpoint
 *               is left out, or dropped, if a group has no block with its unit.
 *   Sizes       Other n_blocks, host_blocks and state_slots (only with bytes), n_nodes,
 *               max_namespaces, max_unit_keys, max_seqs and policies are allowed. With other
 *               numbers of blocks or slots, all ids are new, and duplicates (blocks with the same
 *               content as another) lose the units that the other block has. What would have been
 *               evicted last is restored first, until there is no room.
 *   Verified    Every record has a checksum. A unit's hash is computed again from its tokens, keys
 *               and the prefix before it, up to the namespace's name and the hash seed. What does
 *               not agree is dropped before it can be matched, with all that depends on it. A
 *               truncated file restores what is whole. The report says how much was dropped, and
 *               why.
 *   Not secret  A snapshot holds token values, the hash seed, and KV: treat it as users' prompts.
 *               Checksums find damage, not forgery: load only what you wrote.
 *
 * Neither call is in an operation log: save changes nothing, and a restored cache, not being new,
 * cannot be recorded.
 */
#ifndef KVPAGER_SNAPSHOT_H
#define KVPAGER_SNAPSHOT_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of a snapshot's bytes. Another one is KVP_E_VERSION: start without it, and save
 * again. */
#define KVP_SNAPSHOT_VERSION 1

/* Where the bytes of a snapshot come from. `read` gives up to `capacity` bytes and says how many; 0
 * bytes are the end. It returns 0; any other value ends the file there. */
typedef struct kvp_source {
    void *context;
    int (*read)(void *context, void *out_bytes, size_t capacity, size_t *out_n);
} kvp_source;

/* A block whose KV is saved or restored. */
typedef struct kvp_snapshot_block {
    uint32_t tier;  /* KVP_DEVICE, KVP_HOST */
    uint32_t group; /* n_groups: `block` is a slot of recurrent state */
    int32_t block;
    uint32_t n_tokens; /* slots with KV, from the block's start; the rest does not matter */
} kvp_snapshot_block;

enum { KVP_SNAPSHOT_NAMESPACE = 0, KVP_SNAPSHOT_BLOCK = 1 };

/* What was restored, one by one. */
typedef struct kvp_snapshot_item {
    uint32_t kind;    /* KVP_SNAPSHOT_... */
    uint32_t ns;      /* number of the namespace in the file, from 0 */
    const void *name; /* NAMESPACE: [name_bytes], good during the call */
    uint32_t name_bytes;
    kvp_snapshot_block block; /* BLOCK: n_tokens to the end of its deepest unit */
    uint32_t retention;
    uint32_t n_units;       /* of this block that can be hit in it */
    uint32_t prefix_tokens; /* tokens from the start of the prompt to the end of the deepest unit */
    kvp_hash hash;          /* of the deepest unit */
    kvp_hash before;        /* of the unit before the block, or of the namespace */
} kvp_snapshot_item;

typedef struct kvp_snapshot_options {
    size_t struct_size;   /* set by kvp_snapshot_options_init */
    const void *model;    /* [model_bytes] what KV is of: model, revision, type; compared */
    uint32_t model_bytes; /* 0..255 */
    uint64_t block_bytes; /* KV bytes of a block, 1..2^31-1; 0: without bytes (default) */
    void *context;        /* of the functions */
    int (*get)(void *context, const kvp_snapshot_block *block, void *out_bytes);
    /* save, with bytes: [block_bytes], [state_bytes] of a slot; not 0 ends the save */
    int (*put)(void *context, const kvp_snapshot_block *block, const void *bytes);
    /* load, with bytes; not 0 drops the block. Called before the block can be
                             hit, with bytes whose checksum is right */
    void (*tell)(void *context, const kvp_snapshot_item *item); /* load: may be NULL */
    uint64_t state_bytes; /* of a slot of recurrent state, 1..2^31-1 if block_bytes is not 0; 0
                             (default): without. Not looked at for a cache without such state */
} kvp_snapshot_options;

/* Fill with the defaults: no model, no bytes. NULL is ignored. Thread: pure. */
KVP_API void kvp_snapshot_options_init(kvp_snapshot_options *options);

/* Why something was not restored. */
enum {
    KVP_DROP_DAMAGED = 0,  /* its record, or one that it depends on, is damaged or missing */
    KVP_DROP_CUT = 1,      /* the file ends before it */
    KVP_DROP_NO_ROOM = 2,  /* no block, node, key or namespace is left for it */
    KVP_DROP_UNCACHED = 3, /* it holds a token that this cache must not match */
    KVP_DROP_KV = 4,       /* its KV is damaged or missing, or put refused it */
    KVP_DROP_REASONS = 5
};

/* saved = restored + the sum of dropped, always. */
typedef struct kvp_snapshot_report {
    uint64_t saved_namespaces;
    uint64_t saved_blocks; /* both tiers, all groups, and checkpoints with a unit each */
    uint64_t saved_units;  /* in these blocks */
    uint64_t namespaces;   /* restored */
    uint64_t blocks;
    uint64_t units;
    uint64_t dropped_namespaces[KVP_DROP_REASONS];
    uint64_t dropped_blocks[KVP_DROP_REASONS];
    uint64_t dropped_units;
    uint64_t damaged_records; /* of any kind that were skipped */
    uint32_t complete;        /* 1: the file was read to its end mark */
    uint32_t learned;         /* 1: with all that the learned policy knew */
} kvp_snapshot_report;

/* What a file says of itself. */
typedef struct kvp_snapshot_info {
    uint32_t block_tokens;
    uint32_t unit_tokens;
    uint32_t n_blocks;
    uint32_t host_blocks;
    uint32_t n_groups;
    kvp_group groups[KVP_GROUPS_MAX];
    uint32_t max_unit_keys;
    uint32_t commit_policy;
    uint32_t steps;
    uint64_t hash_seed;
    uint64_t block_bytes; /* 0: without bytes */
    uint64_t n_namespaces;
    uint64_t n_nodes;
    uint64_t saved_blocks;
    uint64_t saved_units;
    uint32_t model_bytes;
    uint8_t model[255];
    uint32_t state_slots; /* 0: no recurrent state */
    uint64_t state_bytes; /* 0: without bytes */
} kvp_snapshot_info;

/* Save what is cached.
 *
 * Takes:   options      get is needed when block_bytes is not 0, and so is state_bytes if the cache
 *                       has recurrent state; put and tell are not used
 *          sink         gets whole records; must not call the cache
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_STATE while the plan holds copies or a step is out: what they
 *          bring is not there yet. Take the plan, run it, report the steps;
 *          KVP_E_NO_MEMORY; KVP_E_IO when the sink or get failed: what was written is a cut file
 * After-failure: unchanged, as is the cache on success
 * Thread:  cache. Cost: O(arena): works on a copy of it, mapped for the time of the call
 */
KVP_API kvp_status kvp_snapshot_save(kvp_cache *cache, const kvp_snapshot_options *options,
                                     const kvp_sink *sink);

/* Save what is cached into a file, which is replaced as a whole.
 *
 * The snapshot is written to a new file beside it (PATH.part-0, or the next free number), synced to
 * the disk, and renamed. After a full disk, kill -9 or a loss of power, `path` has either the old
 * snapshot or the whole new one. After KVP_OK it is the new one, and is on the disk. A process that
 * is killed leaves its part file behind. It can be deleted; a later save does not use it.
 *
 * The file is readable by its owner only. Only a file is replaced: a symbolic link, a device, a
 * FIFO or a folder at `path` is refused and stays. The folder must be readable, and writable.
 *
 * Takes:   options      as kvp_snapshot_save
 *          path         NUL-terminated, not empty
 * Gives:   out_error    on KVP_E_IO: what the system said, as errno; 0: options.get failed. May be
 *                       NULL
 * Returns: as kvp_snapshot_save; KVP_E_IO also: ENOSPC, EDQUOT and EFBIG of a full disk, EACCES,
 *          ENOENT without the folder, ELOOP for a link, EISDIR, ENOTSUP for what else is no file;
 *          on Windows EBUSY or EACCES while another process has the old file open
 * After-failure: the cache is unchanged, the new file is gone and the old one is there. If the
 *          folder could not be synced (the last step), the new file is there, but after a loss of
 *          power it may be the old one again
 * Thread:  cache. Blocks: io. Cost: as kvp_snapshot_save, and what the disk takes; allocates 64 KiB
 */
KVP_API kvp_status kvp_snapshot_save_file(kvp_cache *cache, const kvp_snapshot_options *options,
                                          const char *path, int *out_error);

/* Restore into a cache in which nothing was opened yet.
 *
 * The restored namespaces exist, but are not open. kvp_ns_open with the same name finds what was
 * cached, and kvp_ns_close by the last opener flushes it. Until then each takes one of
 * max_namespaces.
 *
 * Takes:   options      model as saved; put is needed when block_bytes is not 0
 *          source       read from its start to its end mark
 * Gives:   out_report   on KVP_OK; may be NULL
 * Returns: KVP_OK, also when much or all was dropped: read the report; KVP_E_ARG; KVP_E_STATE: a
 *          namespace was opened, a recording runs, or prefix_cache is 0; KVP_E_FORMAT: no
 *          snapshot, or its configuration is damaged; KVP_E_VERSION; KVP_E_MISMATCH: another S, U,
 *          group, hash seed, model, block_bytes or state_bytes, one has recurrent state and the
 *          other has none, or without bytes other n_blocks, host_blocks or state_slots;
 *          KVP_E_NO_MEMORY
 * After-failure: unchanged
 * Thread:  cache. Cost: O(bytes)
 */
KVP_API kvp_status kvp_snapshot_load(kvp_cache *cache, const kvp_snapshot_options *options,
                                     const kvp_source *source, kvp_snapshot_report *out_report);

/* Read what a file says of itself; no cache is needed.
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_FORMAT; KVP_E_VERSION. Thread: any */
KVP_API kvp_status kvp_snapshot_peek(const kvp_source *source, kvp_snapshot_info *out_info);

#ifdef __cplusplus
}
#endif
#endif
