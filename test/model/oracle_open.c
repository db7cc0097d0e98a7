/* Prompts: match, admission, open. */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------- what is valid */

static bool ranges_valid(const kvp_call *call)
{
    for (uint32_t i = 0; i < call->n_ranges; i++)
        if (call->ranges[i].begin >= call->ranges[i].end)
            return false;
    return true;
}

static bool tokens_valid(const int32_t *tokens, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (tokens[i] < 0)
            return false;
    return true;
}

/* The keys that touch a unit of the prompt. */
void oracle_unit_keys(const oracle *o, const kvp_call *call, uint32_t unit, oracle_keys *keys)
{
    uint32_t begin = unit * o->unit;

    keys->n = 0;
    for (uint32_t i = 0; i < call->n_keys; i++)
        if (call->keys[i].begin < begin + o->unit && call->keys[i].end > begin)
            oracle_keys_put(keys, UINT32_MAX, &call->keys[i], begin);
}

/* The hash of a unit of the prompt after a hash: the library's function over a span of one unit. */
static void prompt_hash(const oracle *o, const kvp_call *call, uint32_t unit,
                        const kvp_hash *parent, kvp_hash *out_hash)
{
    kvp_hash_input input = {0};
    kvp_key list[256];
    uint32_t begin = unit * o->unit;

    for (uint32_t i = 0; i < call->n_keys && input.n_keys < 256; i++)
        if (call->keys[i].begin < begin + o->unit && call->keys[i].end > begin)
            list[input.n_keys++] = call->keys[i];
    input.unit_tokens = o->unit;
    input.n_tokens = o->unit;
    input.tokens = call->tokens + begin;
    input.first_position = begin;
    input.keys = input.n_keys ? list : NULL;
    memset(out_hash, 0, sizeof *out_hash);
    (void)kvp_hash_units(&input, parent, out_hash);
}

/* "First and last are verified." */
static bool hashes_valid(const oracle *o, const kvp_call *call, uint32_t root)
{
    uint32_t n = call->n_tokens / o->unit;
    kvp_hash hash;

    if (!call->hashes || n == 0)
        return true;
    prompt_hash(o, call, 0, &o->nodes[root].hash, &hash);
    if (memcmp(&hash, &call->hashes[0], sizeof hash) != 0)
        return false;
    if (n == 1)
        return true;
    prompt_hash(o, call, n - 1, &call->hashes[n - 2], &hash);
    return memcmp(&hash, &call->hashes[n - 1], sizeof hash) == 0;
}

/* Is one of the hashes not what it should be? */
static bool hashes_lie(const oracle *o, const kvp_call *call, uint32_t root)
{
    kvp_hash parent = o->nodes[root].hash, hash;

    for (uint32_t i = 0; call->hashes && i < call->n_tokens / o->unit; i++) {
        prompt_hash(o, call, i, &parent, &hash);
        if (memcmp(&hash, &call->hashes[i], sizeof hash) != 0)
            return true;
        parent = hash;
    }
    return false;
}

kvp_status oracle_prompt_status(const oracle *o, const kvp_call *call, uint32_t *out_root)
{
    uint32_t ns = oracle_find_ns(o, call->handle);

    if (ns == ORACLE_NONE)
        return KVP_E_HANDLE;
    *out_root = o->namespaces[ns].root;
    if (call->flags > (KVP_OPEN_NO_MATCH | KVP_OPEN_DEVICE_ONLY | KVP_OPEN_RECEIVE) ||
        call->retention >= KVP_RETENTION_CLASSES || !ranges_valid(call) ||
        !tokens_valid(call->tokens, call->n_tokens) ||
        !oracle_keys_valid(o, call, 0, call->n_tokens, NULL, 0) ||
        !hashes_valid(o, call, *out_root))
        return KVP_E_ARG;
    if ((uint64_t)call->n_tokens + call->reserve_tokens > o->config.max_seq_tokens)
        return KVP_E_TOO_LONG;
    return KVP_OK;
}

/* ---------------------------------------------------------------------------------------- match */

static uint64_t lowest_begin(const kvp_call *call)
{
    uint64_t lowest = UINT64_MAX;

    for (uint32_t i = 0; i < call->n_ranges; i++)
        if (call->ranges[i].begin < lowest)
            lowest = call->ranges[i].begin;
    return lowest;
}

bool oracle_is_uncached(const oracle *o, const kvp_call *call, uint32_t unit)
{
    for (uint32_t i = unit * o->unit; i < (unit + 1) * o->unit; i++) {
        for (uint32_t k = 0; k < o->config.n_uncached_tokens; k++)
            if (call->tokens[i] == o->config.uncached_tokens[k])
                return true;
    }
    return (uint64_t)(unit + 1) * o->unit > lowest_begin(call);
}

/* Is there KV of the node, for a group, that the prompt may have? */
static bool has_kv(const oracle *o, const kvp_call *call, uint32_t node, uint32_t group)
{
    bool may_copy = !(call->flags & KVP_OPEN_DEVICE_ONLY);

    return o->nodes[node].at[group][KVP_DEVICE].block ||
           (may_copy && o->nodes[node].at[group][KVP_HOST].block);
}

/* Walk from the root. The nodes that were found are in o->prompt_nodes; where there is one group
 * without a window, they are hit. */
static uint32_t walk(oracle *o, const kvp_call *call, uint32_t root, uint32_t *out_stop)
{
    uint32_t n = call->n_tokens / o->unit, parent = root, i;
    oracle_keys keys = {0};

    if (oracle_has_states(o) && call->n_tokens)
        n = (call->n_tokens - 1) / o->unit; /* the last token is always computed */
    o->prompt_nodes =
        oracle_grow(o->prompt_nodes, &o->prompt_nodes_capacity, n, sizeof *o->prompt_nodes);
    *out_stop = KVP_STOP_OFF;
    if (!o->config.prefix_cache || (call->flags & KVP_OPEN_NO_MATCH))
        return 0;
    *out_stop = KVP_STOP_END;
    for (i = 0; i < n; i++) {
        const int32_t *tokens = call->tokens + (size_t)i * o->unit;
        uint32_t node;

        if (oracle_is_uncached(o, call, i)) {
            *out_stop = KVP_STOP_UNCACHED;
            break;
        }
        oracle_unit_keys(o, call, i, &keys);
        node = oracle_node_find(o, parent, tokens, &keys);
        o->marks.match_other_keys += node == ORACLE_NONE && oracle_has_tokens(o, parent, tokens);
        if (node == ORACLE_NONE || (oracle_is_plain(o) && !has_kv(o, call, node, 0))) {
            *out_stop = node == ORACLE_NONE ? KVP_STOP_MISS : KVP_STOP_NO_KV;
            break;
        }
        o->prompt_nodes[i] = parent = node;
    }
    free(keys.items);
    o->honest_units = i;
    return i;
}

/* The node of the last unit in an entry of a group's row, which has all of it. */
static const oracle_node *entry_node(const oracle *o, uint32_t group, uint32_t entry)
{
    return &o->nodes[o->prompt_nodes[(entry + 1) * oracle_units(o, group) - 1]];
}

/* The position of the query that comes next after a hit of so many tokens of a prompt. */
static uint32_t next_query(const kvp_call *call, uint32_t hit_tokens)
{
    return call->n_tokens ? oracle_lower(hit_tokens, call->n_tokens - 1) : 0;
}

/* Does a new sequence keep entry i of a hit in this group? */
static bool is_hit(const oracle *o, const oracle_match *m, uint32_t group, uint32_t i)
{
    return i < m->full[group] && oracle_keeps(o, group, oracle_window_of(o, group), i, m->query);
}

/* Is entry i null from the start, in this group? */
static bool is_absent(const oracle *o, const oracle_match *m, uint32_t group, uint32_t i)
{
    return (i < m->full[group] || m->receives) &&
           !oracle_keeps(o, group, oracle_window_of(o, group), i, m->query);
}

/* One block of the row that is hit. */
static void count_entry(const oracle *o, oracle_match *m, uint32_t group, uint32_t i)
{
    int32_t block = entry_node(o, group, i)->at[group][KVP_DEVICE].block;

    m->dropped += !is_hit(o, m, group, i);
    if (!is_hit(o, m, group, i))
        return;
    m->shared += block != 0;
    m->on_host += block == 0;
    m->cached += block && oracle_block_state(o, block) == KVP_BLOCK_CACHED;
}

/* Where a group has the units of a hit that ends inside a block. */
static int32_t inside_source(const oracle *o, const oracle_match *m, uint32_t group)
{
    const oracle_spot *at = o->nodes[o->prompt_nodes[m->hit_units - 1]].at[group];

    return at[KVP_DEVICE].block ? at[KVP_DEVICE].block : at[KVP_HOST].block;
}

/* Does any group copy the unit from the host? */
static bool comes_from_host(const oracle *o, const oracle_match *m, uint32_t unit)
{
    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        uint32_t i = unit / oracle_units(o, k);

        if (i < m->full[k] ? is_hit(o, m, k, i) && !entry_node(o, k, i)->at[k][KVP_DEVICE].block
                           : m->sources[k] && oracle_tier(o, m->sources[k]) == KVP_HOST)
            return true;
    }
    return false;
}

static void count_entries(const oracle *o, const kvp_call *call, oracle_match *m)
{
    uint32_t hit_tokens = m->hit_units * o->unit;

    m->query = next_query(call, m->receives ? call->n_tokens : hit_tokens);
    m->shared = m->on_host = m->cached = m->dropped = m->host_tokens = m->copied = 0;
    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        uint32_t copied = hit_tokens % oracle_size(o, k);

        m->full[k] = hit_tokens / oracle_size(o, k);
        m->copied = copied > m->copied ? copied : m->copied;
        for (uint32_t i = 0; i < m->full[k]; i++)
            count_entry(o, m, k, i);
        m->sources[k] = copied && !is_absent(o, m, k, m->full[k]) ? inside_source(o, m, k) : 0;
    }
    m->copies = m->on_host;
    for (uint32_t k = 0; k < o->config.n_groups; k++)
        m->copies += m->sources[k] != 0;
    for (uint32_t unit = 0; unit < m->hit_units; unit++)
        m->host_tokens += comes_from_host(o, m, unit) ? o->unit : 0;
}

/* How many sources of a hit inside a block leave the device's queue for the length of the call? */
static uint32_t count_leaving(const oracle *o, const oracle_match *m)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < o->config.n_groups; k++)
        n += m->sources[k] && oracle_tier(o, m->sources[k]) == KVP_DEVICE &&
             oracle_block_state(o, m->sources[k]) == KVP_BLOCK_CACHED;
    return n;
}

static void count_blocks(const oracle *o, const kvp_call *call, oracle_match *m)
{
    uint32_t watermark = o->pools[KVP_DEVICE].held ? o->watermark : 0;

    count_entries(o, call, m);
    m->absent = m->total = 0;
    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        m->entries[k] =
            oracle_ceil((uint64_t)call->n_tokens + call->reserve_tokens, oracle_size(o, k));
        for (uint32_t i = m->full[k]; i < m->entries[k]; i++)
            m->absent += is_absent(o, m, k, i);
        m->total += m->entries[k];
    }
    m->total -= m->dropped + m->absent;
    m->taken = m->total - m->shared;
    m->need = m->taken + m->cached + count_leaving(o, m);
    m->limit = oracle_usable(o, KVP_DEVICE) - watermark;
    m->watermark = watermark;
    m->fits = m->need + watermark <= oracle_available(o, KVP_DEVICE);
}

/* The longest prefix of so many units, of whole blocks or any, that ends at a checkpoint. */
static uint32_t cut_to_checkpoint(const oracle *o, uint32_t units, bool whole_blocks)
{
    while (units && ((whole_blocks && units % o->block_units) ||
                     !oracle_checkpoint_there(o, o->prompt_nodes[units - 1])))
        units--;
    return units;
}

/* No more row entries from the host than max_copies - 1: the hit ends before the next one. */
static void cut_to_plan(const oracle *o, const kvp_call *call, oracle_match *m)
{
    uint32_t on_host = 0, entry = 0;

    count_entries(o, call, m);
    if (m->on_host <= o->config.max_copies - 1)
        return;
    for (;; entry++) {
        on_host += entry_node(o, 0, entry)->at[0][KVP_DEVICE].block == 0;
        if (on_host > o->config.max_copies - 1)
            break;
    }
    m->hit_units = entry * o->block_units;
    m->stop = KVP_STOP_NO_ROOM;
    m->stop_group = 0;
    if (oracle_has_states(o))
        m->hit_units = cut_to_checkpoint(o, m->hit_units, true);
}

/* Does the group lack the KV of something that it keeps after so many units? */
static bool lacks_kv(const oracle *o, const kvp_call *call, uint32_t k, uint32_t n_units)
{
    uint32_t query = next_query(call, n_units * o->unit);

    for (uint32_t unit = 0; unit < n_units; unit++)
        if (oracle_keeps(o, k, oracle_window_of(o, k), unit / oracle_units(o, k), query) &&
            !has_kv(o, call, o->prompt_nodes[unit], k))
            return true;
    return false;
}

/* The first group that lacks something after so many units, of those without a window, then of the
 * others; n_groups is the one of state, n_groups + 1: none does. */
static uint32_t lacking_group(const oracle *o, const kvp_call *call, uint32_t n_units)
{
    for (uint32_t windowed = 0; windowed < 2; windowed++) {
        for (uint32_t k = 0; k < o->config.n_groups; k++)
            if ((o->config.groups[k].recent_tokens > 0) == windowed &&
                lacks_kv(o, call, k, n_units))
                return k;
    }
    return o->config.n_groups + (oracle_has_states(o) && n_units &&
                                         !oracle_checkpoint_there(o, o->prompt_nodes[n_units - 1])
                                     ? 0
                                     : 1);
}

/* Does the prefix need more copies than the plan can ever hold, or than it may hold of the host? */
static bool overfills_plan(const oracle *o, const oracle_match *m)
{
    return m->on_host > o->config.max_copies - 1 || m->copies > o->config.max_copies;
}

static void mark_choice(oracle *o, const kvp_call *call, const oracle_match *m, bool passed)
{
    bool on_host = false;

    for (uint32_t k = 0; k < o->config.n_groups; k++)
        on_host |= m->sources[k] && oracle_tier(o, m->sources[k]) == KVP_HOST;
    o->marks.match_passed += passed;
    o->marks.inside_groups += m->copied > 0 && o->config.n_groups > 1;
    o->marks.inside_host += on_host;
    o->marks.inside_state += m->copied > 0 && oracle_has_states(o);
    for (uint32_t shorter = 1; shorter < m->hit_units; shorter++) {
        if (lacking_group(o, call, shorter) < o->config.n_groups) {
            o->marks.match_back++;
            return;
        }
    }
}

/* The last end of a block, of any group, before the last of n tokens. */
static uint32_t last_boundary(const oracle *o, uint32_t n)
{
    uint32_t last = 0;

    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        uint32_t end = (n - 1) / oracle_size(o, k) * oracle_size(o, k);

        last = end > last ? end : last;
    }
    return last;
}

/* Of the path that was walked, the longest prefix of so many units, or of a multiple of them, for
 * which every group has what it keeps. A full hit ends at a block boundary, or before. */
static void choose_prefix(oracle *o, const kvp_call *call, uint32_t step, oracle_match *m)
{
    uint32_t n = call->n_tokens, path = m->hit_units, best;
    bool full_hit = false, passed = false;

    for (best = path / step * step;; best -= step) {
        m->hit_units = best;
        if ((full_hit && best * o->unit > last_boundary(o, n)) ||
            lacking_group(o, call, best) <= o->config.n_groups)
            continue;
        count_entries(o, call, m);
        if (best && best * o->unit == n && o->config.full_hit == KVP_FULL_HIT_RECOMPUTE) {
            full_hit = true;
        } else if (overfills_plan(o, m)) {
            passed = true;
            o->marks.inside_passed += m->on_host <= o->config.max_copies - 1;
        } else {
            break;
        }
    }
    mark_choice(o, call, m, passed);
    if (passed) {
        m->stop = KVP_STOP_NO_ROOM;
    } else if (full_hit) {
        m->stop = KVP_STOP_FULL_HIT;
    } else if (best < path) {
        m->stop = KVP_STOP_NO_KV;
        m->stop_group = lacking_group(o, call, best + 1);
        o->marks.state_cut_groups += m->stop_group == o->config.n_groups;
    }
}

static void note_checkpoint(const oracle *o, oracle_match *m)
{
    m->checkpoint =
        m->hit_units ? oracle_checkpoint_there(o, o->prompt_nodes[m->hit_units - 1]) : 0;
}

/* Choose among prefixes of so many units, and count what opening takes then. */
static void choose_and_count(oracle *o, const kvp_call *call, uint32_t step, oracle_match *m)
{
    uint32_t dropped;

    m->receives = false;
    choose_prefix(o, call, step, m);
    dropped = m->dropped;
    m->receives = (call->flags & KVP_OPEN_RECEIVE) != 0;
    count_blocks(o, call, m);
    m->lost = m->dropped > dropped;
}

/* The fewest units that end a block of every group. */
static uint32_t whole_blocks(const oracle *o)
{
    uint32_t n = 1, k = 0;

    while (k < o->config.n_groups) {
        bool ends = n % oracle_units(o, k) == 0;

        n += ends ? 0 : 1;
        k = ends ? k + 1 : 0;
    }
    return n;
}

/* Several groups, or a window. If sources of a hit inside a block do not fit beside what is taken,
 * only whole blocks are hit. */
static void match_groups(oracle *o, const kvp_call *call, bool with_room, oracle_match *m)
{
    choose_and_count(o, call, 1, m);
    if (with_room && count_leaving(o, m) && !m->fits) {
        choose_and_count(o, call, whole_blocks(o), m);
        m->stop = KVP_STOP_NO_ROOM;
        m->stop_group = 0;
        o->marks.inside_room++;
    }
    note_checkpoint(o, m);
}

static void match(oracle *o, const kvp_call *call, uint32_t root, bool with_room, oracle_match *m)
{
    uint32_t n = call->n_tokens, S = oracle_size(o, 0);

    memset(m, 0, sizeof *m);
    m->root = root;
    m->hit_units = walk(o, call, root, &m->stop);
    if (!oracle_is_plain(o)) {
        match_groups(o, call, with_room, m);
        return;
    }
    if (oracle_has_states(o)) {
        uint32_t path = m->hit_units;

        m->hit_units = cut_to_checkpoint(o, path, false);
        if (m->hit_units < path) {
            o->marks.state_cut++;
            m->stop = KVP_STOP_NO_KV;
            m->stop_group = o->config.n_groups;
        }
    }
    if (o->config.full_hit == KVP_FULL_HIT_RECOMPUTE && n && m->hit_units * o->unit == n) {
        m->hit_units = (n - 1) / S * S / o->unit;
        m->stop = KVP_STOP_FULL_HIT;
    }
    cut_to_plan(o, call, m);
    count_blocks(o, call, m);
    if (with_room && count_leaving(o, m) && !m->fits) {
        m->hit_units = m->full[0] * o->block_units;
        m->stop = KVP_STOP_NO_ROOM;
        m->stop_group = 0;
        if (oracle_has_states(o)) {
            m->hit_units = cut_to_checkpoint(o, m->hit_units, true);
            o->marks.state_room++;
        }
        count_blocks(o, call, m);
    }
    note_checkpoint(o, m);
}

static void tell(const oracle *o, const kvp_call *call, const oracle_match *m, kvp_open_info *info)
{
    uint32_t n = call->n_tokens, hit = m->hit_units * o->unit;

    info->hit_tokens = hit;
    info->cached_tokens = hit < n ? hit : n ? n - 1 : 0;
    info->stop = m->stop;
    info->stop_group = m->stop_group;
    info->host_tokens = m->host_tokens;
    info->host_blocks = m->on_host;
    info->shared_blocks = m->shared;
    info->cached_blocks = m->cached;
    info->copied_tokens = m->copied;
    info->taken_blocks = m->taken;
}

kvp_status oracle_match_call(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    oracle_match m;
    uint32_t root;
    kvp_status status = oracle_prompt_status(o, call, &root);

    if (status != KVP_OK)
        return status;
    o->lied = hashes_lie(o, call, root);
    match(o, call, root, false, &m);
    tell(o, call, &m, &out->u.open);
    return KVP_OK;
}

/* ------------------------------------------------------------------------------------ admission */

static uint32_t admit(const oracle *o, const oracle_match *m, kvp_admission *admission)
{
    admission->need_blocks = m->need;
    admission->available = oracle_available(o, KVP_DEVICE);
    admission->missing_blocks = 0;
    admission->verdict = KVP_ADMIT_OK;
    if (m->fits && oracle_slots_missing(o, m->entries[0] > 0, m->checkpoint))
        admission->verdict = KVP_ADMIT_LATER;
    if (m->fits)
        return admission->verdict;
    if (m->total > m->limit) {
        admission->missing_blocks = m->total - m->limit;
        return admission->verdict = KVP_ADMIT_NEVER;
    }
    admission->missing_blocks = m->need + m->watermark - admission->available;
    return admission->verdict = KVP_ADMIT_LATER;
}

kvp_status oracle_can_open(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    oracle_match m;
    uint32_t root;
    kvp_status status = oracle_prompt_status(o, call, &root);

    if (status != KVP_OK)
        return status;
    match(o, call, root, true, &m);
    admit(o, &m, &out->u.admission);
    return KVP_OK;
}

/* ----------------------------------------------------------------------------------------- open */

uint32_t oracle_place_take(oracle *o)
{
    uint32_t place = o->free_places[--o->n_free_places];
    oracle_seq *seq = &o->seqs[place];
    oracle_seq kept = *seq;

    memset(seq, 0, sizeof *seq);
    memcpy(seq->rows, kept.rows, sizeof seq->rows);
    memcpy(seq->row_capacity, kept.row_capacity, sizeof seq->row_capacity);
    seq->tree_tokens = kept.tree_tokens;
    seq->tree_capacity = kept.tree_capacity;
    seq->tree_parents = kept.tree_parents;
    seq->parents_capacity = kept.parents_capacity;
    seq->chain = kept.chain;
    seq->chain_capacity = kept.chain_capacity;
    seq->tail = kept.tail ? kept.tail : oracle_allocate(o->unit, sizeof *seq->tail);
    seq->tail_keys = kept.tail_keys;
    seq->tail_keys.n = 0;
    for (uint32_t k = 0; k < o->config.n_groups; k++)
        seq->windows[k] = oracle_window_of(o, k);
    seq->uncached_from = seq->private_from = UINT64_MAX;
    seq->parted = ORACLE_NONE;
    seq->open = true;
    o->open_seqs++;
    return place;
}

static kvp_status open_status(oracle *o, const kvp_call *call, oracle_match *m)
{
    kvp_admission admission;
    uint32_t root, verdict;
    kvp_status status = oracle_prompt_status(o, call, &root);

    if (status != KVP_OK)
        return oracle_fail(o, status, 0, 0);
    if (o->open_seqs == o->config.max_seqs)
        return oracle_fail(o, KVP_E_NO_SEQS, 0, 0);
    match(o, call, root, true, m);
    verdict = admit(o, m, &admission);
    if (verdict != KVP_ADMIT_OK) {
        o->stats.refused++;
        if (m->fits)
            return oracle_fail_blocks(o, KVP_E_NO_BLOCKS, 0, KVP_STATE_SLOTS,
                                      oracle_slots_missing(o, m->entries[0] > 0, m->checkpoint));
        return oracle_fail(o, verdict == KVP_ADMIT_NEVER ? KVP_E_NEVER : KVP_E_NO_BLOCKS, 0,
                           admission.missing_blocks);
    }
    if (m->copies > oracle_plan_room(o))
        return oracle_fail(o, KVP_E_PLAN_FULL, 0, 0);
    return KVP_OK;
}

/* The block that row entry i is copied from; 0: it is not copied. */
static int32_t source_of(const oracle *o, const oracle_match *m, uint32_t group, uint32_t i)
{
    if (i < m->full[group]) {
        const oracle_spot *at = entry_node(o, group, i)->at[group];

        return at[KVP_DEVICE].block || !is_hit(o, m, group, i) ? 0 : at[KVP_HOST].block;
    }
    return i == m->full[group] ? m->sources[group] : 0;
}

/* The units of entry i that were hit are in a block of our own. */
static void copy_units(oracle *o, const oracle_seq *seq, const oracle_match *m, uint32_t i,
                       int32_t block)
{
    uint32_t units = oracle_units(o, o->blocks[block].group);
    uint32_t first = i * units, end = first + units;

    for (uint32_t unit = first; unit < oracle_lower(end, m->hit_units); unit++)
        oracle_node_copied(o, seq->chain[unit], block);
}

/* Hold what is hit: the block itself, or the one that it is copied from. */
static int32_t hold_hit(oracle *o, oracle_seq *seq, const oracle_match *m, uint32_t group,
                        uint32_t i)
{
    int32_t source = source_of(o, m, group, i);

    seq->rows[group][i] = 0;
    if (is_hit(o, m, group, i) && !source)
        seq->rows[group][i] = entry_node(o, group, i)->at[group][KVP_DEVICE].block;
    if (source || seq->rows[group][i])
        oracle_hold(o, source ? source : seq->rows[group][i]);
    return source;
}

static void take_rest(oracle *o, oracle_seq *seq, const oracle_match *m, uint32_t group, uint32_t i,
                      int32_t source)
{
    int32_t block = seq->rows[group][i];

    if (block || is_absent(o, m, group, i))
        return;
    block = seq->rows[group][i] = oracle_take(o, KVP_DEVICE, group, seq->retention, seq->ns_handle);
    if (!source)
        return;
    o->marks.kept_hits += o->blocks[source].kept;
    oracle_plan_add(
        o, source, block,
        oracle_lower(oracle_size(o, group), m->hit_units * o->unit - i * oracle_size(o, group)));
    copy_units(o, seq, m, i, block);
}

/* Let go of what was only copied from: what the hit ends inside of, of the last group first; then
 * whole blocks, the last first. */
static void release_sources(oracle *o, const oracle_match *m, const oracle_entry *order, uint32_t n,
                            const int32_t *sources)
{
    for (uint32_t k = o->config.n_groups; k-- > 0;)
        if (m->sources[k])
            oracle_release(o, m->sources[k], NULL);
    for (uint32_t at = n; at-- > 0;)
        if (sources[at] && order[at].i < m->full[order[at].group])
            oracle_release(o, sources[at], NULL);
}

/* Hold the hits, in row order, then take the rest, in row order. */
static void fill_row(oracle *o, oracle_seq *seq, const oracle_match *m)
{
    uint32_t n;
    oracle_entry *order = oracle_order(o, m->entries, &n);
    int32_t *sources = oracle_allocate(n, sizeof *sources);

    oracle_rows_grow(o, seq, m->entries);
    for (uint32_t at = 0; at < n; at++)
        sources[at] = hold_hit(o, seq, m, order[at].group, order[at].i);
    while (seq->hit_blocks < m->full[0] && seq->rows[0][seq->hit_blocks])
        seq->hit_blocks++;
    o->to_come = m->copies;
    for (uint32_t at = 0; at < n; at++)
        take_rest(o, seq, m, order[at].group, order[at].i, sources[at]);
    memcpy(seq->n_row, m->entries, sizeof seq->n_row);
    o->marks.match_hole += m->dropped > 0;
    o->marks.open_absent += m->absent > 0;
    o->marks.open_absent_hit += m->lost;
    release_sources(o, m, order, n, sources);
    free(order);
    free(sources);
}

static void start_seq(oracle *o, oracle_seq *seq, const kvp_call *call, const oracle_match *m)
{
    seq->ns_handle = call->handle;
    seq->tag = call->tag;
    seq->root = m->root;
    o->nodes[m->root].users++;
    seq->retention = call->retention;
    seq->uncached_from = lowest_begin(call);
    seq->stop = m->stop;
    seq->stop_group = m->stop_group;
    for (uint32_t i = 0; i < m->hit_units; i++)
        oracle_chain_push(o, seq, o->prompt_nodes[i]);
}

kvp_status oracle_open(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint64_t evicted = o->stats.evicted_blocks;
    oracle_match m = {0};
    oracle_seq *seq;
    kvp_status status = open_status(o, call, &m);
    uint32_t hit = m.hit_units * o->unit;

    if (status != KVP_OK)
        return status;
    /* Known units that are not hit keep their nodes, whatever blocks are taken for them. */
    const bool nodes_suffice =
        o->nodes_used + call->n_tokens / o->unit <= o->node_limit + m.hit_units;
    const int32_t *rest = call->tokens ? call->tokens + hit : NULL;
    oracle_begin_change(o);
    tell(o, call, &m, &out->u.open);
    o->new_place = oracle_place_take(o);
    seq = &o->seqs[o->new_place];
    start_seq(o, seq, call, &m);
    oracle_state_open(o, seq, call, m.hit_units, m.checkpoint);
    seq->tokens = call->n_tokens;
    seq->known = hit;
    if (nodes_suffice)
        oracle_values_add(o, seq, call, rest, call->n_tokens - hit);
    fill_row(o, seq, &m);
    if (!nodes_suffice)
        oracle_values_add(o, seq, call, rest, call->n_tokens - hit);
    seq->prompt = call->n_tokens;
    seq->cached = out->u.open.cached_tokens;
    seq->computed = hit;
    seq->writable = call->n_tokens + call->reserve_tokens;
    oracle_state_opened(o, seq);
    oracle_state_grow(o, seq, seq->writable);
    out->u.open.evicted_blocks = (uint32_t)(o->stats.evicted_blocks - evicted);
    o->stats.opens++;
    o->stats.prompt_tokens += seq->prompt;
    o->stats.cached_tokens += seq->cached;
    o->stats.host_tokens += out->u.open.host_tokens;
    return KVP_OK;
}
