/* catalog: decisions that all back ends with slots share: where a record goes, what is evicted for
 * it, who may read it, and when it is there. */
#ifndef KVPI_STORE_CATALOG_H
#define KVPI_STORE_CATALOG_H

#include "store/backend.h"
#include "store/index.h"

struct kvpi_catalog {
    struct kvpi_index index;
    uint64_t slot_bytes;
    uint64_t evicted;
    uint64_t dropped;
    uint64_t expired;
    uint64_t max_age;     /* seconds; 0: none */
    uint64_t quota_slots; /* of a namespace; 0: none */
    uint64_t (*now)(void *context);
    void *now_context;
    uint32_t hand;     /* the entry that is looked at next, whether it is too old */
    uint32_t n_marked; /* entries that were marked, and not swept */
    void *context;
    /* Get more slots: 1: kvpi_index_free has been called. NULL: there are never more. */
    int (*grow)(void *context);
    /* A record that was READY goes: its entry is still what it was. NULL: no notice is wanted. */
    void (*leave)(void *context, uint32_t entry);
    /* Is the record before this one with another writer, so that it can be read from here? NULL:
     * there is no other. */
    int (*outside)(void *context, const kvp_identity *identity);
    struct kvpi_store_op *held[KVP_STORE_QUEUE_MAX]; /* done, and not handed out yet */
    uint32_t n_held;
};

/* Take the clock, and the limits that the URL has: max_age, quota. KVP_OK; KVP_E_ARG. Before the
 * index is filled. */
kvp_status kvpi_catalog_limit(struct kvpi_catalog *catalog,
                              const struct kvpi_backend_config *config, char *out_why,
                              size_t why_bytes);

/* After a start: what is too old, or over a namespace's quota, goes. */
void kvpi_catalog_trim(struct kvpi_catalog *catalog);

/* Whether a record that was written at this minute is too old. */
int kvpi_catalog_too_old(const struct kvpi_catalog *catalog, uint32_t written);

/* KVP_STORE_OK: op->entry is pinned and op->place says where; else how the operation ends. */
uint32_t kvpi_catalog_prepare(struct kvpi_catalog *catalog, struct kvpi_store_op *op);

/* An operation's reading or writing is done. */
void kvpi_catalog_hold(struct kvpi_catalog *catalog, struct kvpi_store_op *op);

/* Hand out operations that can end. A put waits until its parent is there: were the parent's put
 * never to end, a record that was said to be stored could not be reached. */
uint32_t kvpi_catalog_release(struct kvpi_catalog *catalog, struct kvpi_store_op **out_ops,
                              uint32_t capacity);

/* The end of an operation that was prepared: the record is there, or goes, and is unpinned. Gives
 * the result: KVP_STORE_NO_PARENT for a put that went with its parent meanwhile. */
uint32_t kvpi_catalog_end(struct kvpi_catalog *catalog, struct kvpi_store_op *op, uint32_t result);

/* The entry of a record that can be read, or KVPI_INDEX_NONE. */
uint32_t kvpi_catalog_find(const struct kvpi_catalog *catalog, const kvp_digest *key);

void kvpi_catalog_have(const struct kvpi_catalog *catalog, const kvp_digest *keys, uint32_t n_keys,
                       uint64_t *bits);

/* Drop records and all that need them, behind records of other writers, too. */
void kvpi_catalog_drop(struct kvpi_catalog *catalog, const kvp_digest *keys, uint32_t n_keys);

/* Drop all records that match, and all that need them. */
void kvpi_catalog_evict(struct kvpi_catalog *catalog, const kvp_store_match *match);

/* Whether a record matches; its time is known to the minute. One that may be younger does not. */
int kvpi_match(const kvp_store_match *match, uint64_t space, uint32_t written);

void kvpi_catalog_usage(const struct kvpi_catalog *catalog, struct kvpi_backend_usage *out_usage);

#endif
