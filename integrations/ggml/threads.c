/* threads: see threads.h. */
#include "threads.h"

#include <stdatomic.h>
#include <string.h>

int kvpi_threads_are_openmp(const struct kvpi_feature *features)
{
    for (; features != NULL && features->name != NULL; features++) {
        if (strcmp(features->name, "OPENMP") == 0)
            return features->value != NULL && strcmp(features->value, "0") != 0;
    }
    return 0;
}

struct region {
    kvp_attention_work work;
    void *data;
    uint32_t n;
    atomic_uint next;
};

/* Shares are counted, and not numbers of threads: there may be fewer than were asked for. Relaxed:
 * the region's end orders what was written before what follows. */
static void take_shares(void *data)
{
    struct region *region = data;
    for (;;) {
        const uint32_t i = atomic_fetch_add_explicit(&region->next, 1, memory_order_relaxed);
        if (i >= region->n)
            return;
        region->work(region->data, i, region->n);
    }
}

void kvpi_threads_run(void *pool, kvp_attention_work work, void *data, uint32_t n)
{
    const kvpi_parallel *parallel = pool;
    struct region region = {.work = work, .data = data, .n = n};
    atomic_init(&region.next, 0);
    (*parallel)(take_shares, &region, n, 0);
}
