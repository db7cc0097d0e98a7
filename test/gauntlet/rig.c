/* See rig.h: the cache and its memory. */
#include "rig.h"

#include "start.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const space_name = "model";

void rig_expect(rig *r, bool is_so, const char *what, const char *file, int line)
{
    if (!is_so)
        verdict_bad(&r->verdict, "%s:%d: %s", file, line, what);
}

void rig_expect_eq(rig *r, rig_pair numbers, const char *what, const char *file, int line)
{
    if (numbers.got != numbers.want) {
        verdict_bad(&r->verdict, "%s:%d: %s is %" PRId64 ", should be %" PRId64, file, line, what,
                    numbers.got, numbers.want);
    }
}

void rig_expect_status(rig *r, kvp_status got, kvp_status want, const char *file, int line)
{
    if (got != want) {
        verdict_bad(&r->verdict, "%s:%d: %s, should be %s", file, line, kvp_status_name(got),
                    kvp_status_name(want));
    }
}

kvp_config rig_config(uint32_t usable)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = 4;
    config.n_blocks = usable + 1;
    config.max_seqs = 32;
    config.max_seq_tokens = 512;
    return config;
}

const int32_t *rig_tokens(int32_t first)
{
    static int32_t tokens[RIG_TOKENS];
    for (int32_t i = 0; tokens[RIG_TOKENS - 1] == 0 && i < RIG_TOKENS; i++)
        tokens[i] = i;
    return tokens + first;
}

/* --------------------------------------------------------------------------------------- memory */

kvp_block_info rig_block(rig *r, uint32_t tier, int32_t block)
{
    kvp_block_info info;
    memset(&info, 0, sizeof(info));
    EXPECT_OK(r, kvp_block_info_get(r->cache, 0, tier, block, &info));
    return info;
}

/* What the last call dropped: all of a block's content, unless it stays held by those who held it
 * (they are about to write over a part). */
static bool look_at_block(rig *r, uint32_t tier, uint32_t block)
{
    const kvp_block_info info = rig_block(r, tier, (int32_t)block);
    const bool stays = info.state == KVP_BLOCK_HELD && r->states[tier][block] == KVP_BLOCK_HELD;
    const bool is_reused = r->planted == RIG_EARLY_REUSE && info.state == KVP_BLOCK_CACHED &&
                           r->states[tier][block] == KVP_BLOCK_HELD;
    const bool is_dropped = is_reused || (info.generation != r->generations[tier][block] && !stays);
    r->generations[tier][block] = info.generation;
    r->states[tier][block] = (uint8_t)info.state;
    return is_dropped;
}

static void poison(rig *r, uint32_t memory, uint32_t tier, int32_t block)
{
    const kvp_copy where = {.dst_tier = (uint8_t)tier, .dst_block = block};
    shadow_fill(r->memory, memory, &where, (kvp_range){0, r->config.block_tokens},
                (shadow_slot){.tag = SHADOW_POISON, .by = r->n_calls});
}

/* One copy, in one memory; its destination's old content goes first. */
static void run_copy(rig *r, uint32_t memory, kvp_copy copy, uint8_t *const *dropped)
{
    uint8_t *mark = &dropped[copy.dst_tier][copy.dst_block];
    if ((*mark & (1u << memory)) != 0) {
        poison(r, memory, copy.dst_tier, copy.dst_block);
        *mark = (uint8_t)(*mark & ~(1u << memory));
    }
    if (r->planted == RIG_SKIPPED_COPY)
        return;
    copy.n_tokens -= r->planted == RIG_SHORT_COPY && copy.n_tokens > 1;
    shadow_copy(r->memory, memory, &copy);
}

/* In order in one memory; phase by phase, each backwards, in the other. */
static void run_plan(rig *r, const kvp_copy *copies, uint32_t n, uint8_t *const *dropped)
{
    for (uint32_t i = 0; i < n; i++)
        run_copy(r, SHADOW_IN_ORDER, copies[i], dropped);
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        for (end = begin; end < n && copies[end].phase == copies[begin].phase; end++) {}
        for (uint32_t i = end; i-- > begin;)
            run_copy(r, SHADOW_BY_PHASE, copies[i], dropped);
    }
}

void rig_called(rig *r)
{
    uint8_t *dropped[SHADOW_TIERS];
    kvp_violation violation;
    uint32_t n = 0;
    r->n_calls++;
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++) {
        dropped[tier] = random_allocate(r->memory->n_blocks[tier], 1);
        for (uint32_t b = 1; b < r->memory->n_blocks[tier]; b++)
            dropped[tier][b] = look_at_block(r, tier, b) ? 3 : 0;
    }
    kvp_copy *copies = random_allocate(r->config.max_copies, sizeof(*copies));
    EXPECT_OK(r, kvp_plan_take(r->cache, copies, r->config.max_copies, &n));
    run_plan(r, copies, n, dropped);
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++) {
        for (uint32_t b = 1; b < r->memory->n_blocks[tier]; b++) {
            for (uint32_t m = 0; m < SHADOW_MEMORIES && dropped[tier][b] != 0; m++)
                if ((dropped[tier][b] & (1u << m)) != 0)
                    poison(r, m, tier, (int32_t)b);
        }
        free(dropped[tier]);
    }
    free(copies);
    shadow_compare(r->memory, r->n_calls);
    if (kvp_cache_check(r->cache, 3, &violation) != KVP_OK) {
        verdict_bad(&r->verdict, "kvp_cache_check: %s of %" PRIu64 ": %s", violation.invariant,
                    violation.object, violation.detail);
    }
}

void rig_begin(rig *r, const kvp_config *config)
{
    EXPECT_OK(r, kvp_cache_create(config, NULL, 0, &r->cache));
    start_cache(r->cache);
    EXPECT_OK(r, kvp_cache_config_get(r->cache, &r->config));
    EXPECT_OK(r, kvp_ns_open(r->cache, space_name, strlen(space_name), &r->ns));
    r->memory = shadow_create(&r->config, &r->verdict);
    truth_init(&r->truth, r->config.unit_tokens, r->config.hash_seed, &r->verdict);
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++) {
        const uint32_t n = r->memory->n_blocks[tier];
        r->generations[tier] = random_allocate(n, sizeof(**r->generations));
        r->states[tier] = random_allocate(n, sizeof(**r->states));
        for (uint32_t b = 1; b < n; b++)
            (void)look_at_block(r, tier, b);
    }
}

void rig_end(rig *r)
{
    if (r->cache == NULL)
        return;
    rig_called(r);
    rig_audit(r);
    for (uint32_t i = 0; i < RIG_SEQS; i++)
        if (r->seqs[i].is_open)
            rig_close(r, &r->seqs[i]);
    const kvp_stats stats = rig_stats(r);
    EXPECT_EQ(r, stats.free_blocks + stats.cached_blocks, stats.usable_blocks);
    EXPECT_EQ(r, stats.host_free_blocks + stats.host_cached_blocks, stats.host_usable_blocks);
    EXPECT_EQ(r, stats.pending_copies, 0);
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++) {
        free(r->generations[tier]);
        free(r->states[tier]);
    }
    truth_end(&r->truth);
    shadow_destroy(r->memory);
    kvp_cache_destroy(r->cache);
    r->cache = NULL;
}

/* --------------------------------------------------------------------------------------- audits */

/* Whether a slot holds this tag, in both memories. */
static void expect_slot(rig *r, uint32_t tier, int64_t slot, uint64_t tag, const char *whose)
{
    const uint32_t S = r->config.block_tokens;
    for (uint32_t m = 0; m < SHADOW_MEMORIES; m++) {
        const shadow_slot *found =
            shadow_at(r->memory, m, tier, (int32_t)(slot / S), (uint32_t)(slot % S));
        r->n_slots++;
        if (found != NULL && found->tag != tag) {
            char text[128];
            shadow_describe(found, text, sizeof(text));
            verdict_bad(&r->verdict,
                        "%s: block %" PRId64 " of tier %" PRIu32 ", slot %" PRId64
                        " should hold %016" PRIx64 ", and holds %s",
                        whose, slot / S, tier, slot % S, tag, text);
        }
    }
}

static void audit_block(rig *r, uint32_t tier, uint32_t block)
{
    const uint32_t U = r->config.unit_tokens;
    const kvp_block_info info = rig_block(r, tier, (int32_t)block);
    const truth_unit *unit = truth_find(&r->truth, &info.hash);
    if (info.sealed_units > 0 && unit == NULL)
        verdict_bad(&r->verdict, "block %" PRIu32 ": nobody ever had its unit", block);
    for (uint32_t end = info.sealed_tokens; end > 0 && unit != NULL; end -= U) {
        for (uint32_t i = 0; i < U; i++) {
            expect_slot(r, tier, (int64_t)block * r->config.block_tokens + end - U + i,
                        truth_tags(&r->truth, unit)[i], "what is cached");
        }
        unit = unit->parent == UINT32_MAX ? NULL : &r->truth.units[unit->parent];
    }
}

static bool sees(kvp_window window, uint32_t query, uint32_t key)
{
    return window.recent_tokens == 0 || key < window.sink_tokens ||
           key + window.recent_tokens > query;
}

/* Every key in [0, end) that this query sees is there, in each group's row. */
static void expect_keys(rig *r, const rig_seq *s, uint32_t query, uint32_t end)
{
    const uint32_t S = r->config.block_tokens;
    for (uint32_t g = 0; g < r->config.n_groups; g++) {
        kvp_window_info window;
        memset(&window, 0, sizeof(window));
        EXPECT_OK(r, kvp_seq_window_get(r->cache, s->handle, g, &window));
        for (uint32_t key = 0; key < end; key++) {
            if (sees(window.window, query, key)) {
                const int32_t block = rig_row(r, s, g, key / S);
                expect_slot(r, s->is_swapped ? KVP_HOST : KVP_DEVICE, (int64_t)block * S + key % S,
                            s->line.tags[key], "a query");
            }
        }
    }
}

void rig_audit(rig *r)
{
    for (uint32_t tier = 0; tier < SHADOW_TIERS; tier++)
        for (uint32_t b = 1; b < r->memory->n_blocks[tier]; b++)
            audit_block(r, tier, b);
    for (uint32_t i = 0; i < RIG_SEQS; i++) {
        if (r->seqs[i].is_open) {
            const uint32_t computed = rig_info(r, &r->seqs[i]).computed_tokens;
            expect_keys(r, &r->seqs[i], computed, computed);
        }
    }
}

/* ------------------------------------------------------------------------------- forward passes */

void rig_forward(rig *r, rig_seq *s, uint32_t from, uint32_t to)
{
    int64_t slots[512];
    if (!s->is_open || to > s->line.n || to - from > 512) {
        verdict_bad(&r->verdict, "there is nothing to compute");
        return;
    }
    for (uint32_t p = from; p < to; p++)
        expect_keys(r, s, p, from);
    for (uint32_t g = 0; g < r->config.n_groups; g++) {
        memset(slots, 0xff, sizeof(slots));
        EXPECT_OK(r, kvp_seq_slots(r->cache, s->handle, g, from, to - from, slots));
        for (uint32_t p = from; p < to; p++) {
            if (slots[p - from] != KVP_NO_SLOT) {
                const bool slips = r->planted == RIG_WRONG_SLOT && p > from;
                shadow_write(r->memory, 0, slots[p - from - slips],
                             (shadow_slot){s->line.tags[p], s->serial, p, g});
            }
        }
    }
    for (uint32_t p = from; p < to; p++)
        expect_keys(r, s, p, p + 1);
}

/* A node's tag: the tokens', with its path behind them. */
static uint64_t node_tag(rig *r, const rig_seq *s, const int32_t *tokens, const int32_t *parents,
                         int32_t node)
{
    int32_t path[64];
    uint32_t n = 0;
    truth_line line;
    for (int32_t k = node; k >= 0 && n < 64; k = parents[k])
        path[n++] = tokens[k];
    truth_line_begin(&r->truth, &line, space_name, s->line.capacity);
    truth_line_copy(&r->truth, &line, &s->line, s->line.n);
    while (n > 0)
        truth_line_add(&r->truth, &line, path[--n]);
    const uint64_t tag = line.tags[line.n - 1];
    truth_line_end(&line);
    return tag;
}

/* The whole tree of a sequence. */
typedef struct tree {
    int32_t tokens[64], parents[64];
    uint32_t n;
} tree;

static tree tree_of(rig *r, const rig_seq *s)
{
    tree t = {.n = 0};
    EXPECT_OK(r, kvp_seq_tree(r->cache, s->handle, t.tokens, t.parents, 64, &t.n));
    return t;
}

void rig_grow(rig *r, rig_seq *s, const int32_t *tokens, const int32_t *parents, uint32_t n_nodes)
{
    const kvp_batch batch = {.struct_size = sizeof(batch),
                             .n_seqs = 1,
                             .seqs = &s->handle,
                             .n_tokens = &n_nodes,
                             .tokens = tokens};
    int64_t slots[64];
    memset(slots, 0xff, sizeof(slots));
    EXPECT_OK(r, kvp_seq_extend_tree(r->cache, &batch, parents));
    rig_called(r);
    const tree t = tree_of(r, s);
    for (uint32_t g = 0; g < r->config.n_groups; g++) {
        EXPECT_OK(r, kvp_seq_slots(r->cache, s->handle, g, s->line.n, t.n, slots));
        for (uint32_t k = t.n - n_nodes; k < t.n && t.n <= 64; k++) {
            shadow_write(r->memory, 0, slots[k],
                         (shadow_slot){node_tag(r, s, t.tokens, t.parents, (int32_t)k), s->serial,
                                       s->line.n + k, g});
        }
        for (uint32_t k = 0; k < t.n && t.n <= 64; k++) { /* the rounds before, too */
            expect_slot(r, KVP_DEVICE, slots[k], node_tag(r, s, t.tokens, t.parents, (int32_t)k),
                        "a node");
        }
    }
    expect_keys(r, s, s->line.n, s->line.n);
}

/* As if every source were read before any destination is written. */
static void run_moves(rig *r, const kvp_slot_move *moves, uint32_t n)
{
    const int64_t S = r->config.block_tokens;
    shadow_slot kept[256];
    if (r->planted == RIG_SKIPPED_MOVE)
        return;
    for (uint32_t i = 0; i < n; i++) {
        const shadow_slot *from =
            shadow_at(r->memory, SHADOW_IN_ORDER, KVP_DEVICE, (int32_t)(moves[i].src / S),
                      (uint32_t)(moves[i].src % S));
        kept[i] = from == NULL ? (shadow_slot){.tag = SHADOW_NOTHING} : *from;
    }
    for (uint32_t i = 0; i < n; i++)
        shadow_write(r->memory, 0, moves[i].dst, kept[i]);
}

uint32_t rig_accept(rig *r, rig_seq *const *seqs, const int32_t *leaves, uint32_t n_seqs)
{
    enum { MOVES = 256 };
    kvp_slot_move moves[MOVES];
    kvp_seq handles[RIG_SEQS];
    tree trees[8];
    const uint32_t each = MOVES / r->config.n_groups;
    for (uint32_t i = 0; i < n_seqs && i < 8; i++) {
        handles[i] = seqs[i]->handle;
        trees[i] = tree_of(r, seqs[i]);
    }
    kvp_accept accept = {sizeof(accept), n_seqs, each, handles, leaves, moves, 0, 0};
    EXPECT_OK(r, kvp_seq_accept(r->cache, &accept));
    for (uint32_t g = 0; g < r->config.n_groups; g++)
        run_moves(r, moves + (size_t)g * each, accept.n_moves);
    for (uint32_t i = 0; i < n_seqs && i < 8; i++) {
        int32_t path[64];
        uint32_t n = 0;
        for (int32_t k = leaves[i]; k >= 0 && n < 64; k = trees[i].parents[k])
            path[n++] = trees[i].tokens[k];
        while (n > 0)
            truth_line_add(&r->truth, &seqs[i]->line, path[--n]);
    }
    rig_called(r);
    for (uint32_t i = 0; i < n_seqs; i++) {
        EXPECT_EQ(r, rig_info(r, seqs[i]).n_tokens, seqs[i]->line.n);
        expect_keys(r, seqs[i], seqs[i]->line.n, seqs[i]->line.n);
    }
    return accept.n_moves;
}
