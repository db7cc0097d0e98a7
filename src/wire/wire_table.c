/* wire_table: the table that sender and mirror have in common, their sizes, and the checksum.
 *
 *   seqs     [max_seqs]                             counts of each worker id
 *   rows     [max_seqs, n_groups, max_row_blocks]   a row has its place for good: none ever moves
 *   windows  [max_seqs, n_groups]
 *   nodes    [max_seqs, 2, max_tree_tokens]         of its tree: values, parents
 *   writes   [max_seqs, KVP_STATE_RING_MAX]         slots of state in the order of tokens
 *
 * T1  seqs[i].status is 0 exactly while no sequence has the id i; n_seqs counts the others. Then
 *     its windows are {0, 0}: none, which is what a new sequence has until others are told.
 * T2  seqs[i].grains <= max_grains, seqs[i].nodes <= max_tree_tokens.
 * T3  seqs[i].grains ends where the first row does. With blocks of one size a grain is a block:
 *
 *       S = 4       |.......|.......|.......|.......|     13 tokens: rows of 4 and of 3 blocks.
 *       S = 6       |...........|...........|..........   They have room for 16, which are
 *       grain = 2   |...|...|...|...|...|...|...|...|     8 grains.
 *
 * T4  A ring has fewer slots than there are tokens that are not computed. They and the slot to
 *     write are not 0, and each is another one.
 */
#include "wire/wire_table.h"

#include <stdlib.h>
#include <string.h>

#include "wire/wire_bytes.h"
#include "base/aligned.h"
#include "base/sized.h"
#include "base/why.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { ALIGN = 64 };

void kvp_wire_config_init(kvp_wire_config *config)
{
    if (config == NULL)
        return;
    *config = (kvp_wire_config){
        .struct_size = sizeof *config,
        .block_tokens = 16,
        .n_blocks = 1024,
        .max_seqs = 256,
        .max_row_blocks = 2048,
        .max_step_tokens = 256 + 4 * 32768,
        .max_copies = 320,
        .epoch = 1,
        .n_groups = 1,
    };
}

static uint32_t smallest_block(const kvp_wire_config *config)
{
    uint32_t S = kvpi_wire_block_tokens(config, 0);
    for (uint32_t group = 1; group < config->n_groups; group++)
        S = kvpi_wire_least(S, kvpi_wire_block_tokens(config, group));
    return S;
}

/* Each moves to a slot of its own, so there are no more of them than slots. */
static uint32_t most_moves(const kvp_config *config, uint32_t S)
{
    uint64_t n_nodes = (uint64_t)config->max_seqs * config->max_tree_tokens;
    uint64_t n_slots = (uint64_t)config->n_blocks * S;
    uint64_t n = n_nodes < n_slots ? n_nodes : n_slots;
    return n <= INT32_MAX ? (uint32_t)n : INT32_MAX;
}

kvp_status kvp_wire_config_of(const kvp_cache *cache, kvp_wire_config *out_config)
{
    kvp_config config;
    if (out_config == NULL)
        return KVP_E_ARG;
    kvp_status status = kvp_cache_config_get(cache, &config);
    if (status != KVP_OK)
        return status;
    uint64_t step_tokens = config.max_seqs + 4 * (uint64_t)config.max_seq_tokens;
    kvp_wire_config_init(out_config);
    out_config->block_tokens = config.block_tokens;
    out_config->n_blocks = config.n_blocks;
    out_config->host_blocks = config.host_blocks;
    out_config->max_seqs = config.max_seqs;
    out_config->n_groups = config.n_groups;
    for (uint32_t group = 0; group < config.n_groups; group++) {
        const uint32_t S = config.groups[group].block_tokens;
        out_config->group_tokens[group] = S != config.block_tokens ? S : 0;
    }
    const uint32_t least = smallest_block(out_config);
    out_config->max_row_blocks = (uint32_t)kvp_blocks_for_tokens(least, config.max_seq_tokens);
    out_config->max_step_tokens = step_tokens <= INT32_MAX ? (uint32_t)step_tokens : INT32_MAX;
    out_config->max_copies = config.max_copies;
    out_config->max_tree_tokens = config.max_tree_tokens;
    out_config->max_moves = most_moves(&config, least);
    out_config->state_slots = config.state_slots;
    out_config->host_state_slots = config.host_state_slots;
    return KVP_OK;
}

static int wire_groups_wrong(const kvp_wire_config *c, kvp_why *why)
{
    if (kvpi_why_range(why, "n_groups", c->n_groups, 1, KVP_GROUPS_MAX))
        return 1;
    for (uint32_t group = 0; group < c->n_groups; group++) {
        if (kvpi_why_element(why, "group_tokens", group, "", c->group_tokens[group], 0,
                             KVP_BLOCK_TOKENS_MAX))
            return 1;
    }
    return 0;
}

static int wire_wrong(const kvp_wire_config *c, kvp_why *why)
{
    return kvpi_why_range(why, "block_tokens", c->block_tokens, 1, KVP_BLOCK_TOKENS_MAX) ||
           kvpi_why_range(why, "n_blocks", c->n_blocks, 2, INT32_MAX) ||
           kvpi_why_range(why, "host_blocks", c->host_blocks, 0, INT32_MAX) ||
           kvpi_why_range(why, "max_seqs", c->max_seqs, 1, KVP_WIRE_MAX_SEQS) ||
           kvpi_why_range(why, "max_row_blocks", c->max_row_blocks, 1, INT32_MAX) ||
           kvpi_why_range(why, "max_step_tokens", c->max_step_tokens, 0, INT32_MAX) ||
           kvpi_why_range(why, "max_copies", c->max_copies, 0, INT32_MAX) ||
           kvpi_why_range(why, "epoch", c->epoch, 1, UINT64_MAX) || wire_groups_wrong(c, why) ||
           kvpi_why_range(why, "max_tree_tokens", c->max_tree_tokens, 0, KVP_TREE_TOKENS_MAX) ||
           kvpi_why_range(why, "max_moves", c->max_moves, 0, INT32_MAX) ||
           kvpi_why_range(why, "state_slots", c->state_slots, 0, INT32_MAX) ||
           kvpi_why_range(why, "host_state_slots", c->host_state_slots, 0, INT32_MAX) ||
           kvpi_why_range(why, "reserved", c->reserved, 0, 0);
}

int kvpi_wire_config_is_valid(const kvp_wire_config *config)
{
    return config != NULL && !wire_wrong(config, NULL);
}

kvp_status kvp_wire_config_check(const kvp_wire_config *config, kvp_why *out_why)
{
    const kvp_wire_config *known = kvpi_sized(config, sizeof(*config));
    kvpi_why_clear(out_why);
    return kvpi_why_missing(out_why, config, known, "config") || wire_wrong(known, out_why)
               ? KVP_E_ARG
               : KVP_OK;
}

int kvpi_wire_is_block(const kvp_wire_config *config, uint32_t group, uint32_t tier, int32_t block)
{
    const uint32_t n[][2] = {{config->n_blocks, config->host_blocks},
                             {config->state_slots, config->host_state_slots}};
    return group <= config->n_groups && tier <= KVP_HOST && block >= 0 &&
           (uint32_t)block < n[group == config->n_groups][tier];
}

size_t kvpi_wire_layout_take(struct kvpi_wire_layout *layout, uint64_t n, size_t size)
{
    size_t offset = layout->bytes;
    if (layout->overflow || n > (SIZE_MAX - ALIGN) / size || n * size + ALIGN > SIZE_MAX - offset) {
        layout->overflow = 1;
        return 0;
    }
    layout->bytes = (offset + (size_t)n * size + ALIGN - 1) / ALIGN * ALIGN;
    return offset;
}

kvp_status kvpi_wire_memory(void **memory, size_t memory_bytes, size_t bytes, uint32_t *out_owned)
{
    *out_owned = 0;
    if (*memory != NULL) {
        if ((uintptr_t)*memory % ALIGN != 0)
            return KVP_E_ARG;
        return memory_bytes < bytes ? KVP_E_TOO_SMALL : KVP_OK;
    }
    *memory = kvpi_aligned_take(ALIGN, bytes);
    *out_owned = *memory != NULL;
    return *memory != NULL ? KVP_OK : KVP_E_NO_MEMORY;
}

struct kvpi_wire_table_places kvpi_wire_table_plan(struct kvpi_wire_layout *layout,
                                                   const kvp_wire_config *config)
{
    struct kvpi_wire_table_places places;
    const uint64_t n = config->max_seqs;
    places.seqs = kvpi_wire_layout_take(layout, n, sizeof(struct kvpi_wire_seq));
    places.rows = kvpi_wire_layout_take(layout, n * config->n_groups * config->max_row_blocks,
                                        sizeof(int32_t));
    places.windows = kvpi_wire_layout_take(layout, n * config->n_groups, sizeof(kvp_window));
    places.nodes = kvpi_wire_layout_take(layout, n * 2 * config->max_tree_tokens, sizeof(int32_t));
    places.writes = kvpi_wire_layout_take(
        layout, config->state_slots > 0 ? n * KVP_STATE_RING_MAX : 0, sizeof(int32_t));
    return places;
}

void kvpi_wire_table_init(struct kvpi_wire_table *table, const kvp_wire_config *config,
                          void *memory, struct kvpi_wire_table_places places)
{
    table->max_seqs = config->max_seqs;
    table->max_row_blocks = config->max_row_blocks;
    table->grain = 0;
    table->sizes = 0;
    for (uint32_t group = 0; group < config->n_groups; group++) {
        const uint32_t block_tokens = kvpi_wire_block_tokens(config, group);
        table->block_tokens[group] = block_tokens;
        table->grain = kvpi_wire_common(block_tokens, table->grain);
        if (block_tokens != table->block_tokens[0])
            table->sizes = KVPI_WIRE_SIZES;
    }
    const uint32_t S = smallest_block(config);
    const uint64_t most = (uint64_t)config->max_row_blocks * (S / table->grain);
    const uint32_t all = INT32_MAX / table->grain + 1; /* of as many tokens as there can be */
    table->max_grains = most < all ? (uint32_t)most : all;
    table->seqs = (struct kvpi_wire_seq *)(void *)((char *)memory + places.seqs);
    table->n_groups = config->n_groups;
    table->max_nodes = config->max_tree_tokens;
    table->rows = (int32_t *)(void *)((char *)memory + places.rows);
    table->windows = (kvp_window *)(void *)((char *)memory + places.windows);
    table->nodes = (int32_t *)(void *)((char *)memory + places.nodes);
    table->writes = (int32_t *)(void *)((char *)memory + places.writes);
    kvpi_wire_table_clear(table);
}

void kvpi_wire_table_clear(struct kvpi_wire_table *table)
{
    memset(table->seqs, 0, table->max_seqs * sizeof *table->seqs);
    memset(table->windows, 0, (size_t)table->max_seqs * table->n_groups * sizeof *table->windows);
    table->n_seqs = 0;
}

void kvpi_wire_table_remove(struct kvpi_wire_table *table, uint32_t id)
{
    table->seqs[id] = (struct kvpi_wire_seq){0};
    memset(kvpi_wire_windows(table, id), 0, table->n_groups * sizeof *table->windows);
    table->n_seqs--;
}

uint64_t kvpi_wire_grains(const struct kvpi_wire_table *table, uint64_t n_tokens)
{
    uint64_t end = UINT64_MAX;
    for (uint32_t group = 0; group < table->n_groups; group++) {
        const uint32_t S = table->block_tokens[group];
        const uint64_t end_of_row = (n_tokens + S - 1) / S * S;
        end = end_of_row < end ? end_of_row : end;
    }
    return end / table->grain;
}

static uint64_t digest_of_seq(const struct kvpi_wire_table *table, uint32_t id, uint64_t digest)
{
    const struct kvpi_wire_seq *seq = &table->seqs[id];
    digest = XXH3_64bits_withSeed(seq, sizeof *seq, digest ^ id);
    for (uint32_t group = 0; group < table->n_groups; group++)
        digest = XXH3_64bits_withSeed(
            kvpi_wire_row(table, id, group),
            kvpi_wire_entries(table, group, seq->grains) * sizeof(int32_t), digest);
    digest = XXH3_64bits_withSeed(kvpi_wire_windows(table, id),
                                  table->n_groups * sizeof(kvp_window), digest);
    if (seq->n_ring > 0)
        digest = XXH3_64bits_withSeed(kvpi_wire_writes(table, id), seq->n_ring * sizeof(int32_t),
                                      digest);
    if (seq->nodes == 0)
        return digest;
    const size_t n_bytes = seq->nodes * sizeof(int32_t);
    digest = XXH3_64bits_withSeed(kvpi_wire_node_tokens(table, id), n_bytes, digest);
    return XXH3_64bits_withSeed(kvpi_wire_node_parents(table, id), n_bytes, digest);
}

uint64_t kvpi_wire_table_digest(const struct kvpi_wire_table *table)
{
    uint64_t digest = table->n_seqs;
    for (uint32_t id = 0; id < table->max_seqs; id++) {
        if (table->seqs[id].status != 0)
            digest = digest_of_seq(table, id, digest);
    }
    return digest;
}

uint64_t kvpi_wire_checksum(const uint8_t *message, size_t n_bytes)
{
    uint64_t head = XXH3_64bits(message, KVPI_WIRE_AT_CHECKSUM);
    return XXH3_64bits_withSeed(message + KVP_WIRE_HEAD_BYTES, n_bytes - KVP_WIRE_HEAD_BYTES, head);
}
