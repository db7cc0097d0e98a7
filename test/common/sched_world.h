/* sched_world: a scheduler to try things on, over a world. Every step and finish is followed by the
 * audits of the scheduler and of the cache. */
#ifndef TEST_SCHED_WORLD_H
#define TEST_SCHED_WORLD_H

#include "world.h"

#include <kvpager/sched.h>

typedef struct sched_world {
    world w;
    kvp_sched *sched;
} sched_world;

kvp_sched_config sched_config_of(uint32_t max_running, uint32_t step_tokens);
sched_world make_sched_world(const kvp_config *cache_config, const kvp_sched_config *config);
sched_world small_sched_world(uint32_t usable); /* S = U = 4, 8 sequences, 64 tokens a step */
void check_sched(const sched_world *s);
void end_sched_world(sched_world *s); /* aborts what is left: every block must come back */

/* A prompt of `first`, first + 1, ...; priority 0, one sample. */
kvp_request submit(sched_world *s, int32_t first, uint32_t prompt_tokens, uint32_t new_tokens);
kvp_request submit_rank(sched_world *s, int32_t first, uint32_t prompt_tokens, uint32_t new_tokens,
                        int32_t priority, uint32_t n_samples);
kvp_request submit_with(sched_world *s, const kvp_submission *submission);
kvp_status try_submit(sched_world *s, int32_t first, uint32_t prompt_tokens, uint32_t new_tokens,
                      kvp_request *out_request, kvp_sched_limit *out_limit);

kvp_step make_step(sched_world *s);
kvp_step_end finish_step(sched_world *s, const kvp_step *step); /* samples 1000, 1001, ... */
kvp_step run_step(sched_world *s);

kvp_request_info request_of(const sched_world *s, kvp_request request);
kvp_sample_info sample_of(const sched_world *s, kvp_request request, uint32_t sample);
kvp_sched_stats sched_stats_of(const sched_world *s);
const kvp_step_seq *item_of(const kvp_step *step, kvp_request request, uint32_t sample);

#endif
