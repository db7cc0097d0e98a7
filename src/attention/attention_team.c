/* attention_team: see attention.h. */
#include "attention/attention_team.h"

#include <stdlib.h>

static kvp_attention_team *new_team(uint32_t n_threads)
{
    kvp_attention_team *made = calloc(1, sizeof *made);
    if (made != NULL)
        made->n_threads = n_threads;
    return made;
}

static int is_count(uint32_t n_threads)
{
    return n_threads >= 1 && n_threads <= KVP_ATTENTION_TEAM_MAX;
}

kvp_status kvp_attention_team_create(uint32_t n_threads, kvp_attention_team **out_team)
{
    if (!is_count(n_threads) || out_team == NULL)
        return KVP_E_ARG;
    kvp_attention_team *made = new_team(n_threads);
    if (made == NULL)
        return KVP_E_NO_MEMORY;
    const kvp_status status = kvpi_team_create(n_threads, &made->team);
    if (status == KVP_OK)
        *out_team = made;
    else
        free(made);
    return status;
}

kvp_status kvp_attention_team_wrap(uint32_t n_threads, kvp_attention_pool run, void *pool,
                                   kvp_attention_team **out_team)
{
    if (!is_count(n_threads) || run == NULL || out_team == NULL)
        return KVP_E_ARG;
    kvp_attention_team *made = new_team(n_threads);
    if (made == NULL)
        return KVP_E_NO_MEMORY;
    made->run = run;
    made->pool = pool;
    *out_team = made;
    return KVP_OK;
}

void kvp_attention_team_destroy(kvp_attention_team *team)
{
    if (team == NULL)
        return;
    kvpi_team_destroy(team->team);
    free(team);
}

void kvpi_attn_team_run(const kvp_attention_team *team, kvp_attention_work work, void *data)
{
    if (team == NULL || team->n_threads == 1)
        work(data, 0, 1);
    else if (team->team != NULL)
        kvpi_team_run(team->team, work, data);
    else
        team->run(team->pool, work, data, team->n_threads);
}
