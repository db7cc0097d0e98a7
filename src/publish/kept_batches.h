/* kept_batches: the newest batches, for readers that missed some. A ring of bytes, each batch in
 * one piece, and a ring of where they are. The oldest go first. */
#ifndef KVPI_PUBLISH_KEPT_BATCHES_H
#define KVPI_PUBLISH_KEPT_BATCHES_H

#include <kvpager/types.h>

#include <stddef.h>
#include <stdint.h>

struct kvpi_kept_batch {
    size_t at;
    size_t n_bytes;
};

struct kvpi_kept {
    uint8_t *bytes;
    size_t capacity;
    size_t head; /* where the next one begins, if it fits */
    struct kvpi_kept_batch *batches;
    uint32_t max_batches;
    uint32_t first; /* place of the oldest */
    uint32_t n;
    uint64_t newest; /* its number */
};

kvp_status kvpi_kept_open(struct kvpi_kept *kept, size_t capacity, uint32_t max_batches,
                          uint64_t first_number);
void kvpi_kept_close(struct kvpi_kept *kept);

/* Keep a batch of at most `capacity` bytes as number newest + 1. */
void kvpi_kept_add(struct kvpi_kept *kept, const uint8_t *bytes, size_t n_bytes);

/* Number of the oldest; newest + 1: there is none. */
uint64_t kvpi_kept_oldest(const struct kvpi_kept *kept);

/* The batch of this number, which is one of oldest..newest. */
const uint8_t *kvpi_kept_at(const struct kvpi_kept *kept, uint64_t number, size_t *out_bytes);

#endif
