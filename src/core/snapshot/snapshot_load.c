/* snapshot_load: what a snapshot holds, put into a new cache.
 *
 * One pass over the records. Nothing in them is believed because its checksum is right: numbers are
 * looked up, hashes made again, blocks must be free, so that no file leads to a cache that does not
 * pass its audit, or to a hit on other tokens than were asked for. What KV is in a block is the one
 * thing that has to be taken from the file.
 *
 * Blocks come in the order of eviction, last first: each goes before the one that was put into its
 * class before it. A node that was not needed in the end, because no block below it was restored,
 * is taken out again.
 *
 *   spaces  [n_namespaces]  u32  the root of the file's namespace; 0: not restored
 *   names   [n_names]       u32  1 + the number of a restored namespace, found by its root's hash;
 *                                0: none. A power of two, and twice as many as namespaces
 *   nodes   [n_nodes + 1]   u32  the node of a number in the file; from GONE on: why there is none
 *   paths   [N + host]      u32  with ids kept: the deepest node of a block, duplicates included
 */
#include "core/cache/blocks.h"
#include "core/cache/frame.h"
#include "core/cache/spaces.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/cache/tokens.h"
#include "core/calls/calls_spaces.h"
#include "core/snapshot/frames.h"
#include "core/snapshot/snapshot_learned.h"

/* In `nodes`: GONE + the reason. 0: the record was not seen, which is damage. */
#define GONE (UINT32_MAX - KVP_DROP_REASONS)

/* More nodes than this times the cache's own are not looked at: they could not be kept. */
#define NODES_TIMES 16u

struct load {
    kvp_cache *cache;
    const kvp_snapshot_options *options;
    struct kvpi_snap_reader reader;
    kvp_snapshot_info info;
    kvp_snapshot_report report;
    uint32_t *spaces;
    uint32_t *names;
    uint32_t n_names;
    uint32_t *nodes;
    uint32_t *paths;
    int32_t *tokens;       /* [U] */
    struct kvpi_key *keys; /* [64] */
    size_t scratch_bytes;
    uint32_t n_nodes; /* that are looked at */
    uint32_t last_node;
    int keeps_ids;
    uint32_t first[KVPI_TIERS][KVP_RETENTION_CLASSES]; /* the last block that was put there */
    struct kvpi_snap_learned learned;
    uint32_t first_slot[KVP_RETENTION_CLASSES];
    uint32_t waits; /* for its KV: the kind of that record; 0: no block does */
    struct found {
        kvp_snapshot_block at;
        uint32_t saved_block;
        uint32_t class_;
        uint32_t node;
        uint32_t n_units;
        uint8_t mask[KVP_BLOCK_TOKENS_MAX / 8];
    } block;
};

static void drop_block(struct load *load, uint32_t reason)
{
    load->report.dropped_blocks[reason]++;
}

/* ------------------------------------------------------------------------- namespaces and nodes */

/* Where the namespace with this root hash is in `names`, or would be. */
static uint32_t *find_name(const struct load *load, const kvp_hash *hash)
{
    uint32_t at;
    memcpy(&at, hash->bytes, sizeof(at));
    for (at &= load->n_names - 1; load->names[at] != 0; at = (at + 1) & (load->n_names - 1)) {
        const uint32_t root = load->spaces[load->names[at] - 1];
        if (memcmp(&kvpi_node(&load->cache->prefix, root)->hash, hash, sizeof(*hash)) == 0) {
            break;
        }
    }
    return &load->names[at];
}

/* The root of a new namespace, number n in the file; 0: there is one of that name, or no room. */
static uint32_t restore_space(struct load *load, uint32_t n, const void *name, uint32_t name_bytes)
{
    kvp_hash hash;
    (void)kvp_hash_root(load->info.unit_tokens, load->info.hash_seed, name, name_bytes, &hash);
    uint32_t *slot = find_name(load, &hash);
    const uint32_t root =
        *slot != 0 ? KVPI_NO_NODE : kvpi_restore_space(load->cache, name, name_bytes);
    *slot = root != KVPI_NO_NODE ? n + 1 : *slot;
    return root;
}

static void load_space(struct load *load, struct kvpi_snap_bytes *b)
{
    const uint32_t n = kvpi_snap_get_u32(b);
    const uint32_t name_bytes = kvpi_snap_get_u32(b);
    const uint8_t *name = kvpi_snap_get(b, name_bytes);
    uint32_t reason = KVP_DROP_DAMAGED;
    if (kvpi_snap_whole(b) && name_bytes <= KVP_NAME_MAX_BYTES && n < load->info.n_namespaces &&
        load->spaces[n] == KVPI_NO_NODE) {
        load->spaces[n] = restore_space(load, n, name, name_bytes);
        if (load->spaces[n] != KVPI_NO_NODE) {
            load->report.namespaces++;
            if (load->options->tell != NULL) {
                const kvp_snapshot_item item = {.kind = KVP_SNAPSHOT_NAMESPACE,
                                                .ns = n,
                                                .name = name,
                                                .name_bytes = name_bytes};
                load->options->tell(load->options->context, &item);
            }
            return;
        }
        reason = KVP_DROP_NO_ROOM;
        load->spaces[n] = GONE + reason;
    }
    load->report.dropped_namespaces[reason]++;
}

/* Keys as a node has them, in the order of their offsets: 0 when they are damaged. */
static int read_keys(struct load *load, struct kvpi_snap_bytes *b, uint32_t n_keys)
{
    for (uint32_t i = 0; i < n_keys; i++) {
        struct kvpi_key *key = &load->keys[i];
        memset(key, 0, sizeof(*key));
        key->type = kvpi_snap_get_u32(b);
        key->offset = (int32_t)kvpi_snap_get_u32(b);
        key->n_bytes = kvpi_snap_get_u32(b);
        const uint8_t *bytes =
            key->n_bytes > KVP_KEY_MAX_BYTES ? NULL : kvpi_snap_get(b, key->n_bytes);
        if (bytes == NULL || key->offset >= (int32_t)load->info.unit_tokens ||
            (i > 0 && key->offset < key[-1].offset)) {
            return 0;
        }
        memcpy(key->bytes, bytes, key->n_bytes);
    }
    return kvpi_snap_whole(b);
}

/* Read the unit into scratch: 0 when it is damaged. */
static int read_unit(struct load *load, struct kvpi_snap_bytes *b, struct kvpi_unit *out)
{
    const uint32_t U = load->info.unit_tokens;
    for (uint32_t i = 0; i < U; i++) {
        load->tokens[i] = (int32_t)kvpi_snap_get_u32(b);
    }
    const uint32_t n_keys = kvpi_snap_get_u32(b);
    *out = (struct kvpi_unit){load->tokens, load->keys, n_keys};
    return !b->bad && n_keys <= KVPI_UNIT_KEYS_MAX && read_keys(load, b, n_keys) &&
           !kvpi_any_negative(load->tokens, U);
}

/* Does a key of the unit begin before position 0? */
static int begins_before_all(const struct kvpi_unit *unit, const struct kvpi_node *parent,
                             uint32_t unit_tokens)
{
    const int64_t begin = (int64_t)parent->depth * unit_tokens;
    return unit->n_keys > 0 && begin + unit->keys[0].offset < 0;
}

/* The node of a unit whose record is whole, or why there is none. */
static uint32_t restore_node(struct load *load, uint32_t parent, const kvp_hash *saved,
                             const struct kvpi_unit *unit)
{
    kvp_cache *cache = load->cache;
    const struct kvpi_node *above = kvpi_node(&cache->prefix, parent);
    kvp_hash hash;
    uint32_t at;
    kvpi_hash_unit(&above->hash, unit->tokens, load->info.unit_tokens, unit->keys, unit->n_keys,
                   &hash);
    if (memcmp(&hash, saved, sizeof(hash)) != 0 ||
        begins_before_all(unit, above, load->info.unit_tokens) ||
        kvpi_prefix_find(&cache->prefix, parent, &hash, unit) != KVPI_NO_NODE) {
        return GONE + KVP_DROP_DAMAGED;
    }
    if (kvpi_is_uncached(cache, unit->tokens, load->info.unit_tokens, &at)) {
        return GONE + KVP_DROP_UNCACHED;
    }
    const uint32_t node =
        unit->n_keys > cache->config.max_unit_keys
            ? KVPI_NO_NODE
            : kvpi_prefix_add(&cache->prefix, parent, &hash, unit, KVPI_NODE_PUBLIC);
    return node == KVPI_NO_NODE ? GONE + KVP_DROP_NO_ROOM : node;
}

/* What a number stands for: a node, or why there is none. */
static uint32_t node_of(const struct load *load, uint32_t number)
{
    if (number > load->n_nodes && number <= load->info.n_nodes) {
        return GONE + KVP_DROP_NO_ROOM;
    }
    return number == 0 || number > load->n_nodes || load->nodes[number] == KVPI_NO_NODE
               ? GONE + KVP_DROP_DAMAGED
               : load->nodes[number];
}

static void load_node(struct load *load, struct kvpi_snap_bytes *b)
{
    const uint32_t number = kvpi_snap_get_u32(b);
    const uint32_t space = kvpi_snap_get_u32(b);
    const uint32_t above = kvpi_snap_get_u32(b);
    const uint8_t *saved = kvpi_snap_get(b, sizeof(kvp_hash));
    struct kvpi_unit unit;
    kvp_hash hash;
    if (number <= load->last_node || number > load->info.n_nodes || above >= number ||
        space >= load->info.n_namespaces || saved == NULL || !read_unit(load, b, &unit)) {
        load->report.damaged_records++;
        return;
    }
    memcpy(&hash, saved, sizeof(hash));
    load->last_node = number;
    if (number > load->n_nodes) {
        return;
    }
    const uint32_t root =
        load->spaces[space] == KVPI_NO_NODE ? GONE + KVP_DROP_DAMAGED : load->spaces[space];
    const uint32_t parent = root >= GONE || above == 0 ? root : node_of(load, above);
    if (parent >= GONE) {
        load->nodes[number] = parent; /* for the same reason */
    } else if (kvpi_node(&load->cache->prefix, parent)->root != root) {
        load->nodes[number] = GONE + KVP_DROP_DAMAGED;
    } else {
        load->nodes[number] = restore_node(load, parent, &hash, &unit);
    }
}

/* --------------------------------------------------------------------------------------- blocks */

/* A block record whose content agrees with the nodes: its parts into load->block. */
static int read_saved_block(struct load *load, struct kvpi_snap_bytes *b, uint32_t *out_reason)
{
    const struct kvpi_prefix *prefix = &load->cache->prefix;
    struct found *found = &load->block;
    found->saved_block = kvpi_snap_get_u32(b);
    const uint32_t packed = kvpi_snap_get_u32(b);
    found->node = node_of(load, kvpi_snap_get_u32(b));
    const uint32_t n_places = kvpi_snap_get_u32(b);
    found->at.tier = packed & 0xFF;
    found->at.group = packed >> 8 & 0xFF;
    found->class_ = packed >> 16;
    *out_reason = KVP_DROP_DAMAGED;
    if (b->bad || found->at.tier >= KVPI_TIERS || found->at.group >= load->info.n_groups ||
        found->class_ >= KVP_RETENTION_CLASSES || n_places == 0 ||
        n_places > prefix->units_per_block[found->at.group]) {
        return 0;
    }
    const uint8_t *mask = kvpi_snap_get(b, (n_places + 7) / 8);
    if (!kvpi_snap_whole(b) || (mask[(n_places - 1) / 8] >> (n_places - 1) % 8) != 1) {
        return 0;
    }
    memcpy(found->mask, mask, (n_places + 7) / 8);
    if (found->node >= GONE) {
        *out_reason = found->node - GONE;
        return 0;
    }
    found->at.n_tokens = n_places * prefix->unit_tokens;
    return kvpi_prefix_place(prefix, kvpi_node(prefix, found->node), found->at.group) + 1 ==
           n_places;
}

/* Call the block's nodes attached, or see whether they can be: 0 when one has another block. */
static int settle_units(struct load *load, int attach)
{
    const struct kvpi_prefix *prefix = &load->cache->prefix;
    struct found *found = &load->block;
    const uint32_t where = KVPI_WHERE(found->at.tier, found->at.group);
    uint32_t node = found->node;
    found->n_units = 0;
    for (uint32_t place = found->at.n_tokens / prefix->unit_tokens; place > 0; place--) {
        if (found->mask[(place - 1) / 8] >> (place - 1) % 8 & 1) {
            found->n_units++;
            if (attach) {
                kvpi_settle_unit(load->cache, where, node, (uint32_t)found->at.block);
            } else if (kvpi_node_at(prefix, node, where)->block != KVP_NULL_BLOCK) {
                return 0;
            }
        }
        node = kvpi_node(prefix, node)->parent;
    }
    return 1;
}

/* The block that it is to be in; 0: there is none. */
static uint32_t choose_block(const struct load *load, const struct kvpi_pool *pool,
                             uint32_t *out_reason)
{
    const struct found *found = &load->block;
    *out_reason = KVP_DROP_NO_ROOM;
    if (load->keeps_ids) {
        *out_reason = KVP_DROP_DAMAGED; /* two records for one block */
        const uint32_t block = found->saved_block < pool->n_blocks ? found->saved_block : 0;
        return block == 0 || kvpi_block(pool, block)->content != KVPI_NO_NODE ? 0 : block;
    }
    return pool->n_free == 0 ? 0 : kvpi_pool_victim(pool);
}

static void tell_block(struct load *load)
{
    const struct kvpi_prefix *prefix = &load->cache->prefix;
    const struct found *found = &load->block;
    const struct kvpi_node *node = kvpi_node(prefix, found->node);
    const uint32_t ns = *find_name(load, &kvpi_node(prefix, node->root)->hash) - 1;
    uint32_t before = found->node;
    const uint32_t n_units =
        found->at.group == load->info.n_groups ? 1 : found->at.n_tokens / prefix->unit_tokens;
    for (uint32_t i = 0; i < n_units; i++) {
        before = kvpi_node(prefix, before)->parent;
    }
    const kvp_snapshot_item item = {.kind = KVP_SNAPSHOT_BLOCK,
                                    .ns = ns,
                                    .block = found->at,
                                    .retention = found->class_,
                                    .n_units = found->n_units,
                                    .prefix_tokens = node->depth * prefix->unit_tokens,
                                    .hash = node->hash,
                                    .before = kvpi_node(prefix, before)->hash};
    load->options->tell(load->options->context, &item);
}

static void put_block(struct load *load)
{
    const struct found *found = &load->block;
    const uint32_t tier = found->at.tier;
    const uint32_t block = (uint32_t)found->at.block;
    uint32_t *first = &load->first[tier][found->class_];
    load->waits = 0;
    kvpi_pool_restore(kvpi_tier_pool(load->cache, tier), block, *first, found->class_,
                      found->at.group);
    kvpi_pool_restore_owner(
        kvpi_tier_pool(load->cache, tier), block,
        kvpi_space_with_root(load->cache, kvpi_node(&load->cache->prefix, found->node)->root));
    *first = block;
    (void)settle_units(load, 1);
    if (load->keeps_ids) {
        load->paths[block + (tier == KVP_HOST ? load->info.n_blocks : 0)] = found->node;
    }
    load->report.blocks++;
    load->report.units += found->n_units;
    if (load->options->tell != NULL) {
        tell_block(load);
    }
}

static void load_block(struct load *load, struct kvpi_snap_bytes *b)
{
    uint32_t reason;
    uint32_t no_room;
    if (!read_saved_block(load, b, &reason) || !settle_units(load, 0)) {
        drop_block(load, reason);
        return;
    }
    load->block.at.block =
        (int32_t)choose_block(load, kvpi_tier_pool(load->cache, load->block.at.tier), &no_room);
    if (load->block.at.block == KVP_NULL_BLOCK) {
        drop_block(load, no_room);
    } else if (load->info.block_bytes > 0) {
        load->waits = KVPI_SNAP_KV;
    } else {
        put_block(load);
    }
}

static void load_kv(struct load *load, struct kvpi_snap_bytes *b)
{
    const uint32_t block = kvpi_snap_get_u32(b);
    const uint32_t tier = kvpi_snap_get_u32(b);
    const uint8_t *bytes = kvpi_snap_get(b, (size_t)load->info.block_bytes);
    if (load->waits != KVPI_SNAP_KV) {
        return; /* its block was dropped */
    }
    if (kvpi_snap_whole(b) && block == load->block.saved_block && tier == load->block.at.tier &&
        load->options->put(load->options->context, &load->block.at, bytes) == 0) {
        put_block(load);
    }
}

/* ---------------------------------------------------------------------------------- checkpoints */

/* A checkpoint's record whose node is there, and can be hit: its parts into load->block. */
static int read_checkpoint(struct load *load, struct kvpi_snap_bytes *b, uint32_t *out_reason)
{
    struct found *found = &load->block;
    found->saved_block = kvpi_snap_get_u32(b);
    found->class_ = kvpi_snap_get_u32(b);
    found->node = node_of(load, kvpi_snap_get_u32(b));
    found->at.tier = KVP_DEVICE;
    found->at.group = load->info.n_groups;
    found->at.n_tokens = 1;
    found->n_units = 1;
    *out_reason = KVP_DROP_DAMAGED;
    if (!kvpi_snap_whole(b) || found->class_ >= KVP_RETENTION_CLASSES) {
        return 0;
    }
    if (found->node >= GONE) {
        *out_reason = found->node - GONE;
        return 0;
    }
    if (!kvpi_states_has_kv(load->cache, found->node)) {
        *out_reason =
            load->report.dropped_blocks[KVP_DROP_NO_ROOM] > 0 ? KVP_DROP_NO_ROOM : KVP_DROP_DAMAGED;
        return 0;
    }
    return kvpi_checkpoint_of(load->cache, found->node) == 0;
}

static void put_checkpoint(struct load *load)
{
    const struct found *found = &load->block;
    const uint32_t slot = (uint32_t)found->at.block;
    load->waits = 0;
    kvpi_pool_restore(&load->cache->states.pool, slot, load->first_slot[found->class_],
                      found->class_, 0);
    kvpi_pool_restore_owner(
        &load->cache->states.pool, slot,
        kvpi_space_with_root(load->cache, kvpi_node(&load->cache->prefix, found->node)->root));
    load->first_slot[found->class_] = slot;
    kvpi_states_attach(load->cache, found->node, slot);
    load->report.blocks++;
    load->report.units++;
    if (load->options->tell != NULL) {
        tell_block(load);
    }
}

static void load_checkpoint(struct load *load, struct kvpi_snap_bytes *b)
{
    uint32_t reason;
    if (!read_checkpoint(load, b, &reason)) {
        drop_block(load, reason);
        return;
    }
    load->block.at.block = (int32_t)choose_block(load, &load->cache->states.pool, &reason);
    if (load->block.at.block == KVP_NULL_BLOCK) {
        drop_block(load, reason);
    } else if (load->info.state_bytes > 0) {
        load->waits = KVPI_SNAP_STATE;
    } else {
        put_checkpoint(load);
    }
}

static void load_state(struct load *load, struct kvpi_snap_bytes *b)
{
    const uint32_t slot = kvpi_snap_get_u32(b);
    const uint8_t *bytes = kvpi_snap_get(b, (size_t)load->info.state_bytes);
    if (load->waits == KVPI_SNAP_STATE && kvpi_snap_whole(b) && slot == load->block.saved_block &&
        load->options->put(load->options->context, &load->block.at, bytes) == 0) {
        put_checkpoint(load);
    }
}

/* -------------------------------------------------------------------------- duplicates and free */

/* Is the node's unit, at its place, on the block's path, up or further down? Then the path reaches
 * as far as the deeper of the two. */
static int join_path(const struct kvpi_prefix *prefix, uint32_t where, uint32_t *path,
                     uint32_t index)
{
    uint32_t deep = *path;
    uint32_t high = index;
    if (kvpi_node(prefix, index)->depth > kvpi_node(prefix, *path)->depth) {
        deep = index;
        high = *path;
    }
    const uint32_t upb = prefix->units_per_block[KVPI_GROUP_OF(where)];
    const uint32_t deepest = deep;
    if ((kvpi_node(prefix, deep)->depth - 1) / upb != (kvpi_node(prefix, high)->depth - 1) / upb) {
        return 0;
    }
    while (kvpi_node(prefix, deep)->depth > kvpi_node(prefix, high)->depth) {
        deep = kvpi_node(prefix, deep)->parent;
    }
    if (deep != high) {
        return 0;
    }
    *path = deepest;
    return 1;
}

static void load_dups(struct load *load, struct kvpi_snap_bytes *b)
{
    const struct kvpi_prefix *prefix = &load->cache->prefix;
    const uint32_t node = node_of(load, kvpi_snap_get_u32(b));
    const uint32_t where = kvpi_snap_get_u32(b);
    if (b->bad || !load->keeps_ids || node >= GONE || where >= prefix->n_where ||
        prefix->has_dups != KVPI_DUPS_ALL) {
        return;
    }
    const struct kvpi_pool *pool = kvpi_tier_pool(load->cache, KVPI_TIER_OF(where));
    while (!b->bad && b->at < b->end) {
        const uint32_t block = kvpi_snap_get_u32(b);
        if (b->bad || block == 0 || block >= pool->n_blocks ||
            kvpi_block(pool, block)->content == KVPI_NO_NODE ||
            kvpi_where(load->cache, KVPI_TIER_OF(where), block) != where) {
            continue; /* dropped */
        }
        uint32_t *path =
            &load->paths[block + (KVPI_TIER_OF(where) == KVP_HOST ? load->info.n_blocks : 0)];
        if (join_path(prefix, where, path, node)) {
            kvpi_settle_unit(load->cache, where, node, block);
        }
    }
}

static void load_free(struct load *load, struct kvpi_snap_bytes *b)
{
    const uint32_t which = kvpi_snap_get_u32(b);
    if (b->bad || !load->keeps_ids || which > (KVPI_SNAP_SLOTS | KVP_HOST)) {
        return;
    }
    struct kvpi_pool *pool = kvpi_copy_pool(load->cache, which);
    while (!b->bad && b->at < b->end) {
        const uint32_t block = kvpi_snap_get_u32(b);
        if (!b->bad && block != 0 && block < pool->n_blocks &&
            kvpi_block(pool, block)->content == KVPI_NO_NODE) {
            kvpi_pool_first(pool, block);
        }
    }
}

/* What the policy knew is of that many blocks, by their ids. */
static void load_learned(struct load *load, struct kvpi_snap_bytes *b)
{
    if (load->keeps_ids && load->cache->pool.leaves.on) {
        kvpi_snap_load_learned(load->cache, &load->learned, b);
    }
}

static void end_learned(struct load *load)
{
    struct kvpi_pool *pool = &load->cache->pool;
    if (pool->leaves.on) {
        load->report.learned = (uint32_t)kvpi_snap_end_learned(load->cache, &load->learned);
        kvpi_leaves_restored(pool, (int)load->report.learned);
    }
    if (load->cache->host.leaves.on) {
        kvpi_leaves_restored(&load->cache->host, (int)load->report.learned);
    }
}

/* ------------------------------------------------------------------------------------ the whole */

/* A record that cannot be read: only its kind is known. */
static void load_damaged(struct load *load, uint32_t kind)
{
    load->report.damaged_records++;
    if (kind == KVPI_SNAP_SPACE) {
        load->report.dropped_namespaces[KVP_DROP_DAMAGED]++;
    } else if (kind == KVPI_SNAP_BLOCK ||
               (kind == KVPI_SNAP_CHECKPOINT && load->info.state_slots > 0)) {
        drop_block(load, KVP_DROP_DAMAGED);
    }
}

/* Take a record that is whole. */
static void load_whole(struct load *load, struct kvpi_snap_record *record)
{
    const uint32_t kind = record->kind;
    switch (kind) {
    case KVPI_SNAP_SPACE: load_space(load, &record->payload); return;
    case KVPI_SNAP_NODE: load_node(load, &record->payload); return;
    case KVPI_SNAP_BLOCK: load_block(load, &record->payload); return;
    case KVPI_SNAP_KV: load_kv(load, &record->payload); return;
    case KVPI_SNAP_DUPS: load_dups(load, &record->payload); return;
    case KVPI_SNAP_FREE: load_free(load, &record->payload); return;
    case KVPI_SNAP_LEARNED: load_learned(load, &record->payload); return;
    default: break;
    }
    if (load->info.state_slots > 0 && kind == KVPI_SNAP_CHECKPOINT) {
        load_checkpoint(load, &record->payload);
    } else if (load->info.state_slots > 0 && kind == KVPI_SNAP_STATE) {
        load_state(load, &record->payload);
    } else {
        load->report.complete = kind == KVPI_SNAP_END;
        load->report.damaged_records += kind != KVPI_SNAP_END;
    }
}

/* The block that waits gets no KV any more. */
static void drop_waiting(struct load *load)
{
    load->waits = 0;
    drop_block(load, KVP_DROP_KV);
}

static void load_record(struct load *load, struct kvpi_snap_record *record)
{
    if (load->waits != 0 && (record->kind != load->waits || record->damaged)) {
        drop_waiting(load);
    }
    if (record->damaged) {
        load_damaged(load, record->kind);
        return;
    }
    load_whole(load, record);
    if (load->waits != 0 && record->kind == load->waits) {
        drop_waiting(load); /* the bytes were not right */
    }
}

/* Take out nodes that nothing needs, the last first: what is above one was made before it. */
static void reap_nodes(struct load *load)
{
    for (uint32_t number = load->n_nodes; number > 0; number--) {
        const uint32_t node = load->nodes[number];
        if (node != KVPI_NO_NODE && node < GONE &&
            (kvpi_node(&load->cache->prefix, node)->flags & KVPI_NODE_PUBLIC) != 0) {
            kvpi_prefix_reap(&load->cache->prefix, node);
        }
    }
}

/* Records that were never seen. A forged file can have more than it says: then it said wrong. */
static void count_missing(struct load *load)
{
    kvp_snapshot_report *report = &load->report;
    const uint32_t reason = report->complete ? KVP_DROP_DAMAGED : KVP_DROP_CUT;
    uint64_t spaces = report->namespaces;
    uint64_t blocks = report->blocks;
    for (uint32_t i = 0; i < KVP_DROP_REASONS; i++) {
        spaces += report->dropped_namespaces[i];
        blocks += report->dropped_blocks[i];
    }
    report->saved_namespaces = spaces > load->info.n_namespaces ? spaces : load->info.n_namespaces;
    report->saved_blocks = blocks > load->info.saved_blocks ? blocks : load->info.saved_blocks;
    report->saved_units =
        report->units > load->info.saved_units ? report->units : load->info.saved_units;
    report->dropped_namespaces[reason] += report->saved_namespaces - spaces;
    report->dropped_blocks[reason] += report->saved_blocks - blocks;
    report->dropped_units = report->saved_units - report->units;
}

static void load_all(struct load *load)
{
    struct kvpi_snap_record record;
    load->cache->used = 1;
    kvpi_begin_change(load->cache);
    while (!load->report.complete && kvpi_snap_next(&load->reader, &record)) {
        load_record(load, &record);
    }
    if (load->waits != 0) {
        drop_waiting(load);
    }
    for (uint32_t b = 1; load->cache->keeps_once && b < load->cache->host.n_blocks; b++) {
        kvpi_give_up(load->cache, b);
    }
    reap_nodes(load);
    end_learned(load);
    count_missing(load);
}

static kvp_status check_info(struct load *load)
{
    const kvp_config *config = &load->cache->config;
    const kvp_snapshot_info *info = &load->info;
    const kvp_snapshot_options *options = load->options;
    load->keeps_ids = info->n_blocks == config->n_blocks &&
                      info->host_blocks == config->host_blocks &&
                      info->state_slots == config->state_slots;
    const int same =
        info->block_tokens == config->block_tokens && info->unit_tokens == config->unit_tokens &&
        info->n_groups == config->n_groups && info->hash_seed == config->hash_seed &&
        info->block_bytes == options->block_bytes && (info->block_bytes > 0 || load->keeps_ids) &&
        (info->state_slots > 0) == (config->state_slots > 0) &&
        (info->state_slots == 0 || info->state_bytes == options->state_bytes) &&
        info->model_bytes == options->model_bytes &&
        (info->model_bytes == 0 || memcmp(info->model, options->model, info->model_bytes) == 0) &&
        memcmp(info->groups, config->groups, info->n_groups * sizeof(info->groups[0])) == 0;
    return same ? KVP_OK : KVP_E_MISMATCH;
}

/* All scratch in one piece of memory. */
static int make_scratch(struct load *load)
{
    const uint64_t most = (uint64_t)NODES_TIMES * load->cache->config.n_nodes;
    const size_t n_paths =
        load->keeps_ids ? (size_t)load->info.n_blocks + load->info.host_blocks : 0;
    load->n_nodes = (uint32_t)(load->info.n_nodes < most ? load->info.n_nodes : most);
    for (load->n_names = 2; load->n_names < 2 * load->info.n_namespaces;) {
        load->n_names *= 2;
    }
    const size_t n_words = (size_t)load->info.n_namespaces + load->n_names + load->n_nodes + 2 +
                           n_paths + load->info.unit_tokens;
    const size_t keys_at = (n_words * sizeof(uint32_t) + 63) / 64 * 64;
    load->scratch_bytes = keys_at + KVPI_UNIT_KEYS_MAX * sizeof(struct kvpi_key);
    load->spaces = kvpi_map(load->scratch_bytes);
    if (load->spaces == NULL) {
        return 0;
    }
    load->names = load->spaces + load->info.n_namespaces;
    load->nodes = load->names + load->n_names;
    load->paths = load->nodes + load->n_nodes + 1;
    load->tokens = (int32_t *)(load->paths + n_paths);
    load->keys = kvpi_at(load->spaces, keys_at);
    return 1;
}

/* The configuration was read into a buffer of its own; the rest needs one for larger records. */
static kvp_status load_rest(struct load *load, kvp_snapshot_report *out_report)
{
    load->reader.capacity = kvpi_snap_capacity(&load->info);
    load->reader.buffer = kvpi_map(load->reader.capacity);
    if (load->reader.buffer == NULL) {
        return KVP_E_NO_MEMORY;
    }
    kvp_status status = KVP_E_NO_MEMORY;
    if (make_scratch(load)) {
        load_all(load);
        status = KVP_OK;
        if (out_report != NULL) {
            *out_report = load->report;
        }
        kvpi_unmap(load->spaces, load->scratch_bytes);
    }
    kvpi_unmap(load->reader.buffer, load->reader.capacity);
    return status;
}

kvp_status kvp_snapshot_load(kvp_cache *cache, const kvp_snapshot_options *options,
                             const kvp_source *source, kvp_snapshot_report *out_report)
{
    options = kvpi_sized(options, sizeof(*options));
    uint8_t buffer[KVPI_SNAP_OVERHEAD + KVPI_SNAP_CONFIG_MAX];
    kvp_status status = cache == NULL || source == NULL || source->read == NULL ||
                                kvpi_snap_options_bad(options) ||
                                (options->block_bytes > 0 && options->put == NULL)
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    struct load load = {.cache = cache, .options = options};
    load.reader = (struct kvpi_snap_reader){source, buffer, sizeof(buffer), 0, 0};
    if (kvpi_snap_bytes_bad(options, cache->config.state_slots)) {
        return kvpi_leave(cache, KVP_E_ARG);
    }
    if (cache->used || kvpi_recording(cache) || !cache->config.prefix_cache) {
        status = KVP_E_STATE;
    } else {
        status = kvpi_snap_open(&load.reader, &load.info);
        status = status == KVP_OK ? check_info(&load) : status;
        status = status == KVP_OK ? load_rest(&load, out_report) : status;
    }
    if (status != KVP_OK) {
        (void)kvpi_fail(cache, status, 0, 0);
    }
    return kvpi_leave(cache, status);
}
