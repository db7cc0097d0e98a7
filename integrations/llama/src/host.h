/* host: the host tier. KV of evicted and swapped blocks, as llama.cpp's bytes, by stretches.
 *
 *   stretch    neighbouring blocks of one id that left together: one state of the spare id
 *   place      of a host block: the stretch that has it, and its block index there
 *
 * A stretch is freed with its last block. Until then bytes of blocks that are gone are dead. As on
 * the device, a host block that lost its content keeps its place until it is written again.
 *
 * The plan's copies are followed, not run one by one:
 *
 *   1. in order: which content does each destination get: cells of an id, or a block of a stretch
 *   2. cells that go to the host are read, before anything is removed
 *   3. ids of closed sequences are retired, and rows that changed are followed (ids.h)
 *   4. what comes back goes to keepers, where ids.c finds it as any other cached block
 *
 * In 4 a whole stretch takes cells, though perhaps only one of its blocks is wanted. For that the
 * cache has fewer blocks than there are cells: by one stretch of the longest kind. */
#ifndef KVPI_LLAMA_HOST_H
#define KVPI_LLAMA_HOST_H

#include "rates.h"
#include "state.h"

#define KVPI_NO_STRETCH UINT32_MAX

typedef struct kvpi_stretch {
    kvpi_bytes bytes;
    uint32_t first_idx;
    uint32_t n_blocks;
    uint32_t n_tokens;
    uint32_t n_refs; /* places, and items of a plan; 0: not in use */
    uint32_t next;   /* not in use: the next one */
} kvpi_stretch;

typedef struct kvpi_host_place {
    uint32_t stretch; /* or KVPI_NO_STRETCH */
    uint32_t idx;     /* block index */
    uint64_t generation;
} kvpi_host_place;

/* What a copy of the plan brings. */
typedef struct kvpi_item {
    uint32_t root;        /* the item that has the same content, and reads it: itself, or earlier */
    uint32_t id;          /* of a root that reads cells; else KVPI_NO_ID */
    uint32_t stretch;     /* of a root: where its content is, when it has been read */
    uint32_t idx;         /* of a root */
    uint32_t n_tokens;    /* from the block's start */
    uint32_t n_followers; /* of a root: later items with its content */
    uint32_t was_host;    /* its content comes back from the host */
    uint32_t is_read;     /* of a root: its cells go to the host */
} kvpi_item;

typedef struct kvpi_host {
    kvpi_ids *ids;
    kvpi_rates rates;
    uint32_t host_blocks; /* null block included; 0: there is no host tier */
    uint32_t most_blocks; /* of a stretch */
    uint32_t n_stretches;
    uint32_t free_stretch;
    kvpi_stretch *stretches; /* [n_stretches] */
    kvpi_host_place *places; /* [host_blocks] */
    kvpi_item *items;        /* [max_copies] */
    uint32_t *order;         /* [max_copies] items to be read, or put, sorted */
    uint32_t *on_device;     /* [pool_blocks] 1 + the item that writes the block last; else 0 */
    uint32_t *on_host;       /* [host_blocks] likewise */
    uint64_t stretches_out;
    uint64_t stretches_in;
    uint64_t slow_blocks; /* not kept because computing them is faster */
} kvpi_host;

typedef struct kvpi_host_sizes {
    uint32_t host_blocks;
    uint32_t most_blocks;
    uint32_t max_copies;
} kvpi_host_sizes;

/* KVP_OK, or KVP_E_NO_MEMORY: kvpi_host_end frees what is there. */
kvp_status kvpi_host_init(kvpi_host *host, kvpi_ids *ids, const kvpi_host_sizes *sizes);
void kvpi_host_end(kvpi_host *host);

/* Follow a plan. KVP_E_CORRUPT: a block is not where it should be. */
kvp_status kvpi_host_run(kvpi_host *host, const kvp_copy *copies, uint32_t n_copies);

/* A record that was read from a disk. */
typedef struct kvpi_host_record {
    kvpi_bytes bytes;
    uint32_t first_idx;
    uint32_t n_blocks;
} kvpi_host_record;

/* The record becomes a stretch of the blocks that the cache loads: [n_blocks] host blocks, 0 where
 * none was wanted. Gives how many those are. The bytes are the host's, or freed. */
uint32_t kvpi_host_adopt(kvpi_host *host, const kvpi_host_record *record, const int32_t *blocks);

/* Bytes of all stretches, and those of them that are dead. */
void kvpi_host_count(const kvpi_host *host, uint64_t *out_bytes, uint64_t *out_dead);

/* NULL, or what is wrong; *out_object: with which host block, or stretch. */
const char *kvpi_host_audit(const kvpi_host *host, uint64_t *out_object);

#endif
