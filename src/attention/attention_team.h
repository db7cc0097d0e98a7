/* attention_team: the public face of threads. */
#ifndef KVPI_ATTENTION_TEAM_H
#define KVPI_ATTENTION_TEAM_H

#include "kvpager/attention.h"
#include "base/team.h"

struct kvp_attention_team {
    uint32_t n_threads;
    struct kvpi_team *team; /* NULL: the threads are another's */
    kvp_attention_pool run;
    void *pool;
};

/* Do the work, each thread its share; return when all have. NULL: the calling thread only. */
void kvpi_attn_team_run(const kvp_attention_team *team, kvp_attention_work work, void *data);

#endif
