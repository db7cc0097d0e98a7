/* lines: a file line by line, unpacked if need be, in memory that its budget allows. */
#ifndef KVPI_LINES_H
#define KVPI_LINES_H

#include <stdio.h>

#include "tool/input/budget.h"
#include "tool/input/unpack.h"

/* The longest line, unless the budget's max is more than 16 times as much: a request of two million
 * tokens, spelled out. What is longer is refused before it is read. */
#define KVPI_LINES_MAX_BYTES (UINT64_C(32) << 20)

/* Zero it, and set budget, and file and budget of `from`. */
typedef struct kvpi_lines {
    kvpi_unpack from;
    kvpi_budget *budget;
    char *text; /* [capacity] */
    size_t capacity;
    size_t begin;   /* of the next line */
    size_t n_bytes; /* that were read into text */
    char kept;      /* what stands at begin, where the last line has its NUL */
    bool has_kept;
    bool is_end;  /* of the file */
    bool is_wide; /* all that is left is one line */
} kvpi_lines;

enum {
    KVPI_LINES_OK,
    KVPI_LINES_END,
    KVPI_LINES_UNREADABLE, /* errno says why */
    KVPI_LINES_DAMAGED,    /* from.wrong says why */
    KVPI_LINES_NO_MEMORY,  /* or budget->is_over */
    KVPI_LINES_TOO_LONG
};

/* Get the next line: with its end, and a NUL behind it. A line that contains a NUL ends with the
 * first one, so that a hole of a file is not read for the end of a line in it.
 *
 * Gives:   out_text  good until the next call; may be written to
 * Returns: KVPI_LINES_...
 */
int kvpi_lines_next(kvpi_lines *lines, char **out_text, size_t *out_bytes);

/* The line that was given last, of n_bytes, goes on to the end of the file: it is given again, with
 * all that is behind it. Its bytes must be as they were given. */
void kvpi_lines_widen(kvpi_lines *lines, size_t n_bytes);

uint64_t kvpi_lines_max(const kvpi_lines *lines); /* bytes of the longest line */

void kvpi_lines_close(kvpi_lines *lines);

#endif
