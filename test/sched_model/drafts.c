/* Drafts in a run of kvp_sched_model: configurations that have them, what is accepted, and what the
 * step writes for them. See runner.h. */
#include "runner.h"

#include <string.h>

/* The draws are apart: all other configurations stay what they were. */
void drafts_draw(struct run *run)
{
    static const uint32_t most[] = {1, 2, 3, 6, 16};
    if (run->config_index % 7 != 5)
        return;
    run->drafts_random = run->random;
    run->config.draft_tokens = most[(run->config_index / 7 + run->seed) % 5];
    run->config.step_tokens += run->config.max_running * run->config.draft_tokens;
    if (run->cache_config.state_slots > 0)
        run->config.state_rings = (run->config_index / 35 + run->config_index / 280) % 2;
}

static uint32_t draw_apart(struct run *run, uint32_t below)
{
    const uint64_t random = run->random;
    run->random = run->drafts_random;
    const uint32_t drawn = draw(run, below);
    run->drafts_random = run->random;
    run->random = random;
    return drawn;
}

/* How many drafts are accepted: none, all, or some; equally many for all samples of a request. The
 * rest of the drafts is text that will not be. */
static void draw_accepted(struct run *run)
{
    uint32_t of_request[MAX_REQUESTS + 1];
    for (uint32_t i = 0; i <= MAX_REQUESTS; i++)
        of_request[i] = draw_apart(run, 3) == 0 ? draw_apart(run, 2) * KVP_SCHED_DRAFTS_MAX
                                                : draw_apart(run, 4);
    for (uint32_t k = 0; k < run->step.n_decoding; k++) {
        plan_item *item = &run->o.plan.items[k];
        const uint32_t accepted = of_request[item->request];
        item->n_results += accepted < item->n_drafts ? accepted : item->n_drafts;
        if (item->request == GONE)
            continue;
        sample *s = &run->o.requests[item->request].samples[item->sample];
        for (uint32_t i = 0; i < item->n_drafts; i++)
            s->text[s->n + i] = (int32_t)draw_apart(run, 3);
    }
}

/* Accepted drafts stand before what was sampled after them. */
static void add_accepted(struct run *run, struct results *results)
{
    int32_t sampled[MAX_SEQS];
    uint32_t n = 0;
    memcpy(sampled, results->tokens, run->step.n_sampled * sizeof *sampled);
    for (uint32_t k = 0; k < run->step.n_decoding; k++) {
        const plan_item *item = &run->o.plan.items[k];
        const request *r = &run->o.requests[item->request % MAX_REQUESTS];
        const sample *s = &r->samples[item->sample];
        for (uint32_t i = 0; i < oracle_accepted(item); i++)
            results->tokens[n++] = item->request == GONE ? -1 : s->text[s->n + i];
        results->tokens[n++] = sampled[k];
        results->counts[k] = item->n_results;
    }
    memcpy(results->tokens + n, sampled + run->step.n_decoding,
           (run->step.n_sampled - run->step.n_decoding) * sizeof *sampled);
}

void drafts_draw_results(struct run *run, struct results *results)
{
    for (uint32_t i = 0; i < run->step.n_sampled; i++) {
        results->tokens[i] = (int32_t)draw(run, 3);
        results->ended[i] = draw(run, 40) == 0;
    }
    if (run->config.draft_tokens > 0) {
        draw_accepted(run);
        add_accepted(run, results);
    }
}

/* Counts that cannot be: the call changes nothing. */
static void refuse(struct run *run, const struct results *results)
{
    uint32_t wrong[MAX_SEQS];
    const uint32_t k = draw_apart(run, run->step.n_decoding);
    memcpy(wrong, results->counts, sizeof wrong);
    wrong[k] = draw_apart(run, 2) ? 0 : run->step.drafts[k] + 2;
    REQUIRE(kvp_sched_finish_drafts(run->sched, results->tokens, wrong, results->ended, NULL) ==
            KVP_E_ARG);
}

kvp_status drafts_finish(struct run *run, const struct results *results, kvp_step_end *out_end)
{
    uint32_t n_accepted = 0;
    for (uint32_t k = 0; k < run->step.n_decoding; k++)
        n_accepted += oracle_accepted(&run->o.plan.items[k]);
    if (run->step.n_decoding > 0 && run->config.draft_tokens > 0 && draw_apart(run, 8) == 0)
        refuse(run, results);
    if (n_accepted == 0 && (run->config.draft_tokens == 0 || draw_apart(run, 2)))
        return kvp_sched_finish(run->sched, results->tokens, results->ended, out_end);
    return kvp_sched_finish_drafts(run->sched, results->tokens, results->counts, results->ended,
                                   out_end);
}

/* What the step computes of an item; if it writes, with the drafts that are not accepted. */
kvp_range drafts_range(const struct run *run, uint32_t k, int is_writing)
{
    const plan_item *item = &run->o.plan.items[k];
    const uint32_t drafts = is_writing ? item->n_drafts : oracle_accepted(item);
    return (kvp_range){item->begin, item->begin + item->n_tokens + drafts};
}

void drafts_compare(struct run *run)
{
    REQUIRE(run->step.n_drafts == oracle_count_drafts(&run->o));
    REQUIRE(run->step.n_tokens + run->step.n_drafts <= run->config.step_tokens);
    for (uint32_t k = 0; k < run->step.n_decoding; k++)
        REQUIRE(run->step.drafts[k] == run->o.plan.items[k].n_drafts);
}

void drafts_compare_stats(struct run *run, const kvp_sched_stats *stats)
{
    REQUIRE(stats->accepted_tokens == run->o.n_accepted);
    REQUIRE(stats->draft_tokens == run->o.n_draft_tokens);
}
