/* team: see attention.h. */
#include "attention/team.h"

#include <stdlib.h>

kvp_status kvp_attn_team_create(uint32_t n_threads, kvp_attn_team **out_team)
{
    if (n_threads < 1 || n_threads > KVP_ATTN_TEAM_MAX || out_team == NULL)
        return KVP_E_ARG;
    kvp_attn_team *made = malloc(sizeof *made);
    if (made == NULL)
        return KVP_E_NO_MEMORY;
    made->n_threads = n_threads;
    const kvp_status status = kvpi_team_create(n_threads, &made->team);
    if (status == KVP_OK)
        *out_team = made;
    else
        free(made);
    return status;
}

void kvp_attn_team_destroy(kvp_attn_team *team)
{
    if (team == NULL)
        return;
    kvpi_team_destroy(team->team);
    free(team);
}
