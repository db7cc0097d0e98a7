/* kvpager/sched.h: the scheduler. Requests, queues, continuous batching, preemption.
 *
 *   kvp_sched_config_init(&config);
 *   kvp_sched_create(&config, cache, NULL, 0, &sched);
 *   kvp_sched_submit(sched, &submission, &request, NULL);
 *   for (;;) {
 *       kvp_sched_step(sched, &step);            what to compute now
 *       kvp_plan_take(cache, ...);               copies that must run first: the cache's, as ever
 *       ... run step.tokens; sample step.n_sampled tokens ...
 *       kvp_sched_finish(sched, sampled, ended, &end);
 *   }
 *
 * The scheduler decides which sequences compute which tokens. It opens, extends, commits, forks and
 * closes sequences of the cache; the block tables are read there (kvp_seq_row, kvp_seq_slots).
 *
 * What a step is made of, in this order:
 *
 *   1. Decoding sequences: one token each, all of them. (step_tokens >= max_running, so they always
 *      fit, and a prompt that is under way always gets at least one token.) When blocks are
 *      short, victims are preempted.
 *   2. Prompts under way, first admitted first: a chunk each, while the token budget lasts.
 *   3. Waiting requests by (priority, arrival), while the budget and places last, and unless the
 *      step preempted or left out somebody.
 *
 * Rules:
 *
 *   - Admission opens the sequence for its WHOLE prompt: all blocks are taken at once, computed in
 *     chunks. Taking blocks chunk by chunk admits more long prompts than can ever be held together;
 *     each then runs out half-way and preempts the next, and all are computed many times over
 *     (what vLLM's users saw, and why it offers the same now). The price: blocks of a long prompt's
 *     end are held some steps before they are written.
 *   - Admission counts prefix hits and the watermark as kvp_can_open does, and for a request of n
 *     samples one block more for each sample after the first. Hits cost no token budget.
 *   - A waiting request that does not fit may be passed over by later ones, max_passed_over times
 *     in all since it was last admitted; then nobody behind it is admitted before it. In one step
 *     at most max_tries requests that do not fit are tried. A try costs a match of the prompt (pass
 *     kvp_prompt.hashes to save the hashing); none is made while so little changed in the cache
 *     since the last one that it must fail again.
 *   - Victims: paused requests first, then larger priority value, then later arrival; never one
 *     that ranks before the request that needs the blocks, and never one that would release
 *     nothing, all its blocks being shared with others that stay. When no victim is left, the
 *     request that needs blocks is left out of the step and keeps what it has. Only for the first
 *     in rank are victims taken that release nothing by themselves: several may do so together.
 *   - Preemption is by recompute: the sequences are closed, the request waits again at its old
 *     place in the order, and later computes its prompt and generated tokens anew. Full units stay
 *     cached, so that much of it is hit unless it was evicted meanwhile. Of a request with n > 1
 *     live samples the first finds these hits; the others are forked from it at the prompt's end
 *     and compute their generated tokens again.
 *   - A request that grew past usable - watermark blocks and was preempted is admitted when nothing
 *     else is held: it waits in order, is passed over max_passed_over times at most, and finishes.
 *   - So everything submitted ends: the first in rank advances in every step. (Sequences that the
 *     caller opens in the same cache beside the scheduler take blocks away from this promise.)
 *   - Take the plan (kvp_plan_take) after every step. When copies of several steps fill it,
 *     sequences that would need one more are left out, or wait, until it is taken.
 *   - KV counts as computed when the step is finished, not when it is scheduled: a step that failed
 *     leaves nothing to take back (kvp_sched_fail).
 *   - One step at a time: kvp_sched_step is KVP_E_STATE until the step before it was finished.
 *     Tokens must be known when the next step is made; asynchronous scheduling is not offered yet.
 *   - Submit, abort, pause and resume may come at any time, also while a step is out. Work of the
 *     step that is out goes on: what it sampled for an aborted request is ignored. Blocks that an
 *     abort releases may be taken at once: work runs in the order in which it was scheduled.
 *
 * States of a request:
 *
 *            submit            admitted               all samples ended
 *              |      +------------------------+      ^
 *              v      |                        v      |
 *            WAITING -+<----- preempted ----- RUNNING-+
 *              ^  |                            |  ^
 *       resume |  | pause                pause |  | resume, blocks still held
 *              |  v                            v  |
 *            PAUSED, holds nothing <---------- PAUSED, holds its blocks
 *                                   preempted
 *
 * When a request has ended or was aborted, its handle is stale (KVP_E_HANDLE).
 *
 * Calls fail as cache.h says: unchanged, checks in the order E_ARG, E_HANDLE, E_STATE, the rest.
 * "Thread: sched" means exclusive access to the scheduler and its cache. Nothing allocates after
 * kvp_sched_create, nothing blocks, nothing reads a clock; the same calls give the same steps.
 */
#ifndef KVPAGER_SCHED_H
#define KVPAGER_SCHED_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvp_sched kvp_sched;

/* A request's handle; all zero is never valid. */
typedef struct kvp_request {
    uint64_t bits;
} kvp_request;

/* ---------------------------------------------------------------- configuration, the scheduler */

/* How a victim gives its blocks up. */
enum {
    KVP_PREEMPT_RECOMPUTE = 0 /* close; compute anew when admitted again */
};

/* Tokens are kept in pages of this many. */
#define KVP_SCHED_PAGE_TOKENS 64u

typedef struct kvp_sched_config {
    size_t struct_size;       /* set by kvp_sched_config_init */
    uint32_t max_requests;    /* submitted and not ended, 1..2^20; default 1024 */
    uint32_t max_samples;     /* their samples, all together, >= max_requests; 0 = max_requests */
    uint32_t max_running;     /* sequences admitted at once, paused ones that hold blocks included:
                                 1..max_seqs and max_copies of the cache (samples
                                 that are forked copy a block each); 0 = max_seqs */
    uint32_t step_tokens;     /* token budget of a step, >= max_running, up to 2^24; default 8192 */
    uint32_t chunk_tokens;    /* most prompt tokens of one sequence in a step; 0 = no such limit */
    uint32_t max_passed_over; /* K; 0: strict order; default 16 */
    uint32_t
        max_tries;    /* requests that do not fit, tried in one step, 1..max_requests; default 4 */
    uint32_t preempt; /* KVP_PREEMPT_... */
    uint64_t arena_tokens; /* room for prompts that are copied and for generated tokens, rounded
                                 up to whole pages; default 2^20 */
} kvp_sched_config;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
KVP_API void kvp_sched_config_init(kvp_sched_config *config);

/* Say how many bytes a scheduler of this configuration needs over this cache.
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_LONG when the size does not fit size_t. Thread: read. */
KVP_API kvp_status kvp_sched_bytes(const kvp_sched_config *config, const kvp_cache *cache,
                                   size_t *out_bytes);

/* Create a scheduler over a cache.
 *
 * Takes:   config       copied
 *          cache        must outlive the scheduler
 *          arena        NULL: the library allocates; else the caller's memory, 64-byte aligned,
 *                       arena_bytes >= kvp_sched_bytes; its content does not matter
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_LONG; KVP_E_TOO_SMALL; KVP_E_NO_MEMORY
 * Owns:    the caller's arena stays the caller's, in use until destroy, and is not moved
 * Thread:  read         Cost: O(arena); the only call that allocates
 */
KVP_API kvp_status kvp_sched_create(const kvp_sched_config *config, kvp_cache *cache, void *arena,
                                    size_t arena_bytes, kvp_sched **out_sched);

/* Abort every request and destroy the scheduler. NULL is ignored. Thread: sched. */
KVP_API void kvp_sched_destroy(kvp_sched *sched);

/* ---------------------------------------------------------------------------- submit and abort */

/* Flags of kvp_submission. */
enum {
    KVP_SUBMIT_BORROW = 1u /* prompt->tokens stays the caller's, unchanged until the request ends */
};

/* A request. Zero it, set struct_size = sizeof(kvp_submission), then the fields. */
typedef struct kvp_submission {
    size_t struct_size;
    const kvp_prompt *prompt; /* at least one token, reserve_tokens 0. Read during the call; its
                                 tokens are copied (or borrowed, see flags); hashes, keys and
                                 uncached ranges are always borrowed until the request ends. Its
                                 tag is the request's, and that of its sequences */
    kvp_ns ns;
    int32_t priority;        /* smaller goes first */
    uint32_t n_samples;      /* sequences that continue the prompt, which is computed once; 0 = 1 */
    uint32_t max_new_tokens; /* a sample ends when it has generated so many; >= 1 */
    uint32_t flags;          /* KVP_SUBMIT_BORROW */
} kvp_submission;

/* The longest that a request may be. */
typedef struct kvp_sched_limit {
    uint32_t max_prompt_tokens; /* with so many samples and one new token; 0: not even one */
    uint32_t max_tokens;        /* prompt and new tokens, with this prompt and so many samples */
} kvp_sched_limit;

/* Submit a request: it waits from now on.
 *
 * Refused is what could never be served, however long it waited. With B(x) = ceil(x / S), n
 * samples, prompt P and L = P + max_new_tokens:
 *   P + 1 and L <= max_seq_tokens, else KVP_E_TOO_LONG;
 *   B(P) + n - 1 <= usable - watermark, and
 *   F + n (B(L) - F) <= usable, where F = floor(P / S) blocks are shared, else KVP_E_NEVER.
 *
 * Takes:   submission   read during the call, but for what kvp_submission says
 * Gives:   out_request
 *          out_limit    written on KVP_OK, KVP_E_TOO_LONG and KVP_E_NEVER; may be NULL
 * Returns: KVP_OK; KVP_E_ARG also for what kvp_can_open refuses in the prompt, and for n_samples
 *          above max_running; KVP_E_HANDLE for the namespace; KVP_E_TOO_LONG; KVP_E_NEVER;
 *          KVP_E_NO_SEQS: max_requests or max_samples are there already; KVP_E_NO_BLOCKS: the
 *          token arena has no room for the prompt (unless borrowed) and n x max_new_tokens: wait
 *          until something ends
 * After-failure: unchanged
 * Thread:  sched. Cost: O(prompt tokens + n_samples)
 */
KVP_API kvp_status kvp_sched_submit(kvp_sched *sched, const kvp_submission *submission,
                                    kvp_request *out_request, kvp_sched_limit *out_limit);

/* End a request now. Every block of it is released, its handle is stale, and it is in no list of
 * ended ones. Thread: sched. Cost: O(its blocks + log requests). */
KVP_API kvp_status kvp_sched_abort(kvp_sched *sched, kvp_request request);

/* Keep a request from being scheduled. If it runs, it keeps its blocks, and its places of
 * max_running, until somebody needs them. Pausing a paused request does nothing. In the step that
 * is out, if any, it still takes part. Thread: sched. Cost: O(samples + log requests). */
KVP_API kvp_status kvp_sched_pause(kvp_sched *sched, kvp_request request);

/* Let a paused request go on, from the next step, or, if it lost its blocks, at its place among the
 * waiting. Resuming one that is not paused does nothing. Thread: sched. Cost: as pause. */
KVP_API kvp_status kvp_sched_resume(kvp_sched *sched, kvp_request request);

/* -------------------------------------------------------------------------------------- a step */

/* One sequence of a step. */
typedef struct kvp_step_seq {
    kvp_seq seq;
    kvp_request request;
    uint32_t sample;    /* 0..n_samples-1 */
    uint32_t begin;     /* position of the first token to compute */
    uint32_t n_tokens;  /* >= 1 */
    uint32_t n_sampled; /* tokens to sample after the last of them: 0 in the middle of a prompt, n
                           at the end of the prompt of a request with n samples, else 1 */
} kvp_step_seq;

/* Why requests wait. */
enum {
    KVP_WAIT_BLOCKS = 0, /* tried, and its blocks are not there */
    KVP_WAIT_SEQS = 1,   /* tried, and its sequences would exceed max_running (or the cache's) */
    KVP_WAIT_TOKENS = 2, /* the token budget is spent */
    KVP_WAIT_PLAN = 3,   /* tried, and the cache's plan is full: take it */
    KVP_WAIT_PREEMPTION = 4, /* the step preempted or left out somebody: it admits nobody */
    KVP_WAIT_ORDER = 5,      /* behind one that may not be passed over, or max_tries were tried */
    KVP_WAIT_REASONS = 6
};

/* Why a sample ended. */
enum {
    KVP_END_STOPPED = 0, /* kvp_sched_finish was told so */
    KVP_END_LENGTH = 1,  /* max_new_tokens are generated */
    KVP_END_REFUSED = 2  /* the cache refused it, `status` tells why: its namespace was closed
                            before it was admitted, borrowed memory was changed, or one of its
                            sequences was closed by the caller */
};

/* As kvp_ended.sample: every sample that had not ended. */
#define KVP_ALL_SAMPLES UINT32_MAX

typedef struct kvp_ended {
    kvp_request request; /* stale when `is_last` */
    uint64_t tag;
    uint32_t sample;     /* or KVP_ALL_SAMPLES */
    uint32_t reason;     /* KVP_END_... */
    int32_t status;      /* kvp_status: KVP_OK but for KVP_END_REFUSED */
    uint32_t new_tokens; /* generated by this sample, the last one included; KVP_ALL_SAMPLES: 0 */
    uint32_t is_last;    /* the request has ended with it */
} kvp_ended;

/* What to do now. Arrays belong to the scheduler; `seqs` and `tokens` are valid until
 * kvp_sched_finish or kvp_sched_fail, the others until the next step. */
typedef struct kvp_step {
    uint64_t number;          /* 1, 2, ... */
    uint32_t n_seqs;          /* B; 0: nothing to compute, and nothing to finish */
    uint32_t n_tokens;        /* T = sum of seqs[].n_tokens, <= step_tokens */
    uint32_t n_sampled;       /* sum of seqs[].n_sampled */
    uint32_t n_decoding;      /* the first so many of seqs compute one token and sample one */
    const kvp_step_seq *seqs; /* [B] */
    const int32_t *tokens;    /* [T] their input tokens, concatenated */
    uint32_t n_admitted;
    uint32_t n_preempted;
    uint32_t n_ended;                  /* refused at admission; others end in kvp_sched_finish */
    uint32_t n_left_out;               /* running requests that found no blocks in this step */
    const kvp_request *admitted;       /* [n_admitted] in order */
    const kvp_request *preempted;      /* [n_preempted] in order */
    const kvp_ended *ended;            /* [n_ended] */
    uint32_t waited[KVP_WAIT_REASONS]; /* waiting requests by reason: their sum is all of them */
} kvp_step;

/* Make the next step: choose, extend, preempt, admit.
 *
 * Gives:   out_step
 * Returns: KVP_OK, also when there is nothing to compute; KVP_E_STATE: a step is out. A request
 *          whose sequences the caller closed or changed behind the scheduler's back ends
 *          (KVP_END_REFUSED), the others go on
 * Thread:  sched
 * Cost:    O(scheduled + changed): with the finish, less than 40 ns per decoding sequence at 1,024
 *          of them (bench/README.md); plus O(tokens) for each waiting request that is tried;
 *          allocates nothing
 */
KVP_API kvp_status kvp_sched_step(kvp_sched *sched, kvp_step *out_step);

/* Samples that ended in a finish: valid until the next finish. */
typedef struct kvp_step_end {
    uint32_t n_ended;
    const kvp_ended *ended; /* [n_ended] */
} kvp_step_end;

/* Report a step done: its KV is written, these tokens were sampled.
 *
 * Takes:   tokens       [step.n_sampled] >= 0, in the order of seqs, the n of one in sample order;
 *                       those of requests aborted meanwhile are not looked at; NULL when there are
 *                       none
 *          ended        [step.n_sampled] not 0: the sample ends with this token; NULL: none
 * Gives:   out_end      may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_STATE when no step is out; KVP_E_NO_SEQS: sequences that the
 *          caller opened leave none in the cache to fork samples: close some, and call again; what
 *          kvp_seq_commit_many returns when the caller closed one of the step's sequences: abort
 *          its request, and call again
 * After-failure: unchanged
 * Thread:  sched. Cost: O(scheduled + blocks of what ended)
 */
KVP_API kvp_status kvp_sched_finish(kvp_sched *sched, const int32_t *tokens, const uint8_t *ended,
                                    kvp_step_end *out_end);

/* Report that a step failed, its plan or its forward pass: whatever it was to write counts for
 * nothing. Its requests are preempted and wait again (or are paused, holding nothing).
 * Returns: KVP_OK; KVP_E_STATE when no step is out. Thread: sched. Cost: as closing them. */
KVP_API kvp_status kvp_sched_fail(kvp_sched *sched);

/* Reorder a group: beam search's survivors, by fork and close, all or nothing.
 *
 * Call it after a finish, before the next step. Sample i becomes a copy of what sample parents[i]
 * was before its newest token, and tokens[i] is its newest token. A sample named by nobody is
 * dropped; one named twice is forked. Shared blocks stay shared.
 *
 * Takes:   parents      [n_samples] each 0..n_samples-1
 *          tokens       [n_samples] >= 0; NULL: each keeps the newest token that it had
 * Returns: KVP_OK; KVP_E_STATE: a step is out, a sample has ended, or the samples do not all hold
 *          a sequence that is computed up to the newest token (preempted, or still catching up)
 * Thread:  sched. Cost: O(n_samples + blocks and generated tokens of those that are forked)
 */
KVP_API kvp_status kvp_sched_reorder(kvp_sched *sched, kvp_request request, const uint32_t *parents,
                                     const int32_t *tokens);

/* --------------------------------------------------------------------------- what can be asked */

enum { KVP_REQUEST_WAITING = 0, KVP_REQUEST_RUNNING = 1, KVP_REQUEST_PAUSED = 2 };

typedef struct kvp_request_info {
    uint32_t state;        /* KVP_REQUEST_... */
    uint32_t holds_blocks; /* 1: sequences of it are open */
    int32_t priority;
    uint32_t n_samples;
    uint32_t n_live; /* samples that have not ended */
    uint32_t prompt_tokens;
    uint32_t max_tokens;  /* prompt_tokens + max_new_tokens */
    uint32_t passed_over; /* by others, since it was last admitted */
    uint32_t preemptions;
    uint64_t arrival; /* 1, 2, ... by submission */
    uint64_t tag;
    kvp_ns ns;
} kvp_request_info;

/* Thread: read (of the scheduler). Cost: O(1). */
KVP_API kvp_status kvp_request_info_get(const kvp_sched *sched, kvp_request request,
                                        kvp_request_info *out_info);

typedef struct kvp_sample_info {
    kvp_seq seq; /* all zero when none is open */
    uint32_t has_ended;
    uint32_t tokens;          /* prompt and generated; the newest one included */
    uint32_t computed_tokens; /* steps that are out not counted; 0 when no sequence is open */
} kvp_sample_info;

/* Returns: KVP_OK; KVP_E_ARG when there is no such sample. Thread: read. Cost: O(n_samples). */
KVP_API kvp_status kvp_request_sample(const kvp_sched *sched, kvp_request request, uint32_t sample,
                                      kvp_sample_info *out_info);

/* Read tokens of a sample back, prompt and generated. Those of a sample that has ended can be read
 * until its request has.
 * Gives:   out_tokens   [n_tokens]: positions from .. from + n_tokens - 1
 * Returns: KVP_OK; KVP_E_ARG: no such sample, or the range exceeds its tokens
 * Thread:  read. Cost: O(from / 64 + n_tokens) */
KVP_API kvp_status kvp_request_tokens(const kvp_sched *sched, kvp_request request, uint32_t sample,
                                      kvp_range range, int32_t *out_tokens);

typedef struct kvp_sched_stats {
    /* gauges */
    uint64_t waiting_requests;
    uint64_t running_requests;
    uint64_t paused_requests;
    uint64_t running_seqs;   /* places of max_running in use */
    uint64_t reserved_pages; /* of the token arena, promised to requests */
    uint64_t total_pages;
    uint64_t promised_blocks; /* counted at admission for samples that are not forked yet */
    /* counters */
    uint64_t submitted; /* = ended + aborted + all that are here */
    uint64_t ended;     /* requests, those refused at admission included */
    uint64_t aborted;
    uint64_t refused; /* submissions that failed */
    uint64_t steps;
    uint64_t admissions;
    uint64_t preemptions;
    uint64_t left_out;    /* sum of step.n_left_out */
    uint64_t tries;       /* prompts of waiting requests that were matched */
    uint64_t passed_over; /* times that a request was passed over */
    uint64_t scheduled_tokens;
    uint64_t sampled_tokens;
    uint64_t cached_tokens;            /* not computed thanks to the cache, at admissions */
    uint64_t lost_tokens;              /* computed tokens given up by preemptions */
    uint64_t waited[KVP_WAIT_REASONS]; /* sums of step.waited */
} kvp_sched_stats;

/* Thread: read. Cost: O(1). */
KVP_API kvp_status kvp_sched_stats_get(const kvp_sched *sched, kvp_sched_stats *out_stats);

/* Audit the scheduler's own state, and that its sequences in the cache are what it thinks they are;
 * the cache itself is audited by kvp_check.
 *   Q1 every request is in the queue of its state, queues are in order     Q2 the counts are sums
 *   Q3 every sample is where its stage says, and its sequence is as long as it should be
 *   Q4 every page of the token arena is free or in one chain, and reservations cover the chains
 * Gives:   out_violation  written also on KVP_E_CORRUPT; may be NULL
 * Returns: KVP_OK; KVP_E_CORRUPT
 * Thread:  sched (changes nothing). Cost: O(all) */
KVP_API kvp_status kvp_sched_check(const kvp_sched *sched, kvp_violation *out_violation);

#ifdef __cplusplus
}
#endif
#endif
