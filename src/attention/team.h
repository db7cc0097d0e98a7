/* team: the public face of threads. */
#ifndef KVPI_ATTENTION_TEAM_H
#define KVPI_ATTENTION_TEAM_H

#include "kvpager/attention.h"
#include "base/team.h"

struct kvp_attn_team {
    uint32_t n_threads;
    struct kvpi_team *team;
};

#endif
