/* number_arrays: arrays of whole numbers, which traces consist of, are read when their text is
 * checked, and found by their place afterwards: no digit is looked at twice.
 */
#ifndef KVPI_NUMBER_ARRAYS_H
#define KVPI_NUMBER_ARRAYS_H

#include <stddef.h>
#include <stdint.h>

#include "tool/input/budget.h"

typedef struct kvpi_number_array {
    const char *begin, *end; /* of its text: the bracket, and behind the other one */
    size_t first, n;         /* of its numbers */
} kvpi_number_array;

/* Of a text, in the order in which they stand in it. */
typedef struct kvpi_number_arrays {
    kvpi_number_array *of; /* [n] */
    size_t n, capacity;
    uint64_t *numbers; /* [n_numbers] of all of them */
    size_t n_numbers, numbers_capacity;
    kvpi_budget *budget;
} kvpi_number_arrays;

/* Read the array that begins here, and keep it. Short ones are not worth a place, and others than
 * of numbers of up to 19 digits are left to those who check them; so are all when memory is short.
 *
 * Returns: behind the array; NULL: it was not read
 */
const char *kvpi_number_arrays_read(kvpi_number_arrays *arrays, const char *begin);

/* Find the array that begins here. NULL: it was not kept. Cost: O(log n) */
const kvpi_number_array *kvpi_number_arrays_find(const kvpi_number_arrays *arrays,
                                                 const char *begin);

void kvpi_number_arrays_clear(kvpi_number_arrays *arrays);
void kvpi_number_arrays_free(kvpi_number_arrays *arrays);

#endif
