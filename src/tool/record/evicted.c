/* See evicted.h. */
#include "tool/record/evicted.h"

#include <stdlib.h>
#include <string.h>

#define MIN_NUMBERS 4096u
#define MAX_NUMBERS (UINT32_C(1) << 30)

static void change(kvpi_evicted *evicted, uint32_t number, uint32_t by)
{
    for (; number <= evicted->n_numbers; number += number & (0u - number))
        evicted->sums[number] += by;
}

static int compare(const void *a, const void *b)
{
    const kvpi_known *const *left = a, *const *right = b;
    return (*left)->evicted < (*right)->evicted ? -1 : (*left)->evicted > (*right)->evicted;
}

static uint32_t up_to(const kvpi_evicted *evicted, uint32_t number)
{
    uint32_t n = 0;
    for (; number > 0; number -= number & (0u - number))
        n += evicted->sums[number];
    return n;
}

/* Those that are known and out, in the order of their numbers: *n of them. NULL: no memory. */
static kvpi_known **list(kvpi_recent *chains, size_t *n)
{
    size_t at = 0;
    kvpi_known *of = NULL;
    for (*n = 0; (of = kvpi_recent_next(chains, &at)) != NULL;)
        *n += of->evicted != 0;
    kvpi_known **out = malloc((*n + 1) * sizeof *out);
    if (out == NULL)
        return NULL;
    for (*n = at = 0; (of = kvpi_recent_next(chains, &at)) != NULL;)
        if (of->evicted != 0)
            out[(*n)++] = of;
    qsort(out, *n, sizeof *out, compare);
    return out;
}

/* Numbers from 1 for blocks that are known and out. Each counts for those that are out before it
 * and not known, too; such ones at the end have a number more. False: no memory. */
static bool renumber(kvpi_evicted *evicted, kvpi_recent *chains)
{
    size_t n = 0;
    kvpi_known **out = list(chains, &n);
    uint64_t n_numbers = MIN_NUMBERS;
    while (n_numbers < 2 * n + 4)
        n_numbers *= 2;
    const bool fits = out != NULL && n_numbers <= MAX_NUMBERS;
    uint32_t *sums = fits ? calloc(n_numbers + 1, sizeof *sums) : NULL;
    uint32_t *old = fits ? malloc((n + 1) * sizeof *old) : NULL;
    if (sums == NULL || old == NULL) {
        free(out);
        free(sums);
        free(old);
        return false;
    }
    kvpi_evicted made = {sums, old, (uint32_t)n_numbers, (uint32_t)n + 1, (uint32_t)n};
    uint32_t before = 0;
    for (size_t i = 0; i <= n; i++) {
        const uint32_t number = i < n ? out[i]->evicted : evicted->last;
        const uint32_t n_out = up_to(evicted, number);
        change(&made, (uint32_t)i + 1, n_out - before);
        before = n_out;
        if (i == n)
            break;
        old[i] = number;
        out[i]->evicted = (uint32_t)i + 1;
    }
    kvpi_evicted_free(evicted);
    *evicted = made;
    free(out);
    return true;
}

bool kvpi_evicted_is_full(const kvpi_evicted *evicted)
{
    return evicted->last == evicted->n_numbers;
}

uint32_t kvpi_evicted_add(kvpi_evicted *evicted, kvpi_recent *chains)
{
    if (kvpi_evicted_is_full(evicted) && !renumber(evicted, chains))
        return 0;
    change(evicted, ++evicted->last, 1);
    return evicted->last;
}

uint32_t kvpi_evicted_now(const kvpi_evicted *evicted, uint32_t old)
{
    uint32_t low = 0, high = evicted->n_old;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (evicted->old[middle] <= old)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t kvpi_evicted_after(const kvpi_evicted *evicted, uint32_t number, uint32_t last)
{
    return last <= number ? 0 : up_to(evicted, last) - up_to(evicted, number);
}

void kvpi_evicted_remove(kvpi_evicted *evicted, uint32_t number)
{
    change(evicted, number, UINT32_MAX);
}

void kvpi_evicted_free(kvpi_evicted *evicted)
{
    free(evicted->sums);
    free(evicted->old);
    *evicted = (kvpi_evicted){0};
}
