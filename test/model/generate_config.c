/* Configurations: mostly small, so that everything is scarce. */
#include "generate_parts.h"

#include <string.h>

uint64_t generate_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t draw(uint64_t *state, uint32_t n)
{
    return (uint32_t)(generate_random(state) % n);
}

static bool likely(uint64_t *state, uint32_t percent)
{
    return draw(state, 100) < percent;
}

static uint32_t draw_unit(uint64_t *state, uint32_t block_tokens)
{
    uint32_t unit;

    if (likely(state, 35))
        return 0;
    if (block_tokens == 65536)
        return 65536u >> draw(state, 6);
    do {
        unit = 1 + draw(state, block_tokens);
    } while (block_tokens % unit);
    return unit;
}

static void draw_sizes(uint64_t *state, kvp_config *config)
{
    static const uint32_t blocks[] = {1, 2, 2, 3, 4, 4, 4, 5, 6, 8, 8, 16, 16, 16, 64};
    uint32_t s = blocks[draw(state, sizeof blocks / sizeof *blocks)];
    uint64_t most;

    config->n_blocks = 2 + draw(state, likely(state, 30) ? 8 : 63);
    if (likely(state, 4))
        config->n_blocks = 1000;
    if (draw(state, 200) == 0) {
        s = 65536;
        config->n_blocks = 2 + draw(state, 5);
    }
    config->block_tokens = s;
    config->unit_tokens = draw_unit(state, s);
    config->max_seqs = 1 + draw(state, likely(state, 30) ? 4 : 16);
    most = (uint64_t)config->n_blocks * s;
    config->max_seq_tokens = (uint32_t)(likely(state, 50)   ? most + s
                                        : likely(state, 50) ? most / 2 + 1
                                                            : 1 + most * draw(state, 300) / 100);
    config->max_namespaces = 1 + draw(state, 4);
}

/* The host tier: none, tiny, about as large as the device's, larger. */
static void draw_host(uint64_t *state, kvp_config *config)
{
    uint32_t kind = draw(state, 100);

    if (kind < 25)
        return;
    if (kind < 55)
        config->host_blocks = 2 + draw(state, 6);
    else if (kind < 80)
        config->host_blocks = 2 + draw(state, config->n_blocks);
    else
        config->host_blocks = config->n_blocks + draw(state, 2 * config->n_blocks);
    config->keep_evicted = !likely(state, 25);
    if (likely(state, 15))
        config->max_copies = 5 + draw(state, 12);
}

static void draw_steps(uint64_t *state, kvp_config *config)
{
    if (likely(state, 50))
        config->steps = KVP_STEPS_OVERLAPPED;
    config->max_steps_out = likely(state, 4) ? 64 : 1 + draw(state, 4);
}

static void draw_events(uint64_t *state, kvp_config *config)
{
    uint32_t kind = draw(state, 100);

    if (kind < 70)
        config->max_events = kind < 20 ? 1 + draw(state, 8) : 16 + draw(state, 2000);
    if (config->block_tokens > 64 && config->max_events) /* every event has a unit's tokens */
        config->max_events = 1 + config->max_events % 4;
}

static void put_window(kvp_group *group, kvp_window window)
{
    group->sink_tokens = window.sink_tokens;
    group->recent_tokens = window.recent_tokens;
}

/* Blocks of sizes of their own for the groups: whole units, a few or many. The state is a copy:
 * seeds that have found something stay. */
static void draw_group_sizes(uint64_t own_state, kvp_config *config)
{
    uint64_t *state = &own_state;
    uint32_t unit = config->unit_tokens ? config->unit_tokens : config->block_tokens;

    if (config->block_tokens > 64 || likely(state, 55))
        return;
    for (uint32_t k = 0; k < config->n_groups; k++) {
        if (likely(state, 75))
            config->groups[k].block_tokens = likely(state, 50)
                                                 ? unit * (1 + draw(state, 6))
                                                 : config->block_tokens << draw(state, 3);
    }
}

/* Layer groups with their windows, and trees: also none. Pools grow with the groups, mostly. */
static void draw_groups(uint64_t *state, kvp_config *config)
{
    static const uint32_t counts[] = {1, 1, 1, 2, 2, 2, 2, 3, 3, 4};

    if (likely(state, 55))
        config->max_tree_tokens = 1 + draw(state, 12);
    if (likely(state, 30))
        return;
    config->n_groups = counts[draw(state, sizeof counts / sizeof *counts)];
    for (uint32_t k = 0; k < config->n_groups; k++)
        if (likely(state, k ? 70 : 55))
            put_window(&config->groups[k], generate_window(state, config));
    if (config->n_groups > 1)
        draw_group_sizes(*state, config);
    if (config->host_blocks && likely(state, 25)) { /* hits with more on the host than fits */
        config->max_copies = 2 + draw(state, 4);
        config->full_hit = likely(state, 60) ? KVP_FULL_HIT_RECOMPUTE : KVP_FULL_HIT_SHARE;
    }
    if (config->n_blocks < 100 && likely(state, 80))
        config->n_blocks *= config->n_groups;
    if (config->host_blocks && config->host_blocks < 100 && likely(state, 50))
        config->host_blocks *= config->n_groups;
}

/* The host gives up what the device has: without what this cannot be combined with. */
static void keep_once(kvp_config *config)
{
    config->keep_evicted = KVP_EVICTED_KEEP_ONCE;
    config->unit_tokens = 0;
    config->groups[0] = (kvp_group){0, 0, 0};
    config->commit_policy = KVP_ADOPT;
    config->max_loads = config->lent_blocks = 0;
}

/* Many checkpoints on paths that part often. */
static void keep_trees(kvp_config *config)
{
    config->block_tokens = config->unit_tokens = 1;
    config->state_slots += 12;
    config->max_seq_tokens = 24;
    config->n_blocks = 120;
    config->prefix_cache = 1;
    config->n_uncached_tokens = 0;
    config->watermark = 0;
    config->n_nodes = 0;
    config->n_groups = 1;
    memset(config->groups, 0, sizeof config->groups);
}

/* States that go to the host and back while steps are out, with room for all of it. */
static void move_states(uint64_t *state, kvp_config *config)
{
    config->steps = KVP_STEPS_OVERLAPPED;
    config->max_steps_out = 2 + draw(state, 3);
    config->block_tokens = config->unit_tokens = 1 + draw(state, 3);
    config->n_blocks = config->host_blocks = 64;
    config->max_seqs = 2 + draw(state, 4);
    config->max_seq_tokens = 20;
    config->state_slots = 24;
    config->host_state_slots = 12;
    config->prefix_cache = 1;
    config->n_uncached_tokens = config->n_nodes = config->max_copies = config->lent_blocks = 0;
    config->watermark = 0;
    config->quotas = 0;
}

/* Recurrent state: few slots, or enough of them; without what it cannot be combined with. */
static void draw_states(uint64_t *state, kvp_config *config)
{
    uint32_t kind = draw(state, 100);

    if (kind < 72)
        return;
    config->state_slots = kind < 95 ? 2 + draw(state, 8) : 2 + draw(state, 4 * config->max_seqs);
    if (kind % (config->steps == KVP_STEPS_OVERLAPPED ? 4 : 2) == 1)
        config->host_blocks = config->max_loads = config->lent_blocks = 0;
    if (config->host_blocks)
        config->host_state_slots = 2 + draw(state, likely(state, 50) ? 4 : 2 * config->max_seqs);
    config->max_tree_tokens = 0;
    config->quotas = likely(state, 60);
    if (config->quotas && likely(state, 60)) { /* several namespaces with checkpoints */
        config->state_slots = 4 + draw(state, 6);
        config->max_namespaces = 3;
        config->block_tokens = config->unit_tokens = 1 + draw(state, 3);
        config->max_seqs = 1 + draw(state, 5);
        config->n_nodes = 0;
        config->n_blocks += 16;
    }
    if (config->steps == KVP_STEPS_OVERLAPPED && likely(state, 60)) {
        config->max_seqs = 1 + draw(state, 4);
        config->state_slots = 3 + draw(state, 5 * config->max_seqs);
        config->max_steps_out = 2 + draw(state, 4);
    }
    if (kind < 77 && config->block_tokens < 65536)
        move_states(state, config);
    if (kind >= 90 && config->steps == KVP_STEPS_ORDERED && !config->host_blocks)
        keep_trees(config);
    if (kind < 86 && likely(state, 40)) { /* a node may have a checkpoint and no block */
        config->unit_tokens = 2;
        config->block_tokens = 4;
        config->n_nodes = config->max_namespaces + 4 + draw(state, 12);
    }
    config->policy = KVP_POLICY_LRU;
    if (!config->host_blocks || config->keep_evicted == KVP_EVICTED_KEEP_ONCE)
        config->keep_evicted = 1;
}

/* What was drawn last may have another unit. */
static void keep_whole_units(kvp_config *config)
{
    uint32_t unit = config->unit_tokens ? config->unit_tokens : config->block_tokens;
    bool plain = config->state_slots && config->n_blocks % 2; /* states meet much that is rare */

    for (uint32_t k = 0; k < config->n_groups; k++)
        if (plain || config->groups[k].block_tokens % unit)
            config->groups[k].block_tokens = 0;
}

/* Retained places. The state is a copy: seeds that have found something stay. */
static void draw_retained(uint64_t own_state, kvp_config *config)
{
    uint64_t *state = &own_state;
    uint32_t unit = config->unit_tokens ? config->unit_tokens : config->block_tokens;

    generate_random(state);
    if (likely(state, 40))
        return;
    config->retain_tokens = likely(state, 40) ? KVP_RETAIN_PROMPTS : unit * (1 + draw(state, 9));
}

void generate_config(uint64_t seed, uint64_t index, kvp_config *out_config)
{
    static const double watermarks[] = {0.05, 0.1, 0.25, 0.5, 0.99};
    static const int32_t uncached[] = {3, 11, 77};
    uint64_t state = seed * 0x2545f4914f6cdd1du + index;
    kvp_config *config = out_config;
    uint32_t unit;

    kvp_config_init(config);
    draw_sizes(&state, config);
    unit = config->unit_tokens ? config->unit_tokens : config->block_tokens;
    if (likely(&state, 35)) {
        uint32_t units = config->n_blocks * (config->block_tokens / unit);

        config->n_nodes = config->max_namespaces + 2 + draw(&state, units < 400 ? units + 8 : 400);
    }
    config->max_unit_keys = likely(&state, 50) ? draw(&state, 4) : 0;
    config->max_copies = likely(&state, 25) ? 1 + draw(&state, 4) : 0;
    config->commit_policy = likely(&state, 40) ? KVP_KEEP : KVP_ADOPT;
    config->full_hit = likely(&state, 30) ? KVP_FULL_HIT_RECOMPUTE : KVP_FULL_HIT_SHARE;
    config->prefix_cache = !likely(&state, 6);
    config->watermark = likely(&state, 60) ? 0 : watermarks[draw(&state, 5)];
    config->hash_seed = likely(&state, 50) ? 0 : generate_random(&state);
    config->test_hash_bits = likely(&state, 50) ? 0 : likely(&state, 50) ? 1 : 4;
    if (config->n_blocks * (config->block_tokens / unit) > 300 && config->test_hash_bits)
        config->test_hash_bits = 10; /* collisions, but not all look-ups of many */
    if (likely(&state, 25)) {
        config->n_uncached_tokens = 1 + draw(&state, 3);
        config->uncached_tokens = uncached;
    }
    draw_host(&state, config);
    draw_steps(&state, config);
    draw_events(&state, config);
    draw_groups(&state, config);
    if (config->host_blocks && likely(&state, 65)) {
        config->max_loads = 1 + draw(&state, 4);
        config->lent_blocks = likely(&state, 50) ? 0 : 1 + draw(&state, config->host_blocks - 1);
    }
    config->quotas = likely(&state, 50);
    if (config->n_groups == 1 && likely(&state, 45)) {
        config->policy = KVP_POLICY_LEARNED;
        config->quotas = 0;
        config->groups[0] = (kvp_group){0, 0, 0};
        config->commit_policy = KVP_ADOPT;
        if (likely(&state, 75)) /* few blocks: it has learned something soon */
            config->n_blocks = 3 + draw(&state, 14);
        if (config->host_blocks && likely(&state, 75)) { /* on the host, too */
            config->host_blocks = 3 + draw(&state, 5);
            config->keep_evicted = KVP_EVICTED_KEEP;
            config->max_copies = config->lent_blocks = 0;
        }
    }
    if (config->host_blocks && config->n_groups == 1 && likely(&state, 40))
        keep_once(config);
    draw_states(&state, config);
    keep_whole_units(config);
    draw_retained(state, config);
    if (config->quotas && likely(&state, 30)) {
        config->max_namespaces += 2;
        config->n_nodes += config->n_nodes ? 2 : 0;
    }
}
