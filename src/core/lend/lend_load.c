/* lend_load: host blocks that a store fills (lend.h). Begin, done, cancel.
 *
 * A load owns host blocks of one layer group, each for the last unit of a row entry, and is a user
 * of the deepest of these units' nodes, so that the path lives:
 *
 *   root -- unit -- unit -- unit -- unit -- unit -- unit      U = S / 2, entries 1 and 2
 *                            |  entry 1  |   entry 2  ^ node
 *                                      ^ lent[7].node ^ lent[3].node
 *   load.first --> 7 --next--> 3 --> 0
 *
 * A load of a state owns one slot of the host, whose place stands behind those of the blocks. When
 * it is whole, the plan copies it to a slot of the device, which is a checkpoint from then on.
 *
 * While it is loading, a block has one reference and no content: no place of a node names it, so
 * nothing can find it (L2). The node is marked instead, which is how other loads know.
 *
 * What runs beside a store is the engine's copies. A block that was just taken may still be read by
 * a copy that waits, or be written by one whose result is not wanted any more; `after` says from
 * when on it is the store's alone. Nothing is attached before that plan is over.
 */
#include "core/cache/blocks.h"
#include "core/cache/frame.h"
#include "core/cache/spaces.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/lend/lend_load.h"
#include "core/seq/match.h"

#include <string.h>

/* A load to be: the path in the scratch row, and what was counted along it. */
struct request {
    struct kvpi_match match;
    kvp_ns ns;
    kvp_load *load;    /* a copy: the caller's is written on success only */
    uint32_t *nodes;   /* [n_units] of the path, NO_NODE from `n_known` on */
    uint32_t n_units;  /* up to the last entry's end */
    uint32_t n_known;  /* leading ones that have nodes */
    uint32_t n_new;    /* entries to load */
    uint32_t n_cached; /* host blocks of the path that are cached: they are kept out of the way */
};

void kvpi_loads_reset(kvp_cache *cache)
{
    struct kvpi_lending *lending = &cache->lending;
    if (lending->max_loads > 0) {
        memset(kvpi_lent(cache, 0), 0, kvpi_n_lent(cache) * sizeof(struct kvpi_lent));
        memset(kvpi_load_at(cache, 0), 0, lending->max_loads * sizeof(struct kvpi_load));
    }
    kvpi_set(&lending->n_loads, 0);
    kvpi_set(&lending->n_loading, 0);
    kvpi_set(&lending->n_slots, 0);
    kvpi_set(&lending->n_reading, 0);
    kvpi_set(&lending->plans_done, lending->plans);
}

/* ---------------------------------------------------------------------------------------- begin */

static struct kvpi_unit unit_of(const struct request *r, uint32_t u, uint32_t unit_tokens,
                                struct kvpi_key *keys, uint32_t *cursor)
{
    const kvp_prompt *prompt = r->match.prompt;
    struct kvpi_unit unit = {prompt->tokens + (size_t)u * unit_tokens, keys, 0};
    if (prompt->n_keys > 0) {
        unit.n_keys = kvpi_keys_of_unit(prompt->keys, prompt->n_keys, u * unit_tokens, unit_tokens,
                                        keys, KVPI_UNIT_KEYS_MAX, cursor);
    }
    return unit;
}

/* Find the nodes of the path, as far as there are any. */
static void find_load_path(kvp_cache *cache, struct request *r)
{
    struct kvpi_key keys[KVPI_UNIT_KEYS_MAX];
    uint32_t cursor = 0;
    uint32_t parent = r->match.root;
    memset(r->nodes, 0, r->n_units * sizeof(*r->nodes));
    for (uint32_t u = 0; u < r->n_units && parent != KVPI_NO_NODE; u++) {
        const struct kvpi_unit unit = unit_of(r, u, cache->config.unit_tokens, keys, &cursor);
        parent = kvpi_prefix_find(&cache->prefix, parent, &r->match.hashes[u], &unit);
        r->nodes[u] = parent;
        r->n_known += parent != KVPI_NO_NODE;
    }
}

/* Make the others. */
static void make_path(kvp_cache *cache, struct request *r)
{
    const uint32_t flags =
        KVPI_NODE_PUBLIC | (r->match.prompt->hashes != NULL ? (uint32_t)KVPI_NODE_HASH_GIVEN : 0u);
    struct kvpi_key keys[KVPI_UNIT_KEYS_MAX];
    uint32_t cursor = 0;
    for (uint32_t u = r->n_known; u < r->n_units; u++) {
        const struct kvpi_unit unit = unit_of(r, u, cache->config.unit_tokens, keys, &cursor);
        r->nodes[u] = kvpi_prefix_add(&cache->prefix, u == 0 ? r->match.root : r->nodes[u - 1],
                                      &r->match.hashes[u], &unit, flags);
    }
}

/* The node of an entry's last unit. */
static uint32_t last_node_of(const kvp_cache *cache, const struct request *r, uint32_t entry)
{
    return r->nodes[(entry + 1) * kvpi_units_per_block(cache, r->load->group) - 1];
}

static uint32_t block_there(const kvp_cache *cache, uint32_t node, uint32_t where)
{
    return node == KVPI_NO_NODE ? KVP_NULL_BLOCK : kvpi_node_at(&cache->prefix, node, where)->block;
}

static int is_there(const kvp_cache *cache, uint32_t node, uint32_t group)
{
    return (block_there(cache, node, KVPI_WHERE(KVP_DEVICE, group)) |
            block_there(cache, node, KVPI_WHERE(KVP_HOST, group))) != KVP_NULL_BLOCK;
}

static uint32_t loading_flag(uint32_t group)
{
    return (uint32_t)KVPI_NODE_LOADING << group;
}

/* Count entry after entry. */
static void count_entries_to_load(kvp_cache *cache, struct request *r)
{
    kvp_load *load = r->load;
    load->n_found = load->n_elsewhere = r->n_new = r->n_cached = 0;
    for (uint32_t i = 0; i < load->entries.end; i++) {
        const uint32_t node = last_node_of(cache, r, i);
        const uint32_t host = block_there(cache, node, KVPI_WHERE(KVP_HOST, load->group));
        r->n_cached +=
            host != KVP_NULL_BLOCK && kvpi_block_is_cached(kvpi_block(&cache->host, host));
        if (i < load->entries.begin) {
            continue;
        }
        if (is_there(cache, node, load->group)) {
            load->n_found++;
        } else if (node != KVPI_NO_NODE &&
                   (kvpi_node(&cache->prefix, node)->flags & loading_flag(load->group))) {
            load->n_elsewhere++;
        } else {
            r->n_new++;
        }
    }
}

/* Is the load of a state? */
static int is_of_state(const kvp_cache *cache, uint32_t group)
{
    return group == cache->config.n_groups;
}

/* Is there room, nodes apart? */
static kvp_status admit(kvp_cache *cache, const struct request *r)
{
    const struct kvpi_lending *lending = &cache->lending;
    const int is_state = is_of_state(cache, r->load->group);
    const struct kvpi_pool *pool = is_state ? &cache->states.host : &cache->host;
    const uint64_t usable = pool->n_blocks - 1;
    const uint64_t available = kvpi_pool_available(pool);
    const uint64_t limit = is_state ? lending->slot_limit : lending->limit;
    const uint64_t lent = is_state ? lending->n_slots : lending->n_loading + lending->n_reading;
    const uint64_t spare = r->load->spare_blocks;
    const uint64_t need = r->n_new + (spare > r->n_cached ? spare : r->n_cached);
    kvp_status status = KVP_OK;
    uint64_t missing = 0;
    if (r->n_new > limit) {
        status = KVP_E_NEVER;
        missing = r->n_new - limit;
    } else if (r->n_new + spare > usable) {
        status = KVP_E_NEVER;
        missing = r->n_new + spare - usable;
    } else if (lending->n_loads == lending->max_loads || lent + r->n_new > limit) {
        status = KVP_E_AGAIN;
    } else if (need > available) {
        status = KVP_E_NO_BLOCKS;
        missing = need - available;
    }
    if (status != KVP_OK) {
        (void)kvpi_fail(cache, status, 0, missing);
        cache->shortage.tier = is_state ? KVP_HOST_STATE_SLOTS : KVP_HOST;
    }
    return status;
}

static int lacks_nodes(const kvp_cache *cache, const struct request *r)
{
    return cache->prefix.n_nodes - cache->prefix.n_used < r->n_units - r->n_known;
}

/* Content is evicted for the nodes of the path, if need be. Then less of it may be there, and the
 * rest is counted again. */
static kvp_status make_room_for_nodes(kvp_cache *cache, struct request *r)
{
    if (!lacks_nodes(cache, r)) {
        return KVP_OK;
    }
    const int could_fit = r->n_units < cache->prefix.n_nodes; /* with the root */
    while (could_fit && lacks_nodes(cache, r) && kvpi_free_node(cache)) {
        /* again */
    }
    count_entries_to_load(cache, r);
    const kvp_status status = admit(cache, r);
    return status == KVP_OK && lacks_nodes(cache, r) ? kvpi_fail(cache, KVP_E_AGAIN, 0, 0) : status;
}

/* Hold the host blocks of the path, or release them, the last first. */
static void hold_path(kvp_cache *cache, const struct request *r, int hold)
{
    const uint32_t n = r->load->entries.end;
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t node = last_node_of(cache, r, hold ? k : n - 1 - k);
        const uint32_t block = block_there(cache, node, KVPI_WHERE(KVP_HOST, r->load->group));
        if (block == KVP_NULL_BLOCK) {
            continue;
        }
        if (hold) {
            kvpi_pool_hold(&cache->host, block);
        } else {
            kvpi_release_block(cache, KVP_HOST, block, NULL);
        }
    }
}

static struct kvpi_load *find_load(const kvp_cache *cache, uint64_t number)
{
    for (uint32_t place = 0; place < cache->lending.max_loads; place++) {
        if (kvpi_load_at(cache, place)->number == number) {
            return kvpi_load_at(cache, place);
        }
    }
    return NULL;
}

/* Take a host block, or a slot; gives its place among what is lent. */
static uint32_t take_room(kvp_cache *cache, const struct request *r, const struct kvpi_load *load)
{
    return is_of_state(cache, load->group)
               ? kvpi_lent_slot(cache, kvpi_states_take_host_for(cache, load->retention, load->ns))
               : kvpi_take_block(cache, KVPI_WHERE(KVP_HOST, load->group),
                                 r->match.prompt->retention, r->ns.bits);
}

/* Take a block for an entry of the load. */
static void take_entry(kvp_cache *cache, const struct request *r, struct kvpi_load *load,
                       uint32_t entry, uint32_t *link)
{
    const uint32_t node = last_node_of(cache, r, entry);
    const uint32_t block = take_room(cache, r, load);
    const uint32_t first = is_of_state(cache, load->group) ? kvpi_lent_slot(cache, 0) : 0;
    struct kvpi_lent *lent = kvpi_lent(cache, block);
    kvpi_node(&cache->prefix, node)->flags |= loading_flag(load->group);
    lent->node = node;
    lent->next = KVP_NULL_BLOCK;
    load->after = lent->used > load->after ? lent->used : load->after;
    load->n_blocks++;
    r->load->blocks[entry - r->load->entries.begin] = (int32_t)(block - first);
    if (*link == KVP_NULL_BLOCK) {
        load->first = block;
    } else {
        kvpi_lent(cache, *link)->next = block;
    }
    *link = block;
}

/* What is being loaded of this kind. */
static uint64_t *loading_of(kvp_cache *cache, uint32_t group)
{
    return is_of_state(cache, group) ? &cache->lending.n_slots : &cache->lending.n_loading;
}

static void clear_blocks(kvp_load *load)
{
    memset(load->blocks, 0, (load->entries.end - load->entries.begin) * sizeof(*load->blocks));
}

static void begin_load(kvp_cache *cache, struct request *r)
{
    const uint32_t group = r->load->group;
    struct kvpi_load *load = find_load(cache, 0);
    uint32_t last = KVP_NULL_BLOCK;
    KVPI_ASSERT(load != NULL);
    clear_blocks(r->load);
    make_path(cache, r);
    kvpi_count(&cache->lending.number, 1);
    *load = (struct kvpi_load){.number = cache->lending.number,
                               .node = r->nodes[r->n_units - 1],
                               .group = group,
                               .ns = r->ns.bits,
                               .retention = r->match.prompt->retention};
    kvpi_prefix_use(&cache->prefix, load->node);
    hold_path(cache, r, 1);
    for (uint32_t i = r->load->entries.begin; i < r->load->entries.end; i++) {
        const uint32_t node = last_node_of(cache, r, i);
        if (!is_there(cache, node, group) &&
            !(kvpi_node(&cache->prefix, node)->flags & loading_flag(group))) {
            take_entry(cache, r, load, i, &last);
        }
    }
    hold_path(cache, r, 0);
    load->after = load->after > kvpi_plans_over(cache) ? load->after : 0;
    kvpi_count(&cache->lending.n_loads, 1);
    kvpi_count(loading_of(cache, group), load->n_blocks);
    r->load->number = load->number;
    r->load->after = load->after;
    r->load->n_blocks = load->n_blocks;
}

/* What is known of the path stays while others of its nodes are made. */
static kvp_status begin_admitted(kvp_cache *cache, struct request *r)
{
    const uint32_t known = r->n_known > 0 ? r->nodes[r->n_known - 1] : r->match.root;
    kvpi_begin_change(cache);
    kvpi_prefix_use(&cache->prefix, known);
    const kvp_status status = make_room_for_nodes(cache, r);
    if (status == KVP_OK) {
        begin_load(cache, r);
    }
    kvpi_prefix_unuse(&cache->prefix, known);
    return status;
}

static kvp_status check_entries(const kvp_cache *cache, const struct request *r)
{
    const kvp_load *load = r->load;
    const int is_state = kvpi_has_states(cache) && is_of_state(cache, load->group);
    if ((load->group >= cache->config.n_groups && !is_state) ||
        load->entries.begin >= load->entries.end ||
        load->entries.end > r->match.prompt->n_tokens / kvpi_block_tokens(cache, load->group) ||
        (is_state && load->entries.end - load->entries.begin != 1)) {
        return KVP_E_ARG;
    }
    return cache->lending.max_loads == 0 ||
                   load->entries.end > r->match.n_public / kvpi_units_per_block(cache, load->group)
               ? KVP_E_STATE
               : KVP_OK;
}

static kvp_status begin(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt, kvp_load *load)
{
    struct request r = {.ns = ns, .load = load};
    kvp_status status = kvpi_match_prepare(cache, ns, prompt, &r.match);
    if (status == KVP_OK) {
        status = check_entries(cache, &r);
    }
    if (status != KVP_OK) {
        return kvpi_fail(cache, status, 0, 0);
    }
    r.n_units = load->entries.end * kvpi_units_per_block(cache, load->group);
    r.nodes = kvpi_row_nodes(&cache->table, kvpi_table_scratch(&cache->table));
    load->number = load->after = 0;
    load->n_blocks = 0;
    kvpi_match_hash_rest(cache, &r.match);
    find_load_path(cache, &r);
    count_entries_to_load(cache, &r);
    status = r.n_new == 0 ? KVP_OK : admit(cache, &r);
    if (status == KVP_OK && r.n_new > 0) {
        return begin_admitted(cache, &r);
    }
    if (status == KVP_OK) {
        clear_blocks(load);
    }
    return status;
}

kvp_status kvp_load_begin(kvp_cache *cache, kvp_ns ns, const kvp_prompt *prompt, kvp_load *load)
{
    kvp_load *known = kvpi_sized(load, sizeof(*load));
    prompt = kvpi_sized(prompt, sizeof(*prompt));
    if (cache == NULL || kvpi_bad_prompt(prompt) || known == NULL || known->blocks == NULL) {
        return KVP_E_ARG;
    }
    kvp_load own = *known;
    kvp_status status = kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = begin(cache, ns, prompt, &own);
    if (status == KVP_OK) {
        *known = own;
    }
    if (kvpi_recording(cache)) {
        kvpi_record_load_begin(&cache->recorder, ns, prompt, &own, status);
    }
    return kvpi_leave(cache, status);
}

/* ------------------------------------------------------------------------------------------ end */

/* May the load's block become its node's? */
static int is_wanted(const kvp_cache *cache, uint32_t node, uint32_t group)
{
    const struct kvpi_node *n = kvpi_node(&cache->prefix, node);
    return (n->flags & KVPI_NODE_PUBLIC) != 0 && kvpi_prefix_is_live(&cache->prefix, n) &&
           !is_there(cache, node, group);
}

/* The state after the node is in the slot, at its place among what is lent: a slot of the device
 * becomes the node's checkpoint, and the plan copies it there. */
static void settle_state(kvp_cache *cache, const struct kvpi_load *load, uint32_t place)
{
    const uint32_t slot = kvpi_states_take_for(cache, load->retention, load->ns);
    kvpi_states_copy_to(cache, KVP_DEVICE, place - kvpi_lent_slot(cache, 0), slot);
    kvpi_states_attach(cache, load->node, slot);
    kvpi_states_release(cache, KVP_DEVICE, slot);
}

/* Could it be hit, and is there room for it? */
static int can_settle_state(const kvp_cache *cache, uint32_t node)
{
    return kvpi_states_has_kv(cache, node) && kvpi_plan_room(&cache->plan) > 0 &&
           kvpi_pool_available(&cache->states.pool) > 0;
}

/* The units of the entry that ends with `node` are in the block. */
static void settle_entry(kvp_cache *cache, uint32_t where, uint32_t node, uint32_t block)
{
    for (uint32_t i = 0; i < kvpi_units_per_block(cache, KVPI_GROUP_OF(where)); i++) {
        if (kvpi_node(&cache->prefix, node)->flags & KVPI_NODE_PUBLIC) {
            kvpi_settle_unit(cache, where, node, block);
        }
        node = kvpi_node(&cache->prefix, node)->parent;
    }
}

static void end_block(kvp_cache *cache, const struct kvpi_load *load, uint32_t block, int whole,
                      kvp_loaded *out)
{
    struct kvpi_lent *lent = kvpi_lent(cache, block);
    const uint32_t node = lent->node;
    kvpi_node(&cache->prefix, node)->flags &= ~loading_flag(load->group);
    lent->node = KVPI_NO_NODE;
    if (!whole) {
        out->failed++;
    } else if (!is_wanted(cache, node, load->group) ||
               (is_of_state(cache, load->group) && !can_settle_state(cache, node))) {
        out->dropped++;
    } else if (is_of_state(cache, load->group)) {
        settle_state(cache, load, block);
        out->cached++;
    } else {
        settle_entry(cache, KVPI_WHERE(KVP_HOST, load->group), node, block);
        out->cached++;
    }
}

/* whole: NULL, nothing is. Blocks are settled in row order, and released the last first. */
static void end_load(kvp_cache *cache, struct kvpi_load *load, const uint8_t *whole,
                     kvp_loaded *out)
{
    uint32_t before = KVP_NULL_BLOCK;
    uint32_t block = load->first;
    for (uint32_t i = 0; i < load->n_blocks; i++) {
        const uint32_t next = kvpi_lent(cache, block)->next;
        end_block(cache, load, block, whole != NULL && whole[i] != 0, out);
        kvpi_lent(cache, block)->next = before;
        before = block;
        block = next;
    }
    while (before != KVP_NULL_BLOCK) {
        const uint32_t next = kvpi_lent(cache, before)->next;
        kvpi_lent(cache, before)->next = KVP_NULL_BLOCK;
        if (is_of_state(cache, load->group)) {
            kvpi_states_release(cache, KVP_HOST, before - kvpi_lent_slot(cache, 0));
        } else {
            kvpi_release_block(cache, KVP_HOST, before, NULL);
        }
        before = next;
    }
    kvpi_prefix_unuse(&cache->prefix, load->node);
    kvpi_uncount(&cache->lending.n_loads, 1);
    kvpi_uncount(loading_of(cache, load->group), load->n_blocks);
    kvpi_count(&cache->counters.loaded_blocks, out->cached);
    kvpi_count(&cache->counters.dropped_loads, out->dropped);
    kvpi_count(&cache->counters.failed_loads, out->failed);
    memset(load, 0, sizeof(*load));
}

static int is_mask(const uint8_t *whole, uint32_t n)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < n; i++) {
        bits |= whole[i];
    }
    return bits <= 1;
}

static kvp_status finish_load(kvp_cache *cache, uint64_t number, const uint8_t *whole,
                              uint32_t n_blocks, kvp_loaded *out)
{
    struct kvpi_load *load = number == 0 ? NULL : find_load(cache, number);
    memset(out, 0, sizeof(*out));
    if (load == NULL ||
        (whole != NULL && (n_blocks != load->n_blocks || !is_mask(whole, n_blocks)))) {
        return kvpi_fail(cache, KVP_E_ARG, 0, 0);
    }
    if (whole != NULL && load->after > kvpi_plans_over(cache)) {
        return kvpi_fail(cache, KVP_E_IN_FLIGHT, 0, 0);
    }
    kvpi_begin_change(cache);
    end_load(cache, load, whole, out);
    return KVP_OK;
}

kvp_status kvp_load_done(kvp_cache *cache, uint64_t number, const uint8_t *whole, uint32_t n_blocks,
                         kvp_loaded *out_loaded)
{
    kvp_loaded loaded;
    kvp_status status = cache == NULL || whole == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = finish_load(cache, number, whole, n_blocks, &loaded);
    if (status == KVP_OK && out_loaded != NULL) {
        *out_loaded = loaded;
    }
    if (kvpi_recording(cache)) {
        kvpi_record_load_done(&cache->recorder, number, whole, n_blocks, status, &loaded);
    }
    return kvpi_leave(cache, status);
}

kvp_status kvp_load_cancel(kvp_cache *cache, uint64_t load)
{
    kvp_loaded loaded;
    kvp_status status = cache == NULL ? KVP_E_ARG : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    status = finish_load(cache, load, NULL, 0, &loaded);
    if (kvpi_recording(cache)) {
        kvpi_record_load_cancel(&cache->recorder, load, status);
    }
    return kvpi_leave(cache, status);
}
