/* disk: records of KV in a store, below the host tier. llama_disk.h has the rules, and a kvp_spill
 * decides what is written and read (kvpager/spill.h).
 *
 *   disk        opens and closes, and what is done in each step
 *   disk_moves  what records are: named, measured, given from cells, taken to the host tier
 *
 * A record is llama.cpp's state of record_blocks blocks, filled up with zeros. How many bytes such
 * a state has is measured at the start; one that has another number is not written. */
#ifndef KVPI_LLAMA_DISK_H
#define KVPI_LLAMA_DISK_H

#include "../engine.h"

#include <kvpager/llama_disk.h>
#include <kvpager/spill.h>

typedef struct kvpi_disk {
    kvp_store *store;
    kvp_spill *spill;
    uint32_t threads;
    uint32_t record_blocks;
    uint32_t max_seq_tokens;
    uint32_t was_tried;      /* llama.cpp has taken a record in this process */
    size_t state_bytes;      /* of a record */
    uint64_t n_plans;        /* of the cache, which have run */
    uint64_t n_computed;     /* requests: slow, or no_room */
    int32_t *tokens;         /* [max_seq_tokens] of a prompt */
    uint32_t *left;          /* [n_ids] records of its sequence that found no place */
    uint32_t lends_a_record; /* 1: host blocks of a record can be loaded at all */
    kvp_llama_disk_stats stats;
} kvpi_disk;

/* What KV depends on besides tokens and namespace. */
kvp_status kvpi_disk_moves_fingerprint(const kvp_llama *engine, const kvpi_disk *disk,
                                       const char *model, kvp_digest *out);

/* Bytes of a record's state; 0: llama.cpp does not compute it. */
size_t kvpi_disk_moves_measure(kvp_llama *engine, uint32_t n_tokens);

/* kvp_spill_config: `engine` is a kvp_llama. */
int kvpi_disk_moves_give(void *engine, const kvp_spill_record *record);
int kvpi_disk_moves_take(void *engine, const kvp_spill_record *record);

#endif
