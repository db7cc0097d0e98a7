/* kvpager/llama.h: kvpager in front of an unmodified llama.cpp.
 *
 *   kvp_llama_config_init(&config);
 *   kvp_llama_create(&config, model, &params, &engine, &why);      makes the llama_context, too
 *   sched = kvp_llama_sched(engine);
 *   kvp_sched_submit(sched, &submission, &request, NULL);          requests are the scheduler's
 *   while (kvp_llama_run(engine, &step) == KVP_OK && step.n_seqs > 0) {
 *       for (i = 0; i < step.n_sampled; i++)
 *           tokens[i] = your_sampler(kvp_llama_logits(engine, i));
 *       kvp_llama_finish(engine, tokens, ended, &end);
 *   }
 *
 * The scheduler (sched.h) decides which sequences compute which tokens, llama_decode computes them,
 * and the cache decides what stays. On the device KV is never copied: llama.cpp gives each token
 * a cell, and a cell may belong to several sequence ids. So a hit is llama_memory_seq_cp, an
 * eviction is llama_memory_seq_rm of a block's positions, and both touch bookkeeping only.
 *
 * How blocks and cells go together:
 *
 *   - The cache has a block for each block_tokens cells of the context. Each (block, slot) that was
 *     written stands for one cell, so llama.cpp never has more cells in use than the cache has
 *     slots, and llama_decode finds a cell for every token. For this, an evicted block's positions
 *     are removed from the id that has them before the decode that may take its cells.
 *   - A sequence that runs has an id of its own. When it is closed, what stays cached is moved to
 *     keepers: ids that are never decoded. A block that no running sequence has is in exactly one
 *     keeper. A keeper may hold blocks of several sequences, if their positions do not overlap; the
 *     keeper with the lowest id that has the place free gets the block.
 *   - llama.cpp has 256 ids. One is left out here, for copies of states. If more keepers would be
 *     needed than there are ids, the keeper whose newest block was released first is emptied: its
 *     blocks lose their content (drop.h), and kvp_llama_stats counts them.
 *   - Blocks are found again whole: a prompt that is cached to its end computes its last block
 *     again (KVP_FULL_HIT_RECOMPUTE), because a token that is run writes a cell.
 *   - With a host tier, what is evicted or swapped out is read before its cells are removed, in
 *     pieces of neighbouring blocks of one id. What comes back goes to keepers. A piece takes cells
 *     for all its blocks for a moment: so many are in no block.
 *   - With a sliding window llama.cpp takes cells that one id has and does not see any more. So an
 *     id that is longer than the window has a second id with the same cells, and the batch names
 *     both. Pieces have at most as many tokens as the window: longer states are not whole.
 *   - If llama_decode fails or is aborted, everything behind the last commit is removed from every
 *     id of the batch, and its requests wait again.
 *
 * Models. Every position must be a cell that stays until it is removed: plain attention. Refused by
 * name: recurrent and hybrid models, encoders, diffusion models, M-RoPE (positions of images are no
 * tokens), caches that compress, sliding windows without swa_full, and chunks (llama4) that are not
 * longer than max_seq_tokens.
 *
 * llama.cpp changes its structs between releases. This library is compiled with one llama.h, and
 * refuses a libllama whose llama_context_params has another size or other defaults. It is a static
 * library and has no stable ABI of its own: compile it, libllama and your program from one tree.
 *
 * Thread: all calls on an engine, its cache and its scheduler come from one thread at a time.
 */
#ifndef KVPAGER_LLAMA_H
#define KVPAGER_LLAMA_H

#include <kvpager/cache.h>
#include <kvpager/sched.h>

#ifdef __cplusplus
extern "C" {
#endif

struct llama_model;
struct llama_context;
struct llama_context_params;
struct llama_adapter_lora;

typedef struct kvp_llama kvp_llama;

typedef struct kvp_llama_config {
    size_t struct_size;       /* set by kvp_llama_config_init */
    uint32_t block_tokens;    /* S, 1..1024, or the model's window; default 16 */
    uint32_t max_ids;         /* sequence ids of the context, one of them never used, at least 4;
                                0 = 256: all that llama.cpp has */
    uint32_t max_running;     /* sequences that run at once, 1..(max_ids - 2) / 2, with a host tier
                                 / 3; if sequences may be longer than the model's sliding window,
                                 (max_ids - 3) / 4 and / 6; default 32 */
    uint32_t max_requests;    /* kvp_sched_config; default 1024 */
    uint32_t max_seq_tokens;  /* of one sequence; 0 = all cells */
    uint32_t step_tokens;     /* token budget of a step; 0 = the context's n_batch */
    uint32_t chunk_tokens;    /* kvp_sched_config */
    uint32_t wait_for_prefix; /* kvp_sched_config; default 1 */
    double watermark;         /* kvp_config; default 0.01 */
    uint64_t arena_tokens;    /* kvp_sched_config; default 2^20 */
    /* What else cache and scheduler shall have, as max_namespaces, quotas or max_samples. Fill them
       with kvp_config_init and kvp_sched_config_init first. Fields that are named above, n_blocks,
       max_seqs, full_hit and steps are not read: the engine sets them. Refused: unit_tokens other
       than 0 or block_tokens, commit_policy other than KVP_ADOPT, several groups, trees,
       recurrent state, a host tier (see below). max_copies 0 with a host tier: so many that a step
       may exchange all blocks. max_loads and lent_blocks count with a host tier only. Read during
       kvp_llama_create; NULL (default): the defaults */
    const kvp_config *cache;
    const kvp_sched_config *sched;
    /* Host tier: what is evicted, or swapped out (kvp_sched_config.preempt), in host memory. Only
       with flash attention ENABLED in the context's parameters: else host_blocks count as 0, and
       kvp_llama_create says so in out_why, with KVP_OK */
    uint32_t host_blocks;    /* null block included, 0 (default): none, else 2..2^31-1 */
    uint32_t stretch_tokens; /* most tokens that are copied in one piece, or the model's window if
                                that is less; so many cells are left out of the blocks. 1..half of
                                the cells; default 256 */
    uint32_t idle_cells;     /* cells of cached blocks that no request uses, at most, when
                                        a step begins: llama.cpp's attention walks over idle cells,
                                        too. The coldest ones are dropped. 0 (default): all cells */
    uint64_t (*now_ns)(void *clock); /* NULL (default): the monotonic clock */
    void *clock;
} kvp_llama_config;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
void kvp_llama_config_init(kvp_llama_config *config);

/* Say whether this library can serve a model with such a context.
 *
 * Takes:   model
 *          params       of the context that is wanted; read
 * Gives:   out_why      written always; its text names what is refused; may be NULL
 * Returns: KVP_OK; KVP_E_ARG: NULL, or the model or the context is refused; KVP_E_VERSION: the
 *          libllama in this process does not fit the llama.h that this library was compiled with
 * After-failure: unchanged
 * Thread:  any
 */
kvp_status kvp_llama_check_model(const struct llama_model *model,
                                 const struct llama_context_params *params, kvp_why *out_why);

/* Create an engine: a context of llama.cpp, a cache and a scheduler.
 *
 * Takes:   config       copied
 *          model        must outlive the engine
 *          params       of the context; kv_unified and n_seq_max are set by the call. n_ctx is the
 *                       number of cells, for all sequences together
 * Gives:   out_engine
 *          out_why      written always; zero if nothing is refused, and the host tier that was
 *                       asked for is there; may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_VERSION as kvp_llama_check_model; KVP_E_NO_MEMORY: also when
 *          llama.cpp could not make the context
 * After-failure: unchanged
 * Owns:    kvp_llama_destroy frees the context, the cache and the scheduler
 * Thread:  any          Cost: O(cells), and making the context; the only call that allocates
 */
kvp_status kvp_llama_create(const kvp_llama_config *config, struct llama_model *model,
                            const struct llama_context_params *params, kvp_llama **out_engine,
                            kvp_why *out_why);

/* Abort every request and free the engine. NULL is ignored. */
void kvp_llama_destroy(kvp_llama *engine);

/* Give the engine's parts: submit, abort, pause and ask there. The caller makes no steps, opens no
 * sequences and takes no plans by itself, and does not decode with the context.
 * Gives: never NULL. Thread: read. */
kvp_cache *kvp_llama_cache(const kvp_llama *engine);
kvp_sched *kvp_llama_sched(const kvp_llama *engine);
struct llama_context *kvp_llama_context(const kvp_llama *engine);

/* Make a step and compute it.
 *
 * Gives:   out_step     as kvp_sched_step: what was computed. n_seqs 0: there was nothing to do
 * Returns: KVP_OK: kvp_llama_logits and kvp_llama_finish are next, unless n_seqs is 0;
 *          KVP_E_STATE: the step before it was not finished; KVP_E_AGAIN: the decode was aborted
 *          (abort_callback); KVP_E_IO: the decode failed; KVP_E_CORRUPT: llama.cpp found no cells,
 *          or an id does not hold what it should: a defect of this library
 * After-failure: KVP_E_STATE: unchanged. KVP_E_AGAIN, KVP_E_IO: the step's requests wait again,
 *          nothing that the step computed counts, and the next call may be made. KVP_E_CORRUPT:
 *          destroy the engine
 * Owns:    arrays of out_step as kvp_sched_step
 * Cost:    llama_decode, and O(ids + blocks that changed hands) beside the scheduler
 */
kvp_status kvp_llama_run(kvp_llama *engine, kvp_step *out_step);

/* Give the logits from which token `i` of the step is sampled.
 *
 * Takes:   i            0..n_sampled-1, in the order of the step's sequences. The samples that
 *                       begin at a prompt's end have the same logits
 * Gives:   [vocabulary] f32 of the context, valid until the next run; NULL: no such token, or no
 *          step is out
 */
const float *kvp_llama_logits(kvp_llama *engine, uint32_t i);

/* Report the sampled tokens of the step: kvp_sched_finish.
 * Takes:   tokens, ended  [n_sampled] as kvp_sched_finish
 * Gives:   out_end        may be NULL
 * Returns: as kvp_sched_finish
 * After-failure: unchanged */
kvp_status kvp_llama_finish(kvp_llama *engine, const int32_t *tokens, const uint8_t *ended,
                            kvp_step_end *out_end);

typedef struct kvp_llama_stats {
    uint64_t decodes;         /* calls of llama_decode */
    uint64_t failed_decodes;  /* of them */
    uint64_t decoded_tokens;  /* run through the model, failed decodes included */
    uint64_t copies;          /* calls of llama_memory_seq_cp */
    uint64_t removals;        /* calls of llama_memory_seq_rm */
    uint64_t emptied;         /* keepers that were emptied for want of ids */
    uint64_t dropped_blocks;  /* blocks that lost their content by that */
    uint32_t open_ids;        /* gauges: ids of running sequences */
    uint32_t keepers;         /* ids that keep blocks */
    uint32_t kept_blocks;     /* in them */
    uint32_t max_keepers;     /* so many may stay from step to step */
    uint64_t idle_blocks;     /* dropped because of idle_cells */
    uint64_t stretches_out;   /* pieces that were copied to the host */
    uint64_t stretches_in;    /* and back */
    uint64_t slow_blocks;     /* not kept on the host, because computing them is faster */
    uint64_t host_bytes;      /* gauge: of all pieces, and of those the bytes of blocks that are */
    uint64_t host_dead_bytes; /* gone: a piece is freed as a whole */
    uint32_t second_ids;      /* gauge: of open ids and keepers that are longer than a window */
} kvp_llama_stats;

/* Read counters and gauges. A NULL argument is ignored. Thread: read. Cost: O(ids + pieces). */
void kvp_llama_stats_get(const kvp_llama *engine, kvp_llama_stats *out_stats);

/* Compute a namespace's sequences with a LoRA adapter. Sequences with different adapters may run in
 * one step, which then takes one llama_decode for each adapter.
 *
 * KV that another adapter gave is other KV, so the namespace is flushed. Use a namespace for each
 * adapter and scale, and name its adapter in kvp_llama_save's `model`.
 *
 * Takes:   ns           open
 *          adapter      must outlive its use; NULL: none (default)
 *          scale        of the adapter
 * Returns: KVP_OK; KVP_E_ARG: also for an adapter that is activated by tokens; KVP_E_HANDLE;
 *          KVP_E_STATE: a sequence is open, or a step was not finished; KVP_E_NO_NAMESPACES: 64
 *          namespaces have adapters; KVP_E_NO_MEMORY
 * After-failure: unchanged, but the namespace may be flushed
 * Cost:    the first one allocates max_running x vocabulary numbers
 */
kvp_status kvp_llama_adapter_set(kvp_llama *engine, kvp_ns ns, struct llama_adapter_lora *adapter,
                                 float scale);

/* Save what is cached, and its KV, into a file, which is replaced as a whole.
 *
 * Requests that wait or run are not saved; of what running ones have computed, whole blocks are.
 * Call it at the end, or between two steps. The file is written beside `path` (PATH.part-XXXXXX),
 * synced and renamed, so `path` has the old snapshot or the whole new one at any time. It is
 * readable by its owner only, and holds users' prompts.
 *
 * Takes:   model        a text that is compared when it is loaded: which weights these are, and
 *                       which adapters. NULL: "". libllama does not tell more than metadata and
 *                       sizes, which are compared in any case
 *          path         NUL-terminated, not empty
 * Gives:   out_why      on KVP_E_IO what the system said; may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_STATE: a step was not finished; KVP_E_IO; KVP_E_NO_MEMORY;
 *          KVP_E_CORRUPT: llama.cpp gave no state of cells
 * After-failure: the old file is there, and what is cached is unchanged
 * Cost:    O(cells x bytes of KV), which are copied once; memory for 1,024 tokens
 */
kvp_status kvp_llama_save(kvp_llama *engine, const char *model, const char *path, kvp_why *out_why);

/* What was restored. Set everything to zero, then `tell` and `context` if names are wanted. */
typedef struct kvp_llama_restored {
    uint64_t blocks;         /* can be hit */
    uint64_t dropped_blocks; /* damaged, or without an id or a cell */
    /* Called for the name of each restored namespace, in the order in which they were saved; must
       not call the engine. NULL: not wanted */
    void (*tell)(void *context, const void *name, size_t name_bytes);
    void *context;
} kvp_llama_restored;

/* Restore what was saved, into an engine that has opened no namespace and run nothing.
 *
 * Everything has a checksum. A block is restored if the tree, its record and the hash of its
 * tokens and prefix agree; else it is not, nor is what llama.cpp refuses. A file that is cut
 * restores what is whole.
 *
 * Restored namespaces are closed, and each takes one of max_namespaces until it is opened by its
 * name and closed again (snapshot.h). `restored->tell` has the names.
 *
 * Takes:   model        as saved
 *          restored     tell, context; may be NULL
 * Gives:   restored     the counts, on KVP_OK
 *          out_why      written always: on failure a sentence
 * Returns: KVP_OK, also if little was restored; KVP_E_ARG; KVP_E_IO: the file cannot be read;
 *          KVP_E_FORMAT: it is no snapshot, or damaged; KVP_E_VERSION; KVP_E_MISMATCH: of another
 *          model, other types of K and V, another number of cells or other block_tokens;
 *          KVP_E_STATE: a namespace was opened; KVP_E_NO_MEMORY
 * After-failure: unchanged
 */
kvp_status kvp_llama_load(kvp_llama *engine, const char *model, const char *path,
                          kvp_llama_restored *restored, kvp_why *out_why);

/* Audit ids, keepers and blocks, and compare them with llama.cpp.
 *   L1 an id is free and empty, open, or a keeper     L2 a block's place names an id that has it
 *   L3 a cached block is in exactly one keeper        L4 keepers hold nothing twice
 *   L5 llama_memory_seq_pos_min and _max of every id are what is expected
 *   L6 a host block with content is in one piece, and pieces are held by host blocks only
 *   L7 no plan copies a block on write and then replaces it
 *   L8 an id that is longer than the model's window has a second id with the same positions
 * Gives:   out_violation  written also on KVP_E_CORRUPT; may be NULL
 * Returns: KVP_OK; KVP_E_CORRUPT
 * Thread:  read. Call it between kvp_llama_finish and kvp_llama_run. Cost: O(ids x row)
 */
kvp_status kvp_llama_check(const kvp_llama *engine, kvp_violation *out_violation);

#ifdef __cplusplus
}
#endif
#endif
