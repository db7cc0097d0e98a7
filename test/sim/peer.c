/* The other engine, and what both engines have for transfers. See sim.h.
 *
 * The peer has a cache and a memory, blocks of other sizes, and no scheduler: it opens a prompt,
 * computes it in chunks, one after the other, or receives it. It lives on when this engine dies,
 * and dies itself now and then: its memory goes, and both links are cut. Of new weights it learns
 * late. A side's memory is two floats for each slot, of an entry's KV a share for each token. */
#include "sim.h"

#include <string.h>

/* ---------------------------------------------------------------------------------------- sides */

/* Both halves of a slot; with entries of 2 tokens a half each, with 4 a quarter. */
static kvp_layout layout_of(const sched_memory *memory, uint32_t group)
{
    const uint32_t entry = memory->entry[group];
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = entry == 4 ? KVP_F16 : KVP_F32;
    layout.n_blocks = memory->n_blocks[KVP_DEVICE];
    layout.block_tokens = memory->groups[group].block_tokens;
    layout.n_layers = layout.n_heads = layout.n_tensors = 1;
    layout.k = (kvp_part){.size = 1,
                          .run = 1,
                          .tensor_bytes = layout.n_blocks * memory->S * sizeof(uint64_t),
                          .block_stride = memory->S * sizeof(uint64_t),
                          .token_stride = sizeof(uint64_t) / entry};
    if (entry == 1) {
        layout.v = layout.k;
        layout.v.offset = sizeof(uint32_t);
    }
    return layout;
}

static kvp_layout layout_of_states(const sched_states *states)
{
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = KVP_BYTES;
    layout.n_blocks = states->n;
    layout.block_tokens = layout.n_layers = layout.n_heads = layout.n_tensors = 1;
    layout.k = (kvp_part){.size = sizeof(uint64_t),
                          .run = sizeof(uint64_t),
                          .tensor_bytes = states->n * sizeof(uint64_t),
                          .block_stride = sizeof(uint64_t)};
    return layout;
}

static void wrap(sim *s, sim_side *side, uint32_t part, const kvp_layout *layout, void *bytes)
{
    void *tensors[1] = {bytes};
    (void)sim_ok(s, "kvp_memory_wrap", kvp_memory_wrap(layout, tensors, &side->parts[part]));
}

static void side_begin(sim *s, sim_side *side)
{
    kvp_transfer_config config;
    for (uint32_t g = 0; g < side->memory->n_groups; g++) {
        const kvp_layout layout = layout_of(side->memory, g);
        wrap(s, side, g, &layout, side->memory->slots[KVP_DEVICE]);
    }
    if (side->states->n > 0) {
        const kvp_layout layout = layout_of_states(side->states);
        wrap(s, side, side->memory->n_groups, &layout, side->states->slots);
    }
    if (s->verdict.is_bad)
        return;
    kvp_transfer_config_init(&config);
    config.cache = side->cache;
    config.memories = (const kvp_memory *const *)side->parts;
    config.max_transfers = SIM_MOVES;
    config.epoch = ++s->epoch;
    (void)sim_ok(s, "kvp_sender_create", kvp_sender_create(&config, &side->sender));
    (void)sim_ok(s, "kvp_receiver_create", kvp_receiver_create(&config, &side->receiver));
}

static void side_end(sim_side *side)
{
    kvp_sender_destroy(side->sender);
    kvp_receiver_destroy(side->receiver);
    for (uint32_t i = 0; i <= SIM_GROUPS; i++)
        kvp_memory_destroy(side->parts[i]);
    memset(side, 0, sizeof *side);
}

/* Each direction has a link: [0] from here to the peer, [1] back. */
static void connect(sim *s)
{
    for (uint32_t way = 0; way < 2 && !s->verdict.is_bad; way++) {
        sim_link *link = &s->links[way];
        kvp_link ends[2];
        sim_side *from = &s->sides[way], *to = &s->sides[1 - way];
        if (sim_link_begin(s, link, ends)) {
            (void)sim_ok(s, "kvp_sender_attach",
                         kvp_sender_attach(from->sender, &ends[0], &link->at_sender));
            (void)sim_ok(s, "kvp_receiver_attach",
                         kvp_receiver_attach(to->receiver, &ends[1], &link->at_receiver));
        }
    }
}

/* The side that is left finds its transfers failed. */
static void disconnect(sim *s, uint32_t left)
{
    for (uint32_t way = 0; way < 2; way++) {
        sim_link *link = &s->links[way];
        const sim_side *side = &s->sides[left];
        (void)(way == left ? sim_ok(s, "kvp_sender_detach",
                                    kvp_sender_detach(side->sender, link->at_sender))
                           : sim_ok(s, "kvp_receiver_detach",
                                    kvp_receiver_detach(side->receiver, link->at_receiver)));
        sim_link_end(link);
    }
}

/* ------------------------------------------------------------------------------------- the peer */

/* The groups are the same, with blocks of the same size or twice that. */
static kvp_config config_of_peer(sim *s)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = s->config.block_tokens;
    config.unit_tokens = s->config.unit_tokens;
    config.n_groups = s->config.n_groups;
    for (uint32_t g = 0; g < config.n_groups; g++) {
        config.groups[g] = s->config.groups[g];
        config.groups[g].block_tokens <<= sim_below(s, 2);
    }
    config.n_blocks = 1 + SIM_MOVES * (2 + SIM_TEXT / config.unit_tokens) * config.n_groups;
    config.max_seqs = 2 * SIM_MOVES;
    config.max_seq_tokens = SIM_TEXT;
    config.max_namespaces = SIM_SPACES;
    config.max_unit_keys = s->config.max_unit_keys;
    config.state_slots = s->config.state_slots > 0 ? 1 + 4 * SIM_MOVES : 0;
    return config;
}

static void peer_begin(sim *s)
{
    sim_peer *peer = &s->peer;
    sim_side *side = &s->sides[1];
    const kvp_config config = config_of_peer(s);
    if (!sim_ok(s, "kvp_cache_create", kvp_cache_create(&config, NULL, 0, &peer->cache)) ||
        !sched_memory_create(&peer->memory, peer->cache) ||
        !sched_states_create(&peer->states, peer->cache, 0))
        return;
    peer->memory.entry[0] = s->entry;
    for (uint32_t i = 0; i < SIM_SPACES; i++) {
        (void)sim_ok(s, "kvp_ns_open", kvp_ns_open(peer->cache, &i, sizeof i, &peer->spaces[i]));
        peer->weights[i] = s->weights[i];
    }
    *side = (sim_side){.cache = peer->cache,
                       .memory = &peer->memory,
                       .states = &peer->states,
                       .spaces = peer->spaces,
                       .weights = peer->weights};
    side_begin(s, side);
}

static void peer_end(sim *s)
{
    side_end(&s->sides[1]);
    kvp_cache_destroy(s->peer.cache);
    sched_memory_destroy(&s->peer.memory);
    sched_states_destroy(&s->peer.states);
    memset(&s->peer, 0, sizeof s->peer);
}

void sim_sides_begin(sim *s)
{
    s->sides[0] = (sim_side){.cache = s->cache,
                             .memory = &s->memory,
                             .states = &s->states,
                             .spaces = s->spaces,
                             .weights = s->weights};
    side_begin(s, &s->sides[0]);
    if (s->peer.cache == NULL)
        peer_begin(s);
    if (!s->verdict.is_bad)
        connect(s);
}

void sim_sides_end(sim *s, bool is_last)
{
    if (s->links[1].loopback != NULL) {
        disconnect(s, 1);
        sim_moves_lose(s, 0);
    }
    side_end(&s->sides[0]);
    if (is_last)
        peer_end(s);
}

void sim_peer_dies(sim *s)
{
    disconnect(s, 0);
    sim_moves_lose(s, 1);
    peer_end(s);
    peer_begin(s);
    if (!s->verdict.is_bad)
        connect(s);
    s->seen[SIM_peer_deaths]++;
}

/* What the old weights made must not be hit there either. */
void sim_peer_learns(sim *s, uint32_t space)
{
    s->peer.weights[space] = s->weights[space];
    (void)sim_ok(s, "kvp_ns_flush", kvp_ns_flush(s->peer.cache, s->peer.spaces[space]));
}
