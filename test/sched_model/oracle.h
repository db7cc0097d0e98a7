/* The scheduler's oracle: include/kvpager/sched.h as slow and obvious code.
 *
 * It keeps its own books of requests, in an array that is searched from end to end, and makes every
 * decision of a step anew. How many blocks there are it asks a copy of the cache, made right before
 * the step: what the scheduler does to the cache, the oracle does to the copy. Nothing is shared
 * with src/sched. Calls in between (finish, pause, abort ...) change its books only. */
#ifndef SCHED_MODEL_ORACLE_H
#define SCHED_MODEL_ORACLE_H

#include <kvpager/all.h>
#include <kvpager/sched.h>
#include <kvpager/states.h>

enum { MAX_REQUESTS = 14, MAX_SAMPLES = 4, MAX_PROMPT = 40, MAX_NEW = 40, MAX_TEXT = 80 };
enum { MAX_SEQS = 40 };

/* Where a request's sequences are. */
enum { NOWHERE, ON_DEVICE, ON_HOST };

typedef struct sample {
    int has_ended;
    kvp_seq seq;       /* zero: none is open */
    uint32_t core;     /* tokens that the cache has */
    uint32_t computed; /* of them */
    uint32_t n;        /* tokens of the sample */
    int32_t text[MAX_TEXT];
    uint32_t drafts;    /* slots behind them that the step has; in core while it is out */
    uint64_t under_way; /* since when it has chunks to compute: larger is later; 0: it has none */
} sample;

typedef struct request {
    int is_here;
    kvp_request handle;
    kvp_ns ns;
    int32_t priority;
    uint64_t arrival;
    uint32_t prompt;
    uint32_t max_new;
    uint32_t n_samples;
    uint32_t n_pages;
    uint32_t flags;       /* of the prompt */
    uint32_t may_load;    /* nobody has decided yet whether it is held, and it may be */
    uint32_t never_loads; /* it was submitted so */
    uint64_t load_deadline;
    int is_held;
    uint64_t held_until;
    kvp_seq leader; /* which one computes its prefix, as far as is known; zero: none */
    uint32_t follow_until;
    sample samples[MAX_SAMPLES];
    int where;
    int is_paused;
    int decodes;    /* in this step, all live samples */
    int takes_part; /* on the device, and scheduled; else from the next step on, or paused */
    uint32_t promised;
    uint32_t promised_slots; /* of recurrent state */
    uint32_t passed;
    uint32_t preemptions;
    uint32_t swaps;
} request;

/* What a step should be. Requests are named by their index in oracle.requests. */
enum { GONE = MAX_REQUESTS }; /* aborted since */

typedef struct plan_item {
    uint32_t request; /* or GONE */
    uint32_t sample;
    uint32_t begin;
    uint32_t n_tokens;
    uint32_t n_sampled;
    int decodes;
    uint32_t n_drafts;  /* slots for them */
    uint32_t n_results; /* n_sampled and accepted drafts */
} plan_item;

typedef struct step_plan {
    plan_item items[MAX_SEQS]; /* those that decode first, in any order; then chunks in order */
    uint32_t n_items;
    kvp_request admitted[MAX_SEQS];
    kvp_request preempted[2 * MAX_SEQS];
    kvp_request swapped_out[MAX_SEQS];
    kvp_request swapped_in[MAX_SEQS];
    kvp_ended ended[2 * MAX_SEQS];
    uint32_t n_admitted, n_preempted, n_swapped_out, n_swapped_in, n_ended, n_left_out;
    uint32_t waited[KVP_WAIT_REASONS];
    uint32_t waited_swapped[KVP_WAIT_REASONS];
    uint32_t n_loading;
} step_plan;

/* Situations that a long run must have met, and a very long one. */
/* clang-format off */
#define SITUATIONS(X) \
    X(PREEMPTED) X(SWAPPED_OUT) X(SWAPPED_IN) X(AHEAD) X(CHEAPER_SWAP) X(CHEAPER_RECOMPUTE) \
    X(MADE_WAY) X(MADE_WAY_CLOSED) X(URGENT) X(URGENT_PAST_SWAPPED) \
    X(NO_HOST_ROOM) X(WAY_BACK_TOO_LONG) X(PAUSED_VICTIM) X(BY_FORCE) X(RELEASES_NOTHING) \
    X(LEFT_OUT) X(CLOSED_STORED) X(PARKED_ENOUGH) X(GROUP_WAITS) X(REFUSED) X(K_REACHED) \
    X(TRIES_REACHED) X(SWAPPED_PASSED) X(PLACES_SHORT) X(CACHE_SEQS_SHORT) X(GROUP_SWAPPED) \
    X(REORDERED) X(REORDERED_AFTER_SWAP) X(REORDERED_WITH_ENDED) X(FAILED) X(RESUMED_SWAPPED) \
    X(ABORTED_SWAPPED) X(TOO_LONG) X(NEVER) X(ARENA_FULL) X(REQUESTS_FULL) X(WAIT_TOKENS) \
    X(SWAPPED_WAIT_SEQS) X(HELD) X(HELD_FULL) X(RELEASED) X(EXPIRED) X(EXPIRED_EARLY) X(ALL_HELD) \
    X(HELD_AGAIN) X(ABORTED_HELD) X(PAUSED_HELD) X(HELD_PASSED) X(SKIPPED) X(LOADED) X(KEPT_BACK) \
    X(KEPT_BACK_AGAIN) X(KEPT_BACK_GROUPS) X(KEPT_BACK_ONCE_RUN) X(KEPT_BACK_PASSED) \
    X(LEADER_LOST) X(RECLAIMED) X(STATE_HIT) X(STATE_NEVER) X(STATE_PROMISED) X(STATE_CUT_CHUNK) \
    X(STATE_KEPT) X(STATE_WAITS) X(STATE_SHORT) X(STATE_VICTIM) X(STATE_WITHHELD) \
    X(STATE_FOLLOWED) X(DRAFTS) X(DRAFTS_LACK_ROOM) X(ACCEPTED_ALL) X(ACCEPTED_SOME) \
    X(DRAFT_RINGS) X(DRAFTS_LACK_SLOTS) X(DRAFT_RINGS_MOVE_ON) \
    X(ACCEPTED_NONE) X(ACCEPTED_GROUPS) X(ACCEPTED_STATES) X(STATE_SWAPPED) X(STATE_SWAPPED_IN) \
    X(STATE_BACK_WAITS) X(STATE_MOVES_ON) X(STATE_SETTLED) X(STATE_BEAMS) X(STATE_RENEWED) \
    X(STATE_MOVED_BACK)
#define RARE_SITUATIONS(X) \
    X(FAILED_ELSEWHERE) X(PROMISED_BACK) X(CAUGHT_UP_LATER) X(HITS_GIVEN_UP) X(PROMPT_SWAPPED) \
    X(LEFT_OUT_PLAN) X(WAIT_PLAN) X(SWAPPED_WAIT_PLAN) X(FOLLOWED_SAMPLE) \
    X(RECLAIMED_TWO) X(STATE_HITS_GIVEN_UP) X(STATE_SKIPPED) X(STATE_NOT_FOLLOWED) \
    X(STATE_FOUND_BACK) X(STATE_PARKED) X(STATE_BACK_PROMISED) X(STATE_LOST) \
    X(DRAFT_RINGS_AND_CHUNKS)
/* clang-format on */

#define SITUATION_NAME(name) MET_##name,
enum {
    SITUATIONS(SITUATION_NAME) N_COMMON,
    MET_BEFORE_RARE = N_COMMON - 1,
    RARE_SITUATIONS(SITUATION_NAME) N_SITUATIONS
};
#undef SITUATION_NAME

typedef struct oracle {
    kvp_sched_config config; /* as given; resolved by oracle_begin */
    kvp_config cache_config; /* resolved */
    uint32_t usable;
    uint32_t usable_slots; /* of recurrent state */
    int moves_on;          /* no step writes the slot of state that it reads */
    int lacks_slots;       /* what was missing last are slots */
    uint64_t missing_slots;
    const char *wrong; /* what the cache did otherwise than it had said; NULL: nothing */
    uint32_t watermark;
    kvp_cache *cache; /* the copy */
    request requests[MAX_REQUESTS];
    uint64_t arrivals;
    uint64_t clock; /* for sample.under_way */
    int is_out;
    const kvp_step *made; /* the scheduler's: in which order those that decode are extended */
    step_plan plan;
    uint64_t n_preempted, n_swapped_out, n_swapped_ahead, n_swapped_in, lost_tokens;
    uint64_t n_checkpoints, n_skipped_checkpoints;
    uint64_t n_draft_tokens, n_accepted;
    uint64_t n_held, n_released, n_expired, n_dropped, n_skipped, n_followed;
    uint64_t met[N_SITUATIONS];
} oracle;

void oracle_begin(oracle *o, const kvp_sched_config *config, const kvp_cache *cache);

/* What calls should return, and what becomes of the books. */
kvp_status oracle_submit(oracle *o, const kvp_submission *submission, kvp_sched_limit *out_limit,
                         request **out_request);
void oracle_abort(oracle *o, request *r);
void oracle_pause(oracle *o, request *r);
void oracle_resume(oracle *o, request *r);
void oracle_step(oracle *o, kvp_cache *copy);
void oracle_finish(oracle *o, const int32_t *tokens, const uint8_t *ended, kvp_ended *out_ended,
                   uint32_t *out_n_ended);
void oracle_fail(oracle *o, const kvp_cache *cache);
uint32_t oracle_reclaim(oracle *o, kvp_cache *copy);
uint32_t oracle_loadable(oracle *o, uint32_t n_first, kvp_request *out);
kvp_status oracle_hold(oracle *o, request *r, uint64_t deadline);
kvp_status oracle_skip_load(oracle *o, request *r);
kvp_status oracle_release(oracle *o, request *r);
void oracle_tick(oracle *o, uint64_t now, kvp_request *out, kvp_sched_expired *out_expired);
kvp_status oracle_reorder(oracle *o, request *r, const uint32_t *parents, const int32_t *tokens);

/* oracle_prefix.c: is a waiting request kept back because another one computes its prefix? */
int oracle_keeps_back(oracle *o, request *r);

/* oracle_drafts.c: drafts. */
int oracle_extend_with_drafts(oracle *o);
uint32_t oracle_count_drafts(const oracle *o);
uint32_t oracle_accepted(const plan_item *item);
void oracle_accept(oracle *o, const plan_item *item, const int32_t *tokens);
void oracle_commit(const oracle *o, kvp_cache *copy);

/* oracle_rows.c: blocks of a request. */
uint32_t oracle_row(const oracle *o, const sample *s, uint32_t group, const int32_t **out_row);
uint64_t oracle_lost_tokens(const oracle *o, const request *r);
sample *oracle_trunk(request *r);
uint32_t oracle_blocks_for_later(const oracle *o, request *r);
int oracle_others_hold(const oracle *o, const request *r, uint32_t group, int32_t block);
int oracle_releases_block(const oracle *o, const request *r);
int oracle_way_back_fits(const oracle *o, const request *r);

/* oracle_states.c: recurrent state. */
uint32_t oracle_states_to_copy(const oracle *o, const request *r);
int oracle_slots_fit_back(oracle *o, const request *r, const kvp_seq *seqs, uint32_t n,
                          uint32_t reserve);
kvp_status oracle_swap_in(oracle *o, request *r, const kvp_seq *seqs, uint32_t n, uint32_t reserve);
uint32_t oracle_most_slots(const oracle *o, uint32_t n_samples);
int oracle_needs_slot(const oracle *o, const request *r, const sample *s);
uint32_t oracle_list_needing_slots(oracle *o, kvp_seq *out_seqs);
void oracle_slots_are_forked(request *r, const oracle *o);
void oracle_slots_are_computed(oracle *o, request *r, int decodes);
void oracle_slots_are_reordered(oracle *o, request *r, const kvp_cache *cache);
int oracle_parked_slots_suffice(oracle *o, uint64_t missing);
uint64_t oracle_slots_left(const oracle *o);
int oracle_slots_fit(oracle *o, const request *r, const kvp_prompt *prompt);
kvp_status oracle_open_trunk(oracle *o, request *r, sample *trunk, const kvp_prompt *prompt);
int oracle_releases_slot(const oracle *o, const request *r);
uint32_t oracle_cut_chunk(oracle *o, const sample *s, uint32_t n);
uint32_t oracle_last_kept(const oracle *o, const sample *s, uint32_t end, uint32_t grain);
void oracle_keep(oracle *o, kvp_cache *copy);

/* oracle.c, for oracle_step.c */
request *oracle_find(oracle *o, kvp_request handle);
int oracle_before(const request *a, const request *b);
uint32_t oracle_live(const request *r);

/* S of a layer group; and blocks of all groups for so many tokens. */
uint32_t oracle_size(const oracle *o, uint32_t group);
uint64_t oracle_blocks_of(const oracle *o, uint64_t tokens);
uint32_t oracle_goal(const oracle *o, const request *r, const sample *s);
int oracle_is_ready(const request *r);
void oracle_drop_sequences(request *r);
kvp_ended oracle_refusal(oracle *o, request *r, kvp_status status);

#endif
