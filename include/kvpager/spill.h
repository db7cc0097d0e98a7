/* kvpager/spill.h: what is worth writing to a store, what is worth loading from it, and both.
 *
 *   kvp_spill_config config;
 *   kvp_spill_config_init(&config);
 *   config.cache = cache;                            host_blocks and max_loads are not 0
 *   config.store = store;
 *   config.fingerprint = fingerprint;                as the store's
 *   config.block_bytes[0] = block_bytes;             as the store's
 *   config.host[0].base = host_tensor;               block b lies at base + b x stride
 *   config.host[0].stride = block_bytes;
 *   kvp_spill_create(&config, &spill, why, sizeof why);
 *   kvp_spill_space(spill, ns, "llama-8b", 8, epoch);
 *
 *   kvp_spill_ask(spill, ns, &prompt, &request, now, &answer);    reading: before it is admitted
 *   if (answer.outcome == KVP_SPILL_WAITS) ... hold the request until its tag is answered ...
 *
 *   kvp_seq_open(cache, ns, &prompt, &seq, &info);
 *   kvp_spill_hit(spill, seq, info.hit_tokens, now);              writing: what was hit
 *   kvp_seq_commit(cache, seq, n);
 *   kvp_spill_sealed(spill, seq, now);                            and what was computed
 *
 *   kvp_spill_work(spill, now, answers, 64, &n);                  in each step
 *
 * A spill stands beside a cache and a store, and uses both by their public calls. The cache decides
 * which blocks are evicted, the store keeps records; the spill has the budgets and the rates.
 *
 * Records. A record is the row entries of one layer group for T = record_blocks x S tokens, counted
 * from the start of the prompt, with S the cache's block_tokens. If groups have blocks of several
 * sizes, T is a multiple of each; tell the store (kvp_store_config.group_tokens). Only whole
 * records are written and loaded. In a group without a window they are written from the first one
 * on, and each names the one before it: if one cannot be written, those behind it are not written
 * either. In a group with a window a record stands alone. It may have only the last entries, which
 * a hit at its end needs (kvp_store_config.group_blocks), and is written when they are in the row.
 * So end chunks of prompts at multiples of T.
 *
 * Writing. A record is written when all its blocks are sealed and can be found by a match. Blocks
 * of the device are mirrored to the host (kvp_cache_mirror). When the plan that copies them is
 * over, the host blocks are lent to the store, and given back when the put has ended. If a block
 * lost its content meanwhile, the record is dropped from the store. A record of more blocks than
 * kvp_config.lent_blocks is not written.
 *
 * Loading. Of the prefixes of a prompt that the cache and the store have together, the longest one
 * is looked for by the rule of windows.h. kvp_spill_decide says how much of it is worth loading.
 * Host blocks are taken (kvp_load_begin), the records of the missing ones are read, and what is
 * whole is given to the cache (kvp_load_done). The answer then says how much a kvp_seq_open finds.
 * Requests with the same prefix share its load. If the store fails, the request is answered all the
 * same, and computes.
 *
 * Recurrent state (states.h). With config.state_slots a record of the state group is one slot: the
 * state after its last token. A checkpoint at the end of a record is written like KV, and names the
 * KV record of the first group without a window that ends there as the one before it. The engine
 * copies the slot: kvp_spill_copies, whenever it has taken a plan. Until the copy has run, the
 * state takes a sequence of the cache (max_seqs), which holds its slot and blocks. Only prefixes
 * that end at a state are loaded: the KV that is missing up to there, and the state.
 *
 * KV without addresses. An engine whose KV cannot be read and written where it lies sets
 * config.give and config.take instead of config.host, and moves the bytes of whole records itself.
 * It gives those of a reported sequence when they are offered, so nothing is mirrored or lent, and
 * what becomes of the blocks afterwards is not looked at: report KV that was wrong
 * (kvp_spill_drop). It takes what was read before the load of the host blocks ends. To the store
 * such a record is one block: open it with block_tokens = config.record_blocks x S,
 * record_blocks = 1, and group_tokens 0. The spill has memory for max_puts + max_gets records; the
 * system backs what is touched. Steps are ordered, and there is no recurrent state. kvp_spill_flush
 * waits for what was offered, and syncs. Records are written again when the store has lost half of
 * what it has, by its own figures, which depend on its threads.
 *
 * Rules for every call:
 *
 *   - A spill is used by the cache's thread. It reads no clock: the caller gives `now`, nanoseconds
 *     of one clock that does not go back. The same calls and the same order of what the store ends
 *     give the same decisions.
 *   - Nothing allocates after create. No call blocks, and none costs O(bytes of KV), except what
 *     config.give and config.take do.
 *   - What an engine does not want to be stored or loaded it does not report or ask for.
 *   - The store belongs to the spill, which polls it. The caller may submit kvp_store_evict and
 *     kvp_store_sync to it with tags of 2^63 and more; their ends are not reported.
 *   - Copies must be reported: kvp_plan_done, or steps that take effect (lend.h). Before
 *     kvp_cache_reset, end the spill's work: kvp_spill_stop.
 *   - Instead of kvp_ns_flush, call kvp_spill_space with a higher epoch, and then kvp_ns_flush.
 *     Otherwise what was flushed comes back from the store.
 *   - KVP_E_ARG: a NULL pointer that is not allowed, another struct_size, a value out of
 *     range; every call that returns a status can return it.
 */
#ifndef KVPAGER_SPILL_H
#define KVPAGER_SPILL_H

#include "lend.h"
#include "store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvp_spill kvp_spill;

/* ------------------------------------------------------------------------------ create, destroy */

/* What is worth writing. */
enum {
    KVP_SPILL_SECOND =
        0, /* what a request hits: it was computed once and is used again (default) */
    KVP_SPILL_THROUGH = 1 /* what is sealed, and what is hit */
};

/* Where the host blocks of a layer group lie: block b has block_bytes at base + b x stride, in
 * canonical order (memory.h: KVP_ORDER_CPU, or what the fingerprint names). Of the state group:
 * host_state_slots slots of the cache, and max_states more, which kvp_spill_copies copies to. */
typedef struct kvp_spill_host {
    void *base;
    size_t stride;
} kvp_spill_host;

/* A record of an engine whose KV has no addresses. */
typedef struct kvp_spill_record {
    kvp_seq seq;      /* give: whose KV it is; take: 0 */
    kvp_range tokens; /* record_blocks x S of them, counted from the start of the prompt */
    uint32_t group;   /* layer group */
    uint32_t reserved;
    void *bytes;           /* [block_bytes[group]] at a multiple of 4,096. give: write all of them;
                              take: read them. The spill's, during the call */
    const int32_t *blocks; /* take: [record_blocks] host blocks that this is the KV of, from now on;
                              0: not wanted. Their generation stays when they are cached, and
                              they are not if the load fails. give: NULL */
} kvp_spill_record;

/* Give or take a record. The call must not change the cache, nor call the spill.
 * Returns: 1; 0: the KV is not there, so the record is left out (stats.no_block) and offered again;
 *          or it is refused, and counts as not read (stats.load_failed) */
typedef int (*kvp_spill_move)(void *engine, const kvp_spill_record *record);

/* Learn that the store has the record of a key (kvp_record_key), or has not, each time that the
 * spill learns it: when a put wrote it or found it, when the store answers what it has, when a read
 * fails, when it shall be dropped. What the store evicts is learned when it is asked next. The call
 * must not change the cache, nor call the spill.
 *
 * Takes:   key          until the call returns; copy it to keep it
 * Thread:  that of the spill's call which learns it, before that returns */
typedef void (*kvp_spill_note)(void *context, const kvp_digest *key, int is_there);

typedef struct kvp_spill_config {
    size_t struct_size; /* set by kvp_spill_config_init */
    kvp_cache *cache;
    kvp_store *store;
    kvp_digest fingerprint;               /* as the store's */
    kvp_slice slice;                      /* layers and heads of the records */
    uint64_t block_bytes[KVP_GROUPS_MAX]; /* KV of a block of each group, as the store's; of the
                                             state group, which is the next one: of a slot.
                                             With give: of a record */
    kvp_spill_host host[KVP_GROUPS_MAX];  /* of each group */
    uint32_t policy;                      /* KVP_SPILL_SECOND, KVP_SPILL_THROUGH */
    uint32_t max_asks;      /* requests that wait at once, 1..4096; default 64. Each needs about
                              8 + 96 / S bytes, with the least S, for each token of a prompt;
                              the system backs only what is touched */
    uint32_t max_keys;      /* extra keys of a prompt, 0..4096; default 16 */
    uint32_t max_gets;      /* records read at once, 1..1024; default 32 */
    uint32_t max_puts;      /* records written at once, or waiting for it, 1..4096; default 64 */
    uint32_t n_scratch;     /* records read at once of which some blocks are there already, 1..64;
                              default 4. Each needs the bytes of a record. With give: not used */
    uint32_t spare_blocks;  /* host blocks that stay free or cached when blocks are taken for loads
                              and mirrors: for swap-outs to come; default 0 */
    uint32_t min_tokens;    /* loads that save fewer tokens are not worth it; default 256 */
    uint64_t put_bytes;     /* of records written at once, or waiting for it; default 256 MiB */
    uint64_t put_bytes_s;   /* written in a second; 0: no limit (default) */
    uint64_t put_bytes_day; /* written in 24 hours of the caller's clock; 0: no limit (default) */
    uint64_t get_bytes;     /* of records read at once; default 256 MiB */
    uint64_t load_bytes_s;  /* rate of loading at first; it is measured; default 10^9. UINT64_MAX:
                              the first measurement says it. It counts again when 512 requests were
                              computed because that was faster */
    uint64_t compute_tokens_s; /* rate of computing at first: kvp_spill_computed; default 10^4 */
    uint64_t max_wait_ns;      /* longest wait of a request; default 10^10 */
    uint32_t max_tokens; /* of a prefix that is written or loaded; 0: max_seq_tokens (default) */
    uint32_t max_states; /* states written at once, or waiting for it, 1..64; 0: 4 (default). Used
                              with recurrent state only */
    uint32_t record_blocks; /* with give: of a record, 1 or more; else 0: the store says it */
    kvp_spill_move give;    /* both of them, or NULL (default) */
    kvp_spill_move take;
    void *engine;        /* their first argument */
    kvp_spill_note note; /* NULL: none (default) */
    void *note_context;
} kvp_spill_config;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
KVP_API void kvp_spill_config_init(kvp_spill_config *config);

/* Create a spill. It has no namespaces yet: kvp_spill_space.
 *
 * Takes:   config       copied; cache and store must outlive the spill, but see destroy
 *          why_bytes    capacity of out_why
 * Gives:   out_spill
 *          out_why      a sentence that names what is wrong, cut to why_bytes; "" on KVP_OK; may be
 *                       NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_STATE: the cache has no host tier or no loads, or two of
 *          recurrent state, overlapped steps and give; KVP_E_NO_MEMORY; KVP_E_IO: libcrypto does
 *          not offer SHA-256
 * After-failure: nothing was created
 * Thread:  cache. Cost: O(its memory); the only call that allocates
 */
KVP_API kvp_status kvp_spill_create(const kvp_spill_config *config, kvp_spill **out_spill,
                                    char *out_why, size_t why_bytes);

/* Destroy a spill. No operation of it may be on its way in the store: kvp_spill_stop until it is
 * KVP_OK, or close the store first. Loads are cancelled, and lent blocks given back; so the cache
 * must still be there. NULL is ignored. Thread: cache. */
KVP_API void kvp_spill_destroy(kvp_spill *spill);

/* Stop: answer all waiting requests with KVP_SPILL_STOPPED, drop all records that are not being
 * written, and wait for what is on its way in the store. Call it, with kvp_spill_work and
 * kvp_store_wait in between, until it gives KVP_OK; then nothing is lent, and no load is begun.
 * The answers come by kvp_spill_work. Until then, requests are answered KVP_SPILL_STOPPED at once,
 * and nothing is written. After KVP_OK all is as after creation; namespaces, rates and counters
 * stay, and so does what the store was told to drop and did not (stats.drops).
 * Returns: KVP_OK: nothing is on its way, and every answer was taken; KVP_E_AGAIN
 * Thread:  cache. Cost: as kvp_spill_work */
KVP_API kvp_status kvp_spill_stop(kvp_spill *spill, uint64_t now_ns);

/* Say by which name and epoch a namespace is known in the store, or raise its epoch.
 *
 * Nothing that was stored under another epoch can be loaded. Requests of the namespace that wait
 * are answered KVP_SPILL_NOTHING, and its records that wait to be written are dropped. Epochs must
 * not repeat for other weights; the caller keeps them across restarts. The same name and epoch
 * again change nothing.
 *
 * Takes:   name         [name_bytes] 0..KVP_NAME_MAX_BYTES; need not be that of kvp_ns_open
 * Returns: KVP_OK; KVP_E_NO_NAMESPACES: the cache's max_namespaces are known here; KVP_E_IO:
 *          libcrypto failed
 * After-failure: unchanged
 * Thread:  cache. Cost: O(max_namespaces + max_asks + max_puts)
 */
KVP_API kvp_status kvp_spill_space(kvp_spill *spill, kvp_ns ns, const void *name, size_t name_bytes,
                                   uint64_t epoch);

/* Forget a namespace, as before its kvp_ns_close. What is stored stays there.
 * Returns: KVP_OK; KVP_E_STATE: it is not known here. Thread: cache. Cost: as kvp_spill_space */
KVP_API kvp_status kvp_spill_space_close(kvp_spill *spill, kvp_ns ns);

/* -------------------------------------------------------------------------------------- reading */

/* How a request was answered. */
enum {
    KVP_SPILL_WAITS = 0,    /* not yet: the answer comes by kvp_spill_work */
    KVP_SPILL_LOADED = 1,   /* something was loaded: a kvp_seq_open finds it */
    KVP_SPILL_NOTHING = 2,  /* the store has nothing of the prompt that the cache lacks */
    KVP_SPILL_COMPUTE = 3,  /* it has, but computing is faster, or no host block is free */
    KVP_SPILL_FAILED = 4,   /* what was wanted could not be read, or had gone */
    KVP_SPILL_DEADLINE = 5, /* the time was over; what still comes is kept, if it is shared */
    KVP_SPILL_STOPPED = 6,  /* kvp_spill_stop */
    KVP_SPILL_OUTCOMES = 7
};

/* Name an outcome: "waits", "loaded", "nothing", ...; "?" for a number that is none.
 * Gives: a static string. Thread: pure. */
KVP_API const char *kvp_spill_outcome_name(uint32_t outcome);

typedef struct kvp_spill_answer {
    uint64_t tag;         /* of the request */
    uint64_t waited_ns;   /* since it was asked */
    uint32_t outcome;     /* KVP_SPILL_... */
    uint32_t hit_tokens;  /* that the cache has of the prompt now; WAITS: when it was asked */
    uint32_t more_tokens; /* of these, more than when it was asked */
    uint32_t reserved;    /* 0 */
} kvp_spill_answer;

/* Who asks. Initialise it by name: {.struct_size = sizeof(kvp_spill_request), ...}. */
typedef struct kvp_spill_request {
    size_t struct_size;
    uint64_t tag;         /* comes back in the answer */
    uint64_t deadline_ns; /* by the clock of `now`; 0: when the tokens that the cache lacks would be
                             computed, at compute_tokens_s. At most max_wait_ns from now */
} kvp_spill_request;

/* Ask for what the store has of a prompt, before the prompt is admitted.
 *
 * If the answer is KVP_SPILL_WAITS, exactly one answer with the tag comes from kvp_spill_work.
 * Nothing has to be open or held meanwhile. All of the answers allow to open the prompt at once.
 * Keep the time until then short: what was loaded is cached, and can be evicted like anything else.
 *
 * At most KVP_STORE_KEYS_MAX records of a prompt are looked for: its beginning, if it has more.
 * With recurrent state, the state group counts like the others.
 *
 * Takes:   prompt       as kvp_seq_open will get it; copied
 *          now_ns       the caller's clock
 * Gives:   out_answer
 * Returns: KVP_OK; KVP_E_ARG, KVP_E_HANDLE as for kvp_seq_open; KVP_E_STATE: the namespace is not
 *          known here; KVP_E_TOO_LONG: as for kvp_seq_open, or more than max_keys keys;
 *          KVP_E_AGAIN: max_asks wait; KVP_E_IO: libcrypto failed. After any of these, go on
 *          without the store
 * After-failure: unchanged
 * Thread:  cache. Cost: O(n_tokens + extra keys)
 */
KVP_API kvp_status kvp_spill_ask(kvp_spill *spill, kvp_ns ns, const kvp_prompt *prompt,
                                 const kvp_spill_request *request, uint64_t now_ns,
                                 kvp_spill_answer *out_answer);

/* Forget requests: no answer comes. What is on its way for them is waited for by the spill, and
 * kept if it is whole. Requests that share the load are not affected.
 * Returns: KVP_OK; KVP_E_ARG: no request with this tag waits. Thread: cache. Cost: O(max_asks) */
KVP_API kvp_status kvp_spill_abort(kvp_spill *spill, uint64_t tag);

/* The inputs of a decision. Initialise it by name. */
typedef struct kvp_spill_question {
    size_t struct_size;
    uint64_t bytes;            /* to load, for all the tokens; of a state, too */
    uint64_t queued_bytes;     /* that are loaded before */
    uint64_t load_bytes_s;     /* rate of loading */
    uint64_t compute_tokens_s; /* rate of computing */
    uint64_t left_ns;          /* until the deadline */
    uint32_t n_tokens;         /* that need not be computed, if all is loaded */
    uint32_t step_tokens;      /* a part is a multiple of this: record_blocks x S, or more */
    uint32_t min_tokens;       /* fewer are not worth it */
    uint32_t reserved;         /* 0 */
} kvp_spill_question;

/* Decide how many tokens to load; the others are computed.
 *
 * Loading x tokens takes (queued_bytes + bytes x x / n_tokens) / load_bytes_s, and computing them
 * x / compute_tokens_s. Take the largest x that is n_tokens, or a multiple of step_tokens, and for
 * which loading takes at most left_ns. If that is at least min_tokens, and loading it takes no
 * longer than computing it, x tokens are loaded; else none.
 * Example: 4,096 tokens of 128 KiB each, 10^9 bytes and 10^4 tokens a second, nothing queued:
 * loading takes 0.54 s, computing 0.41 s; 0 tokens. With 2 x 10^9 bytes a second: 4,096 tokens, or
 * 1,520 of them if 0.1 s are left and a step has 16.
 *
 * Gives:   out_tokens   0, n_tokens, or a multiple of step_tokens below it
 * Returns: KVP_OK; KVP_E_ARG: a rate or step_tokens is 0, reserved is not
 * Thread:  pure. Cost: O(1)
 */
KVP_API kvp_status kvp_spill_decide(const kvp_spill_question *question, uint32_t *out_tokens);

/* -------------------------------------------------------------------------------------- writing */

/* Report that a sequence was opened with a hit: its first hit_tokens tokens are used again.
 *
 * Their records that are not known to be stored are going to be written, as far as the blocks are
 * in the sequence's rows, sealed, and found by matches. Beyond a budget, or without a free place, a
 * record and those behind it are left out, and counted. Nothing has to stay open meanwhile. So is
 * the state after hit_tokens, if it is kept and these tokens end a record.
 *
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_ARG: more tokens than it has; KVP_E_STATE: the sequence's
 *          namespace is not known here; KVP_E_IO: libcrypto failed
 * After-failure: nothing more is going to be written
 * Thread:  cache. Cost: O(its blocks and keys), and digests of its tokens that were not reported
 *          before. A digest is kept with the last block of its record while that has its content
 */
KVP_API kvp_status kvp_spill_hit(kvp_spill *spill, kvp_seq seq, uint32_t hit_tokens,
                                 uint64_t now_ns);

/* Report that a sequence has new sealed blocks: after a commit, or before it is closed. With policy
 * KVP_SPILL_SECOND nothing is done. In groups with windows, blocks are seen only while they are in
 * the row: report each commit. A state is seen only while it is that of the computed tokens: report
 * each checkpoint, after kvp_seq_checkpoint.
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_STATE, KVP_E_IO as kvp_spill_hit
 * What was left out is offered again when a place is free, or when it is hit. If the store refuses
 * 16 puts in a row, nothing is offered for a second, then for twice as long each time, up to 64.
 * After-failure: nothing more is going to be written
 * Thread:  cache. Cost: O(its blocks), about 1 ns each, and digests as kvp_spill_hit */
KVP_API kvp_status kvp_spill_sealed(kvp_spill *spill, kvp_seq seq, uint64_t now_ns);

/* Give the copies of slots of state that records are made of, each once: to run behind those of the
 * plan that was taken last, before the next step. Call it each time that the plan was taken, until
 * it gives less than capacity. A slot is copied from the device to the host: to place
 * host_state_slots and above of config.host. Without recurrent state there are never any.
 *
 * Takes:   capacity     of out_copies
 * Gives:   out_copies   [out_n] of the state group, 1 token each, phase 0
 * Returns: KVP_OK; KVP_E_ARG
 * Thread:  cache. Cost: O(max_puts)
 */
KVP_API kvp_status kvp_spill_copies(kvp_spill *spill, kvp_copy *out_copies, uint32_t capacity,
                                    uint32_t *out_n);

/* Drop from the store the records of a prompt that have tokens from `from` on, and all that were
 * written behind them: for KV that turned out to be wrong (kvp_seq_invalidate). Records of other
 * prompts that go on behind it stay in groups with windows, and in a store that looks for no parent
 * (store.h). If others may have gone on from the wrong KV there, raise the epoch instead. What is
 * being written of the namespace is taken back.
 *
 * From now on no request finds these records here. A store that is away, or fails, is asked again
 * in each kvp_spill_work until it has dropped them (stats.drops). What it has not dropped when the
 * spill is destroyed stays in it.
 *
 * Takes:   prompt       tokens and keys
 * Returns: KVP_OK; KVP_E_ARG, KVP_E_STATE, KVP_E_IO as kvp_spill_ask; KVP_E_TOO_LONG: more than
 *          max_tokens, or KVP_STORE_KEYS_MAX records: raise the epoch; KVP_E_AGAIN: with those that
 *          wait for the store, more than KVP_STORE_KEYS_MAX: call kvp_spill_work first
 * After-failure: unchanged
 * Thread:  cache. Cost: O(n_tokens)
 */
KVP_API kvp_status kvp_spill_drop(kvp_spill *spill, kvp_ns ns, const kvp_prompt *prompt,
                                  uint32_t from, uint64_t now_ns);

/* ----------------------------------------------------------------------------------------- work */

/* Work: take what the store has ended, end loads and writes, begin what the budgets allow, and
 * answer. Call it in each step; between steps when kvp_store_fd is readable, or a deadline passes.
 *
 * Takes:   capacity     of out_answers; those that find no room come with the next call
 * Gives:   out_answers  [out_n_answers] each tag once
 * Returns: KVP_OK; KVP_E_CORRUPT: the cache was reset, or the store was polled, by another caller
 * Thread:  cache. Blocks: never. Cost: O(max_asks + max_puts + max_gets), and O(tokens) of the
 *          prompts that are decided or answered, at most four in a call
 */
KVP_API kvp_status kvp_spill_work(kvp_spill *spill, uint64_t now_ns, kvp_spill_answer *out_answers,
                                  uint32_t capacity, uint32_t *out_n_answers);

/* Write what is worth most before the process ends: cached blocks, those that would be evicted last
 * before the others, each with the records before it. The device's are mirrored first, as far as
 * the host has room. Then the store is synced. Call it until it does not give KVP_E_AGAIN; in
 * between call kvp_spill_work and kvp_store_wait, run the plan, and report it. The limits of
 * writing hold.
 *
 * Takes:   deadline_ns  nothing more is begun after it; the sync is
 * Returns: KVP_OK: all is written that could be, and synced; KVP_E_AGAIN: call again; KVP_E_IO: the
 *          sync failed; KVP_E_STATE: the deadline was over before all was written; it is synced
 * Thread:  cache. Cost: O(blocks) at the first call, then O(tokens) of one prefix a call, and of
 *          each of its blocks that is going to be written
 */
KVP_API kvp_status kvp_spill_flush(kvp_spill *spill, uint64_t now_ns, uint64_t deadline_ns);

/* Tell how long the engine computed tokens of prompts: so the rate of computing is measured.
 * Returns: KVP_OK, also when a number is 0: nothing is learnt. Thread: cache. Cost: O(1) */
KVP_API kvp_status kvp_spill_computed(kvp_spill *spill, uint64_t n_tokens, uint64_t took_ns);

/* ----------------------------------------------------------------------------------- statistics */

typedef struct kvp_spill_stats {
    /* gauges */
    uint64_t waiting;      /* requests */
    uint64_t puts;         /* records written, or waiting for it */
    uint64_t put_bytes;    /* of these */
    uint64_t gets;         /* records being read */
    uint64_t get_bytes;    /* of these */
    uint64_t queued_bytes; /* of records that were decided to be read, and are not yet */
    uint64_t load_bytes_s; /* rates in use */
    uint64_t compute_tokens_s;
    /* counters */
    uint64_t asked;                        /* requests */
    uint64_t outcomes[KVP_SPILL_OUTCOMES]; /* answers; WAITS: those that had to wait */
    uint64_t aborted;
    uint64_t shared;        /* requests that waited for loads of others */
    uint64_t asked_tokens;  /* of all requests */
    uint64_t device_tokens; /* hit on the device when asked */
    uint64_t host_tokens;   /* on the host */
    uint64_t store_tokens;  /* more when answered */
    uint64_t decided_all;   /* decisions to load all that the store has */
    uint64_t decided_part;
    uint64_t decided_none;
    uint64_t loaded;        /* records read */
    uint64_t loaded_bytes;  /* of these */
    uint64_t load_failed;   /* records that could not be read, or had gone */
    uint64_t scratch_bytes; /* of loaded_bytes, those of blocks that were there already */
    uint64_t offered;       /* records that were not known to be stored when looked at */
    uint64_t written;       /* records */
    uint64_t written_bytes; /* of these */
    uint64_t known;         /* records that the store had already */
    uint64_t over_budget;   /* records left out for a budget, those behind them included */
    uint64_t no_place;      /* for want of a place, those behind them included */
    uint64_t no_block;    /* because a block was not sealed, not found, or had no room to mirror */
    uint64_t lost;        /* records whose content went before it was written */
    uint64_t taken_back;  /* records dropped from the store: their content went meanwhile */
    uint64_t put_failed;  /* puts that the store refused or failed, and records behind them */
    uint64_t drops;       /* gauge: records to be dropped, of which the store has not said that it
                              has; they are not loaded */
    uint64_t drop_failed; /* drops that the store failed; each is tried again in the next step */
    uint64_t states_written;  /* of `written`, those of states */
    uint64_t states_loaded;   /* of `loaded` */
    uint64_t states_left_out; /* offered, and left out: no place, no sequence, or a budget */
} kvp_spill_stats;

/* Read gauges and counters. Returns: KVP_OK. Thread: cache. Cost: O(1). */
KVP_API kvp_status kvp_spill_stats_get(const kvp_spill *spill, kvp_spill_stats *out_stats);

#ifdef __cplusplus
}
#endif
#endif
