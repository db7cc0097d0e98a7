/* Calls of windows and trees. */
#include "generate_parts.h"
#include "oracle_parts.h"

#include <string.h>

static void weigh(generator *g, uint32_t op, uint32_t weight)
{
    weight *= 10;
    if (chance(g, 20))
        weight = chance(g, 50) ? weight / 4 + 1 : weight * 3;
    g->weights[op] = weight;
}

void generate_group_weights(generator *g)
{
    uint32_t trees = g->o->config.max_tree_tokens ? 1 : 0;

    weigh(g, KVP_CALL_WINDOW, chance(g, 30) ? 3 : 18);
    weigh(g, KVP_CALL_WINDOW_GET, 6);
    weigh(g, KVP_CALL_EXTEND_TREE, trees ? 60 : 1);
    weigh(g, KVP_CALL_ACCEPT, trees ? 60 : 1);
    weigh(g, KVP_CALL_TREE, trees ? 10 : 1);
}

/* ----------------------------------------------------------------------- what leads to what */

/* With overlapped steps: a sequence whose tree is computed is forked, copies the block with the
 * nodes when it extends, and the step with that copy fails. It hardly ever comes by itself. */
void generate_follow(generator *g, const kvp_call *call, const kvp_outcome *outcome)
{
    uint32_t place = call->op == KVP_CALL_FORK ? oracle_find_seq(g->o, call->handle) : ORACLE_NONE;
    uint32_t followed = g->follow;

    g->follow = 0;
    if (outcome->status != KVP_OK)
        return;
    if (place != ORACLE_NONE && g->o->seqs[place].n_tree && oracle_overlapped(g->o) &&
        chance(g, 50)) {
        g->follow = KVP_CALL_EXTEND;
        g->follow_what = call->handle;
    } else if (followed == KVP_CALL_EXTEND) {
        g->follow = KVP_CALL_STEP_BEGIN;
    } else if (followed == KVP_CALL_STEP_BEGIN) {
        g->follow = KVP_CALL_STEP_FAILED;
        g->follow_what = outcome->number;
    }
}

/* Make the call that follows from the last one, if one does. */
bool generate_following(generator *g, kvp_call *call)
{
    call->op = g->follow;
    switch (g->follow) {
    case KVP_CALL_EXTEND: call->handle = g->follow_what; return true;
    case KVP_CALL_STEP_BEGIN: call->count = g->o->config.max_copies; return true;
    case KVP_CALL_STEP_FAILED:
        call->number = g->follow_what;
        call->count = g->o->config.max_seqs;
        return true;
    default: return false;
    }
}

/* -------------------------------------------------------------------------------------- windows */

/* Small against a block, of some blocks, or of any size. */
kvp_window generate_window(uint64_t *state, const kvp_config *config)
{
    uint32_t S = config->block_tokens, kind = (uint32_t)(generate_random(state) % 100);
    uint64_t most = kind < 20   ? 2
                    : kind < 50 ? (uint64_t)2 * S
                    : kind < 85 ? (uint64_t)5 * S
                                : config->max_seq_tokens;
    kvp_window window;

    window.recent_tokens = (uint32_t)(1 + generate_random(state) % most);
    kind = (uint32_t)(generate_random(state) % 100);
    most = kind < 50 ? 0 : kind < 75 ? S : kind < 97 ? (uint64_t)3 * S : config->max_seq_tokens;
    window.sink_tokens = (uint32_t)(generate_random(state) % (most + 1));
    if (generate_random(state) % 100 == 0)
        window.recent_tokens = UINT32_MAX;
    if (generate_random(state) % 100 < 30)
        window.sink_tokens = KVP_CHUNKED;
    return window;
}

void generate_window_call(generator *g, kvp_call *call)
{
    const oracle_seq *seq = generate_seq(g, call);
    uint32_t kind = below(g, 100);

    call->group = generate_group(g);
    if (call->op == KVP_CALL_WINDOW_GET)
        return;
    if (kind < 10)
        return; /* none */
    if (kind < 12) {
        call->window.sink_tokens = 1 + below(g, 4);
        return;
    }
    if (kind < 40 && seq && call->group < g->o->config.n_groups) {
        /* A little wider or narrower than the one before, or the group's. */
        call->window = kind < 20 ? oracle_window_of(g->o, call->group) : seq->windows[call->group];
        call->window.recent_tokens += kind < 20 ? 0 : below(g, 3) + 1;
        if (call->window.sink_tokens != KVP_CHUNKED)
            call->window.sink_tokens += kind < 20 ? 0 : below(g, 2);
        return;
    }
    call->window = generate_window(&g->state, &g->o->config);
}

/* ---------------------------------------------------------------------------------------- trees */

/* Does another sequence have the block that the next token is to be written into? */
static bool shares_last(const generator *g, const oracle_seq *seq)
{
    uint32_t S = oracle_size(g->o, 0), entry = seq->computed / S;

    return seq->computed % S && entry < seq->n_row[0] && g->o->blocks[seq->rows[0][entry]].refs > 1;
}

/* A sequence that can have a tree accepted, or one whose nodes would be copied; or any. */
static bool is_ready(generator *g, const oracle_seq *seq)
{
    return chance(g, 10) || (seq->n_tree && shares_last(g, seq)) ||
           (seq->computed == seq->tokens && seq->known == seq->tokens);
}

static uint32_t count_trees(const oracle *o)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < o->config.max_seqs; i++)
        n += o->seqs[i].open && o->seqs[i].n_tree;
    return n;
}

/* Another call than one on trees, when there is no tree that it could be made for. */
uint32_t generate_instead_of_tree(generator *g, uint32_t op)
{
    bool on_tree = op == KVP_CALL_ACCEPT || op == KVP_CALL_TREE;

    if (on_tree && g->o->config.max_tree_tokens && !count_trees(g->o) && chance(g, 90))
        return KVP_CALL_EXTEND_TREE;
    return op;
}

/* A sequence with a tree, if a few tries find one. */
const oracle_seq *generate_seq_with_tree(generator *g)
{
    const oracle_seq *seq = generate_open_seq(g);

    for (uint32_t i = 0; seq && !seq->n_tree && i < 6; i++)
        seq = generate_open_seq(g);
    return seq;
}

static uint32_t depth_of(const generator *g, const oracle_seq *seq, uint32_t first, int32_t node)
{
    uint32_t depth = 0, n_tree = seq ? seq->n_tree : 0;

    for (; node >= 0; depth++)
        node = (uint32_t)node < n_tree ? seq->tree_parents[node]
                                       : g->parents[first + (uint32_t)node - n_tree];
    return depth;
}

static int32_t draw_parent(generator *g, uint32_t node)
{
    uint32_t kind = below(g, 100);

    if (!node || kind < 20)
        return -1;
    return kind < 65 ? (int32_t)node - 1 : (int32_t)below(g, node);
}

/* n nodes more, behind `first` ones of the call. */
static void put_nodes(generator *g, const oracle_seq *seq, uint32_t first, uint32_t n)
{
    uint32_t n_tree = seq ? seq->n_tree : 0;

    generate_token_space(g, first + n);
    g->parents =
        oracle_grow(g->parents, &g->parents_capacity, (uint64_t)first + n + 1, sizeof *g->parents);
    for (uint32_t i = 0; i < n; i++) {
        int32_t parent = draw_parent(g, n_tree + i);
        uint32_t depth = depth_of(g, seq, first, parent);

        g->parents[first + i] = parent;
        g->tokens[first + i] = seq && chance(g, 75) ? generate_token_at(g, seq, seq->tokens + depth)
                                                    : (int32_t)below(g, g->alphabet);
    }
    if (n && below(g, 150) == 0)
        g->tokens[first + below(g, n)] = -1;
    if (n && below(g, 100) == 0)
        g->parents[first + n - 1] = chance(g, 50) ? -2 : (int32_t)(n_tree + n - 1 + below(g, 2));
}

static uint32_t draw_nodes(generator *g)
{
    uint32_t most = g->o->config.max_tree_tokens, kind = below(g, 100);

    if (kind < 5)
        return 0;
    if (kind < 8)
        return most + below(g, 2);
    return 1 + below(g, kind < 50 ? 3 : most ? most : 1);
}

static uint32_t few_members(generator *g, kvp_call *call, const oracle_seq **members, bool accept)
{
    uint32_t n = generate_members(g, call, members), kept = 0, most = 1 + below(g, 4);

    for (uint32_t i = 0; i < n && kept < most; i++) {
        bool fits =
            !members[i] || rarely(g) || (accept ? members[i]->n_tree > 0 : is_ready(g, members[i]));

        if (!fits)
            continue;
        members[kept] = members[i];
        g->handles[kept++] = g->handles[i];
    }
    call->n_seqs = kept;
    return kept;
}

static void make_extend_tree(generator *g, kvp_call *call)
{
    const oracle_seq *members[GENERATE_MEMBERS];
    uint32_t n = few_members(g, call, members, false);

    call->flags = below(g, 100) == 0;
    put_nodes(g, NULL, 0, 0);
    generate_token_space(g, 1);
    for (uint32_t i = 0; i < n; i++) {
        g->counts[i] = draw_nodes(g);
        put_nodes(g, members[i], call->n_tokens, g->counts[i]);
        call->n_tokens += g->counts[i];
    }
    call->counts = g->counts;
    call->tokens = g->tokens;
    call->parents = g->parents;
    call->reserve_tokens = generate_reserve(g);
    if (!call->n_tokens && chance(g, 50))
        call->tokens = call->parents = NULL;
    if (rarely(g))
        call->parents = NULL;
    else if (rarely(g))
        call->tokens = NULL;
}

static void make_accept(generator *g, kvp_call *call)
{
    const oracle_seq *members[GENERATE_MEMBERS];
    uint32_t n = few_members(g, call, members, true);

    call->flags = 0;
    call->leaves = g->leaves;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_tree = members[i] ? members[i]->n_tree : 0, kind = below(g, 100);

        g->leaves[i] = kind < 12 || !n_tree ? -1
                       : kind < 40          ? (int32_t)n_tree - 1
                                            : (int32_t)below(g, n_tree);
        if (below(g, 100) == 0)
            g->leaves[i] = chance(g, 50) ? -2 : (int32_t)n_tree;
    }
    call->count = chance(g, 85) ? n * g->o->config.max_tree_tokens : below(g, 4);
}

void generate_tree_call(generator *g, kvp_call *call)
{
    const oracle_seq *seq;

    switch (call->op) {
    case KVP_CALL_EXTEND_TREE: make_extend_tree(g, call); break;
    case KVP_CALL_ACCEPT: make_accept(g, call); break;
    default:
        seq = generate_seq(g, call);
        for (uint32_t i = 0; i < 4 && seq && !seq->n_tree; i++)
            seq = generate_seq(g, call);
        call->with_tokens = chance(g, 80);
        call->with_parents = chance(g, 80);
        call->count = chance(g, 85) ? g->o->config.max_tree_tokens : below(g, 3);
        break;
    }
}
