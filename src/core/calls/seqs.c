/* seqs: the story. A sequence opens, grows, is committed, forks, rolls back, closes.
 *
 * Each public function here reads from top to bottom: check everything, then change, through the
 * stages in one direction (hash, prefix, pool, table), then record and leave. Nothing is changed
 * before everything has been checked, so a refusal leaves nothing behind.
 *
 *   seqs.c           open, fork, truncate, close
 *   commit.c    commit
 *   drop.c      invalidate, drop, reclaim
 *   core/seq/match.c     the walk that open begins with; admission of an open
 *   core/seq/match_groups.c  which prefix every layer group has
 *   extend.c    extend and fill, for one and many; copy-on-write; admission of an extend
 *   core/cache/tokens.c    tokens become units
 *   core/cache/blocks.c    take, evict, release, seal
 *   swap.c      sequences move to the host and back
 *   steps.c     overlapped steps: begin, commit, done, failed
 *   core/cache/events.c    what is stored where, told to readers
 *   core/seq/seq_windows.c   layer groups, and what windows drop
 *   trees.c     token trees: extend with parents, accept a path
 *   core/cache/spaces.c    namespaces
 *   life.c      configuration, create, reset, destroy
 *   read.c      what can be asked
 *   core/cache/audit.c     the audit
 */
#include "core/cache/blocks.h"
#include "core/cache/dropped.h"
#include "core/cache/frame.h"
#include "core/seq/match.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/cache/tokens.h"
#include "core/seq/learned.h"
#include "core/seq/seq_windows.h"
#include "core/calls/steps.h"

#include <string.h>

/* ----------------------------------------------------------------------------------------- open */

/* Take blocks until the rows have room for `end` tokens. */
static void take_up_to(kvp_cache *cache, struct kvpi_seq *seq, uint32_t end)
{
    if (kvpi_unlikely(seq->windowed != 0)) {
        kvpi_windows_take(cache, seq, end);
    } else {
        kvpi_take_blocks(cache, seq, end);
    }
}

/* The units of entry i of a group's row, up to `end`, come into its block by a copy. */
static void copy_units(kvp_cache *cache, const struct kvpi_match *match, uint32_t from,
                       uint32_t source, uint32_t i)
{
    const uint32_t group = KVPI_GROUP_OF(from);
    const uint32_t units_per_block = kvpi_units_per_block(cache, group);
    const uint32_t first = i * units_per_block;
    const uint32_t end = kvpi_min_u32(match->n_hits, first + units_per_block);
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, match->place);
    const uint32_t block = (uint32_t)kvpi_group_row(&cache->table, group, match->place)[i];
    kvpi_add_copy(cache,
                  &(struct kvpi_copy){.src_tier = (uint8_t)KVPI_TIER_OF(from),
                                      .src = source,
                                      .dst = block,
                                      .n_tokens = (end - first) * cache->config.unit_tokens});
    for (uint32_t u = first; u < end; u++) {
        kvpi_copied_unit(cache, KVPI_WHERE(KVP_DEVICE, group), nodes[u], block);
    }
}

static uint32_t source_tier(const struct kvpi_match *match, uint32_t group)
{
    return match->sources[group] < 0; /* KVP_HOST */
}

static uint32_t source_of(const struct kvpi_match *match, uint32_t group)
{
    const int32_t source = match->sources[group];
    return (uint32_t)(source < 0 ? -source : source);
}

/* An entry that was hit comes back if it is on the host. */
static void open_whole(kvp_cache *cache, struct kvpi_match *match, const struct kvpi_seq *seq,
                       uint32_t group, uint32_t i)
{
    int32_t *entry = &kvpi_group_row(&cache->table, group, match->place)[i];
    if (*entry < 0) {
        const uint32_t source = (uint32_t) - *entry;
        *entry = (int32_t)kvpi_take_block(cache, KVPI_WHERE(KVP_DEVICE, group), seq->retention,
                                          seq->ns.bits);
        copy_units(cache, match, KVPI_WHERE(KVP_HOST, group), source, i);
        kvpi_block(&cache->host, source)->next = match->first_host;
        match->first_host = source;
    }
}

/* The hit ends inside an entry: its group copies what it has of it, unless it will not keep it. */
static void open_inside(kvp_cache *cache, const struct kvpi_match *match,
                        const struct kvpi_seq *seq, uint32_t group, uint32_t i)
{
    int32_t *entry = &kvpi_group_row(&cache->table, group, match->place)[i];
    *entry = KVP_NULL_BLOCK;
    if (match->sources[group] != 0) {
        *entry = (int32_t)kvpi_take_block(cache, KVPI_WHERE(KVP_DEVICE, group), seq->retention,
                                          seq->ns.bits);
        copy_units(cache, match, KVPI_WHERE(source_tier(match, group), group),
                   source_of(match, group), i);
    }
}

/* The row's hit blocks are held since the walk; bring those on the host back, and copy what was hit
 * inside a block. Sources must not be taken, nor evicted, while they are read: those of the host
 * stay held until close_sources, linked by `next`, which a held block does not need: the row's last
 * one first. */
static void open_hits(kvp_cache *cache, struct kvpi_match *match, struct kvpi_seq *seq)
{
    const uint32_t n_groups = cache->config.n_groups;
    for (uint32_t g = 0; g < n_groups; g++) {
        if (match->sources[g] != 0) {
            kvpi_pool_hold(kvpi_tier_pool(cache, source_tier(match, g)), source_of(match, g));
        }
    }
    cache->plan.promised = match->n_host + kvpi_match_sources(cache, match);
    const uint32_t end = match->n_hits * cache->config.unit_tokens;
    /* Of what is on the device, only entries that the hit ends inside of need anything. */
    struct kvpi_entries entries =
        kvpi_entries_from(cache, match->n_host > 0 ? 0 : kvpi_entry_of(cache, end));
    for (; entries.t < end; kvpi_entries_next(cache, &entries)) {
        for (uint32_t g = 0; g < n_groups; g++) {
            if (entries.at[g] == entries.t) {
                const uint32_t i = entries.entry[g];
                i < kvpi_match_shared(cache, match, g) ? open_whole(cache, match, seq, g, i)
                                                       : open_inside(cache, match, seq, g, i);
            }
        }
    }
    kvpi_set32(&seq->room, end);
}

static void close_source(kvp_cache *cache, uint32_t tier, uint32_t block)
{
    struct kvpi_block *source = kvpi_block(kvpi_tier_pool(cache, tier), block);
    if (kvpi_block_refs(source) > 1) {
        source->refs--; /* no sequence has left it */
    } else {
        kvpi_release_block(cache, tier, block, NULL);
    }
}

/* Release what was copied from, the last of the row first: the host evicts tails first, too. */
static void close_sources(kvp_cache *cache, const struct kvpi_match *match)
{
    for (uint32_t g = cache->config.n_groups; g > 0; g--) {
        if (match->sources[g - 1] != 0) {
            close_source(cache, source_tier(match, g - 1), source_of(match, g - 1));
        }
    }
    for (uint32_t source = match->first_host; source != 0;) {
        const uint32_t next = kvpi_block(&cache->host, source)->next;
        kvpi_release_block(cache, KVP_HOST, source, NULL);
        if (cache->keeps_once) {
            kvpi_give_up(cache, source);
        }
        source = next;
    }
}

/* The units that were not hit: find the nodes of those that are known, then make the others, block
 * by block. Gives 0 when no node is free for the next one. */
static int open_units(kvp_cache *cache, const struct kvpi_match *match, struct kvpi_seq *seq)
{
    struct kvpi_prefix *prefix = &cache->prefix;
    const kvp_prompt *prompt = match->prompt;
    const uint32_t U = cache->config.unit_tokens;
    struct kvpi_key keys[KVPI_UNIT_KEYS_MAX];
    const uint32_t flags =
        KVPI_NODE_PUBLIC | (prompt->hashes != NULL ? (uint32_t)KVPI_NODE_HASH_GIVEN : 0u);
    uint32_t cursor = 0;
    int known_parent = 1; /* a parent that we made has no child to find */
    for (uint32_t u = seq->n_units; u < match->n_public; u++) {
        struct kvpi_unit unit = {prompt->tokens + (size_t)u * U, keys, 0};
        if (prompt->n_keys > 0) {
            unit.n_keys = kvpi_keys_of_unit(prompt->keys, prompt->n_keys, u * U, U, keys,
                                            KVPI_UNIT_KEYS_MAX, &cursor);
        }
        const uint32_t parent = kvpi_last_node(cache, seq);
        uint32_t node = KVPI_NO_NODE;
        if (u + KVPI_NODE_JUMP < match->n_public) {
            kvpi_prefix_prefetch_line(prefix, &match->hashes[u + KVPI_NODE_JUMP]);
        }
        if (known_parent) {
            node = kvpi_prefix_find(prefix, parent, &match->hashes[u], &unit);
        }
        if (node == KVPI_NO_NODE) {
            take_up_to(cache, seq, (u + 1) * U);
            node = kvpi_prefix_add(prefix, parent, &match->hashes[u], &unit, flags);
            known_parent = 0;
            kvpi_note_made(cache, seq, node);
        }
        if (node == KVPI_NO_NODE) {
            return 0;
        }
        kvpi_push_node(cache, seq, node, 1);
        kvpi_set32(&seq->known, seq->known + U);
    }
    return 1;
}

/* Nodes may not suffice: take the rest of the blocks first, because an eviction may free a node.
 * Then content is evicted for nodes, of what was copied from, too. */
__attribute__((noinline, cold)) static void open_short(kvp_cache *cache, struct kvpi_match *match,
                                                       struct kvpi_seq *seq)
{
    take_up_to(cache, seq, match->prompt->n_tokens + match->prompt->reserve_tokens);
    close_sources(cache, match);
    kvpi_match_hash_rest(cache, match);
    while (!open_units(cache, match, seq) && !seq->unkept) {
        kvpi_set16(&seq->unkept, !kvpi_free_node(cache));
    }
}

/* Take the rest of the blocks, and find or make the nodes of the units that were not hit. When
 * nodes are plenty, known ones are found before anything is evicted. New ones are made block by
 * block, so each lies where the last victim's was, which is in the CPU caches still. */
static void open_rest(kvp_cache *cache, struct kvpi_match *match, struct kvpi_seq *seq)
{
    const kvp_prompt *prompt = match->prompt;
    const uint64_t n_free_nodes = cache->prefix.n_nodes - cache->prefix.n_used;
    if (kvpi_unlikely(n_free_nodes < match->n_public - match->n_hits)) {
        open_short(cache, match, seq);
    } else {
        kvpi_match_hash_rest(cache, match);
        (void)open_units(cache, match, seq);
        take_up_to(cache, seq, prompt->n_tokens + prompt->reserve_tokens);
        close_sources(cache, match);
    }
    if (seq->known < prompt->n_tokens) {
        kvpi_append_tokens(cache, seq, prompt->tokens + seq->known, prompt->n_tokens - seq->known,
                           prompt->keys, prompt->n_keys);
    }
}

/* Let the jumps of the hit nodes lead along this path, for the next prompt that takes it. */
static void lead_along(const kvp_cache *cache, const struct kvpi_match *match)
{
    const uint32_t *nodes = kvpi_row_nodes(&cache->table, match->place);
    for (uint32_t u = KVPI_NODE_JUMP; u < match->n_hits; u++) {
        kvpi_node(&cache->prefix, nodes[u - KVPI_NODE_JUMP])->jump = nodes[u];
    }
}

/* Where chunks of the prompt should end, for a checkpoint to be made there (states.h). */
static void note_chunk_ends(kvp_cache *cache, struct kvpi_match *match, const struct kvpi_seq *seq)
{
    const uint32_t U = cache->config.unit_tokens;
    const uint32_t n_tokens = match->prompt->n_tokens;
    const uint32_t last = kvpi_min_u32(n_tokens == 0 ? 0 : (n_tokens - 1) / U, match->n_public);
    const uint32_t known = kvpi_match_known(cache, match);
    struct kvpi_state *state = kvpi_states_of(cache, seq);
    state->branch_end = known > match->n_hits && known < last ? known * U : 0;
    state->prompt_end = last > match->n_hits ? last * U : 0;
}

/* Units for which no node was free are not kept: no checkpoint can be made there. */
static void cut_chunk_ends(const kvp_cache *cache, const struct kvpi_match *match,
                           const struct kvpi_seq *seq)
{
    const uint32_t U = cache->config.unit_tokens;
    struct kvpi_state *state = kvpi_states_of(cache, seq);
    const uint32_t last = kvpi_min_u32(state->prompt_end / U, seq->n_units);
    state->prompt_end = last > match->n_hits ? last * U : 0;
    if (state->branch_end >= state->prompt_end) {
        state->branch_end = 0;
    }
}

/* Everything is checked: make the sequence. */
static struct kvpi_seq *open_matched(kvp_cache *cache, kvp_ns ns, struct kvpi_match *match,
                                     kvp_open_info *info)
{
    const kvp_prompt *prompt = match->prompt;
    const uint64_t evicted_before = cache->counters.evicted_blocks;
    struct kvpi_seq *seq = kvpi_table_open(&cache->table);
    kvpi_match_info(cache, match, info);
    kvpi_set(&seq->ns.bits, ns.bits);
    kvpi_set(&seq->tag, prompt->tag);
    seq->root = match->root;
    kvpi_set16(&seq->retention, (uint16_t)prompt->retention);
    kvpi_set16(&seq->stop, (uint16_t)match->stop);
    kvpi_set16(&seq->stop_group, (uint16_t)match->stop_group);
    kvpi_set32(&seq->tokens, prompt->n_tokens);
    kvpi_set32(&seq->prompt, prompt->n_tokens);
    kvpi_set32(&seq->cached, info->cached_tokens);
    kvpi_set32(&seq->computed, info->hit_tokens);
    kvpi_set32(&seq->known, info->hit_tokens);
    kvpi_set32(&seq->writable, prompt->n_tokens + prompt->reserve_tokens);
    kvpi_set32(&seq->n_units, match->n_hits); /* their nodes are in the row */
    kvpi_set32(&seq->n_public, match->n_hits);
    kvpi_windows_open(cache, seq, (prompt->flags & KVP_OPEN_RECEIVE) != 0);
    for (uint32_t i = 0; i < prompt->n_uncached; i++) {
        seq->uncached_from = kvpi_min_u32(seq->uncached_from, prompt->uncached[i].begin);
    }
    kvpi_prefix_use(&cache->prefix, kvpi_last_node(cache, seq));
    if (match->stale_hints) {
        lead_along(cache, match);
    }
    if (kvpi_learns(cache)) {
        kvpi_learned_open(cache, seq, match->n_shared);
    }
    if (kvpi_has_states(cache)) {
        kvpi_states_open(cache, seq, match->state);
        note_chunk_ends(cache, match, seq);
    }
    open_hits(cache, match, seq);
    open_rest(cache, match, seq);
    if (kvpi_has_states(cache)) {
        cut_chunk_ends(cache, match, seq);
    }
    if (kvpi_has_states(cache) && seq->room > 0) {
        kvpi_states_grow(cache, seq);
    }
    kvpi_note_last(cache, seq);
    seq->exclusive = match->n_absent > 0 ? 0 : kvpi_rows_slots(cache, seq);
    info->evicted_blocks = (uint32_t)(cache->counters.evicted_blocks - evicted_before);
    kvpi_count(&cache->counters.opens, 1);
    kvpi_count(&cache->counters.prompt_tokens, prompt->n_tokens);
    kvpi_count(&cache->counters.cached_tokens, info->cached_tokens);
    kvpi_count(&cache->counters.host_tokens, info->host_tokens);
    return seq;
}

static kvp_status open_seq(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt, kvp_seq *out_seq,
                           kvp_open_info *out_info)
{
    struct kvpi_match match;
    kvp_admission admission;
    const int64_t place = kvpi_table_next(&cache->table);
    kvp_status status = kvpi_match_begin(cache, ns, prompt, &match);
    if (status == KVP_OK && place < 0) {
        status = KVP_E_NO_SEQS;
    }
    if (status != KVP_OK) {
        return kvpi_fail(cache, kvpi_match_refuse(prompt, status), 0, 0);
    }
    match.hold = 1;
    kvpi_match_walk(cache, (uint32_t)place, &match);
    if (!kvpi_match_rest_is_valid(cache, &match)) {
        kvpi_match_let_go(cache, &match);
        return kvpi_fail(cache, KVP_E_ARG, 0, 0);
    }
    kvpi_match_admit(cache, &match, &admission);
    if (admission.verdict != KVP_ADMIT_OK) {
        kvpi_match_let_go(cache, &match);
        if (admission.verdict == KVP_ADMIT_LATER && admission.missing_blocks == 0) {
            return kvpi_fail_slots(cache, 0, kvpi_match_slots_missing(cache, &match));
        }
        status = admission.verdict == KVP_ADMIT_NEVER ? KVP_E_NEVER : KVP_E_NO_BLOCKS;
        return kvpi_fail(cache, status, 0, admission.missing_blocks);
    }
    if (match.n_host + kvpi_match_sources(cache, &match) > kvpi_plan_room(&cache->plan)) {
        kvpi_match_let_go(cache, &match);
        return kvpi_fail(cache, KVP_E_PLAN_FULL, 0, 0);
    }
    kvpi_begin_change(cache);
    const struct kvpi_seq *seq = open_matched(cache, ns, &match, out_info);
    *out_seq = kvpi_table_handle(&cache->table, seq, cache->recorder.cache_bits);
    return KVP_OK;
}

kvp_status kvp_seq_open(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt, kvp_seq *out_seq,
                        kvp_open_info *out_info)
{
    kvp_open_info info;
    prompt = kvpi_sized(prompt, sizeof(*prompt));
    kvp_status status =
        cache == NULL || kvpi_bad_prompt(prompt) || out_seq == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = open_seq(cache, ns, prompt, out_seq, &info);
    if (status == KVP_OK && out_info != NULL) {
        *out_info = info;
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_open(&cache->recorder, ns, prompt, status, out_seq, &info);
    }
    return kvpi_leave(cache, status);
}

/* ----------------------------------------------------------------------------------------- fork */

static kvp_status check_fork(const kvp_cache *cache, const struct kvpi_seq *parent, uint32_t at)
{
    if (at > parent->tokens) {
        return KVP_E_ARG;
    }
    if (at > parent->computed || at > parent->known || parent->tier != KVP_DEVICE) {
        return KVP_E_STATE;
    }
    const kvp_status state =
        parent->windowed & KVPI_STATEFUL ? kvpi_states_check_fork(cache, parent, at) : KVP_OK;
    if (state == KVP_E_STATE) {
        return state;
    }
    if ((parent->windowed & KVPI_WINDOWED) && kvpi_windows_lack(cache, parent, at, at)) {
        return KVP_E_DROPPED;
    }
    if (state != KVP_OK) {
        return state;
    }
    return kvpi_table_next(&cache->table) < 0 ? KVP_E_NO_SEQS : KVP_OK;
}

/* Every block of the rows is held by another sequence, too: there is no queue to leave. */
static void hold_rows(kvp_cache *cache, const struct kvpi_seq *seq, const uint32_t *n_entries)
{
    struct kvpi_block *blocks = kvpi_blocks(&cache->pool);
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        const int32_t *row = kvpi_row(cache, seq, g);
        for (uint32_t i = 0; i < n_entries[g]; i++) {
            blocks[row[i]].refs++;
        }
    }
    blocks[KVP_NULL_BLOCK].refs = 0; /* dropped entries */
}

static const struct kvpi_seq *fork_seq(kvp_cache *cache, struct kvpi_seq *parent, uint32_t at,
                                       uint64_t tag)
{
    const struct kvpi_table *table = &cache->table;
    struct kvpi_seq *child = kvpi_table_fork(&cache->table, parent);
    const uint32_t from = kvpi_seq_place(table, parent);
    const uint32_t place = kvpi_seq_place(table, child);
    uint32_t n_entries[KVP_GROUPS_MAX];
    kvpi_set(&child->tag, tag);
    kvpi_set(&child->row_version, 0);
    child->batch = 0;
    kvpi_set32(&child->computed, at);
    kvpi_set32(&child->writable, at);
    child->cut_step = 0;
    child->exclusive = parent->exclusive = 0; /* a block with tokens before `at` is shared now */
    kvpi_set32(&child->room, at);
    kvpi_set32(&child->n_tree, 0);
    memcpy(kvpi_row_nodes(table, place), kvpi_row_nodes(table, from),
           kvpi_min_u32(parent->n_units, at / cache->config.unit_tokens) * sizeof(uint32_t));
    for (uint32_t g = 0; g < cache->config.n_groups; g++) {
        n_entries[g] = kvpi_row_length(cache, g, at);
        memcpy(kvpi_group_row(table, g, place), kvpi_group_row(table, g, from),
               n_entries[g] * sizeof(int32_t));
    }
    if (child->windowed & KVPI_WINDOWED) {
        kvpi_windows_fork(cache, parent, child);
    }
    hold_rows(cache, child, n_entries);
    kvpi_cut_tokens(cache, parent, child, at);
    if (child->windowed & KVPI_WINDOWED) {
        kvpi_windows_back(cache, child);
    }
    if (child->windowed & KVPI_STATEFUL) {
        kvpi_states_fork(cache, parent, child, at);
    }
    kvpi_count(&cache->counters.forks, 1);
    return child;
}

kvp_status kvp_seq_fork(kvp_cache *cache, kvp_seq parent, uint32_t at, uint64_t tag,
                        kvp_seq *out_child)
{
    kvp_status status = cache == NULL || out_child == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    struct kvpi_seq *seq = kvpi_find_seq(cache, parent);
    if (seq == NULL) {
        status = KVP_E_HANDLE;
    } else {
        status = check_fork(cache, seq, at == KVP_END ? seq->tokens : at);
    }
    if (status == KVP_OK) {
        kvpi_begin_change(cache);
        const struct kvpi_seq *child = fork_seq(cache, seq, at == KVP_END ? seq->tokens : at, tag);
        *out_child = kvpi_table_handle(&cache->table, child, cache->recorder.cache_bits);
    } else {
        (void)kvpi_fail(cache, status, 0, 0);
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_fork(&cache->recorder, parent, at, tag, status, out_child);
    }
    return kvpi_leave(cache, status);
}

/* ------------------------------------------------------------------------------ truncate, close */

static void cut_back(kvp_cache *cache, struct kvpi_seq *seq, uint32_t n_tokens,
                     kvp_released *released)
{
    const int loses = kvpi_rows_lose(cache, seq, n_tokens);
    if (seq->windowed & KVPI_STATEFUL) {
        kvpi_states_cut(cache, seq, n_tokens);
    }
    kvpi_steps_cut(cache, seq, n_tokens);
    kvpi_release_row(cache, seq, n_tokens, released);
    kvpi_cut_tokens(cache, seq, seq, n_tokens);
    kvpi_set(&seq->row_version, seq->row_version + (uint64_t)loses);
    kvpi_set32(&seq->computed, kvpi_min_u32(seq->computed, n_tokens));
    kvpi_set32(&seq->writable, kvpi_min_u32(seq->writable, n_tokens));
    seq->exclusive = 0;
    kvpi_set32(&seq->n_tree, 0);
    if (seq->windowed & KVPI_WINDOWED) {
        kvpi_windows_back(cache, seq);
    }
}

kvp_status kvp_seq_truncate(kvp_cache *cache, kvp_seq seq, uint32_t n_tokens,
                            kvp_released *out_released)
{
    kvp_released released = {0, 0};
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    struct kvpi_seq *s = kvpi_find_seq(cache, seq);
    if (s == NULL || n_tokens > s->tokens) {
        status = kvpi_fail(cache, s == NULL ? KVP_E_HANDLE : KVP_E_ARG, 0, 0);
    } else if (s->tier != KVP_DEVICE) {
        status = kvpi_fail(cache, KVP_E_STATE, 0, 0);
    } else if (((s->windowed & KVPI_WINDOWED) &&
                kvpi_windows_lack(cache, s, kvpi_min_u32(s->computed, n_tokens), n_tokens)) ||
               ((s->windowed & KVPI_STATEFUL) && kvpi_states_lacks(cache, s, n_tokens))) {
        status = kvpi_fail(cache, KVP_E_DROPPED, 0, 0);
    } else {
        kvpi_begin_change(cache);
        cut_back(cache, s, n_tokens, &released);
        if (out_released != NULL) {
            *out_released = released;
        }
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_truncate(&cache->recorder, seq, n_tokens, status, &released);
    }
    return kvpi_leave(cache, status);
}

/* What only some sequences have. */
static void close_parts(kvp_cache *cache, struct kvpi_seq *seq)
{
    if (seq->windowed & KVPI_STATEFUL) {
        kvpi_states_close(cache, seq);
    }
    kvpi_windows_close(cache, seq);
}

kvp_status kvp_seq_close(kvp_cache *cache, kvp_seq seq, kvp_released *out_released)
{
    kvp_released released = {0, 0};
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    struct kvpi_seq *s = kvpi_find_seq(cache, seq);
    if (s == NULL) {
        status = kvpi_fail(cache, KVP_E_HANDLE, 0, 0);
    } else {
        const uint32_t node = kvpi_last_node(cache, s);
        kvpi_begin_change(cache);
        kvpi_prefetch(kvpi_node(&cache->prefix, node));
        if (kvpi_learns(cache)) {
            kvpi_learned_close(cache, s);
        }
        kvpi_release_row(cache, s, 0, &released);
        if (s->windowed) {
            close_parts(cache, s);
        }
        kvpi_prefix_unuse(&cache->prefix, node);
        kvpi_steps_cut(cache, s, 0);
        kvpi_uncount(&cache->counters.swapped_seqs, s->tier);
        kvpi_table_close(&cache->table, s);
        if (out_released != NULL) {
            *out_released = released;
        }
    }
    if (kvpi_recording(cache)) {
        kvpi_record_seq_close(&cache->recorder, seq, status, &released);
    }
    return kvpi_leave(cache, status);
}
