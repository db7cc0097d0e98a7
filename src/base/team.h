/* team: threads that do one thing together, then sleep. The only file with threads in this room. */
#ifndef KVPI_TEAM_H
#define KVPI_TEAM_H

#include <kvpager/types.h>

struct kvpi_team;

/* Work of member `index` of `n`. */
typedef void (*kvpi_team_work)(void *context, uint32_t index, uint32_t n);

/* A team of n >= 1, the caller of kvpi_team_run included. KVP_OK, KVP_E_NO_MEMORY. */
kvp_status kvpi_team_create(uint32_t n, struct kvpi_team **out_team);
void kvpi_team_destroy(struct kvpi_team *team);

/* Do the work, each member its share; return when all have. One call at a time. */
void kvpi_team_run(struct kvpi_team *team, kvpi_team_work work, void *context);

#endif
