/* sched_state: the scheduler's memory, and what its files share.
 *
 *   requests [max_requests]   one per submitted request; links of the queue it is in
 *   samples  [max_samples]    one per sample of each; chained by `next`, in sample order
 *   pages    [n_pages]        64 tokens each; chains of them hold prompts and generated tokens
 *   items    [max_running]    the step's sequences, as the caller sees them
 *
 * Queues (treaps, sched_queue.c), every request is in exactly one, or in none (IDLE):
 *
 *   WAITING   holds nothing, wants to be admitted
 *   LOADING   holds nothing, is kept from admission until its load is over (loading.c)
 *   SWAPPED   its sequences (or its trunk) are on the host, wants to come back
 *   RUNNING   holds sequences (or its trunk), is scheduled
 *   JOINING   holds sequences, will be RUNNING at the next step: resumed, or left out of this step
 *   HALTED    holds sequences, is paused
 *   STORED    its sequences are on the host, is paused
 *   IDLE      holds nothing, is paused
 *
 * Stages of a sample, and where it is found:
 *
 *   NONE      no sequence is open (waiting, or not forked yet)       nowhere
 *   PREFILL   more than one token to compute, or not yet sampled     list `prefill`
 *   DECODE    one token to compute, it is not in the core yet        items [0, n_decoding)
 *   HELD      has a sequence, is not scheduled: its request is not   nowhere
 *             RUNNING, or the others have to catch up with it
 *   ENDED     its tokens are kept until the request ends             nowhere
 *
 * Samples of a request advance together: either all live ones are in DECODE, or none is. A sample
 * that would decode next is ready (kvpi_sample_is_ready); when all are, they join. So live samples
 * have the same number of known tokens.
 *
 * Invariants (Q3), of a sample with `known` tokens, prompt and generated:
 *
 *   PREFILL, HELD   its sequence has `core` tokens, core <= known; `computed` <= core. What a
 *                   PREFILL computes ends at its goal (kvpi_sample_goal)
 *   DECODE          its sequence has known - 1 tokens between steps, all computed, and while a step
 *                   is out known tokens and its drafts; `core` and `computed` are not kept up to
 *                   date
 *   prompt <= known <= limit, and known < limit unless ENDED; generated = known - prompt
 *   items[k] for k < n_decoding is the step's entry of sample item_samples[k], and stays from step
 *   to step: what a decode changes of it is `begin`
 *
 * While a step is out, items [0, n_decoding) are its decoding sequences and items [n_decoding,
 * n_items) its chunks; a place whose request was aborted has item_samples[k] = NONE. Nothing is
 * moved in these arrays until the step is finished.
 */
#ifndef KVPI_SCHED_STATE_H
#define KVPI_SCHED_STATE_H

#include <kvpager/sched.h>
#include <kvpager/states.h>
#include <kvpager/swap.h>

#include "sched/sched_queue.h"

/* The token arena (pages.c): pages of 64 tokens in chains, so that nothing is ever moved and no
 * room is lost between prompts of different lengths. The caller has reserved before it appends, so
 * that appending cannot fail. */
#define KVPI_PAGE_TOKENS 64u
#define KVPI_NO_PAGE     UINT32_MAX

struct kvpi_chain {
    uint32_t head;
    uint32_t tail;
    uint32_t n_tokens;
};

/* A place in a chain that was read: page `page` holds tokens from `from` on. KVPI_NO_PAGE: at the
 * beginning. It saves the walk when reading goes on where it ended. */
struct kvpi_cursor {
    uint32_t page;
    uint32_t from;
};

struct kvpi_pages {
    int32_t *tokens; /* [n_pages][64] */
    uint32_t *next;  /* [n_pages] */
    uint32_t n_pages;
    uint32_t n_touched; /* pages that were ever used: the rest is free and not in the list */
    uint32_t free;
    uint32_t n_free; /* of both kinds */
    uint32_t n_reserved;
};

static inline struct kvpi_chain kvpi_chain_empty(void)
{
    return (struct kvpi_chain){KVPI_NO_PAGE, KVPI_NO_PAGE, 0};
}

static inline struct kvpi_cursor kvpi_cursor_start(void)
{
    return (struct kvpi_cursor){KVPI_NO_PAGE, 0};
}

void kvpi_pages_append(struct kvpi_pages *pages, struct kvpi_chain *chain, int32_t token);
void kvpi_pages_append_many(struct kvpi_pages *pages, struct kvpi_chain *chain,
                            const int32_t *tokens, uint32_t n_tokens);
void kvpi_pages_read(const struct kvpi_pages *pages, const struct kvpi_chain *chain,
                     struct kvpi_cursor *cursor, uint32_t from, uint32_t n_tokens,
                     int32_t *out_tokens);
void kvpi_pages_free(struct kvpi_pages *pages, struct kvpi_chain *chain);
int32_t *kvpi_pages_last(const struct kvpi_pages *pages, const struct kvpi_chain *chain);

#define KVPI_NONE UINT32_MAX

/* A request's place that has come to this generation is not used again: no handle has it. */
#define KVPI_LAST_GENERATION UINT32_MAX

enum { KVPI_STAGE_NONE, KVPI_STAGE_PREFILL, KVPI_STAGE_DECODE, KVPI_STAGE_HELD, KVPI_STAGE_ENDED };

enum {
    KVPI_QUEUE_WAITING,
    KVPI_QUEUE_SWAPPED,
    KVPI_QUEUE_RUNNING,
    KVPI_QUEUE_JOINING,
    KVPI_QUEUE_HALTED,
    KVPI_QUEUE_STORED,
    KVPI_QUEUE_LOADING,
    KVPI_QUEUES,
    KVPI_QUEUE_IDLE = KVPI_QUEUES,
    KVPI_QUEUE_UNUSED /* the place holds no request */
};

/* One cache line: a step touches those of all that decode. */
struct kvpi_sample {
    kvp_seq seq;
    uint32_t request;
    uint32_t stage;
    uint32_t slot; /* in items; KVPI_NONE: in none */
    uint32_t known;
    uint32_t limit;
    struct kvpi_chain generated;
    uint32_t core;
    uint32_t computed;
    uint32_t idx;  /* the sample's number */
    uint32_t next; /* of the request, or of the free ones */
    uint32_t list_before;
    uint32_t list_after;
};

/* What was seen when a request was last tried and lacked blocks. */
struct kvpi_try {
    uint64_t missing; /* 0: nothing is known */
    uint64_t available;
    uint64_t opened; /* the cache's counters that tell how far the need may have shrunk since */
    uint64_t sealed;
    uint64_t copied; /* copies that had taken effect for certain */
    uint32_t promised;
};

/* Copies that have taken effect: `copies`, and `next` when step number `step` has. */
struct kvpi_arrivals {
    uint64_t copies;
    uint64_t next;
    uint64_t step;
};

struct kvpi_request {
    struct kvpi_rank rank; /* first: the queues' nodes are in the requests */
    uint32_t queue;
    uint32_t generation; /* of the handle; retired: see KVPI_LAST_GENERATION */
    uint32_t first_sample;
    uint32_t n_samples;
    uint32_t n_live;
    uint32_t n_unforked; /* live samples without a sequence, which the trunk will be forked to */
    uint32_t is_forked;  /* 1: they have been, since the request was admitted */
    uint32_t promised;   /* blocks for the time after, in sched->promised_blocks; on the host: 0 */
    uint32_t limit;
    uint32_t passed;      /* at most max_passed_over: who has come there is not passed over */
    uint32_t preemptions; /* stays at the largest number, and so does the next: told, not used */
    uint32_t swaps;
    uint32_t n_pages; /* reserved */
    uint32_t next_free;
    uint32_t flags;         /* of the submission */
    uint32_t is_examined;   /* 1: it was held, or passed by, since it last came to wait */
    uint64_t load_deadline; /* of the submission; 0: none */
    uint64_t hold_deadline; /* of a LOADING one */
    kvp_seq leader;         /* the sequence that it follows (follow.c); zero: none */
    uint32_t leader_sample; /* whose it is: its place */
    uint32_t follow_end;    /* until so many of its tokens are computed */
    struct kvpi_try last_try;
    struct kvpi_cursor cursor; /* in `pages`: where the trunk's next chunk begins */
    struct kvpi_chain pages;   /* the prompt's, unless borrowed */
    uint32_t promised_slots;   /* of state, in sched->promised_slots */
    kvp_ns ns;
    kvp_prompt prompt; /* tokens NULL: in pages */
};

struct kvp_sched {
    kvp_cache *cache;
    kvp_sched_config config;
    uint32_t block_tokens[KVP_GROUPS_MAX]; /* S of each layer group */
    uint32_t unit_tokens;                  /* hits are of whole units */
    uint32_t n_groups;                     /* of layers: each has blocks for all tokens */
    int has_windows;                       /* a group has one: what is behind it is dropped */
    int ends_inside;                       /* a hit may end inside a block, which is copied */
    uint32_t usable_slots;                 /* of recurrent state; 0: the cache has none */
    int renews_slots;  /* no step writes the slot that it reads: overlapped steps */
    int learns;        /* what closes tell the cache counts: KVP_POLICY_LEARNED */
    int ends_prompts;  /* the cache must know where prompts end: that, or retained places */
    uint32_t max_seqs; /* the cache's */
    uint32_t max_seq_tokens;
    uint32_t max_copies;
    uint32_t usable_blocks;
    uint32_t watermark_blocks;
    int owns_memory;

    struct kvpi_request *requests;
    struct kvpi_sample *samples;
    uint32_t free_request;
    uint32_t free_sample;
    uint32_t n_free_samples;
    uint64_t arrivals; /* never wraps; rank.arrival is this one, of some time */
    struct kvpi_queue queues[KVPI_QUEUES];
    struct kvpi_pages pages;

    /* the step */
    int is_out;
    uint32_t n_decoding;
    uint32_t n_items;
    uint32_t n_dead;    /* items whose request was aborted while the step is out */
    uint32_t n_strayed; /* requests that left RUNNING while the step is out */
    uint32_t n_tokens;
    uint32_t n_catching_up; /* samples in `prefill` with core < goal */
    kvp_step_seq *items;    /* [max_running] */
    uint32_t *item_samples; /* [max_running] */
    kvp_seq *item_seqs;     /* [max_running] for the calls for many */
    uint32_t *item_ends;    /* [max_running] tokens of the sequence after the step */
    uint32_t *item_drafts;  /* [max_running] slots for drafts behind those that decode */
    uint32_t n_drafts;      /* their sum */
    int32_t *tokens;        /* [step_tokens] */
    uint32_t prefill_first;
    uint32_t prefill_last;

    /* gauges */
    uint32_t n_running; /* places of max_running in use */
    uint32_t n_swapped; /* live samples of SWAPPED requests */
    uint32_t n_stored;  /* of STORED ones */
    uint32_t promised_blocks;
    uint32_t promised_slots;
    uint32_t n_paused;

    /* reports */
    kvp_step report;          /* its number never wraps */
    kvp_request *admitted;    /* [max_running] */
    kvp_request *preempted;   /* [max_seqs + max_running] in a step, and when it fails */
    kvp_request *swapped_out; /* [max_running] */
    kvp_request *swapped_in;  /* [max_running] */
    kvp_ended *refused;       /* [max_requests] in a step */
    kvp_request *expired;     /* [max_loading] in a tick */
    kvp_ended *ended;         /* [max_running] in a finish */
    uint32_t n_ended;

    /* scratch */
    int32_t *text;            /* [max_seq_tokens] tokens for the core, in one piece */
    int32_t *newest;          /* [max_running] */
    kvp_seq *few_seqs;        /* [max_running] */
    uint32_t *few_counts;     /* [max_running] */
    uint32_t *few_ids;        /* [max_running] */
    uint32_t *more_ids;       /* [max_running] */
    kvp_seq *swap_seqs;       /* [max_running] */
    int32_t *accepted_drafts; /* [max_running x draft_tokens] */
    uint64_t missing;         /* blocks that the last try lacked; 0: not known */
    uint64_t missing_slots;   /* of state */
    int lacks_slots;          /* what was lacked last are slots of state */
    struct kvpi_arrivals arrived;
    uint32_t *tried; /* [max_tries] requests that did not fit, in this step */
    uint32_t n_tried;
    int is_blocked; /* one of them may not be passed over, or max_tries were tried */

    kvp_sched_stats stats; /* counters that never wrap; gauges are filled in when asked for */
};

static inline uint32_t kvpi_sched_ceil(uint32_t n, uint32_t per)
{
    return n / per + (n % per != 0);
}

/* Blocks of all layer groups for n tokens. */
static inline uint64_t kvpi_sched_blocks(const kvp_sched *sched, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t g = 0; g < sched->n_groups; g++) {
        sum += kvpi_sched_ceil(n, sched->block_tokens[g]);
    }
    return sum;
}

static inline uint32_t kvpi_sched_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint32_t kvpi_sched_max(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* One more, as long as there is a number for it. */
static inline void kvpi_sched_count(uint32_t *counter)
{
    *counter += *counter < UINT32_MAX;
}

static inline uint32_t kvpi_sched_place(const kvp_sched *sched, const struct kvpi_request *request)
{
    return (uint32_t)(request - sched->requests);
}

static inline kvp_request kvpi_sched_handle(const kvp_sched *sched,
                                            const struct kvpi_request *request)
{
    const uint64_t place = kvpi_sched_place(sched, request) + 1u;
    return (kvp_request){(uint64_t)request->generation << 32 | place};
}

/* Where the sample's chunks end. Of a group whose generated tokens are computed again, each stops
 * before its newest token, which all then decode in one step. With windows or recurrent state the
 * trunk first stops at the prompt's end: further on, what the other samples are forked with would
 * be dropped, or written over. */
static inline uint32_t kvpi_sample_goal(const kvp_sched *sched, const struct kvpi_request *request,
                                        const struct kvpi_sample *sample)
{
    const int is_again = request->n_live > 1 && sample->known > request->prompt.n_tokens;
    return is_again && (sched->has_windows || sched->usable_slots > 0) && !request->is_forked
               ? request->prompt.n_tokens
               : sample->known - (is_again ? 1u : 0u);
}

/* Has it one token to compute, which is not in the core? (Not for DECODE.) */
static inline int kvpi_sample_is_ready(const struct kvpi_sample *sample)
{
    return sample->core + 1 == sample->known && sample->computed == sample->core;
}

/* Tokens of it that are computed, in any stage. */
static inline uint32_t kvpi_sample_computed(const struct kvpi_sample *sample)
{
    return sample->stage == KVPI_STAGE_DECODE ? sample->known - 1 : sample->computed;
}

static inline int kvpi_sample_has_seq(const struct kvpi_sample *sample)
{
    return sample->stage != KVPI_STAGE_NONE && sample->stage != KVPI_STAGE_ENDED;
}

/* for (sample of request): the loop that every file needs. */
static inline struct kvpi_sample *kvpi_sched_sample(const kvp_sched *sched, uint32_t place)
{
    return place == KVPI_NONE ? NULL : &sched->samples[place];
}

static inline struct kvpi_sample *kvpi_sched_first(const kvp_sched *sched,
                                                   const struct kvpi_request *request)
{
    return kvpi_sched_sample(sched, request->first_sample);
}

static inline struct kvpi_sample *kvpi_sched_next(const kvp_sched *sched,
                                                  const struct kvpi_sample *sample)
{
    return kvpi_sched_sample(sched, sample->next);
}

#if KVP_CHECK >= 1
/* sched.c, for tests: a scheduler that was just created goes on as if arrivals and steps had
 * come to number `start`, and generations near it. */
void kvpi_sched_start_at(kvp_sched *sched, uint64_t start);
#endif

/* sched.c: the request of a handle, or NULL. */
struct kvpi_request *kvpi_sched_find(const kvp_sched *sched, kvp_request handle);

/* life.c: between queues and stages. */
void kvpi_life_move(kvp_sched *sched, struct kvpi_request *request, uint32_t queue);
void kvpi_life_list(kvp_sched *sched, struct kvpi_sample *sample);
void kvpi_life_unlist(kvp_sched *sched, struct kvpi_sample *sample);
void kvpi_life_fill_item(kvp_sched *sched, struct kvpi_sample *sample);
void kvpi_life_drop_item(kvp_sched *sched, uint32_t slot);
void kvpi_life_hold(kvp_sched *sched, struct kvpi_sample *sample);
void kvpi_life_join_samples(kvp_sched *sched, struct kvpi_request *request);
void kvpi_life_leave(kvp_sched *sched, struct kvpi_request *request, uint32_t queue);
void kvpi_life_release(kvp_sched *sched, struct kvpi_request *request, uint32_t queue);
void kvpi_life_unpromise(kvp_sched *sched, struct kvpi_request *request);
void kvpi_life_unpromise_blocks(kvp_sched *sched, struct kvpi_request *request);
void kvpi_life_end_sample(kvp_sched *sched, struct kvpi_sample *sample, uint32_t reason);
void kvpi_life_refuse(kvp_sched *sched, struct kvpi_request *request, kvp_status status,
                      kvp_ended *out_ended);
void kvpi_life_forget(kvp_sched *sched, struct kvpi_request *request);
int kvpi_life_holds(const struct kvpi_request *request);
int kvpi_life_is_swapped(const struct kvpi_request *request);
int kvpi_life_is_ready(const kvp_sched *sched, const struct kvpi_request *request);

/* read.c: tokens of a sample, of its prompt and of what it generated. */
void kvpi_read_text(const kvp_sched *sched, const struct kvpi_sample *sample,
                    struct kvpi_cursor *cursor, kvp_range range, int32_t *out_tokens);

/* victims.c: who gives blocks up, and how. */
int kvpi_victims_take(kvp_sched *sched, const struct kvpi_request *beneficiary, int by_force);
int kvpi_victims_are_pointless(const kvp_sched *sched, uint64_t missing);
int kvpi_victims_close_stored(kvp_sched *sched);
uint32_t kvpi_victims_count_below(kvp_sched *sched, int32_t priority);
void kvpi_victims_make_way(kvp_sched *sched, int32_t priority, int is_closed);
void kvpi_victims_recompute(kvp_sched *sched, struct kvpi_request *victim);
void kvpi_victims_swap_ahead(kvp_sched *sched);

/* swap.c: to the host and back. */
int kvpi_swap_is_possible(const kvp_sched *sched, const struct kvpi_request *request);
int kvpi_swap_is_cheaper(kvp_sched *sched, const struct kvpi_request *request);
int kvpi_swap_out(kvp_sched *sched, struct kvpi_request *request);
kvp_status kvpi_swap_in(kvp_sched *sched, struct kvpi_request *request);
kvp_status kvpi_swap_check(kvp_sched *sched, const struct kvpi_request *request);

/* extend.c: room for what running sequences compute next. */
void kvpi_extend_running(kvp_sched *sched);
void kvpi_extend_swapped_in(kvp_sched *sched, struct kvpi_request *request);
void kvpi_extend_clear_drafts(kvp_sched *sched);

/* open.c: the sequence of a request that is admitted; what others will need. */
kvp_status kvpi_open_trunk(kvp_sched *sched, struct kvpi_request *request);
kvp_status kvpi_open_check(kvp_sched *sched, struct kvpi_request *request);
uint32_t kvpi_open_blocks_to_promise(const kvp_sched *sched, const struct kvpi_request *request,
                                     const struct kvpi_sample *trunk);
struct kvpi_sample *kvpi_open_trunk_of(const kvp_sched *sched, const struct kvpi_request *request);
kvp_prompt kvpi_open_prompt_of(kvp_sched *sched, struct kvpi_request *request,
                               const struct kvpi_sample *trunk);
uint64_t kvpi_open_watermark(const kvp_sched *sched);

/* slots.c: slots of recurrent state, and checkpoints. */
uint32_t kvpi_slots_to_promise(const kvp_sched *sched, const struct kvpi_request *request);
void kvpi_slots_promise(kvp_sched *sched, struct kvpi_request *request, uint32_t n);
void kvpi_slots_promise_shared(kvp_sched *sched, struct kvpi_request *request);
uint64_t kvpi_slots_missing(kvp_sched *sched, const struct kvpi_request *request,
                            const kvp_prompt *prompt);
uint64_t kvpi_slots_available(const kvp_sched *sched);
uint64_t kvpi_slots_parked(const kvp_sched *sched);
int kvpi_slots_is_needed(const kvp_sched *sched, const struct kvpi_sample *sample);
uint32_t kvpi_slots_list_needed(kvp_sched *sched);
int kvpi_slots_is_lost(const kvp_sched *sched, kvp_seq seq);
int kvpi_slots_suffice_back(kvp_sched *sched, uint32_t n_seqs, uint32_t reserve, uint32_t at_once,
                            uint32_t *promise);
int kvpi_slots_are_all_there(const kvp_sched *sched);
uint32_t kvpi_slots_count_read(const kvp_sched *sched, const struct kvpi_request *request);
int kvpi_slots_are_released(const kvp_sched *sched, const struct kvpi_request *request);
uint32_t kvpi_slots_most_of(const kvp_sched *sched, uint32_t n_samples);
uint32_t kvpi_slots_cut_chunk(const kvp_sched *sched, const struct kvpi_sample *sample, uint32_t n);
uint32_t kvpi_slots_last_kept(const kvp_sched *sched, const struct kvpi_sample *sample,
                              uint32_t end);
void kvpi_slots_keep(kvp_sched *sched);

/* follow.c: waiting requests whose prefix another request computes. */
int kvpi_follow_keeps_back(kvp_sched *sched, struct kvpi_request *request);

/* admit.c: swapped requests, prompts under way, waiting requests, within the budget; before them,
 * those for which others make way. */
void kvpi_admit_urgent(kvp_sched *sched);
void kvpi_admit_swapped(kvp_sched *sched);
void kvpi_admit_chunks(kvp_sched *sched, uint32_t *budget);
void kvpi_admit_waiting(kvp_sched *sched, uint32_t budget);

/* group.c: sequences for the samples that the trunk's are to be forked to. */
kvp_status kvpi_group_fork(kvp_sched *sched, struct kvpi_request *request,
                           const struct kvpi_sample *trunk);

#endif
