/* sched_queue: requests in order of rank, (priority, arrival), smallest first.
 *
 * A queue is a treap over places 0..n-1 of an array whose elements begin with a struct kvpi_rank:
 * a search tree by rank and a heap by a mix of the arrival number. The mix gives the tree its
 * shape, never its order: decisions do not depend on it. Every operation takes O(log n) steps. */
#ifndef KVPI_SCHED_QUEUE_H
#define KVPI_SCHED_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#define KVPI_QUEUE_NONE UINT32_MAX

struct kvpi_rank {
    uint64_t arrival; /* unique */
    int32_t priority;
    uint32_t left;
    uint32_t right;
};

struct kvpi_queue {
    void *elements;
    size_t stride;
    uint32_t root;
    uint32_t n;
};

int kvpi_rank_before(const struct kvpi_rank *a, const struct kvpi_rank *b);

void kvpi_queue_insert(struct kvpi_queue *queue, uint32_t place);
void kvpi_queue_remove(struct kvpi_queue *queue, uint32_t place);

/* The first after `rank`, the last before it; NULL: the very first, the very last. KVPI_QUEUE_NONE
 * when there is none. `rank` need not be in the queue. */
uint32_t kvpi_queue_after(const struct kvpi_queue *queue, const struct kvpi_rank *rank);
uint32_t kvpi_queue_before(const struct kvpi_queue *queue, const struct kvpi_rank *rank);

#endif
