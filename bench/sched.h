/* Scenes of a scheduler that decodes: sched.c measures some, growth.c others. */
#ifndef KVP_BENCH_SCHED_H
#define KVP_BENCH_SCHED_H

#include "bench.h"

typedef struct sched_scene {
    uint32_t n_requests;
    uint32_t n_groups; /* of layers, 1 or 3: the others attend to the last 128 and 1,024 tokens */
    bool evicting;     /* every block is taken by eviction; else blocks are free */
    bool reclaims;     /* evictions come between a step and its finish, and are not timed */
    bool host;   /* what is evicted is copied to a host tier that is full, too; the plan is taken */
    bool states; /* a slot of recurrent state for each request */
} sched_scene;

void *sched_scene_create(const bench_options *options, sched_scene scene);
void sched_scene_destroy(void *state);

/* A sample: ns of a step with its finish, for each request. */
double sched_scene_step(void *state);

#endif
