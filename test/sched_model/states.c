/* Recurrent state in a run of kvp_sched_model: configurations that have it, what the cache and its
 * copy have of it, and the slots that a step reads and writes. See runner.h. */
#include "runner.h"

/* Recurrent state, without what does not go with it. These draws, and those of options that came
 * later, are apart: all other configurations stay what they were. */
void states_draw(struct run *run)
{
    static const uint32_t usable[] = {1, 2, 3, 4, 6, 9, 14, 30};
    kvp_config *config = &run->cache_config;
    run->config.make_way = run->config_index / 2 % 2;
    if (run->config.chunk_tokens == 0 && run->config_index % 3 == 2)
        run->config.chunk_tokens = KVP_SCHED_CHUNK_HALF;
    if (run->config_index % 5 != 3)
        return;
    config->state_slots = 1 + usable[(run->config_index / 5 + run->seed) % 8];
    config->max_loads = 0;
    config->host_state_slots =
        config->host_blocks > 0 ? 2 + usable[(run->config_index / 40 + run->seed) % 8] : 0;
    run->config.swap_state_cost = run->config_index / 5 % 4;
}

/* Slots of recurrent state in the copy, and in the cache. Every count, or those that forks and ends
 * do not change. */
void states_compare(struct run *run, int all)
{
    kvp_state_stats a, b;
    REQUIRE(kvp_cache_state_stats_get(run->cache, &a) == KVP_OK);
    REQUIRE(kvp_cache_state_stats_get(run->copy, &b) == KVP_OK);
    REQUIRE(a.made == b.made && a.skipped == b.skipped && a.evicted == b.evicted);
    REQUIRE(a.taken == b.taken && a.hits == b.hits);
    REQUIRE(!all || (a.free_slots == b.free_slots && a.cached_slots == b.cached_slots));
    REQUIRE(!all || a.parked_slots == b.parked_slots);
}

static int are_apart(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b)
{
    for (uint32_t i = 0; i < n_a * n_b; i++)
        if (a[i / n_b] == b[i % n_b])
            return 0;
    return 1;
}

/* Which slots of state the step reads and writes, in the order of the batch. No pass may write what
 * another one of the step reads or writes; with overlapped steps, nor what it reads itself. */
void states_check_step(struct run *run)
{
    kvp_seq seqs[MAX_SEQS] = {{0}};
    int32_t reads[MAX_SEQS];
    int32_t writes[MAX_SEQS][KVP_STATE_RING_MAX];
    uint32_t n_writes[MAX_SEQS], n = 0;
    const int may_write_over = run->cache_config.steps == KVP_STEPS_ORDERED;
    if (run->cache_config.state_slots == 0)
        return;
    for (uint32_t i = 0; i < run->step.n_seqs; i++)
        if (run->o.plan.items[i].request != GONE)
            seqs[n++] = run->step.seqs[i].seq;
    REQUIRE(kvp_meta_state_rings(run->cache, seqs, n, KVP_STATE_RING_MAX, reads, n_writes,
                                 *writes) == KVP_OK);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++)
            REQUIRE((i == j && may_write_over) || are_apart(writes[i], n_writes[i], &reads[j], 1));
        for (uint32_t j = 0; j < n; j++)
            REQUIRE(i == j || are_apart(writes[i], n_writes[i], writes[j], n_writes[j]));
        for (uint32_t k = 0; k < n_writes[i]; k++)
            REQUIRE(are_apart(&writes[i][k], 1, writes[i], k));
    }
}

/* Which beams share a slot, the cache knows. */
void states_are_reordered(struct run *run, request *r)
{
    learn_handles(run, 1);
    oracle_slots_are_reordered(&run->o, r, run->cache);
}

/* A step that failed; with overlapped steps its copies have not run either. */
void states_spoil(struct run *run)
{
    if (run->cache_config.steps == KVP_STEPS_OVERLAPPED)
        sched_states_miss(&run->states, run->copies, run->n_copies);
    for (uint32_t i = 0; i < run->step.n_seqs; i++)
        if (run->o.plan.items[i].request != GONE)
            REQUIRE(sched_states_spoil(&run->states, run->cache, run->step.seqs[i].seq));
}
