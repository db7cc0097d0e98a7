/* snapshot: what save.c writes and load.c reads.
 *
 *   head       72 bytes, with a checksum of itself
 *   tree       a snapshot of the cache (kvpager/snapshot.h) without KV: block ids stay
 *   records    each of neighbouring blocks of one id: what they are, and llama.cpp's bytes of their
 *              cells. Its checksum begins with the fingerprint
 *
 * Numbers are as the machine has them, like those in llama.cpp's bytes: the version is wrong on a
 * machine with the other order. */
#ifndef KVPI_LLAMA_SNAPSHOT_H
#define KVPI_LLAMA_SNAPSHOT_H

#include "engine.h"

#define KVPI_SNAPSHOT_MARK  "kvpllama"
#define KVPI_SNAPSHOT_BLOCK "kvpstate"

enum { KVPI_SNAPSHOT_VERSION = 1 };

/* Tokens of a record, at most: bounds the memory for its bytes. */
enum { KVPI_SNAPSHOT_TOKENS = 1024 };

typedef struct kvpi_snapshot_head {
    char mark[8];
    uint32_t version;
    uint32_t block_tokens;
    uint32_t pool_blocks;
    uint32_t n_records;
    uint64_t tree_bytes;
    kvp_hash fingerprint;
    uint64_t reserved; /* 0 */
    kvp_hash sum;      /* of all before */
} kvpi_snapshot_head;

/* Then n_blocks entries and state_bytes bytes. */
typedef struct kvpi_snapshot_record {
    char mark[8];
    uint32_t first_idx;
    uint32_t n_blocks;
    uint64_t state_bytes;
    kvp_hash sum; /* of the record, with zeros here */
} kvpi_snapshot_record;

typedef struct kvpi_snapshot_entry {
    int32_t block;
    uint32_t reserved; /* 0 */
    kvp_hash hash;     /* of its content: that of the unit */
} kvpi_snapshot_entry;

/* Blocks of a record, at most. */
uint32_t kvpi_snapshot_most(const kvpi_ids *ids);

/* What KV depends on besides tokens, as far as libllama tells: metadata, numbers of parameters and
 * bytes, types of K and V, and what the caller adds. */
kvp_hash kvpi_snapshot_fingerprint(const kvp_llama *engine, const char *model);

kvp_hash kvpi_snapshot_head_sum(const kvpi_snapshot_head *head);

#endif
