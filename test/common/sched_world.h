/* sched_world: a scheduler to try things on, over a world. Every step and finish is followed by the
 * audits of the scheduler and of the cache. Plans and steps run on a memory (sched_memory.h); with
 * `reads_kv` a test fails when a sequence would read KV that is not its own: all that is cached
 * must have been computed by steps then, and finished by finish_step. With overlapped steps a step
 * of the cache begins with each step that is made, and is done before it is finished. */
#ifndef TEST_SCHED_WORLD_H
#define TEST_SCHED_WORLD_H

#include "world.h"

#include "sched_memory.h"
#include "sched_states.h"

#include <kvpager/sched.h>
#include <kvpager/steps.h>

typedef struct sched_world {
    world w;
    kvp_sched *sched;
    sched_memory memory;
    sched_states states;
    int is_overlapped;
    int reads_kv;
    uint64_t number;      /* of the cache's step that is out */
    kvp_copy copies[256]; /* of its plan, or of the last one that was taken */
    uint32_t n_copies;
} sched_world;

kvp_sched_config sched_config_of(uint32_t max_running, uint32_t step_tokens);
sched_world make_sched_world(const kvp_config *cache_config, const kvp_sched_config *config);
sched_world make_reading_world(const kvp_config *cache_config, const kvp_sched_config *config);
sched_world small_sched_world(uint32_t usable); /* S = U = 4, 8 sequences, 64 tokens a step */
sched_world swap_world(uint32_t usable,
                       uint32_t host_usable); /* the same, preempts by swap, reads KV */
void check_sched(const sched_world *s);
void end_sched_world(sched_world *s); /* aborts what is left: every block must come back */
#define scoped_sched_world ENDED_BY(end_sched_world) sched_world

/* A prompt of `first`, first + 1, ...; priority 0, one sample. */
kvp_request submit(sched_world *s, int32_t first, uint32_t prompt_tokens, uint32_t new_tokens);
kvp_request submit_rank(sched_world *s, int32_t first, uint32_t prompt_tokens, uint32_t new_tokens,
                        int32_t priority, uint32_t n_samples);
/* One of 12 prompts, any part; one request of `rare` has 1 to n_most samples. 0: refused. */
uint32_t submit_by_chance(sched_world *s, uint64_t *random, uint32_t rare, uint32_t n_most);
kvp_request submit_with(sched_world *s, const kvp_submission *submission);
kvp_status try_submit(sched_world *s, int32_t first, uint32_t prompt_tokens, uint32_t new_tokens,
                      kvp_request *out_request, kvp_sched_limit *out_limit);

kvp_step make_step(sched_world *s);
kvp_step_end finish_step(sched_world *s, const kvp_step *step); /* samples 1000, 1001, ... */
kvp_step run_step(sched_world *s);
void run_until_over(sched_world *s, uint64_t n_requests);            /* until so many have ended */
void run_to(sched_world *s, kvp_request request, uint32_t n_tokens); /* of its first sample */
void run_work(sched_world *s, const kvp_step *step); /* plan and forward pass; step done */

kvp_request_info request_of(const sched_world *s, kvp_request request);
kvp_sample_info sample_of(const sched_world *s, kvp_request request, uint32_t sample);
kvp_sched_stats sched_stats_of(const sched_world *s);
const kvp_step_seq *item_of(const kvp_step *step, kvp_request request, uint32_t sample);

/* Two requests of two full blocks each, that decode: each begins a block in the next step. */
void start_both(sched_world *s, kvp_request *a, kvp_request *b);

/* A step of the caller's own: what is released while it is out is parked. */
uint64_t begin_own(sched_world *s);

#endif
