/* snapshot_save: what is cached, written record by record. The other way: load.c.
 *
 * Works on a copy of the arena, which is a cache of its own: all sequences are closed there, so
 * that every block is free or stands in a queue, exactly where a close would have put it. Then the
 * queues are walked from what would be evicted last; each block brings the nodes that it needs and
 * that were not written yet, those before others first. Three walks: the first one only
 * counts, for the configuration's record, and numbers the nodes; the last one writes duplicates.
 *
 * In the copy, nodes that are no roots have neither user nor use for hints any more:
 *
 *   users   the node's number in the file, 1 ..; 0: not needed by any block so far
 *   jump    the node below, on the way that is written now
 *   MARKED  the hash was made again, because one that came from outside was wrong
 *
 * What cannot be reached from a live root through public nodes is left out.
 */
#include <kvpager/lend.h>

#include "core/cache/frame.h"
#include "core/cache/inflight.h"
#include "core/cache/state.h"
#include "core/cache/states.h"
#include "core/snapshot/frames.h"
#include "core/snapshot/snapshot_learned.h"

struct save {
    kvp_cache *copy;
    const kvp_snapshot_options *options;
    struct kvpi_snap_writer writer;
    enum { COUNT, WRITE, DUPS } walk; /* DUPS: no block is written, the buffer is the lists' */
    uint32_t n_nodes;
    uint64_t n_blocks;
    uint64_t n_units;
    int failed; /* get did */
};

/* No store reads a block of the copy: what is lent there is cached, and saved. None fills one: a
 * load uses a node, which may have other content that is saved. */
static void take_back(kvp_cache *copy)
{
    for (uint32_t place = 0; place < copy->lending.max_loads; place++) {
        const uint64_t number = kvpi_load_at(copy, place)->number;
        if (number != 0) {
            (void)kvp_load_cancel(copy, number);
        }
    }
    for (int32_t block = 1; copy->lending.n_reading > 0; block++) {
        while (kvpi_lent(copy, (uint32_t)block)->holds > 0) {
            (void)kvp_cache_give_back(copy, &block, 1);
        }
    }
}

static kvp_cache *copy_closed(const kvp_cache *cache)
{
    kvp_cache *copy = kvpi_map((size_t)cache->arena_bytes);
    if (copy == NULL) {
        return NULL;
    }
    memcpy(copy, cache, (size_t)cache->arena_bytes);
    copy->calls = 0;
    copy->mapped = 0;
    for (struct kvpi_seq *seq = NULL; (seq = kvpi_next_open(&copy->table, seq)) != NULL;) {
        const kvp_seq handle = kvpi_table_handle(&copy->table, seq, copy->recorder.cache_bits);
        (void)kvp_seq_close(copy, handle, NULL);
    }
    take_back(copy);
    return copy;
}

/* ---------------------------------------------------------------------------------------- nodes */

/* The number of the namespace whose root this is, counting open ones. */
static uint32_t space_of_node(const kvp_cache *cache, uint32_t root)
{
    const struct kvpi_space *spaces = kvpi_at(cache, cache->spaces_at);
    uint32_t n = 0;
    for (uint32_t place = 0; spaces[place].root != root || !(spaces[place].generation & 1);
         place++) {
        n += (uint32_t)(spaces[place].generation & 1);
    }
    return n;
}

/* A hash that came from outside may be wrong, and so those after it: write the right ones. */
static void correct_hash(const struct kvpi_prefix *prefix, uint32_t index)
{
    struct kvpi_node *node = kvpi_node(prefix, index);
    const struct kvpi_node *above = kvpi_node(prefix, node->parent);
    kvp_hash hash;
    if (((node->flags & KVPI_NODE_HASH_GIVEN) | (above->flags & KVPI_NODE_MARKED)) == 0) {
        return;
    }
    kvpi_hash_unit(&above->hash, kvpi_node_tokens(node), prefix->unit_tokens,
                   kvpi_node_keys(prefix, index), node->n_keys, &hash);
    if (memcmp(&hash, &node->hash, sizeof(hash)) != 0) {
        node->hash = hash;
        node->flags |= KVPI_NODE_MARKED;
    }
}

static void write_node(struct save *save, uint32_t index)
{
    const struct kvpi_prefix *prefix = &save->copy->prefix;
    const struct kvpi_node *node = kvpi_node(prefix, index);
    const struct kvpi_node *above = kvpi_node(prefix, node->parent);
    const struct kvpi_key *keys = kvpi_node_keys(prefix, index);
    struct kvpi_snap_bytes b = kvpi_snap_begin(&save->writer);
    correct_hash(prefix, index);
    kvpi_snap_put_u32(&b, node->users);
    kvpi_snap_put_u32(&b, space_of_node(save->copy, node->root));
    kvpi_snap_put_u32(&b, above->flags & KVPI_NODE_ROOT ? 0 : above->users);
    kvpi_snap_put(&b, node->hash.bytes, sizeof(node->hash.bytes));
    for (uint32_t i = 0; i < prefix->unit_tokens; i++) {
        kvpi_snap_put_u32(&b, (uint32_t)kvpi_node_tokens(node)[i]);
    }
    kvpi_snap_put_u32(&b, node->n_keys);
    for (uint32_t i = 0; i < node->n_keys; i++) {
        kvpi_snap_put_u32(&b, keys[i].type);
        kvpi_snap_put_u32(&b, (uint32_t)keys[i].offset);
        kvpi_snap_put_u32(&b, keys[i].n_bytes);
        kvpi_snap_put(&b, keys[i].bytes, keys[i].n_bytes);
    }
    kvpi_snap_end(&save->writer, KVPI_SNAP_NODE, &b);
}

/* Can the node be found? */
static int is_saved(const struct kvpi_prefix *prefix, uint32_t index)
{
    const struct kvpi_node *node = kvpi_node(prefix, index);
    while ((node->flags & KVPI_NODE_PUBLIC) != 0 && node->users == 0) {
        node = kvpi_node(prefix, node->parent);
    }
    /* A node with a number was found to be reachable before. */
    return node->flags & KVPI_NODE_ROOT ? (node->flags & KVPI_NODE_LIVE) != 0
                                        : (node->flags & KVPI_NODE_PUBLIC) != 0;
}

/* Number, or write, the nodes down to this one that were not yet. */
static void need_nodes(struct save *save, uint32_t index)
{
    const struct kvpi_prefix *prefix = &save->copy->prefix;
    uint32_t first = KVPI_NO_NODE;
    for (uint32_t i = index; !(kvpi_node(prefix, i)->flags & KVPI_NODE_ROOT);) {
        struct kvpi_node *node = kvpi_node(prefix, i);
        if (save->walk == COUNT ? node->users != 0 : node->users <= save->n_nodes) {
            break;
        }
        node->jump = first;
        first = i;
        i = node->parent;
    }
    while (first != KVPI_NO_NODE) {
        struct kvpi_node *node = kvpi_node(prefix, first);
        save->n_nodes++;
        if (save->walk == COUNT) {
            node->users = save->n_nodes;
        } else {
            write_node(save, first);
        }
        first = node->jump;
    }
}

/* --------------------------------------------------------------------------------------- blocks */

static void write_kv(struct save *save, const kvp_snapshot_block *block)
{
    struct kvpi_snap_bytes b = kvpi_snap_begin(&save->writer);
    kvpi_snap_put_u32(&b, (uint32_t)block->block);
    kvpi_snap_put_u32(&b, block->tier);
    if (save->failed || save->options->get(save->options->context, block, b.at) != 0) {
        save->failed = 1;
        return;
    }
    b.at += save->options->block_bytes;
    kvpi_snap_end(&save->writer, KVPI_SNAP_KV, &b);
}

/* Blocks with the same content as a node's, oldest first. */
static void save_dups(struct save *save, uint32_t index, uint32_t where)
{
    const struct kvpi_prefix *prefix = &save->copy->prefix;
    const struct kvpi_dup *dups = kvpi_prefix_dups(prefix);
    const uint32_t oldest = kvpi_node_at(prefix, index, where)->dups;
    const uint32_t before = KVPI_TIER_OF(where) == KVP_HOST ? prefix->n_blocks : 0;
    uint32_t slot = oldest;
    while (slot != 0) {
        struct kvpi_snap_bytes b = kvpi_snap_begin(&save->writer);
        uint32_t n = 0;
        kvpi_snap_put_u32(&b, kvpi_node(prefix, index)->users);
        kvpi_snap_put_u32(&b, where);
        for (; slot != 0 && n < KVPI_SNAP_FREE_IDS; n++) {
            kvpi_snap_put_u32(&b, slot / prefix->block_slots - before);
            slot = dups[slot].next == oldest ? 0 : dups[slot].next;
        }
        kvpi_snap_end(&save->writer, KVPI_SNAP_DUPS, &b);
    }
}

/* Write a block whose deepest unit that can be found is this one's. */
static void write_block(struct save *save, uint32_t tier, uint32_t block, uint32_t deepest)
{
    const struct kvpi_prefix *prefix = &save->copy->prefix;
    const struct kvpi_block *b = kvpi_block(kvpi_tier_pool(save->copy, tier), block);
    const uint32_t where = kvpi_where(save->copy, tier, block);
    const uint32_t n_places =
        kvpi_prefix_place(prefix, kvpi_node(prefix, deepest), kvpi_block_group(b)) + 1;
    struct kvpi_snap_bytes out = kvpi_snap_begin(&save->writer);
    uint8_t *mask = out.at + 16;
    memset(mask, 0, (n_places + 7) / 8);
    uint32_t node = deepest;
    for (uint32_t place = n_places; place > 0; place--) {
        if (kvpi_node_at(prefix, node, where)->block == block) {
            mask[(place - 1) / 8] |= (uint8_t)(1u << (place - 1) % 8);
            save->n_units++;
            if (save->walk == DUPS) {
                save_dups(save, node, where);
            }
        }
        node = kvpi_node(prefix, node)->parent;
    }
    save->n_blocks++;
    if (save->walk != WRITE) {
        return;
    }
    kvpi_snap_put_u32(&out, block);
    kvpi_snap_put_u32(&out, tier | kvpi_block_group(b) << 8 | kvpi_block_class(b) << 16);
    kvpi_snap_put_u32(&out, kvpi_node(prefix, deepest)->users);
    kvpi_snap_put_u32(&out, n_places);
    out.at += (n_places + 7) / 8;
    kvpi_snap_end(&save->writer, KVPI_SNAP_BLOCK, &out);
    if (save->options->block_bytes > 0) {
        const kvp_snapshot_block kv = {tier, kvpi_block_group(b), (int32_t)block,
                                       n_places * prefix->unit_tokens};
        write_kv(save, &kv);
    }
}

/* A block of a queue, if anything in it can be hit. */
static void save_block(struct save *save, uint32_t tier, uint32_t block)
{
    const struct kvpi_prefix *prefix = &save->copy->prefix;
    const uint32_t where = kvpi_where(save->copy, tier, block);
    uint32_t node = kvpi_block(kvpi_tier_pool(save->copy, tier), block)->content;
    while (node != KVPI_NO_NODE &&
           (kvpi_node_at(prefix, node, where)->block != block || !is_saved(prefix, node))) {
        const struct kvpi_node *n = kvpi_node(prefix, node);
        node = kvpi_prefix_place(prefix, n, KVPI_GROUP_OF(where)) == 0 ? KVPI_NO_NODE : n->parent;
    }
    if (node != KVPI_NO_NODE) {
        if (save->walk != DUPS) {
            need_nodes(save, node);
        }
        write_block(save, tier, block, node);
    }
}

static void save_device_block(struct save *save, uint32_t block)
{
    save_block(save, KVP_DEVICE, block);
}

static void save_host_block(struct save *save, uint32_t block)
{
    save_block(save, KVP_HOST, block);
}

static void write_state(struct save *save, uint32_t slot)
{
    const kvp_snapshot_block state = {KVP_DEVICE, save->copy->config.n_groups, (int32_t)slot, 1};
    struct kvpi_snap_bytes b = kvpi_snap_begin(&save->writer);
    kvpi_snap_put_u32(&b, slot);
    if (save->failed || save->options->get(save->options->context, &state, b.at) != 0) {
        save->failed = 1;
        return;
    }
    b.at += save->options->state_bytes;
    kvpi_snap_end(&save->writer, KVPI_SNAP_STATE, &b);
}

/* A checkpoint, if it can be hit. */
static void save_slot(struct save *save, uint32_t slot)
{
    const struct kvpi_prefix *prefix = &save->copy->prefix;
    const struct kvpi_block *b = kvpi_block(&save->copy->states.pool, slot);
    const uint32_t node = b->content;
    if (node == KVPI_NO_NODE || !is_saved(prefix, node) || !kvpi_states_has_kv(save->copy, node)) {
        return;
    }
    save->n_blocks++;
    save->n_units++;
    need_nodes(save, node);
    if (save->walk != WRITE) {
        return;
    }
    struct kvpi_snap_bytes out = kvpi_snap_begin(&save->writer);
    kvpi_snap_put_u32(&out, slot);
    kvpi_snap_put_u32(&out, kvpi_block_class(b));
    kvpi_snap_put_u32(&out, kvpi_node(prefix, node)->users);
    kvpi_snap_end(&save->writer, KVPI_SNAP_CHECKPOINT, &out);
    if (save->options->block_bytes > 0) {
        write_state(save, slot);
    }
}

static void save_queues(struct save *save, const struct kvpi_pool *pool,
                        void (*save_one)(struct save *save, uint32_t block))
{
    const struct kvpi_block *blocks = kvpi_blocks(pool);
    for (uint32_t c = pool->n_blocks == 0 ? 0 : KVP_RETENTION_CLASSES; c > 0; c--) {
        const uint32_t sentinel = pool->n_blocks + c - 1;
        for (uint32_t b = blocks[sentinel].prev; b != sentinel; b = blocks[b].prev) {
            save_one(save, b);
        }
    }
}

static void save_blocks(struct save *save)
{
    save->n_nodes = 0;
    save->n_blocks = 0;
    save->n_units = 0;
    save_queues(save, &save->copy->pool, save_device_block);
    save_queues(save, &save->copy->host, save_host_block);
    if (save->walk != DUPS) {
        save_queues(save, &save->copy->states.pool, save_slot);
    }
}

/* --------------------------------------------------------------------------------- what is left */

/* Free blocks, the one that is taken first last: each is to be put before all others. */
static void save_free(struct save *save, const struct kvpi_pool *pool, uint32_t which)
{
    const struct kvpi_block *blocks = kvpi_blocks(pool);
    uint64_t left = pool->n_free;
    uint32_t block = pool->n_blocks; /* class 0's sentinel */
    for (uint64_t i = 0; i < left; i++) {
        block = blocks[block].next; /* free ones stand before all others */
    }
    while (left > 0) {
        struct kvpi_snap_bytes b = kvpi_snap_begin(&save->writer);
        kvpi_snap_put_u32(&b, which);
        for (uint32_t n = 0; n < KVPI_SNAP_FREE_IDS && left > 0; n++, left--) {
            kvpi_snap_put_u32(&b, block);
            block = blocks[block].prev;
        }
        kvpi_snap_end(&save->writer, KVPI_SNAP_FREE, &b);
    }
}

static void save_spaces(struct save *save)
{
    const struct kvpi_space *spaces = kvpi_at(save->copy, save->copy->spaces_at);
    uint32_t n = 0;
    for (uint32_t place = 0; place < save->copy->config.max_namespaces; place++) {
        if (spaces[place].generation & 1) {
            struct kvpi_snap_bytes b = kvpi_snap_begin(&save->writer);
            kvpi_snap_put_u32(&b, n++);
            kvpi_snap_put_u32(&b, spaces[place].name_bytes);
            kvpi_snap_put(&b, spaces[place].name, spaces[place].name_bytes);
            kvpi_snap_end(&save->writer, KVPI_SNAP_SPACE, &b);
        }
    }
}

static kvp_snapshot_info info_of(const kvp_cache *cache, const kvp_snapshot_options *options)
{
    kvp_snapshot_info info = {
        .block_tokens = cache->config.block_tokens,
        .unit_tokens = cache->config.unit_tokens,
        .n_blocks = cache->config.n_blocks,
        .host_blocks = cache->config.host_blocks,
        .n_groups = cache->config.n_groups,
        .max_unit_keys = cache->config.max_unit_keys,
        .commit_policy = cache->config.commit_policy,
        .steps = cache->config.steps,
        .hash_seed = cache->config.hash_seed,
        .block_bytes = options->block_bytes,
        .n_namespaces = cache->n_open_spaces,
        .model_bytes = options->model_bytes,
        .state_slots = cache->config.state_slots,
        .state_bytes = cache->config.state_slots > 0 ? options->state_bytes : 0,
    };
    memcpy(info.groups, cache->config.groups, sizeof(info.groups));
    if (options->model_bytes > 0) {
        memcpy(info.model, options->model, options->model_bytes);
    }
    return info;
}

static void save_all(struct save *save, kvp_snapshot_info *info)
{
    save->walk = COUNT;
    save_blocks(save);
    save->walk = WRITE;
    info->n_nodes = save->n_nodes;
    info->saved_blocks = save->n_blocks;
    info->saved_units = save->n_units;
    const kvp_sink *sink = save->writer.sink;
    save->writer.failed = sink->write(sink->context, KVPI_SNAP_MAGIC, 8) != 0;
    struct kvpi_snap_bytes b = kvpi_snap_begin(&save->writer);
    kvpi_snap_put_config(&b, info);
    kvpi_snap_end(&save->writer, KVPI_SNAP_CONFIG, &b);
    save_spaces(save);
    save_blocks(save);
    save->walk = DUPS;
    save_blocks(save);
    save_free(save, &save->copy->pool, KVP_DEVICE);
    save_free(save, &save->copy->host, KVP_HOST);
    save_free(save, &save->copy->states.pool, KVPI_SNAP_SLOTS);
    save_free(save, &save->copy->states.host, KVPI_SNAP_SLOTS | KVP_HOST);
    kvpi_snap_save_learned(save->copy, &save->writer);
    b = kvpi_snap_begin(&save->writer);
    kvpi_snap_end(&save->writer, KVPI_SNAP_END, &b);
}

static kvp_status save_copy(const kvp_cache *cache, const kvp_snapshot_options *options,
                            const kvp_sink *sink)
{
    kvp_snapshot_info info = info_of(cache, options);
    struct save save = {.options = options};
    save.writer.sink = sink;
    save.writer.capacity = kvpi_snap_capacity(&info);
    save.copy = copy_closed(cache);
    if (save.copy == NULL) {
        return KVP_E_NO_MEMORY;
    }
    kvp_status status = KVP_E_NO_MEMORY;
    save.writer.buffer = kvpi_map(save.writer.capacity);
    if (save.writer.buffer != NULL) {
        save_all(&save, &info);
        status = save.failed || save.writer.failed ? KVP_E_IO : KVP_OK;
        kvpi_unmap(save.writer.buffer, save.writer.capacity);
    }
    kvpi_unmap(save.copy, (size_t)cache->arena_bytes);
    return status;
}

kvp_status kvp_snapshot_save(kvp_cache *cache, const kvp_snapshot_options *options,
                             const kvp_sink *sink)
{
    options = kvpi_sized(options, sizeof(*options));
    kvp_status status = cache == NULL || sink == NULL || sink->write == NULL ||
                                kvpi_snap_options_bad(options) ||
                                (options->block_bytes > 0 && options->get == NULL)
                            ? KVP_E_ARG
                            : kvpi_enter(cache);
    if (status != KVP_OK) {
        return status;
    }
    if (kvpi_snap_bytes_bad(options, cache->config.state_slots)) {
        status = KVP_E_ARG;
    } else if (cache->plan.n + cache->plan.n_out + kvpi_steps_out(cache) > 0) {
        status = KVP_E_STATE;
    } else {
        status = save_copy(cache, options, sink);
    }
    return kvpi_leave(cache, status);
}
