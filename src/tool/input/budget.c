/* See budget.h. A piece of Jansson's memory has its size before it. */
#include "tool/input/budget.h"

#include <jansson.h>
#include <stdlib.h>

/* Keeps what follows aligned for any type. */
#define SIZE_BYTES 16u

/* From here on arrays grow by an eighth: what is not used of one is at most that much. */
#define LARGE_BYTES 65536u

/* Jansson's functions have no context. */
static kvpi_budget *json_budget;
static json_malloc_t malloc_before;
static json_free_t free_before;

uint64_t kvpi_budget_limit(const kvpi_budget *budget)
{
    return budget->max != 0 ? budget->max : KVPI_BUDGET_BASE + KVPI_BUDGET_TIMES * budget->read;
}

bool kvpi_budget_take(kvpi_budget *budget, uint64_t n)
{
    const uint64_t limit = kvpi_budget_limit(budget);
    budget->n_asked++;
    if (n > limit || budget->used > limit - n) {
        budget->is_over = true;
        return false;
    }
    budget->used += n;
    budget->peak = budget->used > budget->peak ? budget->used : budget->peak;
    return true;
}

void kvpi_budget_give(kvpi_budget *budget, uint64_t n)
{
    budget->used -= n;
}

void *kvpi_budget_realloc(kvpi_budget *budget, void *memory, size_t from, size_t to)
{
    if (to > from && !kvpi_budget_take(budget, to - from))
        return NULL;
    void *grown = realloc(memory, to);
    if (grown == NULL && to > from)
        kvpi_budget_give(budget, to - from);
    if (grown != NULL && to < from)
        kvpi_budget_give(budget, from - to);
    return grown;
}

void *kvpi_budget_grow(kvpi_budget *budget, void *array, size_t n, size_t *capacity,
                       size_t item_bytes)
{
    if (n < *capacity)
        return array;
    if (*capacity > SIZE_MAX / 4 / item_bytes)
        return NULL;
    const bool is_large = *capacity * item_bytes >= LARGE_BYTES;
    const size_t wanted = *capacity == 0 ? 64 : *capacity + (is_large ? *capacity / 8 : *capacity);
    void *grown = kvpi_budget_realloc(budget, array, *capacity * item_bytes, wanted * item_bytes);
    if (grown != NULL)
        *capacity = wanted;
    return grown;
}

/* ------------------------------------------------------------------------------------- Jansson */

/* With what the system's allocator adds to a small piece. */
static size_t cost_of(size_t n)
{
    return (n + SIZE_BYTES + 8 + 15) / 16 * 16;
}

static void *json_take(size_t n)
{
    if (n > SIZE_MAX / 2 || !kvpi_budget_take(json_budget, cost_of(n)))
        return NULL;
    char *memory = malloc(n + SIZE_BYTES);
    if (memory == NULL) {
        kvpi_budget_give(json_budget, cost_of(n));
        return NULL;
    }
    *(size_t *)(void *)memory = n;
    return memory + SIZE_BYTES;
}

static void json_give(void *memory)
{
    if (memory == NULL)
        return;
    char *whole = (char *)memory - SIZE_BYTES;
    kvpi_budget_give(json_budget, cost_of(*(size_t *)(void *)whole));
    free(whole);
}

void kvpi_budget_json(kvpi_budget *budget)
{
    json_budget = budget;
    json_get_alloc_funcs(&malloc_before, &free_before);
    json_set_alloc_funcs(json_take, json_give);
}

void kvpi_budget_json_end(void)
{
    json_set_alloc_funcs(malloc_before, free_before);
    json_budget = NULL;
}
