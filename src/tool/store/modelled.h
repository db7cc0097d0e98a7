/* A store as a model in simulated time: a disk, or a store on another machine.
 *
 * It decides like a real one: what is stored, what is evicted, what is found. KV has at most a few
 * bytes for each block, and operations take the time of the bytes that they stand for. */
#ifndef KVPI_STORE_MODELLED_H
#define KVPI_STORE_MODELLED_H

#include <kvpager/store.h>
#include <stdbool.h>

#define KVPI_MODELLED_NEVER UINT64_MAX

/* KV of a block that the model keeps, at most. */
#define KVPI_MODELLED_BLOCK_BYTES 16u

typedef struct kvpi_modelled_options {
    uint64_t size;       /* bytes of KV; 0: there is no model */
    uint64_t bytes_s;    /* read or written in a second */
    uint64_t latency_ns; /* of each operation, and of the question before a load */
    bool is_remote;
} kvpi_modelled_options;

typedef struct kvpi_modelled {
    kvpi_modelled_options options;
    bool takes_time;
    uint64_t record_bytes; /* that the largest record of KV stands for */
    uint64_t block_bytes;  /* that a block of KV stands for */
    uint64_t state_bytes;  /* that a record of a state stands for; 0: there are none */
    uint64_t read_bytes;   /* so far */
    uint64_t written_bytes;
    uint64_t now_ns; /* the caller's clock */
    uint64_t due_ns; /* when the next operation ends; KVPI_MODELLED_NEVER: none has begun */
    void (*leaves)(void *context, const uint8_t *key); /* a record goes: the first 8 bytes of its
                                                          key. NULL: no notice is wanted */
    void *leaves_context;
} kvpi_modelled;

/* Open a store that is a model.
 *
 * Takes:   config   except url, clock and threads; its block_bytes are what the model keeps
 *          model    options, takes_time, the bytes of records and now_ns; must outlive the store
 * Returns: as kvp_store_open
 */
kvp_status kvpi_modelled_open(const kvp_store_config *config, kvpi_modelled *model,
                              kvp_store **out_store, char *out_why, size_t why_bytes);

#endif
