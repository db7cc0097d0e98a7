/* Configurations: each of the simulation's features is drawn here, with its needs. See sim.h. */
#include "sim.h"

#include <string.h>

/* Blocks of several sizes, one half, one and two times S; of the first group also as many more
 * tokens as one of its entries has. */
static void draw_sizes(sim *s)
{
    kvp_config *c = &s->config;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        const uint32_t S = c->block_tokens << sim_below(s, 3) >> 1;
        c->groups[g].block_tokens = S < c->unit_tokens ? c->unit_tokens : S;
    }
    c->groups[0].block_tokens = c->block_tokens * s->entry;
}

static void draw_groups(sim *s)
{
    kvp_config *c = &s->config;
    c->n_groups = sim_percent(s, 60) ? 1 : 2 + sim_below(s, SIM_GROUPS - 1);
    for (uint32_t g = 1; g < c->n_groups; g++) {
        c->groups[g].recent_tokens = 1 + sim_below(s, 30);
        c->groups[g].sink_tokens = sim_percent(s, 50) ? 0 : sim_below(s, 6);
        c->retain_tokens = sim_percent(s, 50)   ? 0
                           : sim_percent(s, 50) ? KVP_RETAIN_PROMPTS
                                                : c->unit_tokens * (1 + sim_below(s, 8));
    }
    s->entry = sim_percent(s, 70) ? 1 : 1u << sim_below(s, c->unit_tokens < 4 ? 2 : 3);
    if (c->n_groups > 1 && sim_percent(s, 60)) {
        draw_sizes(s);
    }
}

static uint32_t smallest(const sim *s)
{
    uint32_t S = s->config.block_tokens;
    for (uint32_t g = 0; g < s->config.n_groups; g++) {
        const uint32_t other = s->config.groups[g].block_tokens;
        S = other > 0 && other < S ? other : S;
    }
    return S;
}

static void draw_cache(sim *s)
{
    kvp_config *c = &s->config;
    kvp_config_init(c);
    c->block_tokens = 4u << sim_below(s, 2);
    c->unit_tokens = sim_percent(s, 70) ? c->block_tokens : c->block_tokens / 2;
    draw_groups(s);
    c->n_blocks = 1 + (SIM_TEXT / smallest(s) + 2 + sim_below(s, 30)) * c->n_groups;
    c->host_blocks = 8 + sim_below(s, 60) * c->n_groups;
    c->max_seqs = 2 * SIM_RUNNING + SIM_MOVES;
    c->max_seq_tokens = SIM_TEXT;
    c->max_namespaces = SIM_SPACES;
    c->max_events = sim_percent(s, 50) ? 1024 : 48;
    c->max_unit_keys = 1;
    c->max_loads = 1 + sim_below(s, 8);
    c->max_copies = 256;
    c->commit_policy = sim_percent(s, 30) ? KVP_KEEP : KVP_ADOPT;
    c->steps = sim_percent(s, 50) ? KVP_STEPS_OVERLAPPED : KVP_STEPS_ORDERED;
    if (c->steps == KVP_STEPS_ORDERED && sim_percent(s, 60)) {
        c->state_slots = 6 + sim_below(s, 20);
        c->host_state_slots = 2 + sim_below(s, 20);
    } else if (c->commit_policy == KVP_ADOPT && c->n_groups == 1) {
        c->policy = sim_percent(s, 50) ? KVP_POLICY_LEARNED : KVP_POLICY_LRU;
    }
    c->quotas = c->policy == KVP_POLICY_LRU && sim_percent(s, 40);
}

static void draw_sched(sim *s)
{
    kvp_sched_config *c = &s->sched_config;
    kvp_sched_config_init(c);
    c->max_requests = SIM_REQUESTS;
    c->max_samples = SIM_IDS;
    c->max_running = 1 + SIM_SAMPLES + sim_below(s, SIM_RUNNING - SIM_SAMPLES);
    c->step_tokens = c->max_running + sim_below(s, 60);
    c->draft_tokens =
        sim_percent(s, s->config.state_slots > 0 ? 40 : 60) ? 0 : 1 + sim_below(s, SIM_DRAFTS);
    c->step_tokens += c->max_running * c->draft_tokens;
    c->state_rings = c->draft_tokens > 0 && s->config.state_slots > 0 && sim_percent(s, 80);
    c->max_loading = SIM_REQUESTS;
    c->preempt = sim_below(s, 3);
    c->wait_for_prefix = sim_below(s, 2);
    c->make_way = sim_below(s, 2);
    c->free_target = sim_below(s, 2);
    c->arena_tokens = 4096;
}

/* On a tier, or of slots of state. */
void sim_other_quota(sim *s, uint32_t space)
{
    const uint32_t tier = s->config.state_slots > 0 && sim_percent(s, 30) ? KVP_STATE_SLOTS
                          : sim_percent(s, 50)                            ? KVP_HOST
                                                                          : KVP_DEVICE;
    const uint32_t quota = sim_percent(s, 20) ? KVP_NO_QUOTA : sim_below(s, s->config.n_blocks);
    if (s->config.quotas > 0) {
        (void)sim_ok(s, "kvp_ns_quota", kvp_ns_quota(s->cache, s->spaces[space], tier, quota));
    }
}

static void leave_out(sim *s)
{
    kvp_config *c = &s->config;
    if (!sim_has(s, SIM_OF_groups)) {
        c->n_groups = 1;
        c->retain_tokens = 0;
        memset(c->groups, 0, sizeof c->groups);
        s->entry = 1;
    }
    if (!sim_has(s, SIM_OF_states)) {
        c->state_slots = c->host_state_slots = s->sched_config.state_rings = 0;
    }
    if (!sim_has(s, SIM_OF_drafts)) {
        s->sched_config.draft_tokens = s->sched_config.state_rings = 0;
    }
    c->quotas = sim_has(s, SIM_OF_quotas) ? c->quotas : 0;
    s->slow_rate = sim_has(s, SIM_OF_slow_disk) ? s->slow_rate : 0;
}

void sim_draw(sim *s)
{
    draw_cache(s);
    draw_sched(s);
    s->store_bytes = (uint64_t)(8 + sim_below(s, 200)) * 8448;
    s->slow_rate = sim_percent(s, 50) ? 0 : 10 + sim_below(s, 80);
    leave_out(s);
    s->record_blocks = 1u << sim_below(s, 3);
    for (uint32_t g = 0; g < s->config.n_groups; g++) { /* a record is whole blocks of each */
        while (s->record_blocks * s->config.block_tokens < s->config.groups[g].block_tokens) {
            s->record_blocks *= 2;
        }
    }
    for (uint32_t d = 0; d < SIM_DOCUMENTS; d++) {
        for (uint32_t i = 0; i < SIM_PROMPT; i++) {
            s->documents[d][i] = i < 12 * (d % 3) ? (int32_t)(i % 3) : (int32_t)sim_below(s, 3);
        }
    }
}
