/* backend: what a back end, which keeps the records, offers to the store in front of it.
 *
 * The front has the queues, the thread, the clock, the headers and every check; a back end has the
 * index, the places and the bytes. All calls come from one thread at a time.
 *
 *   prepare   PUT: find room and a place for the record, or say why not. GET: find the record.
 *             Decides at once, starts nothing: KVP_STORE_OK, and op->place says where; or how the
 *             operation ends
 *   begin     start to write or read op->spans: header first, then the blocks. After a bad read it
 *             is called once more for the same operation
 *   reap      give operations whose reading or writing has ended, op->io_failed set. A back end
 *             that asks a server learns only now how one ends: op->outcome has it. One that is
 *             given twice has ended by the first time
 *   end       the operation's result is known. PUT: the record is there from now on (KVP_STORE_OK)
 *             or never was. GET: it was used, or was bad and goes (KVP_STORE_BAD). Gives the result
 *             that the caller is told: a back end that others write to may know that a bad record
 *             went meanwhile (KVP_STORE_RACED)
 *   have, drop, evict   at once. NULL: these go through begin, reap and end, too, without prepare
 *   describe  how it works here, in words
 *   wait      block until something may be there to reap, `wake` is readable, or timeout_ms (-1:
 *             none) have gone
 *
 * SYNC goes through prepare, begin, reap and end like PUT and GET.
 *
 * A back end that has stores of its own (has_stores) leaves headers and checks to them. */
#ifndef KVPI_STORE_BACKEND_H
#define KVPI_STORE_BACKEND_H

#include <kvpager/store.h>

#include "store/identity/identity_record.h"
#include "store/url.h"

/* One operation, from its acceptance to its end. */
struct kvpi_store_op {
    uint32_t kind; /* KVP_STORE_PUT ... */
    uint32_t result;
    uint64_t tag;
    uint64_t accepted_ns;
    const kvp_identity *identity; /* PUT, GET */
    const kvp_digest *keys;       /* HAVE, DROP */
    uint64_t *bits;               /* HAVE */
    kvp_store_match match;        /* EVICT */
    uint32_t n_keys;
    uint32_t n_spans;
    struct kvpi_span spans[1 + KVP_RECORD_BLOCKS_MAX]; /* the header, then the blocks */
    kvp_digest key;
    struct kvpi_place place;
    enum kvpi_record_fault fault; /* of the first read */
    int io_failed;
    uint32_t outcome; /* KVP_STORE_OK, or how it ended on the far side */
    uint32_t begun;   /* 1: the back end has it */
    /* The back end's. */
    uint32_t entry;
    int is_other_length; /* what was read is longer or shorter than a record */
    uint64_t deadline_ns;
    struct kvpi_store_op *link;
    void *place_in;
};

/* What a back end is made for. */
struct kvpi_backend_config {
    const kvp_store_config *store;
    struct kvpi_url *url;
    uint32_t header_bytes;
    uint64_t payload_bytes; /* the largest of all groups */
    uint32_t record_blocks;
    uint64_t (*clock)(void *context); /* the caller's, for store->now_context; NULL: none */
};

struct kvpi_backend_usage {
    uint64_t records;
    uint64_t bytes;
    uint64_t size;
    uint64_t evicted;
    uint64_t dropped;
    uint64_t staged; /* operations whose blocks were copied on their way */
    uint64_t expired;
    uint64_t retired;
    uint64_t away_ns; /* how long it leaves its place alone from now on, by its own decision */
};

/* What a back end with servers tells operators, server by server. */
struct kvpi_walk {
    size_t n_bytes; /* of each record, from its beginning; SIZE_MAX: all */
    void (*server)(void *context, const kvp_store_directory *directory);
    /* NULL: names are only counted. bytes NULL: it is gone. Gives 1: it is to go. */
    int (*record)(void *context, const char *name, const uint8_t *bytes, size_t n_bytes);
    void *context;
};

/* Libraries with back ends, and the one that loads them, are of the same build of the sources. */
#define KVPI_BACKEND_VERSION                                                                       \
    ((uint32_t)(sizeof(struct kvpi_store_op) ^ sizeof(struct kvpi_backend_config) << 16 ^          \
                sizeof(struct kvpi_backend) << 8))

struct kvpi_backend {
    uint32_t version; /* KVPI_BACKEND_VERSION */
    const char *scheme;
    kvp_status (*open)(const struct kvpi_backend_config *config, void **out_self, char *out_why,
                       size_t why_bytes);
    void (*close)(void *self);
    uint32_t (*prepare)(void *self, struct kvpi_store_op *op);
    void (*begin)(void *self, struct kvpi_store_op *op);
    uint32_t (*reap)(void *self, struct kvpi_store_op **out_ops, uint32_t capacity);
    uint32_t (*end)(void *self, struct kvpi_store_op *op, uint32_t result);
    void (*have)(void *self, const kvp_digest *keys, uint32_t n_keys, uint64_t *bits);
    void (*drop)(void *self, const kvp_digest *keys, uint32_t n_keys);
    void (*evict)(void *self, const kvp_store_match *match);
    void (*wait)(void *self, int wake, int timeout_ms);
    void (*usage)(const void *self, struct kvpi_backend_usage *out_usage);
    void (*describe)(const void *self, char *out_text, size_t text_bytes); /* from any thread */
    /* Without an open store; NULL: kvp_store_scan knows another way. */
    kvp_status (*walk)(struct kvpi_url *url, const struct kvpi_walk *walk, char *out_why,
                       size_t why_bytes);
    int has_stores;
    /* What the stores of its own count, into statistics that have what this one counts; from any
     * thread. NULL: it has none. */
    void (*add_stats)(const void *self, kvp_store_stats *stats);
};

extern const struct kvpi_backend kvpi_memory_backend;
extern const struct kvpi_backend kvpi_file_backend;

/* As kvp_store_open, with a back end that no scheme names: for tests. */
kvp_status kvpi_store_open(const kvp_store_config *config, const struct kvpi_backend *backend,
                           kvp_store **out_store, char *out_why, size_t why_bytes);

/* The same over a back end that is open: it has stores, whose configuration this one is. Afterwards
 * the back end is the store's; after a failure it is still the caller's. */
kvp_status kvpi_store_over(const kvp_store_config *config, const struct kvpi_backend *backend,
                           void *self, kvp_store **out_store, char *out_why, size_t why_bytes);

#endif
