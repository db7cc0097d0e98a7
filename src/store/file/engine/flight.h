/* flight: operations whose transfers are in a queue of the system (io_uring).
 *
 *   waiting -> place: added -> flying -> ended        by op->link; places by number
 *                 ^               |
 *                 +---- again ----+     a transfer that was cut short, or is to be tried again
 *
 * Invariants:
 *
 *   F1  an operation is in exactly one of: waiting, a place, ended
 *   F2  a place in `added` was not taken by the system yet: nothing of it moves
 *   F3  at most PLACES transfers are in the queue
 *   F4  a stage is one place's until that is free again
 *   F5  a tag is of one transfer, and hardly ever again: an answer that comes twice ends nothing
 *
 * A queue that takes nothing more is broken for good. What flies still ends by it; the rest is
 * given back by kvpi_flight_salvage, to be done without a queue. */
#ifndef KVPI_STORE_FLIGHT_H
#define KVPI_STORE_FLIGHT_H

#include "store/file/engine/engine_queue.h"
#include "store/file/slabs.h"
#include "store/backend.h"

enum { KVPI_FLIGHT_PLACES = 64, KVPI_FLIGHT_STAGES = 16 };

struct kvpi_flight_place {
    struct kvpi_store_op *op;
    struct kvpi_slabs *slabs;
    struct kvpi_extent extent; /* SYNC: of the slab that is being synced */
    uint64_t left;             /* bytes */
    uint32_t next_slab;        /* SYNC */
    uint32_t n_tries;          /* since something moved */
    uint32_t tag;              /* of its transfer */
    int flying;                /* the system has it */
    int direct;
    int stage; /* or -1 */
    uint32_t first_span;
    uint32_t n_spans;
    struct iovec spans[1 + KVP_RECORD_BLOCKS_MAX]; /* what is left of them begins at first_span */
};

struct kvpi_flight {
    const struct kvpi_queue_system *system;
    void *queue;
    struct kvpi_slabs *slabs;
    struct kvpi_store_op *first; /* waiting */
    struct kvpi_store_op *last;
    uint32_t n_new; /* of those that wait: since the system was asked */
    struct kvpi_store_op *ended;
    struct kvpi_flight_place *places; /* [PLACES] */
    uint32_t free_places[KVPI_FLIGHT_PLACES];
    uint32_t n_free;
    uint32_t added[KVPI_FLIGHT_PLACES]; /* a ring */
    uint32_t added_first;
    uint32_t n_added;
    uint32_t n_flying;
    uint32_t n_tags;
    uint32_t n_refusals; /* one after the other */
    uint8_t *stages;
    uint32_t free_stages[KVPI_FLIGHT_STAGES];
    uint32_t n_free_stages;
    uint32_t n_stages;
    int fixed;   /* stages are registered */
    int unfixed; /* why they are not: an errno */
    int broken;  /* an errno */
    uint64_t n_staged;
};

/* 0 or an errno. slabs: the engine's own. */
int kvpi_flight_open(struct kvpi_flight *flight, const struct kvpi_queue_system *system,
                     struct kvpi_slabs *slabs);

/* Nothing waits and nothing flies. */
void kvpi_flight_close(struct kvpi_flight *flight);

/* It begins at the next reap, or as soon as enough wait; at once if the disk has nothing to do. */
void kvpi_flight_submit(struct kvpi_flight *flight, struct kvpi_store_op *op);

uint32_t kvpi_flight_reap(struct kvpi_flight *flight, struct kvpi_store_op **out_ops,
                          uint32_t capacity);

/* After flight->broken: an operation that never flew, or NULL. */
struct kvpi_store_op *kvpi_flight_salvage(struct kvpi_flight *flight);

/* 1: the system has to be asked again though nothing may end. */
int kvpi_flight_is_stuck(const struct kvpi_flight *flight);

#endif
