/* Nodes: what KV is of.
 *
 * A node lives while a sequence's chain contains it, a block is attached or will be when a step
 * takes effect, or a child lives; a root while its namespace, a sequence or a child does.
 */
#include "oracle_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------------- keys */

/* Add the key of a sequence to those of one unit it touches; false when that are too many. */
bool oracle_keys_put(oracle_keys *keys, uint32_t limit, const kvp_key *key, uint32_t unit_begin)
{
    oracle_key *item;

    if (keys->n == limit)
        return false;
    keys->items = oracle_grow(keys->items, &keys->capacity, keys->n + 1u, sizeof *keys->items);
    item = &keys->items[keys->n++];
    memset(item, 0, sizeof *item);
    item->type = key->type;
    item->offset = (int32_t)((int64_t)key->begin - (int64_t)unit_begin);
    item->n_bytes = key->n_bytes;
    if (key->n_bytes)
        memcpy(item->bytes, key->bytes, key->n_bytes);
    return true;
}

void oracle_keys_free(oracle_keys *keys)
{
    free(keys->items);
    *keys = (oracle_keys){0};
}

/* Copy those keys that begin below an offset. */
void oracle_keys_copy(oracle_keys *to, const oracle_keys *from, int64_t below_offset)
{
    uint32_t n = 0;

    to->items = oracle_grow(to->items, &to->capacity, from->n, sizeof *to->items);
    for (uint32_t i = 0; i < from->n; i++)
        if (from->items[i].offset < below_offset)
            to->items[n++] = from->items[i];
    to->n = n;
}

static bool keys_equal(const oracle_keys *a, const oracle_keys *b)
{
    return a->n == b->n && (!a->n || memcmp(a->items, b->items, a->n * sizeof *a->items) == 0);
}

/* The hash of a unit after its parent: the one thing that the library is asked for. */
void oracle_unit_hash(const oracle *o, uint32_t parent, const int32_t *tokens,
                      const oracle_keys *keys, kvp_hash *out_hash)
{
    kvp_key list[64];
    kvp_hash_input input = {0};
    const oracle_node *above = &o->nodes[parent];
    uint32_t begin = (above->is_root ? 0 : above->depth + 1) * o->unit;

    for (uint32_t i = 0; i < keys->n; i++) {
        list[i].type = keys->items[i].type;
        list[i].begin = (uint32_t)((int64_t)begin + keys->items[i].offset);
        list[i].end = begin + o->unit;
        list[i].n_bytes = keys->items[i].n_bytes;
        list[i].bytes = keys->items[i].bytes;
    }
    input.unit_tokens = o->unit;
    input.n_tokens = o->unit;
    input.tokens = tokens;
    input.first_position = begin;
    input.n_keys = keys->n;
    input.keys = keys->n ? list : NULL;
    if (kvp_hash_units(&input, &above->hash, out_hash) != KVP_OK) {
        fprintf(stderr, "kvp_model: kvp_hash_units refused a unit\n");
        exit(2);
    }
}

/* ---------------------------------------------------------------------------------------- nodes */

static uint32_t new_entry(oracle *o)
{
    uint32_t i = o->free_node;
    oracle_node *node;

    if (i != ORACLE_NONE) {
        o->free_node = o->nodes[i].sibling;
    } else {
        o->nodes = oracle_grow(o->nodes, &o->nodes_capacity, o->n_nodes + 1u, sizeof *o->nodes);
        i = o->n_nodes++;
        memset(&o->nodes[i], 0, sizeof o->nodes[i]);
    }
    node = &o->nodes[i];
    node->used = true;
    node->is_root = node->is_private = node->has_ns = node->cut = false;
    node->users = node->children = node->in_flight = 0;
    node->first_child = node->sibling = ORACLE_NONE;
    for (uint32_t g = 0; g < KVP_GROUPS_MAX; g++) {
        for (uint32_t tier = 0; tier < ORACLE_TIERS; tier++) {
            node->at[g][tier].block = 0;
            node->at[g][tier].n_duplicates = 0;
        }
    }
    o->nodes_used++;
    return i;
}

uint32_t oracle_root_make(oracle *o, const uint8_t *name, uint32_t name_bytes)
{
    uint32_t i = new_entry(o);

    o->nodes[i].is_root = o->nodes[i].has_ns = true;
    o->nodes[i].parent = o->nodes[i].root = i;
    o->nodes[i].depth = 0;
    o->nodes[i].keys.n = 0;
    if (kvp_hash_root(o->unit, o->config.hash_seed, name_bytes ? name : NULL, name_bytes,
                      &o->nodes[i].hash) != KVP_OK) {
        fprintf(stderr, "kvp_model: kvp_hash_root refused a name\n");
        exit(2);
    }
    return i;
}

/* The public child with these tokens and keys. No hash takes part. */
uint32_t oracle_node_find(const oracle *o, uint32_t parent, const int32_t *tokens,
                          const oracle_keys *keys)
{
    for (uint32_t i = o->nodes[parent].first_child; i != ORACLE_NONE; i = o->nodes[i].sibling) {
        const oracle_node *node = &o->nodes[i];

        if (!node->is_private && memcmp(node->tokens, tokens, o->unit * sizeof *tokens) == 0 &&
            keys_equal(&node->keys, keys))
            return i;
    }
    return ORACLE_NONE;
}

/* Is there a public child with these tokens, whatever its keys? */
bool oracle_has_tokens(const oracle *o, uint32_t parent, const int32_t *tokens)
{
    for (uint32_t i = o->nodes[parent].first_child; i != ORACLE_NONE; i = o->nodes[i].sibling) {
        const oracle_node *node = &o->nodes[i];

        if (!node->is_private && memcmp(node->tokens, tokens, o->unit * sizeof *tokens) == 0)
            return true;
    }
    return false;
}

/* Make a child without users; ORACLE_NONE when all nodes are in use. */
uint32_t oracle_node_make(oracle *o, uint32_t parent, const int32_t *tokens,
                          const oracle_keys *keys, const kvp_hash *hash)
{
    uint32_t i;
    oracle_node *node;

    if (o->nodes_used >= o->node_limit)
        return ORACLE_NONE;
    i = new_entry(o);
    node = &o->nodes[i];
    node->parent = parent;
    node->root = o->nodes[parent].root;
    node->depth = o->nodes[parent].is_root ? 0 : o->nodes[parent].depth + 1;
    node->hash = *hash;
    if (!node->tokens)
        node->tokens = oracle_allocate(o->unit, sizeof *node->tokens);
    memcpy(node->tokens, tokens, o->unit * sizeof *tokens);
    oracle_keys_copy(&node->keys, keys, INT64_MAX);
    node->sibling = o->nodes[parent].first_child;
    o->nodes[parent].first_child = i;
    o->nodes[parent].children++;
    return i;
}

static void unlink_child(oracle *o, uint32_t i)
{
    oracle_node *parent = &o->nodes[o->nodes[i].parent];
    uint32_t *link = &parent->first_child;

    while (*link != i)
        link = &o->nodes[*link].sibling;
    *link = o->nodes[i].sibling;
    parent->children--;
}

static bool has_block(const oracle_node *node)
{
    for (uint32_t g = 0; g < KVP_GROUPS_MAX; g++)
        if (node->at[g][KVP_DEVICE].block || node->at[g][KVP_HOST].block)
            return true;
    return false;
}

/* Let the node go if nothing needs it any more, and then its parent likewise. */
void oracle_node_prune(oracle *o, uint32_t i)
{
    for (;;) {
        oracle_node *node = &o->nodes[i];
        uint32_t parent = node->parent;

        if (!node->used || node->users || node->children || node->has_ns || node->in_flight ||
            has_block(node))
            return;
        if (!node->is_root)
            unlink_child(o, i);
        node->used = false;
        node->sibling = o->free_node;
        o->free_node = i;
        o->nodes_used--;
        if (node->is_root)
            return;
        i = parent;
    }
}
