/* disk: records of KV in a store, below the host tier. llama_disk.h has the rules.
 *
 *   disk_names  what KV is known by: fingerprint, namespaces, digests
 *   disk_puts   records of open ids, from cells to the store
 *   disk_gets   records for waiting requests, from the store to stretches of the host tier
 *
 * To the store a record is one block of record_tokens tokens: llama.cpp's state, filled up with
 * zeros. How many bytes a state of record_tokens cells has is measured at the start; a state that
 * has another number is not written.
 *
 * Tags of the store's operations: kind (8 bits), ask (24), record (32). */
#ifndef KVPI_LLAMA_DISK_H
#define KVPI_LLAMA_DISK_H

#include "../engine.h"

#include <kvpager/lend.h>
#include <kvpager/llama_disk.h>

enum { KVPI_PUTS_LEAST = 4, KVPI_PUTS_MOST = 32, KVPI_ASKS_MOST = 16, KVPI_KNOWN = 1 << 14 };

enum { KVPI_TAG_PUT = 1, KVPI_TAG_HAVE = 2, KVPI_TAG_GET = 3 };

typedef struct kvpi_disk kvpi_disk;

/* A namespace with a name. */
typedef struct kvpi_space {
    kvp_ns ns; /* bits 0: free */
    kvp_digest root;
    uint64_t number;
} kvpi_space;

/* How far the sequence of an id was written. */
typedef struct kvpi_written {
    kvp_seq seq;
    uint32_t n_records; /* UINT32_MAX: no more */
    kvp_digest digest;  /* of the last one */
    kvp_digest key;
} kvpi_written;

typedef struct kvpi_put {
    kvp_identity identity;
    kvp_digest key;
    int32_t *tokens;  /* [record_tokens] */
    kvpi_bytes bytes; /* made when it is first needed */
    void *block;      /* the bytes, as the store takes them */
    uint32_t is_out;
} kvpi_put;

typedef struct kvpi_get {
    kvp_identity identity;
    void *block; /* of aligned_alloc, or NULL */
    uint32_t state;
} kvpi_get;

enum { KVPI_GET_LATER = 0, KVPI_GET_OUT, KVPI_GET_GOOD, KVPI_GET_BAD };

enum {
    KVPI_ASK_FREE = 0,
    KVPI_ASK_LOOKING, /* the store is asked which records it has */
    KVPI_ASK_BEHIND,  /* another ask reads the same record first */
    KVPI_ASK_READING,
    KVPI_ASK_READ /* all has come, and the plan before it is not over */
};

/* A request whose prefix is on the disk, perhaps. */
typedef struct kvpi_ask {
    uint32_t state;
    kvp_request request;
    kvp_ns ns;
    uint64_t begin_ns;
    int32_t *tokens; /* [max_seq_tokens] */
    uint32_t n_tokens;
    uint32_t first; /* record that the cache lacks */
    uint32_t n;     /* records from there on */
    uint32_t behind;
    uint32_t n_out;      /* operations of the store that have not ended */
    uint32_t is_late;    /* the request was released, because its time was over */
    kvp_digest *digests; /* [max_records] of the prompt */
    kvp_digest *keys;    /* [max_records] */
    uint64_t *bits;      /* [max_records / 64 + 1] which of `keys` from `first` on are there */
    kvpi_get *gets;      /* [max_records] from `first` on */
    int32_t *blocks;     /* [max_records x record_blocks] host blocks, from `first` on */
    uint8_t *whole;      /* likewise */
    uint64_t load;
    uint32_t n_load_blocks;
} kvpi_ask;

struct kvpi_disk {
    kvp_store *store;
    kvp_digester *digester;
    kvp_digest fingerprint;
    uint64_t max_wait_ns;
    uint32_t threads;
    uint32_t record_tokens;
    uint32_t record_blocks;
    uint32_t max_records; /* of a prompt */
    uint32_t max_seq_tokens;
    size_t state_bytes; /* of a record */
    size_t block_bytes; /* filled up */
    uint64_t n_plans;
    kvpi_space *spaces; /* [n_spaces] */
    uint32_t n_spaces;
    kvpi_written *written; /* [n_ids] */
    uint32_t n_ids;
    kvpi_put puts[KVPI_PUTS_MOST];
    uint32_t n_puts;
    kvpi_ask *asks; /* [n_asks] */
    uint32_t n_asks;
    uint32_t n_asking;
    kvp_request *requests; /* [max_requests] */
    uint32_t max_requests;
    uint64_t *known; /* [KVPI_KNOWN] parts of keys that the store has, as far as is known */
    uint64_t *known_at;
    kvpi_rates rates; /* of reading, by records */
    uint32_t was_tried;
    kvp_llama_disk_stats stats;
};

/* -------------------------------------------------------------------------------------- names */

/* What KV depends on besides tokens and namespace. */
kvp_status kvpi_disk_names_fingerprint(kvpi_disk *disk, const kvp_llama *engine, const char *model);

/* The namespace's name on the disk, or NULL. */
const kvpi_space *kvpi_disk_names_find(const kvpi_disk *disk, kvp_ns ns);

/* What the store knows record `number` by, of a prompt whose record tokens these are. */
kvp_identity kvpi_disk_names_identity(const kvpi_disk *disk, const kvpi_space *space,
                                      uint32_t number, const int32_t *tokens);

kvp_status kvpi_disk_names_key(kvpi_disk *disk, const kvp_digest *digest, kvp_digest *out_key);

/* Records that the store has, as far as is known. A store that has evicted half of what it holds
 * since then may have evicted this one. */
int kvpi_disk_names_is_known(const kvpi_disk *disk, const kvp_digest *key);
void kvpi_disk_names_note(kvpi_disk *disk, const kvp_digest *key);
void kvpi_disk_names_forget(kvpi_disk *disk, const kvp_digest *key);

/* ------------------------------------------------------------------------------------- writes */

/* Put complete records of open ids, while places are free. 0: some have to wait. */
int kvpi_disk_puts_offer(kvp_llama *engine, kvpi_disk *disk);
void kvpi_disk_puts_ended(kvpi_disk *disk, uint32_t place, uint32_t result);
uint32_t kvpi_disk_puts_count(const kvpi_disk *disk);

/* -------------------------------------------------------------------------------------- reads */

/* Ask for waiting requests. */
void kvpi_disk_gets_ask(kvp_llama *engine, kvpi_disk *disk);

/* An operation of an ask has ended. */
void kvpi_disk_gets_looked(kvp_llama *engine, kvpi_disk *disk, uint32_t ask, uint32_t result);
void kvpi_disk_gets_ended(kvpi_disk *disk, uint32_t ask, uint32_t record, uint32_t result);

/* The time of these requests was over. */
void kvpi_disk_gets_expired(kvpi_disk *disk, const kvp_sched_expired *expired);

/* Go on with all asks: begin reads, give the cache what is whole, release requests. */
void kvpi_disk_gets_work(kvp_llama *engine, kvpi_disk *disk);

/* Forget all asks; nothing of them may be on its way in the store. */
void kvpi_disk_gets_end(kvp_llama *engine, kvpi_disk *disk);

#endif
