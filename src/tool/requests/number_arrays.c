/* See number_arrays.h. The NUL behind the text ends every loop. */
#include "tool/requests/number_arrays.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_NUMBERS = 4, MOST_DIGITS = 19 /* they fit 64 bits */ };

static const char *skip_blanks(const char *at)
{
    return *at <= ' ' ? at + strspn(at, " \n\r\t") : at;
}

/* Behind a number; `at` when there is none, or it is not as plain as those of traces are. */
static const char *read_number(const char *at, uint64_t *out)
{
    const char *begin = at;
    uint64_t number = 0;
    for (unsigned digit; (digit = (unsigned)*at - '0') <= 9; at++)
        number = number * 10 + digit;
    *out = number;
    return at - begin > MOST_DIGITS || (*begin == '0' && at - begin > 1) ? begin : at;
}

static bool has_room(kvpi_number_arrays *arrays)
{
    uint64_t *numbers = kvpi_budget_grow(arrays->budget, arrays->numbers, arrays->n_numbers,
                                         &arrays->numbers_capacity, sizeof *numbers);
    if (numbers != NULL)
        arrays->numbers = numbers;
    return numbers != NULL;
}

static const char *read_numbers(kvpi_number_arrays *arrays, const char *begin)
{
    const char *at = skip_blanks(begin + 1);
    for (;;) {
        uint64_t number = 0;
        const char *end = read_number(at, &number);
        if (end == at || (arrays->n_numbers == arrays->numbers_capacity && !has_room(arrays)))
            return NULL;
        arrays->numbers[arrays->n_numbers++] = number;
        at = skip_blanks(end);
        if (*at == ']')
            return at + 1;
        if (*at != ',')
            return NULL;
        at = skip_blanks(at + 1);
    }
}

static bool add(kvpi_number_arrays *arrays, const kvpi_number_array *array)
{
    kvpi_number_array *of =
        kvpi_budget_grow(arrays->budget, arrays->of, arrays->n, &arrays->capacity, sizeof *of);
    if (of == NULL)
        return false;
    arrays->of = of;
    of[arrays->n++] = *array;
    return true;
}

const char *kvpi_number_arrays_read(kvpi_number_arrays *arrays, const char *begin)
{
    kvpi_number_array array = {.begin = begin, .first = arrays->n_numbers};
    array.end = read_numbers(arrays, begin);
    array.n = arrays->n_numbers - array.first;
    if (array.end != NULL && array.n >= LEAST_NUMBERS && add(arrays, &array))
        return array.end;
    arrays->n_numbers = array.first;
    return NULL;
}

const kvpi_number_array *kvpi_number_arrays_find(const kvpi_number_arrays *arrays,
                                                 const char *begin)
{
    size_t low = 0, high = arrays->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (arrays->of[middle].begin < begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low < arrays->n && arrays->of[low].begin == begin ? &arrays->of[low] : NULL;
}

void kvpi_number_arrays_clear(kvpi_number_arrays *arrays)
{
    arrays->n = arrays->n_numbers = 0;
}

void kvpi_number_arrays_free(kvpi_number_arrays *arrays)
{
    kvpi_budget_give(arrays->budget, arrays->capacity * sizeof *arrays->of +
                                         arrays->numbers_capacity * sizeof *arrays->numbers);
    free(arrays->of);
    free(arrays->numbers);
    *arrays = (kvpi_number_arrays){.budget = arrays->budget};
}
