/* json_scan: JSON text as it stands, without a tree: an object's fields are found by name and read
 * where they are. A trace is arrays of millions of numbers, of which a tree would take ten times
 * the bytes.
 *
 * Text is checked as it is passed over: brackets, commas, names, numbers and escapes must be right,
 * and arrays may stand 512 deep. What strings hold is not looked at.
 */
#ifndef KVPI_JSON_SCAN_H
#define KVPI_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tool/requests/number_arrays.h"

/* Where a walk is. Begin one with {.at = text}; the text ends with a NUL and has no other. With
 * `arrays`, the first walk through a text reads its arrays of numbers, and later ones find them. */
typedef struct kvpi_scan {
    const char *at;
    const char *wrong; /* NULL; else what is wrong at `at`, from then on */
    kvpi_number_arrays *arrays;
    bool is_first;
} kvpi_scan;

/* A value, by the place where it begins; NULL: it is not there. */
typedef const char *kvpi_value;

/* Pass over blanks. */
void kvpi_scan_blanks(kvpi_scan *scan);

/* Pass over a value. Returns: false, scan->wrong says why */
bool kvpi_scan_skip(kvpi_scan *scan);

/* Is the text at an end where more was expected: the value may go on in what was not read yet? */
bool kvpi_scan_is_cut(const kvpi_scan *scan);

/* A name that is no field of what is read. */
typedef void kvpi_scan_other(void *context, const char *name, size_t n_bytes);

/* Pass over an object and find fields.
 *
 * Takes:   names    [n], n at most 32
 *          other    gets the names that are not among them; may be NULL
 * Gives:   values   [n]
 * Returns: false, scan->wrong says why; a field that is there twice is wrong
 */
bool kvpi_scan_fields(kvpi_scan *scan, const char *const names[], size_t n, kvpi_value values[],
                      kvpi_scan_other *other, void *context);

/* Go through an array that was passed over before: the first value; the next; the one behind the
 * end of a value. NULL: no more. */
kvpi_value kvpi_array_first(kvpi_value array);
kvpi_value kvpi_array_next(kvpi_value item);
kvpi_value kvpi_array_after(const char *end);

/* Read a value that was passed over before.
 *
 * Returns: false: it is something else, or out of the range of `out`
 */
bool kvpi_value_whole(kvpi_value value, uint64_t *out);
bool kvpi_value_number(kvpi_value value, double *out);

/* Where a number that begins here ends. */
const char *kvpi_value_end(kvpi_value value);

/* A string as it is written, escapes and all: the bytes between its quotes. NULL: it is none. */
const char *kvpi_value_text(kvpi_value value, size_t *out_bytes);

typedef struct kvpi_value_words {
    char of[56];
} kvpi_value_words;

/* Say what stands there: a number or a string as written, "an array", "an object", null. */
kvpi_value_words kvpi_value_say(kvpi_value value);

#endif
