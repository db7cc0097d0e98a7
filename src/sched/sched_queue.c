/* sched_queue: see the header. Insertion walks down to where the new weight is the heaviest, and
 * splits what is below in two by rank; removal merges the two below. Both walk links, not nodes, so
 * that no parent is kept and nothing recurses. */
#include "sched/sched_queue.h"

static struct kvpi_rank *at(const struct kvpi_queue *queue, uint32_t place)
{
    return (struct kvpi_rank *)(void *)((char *)queue->elements + place * queue->stride);
}

static uint32_t weight(const struct kvpi_rank *rank)
{
    return (uint32_t)((rank->arrival * UINT64_C(0x9E3779B97F4A7C15)) >> 32);
}

int kvpi_rank_before(const struct kvpi_rank *a, const struct kvpi_rank *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

void kvpi_queue_insert(struct kvpi_queue *queue, uint32_t place)
{
    struct kvpi_rank *rank = at(queue, place);
    uint32_t *link = &queue->root;
    while (*link != KVPI_QUEUE_NONE && weight(at(queue, *link)) >= weight(rank)) {
        struct kvpi_rank *here = at(queue, *link);
        link = kvpi_rank_before(rank, here) ? &here->left : &here->right;
    }
    uint32_t below = *link;
    uint32_t *left = &rank->left;
    uint32_t *right = &rank->right;
    *link = place;
    while (below != KVPI_QUEUE_NONE) {
        struct kvpi_rank *here = at(queue, below);
        if (kvpi_rank_before(here, rank)) {
            *left = below;
            left = &here->right;
            below = here->right;
        } else {
            *right = below;
            right = &here->left;
            below = here->left;
        }
    }
    *left = *right = KVPI_QUEUE_NONE;
    queue->n++;
}

void kvpi_queue_remove(struct kvpi_queue *queue, uint32_t place)
{
    const struct kvpi_rank *rank = at(queue, place);
    uint32_t *link = &queue->root;
    while (*link != place) {
        struct kvpi_rank *here = at(queue, *link);
        link = kvpi_rank_before(rank, here) ? &here->left : &here->right;
    }
    uint32_t left = rank->left;
    uint32_t right = rank->right;
    while (left != KVPI_QUEUE_NONE && right != KVPI_QUEUE_NONE) {
        if (weight(at(queue, left)) >= weight(at(queue, right))) {
            *link = left;
            link = &at(queue, left)->right;
            left = *link;
        } else {
            *link = right;
            link = &at(queue, right)->left;
            right = *link;
        }
    }
    *link = left != KVPI_QUEUE_NONE ? left : right;
    queue->n--;
}

uint32_t kvpi_queue_after(const struct kvpi_queue *queue, const struct kvpi_rank *rank)
{
    uint32_t best = KVPI_QUEUE_NONE;
    for (uint32_t place = queue->root; place != KVPI_QUEUE_NONE;) {
        const struct kvpi_rank *here = at(queue, place);
        if (rank == NULL || kvpi_rank_before(rank, here)) {
            best = place;
            place = here->left;
        } else {
            place = here->right;
        }
    }
    return best;
}

uint32_t kvpi_queue_before(const struct kvpi_queue *queue, const struct kvpi_rank *rank)
{
    uint32_t best = KVPI_QUEUE_NONE;
    for (uint32_t place = queue->root; place != KVPI_QUEUE_NONE;) {
        const struct kvpi_rank *here = at(queue, place);
        if (rank == NULL || kvpi_rank_before(here, rank)) {
            best = place;
            place = here->right;
        } else {
            place = here->left;
        }
    }
    return best;
}
