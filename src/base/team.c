/* team: see team.h. One mutex, one condition for the members (there is work, or the end), one for
 * the caller (all are done). Everything below `mutex` is read and written under it. */
#define _POSIX_C_SOURCE 200809L /* sigset_t, pthread_sigmask */

#include "base/team.h"

#include <stdlib.h>

#include "base/quiet.h"

struct member {
    struct kvpi_team *team;
    pthread_t thread;
    uint32_t index;
};

struct kvpi_team {
    uint32_t n; /* the caller is member 0 */
    pthread_mutex_t mutex;
    pthread_cond_t work_is_there;
    pthread_cond_t work_is_done;
    uint64_t turn; /* rises with each piece of work; never wraps */
    uint32_t n_busy;
    uint32_t ends;
    kvpi_team_work work;
    void *context;
    struct member members[]; /* [n]; 0 is not used */
};

static void *live(void *argument)
{
    const struct member *member = argument;
    struct kvpi_team *team = member->team;
    uint64_t turn = 0;
    (void)pthread_mutex_lock(&team->mutex);
    for (;;) {
        while (team->turn == turn && !team->ends) {
            (void)pthread_cond_wait(&team->work_is_there, &team->mutex);
        }
        if (team->ends) {
            break;
        }
        turn = team->turn;
        const kvpi_team_work work = team->work;
        void *context = team->context;
        (void)pthread_mutex_unlock(&team->mutex);
        work(context, member->index, team->n);
        (void)pthread_mutex_lock(&team->mutex);
        if (--team->n_busy == 0) {
            (void)pthread_cond_signal(&team->work_is_done);
        }
    }
    (void)pthread_mutex_unlock(&team->mutex);
    return NULL;
}

/* Ends the members 1..n_started, and frees what there is. */
static void disband(struct kvpi_team *team, uint32_t n_started)
{
    (void)pthread_mutex_lock(&team->mutex);
    team->ends = 1;
    (void)pthread_cond_broadcast(&team->work_is_there);
    (void)pthread_mutex_unlock(&team->mutex);
    for (uint32_t i = 1; i <= n_started; i++) {
        (void)pthread_join(team->members[i].thread, NULL);
    }
    (void)pthread_cond_destroy(&team->work_is_there);
    (void)pthread_cond_destroy(&team->work_is_done);
    (void)pthread_mutex_destroy(&team->mutex);
    free(team);
}

static kvp_status start_members(struct kvpi_team *team)
{
    kvp_status status = KVP_OK;
    for (uint32_t i = 1; status == KVP_OK && i < team->n; i++) {
        team->members[i] = (struct member){.team = team, .index = i};
        if (kvpi_quiet_start(&team->members[i].thread, live, &team->members[i]) != 0) {
            team->n = i;
            status = KVP_E_NO_MEMORY;
        }
    }
    return status;
}

kvp_status kvpi_team_create(uint32_t n, struct kvpi_team **out_team)
{
    struct kvpi_team *team = calloc(1, sizeof(*team) + n * sizeof(*team->members));
    if (!team) {
        return KVP_E_NO_MEMORY;
    }
    team->n = n;
    if (pthread_mutex_init(&team->mutex, NULL) != 0 ||
        pthread_cond_init(&team->work_is_there, NULL) != 0 ||
        pthread_cond_init(&team->work_is_done, NULL) != 0) {
        free(team); /* on the systems that there are, these three cannot fail */
        return KVP_E_NO_MEMORY;
    }
    const kvp_status status = start_members(team);
    if (status != KVP_OK) {
        disband(team, team->n - 1);
        return status;
    }
    *out_team = team;
    return KVP_OK;
}

void kvpi_team_destroy(struct kvpi_team *team)
{
    if (team) {
        disband(team, team->n - 1);
    }
}

void kvpi_team_run(struct kvpi_team *team, kvpi_team_work work, void *context)
{
    (void)pthread_mutex_lock(&team->mutex);
    team->work = work;
    team->context = context;
    team->n_busy = team->n - 1;
    team->turn++;
    (void)pthread_cond_broadcast(&team->work_is_there);
    (void)pthread_mutex_unlock(&team->mutex);
    work(context, 0, team->n);
    (void)pthread_mutex_lock(&team->mutex);
    while (team->n_busy > 0) {
        (void)pthread_cond_wait(&team->work_is_done, &team->mutex);
    }
    (void)pthread_mutex_unlock(&team->mutex);
}
