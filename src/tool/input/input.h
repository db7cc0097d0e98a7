/* input: files as input of the command. Opening one never waits. A FIFO is accepted only where a
 * pipe is allowed and if it has a writer; a device is never accepted.
 */
#ifndef KVPI_INPUT_H
#define KVPI_INPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct kvpi_input {
    FILE *file;          /* NULL: not open */
    bool is_regular;     /* else a pipe */
    uint64_t n_bytes;    /* regular: its size */
    uint64_t data_bytes; /* regular: of them those that are not in holes */
    char why[160];       /* it could not be opened: a sentence without the name */
} kvpi_input;

/* Open a file to be read from its start. "-" is standard input, where pipes will do.
 *
 * Takes:   pipes_too  also pipes, which have no size and are read once
 * Gives:   input      to be closed with kvpi_input_close; `why` after a failure
 * Returns: true; false: it cannot be opened, or is of a kind that is not taken
 */
bool kvpi_input_open(kvpi_input *input, const char *path, bool pipes_too);
void kvpi_input_close(kvpi_input *input);

/* Read n bytes of a regular file from `offset`, as they are there now; its place stays. False: it
 * does not have them. */
bool kvpi_input_read_at(const kvpi_input *input, uint64_t offset, void *out, size_t n);

#endif
