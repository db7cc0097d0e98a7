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
 *   RUNNING   holds sequences (or its trunk), is scheduled
 *   JOINING   holds sequences, will be RUNNING at the next step: resumed, or left out of this step
 *   HALTED    holds sequences, is paused
 *   IDLE      holds nothing, is paused
 *
 * Stages of a sample, and where it is found:
 *
 *   NONE      no sequence is open (waiting, or not forked yet)       nowhere
 *   PREFILL   more than one token to compute, or not yet sampled     list `prefill`
 *   DECODE    one token to compute, it is not in the core yet        items [0, n_decoding)
 *   HELD      has a sequence, its request is JOINING or HALTED       nowhere
 *   ENDED     its tokens are kept until the request ends             nowhere
 *
 * Invariants (Q3), of a sample with `known` tokens, prompt and generated:
 *
 *   PREFILL, HELD   its sequence has `core` tokens, core <= known; `computed` <= core
 *   DECODE          its sequence has known - 1 tokens between steps, all computed, and known tokens
 *                   while a step is out; `core` and `computed` are not kept up to date
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

#include "sched_pages.h"
#include "sched_queue.h"

#define KVPI_NONE UINT32_MAX

enum { KVPI_STAGE_NONE, KVPI_STAGE_PREFILL, KVPI_STAGE_DECODE, KVPI_STAGE_HELD, KVPI_STAGE_ENDED };

enum {
    KVPI_QUEUE_WAITING,
    KVPI_QUEUE_RUNNING,
    KVPI_QUEUE_JOINING,
    KVPI_QUEUE_HALTED,
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

/* What was seen when a waiting request was last tried and lacked blocks. */
struct kvpi_try {
    uint64_t missing; /* 0: nothing is known */
    uint64_t available;
    uint64_t opened; /* the cache's counters that tell how far the need may have shrunk since */
    uint64_t sealed;
    uint32_t promised;
};

struct kvpi_request {
    struct kvpi_rank rank; /* first: the queues' nodes are in the requests */
    uint32_t queue;
    uint32_t generation; /* of the handle */
    uint32_t first_sample;
    uint32_t n_samples;
    uint32_t n_live;
    uint32_t
        n_unforked;    /* admitted samples without a sequence, which the trunk will be forked to */
    uint32_t promised; /* blocks for them, in sched->promised_blocks */
    uint32_t limit;
    uint32_t passed;
    uint32_t preemptions;
    uint32_t n_pages; /* reserved */
    uint32_t next_free;
    struct kvpi_try last_try;
    struct kvpi_cursor cursor; /* in `pages`: where the trunk's next chunk begins */
    struct kvpi_chain pages;   /* the prompt's, unless borrowed */
    kvp_ns ns;
    kvp_prompt prompt; /* tokens NULL: in pages */
};

struct kvp_sched {
    kvp_cache *cache;
    kvp_sched_config config;
    uint32_t block_tokens;
    uint32_t max_seqs; /* the cache's */
    uint32_t max_seq_tokens;
    uint32_t usable_blocks;
    uint32_t watermark_blocks;
    int owns_memory;

    struct kvpi_request *requests;
    struct kvpi_sample *samples;
    uint32_t free_request;
    uint32_t free_sample;
    uint32_t n_free_samples;
    uint64_t arrivals;
    struct kvpi_queue queues[KVPI_QUEUES];
    struct kvpi_pages pages;

    /* the step */
    int is_out;
    uint32_t n_decoding;
    uint32_t n_items;
    uint32_t n_dead;    /* items whose request was aborted while the step is out */
    uint32_t n_strayed; /* requests that left RUNNING while the step is out */
    uint32_t n_tokens;
    uint32_t n_catching_up; /* samples in `prefill` with core < known */
    kvp_step_seq *items;    /* [max_running] */
    uint32_t *item_samples; /* [max_running] */
    kvp_seq *item_seqs;     /* [max_running] for the calls for many */
    uint32_t *item_ends;    /* [max_running] tokens of the sequence after the step */
    int32_t *tokens;        /* [step_tokens] */
    uint32_t prefill_first;
    uint32_t prefill_last;

    /* gauges */
    uint32_t n_running; /* places of max_running in use */
    uint32_t promised_blocks;
    uint32_t n_paused;

    /* reports */
    kvp_step report;
    kvp_request *admitted;  /* [max_running] */
    kvp_request *preempted; /* [2 max_running] */
    kvp_ended *refused;     /* [2 max_running] in a step */
    kvp_ended *ended;       /* [max_running] in a finish */
    uint32_t n_ended;

    /* scratch */
    int32_t *text;        /* [max_seq_tokens] tokens for the core, in one piece */
    int32_t *newest;      /* [max_running] */
    kvp_seq *few_seqs;    /* [max_running] */
    uint32_t *few_counts; /* [max_running] */
    uint32_t *few_ids;    /* [max_running] */
    uint32_t *more_ids;   /* [max_running] */
    uint64_t missing;     /* blocks that the last try lacked; 0: not known */
    uint32_t *tried;      /* [max_tries] */

    kvp_sched_stats stats; /* counters only; gauges are filled in when asked for */
};

static inline uint32_t kvpi_sched_ceil(uint32_t n, uint32_t per)
{
    return n / per + (n % per != 0);
}

static inline uint32_t kvpi_sched_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint32_t kvpi_sched_max(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
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

static inline uint32_t kvpi_sample_gap(const struct kvpi_sample *sample)
{
    return sample->known - sample->computed;
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

/* sched.c: the request of a handle, or NULL. */
struct kvpi_request *kvpi_sched_find(const kvp_sched *sched, kvp_request handle);

/* sched_life.c: between queues and stages. */
void kvpi_life_move(kvp_sched *sched, struct kvpi_request *request, uint32_t queue);
void kvpi_life_list(kvp_sched *sched, struct kvpi_sample *sample);
void kvpi_life_unlist(kvp_sched *sched, struct kvpi_sample *sample);
void kvpi_life_fill_item(kvp_sched *sched, struct kvpi_sample *sample);
void kvpi_life_drop_item(kvp_sched *sched, uint32_t slot);
void kvpi_life_hold(kvp_sched *sched, struct kvpi_sample *sample);
void kvpi_life_join_sample(kvp_sched *sched, struct kvpi_sample *sample);
void kvpi_life_join(kvp_sched *sched, struct kvpi_request *request);
void kvpi_life_leave(kvp_sched *sched, struct kvpi_request *request, uint32_t queue);
void kvpi_life_release(kvp_sched *sched, struct kvpi_request *request);
void kvpi_life_end_sample(kvp_sched *sched, struct kvpi_sample *sample, uint32_t reason);
void kvpi_life_refuse(kvp_sched *sched, struct kvpi_request *request, kvp_status status,
                      kvp_ended *out_ended);
void kvpi_life_forget(kvp_sched *sched, struct kvpi_request *request);
int kvpi_life_holds(const struct kvpi_request *request);

/* sched_text.c: tokens of a sample, of its prompt and of what it generated. */
void kvpi_text_read(const kvp_sched *sched, const struct kvpi_sample *sample,
                    struct kvpi_cursor *cursor, kvp_range range, int32_t *out_tokens);

/* sched_victims.c */
int kvpi_victims_take(kvp_sched *sched, const struct kvpi_request *beneficiary, int by_force);
void kvpi_victims_preempt(kvp_sched *sched, struct kvpi_request *victim);

/* sched_extend.c: room for what running sequences compute next. */
void kvpi_extend_running(kvp_sched *sched);

/* sched_admit.c: prompts under way, then waiting requests, within the budget. */
void kvpi_admit_chunks(kvp_sched *sched, uint32_t *budget);
void kvpi_admit_waiting(kvp_sched *sched, uint32_t budget);

/* sched_group.c: sequences for the samples that the trunk's are to be forked to. */
kvp_status kvpi_group_fork(kvp_sched *sched, struct kvpi_request *request,
                           const struct kvpi_sample *trunk);

#endif
