/* wire_table: what a worker knows of its sequences. The mirror's state, and the sender's memory of
 * it: both sides have the same, so that differences mean the same.
 */
#ifndef KVPI_WIRE_TABLE_H
#define KVPI_WIRE_TABLE_H

#include <kvpager/states.h>
#include <kvpager/wire.h>

/* One sequence. status 0: none, and then everything else is 0. */
struct kvpi_wire_seq {
    uint32_t status;
    uint32_t tokens;
    uint32_t known;
    uint32_t computed;
    uint32_t cached;
    uint32_t step;
    uint32_t grains; /* of the tokens that every row has room for */
    int32_t last;
    uint32_t nodes; /* of its tree */
    uint32_t read_slot;
    uint32_t write_slot;
    uint32_t n_ring; /* slots that it writes before that one */
};

struct kvpi_wire_table {
    uint32_t max_seqs;
    uint32_t max_row_blocks;
    uint32_t max_grains;
    uint32_t grain;                        /* tokens: the largest number that divides every S */
    uint32_t sizes;                        /* KVPI_WIRE_SIZES, or 0: blocks of one size */
    uint32_t block_tokens[KVP_GROUPS_MAX]; /* S of each layer group */
    uint32_t n_groups;
    uint32_t max_nodes;
    uint32_t n_seqs;            /* with a status */
    struct kvpi_wire_seq *seqs; /* [max_seqs] */
    int32_t *rows;              /* [max_seqs, n_groups, max_row_blocks]; behind a row's entries:
                                   anything */
    kvp_window *windows;        /* [max_seqs, n_groups] */
    int32_t *nodes;             /* [max_seqs, 2, max_nodes] values, then parents */
    int32_t *writes;            /* [max_seqs, KVP_STATE_RING_MAX] with recurrent state: slots of the
                                   ring, then write_slot; behind it, and without it: anything */
};

/* Plans memory: arrays one after the other, each 64-byte aligned. A size that does not fit size_t
 * sets `overflow`, and stays set. */
struct kvpi_wire_layout {
    size_t bytes;
    int overflow;
};

/* Reserve n x size bytes; give their offset. n is at most 2^27 times 2^31, which 64 bits hold. */
size_t kvpi_wire_layout_take(struct kvpi_wire_layout *layout, uint64_t n, size_t size);

/* Is this the id of a block of the tier? With group n_groups: of a slot of recurrent state. */
int kvpi_wire_is_block(const kvp_wire_config *config, uint32_t group, uint32_t tier, int32_t block);

/* S of a layer group. */
static inline uint32_t kvpi_wire_block_tokens(const kvp_wire_config *config, uint32_t group)
{
    return config->group_tokens[group] != 0 ? config->group_tokens[group] : config->block_tokens;
}

static inline uint32_t kvpi_wire_least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The largest number that divides both. */
static inline uint32_t kvpi_wire_common(uint32_t a, uint32_t b)
{
    while (b != 0) {
        const uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* How many tokens may a copy of this group have? */
static inline uint32_t kvpi_wire_copy_tokens(const kvp_wire_config *config, uint32_t group)
{
    return group < config->n_groups ? kvpi_wire_block_tokens(config, group) : 1;
}

int kvpi_wire_config_is_valid(const kvp_wire_config *config);

/* Find memory for an object: the caller's, or allocated. Gives: out_owned, 1 when allocated. */
kvp_status kvpi_wire_memory(void **memory, size_t memory_bytes, size_t bytes, uint32_t *out_owned);

/* Where the table's arrays are in memory; used twice: to plan, and to point. */
struct kvpi_wire_table_places {
    size_t seqs;
    size_t rows;
    size_t windows;
    size_t nodes;
    size_t writes;
};

struct kvpi_wire_table_places kvpi_wire_table_plan(struct kvpi_wire_layout *layout,
                                                   const kvp_wire_config *config);
void kvpi_wire_table_init(struct kvpi_wire_table *table, const kvp_wire_config *config,
                          void *memory, struct kvpi_wire_table_places places);

static inline int32_t *kvpi_wire_row(const struct kvpi_wire_table *table, uint32_t id,
                                     uint32_t group)
{
    return table->rows + ((size_t)id * table->n_groups + group) * table->max_row_blocks;
}

/* Entries of a group's row that so many grains need. */
static inline uint32_t kvpi_wire_entries(const struct kvpi_wire_table *table, uint32_t group,
                                         uint32_t grains)
{
    const uint32_t S = table->block_tokens[group];
    return (uint32_t)(((uint64_t)grains * table->grain + S - 1) / S);
}

/* The grains that rows have room for, if they are as short as so many tokens allow: up to where the
 * first row ends. Sender and mirror count them so: no other number is sound. */
uint64_t kvpi_wire_grains(const struct kvpi_wire_table *table, uint64_t n_tokens);

/* Those of a token more than so many grains have: the rows that are full get a block each. */
static inline uint64_t kvpi_wire_grains_next(const struct kvpi_wire_table *table, uint32_t grains)
{
    return kvpi_wire_grains(table, (uint64_t)grains * table->grain + 1);
}

static inline kvp_window *kvpi_wire_windows(const struct kvpi_wire_table *table, uint32_t id)
{
    return table->windows + (size_t)id * table->n_groups;
}

static inline int32_t *kvpi_wire_node_tokens(const struct kvpi_wire_table *table, uint32_t id)
{
    return table->nodes + (size_t)id * 2 * table->max_nodes;
}

static inline int32_t *kvpi_wire_node_parents(const struct kvpi_wire_table *table, uint32_t id)
{
    return kvpi_wire_node_tokens(table, id) + table->max_nodes;
}

static inline int32_t *kvpi_wire_writes(const struct kvpi_wire_table *table, uint32_t id)
{
    return table->writes + (size_t)id * KVP_STATE_RING_MAX;
}

void kvpi_wire_table_clear(struct kvpi_wire_table *table);
void kvpi_wire_table_remove(struct kvpi_wire_table *table, uint32_t id);
uint64_t kvpi_wire_table_digest(const struct kvpi_wire_table *table);

#endif
