/* kept_batches: see kept_batches.h. */
#include "publish/kept_batches.h"

#include <stdlib.h>
#include <string.h>

kvp_status kvpi_kept_open(struct kvpi_kept *kept, size_t capacity, uint32_t max_batches,
                          uint64_t first_number)
{
    memset(kept, 0, sizeof(*kept));
    kept->capacity = capacity;
    kept->max_batches = max_batches;
    kept->newest = first_number - 1;
    kept->bytes = malloc(capacity);
    kept->batches = calloc(max_batches, sizeof(*kept->batches));
    if (kept->bytes == NULL || kept->batches == NULL) {
        kvpi_kept_close(kept);
        return KVP_E_NO_MEMORY;
    }
    return KVP_OK;
}

void kvpi_kept_close(struct kvpi_kept *kept)
{
    free(kept->bytes);
    free(kept->batches);
    memset(kept, 0, sizeof(*kept));
}

static void lose_oldest(struct kvpi_kept *kept)
{
    kept->first = (kept->first + 1) % kept->max_batches;
    kept->n--;
}

/* The oldest batch lies nearest behind head, so the batches in the way are the oldest ones. */
static void clear_place(struct kvpi_kept *kept, size_t n_bytes)
{
    const struct kvpi_kept_batch *batches = kept->batches;
    if (n_bytes > kept->capacity - kept->head) {
        while (kept->n > 0 && batches[kept->first].at >= kept->head) {
            lose_oldest(kept);
        }
        kept->head = 0;
    }
    while (kept->n > 0 && (kept->n == kept->max_batches ||
                           (batches[kept->first].at < kept->head + n_bytes &&
                            batches[kept->first].at + batches[kept->first].n_bytes > kept->head))) {
        lose_oldest(kept);
    }
}

void kvpi_kept_add(struct kvpi_kept *kept, const uint8_t *bytes, size_t n_bytes)
{
    clear_place(kept, n_bytes);
    memcpy(kept->bytes + kept->head, bytes, n_bytes);
    kept->batches[(kept->first + kept->n) % kept->max_batches] =
        (struct kvpi_kept_batch){kept->head, n_bytes};
    kept->head += n_bytes;
    kept->n++;
    kept->newest++;
}

uint64_t kvpi_kept_oldest(const struct kvpi_kept *kept)
{
    return kept->newest + 1 - kept->n;
}

const uint8_t *kvpi_kept_at(const struct kvpi_kept *kept, uint64_t number, size_t *out_bytes)
{
    const uint32_t i = (uint32_t)(number - kvpi_kept_oldest(kept));
    const struct kvpi_kept_batch *batch =
        &kept->batches[(uint32_t)(((uint64_t)kept->first + i) % kept->max_batches)];
    *out_bytes = batch->n_bytes;
    return kept->bytes + batch->at;
}
