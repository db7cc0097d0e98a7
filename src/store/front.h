/* front: a store as its two sides see it. The caller's side accepts operations and hands out what
 * has ended; the worker's side, a thread or kvp_store_work, does the work.
 *
 * Between them two rings of operation numbers, each with one producer and one consumer:
 *
 *   caller --- accepted ---> worker --- ended ---> caller
 *
 * An operation is in exactly one place: in `free_ops` (caller), in a ring, or with the worker. */
#ifndef KVPI_STORE_FRONT_H
#define KVPI_STORE_FRONT_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/backend.h"
#include "store/identity/digest.h"
#include "store/wake.h"

/* Positions are compared by their difference, which never exceeds the capacity: they may wrap. */
struct kvpi_ring {
    uint32_t *items; /* [capacity] a power of two */
    uint32_t mask;
    _Atomic uint32_t tail; /* the producer's */
    _Atomic uint32_t head; /* the consumer's */
};

/* Counters of kvp_store_stats, written by the worker alone, read by any thread. */
enum kvpi_counter {
    KVPI_COUNT_PUTS,
    KVPI_COUNT_STORED,
    KVPI_COUNT_KNOWN,
    KVPI_COUNT_REFUSED,
    KVPI_COUNT_GETS,
    KVPI_COUNT_HITS,
    KVPI_COUNT_ABSENT,
    KVPI_COUNT_RACED,
    KVPI_COUNT_REREAD,
    KVPI_COUNT_FAILED,
    KVPI_COUNT_AWAY,
    KVPI_COUNT_READ_BYTES,
    KVPI_COUNT_WRITTEN_BYTES,
    KVPI_COUNT_RECORDS,
    KVPI_COUNT_BYTES,
    KVPI_COUNT_SIZE,
    KVPI_COUNT_EVICTED,
    KVPI_COUNT_DROPPED,
    KVPI_COUNT_STAGED,
    KVPI_COUNT_EXPIRED,
    KVPI_COUNT_RETIRED,
    KVPI_COUNT_AWAY_UNTIL,
    KVPI_COUNT_GET_SUM_NS,
    KVPI_COUNT_PUT_SUM_NS,
    KVPI_COUNT_ENDED,
    KVPI_COUNT_BAD,
    KVPI_COUNT_GET_NS = KVPI_COUNT_BAD + KVP_BAD_REASONS,
    KVPI_COUNT_PUT_NS = KVPI_COUNT_GET_NS + KVP_STORE_LATENCIES,
    KVPI_COUNTERS = KVPI_COUNT_PUT_NS + KVP_STORE_LATENCIES
};

struct kvp_store {
    kvp_store_config config; /* pointers into the caller's memory are not kept */
    const struct kvpi_backend *backend;
    void *self;
    kvp_digester digester; /* the worker's */
    struct kvpi_mac mac;
    int has_mac;
    uint32_t header_bytes;
    uint32_t record_blocks;

    struct kvpi_store_op *ops; /* [max_ops] */
    uint8_t *headers;          /* [max_ops][header_bytes] */

    uint32_t *free_ops; /* the caller's */
    uint32_t n_free;
    struct kvpi_ring accepted;
    struct kvpi_ring ended;
    struct kvpi_wake wake;   /* to the worker: something was accepted */
    struct kvpi_wake signal; /* to the caller: something has ended */

    pthread_t thread;
    _Atomic int asleep; /* the worker waits, or is about to */
    _Atomic int closing;

    /* The worker's. */
    uint32_t n_begun;
    uint32_t told;       /* of ended.tail: the caller has been signalled up to here */
    uint32_t n_failures; /* one after the other */
    uint64_t away_until; /* by the clock; 0: not away */
    uint64_t away_step;

    _Atomic uint64_t counters[KVPI_COUNTERS];
    _Atomic uint64_t n_accepted; /* the caller's */
};

static inline int kvpi_ring_empty(struct kvpi_ring *ring)
{
    return atomic_load_explicit(&ring->tail, memory_order_acquire) ==
           atomic_load_explicit(&ring->head, memory_order_relaxed);
}

/* There is room: a ring has a place for every operation. */
static inline void kvpi_ring_put(struct kvpi_ring *ring, uint32_t item)
{
    const uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    ring->items[tail & ring->mask] = item;
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
}

/* 0: empty. */
static inline int kvpi_ring_take(struct kvpi_ring *ring, uint32_t *out_item)
{
    const uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (atomic_load_explicit(&ring->tail, memory_order_acquire) == head)
        return 0;
    *out_item = ring->items[head & ring->mask];
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return 1;
}

/* Put what the back end uses into the statistics. No other thread is inside it. */
void kvpi_worker_note(kvp_store *store);

/* One round of the worker: begin what was accepted, end what is done. 1: something happened. */
int kvpi_worker_round(kvp_store *store);

/* The worker's thread; `store` is a kvp_store. */
void *kvpi_worker_run(void *store);

#endif
