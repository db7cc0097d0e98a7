/* budget: how much memory a reader of a file may use. The limit grows with the bytes that were
 * read, so a file's claims cannot cost more than its size.
 *
 *   limit = max, or if that is 0: 64 MiB + 16 x the bytes that were read
 *
 * Jansson's trees count, too, between kvpi_budget_json and kvpi_budget_json_end. Its memory
 * functions have no context, so only one budget at a time can have them, in one thread.
 */
#ifndef KVPI_BUDGET_H
#define KVPI_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVPI_BUDGET_BASE  (UINT64_C(64) << 20)
#define KVPI_BUDGET_TIMES 16u

typedef struct kvpi_budget {
    uint64_t max;     /* bytes; 0: by what was read */
    uint64_t read;    /* bytes so far */
    uint64_t used;    /* bytes now */
    uint64_t peak;    /* the most there ever were */
    uint64_t n_asked; /* requests for memory: a measure of work */
    bool is_over;     /* something was refused because of the limit, not by the system */
} kvpi_budget;

uint64_t kvpi_budget_limit(const kvpi_budget *budget);

/* Take n bytes more into account, that are allocated elsewhere. Returns: false over the limit */
bool kvpi_budget_take(kvpi_budget *budget, uint64_t n);
void kvpi_budget_give(kvpi_budget *budget, uint64_t n);

/* realloc from one size to another. NULL: refused, by the limit or the system; as it was. */
void *kvpi_budget_realloc(kvpi_budget *budget, void *memory, size_t from, size_t to);

/* Room for one more of n items: the array, grown by an eighth at least where it is large, or NULL
 * as above. */
void *kvpi_budget_grow(kvpi_budget *budget, void *array, size_t n, size_t *capacity,
                       size_t item_bytes);

/* What Jansson allocates, and frees, in between is counted. All of it is to be freed in between. */
void kvpi_budget_json(kvpi_budget *budget);
void kvpi_budget_json_end(void);

#endif
