/* kvpager/sched.h: the scheduler. Requests, queues, continuous batching, preemption.
 *
 *   kvp_sched_config_init(&config);
 *   kvp_sched_create(&config, cache, NULL, 0, &sched);
 *   kvp_sched_submit(sched, &submission, &request, NULL);
 *   for (;;) {
 *       kvp_sched_step(sched, &step);            what to compute now
 *       kvp_plan_take(cache, ...);               copies that must run first: the cache's, as always
 *       ... run step.tokens; sample step.n_sampled tokens ...
 *       kvp_sched_finish(sched, sampled, ended, &end);
 *   }
 *
 * The scheduler decides which sequences compute which tokens. It opens, extends, commits, forks and
 * closes sequences of the cache. The engine reads their block tables there (kvp_seq_row,
 * kvp_seq_slots).
 *
 * A step is made of, in this order:
 *
 *   0. With config.make_way: urgent requests for which others are preempted (see the rules).
 *   1. Decoding sequences: one token each, all of them, and drafts (see the rules). The config's
 *      step_tokens suffice for max_running of them, so they always fit, and a prompt in progress
 *      always gets at least one token. If blocks are short, victims are preempted.
 *   2. Swapped requests by (priority, arrival), while blocks and places last, unless the step
 *      preempted or left out a request. Those that decode compute their token in the same step.
 *   3. Prompts in progress, a chunk each, while the token budget lasts. Their order is that in
 *      which they came in (or back, after they were paused or left out).
 *   4. Waiting requests by (priority, arrival), under the rules of swapped ones, and while the
 *      budget lasts.
 *
 * Rules:
 *
 *   - Admission opens the sequence for its WHOLE prompt: all blocks are taken at once, and computed
 *     in chunks. Taking blocks chunk by chunk admits more long prompts than can ever be held
 *     together. Each then runs out half-way and preempts the next, and all are computed many times
 *     over (users of vLLM saw this; it offers the same rule now). The price: blocks of a long
 *     prompt's end are held some steps before they are written.
 *   - Admission counts prefix hits and the watermark as kvp_cache_can_open does. For a request of n
 *     samples it counts one block more for each live sample after the first. If generated tokens
 *     come back, it counts all blocks after the prompt's full ones instead. These blocks are
 *     promised until the samples are forked: no other request is admitted into them. Hits cost no
 *     token budget. (If every usable block is available, and only sources of a hit inside a block
 *     make the request not fit, the hits are given up.)
 *   - With config.wait_for_prefix, a waiting request is kept back, without a try, if its match
 *     (kvp_cache_match) ends with KVP_STOP_NO_KV at a unit that a prompt in progress, or a sample
 *     that computes its tokens again, has yet to compute in chunks. It then follows that request:
 *     it is kept back while the other one runs and has not computed all whole units that the two
 *     have in common. (Of several it follows the one whose chunks come first.) It does not count as
 *     passed over or tried, and others come in past it. When the other request has computed these
 *     units, or is preempted, left out, paused or over, the rule applies again, or the request
 *     comes in. So prompts that arrive together compute a common prefix once. Only requests that
 *     run are followed, so no request waits in a circle. If the namespace is flushed meanwhile, the
 *     request is still kept back, and hits nothing.
 *   - Swapping in counts as kvp_cache_can_swap_in does, with the watermark, all live samples
 *     together, and room for the next token of each if they decode. If they do not decode, samples
 *     that are not forked yet count as at admission. Generated tokens without room count as the
 *     blocks from where the sequence ends to where it must go.
 *   - Later requests may pass over a request that does not fit, max_passed_over times in all since
 *     it last came in. Then no request behind it comes in before it. Swapped requests stand before
 *     all waiting ones, whatever their priorities: a request that was admitted once is finished
 *     first, and the host's blocks come back.
 *   - In one step at most max_tries requests that do not fit are tried, swapped and waiting
 *     together. A try costs a match of the prompt (pass kvp_prompt.hashes to save the hashing) or a
 *     look at the swapped rows. There is no try while so little changed in the cache since the last
 *     one that it must fail again.
 *   - Layer groups and windows (windows.h): counts of blocks are of all groups. Blocks that a
 *     window of the configuration drops come back as a request continues, but are not counted in
 *     advance.
 *   - Recurrent state (states.h): slots of state are counted like blocks. A request comes in if its
 *     blocks and its slots are there (kvp_cache_can_open, kvp_state_need). If it has n > 1 live
 *     samples, n slots more are promised to them until they are forked. If all usable slots are
 *     available and the checkpoint of its hit makes it not fit, the hits are given up. Victims for
 *     slots are requests that release a slot.
 *   - Swapping in counts slots, too: those of kvp_state_swap_need, one more for each sample that
 *     computes generated tokens again and has no such token in the cache yet, and those promised to
 *     samples that are not forked yet. If all usable slots are available and it does not fit, the
 *     request is closed, and waits (it is in step.preempted).
 *   - Recurrent state and overlapped steps: each step of a sequence writes another slot than it
 *     reads. The slot is taken when the step is made, also for prompts in progress. So a request
 *     comes in, or back, if two slots for each live sample are available. Those not taken at once
 *     stay promised until each sample has a state of its own: with one live sample, until its next
 *     chunk is computed; with several, until they have decoded a token. Beams are promised a slot
 *     for each that reads the slot of an earlier one. Parked slots are on their way, as parked
 *     blocks are (see below).
 *   - A chunk ends where kvp_seq_state_get says (branch_end, prompt_end). When it is computed, its
 *     checkpoint is made if more slots are available than are promised: in the order of seqs,
 *     before anything is forked or closed. With overlapped steps it takes no slot, and is made.
 *     With wait_for_prefix a request is kept back until the last such place is computed that the
 *     two have in common and that lies behind its hit. If there is none, it is not kept back. After
 *     a preemption by recompute hits end at checkpoints, so most generated tokens are computed
 *     again.
 *   - Drafts, for speculation (config.draft_tokens): a decoding sequence also gets up to so many
 *     slots behind its newest token, never more than its max_new_tokens leave use for. The engine
 *     puts draft tokens there, as a chain, and verifies any number of them in the step. It reports
 *     the accepted ones with kvp_sched_finish_drafts, which takes the rest back. The drafts are the
 *     engine's: step.tokens has none of them. They count for step_tokens, used or not. Live samples
 *     of a request accept equally many. There are no drafts if blocks do not suffice for those of
 *     all sequences, if a group computes generated tokens again, or for what is swapped in during
 *     the same step: no request is preempted for them.
 *   - Drafts and recurrent state (states.h): with config.state_rings, drafts have slots for the
 *     states after them (kvp_meta_state_rings), and there are no drafts if slots do not suffice for
 *     those of all sequences. Without it, the state after the accepted tokens must be in the slot
 *     that the step writes when the step is finished: the engine keeps the states in between.
 *   - Victims: paused requests first, then larger priority value, then later arrival. A victim
 *     never ranks before the request that needs the blocks, and never came in in the same step. A
 *     request whose blocks are all shared with others that stay is no victim: it would release
 *     nothing. If no victim is left, the request that needs blocks is left out of the step and
 *     keeps what it has.
 *   - With config.make_way, running requests make way for a waiting one with a smaller priority
 *     value that lacks places: of max_running, or of the cache's sequences. When a step begins, the
 *     first waiting request in rank is looked at, if wait_for_prefix does not keep it back. If it
 *     lacks places only, and paused requests and those that run with a larger priority value have
 *     enough of them, victims of these two kinds are preempted, also such that release nothing, and
 *     it comes in: before all swapped requests, which do not count as passed over. (Victims are
 *     closed, whatever `preempt` says, if sequences are lacking.) Then the next one is looked at.
 *     If blocks or slots are lacking, too, it waits as others do; to find that out costs a match of
 *     its prompt. (If the plan is full, it comes in later, though others made way.) No request
 *     makes way within a priority, so what runs with the smallest value is never disturbed.
 *   - Exceptions: for the first request in rank, victims that release nothing by themselves are
 *     taken, too, because several may do so together. Requests that want to come in get paused
 *     victims only. While no request runs, or when they lack places of max_running, they also get
 *     victims that release nothing.
 *   - Preemption by recompute: the sequences are closed, and the request waits again at its old
 *     place in the order. Later it computes its prompt and generated tokens again. Full units stay
 *     cached, so much of it is hit unless it was evicted meanwhile (and with
 *     kvp_config.keep_evicted, even then). If a request has n > 1 live samples, the first one finds
 *     these hits. The others are forked from it at the prompt's end and compute their generated
 *     tokens again. In a cache with windows or recurrent state the first one stops there, too,
 *     until they are forked, because what they need is dropped, or written over, later. Then it
 *     hits in the prompt only, and the blocks of its generated tokens are promised with those of
 *     the others.
 *   - Preemption by swap (config.preempt): all sequences of the request move to the host in one
 *     call (kvp_seq_swap_out), with their sharing. Later they move back, all or nothing. Nothing is
 *     computed twice. Recompute takes its place if the host or the plan has no room now. It also
 *     does if the way back might not fit a plan: the blocks of its rows of all groups, each row
 *     counted by itself (usable blocks at most), and its live samples, once for each group (that of
 *     recurrent state, too), exceed max_copies.
 *   - Samples of a request advance together: none samples a token while another is behind. So live
 *     samples always have equally many tokens. (They differ in what is computed only after a
 *     preemption by recompute, while the others catch up with the first.)
 *   - A request that grew past usable - watermark blocks and was preempted comes in when nothing
 *     else is held. It waits in order, is passed over at most max_passed_over times, and finishes.
 *   - So everything submitted ends: the first in rank advances in every step. (Two things take
 *     blocks away from this promise: sequences that the caller opens in the same cache, and steps
 *     of the caller that are out. And a held request waits for the caller: see "loading".)
 *   - Swapped requests keep their sequences in the cache: max_seqs should exceed max_running by the
 *     samples that may be swapped out. If sequences are short, waiting requests wait
 *     (KVP_WAIT_SEQS). Swapped requests that are paused are closed, last in rank first: they
 *     compute again later (they are in step.preempted).
 *   - Take the plan (kvp_plan_take) after every step, also when it computes nothing. If copies of
 *     several steps fill it, sequences that need one more are left out, or wait, until it is taken.
 *   - KV counts as computed when the step is finished, not when it is scheduled. So a step that
 *     failed leaves nothing to take back (kvp_sched_fail).
 *   - One step at a time: kvp_sched_step is KVP_E_STATE until the step before it was finished.
 *     Tokens must be known when the next step is made. There is no asynchronous scheduling yet.
 *   - Submit, abort, pause and resume may come at any time, also while a step is out. The step's
 *     work continues; what it sampled for an aborted request is ignored. Blocks that an abort
 *     releases may be taken at once, because work runs in the order in which it was scheduled; or
 *     they are parked, see next.
 *   - With KVP_STEPS_OVERLAPPED (steps.h), call kvp_step_begin after kvp_sched_step (also if it
 *     computes nothing: it takes the plan), and kvp_step_done before kvp_sched_finish. If the step
 *     failed, call kvp_step_failed before kvp_sched_fail. Parked blocks will come back, so no
 *     request is preempted for them: a request that needs them is left out, or waits. A copy that
 *     must wait for steps that are out (KVP_E_IN_FLIGHT) is treated like a full plan.
 *
 * States of a request:
 *
 *     submit                   admitted                  all samples ended
 *       |      +------------------------------------+      ^
 *       v      |                                    v      |
 *     WAITING -+<------ preempted: recompute ----- RUNNING-+
 *      |  ^                                         |  ^
 * held v  | released    preempted: swap             v  |  swapped in
 *     LOADING                                      SWAPPED
 *
 * Each of the four can be paused (PAUSED). A paused request keeps what it has until another request
 * needs the blocks; then it is preempted by the same means. Resumed, it continues where its blocks
 * are: RUNNING if they were not needed, SWAPPED if they are on the host, WAITING if it holds
 * nothing. A LOADING request that is paused is not held any more.
 *
 * When a request has ended or was aborted, its handle is stale (KVP_E_HANDLE).
 *
 * Calls fail as cache.h says: nothing changes, and checks run in the order E_ARG, E_HANDLE,
 * E_STATE, the rest. "Thread: sched" means exclusive access to the scheduler and its cache. Nothing
 * allocates after kvp_sched_create, nothing blocks, nothing reads a clock; the same calls give the
 * same steps.
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

/* How a victim gives its blocks up.
 *
 * KVP_PREEMPT_CHEAPER: by swap when that costs no more, in whole numbers of any unit:
 *
 *   swap       swap_cost + swap_block_cost x copied + swap_state_cost x states
 *              copied: copied_blocks of kvp_cache_can_swap_out for its sequences
 *              states: slots of recurrent state that they read next
 *   recompute  recompute_cost + recompute_token_cost x lost
 *              lost: computed tokens of its first live sample, except those in leading blocks (of
 *              group 0) that other requests hold, too (they will be hit); and of each other live
 *              sample its computed tokens after the prompt
 *
 * Example: S = 16, prices in us: swap_cost 20, swap_block_cost 80 (2 MiB, there and back, at 50
 * GB/s), recompute_cost 0, recompute_token_cost 40 (8 G parameters at 400 TFLOP/s). The victim has
 * a prompt of 40 tokens and two samples, each with 60 computed tokens. Others hold its first block,
 * too. Its samples share two blocks and have two each: copied = 6. lost = (60 - 16) + (60 - 40) =
 * 64. Swap costs 20 + 480 = 500, recompute 2560: it is swapped out.
 *
 * A second victim has a single sample with 17 computed tokens, the first 16 of them in a block that
 * others hold. Swap costs 20 + 160 = 180, recompute 40: it is closed. */
enum {
    KVP_PREEMPT_RECOMPUTE = 0, /* close; compute again when readmitted (default) */
    KVP_PREEMPT_SWAP = 1,      /* to the host; recompute when that has no room */
    KVP_PREEMPT_CHEAPER = 2    /* whichever costs less; recompute when the host has no room */
};

/* Tokens are kept in pages of this many. */
#define KVP_SCHED_PAGE_TOKENS 64u

/* Chunks of half of step_tokens, rounded up. So one long prompt leaves room in each step for those
 * that come after it (several long ones do not). The price: a prompt of more than half of
 * step_tokens that is alone takes a step more, or twice as many (docs/TUNING.md). */
#define KVP_SCHED_CHUNK_HALF UINT32_MAX

/* Most drafts that a sequence may have in a step. */
#define KVP_SCHED_DRAFTS_MAX 16u

typedef struct kvp_sched_config {
    size_t struct_size;       /* set by kvp_sched_config_init */
    uint32_t max_requests;    /* submitted and not ended, 1..2^20; default 1024 */
    uint32_t max_samples;     /* their samples, all together, >= max_requests; 0 = max_requests */
    uint32_t max_running;     /* sequences on the device at once, paused ones included: 1..max_seqs
                                 and max_copies of the cache (samples that are forked copy a block
                                 each); 0 = max_seqs */
    uint32_t step_tokens;     /* token budget of a step, >= max_running (see draft_tokens), up to
                                 2^24; default 8192 */
    uint32_t chunk_tokens;    /* most prompt tokens of one sequence in a step; 0 = no such limit;
                                 default KVP_SCHED_CHUNK_HALF */
    uint32_t max_passed_over; /* K; 0: strict order; default 16 */
    uint32_t max_tries;       /* requests that do not fit, tried in one step, 1..max_requests;
                                 default 4 */
    uint32_t preempt;         /* KVP_PREEMPT_... */
    uint32_t swap_ahead;      /* 1: if fewer blocks than the watermark are available when a step
                                 begins, victims are swapped out until that many are, whatever
                                 `preempt` says. In the order of victims, never the first running
                                 request in rank; it ends at the first victim that the host or the
                                 plan has no room for. Default 0 */
    uint32_t max_loading;     /* requests that may be held for loading at once (kvp_sched_hold),
                                 0..max_requests; default 0 */
    uint64_t arena_tokens;    /* room for prompts that are copied and for generated tokens, rounded
                                 up to whole pages; default 2^20 */
    uint64_t swap_cost;       /* prices for KVP_PREEMPT_CHEAPER, any unit; default 0 */
    uint64_t swap_block_cost;
    uint64_t recompute_cost;
    uint64_t recompute_token_cost;
    uint32_t wait_for_prefix; /* 1: a waiting request whose prefix a running one computes is kept
                                 back until it can be hit (see the rules). Default 0 */
    uint32_t free_target;     /* most free blocks that kvp_sched_reclaim makes; 0 (default): it does
                                 nothing. At most a 64th of the usable blocks, rounded up */
    uint32_t draft_tokens;    /* most drafts of a decoding sequence in a step, 0..16; step_tokens >=
                                 max_running x (1 + draft_tokens). 0 (default): none */
    uint32_t state_rings;     /* 1: drafts have slots of states of their own; 0 (default), or 1
                                 with draft_tokens and a state group */
    uint64_t swap_state_cost; /* a price, as swap_block_cost */
    uint32_t make_way;        /* 1: running requests are preempted for a waiting one with a smaller
                                 priority value that lacks places (see the rules). Default 0 */
    uint32_t reserved;        /* 0 */
} kvp_sched_config;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
KVP_API void kvp_sched_config_init(kvp_sched_config *config);

/* Check a configuration for a scheduler over this cache, as kvp_sched_bytes and kvp_sched_create
 * do. Fields that are 0 for a default are checked as what they stand for.
 * Gives:   out_why      written always; may be NULL
 * Returns: KVP_OK; KVP_E_ARG. Thread: read */
KVP_API kvp_status kvp_sched_config_check(const kvp_sched_config *config, const kvp_cache *cache,
                                          kvp_why *out_why);

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
    KVP_SUBMIT_BORROW = 1u,  /* prompt->tokens stays the caller's, unchanged until the request
                                ends */
    KVP_SUBMIT_NO_LOAD = 2u, /* it is never held for loading */
    KVP_SUBMIT_NO_STORE = 4u /* for the caller's stores, which read it in kvp_request_info. The
                                scheduler does nothing with it */
};

/* A request. Initialise it by name: {.struct_size = sizeof(kvp_submission), ...}. */
typedef struct kvp_submission {
    size_t struct_size;
    const kvp_prompt *prompt; /* at least one token, reserve_tokens 0, without KVP_OPEN_RECEIVE (a
                                 scheduler computes its prompts). Read during the call; its
                                 tokens are copied (or borrowed, see flags); hashes, keys and
                                 uncached ranges are always borrowed until the request ends. Its
                                 tag is the request's, and that of its sequences */
    kvp_ns ns;
    int32_t priority;        /* smaller goes first */
    uint32_t n_samples;      /* sequences that continue the prompt, which is computed once; 0 = 1 */
    uint32_t max_new_tokens; /* a sample ends when it has generated so many; >= 1 */
    uint32_t flags;          /* KVP_SUBMIT_... */
    uint64_t load_deadline;  /* it is never held longer than until this time (kvp_sched_tick); 0: it
                                sets no limit of its own */
} kvp_submission;

/* The longest that a request may be. */
typedef struct kvp_sched_limit {
    uint32_t max_prompt_tokens; /* with so many samples and one new token; 0: not even one */
    uint32_t max_tokens;        /* prompt and new tokens, with this prompt and so many samples */
} kvp_sched_limit;

/* Submit a request: it waits from now on.
 *
 * The call refuses what could never be served, however long it waited. With B(x) = ceil(x / S), n
 * samples, prompt P and L = P + max_new_tokens:
 *   P + 1 and L <= max_seq_tokens, else KVP_E_TOO_LONG;
 *   B(P) + n - 1 <= usable - watermark, and
 *   F + n (B(L) - F) <= usable, where F = floor(P / S) blocks are shared, else KVP_E_NEVER.
 * The second also holds for L = P + 1. With several layer groups B, F and n are sums over them,
 * each with its S. A request that comes in, also after a recompute, takes the blocks of all groups
 * first; windows drop theirs then. With recurrent state also n + floor(n / 2) <= usable slots, else
 * KVP_E_NEVER: after a reorder each of n beams may take a slot while it reads one of floor(n / 2)
 * that were forked. With overlapped steps 2 n <= usable slots: each sample reads one, and writes
 * another.
 *
 * Takes:   submission   read during the call, except where kvp_submission differs
 * Gives:   out_request
 *          out_limit    written on KVP_OK, KVP_E_TOO_LONG and KVP_E_NEVER; may be NULL
 * Returns: KVP_OK; KVP_E_ARG also for what kvp_prompt_check refuses in the prompt, and for
 *          n_samples above max_running. With several samples, also for n_samples x layer groups
 *          above max_copies of the cache (samples that are forked copy a block of each group at
 *          once); KVP_E_HANDLE for the namespace; KVP_E_TOO_LONG; KVP_E_NEVER; KVP_E_NO_SEQS:
 *          max_requests or max_samples are there already, or the other places are used up (2^32 - 1
 *          requests each, so that no handle comes twice); KVP_E_NO_BLOCKS: the token arena has no
 *          room for the prompt (unless borrowed) and n x max_new_tokens: wait until something ends
 * After-failure: unchanged
 * Thread:  sched. Cost: O(prompt tokens + n_samples)
 */
KVP_API kvp_status kvp_sched_submit(kvp_sched *sched, const kvp_submission *submission,
                                    kvp_request *out_request, kvp_sched_limit *out_limit);

/* End a request now. All its blocks are released and its handle is stale. It appears in no list of
 * ended requests.
 * Returns: KVP_OK; KVP_E_HANDLE. Thread: sched. Cost: O(its blocks + log requests). */
KVP_API kvp_status kvp_sched_abort(kvp_sched *sched, kvp_request request);

/* Keep a request from being scheduled. A running request keeps its blocks and its places of
 * max_running until another request needs them. A swapped request stays on the host. A held request
 * is not held any more. The request still takes part in a step that is out. Pausing a paused
 * request does nothing.
 * Returns: KVP_OK; KVP_E_HANDLE. Thread: sched. Cost: O(samples + log requests). */
KVP_API kvp_status kvp_sched_pause(kvp_sched *sched, kvp_request request);

/* Resume a paused request from the next step. If it lost its blocks, it takes its place among the
 * swapped or waiting requests. Resuming a request that is not paused does nothing.
 * Returns: KVP_OK; KVP_E_HANDLE. Thread: sched. Cost: O(samples + log requests). */
KVP_API kvp_status kvp_sched_resume(kvp_sched *sched, kvp_request request);

/* ------------------------------------------------------------------------------------- loading */

/* The prefix of a waiting request may be in a store (store.h), from where it is loaded into the
 * host tier (lend.h). The scheduler knows nothing of stores and loads. The caller looks at waiting
 * requests before they are admitted, and holds those whose prefix it loads:
 *
 *   kvp_sched_tick(sched, now, &expired);            cancel or keep the loads of expired[]
 *   ... loads that ended: kvp_sched_release(sched, request);
 *   do {
 *       kvp_sched_loadable(sched, 64, requests, &n);
 *       ... of each: kvp_sched_hold(sched, request, now + wait), or kvp_sched_skip_load
 *   } while (n > 0);
 *   kvp_sched_step(sched, &step);
 *
 * A held request (LOADING) has no blocks and no sequences, and no place in the order: others are
 * admitted past it, without a try and without counting for max_passed_over. It waits until the
 * caller releases it, or until kvp_sched_tick finds its deadline over. Then it waits for admission
 * at its old place, and opens on what is in the cache: what was not loaded is computed. What was
 * loaded is there for every request.
 *
 * A request is held at most once for each time that it comes to wait: when it is submitted, and
 * after a preemption by recompute. Pausing and resuming it is no such time.
 *
 * If every request that could run is held, a step computes nothing and says so in step.n_loading:
 * wait for a load, at most until the next deadline, then call kvp_sched_tick and step again. The
 * caller must tick for as long as requests are held: without releases and ticks they never end. A
 * tick at UINT64_MAX releases all.
 *
 * Times are the caller's numbers of any unit, usually ns of a monotonic clock. The scheduler reads
 * no clock and remembers no time. These calls may come at any time, also while a step is out. */

/* List the waiting requests that may be held, in the order of admission.
 *
 * A request is listed until kvp_sched_hold or kvp_sched_skip_load has been called for it, unless it
 * was submitted with KVP_SUBMIT_NO_LOAD. With max_loading 0 none is.
 *
 * Takes:   n_first       look at so many waiting requests, from the first in rank on. A step tries
 *                        at most max_running + max_tries of them
 * Gives:   out_requests  [out_n], room for n_first
 * Returns: KVP_OK; KVP_E_ARG
 * Thread:  read. Cost: O(n_first x log waiting) */
KVP_API kvp_status kvp_sched_loadable(const kvp_sched *sched, uint32_t n_first,
                                      kvp_request *out_requests, uint32_t *out_n);

/* Hold a waiting request while its prefix is loaded.
 *
 * Takes:   deadline     kvp_sched_tick releases the request at this time. kvp_submission's
 *                       load_deadline, if it has one, counts when it is earlier
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_HANDLE; KVP_E_STATE: it does not wait, or kvp_sched_loadable
 *          would not list it (any more); KVP_E_AGAIN: max_loading requests are held. It is still
 *          listed
 * After-failure: unchanged
 * Thread:  sched. Cost: O(log requests) */
KVP_API kvp_status kvp_sched_hold(kvp_sched *sched, kvp_request request, uint64_t deadline);

/* Decide that a waiting request is not held: it is not listed again.
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_HANDLE; KVP_E_STATE as kvp_sched_hold. Thread: sched. Cost:
 * O(1). */
KVP_API kvp_status kvp_sched_skip_load(kvp_sched *sched, kvp_request request);

/* End the hold of a request: it waits for admission at its old place.
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_HANDLE: it was aborted; KVP_E_STATE: it is not held (any more):
 *          it was released, was paused, or its deadline was over
 * Thread:  sched. Cost: O(log requests) */
KVP_API kvp_status kvp_sched_release(kvp_sched *sched, kvp_request request);

/* What a tick released. The array belongs to the scheduler and is valid until the next tick. */
typedef struct kvp_sched_expired {
    uint32_t n_requests;
    uint32_t n_loading;          /* requests that are still held */
    const kvp_request *requests; /* [n_requests] in rank. They wait for admission now */
    uint64_t next_deadline;      /* of those that are still held; UINT64_MAX: none is */
} kvp_sched_expired;

/* Release every held request whose deadline is over: deadline <= now.
 * Gives:   out_expired  may be NULL
 * Returns: KVP_OK; KVP_E_ARG. Thread: sched. Cost: O(held x log requests). */
KVP_API kvp_status kvp_sched_tick(kvp_sched *sched, uint64_t now, kvp_sched_expired *out_expired);

/* -------------------------------------------------------------------------------------- a step */

/* One sequence of a step. */
typedef struct kvp_step_seq {
    kvp_seq seq;
    kvp_request request;
    uint32_t sample;    /* 0..n_samples-1 */
    uint32_t begin;     /* position of the first token to compute */
    uint32_t n_tokens;  /* >= 1 */
    uint32_t n_sampled; /* tokens to sample after the last of them. 0 in the middle of a prompt, or
                           of what is computed again. n at the end of a prompt with n samples.
                           Else 1 */
} kvp_step_seq;

/* Why requests wait, or stay swapped out. */
enum {
    KVP_WAIT_BLOCKS = 0, /* tried, and its blocks are not there */
    KVP_WAIT_SEQS = 1,   /* tried, and its sequences would exceed max_running (or the cache's) */
    KVP_WAIT_TOKENS = 2, /* the token budget is spent (never for swapped ones) */
    KVP_WAIT_PLAN = 3,   /* tried, and the cache's plan is full: take it (or KVP_E_IN_FLIGHT) */
    KVP_WAIT_PREEMPTION = 4, /* the step preempted or left out a request: it admits none */
    KVP_WAIT_ORDER = 5,      /* behind one that may not be passed over, or max_tries were tried */
    KVP_WAIT_PREFIX = 6, /* kept back: another request computes its prefix (never swapped ones) */
    KVP_WAIT_REASONS = 7
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
    int32_t status;      /* kvp_status: KVP_OK except for KVP_END_REFUSED */
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
    uint32_t n_decoding;      /* so many first entries of seqs compute and sample one token */
    const kvp_step_seq *seqs; /* [B] */
    const int32_t *tokens;    /* [T] their input tokens, concatenated */
    uint32_t n_admitted;
    uint32_t n_preempted;
    uint32_t n_swapped_out;
    uint32_t n_swapped_in;
    uint32_t n_ended;               /* refused at admission; others end in kvp_sched_finish */
    uint32_t n_left_out;            /* running requests that found no blocks in this step */
    const kvp_request *admitted;    /* [n_admitted] in order */
    const kvp_request *preempted;   /* [n_preempted] in order: by recompute, and swapped ones that
                                       were closed. Their sequences are gone */
    const kvp_request *swapped_out; /* [n_swapped_out] in order: preempted by swap, also ahead of
                                       need. Their sequences are on the host */
    const kvp_request *swapped_in;  /* [n_swapped_in] in order */
    const kvp_ended *ended;         /* [n_ended] */
    uint32_t waited[KVP_WAIT_REASONS]; /* waiting requests by reason, and swapped ones that */
    uint32_t waited_swapped[KVP_WAIT_REASONS]; /* are not paused: each sum is all of them */
    uint32_t n_loading;     /* requests that are held, and in neither sum: they will run, too */
    uint32_t n_drafts;      /* sum of drafts; n_tokens + n_drafts <= step_tokens */
    const uint32_t *drafts; /* [n_decoding] slots for drafts: seqs[k] has them for positions begin +
                               1 .. begin + drafts[k] (kvp_seq_slots). Valid as long as seqs is */
} kvp_step;

/* Make the next step: choose, extend, preempt, swap in, admit.
 *
 * Gives:   out_step
 * Returns: KVP_OK, also when there is nothing to compute; KVP_E_STATE: a step is out. If the caller
 *          closed or changed sequences of a request, the request ends (KVP_END_REFUSED), and the
 *          others continue
 * Thread:  sched
 * Cost:    O(scheduled + changed). With the finish, less than 40 ns per decoding sequence at 1,024
 *          of them (bench/README.md). In addition O(tokens) for each waiting request that is tried,
 *          and O(blocks) for each that is swapped, or tried to be; allocates nothing
 */
KVP_API kvp_status kvp_sched_step(kvp_sched *sched, kvp_step *out_step);

/* Evict ahead of need: blocks for the next step, while this one runs.
 *
 * Call it after the pass of a step was launched, before kvp_sched_finish. It calls
 * kvp_cache_reclaim (drop.h) for the blocks that the next step is expected to take,
 * config.free_target at most. The next step then evicts less, or nothing, while the accelerator
 * waits for it. The scheduler never does this by itself.
 *
 * Expected are a block of each layer group for each sequence that decodes next and fills its last
 * one of that group now; and ceil(n / S) of each group for the n tokens of each request that comes
 * in next, swapped ones before waiting ones, in rank, until one lacks places of max_running or
 * blocks. Hits are not subtracted, and samples after the first and drafts are not counted.
 *
 * Gives:   out_n_reclaimed  blocks that lost content; may be NULL
 * Returns: KVP_OK; KVP_E_STATE when no step is out
 * Thread:  sched. Cost: O(scheduled + reclaimed) */
KVP_API kvp_status kvp_sched_reclaim(kvp_sched *sched, uint32_t *out_n_reclaimed);

/* Samples that ended in a finish: valid until the next finish. */
typedef struct kvp_step_end {
    uint32_t n_ended;
    const kvp_ended *ended; /* [n_ended] */
} kvp_step_end;

/* Report a step done: its KV is written, and these tokens were sampled.
 *
 * Takes:   tokens       [step.n_sampled] >= 0, in the order of seqs, the n of one in sample order.
 *                       Tokens of requests aborted meanwhile are ignored. NULL when there are none
 *          ended        [step.n_sampled] not 0: the sample ends with this token; NULL: none
 * Gives:   out_end      may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_STATE when no step is out; KVP_E_NO_SEQS: sequences that the
 *          caller opened leave none in the cache to fork samples. Close some, and call again; what
 *          kvp_seq_commit_many returns when the caller closed one of the step's sequences. Abort
 *          its request, and call again
 * After-failure: unchanged
 * Thread:  sched. Cost: O(scheduled + blocks of what ended)
 */
KVP_API kvp_status kvp_sched_finish(kvp_sched *sched, const int32_t *tokens, const uint8_t *ended,
                                    kvp_step_end *out_end);

/* Report a step done in which drafts were verified.
 *
 * Of decoding sequence k, counts[k] tokens became known: the counts[k] - 1 drafts that were
 * accepted, and the token that was sampled after them. The KV of those drafts is written, at
 * positions from begin + 1 on, and counts as computed. The other slots are taken back.
 *
 * Example: begin 20, drafts[k] 3. The step runs the token at 20 and drafts 5, 9, 4 at 21 to 23. The
 * model says 5, 9, 7: counts[k] is 3, and the tokens are 5, 9, 7. The next step begins at 23.
 *
 * Takes:   tokens       as kvp_sched_finish, but counts[k] of each sequence that decodes
 *          counts       [step.n_decoding] 1..1 + drafts[k], equal for the samples of a request;
 *                       NULL: 1 each, as kvp_sched_finish
 *          ended        [step.n_sampled] not 0: the sample ends with its last token; NULL: none
 * Gives:   as kvp_sched_finish
 * Returns: as kvp_sched_finish; KVP_E_ARG: also counts that are none of these
 * After-failure: unchanged
 * Thread:  as kvp_sched_finish. Cost: the same, and O(drafts) */
KVP_API kvp_status kvp_sched_finish_drafts(kvp_sched *sched, const int32_t *tokens,
                                           const uint32_t *counts, const uint8_t *ended,
                                           kvp_step_end *out_end);

/* Report that a step failed: nothing that it was to write counts. Its requests are preempted by
 * recompute and wait again (or are paused, and hold nothing).
 *
 * If copies of its plan may not have run, KV is missing elsewhere, too: in what was swapped out, or
 * kept on the host. With overlapped steps, kvp_step_failed takes all of that back. Call it first;
 * then every request that lost KV or a state by it is preempted here as well. With ordered steps it
 * is not known which copies ran: reset the cache, and make a new scheduler.
 *
 * Returns: KVP_OK; KVP_E_STATE when no step is out
 * Thread:  sched. Cost: O(sequences) and closing them */
KVP_API kvp_status kvp_sched_fail(kvp_sched *sched);

/* Reorder a group: the survivors of a beam search, by fork and close, all or nothing.
 *
 * Call it after a finish in which the request sampled, before the next step. Sample i becomes a
 * copy of what sample parents[i] was before its newest token, and tokens[i] is its newest token. A
 * sample that is not named is dropped; one named twice is forked. Shared blocks stay shared.
 * Samples that have ended stay as they are: their entries are ignored, and they cannot be parents.
 *
 * Example: beam search with 4 beams. Submit with n_samples 4. The prompt's step samples 4 tokens:
 * give the best 4 of its distribution. After each later finish (with any tokens, and none ended),
 * take the best 4 of all continuations. Say these are two of beam 1, and one each of beams 3 and 0:
 *
 *     parents = {1, 1, 3, 0}, tokens = {17, 4, 99, 17}
 *     kvp_sched_reorder(sched, request, parents, tokens);
 *
 * Beam 2 is closed and its place is taken by a fork of beam 1. The first of the two to write copies
 * the last block, if it is partly filled. The caller keeps a continuation that ends a hypothesis:
 * name the next best one instead. Submit with max_new_tokens one larger than hypotheses may be, and
 * abort the request when the search is over; its samples never end by themselves then.
 *
 * Takes:   parents      [n_samples] each 0..n_samples-1
 *          tokens       [n_samples] >= 0; NULL: each keeps the newest token that it had
 * Returns: KVP_OK; KVP_E_ARG also for a parent that has ended; KVP_E_STATE: a step is out, or a
 *          live sample has no sequence on the device that is computed up to the newest token (it
 *          waits, is swapped, or catches up: then it has sampled nothing)
 * Thread:  sched. Cost: O(n_samples + blocks and generated tokens of those that are forked)
 */
KVP_API kvp_status kvp_sched_reorder(kvp_sched *sched, kvp_request request, const uint32_t *parents,
                                     const int32_t *tokens);

/* --------------------------------------------------------------------------- what can be asked */

enum {
    KVP_REQUEST_WAITING = 0,
    KVP_REQUEST_RUNNING = 1,
    KVP_REQUEST_PAUSED = 2,
    KVP_REQUEST_SWAPPED = 3, /* and not paused */
    KVP_REQUEST_LOADING = 4  /* held by kvp_sched_hold */
};

typedef struct kvp_request_info {
    uint32_t state;        /* KVP_REQUEST_... */
    uint32_t holds_blocks; /* 1: sequences of it are open, on the device */
    uint32_t is_swapped;   /* 1: they are on the host, paused or not */
    int32_t priority;
    uint32_t n_samples;
    uint32_t n_live; /* samples that have not ended */
    uint32_t prompt_tokens;
    uint32_t max_tokens;  /* prompt_tokens + max_new_tokens */
    uint32_t passed_over; /* by others, since it last came in */
    uint32_t preemptions; /* of both kinds */
    uint32_t swaps;       /* of them, by swap */
    uint32_t flags;       /* KVP_SUBMIT_... of its submission */
    uint64_t arrival;     /* 1, 2, ... by submission */
    uint64_t tag;
    kvp_ns ns;
    uint64_t load_deadline; /* LOADING: when its hold ends. Else its submission's; 0: none */
} kvp_request_info;

/* Read what is known of a request.
 * Returns: KVP_OK; KVP_E_HANDLE. Thread: read (of the scheduler). Cost: O(1). */
KVP_API kvp_status kvp_request_info_get(const kvp_sched *sched, kvp_request request,
                                        kvp_request_info *out_info);

typedef struct kvp_sample_info {
    kvp_seq seq; /* all zero when none is open; of a swapped request, on the host */
    uint32_t has_ended;
    uint32_t n_tokens;        /* prompt and generated; the newest one included */
    uint32_t computed_tokens; /* steps that are out not counted; 0 when no sequence is open */
} kvp_sample_info;

/* Read what is known of a sample.
 * Returns: KVP_OK; KVP_E_HANDLE; KVP_E_ARG: there is no such sample.
 * Thread:  read. Cost: O(n_samples). */
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
    uint64_t swapped_requests; /* not paused */
    uint64_t paused_requests;
    uint64_t running_seqs; /* places of max_running in use */
    uint64_t swapped_seqs; /* of swapped requests, paused or not: places of the cache's max_seqs */
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
    uint64_t preemptions;        /* = recomputed + swapped_out */
    uint64_t recomputed;         /* preemptions by recompute, failed steps included */
    uint64_t swapped_out;        /* preemptions by swap */
    uint64_t swapped_ahead;      /* of them, ahead of need */
    uint64_t swapped_in;         /* requests */
    uint64_t swapped_out_blocks; /* copied */
    uint64_t swapped_in_blocks;  /* copied */
    uint64_t left_out;           /* sum of step.n_left_out */
    uint64_t tries;              /* prompts of waiting requests that were matched, and swapped
                                    requests that were tried */
    uint64_t passed_over;        /* times that a request was passed over */
    uint64_t scheduled_tokens;
    uint64_t sampled_tokens;
    uint64_t cached_tokens;                    /* not computed thanks to the cache, at admissions */
    uint64_t lost_tokens;                      /* computed tokens given up by preemptions */
    uint64_t waited[KVP_WAIT_REASONS];         /* sums of step.waited */
    uint64_t waited_swapped[KVP_WAIT_REASONS]; /* sums of step.waited_swapped */
    uint64_t loading_requests;                 /* gauge: held now */
    uint64_t held; /* = released + expired + dropped + loading_requests */
    uint64_t released;
    uint64_t expired;  /* by kvp_sched_tick */
    uint64_t dropped;  /* aborted or paused while they were held */
    uint64_t skipped;  /* kvp_sched_skip_load */
    uint64_t followed; /* times that a waiting request began to be kept back for its prefix. For
                          how many steps in all: waited[KVP_WAIT_PREFIX] */
    uint64_t promised_slots; /* gauge: of recurrent state, for samples that are not forked yet, or,
                                with overlapped steps, have no state of their own */
    uint64_t checkpoints;    /* made */
    uint64_t skipped_checkpoints; /* for lack of a slot, or because the state could not be kept */
    uint64_t draft_tokens;        /* slots for drafts that steps had */
    uint64_t accepted_tokens;     /* drafts that were accepted; also in sampled_tokens */
} kvp_sched_stats;

/* Read counters and gauges. Returns: KVP_OK. Thread: read. Cost: O(1). */
KVP_API kvp_status kvp_sched_stats_get(const kvp_sched *sched, kvp_sched_stats *out_stats);

/* Audit the scheduler's own state, and whether its sequences in the cache are as it assumes.
 * (kvp_cache_check audits the cache.)
 *   Q1 every request is in the queue of its state, queues are in order     Q2 the counts are sums
 *   Q3 every sample is where its stage says, its sequence is as long as it should be, and while it
 *      is in a step that is out, has a slot of recurrent state to write
 *   Q4 every page of the token arena is free or in one chain, and reservations cover the chains
 * Gives:   out_violation  written also on KVP_E_CORRUPT; may be NULL
 * Returns: KVP_OK; KVP_E_CORRUPT
 * Thread:  sched (changes nothing). Cost: O(all) */
KVP_API kvp_status kvp_sched_check(const kvp_sched *sched, kvp_violation *out_violation);

#ifdef __cplusplus
}
#endif
#endif
