/* shrink: delta debugging in its simple form.
 *
 *     size n/2     [ . . . . . . . . | . . . . . . . . ]    try without each piece of `size` items;
 *     size n/4     [ . . . . | . . . . | ......        ]    what can go is gone for all later tries
 *     ...
 *     size 1       again and again, until a whole round removed nothing
 *
 * The round runs from the end of the list to its beginning: late items depend on early ones, so
 * that what they needed can go in the same round. (Zeller, Hildebrandt: "Simplifying and Isolating
 * Failure-Inducing Input"; its tries of single pieces are left out, they seldom fail here.)
 */
#include "oplog/shrink.h"

#include <stdlib.h>
#include <string.h>

typedef struct search {
    uint32_t *items; /* [n_items] fails */
    uint32_t *trial; /* same room */
    size_t n_items;
    kvpi_shrink_fails fails;
    void *context;
} search;

/* Tries without items [begin, end). Gives 1 when they are gone, 0 when they are needed. */
static int try_without(search *s, size_t begin, size_t end)
{
    size_t n = s->n_items - (end - begin);
    size_t n_needed = n;
    memcpy(s->trial, s->items, begin * sizeof *s->trial);
    memcpy(s->trial + begin, s->items + end, (s->n_items - end) * sizeof *s->trial);
    int result = s->fails(s->context, s->trial, n, &n_needed);
    if (result <= 0)
        return result;
    uint32_t *items = s->items;
    s->items = s->trial;
    s->trial = items;
    s->n_items = n_needed < n ? n_needed : n;
    return 1;
}

/* One round with pieces of `size`. Gives the number of pieces that went, or a negative number. */
static int round_of(search *s, size_t size)
{
    int gone = 0;
    size_t end = s->n_items;
    while (end > 0) {
        size_t begin = end > size ? end - size : 0;
        int result = try_without(s, begin, end);
        if (result < 0)
            return result;
        gone += result;
        /* What was needed may have become shorter than `begin`. */
        end = begin < s->n_items ? begin : s->n_items;
    }
    return gone;
}

static kvp_status search_all(search *s)
{
    size_t size = s->n_items / 2;
    for (;;) {
        if (size < 1)
            size = 1;
        int gone = round_of(s, size);
        if (gone < 0)
            return KVP_E_STATE;
        if (size == 1 && gone == 0)
            return KVP_OK;
        size /= 2;
    }
}

kvp_status kvpi_shrink(uint32_t *items, size_t *n_items, kvpi_shrink_fails fails, void *context)
{
    if (*n_items == 0)
        return KVP_OK;
    uint32_t *memory = calloc(*n_items, 2 * sizeof *memory);
    if (memory == NULL)
        return KVP_E_NO_MEMORY;
    search s = {memory, memory + *n_items, *n_items, fails, context};
    memcpy(s.items, items, *n_items * sizeof *items);
    kvp_status status = search_all(&s);
    memcpy(items, s.items, s.n_items * sizeof *items);
    *n_items = s.n_items;
    free(memory);
    return status;
}
